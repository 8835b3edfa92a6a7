//! What comes from other devices: checked in full before anything of it is
//! believed, and stored as the very bytes that were signed.
//!
//! Order: size and form, account, membership, signature, place in the chain,
//! caps, key, body, inflated size, actor, change, entries. The bytes of a
//! member that are in their place are kept whatever the body holds, so that a
//! bad one is refused once and not for ever.

mod back;
mod caps;
mod misuse;
mod opening;
mod record;

use bailey_envelope::{
    ChainId, DecodeError, DevicePublic, DocId, Hash, Header, Kind, MAX_ENVELOPE, Tombstone,
    Verified, peek, verify,
};
use bailey_model::{AccountId, DeviceId, Entry, Timestamp};
use rusqlite::{Connection, TransactionBehavior};

use crate::account::{Act, Record};
use crate::chains::{self, Chain, Stored};
use crate::db::DbError;
use crate::error::{Fork, IngestError, QuarantineReason};
use crate::keys::{KeyRecord, store_epoch, store_wraps};
use crate::spans::{self, Span};
use crate::store::{Store, put_served};
use crate::thin::{Noted, tables};

pub(crate) use back::Successors;
pub(crate) use caps::{MAX_OF_KIND, MAX_RECORDS};
pub(crate) use misuse::Misuses;
pub use misuse::{HowMisused, Misuse};
use opening::{Opener, Opening};
pub(crate) use opening::{SegmentCache, apply, check_numbers};

/// Most envelopes opened at once when a key arrives, so that one call stays
/// short.
const MAX_OPENED: usize = 256;

/// What came of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// Its chain.
    pub chain: ChainId,
    /// Its number.
    pub seq: u64,
    /// Whether it is new.
    pub outcome: Outcome,
    /// Entries that can be read now: its own, or those of envelopes that had
    /// waited for the key that it brought.
    pub opened: Vec<Opened>,
    /// Whether the account's members are others now.
    pub members_changed: bool,
    /// Whether its writer went back behind what it had written before: it was
    /// restored from a copy. Both chains stay.
    pub restored: bool,
}

/// Whether an envelope is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Stored and read.
    New,
    /// Stored; it is read when its key comes.
    Waiting,
    /// It was here already.
    Duplicate,
    /// A tombstone: its chain goes on after it.
    Thinned,
}

/// Entries of a chain, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The chain.
    pub chain: ChainId,
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Store {
    /// Takes an envelope from another device.
    ///
    /// # Errors
    /// [`IngestError`] says why not, and what would help. After
    /// [`IngestError::Quarantined`] the chain's head has moved on all the same.
    pub fn ingest(&mut self, bytes: &[u8], now: Timestamp) -> Result<Ingested, IngestError> {
        if bytes.len() > MAX_ENVELOPE {
            return Err(IngestError::TooLarge(bytes.len()));
        }
        if Tombstone::is_one(bytes) {
            return self.ingest_tombstone(bytes, now);
        }
        let header = peek(bytes).map_err(|error| match error {
            DecodeError::TooLarge(len) => IngestError::TooLarge(len),
            error => IngestError::Malformed(error),
        })?;
        let account = self.account().ok_or(IngestError::NoAccount)?;
        if header.fields.account != account {
            return Err(IngestError::OtherAccount);
        }
        // What is kept on one device alone comes from no other.
        if header.fields.chain.doc.is_here() {
            return Err(IngestError::Malformed(DecodeError::Field("doc")));
        }
        let writer = self.writer_of(&header, bytes)?;
        let verified = verify(bytes, &writer).map_err(IngestError::BadSignature)?;
        let Some(chain) = self.place(&verified, bytes, now)? else {
            return Ok(Ingested {
                chain: header.fields.chain,
                seq: header.fields.seq,
                outcome: Outcome::Duplicate,
                opened: Vec::new(),
                members_changed: false,
                restored: false,
            });
        };
        let restored = self.went_back(&header.fields, &chain)?;
        let ingested = match header.fields.chain.doc {
            DocId::Account => self.ingest_record(chain, &verified, bytes, now),
            DocId::Keys => self.ingest_keys(chain, &verified, bytes, now),
            _ => self.ingest_entries(chain, &verified, bytes, now),
        }?;
        Ok(Ingested {
            restored,
            ..ingested
        })
    }

    /// The keys of an envelope's writer: a member's, or those of the genesis
    /// whose hash the account's id is.
    fn writer_of(&self, header: &Header, bytes: &[u8]) -> Result<DevicePublic, IngestError> {
        let writer = header.fields.chain.writer;
        // Records are judged by the rules, whoever signed them; entries of a device that
        // was removed came to a member before that, or by one that had not heard.
        let known = match header.fields.chain.doc {
            DocId::Account => self.members().signer(&writer),
            _ => self.members().writer(&writer),
        };
        if let Some(public) = known {
            return Ok(*public);
        }
        let not_member = IngestError::NotMember(writer);
        if header.fields.chain.doc != DocId::Account || !self.members().is_empty() {
            return Err(not_member);
        }
        let body = Verified::from_stored(bytes).map_err(IngestError::BadSignature)?;
        let body = body.plain().map_err(|_| IngestError::NotMember(writer))?;
        let record = Record::decode(body)?;
        record.check(&header.fields)?;
        match record.act {
            Act::Genesis(genesis) => Ok(genesis.first),
            _ => Err(not_member),
        }
    }

    /// Where an envelope goes: the chain it follows, or `None` if it is here
    /// already.
    fn place(
        &self,
        verified: &Verified<'_>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Option<Chain>, IngestError> {
        let fields = &verified.header.fields;
        let id = fields.chain;
        let chain = self.chains.get(&id).copied().unwrap_or(Chain::EMPTY);
        if fields.seq <= chain.seq {
            let ours = chain
                .row
                .map(|row| chains::hash_at(&self.db, row, fields.seq))
                .transpose()?;
            let Some(ours) = ours.flatten() else {
                // It was thinned; whoever still has it may keep it.
                return Ok(None);
            };
            if ours == verified.hash {
                return Ok(None);
            }
            let fork = (fields.seq, ours, verified.hash);
            return Err(self.fork(verified, bytes, fork, now)?);
        }
        if (id.writer, id.incarnation) == (self.device, self.incarnation) {
            return Err(IngestError::Misfit("written under this start's own name"));
        }
        if fields.seq > chain.seq + 1 {
            return Err(IngestError::Gap {
                chain: id,
                have: chain.seq,
                found: fields.seq,
            });
        }
        if fields.seq > 1 && fields.prev != chain.hash {
            // That hash may be no word of the writer's.
            if self.goes_on_from_another(&chain)? {
                return Err(IngestError::Misfit(
                    "what follows a tombstone of another device",
                ));
            }
            // It names the other one, and so is proof of it.
            let fork = (chain.seq, chain.hash, fields.prev);
            return Err(self.fork(verified, bytes, fork, now)?);
        }
        self.check_caps(&chain, &verified.header)?;
        Ok(Some(chain))
    }

    fn fork(
        &self,
        verified: &Verified<'_>,
        bytes: &[u8],
        (seq, ours, theirs): (u64, Hash, Hash),
        now: Timestamp,
    ) -> Result<IngestError, IngestError> {
        let chain = verified.header.fields.chain;
        let kept = chains::keep_fork(&self.db, &chain.writer, &verified.hash, bytes, now)?;
        Ok(IngestError::Fork(Box::new(Fork {
            chain,
            seq,
            ours,
            theirs,
            kept,
        })))
    }

    fn ingest_keys(
        &mut self,
        mut chain: Chain,
        verified: &Verified<'_>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let fields = verified.header.fields;
        let body = verified.plain().map_err(|_| IngestError::Misfit("suite"))?;
        let record = KeyRecord::decode(body)?;
        chain.opened = fields.seq;
        let device = self.device;
        let mut arrived = false;
        let stamp = self.thin.mark().max(now);
        self.keep(chain, verified, bytes, now, |db, _| {
            let writer = fields.chain.writer;
            arrived = !store_wraps(db, &record, &writer, &device)?.is_empty();
            if let Some(epoch) = handed_up_to(&record, &writer, &device) {
                put_served(db, &writer, epoch)?;
            }
            match &record.epoch {
                Some(epoch) => {
                    tables::note_epoch(db, &fields.chain.writer, epoch, record.hours, stamp)?;
                    match fields.chain.writer == device {
                        true => store_epoch(db, epoch),
                        false => Ok(()),
                    }
                }
                None => Ok(()),
            }
        })?;
        if fields.chain.writer == device && record.epoch.is_some() {
            self.owe_epoch(&record, now);
        }
        let mut ingested = Ingested::new(&fields.chain, fields.seq, Outcome::New);
        if arrived {
            self.keys_came = true;
            ingested.opened = self.open_waiting(now)?;
        }
        Ok(ingested)
    }

    /// An epoch of another life of this device came back to it. Whoever was handed its
    /// keys meanwhile lacks this one, unless its own record handed it on.
    fn owe_epoch(&mut self, record: &KeyRecord, now: Timestamp) {
        let has = |device: &DeviceId| record.wraps.iter().any(|it| it.recipient == *device);
        let handed = self.handed.iter().copied();
        let lack: Vec<DeviceId> = handed.filter(|device| !has(device)).collect();
        self.unhand(&lack);
        // What cannot be handed out now is owed, and each sealing tries and reports it.
        drop(self.settle(now));
    }

    fn ingest_entries(
        &mut self,
        mut chain: Chain,
        verified: &Verified<'_>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let fields = verified.header.fields;
        let id = fields.chain;
        let account = self.account().ok_or(IngestError::NoAccount)?;
        let mut hours = 0;
        let opening = if chain.opened == chain.seq {
            let Self {
                db,
                ring,
                cache,
                misuses,
                ..
            } = self;
            let mut opener = Opener {
                db,
                account,
                ring,
                cache,
                misuses,
                hours: 0,
                now: None,
            };
            let opening = opener.open(&id, &mut chain, verified)?;
            hours = opener.hours;
            opening
        } else {
            Opening::Waiting
        };
        let noted = Noted {
            segment: fields.segment,
            key_id: verified.header.key_id,
            hours,
            seq: fields.seq,
            stamp: self.thin.mark().max(now),
            closed: fields.kind == Kind::Closed,
        };
        let (hash, reason, span) = (verified.hash, opening.reason(), opening.span());
        let kept = self.keep(chain, verified, bytes, now, |db, row| {
            tables::note(db, row, &noted)?;
            if let Some(span) = &span {
                spans::add(db, row, fields.segment, span)?;
            }
            match &reason {
                Some(reason) => chains::quarantine(db, &hash, &[], &reason.to_string(), now),
                None => Ok(()),
            }
        });
        if let Err(error) = kept {
            self.cache.forget(&id);
            return Err(error.into());
        }
        let mut ingested = Ingested::new(&id, fields.seq, Outcome::New);
        match opening {
            Opening::Entries(entries) => {
                self.note_opened(&id, &entries, now)?;
                ingested.opened.push(Opened { chain: id, entries });
            }
            Opening::Waiting => ingested.outcome = Outcome::Waiting,
            Opening::Aside(reason) => {
                return Err(IngestError::Quarantined {
                    chain: id,
                    seq: fields.seq,
                    reason,
                });
            }
        }
        Ok(ingested)
    }

    /// Stores an envelope and moves its chain on, with what goes with it, in
    /// one transaction.
    fn keep(
        &mut self,
        chain: Chain,
        verified: &Verified<'_>,
        bytes: &[u8],
        now: Timestamp,
        also: impl FnOnce(&Connection, i64) -> rusqlite::Result<()>,
    ) -> Result<(), DbError> {
        let fields = &verified.header.fields;
        let chain = Chain {
            seq: fields.seq,
            hash: verified.hash,
            segment: fields.segment,
            key_id: verified.header.key_id,
            ..chain
        };
        self.set_durable(false)?;
        self.unsynced = true;
        // A transaction of its own, or a part of a join's.
        let tx = self.db.savepoint()?;
        let chain = chains::put(&tx, &fields.chain, &chain)?;
        let stored = Stored {
            lasts: fields.chain.doc.box_id().is_none(),
            seq: fields.seq,
            segment: fields.segment,
            hash: verified.hash,
            received: now,
            bytes,
        };
        chains::put_envelope(&tx, chain.row, &stored)?;
        also(&tx, chain.row.ok_or(rusqlite::Error::InvalidQuery)?)?;
        tx.commit()?;
        self.chains.insert(fields.chain, chain);
        Ok(())
    }

    /// Opens envelopes that waited for a key which is here now, or behind one that will
    /// not come: at most 256 a call. Call again until it gives nothing.
    ///
    /// # Errors
    /// [`IngestError::Db`].
    pub fn open_waiting(&mut self, now: Timestamp) -> Result<Vec<Opened>, IngestError> {
        // Nothing but a key that came opens what its absence held up.
        let (Some(account), true) = (self.account(), self.keys_came) else {
            return Ok(Vec::new());
        };
        let waiting: Vec<(ChainId, Chain)> = self
            .chains
            .iter()
            .filter(|(_, chain)| chain.opened < chain.seq)
            .map(|(id, chain)| (*id, *chain))
            .collect();
        let mut opened = Vec::new();
        let mut budget = MAX_OPENED;
        for (id, mut chain) in waiting {
            let entries = self.open_chain(account, &id, &mut chain, &mut budget, now)?;
            if !entries.is_empty() {
                self.note_opened(&id, &entries, now)?;
                opened.push(Opened { chain: id, entries });
            }
        }
        self.keys_came = budget == 0;
        Ok(opened)
    }

    /// Keys that were seen to be misused and were not told of yet, once of each writer and
    /// way in a start.
    #[must_use]
    pub fn take_misuses(&mut self) -> Vec<Misuse> {
        self.misuses.take()
    }

    /// Has the next [`Self::open_waiting`] look at all that waits, though no key came:
    /// with time, what waits in vain is passed over.
    pub fn look_again(&mut self) {
        self.keys_came = true;
    }

    fn open_chain(
        &mut self,
        account: AccountId,
        id: &ChainId,
        chain: &mut Chain,
        budget: &mut usize,
        now: Timestamp,
    ) -> Result<Vec<Entry>, DbError> {
        let (before, mark) = (chain.opened, self.thin.mark().max(now));
        let mut all = Vec::new();
        let mut new = OpenedNew::default();
        while let (true, Some(row)) = (chain.opened < chain.seq && *budget > 0, chain.row) {
            let Some(bytes) = chains::envelope(&self.db, row, chain.opened + 1)? else {
                break;
            };
            let Ok(verified) = Verified::from_stored(&bytes) else {
                break;
            };
            let Self {
                db,
                ring,
                cache,
                misuses,
                ..
            } = self;
            let mut opener = Opener {
                db,
                account,
                ring,
                cache,
                misuses,
                hours: 0,
                now: Some(mark),
            };
            let opening = opener.open(id, chain, &verified)?;
            if opener.hours > 0 {
                new.hours
                    .push((verified.header.fields.segment, opener.hours));
            }
            match opening {
                Opening::Waiting => break,
                Opening::Entries(entries) => {
                    let span = Span::of_entries(&entries);
                    let segment = verified.header.fields.segment;
                    new.spans.extend(span.map(|span| (segment, span)));
                    all.extend(entries);
                }
                Opening::Aside(reason) => new.aside.push((verified.hash, reason)),
            }
            *budget -= 1;
        }
        if chain.opened > before {
            let stored = self.store_opened(id, chain, &new, now);
            if stored.is_err() {
                self.cache.forget(id);
            }
            stored?;
        }
        Ok(all)
    }

    fn store_opened(
        &mut self,
        id: &ChainId,
        chain: &Chain,
        new: &OpenedNew,
        now: Timestamp,
    ) -> Result<(), DbError> {
        self.set_durable(false)?;
        self.unsynced = true;
        let tx = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let row = chains::put(&tx, id, chain)?.row;
        for (segment, span) in &new.spans {
            spans::add(
                &tx,
                row.ok_or(rusqlite::Error::InvalidQuery)?,
                *segment,
                span,
            )?;
        }
        for (segment, hours) in &new.hours {
            let row = row.ok_or(rusqlite::Error::InvalidQuery)?;
            tables::note_hours(&tx, row, *segment, *hours)?;
        }
        for (hash, reason) in &new.aside {
            chains::quarantine(&tx, hash, &[], &reason.to_string(), now)?;
        }
        tx.commit()?;
        self.chains.insert(*id, *chain);
        Ok(())
    }

    /// Entries that can be read now, and were not before.
    fn note_opened(
        &mut self,
        id: &ChainId,
        entries: &[Entry],
        now: Timestamp,
    ) -> Result<(), DbError> {
        self.note_own(id, entries);
        match id.doc {
            DocId::Days => self.note_thinned(id.writer, entries, now),
            _ => Ok(()),
        }
    }

    /// Entries of an earlier life of this very device: their numbers are used.
    /// Once this start has numbered entries itself its own count goes on, since
    /// a chain has no holes; the next start begins after both.
    fn note_own(&mut self, id: &ChainId, entries: &[Entry]) {
        if id.writer != self.device || self.has_numbered(id.doc) {
            return;
        }
        if let Some(last) = entries.last() {
            let doc = self
                .docs
                .entry(id.doc)
                .or_insert_with(crate::own::OwnDoc::new);
            doc.next_no = doc.next_no.max(last.no.saturating_add(1));
        }
    }
}

/// Up to which epoch a record ends the handing over of a writer's epochs to a device. A
/// device that comes is handed all that are not forgotten, in the order of their
/// numbers, by records that begin none.
fn handed_up_to(record: &KeyRecord, writer: &DeviceId, device: &DeviceId) -> Option<u32> {
    if record.epoch.is_some() {
        return None;
    }
    let own = record.wraps.iter();
    let own = own.filter(|wrap| (wrap.writer, wrap.recipient) == (*writer, *device));
    own.map(|wrap| wrap.epoch).max()
}

/// What came of opening envelopes that had waited.
#[derive(Debug, Default)]
struct OpenedNew {
    spans: Vec<(u32, Span)>,
    hours: Vec<(u32, u32)>,
    aside: Vec<(Hash, QuarantineReason)>,
}

impl Ingested {
    pub(crate) fn new(chain: &ChainId, seq: u64, outcome: Outcome) -> Self {
        Self {
            chain: *chain,
            seq,
            outcome,
            opened: Vec::new(),
            members_changed: false,
            restored: false,
        }
    }
}

#[cfg(test)]
mod tests;
