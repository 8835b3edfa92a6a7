//! What the gate cannot read once it is confined: resolver configuration and
//! hosts file, parsed leniently as their readers do.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use bailey_gate_proto::channel::HostFacts;
use bailey_model::Transport;

/// Name servers that are used (as glibc's `MAXNS`).
const MAX_RESOLVERS: usize = 3;
/// Domains of a search list (as glibc before 2.26; more are noise).
const MAX_SEARCH: usize = 6;
/// Lines of a hosts file that are handed on.
const MAX_HOSTS: usize = 1000;
/// Bytes read of either file.
const MAX_FILE: usize = 256 << 10;

/// Reads both files now.
pub(crate) fn read(listeners: Vec<(Transport, SocketAddr)>) -> HostFacts {
    let (resolvers, search) = resolv_conf(&file(Path::new("/etc/resolv.conf")));
    let hosts = hosts(&file(Path::new("/etc/hosts")));
    HostFacts {
        resolvers,
        search,
        hosts,
        node_listeners: listeners,
    }
}

/// A file that is missing or unreadable says nothing.
fn file(path: &Path) -> String {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let limit = u64::try_from(MAX_FILE).unwrap_or(u64::MAX);
        // What was read before a fault is used.
        let _short = file.take(limit).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// resolv.conf(5): name servers and search list.
fn resolv_conf(text: &str) -> (Vec<SocketAddr>, Vec<String>) {
    let mut resolvers = Vec::new();
    let mut search = Vec::new();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                resolvers.extend(address.map(|address| SocketAddr::new(address, 53)));
            }
            Some("search" | "domain") => search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    resolvers.truncate(MAX_RESOLVERS);
    search.truncate(MAX_SEARCH);
    (resolvers, search)
}

/// hosts(5): an address and its names.
fn hosts(text: &str) -> Vec<(IpAddr, Vec<String>)> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            Some((address, words.map(str::to_owned).collect()))
        })
        .take(MAX_HOSTS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_lines_are_understood_and_odd_ones_passed_over() {
        let (resolvers, search) = resolv_conf(
            "# comment\nnameserver 192.168.1.1\nnameserver fe80::1%eth0\nnameserver 2001:db8::1 ; x\n\
             domain old.example\nsearch a.example b.example\noptions ndots:5\nnameserver\n",
        );
        let want: Vec<SocketAddr> = vec![
            "192.168.1.1:53".parse().unwrap(),
            "[2001:db8::1]:53".parse().unwrap(),
        ];
        assert_eq!(
            (resolvers, search),
            (want, vec!["a.example".to_owned(), "b.example".to_owned()])
        );
        let found =
            hosts("127.0.0.1 localhost\n192.168.1.9\tprinter printer.lan # hall\nbad line\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].1, ["printer", "printer.lan"]);
    }
}
