//! The device's side.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bailey_envelope::{BLOB_SIZES, TopicId};

use super::wire::{FromDevice, FromMailbox, MAIL_VERSION, Refusal};
use super::{Ends, MAX_FOLLOWS, MAX_MAIL_PAYLOAD, MAX_PUTS, PUT_TIMEOUT, Stage};
use crate::wire::{Blob, Cut, Cutter, decode, encode};
use crate::{ByeReason, CloseReason};

/// What a connection tells its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailClientEvent {
    /// The mailbox answered; this is the name of its store.
    Up {
        /// The name.
        store: [u8; 16],
    },
    /// A put is on the mailbox's disk.
    Stored {
        /// As it was given to [`MailClient::put`].
        id: u64,
    },
    /// A put is not kept.
    Refused {
        /// As it was given to [`MailClient::put`].
        id: u64,
        /// Why.
        refusal: Refusal,
    },
    /// A blob of a followed topic. Nothing of it is checked but its size.
    Blob {
        /// The topic.
        topic: TopicId,
        /// Its index, higher than any before.
        index: u64,
        /// Its bytes.
        blob: Vec<u8>,
    },
    /// All that the topic held is told; the next one gets this index.
    CaughtUp {
        /// The topic.
        topic: TopicId,
        /// The index. Lower than one seen before: the mailbox went back.
        next: u64,
    },
    /// The connection is over; nothing follows.
    Closed(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// `Follow` is not sent.
    Asked { from: u64 },
    /// The least index that may come next; whether `CaughtUp` came.
    Followed { next: u64, caught_up: bool },
    /// `Drop` is to be sent, or was; then it is followed again from an index on.
    Dropping { again: Option<u64> },
}

/// One connection, as its device sees it.
#[derive(Debug)]
pub struct MailClient {
    ends: Ends,
    cutter: Cutter,
    events: VecDeque<MailClientEvent>,
    hello_sent: bool,
    follows: BTreeMap<TopicId, Phase>,
    /// Topics of which something is to be sent.
    to_tell: VecDeque<TopicId>,
    puts: VecDeque<(u64, TopicId, Vec<u8>)>,
    unanswered: VecDeque<(u64, TopicId, Duration)>,
}

impl MailClient {
    /// A connection that begins now.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            ends: Ends::new(now),
            cutter: Cutter::new(MAX_MAIL_PAYLOAD),
            events: VecDeque::new(),
            hello_sent: false,
            follows: BTreeMap::new(),
            to_tell: VecDeque::new(),
            puts: VecDeque::new(),
            unanswered: VecDeque::new(),
        }
    }

    /// Whether it is over, or says no more than `Bye`.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ends.is_closed()
    }

    /// How many puts it takes now.
    #[must_use]
    pub fn room(&self) -> usize {
        MAX_PUTS.saturating_sub(self.puts.len() + self.unanswered.len())
    }

    /// Puts a blob; `false` if there is no room for it, or the connection is over.
    /// `id` comes back with the answer.
    pub fn put(&mut self, id: u64, topic: TopicId, blob: Vec<u8>) -> bool {
        let takes = !self.is_closed() && self.room() > 0;
        if takes {
            self.puts.push_back((id, topic, blob));
        }
        takes
    }

    /// Follows a topic from an index on; `false` if it does already, or follows
    /// [`MAX_FOLLOWS`]. One that is no longer followed can be followed anew at once.
    pub fn follow(&mut self, topic: TopicId, from: u64) -> bool {
        if let Some(Phase::Dropping { again }) = self.follows.get_mut(&topic) {
            *again = Some(from);
            return true;
        }
        let known = self.follows.contains_key(&topic);
        if known || self.follows.len() >= MAX_FOLLOWS || self.is_closed() {
            return false;
        }
        self.follows.insert(topic, Phase::Asked { from });
        self.to_tell.push_back(topic);
        true
    }

    /// Follows a topic no longer.
    pub fn unfollow(&mut self, topic: TopicId) {
        match self.follows.get_mut(&topic) {
            Some(Phase::Asked { .. }) => {
                self.follows.remove(&topic);
                self.to_tell.retain(|other| *other != topic);
            }
            Some(phase @ Phase::Followed { .. }) => {
                *phase = Phase::Dropping { again: None };
                self.to_tell.push_back(topic);
            }
            Some(Phase::Dropping { again }) => *again = None,
            None => {}
        }
    }

    /// Bytes from the mailbox, in order. They may end anywhere.
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
                Cut::Payload(payload) => match decode::<FromMailbox>(&payload) {
                    Some(frame) => self.handle_frame(frame),
                    None => self.close(ByeReason::Protocol),
                },
            }
        }
    }

    fn handle_frame(&mut self, frame: FromMailbox) {
        match (self.ends.stage, frame) {
            (_, FromMailbox::Bye(code)) => {
                self.finish(CloseReason::Theirs(ByeReason::from_code(code)));
            }
            (Stage::Greeting, FromMailbox::Welcome { version, store }) if self.hello_sent => {
                if version != MAIL_VERSION {
                    return self.close(ByeReason::Version);
                }
                self.ends.stage = Stage::Open;
                self.events.push_back(MailClientEvent::Up { store });
            }
            (Stage::Open, FromMailbox::Stored { topic, .. }) => match self.unanswered.pop_front() {
                Some((id, asked, _)) if asked.0 == topic => {
                    self.events.push_back(MailClientEvent::Stored { id });
                }
                _ => self.close(ByeReason::Protocol),
            },
            (Stage::Open, FromMailbox::Refused(code)) => match self.unanswered.pop_front() {
                Some((id, ..)) => self.events.push_back(MailClientEvent::Refused {
                    id,
                    refusal: Refusal::from_code(code),
                }),
                None => self.close(ByeReason::Protocol),
            },
            (Stage::Open, FromMailbox::Blob { topic, index, blob }) => {
                self.handle_blob(TopicId(topic), index, blob.0);
            }
            (Stage::Open, FromMailbox::CaughtUp { topic, next }) => {
                self.handle_caught_up(TopicId(topic), next);
            }
            (Stage::Open, FromMailbox::Dropped { topic }) => {
                let topic = TopicId(topic);
                let told = !self.to_tell.contains(&topic);
                match self.follows.remove(&topic) {
                    Some(Phase::Dropping { again }) if told => {
                        if let Some(from) = again {
                            self.follow(topic, from);
                        }
                    }
                    _ => self.close(ByeReason::Protocol),
                }
            }
            (Stage::Open, FromMailbox::Alive) => {}
            _ => self.close(ByeReason::Protocol),
        }
    }

    fn handle_blob(&mut self, topic: TopicId, index: u64, blob: Vec<u8>) {
        match self.follows.get_mut(&topic) {
            Some(Phase::Followed { next, .. })
                if index >= *next && index < u64::MAX && BLOB_SIZES.contains(&blob.len()) =>
            {
                *next = index + 1;
                self.events
                    .push_back(MailClientEvent::Blob { topic, index, blob });
            }
            // It was on its way.
            Some(Phase::Dropping { .. }) => {}
            _ => self.close(ByeReason::Protocol),
        }
    }

    fn handle_caught_up(&mut self, topic: TopicId, end: u64) {
        match self.follows.get_mut(&topic) {
            Some(Phase::Followed { caught_up, .. }) if !*caught_up => {
                *caught_up = true;
                let next = end;
                self.events
                    .push_back(MailClientEvent::CaughtUp { topic, next });
            }
            Some(Phase::Dropping { .. }) => {}
            _ => self.close(ByeReason::Protocol),
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
        self.follows.clear();
        self.to_tell.clear();
        self.puts.clear();
        self.unanswered.clear();
        self.events.push_back(MailClientEvent::Closed(reason));
    }

    /// The next thing for the device to hear.
    pub fn poll_event(&mut self) -> Option<MailClientEvent> {
        self.events.pop_front()
    }

    /// The next frame to send, whole. Ask when the link can take one.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let frame = match self.ends.stage {
            Stage::Closed => return None,
            Stage::Closing(reason) => {
                self.ends.stage = Stage::Closed;
                FromDevice::Bye(reason.code())
            }
            Stage::Greeting if !self.hello_sent => {
                self.hello_sent = true;
                FromDevice::Hello {
                    version: MAIL_VERSION,
                }
            }
            Stage::Greeting => return None,
            Stage::Open => self.next_frame(now)?,
        };
        self.ends.sent(now);
        encode(&frame, MAX_MAIL_PAYLOAD)
    }

    fn next_frame(&mut self, now: Duration) -> Option<FromDevice> {
        if let Some((id, topic, blob)) = self.puts.pop_front() {
            self.unanswered.push_back((id, topic, now));
            return Some(FromDevice::Put { blob: Blob(blob) });
        }
        while let Some(topic) = self.to_tell.pop_front() {
            match self.follows.get_mut(&topic) {
                Some(phase @ Phase::Asked { .. }) => {
                    let Phase::Asked { from } = *phase else {
                        continue;
                    };
                    *phase = Phase::Followed {
                        next: from,
                        caught_up: false,
                    };
                    return Some(FromDevice::Follow {
                        topic: topic.0,
                        from,
                    });
                }
                Some(Phase::Dropping { .. }) => return Some(FromDevice::Drop { topic: topic.0 }),
                Some(Phase::Followed { .. }) | None => {}
            }
        }
        self.ends.alive_due.then_some(FromDevice::Alive)
    }

    /// When [`Self::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let answer = self.unanswered.front().map(|(.., at)| *at + PUT_TIMEOUT);
        let ends = self.ends.deadline();
        ends.map(|at| answer.map_or(at, |answer| answer.min(at)))
    }

    /// Time has passed. Afterwards there may be something to transmit.
    pub fn handle_timeout(&mut self, now: Duration) {
        let late = self
            .unanswered
            .front()
            .is_some_and(|(.., at)| now >= *at + PUT_TIMEOUT);
        if self.ends.timed_out(now) || late {
            self.close(ByeReason::Timeout);
        }
    }
}
