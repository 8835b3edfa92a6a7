//! What the gate cannot read once it is confined: resolver configuration and
//! hosts file, parsed leniently as their readers do.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Instant;

use bailey_gate_proto::channel::{HostFacts, ToGate};
use bailey_model::Transport;

use super::{Node, neighbours};

/// Name servers that are used (as glibc's `MAXNS`).
const MAX_RESOLVERS: usize = 3;
/// Domains of a search list (as glibc before 2.26; more are noise).
const MAX_SEARCH: usize = 6;
/// Lines of a hosts file that are handed on.
const MAX_HOSTS: usize = 1000;
/// Bytes read of either file.
const MAX_FILE: usize = 256 << 10;

/// Port of name servers (RFC 1035 §4.2).
const DNS: u16 = 53;

impl Node {
    /// Resolver configuration follows the machine.
    pub(super) fn push_facts(&mut self) {
        if self.runs.is_empty() {
            self.facts = None;
            return;
        }
        let now = self.read_facts();
        if self.facts.as_ref() == Some(&now) {
            return;
        }
        for run in self.runs.values() {
            if let Some(gate) = &run.gate {
                gate.send(ToGate::Facts(now.clone()), vec![]);
            }
        }
        self.facts = Some(now);
    }

    /// What gates are told, now; a network that is new is asked for its prefixes.
    pub(super) fn read_facts(&mut self) -> HostFacts {
        let mut listeners = self.listeners();
        listeners.extend(neighbours::listeners(&self.paths));
        let facts = read(listeners, self.nat64.prefixes());
        let events = &self.events;
        self.nat64.look(Instant::now(), &facts.resolvers, events);
        facts
    }

    /// The network's translation prefixes, if it answered.
    pub(super) fn on_nat64(&mut self, found: Option<Vec<(Ipv6Addr, u8)>>) {
        if self.nat64.answered(Instant::now(), found) {
            self.push_facts();
        }
        self.judge_overdue();
    }

    /// The node's own listeners, which no word of a reach grants.
    pub(super) fn listeners(&self) -> Vec<(Transport, SocketAddr)> {
        let mut listeners = self.devices.listeners();
        listeners.extend(self.mailboxes.listeners());
        listeners.extend(self.metrics_at.map(|addr| (Transport::Tcp, addr)));
        listeners
    }
}

/// Reads both files now, beside what the node knows by itself.
pub(crate) fn read(listeners: Vec<(Transport, SocketAddr)>, nat64: &[(Ipv6Addr, u8)]) -> HostFacts {
    let (resolvers, search) = resolv_conf(&file(Path::new("/etc/resolv.conf")));
    let hosts = hosts(&file(Path::new("/etc/hosts")));
    HostFacts {
        resolvers,
        search,
        hosts,
        node_listeners: listeners,
        nat64: nat64.to_vec(),
    }
}

/// What a reader makes of a file's text; a file that cannot be read has none.
pub(crate) fn with_file<T>(path: &Path, read: impl FnOnce(&str) -> T) -> T {
    read(&file(path))
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

/// resolv.conf(5): name servers and search list. Where no server is named it is
/// the one of this machine.
fn resolv_conf(text: &str) -> (Vec<SocketAddr>, Vec<String>) {
    let mut resolvers = Vec::new();
    let mut search = Vec::new();
    let mut named = false;
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => {
                named = true;
                resolvers.extend(words.next().and_then(name_server));
            }
            Some("search" | "domain") => search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    if !named {
        resolvers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS));
    }
    resolvers.truncate(MAX_RESOLVERS);
    search.truncate(MAX_SEARCH);
    (resolvers, search)
}

/// An address; a link-local one with its interface, by name or number.
fn name_server(word: &str) -> Option<SocketAddr> {
    let Some((address, interface)) = word.split_once('%') else {
        return Some(SocketAddr::new(word.parse().ok()?, DNS));
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let by_name = || nix::net::if_::if_nametoindex(interface).ok();
    let scope = interface.parse().ok().or_else(by_name)?;
    Some(SocketAddrV6::new(address, DNS, 0, scope).into())
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
            "# comment\nnameserver 192.168.1.1\nnameserver fe80::1%none\nnameserver 2001:db8::1 ; x\n\
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
    #[test]
    fn a_link_local_name_server_keeps_its_interface() {
        let of = |text: &str| resolv_conf(text).0;
        let loopback = nix::net::if_::if_nametoindex("lo").unwrap();
        let want: SocketAddr =
            SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, loopback).into();
        assert_eq!(of("nameserver fe80::1%lo"), [want]);
        assert_eq!(of(&format!("nameserver fe80::1%{loopback}")), [want]);
        assert!(of("nameserver 10.0.0.1%lo").is_empty());
    }

    #[test]
    fn without_any_name_server_it_is_this_machines_own() {
        let own: SocketAddr = "127.0.0.1:53".parse().unwrap();
        for text in [
            "",
            "search lan.example\n",
            "options edns0\n#nameserver 10.0.0.1\n",
        ] {
            assert_eq!(resolv_conf(text).0, [own], "{text:?}");
        }
        // One that cannot be understood is no leave to ask another.
        assert!(resolv_conf("nameserver here\n").0.is_empty());
    }
}
