// What the command and pid 1 of a box may not ask of the kernel. Plain data:
// the build script compiles it with libseccomp into the two programs that the
// launcher loads, so a box pays only for loading them.
//
// Two programs, because one cannot hold both a plain permission and a
// conditional refusal of the same call (libseccomp then drops the refusal).
// The kernel runs both and takes the stricter answer. The first permits what
// has a number that we know, and answers the rest as a kernel that lacks it;
// the second refuses what stands in `REFUSED`.

/// The newest call that is known, by its number, which is the same on all
/// architectures from 424 on: `futex_requeue`. A later one was not judged.
pub(crate) const NEWEST_KNOWN: i32 = 456;

/// Known, but answered as unknown: its flags are behind a pointer, where no
/// filter sees them. Libraries then use `clone`.
pub(crate) const HIDDEN: &[&str] = &["clone3"];

/// Permitted with these values of the first argument only, else as unknown.
pub(crate) const ONLY_VALUES: &[(&str, &[u32])] = &[
    // Query; none; uname of 2.6; no address randomisation (debuggers); both
    // together; a 32-bit uname.
    (
        "personality",
        &[
            0xffff_ffff,
            0,
            0x0002_0000,
            0x0004_0000,
            0x0006_0000,
            0x0000_0008,
        ],
    ),
];

/// A condition on one argument, counted from 0. Arguments are 64 bits wide,
/// though the kernel looks at 32 of most.
pub(crate) enum Test {
    /// The low 32 bits are this.
    Low(u32, u32),
    /// All 64 bits are this.
    Is(u32, u64),
    /// Not all 64 bits are this.
    IsNot(u32, u64),
    /// Greater than this, all 64 bits.
    Above(u32, u64),
    /// All these bits are set.
    Has(u32, u64),
}

/// What a refused call returns.
pub(crate) enum Answer {
    /// As without the privilege.
    Eperm,
    /// As on a kernel without the call; libraries fall back.
    Enosys,
    /// As on a kernel without the protocol.
    Eafnosupport,
}

/// One refusal: the call, all conditions that must hold, the answer, the reason.
pub(crate) type Refusal = (&'static str, &'static [Test], Answer, &'static str);

use Answer::{Eafnosupport, Enosys, Eperm};
use Test::{Above, Has, Is, IsNot, Low};

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

const FAMILY: &str = "only UNIX, INET, INET6 and NETLINK: each other family is more kernel, some leave the namespace";
const SET_ID: &str = "a set-id file in a writable folder outlives the box";
const NESTED: &str = "a nested namespace gives capabilities back";
const MOUNTS: &str = "the box's view of files is made once, by the launcher";
const PEEK: &str =
    "reads or takes from another process; ptrace stays, for debuggers, and asks the same";
const TERMINAL: &str = "types into the terminal, or changes how it is read";
const KEYS: &str = "keyrings are not in any namespace";
const CLOCK: &str = "the clock is the machine's";
const MODULE: &str = "the kernel itself";
const RING: &str = "does what the filter refuses, past it";

#[rustfmt::skip]
pub(crate) const REFUSED: &[Refusal] = &[
    // Sockets.
    ("socket", &[Is(0, 0)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 3)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 4)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 5)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 6)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 7)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 8)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 9)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 11)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 12)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 13)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 14)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 15)], Eafnosupport, FAMILY),
    ("socket", &[Above(0, 16)], Eafnosupport, FAMILY),
    ("socket", &[Is(0, 16), IsNot(2, 0)], Eafnosupport, "of netlink only ROUTE, which programs read addresses from"),
    ("socketpair", &[IsNot(0, 1)], Eafnosupport, FAMILY),
    // Terminals.
    ("ioctl", &[Low(1, 0x5412)], Eperm, TERMINAL),                    // TIOCSTI
    ("ioctl", &[Low(1, 0x541c)], Eperm, TERMINAL),                    // TIOCLINUX
    ("ioctl", &[Low(1, 0x5423)], Eperm, "loads line disciplines"),    // TIOCSETD
    // Namespaces.
    ("clone", &[Has(0, NEW_MOUNTS)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_CGROUP)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_UTS)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_IPC)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_USER)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_PID)], Eperm, NESTED),
    ("clone", &[Has(0, NEW_NET)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_TIME)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_MOUNTS)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_CGROUP)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_UTS)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_IPC)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_USER)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_PID)], Eperm, NESTED),
    ("unshare", &[Has(0, NEW_NET)], Eperm, NESTED),
    ("setns", &[], Eperm, NESTED),
    ("sethostname", &[], Eperm, "the name is the box's, given once"),
    ("setdomainname", &[], Eperm, "the name is the box's, given once"),
    // Mounts. The newer calls as unknown: programs then try the old ones.
    ("mount", &[], Eperm, MOUNTS),
    ("umount2", &[], Eperm, MOUNTS),
    ("pivot_root", &[], Eperm, MOUNTS),
    ("chroot", &[], Eperm, MOUNTS),
    ("open_tree", &[], Enosys, MOUNTS),
    ("move_mount", &[], Enosys, MOUNTS),
    ("fsopen", &[], Enosys, MOUNTS),
    ("fsconfig", &[], Enosys, MOUNTS),
    ("fsmount", &[], Enosys, MOUNTS),
    ("fspick", &[], Enosys, MOUNTS),
    ("mount_setattr", &[], Enosys, MOUNTS),
    ("open_by_handle_at", &[], Eperm, "opens what no path in the box leads to"),
    // Set-id bits. With a pointer no filter sees the mode: as unknown.
    ("chmod", &[Has(1, SET_USER_ID)], Eperm, SET_ID),
    ("chmod", &[Has(1, SET_GROUP_ID)], Eperm, SET_ID),
    ("fchmod", &[Has(1, SET_USER_ID)], Eperm, SET_ID),
    ("fchmod", &[Has(1, SET_GROUP_ID)], Eperm, SET_ID),
    ("fchmodat", &[Has(2, SET_USER_ID)], Eperm, SET_ID),
    ("fchmodat", &[Has(2, SET_GROUP_ID)], Eperm, SET_ID),
    ("fchmodat2", &[Has(2, SET_USER_ID)], Eperm, SET_ID),
    ("fchmodat2", &[Has(2, SET_GROUP_ID)], Eperm, SET_ID),
    ("mknod", &[Has(1, SET_USER_ID)], Eperm, SET_ID),
    ("mknod", &[Has(1, SET_GROUP_ID)], Eperm, SET_ID),
    ("mknodat", &[Has(2, SET_USER_ID)], Eperm, SET_ID),
    ("mknodat", &[Has(2, SET_GROUP_ID)], Eperm, SET_ID),
    ("creat", &[Has(1, SET_USER_ID)], Eperm, SET_ID),
    ("creat", &[Has(1, SET_GROUP_ID)], Eperm, SET_ID),
    ("open", &[Has(1, O_CREAT), Has(2, SET_USER_ID)], Eperm, SET_ID),
    ("open", &[Has(1, O_CREAT), Has(2, SET_GROUP_ID)], Eperm, SET_ID),
    ("open", &[Has(1, O_TMPFILE), Has(2, SET_USER_ID)], Eperm, SET_ID),
    ("open", &[Has(1, O_TMPFILE), Has(2, SET_GROUP_ID)], Eperm, SET_ID),
    ("openat", &[Has(2, O_CREAT), Has(3, SET_USER_ID)], Eperm, SET_ID),
    ("openat", &[Has(2, O_CREAT), Has(3, SET_GROUP_ID)], Eperm, SET_ID),
    ("openat", &[Has(2, O_TMPFILE), Has(3, SET_USER_ID)], Eperm, SET_ID),
    ("openat", &[Has(2, O_TMPFILE), Has(3, SET_GROUP_ID)], Eperm, SET_ID),
    ("openat2", &[], Enosys, SET_ID),
    // Other processes.
    ("process_vm_readv", &[], Eperm, PEEK),
    ("process_vm_writev", &[], Eperm, PEEK),
    ("pidfd_getfd", &[], Eperm, PEEK),
    ("kcmp", &[], Eperm, PEEK),
    // The kernel, its memory, its clock.
    ("init_module", &[], Eperm, MODULE),
    ("finit_module", &[], Eperm, MODULE),
    ("delete_module", &[], Eperm, MODULE),
    ("kexec_load", &[], Eperm, MODULE),
    ("kexec_file_load", &[], Eperm, MODULE),
    ("reboot", &[], Eperm, MODULE),
    ("swapon", &[], Eperm, MODULE),
    ("swapoff", &[], Eperm, MODULE),
    ("acct", &[], Eperm, MODULE),
    ("quotactl", &[], Eperm, MODULE),
    ("quotactl_fd", &[], Eperm, MODULE),
    ("syslog", &[], Eperm, "the kernel's log shows other users and addresses"),
    ("settimeofday", &[], Eperm, CLOCK),
    ("clock_settime", &[], Eperm, CLOCK),
    ("iopl", &[], Eperm, MODULE),
    ("ioperm", &[], Eperm, MODULE),
    ("modify_ldt", &[], Enosys, "only for 16 and 32 bit code, which a box does not run"),
    ("vhangup", &[], Eperm, TERMINAL),
    ("uselib", &[], Enosys, "old, unused"),
    ("ustat", &[], Enosys, "old, unused"),
    ("sysfs", &[], Enosys, "old, unused"),
    ("lookup_dcookie", &[], Enosys, "old, unused"),
    ("nfsservctl", &[], Enosys, "old, unused"),
    // Large parts of the kernel that programs do without.
    ("bpf", &[], Eperm, "programs in the kernel"),
    ("perf_event_open", &[], Eperm, "watches the machine; a long row of faults"),
    ("userfaultfd", &[], Eperm, "holds the kernel still in the middle of a copy"),
    ("io_uring_setup", &[], Enosys, RING),
    ("io_uring_enter", &[], Enosys, RING),
    ("io_uring_register", &[], Enosys, RING),
    ("add_key", &[], Enosys, KEYS),
    ("keyctl", &[], Enosys, KEYS),
    ("request_key", &[], Enosys, KEYS),
];
