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
/// Chains of which something is lacking, and chains that are left out of it.
const MAX_LACKS: usize = 256;
const MAX_FAULTS: usize = 1024;
/// A word that is older, by the clocks of both, asks for nothing any more.
const STALE_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Clone, Copy)]
struct Lack {
    /// What somebody has.
    seq: u64,
    by: DeviceId,
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
    lacks: BTreeMap<ChainId, Lack>,
    /// Chains of which this device refused something: they end here for a reason that
    /// is not the mailbox's.
    faults: BTreeSet<ChainId>,
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
            let reached = |lack: &mut Lack| lack.seq <= head.seq;
            if self.lacks.get_mut(&head.chain).is_some_and(reached) {
                self.lacks.remove(&head.chain);
            }
        }
    }

    /// Something of a chain was refused here.
    pub(super) fn fault(&mut self, chain: ChainId) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.insert(chain);
        }
        self.lacks.remove(&chain);
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
        for head in &word.heads {
            let chain = &head.chain;
            if head.seq <= have(chain) || self.faults.contains(chain) || !writes(&chain.writer) {
                continue;
            }
            if self.lacks.len() >= MAX_LACKS && !self.lacks.contains_key(chain) {
                continue;
            }
            let lack = self.lacks.entry(*chain).or_insert(Lack {
                seq: head.seq,
                by: word.signer,
                since: now,
                said: false,
            });
            if head.seq > lack.seq {
                (lack.seq, lack.by) = (head.seq, word.signer);
            }
        }
        if clock.0.saturating_sub(word.made.0) > STALE_MS {
            return Vec::new();
        }
        let lacks = word.lacks.iter();
        let lacks = lacks.filter(|head| head.seq < have(&head.chain));
        lacks.map(|head| (head.chain, head.seq)).collect()
    }

    fn is_late(chain: &ChainId, lack: &Lack, now: Duration) -> bool {
        let late = match chain.writer == lack.by {
            true => OWN_LATE,
            false => OTHERS_LATE,
        };
        now >= lack.since + late
    }

    /// A device that saw more than the mailbox has told in time, and whose chain it is.
    pub(super) fn older(&self, now: Duration) -> Option<(DeviceId, ChainId)> {
        let mut lacks = self.lacks.iter();
        let late = lacks.find(|(chain, lack)| Self::is_late(chain, lack, now));
        late.map(|(chain, lack)| (lack.by, *chain))
    }

    /// Whether there is something to say, and it is time.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let Some(last) = self.last else {
            return true;
        };
        let unsaid =
            |(chain, lack): (&ChainId, &Lack)| !lack.said && Self::is_late(chain, lack, now);
        let lacking = now >= last + LACKING && self.lacks.iter().any(unsaid);
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
        let mut lacks = Vec::new();
        for (chain, lack) in &mut self.lacks {
            if Self::is_late(chain, lack, now) {
                lack.said = true;
                let none = Head {
                    chain: *chain,
                    seq: 0,
                    hash: Hash::NONE,
                };
                lacks.push(heads.get(chain).copied().unwrap_or(none));
            }
        }
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
