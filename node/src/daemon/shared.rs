//! Writable folders that two running boxes share: what one writes, the other
//! reads and may run.
//!
//! Boxes of two accounts of one person can share one too. The two nodes know nothing
//! of each other: the command line that begins the second box asks the first one's.
//! What is said of it goes to terminals and is entered nowhere, so that no device of
//! one account hears of the other.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bailey_fence_plan::channel::MAX_GRANTS;

use super::Node;
use super::event::ConnId;
use super::run_state::Run;
use crate::account::{self, AccountName};
use crate::api::{BesideAsk, Failure, GrantAsk, Tell};
use crate::show;

/// A granted folder or file that its box may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Writable {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Writable {
    /// The writable ones of what is granted, by what their descriptors hold.
    pub(super) fn of(grants: &[GrantAsk], held: &[OwnedFd]) -> rustix::io::Result<Vec<Self>> {
        let pairs = grants.iter().zip(held);
        pairs
            .filter(|(grant, _)| !grant.read_only)
            .map(|(grant, fd)| {
                let stat = rustix::fs::fstat(fd)?;
                Ok(Self {
                    path: Path::new(std::ffi::OsStr::from_bytes(&grant.path)).to_owned(),
                    device: stat.st_dev,
                    inode: stat.st_ino,
                })
            })
            .collect()
    }

    /// The path that both may write: the same thing, or the inner of two of
    /// which one lies in the other.
    fn meets<'a>(&'a self, other: &'a Self) -> Option<&'a Path> {
        if (self.device, self.inode) == (other.device, other.inode)
            || self.path.starts_with(&other.path)
        {
            return Some(&self.path);
        }
        other
            .path
            .starts_with(&self.path)
            .then_some(other.path.as_path())
    }
}

/// Every path that both of two boxes may write.
pub(super) fn between(one: &[Writable], other: &[Writable]) -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = one
        .iter()
        .flat_map(|one| other.iter().filter_map(|other| one.meets(other)))
        .map(|path| path.as_os_str().as_bytes().to_vec())
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

impl Node {
    /// Says at every terminal concerned which boxes write the same.
    pub(super) fn tell_shared(
        &mut self,
        new: &Run,
        notes: &mut Vec<String>,
    ) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut told = Vec::new();
        for run in self.runs.values() {
            for path in between(&run.writable, &new.writable) {
                let shown = show::bytes(&path);
                notes.push(format!("box {} also writes {shown}", run.name));
                told.extend(run.client.map(|conn| {
                    let text = format!("box {} also writes {shown}", new.name);
                    (conn, Tell::Note(text))
                }));
                found.push((run.name.clone(), path));
            }
        }
        for (conn, tell) in told {
            self.tell(conn, tell);
        }
        found
    }
}

impl Node {
    /// Answers which boxes here write what one of another account will, and says so at
    /// their terminals.
    pub(super) fn on_beside(&mut self, conn: ConnId, ask: BesideAsk) -> Result<(), Failure> {
        let theirs =
            AccountName::of(&ask.account).map_err(|error| Failure::usage(error.to_string()))?;
        if ask.writable.len() > MAX_GRANTS {
            return Err(Failure::usage(format!("at most {MAX_GRANTS} grants")));
        }
        let new: Vec<Writable> = ask
            .writable
            .into_iter()
            .map(|(path, device, inode)| Writable {
                path: Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned(),
                device,
                inode,
            })
            .collect();
        let (own, theirs) = (account::shown(account::chosen()), theirs.as_ref());
        let mut notes = Vec::new();
        let mut told = Vec::new();
        for run in self.runs.values() {
            for path in between(&run.writable, &new) {
                let shown = show::bytes(&path);
                let name = &run.name;
                notes.push(Tell::Note(format!(
                    "box {name} of your account {own} also writes {shown}"
                )));
                told.extend(run.client.map(|conn| {
                    let theirs = account::shown(theirs);
                    let text = format!("a box of your account {theirs} also writes {shown}");
                    (conn, Tell::Note(text))
                }));
            }
        }
        for (conn, tell) in told {
            self.tell(conn, tell);
        }
        self.answer_all(conn, notes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writable(path: &str, inode: u64) -> Writable {
        Writable {
            path: path.into(),
            device: 1,
            inode,
        }
    }

    fn shared(one: &[Writable], other: &[Writable]) -> Vec<String> {
        let paths = between(one, other);
        paths
            .into_iter()
            .map(|path| String::from_utf8(path).unwrap())
            .collect()
    }

    #[test]
    fn one_inside_the_other_is_shared_and_a_longer_name_is_not() {
        let project = [writable("/home/a/project", 1)];
        assert_eq!(shared(&project, &project), ["/home/a/project"]);
        let inner = [writable("/home/a/project/src", 2)];
        assert_eq!(shared(&project, &inner), ["/home/a/project/src"]);
        assert_eq!(shared(&inner, &project), ["/home/a/project/src"]);
        let beside = [writable("/home/a/project-2", 3)];
        assert!(shared(&project, &beside).is_empty());
        assert!(shared(&project, &[]).is_empty());
    }

    #[test]
    fn the_same_thing_by_another_path_is_shared() {
        let (one, other) = ([writable("/a", 7)], [writable("/mnt/a", 7)]);
        assert_eq!(shared(&one, &other), ["/a"]);
    }
}
