//! The system calls that have no safe wrapper.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use bailey_fence_plan::Namespaces;

/// A child made by clone3(2).
#[derive(Debug)]
pub(crate) struct Cloned {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

/// The namespaces that every box has of its own. That of cgroups comes later,
/// see [`unshare`].
const ALWAYS: libc::c_int =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// linux/sched.h; the library has it as a type of its own on some targets.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn unsigned(flags: libc::c_int) -> u32 {
    u32::from_ne_bytes(flags.to_ne_bytes())
}

/// Splits this process in two, the child (`None`) in new namespaces and, where
/// one is given, in that cgroup. The caller has one thread, or the child's
/// memory is not consistent.
pub(crate) fn clone_into_namespaces(
    own: Namespaces,
    cgroup: Option<BorrowedFd<'_>>,
) -> io::Result<Option<Cloned>> {
    let mut flags = ALWAYS | libc::CLONE_PIDFD;
    if own.processes {
        flags |= libc::CLONE_NEWPID;
    }
    if own.network {
        flags |= libc::CLONE_NEWNET;
    }
    clone(flags, cgroup)
}

/// The same with new namespaces of these kinds alone, `CLONE_NEW*`.
pub(crate) fn clone_into(namespaces: libc::c_int) -> io::Result<Option<Cloned>> {
    clone(libc::CLONE_PIDFD | namespaces, None)
}

/// The same without new namespaces.
pub(crate) fn clone_into_cgroup(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Cloned>> {
    clone(libc::CLONE_PIDFD, cgroup)
}

fn clone(flags: libc::c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Cloned>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain numbers, for which zero means "not used".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from(unsigned(flags));
    args.pidfd = ptr::from_mut(&mut pidfd).expose_provenance() as u64;
    args.exit_signal = u64::from(unsigned(libc::SIGCHLD));
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(unsigned(cgroup.as_raw_fd()));
    }
    // SAFETY: `args` and the place for the pidfd outlive the call. Without a
    // stack the child goes on here on a copy of this one, as after fork(2);
    // with one thread no lock is held by another.
    let pid = done(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut args,
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has just made this descriptor for this process.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some(Cloned {
        pid: i32::try_from(pid).unwrap_or(i32::MAX),
        pidfd,
    }))
}

/// Splits this process in two, the child (`None`) a child of this one's parent.
/// By the older call: a filter that is loaded already has no other.
pub(crate) fn clone_sibling() -> io::Result<Option<Cloned>> {
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD;
    // SAFETY: the place for the pidfd (third, as that of a parent's thread id)
    // outlives the call. Without a stack the child goes on here on a copy of
    // this one; with one thread no lock is held by another.
    let pid = done(unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            0_usize,
            &raw mut pidfd,
            0_usize,
            0_usize,
        )
    })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has just made this descriptor for this process.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Some(Cloned {
        pid: i32::try_from(pid).unwrap_or(i32::MAX),
        pidfd,
    }))
}

/// A namespace of its own of one kind, `CLONE_NEW*`. That of cgroups has its root
/// where this process is now: taken once it is in its own cgroup, so that it
/// sees nothing above.
pub(crate) fn unshare(kind: libc::c_int) -> io::Result<()> {
    // SAFETY: only what this process sees of the machine changes.
    done(unsafe { libc::unshare(kind) }.into()).map(drop)
}

/// Landlock's ABI version, `None` where the kernel has none or it is switched
/// off.
pub(crate) fn landlock_abi() -> Option<u32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel wants no attributes and makes nothing.
    let got = done(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0_usize,
            VERSION,
        )
    });
    got.ok().and_then(|abi| u32::try_from(abi).ok())
}

/// fork(2): the child's pid, `None` in the child. One thread, as above.
pub(crate) fn fork() -> io::Result<Option<rustix::process::Pid>> {
    // SAFETY: with one thread the child may do whatever this process may.
    let pid = unsafe { libc::fork() };
    done(pid.into())?;
    Ok(rustix::process::Pid::from_raw(pid))
}

/// Bytes of the stack of [`unshare_apart`]'s process.
const APART_STACK: usize = 16 << 10;

/// What unshare(2) answers to a process of its own, which has ended when this returns.
/// It borrows this process's memory (CLONE_VM) and this one waits until it is gone
/// (CLONE_VFORK), as vfork(2) does: a copy takes longer than the question.
///
/// # Errors
/// Of the outer kind when there is no such process: nothing was asked.
pub(crate) fn unshare_apart(flags: libc::c_int) -> io::Result<Result<(), nix::errno::Errno>> {
    extern "C" fn ask(flags: *mut libc::c_void) -> libc::c_int {
        // SAFETY: unshare(2) touches no memory, and is asked for its own process.
        match unsafe { libc::syscall(libc::SYS_unshare, flags as usize) } {
            0 => 0,
            _ => nix::errno::Errno::last_raw(),
        }
    }
    let mut stack = vec![0_u128; APART_STACK / size_of::<u128>()];
    let how = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let flags = std::ptr::without_provenance_mut(usize::try_from(flags).unwrap_or_default());
    // SAFETY: the stack grows down from its end, which is aligned to 16 bytes and
    // outlives the child: this process runs on only when that is gone. The child
    // writes nothing else but errno, which nobody reads meanwhile.
    let pid = unsafe { libc::clone(ask, stack.as_mut_ptr_range().end.cast(), how, flags) };
    done(pid.into())?;
    let mut status = 0;
    loop {
        // SAFETY: the status is written to a place of this function's.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        match done(waited.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => break waited.map(drop)?,
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Ok(Ok(())),
        (true, errno) => Ok(Err(nix::errno::Errno::from_raw(errno))),
        (false, _) => Err(io::Error::other("it was killed")),
    }
}

/// Ends this process without running what was registered to run at its end.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: _exit(2) touches no memory of this process.
    unsafe { libc::_exit(code.into()) }
}

/// Takes descriptor 0, which the node gave this program for its own.
pub(crate) fn take_channel() -> OwnedFd {
    // SAFETY: called once, at the start; nothing else here uses descriptor 0.
    unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) }
}

/// Makes a TUN of this name in the network namespace of the caller. Each packet
/// has a header before it that may leave its checksum open (linux/virtio_net.h).
///
/// # Errors
/// When there is no such device, or the namespace is not the caller's.
pub(crate) fn tun(name: &str) -> io::Result<OwnedFd> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: a request of numbers alone, for which all zeros is one without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last octet stays: the name ends with a zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).map_err(io::Error::other)?;
    let at: *const libc::ifreq = &raw const request;
    // SAFETY: the kernel reads one request, which outlives the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, at) };
    done(made.into())?;
    Ok(file.into())
}

/// Closes every descriptor from `first` to `last`. For numbers that no value
/// of this process owns.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: the caller owns none of these, so nothing is closed twice.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) }).map(drop)
}

/// Closes every descriptor from 3 on but these. For a child that never returns
/// to what owned the others.
pub(crate) fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut numbers: Vec<u32> = kept.iter().map(|fd| unsigned(fd.as_raw_fd())).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for number in numbers {
        if first < number {
            close_range(first, number - 1)?;
        }
        first = first.max(number + 1);
    }
    close_range(first, u32::MAX)
}

/// Lets every descriptor from `first` on be closed by execve(2).
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: only a flag of the descriptors changes.
    done(unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    })
    .map(drop)
}

/// How mounts and those that they are copies of hear of one another
/// (mount_namespaces(7)).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Propagation {
    /// The copy hears of the original, not the other way round.
    Slave,
    /// Neither hears of the other.
    Private,
}

/// What mount_setattr(2) changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountChange {
    pub(crate) set: u64,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) recursive: bool,
}

/// Changes the attributes of the mount that `tree` is open on.
pub(crate) fn mount_setattr(tree: BorrowedFd<'_>, change: MountChange) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: change.set,
        attr_clr: 0,
        propagation: match change.propagation {
            None => 0,
            Some(Propagation::Slave) => libc::MS_SLAVE,
            Some(Propagation::Private) => libc::MS_PRIVATE,
        },
        userns_fd: 0,
    };
    let recursive = if change.recursive {
        libc::AT_RECURSIVE
    } else {
        0
    };
    // SAFETY: the empty path and the attributes outlive the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Loads a seccomp program for this thread; needs no_new_privs.
pub(crate) fn load_filter(program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program outlives the call; the kernel copies and checks it.
    done(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0_u32,
            &raw const program,
        )
    })
    .map(drop)
}

/// Leaves the user's session keyring for an empty one, where there are keyrings.
pub(crate) fn new_session_keyring() {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: the name is null, which asks for an anonymous keyring.
    let _ = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0_usize) };
}

/// Blocks every signal.
pub(crate) fn block_signals() -> io::Result<()> {
    let all = full_set()?;
    // SAFETY: the set is initialised; the old one is not asked for.
    done(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut()) }.into())
        .map(drop)
}

/// Every signal's action to its default, then none blocked: what a program
/// expects to start with.
pub(crate) fn default_signals() -> io::Result<()> {
    /// All signals of the kernel, the C library's own two included: it would
    /// leave those as this process inherited them.
    const SIGNALS: libc::c_int = 64;
    /// `struct sigaction` of the kernel: the default handler, no flags.
    const DEFAULT: [u64; 4] = [0; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: the default action runs no code of this process. The kernel
        // refuses it for SIGKILL and SIGSTOP, which have no other.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                ptr::null_mut::<u64>(),
                size_of::<u64>(),
            )
        };
    }
    let none = 0_u64;
    // SAFETY: the set, 64 bits for the kernel, outlives the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut::<u64>(),
            size_of::<u64>(),
        )
    })
    .map(drop)
}

/// A signal that was waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) signal: i32,
    /// Sent by kill(2) or its like by who made this process. From outside the
    /// process namespace the kernel shows both as 0.
    pub(crate) from_outside: bool,
}

/// Waits for any of the blocked signals.
pub(crate) fn wait_signal() -> io::Result<Arrived> {
    let all = full_set()?;
    // SAFETY: siginfo_t is plain numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both outlive the call.
    done(unsafe { libc::sigwaitinfo(&raw const all, &raw mut info) }.into())?;
    let by_kill = info.si_code == libc::SI_USER;
    // SAFETY: getppid(2) touches no memory.
    let parent = unsafe { libc::getppid() };
    // SAFETY: with SI_USER the kernel has filled in the sender.
    let from_outside = by_kill && unsafe { info.si_pid() } == parent;
    Ok(Arrived {
        signal: info.si_signo,
        from_outside,
    })
}

/// A descriptor from which the blocked signals are read.
pub(crate) fn signal_fd() -> io::Result<OwnedFd> {
    let all = full_set()?;
    // SAFETY: the set outlives the call.
    let fd = done(unsafe { libc::signalfd(-1, &raw const all, libc::SFD_CLOEXEC) }.into())?;
    let fd = RawFd::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads one signal from such a descriptor.
pub(crate) fn read_signal(signals: &OwnedFd) -> io::Result<Arrived> {
    /// `struct signalfd_siginfo`, and in it the number, the code and the sender.
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    let mut bytes = [0_u8; SIZE];
    if rustix::io::read(signals, &mut bytes)? != SIZE {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let word = |at: usize| {
        let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        part.map_or(0, |part| i32::from_ne_bytes(*part))
    };
    let [signal, code, sender] = [
        offset_of!(libc::signalfd_siginfo, ssi_signo),
        offset_of!(libc::signalfd_siginfo, ssi_code),
        offset_of!(libc::signalfd_siginfo, ssi_pid),
    ]
    .map(word);
    Ok(Arrived {
        signal,
        from_outside: code == libc::SI_USER && sender == 0,
    })
}

fn full_set() -> io::Result<libc::sigset_t> {
    // SAFETY: sigset_t is plain bits.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is this function's own.
    done(unsafe { libc::sigfillset(&raw mut all) }.into())?;
    Ok(all)
}

/// Whether the other end of a socket is gone, without waiting.
pub(crate) fn hung_up(socket: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut polled, Some(&now)), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unshared_apart_changes_nothing_here() {
        let own = || std::fs::read_link("/proc/self/ns/uts").unwrap();
        let before = own();
        // Made or refused, by whoever runs this: in no case here.
        let _made = unshare_apart(libc::CLONE_NEWUSER | libc::CLONE_NEWUTS).unwrap();
        assert_eq!(own(), before);
        // No flag of unshare(2): the answer is the kernel's own.
        let refused = unshare_apart(libc::CLONE_PTRACE).unwrap();
        assert_eq!(refused, Err(nix::errno::Errno::EINVAL));
    }
}
