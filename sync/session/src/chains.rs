//! What both sides have of each chain, and which is to be asked for next.

mod state;

use core::time::Duration;
use std::collections::{BTreeSet, HashMap};

use bailey_model::DeviceId;

use self::state::{Phase, State};
use crate::shares::{LeftOut, Shares};
use crate::wire::{Chain, Doc, Want, WireHead};
use crate::{
    CREDIT_BYTES, GAP_WAIT, GAP_WAIT_MAX, MAX_BULK_WANTS, MAX_CHAINS_HERE, MAX_ENVELOPE, MAX_WANTS,
    MIN_WANT_BYTES,
};

/// Why the store did not take an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IngestFailure {
    /// Something that it rests on is missing (an earlier envelope, the writer's
    /// membership, room on the disk): asked for again after a wait, or as soon
    /// as an account or keys chain moved.
    Gap,
    /// It is not valid and never will be: the chain is not asked for again in
    /// this session.
    Permanent,
}

/// Which chains are being fetched, and from whom: what one session fetches no
/// other asks for. One owner holds it and lends it to each session.
#[derive(Debug, Default)]
pub struct Claims {
    by: HashMap<Chain, DeviceId>,
}

impl Claims {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether another than `peer` fetches the chain.
    fn taken(&self, chain: &Chain, peer: DeviceId) -> bool {
        self.by.get(chain).is_some_and(|by| *by != peer)
    }

    /// Forgets what was claimed for the session with `peer`, which is over.
    pub fn release_all(&mut self, peer: DeviceId) {
        self.by.retain(|_, by| *by != peer);
    }

    fn release(&mut self, chain: &Chain, peer: DeviceId) {
        if self.by.get(chain) == Some(&peer) {
            self.by.remove(chain);
        }
    }

    /// Whether nothing is being fetched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }
}

/// Order of fetching and telling. `Account` and `Keys` come strictly first:
/// what follows cannot be judged without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    Account,
    Keys,
    Urgent,
    Bulk,
}

impl Chain {
    pub(crate) fn tier(&self) -> Tier {
        match self.doc {
            Doc::Account => Tier::Account,
            Doc::Keys => Tier::Keys,
            Doc::Requests | Doc::Notices | Doc::Node => Tier::Urgent,
            Doc::Box(_) | Doc::Days | Doc::Here(_) | Doc::HereNotices => Tier::Bulk,
        }
    }
}

/// Two valid envelopes of one number, or a side that lies about its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(crate) chain: Chain,
    pub(crate) seq: u64,
    pub(crate) ours: [u8; 32],
    pub(crate) theirs: [u8; 32],
}

/// What is to be said of a head that was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) fork: Option<Fork>,
    pub(crate) left_out: Option<LeftOut>,
}

/// All chains of one session.
#[derive(Debug)]
pub(crate) struct Chains {
    peer_id: DeviceId,
    map: HashMap<Chain, State>,
    /// How many of them only the peer named; the rest is here.
    only_peers: usize,
    /// Of those that we tell.
    ours: Shares,
    /// Of those that the peer told.
    theirs: Shares,
    ready: BTreeSet<(Tier, u64, Chain)>,
    waiting: BTreeSet<(Duration, Chain)>,
    wanted_at: BTreeSet<(Duration, Chain)>,
    tell: BTreeSet<(Tier, Chain)>,
    ticket: u64,
    active: [usize; 4],
    credit_used: u32,
    /// Nothing but the account's records is told, asked for or given.
    account_only: bool,
}

impl Chains {
    pub(crate) fn new(peer_id: DeviceId) -> Self {
        Self {
            peer_id,
            map: HashMap::new(),
            only_peers: 0,
            ours: Shares::default(),
            theirs: Shares::default(),
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            wanted_at: BTreeSet::new(),
            tell: BTreeSet::new(),
            ticket: 0,
            active: [0; 4],
            credit_used: 0,
            account_only: false,
        }
    }

    /// From here on only the account's records are of concern.
    pub(crate) fn account_only(&mut self) {
        self.account_only = true;
        self.ready.retain(|(tier, ..)| *tier == Tier::Account);
        self.waiting
            .retain(|(_, chain)| chain.tier() == Tier::Account);
        self.tell.retain(|(tier, _)| *tier == Tier::Account);
    }

    fn concerns(&self, chain: &Chain) -> bool {
        !self.account_only || chain.tier() == Tier::Account
    }

    /// How far we have the chain.
    pub(crate) fn have(&self, chain: &Chain) -> Option<u64> {
        self.map.get(chain).and_then(|state| state.have)
    }

    /// How far we have a chain of which nothing is left to hand over but a tombstone:
    /// the peer is not told, and is answered if it asks.
    pub(crate) fn spent_head(&mut self, head: &WireHead) {
        if let Some(state) = self.here(&head.chain) {
            state.silent = Some(head.seq.max(state.silent.unwrap_or(0)));
            self.set_local(head);
        }
    }

    pub(crate) fn local_head(&mut self, head: &WireHead) -> Noted {
        let mut left_out = None;
        let Some(state) = self.here(&head.chain) else {
            return Noted::default();
        };
        let silent = state.silent.is_some_and(|silent| head.seq <= silent);
        if !silent && !state.shared {
            let taken = self.ours.take(&head.chain, self.peer_id);
            if let Some(state) = self.map.get_mut(&head.chain) {
                match taken {
                    Ok(()) => (state.shared, state.silent) = (true, None),
                    Err(out) => (state.silent, left_out) = (Some(u64::MAX), out),
                }
            }
        }
        let fork = self.set_local(head);
        Noted { fork, left_out }
    }

    /// The state of a chain that is here; `None` where it does not matter to the peer,
    /// or there is no room to know of it.
    fn here(&mut self, chain: &Chain) -> Option<&mut State> {
        let room = self.map.len() - self.only_peers < MAX_CHAINS_HERE;
        if !self.concerns(chain) || !(room || self.map.contains_key(chain)) {
            return None;
        }
        Some(self.map.entry(*chain).or_insert_with(State::new))
    }

    fn set_local(&mut self, head: &WireHead) -> Option<Fork> {
        let state = self.map.get_mut(&head.chain)?;
        if state.have.is_none() && state.peer.is_some() {
            self.only_peers = self.only_peers.saturating_sub(1);
        }
        if state.have.is_none_or(|have| head.seq >= have) {
            state.have = Some(head.seq);
            state.hash = Some(head.hash);
        }
        let fork = self.look_for_fork(head.chain);
        self.refresh(head.chain);
        fork
    }

    pub(crate) fn peer_head(&mut self, head: &WireHead) -> Noted {
        if !self.concerns(&head.chain) {
            return Noted::default();
        }
        let state = self.map.get(&head.chain);
        let known = state.is_some_and(|state| state.peer.is_some());
        if !known {
            if let Err(left_out) = self.theirs.take(&head.chain, self.peer_id) {
                let fork = None;
                return Noted { fork, left_out };
            }
            self.only_peers += usize::from(state.is_none());
        }
        let state = self.map.entry(head.chain).or_insert_with(State::new);
        if state.peer.is_none_or(|(seq, _)| head.seq >= seq) {
            state.peer = Some((head.seq, head.hash));
        }
        let fork = self.look_for_fork(head.chain);
        self.refresh(head.chain);
        Noted {
            fork,
            left_out: None,
        }
    }

    fn look_for_fork(&mut self, chain: Chain) -> Option<Fork> {
        let state = self.map.get_mut(&chain)?;
        let (Some(have), Some(ours), Some((seq, theirs))) = (state.have, state.hash, state.peer)
        else {
            return None;
        };
        if state.forked || have != seq || ours == theirs {
            return None;
        }
        state.forked = true;
        state.proof = Some(seq);
        Some(Fork {
            chain,
            seq,
            ours,
            theirs,
        })
    }

    /// Brings the queues in line with a chain's state.
    fn refresh(&mut self, chain: Chain) {
        if !self.concerns(&chain) {
            return;
        }
        let Some(state) = self.map.get_mut(&chain) else {
            return;
        };
        let told = (chain.tier(), chain);
        if state.to_tell() {
            self.tell.insert(told)
        } else {
            self.tell.remove(&told)
        };
        match state.phase {
            Phase::Quiet if state.wants() => {
                self.ticket += 1;
                state.phase = Phase::Ready(self.ticket);
                self.ready.insert((chain.tier(), self.ticket, chain));
            }
            Phase::Ready(ticket) if !state.wants() => {
                state.phase = Phase::Quiet;
                self.ready.remove(&(chain.tier(), ticket, chain));
            }
            Phase::Waiting(until) if !state.behind() => {
                state.phase = Phase::Quiet;
                state.gaps = 0;
                self.waiting.remove(&(until, chain));
            }
            _ => {}
        }
    }

    /// The next want, if there is one and it has room.
    pub(crate) fn next_want(&mut self, now: Duration, claims: &mut Claims) -> Option<Want> {
        let active: usize = self.active.iter().sum();
        if active >= MAX_WANTS {
            return None;
        }
        let strict = [Tier::Account, Tier::Keys]
            .into_iter()
            .find(|tier| self.active[*tier as usize] > 0)
            .unwrap_or(Tier::Bulk);
        let mut limit = strict;
        let mut found = None;
        for (tier, ticket, chain) in &self.ready {
            if *tier > limit {
                break;
            }
            if claims.taken(chain, self.peer_id) {
                // Nothing that may rest on it is asked for meanwhile.
                limit = if *tier <= Tier::Keys {
                    limit.min(*tier)
                } else {
                    limit
                };
                continue;
            }
            found = Some((*tier, *ticket, *chain));
            break;
        }
        let (tier, ticket, chain) = found?;
        let max_bytes = self.want_bytes(tier)?;
        self.ready.remove(&(tier, ticket, chain));
        let state = self.map.get_mut(&chain)?;
        let from = state.proof.take().unwrap_or_else(|| state.next());
        state.phase = Phase::Wanted {
            from,
            max_bytes,
            at: now,
        };
        self.wanted_at.insert((now, chain));
        self.active[tier as usize] += 1;
        if tier == Tier::Bulk {
            self.credit_used += max_bytes;
        }
        claims.by.insert(chain, self.peer_id);
        Some(Want {
            chain,
            from,
            max_bytes,
        })
    }

    /// A share of the credit for one want: all of it for a lone chain, little
    /// for one of many.
    fn want_bytes(&self, tier: Tier) -> Option<u32> {
        let longest = u32::try_from(MAX_ENVELOPE).unwrap_or(u32::MAX);
        if tier != Tier::Bulk {
            return Some(longest);
        }
        let room = CREDIT_BYTES.saturating_sub(self.credit_used);
        if self.active[Tier::Bulk as usize] >= MAX_BULK_WANTS || room < MIN_WANT_BYTES {
            return None;
        }
        let sharing = u32::try_from(self.ready.len()).unwrap_or(u32::MAX).max(1);
        Some((room / sharing).clamp(MIN_WANT_BYTES, longest))
    }

    /// Whether an answer to a want is expected for exactly this; its bound.
    pub(crate) fn expected(&self, chain: &Chain, from: u64) -> Option<u32> {
        match self.map.get(chain)?.phase {
            Phase::Wanted {
                from: asked,
                max_bytes,
                ..
            } if asked == from => Some(max_bytes),
            _ => None,
        }
    }

    /// An answer came, with this many envelopes.
    pub(crate) fn answered(&mut self, chain: Chain, count: usize, claims: &mut Claims) {
        let Some(state) = self.map.get_mut(&chain) else {
            return;
        };
        let Phase::Wanted {
            from,
            max_bytes,
            at,
        } = state.phase
        else {
            return;
        };
        self.wanted_at.remove(&(at, chain));
        if count > 0 {
            state.phase = Phase::Ingesting {
                from,
                max_bytes,
                left: count,
                worst: None,
            };
            return;
        }
        state.barren = state.peer.map(|(seq, _)| seq);
        state.phase = Phase::Quiet;
        self.settle(chain, max_bytes, claims);
    }

    /// The store has the chain up to `seq`.
    pub(crate) fn have_now(&mut self, chain: Chain, seq: u64) {
        let Some(state) = self.map.get_mut(&chain) else {
            return;
        };
        if state.have.is_none_or(|have| seq > have) {
            if state.have.is_none() {
                self.only_peers = self.only_peers.saturating_sub(1);
            }
            state.have = Some(seq);
            state.hash = None;
            if chain.tier() <= Tier::Keys {
                self.wake_waiting();
            }
        }
        self.refresh(chain);
    }

    /// The store has the chain up to `seq`, by an envelope of this session.
    pub(crate) fn ingested(&mut self, now: Duration, chain: Chain, seq: u64, claims: &mut Claims) {
        self.have_now(chain, seq);
        self.judged(now, chain, None, claims);
    }

    /// The store refused one envelope of the chain.
    pub(crate) fn failed(
        &mut self,
        now: Duration,
        chain: Chain,
        failure: IngestFailure,
        claims: &mut Claims,
    ) {
        self.judged(now, chain, Some(failure), claims);
    }

    fn judged(
        &mut self,
        now: Duration,
        chain: Chain,
        failure: Option<IngestFailure>,
        claims: &mut Claims,
    ) {
        let Some(state) = self.map.get_mut(&chain) else {
            return;
        };
        let Phase::Ingesting {
            from,
            max_bytes,
            left,
            worst,
        } = state.phase
        else {
            return;
        };
        let (left, worst) = (left - 1, worst.max(failure));
        if left > 0 {
            state.phase = Phase::Ingesting {
                from,
                max_bytes,
                left,
                worst,
            };
            return;
        }
        let moved = state.have.is_some_and(|have| have >= from);
        state.phase = match worst {
            Some(IngestFailure::Permanent) => Phase::Blocked,
            None if moved => {
                state.gaps = 0;
                Phase::Quiet
            }
            Some(IngestFailure::Gap) | None => {
                let wait = GAP_WAIT
                    .saturating_mul(1 << state.gaps.min(10))
                    .min(GAP_WAIT_MAX);
                state.gaps = state.gaps.saturating_add(1);
                let until = now.saturating_add(wait);
                self.waiting.insert((until, chain));
                Phase::Waiting(until)
            }
        };
        self.settle(chain, max_bytes, claims);
    }

    /// A want is over in every respect.
    fn settle(&mut self, chain: Chain, max_bytes: u32, claims: &mut Claims) {
        let tier = chain.tier();
        self.active[tier as usize] = self.active[tier as usize].saturating_sub(1);
        if tier == Tier::Bulk {
            self.credit_used = self.credit_used.saturating_sub(max_bytes);
        }
        claims.release(&chain, self.peer_id);
        self.refresh(chain);
    }

    /// What waits may now stand on what it lacked.
    fn wake_waiting(&mut self) {
        for (_, chain) in core::mem::take(&mut self.waiting) {
            self.end_wait(chain);
        }
    }

    fn end_wait(&mut self, chain: Chain) {
        if let Some(state) = self.map.get_mut(&chain)
            && matches!(state.phase, Phase::Waiting(_))
        {
            state.phase = Phase::Quiet;
        }
        self.refresh(chain);
    }

    /// Ends the waits that are over.
    pub(crate) fn tick(&mut self, now: Duration) {
        while let Some((until, chain)) = self.waiting.first().copied() {
            if until > now {
                break;
            }
            self.waiting.pop_first();
            self.end_wait(chain);
        }
    }

    pub(crate) fn next_retry(&self) -> Option<Duration> {
        self.waiting.first().map(|(until, _)| *until)
    }

    pub(crate) fn oldest_want(&self) -> Option<Duration> {
        self.wanted_at.first().map(|(at, _)| *at)
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.tell.is_empty()
    }

    /// Takes up to `max` heads that the peer does not know.
    pub(crate) fn take_news(&mut self, max: usize) -> Vec<WireHead> {
        let mut heads = Vec::with_capacity(max.min(self.tell.len()));
        while heads.len() < max {
            let Some((_, chain)) = self.tell.pop_first() else {
                break;
            };
            let Some(state) = self.map.get(&chain) else {
                continue;
            };
            if let (Some(seq), Some(hash)) = (state.have, state.hash) {
                heads.push(WireHead { chain, seq, hash });
            }
        }
        heads
    }

    /// Nothing is asked for, or will be.
    pub(crate) fn idle(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty() && self.active == [0; 4]
    }
}
