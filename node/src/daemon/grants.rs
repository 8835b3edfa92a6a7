//! What a person asks to grant, judged before anything is made.
//!
//! The path is judged, and that the descriptor is what the path says; a
//! writable folder is also looked through, since a socket in it is a door.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bailey_fence_plan::{NodeFolders, is_engine_socket, refuse_grant};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

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
            notes.extend(found.lines(&grant.path));
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
    seen: usize,
    cut: bool,
}

impl Found {
    fn lines(&self, path: &[u8]) -> Vec<String> {
        let path = show::bytes(path);
        let mut lines: Vec<String> = Vec::new();
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
                "{path} is too large to be looked through for sockets"
            ));
        }
        lines
    }
}

/// Looks for sockets and FIFOs, without following a link. A folder that cannot
/// be read is passed over: the box, with the same rights, cannot read it either.
fn look_through(root: BorrowedFd<'_>) -> rustix::io::Result<Found> {
    let mut found = Found::default();
    let stat = rustix::fs::fstat(root)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(found);
    }
    let mut stack = vec![(open_dir(root, c".")?, 0_usize)];
    while let Some((dir, depth)) = stack.pop() {
        for entry in Dir::read_from(&dir)?.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found.seen += 1;
            if found.seen > MAX_ENTRIES {
                found.cut = true;
                return Ok(found);
            }
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    }),
                known => known,
            };
            match kind {
                FileType::Socket if is_engine_socket(name.to_bytes()) => {
                    found.engine = Some(name.to_bytes().to_vec());
                    return Ok(found);
                }
                FileType::Socket | FileType::Fifo => found.doors.push(name.to_bytes().to_vec()),
                FileType::Directory if depth < MAX_DEPTH => {
                    if let Ok(below) = open_dir(dir.as_fd(), name) {
                        stack.push((below, depth + 1));
                    }
                }
                FileType::Directory => found.cut = true,
                _ => {}
            }
            if stack.len() > MAX_STACK {
                found.cut = true;
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Folders held open while others are looked through.
const MAX_STACK: usize = 256;

fn open_dir(at: BorrowedFd<'_>, name: &std::ffi::CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}
