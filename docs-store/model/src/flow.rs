//! Flows: what a box dialled, what was decided, how it ended.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Number of a flow within one incarnation of a box, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowId(pub u64);

/// What a flow speaks, as far as the gate judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Proto {
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// A question put to the gate's DNS; it is a name, not yet a flow.
    Dns,
    /// Any other protocol, by its IANA number.
    Other(u8),
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Dns => f.write_str("dns"),
            // The family of the addresses says which of the two.
            Self::Other(1 | 58) => f.write_str("icmp"),
            Self::Other(number) => write!(f, "ip{number}"),
        }
    }
}

/// The key of a flow as the box sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FiveTuple {
    /// Protocol.
    pub proto: Proto,
    /// The end that began it: the box's own, or the gate's of a flow that came in.
    pub src: SocketAddr,
    /// The end that was dialled: outside, or the box's own of a flow that came in.
    pub dst: SocketAddr,
}

/// Who began a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// The box.
    Out,
    /// Somebody who dialled a published port of the node's loopback.
    In {
        /// Their end, as the published port saw it.
        client: SocketAddr,
    },
}

impl Direction {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In { .. } => "in",
        }
    }

    /// The end of whoever came in.
    #[must_use]
    pub fn client(self) -> Option<SocketAddr> {
        match self {
            Self::Out => None,
            Self::In { client } => Some(client),
        }
    }
}

/// A host name in RFC 1035 presentation form: ASCII, lower case, no final dot,
/// odd bytes as `\DDD`. Printable by construction, and loses nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Host(String);

impl Host {
    /// Longest presentation form: 255 octets, each at most `\DDD`.
    pub const MAX_LEN: usize = 1024;

    /// Takes a presentation form. Upper case is folded and a final dot taken
    /// off; `None` if it is empty, too long, or not printable ASCII without spaces.
    #[must_use]
    pub fn new(presentation: &str) -> Option<Self> {
        let text = presentation.strip_suffix('.').unwrap_or(presentation);
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && !text.is_empty() && text.len() <= Self::MAX_LEN)
            .then(|| Self(text.to_ascii_lowercase()))
    }

    /// The presentation form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a flow got its host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostFrom {
    /// The gate's own DNS gave this box that address for the name.
    Dns,
    /// The box's own ClientHello named it (RFC 6066 §3).
    Sni,
    /// The box never looked the address up here.
    None,
}

/// What kind of address it is, as one function judges it for the DNS filter
/// and for the dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AddrClass {
    /// Globally reachable by the IANA special-purpose registries.
    Internet,
    /// The node's own addresses, its on-link networks, and networks through a
    /// tunnel that is not the default route.
    Local,
    /// The node's loopback and the unspecified addresses.
    Loopback,
    /// A listener of the node itself; granted by no word.
    Node,
    /// A cloud metadata service; granted by no word.
    Metadata,
    /// Multicast and broadcast.
    Multicast,
    /// Reserved, documentation, or unknown ranges; granted by no word.
    Reserved,
    /// The gate's own address on the link.
    Gate,
    /// Private and shared ranges that are none of the node's own networks: whoever
    /// is behind its gateway.
    Private,
}

impl AddrClass {
    /// The word in rows and notices.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Internet => "internet",
            Self::Local => "local",
            Self::Loopback => "loopback",
            Self::Node => "node",
            Self::Metadata => "metadata",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
            Self::Gate => "gate",
            Self::Private => "private",
        }
    }
}

/// What was decided for a flow or a name. A refusal is not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Granted, and by which term of the reach.
    Allow(Granted),
    /// Refused, and why.
    Refuse(Refusal),
}

/// The term of the reach that granted a flow, as the person wrote it; for one
/// that came in, the published port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted(pub String);

/// Why a flow or a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// The address or port is outside the box's reach.
    OutsideReach,
    /// The name is outside the box's reach; it was never asked upstream.
    NameOutsideReach,
    /// A name in reach was answered with an address that its grant does not cover.
    AnswerWithheld,
    /// Multicast or broadcast.
    Multicast,
    /// The dial would have met itself.
    SelfConnect,
    /// Not a protocol that the gate carries.
    Protocol,
    /// A bound of the gate: too many flows, dials or questions at once.
    Limit,
    /// The audit cannot take an entry, so nothing new goes out.
    StoreUnavailable,
    /// The box is being stopped.
    BoxStopping,
    /// A flow that only a name opened was for another host, by its own ClientHello.
    OtherHost,
    /// A flow that only a name opened began with a ClientHello that cannot be
    /// read to its end, or whose name is no host name.
    UnreadableHello,
    /// The host lets its user make no ping socket (icmp(7), `ping_group_range`).
    NoPing,
    /// The box is paused.
    BoxPaused,
}

impl Refusal {
    /// The word in rows and on the terminal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OutsideReach => "outside reach",
            Self::NameOutsideReach => "name outside reach",
            Self::AnswerWithheld => "answer withheld",
            Self::Multicast => "multicast",
            Self::SelfConnect => "dial met itself",
            Self::Protocol => "protocol not carried",
            Self::Limit => "limit",
            Self::StoreUnavailable => "audit cannot be written",
            Self::BoxStopping => "box stopping",
            Self::OtherHost => "hello for another host",
            Self::UnreadableHello => "unreadable hello",
            Self::NoPing => "the host allows no ping",
            Self::BoxPaused => "box paused",
        }
    }
}

/// An allowed flow, entered before it is dialled: before anything of it goes
/// out, or in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOpened {
    /// Number of the flow in this incarnation of the box.
    pub flow: FlowId,
    /// Who began it.
    pub direction: Direction,
    /// The ends as the box sees them.
    pub tuple: FiveTuple,
    /// Name that led to the address, if the gate knows one.
    pub host: Option<Host>,
    /// Where the name comes from.
    pub host_from: HostFrom,
    /// Class of the far end's address: the dialled one, or where it came in from.
    pub class: AddrClass,
    /// The term of the reach that granted it.
    pub granted: Granted,
}

/// What a ClientHello says of the host that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sni {
    /// It names this one (RFC 6066 §3).
    Host(Host),
    /// It has an `encrypted_client_hello` extension (RFC 9849), so the host that
    /// it is for may be another than the one in the clear. Browsers send the
    /// extension with nothing in it too, and the two look alike.
    Encrypted(Option<Host>),
    /// It names none, or there was no ClientHello to see.
    Unproven,
}

/// What the first bytes of an allowed flow said of its name, where its
/// [`FlowOpened`] does not say it already: a host that the gate's DNS did not
/// give, or another one; or nothing, though only a name opened the flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowNamed {
    /// Number of the flow.
    pub flow: FlowId,
    /// What was said.
    pub sni: Sni,
}

/// A refused flow or name. Equal refusals within 10 s are one entry, whose
/// count comes when the 10 s are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRefused {
    /// Who tried to begin it.
    pub direction: Direction,
    /// What it spoke; `Dns` for a name that was not answered.
    pub proto: Proto,
    /// The box's own end; `None` for a name, and for what came from outside.
    pub src: Option<SocketAddr>,
    /// The dialled end; `None` for a name.
    pub dst: Option<SocketAddr>,
    /// The name, if the gate knows one.
    pub host: Option<Host>,
    /// Where the name comes from.
    pub host_from: HostFrom,
    /// Class of the address; `None` for a name.
    pub class: Option<AddrClass>,
    /// Why.
    pub refusal: Refusal,
    /// How many times, this one included: 1 when it first happens, and the
    /// number of further equal ones in the entry that closes the 10 s.
    pub count: u32,
}

/// How far an allowed flow under way has come, entered every five minutes from its
/// verdict on in which something moved. Its figures are all from its beginning on; those
/// of its end take their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowProgressed {
    /// Number of the flow.
    pub flow: FlowId,
    /// Payload bytes from the box so far.
    pub bytes_out: u64,
    /// Payload bytes to the box so far.
    pub bytes_in: u64,
    /// From the verdict until now, in microseconds.
    pub duration_us: u64,
}

/// The end of an allowed flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnded {
    /// Number of the flow.
    pub flow: FlowId,
    /// Payload bytes from the box.
    pub bytes_out: u64,
    /// Payload bytes to the box.
    pub bytes_in: u64,
    /// From the verdict to the end, in microseconds.
    pub duration_us: u64,
    /// How it ended.
    pub end: EndReason,
    /// The node's own end of the dialled socket, where it was dialled; for a
    /// flow that came in, the end of whoever did.
    pub outer_src: Option<SocketAddr>,
}

/// How an allowed flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// Both sides closed.
    Closed,
    /// The box reset it or went away while it was being dialled.
    ResetByBox,
    /// The far end reset it.
    ResetByPeer,
    /// The far end refused the dial.
    DialRefused,
    /// The far end could not be reached.
    DialUnreachable,
    /// The dial took too long.
    DialTimeout,
    /// Nothing passed for as long as such a flow may be silent.
    Idle,
    /// Evicted to keep a bound.
    Evicted,
    /// The box was stopped.
    BoxStopped,
    /// The gate ended without saying how.
    GateLost,
    /// Refused after its entry: the dial met itself, or policy, addresses or
    /// routes had changed meanwhile.
    Refused,
    /// The box's reach was changed, and grants it no more.
    ReachChanged,
    /// The node's own addresses, networks or listeners changed, and by them the
    /// reach grants it no more.
    NetworkChanged,
}

impl EndReason {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::ResetByBox => "reset by box",
            Self::ResetByPeer => "reset by peer",
            Self::DialRefused => "dial refused",
            Self::DialUnreachable => "dial unreachable",
            Self::DialTimeout => "dial timeout",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::BoxStopped => "box stopped",
            Self::GateLost => "gate lost",
            Self::Refused => "refused",
            Self::ReachChanged => "reach changed",
            Self::NetworkChanged => "network changed",
        }
    }
}

impl FiveTuple {
    /// The dialled address.
    #[must_use]
    pub fn dst_ip(&self) -> IpAddr {
        self.dst.ip()
    }
}
