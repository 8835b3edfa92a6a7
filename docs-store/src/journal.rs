//! The journal: rows sealed with the segment key, which stand until their
//! batch is an envelope. Never sent.

use bailey_envelope::{DocId, KeyId};
use rusqlite::{Connection, params};

use crate::chains::doc_column;
use crate::db::{int, uint};

/// A sealed row.
#[derive(Debug, Clone)]
pub(crate) struct JournalRow {
    pub(crate) doc: DocId,
    pub(crate) no: u64,
    pub(crate) segment: u32,
    pub(crate) key_id: KeyId,
    pub(crate) sealed: Vec<u8>,
}

/// Writes rows.
pub(crate) fn put<'a>(
    db: &Connection,
    rows: impl Iterator<Item = &'a JournalRow>,
) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT INTO journal(doc, no, segment, key_id, row) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for row in rows {
        statement.execute(params![
            row.doc.to_bytes(),
            int(row.no),
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
        "SELECT doc, no, segment, key_id, row FROM journal WHERE ?1 IS NULL OR doc = ?1 \
         ORDER BY doc, no",
    )?;
    let rows = statement.query_map([doc.map(DocId::to_bytes)], |row| {
        Ok(JournalRow {
            doc: doc_column(row, 0)?,
            no: uint(row.get(1)?),
            segment: row.get(2)?,
            key_id: KeyId(row.get(3)?),
            sealed: row.get(4)?,
        })
    })?;
    rows.collect()
}

/// Deletes rows whose batch is an envelope now.
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
