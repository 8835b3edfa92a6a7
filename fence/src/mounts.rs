//! Mounts by the calls that work on descriptors: make one that is nowhere yet,
//! set its attributes, put it in its place. Nothing is ever visible half made.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::step::StepError;
use crate::sys::{MountChange, Propagation, mount_setattr};

pub(crate) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub(crate) const NO_SET_ID: u64 = libc::MOUNT_ATTR_NOSUID;
pub(crate) const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
pub(crate) const NO_PROGRAMS: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Copies the mount at an open file, and all below it, as a new one that is
/// nowhere yet and hears nothing of the host's changes.
pub(crate) fn copy(of: &OwnedFd, attributes: u64) -> Result<OwnedFd, StepError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(of, c"", flags)?;
    let change = MountChange {
        set: attributes,
        propagation: Some(Propagation::Private),
        recursive: true,
    };
    mount_setattr(tree.as_fd(), change)?;
    Ok(tree)
}

/// A new file system that is nowhere yet.
pub(crate) fn new_filesystem(
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, StepError> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// A folder of the host as an overlay of lower layers alone, the second one
/// empty: it can only be read, and its sockets and FIFOs are other ones than
/// the host's.
pub(crate) fn read_only_view(of: &OwnedFd, empty: &OwnedFd) -> Result<OwnedFd, StepError> {
    let layer = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let layers = format!("{}:{}", layer(of), layer(empty));
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    new_filesystem("overlay", &[("lowerdir", &layers)], attributes).map_err(|error| match error {
        // The kernel will not look beneath a mount that it did not let us make.
        StepError::Kernel(errno @ Errno::INVAL) => StepError::Because {
            errno,
            why: "it holds another mount (grant that by itself), or its file system cannot be \
                  under an overlay",
        },
        StepError::Kernel(errno) => StepError::Because {
            errno,
            why: "no overlay can be mounted here, and a plain bind would let sockets through",
        },
        other => other,
    })
}

/// Puts a mount that is nowhere yet on an open file or folder.
pub(crate) fn attach(tree: &OwnedFd, at: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", at, c"", flags)
}

/// Takes a mount off its place; it lives on in what is open on it.
pub(crate) fn detach(tree: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(tree)?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

/// Leaves the old root for the folder `root` is open on, and drops it.
pub(crate) fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    // Both at one place: the old root lands on top of the new one, from where
    // it is taken off (pivot_root(2), "pivot_root(\".\", \".\")").
    rustix::process::pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

/// Which mount an open file is on.
pub(crate) fn mount_id(fd: &OwnedFd) -> Result<u64, Errno> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(stat.stx_mnt_id)
}
