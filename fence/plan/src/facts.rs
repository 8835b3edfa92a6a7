//! What the launcher saw of the host before it made anything.

use crate::Guard;
use crate::gpu::RenderNode;

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
    /// Which of [`crate::guarded_names`], and in a repository of
    /// [`crate::IN_BARE`], are in it, in that order. Looked for only in a writable
    /// folder.
    pub guarded: Vec<(&'static str, Guard, EntryKind)>,
    /// Whether it is a repository of git's by what is in it ([`crate::BARE`]).
    pub bare: bool,
}

/// The host's own files about names; empty where there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostNames {
    /// `/etc/resolv.conf`.
    pub resolvers: Vec<u8>,
    /// `/etc/hosts`.
    pub hosts: Vec<u8>,
}

/// The host as far as a plan depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Those of [`crate::looked_at`] that exist, in that order.
    pub entries: Vec<HostEntry>,
    /// One for each grant, in order.
    pub grants: Vec<GrantFacts>,
    /// The render nodes that this user may open; looked for only where they
    /// are granted.
    pub gpu: Vec<RenderNode>,
    /// Whether the kernel speaks IPv6.
    pub ipv6: bool,
    /// The machine's memory in bytes.
    pub memory: u64,
    /// How the host finds names. Looked at only for a box that shares its
    /// network.
    pub names: HostNames,
}
