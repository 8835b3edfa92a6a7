//! A further command in a box that runs.
//!
//! One process steps into the box's namespaces, gives up there what the box's
//! own processes have given up, and makes the command's keeper, which is born
//! confined: what the box can see of it has nothing to take. The keeper waits
//! for the word, starts the command and ends it when its launcher says so or is
//! gone.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bailey_channel::Channel;
use bailey_fence_plan::channel::{JoinSpec, SetupError, Stdio};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::builder;
use crate::command::{Program, Streams};
use crate::confine::{self, Confinement};
use crate::init::{self, FromInit, Go};
use crate::limits::Bounds;
use crate::step::StepError;
use crate::sys;

/// The namespaces of a box in the order in which they are joined, that of users
/// first: it gives the right to join the others. Where the network is shared,
/// the last one is not given.
const KINDS: [LinkNameSpaceType; 7] = [
    LinkNameSpaceType::User,
    LinkNameSpaceType::Mount,
    LinkNameSpaceType::ProcessID,
    LinkNameSpaceType::InterProcessCommunication,
    LinkNameSpaceType::HostNameAndNISDomainName,
    LinkNameSpaceType::ControlGroup,
    LinkNameSpaceType::Network,
];
/// How long the ends of a command's processes may take. One that makes new ones
/// faster is the box's then.
const SWEEP: Duration = Duration::from_secs(2);
/// Between two looks for what is left.
const PAUSE: Duration = Duration::from_millis(2);

/// What the process takes with it.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(crate) spec: JoinSpec,
    pub(crate) bounds: Bounds,
    pub(crate) confinement: Confinement,
    pub(crate) streams: Option<Streams>,
    /// Pid 1 of the box.
    pub(crate) first: OwnedFd,
    pub(crate) namespaces: Vec<OwnedFd>,
    /// To the launcher, until the command starts.
    pub(crate) up: UnixStream,
    /// To the launcher, until the end.
    pub(crate) status: OwnedFd,
    /// From the launcher: its end is the order to end the command.
    pub(crate) order: OwnedFd,
}

/// Whether these are as many namespaces as a box has that does, or does not,
/// share its network.
pub(crate) fn are_namespaces(given: &[OwnedFd], shares_network: bool) -> bool {
    given.len() + usize::from(shares_network) == KINDS.len()
}

impl Joiner {
    /// Steps into the box and runs the command in it. Does not return.
    pub(crate) fn run(self) -> ! {
        let Self {
            spec,
            bounds,
            confinement,
            streams,
            first,
            namespaces,
            up,
            status,
            order,
        } = self;
        let mut up = Channel::new(up);
        let made = enter(&first, namespaces, &up)
            .and_then(|()| settle(&spec, bounds, confinement, &mut up))
            .and_then(|terminal| Ok((terminal, sibling()?)));
        drop(first);
        match made {
            Err(error) => give_up(up, error),
            Ok((_, Some(inside))) => {
                // If the launcher is gone, it has taken the keeper's order along.
                let _ = up.send(&FromInit::Inside, &[inside.pidfd.as_fd()]);
                sys::exit_now(0)
            }
            Ok((terminal, None)) => {
                let streams = match (spec.stdio, terminal, streams) {
                    (Stdio::Pty { .. }, Some(terminal), _) => Ok(Streams::Terminal(terminal)),
                    (Stdio::Pipes, _, Some(streams)) => Ok(streams),
                    _ => Err(StepError::Refused("it has no streams")),
                };
                match streams {
                    Ok(streams) => keep((&spec, &bounds), streams, up, &status, order),
                    Err(error) => give_up(up, error.at("start the command", None)),
                }
            }
        }
    }
}

fn give_up(mut up: Channel, error: SetupError) -> ! {
    let _ = up.send(&FromInit::Failed(error), &[]);
    sys::exit_now(1)
}

/// Joins every namespace of the box. This process itself stays outside that of
/// processes, whose members its children are.
fn enter(first: &OwnedFd, namespaces: Vec<OwnedFd>, up: &Channel) -> Result<(), SetupError> {
    let at = |error: StepError| error.at("join the box", None);
    init::leave_streams().map_err(at)?;
    init::tie_to_launcher(up).map_err(at)?;
    if has_ended(first) {
        return Err(at(StepError::Refused("the box has ended")));
    }
    for (namespace, kind) in namespaces.iter().zip(KINDS) {
        move_into_link_name_space(namespace.as_fd(), Some(kind)).map_err(|errno| {
            let step = format!("join the box's namespace ({kind:?})");
            StepError::from(errno).at(&step, None)
        })?;
    }
    // A change of credentials may undo both.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| at(errno.into()))?;
    init::tie_to_launcher(up).map_err(at)
}

/// Takes on everything that the box's own processes have, and no more.
fn settle(
    spec: &JoinSpec,
    bounds: Bounds,
    confinement: Confinement,
    up: &mut Channel,
) -> Result<Option<OwnedFd>, SetupError> {
    let terminal = match spec.stdio {
        Stdio::Pipes => None,
        Stdio::Pty { rows, cols } => {
            let root = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(StepError::from);
            let pair = root.and_then(|root| builder::new_terminal(&root, rows, cols));
            let (master, own) = pair.map_err(|error| error.at("make the terminal", None))?;
            up.send(&FromInit::Pty, &[master.as_fd()])
                .map_err(|_| StepError::Refused("the launcher is gone").at("make it", None))?;
            Some(own)
        }
    };
    rustix::process::chdir(spec.cwd.as_slice())
        .map_err(|errno| StepError::from(errno).at("go to the working folder", Some(&spec.cwd)))?;
    bounds.set_process_limits()?;
    confine::confine(confinement)?;
    Ok(terminal)
}

/// The keeper, a child of the launcher: `None` in it.
fn sibling() -> Result<Option<sys::Cloned>, SetupError> {
    sys::clone_sibling().map_err(|error| {
        let why = match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => StepError::Because {
                errno: Errno::AGAIN,
                why: "the box has as many processes as it may",
            },
            Some(Errno::NOMEM) => StepError::Because {
                errno: Errno::NOMEM,
                why: "the box has ended",
            },
            _ => error.into(),
        };
        why.at("start a process in the box", None)
    })
}

/// Waits for the word, starts the command, and ends with it.
fn keep(
    (spec, bounds): (&JoinSpec, &Bounds),
    streams: Streams,
    mut up: Channel,
    status: &OwnedFd,
    order: OwnedFd,
) -> ! {
    // Not tied to the launcher by a signal, which would leave the command's
    // processes to the box: the end of `order` is heard and acted on.
    let ready = rustix::process::set_parent_process_death_signal(None)
        .and_then(|()| rustix::process::set_child_subreaper(Some(rustix::process::getpid())))
        .map_err(StepError::from)
        .and_then(|()| Ok(sys::signal_fd()?));
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => give_up(up, error.at("watch over the command", None)),
    };
    if up.send(&FromInit::Joined, &[]).is_err() || up.receive::<Go>().is_err() {
        sys::exit_now(1)
    }
    let program = Program {
        command: &spec.command,
        env: &spec.env,
        bounds,
        tied: true,
    };
    let command = init::start(program, streams, up, status);
    loop {
        let mut polled = [
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(&order, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            Err(_) => sweep(command, status),
            Ok(_) => {}
        }
        let [signal, ended] = polled.map(|polled| !polled.revents().is_empty());
        if ended {
            sweep(command, status)
        }
        if signal && let Ok(arrived) = sys::read_signal(&signals) {
            init::attend(arrived, command, None, status);
        }
    }
}

/// Ends every process that the command has started: they are this one's
/// children, or become that when what is between has ended.
fn sweep(command: Pid, status: &OwnedFd) -> ! {
    let until = Instant::now() + SWEEP;
    loop {
        // A child stays one until it is waited for, so its number is no other's.
        for child in children() {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, how))) if pid == command => init::tell_end(how, status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => sys::exit_now(0),
            }
        }
        if Instant::now() > until {
            sys::exit_now(0)
        }
        std::thread::sleep(PAUSE);
    }
}

/// This process's children, from the box's /proc.
fn children() -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .map_while(Result::ok)
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            (parent_in(&stat)? == own.as_raw_nonzero().get()).then_some(Pid::from_raw(pid)?)
        })
        .collect()
}

/// The fourth field of /proc/PID/stat. The second is the name, in parentheses,
/// and may hold anything.
fn parent_in(stat: &[u8]) -> Option<i32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut polled, Some(&now)), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_behind_any_name() {
        assert_eq!(parent_in(b"7 (sh) S 3 7 7 0"), Some(3));
        assert_eq!(parent_in(b"7 (a) S 9 (b) R 4 7"), Some(4));
        assert_eq!(parent_in(b"7 (\xff) S 3"), Some(3));
        assert_eq!(parent_in(b""), None);
        assert_eq!(parent_in(b"7 (sh)"), None);
    }
}
