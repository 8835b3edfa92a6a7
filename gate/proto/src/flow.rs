//! What the gate and its shell say to each other, and the gate's bounds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bailey_model::{FlowId, Transport};

use crate::dns::ExchangeId;
use crate::icmp::{Echo, EchoFault};

/// Most TCP flows of one box, parked and dialling ones included. Each costs a
/// descriptor of the gate.
pub const MAX_TCP_FLOWS: usize = 10_240;
/// Most bytes of buffers of all TCP flows of one box together.
pub const MAX_TCP_BUFFERS: usize = 300 << 20;
/// Most TCP flows that wait for their entry, their dial, or the box's own end of
/// the handshake. Far above what a
/// browser opens at once, far below what would fill the node's ports.
pub const MAX_PENDING_TCP: usize = 1024;
/// Most TCP flows of one box that came in by its published ports, those that
/// wait for their entry or the box's answer included.
pub const MAX_INBOUND_TCP: usize = 1024;
/// Most ports that one box may publish. Each is up to two descriptors, which
/// travel with the TUN's in one message.
pub const MAX_PUBLISHED: usize = 24;
/// Most TCP connections to the gate's DNS.
pub const MAX_DNS_TCP: usize = 64;
/// Most ports of the box with a UDP socket outside: less than a tenth of the
/// node's ephemeral ports.
pub const MAX_UDP_PORTS: usize = 1024;
/// Most UDP flows (a port of the box and one far end).
pub const MAX_UDP_FLOWS: usize = 4096;
/// Most UDP flows that wait for their entry.
pub const MAX_PENDING_UDP: usize = 512;
/// Most datagrams that wait with one UDP flow for its entry: a first frame of video.
pub const MAX_WAITING_DATAGRAMS: usize = 64;
/// Most bytes of datagrams that wait for entries, over all flows.
pub const MAX_WAITING_BYTES: usize = 4 << 20;
/// Most bytes of unfinished and remembered ClientHellos, over all UDP flows of one
/// box.
pub const MAX_PEEKED_BYTES: usize = 8 << 20;
/// Most kinds of refusals that are counted apart within 10 s.
pub const MAX_REFUSAL_KINDS: usize = 1024;
/// Most events that wait for the node; from there on new flows are refused.
pub const MAX_EVENTS: usize = 8192;
/// How long a flow's end may wait for others, to be entered with them in one go.
pub const END_WAITS: Duration = Duration::from_millis(10);
/// Ends that wait for no others.
pub const MANY_ENDS: usize = 64;
/// Refusals a second that get entries of their own, and how many may come at
/// once; the others are one entry with a count.
pub const REFUSALS_PER_SECOND: u32 = 200;
/// See [`REFUSALS_PER_SECOND`].
pub const REFUSALS_BURST: u32 = 1000;
/// Most closed flows whose last segments are still answered.
pub const MAX_TOMBSTONES: usize = 4096;
/// How long a closed flow's last segments are still answered.
pub const TOMBSTONE: Duration = Duration::from_secs(2);

/// How long a dial may take. The box's kernel sends its SYN again for a minute
/// or two; a far end that answers at all does so within the first repeats.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a dial is waited for when the box has more of them under way than it
/// may; the oldest then makes room.
pub const PATIENT_DIAL: Duration = Duration::from_secs(1);
/// How long the box may take to answer one who came in. Its kernel drops a SYN
/// while the program's queue is full, and the gate repeats it.
pub const KNOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the box's end of a handshake may stay half open.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A kernel repeats its first SYN after this (RFC 6298 §2.1).
pub const SYN_REPEAT: Duration = Duration::from_secs(1);
/// The box has given up if its SYN did not come again within twice the last
/// interval, or [`SYN_REPEAT`] after the first, and this. A kernel that is merely
/// late is dialled for anew.
pub const SYN_SILENCE: Duration = Duration::from_millis(900);
/// How long an entry may take before its flow is refused.
pub const ENTRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection to the gate's DNS may be silent.
pub const DNS_TCP_IDLE: Duration = Duration::from_secs(10);
/// How long a UDP flow of one datagram is kept.
pub const UDP_SINGLE: Duration = Duration::from_secs(30);
/// How long any other UDP flow may be silent (RFC 4787 §4.3: at least 120 s).
pub const UDP_IDLE: Duration = Duration::from_secs(180);

/// A port of the box that has a UDP socket outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpPort(pub u64);

/// Where the gate's packets and datagrams go. What it cannot take is lost, as
/// on any wire.
pub trait Outlet {
    /// A packet to the box.
    fn packet(&mut self, packet: &[u8]);

    /// Whether TCP packets may be left unfinished: the box's kernel neither looks
    /// at their checksums nor cuts them, unless it sends them further.
    fn finishes(&self) -> bool {
        false
    }

    /// A TCP packet to the box that is left unfinished. Never called where
    /// [`finishes`](Self::finishes) is false.
    fn unfinished(&mut self, packet: &[u8], _how: Unfinished) {
        self.packet(packet);
    }

    /// A datagram from the outer socket of a port, made at its first one.
    ///
    /// # Errors
    /// Why the socket cannot be made or cannot send there.
    fn datagram(&mut self, port: UdpPort, to: SocketAddr, data: &[u8]) -> Result<(), SendFault>;

    /// A datagram to a client of the published socket at this place.
    fn answer(&mut self, _place: u64, _client: SocketAddr, _data: &[u8]) {}

    /// Whether the host lets the gate make a ping socket of this family now; an
    /// outlet without them has none.
    fn can_echo(&mut self, _to: IpAddr) -> bool {
        false
    }

    /// An echo request from the ping socket of a flow, made at its first one;
    /// the socket's own end where it was made by this.
    ///
    /// # Errors
    /// Why the socket cannot be made or cannot send there.
    fn echo(
        &mut self,
        _flow: FlowId,
        _to: IpAddr,
        _echo: Echo<'_>,
    ) -> Result<Option<SocketAddr>, EchoFault> {
        Err(EchoFault::NotAllowed)
    }
}

/// What is left to do in a TCP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Where its segment begins. Its checksum has only the pseudo header in it.
    pub segment: usize,
    /// Octets of the TCP header.
    pub header: usize,
    /// It is to be cut into segments of at most so many octets of payload.
    pub cut: Option<u16>,
}

/// Why a datagram could not be sent. One that the kernel merely had no room
/// for is not a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFault {
    /// No socket: the gate is out of descriptors or ports.
    NoSocket,
    /// No route to the network.
    NetworkUnreachable,
    /// No way to the host, or the kernel refuses to send there.
    HostUnreachable,
    /// An earlier datagram met a closed port.
    PortUnreachable,
}

/// A connected socket outside, without waiting.
pub trait HostStream {
    /// Reads what is there.
    fn read(&mut self, into: &mut [u8]) -> StreamIo;
    /// Whether the last read took all there was: what comes then is told.
    fn is_drained(&self) -> bool {
        false
    }
    /// Writes what fits.
    fn write(&mut self, from: &[u8]) -> StreamIo;
    /// Sends FIN; reading goes on.
    fn finish(&mut self);
}

/// What came of reading or writing a [`HostStream`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamIo {
    /// So many bytes moved; never 0 for a buffer that is not empty.
    Moved(usize),
    /// Nothing until the socket says that it is ready again.
    Blocked,
    /// The far end closed its direction.
    Ended,
    /// The connection is broken: reset, or given up by the kernel.
    Broken,
}

/// A dial's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialled {
    /// The node's own end.
    pub local: SocketAddr,
    /// The far end as the socket has it.
    pub peer: SocketAddr,
}

/// How a dial failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialFault {
    /// The far end answered with a reset.
    Refused,
    /// No route to the network.
    NetworkUnreachable,
    /// No way to the host, or the kernel refuses to dial it.
    HostUnreachable,
    /// No answer.
    TimedOut,
    /// The gate is out of descriptors or ports.
    NoSocket,
}

/// What the shell has to do for the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Dial, and tell by `handle_dialled`.
    Dial {
        /// The flow.
        flow: FlowId,
        /// The judged address, dialled by number.
        dst: SocketAddr,
    },
    /// Close a flow's socket, dialled or being dialled, or its ping socket.
    Close {
        /// The flow.
        flow: FlowId,
        /// With a reset (`SO_LINGER` of 0), not with FIN.
        reset: bool,
    },
    /// Close a port's UDP socket, if it was made.
    CloseUdp(UdpPort),
    /// Put a message to a resolver from a socket of its own, then tell by
    /// `handle_upstream` or `handle_upstream_failed`.
    Upstream {
        /// The exchange.
        id: ExchangeId,
        /// The resolver.
        server: SocketAddr,
        /// Over what; TCP takes two length octets before it.
        over: Transport,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Close an exchange's socket.
    CancelUpstream(ExchangeId),
}
