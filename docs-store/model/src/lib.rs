//! The words that every room of bailey shares: ids, flows, verdicts, entries.
//!
//! Pure values without behaviour of the operating system. The `serde`
//! derivations serve channels between processes of one build only; what is
//! stored, or crosses to another device, is encoded by the room that owns that
//! format, which versions it.

#![forbid(unsafe_code)]

mod entry;
mod flow;
mod given;
mod id;
mod name;
mod reach;
mod report;
mod request;
mod seen;
mod thinned;

pub use entry::{
    AuditHere, BoxEnd, BoxEnded, BoxStarted, CaptureStarted, ChangedBy, ChildExit, DeviceNamed,
    Entry, Event, Gap, NameAsked, Newer, NoTimestamp, Notice, ReachChanged, Rule, StoppedBy,
    Timestamp,
};
pub use flow::{
    AddrClass, Direction, EndReason, FiveTuple, FlowEnded, FlowId, FlowNamed, FlowOpened,
    FlowProgressed, FlowRefused, Granted, Host, HostFrom, Proto, Refusal, Sni, Verdict,
};
pub use given::{BoxGranted, GrantKind};
pub use id::{
    AccountId, BoxId, DeviceId, EntryRef, Incarnation, NoticeId, ParseIdError, RequestId,
};
pub use name::{NameAnswer, NameAnswered};
pub use reach::{
    ChangeReachError, HostPattern, ParseReachError, PortSet, Reach, ReachTerm, Transport,
};
pub use report::{
    Axis, AxisReport, AxisVerdict, BoundaryReport, BoxClass, Fact, Level, Limits, Method,
    ParseLimitsError, ParsePublishError, ParseTierError, Publish, Tier,
};
pub use request::{
    Basis, BoxPaused, BoxResumed, Hold, Receipt, Request, RequestKind, RequestOutcome, StateHash,
};
pub use seen::{HeadsSeen, SeenDoc, SeenHead};
pub use thinned::{Thinned, ThinnedDay, ThinnedFlow, ThinnedHost};

/// Addresses of the link between a box and its gate. They exist only inside
/// the box: 192.0.0.0/29 is the IPv4 service continuity prefix (RFC 7335),
/// never routed, and never the address of a LAN.
pub mod link {
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The box's own IPv4 address on its TUN.
    pub const BOX_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);
    /// The gate's IPv4 address: the box's name server, and `host.bailey`.
    pub const GATE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
    /// Prefix length of the IPv4 link.
    pub const PREFIX_V4: u8 = 29;
    /// The box's own IPv6 address on its TUN (RFC 4193 local prefix).
    pub const BOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xba11, 0xe700, 0, 0, 0, 0, 2);
    /// The gate's IPv6 address.
    pub const GATE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xba11, 0xe700, 0, 0, 0, 0, 1);
    /// Prefix length of the IPv6 link.
    pub const PREFIX_V6: u8 = 64;
    /// A port of the gate on which nothing answers (discard, RFC 863). A box
    /// is made with one dial to it, so that the gate's refusal is seen.
    pub const PROBE_PORT: u16 = 9;
    /// MTU of the TUN in bytes.
    pub const MTU: u16 = 65520;
}
