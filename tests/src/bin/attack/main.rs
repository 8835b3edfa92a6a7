//! `bailey-attack NAME [ARGS]`: one attack on whatever it runs in.
//!
//! It ends with 0 if it got through, 1 if it was held, 2 if it could not be
//! tried here, and says in one line what happened. It knows nothing of bailey
//! and runs in any sandbox; outside of all it is the control.

mod counts;
mod deny;
mod files;
mod kernel;
mod mounts;
mod processes;
mod setid;
mod sockets;
mod stage;
#[expect(unsafe_code, reason = "system calls without a safe wrapper")]
mod sys;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, Stdio};

/// What came of an attack.
pub(crate) enum Outcome {
    /// It did what it must not, with what it got.
    Through(String),
    /// It could not, with what stopped it.
    Held(String),
    /// It needs something that is not here.
    Untried(String),
}

pub(crate) use Outcome::{Held, Through, Untried};

/// An attack and its name. Words are missing only by a fault of the caller.
pub(crate) type Attack = (&'static str, fn(&[&str]) -> Outcome);

fn all() -> impl Iterator<Item = Attack> {
    [
        files::ALL,
        setid::ALL,
        mounts::ALL,
        processes::ALL,
        sockets::ALL,
        counts::ALL,
        kernel::ALL,
    ]
    .concat()
    .into_iter()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["stage", folder, mark] => return stage::serve(folder, mark),
        ["deny", words @ ..] => return deny::run(words),
        ["--list"] => {
            for (name, _) in all() {
                println!("{name}");
            }
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let Some((name, args)) = words.split_first() else {
        eprintln!(
            "usage: bailey-attack NAME [ARGS] | stage FOLDER MARK | deny HOW PROGRAM | --list"
        );
        return ExitCode::from(64);
    };
    let Some((_, attack)) = all().find(|(known, _)| known == name) else {
        eprintln!("bailey-attack: there is no attack {name}");
        return ExitCode::from(64);
    };
    let (code, word, said) = match attack(args) {
        Through(said) => (0, "through", said),
        Held(said) => (1, "held", said),
        Untried(said) => (2, "untried", said),
    };
    println!("{word} {name}: {said}");
    ExitCode::from(code)
}

/// An error number's name, as far as attacks meet it.
pub(crate) fn errno(number: i32) -> String {
    let text = nix::errno::Errno::from_raw(number);
    format!("{text:?}")
}

/// What an input or output error was.
pub(crate) fn why(error: &std::io::Error) -> String {
    error
        .raw_os_error()
        .map_or_else(|| error.to_string(), errno)
}

/// Runs another attack of this program in a process of its own, since it may
/// be killed for it.
pub(crate) fn in_a_child(name: &str) -> Outcome {
    // Its input is left as it is: not everywhere is there a /dev/null.
    let mut command = Command::new("/proc/self/exe");
    let output = command.arg(name).stdin(Stdio::inherit()).output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return Untried(format!("cannot start itself: {}", why(&error))),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said
        .trim()
        .rsplit(": ")
        .next()
        .unwrap_or_default()
        .to_owned();
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Through(said),
        (Some(1), _) => Held(said),
        (_, Some(signal)) => Held(format!("killed by signal {signal}")),
        (code, None) => Untried(format!("{code:?} {said}")),
    }
}

/// Judges an answer to a call with arguments that cannot work: the kernel's own
/// complaint shows that it was reached.
pub(crate) fn reached(answer: Result<i64, i32>) -> Outcome {
    match answer {
        Err(number @ (libc::EPERM | libc::ENOSYS | libc::EACCES)) => Held(errno(number)),
        Err(number) => Through(format!("reached the kernel, {}", errno(number))),
        Ok(_) => Through("the kernel did it".to_owned()),
    }
}
