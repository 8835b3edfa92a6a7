//! Records of the account.

use bailey_envelope::{DocId, Verified, peek};
use bailey_model::{DeviceId, Timestamp};

use super::{Ingested, Outcome};
use crate::account::Record;
use crate::chains::Chain;
use crate::error::IngestError;
use crate::store::{Store, node_of};

impl Store {
    /// Takes an envelope that a device hands over. From one that is no member only
    /// records of the account are taken: its word on its removal.
    ///
    /// # Errors
    /// As [`Self::ingest`].
    pub fn ingest_from(
        &mut self,
        peer: &DeviceId,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let is_member = self.members().get(peer).is_some();
        let of_account =
            |bytes| peek(bytes).is_ok_and(|header| header.fields.chain.doc == DocId::Account);
        if !is_member && !of_account(bytes) {
            return Err(IngestError::NotMember(*peer));
        }
        self.ingest(bytes, now)
    }

    pub(super) fn ingest_record(
        &mut self,
        mut chain: Chain,
        verified: &Verified<'_>,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<Ingested, IngestError> {
        let fields = verified.header.fields;
        let body = verified.plain().map_err(|_| IngestError::Misfit("suite"))?;
        let record = Record::decode(body)?;
        record.check(&fields)?;
        self.check_room(&fields.chain.writer, &record.act)?;
        chain.opened = fields.seq;
        self.keep(chain, verified, bytes, now, |_, _| Ok(()))?;
        let before = self.members().clone();
        self.count_record(node_of(&fields, verified.hash, record));
        let members_changed = before != *self.members();
        // Within a join nothing is handed out: it may come to nothing.
        if members_changed && self.db.is_autocommit() {
            // What cannot be handed out now is owed, and each sealing tries
            // and reports it.
            drop(self.settle(now));
        }
        let mut ingested = Ingested::new(&fields.chain, fields.seq, Outcome::New);
        ingested.members_changed = members_changed;
        Ok(ingested)
    }
}
