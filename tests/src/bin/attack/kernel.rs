//! Parts of the kernel that no box needs, and other entries to it.

use std::ffi::CStr;

use crate::sys::{Arg, HERE, NOWHERE, call, low_memory, make_process, old_entry, socket};
use crate::{Attack, Held, Outcome, Through, Untried, errno, in_a_child, reached};

pub(crate) const ALL: &[Attack] = &[
    ("io-uring", |_| {
        reached(call(
            libc::SYS_io_uring_setup,
            &mut [Arg::Number(1), NOWHERE],
        ))
    }),
    ("bpf", |_| {
        reached(call(
            libc::SYS_bpf,
            &mut [Arg::Number(0), NOWHERE, Arg::Number(8192)],
        ))
    }),
    ("perf-event", |_| {
        let flags = Arg::Number(1 << 20);
        let any = || Arg::Number(u64::MAX);
        reached(call(
            libc::SYS_perf_event_open,
            &mut [NOWHERE, Arg::Number(0), any(), any(), flags],
        ))
    }),
    // User mode only: what an ordinary user may have outside.
    ("userfaultfd", |_| {
        reached(call(libc::SYS_userfaultfd, &mut [Arg::Number(1)]))
    }),
    ("keyring", |_| {
        let session = Arg::Number(u64::MAX - 2);
        let mut payload = *b"x";
        let payload = Arg::Bytes(&mut payload);
        let args = &mut [
            Arg::Text(c"user"),
            Arg::Text(c"bailey-attack"),
            payload,
            Arg::Number(1),
            session,
        ];
        reached(call(libc::SYS_add_key, args))
    }),
    ("kcmp", |_| {
        let own = u64::from(std::process::id());
        let own = || Arg::Number(own);
        reached(call(libc::SYS_kcmp, &mut [own(), own(), Arg::Number(1)]))
    }),
    ("open-by-handle", |_| {
        let here = Arg::Number(HERE);
        reached(call(
            libc::SYS_open_by_handle_at,
            &mut [here, NOWHERE, Arg::Number(0)],
        ))
    }),
    ("personality", |_| {
        reached(call(libc::SYS_personality, &mut [Arg::Number(0x0040_0000)]))
    }),
    ("mount", |_| {
        let args = &mut [NOWHERE, NOWHERE, NOWHERE, Arg::Number(0), NOWHERE];
        reached(call(libc::SYS_mount, args))
    }),
    ("umount", |_| {
        reached(call(
            libc::SYS_umount2,
            &mut [Arg::Text(c"/"), Arg::Number(1 << 20)],
        ))
    }),
    ("chroot", |_| {
        reached(call(libc::SYS_chroot, &mut [NOWHERE]))
    }),
    ("setns", |_| {
        reached(call(
            libc::SYS_setns,
            &mut [Arg::Number(1 << 20), Arg::Number(0)],
        ))
    }),
    ("new-mount-calls", new_mount_calls),
    ("user-namespace-unshare", |_| {
        let new_user = Arg::Number(0x1000_0000);
        reached(call(libc::SYS_unshare, &mut [new_user]))
    }),
    ("user-namespace-clone", |_| {
        let flags = Arg::Number(0x1000_0000 | 17);
        let none = || Arg::Number(0);
        reached(
            make_process(
                libc::SYS_clone,
                &mut [flags, none(), none(), none(), none()],
            )
            .map(|()| 0),
        )
    }),
    ("user-namespace-clone3", |_| clone3()),
    ("i386-entry", |_| in_a_child("i386-entry-inside")),
    ("i386-entry-inside", |_| {
        // getpid
        old_entry(20, 0, 0).map_or_else(no_entry, |answer| old(answer, "asked by int 0x80"))
    }),
    ("i386-socket", |_| in_a_child("i386-socket-inside")),
    ("i386-socket-inside", |_| {
        // socketcall(SYS_SOCKET, {AF_VSOCK, SOCK_STREAM, 0})
        let args = low_memory([40, 1, 0]);
        let answer = args.and_then(|at| old_entry(102, 1, at));
        answer.map_or_else(no_entry, |answer| old(answer, "a vsock by socketcall"))
    }),
    ("vsock", |_| match socket(40, libc::SOCK_STREAM, 0) {
        Ok(_) => {
            Through("a socket to the hypervisor, which no network namespace bounds".to_owned())
        }
        Err(number) => Held(errno(number)),
    }),
    ("odd-families", |_| odd_families()),
    ("netlink-others", |_| netlink_others()),
    ("no-new-privileges", |_| {
        let get = Arg::Number(39);
        match call(libc::SYS_prctl, &mut [get]) {
            Ok(0) => Through("set-id programs give privileges".to_owned()),
            Ok(_) => Held("no_new_privs".to_owned()),
            Err(number) => Untried(errno(number)),
        }
    }),
    ("bounding-set", |_| status("CapBnd:")),
    ("capabilities", |_| status("CapEff:")),
];

fn no_entry() -> Outcome {
    Untried("this machine has no such entry".to_owned())
}

/// The answer to a call by the old entry.
fn old(answer: i32, what: &str) -> Outcome {
    match answer.checked_neg() {
        Some(number @ (libc::ENOSYS | libc::EPERM | libc::EAFNOSUPPORT)) => Held(errno(number)),
        _ => Through(format!("{what}, answered {answer}")),
    }
}

fn clone3() -> Outcome {
    // struct clone_args: flags first, the signal at the end fifth.
    let mut args = [0_u8; 88];
    args[..8].copy_from_slice(&0x1000_0000_u64.to_ne_bytes());
    args[32..40].copy_from_slice(&17_u64.to_ne_bytes());
    let args = &mut [Arg::Bytes(&mut args), Arg::Number(88)];
    reached(make_process(libc::SYS_clone3, args).map(|()| 0))
}

/// The calls that move mounts by descriptors: those whose complaint differs
/// from that of a missing privilege.
fn new_mount_calls(_: &[&str]) -> Outcome {
    let here = || Arg::Number(HERE);
    let root = || Arg::Text(c"/");
    let tree = reached(call(
        libc::SYS_open_tree,
        &mut [here(), root(), Arg::Number(0)],
    ));
    let odd = Arg::Number(1 << 30);
    let set = reached(call(
        libc::SYS_mount_setattr,
        &mut [here(), root(), odd, NOWHERE, Arg::Number(0)],
    ));
    match (tree, set) {
        (Held(one), Held(two)) => Held(format!("{one}, {two}")),
        (Through(said), _) | (_, Through(said)) => Through(said),
        _ => Untried("neither call answers".to_owned()),
    }
}

/// Address families that a box has no use for.
fn odd_families() -> Outcome {
    let plain = [1, 2, 10, 16, 40];
    let mut opened = Vec::new();
    let mut last = 0;
    for family in (3..50).filter(|family| !plain.contains(family)) {
        for kind in [
            libc::SOCK_DGRAM,
            libc::SOCK_STREAM,
            libc::SOCK_SEQPACKET,
            libc::SOCK_RAW,
        ] {
            match socket(family, kind, 0) {
                Ok(_) => opened.push(family.to_string()),
                Err(number) => last = number,
            }
        }
    }
    opened.dedup();
    if opened.is_empty() {
        Held(errno(last))
    } else {
        Through(format!("families {}", opened.join(", ")))
    }
}

/// Netlink protocols beside the one that programs read addresses from.
fn netlink_others() -> Outcome {
    let (mut opened, mut last) = (Vec::new(), 0);
    for protocol in 1..23 {
        match socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol) {
            Ok(_) => opened.push(protocol.to_string()),
            Err(number) => last = number,
        }
    }
    if opened.is_empty() {
        Held(errno(last))
    } else {
        Through(format!("protocols {}", opened.join(", ")))
    }
}

/// A capability set of this process.
fn status(key: &str) -> Outcome {
    let text = match std::fs::read_to_string("/proc/self/status") {
        Ok(text) => text,
        Err(error) => return Untried(crate::why(&error)),
    };
    let set = text.lines().find_map(|line| line.strip_prefix(key));
    match set.map(str::trim) {
        Some(set) if set.bytes().all(|byte| byte == b'0') => Held("empty".to_owned()),
        Some(set) => Through(set.to_owned()),
        None => Untried("not shown".to_owned()),
    }
}

/// Types a command into the terminal of whoever started this program.
pub(crate) fn type_in(request: u64) -> Outcome {
    let text: &CStr = c"echo BAILEY-TYPED\n";
    for letter in text.to_bytes() {
        let mut letter = [*letter];
        let args = &mut [
            Arg::Number(0),
            Arg::Number(request),
            Arg::Bytes(&mut letter),
        ];
        if let Err(number) = call(libc::SYS_ioctl, args) {
            return match number {
                libc::ENOTTY => Untried("no terminal".to_owned()),
                _ => Held(errno(number)),
            };
        }
    }
    Through("typed into a terminal".to_owned())
}
