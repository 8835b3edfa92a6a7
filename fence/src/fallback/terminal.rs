//! A terminal where no operation of a plan makes it.

use std::os::fd::OwnedFd;

use bailey_channel::Channel;
use bailey_fence_plan::channel::{BoxSpec, SetupError, Stdio};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::OpenptFlags;
use std::os::fd::AsFd as _;

use crate::init::FromInit;
use crate::step::StepError;

/// Makes the command's terminal, if it has one, and gives the master away.
pub(super) fn open(spec: &BoxSpec, up: &mut Channel) -> Result<Option<OwnedFd>, SetupError> {
    let Stdio::Pty { rows, cols } = spec.stdio else {
        return Ok(None);
    };
    make(rows, cols, up)
        .map(Some)
        .map_err(|error| error.at("make the terminal", None))
}

fn make(rows: u16, cols: u16, up: &mut Channel) -> Result<OwnedFd, StepError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = openat(CWD, c"/dev/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
    let size = rustix::termios::Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&master, size)?;
    up.send(&FromInit::Pty, &[master.as_fd()])
        .map_err(|_| StepError::Refused("the launcher is gone"))?;
    Ok(ours)
}
