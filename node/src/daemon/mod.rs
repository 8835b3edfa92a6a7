//! The daemon: one loop that joins the rooms.
//!
//! Everything that happens arrives as a [`NodeEvent`] or a [`StoreTell`]; the
//! loop appends the entry first, then shows it to the rules, then tells who
//! waits. It takes no further event while the store has its bound of asks
//! under way, so a box that writes fast waits at its own gate.

mod allow;
mod bounds;
mod capture;
mod check;
mod child;
pub(crate) mod clock;
mod control;
mod devices;
mod event;
mod exec;
mod facts;
mod fold;
mod given;
mod grants;
mod heads;
mod last_mail;
mod launchers;
mod limits;
mod lock;
mod log_file;
mod logs;
mod mailbox;
mod membership;
mod metrics;
mod nat64;
mod nearby;
mod neighbours;
mod pairing;
mod pause;
mod prepare;
mod publish;
mod questions;
mod reading;
mod recovery;
mod refusals;
mod reports;
mod requests;
mod run_state;
mod runs;
mod screenshot;
mod serve;
mod shared;
mod slates;
mod still;
mod store;
mod thinned;
mod trash;
mod unwritten;
mod went_back;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use bailey_docs_store::{DeviceKeys, DocId, Urgency};
use bailey_gate_proto::channel::ToGate;
use bailey_model::{BoxEnd, BoxId, DeviceId, EntryRef, Event, NoticeId, Refusal};
use bailey_rules::{Observation, Rules};
use tokio::sync::mpsc;

use self::event::{Answer, ConnId, FenceId, NodeEvent, RunId};
use self::fold::Fold;
use self::run_state::Run;
use self::store::{Entering, StoreAsk, StoreTell, Tag, answers_of};
use crate::api::{Failure, Tell};
use crate::config::Config;
use crate::log::log;
use crate::paths::Paths;

pub use self::serve::run;

/// A node that a command started leaves after this long without box, peer or
/// connection.
const IDLE: Duration = Duration::from_secs(10);

/// What the loop owns.
#[derive(Debug)]
struct Node {
    paths: Paths,
    /// What the person set, as it was when the node started.
    config: Config,
    events: mpsc::Sender<NodeEvent>,
    asks: blocking::SyncSender<Vec<StoreAsk>>,
    /// Asks of this turn of the loop: the store is handed them together.
    asked: Vec<StoreAsk>,
    /// Asks that the store has not answered.
    in_flight: usize,
    keys: Arc<DeviceKeys>,
    this: DeviceId,
    incarnation: bailey_model::Incarnation,
    name: String,
    account: Option<bailey_model::AccountId>,
    fold: Fold,
    rules: Rules,
    /// The id of the next notice, until one has it.
    notice_id: Option<[u8; 16]>,
    runs: BTreeMap<RunId, Run>,
    /// Runs with notes that were entered since their gates were told.
    noted: BTreeSet<RunId>,
    /// Incarnations that are over and told of, until they are cleared up.
    over: Vec<Run>,
    /// Further commands in boxes, by their launchers.
    execs: BTreeMap<FenceId, exec::Exec>,
    launchers: launchers::Launchers,
    cgroups: limits::Cgroups,
    /// Soft limit of open files that a program of this person starts with.
    open_files: u64,
    conns: BTreeMap<ConnId, mpsc::Sender<Answer>>,
    followers: questions::Followers,
    devices: devices::Devices,
    mailboxes: mailbox::Mailboxes,
    nearby: nearby::Nearby,
    neighbours: neighbours::Neighbours,
    pairings: BTreeMap<ConnId, pairing::Running>,
    short_codes: bailey_sync::pair::ShortCodeBudget,
    changes: membership::Changes,
    /// Questions that wait for the account to be made.
    waiting_account: Vec<(ConnId, questions::Later)>,
    requests: requests::Requests,
    /// Pictures are taken one at a time.
    picturing: Arc<tokio::sync::Mutex<()>>,
    captures: capture::Captures,
    metrics: metrics::Metrics,
    /// Where the figures are served, if that was asked for.
    metrics_at: Option<SocketAddr>,
    facts: Option<bailey_gate_proto::channel::HostFacts>,
    nat64: nat64::Nat64,
    idle_since: Instant,
    leaving: bool,
    last: u64,
}

impl Node {
    fn new(
        paths: Paths,
        events: mpsc::Sender<NodeEvent>,
        asks: blocking::SyncSender<Vec<StoreAsk>>,
        keys: Arc<DeviceKeys>,
        name: String,
    ) -> Self {
        Self {
            this: keys.id(),
            incarnation: bailey_model::Incarnation([0; 16]),
            paths,
            config: Config::default(),
            events,
            asks,
            asked: Vec::new(),
            in_flight: 0,
            keys,
            name,
            account: None,
            fold: Fold::default(),
            rules: Rules::default(),
            notice_id: None,
            runs: BTreeMap::new(),
            noted: BTreeSet::new(),
            over: Vec::new(),
            execs: BTreeMap::new(),
            launchers: launchers::Launchers::default(),
            cgroups: limits::Cgroups::none(),
            open_files: 0,
            conns: BTreeMap::new(),
            followers: questions::Followers::default(),
            devices: devices::Devices::default(),
            mailboxes: mailbox::Mailboxes::default(),
            nearby: nearby::Nearby::default(),
            neighbours: neighbours::Neighbours::default(),
            pairings: BTreeMap::new(),
            short_codes: bailey_sync::pair::ShortCodeBudget::default(),
            changes: membership::Changes::default(),
            waiting_account: Vec::new(),
            requests: requests::Requests::default(),
            picturing: Arc::default(),
            captures: capture::Captures::default(),
            metrics: metrics::Metrics::default(),
            metrics_at: None,
            facts: None,
            nat64: nat64::Nat64::default(),
            idle_since: Instant::now(),
            leaving: false,
            last: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// What the documents say runs here and does not gets its end.
    fn recover(
        &mut self,
        history: Vec<(DocId, DeviceId, bailey_model::Entry)>,
        account: Option<bailey_model::AccountId>,
    ) -> Result<(), Failure> {
        self.account = account;
        let now = clock::now();
        for (_, writer, entry) in &history {
            self.devices.note_heard(*writer, entry.ts, now);
            self.fold.push(*writer, entry);
            if let Event::HeadsSeen(seen) = &entry.event {
                self.on_heads_seen(*writer, entry.ts, seen);
            }
        }
        let lost: Vec<_> = self
            .fold
            .boxes()
            .into_iter()
            .filter(|state| state.writer == self.this && state.ended.is_none())
            .map(|state| (state.doc(), state.id, state.incarnation))
            .collect();
        for (doc, box_id, incarnation) in lost {
            let ended = Event::BoxEnded(bailey_model::BoxEnded {
                box_id,
                incarnation,
                end: BoxEnd::NodeLost,
                processes_ended: None,
                processes_left: None,
                flows_reset: None,
            });
            self.append(doc, ended.clone(), Urgency::Urgent, Tag::None);
            self.append(DocId::Node, ended, Urgency::Urgent, Tag::None);
        }
        prepare::remove_unnamed(&self.paths, &[]);
        if self.account.is_some() {
            if self.fold.device_name(self.this) != self.name {
                self.name_self();
            }
            self.start_sync()?;
            self.answer_requests();
        }
        Ok(())
    }

    /// Every append takes this road: one answer an entry.
    fn append(&mut self, doc: DocId, event: Event, urgency: Urgency, tag: Tag) {
        self.append_all(vec![Entering {
            doc,
            event,
            urgency,
            tag,
        }]);
    }

    /// Appends in one commit.
    fn append_all(&mut self, entries: Vec<Entering>) {
        self.ask_store(StoreAsk::Append(entries));
    }

    fn ask_store(&mut self, ask: StoreAsk) {
        self.in_flight += answers_of(&ask);
        self.asked.push(ask);
    }

    /// Hands the asks of this turn to the store, which wakes once for all.
    fn hand_over(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        // The channel holds more than the loop ever has under way; a thread
        // that is gone ends the loop by its own channel.
        match self.asks.try_send(std::mem::take(&mut self.asked)) {
            Ok(()) => {}
            Err(
                blocking::TrySendError::Full(asks) | blocking::TrySendError::Disconnected(asks),
            ) => {
                log!("the store's thread does not take asks");
                let answers: usize = asks.iter().map(answers_of).sum();
                self.in_flight = self.in_flight.saturating_sub(answers);
                for ask in asks {
                    let StoreAsk::Append(entries) = ask else {
                        continue;
                    };
                    for it in entries {
                        self.on_not_appended(it.tag, "the store does not answer", it.event);
                    }
                }
            }
        }
    }

    fn on_store(&mut self, tell: StoreTell) {
        if tell.is_answer() {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        match tell {
            StoreTell::Appended { doc, entry, tag } => self.on_appended(doc, &entry, tag),
            StoreTell::NotAppended { tag, why, event } => self.on_not_appended(tag, &why, *event),
            StoreTell::Heads(heads) => self.on_heads(heads),
            StoreTell::Spent(spent) => self.devices.spent(spent),
            StoreTell::Mail(tell) => self.on_mail_told(tell),
            // What it sealed is told as heads are.
            StoreTell::Sealed => {}
            StoreTell::Ingested {
                peer,
                chain,
                seq,
                opened,
            } => {
                self.devices.ingested(peer, chain, seq);
                self.on_opened(opened);
            }
            StoreTell::NotIngested {
                peer,
                chain,
                failure,
                why,
            } => {
                log!(
                    "envelope of {} not taken: {why}",
                    crate::rows::short(&chain.writer)
                );
                self.devices.not_ingested(peer, chain, failure);
            }
            StoreTell::Range {
                peer,
                chain,
                from_seq,
                envelopes,
            } => {
                self.devices.range(peer, chain, from_seq, envelopes);
            }
            StoreTell::Account(result) => self.on_account(result),
            StoreTell::Offered { conn, offer } => self.on_offered(conn, offer),
            StoreTell::Added { conn, added } => self.on_added(conn, added),
            StoreTell::Joined(joined) => self.on_joined(joined),
            StoreTell::Recovery { conn, result } => self.on_recovery(conn, result),
            StoreTell::Members(members) => self.on_members(*members),
            StoreTell::Changed { conn, changed } => self.on_changed(conn, changed),
            StoreTell::Early(early) => self.on_early(&early),
            StoreTell::Misused(misused) => self.on_misused(&misused),
            StoreTell::WentBack { writer } => self.on_went_back(writer),
            StoreTell::Opened(opened) => self.on_opened(opened),
            StoreTell::TwoOfOne(fork) => self.on_two_of_one(&fork),
        }
    }

    /// An entry stands: whoever waits for it, then the rules.
    fn on_appended(&mut self, doc: DocId, entry: &bailey_model::Entry, tag: Tag) {
        if doc.box_id().is_none() {
            self.fold.push(self.this, entry);
        }
        self.metrics.entered(doc, &entry.event);
        self.follow(self.this, doc, entry);
        match tag {
            Tag::None | Tag::Listed(_) | Tag::Given(_) | Tag::Report(_) | Tag::Receipt => {}
            Tag::Started(run) => self.on_started(run),
            Tag::Told(run) => {
                self.give_credit(run);
                if let Event::FlowRefused(refused) = &entry.event {
                    self.on_refused(run, refused);
                }
            }
            Tag::Missing(run, count) => self.on_missing_told(run, count),
            Tag::Noted(run, number) => self.on_note_entered(run, number),
            Tag::Ticket(run, ticket) => {
                self.give_credit(run);
                self.answer_gate(run, ToGate::Committed { ticket });
            }
            Tag::Reach(run, doc) => self.on_reach_entered(run, doc, Ok(())),
            Tag::ReachAgain(run, doc) => self.on_entered_again(run, doc, true),
            Tag::Pause(run, doc) => self.on_pause_entered(run, doc, Ok(())),
            Tag::Capture(run) => self.on_capture_entered(run, Ok(())),
            Tag::Ended(run) => self.on_ended(run),
            Tag::Request(conn) => self.on_request_written(conn, entry),
        }
        if let Event::Receipt(receipt) = &entry.event {
            self.on_receipt(receipt, self.this);
        }
        if let Some(box_id) = doc.box_id() {
            self.observe(doc, box_id, entry);
        }
    }

    /// The audit cannot take an entry: nothing new goes out, what runs goes on.
    fn on_not_appended(&mut self, tag: Tag, why: &str, event: Event) {
        log!("the audit cannot be written: {why}");
        self.metrics.not_written();
        match tag {
            Tag::None => {}
            Tag::Missing(run, _) => self.on_missing_untold(run),
            Tag::Told(run) => {
                self.give_credit(run);
                self.keep_unwritten(run, event, None);
            }
            Tag::Noted(run, number) => self.on_note_unwritten(run, number, event),
            Tag::Listed(run) | Tag::Started(run) | Tag::Given(run) | Tag::Report(run) => {
                self.fail(run, format!("the audit cannot be written: {why}"))
            }
            Tag::Ticket(run, ticket) => {
                self.give_credit(run);
                self.forget_unopened(run, &event);
                self.answer_gate(run, ToGate::Refused { ticket });
                self.on_unwritten(run);
            }
            Tag::Reach(run, doc) => self.on_reach_entered(run, doc, Err(why)),
            Tag::ReachAgain(run, doc) => self.on_entered_again(run, doc, false),
            Tag::Pause(run, doc) => self.on_pause_entered(run, doc, Err(why)),
            Tag::Receipt => self.on_receipt_unwritten(event),
            Tag::Capture(run) => self.on_capture_entered(run, Err(why)),
            Tag::Ended(run) => self.on_ended(run),
            Tag::Request(conn) => {
                self.finish(
                    conn,
                    Tell::Failed(Failure::host(format!("the audit cannot be written: {why}"))),
                );
            }
        }
    }

    fn on_unwritten(&mut self, run: RunId) {
        let refused = bailey_model::FlowRefused {
            direction: bailey_model::Direction::Out,
            proto: bailey_model::Proto::Tcp,
            src: None,
            dst: None,
            host: None,
            host_from: bailey_model::HostFrom::None,
            class: None,
            refusal: Refusal::StoreUnavailable,
            count: 1,
        };
        self.on_refused(run, &refused);
    }

    fn answer_gate(&mut self, run: RunId, answer: ToGate) {
        let gate = self.runs.get(&run).and_then(|run| run.gate.as_ref());
        if gate.is_some_and(|gate| !gate.send(answer, vec![])) {
            // A gate that does not read its answers is no gate: its box's
            // network ends with it.
            if let Some(run) = self.runs.get_mut(&run) {
                run.gate = None;
            }
        }
    }

    /// Shows an entry to the rules, and writes the notices that they raise.
    fn observe(&mut self, doc: DocId, box_id: BoxId, entry: &bailey_model::Entry) {
        let id = *self.notice_id.get_or_insert_with(|| {
            clock::random().unwrap_or_else(|error| {
                // A notice with an id that another could have beats no notice.
                log!("entropy: {error}");
                [0; 16]
            })
        });
        let place = EntryRef {
            writer: self.this,
            box_id,
            no: entry.no,
        };
        let observation = Observation {
            entry: place,
            ts: entry.ts,
            event: &entry.event,
        };
        self.rules.handle(&observation, NoticeId(id));
        while let Some(notice) = self.rules.poll_notice() {
            self.notice_id = None;
            let run = self.runs.values().find(|run| run.box_id == notice.box_id);
            if let Some(conn) = run.and_then(|run| run.client) {
                self.tell(conn, Tell::Noticed(notice.clone()));
            }
            // Urgent takes with it whatever waits: the entries that raised it.
            let notices = match doc.is_here() {
                true => DocId::HereNotices,
                false => DocId::Notices,
            };
            self.append(notices, Event::Notice(notice), Urgency::Urgent, Tag::None);
        }
    }

    fn on_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Connected { conn, answers } => {
                self.conns.insert(conn, answers);
            }
            NodeEvent::Asked { conn, ask, fds } => self.on_ask(conn, ask, fds),
            NodeEvent::Disconnected { conn } => self.on_disconnected(conn),
            NodeEvent::Fence { fence, said, fds } => self.on_launcher(fence, said, fds),
            NodeEvent::FenceGone { fence } => self.on_launcher_gone(fence),
            NodeEvent::LogOver { run } => self.on_log_over(run),
            NodeEvent::Gate { run, said } => self.on_gate(run, said),
            NodeEvent::GateGone { run } => self.on_gate_gone(run),
            NodeEvent::Stands { run, held } => self.on_stands(run, held),
            NodeEvent::GoesOn { run, gone } => self.on_goes_on(run, gone),
            NodeEvent::Sync(event) => self.on_sync(event),
            NodeEvent::Mail(said) => self.on_mail(said),
            NodeEvent::SyncGone { port } => self.devices.gone(port),
            NodeEvent::Pairing { conn, event } => self.on_pairing(conn, event),
            NodeEvent::HistoryRead { conn, upto } => self.history_read(conn, upto),
            NodeEvent::Nearby { device, at } => self.on_nearby(device, at),
            NodeEvent::Nat64(found) => self.on_nat64(found),
            // Whoever asked may have gone.
            NodeEvent::Scraped(to) => drop(to.send(self.metrics_text())),
        }
    }

    /// Says something on a connection. One that does not read is dropped.
    fn tell(&mut self, conn: ConnId, tell: Tell) {
        self.tell_with(conn, tell, Vec::new());
    }

    fn tell_with(&mut self, conn: ConnId, tell: Tell, fds: Vec<OwnedFd>) {
        let Some(answers) = self.conns.get(&conn) else {
            return;
        };
        if answers.try_send((tell, fds)).is_err() {
            self.conns.remove(&conn);
        }
    }

    /// The last word on a connection.
    fn finish(&mut self, conn: ConnId, tell: Tell) {
        self.tell(conn, tell);
        self.tell(conn, Tell::Done);
    }

    fn on_tick(&mut self, background: bool, connected: bool) {
        self.judge_overdue();
        self.end_overdue(Instant::now());
        self.finish_confirmed(Instant::now());
        self.end_overdue_execs(Instant::now());
        self.end_overdue_captures(Instant::now());
        self.keep_spare(Instant::now());
        self.push_facts();
        self.write_refusals();
        self.enter_unwritten();
        self.enter_unentered_pauses();
        self.look_at_requests();
        self.enter_unwritten_ends();
        if let Err(failure) = self.start_sync() {
            log!("{}", failure.text);
        }
        self.note_listeners();
        self.look_nearby(Instant::now());
        self.say_heads(Instant::now());
        self.look_for_withheld(Instant::now());
        self.tick_mailboxes();
        let busy = connected
            || !self.runs.is_empty()
            || !self.conns.is_empty()
            || self.devices.any_up()
            || self.mail_waits();
        if busy {
            self.idle_since = Instant::now();
        }
        if background && self.idle_since.elapsed() > IDLE {
            self.leaving = true;
            self.drop_spare();
        }
    }

    /// Ends every box, then the loop.
    fn leave(&mut self) {
        self.leaving = true;
        self.drop_spare();
        let runs: Vec<RunId> = self.runs.keys().copied().collect();
        for run in runs {
            if let Some(run) = self.runs.get_mut(&run) {
                run.begin_end(
                    BoxEnd::Stopped(bailey_model::StoppedBy::Here),
                    Instant::now(),
                );
            }
            self.close_if_over(run);
        }
    }
}
