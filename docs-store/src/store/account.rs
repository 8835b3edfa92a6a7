//! Beginning an account, joining one, adding a device to it.

use std::collections::BTreeSet;

use bailey_envelope::{
    ChainId, DevicePublic, DocId, Fields, Hash, Head, KeyId, Kind, RecoverySeed, sign_plain,
};
use bailey_model::{AccountId, DeviceId, DeviceNamed, Event, Timestamp};

use super::{Account, Store, Urgency};
use crate::account::Node;
use crate::account::{AddOffer, Genesis, Members, Record, Role};
use crate::chains::{self, Chain};
use crate::db::DbError;
use crate::entropy::random;
use crate::error::{AccountError, BuildError};
use crate::keyfile::{keep_recovery_seed, load_recovery_seed};
use crate::own::{Built, Carries, OwnDoc};

/// Days that entries are kept unless told otherwise.
const WINDOW_DAYS: u16 = 30;
/// Where the recovery seed stands until a person has it on paper.
pub(crate) const SEED_FILE: &str = "recovery.seed";

impl Store {
    /// Begins an account of which this device is the first member. The
    /// recovery seed is kept in `recovery.seed` (mode 0600) beside the database
    /// before the account exists, so that no crash leaves one without it.
    ///
    /// # Errors
    /// [`AccountError`]. If the name could not be entered the account stands.
    pub fn create_account(
        &mut self,
        device_name: &str,
        now: Timestamp,
    ) -> Result<AccountId, AccountError> {
        if self.account.is_some() {
            return Err(AccountError::HasAccount);
        }
        let recovery = self.seed()?.keys();
        let genesis = Genesis {
            recovery: recovery.public(),
            first: self.keys.public(),
            window_days: WINDOW_DAYS,
            salt: random(self.entropy.as_mut())?,
        };
        let (account, record) = Record::genesis(genesis, &recovery).ok_or(BuildError::Encoding)?;
        let fields = self.next_fields(account, DocId::Account, Kind::Record, 0);
        self.account = Some(Account::new(account));
        let carries = Carries::Record {
            begins: Some(account),
        };
        if let Err(error) = self.put_record(&fields, record, carries, now) {
            self.account = None;
            return Err(error);
        }
        let named = Event::DeviceNamed(DeviceNamed {
            name: device_name.to_owned(),
        });
        self.append(DocId::Node, named, now, Urgency::Normal)?;
        self.commit(true)
            .map_err(|crate::error::CommitError::Db(error)| error)?;
        Ok(account)
    }

    /// The recovery seed, while it is kept here.
    ///
    /// # Errors
    /// [`AccountError::Seed`].
    pub fn recovery_seed(&mut self) -> Result<Option<RecoverySeed>, AccountError> {
        let path = self.dir.join(SEED_FILE);
        let seed = load_recovery_seed(&path, &self.keys, self.entropy.as_mut())?;
        Ok(seed)
    }

    /// The recovery seed that is kept here, or a new one, kept from now on.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn seed(&mut self) -> Result<RecoverySeed, AccountError> {
        // One may be there from a start that ended before its account began.
        if let Some(seed) = self.recovery_seed()? {
            return Ok(seed);
        }
        let seed = RecoverySeed::new(random(self.entropy.as_mut())?);
        let path = self.dir.join(SEED_FILE);
        keep_recovery_seed(&path, &seed, &self.keys, self.entropy.as_mut())?;
        Ok(seed)
    }

    /// Offers to add a device. The device signs the offer
    /// ([`AddOffer::sign`]); then [`Self::complete_add`].
    ///
    /// # Errors
    /// [`AccountError`]: not allowed, a member already, or weak keys.
    pub fn offer_add(&self, device: DevicePublic, role: Role) -> Result<AddOffer, AccountError> {
        let account = self.account.as_ref().ok_or(AccountError::NoAccount)?;
        let me = account.members.get(&self.device);
        if me.is_none_or(|me| me.role < Role::Full) {
            return Err(AccountError::NotAllowed);
        }
        device.check()?;
        if account.members.get(&device.id()).is_some() {
            return Err(AccountError::AlreadyMember(device.id()));
        }
        if account.members.was_removed(&device.id()) {
            return Err(AccountError::RemovedKeys(device.id()));
        }
        let fields = self.next_fields(account.id, DocId::Account, Kind::Record, 0);
        Ok(AddOffer::new(&fields, device, role, self.seen()))
    }

    /// Adds a device that signed the offer, and hands it the keys of the
    /// window.
    ///
    /// # Errors
    /// [`AccountError`]: the offer is stale or not signed, or the disk refuses.
    pub fn complete_add(
        &mut self,
        offer: &AddOffer,
        cosignature: [u8; 64],
        now: Timestamp,
    ) -> Result<(), AccountError> {
        let fresh = offer
            .role()
            .map(|role| self.offer_add(offer.device, role))
            .transpose()?
            .ok_or(AccountError::StaleOffer)?;
        let fields = self.next_fields(fresh.account, DocId::Account, Kind::Record, 0);
        if fresh != *offer || !offer.stands_at(&fields) {
            return Err(AccountError::StaleOffer);
        }
        if !offer.signed(&cosignature) {
            return Err(AccountError::Cosignature);
        }
        let record = offer.record(cosignature).ok_or(AccountError::StaleOffer)?;
        self.put_record(&fields, record, Carries::Record { begins: None }, now)?;
        // The device is a member from here on. Keys that cannot be stored now
        // are owed to it and handed out by the next sealing.
        match self.settle(now) {
            Ok(()) | Err(BuildError::Db(DbError::Full)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Heads of the account's document but for this start's own chain.
    pub(crate) fn seen(&self) -> Vec<Hash> {
        self.account_heads(true)
    }

    /// Heads of the account's document, oldest chains first.
    pub(crate) fn account_heads(&self, but_own: bool) -> Vec<Hash> {
        self.chains
            .iter()
            .take_while(|(id, _)| id.doc == DocId::Account)
            .filter(|(id, _)| {
                !but_own || (id.writer, id.incarnation) != (self.device, self.incarnation)
            })
            .filter_map(|(id, chain)| Some(self.head_for_others(id, chain)?.hash))
            .take(crate::account::MAX_SEEN)
            .collect()
    }

    /// Signs a record, stores it durably, and counts it.
    pub(super) fn put_record(
        &mut self,
        fields: &Fields,
        record: Record,
        carries: Carries,
        now: Timestamp,
    ) -> Result<(), AccountError> {
        // What waits is stored first, so that a failure below is this record's.
        self.write_built(false)?;
        let body = record.encode().ok_or(BuildError::Encoding)?;
        let sealed = sign_plain(&self.keys, *fields, &body).map_err(BuildError::from)?;
        let node = node_of(fields, sealed.hash, record);
        self.unsaved.push(Built {
            doc: DocId::Account,
            seq: fields.seq,
            hash: sealed.hash,
            segment: 0,
            key_id: KeyId([0; 32]),
            made: now,
            bytes: sealed.bytes,
            carries,
            noted: None,
        });
        if let Err(error) = self.write_built(true) {
            // Never shown to anybody, so its number is free again.
            self.unsaved.pop();
            return Err(error.into());
        }
        let own = self.docs.entry(DocId::Account).or_insert_with(OwnDoc::new);
        own.tip = Some((fields.seq, sealed.hash));
        self.count_record(node);
        Ok(())
    }

    /// Takes a stored record into account. Where it takes reading from somebody,
    /// nothing more is sealed under keys that they have.
    pub(crate) fn count_record(&mut self, node: Node) {
        let Some(account) = &mut self.account else {
            return;
        };
        let before = readers(&account.members);
        account.count([node], self.device);
        let after = readers(&account.members);
        let gone: Vec<DeviceId> = before.difference(&after).copied().collect();
        if !gone.is_empty() {
            self.end_epochs();
            self.unhand(&gone);
        }
    }

    /// How far others may see a chain of the account's document: what came from a
    /// device after its removal, and nobody rests on, goes no further.
    pub(super) fn held_from(&self, id: &ChainId) -> Option<u64> {
        let account = self.account.as_ref().filter(|_| id.doc == DocId::Account)?;
        account.held.get(&(id.writer, id.incarnation)).copied()
    }

    /// Whether others may see a chain at all. What came from a writer while it passed
    /// for a member, and who by the records was never one, no other device takes.
    pub(super) fn is_for_others(&self, id: &ChainId) -> bool {
        let known = || self.members().writer(&id.writer).is_some();
        !id.doc.is_here() && (id.doc == DocId::Account || known())
    }

    pub(super) fn head_for_others(&self, id: &ChainId, chain: &Chain) -> Option<Head> {
        let Some(held) = self.held_from(id) else {
            return Some(chain.head(*id));
        };
        let seq = held.checked_sub(1).filter(|seq| *seq > 0)?;
        // What cannot be read is not told of.
        let hash = chains::hash_at(&self.db, chain.row?, seq).ok()??;
        let chain = *id;
        Some(Head { chain, seq, hash })
    }
}

/// A record as a node of the membership's graph.
pub(crate) fn node_of(fields: &Fields, hash: Hash, record: Record) -> Node {
    let mut parents = record.seen;
    if fields.prev != Hash::NONE {
        parents.push(fields.prev);
    }
    Node {
        hash,
        signer: fields.chain.writer,
        incarnation: fields.chain.incarnation,
        seq: fields.seq,
        parents,
        act: record.act,
    }
}

/// Whoever is handed keys.
fn readers(members: &Members) -> BTreeSet<DeviceId> {
    let reading = members.iter().filter(|(_, member)| member.role.reads());
    let recovery = members.recovery().map(bailey_envelope::DevicePublic::id);
    reading.map(|(device, _)| *device).chain(recovery).collect()
}
