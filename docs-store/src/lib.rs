//! What is kept: the journal, entries in segments, keys and epochs, the
//! account's membership, in one SQLite file of sealed or signed bytes.
//!
//! [`Store`] is for the one thread that writes; [`Reader`] and
//! [`Checkpointer`] are connections of their own for other threads.

mod account;
mod chains;
mod check;
mod db;
mod durable;
mod entropy;
mod error;
pub mod forge;
pub mod fuzz;
mod guard;
mod ingest;
mod journal;
mod keyfile;
mod keys;
mod lock;
mod mail;
mod own;
mod reader;
mod recovery;
mod repair;
mod schema;
mod sealing;
mod segment;
mod spans;
mod store;
#[cfg(test)]
mod testing;
mod thin;

pub use account::{AddOffer, Member, Members, OfferError, RecordError, Removal, Role};
pub use bailey_envelope::{
    ChainId, DeviceKeys, DevicePublic, DocId, Hash, Head, Heads, MAX_HEADS, RecoverySeed,
    Tombstone, TopicId, week_of,
};
pub use check::{Checked, CheckedRest};
pub use db::{DbError, OpenDbError};
pub use durable::Checkpointer;
pub use entropy::{Entropy, NoEntropy, OsEntropy};
pub use error::{
    AccountError, AppendError, BuildError, CommitError, Fork, IngestError, JoinError, OpenError,
    QuarantineReason, ReadError, SealingError, ThinError,
};
pub use guard::{Guard, GuardId};
pub use ingest::{HowMisused, Ingested, Misuse, Opened, Outcome};
pub use keyfile::{
    Kept, KeyFileError, device_keys_kept, erase_recovery_seed, keep_device_keys,
    keep_recovery_seed, load_device_keys, load_or_create_device_keys, load_recovery_seed,
};
pub use keys::{HandOutError, KeyRecordError};
pub use mail::{MailFault, MailPlace, MailTaken, Mailed};
pub use reader::{DocInfo, Pages, Reader, Reading, account_of};
pub use recovery::{
    Copied, CopyError, CopyReader, Taken, WordsError, recovery_words, seed_of_words,
};
pub use repair::{RepairError, Repaired, repair};
pub use schema::{MAX_ENTRY, PackError, UnpackError, pack, unpack};
pub use segment::{SegmentFault, fuzz_body};
pub use store::{Store, Urgency};
pub use thin::{Early, Gone, Moment, Slice};
