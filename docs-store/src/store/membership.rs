//! Changing the account: removals, roles, leaving, recovery.

use bailey_envelope::{ChainId, DevicePublic, DocId, Fields, Hash, Kind, RecoverySeed, sign_plain};
use bailey_model::{AccountId, DeviceId, Incarnation, Timestamp};

use super::Store;
use super::meta::drop_handed;
use crate::account::{Act, MAX_NAMED, Record, Removal, Role};
use crate::db::DbError;
use crate::entropy::random;
use crate::error::{AccountError, BuildError, JoinError};
use crate::own::Carries;

impl Store {
    /// Removes devices from the account: from here on nothing is sealed to them.
    /// One may remove itself alone whatever its role; what it has written is sealed
    /// first.
    ///
    /// # Errors
    /// [`AccountError`]. Once the record stands, what cannot be stored of new keys
    /// is owed, and each sealing tries it again before it seals anything.
    pub fn remove(&mut self, devices: &[DeviceId], now: Timestamp) -> Result<Hash, AccountError> {
        let mut devices = devices.to_vec();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() > MAX_NAMED {
            return Err(AccountError::TooMany);
        }
        for device in &devices {
            let member = self.members().get(device);
            member.ok_or(AccountError::NoMember(*device))?;
        }
        let leaves = devices == [self.device];
        if leaves {
            self.seal_all(now)?;
        }
        let role = if leaves { Role::Runs } else { Role::Full };
        self.act(Act::Remove { devices }, role, now)
    }

    /// Gives a device another role.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn set_role(
        &mut self,
        device: DeviceId,
        role: Role,
        now: Timestamp,
    ) -> Result<Hash, AccountError> {
        let member = self.members().get(&device);
        member.ok_or(AccountError::NoMember(device))?;
        self.act(Act::Role { device, role }, Role::Full, now)
    }

    /// Seals what comes under new keys from here on, on demand.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn rotate(&mut self, now: Timestamp) -> Result<(), AccountError> {
        if self.members().get(&self.device).is_none() {
            return Err(AccountError::NotAllowed);
        }
        self.end_epochs();
        self.settle(now)?;
        Ok(self.write_built(true)?)
    }

    /// Begins the account anew, by its recovery keys: this device stays, as `full`,
    /// and those of `kept` that the account knows, members with their role and
    /// others as `full`. `next` are the recovery keys from here on.
    ///
    /// # Errors
    /// [`AccountError`]: nothing was written.
    pub fn reset(
        &mut self,
        recovery: &RecoverySeed,
        kept: &[DeviceId],
        next: &RecoverySeed,
        now: Timestamp,
    ) -> Result<Hash, AccountError> {
        let mut all = vec![(self.keys.public(), Role::Full)];
        for device in kept.iter().filter(|device| **device != self.device) {
            let members = self.members();
            let member = members
                .get(device)
                .map(|member| (member.public, member.role));
            let known = member.or_else(|| Some((*members.writer(device)?, Role::Full)));
            let known = known.ok_or(AccountError::NoMember(*device))?;
            if !all.contains(&known) {
                all.push(known);
            }
        }
        if all.len() > MAX_NAMED {
            return Err(AccountError::TooMany);
        }
        let next = next.keys().public();
        self.act_of_recovery(recovery, now, |fields, seen, keys| {
            Record::reset(fields, all, next, seen, keys)
        })
    }

    /// Removes devices by the recovery keys.
    ///
    /// # Errors
    /// [`AccountError`]: nothing was written.
    pub fn remove_by_recovery(
        &mut self,
        recovery: &RecoverySeed,
        devices: &[DeviceId],
        now: Timestamp,
    ) -> Result<Hash, AccountError> {
        let mut devices = devices.to_vec();
        devices.sort_unstable();
        devices.dedup();
        if devices.len() > MAX_NAMED {
            return Err(AccountError::TooMany);
        }
        self.act_of_recovery(recovery, now, |_, seen, _| {
            Some(Record::plain(Act::Remove { devices }, seen))
        })
    }

    /// Brings an account back on a device that has none, by its recovery keys: takes
    /// its records, then resets it ([`Self::reset`]). `kept` picks who stays, of
    /// those who are members by the records. All of it happens or nothing.
    ///
    /// # Errors
    /// [`JoinError`]: the store is as it was.
    pub fn recover(
        &mut self,
        account: AccountId,
        envelopes: &[Vec<u8>],
        recovery: &RecoverySeed,
        kept: impl FnOnce(&crate::Members) -> Vec<DeviceId>,
        next: &RecoverySeed,
        now: Timestamp,
    ) -> Result<(), JoinError> {
        self.join_also(account, envelopes, now, |store| {
            let kept = kept(store.members());
            let reset = store.reset(recovery, &kept, next, now);
            reset.map(drop).map_err(|error| Box::new(error).into())
        })
    }

    /// Signs and stores a record of this device, if its role allows it.
    fn act(&mut self, act: Act, needs: Role, now: Timestamp) -> Result<Hash, AccountError> {
        let account = self.account.as_ref().ok_or(AccountError::NoAccount)?;
        let me = account.members.get(&self.device);
        if me.is_none_or(|me| me.role < needs) {
            return Err(AccountError::NotAllowed);
        }
        let fields = self.next_fields(account.id, DocId::Account, Kind::Record, 0);
        let record = Record::plain(act, self.seen());
        self.put_record(&fields, record, Carries::Record { begins: None }, now)?;
        let hash = self.docs.get(&DocId::Account).and_then(|own| own.tip);
        match self.settle(now) {
            Ok(()) | Err(BuildError::Db(DbError::Full)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(hash.map_or(Hash::NONE, |(_, hash)| hash))
    }

    /// Signs a record by the recovery keys, in a chain of its own, and takes it as
    /// one that came from elsewhere.
    fn act_of_recovery(
        &mut self,
        recovery: &RecoverySeed,
        now: Timestamp,
        make: impl FnOnce(&Fields, Vec<Hash>, &bailey_envelope::DeviceKeys) -> Option<Record>,
    ) -> Result<Hash, AccountError> {
        let account = self.account().ok_or(AccountError::NoAccount)?;
        let keys = recovery.keys();
        if self.members().recovery() != Some(&keys.public()) {
            return Err(AccountError::NotRecovery);
        }
        let chain = ChainId {
            doc: DocId::Account,
            writer: keys.id(),
            incarnation: Incarnation(random(self.entropy.as_mut())?),
        };
        let fields = Fields {
            account,
            chain,
            kind: Kind::Record,
            segment: 0,
            seq: 1,
            prev: Hash::NONE,
            before: None,
        };
        let seen = self.account_heads(false);
        let record = make(&fields, seen, &self.keys).ok_or(BuildError::Encoding)?;
        let body = record.encode().ok_or(BuildError::Encoding)?;
        let sealed = sign_plain(&keys, fields, &body).map_err(BuildError::from)?;
        self.ingest(&sealed.bytes, now)
            .map_err(|error| AccountError::Refused(Box::new(error)))?;
        if self.db.is_autocommit() {
            self.sync()?;
        }
        Ok(sealed.hash)
    }

    /// Says of each removal that stands and was not said of yet that it is applied
    /// here: one at a time, so that each says what was known before it.
    pub(crate) fn acknowledge(&mut self, now: Timestamp) -> Result<(), BuildError> {
        while let Some((account, removal)) = self.to_acknowledge() {
            let fields = self.next_fields(account, DocId::Account, Kind::Record, 0);
            let record = Record::plain(Act::Ack { removal }, self.seen());
            self.put_record(&fields, record, Carries::Record { begins: None }, now)
                .map_err(|error| match error {
                    AccountError::Build(error) => error,
                    AccountError::Db(error) => BuildError::Db(error),
                    _ => BuildError::Encoding,
                })?;
            if self
                .to_acknowledge()
                .is_some_and(|(_, next)| next == removal)
            {
                // Said, and of no effect: saying it again has none either.
                break;
            }
        }
        Ok(())
    }

    fn to_acknowledge(&self) -> Option<(AccountId, Hash)> {
        let account = self.account.as_ref()?;
        let owed = |removal: &&Removal| removal.stands && !removal.confirmed.contains(&self.device);
        let removal = account.members.removals().iter().find(owed)?;
        Some((account.id, removal.record))
    }

    /// The recovery keys, where they are others than the account began with: no
    /// epoch before was wrapped to them.
    pub(crate) fn recovery_since_reset(&self) -> Option<DevicePublic> {
        let account = self.account.as_ref()?;
        let recovery = account.members.recovery()?;
        let mut acts = account.records.nodes().iter().map(|node| &node.act);
        let first =
            acts.any(|act| matches!(act, Act::Genesis(genesis) if genesis.recovery == *recovery));
        (!first).then_some(*recovery)
    }

    /// Those who read no more get anew what they lack, should they read again.
    pub(crate) fn unhand(&mut self, gone: &[DeviceId]) {
        for device in gone {
            // If it cannot be written, the next start leaves it out all the same.
            let _kept = drop_handed(&self.db, device);
            self.handed.remove(device);
        }
    }
}
