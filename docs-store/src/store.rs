//! The store, for the one thread that writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bailey_envelope::{ChainId, DeviceKeys, DocId, Fields, Hash, Head, Kind};
use bailey_model::{AccountId, DeviceId, Entry, Event, Incarnation, Timestamp};
use rusqlite::{Connection, TransactionBehavior};

use crate::account::{Held, Members, Node, Records};
use crate::chains::{self, Chain, Stored};
use crate::db::{self, DbError};
use crate::durable::Doubt;
use crate::entropy::{Entropy, random};
use crate::error::{AppendError, BuildError, CommitError, OpenError, ReadError};
use crate::ingest::{SegmentCache, Successors};
use crate::journal::{self, JournalRow, Pending};
use crate::keys::{self, KeyRing};
use crate::lock::{Lock, LockError};
use crate::mail::MailKeys;
use crate::own::{self, Built, Carries, OwnDoc, Unsealed};
use crate::schema;
use crate::sealing::Current;
use crate::spans;
use crate::thin::{self, Thinning, tables, tombs};

mod account;
mod join;
mod membership;
mod meta;
mod recover;

pub(crate) use account::SEED_FILE;
pub(crate) use account::node_of;
pub(crate) use meta::{
    drop_mark, has_mark, members_stored, put_account, put_served, served, stored_account,
};
use meta::{load_account, load_handed, put_handed};

/// Most entries appended and not committed: what arrives in one turn of the
/// node's loop is far below.
const MAX_PENDING: usize = 65_536;
/// Most entries committed and not sealed, over all documents: reached only if
/// the disk has taken no envelope for long.
const MAX_UNSEALED: usize = 262_144;

/// How soon an entry should reach other devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// With its batch.
    Normal,
    /// On its way to other devices within 20 ms, and everything that waits with
    /// it; on the disk with the next commit that is.
    Prompt,
    /// As prompt, and on the disk at once: a notice comes with the entries that
    /// raised it.
    Urgent,
}

/// The account as this store knows it.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) records: Records,
    pub(crate) members: Members,
    /// Where chains of its document end for others.
    pub(crate) held: Held,
}

impl Account {
    /// An account of which no record is here.
    pub(crate) fn new(id: AccountId) -> Self {
        Self {
            id,
            records: Records::new(id),
            members: Members::default(),
            held: Held::new(),
        }
    }

    /// Takes records into account, as a device sees them.
    pub(crate) fn count(&mut self, nodes: impl IntoIterator<Item = Node>, viewer: DeviceId) {
        self.records.extend(nodes);
        (self.members, self.held) = self.records.members(viewer);
    }
}

/// The store of one device. One process has it open at a time; one thread of
/// it uses it.
pub struct Store {
    pub(crate) db: Connection,
    pub(crate) dir: PathBuf,
    pub(crate) keys: DeviceKeys,
    pub(crate) device: DeviceId,
    pub(crate) incarnation: Incarnation,
    pub(crate) entropy: Box<dyn Entropy>,
    pub(crate) account: Option<Account>,
    pub(crate) nobody: Members,
    pub(crate) chains: BTreeMap<ChainId, Chain>,
    pub(crate) docs: BTreeMap<DocId, OwnDoc>,
    pub(crate) ring: KeyRing,
    /// The epochs that are sealed under now, by the hours of their windows.
    pub(crate) epochs: BTreeMap<u32, Current>,
    pub(crate) handed: BTreeSet<DeviceId>,
    pub(crate) unsaved: Vec<Built>,
    pub(crate) urgent_since: Option<Timestamp>,
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) cache: SegmentCache,
    /// Keys that others misused.
    pub(crate) misuses: crate::ingest::Misuses,
    pub(crate) thin: Thinning,
    pub(crate) successors: Successors,
    pub(crate) mail: MailKeys,
    /// Whether what waits for a key may open: one came, or was here at the start.
    pub(crate) keys_came: bool,
    pub(crate) unsealed: usize,
    /// Whether something is committed that a power cut could take.
    pub(crate) unsynced: bool,
    /// Whether a failed sync left the log in doubt.
    pub(crate) doubt: Doubt,
    /// Whether the next commit is synced.
    pub(crate) syncs: bool,
    pending: Pending,
    // Last: the database is closed before the lock is let go.
    _lock: Lock,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.dir)
            .field("device", &self.device)
            .field("incarnation", &self.incarnation)
            .field("chains", &self.chains.len())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in a folder, or makes an empty one, and begins a new
    /// incarnation of this device. What a crash left in the journal is sealed
    /// first, under its old numbers.
    ///
    /// # Errors
    /// [`OpenError`]: in use (with the pid), damaged, or made by a newer
    /// version. A damaged store is never replaced by an empty one.
    pub fn open(
        dir: &Path,
        keys: DeviceKeys,
        now: Timestamp,
        mut entropy: Box<dyn Entropy>,
    ) -> Result<Self, OpenError> {
        db::create_folder(dir)?;
        let lock_path = dir.join("store.lock");
        let lock = Lock::take(&lock_path).map_err(|error| match error {
            LockError::Held(pid) => OpenError::InUse { pid },
            LockError::Io(source) => OpenError::Lock {
                path: lock_path.clone(),
                source,
            },
        })?;
        db::create(dir, lock.used)?;
        let db = db::open_writer(dir)?;
        let chains = chains::load(&db)?;
        let account = load_account(&db, &chains, keys.id())?;
        let handed = load_handed(&db, account.as_ref())?;
        let thin = Thinning::load(&db, &account)?;
        let incarnation = Incarnation(random(entropy.as_mut())?);
        let mut store = Self {
            db,
            dir: dir.to_owned(),
            device: keys.id(),
            ring: KeyRing::new(keys.clone()),
            keys,
            incarnation,
            entropy,
            account,
            nobody: Members::default(),
            chains,
            docs: BTreeMap::new(),
            epochs: BTreeMap::new(),
            handed,
            unsaved: Vec::new(),
            urgent_since: None,
            retry_at: None,
            cache: SegmentCache::default(),
            misuses: crate::ingest::Misuses::default(),
            thin,
            successors: Successors::default(),
            mail: MailKeys::default(),
            keys_came: true,
            pending: Pending::default(),
            unsealed: 0,
            // What another process left in the log may not be on the disk yet.
            unsynced: true,
            doubt: Doubt::default(),
            syncs: false,
            _lock: lock,
        };
        store.count_old_segments()?;
        thin::note_old(&mut store.db)?;
        store.load_own_docs()?;
        store.recover_journal(now)?;
        Ok(store)
    }

    /// This device.
    #[must_use]
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// This start of it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The account, once there is one.
    #[must_use]
    pub fn account(&self) -> Option<AccountId> {
        self.account.as_ref().map(|account| account.id)
    }

    /// Who is a member, by the records that are here.
    #[must_use]
    pub fn members(&self) -> &Members {
        self.account
            .as_ref()
            .map_or(&self.nobody, |account| &account.members)
    }

    /// How far each chain goes, in the order in which a device reads them: account,
    /// keys, then the rest; of each as they began here.
    #[must_use]
    pub fn heads(&self) -> Vec<Head> {
        let chains = self.chains.iter().filter(|(id, _)| self.is_for_others(id));
        let mut chains: Vec<_> = chains.collect();
        let plain = |doc: DocId| match doc {
            DocId::Account => 0,
            DocId::Keys => 1,
            _ => 2,
        };
        chains.sort_by_key(|(id, chain)| (plain(id.doc), chain.row));
        let chains = chains.into_iter();
        chains
            .filter_map(|(id, chain)| self.head_for_others(id, chain))
            .collect()
    }

    /// Envelopes of a chain from a number on, as their writer made them: at
    /// most `max_count`, and at most `max_bytes` in all but one at least. Empty
    /// if there are none. In the place of those that were thinned stands their
    /// [`Tombstone`](bailey_envelope::Tombstone).
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn range(
        &self,
        chain: &ChainId,
        from_seq: u64,
        max_count: usize,
        max_bytes: usize,
    ) -> Result<Vec<Vec<u8>>, ReadError> {
        let known = self.chains.get(chain).filter(|_| self.is_for_others(chain));
        let max_count = match self.held_from(chain) {
            Some(held) => {
                let before = usize::try_from(held.saturating_sub(from_seq));
                max_count.min(before.unwrap_or(usize::MAX))
            }
            None => max_count,
        };
        match known.and_then(|chain| chain.row) {
            Some(row) if max_count > 0 => {
                Ok(tombs::range(&self.db, row, from_seq, max_count, max_bytes)?)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Limits the database to a number of bytes. Beyond it commits fail as on
    /// a full disk. It holds until the store is closed.
    ///
    /// # Errors
    /// [`DbError`].
    pub fn limit_size(&mut self, bytes: u64) -> Result<(), DbError> {
        let page: i64 = self
            .db
            .pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = db::int(bytes) / page.max(1);
        self.db
            .pragma_update(None, "max_page_count", pages.max(1))?;
        Ok(())
    }

    /// Appends an entry to what the next [`Self::commit`] writes, and gives its
    /// number. Nothing may go out for it before that commit returned.
    ///
    /// # Errors
    /// [`AppendError`]: nothing was appended, nothing may go out.
    pub fn append(
        &mut self,
        doc: DocId,
        event: Event,
        now: Timestamp,
        urgency: Urgency,
    ) -> Result<u64, AppendError> {
        if doc.is_plain() {
            return Err(AppendError::NoEntries(doc));
        }
        let account = self.account.as_ref().ok_or(AppendError::NoAccount)?;
        account
            .members
            .get(&self.device)
            .ok_or(AppendError::NotMember)?;
        if self.pending.len() >= MAX_PENDING || self.unsealed >= MAX_UNSEALED {
            return Err(AppendError::Backlog);
        }
        let key = self.segment_key(doc, now)?;
        let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
        let no = own.next_no;
        // A box that is over: what its segment takes of memory is given back.
        let rests = doc.box_id().is_some() && matches!(event, Event::BoxEnded(_));
        own.rests_after = rests.then_some(no);
        let packed = schema::pack(&Entry { no, ts: now, event })?;
        let entry = Unsealed {
            no,
            ts: now,
            packed,
            ends_row: false,
        };
        let entropy = self.entropy.as_mut();
        let nonce = || random(entropy).map_err(BuildError::from);
        self.pending.push(doc, &key, entry, nonce)?;
        own.next_no += 1;
        if urgency != Urgency::Normal {
            self.urgent_since.get_or_insert(now);
        }
        Ok(no)
    }

    /// Writes every entry appended since the last commit, in one transaction.
    /// A durable one, and all that came before it, is on the disk when this
    /// returns; another survives the end of this process, but not of power.
    ///
    /// # Errors
    /// [`CommitError`]: none of them was written and their numbers are free
    /// again. The same store goes on once there is room.
    pub fn commit(&mut self, durable: bool) -> Result<(), CommitError> {
        if self.pending.len() == 0 && !(durable && self.unsynced) {
            return Ok(());
        }
        Ok(self.commit_also(durable, |_| Ok(()))?)
    }

    /// Whether something is appended and not committed.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.len() > 0
    }

    /// Commits, with what else belongs to it.
    pub(crate) fn commit_also(
        &mut self,
        durable: bool,
        also: impl FnOnce(&Connection) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let pending = std::mem::take(&mut self.pending);
        let written = self
            .set_durable(durable)
            .and_then(|()| pending.rows().ok_or(DbError::TooLong))
            .and_then(|rows| self.write(&rows, also));
        match written {
            Ok(()) => {
                self.unsynced = !durable;
                self.unsealed += pending.len();
                for (doc, entry) in pending.written() {
                    let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
                    own.push(entry);
                }
                Ok(())
            }
            Err(error) => {
                for (doc, first_no) in pending.firsts() {
                    if let Some(own) = self.docs.get_mut(&doc) {
                        own.next_no = first_no;
                    }
                }
                Err(error)
            }
        }
    }

    /// Has all that is committed on the disk, without touching what is appended.
    pub(crate) fn sync(&mut self) -> Result<(), DbError> {
        if self.unsynced {
            self.set_durable(true)?;
            self.write(&[], |_| Ok(()))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Stores what is built, without touching what is appended.
    pub(crate) fn write_built(&mut self, durable: bool) -> Result<(), DbError> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        self.set_durable(durable)?;
        self.write(&[], |_| Ok(()))?;
        self.unsynced = !durable;
        Ok(())
    }

    fn write(
        &mut self,
        rows: &[JournalRow],
        also: impl FnOnce(&Connection) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        self.put(rows, also)
            .inspect_err(|error| self.doubt.note(error))
    }

    fn put(
        &mut self,
        rows: &[JournalRow],
        also: impl FnOnce(&Connection) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let tx = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut changed = BTreeMap::new();
        for built in &self.unsaved {
            let id = ChainId {
                doc: built.doc,
                writer: self.device,
                incarnation: self.incarnation,
            };
            let known = changed.get(&id).or_else(|| self.chains.get(&id));
            let known = known.copied().unwrap_or(Chain::EMPTY);
            changed.insert(id, write_built(&tx, &id, &known, built)?);
            thin::fail::point("an envelope stands")?;
        }
        if rows.is_empty() && self.unsaved.is_empty() {
            // A durable commit of nothing new: one row makes it sync the log. It is
            // another each time, since SQLite writes no page that stays the same.
            tx.execute(
                "INSERT OR REPLACE INTO meta(key, value) VALUES ('synced', randomblob(8))",
                [],
            )?;
        }
        journal::put(&tx, rows)?;
        also(&tx)?;
        thin::fail::point("all of it stands")?;
        tx.commit()?;
        for built in self.unsaved.drain(..) {
            if let Carries::Keys {
                handed: Some(device),
                ..
            } = built.carries
            {
                self.handed.insert(device);
            }
        }
        self.chains.extend(changed);
        Ok(())
    }

    /// What the next envelope of a document says of itself.
    pub(crate) fn next_fields(
        &self,
        account: AccountId,
        doc: DocId,
        kind: Kind,
        segment: u32,
    ) -> Fields {
        let chain = ChainId {
            doc,
            writer: self.device,
            incarnation: self.incarnation,
        };
        let own = self.docs.get(&doc);
        let (seq, prev, before) = match own.and_then(|own| own.tip) {
            Some((seq, hash)) => (seq + 1, hash, None),
            None => match own.and_then(|own| own.before) {
                Some((before, hash)) => (1, hash, Some(before)),
                None => (1, Hash::NONE, None),
            },
        };
        Fields {
            account,
            chain,
            kind,
            segment,
            seq,
            prev,
            before,
        }
    }
}

/// Stores one built envelope and what goes with it.
fn write_built(
    db: &Connection,
    id: &ChainId,
    known: &Chain,
    built: &Built,
) -> Result<Chain, DbError> {
    let mut chain = Chain {
        seq: built.seq,
        hash: built.hash,
        segment: built.segment,
        key_id: built.key_id,
        opened: built.seq,
        open_segment: built.segment,
        ..*known
    };
    let mut next_no = 1;
    if let Carries::Entries(span) = &built.carries {
        chain.last_no = span.last_no;
        next_no = span.last_no + 1;
    }
    let chain = chains::put(db, id, &chain)?;
    let stored = Stored {
        lasts: built.doc.box_id().is_none(),
        seq: built.seq,
        segment: built.segment,
        hash: built.hash,
        received: built.made,
        bytes: &built.bytes,
    };
    chains::put_envelope(db, chain.row, &stored)?;
    if let (Some(row), Some(noted)) = (chain.row, &built.noted) {
        tables::note(db, row, noted)?;
    }
    own::put(db, built.doc, &id.incarnation, next_no)?;
    match &built.carries {
        Carries::Entries(span) => {
            if let Some(row) = chain.row {
                spans::add(db, row, built.segment, span)?;
            }
            journal::delete(db, built.doc, span.first_no, span.last_no)?;
        }
        Carries::Record {
            begins: Some(account),
        } => put_account(db, account)?,
        Carries::Record { begins: None } => {}
        Carries::Keys { record, handed } => {
            keys::store_wraps(db, record, &id.writer, &id.writer)?;
            if let Some(epoch) = &record.epoch {
                keys::store_epoch(db, epoch)?;
                tables::note_epoch(db, &id.writer, epoch, record.hours, built.made)?;
            }
            if let Some(device) = handed {
                put_handed(db, device)?;
            }
        }
    }
    Ok(chain)
}
