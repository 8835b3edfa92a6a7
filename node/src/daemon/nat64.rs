//! Prefixes under which the network translates to IPv4 (NAT64), found as RFC 7050
//! has it: the AAAA records of a name that has none of its own.
//!
//! The question is the node's and is put by the machine's own resolver, one a
//! network and not one a box: it is always the same and says nothing of any.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bailey_gate_proto::nat64_prefixes;
use tokio::sync::mpsc;

use super::event::NodeEvent;
use super::facts;

/// The name, RFC 7050 §8.1.
const NAME: &str = "ipv4only.arpa";
/// How long a box's command waits for the answer, which the gate judges by.
const WAIT: Duration = Duration::from_secs(1);
/// How often it is asked again on the same network.
const AGAIN: Duration = Duration::from_mins(10);
/// How soon after a question that nobody answered.
const RETRY: Duration = Duration::from_secs(20);
/// Most addresses taken from one answer.
const MAX_ANSWERS: usize = 16;
/// A prefix this short is all of the public IPv6 addresses, or a half of them.
const DEFAULT: u8 = 3;

/// What tells one network from another, as far as this goes.
type Network = (Vec<SocketAddr>, bool);

/// What is known of the network that the node is on.
#[derive(Debug, Default)]
pub(crate) struct Nat64 {
    prefixes: Vec<(Ipv6Addr, u8)>,
    network: Option<Network>,
    asked: Option<Instant>,
    asking: bool,
    again: Option<Instant>,
    /// Whether the present network has been asked to the end.
    known: bool,
}

impl Nat64 {
    /// What was found so far.
    pub(crate) fn prefixes(&self) -> &[(Ipv6Addr, u8)] {
        &self.prefixes
    }

    /// Whether it is known, or has had its time.
    pub(crate) fn settled(&self, now: Instant) -> bool {
        self.known || self.asked.is_some_and(|asked| now >= asked + WAIT)
    }

    /// Asks if the network is another one, or its time is over.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        resolvers: &[SocketAddr],
        events: &mpsc::Sender<NodeEvent>,
    ) {
        self.look_at(now, (resolvers.to_vec(), has_default()), || {
            let events = events.clone();
            // A thread of its own, which ends with the process: the resolver of
            // the C library may take as long as its configuration says.
            let ask = move || {
                let found = ask();
                // A node that left needs no answer.
                let _left = events.blocking_send(NodeEvent::Nat64(found));
            };
            std::thread::Builder::new()
                .name("nat64".to_owned())
                .spawn(ask)
                .is_ok()
        });
    }

    fn look_at(&mut self, now: Instant, network: Network, ask: impl FnOnce() -> bool) {
        let moved = self.network.as_ref() != Some(&network);
        if moved {
            self.known = false;
            self.asked = None;
        }
        if !network.1 {
            // No IPv6 leaves, translated or not.
            self.prefixes.clear();
            self.known = true;
            self.network = Some(network);
            return;
        }
        let due = self.again.is_none_or(|again| now >= again);
        if self.asking || !(moved || due) {
            // The answer that is under way may be the old network's: asked again.
            if moved {
                self.again = Some(now);
            }
            self.network = Some(network);
            self.asked.get_or_insert(now);
            return;
        }
        self.network = Some(network);
        self.asked.get_or_insert(now);
        self.again = Some(now + RETRY);
        self.asking = ask();
    }

    /// What came of it; `None` where nobody answered, and what was known stands.
    /// True if it is news.
    pub(crate) fn answered(&mut self, now: Instant, found: Option<Vec<(Ipv6Addr, u8)>>) -> bool {
        self.asking = false;
        // Asked for another network than this one is by now.
        if self.again.is_some_and(|again| again <= now) {
            return false;
        }
        self.known = true;
        let Some(found) = found else { return false };
        self.again = Some(now + AGAIN);
        let news = self.prefixes != found;
        self.prefixes = found;
        news
    }
}

/// Puts the question; `None` where nobody answers.
fn ask() -> Option<Vec<(Ipv6Addr, u8)>> {
    let addrs = (NAME, 0).to_socket_addrs().ok()?;
    let v6 = addrs.filter_map(|addr| match addr.ip() {
        IpAddr::V6(ip) => Some(ip),
        IpAddr::V4(_) => None,
    });
    let v6: Vec<Ipv6Addr> = v6.take(MAX_ANSWERS).collect();
    Some(nat64_prefixes(&v6))
}

/// Whether there is an IPv6 default route.
fn has_default() -> bool {
    facts::with_file(Path::new("/proc/self/net/ipv6_route"), default_in)
}

/// Reads the kernel's list (ipv6_route, one route a line).
fn default_in(text: &str) -> bool {
    /// RTF_REJECT (linux/route.h): an unreachable route.
    const REJECT: u32 = 0x0200;
    text.lines().any(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, len, .., flags, _] = words.as_slice() else {
            return false;
        };
        let hex = |word| u32::from_str_radix(word, 16).ok();
        let short = hex(len).is_some_and(|len| len <= u32::from(DEFAULT));
        short && hex(flags).is_some_and(|flags| flags & REJECT == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Network {
        (vec![SocketAddr::from(([192, 168, 1, number], 53))], true)
    }

    fn prefix() -> Vec<(Ipv6Addr, u8)> {
        vec![("2001:db8:64::".parse().unwrap(), 96)]
    }

    #[test]
    fn a_network_is_asked_once_and_another_one_anew() {
        let mut nat64 = Nat64::default();
        let start = Instant::now();
        let asks = |nat64: &mut Nat64, now, network| {
            let mut asked = false;
            nat64.look_at(now, network, || {
                asked = true;
                true
            });
            asked
        };
        assert!(asks(&mut nat64, start, network(1)));
        assert!(!nat64.settled(start) && !asks(&mut nat64, start, network(1)));
        assert!(nat64.settled(start + WAIT), "a box does not wait for ever");
        assert!(nat64.answered(start, Some(prefix())));
        assert!(nat64.settled(start) && nat64.prefixes() == prefix());
        assert!(!asks(&mut nat64, start + RETRY, network(1)));
        assert!(asks(&mut nat64, start + AGAIN, network(1)));
        assert!(!nat64.answered(start + AGAIN, Some(prefix())), "no news");
        // What is known stands until the new network has answered.
        let moved = start + AGAIN;
        assert!(asks(&mut nat64, moved, network(2)));
        assert!(!nat64.settled(moved) && nat64.prefixes() == prefix());
        assert!(nat64.answered(moved, Some(Vec::new())) && nat64.prefixes().is_empty());
        // Without IPv6 there is nothing to ask.
        let none = (network(2).0, false);
        assert!(!asks(&mut nat64, moved, none) && nat64.settled(moved));
    }

    #[test]
    fn an_answer_of_the_network_that_was_left_is_asked_for_again() {
        let mut nat64 = Nat64::default();
        let start = Instant::now();
        nat64.look_at(start, network(1), || true);
        nat64.look_at(start, network(2), || panic!("one at a time"));
        assert!(!nat64.answered(start, Some(prefix())));
        assert!(!nat64.settled(start) && nat64.prefixes().is_empty());
        let mut asked = false;
        nat64.look_at(start, network(2), || {
            asked = true;
            true
        });
        assert!(asked);
        // Nobody answers: not asked again at once.
        assert!(!nat64.answered(start, None) && nat64.settled(start));
        nat64.look_at(start, network(2), || panic!("too soon"));
        nat64.look_at(start + RETRY, network(2), || true);
    }

    #[test]
    fn an_ipv6_default_route_is_seen() {
        let route = |to: &str, len: &str, flags: &str, dev: &str| {
            let zero = "0".repeat(32);
            format!("{to} {len} {zero} 00 {zero} 00000400 00000001 00000000 {flags} {dev}\n")
        };
        let zero = "0".repeat(32);
        let reject = route(&zero, "00", "00200200", "lo");
        let lan = route("fe800000000000000000000000000000", "40", "00000001", "eth0");
        assert!(!default_in(&format!("{reject}{lan}")));
        let default = route(&zero, "00", "00000003", "eth0");
        assert!(default_in(&format!("{lan}{default}{reject}")));
        let half = route("20000000000000000000000000000000", "03", "00000001", "tun0");
        assert!(default_in(&half) && !default_in("") && !default_in("x y\n"));
    }
}
