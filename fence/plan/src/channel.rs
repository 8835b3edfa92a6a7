//! What the node and a box's launcher say to each other.
//!
//! Frames of `bailey_channel` over a Unix socket that is the launcher's
//! descriptor 0. Both ends are of one build. The end of the channel means that
//! the node is gone: the launcher then ends the box at once.

use std::fmt;

use bailey_model::ChildExit;
use serde::{Deserialize, Serialize};

/// Most grants of one box. Each takes one descriptor beside [`ToFence::Start`],
/// whose frame can carry 64: three for stdio, one for the own folder.
pub const MAX_GRANTS: usize = 60;

/// From the node to the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFence {
    /// Make the box. Descriptors in order: the box's stdin, stdout and stderr
    /// (only with [`Stdio::Pipes`]); the own folder (`O_PATH`); one `O_PATH` a
    /// grant, in the order of [`BoxSpec::grants`].
    Start(Box<BoxSpec>),
    /// Start the command. Sent once, after [`FromFence::Made`].
    Go,
    /// Deliver this signal to the command's process group. `SIGKILL` acts as
    /// [`ToFence::Kill`], `SIGSTOP` is delivered as `SIGTSTP`; what is not a
    /// standard signal is ignored.
    Signal(i32),
    /// End every process of the box, wait for that, then answer
    /// [`FromFence::Ended`].
    Kill,
}

/// From the launcher to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromFence {
    /// The box's TUN, configured and up: one descriptor. No copy is kept.
    Tun,
    /// The master of the box's terminal: one descriptor. Only with
    /// [`Stdio::Pty`], before [`FromFence::Made`].
    Pty,
    /// The box is made and confined, and waits for [`ToFence::Go`]. Three
    /// descriptors: a pidfd of its pid 1; the folder of that process in the
    /// node's `/proc`; the root of the box's own `/proc`, whose numeric
    /// entries are the processes of the box, none once it has ended.
    Made {
        /// Pid 1 of the box, as the node sees it.
        pid: i32,
    },
    /// The command was executed. Not sent when it could not be: then only
    /// [`FromFence::Ended`] comes, with code 127 (not found) or 126.
    Running,
    /// The box could not be made; nothing ran and nothing is left. Last message.
    Failed(SetupError),
    /// The command ended, pid 1 is gone and waited for, and with it every
    /// process of the box. Last message.
    Ended(ChildExit),
}

/// A box to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxSpec {
    /// Host name inside: one label of letters, digits and hyphens, no dot (a
    /// resolver would make a search domain of what follows it).
    pub hostname: String,
    /// The command and its arguments; the first is looked up in the box's
    /// `PATH` when it has no slash.
    pub command: Vec<Vec<u8>>,
    /// The whole environment of the command, nothing is added.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working folder of the command, a path in the box.
    pub cwd: Vec<u8>,
    /// Where the own folder is mounted, a path in the box; also the home in
    /// the box's `/etc/passwd`.
    pub home: Vec<u8>,
    /// What of the host's files the box may use.
    pub grants: Vec<Grant>,
    /// Where the command's stdin, stdout and stderr lead.
    pub stdio: Stdio,
    /// The node's user id, never 0; the only one the box knows.
    pub uid: u32,
    /// The node's group id; the only one the box knows.
    pub gid: u32,
}

/// One granted file or folder. What it is comes as a descriptor; this says
/// where it is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Absolute path in the box, without `.` and `..`.
    pub at: Vec<u8>,
    /// Whether the box may only read it.
    pub read_only: bool,
}

/// Where the command's standard streams lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// To three descriptors that the node made for this box.
    Pipes,
    /// To a terminal made inside the box, with its first size.
    Pty {
        /// Lines.
        rows: u16,
        /// Columns.
        cols: u16,
    },
}

/// The step that failed while a box was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupError {
    /// What was being done, in words.
    pub step: String,
    /// What it was done to, where that is a path; raw bytes, maybe from a
    /// granted folder.
    pub path: Option<Vec<u8>>,
    /// Why it failed: what the kernel said, and its usual cause where known.
    pub reason: String,
    /// The kernel's error number, 0 where the reason is not the kernel's.
    pub errno: i32,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        if let Some(path) = &self.path {
            write!(f, " {}", path.escape_ascii())?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for SetupError {}
