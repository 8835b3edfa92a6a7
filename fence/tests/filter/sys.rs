//! Processes that make raw system calls, and end.

use std::io;
use std::time::Duration;

use bailey_fence::seccomp;
use bailey_model::BoxClass;
use libc::{c_int, c_long};

/// Longer than any call here takes.
const PATIENCE: libc::c_uint = 20;

/// What the kernel said, or how it ended the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    Value(i64),
    Errno(i32),
    Signal(i32),
    /// The process could not be made as asked.
    NotTried(i32),
}

/// Where a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// As an ordinary user.
    User,
    /// The same as the first process of new namespaces, with every capability
    /// in them.
    Namespaces,
}

/// What is loaded first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    None,
    Of(BoxClass),
    WithoutNetwork(BoxClass),
    WithoutNamespaces(BoxClass),
}

impl Filter {
    fn load(self) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Of(class) => seccomp::load(class),
            Self::WithoutNetwork(class) => {
                seccomp::load(class)?;
                seccomp::load_no_network()
            }
            Self::WithoutNamespaces(class) => {
                seccomp::load_no_namespaces()?;
                seccomp::load(class)
            }
        }
    }
}

/// Makes a process in a place, under a filter; gives what `act` came to there.
pub(crate) fn within(place: Place, filter: Filter, act: impl Fn() -> Got) -> Got {
    let mut ends = [0; 2];
    // SAFETY: the array has the room for two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0);
    let [read, write] = ends;
    // SAFETY: the child goes on here, on a copy of this thread; glibc makes its
    // allocator usable, and no lock of ours is taken there.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = in_child(place, filter, &act, write);
        // SAFETY: nothing that was registered to run at the end is the child's.
        unsafe { libc::_exit(code) }
    }
    close(write);
    let ended = wait(child);
    let mut bytes = [0_u8; 16];
    // SAFETY: the buffer is as long as is said. What the child wrote is in the
    // pipe; others may hold its other end, so it is not read to its end.
    let count = unsafe { libc::read(read, bytes.as_mut_ptr().cast(), bytes.len()) };
    close(read);
    let (tag, value) = bytes.split_at(8);
    let number = |part: &[u8]| i64::from_ne_bytes(part.try_into().unwrap());
    let small = |part: &[u8]| i32::try_from(number(part)).unwrap();
    match (ended, count) {
        (Ok(0), 16) => match number(tag) {
            0 => Got::Value(number(value)),
            1 => Got::Errno(small(value)),
            _ => Got::NotTried(small(value)),
        },
        (Ok(code), _) => Got::Signal(code - 128),
        (Err(signal), _) => Got::Signal(signal),
    }
}

fn in_child(place: Place, filter: Filter, act: &dyn Fn() -> Got, write: c_int) -> c_int {
    let made = prepare(place).and_then(|child| {
        if child > 0 {
            // The first process of the namespaces has written, or was ended.
            return Ok(Some(match wait(child) {
                Ok(code) => code,
                Err(signal) => 128 + signal,
            }));
        }
        // A failed filter must not look like a kernel's answer.
        filter.load().map(|()| None)
    });
    let got = match made {
        Ok(Some(code)) => return code,
        Ok(None) => act(),
        Err(error) => Got::NotTried(error.raw_os_error().unwrap_or(0)),
    };
    let (tag, value) = match got {
        Got::Value(value) => (0_i64, value),
        Got::Errno(errno) => (1, errno.into()),
        Got::Signal(_) => (2, 0),
        Got::NotTried(errno) => (2, errno.into()),
    };
    let bytes = [tag.to_ne_bytes(), value.to_ne_bytes()].concat();
    // SAFETY: the buffer is as long as is said.
    let count = unsafe { libc::write(write, bytes.as_ptr().cast(), bytes.len()) };
    c_int::from(count != 16)
}

/// An ordinary user with nothing to gain; 0, or the pid of the child in which
/// to go on.
fn prepare(place: Place) -> io::Result<c_int> {
    let (uid, gid) = crate::support::ids();
    if crate::support::root() {
        let none: *const libc::gid_t = std::ptr::null();
        ok(raw(libc::SYS_setgroups, &[0, none as u64]))?;
        ok(raw(libc::SYS_setresgid, &[gid.into(); 3]))?;
        ok(raw(libc::SYS_setresuid, &[uid.into(); 3]))?;
    }
    // A change of user leaves /proc/self to root.
    ok(prctl(libc::PR_SET_DUMPABLE, 1))?;
    ok(prctl(libc::PR_SET_NO_NEW_PRIVS, 1))?;
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit outlives the call.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    ok(got(limited.into()))?;
    // SAFETY: touches no memory.
    unsafe { libc::alarm(PATIENCE) };
    if place == Place::User {
        return Ok(0);
    }
    let kinds = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC;
    ok(raw(libc::SYS_unshare, &[u64::try_from(kinds).unwrap()]))?;
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: touches no memory.
        unsafe { libc::alarm(PATIENCE) };
    }
    ok(Got::Value(child.into()))?;
    Ok(child)
}

/// A call by its number.
pub(crate) fn raw(number: c_long, arguments: &[u64]) -> Got {
    let mut six = [0_u64; 6];
    six[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = six;
    // SAFETY: the callers pass pointers that are valid, or that the kernel finds
    // not to be.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    got(value)
}

fn got(value: c_long) -> Got {
    if value < 0 {
        Got::Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    } else {
        Got::Value(value)
    }
}

fn ok(got: Got) -> io::Result<i64> {
    match got {
        Got::Value(value) => Ok(value),
        Got::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
        Got::Signal(_) | Got::NotTried(_) => Err(io::ErrorKind::Other.into()),
    }
}

pub(crate) fn prctl(what: c_int, value: u64) -> Got {
    raw(
        libc::SYS_prctl,
        &[u64::try_from(what).unwrap(), value, 0, 0, 0],
    )
}

fn close(fd: c_int) {
    // SAFETY: the callers own the descriptor and use it no more.
    unsafe { libc::close(fd) };
}

/// How a child ended: its code, or the signal.
fn wait(child: c_int) -> Result<c_int, c_int> {
    let mut status = 0;
    // SAFETY: the status outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) {
        Err(libc::WTERMSIG(status))
    } else {
        Ok(libc::WEXITSTATUS(status))
    }
}

/// getpid by the i386 entry.
#[cfg(target_arch = "x86_64")]
pub(crate) fn i386_getpid() -> Got {
    i386(20, 0, 0)
}

/// socket(AF_INET, SOCK_STREAM, 0) by the i386 entry's socketcall.
#[cfg(target_arch = "x86_64")]
pub(crate) fn i386_socketcall() -> Got {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, where the kernel likes.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the page is larger, aligned and this function's own.
    unsafe { page.cast::<[u32; 3]>().write([2, 1, 0]) };
    i386(102, 1, u32::try_from(page.expose_provenance()).unwrap())
}

#[cfg(target_arch = "x86_64")]
fn i386(number: u32, first: u32, second: u32) -> Got {
    let value: i32;
    // SAFETY: the i386 entry takes its arguments from ebx and ecx and keeps all
    // registers but eax and, of the 64-bit ones, r8 to r11. The compiler keeps
    // rbx for itself, so it is put back.
    unsafe {
        std::arch::asm!(
            "xchg {first:r}, rbx",
            "int 0x80",
            "xchg {first:r}, rbx",
            first = inout(reg) u64::from(first) => _,
            inout("eax") number => value,
            in("ecx") second,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if value < 0 {
        Got::Errno(-value)
    } else {
        Got::Value(value.into())
    }
}

/// What a tracer gets that turns a harmless call of its own child, at its
/// entry, into kcmp(2) with bad arguments.
#[cfg(target_arch = "x86_64")]
pub(crate) fn kcmp_by_tracer() -> Got {
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        ptrace(libc::PTRACE_TRACEME, 0, 0);
        // SAFETY: touches no memory.
        let own = u64::try_from(unsafe { libc::getpid() }).unwrap();
        raw(libc::SYS_kill, &[own, 19]);
        raw(libc::SYS_getppid, &[u64::MAX; 6]);
        // SAFETY: as above.
        unsafe { libc::_exit(0) }
    }
    let mut changed = false;
    // The stop, the end of kill, and both ends of getppid, with room.
    for _ in 0..8 {
        let mut status = 0;
        // SAFETY: the status outlives the call.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        if !libc::WIFSTOPPED(status) {
            break;
        }
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let place = (&raw mut registers).expose_provenance();
        if ptrace(libc::PTRACE_GETREGS, child, place) != 0 {
            break;
        }
        if changed {
            ptrace(libc::PTRACE_KILL, child, 0);
            let _ = wait(child);
            let value = i64::from_ne_bytes(registers.rax.to_ne_bytes());
            return match i32::try_from(-value) {
                Ok(errno) if errno > 0 => Got::Errno(errno),
                _ => Got::Value(value),
            };
        }
        if registers.orig_rax == u64::try_from(libc::SYS_getppid).unwrap() {
            registers.orig_rax = u64::try_from(libc::SYS_kcmp).unwrap();
            changed = ptrace(libc::PTRACE_SETREGS, child, place) == 0;
        }
        ptrace(libc::PTRACE_SYSCALL, child, 0);
    }
    Got::NotTried(0)
}

#[cfg(target_arch = "x86_64")]
fn ptrace(what: libc::c_uint, child: c_int, data: usize) -> c_long {
    // SAFETY: where the request has data, it is a place for the registers.
    unsafe { libc::ptrace(what, child, 0_usize, data) }
}

/// Types a character into a terminal of its own, by `request`.
pub(crate) fn type_into_terminal(request: u64) -> Got {
    let (mut master, mut slave) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: places for two descriptors; the rest is not asked for.
    let made = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            none,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if made != 0 {
        return Got::NotTried(1);
    }
    // SAFETY: touches no memory.
    unsafe { libc::setsid() };
    let slave = u64::try_from(slave).unwrap();
    if let Got::Errno(errno) = raw(libc::SYS_ioctl, &[slave, libc::TIOCSCTTY, 0]) {
        return Got::NotTried(errno);
    }
    raw(libc::SYS_ioctl, &[slave, request, c"x".as_ptr() as u64])
}

/// What a call gives after this process has loaded one more program: it permits
/// everything, or hands everything to a listener of its own.
pub(crate) fn after_own_filter(listener: bool, number: c_long) -> Got {
    const ALLOW: u32 = 0x7fff_0000;
    const NOTIFY: u32 = 0x7fc0_0000;
    const RETURN: u16 = 0x06;
    const JUMP_EQUAL: u16 = 0x15;
    const LOAD: u16 = 0x20;
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = [
        statement(LOAD, 0),
        libc::sock_filter {
            code: JUMP_EQUAL,
            jt: 0,
            jf: 1,
            k: u32::try_from(number).unwrap(),
        },
        statement(RETURN, if listener { NOTIFY } else { ALLOW }),
        statement(RETURN, ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    let flags = if listener {
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
    } else {
        0
    };
    let place = (&raw const program).expose_provenance() as u64;
    let loaded = raw(
        libc::SYS_seccomp,
        &[libc::SECCOMP_SET_MODE_FILTER.into(), flags, place],
    );
    match loaded {
        Got::Value(_) => raw(number, &[u64::MAX; 6]),
        Got::Errno(errno) => Got::NotTried(errno),
        other => other,
    }
}

/// Starts a thread by the C library and joins it.
pub(crate) fn thread() -> Got {
    std::thread::spawn(|| 7)
        .join()
        .map_or(Got::NotTried(0), Got::Value)
}

/// How long a class's programs take to load.
pub(crate) fn time_of_loading(class: BoxClass) -> Duration {
    let got = within(Place::User, Filter::None, || {
        let start = std::time::Instant::now();
        if seccomp::load(class).is_err() {
            return Got::NotTried(0);
        }
        Got::Value(i64::try_from(start.elapsed().as_nanos()).unwrap())
    });
    match got {
        Got::Value(nanos) => Duration::from_nanos(nanos.unsigned_abs()),
        other => panic!("{other:?}"),
    }
}

/// Makes a folder with every bit of a mode; the mode it has.
pub(crate) fn make_folder(path: &std::ffi::CStr) -> Got {
    let (here, place) = (libc::AT_FDCWD, path.as_ptr() as u64);
    let here = u64::from(here.cast_unsigned());
    match raw(libc::SYS_mkdirat, &[here, place, 0o6755]) {
        Got::Value(_) => mode(path),
        other => other,
    }
}

/// Makes a file with a mode; the mode it has.
pub(crate) fn make_file(path: &std::ffi::CStr, wanted: u64) -> Got {
    let here = u64::from(libc::AT_FDCWD.cast_unsigned());
    let flags = u64::from((libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY).cast_unsigned());
    match raw(
        libc::SYS_openat,
        &[here, path.as_ptr() as u64, flags, wanted],
    ) {
        Got::Value(_) => mode(path),
        other => other,
    }
}

fn mode(path: &std::ffi::CStr) -> Got {
    // SAFETY: plain numbers.
    let mut seen: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the path and the place outlive the call.
    let result = unsafe { libc::stat(path.as_ptr(), &raw mut seen) };
    match got(result.into()) {
        Got::Value(_) => Got::Value(i64::from(seen.st_mode & 0o7777)),
        other => other,
    }
}

/// What a browser does: a process in a user, process and network namespace of
/// its own, with its ids mapped and its view of files taken away. Then what
/// must stay refused, with every capability there. 0, or the step that went
/// wrong; not tried where the namespaces cannot be made.
pub(crate) fn browser_sandbox() -> Got {
    let ids = crate::support::ids();
    let kinds = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::SIGCHLD;
    // The child goes on here, on a copy of this process, which has one thread.
    let child = match raw(
        libc::SYS_clone,
        &[u64::from(kinds.cast_unsigned()), 0, 0, 0, 0],
    ) {
        Got::Value(child) => c_int::try_from(child).unwrap(),
        Got::Errno(errno) => return Got::NotTried(errno),
        other => return other,
    };
    if child == 0 {
        let failed = inside_sandbox(ids);
        // SAFETY: touches no memory.
        unsafe { libc::_exit(failed) }
    }
    match wait(child) {
        Ok(step) => Got::Value(step.into()),
        Err(signal) => Got::Signal(signal),
    }
}

fn inside_sandbox((uid, gid): (u32, u32)) -> c_int {
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1\n")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1\n")),
    ];
    for (path, text) in maps {
        if std::fs::write(path, text).is_err() {
            return 1;
        }
    }
    let at = |text: &'static std::ffi::CStr| text.as_ptr() as u64;
    const EPERM: Got = Got::Errno(libc::EPERM);
    let (root, none) = (at(c"/"), 0);
    let private = libc::MS_PRIVATE;
    let mounts = u64::from(libc::CLONE_NEWNS.cast_unsigned());
    let expected = [
        (raw(libc::SYS_unshare, &[mounts]), EPERM),
        (
            raw(libc::SYS_mount, &[none, root, none, private, none]),
            EPERM,
        ),
        (raw(libc::SYS_setns, &[0, 0]), EPERM),
        (raw(libc::SYS_sethostname, &[root, 1]), EPERM),
        // A netfilter socket; rules by option; a raw packet socket.
        (
            raw(libc::SYS_socket, &[16, 3, 12]),
            Got::Errno(libc::EAFNOSUPPORT),
        ),
        (raw(libc::SYS_setsockopt, &[0, 0, 64, root, 1]), EPERM),
        (
            raw(libc::SYS_socket, &[17, 3, 0]),
            Got::Errno(libc::EAFNOSUPPORT),
        ),
        (
            raw(libc::SYS_chroot, &[at(c"/proc/self/fdinfo")]),
            Got::Value(0),
        ),
        (raw(libc::SYS_chdir, &[root]), Got::Value(0)),
        (
            raw(libc::SYS_faccessat, &[0, at(c"/usr"), 0, 0]),
            Got::Errno(libc::ENOENT),
        ),
    ];
    let wrong = expected.iter().position(|(got, wanted)| got != wanted);
    wrong.map_or(0, |step| 2 + c_int::try_from(step).unwrap())
}
