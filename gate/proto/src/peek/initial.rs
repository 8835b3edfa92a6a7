//! The beginning of QUIC connections in a UDP flow: the client's Initial packets
//! of versions 1 and 2, and the ClientHello in their CRYPTO frames (RFC 9000
//! §17.2.2, §19.6; RFC 9369).
//!
//! One flow may carry many connections, so every datagram of a flow is looked at
//! for as long as its name must be proven.

use super::keys::{Keys, Version, is_spoken_elsewhere};
use super::reader::Reader;
use super::{MAX_HELLO, Read, Spoken, hello};

/// Most connections of one flow whose beginnings are kept.
const MAX_CONNECTIONS: usize = 4;
/// Most packets of one datagram that are looked at; a client sends two or three.
const MAX_PACKETS: usize = 8;
/// Longest connection id (RFC 9000 §17.2).
const MAX_ID: usize = 20;
/// Where a header's sample begins behind the packet number, and its length.
const SAMPLE_AT: usize = 4;
const SAMPLE: usize = 16;

/// What a datagram had in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Some of a connection's beginning.
    pub(crate) begins: bool,
    /// The hellos that are whole with it.
    pub(crate) spoken: Vec<Spoken>,
}

/// The connections that a flow's box began.
#[derive(Debug, Default)]
pub(crate) struct DatagramPeek {
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    version: Version,
    id: Vec<u8>,
    keys: Keys,
    largest: Option<u64>,
    crypto: Crypto,
    spoken: bool,
}

/// A long header's packet within a datagram.
struct Packet<'a> {
    version: Version,
    initial: bool,
    id: &'a [u8],
    /// The packet to its end.
    whole: &'a [u8],
    /// Where its number begins.
    number_at: usize,
}

/// An Initial packet that is authentic.
struct Opened {
    number: u64,
    frames: Vec<u8>,
}

impl DatagramPeek {
    /// Bytes held for the connections.
    pub(crate) fn bytes(&self) -> usize {
        let of = |connection: &Connection| connection.crypto.bytes.len();
        self.connections.iter().map(of).sum()
    }

    /// Looks at a datagram that is next to go out.
    pub(crate) fn look(&mut self, datagram: &[u8]) -> Looked {
        let (mut looked, mut rest) = (Looked::default(), datagram);
        for at in 0.. {
            let Some(packet) = packet(rest) else {
                // Some server may read what this does not.
                if long_version(rest).is_some_and(is_spoken_elsewhere) {
                    looked.begins = true;
                    looked.spoken.push(Spoken::Unreadable);
                }
                break;
            };
            if at == MAX_PACKETS {
                looked.spoken.push(Spoken::Unreadable);
                break;
            }
            if packet.initial {
                self.initial(&packet, &mut looked);
            }
            rest = rest.get(packet.whole.len()..).unwrap_or_default();
        }
        looked
    }

    fn initial(&mut self, packet: &Packet<'_>, looked: &mut Looked) {
        let Some((at, opened)) = self.open(packet) else {
            return;
        };
        looked.begins = true;
        let Some(connection) = at.and_then(|at| self.connections.get_mut(at)) else {
            return looked.spoken.push(Spoken::Unreadable);
        };
        connection.largest = connection.largest.max(Some(opened.number));
        if connection.crypto.take(&opened.frames).is_none() {
            connection.spoken = true;
            return looked.spoken.push(Spoken::Unreadable);
        }
        if !connection.spoken
            && let Read::Done(spoken) = hello::read(connection.crypto.front())
        {
            connection.spoken = true;
            // What is in an Initial packet and no ClientHello is nothing that
            // a server could answer.
            looked.spoken.push(match spoken {
                Spoken::Other => Spoken::Unreadable,
                spoken => spoken,
            });
        }
    }

    /// Opens a packet with the keys of its own id, else with those of another
    /// connection: from the server's first answer on the id is the server's. It
    /// comes with the place of its connection, `None` if there is no room for it.
    fn open(&mut self, packet: &Packet<'_>) -> Option<(Option<usize>, Opened)> {
        let own = |one: &Connection| one.version == packet.version && one.id == packet.id;
        let known = self.connections.iter().position(own);
        let of = |at: usize| {
            let connection = self.connections.get(at)?;
            let opened = open(&connection.keys, connection.largest, packet)?;
            Some((Some(at), opened))
        };
        if let Some(found) = known.and_then(of) {
            return Some(found);
        }
        if known.is_none() {
            let keys = Keys::new(packet.version, packet.id)?;
            if let Some(opened) = open(&keys, None, packet) {
                return Some((self.begin(packet, keys), opened));
            }
        }
        (0..self.connections.len()).find_map(of)
    }

    fn begin(&mut self, packet: &Packet<'_>, keys: Keys) -> Option<usize> {
        if self.connections.len() >= MAX_CONNECTIONS {
            // One whose hello is known makes room, the oldest first.
            let done = self.connections.iter().position(|one| one.spoken)?;
            self.connections.remove(done);
        }
        self.connections.push(Connection {
            version: packet.version,
            id: packet.id.to_vec(),
            keys,
            largest: None,
            crypto: Crypto::default(),
            spoken: false,
        });
        Some(self.connections.len() - 1)
    }
}

/// The version that a long header at a datagram's front has (RFC 8999 §5.1).
fn long_version(datagram: &[u8]) -> Option<u32> {
    let mut reader = Reader(datagram);
    reader.u8().filter(|first| first & 0x80 != 0)?;
    let version = u32::from_be_bytes(reader.array()?);
    let (id, source) = (reader.vec8()?, reader.vec8()?);
    (id.0.len() <= MAX_ID && source.0.len() <= MAX_ID).then_some(version)
}

/// The packet at a datagram's front, if it has a long header of a known version.
fn packet(datagram: &[u8]) -> Option<Packet<'_>> {
    let mut reader = Reader(datagram);
    let first = reader.u8().filter(|first| first & 0x80 != 0)?;
    let version = Version::of(u32::from_be_bytes(reader.array()?))?;
    let (id, source) = (reader.vec8()?, reader.vec8()?);
    if id.0.len() > MAX_ID || source.0.len() > MAX_ID {
        return None;
    }
    let kind = first >> 4 & 3;
    if kind == version.retry() {
        return None;
    }
    let initial = kind == version.initial();
    if initial {
        let token = reader.length()?;
        reader.take(token)?;
    }
    let length = reader.length()?;
    let number_at = datagram.len() - reader.0.len();
    reader.take(length)?;
    let whole = datagram.get(..number_at + length)?;
    Some(Packet {
        version,
        initial,
        id: id.0,
        whole,
        number_at,
    })
}

/// Takes off the protection of an Initial packet (RFC 9001 §5); `None` if these
/// are not its keys.
fn open(keys: &Keys, largest: Option<u64>, packet: &Packet<'_>) -> Option<Opened> {
    let sample_at = packet.number_at + SAMPLE_AT;
    let sample = packet.whole.get(sample_at..sample_at + SAMPLE)?;
    let [of_first, of_number @ ..] = keys.mask(sample)?;
    let mut whole = packet.whole.to_vec();
    let first = whole.first_mut()?;
    *first ^= of_first & 0x0f;
    let size = usize::from(*first & 3) + 1;
    let payload_at = packet.number_at + size;
    let (header, payload) = whole.split_at_mut_checked(payload_at)?;
    let truncated = header.get_mut(packet.number_at..)?;
    let mut short = 0;
    for (octet, mask) in truncated.iter_mut().zip(of_number) {
        *octet ^= mask;
        short = short << 8 | u64::from(*octet);
    }
    let number = number(largest, short, size);
    let frames = keys.open(number, header, payload)?.to_vec();
    Some(Opened { number, frames })
}

/// The whole packet number by its last octets (RFC 9000 §A.3).
fn number(largest: Option<u64>, short: u64, size: usize) -> u64 {
    let window = 1_u64 << (8 * size);
    let expected = largest.map_or(0, |largest| largest.saturating_add(1));
    let candidate = expected & !(window - 1) | short;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// The stream of CRYPTO frames, in whatever order they come.
#[derive(Debug, Default)]
struct Crypto {
    bytes: Vec<u8>,
    /// Which of them are there.
    have: Vec<bool>,
    /// How many are there without a hole.
    front: usize,
}

impl Crypto {
    fn front(&self) -> &[u8] {
        self.bytes.get(..self.front).unwrap_or_default()
    }

    /// Takes the CRYPTO frames of a packet; `None` if it cannot be read to its
    /// end, is not what may stand in an Initial packet, or contradicts itself.
    fn take(&mut self, frames: &[u8]) -> Option<()> {
        let mut frames = Reader(frames);
        while !frames.is_empty() {
            match frames.varint()? {
                // PADDING, PING.
                0 | 1 => {}
                kind @ (2 | 3) => acknowledgement(&mut frames, kind == 3)?,
                6 => {
                    let (offset, length) = (frames.length()?, frames.length()?);
                    self.put(offset, frames.take(length)?)?;
                }
                // CONNECTION_CLOSE: code, frame type, reason.
                0x1c => {
                    let (_code, _kind, reason) =
                        (frames.varint()?, frames.varint()?, frames.length()?);
                    frames.take(reason)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn put(&mut self, offset: usize, data: &[u8]) -> Option<()> {
        let end = offset.checked_add(data.len())?;
        if end > MAX_HELLO {
            return None;
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
            self.have.resize(end, false);
        }
        let known = self.have.get_mut(offset..end)?;
        let bytes = self.bytes.get_mut(offset..end)?;
        for ((known, byte), new) in known.iter_mut().zip(bytes).zip(data) {
            // Which of two is read would be the server's choice.
            if *known && byte != new {
                return None;
            }
            (*known, *byte) = (true, *new);
        }
        let more = self.have.get(self.front..)?.iter();
        self.front += more.take_while(|known| **known).count();
        Some(())
    }
}

/// Passes over an ACK frame (RFC 9000 §19.3).
fn acknowledgement(frames: &mut Reader<'_>, counts: bool) -> Option<()> {
    let (_largest, _delay, ranges) = (frames.varint()?, frames.varint()?, frames.varint()?);
    let _first = frames.varint()?;
    for _ in 0..ranges {
        let (_gap, _range) = (frames.varint()?, frames.varint()?);
    }
    if counts {
        let (_ect0, _ect1, _ce) = (frames.varint()?, frames.varint()?, frames.varint()?);
    }
    Some(())
}
