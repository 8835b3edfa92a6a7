//! What a box was answered for a name.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Host;

/// What the gate answered for a name that was entered as asked. Equal answers within
/// 10 s are one entry; the count comes when the 10 s are over. A name outside reach
/// has its refusal alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameAnswered {
    /// The name that the addresses are for.
    pub host: Host,
    /// DNS type number of the question (RFC 1035 §3.2.2 and the IANA registry).
    pub qtype: u16,
    /// What was answered.
    pub answer: NameAnswer,
    /// The addresses that the box was given, those of hints included (RFC 9460 §7.3),
    /// in order and once each; at most [`Self::MAX_ADDRS`].
    pub addrs: Vec<IpAddr>,
    /// How many more it was given.
    pub more: u32,
    /// For how long the answer may be kept, in seconds: the least of its records'
    /// times; 0 without records.
    pub ttl: u32,
    /// 1 when first answered; the number of further ones in the closing entry.
    pub count: u32,
}

impl NameAnswered {
    /// Most addresses that an entry lists.
    pub const MAX_ADDRS: usize = 16;
}

/// What a question for a name came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NameAnswer {
    /// Records of the type that was asked for.
    Records,
    /// The name has none of that type.
    NoRecords,
    /// There is no such name.
    NoName,
    /// Every record was kept from the box; the refusals say why.
    Withheld,
    /// Nobody could say.
    Failed,
}

impl NameAnswer {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Records => "answered",
            Self::NoRecords => "no such records",
            Self::NoName => "no such name",
            Self::Withheld => "withheld",
            Self::Failed => "failed",
        }
    }

    /// The response code that the box saw, as DNS names it (RFC 1035 §4.1.1).
    #[must_use]
    pub fn rcode(self) -> &'static str {
        match self {
            Self::Records | Self::NoRecords | Self::Withheld => "NOERROR",
            Self::NoName => "NXDOMAIN",
            Self::Failed => "SERVFAIL",
        }
    }
}
