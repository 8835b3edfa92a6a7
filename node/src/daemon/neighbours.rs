//! Other accounts of this user on this machine: their nodes listen too, and no word of
//! a reach grants what a node of bailey's listens on.
//!
//! Each node writes down where it listens, in its own state folder; the others read it
//! there. Nothing else of one account is read by another's node.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bailey_model::Transport;

use super::Node;
use super::devices::write_private;
use crate::account;

use crate::log::log;
use crate::paths::Paths;
use crate::rows::{self, AccountRow};

/// The file of a state folder that says where its node listens.
const FILE: &str = "listeners";
/// Longest such file that is read, in bytes.
const MAX_FILE: u64 = 4096;
/// Listeners of one node that count: it has a few.
const MAX_LISTENERS: usize = 16;

/// What was written down.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    written: Vec<(Transport, SocketAddr)>,
}

impl Node {
    /// Writes down where this node listens, where that changed.
    pub(super) fn note_listeners(&mut self) {
        let listeners = self.listeners();
        if listeners == self.neighbours.written {
            return;
        }
        match write_private(&self.paths.state.join(FILE), &lines(&listeners)) {
            Ok(()) => self.neighbours.written = listeners,
            Err(error) => log!("{FILE}: {error}"),
        }
    }

    /// A node that leaves listens nowhere.
    pub(super) fn forget_listeners(&self) {
        // One that stays is known by the process that wrote it.
        let _stays = std::fs::remove_file(self.paths.state.join(FILE));
    }

    /// What is said of this account in a list of the user's.
    pub(super) fn account_row(&self) -> AccountRow {
        AccountRow {
            v: rows::V,
            name: account::shown(account::chosen()).to_owned(),
            account: self.account.map(|account| account.to_string()),
            running: true,
            boxes: Some(self.runs.len()),
            devices: Some(self.devices.known()),
        }
    }
}

/// Where the nodes of this user's other accounts listen. What cannot be read is left
/// out: it lies in the user's own folders, and the listeners have keys of their own.
pub(super) fn listeners(own: &Paths) -> Vec<(Transport, SocketAddr)> {
    let Ok(first) = Paths::of_user() else {
        return Vec::new();
    };
    of_others(&first, own)
}

fn of_others(first: &Paths, own: &Paths) -> Vec<(Transport, SocketAddr)> {
    let names = match account::listed(&first.state) {
        Ok(names) => names,
        Err(error) => {
            log!("{}: {error}", account::FOLDER);
            return Vec::new();
        }
    };
    let further = names.iter().map(|name| first.clone().of(Some(name)));
    std::iter::once(first.clone())
        .chain(further)
        .filter(|paths| paths.state != own.state)
        .flat_map(|paths| read(&paths))
        .collect()
}

/// Where a node listens that runs.
fn read(paths: &Paths) -> Vec<(Transport, SocketAddr)> {
    let text = |path: PathBuf| bounded(&path).unwrap_or_default();
    let process: Option<u32> = text(paths.lock()).trim().parse().ok();
    // One that was killed has left its file.
    let runs = process.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists());
    match runs {
        true => parse(&text(paths.state.join(FILE))),
        false => Vec::new(),
    }
}

fn bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// A line a listener: `udp [::]:4433`.
fn lines(listeners: &[(Transport, SocketAddr)]) -> String {
    let line = |(transport, addr): &(Transport, SocketAddr)| match transport {
        Transport::Tcp => format!("tcp {addr}\n"),
        Transport::Udp => format!("udp {addr}\n"),
    };
    listeners.iter().map(line).collect()
}

fn parse(text: &str) -> Vec<(Transport, SocketAddr)> {
    let line = |line: &str| {
        let (transport, addr) = line.split_once(' ')?;
        let transport = match transport {
            "tcp" => Transport::Tcp,
            "udp" => Transport::Udp,
            _ => return None,
        };
        Some((transport, addr.parse().ok()?))
    };
    text.lines().filter_map(line).take(MAX_LISTENERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_account_listens_on_the_others_read_while_its_node_runs() {
        let root = std::env::temp_dir().join(format!("bailey-beside-{}", std::process::id()));
        let first = Paths {
            state: root.join("state"),
            runtime: root.join("run"),
            config: None,
        };
        let work = first.clone().of(Some(&"work".parse().unwrap()));
        work.create().unwrap();
        let at = vec![
            (Transport::Udp, "[::]:4433".parse().unwrap()),
            (Transport::Tcp, "127.0.0.1:9464".parse().unwrap()),
        ];
        write_private(&work.state.join(FILE), &lines(&at)).unwrap();
        // Nobody has its lock.
        assert_eq!(of_others(&first, &first), []);
        std::fs::write(work.lock(), format!("{}\n", std::process::id())).unwrap();
        assert_eq!(of_others(&first, &first), at);
        // What is one's own is known by oneself.
        assert_eq!(of_others(&first, &work), []);
        std::fs::write(work.lock(), format!("{}\n", u32::MAX)).unwrap();
        assert_eq!(of_others(&first, &first), []);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_line_that_says_nothing_is_passed_over() {
        let text = "udp [::]:1\nnothing\nsctp 1.2.3.4:5\ntcp x\ntcp 127.0.0.1:2\n";
        assert_eq!(
            parse(text),
            [
                (Transport::Udp, "[::]:1".parse().unwrap()),
                (Transport::Tcp, "127.0.0.1:2".parse().unwrap()),
            ]
        );
        assert!(parse(&"udp [::]:1\n".repeat(1000)).len() <= MAX_LISTENERS);
    }
}
