//! A folder that is written from outside and read inside.

use rustix::mount::MountAttrFlags;

use super::{Builder, PLAIN, Point, open_folder};
use crate::init::FromInit;
use crate::mounts::{self, NO_PROGRAMS, READ_ONLY};
use crate::step::StepError;

/// Files in it, its own root included: the one that is read, the one that takes
/// its place, and old ones that the box holds open.
const INODES: &str = "16";

impl Builder {
    /// Makes it and lends it to the node. The box has only a read-only mount of it: the writable one is taken off its place
    /// again before anything runs, and lives on in the node's descriptor. Inside
    /// there is nothing to remount, and nothing beneath.
    pub(super) fn shown(&mut self, at: &[u8], size: &str) -> Result<(), StepError> {
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let options = [("mode", "0755"), ("size", size), ("nr_inodes", INODES)];
        let written = mounts::new_filesystem("tmpfs", &options, attributes)?;
        let folder = open_folder(&written)?;
        // Kernels before 6.15 copy only what is in its place somewhere.
        self.attach(&written, at, Point::Dir)?;
        let read = mounts::copy(&written, PLAIN | NO_PROGRAMS | READ_ONLY)?;
        mounts::detach(&written)?;
        self.attach(&read, at, Point::Dir)?;
        self.tell(&FromInit::Refusals, folder)
    }
}
