//! Ends every process below this one, where no namespace does it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};

/// Most rounds of looking and ending: a minute, in which even a tree that grows
/// is held, since what is stopped makes no more.
const ROUNDS: u32 = 6000;
const PAUSE: Duration = Duration::from_millis(10);
/// Most entries of /proc that are looked at.
const MAX_PROCESSES: usize = 1 << 22;

/// Ends and reaps all that descends from this process, which must be the one
/// that orphans below it come to (`PR_SET_CHILD_SUBREAPER`).
///
/// # Errors
/// When they cannot be seen, or some are left.
pub(crate) fn end_all() -> Result<(), Errno> {
    let own = rustix::process::getpid();
    let mut before = BTreeSet::new();
    for round in 0..ROUNDS {
        // The kernel's word that there is no child: whatever is left below comes
        // to this process when what is above it ends.
        if reap() {
            return Ok(());
        }
        let mut found = below(own, &parents()?);
        // Those of which nothing can be read elsewhere (`hidepid`).
        found.extend(children());
        // First all are stopped, so that none makes more; once nobody new is
        // seen, all are ended.
        let signal = if found == before {
            Signal::KILL
        } else {
            Signal::STOP
        };
        for pid in found.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // One that has just ended is what this is for.
            let _ = kill_process(pid, signal);
        }
        before = found;
        if round > 1 {
            std::thread::sleep(PAUSE);
        }
    }
    Err(Errno::AGAIN)
}

/// Reaps what has ended; whether there is no child any more.
fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(errno) => return errno == Errno::CHILD,
        }
    }
}

/// This process's own children, where the kernel lists them.
fn children() -> Vec<i32> {
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let numbers = list.split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// Each process of the machine and its parent.
fn parents() -> Result<BTreeMap<i32, i32>, Errno> {
    let entries = std::fs::read_dir("/proc");
    let entries = entries.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let numbers = entries.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read(entry.path().join("stat")).ok()?;
        Some((pid, parent(&stat)?))
    });
    Ok(numbers.take(MAX_PROCESSES).collect())
}

/// The parent, of a process that has not ended.
fn parent(stat: &[u8]) -> Option<i32> {
    // The name, in brackets, may hold any byte; what follows is text.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut words = rest.split_ascii_whitespace();
    let state = words.next()?;
    (!["Z", "X"].contains(&state))
        .then(|| words.next()?.parse().ok())
        .flatten()
}

fn below(top: Pid, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([top.as_raw_nonzero().get()]);
    loop {
        let more: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    found.remove(&top.as_raw_nonzero().get());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_parent() {
        assert_eq!(parent(b"7 (a) R 1 (b) S 5 6 7"), Some(5));
        assert_eq!(parent(b"7 (a) Z 5 6 7"), None);
        assert_eq!(parent(b"7 (a"), None);
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_parent() {
        assert_eq!(parent(b"7 (\xff\xfe) S 5 6 7"), Some(5));
    }

    #[test]
    fn descendants_are_found_however_far_down() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (9, 8)];
        let top = Pid::from_raw(2).unwrap();
        let found = below(top, &parents.into_iter().collect());
        assert_eq!(found, BTreeSet::from([3, 4]));
    }
}
