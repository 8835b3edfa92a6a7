//! The few calls without a safe wrapper.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd, OwnedFd};

use nix::errno::Errno;

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

/// Sets a socket option whose value is a number.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn set_number(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(size_of_val(&value)).unwrap_or_default();
    let at: *const libc::c_int = &raw const value;
    // SAFETY: the pointer is to a number of just that length, which outlives the
    // call, and the kernel only reads it.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, at.cast(), len) };
    Errno::result(done).map(drop)
}

/// Lets the box's kernel hand over segments as it made them: as long as they are,
/// whatever their connection's segment size, and with their checksum left open,
/// which nobody here looks at (`TUNSETOFFLOAD` of linux/if_tun.h). A kernel that
/// does not know it goes on as before.
pub(crate) fn leave_sums_open(tun: &OwnedFd) {
    let offload: libc::c_ulong = (libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6).into();
    // SAFETY: the argument is a plain number and no memory is touched.
    let _unknown = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, offload) };
}

/// Whether each packet of a TUN has a header before it (`IFF_VNET_HDR`).
pub(crate) fn has_headers(tun: &OwnedFd) -> bool {
    // SAFETY: a request of numbers alone, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let at: *mut libc::ifreq = &raw mut request;
    // SAFETY: the kernel writes one request, which outlives the call.
    let asked = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNGETIFF, at) };
    // SAFETY: the flags are what this question is answered with.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    asked == 0 && libc::c_int::from(flags) & libc::IFF_VNET_HDR != 0
}

/// Memory that is a file's.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: std::ptr::NonNull<libc::c_void>,
    len: usize,
}

/// Maps the beginning of a file, whose bytes are then what is written here. The file
/// must be as long, with room on its disk: a page without ends the process.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn map_shared(file: &OwnedFd, len: usize) -> io::Result<Mapping> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory
    // that is in use.
    let at = unsafe { libc::mmap(null, len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    match std::ptr::NonNull::new(at).filter(|_| at != libc::MAP_FAILED) {
        Some(at) => Ok(Mapping { at, len }),
        None => Err(io::Error::last_os_error()),
    }
}

impl Mapping {
    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is of this length, readable and writable, and lives as
        // long as this value, of which there is one. The node, which made the file,
        // neither writes nor shortens it while this process has it.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference
        // to its bytes outlives this value.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}

/// Fills a buffer with random bytes of the kernel (getrandom(2)).
///
/// # Errors
/// When it gives fewer.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the kernel writes at most that many bytes there.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(count) {
        Ok(count) if count == bytes.len() => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
