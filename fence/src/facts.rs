//! Looks at the host, as far as the plan needs it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bailey_fence_plan::channel::BoxSpec;
use bailey_fence_plan::{BARE, IN_BARE, guarded_names, looked_at};
use bailey_fence_plan::{EntryKind, GrantFacts, HostEntry, HostFacts, HostNames};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::fs::{access, fstat, openat, openat2, readlinkat, statx};
use rustix::io::Errno;

use crate::gpu;
use crate::host::Held;
use crate::limits::UserCounts;
use crate::step::StepError;
use crate::sys;

/// Longest of the host's files about names that is copied, in bytes.
const MAX_NAMES: u64 = 4 << 20;

/// What does not change while a machine runs: looked at before the node has
/// said which box is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    ipv6: bool,
    memory: u64,
    pub(crate) landlock: Option<u32>,
    pub(crate) of_user: UserCounts,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let info = rustix::system::sysinfo();
        let unit = u64::from(info.mem_unit.max(1));
        Self {
            ipv6: access("/proc/net/if_inet6", rustix::fs::Access::EXISTS).is_ok(),
            memory: info.totalram.saturating_mul(unit),
            landlock: sys::landlock_abi(),
            of_user: UserCounts::look(),
        }
    }
}

/// Looks at what every box needs.
///
/// # Errors
/// When something that exists cannot be looked at.
pub(crate) fn look(machine: Machine) -> Result<HostFacts, StepError> {
    let mut facts = HostFacts {
        ipv6: machine.ipv6,
        memory: machine.memory,
        ..HostFacts::default()
    };
    for path in looked_at() {
        if let Some(kind) = host_kind(path)? {
            facts.entries.push(HostEntry { path, kind });
        }
    }
    Ok(facts)
}

/// Gathers what `plan` asks about.
///
/// # Errors
/// When something that exists cannot be looked at.
pub(crate) fn gather(
    machine: Machine,
    spec: &BoxSpec,
    grants: &[Held],
) -> Result<HostFacts, StepError> {
    let mut facts = look(machine)?;
    if spec.gpu {
        facts.gpu = gpu::nodes()?;
    }
    if spec.tier.shares_network() {
        facts.names = HostNames {
            resolvers: text_of("/etc/resolv.conf")?,
            hosts: text_of("/etc/hosts")?,
        };
    }
    for (grant, held) in spec.grants.iter().zip(grants) {
        let kind = kind_of(&held.fd)?;
        let mut guarded = Vec::new();
        let looked_in = !grant.read_only && kind == EntryKind::Dir;
        let bare = looked_in && is_bare(held.fd.as_fd())?;
        if looked_in {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            let mut names = guarded_names(&grant.at);
            let more = IN_BARE.iter().filter(|_| bare);
            for own in more {
                if !names.contains(own) {
                    names.push(*own);
                }
            }
            for (name, guard) in names {
                match look_below(held.fd.as_fd(), name, within) {
                    Ok(Some(kind)) => guarded.push((name, guard, kind)),
                    Ok(None) => {}
                    // A link on the way to it: the name is not in the grant.
                    Err(StepError::Kernel(Errno::LOOP)) => {
                        guarded.push((name, guard, EntryKind::Symlink(Vec::new())));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        facts.grants.push(GrantFacts {
            kind,
            guarded,
            bare,
        });
    }
    Ok(facts)
}

/// Whether a folder is a repository of git's without a working tree.
fn is_bare(folder: BorrowedFd<'_>) -> Result<bool, StepError> {
    let within = ResolveFlags::BENEATH;
    for (name, is_folder) in BARE {
        let found = match look_below(folder, name, within) {
            Ok(found) => found,
            Err(StepError::Kernel(Errno::LOOP)) => None,
            Err(error) => return Err(error),
        };
        // `HEAD` and the folders may be links, which git follows.
        let fits = match found {
            Some(EntryKind::Symlink(_)) => true,
            Some(EntryKind::Dir) => *is_folder,
            Some(EntryKind::File) => !is_folder,
            Some(EntryKind::Other) | None => false,
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A file of the host by its path, empty where there is none.
fn text_of(path: &str) -> Result<Vec<u8>, StepError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut text = Vec::new();
    file.take(MAX_NAMES + 1).read_to_end(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_NAMES {
        return Err(StepError::Refused(
            "/etc/hosts or /etc/resolv.conf is larger than is copied into a box",
        ));
    }
    Ok(text)
}

/// What is at a path of the host, `None` where nothing is.
fn host_kind(path: &'static str) -> Result<Option<EntryKind>, StepError> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
    let mode = match found {
        Ok(found) => found.stx_mode,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(match FileType::from_raw_mode(mode.into()) {
        FileType::Directory => EntryKind::Dir,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Symlink(readlinkat(CWD, path, Vec::new())?.into_bytes()),
        _ => EntryKind::Other,
    }))
}

/// What is below an open folder, `None` where nothing is.
fn look_below(
    at: std::os::fd::BorrowedFd<'_>,
    path: &str,
    resolve: ResolveFlags,
) -> Result<Option<EntryKind>, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(at, path, flags, Mode::empty(), resolve) {
        Ok(fd) => kind_of(&fd).map(Some),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn kind_of(fd: &OwnedFd) -> Result<EntryKind, StepError> {
    let mode = fstat(fd)?.st_mode;
    Ok(match FileType::from_raw_mode(mode) {
        FileType::Directory => EntryKind::Dir,
        FileType::RegularFile => EntryKind::File,
        FileType::Symlink => EntryKind::Symlink(readlinkat(fd, c"", Vec::new())?.into_bytes()),
        _ => EntryKind::Other,
    })
}
