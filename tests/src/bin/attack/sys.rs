//! The raw calls that attacks are made of.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// One argument of a system call.
pub(crate) enum Arg<'a> {
    /// A number, or the address of nothing.
    Number(u64),
    /// A path or another text.
    Text(&'a CStr),
    /// Memory that the kernel reads or writes.
    Bytes(&'a mut [u8]),
}

/// The working folder, where a call wants a descriptor.
pub(crate) const HERE: u64 = (-100_i64).cast_unsigned();

/// An address at which there is never anything.
pub(crate) const NOWHERE: Arg<'static> = Arg::Number(8);

/// Asks the kernel; an error is its number.
pub(crate) fn call(number: libc::c_long, args: &mut [Arg<'_>]) -> Result<i64, i32> {
    let mut words = [0_u64; 6];
    for (word, arg) in words.iter_mut().zip(args) {
        *word = match arg {
            Arg::Number(number) => *number,
            Arg::Text(text) => text.as_ptr().expose_provenance() as u64,
            Arg::Bytes(bytes) => bytes.as_mut_ptr().expose_provenance() as u64,
        };
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: what the kernel may write to is one of the caller's own buffers;
    // the other addresses are of nothing or only read.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer < 0 {
        return Err(last_error());
    }
    Ok(answer)
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Loads a system call filter, for what this process starts too.
pub(crate) fn load_filter(program: &mut [libc::sock_filter]) -> Result<(), i32> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: only numbers are passed.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(last_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program outlives the call; the kernel copies and checks it.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, 0_u32, &raw const program) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// A call that makes a process (clone, clone3): the child ends at once and is
/// waited for.
pub(crate) fn make_process(number: libc::c_long, args: &mut [Arg<'_>]) -> Result<(), i32> {
    match call(number, args)? {
        // SAFETY: ends this child, which shares nothing that it could break.
        0 => unsafe { libc::_exit(0) },
        child => {
            let pid = libc::pid_t::try_from(child).unwrap_or(-1);
            // SAFETY: the status is not wanted; the child is of ours.
            let _ended = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
            Ok(())
        }
    }
}

/// Opens a path from a descriptor whose number is known, whoever made it.
pub(crate) fn open_at(folder: RawFd, path: &CStr) -> io::Result<File> {
    // SAFETY: the text ends in NUL and lives during the call.
    let fd = unsafe { libc::openat(folder, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nothing else holds it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Whether a descriptor of this number is open.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks for flags alone.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0
}

/// A socket, by its three numbers.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, i32> {
    // SAFETY: three numbers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: it was just made, and nothing else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The value of `SO_PEERPIDFD`, not in every C library.
const SO_PEERPIDFD: i32 = 77;

/// A descriptor of the process at the other end of a socket.
pub(crate) fn peer_pidfd(stream: &UnixStream) -> Result<OwnedFd, i32> {
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: the kernel writes one number and its length, both ours.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if answer < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks the kernel by the entry of 32-bit programs; a negative answer is an
/// error's number. `None` where the machine has no such entry.
#[cfg(target_arch = "x86_64")]
pub(crate) fn old_entry(number: u32, first: u32, second: u32) -> Option<i32> {
    let mut answer = u64::from(number);
    // SAFETY: the kernel keeps every register but the answer's; `rbx`, which
    // the compiler keeps for itself, is put back. Addresses are the caller's.
    unsafe {
        std::arch::asm!(
            "mov {kept}, rbx",
            "mov ebx, {first:e}",
            "int 0x80",
            "mov rbx, {kept}",
            kept = out(reg) _,
            first = in(reg) first,
            inout("rax") answer,
            in("rcx") u64::from(second),
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    let [a, b, c, d, ..] = answer.to_le_bytes();
    Some(i32::from_le_bytes([a, b, c, d]))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn old_entry(_number: u32, _first: u32, _second: u32) -> Option<i32> {
    None
}

/// Numbers at an address that fits 32 bits, for a call whose arguments lie in
/// memory.
#[cfg(target_arch = "x86_64")]
pub(crate) fn low_memory(numbers: [u32; 3]) -> Option<u32> {
    // SAFETY: new memory at a place that the kernel chooses.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the memory is new, ours, aligned, and longer than three numbers.
    unsafe { at.cast::<[u32; 3]>().write(numbers) };
    u32::try_from(at.expose_provenance()).ok()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) const fn low_memory(_numbers: [u32; 3]) -> Option<u32> {
    None
}

/// Makes System V shared memory under a key, and removes it again when asked.
pub(crate) fn shared_memory(key: i32, make: bool) -> Result<i32, i32> {
    let flags = if make { libc::IPC_CREAT | 0o600 } else { 0 };
    // SAFETY: three numbers.
    let id = unsafe { libc::shmget(key, 4096, flags) };
    if id < 0 { Err(last_error()) } else { Ok(id) }
}

/// Removes shared memory.
pub(crate) fn remove_shared_memory(id: i32) {
    // SAFETY: a number; nothing is read or written.
    let _removed = unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
}

/// Opens a message queue, or makes one.
pub(crate) fn message_queue(name: &CStr, make: bool) -> Result<(), i32> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | if make { libc::O_CREAT } else { 0 };
    let none = std::ptr::null_mut::<libc::mq_attr>();
    // SAFETY: the name ends in NUL; without attributes the kernel takes its own.
    let queue = unsafe { libc::mq_open(name.as_ptr(), flags, 0o600 as libc::mode_t, none) };
    if queue < 0 { Err(last_error()) } else { Ok(()) }
}

/// Removes a message queue.
pub(crate) fn remove_message_queue(name: &CStr) {
    // SAFETY: the name ends in NUL.
    let _removed = unsafe { libc::mq_unlink(name.as_ptr()) };
}
