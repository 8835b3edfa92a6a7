//! Entries to rows, page by page: a flow, what it said, how far it came and its end are
//! one row, in the order in which flows began; so are a question for a name and what it
//! was answered.
//!
//! A flow may end many pages after it began, and its row stands where it began. So
//! the pages are read twice: once for what stands far from its beginning
//! ([`Late`]), once for the rows. What is held is one page, and what crosses the
//! edge of one.

use std::collections::{BTreeMap, BTreeSet};

use bailey_model::{
    Entry, Event, FlowEnded, FlowId, FlowNamed, FlowProgressed, Host, Incarnation, NameAnswered,
    Timestamp,
};

use crate::rows::FlowRow;

/// Most flows whose end stands on another page than their beginning and is shown
/// with it; those beyond have a row of their own for their end.
const MAX_LATE: usize = 1 << 20;

/// A flow, by the run that it belongs to.
type Key = (Option<Incarnation>, FlowId);
/// A name and the type of its question.
type Name = (Host, u16);
/// An entry of a name, by the run that it belongs to.
type NameNo = (Option<Incarnation>, u64);

/// What stands on another page than the flow's beginning, or the question.
#[derive(Debug, Default)]
pub struct Late {
    incarnation: Option<Incarnation>,
    here: BTreeSet<Key>,
    named: BTreeMap<Key, FlowNamed>,
    /// The last of each, and how many there are.
    progressed: BTreeMap<Key, (FlowProgressed, u32)>,
    ended: BTreeMap<Key, FlowEnded>,
    /// Questions of this run without an answer, and whether they are of this page.
    asked: BTreeMap<Name, (u64, bool)>,
    /// By the question, with the number of the answer's entry.
    answered: BTreeMap<NameNo, (NameAnswered, u64)>,
}

impl Late {
    /// Takes the next page.
    pub fn push_page(&mut self, entries: &[Entry]) {
        self.here.clear();
        self.asked.values_mut().for_each(|(_, here)| *here = false);
        for entry in entries {
            match &entry.event {
                Event::BoxStarted(started) => {
                    self.incarnation = Some(started.incarnation);
                    self.asked.clear();
                }
                Event::NameAsked(asked) if self.asked.len() < MAX_LATE => {
                    let name = (asked.host.clone(), asked.qtype);
                    self.asked.insert(name, (entry.no, true));
                }
                Event::NameAnswered(it) => {
                    let asked = self.asked.remove(&(it.host.clone(), it.qtype));
                    if let Some((no, false)) = asked
                        && self.answered.len() < MAX_LATE
                    {
                        let key = (self.incarnation, no);
                        self.answered.insert(key, (it.clone(), entry.no));
                    }
                }
                Event::FlowProgressed(it) => self.push_progress(it),
                Event::FlowOpened(opened) => {
                    self.here.insert((self.incarnation, opened.flow));
                }
                Event::FlowNamed(named) => {
                    let key = (self.incarnation, named.flow);
                    if !self.here.contains(&key) && self.named.len() < MAX_LATE {
                        self.named.insert(key, named.clone());
                    }
                }
                Event::FlowEnded(ended) => {
                    let key = (self.incarnation, ended.flow);
                    if !self.here.contains(&key) && self.ended.len() < MAX_LATE {
                        self.ended.insert(key, ended.clone());
                    }
                }
                _ => {}
            }
        }
    }

    fn push_progress(&mut self, it: &FlowProgressed) {
        let key = (self.incarnation, it.flow);
        if self.here.contains(&key) {
            return;
        }
        if let Some((last, count)) = self.progressed.get_mut(&key) {
            last.clone_from(it);
            *count += 1;
        } else if self.progressed.len() < MAX_LATE {
            self.progressed.insert(key, (it.clone(), 1));
        }
    }
}

/// Folds pages to rows.
#[derive(Debug)]
pub struct Fold {
    incarnation: Option<Incarnation>,
    rows: Vec<FlowRow>,
    open: BTreeMap<Key, usize>,
    /// Questions of this page without an answer.
    asked: BTreeMap<Name, usize>,
    late: Late,
    /// Shown with their beginnings already, and how many of them are to come.
    shown: BTreeMap<(Key, Which), u32>,
    /// Answers that are shown with their questions already.
    shown_answers: BTreeSet<NameNo>,
    /// Before this nothing is shown, and nothing that began before.
    since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Named,
    Progressed,
    Ended,
}

impl Fold {
    /// With what stands on later pages; only what began at `since` or after is
    /// shown.
    #[must_use]
    pub fn new(late: Late, since: Timestamp) -> Self {
        Self {
            incarnation: None,
            rows: Vec::new(),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
            late,
            shown: BTreeMap::new(),
            shown_answers: BTreeSet::new(),
            since,
        }
    }

    /// The rows of the next page.
    pub fn page(&mut self, box_name: &str, entries: &[Entry]) -> Vec<FlowRow> {
        for entry in entries {
            self.push(box_name, entry);
        }
        for (key, at) in std::mem::take(&mut self.open) {
            let Some(row) = self.rows.get_mut(at) else {
                continue;
            };
            if let Some(named) = self.late.named.remove(&key) {
                row.said(&named);
                self.shown.insert((key, Which::Named), 1);
            }
            if let Some((last, count)) = self.late.progressed.remove(&key) {
                row.progressed(&last);
                self.shown.insert((key, Which::Progressed), count);
            }
            if let Some(ended) = self.late.ended.remove(&key) {
                row.ended(&ended);
                self.shown.insert((key, Which::Ended), 1);
            }
        }
        self.answer_page();
        let since = self.since.to_string();
        let mut rows = std::mem::take(&mut self.rows);
        rows.retain(|row| row.ts >= since);
        rows
    }

    /// Writes into this page's questions what is answered on later pages.
    fn answer_page(&mut self) {
        for at in std::mem::take(&mut self.asked).into_values() {
            let Some(row) = self.rows.get_mut(at) else {
                continue;
            };
            let key = (self.incarnation, row.no);
            if let Some((it, no)) = self.late.answered.remove(&key) {
                row.answered(&it);
                self.shown_answers.insert((self.incarnation, no));
            }
        }
    }

    /// Whether an entry of a name is shown with another one's row.
    fn push_name(&mut self, entry: &Entry) -> bool {
        match &entry.event {
            Event::NameAsked(asked) => {
                let name = (asked.host.clone(), asked.qtype);
                self.asked.insert(name, self.rows.len());
                false
            }
            Event::NameAnswered(it) => {
                let at = self.asked.remove(&(it.host.clone(), it.qtype));
                if let Some(row) = at.and_then(|at| self.rows.get_mut(at)) {
                    row.answered(it);
                    return true;
                }
                self.shown_answers.remove(&(self.incarnation, entry.no))
            }
            _ => false,
        }
    }

    fn push(&mut self, box_name: &str, entry: &Entry) {
        if self.push_name(entry) {
            return;
        }
        let which = match &entry.event {
            Event::BoxStarted(started) => {
                // What was asked before is answered no more.
                self.answer_page();
                self.incarnation = Some(started.incarnation);
                None
            }
            Event::FlowOpened(opened) => {
                let key = (self.incarnation, opened.flow);
                self.open.insert(key, self.rows.len());
                None
            }
            Event::FlowNamed(named) => {
                let key = (self.incarnation, named.flow);
                let at = self.open.get(&key);
                if let Some(row) = at.and_then(|at| self.rows.get_mut(*at)) {
                    row.said(named);
                    return;
                }
                Some((key, Which::Named))
            }
            Event::FlowProgressed(it) => {
                let key = (self.incarnation, it.flow);
                let at = self.open.get(&key);
                if let Some(row) = at.and_then(|at| self.rows.get_mut(*at)) {
                    row.progressed(it);
                    return;
                }
                Some((key, Which::Progressed))
            }
            Event::FlowEnded(ended) => {
                let key = (self.incarnation, ended.flow);
                let at = self.open.remove(&key);
                if let Some(row) = at.and_then(|at| self.rows.get_mut(at)) {
                    row.ended(ended);
                    return;
                }
                Some((key, Which::Ended))
            }
            _ => None,
        };
        // With its flow's row already, or of a flow that began before.
        if which.is_some_and(|which| self.is_shown(which) || self.since > Timestamp(0)) {
            return;
        }
        self.rows.extend(FlowRow::of(box_name, entry));
    }

    fn is_shown(&mut self, which: (Key, Which)) -> bool {
        let Some(left) = self.shown.get_mut(&which) else {
            return false;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.shown.remove(&which);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{
        AddrClass, BoxId, BoxStarted, Direction, EndReason, FiveTuple, FlowOpened, Granted,
        HostFrom, NameAnswer, NameAsked, Proto, Sni,
    };
    use proptest::prelude::*;

    use super::*;

    fn started(run: u8) -> Event {
        Event::BoxStarted(BoxStarted {
            box_id: BoxId([1; 16]),
            name: "yard".to_owned(),
            incarnation: Incarnation([run; 16]),
            command: Vec::new(),
            reach: "internet".to_owned(),
            image: "host".to_owned(),
        })
    }

    fn opened(flow: u64) -> Event {
        Event::FlowOpened(FlowOpened {
            flow: FlowId(flow),
            direction: Direction::Out,
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: "192.0.0.2:40000".parse().unwrap(),
                dst: "93.184.216.34:443".parse().unwrap(),
            },
            host: None,
            host_from: HostFrom::None,
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        })
    }

    fn named(flow: u64) -> Event {
        Event::FlowNamed(FlowNamed {
            flow: FlowId(flow),
            sni: Sni::Host(Host::new("shop.example").unwrap()),
        })
    }

    fn ended(flow: u64) -> Event {
        Event::FlowEnded(FlowEnded {
            flow: FlowId(flow),
            bytes_out: flow,
            bytes_in: 1,
            duration_us: 1,
            end: EndReason::Closed,
            outer_src: None,
        })
    }

    fn numbered(events: Vec<Event>) -> Vec<Entry> {
        let entry = |(no, event)| Entry {
            no,
            ts: Timestamp(no * 1000),
            event,
        };
        (1..).zip(events).map(entry).collect()
    }

    fn rows(pages: &[&[Entry]], since: u64) -> Vec<FlowRow> {
        let mut late = Late::default();
        pages.iter().for_each(|page| late.push_page(page));
        let mut fold = Fold::new(late, Timestamp(since));
        let each = pages.iter().map(|page| fold.page("yard", page));
        let rows: Vec<Vec<FlowRow>> = each.collect();
        assert!(fold.shown.is_empty() && fold.open.is_empty());
        assert!(fold.shown_answers.is_empty() && fold.asked.is_empty());
        rows.concat()
    }

    #[test]
    fn a_flow_is_one_row_wherever_the_pages_part() {
        let entries = numbered(vec![
            started(1),
            opened(1),
            opened(2),
            named(1),
            ended(2),
            ended(1),
            started(2),
            opened(1),
        ]);
        let whole = rows(&[&entries], 0);
        let kinds: Vec<&str> = whole.iter().map(|row| row.kind.as_str()).collect();
        assert_eq!(kinds, ["started", "flow", "flow", "started", "flow"]);
        assert_eq!(whole[1].dst_host.as_deref(), Some("shop.example"));
        assert_eq!((whole[1].bytes_out, whole[2].bytes_out), (Some(1), Some(2)));
        assert_eq!(whole[4].end, None);
        for at in 0..=entries.len() {
            let (one, other) = entries.split_at(at);
            assert_eq!(rows(&[one, other], 0), whole, "{at}");
        }
        let single: Vec<&[Entry]> = entries.chunks(1).collect();
        assert_eq!(rows(&single, 0), whole);
        // What began before is not shown, nor its end.
        let young = rows(&single[3..], 4000);
        let kinds: Vec<&str> = young.iter().map(|row| row.kind.as_str()).collect();
        assert_eq!(kinds, ["started", "flow"]);
    }

    fn progressed(flow: u64, bytes_in: u64) -> Event {
        Event::FlowProgressed(FlowProgressed {
            flow: FlowId(flow),
            bytes_out: 3,
            bytes_in,
            duration_us: 300_000_000 * bytes_in,
        })
    }

    fn lost(flow: u64) -> Event {
        let Event::FlowEnded(mut it) = ended(flow) else {
            unreachable!()
        };
        (it.bytes_out, it.bytes_in, it.end) = (0, 0, EndReason::GateLost);
        Event::FlowEnded(it)
    }

    fn asked(qtype: u16) -> Event {
        let host = Host::new("shop.example").unwrap();
        let count = 1;
        Event::NameAsked(NameAsked { host, qtype, count })
    }

    fn answered(qtype: u16, answer: NameAnswer) -> Event {
        Event::NameAnswered(NameAnswered {
            host: Host::new("shop.example").unwrap(),
            qtype,
            answer,
            addrs: vec!["93.184.216.34".parse().unwrap()],
            more: 0,
            ttl: 60,
            count: 1,
        })
    }

    /// As [`rows`], in every way to part the entries in two, and one by one.
    fn rows_of(events: Vec<Event>) -> Vec<FlowRow> {
        let entries = numbered(events);
        let whole = rows(&[&entries], 0);
        for at in 0..=entries.len() {
            let (one, other) = entries.split_at(at);
            assert_eq!(rows(&[one, other], 0), whole, "{at}");
        }
        let single: Vec<&[Entry]> = entries.chunks(1).collect();
        assert_eq!(rows(&single, 0), whole);
        whole
    }

    #[test]
    fn a_flow_shows_what_it_moved_so_far_until_its_end_says_it() {
        let moved = |last: Option<Event>| {
            let mut events = vec![started(1), opened(1), progressed(1, 4), progressed(1, 9)];
            events.extend(last);
            let rows = rows_of(events);
            assert_eq!(rows.len(), 2, "{rows:?}");
            let row = &rows[1];
            (row.bytes_in, row.duration_s, row.end.clone())
        };
        assert_eq!(moved(None), (Some(9), Some(2700.0), None));
        let end = |text: &str| Some(text.to_owned());
        assert_eq!(moved(Some(ended(1))), (Some(1), Some(1e-6), end("closed")));
        let at_least = (Some(9), Some(2700.0), end("gate lost"));
        assert_eq!(moved(Some(lost(1))), at_least);
        // One that was never told of has no figures.
        let rows = rows_of(vec![started(1), opened(1), lost(1)]);
        assert_eq!((rows[1].bytes_in, rows[1].duration_s), (None, None));
        // Of one whose beginning is gone each stands by itself.
        let rows = rows_of(vec![started(1), progressed(7, 2), progressed(7, 3)]);
        let kinds: Vec<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
        assert_eq!(kinds, ["started", "progress", "progress"]);
    }

    #[test]
    fn a_question_and_its_answer_are_one_row() {
        let rows = rows_of(vec![
            started(1),
            asked(1),
            asked(28),
            answered(1, NameAnswer::Records),
            opened(1),
            answered(28, NameAnswer::NoName),
            // One that no question is open for, and a question without an answer.
            answered(1, NameAnswer::Failed),
            asked(1),
            started(2),
            answered(1, NameAnswer::Failed),
        ]);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.kind.as_str(), row.rcode.as_deref(), row.ttl))
            .collect();
        assert_eq!(
            shown,
            [
                ("started", None, None),
                ("name", Some("NOERROR"), Some(60)),
                ("name", Some("NXDOMAIN"), None),
                ("flow", None, None),
                ("answer", Some("SERVFAIL"), None),
                ("name", None, None),
                ("started", None, None),
                ("answer", Some("SERVFAIL"), None),
            ]
        );
        assert_eq!(rows[1].answers.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn an_end_without_a_beginning_is_a_row_of_its_own() {
        let entries = numbered(vec![started(1), ended(7)]);
        let kinds: Vec<String> = rows(&[&entries], 0)
            .into_iter()
            .map(|row| row.kind)
            .collect();
        assert_eq!(kinds, ["started", "end"]);
    }

    proptest! {
        #[test]
        fn how_pages_part_changes_nothing(
            picks in proptest::collection::vec((0..9_u8, 0..9_u64), 0..60),
            parts in proptest::collection::vec(1..9_usize, 1..40),
        ) {
            let (mut events, mut open, mut runs, mut flows) = (vec![started(0)], Vec::new(), 0, 0);
            let mut said = BTreeSet::new();
            for (kind, pick) in picks {
                let at = usize::try_from(pick).unwrap() % open.len().max(1);
                match kind {
                    0 => {
                        (runs, flows) = (runs + 1, 0);
                        open.clear();
                        events.push(started(runs));
                    }
                    1 => {
                        flows += 1;
                        open.push(flows);
                        events.push(opened(flows));
                    }
                    // A flow says its name once.
                    2 => {
                        let flow = open.get(at).copied().filter(|flow| said.insert((runs, *flow)));
                        events.extend(flow.map(named));
                    }
                    3 => events.push(asked(1 + u16::try_from(pick % 2).unwrap())),
                    4 => {
                        let qtype = 1 + u16::try_from(pick % 2).unwrap();
                        events.push(answered(qtype, NameAnswer::Records));
                    }
                    _ if open.is_empty() => {}
                    5 | 6 => events.push(progressed(open[at], pick)),
                    _ => events.push(ended(open.remove(at))),
                }
            }
            let entries = numbered(events);
            let mut pages = Vec::new();
            let (mut rest, mut parts) = (entries.as_slice(), parts.iter().cycle());
            while !rest.is_empty() {
                let (page, left) = rest.split_at((*parts.next().unwrap()).min(rest.len()));
                pages.push(page);
                rest = left;
            }
            prop_assert_eq!(rows(&pages, 0), rows(&[&entries], 0));
        }
    }
}
