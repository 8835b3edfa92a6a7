//! Opening what is stored: key, body, change, entries.

use std::collections::{BTreeMap, VecDeque};

use bailey_envelope::{ChainId, Header, SegmentKey, Verified, peek};
use bailey_model::{AccountId, Entry, Timestamp};
use rusqlite::Connection;

use super::misuse::{self, HowMisused, Misuse, Misuses, Nonces};
use crate::chains::{self, Chain};
use crate::db::DbError;
use crate::error::QuarantineReason;
use crate::keys::KeyRing;
use crate::schema::unpack;
use crate::segment::Segment;
use crate::spans::Span;
use crate::store::served;
use crate::thin::tables;

/// How long a key is waited for that its writer seems to have forgotten, in
/// milliseconds: a writer that was restored from a copy counts its epochs anew, and
/// hands them over as soon as it meets somebody.
pub(super) const PATIENCE_MS: u64 = 3_600_000;
/// Most segments of others kept in memory.
const MAX_CACHED: usize = 64;

/// Segments of others that are being read, so that each envelope of a live
/// chain does not cost its whole segment.
#[derive(Debug, Default)]
pub(crate) struct SegmentCache {
    segments: BTreeMap<ChainId, (u32, u64, Read)>,
    order: VecDeque<ChainId>,
}

/// A segment as far as it was read.
#[derive(Debug)]
struct Read {
    content: Segment,
    nonces: Nonces,
}

impl SegmentCache {
    /// Takes the segment out if it is that of these very envelopes.
    fn take(&mut self, id: &ChainId, segment: u32, up_to: u64) -> Option<Read> {
        let (number, seq, read) = self.segments.remove(id)?;
        self.order.retain(|other| other != id);
        (number == segment && seq == up_to).then_some(read)
    }

    fn put(&mut self, id: ChainId, segment: u32, up_to: u64, read: Read) {
        while self.order.len() >= MAX_CACHED {
            if let Some(oldest) = self.order.pop_front() {
                self.segments.remove(&oldest);
            }
        }
        self.segments.insert(id, (segment, up_to, read));
        self.order.push_back(id);
    }

    pub(crate) fn forget(&mut self, id: &ChainId) {
        self.segments.remove(id);
        self.order.retain(|other| other != id);
    }
}

/// What came of opening one envelope.
pub(super) enum Opening {
    Entries(Vec<Entry>),
    Waiting,
    Aside(QuarantineReason),
}

/// What is needed to open envelopes.
pub(super) struct Opener<'a> {
    pub(super) db: &'a Connection,
    pub(super) account: AccountId,
    pub(super) ring: &'a mut KeyRing,
    pub(super) cache: &'a mut SegmentCache,
    pub(super) misuses: &'a mut Misuses,
    /// The window that the segment opened last names, in hours; 0 if none.
    pub(super) hours: u32,
    /// The later of the mark and the clock, where what has waited is passed over if it
    /// waits in vain.
    pub(super) now: Option<Timestamp>,
}

impl Opener<'_> {
    /// Opens the envelope after the last opened one and moves the chain on.
    pub(super) fn open(
        &mut self,
        id: &ChainId,
        chain: &mut Chain,
        verified: &Verified<'_>,
    ) -> Result<Opening, DbError> {
        let header = &verified.header;
        let segment = header.fields.segment;
        let opening = if chain.broken == Some(segment) {
            Opening::Aside(QuarantineReason::Follows)
        } else {
            self.read(id, chain, verified)?
        };
        match &opening {
            Opening::Waiting => return Ok(opening),
            Opening::Aside(_) => chain.broken = Some(segment),
            Opening::Entries(entries) => {
                if let Some(last) = entries.last() {
                    chain.last_no = last.no;
                }
            }
        }
        chain.opened = header.fields.seq;
        chain.open_segment = segment;
        Ok(opening)
    }

    fn read(
        &mut self,
        id: &ChainId,
        chain: &Chain,
        verified: &Verified<'_>,
    ) -> Result<Opening, DbError> {
        let fields = verified.header.fields;
        let key = self
            .ring
            .find(self.db, self.account, id.writer, verified.header.key_id)?;
        let Some(key) = key else {
            return Ok(match self.waits_in_vain(id, chain, verified)? {
                true => Opening::Aside(QuarantineReason::KeyForgotten),
                false => Opening::Waiting,
            });
        };
        let key = key.segment_key(id.doc, fields.segment);
        let Read {
            content,
            mut nonces,
        } = match self.cache.take(id, fields.segment, chain.opened) {
            Some(read) => read,
            None => match self.rebuild(id, chain, fields.segment, &key)? {
                Ok(read) => read,
                Err(reason) => return Ok(Opening::Aside(reason)),
            },
        };
        self.look_for_misuse(chain, &verified.header, &mut nonces)?;
        let read = apply(content, verified, &key).and_then(|(content, entries)| {
            let hole = chain.broken == Some(chain.open_segment);
            check_numbers(chain.last_no, hole, &entries).map(|()| (content, entries))
        });
        match read {
            Ok((content, entries)) => {
                self.hours = content.hours().unwrap_or(0);
                self.cache
                    .put(*id, fields.segment, fields.seq, Read { content, nonces });
                Ok(Opening::Entries(entries))
            }
            Err(reason) => Ok(Opening::Aside(reason)),
        }
    }

    /// Whether the writer used this key as no honest one does.
    fn look_for_misuse(
        &mut self,
        chain: &Chain,
        header: &Header,
        nonces: &mut Nonces,
    ) -> Result<(), DbError> {
        let fields = &header.fields;
        let mut how = None;
        if fields.segment != chain.open_segment {
            let before = match chain.row {
                Some(row) => chains::envelope(self.db, row, chain.opened)?,
                None => None,
            };
            let before = before.and_then(|bytes| peek(&bytes).ok());
            how = misuse::of_key(self.db, header, before.as_ref())?;
        }
        let again = nonces.used(header.nonce).then_some(HowMisused::Nonce);
        for how in how.into_iter().chain(again) {
            let (chain, seq) = (fields.chain, fields.seq);
            self.misuses.note(Misuse { chain, seq, how });
        }
        Ok(())
    }

    /// Whether a key will not come: its writer has handed this device a later epoch of
    /// its own, and would have handed this one before. Another device had kept what
    /// was sealed under it for longer.
    fn waits_in_vain(
        &self,
        id: &ChainId,
        chain: &Chain,
        verified: &Verified<'_>,
    ) -> Result<bool, DbError> {
        let (Some(now), Some(row)) = (self.now, chain.row) else {
            return Ok(false);
        };
        let header = &verified.header;
        let came = tables::segment_stamp(self.db, row, header.fields.segment)?;
        let patient = came.is_none_or(|came| now.0 < came.0.saturating_add(PATIENCE_MS));
        if patient || id.doc.is_here() {
            return Ok(false);
        }
        let served = served(self.db, &id.writer)?;
        Ok(served.is_some_and(|served| served > header.epoch))
    }

    /// The segment as far as it was opened.
    fn rebuild(
        &self,
        id: &ChainId,
        chain: &Chain,
        segment: u32,
        key: &SegmentKey,
    ) -> Result<Result<Read, QuarantineReason>, DbError> {
        let mut content = Segment::new(id);
        let mut nonces = Nonces::default();
        let Some(row) = chain.row else {
            return Ok(Ok(Read { content, nonces }));
        };
        for bytes in chains::segment(self.db, row, segment, chain.opened)? {
            let Ok(verified) = Verified::from_stored(&bytes) else {
                return Ok(Err(QuarantineReason::Follows));
            };
            match apply(content, &verified, key) {
                Ok((next, _)) => content = next,
                Err(reason) => return Ok(Err(reason)),
            }
            let _told_before = nonces.used(verified.header.nonce);
        }
        Ok(Ok(Read { content, nonces }))
    }
}

/// Opens one envelope's body and applies its change.
pub(crate) fn apply(
    mut content: Segment,
    verified: &Verified<'_>,
    key: &SegmentKey,
) -> Result<(Segment, Vec<Entry>), QuarantineReason> {
    let body = verified.open(key)?;
    let packed = content.apply(&body)?;
    let entries = packed
        .iter()
        .map(|entry| unpack(entry))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((content, entries))
}

/// Entry numbers go on without holes. A chain's first may be any: the chain
/// before it may not have come yet. After a `hole`, which is what was set aside,
/// they go on from any higher one.
pub(crate) fn check_numbers(
    last_no: u64,
    hole: bool,
    entries: &[Entry],
) -> Result<(), QuarantineReason> {
    let next = last_no.saturating_add(1);
    let mut want = match entries.first() {
        Some(first) if last_no == 0 || hole => first.no.max(next),
        _ => next,
    };
    for entry in entries {
        if entry.no != want || want > i64::MAX.unsigned_abs() {
            return Err(QuarantineReason::Number {
                want,
                found: entry.no,
            });
        }
        want = want.saturating_add(1);
    }
    Ok(())
}

impl Opening {
    /// What its entries span, if it gave any.
    pub(super) fn span(&self) -> Option<Span> {
        match self {
            Self::Entries(entries) => Span::of_entries(entries),
            Self::Waiting | Self::Aside(_) => None,
        }
    }

    /// Why it was set aside, if it was.
    pub(super) fn reason(&self) -> Option<QuarantineReason> {
        match self {
            Self::Aside(reason) => Some(reason.clone()),
            Self::Entries(_) | Self::Waiting => None,
        }
    }
}
