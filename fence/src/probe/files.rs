//! What can be written, opened and connected to by a path or an abstract name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bailey_fence_plan::channel::BoxSpec;
use bailey_fence_plan::holds::{cover_trial, socket_trial, write_trial};
use bailey_fence_plan::judge::side_of_abstract;
use bailey_model::Axis;
use nix::errno::Errno;
use rustix::fs::{CWD, FileType, Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, openat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::bait::{Targets, identity, namespace};
use super::{Facts, name};

/// What every box may only read.
const READ_ONLY: [(&str, &str); 4] = [
    ("write /", "/"),
    ("write /usr", "/usr"),
    ("write /etc", "/etc"),
    ("write /dev", "/dev"),
];
/// Where a host's services listen, and its devices are.
const SERVICES: [(&str, &str); 3] = [
    ("connect the system bus", "/run/dbus/system_bus_socket"),
    ("connect the journal", "/run/systemd/journal/socket"),
    ("connect a container engine", "/run/docker.sock"),
];

pub(super) fn try_all(facts: &mut Facts, spec: &BoxSpec, targets: &Targets) {
    own_mounts(facts, targets);
    for (what, path) in READ_ONLY {
        let (got, held) = write_folder(Path::new(path));
        facts.add(Axis::Files, what, &got, Some(held));
    }
    for grant in &targets.read_only {
        let at = Path::new(OsStr::from_bytes(&grant.at));
        let (got, held) = write_any(at);
        facts.add(Axis::Files, &write_trial(&grant.at), &got, held);
        if let Some(device) = grant.device {
            let (got, held) = sockets(at, device);
            facts.add(Axis::Files, &socket_trial(&grant.at), &got, held);
        }
    }
    for (grant, names) in &targets.covers {
        let (got, held) = write_covered(names);
        facts.add(Axis::Files, &cover_trial(grant), &got, held);
    }
    for file in &targets.files {
        let (got, held) = see(&file.path, file.which, spec);
        facts.add(Axis::Files, &file.what, got, held);
    }
    let setting = Path::new("/proc/sys/kernel/core_pattern");
    let opened = openat(
        CWD,
        setting,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let (got, held) = refused(opened);
    facts.add(Axis::Files, "write /proc/sys", &got, Some(held));
    for (at, (what, path)) in SERVICES.iter().enumerate() {
        let reached = reach_path(path);
        let outside = targets.services.get(at).copied().flatten();
        let as_outside =
            outside.is_some() && outside == reached.err().map(rustix::io::Errno::raw_os_error);
        let (got, held) = refused(reached);
        match as_outside {
            true => facts.add(Axis::Files, what, &format!("{got}, as outside"), None),
            false => facts.add(Axis::Files, what, &got, Some(held)),
        }
    }
    let side = side_of_abstract(spec.tier);
    match targets.name.as_deref().map(reach_abstract) {
        Some(reached) => {
            let (got, held) = refused(reached);
            facts.add(side, ABSTRACT, &got, Some(held));
        }
        None => facts.add(side, ABSTRACT, "nothing listened", None),
    }
}

const ABSTRACT: &str = "connect abstract socket";

fn own_mounts(facts: &mut Facts, targets: &Targets) {
    let (got, held) = own_namespace("mnt", targets);
    facts.add(Axis::Files, "own mounts", got, held);
}

/// Whether the namespace of this kind is another than the host's.
pub(super) fn own_namespace(name: &str, targets: &Targets) -> (&'static str, Option<bool>) {
    let outside = targets.namespaces.iter().find(|(known, _)| *known == name);
    match (outside, namespace(name)) {
        (Some((_, outside)), Ok(inside)) if inside == *outside => ("the host's", Some(false)),
        (Some(_), Ok(_)) => ("own", Some(true)),
        _ => ("cannot be told", None),
    }
}

/// What came of an attempt that should fail.
pub(super) fn refused<T>(got: rustix::io::Result<T>) -> (String, bool) {
    match got {
        Ok(_) => ("reached".to_owned(), false),
        Err(errno) => (name(Errno::from_raw(errno.raw_os_error())), true),
    }
}

/// Writes a file without a name into a folder: it leaves no trace. That only
/// the rights of the host's own files stand in the way is not the box's doing.
fn write_folder(path: &Path) -> (String, bool) {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => ("written".to_owned(), false),
        Err(errno) => {
            let errno = Errno::from_raw(errno.raw_os_error());
            (name(errno), errno == Errno::EROFS)
        }
    }
}

/// As [`write_folder`], for what may also be a file, which is opened for
/// writing. Rights are asked before the mount is: then the mount says itself
/// that it is read-only.
fn write_any(path: &Path) -> (String, Option<bool>) {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Ok(found) = openat(CWD, path, flags, Mode::empty()) else {
        return ("not there".to_owned(), None);
    };
    let is_dir = fstat(&found)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    let (got, held) = if is_dir {
        write_folder(path)
    } else {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Ok(_) => ("written".to_owned(), false),
            Err(errno) => {
                let errno = Errno::from_raw(errno.raw_os_error());
                (name(errno), errno == Errno::EROFS)
            }
        }
    };
    let read_only =
        || fstatvfs(&found).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::RDONLY));
    let by_rights = got == name(Errno::EACCES);
    (got, Some(held || by_rights && read_only()))
}

/// All that is covered in one grant, in turn, up to what can be written.
fn write_covered(names: &[Vec<u8>]) -> (String, Option<bool>) {
    for name in names {
        let at = OsStr::from_bytes(name);
        match write_any(Path::new(at)) {
            (_, Some(true)) => {}
            (got, held) => return (format!("{}: {got}", at.display()), held),
        }
    }
    (format!("{} names, none", names.len()), Some(true))
}

/// Whether a socket in a folder leads to who listens there outside: through the
/// host's own folder it does (`device` is that one's), through a copy of its
/// names not.
fn sockets(path: &Path, device: u64) -> (String, Option<bool>) {
    let unix = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    match (unix, identity(path)) {
        (Ok(_), None) => ("not there".to_owned(), None),
        (Ok(_), Some((found, _))) if found == device => {
            let got = "lead out: it is the host's own folder";
            (got.to_owned(), Some(false))
        }
        (Ok(_), Some(_)) => ("lead nowhere".to_owned(), Some(true)),
        // No socket with a path can be made, here or anywhere.
        (Err(errno), _) => (refused::<()>(Err(errno)).0, Some(true)),
    }
}

/// Whether the host's own file is at its path.
fn see(path: &Path, which: Option<(u64, u64)>, spec: &BoxSpec) -> (&'static str, Option<bool>) {
    let Some(which) = which else {
        return ("not there outside either", Some(true));
    };
    match identity(path) {
        None => ("not there", Some(true)),
        Some(found) if found != which => ("the box's own", Some(true)),
        Some(_) if is_granted(path, spec) => ("granted", None),
        Some(_) => ("the host's", Some(false)),
    }
}

fn is_granted(path: &Path, spec: &BoxSpec) -> bool {
    spec.grants
        .iter()
        .any(|grant| path.starts_with(OsStr::from_bytes(&grant.at)))
}

/// What the services answer where this process is, in their order; `None` where
/// one lets itself be reached.
pub(super) fn services() -> Vec<Option<i32>> {
    let answer = |path| reach_path(path).err().map(rustix::io::Errno::raw_os_error);
    SERVICES.iter().map(|(_, path)| answer(path)).collect()
}

fn reach_path(path: &str) -> rustix::io::Result<()> {
    reach(&SocketAddrUnix::new(path)?)
}

/// Connects to a listener by its abstract name.
pub(super) fn reach_abstract(name: &[u8]) -> rustix::io::Result<()> {
    reach(&SocketAddrUnix::new_abstract_name(name)?)
}

fn reach(address: &SocketAddrUnix) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        // Its queue is full, or it wants datagrams: it was found all the same.
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::PROTOTYPE) => Ok(()),
        other => other,
    }
}
