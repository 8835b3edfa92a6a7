//! The mailbox's side.

use core::time::Duration;
use std::collections::VecDeque;

use bailey_envelope::{TopicId, verify_blob};

use super::wire::{FromDevice, FromMailbox, MAIL_VERSION, Refusal};
use super::{Ends, MAIL_BURST, MAIL_PAUSE, MAX_FOLLOWS, MAX_MAIL_PAYLOAD, MAX_PUTS, Stage};
use crate::bucket::Bucket;
use crate::wire::{Blob, Cut, Cutter, decode, encode};
use crate::{ByeReason, CloseReason};

/// Answers that wait for the link: one for each frame of a burst.
const MAX_ANSWERS: usize = MAIL_BURST as usize;

/// What a connection asks of the mailbox that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailServerEvent {
    /// Keep this blob, which its topic signed; answer by [`MailServer::handle_stored`]
    /// or [`MailServer::handle_refused`], in any order.
    Put {
        /// Its number on this connection.
        put: u64,
        /// Its topic.
        topic: TopicId,
        /// Its bytes.
        blob: Vec<u8>,
    },
    /// Say by [`MailServer::handle_grown`] what index the next blob of this topic
    /// gets, now and whenever it changes.
    Follow {
        /// The topic.
        topic: TopicId,
    },
    /// Say so no longer.
    Unfollow {
        /// The topic.
        topic: TopicId,
    },
    /// Give the first blob of a topic from an index on, by [`MailServer::handle_read`].
    /// One is asked for at a time.
    Read {
        /// The topic.
        topic: TopicId,
        /// The index.
        from: u64,
    },
    /// The connection is over; nothing follows.
    Closed(CloseReason),
}

#[derive(Debug)]
struct Follow {
    /// The next index to hand out.
    next: u64,
    /// The index that the next blob of the topic gets, once that is known.
    end: Option<u64>,
    /// Whether `CaughtUp` was said.
    said: bool,
    /// Whether it waits for its turn.
    queued: bool,
}

/// What a connection follows, in the order of its topics and in one piece: a tree has
/// half of its room to spare, and a mailbox has thousands of these.
#[derive(Debug, Default)]
struct Follows(Vec<(TopicId, Follow)>);

/// Room for so many is made at once.
const FOLLOWS_MORE: usize = 8;

impl Follows {
    fn place(&self, topic: &TopicId) -> Result<usize, usize> {
        self.0.binary_search_by_key(topic, |(known, _)| *known)
    }

    /// `false` if it is followed already.
    fn insert(&mut self, topic: TopicId, follow: Follow) -> bool {
        let Err(at) = self.place(&topic) else {
            return false;
        };
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(FOLLOWS_MORE);
        }
        self.0.insert(at, (topic, follow));
        true
    }

    /// `false` if it was not followed.
    fn remove(&mut self, topic: &TopicId) -> bool {
        let at = self.place(topic);
        at.is_ok_and(|at| self.0.remove(at).0 == *topic)
    }

    fn get_mut(&mut self, topic: &TopicId) -> Option<&mut Follow> {
        let at = self.place(topic).ok()?;
        self.0.get_mut(at).map(|(_, follow)| follow)
    }
}

/// Gives back what a queue needed in a burst: a mailbox has thousands of connections,
/// and nearly all of them rest.
fn release<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() {
        *queue = VecDeque::new();
    }
}

/// One connection, as its mailbox sees it.
#[derive(Debug)]
pub struct MailServer {
    ends: Ends,
    store: [u8; 16],
    cutter: Cutter,
    events: VecDeque<MailServerEvent>,
    answers: VecDeque<FromMailbox>,
    /// Puts that are not answered, or whose answers wait for those before.
    puts: VecDeque<(u64, Option<FromMailbox>)>,
    last_put: u64,
    follows: Follows,
    /// Topics with something to hand out, in turn.
    ready: VecDeque<TopicId>,
    reading: Option<TopicId>,
    blob: Option<FromMailbox>,
    unasked: Bucket,
}

impl MailServer {
    /// A connection that begins now, to a mailbox whose store has this name.
    #[must_use]
    pub fn new(store: [u8; 16], now: Duration) -> Self {
        Self {
            ends: Ends::new(now),
            store,
            cutter: Cutter::new(MAX_MAIL_PAYLOAD),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            puts: VecDeque::new(),
            last_put: 0,
            follows: Follows::default(),
            ready: VecDeque::new(),
            reading: None,
            blob: None,
            unasked: Bucket::new(MAIL_BURST, MAIL_PAUSE, now),
        }
    }

    /// Whether it is over, or says no more than `Bye`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ends.is_closed()
    }

    /// Bytes from the device, in order. They may end anywhere.
    pub fn handle_bytes(&mut self, now: Duration, bytes: &[u8]) {
        if self.is_closed() || bytes.is_empty() {
            return;
        }
        self.ends.last_heard = now;
        self.cutter.push(bytes);
        while !self.is_closed() {
            match self.cutter.next() {
                Cut::More => break,
                Cut::Bad => self.close(ByeReason::Protocol),
                Cut::Payload(payload) => match decode::<FromDevice>(&payload) {
                    Some(frame) => self.handle_frame(now, frame),
                    None => self.close(ByeReason::Protocol),
                },
            }
        }
        self.read_on();
    }

    fn handle_frame(&mut self, now: Duration, frame: FromDevice) {
        let put = matches!(frame, FromDevice::Put { .. });
        // One that asks and does not read is no better.
        let deaf = self.answers.len() > MAX_ANSWERS;
        if deaf || (!put && !self.unasked.take(now)) {
            return self.close(ByeReason::Flood);
        }
        match (self.ends.stage, frame) {
            (Stage::Greeting, FromDevice::Hello { version }) => {
                if version != MAIL_VERSION {
                    return self.close(ByeReason::Version);
                }
                self.ends.stage = Stage::Open;
                self.answers.push_back(FromMailbox::Welcome {
                    version: MAIL_VERSION,
                    store: self.store,
                });
            }
            (_, FromDevice::Bye(code)) => {
                self.finish(CloseReason::Theirs(ByeReason::from_code(code)));
            }
            (Stage::Open, FromDevice::Put { blob }) => self.handle_put(blob.0),
            (Stage::Open, FromDevice::Follow { topic, from }) => {
                self.handle_follow(TopicId(topic), from);
            }
            (Stage::Open, FromDevice::Drop { topic }) => self.handle_drop(TopicId(topic)),
            (Stage::Open, FromDevice::Alive) => {}
            _ => self.close(ByeReason::Protocol),
        }
    }

    fn handle_put(&mut self, blob: Vec<u8>) {
        if self.puts.len() >= MAX_PUTS {
            return self.close(ByeReason::Flood);
        }
        self.last_put += 1;
        let put = self.last_put;
        self.puts.push_back((put, None));
        match verify_blob(&blob) {
            Ok(topic) => {
                let event = MailServerEvent::Put { put, topic, blob };
                self.events.push_back(event);
            }
            Err(_) => self.handle_refused(put, Refusal::Signature),
        }
    }

    fn handle_follow(&mut self, topic: TopicId, from: u64) {
        if self.follows.0.len() >= MAX_FOLLOWS {
            return self.close(ByeReason::Flood);
        }
        let follow = Follow {
            next: from,
            end: None,
            said: false,
            queued: false,
        };
        if !self.follows.insert(topic, follow) {
            return self.close(ByeReason::Protocol);
        }
        self.events.push_back(MailServerEvent::Follow { topic });
    }

    fn handle_drop(&mut self, topic: TopicId) {
        if !self.follows.remove(&topic) {
            return self.close(ByeReason::Protocol);
        }
        self.ready.retain(|other| *other != topic);
        let of_topic = |frame: &FromMailbox| matches!(frame, FromMailbox::Blob { topic: other, .. } if *other == topic.0);
        if self.blob.as_ref().is_some_and(of_topic) {
            self.blob = None;
        }
        self.answers
            .push_back(FromMailbox::Dropped { topic: topic.0 });
        self.events.push_back(MailServerEvent::Unfollow { topic });
    }

    /// A put is on the disk.
    pub fn handle_stored(&mut self, put: u64, topic: TopicId, index: u64) {
        let topic = topic.0;
        self.answer_put(put, FromMailbox::Stored { topic, index });
    }

    /// A put is not kept.
    pub fn handle_refused(&mut self, put: u64, refusal: Refusal) {
        self.answer_put(put, FromMailbox::Refused(refusal.code()));
    }

    fn answer_put(&mut self, put: u64, answer: FromMailbox) {
        if let Some((_, place)) = self.puts.iter_mut().find(|(known, _)| *known == put) {
            place.get_or_insert(answer);
        }
        self.answer_puts();
    }

    fn answer_puts(&mut self) {
        while matches!(self.puts.front(), Some((_, Some(_)))) {
            let answer = self.puts.pop_front().and_then(|(_, answer)| answer);
            self.answers.extend(answer);
        }
        release(&mut self.puts);
    }

    /// The index that the next blob of a followed topic gets.
    pub fn handle_grown(&mut self, topic: TopicId, end: u64) {
        if let Some(follow) = self.follows.get_mut(&topic) {
            follow.end = Some(follow.end.map_or(end, |known| known.max(end)));
            self.queue(topic);
        }
        self.read_on();
    }

    /// What [`MailServerEvent::Read`] asked for: its index and bytes, or `None` if
    /// there is none from there on (any more).
    pub fn handle_read(&mut self, topic: TopicId, found: Option<(u64, Vec<u8>)>) {
        if self.reading != Some(topic) {
            return;
        }
        self.reading = None;
        if let Some(follow) = self.follows.get_mut(&topic) {
            match found {
                Some((index, bytes)) if index >= follow.next => {
                    follow.next = index.saturating_add(1);
                    self.blob = Some(FromMailbox::Blob {
                        topic: topic.0,
                        index,
                        blob: Blob(bytes),
                    });
                }
                // It expired meanwhile.
                _ => follow.next = follow.next.max(follow.end.unwrap_or(0)),
            }
            self.queue(topic);
        }
        self.read_on();
    }

    fn queue(&mut self, topic: TopicId) {
        if let Some(follow) = self.follows.get_mut(&topic)
            && !follow.queued
        {
            follow.queued = true;
            self.ready.push_back(topic);
        }
    }

    /// Asks for the next blob, once the one before is on its way.
    fn read_on(&mut self) {
        if self.is_closed() || self.reading.is_some() || self.blob.is_some() {
            return;
        }
        while let Some(topic) = self.ready.pop_front() {
            release(&mut self.ready);
            let Some(follow) = self.follows.get_mut(&topic) else {
                continue;
            };
            follow.queued = false;
            let Some(end) = follow.end else { continue };
            if follow.next < end {
                self.reading = Some(topic);
                let from = follow.next;
                return self.events.push_back(MailServerEvent::Read { topic, from });
            }
            // Later ones come as they are: that they are all is known.
            if !std::mem::replace(&mut follow.said, true) {
                let (topic, next) = (topic.0, end);
                self.answers
                    .push_back(FromMailbox::CaughtUp { topic, next });
            }
        }
    }

    /// Ends the connection; `Bye` is the last that is sent.
    pub fn close(&mut self, reason: ByeReason) {
        if self.is_closed() {
            return;
        }
        self.finish(CloseReason::Ours(reason));
        self.ends.stage = Stage::Closing(reason);
    }

    fn finish(&mut self, reason: CloseReason) {
        self.ends.stage = Stage::Closed;
        self.answers.clear();
        self.puts.clear();
        self.ready.clear();
        self.blob = None;
        self.events.push_back(MailServerEvent::Closed(reason));
    }

    /// The topics that it follows, or followed when it was over.
    pub fn followed(&self) -> impl Iterator<Item = &TopicId> {
        self.follows.0.iter().map(|(topic, _)| topic)
    }

    /// The next thing for the mailbox to do.
    pub fn poll_event(&mut self) -> Option<MailServerEvent> {
        let event = self.events.pop_front();
        release(&mut self.events);
        event
    }

    /// The next frame to send, whole. Ask when the link can take one.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let frame = match self.ends.stage {
            Stage::Closed | Stage::Greeting => return None,
            Stage::Closing(reason) => {
                self.ends.stage = Stage::Closed;
                FromMailbox::Bye(reason.code())
            }
            Stage::Open => {
                let next = self.answers.pop_front().or_else(|| self.blob.take());
                release(&mut self.answers);
                next.or_else(|| self.ends.alive_due.then_some(FromMailbox::Alive))?
            }
        };
        self.ends.sent(now);
        self.read_on();
        encode(&frame, MAX_MAIL_PAYLOAD)
    }

    /// When [`Self::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.ends.deadline()
    }

    /// Time has passed. Afterwards there may be something to transmit.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.ends.timed_out(now) {
            self.close(ByeReason::Timeout);
        }
    }
}
