//! A box's specification to the list of operations that makes it.

use bailey_model::link;

use crate::channel::{BoxSpec, MAX_GRANTS, Stdio};
use crate::facts::{EntryKind, GrantFacts, HostFacts};
use crate::protect::{Guard, never_writable};
use crate::{EMPTY_FOLDER, SetupOp, image};

/// Packets that wait for the gate. A sender's window of small packets fits;
/// at the kernel's own 500 bursts are dropped.
const TUN_QUEUE: u32 = 4000;
/// `/tmp` and `/dev/shm`: as tmpfs(5) counts, part of the machine's memory.
const SCRATCH_SIZE: &str = "25%";
/// `/run` and `/dev` hold names, hardly any data.
const SMALL_SIZE: &str = "16m";
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
    let mut ops = network(spec, facts);
    ops.extend([SetupOp::PrivateMounts, SetupOp::Root]);
    ops.extend(facts.entries.iter().filter_map(image::show));
    ops.extend(image::own_files(spec));
    ops.extend(devices(spec));
    ops.push(SetupOp::Proc {
        at: b"/proc".to_vec(),
    });
    ops.push(tmpfs("/tmp", 0o1777, SCRATCH_SIZE));
    ops.push(tmpfs("/run", 0o755, SMALL_SIZE));
    ops.push(SetupOp::Symlink {
        at: b"/var/tmp".to_vec(),
        target: b"/tmp".to_vec(),
    });
    ops.push(SetupOp::Symlink {
        at: b"/var/run".to_vec(),
        target: b"/run".to_vec(),
    });
    ops.push(SetupOp::Dir {
        at: EMPTY_FOLDER.to_vec(),
    });
    ops.extend(own_and_granted(spec, facts)?);
    ops.push(SetupOp::Seal {
        at: b"/dev".to_vec(),
    });
    ops.push(SetupOp::Seal { at: b"/".to_vec() });
    ops.push(SetupOp::Enter);
    ops.push(SetupOp::WorkingFolder {
        at: spec.cwd.clone(),
    });
    Ok(ops)
}

fn check(spec: &BoxSpec, facts: &HostFacts) -> Result<(), PlanError> {
    if spec.uid == 0 {
        return Err(PlanError::Root);
    }
    let named = spec
        .command
        .first()
        .is_some_and(|program| !program.is_empty());
    if !named || spec.command.iter().any(|word| word.contains(&0)) {
        return Err(PlanError::Command);
    }
    let fit = |(name, value): &(Vec<u8>, Vec<u8>)| {
        !name.is_empty() && !name.contains(&b'=') && !name.contains(&0) && !value.contains(&0)
    };
    if !spec.env.iter().all(fit) {
        return Err(PlanError::Environment);
    }
    let label = spec.hostname.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    if label.is_empty() || label.len() > MAX_LABEL || !label.iter().all(plain) {
        return Err(PlanError::HostName(spec.hostname.clone()));
    }
    if spec.grants.len() > MAX_GRANTS {
        return Err(PlanError::TooManyGrants(spec.grants.len()));
    }
    if spec.grants.len() != facts.grants.len() {
        return Err(PlanError::OtherFacts);
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

fn network(spec: &BoxSpec, facts: &HostFacts) -> Vec<SetupOp> {
    vec![
        SetupOp::HostName(spec.hostname.clone()),
        SetupOp::Loopback,
        SetupOp::Tun {
            name: "tun0",
            mtu: link::MTU.into(),
            queue: TUN_QUEUE,
            v4: (link::BOX_V4, link::PREFIX_V4, link::GATE_V4),
            v6: facts
                .ipv6
                .then_some((link::BOX_V6, link::PREFIX_V6, link::GATE_V6)),
        },
    ]
}

fn devices(spec: &BoxSpec) -> Vec<SetupOp> {
    let mut ops = vec![tmpfs("/dev", 0o755, SMALL_SIZE)];
    ops.extend(DEVICES.iter().map(|at| SetupOp::Device { at }));
    ops.extend(DEVICE_LINKS.iter().map(|(at, target)| SetupOp::Symlink {
        at: at.as_bytes().to_vec(),
        target: target.as_bytes().to_vec(),
    }));
    ops.push(tmpfs("/dev/shm", 0o1777, SCRATCH_SIZE));
    ops.push(SetupOp::Terminals {
        at: b"/dev/pts".to_vec(),
    });
    if let Stdio::Pty { rows, cols } = spec.stdio {
        ops.push(SetupOp::OpenTerminal { rows, cols });
    }
    ops
}

fn tmpfs(at: &str, mode: u16, size: &'static str) -> SetupOp {
    SetupOp::Tmpfs {
        at: at.as_bytes().to_vec(),
        mode,
        size,
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
                below,
                at: place,
            },
            (_, _) => SetupOp::Cover {
                index,
                below,
                at: place,
            },
        });
    }
    // A repository always has its config; one without a folder for hooks could
    // be given one from inside.
    let has = |name: &str| fact.guarded.iter().any(|(below, ..)| *below == name);
    let inside = fact
        .guarded
        .iter()
        .any(|(name, _, kind)| *name == ".git" && *kind == EntryKind::Dir);
    let needed: &[&str] = if inside {
        &[".git/hooks", ".git/config"]
    } else if at.ends_with(b"/.git") && fact.kind == EntryKind::Dir {
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
