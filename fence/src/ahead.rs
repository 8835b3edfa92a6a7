//! A box that is begun before anybody asks for one.
//!
//! A launcher that waits has made the child in its namespaces already, and the
//! child has done what every plan begins with (`bailey_fence_plan::ahead`). What
//! is asked later goes on from there only where its own plan begins with exactly
//! these operations and the host's files in them are still the same ones; else
//! the child is ended and the box made from its beginning.
//!
//! The child holds copies of the host's mounts. So that none of them keeps a
//! medium in use, a change of the host's mounts ends it at once; another one is
//! begun when they have been quiet for a while.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::SetupError;
use bailey_fence_plan::fallback::MAKE_NAMESPACES;
use bailey_fence_plan::{Namespaces, SetupOp, ahead, namespaces};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getegid, geteuid, pidfd_send_signal, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_name};

use crate::builder::Builder;
use crate::command::Streams;
use crate::facts::{self, Machine};
use crate::fallback::{Ends, Other};
use crate::host::Held;
use crate::init::{self, FromInit, Granted, Init, Job};
use crate::keeper;
use crate::launcher::{self, CHECK};
use crate::step::StepError;
use crate::sys::{self, Cloned};

/// How long the host's mounts must not have changed.
const QUIET: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// That of the network.
const KIND: LinkNameSpaceType = LinkNameSpaceType::Network;
/// How long a child may take to begin a box.
const BEGIN_LIMIT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// A launcher's box without a question, while it waits.
#[derive(Debug)]
pub(crate) struct Ahead {
    machine: Machine,
    /// The folder of the cgroup that the box will have.
    cgroup: Option<OwnedFd>,
    /// The table of the host's mounts, which tells when it changes.
    mounts: Option<OwnedFd>,
    begun: Option<Begun>,
}

impl Ahead {
    /// Begins a box, if the machine lets it.
    pub(crate) fn new(machine: Machine, cgroup: Option<OwnedFd>) -> Self {
        // Where its changes cannot be seen, nothing is held.
        let mounts = File::open("/proc/self/mountinfo").ok().map(OwnedFd::from);
        let mut ahead = Self {
            machine,
            cgroup,
            mounts,
            begun: None,
        };
        if ahead.mounts.is_some() {
            ahead.begin();
        }
        ahead
    }

    /// Waits until the node says something.
    pub(crate) fn wait(&mut self, node: &Channel) -> Result<(), Errno> {
        let mut quiet = None;
        loop {
            let mounts = self.mounts.as_ref().map_or(node.as_fd(), AsFd::as_fd);
            let mut polled = [
                PollFd::new(node, PollFlags::IN),
                PollFd::from_borrowed_fd(mounts, PollFlags::PRI),
            ];
            match poll(&mut polled, quiet.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
                Ok(0) => {
                    quiet = None;
                    self.begin();
                    continue;
                }
                Ok(_) => {}
            }
            let [node, mounts] = polled.map(|polled| !polled.revents().is_empty());
            // The kernel tells of a change once.
            if mounts {
                self.begun = None;
                quiet = Some(QUIET);
            }
            if node {
                return Ok(());
            }
        }
    }

    /// What was begun, if the host's mounts are still those that it knows: they
    /// may have changed just before the order came.
    pub(crate) fn into_begun(self) -> Option<Begun> {
        let mut polled = [PollFd::new(self.mounts.as_ref()?, PollFlags::PRI)];
        let unchanged = matches!(poll(&mut polled, Some(&AT_ONCE)), Ok(0));
        self.begun.filter(|_| unchanged)
    }

    /// A box that cannot be begun now is made when it is asked for, and then
    /// says why it cannot.
    fn begin(&mut self) {
        self.begun = None;
        let (Ok(facts), Ok(ends)) = (facts::look(self.machine), Ends::open()) else {
            return;
        };
        let ops = ahead(&facts);
        // Before the child mounts them: one that is replaced meanwhile shows.
        let files = files_of(&ops);
        let ids = (geteuid().as_raw(), getegid().as_raw());
        // A network of its own is made when it is known to have one.
        let own = Namespaces {
            processes: true,
            network: false,
        };
        let within = self.cgroup.as_ref().map(AsFd::as_fd);
        match sys::clone_into_namespaces(own, within) {
            Ok(Some(child)) => {
                let Other {
                    child, up, status, ..
                } = Other::new(child, None, ends);
                let begun = Begun {
                    child: Unasked(Some(child)),
                    up,
                    status,
                    ops,
                    files,
                    cgroup: self.cgroup.is_some(),
                };
                self.begun = begun.once_it_says_so();
            }
            Ok(None) => {
                let (inside, status) = ends.inside();
                begin(&ops, ids, inside, status)
            }
            Err(_) => {}
        }
    }
}

/// A box that waits for what is asked of it. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Begun {
    child: Unasked,
    up: Channel,
    status: OwnedFd,
    /// What the child has done.
    ops: Vec<SetupOp>,
    /// Which files of the host are in it.
    files: Vec<FileId>,
    cgroup: bool,
}

impl Begun {
    fn once_it_says_so(mut self) -> Option<Self> {
        let mut polled = [PollFd::new(&self.up, PollFlags::IN)];
        if !matches!(poll(&mut polled, Some(&BEGIN_LIMIT)), Ok(1..)) {
            return None;
        }
        let said = self.up.receive::<FromInit>().ok()?;
        matches!(said.value, FromInit::Begun).then_some(self)
    }

    /// Goes on to the box that is asked for; `None` where it cannot, and then
    /// nothing of it is left.
    pub(crate) fn go_on(mut self, init: &Init) -> Option<Other> {
        let fits = init.job.ops.starts_with(&self.ops)
            && self.cgroup == init.cgroup.is_some()
            && self.files == files_of(&self.ops);
        if !fits {
            return None;
        }
        let mut fds = Vec::new();
        if let Some(Streams::Pipes(streams)) = &init.streams {
            fds.extend(streams.iter().map(AsFd::as_fd));
        }
        let Granted { own, grants } = &init.granted;
        fds.extend([own].into_iter().chain(grants).map(|held| held.fd.as_fd()));
        self.up.send(&init.job, &fds).ok()?;
        Some(Other {
            child: self.child.wanted()?,
            up: self.up,
            status: self.status,
            said: None,
        })
    }
}

/// A child that nobody has asked for yet.
#[derive(Debug)]
struct Unasked(Option<Cloned>);

impl Unasked {
    fn wanted(mut self) -> Option<Cloned> {
        self.0.take()
    }
}

impl Drop for Unasked {
    fn drop(&mut self) {
        if let Some(child) = &self.0 {
            // One that has ended by itself is only to be waited for.
            let _ended = pidfd_send_signal(&child.pidfd, Signal::KILL);
            let _waited = keeper::wait(&child.pidfd);
        }
    }
}

/// Which file of the host is at a path: device and inode.
type FileId = Option<(u32, u32, u64)>;

/// Which files of the host the operations show, in their order.
fn files_of(ops: &[SetupOp]) -> Vec<FileId> {
    let shown = ops.iter().filter_map(|op| match op {
        SetupOp::Image { at, .. } | SetupOp::Device { at } => Some(at.as_str()),
        _ => None,
    });
    let which = |path| {
        let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO).ok()?;
        Some((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
    };
    shown.map(which).collect()
}

/// What a box is called that nobody has asked for yet.
const BEGUN: &CStr = c"bailey-begun";

/// The child: begins the box, waits for the rest. Does not return.
fn begin(ops: &[SetupOp], ids: (u32, u32), up: UnixStream, status: OwnedFd) -> ! {
    // Whatever the launcher holds, the order's descriptors too if it has come
    // already, is none of the child's.
    let closed = sys::close_all_but(&[up.as_fd(), status.as_fd()]);
    let _only_a_name = set_name(BEGUN);
    let up = Channel::new(up);
    let entered = closed
        .map_err(|error| StepError::from(error).at(CHECK, None))
        .and_then(|()| init::enter(ids, &up));
    if let Err(error) = entered {
        init::failed(up, error)
    }
    let mut builder = Builder::new(up);
    if let Err(error) = builder.run_all(ops) {
        init::failed(builder.up, error)
    }
    // The box's from here on; without them there is nothing to go on with.
    match init::hold_namespaces() {
        Ok(held) => builder.namespaces = held,
        Err(error) => init::failed(builder.up, error.at(CHECK, None)),
    }
    let network = network();
    // A launcher that is gone wants nothing.
    if builder.up.send(&FromInit::Begun, &[]).is_err() {
        sys::exit_now(1)
    }
    let Ok(Message { value: job, fds }) = builder.up.receive::<Job>() else {
        sys::exit_now(1)
    };
    let _only_a_name = set_name(launcher::OWN_NAME_C);
    match receive(&job, fds, network) {
        Ok((granted, streams)) => job.run(builder, ops.len(), granted, streams, status),
        Err(error) => init::failed(builder.up, error),
    }
}

/// A network that nobody is in, for a box that will want one of its own: the
/// kernel takes longer to make it than all the rest. Nobody can come back from
/// one, so another process goes there and lends it.
fn network() -> Option<OwnedFd> {
    let (here, there) = Channel::pair().ok()?;
    let Some(child) = sys::fork().ok()? else {
        drop(here);
        let lent = sys::unshare(libc::CLONE_NEWNET).and_then(|()| File::open("/proc/self/ns/net"));
        let told = lent.map(|made| Channel::new(there).send(&(), &[made.as_fd()]));
        sys::exit_now(u8::from(!matches!(told, Ok(Ok(())))))
    };
    drop(there);
    let told = Channel::new(here).receive::<()>();
    while let Err(Errno::INTR) = waitpid(Some(child), WaitOptions::empty()) {}
    told.ok()?.fds.pop_front()
}

/// What came with the rest, and the network that belongs to it.
fn receive(
    job: &Job,
    mut fds: VecDeque<OwnedFd>,
    network: Option<OwnedFd>,
) -> Result<(Granted, Option<Streams>), SetupError> {
    let missing = || StepError::Refused("a descriptor is missing").at(CHECK, None);
    let streams = launcher::streams(job.spec.stdio, &mut fds).ok_or_else(missing)?;
    let hold = |fd| Held::new(fd).map_err(|error| error.at("look at what was granted", None));
    let own = hold(fds.pop_front().ok_or_else(missing)?)?;
    let grants = fds.into_iter().map(hold).collect::<Result<_, _>>()?;
    if namespaces(&job.spec).network {
        let entered = match network {
            Some(made) => move_into_link_name_space(made.as_fd(), Some(KIND)).map_err(Into::into),
            None => sys::unshare(libc::CLONE_NEWNET),
        };
        entered.map_err(|error| StepError::from(error).at(MAKE_NAMESPACES, None))?;
    }
    Ok((Granted { own, grants }, streams))
}
