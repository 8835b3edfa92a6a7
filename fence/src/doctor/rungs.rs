//! What a box is made of, tried: each attempt in a child, which reports the
//! kernel's own answer.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bailey_channel::{Channel, Message};
use bailey_fence_plan::doctor::{Observed, Rung, Tried};
use landlock::{
    AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetStatus,
};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open};

use crate::mounts;
use crate::netlink::Routing;
use crate::step::StepError;
use crate::sys::{self, Cloned, MountChange, Propagation};

/// How long one child may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// All that a box has of its own.
const EVERY: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;
/// What a browser makes for each of its processes.
const NESTED: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNET;
/// The loopback device is the first of every network namespace.
const LOOPBACK: u32 = 1;

/// What a child reported.
#[derive(Debug)]
struct Heard {
    /// Whether it could be made.
    made: Tried,
    said: Vec<(Rung, Tried)>,
}

impl Heard {
    fn of(&self, rung: Rung) -> Tried {
        let said = self.said.iter().find(|(of, _)| *of == rung);
        said.map_or(Tried::NotTried, |(_, tried)| *tried)
    }
}

/// Tries every rung.
pub(super) fn observe(seen: &mut Observed) {
    seen.landlock = sys::landlock_abi().unwrap_or_default();
    let heard = child(0, |told| told.say(Rung::Seccomp, filter()));
    seen.seccomp = heard.of(Rung::Seccomp);
    if seen.landlock > 0 {
        let heard = child(0, |told| told.say(Rung::Landlock, restrict()));
        seen.restrict = heard.of(Rung::Landlock);
    }
    seen.ping = tried(ping_socket());
    // Inside they are nobody's until they are mapped.
    let ids = Ids::own();
    let heard = child(libc::CLONE_NEWUSER, |told| {
        told.say(Rung::UserMap, map(ids))
    });
    seen.user_namespace = heard.made;
    seen.user_map = heard.of(Rung::UserMap);
    if !seen.user_map.worked() {
        return;
    }
    let heard = child(EVERY, |told| in_a_box(told, ids));
    seen.namespaces = heard.made;
    for (rung, place) in [
        (Rung::Propagation, &mut seen.propagation),
        (Rung::MountApi, &mut seen.mount_api),
        (Rung::Tmpfs, &mut seen.tmpfs),
        (Rung::Overlay, &mut seen.overlay),
        (Rung::Proc, &mut seen.proc),
        (Rung::Loopback, &mut seen.loopback),
        (Rung::Tun, &mut seen.tun),
        (Rung::Browser, &mut seen.nested),
    ] {
        *place = heard.of(rung);
    }
}

/// As the gate makes them: in the host's own network.
fn ping_socket() -> Result<(), StepError> {
    let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
    socket_with(family, kind, SocketFlags::CLOEXEC, Some(ipproto::ICMP))?;
    Ok(())
}

/// From a child to the doctor.
#[derive(Debug)]
struct Told(Channel);

impl Told {
    fn say(&mut self, rung: Rung, came: Result<(), StepError>) {
        // Where nobody listens any more, the doctor is gone.
        let _ = self.0.send(&(rung, tried(came)), &[]);
    }
}

fn tried(came: Result<(), StepError>) -> Tried {
    match came {
        Ok(()) => Tried::Worked,
        Err(StepError::Kernel(errno) | StepError::Because { errno, .. }) => {
            Tried::Refused(errno.raw_os_error())
        }
        Err(StepError::Refused(_)) => Tried::Refused(Errno::IO.raw_os_error()),
    }
}

/// Does something in a child in namespaces of these kinds, and hears it out.
fn child(namespaces: libc::c_int, job: impl FnOnce(&mut Told)) -> Heard {
    let mut heard = Heard {
        made: Tried::NotTried,
        said: Vec::new(),
    };
    let Ok((own, theirs)) = UnixStream::pair() else {
        return heard;
    };
    // Without namespaces by the older call: the newer may be refused.
    let made = match namespaces {
        0 => fork(),
        kinds => sys::clone_into(kinds),
    };
    let child = match made {
        Ok(Some(child)) => child,
        Ok(None) => {
            drop(own);
            // It ends with the doctor, whatever it is at.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            job(&mut Told(Channel::new(theirs)));
            sys::exit_now(0)
        }
        Err(error) => {
            heard.made = tried(Err(error.into()));
            return heard;
        }
    };
    drop(theirs);
    heard.made = Tried::Worked;
    let bounded = own.set_read_timeout(Some(PATIENCE)).is_ok();
    let mut from = Channel::new(own);
    if bounded {
        while let Ok(Message { value, .. }) = from.receive::<(Rung, Tried)>() {
            heard.said.push(value);
        }
    }
    let _ = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL);
    let _ = rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
    heard
}

fn fork() -> std::io::Result<Option<Cloned>> {
    let Some(pid) = sys::fork()? else {
        return Ok(None);
    };
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let pid = pid.as_raw_nonzero().get();
    Ok(Some(Cloned { pid, pidfd }))
}

/// What is tried in namespaces as a box has them.
fn in_a_box(told: &mut Told, ids: Ids) {
    if let Err(error) = map(ids) {
        return told.say(Rung::UserMap, Err(error));
    }
    // First: whoever has another root than the topmost makes no user namespace.
    told.say(Rung::Browser, nested());
    told.say(Rung::Propagation, private_mounts());
    told.say(Rung::MountApi, copy_a_mount());
    match scratch() {
        Ok(scratch) => {
            told.say(Rung::Tmpfs, Ok(()));
            told.say(Rung::Overlay, overlay(&scratch));
        }
        Err(error) => told.say(Rung::Tmpfs, Err(error)),
    }
    told.say(Rung::Proc, file_system("proc").map(drop));
    let up = Routing::open().and_then(|routing| routing.up(LOOPBACK));
    told.say(Rung::Loopback, up.map_err(StepError::from));
    let tun = crate::sys::tun("tun0");
    told.say(Rung::Tun, tun.map(drop).map_err(StepError::from));
}

/// A user and a group.
#[derive(Debug, Clone, Copy)]
struct Ids(u32, u32);

impl Ids {
    fn own() -> Self {
        let user = rustix::process::geteuid().as_raw();
        Self(user, rustix::process::getegid().as_raw())
    }
}

/// Maps them to themselves in the namespace that this process is in.
fn map(Ids(uid, gid): Ids) -> Result<(), StepError> {
    for (path, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1\n")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1\n")),
    ] {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())?;
        rustix::io::write(file, text.as_bytes())?;
    }
    Ok(())
}

fn private_mounts() -> Result<(), StepError> {
    let change = MountChange {
        set: 0,
        propagation: Some(Propagation::Private),
        recursive: true,
    };
    Ok(sys::mount_setattr(root()?.as_fd(), change)?)
}

fn root() -> Result<OwnedFd, StepError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat(CWD, c"/", flags, Mode::empty())?)
}

fn copy_a_mount() -> Result<(), StepError> {
    mounts::copy(&root()?, mounts::READ_ONLY | mounts::NO_SET_ID).map(drop)
}

fn file_system(kind: &str) -> Result<OwnedFd, StepError> {
    mounts::new_filesystem(kind, &[], MountAttrFlags::MOUNT_ATTR_NOSUID)
}

/// On top of the root, where no path leads: as a box's own root.
fn scratch() -> Result<OwnedFd, StepError> {
    let made = file_system("tmpfs")?;
    mounts::attach(&made, &root()?)?;
    Ok(made)
}

fn overlay(scratch: &OwnedFd) -> Result<(), StepError> {
    let layer = |name: &std::ffi::CStr| {
        mkdirat(scratch, name, Mode::RWXU)?;
        openat(scratch, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    mounts::read_only_view(&layer(c"lower")?, &layer(c"empty")?).map(drop)
}

/// As Chromium makes its sandbox: user, processes and network apart, then an
/// empty root. What a box's filter leaves to it is the filter's to say.
fn nested() -> Result<(), StepError> {
    let ids = Ids::own();
    let heard = child(NESTED, |told| {
        let came = map(ids).and_then(|()| Ok(rustix::process::chroot(c"/proc/self")?));
        told.say(Rung::Browser, came);
    });
    let errno = match (heard.made, heard.of(Rung::Browser)) {
        (Tried::Worked, Tried::Worked) => return Ok(()),
        (Tried::Refused(errno), _) | (_, Tried::Refused(errno)) => errno,
        _ => Errno::IO.raw_os_error(),
    };
    Err(Errno::from_raw_os_error(errno).into())
}

/// A domain that keeps the child from making a device.
fn restrict() -> Result<(), StepError> {
    rustix::thread::set_no_new_privs(true)?;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::MakeBlock)
        .and_then(Ruleset::create);
    let held = rules.and_then(RulesetCreated::restrict_self);
    match held {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => Ok(()),
        Ok(_) => Err(StepError::Refused("it is not enforced")),
        Err(error) => Err(StepError::from(cause(&error))),
    }
}

/// The kernel's word behind an error of the library's.
fn cause(error: &(dyn std::error::Error + 'static)) -> std::io::Error {
    let mut next = Some(error);
    while let Some(one) = next {
        if let Some(io) = one.downcast_ref::<std::io::Error>()
            && let Some(number) = io.raw_os_error()
        {
            return std::io::Error::from_raw_os_error(number);
        }
        next = one.source();
    }
    std::io::ErrorKind::Other.into()
}

/// A filter that permits everything.
fn filter() -> Result<(), StepError> {
    /// `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;
    rustix::thread::set_no_new_privs(true)?;
    let mut program = [libc::sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    Ok(sys::load_filter(&mut program)?)
}
