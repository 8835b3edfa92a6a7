//! Forgetting the keys of epochs that nothing is left of.
//!
//! An epoch of one's own is forgotten when it is closed, its window is over since it
//! began, and neither a segment nor a row of the journal is sealed under it. One of
//! another device's, when a later epoch of the same writer and window has been here
//! for the window, and no segment is under it. First its wraps go, then each record
//! of the keys' document that wraps nothing else. Both overwrite what they delete;
//! the write-ahead log is emptied by [`crate::Checkpointer::truncate`].

use std::collections::BTreeSet;

use bailey_envelope::{ChainId, DocId, KeyId, Verified};
use bailey_model::{DeviceId, Timestamp};
use rusqlite::Connection;

use super::fail;
use super::tables::{self, Line, Row};
use super::tombs::{Says, window_ends};
use crate::chains;
use crate::error::ThinError;
use crate::keys::KeyRecord;
use crate::store::Store;

/// Most keys forgotten in one slice.
const MAX_KEYS: usize = 64;

/// A key, by its writer and name.
type Key = (DeviceId, KeyId);

/// A record of the keys' document, and the keys that it wraps or begins.
struct Wrapping {
    chain: i64,
    id: ChainId,
    seq: u64,
    keys: Vec<Key>,
}

impl Store {
    /// Forgets what can be forgotten, a little of it; `None` if nothing can.
    pub(super) fn forget_some(&mut self, now: Timestamp) -> Result<Option<usize>, ThinError> {
        if !self.unsaved.is_empty() {
            return Ok(None);
        }
        let due = self.forgettable()?;
        if !due.is_empty() {
            let mut noted = 0;
            self.commit_also(true, |db| {
                for (writer, key_id) in &due {
                    noted += usize::from(tables::forget(db, writer, key_id)?);
                    fail::point("a key is forgotten")?;
                }
                Ok(())
            })?;
            due.iter().for_each(|(_, key_id)| self.ring.forget(key_id));
            // Of those whose line is damaged there is no end: not before the next look.
            if noted > 0 {
                return Ok(Some(noted));
            }
        }
        self.drop_records(now)
    }

    fn forgettable(&self) -> Result<Vec<Key>, ThinError> {
        let mark = self.thin.mark();
        let lines = tables::unsealed_lines(&self.db)?;
        let mut due = Vec::new();
        for line in &lines {
            let own = line.writer == self.device;
            let current = self.epochs.values().any(|current| current.is(line.key_id));
            let hours = match line.hours {
                0 => self
                    .thin
                    .windows
                    .effective(DocId::Box(bailey_model::BoxId([0; 16])), 0),
                hours => hours,
            };
            let since = if own {
                Some(line.stamp).filter(|_| !current)
            } else {
                tables::next_in_line(&self.db, line)?
            };
            let over = since.is_some_and(|since| window_ends(since, hours) <= mark);
            if over && due.len() < MAX_KEYS {
                due.push((line.writer, line.key_id));
            }
        }
        Ok(due)
    }

    /// Drops records whose every key is forgotten: a run of them in one chain.
    fn drop_records(&mut self, now: Timestamp) -> Result<Option<usize>, ThinError> {
        let forgotten: BTreeSet<Key> = tables::forgotten(&self.db)?
            .iter()
            .map(|line| (line.writer, line.key_id))
            .collect();
        if forgotten.is_empty() {
            return Ok(None);
        }
        let records = records(&self.db)?;
        let run = first_run(&records, &forgotten);
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            let kept: BTreeSet<Key> = records.into_iter().flat_map(|record| record.keys).collect();
            let done: Vec<Key> = forgotten.difference(&kept).copied().collect();
            if !done.is_empty() {
                self.commit_also(true, |db| {
                    let mut gone = done.iter();
                    Ok(gone.try_for_each(|(writer, key)| tables::drop_line(db, writer, key))?)
                })?;
            }
            return Ok(None);
        };
        let lines = tables::forgotten(&self.db)?;
        let of_run: Vec<&Line> = lines
            .iter()
            .filter(|line| {
                run.iter()
                    .any(|record| record.keys.contains(&(line.writer, line.key_id)))
            })
            .collect();
        let stamps = || of_run.iter().map(|line| line.stamp);
        let row = Row {
            chain: first.chain,
            doc: DocId::Keys,
            writer: first.id.writer,
            segment: 0,
            hours: of_run.iter().map(|line| line.hours).max().unwrap_or(0),
            first_seq: first.seq,
            last_seq: last.seq,
            stamp: now,
            to: now,
            closed: true,
            summed: true,
        };
        let says = Says {
            first_no: 0,
            last_no: 0,
            from: stamps().min().unwrap_or(now),
            to: stamps().max().unwrap_or(now),
            hours: row.hours,
        };
        let stone = self.stone(&first.id, &row, says, now)?;
        self.commit_also(true, |db| {
            if let Some(grave) = &stone {
                tables::put_grave(db, row.chain, grave)?;
            }
            fail::point("the records' tombstone stands")?;
            tables::drop_segment(db, &row)?;
            Ok(fail::point("the records are gone")?)
        })?;
        Ok(Some(0))
    }
}

/// The first run of records of one chain whose every key is forgotten.
fn first_run<'a>(records: &'a [Wrapping], forgotten: &BTreeSet<Key>) -> Vec<&'a Wrapping> {
    let goes = |record: &&Wrapping| {
        let keys = &record.keys;
        !keys.is_empty() && keys.iter().all(|key| forgotten.contains(key))
    };
    let mut run: Vec<&Wrapping> = Vec::new();
    for record in records.iter().filter(goes) {
        let follows = run
            .last()
            .is_none_or(|last| last.chain == record.chain && last.seq + 1 == record.seq);
        match follows {
            true => run.push(record),
            false => break,
        }
    }
    run
}

/// Every record of the keys' document that is here, chain by chain in order.
fn records(db: &Connection) -> Result<Vec<Wrapping>, ThinError> {
    let mut found = Vec::new();
    for (id, chain) in chains::load_of(db, DocId::Keys)? {
        let Some(row) = chain.row else { continue };
        for bytes in chains::present(db, row)? {
            let Ok(verified) = Verified::from_stored(&bytes) else {
                continue;
            };
            let body = verified.plain().ok();
            let Some(record) = body.and_then(|body| KeyRecord::decode(body).ok()) else {
                continue;
            };
            let begun = record.epoch.map(|epoch| (id.writer, epoch.key_id));
            let wrapped = record.wraps.iter().map(|wrap| (wrap.writer, wrap.key_id));
            found.push(Wrapping {
                chain: row,
                id,
                seq: verified.header.fields.seq,
                keys: begun.into_iter().chain(wrapped).collect(),
            });
        }
    }
    Ok(found)
}
