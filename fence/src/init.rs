//! The child in the new namespaces: builds the box, becomes its pid 1.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::SetupOp;
use bailey_fence_plan::channel::{BoxSpec, Layer, SetupError, Stdio};
use bailey_model::{Axis, Fact};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::command::{self, Program, Streams};
use crate::confine::{self, Confinement};
use crate::covers;
use crate::host::Held;
use crate::limits::{Bounds, UserCounts};
use crate::probe::{self, Bait, Targets, Tried};
use crate::step::StepError;
use crate::sys::{self, Arrived};
use crate::{display, gpu};

/// What pid 1 says while it makes the box.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// What needs no question is done; the rest waits for one. Only of a box
    /// that was begun before it was asked for.
    Begun,
    /// One descriptor: the TUN.
    Tun,
    /// One descriptor: the terminal's master.
    Pty,
    /// Descriptors: the box's namespaces.
    Namespaces,
    /// One descriptor: the folder of the display's picture.
    Display,
    /// One descriptor: the folder of the box's refusals.
    Refusals,
    /// One descriptor: the pidfd of the process that speaks, which another one
    /// made than the launcher.
    First,
    /// What was tried inside. Descriptors: the root of the box's /proc, where it
    /// has one of its own; the table of its mounts, where some must not be lost.
    /// Waits for [`Go`].
    Ready(Vec<(Axis, Fact)>),
    /// One descriptor: the pidfd of the process that is in the box now, and
    /// which speaks from here on. Only of a further command.
    Inside,
    /// It is confined. Waits for [`Go`]. Only of a further command.
    Joined,
    /// The box cannot be made, or joined.
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
pub(crate) const DISPLAY_ENDED: u8 = b'D';

/// What the child takes with it.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) job: Job,
    pub(crate) granted: Granted,
    pub(crate) streams: Option<Streams>,
    /// What the box should not reach, until it is measured. The launcher's.
    pub(crate) laid: Option<(Targets, Bait)>,
    /// The folder of the box's cgroup.
    pub(crate) cgroup: Option<OwnedFd>,
}

/// What is to be made, without its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) spec: BoxSpec,
    pub(crate) ops: Vec<SetupOp>,
    /// Places whose read-only mount must not be lost while the box runs.
    pub(crate) watched: Vec<Vec<u8>>,
    pub(crate) bounds: Bounds,
    pub(crate) of_user: UserCounts,
    pub(crate) confinement: Confinement,
}

/// What of the host's files is to be seen in the box.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) own: Held,
    pub(crate) grants: Vec<Held>,
}

impl Init {
    /// Makes the box and runs the command in it; `up` leads to the launcher until
    /// the command starts, `status` until the end. Does not return.
    pub(crate) fn run(self, up: UnixStream, status: OwnedFd) -> ! {
        let Self {
            job,
            granted,
            streams,
            cgroup,
            laid,
        } = self;
        drop((cgroup, laid));
        let up = Channel::new(up);
        if let Err(error) = enter((job.spec.uid, job.spec.gid), &up) {
            failed(up, error)
        }
        job.run(Builder::new(up), 0, granted, streams, status)
    }
}

impl Init {
    /// Looks at the host for what is tried in the box, once.
    pub(crate) fn lay(&mut self) -> &Targets {
        let (job, granted) = (&self.job, &self.granted);
        let look = || probe::lay(&job.spec, &job.ops, (granted.own.path(), &granted.grants));
        &self.laid.get_or_insert_with(look).0
    }

    /// The names of the host's on the way to what must not be lost, in every
    /// folder of the host's that is mounted around it.
    pub(crate) fn names(&self) -> Vec<covers::Name> {
        let around = self.job.ops.iter().filter_map(|op| match op {
            SetupOp::OwnFolder { at } => Some((self.granted.own.path(), at)),
            SetupOp::GrantWritable { index, at } | SetupOp::GrantFolderReadOnly { index, at } => {
                Some((self.granted.grants.get(*index)?.path(), at))
            }
            _ => None,
        });
        let all = around.flat_map(|(outer, at)| {
            let watched = self.job.watched.iter();
            watched.flat_map(move |place| covers::names(outer, at, place))
        });
        all.collect()
    }
}

impl Job {
    /// Goes on with a box of which so many operations are done.
    pub(crate) fn run(
        self,
        mut builder: Builder,
        done: usize,
        granted: Granted,
        streams: Option<Streams>,
        status: OwnedFd,
    ) -> ! {
        let Self {
            spec,
            ops,
            watched,
            bounds,
            of_user,
            confinement,
        } = self;
        builder.granted = Some(granted);
        let held = std::mem::take(&mut builder.namespaces);
        let built = lend_namespaces(&spec, held, &mut builder.up)
            .map_err(|error| error.at("hold the namespaces", None))
            .and_then(|()| build(ops.get(done..).unwrap_or_default(), &mut builder))
            .and_then(|built| {
                if let Some(processes) = &built.processes {
                    bounds.set_counts(processes, of_user)?;
                }
                Ok(built)
            });
        let broken = spec.broken;
        let ready = Ready {
            spec,
            watched,
            bounds,
            confinement,
            streams,
            up: builder.into_up(),
            status,
            tied: broken == Some(Layer::Processes),
        };
        match built {
            Ok(built) => ready.run(built),
            Err(error) => ready.give_up(error),
        }
    }
}

/// What was built, for the command.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) terminal: Option<OwnedFd>,
    /// The root of a /proc of the box's own, where it has one.
    pub(crate) processes: Option<OwnedFd>,
}

/// Takes its place in the new namespaces, as this user and group.
pub(crate) fn enter(ids: (u32, u32), up: &Channel) -> Result<(), SetupError> {
    leave_streams().map_err(|error| error.at("leave the node's streams", None))?;
    own_ids(ids)?;
    tie_to_launcher(up).map_err(|error| error.at("tie the box to its launcher", None))?;
    sys::unshare(libc::CLONE_NEWCGROUP)
        .map_err(|error| StepError::from(error).at("make the namespace of cgroups", None))
}

/// The namespaces that every box has, in the order in which they are joined. That of
/// the network comes after them.
const NAMESPACES: &[&str] = &["user", "mnt", "pid", "ipc", "uts", "cgroup"];

/// Opens this process's namespaces but its network's. Only it can: it is not dumpable.
pub(crate) fn hold_namespaces() -> Result<Vec<OwnedFd>, StepError> {
    NAMESPACES.iter().map(|name| namespace(name)).collect()
}

fn namespace(name: &str) -> Result<OwnedFd, StepError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("/proc/self/ns/{name}");
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Gives away this process's namespaces, all that are the box's own: those that are
/// held already, and its network's.
fn lend_namespaces(
    spec: &BoxSpec,
    mut held: Vec<OwnedFd>,
    up: &mut Channel,
) -> Result<(), StepError> {
    if held.is_empty() {
        held = hold_namespaces()?;
    }
    if !spec.tier.shares_network() {
        held.push(namespace("net")?);
    }
    let held: Vec<_> = held.iter().map(AsFd::as_fd).collect();
    up.send(&FromInit::Namespaces, &held)
        .map_err(|_| StepError::Refused("the launcher is gone"))
}

/// Builds what the box sees, by the planned operations, and goes there.
fn build(ops: &[SetupOp], builder: &mut Builder) -> Result<Built, SetupError> {
    builder.run_all(ops)?;
    let without = || StepError::Refused("it has no /proc").at("say that the box is made", None);
    Ok(Built {
        terminal: builder.terminal.take(),
        processes: Some(builder.processes.take().ok_or_else(without)?),
    })
}

/// A process in a place that is made for it, which confines itself and starts
/// the command.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) spec: BoxSpec,
    /// Places whose read-only mount must not be lost.
    pub(crate) watched: Vec<Vec<u8>>,
    pub(crate) bounds: Bounds,
    pub(crate) confinement: Confinement,
    pub(crate) streams: Option<Streams>,
    pub(crate) up: Channel,
    pub(crate) status: OwnedFd,
    /// Whether the command must be ended with this process by a signal, because
    /// no namespace does it.
    pub(crate) tied: bool,
}

impl Ready {
    /// Confines itself, measures, waits for the word, starts the command.
    pub(crate) fn run(mut self, built: Built) -> ! {
        let confined = self
            .bounds
            .set_process_limits()
            .and_then(|()| confine::confine(self.confinement));
        if let Err(error) = confined {
            self.give_up(error)
        }
        // Before they are tried: what is lost from here on, the table tells.
        let mounts = match self.mounts(&built) {
            Ok(mounts) => mounts,
            Err(error) => self.give_up(error),
        };
        let streams = match (self.spec.stdio, built.terminal, self.streams.take()) {
            (Stdio::Pty { .. }, Some(terminal), _) => Streams::Terminal(terminal),
            (Stdio::Pipes, _, Some(streams)) => streams,
            _ => give_up(self.up, &StepError::Refused("it has no streams")),
        };
        // The launcher has looked at the host meanwhile; if it is gone, nothing runs.
        let Ok(Message { value: targets, .. }) = self.up.receive::<Targets>() else {
            sys::exit_now(1)
        };
        let program = Program {
            command: &self.spec.command,
            env: &self.spec.env,
            bounds: &self.bounds,
            tied: self.tied,
        };
        let Tried { mut facts, process } = probe::measure(&self.spec, &targets, program, &streams);
        facts.extend(gpu::measure(&self.spec));
        let display = match display(&self.spec, &self.bounds, &mut self.up) {
            Ok(display) => display,
            Err(error) => failed(self.up, error),
        };
        let given: Vec<_> = built
            .processes
            .iter()
            .chain(&mounts)
            .map(AsFd::as_fd)
            .collect();
        let told = self.up.send(&FromInit::Ready(facts), &given);
        // A launcher that is gone, or says anything else: nothing runs.
        if told.is_err() || self.up.receive::<Go>().is_err() {
            sys::exit_now(1)
        }
        drop((built.processes, mounts));
        let command = match process {
            Some(process) => {
                let (command, executed) = process.become_command();
                drop((streams, self.up));
                followed(command, executed, &self.status)
            }
            None => start(program, streams, self.up, &self.status),
        };
        serve(command, display, &self.status)
    }

    /// The table of this namespace's mounts, where some must not be lost.
    fn mounts(&self, built: &Built) -> Result<Option<OwnedFd>, SetupError> {
        let own = match &built.processes {
            Some(own) if !self.watched.is_empty() => own,
            _ => return Ok(None),
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        openat(own, c"self/mountinfo", flags, Mode::empty())
            .map(Some)
            .map_err(|errno| StepError::from(errno).at("watch the mounts of the box", None))
    }

    pub(crate) fn give_up(self, error: SetupError) -> ! {
        failed(self.up, error)
    }
}

/// Starts a box's display, if it has one.
fn display(spec: &BoxSpec, bounds: &Bounds, up: &mut Channel) -> Result<Option<Pid>, SetupError> {
    let Some(size) = spec.display else {
        return Ok(None);
    };
    let display = display::start(size, bounds)?;
    // If the launcher is gone, there is nobody to go on for.
    let _ = up.send(&FromInit::Display, &[display.folder.as_fd()]);
    Ok(Some(display.pid))
}

/// Says why there is no box, and ends.
pub(crate) fn failed(mut up: Channel, error: SetupError) -> ! {
    // If the launcher is gone, there is nobody to tell.
    let _ = up.send(&FromInit::Failed(error), &[]);
    sys::exit_now(1)
}

/// Descriptors 0 to 2 were the node's: nothing is written to them by accident,
/// and none of them is the next thing that is opened.
pub(crate) fn leave_streams() -> Result<(), StepError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = openat(CWD, c"/dev/null", flags, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Maps the node's user and group to themselves, and nobody else. The files
/// belong to root while this process is not dumpable.
fn own_ids((uid, gid): (u32, u32)) -> Result<(), SetupError> {
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

/// This process ends with its launcher. A launcher that ended before this took hold
/// shows in the socket.
pub(crate) fn tie_to_launcher(up: &Channel) -> Result<(), StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if sys::hung_up(up) {
        return Err(StepError::Refused("the launcher is gone"));
    }
    sys::block_signals()?;
    sys::new_session_keyring();
    Ok(())
}

/// Nothing ran, and says why.
fn give_up(up: Channel, error: &StepError) -> ! {
    failed(up, error.at("start the command", None))
}

/// Starts the command.
pub(crate) fn start(program: Program<'_>, streams: Streams, up: Channel, status: &OwnedFd) -> Pid {
    let (executed, failed) = match pipe_with(PipeFlags::CLOEXEC) {
        Ok(pipe) => pipe,
        Err(errno) => give_up(up, &errno.into()),
    };
    let command = match sys::fork() {
        Ok(Some(command)) => command,
        Ok(None) => command::run(program, &streams, &failed),
        Err(error) => give_up(up, &error.into()),
    };
    drop((failed, streams, up));
    followed(command, executed, status)
}

/// Says that the command runs, once it does. Keeps of what is open only the status
/// pipe, and what the caller holds.
fn followed(command: Pid, executed: OwnedFd, status: &OwnedFd) -> Pid {
    let _ = rustix::process::chdir(c"/");
    let _ = sys::close_range(0, 2);
    // The command's copy of the pipe closes when it is executed; what comes
    // before that is one byte which says that it could not be.
    let mut byte = [0_u8];
    let runs = loop {
        match rustix::io::read(&executed, &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            got => break got == Ok(0),
        }
    };
    drop(executed);
    if runs {
        report(status, [RUNNING, 0]);
    }
    command
}

/// Serves as pid 1.
fn serve(command: Pid, display: Option<Pid>, status: &OwnedFd) -> ! {
    loop {
        if let Ok(arrived) = sys::wait_signal() {
            attend(arrived, command, display, status);
        }
    }
}

/// Reaps whatever has ended, forwards what comes from outside, says that the
/// display ended, ends with the command.
pub(crate) fn attend(arrived: Arrived, command: Pid, display: Option<Pid>, status: &OwnedFd) {
    // That it was stopped and goes on is its own affair, and no word for the command.
    if arrived.signal == libc::SIGCONT {
        return;
    }
    if arrived.signal != libc::SIGCHLD {
        if let Some(signal) = Signal::from_named_raw(arrived.signal)
            && arrived.from_outside
        {
            // The group may be gone already, which its reaping will tell.
            let _ = rustix::process::kill_process_group(command, signal);
        }
        return;
    }
    while let Ok(Some((pid, how))) = rustix::process::wait(WaitOptions::NOHANG) {
        if Some(pid) == display {
            report(status, [DISPLAY_ENDED, 0]);
        }
        if pid == command {
            tell_end(how, status);
            // With pid 1 the kernel ends every process that is left.
            sys::exit_now(0)
        }
    }
}

/// Says how the command ended.
pub(crate) fn tell_end(how: WaitStatus, status: &OwnedFd) {
    let value = |raw: Option<i32>| raw.and_then(|raw| u8::try_from(raw).ok());
    if let Some(code) = value(how.exit_status()) {
        report(status, [EXITED, code]);
    } else if let Some(signal) = value(how.terminating_signal()) {
        report(status, [SIGNALLED, signal]);
    }
}

fn report(status: &OwnedFd, record: Status) {
    // Where nobody reads, this process is about to be ended.
    let _ = rustix::io::write(status, &record);
}
