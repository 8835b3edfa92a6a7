//! The attacks of `bailey-attack`, one a row, and from which tier on each is held.

use bailey_model::Tier;

/// One attack.
#[derive(Debug)]
pub struct Attack {
    /// Its name, as `bailey-attack` knows it.
    pub name: &'static str,
    /// What it would get, in a few words.
    pub what: &'static str,
    /// What it is told.
    pub words: Words,
    /// Where it is shown to work.
    pub control: Control,
    /// Which tiers hold it.
    pub promise: Promise,
}

/// What an attack is told of its aims, and how it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// Nothing.
    None,
    /// The person's file and what stands in it.
    Secret,
    /// The same, with a folder open that was not closed for it.
    SecretAndOpenFolder,
    /// The same, with a folder as its standard input.
    SecretAndFolderAsInput,
    /// A file of the person as its standard input.
    FileAsInput,
    /// A path of the host's that does not exist.
    NewPath,
    /// The folder that is granted read-only.
    ReadOnly,
    /// The folder that is granted writable.
    Writable,
    /// A path in the folder that is granted read-only.
    InReadOnly(&'static str),
    /// A path in the folder that is granted writable.
    InWritable(&'static str),
    /// The mark that all outside carries: also the abstract socket's name.
    Mark,
    /// The process outside and its mark.
    Process,
    /// The port on the host's loopback.
    Port,
    /// The key of shared memory.
    Key,
    /// How many inotify instances one user has.
    Inotify,
    /// Nothing; it types into the terminal that it is started on.
    Terminal,
}

/// Where an attack is shown to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// As an ordinary program of the user.
    Outside,
    /// In new namespaces of every kind and nothing else: what it aims at is only
    /// there.
    Namespaces,
}

/// Which tiers hold an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Every one.
    Always,
    /// Those with a filter and no capabilities: all but l1.
    Filtered,
    /// Those without the host's network: l2 and gated.
    NoNetwork,
    /// None: it is said to pass.
    Never,
}

impl Promise {
    /// Whether a tier promises to hold it.
    #[must_use]
    pub fn holds(self, tier: Tier) -> bool {
        match self {
            Self::Always => true,
            Self::Filtered => tier != Tier::L1,
            Self::NoNetwork => matches!(tier, Tier::L2 | Tier::Gated),
            Self::Never => false,
        }
    }
}

impl Attack {
    /// The attack of this name.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        let found = ATTACKS.iter().find(|attack| attack.name == name);
        found.unwrap_or_else(|| panic!("there is no attack {name}"))
    }
}

use Control::{Namespaces, Outside};
use Promise::{Always, Filtered, Never, NoNetwork};

/// One row of the table.
const fn row(
    name: &'static str,
    what: &'static str,
    words: Words,
    control: Control,
    promise: Promise,
) -> Attack {
    Attack {
        name,
        what,
        words,
        control,
        promise,
    }
}

/// All of them, in the order of the table.
#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    // Files.
    row("read-outside", "read a file that was not granted", Words::Secret, Outside, Always),
    row("write-outside", "write outside the grants, or lose it without a word", Words::NewPath, Outside, Always),
    row("write-read-only", "write in a read-only grant", Words::ReadOnly, Outside, Always),
    row("inherited-folder", "leave by a folder the caller left open", Words::SecretAndOpenFolder, Outside, Always),
    row("stdin-folder", "leave by a folder as standard input", Words::SecretAndFolderAsInput, Outside, Always),
    row("stdin-file", "rewrite the file that is standard input", Words::FileAsInput, Outside, Always),
    row("root-of-others", "read by way of another process's root", Words::Secret, Outside, Always),
    row("shared-memory-file", "read /dev/shm of the machine", Words::Mark, Outside, Always),
    row("devices", "open /dev/net/tun, fuse, kvm, vsock, …", Words::None, Outside, Always),
    row("hooks", "change what git runs on the next commit", Words::Writable, Outside, Always),
    row("ssh-keys", "let somebody in: .ssh in a writable grant", Words::Writable, Outside, Always),
    row("start-file", "change .bashrc in a writable grant", Words::Writable, Outside, Always),
    row("start-file-absent", "make a start file that was not there", Words::Writable, Outside, Never),
    row("uncover", "replace a covered name from other mounts", Words::Writable, Outside, Always),
    row("set-id-bits", "make a set-id program, by twelve calls", Words::Writable, Outside, Filtered),
    row("core-dump", "have a core written or piped", Words::Writable, Outside, Always),
    // Processes.
    row("pid-1-program", "read pid 1's program", Words::None, Namespaces, Always),
    row("pid-1-memory", "rewrite pid 1's memory", Words::None, Namespaces, Always),
    row("pid-1-environment", "read pid 1's environment", Words::None, Namespaces, Always),
    row("pid-1-descriptors", "list pid 1's descriptors", Words::None, Namespaces, Always),
    row("pid-1-trace", "trace pid 1", Words::None, Namespaces, Always),
    row("see-outside", "see a process outside", Words::Mark, Outside, Always),
    row("environment-outside", "read its environment", Words::Process, Outside, Always),
    row("signal-outside", "send it a signal", Words::Process, Outside, Always),
    row("pidfd-outside", "send it a signal by a pidfd", Words::Process, Outside, Always),
    row("trace-outside", "trace it", Words::Process, Outside, Always),
    row("memory-outside", "read its memory", Words::Process, Outside, Always),
    row("limits-outside", "read and set its limits", Words::Process, Outside, Always),
    row("peer-by-socket", "signal a peer by its socket, take its files", Words::InWritable("socket"), Outside, Always),
    // Sockets and other meeting places.
    row("abstract-socket", "connect to an abstract socket (X11, D-Bus)", Words::Mark, Outside, Always),
    row("socket-in-read-only", "connect to a socket in a read-only grant", Words::InReadOnly("socket"), Outside, Always),
    row("fifo-in-read-only", "write to a FIFO in a read-only grant", Words::InReadOnly("fifo"), Outside, Always),
    row("socket-in-writable", "connect to a socket in a writable grant", Words::InWritable("socket"), Outside, Never),
    row("sysv-shared-memory", "find System V shared memory", Words::Key, Outside, Always),
    row("message-queue", "open a POSIX message queue", Words::Mark, Outside, Always),
    row("loopback-of-host", "connect to the host's loopback", Words::Port, Outside, NoNetwork),
    row("socket-names", "list the host's sockets", Words::Mark, Outside, NoNetwork),
    row("vsock", "open a socket to the hypervisor", Words::None, Outside, Filtered),
    row("odd-families", "open sockets of rare families", Words::None, Namespaces, Filtered),
    row("netlink-others", "open netlink beside ROUTE", Words::None, Outside, Filtered),
    // Terminals and counts.
    row("type-into-terminal", "type into the caller's terminal", Words::Terminal, Outside, Always),
    row("type-with-high-bits", "the same with bits above the 32nd", Words::Terminal, Outside, Always),
    row("terminal-of-linux", "reach TIOCLINUX", Words::None, Outside, Filtered),
    row("line-discipline", "reach TIOCSETD", Words::None, Outside, Filtered),
    row("take-all-inotify", "take all the inotify instances of the user", Words::Inotify, Outside, Always),
    // Privileges.
    row("no-new-privileges", "get privileges from set-id programs", Words::None, Outside, Always),
    row("capabilities", "hold a capability", Words::None, Namespaces, Always),
    row("bounding-set", "keep capabilities within reach", Words::None, Outside, Filtered),
    row("user-namespace-unshare", "make a user namespace by unshare", Words::None, Outside, Filtered),
    row("user-namespace-clone", "the same by clone", Words::None, Outside, Filtered),
    row("user-namespace-clone3", "the same by clone3", Words::None, Outside, Filtered),
    // The kernel: what is reached at all.
    row("i386-entry", "ask by the entry of 32-bit programs", Words::None, Outside, Filtered),
    row("i386-socket", "open a vsock by it", Words::None, Outside, Filtered),
    row("io-uring", "reach io_uring", Words::None, Outside, Filtered),
    row("bpf", "reach bpf", Words::None, Outside, Filtered),
    row("perf-event", "reach perf_event_open", Words::None, Outside, Filtered),
    row("userfaultfd", "reach userfaultfd", Words::None, Outside, Filtered),
    row("keyring", "put a key into a keyring", Words::None, Outside, Filtered),
    row("kcmp", "reach kcmp", Words::None, Outside, Filtered),
    row("memory-of-own", "reach process_vm_readv", Words::None, Outside, Filtered),
    row("open-by-handle", "reach open_by_handle_at", Words::None, Outside, Filtered),
    row("personality", "make all that is readable executable", Words::None, Outside, Filtered),
    row("mount", "reach mount", Words::None, Outside, Filtered),
    row("umount", "reach umount2", Words::None, Outside, Filtered),
    row("chroot", "reach chroot", Words::None, Outside, Filtered),
    row("setns", "reach setns", Words::None, Outside, Filtered),
    row("new-mount-calls", "reach open_tree, mount_setattr", Words::None, Outside, Filtered),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_attack_and_a_tier_holds_what_a_weaker_one_does() {
        let mut names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
        for attack in ATTACKS {
            let held =
                [Tier::L1, Tier::L15, Tier::L2, Tier::Gated].map(|t| attack.promise.holds(t));
            assert!(held.is_sorted(), "{attack:?}");
        }
    }
}
