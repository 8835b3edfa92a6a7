//! What a store finds when it opens: where its documents are, what a crash left.

use std::collections::BTreeMap;

use bailey_envelope::{ChainId, DocId};
use bailey_model::Timestamp;
use rusqlite::TransactionBehavior;

use super::{Store, drop_mark, has_mark};
use crate::chains;
use crate::db::DbError;
use crate::error::OpenError;
use crate::journal::{self, JournalRow};
use crate::own::{self, OwnDoc, Unsealed};
use crate::reader;
use crate::spans;
use crate::thin::tables;

impl Store {
    pub(super) fn load_own_docs(&mut self) -> Result<(), OpenError> {
        for (doc, incarnation, next_no) in own::load(&self.db)? {
            let id = ChainId {
                doc,
                writer: self.device,
                incarnation,
            };
            let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
            own.next_no = next_no.max(1);
            own.before = self.chains.get(&id).map(|chain| (incarnation, chain.hash));
        }
        // What another life of this device wrote, if this one was restored.
        for (id, chain) in self
            .chains
            .iter()
            .filter(|(id, _)| id.writer == self.device)
        {
            let own = self.docs.entry(id.doc).or_insert_with(OwnDoc::new);
            own.next_no = own.next_no.max(chain.last_no.saturating_add(1));
        }
        Ok(())
    }

    /// Whether this start has given a number in a document.
    pub(crate) fn has_numbered(&self, doc: DocId) -> bool {
        let own = self.docs.get(&doc);
        own.is_some_and(|own| own.tip.is_some() || !own.batch.is_empty()) || self.pending.has(doc)
    }

    /// Counts the segments that a version without [`spans`] stored.
    pub(super) fn count_old_segments(&mut self) -> Result<(), OpenError> {
        let (true, Some(account)) = (has_mark(&self.db, "uncounted")?, self.account()) else {
            return Ok(());
        };
        let tx = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        for (id, chain) in self.chains.iter().filter(|(id, _)| !id.doc.is_plain()) {
            let Some(row) = chain.row else { continue };
            for segment in chains::segments(&tx, row)? {
                let read = reader::read_segment(&tx, &mut self.ring, account, id, chain, segment)?;
                if let Some(span) = spans::Span::of_entries(&read) {
                    spans::add(&tx, row, segment, &span)?;
                }
            }
        }
        drop_mark(&tx, "uncounted")?;
        Ok(tx.commit()?)
    }

    /// The hours of the windows that rows were written with: of their epochs, of which
    /// what stays here has none, or of the last segment of their documents.
    fn windows_of(&self, rows: &[JournalRow]) -> Result<BTreeMap<DocId, u32>, DbError> {
        let long = self.thin.windows.long();
        let epochs: Vec<_> = tables::own_epochs(&self.db, self.device, long)?;
        let mut windows = BTreeMap::new();
        for row in rows {
            let epoch = epochs.iter().find(|(it, _)| it.key_id == row.key_id);
            let hours = match epoch {
                Some((_, hours)) => Some(*hours),
                None => tables::last_hours(&self.db, self.device, row.doc)?,
            };
            if let Some(hours) = hours {
                let longest = windows.entry(row.doc).or_insert(hours);
                *longest = hours.max(*longest);
            }
        }
        Ok(windows)
    }

    /// Opens what a crash left in the journal, and seals it.
    pub(super) fn recover_journal(&mut self, now: Timestamp) -> Result<(), OpenError> {
        let rows = journal::load(&self.db, None)?;
        let Some(account) = self.account() else {
            self.unsynced = false;
            return Ok(());
        };
        let windows = self.windows_of(&rows)?;
        for row in rows {
            let damaged = || OpenError::Journal {
                doc: row.doc,
                no: row.no,
            };
            let key = self
                .ring
                .find(&self.db, account, self.device, row.key_id)?
                .ok_or_else(damaged)?;
            let key = key.segment_key(row.doc, row.segment);
            let entries = row.open(&key).ok_or_else(damaged)?;
            let own = self.docs.entry(row.doc).or_insert_with(OwnDoc::new);
            own.next_no = own.next_no.max(row.next_no());
            self.unsealed += entries.len();
            let last = entries.len().saturating_sub(1);
            for (at, (entry, packed)) in entries.into_iter().enumerate() {
                own.push(Unsealed {
                    no: entry.no,
                    ts: entry.ts,
                    packed,
                    ends_row: at == last,
                });
            }
        }
        let recovered: Vec<DocId> = windows.keys().copied().collect();
        self.thin.windows.as_written(windows);
        // What cannot be built stays in the journal, and is tried again.
        let _said_by_the_next_sealing = self.build_all(now);
        self.thin.windows.as_written(BTreeMap::new());
        // What comes from now on may have another window.
        for doc in recovered {
            self.docs
                .entry(doc)
                .or_insert_with(OwnDoc::new)
                .close_segment();
        }
        // Built and kept: the next sealing stores it once there is room.
        match self.write_built(true).and_then(|()| self.sync()) {
            Ok(()) | Err(DbError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
