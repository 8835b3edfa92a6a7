//! The launcher while its box, or its further command, is there: between the
//! node and the process inside.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::{FromFence, Measured, SetupError, ToFence};
use bailey_fence_plan::fallback::BY_BUBBLEWRAP;
use bailey_fence_plan::holds::demanded;
use bailey_model::{Axis, ChildExit, Fact, Method};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus};

use crate::covers::Covers;
use crate::fallback::tree;
use crate::init::{DISPLAY_ENDED, EXITED, FromInit, Go, Init, RUNNING, SIGNALLED, Status};
use crate::launcher::LaunchError;
use crate::probe;
use crate::sys::Cloned;

/// How long a further command's keeper may take to end it: more than its own
/// bound.
const PATIENCE: Duration = Duration::from_secs(4);

/// Between two looks at the mounts of a box where nothing tells of moved names.
const LOOK: Duration = Duration::from_millis(200);

/// Most bytes of what another program said that are read.
const MAX_SAID: usize = 300;

/// The launcher, once there is a child.
#[derive(Debug)]
pub(crate) struct Keeper {
    node: Channel,
    /// Pid 1 of the box; or the process in it that keeps a further command,
    /// before that the one that joins the box.
    child: Cloned,
    /// To the child, until the command starts.
    up: Option<Channel>,
    /// From the child; its bytes are not trusted.
    status: Option<OwnedFd>,
    /// Its end is the order to end a further command, and that alone.
    order: Option<OwnedFd>,
    /// When a child that was ordered to end is killed.
    until: Option<Instant>,
    /// The kernel's ABI of it.
    landlock: Option<u32>,
    /// By what the box is kept apart.
    method: Method,
    /// Pid 1 of a box whose namespaces the child, another program, makes.
    first: Option<Cloned>,
    /// What another way could make the box from, until this one has.
    making: Option<Making>,
    /// What goes to the node once the box is made: this way may not be the one.
    held_back: Vec<(FromFence, VecDeque<OwnedFd>)>,
    last_way: bool,
    /// Mounts of the box that must not be lost.
    covers: Option<Covers>,
    /// The one that was lost.
    lost: Option<Vec<u8>>,
    ready: bool,
    started: bool,
    failed: Option<SetupError>,
    end: Option<ChildExit>,
}

/// What was asked, while a box is made.
#[derive(Debug)]
struct Making {
    init: Box<Init>,
    /// What another program says against it.
    said: Option<OwnedFd>,
}

/// How the keeping of a child ended.
#[derive(Debug)]
pub(crate) enum Kept {
    /// The node was told the last word.
    Over,
    /// The box was not made and nothing ran; the node was told nothing.
    NotMade {
        node: Channel,
        init: Box<Init>,
        error: SetupError,
    },
}

/// What a wait found.
#[derive(Debug, Clone, Copy)]
struct Found {
    node: bool,
    up: bool,
    status: bool,
    ended: bool,
    mounts: bool,
}

impl Keeper {
    pub(crate) fn new(
        node: Channel,
        child: Cloned,
        up: Channel,
        status: OwnedFd,
        landlock: Option<u32>,
    ) -> Self {
        Self {
            node,
            child,
            up: Some(up),
            status: Some(status),
            order: None,
            until: None,
            landlock,
            method: Method::Namespaces,
            first: None,
            making: None,
            held_back: Vec::new(),
            last_way: false,
            covers: None,
            lost: None,
            ready: false,
            started: false,
            failed: None,
            end: None,
        }
    }

    /// Of a further command, which is ended by the end of `order`.
    pub(crate) fn ordering(self, order: OwnedFd) -> Self {
        Self {
            order: Some(order),
            ..self
        }
    }

    /// Of a box that is being made by a method, from `init`.
    pub(crate) fn making(self, init: Init, method: Method, said: Option<OwnedFd>) -> Self {
        let init = Box::new(init);
        Self {
            method,
            making: Some(Making { init, said }),
            ..self
        }
    }

    /// Keeps the child until it has ended.
    pub(crate) fn keep(mut self) -> Result<Kept, LaunchError> {
        let served = self.serve();
        if served.is_err() {
            // Nobody is left to ask: it ends, and is seen to end.
            self.kill()?;
            self.see_end()?;
            self.end_what_is_left()?;
        }
        let Some((init, error)) = served? else {
            return Ok(Kept::Over);
        };
        Ok(Kept::NotMade {
            node: self.node,
            init,
            error,
        })
    }

    /// Without a namespace of the launcher's own, the kernel does not end all
    /// with the child.
    fn end_what_is_left(&self) -> Result<(), LaunchError> {
        match self.method {
            Method::Namespaces => Ok(()),
            Method::Bubblewrap | Method::Landlock => Ok(tree::end_all()?),
        }
    }

    fn serve(&mut self) -> Result<Option<(Box<Init>, SetupError)>, LaunchError> {
        loop {
            let found = self.poll()?;
            if found.mounts {
                self.look_at_covers()?;
            }
            if self.until.is_some_and(|until| until <= Instant::now()) {
                self.until = None;
                self.send(Signal::KILL)?;
            }
            // What pid 1 said goes before that it has ended.
            if found.up {
                // The child may be another one now.
                self.hear_init()?;
                continue;
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
            match &self.covers {
                Some(covers) => PollFd::new(covers, PollFlags::PRI),
                None => PollFd::new(&self.node, PollFlags::empty()),
            },
            match self.covers.as_ref().and_then(Covers::moves) {
                Some(moves) => PollFd::from_borrowed_fd(moves, PollFlags::IN),
                None => PollFd::new(&self.node, PollFlags::empty()),
            },
        ];
        loop {
            match poll(&mut polled, self.patience().as_ref()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        let [node, up, status, ended, mounts, moves] =
            polled.map(|polled| !polled.revents().is_empty());
        Ok(Found {
            node,
            up: up && self.up.is_some(),
            status: status && self.status.is_some(),
            ended,
            mounts: self.covers.as_ref().is_some_and(|covers| {
                mounts || (moves || covers.moves().is_none()) && covers.moved()
            }),
        })
    }

    /// Ends the box if it has lost what it may not lose.
    fn look_at_covers(&mut self) -> Result<(), LaunchError> {
        let lost = self.covers.as_ref().and_then(Covers::lost);
        if let Some(at) = lost {
            self.lost = Some(at);
            self.covers = None;
            self.kill()?;
        }
        Ok(())
    }

    /// How long to wait for anything: without end, but for a child that was
    /// ordered to end.
    fn patience(&self) -> Option<Timespec> {
        let blind = self
            .covers
            .as_ref()
            .is_some_and(|covers| covers.moves().is_none());
        let until = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        let left = match (until, blind) {
            (Some(left), true) => left.min(LOOK),
            (Some(left), false) => left,
            (None, true) => LOOK,
            (None, false) => return None,
        };
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
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
            self.heard(value, fds)?;
        }
        Ok(())
    }

    fn heard(&mut self, value: FromInit, fds: VecDeque<OwnedFd>) -> Result<(), LaunchError> {
        match value {
            // One that was begun before it was asked for has said so already.
            FromInit::Begun => Ok(()),
            FromInit::Tun => {
                // The gate starts while the box is made: from here on there is
                // no other way.
                self.last_way = true;
                self.pass_on(&FromFence::Tun, &fds)
            }
            FromInit::Pty => self.hold_back(FromFence::Pty, fds),
            FromInit::Namespaces => self.hold_back(FromFence::Namespaces, fds),
            FromInit::Display => self.hold_back(FromFence::Display, fds),
            FromInit::Refusals => self.hold_back(FromFence::Refusals, fds),
            FromInit::First => {
                self.first = fds.into_iter().next().and_then(numbered);
                Ok(())
            }
            FromInit::Inside => self.follow(fds),
            FromInit::Joined => {
                self.ready = true;
                self.pass_on(&FromFence::Joined, &fds)
            }
            FromInit::Failed(error) => {
                self.failed = Some(error);
                Ok(())
            }
            FromInit::Ready(facts) => self.made(facts, fds),
        }
    }

    /// The box is made.
    fn made(
        &mut self,
        mut facts: Vec<(Axis, Fact)>,
        mut fds: VecDeque<OwnedFd>,
    ) -> Result<(), LaunchError> {
        self.ready = true;
        // From here on there is no other way, and no need of one.
        let init = self.making.take().map(|making| making.init);
        let watched = init.as_ref().map(|init| &init.job.watched);
        if let Some(watched) = watched.filter(|watched| !watched.is_empty()) {
            let table = fds.pop_back().ok_or(LaunchError::OutOfOrder)?;
            let names = init.as_ref().map(|init| init.names()).unwrap_or_default();
            self.covers = Some(Covers::new(table, watched.clone(), &names));
            // What came before it could be told.
            self.look_at_covers()?;
        }
        for (what, fds) in std::mem::take(&mut self.held_back) {
            self.pass_on(&what, &fds)?;
        }
        let first = self.first.as_ref().unwrap_or(&self.child);
        let pid = first.pid;
        if let Some(Init { job, cgroup, .. }) = init.as_deref() {
            let cgroup = cgroup.as_ref().map(AsFd::as_fd);
            facts.extend(probe::outside(job.spec.limits, cgroup, pid));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let seen = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty())?;
        let mut given = vec![first.pidfd.as_fd(), seen.as_fd()];
        given.extend(fds.iter().map(AsFd::as_fd));
        let measured = Measured {
            method: self.method,
            landlock: self.landlock,
            facts,
            demanded: init.map_or_else(Vec::new, |init| demanded(&init.job.ops)),
        };
        let made = FromFence::Made { pid, measured };
        Ok(self.node.send(&made, &given)?)
    }

    /// For the node, once the box is made. A further command's has no making.
    fn hold_back(&mut self, what: FromFence, fds: VecDeque<OwnedFd>) -> Result<(), LaunchError> {
        if self.making.is_none() {
            return self.pass_on(&what, &fds);
        }
        self.held_back.push((what, fds));
        Ok(())
    }

    fn pass_on(&mut self, what: &FromFence, fds: &VecDeque<OwnedFd>) -> Result<(), LaunchError> {
        let given: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        Ok(self.node.send(what, &given)?)
    }

    /// The process that joined the box has made the one that stays there, and
    /// ends.
    fn follow(&mut self, mut fds: VecDeque<OwnedFd>) -> Result<(), LaunchError> {
        let Some(pidfd) = fds.pop_front() else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.child.pidfd, pidfd);
        wait(&before)?;
        if self.until.is_some() {
            self.send(Signal::KILL)?;
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
            (Ok(2), [DISPLAY_ENDED, _]) => self.node.send(&FromFence::DisplayEnded, &[])?,
            (Ok(2), [EXITED, code]) => self.end = Some(ChildExit::Code(code)),
            (Ok(2), [SIGNALLED, signal]) => self.end = Some(ChildExit::Signal(signal)),
            // Closed, or nothing that pid 1 says: its end will tell.
            _ => self.status = None,
        }
        Ok(())
    }

    fn hear_node(&mut self, message: Message<ToFence>) -> Result<(), LaunchError> {
        match message.value {
            ToFence::Await | ToFence::Start(_) | ToFence::Join(_) => {
                return Err(LaunchError::OutOfOrder);
            }
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

    /// With pid 1 the kernel ends the whole box. A further command's keeper
    /// ends what that has started, within a bound.
    fn kill(&mut self) -> Result<(), LaunchError> {
        self.last_way = true;
        let Some(order) = self.order.take() else {
            return self.send(Signal::KILL);
        };
        drop(order);
        self.until = Some(Instant::now() + PATIENCE);
        if self.started {
            // The box may have stopped it.
            self.send(Signal::CONT)
        } else {
            self.send(Signal::KILL)
        }
    }

    fn send(&self, signal: Signal) -> Result<(), LaunchError> {
        let first = self.first.as_ref().unwrap_or(&self.child);
        match rustix::process::pidfd_send_signal(&first.pidfd, signal) {
            Err(Errno::SRCH) | Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for the child, which was told to end, and kills it where it does
    /// not.
    fn see_end(&self) -> Result<(), LaunchError> {
        let mut polled = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
        loop {
            match poll(&mut polled, self.patience().as_ref()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(0) => {
                    self.send(Signal::KILL)?;
                    break;
                }
                Ok(_) => break,
            }
        }
        wait(&self.child.pidfd).map(drop)
    }

    /// The child has ended: what it said last, then the last word to the node,
    /// unless there may be another way.
    fn finish(&mut self) -> Result<Option<(Box<Init>, SetupError)>, LaunchError> {
        while self.up.is_some() {
            self.hear_init()?;
        }
        while self.status.is_some() {
            self.hear_status()?;
        }
        let how = wait(&self.child.pidfd)?;
        self.end_what_is_left()?;
        if let Some(Making { init, said }) = self.making.take()
            && !self.last_way
        {
            let said = || said.map(|said| unsaid(&said));
            if let Some(error) = self.failed.take().or_else(said) {
                return Ok(Some((init, error)));
            }
        }
        let signal = how
            .and_then(|how| how.terminating_signal())
            .unwrap_or(libc::SIGKILL);
        let killed = ChildExit::Signal(u8::try_from(signal).unwrap_or(u8::MAX));
        let last = match (self.failed.take(), self.end) {
            _ if self.lost.is_some() => FromFence::CoverLost {
                at: self.lost.take().unwrap_or_default(),
            },
            (Some(error), _) => FromFence::Failed(error),
            (None, Some(end)) => FromFence::Ended(end),
            (None, None) => FromFence::Ended(killed),
        };
        self.node.send(&last, &[])?;
        Ok(None)
    }
}

/// What a program that has ended said against the making of a box.
fn unsaid(said: &OwnedFd) -> SetupError {
    let mut text = vec![0; MAX_SAID];
    let count = rustix::io::read(said, &mut text).unwrap_or_default();
    text.truncate(count);
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or("it ended without a word");
    SetupError {
        step: BY_BUBBLEWRAP.to_owned(),
        path: None,
        reason: line.to_owned(),
        errno: 0,
    }
}

/// The process of a pidfd, as this process counts.
fn numbered(pidfd: OwnedFd) -> Option<Cloned> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    let pid = line.trim().parse().ok().filter(|pid| *pid > 0)?;
    Some(Cloned { pid, pidfd })
}

/// Waits for a child. The kernel lets pid 1 go only after every other process of
/// its namespace.
pub(crate) fn wait(child: &OwnedFd) -> Result<Option<WaitIdStatus>, LaunchError> {
    loop {
        match rustix::process::waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}
