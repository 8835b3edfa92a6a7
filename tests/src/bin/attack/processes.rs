//! Other processes: pid 1 of the box, and those outside it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::sys::{Arg, NOWHERE, call};
use crate::{Attack, Held, Outcome, Through, Untried, errno, why};

pub(crate) const ALL: &[Attack] = &[
    ("pid-1-program", |_| {
        of_pid_1(|| readable("/proc/1/exe", "its program can be read"))
    }),
    ("pid-1-memory", |_| of_pid_1(pid_1_memory)),
    ("pid-1-environment", |_| of_pid_1(pid_1_environment)),
    ("pid-1-descriptors", |_| of_pid_1(pid_1_descriptors)),
    ("pid-1-trace", |_| of_pid_1(|| trace(1))),
    ("see-outside", see_outside),
    ("signal-outside", |words| {
        of_outside(words, |pid| {
            // Continue what is not stopped: harmless, and asks for the same right.
            call(libc::SYS_kill, &mut [Arg::Number(pid), Arg::Number(18)]).map(|_| ())
        })
    }),
    ("pidfd-outside", |words| {
        of_outside(words, |pid| {
            let fd = call(
                libc::SYS_pidfd_open,
                &mut [Arg::Number(pid), Arg::Number(0)],
            )?;
            let args = &mut [
                Arg::Number(fd.cast_unsigned()),
                Arg::Number(18),
                Arg::Number(0),
                Arg::Number(0),
            ];
            call(libc::SYS_pidfd_send_signal, args).map(|_| ())
        })
    }),
    ("trace-outside", |words| {
        of_outside(words, |pid| {
            const SEIZE: u64 = 0x4206;
            call(
                libc::SYS_ptrace,
                &mut [Arg::Number(SEIZE), Arg::Number(pid)],
            )
            .map(|_| ())
        })
    }),
    ("memory-outside", |words| {
        of_outside(words, |pid| {
            // An address of nothing: the complaint comes after the permission.
            let mut local = [0_u8; 16];
            let mut remote = [0_u8; 16];
            let mut byte = [0_u8; 1];
            local[..8]
                .copy_from_slice(&(byte.as_mut_ptr().expose_provenance() as u64).to_ne_bytes());
            local[8] = 1;
            remote[0] = 8;
            remote[8] = 1;
            let args = &mut [
                Arg::Number(pid),
                Arg::Bytes(&mut local),
                Arg::Number(1),
                Arg::Bytes(&mut remote),
                Arg::Number(1),
                Arg::Number(0),
            ];
            match call(libc::SYS_process_vm_readv, args) {
                Err(libc::EFAULT) => Ok(()),
                other => other.map(|_| ()),
            }
        })
    }),
    ("limits-outside", |words| {
        of_outside(words, |pid| {
            // Reads the open files limit of another process.
            let mut old = [0_u8; 16];
            let args = &mut [
                Arg::Number(pid),
                Arg::Number(7),
                Arg::Number(0),
                Arg::Bytes(&mut old),
            ];
            call(libc::SYS_prlimit64, args).map(|_| ())
        })
    }),
    ("environment-outside", environment_outside),
    ("memory-of-own", |_| {
        let own = u64::from(std::process::id());
        let args = &mut [
            Arg::Number(own),
            NOWHERE,
            Arg::Number(1),
            NOWHERE,
            Arg::Number(1),
            Arg::Number(0),
        ];
        crate::reached(call(libc::SYS_process_vm_readv, args))
    }),
];

/// Somebody else must be pid 1: in some sandboxes it is the program itself.
fn of_pid_1(attack: impl Fn() -> Outcome) -> Outcome {
    if std::process::id() == 1 {
        return Untried("it is pid 1 itself".to_owned());
    }
    attack()
}

fn pid_1_descriptors() -> Outcome {
    match fs::read_dir("/proc/1/fd") {
        Ok(_) => Through("they are listed".to_owned()),
        Err(error) => Held(why(&error)),
    }
}

fn readable(path: &str, what: &str) -> Outcome {
    let mut bytes = [0_u8; 4];
    match File::open(path).and_then(|file| file.read_exact_at(&mut bytes, 0)) {
        Ok(()) => Through(what.to_owned()),
        Err(error) => Held(why(&error)),
    }
}

/// Whether pid 1 can be rewritten: what runs there then is not its program.
fn pid_1_memory() -> Outcome {
    let mem = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/1/mem");
    let maps = fs::read_to_string("/proc/1/maps");
    match (mem, maps) {
        (Ok(mem), Ok(maps)) => {
            let first = maps.split('-').next().unwrap_or_default();
            let at = u64::from_str_radix(first, 16).unwrap_or_default();
            let mut byte = [0_u8; 1];
            match mem.read_exact_at(&mut byte, at) {
                Ok(()) => Through("it is open for writing".to_owned()),
                Err(error) => Held(why(&error)),
            }
        }
        (Err(error), _) | (_, Err(error)) => Held(why(&error)),
    }
}

fn pid_1_environment() -> Outcome {
    match fs::read("/proc/1/environ") {
        Ok(bytes) if bytes.is_empty() => Held("empty".to_owned()),
        Ok(bytes) => Through(format!("{} bytes", bytes.len())),
        Err(error) => Held(why(&error)),
    }
}

fn trace(pid: u64) -> Outcome {
    const SEIZE: u64 = 0x4206;
    match call(
        libc::SYS_ptrace,
        &mut [Arg::Number(SEIZE), Arg::Number(pid)],
    ) {
        Ok(_) => Through("traced".to_owned()),
        Err(number) => Held(errno(number)),
    }
}

/// Tries something on a process outside, by its number there.
fn of_outside(words: &[&str], what: impl Fn(u64) -> Result<(), i32>) -> Outcome {
    let [pid, ..] = words else {
        return Untried("want a pid".to_owned());
    };
    let Ok(pid) = pid.parse() else {
        return Untried("want a pid".to_owned());
    };
    match what(pid) {
        Ok(()) => Through("done to a process outside".to_owned()),
        Err(number) => Held(errno(number)),
    }
}

/// Whether any process carries the mark of the one outside.
fn see_outside(words: &[&str]) -> Outcome {
    let [mark] = words else {
        return Untried("want its mark".to_owned());
    };
    let own = std::process::id().to_string();
    let found = find(
        |folder| {
            let stage = fs::read(folder.join("cmdline"))?;
            let text = String::from_utf8_lossy(&stage).replace('\0', " ");
            // The attack itself has the mark among its words too.
            Ok(text.contains(&format!("stage {mark}"))
                || (text.contains("stage ") && text.contains(*mark)))
        },
        &own,
    );
    match found {
        Ok(Some(pid)) => Through(format!("process {pid}")),
        Ok(None) => Held("it is not seen".to_owned()),
        Err(error) => Untried(why(&error)),
    }
}

/// The environment of a process outside, whose value is a secret.
fn environment_outside(words: &[&str]) -> Outcome {
    let [_, mark] = words else {
        return Untried("want a pid and a mark".to_owned());
    };
    let own = std::process::id().to_string();
    let found = find(
        |folder| {
            let bytes = fs::read(folder.join("environ"))?;
            Ok(String::from_utf8_lossy(&bytes).contains(&format!("SECRET={mark}")))
        },
        &own,
    );
    match found {
        Ok(Some(pid)) => Through(format!("of process {pid}")),
        Ok(None) => Held("it is not seen".to_owned()),
        Err(error) => Untried(why(&error)),
    }
}

/// The first other process for which something holds.
fn find(
    fits: impl Fn(&std::path::Path) -> io::Result<bool>,
    own: &str,
) -> io::Result<Option<String>> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.bytes().all(|byte| byte.is_ascii_digit()) && name != own;
        if process && fits(&entry.path()).unwrap_or(false) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
