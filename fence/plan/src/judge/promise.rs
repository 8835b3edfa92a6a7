//! What each tier promises, and on which trials each side rests.

use bailey_model::{Axis, BoxClass, Tier};

use super::Asked;

/// A trial's other end: the gate told of the dial that it refused.
pub(super) const GATE_SAW: &str = "the gate told of the dial";
/// A listener of the host's at an abstract name.
pub(super) const ABSTRACT: &str = "connect abstract socket";

/// A user namespace that the box made itself gives it every capability inside.
const NESTED: &str = "make a user namespace";

/// The sides that a tier rests on.
pub(super) fn sides(tier: Tier) -> &'static [Axis] {
    use Axis::{Capabilities, Files, Network, Processes, Syscalls};
    match tier {
        Tier::L1 => &[Files, Processes],
        Tier::L15 => &[Files, Processes, Syscalls, Capabilities],
        Tier::L2 | Tier::Gated => &[Files, Processes, Syscalls, Capabilities, Network],
    }
}

/// Whether a tier promises a side.
pub(super) fn rests_on(tier: Tier, axis: Axis) -> bool {
    sides(tier).contains(&axis)
}

/// On which side abstract names are: a network namespace has its own, so with
/// the network they are kept apart; where it is shared, Landlock does it, which
/// has to do with files.
#[must_use]
pub fn side_of_abstract(tier: Tier) -> Axis {
    if tier.shares_network() {
        Axis::Files
    } else {
        Axis::Network
    }
}

/// Whether a class is meant to get through with this.
pub(super) fn opens(class: BoxClass, what: &str) -> bool {
    class == BoxClass::Browser && BROWSER.contains(&what)
}

const BROWSER: &[&str] = &["unshare user", "unshare net", "chroot", NESTED];

const FILES: &[&str] = &[
    "own mounts",
    "write /",
    "write /usr",
    "write /etc",
    "write /dev",
    "open /etc/shadow",
    "open /run",
    "open /sys",
    "open /var",
    "open the node's folder",
    "write /proc/sys",
];
const PROCESSES: &[&str] = &[
    "own processes",
    "own shared memory",
    "signal a process outside",
    "see processes",
    "read /proc/1/exe",
    "read /proc/1/environ",
    "read /proc/1/mem",
    "trace pid 1",
];
const SYSCALLS: &[&str] = &[
    "unshare user",
    "unshare net",
    "clone3",
    "setns",
    "mount",
    "open_tree",
    "chroot",
    "bpf",
    "perf_event_open",
    "keyctl",
    "add_key",
    "io_uring_setup",
    "userfaultfd",
    "kexec_load",
    "init_module",
    "process_vm_readv",
    "pidfd_getfd",
    "socket AF_VSOCK",
    "socket AF_PACKET",
    "socket AF_ALG",
    "ioctl TIOCSTI",
    "ioctl TIOCSTI, high bits",
    "ioctl TIOCLINUX",
    "chmod set-id",
    "number 999",
    "filter",
];
const CAPABILITIES: &[&str] = &[
    "own users",
    "inheritable set",
    "permitted set",
    "effective set",
    "bounding set",
    "ambient set",
    "no new privileges",
    "set the host name",
    "open a raw socket",
    "change the bounding set",
    "set-id programs",
    NESTED,
];
const NETWORK: &[&str] = &["own network", "devices", "connect the host's loopback"];

/// The trials that must all have held for a side to be fenced, or decided.
#[must_use]
pub fn trials(axis: Axis, asked: Asked<'_>) -> Vec<&'static str> {
    let mut names = match axis {
        Axis::Files => FILES,
        Axis::Processes => PROCESSES,
        Axis::Syscalls => SYSCALLS,
        Axis::Capabilities => CAPABILITIES,
        Axis::Network => NETWORK,
        Axis::Limits => &["core dump", "user namespaces", "inotify instances"],
    }
    .to_vec();
    names.retain(|name| !opens(asked.class, name));
    if axis == side_of_abstract(asked.tier) {
        names.push(ABSTRACT);
    }
    match axis {
        Axis::Network if asked.tier == Tier::L2 => names.push("dial 192.0.2.1"),
        Axis::Network if asked.tier == Tier::Gated => names.extend(["dial the gate", GATE_SAW]),
        Axis::Limits => {
            let limits = asked.limits;
            let held_by_cgroup =
                limits.memory.is_some() || limits.pids.is_some() || limits.cpus_milli.is_some();
            let all = [
                ("limit memory", limits.memory.is_some()),
                ("limit pids", limits.pids.is_some()),
                ("limit cpus", limits.cpus_milli.is_some()),
                ("limit files", limits.files.is_some()),
                ("in its cgroup", asked.cgroup && held_by_cgroup),
            ];
            names.extend(all.into_iter().filter(|(_, of)| *of).map(|(name, _)| name));
        }
        _ => {}
    }
    names
}
