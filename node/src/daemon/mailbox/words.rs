//! What devices say by a mailbox of how far they have each chain, and what follows for
//! the mailbox: one that tells less than another device saw keeps something back, or
//! has lost it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bailey_docs_store::{ChainId, Hash, Head, Heads, MAX_HEADS};
use bailey_model::{DeviceId, Timestamp};

/// Between two words of this device, while something changes.
const EVERY: Duration = Duration::from_secs(30);
/// The same where something is lacking.
const LACKING: Duration = Duration::from_secs(5);
/// The same while nothing changes and another device is heard by the mailbox: what is
/// asked of this one there rests on the time that it was heard.
const BEAT: Duration = Duration::from_secs(5 * 60);
/// A device that was not heard for longer was away: it is answered at once.
const AWAY: Duration = Duration::from_secs(6 * 60);
/// How long what a device says of its own chains may take to come: it lies in the
/// mailbox before its word does.
const OWN_LATE: Duration = Duration::from_secs(10);
/// The same of others' chains, which somebody else may still be about to put.
const OTHERS_LATE: Duration = Duration::from_secs(90);
/// Chains of which one device says that something is lacking: each has room of its own, so
/// that what one makes up is in the way of no other's word.
const MAX_LACKS: usize = 256;
/// Chains of which one word of this device says that it lacks something.
const MAX_SAID: usize = 512;
/// Chains of one writer that are left out of it.
const MAX_FAULTS: usize = 256;
/// A word that is older, by the clocks of both, asks for nothing any more.
const STALE_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, Copy)]
struct Lack {
    /// What the device says that it has.
    seq: u64,
    since: Duration,
    /// Whether it was said in a word.
    said: bool,
}

/// Words heard and said.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Chains that changed since the last word, the newest last.
    changed: BTreeMap<ChainId, u64>,
    count: u64,
    said_all: bool,
    last: Option<Duration>,
    /// By whose word, which is a member's and no more than that.
    lacks: BTreeMap<DeviceId, BTreeMap<ChainId, Lack>>,
    /// Chains of which this device refused something that their writer signed: they end
    /// here for a reason that is not the mailbox's. By writer.
    faults: BTreeMap<DeviceId, BTreeSet<ChainId>>,
    /// When a word of each other member came last.
    heard: BTreeMap<DeviceId, Duration>,
    /// A word came since this device's own, and one of a device that was away.
    spoken_to: bool,
    newcomer: bool,
}

impl Words {
    /// Chains are here further than before.
    pub(super) fn heads(&mut self, heads: &[Head]) {
        for head in heads {
            self.count += 1;
            self.changed.insert(head.chain, self.count);
            for lacks in self.lacks.values_mut() {
                if lacks.get(&head.chain).is_some_and(|it| it.seq <= head.seq) {
                    lacks.remove(&head.chain);
                }
            }
        }
    }

    /// Something of a chain was refused here that its writer surely signed.
    pub(super) fn fault(&mut self, chain: ChainId) {
        let faults = self.faults.entry(chain.writer).or_default();
        if faults.len() < MAX_FAULTS {
            faults.insert(chain);
        }
        for lacks in self.lacks.values_mut() {
            lacks.remove(&chain);
        }
    }

    fn is_faulty(&self, chain: &ChainId) -> bool {
        let of = self.faults.get(&chain.writer);
        of.is_some_and(|faults| faults.contains(chain))
    }

    /// A device's word came. Gives the chains of which it lacks what is here, and how
    /// far it has them.
    pub(super) fn heard(
        &mut self,
        word: &Heads,
        heads: &BTreeMap<ChainId, Head>,
        writes: impl Fn(&DeviceId) -> bool,
        (now, clock): (Duration, Timestamp),
    ) -> Vec<(ChainId, u64)> {
        let have = |chain: &ChainId| heads.get(chain).map_or(0, |head| head.seq);
        if writes(&word.signer) {
            let before = self.heard.insert(word.signer, now);
            self.spoken_to = true;
            self.newcomer |= before.is_none_or(|before| now > before + AWAY);
        }
        self.lacks.retain(|device, _| writes(device));
        for head in &word.heads {
            let chain = &head.chain;
            if head.seq <= have(chain) || self.is_faulty(chain) || !writes(&chain.writer) {
                continue;
            }
            let lacks = self.lacks.entry(word.signer).or_default();
            if lacks.len() >= MAX_LACKS && !lacks.contains_key(chain) {
                continue;
            }
            let lack = lacks.entry(*chain).or_insert(Lack {
                seq: head.seq,
                since: now,
                said: false,
            });
            lack.seq = lack.seq.max(head.seq);
        }
        if clock.0.saturating_sub(word.made.0) > STALE_MS {
            return Vec::new();
        }
        let lacks = word.lacks.iter();
        let lacks = lacks.filter(|head| head.seq < have(&head.chain));
        lacks.map(|head| (head.chain, head.seq)).collect()
    }

    fn is_late(by: DeviceId, chain: &ChainId, lack: &Lack, now: Duration) -> bool {
        let late = match chain.writer == by {
            true => OWN_LATE,
            false => OTHERS_LATE,
        };
        now >= lack.since + late
    }

    /// What is late, by whose word.
    fn late(&self, now: Duration) -> impl Iterator<Item = (DeviceId, ChainId, &Lack)> {
        let all = self.lacks.iter();
        let all = all.flat_map(|(by, of)| of.iter().map(|(chain, lack)| (*by, *chain, lack)));
        all.filter(move |(by, chain, lack)| Self::is_late(*by, chain, lack, now))
    }

    /// Devices that saw more than the mailbox has told in time, and of which chain; but
    /// for those that are there and can hand it over.
    pub(super) fn older(
        &self,
        now: Duration,
        is_up: impl Fn(DeviceId) -> bool,
    ) -> BTreeMap<DeviceId, ChainId> {
        let late = self.late(now).filter(|(by, ..)| !is_up(*by));
        late.map(|(by, chain, _)| (by, chain)).collect()
    }

    /// Whether there is something to say, and it is time.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let Some(last) = self.last else {
            return true;
        };
        let mut late = self.late(now);
        let lacking = now >= last + LACKING && late.any(|(.., lack)| !lack.said);
        let changed = now >= last + EVERY && (!self.said_all || !self.changed.is_empty());
        let asked = self.newcomer && now >= last + LACKING;
        lacking || changed || asked || (self.spoken_to && now >= last + BEAT)
    }

    /// What to say now: the first time of all that is here, then of what changed, the
    /// newest where that is too much; and what is lacking.
    pub(super) fn say(
        &mut self,
        now: Duration,
        heads: &BTreeMap<ChainId, Head>,
    ) -> (Vec<Head>, Vec<Head>) {
        self.last = Some(now);
        (self.spoken_to, self.newcomer) = (false, false);
        let lacks = self.say_lacks(now, heads);
        let room = MAX_HEADS - lacks.len().min(MAX_HEADS);
        let changed = std::mem::take(&mut self.changed);
        let mut said: Vec<(u64, Head)> = heads
            .values()
            .filter(|head| !self.said_all || changed.contains_key(&head.chain))
            .map(|head| (changed.get(&head.chain).copied().unwrap_or(0), *head))
            .collect();
        said.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        said.truncate(room);
        self.said_all = true;
        (said.into_iter().map(|(_, head)| head).collect(), lacks)
    }

    /// How far this device has the chains of which something is late: what it has not
    /// said first, and of each device's word as much as of another's.
    fn say_lacks(&mut self, now: Duration, heads: &BTreeMap<ChainId, Head>) -> Vec<Head> {
        let mut late = Vec::new();
        for (by, lacks) in &mut self.lacks {
            let it = lacks.iter_mut();
            let it = it.filter(|(chain, lack)| Self::is_late(*by, chain, lack, now));
            late.extend(it.enumerate().map(|(at, (chain, lack))| (at, *chain, lack)));
        }
        late.sort_by_key(|(at, _, lack)| (lack.said, *at));
        let mut said = BTreeSet::new();
        for (_, chain, lack) in late {
            if said.len() < MAX_SAID || said.contains(&chain) {
                said.insert(chain);
                lack.said = true;
            }
        }
        let none = |chain| Head {
            chain,
            seq: 0,
            hash: Hash::NONE,
        };
        let have = |chain: ChainId| heads.get(&chain).copied().unwrap_or(none(chain));
        said.into_iter().map(have).collect()
    }

    /// What was to be said could not be.
    pub(super) fn not_said(&mut self) {
        self.said_all = false;
    }

    /// The mailbox lost what it had.
    pub(super) fn lost(&mut self) {
        self.said_all = false;
        self.last = None;
    }
}

#[cfg(test)]
mod tests;
