//! The calls that no safe wrapper offers.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getppid};

/// Lets the command die with the thread that starts it, and start with a signal
/// mask. The command must be started into a pid namespace that does not hold
/// its parent.
pub(crate) fn die_with_parent(command: &mut Command, mask: SigSet) {
    let hook = move || {
        mask.thread_set_mask()?;
        set_pdeathsig(Signal::SIGKILL)?;
        // A parent outside the namespace has number 0; another number is the
        // process that adopted this one after the parent's death.
        if getppid() == Pid::from_raw(0) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotConnected.into())
        }
    };
    // SAFETY: the hook makes three system calls, takes no lock, allocates nothing.
    let _command = unsafe { command.pre_exec(hook) };
}

/// One instruction of a classic BPF program: code, jumps, operand.
pub(crate) type Instruction = (u16, u8, u8, u32);

/// Attaches a classic BPF program to a socket (socket(7), SO_ATTACH_FILTER).
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = u16::try_from(code.len()).map_err(|_long| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: code.as_mut_ptr(),
    };
    let size = libc::socklen_t::try_from(size_of_val(&program))
        .map_err(|_long| io::ErrorKind::InvalidInput)?;
    // SAFETY: `program` points at `code`, both live until the call returns, and
    // the kernel copies what it reads.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
