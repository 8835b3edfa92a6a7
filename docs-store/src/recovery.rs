//! The recovery key: as words on paper, and what it opens.

mod copy;
mod words;

use std::collections::BTreeMap;

use bailey_envelope::{DocId, EpochKey, RecoverySeed, Tombstone, Verified};
use bailey_model::{DeviceId, Timestamp};

use crate::chains;
use crate::db::DbError;
use crate::error::{AccountError, BuildError, IngestError};
use crate::ingest::Opened;
use crate::keyfile::erase_recovery_seed;
use crate::keys::{KeyRecord, wrap_to_all};
use crate::store::{SEED_FILE, Store};

pub use copy::{Copied, CopyError, CopyReader};
pub use words::{WordsError, recovery_words, seed_of_words};

/// What came of an account's copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// Envelopes that were not here before.
    pub new: u64,
    /// Envelopes that were refused.
    pub refused: u64,
    /// Entries that can be read by it.
    pub opened: Vec<Opened>,
}

impl Store {
    /// Whether these words are the account's recovery key. If they are, a person has
    /// them on paper: what is kept of the key here is written over and gone.
    ///
    /// # Errors
    /// [`AccountError`]: there is no account, or the file cannot be erased.
    pub fn confirm_recovery(&mut self, typed: &RecoverySeed) -> Result<bool, AccountError> {
        if self.account().is_none() {
            return Err(AccountError::NoAccount);
        }
        let same = self.members().recovery() == Some(&typed.keys().public());
        if same {
            erase_recovery_seed(&self.dir.join(SEED_FILE))?;
        }
        Ok(same)
    }

    /// Erases the recovery seed of a store without an account.
    ///
    /// # Errors
    /// [`AccountError`]: there is an account, or the file cannot be erased.
    pub fn drop_seed(&mut self) -> Result<(), AccountError> {
        if self.account().is_some() {
            return Err(AccountError::HasAccount);
        }
        Ok(erase_recovery_seed(&self.dir.join(SEED_FILE))?)
    }

    /// Takes every envelope of a copy, as it would from another device.
    ///
    /// # Errors
    /// [`AccountError::NoAccount`], or the copy cannot be read on. What was taken until
    /// then stays.
    pub fn take_copy(
        &mut self,
        envelopes: impl Iterator<Item = Result<Vec<u8>, CopyError>>,
        now: Timestamp,
    ) -> Result<Taken, CopyError> {
        let mut taken = Taken::default();
        for envelope in envelopes {
            match self.ingest(&envelope?, now) {
                Ok(ingested) => {
                    taken.new += u64::from(ingested.outcome != crate::ingest::Outcome::Duplicate);
                    taken.opened.extend(ingested.opened);
                }
                Err(IngestError::Db(error)) => return Err(error.into()),
                Err(_) => taken.refused += 1,
            }
        }
        Ok(taken)
    }

    /// Hands every epoch key that was wrapped to a recovery key, and that this device
    /// has not got, to whoever reads now: this device first. Says how many.
    ///
    /// # Errors
    /// [`AccountError`].
    pub fn adopt_keys(
        &mut self,
        recovery: &RecoverySeed,
        now: Timestamp,
    ) -> Result<usize, AccountError> {
        let account = self.account().ok_or(AccountError::NoAccount)?;
        let found = self.keys_of_recovery(recovery)?;
        let membership = self.account_heads(false);
        let recipients = self.recipients();
        let mut adopted = 0;
        for ((writer, epoch), key) in found {
            let known = self.ring.find(&self.db, account, writer, key.id());
            if known.map_err(DbError::from)?.is_some() {
                continue;
            }
            let wraps = wrap_to_all(
                account,
                writer,
                epoch,
                &key,
                &membership,
                &recipients,
                self.entropy.as_mut(),
            );
            // A record for each, so that it goes when that key goes.
            self.build_keys(account, None, &wraps.map_err(BuildError::from)?, None, now)?;
            self.ring.insert(key);
            adopted += 1;
        }
        self.write_built(true)?;
        Ok(adopted)
    }

    fn keys_of_recovery(
        &self,
        recovery: &RecoverySeed,
    ) -> Result<BTreeMap<(DeviceId, u32), EpochKey>, AccountError> {
        let account = self.account().ok_or(AccountError::NoAccount)?;
        let keys = recovery.keys();
        let mut found = BTreeMap::new();
        let of_keys = self.chains.iter().filter(|(id, _)| id.doc == DocId::Keys);
        for row in of_keys.filter_map(|(_, chain)| chain.row) {
            for bytes in chains::present(&self.db, row).map_err(DbError::from)? {
                // What stands in the place of records that are gone holds no key, and
                // a record that was set aside none that counts.
                let record = Some(&bytes)
                    .filter(|bytes| !Tombstone::is_one(bytes))
                    .and_then(|bytes| Verified::from_stored(bytes).ok())
                    .and_then(|verified| KeyRecord::decode(verified.plain().ok()?).ok());
                let Some(record) = record else { continue };
                for wrap in &record.wraps {
                    if let Some(key) = wrap.open(account, &record.membership, &keys) {
                        found.insert((wrap.writer, wrap.epoch), key);
                    }
                }
            }
        }
        Ok(found)
    }
}
