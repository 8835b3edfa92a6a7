//! ICMP's own packets: echo requests of the box, replies to it, and errors that
//! came from afar (RFC 792, 4443).

use std::net::{IpAddr, SocketAddr};

use crate::flow_common::Ends;
use crate::icmp::{Echo, EchoError};
use crate::packet::{self, ICMP, ICMP_HEADER, ICMPV6, Ip, begin, icmp_checksum, put_u16};

/// An echo request of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) id: u16,
    pub(crate) echo: Echo<'a>,
}

/// Whether it is an echo request, whatever else may be wrong with it.
pub(crate) fn is_echo(ip: &Ip<'_>) -> bool {
    ip.payload.first() == Some(&kinds(ip.dst).0)
}

/// Types of echo request and reply.
fn kinds(ip: IpAddr) -> (u8, u8) {
    match ip {
        IpAddr::V4(_) => (8, 0),
        IpAddr::V6(_) => (128, 129),
    }
}

/// Reads an echo request; `None` if it is none, or its checksum does not hold.
pub(crate) fn request<'a>(ip: &Ip<'a>) -> Option<Request<'a>> {
    let (header, data) = ip.payload.split_first_chunk::<ICMP_HEADER>()?;
    if (header[0], header[1]) != (kinds(ip.dst).0, 0)
        || icmp_checksum(ip.src, ip.dst, ip.payload) != 0
    {
        return None;
    }
    let (hops, whole) = match ip.dst {
        IpAddr::V4(_) => (*ip.whole.get(8)?, ip.whole.get(6)? & 0x40 != 0),
        IpAddr::V6(_) => (*ip.whole.get(7)?, false),
    };
    let echo = Echo {
        seq: u16::from_be_bytes([header[6], header[7]]),
        data,
        hops,
        whole,
    };
    (hops > 0).then_some(Request {
        id: u16::from_be_bytes([header[4], header[5]]),
        echo,
    })
}

/// The ends of the datagram to the box that it says nobody took (RFC 792, 4443
/// §3.1), as the box sees them: its own first.
pub(crate) fn port_unreachable(ip: &Ip<'_>) -> Option<Ends> {
    let (header, quoted) = ip.payload.split_first_chunk::<ICMP_HEADER>()?;
    let said = match ip.dst {
        IpAddr::V4(_) => (ip.proto, header[0], header[1]) == (ICMP, 3, 3),
        IpAddr::V6(_) => (ip.proto, header[0], header[1]) == (ICMPV6, 1, 4),
    };
    let at = match ip.dst {
        IpAddr::V4(_) => usize::from(quoted.first()? & 15) * 4,
        IpAddr::V6(_) => packet::V6_HEADER,
    };
    let (src, dst, proto) = packet::quoted_ends(quoted)?;
    let ports: &[u8; 4] = quoted.get(at..)?.first_chunk()?;
    (said && proto == packet::UDP).then(|| Ends {
        src: SocketAddr::new(dst, u16::from_be_bytes([ports[2], ports[3]])),
        dst: SocketAddr::new(src, u16::from_be_bytes([ports[0], ports[1]])),
    })
}

/// Writes the reply that came from `from` for the box's identifier `id`.
pub(crate) fn write_reply(
    out: &mut Vec<u8>,
    (from, to): (IpAddr, IpAddr),
    (id, seq): (u16, u16),
    data: &[u8],
) -> bool {
    let (id, seq) = (id.to_be_bytes(), seq.to_be_bytes());
    let rest = u32::from_be_bytes([id[0], id[1], seq[0], seq[1]]);
    write(out, (from, to), (kinds(to).1, 0), rest, data)
}

/// Writes an ICMP message into `out`; false if it cannot be one, and then `out`
/// is empty.
pub(crate) fn write(
    out: &mut Vec<u8>,
    (from, to): (IpAddr, IpAddr),
    (kind, code): (u8, u8),
    rest: u32,
    data: &[u8],
) -> bool {
    let proto = match to {
        IpAddr::V4(_) => ICMP,
        IpAddr::V6(_) => ICMPV6,
    };
    if begin(out, from, to, proto, ICMP_HEADER + data.len()).is_none() {
        return false;
    }
    let at = out.len();
    out.extend_from_slice(&[kind, code, 0, 0]);
    out.extend_from_slice(&rest.to_be_bytes());
    out.extend_from_slice(data);
    let sum = icmp_checksum(from, to, out.get(at..).unwrap_or_default());
    put_u16(out, at + 2, sum);
    true
}

/// Writes "too big" (RFC 4443 §3.2), in IPv4 "fragmentation needed" (RFC 1191
/// §4), about a packet of the box.
pub(crate) fn write_too_big(
    out: &mut Vec<u8>,
    (from, to): (IpAddr, IpAddr),
    mtu: u32,
    about: &[u8],
) -> bool {
    let (kind, code) = match to {
        IpAddr::V4(_) => (3, 4),
        IpAddr::V6(_) => (2, 0),
    };
    let mtu = if to.is_ipv4() { mtu.min(0xffff) } else { mtu };
    write(out, (from, to), (kind, code), mtu, packet::quote(to, about))
}

/// The second word of an error that is carried on to the box; `None` for one
/// that is not: a redirect, a quench, one that no echo request earns.
pub(crate) fn carried(dst: IpAddr, error: EchoError) -> Option<u32> {
    match (dst, error.kind, error.code) {
        // RFC 1191 §4: the next hop's MTU is the lower half.
        (IpAddr::V4(_), 3, 4) => Some(error.mtu.min(0xffff)),
        (IpAddr::V4(_), 3, 0..=15) | (IpAddr::V4(_), 11, 0..=1) => Some(0),
        // RFC 8200 §5: no way has less.
        (IpAddr::V6(_), 2, 0) => Some(error.mtu.max(1280)),
        (IpAddr::V6(_), 1, 0..=6) | (IpAddr::V6(_), 3, 0..=1) => Some(0),
        _ => None,
    }
}
