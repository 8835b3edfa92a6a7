//! Looks at the host, as far as the plan needs it.

use std::os::fd::{AsFd, OwnedFd};

use bailey_fence_plan::channel::BoxSpec;
use bailey_fence_plan::{EntryKind, GrantFacts, HostEntry, HostFacts, guarded_names, looked_at};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{access, fstat, openat2, readlinkat};
use rustix::io::Errno;

use crate::host::Held;
use crate::step::StepError;

/// Gathers what `plan` asks about.
///
/// # Errors
/// When something that exists cannot be looked at.
pub(crate) fn gather(spec: &BoxSpec, grants: &[Held]) -> Result<HostFacts, StepError> {
    let mut facts = HostFacts {
        ipv6: access("/proc/net/if_inet6", rustix::fs::Access::EXISTS).is_ok(),
        ..HostFacts::default()
    };
    for path in looked_at() {
        if let Some(kind) = look(CWD, path, ResolveFlags::NO_MAGICLINKS)? {
            facts.entries.push(HostEntry { path, kind });
        }
    }
    for (grant, held) in spec.grants.iter().zip(grants) {
        let kind = kind_of(&held.fd)?;
        let mut guarded = Vec::new();
        if !grant.read_only && kind == EntryKind::Dir {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            for (name, guard) in guarded_names(&grant.at) {
                match look(held.fd.as_fd(), name, within) {
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
        facts.grants.push(GrantFacts { kind, guarded });
    }
    Ok(facts)
}

/// What is at a path, `None` where nothing is.
fn look(
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
