//! What is taken from a mailbox: which topics are followed, and from which index on.
//! Pure.
//!
//! A blob that cannot be taken yet is not kept: its topic is followed again from there
//! once what it waited for has come.

use std::collections::{BTreeMap, BTreeSet};

use bailey_docs_store::{ChainId, Head, TopicId};

/// Blobs that are waited for. Past it they come with a direct session, or when their
/// device is asked.
const MAX_WAITS: usize = 1024;

/// Why a blob could not be taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// What comes before it in its chain is not here.
    Chain(ChainId),
    /// Its writer is no member, as far as is known here.
    Members,
    /// This device could not write it.
    Later,
}

/// What the connection is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Follow { topic: TopicId, from: u64 },
    Unfollow { topic: TopicId },
}

#[derive(Debug, Clone, Copy)]
struct Waits {
    index: u64,
    /// The number up to which its chain must be here.
    seq: u64,
}

/// What is followed.
#[derive(Debug, Default)]
pub(super) struct Takes {
    wanted: BTreeSet<TopicId>,
    /// On this connection, and whether all that was there is told.
    followed: BTreeMap<TopicId, bool>,
    next: BTreeMap<TopicId, u64>,
    waits: BTreeMap<(TopicId, Why), Waits>,
}

impl Takes {
    /// How far an earlier start was.
    pub(super) fn resume(next: impl IntoIterator<Item = (TopicId, u64)>) -> Self {
        Self {
            next: next.into_iter().collect(),
            ..Self::default()
        }
    }

    /// From where each topic is to be read by a later start.
    pub(super) fn next(&self) -> Vec<(TopicId, u64)> {
        let topics = self.next.keys().filter(|topic| self.wanted.contains(topic));
        topics.map(|topic| (*topic, self.from(topic))).collect()
    }

    fn from(&self, topic: &TopicId) -> u64 {
        let next = self.next.get(topic).copied().unwrap_or(0);
        let waits = self.waits.iter().filter(|((of, _), _)| of == topic);
        waits.map(|(_, it)| it.index).fold(next, u64::min)
    }

    /// The topics of now.
    pub(super) fn want(&mut self, topics: Vec<TopicId>, connected: bool) -> Vec<Order> {
        self.wanted = topics.into_iter().collect();
        if !connected {
            return Vec::new();
        }
        let gone: Vec<TopicId> = self
            .followed
            .keys()
            .filter(|topic| !self.wanted.contains(topic))
            .copied()
            .collect();
        for topic in &gone {
            self.followed.remove(topic);
            self.waits.retain(|(of, _), _| of != topic);
        }
        let mut orders: Vec<Order> = gone
            .into_iter()
            .map(|topic| Order::Unfollow { topic })
            .collect();
        let new = self.wanted.iter();
        let new: Vec<TopicId> = new
            .filter(|topic| !self.followed.contains_key(topic))
            .copied()
            .collect();
        orders.extend(new.into_iter().map(|topic| self.follow(topic)));
        orders
    }

    fn follow(&mut self, topic: TopicId) -> Order {
        let from = self.from(&topic);
        self.waits.retain(|(of, _), _| *of != topic);
        self.next.insert(topic, from);
        self.followed.insert(topic, false);
        Order::Follow { topic, from }
    }

    /// A connection, to a mailbox that has what it had or not.
    pub(super) fn up(&mut self, same: bool) -> Vec<Order> {
        self.followed.clear();
        if !same {
            self.next.clear();
            self.waits.clear();
        }
        let wanted: Vec<TopicId> = self.wanted.iter().copied().collect();
        wanted.into_iter().map(|topic| self.follow(topic)).collect()
    }

    pub(super) fn down(&mut self) {
        self.followed.clear();
    }

    /// A blob is done with.
    pub(super) fn took(&mut self, topic: TopicId, index: u64) {
        self.next.insert(topic, index.saturating_add(1));
    }

    /// A blob is to come again; `seq` is the number that its chain must have first.
    pub(super) fn wait(&mut self, topic: TopicId, index: u64, why: Why, seq: u64) {
        self.took(topic, index);
        // In a topic whose order was changed the one that comes first may be the second
        // of what waits.
        let first = |it: &mut Waits| {
            (it.index, it.seq) = (it.index.min(index), it.seq.min(seq));
        };
        let room = self.waits.len() < MAX_WAITS;
        match self.waits.get_mut(&(topic, why)) {
            Some(it) => first(it),
            None if room => {
                self.waits.insert((topic, why), Waits { index, seq });
            }
            None => {}
        }
    }

    /// All that a topic held is told. `true` if the mailbox went back behind what it
    /// had told before.
    pub(super) fn caught_up(&mut self, topic: TopicId, end: u64) -> bool {
        if let Some(all) = self.followed.get_mut(&topic) {
            *all = true;
        }
        let next = self.next.get(&topic).copied().unwrap_or(0);
        // Nothing is there at all where everything was too old.
        end != 0 && end < next
    }

    /// Whether all that others put is told.
    pub(super) fn is_caught_up(&self) -> bool {
        self.followed.len() == self.wanted.len() && self.followed.values().all(|all| *all)
    }

    /// A topic is read again from its beginning.
    pub(super) fn again(&mut self, topic: TopicId) -> Vec<Order> {
        self.waits.retain(|(of, _), _| *of != topic);
        self.next.insert(topic, 0);
        self.rewind(&BTreeSet::from([topic]))
    }

    /// Chains are here further than before.
    pub(super) fn heads(&mut self, heads: &BTreeMap<ChainId, Head>) -> Vec<Order> {
        let come = |why: &Why, waits: &Waits| match why {
            Why::Chain(chain) => heads.get(chain).is_some_and(|head| head.seq >= waits.seq),
            Why::Members | Why::Later => false,
        };
        self.resume_those(come)
    }

    /// The members are others than before.
    pub(super) fn members(&mut self) -> Vec<Order> {
        self.resume_those(|why, _| *why == Why::Members)
    }

    /// Some time has passed.
    pub(super) fn later(&mut self) -> Vec<Order> {
        self.resume_those(|why, _| *why == Why::Later)
    }

    fn resume_those(&mut self, come: impl Fn(&Why, &Waits) -> bool) -> Vec<Order> {
        let come = self.waits.iter().filter(|((_, why), it)| come(why, it));
        let topics: BTreeSet<TopicId> = come.map(|((topic, _), _)| *topic).collect();
        self.rewind(&topics)
    }

    fn rewind(&mut self, topics: &BTreeSet<TopicId>) -> Vec<Order> {
        let mut orders = Vec::new();
        for topic in topics {
            if self.followed.remove(topic).is_some() {
                orders.push(Order::Unfollow { topic: *topic });
                orders.push(self.follow(*topic));
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests;
