//! Own folders of unnamed boxes, removed beside the loop.
//!
//! A folder is renamed into the trash at once and removed by a thread: a box
//! can leave a great many files, folders that nobody may read, and a chain of
//! folders deeper than any path. So a folder's folders are first moved up to
//! the trash itself; nothing is ever more than two levels deep, no link is
//! followed, and a handful of descriptors suffices. Nothing of the box runs any
//! more, and no other box sees the folder.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::clock;
use crate::log::log;
use crate::paths::{Paths, private_dir};

/// So many that cannot be removed end a round.
const MAX_STUCK: usize = 1000;
/// One thread removes at a time; the others wait for it.
static REMOVING: Mutex<()> = Mutex::new(());
/// Whether one waits: it will see all that is there when its turn comes.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Groups that are to be removed, with when that took too long.
struct Groups {
    left: Vec<(PathBuf, Instant)>,
    removing: bool,
}

static GROUPS: Mutex<Groups> = Mutex::new(Groups {
    left: Vec::new(),
    removing: false,
});
/// As many as there can be boxes that just ended, and more.
const MAX_GROUPS: usize = 1000;
/// How long one may take to be empty.
const GROUP_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks at them.
const GROUP_STEP: Duration = Duration::from_millis(5);
/// How long a node that leaves waits for them.
const LEAVE_LIMIT: Duration = Duration::from_millis(50);

/// Takes a folder out of sight now, and removes it soon.
pub(super) fn discard(paths: &Paths, folder: &Path) {
    let bin = paths.state.join("trash");
    let moved = private_dir(&bin)
        .map_err(io::Error::other)
        .and_then(|()| clock::random::<8>())
        .and_then(|name| {
            let name = name
                .iter()
                .fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
            fs::rename(folder, bin.join(name))
        });
    match moved {
        Ok(()) => empty(paths),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => log!("{}: {error}", folder.display()),
    }
}

/// Removes what lies in the trash, on a thread of its own; what cannot be
/// removed stays for the next start.
pub(super) fn empty(paths: &Paths) {
    if WAITING.swap(true, Ordering::SeqCst) {
        return;
    }
    let bin = paths.state.join("trash");
    let started = std::thread::Builder::new()
        .name("trash".to_owned())
        .spawn(move || {
            let _one = REMOVING.lock().unwrap_or_else(PoisonError::into_inner);
            WAITING.store(false, Ordering::SeqCst);
            if let Err(error) = remove_all(&bin) {
                log!("{}: {error}", bin.display());
            }
        });
    if let Err(error) = started {
        WAITING.store(false, Ordering::SeqCst);
        log!("trash: {error}");
    }
}

/// Removes a cgroup as soon as its last process is gone, on a thread that does so
/// for all of them.
pub(super) fn remove_group(folder: &Path) {
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    if groups.left.len() >= MAX_GROUPS {
        // It goes with the next start of the node.
        return log!("{}: too many groups that are not empty", folder.display());
    }
    groups
        .left
        .push((folder.to_owned(), Instant::now() + GROUP_LIMIT));
    if groups.removing {
        return;
    }
    let thread = std::thread::Builder::new().name("groups".to_owned());
    match thread.spawn(remove_groups) {
        Ok(_) => groups.removing = true,
        Err(error) => log!("groups: {error}"),
    }
}

/// Until none is left, or what is left took too long.
fn remove_groups() {
    loop {
        let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
        groups
            .left
            .retain(|(folder, until)| match fs::remove_dir(folder) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) if Instant::now() > *until => {
                    log!("{}: {error}", folder.display());
                    false
                }
                Err(_) => true,
            });
        if groups.left.is_empty() {
            groups.removing = false;
            return;
        }
        drop(groups);
        std::thread::sleep(GROUP_STEP);
    }
}

/// Waits a moment for groups that are being removed: for a node that leaves.
pub(super) fn wait_for_groups() {
    let until = Instant::now() + LEAVE_LIMIT;
    let removing = || {
        GROUPS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .removing
    };
    while removing() && Instant::now() < until {
        std::thread::sleep(GROUP_STEP);
    }
}

/// Empties a folder. Each round takes one folder out of it, after moving that
/// folder's own folders up. What cannot be removed is passed over; the first
/// such fault is told.
fn remove_all(bin: &Path) -> io::Result<()> {
    let mut next = 0_u64;
    let mut stuck = BTreeSet::new();
    let mut fault = None;
    loop {
        let entries = match fs::read_dir(bin) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let fresh = entries
            .flatten()
            .find(|entry| !stuck.contains(&entry.file_name()));
        let Some(entry) = fresh else {
            return fault.map_or(Ok(()), Err);
        };
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_one(bin, &entry.path(), &mut next),
            Ok(_) => fs::remove_file(entry.path()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            stuck.insert(entry.file_name());
            fault.get_or_insert(error);
        }
        if stuck.len() > MAX_STUCK {
            return fault.map_or(Ok(()), Err);
        }
    }
}

fn remove_one(bin: &Path, folder: &Path, next: &mut u64) -> io::Result<()> {
    // The box may have left it without the right to read or change it.
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        // A folder's parent cannot change without the right to write to it.
        fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
        fs::rename(entry.path(), free_name(bin, next))?;
    }
    fs::remove_dir(folder)
}

fn free_name(bin: &Path, next: &mut u64) -> PathBuf {
    loop {
        *next += 1;
        let path = bin.join(format!("up-{next}"));
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_box_left_goes_and_what_its_links_name_stays() {
        let name = format!("bailey-trash-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let bin = root.join("bin");
        fs::create_dir_all(bin.join("own/closed")).unwrap();
        fs::write(root.join("outside"), "stays").unwrap();
        fs::write(bin.join("own/closed/file"), "x").unwrap();
        std::os::unix::fs::symlink(&root, bin.join("own/link")).unwrap();
        // Deeper than a path can be long.
        let mut at = rustix::fs::openat(
            rustix::fs::CWD,
            bin.join("own"),
            rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, c"deep", rustix::fs::Mode::RWXU).unwrap();
            let flags = rustix::fs::OFlags::DIRECTORY;
            at = rustix::fs::openat(&at, c"deep", flags, rustix::fs::Mode::empty()).unwrap();
        }
        fs::set_permissions(bin.join("own/closed"), Permissions::from_mode(0o000)).unwrap();
        remove_all(&bin).unwrap();
        assert_eq!(fs::read_dir(&bin).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(root.join("outside")).unwrap(), "stays");
        fs::remove_dir_all(root).unwrap();
    }
}
