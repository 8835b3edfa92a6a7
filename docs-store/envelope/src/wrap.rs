//! Epoch keys on their way to a device: HPKE (RFC 9180) in base mode with
//! DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305.

use std::convert::Infallible;

use bailey_model::{AccountId, DeviceId};
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable as _, Kem, OpModeR, OpModeS, Serializable as _};
use zeroize::Zeroizing;

use crate::{DeviceKeys, DevicePublic, EpochKey, KeyId, UnwrapError, WrapError};

type PublicKey = <X25519HkdfSha256 as Kem>::PublicKey;
type PrivateKey = <X25519HkdfSha256 as Kem>::PrivateKey;
type EncappedKey = <X25519HkdfSha256 as Kem>::EncappedKey;

/// What a wrap is bound to. A wrap moved to another place does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrapContext<'a> {
    /// The account.
    pub account: AccountId,
    /// The writer whose epoch it is.
    pub writer: DeviceId,
    /// Number of the epoch.
    pub epoch: u32,
    /// The device that it is wrapped to.
    pub recipient: DeviceId,
    /// Encoded heads of the membership that the writer saw.
    pub membership: &'a [u8],
}

impl WrapContext<'_> {
    fn info(&self) -> Vec<u8> {
        let epoch = self.epoch.to_be_bytes();
        [
            b"bailey/wrap/v1",
            &self.account.0[..],
            &self.writer.0,
            &epoch,
            &self.recipient.0,
        ]
        .concat()
    }
}

/// A wrapped epoch key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapped {
    /// The encapsulated key.
    pub enc: [u8; 32],
    /// The sealed key and its tag.
    pub sealed: [u8; 48],
}

/// Wraps an epoch key to a device; `entropy` is 32 fresh random bytes.
///
/// # Errors
/// [`WrapError`]: the recipient's key is weak, or HPKE refused.
pub fn wrap(
    key: &EpochKey,
    context: &WrapContext<'_>,
    recipient: &DevicePublic,
    entropy: [u8; 32],
) -> Result<Wrapped, WrapError> {
    recipient.agreeing()?;
    let (enc, sealed) = seal_to(
        &recipient.x25519,
        &context.info(),
        key.bytes(),
        context.membership,
        entropy,
    )
    .ok_or(WrapError::Hpke)?;
    let sealed = <[u8; 48]>::try_from(sealed.as_slice()).map_err(|_| WrapError::Hpke)?;
    Ok(Wrapped { enc, sealed })
}

/// Opens a wrap addressed to this device and checks that it holds the key that
/// its record names.
///
/// # Errors
/// [`UnwrapError`]: not for this device and place, or another key.
pub fn unwrap(
    wrapped: &Wrapped,
    context: &WrapContext<'_>,
    keys: &DeviceKeys,
    key_id: KeyId,
) -> Result<EpochKey, UnwrapError> {
    let secret = PrivateKey::from_bytes(&*Zeroizing::new(keys.agreement().to_bytes()))
        .map_err(|_| UnwrapError::Forged)?;
    let plain = open_with(
        &secret,
        &wrapped.enc,
        &context.info(),
        &wrapped.sealed,
        context.membership,
    )
    .ok_or(UnwrapError::Forged)?;
    let bytes = <[u8; 32]>::try_from(plain.as_slice()).map_err(|_| UnwrapError::Forged)?;
    let key = EpochKey::generate(bytes);
    if key.id() == key_id {
        Ok(key)
    } else {
        Err(UnwrapError::KeyId)
    }
}

fn seal_to(
    recipient: &[u8; 32],
    info: &[u8],
    plain: &[u8],
    aad: &[u8],
    entropy: [u8; 32],
) -> Option<([u8; 32], Vec<u8>)> {
    let recipient = PublicKey::from_bytes(recipient).ok()?;
    let (enc, sealed) =
        hpke::single_shot_seal_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &recipient,
            info,
            plain,
            aad,
            &mut Once(Zeroizing::new(entropy)),
        )
        .ok()?;
    Some((enc.to_bytes().into(), sealed))
}

fn open_with(
    secret: &PrivateKey,
    enc: &[u8; 32],
    info: &[u8],
    sealed: &[u8],
    aad: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let enc = EncappedKey::from_bytes(enc).ok()?;
    hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Base,
        secret,
        &enc,
        info,
        sealed,
        aad,
    )
    .ok()
    .map(Zeroizing::new)
}

/// Hands out the 32 bytes of entropy that came as an argument. DHKEM asks for
/// exactly 32 once; anything beyond would be a hash chain from them.
struct Once(Zeroizing<[u8; 32]>);

impl TryRng for Once {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(32) {
            chunk.copy_from_slice(&self.0[..chunk.len()]);
            *self.0 = crate::sha256(&[b"bailey/once/v1\0", &*self.0]);
        }
        Ok(())
    }
}

impl TryCryptoRng for Once {}

#[cfg(test)]
mod tests;
