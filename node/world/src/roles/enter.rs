//! Runs one command inside a world.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::Args;
use super::outer::become_ordinary;
use crate::control::{Failure, Step as _};
use crate::sys::die_with_parent;

/// Exit codes as a shell's.
const EXIT_NOT_FOUND: i32 = 127;
const EXIT_NOT_EXECUTABLE: i32 = 126;
const EXIT_SIGNAL: i32 = 128;

/// Signals that are passed on when a process sent them. A terminal sends its
/// own to the whole foreground group, the command included.
const PASSED: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// `enter UID GID WORLD user|root NODE PROGRAM…`: WORLD is a pid outside, NODE a
/// pid inside that world, or 0 for the router.
pub(super) fn run(args: &mut Args) -> Result<i32, Failure> {
    let uid: u32 = args.number("uid")?;
    let gid: u32 = args.number("gid")?;
    let world: u32 = args.number("pid of the world")?;
    let ordinary = args.word("user")? == "user";
    let node: u32 = args.number("pid of the node")?;
    let program = args.raw("program")?;
    let words = args.rest();

    // Entering a mount namespace moves to its root.
    let folder = std::env::current_dir().step("find the working folder")?;
    become_ordinary(uid, gid)?;
    join(world, &["user", "mnt", "net", "ipc", "uts", "pid"])?;
    if node != 0 {
        // By the world's own /proc, which the mount namespace brought.
        join(node, &["mnt", "net", "ipc", "uts", "pid"])?;
        if ordinary {
            // The node's /proc counts its first process as 1.
            join(1, &["user"])?;
        }
    }
    std::env::set_current_dir(&folder).step("go to the working folder")?;

    let before = SigSet::thread_get_mask().step("read the signal mask")?;
    let mut waited = SigSet::from(Signal::SIGCHLD);
    waited.extend(PASSED);
    waited.thread_block().step("block signals")?;
    let mut command = Command::new(&program);
    command.args(words);
    die_with_parent(&mut command, before);
    match command.spawn() {
        Ok(child) => attend(child, &waited),
        Err(error) => {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => EXIT_NOT_FOUND,
                _ => EXIT_NOT_EXECUTABLE,
            };
            eprintln!("world: {}: {error}", program.display());
            Ok(code)
        }
    }
}

/// Enters namespaces of a process.
fn join(pid: u32, kinds: &[&str]) -> Result<(), Failure> {
    let mut files = Vec::new();
    for kind in kinds {
        let path = format!("/proc/{pid}/ns/{kind}");
        files.push((File::open(&path).step(&format!("open {path}"))?, path));
    }
    for (file, path) in files {
        setns(file, CloneFlags::empty()).step(&format!("enter {path}"))?;
    }
    Ok(())
}

/// Passes signals to the command until it ends.
fn attend(mut child: Child, waited: &SigSet) -> Result<i32, Failure> {
    let pid = i32::try_from(child.id()).step("pid of the command")?;
    let signals = SignalFd::with_flags(waited, SfdFlags::SFD_CLOEXEC).step("signalfd()")?;
    loop {
        if let Some(status) = child.try_wait().step("wait for the command")? {
            let signal = status
                .signal()
                .map(|signal| EXIT_SIGNAL.saturating_add(signal));
            return Ok(status.code().or(signal).unwrap_or(super::EXIT_FAILED));
        }
        let info = match signals.read_signal() {
            Ok(Some(info)) => info,
            Ok(None) | Err(Errno::EINTR) => continue,
            Err(error) => return Err(Failure::new("read signals", error)),
        };
        // Codes above 0 are the kernel's own (sigaction(2)).
        let sent = info.ssi_code <= 0;
        let signal = i32::try_from(info.ssi_signo)
            .ok()
            .and_then(|n| Signal::try_from(n).ok());
        if let Some(signal) = signal.filter(|signal| sent && *signal != Signal::SIGCHLD) {
            // A command that has just ended is reaped above.
            let _ended = kill(Pid::from_raw(pid), signal);
        }
    }
}
