//! Names of documents, chains and heads.

use std::fmt;

use bailey_model::{BoxId, DeviceId, Incarnation};
use serde::{Deserialize, Serialize};

/// A document of an account.
///
/// The order is the order in which a device reads them: membership first, then
/// keys, then what they open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DocId {
    /// Membership: signed, not sealed.
    Account,
    /// Epoch records and wraps: signed, not sealed.
    Keys,
    /// Each node's boxes.
    Node,
    /// Notices.
    Notices,
    /// What devices ask of nodes, and the receipts.
    Requests,
    /// A box's audit.
    Box(BoxId),
    /// What is left of what was thinned: a summary for each day and host.
    Days,
    /// A box's audit that stays on the node that wrote it.
    Here(BoxId),
    /// Notices about boxes whose audit stays here.
    HereNotices,
}

impl DocId {
    /// Length of the byte form: a kind byte and 16 bytes.
    pub const LEN: usize = 17;

    /// The byte form. Only a box's documents use the 16 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let (kind, id) = match self {
            Self::Account => (1, [0; 16]),
            Self::Keys => (2, [0; 16]),
            Self::Node => (3, [0; 16]),
            Self::Notices => (4, [0; 16]),
            Self::Requests => (5, [0; 16]),
            Self::Box(id) => (6, id.0),
            Self::Days => (7, [0; 16]),
            Self::Here(id) => (32, id.0),
            Self::HereNotices => (33, [0; 16]),
        };
        let mut bytes = [0; Self::LEN];
        bytes[0] = kind;
        bytes[1..].copy_from_slice(&id);
        bytes
    }

    /// Reads the byte form; `None` for a kind that is not known or an id where
    /// there is none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[1..]);
        let doc = match bytes[0] {
            1 => Self::Account,
            2 => Self::Keys,
            3 => Self::Node,
            4 => Self::Notices,
            5 => Self::Requests,
            6 => return Some(Self::Box(BoxId(id))),
            7 => Self::Days,
            32 => return Some(Self::Here(BoxId(id))),
            33 => Self::HereNotices,
            _ => return None,
        };
        (id == [0; 16]).then_some(doc)
    }

    /// Whether its envelopes are signed but not sealed: a joining device reads
    /// these before it holds a key.
    #[must_use]
    pub fn is_plain(self) -> bool {
        match self {
            Self::Account | Self::Keys => true,
            Self::Node | Self::Notices | Self::Requests | Self::Box(_) | Self::Days => false,
            Self::Here(_) | Self::HereNotices => false,
        }
    }

    /// Whether it is for no other device: never sealed to one, and never sent.
    #[must_use]
    pub fn is_here(self) -> bool {
        matches!(self, Self::Here(_) | Self::HereNotices)
    }

    /// The box whose audit it is.
    #[must_use]
    pub fn box_id(self) -> Option<BoxId> {
        match self {
            Self::Box(id) | Self::Here(id) => Some(id),
            _ => None,
        }
    }
}

impl fmt::Display for DocId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account => f.write_str("account"),
            Self::Keys => f.write_str("keys"),
            Self::Node => f.write_str("node"),
            Self::Notices => f.write_str("notices"),
            Self::Requests => f.write_str("requests"),
            Self::Box(id) => write!(f, "box {id}"),
            Self::Days => f.write_str("days"),
            Self::Here(id) => write!(f, "box {id} (kept here)"),
            Self::HereNotices => f.write_str("notices (kept here)"),
        }
    }
}

/// SHA-256 of a whole envelope.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first envelope of a writer's first chain of a document names
    /// as the one before it.
    pub const NONE: Self = Self([0; 32]);
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// One chain of envelopes: numbered from 1 without holes, each naming the hash
/// of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChainId {
    /// The document. First, so that chains sort in the order they are read.
    pub doc: DocId,
    /// Who writes it.
    pub writer: DeviceId,
    /// Which start of the writer: each start is a new one.
    pub incarnation: Incarnation,
}

/// How far a chain goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Head {
    /// The chain.
    pub chain: ChainId,
    /// Number of its newest envelope.
    pub seq: u64,
    /// SHA-256 of that envelope.
    pub hash: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_round_trip_and_strange_bytes_are_refused() {
        for doc in [
            DocId::Account,
            DocId::Keys,
            DocId::Node,
            DocId::Notices,
            DocId::Requests,
            DocId::Box(BoxId([0; 16])),
            DocId::Box(BoxId([7; 16])),
            DocId::Days,
            DocId::Here(BoxId([7; 16])),
            DocId::HereNotices,
        ] {
            assert_eq!(DocId::from_bytes(&doc.to_bytes()), Some(doc));
        }
        for kind in [0, 8, 255] {
            let mut bytes = [0; DocId::LEN];
            bytes[0] = kind;
            assert_eq!(DocId::from_bytes(&bytes), None);
        }
        let mut account = DocId::Account.to_bytes();
        account[16] = 1;
        assert_eq!(DocId::from_bytes(&account), None);
    }
}
