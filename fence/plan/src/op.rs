//! The closed list of what a launcher can do to make a box.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// An empty folder of the box: the second layer below a read-only grant, since
/// an overlay that cannot be written wants two.
pub const EMPTY_FOLDER: &[u8] = b"/var/empty";

/// One operation. They run in order, in the box's own namespaces, before the
/// old root is left; paths are absolute, `at` is a path in the box, and a mount
/// point that does not exist is made only in what belongs to the box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetupOp {
    /// Set the host name.
    HostName(String),
    /// Bring the loopback device up.
    Loopback,
    /// Make the TUN, address it, route everything to it, bring it up.
    Tun {
        /// Name of the device.
        name: String,
        /// MTU in bytes.
        mtu: u32,
        /// Packets that wait for the gate before the kernel drops one.
        queue: u32,
        /// Own address, prefix length, gateway.
        v4: (Ipv4Addr, u8, Ipv4Addr),
        /// The same, where the kernel speaks IPv6.
        v6: Option<(Ipv6Addr, u8, Ipv6Addr)>,
    },
    /// Keep what is done to the mounts here from the host. What the host does
    /// still comes, so nothing here keeps a medium in use.
    SlaveMounts,
    /// Cut every mount off from the host's changes.
    PrivateMounts,
    /// Make the empty root.
    Root,
    /// Make a folder.
    Dir {
        /// Where.
        at: Vec<u8>,
    },
    /// Make a symbolic link.
    Symlink {
        /// Where.
        at: Vec<u8>,
        /// Its text.
        target: Vec<u8>,
    },
    /// Write a small file.
    File {
        /// Where.
        at: Vec<u8>,
        /// What it holds.
        contents: Vec<u8>,
    },
    /// Mount a tmpfs.
    Tmpfs {
        /// Where.
        at: Vec<u8>,
        /// Permissions of its root.
        mode: u16,
        /// The `size=` option of tmpfs(5).
        size: String,
    },
    /// Mount a small tmpfs read-only, and lend the node a folder of it that can be
    /// written.
    ReadOnlyFolder {
        /// Where.
        at: Vec<u8>,
        /// The `size=` option of tmpfs(5).
        size: String,
    },
    /// Bind a file or folder of the host's programs, with all below.
    Image {
        /// The host's path, and where in the box.
        at: String,
        /// Only a box that is broken on purpose has it writable.
        read_only: bool,
    },
    /// Bind one of the host's device nodes.
    Device {
        /// The path, the same on the host and in the box.
        at: String,
    },
    /// Bind a granted render node of the graphics processor.
    RenderNode {
        /// The path, the same on the host and in the box.
        at: Vec<u8>,
    },
    /// Bind the folder in which the kernel describes one device, read-only.
    DeviceFolder {
        /// The path, the same on the host and in the box.
        at: Vec<u8>,
    },
    /// Mount the box's own pseudo terminals.
    Terminals {
        /// Where.
        at: Vec<u8>,
    },
    /// Make the command's terminal there.
    OpenTerminal {
        /// Lines.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// Mount a fresh /proc of the box's own process namespace.
    Proc {
        /// Where.
        at: Vec<u8>,
    },
    /// Bind the host's own /proc: only for a box that is broken on purpose.
    HostProc {
        /// Where.
        at: Vec<u8>,
    },
    /// Bind the own folder, writable.
    OwnFolder {
        /// Where.
        at: Vec<u8>,
    },
    /// Bind a granted file or folder, writable.
    GrantWritable {
        /// Which grant.
        index: usize,
        /// Where.
        at: Vec<u8>,
    },
    /// Show a granted folder read-only through an overlay without an upper
    /// layer: its sockets and FIFOs lead nowhere.
    GrantFolderReadOnly {
        /// Which grant.
        index: usize,
        /// Where.
        at: Vec<u8>,
    },
    /// Bind a granted regular file read-only.
    GrantFileReadOnly {
        /// Which grant.
        index: usize,
        /// Where.
        at: Vec<u8>,
    },
    /// Mount a folder of a writable grant over itself, still writable, so that
    /// it can be neither renamed nor removed from inside.
    Pin {
        /// Which grant.
        index: usize,
        /// Path below it.
        below: String,
        /// Where.
        at: Vec<u8>,
    },
    /// Mount what is in a writable grant over itself, read-only.
    Cover {
        /// Which grant.
        index: usize,
        /// Path below it.
        below: String,
        /// Where.
        at: Vec<u8>,
    },
    /// Make a mount of the box's own read-only, without what is mounted in it.
    Seal {
        /// Where.
        at: Vec<u8>,
    },
    /// Make the new root the root and drop the old one.
    Enter,
    /// Go to the command's working folder.
    WorkingFolder {
        /// Where.
        at: Vec<u8>,
    },
}

impl SetupOp {
    /// The step in words, for an error.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match self {
            Self::HostName(_) => "set the host name",
            Self::Loopback => "bring the loopback device up",
            Self::Tun { .. } => "make the network device",
            Self::SlaveMounts => "keep the mounts from the host's",
            Self::PrivateMounts => "cut the mounts off from the host's",
            Self::Root => "make the empty root",
            Self::Dir { .. } => "make the folder",
            Self::Symlink { .. } => "make the link",
            Self::File { .. } => "write the file",
            Self::Tmpfs { .. } => "mount a private folder at",
            Self::ReadOnlyFolder { .. } => "mount a folder that is only read at",
            Self::Image { .. } => "bind the host's programs",
            Self::Device { .. } => "bind the device",
            Self::RenderNode { .. } => "bind the graphics processor's",
            Self::DeviceFolder { .. } => "show what describes the graphics processor,",
            Self::Terminals { .. } => "mount the terminals at",
            Self::OpenTerminal { .. } => "make the terminal",
            Self::Proc { .. } => "mount a fresh",
            Self::HostProc { .. } => "bind the host's",
            Self::OwnFolder { .. } => "bind the box's own folder at",
            Self::GrantWritable { .. } => "bind the granted",
            Self::GrantFolderReadOnly { .. } | Self::GrantFileReadOnly { .. } => {
                "show read-only the granted"
            }
            Self::Pin { .. } => "hold in its place",
            Self::Cover { .. } => "cover read-only",
            Self::Seal { .. } => "make read-only",
            Self::Enter => "enter the new root",
            Self::WorkingFolder { .. } => "go to the working folder",
        }
    }

    /// The path that the step is about.
    #[must_use]
    pub fn path(&self) -> Option<&[u8]> {
        match self {
            Self::Tun { name, .. } => Some(name.as_bytes()),
            Self::Image { at, .. } | Self::Device { at } => Some(at.as_bytes()),
            Self::Dir { at }
            | Self::Symlink { at, .. }
            | Self::File { at, .. }
            | Self::Tmpfs { at, .. }
            | Self::ReadOnlyFolder { at, .. }
            | Self::RenderNode { at }
            | Self::DeviceFolder { at }
            | Self::Terminals { at }
            | Self::Proc { at }
            | Self::HostProc { at }
            | Self::OwnFolder { at }
            | Self::GrantWritable { at, .. }
            | Self::GrantFolderReadOnly { at, .. }
            | Self::GrantFileReadOnly { at, .. }
            | Self::Pin { at, .. }
            | Self::Cover { at, .. }
            | Self::Seal { at }
            | Self::WorkingFolder { at } => Some(at),
            Self::HostName(_)
            | Self::Loopback
            | Self::SlaveMounts
            | Self::PrivateMounts
            | Self::Root
            | Self::OpenTerminal { .. }
            | Self::Enter => None,
        }
    }
}
