//! What the launcher saw of the host before it made anything.

use crate::Guard;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link, with its text.
    Symlink(Vec<u8>),
    /// A socket, FIFO or device.
    Other,
}

/// A path of the host and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Absolute path.
    pub path: &'static str,
    /// What is there; nothing follows a last symbolic link.
    pub kind: EntryKind,
}

/// What the launcher saw of one granted file or folder, through its descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantFacts {
    /// What was granted.
    pub kind: EntryKind,
    /// Which of [`crate::guarded_names`] are in it, in that order. Looked for
    /// only in a writable folder.
    pub guarded: Vec<(&'static str, Guard, EntryKind)>,
}

/// The host as far as a plan depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Those of [`crate::looked_at`] that exist, in that order.
    pub entries: Vec<HostEntry>,
    /// One for each grant, in order.
    pub grants: Vec<GrantFacts>,
    /// Whether the kernel speaks IPv6.
    pub ipv6: bool,
}
