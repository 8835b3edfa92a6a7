//! The checksum of a TCP packet that is whole but for it.

use crate::flow::Unfinished;
use crate::packet::{TCP, fold, parse, pseudo, put_u16, transport_checksum};

/// Where a TCP header has its checksum.
const AT: usize = 16;
/// Where it has its own length, in words of 32 bits and the upper half.
const LENGTH_AT: usize = 12;

/// Writes the checksum.
pub(crate) fn close(packet: &mut [u8]) {
    let Some(ip) = parse(packet).filter(|ip| ip.proto == TCP) else {
        return;
    };
    let (src, dst, at) = (ip.src, ip.dst, packet.len() - ip.payload.len());
    put_u16(packet, at + AT, 0);
    let sum = transport_checksum(src, dst, TCP, packet.get(at..).unwrap_or_default());
    put_u16(packet, at + AT, sum);
}

/// Writes the sum of the pseudo header alone, for a kernel that adds the segment
/// to it, and cuts it, if the packet ever leaves the machine.
pub(crate) fn leave_open(packet: &mut [u8], cut: Option<u16>) -> Option<Unfinished> {
    let ip = parse(packet).filter(|ip| ip.proto == TCP)?;
    let len = u64::try_from(ip.payload.len()).ok()?;
    let header = usize::from(ip.payload.get(LENGTH_AT)? >> 4) * 4;
    let sum = !fold(pseudo(ip.src, ip.dst) + u64::from(TCP) + len);
    let segment = packet.len() - ip.payload.len();
    put_u16(packet, segment + AT, sum);
    Some(Unfinished {
        segment,
        header,
        cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{flag, write_tcp};

    #[test]
    fn a_sum_left_open_closes_to_the_whole_one() {
        for (src, dst) in [
            ("192.0.0.2:4000", "93.184.216.34:80"),
            ("[fd00:ba11:e700::2]:4000", "[2606:2800:220:1::1]:80"),
        ] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            let mut closed = Vec::new();
            assert!(write_tcp(&mut closed, src, dst, 7, 9, flag::ACK));
            let mut open = closed.clone();
            close(&mut closed);
            let left = leave_open(&mut open, None).unwrap();
            assert_eq!((left.header, left.cut), (20, None));
            assert_ne!(open, closed);
            let at = left.segment;
            // What a kernel does with it: the sum of the segment, what is in the
            // place of its checksum included.
            let sum: u64 = open[at..]
                .chunks(2)
                .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]])))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
            put_u16(&mut open, at + AT, !sum);
            assert_eq!(open, closed);
        }
        assert_eq!(leave_open(&mut [0x45, 0, 0], None), None);
    }
}
