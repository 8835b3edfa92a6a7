//! IP packets by hand: what the box sent, and what the gate answers without a
//! stack of its own (UDP, resets, ICMP errors).
//!
//! RFC 791, 8200 (IP); 768 (UDP); 9293 (TCP); 792, 1812, 4443 (ICMP).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// IANA protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;
/// IANA protocol number of IGMP.
pub(crate) const IGMP: u8 = 2;
/// IANA protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IANA protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// IANA protocol number of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;

/// The fragment header's number (RFC 8200 §4.5).
pub(crate) const FRAGMENT: u8 = 44;

/// Most bytes that one packet can have: its length field has 16 bits.
pub(crate) const MAX_PACKET: usize = 65535;

/// Hop limit of packets to the box. It is one hop away.
const HOPS: u8 = 64;
pub(crate) const V4_HEADER: usize = 20;
pub(crate) const V6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;
const TCP_HEADER: usize = 20;
/// Type, code, checksum and a word of the type's own.
pub(crate) const ICMP_HEADER: usize = 8;
/// An ICMP error is at most this long over IPv4 (RFC 1812 §4.3.2.3).
const ICMP_V4_ERROR: usize = 576;
/// An ICMPv6 error is at most this long (RFC 4443 §2.4, the minimum MTU).
const ICMP_V6_ERROR: usize = 1280;

/// An IP packet taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip<'a> {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Protocol of the payload: in IPv6 the first next header, so an extension
    /// header is a protocol of its own here.
    pub(crate) proto: u8,
    /// A part of a larger datagram, the first one included.
    pub(crate) fragment: bool,
    pub(crate) payload: &'a [u8],
    /// The packet without what follows its stated length.
    pub(crate) whole: &'a [u8],
}

/// Takes a packet apart; `None` if its header is cut off or contradicts itself.
pub(crate) fn parse(packet: &[u8]) -> Option<Ip<'_>> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Ip<'_>> {
    let header: &[u8; V4_HEADER] = packet.first_chunk()?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header_len < V4_HEADER || total < header_len {
        return None;
    }
    let whole = packet.get(..total)?;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    Some(Ip {
        src: IpAddr::V4(Ipv4Addr::new(
            header[12], header[13], header[14], header[15],
        )),
        dst: IpAddr::V4(Ipv4Addr::new(
            header[16], header[17], header[18], header[19],
        )),
        proto: header[9],
        fragment: fragment != 0,
        payload: whole.get(header_len..)?,
        whole,
    })
}

fn parse_v6(packet: &[u8]) -> Option<Ip<'_>> {
    let header: &[u8; V6_HEADER] = packet.first_chunk()?;
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let whole = packet.get(..V6_HEADER + payload)?;
    let src: [u8; 16] = header[8..24].try_into().ok()?;
    let dst: [u8; 16] = header[24..40].try_into().ok()?;
    Some(Ip {
        src: IpAddr::V6(Ipv6Addr::from(src)),
        dst: IpAddr::V6(Ipv6Addr::from(dst)),
        proto: header[6],
        fragment: header[6] == FRAGMENT,
        payload: whole.get(V6_HEADER..)?,
        whole,
    })
}

/// Source, destination and protocol of a packet of which only the beginning is
/// there, as an ICMP error quotes it.
pub(crate) fn quoted_ends(quoted: &[u8]) -> Option<(IpAddr, IpAddr, u8)> {
    match quoted.first()? >> 4 {
        4 => {
            let header: &[u8; V4_HEADER] = quoted.first_chunk()?;
            let src: [u8; 4] = header[12..16].try_into().ok()?;
            let dst: [u8; 4] = header[16..20].try_into().ok()?;
            Some((src.into(), dst.into(), header[9]))
        }
        6 => {
            let header: &[u8; V6_HEADER] = quoted.first_chunk()?;
            let src: [u8; 16] = header[8..24].try_into().ok()?;
            let dst: [u8; 16] = header[24..40].try_into().ok()?;
            Some((src.into(), dst.into(), header[6]))
        }
        _ => None,
    }
}

/// Flags of a TCP segment.
pub(crate) mod flag {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const ACK: u8 = 16;
}

/// What the gate itself looks at in a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// As it stands there, without its scale.
    pub(crate) window: u16,
    /// Sequence numbers that it takes: payload, SYN and FIN.
    pub(crate) len: u32,
}

impl Segment {
    pub(crate) fn has(self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// A first segment: SYN without ACK or RST.
    pub(crate) fn opens(self) -> bool {
        self.flags & (flag::SYN | flag::ACK | flag::RST) == flag::SYN
    }
}

/// Reads a TCP header.
pub(crate) fn segment(payload: &[u8]) -> Option<Segment> {
    let header: &[u8; TCP_HEADER] = payload.first_chunk()?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < TCP_HEADER {
        return None;
    }
    let flags = header[13];
    let data = u32::try_from(payload.len().checked_sub(header_len)?).ok()?;
    let control = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
    Some(Segment {
        src_port: u16::from_be_bytes([header[0], header[1]]),
        dst_port: u16::from_be_bytes([header[2], header[3]]),
        seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        flags,
        window: u16::from_be_bytes([header[14], header[15]]),
        len: data + control,
    })
}

/// The window scale that a SYN asks for (RFC 7323 §2), at most 14; 0 without one.
pub(crate) fn window_scale(packet: &[u8]) -> u8 {
    let payload = parse(packet).map_or(&[][..], |ip| ip.payload);
    let end = payload
        .get(12)
        .map_or(0, |offset| usize::from(offset >> 4) * 4);
    let mut options = payload.get(TCP_HEADER..end).unwrap_or_default();
    loop {
        options = match options {
            [3, 3, scale, ..] => return (*scale).min(14),
            [1, rest @ ..] => rest,
            [0, ..] | [] | [_] => return 0,
            [_, len, ..] => options.get(usize::from(*len).max(2)..).unwrap_or_default(),
        };
    }
}

/// A UDP datagram: source port, destination port, payload.
pub(crate) fn datagram(payload: &[u8]) -> Option<(u16, u16, &[u8])> {
    let header: &[u8; UDP_HEADER] = payload.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let data = payload.get(UDP_HEADER..len)?;
    Some((
        u16::from_be_bytes([header[0], header[1]]),
        u16::from_be_bytes([header[2], header[3]]),
        data,
    ))
}

/// Why a packet went nowhere, as ICMP says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreachable {
    Network,
    Host,
    Port,
    Protocol,
    Prohibited,
}

impl Unreachable {
    /// Type and code over IPv4 (RFC 792, 1812 §5.2.7.1).
    fn v4(self) -> (u8, u8) {
        match self {
            Self::Network => (3, 0),
            Self::Host => (3, 1),
            Self::Protocol => (3, 2),
            Self::Port => (3, 3),
            Self::Prohibited => (3, 13),
        }
    }

    /// Type and code over IPv6 (RFC 4443 §3.1, §3.4).
    fn v6(self) -> (u8, u8) {
        match self {
            Self::Network => (1, 0),
            Self::Prohibited => (1, 1),
            Self::Host => (1, 3),
            Self::Port => (1, 4),
            Self::Protocol => (4, 1),
        }
    }
}

/// Writes a UDP packet into `out`; false if it cannot be one (too long, or ends
/// of two families), and then `out` is empty.
pub(crate) fn write_udp(out: &mut Vec<u8>, src: SocketAddr, dst: SocketAddr, data: &[u8]) -> bool {
    let Some(len) = begin(out, src.ip(), dst.ip(), UDP, UDP_HEADER + data.len()) else {
        return false;
    };
    let at = out.len();
    out.extend_from_slice(&src.port().to_be_bytes());
    out.extend_from_slice(&dst.port().to_be_bytes());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(data);
    let sum = transport_checksum(src.ip(), dst.ip(), UDP, out.get(at..).unwrap_or_default());
    // RFC 768: a sum of zero is sent as all ones, zero means none.
    put_u16(out, at + 6, if sum == 0 { 0xffff } else { sum });
    true
}

/// Writes a TCP segment without payload into `out`.
pub(crate) fn write_tcp(
    out: &mut Vec<u8>,
    src: SocketAddr,
    dst: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
) -> bool {
    if begin(out, src.ip(), dst.ip(), TCP, TCP_HEADER).is_none() {
        return false;
    }
    let at = out.len();
    out.extend_from_slice(&src.port().to_be_bytes());
    out.extend_from_slice(&dst.port().to_be_bytes());
    out.extend_from_slice(&seq.to_be_bytes());
    out.extend_from_slice(&ack.to_be_bytes());
    out.extend_from_slice(&[5 << 4, flags, 0, 0, 0, 0, 0, 0]);
    let sum = transport_checksum(src.ip(), dst.ip(), TCP, out.get(at..).unwrap_or_default());
    put_u16(out, at + 16, sum);
    true
}

/// Writes the reset that answers a segment which belongs to nothing
/// (RFC 9293 §3.10.7.1); false for a reset, which is never answered.
pub(crate) fn write_reset(
    out: &mut Vec<u8>,
    src: SocketAddr,
    dst: SocketAddr,
    to: Segment,
) -> bool {
    if to.has(flag::RST) {
        return false;
    }
    if to.has(flag::ACK) {
        write_tcp(out, src, dst, to.ack, 0, flag::RST)
    } else {
        write_tcp(
            out,
            src,
            dst,
            0,
            to.seq.wrapping_add(to.len),
            flag::RST | flag::ACK,
        )
    }
}

/// Writes the ICMP error that a packet of the box earned, from `from`.
pub(crate) fn write_unreachable(
    out: &mut Vec<u8>,
    from: IpAddr,
    to: IpAddr,
    why: Unreachable,
    about: &[u8],
) -> bool {
    let (kind, code) = match to {
        IpAddr::V4(_) => why.v4(),
        IpAddr::V6(_) => why.v6(),
    };
    // A parameter problem points at the next header field (RFC 4443 §3.4).
    let pointer: u32 = if to.is_ipv6() && kind == 4 { 6 } else { 0 };
    crate::icmp_wire::write(out, (from, to), (kind, code), pointer, quote(to, about))
}

/// As much of a packet as an ICMP error to that address quotes.
pub(crate) fn quote(to: IpAddr, about: &[u8]) -> &[u8] {
    let most = match to {
        IpAddr::V4(_) => ICMP_V4_ERROR - V4_HEADER - ICMP_HEADER,
        IpAddr::V6(_) => ICMP_V6_ERROR - V6_HEADER - ICMP_HEADER,
    };
    about.get(..about.len().min(most)).unwrap_or_default()
}

/// The checksum of an IPv4 header (RFC 791 §3.1).
pub(crate) fn checksum(header: &[u8]) -> u16 {
    fold(add(0, header))
}

/// The checksum over an ICMP message; 0 over one that holds its own.
pub(crate) fn icmp_checksum(src: IpAddr, dst: IpAddr, body: &[u8]) -> u16 {
    match dst {
        IpAddr::V4(_) => fold(add(0, body)),
        IpAddr::V6(_) => transport_checksum(src, dst, ICMPV6, body),
    }
}

/// Starts a packet with an IP header; the payload's length if all is in bounds.
pub(crate) fn begin(
    out: &mut Vec<u8>,
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    payload: usize,
) -> Option<u16> {
    out.clear();
    let len = u16::try_from(payload).ok()?;
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = len.checked_add(20)?;
            let [hi, lo] = total.to_be_bytes();
            // Don't fragment, identification 0 (RFC 6864 §4.1).
            out.extend_from_slice(&[0x45, 0, hi, lo, 0, 0, 0x40, 0, HOPS, proto, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let sum = fold(add(0, out));
            put_u16(out, 10, sum);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let [hi, lo] = len.to_be_bytes();
            out.extend_from_slice(&[0x60, 0, 0, 0, hi, lo, proto, HOPS]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
        }
        _ => return None,
    }
    Some(len)
}

pub(crate) fn put_u16(out: &mut [u8], at: usize, value: u16) {
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The checksum over pseudo header and payload (RFC 9293 §3.1, 8200 §8.1).
pub(crate) fn transport_checksum(src: IpAddr, dst: IpAddr, proto: u8, body: &[u8]) -> u16 {
    let len = u64::try_from(body.len()).unwrap_or(u64::MAX);
    fold(add(pseudo(src, dst) + u64::from(proto) + len, body))
}

pub(crate) fn pseudo(src: IpAddr, dst: IpAddr) -> u64 {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => add(add(0, &src.octets()), &dst.octets()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => add(add(0, &src.octets()), &dst.octets()),
        _ => 0,
    }
}

/// Adds 16-bit words to a sum (RFC 1071); a last odd byte is a high one.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    // The sum of words with their bytes swapped is the swapped sum (§2 B), so
    // words are added as this machine reads them, and eight bytes at a time: a
    // sum of longer words folds to the same (§2 C).
    let (words, rest) = bytes.as_chunks::<8>();
    let (pairs, single) = words.as_chunks::<2>();
    let (mut even, mut odd) = (0_u64, 0_u64);
    for [one, two] in pairs {
        even = add_carry(even, u64::from_ne_bytes(*one));
        odd = add_carry(odd, u64::from_ne_bytes(*two));
    }
    let mut total = add_carry(even, odd);
    if let [word] = single {
        total = add_carry(total, u64::from_ne_bytes(*word));
    }
    let mut last = [0; 8];
    if let Some(place) = last.get_mut(..rest.len()) {
        place.copy_from_slice(rest);
    }
    let native = !fold(add_carry(total, u64::from_ne_bytes(last)));
    sum + u64::from(u16::from_be(native))
}

/// Adds in one's complement.
fn add_carry(sum: u64, word: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(word);
    sum + u64::from(carry)
}

pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let [.., hi, lo] = sum.to_be_bytes();
    !u16::from_be_bytes([hi, lo])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::wire::{
        Icmpv4Packet, Icmpv6Packet, IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket,
    };

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        if v6 {
            (
                "[2001:db8::1]:5353".parse().unwrap(),
                "[fd00::2]:40000".parse().unwrap(),
            )
        } else {
            (
                "203.0.113.9:5353".parse().unwrap(),
                "192.0.0.2:40000".parse().unwrap(),
            )
        }
    }

    fn checked(out: &[u8], v6: bool) -> Vec<u8> {
        if v6 {
            Ipv6Packet::new_checked(out).unwrap().payload().to_vec()
        } else {
            let packet = Ipv4Packet::new_checked(out).unwrap();
            assert!(packet.verify_checksum());
            packet.payload().to_vec()
        }
    }

    proptest! {
        #[test]
        fn datagrams_are_read_back_and_their_checksums_hold(
            v6: bool,
            data in proptest::collection::vec(any::<u8>(), 0..2000),
        ) {
            let (src, dst) = ends(v6);
            let mut out = Vec::new();
            prop_assert!(write_udp(&mut out, src, dst, &data));
            let payload = checked(&out, v6);
            let udp = UdpPacket::new_checked(&payload[..]).unwrap();
            prop_assert!(udp.verify_checksum(&IpAddress::from(src.ip()), &IpAddress::from(dst.ip())));
            let ip = parse(&out).unwrap();
            prop_assert_eq!((ip.src, ip.dst, ip.proto), (src.ip(), dst.ip(), UDP));
            prop_assert_eq!(datagram(ip.payload).unwrap(), (src.port(), dst.port(), &data[..]));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(data in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Some(ip) = parse(&data) {
                let _ = (segment(ip.payload), datagram(ip.payload));
            }
        }
    }

    #[test]
    fn a_sealed_segment_has_the_checksum_that_smoltcp_would_have_made() {
        for v6 in [false, true] {
            let (src, dst) = ends(v6);
            for len in [0, 1, 2, 3, 15, 16, 17, 1001] {
                let mut out = Vec::new();
                begin(&mut out, src.ip(), dst.ip(), TCP, TCP_HEADER + len).unwrap();
                let at = out.len();
                out.extend([
                    0,
                    1,
                    0,
                    2,
                    0,
                    0,
                    0,
                    3,
                    0,
                    0,
                    0,
                    4,
                    5 << 4,
                    flag::ACK,
                    9,
                    9,
                    7,
                    7,
                    0,
                    0,
                ]);
                out.extend((0..len).map(|at| at.to_le_bytes()[0] ^ 0xe7));
                crate::seal::close(&mut out);
                let tcp = TcpPacket::new_checked(&out[at..]).unwrap();
                assert!(
                    tcp.verify_checksum(&src.ip().into(), &dst.ip().into()),
                    "{len}"
                );
            }
        }
    }

    #[test]
    fn a_window_scale_is_found_among_options_and_held_to_its_bound() {
        let (src, dst) = ends(false);
        let scale = |options: &[u8]| {
            let mut out = Vec::new();
            begin(
                &mut out,
                src.ip(),
                dst.ip(),
                TCP,
                TCP_HEADER + options.len(),
            )
            .unwrap();
            out.extend([0; 12]);
            out.extend([u8::try_from(5 + options.len() / 4).unwrap() << 4, flag::SYN]);
            out.extend([0; 6]);
            out.extend(options);
            window_scale(&out)
        };
        assert_eq!(scale(&[2, 4, 5, 180, 1, 3, 3, 7]), 7);
        assert_eq!(scale(&[1, 3, 3, 200]), 14);
        assert_eq!(scale(&[3, 3, 5, 0]), 5);
        // None, behind the end, in another's value, cut off.
        for options in [
            &[][..],
            &[0, 3, 3, 7],
            &[9, 4, 3, 3],
            &[1, 1, 1, 3],
            &[9, 0, 3, 0],
        ] {
            assert_eq!(scale(options), 0, "{options:?}");
        }
    }

    #[test]
    fn resets_carry_an_ack_where_the_segment_had_none() {
        for v6 in [false, true] {
            let (src, dst) = ends(v6);
            let to = Segment {
                src_port: 1,
                dst_port: 2,
                seq: u32::MAX,
                ack: 0,
                flags: flag::SYN,
                window: 0,
                len: 1,
            };
            let mut out = Vec::new();
            assert!(write_reset(&mut out, src, dst, to));
            let payload = checked(&out, v6);
            let tcp = TcpPacket::new_checked(&payload[..]).unwrap();
            assert!(tcp.verify_checksum(&src.ip().into(), &dst.ip().into()));
            assert!(tcp.rst() && tcp.ack() && tcp.ack_number().0 == 0);
            assert!(!write_reset(
                &mut out,
                src,
                dst,
                Segment {
                    flags: flag::RST,
                    ..to
                }
            ));
        }
    }

    #[test]
    fn icmp_errors_quote_within_their_bound() {
        for v6 in [false, true] {
            let (dialled, own) = ends(v6);
            let mut about = Vec::new();
            assert!(write_udp(&mut about, own, dialled, &[7; 3000]));
            let mut out = Vec::new();
            assert!(write_unreachable(
                &mut out,
                dialled.ip(),
                own.ip(),
                Unreachable::Port,
                &about
            ));
            let payload = checked(&out, v6);
            if v6 {
                assert_eq!(out.len(), ICMP_V6_ERROR);
                let (IpAddr::V6(from), IpAddr::V6(to)) = (dialled.ip(), own.ip()) else {
                    unreachable!()
                };
                assert!(
                    Icmpv6Packet::new_checked(&payload[..])
                        .unwrap()
                        .verify_checksum(&from, &to)
                );
            } else {
                assert_eq!(out.len(), ICMP_V4_ERROR);
                assert!(
                    Icmpv4Packet::new_checked(&payload[..])
                        .unwrap()
                        .verify_checksum()
                );
            }
        }
    }

    #[test]
    fn what_is_too_long_or_of_two_families_is_not_written() {
        let ((v4, _), (v6, _)) = (ends(false), ends(true));
        let mut out = vec![1];
        assert!(!write_udp(&mut out, v4, v6, b"") && out.is_empty());
        assert!(!write_udp(&mut out, v4, v4, &vec![0; 65508]) && out.is_empty());
        assert!(write_udp(&mut out, v4, v4, &vec![0; 65507]) && out.len() == MAX_PACKET);
    }
}
