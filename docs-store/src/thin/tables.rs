//! What thinning goes by: each segment with its window and when it came, each
//! writer's epochs, and what stands in the place of what is gone.

use bailey_envelope::{ChainId, DocId, Hash, KeyId};
use bailey_model::{DeviceId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::chains::{COLUMNS, Chain, chain_at, doc_column};
use crate::db::{int, uint};
use crate::keys::Epoch;

pub(crate) const TABLES: &str = "
CREATE TABLE segments(
  chain INTEGER NOT NULL, segment INTEGER NOT NULL, key_id BLOB NOT NULL, hours INTEGER NOT NULL,
  first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, stamp INTEGER NOT NULL,
  closed INTEGER NOT NULL, summed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(chain, segment)) WITHOUT ROWID;
CREATE INDEX segments_by_key ON segments(key_id);
CREATE TABLE tombstones(
  chain INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
  last_hash BLOB NOT NULL, entries INTEGER NOT NULL, last_no INTEGER NOT NULL,
  from_ts INTEGER NOT NULL, to_ts INTEGER NOT NULL, days_no INTEGER NOT NULL,
  stamp INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY(chain, first_seq)) WITHOUT ROWID;
CREATE TABLE lines(
  writer BLOB NOT NULL, key_id BLOB NOT NULL, number INTEGER NOT NULL, hours INTEGER NOT NULL,
  stamp INTEGER NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(writer, key_id)) WITHOUT ROWID;
";

/// Rows of what is there already are made when the store opens.
pub(crate) const UNNOTED: &str = "INSERT INTO meta(key, value) VALUES ('unnoted', x'01');";

/// Where the key's name stands in an envelope's header, from 1, and its length.
const KEY_ID_AT: (i64, i64) = (171, 32);

/// What is noted with an envelope of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) segment: u32,
    pub(crate) key_id: KeyId,
    /// Hours of its window; 0 where it is not known.
    pub(crate) hours: u32,
    pub(crate) seq: u64,
    /// The later of the mark and the clock when it was stored.
    pub(crate) stamp: Timestamp,
    /// Whether nothing follows in its segment.
    pub(crate) closed: bool,
}

/// Notes an envelope.
pub(crate) fn note(db: &Connection, chain: i64, noted: &Noted) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO segments(chain, segment, key_id, hours, first_seq, last_seq, stamp, closed) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7) ON CONFLICT(chain, segment) DO UPDATE SET \
         hours = max(hours, ?4), last_seq = ?5, stamp = max(stamp, ?6), closed = ?7",
    )?
    .execute(params![
        chain,
        noted.segment,
        noted.key_id.0,
        noted.hours,
        int(noted.seq),
        int(noted.stamp.0),
        noted.closed,
    ])?;
    Ok(())
}

/// When the newest envelope of a segment came.
pub(crate) fn segment_stamp(
    db: &Connection,
    chain: i64,
    segment: u32,
) -> rusqlite::Result<Option<Timestamp>> {
    db.prepare_cached("SELECT stamp FROM segments WHERE chain = ?1 AND segment = ?2")?
        .query_row(params![chain, segment], |row| row.get(0))
        .optional()
        .map(|found| found.map(|ms| Timestamp(uint(ms))))
}

/// Notes the window of a segment that could be opened only now.
pub(crate) fn note_hours(
    db: &Connection,
    chain: i64,
    segment: u32,
    hours: u32,
) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE segments SET hours = ?3 WHERE chain = ?1 AND segment = ?2")?
        .execute(params![chain, segment, hours])?;
    Ok(())
}

/// Notes that what is left of a segment is told in the days' document.
pub(crate) fn note_summed(db: &Connection, chain: i64, segment: u32) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE segments SET summed = 1 WHERE chain = ?1 AND segment = ?2")?
        .execute(params![chain, segment])?;
    Ok(())
}

/// Notes every segment of the envelopes that are here, as far as their headers say.
pub(crate) fn note_segments(db: &Connection) -> rusqlite::Result<()> {
    db.execute(
        "INSERT OR IGNORE INTO segments(chain, segment, key_id, hours, first_seq, last_seq, stamp, \
         closed) SELECT chain, segment, CAST(substr(bytes, ?1, ?2) AS BLOB), 0, min(seq), max(seq), \
         max(received), 0 FROM envelopes WHERE segment > 0 GROUP BY chain, segment",
        params![KEY_ID_AT.0, KEY_ID_AT.1],
    )?;
    Ok(())
}

/// A segment's columns.
pub(crate) const SEGMENT: &str =
    "chain, segment, key_id, hours, first_seq, last_seq, stamp, closed, summed";

/// Puts a segment's row of another database in, from columns that begin at one.
pub(crate) fn copy_segment(
    db: &Connection,
    row: &rusqlite::Row<'_>,
    at: usize,
) -> rusqlite::Result<()> {
    let values = (at..at + 9)
        .map(|column| row.get::<_, rusqlite::types::Value>(column))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let sql = format!(
        "INSERT OR IGNORE INTO segments({SEGMENT}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
    );
    db.prepare_cached(&sql)?
        .execute(rusqlite::params_from_iter(values))
        .map(drop)
}

/// The newest time at which an envelope was stored.
pub(crate) fn newest_received(db: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let found: Option<i64> =
        db.query_row("SELECT max(received) FROM envelopes", [], |row| row.get(0))?;
    Ok(found.map(|ms| Timestamp(uint(ms))))
}

/// A segment, and what is needed to judge whether its window is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) chain: i64,
    pub(crate) doc: DocId,
    pub(crate) writer: DeviceId,
    pub(crate) segment: u32,
    pub(crate) hours: u32,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) stamp: Timestamp,
    /// The latest time of its entries, by the writer's clock.
    pub(crate) to: Timestamp,
    /// Whether it is known that nothing follows in it.
    pub(crate) closed: bool,
    /// Whether its summary is written.
    pub(crate) summed: bool,
}

/// The first segment of each chain that came before a time, oldest first.
pub(crate) fn firsts(db: &Connection, before: Timestamp) -> rusqlite::Result<Vec<Row>> {
    let mut statement = db.prepare_cached(
        "SELECT s.chain, c.doc, c.writer, s.segment, s.hours, s.first_seq, s.last_seq, s.stamp, \
         coalesce(p.to_ts, 0), s.closed OR c.segment > s.segment, s.summed \
         FROM segments s JOIN chains c ON c.id = s.chain \
         LEFT JOIN spans p ON p.chain = s.chain AND p.segment = s.segment \
         WHERE s.stamp <= ?1 AND NOT EXISTS \
         (SELECT 1 FROM segments e WHERE e.chain = s.chain AND e.segment < s.segment) \
         ORDER BY s.stamp, s.chain",
    )?;
    let rows = statement.query_map([int(before.0)], |row| {
        Ok(Row {
            chain: row.get(0)?,
            doc: doc_column(row, 1)?,
            writer: DeviceId(row.get(2)?),
            segment: row.get(3)?,
            hours: row.get(4)?,
            first_seq: uint(row.get(5)?),
            last_seq: uint(row.get(6)?),
            stamp: Timestamp(uint(row.get(7)?)),
            to: Timestamp(uint(row.get(8)?)),
            closed: row.get(9)?,
            summed: row.get(10)?,
        })
    })?;
    rows.collect()
}

/// Takes a segment and all that is noted of it away.
pub(crate) fn drop_segment(db: &Connection, row: &Row) -> rusqlite::Result<()> {
    let (chain, segment) = (row.chain, row.segment);
    db.prepare_cached("DELETE FROM envelopes WHERE chain = ?1 AND seq BETWEEN ?2 AND ?3")?
        .execute(params![chain, int(row.first_seq), int(row.last_seq)])?;
    super::fail::point("envelopes are gone")?;
    db.prepare_cached("DELETE FROM spans WHERE chain = ?1 AND segment = ?2")?
        .execute(params![chain, segment])?;
    let gone = db
        .prepare_cached("DELETE FROM segments WHERE chain = ?1 AND segment = ?2")?
        .execute(params![chain, segment])?;
    // One that is damaged is not found to go, and would be due again at once.
    if gone == 0 && row.doc != DocId::Keys {
        return Err(rusqlite::Error::StatementChangedRows(0));
    }
    db.prepare_cached(
        "UPDATE chains SET opened = max(opened, ?2), open_segment = max(open_segment, ?3), \
         broken = CASE broken WHEN ?3 THEN NULL ELSE broken END WHERE id = ?1",
    )?
    .execute(params![chain, int(row.last_seq), segment])?;
    Ok(())
}

/// Notes a writer's epoch.
pub(crate) fn note_epoch(
    db: &Connection,
    writer: &DeviceId,
    epoch: &Epoch,
    hours: u32,
    stamp: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO lines(writer, key_id, number, hours, stamp) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        writer.0,
        epoch.key_id.0,
        epoch.number,
        hours,
        int(stamp.0),
    ])?;
    Ok(())
}

/// The number and the window, in hours, that a writer gave the epoch of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineOf {
    pub(crate) number: u32,
    pub(crate) hours: u32,
}

/// What a writer said of a key when it began its epoch.
pub(crate) fn line_of(
    db: &Connection,
    writer: &DeviceId,
    key_id: &KeyId,
) -> rusqlite::Result<Option<LineOf>> {
    db.prepare_cached("SELECT number, hours FROM lines WHERE writer = ?1 AND key_id = ?2")?
        .query_row([&writer.0, &key_id.0], |row| {
            let (number, hours) = (row.get(0)?, row.get(1)?);
            Ok(LineOf { number, hours })
        })
        .optional()
}

/// The highest number of an epoch of a writer.
pub(crate) fn last_epoch(db: &Connection, writer: DeviceId) -> rusqlite::Result<u32> {
    let found: Option<u32> = db
        .prepare_cached("SELECT max(number) FROM lines WHERE writer = ?1")?
        .query_row([writer.0], |row| row.get(0))?;
    Ok(found.unwrap_or(0))
}

/// One's own epochs that are not forgotten, oldest first, with the hours of their
/// windows; what an older version did not say is the longest.
pub(crate) fn own_epochs(
    db: &Connection,
    device: DeviceId,
    long: u32,
) -> rusqlite::Result<Vec<(Epoch, u32)>> {
    let mut statement = db.prepare_cached(
        "SELECT e.number, e.key_id, e.made, coalesce(nullif(l.hours, 0), ?2) FROM epochs e \
         LEFT JOIN lines l ON l.key_id = e.key_id AND l.writer = ?1 ORDER BY e.number, e.made",
    )?;
    let rows = statement.query_map(params![device.0, long], |row| {
        let epoch = Epoch {
            number: row.get(0)?,
            key_id: KeyId(row.get(1)?),
            made: uint(row.get(2)?),
        };
        Ok((epoch, row.get(3)?))
    })?;
    rows.collect()
}

/// Hours of the window of the last segment of a document that is one's own.
pub(crate) fn last_hours(
    db: &Connection,
    device: DeviceId,
    doc: DocId,
) -> rusqlite::Result<Option<u32>> {
    db.prepare_cached(
        "SELECT s.hours FROM segments s JOIN chains c ON c.id = s.chain \
         WHERE c.doc = ?1 AND c.writer = ?2 AND s.hours > 0 \
         ORDER BY c.id DESC, s.segment DESC LIMIT 1",
    )?
    .query_row(params![doc.to_bytes(), device.0], |row| row.get(0))
    .optional()
}

/// A tombstone's columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grave {
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) last_hash: Hash,
    pub(crate) entries: u64,
    pub(crate) last_no: u64,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Number of the last summary in one's own days' document; 0 if none is.
    pub(crate) days_no: u64,
    /// The mark when it was stored.
    pub(crate) stamp: Timestamp,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) const GRAVE: &str = "first_seq, last_seq, last_hash, entries, last_no, from_ts, to_ts, days_no, \
     stamp, bytes";

fn grave(row: &rusqlite::Row<'_>) -> rusqlite::Result<Grave> {
    grave_at(row, 0)
}

/// A tombstone from its columns, [`GRAVE`], which begin at one of a row's.
pub(crate) fn grave_at(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Grave> {
    let number = |column: usize| row.get(at + column).map(uint);
    Ok(Grave {
        first_seq: number(0)?,
        last_seq: number(1)?,
        last_hash: Hash(row.get(at + 2)?),
        entries: number(3)?,
        last_no: number(4)?,
        from: Timestamp(number(5)?),
        to: Timestamp(number(6)?),
        days_no: number(7)?,
        stamp: Timestamp(number(8)?),
        bytes: row.get(at + 9)?,
    })
}

/// Stores a tombstone in the place of any that it holds.
pub(crate) fn put_grave(db: &Connection, chain: i64, grave: &Grave) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM tombstones WHERE chain = ?1 AND first_seq >= ?2 AND last_seq <= ?3",
    )?
    .execute(params![chain, int(grave.first_seq), int(grave.last_seq)])?;
    let sql = format!(
        "INSERT INTO tombstones(chain, {GRAVE}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
    );
    db.prepare_cached(&sql)?.execute(params![
        chain,
        int(grave.first_seq),
        int(grave.last_seq),
        grave.last_hash.0,
        int(grave.entries),
        int(grave.last_no),
        int(grave.from.0),
        int(grave.to.0),
        int(grave.days_no),
        int(grave.stamp.0),
        grave.bytes,
    ])?;
    Ok(())
}

/// Every tombstone of a chain, in order.
pub(crate) fn graves(db: &Connection, chain: i64) -> rusqlite::Result<Vec<Grave>> {
    let sql = format!("SELECT {GRAVE} FROM tombstones WHERE chain = ?1 ORDER BY first_seq");
    let mut statement = db.prepare_cached(&sql)?;
    statement.query_map([chain], grave)?.collect()
}

/// Chains of which nothing is left but a tombstone that stands since then or before.
pub(crate) fn spent(db: &Connection, since: Timestamp) -> rusqlite::Result<Vec<(ChainId, Chain)>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM chains WHERE EXISTS (SELECT 1 FROM tombstones t \
         WHERE t.chain = chains.id AND t.first_seq = 1 AND t.last_seq = chains.seq \
         AND t.stamp <= ?1)"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([int(since.0)], |row| chain_at(row, 0))?;
    rows.collect()
}

/// The tombstone in whose place a number would stand, or that comes next.
pub(crate) fn grave_from(db: &Connection, chain: i64, seq: u64) -> rusqlite::Result<Option<Grave>> {
    let sql = format!(
        "SELECT {GRAVE} FROM tombstones WHERE chain = ?1 AND last_seq >= ?2 \
         ORDER BY first_seq LIMIT 1"
    );
    db.prepare_cached(&sql)?
        .query_row(params![chain, int(seq)], grave)
        .optional()
}

/// The segments of a chain that have an envelope of a range here: number, hours,
/// and the latest time of an entry.
pub(crate) fn held(
    db: &Connection,
    chain: i64,
    first_seq: u64,
    last_seq: u64,
) -> rusqlite::Result<Vec<(u32, u32, Timestamp)>> {
    let mut statement = db.prepare_cached(
        "SELECT s.segment, s.hours, coalesce(p.to_ts, s.stamp) FROM segments s \
         LEFT JOIN spans p ON p.chain = s.chain AND p.segment = s.segment \
         WHERE s.chain = ?1 AND s.first_seq <= ?3 AND s.last_seq >= ?2 ORDER BY s.segment",
    )?;
    let rows = statement.query_map(params![chain, int(first_seq), int(last_seq)], |row| {
        Ok((row.get(0)?, row.get(1)?, Timestamp(uint(row.get(2)?))))
    })?;
    rows.collect()
}

/// A writer's epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) writer: DeviceId,
    pub(crate) key_id: KeyId,
    pub(crate) number: u32,
    pub(crate) hours: u32,
    pub(crate) stamp: Timestamp,
}

const LINE: &str = "l.writer, l.key_id, l.number, l.hours, l.stamp";

fn lines(db: &Connection, which: &str) -> rusqlite::Result<Vec<Line>> {
    let sql = format!("SELECT {LINE} FROM lines l WHERE {which} ORDER BY l.stamp");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Line {
            writer: DeviceId(row.get(0)?),
            key_id: KeyId(row.get(1)?),
            number: row.get(2)?,
            hours: row.get(3)?,
            stamp: Timestamp(uint(row.get(4)?)),
        })
    })?;
    rows.collect()
}

/// Epochs whose keys are here and under which nothing is sealed here, oldest first.
pub(crate) fn unsealed_lines(db: &Connection) -> rusqlite::Result<Vec<Line>> {
    lines(
        db,
        "l.forgotten = 0 AND NOT EXISTS (SELECT 1 FROM segments s WHERE s.key_id = l.key_id) \
         AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.key_id = l.key_id)",
    )
}

/// Epochs whose keys are forgotten, while a record names them.
pub(crate) fn forgotten(db: &Connection) -> rusqlite::Result<Vec<Line>> {
    lines(db, "l.forgotten = 1")
}

/// When the epoch after this one came, of the same writer and window.
pub(crate) fn next_in_line(db: &Connection, line: &Line) -> rusqlite::Result<Option<Timestamp>> {
    let found: Option<i64> = db
        .prepare_cached(
            "SELECT min(stamp) FROM lines WHERE writer = ?1 AND number > ?2 \
             AND (hours = ?3 OR ?3 = 0)",
        )?
        .query_row(params![line.writer.0, line.number, line.hours], |row| {
            row.get(0)
        })?;
    Ok(found.map(|ms| Timestamp(uint(ms))))
}

/// Forgets a key: what it is wrapped in goes. Whether its line says so from now on, which
/// one that is damaged is not found to do.
pub(crate) fn forget(db: &Connection, writer: &DeviceId, key_id: &KeyId) -> rusqlite::Result<bool> {
    let key = params![writer.0, key_id.0];
    db.prepare_cached("DELETE FROM wraps WHERE writer = ?1 AND key_id = ?2")?
        .execute(key)?;
    db.prepare_cached("DELETE FROM epochs WHERE key_id = ?1")?
        .execute([key_id.0])?;
    let noted = db
        .prepare_cached("UPDATE lines SET forgotten = 1 WHERE writer = ?1 AND key_id = ?2")?
        .execute(key)?;
    Ok(noted > 0)
}

/// No record names it any more.
pub(crate) fn drop_line(
    db: &Connection,
    writer: &DeviceId,
    key_id: &KeyId,
) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM lines WHERE writer = ?1 AND key_id = ?2 AND forgotten = 1")?
        .execute(params![writer.0, key_id.0])?;
    Ok(())
}
