//! A file or folder of the host that came as a descriptor, held until it is
//! mounted.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::fs::{openat2, readlinkat, statx};

use crate::step::StepError;

/// A descriptor's file: which one it is, and where it was.
///
/// The kernel binds no mount of another mount namespace, so the descriptor
/// itself cannot be bound in the box's. It is opened again by the path that the
/// kernel gives for it, and must then be the very same file.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) fd: OwnedFd,
    path: Vec<u8>,
    identity: Identity,
}

#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Held {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, StepError> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = readlinkat(CWD, link, Vec::new())?.into_bytes();
        let identity = identity(&fd)?;
        Ok(Self { fd, path, identity })
    }

    /// Where it is on the host.
    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// Opens the same file in the mount namespace of the caller.
    pub(crate) fn reopen(&self) -> Result<OwnedFd, StepError> {
        let gone = "it is no longer where it was when it was granted";
        let again = openat2(
            CWD,
            self.path.as_slice(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
        .map_err(StepError::because(gone))?;
        if identity(&again)? != self.identity {
            return Err(StepError::Refused(
                "another file took its place since it was granted",
            ));
        }
        Ok(again)
    }
}

fn identity(fd: &OwnedFd) -> Result<Identity, StepError> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok(Identity {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
    })
}
