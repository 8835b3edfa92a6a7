//! One established TCP flow: a smoltcp interface of its own on the box's side,
//! a connected socket on the other, bytes moved straight between them.
//!
//! An interface a flow because smoltcp looks at every socket for every packet;
//! the gate's own table finds the one that a packet is for.

use std::net::SocketAddr;

use bailey_model::EndReason;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, RecvError, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpListenEndpoint};

use crate::Now;
use crate::flow::{HostStream, Outlet, StreamIo};
use crate::packet::{MAX_PACKET, Segment, flag};
use crate::peek::StreamPeek;

mod begins;
mod engines;
mod odd;
mod wire;

pub(crate) use engines::{Engines, MAX_SPARE_BYTES, Size};
pub(crate) use odd::Said;
use wire::Wire;

/// How often the box is asked whether it still knows a flow whose own half it has
/// ended. A kernel keeps one that no program holds for a minute.
const HALF_CLOSED_PROBE: Now = Now::from_secs(60);
/// Bytes moved each way by one flow before others have their turn.
const BUDGET: usize = 1 << 20;

/// An interface with one TCP socket; flows use it one after the other.
pub(crate) struct Engine {
    size: Size,
    iface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Engine {
    fn new(size: Size, now: Now, seed: u64, finishes: bool) -> Self {
        let (rx, tx) = size.bytes();
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; rx]),
            tcp::SocketBuffer::new(vec![0; tx]),
        );
        // An acknowledgement goes out with each turn anyway, and what the host
        // read belongs to the box at once.
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut nowhere = Nowhere(finishes);
        let mut iface = Interface::new(
            config,
            &mut Wire::new(None, &mut nowhere, &mut []),
            instant(now),
        );
        iface.set_any_ip(true);
        Self {
            size,
            iface,
            sockets,
            handle,
        }
    }

    /// Takes a SYN for `listen`; false if the segment opens nothing.
    pub(crate) fn open(
        &mut self,
        now: Now,
        listen: IpListenEndpoint,
        syn: &[u8],
        wire: &mut Out<'_>,
    ) -> bool {
        self.socket().abort();
        self.socket().set_keep_alive(None);
        if self.socket().listen(listen).is_err() {
            return false;
        }
        self.ingress(now, syn, wire);
        self.state() == State::SynReceived
    }

    /// Dials into the box; false if these ends cannot be dialled.
    pub(crate) fn dial(&mut self, now: Now, knock: Knock, wire: &mut Out<'_>) -> bool {
        let (from, to) = (knock.from, knock.to);
        self.socket().abort();
        self.socket().set_keep_alive(None);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        if socket.connect(self.iface.context(), to, from).is_err() {
            return false;
        }
        self.egress(now, wire);
        true
    }

    pub(crate) fn state(&mut self) -> State {
        self.socket().state()
    }

    pub(crate) fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Feeds one packet of the flow.
    pub(crate) fn ingress(&mut self, now: Now, packet: &[u8], wire: &mut Out<'_>) {
        let mut device = Wire::new(Some(packet), wire.outlet, wire.scratch);
        self.iface
            .poll_ingress_single(instant(now), &mut device, &mut self.sockets);
    }

    /// Sends what the socket has to say; when to call again, if not on a packet.
    pub(crate) fn egress(&mut self, now: Now, wire: &mut Out<'_>) -> Option<Now> {
        let at = instant(now);
        let mut device = Wire::new(None, wire.outlet, wire.scratch);
        while self.iface.poll_egress(at, &mut device, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
        let due = self.iface.poll_at(at, &self.sockets)?;
        Some(
            u64::try_from(due.total_micros())
                .map_or(now, Now::from_micros)
                .max(now),
        )
    }

    /// Resets the box's side, if there is one.
    pub(crate) fn reset(&mut self, now: Now, wire: &mut Out<'_>) {
        self.socket().abort();
        self.egress(now, wire);
    }
}

/// Where an engine's packets go.
pub(crate) struct Out<'a> {
    pub(crate) outlet: &'a mut dyn Outlet,
    pub(crate) scratch: &'a mut [u8],
}

/// A dial from the gate's address on the link to one of the box's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Knock {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// How often the box's kernel may answer with a segment of a connection
    /// that these ends had before: it lets go of that one by the reset it gets
    /// for it, and is then dialled anew at once.
    pub(crate) again: u8,
}

/// A flow whose dial succeeded, or that is being dialled into the box.
#[derive(Debug)]
pub(crate) struct Live {
    engine: Engine,
    /// Set where the box is the dialled end.
    knock: Option<Knock>,
    readable: bool,
    writable: bool,
    /// The host's direction ended; FIN goes to the box behind the last byte.
    host_ended: bool,
    /// The host's side broke off; the box is told behind the last byte.
    host_broken: bool,
    /// The box reset the flow; the host is told behind what it takes of the rest.
    box_broken: bool,
    /// The box's direction ended, and the host was told.
    box_ended: bool,
    /// When the box is asked whether it still knows of its half, and whether it is.
    ask_at: Option<Now>,
    probed: bool,
    established: bool,
    /// When the box must have answered the SYN|ACK.
    handshake_until: Now,
    /// Nothing more goes to the box; what it sent last still goes to the host.
    draining: bool,
    /// Until it is known what the box's bytes begin with, where the box dialled.
    peek: Option<StreamPeek>,
    said: Said,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
}

/// What a turn of a flow led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It goes on; `again` if there is more to move at once.
    Going { due: Option<Now>, again: bool },
    /// It is over; the host's side is to be closed, with a reset if so.
    Over { end: EndReason, reset: bool },
}

impl Live {
    /// `said`: the box's SYN, where the box dialled.
    pub(crate) fn new(
        engine: Engine,
        handshake_until: Now,
        knock: Option<Knock>,
        said: Said,
    ) -> Self {
        Self {
            engine,
            knock,
            handshake_until,
            // A socket that has just connected can be written, and may have data.
            readable: true,
            writable: true,
            host_ended: false,
            host_broken: false,
            box_broken: false,
            box_ended: false,
            ask_at: None,
            probed: false,
            established: false,
            draining: false,
            peek: knock.is_none().then(StreamPeek::new),
            said,
            bytes_out: 0,
            bytes_in: 0,
        }
    }

    pub(crate) fn into_engine(self) -> Engine {
        self.engine
    }

    pub(crate) fn ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Whether the handshake is not done.
    pub(crate) fn is_half_open(&self) -> bool {
        !self.established
    }

    pub(crate) fn handshake_failed(&self, now: Now) -> bool {
        !self.established && now >= self.handshake_until
    }

    /// Feeds one packet; the end if the box reset the flow.
    pub(crate) fn ingress(
        &mut self,
        now: Now,
        packet: &[u8],
        segment: Segment,
        wire: &mut Out<'_>,
    ) -> Option<Turn> {
        // The third of these would stop smoltcp's timer, for a fast repeat of data
        // that there is not: a FIN that was lost would never be said again.
        if self.lacks_only_the_end(segment) {
            return None;
        }
        if self.host_broken || self.box_broken {
            self.engine.ingress(now, packet, wire);
            return None;
        }
        let rst = segment.has(flag::RST);
        self.said.note(segment, packet);
        self.engine.ingress(now, packet, wire);
        match self.engine.state() {
            // A reset takes a half-open smoltcp socket back to listening; the
            // next SYN from anywhere would then be taken without a verdict.
            State::Listen => Some(Turn::Over {
                end: EndReason::ResetByBox,
                reset: true,
            }),
            State::Closed if rst => {
                let unanswered = self.knock.is_some() && !self.established;
                if !unanswered {
                    // What it said before that, and was told has come, goes on first.
                    self.box_broken = true;
                    return None;
                }
                let end = EndReason::DialRefused;
                Some(Turn::Over { end, reset: true })
            }
            State::SynSent => {
                self.knock_again(now, rst, wire);
                None
            }
            State::SynReceived => None,
            _ => {
                self.established = true;
                None
            }
        }
    }

    /// Dials another end of the box; false if it cannot be dialled.
    pub(crate) fn knock_at(&mut self, now: Now, knock: Knock, wire: &mut Out<'_>) -> bool {
        (self.knock, self.said) = (Some(knock), Said::default());
        self.engine.dial(now, knock, wire)
    }

    /// The box answered for a connection that these ends had before.
    fn knock_again(&mut self, now: Now, rst: bool, wire: &mut Out<'_>) {
        let Some(knock) = &mut self.knock else {
            return;
        };
        if rst || knock.again == 0 {
            return;
        }
        knock.again -= 1;
        self.said = Said::default();
        self.engine.dial(now, *knock, wire);
    }

    /// Whether the box said all that it will, and all of it went on.
    pub(crate) fn is_delivered(&mut self) -> bool {
        let broken = self.host_broken || self.box_broken;
        broken || (self.box_ended && !self.engine.socket().can_recv())
    }

    /// Resets the box's side.
    pub(crate) fn reset(&mut self, now: Now, wire: &mut Out<'_>) {
        self.engine.reset(now, wire);
    }

    /// Moves bytes both ways, then sends what the box is owed.
    pub(crate) fn turn(&mut self, now: Now, host: &mut dyn HostStream, wire: &mut Out<'_>) -> Turn {
        if self.box_broken {
            self.box_to_host(host);
            return Turn::Over {
                end: EndReason::ResetByBox,
                reset: true,
            };
        }
        if !self.host_broken && !self.box_to_host(host) {
            self.host_broken = true;
            // What the far end said before it broke off is there all the same.
            self.readable = true;
        }
        self.host_broken |= !self.host_to_box(host);
        if self.host_broken {
            return self.break_off(now, wire);
        }
        if self.host_ended {
            self.end_to_box();
        }
        let probe = self.half_closed(now);
        // smoltcp clears a socket whose TIME-WAIT is over, with what the host
        // has not taken yet: a flow that only drains is not polled.
        let due = if self.draining {
            None
        } else {
            self.engine.egress(now, wire)
        };
        self.draining |= matches!(self.engine.state(), State::TimeWait | State::Closed);
        match (self.draining, self.engine.socket().can_recv()) {
            (true, false) => Turn::Over {
                end: EndReason::Closed,
                reset: false,
            },
            (true, true) => Turn::Going {
                due: None,
                again: self.more(),
            },
            (false, _) if !self.established => {
                let until = self.handshake_until;
                Turn::Going {
                    due: Some(due.map_or(until, |due| due.min(until))),
                    again: false,
                }
            }
            (false, _) => Turn::Going {
                due: due.into_iter().chain(probe).min(),
                again: self.more(),
            },
        }
    }

    /// A box's kernel that has let go of its half of a flow, which no program holds
    /// any more, says so when it is asked. When that is to be asked first; from then
    /// on smoltcp goes on asking.
    fn half_closed(&mut self, now: Now) -> Option<Now> {
        if !self.box_ended || self.host_ended || self.probed {
            return None;
        }
        let first = *self.ask_at.get_or_insert(now + HALF_CLOSED_PROBE);
        if now < first {
            return Some(first);
        }
        self.probed = true;
        let every = u64::try_from(HALF_CLOSED_PROBE.as_micros()).unwrap_or(u64::MAX);
        let every = smoltcp::time::Duration::from_micros(every);
        self.engine.socket().set_keep_alive(Some(every));
        None
    }

    /// Sends what the far end had said, and then that it broke off.
    fn break_off(&mut self, now: Now, wire: &mut Out<'_>) -> Turn {
        let due = self.engine.egress(now, wire);
        let open = !matches!(self.engine.state(), State::TimeWait | State::Closed);
        if self.established && open && self.engine.socket().send_queue() > 0 {
            return Turn::Going { due, again: false };
        }
        self.engine.reset(now, wire);
        Turn::Over {
            end: EndReason::ResetByPeer,
            reset: true,
        }
    }

    fn more(&mut self) -> bool {
        let (readable, writable) = (self.readable, self.writable);
        let ended = self.host_ended;
        let socket = self.engine.socket();
        (writable && socket.can_recv()) || (readable && !ended && socket.can_send())
    }

    /// False if the host's side is broken.
    fn box_to_host(&mut self, host: &mut dyn HostStream) -> bool {
        let socket = self.engine.socket();
        let mut moved = 0;
        while self.writable && moved < BUDGET && socket.can_recv() {
            let io = socket.recv(|bytes| match host.write(bytes) {
                StreamIo::Moved(count) => (count.min(bytes.len()), StreamIo::Moved(count)),
                other => (0, other),
            });
            match io {
                Ok(StreamIo::Moved(count)) => moved += count,
                Ok(StreamIo::Blocked) => self.writable = false,
                Ok(StreamIo::Ended | StreamIo::Broken) => {
                    self.bytes_out += u64::try_from(moved).unwrap_or(0);
                    return false;
                }
                Err(_) => break,
            }
        }
        self.bytes_out += u64::try_from(moved).unwrap_or(0);
        if !self.box_ended
            && !socket.can_recv()
            && matches!(socket.recv(|_| (0, ())), Err(RecvError::Finished))
        {
            self.box_ended = true;
            host.finish();
        }
        true
    }

    /// False if the host's side is broken.
    fn host_to_box(&mut self, host: &mut dyn HostStream) -> bool {
        if self.host_ended {
            // Its end was read; that it broke off after that shows when it is
            // written to.
            let asked = std::mem::take(&mut self.readable);
            let open = asked && !self.box_ended;
            return !(open && matches!(host.write(&[]), StreamIo::Broken));
        }
        if !self.established {
            return true;
        }
        let socket = self.engine.socket();
        let (mut moved, mut broken) = (0, false);
        while self.readable && moved < BUDGET && socket.can_send() {
            let io = socket.send(|space| match host.read(space) {
                StreamIo::Moved(count) => (count.min(space.len()), StreamIo::Moved(count)),
                other => (0, other),
            });
            match io {
                Ok(StreamIo::Moved(count)) => {
                    moved += count;
                    self.readable = !host.is_drained();
                }
                Ok(StreamIo::Blocked) => self.readable = false,
                Ok(StreamIo::Ended) => {
                    self.host_ended = true;
                    break;
                }
                Ok(StreamIo::Broken) => {
                    broken = true;
                    break;
                }
                Err(_) => break,
            }
        }
        self.bytes_in += u64::try_from(moved).unwrap_or(0);
        !broken
    }
}

pub(crate) fn instant(now: Now) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// An outlet for an engine that sends nothing, and whether the one that it will
/// have finishes packets.
struct Nowhere(bool);

impl Outlet for Nowhere {
    fn packet(&mut self, _: &[u8]) {}
    fn finishes(&self) -> bool {
        self.0
    }
    fn datagram(
        &mut self,
        _: crate::flow::UdpPort,
        _: std::net::SocketAddr,
        _: &[u8],
    ) -> Result<(), crate::flow::SendFault> {
        Ok(())
    }
}

/// A scratch buffer for [`Out`].
pub(crate) fn scratch() -> Vec<u8> {
    vec![0; MAX_PACKET]
}
