//! Mounts of a box that hold a name of the host's read-only.
//!
//! When somebody outside renames something over such a name or removes it, the
//! kernel takes the mount off it in every mount namespace, and the box could
//! write what is there now. The table of the box's mounts tells of every change.
//! When the name is moved away, the mount goes with it, and what comes in its
//! place is not held; of that the table does not tell, but the folders do.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Longest table that is read. One that is longer is not trusted to be whole.
const MAX_TABLE: u64 = 16 << 20;
/// Which column of the table (proc_pid_mountinfo(5)) says where a mount is.
const PLACE: usize = 4;

/// What must stay mounted in a box while it runs.
#[derive(Debug)]
pub(crate) struct Covers {
    table: std::fs::File,
    /// As the table writes them, and as they are.
    places: Vec<(Vec<u8>, Vec<u8>)>,
    /// What tells of names that are moved in the host's folders; `None` where the
    /// user has no more of that, and the table is looked at from time to time.
    moves: Option<Moves>,
}

/// One name of the host's on the way to a place, and the folder it is in.
pub(crate) type Name = (PathBuf, Vec<u8>);

#[derive(Debug)]
struct Moves {
    events: OwnedFd,
    names: BTreeSet<Vec<u8>>,
}

/// Longest text that one event brings: its head and a name.
const EVENT: usize = 512;
/// Most events that are taken at a time: who makes more of them finds this
/// program at work, and the rest is there the next time.
const MAX_EVENTS: usize = 4096;

impl Covers {
    /// By the box's own table, opened before what is in it was tried; the places
    /// in the box; and the names on the way to them outside.
    pub(crate) fn new(table: OwnedFd, places: Vec<Vec<u8>>, names: &[Name]) -> Self {
        let written = |place: Vec<u8>| (escaped(&place), place);
        Self {
            table: table.into(),
            places: places.into_iter().map(written).collect(),
            moves: Moves::of(names).ok(),
        }
    }

    /// Readable when a name was moved.
    pub(crate) fn moves(&self) -> Option<BorrowedFd<'_>> {
        self.moves.as_ref().map(|moves| moves.events.as_fd())
    }

    /// Whether one of the names on the way was moved, or may have been.
    pub(crate) fn moved(&self) -> bool {
        self.moves.as_ref().is_none_or(Moves::any)
    }

    /// A place whose mount is gone, if there is one. A table that cannot be read
    /// holds none.
    pub(crate) fn lost(&self) -> Option<Vec<u8>> {
        let table = self.read().unwrap_or_default();
        let mounted: Vec<&[u8]> = table
            .split(|byte| *byte == b'\n')
            .filter_map(place)
            .collect();
        let gone = |(written, _): &&(Vec<u8>, Vec<u8>)| !mounted.contains(&written.as_slice());
        self.places
            .iter()
            .find(gone)
            .map(|(_, place)| place.clone())
    }

    fn read(&self) -> std::io::Result<Vec<u8>> {
        rustix::fs::seek(&self.table, rustix::fs::SeekFrom::Start(0))?;
        let mut whole = Vec::new();
        (&self.table).take(MAX_TABLE).read_to_end(&mut whole)?;
        Ok(whole)
    }
}

impl Moves {
    fn of(names: &[Name]) -> Result<Self, Errno> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let folders: BTreeSet<&Path> = names.iter().map(|(folder, _)| folder.as_path()).collect();
        let what = WatchFlags::MOVE | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
        for folder in folders {
            match inotify::add_watch(&events, folder, what) {
                // Behind an inner grant the outer folder may have no such place.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        let names = names.iter().map(|(_, name)| name.clone()).collect();
        Ok(Self { events, names })
    }

    /// Takes what was told; whether it was about one of the names.
    fn any(&self) -> bool {
        let mut space = [MaybeUninit::uninit(); EVENT];
        let mut events = inotify::Reader::new(&self.events, &mut space);
        let mut found = false;
        for _ in 0..MAX_EVENTS {
            match events.next() {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What cannot be told may be anything.
                Err(_) => return true,
                Ok(event) => {
                    let name = event.file_name().map(std::ffi::CStr::to_bytes);
                    found |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                        || name.is_some_and(|name| self.names.contains(name));
                }
            }
        }
        found
    }
}

/// The names on the way from a folder of the host's (`outer`, in the box at `at`)
/// to a place in it.
pub(crate) fn names(outer: &Path, at: &[u8], place: &[u8]) -> Vec<Name> {
    use std::os::unix::ffi::OsStrExt as _;
    let below = place
        .strip_prefix(at)
        .and_then(|rest| rest.strip_prefix(b"/"));
    let mut folder = outer.to_path_buf();
    let mut names = Vec::new();
    for part in below.unwrap_or_default().split(|byte| *byte == b'/') {
        names.push((folder.clone(), part.to_vec()));
        folder.push(std::ffi::OsStr::from_bytes(part));
    }
    names.retain(|(_, name)| !name.is_empty());
    names
}

/// Readable with priority when a mount has changed.
impl AsFd for Covers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

fn place(line: &[u8]) -> Option<&[u8]> {
    line.split(|byte| *byte == b' ').nth(PLACE)
}

/// As the kernel writes a path there: what would end a column, and what begins
/// such a number, by its number in base 8.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend(format!("\\{byte:03o}").bytes()),
            _ => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(table: &str, places: &[&str]) -> Option<Vec<u8>> {
        let made = rustix::fs::memfd_create(c"table", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&made, table.as_bytes()).unwrap();
        let places = places.iter().map(|place| place.as_bytes().to_vec());
        Covers::new(made, places.collect(), &[]).lost()
    }

    #[test]
    fn a_mount_that_is_not_in_the_table_is_lost() {
        let table = "36 35 98:0 /r /h/.git ro,nosuid - ext4 /dev/x rw\n\
                     37 35 98:0 /r /h/a\\040b\\134 ro - ext4 /dev/x rw\n";
        assert_eq!(of(table, &["/h/.git", "/h/a b\\"]), None);
        assert_eq!(of(table, &["/h/.git", "/h"]), Some(b"/h".to_vec()));
        assert_eq!(of(table, &["/r"]), Some(b"/r".to_vec()));
        assert_eq!(of("", &["/h/.git"]), Some(b"/h/.git".to_vec()));
    }

    #[test]
    fn every_name_on_the_way_to_a_place_is_known_with_its_folder() {
        let found = names(Path::new("/host/p"), b"/p", b"/p/.config/systemd");
        let of = |folder: &str, name: &str| (PathBuf::from(folder), name.as_bytes().to_vec());
        assert_eq!(
            found,
            [of("/host/p", ".config"), of("/host/p/.config", "systemd")]
        );
        assert!(names(Path::new("/host/p"), b"/p", b"/pp/x").is_empty());
        assert!(names(Path::new("/host/p"), b"/p", b"/p").is_empty());
    }

    #[test]
    fn a_name_that_is_moved_is_told_and_another_is_not() {
        let folder = std::env::temp_dir().join(format!("bailey-moves-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["held", "other"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let moves = Moves::of(&[(folder.clone(), b"held".to_vec())]).unwrap();
        std::fs::rename(folder.join("other"), folder.join("else")).unwrap();
        assert!(!moves.any());
        std::fs::rename(folder.join("held"), folder.join("away")).unwrap();
        assert!(moves.any());
        assert!(!moves.any());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_kernels_own_table_is_read_again_each_time() {
        let table = std::fs::File::open("/proc/self/mountinfo").unwrap();
        let covers = Covers::new(table.into(), vec![b"/proc".to_vec()], &[]);
        assert_eq!((covers.lost(), covers.lost()), (None, None));
    }

    /// Says how long it takes; a bound would measure the machine.
    #[expect(clippy::print_stdout, reason = "what is measured is to be read")]
    #[test]
    fn the_time_that_watching_adds_to_a_start_with_covers() {
        let ways = names(Path::new("/"), b"", b"/usr/lib");
        let mut times: Vec<_> = (0..41)
            .map(|_| {
                let begun = std::time::Instant::now();
                let table = std::fs::File::open("/proc/self/mountinfo").unwrap();
                let covers = Covers::new(table.into(), vec![b"/proc".to_vec()], &ways);
                assert!(covers.lost().is_none() && covers.moves().is_some());
                begun.elapsed()
            })
            .collect();
        times.sort();
        println!("median {:?}, least {:?}", times[20], times[0]);
    }
}
