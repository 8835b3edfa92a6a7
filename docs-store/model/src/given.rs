//! What of the host a box was given.

use serde::{Deserialize, Serialize};

use crate::{BoxId, ChangedBy, Incarnation};

/// A box was granted something of the host, for one run. The same entry stands in the
/// node's document, unless the box's audit is kept on its node alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxGranted {
    /// The box.
    pub box_id: BoxId,
    /// The run of it.
    pub incarnation: Incarnation,
    /// As the person wrote it; bytes that are not UTF-8 replaced.
    pub written: String,
    /// Its path with every link resolved, outside and in the box; empty for what has
    /// no path of its own.
    pub path: String,
    /// What it is.
    pub kind: GrantKind,
    /// Whether the box may write to it.
    pub write: bool,
    /// Who granted it.
    pub by: ChangedBy,
}

/// What was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GrantKind {
    /// A folder, with what is in it.
    Folder,
    /// A file.
    File,
    /// A socket or a FIFO, with whoever is behind it.
    Socket,
    /// A device.
    Device,
}

impl GrantKind {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::File => "file",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }
}
