//! What can be read of the machine: it explains what was tried.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bailey_fence_plan::doctor::{
    Cgroup, Confined, LauncherFile, MAX_NAMES, Observed, Profile, Settings, Tried,
};
use rustix::fs::{Access, access};

/// Most bytes that are read of one file.
const MAX_FILE: u64 = 256 << 10;
/// Most files of AppArmor that are looked at.
const MAX_PROFILES: usize = 1024;
const PROFILES: &str = "/etc/apparmor.d";
/// `__SO_ACCEPTCON` in the flags of /proc/net/unix: somebody listens.
const LISTENS: u32 = 0x1_0000;
/// How the abstract names of X11 and of buses start.
const DESKTOP: &[&str] = &[
    "@/tmp/.X11-unix/",
    "@/tmp/.ICE-unix/",
    "@/tmp/dbus-",
    "@dbus",
];
/// Every system with `binfmt_misc` has this over a folder that is empty for good.
const ALWAYS_THERE: &str = "/proc/sys/fs/binfmt_misc";

/// Reads all of it.
pub(super) fn observe(seen: &mut Observed) {
    let mounts = mounts();
    seen.proc_hidden = hidden(&mounts);
    seen.hidepid = hidepid(&mounts);
    seen.tun_mode = fs::metadata("/dev/net/tun")
        .ok()
        .map(|meta| meta.mode() & 0o7777);
    seen.cgroup = cgroup(&mounts);
    seen.confined = confined();
    seen.settings = Settings {
        apparmor_userns: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
        max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
    };
    seen.profiles = profiles();
    seen.launcher = launcher();
    seen.ipv6 = Path::new("/proc/net/if_inet6").exists();
    seen.ping_groups = groups(&text("/proc/sys/net/ipv4/ping_group_range"));
    seen.abstract_sockets = abstract_sockets(&text("/proc/net/unix"));
}

/// The text of a file, empty where it cannot be read.
fn text(path: impl AsRef<Path>) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is as good as what is there.
    let _ = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `FIRST LAST` (icmp(7)).
fn groups(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.trim().split_once(char::is_whitespace)?;
    Some((first.parse().ok()?, last.trim().parse().ok()?))
}

fn number(path: &str) -> Option<u64> {
    text(path).trim().parse().ok()
}

/// One line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    root: String,
    at: String,
    kind: String,
    options: String,
}

fn mounts() -> Vec<Mount> {
    text("/proc/self/mountinfo")
        .lines()
        .filter_map(mount)
        .collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, at) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let kind = right.next()?;
    Some(Mount {
        root: root.to_owned(),
        at: at.to_owned(),
        kind: kind.to_owned(),
        options: right.nth(1).unwrap_or_default().to_owned(),
    })
}

/// What is mounted over parts of /proc, its own parts again (read-only) included.
fn hidden(mounts: &[Mount]) -> Vec<String> {
    let over = |mount: &&Mount| mount.at.starts_with("/proc/") && mount.at != ALWAYS_THERE;
    let names = mounts.iter().filter(over).map(|mount| mount.at.clone());
    names.take(MAX_NAMES).collect()
}

fn hidepid(mounts: &[Mount]) -> Option<String> {
    let proc = mounts.iter().rfind(|mount| mount.at == "/proc")?;
    let mut options = proc.options.split(',');
    options.find_map(|option| option.strip_prefix("hidepid=").map(str::to_owned))
}

fn cgroup(mounts: &[Mount]) -> Cgroup {
    let own = text("/proc/self/cgroup");
    let path = own.lines().find_map(|line| line.strip_prefix("0::"));
    let root = mounts
        .iter()
        .find(|mount| mount.kind == "cgroup2" && mount.root == "/");
    let (Some(path), Some(root)) = (path, root) else {
        return Cgroup::default();
    };
    let folder = Path::new(&root.at).join(path.trim_start_matches('/'));
    let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    let controllers = text(folder.join("cgroup.controllers"));
    let trial = folder.join(format!("bailey-doctor-{}", std::process::id()));
    let made = fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial));
    Cgroup {
        path: Some(path.to_owned()),
        made: match made.map_err(|error| error.raw_os_error()) {
            Ok(()) => Tried::Worked,
            Err(number) => Tried::Refused(number.unwrap_or(libc::EIO)),
        },
        delegated: writable(&folder) && writable(&folder.join("cgroup.procs")),
        controllers: controllers.split_whitespace().map(str::to_owned).collect(),
    }
}

fn confined() -> Confined {
    let status = text("/proc/self/status");
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u8>().ok())
            .unwrap_or_default()
    };
    let label = text("/proc/self/attr/current");
    let label = label.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let container = if Path::new("/run/.containerenv").exists() {
        Some("podman".to_owned())
    } else if Path::new("/.dockerenv").exists() {
        Some("docker".to_owned())
    } else {
        let named = text("/run/systemd/container");
        Some(named.trim().to_owned()).filter(|name| !name.is_empty())
    };
    Confined {
        seccomp: value("Seccomp:"),
        no_new_privs: value("NoNewPrivs:") != 0,
        label: Some(label.to_owned()).filter(|label| !label.is_empty() && label != "unconfined"),
        container,
    }
}

/// Files that are about bubblewrap or bailey first.
fn profiles() -> Vec<Profile> {
    let Ok(entries) = fs::read_dir(PROFILES) else {
        return Vec::new();
    };
    let files = entries.flatten().take(MAX_PROFILES);
    let mut found: Vec<Profile> = files
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| profile(&entry.file_name().to_string_lossy(), &text(entry.path())))
        .collect();
    found.sort_by(|one, two| {
        let key = |of: &Profile| (!of.bailey, !of.bwrap, of.file.clone());
        key(one).cmp(&key(two))
    });
    found.truncate(MAX_NAMES);
    found
}

fn profile(file: &str, text: &str) -> Option<Profile> {
    let rules = || {
        text.lines()
            .map(|line| line.split('#').next().unwrap_or_default())
    };
    let names = |word: &str| rules().any(|rule| rule.contains(word));
    let found = Profile {
        file: file.to_owned(),
        bwrap: names("bwrap"),
        bailey: names("bailey"),
        userns: names("userns"),
    };
    (found.bwrap || found.bailey || found.userns).then_some(found)
}

fn launcher() -> LauncherFile {
    let Ok(path) = fs::read_link("/proc/self/exe") else {
        return LauncherFile::default();
    };
    // Each folder on the way could be exchanged by whom it belongs to.
    let of_root = path.ancestors().all(|part| {
        fs::symlink_metadata(part)
            .is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o022 == 0 && !meta.is_symlink())
    });
    LauncherFile {
        path: OsStr::as_bytes(path.as_os_str()).to_vec(),
        of_root,
    }
}

/// Abstract names of a desktop that somebody listens on.
fn abstract_sockets(table: &str) -> Vec<String> {
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let flags = words.nth(3)?;
            let name = words.nth(3)?;
            let listens = u32::from_str_radix(flags, 16).is_ok_and(|bits| bits & LISTENS != 0);
            let known = DESKTOP.iter().any(|start| name.starts_with(start));
            (listens && known).then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names.dedup();
    names.truncate(MAX_NAMES);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_over_a_part_of_proc_is_seen_and_the_usual_one_is_not() {
        let lines = "22 1 0:20 / /proc rw,nosuid - proc proc rw,hidepid=invisible\n\
                     23 22 0:21 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
                     24 22 0:22 / /proc/kcore rw shared:1 - tmpfs tmpfs rw\n";
        let mounts: Vec<Mount> = lines.lines().filter_map(mount).collect();
        assert_eq!(hidden(&mounts), ["/proc/kcore"]);
        assert_eq!(hidepid(&mounts).as_deref(), Some("invisible"));
    }

    #[test]
    fn only_a_desktops_names_that_somebody_listens_on_count() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0: 00000002 00000000 00010000 0001 01 1 @/tmp/.X11-unix/X0\n\
                     0: 00000003 00000000 00000000 0001 03 2 @/tmp/.X11-unix/X1\n\
                     0: 00000002 00000000 00010000 0001 01 3 @/tmp/dbus-a1\n\
                     0: 00000002 00000000 00010000 0001 01 4 /tmp/.X11-unix/X0\n\
                     0: 00000002 00000000 00010000 0001 01 5 @other\n\
                     0: 00000002 00000000 00010000 0001 01 6\n";
        assert_eq!(
            abstract_sockets(table),
            ["@/tmp/.X11-unix/X0", "@/tmp/dbus-a1"]
        );
    }

    #[test]
    fn a_word_in_a_comment_is_no_rule() {
        assert_eq!(profile("x", "# userns for bwrap\nprofile x {}\n"), None);
        let found = profile("bwrap", "profile bwrap /usr/bin/bwrap {\n  userns,\n}\n");
        assert!(found.is_some_and(|found| found.bwrap && found.userns && !found.bailey));
    }
}
