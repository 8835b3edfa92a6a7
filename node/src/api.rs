//! What the command line and the node say to one another.
//!
//! One connection to the control socket is one question; what belongs to it
//! (descriptors, signals, a person's answer) travels on the same connection,
//! and its end ends what it asked for. The node says [`Tell::Hello`] first; the
//! command line says [`API`] as a frame of its own, then the question.

mod account;

use bailey_channel::ChannelError;
use bailey_docs_store::Role;
use bailey_gate_proto::capture::Headers;
use bailey_model::{
    AccountId, BoxClass, BoxEnd, BoxId, ChildExit, DeviceId, FlowRefused, Limits, Notice, Publish,
    RequestOutcome, Tier,
};
use serde::{Deserialize, Serialize};

pub use self::account::{BesideAsk, Grants, RecoveryAsk};
use crate::days::DayRow;
use crate::rows::{
    AccountRow, BoxRow, CheckRow, DeviceRow, FlowRow, MailboxRow, NoticeRow, RemovedRow, ReportRow,
    WhyRow,
};

/// Raised whenever [`Ask`] or [`Tell`] changes, so that a command line never
/// talks past a node of another build.
pub const API: u32 = 12;

/// From the command line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Run a command in a box. Descriptors: the box's ends of stdin, stdout
    /// and stderr if `pty` is `None`, then one `O_PATH` descriptor a grant.
    Run(Box<RunAsk>),
    /// Run a further command in a running box of this node. Descriptors: its
    /// ends of stdin, stdout and stderr if `pty` is `None`.
    Exec(Box<ExecAsk>),
    /// The newest boundary report of a box.
    Report {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
    },
    /// What a detached box wrote.
    Logs {
        /// Name or id of a box of this node.
        target: String,
        /// Go on with what it writes.
        follow: bool,
    },
    /// A picture of a box's own display.
    Screenshot {
        /// Name or id of a box of this node.
        target: String,
    },
    /// A signal for the command (only after [`Ask::Run`] or [`Ask::Exec`]).
    Signal(i32),
    /// The boxes of every device.
    Ps,
    /// Figures of the node, in Prometheus' text format.
    Metrics,
    /// The headers of a box's packets.
    Pcap {
        /// Name or id of a box of this node.
        target: String,
        /// For how long at most.
        seconds: u32,
    },
    /// A box's flows.
    Flows {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
        /// Which of them.
        filter: FlowFilter,
        /// Go on with new entries as they are written.
        follow: bool,
    },
    /// Give terms to the reach of a running box, here or on another device, or take
    /// some away.
    Change {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
        /// Which of the two.
        way: Way,
        /// Terms of a reach, as written.
        terms: Vec<String>,
    },
    /// Why a dial of a box is granted or refused.
    Why {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
        /// `HOST[:PORT][/udp]` or an address in the same form, as written.
        what: String,
    },
    /// Stop a box, here or on another device.
    Stop {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
    },
    /// Let no process of a box run, here or on another device.
    Pause {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
    },
    /// Let them go on.
    Resume {
        /// Name or id of the box, perhaps `@DEVICE`.
        target: String,
    },
    /// The notices.
    Notices {
        /// Go on with new ones.
        follow: bool,
    },
    /// Let another device join this account.
    DeviceAdd(AddAsk),
    /// Join the account of the device that shows this code.
    DeviceJoin {
        /// Either code.
        code: String,
        /// Where that device is, if that was said.
        addrs: Vec<std::net::SocketAddr>,
    },
    /// The devices of the account.
    DeviceList,
    /// Forget a mailbox that came with a code.
    MailboxForget(String),
    /// Something of the recovery key, or of the account's copy.
    Recovery(RecoveryAsk),
    /// Remove devices from the account.
    DeviceRemove {
        /// Names, or first digits of ids.
        targets: Vec<String>,
        /// The words of the recovery key, whose act it is then.
        words: Option<String>,
    },
    /// Give a device another role.
    DeviceRole {
        /// Name, or first digits of its id.
        target: String,
        /// `full`, `stop`, `watch` or `runs`.
        role: String,
    },
    /// Take this device out of its account.
    DeviceLeave,
    /// Seal what this device enters from now on under new keys.
    DeviceRotate,
    /// Look at all that is kept: signatures, places, seals, numbers.
    StoreCheck,
    /// What is left of a box's thinned entries, from the day of a time on.
    Days {
        /// Name, id, or `NAME@DEVICE`.
        target: String,
        /// In milliseconds since 1970.
        since_ms: Option<u64>,
    },
    /// The person's answer to [`Tell::Words`].
    Answer(bool),
    /// What the account of this node is.
    Account,
    /// A box of another account of this user is begun.
    Beside(BesideAsk),
}

/// Which rows of a box are wanted; what is not said matches all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FlowFilter {
    /// From this time on, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// Before this time.
    pub until_ms: Option<u64>,
    /// A name, or `*.` and a name for every one below it.
    pub host: Option<String>,
    /// `allow` or `refuse`.
    pub verdict: Option<String>,
    /// A class of addresses, as rows have it.
    pub class: Option<String>,
    /// The dialled port.
    pub port: Option<u16>,
}

impl FlowFilter {
    /// Whether a row is wanted. What is said of a flow is not had by a row that is
    /// of none.
    #[must_use]
    pub fn matches(&self, row: &FlowRow) -> bool {
        let below = |name: &str, wanted: &str| match wanted.strip_prefix("*.") {
            Some(ancestor) => {
                let rest = name.strip_suffix(ancestor);
                rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            None => name == wanted,
        };
        let named = |wanted: &String| {
            let names = [row.dst_host.as_deref(), row.tls_sni.as_deref()];
            names.into_iter().flatten().any(|name| below(name, wanted))
        };
        self.host.as_ref().is_none_or(named)
            && (self.verdict.is_none() || self.verdict == row.verdict)
            && (self.class.is_none() || self.class == row.dst_class)
            && (self.port.is_none() || self.port == row.dst_port)
    }
}

/// What a code for another device is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AddAsk {
    /// Addresses to put into the long one; empty takes the node's own.
    pub addrs: Vec<std::net::IpAddr>,
    /// None at all.
    pub no_addr: bool,
    /// No mailbox either.
    pub no_mailbox: bool,
    /// What the other device will be allowed.
    pub role: Role,
}

/// How a reach is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// It gets terms.
    Allow,
    /// It loses what they grant.
    Deny,
}

/// What a box is run with.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunAsk {
    /// Its name; unnamed boxes lose their own folder at the end.
    pub name: Option<String>,
    /// The command's words.
    pub command: Vec<Vec<u8>>,
    /// The reach, as written.
    pub reach: String,
    /// Granted folders, in the order of their descriptors.
    pub grants: Vec<GrantAsk>,
    /// Where it starts; `None` is its own folder.
    pub cwd: Option<Vec<u8>>,
    /// Environment that was asked for; the values go to the box and nowhere else.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Rows and columns if it gets a terminal.
    pub pty: Option<(u16, u16)>,
    /// What it is kept from.
    pub tier: Tier,
    /// What it is for.
    pub class: BoxClass,
    /// What it may use up.
    pub limits: Limits,
    /// Ports of the node's loopback that lead to ports of the box.
    pub publish: Vec<Publish>,
    /// It outlives its client; what it writes is kept for `bailey logs`.
    pub detach: bool,
    /// A display of its own, in pixels.
    pub display: Option<(u16, u16)>,
    /// Whether it may use the graphics processor.
    pub gpu: bool,
    /// Its audit is kept on this node alone.
    pub audit_here: bool,
    /// It may start although it is weaker than `tier`.
    pub allow_weaker: bool,
}

/// A further command in a running box.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecAsk {
    /// Name or id of a box of this node.
    pub target: String,
    /// The command's words.
    pub command: Vec<Vec<u8>>,
    /// Environment that was asked for.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where it starts; `None` is the box's own folder.
    pub cwd: Option<Vec<u8>>,
    /// Rows and columns if it gets a terminal.
    pub pty: Option<(u16, u16)>,
}

/// A granted folder or file.
#[derive(Debug, Serialize, Deserialize)]
pub struct GrantAsk {
    /// As the person wrote it.
    pub written: Vec<u8>,
    /// Its path, the same inside as outside.
    pub path: Vec<u8>,
    /// Nothing can be written through it.
    pub read_only: bool,
}

/// From the node.
#[derive(Debug, Serialize, Deserialize)]
pub enum Tell {
    /// First on every connection.
    Hello {
        /// [`API`] of the node.
        api: u32,
        /// Its process id.
        pid: u32,
    },
    /// The command runs. One descriptor if it has a terminal: the master.
    Running {
        /// Name of the box.
        name: String,
        /// Its id.
        box_id: BoxId,
    },
    /// A refusal, when it happens, once for each host or address.
    Refused {
        /// What was refused.
        refused: FlowRefused,
        /// It is a name that was asked for as one of the web (type 65, RFC 9460 §9).
        web: bool,
    },
    /// A notice that this box raised.
    Noticed(Notice),
    /// A line about the box for whoever ran it.
    Note(String),
    /// The box is over.
    Ended(Ended),
    /// A row of [`Ask::Ps`].
    Box(BoxRow),
    /// A row of [`Ask::Flows`].
    Flow(Box<FlowRow>),
    /// A row of [`Ask::Notices`].
    Notice(NoticeRow),
    /// A row of [`Ask::DeviceList`].
    Device(DeviceRow),
    /// The answer to [`Ask::Account`].
    Account(AccountRow),
    /// A mailbox, after the rows of [`Ask::DeviceList`].
    Mailbox(MailboxRow),
    /// The answer to [`Ask::DeviceRemove`] and [`Ask::DeviceLeave`].
    Removed(Box<RemovedRow>),
    /// The request is written and on its way to that device.
    Asked {
        /// The device that runs the box.
        device: String,
        /// Whether it is connected now.
        connected: bool,
    },
    /// What came of [`Ask::Stop`], [`Ask::Pause`] and [`Ask::Resume`], and of an
    /// [`Ask::Change`] on another device: the node's word.
    Outcome(RequestOutcome),
    /// The codes for the other device.
    Codes {
        /// With addresses in it.
        long: String,
        /// To be said aloud, unless too many were made this hour.
        short: Option<String>,
        /// Where the pairing is waited for.
        at: Vec<std::net::SocketAddr>,
        /// The mailbox that the long one names, `KEY@HOST:PORT`.
        mailbox: Option<String>,
        /// Why the short code is not there, or does not find the device by itself.
        why: Option<String>,
    },
    /// The short code was tried in vain, and is worthless from now on.
    ShortBurnt,
    /// What both screens show.
    Words {
        /// Four words from the connection itself.
        words: String,
        /// What the other device calls itself; untrusted.
        name: String,
        /// Its id.
        device: DeviceId,
        /// What yes would grant it; `None` at the joining device, which is not asked.
        grants: Option<Grants>,
    },
    /// The device is in the account.
    Joined {
        /// The account.
        account: AccountId,
        /// The new device.
        device: DeviceId,
        /// What the new device is allowed.
        role: Role,
        /// At the new device: the mailbox of the code, which it goes on using.
        mailbox: Option<String>,
    },
    /// The words of the recovery key; `None` where they are not kept here.
    RecoveryWords(Option<Vec<String>>),
    /// Whether the words were right.
    RecoveryRight(bool),
    /// The copy is written.
    Copied {
        /// Envelopes in it.
        envelopes: u64,
        /// Bytes of them.
        bytes: u64,
    },
    /// The copy is taken.
    Taken {
        /// Envelopes that were not here before.
        new: u64,
        /// Envelopes that were refused.
        refused: u64,
    },
    /// The account is back.
    Recovered {
        /// The account.
        account: AccountId,
        /// Who is of it now, this device first.
        kept: Vec<DeviceId>,
        /// Who is out of it.
        out: Vec<(DeviceId, String)>,
        /// Keys that the recovery key opened.
        keys: usize,
    },
    /// The answer to [`Ask::Change`]; equal reaches where nothing changed.
    Reach(Reached),
    /// The answer to [`Ask::Why`].
    Why(Box<WhyRow>),
    /// The answer to [`Ask::Report`].
    Report(Box<ReportRow>),
    /// What a detached box wrote: raw bytes of one stream, 1 or 2.
    Log {
        /// 1 is stdout (or its terminal), 2 stderr.
        stream: u8,
        /// What it wrote.
        bytes: Vec<u8>,
    },
    /// The answer to [`Ask::Metrics`].
    Metrics(String),
    /// A capture begins; its entry stands.
    Capturing {
        /// Name of the box.
        name: String,
        /// For how long at most.
        seconds: u32,
    },
    /// Headers of packets.
    Captured {
        /// In the order in which they passed.
        packets: Vec<Headers>,
        /// How many were dropped so far.
        dropped: u64,
    },
    /// The capture is over.
    CaptureEnded {
        /// Why.
        why: String,
        /// How many were dropped in all.
        dropped: u64,
    },
    /// A picture, as PNG, in parts.
    Picture(Vec<u8>),
    /// A row of [`Ask::StoreCheck`].
    Checked(Box<CheckRow>),
    /// A row of [`Ask::Days`].
    Day(Box<DayRow>),
    /// The further command ended.
    ExecEnded(ChildExit),
    /// Nothing more comes.
    Done,
    /// It failed.
    Failed(Failure),
}

/// A reach before and after a change.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reached {
    /// Name of the box.
    pub name: String,
    /// Its reach before, in canonical text.
    pub old: String,
    /// Its reach now.
    pub new: String,
    /// Flows that it no longer grants, which were reset.
    pub flows_reset: Option<u32>,
}

/// How a box ended, for the one who ran it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ended {
    /// How its command ended, if it ran.
    pub exit: Option<ChildExit>,
    /// Why it is over.
    pub end: BoxEnd,
    /// Flows that the gate reset at the end.
    pub flows_reset: Option<u32>,
    /// Processes that were there when the end began.
    pub processes_ended: Option<u32>,
    /// Processes still there, counted after; `None` where nobody could count.
    pub processes_left: Option<u32>,
    /// Limits that it ran into, in words.
    pub limits_met: Vec<String>,
    /// What was refused, each kind once with its count.
    pub refusals: Vec<Denied>,
    /// Refusals beside these, which were too many to tell apart.
    pub refusals_more: u64,
}

/// What was refused to a box, in sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The first of its kind.
    pub refused: FlowRefused,
    /// It is a name that was asked for as one of the web (type 65, RFC 9460 §9).
    pub web: bool,
    /// How many there were.
    pub count: u64,
}

/// Whose fault it is, and so what a person can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// What was asked is wrong; exit code 2.
    Usage,
    /// This machine or its settings do not allow it; exit code 125.
    Host,
    /// A fault of bailey's; exit code 125.
    Internal,
}

/// A failed question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault.
    pub kind: FailureKind,
    /// What failed, naming the place.
    pub text: String,
    /// What would help, if anything is known to.
    pub hint: Option<String>,
}

impl Failure {
    /// What was asked is wrong.
    #[must_use]
    pub fn usage(text: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Usage,
            text: text.into(),
            hint: None,
        }
    }

    /// This machine or its settings do not allow it.
    #[must_use]
    pub fn host(text: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Host,
            text: text.into(),
            hint: None,
        }
    }

    /// A fault of bailey's.
    #[must_use]
    pub fn internal(text: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Internal,
            text: text.into(),
            hint: None,
        }
    }

    /// Whoever read the output has what they wanted: nothing is said.
    #[must_use]
    pub fn unread() -> Self {
        Self::internal("")
    }

    /// Whether it is [`Failure::unread`].
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.text.is_empty()
    }

    /// With what would help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code of the command line.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            FailureKind::Usage => 2,
            FailureKind::Host | FailureKind::Internal => 125,
        }
    }
}

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => Self::internal("the node went away")
                .hint("its log is node.log in bailey's state folder"),
            other => Self::internal(other.to_string()),
        }
    }
}
