//! What a user has only so much of, and terminals.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use crate::sys::{Arg, call};
use crate::{Attack, Held, Outcome, Through, Untried, errno, kernel, reached, why};

pub(crate) const ALL: &[Attack] = &[
    ("type-into-terminal", |_| kernel::type_in(0x5412)),
    ("type-with-high-bits", |_| kernel::type_in(0x5412 | 1 << 32)),
    ("terminal-of-linux", |_| {
        let args = &mut [Arg::Number(0), Arg::Number(0x541c), Arg::Number(8)];
        reached(call(libc::SYS_ioctl, args))
    }),
    ("line-discipline", |_| {
        let args = &mut [Arg::Number(0), Arg::Number(0x5423), Arg::Number(8)];
        reached(call(libc::SYS_ioctl, args))
    }),
    ("take-all-inotify", take_all_inotify),
    ("core-dump", core_dump),
    ("core-dump-inside", |_| std::process::abort()),
];

/// Takes watchers until the kernel refuses. Its word is the share of one user,
/// as the machine says outside: who gets most of it starves the rest.
fn take_all_inotify(words: &[&str]) -> Outcome {
    let Some(share) = words.first().and_then(|word| word.parse::<usize>().ok()) else {
        return Untried("how many a user has is not said".to_owned());
    };
    let mut held = 0;
    let mut last = 0;
    // One more than the share: no loop without an end.
    for _ in 0..=share {
        match call(libc::SYS_inotify_init1, &mut [Arg::Number(0)]) {
            Ok(_) => held += 1,
            Err(number) => {
                last = number;
                break;
            }
        }
    }
    // Others of the same user hold some of it too.
    let most = share / 2;
    let said = format!("{held} of {share}, then {}", errno(last));
    if held >= most {
        Through(said)
    } else {
        Held(said)
    }
}

/// Whether a core of a process that aborts is written, with the limit raised
/// as far as it can be.
fn core_dump(words: &[&str]) -> Outcome {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // It is written to the working folder.
    if let Some(folder) = words.first()
        && let Err(error) = std::env::set_current_dir(folder)
    {
        return Untried(why(&error));
    }
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) else {
        return Untried("no limit can be read".to_owned());
    };
    let _raised = setrlimit(Resource::RLIMIT_CORE, hard, hard);
    let status = Command::new("/proc/self/exe")
        .arg("core-dump-inside")
        .status();
    for entry in std::fs::read_dir(".").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("core") {
            let _tidy = std::fs::remove_file(entry.path());
        }
    }
    match status {
        Ok(status) if status.core_dumped() => Through(format!("dumped, the limit is {hard}")),
        Ok(_) => Held(format!("not dumped, the limit is {hard}")),
        Err(error) => Untried(why(&error)),
    }
}
