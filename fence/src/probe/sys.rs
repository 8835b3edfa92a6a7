//! System calls with arguments that the kernel refuses, or that change nothing
//! but the process which makes them.

use std::io;

use nix::errno::Errno;

/// A system call whose arguments are numbers. Its word is all that is wanted.
///
/// For calls that write to no memory of this process: every pointer among the
/// arguments is null or [`NOWHERE`].
pub(super) fn ask(number: libc::c_long, arguments: [usize; 6]) -> Result<libc::c_long, Errno> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: no pointer leads to memory of this process, by the caller's word.
    let got = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    Errno::result(got)
}

/// An address that no process has anything at.
pub(super) const NOWHERE: usize = 1;

/// The limit of a resource, its soft and its hard value.
pub(super) fn limit(resource: libc::__rlimit_resource_t) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit outlives the call.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((limit.rlim_cur, limit.rlim_max))
}
