//! A box without namespaces: Landlock for files, signals and abstract sockets,
//! the system call filter, and one more for what Landlock does not see. It holds
//! less than any tier promises, so it is made with leave only.
//!
//! Two processes serve it. The guard is outside: no signal of the box's reaches
//! it, and it ends whatever is left when its launcher or the other one is gone.
//! The other one is the box's first, confined as all the rest.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use bailey_channel::Channel;
use bailey_fence_plan::SetupOp;
use bailey_fence_plan::channel::{BoxSpec, SetupError};
use bailey_fence_plan::fallback::BY_LANDLOCK;
use bailey_model::Tier;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, set_child_subreaper, set_parent_process_death_signal,
};

use super::{Ends, Other, terminal, tree};
use crate::confine::Confinement;
use crate::init::{self, Built, FromInit, Init, Job, Ready};
use crate::landlock::Scopes;
use crate::step::StepError;
use crate::sys;

/// The rights that this program knows and its kernel must have.
const KNOWN: ABI = ABI::V5;
/// What a program reads of the host where nothing is mounted for it: names of
/// users, machines and services. Nobody's secret.
const NAMES: &[&str] = &["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"];
const NETWORK_NAMES: &[&str] = &["/etc/hosts", "/etc/resolv.conf"];

/// Starts the guard, which starts the box.
pub(super) fn start(init: Init, ends: Ends) -> (Init, Result<Other, SetupError>) {
    let spec = match here(&init) {
        Ok(spec) => spec,
        Err(error) => return (init, Err(error)),
    };
    let launcher = rustix::process::getpid();
    let say = |error: StepError| {
        let up = ends.inside.try_clone();
        let failed = FromInit::Failed(error.at(BY_LANDLOCK, None));
        // A launcher that is not told sees it end.
        let _ = up.map(|up| Channel::new(up).send(&failed, &[]));
    };
    let started = match super::fork(init.cgroup.as_ref(), say) {
        Ok(Some(child)) => Ok(Other::new(child, None, ends)),
        Ok(None) => guard(launcher, init, spec, ends),
        Err(error) => Err(error.at(BY_LANDLOCK, None)),
    };
    (init, started)
}

/// The specification with paths of the host, or why it has none.
fn here(init: &Init) -> Result<BoxSpec, SetupError> {
    let fault = |error: StepError, path: &[u8]| error.at("show without a mount", Some(path));
    for (grant, held) in init.job.spec.grants.iter().zip(&init.granted.grants) {
        if held.path().as_os_str().as_bytes() != grant.at {
            return Err(fault(StepError::Refused("it lies elsewhere"), &grant.at));
        }
    }
    let pins = init.job.ops.iter().filter_map(|op| match op {
        SetupOp::Pin { at, .. } => Some(at),
        _ => None,
    });
    // Covers, and read-only grants: what is permitted around them is in them too.
    if let Some(at) = pins.chain(&init.job.watched).next() {
        let why = "it must stay read-only in a folder that may be written";
        return Err(fault(StepError::Refused(why), at));
    }
    let own = init.granted.own.path().as_os_str().as_bytes();
    let moved = |path: &[u8]| match path.strip_prefix(init.job.spec.home.as_slice()) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => [own, rest].concat(),
        _ => path.to_vec(),
    };
    let mut spec = init.job.spec.clone();
    spec.cwd = moved(&spec.cwd);
    for (name, value) in &mut spec.env {
        if name == b"HOME" {
            *value = moved(value);
        }
    }
    spec.env.retain(|(name, _)| name != b"TMPDIR");
    spec.env.push((b"TMPDIR".to_vec(), [own, b"/tmp"].concat()));
    Ok(spec)
}

/// Outside the box, between the launcher and its first process. Does not return.
fn guard(launcher: Pid, init: Init, spec: BoxSpec, ends: Ends) -> ! {
    let (inside, status) = ends.inside();
    let ready = || -> Result<Option<Pid>, StepError> {
        set_child_subreaper(Some(rustix::process::getpid()))?;
        sys::block_signals()?;
        set_parent_process_death_signal(Some(Signal::TERM))?;
        Ok(sys::fork()?)
    };
    let mut up = Channel::new(inside);
    match ready() {
        Ok(Some(first)) => watch(launcher, first),
        Ok(None) => first(init, spec, up, status),
        Err(error) => {
            let _ = up.send(&FromInit::Failed(error.at(BY_LANDLOCK, None)), &[]);
            sys::exit_now(1)
        }
    }
}

/// Passes signals on, and ends everything when either side is gone.
fn watch(launcher: Pid, first: Pid) -> ! {
    let _ = sys::close_range(0, u32::MAX);
    // The launcher may have ended before its end was a signal.
    let mut over = rustix::process::getppid() != Some(launcher);
    while !over {
        let Ok(arrived) = sys::wait_signal() else {
            continue;
        };
        if arrived.signal == libc::SIGCHLD {
            while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
                over |= pid == first;
            }
        } else if rustix::process::getppid() != Some(launcher) {
            over = true;
        } else if let Some(signal) = Signal::from_named_raw(arrived.signal) {
            let _ = rustix::process::kill_process(first, signal);
        }
    }
    // Until nothing is left: it is what this process is for.
    while tree::end_all().is_err() {}
    sys::exit_now(0)
}

/// The first process of the box. Does not return.
fn first(init: Init, spec: BoxSpec, mut up: Channel, status: OwnedFd) -> ! {
    let built = enter(&init, &spec, &mut up);
    let Init {
        job,
        streams,
        granted,
        laid,
        cgroup,
    } = init;
    drop((granted, cgroup, laid));
    let Job {
        watched,
        bounds,
        confinement,
        ..
    } = job;
    let ready = Ready {
        watched,
        bounds,
        confinement: Confinement {
            // Without namespaces there is no tier without a filter.
            tier: confinement.tier.max(Tier::L15),
            // They are asked for already, with the files.
            scopes: Scopes::Nothing,
            alone: true,
            ..confinement
        },
        streams,
        up,
        status,
        tied: true,
        spec,
    };
    match built {
        Ok(built) => ready.run(built),
        Err(error) => ready.give_up(error),
    }
}

fn enter(init: &Init, spec: &BoxSpec, up: &mut Channel) -> Result<Built, SetupError> {
    init::leave_streams().map_err(|error| error.at("leave the node's streams", None))?;
    init::tie_to_launcher(up).map_err(|error| error.at("tie the box to its launcher", None))?;
    let terminal = terminal::open(spec, up)?;
    let fault = |reason: String| SetupError {
        step: BY_LANDLOCK.into(),
        path: None,
        reason,
        errno: 0,
    };
    restrict(init).map_err(fault)?;
    crate::seccomp::load_no_namespaces()
        .map_err(|error| StepError::from(error).at(BY_LANDLOCK, None))?;
    rustix::process::chdir(spec.cwd.as_slice())
        .map_err(|errno| StepError::from(errno).at("go to the working folder", Some(&spec.cwd)))?;
    Ok(Built {
        terminal,
        processes: None,
    })
}

/// Confines this process by Landlock to what is planned.
fn restrict(init: &Init) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("Landlock: {error}");
    rustix::thread::set_no_new_privs(true).map_err(|error| said(&error))?;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket | Scope::Signal))
        .map_err(|error| said(&error))?;
    let network = init.job.spec.tier.shares_network();
    if !network {
        rules = rules
            .handle_access(AccessNet::from_all(ABI::V4))
            .map_err(|error| said(&error))?;
        crate::seccomp::load_no_network().map_err(|error| said(&error))?;
    }
    let mut rules = rules.create().map_err(|error| said(&error))?;
    let read = AccessFs::from_read(KNOWN);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    // No device is made, and no rights of one used.
    let write = AccessFs::from_all(KNOWN)
        & !(AccessFs::IoctlDev | AccessFs::MakeChar | AccessFs::MakeBlock);
    let more: &[&str] = if network { NETWORK_NAMES } else { &[] };
    for path in NAMES.iter().chain(more).chain(&["/proc"]) {
        rules = permit(rules, open(path.as_bytes()), read)?;
    }
    make_scratch(init).map_err(|error| said(&error))?;
    for op in &init.job.ops {
        let reopened = |held: &crate::host::Held| held.reopen().map_err(|error| said(&error));
        let grant = |index: &usize| match init.granted.grants.get(*index) {
            Some(held) => reopened(held),
            None => Err(said(&"there is no such grant")),
        };
        rules = match op {
            SetupOp::Image { at, .. } => permit(rules, open(at.as_bytes()), read)?,
            SetupOp::Device { at } => permit(rules, open(at.as_bytes()), device)?,
            SetupOp::OwnFolder { .. } => permit(rules, Ok(reopened(&init.granted.own)?), write)?,
            SetupOp::GrantWritable { index, .. } => permit(rules, Ok(grant(index)?), write)?,
            SetupOp::GrantFileReadOnly { index, .. }
            | SetupOp::GrantFolderReadOnly { index, .. } => permit(rules, Ok(grant(index)?), read)?,
            _ => rules,
        };
    }
    match rules.restrict_self() {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => Ok(()),
        Ok(status) => Err(said(&format!("{:?}", status.ruleset))),
        Err(error) => Err(said(&error)),
    }
}

fn open(path: &[u8]) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Permits these rights to what is open and to all below it. What is not there
/// needs none.
fn permit(
    rules: RulesetCreated,
    what: Result<OwnedFd, Errno>,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    let what = match what {
        Ok(what) => what,
        Err(Errno::NOENT | Errno::ACCESS) => return Ok(rules),
        Err(error) => return Err(format!("Landlock: {error}")),
    };
    let mode = fstat(&what)
        .map_err(|error| format!("Landlock: {error}"))?
        .st_mode;
    let rights = match FileType::from_raw_mode(mode) {
        FileType::Directory => rights,
        _ => rights & AccessFs::from_file(KNOWN),
    };
    rules
        .add_rule(PathBeneath::new(what, rights))
        .map_err(|error| format!("Landlock: {error}"))
}

/// A place for temporary files in the own folder: `/tmp` is everybody's.
fn make_scratch(init: &Init) -> Result<(), StepError> {
    match mkdirat(init.granted.own.reopen()?, c"tmp", Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
