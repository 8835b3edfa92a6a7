//! The new database, from what was read of the old one.

use std::collections::{BTreeMap, HashMap};

use bailey_envelope::{ChainId, DeviceKeys, DocId, Hash, KeyId, Tombstone, Verified, verify};
use bailey_model::{DeviceId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::graves::first_hole;
use super::salvage::{Extent, keyed, numbered};
use super::{RepairError, Repaired};
use crate::chains::{self, Chain};
use crate::db::{int, uint};
use crate::entropy::Entropy;
use crate::keys::{KeyRecord, KeyRing, store_epoch, store_wraps};
use crate::reader::read_segment;
use crate::store::{members_stored, put_account, stored_account};
use crate::thin::tables;

/// Most entries of one document that are told as missing before one that stands in
/// the journal: more is no damage but another store's row.
pub(super) const MAX_MISSING: u64 = 100_000;
/// Whose keys records name is the same in every view.
const NOBODY: DeviceId = DeviceId([0; 32]);
/// Tables that are made again or have a way of their own; any other is copied.
const KNOWN: [&str; 10] = [
    "meta",
    "chains",
    "envelopes",
    "spans",
    "journal",
    "own_docs",
    "wraps",
    "epochs",
    "segments",
    "tombstones",
];

/// One repair.
pub(super) struct Rebuild<'a> {
    pub(super) old: &'a Connection,
    pub(super) new: &'a Connection,
    pub(super) ring: KeyRing,
    pub(super) keys: &'a DeviceKeys,
    pub(super) now: Timestamp,
    pub(super) entropy: &'a mut dyn Entropy,
    pub(super) said: Repaired,
}

impl<'a> Rebuild<'a> {
    pub(super) fn new(
        old: &'a Connection,
        new: &'a Connection,
        keys: &'a DeviceKeys,
        now: Timestamp,
        entropy: &'a mut dyn Entropy,
    ) -> Self {
        Self {
            old,
            new,
            ring: KeyRing::new(keys.clone()),
            keys,
            now,
            entropy,
            said: Repaired::default(),
        }
    }

    /// All of it, in one transaction.
    pub(super) fn run(mut self) -> Result<Repaired, RepairError> {
        let new = self.new;
        let tx = new.unchecked_transaction()?;
        self.meta()?;
        let known = self.old_chains()?;
        self.envelopes(&known)?;
        self.graves(&known)?;
        self.account()?;
        self.forged()?;
        self.chains(&known)?;
        self.keys()?;
        self.copy_rest()?;
        self.numbers()?;
        self.own_docs()?;
        self.journal()?;
        self.said.envelopes = count(new, "envelopes")?;
        self.said.rows = entries_in_journal(new)?;
        tx.commit()?;
        Ok(self.said)
    }

    pub(super) fn part(&mut self, table: &str, extent: Extent) {
        if extent == Extent::Part {
            self.said
                .lose(format!("{table}: some of it lies on damaged pages"));
        }
    }

    fn meta(&mut self) -> Result<(), RepairError> {
        let new = self.new;
        let extent = keyed(
            self.old,
            "meta",
            "key, value",
            ("key", "key DESC"),
            &mut |row| {
                let (key, value): (String, Vec<u8>) = (row.get(1)?, row.get(2)?);
                put(
                    new,
                    "INSERT OR IGNORE INTO meta(key, value) VALUES (?1, ?2)",
                    params![key, value],
                )
            },
        )?;
        self.part("meta", extent);
        // Spans are counted when the store opens.
        put(
            new,
            "INSERT OR REPLACE INTO meta(key, value) VALUES ('uncounted', x'01')",
            [],
        )?;
        Ok(())
    }

    /// What the old database says of its chains, by their rows.
    fn old_chains(&mut self) -> Result<HashMap<ChainId, Chain>, RepairError> {
        let mut known = HashMap::new();
        let extent = numbered(self.old, "chains", chains::COLUMNS, &mut |row| {
            // Columns begin behind the number.
            if let Ok((id, chain)) = chains::chain_at(row, 1) {
                known.insert(id, chain);
            }
            Ok(())
        })?;
        self.part("chains", extent);
        Ok(known)
    }

    /// Every envelope that reads back, under the chain that it says itself.
    fn envelopes(&mut self, known: &HashMap<ChainId, Chain>) -> Result<(), RepairError> {
        let (new, now) = (self.new, self.now);
        let mut rows: HashMap<ChainId, i64> = HashMap::new();
        for (id, chain) in known {
            rows.extend(chain.row.map(|row| (*id, row)));
        }
        let mut free = rows.values().copied().max().unwrap_or(0) + 1;
        let mut damaged = Vec::new();
        let columns = "chain, seq, received, bytes";
        let extent = numbered(self.old, "envelopes", columns, &mut |row| {
            let (chain, seq): (i64, i64) = (row.get(1)?, row.get(2)?);
            let bytes: Vec<u8> = row.get(4)?;
            let Ok(verified) = Verified::from_stored(&bytes) else {
                let place = format!("envelope {seq} of chain {chain}: damaged");
                let hash = random_hash(&bytes);
                chains::quarantine(new, &hash, &bytes, &place, now)?;
                damaged.push(place);
                return Ok(());
            };
            let fields = verified.header.fields;
            let at = *rows.entry(fields.chain).or_insert_with(|| {
                free += 1;
                free - 1
            });
            put(
                new,
                "INSERT OR IGNORE INTO envelopes(chain, seq, segment, hash, received, bytes) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    at,
                    int(fields.seq),
                    fields.segment,
                    verified.hash.0,
                    row.get::<_, i64>(3)?,
                    bytes
                ],
            )?;
            // For now; what it says of itself is put right below.
            let chain = Chain {
                row: Some(at),
                ..Chain::EMPTY
            };
            chains::put_at(new, &fields.chain, &chain, false)
        })?;
        self.part("envelopes", extent);
        for place in damaged {
            self.said.lose(place);
        }
        Ok(())
    }

    /// The account, by what stands in every envelope.
    fn account(&mut self) -> Result<(), RepairError> {
        if stored_account(self.new)?.is_some() {
            return Ok(());
        }
        let first: Option<Vec<u8>> = self
            .new
            .query_row("SELECT bytes FROM envelopes LIMIT 1", [], |row| row.get(0))
            .optional()?;
        let header = first.and_then(|bytes| bailey_envelope::peek(&bytes).ok());
        if let Some(header) = header {
            put_account(self.new, &header.fields.account)?;
            self.said.rebuilt.push("which account it is of".to_owned());
        }
        Ok(())
    }

    /// Sets aside what its writer did not sign. Whose keys no record that is left
    /// names is not judged.
    fn forged(&mut self) -> Result<(), RepairError> {
        // Records are read along their chains, which are not whole yet.
        for (id, _) in chains::load(self.new)? {
            if id.doc == DocId::Account {
                self.end_chain(&id, None)?;
            }
        }
        let members = members_stored(self.new, NOBODY).unwrap_or_default();
        for (id, chain) in chains::load(self.new)? {
            let (Some(public), Some(row)) = (members.signer(&id.writer), chain.row) else {
                continue;
            };
            for seq in seqs(self.new, row)? {
                let bytes = chains::envelope(self.new, row, seq)?.unwrap_or_default();
                if let Err(error) = verify(&bytes, public) {
                    let place = format!("envelope {seq} of {} by {}: {error}", id.doc, id.writer);
                    self.set_aside(row, seq, &bytes, &place)?;
                    self.said.lose(place);
                }
            }
        }
        Ok(())
    }

    fn set_aside(&self, row: i64, seq: u64, bytes: &[u8], why: &str) -> rusqlite::Result<()> {
        chains::quarantine(self.new, &random_hash(bytes), bytes, why, self.now)?;
        put(
            self.new,
            "DELETE FROM envelopes WHERE chain = ?1 AND seq = ?2",
            params![row, int(seq)],
        )
    }

    /// What is known of each chain, by its envelopes.
    fn chains(&mut self, known: &HashMap<ChainId, Chain>) -> Result<(), RepairError> {
        for (id, _) in chains::load(self.new)? {
            self.end_chain(&id, known.get(&id))?;
        }
        for (id, before) in known {
            let kept = chains::load(self.new)?.contains_key(id);
            if !kept && before.seq > 0 {
                self.said
                    .lose(format!("all envelopes of {} by {}", id.doc, id.writer));
            }
        }
        Ok(())
    }

    /// Sets a chain's head to its last envelope. Records rest on each other, so
    /// their chains end before the first that is missing: other devices bring the
    /// rest again. Entries do not, and stay readable around it.
    fn end_chain(&mut self, id: &ChainId, before: Option<&Chain>) -> Result<(), RepairError> {
        let all = chains::load_of(self.new, id.doc)?;
        let chain = all.into_iter().find(|(other, _)| other == id);
        let Some((_, Chain { row: Some(row), .. })) = chain else {
            return Ok(());
        };
        let mut present = seqs(self.new, row)?;
        let graves = tables::graves(self.new, row)?;
        let hole = first_hole(&present, &graves);
        if let (Some(hole), true) = (hole, id.doc.is_plain()) {
            for seq in present.split_off(present.partition_point(|seq| *seq < hole)) {
                let bytes = chains::envelope(self.new, row, seq)?.unwrap_or_default();
                self.set_aside(row, seq, &bytes, "stands after one that is missing")?;
            }
        }
        if let (Some(hole), Some(_)) = (hole, before) {
            self.said
                .lose(format!("envelope {hole} of {} by {}", id.doc, id.writer));
        }
        let thinned = graves.last();
        let thinned = thinned.filter(|it| present.last().is_none_or(|last| *last < it.last_seq));
        let envelope = match (thinned, present.last()) {
            (None, Some(last)) => chains::envelope(self.new, row, *last)?,
            (Some(_), _) => None,
            (None, None) => {
                put(self.new, "DELETE FROM chains WHERE id = ?1", [row])?;
                return Ok(());
            }
        };
        let verified = envelope.as_deref().map(Verified::from_stored);
        let end = match (verified, thinned) {
            (Some(Ok(it)), _) => {
                let fields = it.header.fields;
                Some((fields.seq, it.hash, fields.segment, it.header.key_id))
            }
            (None, Some(grave)) => Tombstone::decode(&grave.bytes)
                .ok()
                .map(|it| (it.last_seq, it.last, it.segment, it.key_id)),
            _ => None,
        };
        if let Some(end) = end {
            self.end_at(id, row, before, end)?;
        }
        Ok(())
    }

    /// Writes where a chain ends: number, hash, segment and key of its last.
    fn end_at(
        &mut self,
        id: &ChainId,
        row: i64,
        before: Option<&Chain>,
        (last, hash, segment, key_id): (u64, Hash, u32, KeyId),
    ) -> Result<(), RepairError> {
        if before.is_some_and(|before| before.seq > last) {
            let text = format!(
                "what came after envelope {last} of {} by {}",
                id.doc, id.writer
            );
            self.said.lose(text);
        }
        let base = before.copied().unwrap_or(Chain {
            opened: last,
            ..Chain::EMPTY
        });
        let head = Chain {
            row: Some(row),
            seq: last,
            hash,
            segment,
            key_id,
            opened: base.opened.min(last),
            open_segment: base.open_segment.min(segment),
            ..base
        };
        chains::put_at(self.new, id, &head, true)?;
        Ok(())
    }

    /// Wraps and epochs, from the records that carry them and from what was read.
    fn keys(&mut self) -> Result<(), RepairError> {
        let (new, device) = (self.new, self.keys.id());
        for (id, chain) in chains::load(new)? {
            let (DocId::Keys, Some(row)) = (id.doc, chain.row) else {
                continue;
            };
            for bytes in chains::present(new, row)? {
                let verified = Verified::from_stored(&bytes).ok();
                let body = verified.as_ref().and_then(|it| it.plain().ok());
                let Some(record) = body.and_then(|body| KeyRecord::decode(body).ok()) else {
                    continue;
                };
                store_wraps(new, &record, &id.writer, &device)?;
                if let (Some(epoch), true) = (&record.epoch, id.writer == device) {
                    store_epoch(new, epoch)?;
                }
            }
        }
        for table in ["wraps", "epochs"] {
            let extent = copy_table(self.old, new, table)?;
            if extent == Some(Extent::Part) {
                self.said.rebuilt.push(format!("{table}, from the records"));
            }
        }
        Ok(())
    }

    /// Tables that this does not know by name, row by row.
    fn copy_rest(&mut self) -> Result<(), RepairError> {
        let mut statement = self
            .new
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
        let names = statement.query_map([], |row| row.get::<_, String>(0))?;
        for name in names.collect::<rusqlite::Result<Vec<_>>>()? {
            if KNOWN.contains(&name.as_str()) || name.starts_with("sqlite_") {
                continue;
            }
            if let Some(extent) = copy_table(self.old, self.new, &name)? {
                self.part(&name, extent);
            }
        }
        Ok(())
    }

    /// The last number of each chain of which the old database says none.
    fn numbers(&mut self) -> Result<(), RepairError> {
        let Some(account) = stored_account(self.new)? else {
            return Ok(());
        };
        for (id, chain) in chains::load(self.new)? {
            let (Some(row), 0, false) = (chain.row, chain.last_no, id.doc.is_plain()) else {
                continue;
            };
            let mut chain = chain;
            for segment in chains::segments(self.new, row)? {
                let read = read_segment(self.new, &mut self.ring, account, &id, &chain, segment)?;
                if let Some(last) = read.last() {
                    (chain.last_no, chain.open_segment) = (last.no, segment);
                }
            }
            chains::put_at(self.new, &id, &chain, true)?;
            self.said
                .rebuilt
                .push(format!("where {} by {} ends", id.doc, id.writer));
        }
        Ok(())
    }

    /// Where this device's own documents are.
    fn own_docs(&mut self) -> Result<(), RepairError> {
        copy_table(self.old, self.new, "own_docs")?;
        let device = self.keys.id();
        let mut newest: BTreeMap<DocId, (i64, ChainId, u64)> = BTreeMap::new();
        for (id, chain) in chains::load(self.new)? {
            let Some(row) = chain.row.filter(|_| id.writer == device) else {
                continue;
            };
            let last = newest.entry(id.doc).or_insert((row, id, 0));
            if row >= last.0 {
                (last.0, last.1) = (row, id);
            }
            last.2 = last.2.max(chain.last_no.saturating_add(1));
        }
        for (doc, (_, id, next)) in newest {
            put(
                self.new,
                "INSERT OR IGNORE INTO own_docs(doc, incarnation, next_no) VALUES (?1, ?2, ?3)",
                params![doc.to_bytes(), id.incarnation.0, int(next)],
            )?;
        }
        Ok(())
    }
}

/// Damaged bytes have no hash of their own that anything refers to.
pub(super) fn random_hash(bytes: &[u8]) -> Hash {
    use sha2::Digest as _;
    Hash(sha2::Sha256::digest(bytes).into())
}

pub(super) fn put(
    db: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<()> {
    db.prepare_cached(sql)?.execute(values).map(drop)
}

fn count(db: &Connection, table: &str) -> rusqlite::Result<u64> {
    db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
        row.get(0).map(uint)
    })
}

fn entries_in_journal(db: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(sum(max(count, 1)), 0) FROM journal";
    db.query_row(sql, [], |row| row.get(0).map(uint))
}

fn seqs(db: &Connection, row: i64) -> rusqlite::Result<Vec<u64>> {
    let mut statement =
        db.prepare_cached("SELECT seq FROM envelopes WHERE chain = ?1 ORDER BY seq")?;
    statement
        .query_map([row], |row| row.get(0).map(uint))?
        .collect()
}

/// Copies a table's rows as they are, those columns that both have. `None` where
/// the old database has no such table.
fn copy_table(old: &Connection, new: &Connection, table: &str) -> rusqlite::Result<Option<Extent>> {
    let columns = |db: &Connection| -> rusqlite::Result<Vec<(String, i64)>> {
        let mut statement = db.prepare("SELECT name, pk FROM pragma_table_info(?1)")?;
        let rows = statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    let known: Vec<String> = columns(old)?.into_iter().map(|(name, _)| name).collect();
    let all = columns(new)?;
    let mut keys: Vec<&(String, i64)> = all.iter().filter(|(_, pk)| *pk > 0).collect();
    keys.sort_by_key(|(_, pk)| *pk);
    let both: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let both: Vec<&str> = both
        .into_iter()
        .filter(|name| known.iter().any(|it| it == name))
        .collect();
    if both.is_empty() {
        return Ok(None);
    }
    let mut key: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
    if key.is_empty() {
        key.push("rowid");
    }
    let (up, down) = (key.join(", "), key.join(" DESC, ") + " DESC");
    let marks: Vec<String> = (1..=both.len()).map(|at| format!("?{at}")).collect();
    let insert = format!(
        "INSERT OR IGNORE INTO {table}({}) VALUES ({})",
        both.join(", "),
        marks.join(", ")
    );
    let extent = keyed(old, table, &both.join(", "), (&up, &down), &mut |row| {
        let values: Vec<rusqlite::types::Value> = (1..=both.len())
            .map(|at| row.get(at))
            .collect::<rusqlite::Result<_>>()?;
        put(new, &insert, rusqlite::params_from_iter(values))
    })?;
    Ok(Some(extent))
}
