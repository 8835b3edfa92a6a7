//! Rows of chains and envelopes.

use std::collections::BTreeMap;

use bailey_envelope::{ChainId, DocId, Hash, Head, KeyId, peek};
use bailey_model::{DeviceId, Incarnation, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::db::{int, uint};
use crate::error::Fork;

/// What is known of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Its row; `None` before it is stored.
    pub(crate) row: Option<i64>,
    /// Number of the newest envelope.
    pub(crate) seq: u64,
    /// Its hash.
    pub(crate) hash: Hash,
    /// Its segment.
    pub(crate) segment: u32,
    /// Name of the key it was sealed under.
    pub(crate) key_id: KeyId,
    /// Up to which envelope its entries were opened, or set aside.
    pub(crate) opened: u64,
    /// Segment of that envelope.
    pub(crate) open_segment: u32,
    /// Number of the newest entry opened; 0 if none was.
    pub(crate) last_no: u64,
    /// Segment whose rest is set aside.
    pub(crate) broken: Option<u32>,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self {
        row: None,
        seq: 0,
        hash: Hash::NONE,
        segment: 0,
        key_id: KeyId([0; 32]),
        opened: 0,
        open_segment: 0,
        last_no: 0,
        broken: None,
    };

    pub(crate) fn head(&self, chain: ChainId) -> Head {
        Head {
            chain,
            seq: self.seq,
            hash: self.hash,
        }
    }
}

/// A stored envelope's columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    /// Whether it stays when a box's entries go.
    pub(crate) lasts: bool,
    pub(crate) seq: u64,
    pub(crate) segment: u32,
    pub(crate) hash: Hash,
    pub(crate) received: Timestamp,
    pub(crate) bytes: &'a [u8],
}

fn doc_of(bytes: [u8; DocId::LEN]) -> rusqlite::Result<DocId> {
    DocId::from_bytes(&bytes).ok_or(rusqlite::Error::InvalidQuery)
}

/// A document from its column.
pub(crate) fn doc_column(row: &Row<'_>, at: usize) -> rusqlite::Result<DocId> {
    doc_of(row.get(at)?)
}

fn chain_of(row: &Row<'_>) -> rusqlite::Result<(ChainId, Chain)> {
    chain_at(row, 0)
}

/// A chain from its [`COLUMNS`], which begin at one of a row's.
pub(crate) fn chain_at(row: &Row<'_>, at: usize) -> rusqlite::Result<(ChainId, Chain)> {
    let id = ChainId {
        doc: doc_column(row, at + 1)?,
        writer: DeviceId(row.get(at + 2)?),
        incarnation: Incarnation(row.get(at + 3)?),
    };
    let chain = Chain {
        row: Some(row.get(at)?),
        seq: uint(row.get(at + 4)?),
        hash: Hash(row.get(at + 5)?),
        segment: row.get(at + 6)?,
        key_id: KeyId(row.get(at + 7)?),
        opened: uint(row.get(at + 8)?),
        open_segment: row.get(at + 9)?,
        last_no: uint(row.get(at + 10)?),
        broken: row.get(at + 11)?,
    };
    Ok((id, chain))
}

/// What a chain is read from.
pub(crate) const COLUMNS: &str = "id, doc, writer, incarnation, seq, hash, segment, key_id, opened, \
     open_segment, last_no, broken";

/// Every chain.
pub(crate) fn load(db: &Connection) -> rusqlite::Result<BTreeMap<ChainId, Chain>> {
    let mut statement = db.prepare(&format!("SELECT {COLUMNS} FROM chains"))?;
    statement.query_map([], chain_of)?.collect()
}

/// The chain of a row.
pub(crate) fn load_row(db: &Connection, row: i64) -> rusqlite::Result<Option<(ChainId, Chain)>> {
    let sql = format!("SELECT {COLUMNS} FROM chains WHERE id = ?1");
    db.prepare_cached(&sql)?
        .query_row([row], chain_of)
        .optional()
}

/// The segments that a chain's envelopes are in.
pub(crate) fn segments(db: &Connection, row: i64) -> rusqlite::Result<Vec<u32>> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT segment FROM envelopes WHERE chain = ?1 ORDER BY segment",
    )?;
    statement.query_map([row], |row| row.get(0))?.collect()
}

/// The chains of one document, in the order in which they began here.
pub(crate) fn load_of(db: &Connection, doc: DocId) -> rusqlite::Result<Vec<(ChainId, Chain)>> {
    let sql = format!("SELECT {COLUMNS} FROM chains WHERE doc = ?1 ORDER BY id");
    let mut statement = db.prepare_cached(&sql)?;
    statement.query_map([doc.to_bytes()], chain_of)?.collect()
}

/// Writes what is known of a chain, and gives it back with its row.
pub(crate) fn put(db: &Connection, id: &ChainId, chain: &Chain) -> rusqlite::Result<Chain> {
    let mut statement = db.prepare_cached(
        "INSERT INTO chains(doc, writer, incarnation, seq, hash, segment, key_id, opened, \
         open_segment, last_no, broken) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
         ON CONFLICT(doc, writer, incarnation) DO UPDATE SET seq = ?4, hash = ?5, segment = ?6, \
         key_id = ?7, opened = ?8, open_segment = ?9, last_no = ?10, broken = ?11 RETURNING id",
    )?;
    let row = statement.query_row(
        params![
            id.doc.to_bytes(),
            id.writer.0,
            id.incarnation.0,
            int(chain.seq),
            chain.hash.0,
            chain.segment,
            chain.key_id.0,
            int(chain.opened),
            chain.open_segment,
            int(chain.last_no),
            chain.broken,
        ],
        |row| row.get(0),
    )?;
    Ok(Chain {
        row: Some(row),
        ..*chain
    })
}

/// Writes what is known of a chain into the row that it has; one that is there
/// stays unless it is to be replaced.
pub(crate) fn put_at(
    db: &Connection,
    id: &ChainId,
    chain: &Chain,
    replace: bool,
) -> rusqlite::Result<()> {
    let or = if replace { "REPLACE" } else { "IGNORE" };
    db.prepare_cached(&format!(
        "INSERT OR {or} INTO chains({COLUMNS}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
    ))?
    .execute(params![
        chain.row,
        id.doc.to_bytes(),
        id.writer.0,
        id.incarnation.0,
        int(chain.seq),
        chain.hash.0,
        chain.segment,
        chain.key_id.0,
        int(chain.opened),
        chain.open_segment,
        int(chain.last_no),
        chain.broken,
    ])?;
    Ok(())
}

/// The first row of an envelope that lasts.
const LASTING: i64 = 1 << 48;

/// Stores an envelope's very bytes.
pub(crate) fn put_envelope(
    db: &Connection,
    row: Option<i64>,
    stored: &Stored<'_>,
) -> rusqlite::Result<()> {
    // What stays for long does not share its pages with what soon goes, else each
    // of it would keep a page.
    let sql = if stored.lasts {
        "INSERT INTO envelopes(rowid, chain, seq, segment, hash, received, bytes) VALUES \
         (coalesce((SELECT max(rowid) + 1 FROM envelopes WHERE rowid >= ?7), ?7), \
         ?1, ?2, ?3, ?4, ?5, ?6)"
    } else {
        "INSERT INTO envelopes(rowid, chain, seq, segment, hash, received, bytes) VALUES \
         (coalesce((SELECT max(rowid) + 1 FROM envelopes WHERE rowid < ?7), 1), \
         ?1, ?2, ?3, ?4, ?5, ?6)"
    };
    db.prepare_cached(sql)?.execute(params![
        row,
        int(stored.seq),
        stored.segment,
        stored.hash.0,
        int(stored.received.0),
        stored.bytes,
        LASTING,
    ])?;
    Ok(())
}

/// Envelopes of a chain from a number on: at most `max_count`, and at most
/// `max_bytes` in all, but one at least; up to the first that is missing.
pub(crate) fn range(
    db: &Connection,
    row: i64,
    from_seq: u64,
    max_count: usize,
    max_bytes: usize,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement = db.prepare_cached(
        "SELECT bytes, seq FROM envelopes WHERE chain = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3",
    )?;
    let limit = i64::try_from(max_count).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![row, int(from_seq), limit])?;
    let mut envelopes = Vec::new();
    let mut total = 0;
    let mut next = int(from_seq);
    while let Some(row) = rows.next()? {
        // Nobody can take what comes after a hole.
        if row.get::<_, i64>(1)? != next {
            break;
        }
        next = next.saturating_add(1);
        let bytes: Vec<u8> = row.get(0)?;
        total += bytes.len();
        if total > max_bytes && !envelopes.is_empty() {
            break;
        }
        envelopes.push(bytes);
    }
    Ok(envelopes)
}

/// Every envelope of a chain that is here, in order, whatever is missing between them.
pub(crate) fn present(db: &Connection, row: i64) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement =
        db.prepare_cached("SELECT bytes FROM envelopes WHERE chain = ?1 ORDER BY seq")?;
    statement.query_map([row], |row| row.get(0))?.collect()
}

/// One envelope.
pub(crate) fn envelope(db: &Connection, row: i64, seq: u64) -> rusqlite::Result<Option<Vec<u8>>> {
    db.prepare_cached("SELECT bytes FROM envelopes WHERE chain = ?1 AND seq = ?2")?
        .query_row(params![row, int(seq)], |row| row.get(0))
        .optional()
}

/// The hash of one envelope.
pub(crate) fn hash_at(db: &Connection, row: i64, seq: u64) -> rusqlite::Result<Option<Hash>> {
    db.prepare_cached("SELECT hash FROM envelopes WHERE chain = ?1 AND seq = ?2")?
        .query_row(params![row, int(seq)], |row| row.get(0).map(Hash))
        .optional()
}

/// How many envelopes of a chain stand after its head.
pub(crate) fn beyond(db: &Connection, row: i64, seq: u64) -> rusqlite::Result<u64> {
    db.prepare_cached("SELECT count(*) FROM envelopes WHERE chain = ?1 AND seq > ?2")?
        .query_row(params![row, int(seq)], |row| row.get(0).map(uint))
}

/// Whether a chain has an envelope of this hash.
pub(crate) fn has(db: &Connection, row: i64, hash: &Hash) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM envelopes WHERE chain = ?1 AND hash = ?2 LIMIT 1")?
        .query_row(params![row, hash.0], |_| Ok(()))
        .optional()
        .map(|found| found.is_some())
}

/// The envelopes of one segment up to a number, in order.
pub(crate) fn segment(
    db: &Connection,
    row: i64,
    segment: u32,
    up_to: u64,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement = db.prepare_cached(
        "SELECT bytes FROM envelopes WHERE chain = ?1 AND segment = ?2 AND seq <= ?3 ORDER BY seq",
    )?;
    statement
        .query_map(params![row, segment, int(up_to)], |row| row.get(0))?
        .collect()
}

/// Most envelopes set aside: too few to fill a disk with. Proofs of forks have room of
/// their own.
const MAX_QUARANTINE: i64 = 1024;
/// Most proofs of forks of one writer: more prove nothing further, and what one writer
/// signs twice takes no other's room.
pub(crate) const MAX_PROOFS: i64 = 16;

/// Why an envelope is set aside of whose number another one is here.
const FORK: &str = "fork";

/// Sets an envelope aside with the reason.
pub(crate) fn quarantine(
    db: &Connection,
    hash: &Hash,
    bytes: &[u8],
    reason: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO quarantine(at, reason, hash, bytes) SELECT ?1, ?2, ?3, ?4 \
         WHERE (SELECT count(*) FROM quarantine WHERE reason != ?6) < ?5",
    )?
    .execute(params![
        int(at.0),
        reason,
        hash.0,
        bytes,
        MAX_QUARANTINE,
        FORK
    ])?;
    Ok(())
}

/// Where an envelope names its writer, counted from one.
const WRITER_AT: i64 = 63;

/// Keeps an envelope of whose number another one is here, as proof. Whether it is kept,
/// now or from before.
pub(crate) fn keep_fork(
    db: &Connection,
    writer: &DeviceId,
    hash: &Hash,
    bytes: &[u8],
    at: Timestamp,
) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "INSERT OR IGNORE INTO quarantine(at, reason, hash, bytes) SELECT ?1, ?2, ?3, ?4 \
         WHERE (SELECT count(*) FROM quarantine \
         WHERE reason = ?2 AND substr(bytes, ?5, 32) = ?6) < ?7",
    )?
    .execute(params![
        int(at.0),
        FORK,
        hash.0,
        bytes,
        WRITER_AT,
        writer.0,
        MAX_PROOFS
    ])?;
    db.prepare_cached("SELECT 1 FROM quarantine WHERE hash = ?1 AND reason = ?2")?
        .exists(params![hash.0, FORK])
}

/// Every two envelopes of one number that are here: one in its chain, the other set
/// aside, or named by one that was. So many of each writer at most.
pub(crate) fn forks(
    db: &Connection,
    chains: &BTreeMap<ChainId, Chain>,
) -> rusqlite::Result<Vec<Fork>> {
    let mut statement =
        db.prepare("SELECT hash, bytes FROM quarantine WHERE reason = ?1 ORDER BY at, hash")?;
    let mut rows = statement.query([FORK])?;
    let mut forks = Vec::new();
    let mut of = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (hash, bytes) = (Hash(row.get(0)?), row.get::<_, Vec<u8>>(1)?);
        let Ok(fields) = peek(&bytes).map(|header| header.fields) else {
            continue;
        };
        let Some(chain) = chains.get(&fields.chain).and_then(|chain| chain.row) else {
            continue;
        };
        let found = of.entry(fields.chain.writer).or_insert(0);
        if *found >= MAX_PROOFS {
            continue;
        }
        let at = |seq| hash_at(db, chain, seq);
        let (seq, ours, theirs) = match at(fields.seq)? {
            Some(ours) if ours != hash => (fields.seq, Some(ours), hash),
            _ => {
                let before = fields.seq.saturating_sub(1);
                (before, at(before)?, fields.prev)
            }
        };
        if let Some(ours) = ours.filter(|ours| *ours != theirs) {
            *found += 1;
            forks.push(Fork {
                chain: fields.chain,
                seq,
                ours,
                theirs,
                kept: true,
            });
        }
    }
    Ok(forks)
}
