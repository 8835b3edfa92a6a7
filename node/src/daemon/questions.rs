//! What a command line asks, and how it is answered.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bailey_docs_store::{DocId, Urgency};
use bailey_fence_plan::channel::ToFence;
use bailey_model::{BoxEnd, DeviceId, Entry, Event, Notice, Timestamp};
use nix::sys::signal::Signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::event::{ConnId, RunId};
use super::pause::Wish;
use super::reading::{Desk, Raised};
use super::run_state::Phase;
use super::store::{StoreAsk, Tag};
use super::{Node, clock};
use crate::api::{AddAsk, Ask, Failure, FlowFilter, RunAsk, Tell};
use crate::rows::FlowRow;

/// Entries that a follower may be behind while its history is read.
const MAX_PENDING: usize = 65_536;

/// A question that waits until there is an account.
#[derive(Debug)]
pub(super) enum Later {
    Run(Box<RunAsk>, VecDeque<OwnedFd>),
    DeviceAdd(AddAsk),
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
    filter: FlowFilter,
    /// While its history is read: what came meanwhile.
    pending: Option<Vec<Entry>>,
}

impl Node {
    pub(super) fn on_ask(&mut self, conn: ConnId, ask: Ask, fds: VecDeque<OwnedFd>) {
        let result = match ask {
            Ask::Run(_) | Ask::Exec(_) if self.has_command(conn) => Err(Failure::usage(
                "a connection has one command, and this one has its own already",
            )),
            Ask::Run(ask) => self.with_account(conn, Later::Run(ask, fds)),
            Ask::Signal(signal) => {
                self.on_signal(conn, signal);
                Ok(())
            }
            Ask::Exec(ask) => self.begin_exec(conn, *ask, fds),
            Ask::Report { target } => self.on_report(conn, &target),
            Ask::Logs { target, follow } => self.on_logs(conn, &target, follow),
            Ask::Screenshot { target } => self.on_screenshot(conn, &target),
            Ask::Ps => {
                self.on_ps(conn);
                Ok(())
            }
            Ask::Flows {
                target,
                filter,
                follow,
            } => self.on_flows(conn, &target, filter, follow),
            Ask::Change { target, way, terms } => self.on_change(conn, &target, way, &terms),
            Ask::Pause { target } => self.on_wish(conn, &target, Wish::Pause),
            Ask::Resume { target } => self.on_wish(conn, &target, Wish::Resume),
            Ask::Metrics => {
                let text = self.metrics_text();
                self.answer_all(conn, vec![Tell::Metrics(text)]);
                Ok(())
            }
            Ask::Pcap { target, seconds } => self.on_pcap(conn, &target, seconds),
            Ask::Why { target, what } => self.on_why(conn, &target, &what),
            Ask::Stop { target } => self.on_stop(conn, &target),
            Ask::Notices { follow } => {
                self.on_notices(conn, follow);
                Ok(())
            }
            Ask::DeviceAdd(ask) => self.with_account(conn, Later::DeviceAdd(ask)),
            Ask::DeviceJoin { code, addrs } => self.begin_join(conn, &code, addrs),
            Ask::DeviceList => {
                self.on_device_list(conn);
                Ok(())
            }
            Ask::MailboxForget(mailbox) => self.on_mailbox_forget(conn, &mailbox),
            Ask::Recovery(ask) => self.on_recovery_ask(conn, ask, fds),
            Ask::DeviceRemove { targets, words } => self.on_device_remove(conn, &targets, words),
            Ask::DeviceRole { target, role } => self.on_device_role(conn, &target, &role),
            Ask::DeviceLeave => self.on_device_leave(conn),
            Ask::DeviceRotate => self.on_device_rotate(conn),
            Ask::Days { target, since_ms } => self.on_days(conn, &target, since_ms),
            Ask::StoreCheck => {
                self.on_store_check(conn);
                Ok(())
            }
            Ask::Account => {
                let row = self.account_row();
                self.answer_all(conn, vec![Tell::Account(row)]);
                Ok(())
            }
            Ask::Beside(ask) => self.on_beside(conn, ask),
            Ask::Answer(same) => {
                self.answer_words(conn, same);
                Ok(())
            }
        };
        if let Err(failure) = result {
            self.tell(conn, Tell::Failed(failure));
        }
    }

    fn on_store_check(&mut self, conn: ConnId) {
        if let Some(desk) = self.desk(conn) {
            tokio::spawn(desk.check());
        }
    }

    fn on_ps(&mut self, conn: ConnId) {
        let boxes = self.fold.boxes();
        let rows: Vec<_> = boxes.iter().map(|state| self.box_row(state)).collect();
        self.answer_all(conn, rows.into_iter().map(Tell::Box).collect());
    }

    /// Goes on at once where there is an account, else makes one first.
    fn with_account(&mut self, conn: ConnId, later: Later) -> Result<(), Failure> {
        if self.leaving {
            return Err(Failure::host("the node is leaving").hint("run this again"));
        }
        if self.is_removed() {
            return Err(self.not_a_member());
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
        if self.leaving {
            return Err(Failure::host("the node is leaving").hint("run this again"));
        }
        match later {
            Later::Run(ask, fds) => self.begin(conn, *ask, fds),
            Later::DeviceAdd(ask) => self.begin_add(conn, &ask),
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

    pub(super) fn answer_all(&mut self, conn: ConnId, tells: Vec<Tell>) {
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

    /// Whether a command was asked for on this connection, and is not over.
    fn has_command(&self, conn: ConnId) -> bool {
        let waits = self
            .waiting_account
            .iter()
            .any(|(waiting, _)| *waiting == conn);
        waits || self.run_of(conn).is_some() || self.has_exec(conn)
    }

    fn run_of(&self, conn: ConnId) -> Option<RunId> {
        self.runs
            .iter()
            .find(|(_, run)| run.client == Some(conn))
            .map(|(id, _)| *id)
    }

    /// Signals of the terminal go to the command; before it runs, those that
    /// would end it end the start.
    fn on_signal(&mut self, conn: ConnId, signal: i32) {
        let ends = [SIGHUP, SIGINT, SIGQUIT, SIGTERM]
            .map(|known| known as i32)
            .contains(&signal);
        let Some(id) = self.run_of(conn) else {
            let before = self.waiting_account.len();
            self.waiting_account
                .retain(|(waiting, _)| !ends || *waiting != conn);
            if self.waiting_account.len() < before {
                let why = "interrupted before the box began";
                return self.tell(conn, Tell::Failed(Failure::host(why)));
            }
            if !self.signal_exec(conn, signal) && ends {
                // A question that was lost, or is not one about a box.
                self.finish(conn, Tell::Failed(Failure::host("interrupted")));
            }
            return;
        };
        let Some(run) = self.runs.get(&id) else {
            return;
        };
        match (run.phase, u8::try_from(signal)) {
            (Phase::Making, Ok(number)) if ends => self.interrupt(id, number),
            // One that is held is woken by nothing but its resume.
            _ if signal == SIGCONT as i32 && run.is_held() => {}
            _ => {
                if let Some(fence) = &run.fence {
                    fence.send(ToFence::Signal(signal), vec![]);
                }
            }
        }
    }

    /// A terminal that went away takes its box with it.
    pub(super) fn on_disconnected(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
        self.followers.flows.remove(&conn);
        self.followers.notices.remove(&conn);
        self.pairings.remove(&conn);
        self.changes.drop_conn(conn);
        self.drop_execs_of(conn);
        self.requests.drop_conn(conn);
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
        filter: FlowFilter,
        follow: bool,
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        let Some(desk) = self.desk(conn) else {
            return Ok(());
        };
        if follow {
            let follower = Follower {
                writer: state.writer,
                doc: state.doc(),
                name: state.name.clone(),
                filter: filter.clone(),
                pending: Some(Vec::new()),
            };
            self.followers.flows.insert(conn, follower);
        }
        tokio::spawn(desk.flows(state, filter, follow));
        Ok(())
    }

    /// What a task needs to read for a connection and answer it.
    pub(super) fn desk(&self, conn: ConnId) -> Option<Desk> {
        Some(Desk {
            conn,
            answers: self.conns.get(&conn)?.clone(),
            events: self.events.clone(),
            paths: self.paths.clone(),
            keys: Arc::clone(&self.keys),
        })
    }

    /// A follower has its history up to a number: now what came meanwhile, as
    /// fast as it is read, and again what came in that time.
    pub(super) fn history_read(&mut self, conn: ConnId, upto: u64) {
        let (Some(desk), Some(follower)) = (self.desk(conn), self.followers.flows.get_mut(&conn))
        else {
            return;
        };
        let (name, filter) = (follower.name.clone(), follower.filter.clone());
        let pending = follower.pending.take().unwrap_or_default();
        let Some(last) = pending.last().map(|entry| entry.no) else {
            return;
        };
        follower.pending = Some(Vec::new());
        let fresh = pending.into_iter().filter(move |entry| entry.no > upto);
        let rows: Vec<FlowRow> = fresh
            .filter_map(|entry| FlowRow::of(&name, &entry))
            .filter(|row| filter.matches(row))
            .collect();
        tokio::spawn(desk.rows(rows, last.max(upto)));
    }

    /// Hands a new entry to whoever follows it.
    pub(super) fn follow(&mut self, writer: DeviceId, doc: DocId, entry: &Entry) {
        if let Event::Notice(notice) = &entry.event {
            for conn in &self.followers.notices {
                let raised = self.raised(writer, entry.ts, notice);
                self.send_notices(*conn, vec![raised], true, false);
            }
        }
        let (mut rows, mut slow) = (Vec::new(), Vec::new());
        for (conn, follower) in &mut self.followers.flows {
            if follower.writer != writer || follower.doc != doc {
                continue;
            }
            match &mut follower.pending {
                Some(pending) if pending.len() < MAX_PENDING => pending.push(entry.clone()),
                Some(_) => slow.push(*conn),
                None => {
                    let row = FlowRow::of(&follower.name, entry);
                    let row = row.filter(|row| follower.filter.matches(row));
                    rows.extend(row.map(|row| (*conn, row)));
                }
            }
        }
        for (conn, row) in rows {
            self.tell(conn, Tell::Flow(Box::new(row)));
        }
        for conn in slow {
            self.followers.flows.remove(&conn);
            let failure = Failure::host("too many entries came before the history was read");
            self.tell(conn, Tell::Failed(failure));
        }
    }

    fn on_notices(&mut self, conn: ConnId, follow: bool) {
        if follow {
            self.followers.notices.insert(conn);
        }
        let known = self.fold.notices();
        let known = known.map(|(writer, ts, notice)| self.raised(*writer, *ts, notice));
        self.send_notices(conn, known.collect(), false, !follow);
    }

    fn send_notices(&self, conn: ConnId, raised: Vec<Raised>, fresh: bool, last: bool) {
        if let Some(desk) = self.desk(conn) {
            tokio::spawn(desk.notices(raised, fresh, last));
        }
    }

    fn raised(&self, writer: DeviceId, ts: Timestamp, notice: &Notice) -> Raised {
        let device = self.fold.device_name(writer);
        Raised {
            device,
            writer,
            ts,
            notice: notice.clone(),
            doc: self.fold.doc_of(writer, notice.box_id, notice.incarnation),
        }
    }
}
