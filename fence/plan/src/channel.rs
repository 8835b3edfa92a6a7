//! What the node and a box's launcher say to each other.
//!
//! Frames of `bailey_channel` over a Unix socket that is the launcher's
//! descriptor 0. Both ends are of one build. The end of the channel means that
//! the node is gone: the launcher then ends the box at once.

use std::fmt;

use bailey_model::{Axis, BoxClass, ChildExit, Fact, Limits, Method, Tier};
use serde::{Deserialize, Serialize};

/// Most grants of one box. Each takes one descriptor beside [`ToFence::Start`],
/// whose frame can carry 64: three for stdio, one for the cgroup, one for the
/// own folder.
pub const MAX_GRANTS: usize = 59;

/// From the node to the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToFence {
    /// There is no box to make yet: begin one, which the order may turn out to
    /// be. One descriptor where boxes have a cgroup: the folder of that box's.
    Await,
    /// Make the box. Descriptors in order: the box's stdin, stdout and stderr
    /// (only with [`Stdio::Pipes`]); the folder of its cgroup (only with
    /// [`BoxSpec::cgroup`]); the own folder (`O_PATH`); one `O_PATH` a grant, in
    /// the order of [`BoxSpec::grants`].
    Start(Box<BoxSpec>),
    /// Run a further command in a box that runs. Descriptors in order: stdin,
    /// stdout and stderr (only with [`Stdio::Pipes`]); the pidfd of the box's
    /// pid 1; the folder of its cgroup (only with [`JoinSpec::cgroup`]); the
    /// box's namespaces, as they came with [`FromFence::Namespaces`]. Answered by
    /// [`FromFence::Joined`], or by [`FromFence::Failed`].
    Join(Box<JoinSpec>),
    /// Start the command. Sent once, after [`FromFence::Made`].
    Go,
    /// Deliver this signal to the command's process group. `SIGKILL` acts as
    /// [`ToFence::Kill`], `SIGSTOP` is delivered as `SIGTSTP`; what is not a
    /// standard signal is ignored.
    Signal(i32),
    /// End every process of the box, wait for that, then answer
    /// [`FromFence::Ended`]. After [`ToFence::Join`]: of the further command.
    Kill,
}

/// From the launcher to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromFence {
    /// The box's TUN, configured and up: one descriptor. No copy is kept. Only
    /// of a gated box.
    Tun,
    /// The master of the box's terminal: one descriptor. Only with
    /// [`Stdio::Pty`], before [`FromFence::Made`].
    Pty,
    /// The box's namespaces, one descriptor each, for [`ToFence::Join`]: nobody
    /// outside may ask the kernel for those of pid 1, which is not dumpable.
    Namespaces,
    /// Its display answers. One descriptor: the folder of its picture. Only with
    /// [`BoxSpec::display`], before [`FromFence::Made`].
    Display,
    /// One descriptor: the folder in which the box reads what it was refused.
    /// Only of a gated box, before [`FromFence::Made`].
    Refusals,
    /// The box is made and confined, and waits for [`ToFence::Go`]. Three
    /// descriptors: a pidfd of its pid 1; the folder of that process in the
    /// node's `/proc`; the root of the box's own `/proc`, whose numeric
    /// entries are the processes of the box, none once it has ended.
    Made {
        /// Pid 1 of the box, as the node sees it.
        pid: i32,
        /// What was tried inside it.
        measured: Measured,
    },
    /// The further command's process is in the box and confined, and waits for
    /// [`ToFence::Go`].
    Joined,
    /// The command was executed. Not sent when it could not be: then only
    /// [`FromFence::Ended`] comes, with code 127 (not found) or 126.
    Running,
    /// The box's display ended before the box did.
    DisplayEnded,
    /// The box could not be made; nothing ran and nothing is left. Last message.
    Failed(SetupError),
    /// It could be made only weaker than asked, which [`BoxSpec::weaker`] does not
    /// allow; nothing ran and nothing is left. Last message.
    OnlyWeaker(SetupError),
    /// A name in a folder that the box may write was replaced outside, and the
    /// read-only mount on it went with it. Every process of the box was ended for
    /// it and waited for. Last message.
    CoverLost {
        /// Where, in the box.
        at: Vec<u8>,
    },
    /// The command ended, pid 1 is gone and waited for, and with it every
    /// process of the box. Of a further command: it alone has ended, and what it
    /// left behind is the box's. Last message.
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
    /// What it is kept from.
    pub tier: Tier,
    /// What it is for.
    pub class: BoxClass,
    /// What it may use up.
    pub limits: Limits,
    /// Whether the node made a cgroup for it, which holds the limits.
    pub cgroup: bool,
    /// A display of its own, in pixels (width, height). The command finds it
    /// only by its `DISPLAY`, which stands in [`BoxSpec::env`].
    pub display: Option<(u16, u16)>,
    /// Whether it may use the machine's graphics processor.
    pub gpu: bool,
    /// Whether a way of making it that holds less than its tier may be taken.
    pub weaker: bool,
    /// How many open files a program of the person's starts with (the soft limit
    /// of getrlimit(2)), where [`Limits::files`] does not say.
    pub open_files: u64,
    /// For tests of the report, in builds with assertions only: leave this out.
    pub broken: Option<Layer>,
}

/// A further command in a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSpec {
    /// As in [`BoxSpec`].
    pub command: Vec<Vec<u8>>,
    /// As in [`BoxSpec`].
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// As in [`BoxSpec`].
    pub cwd: Vec<u8>,
    /// As in [`BoxSpec`].
    pub stdio: Stdio,
    /// The box's own.
    pub tier: Tier,
    /// The box's own.
    pub class: BoxClass,
    /// The box's own.
    pub limits: Limits,
    /// Whether it has a cgroup.
    pub cgroup: bool,
    /// As [`BoxSpec::open_files`].
    pub open_files: u64,
}

/// What was measured inside a box, before its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// By what it is kept apart.
    pub method: Method,
    /// Landlock's ABI version, where the kernel has it.
    pub landlock: Option<u32>,
    /// What was tried, by side, in the order of the trials.
    pub facts: Vec<(Axis, Fact)>,
    /// Of its files, what must have been tried and have held because this box
    /// was asked for: one trial each ([`crate::holds::demanded`]). The launcher's
    /// word, not that of who tried.
    pub demanded: Vec<String>,
}

/// A layer of the fence that a test leaves out, to see that the report says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    /// The programs are mounted writable.
    ReadOnly,
    /// The host's processes are seen: its process namespace is shared.
    Processes,
    /// No system call filter.
    Filter,
    /// Capabilities are kept.
    Capabilities,
    /// The host's network is shared.
    Network,
    /// The limits are not set.
    Limits,
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
