//! A pairing through a mailbox: streams of bytes between its two ends, in blobs of two
//! topics that only who has the long code can find, read or write.
//!
//! One topic goes to the host, one to the joiner ([`bailey_envelope::MailKey::of_pairing`]).
//! What a blob holds:
//!
//! ```text
//! piece = magic: "BLP\x01"  kind: 1  attempt: 16  rest
//!         kind 0: number: u32 big endian, bytes (1 or more)
//!         kind 1: nothing. Of the host alone: it goes on with this attempt and no other;
//!                 with none, where the attempt is zeros
//! ```
//!
//! An attempt is one try of one joiner, by 16 random bytes of its own. Each way of it is a
//! stream: pieces numbered from 0, put one after the other, the next once the mailbox has
//! the one before. The two streams carry TLS 1.3, and this the frames of a pairing: a
//! mailbox can keep pieces back, lose, repeat and reorder them, and so can whoever has the
//! code, who can also write pieces of his own; TLS then fails, or nothing comes. Neither
//! makes a pairing, and nothing here grows beyond its bounds.
//!
//! Time, blobs and the mailbox's answers come in by `handle_*`, what is to be put and
//! what came goes out by `poll_*`. Time is as at the crate's root.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bailey_envelope::{MAX_MAILED, MailKey, PairWay, TopicId};

use super::code::PairSecret;
use crate::mail::{MAX_PUTS, Refusal};

const MAGIC: [u8; 4] = *b"BLP\x01";
const KIND_BYTES: u8 = 0;
const KIND_CLOSED: u8 = 1;
/// Before the number, or all of a piece that closes.
const HEAD_LEN: usize = MAGIC.len() + 1 + 16;
const NUMBER_LEN: usize = 4;
/// Most bytes of one piece.
const MAX_PIECE: usize = MAX_MAILED - HEAD_LEN - NUMBER_LEN;
/// Attempts that a host has open; the next throws out the oldest.
pub const MAX_ATTEMPTS: usize = 8;
/// Attempts of one code in all; later ones are not heard.
pub const MAX_ATTEMPTS_EVER: u64 = 64;
/// Blobs that are read for one code, of whatever kind: the topic holds nothing but noise
/// after that.
pub const MAX_BLOBS: u32 = 1024;
/// Pieces that may come before the one whose turn it is.
const MAX_AHEAD: u32 = 8;
/// Bytes of a stream before the proof: a handshake and three short frames.
const MAX_UNPROVED: usize = 16 * 1024;
/// Bytes of a stream in all: the longest welcome, what TLS adds, and the rest.
const MAX_STREAM: usize = 3 << 20;
/// A piece that the mailbox refused is put again after this, doubling,
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// to this at most,
const LONGEST_WAIT: Duration = Duration::from_secs(4);
/// and so often.
const MAX_REFUSALS: u32 = 8;

/// One try of one joiner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub [u8; 16]);

/// What came through the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostEvent {
    /// Host: somebody who has the code begins.
    Opened(Attempt),
    /// Bytes of an attempt's stream, in order.
    Bytes(Attempt, Vec<u8>),
    /// Nothing more comes of it.
    Broken(Attempt, PostFault),
    /// Joiner: the host goes on without us.
    Closed,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostFault {
    /// Pieces far ahead of the one whose turn it is.
    #[error("it keeps back a part of what the other device sent")]
    Gap,
    /// More bytes than a pairing has.
    #[error("more came than a pairing has")]
    TooLong,
    /// Too many blobs in the topic.
    #[error("there are too many blobs that are no part of this pairing")]
    Noise,
    /// The mailbox does not keep what we put.
    #[error("it keeps nothing: {0}")]
    Refused(Refusal),
    /// It lost what it had.
    #[error("it has lost what it had")]
    Lost,
    /// Another device began with the same code, and many at that.
    #[error("too many devices use this code at once")]
    Replaced,
}

/// A blob to be put, until the mailbox has it.
#[derive(Debug)]
struct Put {
    blob: Vec<u8>,
    /// By which number its answer comes.
    sent: Option<u64>,
    refusals: u32,
    at: Duration,
}

/// Both streams of one attempt.
#[derive(Debug)]
struct Strand {
    /// By which the oldest is found.
    opened: u64,
    next_in: u32,
    ahead: BTreeMap<u32, Vec<u8>>,
    /// Bytes that came, those ahead too.
    taken: usize,
    limit: usize,
    out: Vec<u8>,
    next_out: u32,
    put: Option<Put>,
    /// Nothing more is read; it goes once all is put.
    leaving: bool,
}

impl Strand {
    fn new(opened: u64) -> Self {
        Self {
            opened,
            next_in: 0,
            ahead: BTreeMap::new(),
            taken: 0,
            limit: MAX_UNPROVED,
            out: Vec::new(),
            next_out: 0,
            put: None,
            leaving: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.out.is_empty() && self.put.is_none()
    }

    /// Takes a piece; gives those whose turn it is.
    fn take(&mut self, number: u32, bytes: &[u8]) -> Result<Vec<u8>, PostFault> {
        // What came first stays: another with the same number is no part of it.
        if self.leaving || number < self.next_in || self.ahead.contains_key(&number) {
            return Ok(Vec::new());
        }
        if number - self.next_in >= MAX_AHEAD {
            return Err(PostFault::Gap);
        }
        self.taken += bytes.len();
        if self.taken > self.limit {
            return Err(PostFault::TooLong);
        }
        self.ahead.insert(number, bytes.to_vec());
        let mut whole = Vec::new();
        while let Some(next) = self.ahead.remove(&self.next_in) {
            whole.extend_from_slice(&next);
            self.next_in += 1;
        }
        Ok(whole)
    }

    /// The next piece to put, where none is on its way.
    fn cut(&mut self, attempt: Attempt, key: &MailKey, now: Duration) {
        if self.put.is_some() || self.out.is_empty() {
            return;
        }
        let rest = self.out.split_off(self.out.len().min(MAX_PIECE));
        let bytes = core::mem::replace(&mut self.out, rest);
        let number = self.next_out.to_be_bytes();
        self.next_out += 1;
        let content = [&head(KIND_BYTES, attempt)[..], &number, &bytes].concat();
        self.put = sealed(key, &content, now);
    }
}

fn head(kind: u8, attempt: Attempt) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&MAGIC);
    head[4] = kind;
    head[5..].copy_from_slice(&attempt.0);
    head
}

/// `None` for what is longer than a blob holds; no piece is.
fn sealed(key: &MailKey, content: &[u8], now: Duration) -> Option<Put> {
    Some(Put {
        blob: key.seal(content).ok()?,
        sent: None,
        refusals: 0,
        at: now,
    })
}

enum Piece<'a> {
    Bytes(Attempt, u32, &'a [u8]),
    Closed(Attempt),
}

fn piece(content: &[u8]) -> Option<Piece<'_>> {
    let (head, rest) = content.split_first_chunk::<HEAD_LEN>()?;
    let attempt = Attempt(*head.last_chunk()?);
    if head[..4] != MAGIC {
        return None;
    }
    match head[4] {
        KIND_BYTES => {
            let (number, bytes) = rest.split_first_chunk::<NUMBER_LEN>()?;
            let number = u32::from_be_bytes(*number);
            (!bytes.is_empty()).then_some(Piece::Bytes(attempt, number, bytes))
        }
        KIND_CLOSED if rest.is_empty() => Some(Piece::Closed(attempt)),
        _ => None,
    }
}

/// One end of a pairing, as a mailbox sees it.
#[derive(Debug)]
pub struct Post {
    /// The one attempt of a joiner.
    own: Option<Attempt>,
    write: MailKey,
    read: MailKey,
    strands: BTreeMap<Attempt, Strand>,
    /// Attempts that are over, and those that are not heard.
    over: BTreeSet<Attempt>,
    opened: u64,
    /// Whom a host goes on with: no other is heard. Zeros for nobody.
    kept: Option<Attempt>,
    mark: Option<Put>,
    store: Option<[u8; 16]>,
    /// The first index that was not read.
    next: u64,
    blobs: u32,
    last_put: u64,
    /// Puts without an answer whose strand is gone.
    orphans: BTreeSet<u64>,
    events: VecDeque<PostEvent>,
}

impl Post {
    /// The host's end, in the mailbox of this key.
    #[must_use]
    pub fn host(secret: PairSecret, mailbox: &[u8; 32]) -> Self {
        Self::new(secret, mailbox, PairWay::ToJoiner, PairWay::ToHost)
    }

    /// A joiner's end. The attempt is 16 bytes of the operating system.
    #[must_use]
    pub fn joiner(secret: PairSecret, mailbox: &[u8; 32], attempt: Attempt) -> Self {
        let mut post = Self::new(secret, mailbox, PairWay::ToHost, PairWay::ToJoiner);
        post.own = Some(attempt);
        post.strands.insert(attempt, Strand::new(0));
        post
    }

    fn new(secret: PairSecret, mailbox: &[u8; 32], write: PairWay, read: PairWay) -> Self {
        let key = |way| MailKey::of_pairing(&secret.0, mailbox, way);
        Self {
            own: None,
            write: key(write),
            read: key(read),
            strands: BTreeMap::new(),
            over: BTreeSet::new(),
            opened: 0,
            kept: None,
            mark: None,
            store: None,
            next: 0,
            blobs: 0,
            last_put: 0,
            orphans: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// The topic that is to be followed.
    #[must_use]
    pub fn topic(&self) -> TopicId {
        self.read.topic()
    }

    /// The mailbox is reached; says from which index on the topic is to be followed.
    pub fn handle_up(&mut self, store: [u8; 16]) -> u64 {
        if self.store.replace(store).is_some_and(|old| old != store) {
            self.next = 0;
            self.break_all(PostFault::Lost);
        }
        self.next
    }

    /// The mailbox is not reached any more: what it did not answer is put again.
    pub fn handle_down(&mut self) {
        self.orphans.clear();
        let puts = self.strands.values_mut().map(|strand| &mut strand.put);
        for put in puts.chain([&mut self.mark]).flatten() {
            put.sent = None;
        }
    }

    /// A blob of the topic. Nothing of it is believed.
    pub fn handle_blob(&mut self, index: u64, blob: &[u8]) {
        self.next = self.next.max(index.saturating_add(1));
        if self.blobs >= MAX_BLOBS {
            return;
        }
        self.blobs += 1;
        if self.blobs == MAX_BLOBS {
            self.break_all(PostFault::Noise);
            return;
        }
        let Ok(content) = self.read.open(blob) else {
            return;
        };
        match (piece(&content), self.own) {
            (Some(Piece::Bytes(attempt, number, bytes)), _) => {
                self.handle_bytes(attempt, number, bytes);
            }
            (Some(Piece::Closed(kept)), Some(own)) if kept != own => {
                self.events.push_back(PostEvent::Closed);
            }
            (Some(Piece::Closed(_)) | None, _) => {}
        }
    }

    fn handle_bytes(&mut self, attempt: Attempt, number: u32, bytes: &[u8]) {
        if !self.strands.contains_key(&attempt) && !self.open(attempt) {
            return;
        }
        let Some(strand) = self.strands.get_mut(&attempt) else {
            return;
        };
        match strand.take(number, bytes) {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => self.events.push_back(PostEvent::Bytes(attempt, bytes)),
            Err(fault) => self.break_off(attempt, fault),
        }
    }

    /// Host: an attempt that was not seen before.
    fn open(&mut self, attempt: Attempt) -> bool {
        let known = self.own.is_some() || self.over.contains(&attempt);
        let shut = self.kept.is_some() || self.opened >= MAX_ATTEMPTS_EVER;
        if known || shut {
            return false;
        }
        if self.strands.len() >= MAX_ATTEMPTS {
            let oldest = self.strands.iter().min_by_key(|(_, strand)| strand.opened);
            if let Some((&oldest, _)) = oldest {
                self.remove(oldest);
                let broken = PostEvent::Broken(oldest, PostFault::Replaced);
                self.events.push_back(broken);
            }
        }
        self.opened += 1;
        self.strands.insert(attempt, Strand::new(self.opened));
        self.events.push_back(PostEvent::Opened(attempt));
        true
    }

    fn break_all(&mut self, fault: PostFault) {
        for attempt in self.strands.keys().copied().collect::<Vec<_>>() {
            self.remove(attempt);
            self.events.push_back(PostEvent::Broken(attempt, fault));
        }
    }

    fn break_off(&mut self, attempt: Attempt, fault: PostFault) {
        self.remove(attempt);
        self.events.push_back(PostEvent::Broken(attempt, fault));
    }

    fn remove(&mut self, attempt: Attempt) {
        let gone = self.strands.remove(&attempt);
        self.orphans.extend(gone.and_then(|it| it.put?.sent));
        self.over.insert(attempt);
    }

    /// Sends bytes to the other end of an attempt.
    pub fn write(&mut self, attempt: Attempt, bytes: &[u8]) {
        if let Some(strand) = self.strands.get_mut(&attempt) {
            strand.out.extend_from_slice(bytes);
        }
    }

    /// Whether something of an attempt is still to be put.
    #[must_use]
    pub fn is_behind(&self, attempt: Attempt) -> bool {
        let strand = self.strands.get(&attempt);
        strand.is_some_and(|strand| !strand.is_idle())
    }

    /// Nothing more is read of it; what was written is put.
    pub fn leave(&mut self, attempt: Attempt) {
        if let Some(strand) = self.strands.get_mut(&attempt) {
            strand.leaving = true;
            if strand.is_idle() {
                self.remove(attempt);
            }
        }
    }

    /// An attempt has proved the code: it may send more.
    /// Host: from now on nobody else is heard, and is told so; with `None` nobody at all.
    pub fn keep(&mut self, now: Duration, attempt: Option<Attempt>) {
        let strand = attempt.and_then(|it| self.strands.get_mut(&it));
        if let Some(strand) = strand {
            strand.limit = MAX_STREAM;
        }
        if self.own.is_some() || self.kept.is_some() {
            return;
        }
        let kept = attempt.unwrap_or(Attempt([0; 16]));
        self.kept = Some(kept);
        self.mark = sealed(&self.write, &head(KIND_CLOSED, kept), now);
    }

    /// Whether nothing is left to be put.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mark.is_none() && self.strands.values().all(Strand::is_idle)
    }

    fn in_flight(&self) -> usize {
        let puts = self.strands.values().map(|strand| &strand.put);
        let sent = puts.chain([&self.mark]).flatten();
        sent.filter(|put| put.sent.is_some()).count() + self.orphans.len()
    }

    /// The next blob to put while the mailbox is reached: its number, topic and bytes.
    pub fn poll_put(&mut self, now: Duration) -> Option<(u64, TopicId, Vec<u8>)> {
        if self.in_flight() >= MAX_PUTS {
            return None;
        }
        for (attempt, strand) in &mut self.strands {
            strand.cut(*attempt, &self.write, now);
        }
        let puts = self.strands.values_mut().map(|strand| &mut strand.put);
        let mut puts = puts.chain([&mut self.mark]).flatten();
        let put = puts.find(|put| put.sent.is_none() && put.at <= now)?;
        self.last_put += 1;
        put.sent = Some(self.last_put);
        Some((self.last_put, self.write.topic(), put.blob.clone()))
    }

    /// A put is on the mailbox's disk.
    pub fn handle_stored(&mut self, id: u64) {
        self.orphans.remove(&id);
        let is_it = |put: &Option<Put>| put.as_ref().is_some_and(|put| put.sent == Some(id));
        if is_it(&self.mark) {
            self.mark = None;
        }
        let of = self.strands.iter().find(|(_, strand)| is_it(&strand.put));
        let Some(attempt) = of.map(|(attempt, _)| *attempt) else {
            return;
        };
        let Some(strand) = self.strands.get_mut(&attempt) else {
            return;
        };
        strand.put = None;
        if strand.leaving && strand.is_idle() {
            self.remove(attempt);
        }
    }

    /// A put is not kept: it is tried again for a while.
    pub fn handle_refused(&mut self, now: Duration, id: u64, refusal: Refusal) {
        self.orphans.remove(&id);
        let again = |put: &mut Put| {
            put.sent = None;
            put.at = now
                + FIRST_WAIT
                    .saturating_mul(1 << put.refusals.min(8))
                    .min(LONGEST_WAIT);
            put.refusals += 1;
            put.refusals < MAX_REFUSALS
        };
        if let Some(mark) = self.mark.as_mut().filter(|put| put.sent == Some(id)) {
            if !again(mark) {
                self.mark = None;
            }
            return;
        }
        let mut given_up = None;
        for (attempt, strand) in &mut self.strands {
            let put = strand.put.as_mut().filter(|put| put.sent == Some(id));
            if put.is_some_and(|put| !again(put)) {
                given_up = Some(*attempt);
            }
        }
        if let Some(attempt) = given_up {
            self.break_off(attempt, PostFault::Refused(refusal));
        }
    }

    /// When there is something to put that the mailbox refused before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let puts = self.strands.values().map(|strand| &strand.put);
        let waiting = puts.chain([&self.mark]).flatten();
        let waiting = waiting.filter(|put| put.sent.is_none() && put.refusals > 0);
        waiting.map(|put| put.at).min()
    }

    /// The next thing that came.
    pub fn poll_event(&mut self) -> Option<PostEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests;
