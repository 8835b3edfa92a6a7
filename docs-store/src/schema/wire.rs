//! The structs of version 1. They mirror the shared words but belong to the
//! stored format: a change of a shared word cannot change what is on disk.

use std::net::SocketAddr;

use bailey_model::{
    AddrClass, BoxEnd, BoxEnded, BoxId, BoxStarted, ChildExit, DeviceId, DeviceNamed, Direction,
    EndReason, Event, FiveTuple, FlowEnded, FlowId, FlowOpened, FlowProgressed, FlowRefused, Gap,
    Granted, Host, HostFrom, Incarnation, NameAsked, Proto, Refusal, RequestId, Rule, StoppedBy,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A closed enum as one number, both ways, and the list of them for the
/// specification's test.
macro_rules! codes {
    ($to:ident, $from:ident, $name:ident { $($variant:ident = $code:literal),+ $(,)? }) => {
        #[cfg(test)]
        impl crate::schema::Codes for $name {
            const NAME: &'static str = stringify!($name);
            const CODES: &'static [(u8, &'static str)] = &[$(($code, stringify!($variant))),+];
        }

        fn $to(value: $name) -> u8 {
            match value { $($name::$variant => $code),+ }
        }

        fn $from(code: u8) -> Option<$name> {
            match code { $($code => Some($name::$variant),)+ _ => None }
        }
    };
}

mod by;
mod given;
mod kept;
mod name;
mod named;
mod notice;
mod reach;
mod report;
mod request;
mod seen;
mod thinned;

use given::WireGranted;
use kept::{WireAuditHere, WireCapture};
use name::WireAnswered;
use named::WireNamed;
use notice::WireNotice;
use reach::WireReachChanged;
use report::WireReport;
use request::{WirePaused, WireReceipt, WireResumed};
use seen::WireSeen;

/// Numbers of the kinds. A number is never used again for something else.
mod kind {
    pub(super) const BOX_STARTED: u16 = 1;
    pub(super) const FLOW_OPENED: u16 = 2;
    pub(super) const FLOW_REFUSED: u16 = 3;
    pub(super) const FLOW_ENDED: u16 = 4;
    pub(super) const NAME_ASKED: u16 = 5;
    pub(super) const BOX_ENDED: u16 = 6;
    pub(super) const GAP: u16 = 7;
    pub(super) const NOTICE: u16 = 8;
    pub(super) const REQUEST: u16 = 9;
    pub(super) const RECEIPT: u16 = 10;
    pub(super) const DEVICE_NAMED: u16 = 11;
    pub(super) const REPORT: u16 = 12;
    /// A flow that came in: as [`FLOW_OPENED`], then where from.
    pub(super) const INBOUND_OPENED: u16 = 13;
    /// As [`FLOW_REFUSED`], then where from.
    pub(super) const INBOUND_REFUSED: u16 = 14;
    pub(super) const FLOW_NAMED: u16 = 15;
    pub(super) const REACH_CHANGED: u16 = 16;
    pub(super) const THINNED: u16 = 17;
    pub(super) const CAPTURE_STARTED: u16 = 18;
    pub(super) const AUDIT_HERE: u16 = 19;
    pub(super) const FLOW_PROGRESSED: u16 = 20;
    pub(super) const NAME_ANSWERED: u16 = 21;
    pub(super) const GRANTED: u16 = 22;
    pub(super) const BOX_PAUSED: u16 = 23;
    pub(super) const BOX_RESUMED: u16 = 24;
    pub(super) const HEADS_SEEN: u16 = 25;
}

/// The kind and body of an event.
pub(super) fn encode(event: &Event) -> postcard::Result<(u16, Vec<u8>)> {
    let body = |kind: u16, bytes: postcard::Result<Vec<u8>>| Ok((kind, bytes?));
    match event {
        Event::BoxStarted(it) => body(kind::BOX_STARTED, bytes(&WireStarted::from(it))),
        Event::FlowOpened(it) => match it.direction {
            Direction::Out => body(kind::FLOW_OPENED, bytes(&WireOpened::from(it))),
            Direction::In { client } => {
                body(kind::INBOUND_OPENED, bytes(&(WireOpened::from(it), client)))
            }
        },
        Event::FlowRefused(it) => match it.direction {
            Direction::Out => body(kind::FLOW_REFUSED, bytes(&WireRefused::from(it))),
            Direction::In { client } => body(
                kind::INBOUND_REFUSED,
                bytes(&(WireRefused::from(it), client)),
            ),
        },
        Event::FlowNamed(it) => body(kind::FLOW_NAMED, bytes(&WireNamed::from(it))),
        Event::FlowEnded(it) => body(kind::FLOW_ENDED, bytes(&WireEnded::from(it))),
        Event::NameAsked(it) => body(
            kind::NAME_ASKED,
            bytes(&(it.host.as_str(), it.qtype, it.count)),
        ),
        Event::NameAnswered(it) => body(kind::NAME_ANSWERED, bytes(&WireAnswered::from(it))),
        Event::FlowProgressed(it) => body(
            kind::FLOW_PROGRESSED,
            bytes(&(it.flow.0, it.bytes_out, it.bytes_in, it.duration_us)),
        ),
        Event::Granted(it) => body(kind::GRANTED, bytes(&WireGranted::from(it))),
        Event::BoxEnded(it) => body(kind::BOX_ENDED, bytes(&WireBoxEnded::from(it))),
        Event::ReachChanged(it) => body(kind::REACH_CHANGED, bytes(&WireReachChanged::from(it))),
        Event::CaptureStarted(it) => body(kind::CAPTURE_STARTED, bytes(&WireCapture::from(it))),
        Event::AuditHere(it) => body(kind::AUDIT_HERE, bytes(&WireAuditHere::from(it))),
        Event::Gap(it) => body(kind::GAP, bytes(&it.reason)),
        Event::Notice(it) => body(kind::NOTICE, bytes(&WireNotice::from(it))),
        Event::Request(it) => body(kind::REQUEST, request::encode(it)),
        Event::Receipt(it) => body(kind::RECEIPT, bytes(&WireReceipt::from(it))),
        Event::BoxPaused(it) => body(kind::BOX_PAUSED, bytes(&WirePaused::from(it))),
        Event::BoxResumed(it) => body(kind::BOX_RESUMED, bytes(&WireResumed::from(it))),
        Event::HeadsSeen(it) => body(kind::HEADS_SEEN, bytes(&WireSeen::from(it))),
        Event::DeviceNamed(it) => body(kind::DEVICE_NAMED, bytes(&it.name)),
        Event::Report(it) => body(kind::REPORT, bytes(&WireReport::from(it))),
        Event::Thinned(it) => body(kind::THINNED, thinned::encode(it)),
        Event::Newer(it) => Ok((it.kind, it.body.clone())),
    }
}

/// The event of a kind and body; `None` if this build cannot read it.
pub(super) fn decode(kind: u16, body: &[u8]) -> Option<Event> {
    Some(match kind {
        kind::BOX_STARTED => Event::BoxStarted(whole::<WireStarted>(body)?.into()),
        kind::FLOW_OPENED => Event::FlowOpened(whole::<WireOpened>(body)?.event(Direction::Out)?),
        kind::FLOW_REFUSED => {
            Event::FlowRefused(whole::<WireRefused>(body)?.event(Direction::Out)?)
        }
        kind::INBOUND_OPENED => {
            let (opened, client) = whole::<(WireOpened, SocketAddr)>(body)?;
            Event::FlowOpened(opened.event(Direction::In { client })?)
        }
        kind::INBOUND_REFUSED => {
            let (refused, client) = whole::<(WireRefused, SocketAddr)>(body)?;
            Event::FlowRefused(refused.event(Direction::In { client })?)
        }
        kind::FLOW_NAMED => Event::FlowNamed(whole::<WireNamed>(body)?.event()?),
        kind::FLOW_ENDED => Event::FlowEnded(whole::<WireEnded>(body)?.event()?),
        kind::NAME_ASKED => {
            let (host, qtype, count) = whole::<(String, u16, u32)>(body)?;
            Event::NameAsked(NameAsked {
                host: Host::new(&host)?,
                qtype,
                count,
            })
        }
        kind::NAME_ANSWERED => Event::NameAnswered(whole::<WireAnswered>(body)?.event()?),
        kind::FLOW_PROGRESSED => {
            let (flow, bytes_out, bytes_in, duration_us) = whole(body)?;
            Event::FlowProgressed(FlowProgressed {
                flow: FlowId(flow),
                bytes_out,
                bytes_in,
                duration_us,
            })
        }
        kind::GRANTED => Event::Granted(whole::<WireGranted>(body)?.event()?),
        kind::BOX_ENDED => Event::BoxEnded(whole::<WireBoxEnded>(body)?.event()?),
        kind::REACH_CHANGED => Event::ReachChanged(whole::<WireReachChanged>(body)?.into()),
        kind::CAPTURE_STARTED => Event::CaptureStarted(whole::<WireCapture>(body)?.into()),
        kind::AUDIT_HERE => Event::AuditHere(whole::<WireAuditHere>(body)?.into()),
        kind::GAP => Event::Gap(Gap {
            reason: whole(body)?,
        }),
        kind::NOTICE => Event::Notice(whole::<WireNotice>(body)?.event()?),
        kind::REQUEST => Event::Request(request::decode(body)?),
        kind::RECEIPT => Event::Receipt(whole::<WireReceipt>(body)?.event()?),
        kind::BOX_PAUSED => Event::BoxPaused(whole::<WirePaused>(body)?.event()?),
        kind::BOX_RESUMED => Event::BoxResumed(whole::<WireResumed>(body)?.into()),
        kind::HEADS_SEEN => Event::HeadsSeen(whole::<WireSeen>(body)?.event()?),
        kind::DEVICE_NAMED => Event::DeviceNamed(DeviceNamed { name: whole(body)? }),
        kind::THINNED => Event::Thinned(thinned::decode(body)?),
        kind::REPORT => Event::Report(whole::<WireReport>(body)?.report()?),
        _ => return None,
    })
}

fn bytes(value: &impl Serialize) -> postcard::Result<Vec<u8>> {
    postcard::to_stdvec(value)
}

/// A value that uses up its bytes: what a newer version added is not dropped.
fn whole<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

codes!(class_code, class_of, AddrClass {
    Internet = 1, Local = 2, Loopback = 3, Node = 4, Metadata = 5, Multicast = 6, Reserved = 7,
    Gate = 8, Private = 9,
});
codes!(from_code, from_of, HostFrom { Dns = 1, None = 2, Sni = 3 });
codes!(refusal_code, refusal_of, Refusal {
    OutsideReach = 1, NameOutsideReach = 2, AnswerWithheld = 3, Multicast = 4, SelfConnect = 5,
    Protocol = 6, Limit = 7, StoreUnavailable = 8, BoxStopping = 9,
    OtherHost = 15, UnreadableHello = 16, NoPing = 20, BoxPaused = 21,
});
codes!(end_code, end_of, EndReason {
    Closed = 1, ResetByBox = 2, ResetByPeer = 3, DialRefused = 4, DialUnreachable = 5,
    DialTimeout = 6, Idle = 7, Evicted = 8, BoxStopped = 9, GateLost = 10, Refused = 11,
    ReachChanged = 12, NetworkChanged = 13,
});
codes!(rule_code, rule_of, Rule {
    LocalFromInternetOnly = 1, StoreWentBack = 2, ThinnedEarly = 3, CaptureStarted = 4,
    TwoOfOneNumber = 5, HeadWithheld = 6, KeyMisused = 7,
});

/// IANA protocol numbers, except a DNS question, which is 256.
fn proto_code(proto: Proto) -> u16 {
    match proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
        Proto::Dns => 256,
        Proto::Other(number) => 512 + u16::from(number),
    }
}

fn proto_of(code: u16) -> Option<Proto> {
    match code {
        6 => Some(Proto::Tcp),
        17 => Some(Proto::Udp),
        256 => Some(Proto::Dns),
        512..=767 => u8::try_from(code - 512).ok().map(Proto::Other),
        _ => None,
    }
}

/// A name that may be absent: outer `None` if it is there and not a name.
fn host_of(name: Option<String>) -> Option<Option<Host>> {
    match name {
        None => Some(None),
        Some(name) => Host::new(&name).map(Some),
    }
}

#[derive(Serialize, Deserialize)]
struct WireStarted {
    box_id: [u8; 16],
    name: String,
    incarnation: [u8; 16],
    command: Vec<String>,
    reach: String,
    image: String,
}

impl From<&BoxStarted> for WireStarted {
    fn from(it: &BoxStarted) -> Self {
        Self {
            box_id: it.box_id.0,
            name: it.name.clone(),
            incarnation: it.incarnation.0,
            command: it.command.clone(),
            reach: it.reach.clone(),
            image: it.image.clone(),
        }
    }
}

impl From<WireStarted> for BoxStarted {
    fn from(it: WireStarted) -> Self {
        Self {
            box_id: BoxId(it.box_id),
            name: it.name,
            incarnation: Incarnation(it.incarnation),
            command: it.command,
            reach: it.reach,
            image: it.image,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireOpened {
    flow: u64,
    proto: u16,
    src: SocketAddr,
    dst: SocketAddr,
    host: Option<String>,
    host_from: u8,
    class: u8,
    granted: String,
}

impl From<&FlowOpened> for WireOpened {
    fn from(it: &FlowOpened) -> Self {
        Self {
            flow: it.flow.0,
            proto: proto_code(it.tuple.proto),
            src: it.tuple.src,
            dst: it.tuple.dst,
            host: it.host.as_ref().map(|host| host.as_str().to_owned()),
            host_from: from_code(it.host_from),
            class: class_code(it.class),
            granted: it.granted.0.clone(),
        }
    }
}

impl WireOpened {
    fn event(self, direction: Direction) -> Option<FlowOpened> {
        Some(FlowOpened {
            flow: FlowId(self.flow),
            direction,
            tuple: FiveTuple {
                proto: proto_of(self.proto)?,
                src: self.src,
                dst: self.dst,
            },
            host: host_of(self.host)?,
            host_from: from_of(self.host_from)?,
            class: class_of(self.class)?,
            granted: Granted(self.granted),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireRefused {
    proto: u16,
    src: Option<SocketAddr>,
    dst: Option<SocketAddr>,
    host: Option<String>,
    host_from: u8,
    class: Option<u8>,
    refusal: u8,
    count: u32,
}

impl From<&FlowRefused> for WireRefused {
    fn from(it: &FlowRefused) -> Self {
        Self {
            proto: proto_code(it.proto),
            src: it.src,
            dst: it.dst,
            host: it.host.as_ref().map(|host| host.as_str().to_owned()),
            host_from: from_code(it.host_from),
            class: it.class.map(class_code),
            refusal: refusal_code(it.refusal),
            count: it.count,
        }
    }
}

impl WireRefused {
    fn event(self, direction: Direction) -> Option<FlowRefused> {
        let class = match self.class {
            None => None,
            Some(code) => Some(class_of(code)?),
        };
        Some(FlowRefused {
            direction,
            proto: proto_of(self.proto)?,
            src: self.src,
            dst: self.dst,
            host: host_of(self.host)?,
            host_from: from_of(self.host_from)?,
            class,
            refusal: refusal_of(self.refusal)?,
            count: self.count,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireEnded {
    flow: u64,
    bytes_out: u64,
    bytes_in: u64,
    duration_us: u64,
    end: u8,
    outer_src: Option<SocketAddr>,
}

impl From<&FlowEnded> for WireEnded {
    fn from(it: &FlowEnded) -> Self {
        Self {
            flow: it.flow.0,
            bytes_out: it.bytes_out,
            bytes_in: it.bytes_in,
            duration_us: it.duration_us,
            end: end_code(it.end),
            outer_src: it.outer_src,
        }
    }
}

impl WireEnded {
    fn event(self) -> Option<FlowEnded> {
        Some(FlowEnded {
            flow: FlowId(self.flow),
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            duration_us: self.duration_us,
            end: end_of(self.end)?,
            outer_src: self.outer_src,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct WireBoxEnded {
    box_id: [u8; 16],
    incarnation: [u8; 16],
    end: WireEnd,
    processes_ended: Option<u32>,
    processes_left: Option<u32>,
    flows_reset: Option<u32>,
}

/// Order is part of the format: new variants go last.
#[derive(Serialize, Deserialize)]
enum WireEnd {
    Code(u8),
    Signal(u8),
    StoppedHere,
    StoppedBy([u8; 32], [u8; 16]),
    ClientGone,
    FenceLost,
    NotStarted(String),
    NodeLost,
    Weaker(String),
    TimeOut,
    CoverLost(String),
}

impl From<&BoxEnded> for WireBoxEnded {
    fn from(it: &BoxEnded) -> Self {
        let end = match &it.end {
            BoxEnd::Exited(ChildExit::Code(code)) => WireEnd::Code(*code),
            BoxEnd::Exited(ChildExit::Signal(signal)) => WireEnd::Signal(*signal),
            BoxEnd::Stopped(StoppedBy::Here) => WireEnd::StoppedHere,
            BoxEnd::Stopped(StoppedBy::Device(device, request)) => {
                WireEnd::StoppedBy(device.0, request.0)
            }
            BoxEnd::ClientGone => WireEnd::ClientGone,
            BoxEnd::FenceLost => WireEnd::FenceLost,
            BoxEnd::NotStarted(why) => WireEnd::NotStarted(why.clone()),
            BoxEnd::NodeLost => WireEnd::NodeLost,
            BoxEnd::Weaker(which) => WireEnd::Weaker(which.clone()),
            BoxEnd::TimeOut => WireEnd::TimeOut,
            BoxEnd::CoverLost(which) => WireEnd::CoverLost(which.clone()),
        };
        Self {
            box_id: it.box_id.0,
            incarnation: it.incarnation.0,
            end,
            processes_ended: it.processes_ended,
            processes_left: it.processes_left,
            flows_reset: it.flows_reset,
        }
    }
}

impl WireBoxEnded {
    fn event(self) -> Option<BoxEnded> {
        let end = match self.end {
            WireEnd::Code(code) => BoxEnd::Exited(ChildExit::Code(code)),
            WireEnd::Signal(signal) => BoxEnd::Exited(ChildExit::Signal(signal)),
            WireEnd::StoppedHere => BoxEnd::Stopped(StoppedBy::Here),
            WireEnd::StoppedBy(device, request) => {
                BoxEnd::Stopped(StoppedBy::Device(DeviceId(device), RequestId(request)))
            }
            WireEnd::ClientGone => BoxEnd::ClientGone,
            WireEnd::FenceLost => BoxEnd::FenceLost,
            WireEnd::NotStarted(why) => BoxEnd::NotStarted(why),
            WireEnd::NodeLost => BoxEnd::NodeLost,
            WireEnd::Weaker(which) => BoxEnd::Weaker(which),
            WireEnd::TimeOut => BoxEnd::TimeOut,
            WireEnd::CoverLost(which) => BoxEnd::CoverLost(which),
        };
        Some(BoxEnded {
            box_id: BoxId(self.box_id),
            incarnation: Incarnation(self.incarnation),
            end,
            processes_ended: self.processes_ended,
            processes_left: self.processes_left,
            flows_reset: self.flows_reset,
        })
    }
}
