//! Reading beside the writer, on a connection of one's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bailey_envelope::{ChainId, DeviceKeys, DocId, Verified};
use bailey_model::{AccountId, DeviceId, Entry, Event, Timestamp};
use rusqlite::Connection;

use crate::chains::{self, Chain};
use crate::db;
use crate::error::{QuarantineReason, ReadError};
use crate::ingest::{apply, check_numbers};
use crate::journal;
use crate::keys::KeyRing;
use crate::segment::Segment;
use crate::spans::{self, Place};
use crate::store::stored_account;
use crate::thin::tables;

/// The account that the store of a folder belongs to, without its keys and beside
/// whoever writes it; `None` where there is no store, or no account yet.
///
/// # Errors
/// [`ReadError::Open`], [`ReadError::Db`].
pub fn account_of(dir: &Path) -> Result<Option<AccountId>, ReadError> {
    if !db::is_there(dir) {
        return Ok(None);
    }
    Ok(stored_account(&db::open_reader(dir)?)?)
}

/// A document and who writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocInfo {
    /// The document.
    pub doc: DocId,
    /// Its writers.
    pub writers: Vec<DeviceId>,
}

/// What a document holds, and what of it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// Entries: of one writer in the order of their numbers, of several merged
    /// by their times.
    pub entries: Vec<(DeviceId, Entry)>,
    /// Envelopes set aside, and why; what follows in their segment is not read.
    pub aside: Vec<(ChainId, u64, QuarantineReason)>,
    /// Chains of which something waits for a key.
    pub waiting: Vec<ChainId>,
}

/// A reader. It sees what is committed, at one moment for each call.
pub struct Reader {
    pub(crate) db: Connection,
    pub(crate) ring: KeyRing,
    pub(crate) device: DeviceId,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens the store of a folder for reading.
    ///
    /// # Errors
    /// [`ReadError::Open`]: there is none, or it is damaged.
    pub fn open(dir: &Path, keys: DeviceKeys) -> Result<Self, ReadError> {
        let db = db::open_reader(dir)?;
        let device = keys.id();
        Ok(Self {
            db,
            ring: KeyRing::new(keys),
            device,
        })
    }

    /// Every document that takes entries and has some, sealed or not.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn docs(&mut self) -> Result<Vec<DocInfo>, ReadError> {
        let tx = self.db.unchecked_transaction()?;
        let mut docs: BTreeMap<DocId, BTreeSet<DeviceId>> = BTreeMap::new();
        for (id, _) in chains::load(&tx)?
            .iter()
            .filter(|(id, _)| !id.doc.is_plain())
        {
            docs.entry(id.doc).or_default().insert(id.writer);
        }
        for doc in journal::docs(&tx)? {
            docs.entry(doc).or_default().insert(self.device);
        }
        let info = |(doc, writers): (DocId, BTreeSet<DeviceId>)| DocInfo {
            doc,
            writers: writers.into_iter().collect(),
        };
        Ok(docs.into_iter().map(info).collect())
    }

    /// The entries of a document, of one writer or of all. See [`Reading`] for
    /// their order, and [`Self::read`] for what could not be read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn entries(
        &mut self,
        doc: DocId,
        writer: Option<DeviceId>,
    ) -> Result<Vec<(DeviceId, Entry)>, ReadError> {
        Ok(self.read(doc, writer)?.entries)
    }

    /// What a document holds, of one writer or of all: what came from others,
    /// one's own, and one's own that is not sealed yet.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, doc: DocId, writer: Option<DeviceId>) -> Result<Reading, ReadError> {
        let Self { db, ring, device } = self;
        // One read transaction: a batch that becomes an envelope meanwhile is
        // seen once, not twice and not never.
        let tx = db.unchecked_transaction()?;
        let Some(account) = stored_account(&tx)? else {
            return Ok(Reading::default());
        };
        let mut reading = Reading::default();
        let mut by_writer: BTreeMap<DeviceId, Vec<Entry>> = BTreeMap::new();
        for (id, chain) in chains::load_of(&tx, doc)? {
            if writer.is_none_or(|writer| writer == id.writer) {
                let entries = by_writer.entry(id.writer).or_default();
                let mut reader = ChainReader {
                    db: &tx,
                    ring,
                    account,
                    reading: &mut reading,
                };
                reader.read(&id, &chain, entries)?;
            }
        }
        if writer.is_none_or(|writer| writer == *device) {
            let entries = by_writer.entry(*device).or_default();
            read_journal(&tx, ring, account, *device, (doc, 0), entries)?;
        }
        for entries in by_writer.values_mut() {
            entries.sort_by_key(|entry| entry.no);
        }
        reading.entries = merge(by_writer);
        Ok(reading)
    }

    /// What each device calls itself: the last name it entered.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn names(&mut self) -> Result<BTreeMap<DeviceId, String>, ReadError> {
        let named = |(device, entry): (DeviceId, Entry)| match entry.event {
            Event::DeviceNamed(named) => Some((device, named.name)),
            _ => None,
        };
        Ok(self
            .entries(DocId::Node, None)?
            .into_iter()
            .filter_map(named)
            .collect())
    }
}

/// Where a reading of one writer's entries of a document is, segment by segment.
/// It holds nothing of the database between two pages, so that whoever takes its
/// time with one keeps nobody from writing.
#[derive(Debug, Clone)]
pub struct Pages {
    doc: DocId,
    writer: DeviceId,
    since: Timestamp,
    /// The segment read last, and the last number that was read of it.
    at: Option<(Place, u64)>,
    /// Once every segment was read: the last number of all.
    upto: Option<u64>,
}

impl Pages {
    /// Of a document's entries by one writer: the segments that hold one as young
    /// as `since`, and what is not in a segment yet.
    #[must_use]
    pub fn new(doc: DocId, writer: DeviceId, since: Timestamp) -> Self {
        Self {
            doc,
            writer,
            since,
            at: None,
            upto: None,
        }
    }
}

impl Reader {
    /// The entries of the next segment, at most
    /// [`SEGMENT_ENTRIES`](crate::segment) and one at least; older ones than
    /// asked for may be among them. What is written meanwhile comes at the end.
    /// `None` where there is no more now; a later call may find more.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_page(&mut self, pages: &mut Pages) -> Result<Option<Vec<Entry>>, ReadError> {
        let Self { db, ring, device } = self;
        let tx = db.unchecked_transaction()?;
        let Some(account) = stored_account(&tx)? else {
            return Ok(None);
        };
        let mut turner = Turner {
            db: &tx,
            ring,
            account,
            device: *device,
        };
        while pages.upto.is_none() {
            if let Some(entries) = turner.segment(pages)? {
                return Ok(Some(entries));
            }
        }
        turner.tail(pages)
    }

    /// One entry of a document by its number.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn entry(
        &mut self,
        doc: DocId,
        writer: DeviceId,
        no: u64,
    ) -> Result<Option<Entry>, ReadError> {
        let Self { db, ring, device } = self;
        let tx = db.unchecked_transaction()?;
        match stored_account(&tx)? {
            Some(account) => entry_of(&tx, ring, account, *device, (doc, writer, no)),
            None => Ok(None),
        }
    }
}

/// One entry by its document, writer and number.
pub(crate) fn entry_of(
    db: &Connection,
    ring: &mut KeyRing,
    account: AccountId,
    device: DeviceId,
    (doc, writer, no): (DocId, DeviceId, u64),
) -> Result<Option<Entry>, ReadError> {
    let mut pages = Pages::new(doc, writer, Timestamp(0));
    pages.upto = Some(no.saturating_sub(1));
    let mut turner = Turner {
        db,
        ring,
        account,
        device,
    };
    let page = turner.tail(&mut pages)?;
    Ok(page.into_iter().flatten().find(|entry| entry.no == no))
}

/// Turns pages within one read transaction.
struct Turner<'a> {
    db: &'a Connection,
    ring: &'a mut KeyRing,
    account: AccountId,
    device: DeviceId,
}

impl Turner<'_> {
    /// What came to the segment read last, else the next one in its place; `None`
    /// where that holds nothing, or all are read.
    fn segment(&mut self, pages: &mut Pages) -> Result<Option<Vec<Entry>>, ReadError> {
        let (place, from) = match pages.at {
            Some((place, read)) if spans::last_no(self.db, place.1, place.2)? > read => {
                (place, read)
            }
            at => {
                let after = at.map(|(place, _)| place);
                let next = spans::next(self.db, pages.doc, pages.writer, after, pages.since, 0)?;
                let Some((place, _)) = next else {
                    pages.upto = Some(spans::max_no(self.db, pages.doc, pages.writer)?);
                    return Ok(None);
                };
                (place, 0)
            }
        };
        let counted = spans::last_no(self.db, place.1, place.2)?;
        let mut entries = self.read(place)?;
        entries.retain(|entry| entry.no > from);
        pages.at = Some((place, counted));
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    /// What was written after all that is read.
    fn tail(&mut self, pages: &mut Pages) -> Result<Option<Vec<Entry>>, ReadError> {
        let (doc, writer) = (pages.doc, pages.writer);
        while let Some(read) = pages.upto {
            let from = read.saturating_add(1);
            let Some((place, counted)) =
                spans::next(self.db, doc, writer, None, Timestamp(0), from)?
            else {
                break;
            };
            pages.upto = Some(counted);
            let mut entries = self.read(place)?;
            entries.retain(|entry| entry.no > read);
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
        if writer != self.device {
            return Ok(None);
        }
        let mut entries = Vec::new();
        let from = pages.upto.unwrap_or(0).saturating_add(1);
        read_journal(
            self.db,
            self.ring,
            self.account,
            writer,
            (doc, from),
            &mut entries,
        )?;
        pages.upto = entries.last().map(|entry| entry.no).or(pages.upto);
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }

    fn read(&mut self, (_, row, segment): Place) -> Result<Vec<Entry>, ReadError> {
        let Some((id, chain)) = chains::load_row(self.db, row)? else {
            return Ok(Vec::new());
        };
        Ok(read_segment(
            self.db,
            self.ring,
            self.account,
            &id,
            &chain,
            segment,
        )?)
    }
}

/// Reads one segment, as far as it was opened, up to the first envelope that does
/// not hold or whose key is not here.
pub(crate) fn read_segment(
    db: &Connection,
    ring: &mut KeyRing,
    account: AccountId,
    id: &ChainId,
    chain: &Chain,
    segment: u32,
) -> rusqlite::Result<Vec<Entry>> {
    let mut read: Vec<Entry> = Vec::new();
    let Some(row) = chain.row else {
        return Ok(read);
    };
    let mut content = Segment::new(id);
    for bytes in chains::segment(db, row, segment, chain.opened)? {
        let Ok(verified) = Verified::from_stored(&bytes) else {
            break;
        };
        let Some(key) = ring.find(db, account, id.writer, verified.header.key_id)? else {
            break;
        };
        let key = key.segment_key(id.doc, segment);
        let last_no = read.last().map_or(0, |entry| entry.no);
        let next = apply(content, &verified, &key).and_then(|(next, entries)| {
            check_numbers(last_no, false, &entries).map(|()| (next, entries))
        });
        let Ok((next, entries)) = next else { break };
        content = next;
        read.extend(entries);
    }
    Ok(read)
}

/// Reads one chain's entries.
struct ChainReader<'a> {
    db: &'a Connection,
    ring: &'a mut KeyRing,
    account: AccountId,
    reading: &'a mut Reading,
}

impl ChainReader<'_> {
    fn read(&mut self, id: &ChainId, chain: &Chain, out: &mut Vec<Entry>) -> Result<(), ReadError> {
        let Some(row) = chain.row else { return Ok(()) };
        let mut content = Segment::new(id);
        let mut segment = 0;
        let mut broken = None;
        let (mut last_no, mut hole) = (0, false);
        let mut gone = Vec::new();
        let mut seq = 0;
        while seq < chain.seq {
            seq += 1;
            let Some(bytes) = chains::envelope(self.db, row, seq)? else {
                hole = true;
                match tables::grave_from(self.db, row, seq)? {
                    // It was thinned, and all up to there.
                    Some(grave) if grave.first_seq <= seq => seq = grave.last_seq.max(seq),
                    _ => self.aside(id, seq, QuarantineReason::Missing),
                }
                continue;
            };
            let Ok(verified) = Verified::from_stored(&bytes) else {
                self.aside(id, seq, QuarantineReason::Damaged);
                hole = true;
                continue;
            };
            let fields = verified.header.fields;
            if broken == Some(fields.segment) {
                self.aside(id, seq, QuarantineReason::Follows);
                continue;
            }
            if fields.segment != segment {
                segment = fields.segment;
                content = Segment::new(id);
            }
            let key = self
                .ring
                .find(self.db, self.account, id.writer, verified.header.key_id)?;
            let Some(key) = key else {
                if seq > chain.opened {
                    self.reading.waiting.push(*id);
                    return Ok(());
                }
                // It was waited for in vain, if what follows reads.
                (broken, hole) = (Some(segment), true);
                gone.push((*id, seq, QuarantineReason::KeyForgotten));
                continue;
            };
            let key = key.segment_key(id.doc, segment);
            let taken = std::mem::replace(&mut content, Segment::new(id));
            let read = apply(taken, &verified, &key).and_then(|(next, entries)| {
                check_numbers(last_no, hole, &entries).map(|()| (next, entries))
            });
            match read {
                Ok((next, entries)) => {
                    content = next;
                    last_no = entries.last().map_or(last_no, |entry| entry.no);
                    hole = false;
                    out.extend(entries);
                }
                Err(reason) => {
                    (broken, hole) = (Some(segment), true);
                    self.aside(id, seq, reason);
                }
            }
        }
        match last_no {
            0 if !gone.is_empty() => self.reading.waiting.push(*id),
            _ => self.reading.aside.extend(gone),
        }
        Ok(())
    }

    fn aside(&mut self, id: &ChainId, seq: u64, reason: QuarantineReason) {
        self.reading.aside.push((*id, seq, reason));
    }
}

fn read_journal(
    db: &Connection,
    ring: &mut KeyRing,
    account: AccountId,
    device: DeviceId,
    (doc, from_no): (DocId, u64),
    out: &mut Vec<Entry>,
) -> Result<(), ReadError> {
    let rows = journal::load(db, Some(doc))?.into_iter();
    for row in rows.filter(|row| row.next_no() > from_no) {
        let damaged = || ReadError::Journal { doc, no: row.no };
        let key = ring
            .find(db, account, device, row.key_id)?
            .ok_or_else(damaged)?;
        let key = key.segment_key(doc, row.segment);
        let entries = row.open(&key).ok_or_else(damaged)?.into_iter();
        out.extend(
            entries
                .map(|(entry, _)| entry)
                .filter(|entry| entry.no >= from_no),
        );
    }
    Ok(())
}

/// Merges writers by time; each one's own order stays.
fn merge(by_writer: BTreeMap<DeviceId, Vec<Entry>>) -> Vec<(DeviceId, Entry)> {
    let total = by_writer.values().map(Vec::len).sum();
    let mut merged = Vec::with_capacity(total);
    let mut queues: Vec<_> = by_writer
        .into_iter()
        .map(|(device, entries)| (device, entries.into_iter().peekable()))
        .collect();
    loop {
        let next = queues
            .iter_mut()
            .filter_map(|(device, entries)| entries.peek().map(|entry| (entry.ts, *device)))
            .min();
        let Some((_, device)) = next else {
            return merged;
        };
        for (writer, entries) in &mut queues {
            if *writer == device {
                merged.extend(entries.next().map(|entry| (device, entry)));
            }
        }
    }
}
