//! Entries to rows, page by page: a flow, what it said and its end are one row, in
//! the order in which flows began.
//!
//! A flow may end many pages after it began, and its row stands where it began. So
//! the pages are read twice: once for what stands far from its beginning
//! ([`Late`]), once for the rows. What is held is one page, and what crosses the
//! edge of one.

use std::collections::{BTreeMap, BTreeSet};

use bailey_model::{Entry, Event, FlowEnded, FlowId, FlowNamed, Incarnation, Timestamp};

use crate::rows::FlowRow;

/// Most flows whose end stands on another page than their beginning and is shown
/// with it; those beyond have a row of their own for their end.
const MAX_LATE: usize = 1 << 20;

/// A flow, by the run that it belongs to.
type Key = (Option<Incarnation>, FlowId);

/// What stands on another page than the flow's beginning.
#[derive(Debug, Default)]
pub struct Late {
    incarnation: Option<Incarnation>,
    here: BTreeSet<Key>,
    named: BTreeMap<Key, FlowNamed>,
    ended: BTreeMap<Key, FlowEnded>,
}

impl Late {
    /// Takes the next page.
    pub fn push_page(&mut self, entries: &[Entry]) {
        self.here.clear();
        for entry in entries {
            match &entry.event {
                Event::BoxStarted(started) => self.incarnation = Some(started.incarnation),
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
}

/// Folds pages to rows.
#[derive(Debug)]
pub struct Fold {
    incarnation: Option<Incarnation>,
    rows: Vec<FlowRow>,
    open: BTreeMap<Key, usize>,
    late: Late,
    /// Shown with their beginnings already.
    shown: BTreeSet<(Key, Which)>,
    /// Before this nothing is shown, and nothing that began before.
    since: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Which {
    Named,
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
            late,
            shown: BTreeSet::new(),
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
                self.shown.insert((key, Which::Named));
            }
            if let Some(ended) = self.late.ended.remove(&key) {
                row.ended(&ended);
                self.shown.insert((key, Which::Ended));
            }
        }
        let since = self.since.to_string();
        let mut rows = std::mem::take(&mut self.rows);
        rows.retain(|row| row.ts >= since);
        rows
    }

    fn push(&mut self, box_name: &str, entry: &Entry) {
        let which = match &entry.event {
            Event::BoxStarted(started) => {
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
        let elsewhere = |which| self.shown.remove(&which) || self.since > Timestamp(0);
        if which.is_some_and(elsewhere) {
            return;
        }
        self.rows.extend(FlowRow::of(box_name, entry));
    }
}

#[cfg(test)]
mod tests {
    use bailey_model::{
        AddrClass, BoxId, BoxStarted, Direction, EndReason, FiveTuple, FlowOpened, Granted, Host,
        HostFrom, Proto, Sni,
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
            picks in proptest::collection::vec((0..6_u8, 0..9_u64), 0..60),
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
                    _ if open.is_empty() => {}
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
