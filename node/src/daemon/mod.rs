//! The daemon: one loop that joins the rooms.
//!
//! Everything that happens arrives as a [`NodeEvent`] or a [`StoreTell`]; the
//! loop appends the entry first, then shows it to the rules, then tells who
//! waits. It takes no further event while the store has its bound of asks
//! under way, so a box that writes fast waits at its own gate.

mod child;
mod clock;
mod control;
mod devices;
mod event;
mod facts;
mod fold;
mod grants;
mod lock;
mod pairing;
mod prepare;
mod questions;
mod reading;
mod run_state;
mod runs;
mod store;
mod trash;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use bailey_docs_store::{DeviceKeys, DocId, Urgency};
use bailey_gate_proto::channel::ToGate;
use bailey_model::{BoxEnd, BoxId, DeviceId, EntryRef, Event, NoticeId, Refusal, Transport};
use bailey_rules::{Observation, Rules};
use tokio::sync::mpsc;

use self::event::{Answer, ConnId, EVENTS, NodeEvent, RunId};
use self::fold::Fold;
use self::run_state::Run;
use self::store::{IN_FLIGHT, StoreAsk, StoreTell, Tag};
use crate::api::{Failure, Tell};
use crate::log::log;
use crate::paths::Paths;

/// A node that a command started leaves after this long without box, peer or
/// connection.
const IDLE: Duration = Duration::from_secs(10);
/// Between two looks at what has no event: files, limits, idleness.
const TICK: Duration = Duration::from_millis(500);

/// Is the node until it is told to end.
///
/// # Errors
/// When another one runs, or the machine does not allow it.
pub fn run(background: bool, said_name: Option<String>) -> Result<u8, Failure> {
    let paths = Paths::from_env().map_err(|error| Failure::host(error.to_string()))?;
    paths
        .create()
        .map_err(|error| Failure::host(error.to_string()))?;
    if background {
        // Before this process opens anything of its own.
        lock::close_inherited()
            .map_err(|error| Failure::host(format!("inherited descriptors: {error}")))?;
        // A session of its own: the terminal that started it may go away.
        nix::unistd::setsid().map_err(|error| Failure::host(format!("setsid: {error}")))?;
    }
    let _lock = match lock::take_or_defer(&paths)? {
        Some(lock) => lock,
        // Another one serves: a command that wanted a node has it.
        None if background => return Ok(0),
        // The error says which process it is.
        None => lock::take(&paths).map_err(|error| Failure::host(error.to_string()))?,
    };
    confine_self()?;
    let name = device_name(&paths, said_name)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .map_err(|error| Failure::host(format!("runtime: {error}")))?;
    runtime.block_on(serve(paths, background, name))
}

/// What this device calls itself: as said now, as said before, or its host name.
fn device_name(paths: &Paths, said: Option<String>) -> Result<String, Failure> {
    let path = paths.state.join("device.name");
    let clean = |name: &str| name.trim().chars().take(fold::MAX_NAME).collect::<String>();
    if let Some(name) = said.as_deref().map(clean) {
        if name.is_empty() {
            return Err(Failure::usage("--device-name: empty"));
        }
        devices::write_private(&path, &name)
            .map_err(|error| Failure::host(format!("{}: {error}", path.display())))?;
        return Ok(name);
    }
    if let Ok(kept) = std::fs::read_to_string(&path)
        && !clean(&kept).is_empty()
    {
        return Ok(clean(&kept));
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let name = clean(&host.to_string_lossy());
    Ok(if name.is_empty() {
        "device".to_owned()
    } else {
        name
    })
}

/// No other process of the user may read this one's memory, and no core dump
/// may hold its keys.
fn confine_self() -> Result<(), Failure> {
    let fault = |error| Failure::host(format!("confinement: {error}"));
    nix::sys::prctl::set_dumpable(false).map_err(fault)?;
    let core = nix::sys::resource::Resource::RLIMIT_CORE;
    nix::sys::resource::setrlimit(core, 1, 1).map_err(fault)
}

async fn serve(paths: Paths, background: bool, name: String) -> Result<u8, Failure> {
    let socket = paths
        .socket()
        .map_err(|error| Failure::host(error.to_string()))?;
    let (events, mut incoming) = mpsc::channel(EVENTS);
    let opened = store::open(&paths)?;
    let mut store_tells = opened.tells;
    let mut node = Node::new(paths, events.clone(), opened.asks, opened.keys, name);
    node.incarnation = opened.incarnation;
    node.devices.begin(opened.heads, opened.members);
    node.recover(opened.history, opened.account)?;
    let listener = control::listen(&socket)
        .map_err(|error| Failure::host(format!("{}: {error}", socket.display())))?;
    node.paths
        .write_socket(&socket)
        .map_err(|error| Failure::host(format!("node.socket: {error}")))?;
    let slots = control::Slots::new();
    let accepting = tokio::spawn(control::accept(listener, events, slots.clone()));
    let mut tick = tokio::time::interval(TICK);
    let mut end = Signals::new().map_err(|error| Failure::host(format!("signals: {error}")))?;
    loop {
        tokio::select! {
            biased;
            tell = store_tells.recv() => match tell {
                Some(tell) => node.on_store(tell),
                None => return Err(Failure::internal("the store's thread is gone")),
            },
            () = end.wait(), if !node.leaving => node.leave(),
            _ = tick.tick() => node.on_tick(background, slots.any_taken()),
            event = incoming.recv(), if node.in_flight < IN_FLIGHT => match event {
                Some(event) => node.on_event(event),
                None => return Err(Failure::internal("every sender of events is gone")),
            },
        }
        if node.leaving {
            // Whoever comes now is the next node's to serve.
            accepting.abort();
        }
        if node.leaving && node.runs.is_empty() && node.in_flight == 0 {
            break;
        }
    }
    // A socket file that stays is replaced by the next node.
    let _left = std::fs::remove_file(&socket);
    drop(node);
    store::finish(&mut store_tells).await;
    Ok(0)
}

/// SIGTERM and SIGINT.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// What the loop owns.
#[derive(Debug)]
struct Node {
    paths: Paths,
    events: mpsc::Sender<NodeEvent>,
    asks: blocking::SyncSender<StoreAsk>,
    /// Asks that the store has not answered.
    in_flight: usize,
    keys: Arc<DeviceKeys>,
    this: DeviceId,
    incarnation: bailey_model::Incarnation,
    name: String,
    account: Option<bailey_model::AccountId>,
    fold: Fold,
    rules: Rules,
    runs: BTreeMap<RunId, Run>,
    conns: BTreeMap<ConnId, mpsc::Sender<Answer>>,
    followers: questions::Followers,
    devices: devices::Devices,
    pairings: BTreeMap<ConnId, pairing::Running>,
    /// Questions that wait for the account to be made.
    waiting_account: Vec<(ConnId, questions::Later)>,
    /// Requests of this node's own command lines, by request id.
    requests: BTreeMap<bailey_model::RequestId, ConnId>,
    facts: Option<bailey_gate_proto::channel::HostFacts>,
    idle_since: Instant,
    leaving: bool,
    last: u64,
}

impl Node {
    fn new(
        paths: Paths,
        events: mpsc::Sender<NodeEvent>,
        asks: blocking::SyncSender<StoreAsk>,
        keys: Arc<DeviceKeys>,
        name: String,
    ) -> Self {
        Self {
            this: keys.id(),
            incarnation: bailey_model::Incarnation([0; 16]),
            paths,
            events,
            asks,
            in_flight: 0,
            keys,
            name,
            account: None,
            fold: Fold::default(),
            rules: Rules::default(),
            runs: BTreeMap::new(),
            conns: BTreeMap::new(),
            followers: questions::Followers::default(),
            devices: devices::Devices::default(),
            pairings: BTreeMap::new(),
            waiting_account: Vec::new(),
            requests: BTreeMap::new(),
            facts: None,
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
        for (_, writer, entry) in &history {
            self.fold.push(*writer, entry);
        }
        let lost: Vec<_> = self
            .fold
            .boxes()
            .into_iter()
            .filter(|state| state.writer == self.this && state.ended.is_none())
            .map(|state| (state.id, state.incarnation))
            .collect();
        for (box_id, incarnation) in lost {
            let ended = Event::BoxEnded(bailey_model::BoxEnded {
                box_id,
                incarnation,
                end: BoxEnd::NodeLost,
                processes_ended: None,
                processes_left: None,
                flows_reset: None,
            });
            self.append(
                DocId::Box(box_id),
                ended.clone(),
                Urgency::Urgent,
                Tag::None,
            );
            self.append(DocId::Node, ended, Urgency::Urgent, Tag::None);
        }
        prepare::remove_unnamed(&self.paths);
        if self.account.is_some() {
            if self.fold.device_name(self.this) != self.name {
                self.name_self();
            }
            self.start_sync()?;
            self.answer_requests();
        }
        Ok(())
    }

    /// Every append takes this road: one ask, one answer.
    fn append(&mut self, doc: DocId, event: Event, urgency: Urgency, tag: Tag) {
        self.ask_store(StoreAsk::Append {
            doc,
            event,
            urgency,
            tag,
        });
    }

    fn ask_store(&mut self, ask: StoreAsk) {
        // The channel holds more than the loop ever has under way; a thread
        // that is gone ends the loop by its own channel.
        match self.asks.try_send(ask) {
            Ok(()) => self.in_flight += 1,
            Err(blocking::TrySendError::Full(ask) | blocking::TrySendError::Disconnected(ask)) => {
                log!("the store's thread does not take asks");
                if let StoreAsk::Append { tag, .. } = ask {
                    self.on_not_appended(tag, "the store does not answer");
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
            StoreTell::NotAppended { tag, why } => self.on_not_appended(tag, &why),
            StoreTell::Heads(heads) => self.devices.heads(heads),
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
            StoreTell::Members(members) => self.on_members(members),
        }
    }

    /// An entry stands: whoever waits for it, then the rules.
    fn on_appended(&mut self, doc: DocId, entry: &bailey_model::Entry, tag: Tag) {
        if !matches!(doc, DocId::Box(_)) {
            self.fold.push(self.this, entry);
        }
        self.follow(self.this, doc, entry);
        match tag {
            Tag::None | Tag::Listed(_) => {}
            Tag::Started(run) => self.on_started(run),
            Tag::Told(run) => {
                if let Event::FlowRefused(refused) = &entry.event {
                    self.on_refused(run, refused);
                }
            }
            Tag::Ticket(run, ticket) => self.answer_gate(run, ToGate::Committed { ticket }),
            Tag::Ended(run) => self.on_ended(run),
            Tag::Request(conn) => self.on_request_written(conn, entry),
        }
        if let Event::Receipt(receipt) = &entry.event {
            self.on_receipt(receipt, self.this);
        }
        if let DocId::Box(box_id) = doc {
            self.observe(box_id, entry);
        }
    }

    /// The audit cannot take an entry: nothing new goes out, what runs goes on.
    fn on_not_appended(&mut self, tag: Tag, why: &str) {
        log!("the audit cannot be written: {why}");
        match tag {
            Tag::None | Tag::Told(_) => {}
            Tag::Listed(run) | Tag::Started(run) => {
                self.fail(run, format!("the audit cannot be written: {why}"))
            }
            Tag::Ticket(run, ticket) => {
                self.answer_gate(run, ToGate::Refused { ticket });
                self.on_unwritten(run);
            }
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
    fn observe(&mut self, box_id: BoxId, entry: &bailey_model::Entry) {
        let id = match clock::random() {
            Ok(id) => id,
            // A notice with an id that another could have beats no notice.
            Err(error) => {
                log!("entropy: {error}");
                [0; 16]
            }
        };
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
            let run = self.runs.values().find(|run| run.box_id == notice.box_id);
            if let Some(conn) = run.and_then(|run| run.client) {
                self.tell(conn, Tell::Noticed(notice.clone()));
            }
            // Urgent takes with it whatever waits: the entries that raised it.
            self.append(
                DocId::Notices,
                Event::Notice(notice),
                Urgency::Urgent,
                Tag::None,
            );
        }
    }

    fn on_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Connected { conn, answers } => {
                self.conns.insert(conn, answers);
            }
            NodeEvent::Asked { conn, ask, fds } => self.on_ask(conn, ask, fds),
            NodeEvent::Disconnected { conn } => self.on_disconnected(conn),
            NodeEvent::Fence { run, said, fds } => self.on_fence(run, said, fds),
            NodeEvent::FenceGone { run } => self.on_fence_gone(run),
            NodeEvent::Gate { run, said } => self.on_gate(run, said),
            NodeEvent::GateGone { run } => self.on_gate_gone(run),
            NodeEvent::Sync(event) => self.on_sync(event),
            NodeEvent::SyncGone { port } => self.devices.gone(port),
            NodeEvent::Pairing { conn, event } => self.on_pairing(conn, event),
            NodeEvent::HistoryRead { conn, upto } => self.history_read(conn, upto),
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
        self.end_overdue(Instant::now());
        self.push_facts();
        if let Err(failure) = self.start_sync() {
            log!("{}", failure.text);
        }
        let busy =
            connected || !self.runs.is_empty() || !self.conns.is_empty() || self.devices.any_up();
        if busy {
            self.idle_since = Instant::now();
        }
        if background && self.idle_since.elapsed() > IDLE {
            self.leaving = true;
        }
    }

    /// Resolver configuration follows the machine.
    fn push_facts(&mut self) {
        if self.runs.is_empty() {
            self.facts = None;
            return;
        }
        let now = facts::read(self.listeners());
        if self.facts.as_ref() == Some(&now) {
            return;
        }
        for run in self.runs.values() {
            if let Some(gate) = &run.gate {
                gate.send(ToGate::Facts(now.clone()), vec![]);
            }
        }
        self.facts = Some(now);
    }

    /// The node's own listeners, which no word of a reach grants.
    fn listeners(&self) -> Vec<(Transport, SocketAddr)> {
        self.devices.listeners()
    }

    /// Ends every box, then the loop.
    fn leave(&mut self) {
        self.leaving = true;
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
