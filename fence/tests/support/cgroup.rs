//! Cgroups of version 2, as a service manager would delegate them.

use std::path::{Path, PathBuf};

use super::give;

/// A part of the version 2 hierarchy that belongs to whom boxes are made for,
/// with a leaf for the launcher and one for the box.
pub struct Delegated(pub PathBuf);

impl Delegated {
    pub fn make() -> Option<Self> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let root = roots.map(Path::new).into_iter().find(|root| {
            let kind = nix::sys::statfs::statfs(*root).map(|found| found.filesystem_type());
            kind == Ok(nix::sys::statfs::CGROUP2_SUPER_MAGIC)
        })?;
        let top = root.join(format!("bailey-test-{}", std::process::id()));
        std::fs::create_dir(&top).ok()?;
        for leaf in ["launcher", "box"] {
            std::fs::create_dir(top.join(leaf)).unwrap();
            give(&top.join(leaf));
            give(&top.join(leaf).join("cgroup.procs"));
        }
        give(&top.join("cgroup.procs"));
        Some(Self(top))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for folder in ["launcher", "box", ""] {
            let _ = std::fs::remove_dir(self.0.join(folder));
        }
    }
}
