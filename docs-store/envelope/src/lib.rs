//! The sealed envelope: what is stored at rest and what crosses to another
//! device, and nothing else.
//!
//! An envelope is `header || body || signature`. The header is fixed, canonical
//! bytes; the body is XChaCha20-Poly1305 under a segment key with the header as
//! associated data (or, in the two documents that a joining device must read
//! before it holds any key, plain bytes); the signature is Ed25519 outside, so
//! that whoever carries an envelope can check and order it without reading it.
//!
//! Pure: entropy and bytes are arguments, nothing here touches the operating
//! system.

#![forbid(unsafe_code)]

mod error;
pub mod fuzz;
mod header;
mod heads;
mod id;
mod keys;
mod mail;
mod seal;
#[cfg(test)]
mod standard_tests;
mod tombstone;
mod wrap;

pub use error::{DecodeError, OpenError, SealError, UnwrapError, VerifyError, WeakKey, WrapError};
pub use header::{Fields, HEADER_LEN, Header, Kind, SIGNATURE_LEN, Suite, TAG_LEN, peek};
pub use heads::{Heads, MAX_HEADS};
pub use id::{ChainId, DocId, Hash, Head};
pub use keys::{DeviceKeys, DevicePublic, EpochKey, KeyId, RecoverySeed, SegmentKey};
pub use mail::{
    BLOB_SIZES, BlobError, Inbox, MAX_BLOB, MAX_MAILED, MailKey, MailOpenError, MailSealError,
    PAIR_SECRET_LEN, PairWay, TopicId, verify_blob, week_of,
};
pub use seal::{
    Sealed, Verified, open_row, open_row_of_one, padded_len, seal, seal_row, sign_plain, verify,
};
pub use tombstone::{TOMBSTONE_LEN, Tombstone};
pub use wrap::{WrapContext, Wrapped, unwrap, wrap};

/// Most bytes of a whole envelope: one frame of the session, and what an
/// ingesting device holds before it has judged anything.
pub const MAX_ENVELOPE: usize = 256 * 1024;

/// Most plaintext bytes of one envelope, padding included.
pub const MAX_PLAINTEXT: usize = MAX_ENVELOPE - HEADER_LEN - TAG_LEN - SIGNATURE_LEN;

/// SHA-256 over several byte strings, one after the other.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}
