//! The journal: what a commit wrote, sealed with the segment key, until it is an
//! envelope. Never sent.
//!
//! A row holds entries of one document that follow each other, of one commit, one key
//! and one day:
//!
//! ```text
//! row = nonce: 24  XChaCha20-Poly1305(segment key, nonce, count × entry)
//! entry = length: u32 big endian  packed entry
//! ```
//!
//! The document, the first number and the count are associated data. Rows go as a whole,
//! so an envelope takes whole rows. In tables before version 4 a row was one packed
//! entry without its length, and its count is 0.

use std::collections::BTreeMap;

use bailey_envelope::{DocId, KeyId, SegmentKey, open_row, open_row_of_one, seal_row};
use bailey_model::{Entry, Timestamp};
use rusqlite::{Connection, params};

use crate::chains::doc_column;
use crate::db::{int, uint};
use crate::own::{Unsealed, day_of};
use crate::schema::unpack;
use crate::segment::BATCH_BYTES;

/// Most entries of one row.
const ROW_ENTRIES: usize = 128;
/// The same, as a row says it.
pub(crate) const MOST_ENTRIES: u32 = 128;
/// What stands for the count of a row that is one entry without its length.
pub(crate) const OF_ONE: u32 = 0;

/// A sealed row.
#[derive(Debug, Clone)]
pub(crate) struct JournalRow {
    pub(crate) doc: DocId,
    /// Number of its first entry.
    pub(crate) no: u64,
    /// How many there are, or [`OF_ONE`].
    pub(crate) count: u32,
    pub(crate) segment: u32,
    pub(crate) key_id: KeyId,
    pub(crate) sealed: Vec<u8>,
}

impl JournalRow {
    /// The number after its last entry, by what it says of itself.
    pub(crate) fn next_no(&self) -> u64 {
        self.no.saturating_add(u64::from(self.count.max(1)))
    }

    /// The row with the count that it was sealed with: what it says may be damaged, and
    /// the seal knows.
    pub(crate) fn opens_as(&self, key: &SegmentKey) -> Option<Self> {
        let said = std::iter::once(self.count);
        said.chain(OF_ONE..=MOST_ENTRIES).find_map(|count| {
            let row = Self {
                count,
                ..self.clone()
            };
            row.open(key).is_some().then_some(row)
        })
    }

    /// Its entries with their packed form, if all of it is what it says.
    pub(crate) fn open(&self, key: &SegmentKey) -> Option<Vec<(Entry, Vec<u8>)>> {
        let packed = match self.count {
            OF_ONE => vec![open_row_of_one(key, self.no, &self.sealed).ok()?.to_vec()],
            count => split(&open_row(key, self.no, count, &self.sealed).ok()?, count)?,
        };
        let entries = (self.no..).zip(packed).map(|(no, packed)| {
            let entry = unpack(&packed).ok()?;
            (entry.no == no).then_some((entry, packed))
        });
        entries.collect()
    }
}

/// The packed entries of a row's plaintext: as many as it says, no byte left over.
fn split(mut plain: &[u8], count: u32) -> Option<Vec<Vec<u8>>> {
    let mut entries = Vec::new();
    while let Some((len, rest)) = plain.split_first_chunk() {
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        let (entry, rest) = rest.split_at_checked(len)?;
        entries.push(entry.to_vec());
        plain = rest;
    }
    (plain.is_empty() && u32::try_from(entries.len()) == Ok(count)).then_some(entries)
}

/// Whatever the plaintext of a row is, it is split into what it says or refused.
///
/// # Panics
/// If what was split is not what was there.
pub(crate) fn fuzz_plain(plain: &[u8]) {
    for count in [1, 2, MOST_ENTRIES] {
        if let Some(entries) = split(plain, count) {
            let len: usize = entries.iter().map(|entry| entry.len() + 4).sum();
            assert_eq!(
                (len, u32::try_from(entries.len())),
                (plain.len(), Ok(count))
            );
        }
    }
}

/// A row that is not written yet. It has one entry at least.
#[derive(Debug)]
struct Draft {
    doc: DocId,
    key: SegmentKey,
    nonce: [u8; 24],
    bytes: usize,
    entries: Vec<Unsealed>,
}

impl Draft {
    /// Whether an entry of this time and key goes into it.
    fn takes(&self, key: &SegmentKey, ts: Timestamp) -> bool {
        let day = self.entries.first().map(|first| day_of(first.ts));
        self.entries.len() < ROW_ENTRIES
            && self.bytes < BATCH_BYTES
            && day == Some(day_of(ts))
            && self.key.segment() == key.segment()
            && self.key.epoch_key() == key.epoch_key()
    }

    /// `None` only beyond what the cipher takes.
    fn seal(&self) -> Option<JournalRow> {
        let mut plain = Vec::with_capacity(self.bytes + 4 * self.entries.len());
        for entry in &self.entries {
            let len = u32::try_from(entry.packed.len()).ok()?;
            plain.extend_from_slice(&len.to_be_bytes());
            plain.extend_from_slice(&entry.packed);
        }
        let no = self.entries.first()?.no;
        let count = u32::try_from(self.entries.len()).ok()?;
        sealed_row(self.doc, no, count, &self.key, &plain, self.nonce)
    }
}

/// A row of one packed entry; `None` only beyond what the cipher takes.
pub(crate) fn row_of_one(
    doc: DocId,
    no: u64,
    key: &SegmentKey,
    packed: &[u8],
    nonce: [u8; 24],
) -> Option<JournalRow> {
    let plain = [&u32::try_from(packed.len()).ok()?.to_be_bytes(), packed].concat();
    sealed_row(doc, no, 1, key, &plain, nonce)
}

fn sealed_row(
    doc: DocId,
    no: u64,
    count: u32,
    key: &SegmentKey,
    plain: &[u8],
    nonce: [u8; 24],
) -> Option<JournalRow> {
    Some(JournalRow {
        doc,
        no,
        count,
        segment: key.segment(),
        key_id: key.epoch_key(),
        sealed: seal_row(key, no, count, plain, nonce)?,
    })
}

/// What is appended and not committed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    drafts: Vec<Draft>,
    /// The newest of each document.
    newest: BTreeMap<DocId, usize>,
    entries: usize,
}

impl Pending {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is an entry of this document.
    pub(crate) fn has(&self, doc: DocId) -> bool {
        self.newest.contains_key(&doc)
    }

    /// Adds an entry, the next of its document. A new row takes a nonce.
    ///
    /// # Errors
    /// What `nonce` fails with; then nothing is added.
    pub(crate) fn push<E>(
        &mut self,
        doc: DocId,
        key: &SegmentKey,
        entry: Unsealed,
        nonce: impl FnOnce() -> Result<[u8; 24], E>,
    ) -> Result<(), E> {
        let newest = self
            .newest
            .get(&doc)
            .and_then(|at| self.drafts.get_mut(*at));
        self.entries += 1;
        match newest.filter(|draft| draft.takes(key, entry.ts)) {
            Some(draft) => {
                draft.bytes += entry.packed.len();
                draft.entries.push(entry);
            }
            None => {
                let nonce = nonce().inspect_err(|_| self.entries -= 1)?;
                self.newest.insert(doc, self.drafts.len());
                self.drafts.push(Draft {
                    doc,
                    key: key.clone(),
                    nonce,
                    bytes: entry.packed.len(),
                    entries: vec![entry],
                });
            }
        }
        Ok(())
    }

    /// The rows to write; `None` if one is beyond what the cipher takes.
    pub(crate) fn rows(&self) -> Option<Vec<JournalRow>> {
        self.drafts.iter().map(Draft::seal).collect()
    }

    /// Documents and the first number of each.
    pub(crate) fn firsts(&self) -> BTreeMap<DocId, u64> {
        let mut firsts = BTreeMap::new();
        for draft in &self.drafts {
            if let Some(first) = draft.entries.first() {
                firsts.entry(draft.doc).or_insert(first.no);
            }
        }
        firsts
    }

    /// Its entries in order, once they are written: the last of each row says so.
    pub(crate) fn written(self) -> impl Iterator<Item = (DocId, Unsealed)> {
        self.drafts.into_iter().flat_map(|mut draft| {
            if let Some(last) = draft.entries.last_mut() {
                last.ends_row = true;
            }
            let doc = draft.doc;
            draft.entries.into_iter().map(move |entry| (doc, entry))
        })
    }
}

/// Writes rows.
pub(crate) fn put<'a>(
    db: &Connection,
    rows: impl IntoIterator<Item = &'a JournalRow>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT INTO journal(doc, no, count, segment, key_id, row) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for row in rows {
        statement.execute(params![
            row.doc.to_bytes(),
            int(row.no),
            row.count,
            row.segment,
            row.key_id.0,
            row.sealed,
        ])?;
    }
    Ok(())
}

/// Every row of a document, or of all, in order.
pub(crate) fn load(db: &Connection, doc: Option<DocId>) -> rusqlite::Result<Vec<JournalRow>> {
    let mut statement = db.prepare_cached(
        "SELECT doc, no, count, segment, key_id, row FROM journal WHERE ?1 IS NULL OR doc = ?1 \
         ORDER BY doc, no",
    )?;
    let rows = statement.query_map([doc.map(DocId::to_bytes)], |row| {
        Ok(JournalRow {
            doc: doc_column(row, 0)?,
            no: uint(row.get(1)?),
            count: row.get(2)?,
            segment: row.get(3)?,
            key_id: KeyId(row.get(4)?),
            sealed: row.get(5)?,
        })
    })?;
    rows.collect()
}

/// Deletes the rows of these entries, which are an envelope now.
pub(crate) fn delete(db: &Connection, doc: DocId, first: u64, last: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM journal WHERE doc = ?1 AND no BETWEEN ?2 AND ?3")?
        .execute(params![doc.to_bytes(), int(first), int(last)])?;
    Ok(())
}

/// Documents that have rows.
pub(crate) fn docs(db: &Connection) -> rusqlite::Result<Vec<DocId>> {
    let mut statement = db.prepare("SELECT DISTINCT doc FROM journal ORDER BY doc")?;
    statement.query_map([], |row| doc_column(row, 0))?.collect()
}
