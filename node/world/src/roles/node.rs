//! The first process of a node.

use std::fs;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;

use super::{Args, tell};
use crate::control::{Failure, Line, Step as _};

/// `node UID GID`
pub(super) fn run(args: &mut Args) -> Result<i32, Failure> {
    let uid: u32 = args.number("uid")?;
    let gid: u32 = args.number("gid")?;
    fresh_proc()?;
    // The world's root is this same uid outside, which is what it maps here.
    unshare(CloneFlags::CLONE_NEWUSER).step("unshare(CLONE_NEWUSER) for a node")?;
    fs::write("/proc/self/setgroups", "deny").step("write setgroups of a node")?;
    fs::write("/proc/self/uid_map", format!("{uid} 0 1")).step("write uid_map of a node")?;
    fs::write("/proc/self/gid_map", format!("{gid} 0 1")).step("write gid_map of a node")?;
    // After the change of credentials, which may take it away.
    set_pdeathsig(Signal::SIGKILL).step("prctl(PR_SET_PDEATHSIG)")?;

    let children = SigSet::from(Signal::SIGCHLD);
    children.thread_block().step("block SIGCHLD")?;
    tell(&Line::Done);
    loop {
        match waitpid(None, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Nobody to wait for: sleep until somebody was adopted and ended.
            Err(_) => {
                children.wait().step("wait for SIGCHLD")?;
            }
        }
    }
}

/// A `/proc` of this pid namespace.
pub(super) fn fresh_proc() -> Result<(), Failure> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).map_err(|error| {
        let detail = format!("{error}; a container whose /proc is partly covered forbids it");
        Failure::new("mount /proc", detail)
    })
}
