//! Which blobs there are: pure, rebuilt from a listing at each start.
//!
//! A topic's first index is the time at which it began, in milliseconds, so that a
//! topic whose every blob expired goes on above where it was. Indices then rise by
//! one.

use std::collections::{BTreeMap, HashMap};

use bailey_envelope::{BLOB_SIZES, TopicId};
use bailey_sync::mail::Refusal;

/// Topics at once: about 160 bytes each.
const MAX_TOPICS: usize = 131_072;
/// Blobs of one topic.
const MAX_BLOBS_OF_TOPIC: usize = 65_536;
/// Blobs in all: 24 bytes each, and twice that while a list grows.
const MAX_BLOBS: usize = 1 << 22;
const MINUTE_MS: u64 = 60_000;

/// What may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Bytes of all blobs.
    pub bytes: u64,
    /// Bytes of one topic's.
    pub topic_bytes: u64,
    /// Milliseconds for which one is kept.
    pub keep_ms: u64,
}

/// One blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) index: u64,
    /// The first 8 bytes of its SHA-256.
    pub(crate) hash: u64,
    /// Minutes since 1970 when it came.
    minute: u32,
    /// Which of [`BLOB_SIZES`].
    size: u8,
}

impl Slot {
    pub(crate) fn bytes(&self) -> u64 {
        let size = BLOB_SIZES.get(usize::from(self.size));
        size.map_or(0, |size| *size as u64)
    }
}

#[derive(Debug, Default)]
struct Topic {
    /// In the order of their indices.
    slots: Vec<Slot>,
    /// Being written: index to hash and bytes.
    pending: BTreeMap<u64, Slot>,
    next: u64,
    bytes: u64,
}

impl Topic {
    /// What the next blob gets, as far as is settled.
    fn end(&self) -> u64 {
        self.pending
            .first_key_value()
            .map_or(self.next, |(index, _)| *index)
    }

    /// Takes one that was being written out. A map that was emptied would keep its room,
    /// of every topic that was ever written to.
    fn settle(&mut self, index: u64) -> Option<Slot> {
        let slot = self.pending.remove(&index);
        if self.pending.is_empty() {
            self.pending = BTreeMap::new();
        }
        slot
    }
}

/// What comes of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is to be written at this index.
    Write(u64),
    /// It is there at this index.
    There(u64),
    /// The same one is being written at this index.
    Pending(u64),
    /// It is not kept.
    Refused(Refusal),
}

/// The index.
#[derive(Debug)]
pub(crate) struct Index {
    quotas: Quotas,
    topics: HashMap<TopicId, Topic>,
    bytes: u64,
    blobs: usize,
}

impl Index {
    pub(crate) fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            topics: HashMap::new(),
            bytes: 0,
            blobs: 0,
        }
    }

    /// One that a listing found; in any order. `false` if it is none, or there are
    /// more than may be.
    pub(crate) fn found(
        &mut self,
        topic: TopicId,
        index: u64,
        hash: u64,
        bytes: u64,
        came_ms: u64,
    ) -> bool {
        let Some(size) = BLOB_SIZES.iter().position(|size| *size as u64 == bytes) else {
            return false;
        };
        let full = self.blobs >= MAX_BLOBS || self.topics.len() >= MAX_TOPICS;
        let full = full && !self.topics.contains_key(&topic);
        if full || index == u64::MAX {
            return false;
        }
        let slot = Slot {
            index,
            hash,
            minute: minute(came_ms),
            size: u8::try_from(size).unwrap_or(0),
        };
        let of = self.topics.entry(topic).or_default();
        let at = of.slots.partition_point(|slot| slot.index < index);
        if of.slots.get(at).is_some_and(|slot| slot.index == index) {
            return false;
        }
        of.slots.insert(at, slot);
        of.next = of.next.max(index + 1);
        of.bytes += bytes;
        self.bytes += bytes;
        self.blobs += 1;
        true
    }

    /// A listing is over: what its lists had to spare is given back.
    pub(crate) fn listed(&mut self) {
        for of in self.topics.values_mut() {
            of.slots.shrink_to_fit();
        }
    }

    /// Whether there is something of a topic, or about to be.
    pub(crate) fn knows(&self, topic: TopicId) -> bool {
        self.topics.contains_key(&topic)
    }

    /// Finds a place for a blob; [`Self::written`] or [`Self::failed`] follows
    /// [`Placed::Write`].
    pub(crate) fn place(&mut self, topic: TopicId, hash: u64, bytes: usize, now_ms: u64) -> Placed {
        let Some(size) = BLOB_SIZES.iter().position(|size| *size == bytes) else {
            return Placed::Refused(Refusal::Signature);
        };
        if let Some(of) = self.topics.get(&topic) {
            if let Some(slot) = of.slots.iter().rev().find(|slot| slot.hash == hash) {
                return Placed::There(slot.index);
            }
            if let Some(slot) = of.pending.values().find(|slot| slot.hash == hash) {
                return Placed::Pending(slot.index);
            }
        }
        let bytes = bytes as u64;
        if self.bytes + bytes > self.quotas.bytes || self.blobs >= MAX_BLOBS {
            return Placed::Refused(Refusal::Quota);
        }
        if !self.topics.contains_key(&topic) && self.topics.len() >= MAX_TOPICS {
            return Placed::Refused(Refusal::Quota);
        }
        let of = self.topics.entry(topic).or_default();
        let held = of.slots.len() + of.pending.len();
        if of.bytes + bytes > self.quotas.topic_bytes || held >= MAX_BLOBS_OF_TOPIC {
            if held == 0 {
                self.topics.remove(&topic);
            }
            return Placed::Refused(Refusal::TopicQuota);
        }
        if of.next == 0 {
            of.next = now_ms.max(1);
        }
        let index = of.next;
        of.next += 1;
        let slot = Slot {
            index,
            hash,
            minute: minute(now_ms),
            size: u8::try_from(size).unwrap_or(0),
        };
        of.pending.insert(index, slot);
        of.bytes += bytes;
        self.bytes += bytes;
        self.blobs += 1;
        Placed::Write(index)
    }

    /// A blob is on the disk: the end of its topic now.
    pub(crate) fn written(&mut self, topic: TopicId, index: u64) -> Option<u64> {
        let of = self.topics.get_mut(&topic)?;
        let slot = of.settle(index)?;
        let at = of.slots.partition_point(|other| other.index < index);
        of.slots.insert(at, slot);
        Some(of.end())
    }

    /// A blob could not be written: the end of its topic now.
    pub(crate) fn failed(&mut self, topic: TopicId, index: u64) -> Option<u64> {
        let of = self.topics.get_mut(&topic)?;
        let slot = of.settle(index)?;
        of.bytes -= slot.bytes();
        self.bytes -= slot.bytes();
        self.blobs -= 1;
        Some(of.end())
    }

    /// The index that a topic's next blob gets, as far as is settled; 0 where there
    /// is none.
    pub(crate) fn end(&self, topic: TopicId) -> u64 {
        self.topics.get(&topic).map_or(0, Topic::end)
    }

    /// The first blob of a topic from an index on, below its end.
    pub(crate) fn first_from(&self, topic: TopicId, from: u64) -> Option<Slot> {
        let of = self.topics.get(&topic)?;
        let at = of.slots.partition_point(|slot| slot.index < from);
        of.slots
            .get(at)
            .copied()
            .filter(|slot| slot.index < of.end())
    }

    /// Takes up to so many that are too old out.
    pub(crate) fn expire(&mut self, now_ms: u64, most: usize) -> Vec<(TopicId, Slot)> {
        let oldest = minute(now_ms.saturating_sub(self.quotas.keep_ms));
        let mut gone = Vec::new();
        for (topic, of) in &mut self.topics {
            let old = of.slots.iter().take_while(|slot| slot.minute < oldest);
            let old = old.count().min(most - gone.len());
            gone.extend(of.slots.drain(..old).map(|slot| (*topic, slot)));
            if gone.len() >= most {
                break;
            }
        }
        for (topic, slot) in &gone {
            self.take_out(*topic, slot);
        }
        gone
    }

    /// One is not there any more, whatever the listing said.
    pub(crate) fn lost(&mut self, topic: TopicId, index: u64) {
        let Some(of) = self.topics.get_mut(&topic) else {
            return;
        };
        if let Ok(at) = of.slots.binary_search_by_key(&index, |slot| slot.index) {
            let slot = of.slots.remove(at);
            self.take_out(topic, &slot);
        }
    }

    fn take_out(&mut self, topic: TopicId, slot: &Slot) {
        self.bytes -= slot.bytes();
        self.blobs -= 1;
        if let Some(of) = self.topics.get_mut(&topic) {
            of.bytes -= slot.bytes();
            if of.slots.is_empty() && of.pending.is_empty() {
                self.topics.remove(&topic);
            }
        }
    }

    pub(crate) fn blobs(&self) -> usize {
        self.blobs
    }

    pub(crate) fn topics(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn minute(ms: u64) -> u32 {
    u32::try_from(ms / MINUTE_MS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;
    const DAY: u64 = 24 * 60 * MINUTE_MS;
    const QUOTAS: Quotas = Quotas {
        bytes: 8 << 10,
        topic_bytes: 5 << 10,
        keep_ms: DAY,
    };

    fn topic(n: u8) -> TopicId {
        TopicId([n; 32])
    }

    fn keep(index: &mut Index, n: u8, hash: u64) -> u64 {
        let Placed::Write(at) = index.place(topic(n), hash, 1 << 10, NOW) else {
            panic!("no place");
        };
        index.written(topic(n), at).unwrap();
        at
    }

    #[test]
    fn a_blob_that_is_there_is_not_written_again() {
        let mut index = Index::new(QUOTAS);
        let at = keep(&mut index, 1, 7);
        assert_eq!(index.place(topic(1), 7, 1 << 10, NOW), Placed::There(at));
        let Placed::Write(next) = index.place(topic(1), 8, 1 << 10, NOW) else {
            panic!("no place");
        };
        assert_eq!(next, at + 1);
        assert_eq!(
            index.place(topic(1), 8, 1 << 10, NOW),
            Placed::Pending(next)
        );
    }

    /// A follower must not pass over one that is still being written.
    #[test]
    fn the_end_waits_for_what_is_being_written() {
        let mut index = Index::new(QUOTAS);
        let at = keep(&mut index, 1, 1);
        for hash in 2..5 {
            index.place(topic(1), hash, 1 << 10, NOW);
        }
        assert_eq!(index.end(topic(1)), at + 1);
        assert_eq!(index.written(topic(1), at + 2), Some(at + 1));
        assert_eq!(index.first_from(topic(1), at + 1), None);
        assert_eq!(index.failed(topic(1), at + 1), Some(at + 3));
        let next = index.first_from(topic(1), at + 1).unwrap();
        assert_eq!(next.index, at + 2);
        assert_eq!(index.written(topic(1), at + 3), Some(at + 4));
    }

    #[test]
    fn quotas_are_of_all_and_of_each_topic_and_give_back() {
        let mut index = Index::new(QUOTAS);
        for hash in 0..5 {
            keep(&mut index, 1, hash);
        }
        let place = |index: &mut Index, n| index.place(topic(n), 99, 1 << 10, NOW);
        let of_topic = Placed::Refused(Refusal::TopicQuota);
        assert_eq!(place(&mut index, 1), of_topic);
        for hash in 0..3 {
            keep(&mut index, 2, hash);
        }
        let of_all = Placed::Refused(Refusal::Quota);
        assert_eq!(place(&mut index, 2), of_all);
        assert_eq!(place(&mut index, 3), of_all);
        assert!(!index.knows(topic(3)));
        let gone = index.expire(NOW + 2 * DAY, 6);
        assert_eq!(gone.len(), 6);
        assert_eq!((index.bytes(), index.blobs()), (2 << 10, 2));
        assert!(matches!(place(&mut index, 3), Placed::Write(_)));
    }

    #[test]
    fn what_is_too_old_goes_and_its_topic_goes_on_above() {
        let mut index = Index::new(QUOTAS);
        let at = keep(&mut index, 1, 1);
        assert!(index.expire(NOW + DAY, 100).is_empty());
        assert_eq!(index.expire(NOW + DAY + 2 * MINUTE_MS, 100).len(), 1);
        assert_eq!((index.topics(), index.end(topic(1))), (0, 0));
        let later = index.place(topic(1), 2, 1 << 10, NOW + 2 * DAY);
        assert!(matches!(later, Placed::Write(next) if next > at));
    }

    #[test]
    fn a_listing_in_any_order_makes_the_same_index() {
        let mut index = Index::new(QUOTAS);
        for (at, hash) in [(9, 90), (7, 70), (8, 80)] {
            assert!(index.found(topic(1), at, hash, 1 << 10, NOW));
        }
        assert!(!index.found(topic(1), 8, 81, 1 << 10, NOW), "twice");
        assert!(
            !index.found(topic(1), 10, 1, 1000, NOW),
            "no size of a blob"
        );
        assert_eq!(index.end(topic(1)), 10);
        assert_eq!(index.place(topic(1), 80, 1 << 10, NOW), Placed::There(8));
        index.lost(topic(1), 8);
        assert_eq!(index.first_from(topic(1), 8).unwrap().index, 9);
    }
}
