//! What a command line asks, and how it is answered.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bailey_docs_store::{DocId, Urgency};
use bailey_fence_plan::channel::ToFence;
use bailey_model::{
    BoxEnd, DeviceId, Entry, Event, Receipt, Request, RequestId, RequestKind, StoppedBy, Timestamp,
};
use tokio::sync::mpsc;

use super::event::{Answer, ConnId, NodeEvent, RunId};
use super::fold::BoxState;
use super::run_state::Waiting;
use super::store::{self, StoreAsk, Tag};
use super::{Node, clock};
use crate::api::{Ask, Failure, RunAsk, Tell};
use crate::rows::{self, FlowRow, Fold as RowFold, NoticeRow};

/// Entries that a follower may be behind while its history is read.
const MAX_PENDING: usize = 65_536;
/// How long a notice waits for the entries that raised it to arrive.
const EVIDENCE_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks for them.
const EVIDENCE_STEP: Duration = Duration::from_millis(20);

/// A question that waits until there is an account.
#[derive(Debug)]
pub(super) enum Later {
    Run(Box<RunAsk>, VecDeque<OwnedFd>),
    DeviceAdd(Vec<std::net::IpAddr>),
}

/// Command lines that see new entries as they are written.
#[derive(Debug, Default)]
pub(super) struct Followers {
    flows: BTreeMap<ConnId, Follower>,
    notices: std::collections::BTreeSet<ConnId>,
}

#[derive(Debug)]
struct Follower {
    writer: DeviceId,
    doc: DocId,
    name: String,
    /// While its history is read: what came meanwhile.
    pending: Option<Vec<Entry>>,
}

impl Node {
    pub(super) fn on_ask(&mut self, conn: ConnId, ask: Ask, fds: VecDeque<OwnedFd>) {
        let result = match ask {
            Ask::Run(ask) => self.with_account(conn, Later::Run(ask, fds)),
            Ask::Signal(signal) => {
                self.on_signal(conn, signal);
                Ok(())
            }
            Ask::Ps => {
                let rows: Vec<_> = self
                    .fold
                    .boxes()
                    .iter()
                    .map(|state| self.fold.box_row(state))
                    .collect();
                self.answer_all(conn, rows.into_iter().map(Tell::Box).collect());
                Ok(())
            }
            Ask::Flows {
                target,
                since_ms,
                follow,
            } => self.on_flows(conn, &target, since_ms, follow),
            Ask::Stop { target } => self.on_stop(conn, &target),
            Ask::Notices { follow } => {
                self.on_notices(conn, follow);
                Ok(())
            }
            Ask::DeviceAdd { addrs } => self.with_account(conn, Later::DeviceAdd(addrs)),
            Ask::DeviceJoin { code } => self.begin_join(conn, &code),
            Ask::DeviceList => {
                let rows = self.device_rows();
                self.answer_all(conn, rows.into_iter().map(Tell::Device).collect());
                Ok(())
            }
            Ask::Answer(same) => {
                self.answer_words(conn, same);
                Ok(())
            }
        };
        if let Err(failure) = result {
            self.tell(conn, Tell::Failed(failure));
        }
    }

    /// Goes on at once where there is an account, else makes one first.
    fn with_account(&mut self, conn: ConnId, later: Later) -> Result<(), Failure> {
        if self.leaving {
            return Err(Failure::host("the node is leaving").hint("run this again"));
        }
        if self.account.is_some() {
            return self.go_on(conn, later);
        }
        if self.waiting_account.is_empty() {
            self.ask_store(StoreAsk::CreateAccount {
                name: self.name.clone(),
            });
        }
        self.waiting_account.push((conn, later));
        Ok(())
    }

    fn go_on(&mut self, conn: ConnId, later: Later) -> Result<(), Failure> {
        match later {
            Later::Run(ask, fds) => self.begin(conn, *ask, fds),
            Later::DeviceAdd(addrs) => self.begin_add(conn, &addrs),
        }
    }

    /// There is an account now, or none could be made.
    pub(super) fn on_account(&mut self, result: Result<bailey_model::AccountId, String>) {
        let waiting = std::mem::take(&mut self.waiting_account);
        let failure = match result {
            Ok(account) => {
                self.account = Some(account);
                // The store has entered the name by itself.
                let event = Event::DeviceNamed(bailey_model::DeviceNamed {
                    name: self.name.clone(),
                });
                let entry = Entry {
                    no: 0,
                    ts: clock::now(),
                    event,
                };
                self.fold.push(self.this, &entry);
                None
            }
            Err(why) => Some(Failure::host(format!("no account could be made: {why}"))),
        };
        for (conn, later) in waiting {
            let result = match &failure {
                Some(failure) => Err(failure.clone()),
                None => self.go_on(conn, later),
            };
            if let Err(failure) = result {
                self.tell(conn, Tell::Failed(failure));
            }
        }
    }

    /// Says in the node's document what this device calls itself.
    pub(super) fn name_self(&mut self) {
        let named = Event::DeviceNamed(bailey_model::DeviceNamed {
            name: self.name.clone(),
        });
        self.append(DocId::Node, named, Urgency::Urgent, Tag::None);
    }

    fn answer_all(&mut self, conn: ConnId, tells: Vec<Tell>) {
        let Some(answers) = self.conns.get(&conn).cloned() else {
            return;
        };
        tokio::spawn(async move {
            for tell in tells.into_iter().chain([Tell::Done]) {
                if answers.send((tell, Vec::new())).await.is_err() {
                    return;
                }
            }
        });
    }

    fn run_of(&self, conn: ConnId) -> Option<RunId> {
        self.runs
            .iter()
            .find(|(_, run)| run.client == Some(conn))
            .map(|(id, _)| *id)
    }

    fn on_signal(&mut self, conn: ConnId, signal: i32) {
        let run = self.run_of(conn).and_then(|id| self.runs.get(&id));
        if let Some(fence) = run.and_then(|run| run.fence.as_ref()) {
            fence.send(ToFence::Signal(signal), vec![]);
        }
    }

    /// A terminal that went away takes its box with it.
    pub(super) fn on_disconnected(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.followers.flows.remove(&conn);
        self.followers.notices.remove(&conn);
        self.pairings.remove(&conn);
        self.requests.retain(|_, waiting| *waiting != conn);
        if let Some(id) = self.run_of(conn) {
            if let Some(run) = self.runs.get_mut(&id) {
                run.client = None;
                run.begin_end(BoxEnd::ClientGone, std::time::Instant::now());
            }
            self.close_if_over(id);
        }
    }

    fn on_flows(
        &mut self,
        conn: ConnId,
        target: &str,
        since_ms: Option<u64>,
        follow: bool,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        let Some(answers) = self.conns.get(&conn).cloned() else {
            return Ok(());
        };
        let (paths, keys, events) = (self.paths.clone(), self.keys.clone(), self.events.clone());
        let since = Timestamp(since_ms.unwrap_or(0));
        if follow {
            let follower = Follower {
                writer: state.writer,
                doc: DocId::Box(state.id),
                name: state.name.clone(),
                pending: Some(Vec::new()),
            };
            self.followers.flows.insert(conn, follower);
        }
        tokio::task::spawn_blocking(move || {
            let upto = match store::entries(&paths, &keys, DocId::Box(state.id), state.writer) {
                Ok(entries) => send_flows(&answers, &state, &entries, since, follow),
                Err(failure) => {
                    let _gone = answers.blocking_send((Tell::Failed(failure), Vec::new()));
                    return;
                }
            };
            if follow {
                let _loop_gone = events.blocking_send(NodeEvent::HistoryRead { conn, upto });
            } else {
                let _gone = answers.blocking_send((Tell::Done, Vec::new()));
            }
        });
        Ok(())
    }

    /// A follower has its history: what came meanwhile, then what comes.
    pub(super) fn history_read(&mut self, conn: ConnId, upto: u64) {
        let Some(follower) = self.followers.flows.get_mut(&conn) else {
            return;
        };
        let name = follower.name.clone();
        let pending = follower.pending.take().unwrap_or_default();
        for entry in pending.iter().filter(|entry| entry.no > upto) {
            if let Some(row) = FlowRow::of(&name, entry) {
                self.tell(conn, Tell::Flow(Box::new(row)));
            }
        }
    }

    /// Hands a new entry to whoever follows it.
    pub(super) fn follow(&mut self, writer: DeviceId, doc: DocId, entry: &Entry) {
        if let Event::Notice(_) = entry.event {
            let conns: Vec<_> = self.followers.notices.iter().copied().collect();
            for conn in conns {
                self.send_notices(conn, vec![(writer, entry.clone())], true);
            }
        }
        let mut rows = Vec::new();
        for (conn, follower) in &mut self.followers.flows {
            if follower.writer != writer || follower.doc != doc {
                continue;
            }
            match &mut follower.pending {
                Some(pending) if pending.len() < MAX_PENDING => pending.push(entry.clone()),
                Some(_) => {}
                None => rows.extend(FlowRow::of(&follower.name, entry).map(|row| (*conn, row))),
            }
        }
        for (conn, row) in rows {
            self.tell(conn, Tell::Flow(Box::new(row)));
        }
    }

    fn on_notices(&mut self, conn: ConnId, follow: bool) {
        if follow {
            self.followers.notices.insert(conn);
        }
        let known = self.fold.notices().map(|(writer, ts, notice)| {
            let entry = Entry {
                no: 0,
                ts: *ts,
                event: Event::Notice(notice.clone()),
            };
            (*writer, entry)
        });
        self.send_notices(conn, known.collect(), follow);
    }

    /// Shows notices with those of their entries that this device holds. A
    /// notice that has just come may be ahead of them: it waits a little.
    fn send_notices(&self, conn: ConnId, notices: Vec<(DeviceId, Entry)>, follow: bool) {
        let Some(answers) = self.conns.get(&conn).cloned() else {
            return;
        };
        let (paths, keys) = (self.paths.clone(), self.keys.clone());
        let fresh = follow && notices.len() == 1;
        let named: Vec<_> = notices
            .into_iter()
            .map(|(writer, entry)| (self.fold.device_name(writer), writer, entry))
            .collect();
        tokio::task::spawn_blocking(move || {
            for (device, writer, entry) in named {
                let Event::Notice(notice) = entry.event else {
                    continue;
                };
                let doc = DocId::Box(notice.box_id);
                let wanted: Vec<u64> = notice.evidence.iter().map(|place| place.no).collect();
                let until = std::time::Instant::now() + EVIDENCE_LIMIT;
                let entries = loop {
                    let all = store::entries(&paths, &keys, doc, writer).unwrap_or_default();
                    let held: Vec<_> = all
                        .into_iter()
                        .filter(|entry| wanted.contains(&entry.no))
                        .collect();
                    let done = held.len() == wanted.len() || !fresh;
                    if done || std::time::Instant::now() > until {
                        break held;
                    }
                    std::thread::sleep(EVIDENCE_STEP);
                };
                let row = NoticeRow {
                    v: rows::V,
                    ts: entry.ts.to_string(),
                    id: notice.id.to_string(),
                    rule: notice.rule.as_str().to_owned(),
                    box_name: notice.box_name.clone(),
                    box_id: notice.box_id.to_string(),
                    device,
                    text: notice.text.clone(),
                    evidence: wanted,
                    entries: entries
                        .iter()
                        .filter_map(|entry| FlowRow::of(&notice.box_name, entry))
                        .collect(),
                };
                if answers
                    .blocking_send((Tell::Notice(row), Vec::new()))
                    .is_err()
                {
                    return;
                }
            }
            if !follow {
                let _gone = answers.blocking_send((Tell::Done, Vec::new()));
            }
        });
    }

    fn on_stop(&mut self, conn: ConnId, target: &str) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if state.writer != self.this {
            return self.ask_device(conn, &state);
        }
        let run = self
            .runs
            .iter()
            .find(|(_, run)| run.incarnation == state.incarnation);
        match run.map(|(id, _)| *id) {
            Some(id) => self.stop_run(id, StoppedBy::Here, Waiting::Conn(conn)),
            None => {
                let outcome = bailey_model::RequestOutcome::AlreadyOver;
                self.finish(conn, Tell::StopDone { outcome });
            }
        }
        Ok(())
    }

    /// A box of another device: the request is written here and goes there.
    fn ask_device(&mut self, conn: ConnId, state: &BoxState) -> Result<(), Failure> {
        if state.ended.is_some() {
            let outcome = bailey_model::RequestOutcome::AlreadyOver;
            self.finish(conn, Tell::StopDone { outcome });
            return Ok(());
        }
        let id = clock::random().map_err(|error| Failure::host(format!("entropy: {error}")))?;
        let request = Request {
            id: RequestId(id),
            node: state.writer,
            box_id: state.id,
            incarnation: state.incarnation,
            kind: RequestKind::Stop,
        };
        self.requests.insert(request.id, conn);
        self.append(
            DocId::Requests,
            Event::Request(request),
            Urgency::Urgent,
            Tag::Request(conn),
        );
        Ok(())
    }

    /// The request stands and is on its way.
    pub(super) fn on_request_written(&mut self, conn: ConnId, entry: &Entry) {
        let Event::Request(request) = &entry.event else {
            return;
        };
        let tell = Tell::StopAsked {
            device: self.fold.device_name(request.node),
            connected: self.devices.is_up(request.node),
        };
        self.tell(conn, tell);
    }

    /// A receipt for a command line that waits here.
    pub(super) fn on_receipt(&mut self, receipt: &Receipt, from: DeviceId) {
        let asked = self
            .fold
            .request(receipt.request)
            .map(|state| state.request.node);
        // Only the node that was asked can answer.
        if asked != Some(from) {
            return;
        }
        if let Some(conn) = self.requests.remove(&receipt.request) {
            self.finish(
                conn,
                Tell::StopDone {
                    outcome: receipt.outcome.clone(),
                },
            );
        }
    }

    /// Requests of other devices to this node, each acted on once.
    pub(super) fn answer_requests(&mut self) {
        for open in self.fold.unanswered(self.this) {
            let (id, from) = (open.request.id, open.from);
            let being_acted =
                |waiting: &Waiting| matches!(waiting, Waiting::Request(known, _) if *known == id);
            if self
                .runs
                .values()
                .any(|run| run.waiting.iter().any(being_acted))
            {
                continue;
            }
            let RequestKind::Stop = open.request.kind;
            let run = self
                .runs
                .iter()
                .find(|(_, run)| run.incarnation == open.request.incarnation);
            let outcome = match run.map(|(id, _)| *id) {
                _ if !self.devices.may_stop(from) => bailey_model::RequestOutcome::Denied(
                    "that device may not stop boxes".to_owned(),
                ),
                Some(run) => {
                    self.stop_run(run, StoppedBy::Device(from, id), Waiting::Request(id, from));
                    continue;
                }
                None => bailey_model::RequestOutcome::AlreadyOver,
            };
            let receipt = Receipt {
                request: id,
                from,
                outcome,
            };
            self.append(
                DocId::Requests,
                Event::Receipt(receipt),
                Urgency::Urgent,
                Tag::None,
            );
        }
    }
}

/// Sends a box's history; returns the number of its last entry.
fn send_flows(
    answers: &mpsc::Sender<Answer>,
    state: &BoxState,
    entries: &[Entry],
    since: Timestamp,
    follow: bool,
) -> u64 {
    let upto = entries.last().map_or(0, |entry| entry.no);
    let rows: Vec<FlowRow> = if follow {
        let young = entries.iter().filter(|entry| entry.ts >= since);
        young
            .filter_map(|entry| FlowRow::of(&state.name, entry))
            .collect()
    } else {
        let mut fold = RowFold::default();
        entries
            .iter()
            .for_each(|entry| fold.push(&state.name, entry));
        let since = since.to_string();
        fold.finish()
            .into_iter()
            .filter(|row| row.ts >= since)
            .collect()
    };
    for row in rows {
        if answers
            .blocking_send((Tell::Flow(Box::new(row)), Vec::new()))
            .is_err()
        {
            break;
        }
    }
    upto
}
