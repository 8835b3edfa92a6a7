//! Keys of devices, of recovery, of epochs and of segments.

use std::fmt;

use bailey_model::DeviceId;
use ed25519_dalek::{SigningKey, VerifyingKey};
use hkdf::Hkdf;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::{DocId, WeakKey, sha256};

/// 2^255 - 19 (RFC 7748 §5), little endian.
const P: [u8; 32] = {
    let mut p = [0xff; 32];
    p[0] = 0xed;
    p[31] = 0x7f;
    p
};

/// Every `u` below [`P`] of a point of Curve25519 or its twist whose order divides 8,
/// little endian: those that any clamped scalar sends to zero (RFC 7748 §6.1).
const LOW_ORDER: [[u8; 32]; 5] = {
    let mut one = [0; 32];
    one[0] = 1;
    let mut minus_one = P;
    minus_one[0] -= 1;
    [
        [0; 32],
        one,
        minus_one,
        // Two of order 8.
        [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f,
            0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16,
            0x5f, 0x49, 0xb8, 0x00,
        ],
        [
            0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83,
            0xef, 0x5b, 0x04, 0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd,
            0xd0, 0x9f, 0x11, 0x57,
        ],
    ]
};

/// The public keys of a device, or of an account's recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevicePublic {
    /// Ed25519 key: identity and signatures.
    pub ed25519: [u8; 32],
    /// X25519 key: what keys are wrapped to.
    pub x25519: [u8; 32],
}

impl DevicePublic {
    /// The device's id: SHA-256 of both keys.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId(sha256(&[&self.ed25519, &self.x25519]))
    }

    /// Refuses keys that no honest device has. A second encoding of the same
    /// point is refused too, else a removed key could return under another id.
    ///
    /// # Errors
    /// Which key is weak.
    pub fn check(&self) -> Result<(), WeakKey> {
        self.verifying().map(drop)?;
        self.agreeing().map(drop)
    }

    pub(crate) fn verifying(&self) -> Result<VerifyingKey, WeakKey> {
        canonical_ed25519(&self.ed25519)
    }

    pub(crate) fn agreeing(&self) -> Result<PublicKey, WeakKey> {
        let below_p = self.x25519.iter().rev().lt(P.iter().rev());
        if below_p && !LOW_ORDER.contains(&self.x25519) {
            Ok(PublicKey::from(self.x25519))
        } else {
            Err(WeakKey::X25519)
        }
    }
}

/// The secret keys of a device. Wiped when dropped; never shown.
#[derive(Clone, ZeroizeOnDrop)]
pub struct DeviceKeys {
    secret: [u8; 64],
    /// Made once: it takes a multiplication on the curve. It wipes itself.
    #[zeroize(skip)]
    signing: SigningKey,
    #[zeroize(skip)]
    public: DevicePublic,
    #[zeroize(skip)]
    id: DeviceId,
}

impl DeviceKeys {
    /// Length of the secret form: 32 bytes for Ed25519, 32 for X25519.
    pub const LEN: usize = 64;

    /// Makes keys of 64 random bytes.
    #[must_use]
    pub fn generate(entropy: [u8; Self::LEN]) -> Self {
        let (ed25519, x25519) = entropy.split_at(32);
        let mut half = Zeroizing::new([0; 32]);
        half.copy_from_slice(ed25519);
        let signing = SigningKey::from_bytes(&half);
        half.copy_from_slice(x25519);
        let public = DevicePublic {
            ed25519: signing.verifying_key().to_bytes(),
            x25519: PublicKey::from(&StaticSecret::from(*half)).to_bytes(),
        };
        Self {
            secret: entropy,
            signing,
            public,
            id: public.id(),
        }
    }

    /// The secret form, for the key file only.
    #[must_use]
    pub fn secret_bytes(&self) -> &[u8; Self::LEN] {
        &self.secret
    }

    /// The public keys.
    #[must_use]
    pub fn public(&self) -> DevicePublic {
        self.public
    }

    /// The device's id.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// Signs a message of another format than the envelope's. The domain keeps
    /// formats apart and ends in a zero byte.
    #[must_use]
    pub fn sign(&self, domain: &'static str, message: &[u8]) -> [u8; 64] {
        use ed25519_dalek::Signer as _;
        let message = [domain.as_bytes(), message].concat();
        self.signing().sign(&message).to_bytes()
    }

    /// The key of what is kept on this device alone: derived from its secret
    /// (HKDF-SHA256, RFC 5869), so that it is wrapped to nobody and stored nowhere.
    #[must_use]
    pub fn here_key(&self) -> EpochKey {
        let mut key = [0; 32];
        expand(
            b"bailey/here/v1\0",
            &self.ed25519_secret()[..],
            &[],
            &mut key,
        );
        EpochKey(key)
    }

    /// The Ed25519 half: 32 bytes from which a transport makes its identity.
    #[must_use]
    pub fn ed25519_secret(&self) -> Zeroizing<[u8; 32]> {
        let mut half = Zeroizing::new([0; 32]);
        half.copy_from_slice(&self.secret[..32]);
        half
    }

    /// A secret that this device and another have and nobody else (X25519, then
    /// HKDF-SHA256). The domain keeps uses apart and ends in a zero byte.
    ///
    /// # Errors
    /// [`WeakKey`].
    pub fn pairwise(
        &self,
        other: &DevicePublic,
        domain: &'static str,
    ) -> Result<Zeroizing<[u8; 32]>, WeakKey> {
        let shared = self.agreement().diffie_hellman(&other.agreeing()?);
        let mut secret = Zeroizing::new([0; 32]);
        expand(domain.as_bytes(), shared.as_bytes(), &[], secret.as_mut());
        Ok(secret)
    }

    /// A secret of this device alone, for what it keeps beside its store: HKDF-SHA256
    /// (RFC 5869) of its agreement key.
    #[must_use]
    pub fn own(&self, domain: &'static str, info: &[u8]) -> Zeroizing<[u8; 32]> {
        let half = Zeroizing::new(self.agreement().to_bytes());
        let mut secret = Zeroizing::new([0; 32]);
        expand(domain.as_bytes(), &half[..], info, secret.as_mut());
        secret
    }

    pub(crate) fn signing(&self) -> &SigningKey {
        &self.signing
    }

    pub(crate) fn agreement(&self) -> StaticSecret {
        let mut half = Zeroizing::new([0; 32]);
        half.copy_from_slice(&self.secret[32..]);
        StaticSecret::from(*half)
    }
}

impl fmt::Debug for DeviceKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceKeys")
            .field("public", &self.public())
            .finish_non_exhaustive()
    }
}

impl DevicePublic {
    /// Whether this device signed a message with [`DeviceKeys::sign`].
    #[must_use]
    pub fn signed(&self, domain: &'static str, message: &[u8], signature: &[u8; 64]) -> bool {
        let message = [domain.as_bytes(), message].concat();
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        self.verifying()
            .is_ok_and(|key| key.verify_strict(&message, &signature).is_ok())
    }
}

/// What a person keeps on paper: random bytes that bring an account back. 16 of them,
/// with as many zeros after; the first accounts had 32.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct RecoverySeed(pub [u8; 32]);

/// Random bytes of a recovery seed.
const SEED_ENTROPY: usize = 16;

impl RecoverySeed {
    /// A seed of random bytes.
    #[must_use]
    pub fn new(random: [u8; SEED_ENTROPY]) -> Self {
        let mut seed = [0; 32];
        seed[..SEED_ENTROPY].copy_from_slice(&random);
        Self(seed)
    }

    /// A seed by its [`Self::entropy`]; `None` of another length than 16 or 32.
    #[must_use]
    pub fn from_entropy(entropy: &[u8]) -> Option<Self> {
        match (<[u8; SEED_ENTROPY]>::try_from(entropy), entropy.try_into()) {
            (Ok(short), _) => Some(Self::new(short)),
            (_, Ok(long)) => Some(Self(long)),
            _ => None,
        }
    }

    /// What a person has to write down of it.
    #[must_use]
    pub fn entropy(&self) -> &[u8] {
        let (short, rest) = self.0.split_at(SEED_ENTROPY);
        match rest.iter().all(|byte| *byte == 0) {
            true => short,
            false => &self.0,
        }
    }

    /// The recovery keys of this seed.
    #[must_use]
    pub fn keys(&self) -> DeviceKeys {
        let mut secret = Zeroizing::new([0; 64]);
        expand(b"bailey/recovery/v1\0", &self.0, b"", secret.as_mut());
        DeviceKeys::generate(*secret)
    }
}

impl fmt::Debug for RecoverySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoverySeed(..)")
    }
}

/// Names an epoch key without showing it, and commits to it: an envelope that
/// names a key opens under that key only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub [u8; 32]);

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyId(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The key of one writer's epoch. Wiped when dropped; never shown.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct EpochKey([u8; 32]);

impl EpochKey {
    /// Makes a key of 32 random bytes.
    #[must_use]
    pub fn generate(entropy: [u8; 32]) -> Self {
        Self(entropy)
    }

    /// Its name: SHA-256 of a domain and the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(sha256(&[b"bailey/keyid/v1\0", &self.0]))
    }

    /// The key of one segment of one document: HKDF-SHA256 (RFC 5869) of the
    /// epoch key, document and segment.
    #[must_use]
    pub fn segment_key(&self, doc: DocId, segment: u32) -> SegmentKey {
        let info = [&doc.to_bytes()[..], &segment.to_be_bytes()].concat();
        let mut key = [0; 32];
        expand(b"bailey/segment/v1\0", &self.0, &info, &mut key);
        SegmentKey {
            key,
            epoch_key: self.id(),
            doc,
            segment,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EpochKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochKey({:?})", self.id())
    }
}

/// The key of one segment of one document. Wiped when dropped; never shown.
#[derive(Clone)]
pub struct SegmentKey {
    key: [u8; 32],
    epoch_key: KeyId,
    doc: DocId,
    segment: u32,
}

impl SegmentKey {
    /// Name of the epoch key that it was derived from.
    #[must_use]
    pub fn epoch_key(&self) -> KeyId {
        self.epoch_key
    }

    /// The document that it is for.
    #[must_use]
    pub fn doc(&self) -> DocId {
        self.doc
    }

    /// The segment that it is for.
    #[must_use]
    pub fn segment(&self) -> u32 {
        self.segment
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.key
    }

    /// A key that was derived from nothing, for the vectors of the cipher.
    #[cfg(test)]
    pub(crate) fn of_bytes(key: [u8; 32]) -> Self {
        Self {
            key,
            epoch_key: KeyId([0; 32]),
            doc: DocId::Node,
            segment: 1,
        }
    }
}

impl Drop for SegmentKey {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl fmt::Debug for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SegmentKey({:?}, {}, {})",
            self.epoch_key, self.doc, self.segment
        )
    }
}

/// The key of these bytes, if they are the one encoding of a point of full order.
pub(crate) fn canonical_ed25519(bytes: &[u8; 32]) -> Result<VerifyingKey, WeakKey> {
    let key = VerifyingKey::from_bytes(bytes).map_err(|_| WeakKey::Ed25519)?;
    let canonical = key.to_edwards().compress().to_bytes() == *bytes;
    if key.is_weak() || !canonical {
        Err(WeakKey::Ed25519)
    } else {
        Ok(key)
    }
}

/// HKDF-SHA256. The outputs asked for here are 32, 64 and 96 bytes.
pub(crate) fn expand(salt: &[u8], secret: &[u8], info: &[u8], out: &mut [u8]) {
    Hkdf::<Sha256>::new(Some(salt), secret)
        .expand(info, out)
        .expect("HKDF-SHA256 gives up to 8160 bytes, at most 96 are asked for");
}

#[cfg(test)]
mod tests;
