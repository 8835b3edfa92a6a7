//! The few calls without a safe wrapper.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes standard input, which is the node's channel, into ownership.
///
/// # Errors
/// When standard input is closed.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    nix::fcntl::fcntl(io::stdin(), nix::fcntl::FcntlArg::F_GETFD)?;
    // SAFETY: descriptor 0 is open, as just asked; this program never uses
    // `std::io::stdin` to read, and takes the descriptor once, at its start.
    Ok(unsafe { OwnedFd::from_raw_fd(0) })
}

/// Keeps large buffers in mappings of their own, so that an unused one costs no
/// memory and a freed one goes back: the C library would otherwise raise its
/// bound with the first that is freed (mallopt(3)).
pub(crate) fn map_large_buffers() {
    /// The C library's own first bound.
    const THRESHOLD: libc::c_int = 128 << 10;
    // SAFETY: mallopt only sets a tunable, and no other thread exists yet.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD) };
}

/// What a process keeps to itself: no core, no ptrace, no new privileges.
///
/// # Errors
/// When the kernel refuses one of them.
pub(crate) fn keep_to_itself() -> io::Result<()> {
    for (option, value) in [(libc::PR_SET_DUMPABLE, 0), (libc::PR_SET_NO_NEW_PRIVS, 1)] {
        let value: libc::c_ulong = value;
        let none: libc::c_ulong = 0;
        // SAFETY: both options take plain numbers and touch no memory.
        if unsafe { libc::prctl(option, value, none, none, none) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
