//! Keys that a writer used as no honest one does. What was sealed so is read like
//! anything: a person is told.

use std::collections::BTreeSet;

use bailey_envelope::{ChainId, Header};
use bailey_model::DeviceId;
use rusqlite::Connection;

use crate::segment::SEGMENT_ENTRIES;
use crate::thin::tables;

/// Most that wait to be told.
const MAX_UNTOLD: usize = 16;

/// What a writer did with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HowMisused {
    /// It sealed under an epoch that it had replaced in the same chain before: whoever
    /// was removed meanwhile may read that.
    Replaced,
    /// It named another epoch than it began with this key.
    Number,
    /// It sealed twice under one key and nonce: whoever has both can learn of what they
    /// hold without the key.
    Nonce,
}

/// A key that was misused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misuse {
    /// The chain.
    pub chain: ChainId,
    /// The number of the first such envelope.
    pub seq: u64,
    /// What was done.
    pub how: HowMisused,
}

/// What was seen of it: once of each writer in a start.
#[derive(Debug, Default)]
pub(crate) struct Misuses {
    seen: BTreeSet<(DeviceId, HowMisused)>,
    untold: Vec<Misuse>,
}

impl Misuses {
    pub(super) fn note(&mut self, misuse: Misuse) {
        let room = self.untold.len() < MAX_UNTOLD;
        if room && self.seen.insert((misuse.chain.writer, misuse.how)) {
            self.untold.push(misuse);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Misuse> {
        std::mem::take(&mut self.untold)
    }
}

/// The nonces of a segment.
#[derive(Debug, Clone, Default)]
pub(super) struct Nonces(BTreeSet<[u8; 24]>);

impl Nonces {
    /// Whether it was used before.
    pub(super) fn used(&mut self, nonce: [u8; 24]) -> bool {
        // An honest segment has no more envelopes than entries.
        let room = self.0.len() < SEGMENT_ENTRIES;
        self.0.contains(&nonce) || (room && !self.0.insert(nonce))
    }
}

/// What is wrong with the key of a segment's first envelope, after one of the same chain,
/// if that is known: by what its writer said when it began the epochs.
pub(super) fn of_key(
    db: &Connection,
    header: &Header,
    before: Option<&Header>,
) -> rusqlite::Result<Option<HowMisused>> {
    let writer = &header.fields.chain.writer;
    let Some(line) = tables::line_of(db, writer, &header.key_id)? else {
        return Ok(None);
    };
    if line.number != header.epoch {
        return Ok(Some(HowMisused::Number));
    }
    let before = before.map(|before| tables::line_of(db, writer, &before.key_id));
    // Each window has epochs of its own.
    let replaced = before
        .transpose()?
        .flatten()
        .is_some_and(|before| before.hours == line.hours && before.number > line.number);
    Ok(replaced.then_some(HowMisused::Replaced))
}
