//! The command's own process, from fork to exec.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::execve;
use rustix::process::Signal;

use crate::limits::Bounds;
use crate::sys;

/// Where a program without a slash is looked for when the box has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// As a shell says it: not found, and found but not executable.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Where the command's standard streams lead.
#[derive(Debug)]
pub(crate) enum Streams {
    /// Its stdin, stdout, stderr.
    Pipes([OwnedFd; 3]),
    /// All three, and its controlling terminal.
    Terminal(OwnedFd),
}

/// What is executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    pub(crate) command: &'a [Vec<u8>],
    pub(crate) env: &'a [(Vec<u8>, Vec<u8>)],
    /// What it may use up.
    pub(crate) bounds: &'a Bounds,
    /// Whether it ends with the process that starts it, which is not pid 1.
    pub(crate) tied: bool,
}

/// Becomes the command; `failed` closes when it has. Does not return.
pub(crate) fn run(program: Program<'_>, streams: &Streams, failed: &OwnedFd) -> ! {
    if program.bounds.limit_files().is_err() {
        cannot(failed)
    }
    make_ready(program, streams, failed);
    become_it(program, failed)
}

fn cannot(failed: &OwnedFd) -> ! {
    let _ = rustix::io::write(failed, &[NOT_EXECUTABLE]);
    sys::exit_now(NOT_EXECUTABLE)
}

/// Gives this process what its command is to have, but for the limit of open files: that
/// is a part of what there was before, and who has it already must not take a part of
/// the part.
pub(crate) fn make_ready(program: Program<'_>, streams: &Streams, failed: &OwnedFd) {
    if prepare(streams, program).is_err() {
        cannot(failed)
    }
}

/// Executes the command in a process that is ready. Does not return.
pub(crate) fn become_it(program: Program<'_>, failed: &OwnedFd) -> ! {
    let Err(errno) = execute(program);
    let name = program
        .command
        .first()
        .map(|name| name.escape_ascii().to_string());
    let said = errno.desc();
    // As the shells say it, whatever case the C library has.
    let _ = writeln!(
        std::io::stderr(),
        "bailey: {}: {said}",
        name.unwrap_or_default()
    );
    let code = if matches!(errno, Errno::ENOENT | Errno::ENOTDIR) {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    };
    let _ = rustix::io::write(failed, &[code]);
    sys::exit_now(code)
}

/// A session and a process group of its own, the streams, nothing else open,
/// signals as a program expects them.
fn prepare(streams: &Streams, program: Program<'_>) -> Result<(), std::io::Error> {
    if program.tied {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    rustix::process::setsid()?;
    match streams {
        Streams::Pipes([input, output, error]) => {
            rustix::stdio::dup2_stdin(input)?;
            rustix::stdio::dup2_stdout(output)?;
            rustix::stdio::dup2_stderr(error)?;
        }
        Streams::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal)?;
            rustix::stdio::dup2_stdin(terminal)?;
            rustix::stdio::dup2_stdout(terminal)?;
            rustix::stdio::dup2_stderr(terminal)?;
        }
    }
    sys::close_on_exec_from(3)?;
    sys::default_signals()
}

/// Tries every place of the `PATH`, as execvp(3) does.
fn execute(program: Program<'_>) -> Result<Infallible, Errno> {
    let words = |words: &[Vec<u8>]| -> Result<Vec<CString>, Errno> {
        words
            .iter()
            .map(|word| CString::new(word.as_slice()).map_err(|_| Errno::EINVAL))
            .collect()
    };
    let arguments = words(program.command)?;
    let pairs: Vec<Vec<u8>> = program
        .env
        .iter()
        .map(|(name, value)| [name.as_slice(), b"=", value].concat())
        .collect();
    let environment = words(&pairs)?;
    let Some(name) = program.command.first() else {
        return Err(Errno::ENOENT);
    };
    if name.contains(&b'/') {
        let path = CString::new(name.as_slice()).map_err(|_| Errno::EINVAL)?;
        return execute_at(&path, &arguments, &environment);
    }
    let path = program
        .env
        .iter()
        .find(|(key, _)| key == b"PATH")
        .map(|(_, value)| value.as_slice());
    let mut denied = None;
    for folder in path.unwrap_or(DEFAULT_PATH).split(|byte| *byte == b':') {
        let folder = if folder.is_empty() {
            b".".as_slice()
        } else {
            folder
        };
        let Ok(candidate) = CString::new([folder, b"/", name].concat()) else {
            continue;
        };
        match execute_at(&candidate, &arguments, &environment) {
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(error @ Errno::EACCES) => denied = Some(error),
            other => return other,
        }
    }
    Err(denied.unwrap_or(Errno::ENOENT))
}

/// A text file without an interpreter is a script of the shell.
fn execute_at(
    path: &CStr,
    arguments: &[CString],
    environment: &[CString],
) -> Result<Infallible, Errno> {
    match execve(path, arguments, environment) {
        Err(Errno::ENOEXEC) => {
            let mut words: Vec<&CStr> = vec![c"/bin/sh", path];
            words.extend(arguments.iter().skip(1).map(CString::as_c_str));
            execve(c"/bin/sh", &words, environment)
        }
        other => other,
    }
}
