//! The task that owns every session.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bailey_model::{AccountId, DeviceId, Incarnation};
use bailey_session::{
    ByeReason, Claims, CloseReason, PARTING, PARTING_LATER, Session, SessionConfig, SessionEvent,
};
use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::dial::{Dialled, dial};
use super::known::Known;
use super::peers::Peers;
use super::tell::{Told, canonical, tell_node};
use super::{DownReason, SyncCommand, SyncEvent};
use crate::accept::{Accepted, Handshakes, Network};
use crate::io::{self, IoEvent, Writer, code};
use crate::links::{Here, Links};
use crate::tls::{Identity, Pins, Trust};
use crate::{ALPN_SESSION, Dice};

/// Pieces that connections may have waiting for the task; then QUIC's flow
/// control holds their peers back.
const INTERNAL_QUEUE: usize = 64;
/// With so many events that the node has not taken, nothing more is read from
/// peers. What sessions then still say is bounded by their credit.
const MAX_PENDING: usize = 512;
/// Two connections of one peer this close to each other were dialled at the
/// same time by both; a later one is the peer's word that it lost the first.
const SIMULTANEOUS: Duration = Duration::from_secs(2);
/// Devices that were members, or passed for some, and are let in to hear that they are
/// none; more are left out.
const MAX_FORMER: usize = 1024;
/// How long closing may take at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// Who we are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) device: DeviceId,
    pub(super) account: AccountId,
    pub(super) incarnation: Incarnation,
    pub(super) listen_port: u16,
}

/// What the tasks around the hub tell it.
#[derive(Debug)]
pub(super) enum Internal {
    Io(u64, IoEvent),
    Handshake(u64, Option<Box<Accepted>>),
    Dialled(DeviceId, Option<Box<Dialled>>),
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) peer: DeviceId,
    session: Session,
    pub(super) writer: Writer,
    here: Here,
    dialled_by_us: bool,
    since: Duration,
    up: bool,
    /// The peer is no member: it only hears so.
    parting: bool,
}

impl Line {
    /// Whether this machine sends from another address now.
    pub(super) fn has_moved(&self) -> bool {
        self.here
            .has_moved(self.writer.connection().remote_address())
    }
}

struct Stream {
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
    dialled_by_us: bool,
}

#[derive(Debug)]
pub(super) struct Hub {
    own: Own,
    identity: Identity,
    pins: Pins,
    /// Who was a member.
    former: HashMap<[u8; 32], DeviceId>,
    quic: quinn::Endpoint,
    events: mpsc::Sender<SyncEvent>,
    pending: VecDeque<SyncEvent>,
    tell: mpsc::Sender<Internal>,
    told: mpsc::Receiver<Internal>,
    dice: Dice,
    origin: Instant,
    handshakes: Handshakes,
    pub(super) peers: Peers,
    pub(super) lines: HashMap<u64, Line>,
    last_line: u64,
    known: Known,
    claims: Claims,
}

impl Hub {
    pub(super) fn new(
        own: Own,
        identity: Identity,
        pins: Pins,
        quic: quinn::Endpoint,
        events: mpsc::Sender<SyncEvent>,
        dice: Dice,
    ) -> Self {
        let (tell, told) = mpsc::channel(INTERNAL_QUEUE);
        Self {
            own,
            identity,
            pins,
            former: HashMap::new(),
            quic,
            events,
            pending: VecDeque::new(),
            tell,
            told,
            dice,
            origin: Instant::now(),
            handshakes: Handshakes::default(),
            peers: Peers::default(),
            lines: HashMap::new(),
            last_line: 0,
            known: Known::default(),
            claims: Claims::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<SyncCommand>) {
        let events = self.events.clone();
        let mut links = Links::watch();
        loop {
            let deadline = self.deadline();
            let reading = self.pending.len() < MAX_PENDING;
            tokio::select! {
                permit = events.reserve(), if !self.pending.is_empty() => {
                    let Ok(permit) = permit else { break };
                    if let Some(event) = self.pending.pop_front() {
                        permit.send(event);
                    }
                }
                () = events.closed() => break,
                command = commands.recv() => match command {
                    None | Some(SyncCommand::Shutdown) => break,
                    Some(command) => self.handle_command(command),
                },
                told = self.told.recv(), if reading => if let Some(told) = told {
                    self.handle_internal(told);
                },
                incoming = self.quic.accept() => match incoming {
                    None => break,
                    Some(incoming) => {
                        let network = Network::of_incoming(&incoming, |ip| self.peers.knows(ip));
                        let tell = self.tell.clone();
                        self.handshakes.take_up(incoming, network, tell, Internal::Handshake);
                    }
                },
                () = links.changed() => self.handle_links(),
                () = sleep_until(deadline) => self.handle_timeouts(),
            }
            self.pump();
        }
        self.quic.close(code::LEAVING, b"leaving");
        let _ = timeout(CLOSING, self.quic.wait_idle()).await;
    }

    fn deadline(&self) -> Instant {
        let sessions = self
            .lines
            .values()
            .filter_map(|line| line.session.poll_timeout());
        let next = sessions
            .map(|(at, _)| at)
            .chain(self.peers.next_dial())
            .min();
        // Some day, if there is nothing to do.
        self.origin + next.unwrap_or_else(|| self.now() + Duration::from_secs(3600))
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        for line in self.lines.values_mut() {
            if line.session.poll_timeout().is_some_and(|(at, _)| at <= now) {
                line.session.handle_timeout(now);
            }
        }
        for device in self.peers.due(now) {
            self.start_dial(device);
        }
    }

    fn start_dial(&mut self, device: DeviceId) {
        let now = self.now();
        let Some(peer) = self.peers.0.get_mut(&device) else {
            return;
        };
        let trust = Trust::Member(self.pins.clone(), device);
        let Ok(config) = self.identity.client(trust, &[ALPN_SESSION]) else {
            return peer.failed(now, &mut self.dice);
        };
        let (quic, addrs, tell) = (self.quic.clone(), peer.addrs(), self.tell.clone());
        peer.dialled_from = peer.sources();
        let task = tokio::spawn(async move {
            let dialled = dial(quic, config, addrs).await;
            let _ = tell
                .send(Internal::Dialled(device, dialled.map(Box::new)))
                .await;
        });
        peer.dialling = Some(task.abort_handle());
    }

    fn handle_command(&mut self, command: SyncCommand) {
        let now = self.now();
        match command {
            SyncCommand::Members(members) => self.set_members(now, &members),
            SyncCommand::Former(former) => {
                let former = former.into_iter().take(MAX_FORMER);
                self.former = former.map(|(device, key)| (key, device)).collect();
            }
            SyncCommand::Peer { device, addrs } => {
                if device != self.own.device {
                    self.peers.set_addrs(now, device, &addrs);
                }
            }
            SyncCommand::Heads(heads) => {
                for line in self.lines.values_mut() {
                    line.session.handle_local_heads(&heads);
                }
                self.known.grew(heads);
            }
            SyncCommand::Spent(spent) => self.known.spent(spent),
            SyncCommand::Range {
                peer,
                chain,
                from_seq,
                envelopes,
            } => {
                if let Some(line) = self.line_of(peer) {
                    line.session.handle_range(chain, from_seq, envelopes);
                }
            }
            SyncCommand::Ingested { peer, chain, seq } => {
                for line in self.lines.values_mut().filter(|line| line.peer != peer) {
                    line.session.handle_have(chain, seq);
                }
                self.with_line(peer, |line, claims| {
                    line.session.handle_ingested(now, chain, seq, claims);
                });
            }
            SyncCommand::IngestFailed {
                peer,
                chain,
                failure,
            } => {
                self.with_line(peer, |line, claims| {
                    line.session
                        .handle_ingest_failed(now, chain, failure, claims);
                });
            }
            // Handled by the loop.
            SyncCommand::Shutdown => {}
        }
    }

    fn line_of(&mut self, peer: DeviceId) -> Option<&mut Line> {
        let id = self.peers.0.get(&peer)?.connection?;
        self.lines.get_mut(&id)
    }

    fn with_line(&mut self, peer: DeviceId, act: impl FnOnce(&mut Line, &mut Claims)) {
        let id = self.peers.0.get(&peer).and_then(|peer| peer.connection);
        if let Some(line) = id.and_then(|id| self.lines.get_mut(&id)) {
            act(line, &mut self.claims);
        }
    }

    fn set_members(&mut self, now: Duration, members: &[(DeviceId, [u8; 32])]) {
        let own = self.own.device;
        let pins: HashMap<_, _> = members
            .iter()
            .filter(|(device, _)| *device != own)
            .map(|(device, key)| (*key, *device))
            .collect();
        let devices: Vec<DeviceId> = pins.values().copied().collect();
        let members = devices.clone();
        match self.pins.write() {
            Ok(mut current) => {
                // They are let in by their keys, and hear that they are none.
                *current = self.former.clone();
                current.retain(|_, device| !members.contains(device));
                current.extend(pins);
            }
            // Poisoned: the verifiers let nobody in, and nobody stays.
            Err(_) => return self.quic.close(code::LEAVING, b""),
        }
        let is_member = |device: &DeviceId| devices.contains(device);
        for device in self
            .peers
            .set_members(now, is_member, devices.iter().copied())
        {
            self.part_with(now, device);
        }
        // Whoever is a member again begins a session as one.
        let back: Vec<u64> = self
            .lines
            .iter()
            .filter(|(_, line)| line.parting && members.contains(&line.peer))
            .map(|(id, _)| *id)
            .collect();
        for id in back {
            self.end(id, DownReason::Replaced);
        }
    }

    /// A device is no member any more: it hears so and is closed within a second.
    fn part_with(&mut self, now: Duration, device: DeviceId) {
        let id = self.peers.0.get(&device).and_then(|peer| peer.connection);
        let was_member = self.former.values().any(|former| *former == device);
        match id.and_then(|id| self.lines.get_mut(&id)) {
            Some(line) if was_member => {
                line.parting = true;
                line.session.part(now, PARTING);
                self.claims.release_all(device);
                if std::mem::take(&mut line.up) {
                    let reason = DownReason::Removed;
                    self.pending.push_back(SyncEvent::Down {
                        peer: device,
                        reason,
                    });
                }
            }
            _ => {
                if let Some(line) = id.and_then(|id| self.end(id, DownReason::Removed)) {
                    line.writer.close_now(code::NOT_MEMBER, "not a member");
                }
                self.peers.0.remove(&device);
            }
        }
    }

    fn handle_internal(&mut self, told: Internal) {
        let now = self.now();
        match told {
            Internal::Handshake(id, accepted) => {
                if self.handshakes.over(id)
                    && let Some(accepted) = accepted
                {
                    let Accepted {
                        connection,
                        key,
                        send,
                        recv,
                    } = *accepted;
                    let device = self
                        .pins
                        .read()
                        .ok()
                        .and_then(|pins| pins.get(&key).copied());
                    match device {
                        Some(device) => {
                            let stream = Stream {
                                connection,
                                send,
                                recv,
                                dialled_by_us: false,
                            };
                            self.adopt(now, device, stream);
                        }
                        // Removed since the verifier judged it.
                        None => connection.close(code::NOT_MEMBER, b"not a member"),
                    }
                }
            }
            Internal::Dialled(device, dialled) => self.handle_dialled(now, device, dialled),
            Internal::Io(id, event) => self.handle_io(now, id, event),
        }
    }

    fn handle_dialled(&mut self, now: Duration, device: DeviceId, dialled: Option<Box<Dialled>>) {
        let Some(peer) = self.peers.0.get_mut(&device).filter(|peer| peer.member) else {
            if let Some(dialled) = dialled {
                dialled.connection.close(code::NOT_MEMBER, b"not a member");
            }
            return;
        };
        peer.dialling = None;
        let Some(dialled) = dialled else {
            return peer.failed(now, &mut self.dice);
        };
        let Dialled {
            connection,
            send,
            recv,
        } = *dialled;
        if peer.connection.is_some() {
            // The peer reached us first.
            return connection.close(code::DUPLICATE, b"another connection");
        }
        self.adopt(
            now,
            device,
            Stream {
                connection,
                send,
                recv,
                dialled_by_us: true,
            },
        );
    }

    fn adopt(&mut self, now: Duration, device: DeviceId, stream: Stream) {
        let Stream {
            connection,
            send,
            recv,
            dialled_by_us,
        } = stream;
        let existing = self.peers.0.get(&device).and_then(|peer| peer.connection);
        if let Some(id) = existing
            && let Some(line) = self.lines.get(&id)
        {
            let lower_dialled = (self.own.device < device) == line.dialled_by_us;
            let at_once = now.saturating_sub(line.since) < SIMULTANEOUS;
            if line.dialled_by_us != dialled_by_us && lower_dialled && at_once {
                return connection.close(code::DUPLICATE, b"another connection");
            }
            if let Some(line) = self.end(id, DownReason::Replaced) {
                line.writer.close_now(code::DUPLICATE, "another connection");
            }
        }
        self.last_line += 1;
        let id = self.last_line;
        let peer = self.peers.0.entry(device).or_default();
        peer.stop_dialling();
        peer.connection = Some(id);
        let peer_is_member = peer.member;
        let config = SessionConfig {
            account: self.own.account,
            peer: device,
            incarnation: self.own.incarnation,
            listen_port: self.own.listen_port,
        };
        let mut session = Session::new(config, now);
        let parting = !peer_is_member;
        if parting {
            session.part(now, PARTING_LATER);
        }
        session.handle_spent_heads(self.known.not_told());
        session.handle_local_heads(&self.known.in_order(self.own.device));
        let tag = move |event| Internal::Io(id, event);
        let here = Here::of(&connection);
        let writer = io::start(connection, send, recv, self.tell.clone(), tag);
        let line = Line {
            peer: device,
            session,
            writer,
            here,
            dialled_by_us,
            since: now,
            up: false,
            parting,
        };
        self.lines.insert(id, line);
    }

    fn handle_io(&mut self, now: Duration, id: u64, event: IoEvent) {
        let Some(line) = self.lines.get_mut(&id) else {
            return;
        };
        match event {
            IoEvent::Bytes(bytes) => {
                line.session.handle_bytes(now, &bytes, &mut self.claims);
            }
            IoEvent::Written => {}
            IoEvent::Gone(why) => {
                self.end(id, DownReason::Lost(why));
            }
        }
    }

    /// Takes a line out, says so if it was up, and plans the next dial.
    pub(super) fn end(&mut self, id: u64, reason: DownReason) -> Option<Line> {
        let now = self.now();
        let line = self.lines.remove(&id)?;
        self.claims.release_all(line.peer);
        let was = reason.clone();
        if line.up {
            self.pending.push_back(SyncEvent::Down {
                peer: line.peer,
                reason,
            });
        }
        if let Some(peer) = self.peers.0.get_mut(&line.peer)
            && peer.connection == Some(id)
        {
            peer.connection = None;
            let theirs = CloseReason::Theirs(ByeReason::NotMember);
            if was == DownReason::Session(theirs) {
                peer.refused(now, &mut self.dice);
            } else if line.up {
                peer.lost(now, &mut self.dice);
            } else {
                peer.failed(now, &mut self.dice);
            }
            if !peer.member {
                self.peers.0.remove(&line.peer);
            }
        }
        Some(line)
    }

    /// Moves what sessions say to the node and to their peers.
    fn pump(&mut self) {
        let now = self.now();
        let mut over = Vec::new();
        for (id, line) in &mut self.lines {
            loop {
                while let Some(event) = line.session.poll_event() {
                    if line.parting && matches!(event, SessionEvent::Up { .. }) {
                        continue;
                    }
                    if let SessionEvent::Up { listen_port, .. } = event {
                        line.up = true;
                        let remote = canonical(line.writer.connection().remote_address());
                        let learned =
                            (listen_port != 0).then(|| SocketAddr::new(remote.ip(), listen_port));
                        if let Some(peer) = self.peers.0.get_mut(&line.peer) {
                            peer.up(learned);
                        }
                    }
                    match tell_node(line.peer, line.writer.connection().remote_address(), event) {
                        Told::Event(event) => self.pending.push_back(event),
                        Told::Over(reason) => over.push((*id, reason)),
                    }
                }
                let Some(room) = line.writer.room() else {
                    break;
                };
                let Some(frame) = line.session.poll_transmit(now, &mut self.claims) else {
                    break;
                };
                room.send(frame);
            }
        }
        for (id, reason) in over {
            // Dropping the writer sends the goodbye first.
            self.end(id, reason);
        }
    }
}
