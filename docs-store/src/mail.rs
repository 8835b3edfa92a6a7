//! What goes through a mailbox: which topics there are, blobs of what is kept here,
//! and what a blob held.
//!
//! What is sealed lies in the topic of the key it is sealed under; records of the
//! account and of keys, which somebody needs before he holds one, in the inbox of each
//! other device, anew in each week, so that a week's inbox is whole in itself. So does
//! what its writer asks and answers, where the topic of its key is full.

use std::collections::BTreeMap;

use bailey_envelope::{
    ChainId, DocId, EpochKey, Heads, Inbox, KeyId, MailKey, MailOpenError, Tombstone, TopicId,
    VerifyError, peek, week_of,
};
use bailey_model::{DeviceId, Timestamp};
use rusqlite::params;

use crate::db::DbError;
use crate::error::{BuildError, ReadError};
use crate::store::Store;

/// Weeks of inboxes that are read: as many as a mailbox keeps a blob unless told
/// otherwise, this one, and one more for a clock that is ahead.
const WEEKS_BACK: u64 = 5;
const WEEKS_AHEAD: u64 = 1;
/// Most keys of mail kept in memory, one's own of what was put among them: twice as many
/// as are followed.
const MAX_KEYS: usize = 8192;

/// Where a blob lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MailPlace {
    /// In the topic of an epoch of this writer.
    Writer(DeviceId),
    /// In the inbox by which this device writes to this one.
    Inbox(DeviceId),
}

/// An envelope or tombstone of a chain for a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailed {
    /// Up to which number of the chain it goes.
    pub upto: u64,
    /// Its topic and blob; `None` where it cannot be mailed: its key is not here (any
    /// more), or it is too large.
    pub blob: Option<(TopicId, Vec<u8>)>,
}

/// What was in a blob. Nothing but its place is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailTaken {
    /// An envelope or a tombstone of this chain, and the device that handed it over.
    Envelope {
        /// The chain that it names.
        chain: ChainId,
        /// The number that it goes up to.
        upto: u64,
        /// Who signed it, as far as it says: another device than the chain's writer may
        /// sign a tombstone.
        signer: DeviceId,
        /// Who put it, as far as a topic says that.
        from: MailPlace,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A device's word on its chains, with its signature checked.
    Heads(Heads),
}

/// A blob that is none for this device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailFault {
    /// Its topic is none of this device's (any more).
    #[error("a topic that is not followed")]
    Topic,
    /// It does not open.
    #[error(transparent)]
    Open(#[from] MailOpenError),
    /// What is in it does not belong there: another writer's, or another document.
    #[error("{0} in a topic where it does not belong")]
    Place(&'static str),
    /// A word on heads that nobody of the account signed.
    #[error("heads: {0}")]
    Heads(VerifyError),
}

/// The topics that were found so far, and their keys.
#[derive(Debug, Default)]
pub(crate) struct MailKeys {
    topics: BTreeMap<TopicId, (MailPlace, MailKey)>,
    of_epochs: BTreeMap<KeyId, TopicId>,
}

impl MailKeys {
    fn keep(&mut self, place: MailPlace, key: MailKey) -> TopicId {
        let topic = key.topic();
        self.topics.insert(topic, (place, key));
        topic
    }

    fn of_epoch(&mut self, writer: DeviceId, key: &EpochKey) -> TopicId {
        let id = key.id();
        match self.of_epochs.get(&id) {
            Some(topic) if self.topics.contains_key(topic) => *topic,
            _ => {
                let topic = self.keep(MailPlace::Writer(writer), MailKey::of_epoch(key));
                self.of_epochs.insert(id, topic);
                topic
            }
        }
    }
}

impl Store {
    /// The topics that this device reads, those it needs first before the others, and
    /// at most so many. Others' alone: what it wrote itself it has.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn mail_topics(&mut self, now: Timestamp, most: usize) -> Result<Vec<TopicId>, ReadError> {
        let Some(account) = self.account() else {
            return Ok(Vec::new());
        };
        if self.mail.topics.len() + most > MAX_KEYS {
            // They are derived again below.
            self.mail = MailKeys::default();
        }
        let mut topics = Vec::new();
        let week = week_of(now.0);
        let others: Vec<_> = self
            .members()
            .iter()
            .filter(|(id, _)| **id != self.device)
            .map(|(id, member)| (*id, member.public))
            .collect();
        for (from, public) in &others {
            for week in week.saturating_sub(WEEKS_BACK)..=week.saturating_add(WEEKS_AHEAD) {
                let inbox = Inbox {
                    account,
                    from: *from,
                    to: self.device,
                    week,
                };
                // Keys of a member were checked when it was added.
                if let Ok(key) = MailKey::of_inbox(&self.keys, public, &inbox) {
                    topics.push(self.mail.keep(MailPlace::Inbox(*from), key));
                }
            }
        }
        let keys = self.epochs_of_others(most.saturating_sub(topics.len()))?;
        for (writer, key_id) in keys {
            if !others.iter().any(|(id, _)| *id == writer) {
                continue;
            }
            let found = self.ring.find(&self.db, account, writer, key_id);
            if let Some(key) = found.map_err(DbError::from)? {
                topics.push(self.mail.of_epoch(writer, &key));
            }
        }
        topics.truncate(most);
        Ok(topics)
    }

    /// Names of other writers' keys that are here, the newest first.
    fn epochs_of_others(&self, most: usize) -> Result<Vec<(DeviceId, KeyId)>, DbError> {
        let mut statement = self.db.prepare_cached(
            "SELECT w.writer, w.key_id, max(coalesce(l.stamp, 0)) AS stamp FROM wraps w \
             LEFT JOIN lines l ON l.writer = w.writer AND l.key_id = w.key_id \
             WHERE w.writer != ?1 GROUP BY w.writer, w.key_id ORDER BY stamp DESC LIMIT ?2",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![self.device.0, most], |row| {
            Ok((DeviceId(row.get(0)?), KeyId(row.get(1)?)))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// What there is of a chain from a number on, as [`Self::range`] gives it, in
    /// blobs. Records of the account and of keys go to the inbox of `to` in a week;
    /// this device's own requests and receipts may; nothing else does.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn mail_range(
        &mut self,
        chain: &ChainId,
        from_seq: u64,
        to: Option<(DeviceId, u64)>,
        (max_count, max_bytes): (usize, usize),
        now: Timestamp,
    ) -> Result<Vec<Mailed>, BuildError> {
        let Some(account) = self.account() else {
            return Ok(Vec::new());
        };
        let own_requests = chain.doc == DocId::Requests && chain.writer == self.device;
        let fits = match to {
            Some(_) => chain.doc.is_plain() || own_requests,
            None => !chain.doc.is_plain(),
        };
        if !fits {
            return Ok(Vec::new());
        }
        let inbox = match to {
            Some((to, week)) => match self.inbox_to(account, to, week) {
                Some(key) => Some(key),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let found = self.range(chain, from_seq, max_count, max_bytes);
        let found = found.map_err(|error| match error {
            ReadError::Db(error) => BuildError::Db(error),
            _ => BuildError::Encoding,
        })?;
        let mut mailed = Vec::with_capacity(found.len());
        for bytes in found {
            let Some(Place { upto, key_id, .. }) = place_of(&bytes) else {
                break;
            };
            let key = match &inbox {
                Some(key) => Some(key.clone()),
                None => self.topic_for(chain, key_id, now)?,
            };
            let blob = key.and_then(|key| Some((key.topic(), key.seal(&bytes).ok()?)));
            mailed.push(Mailed { upto, blob });
        }
        Ok(mailed)
    }

    fn inbox_to(
        &self,
        account: bailey_model::AccountId,
        to: DeviceId,
        week: u64,
    ) -> Option<MailKey> {
        let public = self.members().writer(&to)?;
        let inbox = Inbox {
            account,
            from: self.device,
            to,
            week,
        };
        MailKey::of_inbox(&self.keys, public, &inbox).ok()
    }

    /// The topic for what is sealed under a key; for a tombstone, which is under none,
    /// the newest of its chain's writer.
    fn topic_for(
        &mut self,
        chain: &ChainId,
        key_id: Option<KeyId>,
        now: Timestamp,
    ) -> Result<Option<MailKey>, BuildError> {
        let account = self.account().ok_or(BuildError::NoAccount)?;
        let key_id = match key_id {
            Some(key_id) => key_id,
            None if chain.writer == self.device => return self.own_topic(now).map(Some),
            None => match self.newest_of(chain.writer)? {
                Some(key_id) => key_id,
                None => return Ok(None),
            },
        };
        let key = self.ring.find(&self.db, account, chain.writer, key_id);
        let Some(key) = key.map_err(DbError::from)? else {
            return Ok(None);
        };
        let topic = self.mail.of_epoch(chain.writer, &key);
        Ok(self.mail.topics.get(&topic).map(|(_, key)| key.clone()))
    }

    fn newest_of(&self, writer: DeviceId) -> Result<Option<KeyId>, DbError> {
        let mut statement = self.db.prepare_cached(
            "SELECT w.key_id FROM wraps w JOIN lines l ON l.writer = w.writer \
             AND l.key_id = w.key_id WHERE w.writer = ?1 ORDER BY l.number DESC LIMIT 1",
        )?;
        let mut rows = statement.query([writer.0])?;
        let key_id = rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(key_id.map(KeyId))
    }

    /// The topic of this device's own epoch of now.
    fn own_topic(&mut self, now: Timestamp) -> Result<MailKey, BuildError> {
        let hours = self.thin.windows.hours_of(DocId::Node);
        let epoch = self.epoch_of(hours, now)?;
        // Others hear of its key as of any.
        self.write_built(false)?;
        Ok(MailKey::of_epoch(epoch.key()))
    }

    /// This device's word on its chains, as a blob.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn mail_heads(
        &mut self,
        heads: Vec<bailey_envelope::Head>,
        lacks: Vec<bailey_envelope::Head>,
        now: Timestamp,
    ) -> Result<Option<(TopicId, Vec<u8>)>, BuildError> {
        let account = self.account().ok_or(BuildError::NoAccount)?;
        if self.members().get(&self.device).is_none() {
            return Ok(None);
        }
        let word = Heads {
            account,
            signer: self.device,
            made: now,
            heads,
            lacks,
        };
        let key = self.own_topic(now)?;
        let bytes = word.sign(&self.keys).ok_or(BuildError::Encoding)?;
        Ok(key.seal(&bytes).ok().map(|blob| (key.topic(), blob)))
    }

    /// What a blob of a topic holds: opened, and in its place there.
    ///
    /// # Errors
    /// [`MailFault`]: nothing of it is worth another look.
    pub fn mail_open(&self, topic: TopicId, blob: &[u8]) -> Result<MailTaken, MailFault> {
        let (place, key) = self.mail.topics.get(&topic).ok_or(MailFault::Topic)?;
        let bytes = key.open(blob)?;
        if Heads::is_one(&bytes) {
            let MailPlace::Writer(writer) = place else {
                return Err(MailFault::Place("heads"));
            };
            return self.open_heads(&bytes, *writer);
        }
        let at = place_of(&bytes).ok_or(MailFault::Place("no envelope"))?;
        let (chain, upto, signer) = (at.chain, at.upto, at.signer);
        match place {
            MailPlace::Writer(writer) => {
                if chain.writer != *writer {
                    return Err(MailFault::Place("another writer's envelope"));
                }
                if chain.doc.is_plain() || chain.doc.is_here() {
                    return Err(MailFault::Place("an envelope of another document"));
                }
            }
            MailPlace::Inbox(_) if chain.doc.is_plain() => {}
            MailPlace::Inbox(from) if chain.doc == DocId::Requests && chain.writer == *from => {}
            MailPlace::Inbox(_) => return Err(MailFault::Place("a sealed envelope")),
        }
        Ok(MailTaken::Envelope {
            chain,
            upto,
            signer,
            from: *place,
            bytes,
        })
    }

    fn open_heads(&self, bytes: &[u8], writer: DeviceId) -> Result<MailTaken, MailFault> {
        let member = self.members().get(&writer);
        let public = member.ok_or(MailFault::Place("heads of a device that is no member"))?;
        let word = Heads::verify(bytes, &public.public).map_err(MailFault::Heads)?;
        match self.account() == Some(word.account) {
            true => Ok(MailTaken::Heads(word)),
            false => Err(MailFault::Place("heads of another account")),
        }
    }
}

/// What an envelope or a tombstone says of itself.
struct Place {
    chain: ChainId,
    /// The number that it goes up to.
    upto: u64,
    signer: DeviceId,
    /// The key that it is sealed under, if it is.
    key_id: Option<KeyId>,
}

fn place_of(bytes: &[u8]) -> Option<Place> {
    if Tombstone::is_one(bytes) {
        let stone = Tombstone::decode(bytes).ok()?;
        return Some(Place {
            chain: stone.chain,
            upto: stone.last_seq,
            signer: stone.signer,
            key_id: None,
        });
    }
    let header = peek(bytes).ok()?;
    Some(Place {
        chain: header.fields.chain,
        upto: header.fields.seq,
        signer: header.fields.chain.writer,
        key_id: Some(header.key_id),
    })
}

#[cfg(test)]
mod tests;
