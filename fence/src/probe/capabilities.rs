//! What may be done as if by root.

use bailey_model::Axis;
use nix::errno::Errno;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat, statvfs};

use super::bait::Targets;
use super::files::own_namespace;
use super::sys::{self, NOWHERE};
use super::{Facts, name};

/// Longest status of a process.
const MAX_STATUS: usize = 8192;
const SETS: [(&str, &str); 5] = [
    ("inheritable set", "CapInh:"),
    ("permitted set", "CapPrm:"),
    ("effective set", "CapEff:"),
    ("bounding set", "CapBnd:"),
    ("ambient set", "CapAmb:"),
];
const AF_INET: usize = 2;
const SOCK_RAW: usize = 3;
const IPPROTO_ICMP: usize = 1;
const PR_CAPBSET_DROP: usize = 24;

pub(super) fn try_all(facts: &mut Facts, targets: &Targets) {
    let (got, held) = own_namespace("user", targets);
    facts.add(Axis::Capabilities, "own users", got, held);
    let whole = read_status();
    for (what, line) in SETS {
        let value = whole.as_deref().and_then(|status| find(status, line));
        let held = value.map(|value| value.bytes().all(|digit| digit == b'0'));
        facts.add(
            Axis::Capabilities,
            what,
            value.unwrap_or("cannot be told"),
            held,
        );
    }
    let alone = rustix::thread::no_new_privs();
    let got = if alone == Ok(true) { "yes" } else { "no" };
    let held = alone.ok();
    facts.add(Axis::Capabilities, "no new privileges", got, held);
    for (what, number, arguments) in [
        (
            "set the host name",
            libc::SYS_sethostname,
            [NOWHERE, usize::MAX, 0, 0, 0, 0],
        ),
        (
            "open a raw socket",
            libc::SYS_socket,
            [AF_INET, SOCK_RAW, IPPROTO_ICMP, 0, 0, 0],
        ),
        (
            "change the bounding set",
            libc::SYS_prctl,
            [PR_CAPBSET_DROP, 0, 0, 0, 0, 0],
        ),
    ] {
        let (got, held) = match sys::ask(number, arguments) {
            Ok(_) => {
                facts.spent = true;
                ("done".to_owned(), false)
            }
            Err(errno) => (name(errno), errno == Errno::EPERM || errno == Errno::ENOSYS),
        };
        facts.add(Axis::Capabilities, what, &got, Some(held));
    }
    let flags = statvfs("/usr").map(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    let got = if flags == Ok(true) {
        "ignored"
    } else {
        "honoured"
    };
    facts.add(Axis::Capabilities, "set-id programs", got, flags.ok());
}

/// Whether a namespace can be made that gives every capability back inside. Tried in
/// a process of its own: this one would be in it.
pub(super) fn nest(facts: &mut Facts) {
    let (got, held) = match crate::sys::unshare_apart(libc::CLONE_NEWUSER) {
        Ok(Ok(())) => ("made, with every capability inside".to_owned(), Some(false)),
        Ok(Err(errno)) => (name(errno), Some(true)),
        Err(error) => (format!("cannot be tried: {error}"), None),
    };
    facts.add(Axis::Capabilities, "make a user namespace", &got, held);
}

/// One line of this process's status.
pub(super) fn status(line: &str) -> Option<String> {
    find(&read_status()?, line).map(str::to_owned)
}

fn find<'a>(status: &'a str, line: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|found| found.strip_prefix(line))
        .map(str::trim)
}

fn read_status() -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, "/proc/self/status", flags, Mode::empty()).ok()?;
    let mut bytes = vec![0; MAX_STATUS];
    let count = rustix::io::read(&file, &mut bytes).ok()?;
    bytes.truncate(count);
    String::from_utf8(bytes).ok()
}
