//! What is never granted to a box, as far as its path tells.

use std::fmt;

/// The folders of the node that asks. All paths are absolute and canonical
/// (what `/proc/self/fd/N` says of a descriptor), or the comparison means
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFolders {
    /// Its configuration, state, cache and runtime folders.
    pub own: Vec<Vec<u8>>,
    /// Where its programs lie: never writable, since the node runs them outside
    /// every box.
    pub programs: Vec<Vec<u8>>,
    /// The user's runtime folder (`XDG_RUNTIME_DIR`), if there is one.
    pub runtime: Option<Vec<u8>>,
}

/// Why a path is never granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is the whole machine.
    Root,
    /// It is not an absolute path.
    NotAbsolute,
    /// It is the socket of a container engine, or the folder of one: who can
    /// use it is root, or as good as the user outside.
    ContainerEngine,
    /// It holds, or lies in, the node's own folders.
    NodeFolder,
    /// It holds, or lies in, the folder of the node's programs, and would be writable.
    Programs,
    /// It holds, or lies in, a runtime folder: sessions and services listen there.
    Runtime,
    /// It belongs to the kernel: processes and devices of the host.
    Kernel,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "it is the whole machine",
            Self::NotAbsolute => "it is not an absolute path",
            Self::ContainerEngine => {
                "a container engine listens there, which can do all that you can"
            }
            Self::NodeFolder => "it holds bailey's own folders (keys and records)",
            Self::Programs => "it holds bailey's own programs, which run outside every box",
            Self::Runtime => "sessions and services of the machine listen there",
            Self::Kernel => "it shows the host's processes and devices",
        })
    }
}

/// Names that container engines give their sockets.
const ENGINE_SOCKETS: &[&[u8]] = &[
    b"docker.sock",
    b"docker.raw.sock",
    b"docker-cli.sock",
    b"podman.sock",
    b"containerd.sock",
    b"containerd.sock.ttrpc",
    b"crio.sock",
    b"buildkitd.sock",
    b"dockershim.sock",
    b"k3s.sock",
    b"lxd.socket",
    b"incus.socket",
    b"unix.socket",
];
/// Folders where engines put their sockets, below any home.
const ENGINE_HOME_FOLDERS: &[&[u8]] = &[
    b".docker/run",
    b".docker/desktop",
    b".rd",
    b".colima",
    b".orbstack",
    b".lima",
];
/// Folders of engines.
const ENGINE_FOLDERS: &[&[u8]] = &[
    b"/run/docker",
    b"/run/podman",
    b"/run/containerd",
    b"/run/crio",
    b"/run/buildkit",
    b"/var/lib/docker",
    b"/var/lib/containerd",
    b"/var/lib/lxd",
    b"/var/lib/incus",
    b"/var/snap/lxd",
    b"/var/snap/docker",
];
/// Where sessions and services listen; `/var/run` is the old name of `/run`.
const RUNTIME_FOLDERS: &[&[u8]] = &[
    b"/run/user",
    b"/run/dbus",
    b"/run/systemd",
    b"/run/udev",
    b"/var/run",
];
const KERNEL_FOLDERS: &[&[u8]] = &[b"/proc", b"/sys", b"/dev"];

/// Judges a path that somebody asks to grant, read-only or writable.
///
/// It refuses what holds such a place as much as what lies in one. Only the
/// path is judged; sockets in the granted folder are another check.
#[must_use]
pub fn refuse_grant(path: &[u8], read_only: bool, folders: &NodeFolders) -> Option<Reason> {
    if !path.starts_with(b"/") {
        return Some(Reason::NotAbsolute);
    }
    let parts: Vec<&[u8]> = parts_of(path);
    let Some(name) = parts.last() else {
        return Some(Reason::Root);
    };
    let touches = |other: &[u8]| {
        let other = parts_of(other);
        parts.starts_with(&other) || other.starts_with(&parts)
    };
    if folders.own.iter().any(|own| touches(own)) {
        return Some(Reason::NodeFolder);
    }
    if !read_only && folders.programs.iter().any(|programs| touches(programs)) {
        return Some(Reason::Programs);
    }
    let in_engine_home = |folder: &&[u8]| {
        let folder = parts_of(folder);
        let holds = (1..folder.len()).any(|length| parts.ends_with(&folder[..length]));
        holds || parts.windows(folder.len()).any(|window| window == folder)
    };
    let lies_in = |folder: &&[u8]| parts.starts_with(&parts_of(folder));
    if is_engine_socket(name)
        || ENGINE_FOLDERS.iter().any(lies_in)
        || ENGINE_HOME_FOLDERS.iter().any(in_engine_home)
    {
        return Some(Reason::ContainerEngine);
    }
    if RUNTIME_FOLDERS
        .iter()
        .chain(ENGINE_FOLDERS)
        .any(|folder| touches(folder))
        || folders.runtime.as_deref().is_some_and(touches)
    {
        return Some(Reason::Runtime);
    }
    KERNEL_FOLDERS
        .iter()
        .any(|folder| touches(folder))
        .then_some(Reason::Kernel)
}

/// Whether a container engine gives its socket this name.
#[must_use]
pub fn is_engine_socket(name: &[u8]) -> bool {
    ENGINE_SOCKETS.contains(&name)
}

fn parts_of(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> NodeFolders {
        NodeFolders {
            own: vec![
                b"/home/ann/.local/state/bailey".to_vec(),
                b"/home/ann/.config/bailey".to_vec(),
            ],
            programs: vec![b"/home/bob/bin".to_vec()],
            runtime: Some(b"/tmp/runtime-ann".to_vec()),
        }
    }

    #[test]
    fn what_holds_or_lies_in_a_forbidden_place_is_refused_with_its_reason() {
        for (path, reason) in [
            ("/", Reason::Root),
            ("//", Reason::Root),
            ("home/ann", Reason::NotAbsolute),
            ("", Reason::NotAbsolute),
            ("/home/ann", Reason::NodeFolder),
            ("/home", Reason::NodeFolder),
            ("/home/ann/.config/bailey/keys", Reason::NodeFolder),
            ("/run/docker.sock", Reason::ContainerEngine),
            ("/srv/odd/docker.sock", Reason::ContainerEngine),
            ("/run/user/1000/podman/podman.sock", Reason::ContainerEngine),
            ("/run/containerd", Reason::ContainerEngine),
            ("/var/lib/docker/volumes", Reason::ContainerEngine),
            ("/home/bob/.docker/run", Reason::ContainerEngine),
            ("/home/bob/.colima/default", Reason::ContainerEngine),
            ("/run", Reason::Runtime),
            ("/var", Reason::Runtime),
            ("/run/user/1000", Reason::Runtime),
            ("/run/user/1000/bus", Reason::Runtime),
            ("/run/dbus/system_bus_socket", Reason::Runtime),
            ("/tmp/runtime-ann", Reason::Runtime),
            ("/tmp", Reason::Runtime),
            ("/proc/1", Reason::Kernel),
            ("/dev", Reason::Kernel),
        ] {
            assert_eq!(
                refuse_grant(path.as_bytes(), true, &folders()),
                Some(reason),
                "{path}"
            );
        }
    }

    #[test]
    fn an_ordinary_folder_is_not_refused() {
        for path in [
            "/home/ann/src/project",
            "/srv/data",
            "/home/ann/.config/baileys",
            "/mnt",
            "/devel",
        ] {
            assert_eq!(
                refuse_grant(path.as_bytes(), true, &folders()),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn the_folder_of_the_programs_may_be_read_and_never_written() {
        for path in ["/home/bob/bin", "/home/bob", "/home/bob/bin/bailey-gate"] {
            assert_eq!(
                refuse_grant(path.as_bytes(), false, &folders()),
                Some(Reason::Programs)
            );
            assert_eq!(refuse_grant(path.as_bytes(), true, &folders()), None);
        }
        assert_eq!(refuse_grant(b"/home/bob/src", false, &folders()), None);
    }

    #[test]
    fn a_folder_that_holds_an_engines_is_refused_too() {
        let docker = refuse_grant(b"/home/bob/.docker", true, &folders());
        assert_eq!(docker, Some(Reason::ContainerEngine));
    }
}
