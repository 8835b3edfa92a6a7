//! Which places a plan holds read-only: what is tried in the box, and what must
//! not be lost while it runs.
//!
//! A mount on a name in a folder of the host's lasts only as long as the name:
//! who replaces it outside takes the mount away, in every mount namespace.

use crate::{EntryKind, SetupOp};

/// Longest name of a trial, in characters; a report's texts are cut at more.
const MAX_NAME: usize = 180;

/// A granted file or folder that may only be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlyGrant<'a> {
    /// Which grant.
    pub index: usize,
    /// Where, in the box.
    pub at: &'a [u8],
    /// A folder or a file.
    pub kind: EntryKind,
}

/// What is covered in one writable grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Covers<'a> {
    /// Where the grant is, in the box.
    pub grant: &'a [u8],
    /// The covered names, as paths in the box.
    pub at: Vec<&'a [u8]>,
}

/// The grants that may only be read, in the order of their operations.
#[must_use]
pub fn read_only_grants(ops: &[SetupOp]) -> Vec<ReadOnlyGrant<'_>> {
    ops.iter()
        .filter_map(|op| {
            let (index, at, kind) = match op {
                SetupOp::GrantFolderReadOnly { index, at } => (*index, at, EntryKind::Dir),
                SetupOp::GrantFileReadOnly { index, at } => (*index, at, EntryKind::File),
                _ => return None,
            };
            Some(ReadOnlyGrant { index, at, kind })
        })
        .collect()
}

/// The names that are covered, by grant: none that a further grant lies over,
/// and none within another one, which that covers too.
#[must_use]
pub fn covers(ops: &[SetupOp]) -> Vec<Covers<'_>> {
    let mut found: Vec<Covers<'_>> = Vec::new();
    for (position, op) in ops.iter().enumerate() {
        if let SetupOp::GrantWritable { at, .. } = op {
            found.push(Covers {
                grant: at,
                at: Vec::new(),
            });
        }
        let SetupOp::Cover { at, .. } = op else {
            continue;
        };
        let later = ops.get(position + 1..).unwrap_or_default();
        let hidden = later
            .iter()
            .filter_map(granted)
            .any(|over| lies_in(at, over));
        // What guards a grant comes right after it.
        let Some(of) = found.last_mut().filter(|_| !hidden) else {
            continue;
        };
        if !of.at.iter().any(|outer| lies_in(at, outer)) {
            of.at.push(at);
        }
    }
    found.retain(|covers| !covers.at.is_empty());
    found
}

/// Places whose mount is lost when somebody replaces their name outside the box,
/// and which could be written then: the covers, and read-only grants within
/// another mount of a folder of the host's.
#[must_use]
pub fn lost_by_rename(ops: &[SetupOp]) -> Vec<Vec<u8>> {
    let covers = covers(ops).into_iter().flat_map(|covers| covers.at);
    let within = |grant: &ReadOnlyGrant<'_>| {
        let mut around = ops.iter().filter_map(granted);
        around.any(|outer| outer != grant.at && lies_in(grant.at, outer))
    };
    let grants = read_only_grants(ops).into_iter().filter(within);
    covers
        .chain(grants.map(|grant| grant.at))
        .map(<[u8]>::to_vec)
        .collect()
}

/// The trials that this plan's box must have held, one each, for its files to be
/// fenced, beside those of every box.
#[must_use]
pub fn demanded(ops: &[SetupOp]) -> Vec<String> {
    let mut names = Vec::new();
    for grant in read_only_grants(ops) {
        names.push(write_trial(grant.at));
        if grant.kind == EntryKind::Dir {
            names.push(socket_trial(grant.at));
        }
    }
    names.extend(covers(ops).iter().map(|covers| cover_trial(covers.grant)));
    names
}

/// The trial that writes to a read-only grant.
#[must_use]
pub fn write_trial(at: &[u8]) -> String {
    named("write granted", at)
}

/// The trial of what leads out of a folder that is granted read-only.
#[must_use]
pub fn socket_trial(at: &[u8]) -> String {
    named("sockets in granted", at)
}

/// The trial that writes to all that is covered in a writable grant.
#[must_use]
pub fn cover_trial(grant: &[u8]) -> String {
    named("write what is covered in", grant)
}

/// Text where the path is text, else every odd byte by its number.
fn named(what: &str, at: &[u8]) -> String {
    let path = match std::str::from_utf8(at) {
        Ok(path) => path.to_owned(),
        Err(_) => at.escape_ascii().to_string(),
    };
    format!("{what} {path}").chars().take(MAX_NAME).collect()
}

/// Where an operation mounts a file or folder of the host's that is not its
/// programs'.
fn granted(op: &SetupOp) -> Option<&[u8]> {
    match op {
        SetupOp::OwnFolder { at }
        | SetupOp::GrantWritable { at, .. }
        | SetupOp::GrantFileReadOnly { at, .. }
        | SetupOp::GrantFolderReadOnly { at, .. } => Some(at),
        _ => None,
    }
}

/// Whether `path` is `folder` or below it.
fn lies_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writable(index: usize, at: &str) -> SetupOp {
        let at = at.into();
        SetupOp::GrantWritable { index, at }
    }

    fn read_only(index: usize, at: &str) -> SetupOp {
        let at = at.into();
        SetupOp::GrantFolderReadOnly { index, at }
    }

    fn cover(at: &str) -> SetupOp {
        SetupOp::Cover {
            index: 0,
            below: String::new(),
            at: at.into(),
        }
    }

    #[test]
    fn a_cover_within_another_or_under_a_further_grant_is_none_of_its_own() {
        let ops = [
            writable(0, "/r"),
            cover("/r/.bashrc"),
            cover("/r/.git"),
            cover("/r/.git/config"),
            cover("/r/.gitconfig"),
            writable(1, "/r/.bashrc"),
            writable(2, "/s"),
            cover("/s/.git/hooks"),
        ];
        let of = |grant: &'static str, at: &[&'static str]| Covers {
            grant: grant.as_bytes(),
            at: at.iter().map(|at| at.as_bytes()).collect(),
        };
        let want = [
            of("/r", &["/r/.git", "/r/.gitconfig"]),
            of("/s", &["/s/.git/hooks"]),
        ];
        assert_eq!(covers(&ops), want);
        let want = ["/r/.git", "/r/.gitconfig", "/s/.git/hooks"];
        assert_eq!(lost_by_rename(&ops), want.map(|at| at.as_bytes().to_vec()));
    }

    #[test]
    fn a_read_only_grant_is_lost_by_a_rename_only_within_another_mount() {
        let home = SetupOp::OwnFolder {
            at: b"/home/box".to_vec(),
        };
        let ops = [home, read_only(0, "/data"), read_only(1, "/home/box/in")];
        assert_eq!(lost_by_rename(&ops), [b"/home/box/in".to_vec()]);
        let want = [
            "write granted /data",
            "sockets in granted /data",
            "write granted /home/box/in",
            "sockets in granted /home/box/in",
        ];
        assert_eq!(demanded(&ops), want);
    }

    #[test]
    fn a_path_that_is_no_text_has_a_trial_with_a_name() {
        assert_eq!(write_trial(b"/d\xff"), r"write granted /d\xff");
    }
}
