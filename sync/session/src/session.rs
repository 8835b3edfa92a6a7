//! One session with one peer.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bailey_model::{DeviceId, Incarnation};

use crate::bucket::Bucket;
use crate::chains::{Chains, Claims, Fork, IngestFailure, Noted, Tier};
use crate::event::{CloseReason, SessionConfig, SessionEvent, Timer};
use crate::wire::{
    Blob, ByeReason, Chain, Cut, Cutter, Envelopes, Frame, Heads, Hello, List, VERSION, Want,
    WireHead, decode, encode,
};
use crate::{
    ChainId, HEADS_BURST, HEADS_PAUSE, HELLO_TIMEOUT, Hash, Head, KEEP_ALIVE, MAX_ASKED_BULK,
    MAX_ENVELOPE, MAX_ENVELOPES_PER_FRAME, MAX_HEADS_PER_FRAME, MAX_PARTING_RECORDS, MAX_PAYLOAD,
    MAX_PEER_WANTS, SILENCE, UNASKED_BURST, UNASKED_PAUSE, WANT_TIMEOUT,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The peer said nothing yet.
    Greeting,
    Open,
    /// `Bye` is to be sent.
    Closing(ByeReason),
    Closed,
}

/// One session with one peer. See the crate's root for what crosses the wire.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    stage: Stage,
    cutter: Cutter,
    chains: Chains,
    events: VecDeque<SessionEvent>,
    hello_sent: bool,
    /// Our whole list is told.
    told_all: bool,
    /// The peer's whole list is here.
    heard_all: bool,
    caught_up_said: bool,
    alive_due: bool,
    /// Wants of the peer that the store was not asked for yet, by tier.
    peer_wants: VecDeque<Want>,
    /// Wants of the peer that the store was asked for.
    asked: BTreeMap<Chain, Want>,
    /// Answers ready to be sent, most urgent first.
    answers: VecDeque<(Tier, Vec<u8>)>,
    started: Duration,
    last_heard: Duration,
    last_sent: Duration,
    heads_out: Bucket,
    unasked_in: Bucket,
    parting: Option<Parting>,
}

/// The peer is no member any more.
#[derive(Debug, Clone, Copy)]
struct Parting {
    until: Duration,
    /// Records that it may still hand over.
    left: usize,
}

impl Session {
    /// A session that starts now. Our heads follow by
    /// [`Session::handle_local_heads`], before the first [`Session::poll_transmit`].
    #[must_use]
    pub fn new(config: SessionConfig, now: Duration) -> Self {
        Self {
            config,
            stage: Stage::Greeting,
            cutter: Cutter::new(MAX_PAYLOAD),
            chains: Chains::new(config.peer),
            events: VecDeque::new(),
            hello_sent: false,
            told_all: false,
            heard_all: false,
            caught_up_said: false,
            alive_due: false,
            peer_wants: VecDeque::new(),
            asked: BTreeMap::new(),
            answers: VecDeque::new(),
            started: now,
            last_heard: now,
            last_sent: now,
            heads_out: Bucket::new(HEADS_BURST, HEADS_PAUSE, now),
            unasked_in: Bucket::new(UNASKED_BURST, UNASKED_PAUSE, now),
            parting: None,
        }
    }

    /// The peer is no member (any more): for so long it may hear the account's
    /// records and hand over [`MAX_PARTING_RECORDS`] of them, and nothing else
    /// crosses in either direction from here on. Then the session is closed.
    pub fn part(&mut self, now: Duration, within: Duration) {
        if self.is_closed() || self.parting.is_some() {
            return;
        }
        self.parting = Some(Parting {
            until: now + within,
            left: MAX_PARTING_RECORDS,
        });
        let is_account = |chain: &Chain| chain.tier() == Tier::Account;
        self.peer_wants.retain(|want| is_account(&want.chain));
        self.asked.retain(|chain, _| is_account(chain));
        self.answers.retain(|(tier, _)| *tier == Tier::Account);
        self.chains.account_only();
        let said = |event: &SessionEvent| match event {
            SessionEvent::NeedRange { chain, .. } | SessionEvent::Envelope { chain, .. } => {
                chain.doc == crate::DocId::Account
            }
            _ => true,
        };
        self.events.retain(said);
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> DeviceId {
        self.config.peer
    }

    /// Whether the session is over, or says no more than `Bye`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closing(_) | Stage::Closed)
    }

    /// Whether the peer's `Hello` came and the session goes on.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Bytes from the peer, in order. They may end anywhere.
    pub fn handle_bytes(&mut self, now: Duration, bytes: &[u8], claims: &mut Claims) {
        if self.is_closed() || bytes.is_empty() {
            return;
        }
        self.last_heard = now;
        self.cutter.push(bytes);
        while !self.is_closed() {
            match self.cutter.next() {
                Cut::More => break,
                Cut::Bad => self.close(ByeReason::Protocol),
                Cut::Payload(payload) => match decode::<Frame>(&payload) {
                    Some(frame) => self.handle_frame(now, frame, claims),
                    None => self.close(ByeReason::Protocol),
                },
            }
        }
        self.after();
    }

    fn handle_frame(&mut self, now: Duration, frame: Frame, claims: &mut Claims) {
        match (self.stage, frame) {
            (Stage::Greeting, Frame::Hello(hello)) => self.handle_hello(hello),
            (_, Frame::Bye(code)) => {
                self.finish(CloseReason::Theirs(ByeReason::from_code(code)));
            }
            (Stage::Open, Frame::Heads(heads)) => self.handle_heads(now, &heads),
            (Stage::Open, Frame::Want(want)) => self.handle_want(want),
            (Stage::Open, Frame::Envelopes(envelopes)) => self.handle_envelopes(envelopes, claims),
            (Stage::Open, Frame::Alive) => {
                if !self.unasked_in.take(now) {
                    self.close(ByeReason::Flood);
                }
            }
            _ => self.close(ByeReason::Protocol),
        }
    }

    fn handle_hello(&mut self, hello: Hello) {
        if hello.version != VERSION {
            return self.close(ByeReason::Version);
        }
        if hello.account != self.config.account.0 {
            return self.close(ByeReason::Account);
        }
        self.stage = Stage::Open;
        self.events.push_back(SessionEvent::Up {
            listen_port: hello.listen_port,
            incarnation: Incarnation(hello.incarnation),
        });
    }

    fn handle_heads(&mut self, now: Duration, heads: &Heads) {
        if !self.unasked_in.take(now) {
            return self.close(ByeReason::Flood);
        }
        if (heads.opening || heads.done) && self.heard_all {
            return self.close(ByeReason::Protocol);
        }
        for head in &heads.heads.0 {
            let noted = self.chains.peer_head(head);
            self.tell(noted);
        }
        self.heard_all |= heads.done;
        if !heads.heads.0.is_empty() {
            self.caught_up_said = false;
        }
    }

    fn tell(&mut self, noted: Noted) {
        if let Some(out) = noted.left_out {
            let writer = out.writer;
            self.events.push_back(SessionEvent::LeftOut { writer });
        }
        if let Some(Fork {
            chain,
            seq,
            ours,
            theirs,
        }) = noted.fork
        {
            let (ours, theirs) = (Hash(ours), Hash(theirs));
            self.events.push_back(SessionEvent::Fork {
                chain: chain.into(),
                seq,
                ours,
                theirs,
            });
        }
    }

    fn handle_want(&mut self, want: Want) {
        let open = self.peer_wants.len() + self.asked.len() + self.answers.len();
        if open >= MAX_PEER_WANTS {
            return self.close(ByeReason::Flood);
        }
        let twice = self.asked.contains_key(&want.chain)
            || self
                .peer_wants
                .iter()
                .any(|other| other.chain == want.chain);
        if twice {
            return self.close(ByeReason::Protocol);
        }
        let kept_from_it = self.parting.is_some() && want.chain.tier() != Tier::Account;
        if kept_from_it {
            return self.answer(&want, Vec::new());
        }
        if self
            .chains
            .have(&want.chain)
            .is_none_or(|have| want.from > have)
        {
            return self.answer(&want, Vec::new());
        }
        let place = self
            .peer_wants
            .partition_point(|w| w.chain.tier() <= want.chain.tier());
        self.peer_wants.insert(place, want);
    }

    /// Asks the store for what the peer wants: what is urgent always, bulk
    /// only while few answers are under way.
    fn ask_store(&mut self) {
        if self.is_closed() {
            return;
        }
        while let Some(want) = self.peer_wants.front().copied() {
            let bulk = want.chain.tier() == Tier::Bulk;
            let under_way = self.asked.keys().filter(|c| c.tier() == Tier::Bulk).count()
                + self
                    .answers
                    .iter()
                    .filter(|(tier, _)| *tier == Tier::Bulk)
                    .count();
            if bulk && under_way >= MAX_ASKED_BULK {
                break;
            }
            self.peer_wants.pop_front();
            self.asked.insert(want.chain, want);
            self.events.push_back(SessionEvent::NeedRange {
                chain: want.chain.into(),
                from: want.from,
                max_bytes: want.max_bytes,
            });
        }
    }

    fn handle_envelopes(&mut self, answer: Envelopes, claims: &mut Claims) {
        let Envelopes {
            chain,
            from,
            envelopes: List(envelopes),
        } = answer;
        let Some(max_bytes) = self.chains.expected(&chain, from) else {
            return self.close(ByeReason::Protocol);
        };
        let sum: usize = envelopes.iter().map(|blob| blob.0.len()).sum();
        let longest = envelopes.iter().map(|blob| blob.0.len()).max().unwrap_or(0);
        let over = sum > max_bytes as usize && envelopes.len() > 1;
        if over || longest > MAX_ENVELOPE {
            return self.close(ByeReason::Protocol);
        }
        self.chains.answered(chain, envelopes.len(), claims);
        if let Some(parting) = &mut self.parting {
            // What was asked for before is not taken either.
            if chain.tier() != Tier::Account {
                return;
            }
            if envelopes.len() > parting.left {
                return self.close(ByeReason::NotMember);
            }
            parting.left -= envelopes.len();
        }
        let chain = chain.into();
        for Blob(bytes) in envelopes {
            self.events
                .push_back(SessionEvent::Envelope { chain, bytes });
        }
    }

    /// How far we have these chains: at the start all, later what changed. Where there
    /// are more of a writer than its share ([`crate::MAX_CHAINS_OF_WRITER`]) the first
    /// are told; the others are given to a peer that asks.
    pub fn handle_local_heads(&mut self, heads: &[Head]) {
        if self.is_closed() {
            return;
        }
        for head in heads {
            let noted = self.chains.local_head(&WireHead::from(head));
            self.tell(noted);
        }
        self.after();
    }

    /// How far we have chains of which nothing is left to hand over but a tombstone: the
    /// peer is not told of them, unless they grow. Said before
    /// [`Session::handle_local_heads`] names them.
    pub fn handle_spent_heads(&mut self, heads: &[Head]) {
        if self.is_closed() {
            return;
        }
        for head in heads {
            self.chains.spent_head(&WireHead::from(head));
        }
        self.after();
    }

    /// The store's answer to [`SessionEvent::NeedRange`] with the same chain and
    /// number; any other is ignored (it was meant for an earlier session). What
    /// is over the peer's bound is left out.
    pub fn handle_range(&mut self, chain: ChainId, from: u64, envelopes: Vec<Vec<u8>>) {
        let chain = Chain::from(chain);
        let Some(want) = self.asked.get(&chain).copied() else {
            return;
        };
        if want.from != from {
            return;
        }
        self.asked.remove(&chain);
        self.answer(&want, envelopes);
        self.ask_store();
    }

    fn answer(&mut self, want: &Want, envelopes: Vec<Vec<u8>>) {
        /// Bytes of a length before each envelope, at most.
        const LENGTH: usize = 5;
        let room = (want.max_bytes as usize).min(MAX_ENVELOPE);
        let mut used = 0;
        let mut taken = Vec::new();
        for bytes in envelopes {
            used += bytes.len() + LENGTH;
            let fits = taken.is_empty() || used <= room;
            if !fits || bytes.len() > MAX_ENVELOPE || taken.len() == MAX_ENVELOPES_PER_FRAME {
                break;
            }
            taken.push(Blob(bytes));
        }
        let frame = Frame::Envelopes(Envelopes {
            chain: want.chain,
            from: want.from,
            envelopes: List(taken),
        });
        let Some(bytes) = encode(&frame, MAX_PAYLOAD) else {
            return self.close(ByeReason::Protocol);
        };
        let tier = want.chain.tier();
        let place = self.answers.partition_point(|(other, _)| *other <= tier);
        self.answers.insert(place, (tier, bytes));
    }

    /// The store has the chain up to `seq`, by an envelope of this session
    /// ([`SessionEvent::Envelope`]).
    pub fn handle_ingested(
        &mut self,
        now: Duration,
        chain: ChainId,
        seq: u64,
        claims: &mut Claims,
    ) {
        self.chains.ingested(now, chain.into(), seq, claims);
        self.after();
    }

    /// The store has the chain up to `seq`, by another session. Not told to the
    /// peer before [`Session::handle_local_heads`] names the hash.
    pub fn handle_have(&mut self, chain: ChainId, seq: u64) {
        self.chains.have_now(chain.into(), seq);
        self.after();
    }

    /// The store did not take an envelope of this session.
    pub fn handle_ingest_failed(
        &mut self,
        now: Duration,
        chain: ChainId,
        failure: IngestFailure,
        claims: &mut Claims,
    ) {
        self.chains.failed(now, chain.into(), failure, claims);
        self.after();
    }

    /// Ends the session; `Bye` is the last that is sent.
    pub fn close(&mut self, reason: ByeReason) {
        if self.is_closed() {
            return;
        }
        self.finish(CloseReason::Ours(reason));
        self.stage = Stage::Closing(reason);
    }

    fn finish(&mut self, reason: CloseReason) {
        self.stage = Stage::Closed;
        self.peer_wants.clear();
        self.asked.clear();
        self.answers.clear();
        self.events.push_back(SessionEvent::Closed(reason));
    }

    fn after(&mut self) {
        self.ask_store();
        if self.stage == Stage::Open && self.heard_all && !self.caught_up_said && self.chains.idle()
        {
            self.caught_up_said = true;
            self.events.push_back(SessionEvent::CaughtUp);
        }
    }

    /// The next thing for the owner to do.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// The next frame to send, whole. Ask when the link can take one: the
    /// choice is made then, so that what is urgent goes first.
    pub fn poll_transmit(&mut self, now: Duration, claims: &mut Claims) -> Option<Vec<u8>> {
        let frame = self.next_frame(now, claims)?;
        self.last_sent = now;
        self.alive_due = false;
        self.ask_store();
        Some(frame)
    }

    fn next_frame(&mut self, now: Duration, claims: &mut Claims) -> Option<Vec<u8>> {
        match self.stage {
            Stage::Closed => return None,
            Stage::Closing(reason) => {
                self.stage = Stage::Closed;
                return encode(&Frame::Bye(reason.code()), MAX_PAYLOAD);
            }
            Stage::Greeting | Stage::Open => {}
        }
        if !self.hello_sent {
            self.hello_sent = true;
            let hello = Hello {
                version: VERSION,
                account: self.config.account.0,
                listen_port: self.config.listen_port,
                incarnation: self.config.incarnation.0,
            };
            return encode(&Frame::Hello(hello), MAX_PAYLOAD);
        }
        if self.stage == Stage::Greeting {
            return None;
        }
        if self
            .answers
            .front()
            .is_some_and(|(tier, _)| *tier != Tier::Bulk)
        {
            return self.answers.pop_front().map(|(_, bytes)| bytes);
        }
        if let Some(heads) = self.next_heads(now) {
            return encode(&Frame::Heads(heads), MAX_PAYLOAD);
        }
        if let Some(want) = self.chains.next_want(now, claims) {
            return encode(&Frame::Want(want), MAX_PAYLOAD);
        }
        if let Some((_, bytes)) = self.answers.pop_front() {
            return Some(bytes);
        }
        if self.alive_due {
            return encode(&Frame::Alive, MAX_PAYLOAD);
        }
        None
    }

    fn next_heads(&mut self, now: Duration) -> Option<Heads> {
        if !self.told_all {
            let heads = self.chains.take_news(MAX_HEADS_PER_FRAME);
            self.told_all = !self.chains.has_news();
            return Some(Heads {
                opening: true,
                done: self.told_all,
                heads: List(heads),
            });
        }
        if !self.chains.has_news() || !self.heads_out.take(now) {
            return None;
        }
        let heads = self.chains.take_news(MAX_HEADS_PER_FRAME);
        Some(Heads {
            opening: false,
            done: false,
            heads: List(heads),
        })
    }

    /// When [`Session::handle_timeout`] has something to do next, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Duration, Timer)> {
        if self.is_closed() {
            return None;
        }
        if self.stage == Stage::Greeting {
            let hello = (self.started + HELLO_TIMEOUT, Timer::Hello);
            let parting = self.parting.map(|parting| (parting.until, Timer::Parting));
            return parting.into_iter().chain([hello]).min();
        }
        let keep_alive = (!self.alive_due).then(|| (self.last_sent + KEEP_ALIVE, Timer::KeepAlive));
        let heads = (self.told_all && self.chains.has_news() && self.heads_out.tokens == 0)
            .then(|| (self.heads_out.next_at(), Timer::Heads));
        [
            Some((self.last_heard + SILENCE, Timer::Silence)),
            keep_alive,
            self.chains
                .oldest_want()
                .map(|at| (at + WANT_TIMEOUT, Timer::Answer)),
            self.chains.next_retry().map(|at| (at, Timer::Retry)),
            heads,
            self.parting.map(|parting| (parting.until, Timer::Parting)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed. Afterwards there may be something to transmit.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_closed() {
            return;
        }
        if self.parting.is_some_and(|parting| now >= parting.until) {
            return self.close(ByeReason::NotMember);
        }
        if self.stage == Stage::Greeting {
            if now >= self.started + HELLO_TIMEOUT {
                self.close(ByeReason::Timeout);
            }
            return;
        }
        let answer_late = self
            .chains
            .oldest_want()
            .is_some_and(|at| now >= at + WANT_TIMEOUT);
        if now >= self.last_heard + SILENCE || answer_late {
            return self.close(ByeReason::Timeout);
        }
        if now >= self.last_sent + KEEP_ALIVE {
            self.alive_due = true;
        }
        self.heads_out.refill(now);
        self.chains.tick(now);
        self.after();
    }
}
