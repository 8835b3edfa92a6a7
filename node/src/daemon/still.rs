//! Keeps the processes of a box from running, and says what was measured after.
//!
//! | way | how | what is measured |
//! |---|---|---|
//! | cgroup | `cgroup.freeze` of the box's own group (cgroups(7), v2) | `frozen 1` in its `cgroup.events`, which the kernel writes when every thread stands |
//! | signals | SIGSTOP to each process by its folder in the box's own `/proc`, which is as good as a pidfd (pidfd_send_signal(2)) | the state of each thread there: two passes in a row must find none that runs |
//!
//! A process that was stopped before, by the box itself, is not woken at the end.
//! One pass is not enough: until all stand, one that runs can make another, or wake
//! one that was stopped. A thread in the middle of an uninterruptible call (state D)
//! runs none of its own code before the signal that it has is seen to.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use bailey_model::Hold;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::Signal;

use super::limits::Freezer;

/// How long a box may take until all of it stands.
const LIMIT: Duration = Duration::from_secs(2);
/// Between two looks.
const STEP: Duration = Duration::from_millis(2);
/// Longest `stat` that is read: its name has at most 64 bytes, its numbers 20 digits.
const MAX_STAT: usize = 2048;

/// What a box's processes are held by.
#[derive(Debug)]
pub(super) struct Grip {
    /// Its cgroup, where it has one that can be frozen.
    pub(super) freezer: Option<Freezer>,
    /// The root of its own `/proc`.
    pub(super) proc_root: Option<OwnedFd>,
}

/// A box of which nothing runs.
#[derive(Debug)]
pub(crate) struct Held {
    /// Processes that were counted.
    pub(crate) processes: u32,
    pub(crate) hold: Hold,
    grip: Grip,
    /// What was stopped by signal: ids in the box, and when each was begun.
    stopped: Stopped,
}

/// Process ids as the box counts, with their times of begin in ticks: an id alone may
/// be another process's by now.
type Stopped = BTreeMap<u32, u64>;

/// Why a box does not stand still, or does not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum StillError {
    /// It has neither.
    #[error(
        "it has no process space of its own and no cgroup, so nothing could say that it stands"
    )]
    NoGrip,
    /// Some of it ran on.
    #[error("{running} of {processes} processes still ran after {} s; none is held now", LIMIT.as_secs())]
    Runs { running: u32, processes: u32 },
    /// The kernel did not say that the group stands.
    #[error("its cgroup did not stand within {} s; it is not held now", LIMIT.as_secs())]
    NotFrozen,
    /// Its `/proc` cannot be read, or a process not be told.
    #[error("its processes: {0}")]
    Proc(#[from] Errno),
    /// Its group cannot be written or read.
    #[error("its cgroup: {0}")]
    Cgroup(#[from] std::io::Error),
}

/// Holds a box. Where that fails nothing of it stays held. To be called where one may
/// wait.
pub(super) fn hold(grip: Grip) -> Result<Held, StillError> {
    match (&grip.freezer, &grip.proc_root) {
        (Some(freezer), _) => {
            let frozen = freeze(freezer);
            if frozen.is_err() {
                freezer.set(false)?;
            }
            Ok(Held {
                processes: frozen?,
                hold: Hold::Cgroup,
                grip,
                stopped: Stopped::new(),
            })
        }
        (None, Some(root)) => {
            let mut stopped = Stopped::new();
            match stop_all(root.as_fd(), &mut stopped) {
                Ok(processes) => Ok(Held {
                    processes,
                    hold: Hold::Signals,
                    grip,
                    stopped,
                }),
                Err(error) => {
                    wake(root.as_fd(), &stopped)?;
                    Err(error)
                }
            }
        }
        (None, None) => Err(StillError::NoGrip),
    }
}

/// Lets it go on. Back comes what was held where that fails.
pub(super) fn let_go(held: Held) -> Result<(), (Held, StillError)> {
    let done = match (held.hold, &held.grip) {
        (Hold::Cgroup, Grip { freezer, .. }) => freezer
            .as_ref()
            .map_or(Ok(()), |freezer| freezer.set(false))
            .map_err(StillError::from),
        (Hold::Signals, Grip { proc_root, .. }) => proc_root
            .as_ref()
            .map_or(Ok(()), |root| wake(root.as_fd(), &held.stopped))
            .map_err(StillError::from),
    };
    done.map_err(|error| (held, error))
}

fn freeze(freezer: &Freezer) -> Result<u32, StillError> {
    let until = Instant::now() + LIMIT;
    freezer.set(true)?;
    while !freezer.stands()? {
        if Instant::now() > until {
            return Err(StillError::NotFrozen);
        }
        std::thread::sleep(STEP);
    }
    Ok(freezer.processes()?)
}

/// What a pass found.
#[derive(Debug, Default, Clone, Copy)]
struct Pass {
    processes: u32,
    running: u32,
}

fn stop_all(root: BorrowedFd<'_>, stopped: &mut Stopped) -> Result<u32, StillError> {
    let until = Instant::now() + LIMIT;
    let mut stood = false;
    loop {
        let pass = stop_pass(root, stopped)?;
        match (pass.running, stood) {
            (0, true) => return Ok(pass.processes),
            (running, _) => stood = running == 0,
        }
        if Instant::now() > until {
            let Pass { processes, running } = pass;
            return Err(StillError::Runs { running, processes });
        }
        if !stood {
            std::thread::sleep(STEP);
        }
    }
}

/// Tells each process that does not stand to stop.
fn stop_pass(root: BorrowedFd<'_>, stopped: &mut Stopped) -> Result<Pass, Errno> {
    let mut pass = Pass::default();
    each_number(root, |name, pid| {
        let folder = match folder(root, name) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            other => other?,
        };
        let state = match state_of(folder.as_fd()) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            other => other?,
        };
        let (stands, begun) = match state {
            State::Dead => return Ok(()),
            State::Stands => {
                pass.processes += 1;
                return Ok(());
            }
            State::Waits(begun) => (stopped.get(&pid) == Some(&begun), begun),
            State::Runs(begun) => (false, begun),
        };
        match rustix::process::pidfd_send_signal(&folder, Signal::STOP) {
            Err(Errno::SRCH) => return Ok(()),
            other => other?,
        }
        stopped.insert(pid, begun);
        pass.processes += 1;
        pass.running += u32::from(!stands);
        Ok(())
    })?;
    Ok(pass)
}

/// Wakes what was stopped here, and nothing else.
fn wake(root: BorrowedFd<'_>, stopped: &Stopped) -> Result<(), Errno> {
    for (pid, begun) in stopped {
        let name = std::ffi::CString::new(pid.to_string()).map_err(|_| Errno::INVAL)?;
        let woken = folder(root, &name).and_then(|folder| {
            match stat(folder.as_fd(), c"stat")?.begun == *begun {
                true => rustix::process::pidfd_send_signal(&folder, Signal::CONT),
                false => Ok(()),
            }
        });
        match woken {
            // It has ended.
            Ok(()) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// How a process is, by all its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has ended, and waits to be reaped at most.
    Dead,
    /// Every thread is stopped.
    Stands,
    /// None runs, and some are within an uninterruptible call; when it was begun.
    Waits(u64),
    /// Some run, or would if something came; when it was begun.
    Runs(u64),
}

fn state_of(folder: BorrowedFd<'_>) -> Result<State, Errno> {
    let begun = stat(folder, c"stat")?.begun;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = openat(folder, c"task", flags, Mode::empty())?;
    let (mut stopped, mut waits) = (false, false);
    let mut runs = false;
    each_number(tasks.as_fd(), |name, _| {
        let path = [name.to_bytes(), b"/stat\0"].concat();
        let path = CStr::from_bytes_with_nul(&path).map_err(|_| Errno::INVAL)?;
        match stat(tasks.as_fd(), path) {
            Ok(stat) => match stat.state {
                // proc_pid_stat(5); a first thread may end before the others.
                b'Z' | b'X' => {}
                b'T' | b't' => stopped = true,
                b'D' => waits = true,
                _ => runs = true,
            },
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    })?;
    Ok(match (runs, waits, stopped) {
        (true, ..) => State::Runs(begun),
        (false, true, _) => State::Waits(begun),
        (false, false, true) => State::Stands,
        (false, false, false) => State::Dead,
    })
}

struct Stat {
    state: u8,
    /// When it was begun, in ticks since the machine was.
    begun: u64,
}

/// Reads what follows the name, which may hold any byte (proc_pid_stat(5)).
fn stat(folder: BorrowedFd<'_>, path: &CStr) -> Result<Stat, Errno> {
    let file = openat(
        folder,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut bytes = [0_u8; MAX_STAT];
    let count = rustix::io::read(&file, &mut bytes)?;
    let text = bytes.get(..count).unwrap_or_default();
    read_stat(text).ok_or(Errno::SRCH)
}

fn read_stat(text: &[u8]) -> Option<Stat> {
    /// Place of the time of begin after the name, the state being 0.
    const BEGUN: usize = 19;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    let state = *rest.as_bytes().first()?;
    let begun = rest.split(' ').nth(BEGUN)?.parse().ok()?;
    Some(Stat { state, begun })
}

fn folder(root: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(root, name, flags, Mode::empty())
}

/// Every name of a folder that is a number.
fn each_number(
    root: BorrowedFd<'_>,
    mut take: impl FnMut(&CStr, u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // Opened anew: a folder's place is that of all who hold its descriptor.
    let folder = match folder(root, c".") {
        // A /proc whose process space is gone.
        Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
        other => other?,
    };
    for entry in Dir::new(folder)? {
        let entry = match entry {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            other => other?,
        };
        let number = entry.file_name().to_str().ok();
        if let Some(number) = number.and_then(|name| name.parse().ok()) {
            take(entry.file_name(), number)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_behind_whatever_name() {
        let line = b"7 (a) R 1 (x) T 1 7 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 4711 9 9\n";
        let stat = read_stat(line).unwrap();
        assert_eq!((stat.state, stat.begun), (b'T', 4711));
        assert!(read_stat(b"7 (a) R 1").is_none() && read_stat(b"").is_none());
    }

    #[test]
    fn a_process_is_seen_to_stand_once_it_was_stopped_and_to_run_once_it_was_woken() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let root = folder(rustix::fs::CWD, c"/proc").unwrap();
        let name = std::ffi::CString::new(child.id().to_string()).unwrap();
        let of_child = folder(root.as_fd(), &name).unwrap();
        let begun = stat(of_child.as_fd(), c"stat").unwrap().begun;
        assert_eq!(state_of(of_child.as_fd()), Ok(State::Runs(begun)));
        rustix::process::pidfd_send_signal(&of_child, Signal::STOP).unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while state_of(of_child.as_fd()) != Ok(State::Stands) {
            assert!(Instant::now() < until);
        }
        // Another process of this id is not it.
        let other = Stopped::from([(child.id(), begun + 1)]);
        wake(root.as_fd(), &other).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(state_of(of_child.as_fd()), Ok(State::Stands));
        wake(root.as_fd(), &Stopped::from([(child.id(), begun)])).unwrap();
        while state_of(of_child.as_fd()) == Ok(State::Stands) {
            assert!(Instant::now() < until);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        wake(root.as_fd(), &Stopped::from([(child.id(), begun)])).unwrap();
    }
}
