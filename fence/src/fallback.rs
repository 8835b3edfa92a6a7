//! Other ways to make a box, for where the launcher may not make namespaces
//! itself. What runs by them is under the same filter, or does not run.

mod alone;
pub(crate) mod bubblewrap;
mod terminal;
pub(crate) mod tree;

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::Channel;
use bailey_fence_plan::SetupOp;
use bailey_fence_plan::channel::{FromFence, SetupError};
use bailey_fence_plan::doctor::Rung;
use bailey_fence_plan::fallback::{Asked, LANDLOCK_ALONE, NoWay, Support, Way, rung_of, ways};
use bailey_model::Method;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open, set_child_subreaper};

use crate::confine::GIVE_UP;
use crate::init::Init;
use crate::step::StepError;
use crate::sys::{self, Cloned};

/// Both ends of what a child talks through.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) up: UnixStream,
    pub(crate) status: OwnedFd,
    pub(crate) inside: UnixStream,
    pub(crate) status_inside: OwnedFd,
}

impl Ends {
    pub(crate) fn open() -> std::io::Result<Self> {
        let (up, inside) = UnixStream::pair()?;
        let (status, status_inside) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self {
            up,
            status,
            inside,
            status_inside,
        })
    }

    /// Those of the child: the launcher's are closed.
    pub(crate) fn inside(self) -> (UnixStream, OwnedFd) {
        (self.inside, self.status_inside)
    }
}

/// A child that was made.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) child: Cloned,
    pub(crate) up: Channel,
    pub(crate) status: OwnedFd,
    /// What it says against it, where it is another program.
    pub(crate) said: Option<OwnedFd>,
}

impl Other {
    /// Keeps the launcher's ends alone.
    pub(crate) fn new(child: Cloned, said: Option<OwnedFd>, ends: Ends) -> Self {
        Self {
            child,
            up: Channel::new(ends.up),
            status: ends.status,
            said,
        }
    }
}

/// Which ways are left, and why the first one was not taken.
#[derive(Debug)]
pub(crate) struct Choice {
    asked: Asked,
    support: Support,
    /// Whether bubblewrap leaves pid 1 a capability for what only the box's own
    /// user namespace can bound.
    pub(crate) lend: bool,
    errors: Vec<SetupError>,
}

impl Choice {
    /// Before anything was tried, everything is thought to work but what is
    /// plainly not there.
    pub(crate) fn new(init: &Init, landlock: Option<u32>) -> Self {
        let of = |there: bool, rung| if there { Ok(()) } else { Err(rung) };
        let folder = |op: &SetupOp| matches!(op, SetupOp::GrantFolderReadOnly { .. });
        // A box that is broken on purpose is made as it was broken, or not at all.
        let whole = init.job.spec.broken.is_none();
        let bwrap = whole && std::path::Path::new(bubblewrap::PROGRAM).exists();
        let alone = whole && landlock >= Some(LANDLOCK_ALONE);
        Self {
            asked: Asked {
                tier: init.job.spec.tier,
                class: init.job.spec.class,
                read_only_folder: init.job.ops.iter().any(folder),
                weaker: init.job.spec.weaker,
            },
            support: Support {
                namespaces: Ok(()),
                overlay: Ok(()),
                tun: Ok(()),
                bubblewrap: of(bwrap, Rung::Bubblewrap),
                landlock: of(alone, Rung::Landlock),
            },
            lend: true,
            errors: Vec::new(),
        }
    }

    /// The best way that is left.
    pub(crate) fn best(&self) -> Result<Way, NoWay> {
        let left = ways(&self.asked, &self.support)?;
        let fault = NoWay::Nothing(Rung::Namespaces);
        left.first().copied().ok_or(fault)
    }

    /// Takes a way that failed away, if it was the machine that failed it.
    pub(crate) fn failed(&mut self, way: Way, error: SetupError) -> Result<(), SetupError> {
        if way.method == Method::Bubblewrap && error.step == GIVE_UP && self.lend {
            self.lend = false;
            return Ok(());
        }
        let Some(rung) = rung_of(&error).or(match way.method {
            // What it cannot show, another way may.
            Method::Bubblewrap | Method::Landlock => Some(Rung::Bubblewrap),
            Method::Namespaces => None,
        }) else {
            return Err(error);
        };
        match (way.method, rung) {
            (Method::Namespaces, Rung::Tun) => self.support.tun = Err(rung),
            (Method::Namespaces, Rung::Overlay) => self.support.overlay = Err(rung),
            (Method::Namespaces, _) => self.support.namespaces = Err(rung),
            (Method::Bubblewrap, _) => self.support.bubblewrap = Err(rung),
            (Method::Landlock, _) => self.support.landlock = Err(rung),
        }
        self.errors.push(error);
        Ok(())
    }

    /// Why nothing was made, for the person who asked: what was wrong with the
    /// best way. What was wrong with the others goes to the node's log.
    pub(crate) fn refuse(self, why: NoWay) -> FromFence {
        let mut errors = self.errors.into_iter();
        let none = || StepError::Refused("there is no way").at("make the box", None);
        let mut error = errors.next().unwrap_or_else(none);
        for other in errors {
            // A line that cannot be written is lost and nothing else.
            let _lost = writeln!(std::io::stderr(), "bailey-fence: {other}");
        }
        error.reason = format!("{}; {why}", error.reason);
        match why {
            NoWay::OnlyWeaker(_) => FromFence::OnlyWeaker(error),
            NoWay::Nothing(_) => FromFence::Failed(error),
        }
    }
}

/// Starts the child of a way that is not the launcher's own namespaces.
pub(crate) fn start(
    method: Method,
    init: Init,
    landlock: Option<u32>,
    lend: bool,
    ends: Ends,
) -> (Init, Result<Other, SetupError>) {
    // What outlives a process of the box without a namespace comes to the
    // launcher, which ends it.
    if let Err(errno) = set_child_subreaper(Some(rustix::process::getpid())) {
        let error = StepError::from(errno).at("adopt what is left", None);
        return (init, Err(error));
    }
    if init.job.spec.display.is_some() || init.job.spec.gpu {
        let why = "a display and the graphics processor are given only in namespaces of the \
                   launcher's own making";
        return (init, Err(StepError::Refused(why).at("make the box", None)));
    }
    match method {
        Method::Landlock => alone::start(init, ends),
        Method::Bubblewrap | Method::Namespaces => {
            let started = bubblewrap::start(&init, landlock, lend, ends);
            (init, started)
        }
    }
}

/// fork(2), in a cgroup, for where clone3(2) may be refused. `None` in the child;
/// one that cannot join the group says so by `say` and ends, since only the
/// launcher may go on as such.
fn fork(
    cgroup: Option<&OwnedFd>,
    say: impl FnOnce(StepError),
) -> Result<Option<Cloned>, StepError> {
    let Some(child) = sys::fork()? else {
        if let Some(Err(error)) = cgroup.map(join) {
            say(error);
            sys::exit_now(1)
        }
        return Ok(None);
    };
    Ok(Some(cloned(child, pidfd_open(child, PidfdFlags::empty())?)))
}

fn cloned(pid: Pid, pidfd: OwnedFd) -> Cloned {
    Cloned {
        pid: pid.as_raw_nonzero().get(),
        pidfd,
    }
}

/// Takes this process into a cgroup.
fn join(cgroup: &OwnedFd) -> Result<(), StepError> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let list = openat(cgroup.as_fd(), c"cgroup.procs", flags, Mode::empty())?;
    // 0 is the process that writes.
    rustix::io::write(&list, b"0")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_cannot_join_its_group_says_so_and_is_no_second_launcher() {
        let own = rustix::process::getpid();
        // A folder that is no cgroup.
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        let group = rustix::fs::open("/usr", flags, rustix::fs::Mode::empty()).unwrap();
        let (said, say) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let made = fork(Some(&group), |error| {
            let _ = rustix::io::write(&say, error.to_string().as_bytes());
        });
        assert_eq!(rustix::process::getpid(), own, "the child goes on");
        let child = made.unwrap().unwrap();
        let how = crate::keeper::wait(&child.pidfd).unwrap().unwrap();
        assert_eq!(how.exit_status(), Some(1));
        drop(say);
        let mut text = [0; 100];
        assert!(rustix::io::read(&said, &mut text).unwrap() > 0);
    }
}
