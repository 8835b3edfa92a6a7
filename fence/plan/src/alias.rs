//! What is never granted to a box, by whichever path it is named.
//!
//! A folder can be mounted a second time (a bind of the home elsewhere), and
//! then a path does not tell. Two things do: which file it is and which ones are
//! above it, and where in its file system a mount shows it.

use crate::Reason;

/// Longest row of folders above one another that is looked at.
pub const MAX_ABOVE: usize = 256;

/// Which file something is, whatever its path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whereabouts {
    /// Device and inode of it, then of each folder above it up to the root, at
    /// most [`MAX_ABOVE`]. Empty where only its place is known.
    pub chain: Vec<(u64, u64)>,
    /// The file system as the table of mounts numbers it, and the path in it.
    pub place: Option<(String, Vec<u8>)>,
}

impl Whereabouts {
    /// Whether one is the other, holds it or lies in it.
    fn touches(&self, other: &Self) -> bool {
        let holds = |outer: &Self, inner: &Self| {
            let first = outer.chain.first();
            first.is_some_and(|first| inner.chain.contains(first))
        };
        let same = match (&self.place, &other.place) {
            (Some((one, a)), Some((two, b))) => one == two && (lies_in(a, b) || lies_in(b, a)),
            _ => false,
        };
        same || holds(self, other) || holds(other, self)
    }
}

/// The whereabouts of the node's folders, as [`crate::NodeFolders`] has their
/// paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeWhereabouts {
    /// Its own folders.
    pub own: Vec<Whereabouts>,
    /// Where its programs lie.
    pub programs: Vec<Whereabouts>,
    /// The user's runtime folder.
    pub runtime: Vec<Whereabouts>,
}

/// Judges what somebody asks to grant, and each mount below it (`grant`), by what
/// it is: the same refusals as by its path.
#[must_use]
pub fn refuse_alias(
    grant: &[Whereabouts],
    read_only: bool,
    folders: &NodeWhereabouts,
) -> Option<Reason> {
    let touched = |all: &[Whereabouts]| {
        let mut pairs = grant
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| one.touches(other))
    };
    if touched(&folders.own) {
        return Some(Reason::NodeFolder);
    }
    if !read_only && touched(&folders.programs) {
        return Some(Reason::Programs);
    }
    touched(&folders.runtime).then_some(Reason::Runtime)
}

/// Where a path is in its file system, by the table of mounts
/// (proc_pid_mountinfo(5)). The last of the mounts that lie nearest above it is
/// the one that is seen.
#[must_use]
pub fn place(mounts: &[Mount], path: &[u8]) -> Option<(String, Vec<u8>)> {
    let above = mounts.iter().filter(|mount| lies_in(path, &mount.at));
    let mount = above.max_by_key(|mount| mount.at.len())?;
    let below = path.get(mount.at.len()..)?;
    let mut whole = mount.root.clone();
    if !below.is_empty() {
        while whole.last() == Some(&b'/') {
            whole.pop();
        }
        if !below.starts_with(b"/") {
            whole.push(b'/');
        }
        whole.extend_from_slice(below);
    }
    Some((mount.system.clone(), whole))
}

/// The whereabouts of all that is mounted below a path.
#[must_use]
pub fn mounted_below(mounts: &[Mount], path: &[u8]) -> Vec<Whereabouts> {
    let below = mounts
        .iter()
        .filter(|mount| mount.at != path && lies_in(&mount.at, path));
    below
        .map(|mount| Whereabouts {
            chain: Vec::new(),
            place: Some((mount.system.clone(), mount.root.clone())),
        })
        .collect()
}

/// One line of the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    system: String,
    root: Vec<u8>,
    at: Vec<u8>,
}

/// Reads the table of mounts; lines that are none are passed over.
#[must_use]
pub fn mounts(table: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        Some(Mount {
            system: String::from_utf8(fields.next()?.to_vec()).ok()?,
            root: plain(fields.next()?),
            at: plain(fields.next()?),
        })
    };
    table
        .split(|byte| *byte == b'\n')
        .filter_map(mount)
        .collect()
}

/// A path of that table: some bytes stand there by their number in base 8.
fn plain(text: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let number = after.get(..3).filter(|_| *first == b'\\');
        let byte = number
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => {
                path.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    path
}

/// Whether `path` is `folder` or below it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| folder == b"/" || rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"20 1 8:1 / / rw - ext4 /dev/a rw\n\
        21 20 8:2 / /home rw - ext4 /dev/b rw\n\
        22 20 8:2 /ann /mnt/ann\\040s rw - ext4 /dev/b rw\n\
        23 20 8:2 /ann/.local/state/bailey/boxes /srv/boxes rw - ext4 /dev/b rw\n\
        24 20 8:1 /srv /over/srv rw - ext4 /dev/a rw\n\
        nonsense\n";

    fn of(path: &str, chain: &[u64]) -> Whereabouts {
        Whereabouts {
            chain: chain.iter().map(|inode| (1, *inode)).collect(),
            place: place(&mounts(TABLE), path.as_bytes()),
        }
    }

    fn node() -> NodeWhereabouts {
        NodeWhereabouts {
            own: vec![of("/home/ann/.local/state/bailey", &[9, 8, 7, 6, 5, 2])],
            programs: vec![of("/opt/bailey", &[30, 31, 2])],
            runtime: Vec::new(),
        }
    }

    #[test]
    fn a_path_has_its_place_in_the_mount_that_is_seen_there() {
        let at = |path: &str| place(&mounts(TABLE), path.as_bytes()).unwrap();
        assert_eq!(at("/mnt/ann s/x"), ("8:2".to_owned(), b"/ann/x".to_vec()));
        assert_eq!(at("/mnt/ann"), ("8:1".to_owned(), b"/mnt/ann".to_vec()));
        assert_eq!(at("/home"), ("8:2".to_owned(), b"/".to_vec()));
    }

    #[test]
    fn another_path_to_the_nodes_folders_is_refused_by_its_place() {
        for path in [
            "/mnt/ann s",
            "/mnt/ann s/.local",
            "/mnt/ann s/.local/state/bailey/store.db",
            "/srv/boxes",
            "/srv/boxes/one/home",
        ] {
            let grant = [of(path, &[])];
            let refused = refuse_alias(&grant, true, &node());
            assert_eq!(refused, Some(Reason::NodeFolder), "{path}");
        }
        for path in ["/mnt/ann s/src", "/home/bob", "/srv/data"] {
            assert_eq!(
                refuse_alias(&[of(path, &[])], true, &node()),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn another_path_to_them_is_refused_by_which_file_it_is() {
        let by_chain =
            |chain: &[u64], read_only| refuse_alias(&[of("/elsewhere", chain)], read_only, &node());
        // It is one of those above the folder, it is the folder, or it is below.
        for chain in [[7, 40, 2].as_slice(), &[9, 40, 2], &[41, 9, 40, 2]] {
            assert_eq!(by_chain(chain, true), Some(Reason::NodeFolder), "{chain:?}");
        }
        // Beside it, with a folder above both.
        assert_eq!(by_chain(&[41, 7, 2], true), None);
        assert_eq!(by_chain(&[50, 30, 40, 2], false), Some(Reason::Programs));
        assert_eq!(by_chain(&[50, 30, 40, 2], true), None);
    }

    #[test]
    fn a_grant_with_an_alias_mounted_below_it_is_refused() {
        let below = |path: &str| mounted_below(&mounts(TABLE), path.as_bytes());
        for path in ["/mnt", "/srv"] {
            let refused = refuse_alias(&below(path), true, &node());
            assert_eq!(refused, Some(Reason::NodeFolder), "{path}");
        }
        assert_eq!(refuse_alias(&below("/over"), true, &node()), None);
        assert!(below("/over/srv").is_empty());
    }
}
