//! What reaches the kernel. Each call has arguments that the kernel itself
//! would refuse as such (`EBADF`, `EFAULT`, `EINVAL`), so nothing is done by
//! one that gets through; a filter's words are `EPERM`, `ENOSYS` and
//! `EAFNOSUPPORT`.

use bailey_model::Axis;
use nix::errno::Errno;

use super::bait::Targets;
use super::sys::{self, NOWHERE};
use super::{Facts, name};

const NONE: usize = usize::MAX;
/// A flag of namespaces beside one that unshare(2) does not know.
const BAD_FLAG: usize = 0x2000;
/// A type of socket that there is not.
const BAD_TYPE: usize = 15;
const NEW_USER: usize = 0x1000_0000;
const NEW_NET: usize = 0x4000_0000;
const TIOCSTI: usize = 0x5412;
const TIOCLINUX: usize = 0x541c;
const AF_PACKET: usize = 17;
const AF_ALG: usize = 38;
const AF_VSOCK: usize = 40;
/// A number that the kernel has not given yet.
const UNKNOWN: libc::c_long = 999;

type Call = (&'static str, libc::c_long, [usize; 6]);

const CALLS: &[Call] = &[
    (
        "unshare user",
        libc::SYS_unshare,
        [NEW_USER | BAD_FLAG, 0, 0, 0, 0, 0],
    ),
    (
        "unshare net",
        libc::SYS_unshare,
        [NEW_NET | BAD_FLAG, 0, 0, 0, 0, 0],
    ),
    ("clone3", libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
    ("setns", libc::SYS_setns, [NONE, 0, 0, 0, 0, 0]),
    (
        "mount",
        libc::SYS_mount,
        [NOWHERE, NOWHERE, NOWHERE, 0, 0, 0],
    ),
    (
        "open_tree",
        libc::SYS_open_tree,
        [NONE, NOWHERE, 0xffff, 0, 0, 0],
    ),
    ("chroot", libc::SYS_chroot, [NOWHERE, 0, 0, 0, 0, 0]),
    ("bpf", libc::SYS_bpf, [9999, 0, 1 << 20, 0, 0, 0]),
    (
        "perf_event_open",
        libc::SYS_perf_event_open,
        [NOWHERE, 0, 0, NONE, NONE, 0],
    ),
    ("keyctl", libc::SYS_keyctl, [9999, 0, 0, 0, 0, 0]),
    ("add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0, 0, 0]),
    (
        "io_uring_setup",
        libc::SYS_io_uring_setup,
        [1, NOWHERE, 0, 0, 0, 0],
    ),
    ("userfaultfd", libc::SYS_userfaultfd, [3, 0, 0, 0, 0, 0]),
    (
        "kexec_load",
        libc::SYS_kexec_load,
        [0, NONE, NOWHERE, NONE, 0, 0],
    ),
    (
        "init_module",
        libc::SYS_init_module,
        [NOWHERE, 1, NOWHERE, 0, 0, 0],
    ),
    (
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        [NONE, NOWHERE, 1, NOWHERE, 1, 1],
    ),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, [NONE, 0, 0, 0, 0, 0]),
    (
        "socket AF_VSOCK",
        libc::SYS_socket,
        [AF_VSOCK, BAD_TYPE, 0, 0, 0, 0],
    ),
    (
        "socket AF_PACKET",
        libc::SYS_socket,
        [AF_PACKET, BAD_TYPE, 0, 0, 0, 0],
    ),
    (
        "socket AF_ALG",
        libc::SYS_socket,
        [AF_ALG, BAD_TYPE, 0, 0, 0, 0],
    ),
    (
        "ioctl TIOCSTI",
        libc::SYS_ioctl,
        [NONE, TIOCSTI, 0, 0, 0, 0],
    ),
    (
        "ioctl TIOCSTI, high bits",
        libc::SYS_ioctl,
        [NONE, 1 << 32 | TIOCSTI, 0, 0, 0, 0],
    ),
    (
        "ioctl TIOCLINUX",
        libc::SYS_ioctl,
        [NONE, TIOCLINUX, 0, 0, 0, 0],
    ),
    ("chmod set-id", libc::SYS_fchmod, [NONE, 0o4755, 0, 0, 0, 0]),
    ("number 999", UNKNOWN, [0, 0, 0, 0, 0, 0]),
];

/// What each call is answered where this process is, in their order.
pub(super) fn answers() -> Vec<Option<i32>> {
    let answer = |call: &Call| sys::ask(call.1, call.2).err().map(|errno| errno as i32);
    CALLS.iter().map(answer).collect()
}

pub(super) fn try_all(facts: &mut Facts, targets: &Targets) {
    for (at, (what, number, arguments)) in CALLS.iter().enumerate() {
        let (got, held) = match sys::ask(*number, *arguments) {
            Ok(_) => ("done".to_owned(), Some(false)),
            Err(errno) if !is_filtered(errno) => (name(errno), Some(false)),
            // It could not fail: nothing of the box's was needed for it.
            Err(errno) if targets.answers.get(at) == Some(&Some(errno as i32)) => {
                (format!("{}, as outside", name(errno)), None)
            }
            Err(errno) => (name(errno), Some(true)),
        };
        facts.add(Axis::Syscalls, what, &got, held);
    }
    let mode = mode();
    let got = mode.as_deref().unwrap_or("cannot be told");
    facts.add(
        Axis::Syscalls,
        "filter",
        got,
        mode.as_deref().map(|mode| mode == "2"),
    );
}

fn is_filtered(errno: Errno) -> bool {
    matches!(errno, Errno::EPERM | Errno::ENOSYS | Errno::EAFNOSUPPORT)
}

/// The `Seccomp:` line of proc_pid_status(5); 2 is a filter.
fn mode() -> Option<String> {
    super::capabilities::status("Seccomp:")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: outside every filter, what tells a filter's refusal from the
    /// kernel's own gets as far as the kernel.
    #[test]
    fn without_a_filter_the_calls_reach_the_kernel() {
        for telling in [
            "unshare user",
            "unshare net",
            "setns",
            "mount",
            "open_tree",
            "chroot",
            "userfaultfd",
            "process_vm_readv",
            "socket AF_VSOCK",
            "socket AF_PACKET",
            "socket AF_ALG",
            "ioctl TIOCSTI",
            "ioctl TIOCSTI, high bits",
            "ioctl TIOCLINUX",
            "chmod set-id",
        ] {
            let (_, number, arguments) = CALLS.iter().find(|call| call.0 == telling).unwrap();
            let errno = sys::ask(*number, *arguments).unwrap_err();
            assert!(!is_filtered(errno), "{telling}: {errno:?}");
        }
    }
}
