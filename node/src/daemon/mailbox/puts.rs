//! What is put into a mailbox, and in which order. Pure: time comes as a span since the
//! node began.
//!
//! Each chain goes by a lane: what is sealed by the topics of its keys, records of the
//! account and of keys by the inbox of each other device, in each week anew. A lane is
//! worked off in order, one range of it at a time.
//!
//! Whoever reads a key's topic can fill it. A lane whose topic is full waits alone, and
//! requests and receipts go by the inboxes meanwhile, into which nobody else can write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bailey_docs_store::{ChainId, DocId, Head, Mailed, TopicId};
use bailey_model::DeviceId;
use bailey_sync::mail::{MAX_PUTS, Refusal};

/// How long another device has to put what it wrote before this one does: a device
/// without a mailbox has others that do.
const GRACE: Duration = Duration::from_secs(20);
/// Blobs that wait here; another range is asked for only below it.
const LOW: usize = MAX_PUTS;
/// Wait after the first refusal; doubles.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest wait after a refusal.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);

/// Which way a chain goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// The device whose inbox it is, and the week; `None` for the topics of keys.
    pub(crate) to: Option<(DeviceId, u64)>,
    /// The chain.
    pub(crate) chain: ChainId,
}

/// What is known outside of this.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// How far every chain is here.
    pub(super) heads: &'a BTreeMap<ChainId, Head>,
    /// This device.
    pub(super) this: DeviceId,
    /// Members that have no session with this device.
    pub(super) away: &'a BTreeSet<DeviceId>,
    /// Devices that are no members any more and are to hear so.
    pub(super) parting: &'a BTreeSet<DeviceId>,
    /// The week of inboxes.
    pub(super) week: u64,
    /// Whether all that others put is known.
    pub(super) caught_up: bool,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Lane(Lane, u64),
    /// This device's word on its heads.
    Word,
}

#[derive(Debug)]
struct Held {
    refusal: Refusal,
    until: Duration,
    wait: Duration,
}

/// A lane whose topic is full.
#[derive(Debug)]
struct Stuck {
    until: Duration,
    wait: Duration,
}

/// What is put, and what is still to be.
#[derive(Debug, Default)]
pub(super) struct Puts {
    done: BTreeMap<Lane, u64>,
    /// When others' chains grew here.
    grown: BTreeMap<ChainId, Duration>,
    queue: VecDeque<(What, TopicId, Vec<u8>)>,
    sent: BTreeMap<u64, What>,
    /// The lane that the store was asked for, and up to which number it goes.
    asked: Option<(Lane, u64)>,
    last_id: u64,
    held: Option<Held>,
    /// No more than there are lanes.
    stuck: BTreeMap<Lane, Stuck>,
    /// A word was refused and is to be said again.
    word_lost: bool,
    /// Until when there is no room for one.
    word_waits: Option<Duration>,
}

impl Puts {
    /// What an earlier start had put.
    pub(super) fn resume(done: impl IntoIterator<Item = (Lane, u64)>) -> Self {
        Self {
            done: done.into_iter().collect(),
            ..Self::default()
        }
    }

    /// What is put, of chains that are here and inboxes of this week.
    pub(super) fn done(&self, view: &View<'_>) -> Vec<(Lane, u64)> {
        let still = |lane: &Lane| {
            let now = lane.to.is_none_or(|(_, week)| week == view.week);
            now && view.heads.contains_key(&lane.chain)
        };
        let done = self.done.iter().filter(|(lane, _)| still(lane));
        done.map(|(lane, upto)| (*lane, *upto)).collect()
    }

    /// Chains are here further than before.
    pub(super) fn heads(&mut self, heads: &[Head], this: DeviceId, now: Duration) {
        for head in heads.iter().filter(|head| head.chain.writer != this) {
            self.grown.insert(head.chain, now);
        }
    }

    /// The mailbox has a chain up to a number, whoever put it.
    pub(super) fn there(&mut self, chain: ChainId, upto: u64) {
        self.is_done(Lane { to: None, chain }, upto);
    }

    fn is_done(&mut self, lane: Lane, upto: u64) {
        let done = self.done.entry(lane).or_default();
        *done = (*done).max(upto);
    }

    /// A device has a chain up to a number only and the mailbox gives it no more.
    pub(super) fn lacks(&mut self, device: DeviceId, chain: ChainId, have: u64) {
        let concerns =
            |lane: &Lane| lane.chain == chain && lane.to.is_none_or(|(to, _)| to == device);
        for (_, done) in self.done.iter_mut().filter(|(lane, _)| concerns(lane)) {
            *done = (*done).min(have);
        }
    }

    /// The connection is over: what has no answer may be there or not.
    pub(super) fn down(&mut self) {
        self.queue.clear();
        self.sent.clear();
        self.asked = None;
        self.held = None;
        self.stuck.clear();
        self.word_waits = None;
    }

    /// The mailbox has nothing of what it had.
    pub(super) fn lost(&mut self) {
        self.done.clear();
        self.stuck.clear();
    }

    /// Whether nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty() && self.asked.is_none()
    }

    /// Why something is not put now, if the mailbox refused.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let full = !self.stuck.is_empty() || self.word_waits.is_some();
        let held = self.held.as_ref().map(|held| held.refusal);
        held.or(full.then_some(Refusal::TopicQuota))
    }

    /// Whether nothing at all is put now.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether there may be room for a word.
    pub(super) fn takes_word(&self, now: Duration) -> bool {
        self.word_waits.is_none_or(|until| now >= until)
    }

    /// Whether a word came to nothing since this was asked last.
    pub(super) fn take_lost_word(&mut self) -> bool {
        std::mem::take(&mut self.word_lost)
    }

    /// The next range to ask the store for: a lane, and the number from which on.
    pub(super) fn next_range(&mut self, now: Duration, view: &View<'_>) -> Option<(Lane, u64)> {
        let waits = self.held.as_ref().is_some_and(|held| now < held.until);
        if waits || self.asked.is_some() || self.queue.len() >= LOW {
            return None;
        }
        let (lane, from, upto) = self.first_behind(now, view)?;
        self.asked = Some((lane, upto));
        Some((lane, from))
    }

    /// Whether something is to be put, now or later.
    pub(super) fn is_behind(&self, now: Duration, view: &View<'_>) -> bool {
        self.first_behind(now, view).is_some()
    }

    fn first_behind(&self, now: Duration, view: &View<'_>) -> Option<(Lane, u64, u64)> {
        let under_way: BTreeSet<Lane> = self.under_way().collect();
        let mut best: Option<(u8, Lane, u64, u64)> = None;
        for (chain, head) in view.heads {
            let rank = rank(chain.doc);
            if best.is_some_and(|(least, ..)| least <= rank) || !self.is_due(chain, now, view) {
                continue;
            }
            let mut consider = |to| {
                let lane = Lane { to, chain: *chain };
                let done = self.done.get(&lane).copied().unwrap_or(0);
                let first = best.is_none_or(|(least, ..)| least > rank);
                let stuck = self.stuck.get(&lane).is_some_and(|it| now < it.until);
                if first && done < head.seq && !under_way.contains(&lane) && !stuck {
                    best = Some((rank, lane, done + 1, head.seq));
                }
            };
            if chain.doc.is_plain() {
                let parting = view.parting.iter().filter(|_| chain.doc == DocId::Account);
                let to = view.away.iter().chain(parting);
                to.filter(|to| **to != chain.writer)
                    .for_each(|to| consider(Some((*to, view.week))));
            } else {
                consider(None);
                let lane = Lane {
                    to: None,
                    chain: *chain,
                };
                let own = chain.doc == DocId::Requests && chain.writer == view.this;
                if own && self.stuck.contains_key(&lane) {
                    let to = view.away.iter();
                    to.for_each(|to| consider(Some((*to, view.week))));
                }
            }
        }
        best.map(|(_, lane, from, upto)| (lane, from, upto))
    }

    /// Whether it is this device's turn to put what is new of a chain.
    fn is_due(&self, chain: &ChainId, now: Duration, view: &View<'_>) -> bool {
        if chain.writer == view.this || chain.doc.is_plain() {
            return true;
        }
        let grown = self.grown.get(chain).copied().unwrap_or_default();
        view.caught_up && now >= grown + GRACE
    }

    fn under_way(&self) -> impl Iterator<Item = Lane> {
        let queued = self.queue.iter().map(|(what, ..)| what);
        let all = queued.chain(self.sent.values());
        all.filter_map(|what| match what {
            What::Lane(lane, _) => Some(*lane),
            What::Word => None,
        })
    }

    /// The store's answer to [`Self::next_range`].
    pub(super) fn ready(&mut self, lane: Lane, found: Vec<Mailed>) {
        let Some((asked, upto)) = self.asked.filter(|(asked, _)| *asked == lane) else {
            return;
        };
        self.asked = None;
        if found.is_empty() {
            // What the store does not give, nobody gets from here.
            return self.is_done(asked, upto);
        }
        let mut first = true;
        for mailed in found {
            match mailed.blob {
                Some((topic, blob)) => {
                    first = false;
                    self.queue
                        .push_back((What::Lane(lane, mailed.upto), topic, blob));
                }
                // What cannot be mailed is passed over, once all before it is there.
                None if first => self.is_done(lane, mailed.upto),
                None => return,
            }
        }
    }

    /// The store could not answer.
    pub(super) fn not_ready(&mut self, lane: Lane) {
        self.asked.take_if(|(asked, _)| *asked == lane);
    }

    /// This device's word, to be put with the rest.
    pub(super) fn push_word(&mut self, topic: TopicId, blob: Vec<u8>) {
        self.queue.push_back((What::Word, topic, blob));
    }

    /// The next blob for the connection, and its number; as many as may be unanswered.
    pub(super) fn next_put(&mut self, now: Duration) -> Option<(u64, TopicId, Vec<u8>)> {
        let waits = self.held.as_ref().is_some_and(|held| now < held.until);
        if waits || self.sent.len() >= MAX_PUTS {
            return None;
        }
        let (what, topic, blob) = self.queue.pop_front()?;
        self.last_id += 1;
        self.sent.insert(self.last_id, what);
        Some((self.last_id, topic, blob))
    }

    /// A put is on the mailbox's disk; whether it is something of a chain.
    pub(super) fn stored(&mut self, id: u64) -> bool {
        self.held = None;
        match self.sent.remove(&id) {
            Some(What::Lane(lane, upto)) => {
                self.stuck.remove(&lane);
                self.is_done(lane, upto);
                true
            }
            _ => {
                self.word_waits = None;
                false
            }
        }
    }

    /// A put is not kept: it is tried again later, and all else too, unless its topic
    /// alone is full. Gives how long that is.
    pub(super) fn refused(&mut self, id: u64, refusal: Refusal, now: Duration) -> Duration {
        let what = self.sent.remove(&id);
        match what {
            Some(What::Lane(lane, _)) => self.drop_lane(lane),
            Some(What::Word) => self.word_lost = true,
            None => {}
        }
        if refusal == Refusal::TopicQuota {
            return self.topic_is_full(what, now);
        }
        let words = self.queue.iter();
        self.word_lost |= words.into_iter().any(|(it, ..)| matches!(it, What::Word));
        self.queue.clear();
        let before = self.held.as_ref().map(|held| (held.until, held.wait));
        let wait = longer(before, now);
        let until = now + wait;
        self.held = Some(Held {
            refusal,
            until,
            wait,
        });
        wait
    }

    /// What comes after it in its chain is of no use without it.
    fn drop_lane(&mut self, lane: Lane) {
        let same = |what: &What| matches!(what, What::Lane(other, _) if *other == lane);
        self.sent.retain(|_, what| !same(what));
        self.queue.retain(|(what, ..)| !same(what));
    }

    fn topic_is_full(&mut self, what: Option<What>, now: Duration) -> Duration {
        match what {
            Some(What::Lane(lane, _)) => {
                let before = self.stuck.get(&lane).map(|it| (it.until, it.wait));
                let wait = longer(before, now);
                let until = now + wait;
                self.stuck.insert(lane, Stuck { until, wait });
                wait
            }
            Some(What::Word) => {
                self.word_waits = Some(now + LONGEST_WAIT);
                LONGEST_WAIT
            }
            // Its lane waits already.
            None => FIRST_WAIT,
        }
    }
}

/// How long to wait after a refusal, by until when and how long it was before.
fn longer(before: Option<(Duration, Duration)>, now: Duration) -> Duration {
    match before {
        Some((until, wait)) if now < until => wait,
        Some((_, wait)) => wait.saturating_mul(2).min(LONGEST_WAIT),
        None => FIRST_WAIT,
    }
}

/// What goes first: who is a member, keys, then what a person waits for.
fn rank(doc: DocId) -> u8 {
    match doc {
        DocId::Account => 0,
        DocId::Keys => 1,
        DocId::Requests => 2,
        DocId::Notices => 3,
        DocId::Node => 4,
        DocId::Days => 5,
        DocId::Box(_) | DocId::Here(_) | DocId::HereNotices => 6,
    }
}

#[cfg(test)]
mod tests;
