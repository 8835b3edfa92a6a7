//! Two sessions over a link that delays, splits and breaks; and a hostile peer.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bailey_model::{AccountId, BoxId, DeviceId, Incarnation};

use crate::wire::{self, Blob, Envelopes, Frame, Heads, Hello, List, Want, WireHead};
use crate::*;

mod explore;

const ACCOUNT: AccountId = AccountId([9; 32]);

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn device(n: u8) -> DeviceId {
    DeviceId([n; 32])
}

fn chain(writer: u8, doc: DocId) -> ChainId {
    ChainId {
        writer: device(writer),
        incarnation: Incarnation([writer; 16]),
        doc,
    }
}

fn hash(bytes: &[u8]) -> Hash {
    use sha2::Digest as _;
    Hash(sha2::Sha256::digest(bytes).into())
}

fn config(peer: u8) -> SessionConfig {
    SessionConfig {
        account: ACCOUNT,
        peer: device(peer),
        incarnation: Incarnation([peer ^ 0xff; 16]),
        listen_port: 7000 + u16::from(peer),
    }
}

/// An in-memory store: numbered byte strings, and box chains that rest on a
/// number of their writer's account chain.
#[derive(Default, Clone, PartialEq, Eq)]
struct Store(BTreeMap<ChainId, Vec<Vec<u8>>>);

impl Store {
    fn append(&mut self, chain: ChainId, rests_on: u64, padding: usize) -> Head {
        let list = self.0.entry(chain).or_default();
        let seq = list.len() as u64 + 1;
        let mut bytes = seq.to_le_bytes().to_vec();
        bytes.extend_from_slice(&rests_on.to_le_bytes());
        bytes.extend_from_slice(&chain.writer.0[..1]);
        bytes.resize(bytes.len() + padding, 0x5a);
        let hash = hash(&bytes);
        list.push(bytes);
        Head { chain, seq, hash }
    }

    fn len(&self, chain: &ChainId) -> u64 {
        self.0.get(chain).map_or(0, |list| list.len() as u64)
    }

    fn heads(&self) -> Vec<Head> {
        self.0
            .iter()
            .filter_map(|(chain, list)| {
                let last = list.last()?;
                Some(Head {
                    chain: *chain,
                    seq: list.len() as u64,
                    hash: hash(last),
                })
            })
            .collect()
    }

    fn range(&self, chain: &ChainId, from: u64, max: u32) -> Vec<Vec<u8>> {
        let mut sum = 0;
        let list = self.0.get(chain).map_or(&[][..], Vec::as_slice);
        list.iter()
            .skip(usize::try_from(from.saturating_sub(1)).unwrap())
            .take_while(|bytes| {
                sum += bytes.len();
                sum == bytes.len() || sum <= max as usize
            })
            .cloned()
            .collect()
    }

    fn ingest(&mut self, chain: ChainId, bytes: &[u8]) -> Result<(u64, bool), IngestFailure> {
        let seq = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let rests_on = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
        let account = ChainId {
            doc: DocId::Account,
            ..chain
        };
        if rests_on > self.len(&account) {
            return Err(IngestFailure::Gap);
        }
        let list = self.0.entry(chain).or_default();
        match seq.cmp(&(list.len() as u64 + 1)) {
            core::cmp::Ordering::Less => Ok((list.len() as u64, false)),
            core::cmp::Ordering::Greater => Err(IngestFailure::Gap),
            core::cmp::Ordering::Equal => {
                list.push(bytes.to_vec());
                Ok((seq, true))
            }
        }
    }

    fn bytes(&self) -> usize {
        self.0.values().flatten().map(Vec::len).sum()
    }
}

enum Work {
    Ingest(ChainId, Vec<u8>),
    Range(ChainId, u64, u32),
}

struct Node {
    peer: u8,
    store: Store,
    session: Session,
    claims: Claims,
    work: VecDeque<Work>,
    /// Bytes on their way to us, and when each piece is here.
    line: VecDeque<(Duration, Vec<u8>)>,
    line_free_at: Duration,
    gained: usize,
    again: usize,
    sent: usize,
    caught_up: usize,
}

impl Node {
    fn new(peer: u8, store: Store) -> Self {
        let mut node = Self {
            peer,
            store,
            session: Session::new(config(peer), Duration::ZERO),
            claims: Claims::new(),
            work: VecDeque::new(),
            line: VecDeque::new(),
            line_free_at: Duration::ZERO,
            gained: 0,
            again: 0,
            sent: 0,
            caught_up: 0,
        };
        node.reconnect(Duration::ZERO);
        node
    }

    fn reconnect(&mut self, now: Duration) {
        self.session = Session::new(config(self.peer), now);
        self.session.handle_local_heads(&self.store.heads());
        self.claims.release_all(device(self.peer));
        self.line.clear();
        self.line_free_at = now;
    }

    fn append(&mut self, chain: ChainId, dice: &mut Dice) {
        let rests_on = self.store.len(&ChainId {
            doc: DocId::Account,
            ..chain
        });
        let rests_on = if chain.doc == DocId::Account {
            0
        } else {
            rests_on
        };
        let padding = if dice.one_in(40) {
            200_000
        } else {
            300 + dice.below(3000)
        };
        let head = self
            .store
            .append(chain, rests_on, usize::try_from(padding).unwrap());
        self.session.handle_local_heads(&[head]);
    }

    /// Takes events, works off at most `jobs` of what the store has to do.
    fn turn(&mut self, now: Duration, jobs: usize) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Envelope { chain, bytes } => {
                    self.work.push_back(Work::Ingest(chain, bytes));
                }
                SessionEvent::NeedRange {
                    chain,
                    from,
                    max_bytes,
                } => {
                    self.work.push_back(Work::Range(chain, from, max_bytes));
                }
                SessionEvent::CaughtUp => self.caught_up += 1,
                SessionEvent::Up { .. } | SessionEvent::LeftOut { .. } => {}
                SessionEvent::Fork { .. } | SessionEvent::Closed(_) => panic!("{event:?}"),
            }
        }
        let held: usize = self
            .work
            .iter()
            .map(|work| {
                if let Work::Ingest(_, bytes) = work {
                    bytes.len()
                } else {
                    0
                }
            })
            .sum();
        assert!(
            held <= 2 * MAX_WANTS * MAX_ENVELOPE,
            "{held} bytes wait for the store"
        );
        for _ in 0..jobs {
            match self.work.pop_front() {
                None => break,
                Some(Work::Range(chain, from, max)) => {
                    let envelopes = self.store.range(&chain, from, max);
                    self.session.handle_range(chain, from, envelopes);
                }
                Some(Work::Ingest(chain, bytes)) => match self.store.ingest(chain, &bytes) {
                    Ok((seq, new)) => {
                        *if new {
                            &mut self.gained
                        } else {
                            &mut self.again
                        } += bytes.len();
                        self.session
                            .handle_ingested(now, chain, seq, &mut self.claims);
                        let last = self.store.0[&chain].last().unwrap();
                        let head = Head {
                            chain,
                            seq,
                            hash: hash(last),
                        };
                        self.session.handle_local_heads(&[head]);
                    }
                    Err(why) => {
                        self.session
                            .handle_ingest_failed(now, chain, why, &mut self.claims);
                    }
                },
            }
        }
    }

    fn send(&mut self, now: Duration, other: &mut Self, dice: &mut Dice) {
        // The link takes a frame whenever less than 100 ms of it is queued.
        while other.line_free_at < now + Duration::from_millis(100) {
            let Some(frame) = self.session.poll_transmit(now, &mut self.claims) else {
                break;
            };
            assert!(frame.len() <= MAX_PAYLOAD + 4);
            self.sent += frame.len();
            let mut rest = &frame[..];
            while !rest.is_empty() {
                let piece = usize::try_from(1 + dice.below(60_000))
                    .unwrap()
                    .min(rest.len());
                // 20 Mbit/s and 5 to 25 ms.
                let free = other.line_free_at.max(now);
                other.line_free_at = free + Duration::from_micros(piece as u64 * 8 / 20);
                let lag = Duration::from_millis(5 + dice.below(20));
                let before = other.line.back().map_or(Duration::ZERO, |(at, _)| *at);
                let at = (other.line_free_at + lag).max(before);
                other.line.push_back((at, rest[..piece].to_vec()));
                rest = &rest[piece..];
            }
        }
    }

    fn receive(&mut self, now: Duration) {
        while let Some((at, _)) = self.line.front() {
            if *at > now {
                break;
            }
            let (_, bytes) = self.line.pop_front().unwrap();
            self.session.handle_bytes(now, &bytes, &mut self.claims);
        }
        if self.session.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.session.handle_timeout(now);
        }
    }
}

struct Outcome {
    delta: usize,
    sent: usize,
    again: usize,
    cuts: usize,
    took: Duration,
}

fn writers_chains(dice: &mut Dice) -> Vec<ChainId> {
    let mut chains = Vec::new();
    for writer in [1, 2, 3] {
        for doc in [
            DocId::Account,
            DocId::Keys,
            DocId::Node,
            DocId::Notices,
            DocId::Requests,
        ] {
            chains.push(chain(writer, doc));
        }
        for n in 0..dice.below(12) {
            chains.push(chain(
                writer,
                DocId::Box(BoxId([u8::try_from(n).unwrap(); 16])),
            ));
        }
    }
    chains
}

/// Three writers wrote; 1 and 2 each know a part of it. Writer 3 is away: what
/// neither has does not count, except its membership, without which nothing of
/// it could be taken.
fn two_that_know_parts(chains: &[ChainId], dice: &mut Dice) -> (Node, Node) {
    let mut whole = Node::new(0, Store::default());
    for _ in 0..dice.below(300) {
        let picked = chains[usize::try_from(dice.below(chains.len() as u64)).unwrap()];
        whole.append(picked, dice);
    }
    let part = |writer: u8, dice: &mut Dice| {
        let mut store = whole.store.clone();
        for (chain, list) in &mut store.0 {
            let whole_account = chain.doc == DocId::Account && chain.writer == device(3);
            if chain.writer != device(writer) && !(whole_account && writer == 1) {
                list.truncate(usize::try_from(dice.below(list.len() as u64 + 1)).unwrap());
            }
        }
        store.0.retain(|_, list| !list.is_empty());
        store
    };
    (Node::new(2, part(1, dice)), Node::new(1, part(2, dice)))
}

fn run(seed: u64, breaks: bool) -> Outcome {
    let dice = &mut Dice(seed);
    let chains = writers_chains(dice);
    let (mut a, mut b) = two_that_know_parts(&chains, dice);
    let before = a.store.bytes() + b.store.bytes();
    let (mut cuts, mut now) = (0, Duration::ZERO);
    let mut quiet_since = Duration::ZERO;
    let writing_until = Duration::from_millis(200 + dice.below(2000));
    let mut written = 0;
    let slow = 1 + usize::try_from(dice.below(20)).unwrap();
    while now < quiet_since + Duration::from_millis(200) {
        assert!(now < Duration::from_secs(300), "seed {seed}: not quiet");
        now += Duration::from_millis(5);
        if now < writing_until {
            for (node, writer) in [(&mut a, 1), (&mut b, 2)] {
                if dice.one_in(4) {
                    let own: Vec<_> = chains
                        .iter()
                        .filter(|c| c.writer == device(writer))
                        .collect();
                    let before = node.store.bytes();
                    let picked = *own[usize::try_from(dice.below(own.len() as u64)).unwrap()];
                    node.append(picked, dice);
                    written += node.store.bytes() - before;
                }
            }
            if breaks && dice.one_in(60) {
                // Whatever was on its way is lost, in the middle of a frame.
                cuts += 1;
                a.reconnect(now);
                b.reconnect(now);
            }
        }
        for node in [&mut a, &mut b] {
            node.receive(now);
            node.turn(now, slow);
        }
        a.send(now, &mut b, dice);
        b.send(now, &mut a, dice);
        if now < writing_until || a.store != b.store || !a.line.is_empty() || !b.line.is_empty() {
            quiet_since = now;
        }
    }
    assert!(
        a.claims.is_empty() && b.claims.is_empty(),
        "seed {seed}: claims left"
    );
    assert!(
        a.caught_up > 0 && b.caught_up > 0,
        "seed {seed}: nobody said so"
    );
    let delta = a.store.bytes() + b.store.bytes() - before - written;
    assert_eq!(delta, a.gained + b.gained, "seed {seed}");
    Outcome {
        delta,
        sent: a.sent + b.sent,
        again: a.again + b.again,
        cuts,
        took: now,
    }
}

/// Hellos, and heads of at most 51 chains told by both, for each connection.
const GREETING: usize = 2 * (64 + 51 * 120);
/// What a cut can cost: what both sides had asked for.
const LOST: usize = 2 * (CREDIT_BYTES as usize + MAX_WANTS * MAX_ENVELOPE / 8);

#[test]
fn two_sessions_converge_over_a_whole_link_and_nothing_comes_twice() {
    for seed in 0..300 {
        let outcome = run(seed, false);
        // An envelope that rests on a membership record just written may come
        // before it and fail; but none comes that was taken already.
        assert_eq!(outcome.again, 0, "seed {seed}: asked twice");
        let bound = outcome.delta * 3 + GREETING;
        assert!(
            outcome.sent <= bound,
            "seed {seed}: {} bytes, {bound} allowed",
            outcome.sent
        );
    }
}

#[test]
fn two_sessions_converge_over_a_link_that_breaks_anywhere() {
    let mut cuts = 0;
    for seed in 1000..2000 {
        let outcome = run(seed, true);
        cuts += outcome.cuts;
        let bound = outcome.delta * 3 + (outcome.cuts + 1) * GREETING + outcome.cuts * LOST;
        assert!(
            outcome.sent <= bound,
            "seed {seed}: {} bytes, {bound} allowed",
            outcome.sent
        );
        assert!(
            outcome.took < Duration::from_secs(60),
            "seed {seed}: {:?}",
            outcome.took
        );
    }
    assert!(cuts > 1000, "the link broke only {cuts} times");
}

/// A session whose peer is written by hand.
struct Lone {
    session: Session,
    claims: Claims,
    now: Duration,
}

impl Lone {
    fn greeting() -> Self {
        let session = Session::new(config(2), Duration::ZERO);
        Self {
            session,
            claims: Claims::new(),
            now: Duration::ZERO,
        }
    }

    /// Greeted, with these heads of ours.
    fn open(heads: &[Head]) -> Self {
        let mut lone = Self::greeting();
        lone.session.handle_local_heads(heads);
        lone.say(&hello(VERSION, ACCOUNT));
        assert!(matches!(
            lone.session.poll_event(),
            Some(SessionEvent::Up { .. })
        ));
        lone.drain();
        lone
    }

    fn say(&mut self, frame: &Frame) {
        let bytes = wire::encode(frame, usize::MAX).unwrap();
        self.session
            .handle_bytes(self.now, &bytes, &mut self.claims);
    }

    /// The first so many envelopes of a chain, which mean nothing.
    fn give(&mut self, chain: ChainId, count: u8) {
        let envelopes = (1..=count).map(|byte| Blob(vec![byte])).collect();
        self.say(&Frame::Envelopes(Envelopes {
            chain: chain.into(),
            from: 1,
            envelopes: List(envelopes),
        }));
    }

    /// One that has been told of a chain's heads, and has asked for them.
    fn told_of(heads: &[Head]) -> Self {
        let mut lone = Self::open(&[]);
        lone.say(&told(heads, true));
        lone.drain();
        lone
    }

    fn drain(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(bytes) = self.session.poll_transmit(self.now, &mut self.claims) {
            frames.push(wire::decode(&bytes[4..]).unwrap());
        }
        frames
    }

    fn events(&mut self) -> Vec<SessionEvent> {
        core::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn assert_ended(&mut self, reason: ByeReason) {
        assert!(self.session.is_closed());
        let closed = SessionEvent::Closed(CloseReason::Ours(reason));
        assert_eq!(self.events().last(), Some(&closed));
        assert_eq!(self.drain(), [Frame::Bye(reason.code())]);
        assert_eq!(self.session.poll_timeout(), None);
    }
}

fn hello(version: u16, account: AccountId) -> Frame {
    Frame::Hello(Hello {
        version,
        account: account.0,
        listen_port: 1,
        incarnation: [3; 16],
    })
}

fn head(chain: ChainId, seq: u64) -> Head {
    Head {
        chain,
        seq,
        hash: Hash([seq.to_le_bytes()[0]; 32]),
    }
}

fn told(heads: &[Head], done: bool) -> Frame {
    let heads = List(heads.iter().map(WireHead::from).collect());
    Frame::Heads(Heads {
        opening: done,
        done,
        heads,
    })
}

#[test]
fn up_needs_the_peers_hello_of_this_account_and_version() {
    let mut lone = Lone::greeting();
    assert!(matches!(lone.drain()[..], [Frame::Hello(_)]));
    assert_eq!(lone.events(), []);
    lone.say(&hello(VERSION, AccountId([1; 32])));
    lone.assert_ended(ByeReason::Account);

    let mut lone = Lone::greeting();
    lone.drain();
    lone.say(&hello(VERSION + 1, ACCOUNT));
    lone.assert_ended(ByeReason::Version);

    let mut lone = Lone::greeting();
    lone.drain();
    lone.say(&Frame::Alive);
    lone.assert_ended(ByeReason::Protocol);
}

#[test]
fn nothing_of_ours_is_told_before_the_peers_hello() {
    let mut lone = Lone::greeting();
    lone.session
        .handle_local_heads(&[head(chain(1, DocId::Account), 3)]);
    assert!(matches!(lone.drain()[..], [Frame::Hello(_)]));
    lone.say(&hello(VERSION, ACCOUNT));
    assert!(matches!(&lone.drain()[..], [Frame::Heads(heads)] if heads.done));
}

#[test]
fn a_silent_peer_is_left_and_a_quiet_one_kept() {
    let mut lone = Lone::greeting();
    lone.drain();
    assert_eq!(
        lone.session.poll_timeout(),
        Some((HELLO_TIMEOUT, Timer::Hello))
    );
    lone.now = HELLO_TIMEOUT;
    lone.session.handle_timeout(lone.now);
    lone.assert_ended(ByeReason::Timeout);

    let mut lone = Lone::open(&[]);
    for _ in 0..20 {
        let (at, timer) = lone.session.poll_timeout().unwrap();
        assert_eq!(timer, Timer::KeepAlive);
        lone.now = at;
        lone.session.handle_timeout(at);
        assert_eq!(lone.drain(), [Frame::Alive]);
        lone.say(&Frame::Alive);
    }
    let heard = lone.now;
    while !lone.session.is_closed() {
        lone.now = lone.session.poll_timeout().unwrap().0;
        assert!(lone.now <= heard + SILENCE);
        lone.session.handle_timeout(lone.now);
        if !lone.session.is_closed() {
            lone.drain();
        }
    }
    lone.assert_ended(ByeReason::Timeout);
}

#[test]
fn a_want_that_is_never_answered_ends_the_session() {
    let mut lone = Lone::open(&[]);
    lone.say(&told(&[head(chain(2, DocId::Notices), 1)], true));
    assert!(matches!(lone.drain()[..], [Frame::Want(_)]));
    for _ in 0..100 {
        lone.now += Duration::from_secs(2);
        lone.say(&Frame::Alive);
        lone.session.handle_timeout(lone.now);
        if lone.session.is_closed() {
            break;
        }
    }
    assert_eq!(lone.now, WANT_TIMEOUT);
    lone.assert_ended(ByeReason::Timeout);
}

#[test]
fn membership_and_keys_come_before_what_rests_on_them() {
    let docs = [
        DocId::Box(BoxId([1; 16])),
        DocId::Notices,
        DocId::Keys,
        DocId::Requests,
        DocId::Account,
    ];
    let mut lone = Lone::open(&[]);
    let heads: Vec<_> = docs.iter().map(|doc| head(chain(2, *doc), 1)).collect();
    lone.say(&told(&heads, true));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let wants: Vec<ChainId> = lone
            .drain()
            .iter()
            .map(|frame| match frame {
                Frame::Want(want) => want.chain.into(),
                other => panic!("{other:?}"),
            })
            .collect();
        for chain in &wants {
            lone.give(*chain, 1);
            lone.session
                .handle_ingested(lone.now, *chain, 1, &mut lone.claims);
        }
        asked.push(wants.iter().map(|chain| chain.doc).collect::<Vec<_>>());
    }
    let urgent_then_bulk = vec![DocId::Notices, DocId::Requests, DocId::Box(BoxId([1; 16]))];
    assert_eq!(
        asked,
        [vec![DocId::Account], vec![DocId::Keys], urgent_then_bulk]
    );
    assert_eq!(lone.events().last(), Some(&SessionEvent::CaughtUp));
    assert!(lone.claims.is_empty());
}

fn boxes(n: u8) -> Vec<Head> {
    (0..n)
        .map(|n| head(chain(2, DocId::Box(BoxId([n; 16]))), 5))
        .collect()
}

#[test]
fn wants_and_credit_are_bounded_and_urgent_ones_keep_room() {
    let mut lone = Lone::open(&[]);
    lone.say(&told(&boxes(200), true));
    let wants = lone.drain();
    assert_eq!(wants.len(), MAX_BULK_WANTS);
    let credit: u32 = wants
        .iter()
        .map(|f| {
            if let Frame::Want(want) = f {
                want.max_bytes
            } else {
                0
            }
        })
        .sum();
    assert!(credit <= CREDIT_BYTES);
    lone.say(&told(&[head(chain(2, DocId::Notices), 1)], false));
    assert!(
        matches!(lone.drain()[..], [Frame::Want(want)] if want.chain.doc == wire::Doc::Notices)
    );
}

#[test]
fn what_another_session_fetches_is_not_asked_for_until_that_is_over() {
    let offered = boxes(1);
    let (mut one, mut other) = (Lone::open(&[]), Lone::open(&[]));
    other.session = Session::new(config(3), Duration::ZERO);
    other.say(&hello(VERSION, ACCOUNT));
    other.drain();
    one.say(&told(&offered, true));
    other.say(&told(&offered, true));
    let mut claims = Claims::new();
    assert!(one.session.poll_transmit(one.now, &mut claims).is_some());
    assert!(
        other
            .session
            .poll_transmit(other.now, &mut claims)
            .is_none()
    );
    claims.release_all(device(2));
    assert!(
        other
            .session
            .poll_transmit(other.now, &mut claims)
            .is_some()
    );
}

#[test]
fn a_want_for_what_we_have_not_is_answered_empty_at_once() {
    let known = chain(1, DocId::Notices);
    let mut lone = Lone::open(&[head(known, 4)]);
    for (chain, from) in [(chain(7, DocId::Keys), 1), (known, 5)] {
        lone.say(&Frame::Want(Want {
            chain: chain.into(),
            from,
            max_bytes: 1000,
        }));
        assert_eq!(
            lone.drain(),
            [Frame::Envelopes(Envelopes {
                chain: chain.into(),
                from,
                envelopes: List(vec![])
            })]
        );
    }
    assert_eq!(lone.events(), []);
}

#[test]
fn an_answer_fits_the_wants_bound_or_is_one_envelope() {
    let known = chain(1, DocId::Notices);
    for (max_bytes, length, count) in [(1000, 300, 3), (10, 300, 1), (u32::MAX, 100_000, 2)] {
        let mut lone = Lone::open(&[head(known, 40)]);
        lone.say(&Frame::Want(Want {
            chain: known.into(),
            from: 1,
            max_bytes,
        }));
        let need = SessionEvent::NeedRange {
            chain: known,
            from: 1,
            max_bytes,
        };
        assert_eq!(lone.events(), [need]);
        lone.session.handle_range(known, 2, vec![vec![0; 10]]);
        assert_eq!(lone.drain(), [], "an answer to another want");
        lone.session
            .handle_range(known, 1, vec![vec![1; length]; 40]);
        let frames = lone.drain();
        assert!(
            matches!(&frames[..], [Frame::Envelopes(e)] if e.envelopes.0.len() == count),
            "{frames:?}"
        );
    }
}

#[test]
fn urgent_answers_overtake_bulk() {
    let mut heads = boxes(8);
    let urgent = chain(1, DocId::Requests);
    heads.push(head(urgent, 1));
    let mut lone = Lone::open(&heads);
    for head in &heads {
        lone.say(&Frame::Want(Want {
            chain: head.chain.into(),
            from: 1,
            max_bytes: 1000,
        }));
    }
    let needs = lone.events();
    assert_eq!(needs.len(), MAX_ASKED_BULK + 1);
    for need in needs {
        let SessionEvent::NeedRange { chain, from, .. } = need else {
            panic!()
        };
        lone.session.handle_range(chain, from, vec![vec![1; 900]]);
    }
    let first = lone.drain().remove(0);
    assert!(matches!(first, Frame::Envelopes(e) if e.chain == urgent.into()));
    assert_eq!(
        lone.events().len(),
        MAX_ASKED_BULK,
        "the next ones are asked for once sent"
    );
}

#[test]
fn a_gap_waits_longer_each_time_and_ends_when_membership_moves() {
    let wanted = chain(2, DocId::Notices);
    let mut lone = Lone::open(&[]);
    lone.say(&told(&[head(wanted, 1)], true));
    let mut waits = Vec::new();
    assert!(matches!(lone.drain()[..], [Frame::Want(_)]));
    for _ in 0..9 {
        lone.give(wanted, 1);
        let now = lone.now;
        lone.session
            .handle_ingest_failed(now, wanted, IngestFailure::Gap, &mut lone.claims);
        assert_eq!(lone.drain(), []);
        loop {
            lone.now = lone.session.poll_timeout().unwrap().0;
            lone.say(&Frame::Alive);
            lone.session.handle_timeout(lone.now);
            if lone
                .drain()
                .iter()
                .any(|frame| matches!(frame, Frame::Want(_)))
            {
                break;
            }
        }
        waits.push((lone.now - now).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert!(
        lone.events()
            .iter()
            .all(|event| *event != SessionEvent::CaughtUp)
    );
    lone.give(wanted, 1);
    lone.session
        .handle_ingest_failed(lone.now, wanted, IngestFailure::Gap, &mut lone.claims);
    let account = chain(3, DocId::Account);
    lone.say(&told(&[head(account, 1)], false));
    lone.drain();
    lone.give(account, 1);
    lone.session
        .handle_ingested(lone.now, account, 1, &mut lone.claims);
    assert!(matches!(lone.drain()[..], [Frame::Want(want)] if want.chain == wanted.into()));
}

#[test]
fn a_chain_that_is_not_valid_is_left_alone_for_the_session() {
    let wanted = chain(2, DocId::Notices);
    let mut lone = Lone::told_of(&[head(wanted, 2)]);
    lone.give(wanted, 2);
    for failure in [IngestFailure::Permanent, IngestFailure::Gap] {
        lone.session
            .handle_ingest_failed(lone.now, wanted, failure, &mut lone.claims);
    }
    lone.say(&told(&[head(wanted, 3)], false));
    lone.now += Duration::from_secs(5);
    lone.session.handle_timeout(lone.now);
    assert_eq!(lone.drain(), []);
    assert!(lone.claims.is_empty());
}

#[test]
fn a_peer_that_cannot_give_what_it_told_is_not_asked_again_for_it() {
    let wanted = chain(2, DocId::Notices);
    let mut lone = Lone::told_of(&[head(wanted, 2)]);
    lone.give(wanted, 0);
    assert_eq!(lone.drain(), []);
    assert_eq!(lone.events().last(), Some(&SessionEvent::CaughtUp));
    lone.say(&told(&[head(wanted, 3)], false));
    assert!(matches!(lone.drain()[..], [Frame::Want(_)]));
}

#[test]
fn a_fork_is_told_once_and_no_more_of_the_chain_is_asked_for_than_proves_it() {
    let split = chain(3, DocId::Notices);
    let mut lone = Lone::open(&[head(split, 2)]);
    let theirs = Head {
        hash: Hash([0xee; 32]),
        ..head(split, 2)
    };
    lone.say(&told(&[theirs, theirs], true));
    lone.say(&told(&[head(split, 3)], false));
    let forks = lone
        .events()
        .into_iter()
        .filter(|e| matches!(e, SessionEvent::Fork { .. }));
    assert_eq!(forks.count(), 1);
    let [Frame::Want(want)] = &lone.drain()[..] else {
        panic!("the other envelope is not asked for")
    };
    assert_eq!((want.chain, want.from), (split.into(), 2));
    lone.say(&Frame::Envelopes(Envelopes {
        chain: split.into(),
        from: 2,
        envelopes: List(vec![Blob(vec![2])]),
    }));
    lone.session
        .handle_ingest_failed(lone.now, split, IngestFailure::Permanent, &mut lone.claims);
    lone.say(&told(&[head(split, 9)], false));
    lone.now += Duration::from_secs(5);
    lone.session.handle_timeout(lone.now);
    assert_eq!(lone.drain(), []);
    assert!(lone.claims.is_empty());
}

#[test]
fn what_was_not_asked_for_ends_the_session() {
    let wanted = chain(2, DocId::Notices);
    let envelopes = |from, list: Vec<Vec<u8>>| {
        let envelopes = List(list.into_iter().map(Blob).collect());
        Frame::Envelopes(Envelopes {
            chain: wanted.into(),
            from,
            envelopes,
        })
    };
    for bad in [
        envelopes(2, vec![vec![1]]),
        envelopes(1, vec![vec![1; MAX_ENVELOPE], vec![1]]),
        envelopes(1, vec![vec![1; MAX_ENVELOPE + 1]]),
        envelopes(1, vec![vec![]]),
        hello(VERSION, ACCOUNT),
    ] {
        let mut lone = Lone::told_of(&[head(wanted, 2)]);
        lone.say(&bad);
        lone.assert_ended(ByeReason::Protocol);
    }
}

#[test]
fn bytes_that_are_no_frame_end_the_session() {
    for bytes in [
        &[0, 0, 0, 0][..],
        &[0xff, 0xff, 0xff, 0xff],
        &[1, 0, 0, 0, 6],
        &[1, 0, 0, 0, 0xff],
        // One byte left over.
        &[2, 0, 0, 0, 4, 0],
        // A list of 2^60 heads.
        &[
            14, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0,
        ],
    ] {
        let mut lone = Lone::open(&[]);
        lone.session.handle_bytes(lone.now, bytes, &mut lone.claims);
        lone.assert_ended(ByeReason::Protocol);
    }
}

#[test]
fn random_bytes_never_panic_and_never_bring_it_up() {
    let dice = &mut Dice(7);
    for _ in 0..2000 {
        let mut lone = if dice.one_in(2) {
            Lone::greeting()
        } else {
            Lone::open(&boxes(3))
        };
        let up = lone.session.is_up();
        for _ in 0..20 {
            let mut frame = Vec::new();
            let length = dice.below(80);
            frame.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            frame.extend((0..length).map(|n| {
                let byte = dice.roll().to_le_bytes()[0];
                if n == 0 { byte % 7 } else { byte }
            }));
            lone.session
                .handle_bytes(lone.now, &frame, &mut lone.claims);
            lone.drain();
        }
        if !up {
            assert!(!lone.session.is_up());
        }
    }
}

#[test]
fn floods_end_the_session() {
    let mut lone = Lone::open(&boxes(20));
    for n in 0..=u8::try_from(MAX_PEER_WANTS).unwrap() {
        let chain = boxes(20)[usize::from(n)].chain.into();
        lone.say(&Frame::Want(Want {
            chain,
            from: 1,
            max_bytes: 1,
        }));
    }
    lone.assert_ended(ByeReason::Flood);

    for frame in [Frame::Alive, told(&boxes(1), false)] {
        let mut lone = Lone::open(&[]);
        let mut said = 0;
        while !lone.session.is_closed() {
            lone.say(&frame);
            said += 1;
        }
        assert_eq!(said, UNASKED_BURST + 1);
        lone.assert_ended(ByeReason::Flood);
    }
}

/// So many chains of a writer, each another box's.
fn chains_of(writer: u8, count: usize) -> Vec<Head> {
    let box_id = |n: usize| BoxId((n as u128).to_le_bytes());
    let heads = (0..count).map(|n| head(chain(writer, DocId::Box(box_id(n))), 1));
    heads.collect()
}

fn left_out(events: &[SessionEvent]) -> Vec<DeviceId> {
    let out = |event: &SessionEvent| match event {
        SessionEvent::LeftOut { writer } => Some(*writer),
        _ => None,
    };
    events.iter().filter_map(out).collect()
}

#[test]
fn a_peer_that_tells_too_many_chains_is_heard_of_everything_else() {
    let mut lone = Lone::open(&[]);
    for heads in chains_of(3, MAX_CHAINS_OF_WRITER + 2000).chunks(MAX_HEADS_PER_FRAME) {
        lone.say(&told(heads, false));
    }
    assert!(!lone.session.is_closed());
    assert_eq!(left_out(&lone.events()), [device(3)], "said once");
    // Another writer's chain, and one of the account, are asked for before those.
    let (account, notices) = (chain(3, DocId::Account), chain(4, DocId::Notices));
    for of in [account, notices] {
        lone.say(&told(&[head(of, 1)], false));
        lone.session.poll_event();
        let wants = lone.drain();
        let asked = |frame: &Frame| matches!(frame, Frame::Want(want) if want.chain == of.into());
        assert!(wants.iter().any(asked), "{of:?}: {wants:?}");
        lone.give(of, 1);
        lone.session
            .handle_ingested(lone.now, of, 1, &mut lone.claims);
    }
    assert_eq!(left_out(&lone.events()), []);
    // Many such writers use up what there is for others, and the peer's own is its own.
    for writer in 5..=8 {
        for heads in chains_of(writer, MAX_CHAINS_OF_WRITER).chunks(MAX_HEADS_PER_FRAME) {
            lone.say(&told(heads, false));
        }
    }
    assert_eq!(left_out(&lone.events()), [device(7), device(8)]);
    lone.say(&told(&[head(chain(2, DocId::Requests), 1)], false));
    lone.say(&told(&[head(chain(8, DocId::Requests), 1)], false));
    let of_urgent =
        |frame: &Frame| matches!(frame, Frame::Want(want) if want.chain.doc == wire::Doc::Requests);
    let wants: Vec<_> = lone.drain().into_iter().filter(of_urgent).collect();
    assert_eq!(wants.len(), 1, "{wants:?}");
    assert!(!lone.session.is_closed());
}

#[test]
fn of_too_many_chains_the_first_are_told_and_all_of_them_are_given() {
    let mut lone = Lone::greeting();
    let many = chains_of(3, MAX_CHAINS_OF_WRITER + 10);
    let other = head(chain(4, DocId::Notices), 1);
    lone.session.handle_local_heads(&many);
    lone.session.handle_local_heads(&[other]);
    lone.say(&hello(VERSION, ACCOUNT));
    let heads: Vec<WireHead> = lone
        .drain()
        .into_iter()
        .filter_map(|frame| match frame {
            Frame::Heads(heads) => Some(heads.heads.0),
            _ => None,
        })
        .flatten()
        .collect();
    let of = |head: &Head| heads.iter().any(|told| told.chain == head.chain.into());
    assert_eq!(heads.len(), MAX_CHAINS_OF_WRITER + 1);
    assert!(of(&other) && of(&many[0]) && !of(many.last().unwrap()));
    assert_eq!(left_out(&lone.events()), [device(3)]);
    // It grows, and is no more told of; who asks for it gets it all the same.
    let last = *many.last().unwrap();
    lone.session.handle_local_heads(&[Head { seq: 2, ..last }]);
    assert_eq!(lone.drain(), []);
    lone.say(&Frame::Want(Want {
        chain: last.chain.into(),
        from: 1,
        max_bytes: 1,
    }));
    let chain = last.chain;
    let asked = |event: &SessionEvent| matches!(event, SessionEvent::NeedRange { chain: of, .. } if *of == chain);
    assert!(lone.events().iter().any(asked));
}

#[test]
fn a_chain_that_is_over_is_told_of_once_it_grows_and_is_never_fetched_again() {
    let over = head(chain(3, DocId::Notices), 7);
    let mut lone = Lone::greeting();
    lone.session.handle_spent_heads(&[over]);
    lone.session.handle_local_heads(&[over]);
    lone.say(&hello(VERSION, ACCOUNT));
    let heads = |frames: Vec<Frame>| -> usize {
        let count = |frame: &Frame| match frame {
            Frame::Heads(heads) => heads.heads.0.len(),
            _ => 0,
        };
        frames.iter().map(count).sum()
    };
    assert_eq!(heads(lone.drain()), 0);
    // The peer has as much of it.
    lone.say(&told(&[over], true));
    assert_eq!(lone.drain(), []);
    assert!(lone.events().contains(&SessionEvent::CaughtUp));
    lone.session.handle_local_heads(&[Head { seq: 8, ..over }]);
    assert_eq!(heads(lone.drain()), 1);
}

#[test]
fn two_that_speak_have_all_of_each_other_beside_a_writer_of_too_many_chains() {
    let dice = &mut Dice(5);
    let mut whole = Node::new(2, Store::default());
    for head in chains_of(3, MAX_CHAINS_OF_WRITER + 50) {
        whole.store.append(head.chain, 0, 1);
    }
    for writer in [1, 2, 4] {
        for doc in [DocId::Account, DocId::Keys, DocId::Node, DocId::Notices] {
            whole.store.append(chain(writer, doc), 0, 300);
        }
    }
    let mut has = Node::new(2, whole.store);
    let mut lacks = Node::new(1, Store::default());
    let mut now = Duration::ZERO;
    while lacks.caught_up == 0 || !lacks.line.is_empty() || !has.line.is_empty() {
        now += Duration::from_millis(5);
        assert!(now < Duration::from_secs(1200), "not quiet");
        for node in [&mut has, &mut lacks] {
            node.receive(now);
            node.turn(now, 1000);
        }
        has.send(now, &mut lacks, dice);
        lacks.send(now, &mut has, dice);
    }
    let of = |store: &Store, writer: u8| {
        let chains = store.0.keys();
        chains
            .filter(|chain| chain.writer == device(writer))
            .count()
    };
    for writer in [1, 2, 4] {
        assert_eq!(of(&lacks.store, writer), of(&has.store, writer));
    }
    assert_eq!(of(&lacks.store, 3), MAX_CHAINS_OF_WRITER);
    assert_eq!(lacks.again, 0);
}

#[test]
fn changes_told_in_a_hurry_are_joined() {
    let mut lone = Lone::open(&[]);
    let chain = chain(1, DocId::Notices);
    let mut frames = 0;
    for seq in 1..=10_000 {
        lone.session.handle_local_heads(&[head(chain, seq)]);
        lone.now += Duration::from_micros(100);
        lone.session.handle_timeout(lone.now);
        frames += lone.drain().len();
    }
    // One second: the burst, and 50 more.
    assert!((50..=120).contains(&frames), "{frames}");
    lone.now += HEADS_PAUSE;
    lone.session.handle_timeout(lone.now);
    let last = lone.drain();
    assert!(
        last.is_empty() || matches!(&last[..], [Frame::Heads(h)] if h.heads.0[0].seq == 10_000)
    );
}

#[test]
fn the_first_frames_bytes_are_these() {
    let bytes = wire::encode(&hello(VERSION, ACCOUNT), MAX_PAYLOAD).unwrap();
    let mut expected = vec![51, 0, 0, 0, 0, 2];
    expected.extend([9; 32]);
    expected.push(1);
    expected.extend([3; 16]);
    assert_eq!(bytes, expected);
    let want = Want {
        chain: chain(2, DocId::Box(BoxId([5; 16]))).into(),
        from: 300,
        max_bytes: 1,
    };
    let bytes = wire::encode(&Frame::Want(want), MAX_PAYLOAD).unwrap();
    let mut expected = vec![69, 0, 0, 0, 2];
    expected.extend([2; 48]);
    expected.push(5);
    expected.extend([5; 16]);
    expected.extend([0xac, 0x02, 1]);
    assert_eq!(bytes, expected);
    let want = Want {
        chain: chain(2, DocId::Days).into(),
        ..want
    };
    let bytes = wire::encode(&Frame::Want(want), MAX_PAYLOAD).unwrap();
    assert_eq!((bytes[0], bytes[53]), (53, 6));
}

#[test]
fn what_is_kept_here_has_no_form_on_the_wire() {
    for (doc, has_one) in [
        (DocId::Box(BoxId([1; 16])), true),
        (DocId::Here(BoxId([1; 16])), false),
        (DocId::HereNotices, false),
    ] {
        let chain: crate::wire::Chain = chain(1, doc).into();
        assert_eq!(
            crate::wire::encode(&chain, 1000).is_some(),
            has_one,
            "{doc}"
        );
        assert_eq!(ChainId::from(chain).doc, doc);
    }
}

#[test]
fn a_peer_that_was_removed_hears_of_it_hands_over_a_few_records_and_is_closed() {
    let account = |writer| chain(writer, DocId::Account);
    let notices = chain(1, DocId::Notices);
    let mut lone = Lone::open(&[head(notices, 4), head(account(1), 3)]);
    lone.say(&told(&[head(chain(2, DocId::Notices), 2)], true));
    lone.drain();
    // What it had asked for, and what was asked of it, is nothing any more.
    lone.say(&Frame::Want(Want {
        chain: notices.into(),
        from: 1,
        max_bytes: 1000,
    }));
    lone.session.part(lone.now, PARTING);
    assert_eq!(lone.events(), []);
    lone.session.handle_range(notices, 1, vec![vec![1]]);
    lone.give(chain(2, DocId::Notices), 2);
    lone.session
        .handle_local_heads(&[head(notices, 5), head(account(1), 4)]);
    let frames = lone.drain();
    let [Frame::Heads(heads)] = frames.as_slice() else {
        panic!("{frames:?}");
    };
    assert_eq!(heads.heads.0, [(&head(account(1), 4)).into()]);
    assert_eq!(lone.events(), []);
    // It may hand over its own word, so far.
    let before = head(account(2), u64::try_from(MAX_PARTING_RECORDS).unwrap());
    lone.say(&told(&[before, head(chain(2, DocId::Node), 9)], false));
    let wants = lone.drain();
    assert_eq!(wants.len(), 1, "{wants:?}");
    lone.give(account(2), u8::try_from(MAX_PARTING_RECORDS).unwrap());
    assert_eq!(lone.events().len(), MAX_PARTING_RECORDS);
    // And is asked no more than that.
    for seq in 1..=MAX_PARTING_RECORDS {
        let seq = u64::try_from(seq).unwrap();
        lone.session
            .handle_ingested(lone.now, account(2), seq, &mut lone.claims);
    }
    lone.say(&told(&[head(account(2), 40)], false));
    lone.drain();
    lone.say(&Frame::Envelopes(Envelopes {
        chain: account(2).into(),
        from: before.seq + 1,
        envelopes: List(vec![Blob(vec![1])]),
    }));
    lone.assert_ended(ByeReason::NotMember);
    // One that says nothing is closed in time.
    let mut lone = Lone::open(&[]);
    lone.session.part(lone.now, PARTING);
    assert_eq!(lone.session.poll_timeout(), Some((PARTING, Timer::Parting)));
    lone.now = PARTING;
    lone.session.handle_timeout(lone.now);
    lone.assert_ended(ByeReason::NotMember);
}

/// The number of a row of a table, as people write it.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == first {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// That the specification says each of these, whatever its lines.
fn document_says(all: &[String]) {
    let document = include_str!("../../../docs/wire.md");
    let text = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in all {
        assert!(text.contains(said), "docs/wire.md does not say: {said}");
    }
}

#[test]
fn the_document_says_these_numbers() {
    let number = |number: u32| grouped(usize::try_from(number).unwrap());
    let most = grouped(MAX_ENVELOPE);
    let seconds = |time: Duration| time.as_secs();
    document_says(&[
        format!("The version is {VERSION}."),
        format!("the length 1 to {}", grouped(MAX_PAYLOAD)),
        format!(
            "heads: list of head, at most {}",
            grouped(MAX_HEADS_PER_FRAME)
        ),
        format!(
            "at most {}, none empty, each at most {most}",
            grouped(MAX_ENVELOPES_PER_FRAME)
        ),
        format!("without an answer | {MAX_WANTS}, of these at most {MAX_BULK_WANTS} for boxes"),
        format!(
            "boxes and days | {}; the least asked for is {}",
            number(CREDIT_BYTES),
            number(MIN_WANT_BYTES)
        ),
        format!("one a chain | {MAX_PEER_WANTS}, more is a flood"),
        format!(
            "chains of one writer that a side tells | {} |",
            grouped(MAX_CHAINS_OF_WRITER)
        ),
        format!(
            "those of all writers but the peer | {} |",
            grouped(MAX_CHAINS)
        ),
        format!("those of the account | {} |", grouped(MAX_ACCOUNT_CHAINS)),
        format!(
            "| {}, {} ms |",
            number(UNASKED_BURST),
            UNASKED_PAUSE.as_millis()
        ),
        format!(
            "| {}, {} ms |",
            number(HEADS_BURST),
            HEADS_PAUSE.as_millis()
        ),
        format!("without sending | {} s |", seconds(KEEP_ALIVE)),
        format!("`Hello` may take | {} s |", seconds(HELLO_TIMEOUT)),
        format!("silence that ends a session | {} s |", seconds(SILENCE)),
        format!(
            "an answer to a want may take | {} s |",
            seconds(WANT_TIMEOUT)
        ),
        format!(
            "{} s, doubling to {} s, or once",
            seconds(GAP_WAIT),
            seconds(GAP_WAIT_MAX)
        ),
        format!("for 0.{} s more", PARTING.as_millis() / 100),
        format!("may hand over {MAX_PARTING_RECORDS} of them"),
        format!("heard for {} s in the same way", seconds(PARTING_LATER)),
    ]);
}

#[test]
fn the_document_says_these_numbers_of_pairing_and_these_ends() {
    document_says(&[
        format!(
            "at most {} bytes until the proof and {} after",
            pair::MAX_FIRST_PAYLOAD,
            grouped(pair::MAX_PAIR_PAYLOAD)
        ),
        format!("a long one after {};", pair::MAX_WRONG),
        format!(
            "a device makes {} short ones an hour",
            pair::MAX_SHORT_CODES
        ),
        format!("text of 1 to {} characters", pair::MAX_NAME),
        format!(
            "(the account's records), at most {}",
            grouped(pair::MAX_WELCOME)
        ),
        String::from_utf8(pair::EXPORTER_LABEL.to_vec()).unwrap(),
    ]);
    let ends: Vec<String> = (0..=7).map(|code| format!("| {code} |")).collect();
    document_says(&ends);
    assert!((0..=7).all(|code| ByeReason::from_code(code).code() == code));
}
