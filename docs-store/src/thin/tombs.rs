//! Tombstones: how one takes the place of what was dropped here, how it is handed
//! to a device that asks for that, and how that device goes on after it.

use bailey_envelope::{ChainId, DocId, Hash, Header, KeyId, Tombstone, peek};
use bailey_model::Timestamp;
use rusqlite::{Connection, TransactionBehavior};

use super::tables::{self, Grave, Row};
use super::{Early, HOUR_MS};
use crate::chains::{self, Chain};
use crate::db::DbError;
use crate::error::IngestError;
use crate::ingest::{Ingested, Outcome};
use crate::store::Store;

/// How far clocks of honest devices may be apart before one says of another that it
/// dropped something early: a day, and what a segment takes to close.
const SLACK_MS: u64 = 25 * HOUR_MS;
/// The shortest window that a tombstone is believed.
const LEAST_HOURS: u32 = 24;

/// As [`chains::range`], with tombstones in the place of what is gone.
pub(crate) fn range(
    db: &Connection,
    row: i64,
    from_seq: u64,
    max_count: usize,
    max_bytes: usize,
) -> rusqlite::Result<Vec<Vec<u8>>> {
    let (mut found, mut next, mut bytes) = (Vec::new(), from_seq, 0_usize);
    loop {
        let left = max_count.saturating_sub(found.len());
        if left == 0 || (bytes >= max_bytes && !found.is_empty()) {
            return Ok(found);
        }
        let room = max_bytes.saturating_sub(bytes);
        let Some(grave) = tables::grave_from(db, row, next)? else {
            found.extend(chains::range(db, row, next, left, room)?);
            return Ok(found);
        };
        if grave.first_seq <= next {
            bytes += grave.bytes.len();
            next = grave.last_seq.saturating_add(1);
            found.push(grave.bytes);
            continue;
        }
        let until = usize::try_from(grave.first_seq - next).unwrap_or(usize::MAX);
        let some = chains::range(db, row, next, left.min(until), room)?;
        let all = some.len() == until;
        bytes += some.iter().map(Vec::len).sum::<usize>();
        found.extend(some);
        if !all {
            return Ok(found);
        }
        next = grave.first_seq;
    }
}

/// What a tombstone says beyond the numbers of envelopes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Says {
    pub(super) first_no: u64,
    pub(super) last_no: u64,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) hours: u32,
}

impl Store {
    /// A tombstone of this device's for envelopes of a chain, joined with what stands
    /// beside it; `None` where one stands for them already.
    pub(super) fn stone(
        &self,
        id: &ChainId,
        row: &Row,
        says: Says,
        now: Timestamp,
    ) -> Result<Option<Grave>, DbError> {
        let db = &self.db;
        let there = tables::grave_from(db, row.chain, row.first_seq)?;
        if there
            .is_some_and(|there| there.first_seq <= row.first_seq && there.last_seq >= row.last_seq)
        {
            return Ok(None);
        }
        let (mut it, mut entries) = self.lone_stone(id, row, says, now)?;
        for there in tables::graves(db, row.chain)? {
            let before = there.last_seq.checked_add(1) == Some(it.first_seq);
            let after = it.last_seq.checked_add(1) == Some(there.first_seq);
            let beside = Tombstone::decode(&there.bytes).ok();
            let Some(beside) = beside.filter(|_| before || after) else {
                continue;
            };
            entries += there.entries;
            join(&mut it, &beside, before);
        }
        if it.first_seq > 1 && it.prev == Hash::NONE {
            // Its first envelope does not read: what came before is known by number.
            let known = chains::hash_at(db, row.chain, it.first_seq - 1)?;
            it.prev = known.unwrap_or(it.last);
        }
        let bytes = it.sign(&self.keys).ok_or(rusqlite::Error::InvalidQuery)?;
        let mut grave = grave_of(&it, bytes, self.thin.mark());
        grave.entries = entries;
        Ok(Some(grave))
    }

    /// One that is joined with nothing, and how many entries it stands for.
    fn lone_stone(
        &self,
        id: &ChainId,
        row: &Row,
        says: Says,
        now: Timestamp,
    ) -> Result<(Tombstone, u64), DbError> {
        let db = &self.db;
        let last = chains::hash_at(db, row.chain, row.last_seq)?;
        let first = header(db, row.chain, row.first_seq)?;
        let sealed = header(db, row.chain, row.last_seq)?;
        let sealed = sealed.map(|header| (header.epoch, header.key_id));
        let plain = id.doc.is_plain();
        let (epoch, key_id) = sealed.unwrap_or((u32::from(!plain), KeyId([0; 32])));
        let entries = match says.first_no {
            0 => 0,
            first => says.last_no.saturating_sub(first) + 1,
        };
        let it = Tombstone {
            account: self.account().ok_or(rusqlite::Error::InvalidQuery)?,
            chain: *id,
            signer: self.device,
            segment: row.segment,
            first_seq: row.first_seq,
            prev: first.map_or(Hash::NONE, |header| header.fields.prev),
            last_seq: row.last_seq,
            last: last.ok_or(rusqlite::Error::InvalidQuery)?,
            first_no: says.first_no,
            last_no: says.last_no,
            from: says.from.min(says.to),
            to: says.to,
            hours: says.hours,
            epoch,
            key_id,
            made: now,
        };
        Ok((it, entries))
    }

    /// Takes a tombstone from another device. It never drops anything that is here;
    /// what is not here is passed over once its window is over by this device's own
    /// clock too.
    pub(crate) fn ingest_tombstone(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let account = self.account().ok_or(IngestError::NoAccount)?;
        let claimed = Tombstone::decode(bytes).map_err(IngestError::Malformed)?;
        if claimed.account != account {
            return Err(IngestError::OtherAccount);
        }
        let public = |device| {
            let known = self.members().writer(&device).copied();
            known.ok_or(IngestError::NotMember(device))
        };
        public(claimed.chain.writer)?;
        let signer = public(claimed.signer)?;
        let it = Tombstone::verify(bytes, &signer).map_err(IngestError::BadSignature)?;
        if it.chain.doc == DocId::Account {
            return Err(IngestError::Misfit(
                "a tombstone among the account's records",
            ));
        }
        let known = self.chains.get(&it.chain).copied();
        let chain = known.unwrap_or(Chain::EMPTY);
        if it.last_seq <= chain.seq {
            if let Some(row) = chain.row {
                self.look_at_early(&it, row, now)?;
            }
            return Ok(Ingested::new(&it.chain, it.last_seq, Outcome::Duplicate));
        }
        if it.first_seq > chain.seq + 1 {
            return Err(IngestError::Gap {
                chain: it.chain,
                have: chain.seq,
                found: it.first_seq,
            });
        }
        let own = (it.chain.writer, it.chain.incarnation) == (self.device, self.incarnation);
        let parts = it.first_seq == chain.seq + 1 && chain.seq > 0 && it.prev != chain.hash;
        if own || parts {
            return Err(IngestError::Misfit("tombstone"));
        }
        // What a writer says of its own entries is its own loss.
        let least = match it.signer == it.chain.writer {
            true => LEAST_HOURS,
            false => self.thin.windows.effective(it.chain.doc, 0),
        };
        let over = window_ends(it.to, it.hours.max(least));
        if now.0.saturating_add(SLACK_MS) < over.0 {
            self.thin.tell_early(Early {
                by: it.signer,
                chain: it.chain,
                segment: it.segment,
                to: it.to,
                until: over,
            });
            return Err(IngestError::EarlyTombstone(it.signer));
        }
        self.pass_over(&it, chain, bytes)?;
        Ok(Ingested::new(&it.chain, it.last_seq, Outcome::Thinned))
    }

    /// Whether a chain ends in a tombstone that is not its writer's.
    pub(crate) fn goes_on_from_another(&self, chain: &Chain) -> Result<bool, DbError> {
        let Some(row) = chain.row else {
            return Ok(false);
        };
        let grave = tables::grave_from(&self.db, row, chain.seq)?;
        let it = grave.and_then(|grave| Tombstone::decode(&grave.bytes).ok());
        Ok(it.is_some_and(|it| it.signer != it.chain.writer))
    }

    /// The chain goes on after what a tombstone stands for.
    fn pass_over(&mut self, it: &Tombstone, chain: Chain, bytes: &[u8]) -> Result<(), IngestError> {
        let after = Chain {
            seq: it.last_seq,
            hash: it.last,
            segment: it.segment,
            key_id: it.key_id,
            opened: it.last_seq,
            open_segment: it.segment,
            last_no: chain.last_no.max(it.last_no),
            broken: None,
            ..chain
        };
        let grave = grave_of(it, bytes.to_vec(), self.thin.mark());
        self.set_durable(false)?;
        self.unsynced = true;
        let tx = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let after = chains::put(&tx, &it.chain, &after)?;
        let row = after.row.ok_or(rusqlite::Error::InvalidQuery)?;
        tables::put_grave(&tx, row, &grave)?;
        tx.commit()?;
        self.cache.forget(&it.chain);
        self.chains.insert(it.chain, after);
        Ok(())
    }

    /// Notes if a device says that it dropped what it should still have.
    fn look_at_early(
        &mut self,
        it: &Tombstone,
        row: i64,
        now: Timestamp,
    ) -> Result<(), IngestError> {
        let held = tables::held(&self.db, row, it.first_seq, it.last_seq)?;
        for (segment, hours, to) in held {
            self.look_at(it.signer, it.chain, (segment, hours, to), now);
        }
        Ok(())
    }

    /// Notes it, if the window of a segment that is held here is not over.
    pub(super) fn look_at(
        &mut self,
        by: bailey_model::DeviceId,
        chain: ChainId,
        (segment, hours, to): (u32, u32, Timestamp),
        now: Timestamp,
    ) {
        let hours = self.thin.windows.effective(chain.doc, hours);
        let until = window_ends(to, hours);
        if by != self.device && now.0.saturating_add(SLACK_MS) < until.0 {
            self.thin.tell_early(Early {
                by,
                chain,
                segment,
                to,
                until,
            });
        }
    }
}

/// Makes a tombstone stand for what the one beside it stands for too.
fn join(it: &mut Tombstone, beside: &Tombstone, before: bool) {
    if before {
        (it.first_seq, it.prev) = (beside.first_seq, beside.prev);
    } else {
        (it.last_seq, it.last) = (beside.last_seq, beside.last);
        (it.segment, it.epoch, it.key_id) = (beside.segment, beside.epoch, beside.key_id);
    }
    if beside.first_no > 0 {
        let none = it.first_no == 0;
        it.first_no = if none {
            beside.first_no
        } else {
            it.first_no.min(beside.first_no)
        };
        it.from = if none {
            beside.from
        } else {
            it.from.min(beside.from)
        };
    }
    it.last_no = it.last_no.max(beside.last_no);
    it.to = it.to.max(beside.to);
    it.hours = it.hours.max(beside.hours);
}

fn grave_of(it: &Tombstone, bytes: Vec<u8>, stamp: Timestamp) -> Grave {
    Grave {
        first_seq: it.first_seq,
        last_seq: it.last_seq,
        last_hash: it.last,
        entries: match it.first_no {
            0 => 0,
            first => it.last_no - first + 1,
        },
        last_no: it.last_no,
        from: it.from,
        to: it.to,
        days_no: 0,
        stamp,
        bytes,
    }
}

/// When a window is over.
pub(super) fn window_ends(from: Timestamp, hours: u32) -> Timestamp {
    Timestamp(from.0.saturating_add(u64::from(hours) * HOUR_MS))
}

fn header(db: &Connection, row: i64, seq: u64) -> rusqlite::Result<Option<Header>> {
    let bytes = chains::envelope(db, row, seq)?;
    Ok(bytes.and_then(|bytes| peek(&bytes).ok()))
}
