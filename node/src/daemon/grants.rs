//! What a person asks to grant, judged before anything is made.
//!
//! The path is judged, and that the descriptor is what the path says; a
//! writable folder is also looked through, since a socket in it is a door.

use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bailey_fence_plan::alias::{
    MAX_ABOVE, Mount, NodeWhereabouts, Whereabouts, mounted_below, mounts, place, refuse_alias,
};
use bailey_fence_plan::{BARE, NodeFolders, is_engine_socket, refuse_grant};
use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags};

use crate::api::{Failure, GrantAsk};
use crate::paths::Paths;
use crate::show;

/// Entries looked at in one writable folder; beyond it the person is told.
const MAX_ENTRIES: usize = 20_000;
/// Folders below one another that are looked into.
const MAX_DEPTH: usize = 32;
/// Where the kernel lists this process's mounts, and the machine's sockets.
const MOUNTS: &str = "/proc/self/mountinfo";
const SOCKETS: &str = "/proc/net/unix";
/// Longest such table that is looked through, in bytes.
const MAX_TABLE: u64 = 64 << 20;
/// Doors named one by one.
const MAX_NAMED: usize = 8;

/// Judges every grant; gives lines for the person.
pub(super) fn check(
    paths: &Paths,
    grants: &[GrantAsk],
    held: &[OwnedFd],
) -> Result<Vec<String>, Failure> {
    if grants.is_empty() {
        return Ok(Vec::new());
    }
    let folders = folders(paths)?;
    let mounts = mounts(&table(MOUNTS)?);
    let node = whereabouts_of(&folders, &mounts);
    let mut notes = Vec::new();
    for (grant, fd) in grants.iter().zip(held) {
        let fault =
            |why: &str| Failure::usage(format!("--grant {}: {why}", show::bytes(&grant.path)));
        if let Some(reason) = refuse_grant(&grant.path, grant.read_only, &folders) {
            return Err(fault(&reason.to_string()));
        }
        let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map_err(|error| fault(&error.to_string()))?;
        if real.as_os_str().as_bytes() != grant.path {
            return Err(fault("it was replaced by something else meanwhile"));
        }
        let mut found = mounted_below(&mounts, &grant.path);
        found.push(whereabouts(fd.as_fd(), &grant.path, &mounts));
        if let Some(reason) = refuse_alias(&found, grant.read_only, &node) {
            return Err(fault(&format!("mounted there too: {reason}")));
        }
        if !grant.read_only {
            let mut found = look_through(fd.as_fd()).map_err(|error| fault(&error.to_string()))?;
            // Beyond what is looked at, and in what could not be looked into.
            if found.cut && found.engine.is_none() {
                found.engine = engine_below(&table(SOCKETS)?, &grant.path);
            }
            if let Some(engine) = found.engine {
                return Err(fault(&format!(
                    "a container engine listens in it ({}), which can do all that you can",
                    show::bytes(&engine)
                )));
            }
            let git = [grant.path.as_slice(), b"/.git"].concat();
            let named = grants
                .iter()
                .any(|other| !other.read_only && other.path == git);
            notes.extend(found.lines(&grant.path, named));
        }
    }
    Ok(notes)
}

/// A table of the kernel's, whole: part of one would tell too little.
fn table(path: &str) -> Result<Vec<u8>, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::host(format!("{path}: {error}"));
    let file = std::fs::File::open(path).map_err(|error| fault(&error))?;
    let mut text = Vec::new();
    let read = file.take(MAX_TABLE + 1).read_to_end(&mut text);
    read.map_err(|error| fault(&error))?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= MAX_TABLE => Ok(text),
        _ => Err(fault(&"it is longer than is looked through")),
    }
}

/// A container engine's socket below a folder, of those that this machine has a
/// listener for (proc_net(5): the path is the eighth column).
fn engine_below(sockets: &[u8], folder: &[u8]) -> Option<Vec<u8>> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..7 {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let column = rest.get(start..)?;
            let end = column.iter().position(|byte| *byte == b' ')?;
            rest = column.get(end..)?;
        }
        let below = rest
            .strip_prefix(b" ")?
            .strip_prefix(folder)?
            .strip_prefix(b"/")?;
        let name = below.rsplit(|byte| *byte == b'/').next()?;
        is_engine_socket(name).then(|| below.to_vec())
    };
    sockets.split(|byte| *byte == b'\n').find_map(path)
}

fn whereabouts_of(folders: &NodeFolders, mounts: &[Mount]) -> NodeWhereabouts {
    let of = |paths: &[Vec<u8>]| paths.iter().map(|path| of_path(path, mounts)).collect();
    NodeWhereabouts {
        own: of(&folders.own),
        programs: of(&folders.programs),
        runtime: of(folders.runtime.as_slice()),
    }
}

fn of_path(path: &[u8], mounts: &[Mount]) -> Whereabouts {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => whereabouts(fd.as_fd(), path, mounts),
        // What is not there yet has a place all the same.
        Err(_) => Whereabouts {
            chain: Vec::new(),
            place: place(mounts, path),
        },
    }
}

/// What is open, and what is above it.
fn whereabouts(fd: BorrowedFd<'_>, path: &[u8], mounts: &[Mount]) -> Whereabouts {
    Whereabouts {
        chain: chain(fd, path),
        place: place(mounts, path),
    }
}

/// Device and inode of what is open at a path, and of each folder above, as far
/// as they can be looked at.
fn chain(fd: BorrowedFd<'_>, path: &[u8]) -> Vec<(u64, u64)> {
    let Ok(own) = rustix::fs::fstat(fd) else {
        return Vec::new();
    };
    let mut chain = vec![(own.st_dev, own.st_ino)];
    let above = Path::new(std::ffi::OsStr::from_bytes(path))
        .ancestors()
        .skip(1);
    for folder in above.take(MAX_ABOVE) {
        if let Ok(stat) = rustix::fs::statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW) {
            chain.push((stat.st_dev, stat.st_ino));
        }
    }
    chain
}

/// The node's folders and programs, canonical, as grants are.
fn folders(paths: &Paths) -> Result<NodeFolders, Failure> {
    let canonical = |path: &Path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real.as_os_str().as_bytes().to_vec()
    };
    let own = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("own program: {error}")))?;
    // In the first account's folders are those of every other one.
    let first = Paths::of_user().map_err(|error| Failure::host(error.to_string()))?;
    Ok(NodeFolders {
        own: [paths, &first]
            .into_iter()
            .flat_map(|paths| {
                [&paths.state, &paths.runtime]
                    .into_iter()
                    .chain(&paths.config)
            })
            .map(|path| canonical(path))
            .collect(),
        programs: own.parent().map(canonical).into_iter().collect(),
        runtime: std::env::var_os("XDG_RUNTIME_DIR").map(|path| canonical(Path::new(&path))),
    })
}

/// What a writable folder holds beside files and folders.
#[derive(Debug, Default)]
struct Found {
    /// Sockets and FIFOs, by name.
    doors: Vec<Vec<u8>>,
    /// A container engine's socket.
    engine: Option<Vec<u8>>,
    /// Whether it is a repository of git's.
    git: bool,
    /// Repositories below it, by name.
    repositories: Vec<Vec<u8>>,
    seen: usize,
    cut: bool,
}

impl Found {
    /// `named` is whether git's own folder in it is granted too.
    fn lines(&self, path: &[u8], named: bool) -> Vec<String> {
        let own = path.ends_with(b"/.git");
        let path = show::bytes(path);
        let mut lines: Vec<String> = Vec::new();
        if self.git && !named {
            lines.push(format!(
                "{path}/.git is read-only in the box; --grant {path}/.git:rw lets it commit"
            ));
        }
        if own {
            lines.push(format!(
                "{path}: git outside may run what the box writes there"
            ));
        }
        for below in self.repositories.iter().take(MAX_NAMED) {
            let below = show::bytes(below);
            lines.push(format!(
                "{path} holds the repository {below}: git outside may run what the box writes there"
            ));
        }
        if self.repositories.len() > MAX_NAMED {
            let more = self.repositories.len() - MAX_NAMED;
            lines.push(format!("{path} holds {more} further repositories"));
        }
        for door in self.doors.iter().take(MAX_NAMED) {
            let door = show::bytes(door);
            lines.push(format!(
                "{path} holds {door}: what listens there is open to the box"
            ));
        }
        if self.doors.len() > MAX_NAMED {
            let more = self.doors.len() - MAX_NAMED;
            lines.push(format!("{path} holds {more} further sockets or FIFOs"));
        }
        if self.cut {
            lines.push(format!(
                "{path} could not be looked through whole for sockets"
            ));
        }
        lines
    }
}

/// Looks for sockets and FIFOs, without following a link. One descriptor a level
/// is held. A folder that cannot be looked into is said to be so: the box may
/// be able to change that.
fn look_through(root: BorrowedFd<'_>) -> rustix::io::Result<Found> {
    let mut found = Found::default();
    let kind = FileType::from_raw_mode(rustix::fs::fstat(root)?.st_mode);
    if kind != FileType::Directory {
        if matches!(kind, FileType::Socket | FileType::Fifo) {
            found.doors.push(b"itself".to_vec());
        }
        return Ok(found);
    }
    let mut path: Vec<Vec<u8>> = Vec::new();
    let mut levels = vec![Dir::new(open_dir(root, c".")?)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.read() else {
            levels.pop();
            path.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        found.seen += 1;
        if found.seen > MAX_ENTRIES {
            found.cut = true;
            return Ok(found);
        }
        let at = level.fd()?;
        match kind_of(at, &entry) {
            FileType::Socket if is_engine_socket(name.to_bytes()) => {
                found.engine = Some(joined(&path, name.to_bytes()));
                return Ok(found);
            }
            FileType::Socket | FileType::Fifo => found.doors.push(joined(&path, name.to_bytes())),
            FileType::Directory => {
                if name == c".git" {
                    match path.is_empty() {
                        true => found.git = true,
                        false => found.repositories.push(path.join(&b'/')),
                    }
                }
                let below = open_dir(at, name).and_then(Dir::new);
                match below {
                    Ok(below) if levels.len() < MAX_DEPTH => {
                        if name != c".git" && below.fd().is_ok_and(is_bare) {
                            found.repositories.push(joined(&path, name.to_bytes()));
                        }
                        path.push(name.to_bytes().to_vec());
                        levels.push(below);
                    }
                    _ => found.cut = true,
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Whether a folder is a repository of git's by what is in it.
fn is_bare(folder: BorrowedFd<'_>) -> bool {
    let has = |(name, is_folder): &(&str, bool)| {
        let found = rustix::fs::statat(folder, *name, AtFlags::empty());
        found.is_ok_and(|stat| {
            (FileType::from_raw_mode(stat.st_mode) == FileType::Directory) == *is_folder
        })
    };
    BARE.iter().all(has)
}

/// What an entry is; some file systems say so only when asked again.
fn kind_of(at: BorrowedFd<'_>, entry: &DirEntry) -> FileType {
    match entry.file_type() {
        FileType::Unknown => rustix::fs::statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| {
                FileType::from_raw_mode(stat.st_mode)
            }),
        known => known,
    }
}

fn joined(path: &[Vec<u8>], name: &[u8]) -> Vec<u8> {
    let mut whole = path.join(&b'/');
    if !whole.is_empty() {
        whole.push(b'/');
    }
    whole.extend_from_slice(name);
    whole
}

fn open_dir(at: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn folder(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("bailey-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn doors_are_found_behind_any_number_of_folders() {
        let root = folder("doors");
        for sibling in 0..600 {
            std::fs::create_dir(root.join(format!("d{sibling}"))).unwrap();
        }
        let _plain = UnixListener::bind(root.join("d599/plain.sock")).unwrap();
        let look = || look_through(std::fs::File::open(&root).unwrap().as_fd()).unwrap();
        let found = look();
        assert_eq!(found.doors, [b"d599/plain.sock".to_vec()]);
        assert!(!found.cut && found.engine.is_none());
        let _engine = UnixListener::bind(root.join("d300/docker.sock")).unwrap();
        assert_eq!(
            look().engine.as_deref(),
            Some(b"d300/docker.sock".as_slice())
        );
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_engine_that_listens_below_a_folder_is_found_by_the_machines_list() {
        let root = folder("listed");
        let list = || engine_below(&table(SOCKETS).unwrap(), root.as_os_str().as_bytes());
        let _plain = UnixListener::bind(root.join("plain.sock")).unwrap();
        assert_eq!(list(), None);
        std::fs::create_dir(root.join("a b")).unwrap();
        let _engine = UnixListener::bind(root.join("a b/docker.sock")).unwrap();
        assert_eq!(list().as_deref(), Some(b"a b/docker.sock".as_slice()));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn an_engine_beyond_what_is_looked_through_is_refused_all_the_same() {
        let root = folder("deep");
        let paths = Paths {
            state: folder("deep-state"),
            runtime: folder("deep-runtime"),
            config: None,
        };
        let last = root.join("a/".repeat(MAX_DEPTH + 1));
        std::fs::create_dir_all(&last).unwrap();
        let grant = GrantAsk {
            written: Vec::new(),
            path: root.as_os_str().as_bytes().to_vec(),
            read_only: false,
        };
        let ask = || {
            let held = vec![OwnedFd::from(std::fs::File::open(&root).unwrap())];
            check(&paths, std::slice::from_ref(&grant), &held)
        };
        let notes = ask().unwrap();
        assert!(notes.iter().any(|note| note.contains("looked through")));
        let _engine = UnixListener::bind(last.join("docker.sock")).unwrap();
        let refused = ask().unwrap_err();
        assert!(
            refused.text.contains("container engine"),
            "{}",
            refused.text
        );
        for path in [root, paths.state, paths.runtime] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }

    #[test]
    fn a_descriptor_of_something_else_than_the_path_is_refused() {
        let (shown, other) = (folder("shown"), folder("other"));
        let paths = Paths {
            state: folder("state"),
            runtime: folder("runtime"),
            config: None,
        };
        let grant = |path: &Path| GrantAsk {
            written: Vec::new(),
            path: path.as_os_str().as_bytes().to_vec(),
            read_only: true,
        };
        let held = || vec![OwnedFd::from(std::fs::File::open(&shown).unwrap())];
        assert!(check(&paths, &[grant(&shown)], &held()).is_ok());
        let refused = check(&paths, &[grant(&other)], &held()).unwrap_err();
        assert!(refused.text.contains("replaced"), "{}", refused.text);
        for path in [shown, other, paths.state, paths.runtime] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}
