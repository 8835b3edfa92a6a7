//! What lies in a mailbox: an envelope sealed once more, for a topic.
//!
//! A topic is an Ed25519 key pair and two secrets, all derived, so that those who
//! share what it is derived from find it without asking. Its id is the public key:
//! a mailbox holds each blob to it and learns of no account, device, document,
//! number or length.
//!
//! ```text
//! blob = magic "BLM\x01"  version: 1  size: 1  topic: 32  nonce: 24
//!        body  signature: 64 (Ed25519 of the topic, over "bailey/mail/v1\0", all
//!        before the body, and SHA-256 of the body)
//! body = XChaCha20-Poly1305(seal key, nonce, length: u32 big endian, envelope,
//!        zeros), with all before the body as associated data
//! ```
//!
//! `size` is 0 to 4: the whole blob is 1, 4, 16, 64 or 256 KiB, the least that
//! fits. The nonce is the first 24 bytes of HMAC-SHA256 of the envelope under the
//! topic's nonce key: sealing twice gives the same bytes, and a mailbox keeps one.

use std::fmt;

use bailey_model::{AccountId, DeviceId};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ed25519_dalek::{Signature, Signer as _, SigningKey};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::keys::{canonical_ed25519, expand};
use crate::{DeviceKeys, DevicePublic, EpochKey, SIGNATURE_LEN, TAG_LEN, WeakKey, sha256};

const MAGIC: [u8; 4] = *b"BLM\x01";
const VERSION: u8 = 1;
const DOMAIN: &[u8] = b"bailey/mail/v1\0";
/// Bytes before the body.
const HEAD_LEN: usize = 4 + 1 + 1 + 32 + 24;
/// Bytes of the envelope's length within the body.
const LENGTH_LEN: usize = 4;
/// What a blob has beyond its envelope and padding.
const OVERHEAD: usize = HEAD_LEN + LENGTH_LEN + TAG_LEN + SIGNATURE_LEN;
/// Milliseconds of a week, by which inboxes change.
const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// The sizes of a blob in bytes; there are no others.
pub const BLOB_SIZES: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// The longest blob.
pub const MAX_BLOB: usize = BLOB_SIZES[4];
/// The longest envelope that a blob holds.
pub const MAX_MAILED: usize = MAX_BLOB - OVERHEAD;

/// Names a topic: its Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 32]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// Which week of inboxes a time is in: whole weeks since 1970.
#[must_use]
pub fn week_of(unix_ms: u64) -> u64 {
    unix_ms / WEEK_MS
}

/// Who writes to an inbox, whose it is, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inbox {
    /// The account.
    pub account: AccountId,
    /// The device that writes.
    pub from: DeviceId,
    /// The device that reads.
    pub to: DeviceId,
    /// [`week_of`] the time of writing.
    pub week: u64,
}

/// Bytes of the secret in a long code.
pub const PAIR_SECRET_LEN: usize = 10;

/// Which way the blobs of a pairing's topic go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairWay {
    /// To the device of the account, which shows the code.
    ToHost,
    /// To the new device.
    ToJoiner,
}

/// What is not put into a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailSealError {
    /// Over [`MAX_MAILED`].
    #[error("{0} bytes are over the cap of {max} of a blob", max = MAX_MAILED)]
    TooLarge(usize),
}

/// Bytes that are no blob, or not of the topic that they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// None of the five sizes.
    #[error("{0} bytes are none of the sizes of a blob")]
    Size(usize),
    /// Not a blob of this version, or its size is another than it says.
    #[error("blob field `{0}` is not as it must be")]
    Field(&'static str),
    /// The topic is a key that anybody could sign for.
    #[error(transparent)]
    Weak(#[from] WeakKey),
    /// The signature does not hold.
    #[error("signature does not hold")]
    Signature,
}

/// A blob that a reader does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailOpenError {
    /// No blob.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Of another topic.
    #[error("blob of another topic")]
    Topic,
    /// Not sealed with this topic's key.
    #[error("does not open: not sealed for this topic")]
    Forged,
    /// The padding or the nonce is another than sealing makes, or the blob is of a
    /// larger size than its envelope takes.
    #[error("blob is not in its one form")]
    Form,
}

/// A topic with its secrets. Wiped when dropped; never shown.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MailKey {
    sign: [u8; 32],
    seal: [u8; 32],
    nonce: [u8; 32],
    #[zeroize(skip)]
    topic: [u8; 32],
}

impl fmt::Debug for MailKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MailKey({})", self.topic())
    }
}

impl MailKey {
    /// The topic of what a writer seals under an epoch key. Whoever holds the key
    /// finds it; a device that was removed before the epoch does not.
    #[must_use]
    pub fn of_epoch(key: &EpochKey) -> Self {
        Self::derive(b"bailey/mail/epoch/v1\0", key.bytes(), &[])
    }

    /// The topic by which one device hands another what is not sealed under an
    /// epoch. Both find it: `keys` are of one of them, `peer` of the other.
    ///
    /// # Errors
    /// [`WeakKey`]: the peer's X25519 key is of low order.
    pub fn of_inbox(
        keys: &DeviceKeys,
        peer: &DevicePublic,
        inbox: &Inbox,
    ) -> Result<Self, WeakKey> {
        let shared = keys.agreement().diffie_hellman(&peer.agreeing()?);
        if !shared.was_contributory() {
            return Err(WeakKey::X25519);
        }
        let week = inbox.week.to_be_bytes();
        let info = [&inbox.account.0[..], &inbox.from.0, &inbox.to.0, &week].concat();
        let shared = Zeroizing::new(shared.to_bytes());
        Ok(Self::derive(b"bailey/mail/inbox/v1\0", &shared[..], &info))
    }

    /// The topic of one way of a pairing, in the mailbox of this key. Whoever has the
    /// secret of the long code finds it.
    #[must_use]
    pub fn of_pairing(secret: &[u8; PAIR_SECRET_LEN], mailbox: &[u8; 32], way: PairWay) -> Self {
        let way = match way {
            PairWay::ToHost => 0,
            PairWay::ToJoiner => 1,
        };
        let info = [&mailbox[..], &[way]].concat();
        Self::derive(b"bailey/mail/pair/v1\0", secret, &info)
    }

    fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> Self {
        let mut out = Zeroizing::new([0; 96]);
        expand(salt, secret, info, out.as_mut());
        let mut key = Self {
            sign: [0; 32],
            seal: [0; 32],
            nonce: [0; 32],
            topic: [0; 32],
        };
        key.sign.copy_from_slice(&out[..32]);
        key.seal.copy_from_slice(&out[32..64]);
        key.nonce.copy_from_slice(&out[64..]);
        key.topic = key.signing().verifying_key().to_bytes();
        key
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> TopicId {
        TopicId(self.topic)
    }

    fn signing(&self) -> SigningKey {
        SigningKey::from_bytes(&self.sign)
    }

    fn nonce_of(&self, envelope: &[u8]) -> [u8; 24] {
        // HKDF-Extract is HMAC-SHA256 with the salt as its key (RFC 5869 §2.2).
        let (mac, _) = Hkdf::<Sha256>::extract(Some(&self.nonce), envelope);
        let mut nonce = [0; 24];
        nonce.copy_from_slice(&mac[..24]);
        nonce
    }

    /// Seals an envelope (or a tombstone) into a blob: always the same bytes.
    ///
    /// # Errors
    /// [`MailSealError::TooLarge`].
    pub fn seal(&self, envelope: &[u8]) -> Result<Vec<u8>, MailSealError> {
        let too_large = MailSealError::TooLarge(envelope.len());
        let (size, whole) = size_for(envelope.len()).ok_or(too_large)?;
        let length = u32::try_from(envelope.len()).map_err(|_| too_large)?;
        let nonce = self.nonce_of(envelope);
        let head = head(size, &self.topic(), &nonce);
        let mut plain = Zeroizing::new(Vec::with_capacity(whole));
        plain.extend_from_slice(&length.to_be_bytes());
        plain.extend_from_slice(envelope);
        plain.resize(whole - (OVERHEAD - LENGTH_LEN), 0);
        let payload = Payload {
            msg: &plain,
            aad: &head,
        };
        let body = XChaCha20Poly1305::new((&self.seal).into())
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| too_large)?;
        let signature = self.signing().sign(&signed_message(&head, &body));
        Ok([&head[..], &body, &signature.to_bytes()].concat())
    }

    /// Opens a blob of this topic.
    ///
    /// # Errors
    /// [`MailOpenError`]: forged, of another topic, or not in its one form.
    pub fn open(&self, blob: &[u8]) -> Result<Vec<u8>, MailOpenError> {
        if verify_blob(blob)? != self.topic() {
            return Err(MailOpenError::Topic);
        }
        let (head, rest) = blob.split_at_checked(HEAD_LEN).ok_or(MailOpenError::Form)?;
        let (body, _) = rest
            .split_last_chunk::<SIGNATURE_LEN>()
            .ok_or(MailOpenError::Form)?;
        let nonce: &[u8; 24] = head.last_chunk().ok_or(MailOpenError::Form)?;
        let payload = Payload {
            msg: body,
            aad: head,
        };
        let plain = XChaCha20Poly1305::new((&self.seal).into())
            .decrypt(&XNonce::from(*nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_| MailOpenError::Forged)?;
        let (length, rest) = plain
            .split_first_chunk::<LENGTH_LEN>()
            .ok_or(MailOpenError::Form)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let (envelope, padding) = rest.split_at_checked(length).ok_or(MailOpenError::Form)?;
        let least = size_for(length).is_some_and(|(_, whole)| whole == blob.len());
        let padded = padding.iter().all(|&byte| byte == 0);
        if !least || !padded || self.nonce_of(envelope) != *nonce {
            return Err(MailOpenError::Form);
        }
        Ok(envelope.to_vec())
    }
}

/// Checks a blob without any secret, as a mailbox does: its size, its form, and
/// that its topic signed it.
///
/// # Errors
/// [`BlobError`].
pub fn verify_blob(blob: &[u8]) -> Result<TopicId, BlobError> {
    let size = BLOB_SIZES.iter().position(|size| *size == blob.len());
    let size = size.ok_or(BlobError::Size(blob.len()))?;
    let (head, rest) = blob
        .split_first_chunk::<HEAD_LEN>()
        .ok_or(BlobError::Size(blob.len()))?;
    let (body, signature) = rest
        .split_last_chunk::<SIGNATURE_LEN>()
        .ok_or(BlobError::Size(blob.len()))?;
    if head[..4] != MAGIC {
        return Err(BlobError::Field("magic"));
    }
    if head[4] != VERSION {
        return Err(BlobError::Field("version"));
    }
    if usize::from(head[5]) != size {
        return Err(BlobError::Field("size"));
    }
    let mut topic = [0; 32];
    topic.copy_from_slice(&head[6..38]);
    canonical_ed25519(&topic)?
        .verify_strict(
            &signed_message(head, body),
            &Signature::from_bytes(signature),
        )
        .map_err(|_| BlobError::Signature)?;
    Ok(TopicId(topic))
}

/// The least size that holds an envelope of this length: its number and its bytes.
fn size_for(length: usize) -> Option<(u8, usize)> {
    let whole = length.checked_add(OVERHEAD)?;
    let fits = |(number, size): (u8, usize)| (whole <= size).then_some((number, size));
    (0_u8..).zip(BLOB_SIZES).find_map(fits)
}

fn head(size: u8, topic: &TopicId, nonce: &[u8; 24]) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = size;
    head[6..38].copy_from_slice(&topic.0);
    head[38..].copy_from_slice(nonce);
    head
}

fn signed_message(head: &[u8], body: &[u8]) -> Vec<u8> {
    [DOMAIN, head, &sha256(&[body])].concat()
}

#[cfg(test)]
mod tests;
