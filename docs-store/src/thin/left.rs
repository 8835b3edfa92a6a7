//! Reading what is left of thinned entries, and emptying the log of what is not.

use std::collections::BTreeMap;

use bailey_envelope::DocId;
use bailey_model::{BoxId, DeviceId, Event, Incarnation, Thinned, Timestamp};

use super::tables;
use crate::chains;
use crate::db::DbError;
use crate::durable::Checkpointer;
use crate::error::ReadError;
use crate::reader::{Pages, Reader};

/// What was thinned of a document by one writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// How many entries.
    pub entries: u64,
    /// Number of the last one.
    pub last_no: u64,
    /// The earliest time of one.
    pub from: Timestamp,
    /// The latest.
    pub to: Timestamp,
}

impl Reader {
    /// What is gone of a document by one writer, and what was before it; `None` if
    /// nothing is.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn gone(&mut self, doc: DocId, writer: DeviceId) -> Result<Option<Gone>, ReadError> {
        let tx = self.db.unchecked_transaction()?;
        let mut gone: Option<Gone> = None;
        for (id, chain) in chains::load_of(&tx, doc)? {
            let Some(row) = chain.row.filter(|_| id.writer == writer) else {
                continue;
            };
            for grave in tables::graves(&tx, row)? {
                let sum = gone.get_or_insert(Gone {
                    entries: 0,
                    last_no: 0,
                    from: grave.from,
                    to: grave.to,
                });
                sum.entries += grave.entries;
                sum.last_no = sum.last_no.max(grave.last_no);
                sum.from = sum.from.min(grave.from);
                sum.to = sum.to.max(grave.to);
            }
        }
        Ok(gone)
    }

    /// What is left of a box's thinned entries of one writer, oldest first, as far
    /// as it reaches to `since`. Of a segment that two devices summed up, the
    /// writer's own word counts.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn kept_days(
        &mut self,
        box_id: BoxId,
        writer: DeviceId,
        since: Timestamp,
    ) -> Result<Vec<Thinned>, ReadError> {
        let docs = self.docs()?.into_iter();
        let by: Vec<DeviceId> = docs
            .filter(|info| info.doc == DocId::Days)
            .flat_map(|info| info.writers)
            .collect();
        let mut kept: BTreeMap<(Timestamp, Incarnation, u32), (bool, Thinned)> = BTreeMap::new();
        for device in by {
            // A summary is written after what it is of.
            let mut pages = Pages::new(DocId::Days, device, since);
            while let Some(page) = self.next_page(&mut pages)? {
                for entry in page {
                    let Event::Thinned(it) = entry.event else {
                        continue;
                    };
                    if it.box_id != box_id || it.writer != writer || it.to < since {
                        continue;
                    }
                    let place = (it.from, it.incarnation, it.segment);
                    let own = device == writer;
                    if own || !kept.get(&place).is_some_and(|(own, _)| *own) {
                        kept.insert(place, (own, it));
                    }
                }
            }
        }
        Ok(kept.into_values().map(|(_, it)| it).collect())
    }
}

impl Checkpointer {
    /// Moves all of the log and empties its file, so that nothing of what was
    /// deleted stands in it; whether it could: nobody is waited for. What a disk
    /// itself keeps of what was overwritten is beyond this.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn truncate(&self) -> Result<bool, ReadError> {
        self.db.busy_timeout(std::time::Duration::ZERO)?;
        let busy = self
            .db
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
        self.db.busy_timeout(std::time::Duration::from_secs(5))?;
        match busy {
            Ok(busy) => Ok(busy == 0),
            Err(error) => {
                let error = DbError::from(error);
                self.doubt.note(&error);
                Err(error.into())
            }
        }
    }
}
