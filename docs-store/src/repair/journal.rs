//! The journal of the new database.

use std::collections::{BTreeMap, BTreeSet};

use bailey_envelope::{DocId, KeyId, open_row, seal_row};
use bailey_model::{AccountId, Entry, Event, Gap, Timestamp};
use rusqlite::Row;

use super::rebuild::{MAX_MISSING, Rebuild, random_hash};
use super::salvage::keyed;
use super::{RepairError, RowKey};
use crate::chains::{self, doc_column};
use crate::db::uint;
use crate::entropy::random;
use crate::journal::{self, JournalRow};
use crate::schema::{pack, unpack};
use crate::store::stored_account;

impl Rebuild<'_> {
    /// The journal; in the place of a row that is damaged or missing stands that it
    /// is, so that numbers have no hole.
    pub(super) fn journal(&mut self) -> Result<(), RepairError> {
        let mut rows: BTreeMap<(DocId, u64), JournalRow> = BTreeMap::new();
        let order = ("doc, no", "doc DESC, no DESC");
        let columns = "doc, no, segment, key_id, row";
        let extent = keyed(self.old, "journal", columns, order, &mut |row| {
            if let Ok(row) = journal_row(row) {
                rows.insert((row.doc, row.no), row);
            }
            Ok(())
        })?;
        self.part("journal", extent);
        let docs: BTreeSet<DocId> = rows.keys().map(|(doc, _)| *doc).collect();
        let Some(account) = stored_account(self.new)? else {
            return Ok(());
        };
        for doc in docs {
            let of_doc = rows.range((doc, 0)..=(doc, u64::MAX));
            let of_doc: Vec<JournalRow> = of_doc.map(|(_, row)| row.clone()).collect();
            self.journal_of(account, doc, &of_doc)?;
        }
        Ok(())
    }

    fn journal_of(
        &mut self,
        account: AccountId,
        doc: DocId,
        rows: &[JournalRow],
    ) -> Result<(), RepairError> {
        let device = self.keys.id();
        let mut good: BTreeMap<u64, (&JournalRow, Timestamp)> = BTreeMap::new();
        let mut made_with: Option<RowKey> = None;
        for row in rows {
            let found = self.ring.find(self.new, account, device, row.key_id)?;
            let key = found.as_ref().map(|key| key.segment_key(doc, row.segment));
            let entry = key.and_then(|key| open_row(&key, row.no, &row.sealed).ok());
            let entry = entry.and_then(|packed| unpack(&packed).ok());
            match (entry, found) {
                (Some(entry), Some(epoch)) if entry.no == row.no => {
                    good.insert(row.no, (row, entry.ts));
                    made_with = Some(RowKey {
                        epoch,
                        key_id: row.key_id,
                        segment: row.segment,
                    });
                }
                _ => {
                    let place = format!("entry {} of {doc}, in the journal", row.no);
                    chains::quarantine(
                        self.new,
                        &random_hash(&row.sealed),
                        &row.sealed,
                        &place,
                        self.now,
                    )?;
                }
            }
        }
        let sealed = chains::load_of(self.new, doc)?;
        let own = sealed.iter().filter(|(id, _)| id.writer == device);
        let sealed = own.map(|(_, chain)| chain.last_no).max().unwrap_or(0);
        let first = sealed.saturating_add(1);
        let Some(last) = rows.iter().map(|row| row.no).max() else {
            return Ok(());
        };
        if last.saturating_sub(sealed) > MAX_MISSING {
            self.said.lose(format!("the journal of {doc}: its numbers"));
            return Ok(());
        }
        for no in first..=last {
            match (good.get(&no), &made_with) {
                (Some((row, _)), _) => journal::put(self.new, std::iter::once(*row))?,
                (None, Some(key)) => {
                    self.said
                        .lose(format!("entry {no} of {doc}, in the journal"));
                    let row = self.gap(doc, no, key)?;
                    journal::put(self.new, std::iter::once(&row))?;
                }
                (None, None) => self
                    .said
                    .lose(format!("entry {no} of {doc}, in the journal")),
            }
        }
        Ok(())
    }

    /// A row that says that its entry was lost.
    fn gap(&mut self, doc: DocId, no: u64, key: &RowKey) -> Result<JournalRow, RepairError> {
        let entry = Entry {
            no,
            ts: self.now,
            event: Event::Gap(Gap {
                reason: "the entry that stood here was damaged on the disk".to_owned(),
            }),
        };
        let packed = pack(&entry).map_err(|_| RepairError::Make("the entry of a gap"))?;
        let segment = key.epoch.segment_key(doc, key.segment);
        let sealed = seal_row(&segment, no, &packed, random(self.entropy)?);
        Ok(JournalRow {
            doc,
            no,
            segment: key.segment,
            key_id: key.key_id,
            sealed: sealed.ok_or(RepairError::Make("a journal row"))?,
        })
    }
}

fn journal_row(row: &Row<'_>) -> rusqlite::Result<JournalRow> {
    Ok(JournalRow {
        doc: doc_column(row, 1)?,
        no: uint(row.get(2)?),
        segment: row.get(3)?,
        key_id: KeyId(row.get(4)?),
        sealed: row.get(5)?,
    })
}
