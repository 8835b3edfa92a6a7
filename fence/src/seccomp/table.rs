// What the command and pid 1 of a box may not ask of the kernel. Plain data:
// the build script compiles it with libseccomp into the programs that the
// launcher loads, so a box pays only for loading them.
//
// Two programs for a box, because one cannot hold both a plain permission and a
// conditional refusal of the same call (libseccomp then drops the refusal). The
// kernel runs both and takes the stricter answer. The first permits what has a
// number that we know, and answers the rest as a kernel that lacks it; the
// second refuses what stands in `REFUSED`. A call by another entry than the
// machine's own (i386, x32) ends the process in both.

/// The newest call that is known, by its number, which is the same on all
/// architectures from 424 on: `futex_requeue`. A later one was not judged.
pub(crate) const NEWEST_KNOWN: i32 = 456;

/// Known, but answered as unknown, with the reason.
pub(crate) const HIDDEN: &[(&str, &str)] = &[(
    "clone3",
    "its flags are behind a pointer, where no filter sees them; libraries then use clone",
)];

/// Permitted with these values of the first argument only, else as unknown.
pub(crate) const ONLY_VALUES: &[(&str, &[u32], &str)] = &[(
    "personality",
    &[
        0xffff_ffff,
        0,
        0x0002_0000,
        0x0004_0000,
        0x0006_0000,
        0x0000_0008,
    ],
    "a query, none, a uname of 2.6, no address randomisation (debuggers), both, a 32-bit uname; \
     the others are for programs of other systems, and one makes all memory executable",
)];

/// A condition on one argument, counted from 0. Arguments are 64 bits wide,
/// though the kernel looks at 32 of most.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Test {
    /// The low 32 bits are this.
    Low(u32, u32),
    /// All 64 bits are this.
    Is(u32, u64),
    /// All 64 bits are none of these, which ascend. So an allow-list is written.
    NoneOf(u32, &'static [u64]),
    /// All these bits are set.
    Has(u32, u64),
    /// Of these bits (second) just those (third) are set.
    Part(u32, u64, u64),
}

/// What a refused call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As without the privilege.
    Eperm,
    /// As on a kernel without the call; libraries fall back.
    Enosys,
    /// As on a kernel without the protocol of the family.
    Eprotonosupport,
    /// As on a kernel without the family.
    Eafnosupport,
}

/// Which boxes a row holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Each class.
    Every,
    /// The plain class; what a browser needs for a sandbox of its own.
    Plain,
    /// Boxes without a network that have no network namespace to be without it
    /// in. A program of its own, beside the class's.
    NoNetwork,
    /// Boxes without namespaces: what they would hold and Landlock does not. A
    /// program of its own, beside the class's.
    NoNamespaces,
}

/// One refusal: the call, all conditions that must hold, the answer, the boxes,
/// the reason.
pub(crate) type Refusal = (&'static str, &'static [Test], Answer, For, &'static str);

use Answer::{Eafnosupport, Enosys, Eperm, Eprotonosupport};
use For::{Every, NoNamespaces, NoNetwork, Plain};
use Test::{Has, Is, Low, NoneOf, Part};

const UNIX: u64 = 1;
const UNIX_LOW: u32 = 1;
/// Of the kind of a socket: set in those of datagrams and of raw packets, not in
/// those that stay with their peer.
const DATAGRAMS: u64 = 2;
const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;
/// Netlink's first protocol.
const ROUTE: u64 = 0;
/// By the type alone, ICMP, TCP, UDP, ICMPv6.
const CARRIED: &[u64] = &[0, 1, 6, 17, 58];

/// The bits of a socket's type that are its kind, and the kinds that are neither
/// streams, datagrams nor raw packets.
const KIND: u64 = 0xf;
const RDM: u64 = 4;
const SEQPACKET: u64 = 5;
const DCCP: u64 = 6;
const PACKET: u64 = 10;

const SET_USER_ID: u64 = 0o4000;
const SET_GROUP_ID: u64 = 0o2000;
const O_CREAT: u64 = 0o100;
// The bit of O_TMPFILE that is its own.
const O_TMPFILE: u64 = 0o20_000_000;

const NEW_TIME: u64 = 0x80;
const NEW_MOUNTS: u64 = 0x0002_0000;
const NEW_CGROUP: u64 = 0x0200_0000;
const NEW_UTS: u64 = 0x0400_0000;
const NEW_IPC: u64 = 0x0800_0000;
const NEW_USER: u64 = 0x1000_0000;
const NEW_PID: u64 = 0x2000_0000;
const NEW_NET: u64 = 0x4000_0000;

// Levels of setsockopt(2).
const SOL_IP: u32 = 0;
const SOL_TCP: u32 = 6;
const SOL_IPV6: u32 = 41;

const FAMILY: &str = "only UNIX, INET, INET6 and NETLINK: each other family is more kernel, some leave the namespace";
const PROTOCOL: &str = "only TCP, UDP and ICMP: the gate carries no other, and SCTP, DCCP, L2TP, MPTCP and SMC are more kernel";
const KINDS: &str =
    "SCTP and DCCP are what these kinds of socket mean there, whatever protocol is named";
const ALONE: &str = "no network, where no network namespace can take it away";
const SHARED: &str = "shared with every process of the machine, where no namespace parts them";
const PATHS: &str = "a socket with a path leads to any program of the user's: the session's bus, a container engine, the node";
const KEPT: &str = "what is there keeps its mode, owner, times and attributes; by descriptor they change only where one may open";
const OTHERS: &str = "the limits and priorities of the user's other processes, where no namespace hides them; one's own stay";
const PACKETS: &str =
    "loads rules for packets, a long row of faults for whoever has a network namespace of its own";
const SET_ID: &str = "a set-id file in a writable folder outlives the box";
const NESTED: &str = "a nested namespace gives capabilities back";
const SANDBOX: &str =
    "a nested namespace gives capabilities back; a browser makes its sandbox of these three";
const NAMED: &str = "the name is the box's, given once";
const MOUNTS: &str = "the box's view of files is made once, by the launcher";
const PEEK: &str =
    "reads or takes from another process; ptrace stays, for debuggers, and asks the same";
const KEYS: &str = "keyrings are not in any namespace";
const CLOCK: &str = "the clock is the machine's";
const MODULE: &str = "the kernel itself";
const MACHINE: &str = "the whole machine's, never a box's";
const RING: &str = "does what the filter refuses, past it";
const OLD: &str = "old, unused";

#[rustfmt::skip]
pub(crate) const REFUSED: &[Refusal] = &[
    // Sockets.
    ("socket", &[NoneOf(0, &[UNIX, INET, INET6, NETLINK])], Eafnosupport, Every, FAMILY),
    ("socket", &[Is(0, NETLINK), NoneOf(2, &[ROUTE])], Eafnosupport, Every, "of netlink only ROUTE, which programs read addresses from"),
    ("socket", &[Is(0, INET), NoneOf(2, CARRIED)], Eprotonosupport, Every, PROTOCOL),
    ("socket", &[Is(0, INET6), NoneOf(2, CARRIED)], Eprotonosupport, Every, PROTOCOL),
    // By protocol 0 the kind alone chooses it. Beside the kind stand flags.
    ("socket", &[Is(0, INET), Part(1, KIND, RDM)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET), Part(1, KIND, SEQPACKET)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET), Part(1, KIND, DCCP)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET), Part(1, KIND, PACKET)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET6), Part(1, KIND, RDM)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET6), Part(1, KIND, SEQPACKET)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET6), Part(1, KIND, DCCP)], Eprotonosupport, Every, KINDS),
    ("socket", &[Is(0, INET6), Part(1, KIND, PACKET)], Eprotonosupport, Every, KINDS),
    ("socket", &[NoneOf(0, &[UNIX])], Eafnosupport, NoNetwork, ALONE),
    ("socketpair", &[NoneOf(0, &[UNIX])], Eafnosupport, Every, FAMILY),
    ("socketpair", &[NoneOf(0, &[UNIX])], Eafnosupport, NoNetwork, ALONE),
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 64)], Eperm, Every, PACKETS),       // IPT_SO_SET_REPLACE
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 65)], Eperm, Every, PACKETS),       // IPT_SO_SET_ADD_COUNTERS
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 96)], Eperm, Every, PACKETS),       // ARPT_SO_SET_REPLACE
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 97)], Eperm, Every, PACKETS),       // ARPT_SO_SET_ADD_COUNTERS
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 128)], Eperm, Every, PACKETS),      // EBT_SO_SET_ENTRIES
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 129)], Eperm, Every, PACKETS),      // EBT_SO_SET_COUNTERS
    ("setsockopt", &[Low(1, SOL_IPV6), Low(2, 64)], Eperm, Every, PACKETS),     // IP6T_SO_SET_REPLACE
    ("setsockopt", &[Low(1, SOL_IPV6), Low(2, 65)], Eperm, Every, PACKETS),     // IP6T_SO_SET_ADD_COUNTERS
    ("setsockopt", &[Low(1, SOL_IP), Low(2, 17)], Eperm, Every, PACKETS),       // IP_XFRM_POLICY
    ("setsockopt", &[Low(1, SOL_IPV6), Low(2, 35)], Eperm, Every, PACKETS),     // IPV6_XFRM_POLICY
    ("setsockopt", &[Low(1, SOL_TCP), Low(2, 31)], Eperm, Every, "TCP_ULP loads TLS and other layers into the kernel; libraries do without"),
    // Terminals. The kernel looks at 32 bits of the request.
    ("ioctl", &[Low(1, 0x5412)], Eperm, Every, "TIOCSTI types into the terminal"),
    ("ioctl", &[Low(1, 0x541c)], Eperm, Every, "TIOCLINUX copies from the screen and types it"),
    ("ioctl", &[Low(1, 0x5423)], Eperm, Every, "TIOCSETD loads line disciplines"),
    ("vhangup", &[], Eperm, Every, "takes the terminal from its other users"),
    // Namespaces.
    ("clone", &[Has(0, NEW_MOUNTS)], Eperm, Every, NESTED),
    ("clone", &[Has(0, NEW_CGROUP)], Eperm, Every, NESTED),
    ("clone", &[Has(0, NEW_UTS)], Eperm, Every, NESTED),
    ("clone", &[Has(0, NEW_IPC)], Eperm, Every, NESTED),
    ("clone", &[Has(0, NEW_USER)], Eperm, Plain, SANDBOX),
    ("clone", &[Has(0, NEW_PID)], Eperm, Plain, SANDBOX),
    ("clone", &[Has(0, NEW_NET)], Eperm, Plain, SANDBOX),
    ("unshare", &[Has(0, NEW_TIME)], Eperm, Every, NESTED),
    ("unshare", &[Has(0, NEW_MOUNTS)], Eperm, Every, NESTED),
    ("unshare", &[Has(0, NEW_CGROUP)], Eperm, Every, NESTED),
    ("unshare", &[Has(0, NEW_UTS)], Eperm, Every, NESTED),
    ("unshare", &[Has(0, NEW_IPC)], Eperm, Every, NESTED),
    ("unshare", &[Has(0, NEW_USER)], Eperm, Plain, SANDBOX),
    ("unshare", &[Has(0, NEW_PID)], Eperm, Plain, SANDBOX),
    ("unshare", &[Has(0, NEW_NET)], Eperm, Plain, SANDBOX),
    ("setns", &[], Eperm, Every, NESTED),
    ("sethostname", &[], Eperm, Every, NAMED),
    ("setdomainname", &[], Eperm, Every, NAMED),
    // Mounts. The newer calls as unknown: programs then try the old ones.
    ("mount", &[], Eperm, Every, MOUNTS),
    ("umount2", &[], Eperm, Every, MOUNTS),
    ("pivot_root", &[], Eperm, Every, MOUNTS),
    ("chroot", &[], Eperm, Plain, "the box's view of files is made once; a browser takes its own away by it"),
    ("open_tree", &[], Enosys, Every, MOUNTS),
    ("move_mount", &[], Enosys, Every, MOUNTS),
    ("fsopen", &[], Enosys, Every, MOUNTS),
    ("fsconfig", &[], Enosys, Every, MOUNTS),
    ("fsmount", &[], Enosys, Every, MOUNTS),
    ("fspick", &[], Enosys, Every, MOUNTS),
    ("mount_setattr", &[], Enosys, Every, MOUNTS),
    ("open_by_handle_at", &[], Eperm, Every, "opens what no path in the box leads to"),
    // Set-id bits, by every call that takes a mode which the kernel keeps. With
    // a pointer no filter sees the mode: as unknown.
    ("chmod", &[Has(1, SET_USER_ID)], Eperm, Every, SET_ID),
    ("chmod", &[Has(1, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("fchmod", &[Has(1, SET_USER_ID)], Eperm, Every, SET_ID),
    ("fchmod", &[Has(1, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("fchmodat", &[Has(2, SET_USER_ID)], Eperm, Every, SET_ID),
    ("fchmodat", &[Has(2, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("fchmodat2", &[Has(2, SET_USER_ID)], Eperm, Every, SET_ID),
    ("fchmodat2", &[Has(2, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("mknod", &[Has(1, SET_USER_ID)], Eperm, Every, SET_ID),
    ("mknod", &[Has(1, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("mknodat", &[Has(2, SET_USER_ID)], Eperm, Every, SET_ID),
    ("mknodat", &[Has(2, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("creat", &[Has(1, SET_USER_ID)], Eperm, Every, SET_ID),
    ("creat", &[Has(1, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("open", &[Has(1, O_CREAT), Has(2, SET_USER_ID)], Eperm, Every, SET_ID),
    ("open", &[Has(1, O_CREAT), Has(2, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("open", &[Has(1, O_TMPFILE), Has(2, SET_USER_ID)], Eperm, Every, SET_ID),
    ("open", &[Has(1, O_TMPFILE), Has(2, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("openat", &[Has(2, O_CREAT), Has(3, SET_USER_ID)], Eperm, Every, SET_ID),
    ("openat", &[Has(2, O_CREAT), Has(3, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("openat", &[Has(2, O_TMPFILE), Has(3, SET_USER_ID)], Eperm, Every, SET_ID),
    ("openat", &[Has(2, O_TMPFILE), Has(3, SET_GROUP_ID)], Eperm, Every, SET_ID),
    ("openat2", &[], Enosys, Every, SET_ID),
    // Other processes.
    ("process_vm_readv", &[], Eperm, Every, PEEK),
    ("process_vm_writev", &[], Eperm, Every, PEEK),
    ("pidfd_getfd", &[], Eperm, Every, PEEK),
    ("kcmp", &[], Eperm, Every, PEEK),
    ("move_pages", &[], Eperm, Every, "tells and changes where another process's memory lies"),
    ("migrate_pages", &[], Eperm, Every, "tells and changes where another process's memory lies"),
    ("shmget", &[], Enosys, NoNamespaces, SHARED),
    ("shmat", &[], Enosys, NoNamespaces, SHARED),
    ("shmctl", &[], Enosys, NoNamespaces, SHARED),
    ("msgget", &[], Enosys, NoNamespaces, SHARED),
    ("msgsnd", &[], Enosys, NoNamespaces, SHARED),
    ("msgrcv", &[], Enosys, NoNamespaces, SHARED),
    ("msgctl", &[], Enosys, NoNamespaces, SHARED),
    ("semget", &[], Enosys, NoNamespaces, SHARED),
    ("semop", &[], Enosys, NoNamespaces, SHARED),
    ("semtimedop", &[], Enosys, NoNamespaces, SHARED),
    ("semctl", &[], Enosys, NoNamespaces, SHARED),
    ("mq_open", &[], Enosys, NoNamespaces, SHARED),
    ("mq_unlink", &[], Enosys, NoNamespaces, SHARED),
    ("prlimit64", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),
    ("setpriority", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),           // PRIO_PROCESS
    ("setpriority", &[NoneOf(1, &[0])], Eperm, NoNamespaces, OTHERS),
    ("ioprio_set", &[NoneOf(0, &[1])], Eperm, NoNamespaces, OTHERS),            // IOPRIO_WHO_PROCESS
    ("ioprio_set", &[NoneOf(1, &[0])], Eperm, NoNamespaces, OTHERS),
    ("sched_setaffinity", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),
    ("sched_setscheduler", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),
    ("sched_setparam", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),
    ("sched_setattr", &[NoneOf(0, &[0])], Eperm, NoNamespaces, OTHERS),
    // Paths are the host's own there, and Landlock judges only what is opened,
    // made and removed.
    ("socket", &[Low(0, UNIX_LOW)], Eafnosupport, NoNamespaces, PATHS),
    ("socketpair", &[Low(0, UNIX_LOW), Has(1, DATAGRAMS)], Eafnosupport, NoNamespaces, "a pair of datagram sockets can send elsewhere than to each other"),
    ("chmod", &[], Eperm, NoNamespaces, KEPT),
    ("fchmodat", &[], Eperm, NoNamespaces, KEPT),
    ("fchmodat2", &[], Eperm, NoNamespaces, KEPT),
    ("chown", &[], Eperm, NoNamespaces, KEPT),
    ("lchown", &[], Eperm, NoNamespaces, KEPT),
    ("fchownat", &[], Eperm, NoNamespaces, KEPT),
    ("utime", &[], Eperm, NoNamespaces, KEPT),
    ("utimes", &[], Eperm, NoNamespaces, KEPT),
    ("futimesat", &[NoneOf(1, &[0])], Eperm, NoNamespaces, KEPT),              // 0: the open file itself
    ("utimensat", &[NoneOf(1, &[0])], Eperm, NoNamespaces, KEPT),
    ("setxattr", &[], Eperm, NoNamespaces, KEPT),
    ("lsetxattr", &[], Eperm, NoNamespaces, KEPT),
    ("removexattr", &[], Eperm, NoNamespaces, KEPT),
    ("lremovexattr", &[], Eperm, NoNamespaces, KEPT),
    ("prctl", &[Low(0, 35)], Eperm, Every, "PR_SET_MM gives a false name and place in /proc; for tools that restore processes"),
    // The kernel, its memory, its clock.
    ("init_module", &[], Eperm, Every, MODULE),
    ("finit_module", &[], Eperm, Every, MODULE),
    ("delete_module", &[], Eperm, Every, MODULE),
    ("kexec_load", &[], Eperm, Every, MODULE),
    ("kexec_file_load", &[], Eperm, Every, MODULE),
    ("reboot", &[], Eperm, Every, MACHINE),
    ("swapon", &[], Eperm, Every, MACHINE),
    ("swapoff", &[], Eperm, Every, MACHINE),
    ("acct", &[], Eperm, Every, MACHINE),
    ("quotactl", &[], Eperm, Every, MACHINE),
    ("quotactl_fd", &[], Eperm, Every, MACHINE),
    ("syslog", &[], Eperm, Every, "the kernel's log shows other users and addresses"),
    ("settimeofday", &[], Eperm, Every, CLOCK),
    ("clock_settime", &[], Eperm, Every, CLOCK),
    ("iopl", &[], Eperm, Every, MACHINE),
    ("ioperm", &[], Eperm, Every, MACHINE),
    ("modify_ldt", &[], Enosys, Every, "only for 16 and 32 bit code, which a box does not run"),
    ("uselib", &[], Enosys, Every, OLD),
    ("ustat", &[], Enosys, Every, OLD),
    ("sysfs", &[], Enosys, Every, OLD),
    ("lookup_dcookie", &[], Enosys, Every, OLD),
    ("nfsservctl", &[], Enosys, Every, OLD),
    ("remap_file_pages", &[], Enosys, Every, OLD),
    // Large parts of the kernel that programs do without.
    ("bpf", &[], Eperm, Every, "programs in the kernel"),
    ("perf_event_open", &[], Eperm, Every, "watches the machine; a long row of faults"),
    ("userfaultfd", &[], Eperm, Every, "holds the kernel still in the middle of a copy"),
    ("io_uring_setup", &[], Enosys, Every, RING),
    ("io_uring_enter", &[], Enosys, Every, RING),
    ("io_uring_register", &[], Enosys, Every, RING),
    ("io_setup", &[], Enosys, Every, "the old queue of reads and writes: how many there may be (fs.aio-max-nr) is counted for the whole machine"),
    ("fcntl", &[Low(1, 1024)], Eperm, Every, "F_SETLEASE: whoever opens the file outside waits for it, 45 s each time, on what is granted read-only too"),
    ("add_key", &[], Enosys, Every, KEYS),
    ("keyctl", &[], Enosys, Every, KEYS),
    ("request_key", &[], Enosys, Every, KEYS),
    ("fanotify_init", &[], Eperm, Every, "watches files; inotify does for programs, and its counts are bounded"),
    ("fanotify_mark", &[], Eperm, Every, "watches files; inotify does for programs, and its counts are bounded"),
    ("vmsplice", &[], Enosys, Every, "lends pages to pipes and reads them after they changed hands: a row of faults; programs fall back to write"),
    ("memfd_secret", &[], Enosys, Every, "memory of this kind keeps the machine from hibernating"),
    ("cachestat", &[], Enosys, Every, "tells what others have read of a shared file"),
];

/// What was judged and is let through, with the reason.
pub(crate) const LEFT: &[(&str, &str)] = &[
    (
        "ptrace",
        "debuggers; the process namespace holds it inside, and the filter is asked after a tracer's change",
    ),
    (
        "seccomp",
        "a program's own filter, a listener too, only takes away: of several answers the strictest holds",
    ),
    (
        "name_to_handle_at",
        "a handle says no more than stat; to open by one is refused",
    ),
    ("arch_prctl", "only the caller's own registers"),
    (
        "pkey_alloc",
        "keys of the processor over the caller's own memory; engines guard their code with them",
    ),
    ("pkey_free", "as pkey_alloc"),
    ("pkey_mprotect", "as pkey_alloc"),
    (
        "mkdir",
        "the kernel itself drops set-id bits of a new folder's mode",
    ),
    ("mkdirat", "as mkdir"),
    (
        "mq_open",
        "set-id bits there make nothing that can be executed; queues are the box's own",
    ),
    (
        "setxattr",
        "a file capability needs one, and the box's mounts honour none",
    ),
    (
        "process_madvise",
        "asks the same as ptrace, and only advises",
    ),
    ("pidfd_open", "only for processes of the box"),
    (
        "pidfd_send_signal",
        "as kill: a pidfd of another namespace is refused",
    ),
    (
        "memfd_create",
        "memory with a name; compilers of running code need it",
    ),
    (
        "mbind",
        "the caller's own memory; engines and databases use it",
    ),
    ("set_mempolicy", "as mbind"),
    ("get_mempolicy", "as mbind"),
    ("adjtimex", "without the privilege only reads"),
    ("clock_adjtime", "without the privilege only reads"),
    (
        "splice",
        "moves what the caller may read and write; shells and servers use it",
    ),
    ("tee", "as splice"),
    ("landlock_create_ruleset", "only takes away"),
    ("landlock_add_rule", "only takes away"),
    ("landlock_restrict_self", "only takes away"),
    ("inotify_init1", "counted; the box's own count is bounded"),
];
