//! Epoch keys: how a writer hands them to those who read, and how they are
//! found again.
//!
//! Records of the keys' document are bodies of plain signed envelopes:
//! `VERSION, record, postcard fields`. The only secret at rest is the device's
//! key file: an epoch key is stored as HPKE wraps, its writer's own included.

use std::collections::HashMap;

use bailey_envelope::{
    DeviceKeys, DevicePublic, EpochKey, Hash, KeyId, WrapContext, WrapError, Wrapped, unwrap, wrap,
};
use bailey_model::{AccountId, DeviceId};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::entropy::{Entropy, NoEntropy, random};

const VERSION: u8 = 1;
const RECORD_EPOCH: u8 = 1;
const RECORD_WRAPS: u8 = 2;
/// As [`RECORD_EPOCH`], with the window of what it seals.
const RECORD_EPOCH_OF_WINDOW: u8 = 3;
/// Most wraps of one record: about 190 bytes each, so a record stays well
/// below an envelope's cap.
pub(crate) const MAX_WRAPS: usize = 512;
/// Most wraps that are tried for one key: the writer's own first, then one of
/// each member that handed it on.
const MAX_TRIES: usize = 64;
/// Wraps of a key: the one that its writer signed, and those of others.
const OWN_WRAP: &str = "SELECT epoch, membership, enc, sealed FROM wraps \
    WHERE key_id = ?1 AND writer = ?2 AND signer = ?2";
const OTHER_WRAPS: &str = "SELECT epoch, membership, enc, sealed FROM wraps \
    WHERE key_id = ?1 AND writer = ?2 AND signer <> ?2";
/// Most epoch keys kept in memory.
const MAX_RING: usize = 4096;

/// A wrapped key and what it is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wrap {
    pub(crate) writer: DeviceId,
    pub(crate) epoch: u32,
    pub(crate) key_id: KeyId,
    pub(crate) recipient: DeviceId,
    enc: [u8; 32],
    sealed: ([u8; 32], [u8; 16]),
}

impl Wrap {
    /// The key in it, if it is addressed to these keys and is what it says.
    pub(crate) fn open(
        &self,
        account: AccountId,
        membership: &[Hash],
        keys: &DeviceKeys,
    ) -> Option<EpochKey> {
        if self.recipient != keys.id() {
            return None;
        }
        let context = WrapContext {
            account,
            writer: self.writer,
            epoch: self.epoch,
            recipient: self.recipient,
            membership: &postcard::to_stdvec(membership).ok()?,
        };
        let mut sealed = [0; 48];
        sealed[..32].copy_from_slice(&self.sealed.0);
        sealed[32..].copy_from_slice(&self.sealed.1);
        let wrapped = Wrapped {
            enc: self.enc,
            sealed,
        };
        unwrap(&wrapped, &context, keys, self.key_id).ok()
    }
}

/// A record of the keys' document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRecord {
    /// Set if this record begins an epoch of its writer.
    pub(crate) epoch: Option<Epoch>,
    /// The window of what that epoch seals, in hours; 0 where it is not said: by a
    /// version that had one epoch for all.
    pub(crate) hours: u32,
    /// Heads of the account's document that it rests on; associated data of
    /// each wrap.
    pub(crate) membership: Vec<Hash>,
    pub(crate) wraps: Vec<Wrap>,
}

/// An epoch of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epoch {
    pub(crate) number: u32,
    pub(crate) key_id: KeyId,
    pub(crate) made: u64,
}

/// A key record that is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRecordError {
    /// Of a version or kind that this build does not know.
    #[error("key record of a newer version of bailey")]
    Newer,
    /// Cut short, too long, or malformed.
    #[error("key record is malformed")]
    Malformed,
}

impl KeyRecord {
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let (record, fields) = match &self.epoch {
            Some(epoch) if self.hours > 0 => (
                RECORD_EPOCH_OF_WINDOW,
                postcard::to_stdvec(&(epoch, self.hours, &self.membership, &self.wraps)),
            ),
            Some(epoch) => (
                RECORD_EPOCH,
                postcard::to_stdvec(&(epoch, &self.membership, &self.wraps)),
            ),
            None => (
                RECORD_WRAPS,
                postcard::to_stdvec(&(&self.membership, &self.wraps)),
            ),
        };
        Some([&[VERSION, record], &fields.ok()?[..]].concat())
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, KeyRecordError> {
        let malformed = KeyRecordError::Malformed;
        let ([version, record], fields) = body.split_first_chunk().ok_or(malformed)?;
        if *version != VERSION {
            return Err(KeyRecordError::Newer);
        }
        let decoded = match *record {
            RECORD_EPOCH_OF_WINDOW => {
                let ((epoch, hours, membership, wraps), rest) =
                    postcard::take_from_bytes(fields).map_err(|_| malformed)?;
                (
                    Self {
                        epoch: Some(epoch),
                        hours,
                        membership,
                        wraps,
                    },
                    rest,
                )
            }
            RECORD_EPOCH => {
                let ((epoch, membership, wraps), rest) =
                    postcard::take_from_bytes(fields).map_err(|_| malformed)?;
                (
                    Self {
                        epoch: Some(epoch),
                        hours: 0,
                        membership,
                        wraps,
                    },
                    rest,
                )
            }
            RECORD_WRAPS => {
                let ((membership, wraps), rest) =
                    postcard::take_from_bytes(fields).map_err(|_| malformed)?;
                (
                    Self {
                        epoch: None,
                        hours: 0,
                        membership,
                        wraps,
                    },
                    rest,
                )
            }
            _ => return Err(KeyRecordError::Newer),
        };
        // One record has one encoding, as those of the account.
        match decoded {
            (record, [])
                if record.wraps.len() <= MAX_WRAPS && record.encode().as_deref() == Some(body) =>
            {
                Ok(record)
            }
            _ => Err(malformed),
        }
    }
}

/// Why keys could not be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandOutError {
    /// No random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// A recipient's key cannot be wrapped to.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// The encoder refused.
    #[error("membership heads cannot be encoded")]
    Encoding,
}

/// Wraps one epoch key to each recipient.
pub(crate) fn wrap_to_all(
    account: AccountId,
    writer: DeviceId,
    epoch: u32,
    key: &EpochKey,
    membership: &[Hash],
    recipients: &[DevicePublic],
    entropy: &mut dyn Entropy,
) -> Result<Vec<Wrap>, HandOutError> {
    let heads = postcard::to_stdvec(membership).map_err(|_| HandOutError::Encoding)?;
    let mut wraps = Vec::with_capacity(recipients.len());
    for public in recipients {
        let recipient = public.id();
        let context = WrapContext {
            account,
            writer,
            epoch,
            recipient,
            membership: &heads,
        };
        let Wrapped { enc, sealed } = wrap(key, &context, public, random(entropy)?)?;
        let (mut body, mut tag) = ([0; 32], [0; 16]);
        body.copy_from_slice(&sealed[..32]);
        tag.copy_from_slice(&sealed[32..]);
        let key_id = key.id();
        wraps.push(Wrap {
            writer,
            epoch,
            key_id,
            recipient,
            enc,
            sealed: (body, tag),
        });
    }
    Ok(wraps)
}

/// Stores the wraps of a record that are addressed to a device. The newest of
/// each signer for a key stays, so a member cannot crowd out another's.
pub(crate) fn store_wraps(
    db: &Connection,
    record: &KeyRecord,
    signer: &DeviceId,
    device: &DeviceId,
) -> rusqlite::Result<Vec<KeyId>> {
    let heads = postcard::to_stdvec(&record.membership).unwrap_or_default();
    let mut statement = db.prepare_cached(
        "INSERT OR REPLACE INTO wraps(key_id, signer, writer, epoch, membership, enc, sealed) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut stored = Vec::new();
    for wrap in record.wraps.iter().filter(|wrap| wrap.recipient == *device) {
        statement.execute(params![
            wrap.key_id.0,
            signer.0,
            wrap.writer.0,
            i64::from(wrap.epoch),
            heads,
            wrap.enc,
            [&wrap.sealed.0[..], &wrap.sealed.1].concat(),
        ])?;
        stored.push(wrap.key_id);
    }
    Ok(stored)
}

/// Notes an epoch of one's own.
pub(crate) fn store_epoch(db: &Connection, epoch: &Epoch) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR IGNORE INTO epochs(key_id, number, made) VALUES (?1, ?2, ?3)")?
        .execute(params![
            epoch.key_id.0,
            i64::from(epoch.number),
            crate::db::int(epoch.made)
        ])?;
    Ok(())
}

/// The epoch keys that this device has opened so far.
pub(crate) struct KeyRing {
    keys: DeviceKeys,
    device: DeviceId,
    open: HashMap<KeyId, EpochKey>,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRing({} keys)", self.open.len())
    }
}

impl KeyRing {
    pub(crate) fn new(keys: DeviceKeys) -> Self {
        let device = keys.id();
        Self {
            keys,
            device,
            open: HashMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, key: EpochKey) {
        if self.open.len() >= MAX_RING {
            self.open.clear();
        }
        self.open.insert(key.id(), key);
    }

    /// Lets go of a key.
    pub(crate) fn forget(&mut self, key_id: &KeyId) {
        self.open.remove(key_id);
    }

    /// Finds a writer's key by its name, opening a stored wrap if need be: the
    /// writer's own first. `None` if no wrap for this device has come.
    pub(crate) fn find(
        &mut self,
        db: &Connection,
        account: AccountId,
        writer: DeviceId,
        key_id: KeyId,
    ) -> rusqlite::Result<Option<EpochKey>> {
        if let Some(key) = self.open.get(&key_id) {
            return Ok(Some(key.clone()));
        }
        let here = self.keys.here_key();
        if writer == self.device && here.id() == key_id {
            self.insert(here.clone());
            return Ok(Some(here));
        }
        // Two statements, the writer's own first: SQLite prepares one that is ordered
        // by a variable anew each time.
        for sql in [OWN_WRAP, OTHER_WRAPS] {
            let mut statement = db.prepare_cached(sql)?;
            let mut rows = statement.query(params![key_id.0, writer.0])?;
            for _ in 0..MAX_TRIES {
                let Some(row) = rows.next()? else { break };
                let membership: Vec<u8> = row.get(1)?;
                let context = WrapContext {
                    account,
                    writer,
                    epoch: row.get(0)?,
                    recipient: self.device,
                    membership: &membership,
                };
                let wrapped = Wrapped {
                    enc: row.get(2)?,
                    sealed: row.get(3)?,
                };
                if let Ok(key) = unwrap(&wrapped, &context, &self.keys, key_id) {
                    drop(rows);
                    drop(statement);
                    self.insert(key.clone());
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_and_newer_records_are_told_apart() {
        let record = KeyRecord {
            epoch: None,
            hours: 0,
            membership: vec![Hash([1; 32])],
            wraps: Vec::new(),
        };
        let bytes = record.encode().unwrap();
        assert_eq!(KeyRecord::decode(&bytes), Ok(record));
        assert_eq!(KeyRecord::decode(&[]), Err(KeyRecordError::Malformed));
        assert_eq!(KeyRecord::decode(&[2, 1]), Err(KeyRecordError::Newer));
        assert_eq!(KeyRecord::decode(&[1, 9]), Err(KeyRecordError::Newer));
        assert_eq!(
            KeyRecord::decode(&[&bytes[..], &[0]].concat()),
            Err(KeyRecordError::Malformed)
        );
        assert_eq!(
            KeyRecord::decode(&bytes[..bytes.len() - 1]),
            Err(KeyRecordError::Malformed)
        );
    }
}
