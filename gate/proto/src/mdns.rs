//! Multicast DNS (RFC 6762): the one group that a reach can open, and only to
//! ask in: by the box itself, or by the gate for a name that the box asks it for.
//! A question that comes from another port than 5353 is answered to who
//! asked (§6.7), and the gate's sockets have such ports: so nothing has to join a
//! group, and nothing that others say there comes in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bailey_model::AddrClass;

use crate::addr::{NodeAddrs, classify};

/// Whose names are asked for so (§3).
pub(crate) const ZONE: &str = "local";
/// How long answers are waited for: responders take up to 120 ms (§6), and none
/// says that a name is not there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Where questions go, and where answers come from (§3).
const PORT: u16 = 5353;
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);

/// A message's head in octets (RFC 1035 §4.1.1).
const HEAD: usize = 12;

/// Whether it is the group.
#[must_use]
pub fn is_group(end: SocketAddr) -> bool {
    let group = match end.ip() {
        IpAddr::V4(ip) => ip == GROUP_V4,
        IpAddr::V6(ip) => ip == GROUP_V6,
    };
    group && end.port() == PORT
}

/// Whether a message to the group only asks. An answer would make names of the
/// network lead to whom the box likes, and so would a question that brings
/// authority records: it is a probe, which claims a name (§8.1).
pub(crate) fn asks(message: &[u8]) -> bool {
    let Some(&[_, _, flags, _, q0, q1, _, _, a0, a1, _, _]) = message.first_chunk::<HEAD>() else {
        return false;
    };
    // A response, or an opcode other than QUERY (§18.2, §18.3).
    let other = flags & 0b1111_1000 != 0;
    !other && [q0, q1] != [0, 0] && [a0, a1] == [0, 0]
}

/// Whether it may be an answer: from the port, and from an address on-link (§11).
pub(crate) fn answers(from: SocketAddr, node: &NodeAddrs) -> bool {
    let on_link = match from.ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => true,
        ip => classify(ip, node) == AddrClass::Local,
    };
    from.port() == PORT && on_link
}

/// Where the gate asks by itself.
pub(crate) const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(GROUP_V4), PORT);

/// The group of the same family.
pub(crate) fn group_of(from: SocketAddr) -> SocketAddr {
    let ip = match from.ip() {
        IpAddr::V4(_) => GROUP_V4.into(),
        IpAddr::V6(_) => GROUP_V6.into(),
    };
    SocketAddr::new(ip, PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_question_without_claims_asks() {
        let message = |flags: u8, questions: u8, authorities: u8| {
            let mut message = vec![0; HEAD];
            (message[2], message[5], message[9]) = (flags, questions, authorities);
            message
        };
        assert!(asks(&message(0, 1, 0)));
        // More of a question's known answers follow (§7.2).
        assert!(asks(&message(0b10, 1, 0)));
        for (what, message) in [
            ("a response", message(0x84, 1, 0)),
            ("an update", message(0x28, 1, 0)),
            ("no question", message(0, 0, 0)),
            ("a probe", message(0, 1, 1)),
        ] {
            assert!(!asks(&message), "{what}");
        }
        assert!(!asks(&message(0, 1, 0)[..HEAD - 1]));
    }

    #[test]
    fn answers_come_from_the_link_and_the_port() {
        let node = NodeAddrs {
            on_link: vec![("192.168.1.0".parse().unwrap(), 24)],
            ..NodeAddrs::default()
        };
        for (from, may) in [
            ("192.168.1.9:5353", true),
            ("[fe80::1]:5353", true),
            ("192.168.1.9:5354", false),
            ("93.184.216.34:5353", false),
            ("127.0.0.1:5353", false),
            ("[2606:2800:220:1::1]:5353", false),
        ] {
            assert_eq!(answers(from.parse().unwrap(), &node), may, "{from}");
        }
    }
}
