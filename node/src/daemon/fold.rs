//! What is shown, as a fold over entries: boxes, names, notices, requests.
//!
//! Rebuilt at start from the documents and fed every entry appended or
//! ingested after. Nothing here is stored.

use std::collections::{BTreeMap, VecDeque};

use bailey_docs_store::DocId;
use bailey_model::{
    BoundaryReport, BoxEnd, BoxId, BoxStarted, DeviceId, Entry, Event, Incarnation, Notice,
    Receipt, Request, RequestId, RequestOutcome, Rule, StateHash, Timestamp,
};
use ring::digest::{Context, SHA256};

use crate::account;
use crate::api::Failure;
use crate::rows::{self, BoxRow, short};

/// Notices kept for showing; older ones stay in the document.
const MAX_NOTICES: usize = 10_000;
/// Boxes kept for listing: each unnamed run is one.
const MAX_BOXES: usize = 10_000;
/// Requests kept; one is acted on within the life of its box's incarnation.
const MAX_REQUESTS: usize = 10_000;
/// Reports kept of one box; older ones stay in the document.
const MAX_REPORTS_A_BOX: usize = 64;
/// Reports kept of all boxes.
const MAX_REPORTS: usize = 4096;
/// Longest shown device name, in characters.
pub(crate) const MAX_NAME: usize = 64;

/// A box of any device, in its newest incarnation.
#[derive(Debug, Clone)]
pub(crate) struct BoxState {
    pub(crate) writer: DeviceId,
    pub(crate) id: BoxId,
    pub(crate) name: String,
    pub(crate) incarnation: Incarnation,
    pub(crate) started: Timestamp,
    pub(crate) reach: String,
    pub(crate) command: Vec<String>,
    pub(crate) ended: Option<(Timestamp, BoxEnd)>,
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// Number of the newest entry of its writer's own document that says how it is.
    changed: u64,
    /// Its audit is kept on its node alone.
    pub(crate) here: bool,
}

impl BoxState {
    /// What a request about it rests on: the same for every device that has heard the
    /// same of it, and another one after each change.
    pub(crate) fn hash(&self) -> StateHash {
        let mut hash = Context::new(&SHA256);
        hash.update(b"bailey/box/v1\0");
        hash.update(self.id.as_bytes());
        hash.update(self.incarnation.as_bytes());
        hash.update(&self.changed.to_le_bytes());
        hash.update(&[u8::from(self.paused)]);
        hash.update(self.reach.as_bytes());
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.finish().as_ref());
        StateHash(bytes)
    }

    /// How it is, for a person.
    pub(crate) fn words(&self) -> String {
        format!("{}, reach {}", self.state_word(), self.reach)
    }

    fn state_word(&self) -> &'static str {
        match (&self.ended, self.paused) {
            (Some(_), _) => "ended",
            (None, true) => "paused",
            (None, false) => "running",
        }
    }

    /// The document of its audit.
    pub(crate) fn doc(&self) -> DocId {
        match self.here {
            true => DocId::Here(self.id),
            false => DocId::Box(self.id),
        }
    }
}

/// A request and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct RequestState {
    pub(crate) from: DeviceId,
    pub(crate) request: Request,
    pub(crate) receipt: Option<Receipt>,
    /// In which order it came.
    seen: u64,
}

/// The fold.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    boxes: BTreeMap<(DeviceId, BoxId), BoxState>,
    names: BTreeMap<DeviceId, String>,
    notices: VecDeque<(DeviceId, Timestamp, Notice)>,
    /// By who asked: an id says nothing of whose it is, and anybody may copy one.
    requests: BTreeMap<(DeviceId, RequestId), RequestState>,
    reports: VecDeque<(DeviceId, Timestamp, BoundaryReport)>,
    seen: u64,
}

impl Fold {
    /// Takes an entry of the node, notices or requests document.
    pub(crate) fn push(&mut self, writer: DeviceId, entry: &Entry) {
        match &entry.event {
            Event::BoxStarted(started) => self.keep_box(writer, entry, started),
            Event::BoxEnded(ended) => {
                if let Some(state) = self.run_of(writer, ended.box_id, ended.incarnation) {
                    state.ended = Some((entry.ts, ended.end.clone()));
                }
            }
            Event::AuditHere(kept) => {
                if let Some(state) = self.run_of(writer, kept.box_id, kept.incarnation) {
                    state.here = true;
                }
            }
            Event::ReachChanged(changed) => {
                if let Some(state) = self.run_of(writer, changed.box_id, changed.incarnation) {
                    state.reach.clone_from(&changed.new);
                    state.changed = entry.no;
                }
            }
            Event::BoxPaused(it) => {
                if let Some(state) = self.run_of(writer, it.box_id, it.incarnation) {
                    (state.paused, state.changed) = (true, entry.no);
                }
            }
            Event::BoxResumed(it) => {
                if let Some(state) = self.run_of(writer, it.box_id, it.incarnation) {
                    (state.paused, state.changed) = (false, entry.no);
                }
            }
            Event::DeviceNamed(named) => {
                let name: String = named.name.chars().take(MAX_NAME).collect();
                self.names.insert(writer, name);
            }
            Event::Notice(notice) => {
                if self.notices.len() == MAX_NOTICES {
                    self.notices.pop_front();
                }
                self.notices.push_back((writer, entry.ts, notice.clone()));
            }
            Event::Request(request) => self.keep_request(writer, request),
            Event::Receipt(receipt) => {
                let state = self.requests.get_mut(&(receipt.from, receipt.request));
                if let Some(state) = state.filter(|state| state.request.node == writer) {
                    state.receipt = Some(receipt.clone());
                }
            }
            Event::FlowOpened(_)
            | Event::FlowRefused(_)
            | Event::FlowNamed(_)
            | Event::FlowEnded(_)
            | Event::FlowProgressed(_)
            | Event::NameAsked(_)
            | Event::NameAnswered(_)
            | Event::Granted(_)
            | Event::CaptureStarted(_)
            | Event::Gap(_)
            | Event::HeadsSeen(_)
            | Event::Thinned(_)
            | Event::Newer(_) => {}
            Event::Report(report) => self.keep_report(writer, entry.ts, report),
        }
    }

    fn keep_box(&mut self, writer: DeviceId, entry: &Entry, started: &BoxStarted) {
        let state = BoxState {
            writer,
            id: started.box_id,
            name: started.name.clone(),
            incarnation: started.incarnation,
            started: entry.ts,
            reach: started.reach.clone(),
            command: started.command.clone(),
            ended: None,
            paused: false,
            changed: entry.no,
            here: false,
        };
        self.make_room_for_box();
        self.boxes.insert((writer, started.box_id), state);
    }

    /// A box in this very incarnation.
    fn run_of(
        &mut self,
        writer: DeviceId,
        box_id: BoxId,
        incarnation: Incarnation,
    ) -> Option<&mut BoxState> {
        let state = self.boxes.get_mut(&(writer, box_id));
        state.filter(|state| state.incarnation == incarnation)
    }

    fn keep_request(&mut self, writer: DeviceId, request: &Request) {
        self.make_room_for_request();
        self.seen += 1;
        let seen = self.seen;
        // An id that this device used before is the same request: the first stands.
        self.requests
            .entry((writer, request.id))
            .or_insert_with(|| RequestState {
                from: writer,
                request: request.clone(),
                receipt: None,
                seen,
            });
    }

    /// Keeps the newest of each box, and of all.
    fn keep_report(&mut self, writer: DeviceId, ts: Timestamp, report: &BoundaryReport) {
        let of_box = |(from, _, kept): &(DeviceId, Timestamp, BoundaryReport)| {
            *from == writer && kept.box_id == report.box_id
        };
        let of_this = self.reports.iter().filter(|kept| of_box(kept)).count();
        let first = if of_this >= MAX_REPORTS_A_BOX {
            self.reports.iter().position(of_box)
        } else {
            (self.reports.len() >= MAX_REPORTS).then_some(0)
        };
        if let Some(first) = first {
            self.reports.remove(first);
        }
        self.reports.push_back((writer, ts, report.clone()));
    }

    /// The newest report of a box.
    pub(crate) fn report(
        &self,
        writer: DeviceId,
        box_id: BoxId,
    ) -> Option<(Timestamp, &BoundaryReport)> {
        let mut newest_first = self.reports.iter().rev();
        newest_first
            .find(|(from, _, report)| *from == writer && report.box_id == box_id)
            .map(|(_, ts, report)| (*ts, report))
    }

    /// Forgets an answered request, else the oldest: none may keep a newer stop
    /// from being seen.
    fn make_room_for_request(&mut self) {
        if self.requests.len() < MAX_REQUESTS {
            return;
        }
        let order = |state: &RequestState| (state.receipt.is_none(), state.seen);
        let first = self.requests.iter().min_by_key(|(_, state)| order(state));
        if let Some(key) = first.map(|(key, _)| *key) {
            self.requests.remove(&key);
        }
    }

    /// Forgets the box that ended first; what runs is always listed.
    fn make_room_for_box(&mut self) {
        if self.boxes.len() < MAX_BOXES {
            return;
        }
        let ended = self
            .boxes
            .iter()
            .filter_map(|(key, state)| Some((state.ended.as_ref()?.0, *key)));
        if let Some((_, key)) = ended.min() {
            self.boxes.remove(&key);
        }
    }

    /// Every box, oldest start first.
    pub(crate) fn boxes(&self) -> Vec<&BoxState> {
        let mut boxes: Vec<_> = self.boxes.values().collect();
        boxes.sort_by_key(|state| state.started);
        boxes
    }

    /// Every notice kept, oldest first.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &(DeviceId, Timestamp, Notice)> {
        self.notices.iter()
    }

    /// When a rule last found something about a device, by whichever of them.
    pub(crate) fn found(&self, rule: Rule, device: DeviceId) -> Option<Timestamp> {
        let about = |notice: &Notice| notice.evidence.iter().any(|it| it.writer == device);
        let found = self.notices.iter();
        let found = found.filter(|(_, _, notice)| notice.rule == rule && about(notice));
        found.map(|(_, ts, _)| *ts).max()
    }

    /// A request of a device.
    pub(crate) fn request(&self, from: DeviceId, id: RequestId) -> Option<&RequestState> {
        self.requests.get(&(from, id))
    }

    /// Requests to a node that have no receipt.
    pub(crate) fn unanswered(&self, node: DeviceId) -> Vec<RequestState> {
        let open = |state: &&RequestState| state.request.node == node && state.receipt.is_none();
        self.requests.values().filter(open).cloned().collect()
    }

    /// The number of a device's next request.
    pub(crate) fn next_seq(&self, from: DeviceId) -> u64 {
        let own = self.requests.values().filter(|state| state.from == from);
        let numbers = own.filter_map(|state| Some(state.request.basis.as_ref()?.seq));
        numbers.max().unwrap_or(0).saturating_add(1)
    }

    /// Whether a newer request of the same device about the same run was acted on.
    pub(crate) fn has_newer(&self, open: &RequestState) -> bool {
        let seq = |state: &RequestState| state.request.basis.as_ref().map(|basis| basis.seq);
        let same = |state: &&RequestState| {
            (state.from, state.request.incarnation) == (open.from, open.request.incarnation)
        };
        let done = |state: &RequestState| {
            matches!(
                state.receipt.as_ref().map(|receipt| &receipt.outcome),
                Some(
                    RequestOutcome::Paused { .. }
                        | RequestOutcome::Resumed { .. }
                        | RequestOutcome::Reach { .. }
                )
            )
        };
        let mut same = self.requests.values().filter(same);
        same.any(|state| done(state) && seq(state) > seq(open))
    }

    /// The box of a device in this incarnation, if it is the newest.
    pub(crate) fn state_of(&self, writer: DeviceId, incarnation: Incarnation) -> Option<&BoxState> {
        let mut boxes = self.boxes.values();
        boxes.find(|state| (state.writer, state.incarnation) == (writer, incarnation))
    }

    /// Requests of a device about a box's run that have no receipt, oldest first.
    pub(crate) fn open_requests(&self, from: DeviceId, about: &BoxState) -> Vec<&RequestState> {
        let of = |state: &&RequestState| {
            (state.from, state.request.node, state.request.incarnation)
                == (from, about.writer, about.incarnation)
                && state.receipt.is_none()
        };
        let mut open: Vec<_> = self.requests.values().filter(of).collect();
        open.sort_by_key(|state| state.seen);
        open
    }

    /// What a device calls itself, else the start of its id.
    pub(crate) fn device_name(&self, device: DeviceId) -> String {
        self.names
            .get(&device)
            .cloned()
            .unwrap_or_else(|| short(&device))
    }

    /// The document of a run's audit, as far as this run is still known.
    pub(crate) fn doc_of(
        &self,
        writer: DeviceId,
        box_id: BoxId,
        incarnation: Incarnation,
    ) -> DocId {
        let state = self.boxes.get(&(writer, box_id));
        let state = state.filter(|state| state.incarnation == incarnation);
        state.map_or(DocId::Box(box_id), BoxState::doc)
    }

    /// Finds a box by name or id, perhaps `@DEVICE` (name or start of its id).
    /// A name used on several devices means this one's.
    pub(crate) fn resolve(&self, target: &str, this: DeviceId) -> Result<BoxState, Failure> {
        let (name, device) = match target.rsplit_once('@') {
            Some((name, device)) if !name.is_empty() && !device.is_empty() => (name, Some(device)),
            _ => (target, None),
        };
        let on_device = |state: &&BoxState| {
            device.is_none_or(|device| {
                self.device_name(state.writer) == device
                    || (device.len() >= 4 && state.writer.to_string().starts_with(device))
            })
        };
        let named = |state: &&BoxState| state.name == name || state.id.to_string() == name;
        let found: Vec<_> = self
            .boxes
            .values()
            .filter(named)
            .filter(on_device)
            .collect();
        match found.as_slice() {
            [] => Err(Failure::usage(format!("no box {target:?}"))
                .hint(account::command("ps lists them"))),
            [one] => Ok((*one).clone()),
            several => {
                let own = several.iter().filter(|state| state.writer == this);
                match own.collect::<Vec<_>>().as_slice() {
                    [one] if device.is_none() => Ok((**one).clone()),
                    _ => Err(
                        Failure::usage(format!("several boxes are called {target:?}")).hint(
                            format!(
                                "NAME@DEVICE, or the id that {} shows",
                                account::command("ps --json")
                            ),
                        ),
                    ),
                }
            }
        }
    }

    /// A box's row.
    pub(crate) fn box_row(&self, state: &BoxState) -> BoxRow {
        BoxRow {
            v: rows::V,
            name: state.name.clone(),
            id: state.id.to_string(),
            device: self.device_name(state.writer),
            state: state.state_word().to_owned(),
            started: state.started.to_string(),
            ended: state.ended.as_ref().map(|(ts, _)| ts.to_string()),
            end: state.ended.as_ref().map(|(_, end)| rows::end_text(end)),
            reach: state.reach.clone(),
            command: state.command.clone(),
            audit: if state.here { "here" } else { "synced" }.to_owned(),
            asked: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bailey_model::{BoxEnded, BoxStarted, ChildExit, DeviceNamed};

    const HERE: DeviceId = DeviceId([1; 32]);
    const THERE: DeviceId = DeviceId([2; 32]);

    fn started(name: &str, id: u8, run: u8) -> Event {
        Event::BoxStarted(BoxStarted {
            box_id: BoxId([id; 16]),
            name: name.to_owned(),
            incarnation: Incarnation([run; 16]),
            command: Vec::new(),
            reach: "internet".to_owned(),
            image: "host".to_owned(),
        })
    }

    fn ended(id: u8, run: u8) -> Event {
        Event::BoxEnded(BoxEnded {
            box_id: BoxId([id; 16]),
            incarnation: Incarnation([run; 16]),
            end: BoxEnd::Exited(ChildExit::Code(0)),
            processes_ended: Some(0),
            processes_left: Some(0),
            flows_reset: Some(0),
        })
    }

    fn push(fold: &mut Fold, writer: DeviceId, no: u64, event: Event) {
        fold.push(
            writer,
            &Entry {
                no,
                ts: Timestamp(no),
                event,
            },
        );
    }

    #[test]
    fn an_end_of_an_older_incarnation_does_not_end_the_newer_one() {
        let mut fold = Fold::default();
        push(&mut fold, HERE, 1, started("yard", 1, 1));
        push(&mut fold, HERE, 2, started("yard", 1, 2));
        push(&mut fold, HERE, 3, ended(1, 1));
        assert!(fold.boxes()[0].ended.is_none());
        push(&mut fold, THERE, 4, ended(1, 2));
        assert!(
            fold.boxes()[0].ended.is_none(),
            "another device cannot end it"
        );
        push(&mut fold, HERE, 5, ended(1, 2));
        assert!(fold.boxes()[0].ended.is_some());
    }

    #[test]
    fn a_name_on_two_devices_means_this_one_unless_the_device_is_said() {
        let mut fold = Fold::default();
        push(&mut fold, HERE, 1, started("yard", 1, 1));
        push(&mut fold, THERE, 1, started("yard", 2, 1));
        push(
            &mut fold,
            THERE,
            2,
            DeviceNamed {
                name: "laptop".to_owned(),
            }
            .into_event(),
        );
        assert_eq!(fold.resolve("yard", HERE).unwrap().writer, HERE);
        assert_eq!(fold.resolve("yard@laptop", HERE).unwrap().writer, THERE);
        assert_eq!(fold.resolve("yard@0202", HERE).unwrap().writer, THERE);
        assert!(fold.resolve("yard@phone", HERE).is_err());
        assert!(fold.resolve("keep", HERE).is_err());
    }

    #[test]
    fn old_requests_never_keep_a_new_stop_from_being_seen() {
        let mut fold = Fold::default();
        let request = |id: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&id.to_be_bytes());
            Event::Request(Request {
                id: RequestId(bytes),
                node: HERE,
                box_id: BoxId([1; 16]),
                incarnation: Incarnation([1; 16]),
                kind: bailey_model::RequestKind::Stop,
                basis: None,
            })
        };
        for id in 0..=10_000 {
            push(&mut fold, THERE, id + 1, request(id));
        }
        assert_eq!(fold.requests.len(), MAX_REQUESTS);
        let mut last = [0; 16];
        last[..8].copy_from_slice(&10_000_u64.to_be_bytes());
        assert!(fold.request(THERE, RequestId(last)).is_some());
    }

    #[test]
    fn a_reach_that_was_changed_is_shown_for_that_run_alone() {
        let mut fold = Fold::default();
        let changed = |run| {
            Event::ReachChanged(bailey_model::ReachChanged {
                box_id: BoxId([1; 16]),
                incarnation: Incarnation([run; 16]),
                old: "internet".to_owned(),
                new: "local".to_owned(),
                by: bailey_model::ChangedBy::Here,
            })
        };
        push(&mut fold, HERE, 1, started("yard", 1, 1));
        push(&mut fold, THERE, 2, changed(1));
        push(&mut fold, HERE, 3, changed(2));
        assert_eq!(fold.boxes()[0].reach, "internet");
        push(&mut fold, HERE, 4, changed(1));
        assert_eq!(fold.boxes()[0].reach, "local");
        push(&mut fold, HERE, 5, started("yard", 1, 3));
        assert_eq!(fold.boxes()[0].reach, "internet");
    }

    fn asked(id: u8, from: u8, seq: u64) -> Event {
        Event::Request(Request {
            id: RequestId([id; 16]),
            node: HERE,
            box_id: BoxId([1; 16]),
            incarnation: Incarnation([from; 16]),
            kind: bailey_model::RequestKind::Pause,
            basis: Some(bailey_model::Basis {
                terms: String::new(),
                state: StateHash([0; 32]),
                seq,
                until: None,
            }),
        })
    }

    #[test]
    fn each_change_of_a_box_is_another_state_and_an_equal_one_back_is_not_the_same() {
        let mut fold = Fold::default();
        let (box_id, incarnation) = (BoxId([1; 16]), Incarnation([1; 16]));
        let by = bailey_model::ChangedBy::Here;
        let paused = |run| {
            Event::BoxPaused(bailey_model::BoxPaused {
                box_id,
                incarnation: Incarnation([run; 16]),
                processes: 2,
                hold: bailey_model::Hold::Signals,
                by,
            })
        };
        let resumed = Event::BoxResumed(bailey_model::BoxResumed {
            box_id,
            incarnation,
            by,
        });
        let unchanged = Event::ReachChanged(bailey_model::ReachChanged {
            box_id,
            incarnation,
            old: "internet".to_owned(),
            new: "internet".to_owned(),
            by,
        });
        let mut seen = Vec::new();
        for (no, event) in [started("yard", 1, 1), paused(1), resumed, unchanged]
            .into_iter()
            .enumerate()
        {
            push(&mut fold, HERE, u64::try_from(no).unwrap() + 1, event);
            let hash = fold.state_of(HERE, incarnation).unwrap().hash();
            assert!(!seen.contains(&hash));
            seen.push(hash);
        }
        // Of another run, or by another device, it is nothing.
        push(&mut fold, HERE, 5, paused(2));
        push(&mut fold, THERE, 6, paused(1));
        let state = fold.state_of(HERE, incarnation).unwrap();
        assert_eq!(Some(&state.hash()), seen.last());
        assert_eq!(fold.box_row(state).state, "running");
    }

    #[test]
    fn a_request_is_behind_what_the_same_device_asked_later_and_was_done() {
        let mut fold = Fold::default();
        let done = |id: u8, from, outcome| {
            Event::Receipt(Receipt {
                request: RequestId([id; 16]),
                from,
                outcome,
            })
        };
        assert_eq!(fold.next_seq(THERE), 1);
        push(&mut fold, THERE, 1, asked(1, 1, 1));
        push(&mut fold, THERE, 2, asked(2, 1, 2));
        push(&mut fold, HERE, 3, asked(3, 1, 7));
        assert_eq!((fold.next_seq(THERE), fold.next_seq(HERE)), (3, 8));
        let newer = |fold: &Fold| {
            let open = fold.request(THERE, RequestId([1; 16])).unwrap();
            fold.has_newer(open)
        };
        push(&mut fold, HERE, 4, done(2, THERE, RequestOutcome::Expired));
        assert!(!newer(&fold), "what was not done is not newer");
        let resumed = |processes| RequestOutcome::Resumed {
            processes,
            took_ms: 1,
        };
        push(&mut fold, HERE, 5, done(3, HERE, resumed(None)));
        assert!(!newer(&fold), "another device's");
        push(&mut fold, HERE, 6, done(2, THERE, resumed(Some(1))));
        assert!(newer(&fold));
    }

    /// A device that may only watch reads the id of a stop that is on its way.
    #[test]
    fn who_copies_the_id_of_a_request_answers_for_nobody_else() {
        let thief = DeviceId([7; 32]);
        for thief_first in [true, false] {
            let mut fold = Fold::default();
            let mut order = [thief, THERE];
            if !thief_first {
                order.reverse();
            }
            for (no, from) in (1..).zip(order) {
                push(&mut fold, from, no, asked(1, 1, 1));
            }
            assert_eq!(fold.unanswered(HERE).len(), 2);
            let denied = Receipt {
                request: RequestId([1; 16]),
                from: thief,
                outcome: RequestOutcome::AlreadyOver,
            };
            push(&mut fold, HERE, 3, Event::Receipt(denied));
            let open: Vec<DeviceId> = fold.unanswered(HERE).iter().map(|it| it.from).collect();
            assert_eq!(open, [THERE]);
        }
    }

    fn report(id: u8, run: u64) -> Event {
        let mut incarnation = [0; 16];
        incarnation[..8].copy_from_slice(&run.to_be_bytes());
        Event::Report(BoundaryReport {
            box_id: BoxId([id; 16]),
            incarnation: Incarnation(incarnation),
            asked: bailey_model::Tier::Gated,
            class: bailey_model::BoxClass::Plain,
            method: bailey_model::Method::Namespaces,
            image: "host".to_owned(),
            level: bailey_model::Level::NotEarned,
            axes: Vec::new(),
        })
    }

    #[test]
    fn the_newest_report_of_a_box_is_kept_whatever_others_write() {
        let mut fold = Fold::default();
        push(&mut fold, HERE, 1, report(1, 1));
        // Another device's word for a box of the same id is another box's.
        push(&mut fold, THERE, 2, report(1, 2));
        for run in 3..200 {
            push(&mut fold, HERE, run, report(2, run));
        }
        assert_eq!(fold.reports.len(), 2 + MAX_REPORTS_A_BOX);
        let newest = |writer, id| fold.report(writer, BoxId([id; 16])).unwrap().0;
        assert_eq!(newest(HERE, 1), Timestamp(1));
        assert_eq!(newest(THERE, 1), Timestamp(2));
        assert_eq!(newest(HERE, 2), Timestamp(199));
        assert!(fold.report(THERE, BoxId([2; 16])).is_none());
    }

    trait IntoEvent {
        fn into_event(self) -> Event;
    }

    impl IntoEvent for DeviceNamed {
        fn into_event(self) -> Event {
            Event::DeviceNamed(self)
        }
    }
}
