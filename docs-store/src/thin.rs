//! Thinning: what is kept for a window goes when the window is over, and its keys
//! after it; a tombstone and a summary of each day stay.
//!
//! It is done in slices of one segment or one key, each in one transaction, so that
//! a crash leaves a slice done or not begun, and nobody waits for more than one. A
//! segment goes once its window is over by the mark ([`steady`]) since this device
//! stored it; one of one's own also since its newest entry. One of another device
//! of which more may come is kept for a second window.

mod digest;
pub(crate) mod fail;
mod forget;
mod left;
mod steady;
pub(crate) mod tables;
pub(crate) mod tombs;

use bailey_envelope::{ChainId, DocId, Head, Verified};
use bailey_model::{BoxId, DeviceId, Entry, Event, Thinned, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use std::collections::BTreeMap;

use self::digest::{Digest, open_of};
pub use self::left::Gone;
pub use self::steady::Moment;
use self::steady::Steady;
pub(crate) use self::tables::Noted;
use self::tables::Row;
use self::tombs::{Says, window_ends};
use crate::chains;
use crate::db::DbError;
use crate::error::{OpenError, ThinError};
use crate::keys::KeyRecord;
use crate::reader;
use crate::spans::Span;
use crate::store::{Account, Store, Urgency, drop_mark, has_mark};

const HOUR_MS: u64 = 3_600_000;
/// Days that entries are kept where nothing else is said.
const WINDOW_DAYS: u16 = 30;
/// How long what is left of thinned entries is kept at least, and the documents
/// that say which boxes, notices and requests there were, in hours: 400 days.
const LONG_HOURS: u32 = 400 * 24;
/// Most boxes with a window of their own that are remembered at once.
const MAX_BOXES: usize = 65_536;
/// Most early thinnings that wait to be told.
const MAX_EARLY: usize = 64;
/// How far the mark moves before that is stored, in milliseconds.
const STORE_EVERY_MS: u64 = 60_000;
/// Most pages given back to the file system in one slice.
const MAX_PAGES: u32 = 256;
/// How long a chain of which only a tombstone is left is told of yet, in milliseconds:
/// what devices said of it before is looked for a week by those who lack it.
const SPENT_MS: u64 = 8 * 24 * HOUR_MS;
const META_STEADY: &str = "steady";
const UNNOTED: &str = "unnoted";

/// How long the documents are kept, in hours.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    hours: u32,
    long: u32,
    boxes: BTreeMap<BoxId, u32>,
    /// Of what a crash left in the journal, while that is sealed.
    written: BTreeMap<DocId, u32>,
}

impl Windows {
    /// What is sealed now was written with these windows, whatever is said since.
    pub(crate) fn as_written(&mut self, windows: BTreeMap<DocId, u32>) {
        self.written = windows;
    }

    /// What is written now is kept for this long.
    pub(crate) fn hours_of(&self, doc: DocId) -> u32 {
        if let Some(written) = self.written.get(&doc) {
            return *written;
        }
        match doc {
            DocId::Box(id) | DocId::Here(id) => self.boxes.get(&id).copied().unwrap_or(self.hours),
            _ => self.long,
        }
    }

    pub(crate) fn long(&self) -> u32 {
        self.long
    }

    /// The window of a segment that says so many hours, or nothing (0): one that an
    /// older version wrote.
    pub(crate) fn effective(&self, doc: DocId, said: u32) -> u32 {
        match (said, doc) {
            (0, DocId::Box(_) | DocId::Here(_)) => self.hours,
            (0, _) => self.long,
            (said, _) => said,
        }
    }
}

/// A device dropped what it should still have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// The device that says it did.
    pub by: DeviceId,
    /// The chain that it was of.
    pub chain: ChainId,
    /// The segment.
    pub segment: u32,
    /// Time of its newest entry.
    pub to: Timestamp,
    /// When its window is over.
    pub until: Timestamp,
}

/// What thinning remembers.
#[derive(Debug)]
pub(crate) struct Thinning {
    pub(crate) windows: Windows,
    steady: Option<Steady>,
    stored: u64,
    /// The newest time that the store itself knows.
    newest: Option<Timestamp>,
    early: Vec<Early>,
}

impl Thinning {
    pub(crate) fn load(db: &Connection, account: &Option<Account>) -> Result<Self, OpenError> {
        let stored: Option<Vec<u8>> = db
            .query_row(
                "SELECT value FROM meta WHERE key = ?1",
                [META_STEADY],
                |row| row.get(0),
            )
            .optional()?;
        let steady = stored.and_then(|bytes| Steady::decode(&bytes));
        let days = account
            .as_ref()
            .map(|account| account.members.window_days());
        let days = days.filter(|days| *days > 0).unwrap_or(WINDOW_DAYS);
        Ok(Self {
            windows: Windows {
                hours: u32::from(days) * 24,
                long: LONG_HOURS,
                boxes: BTreeMap::new(),
                written: BTreeMap::new(),
            },
            stored: steady.map_or(0, |steady| steady.mark().0),
            newest: match steady {
                Some(_) => None,
                None => tables::newest_received(db)?,
            },
            steady,
            early: Vec::new(),
        })
    }

    /// The mark; the beginning of time before the first look at a clock.
    pub(crate) fn mark(&self) -> Timestamp {
        self.steady.map_or(Timestamp(0), |steady| steady.mark())
    }

    fn tick(&mut self, now: &Moment) -> Steady {
        // What is there already says which time has surely come; a clock that is
        // before even that says it better.
        let begun = self.newest.unwrap_or(now.wall).min(now.wall);
        let mut steady = self.steady.unwrap_or_else(|| Steady::new(begun));
        steady.tick(now);
        self.steady = Some(steady);
        steady
    }

    fn tell_early(&mut self, early: Early) {
        let known = |other: &Early| (other.by, other.chain) == (early.by, early.chain);
        if self.early.len() < MAX_EARLY && !self.early.iter().any(known) {
            self.early.push(early);
        }
    }
}

/// What one slice of thinning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// Nothing was due: ask again in an hour.
    Rest,
    /// Something is appended and not committed: commit first.
    Busy,
    /// A segment is gone.
    Dropped {
        /// Its chain.
        chain: ChainId,
        /// Its number.
        segment: u32,
        /// How many entries it had, as far as they could be read.
        entries: u64,
    },
    /// Keys of this many epochs are gone. [`crate::Checkpointer::truncate`] takes
    /// them out of the log too.
    Forgot(usize),
    /// Room was given back to the file system.
    Shrank,
}

impl Store {
    /// Chains of which nothing is left but a tombstone, and how far they went. Nobody
    /// needs them any more: what is here of them is that they are over, and a device
    /// that is told nothing of them reads the same. One of this start is none of them.
    ///
    /// # Errors
    /// [`DbError`].
    pub fn spent_heads(&self) -> Result<Vec<Head>, DbError> {
        let since = self.thin.mark().0.saturating_sub(SPENT_MS);
        let spent = tables::spent(&self.db, Timestamp(since))?;
        let others = |id: &ChainId| {
            (id.writer, id.incarnation) != (self.device, self.incarnation) && !id.doc.is_here()
        };
        let spent = spent.into_iter().filter(|(id, _)| others(id));
        Ok(spent.map(|(id, chain)| chain.head(id)).collect())
    }

    /// How long entries of boxes are kept from now on where nothing else is said
    /// for one, and what the longest of all windows is; in hours. What is left of
    /// them stays for 400 days, or a day longer than the longest.
    pub fn set_windows(&mut self, hours: u32, longest: u32) {
        self.thin.windows.hours = hours;
        self.thin.windows.long = LONG_HOURS.max(longest.max(hours).saturating_add(24));
    }

    /// How long entries of one box are kept from now on, in hours. What is written
    /// already keeps the window that it was written with.
    pub fn set_box_window(&mut self, box_id: BoxId, hours: u32) {
        let doc = DocId::Box(box_id);
        if self.thin.windows.hours_of(doc) == hours {
            return;
        }
        let boxes = &mut self.thin.windows.boxes;
        if boxes.len() >= MAX_BOXES {
            boxes.pop_first();
        }
        boxes.insert(box_id, hours);
        for doc in [doc, DocId::Here(box_id)] {
            if let Some(own) = self.docs.get_mut(&doc) {
                own.close_segment();
            }
        }
    }

    /// Devices that say they dropped what they should still have, since this was
    /// asked last.
    pub fn take_early(&mut self) -> Vec<Early> {
        std::mem::take(&mut self.thin.early)
    }

    /// Takes what the machine says of the time. Call it when the store is open and
    /// every hour; [`Self::thin`] does it too.
    ///
    /// # Errors
    /// [`ThinError`]: it could not be stored, which matters only at the next start.
    pub fn look_at_clock(&mut self, now: &Moment) -> Result<(), ThinError> {
        let steady = self.thin.tick(now);
        let moved = steady.mark().0.saturating_sub(self.thin.stored);
        if moved < STORE_EVERY_MS && self.thin.stored != 0 {
            return Ok(());
        }
        let bytes = steady.encode().ok_or(rusqlite::Error::InvalidQuery)?;
        self.db.execute(
            "INSERT OR REPLACE INTO meta(key, value) VALUES (?1, ?2)",
            params![META_STEADY, bytes],
        )?;
        self.thin.stored = steady.mark().0;
        Ok(())
    }

    /// One slice of thinning. Call it until it says [`Slice::Rest`], between other
    /// things.
    ///
    /// # Errors
    /// [`ThinError`]: this slice is not done, and nothing of it is; ask again later.
    pub fn thin(&mut self, now: &Moment) -> Result<Slice, ThinError> {
        if self.has_pending() {
            return Ok(Slice::Busy);
        }
        self.look_at_clock(now)?;
        if self.account().is_none() || self.members().get(&self.device).is_none() {
            return Ok(Slice::Rest);
        }
        for (doc, own) in &mut self.docs {
            own.close_if_over(doc, 0, now.wall, now.wall);
        }
        if let Some((id, row)) = self.due()? {
            let entries = self.drop_one(&id, &row, now.wall)?;
            return Ok(Slice::Dropped {
                chain: id,
                segment: row.segment,
                entries,
            });
        }
        if let Some(keys) = self.forget_some(now.wall)? {
            return Ok(Slice::Forgot(keys));
        }
        self.shrink()
    }

    /// The oldest segment whose window is over.
    fn due(&self) -> Result<Option<(ChainId, Row)>, ThinError> {
        let mark = self.thin.mark();
        for row in tables::firsts(&self.db, mark)? {
            let hours = self.thin.windows.effective(row.doc, row.hours);
            let own = row.writer == self.device;
            let since = if own {
                row.stamp.max(row.to)
            } else {
                row.stamp
            };
            if window_ends(since, hours) > mark {
                continue;
            }
            let Some((id, _)) = chains::load_row(&self.db, row.chain)? else {
                continue;
            };
            if !self.may_grow(&id, &row) || (!own && window_ends(since, 2 * hours) <= mark) {
                return Ok(Some((id, Row { hours, ..row })));
            }
        }
        Ok(None)
    }

    /// Whether more may come to a segment.
    fn may_grow(&self, id: &ChainId, row: &Row) -> bool {
        if row.closed {
            return false;
        }
        match (id.writer == self.device, id.incarnation == self.incarnation) {
            (true, false) => false,
            (true, true) => {
                let own = self.docs.get(&id.doc);
                let open =
                    own.is_some_and(|own| own.content.is_some() && own.segment == row.segment);
                open || self.unsaved.iter().any(|built| built.doc == id.doc)
            }
            (false, _) => true,
        }
    }

    /// Drops a segment: its summary is appended, its tombstone stands in its place,
    /// and it is gone; all of it or nothing.
    fn drop_one(&mut self, id: &ChainId, row: &Row, now: Timestamp) -> Result<u64, ThinError> {
        let account = self.account().ok_or(rusqlite::Error::InvalidQuery)?;
        let entries = match chains::load_row(&self.db, row.chain)? {
            Some((_, chain)) => {
                let Self { db, ring, .. } = self;
                reader::read_segment(db, ring, account, id, &chain, row.segment)?
            }
            None => Vec::new(),
        };
        let span = Span::of_entries(&entries);
        let says = Says {
            first_no: span.map_or(0, |span| span.first_no),
            last_no: span.map_or(0, |span| span.last_no),
            from: span.map_or(row.stamp, |span| span.from),
            to: span.map_or(row.stamp, |span| span.to),
            hours: row.hours,
        };
        let mut stone = self.stone(id, row, says, now)?;
        if let (DocId::Box(box_id), Some(_), false) = (id.doc, span, row.summed) {
            let summary = self.summary(id, box_id, row, &says, &entries)?;
            let event = Event::Thinned(summary);
            let no = self.append(DocId::Days, event, now, Urgency::Normal)?;
            if let Some(grave) = &mut stone {
                grave.days_no = no;
            }
        }
        self.commit_also(false, |db| {
            fail::point("the summary stands")?;
            if let Some(grave) = &stone {
                tables::put_grave(db, row.chain, grave)?;
            }
            fail::point("the tombstone stands")?;
            tables::drop_segment(db, row)?;
            Ok(fail::point("the segment is gone")?)
        })?;
        self.cache.forget(id);
        if let Some((_, chain)) = chains::load_row(&self.db, row.chain)? {
            self.chains.insert(*id, chain);
        }
        Ok(entries.len() as u64)
    }

    /// What is left of a segment of a box.
    fn summary(
        &mut self,
        id: &ChainId,
        box_id: BoxId,
        row: &Row,
        says: &Says,
        entries: &[Entry],
    ) -> Result<Thinned, ThinError> {
        let before = tables::graves(&self.db, row.chain)?;
        let before = before.iter().rfind(|grave| grave.last_seq < row.first_seq);
        let open = match before.filter(|grave| grave.days_no > 0) {
            Some(grave) => self.summary_at(grave.days_no)?.map(|it| open_of(&it)),
            None => None,
        };
        let mut digest = Digest::new(open.unwrap_or_default());
        entries.iter().for_each(|entry| digest.push(entry));
        // Of a start of this device that is over nothing more comes.
        let over = id.writer == self.device && id.incarnation != self.incarnation;
        let newest = self.chains.get(id).is_none_or(|it| it.seq <= row.last_seq);
        if over && newest {
            digest.close(says.to);
        }
        let (days, open) = digest.finish();
        Ok(Thinned {
            box_id,
            writer: id.writer,
            incarnation: id.incarnation,
            segment: row.segment,
            last_seq: row.last_seq,
            first_no: says.first_no,
            last_no: says.last_no,
            from: says.from,
            to: says.to,
            hours: says.hours,
            days,
            open,
        })
    }

    /// A summary that this device wrote.
    fn summary_at(&mut self, no: u64) -> Result<Option<Thinned>, ThinError> {
        let Some(account) = self.account() else {
            return Ok(None);
        };
        let Self {
            db, ring, device, ..
        } = self;
        let entry = reader::entry_of(db, ring, account, *device, (DocId::Days, *device, no))?;
        Ok(entry.and_then(|entry| match entry.event {
            Event::Thinned(thinned) => Some(thinned),
            _ => None,
        }))
    }

    /// Gives pages that are free back to the file system.
    fn shrink(&mut self) -> Result<Slice, ThinError> {
        let free = |db: &Connection| {
            db.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0))
        };
        let (before, used) = (
            free(&self.db)?,
            self.db
                .pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))?,
        );
        // A quarter that is free is used again soon.
        if before * 4 <= used {
            return Ok(Slice::Rest);
        }
        self.db
            .execute_batch(&format!("PRAGMA incremental_vacuum({MAX_PAGES})"))?;
        match free(&self.db)? < before {
            true => Ok(Slice::Shrank),
            false => Ok(Slice::Rest),
        }
    }

    /// Entries of the days' document came: which segments have their summary, and
    /// which of them should still be there.
    pub(crate) fn note_thinned(
        &mut self,
        by: DeviceId,
        entries: &[Entry],
        now: Timestamp,
    ) -> Result<(), DbError> {
        for entry in entries {
            let Event::Thinned(it) = &entry.event else {
                continue;
            };
            let id = ChainId {
                doc: DocId::Box(it.box_id),
                writer: it.writer,
                incarnation: it.incarnation,
            };
            let Some(row) = self.chains.get(&id).and_then(|chain| chain.row) else {
                continue;
            };
            tables::note_summed(&self.db, row, it.segment)?;
            let held = tables::held(&self.db, row, 1, it.last_seq)?;
            for held in held.into_iter().filter(|held| held.0 == it.segment) {
                self.look_at(by, id, held, now);
            }
        }
        Ok(())
    }
}

/// Notes what thinning goes by of what a version without it stored, once.
pub(crate) fn note_old(db: &mut Connection) -> Result<(), OpenError> {
    if !has_mark(db, UNNOTED)? {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tables::note_segments(&tx)?;
    for (id, chain) in chains::load(&tx)? {
        let (DocId::Keys, Some(row)) = (id.doc, chain.row) else {
            continue;
        };
        for bytes in chains::present(&tx, row)? {
            let verified = Verified::from_stored(&bytes).ok();
            let body = verified.and_then(|verified| verified.plain().ok());
            let record = body.and_then(|body| KeyRecord::decode(body).ok());
            if let Some(epoch) = record.as_ref().and_then(|record| record.epoch.as_ref()) {
                let made = Timestamp(epoch.made);
                tables::note_epoch(&tx, &id.writer, epoch, 0, made)?;
            }
        }
    }
    drop_mark(&tx, UNNOTED)?;
    Ok(tx.commit()?)
}

#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod tests;
