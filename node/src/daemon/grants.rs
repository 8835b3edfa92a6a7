//! What a person asks to grant, judged before anything is made.
//!
//! The path is judged, and that the descriptor is what the path says; a
//! writable folder is also looked through, since a socket in it is a door.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bailey_fence_plan::{NodeFolders, is_engine_socket, refuse_grant};
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags};

use crate::api::{Failure, GrantAsk};
use crate::paths::Paths;
use crate::show;

/// Entries looked at in one writable folder; beyond it the person is told.
const MAX_ENTRIES: usize = 20_000;
/// Folders below one another that are looked into.
const MAX_DEPTH: usize = 32;
/// Doors named one by one.
const MAX_NAMED: usize = 8;

/// Judges every grant; gives lines for the person.
pub(super) fn check(
    paths: &Paths,
    grants: &[GrantAsk],
    held: &[OwnedFd],
) -> Result<Vec<String>, Failure> {
    let folders = folders(paths)?;
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
        if !grant.read_only {
            let found = look_through(fd.as_fd()).map_err(|error| fault(&error.to_string()))?;
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

/// The node's folders and programs, canonical, as grants are.
fn folders(paths: &Paths) -> Result<NodeFolders, Failure> {
    let canonical = |path: &Path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real.as_os_str().as_bytes().to_vec()
    };
    let own = std::env::current_exe()
        .map_err(|error| Failure::internal(format!("own program: {error}")))?;
    Ok(NodeFolders {
        own: vec![canonical(&paths.state), canonical(&paths.runtime)],
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
    fn a_descriptor_of_something_else_than_the_path_is_refused() {
        let (shown, other) = (folder("shown"), folder("other"));
        let paths = Paths {
            state: folder("state"),
            runtime: folder("runtime"),
        };
        let grant = |path: &Path| GrantAsk {
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
