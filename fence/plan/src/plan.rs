//! A box's specification to the list of operations that makes it.

use bailey_model::{Limits, Tier, link};

use crate::channel::{BoxSpec, JoinSpec, Layer, MAX_GRANTS, Stdio};
use crate::facts::{EntryKind, GrantFacts, HostFacts};
use crate::protect::{Guard, never_writable};
use crate::{EMPTY_FOLDER, SetupOp, display, gpu, image, refusals};

/// The device that leads to the gate.
const TUN: &str = "tun0";
/// Packets that wait for the gate. A sender's window of small packets fits;
/// at the kernel's own 500 bursts are dropped.
const TUN_QUEUE: u32 = 4000;
/// `/tmp` and `/dev/shm`, each: this part of the machine's memory, or what the
/// box may use at all where that is less.
const SCRATCH_PART: u64 = 4;
/// `/run` and `/dev` hold names, hardly any data.
const SMALL_SIZE: &str = "16m";
/// Least that a box can be limited to: what pid 1 and the start of a command
/// take. Memory in bytes, processes, open files.
const LEAST: (u64, u32, u32) = (8 << 20, 2, 16);
/// Longest label of a host name (RFC 1035).
const MAX_LABEL: usize = 63;

const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];
const DEVICE_LINKS: &[(&str, &str)] = &[
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];
/// What a grant may not lie in or replace: the kernel's own file systems.
const RESERVED: &[&[u8]] = &[b"/proc", b"/sys", b"/dev", b"/run"];

/// Why there is no plan for a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is nothing to run, or it cannot be an argument of a program.
    #[error("the command is empty or holds a NUL byte")]
    Command,
    /// A variable cannot be in an environment.
    #[error("an environment variable has no name, or holds a NUL byte or '=' in its name")]
    Environment,
    /// Not one label of letters, digits and hyphens.
    #[error("the host name {0:?} is not one plain label")]
    HostName(String),
    /// A path is not absolute and plain.
    #[error("the path {} is not absolute and without '.', '..' and empty parts", .0.escape_ascii())]
    Path(Vec<u8>),
    /// A path that a grant cannot have.
    #[error("nothing can be granted at {}", .0.escape_ascii())]
    Reserved(Vec<u8>),
    /// Two grants at one path.
    #[error("{} is granted twice", .0.escape_ascii())]
    Twice(Vec<u8>),
    /// More grants than [`MAX_GRANTS`].
    #[error("{0} grants are more than a box can have")]
    TooManyGrants(usize),
    /// The node runs as root.
    #[error("a box is never made by root")]
    Root,
    /// A granted thing is neither a folder nor a regular file.
    #[error("{} is neither a folder nor a regular file", .0.escape_ascii())]
    NotGrantable(Vec<u8>),
    /// Others run or trust what is there; it can only be read.
    #[error("{} can be granted read-only at most", .0.escape_ascii())]
    NeverWritable(Vec<u8>),
    /// A name that must stay read-only is a symbolic link: it cannot be covered.
    #[error("{} is a symbolic link, which cannot be kept from being replaced", .0.escape_ascii())]
    GuardedLink(Vec<u8>),
    /// The repository has no such entry, so the box could make it.
    #[error("{} does not exist, so it cannot be covered: make it first", .0.escape_ascii())]
    NothingToCover(Vec<u8>),
    /// A display that is too large, or has no size.
    #[error("a display of {0}x{1} pixels: want 1 to {max} a side", max = display::MAX_SIDE)]
    Display(u16, u16),
    /// The graphics processor is granted and there is none.
    #[error(
        "the graphics processor is granted, and {} has no render node that this user may open \
         (a driver makes it; its group is usually `render`)",
        gpu::FOLDER
    )]
    NoGpu,
    /// A limit that nothing could start under.
    #[error("{0} is less than the start of a command takes (at least mem=8M, pids=2, files=16)")]
    TooLittle(&'static str),
    /// The host's facts are not those of this specification.
    #[error("the facts are of another box")]
    OtherFacts,
}

/// Decides every step that makes the box.
///
/// # Errors
/// When the specification cannot be a box; nothing has been done then.
pub fn plan(spec: &BoxSpec, facts: &HostFacts) -> Result<Vec<SetupOp>, PlanError> {
    check(spec, facts)?;
    let scratch = scratch_size(spec.limits.memory, facts);
    let mut ops = beginning(facts, &scratch, spec.broken);
    ops.push(SetupOp::PrivateMounts);
    ops.extend(network(spec, facts));
    ops.extend(image::own_files(spec, facts));
    if let Stdio::Pty { rows, cols } = spec.stdio {
        ops.push(SetupOp::OpenTerminal { rows, cols });
    }
    ops.extend(gpu::ops(spec, &facts.gpu));
    ops.extend(display::ops(spec));
    ops.extend(refusals::ops(spec));
    ops.extend(own_and_granted(spec, facts)?);
    // Without it /usr and the root say EACCES to who writes there, not EROFS:
    // the ordinary user has no more permission than outside.
    if spec.broken != Some(Layer::ReadOnly) {
        ops.push(SetupOp::Seal {
            at: b"/dev".to_vec(),
        });
        ops.push(SetupOp::Seal { at: b"/".to_vec() });
    }
    ops.push(SetupOp::Enter);
    ops.push(SetupOp::WorkingFolder {
        at: spec.cwd.clone(),
    });
    Ok(ops)
}

/// The operations that the plan of nearly every box begins with, whatever is
/// asked: what may be done before a box is asked for. A plan that does not begin
/// so is executed from its own beginning.
#[must_use]
pub fn ahead(facts: &HostFacts) -> Vec<SetupOp> {
    beginning(facts, &scratch_size(None, facts), None)
}

/// What a box sees of the host's programs, and its own empty places.
fn beginning(facts: &HostFacts, scratch: &str, broken: Option<Layer>) -> Vec<SetupOp> {
    let mut ops = vec![SetupOp::SlaveMounts, SetupOp::Root];
    let shown = |entry| image::show(entry, broken != Some(Layer::ReadOnly));
    ops.extend(facts.entries.iter().filter_map(shown));
    ops.extend(devices(scratch));
    let at = b"/proc".to_vec();
    ops.push(match broken {
        Some(Layer::Processes) => SetupOp::HostProc { at },
        _ => SetupOp::Proc { at },
    });
    ops.push(tmpfs("/tmp", 0o1777, scratch));
    ops.push(tmpfs("/run", 0o755, SMALL_SIZE));
    for (at, target) in [("/var/tmp", "/tmp"), ("/var/run", "/run")] {
        ops.push(SetupOp::Symlink {
            at: at.into(),
            target: target.into(),
        });
    }
    ops.push(SetupOp::Dir {
        at: EMPTY_FOLDER.to_vec(),
    });
    ops
}

fn check(spec: &BoxSpec, facts: &HostFacts) -> Result<(), PlanError> {
    if spec.uid == 0 {
        return Err(PlanError::Root);
    }
    check_program(&spec.command, &spec.env)?;
    let label = spec.hostname.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    if label.is_empty() || label.len() > MAX_LABEL || !label.iter().all(plain) {
        return Err(PlanError::HostName(spec.hostname.clone()));
    }
    check_limits(spec.limits)?;
    if spec.grants.len() > MAX_GRANTS {
        return Err(PlanError::TooManyGrants(spec.grants.len()));
    }
    if spec.grants.len() != facts.grants.len() {
        return Err(PlanError::OtherFacts);
    }
    if let Some((width, height)) = spec.display.filter(|size| !display::fits(*size)) {
        return Err(PlanError::Display(width, height));
    }
    if spec.gpu && facts.gpu.is_empty() {
        return Err(PlanError::NoGpu);
    }
    check_path(&spec.cwd)?;
    check_place(&spec.home)?;
    // A line of /etc/passwd has no way to quote.
    if spec.home.iter().any(|byte| matches!(byte, b':' | b'\n')) {
        return Err(PlanError::Path(spec.home.clone()));
    }
    spec.grants
        .iter()
        .try_for_each(|grant| check_place(&grant.at))
}

/// Checks a further command in a box, as far as it is not the box's own.
///
/// # Errors
/// When it cannot be one; nothing has been done then.
pub fn check_joiner(spec: &JoinSpec) -> Result<(), PlanError> {
    check_program(&spec.command, &spec.env)?;
    check_limits(spec.limits)?;
    check_path(&spec.cwd)
}

fn check_program(command: &[Vec<u8>], env: &[(Vec<u8>, Vec<u8>)]) -> Result<(), PlanError> {
    let named = command.first().is_some_and(|program| !program.is_empty());
    if !named || command.iter().any(|word| word.contains(&0)) {
        return Err(PlanError::Command);
    }
    let fit = |(name, value): &(Vec<u8>, Vec<u8>)| {
        !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0)
    };
    if !env.iter().all(fit) {
        return Err(PlanError::Environment);
    }
    Ok(())
}

fn check_limits(limits: Limits) -> Result<(), PlanError> {
    let Limits {
        memory,
        pids,
        files,
        ..
    } = limits;
    let short = [
        ("mem", memory.is_some_and(|memory| memory < LEAST.0)),
        ("pids", pids.is_some_and(|pids| pids < LEAST.1)),
        ("files", files.is_some_and(|files| files < LEAST.2)),
    ];
    match short.into_iter().find(|(_, short)| *short) {
        Some((name, _)) => Err(PlanError::TooLittle(name)),
        None => Ok(()),
    }
}

/// Absolute, and its text alone says where it is.
fn check_path(path: &[u8]) -> Result<(), PlanError> {
    let Some(rest) = path.strip_prefix(b"/") else {
        return Err(PlanError::Path(path.to_vec()));
    };
    let odd = |part: &[u8]| part.is_empty() || part == b"." || part == b".." || part.contains(&0);
    if !rest.is_empty() && rest.split(|byte| *byte == b'/').any(odd) {
        return Err(PlanError::Path(path.to_vec()));
    }
    Ok(())
}

fn check_place(path: &[u8]) -> Result<(), PlanError> {
    check_path(path)?;
    if path == b"/" || RESERVED.iter().any(|reserved| lies_in(path, reserved)) {
        return Err(PlanError::Reserved(path.to_vec()));
    }
    Ok(())
}

/// Whether `path` is `folder` or below it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Which namespaces a box has of its own. Those of users, mounts, host name,
/// System V objects and cgroups it always has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces {
    /// Of processes: only a box that is broken on purpose has none.
    pub processes: bool,
    /// Of the network.
    pub network: bool,
}

/// Decides which namespaces the box is made in.
#[must_use]
pub fn namespaces(spec: &BoxSpec) -> Namespaces {
    Namespaces {
        processes: spec.broken != Some(Layer::Processes),
        network: !spec.tier.shares_network() && spec.broken != Some(Layer::Network),
    }
}

fn network(spec: &BoxSpec, facts: &HostFacts) -> Vec<SetupOp> {
    let mut ops = vec![SetupOp::HostName(spec.hostname.clone())];
    if !namespaces(spec).network {
        return ops;
    }
    ops.push(SetupOp::Loopback);
    if spec.tier == Tier::Gated {
        ops.push(SetupOp::Tun {
            name: TUN.to_owned(),
            mtu: link::MTU.into(),
            queue: TUN_QUEUE,
            v4: (link::BOX_V4, link::PREFIX_V4, link::GATE_V4),
            v6: facts
                .ipv6
                .then_some((link::BOX_V6, link::PREFIX_V6, link::GATE_V6)),
        });
    }
    ops
}

fn scratch_size(limit: Option<u64>, facts: &HostFacts) -> String {
    let part = facts.memory / SCRATCH_PART;
    let size = limit.map_or(part, |limit| limit.min(part));
    // 0 would be no bound at all.
    size.max(1).to_string()
}

fn devices(scratch: &str) -> Vec<SetupOp> {
    let mut ops = vec![tmpfs("/dev", 0o755, SMALL_SIZE)];
    ops.extend(DEVICES.iter().map(|at| SetupOp::Device {
        at: (*at).to_owned(),
    }));
    ops.extend(DEVICE_LINKS.iter().map(|(at, target)| SetupOp::Symlink {
        at: at.as_bytes().to_vec(),
        target: target.as_bytes().to_vec(),
    }));
    ops.push(tmpfs("/dev/shm", 0o1777, scratch));
    ops.push(SetupOp::Terminals {
        at: b"/dev/pts".to_vec(),
    });
    ops
}

fn tmpfs(at: &str, mode: u16, size: &str) -> SetupOp {
    SetupOp::Tmpfs {
        at: at.as_bytes().to_vec(),
        mode,
        size: size.to_owned(),
    }
}

/// The own folder and the grants, outer before inner, so that an inner one is
/// seen. What guards a grant comes right after it, so that an inner grant that
/// names a covered path lies on top of the cover.
fn own_and_granted(spec: &BoxSpec, facts: &HostFacts) -> Result<Vec<SetupOp>, PlanError> {
    let mut places: Vec<(&[u8], Option<usize>)> = vec![(&spec.home, None)];
    places.extend(
        spec.grants
            .iter()
            .enumerate()
            .map(|(i, grant)| (grant.at.as_slice(), Some(i))),
    );
    // By parts, not bytes: "/a/b" comes after "/a" and before "/a-c".
    places.sort_by(|(one, _), (two, _)| one.split(|b| *b == b'/').cmp(two.split(|b| *b == b'/')));
    if let Some(pair) = places
        .windows(2)
        .find(|pair| matches!(pair, [one, two] if one.0 == two.0))
    {
        return Err(PlanError::Twice(
            pair.first().map(|(at, _)| at.to_vec()).unwrap_or_default(),
        ));
    }
    let mut ops = Vec::new();
    for (at, index) in places {
        let at = at.to_vec();
        let Some(index) = index else {
            ops.push(SetupOp::OwnFolder { at });
            continue;
        };
        let (Some(grant), Some(fact)) = (spec.grants.get(index), facts.grants.get(index)) else {
            return Err(PlanError::OtherFacts);
        };
        match (&fact.kind, grant.read_only) {
            (EntryKind::Dir, true) => ops.push(SetupOp::GrantFolderReadOnly { index, at }),
            (EntryKind::File, true) => ops.push(SetupOp::GrantFileReadOnly { index, at }),
            (_, false) if never_writable(&at) => return Err(PlanError::NeverWritable(at)),
            (EntryKind::Dir | EntryKind::File, false) => {
                ops.push(SetupOp::GrantWritable {
                    index,
                    at: at.clone(),
                });
                ops.extend(guards(index, &at, fact)?);
            }
            (EntryKind::Symlink(_) | EntryKind::Other, _) => {
                return Err(PlanError::NotGrantable(at));
            }
        }
    }
    Ok(ops)
}

fn guards(index: usize, at: &[u8], fact: &GrantFacts) -> Result<Vec<SetupOp>, PlanError> {
    let mut ops = Vec::new();
    let below_at = |below: &str| [at, b"/", below.as_bytes()].concat();
    for (below, guard, kind) in &fact.guarded {
        let (below, place) = (*below, below_at(below));
        ops.push(match (guard, kind) {
            (_, EntryKind::Symlink(_)) => return Err(PlanError::GuardedLink(place)),
            (Guard::Pin, EntryKind::Dir) => SetupOp::Pin {
                index,
                below: below.to_owned(),
                at: place,
            },
            (_, _) => SetupOp::Cover {
                index,
                below: below.to_owned(),
                at: place,
            },
        });
    }
    // Where git's own folder is granted by name: it always has its config, and
    // one without a folder for hooks could be given one from inside.
    let has = |name: &str| fact.guarded.iter().any(|(below, ..)| *below == name);
    let repository = at.ends_with(b"/.git") || fact.bare;
    let needed: &[&str] = if repository && fact.kind == EntryKind::Dir {
        &["hooks", "config"]
    } else {
        &[]
    };
    match needed.iter().find(|name| !has(name)) {
        Some(missing) => Err(PlanError::NothingToCover(below_at(missing))),
        None => Ok(ops),
    }
}

#[cfg(test)]
mod tests;
