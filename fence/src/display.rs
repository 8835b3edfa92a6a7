//! Starts the X server of a box's own display, inside the box: after all of its
//! confinement, before the command.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::SetupError;
use bailey_fence_plan::display::{FOLDER, MISSING, READY, SERVER, server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::limits::Bounds;
use crate::step::StepError;
use crate::sys;

/// How long the server may take until it answers; less than the node gives the
/// whole box.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// It looks for its keyboard's compiler there, and writes to no home.
const ENVIRONMENT: [&str; 2] = ["PATH=/usr/bin:/bin", "HOME=/"];
/// The status of a child that could not become the server.
const FAILED: u8 = 127;

/// A display that answers.
#[derive(Debug)]
pub(crate) struct Display {
    /// The server.
    pub(crate) pid: Pid,
    /// The folder of its picture, to be looked into from outside.
    pub(crate) folder: OwnedFd,
}

/// Starts the server and waits until it answers.
pub(crate) fn start(size: (u16, u16), bounds: &Bounds) -> Result<Display, SetupError> {
    try_start(size, bounds)
        .map_err(|error| error.at("start the box's display", Some(SERVER.as_bytes())))
}

fn try_start(size: (u16, u16), bounds: &Bounds) -> Result<Display, StepError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, FOLDER, flags, Mode::empty())?;
    let (ready, ready_inside) = pipe_with(PipeFlags::CLOEXEC)?;
    let (failed, failed_inside) = pipe_with(PipeFlags::CLOEXEC)?;
    let Some(pid) = sys::fork()? else {
        let errno = match bounds.limit_files() {
            Ok(()) => become_server(size, &ready_inside),
            Err(errno) => errno,
        };
        let _ = rustix::io::write(&failed_inside, &errno.raw_os_error().to_ne_bytes());
        sys::exit_now(FAILED)
    };
    drop((ready_inside, failed_inside));
    wait_executed(&failed)?;
    wait_ready(&ready)?;
    Ok(Display { pid, folder })
}

/// Does not return but for an error: a session of its own, nothing open but the
/// box's null streams and the descriptor on which it says that it answers.
fn become_server(size: (u16, u16), ready: &OwnedFd) -> Errno {
    let run = || -> Result<(), Errno> {
        rustix::process::setsid()?;
        let plain = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        sys::close_on_exec_from(3).map_err(plain)?;
        rustix::io::fcntl_setfd(ready, FdFlags::empty())?;
        sys::default_signals().map_err(plain)?;
        let text = |word: &str| CString::new(word).map_err(|_| Errno::INVAL);
        let words = server(size, ready.as_raw_fd());
        let words: Vec<CString> = words
            .iter()
            .map(|word| text(word))
            .collect::<Result<_, _>>()?;
        let environment = ENVIRONMENT.map(|word| text(word).unwrap_or_default());
        let failed = nix::unistd::execve(&text(SERVER)?, &words, &environment);
        Err(failed
            .err()
            .map_or(Errno::IO, |errno| Errno::from_raw_os_error(errno as i32)))
    };
    run().err().unwrap_or(Errno::IO)
}

/// The child's copy of the pipe closes when the server is executed; what comes
/// before that is the error.
fn wait_executed(failed: &OwnedFd) -> Result<(), StepError> {
    let mut errno = [0_u8; 4];
    let count = loop {
        match rustix::io::read(failed, &mut errno) {
            Err(Errno::INTR) => {}
            got => break got?,
        }
    };
    if count == 0 {
        return Ok(());
    }
    let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno));
    Err(match errno {
        Errno::NOENT => StepError::Because {
            errno,
            why: MISSING,
        },
        other => other.into(),
    })
}

/// What it says, once it says something; its end, or its limit.
fn wait_ready(ready: &OwnedFd) -> Result<(), StepError> {
    let until = Instant::now() + READY_LIMIT;
    let mut said = [0_u8; 8];
    let mut count = 0;
    while !said.get(..count).is_some_and(|said| said.ends_with(b"\n")) {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut polled = [PollFd::from_borrowed_fd(ready.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&wait)) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(StepError::Refused("it did not answer in time")),
            other => other?,
        };
        let rest = said.get_mut(count..).unwrap_or_default();
        match rustix::io::read(ready, rest) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(StepError::Refused("it ended before it answered")),
            got => count += got?,
        }
    }
    if said.get(..count) == Some(READY) {
        return Ok(());
    }
    Err(StepError::Refused("it answers on another display"))
}
