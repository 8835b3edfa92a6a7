//! Records of the account's document.
//!
//! A record is the body of a plain signed envelope: account, signer,
//! incarnation, number and the hash before stand in the envelope's header.
//! `VERSION, act, postcard fields`. An act that this build does not know is an
//! error, not skipped: a removal that is skipped would keep a door open.

use bailey_envelope::{ChainId, DeviceKeys, DevicePublic, Fields, Hash, WeakKey};
use bailey_model::{AccountId, DeviceId, Incarnation};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const VERSION: u8 = 1;
const ACT_GENESIS: u8 = 1;
const ACT_ADD: u8 = 2;
const ACCOUNT_DOMAIN: &[u8] = b"bailey/account/v1\0";
const GENESIS_DOMAIN: &str = "bailey/genesis/v1\0";
const ADD_DOMAIN: &str = "bailey/add/v1\0";

/// Most heads that a record names: one a chain of the account's document.
pub(crate) const MAX_SEEN: usize = 1024;

/// What a device may do. The order is by power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Writes; is never a recipient of others' keys; sends nothing.
    Runs,
    /// Reads.
    Watch,
    /// Also sends stop and pause.
    Stop,
    /// Also resume, allow, deny, mute, add, role, remove.
    Full,
}

impl Role {
    /// Whether keys are wrapped to such a device.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Runs
    }

    /// Whether it may ask a node to stop a box.
    #[must_use]
    pub fn may_stop(self) -> bool {
        self >= Self::Stop
    }

    /// The word in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Watch => "watch",
            Self::Stop => "stop",
            Self::Full => "full",
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Runs => 1,
            Self::Watch => 2,
            Self::Stop => 3,
            Self::Full => 4,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Runs, Self::Watch, Self::Stop, Self::Full]
            .into_iter()
            .find(|it| it.code() == code)
    }
}

/// How an account begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Genesis {
    /// The keys that can bring the account back.
    pub(crate) recovery: DevicePublic,
    /// The first device; it is `full`.
    pub(crate) first: DevicePublic,
    /// Days that entries are kept.
    pub(crate) window_days: u16,
    /// Random, so that the same keys can begin two accounts.
    pub(crate) salt: [u8; 16],
}

/// What a record does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Genesis(Genesis),
    Add { device: DevicePublic, role: Role },
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Heads of the other chains of the account's document that the signer saw.
    pub(crate) seen: Vec<Hash>,
    pub(crate) act: Act,
    /// By recovery for a genesis, by the new device for an add.
    pub(crate) cosignature: [u8; 64],
}

/// A record that is not one, or whose second signature does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Of a version or an act that this build does not know.
    #[error("record of a newer version of bailey")]
    Newer,
    /// Cut short, too long, or malformed.
    #[error("record is malformed")]
    Malformed,
    /// It names a key that no honest device has.
    #[error(transparent)]
    Weak(#[from] WeakKey),
    /// The recovery keys or the new device did not sign it.
    #[error("record lacks the second signature")]
    Cosignature,
    /// A genesis of another account.
    #[error("genesis of another account")]
    OtherAccount,
}

/// The id of an account: the hash of how it began.
pub(crate) fn account_of(genesis: &Genesis) -> Option<AccountId> {
    let content = postcard::to_stdvec(genesis).ok()?;
    let hash = Sha256::new()
        .chain_update(ACCOUNT_DOMAIN)
        .chain_update(content)
        .finalize();
    Some(AccountId(hash.into()))
}

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

type Halves = ([u8; 32], [u8; 32]);

fn halves(signature: &[u8; 64]) -> Halves {
    let (mut first, mut second) = ([0; 32], [0; 32]);
    first.copy_from_slice(&signature[..32]);
    second.copy_from_slice(&signature[32..]);
    (first, second)
}

fn joined((first, second): Halves) -> [u8; 64] {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&first);
    signature[32..].copy_from_slice(&second);
    signature
}

impl Record {
    /// A genesis, signed by the recovery keys too.
    pub(crate) fn genesis(genesis: Genesis, recovery: &DeviceKeys) -> Option<(AccountId, Self)> {
        let account = account_of(&genesis)?;
        let cosignature = recovery.sign(GENESIS_DOMAIN, &account.0);
        Some((
            account,
            Self {
                seen: Vec::new(),
                act: Act::Genesis(genesis),
                cosignature,
            },
        ))
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let sides = (&self.seen, halves(&self.cosignature));
        let (act, fields) = match &self.act {
            Act::Genesis(genesis) => (ACT_GENESIS, postcard::to_stdvec(&(sides, genesis)).ok()?),
            Act::Add { device, role } => (
                ACT_ADD,
                postcard::to_stdvec(&(sides, (device, role.code()))).ok()?,
            ),
        };
        Some([&[VERSION, act], &fields[..]].concat())
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, RecordError> {
        type Sides = (Vec<Hash>, Halves);
        let ([version, act], fields) = body.split_first_chunk().ok_or(RecordError::Malformed)?;
        if *version != VERSION {
            return Err(RecordError::Newer);
        }
        let ((seen, cosignature), act) = match *act {
            ACT_GENESIS => {
                let (sides, genesis) = whole::<(Sides, Genesis)>(fields)?;
                (sides, Act::Genesis(genesis))
            }
            ACT_ADD => {
                let (sides, (device, role)) = whole::<(Sides, (DevicePublic, u8))>(fields)?;
                (
                    sides,
                    Act::Add {
                        device,
                        role: Role::of(role).ok_or(RecordError::Newer)?,
                    },
                )
            }
            _ => return Err(RecordError::Newer),
        };
        if seen.len() > MAX_SEEN {
            return Err(RecordError::Malformed);
        }
        Ok(Self {
            seen,
            act,
            cosignature: joined(cosignature),
        })
    }

    /// Checks what a record says beside its envelope's signature: keys and the
    /// second signature.
    pub(crate) fn check(&self, fields: &Fields) -> Result<(), RecordError> {
        match &self.act {
            Act::Genesis(genesis) => {
                genesis.first.check()?;
                genesis.recovery.check()?;
                let account = account_of(genesis).ok_or(RecordError::Malformed)?;
                if account != fields.account {
                    return Err(RecordError::OtherAccount);
                }
                let first = genesis.first.id() == fields.chain.writer;
                let first = first && fields.prev == Hash::NONE && self.seen.is_empty();
                if !first {
                    return Err(RecordError::Malformed);
                }
                let signed = genesis
                    .recovery
                    .signed(GENESIS_DOMAIN, &account.0, &self.cosignature);
                if signed {
                    Ok(())
                } else {
                    Err(RecordError::Cosignature)
                }
            }
            Act::Add { device, role } => {
                device.check()?;
                let offer = AddOffer::new(fields, *device, *role, self.seen.clone());
                let signed = offer.signed(&self.cosignature);
                if signed {
                    Ok(())
                } else {
                    Err(RecordError::Cosignature)
                }
            }
        }
    }
}

fn whole<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(RecordError::Malformed),
    }
}
