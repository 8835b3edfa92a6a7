//! A capture as a file: pcapng
//! (<https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html>), which has a
//! place for what is missing.

use bailey_gate_proto::capture::{Headers, MAX_HEADERS};

/// `LINKTYPE_RAW`: packets begin with their IP header.
const RAW: u16 = 101;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// What tells a reader in which order octets are.
const ORDER: u32 = 0x1a2b_3c4d;

/// What stands before the packets. `name` is shown as it is.
pub(super) fn head(name: &str) -> Vec<u8> {
    let comment = "headers up to layer 4 only; payload was never kept";
    let program = concat!("bailey ", env!("CARGO_PKG_VERSION"));
    let mut section = Vec::new();
    section.extend(ORDER.to_le_bytes());
    section.extend([1, 0, 0, 0]);
    // How long the section is, nobody knows yet.
    section.extend(u64::MAX.to_le_bytes());
    option(&mut section, 1, comment.as_bytes());
    option(&mut section, 4, program.as_bytes());
    option(&mut section, 0, &[]);
    let mut interface = Vec::new();
    interface.extend(RAW.to_le_bytes());
    interface.extend([0, 0]);
    let most = u32::try_from(MAX_HEADERS).unwrap_or(u32::MAX);
    interface.extend(most.to_le_bytes());
    option(&mut interface, 2, name.as_bytes());
    // Times are in microseconds.
    option(&mut interface, 9, &[6]);
    option(&mut interface, 0, &[]);
    [block(SECTION, &section), block(INTERFACE, &interface)].concat()
}

/// A packet.
pub(super) fn packet(headers: &Headers) -> Vec<u8> {
    let mut body = 0_u32.to_le_bytes().to_vec();
    body.extend(time(headers.at_us));
    let kept = u32::try_from(headers.bytes.len()).unwrap_or(u32::MAX);
    body.extend(kept.to_le_bytes());
    body.extend(headers.len.max(kept).to_le_bytes());
    padded(&mut body, &headers.bytes);
    // Inbound is to the interface, which is the box's.
    let direction: u32 = if headers.from_box { 2 } else { 1 };
    option(&mut body, 2, &direction.to_le_bytes());
    option(&mut body, 0, &[]);
    block(PACKET, &body)
}

/// How many packets there were so far, and how many of them found no room.
pub(super) fn statistics(at_us: u64, received: u64, dropped: u64) -> Vec<u8> {
    let mut body = 0_u32.to_le_bytes().to_vec();
    body.extend(time(at_us));
    option(&mut body, 4, &received.to_le_bytes());
    option(&mut body, 5, &dropped.to_le_bytes());
    option(&mut body, 0, &[]);
    block(STATISTICS, &body)
}

fn time(at_us: u64) -> [u8; 8] {
    let mut halves = [0; 8];
    let (high, low) = ((at_us >> 32).to_le_bytes(), at_us.to_le_bytes());
    let (first, second) = halves.split_at_mut(4);
    first.copy_from_slice(high.first_chunk::<4>().unwrap_or(&[0; 4]));
    second.copy_from_slice(low.first_chunk::<4>().unwrap_or(&[0; 4]));
    halves
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    padded(body, value);
}

fn padded(body: &mut Vec<u8>, value: &[u8]) {
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 12).unwrap_or(u32::MAX);
    [
        &kind.to_le_bytes()[..],
        &len.to_le_bytes(),
        body,
        &len.to_le_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_says_its_length_at_both_ends() {
        let headers = Headers {
            at_us: 1_796_041_800_123_456,
            from_box: true,
            len: 1500,
            bytes: vec![0x45; 41],
        };
        let mut file = head("yard");
        file.extend(packet(&headers));
        file.extend(statistics(1_796_041_800_123_456, 7, 3));
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let len = usize::try_from(number(at + 4)).unwrap();
            assert!(len.is_multiple_of(4) && at + len <= file.len());
            assert_eq!(number(at + len - 4), number(at + 4));
            kinds.push(number(at));
            at += len;
        }
        assert_eq!(kinds, [SECTION, INTERFACE, PACKET, STATISTICS]);
    }
}
