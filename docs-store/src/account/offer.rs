//! The offer by which a device is added: it signs what the record will say.

use bailey_envelope::{ChainId, DeviceKeys, DevicePublic, Fields, Hash};
use bailey_model::{AccountId, DeviceId, Incarnation};
use serde::{Deserialize, Serialize};

use super::record::{Act, MAX_SEEN, Record, Role};

const ADD_DOMAIN: &str = "bailey/add/v1\0";

/// A member offers to add a device; the device signs the offer, which binds its
/// signature to this very record of this very account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddOffer {
    /// The account.
    pub account: AccountId,
    /// The member that adds.
    pub signer: DeviceId,
    /// The device to be added.
    pub device: DevicePublic,
    role: u8,
    incarnation: Incarnation,
    seq: u64,
    prev: Hash,
    seen: Vec<Hash>,
}

/// An offer that a device should not sign, or that no longer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// It names other keys than this device's.
    #[error("offer is for another device")]
    OtherDevice,
    /// Malformed, or of a role that this build does not know.
    #[error("offer is malformed")]
    Malformed,
}

impl AddOffer {
    pub(crate) fn new(fields: &Fields, device: DevicePublic, role: Role, seen: Vec<Hash>) -> Self {
        let ChainId {
            writer,
            incarnation,
            ..
        } = fields.chain;
        Self {
            account: fields.account,
            signer: writer,
            device,
            role: role.code(),
            incarnation,
            seq: fields.seq,
            prev: fields.prev,
            seen,
        }
    }

    /// The role offered; `None` if this build does not know it.
    #[must_use]
    pub fn role(&self) -> Option<Role> {
        Role::of(self.role)
    }

    /// The offer as bytes, to be carried to the new device.
    ///
    /// # Errors
    /// [`OfferError::Malformed`] never for an offer made by a store.
    pub fn to_bytes(&self) -> Result<Vec<u8>, OfferError> {
        postcard::to_stdvec(self).map_err(|_| OfferError::Malformed)
    }

    /// Reads an offer.
    ///
    /// # Errors
    /// [`OfferError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OfferError> {
        match postcard::take_from_bytes::<Self>(bytes) {
            Ok((offer, [])) if offer.role().is_some() && offer.seen.len() <= MAX_SEEN => Ok(offer),
            _ => Err(OfferError::Malformed),
        }
    }

    /// The new device's signature.
    ///
    /// # Errors
    /// [`OfferError::OtherDevice`] if the offer is not for these keys.
    pub fn sign(&self, keys: &DeviceKeys) -> Result<[u8; 64], OfferError> {
        if self.device != keys.public() {
            return Err(OfferError::OtherDevice);
        }
        Ok(keys.sign(ADD_DOMAIN, &self.to_bytes()?))
    }

    pub(crate) fn signed(&self, signature: &[u8; 64]) -> bool {
        self.to_bytes()
            .is_ok_and(|bytes| self.device.signed(ADD_DOMAIN, &bytes, signature))
    }

    pub(crate) fn record(&self, cosignature: [u8; 64]) -> Option<Record> {
        let act = Act::Add {
            device: self.device,
            role: self.role()?,
        };
        Some(Record {
            seen: self.seen.clone(),
            act,
            cosignature,
        })
    }

    pub(crate) fn stands_at(&self, fields: &Fields) -> bool {
        (
            self.account,
            self.signer,
            self.incarnation,
            self.seq,
            self.prev,
        ) == (
            fields.account,
            fields.chain.writer,
            fields.chain.incarnation,
            fields.seq,
            fields.prev,
        )
    }
}
