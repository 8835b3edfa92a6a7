//! TCP segments of the box with every field as wanted, and what the gate sent,
//! read as far as a test looks.

use super::*;
use crate::packet::begin;

/// A segment that the box sends.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tcp<'a> {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) urgent: u16,
    /// Options, in whole words.
    pub(super) options: &'a [u8],
    pub(super) data: &'a [u8],
}

/// The options of a usual SYN: MSS 65480, window scale 7 (RFC 9293 §3.2, 7323).
pub(super) const SYN_OPTIONS: [u8; 8] = [2, 4, 0xff, 0xc8, 1, 3, 3, SCALE];
/// The window scale in them.
pub(super) const SCALE: u8 = 7;

pub(super) fn tcp(src: SocketAddr, dst: SocketAddr, segment: &Tcp<'_>) -> Vec<u8> {
    let mut packet = Vec::new();
    let header = 20 + segment.options.len();
    let len = header + segment.data.len();
    begin(&mut packet, src.ip(), dst.ip(), packet::TCP, len).unwrap();
    packet.extend(src.port().to_be_bytes());
    packet.extend(dst.port().to_be_bytes());
    packet.extend(segment.seq.to_be_bytes());
    packet.extend(segment.ack.to_be_bytes());
    packet.extend([u8::try_from(header / 4).unwrap() << 4, segment.flags]);
    packet.extend(segment.window.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(segment.urgent.to_be_bytes());
    packet.extend(segment.options);
    packet.extend(segment.data);
    crate::seal::close(&mut packet);
    packet
}

/// A segment that the gate sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) seq: u32,
    pub(super) ack: u32,
    /// All eight.
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) mss: Option<u16>,
    pub(super) data: Vec<u8>,
}

/// Reads a TCP segment; its checksum must be right.
pub(super) fn read_tcp(packet: &[u8]) -> Option<Got> {
    let ip = packet::parse(packet)?;
    if ip.proto != packet::TCP {
        return None;
    }
    let mut again = packet.to_vec();
    let at = packet.len() - ip.payload.len();
    crate::seal::close(&mut again);
    assert_eq!(&again[at..], ip.payload, "a checksum");
    let segment = packet::segment(ip.payload)?;
    let header = usize::from(ip.payload[12] >> 4) * 4;
    let options = &ip.payload[20..header];
    let mss = options.windows(4).find(|option| option[..2] == [2, 4]);
    Some(Got {
        src: SocketAddr::new(ip.src, segment.src_port),
        dst: SocketAddr::new(ip.dst, segment.dst_port),
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: u16::from_be_bytes([ip.payload[14], ip.payload[15]]),
        mss: mss.map(|option| u16::from_be_bytes([option[2], option[3]])),
        data: ip.payload[header..].to_vec(),
    })
}
