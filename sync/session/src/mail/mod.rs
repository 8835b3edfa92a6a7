//! What a device and a mailbox say to each other, as two pure state machines.
//!
//! A mailbox keeps blobs ([`bailey_envelope::MailKey`]) in topics, numbers them in
//! the order in which they came, and hands them to whoever names the topic. It
//! holds no key of anybody.
//!
//! # Wire format, version 1
//!
//! One bidirectional stream under ALPN `bailey-mail/1`, opened by the device; TLS
//! 1.3 with raw Ed25519 keys, the mailbox's pinned, the device's made for this one
//! connection. Frames as at the crate's root, at most [`MAX_MAIL_PAYLOAD`] bytes.
//!
//! ```text
//! from the device
//! tag 0  Hello     version: u16
//! tag 1  Put       blob: bytes
//! tag 2  Follow    topic: [u8; 32], from: u64
//! tag 3  Drop      topic: [u8; 32]
//! tag 4  Alive     nothing
//! tag 5  Bye       reason: u8
//!
//! from the mailbox
//! tag 0  Welcome   version: u16, store: [u8; 16]
//! tag 1  Stored    topic: [u8; 32], index: u64
//! tag 2  Refused   reason: u8
//! tag 3  Blob      topic: [u8; 32], index: u64, blob: bytes
//! tag 4  CaughtUp  topic: [u8; 32], next: u64
//! tag 5  Dropped   topic: [u8; 32]
//! tag 6  Alive     nothing
//! tag 7  Bye       reason: u8
//!
//! Refused.reason = 0 not a blob that its topic signed | 1 the mailbox's quota
//!                | 2 too many new topics | 3 too fast | 4 its disk takes nothing now
//!                | 5 the topic's quota
//! ```
//!
//! - `Hello` is the first frame of the device and comes once; nothing is answered
//!   before it. `Welcome` answers it. `store` names what the mailbox keeps: another
//!   one than before has nothing of what was there.
//! - `Stored` or `Refused` answers each `Put`, in the order of these. `Stored` comes
//!   once the blob is on the mailbox's disk; a blob that lies there already is
//!   answered with its index. At most [`MAX_PUTS`] may be unanswered.
//! - `Follow` asks for every blob of a topic from an index on: those there are, in
//!   order, as `Blob`; then `CaughtUp` with the index that the next one gets; then
//!   each new one as it comes. Indices rise and may leave out what has expired. At
//!   most [`MAX_FOLLOWS`] topics, each once.
//! - `Drop` ends that; `Dropped` is the last that is said of the topic.
//! - What breaks a rule is answered by `Bye`, and the connection is over. A side
//!   that sent nothing for [`crate::KEEP_ALIVE`] sends `Alive`.

mod address;
mod client;
mod server;
mod wire;

pub use address::{AddressError, MailAddress};
pub(crate) use address::{MAX_HOST, is_name};
pub use client::{MailClient, MailClientEvent};
pub use server::{MailServer, MailServerEvent};
pub use wire::{MAIL_VERSION, Refusal};

use core::time::Duration;

use bailey_envelope::MAX_BLOB;

use crate::{ByeReason, HELLO_TIMEOUT, KEEP_ALIVE, SILENCE};

/// Longest payload of a frame: one longest blob and what stands before it.
pub const MAX_MAIL_PAYLOAD: usize = MAX_BLOB + 128;
/// Puts of a device that are not answered.
pub const MAX_PUTS: usize = 8;
/// Topics that one connection follows.
pub const MAX_FOLLOWS: usize = 4096;
/// Frames other than puts that a mailbox takes in a burst: all follows, and then
/// some.
pub const MAIL_BURST: u32 = 8192;
/// One more such frame is taken each time this has passed.
pub const MAIL_PAUSE: Duration = Duration::from_millis(10);
/// How long an answer to a put may take.
pub const PUT_TIMEOUT: Duration = Duration::from_secs(120);

/// Tag, topic, index and the blob's length as varints.
const _: () = assert!(MAX_MAIL_PAYLOAD - MAX_BLOB >= 1 + 32 + 10 + 5);

/// What both ends of a connection do alike: its stage, and how long it is silent.
#[derive(Debug)]
struct Ends {
    stage: Stage,
    started: Duration,
    last_heard: Duration,
    last_sent: Duration,
    alive_due: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The other side said nothing yet.
    Greeting,
    Open,
    /// `Bye` is to be sent.
    Closing(ByeReason),
    Closed,
}

impl Ends {
    fn new(now: Duration) -> Self {
        Self {
            stage: Stage::Greeting,
            started: now,
            last_heard: now,
            last_sent: now,
            alive_due: false,
        }
    }

    fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closing(_) | Stage::Closed)
    }

    fn sent(&mut self, now: Duration) {
        self.last_sent = now;
        self.alive_due = false;
    }

    fn deadline(&self) -> Option<Duration> {
        match self.stage {
            Stage::Closing(_) | Stage::Closed => None,
            Stage::Greeting => Some(self.started + HELLO_TIMEOUT),
            Stage::Open => {
                let silence = self.last_heard + SILENCE;
                let alive = self.last_sent + KEEP_ALIVE;
                Some(if self.alive_due {
                    silence
                } else {
                    silence.min(alive)
                })
            }
        }
    }

    /// Whether the other side has been silent for too long.
    fn timed_out(&mut self, now: Duration) -> bool {
        match self.stage {
            Stage::Closing(_) | Stage::Closed => false,
            Stage::Greeting => now >= self.started + HELLO_TIMEOUT,
            Stage::Open => {
                self.alive_due |= now >= self.last_sent + KEEP_ALIVE;
                now >= self.last_heard + SILENCE
            }
        }
    }
}

#[cfg(test)]
mod tests;
