//! IPv4 addresses carried inside IPv6 ones.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bailey_model::AddrClass;

use super::{NodeAddrs, in_prefix, registry, stricter};

/// Most IPv4 addresses that one IPv6 address can carry: one by the well-known
/// forms (two for Teredo), one by the interface identifier, one by a prefix of
/// the network's own.
pub(super) const MAX: usize = 4;

/// What an address carries, and the class of its own block. A block whose only
/// purpose is to carry is `Internet` by itself.
pub(super) fn open(ip: Ipv6Addr, node: &NodeAddrs) -> ([Option<Ipv4Addr>; MAX], AddrClass) {
    let octets = ip.octets();
    let groups = ip.segments();
    let mut found = [None; MAX];
    match groups {
        // IPv4-mapped, RFC 4291 §2.5.5.2; IPv4-compatible, §2.5.5.1 (`::` and
        // `::1` are not, and stay loopback); NAT64 well-known, RFC 6052 §2.1.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => found[0] = quad(octets, 12),
        [0, 0, 0, 0, 0, 0, ..] if u128::from(ip) > 1 => found[0] = quad(octets, 12),
        // 6to4, RFC 3056 §2.
        [0x2002, ..] => found[0] = quad(octets, 2),
        // Teredo, RFC 4380 §4: the server, and the client's address inverted.
        [0x2001, 0, ..] => {
            found[0] = quad(octets, 4);
            found[1] = quad(octets, 12).map(|client| Ipv4Addr::from(!u32::from(client)));
        }
        _ => {}
    }
    // ISATAP, RFC 5214 §6.1: any prefix, identifier 0000:5efe or 0200:5efe.
    if matches!(groups, [_, _, _, _, 0 | 0x200, 0x5efe, ..]) {
        found[2] = quad(octets, 12);
    }
    let mut class = registry::v6(ip);
    // The most specific of the network's own prefixes.
    let own = node
        .nat64
        .iter()
        .filter(|(prefix, len)| *len > 0 && in_prefix(IpAddr::V6(ip), IpAddr::V6(*prefix), *len))
        .max_by_key(|(_, len)| *len);
    if let Some((_, len)) = own {
        found[3] = translated(octets, *len);
        // RFC 8215 sets 64:ff9b:1::/48 aside for such prefixes, so there it is
        // no more than what it carries. An address under a translated prefix
        // that carries nothing well-formed leads nowhere.
        let local_use = matches!(groups, [0x64, 0xff9b, 1, ..]);
        class = match found[3] {
            None => stricter(class, AddrClass::Reserved),
            Some(_) if local_use => AddrClass::Internet,
            Some(_) => class,
        };
    }
    (found, class)
}

/// The IPv4 address in an address under a translation prefix (RFC 6052 §2.2).
/// Octet 8 is skipped and must be zero; `None` for that, and for a length that
/// the RFC does not have.
fn translated(octets: [u8; 16], len: u8) -> Option<Ipv4Addr> {
    if len == 96 {
        return quad(octets, 12);
    }
    let start = match len {
        32 => 4,
        40 => 5,
        48 => 6,
        56 => 7,
        64 => 9,
        _ => return None,
    };
    if octets[8] != 0 {
        return None;
    }
    let mut bytes = octets
        .iter()
        .enumerate()
        .skip(start)
        .filter(|(at, _)| *at != 8);
    let mut next = || bytes.next().map(|(_, byte)| *byte);
    Some(Ipv4Addr::new(next()?, next()?, next()?, next()?))
}

fn quad(octets: [u8; 16], at: usize) -> Option<Ipv4Addr> {
    let bytes: [u8; 4] = octets.get(at..at + 4)?.try_into().ok()?;
    Some(Ipv4Addr::from(bytes))
}

/// The translation prefixes that AAAA answers for `ipv4only.arpa` show
/// (RFC 7050 §3): wherever one of the two well-known IPv4 addresses stands at a
/// place that RFC 6052 has. At most one for each answer and length.
#[must_use]
pub fn nat64_prefixes(answers: &[Ipv6Addr]) -> Vec<(Ipv6Addr, u8)> {
    const WELL_KNOWN: [Ipv4Addr; 2] =
        [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
    let mut found = Vec::new();
    for answer in answers {
        for len in [32_u8, 40, 48, 56, 64, 96] {
            let carried = translated(answer.octets(), len);
            if carried.is_some_and(|v4| WELL_KNOWN.contains(&v4)) {
                let mask = u128::MAX << (128 - u32::from(len));
                let prefix = (Ipv6Addr::from(u128::from(*answer) & mask), len);
                if !found.contains(&prefix) {
                    found.push(prefix);
                }
            }
        }
    }
    found
}
