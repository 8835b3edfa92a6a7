//! What a capture keeps of a packet: its headers up to layer 4, and no payload.

use serde::{Deserialize, Serialize};

/// Most octets that are kept of a packet: IPv6 with extension headers and TCP with
/// every option fit.
pub const MAX_HEADERS: usize = 256;
/// Most extension headers of IPv6 that are followed.
const MAX_EXTENSIONS: usize = 8;

/// The headers of a packet between a box and its gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    /// When, in microseconds since 1970 by the host's clock.
    pub at_us: u64,
    /// Whether the box sent it.
    pub from_box: bool,
    /// How long it was.
    pub len: u32,
    /// IP, and TCP, UDP or ICMP: [`header_len`] octets.
    pub bytes: Vec<u8>,
}

/// How many octets of an IP packet are headers up to layer 4: IP with its options or
/// extension headers, then TCP with its options, or the eight octets of UDP or ICMP.
/// Nothing after that, nothing of a later fragment, and of what is no IP packet 0.
#[must_use]
pub fn header_len(packet: &[u8]) -> usize {
    let found = match packet.first().map(|first| first >> 4) {
        Some(4) => v4(packet),
        Some(6) => v6(packet),
        _ => None,
    };
    found.unwrap_or(0).min(packet.len()).min(MAX_HEADERS)
}

fn v4(packet: &[u8]) -> Option<usize> {
    let len = usize::from(packet.first()? & 15) * 4;
    let later = u16::from_be_bytes([packet.get(6)? & 0x1f, *packet.get(7)?]) != 0;
    let whole = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    if len < 20 || len > packet.len() {
        return None;
    }
    let upper = match later {
        true => len,
        false => layer_4(packet, *packet.get(9)?, len),
    };
    // What comes after the packet's own length is none of it.
    Some(upper.min(whole.max(len)))
}

fn v6(packet: &[u8]) -> Option<usize> {
    let (mut next, mut at) = (*packet.get(6)?, 40);
    if at > packet.len() {
        return None;
    }
    for _ in 0..MAX_EXTENSIONS {
        // RFC 8200 section 4: hop-by-hop, routing, destination; fragment; RFC 4302.
        let len = match next {
            0 | 43 | 60 => (usize::from(*packet.get(at + 1)?) + 1) * 8,
            44 => 8,
            51 => (usize::from(*packet.get(at + 1)?) + 2) * 4,
            _ => return Some(layer_4(packet, next, at)),
        };
        if at + len > packet.len() {
            return Some(at);
        }
        let offset = [*packet.get(at + 2)?, *packet.get(at + 3)? & 0xf8];
        let later = next == 44 && u16::from_be_bytes(offset) != 0;
        (next, at) = (*packet.get(at)?, at + len);
        if later {
            return Some(at);
        }
    }
    Some(at)
}

/// Where the header of layer 4 that begins at `at` ends.
fn layer_4(packet: &[u8], protocol: u8, at: usize) -> usize {
    let len = match protocol {
        6 => match packet.get(at + 12) {
            Some(offset) => (usize::from(offset >> 4) * 4).max(20),
            None => 20,
        },
        17 | 1 | 58 => 8,
        _ => 0,
    };
    at + len
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4_packet(protocol: u8, fragment: u16, upper: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        let len = u16::try_from(20 + upper.len()).unwrap();
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol]);
        packet.resize(20, 0);
        packet.extend(upper);
        packet
    }

    fn tcp(words: u8, payload: usize) -> Vec<u8> {
        let mut segment = vec![0; usize::from(words) * 4];
        segment[12] = words << 4;
        segment.resize(segment.len() + payload, b'x');
        segment
    }

    #[test]
    fn headers_end_where_payload_begins() {
        let mut v6 = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        v6.resize(40, 0);
        v6.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        v6.extend([0; 8]);
        v6.extend([b'x'; 99]);
        let mut later = vec![0x60, 0, 0, 0, 0, 0, 44, 64];
        later.resize(40, 0);
        later.extend([17, 0, 1, 0, 0, 0, 0, 0]);
        later.extend([b'x'; 99]);
        for (packet, len) in [
            (v4_packet(6, 0, &tcp(5, 1000)), 40),
            (v4_packet(6, 0, &tcp(15, 1000)), 80),
            (v4_packet(17, 0, &[b'x'; 500]), 28),
            (v4_packet(1, 0, &[b'x'; 500]), 28),
            (v4_packet(47, 0, &[b'x'; 500]), 20),
            // The first fragment has the header, a later one payload alone.
            (v4_packet(17, 0x2000, &[b'x'; 500]), 28),
            (v4_packet(17, 0x0010, &[b'x'; 500]), 20),
            (v6, 56),
            (later, 48),
            (Vec::new(), 0),
            (vec![0x45; 10], 0),
            (vec![b'x'; 500], 0),
        ] {
            assert_eq!(header_len(&packet), len, "{packet:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_keep_more_than_there_is(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            let len = header_len(&packet);
            prop_assert!(len <= packet.len() && len <= MAX_HEADERS);
        }

        #[test]
        fn payload_is_never_kept(words in 5_u8..=15, payload in 0_usize..1400) {
            let packet = v4_packet(6, 0, &tcp(words, payload));
            prop_assert_eq!(header_len(&packet), 20 + usize::from(words) * 4);
        }
    }
}
