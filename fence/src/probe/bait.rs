//! What the trials need of the host: its files and processes by name, and
//! listeners that the box should not reach.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bailey_fence_plan::channel::{BoxSpec, Layer};
use bailey_fence_plan::holds::{ReadOnlyGrant, covers, read_only_grants};
use bailey_fence_plan::{EntryKind, SetupOp};
use bailey_model::{Axis, Fact, Limits, Tier};
use rustix::fs::{AtFlags, CWD, fstat, readlinkat, statat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
};
use serde::{Deserialize, Serialize};

use super::{files, limits, syscalls};
use crate::host::Held;

/// Longest part of the host's user table that is looked at.
const MAX_PASSWD: u64 = 256 << 10;
/// Namespaces of which a box has its own, by their names in /proc.
const NAMESPACES: [&str; 5] = ["user", "mnt", "pid", "ipc", "net"];
/// What every Linux host has and no box should see.
const HOST_PATHS: [&str; 7] = [
    "/etc/shadow",
    "/etc/machine-id",
    "/root",
    "/run",
    "/sys",
    "/tmp",
    "/var",
];

/// A file of the host's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HostFile {
    /// How a fact names it.
    pub(super) what: String,
    pub(super) path: PathBuf,
    /// Which one it is, by device and inode; `None` where there is nothing.
    pub(super) which: Option<(u64, u64)>,
}

/// What is known of the host, gathered by the launcher while the box is made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Targets {
    pub(super) files: Vec<HostFile>,
    /// Namespaces of the host: name, and which one.
    pub(super) namespaces: Vec<(String, Vec<u8>)>,
    /// Processes outside: the launcher and who started it.
    pub(super) processes: Vec<i32>,
    /// A port of the host's loopback that is listened on.
    pub(super) port: Option<u16>,
    /// An abstract name of the host's that is listened on.
    pub(super) name: Option<Vec<u8>>,
    /// What the services of [`files`] answer outside: what cannot be reached there
    /// either says nothing of a box.
    pub(super) services: Vec<Option<i32>>,
    /// The same of the calls of [`syscalls`], for a box without a filter; with one
    /// the filter answers.
    pub(super) answers: Vec<Option<i32>>,
    /// The grants that may only be read.
    pub(super) read_only: Vec<ReadOnly>,
    /// What is covered in a writable grant: that, and the names, as paths in the
    /// box.
    pub(super) covers: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

/// A granted file or folder that may only be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ReadOnly {
    /// Where, in the box.
    pub(super) at: Vec<u8>,
    /// On which device of the host's it is, if it is a folder.
    pub(super) device: Option<u64>,
}

/// Listeners of the launcher's that no box should reach. They stay outside, as
/// long as a box is measured.
#[derive(Debug, Default)]
pub(crate) struct Bait {
    _listeners: Vec<OwnedFd>,
}

/// What is to be seen of a box from outside; `cgroup` is the folder of its cgroup,
/// `pid` its pid 1.
pub(crate) fn outside(
    limits: Limits,
    cgroup: Option<BorrowedFd<'_>>,
    pid: i32,
) -> Vec<(Axis, Fact)> {
    limits::outside(limits, cgroup, pid)
}

/// Looks at the host, and lays out what the box should not reach. `own` is
/// where the box's own folder is on the host.
pub(crate) fn lay(
    spec: &BoxSpec,
    ops: &[SetupOp],
    (own, grants): (&Path, &[Held]),
) -> (Targets, Bait) {
    let mut listeners = Vec::new();
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    let pids = [
        Some(rustix::process::getpid().as_raw_nonzero()),
        // 0 is one that is itself outside this process namespace.
        parent,
    ];
    let mut targets = Targets {
        processes: pids.into_iter().flatten().map(i32::from).collect(),
        services: files::services(),
        ..Targets::default()
    };
    if spec.tier == Tier::L1 || spec.broken == Some(Layer::Filter) {
        targets.answers = syscalls::answers();
    }
    targets.read_only = read_only(ops, grants);
    targets.covers = covers(ops)
        .into_iter()
        .map(|covers| {
            let names = covers.at.into_iter().map(<[u8]>::to_vec);
            (covers.grant.to_vec(), names.collect())
        })
        .collect();
    for name in NAMESPACES {
        if let Ok(which) = namespace(name) {
            targets.namespaces.push((name.to_owned(), which));
        }
    }
    targets.files = HOST_PATHS
        .iter()
        .map(|path| (format!("open {path}"), PathBuf::from(path)))
        .chain(home(spec.uid).map(|home| ("open the user's home".to_owned(), home)))
        .chain([("open the node's folder".to_owned(), above(own))])
        .map(|(what, path)| {
            let which = identity(&path);
            HostFile { what, path, which }
        })
        .collect();
    // Where nothing can be bound, what leads to it is not measured.
    if let Ok((listener, port)) = on_loopback() {
        listeners.push(listener);
        targets.port = Some(port);
    }
    if let Ok((listener, name)) = abstractly() {
        listeners.push(listener);
        targets.name = Some(name);
    }
    let bait = Bait {
        _listeners: listeners,
    };
    (targets, bait)
}

fn read_only(ops: &[SetupOp], grants: &[Held]) -> Vec<ReadOnly> {
    let device = |grant: &ReadOnlyGrant<'_>| {
        let folder = grants
            .get(grant.index)
            .filter(|_| grant.kind == EntryKind::Dir)?;
        // Of one that cannot be asked the trial is missed, which the judge says.
        fstat(&folder.fd).ok().map(|stat| stat.st_dev)
    };
    read_only_grants(ops)
        .into_iter()
        .map(|grant| ReadOnly {
            at: grant.at.to_vec(),
            device: device(&grant),
        })
        .collect()
}

/// Which namespace of this kind this process is in.
pub(super) fn namespace(name: &str) -> rustix::io::Result<Vec<u8>> {
    let path = format!("/proc/self/ns/{name}");
    readlinkat(CWD, path, Vec::new()).map(std::ffi::CString::into_bytes)
}

/// Which file is at a path, by device and inode.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = statat(CWD, path, AtFlags::empty()).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Three steps above a box's own folder are all boxes, and the node's store.
fn above(own: &Path) -> PathBuf {
    own.ancestors().nth(3).unwrap_or(own).to_path_buf()
}

/// Where the user's files are by the host's own table; no service is asked.
fn home(uid: u32) -> Option<PathBuf> {
    let mut table = Vec::new();
    let file = std::fs::File::open("/etc/passwd").ok()?;
    file.take(MAX_PASSWD).read_to_end(&mut table).ok()?;
    let table = String::from_utf8_lossy(&table);
    let of_user = |line: &&str| line.split(':').nth(2).and_then(|id| id.parse().ok()) == Some(uid);
    let home = PathBuf::from(table.lines().find(of_user)?.split(':').nth(5)?);
    (home.is_absolute() && home != Path::new("/")).then_some(home)
}

fn on_loopback() -> rustix::io::Result<(OwnedFd, u16)> {
    let listener = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    listen(&listener, 1)?;
    let bound = SocketAddrV4::try_from(getsockname(&listener)?)?;
    Ok((listener, bound.port()))
}

/// A listener at a name that the kernel chooses.
fn abstractly() -> rustix::io::Result<(OwnedFd, Vec<u8>)> {
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&listener, &SocketAddrUnix::new_unnamed())?;
    listen(&listener, 1)?;
    let bound = SocketAddrUnix::try_from(getsockname(&listener)?)?;
    let name = bound.abstract_name().ok_or(rustix::io::Errno::INVAL)?;
    Ok((listener, name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_out_can_be_reached_from_outside() {
        let (listener, port) = on_loopback().unwrap();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        drop(listener);
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        let (listener, name) = abstractly().unwrap();
        assert_eq!(super::super::files::reach_abstract(&name), Ok(()));
        drop(listener);
        assert!(super::super::files::reach_abstract(&name).is_err());
    }

    #[test]
    fn the_nodes_folder_is_above_a_boxes_own() {
        let own = Path::new("/a/state/boxes/yard/home");
        assert_eq!(above(own), Path::new("/a/state"));
        assert_eq!(above(Path::new("/a")), Path::new("/a"));
    }
}
