//! `bailey-attack deny HOW PROGRAM ARGS`: runs a program where the machine
//! refuses something, as machines and containers out there do. Nothing but what
//! it starts is changed.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::sys::{self, Arg};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Every flag of clone(2) and unshare(2) that makes a namespace.
const NAMESPACES: u32 = 0x7e02_0080;
const NEW_USER: u64 = 0x1000_0000;
const NEW_MOUNTS: u64 = 0x0002_0000;
/// Rights of landlock(7).
const WRITE_FILE: u64 = 1 << 1;

/// A way to refuse: its name, and what makes it so.
type Way = (&'static str, fn() -> io::Result<()>);

/// Ways to refuse.
const WAYS: &[Way] = &[
    // As Ubuntu since 24.04: a user namespace is made, and worth nothing.
    ("stripped-namespaces", || {
        everywhere_but(WRITE_FILE, &["/proc"])
    }),
    // As a Docker of today.
    ("container-filter", || filter(true)),
    // As a container of some years ago: what is newer than clone(2) is unknown.
    ("no-clone3", || filter(false)),
    ("no-user-namespaces", no_user_namespaces),
    ("no-tun", no_tun),
    ("masked-proc", masked_proc),
];

/// Refuses, then becomes the program.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let fault = |why: &dyn std::fmt::Display| {
        eprintln!("bailey-attack deny: {why}");
        ExitCode::from(64)
    };
    let [hows, program, args @ ..] = words else {
        return fault(&"usage: deny HOW[,HOW] PROGRAM ARGS");
    };
    for how in hows.split(',') {
        let Some((_, deny)) = WAYS.iter().find(|(name, _)| *name == how) else {
            return fault(&format_args!("there is no way {how}"));
        };
        if let Err(error) = deny() {
            return fault(&format_args!("{how}: {error}"));
        }
    }
    fault(&Command::new(program).args(args).exec())
}

fn call(number: libc::c_long, args: &mut [Arg<'_>]) -> io::Result<i64> {
    sys::call(number, args).map_err(io::Error::from_raw_os_error)
}

/// Landlock that permits these rights on all there is but some folders.
fn everywhere_but(rights: u64, closed: &[&str]) -> io::Result<()> {
    const NO_NEW_PRIVS: u64 = 38;
    let mut handled = rights.to_ne_bytes().to_vec();
    let size = handled.len() as u64;
    let mut args = [Arg::Bytes(&mut handled), Arg::Number(size), Arg::Number(0)];
    let ruleset = call(libc::SYS_landlock_create_ruleset, &mut args)?.unsigned_abs();
    permit_below(ruleset, rights, Path::new("/"), closed)?;
    let mut args = [NO_NEW_PRIVS, 1, 0, 0, 0].map(Arg::Number);
    call(libc::SYS_prctl, &mut args)?;
    let mut args = [ruleset, 0].map(Arg::Number);
    call(libc::SYS_landlock_restrict_self, &mut args).map(drop)
}

/// Permits every entry of a folder, and of the folders on the way to a closed one.
fn permit_below(ruleset: u64, rights: u64, folder: &Path, closed: &[&str]) -> io::Result<()> {
    const BENEATH: u64 = 1;
    for entry in fs::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if closed.iter().any(|closed| Path::new(closed) == path) {
            continue;
        }
        if closed
            .iter()
            .any(|closed| Path::new(closed).starts_with(&path))
        {
            permit_below(ruleset, rights, &path, closed)?;
            continue;
        }
        let open = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&path);
        let Ok(open) = open else { continue };
        let mut rule = rights.to_ne_bytes().to_vec();
        rule.extend(open.as_raw_fd().to_ne_bytes());
        let mut args = [
            Arg::Number(ruleset),
            Arg::Number(BENEATH),
            Arg::Bytes(&mut rule),
            Arg::Number(0),
        ];
        // What is neither a folder nor a file, as a link that leads nowhere,
        // has no rights to permit.
        let _refused = call(libc::SYS_landlock_add_rule, &mut args);
    }
    Ok(())
}

/// A filter that knows no clone3 and, if `all`, refuses every namespace.
fn filter(all: bool) -> io::Result<()> {
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const IF_ANY: u16 = 0x45;
    const END: u16 = 0x06;
    const FIRST_ARGUMENT: u32 = 16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let number = |call: libc::c_long| u32::try_from(call).unwrap_or(u32::MAX);
    let answer = |errno| libc::SECCOMP_RET_ERRNO | errno;
    let mut program = vec![
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 0, 1, number(libc::SYS_clone3)),
        step(END, 0, 0, answer(ENOSYS)),
    ];
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        if all {
            program.extend([
                step(LOAD, 0, 0, 0),
                step(IF_EQUAL, 0, 3, number(call)),
                step(LOAD, 0, 0, FIRST_ARGUMENT),
                step(IF_ANY, 0, 1, NAMESPACES),
                step(END, 0, 0, answer(EPERM)),
            ]);
        }
    }
    program.push(step(END, 0, 0, libc::SECCOMP_RET_ALLOW));
    sys::load_filter(&mut program).map_err(io::Error::from_raw_os_error)
}

/// Into a user namespace of its own, its user mapped to itself.
fn enter(kinds: u64) -> io::Result<()> {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    call(libc::SYS_unshare, &mut [Arg::Number(NEW_USER | kinds)])?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

fn no_user_namespaces() -> io::Result<()> {
    enter(0)?;
    fs::write("/proc/sys/user/max_user_namespaces", "0")
}

/// No device is there, as in a container that was given none.
fn no_tun() -> io::Result<()> {
    enter(NEW_MOUNTS)?;
    mount(c"tmpfs", c"/dev/net", c"tmpfs", 0)
}

/// A part of /proc is hidden, as engines of containers do: the kernel then shows
/// nobody below a whole one.
fn masked_proc() -> io::Result<()> {
    const BIND: u64 = 0x1000;
    enter(NEW_MOUNTS)?;
    mount(c"/dev/null", c"/proc/keys", c"", BIND)
}

fn mount(what: &CStr, at: &CStr, kind: &CStr, flags: u64) -> io::Result<()> {
    let mut args = [
        Arg::Text(what),
        Arg::Text(at),
        Arg::Text(kind),
        Arg::Number(flags),
        Arg::Number(0),
    ];
    call(libc::SYS_mount, &mut args).map(drop)
}
