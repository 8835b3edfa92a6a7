//! The boundary of a box: what was asked, what was measured, what follows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{BoxId, Incarnation, Transport};

/// How much of the machine a box is kept from. Each holds all that the one
/// before it does, except that `L1` and `L15` share the network.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Tier {
    /// Files and processes fenced; the network passes, and system calls do.
    L1,
    /// Also system calls and capabilities; the network passes.
    L15,
    /// Also no network but the box's own loopback.
    L2,
    /// As `L15`, with every flow decided by the gate.
    #[default]
    Gated,
}

impl Tier {
    /// All of them, weakest first.
    pub const ALL: [Self; 4] = [Self::L1, Self::L15, Self::L2, Self::Gated];

    /// The word on the command line and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::L1 => "l1",
            Self::L15 => "l1.5",
            Self::L2 => "l2",
            Self::Gated => "gated",
        }
    }

    /// Whether boxes of this tier use the machine's own network.
    #[must_use]
    pub fn shares_network(self) -> bool {
        matches!(self, Self::L1 | Self::L15)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no tier: want l1, l1.5, l2 or gated")]
pub struct ParseTierError(String);

impl FromStr for Tier {
    type Err = ParseTierError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|tier| tier.as_str() == word);
        found.ok_or_else(|| ParseTierError(word.to_owned()))
    }
}

/// What a box is for, where that changes what it may ask of the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BoxClass {
    /// Any program.
    #[default]
    Plain,
    /// A browser, which makes a sandbox of its own inside: it may make user,
    /// process and network namespaces, and use chroot(2) in them.
    Browser,
}

impl BoxClass {
    /// The word on the command line and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Browser => "browser",
        }
    }
}

/// By what a box is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    /// Namespaces of the launcher's own making.
    Namespaces,
    /// Namespaces made by the distribution's bubblewrap, where the system lets
    /// only that make them.
    Bubblewrap,
    /// No namespaces: Landlock and the system call filter alone.
    Landlock,
}

impl Method {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "landlock",
        }
    }
}

/// One side of a box's boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Axis {
    /// What it can read, write and connect to by a path; where the network is
    /// shared, by an abstract name too.
    Files,
    /// Which processes it can see, signal, trace or read.
    Processes,
    /// What it can ask of the kernel.
    Syscalls,
    /// What it may do as if it were root.
    Capabilities,
    /// What it can reach, and who decides.
    Network,
    /// How much of the machine it can use up.
    Limits,
}

impl Axis {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Files,
        Self::Processes,
        Self::Syscalls,
        Self::Capabilities,
        Self::Network,
        Self::Limits,
    ];

    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Processes => "processes",
            Self::Syscalls => "syscalls",
            Self::Capabilities => "capabilities",
            Self::Network => "network",
            Self::Limits => "limits",
        }
    }
}

/// What was found of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AxisVerdict {
    /// Every attempt to get past it failed.
    Fenced,
    /// It was meant to hold, and an attempt got past it.
    NotFenced,
    /// It is not meant to hold at this tier.
    Passes,
    /// The gate decides each flow; the holes are listed as facts.
    Decided,
    /// Nobody could find out.
    NotMeasured,
}

impl AxisVerdict {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::NotFenced => "not-fenced",
            Self::Passes => "passes",
            Self::Decided => "decided",
            Self::NotMeasured => "not-measured",
        }
    }
}

/// What the facts add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Level {
    /// All that this tier promises holds.
    Earned(Tier),
    /// Not even the weakest tier holds.
    NotEarned,
    /// A side that some tier needs could not be measured.
    Unmeasured,
}

impl Level {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Earned(tier) => tier.as_str(),
            Self::NotEarned => "not-earned",
            Self::Unmeasured => "unmeasured",
        }
    }
}

/// One thing that was tried, or found out, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What was tried, a stable name: `write /usr`, `socket AF_VSOCK`.
    pub what: String,
    /// What came of it: `EROFS`, `ENOENT`, `written`.
    pub got: String,
    /// Whether the boundary held; `None` where it only informs.
    pub held: Option<bool>,
}

/// One side of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisReport {
    /// Which side.
    pub axis: Axis,
    /// What was found.
    pub verdict: AxisVerdict,
    /// How that was got.
    pub facts: Vec<Fact>,
}

/// What was measured inside a box before its command ran. The node's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundaryReport {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
    /// What was asked.
    pub asked: Tier,
    /// What it is for.
    pub class: BoxClass,
    /// By what it is kept apart.
    pub method: Method,
    /// Image name; `host` is the distribution's programs, not a signed release.
    pub image: String,
    /// What the facts add up to.
    pub level: Level,
    /// One a side, in the order of [`Axis::ALL`].
    pub axes: Vec<AxisReport>,
}

impl BoundaryReport {
    /// Whether all that was asked holds.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        self.level == Level::Earned(self.asked)
    }
}

/// What a box may use up. `None` is no limit beyond the user's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes (`mem=`).
    pub memory: Option<u64>,
    /// Processors in thousandths of one (`cpus=`).
    pub cpus_milli: Option<u32>,
    /// Processes and threads at once (`pids=`).
    pub pids: Option<u32>,
    /// Open files of one process (`files=`).
    pub files: Option<u32>,
    /// How long it may run, in seconds (`time=`).
    pub seconds: Option<u32>,
}

/// A port of the node's loopback that leads into a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Publish {
    /// TCP or UDP.
    pub transport: Transport,
    /// The port on the node's loopback.
    pub host_port: u16,
    /// The port inside the box.
    pub box_port: u16,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host_port, self.box_port)?;
        match self.transport {
            Transport::Tcp => Ok(()),
            Transport::Udp => f.write_str("/udp"),
        }
    }
}

/// A text that publishes no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--publish: {0:?}: want HOSTPORT:BOXPORT or HOSTPORT:BOXPORT/udp")]
pub struct ParsePublishError(String);

impl FromStr for Publish {
    type Err = ParsePublishError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = || ParsePublishError(text.to_owned());
        let (ports, transport) = match text.split_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Transport::Tcp),
            Some((ports, "udp")) => (ports, Transport::Udp),
            Some(_) => return Err(fault()),
        };
        let (host, inner) = ports.split_once(':').ok_or_else(fault)?;
        let port = |text| digits(text).and_then(|port| u16::try_from(port).ok());
        let port = |text| port(text).filter(|port| *port > 0).ok_or_else(fault);
        Ok(Self {
            transport,
            host_port: port(host)?,
            box_port: port(inner)?,
        })
    }
}

/// A text that is no list of limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseLimitsError {
    /// Not `NAME=VALUE`, or a name that is none.
    #[error("--limit: {0:?}: want mem=SIZE, cpus=NUMBER, pids=NUMBER, files=NUMBER or time=AGE")]
    Name(String),
    /// The value is not of its kind, or not above 0.
    #[error("--limit {name}: {value:?}: want {want}")]
    Value {
        /// Of which limit.
        name: &'static str,
        /// What was written.
        value: String,
        /// What would be right.
        want: &'static str,
    },
    /// One limit twice.
    #[error("--limit: {0} is given twice")]
    Twice(&'static str),
}

impl FromStr for Limits {
    type Err = ParseLimitsError;

    /// `mem=2G,cpus=1.5,pids=512,files=1024,time=90s`: sizes in bytes or with
    /// K, M, G (powers of 1024), ages with s, m, h.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut limits = Self::default();
        for term in text.split(',') {
            let (name, value) = term
                .split_once('=')
                .ok_or_else(|| ParseLimitsError::Name(term.to_owned()))?;
            match name {
                "mem" => set(&mut limits.memory, "mem", value, "512M, 2G", size(value))?,
                "cpus" => set(
                    &mut limits.cpus_milli,
                    "cpus",
                    value,
                    "2, 0.5",
                    milli(value),
                )?,
                "pids" => set(&mut limits.pids, "pids", value, "a number", count(value))?,
                "files" => set(&mut limits.files, "files", value, "a number", count(value))?,
                "time" => set(
                    &mut limits.seconds,
                    "time",
                    value,
                    "30s, 10m, 2h",
                    age(value),
                )?,
                _ => return Err(ParseLimitsError::Name(term.to_owned())),
            }
        }
        Ok(limits)
    }
}

fn set<T>(
    place: &mut Option<T>,
    name: &'static str,
    value: &str,
    want: &'static str,
    read: Option<T>,
) -> Result<(), ParseLimitsError> {
    if place.is_some() {
        return Err(ParseLimitsError::Twice(name));
    }
    let value = value.to_owned();
    *place = Some(read.ok_or(ParseLimitsError::Value { name, value, want })?);
    Ok(())
}

fn count(text: &str) -> Option<u32> {
    digits(text)?.try_into().ok().filter(|count| *count > 0)
}

/// Digits alone: no sign, no blank.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn size(text: &str) -> Option<u64> {
    let (number, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (text.get(..text.len() - 1)?, 10),
        b'M' | b'm' => (text.get(..text.len() - 1)?, 20),
        b'G' | b'g' => (text.get(..text.len() - 1)?, 30),
        _ => (text, 0),
    };
    digits(number)?
        .checked_mul(1 << shift)
        .filter(|size| *size > 0)
}

fn milli(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.len() > 3 {
        return None;
    }
    let scale = 10_u64.checked_pow(3 - u32::try_from(part.len()).ok()?)?;
    let milli = digits(whole)?.checked_mul(1000)? + digits(part)? * scale;
    milli.try_into().ok().filter(|milli| *milli > 0)
}

fn age(text: &str) -> Option<u32> {
    let scale = match text.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        _ => return None,
    };
    let number = digits(text.get(..text.len() - 1)?)?.checked_mul(scale)?;
    number.try_into().ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tier_reads_back_as_it_is_written() {
        for tier in Tier::ALL {
            assert_eq!(tier.as_str().parse(), Ok(tier));
        }
        assert!("L2".parse::<Tier>().is_err());
        assert!("".parse::<Tier>().is_err());
    }

    #[test]
    fn limits_read_their_units() {
        let limits: Limits = "mem=2G,cpus=1.5,pids=512,files=64,time=10m"
            .parse()
            .unwrap();
        let want = Limits {
            memory: Some(2 << 30),
            cpus_milli: Some(1500),
            pids: Some(512),
            files: Some(64),
            seconds: Some(600),
        };
        assert_eq!(limits, want);
        assert_eq!("cpus=0.25".parse::<Limits>().unwrap().cpus_milli, Some(250));
    }

    #[test]
    fn published_ports_read_and_odd_ones_are_refused() {
        let udp: Publish = "5000:50/udp".parse().unwrap();
        let want = (Transport::Udp, 5000, 50);
        assert_eq!((udp.transport, udp.host_port, udp.box_port), want);
        assert_eq!(udp.to_string(), "5000:50/udp");
        let tcp: Publish = "80:81/tcp".parse().unwrap();
        assert_eq!("80:81".parse(), Ok(tcp));
        assert_eq!(tcp.to_string(), "80:81");
        for bad in [
            "",
            "80",
            "80:",
            "0:80",
            "80:65536",
            "80:80/sctp",
            "a:b",
            "80:80/tcp/tcp",
        ] {
            assert!(bad.parse::<Publish>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_that_is_none_is_refused_naming_it() {
        for bad in [
            "",
            "mem",
            "mem=",
            "mem=0",
            "mem=-1",
            "mem=1T",
            "cpus=",
            "cpus=0",
            "cpus=1.2345",
            "pids=1.5",
            "files=99999999999",
            "time=10",
            "time=0s",
            "ram=1G",
            "pids=1,pids=2",
            "mem=99999999999999999999G",
        ] {
            assert!(bad.parse::<Limits>().is_err(), "{bad:?}");
        }
        let error = "mem=lots".parse::<Limits>().unwrap_err().to_string();
        assert_eq!(error, "--limit mem: \"lots\": want 512M, 2G");
    }
}
