//! Batches become envelopes.

use bailey_envelope::{
    ChainId, DevicePublic, DocId, EpochKey, KeyId, Kind, SegmentKey, Verified, seal, sign_plain,
};
use bailey_model::{AccountId, DeviceId, Timestamp};

use crate::entropy::random;
use crate::error::{BuildError, SealingError};
use crate::keys::{Epoch, KeyRecord, MAX_WRAPS, Wrap, wrap_to_all};
use crate::own::{Built, Carries, OwnDoc, RETRY_MS, Unsealed, day_of};
use crate::segment::{SEGMENT_ENTRIES, SEGMENT_MS, SEGMENT_ROOM, Segment, SegmentFault};
use crate::spans::Span;
use crate::store::Store;
use crate::thin::{Noted, fail, tables};

/// How long an urgent entry waits for others to go with it, in milliseconds: a notice,
/// a stop and its receipt each wait once, and a person for all of them.
const URGENT_MS: u64 = 20;
/// What stands for an epoch in what is kept here; 0 is what is not sealed.
const NO_EPOCH: u32 = u32::MAX;
/// How long a segment of the days' document stays open, in milliseconds: as long as
/// its epoch. It has an entry or a few each day, and each segment costs its place.
const DAYS_MS: u64 = EPOCH_MS;
/// How long an epoch is sealed under, in milliseconds: its key can be forgotten a
/// window after that.
const EPOCH_MS: u64 = 7 * 24 * 3_600_000;

/// An epoch of one's own that is sealed under now.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    number: u32,
    made: Timestamp,
    key: EpochKey,
    /// Nothing more is sealed under it.
    over: bool,
}

impl Current {
    pub(crate) fn key(&self) -> &EpochKey {
        &self.key
    }

    /// Whether this is its key.
    pub(crate) fn is(&self, key_id: KeyId) -> bool {
        self.key.id() == key_id
    }
}

impl Store {
    /// When [`Self::seal`] has something to do; `None` if nothing waits.
    #[must_use]
    pub fn seal_due(&self, now: Timestamp) -> Option<Timestamp> {
        // A clock that was set back makes due what it was set back behind: else that
        // would wait until the old time comes again.
        let by = |due: u64, longest: u64| match due > now.0.saturating_add(longest) {
            true => now,
            false => Timestamp(due),
        };
        if !self.unsaved.is_empty() {
            let retry = self.retry_at.unwrap_or(now);
            return Some(by(retry.0, RETRY_MS));
        }
        let waiting = self.docs.values();
        let due = waiting.filter_map(|own| own.due_by(now)).min()?;
        match self.urgent_since {
            Some(since) => {
                let urgent = by(since.0.saturating_add(URGENT_MS), URGENT_MS);
                Some(due.min(urgent))
            }
            None => Some(due),
        }
    }

    /// Whether something that others wait for is appended and not sealed yet.
    #[must_use]
    pub fn is_prompt_due(&self) -> bool {
        self.urgent_since.is_some()
    }

    /// Seals every batch that is due and stores the envelopes. Gives the
    /// chains that grew. What is only appended and not committed stays where
    /// it is.
    ///
    /// # Errors
    /// [`SealingError`]: nothing is lost, and [`Self::seal_due`] says when to
    /// try again. A document that cannot be sealed keeps no other from it: those
    /// are stored, and their heads have grown.
    pub fn seal(&mut self, now: Timestamp) -> Result<Vec<ChainId>, SealingError> {
        let sealed = self.seal_now(now);
        self.retry_at = match &sealed {
            Ok(_) => None,
            Err(_) => Some(Timestamp(now.0.saturating_add(RETRY_MS))),
        };
        sealed
    }

    fn seal_now(&mut self, now: Timestamp) -> Result<Vec<ChainId>, SealingError> {
        let urgent = self
            .urgent_since
            .is_some_and(|since| now.0 >= since.0.saturating_add(URGENT_MS) || now < since);
        let due: Vec<DocId> = self
            .docs
            .iter()
            .filter(|(_, own)| !own.batch.is_empty() && (urgent || own.is_due(now)))
            .filter(|(_, own)| own.rests_until(now).is_none())
            .map(|(doc, _)| *doc)
            .collect();
        let failed = self.build_docs(due, now);
        if urgent {
            self.urgent_since = None;
        }
        self.settle(now)?;
        let mut grown: Vec<ChainId> = self
            .unsaved
            .iter()
            .map(|built| self.own(built.doc))
            .collect();
        self.write_built(false)?;
        grown.sort_unstable();
        grown.dedup();
        failed.map_or(Ok(grown), Err)
    }

    /// Seals everything that waits, due or not: before the node leaves.
    ///
    /// # Errors
    /// [`SealingError`].
    pub fn seal_all(&mut self, now: Timestamp) -> Result<Vec<ChainId>, SealingError> {
        let failed = self.build_all(now);
        let grown = self.seal(now)?;
        failed.map_or(Ok(grown), Err)
    }

    fn own(&self, doc: DocId) -> ChainId {
        ChainId {
            doc,
            writer: self.device,
            incarnation: self.incarnation,
        }
    }

    /// Builds every batch that waits; gives what could not be built, if any could not.
    pub(crate) fn build_all(&mut self, now: Timestamp) -> Option<SealingError> {
        let waiting: Vec<DocId> = self
            .docs
            .iter()
            .filter(|(_, own)| !own.batch.is_empty())
            .map(|(doc, _)| *doc)
            .collect();
        self.build_docs(waiting, now)
    }

    /// Each by itself: what is wrong with one keeps no other waiting.
    fn build_docs(&mut self, docs: Vec<DocId>, now: Timestamp) -> Option<SealingError> {
        let mut failed: Option<(DocId, BuildError)> = None;
        let mut count = 0_usize;
        for doc in docs {
            if let Err(error) = self.build_doc(doc, now) {
                count += 1;
                failed.get_or_insert((doc, error));
            }
        }
        let (doc, source) = failed?;
        Some(SealingError::Document {
            doc,
            others: count - 1,
            source,
        })
    }

    fn build_doc(&mut self, doc: DocId, now: Timestamp) -> Result<(), BuildError> {
        loop {
            let batch = match self.docs.get_mut(&doc) {
                Some(own) => own.take_batch(),
                None => Vec::new(),
            };
            let entries = batch.iter().map(|entry| (entry.no, entry.ts));
            let Some(span) = Span::of(entries) else {
                return Ok(());
            };
            match self.build_batch(doc, &batch, Carries::Entries(span), now) {
                Ok(built) => {
                    let last = span.last_no;
                    self.unsealed = self.unsealed.saturating_sub(batch.len());
                    self.unsaved.push(built);
                    if let Some(own) = self.docs.get_mut(&doc) {
                        own.was_built();
                        if own.rests_after.take_if(|no| *no == last).is_some() {
                            own.close_segment();
                        }
                    }
                }
                Err(error) => {
                    if let Some(own) = self.docs.get_mut(&doc) {
                        own.put_back(batch, now);
                        // Its content may hold what was not sealed.
                        own.close_segment();
                    }
                    return Err(error);
                }
            }
        }
    }

    fn build_batch(
        &mut self,
        doc: DocId,
        batch: &[Unsealed],
        carries: Carries,
        now: Timestamp,
    ) -> Result<Built, BuildError> {
        let first = batch.first().map_or(now, |first| first.ts);
        if let Some(own) = self.docs.get_mut(&doc) {
            own.close_if_over(&doc, batch.len(), first, now);
        }
        let account = self.account().ok_or(BuildError::NoAccount)?;
        let key = self.segment_key(doc, now)?;
        let mark = self.thin.mark();
        let nonce = random(self.entropy.as_mut())?;
        let chain = self.own(doc);
        let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
        let content = own.content.get_or_insert_with(|| Segment::new(&chain));
        let before = content.clone();
        let packed: Vec<Vec<u8>> = batch.iter().map(|entry| entry.packed.clone()).collect();
        let body = content.append(&fail::saved(&packed), own.hours, now);
        let full = content.len() + SEGMENT_ROOM > SEGMENT_ENTRIES;
        let kind = if full { Kind::Closed } else { Kind::Tail };
        let (segment, hours, epoch) = (own.segment, own.hours, own.epoch);
        let fields = self.next_fields(account, doc, kind, segment);
        let sealed = seal(&self.keys, fields, epoch, &key, &body, nonce)?;
        let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
        if read_back(&sealed.bytes, &key, before)? != packed {
            return Err(SegmentFault::NotSame.into());
        }
        own.tip = Some((fields.seq, sealed.hash));
        own.segment_since.get_or_insert(first.min(now));
        if full {
            own.close_segment();
        }
        Ok(Built {
            doc,
            seq: fields.seq,
            hash: sealed.hash,
            segment,
            key_id: key.epoch_key(),
            made: now,
            bytes: sealed.bytes,
            carries,
            noted: Some(Noted {
                segment,
                key_id: key.epoch_key(),
                hours,
                seq: fields.seq,
                stamp: mark.max(now),
                closed: full,
            }),
        })
    }

    /// The key of a document's open segment; the first one of a start begins
    /// this start's epoch.
    pub(crate) fn segment_key(
        &mut self,
        doc: DocId,
        now: Timestamp,
    ) -> Result<SegmentKey, BuildError> {
        if let Some(key) = self.docs.get(&doc).and_then(|own| own.key.as_ref()) {
            return Ok(key.clone());
        }
        let hours = self.thin.windows.hours_of(doc);
        let epoch = match doc.is_here() {
            // What stays here is of no epoch: nobody is handed its key.
            true => Current {
                number: NO_EPOCH,
                made: now,
                key: self.keys.here_key(),
                over: false,
            },
            false => self.epoch_of(hours, now)?,
        };
        let own = self.docs.entry(doc).or_insert_with(OwnDoc::new);
        let key = epoch.key.segment_key(doc, own.segment);
        own.key = Some(key.clone());
        (own.hours, own.epoch) = (hours, epoch.number);
        Ok(key)
    }

    /// The epoch for what is kept for this window. One that is a week old closes
    /// every segment under it and makes room for the next.
    pub(crate) fn epoch_of(&mut self, hours: u32, now: Timestamp) -> Result<Current, BuildError> {
        if let Some(current) = self.epochs.get(&hours)
            && !current.over
            && now.0 < current.made.0.saturating_add(EPOCH_MS)
        {
            return Ok(current.clone());
        }
        let account = self.account().ok_or(BuildError::NoAccount)?;
        let stored = tables::last_epoch(&self.db, self.device).map_err(crate::db::DbError::from)?;
        let built = self.epochs.values().map(|current| current.number).max();
        let number = stored.max(built.unwrap_or(0)).saturating_add(1);
        let key = EpochKey::generate(random(self.entropy.as_mut())?);
        let recipients = self.recipients();
        let membership = self.account_heads(false);
        let wraps = wrap_to_all(
            account,
            self.device,
            number,
            &key,
            &membership,
            &recipients,
            self.entropy.as_mut(),
        )?;
        let epoch = Epoch {
            number,
            key_id: key.id(),
            made: now.0,
        };
        self.build_keys(account, Some((epoch, hours)), &wraps, None, now)?;
        self.ring.insert(key.clone());
        let of_line = self.docs.values_mut().filter(|own| own.hours == hours);
        of_line.for_each(OwnDoc::close_segment);
        let current = Current {
            number,
            made: now,
            key,
            over: false,
        };
        self.epochs.insert(hours, current.clone());
        Ok(current)
    }

    /// Closes every segment that others read: nothing more is sealed under the keys
    /// of now.
    pub(crate) fn end_epochs(&mut self) {
        let synced = self.docs.iter_mut().filter(|(doc, _)| !doc.is_here());
        synced.for_each(|(_, own)| own.close_segment());
        for current in self.epochs.values_mut() {
            current.over = true;
        }
    }

    /// Begins an epoch in the place of each that was ended.
    pub(crate) fn begin_epochs(&mut self, now: Timestamp) -> Result<(), BuildError> {
        let over: Vec<u32> = self
            .epochs
            .iter()
            .filter(|(_, current)| current.over)
            .map(|(hours, _)| *hours)
            .collect();
        for hours in over {
            self.epoch_of(hours, now)?;
        }
        Ok(())
    }

    /// Who gets this writer's keys: itself, every member that reads, recovery.
    pub(crate) fn recipients(&self) -> Vec<DevicePublic> {
        let members = self.members();
        let mut recipients = vec![self.keys.public()];
        recipients.extend(self.others_that_read().map(|(_, public)| public));
        recipients.extend(members.recovery());
        recipients
    }

    fn others_that_read(&self) -> impl Iterator<Item = (DeviceId, DevicePublic)> {
        self.members()
            .iter()
            .filter(|(device, member)| **device != self.device && member.role.reads())
            .map(|(device, member)| (*device, member.public))
    }

    /// Hands the keys of the window to every member that reads and has not
    /// got them.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Result<(), BuildError> {
        let Some(account) = self.account() else {
            return Ok(());
        };
        if self.members().get(&self.device).is_none() {
            return Ok(());
        }
        self.acknowledge(now)?;
        self.begin_epochs(now)?;
        let new_recovery = self.recovery_since_reset().map(|keys| (keys.id(), keys));
        let owed: Vec<_> = self
            .others_that_read()
            .chain(new_recovery)
            .filter(|(device, _)| !self.handed.contains(device))
            .collect();
        if owed.is_empty() {
            return Ok(());
        }
        // Epochs are read back from what is stored.
        self.write_built(false)?;
        let long = self.thin.windows.long();
        let epochs =
            tables::own_epochs(&self.db, self.device, long).map_err(crate::db::DbError::from)?;
        let membership = self.account_heads(false);
        for (device, public) in owed {
            // A record for each epoch, so that it can go when that key goes.
            // All that is not forgotten: what is sealed under it may still be sent.
            for (at, (epoch, _)) in epochs.iter().enumerate() {
                let key = self.ring.find(&self.db, account, self.device, epoch.key_id);
                let key = key
                    .map_err(crate::db::DbError::from)?
                    .ok_or(BuildError::NoKey)?;
                let wraps = wrap_to_all(
                    account,
                    self.device,
                    epoch.number,
                    &key,
                    &membership,
                    &[public],
                    self.entropy.as_mut(),
                )?;
                let last = (at + 1 == epochs.len()).then_some(device);
                self.build_keys(account, None, &wraps, last, now)?;
            }
            if epochs.is_empty() {
                self.build_keys(account, None, &[], Some(device), now)?;
            }
        }
        Ok(self.write_built(false)?)
    }

    /// Builds the key records for some wraps; the last one says who was served.
    pub(crate) fn build_keys(
        &mut self,
        account: AccountId,
        mut epoch: Option<(Epoch, u32)>,
        wraps: &[Wrap],
        handed: Option<DeviceId>,
        now: Timestamp,
    ) -> Result<(), BuildError> {
        let membership = self.account_heads(false);
        let chunks: Vec<&[Wrap]> = if wraps.is_empty() {
            vec![&[]]
        } else {
            wraps.chunks(MAX_WRAPS).collect()
        };
        let count = chunks.len();
        for (at, chunk) in chunks.into_iter().enumerate() {
            let begins = epoch.take();
            let record = KeyRecord {
                epoch: begins.map(|(epoch, _)| epoch),
                hours: begins.map_or(0, |(_, hours)| hours),
                membership: membership.clone(),
                wraps: chunk.to_vec(),
            };
            let body = record.encode().ok_or(BuildError::Encoding)?;
            let fields = self.next_fields(account, DocId::Keys, Kind::Record, 0);
            let sealed = sign_plain(&self.keys, fields, &body)?;
            let own = self.docs.entry(DocId::Keys).or_insert_with(OwnDoc::new);
            own.tip = Some((fields.seq, sealed.hash));
            self.unsaved.push(Built {
                doc: DocId::Keys,
                seq: fields.seq,
                hash: sealed.hash,
                segment: 0,
                key_id: KeyId([0; 32]),
                made: now,
                bytes: sealed.bytes,
                carries: Carries::Keys {
                    record,
                    handed: handed.filter(|_| at + 1 == count),
                },
                noted: None,
            });
        }
        Ok(())
    }
}

impl OwnDoc {
    /// Begins the next segment if this one has no room for so many entries, the first
    /// of which is of this time, or has been open for long enough. One of a box is of
    /// one day, as its summary is.
    pub(crate) fn close_if_over(
        &mut self,
        doc: &DocId,
        entries: usize,
        first: Timestamp,
        now: Timestamp,
    ) {
        let full = self
            .content
            .as_ref()
            .is_some_and(|content| content.len() + entries > SEGMENT_ENTRIES);
        let longest = match doc {
            DocId::Days => DAYS_MS,
            _ => SEGMENT_MS,
        };
        let old = self
            .segment_since
            .is_some_and(|since| now.0 >= since.0.saturating_add(longest));
        let daily = doc.box_id().is_some();
        let other = self
            .segment_since
            .is_some_and(|since| daily && day_of(first) > day_of(since));
        if full || old || other {
            self.close_segment();
        }
    }

    /// Begins the next segment.
    pub(crate) fn close_segment(&mut self) {
        if self.content.is_some() {
            self.segment = self.segment.saturating_add(1);
        }
        self.segment_since = None;
        self.content = None;
        self.key = None;
    }
}

/// Opens what was just sealed and reads it as what follows `before`: only what reads
/// as it was written may take the place of its journal rows.
fn read_back(
    sealed: &[u8],
    key: &SegmentKey,
    mut before: Segment,
) -> Result<Vec<Vec<u8>>, SegmentFault> {
    let verified = Verified::from_stored(sealed).map_err(|_| SegmentFault::NotSame)?;
    let body = verified.open(key).map_err(|_| SegmentFault::NotSame)?;
    before.apply(&body)
}

#[cfg(test)]
mod tests;
