//! How much can be used up, and what holds it.

use std::os::fd::BorrowedFd;

use bailey_fence_plan::channel::BoxSpec;
use bailey_model::{Axis, Fact, Limits};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, access, accessat, openat};
use rustix::io::Errno;

use super::Facts;
use super::bait::Targets;
use super::files::own_namespace;
use super::sys;

/// Longest file of a cgroup or of a setting that is looked at.
const MAX_FILE: usize = 4096;
/// What a new user namespace may make unless something says less.
const UNBOUNDED: u64 = i32::MAX as u64;
/// Only a cgroup with that controller holds a share of the processors.
const NOT_HELD: &str = "nothing holds it";
/// Counts that a user has across all namespaces.
const COUNTS: [(&str, &str); 2] = [
    ("user namespaces", "/proc/sys/user/max_user_namespaces"),
    ("inotify instances", "/proc/sys/user/max_inotify_instances"),
];

/// What can be read inside.
pub(super) fn try_all(facts: &mut Facts, spec: &BoxSpec, targets: &Targets) {
    let core = sys::limit(libc::RLIMIT_CORE).ok();
    let got = core.map_or("cannot be told".to_owned(), |(soft, hard)| {
        format!("{soft} {hard}")
    });
    let held = core.map(|(soft, hard)| soft <= 1 && hard <= 1);
    facts.add(Axis::Limits, "core dump", &got, held);
    for (what, path) in COUNTS {
        let (got, held) = count(path, own_namespace("user", targets).1);
        facts.add(Axis::Limits, what, &got, held);
    }
    let limits = spec.limits;
    match limits.files {
        Some(files) => own(facts, "limit files", &[libc::RLIMIT_NOFILE], files.into()),
        None => {
            let most = sys::limit(libc::RLIMIT_NOFILE).map(|(_, hard)| hard.to_string());
            let most = most.unwrap_or_else(|_| "cannot be told".to_owned());
            facts.add(Axis::Limits, "open files", &most, None);
        }
    }
    if spec.cgroup {
        return;
    }
    let asked = limits.memory.is_some() || limits.pids.is_some() || limits.cpus_milli.is_some();
    if asked {
        facts.add(Axis::Limits, "limits by", "setrlimit", None);
    }
    if let Some(memory) = limits.memory {
        let either = [libc::RLIMIT_AS, libc::RLIMIT_DATA];
        own(facts, "limit memory", &either, memory);
    }
    if let Some(pids) = limits.pids {
        own(facts, "limit pids", &[libc::RLIMIT_NPROC], pids.into());
    }
    if limits.cpus_milli.is_some() {
        facts.add(Axis::Limits, "limit cpus", NOT_HELD, Some(false));
    }
}

/// Whether one of these resources is bounded by what was asked.
fn own(facts: &mut Facts, what: &str, resources: &[libc::__rlimit_resource_t], asked: u64) {
    let hard = resources
        .iter()
        .filter_map(|resource| sys::limit(*resource).ok())
        .map(|(_, hard)| hard)
        .min();
    let got = match hard {
        None => "cannot be told".to_owned(),
        Some(u64::MAX) => "none".to_owned(),
        Some(hard) => hard.to_string(),
    };
    facts.add(Axis::Limits, what, &got, hard.map(|hard| hard <= asked));
}

/// A bound of the box's own user namespace. Where it has none of its own
/// (`own`), what is read there is the machine's setting.
fn count(path: &str, own: Option<bool>) -> (String, Option<bool>) {
    let exists = |path: &str| access(path, Access::EXISTS).is_ok();
    if exists("/proc/sys/user") && !exists(path) {
        return ("not in this kernel".to_owned(), Some(true));
    }
    let text = read(CWD, path);
    let value: Option<u64> = text.and_then(|text| text.trim().parse().ok());
    match value {
        None => ("cannot be told".to_owned(), None),
        Some(value) if own == Some(false) => (format!("{value}, the host's"), Some(false)),
        Some(value) => (value.to_string(), own.map(|own| own && value < UNBOUNDED)),
    }
}

fn read(at: BorrowedFd<'_>, path: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(at, path, flags, Mode::empty()).ok()?;
    let mut bytes = vec![0; MAX_FILE];
    let count = rustix::io::read(&file, &mut bytes).ok()?;
    bytes.truncate(count);
    String::from_utf8(bytes).ok()
}

/// What can be read outside only: the box's cgroup, and that `pid`, which is
/// its pid 1, is in it.
pub(super) fn outside(
    limits: Limits,
    cgroup: Option<BorrowedFd<'_>>,
    pid: i32,
) -> Vec<(Axis, Fact)> {
    let mut facts = Facts::default();
    let Some(cgroup) = cgroup else {
        return facts.found;
    };
    facts.add(Axis::Limits, "limits by", "cgroup v2", None);
    let inside =
        read(cgroup, "cgroup.procs").map(|all| all.lines().any(|line| line.parse() == Ok(pid)));
    let got = match inside {
        Some(true) => "yes",
        Some(false) => "no",
        None => "cannot be told",
    };
    facts.add(Axis::Limits, "in its cgroup", got, inside);
    let mut file = |what: &str, name: &str, asked: Option<u64>, value: fn(&str) -> Option<u64>| {
        let Some(asked) = asked else { return };
        let text = read(cgroup, name);
        let found = text.as_deref().map(|text| value(text.trim()));
        // `max` is no number, and no limit.
        let held = found.map(|found| found.is_some_and(|found| found <= asked));
        let got = text.as_deref().map_or("cannot be told", str::trim);
        facts.add(Axis::Limits, what, got, held);
    };
    let plain = |text: &str| text.parse().ok();
    file("limit memory", "memory.max", limits.memory, plain);
    file("limit pids", "pids.max", limits.pids.map(u64::from), plain);
    let absent = is_absent(cgroup, "cpu.max") && limits.cpus_milli.is_some();
    let cpus = limits.cpus_milli.filter(|_| !absent).map(u64::from);
    file("limit cpus", "cpu.max", cpus, share);
    if absent {
        facts.add(Axis::Limits, "limit cpus", NOT_HELD, Some(false));
    }
    facts.found
}

fn is_absent(at: BorrowedFd<'_>, path: &str) -> bool {
    accessat(at, path, Access::EXISTS, AtFlags::empty()) == Err(Errno::NOENT)
}

/// `cpu.max` in thousandths of a processor, rounded up.
fn share(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_processors_is_read_as_the_kernel_writes_it() {
        assert_eq!(share("150000 100000"), Some(1500));
        assert_eq!(share("max 100000"), None);
        assert_eq!(share("1 0"), None);
        assert_eq!(share(""), None);
    }
}
