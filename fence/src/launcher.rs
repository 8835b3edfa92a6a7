//! Outside the box: between the node and pid 1.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::{Channel, ChannelError, Message};
use bailey_fence_plan::channel::{BoxSpec, FromFence, JoinSpec, Layer, SetupError, Stdio, ToFence};
use bailey_fence_plan::fallback::MAKE_NAMESPACES;
use bailey_fence_plan::holds::lost_by_rename;
use bailey_fence_plan::{HostFacts, PlanError, SetupOp, check_joiner, namespaces, plan};
use bailey_model::{Method, Tier};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::ahead::{Ahead, Begun};
use crate::command::Streams;
use crate::confine::Confinement;
use crate::facts::{self, Machine};
use crate::fallback::{self, Choice, Ends, Other};
use crate::host::Held;
use crate::init::{Granted, Init, Job};
use crate::join::{self, Joiner};
use crate::keeper::{Keeper, Kept};
use crate::landlock::{self, Scopes};
use crate::limits::{self, Bounds};
use crate::step::StepError;
use crate::sys;

/// The step before anything is made.
pub(crate) const CHECK: &str = "check what was asked";
/// What a box sees as the command line of its pid 1.
const OWN_NAME: &str = "bailey-fence";
pub(crate) const OWN_NAME_C: &CStr = c"bailey-fence";

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

/// Serves one box, or one further command in a box: from the specification on
/// descriptor 0 to its end.
///
/// # Errors
/// When the node is gone or the system fails; the box has ended then.
pub fn launch() -> Result<(), LaunchError> {
    without_name_and_environment()?;
    // Whatever was inherited beside the three streams is none of a box's.
    sys::close_range(3, u32::MAX)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    limits::limit_core()?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // A launcher may be started before there is a box to make: what does not
    // depend on the box is looked at now.
    let machine = Machine::look();
    // The terminal of the node sends its signals to the node alone. Where this
    // process leads a group already, it is not in the node's.
    let _ = rustix::process::setsid();
    let mut node = Channel::new(UnixStream::from(sys::take_channel()));
    let mut waiting = None;
    let Message { value, fds } = match order(&mut node, machine, &mut waiting) {
        // One that waited for a box and is not needed: the node leaves.
        Err(LaunchError::Channel(ChannelError::Closed)) => return Ok(()),
        heard => heard?,
    };
    // Only a box goes on with it: with a further command it is gone at once.
    let begun = waiting
        .and_then(Ahead::into_begun)
        .filter(|_| matches!(value, ToFence::Start(_)));
    let failed = match value {
        ToFence::Start(spec) => match prepare(machine, *spec, fds) {
            Ok(prepared) => return keep(node, prepared, begun),
            Err(error) => error,
        },
        ToFence::Join(spec) => match prepare_joiner(machine, *spec, fds) {
            Ok(prepared) => return keep_joiner(node, prepared),
            Err(error) => error,
        },
        ToFence::Await | ToFence::Go | ToFence::Signal(_) | ToFence::Kill => {
            return Err(LaunchError::OutOfOrder);
        }
    };
    Ok(node.send(&FromFence::Failed(failed), &[])?)
}

/// Waits for its order. Meanwhile it begins a box, if it is to wait.
fn order(
    node: &mut Channel,
    machine: Machine,
    waiting: &mut Option<Ahead>,
) -> Result<Message<ToFence>, LaunchError> {
    let mut message = node.receive()?;
    if matches!(message.value, ToFence::Await) {
        let mut ahead = Ahead::new(machine, message.fds.pop_front());
        // The order may have come together with the word to wait.
        message = match node.buffered()? {
            Some(message) => message,
            None => {
                ahead.wait(node)?;
                node.receive()?
            }
        };
        *waiting = Some(ahead);
    }
    Ok(message)
}

/// The child keeps this program's memory, with what a box may read of it: its
/// arguments and, until it is not dumpable, its environment. Without the latter,
/// and by a name that is no path of the host, the program starts again.
fn without_name_and_environment() -> Result<(), LaunchError> {
    let mut arguments = std::env::args_os();
    let named = arguments.next().is_some_and(|name| name == OWN_NAME);
    if named && arguments.next().is_none() && std::env::vars_os().next().is_none() {
        rustix::thread::set_name(OWN_NAME_C)?;
        return Ok(());
    }
    let none: [CString; 0] = [];
    let failed: Result<Infallible, _> =
        nix::unistd::execve(c"/proc/self/exe", &[OWN_NAME_C], &none);
    match failed {
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

/// Everything that can be decided before anything is made.
fn prepare(
    machine: Machine,
    spec: BoxSpec,
    mut fds: VecDeque<OwnedFd>,
) -> Result<Prepared, SetupError> {
    let check = |error: StepError| error.at(CHECK, None);
    may_be_broken(spec.broken, cfg!(debug_assertions)).map_err(check)?;
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
    let streams = streams(spec.stdio, &mut fds).ok_or_else(missing)?;
    let cgroup = if spec.cgroup {
        Some(fds.pop_front().ok_or_else(missing)?)
    } else {
        None
    };
    let hold = |fd| Held::new(fd).map_err(|error| error.at("look at what was granted", None));
    let own = hold(fds.pop_front().ok_or_else(missing)?)?;
    let grants = fds.into_iter().map(hold).collect::<Result<Vec<_>, _>>()?;
    if grants.len() != spec.grants.len() {
        return Err(missing());
    }
    let scopes = scopes(machine, &spec)?;
    let seen = facts::gather(machine, &spec, &grants);
    let seen = seen.map_err(|error| error.at("look at the host", None))?;
    let ops: Vec<SetupOp> = plan(&spec, &seen).map_err(|error| refused(&error))?;
    let job = Job {
        bounds: Bounds {
            tier: spec.tier,
            class: spec.class,
            limits: spec.limits,
            cgroup: spec.cgroup,
            open_files: spec.open_files,
            broken: spec.broken,
        },
        of_user: machine.of_user,
        confinement: Confinement {
            tier: spec.tier,
            class: spec.class,
            scopes,
            alone: false,
            broken: spec.broken,
        },
        spec,
        watched: lost_by_rename(&ops),
        ops,
    };
    let init = Init {
        job,
        granted: Granted { own, grants },
        streams,
        laid: None,
        cgroup,
    };
    Ok(Prepared {
        init,
        seen,
        landlock: machine.landlock,
    })
}

/// Only tests leave a layer out, and only in a build that is none for people.
fn may_be_broken(broken: Option<Layer>, assertions: bool) -> Result<(), StepError> {
    if broken.is_some() && !assertions {
        return Err(StepError::Refused(
            "no layer is left out in a build without assertions",
        ));
    }
    Ok(())
}

fn refused(error: &PlanError) -> SetupError {
    SetupError {
        step: CHECK.into(),
        path: None,
        reason: error.to_string(),
        errno: 0,
    }
}

/// What the command's streams are to be; a terminal is made later.
pub(crate) fn streams(stdio: Stdio, fds: &mut VecDeque<OwnedFd>) -> Option<Option<Streams>> {
    Some(match stdio {
        Stdio::Pty { .. } => None,
        Stdio::Pipes => {
            let mut next = || fds.pop_front();
            Some(Streams::Pipes([next()?, next()?, next()?]))
        }
    })
}

fn pipe() -> Result<(OwnedFd, OwnedFd), SetupError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| no_pipe(errno.into()))
}

fn no_pipe(error: std::io::Error) -> SetupError {
    StepError::from(error).at("open a pipe", None)
}

/// A box that can be made.
#[derive(Debug)]
struct Prepared {
    init: Init,
    /// What the plan was made from.
    seen: HostFacts,
    landlock: Option<u32>,
}

/// What keeps the box from abstract sockets, where it shares the network.
fn scopes(machine: Machine, spec: &BoxSpec) -> Result<Scopes, SetupError> {
    let scopes = Scopes::of_box(spec.tier, machine.landlock);
    if !spec.tier.shares_network() || scopes != Scopes::Nothing {
        return Ok(scopes);
    }
    let step = "look for abstract sockets";
    let sockets = std::fs::read("/proc/net/unix")
        .map_err(|error| StepError::from(error).at(step, Some(b"/proc/net/unix")))?;
    let sockets = String::from_utf8_lossy(&sockets);
    match landlock::refusal(spec.tier, machine.landlock, &sockets) {
        None => Ok(scopes),
        Some(reason) => Err(SetupError {
            step: step.into(),
            path: None,
            reason,
            errno: 0,
        }),
    }
}

/// Makes the box by the first way that the machine lets it be made, and keeps it
/// until it has ended.
fn keep(
    mut node: Channel,
    prepared: Prepared,
    mut begun: Option<Begun>,
) -> Result<(), LaunchError> {
    let Prepared {
        mut init,
        seen,
        landlock,
    } = prepared;
    let mut choice = Choice::new(&init, landlock);
    loop {
        let way = match choice.best() {
            Ok(way) => way,
            Err(why) => return Ok(node.send(&choice.refuse(why), &[])?),
        };
        if let Err(error) = at_tier(&mut init, way.tier, &seen) {
            return Ok(node.send(&FromFence::Failed(error), &[])?);
        }
        // By another way, or a second time, it is made from its beginning.
        let ahead = begun.take().filter(|_| way.method == Method::Namespaces);
        let was_begun = ahead.is_some();
        let (mut back, made) = make((way.method, choice.lend), init, landlock, ahead);
        let error = match made {
            Ok(mut made) => {
                // While the child builds: what it is to try is looked at outside. One
                // that has ended already has said why.
                let _ended = made.up.send(back.lay(), &[]);
                let keeper = Keeper::new(node, made.child, made.up, made.status, landlock);
                match keeper.making(back, way.method, made.said).keep()? {
                    Kept::Over => return Ok(()),
                    Kept::NotMade {
                        node: back,
                        init: asked,
                        error,
                    } => {
                        node = back;
                        init = *asked;
                        error
                    }
                }
            }
            Err(error) => {
                init = back;
                error
            }
        };
        // What fails once more without what was begun before is the machine's.
        if was_begun {
            continue;
        }
        if let Err(error) = choice.failed(way, error) {
            return Ok(node.send(&FromFence::Failed(error), &[])?);
        }
    }
}

/// What is asked, with the operations of another tier.
fn at_tier(init: &mut Init, tier: Tier, seen: &HostFacts) -> Result<(), SetupError> {
    if init.job.spec.tier == tier {
        return Ok(());
    }
    init.job.spec.tier = tier;
    init.job.bounds.tier = tier;
    init.job.confinement.tier = tier;
    init.job.ops = plan(&init.job.spec, seen).map_err(|error| refused(&error))?;
    Ok(())
}

/// Makes the child of one way, or goes on with the one that was begun.
fn make(
    (method, lend): (Method, bool),
    init: Init,
    landlock: Option<u32>,
    begun: Option<Begun>,
) -> (Init, Result<Other, SetupError>) {
    if let Some(made) = begun.and_then(|begun| begun.go_on(&init)) {
        return (init, Ok(made));
    }
    let ends = match Ends::open() {
        Ok(ends) => ends,
        Err(error) => return (init, Err(no_pipe(error))),
    };
    if method != Method::Namespaces {
        return fallback::start(method, init, landlock, lend, ends);
    }
    let own = namespaces(&init.job.spec);
    let within = init.cgroup.as_ref().map(AsFd::as_fd);
    match sys::clone_into_namespaces(own, within) {
        Ok(Some(child)) => (init, Ok(Other::new(child, None, ends))),
        Ok(None) => {
            // The launcher's side of everything is not the box's. The channel to
            // the node is descriptor 0, which the child puts something else on.
            let (inside, status) = ends.inside();
            init.run(inside, status)
        }
        Err(error) => (init, Err(no_namespaces(error))),
    }
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
        _ => return StepError::from(error).at(MAKE_NAMESPACES, None),
    };
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    StepError::because(why)(errno).at(MAKE_NAMESPACES, None)
}

/// Everything that can be decided before the box is joined.
fn prepare_joiner(
    machine: Machine,
    spec: JoinSpec,
    mut fds: VecDeque<OwnedFd>,
) -> Result<PreparedJoiner, SetupError> {
    let check = |error: StepError| error.at(CHECK, None);
    let missing = || check(StepError::Refused("a descriptor is missing"));
    check_joiner(&spec).map_err(|error| refused(&error))?;
    let streams = streams(spec.stdio, &mut fds).ok_or_else(missing)?;
    let first = fds.pop_front().ok_or_else(missing)?;
    let cgroup = if spec.cgroup {
        Some(fds.pop_front().ok_or_else(missing)?)
    } else {
        None
    };
    let namespaces = Vec::from(fds);
    if !join::are_namespaces(&namespaces, spec.tier.shares_network()) {
        return Err(missing());
    }
    let (up, up_inside) = UnixStream::pair().map_err(no_pipe)?;
    let (status, status_inside) = pipe()?;
    let (order_inside, order) = pipe()?;
    let joiner = Joiner {
        bounds: Bounds {
            tier: spec.tier,
            class: spec.class,
            limits: spec.limits,
            cgroup: spec.cgroup,
            open_files: spec.open_files,
            broken: None,
        },
        confinement: Confinement {
            tier: spec.tier,
            class: spec.class,
            scopes: Scopes::of_joiner(spec.tier, machine.landlock),
            alone: false,
            broken: None,
        },
        spec,
        streams,
        first,
        namespaces,
        up: up_inside,
        status: status_inside,
        order: order_inside,
    };
    Ok(PreparedJoiner {
        joiner,
        cgroup,
        up,
        status,
        order,
    })
}

/// A command that can join its box.
#[derive(Debug)]
struct PreparedJoiner {
    joiner: Joiner,
    cgroup: Option<OwnedFd>,
    /// The launcher's ends.
    up: UnixStream,
    status: OwnedFd,
    order: OwnedFd,
}

/// Makes the child that joins, and keeps the command until it has ended.
fn keep_joiner(mut node: Channel, prepared: PreparedJoiner) -> Result<(), LaunchError> {
    let PreparedJoiner {
        joiner,
        cgroup,
        up,
        status,
        order,
    } = prepared;
    let within = cgroup.as_ref().map(AsFd::as_fd);
    let child = match sys::clone_into_cgroup(within) {
        Ok(Some(child)) => child,
        Ok(None) => {
            std::mem::forget(node);
            drop((up, status, order, cgroup));
            joiner.run()
        }
        Err(error) => {
            let error = StepError::from(error).at("start a process for the box", None);
            return Ok(node.send(&FromFence::Failed(error), &[])?);
        }
    };
    drop((joiner, cgroup));
    Keeper::new(node, child, Channel::new(up), status, None)
        .ordering(order)
        .keep()
        .map(drop)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_for_people_leaves_no_layer_out() {
        for layer in [
            Layer::ReadOnly,
            Layer::Processes,
            Layer::Filter,
            Layer::Capabilities,
            Layer::Network,
            Layer::Limits,
        ] {
            assert!(may_be_broken(Some(layer), false).is_err());
            assert!(may_be_broken(Some(layer), true).is_ok());
        }
        assert!(may_be_broken(None, false).is_ok());
    }
}
