//! A key that stands somewhere else and seals what stands in a secret file.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use bailey_envelope::DeviceKeys;

use crate::entropy::{Entropy, NoEntropy, random};

/// Bytes of a nonce and a tag around a secret.
pub(crate) const OVERHEAD: usize = NONCE + 16;
const NONCE: usize = 24;

/// Names a guard without saying anything of it; also what commits a sealed file to
/// the one key that opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardId(pub [u8; 16]);

impl std::fmt::Display for GuardId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key under which a secret file is sealed (XChaCha20-Poly1305,
/// draft-irtf-cfrg-xchacha).
pub struct Guard {
    key: Zeroizing<[u8; 32]>,
}

impl Guard {
    /// From 32 random bytes, new or kept.
    #[must_use]
    pub fn new(mut key: [u8; 32]) -> Self {
        let kept = Zeroizing::new(key);
        key.zeroize();
        Self { key: kept }
    }

    /// The one that is made from a device's keys: what it seals is as safe as they.
    pub(crate) fn of_device(keys: &DeviceKeys) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"bailey/guard of a device/v1\0");
        hash.update(keys.secret_bytes());
        Self::new(hash.finalize().into())
    }

    /// What it is called.
    #[must_use]
    pub fn id(&self) -> GuardId {
        let mut hash = Sha256::new();
        hash.update(b"bailey/guard id/v1\0");
        hash.update(self.key.as_ref());
        let hash: [u8; 32] = hash.finalize().into();
        let mut id = [0; 16];
        id.copy_from_slice(hash.first_chunk::<16>().unwrap_or(&[0; 16]));
        GuardId(id)
    }

    /// The key itself, for the place that keeps it.
    #[must_use]
    pub fn secret_bytes(&self) -> &[u8; 32] {
        &self.key
    }

    /// Nonce and sealed secret. `about` must be said again to open it.
    pub(crate) fn seal(
        &self,
        secret: &[u8],
        about: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, NoEntropy> {
        let nonce = random::<NONCE>(entropy)?;
        let payload = Payload {
            msg: secret,
            aad: about,
        };
        // It fails for secrets of gigabytes alone.
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| NoEntropy)?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// The secret, where this key sealed it with these words.
    pub(crate) fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, msg) = sealed.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg, aad: about };
        let opened = self.cipher().decrypt(&XNonce::from(*nonce), payload).ok()?;
        Some(Zeroizing::new(opened))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.key).into())
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
