//! What can go wrong, one enum an operation.

use std::io;
use std::path::PathBuf;

use bailey_envelope::{
    ChainId, DecodeError, DocId, Hash, OpenError as BodyError, SealError, VerifyError, WeakKey,
};
use bailey_model::DeviceId;

use crate::account::RecordError;
use crate::db::{DbError, OpenDbError};
use crate::entropy::NoEntropy;
use crate::keyfile::KeyFileError;
use crate::keys::{HandOutError, KeyRecordError};
use crate::schema::{PackError, UnpackError};
use crate::segment::SegmentFault;

/// A store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process writes to it.
    #[error("another bailey writes here{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    InUse {
        /// Its pid, if it wrote it down.
        pid: Option<u32>,
    },
    /// The lock file cannot be made.
    #[error("{path}: {source}")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database cannot be opened.
    #[error(transparent)]
    Db(#[from] OpenDbError),
    /// The database refused.
    #[error(transparent)]
    Query(#[from] DbError),
    /// An own account record does not read back.
    #[error("stored account record does not read back: {0}")]
    Record(#[from] RecordError),
    /// Stored bytes are no envelope.
    #[error("stored envelope does not read back: {0}")]
    Envelope(#[from] DecodeError),
    /// A journal row does not open: the row, its key or the file is damaged.
    #[error("journal row {no} of {doc} does not open")]
    Journal {
        /// The document.
        doc: DocId,
        /// The entry's number.
        no: u64,
    },
    /// No random bytes for this start's incarnation.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// What a crash left in the journal cannot be sealed.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// An entry that cannot be taken: nothing may go out for it.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// There is no account yet.
    #[error("there is no account yet")]
    NoAccount,
    /// This device is not a member of its account (yet).
    #[error("this device is not a member of the account")]
    NotMember,
    /// The account's and the keys' documents take no entries.
    #[error("{0} takes no entries")]
    NoEntries(DocId),
    /// The entry cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// Too much waits to be committed or sealed, since the disk takes nothing.
    #[error("too many entries wait for the disk")]
    Backlog,
    /// The epoch's key or record cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// A commit that failed. Every entry appended since the last one is gone, and
/// their numbers will be given again: refuse what waits for them.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl CommitError {
    /// Whether it is for want of room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Db(DbError::Full))
    }
}

/// An envelope that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Sealing refused.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// No random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The segment refused the batch.
    #[error(transparent)]
    Segment(#[from] SegmentFault),
    /// Keys cannot be handed out.
    #[error(transparent)]
    HandOut(#[from] HandOutError),
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
    /// A record cannot be encoded.
    #[error("record cannot be encoded")]
    Encoding,
    /// An own key that should be wrapped to this device is not there.
    #[error("an own epoch key is missing")]
    NoKey,
    /// There is no account.
    #[error("there is no account yet")]
    NoAccount,
}

/// Sealing that failed. Nothing is lost: what was built is stored by the next
/// try, as the very same bytes.
#[derive(Debug, thiserror::Error)]
pub enum SealingError {
    /// Entries of a document could not be sealed; they stay in the journal. What could
    /// be sealed is stored.
    #[error("{doc}: {source}{}", match others { 0 => String::new(), others => format!(" (and {others} more documents)") })]
    Document {
        /// The first such document.
        doc: DocId,
        /// How many more there are.
        others: usize,
        /// What is wrong with the first.
        source: BuildError,
    },
    /// An envelope could not be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Something about the account that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// This store belongs to an account already.
    #[error("this device belongs to an account already")]
    HasAccount,
    /// There is no account yet.
    #[error("there is no account yet")]
    NoAccount,
    /// Only a `full` member may.
    #[error("this device may not change the account")]
    NotAllowed,
    /// The device is a member already.
    #[error("device {0} is a member already")]
    AlreadyMember(DeviceId),
    /// Its keys were removed once, and are never accepted again.
    #[error("the keys of device {0} were removed from the account; it needs new ones")]
    RemovedKeys(DeviceId),
    /// No member has this id.
    #[error("device {0} is no member of the account")]
    NoMember(DeviceId),
    /// One record names so many devices at most.
    #[error("more devices than one record names")]
    TooMany,
    /// These are not the account's recovery keys.
    #[error("these are not the recovery keys of the account")]
    NotRecovery,
    /// The store would not take the record itself.
    #[error("the record was refused here: {0}")]
    Refused(Box<IngestError>),
    /// What waited could not be sealed before.
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// The device's keys are weak.
    #[error(transparent)]
    Weak(#[from] WeakKey),
    /// The account moved on since the offer was made: make another.
    #[error("the offer no longer stands")]
    StaleOffer,
    /// The new device did not sign the offer.
    #[error("the new device did not sign the offer")]
    Cosignature,
    /// The recovery seed cannot be kept.
    #[error(transparent)]
    Seed(#[from] KeyFileError),
    /// The record cannot be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
    /// No random bytes.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The device's name could not be entered.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// An account that could not be joined. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// This store belongs to an account already.
    #[error("this device belongs to an account already")]
    HasAccount,
    /// More records than an account may have.
    #[error("{0} records, more than an account may have")]
    TooMany(usize),
    /// Something else came among the records.
    #[error("an envelope of {0} among the account's records")]
    NoRecord(DocId),
    /// A record was refused, or one that it rests on is missing.
    #[error(transparent)]
    Record(#[from] IngestError),
    /// The account could not be brought back.
    #[error(transparent)]
    Recovery(#[from] Box<AccountError>),
    /// The records do not make this device a member.
    #[error("the records do not make this device a member")]
    NotMember,
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Why an envelope of a member was set aside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuarantineReason {
    /// Its body does not open under the key it names.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// Its change was refused.
    #[error(transparent)]
    Segment(#[from] SegmentFault),
    /// An entry is malformed.
    #[error(transparent)]
    Entry(#[from] UnpackError),
    /// Entry numbers have a hole or go back.
    #[error("entry {found} where {want} was due")]
    Number {
        /// The number due.
        want: u64,
        /// The number found.
        found: u64,
    },
    /// What is stored of it is no envelope any more.
    #[error("its stored bytes are damaged")]
    Damaged,
    /// It is not stored any more.
    #[error("it is missing")]
    Missing,
    /// Its writer has forgotten the key, and handed this device later ones alone.
    #[error("its key was forgotten before this device came")]
    KeyForgotten,
    /// It follows one of the same segment that was set aside.
    #[error("follows an envelope that was set aside")]
    Follows,
}

/// Where a writer's two chains part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// The chain.
    pub chain: ChainId,
    /// The number at which they part.
    pub seq: u64,
    /// Hash of the one here.
    pub ours: Hash,
    /// Hash of the other one: of the envelope refused, or named by it.
    pub theirs: Hash,
    /// Whether the envelope refused is kept as proof: of each writer 16 are.
    pub kept: bool,
}

/// An envelope that was not taken.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// Over a cap.
    #[error("envelope of {0} bytes is over the cap")]
    TooLarge(usize),
    /// Not an envelope.
    #[error(transparent)]
    Malformed(DecodeError),
    /// This store has no account to which it could belong.
    #[error("there is no account yet")]
    NoAccount,
    /// Of another account.
    #[error("envelope of another account")]
    OtherAccount,
    /// Its writer is not a member, as far as is known here. It may become one
    /// with records that have not come yet: offer it again after those.
    #[error("writer {0} is not a member")]
    NotMember(DeviceId),
    /// The signature does not hold.
    #[error(transparent)]
    BadSignature(VerifyError),
    /// Envelopes before it are missing: ask for them from `have + 1`.
    #[error("envelope {found} of a chain of which {have} are here")]
    Gap {
        /// The chain.
        chain: ChainId,
        /// Number of the newest one here.
        have: u64,
        /// Its own number.
        found: u64,
    },
    /// Its writer signed two chains that part here. Both are proof; the one
    /// that came first stays.
    #[error("writer signed two different envelopes {} of {:?}", .0.seq, .0.chain)]
    Fork(Box<Fork>),
    /// It contradicts the chain before it.
    #[error("envelope does not fit its chain: {0}")]
    Misfit(&'static str),
    /// A bound of the store: too many chains of one writer.
    #[error("writer {0} has too many chains")]
    TooManyChains(DeviceId),
    /// An account record that is not one.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A key record that is not one.
    #[error(transparent)]
    KeyRecord(#[from] KeyRecordError),
    /// Signed by a member and in its place, but what it carries was refused.
    /// It is kept and served as it is, its chain goes on, and the rest of its
    /// segment is not read: asking for it again changes nothing.
    #[error("envelope {seq} set aside: {reason}")]
    Quarantined {
        /// The chain.
        chain: ChainId,
        /// Its number.
        seq: u64,
        /// Why.
        reason: QuarantineReason,
    },
    /// A tombstone of what is not here, whose window is not over by this device's
    /// clock. Another device may still have it.
    #[error("device {0} says that entries are thinned before their window is over")]
    EarlyTombstone(DeviceId),
    /// The database refused; offer it again.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl IngestError {
    /// Whether it was judged with its signature proved: before that it is nobody's word
    /// on the chain that it names.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        match self {
            Self::TooLarge(_)
            | Self::Malformed(_)
            | Self::NoAccount
            | Self::OtherAccount
            | Self::NotMember(_)
            | Self::BadSignature(_)
            | Self::Db(_) => false,
            Self::Gap { .. }
            | Self::Fork(_)
            | Self::Misfit(_)
            | Self::TooManyChains(_)
            | Self::Record(_)
            | Self::KeyRecord(_)
            | Self::Quarantined { .. }
            | Self::EarlyTombstone(_) => true,
        }
    }
}

/// A slice of thinning that is not done.
#[derive(Debug, thiserror::Error)]
pub enum ThinError {
    /// The summary cannot be entered.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The summary before cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Entries that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenDbError),
    /// The database refused.
    #[error(transparent)]
    Db(#[from] DbError),
    /// Stored bytes are no envelope.
    #[error("stored envelope does not read back: {0}")]
    Envelope(#[from] DecodeError),
    /// An own journal row does not open.
    #[error("journal row {no} of {doc} does not open")]
    Journal {
        /// The document.
        doc: DocId,
        /// The entry's number.
        no: u64,
    },
}

macro_rules! from_sqlite {
    ($($name:ident),+) => {
        $(impl From<rusqlite::Error> for $name {
            fn from(error: rusqlite::Error) -> Self {
                Self::from(DbError::from(error))
            }
        })+
    };
}

impl From<DbError> for AppendError {
    fn from(error: DbError) -> Self {
        Self::Build(BuildError::Db(error))
    }
}

from_sqlite!(
    OpenError,
    AppendError,
    CommitError,
    BuildError,
    SealingError,
    AccountError,
    JoinError,
    IngestError,
    ThinError,
    ReadError
);
