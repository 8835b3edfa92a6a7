//! What a gate notes before it dials, so that it need not wait for its node.
//!
//! A slate is a file of fixed slots that the gate has mapped. A flow's entry is
//! written there, sealed, before its dial; then the node is told, and says once it
//! stands in the journal, which frees the slot. What a process has stored in a shared
//! mapping is the kernel's: it stays whoever is killed, and the next node enters what
//! the last one had not. It is no more durable than a journal that is not synced.
//!
//! ```text
//! header   8 bytes "baislat1", then how many notes are entered: u64; 512 bytes in all
//! slot i   length of what follows: u16, nonce: 12 bytes, sealed note; 512 bytes in all
//! ```
//!
//! Numbers are little-endian. Note `n` (from 1 on) is in slot `n mod 512`. Sealed is
//! the postcard of a [`Note`] by ChaCha20-Poly1305 (RFC 8439), with the number as
//! associated data: a slot that was half written, or written for another number,
//! does not open and is no note, as nothing was dialled for it.

use bailey_model::FlowOpened;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

/// Most notes that are not entered yet.
pub const SLOTS: u64 = 512;
const SLOT_COUNT: usize = 512;
/// Bytes of a slot, and of the header.
const SLOT: usize = 512;
/// Bytes of a slate.
pub const SLATE_LEN: usize = SLOT * (1 + SLOT_COUNT);
const MAGIC: [u8; 8] = *b"baislat1";
/// Where a slot has its nonce, and where what is sealed.
const NONCE_AT: usize = 2;
const NOTE_AT: usize = NONCE_AT + NONCE_LEN;

/// Bytes of random nonce that a note takes.
pub const SLATE_NONCE: usize = NONCE_LEN;

/// The key of one slate, of one incarnation of a box.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlateKey(pub [u8; 32]);

impl std::fmt::Debug for SlateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SlateKey(..)")
    }
}

impl SlateKey {
    fn cipher(&self) -> Option<LessSafeKey> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0).ok()?;
        Some(LessSafeKey::new(key))
    }
}

/// A flow that is about to be dialled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When, in milliseconds since 1970, by the machine's clock.
    pub at_ms: u64,
    /// The flow.
    pub opened: FlowOpened,
}

/// The writer of a slate. It owns no memory: each call is given the mapping.
pub struct Slate {
    key: LessSafeKey,
    noted: u64,
    entered: u64,
    plain: Vec<u8>,
}

impl std::fmt::Debug for Slate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slate")
            .field("noted", &self.noted)
            .field("entered", &self.entered)
            .finish_non_exhaustive()
    }
}

impl Slate {
    /// Begins an empty slate; `None` if the memory is not [`SLATE_LEN`] bytes.
    #[must_use]
    pub fn begin(memory: &mut [u8], key: &SlateKey) -> Option<Self> {
        if memory.len() != SLATE_LEN {
            return None;
        }
        let slate = Self {
            key: key.cipher()?,
            noted: 0,
            entered: 0,
            plain: Vec::with_capacity(SLOT),
        };
        memory.get_mut(..8)?.copy_from_slice(&MAGIC);
        put_entered(memory, 0)?;
        Some(slate)
    }

    /// Notes a flow that is about to be dialled, and gives the note's number. `None`
    /// where there is no room, or it is too long: then it is not noted, and its entry
    /// is to be waited for.
    pub fn note(
        &mut self,
        memory: &mut [u8],
        note: &Note,
        nonce: [u8; SLATE_NONCE],
    ) -> Option<u64> {
        if self.noted - self.entered >= SLOTS {
            return None;
        }
        let number = self.noted + 1;
        self.plain.clear();
        self.plain = postcard::to_extend(note, std::mem::take(&mut self.plain)).ok()?;
        let aad = Aad::from(number.to_le_bytes());
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce_of, aad, &mut self.plain)
            .ok()?;
        let slot = slot_of(memory, number)?;
        slot.get_mut(NOTE_AT..NOTE_AT + self.plain.len())?
            .copy_from_slice(&self.plain);
        slot.get_mut(NONCE_AT..NOTE_AT)?.copy_from_slice(&nonce);
        let len = u16::try_from(self.plain.len()).ok()?;
        slot.get_mut(..NONCE_AT)?
            .copy_from_slice(&len.to_le_bytes());
        self.noted = number;
        Some(number)
    }

    /// Notes up to this number stand in the journal: their slots are free. A number
    /// that was not noted frees nothing.
    pub fn entered(&mut self, memory: &mut [u8], upto: u64) {
        if upto > self.entered && upto <= self.noted && put_entered(memory, upto).is_some() {
            self.entered = upto;
        }
    }

    /// Whether every note stands in the journal.
    #[must_use]
    pub fn all_entered(&self) -> bool {
        self.entered == self.noted
    }
}

fn put_entered(memory: &mut [u8], upto: u64) -> Option<()> {
    memory.get_mut(8..16)?.copy_from_slice(&upto.to_le_bytes());
    Some(())
}

fn slot_at(number: u64) -> usize {
    let slot = usize::try_from(number % SLOTS).unwrap_or_default();
    SLOT * (1 + slot)
}

fn slot_of(memory: &mut [u8], number: u64) -> Option<&mut [u8]> {
    let at = slot_at(number);
    memory.get_mut(at..at + SLOT)
}

/// The notes of flows that a slate's gate may have dialled and that were not said to
/// be entered, with their numbers, in order; `None` if this is no slate. Some of them may be entered all the same: their
/// gate had not heard so.
#[must_use]
pub fn read_slate(memory: &[u8], key: &SlateKey) -> Option<Vec<(u64, Note)>> {
    if memory.len() != SLATE_LEN || memory.get(..8)? != MAGIC {
        return None;
    }
    let key = key.cipher()?;
    let entered = u64::from_le_bytes(memory.get(8..16)?.try_into().ok()?);
    let numbers = (1..=SLOTS).map_while(|further| entered.checked_add(further));
    Some(
        numbers
            .filter_map(|number| Some((number, open(memory, &key, number)?)))
            .collect(),
    )
}

fn open(memory: &[u8], key: &LessSafeKey, number: u64) -> Option<Note> {
    let at = slot_at(number);
    let slot = memory.get(at..at + SLOT)?;
    let len = u16::from_le_bytes(slot.get(..NONCE_AT)?.try_into().ok()?);
    let nonce: [u8; NONCE_LEN] = slot.get(NONCE_AT..NOTE_AT)?.try_into().ok()?;
    let mut sealed = slot.get(NOTE_AT..NOTE_AT + usize::from(len))?.to_vec();
    let aad = Aad::from(number.to_le_bytes());
    let plain = key
        .open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
        .ok()?;
    let (note, rest) = postcard::take_from_bytes(plain).ok()?;
    rest.is_empty().then_some(note)
}

#[cfg(test)]
mod tests {
    use bailey_model::{AddrClass, Direction, FiveTuple, FlowId, Granted, Host, HostFrom, Proto};
    use proptest::prelude::*;

    use super::*;

    const KEY: SlateKey = SlateKey([7; 32]);

    fn opened(flow: u64, host: usize) -> Note {
        let opened = FlowOpened {
            flow: FlowId(flow),
            direction: Direction::Out,
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: ([192, 0, 2, 1], 1000).into(),
                dst: ([192, 0, 2, 2], 443).into(),
            },
            host: Host::new(&["a".repeat(host), "example".to_owned()].join(".")),
            host_from: HostFrom::Dns,
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        };
        Note {
            at_ms: flow,
            opened,
        }
    }

    fn nonce(flow: u64) -> [u8; SLATE_NONCE] {
        let mut nonce = [0; SLATE_NONCE];
        nonce[..8].copy_from_slice(&flow.to_le_bytes());
        nonce
    }

    fn flows(memory: &[u8]) -> Vec<u64> {
        let read = read_slate(memory, &KEY).unwrap();
        let of = |(number, note): (u64, Note)| {
            assert_eq!(number, note.opened.flow.0);
            number
        };
        read.into_iter().map(of).collect()
    }

    #[test]
    fn what_is_noted_and_not_entered_is_read_back_in_order() {
        let mut memory = vec![0; SLATE_LEN];
        let mut slate = Slate::begin(&mut memory, &KEY).unwrap();
        for flow in 1..=3 * SLOTS {
            let noted = slate.note(&mut memory, &opened(flow, 3), nonce(flow));
            assert_eq!(noted, Some(flow));
            slate.entered(&mut memory, flow.saturating_sub(3));
            let from = flow.saturating_sub(2).max(1);
            assert_eq!(flows(&memory), (from..=flow).collect::<Vec<_>>());
        }
        assert!(!slate.all_entered());
        slate.entered(&mut memory, 3 * SLOTS);
        assert!(slate.all_entered() && flows(&memory).is_empty());
    }

    #[test]
    fn where_there_is_no_room_nothing_is_noted() {
        let mut memory = vec![0; SLATE_LEN];
        let mut slate = Slate::begin(&mut memory, &KEY).unwrap();
        for flow in 1..=SLOTS {
            assert!(
                slate
                    .note(&mut memory, &opened(flow, 3), nonce(flow))
                    .is_some()
            );
        }
        let before = memory.clone();
        assert_eq!(slate.note(&mut memory, &opened(0, 3), nonce(0)), None);
        // A word for what was not noted frees nothing.
        slate.entered(&mut memory, SLOTS + 1);
        assert_eq!(slate.note(&mut memory, &opened(0, 3), nonce(0)), None);
        assert_eq!(memory, before);
        slate.entered(&mut memory, 1);
        assert!(
            slate
                .note(&mut memory, &opened(SLOTS + 1, 3), nonce(9))
                .is_some()
        );
        assert_eq!(flows(&memory).len(), 512);
    }

    #[test]
    fn nothing_of_a_note_is_in_the_clear_and_no_other_key_reads_it() {
        let mut memory = vec![0; SLATE_LEN];
        let mut slate = Slate::begin(&mut memory, &KEY).unwrap();
        slate.note(&mut memory, &opened(1, 40), nonce(1)).unwrap();
        assert_eq!(flows(&memory), [1], "the control");
        let name = [b'a'; 8];
        assert!(!memory.windows(name.len()).any(|part| part == name));
        assert_eq!(read_slate(&memory, &SlateKey([8; 32])), Some(vec![]));
        assert_eq!(read_slate(&memory[1..], &KEY), None);
        assert_eq!(read_slate(&vec![0; SLATE_LEN], &KEY), None);
    }

    proptest! {
        #[test]
        fn whatever_a_disk_makes_of_a_slate_no_flow_is_made_up(
            noted in 1..20_u64,
            at in prop::collection::vec((0..8 * SLOT, any::<u8>()), 1..40),
        ) {
            let mut memory = vec![0; SLATE_LEN];
            let mut slate = Slate::begin(&mut memory, &KEY).unwrap();
            for flow in 1..=noted {
                slate.note(&mut memory, &opened(flow, 3), nonce(flow)).unwrap();
            }
            for (at, byte) in at {
                memory[at] = byte;
            }
            for (number, read) in read_slate(&memory, &KEY).unwrap_or_default() {
                prop_assert!(number <= noted);
                prop_assert_eq!(&read, &opened(number, 3));
            }
        }
    }
}
