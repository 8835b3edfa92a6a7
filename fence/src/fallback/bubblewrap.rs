//! A box whose namespaces and mounts bubblewrap makes, where the system lets
//! only that make them. It executes this program again as pid 1 of the box,
//! which then needs no capability: the kernel may have taken all of them.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::channel::{BoxSpec, SetupError, Stdio};
use bailey_fence_plan::fallback::{BY_BUBBLEWRAP, LAUNCHER, Places, Word, arguments};
use bailey_fence_plan::{SetupOp, namespaces};
use rustix::fs::{
    AtFlags, CWD, MemfdFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxFlags,
};
use rustix::fs::{fstatvfs, memfd_create, openat, openat2, statx};
use rustix::io::{Errno, FdFlags};
use rustix::process::{DumpableBehavior, PidfdFlags, Signal, pidfd_open};
use serde::{Deserialize, Serialize};

use super::{Ends, Other, terminal};
use crate::command::Streams;
use crate::confine::Confinement;
use crate::init::{self, Built, FromInit, Init, Ready};
use crate::landlock::Scopes;
use crate::launcher::LaunchError;
use crate::limits::{Bounds, UserCounts};
use crate::step::StepError;
use crate::sys;

/// The distribution's own: the only file that a profile of AppArmor is for.
pub(crate) const PROGRAM: &str = "/usr/bin/bwrap";
/// The word on this program's command line in such a box.
pub const INSIDE: &str = "inside";

/// What pid 1 of such a box is told. Descriptors: the status pipe, then stdin,
/// stdout and stderr (only with [`Stdio::Pipes`]).
#[derive(Debug, Serialize, Deserialize)]
struct Inside {
    spec: BoxSpec,
    /// Landlock's ABI outside.
    landlock: Option<u32>,
    watched: Vec<Vec<u8>>,
    of_user: UserCounts,
    /// What must be seen where.
    seen: Vec<Seen>,
}

/// A file of the host that was granted, and where it must be the one that is
/// seen: bubblewrap finds it by its path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    at: Vec<u8>,
    device: (u32, u32),
    inode: u64,
    read_only: bool,
}

/// Starts bubblewrap, with pid 1 of the box behind it.
pub(super) fn start(
    init: &Init,
    landlock: Option<u32>,
    lend: bool,
    ends: Ends,
) -> Result<Other, SetupError> {
    let fault = |error: StepError| error.at(BY_BUBBLEWRAP, None);
    let seen = seen(init)?;
    let (list, contents) = words(init, lend)?;
    let (said, say) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| fault(errno.into()))?;
    // The launcher reads it, unless it is gone.
    let told = |error: StepError| {
        let _ = rustix::io::write(&say, error.to_string().as_bytes());
    };
    let child = match super::fork(init.cgroup.as_ref(), told) {
        Ok(Some(child)) => child,
        Ok(None) => {
            let Err(error) = become_bubblewrap(&list, &contents, &ends.inside, &say);
            told(error);
            sys::exit_now(1)
        }
        Err(error) => return Err(fault(error)),
    };
    let inside = Inside {
        spec: init.job.spec.clone(),
        landlock,
        watched: init.job.watched.clone(),
        of_user: init.job.of_user,
        seen,
    };
    let mut given = vec![ends.status_inside.as_fd()];
    if let Some(Streams::Pipes(streams)) = &init.streams {
        given.extend(streams.iter().map(OwnedFd::as_fd));
    }
    let up = ends.up.try_clone().map_err(|error| fault(error.into()))?;
    if Channel::new(up).send(&inside, &given).is_err() {
        // It may have ended already: what it said tells why.
        let _ = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL);
    }
    Ok(Other::new(child, Some(said), ends))
}

/// Every argument in a file, and the files whose numbers stand in it.
fn words(init: &Init, lend: bool) -> Result<(OwnedFd, Vec<OwnedFd>), SetupError> {
    let fault = |error: StepError| error.at(BY_BUBBLEWRAP, None);
    let own = init.granted.own.path().as_os_str().as_bytes();
    let grants: Vec<&[u8]> = init
        .granted
        .grants
        .iter()
        .map(|held| held.path().as_os_str().as_bytes())
        .collect();
    let launcher = std::fs::read_link("/proc/self/exe").map_err(|error| fault(error.into()))?;
    let places = Places {
        own,
        grants: &grants,
        launcher: launcher.as_os_str().as_bytes(),
        network: !namespaces(&init.job.spec).network,
        lend,
    };
    let words = arguments(&init.job.ops, &places).map_err(|step| {
        StepError::Refused("bubblewrap cannot do this").at(BY_BUBBLEWRAP, Some(step.as_bytes()))
    })?;
    let mut contents = Vec::new();
    let mut list = Vec::new();
    for word in words {
        match word {
            Word::Text(text) => list.extend(text),
            Word::Contents(text) => {
                let file = file(&text).map_err(fault)?;
                list.extend(file.as_raw_fd().to_string().bytes());
                contents.push(file);
            }
        }
        list.push(0);
    }
    Ok((file(&list).map_err(fault)?, contents))
}

/// A file that is nowhere, read from its beginning.
fn file(contents: &[u8]) -> Result<OwnedFd, StepError> {
    let made = memfd_create(c"words", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(made);
    file.write_all(contents)?;
    let made = OwnedFd::from(file);
    rustix::fs::seek(&made, rustix::fs::SeekFrom::Start(0))?;
    Ok(made)
}

/// Executes it, with the channel as its descriptor 0. What grants are named
/// stands in a file: its command line is everybody's to read.
fn become_bubblewrap(
    list: &OwnedFd,
    contents: &[OwnedFd],
    inside: &UnixStream,
    say: &OwnedFd,
) -> Result<std::convert::Infallible, StepError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if sys::hung_up(inside) {
        return Err(StepError::Refused("the launcher is gone"));
    }
    rustix::stdio::dup2_stdin(inside)?;
    rustix::stdio::dup2_stdout(say)?;
    rustix::stdio::dup2_stderr(say)?;
    for kept in contents.iter().chain([list]) {
        rustix::io::fcntl_setfd(kept, FdFlags::empty())?;
    }
    let number = list.as_raw_fd().to_string();
    let words = [PROGRAM, "--args", &number, "--", LAUNCHER, INSIDE];
    let words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(*word).map_err(|_| StepError::Kernel(Errno::INVAL)))
        .collect::<Result<_, _>>()?;
    let none: [CString; 0] = [];
    let program = words.first().ok_or(StepError::Kernel(Errno::INVAL))?;
    match nix::unistd::execve(program, &words, &none) {
        Err(errno) => Err(std::io::Error::from(errno).into()),
        Ok(never) => match never {},
    }
}

/// Which files must be where. Mount points within a granted folder must be
/// there already: bubblewrap would make them.
fn seen(init: &Init) -> Result<Vec<Seen>, SetupError> {
    let fault = |error: StepError, at: &[u8]| error.at("bind the granted", Some(at));
    let mut all: Vec<Seen> = Vec::new();
    for op in &init.job.ops {
        let grant = |index: &usize| {
            let held = init.granted.grants.get(*index);
            held.ok_or(StepError::Refused("there is no such grant"))
                .and_then(crate::host::Held::reopen)
        };
        let (at, found, read_only) = match op {
            SetupOp::OwnFolder { at } => (at, init.granted.own.reopen(), false),
            SetupOp::GrantWritable { index, at } => (at, grant(index), false),
            SetupOp::GrantFileReadOnly { index, at }
            | SetupOp::GrantFolderReadOnly { index, at } => (at, grant(index), true),
            SetupOp::Pin { index, below, at } => (
                at,
                grant(index).and_then(|held| beneath(&held, below)),
                false,
            ),
            SetupOp::Cover { index, below, at } => (
                at,
                grant(index).and_then(|held| beneath(&held, below)),
                true,
            ),
            _ => continue,
        };
        let found = found.map_err(|error| fault(error, at))?;
        let (device, inode) = identity(found.as_fd()).map_err(|error| fault(error, at))?;
        check_point(&all, init, at).map_err(|error| fault(error, at))?;
        all.push(Seen {
            at: at.clone(),
            device,
            inode,
            read_only,
        });
    }
    Ok(all)
}

fn beneath(folder: &OwnedFd, below: &str) -> Result<OwnedFd, StepError> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(folder, below, flags, Mode::empty(), within)?)
}

/// Refuses a place in what is mounted already that is not there.
fn check_point(mounted: &[Seen], init: &Init, at: &[u8]) -> Result<(), StepError> {
    for outer in mounted.iter().map(|seen| &seen.at) {
        let Some(rest) = at.strip_prefix(outer.as_slice()) else {
            continue;
        };
        let Some(rest) = rest.strip_prefix(b"/") else {
            continue;
        };
        let grant = init
            .job
            .spec
            .grants
            .iter()
            .position(|grant| grant.at == *outer);
        let held = match grant {
            Some(index) => init.granted.grants.get(index),
            None if init.job.spec.home == *outer => Some(&init.granted.own),
            // Within a grant, which was looked at.
            None => continue,
        };
        let held = held.ok_or(StepError::Refused("there is no such grant"))?;
        let rest = std::ffi::OsStr::from_bytes(rest);
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat2(held.reopen()?, rest, flags, Mode::empty(), within);
        found.map_err(StepError::because(
            "it does not exist in the granted folder around it, and nothing is made there",
        ))?;
    }
    Ok(())
}

fn identity(fd: BorrowedFd<'_>) -> Result<((u32, u32), u64), StepError> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok(((stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// Pid 1 of a box that bubblewrap made. Does not return once it was told what
/// to do.
///
/// # Errors
/// When nobody tells it.
pub fn inside() -> Result<(), LaunchError> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    sys::close_range(3, u32::MAX)?;
    // Descriptors 0 to 2 are to be nothing, and none of what comes is one.
    let given = sys::take_channel();
    let channel = rustix::io::fcntl_dupfd_cloexec(&given, 3)?;
    std::mem::forget(given);
    let mut up = Channel::new(UnixStream::from(channel));
    init::leave_streams().map_err(|error| std::io::Error::other(error.to_string()))?;
    let Message { value, mut fds } = up.receive::<Inside>()?;
    let Inside {
        spec,
        landlock,
        watched,
        of_user,
        seen,
    } = value;
    let status = fds.pop_front().ok_or(LaunchError::OutOfOrder)?;
    let built = enter(&spec, &seen, &mut up);
    let bounds = Bounds {
        tier: spec.tier,
        class: spec.class,
        limits: spec.limits,
        cgroup: spec.cgroup,
        open_files: spec.open_files,
        broken: None,
    };
    if let Ok(Built {
        processes: Some(processes),
        ..
    }) = &built
    {
        // Without a capability it cannot, which the report then finds.
        let _ = bounds.set_counts(processes, of_user);
    }
    let ready = Ready {
        watched,
        bounds,
        confinement: Confinement {
            tier: spec.tier,
            class: spec.class,
            scopes: Scopes::of_box(spec.tier, landlock),
            alone: false,
            broken: None,
        },
        streams: streams(spec.stdio, fds),
        up,
        status,
        tied: false,
        spec,
    };
    match built {
        Ok(built) => ready.run(built),
        Err(error) => ready.give_up(error),
    }
}

fn streams(stdio: Stdio, mut fds: VecDeque<OwnedFd>) -> Option<Streams> {
    match stdio {
        Stdio::Pty { .. } => None,
        Stdio::Pipes => {
            let mut next = || fds.pop_front();
            Some(Streams::Pipes([next()?, next()?, next()?]))
        }
    }
}

fn enter(spec: &BoxSpec, seen: &[Seen], up: &mut Channel) -> Result<Built, SetupError> {
    init::tie_to_launcher(up).map_err(|error| error.at("tie the box to its launcher", None))?;
    let failed = |error: StepError| error.at("say which process it is", None);
    let own = rustix::process::getpid();
    let pidfd = pidfd_open(own, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    up.send(&FromInit::First, &[pidfd.as_fd()])
        .map_err(|_| failed(StepError::Refused("the launcher is gone")))?;
    for one in seen {
        check(one).map_err(|error| error.at("bind the granted", Some(&one.at)))?;
    }
    let terminal = terminal::open(spec, up)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let processes = openat(CWD, c"/proc", flags, Mode::empty())
        .map_err(|errno| StepError::from(errno).at("say that the box is made", None))?;
    rustix::process::chdir(spec.cwd.as_slice())
        .map_err(|errno| StepError::from(errno).at("go to the working folder", Some(&spec.cwd)))?;
    Ok(Built {
        terminal,
        processes: Some(processes),
    })
}

/// What is at a place is what was granted, and is held as it was asked.
fn check(one: &Seen) -> Result<(), StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(CWD, one.at.as_slice(), flags, Mode::empty())?;
    if identity(found.as_fd())? != (one.device, one.inode) {
        return Err(StepError::Refused(
            "another file took its place since it was granted",
        ));
    }
    let mount = fstatvfs(&found)?.f_flag;
    let wanted = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    let read_only = mount.contains(StatVfsMountFlags::RDONLY);
    if !mount.contains(wanted) || (one.read_only && !read_only) {
        return Err(StepError::Refused("it is not mounted as it was asked"));
    }
    Ok(())
}
