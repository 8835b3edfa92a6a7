//! How far a device has chains of envelopes, by its own word.

use serde::{Deserialize, Serialize};

use crate::{BoxId, DeviceId, Incarnation};

/// A device says how far it has chains: those that grew since it last said so. What it
/// says of its own is by when it was heard; what it says of others' shows what these
/// keep from somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HeadsSeen {
    /// The chains, at most [`HeadsSeen::MAX`].
    pub heads: Vec<SeenHead>,
}

impl HeadsSeen {
    /// Most heads in one entry, which is then far below an entry's bound.
    pub const MAX: usize = 128;
}

/// How far a chain was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenHead {
    /// Who writes it.
    pub writer: DeviceId,
    /// Which start of the writer.
    pub incarnation: Incarnation,
    /// Its document.
    pub doc: SeenDoc,
    /// Number of its newest envelope.
    pub seq: u64,
    /// SHA-256 of that envelope.
    pub hash: [u8; 32],
}

/// A document that other devices may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SeenDoc {
    /// The account's records.
    Account,
    /// Keys for its members.
    Keys,
    /// A node's own document.
    Node,
    /// The notices.
    Notices,
    /// The requests.
    Requests,
    /// The days that were thinned.
    Days,
    /// A box's audit.
    Box(BoxId),
}
