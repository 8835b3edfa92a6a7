//! Entries: what is appended to a document, never edited.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    BoundaryReport, BoxGranted, BoxId, BoxPaused, BoxResumed, DeviceId, EntryRef, FlowEnded,
    FlowNamed, FlowOpened, FlowProgressed, FlowRefused, HeadsSeen, Host, Incarnation, NameAnswered,
    NoticeId, Receipt, Request, RequestId, Thinned,
};

/// Milliseconds since 1970-01-01T00:00:00Z by the writer's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

/// One immutable entry of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Number in this writer's entries of this document, from 1, without holes.
    pub no: u64,
    /// When it happened.
    pub ts: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A box's document: an incarnation starts.
    BoxStarted(BoxStarted),
    /// A box's document: an allowed flow, before its dial.
    FlowOpened(FlowOpened),
    /// A box's document: a refused flow or name.
    FlowRefused(FlowRefused),
    /// A box's document: what an allowed flow's first bytes said of its name.
    FlowNamed(FlowNamed),
    /// A box's document: how far a flow under way has come.
    FlowProgressed(FlowProgressed),
    /// A box's document: a flow's end.
    FlowEnded(FlowEnded),
    /// A box's document: a name in reach, before it is asked upstream.
    NameAsked(NameAsked),
    /// A box's document: what the box was answered for a name.
    NameAnswered(NameAnswered),
    /// A box's document: what of the host it was given.
    Granted(BoxGranted),
    /// A box's document: the incarnation is over.
    BoxEnded(BoxEnded),
    /// A box's document: what it may dial is another from here on.
    ReachChanged(ReachChanged),
    /// A box's document: all its processes were found not to run.
    BoxPaused(BoxPaused),
    /// A box's document: its processes go on.
    BoxResumed(BoxResumed),
    /// A box's document: somebody captures the headers of its packets.
    CaptureStarted(CaptureStarted),
    /// The node's document: the audit of this run is kept on its node alone.
    AuditHere(AuditHere),
    /// Any document: what came before may be missing up to here.
    Gap(Gap),
    /// The node's document: what the writer calls itself.
    DeviceNamed(DeviceNamed),
    /// The node's document: what was measured inside a box before its command ran.
    Report(BoundaryReport),
    /// The notices document.
    Notice(Notice),
    /// The requests document: a device asks a node for something.
    Request(Request),
    /// The requests document: what the node did, measured after.
    Receipt(Receipt),
    /// The days' document: what is left of a segment that was thinned.
    Thinned(Thinned),
    /// The node's document: how far the writer has chains, its own and others'.
    HeadsSeen(HeadsSeen),
    /// Any document: an entry of a kind that this build does not know. It is
    /// kept and shown as such, never dropped.
    Newer(Newer),
}

/// An entry written by a newer version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newer {
    /// Number of its kind.
    pub kind: u16,
    /// Its packed form, as it was written.
    pub body: Vec<u8>,
}

/// A box's incarnation starts. The same entry stands in the node's document
/// (so that `ps` is a fold) and in the box's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxStarted {
    /// The box.
    pub box_id: BoxId,
    /// Its name; unnamed boxes get one made up.
    pub name: String,
    /// This run of it.
    pub incarnation: Incarnation,
    /// The command's words as given, bytes that are not UTF-8 replaced.
    pub command: Vec<String>,
    /// The reach in its canonical text.
    pub reach: String,
    /// Image name, `host` for the distribution's programs.
    pub image: String,
}

/// A name in reach, entered before it is asked upstream. Equal ones within
/// 10 s are one entry; the count comes when the 10 s are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameAsked {
    /// The name. `*.ZONE` in an entry that says how many different names of a
    /// zone were asked within 10 s, where they were many; each has its own entry.
    pub host: Host,
    /// DNS type number (RFC 1035 §3.2.2 and the IANA registry); 255 for `*.ZONE`.
    pub qtype: u16,
    /// 1 when first asked; the number of further ones in the closing entry.
    pub count: u32,
}

/// An incarnation of a box is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxEnded {
    /// The box.
    pub box_id: BoxId,
    /// The run that is over.
    pub incarnation: Incarnation,
    /// Why it is over.
    pub end: BoxEnd,
    /// Processes that were there when it began to end; `None` where nobody could
    /// count.
    pub processes_ended: Option<u32>,
    /// Processes of the box still there, counted after the end; `None` where
    /// nobody could count.
    pub processes_left: Option<u32>,
    /// Flows that the gate reset at the end; `None` where it did not say.
    pub flows_reset: Option<u32>,
}

/// A running box's reach is another one from here on. The same entry stands in
/// the node's document (so that `ps` is a fold) and in the box's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachChanged {
    /// The box.
    pub box_id: BoxId,
    /// The run of it: the next one begins with the reach that it is asked with.
    pub incarnation: Incarnation,
    /// The reach before, in its canonical text.
    pub old: String,
    /// The reach from here on, in its canonical text.
    pub new: String,
    /// Who changed it.
    pub by: ChangedBy,
}

/// Who changed something about a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangedBy {
    /// A person at the node itself.
    Here,
    /// A person at another device of the account, by request.
    Device(DeviceId, RequestId),
}

/// Headers of a box's packets, up to layer 4, go into a file from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStarted {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
    /// For how many seconds at most.
    pub seconds: u32,
    /// Who captures them.
    pub by: ChangedBy,
}

/// The box's own document of this run is in no other device's store: it is neither
/// sealed to one nor sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditHere {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
}

/// Why an incarnation of a box is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoxEnd {
    /// Its command ended by itself.
    Exited(ChildExit),
    /// Somebody stopped it.
    Stopped(StoppedBy),
    /// The terminal or the client that it belonged to went away.
    ClientGone,
    /// Its launcher went away, and pid 1 with it.
    FenceLost,
    /// It could not be started; what failed.
    NotStarted(String),
    /// The node that ran it went away; found at the next start.
    NodeLost,
    /// It is weaker than it was asked to be, and did not start; which sides.
    Weaker(String),
    /// It ran for as long as its limit allows.
    TimeOut,
    /// A name that it may only read, in a folder that it may write, was replaced
    /// outside and was no longer held; which.
    CoverLost(String),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildExit {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(u8),
}

impl ChildExit {
    /// The code a shell would report: the child's own, or 128 + signal.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
        }
    }
}

/// Who stopped a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoppedBy {
    /// A person at the node itself.
    Here,
    /// A person at another device of the account, by request.
    Device(DeviceId, RequestId),
}

/// What a device calls itself, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNamed {
    /// At most 64 characters; untrusted where it is shown.
    pub name: String,
}

/// Entries may be missing before this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// What is known of the reason.
    pub reason: String,
}

/// A rule raised this, from entries that exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its id.
    pub id: NoticeId,
    /// The rule.
    pub rule: Rule,
    /// The box.
    pub box_id: BoxId,
    /// Its name when the notice was raised.
    pub box_name: String,
    /// The run of it.
    pub incarnation: Incarnation,
    /// The entries that raised it.
    pub evidence: Vec<EntryRef>,
    /// One sentence for a person.
    pub text: String,
}

/// The rules, closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// A box whose reach holds only public addresses tried the node's own networks.
    LocalFromInternetOnly,
    /// A device dropped entries before their window was over.
    ThinnedEarly,
    /// A device goes on from an older copy of its store, or runs twice. It is about
    /// no box: the notice's box is nil, without a name.
    StoreWentBack,
    /// Somebody captures the headers of a box's packets.
    CaptureStarted,
    /// A device signed two envelopes with one number. The notice's box is nil.
    TwoOfOneNumber,
    /// A device shows less of what it wrote than another saw of it. The notice's box
    /// is nil.
    HeadWithheld,
    /// A device sealed under a key that it had replaced, or twice under one key and
    /// nonce. The notice's box is nil.
    KeyMisused,
}

impl Rule {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LocalFromInternetOnly => "local-from-internet-only",
            Self::ThinnedEarly => "thinned-early",
            Self::StoreWentBack => "store-went-back",
            Self::CaptureStarted => "capture-started",
            Self::TwoOfOneNumber => "two-of-one-number",
            Self::HeadWithheld => "head-withheld",
            Self::KeyMisused => "key-misused",
        }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, `2026-11-30T12:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let (second, milli) = (ms / 1000 % 60, ms % 1000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"
        )
    }
}

/// A text that is no [`Timestamp`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no time in UTC with milliseconds")]
pub struct NoTimestamp;

impl std::str::FromStr for Timestamp {
    type Err = NoTimestamp;

    /// The text that [`Timestamp`] shows, and no other.
    fn from_str(text: &str) -> Result<Self, NoTimestamp> {
        let part = |from: usize, to: usize| {
            let part = text.get(from..to)?;
            part.parse::<u64>().ok()
        };
        let read = || {
            let [year, month, day] = [part(0, 4)?, part(5, 7)?, part(8, 10)?];
            let [hour, minute] = [part(11, 13)?, part(14, 16)?];
            let [second, milli] = [part(17, 19)?, part(20, 23)?];
            let days = days(year, month, day)?;
            let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
            Some(Self(seconds * 1000 + milli))
        };
        let found = read().ok_or(NoTimestamp)?;
        match found.to_string() == text {
            true => Ok(found),
            false => Err(NoTimestamp),
        }
    }
}

/// A proleptic Gregorian date to days since 1970-01-01, which it may not precede.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

/// Days since 1970-01-01 to a proleptic Gregorian date.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_show_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_041_800_123, "2026-11-30T12:30:00.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(ms)));
        }
        for text in [
            "",
            "1969-12-31T23:59:59.999Z",
            "2026-11-30T12:30:00Z",
            "2026-02-30T00:00:00.000Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(NoTimestamp), "{text}");
        }
    }
}
