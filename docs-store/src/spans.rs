//! What each segment of a chain spans: numbers and times of its entries, so that
//! a reader opens only the segments it wants.
//!
//! A row is written in the transaction that stores or opens the envelope which it
//! counts, and never ahead of it. Times are the writer's own and may step back,
//! so both ends are kept.

use bailey_envelope::DocId;
use bailey_model::{DeviceId, Entry, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::db::{int, uint};

/// The entries of one segment, or of one envelope of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Number of the first entry.
    pub(crate) first_no: u64,
    /// Number of the last one.
    pub(crate) last_no: u64,
    /// The earliest time of one.
    pub(crate) from: Timestamp,
    /// The latest.
    pub(crate) to: Timestamp,
}

impl Span {
    /// That of some entries in order; `None` of none.
    pub(crate) fn of(entries: impl IntoIterator<Item = (u64, Timestamp)>) -> Option<Self> {
        let mut entries = entries.into_iter();
        let (no, ts) = entries.next()?;
        let first = Self {
            first_no: no,
            last_no: no,
            from: ts,
            to: ts,
        };
        Some(entries.fold(first, |span, (no, ts)| Self {
            first_no: span.first_no.min(no),
            last_no: span.last_no.max(no),
            from: span.from.min(ts),
            to: span.to.max(ts),
        }))
    }

    /// That of opened entries.
    pub(crate) fn of_entries(entries: &[Entry]) -> Option<Self> {
        Self::of(entries.iter().map(|entry| (entry.no, entry.ts)))
    }
}

/// Where a segment stands among those of a document and writer: by its first
/// number, then by its chain, then by its own.
pub(crate) type Place = (u64, i64, u32);

/// Counts an envelope's entries to its segment.
pub(crate) fn add(db: &Connection, chain: i64, segment: u32, span: &Span) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO spans(chain, segment, first_no, last_no, from_ts, to_ts) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(chain, segment) DO UPDATE SET \
         first_no = min(first_no, ?3), last_no = max(last_no, ?4), \
         from_ts = min(from_ts, ?5), to_ts = max(to_ts, ?6)",
    )?
    .execute(params![
        chain,
        segment,
        int(span.first_no),
        int(span.last_no),
        int(span.from.0),
        int(span.to.0),
    ])?;
    Ok(())
}

/// The next segment after a place that has an entry as young as `since` or with
/// a number from `from_no` on.
pub(crate) fn next(
    db: &Connection,
    doc: DocId,
    writer: DeviceId,
    after: Option<Place>,
    since: Timestamp,
    from_no: u64,
) -> rusqlite::Result<Option<(Place, u64)>> {
    let (first, chain, segment) = after.unwrap_or((0, -1, 0));
    db.prepare_cached(
        "SELECT s.first_no, s.chain, s.segment, s.last_no FROM chains c JOIN spans s \
         ON s.chain = c.id WHERE c.doc = ?1 AND c.writer = ?2 \
         AND (s.first_no, s.chain, s.segment) > (?3, ?4, ?5) AND s.to_ts >= ?6 AND s.last_no >= ?7 \
         ORDER BY s.first_no, s.chain, s.segment LIMIT 1",
    )?
    .query_row(
        params![
            doc.to_bytes(),
            writer.0,
            int(first),
            chain,
            segment,
            int(since.0),
            int(from_no),
        ],
        placed,
    )
    .optional()
}

/// What is noted of one segment.
pub(crate) fn of(db: &Connection, chain: i64, segment: u32) -> rusqlite::Result<Option<Span>> {
    db.prepare_cached(
        "SELECT first_no, last_no, from_ts, to_ts FROM spans WHERE chain = ?1 AND segment = ?2",
    )?
    .query_row(params![chain, segment], |row| {
        Ok(Span {
            first_no: uint(row.get(0)?),
            last_no: uint(row.get(1)?),
            from: Timestamp(uint(row.get(2)?)),
            to: Timestamp(uint(row.get(3)?)),
        })
    })
    .optional()
}

/// The last number of one segment.
pub(crate) fn last_no(db: &Connection, chain: i64, segment: u32) -> rusqlite::Result<u64> {
    let found = db
        .prepare_cached("SELECT last_no FROM spans WHERE chain = ?1 AND segment = ?2")?
        .query_row(params![chain, segment], |row| row.get(0).map(uint))
        .optional()?;
    Ok(found.unwrap_or(0))
}

/// The last number of a document and writer that is in a segment.
pub(crate) fn max_no(db: &Connection, doc: DocId, writer: DeviceId) -> rusqlite::Result<u64> {
    let found: Option<i64> = db
        .prepare_cached(
            "SELECT max(s.last_no) FROM chains c JOIN spans s ON s.chain = c.id \
             WHERE c.doc = ?1 AND c.writer = ?2",
        )?
        .query_row(params![doc.to_bytes(), writer.0], |row| row.get(0))?;
    Ok(found.map_or(0, uint))
}

fn placed(row: &Row<'_>) -> rusqlite::Result<(Place, u64)> {
    let place = (uint(row.get(0)?), row.get(1)?, row.get(2)?);
    Ok((place, uint(row.get(3)?)))
}
