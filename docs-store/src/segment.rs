//! One Automerge document: one segment of one chain, a list `e` of packed
//! entries that only grows. And the body of an envelope that carries one change
//! of it.
//!
//! Automerge has no authorship and no limits of its own, so each change is judged
//! here, by its operations: an uncompressed change chunk of the right size, by the
//! writer's own actor, next in number, on the very change before; the first makes
//! the list, and every other operation appends one entry behind the last. What
//! passes has one meaning, which is read off the operations themselves: nobody
//! needs the document in memory, and nothing of Automerge's own merging is run on
//! another device's bytes. A test holds both to Automerge's own document.

use std::io::Read as _;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};

use automerge::legacy::{ElementId, Key, ObjectId, Op, OpId, OpType};
use automerge::{ActorId, Change, ChangeHash, ExpandedChange, ObjType, ScalarValue};
use bailey_envelope::ChainId;
use bailey_model::Timestamp;
use sha2::{Digest as _, Sha256};

/// Most entries of a segment before it is closed.
pub(crate) const SEGMENT_ENTRIES: usize = 4096;
/// How long a segment stays open, in milliseconds.
pub(crate) const SEGMENT_MS: u64 = 24 * 3_600_000;
/// Most entries of one envelope.
pub(crate) const BATCH_ENTRIES: usize = 256;
/// A segment that has less room than this is closed.
pub(crate) const SEGMENT_ROOM: usize = 50;
/// Most packed bytes of one envelope before the next is begun: with one more
/// entry of the largest size it still fits uncompressed.
pub(crate) const BATCH_BYTES: usize = 128 * 1024;
/// Most bytes of a change after inflating. A change of the largest batch is
/// well below; what is above was made to exhaust memory.
pub(crate) const MAX_INFLATED: usize = 1024 * 1024;

/// Name of the list of entries in the document.
const LIST: &str = "e";
/// Version of an envelope's body.
const VERSION: u8 = 1;
/// Version of the first body of a segment: as the other, with the hours of the
/// window before what it carries (u32, big endian), so that they are signed.
const VERSION_FIRST: u8 = 2;
const RAW: u8 = 0;
const DEFLATED: u8 = 1;
/// First bytes of an Automerge chunk, and where its type stands.
const CHUNK_MAGIC: [u8; 4] = [0x85, 0x6f, 0x4a, 0x83];
const CHUNK_TYPE_AT: usize = 8;
const CHUNK_TYPE_CHANGE: u8 = 1;

/// Why a change was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentFault {
    /// The body is of a version that this build does not know.
    #[error("body version {0} is not known to this build")]
    Version(u8),
    /// The body is not one.
    #[error("body is malformed")]
    Body,
    /// It inflates beyond the cap.
    #[error("body inflates beyond {MAX_INFLATED} bytes")]
    Inflates,
    /// The bytes are not one uncompressed change.
    #[error("not an uncompressed change")]
    Change,
    /// The change is by another actor than the writer's own.
    #[error("change is by another actor than its writer's")]
    Actor,
    /// The change does not follow the one before.
    #[error("change does not follow the one before")]
    Order,
    /// The change does something else than append entries.
    #[error("change does more than append")]
    NotAppending,
    /// An entry is not one, or its number is not the next.
    #[error("entry is malformed or out of number")]
    Entry,
    /// The segment has more entries than one may have.
    #[error("segment is over {SEGMENT_ENTRIES} entries")]
    TooManyEntries,
    /// Automerge failed by a panic.
    #[error("document library failed")]
    Panicked,
    /// What was built reads back as something else.
    #[error("what was built reads back as something else")]
    NotSame,
}

/// The actor under which a chain's changes are made.
pub(crate) fn actor_of(chain: &ChainId) -> ActorId {
    let hash = Sha256::new()
        .chain_update(b"bailey/actor/v1\0")
        .chain_update(chain.writer.0)
        .chain_update(chain.incarnation.0)
        .chain_update(chain.doc.to_bytes())
        .finalize();
    let mut actor = [0; 16];
    actor.copy_from_slice(&hash[..16]);
    ActorId::from(actor)
}

/// How far a segment has come: what its next change has to build on.
#[derive(Clone)]
pub(crate) struct Segment {
    actor: ActorId,
    /// The newest change.
    head: Option<ChangeHash>,
    changes: u64,
    /// Number of the newest operation. The first one makes the list, and then
    /// each appends an entry: it is the list's length and one.
    ops: u64,
    hours: Option<u32>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (entries, changes) = (self.len(), self.changes);
        write!(f, "Segment({entries} entries, {changes} changes)")
    }
}

/// Number of the operation that makes the list.
const LIST_OP: u64 = 1;

impl Segment {
    /// An empty segment of a chain.
    pub(crate) fn new(chain: &ChainId) -> Self {
        Self {
            actor: actor_of(chain),
            head: None,
            changes: 0,
            ops: 0,
            hours: None,
        }
    }

    /// The window that its first envelope named, in hours.
    pub(crate) fn hours(&self) -> Option<u32> {
        self.hours
    }

    /// Entries so far.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.ops.saturating_sub(LIST_OP)).unwrap_or(usize::MAX)
    }

    /// Appends own entries as one change and gives its body; the first one names
    /// the window, in hours.
    pub(crate) fn append(&mut self, entries: &[Vec<u8>], hours: u32, time: Timestamp) -> Vec<u8> {
        let first = self.changes == 0;
        let mut at = self.ops;
        let mut operations = Vec::with_capacity(entries.len() + 1);
        if first {
            operations.push(makes_list());
            at = LIST_OP;
        }
        for entry in entries {
            operations.push(self.appends(at, entry.clone()));
            at += 1;
        }
        // A change is of whole seconds; what an entry was written at stands in it.
        let time = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
        let change = Change::from(ExpandedChange {
            operations,
            actor_id: self.actor.clone(),
            hash: None,
            seq: self.changes + 1,
            start_op: NonZeroU64::MIN.saturating_add(self.ops),
            time,
            message: None,
            deps: self.head.into_iter().collect(),
            extra_bytes: Vec::new(),
            author: None,
        });
        self.head = Some(change.hash());
        (self.ops, self.changes) = (at, self.changes + 1);
        body_of(first.then_some(hours), change.raw_bytes())
    }

    /// Takes a change from an envelope's body and gives the entries it
    /// appends. Nothing is taken of one that is refused.
    pub(crate) fn apply(&mut self, body: &[u8]) -> Result<Vec<Vec<u8>>, SegmentFault> {
        let (hours, raw) = change_of(body)?;
        // Automerge may panic on bytes made for it.
        let read = catch_unwind(AssertUnwindSafe(|| self.read(raw)));
        let (change, entries) = read.map_err(|_| SegmentFault::Panicked)??;
        if hours.is_some() && self.changes > 0 {
            return Err(SegmentFault::Body);
        }
        self.head = Some(change.hash());
        (self.ops, self.changes) = (change.max_op(), self.changes + 1);
        self.hours = self.hours.or(hours);
        Ok(entries)
    }

    /// The entries that a change appends to what is here.
    fn read(&self, raw: Vec<u8>) -> Result<(Change, Vec<Vec<u8>>), SegmentFault> {
        let change = Change::from_bytes(raw).map_err(|_| SegmentFault::Change)?;
        if *change.actor_id() != self.actor || !change.other_actor_ids().is_empty() {
            return Err(SegmentFault::Actor);
        }
        let follows = change.seq() == self.changes + 1
            && change.deps() == self.head.as_slice()
            && change.start_op().get() == self.ops + 1;
        if !follows {
            return Err(SegmentFault::Order);
        }
        let makes = usize::from(self.changes == 0);
        let appended = change.len().checked_sub(makes).filter(|&count| count > 0);
        let appended = appended.ok_or(SegmentFault::NotAppending)?;
        if self.len().saturating_add(appended) > SEGMENT_ENTRIES {
            return Err(SegmentFault::TooManyEntries);
        }
        let mut operations = change.decode().operations.into_iter();
        if makes == 1 && operations.next() != Some(makes_list()) {
            return Err(SegmentFault::NotAppending);
        }
        let first = self.ops.max(LIST_OP);
        let entries = (first..)
            .zip(operations)
            .map(|(at, operation)| self.appended(at, operation))
            .collect::<Result<_, _>>()?;
        Ok((change, entries))
    }

    /// The entry that an operation appends behind operation `at`.
    fn appended(&self, at: u64, operation: Op) -> Result<Vec<u8>, SegmentFault> {
        let Op {
            action,
            obj,
            key,
            pred,
            insert,
        } = operation;
        let place = insert && pred.is_empty() && obj == self.list() && key == self.behind(at);
        match action {
            _ if !place => Err(SegmentFault::NotAppending),
            OpType::Put(ScalarValue::Bytes(entry)) => Ok(entry),
            _ => Err(SegmentFault::Entry),
        }
    }

    /// The operation that appends an entry behind operation `at`.
    fn appends(&self, at: u64, entry: Vec<u8>) -> Op {
        Op {
            action: OpType::Put(ScalarValue::Bytes(entry)),
            obj: self.list(),
            key: self.behind(at),
            pred: Vec::new().into(),
            insert: true,
        }
    }

    fn list(&self) -> ObjectId {
        ObjectId::Id(OpId::new(LIST_OP, &self.actor))
    }

    fn behind(&self, at: u64) -> Key {
        Key::Seq(match at {
            LIST_OP => ElementId::Head,
            at => ElementId::Id(OpId::new(at, &self.actor)),
        })
    }
}

/// The operation that makes the list.
fn makes_list() -> Op {
    Op {
        action: OpType::Make(ObjType::List),
        obj: ObjectId::Root,
        key: Key::Map(LIST.into()),
        pred: Vec::new().into(),
        insert: false,
    }
}

/// The body of an envelope that carries a change, and a window where it is the
/// first of its segment.
fn body_of(hours: Option<u32>, change: &[u8]) -> Vec<u8> {
    let head = |codec| match hours {
        Some(hours) => [&[VERSION_FIRST, codec], &hours.to_be_bytes()[..]].concat(),
        None => vec![VERSION, codec],
    };
    let mut deflated = head(DEFLATED);
    let mut encoder = flate2::read::DeflateEncoder::new(change, flate2::Compression::fast());
    match encoder.read_to_end(&mut deflated) {
        Ok(_) if deflated.len() < change.len() => deflated,
        _ => [&head(RAW), change].concat(),
    }
}

/// The window and the change that a body carries, inflated within the cap and
/// checked to be of the kind that Automerge does not inflate again by itself.
fn change_of(body: &[u8]) -> Result<(Option<u32>, Vec<u8>), SegmentFault> {
    let ([version, codec], payload) = body.split_first_chunk().ok_or(SegmentFault::Body)?;
    let (hours, payload) = match *version {
        VERSION => (None, payload),
        VERSION_FIRST => {
            let (hours, payload) = payload.split_first_chunk().ok_or(SegmentFault::Body)?;
            (Some(u32::from_be_bytes(*hours)), payload)
        }
        version => return Err(SegmentFault::Version(version)),
    };
    let change = match *codec {
        RAW => payload.to_vec(),
        DEFLATED => inflate(payload)?,
        _ => return Err(SegmentFault::Body),
    };
    let is_change =
        change.starts_with(&CHUNK_MAGIC) && change.get(CHUNK_TYPE_AT) == Some(&CHUNK_TYPE_CHANGE);
    if is_change {
        Ok((hours, change))
    } else {
        Err(SegmentFault::Change)
    }
}

fn inflate(payload: &[u8]) -> Result<Vec<u8>, SegmentFault> {
    let mut out = Vec::new();
    let cap = u64::try_from(MAX_INFLATED).unwrap_or(u64::MAX);
    flate2::read::DeflateDecoder::new(payload)
        .take(cap + 1)
        .read_to_end(&mut out)
        .map_err(|_| SegmentFault::Body)?;
    if out.len() > MAX_INFLATED {
        Err(SegmentFault::Inflates)
    } else {
        Ok(out)
    }
}

/// Fuzz target: whatever a member puts into a body, applying it returns.
pub fn fuzz_body(body: &[u8]) {
    let chain = ChainId {
        doc: bailey_envelope::DocId::Node,
        writer: bailey_model::DeviceId([1; 32]),
        incarnation: bailey_model::Incarnation([2; 16]),
    };
    let mut segment = Segment::new(&chain);
    drop(segment.append(&[vec![1, 1, 0, 0]], 720, Timestamp(0)));
    drop(segment.apply(body));
    drop(Segment::new(&chain).apply(body));
}

#[cfg(test)]
mod tests;
