//! What this machine can do for a box. The launcher tries and looks
//! ([`Observed`]); what follows from that is decided here, and is the same for
//! `bailey doctor` and for the choice of another way to make a box.

mod judge;
mod words;

use std::fmt;

use bailey_model::{BoxClass, Tier};
use serde::{Deserialize, Serialize};

use crate::fallback::{Asked, Support, ways};

pub use judge::{INSTALLED, LOAD_PROFILE, judge};

/// Most names of one kind (sockets, profiles, mounts) that are told.
pub const MAX_NAMES: usize = 8;

/// One thing that a box needs of the machine, in the order in which they are
/// tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rung {
    /// A user namespace can be made.
    UserNamespace,
    /// And its user map written: without one it is useless.
    UserMap,
    /// And all other namespaces with it.
    Namespaces,
    /// Mounts can be cut off from the host's.
    Propagation,
    /// Mounts can be made and changed on descriptors.
    MountApi,
    /// A tmpfs can be mounted.
    Tmpfs,
    /// An overlay can be mounted.
    Overlay,
    /// A /proc of its own can be mounted.
    Proc,
    /// The loopback device can be brought up.
    Loopback,
    /// A TUN can be made.
    Tun,
    /// A system call filter can be loaded.
    Seccomp,
    /// Landlock, and which version.
    Landlock,
    /// The distribution's bubblewrap works.
    Bubblewrap,
    /// Limits by a cgroup that is the user's.
    Cgroup,
    /// A browser can make its own sandbox in a box.
    Browser,
    /// Profiles of AppArmor that are about bubblewrap or bailey.
    Profiles,
    /// Whether the doctor is confined itself.
    Confined,
    /// Keys on the disk.
    Keys,
    /// The kernel speaks IPv6.
    Ipv6,
    /// A ping socket can be made.
    Ping,
    /// Abstract sockets of a desktop.
    AbstractSockets,
}

impl Rung {
    /// The word in rows and refusals.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserNamespace => "user-namespace",
            Self::UserMap => "user-map",
            Self::Namespaces => "namespaces",
            Self::Propagation => "mount-propagation",
            Self::MountApi => "mount-api",
            Self::Tmpfs => "tmpfs",
            Self::Overlay => "overlay",
            Self::Proc => "proc",
            Self::Loopback => "loopback",
            Self::Tun => "tun",
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Bubblewrap => "bubblewrap",
            Self::Cgroup => "cgroup",
            Self::Browser => "browser",
            Self::Profiles => "apparmor-profiles",
            Self::Confined => "confined",
            Self::Keys => "keys-at-rest",
            Self::Ipv6 => "ipv6",
            Self::Ping => "ping",
            Self::AbstractSockets => "abstract-sockets",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How one attempt ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tried {
    /// An earlier one failed on which it stands.
    #[default]
    NotTried,
    /// It worked.
    Worked,
    /// The kernel's error number.
    Refused(i32),
}

impl Tried {
    /// Whether it worked.
    #[must_use]
    pub fn worked(self) -> bool {
        self == Self::Worked
    }
}

/// What the distribution's bubblewrap was found to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bubblewrap {
    /// Its version, as it says itself.
    pub version: String,
    /// What it said when a box was tried and not made, `None` where it was.
    pub failed: Option<String>,
}

/// The cgroup that the user's processes are in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its path below the root of cgroup v2, where there is one.
    pub path: Option<String>,
    /// Whether the user may make groups in it.
    pub delegated: bool,
    /// Making one there, and removing it.
    pub made: Tried,
    /// Controllers that it could give to those.
    pub controllers: Vec<String>,
}

/// What holds the doctor itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// `Seccomp:` of /proc/self/status; 2 is a filter.
    pub seccomp: u8,
    /// `NoNewPrivs:`.
    pub no_new_privs: bool,
    /// What AppArmor or its like calls this process.
    pub label: Option<String>,
    /// What says that this is a container.
    pub container: Option<String>,
}

/// Settings of the system: they explain a refusal, never stand for one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `kernel.apparmor_restrict_unprivileged_userns`.
    pub apparmor_userns: Option<u64>,
    /// `kernel.unprivileged_userns_clone`.
    pub userns_clone: Option<u64>,
    /// `user.max_user_namespaces`.
    pub max_user_namespaces: Option<u64>,
}

/// A file of AppArmor that is about what a box needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name in `/etc/apparmor.d`.
    pub file: String,
    /// Whether it names bubblewrap.
    pub bwrap: bool,
    /// Whether it names bailey's launcher.
    pub bailey: bool,
    /// Whether it allows user namespaces.
    pub userns: bool,
}

/// The launcher's own file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherFile {
    /// Where it is.
    pub path: Vec<u8>,
    /// Whether nobody but root can change it, or what lies on the way to it.
    pub of_root: bool,
}

/// Keys of the node on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtRest {
    /// Where they are, or will be.
    pub path: String,
    /// Their permission bits, where they are there.
    pub mode: Option<u32>,
    /// Whether the disk below is known to be encrypted.
    pub encrypted: bool,
    /// Whether they are sealed by a key of the Secret Service.
    pub sealed: bool,
    /// Whether there is a Secret Service that would seal them.
    pub service: bool,
}

/// All that was tried and looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The user that tried.
    pub uid: u32,
    /// And its group.
    pub gid: u32,
    /// Making a user namespace alone.
    pub user_namespace: Tried,
    /// Writing its maps.
    pub user_map: Tried,
    /// Making all the namespaces of a box in one call.
    pub namespaces: Tried,
    /// The rest is tried in these.
    pub propagation: Tried,
    /// Copying a mount and changing it, by descriptor.
    pub mount_api: Tried,
    /// A tmpfs.
    pub tmpfs: Tried,
    /// An overlay of two lower layers.
    pub overlay: Tried,
    /// A fresh /proc.
    pub proc: Tried,
    /// What is mounted over parts of the host's own.
    pub proc_hidden: Vec<String>,
    /// Its `hidepid` option.
    pub hidepid: Option<String>,
    /// Bringing up `lo`.
    pub loopback: Tried,
    /// Making a TUN.
    pub tun: Tried,
    /// The permission bits of `/dev/net/tun`, where it is.
    pub tun_mode: Option<u32>,
    /// A user, process and network namespace inside, and chroot in it.
    pub nested: Tried,
    /// Loading a filter.
    pub seccomp: Tried,
    /// Landlock's ABI version, 0 for none.
    pub landlock: u32,
    /// Confining a process by it.
    pub restrict: Tried,
    /// The distribution's bubblewrap, where it is installed.
    pub bubblewrap: Option<Bubblewrap>,
    /// For limits.
    pub cgroup: Cgroup,
    /// What holds the doctor.
    pub confined: Confined,
    /// What explains.
    pub settings: Settings,
    /// What AppArmor was given.
    pub profiles: Vec<Profile>,
    /// The launcher's file.
    pub launcher: LauncherFile,
    /// Whether the kernel speaks IPv6.
    pub ipv6: bool,
    /// Making a ping socket.
    pub ping: Tried,
    /// The first and the last group that may, by `net.ipv4.ping_group_range`.
    pub ping_groups: Option<(u32, u32)>,
    /// Abstract names of X11 and of buses that somebody listens on.
    pub abstract_sockets: Vec<String>,
}

/// How well the machine does at one rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All that a box needs.
    Ok,
    /// A box can be made without it, and holds less or can do less.
    Weaker,
    /// It is not there.
    No,
}

impl Outcome {
    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Weaker => "weaker",
            Self::No => "no",
        }
    }
}

/// What was found at one rung.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub rung: Rung,
    /// How well it does.
    pub outcome: Outcome,
    /// What came of the attempt. May hold names that others chose.
    pub fact: String,
    /// What a person loses by it; empty where nothing.
    pub lost: String,
    /// The one command that helps and changes nothing else; empty where there
    /// is none, or nothing to help.
    pub remedy: String,
}

/// What all of it adds up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Tiers that can be had in full.
    pub full: Vec<Tier>,
    /// Whether any box can be made at all.
    pub any: bool,
    /// Whether a browser can be given its own sandbox in a box.
    pub browser: bool,
}

impl Verdict {
    /// What the command ends with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (self.full.contains(&Tier::Gated), self.any) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 125,
        }
    }
}

impl Observed {
    /// What ways of making a box there are.
    #[must_use]
    pub fn support(&self) -> Support {
        let rungs = [
            (Rung::UserNamespace, self.user_namespace),
            (Rung::UserMap, self.user_map),
            (Rung::Namespaces, self.namespaces),
            (Rung::Propagation, self.propagation),
            (Rung::MountApi, self.mount_api),
            (Rung::Tmpfs, self.tmpfs),
            (Rung::Proc, self.proc),
            (Rung::Loopback, self.loopback),
            (Rung::Seccomp, self.seccomp),
        ];
        let failed = rungs.iter().find(|(_, tried)| !tried.worked());
        let of = |tried: Tried, rung| if tried.worked() { Ok(()) } else { Err(rung) };
        Support {
            namespaces: failed.map_or(Ok(()), |(rung, _)| Err(*rung)),
            overlay: of(self.overlay, Rung::Overlay),
            tun: of(self.tun, Rung::Tun),
            bubblewrap: match &self.bubblewrap {
                Some(found) if found.failed.is_none() && self.seccomp.worked() => Ok(()),
                _ => Err(Rung::Bubblewrap),
            },
            landlock: match (self.seccomp.worked(), self.landlock) {
                (false, _) => Err(Rung::Seccomp),
                (true, abi) if abi < crate::fallback::LANDLOCK_ALONE => Err(Rung::Landlock),
                (true, _) => of(self.restrict, Rung::Landlock),
            },
        }
    }

    /// Which boxes can be made.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let support = self.support();
        let asked = |tier, weaker| Asked {
            tier,
            class: BoxClass::Plain,
            read_only_folder: false,
            weaker,
        };
        let can = |tier, weaker| ways(&asked(tier, weaker), &support).is_ok();
        let full = Tier::ALL.into_iter().filter(|tier| can(*tier, false));
        Verdict {
            full: full.collect(),
            any: Tier::ALL.into_iter().any(|tier| can(tier, true)),
            browser: support.namespaces.is_ok() && self.nested.worked(),
        }
    }
}

#[cfg(test)]
mod tests;
