//! Fragments of the box's datagrams, put together before anything is decided:
//! ports stand in the first one only (RFC 791 §3.2, 8200 §4.5).
//!
//! A fragment that overlaps another spoils its datagram (RFC 5722 §4, and here
//! in IPv4 too), but for one that is there already, octet for octet.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::Now;
use crate::gate::census::Census;
use crate::packet::{self, FRAGMENT, Ip, V4_HEADER, V6_HEADER};

/// Most datagrams of one box that are put together at a time; the oldest goes.
pub const MAX_FRAGMENT_SETS: usize = 64;
/// Most fragments of one datagram: enough for the longest at an MTU of 576.
pub const MAX_FRAGMENTS: usize = 128;
/// Most bytes of fragments that are kept, over all datagrams.
pub const MAX_FRAGMENT_BYTES: usize = 1 << 20;
/// How long a datagram may take to arrive whole. The box is one hop away.
pub const FRAGMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A fragment header (RFC 8200 §4.5).
const FRAGMENT_HEADER: usize = 8;
/// Longest payload, by the length fields' 16 bits.
const MAX_PAYLOAD: usize = 65535;

/// What fragments of one datagram have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    id: u32,
}

/// One fragment.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    key: Key,
    at: usize,
    more: bool,
    data: &'a [u8],
    /// The header of the datagram, if this is its first fragment.
    header: &'a [u8],
}

#[derive(Debug)]
struct Set {
    since: Now,
    pieces: BTreeMap<usize, Vec<u8>>,
    header: Vec<u8>,
    /// Where it ends, once the last fragment is there.
    end: Option<usize>,
    bytes: usize,
    /// Nothing comes of it any more; what is late of it goes where it belongs.
    spoilt: bool,
}

/// The datagrams that are not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    sets: HashMap<Key, Set>,
    /// In the order in which they began.
    order: VecDeque<(Now, Key)>,
    bytes: usize,
}

/// The protocol that a fragment carries.
pub(crate) fn proto(ip: &Ip<'_>) -> u8 {
    match ip.dst {
        IpAddr::V4(_) => ip.proto,
        IpAddr::V6(_) => ip.payload.first().copied().unwrap_or(ip.proto),
    }
}

fn read<'a>(ip: &Ip<'a>) -> Option<Piece<'a>> {
    let (word, id, data, header) = match ip.dst {
        IpAddr::V4(_) => {
            let fixed: &[u8; V4_HEADER] = ip.whole.first_chunk()?;
            let id = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            let word = u16::from_be_bytes([fixed[6], fixed[7]]);
            let header = ip.whole.get(..ip.whole.len() - ip.payload.len())?;
            // Eight-octet units and a flag at different ends, by family.
            (
                (word & 0x1fff) << 3 | (word >> 13 & 1),
                id,
                ip.payload,
                header,
            )
        }
        IpAddr::V6(_) => {
            let (fixed, data) = ip.payload.split_first_chunk::<FRAGMENT_HEADER>()?;
            let word = u16::from_be_bytes([fixed[2], fixed[3]]);
            let id = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
            (word & 0xfff9, id, data, ip.whole.get(..V6_HEADER)?)
        }
    };
    let key = Key {
        src: ip.src,
        dst: ip.dst,
        proto: proto(ip),
        id,
    };
    Some(Piece {
        key,
        at: usize::from(word & 0xfff8),
        more: word & 1 != 0,
        data,
        header,
    })
}

impl Piece<'_> {
    fn end(&self) -> usize {
        self.at + self.data.len()
    }

    /// What no sender makes: a fragment of nothing, one that is not a multiple
    /// of eight octets and not the last, one past the longest datagram.
    fn is_sound(&self) -> bool {
        let header = if self.key.dst.is_ipv4() { V4_HEADER } else { 0 };
        let even = !self.more || self.data.len().is_multiple_of(8);
        !self.data.is_empty() && even && self.end() <= MAX_PAYLOAD - header
    }
}

impl Set {
    /// Takes a fragment; false if it spoils the datagram.
    fn take(&mut self, piece: &Piece<'_>) -> bool {
        let next = self.pieces.range(piece.at..).next();
        if let Some((&at, there)) = next {
            if at == piece.at && *there == piece.data {
                return piece.more || self.end == Some(piece.end());
            }
            if at < piece.end() {
                return false;
            }
        }
        let before = self.pieces.range(..piece.at).next_back();
        if before.is_some_and(|(at, there)| at + there.len() > piece.at) {
            return false;
        }
        let last = self.pieces.last_key_value();
        let furthest = last.map_or(0, |(at, there)| at + there.len());
        if !piece.more {
            // The end is where one said it is, and nothing lies beyond.
            if self.end.is_some() || furthest > piece.at {
                return false;
            }
            self.end = Some(piece.end());
        } else if self.end.is_some_and(|end| piece.end() > end) {
            return false;
        }
        if self.pieces.len() >= MAX_FRAGMENTS {
            return false;
        }
        if piece.at == 0 {
            self.header = piece.header.to_vec();
        }
        self.bytes += piece.data.len();
        self.pieces.insert(piece.at, piece.data.to_vec());
        true
    }

    /// Without gaps, since no two overlap.
    fn is_whole(&self) -> bool {
        self.end == Some(self.bytes) && !self.spoilt
    }
}

impl Fragments {
    /// A fragment from the box; the datagram, as one packet, if it was the last
    /// that was missing.
    pub(crate) fn take(&mut self, now: Now, ip: &Ip<'_>) -> Option<Vec<u8>> {
        self.expire(now);
        let piece = read(ip)?;
        if !self.sets.contains_key(&piece.key) {
            if self.sets.len() >= MAX_FRAGMENT_SETS {
                self.drop_oldest();
            }
            let set = Set {
                since: now,
                pieces: BTreeMap::new(),
                header: Vec::new(),
                end: None,
                bytes: 0,
                spoilt: false,
            };
            self.sets.insert(piece.key, set);
            self.order.push_back((now, piece.key));
        }
        while self.bytes + piece.data.len() > MAX_FRAGMENT_BYTES {
            self.drop_oldest();
        }
        // It may have been the oldest itself.
        let set = self.sets.get_mut(&piece.key)?;
        let before = set.bytes;
        if set.spoilt || !piece.is_sound() || !set.take(&piece) {
            set.spoilt = true;
            set.pieces = BTreeMap::new();
            set.bytes = 0;
        }
        self.bytes = self.bytes + set.bytes - before;
        if !set.is_whole() {
            return None;
        }
        let set = self.remove(&piece.key)?;
        assemble(piece.key, set)
    }

    fn remove(&mut self, key: &Key) -> Option<Set> {
        let set = self.sets.remove(key)?;
        self.bytes -= set.bytes;
        self.order
            .retain(|(since, other)| (*since, other) != (set.since, key));
        Some(set)
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.order.front().copied() {
            self.remove(&key);
        }
    }

    pub(crate) fn count(&self, census: &mut Census) {
        census.fragment_sets = self.sets.len();
        census.fragment_bytes = self.bytes;
    }

    /// Forgets what took too long.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some((since, _)) = self.order.front()
            && *since + FRAGMENT_TIMEOUT <= now
        {
            self.drop_oldest();
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Now> {
        self.order
            .front()
            .map(|(since, _)| *since + FRAGMENT_TIMEOUT)
    }
}

/// One packet of all fragments, as if it had never been cut.
fn assemble(key: Key, set: Set) -> Option<Vec<u8>> {
    let mut packet = set.header;
    let header = packet.len();
    for data in set.pieces.values() {
        packet.extend_from_slice(data);
    }
    match key.dst {
        IpAddr::V4(_) => {
            let total = u16::try_from(packet.len()).ok()?;
            packet::put_u16(&mut packet, 2, total);
            packet::put_u16(&mut packet, 6, 0);
            packet::put_u16(&mut packet, 10, 0);
            let sum = packet::checksum(packet.get(..header)?);
            packet::put_u16(&mut packet, 10, sum);
        }
        IpAddr::V6(_) => {
            let len = u16::try_from(packet.len() - header).ok()?;
            packet::put_u16(&mut packet, 4, len);
            // The protocol stood in the fragment header.
            let next = packet.get_mut(6)?;
            if *next != FRAGMENT {
                return None;
            }
            *next = key.proto;
        }
    }
    Some(packet)
}

#[cfg(test)]
pub(crate) mod tests;
