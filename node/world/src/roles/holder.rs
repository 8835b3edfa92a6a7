//! Makes one node's namespaces.

use std::fs;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::sethostname;

use super::{Args, again, tell};
use crate::at;
use crate::command::ip;
use crate::control::{Failure, Line, Step as _};

/// `holder DIR NUMBER UID GID IPV6 PING`
pub(super) fn run(args: &mut Args) -> Result<i32, Failure> {
    set_pdeathsig(Signal::SIGKILL).step("prctl(PR_SET_PDEATHSIG)")?;
    let dir = args.path("folder")?;
    let number: u8 = args.number("number")?;
    let uid: u32 = args.number("uid")?;
    let gid: u32 = args.number("gid")?;
    let ipv6 = args.number::<u8>("ipv6")? != 0;
    let ping = args.number::<u8>("ping")? != 0;

    let flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    unshare(flags).step("unshare() for a node")?;
    quick_addresses(ipv6)?;
    if ping {
        // As a distribution's systemd does: everybody may ping (icmp(7)). Only
        // this group is mapped here.
        let range = "/proc/sys/net/ipv4/ping_group_range";
        fs::write(range, "0 0").step(range)?;
    }
    tell(&Line::Made);
    // The cable is laid meanwhile.
    let mut go = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut go)
        .step("wait for the cable")?;
    if go.is_empty() {
        return Err(Failure::new("wait for the cable", "the world ended"));
    }
    sethostname(format!("n{number}")).step("sethostname()")?;
    ip(&format!("network of n{number}"), &network(number, ipv6))?;
    own_files(&dir.join(format!("n{number}")))?;

    // Only now: the first process born into a pid namespace is its pid 1.
    unshare(CloneFlags::CLONE_NEWPID).step("unshare(CLONE_NEWPID) for a node")?;
    let mut child = again("node")
        .args([uid, gid].map(|number| number.to_string()))
        .stdin(Stdio::null())
        .spawn()
        .step("start a node's first process")?;
    tell(&Line::Node(child.id()));
    let status = child.wait().step("wait for a node's end")?;
    Ok(status.code().unwrap_or(super::EXIT_FAILED))
}

/// Makes IPv6 addresses usable at once: nobody else can hold them here.
pub(super) fn quick_addresses(ipv6: bool) -> Result<(), Failure> {
    if ipv6 {
        for scope in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{scope}/accept_dad");
            fs::write(&path, "0").step(&path)?;
        }
    }
    Ok(())
}

fn network(number: u8, ipv6: bool) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("addr add {}/24 brd + dev eth0", at::node_v4(number)),
    ];
    if ipv6 {
        lines.push(format!(
            "addr add {}/64 dev eth0 nodad",
            at::node_ula(number)
        ));
        lines.push(format!(
            "addr add {}/64 dev eth0 nodad",
            at::node_gua(number)
        ));
    }
    lines.push("link set eth0 up".to_owned());
    lines.push(format!("route add default via {}", at::ROUTER_V4));
    if ipv6 {
        lines.push(format!("route add ::/0 via {} dev eth0", at::ROUTER_GUA));
    }
    lines
}

/// An empty `/run`, and name resolution files of the node's own.
fn own_files(dir: &Path) -> Result<(), Failure> {
    // Where `/etc/resolv.conf` is a link, what it names is covered: readers
    // follow the link. It often points into `/run`, which is empty now.
    let real = follow(Path::new("/etc/resolv.conf"))?;
    fresh_run()?;
    if real.starts_with("/run") {
        if let Some(folder) = real.parent() {
            fs::create_dir_all(folder).step("make the folder of resolv.conf")?;
        }
        fs::write(&real, "").step("make resolv.conf")?;
    }
    bind(&dir.join("resolv.conf"), &real)?;
    if Path::new("/etc/hosts").exists() {
        bind(&dir.join("hosts"), Path::new("/etc/hosts"))?;
    }
    Ok(())
}

/// Covers `/run`: the machine's daemons answer there.
pub(super) fn fresh_run() -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        flags,
        Some("mode=755,size=16m"),
    )
    .step("mount a tmpfs on /run")
}

fn bind(from: &Path, to: &Path) -> Result<(), Failure> {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).step(&format!(
        "bind {} over {}",
        from.display(),
        to.display()
    ))
}

/// What a chain of links names in the end, whether or not it exists.
fn follow(path: &Path) -> Result<PathBuf, Failure> {
    /// As many as the kernel follows (path_resolution(7)).
    const MAX_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                path = normal(&folder.join(target));
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Ok(path),
            Err(_) if path.starts_with("/run") => return Ok(path),
            Err(error) => {
                return Err(Failure::new(format!("find {}", path.display()), error));
            }
        }
    }
    Err(Failure::new(
        format!("find {}", path.display()),
        "too many links",
    ))
}

/// Takes `.` and `..` out, and `/var/run` for the `/run` that it is.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    match out.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_link_out_of_etc_is_found_in_run() {
        let link = Path::new("/etc").join("../run/systemd/resolve/stub-resolv.conf");
        assert_eq!(
            normal(&link),
            Path::new("/run/systemd/resolve/stub-resolv.conf")
        );
        assert_eq!(normal(Path::new("/var/run/x/./y")), Path::new("/run/x/y"));
    }
}
