//! What a device asks of another one's box, and what this node answers.
//!
//! | kind | role | until | rests on |
//! |---|---|---|---|
//! | stop | stop | the end of that incarnation | nothing |
//! | pause | stop | the end of that incarnation | no newer request of its sender |
//! | deny | full | the end of that incarnation | no newer request of its sender |
//! | resume, allow | full | 10 minutes | that, and the box's state as its sender knew it |
//!
//! So what takes away holds however late it comes, and what gives is for the box that
//! the person looked at. Each is acted on once: its id stands in the document, and so
//! does the receipt, which is written after what was done was measured.

use bailey_docs_store::{DocId, Urgency};
use bailey_model::{
    Basis, DeviceId, Entry, Event, Incarnation, Receipt, Request, RequestId, RequestKind,
    RequestOutcome, StateHash, StoppedBy, Timestamp,
};

use super::event::{ConnId, RunId};
use super::fold::{BoxState, RequestState};
use super::pause::{Wanted, Wish};
use super::run_state::{Phase, Waiting};
use super::store::Tag;
use super::{Node, clock};
use crate::api::{Failure, Tell, Way};
use crate::log::log;
use crate::rows::{AskedRow, BoxRow};

/// How long a request that gives something may be acted on, in milliseconds.
const SPAN_MS: u64 = 10 * 60 * 1000;
/// By so much more its end may lie ahead: a clock may have been set back a little.
const SLACK_MS: u64 = 60 * 1000;
/// Longest text of terms in a request, in bytes.
const MAX_TERMS: usize = 8 * 1024;
/// Receipts that could not be written and are tried again.
const MAX_UNWRITTEN: usize = 1024;

/// Requests to this node that are being acted on, and by its own command lines.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Command lines that wait for a receipt.
    waiting: std::collections::BTreeMap<RequestId, ConnId>,
    /// Acted on, and without a receipt in the document. Each is one of the fold's.
    acting: std::collections::BTreeSet<(DeviceId, RequestId)>,
    unwritten: Vec<Receipt>,
}

impl Requests {
    pub(super) fn drop_conn(&mut self, conn: ConnId) {
        self.waiting.retain(|_, waiting| *waiting != conn);
    }
}

impl Node {
    pub(super) fn on_stop(&mut self, conn: ConnId, target: &str) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if state.writer != self.this {
            return self.ask_device(conn, &state, RequestKind::Stop, String::new());
        }
        match self.run_in(state.incarnation) {
            Some(id) => self.stop_run(id, StoppedBy::Here, Waiting::Conn(conn)),
            None => self.answer(Waiting::Conn(conn), RequestOutcome::AlreadyOver),
        }
        Ok(())
    }

    /// A person here wants a box to stand, or to go on.
    pub(super) fn on_wish(
        &mut self,
        conn: ConnId,
        target: &str,
        wish: Wish,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if state.writer != self.this {
            let kind = match wish {
                Wish::Pause => RequestKind::Pause,
                Wish::Resume => RequestKind::Resume,
            };
            return self.ask_device(conn, &state, kind, String::new());
        }
        let asker = Waiting::Conn(conn);
        match self.running_in(state.incarnation) {
            Ok(id) => {
                let state = None;
                self.wish(id, Wanted { wish, asker, state });
            }
            Err(outcome) => self.answer(asker, outcome),
        }
        Ok(())
    }

    fn run_in(&self, incarnation: Incarnation) -> Option<RunId> {
        let mut runs = self.runs.iter();
        let run = runs.find(|(_, run)| run.incarnation == incarnation);
        run.map(|(id, _)| *id)
    }

    /// The run of an incarnation whose command runs.
    fn running_in(&self, incarnation: Incarnation) -> Result<RunId, RequestOutcome> {
        let id = self.run_in(incarnation);
        let run = id.and_then(|id| self.runs.get(&id));
        match (id, run.map(|run| run.phase)) {
            (Some(id), Some(Phase::Running)) => Ok(id),
            (_, Some(Phase::Making)) => {
                Err(RequestOutcome::NotDone("it is still starting".to_owned()))
            }
            _ => Err(RequestOutcome::AlreadyOver),
        }
    }

    /// A box of another device: the request is written here and goes there.
    pub(super) fn ask_device(
        &mut self,
        conn: ConnId,
        state: &BoxState,
        kind: RequestKind,
        terms: String,
    ) -> Result<(), Failure> {
        if state.ended.is_some() {
            self.answer(Waiting::Conn(conn), RequestOutcome::AlreadyOver);
            return Ok(());
        }
        if terms.len() > MAX_TERMS {
            let text = format!("terms of more than {MAX_TERMS} bytes go to no other device");
            return Err(Failure::usage(text));
        }
        let basis = match kind {
            RequestKind::Stop => None,
            _ => Some(Basis {
                terms,
                state: state.hash(),
                seq: self.fold.next_seq(self.this),
                until: self.until(kind, state.writer)?,
            }),
        };
        let id = clock::random().map_err(|error| Failure::host(format!("entropy: {error}")))?;
        let request = Request {
            id: RequestId(id),
            node: state.writer,
            box_id: state.id,
            incarnation: state.incarnation,
            kind,
            basis,
        };
        self.requests.waiting.insert(request.id, conn);
        self.append(
            DocId::Requests,
            Event::Request(request),
            Urgency::Urgent,
            Tag::Request(conn),
        );
        Ok(())
    }

    /// Until when a node may act on what is asked of it now, by its own clock.
    fn until(&self, kind: RequestKind, node: DeviceId) -> Result<Option<Timestamp>, Failure> {
        if !kind.gives() {
            return Ok(None);
        }
        let now = self.devices.time_at(node, std::time::Instant::now());
        let now = now.ok_or_else(|| Failure::host("that device was never heard"))?;
        Ok(Some(Timestamp(now.0.saturating_add(SPAN_MS))))
    }

    /// The request stands and is on its way.
    pub(super) fn on_request_written(&mut self, conn: ConnId, entry: &Entry) {
        let Event::Request(request) = &entry.event else {
            return;
        };
        let tell = Tell::Asked {
            device: self.fold.device_name(request.node),
            connected: self.devices.is_up(request.node),
        };
        self.tell(conn, tell);
    }

    /// A receipt for a command line that waits here.
    pub(super) fn on_receipt(&mut self, receipt: &Receipt, from: DeviceId) {
        if from == self.this {
            self.requests
                .acting
                .remove(&(receipt.from, receipt.request));
        }
        let asked = self.fold.request(self.this, receipt.request);
        let asked = asked.map(|state| state.request.node);
        // Only the node that was asked can answer, and only what was asked from here.
        if asked != Some(from) || receipt.from != self.this {
            return;
        }
        if let Some(conn) = self.requests.waiting.remove(&receipt.request) {
            self.answer(Waiting::Conn(conn), receipt.outcome.clone());
        }
    }

    /// Requests of other devices to this node, each acted on once.
    pub(super) fn answer_requests(&mut self) {
        for open in self.fold.unanswered(self.this) {
            let id = open.request.id;
            if !self.requests.acting.insert((open.from, id)) {
                continue;
            }
            let asker = Waiting::Request(id, open.from);
            if let Err(outcome) = self.act(&open, asker) {
                self.answer(asker, outcome);
            }
        }
    }

    /// Begins what is asked, or says why not.
    fn act(&mut self, open: &RequestState, asker: Waiting) -> Result<(), RequestOutcome> {
        let (request, from) = (&open.request, open.from);
        self.may(from, request.kind)?;
        if request.kind == RequestKind::Stop {
            let id = self.run_in(request.incarnation);
            let id = id.ok_or(RequestOutcome::AlreadyOver)?;
            self.stop_run(id, StoppedBy::Device(from, request.id), asker);
            return Ok(());
        }
        let basis = request.basis.as_ref();
        let basis = basis.ok_or_else(|| denied("it says nothing of what it rests on"))?;
        let id = self.running_in(request.incarnation)?;
        in_time(request.kind, basis, clock::now())?;
        if self.fold.has_newer(open) {
            let text = "a newer request of the same device was acted on";
            return Err(RequestOutcome::Changed(text.to_owned()));
        }
        let state = request.kind.gives().then_some(basis.state);
        let wanted = |wish| Wanted { wish, asker, state };
        match request.kind {
            RequestKind::Stop => {}
            RequestKind::Pause => self.wish(id, wanted(Wish::Pause)),
            RequestKind::Resume => self.wish(id, wanted(Wish::Resume)),
            RequestKind::Allow | RequestKind::Deny => {
                let way = match request.kind {
                    RequestKind::Allow => Way::Allow,
                    _ => Way::Deny,
                };
                if basis.terms.len() > MAX_TERMS {
                    return Err(denied("its terms are too long"));
                }
                let terms = basis.terms.clone();
                let changed = self.change_run(id, way, &[terms], (asker, state));
                changed.map_err(|failure| denied(&failure.text))?;
            }
        }
        Ok(())
    }

    fn may(&self, from: DeviceId, kind: RequestKind) -> Result<(), RequestOutcome> {
        let role = self.devices.members().get(&from).map(|member| member.role);
        let may = match kind {
            RequestKind::Stop | RequestKind::Pause => role.is_some_and(|role| role.may_stop()),
            RequestKind::Resume | RequestKind::Allow | RequestKind::Deny => {
                role.is_some_and(|role| role.may_decide())
            }
        };
        match (may, kind) {
            (true, _) => Ok(()),
            (false, RequestKind::Stop) => Err(denied("that device may not stop boxes")),
            (false, kind) => Err(denied(&format!(
                "that device may not {} boxes",
                kind.as_str()
            ))),
        }
    }

    /// Whether a box is as whoever asked knew it.
    pub(super) fn still_rests(
        &self,
        incarnation: Incarnation,
        state: Option<StateHash>,
    ) -> Result<(), RequestOutcome> {
        let now = self.fold.state_of(self.this, incarnation);
        match state {
            Some(state) if now.is_none_or(|now| now.hash() != state) => {
                let text = match now {
                    Some(now) => format!("its state is another one since: {}", now.words()),
                    None => "its state is another one since".to_owned(),
                };
                Err(RequestOutcome::Changed(text))
            }
            _ => Ok(()),
        }
    }

    /// What came of what was asked, to whoever asked.
    pub(super) fn answer(&mut self, asker: Waiting, outcome: RequestOutcome) {
        match asker {
            Waiting::Conn(conn) => self.finish(conn, Tell::Outcome(outcome)),
            Waiting::Request(request, from) => {
                let receipt = Receipt {
                    request,
                    from,
                    outcome,
                };
                self.append(
                    DocId::Requests,
                    Event::Receipt(receipt),
                    Urgency::Urgent,
                    Tag::Receipt,
                );
            }
        }
    }

    /// A receipt could not be written: it is tried again.
    pub(super) fn on_receipt_unwritten(&mut self, event: Event) {
        if let Event::Receipt(receipt) = event
            && self.requests.unwritten.len() < MAX_UNWRITTEN
        {
            self.requests.unwritten.push(receipt);
        }
    }

    /// Receipts that could not be written, and requests of this node's command lines
    /// whose time is over: the node that was asked does nothing any more.
    pub(super) fn look_at_requests(&mut self) {
        for receipt in std::mem::take(&mut self.requests.unwritten) {
            let event = Event::Receipt(receipt);
            self.append(DocId::Requests, event, Urgency::Urgent, Tag::Receipt);
        }
        let over: Vec<(RequestId, ConnId)> = self
            .requests
            .waiting
            .iter()
            .filter(|(id, _)| {
                self.fold
                    .request(self.this, **id)
                    .is_some_and(|it| self.is_late(it))
            })
            .map(|(id, conn)| (*id, *conn))
            .collect();
        for (id, conn) in over {
            self.requests.waiting.remove(&id);
            log!("a request was not delivered in its time");
            self.answer(Waiting::Conn(conn), RequestOutcome::Expired);
        }
    }

    /// A box's row, with what is asked of it from here.
    pub(super) fn box_row(&self, state: &BoxState) -> BoxRow {
        let mut row = self.fold.box_row(state);
        if state.ended.is_none() {
            let open = self.fold.open_requests(self.this, state).into_iter();
            let asked = |it: &RequestState| AskedRow {
                what: it.request.kind.as_str().to_owned(),
                state: match self.is_late(it) {
                    true => "expired",
                    false => "not delivered yet",
                }
                .to_owned(),
            };
            row.asked = open.map(asked).collect();
        }
        row
    }

    /// Whether it is surely too late for a request by now.
    pub(super) fn is_late(&self, it: &RequestState) -> bool {
        let until = it.request.basis.as_ref().and_then(|basis| basis.until);
        let now = self
            .devices
            .time_at(it.request.node, std::time::Instant::now());
        matches!((until, now), (Some(until), Some(now)) if now > until)
    }
}

/// What gives has a bound, and one of the far future is none.
fn in_time(kind: RequestKind, basis: &Basis, now: Timestamp) -> Result<(), RequestOutcome> {
    if !kind.gives() {
        return Ok(());
    }
    match basis.until {
        Some(until) if until.0 > now.0.saturating_add(SPAN_MS + SLACK_MS) => {
            Err(denied("its time is longer than ten minutes"))
        }
        Some(until) if now <= until => Ok(()),
        Some(_) => Err(RequestOutcome::Expired),
        None => Err(denied("it has no time")),
    }
}

fn denied(why: &str) -> RequestOutcome {
    RequestOutcome::Denied(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(until: Option<u64>) -> Basis {
        Basis {
            terms: String::new(),
            state: StateHash([0; 32]),
            seq: 1,
            until: until.map(Timestamp),
        }
    }

    #[test]
    fn what_gives_is_acted_on_in_its_time_alone_and_what_takes_away_at_any() {
        let now = Timestamp(1_000_000_000);
        let at = |kind, until| in_time(kind, &basis(until), now);
        for kind in [RequestKind::Resume, RequestKind::Allow] {
            assert_eq!(at(kind, Some(now.0)), Ok(()));
            assert_eq!(at(kind, Some(now.0 + SPAN_MS)), Ok(()));
            assert_eq!(at(kind, Some(now.0 - 1)), Err(RequestOutcome::Expired));
            for never in [None, Some(now.0 + SPAN_MS + SLACK_MS + 1), Some(u64::MAX)] {
                let refused = at(kind, never);
                assert!(
                    matches!(refused, Err(RequestOutcome::Denied(_))),
                    "{never:?}"
                );
            }
        }
        for kind in [RequestKind::Pause, RequestKind::Deny] {
            assert_eq!(at(kind, None), Ok(()));
        }
    }
}
