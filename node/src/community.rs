//! The Community ID of a flow, version 1: the same text for the same tuple in every
//! tool that sees it (<https://github.com/corelight/community-id-spec>).

use std::net::{IpAddr, SocketAddr};

use bailey_model::Proto;
use base64ct::{Base64, Encoding as _};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The id of a TCP or UDP flow between two ends of one family, whichever began it.
/// `None` for what has no ports, or is no tuple. The seed is 0, as by default
/// elsewhere.
#[must_use]
pub fn community_id(proto: Proto, one: SocketAddr, other: SocketAddr) -> Option<String> {
    let number = match proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
        Proto::Dns | Proto::Other(_) => return None,
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
        assert_eq!(id(Proto::Other(1), one, other), None);
        assert_eq!(id(Proto::Tcp, one, "[::1]:80"), None);
    }
}
