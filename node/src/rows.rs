//! Rows: what the reading verbs print, one JSON object a line with `--json`.
//!
//! The field names are the product's own stable schema, version 1.

mod device;
mod end;
mod others;
mod qtype;
mod report;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bailey_model::{
    AddrClass, DeviceId, Direction, EndReason, Entry, Event, FlowEnded, FlowNamed, FlowOpened,
    FlowProgressed, FlowRefused, Host, HostFrom, Proto, Refusal, Sni, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::community::community_id;
pub use device::{AccountRow, DeviceRow, GapRow, MailboxRow, RemovedRow};
pub use end::end_text;

/// Version of every row.
pub const V: u32 = 1;

/// A box, of this or another device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoxRow {
    /// Schema version.
    pub v: u32,
    /// Name.
    pub name: String,
    /// Id, hex.
    pub id: String,
    /// The device that runs it.
    pub device: String,
    /// `running`, `paused`, `ended`.
    pub state: String,
    /// When this incarnation started, RFC 3339.
    pub started: String,
    /// When it ended, RFC 3339.
    pub ended: Option<String>,
    /// Why it ended.
    pub end: Option<String>,
    /// Its reach.
    pub reach: String,
    /// Its command's words.
    pub command: Vec<String>,
    /// `here` where its audit is kept on its device alone, else `synced`.
    pub audit: String,
    /// What this device asked of it and has no receipt for.
    #[serde(default)]
    pub asked: Vec<AskedRow>,
}

/// A request without a receipt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskedRow {
    /// `stop`, `pause`, `resume`, `allow`, `deny`.
    pub what: String,
    /// `not delivered yet`; `expired` where it would do nothing any more.
    pub state: String,
}

/// A flow, a refusal or a name, flat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Schema version.
    pub v: u32,
    /// `flow`, `refused`, `name`, `answer`, `sni`, `progress`, `started`, `granted`,
    /// `reach`, `paused`, `resumed`, `end`, `ended`, `gap`, `capture`, `newer`, and
    /// `note` for what is no entry.
    pub kind: String,
    /// When, RFC 3339 UTC.
    pub ts: String,
    /// The box's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// Number of the entry.
    pub no: u64,
    /// Number of the flow in its incarnation.
    pub flow: Option<u64>,
    /// `allow` or `refuse`.
    pub verdict: Option<String>,
    /// Why it was refused; of a `reach`, the one before and the one from here on.
    pub reason: Option<String>,
    /// `out`, or `in` for one that came by a published port.
    pub direction: Option<String>,
    /// `tcp`, `udp`, `dns`.
    pub proto: Option<String>,
    /// The box's own end; of one that came in, the gate's end on the link.
    pub src_ip: Option<IpAddr>,
    /// The box's own port.
    pub src_port: Option<u16>,
    /// The dialled address; of one that came in, the box's own.
    pub dst_ip: Option<IpAddr>,
    /// The dialled port.
    pub dst_port: Option<u16>,
    /// The name that led to it, else the one that the flow itself said.
    pub dst_host: Option<String>,
    /// `dns`, `sni` or `none`.
    pub host_from: Option<String>,
    /// Class of the dialled address; of one that came in, of where from.
    pub dst_class: Option<String>,
    /// The kind of record that was asked for, as DNS names it.
    #[serde(default)]
    pub qtype: Option<String>,
    /// The response code that the box saw, as DNS names it.
    #[serde(default)]
    pub rcode: Option<String>,
    /// The addresses that a name was answered with.
    #[serde(default)]
    pub answers: Option<Vec<IpAddr>>,
    /// For how many seconds they may be kept.
    #[serde(default)]
    pub ttl: Option<u32>,
    /// Payload bytes from the box: so far, while it is open, as its last progress says
    /// (each five minutes); at least, where its end is `gate lost`.
    pub bytes_out: Option<u64>,
    /// Payload bytes to the box, in the same way.
    pub bytes_in: Option<u64>,
    /// From verdict to end, in seconds; while it is open, or where its end is `gate
    /// lost`, to its last progress.
    pub duration_s: Option<f64>,
    /// Community ID of the flow between the box's own end and the dialled one.
    pub community_id: Option<String>,
    /// The node's own end of the dialled socket; of one that came in, the end of
    /// whoever did.
    pub outer_src_ip: Option<IpAddr>,
    /// Its port.
    pub outer_src_port: Option<u16>,
    /// Community ID of the flow as the world outside the gate sees it, once that end is
    /// known.
    #[serde(default)]
    pub outer_community_id: Option<String>,
    /// The term of the reach, or the published port, that granted it.
    pub rule: Option<String>,
    /// The host in the clear of the flow's ClientHello, where `dst_host` is not
    /// it by the name server's answer.
    pub tls_sni: Option<String>,
    /// `named`; `encrypted` where the host may be another than the one in the
    /// clear; `unproven` where only a name opened the flow and nothing in it said
    /// that name; null where there is nothing to say.
    #[serde(default)]
    pub sni: Option<String>,
    /// How it ended, or what a name was answered; null while it is open.
    pub end: Option<String>,
    /// How many equal ones within 10 s.
    pub count: u64,
    /// Bytes of the texts above that are shown in another form, `FIELD:BASE64` each.
    #[serde(default)]
    pub raw: Option<String>,
}

/// A notice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NoticeRow {
    /// Schema version.
    pub v: u32,
    /// When, RFC 3339 UTC.
    pub ts: String,
    /// Id, hex.
    pub id: String,
    /// The rule.
    pub rule: String,
    /// The box's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// The box's id, hex.
    pub box_id: String,
    /// The device that raised it.
    pub device: String,
    /// One sentence.
    pub text: String,
    /// Numbers of the entries that raised it, in the box's audit.
    pub evidence: Vec<u64>,
    /// Those of them that this device holds, as rows.
    pub entries: Vec<FlowRow>,
}

/// What was found in one chain of envelopes, or (without a writer) beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckRow {
    /// Schema version.
    pub v: u32,
    /// The document; `store` for the database and the journal.
    pub doc: String,
    /// The device that wrote it, hex.
    pub writer: Option<String>,
    /// The start of it, hex.
    pub incarnation: Option<String>,
    /// Envelopes whose signature and place hold.
    pub envelopes: u64,
    /// Entries that could be read; rows of the journal.
    pub entries: u64,
    /// Envelopes that wait for a key, or were set aside when they came.
    pub waiting: u64,
    /// Entries that were thinned, by tombstones that hold.
    #[serde(default)]
    pub thinned: u64,
    /// How many things do not hold.
    pub faulty: u64,
    /// The first of them.
    pub faults: Vec<String>,
    /// Two envelopes of one number, each signed by the same device: kept as proof
    /// against it.
    #[serde(default)]
    pub two_of_one: Vec<String>,
}

/// What was measured inside a box before its command ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// Schema version.
    pub v: u32,
    /// When, RFC 3339 UTC.
    pub ts: String,
    /// The box's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// The box's id, hex.
    pub box_id: String,
    /// The run of it, hex.
    pub incarnation: String,
    /// The device that ran it.
    pub device: String,
    /// The tier that was asked.
    pub asked: String,
    /// The tier that was earned, `not-earned`, or `unmeasured`.
    pub level: String,
    /// `plain` or `browser`.
    pub class: String,
    /// `namespaces`, `bubblewrap`, `landlock`.
    pub method: String,
    /// Image name.
    pub image: String,
    /// Its reach now, or at its end.
    pub reach: String,
    /// One a side.
    pub axes: Vec<AxisRow>,
}

/// Why a dial of a box is granted or refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyRow {
    /// Schema version.
    pub v: u32,
    /// The box's name.
    #[serde(rename = "box")]
    pub box_name: String,
    /// The box's id, hex.
    pub box_id: String,
    /// The device that runs it.
    pub device: String,
    /// Whether it runs; else its last reach is judged by.
    pub running: bool,
    /// What was asked about.
    pub what: String,
    /// `tcp` or `udp`.
    pub proto: String,
    /// Its reach.
    pub reach: String,
    /// `allow` or `refuse`.
    pub verdict: String,
    /// Why it is refused.
    pub reason: Option<String>,
    /// The term of the reach that grants it.
    pub rule: Option<String>,
    /// Where a name stands: `in reach`, `in reach, not that port`, `above a name
    /// in reach`, `outside reach`, `set aside for nobody`.
    pub name: Option<String>,
    /// The address, or those that the box was given for the name.
    pub addrs: Vec<WhyAddr>,
    /// `gate`, or `registries` where no gate of it runs here.
    pub judged_by: String,
    /// Flows to it in its newest run.
    pub opened: u64,
    /// Refusals of it in its newest run.
    pub refused: u64,
    /// Questions for the name in its newest run.
    pub named: u64,
    /// The newest entries about it.
    pub last: Vec<FlowRow>,
    /// The command that would grant it.
    pub grant: Option<String>,
    /// Why no word would.
    pub cannot: Option<String>,
}

/// An address, and what the policy says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyAddr {
    /// The address.
    pub ip: IpAddr,
    /// Its class.
    pub class: String,
    /// `allow` or `refuse`.
    pub verdict: String,
    /// Why it is refused.
    pub reason: Option<String>,
    /// The term of the reach that grants it.
    pub rule: Option<String>,
}

/// One side of a box's boundary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AxisRow {
    /// `files`, `processes`, `syscalls`, `capabilities`, `network`, `limits`.
    pub axis: String,
    /// `fenced`, `not-fenced`, `passes`, `decided`, `not-measured`.
    pub verdict: String,
    /// How that was got.
    pub facts: Vec<FactRow>,
}

/// One thing that was tried, or is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactRow {
    /// What was tried.
    pub what: String,
    /// What came of it.
    pub got: String,
    /// Whether the boundary held; null where it only informs.
    pub held: Option<bool>,
}

impl FlowRow {
    fn new(kind: &str, box_name: &str, entry: &Entry) -> Self {
        Self {
            v: V,
            kind: kind.to_owned(),
            ts: entry.ts.to_string(),
            box_name: box_name.to_owned(),
            no: entry.no,
            flow: None,
            verdict: None,
            reason: None,
            direction: None,
            proto: None,
            src_ip: None,
            src_port: None,
            dst_ip: None,
            dst_port: None,
            dst_host: None,
            host_from: None,
            dst_class: None,
            qtype: None,
            rcode: None,
            answers: None,
            ttl: None,
            bytes_out: None,
            bytes_in: None,
            duration_s: None,
            community_id: None,
            outer_src_ip: None,
            outer_src_port: None,
            outer_community_id: None,
            rule: None,
            tls_sni: None,
            sni: None,
            end: None,
            count: 1,
            raw: None,
        }
    }

    /// What is to be known before the rows; no entry of its own.
    #[must_use]
    pub fn note(box_name: &str, ts: Timestamp, reason: &str) -> Self {
        let event = Event::Gap(bailey_model::Gap {
            reason: reason.to_owned(),
        });
        let entry = Entry { no: 0, ts, event };
        let mut row = Self::new("note", box_name, &entry);
        row.reason = Some(reason.to_owned());
        row
    }

    fn named(mut self, proto: Proto, host: Option<&Host>, from: HostFrom) -> Self {
        self.proto = Some(proto.to_string());
        self.dst_host = host.map(ToString::to_string);
        self.host_from = host.map(|_| {
            match from {
                HostFrom::Dns => "dns",
                HostFrom::Sni => "sni",
                HostFrom::None => "none",
            }
            .to_owned()
        });
        self
    }

    fn directed(mut self, direction: Direction) -> Self {
        self.direction = Some(direction.as_str().to_owned());
        let client = direction.client();
        self.outer_src_ip = client.map(|client| client.ip());
        self.outer_src_port = client.map(|client| client.port());
        self
    }

    fn opened(mut self, opened: &FlowOpened) -> Self {
        self = self.named(opened.tuple.proto, opened.host.as_ref(), opened.host_from);
        self = self.directed(opened.direction);
        self.flow = Some(opened.flow.0);
        self.verdict = Some("allow".to_owned());
        self.src_ip = Some(opened.tuple.src.ip());
        self.src_port = Some(opened.tuple.src.port());
        self.dst_ip = Some(opened.tuple.dst.ip());
        self.dst_port = Some(opened.tuple.dst.port());
        self.dst_class = Some(opened.class.as_str().to_owned());
        self.rule = Some(opened.granted.0.clone());
        let tuple = &opened.tuple;
        self.community_id = community_id(tuple.proto, tuple.src, tuple.dst);
        // Of one that goes out, the outer end is known at its end.
        self.outer_community_id = self.outer_id();
        self
    }

    fn refused(mut self, refused: &FlowRefused) -> Self {
        self = self.named(refused.proto, refused.host.as_ref(), refused.host_from);
        self = self.directed(refused.direction);
        self.verdict = Some("refuse".to_owned());
        self.reason = Some(refused.refusal.as_str().to_owned());
        self.src_ip = refused.src.map(|addr| addr.ip());
        self.src_port = refused.src.map(|addr| addr.port());
        self.dst_ip = refused.dst.map(|addr| addr.ip());
        self.dst_port = refused.dst.map(|addr| addr.port());
        self.dst_class = refused.class.map(AddrClass::as_str).map(str::to_owned);
        self.count = u64::from(refused.count);
        if refused.proto == Proto::Dns {
            let rcode = match refused.refusal {
                Refusal::NameOutsideReach => "NXDOMAIN",
                Refusal::AnswerWithheld => "NOERROR",
                _ => "SERVFAIL",
            };
            self.rcode = Some(rcode.to_owned());
        }
        // What is refused of ICMP for its kind is no echo.
        let told = refused.refusal != Refusal::Protocol;
        let ends = refused.src.zip(refused.dst).filter(|_| told);
        self.community_id = ends.and_then(|(src, dst)| community_id(refused.proto, src, dst));
        self
    }

    /// Writes into a flow's row what it said of its own name.
    pub(crate) fn said(&mut self, named: &FlowNamed) {
        self.flow = Some(named.flow.0);
        let (word, host) = match &named.sni {
            Sni::Host(host) => ("named", Some(host.to_string())),
            Sni::Encrypted(outer) => ("encrypted", outer.as_ref().map(Host::to_string)),
            Sni::Unproven => ("unproven", None),
        };
        self.sni = Some(word.to_owned());
        if self.dst_host.is_none() && word == "named" {
            self.dst_host.clone_from(&host);
            self.host_from = Some("sni".to_owned());
        }
        self.tls_sni = host;
    }

    /// Writes a flow's end into its row.
    pub fn ended(&mut self, ended: &FlowEnded) {
        self.flow = Some(ended.flow.0);
        self.end = Some(ended.end.as_str().to_owned());
        if ended.outer_src.is_some() {
            self.outer_src_ip = ended.outer_src.map(|addr| addr.ip());
            self.outer_src_port = ended.outer_src.map(|addr| addr.port());
        }
        self.outer_community_id = self.outer_id();
        // Whoever counted is gone: its zeros are no figures, but its last progress is.
        if ended.end != EndReason::GateLost {
            self.moved((ended.bytes_out, ended.bytes_in), ended.duration_us);
        }
    }

    /// Writes into a flow's row how far it has come.
    pub fn progressed(&mut self, it: &FlowProgressed) {
        self.flow = Some(it.flow.0);
        self.moved((it.bytes_out, it.bytes_in), it.duration_us);
    }

    fn moved(&mut self, (bytes_out, bytes_in): (u64, u64), duration_us: u64) {
        self.bytes_out = Some(bytes_out);
        self.bytes_in = Some(bytes_in);
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds for a reader; 2^53 us are 285 years"
        )]
        let seconds = duration_us as f64 / 1e6;
        self.duration_s = Some(seconds);
    }

    fn outer_id(&self) -> Option<String> {
        let proto = match self.proto.as_deref()? {
            "tcp" => Proto::Tcp,
            "udp" => Proto::Udp,
            _ => return None,
        };
        let src = SocketAddr::new(self.outer_src_ip?, self.outer_src_port?);
        let dst = match self.direction.as_deref()? {
            // It came to a port of the node's loopback, which its grant names.
            "in" => {
                let port = self.rule.as_deref()?.strip_prefix("publish ")?;
                let port = port.split(':').next()?.parse().ok()?;
                match src.is_ipv4() {
                    true => (Ipv4Addr::LOCALHOST, port).into(),
                    false => (Ipv6Addr::LOCALHOST, port).into(),
                }
            }
            _ => SocketAddr::new(self.dst_ip?, self.dst_port?),
        };
        community_id(proto, src, dst)
    }

    /// The row of one entry by itself; `None` for entries of other documents.
    #[must_use]
    pub fn of(box_name: &str, entry: &Entry) -> Option<Self> {
        let new = |kind| Self::new(kind, box_name, entry);
        match &entry.event {
            Event::FlowOpened(opened) => Some(new("flow").opened(opened)),
            Event::FlowRefused(refused) => Some(new("refused").refused(refused)),
            Event::FlowNamed(named) => {
                let mut row = new("sni");
                row.said(named);
                Some(row)
            }
            Event::FlowEnded(ended) => {
                let mut row = new("end");
                row.ended(ended);
                Some(row)
            }
            Event::FlowProgressed(it) => {
                let mut row = new("progress");
                row.progressed(it);
                Some(row)
            }
            Event::NameAsked(asked) => Some(new("name").asked(asked)),
            Event::NameAnswered(it) => Some(new("answer").answer(it)),
            Event::BoxStarted(_) => new("started").of_box(entry),
            Event::BoxEnded(_) => new("ended").of_box(entry),
            Event::ReachChanged(_) => new("reach").of_box(entry),
            Event::CaptureStarted(_) => new("capture").of_box(entry),
            Event::BoxPaused(_) => new("paused").of_box(entry),
            Event::BoxResumed(_) => new("resumed").of_box(entry),
            Event::Granted(_) => new("granted").of_box(entry),
            Event::Gap(_) => new("gap").of_box(entry),
            Event::Newer(_) => new("newer").of_box(entry),
            Event::DeviceNamed(_)
            | Event::AuditHere(_)
            | Event::Report(_)
            | Event::Thinned(_)
            | Event::HeadsSeen(_)
            | Event::Notice(_)
            | Event::Request(_)
            | Event::Receipt(_) => None,
        }
    }
}

/// The first digits of a device id, enough for a person.
#[must_use]
pub fn short(device: &DeviceId) -> String {
    device.to_string().chars().take(8).collect()
}
