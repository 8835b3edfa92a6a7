//! Joining an account that another device has added this one to.

use bailey_envelope::{DocId, peek};
use bailey_model::{AccountId, Timestamp};

use super::{Account, Store, put_account};
use crate::db::DbError;
use crate::error::{IngestError, JoinError};
use crate::ingest::{MAX_OF_KIND, MAX_RECORDS, Successors};

impl Store {
    /// Makes this store one of an account whose records make this device a
    /// member. All of it happens or nothing: records that another device chose
    /// must not leave a store that belongs to an account it has no part in,
    /// nor may a crash. What happened is on the disk when this returns.
    ///
    /// # Errors
    /// [`JoinError`]: the store is as it was.
    pub fn join(
        &mut self,
        account: AccountId,
        envelopes: &[Vec<u8>],
        now: Timestamp,
    ) -> Result<(), JoinError> {
        self.join_also(account, envelopes, now, |_| Ok(()))
    }

    /// As [`Self::join`], with what makes this device a member.
    pub(super) fn join_also(
        &mut self,
        account: AccountId,
        envelopes: &[Vec<u8>],
        now: Timestamp,
        also: impl FnOnce(&mut Self) -> Result<(), JoinError>,
    ) -> Result<(), JoinError> {
        if self.account.is_some() {
            return Err(JoinError::HasAccount);
        }
        if envelopes.len() > MAX_RECORDS + MAX_OF_KIND {
            return Err(JoinError::TooMany(envelopes.len()));
        }
        self.set_durable(true)?;
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let before = (self.chains.clone(), self.unsynced);
        let joined = self
            .take_records(account, envelopes, now)
            .and_then(|()| also(self))
            .and_then(|()| match self.members().get(&self.device) {
                Some(_) => Ok(self.db.execute_batch("COMMIT")?),
                None => Err(JoinError::NotMember),
            });
        if let Err(error) = joined {
            (self.chains, self.unsynced) = before;
            self.account = None;
            self.successors = Successors::default();
            // A fault of the disk has ended the transaction already.
            let _over = self.db.execute_batch("ROLLBACK");
            return Err(error);
        }
        self.unsynced = false;
        // What cannot be handed out now is owed, and each sealing tries and
        // reports it.
        drop(self.settle(now));
        Ok(())
    }

    /// Within the transaction: the account, and every record of it.
    fn take_records(
        &mut self,
        account: AccountId,
        envelopes: &[Vec<u8>],
        now: Timestamp,
    ) -> Result<(), JoinError> {
        put_account(&self.db, &account)?;
        self.account = Some(Account::new(account));
        // A record may rest on one of another incarnation's chain, in no order
        // that could be told from outside: rounds, until one brings nothing.
        let mut waiting: Vec<&[u8]> = envelopes.iter().map(Vec::as_slice).collect();
        while !waiting.is_empty() {
            let mut refused = None;
            let mut left = Vec::new();
            for bytes in &waiting {
                match self.take_record(bytes, now) {
                    Ok(()) => {}
                    Err(
                        error @ JoinError::Record(
                            IngestError::NotMember(_) | IngestError::Gap { .. },
                        ),
                    ) => {
                        left.push(*bytes);
                        refused = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            match refused {
                Some(error) if left.len() == waiting.len() => return Err(error),
                _ => waiting = left,
            }
        }
        Ok(())
    }

    fn take_record(&mut self, bytes: &[u8], now: Timestamp) -> Result<(), JoinError> {
        let header = peek(bytes).map_err(IngestError::Malformed)?;
        if header.fields.chain.doc != DocId::Account {
            return Err(JoinError::NoRecord(header.fields.chain.doc));
        }
        self.ingest(bytes, now)?;
        // SQLite ends a transaction by itself when the disk is full; what came
        // after that would be kept at once, whatever the end.
        match self.db.is_autocommit() {
            false => Ok(()),
            true => Err(DbError::Full.into()),
        }
    }
}
