//! The child in the new namespaces: builds the box, becomes its pid 1.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::Channel;
use bailey_fence_plan::SetupOp;
use bailey_fence_plan::channel::{BoxSpec, SetupError, Stdio};
use caps::CapSet;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::command::{self, Streams};
use crate::host::Held;
use crate::step::StepError;
use crate::{seccomp, sys};

/// What pid 1 says while it makes the box.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// One descriptor: the TUN.
    Tun,
    /// One descriptor: the terminal's master.
    Pty,
    /// One descriptor: the root of the box's /proc. Waits for [`Go`].
    Ready,
    /// The box cannot be made.
    Failed(SetupError),
}

/// What pid 1 is told, once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Go;

/// One record of the status pipe: a tag and a value.
pub(crate) type Status = [u8; 2];
pub(crate) const RUNNING: u8 = b'R';
pub(crate) const EXITED: u8 = b'E';
pub(crate) const SIGNALLED: u8 = b'S';

/// What the child takes with it.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) spec: BoxSpec,
    pub(crate) ops: Vec<SetupOp>,
    pub(crate) own: Held,
    pub(crate) grants: Vec<Held>,
    pub(crate) streams: Option<Streams>,
    /// To the launcher, until the command starts.
    pub(crate) up: UnixStream,
    /// To the launcher, until the end.
    pub(crate) status: OwnedFd,
}

impl Init {
    /// Makes the box and runs the command in it. Does not return.
    pub(crate) fn run(self) -> ! {
        let Self {
            spec,
            ops,
            own,
            grants,
            streams,
            up,
            status,
        } = self;
        let mut up = Channel::new(up);
        let made = make(&spec, &ops, own, grants, &mut up);
        let terminal = match made {
            Ok(made) => made,
            Err(error) => {
                // If the launcher is gone, there is nobody to tell.
                let _ = up.send(&FromInit::Failed(error), &[]);
                sys::exit_now(1)
            }
        };
        let streams = match (spec.stdio, terminal, streams) {
            (Stdio::Pty { .. }, Some(terminal), _) => Streams::Terminal(terminal),
            (Stdio::Pipes, _, Some(streams)) => streams,
            _ => give_up(up, &StepError::Refused("it has no streams")),
        };
        // A launcher that is gone, or says anything else: nothing runs.
        if up.receive::<Go>().is_err() {
            sys::exit_now(1)
        }
        start(&spec, streams, up, &status)
    }
}

fn make(
    spec: &BoxSpec,
    ops: &[SetupOp],
    own: Held,
    grants: Vec<Held>,
    up: &mut Channel,
) -> Result<Option<OwnedFd>, SetupError> {
    leave_streams().map_err(|error| error.at("leave the node's streams", None))?;
    own_ids(spec)?;
    tie_to_launcher(up).map_err(|error| error.at("tie the box to its launcher", None))?;
    let mut builder = Builder::new(own, grants, up);
    for op in ops {
        builder
            .run(op)
            .map_err(|error| error.at(op.step(), op.path()))?;
    }
    let Builder {
        terminal,
        processes,
        ..
    } = builder;
    confine()?;
    let failed = |error: StepError| error.at("say that the box is made", None);
    let processes = processes.ok_or_else(|| failed(StepError::Refused("it has no /proc")))?;
    let told = up.send(&FromInit::Ready, &[processes.as_fd()]);
    told.map_err(|_| failed(StepError::Refused("the launcher is gone")))?;
    Ok(terminal)
}

/// Descriptors 0 to 2 were the node's: nothing is written to them by accident,
/// and none of them is the next thing that is opened.
fn leave_streams() -> Result<(), StepError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = openat(CWD, c"/dev/null", flags, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Maps the node's user and group to themselves, and nobody else. The files
/// belong to root while this process is not dumpable.
fn own_ids(spec: &BoxSpec) -> Result<(), SetupError> {
    let step = "map the user in the new user namespace";
    let kernel = |error: rustix::io::Errno| {
        StepError::because(
            "the system lets an ordinary user make a user namespace but not use it \
             (AppArmor does this on Ubuntu)",
        )(error)
    };
    let dumpable = |how| {
        rustix::process::set_dumpable_behavior(how)
            .map_err(|errno| StepError::from(errno).at(step, None))
    };
    dumpable(DumpableBehavior::Dumpable)?;
    let (uid, gid) = (spec.uid, spec.gid);
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1\n")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1\n")),
    ] {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let written = openat(CWD, path, flags, Mode::empty())
            .and_then(|file| rustix::io::write(file, text.as_bytes()));
        written.map_err(|errno| kernel(errno).at(step, Some(path.as_bytes())))?;
    }
    dumpable(DumpableBehavior::NotDumpable)
}

/// The box ends with its launcher. A launcher that ended before this took hold
/// shows in the socket.
fn tie_to_launcher(up: &Channel) -> Result<(), StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if sys::hung_up(up) {
        return Err(StepError::Refused("the launcher is gone"));
    }
    sys::block_signals()?;
    sys::new_session_keyring();
    Ok(())
}

/// Gives up every capability for good, then what the filter refuses.
fn confine() -> Result<(), SetupError> {
    let step = "give up every privilege";
    for set in [
        CapSet::Bounding,
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(|error| SetupError {
            step: step.into(),
            path: None,
            reason: error.to_string(),
            errno: 0,
        })?;
    }
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| StepError::from(errno).at(step, None))?;
    seccomp::load().map_err(|error| StepError::from(error).at("load the system call filter", None))
}

/// Nothing ran, and says why.
fn give_up(mut up: Channel, error: &StepError) -> ! {
    let _ = up.send(&FromInit::Failed(error.at("start the command", None)), &[]);
    sys::exit_now(1)
}

/// Starts the command, then serves as pid 1. Keeps only the status pipe.
fn start(spec: &BoxSpec, streams: Streams, up: Channel, status: &OwnedFd) -> ! {
    let (failed_read, failed_write) =
        match rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) {
            Ok(pipe) => pipe,
            Err(errno) => give_up(up, &errno.into()),
        };
    let command = match sys::fork() {
        Ok(Some(command)) => command,
        Ok(None) => command::run(spec, streams, &failed_write),
        Err(error) => give_up(up, &error.into()),
    };
    drop((failed_write, streams, up));
    let _ = rustix::process::chdir(c"/");
    let _ = sys::close_range(0, 2);
    // The command's copy of the pipe closes when it is executed; what comes
    // before that is one byte which says that it could not be.
    let mut byte = [0_u8];
    let executed = loop {
        match rustix::io::read(&failed_read, &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            got => break got == Ok(0),
        }
    };
    drop(failed_read);
    if executed {
        report(status, [RUNNING, 0]);
    }
    serve(command, status)
}

/// Reaps whatever ends, forwards what comes from outside, ends with the command.
fn serve(command: Pid, status: &OwnedFd) -> ! {
    loop {
        let Ok(arrived) = sys::wait_signal() else {
            continue;
        };
        if arrived.signal != libc::SIGCHLD {
            if let Some(signal) = Signal::from_named_raw(arrived.signal)
                && arrived.from_outside
            {
                // The group may be gone already, which its reaping will tell.
                let _ = rustix::process::kill_process_group(command, signal);
            }
            continue;
        }
        while let Ok(Some((pid, how))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid != command {
                continue;
            }
            let value = |raw: Option<i32>| raw.and_then(|raw| u8::try_from(raw).ok());
            if let Some(code) = value(how.exit_status()) {
                report(status, [EXITED, code]);
            } else if let Some(signal) = value(how.terminating_signal()) {
                report(status, [SIGNALLED, signal]);
            }
            // With pid 1 the kernel ends every process that is left.
            sys::exit_now(0)
        }
    }
}

fn report(status: &OwnedFd, record: Status) {
    // Where nobody reads, this process is about to be ended.
    let _ = rustix::io::write(status, &record);
}
