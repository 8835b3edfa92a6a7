//! The loop: one thread, one epoll set, the pure gate in the middle.

mod addrs;
mod captured;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bailey_channel::{ChannelError, PollChannel};
use bailey_gate_proto::channel::{FromGate, GateConfig, ToGate};
use bailey_gate_proto::{Action, DialFault, ExchangeId, Gate, Now};
use bailey_model::{FlowId, Publish, Transport};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::confine::{self, ConfineError};
use crate::netlink::{Netlink, NetlinkError};
use crate::notes::Notes;
use crate::ping::Heard;
use crate::poll::{Event, Poll, Token, Watch};
use crate::publish::{ACCEPT_BATCH, Came, Published};
use crate::stream::{self, Stream};
use crate::sys;
use crate::upstream::{Exchange, Progress};
use crate::wire::{HEADER, Incoming, Wire};

/// Packets taken from the TUN before flows have their turn: few, so that what
/// was read is still in the cache when it is moved on.
const TUN_BATCH: usize = 8;
/// Turns of flows before the other descriptors are looked at.
const TURN_BATCH: usize = 64;
/// Datagrams taken from one port before others have their turn.
const PORT_BATCH: usize = 64;
/// Bytes queued for the node before further events stay in the gate, which
/// then refuses what is new.
const CHANNEL_BOUND: usize = 1 << 20;
/// Of the descriptors that the gate may have, streams take this part at most, in
/// quarters: names, datagrams and echoes go on where streams have run out.
const STREAM_QUARTERS: u64 = 3;
/// How long what a box had sent may take to go on after it ended by itself.
const FINISH_LIMIT: Duration = Duration::from_secs(5);
/// How soon after reading the node's addresses they are read again.
const ADDRS_PAUSE: Duration = Duration::from_millis(100);

/// Why a gate ended.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The system refused something that a gate cannot be without.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The channel broke, or said what is not understood.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The node's addresses cannot be read.
    #[error("{0}")]
    Netlink(#[from] NetlinkError),
    /// The gate could not be confined.
    #[error("{0}")]
    Confine(#[from] ConfineError),
    /// The first message was no start, or did not bring the TUN and a socket for
    /// each published port.
    #[error("the node did not start this gate as it must")]
    NotStarted,
}

/// The gate of one box, until its node lets go.
#[derive(Debug)]
struct Shell {
    gate: Gate,
    wire: Wire,
    channel: PollChannel,
    notes: Notes,
    netlink: Netlink,
    streams: HashMap<FlowId, Stream>,
    most_streams: usize,
    exchanges: HashMap<ExchangeId, Exchange>,
    started: Instant,
    now: Now,
    tun_ready: bool,
    /// Whether the node has taken everything that was queued for it.
    told_all: bool,
    /// When the node's addresses are to be read again.
    reread: Option<Now>,
    /// The box has ended by itself; when its network ends at the latest.
    finish_by: Option<Now>,
    read_at: Now,
    packet: Vec<u8>,
}

/// Runs the gate whose channel is standard input; returns when the node is gone.
///
/// # Errors
/// What kept it from starting, or broke it. Whatever was open is closed.
pub fn run() -> Result<(), GateError> {
    sys::map_large_buffers();
    let socket = UnixStream::from(sys::take_stdin()?);
    let Some((config, fds, channel)) = receive_start(socket)? else {
        return Ok(());
    };
    let mut shell = Shell::start(config, fds, channel)?;
    confine::confine()?;
    shell.channel.queue(&FromGate::Ready)?;
    let ended = shell.turn_until_closed();
    // Resets, so that no far end waits for a box that is gone.
    shell.end_flows();
    match ended {
        Err(GateError::Channel(ChannelError::Closed)) => Ok(()),
        other => other,
    }
}

/// What the node starts a gate with.
type Start = (GateConfig, VecDeque<OwnedFd>, PollChannel);

/// Waits for the start; `None` if the node went away instead.
fn receive_start(socket: UnixStream) -> Result<Option<Start>, GateError> {
    let mut channel = PollChannel::new(socket)?;
    let mut poll = Poll::new()?;
    poll.add(&channel, Token::Channel, Watch::Readable)?;
    loop {
        match channel.receive::<ToGate>() {
            Ok(Some(message)) => {
                return match message.value {
                    ToGate::Start(config) if message.fds.len() == 1 + config.published.len() => {
                        Ok(Some((config, message.fds, channel)))
                    }
                    _ => Err(GateError::NotStarted),
                };
            }
            Ok(None) => {
                poll.wait(None)?;
            }
            Err(ChannelError::Closed) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Shell {
    fn start(
        config: GateConfig,
        mut fds: VecDeque<OwnedFd>,
        channel: PollChannel,
    ) -> Result<Self, GateError> {
        let tun = fds.pop_front().ok_or(GateError::NotStarted)?;
        // Each flow is a descriptor; the bound is the gate's own, or what the
        // machine lets it have.
        let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).map_err(io::Error::from)?;
        setrlimit(Resource::RLIMIT_NOFILE, files, files).map_err(io::Error::from)?;
        let most_streams = usize::try_from(files / 4 * STREAM_QUARTERS).unwrap_or(usize::MAX);
        let flags =
            OFlag::from_bits_retain(fcntl(&tun, FcntlArg::F_GETFL).map_err(io::Error::from)?);
        fcntl(&tun, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
        sys::leave_sums_open(&tun);
        let mut netlink = Netlink::open()?;
        let addrs = netlink.read()?;
        let poll = Poll::new()?;
        poll.add(&channel, Token::Channel, Watch::Edges)?;
        poll.add(&tun, Token::Tun, Watch::Edges)?;
        poll.add(netlink.changes(), Token::Netlink, Watch::Readable)?;
        let published = Published::new(&config.published, fds, &poll)?;
        Ok(Self {
            gate: Gate::new(Now::ZERO, config, addrs),
            wire: Wire::new(tun, poll, published),
            channel,
            notes: Notes::default(),
            netlink,
            streams: HashMap::new(),
            most_streams,
            exchanges: HashMap::new(),
            started: Instant::now(),
            now: Now::ZERO,
            tun_ready: true,
            told_all: false,
            reread: None,
            finish_by: None,
            read_at: Now::ZERO,
            packet: vec![0; HEADER + (1 << 16)],
        })
    }

    fn turn_until_closed(&mut self) -> Result<(), GateError> {
        loop {
            let limit = if self.tun_ready || self.gate.has_touched() {
                Some(Duration::ZERO)
            } else {
                let events = self.told_all.then(|| self.gate.events_due()).flatten();
                let due = [
                    self.gate.poll_timeout(),
                    self.reread,
                    events,
                    self.notes.due(),
                    self.finish_by,
                ]
                .into_iter()
                .flatten()
                .min();
                due.map(|due| due.saturating_sub(self.started.elapsed()))
            };
            let events = self.wire.poll.wait(limit)?;
            self.now = self.started.elapsed();
            for event in events {
                self.take(event)?;
            }
            self.read_tun()?;
            for _ in 0..TURN_BATCH {
                let Some(flow) = self.gate.next_touched() else {
                    break;
                };
                if let Some(stream) = self.streams.get_mut(&flow) {
                    self.gate.turn(self.now, flow, stream, &mut self.wire);
                }
            }
            if self.gate.poll_timeout().is_some_and(|due| due <= self.now) {
                self.gate.handle_timeout(self.now, &mut self.wire);
            }
            self.reread_addrs();
            self.act();
            self.finish()?;
            self.tell()?;
        }
    }

    fn take(&mut self, event: Event) -> Result<(), GateError> {
        match event.token {
            Token::Channel if event.readable => self.receive()?,
            Token::Channel => {}
            Token::Tun => self.tun_ready = true,
            Token::Netlink => {
                if self.netlink.drain() && self.reread.is_none() {
                    self.reread = Some(self.now.max(self.read_at + ADDRS_PAUSE));
                }
            }
            Token::Tcp(flow) => self.stream_ready(flow, event),
            Token::Udp(port) => self.read_port(port),
            Token::Upstream(id) => self.advance(id),
            Token::Listener(place) => match self.wire.published.at(place) {
                Some(publish) if publish.transport == Transport::Udp => {
                    self.receive_came(place, publish);
                }
                _ => self.accept(place),
            },
            Token::Ping(flow) => self.read_ping(flow),
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), GateError> {
        while let Some(mut message) = self.channel.receive::<ToGate>()? {
            match message.value {
                ToGate::Committed { ticket } => {
                    self.gate
                        .handle_ticket(self.now, ticket, true, &mut self.wire);
                }
                ToGate::Refused { ticket } => {
                    self.gate
                        .handle_ticket(self.now, ticket, false, &mut self.wire);
                }
                ToGate::Slate(key) => {
                    let file = message.fds.pop_front().ok_or(GateError::NotStarted)?;
                    self.notes.begin(&key, &file)?;
                }
                ToGate::Entered { upto } => self.notes.entered(upto),
                ToGate::Ask => self.notes.ask(),
                ToGate::Facts(facts) => {
                    self.gate.set_facts(facts);
                    self.gate.judge_anew(self.now, &mut self.wire);
                }
                ToGate::Reach(reach) => {
                    let flows_reset = self.gate.set_reach(self.now, reach, &mut self.wire);
                    // Far ends are reset before it is said that they are.
                    self.act();
                    self.channel.queue(&FromGate::Reached { flows_reset })?;
                }
                ToGate::Hold(held) => {
                    self.gate.set_paused(held);
                    self.channel.queue(&FromGate::Held(held))?;
                }
                ToGate::Explain(question) => {
                    let explained = self.gate.explain(self.now, &question);
                    self.channel.queue(&FromGate::Explained(explained))?;
                }
                ToGate::Capture(true) => {
                    self.wire.capture.get_or_insert_default();
                }
                ToGate::Capture(false) => self.end_capture()?,
                ToGate::Finish => {
                    self.wire.published.close();
                    self.gate.finish();
                    self.finish_by = Some(self.now + FINISH_LIMIT);
                }
                ToGate::Stop => self.stop()?,
                ToGate::Start(_) => return Err(GateError::NotStarted),
            }
        }
        Ok(())
    }

    /// Ends the box's network, once all of it went on or that took long enough.
    fn finish(&mut self) -> Result<(), GateError> {
        match self.finish_by {
            Some(by) if !self.tun_ready && (self.now >= by || self.gate.is_finished()) => {
                self.stop()
            }
            _ => Ok(()),
        }
    }

    fn end_flows(&mut self) -> u32 {
        self.finish_by = None;
        self.wire.published.close();
        let flows_reset = self.gate.stop(self.now, &mut self.wire);
        self.act();
        flows_reset
    }

    fn stop(&mut self) -> Result<(), GateError> {
        let flows_reset = self.end_flows();
        // Whatever is told before it must arrive before it.
        self.tell_noted()?;
        while let Some((ticket, event)) = self.gate.poll_event() {
            self.channel.queue(&FromGate::Event { ticket, event })?;
        }
        self.end_capture()?;
        self.channel.queue(&FromGate::Stopped { flows_reset })?;
        Ok(())
    }

    fn read_tun(&mut self) -> Result<(), GateError> {
        if !self.tun_ready {
            return Ok(());
        }
        for _ in 0..TUN_BATCH {
            match self.wire.read_packet(&mut self.packet) {
                Ok(Some(packet)) => {
                    self.wire.seen(packet, true);
                    self.gate.handle_tun(self.now, packet, &mut self.wire);
                }
                Ok(None) => {
                    self.tun_ready = false;
                    break;
                }
                Err(error) if stream::is_blocked(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn stream_ready(&mut self, flow: FlowId, event: Event) {
        let Some(stream) = self.streams.get_mut(&flow) else {
            return;
        };
        stream.hung_up |= event.hung_up;
        if !stream.connecting {
            return self.gate.handle_ready(flow, event.readable, event.writable);
        }
        // An unconnected socket says that it hung up until its dial begins.
        if !event.writable && !event.error {
            return;
        }
        let outcome = match stream.outcome() {
            None => return,
            Some(Ok(dialled)) => Ok(dialled),
            Some(Err(errno)) => {
                self.streams.remove(&flow);
                Err(stream::fault(errno))
            }
        };
        self.gate
            .handle_dialled(self.now, flow, outcome, &mut self.wire);
    }

    /// Takes those who came by a published port. Each is a flow whose socket is
    /// kept, and not read before its entry stands.
    fn accept(&mut self, place: u64) {
        for _ in 0..ACCEPT_BATCH {
            match self.wire.published.accept(place) {
                Some(Came::Accepted(publish, client, stream)) => {
                    self.keep(publish, client, stream);
                }
                Some(Came::NoRoom(publish, client)) => {
                    self.gate.handle_accept_failed(self.now, publish, client);
                }
                Some(Came::Left) => {}
                None => return,
            }
        }
    }

    /// Takes datagrams that came by a published port.
    fn receive_came(&mut self, place: u64, publish: Publish) {
        for _ in 0..PORT_BATCH {
            let read = self.wire.published.receive(place, &mut self.packet);
            let Some((client, data)) = read else { return };
            let by = (place, publish);
            self.gate
                .handle_came(self.now, by, client, data, &mut self.wire);
        }
    }

    fn keep(&mut self, publish: Publish, client: SocketAddr, stream: Stream) {
        if self.streams.len() >= self.most_streams {
            self.gate.handle_accept_failed(self.now, publish, client);
            return stream.reset();
        }
        let Some(flow) = self.gate.handle_accepted(self.now, publish, client) else {
            return stream.reset();
        };
        match self.wire.poll.add(&stream, Token::Tcp(flow), Watch::Edges) {
            Ok(()) => drop(self.streams.insert(flow, stream)),
            Err(_) => {
                stream.reset();
                let fault = Err(DialFault::NoSocket);
                self.gate
                    .handle_dialled(self.now, flow, fault, &mut self.wire);
            }
        }
    }

    fn read_port(&mut self, port: bailey_gate_proto::UdpPort) {
        for _ in 0..PORT_BATCH {
            match self.wire.read_port(port, &mut self.packet) {
                Some(Incoming::Datagram(from, data)) => {
                    self.gate
                        .handle_datagram(self.now, port, from, data, &mut self.wire);
                }
                Some(Incoming::Failed(to, fault)) => {
                    self.gate
                        .handle_datagram_failed(port, to, fault, &mut self.wire);
                }
                None => return,
            }
        }
    }

    fn read_ping(&mut self, flow: FlowId) {
        for _ in 0..PORT_BATCH {
            match self.wire.pings.read(flow, &mut self.packet) {
                Some(Heard::Reply(from, seq, data)) => {
                    let reply = (seq, data);
                    self.gate
                        .handle_echo_reply(self.now, flow, from, reply, &mut self.wire);
                }
                Some(Heard::Failed(error)) => {
                    self.gate
                        .handle_echo_failed(self.now, flow, error, &mut self.wire);
                }
                Some(Heard::Other) => {}
                None => return,
            }
        }
    }

    fn advance(&mut self, id: ExchangeId) {
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        match exchange.advance() {
            Progress::Waiting => {}
            Progress::Message(from, bytes) => {
                self.gate
                    .handle_upstream(self.now, id, from, &bytes, &mut self.wire);
            }
            Progress::Failed => {
                self.exchanges.remove(&id);
                self.gate
                    .handle_upstream_failed(self.now, id, &mut self.wire);
            }
        }
    }

    /// Does what the gate wants done, which may lead to more.
    fn act(&mut self) {
        while let Some(action) = self.gate.poll_action() {
            match action {
                Action::Dial { flow, dst } => self.dial(flow, dst),
                Action::Close { flow, reset } => {
                    self.wire.pings.close(flow);
                    if let Some(stream) = self.streams.remove(&flow)
                        && reset
                    {
                        stream.reset();
                    }
                }
                Action::CloseUdp(port) => self.wire.close_port(port),
                Action::Upstream {
                    id,
                    server,
                    over,
                    bytes,
                } => {
                    let exchange = Exchange::start(server, over, bytes);
                    let watch = match over {
                        Transport::Udp => Watch::Readable,
                        Transport::Tcp => Watch::Edges,
                    };
                    match exchange {
                        Ok(exchange)
                            if self
                                .wire
                                .poll
                                .add(&exchange, Token::Upstream(id), watch)
                                .is_ok() =>
                        {
                            self.exchanges.insert(id, exchange);
                        }
                        _ => self
                            .gate
                            .handle_upstream_failed(self.now, id, &mut self.wire),
                    }
                }
                Action::CancelUpstream(id) => {
                    self.exchanges.remove(&id);
                }
            }
        }
        for (port, outer) in std::mem::take(&mut self.wire.bound) {
            self.gate.handle_udp_bound(port, outer);
        }
    }

    fn dial(&mut self, flow: FlowId, dst: SocketAddr) {
        let full = self.streams.len() >= self.most_streams;
        let dialled = if full {
            Err(nix::errno::Errno::EMFILE)
        } else {
            Stream::dial(dst)
        };
        let fault = match dialled {
            Ok(stream) => match self.wire.poll.add(&stream, Token::Tcp(flow), Watch::Edges) {
                Ok(()) => {
                    self.streams.insert(flow, stream);
                    return;
                }
                Err(_) => DialFault::NoSocket,
            },
            Err(errno) => stream::fault(errno),
        };
        self.gate
            .handle_dialled(self.now, flow, Err(fault), &mut self.wire);
    }

    /// Flows that are noted come before whatever else is told of them.
    fn tell_noted(&mut self) -> Result<(), ChannelError> {
        match self.notes.take() {
            Some(noted) => self.channel.queue(&noted),
            None => Ok(()),
        }
    }

    /// Hands events to the node, as many as its end takes.
    fn tell(&mut self) -> Result<(), GateError> {
        while self.channel.queued_bytes() < CHANNEL_BOUND {
            let Some((ticket, event)) = self.gate.poll_due_event(self.now) else {
                break;
            };
            match ticket.filter(|_| self.notes.note(self.now, &event)) {
                Some(noted) => {
                    self.gate
                        .handle_ticket(self.now, noted, true, &mut self.wire);
                    self.act();
                }
                None => {
                    self.tell_noted()?;
                    self.channel.queue(&FromGate::Event { ticket, event })?;
                }
            }
        }
        if self.notes.due().is_some_and(|due| due <= self.now) {
            self.tell_noted()?;
        }
        self.tell_captured()?;
        // What the node does not take now it takes when its end has room, which
        // is an event of its own.
        self.told_all = self.channel.flush()?;
        Ok(())
    }
}
