//! What this device itself writes: one chain a document, begun anew at each
//! start.

use std::collections::VecDeque;

use bailey_envelope::{DocId, Hash, KeyId, SegmentKey};
use bailey_model::{Incarnation, Timestamp};
use rusqlite::{Connection, params};

use crate::chains::doc_column;
use crate::db::{int, uint};
use crate::keys::KeyRecord;
use crate::segment::{BATCH_BYTES, BATCH_ENTRIES, Segment};
use crate::spans::Span;
use crate::thin::Noted;

/// How long a batch waits after its last entry, in milliseconds.
const QUIET_MS: u64 = 1_000;
/// How long its first entry waits at most, in milliseconds: a trickle that
/// never pauses for [`QUIET_MS`] is still seen elsewhere.
const LONGEST_MS: u64 = 5_000;

/// How long after a failed sealing the next is tried, in milliseconds.
pub(crate) const RETRY_MS: u64 = 1_000;

/// The day of a time, counted from 1970-01-01 (UTC).
pub(crate) fn day_of(ts: Timestamp) -> u64 {
    ts.0 / (24 * 3_600_000)
}

/// A committed entry that is not in an envelope yet.
#[derive(Debug, Clone)]
pub(crate) struct Unsealed {
    pub(crate) no: u64,
    pub(crate) ts: Timestamp,
    pub(crate) packed: Vec<u8>,
    /// Whether it is the last of its row of the journal.
    pub(crate) ends_row: bool,
}

/// A document as this device writes it.
#[derive(Debug)]
pub(crate) struct OwnDoc {
    /// Number of the next entry.
    pub(crate) next_no: u64,
    /// The incarnation whose chain came before, and its last hash.
    pub(crate) before: Option<(Incarnation, Hash)>,
    /// Newest envelope built in this incarnation, stored or not.
    pub(crate) tip: Option<(u64, Hash)>,
    /// Number of the open segment.
    pub(crate) segment: u32,
    /// When its first envelope was built.
    pub(crate) segment_since: Option<Timestamp>,
    /// The segment, once it has something.
    pub(crate) content: Option<Segment>,
    /// Its key, once there is an epoch.
    pub(crate) key: Option<SegmentKey>,
    /// Hours of its window, and the epoch that it is sealed under, once it has a key.
    pub(crate) hours: u32,
    pub(crate) epoch: u32,
    /// The entry after which nothing more is expected for a while.
    pub(crate) rests_after: Option<u64>,
    /// What waits to be sealed.
    pub(crate) batch: VecDeque<Unsealed>,
    bytes: usize,
    /// Where that failed: when it failed. It is tried again a while after.
    failed: Option<Timestamp>,
}

impl OwnDoc {
    pub(crate) fn new() -> Self {
        Self {
            next_no: 1,
            before: None,
            tip: None,
            segment: 1,
            segment_since: None,
            content: None,
            key: None,
            hours: 0,
            epoch: 0,
            rests_after: None,
            batch: VecDeque::new(),
            bytes: 0,
            failed: None,
        }
    }

    pub(crate) fn push(&mut self, entry: Unsealed) {
        self.bytes += entry.packed.len();
        self.batch.push_back(entry);
    }

    /// Takes as many whole rows of the journal as one envelope holds, all of one day.
    pub(crate) fn take_batch(&mut self) -> Vec<Unsealed> {
        let (mut count, mut bytes) = (0, 0);
        let (mut rows_count, mut rows_bytes) = (0, 0);
        let day = self.batch.front().map(|first| day_of(first.ts));
        let of_day = |entry: &&Unsealed| Some(day_of(entry.ts)) == day;
        for entry in self.batch.iter().take_while(of_day) {
            count += 1;
            bytes += entry.packed.len();
            let fits = count <= BATCH_ENTRIES && bytes <= BATCH_BYTES;
            // One row fits whatever it holds: it is no longer than that and an entry.
            if rows_count > 0 && !fits {
                break;
            }
            if entry.ends_row {
                (rows_count, rows_bytes) = (count, bytes);
            }
        }
        self.bytes = self.bytes.saturating_sub(rows_bytes);
        self.batch.drain(..rows_count).collect()
    }

    /// Puts a batch back that could not be built: it rests for a while, and keeps no
    /// other document waiting.
    pub(crate) fn put_back(&mut self, batch: Vec<Unsealed>, now: Timestamp) {
        self.failed = Some(now);
        for entry in batch.into_iter().rev() {
            self.bytes += entry.packed.len();
            self.batch.push_front(entry);
        }
    }

    /// When the batch is to be sealed; `None` if there is nothing.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let (first, last) = (self.batch.front()?, self.batch.back()?);
        if self.batch.len() >= BATCH_ENTRIES || self.bytes >= BATCH_BYTES {
            return Some(first.ts);
        }
        let quiet = last.ts.0.saturating_add(QUIET_MS);
        Some(Timestamp(quiet.min(first.ts.0.saturating_add(LONGEST_MS))))
    }

    /// Whether the batch is to be sealed now. A clock that was set back makes
    /// it due: else it would wait until the old time comes again.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.due_by(now).is_some_and(|due| due <= now)
    }

    /// When the batch is to be sealed, as a clock that stands at `now` will tell it.
    pub(crate) fn due_by(&self, now: Timestamp) -> Option<Timestamp> {
        let set_back = self.batch.back().is_some_and(|last| now < last.ts);
        let due = self
            .due()
            .map(|due| if set_back { due.min(now) } else { due })?;
        Some(self.rests_until(now).map_or(due, |until| due.max(until)))
    }

    /// Until when a batch that could not be built rests, if it still does.
    pub(crate) fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        let failed = self.failed.filter(|failed| *failed <= now)?;
        let until = Timestamp(failed.0.saturating_add(RETRY_MS));
        (now < until).then_some(until)
    }

    /// A batch was built.
    pub(crate) fn was_built(&mut self) {
        self.failed = None;
    }
}

/// An envelope of one's own that is built. It is stored as these very bytes,
/// however often that is tried.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) doc: DocId,
    pub(crate) seq: u64,
    pub(crate) hash: Hash,
    pub(crate) segment: u32,
    pub(crate) key_id: KeyId,
    pub(crate) made: Timestamp,
    pub(crate) bytes: Vec<u8>,
    pub(crate) carries: Carries,
    /// What is noted of its segment, if it has one.
    pub(crate) noted: Option<Noted>,
}

/// What a built envelope carries, and so what is stored beside it.
#[derive(Debug)]
pub(crate) enum Carries {
    /// Entries of this span; their journal rows go.
    Entries(Span),
    /// A key record, and the devices that then have every key in the window.
    Keys {
        record: KeyRecord,
        handed: Option<bailey_model::DeviceId>,
    },
    /// An account record; for a genesis, the account.
    Record {
        begins: Option<bailey_model::AccountId>,
    },
}

/// Notes how far a document of one's own has come.
pub(crate) fn put(
    db: &Connection,
    doc: DocId,
    incarnation: &Incarnation,
    next_no: u64,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO own_docs(doc, incarnation, next_no) VALUES (?1, ?2, ?3) \
         ON CONFLICT(doc) DO UPDATE SET incarnation = ?2, next_no = max(next_no, ?3)",
    )?
    .execute(params![doc.to_bytes(), incarnation.0, int(next_no)])?;
    Ok(())
}

/// Every document of one's own: its last incarnation and next number.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<Vec<(DocId, Incarnation, u64)>> {
    let mut statement = db.prepare("SELECT doc, incarnation, next_no FROM own_docs")?;
    let rows = statement.query_map([], |row| {
        Ok((
            doc_column(row, 0)?,
            Incarnation(row.get(1)?),
            uint(row.get(2)?),
        ))
    })?;
    rows.collect()
}
