//! What the gate gives up once it holds all that it needs: after this no file
//! can be opened, nothing executed, no process touched, and no socket made but
//! of IPv4 and IPv6. What the box might make of it, it makes of that.

use std::io;

use caps::CapSet;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetError, RulesetStatus, Scope,
};
use libseccomp::error::SeccompError;
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpFilterContext, ScmpSyscall, scmp_cmp};
use nix::sys::resource::{Resource, setrlimit};

use crate::sys;

/// What can go wrong; the gate does not start then.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A process attribute was refused.
    #[error("confinement: {0}")]
    Io(#[from] io::Error),
    /// A capability set could not be cleared.
    #[error("confinement: capabilities: {0}")]
    Caps(String),
    /// Landlock knows the kernel's version and could not be used.
    #[error("confinement: Landlock: {0}")]
    Landlock(#[from] RulesetError),
    /// The filter could not be made or loaded.
    #[error("confinement: seccomp: {0}")]
    Seccomp(#[from] SeccompError),
}

/// Calls that pass whatever their arguments: moving bytes, polling, memory,
/// time, and what the C library and the runtime need to end.
const ALLOWED: &[&str] = &[
    "accept4",
    "bind",
    "brk",
    "clock_gettime",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "exit",
    "exit_group",
    "futex",
    "futex_time64",
    "getpeername",
    "getpid",
    "getrandom",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "madvise",
    "mremap",
    "munmap",
    "nanosleep",
    "poll",
    "ppoll",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "restart_syscall",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "send",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    "sigaltstack",
    "sigreturn",
    "write",
    "writev",
];

/// Confines this thread, which must be the only one, for good.
///
/// # Errors
/// When any part of it fails; the process is then not to go on.
pub(crate) fn confine() -> Result<(), ConfineError> {
    // A limit of 0 does not stop a pattern that pipes; 1 does (core(5)).
    setrlimit(Resource::RLIMIT_CORE, 1, 1).map_err(io::Error::from)?;
    sys::keep_to_itself()?;
    drop_capabilities()?;
    landlock()?;
    filter()?.load()?;
    Ok(())
}

fn drop_capabilities() -> Result<(), ConfineError> {
    let fault = |error: caps::errors::CapsError| ConfineError::Caps(error.to_string());
    // Without CAP_SETPCAP the bounding set stays, and with no new privileges it
    // is of no use to anyone.
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).map_err(fault)? {
        caps::clear(None, CapSet::Bounding).map_err(fault)?;
    }
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(fault)?;
    }
    Ok(())
}

/// Beside the filter, which sees numbers and no objects: no file by any path, no
/// TCP port to listen at, no abstract socket and no signal but its own. What of
/// it this kernel does not know, the filter holds alone.
fn landlock() -> Result<RulesetStatus, RulesetError> {
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?
        .restrict_self()?;
    Ok(restricted.ruleset)
}

/// What is not listed fails with EPERM.
fn filter() -> Result<ScmpFilterContext, ConfineError> {
    let mut filter = ScmpFilterContext::new(ScmpAction::Errno(libc::EPERM))?;
    filter.set_act_badarch(ScmpAction::KillProcess)?;
    for name in ALLOWED {
        // A name that is not known here, or not of this architecture, is a call
        // that nothing here makes.
        if let Ok(call) = ScmpSyscall::from_name(name) {
            filter.add_rule(ScmpAction::Allow, call)?;
        }
    }
    let number = |value: libc::c_int| u64::from(value.unsigned_abs());
    let low = u64::from(u32::MAX);
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family: ScmpArgCompare = scmp_cmp!($arg0 & low == number(family));
        filter.add_rule_conditional(
            ScmpAction::Allow,
            ScmpSyscall::from_name("socket")?,
            &[family],
        )?;
    }
    let exec = number(libc::PROT_EXEC);
    for name in ["mmap", "mmap2", "mprotect"] {
        if let Ok(call) = ScmpSyscall::from_name(name) {
            let data = scmp_cmp!($arg2 & exec == 0);
            filter.add_rule_conditional(ScmpAction::Allow, call, &[data])?;
        }
    }
    // Neither an owner nor a signal of its choice: a socket would send that signal
    // to any process of the user (fcntl(2), F_SETOWN, F_SETSIG, O_ASYNC).
    let async_flag = number(libc::O_ASYNC);
    for name in ["fcntl", "fcntl64"] {
        let Ok(call) = ScmpSyscall::from_name(name) else {
            continue;
        };
        for command in [
            libc::F_GETFD,
            libc::F_SETFD,
            libc::F_GETFL,
            libc::F_DUPFD_CLOEXEC,
        ] {
            let same = scmp_cmp!($arg1 & low == number(command));
            filter.add_rule_conditional(ScmpAction::Allow, call, &[same])?;
        }
        let set = scmp_cmp!($arg1 & low == number(libc::F_SETFL));
        let quiet = scmp_cmp!($arg2 & async_flag == 0);
        filter.add_rule_conditional(ScmpAction::Allow, call, &[set, quiet])?;
    }
    // For abort(3), which signals its own thread.
    let own = u64::from(std::process::id());
    let own = scmp_cmp!($arg0 & low == own);
    filter.add_rule_conditional(ScmpAction::Allow, ScmpSyscall::from_name("tgkill")?, &[own])?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpStream, UdpSocket};
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, OFlag};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use nix::unistd::{Pid, getppid};

    const CHILD: &str = "BAILEY_GATE_CONFINED";

    fn is_denied<T: std::fmt::Debug>(what: &str, result: std::io::Result<T>) {
        match result {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            other => panic!("{what}: {other:?}"),
        }
    }

    fn denied<T: std::fmt::Debug>(what: &str, result: Result<T, Errno>) {
        is_denied(what, result.map_err(Into::into));
    }

    #[test]
    fn landlock_alone_leaves_no_file_no_listener_and_no_abstract_socket() {
        use std::net::TcpListener;
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

        let name =
            "confine::tests::landlock_alone_leaves_no_file_no_listener_and_no_abstract_socket";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
            assert!(child.status().unwrap().success());
            return;
        }
        let abstract_name = format!("bailey-gate-test-{}", std::process::id());
        let at = SocketAddr::from_abstract_name(abstract_name).unwrap();
        let _listener = UnixListener::bind_addr(&at).unwrap();
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // The control.
        UnixStream::connect_addr(&at).unwrap();
        std::fs::File::open("/etc/passwd").unwrap();
        let status = super::landlock().unwrap();
        if status == landlock::RulesetStatus::NotEnforced {
            // A kernel without it: the filter stands alone.
            return;
        }
        is_denied("open", std::fs::File::open("/etc/passwd"));
        is_denied("read a folder", std::fs::read_dir("/").map(drop));
        if status == landlock::RulesetStatus::FullyEnforced {
            is_denied(
                "listen",
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop),
            );
            is_denied(
                "an abstract socket",
                UnixStream::connect_addr(&at).map(drop),
            );
        }
        // What a gate lives by still works.
        TcpStream::connect(target.local_addr().unwrap()).unwrap();
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    }

    #[test]
    fn a_confined_gate_has_sockets_of_two_families_and_nothing_else() {
        // In a process of its own, which is confined for good.
        let name = "confine::tests::a_confined_gate_has_sockets_of_two_families_and_nothing_else";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
            assert!(child.status().unwrap().success());
            return;
        }
        let parent = getppid();
        super::confine().unwrap();
        is_denied("open", std::fs::File::open("/etc/passwd"));
        is_denied("read a folder", std::fs::read_dir("/").map(drop));
        is_denied("make a file", std::fs::write("/tmp/bailey-gate-test", b"x"));
        is_denied("a Unix socket", UnixDatagram::unbound());
        is_denied("execute", Command::new("/bin/true").status());
        let thread = std::thread::Builder::new().spawn(|| {});
        assert!(thread.is_err());
        for family in [
            AddressFamily::Netlink,
            AddressFamily::Packet,
            AddressFamily::Vsock,
        ] {
            let made = socket(family, SockType::Datagram, SockFlag::empty(), None);
            denied("a socket of another family", made);
        }
        denied("signal the parent", nix::sys::signal::kill(parent, None));
        denied(
            "signal everyone",
            nix::sys::signal::kill(Pid::from_raw(-1), None),
        );
        denied("trace the parent", nix::sys::ptrace::attach(parent));
        denied(
            "a namespace",
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER),
        );
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let flags = |flags| nix::fcntl::fcntl(&socket, FcntlArg::F_SETFL(flags));
        let asynchronous = OFlag::O_NONBLOCK | OFlag::from_bits_retain(libc::O_ASYNC);
        denied("a signal for what comes", flags(asynchronous));
        flags(OFlag::O_NONBLOCK).unwrap();
        let copy = nix::fcntl::fcntl(&socket, FcntlArg::F_DUPFD(100));
        denied("a descriptor that outlives", copy);
        socket.try_clone().unwrap();
        // What a gate lives by still works.
        assert_eq!(
            TcpStream::connect((Ipv4Addr::LOCALHOST, 1))
                .unwrap_err()
                .kind(),
            ErrorKind::ConnectionRefused
        );
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv_from(&mut [0]).unwrap().0, 1);
        let large = vec![1_u8; 64 << 20];
        assert_eq!(
            large.iter().map(|octet| usize::from(*octet)).sum::<usize>(),
            64 << 20
        );
    }
}
