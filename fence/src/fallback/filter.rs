//! What Landlock does not see, refused by the number of the call: for a box
//! whose paths are the host's own.
//!
//! Landlock judges what is opened, made and removed. It does not judge who
//! connects to a socket that has a path, so a box could ask the session's bus,
//! a container engine or the node itself; nor who changes the mode, the owner,
//! the times or the attributes of what is there. The kernel shares System V
//! objects between all of a user's programs, and lets each limit the others.

use crate::step::StepError;
use crate::sys;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Of `struct seccomp_data`: the call, the machine, the first argument.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Load a word; jump if equal; mask; end (`linux/bpf_common.h`).
const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const MASK: u16 = 0x54;
const END: u16 = 0x06;

const UNIX: u32 = 1;
/// The kind of a socket without its flags; those that stay with their peer.
const KIND: u32 = 0xf;
const STREAM: u32 = 1;
const PACKETS: u32 = 5;

/// Which calls of one number are refused.
enum When {
    Always,
    /// The argument is this.
    Is(u32, u32),
    /// It is not, in its lower half; the upper one is the kernel's not to see.
    IsNot(u32, u32),
    /// It is a pointer to something.
    Given(u32),
    /// With the mask, it is none of these two.
    Neither(u32, u32, [u32; 2]),
}

use When::{Always, Given, Is, IsNot, Neither};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

/// The call, when, the answer.
const REFUSED: &[(libc::c_long, When, u32)] = &[
    // A socket with a path leads to any program of the user's.
    (libc::SYS_socket, Is(0, UNIX), EAFNOSUPPORT),
    // A pair of datagrams can be sent elsewhere than to its peer.
    (
        libc::SYS_socketpair,
        Neither(1, KIND, [STREAM, PACKETS]),
        EAFNOSUPPORT,
    ),
    // What is there keeps its mode, owner, times and attributes. By descriptor
    // they can be changed: only what may be opened has one.
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, Always, EPERM),
    (libc::SYS_fchmodat, Always, EPERM),
    (SYS_FCHMODAT2, Always, EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, Always, EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, Always, EPERM),
    (libc::SYS_fchownat, Always, EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utime, Always, EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_utimes, Always, EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_futimesat, Given(1), EPERM),
    (libc::SYS_utimensat, Given(1), EPERM),
    (libc::SYS_setxattr, Always, EPERM),
    (libc::SYS_lsetxattr, Always, EPERM),
    (libc::SYS_removexattr, Always, EPERM),
    (libc::SYS_lremovexattr, Always, EPERM),
    // Shared by all of a user's programs.
    (libc::SYS_shmget, Always, ENOSYS),
    (libc::SYS_shmat, Always, ENOSYS),
    (libc::SYS_shmctl, Always, ENOSYS),
    (libc::SYS_semget, Always, ENOSYS),
    (libc::SYS_semop, Always, ENOSYS),
    (libc::SYS_semtimedop, Always, ENOSYS),
    (libc::SYS_semctl, Always, ENOSYS),
    (libc::SYS_msgget, Always, ENOSYS),
    (libc::SYS_msgsnd, Always, ENOSYS),
    (libc::SYS_msgrcv, Always, ENOSYS),
    (libc::SYS_msgctl, Always, ENOSYS),
    (libc::SYS_mq_open, Always, ENOSYS),
    (libc::SYS_mq_unlink, Always, ENOSYS),
    // Of others: a limit of processor time ends them.
    (libc::SYS_prlimit64, IsNot(0, 0), EPERM),
    (libc::SYS_setpriority, IsNot(1, 0), EPERM),
    (libc::SYS_sched_setaffinity, IsNot(0, 0), EPERM),
    (libc::SYS_sched_setscheduler, IsNot(0, 0), EPERM),
    (libc::SYS_sched_setparam, IsNot(0, 0), EPERM),
    (libc::SYS_sched_setattr, IsNot(0, 0), EPERM),
    (libc::SYS_ioprio_set, IsNot(1, 0), EPERM),
    (libc::SYS_migrate_pages, IsNot(0, 0), EPERM),
    (libc::SYS_move_pages, IsNot(0, 0), EPERM),
];

/// The same number on every architecture.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Loads it for this process and all that it starts; needs no_new_privs.
pub(super) fn load() -> Result<(), StepError> {
    Ok(sys::load_filter(&mut program())?)
}

fn program() -> Vec<libc::sock_filter> {
    let permit = step(END, libc::SECCOMP_RET_ALLOW);
    let mut all = vec![
        step(LOAD, MACHINE),
        jump(ARCHITECTURE, 1, 0),
        step(END, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    for (number, when, errno) in REFUSED {
        let refuse = step(END, libc::SECCOMP_RET_ERRNO | errno);
        let mut test = match *when {
            Always => vec![],
            Is(argument, value) => vec![step(LOAD, low(argument)), jump(value, 0, 1)],
            IsNot(argument, value) => vec![step(LOAD, low(argument)), jump(value, 1, 0)],
            // Refused if either half is not 0: past the second test otherwise.
            Given(argument) => vec![
                step(LOAD, low(argument)),
                jump(0, 0, 2),
                step(LOAD, low(argument) + 4),
                jump(0, 1, 0),
            ],
            Neither(argument, mask, [one, other]) => vec![
                step(LOAD, low(argument)),
                step(MASK, mask),
                jump(one, 2, 0),
                jump(other, 1, 0),
            ],
        };
        test.push(refuse);
        let skipped = u8::try_from(test.len()).unwrap_or(u8::MAX);
        all.push(step(LOAD, NUMBER));
        all.push(jump(u32::try_from(*number).unwrap_or(u32::MAX), 0, skipped));
        all.append(&mut test);
    }
    all.push(permit);
    all
}

/// The low half of an argument, on machines with the low half first.
fn low(argument: u32) -> u32 {
    ARGUMENTS + 8 * argument
}

fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn jump(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: IF_EQUAL,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on one call, as the kernel does.
    fn answer(number: libc::c_long, arguments: [u64; 3]) -> u32 {
        let mut data = Vec::new();
        data.extend(u32::try_from(number).unwrap().to_le_bytes());
        data.extend(ARCHITECTURE.to_le_bytes());
        data.extend([0; 8]);
        arguments
            .iter()
            .for_each(|argument| data.extend(argument.to_le_bytes()));
        let (program, mut at, mut held) = (program(), 0_usize, 0_u32);
        loop {
            let now = program[at];
            at += 1;
            match now.code {
                LOAD => {
                    let from = now.k as usize;
                    held = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                }
                MASK => held &= now.k,
                IF_EQUAL if held == now.k => at += usize::from(now.jt),
                IF_EQUAL => at += usize::from(now.jf),
                END => return now.k,
                other => panic!("{other}"),
            }
        }
    }

    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO;

    #[test]
    fn a_unix_socket_is_refused_and_a_pair_of_streams_is_not() {
        let socket = libc::SYS_socket;
        assert_eq!(answer(socket, [1, 1, 0]), REFUSE | EAFNOSUPPORT);
        assert_eq!(answer(socket, [2, 1, 0]), libc::SECCOMP_RET_ALLOW);
        // The kernel looks at the low half alone.
        assert_eq!(answer(socket, [1 << 32 | 1, 1, 0]), REFUSE | EAFNOSUPPORT);
        let pair = libc::SYS_socketpair;
        let flags = 0o2_004_000;
        assert_eq!(answer(pair, [1, flags | 1, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(answer(pair, [1, 5, 0]), libc::SECCOMP_RET_ALLOW);
        for kind in [0, 2, 3, 4] {
            assert_eq!(answer(pair, [1, flags | kind, 0]), REFUSE | EAFNOSUPPORT);
        }
    }

    #[test]
    fn only_what_is_open_changes_its_mode_and_times() {
        assert_eq!(answer(libc::SYS_fchmodat, [0, 0, 0]), REFUSE | EPERM);
        assert_eq!(
            answer(libc::SYS_fchmod, [3, 0o600, 0]),
            libc::SECCOMP_RET_ALLOW
        );
        let times = libc::SYS_utimensat;
        assert_eq!(answer(times, [3, 0, 0]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(answer(times, [3, 1 << 40, 0]), REFUSE | EPERM);
        assert_eq!(answer(times, [3, 0x1000, 0]), REFUSE | EPERM);
    }

    #[test]
    fn limits_are_a_process_s_own_to_set() {
        assert_eq!(
            answer(libc::SYS_prlimit64, [0, 7, 0]),
            libc::SECCOMP_RET_ALLOW
        );
        assert_eq!(answer(libc::SYS_prlimit64, [1234, 0, 0]), REFUSE | EPERM);
        assert_eq!(answer(libc::SYS_shmget, [0, 0, 0]), REFUSE | ENOSYS);
        assert_eq!(answer(libc::SYS_read, [0, 0, 0]), libc::SECCOMP_RET_ALLOW);
    }

    #[test]
    fn the_program_is_within_the_kernels_bound() {
        assert!(program().len() < 4096);
    }
}
