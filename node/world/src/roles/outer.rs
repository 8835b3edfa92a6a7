//! The process between the owner and the world.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_dumpable;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

use super::{Args, again, tell};
use crate::control::{Failure, Line, Step as _};

/// Folders of a node, below its own.
const FOLDERS: [&str; 6] = ["home", "config", "state", "cache", "data", "run"];

/// `outer DIR UID GID NODES TUN PING`
pub(super) fn run(args: &mut Args) -> Result<i32, Failure> {
    let dir = args.path("folder")?;
    let uid: u32 = args.number("uid")?;
    let gid: u32 = args.number("gid")?;
    let nodes: u8 = args.number("nodes")?;
    let tun: u8 = args.number("tun")?;
    let ping: u8 = args.number("ping")?;

    become_ordinary(uid, gid)?;
    for number in 1..=nodes {
        folders(&dir.join(format!("n{number}")), number).step("make the nodes' folders")?;
    }
    if tun != 0 {
        try_tun()?;
    }
    new_world(uid, gid)?;

    let mut child = again("init")
        .arg(&dir)
        .args([uid, gid, nodes.into(), ping.into()].map(|number| number.to_string()))
        .stdin(Stdio::inherit())
        .spawn()
        .step("start the world's first process")?;
    tell(&Line::Init(child.id()));
    let status = child.wait().step("wait for the world's end")?;
    clear(&dir);
    Ok(status.code().unwrap_or(super::EXIT_FAILED))
}

/// Leaves root for good. An ordinary caller stays who it is.
pub(super) fn become_ordinary(uid: u32, gid: u32) -> Result<(), Failure> {
    if geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        setgroups(&[]).step("setgroups()")?;
        setresgid(gid, gid, gid).step("setresgid()")?;
        setresuid(uid, uid, uid).step("setresuid()")?;
        // The change of credentials hid this process's /proc from itself.
        set_dumpable(true).step("prctl(PR_SET_DUMPABLE)")?;
    }
    Ok(())
}

fn folders(dir: &Path, number: u8) -> io::Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(dir.join(folder))?;
        fs::set_permissions(dir.join(folder), Permissions::from_mode(0o700))?;
    }
    fs::write(dir.join("resolv.conf"), "nameserver 192.168.1.1\n")?;
    fs::write(
        dir.join("hosts"),
        format!("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 n{number}\n"),
    )
}

fn try_tun() -> Result<(), Failure> {
    let path = "/dev/net/tun";
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(drop)
        .map_err(|error| {
            let cure = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the kernel's tun module is absent: `modprobe tun` as root"
                }
                io::ErrorKind::PermissionDenied => "`chmod 0666 /dev/net/tun` as root",
                _ => "it must open for reading and writing by an ordinary user",
            };
            Failure::new(format!("open {path}"), format!("{error}; {cure}"))
        })
}

/// Makes the namespaces that the world's first process will be born into.
fn new_world(uid: u32, gid: u32) -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|error| Failure::new("unshare(CLONE_NEWUSER)", format!("{error}{}", hint())))?;
    fs::write("/proc/self/setgroups", "deny").step("write /proc/self/setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).step("write /proc/self/uid_map")?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).step("write /proc/self/gid_map")?;
    let flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    unshare(flags).map_err(|error| {
        let step = "unshare(CLONE_NEWNS|NEWNET|NEWIPC|NEWUTS|NEWPID)";
        Failure::new(step, format!("{error}{}", hint()))
    })
}

/// The switches of this machine that forbid user namespaces, where they do.
fn hint() -> String {
    let forbids = [
        ("/proc/sys/user/max_user_namespaces", "0", ""),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", ""),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            " (AppArmor gives a program without a profile of its own no capability there)",
        ),
    ];
    let mut hint = String::new();
    for (path, value, why) in forbids {
        if fs::read_to_string(path).is_ok_and(|text| text.trim() == value) {
            hint.push_str("; ");
            hint.push_str(path);
            hint.push_str(" is ");
            hint.push_str(value);
            hint.push_str(why);
        }
    }
    if hint.is_empty() {
        hint.push_str(
            "; user namespaces are refused here (a container's seccomp filter does that)",
        );
    }
    hint
}

/// Removes the world's folder, when its owner could not.
fn clear(dir: &Path) {
    let _the_owner_may_have_been_first = fs::remove_dir_all(dir);
}
