//! The journal of the new database.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bailey_envelope::{DocId, KeyId};
use bailey_model::{AccountId, Entry, Event, Gap};
use rusqlite::Row;

use super::rebuild::{MAX_MISSING, Rebuild, random_hash};
use super::salvage::keyed;
use super::{RepairError, RowKey};
use crate::chains::{self, doc_column};
use crate::db::{COUNTED_ROWS, uint};
use crate::entropy::random;
use crate::journal::{self, JournalRow};
use crate::schema::pack;
use crate::store::stored_account;

impl Rebuild<'_> {
    /// The journal; in the place of a row that is damaged or missing stands that it
    /// is, so that numbers have no hole.
    pub(super) fn journal(&mut self) -> Result<(), RepairError> {
        let mut rows: BTreeMap<(DocId, u64), JournalRow> = BTreeMap::new();
        let order = ("doc, no", "doc DESC, no DESC");
        // A file of which the first page is damaged is not repaired at all.
        let version = self
            .old
            .pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))?;
        let columns = match version < COUNTED_ROWS {
            true => "doc, no, 0, segment, key_id, row",
            false => "doc, no, count, segment, key_id, row",
        };
        let mut odd = 0_u64;
        let extent = keyed(self.old, "journal", columns, order, &mut |row| {
            match journal_row(row) {
                Ok(row) => drop(rows.insert((row.doc, row.no), row)),
                Err(_) => odd += 1,
            }
            Ok(())
        })?;
        self.part("journal", extent);
        if odd > 0 {
            self.said.lose(format!("journal: {odd} rows that are none"));
        }
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
        let mut good: Vec<JournalRow> = Vec::new();
        let mut bad: Vec<&JournalRow> = Vec::new();
        let mut made_with: Option<RowKey> = None;
        for row in rows {
            let found = self.ring.find(self.new, account, device, row.key_id)?;
            let key = found.as_ref().map(|key| key.segment_key(doc, row.segment));
            match (key.and_then(|key| row.opens_as(&key)), found) {
                (Some(row), Some(epoch)) => {
                    made_with = Some(RowKey {
                        epoch,
                        segment: row.segment,
                    });
                    good.push(row);
                }
                _ => {
                    bad.push(row);
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
        let mut no = sealed.saturating_add(1);
        for row in good.iter().filter(|row| row.no > sealed) {
            if row.no.saturating_sub(no) > MAX_MISSING {
                self.said.lose(format!("the journal of {doc}: its numbers"));
                return Ok(());
            }
            self.missing(doc, no..row.no, made_with.as_ref())?;
            if row.no >= no {
                journal::put(self.new, std::iter::once(row))?;
                no = row.next_no();
            }
        }
        // Of a row that does not open nothing is sure: its number may be damaged too.
        let near = |row: &&&JournalRow| row.no.saturating_sub(no) <= MAX_MISSING;
        let last = bad.iter().filter(near).map(|row| row.next_no()).max();
        self.missing(doc, no..last.unwrap_or(no), made_with.as_ref())
    }

    /// Says of each of these that it was lost.
    fn missing(
        &mut self,
        doc: DocId,
        numbers: Range<u64>,
        key: Option<&RowKey>,
    ) -> Result<(), RepairError> {
        for no in numbers {
            self.said
                .lose(format!("entry {no} of {doc}, in the journal"));
            if let Some(key) = key {
                let row = self.gap(doc, no, key)?;
                journal::put(self.new, std::iter::once(&row))?;
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
        let nonce = random(self.entropy)?;
        let row = journal::row_of_one(doc, no, &segment, &packed, nonce);
        row.ok_or(RepairError::Make("a journal row"))
    }
}

fn journal_row(row: &Row<'_>) -> rusqlite::Result<JournalRow> {
    Ok(JournalRow {
        doc: doc_column(row, 1)?,
        no: uint(row.get(2)?),
        count: row.get::<_, u32>(3)?.min(journal::MOST_ENTRIES),
        segment: row.get(4)?,
        key_id: KeyId(row.get(5)?),
        sealed: row.get(6)?,
    })
}
