//! Outside the box: between the node and pid 1.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::{Channel, ChannelError, Message};
use bailey_fence_plan::SetupOp;
use bailey_fence_plan::channel::{BoxSpec, FromFence, SetupError, Stdio, ToFence};
use bailey_fence_plan::plan;
use bailey_model::ChildExit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use crate::command::Streams;
use crate::facts;
use crate::host::Held;
use crate::init::{EXITED, FromInit, Go, Init, RUNNING, SIGNALLED, Status};
use crate::step::StepError;
use crate::sys::{self, Cloned};

/// Why a launcher ended without a last word to the node.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The node is gone, or says what has no place.
    #[error("node: {0}")]
    Channel(#[from] ChannelError),
    /// The node said something out of order.
    #[error("node: a message out of order")]
    OutOfOrder,
    /// The launcher cannot prepare or watch over its box.
    #[error("launcher: {0}")]
    System(#[from] std::io::Error),
}

impl From<Errno> for LaunchError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Serves one box: from the specification on descriptor 0 to its end.
///
/// # Errors
/// When the node is gone or the system fails; the box has ended then.
pub fn launch() -> Result<(), LaunchError> {
    without_environment()?;
    // Whatever was inherited beside the three streams is none of a box's.
    sys::close_range(3, u32::MAX)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    sys::limit_core()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // The terminal of the node sends its signals to the node alone. Where this
    // process leads a group already, it is not in the node's.
    let _ = rustix::process::setsid();
    let mut node = Channel::new(UnixStream::from(sys::take_channel()));
    let Message {
        value: ToFence::Start(spec),
        fds,
    } = node.receive()?
    else {
        return Err(LaunchError::OutOfOrder);
    };
    match prepare(*spec, fds) {
        Ok((init, up, status)) => keep(node, init, up, status),
        Err(error) => Ok(node.send(&FromFence::Failed(error), &[])?),
    }
}

/// The child keeps this program's memory, environment included: the program
/// starts again without one.
fn without_environment() -> Result<(), LaunchError> {
    if std::env::vars_os().next().is_none() {
        return Ok(());
    }
    let none: [CString; 0] = [];
    let failed: Result<Infallible, _> =
        nix::unistd::execve(c"/proc/self/exe", &[c"bailey-fence"], &none);
    match failed {
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

/// Everything that can be decided before anything is made.
fn prepare(
    spec: BoxSpec,
    mut fds: VecDeque<OwnedFd>,
) -> Result<(Init, UnixStream, OwnedFd), SetupError> {
    let check = |error: StepError| error.at("check what was asked", None);
    let missing = || check(StepError::Refused("a descriptor is missing"));
    let mine = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if mine != (spec.uid, spec.gid) {
        return Err(check(StepError::Refused(
            "the launcher runs as another user than the box",
        )));
    }
    let streams = match spec.stdio {
        Stdio::Pty { .. } => None,
        Stdio::Pipes => {
            let mut next = || fds.pop_front().ok_or_else(missing);
            Some(Streams::Pipes([next()?, next()?, next()?]))
        }
    };
    let hold = |fd| Held::new(fd).map_err(|error| error.at("look at what was granted", None));
    let own = hold(fds.pop_front().ok_or_else(missing)?)?;
    let grants = fds.into_iter().map(hold).collect::<Result<Vec<_>, _>>()?;
    if grants.len() != spec.grants.len() {
        return Err(missing());
    }
    let seen = facts::gather(&spec, &grants);
    let seen = seen.map_err(|error| error.at("look at the host", None))?;
    let ops: Vec<SetupOp> = plan(&spec, &seen).map_err(|error| SetupError {
        step: "check what was asked".into(),
        path: None,
        reason: error.to_string(),
        errno: 0,
    })?;
    let system = |error: std::io::Error| StepError::from(error).at("open a pipe", None);
    let (up, up_inside) = UnixStream::pair().map_err(system)?;
    let (status, status_inside) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| system(errno.into()))?;
    let init = Init {
        spec,
        ops,
        own,
        grants,
        streams,
        up: up_inside,
        status: status_inside,
    };
    Ok((init, up, status))
}

/// Makes the child and keeps the box until it has ended.
fn keep(mut node: Channel, init: Init, up: UnixStream, status: OwnedFd) -> Result<(), LaunchError> {
    let child = match sys::clone_into_namespaces() {
        Ok(Some(child)) => child,
        Ok(None) => {
            // The launcher's side of everything is not the box's. The channel
            // is descriptor 0, which the child puts something else on.
            std::mem::forget(node);
            drop((up, status));
            init.run()
        }
        Err(error) => return Ok(node.send(&FromFence::Failed(no_namespaces(error)), &[])?),
    };
    drop(init);
    let mut keeper = Keeper {
        node,
        child,
        up: Some(Channel::new(up)),
        status: Some(status),
        ready: false,
        started: false,
        failed: None,
        end: None,
    };
    let served = keeper.serve();
    if served.is_err() {
        // Nobody is left to ask: the box ends, and is seen to end.
        keeper.kill()?;
        keeper.wait()?;
    }
    served
}

fn no_namespaces(error: std::io::Error) -> SetupError {
    let why = match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "the system lets no ordinary user make a user namespace (a setting of the kernel, \
             AppArmor, or the filter of a container)"
        }
        Some(Errno::NOSPC) => "there are as many user namespaces as the system allows",
        Some(Errno::INVAL) => "this kernel has no user namespaces",
        Some(Errno::NOSYS) => "this kernel, or the filter of a container, has no clone3",
        _ => return StepError::from(error).at("make the namespaces", None),
    };
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    StepError::because(why)(errno).at("make the namespaces", None)
}

/// The launcher, once there is a child.
#[derive(Debug)]
struct Keeper {
    node: Channel,
    child: Cloned,
    /// To pid 1, until the command starts.
    up: Option<Channel>,
    /// From pid 1; its bytes are not trusted.
    status: Option<OwnedFd>,
    ready: bool,
    started: bool,
    failed: Option<SetupError>,
    end: Option<ChildExit>,
}

/// What a wait found.
#[derive(Debug, Clone, Copy)]
struct Found {
    node: bool,
    up: bool,
    status: bool,
    ended: bool,
}

impl Keeper {
    fn serve(&mut self) -> Result<(), LaunchError> {
        loop {
            let found = self.poll()?;
            // What pid 1 said goes before that it has ended.
            if found.up {
                self.hear_init()?;
            }
            if found.status {
                self.hear_status()?;
            }
            if found.ended {
                return self.finish();
            }
            if found.node {
                let message = self.node.receive()?;
                self.hear_node(message)?;
                while let Some(message) = self.node.buffered()? {
                    self.hear_node(message)?;
                }
            }
        }
    }

    fn poll(&self) -> Result<Found, LaunchError> {
        // A place that waits for nothing stands for what is closed.
        let up = self
            .up
            .as_ref()
            .map_or(self.child.pidfd.as_fd(), AsFd::as_fd);
        let status = self
            .status
            .as_ref()
            .map_or(self.child.pidfd.as_fd(), AsFd::as_fd);
        let mut polled = [
            PollFd::new(&self.node, PollFlags::IN),
            PollFd::from_borrowed_fd(up, PollFlags::IN),
            PollFd::from_borrowed_fd(status, PollFlags::IN),
            PollFd::new(&self.child.pidfd, PollFlags::IN),
        ];
        loop {
            match poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        let [node, up, status, ended] = polled.map(|polled| !polled.revents().is_empty());
        Ok(Found {
            node,
            up: up && self.up.is_some(),
            status: status && self.status.is_some(),
            ended,
        })
    }

    fn hear_init(&mut self) -> Result<(), LaunchError> {
        let Some(up) = self.up.as_mut() else {
            return Ok(());
        };
        // Pid 1 closed it, or said what it cannot say: its end will tell.
        let Ok(Message { value, fds }) = up.receive::<FromInit>() else {
            self.up = None;
            return Ok(());
        };
        let mut waiting = VecDeque::from([(value, fds)]);
        while let Ok(Some(Message { value, fds })) = up.buffered() {
            waiting.push_back((value, fds));
        }
        for (value, fds) in waiting {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match value {
                FromInit::Tun => self.node.send(&FromFence::Tun, &fds)?,
                FromInit::Pty => self.node.send(&FromFence::Pty, &fds)?,
                FromInit::Failed(error) => self.failed = Some(error),
                FromInit::Ready => {
                    self.ready = true;
                    let pid = self.child.pid;
                    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    let seen = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?;
                    let mut given = vec![self.child.pidfd.as_fd(), seen.as_fd()];
                    given.extend(fds);
                    self.node.send(&FromFence::Made { pid }, &given)?;
                }
            }
        }
        Ok(())
    }

    fn hear_status(&mut self) -> Result<(), LaunchError> {
        let Some(status) = &self.status else {
            return Ok(());
        };
        let mut record: Status = [0; 2];
        let got = rustix::io::read(status, &mut record);
        match (got, record) {
            (Err(Errno::INTR), _) => {}
            (Ok(2), [RUNNING, _]) => self.node.send(&FromFence::Running, &[])?,
            (Ok(2), [EXITED, code]) => self.end = Some(ChildExit::Code(code)),
            (Ok(2), [SIGNALLED, signal]) => self.end = Some(ChildExit::Signal(signal)),
            // Closed, or nothing that pid 1 says: its end will tell.
            _ => self.status = None,
        }
        Ok(())
    }

    fn hear_node(&mut self, message: Message<ToFence>) -> Result<(), LaunchError> {
        match message.value {
            ToFence::Start(_) => return Err(LaunchError::OutOfOrder),
            ToFence::Go => {
                if !self.ready || self.started {
                    return Err(LaunchError::OutOfOrder);
                }
                self.started = true;
                if let Some(up) = &mut self.up {
                    // If pid 1 has just ended, its end will tell.
                    let _ = up.send(&Go, &[]);
                }
            }
            ToFence::Kill | ToFence::Signal(libc::SIGKILL) => self.kill()?,
            ToFence::Signal(signal) => self.forward(signal)?,
        }
        Ok(())
    }

    /// Through pid 1, which cannot be told to stop without stopping itself.
    fn forward(&self, signal: i32) -> Result<(), LaunchError> {
        let signal = if signal == libc::SIGSTOP {
            libc::SIGTSTP
        } else {
            signal
        };
        // Before the command starts there is nobody to deliver to.
        if !self.started || signal == libc::SIGCHLD {
            return Ok(());
        }
        let Some(signal) = Signal::from_named_raw(signal) else {
            return Ok(());
        };
        self.send(signal)
    }

    fn kill(&self) -> Result<(), LaunchError> {
        self.send(Signal::KILL)
    }

    fn send(&self, signal: Signal) -> Result<(), LaunchError> {
        match rustix::process::pidfd_send_signal(&self.child.pidfd, signal) {
            Err(Errno::SRCH) | Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for pid 1. The kernel lets it go only after every other process of
    /// its namespace.
    fn wait(&self) -> Result<Option<WaitIdStatus>, LaunchError> {
        loop {
            match rustix::process::waitid(
                WaitId::PidFd(self.child.pidfd.as_fd()),
                WaitIdOptions::EXITED,
            ) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Pid 1 has ended: what it said last, then the last word to the node.
    fn finish(&mut self) -> Result<(), LaunchError> {
        while self.up.is_some() {
            self.hear_init()?;
        }
        while self.status.is_some() {
            self.hear_status()?;
        }
        let how = self.wait()?;
        let signal = how
            .and_then(|how| how.terminating_signal())
            .unwrap_or(libc::SIGKILL);
        let killed = ChildExit::Signal(u8::try_from(signal).unwrap_or(u8::MAX));
        let last = match (self.failed.take(), self.end) {
            (Some(error), _) => FromFence::Failed(error),
            (None, Some(end)) => FromFence::Ended(end),
            (None, None) => FromFence::Ended(killed),
        };
        Ok(self.node.send(&last, &[])?)
    }
}
