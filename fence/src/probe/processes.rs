//! Which processes can be seen, signalled, traced and read.

use bailey_model::Axis;
use nix::errno::Errno;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat, readlinkat};

use super::bait::Targets;
use super::files::{own_namespace, refused};
use super::sys::{self, NOWHERE};
use super::{Facts, name};

/// Most entries of /proc that are looked at.
const MAX_ENTRIES: usize = 4096;
const PTRACE_SEIZE: usize = 0x4206;

pub(super) fn try_all(facts: &mut Facts, targets: &Targets) {
    for (what, kind) in [("own processes", "pid"), ("own shared memory", "ipc")] {
        let (got, held) = own_namespace(kind, targets);
        facts.add(Axis::Processes, what, got, held);
    }
    signal(facts, targets);
    see(facts);
    let read = |path: &str| openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let (got, held) = refused(readlinkat(CWD, "/proc/1/exe", Vec::new()));
    facts.add(Axis::Processes, "read /proc/1/exe", &got, Some(held));
    for path in ["/proc/1/environ", "/proc/1/mem"] {
        let (got, held) = refused(read(path));
        facts.add(Axis::Processes, &format!("read {path}"), &got, Some(held));
    }
    let (got, held) = match sys::ask(libc::SYS_ptrace, [PTRACE_SEIZE, 1, 0, 0, 0, 0]) {
        Ok(_) => {
            facts.spent = true;
            ("traced".to_owned(), false)
        }
        Err(errno) => (name(errno), true),
    };
    facts.add(Axis::Processes, "trace pid 1", &got, Some(held));
    // Inside, a debugger works: this says that the call gets as far as to look
    // for the process.
    let (got, _) = syscall(
        libc::SYS_ptrace,
        [PTRACE_SEIZE, usize::MAX >> 1, 0, NOWHERE, 0, 0],
    );
    facts.add(Axis::Processes, "trace inside", &got, None);
}

fn syscall(number: libc::c_long, arguments: [usize; 6]) -> (String, bool) {
    match sys::ask(number, arguments) {
        Ok(_) => ("done".to_owned(), false),
        Err(errno) => (name(errno), true),
    }
}

/// Signal 0 to processes outside. A number that is also one of this process
/// namespace says nothing.
fn signal(facts: &mut Facts, targets: &Targets) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let telling = |pid: &&i32| **pid > 1 && **pid != own;
    let mut got = ("no number to try".to_owned(), None);
    for pid in targets.processes.iter().filter(telling) {
        let Some(pid) = rustix::process::Pid::from_raw(*pid) else {
            continue;
        };
        let (word, held) = match rustix::process::test_kill_process(pid) {
            Ok(()) => ("delivered".to_owned(), false),
            Err(errno) => (name(Errno::from_raw(errno.raw_os_error())), true),
        };
        if got.1 != Some(false) {
            got = (word, Some(held));
        }
    }
    facts.add(Axis::Processes, "signal a process outside", &got.0, got.1);
}

/// Every process of /proc is pid 1 or this one.
fn see(facts: &mut Facts) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, "/proc", flags, Mode::empty()).and_then(Dir::new);
    let (mut seen, mut others) = (0_usize, 0_usize);
    for entry in dir.into_iter().flatten().take(MAX_ENTRIES).flatten() {
        let text = entry.file_name().to_str().unwrap_or_default();
        if let Ok(pid) = text.parse::<i32>() {
            seen += 1;
            others += usize::from(pid != 1 && pid != own);
        }
    }
    let got = format!("{others} of others");
    // Without its own entry the folder is none of processes, or cannot be read.
    let held = (seen > 0).then_some(others == 0);
    facts.add(Axis::Processes, "see processes", &got, held);
}
