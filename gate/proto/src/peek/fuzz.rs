//! Targets for a fuzzer: arbitrary beginnings of flows.

use super::keys::{Keys, Version};
use super::{DatagramPeek, MAX_HELLO, Spoken, StreamPeek, records};

/// An Initial packet of a client (RFC 9000 §17.2.2) with these frames, padded to
/// the size that a client's datagram has at least.
pub(super) fn initial(version: Version, id: &[u8], number: u16, frames: &[u8]) -> Option<Vec<u8>> {
    sealed_with(&Keys::new(version, id)?, version, id, number.into(), frames)
}

/// The same with other keys than the id's, and a number of which the packet has
/// the last two octets.
pub(super) fn sealed_with(
    keys: &Keys,
    version: Version,
    id: &[u8],
    number: u64,
    frames: &[u8],
) -> Option<Vec<u8>> {
    const DATAGRAM: usize = 1200;
    const TAG: usize = 16;
    let (first, name) = match version {
        Version::One => (0xc1, 1_u32),
        Version::Two => (0xd1, 0x6b33_43cf),
    };
    let mut header = vec![first];
    header.extend(name.to_be_bytes());
    header.push(u8::try_from(id.len()).ok()?);
    header.extend(id);
    // No source id, no token; the length in two octets.
    header.extend([0, 0]);
    let number_at = header.len() + 2;
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(DATAGRAM - TAG - number_at - 2), 0);
    let length = u16::try_from(2 + payload.len() + TAG).ok()?;
    header.extend((length | 0x4000).to_be_bytes());
    let [.., high, low] = number.to_be_bytes();
    header.extend([high, low]);
    keys.seal(number, &header, &mut payload)?;
    let [of_first, of_number @ ..] = keys.mask(payload.get(2..18)?)?;
    let (head, tail) = header.split_at_mut_checked(number_at)?;
    *head.first_mut()? ^= of_first & 0x0f;
    for (octet, mask) in tail.iter_mut().zip(of_number) {
        *octet ^= mask;
    }
    header.extend(payload);
    Some(header)
}

/// What a stream of `data` behind its first octet begins with, in pieces of that
/// octet's length or less.
///
/// # Panics
/// If the pieces matter, or more is kept than is looked at.
pub fn fuzz_sni(data: &[u8]) {
    let Some((&most, stream)) = data.split_first() else {
        return;
    };
    let whole = match records::read(stream.get(..MAX_HELLO).unwrap_or(stream)) {
        super::Read::Done(spoken) => Some(spoken),
        super::Read::More(wanted) => {
            assert!(wanted > stream.len(), "{wanted} of {}", stream.len());
            assert!(wanted <= MAX_HELLO, "{wanted}");
            None
        }
    };
    let (mut peek, mut sent, mut pieced) = (StreamPeek::new(), 0, None);
    for piece in stream.chunks(usize::from(most).max(1)) {
        pieced = peek.look(sent, piece);
        if pieced.is_some() {
            break;
        }
        sent += piece.len();
    }
    assert_eq!(whole, pieced, "in pieces of {most}");
}

/// Takes `data` as datagrams, each behind a head of two octets: the first one's
/// top bit says that what follows is frames, to be sealed as an Initial packet,
/// its next that it is of version 2, the others which connection's; the second
/// one is a length in units of eight octets.
///
/// # Panics
/// If more is kept than the bounds allow, or something is said of bytes that no
/// key opened.
pub fn fuzz_quic_initial(data: &[u8]) {
    let (mut peek, mut rest, mut number) = (DatagramPeek::default(), data, 0);
    while let [what, length, more @ ..] = rest {
        let length = more.len().min(usize::from(*length) * 8);
        let (body, more) = more.split_at(length);
        rest = more;
        let looked = if what & 0x80 == 0 {
            peek.look(body)
        } else {
            let version = match what & 0x40 {
                0 => Version::One,
                _ => Version::Two,
            };
            let sealed = initial(version, &[what & 7; 8], number, body);
            number = u16::wrapping_add(number, 1) & 0xfff;
            let looked = peek.look(&sealed.unwrap_or_default());
            assert!(looked.begins, "it does not open what it sealed");
            looked
        };
        let said = looked.spoken.iter();
        assert!(said.clone().all(|spoken| *spoken != Spoken::Other));
        assert!(looked.spoken.len() <= 9, "{}", looked.spoken.len());
        assert!(peek.bytes() <= 4 * MAX_HELLO, "{}", peek.bytes());
    }
}
