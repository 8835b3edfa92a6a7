//! The Community ID of a flow, version 1: the same text for the same tuple in every
//! tool that sees it (<https://github.com/corelight/community-id-spec>).

use std::net::{IpAddr, SocketAddr};

use bailey_model::Proto;
use base64ct::{Base64, Encoding as _};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The id of a flow between two ends of one family, whichever began it; of ICMP, of
/// an echo that the first end asks for. `None` for what else has no ports, or is no
/// tuple. The seed is 0, as by default elsewhere.
#[must_use]
pub fn community_id(proto: Proto, one: SocketAddr, other: SocketAddr) -> Option<String> {
    // Where others have ports, an echo has the types of its question and its answer.
    let (number, types) = match proto {
        Proto::Tcp => (6, None),
        Proto::Udp => (17, None),
        Proto::Other(1) => (1, Some((8, 0))),
        Proto::Other(58) => (58, Some((128, 129))),
        Proto::Dns | Proto::Other(_) => return None,
    };
    let (one, other) = match types {
        Some((asks, answers)) => (
            SocketAddr::new(one.ip(), asks),
            SocketAddr::new(other.ip(), answers),
        ),
        None => (one, other),
    };
    if one.is_ipv4() != other.is_ipv4() {
        return None;
    }
    let bytes = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let end = |end: SocketAddr| (bytes(end.ip()), end.port());
    let (mut low, mut high) = (end(one), end(other));
    if low > high {
        std::mem::swap(&mut low, &mut high);
    }
    let mut hashed = vec![0, 0];
    hashed.extend(&low.0);
    hashed.extend(&high.0);
    hashed.extend([number, 0]);
    hashed.extend(low.1.to_be_bytes());
    hashed.extend(high.1.to_be_bytes());
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed);
    Some(format!("1:{}", Base64::encode_string(hash.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the specification's own test set, seed 0.
    #[test]
    fn it_is_that_of_the_specification_for_each_transport() {
        for (proto, one, other, expected) in [
            (
                Proto::Udp,
                "192.168.1.52:54585",
                "8.8.8.8:53",
                "1:d/FP5EW3wiY1vCndhwleRRKHowQ=",
            ),
            (
                Proto::Other(1),
                "192.168.0.89:0",
                "192.168.0.1:0",
                "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=",
            ),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(community_id(proto, one, other).as_deref(), Some(expected));
        }
        let echo = |one: &str, other: &str| {
            community_id(
                Proto::Other(58),
                one.parse().unwrap(),
                other.parse().unwrap(),
            )
        };
        assert!(echo("[fd00::1]:0", "[fd00::2]:0").is_some());
        assert_ne!(
            echo("[fd00::1]:0", "[fd00::2]:0"),
            echo("[fd00::2]:0", "[fd00::1]:0")
        );
    }

    #[test]
    fn it_is_that_of_the_specification_both_ways() {
        let id = |proto, one: &str, other: &str| {
            community_id(proto, one.parse().unwrap(), other.parse().unwrap())
        };
        let (one, other) = ("128.232.110.120:34855", "66.35.250.204:80");
        let expected = Some("1:LQU9qZlK+B5F3KDmev6m5PMibrg=".to_owned());
        assert_eq!(id(Proto::Tcp, one, other), expected);
        assert_eq!(id(Proto::Tcp, other, one), expected);
        assert_ne!(id(Proto::Udp, one, other), expected);
        assert!(id(Proto::Udp, "[fd00::1]:53", "[fd00::2]:53").is_some());
        assert_eq!(id(Proto::Other(132), one, other), None);
        assert_eq!(id(Proto::Tcp, one, "[::1]:80"), None);
    }
}
