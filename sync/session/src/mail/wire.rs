//! Frames between a device and a mailbox. The format is described at the module's
//! root.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire::Blob;

/// Version of the wire format, sent in `Hello`.
pub const MAIL_VERSION: u16 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromDevice {
    Hello { version: u16 },
    Put { blob: Blob },
    Follow { topic: [u8; 32], from: u64 },
    Drop { topic: [u8; 32] },
    Alive,
    Bye(u8),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromMailbox {
    Welcome {
        version: u16,
        store: [u8; 16],
    },
    Stored {
        topic: [u8; 32],
        index: u64,
    },
    Refused(u8),
    Blob {
        topic: [u8; 32],
        index: u64,
        blob: Blob,
    },
    CaughtUp {
        topic: [u8; 32],
        next: u64,
    },
    Dropped {
        topic: [u8; 32],
    },
    Alive,
    Bye(u8),
}

/// Why a mailbox does not keep a blob. The number is what `Refused` carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a blob that its topic signed.
    Signature,
    /// All that the mailbox may hold is full.
    Quota,
    /// This address began too many topics lately.
    Topics,
    /// More at once than this address may put.
    Rate,
    /// The disk takes nothing now.
    Full,
    /// The topic holds all that one may.
    TopicQuota,
    /// A reason that this version does not know.
    Other(u8),
}

impl Refusal {
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Signature => 0,
            Self::Quota => 1,
            Self::Topics => 2,
            Self::Rate => 3,
            Self::Full => 4,
            Self::TopicQuota => 5,
            Self::Other(code) => code,
        }
    }

    pub(super) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Signature,
            1 => Self::Quota,
            2 => Self::Topics,
            3 => Self::Rate,
            4 => Self::Full,
            5 => Self::TopicQuota,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("not a blob that its topic signed"),
            Self::Quota => f.write_str("the mailbox holds all that it may"),
            Self::Topics => f.write_str("too many new topics from this address"),
            Self::Rate => f.write_str("more at once than this address may put"),
            Self::Full => f.write_str("the mailbox's disk takes nothing now"),
            Self::TopicQuota => f.write_str("the topic holds all that one may"),
            Self::Other(code) => write!(f, "reason {code}"),
        }
    }
}
