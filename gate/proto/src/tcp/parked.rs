//! A SYN of the box that waits for its entry, then for its dial.

use std::time::Duration;

use crate::Now;
use crate::flow::{SYN_REPEAT, SYN_SILENCE};
use crate::packet::Segment;

/// A SYN that nobody has answered yet.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) packet: Vec<u8>,
    pub(super) segment: Segment,
    /// Its entry stands, the dial is under way.
    pub(super) dialling: bool,
    pub(super) ticket: u64,
    /// When the stage that it waits in is over.
    pub(super) until: Now,
    /// When it was sent last, and the time between its last two repeats.
    pub(super) last: Now,
    pub(super) gap: Duration,
}

impl Parked {
    /// The stage's end, or when the box must have given up: a program that
    /// closes a socket while it connects sends nothing, the repeats just stop.
    pub(super) fn due(&self) -> Now {
        let next = self.last + (self.gap * 2).max(SYN_REPEAT);
        self.until.min(next + SYN_SILENCE)
    }

    pub(super) fn given_up(&self, now: Now) -> bool {
        now < self.until
    }
}

impl super::Flow {
    /// Whether the box's handshake is not done: the dial, and the answer that
    /// the box may never acknowledge (RFC 4987). What comes in has a bound of
    /// its own.
    pub(super) fn is_pending(&self) -> bool {
        match &self.stage {
            super::Stage::Parked(_) => true,
            super::Stage::Live(live) => self.came.is_none() && live.is_half_open(),
            super::Stage::Entering(_) => false,
        }
    }
}
