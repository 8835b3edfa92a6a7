//! Records of the account's document.
//!
//! A record is the body of a plain signed envelope: account, signer,
//! incarnation, number and the hash before stand in the envelope's header.
//! `VERSION, act, postcard fields`. An act that this build does not know is an
//! error, not skipped: a removal that is skipped would keep a door open.
//! `docs/membership.md` has the bytes.

use bailey_envelope::{DeviceKeys, DevicePublic, Fields, Hash, WeakKey};
use bailey_model::{AccountId, DeviceId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::offer::AddOffer;

const VERSION: u8 = 1;
const ACT_GENESIS: u8 = 1;
const ACT_ADD: u8 = 2;
const ACT_ROLE: u8 = 3;
const ACT_REMOVE: u8 = 4;
const ACT_ACK: u8 = 5;
const ACT_RESET: u8 = 6;
const ACCOUNT_DOMAIN: &[u8] = b"bailey/account/v1\0";
const GENESIS_DOMAIN: &str = "bailey/genesis/v1\0";
const RESET_DOMAIN: &str = "bailey/reset/v1\0";
/// In the place of a second signature where an act needs none.
const UNSIGNED: [u8; 64] = [0; 64];

/// Most heads that a record names: one a chain of the account's document.
pub(crate) const MAX_SEEN: usize = 1024;
/// Most devices that one record names.
pub(crate) const MAX_NAMED: usize = 64;

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

    /// Whether it may ask a node to stop or pause a box.
    #[must_use]
    pub fn may_stop(self) -> bool {
        self >= Self::Stop
    }

    /// Whether it may ask a node to give a box something, or take it away.
    #[must_use]
    pub fn may_decide(self) -> bool {
        self >= Self::Full
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

    /// The role of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Runs, Self::Watch, Self::Stop, Self::Full]
            .into_iter()
            .find(|it| it.as_str() == word)
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Runs => 1,
            Self::Watch => 2,
            Self::Stop => 3,
            Self::Full => 4,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::Runs, Self::Watch, Self::Stop, Self::Full]
            .into_iter()
            .find(|it| it.code() == code)
    }
}

/// How an account begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// The account begins. By the first device, and the recovery keys.
    Genesis(Genesis),
    /// By a `full` device, and the new one.
    Add { device: DevicePublic, role: Role },
    /// By a `full` device.
    Role { device: DeviceId, role: Role },
    /// By a `full` device, by the one removed itself, or by the recovery keys.
    Remove { devices: Vec<DeviceId> },
    /// By every member, once a removal is applied there.
    Ack { removal: Hash },
    /// By the recovery keys alone; the first of those kept signs beside them.
    Reset {
        kept: Vec<(DevicePublic, Role)>,
        recovery: DevicePublic,
    },
}

impl Act {
    /// The keys that it names.
    pub(crate) fn named(&self) -> Vec<DevicePublic> {
        match self {
            Self::Genesis(genesis) => vec![genesis.first, genesis.recovery],
            Self::Add { device, .. } => vec![*device],
            Self::Reset { kept, recovery } => {
                let kept = kept.iter().map(|(device, _)| *device);
                kept.chain([*recovery]).collect()
            }
            Self::Role { .. } | Self::Remove { .. } | Self::Ack { .. } => Vec::new(),
        }
    }

    /// Whether these become the recovery keys by it.
    pub(crate) fn gives_recovery(&self, public: &DevicePublic) -> bool {
        match self {
            Self::Genesis(genesis) => genesis.recovery == *public,
            Self::Reset { recovery, .. } => recovery == public,
            _ => false,
        }
    }

    /// Whether a second signature belongs to it.
    fn is_cosigned(&self) -> bool {
        match self {
            Self::Genesis(_) | Self::Add { .. } | Self::Reset { .. } => true,
            Self::Role { .. } | Self::Remove { .. } | Self::Ack { .. } => false,
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Heads of the other chains of the account's document that the signer saw.
    pub(crate) seen: Vec<Hash>,
    pub(crate) act: Act,
    /// By recovery for a genesis, by the new device for an add, by the first device
    /// kept for a reset; else zero.
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

    /// An act that one signature is enough for.
    pub(crate) fn plain(act: Act, seen: Vec<Hash>) -> Self {
        Self {
            seen,
            act,
            cosignature: UNSIGNED,
        }
    }

    /// A reset, signed by the device that it is made on.
    pub(crate) fn reset(
        fields: &Fields,
        kept: Vec<(DevicePublic, Role)>,
        recovery: DevicePublic,
        seen: Vec<Hash>,
        keys: &DeviceKeys,
    ) -> Option<Self> {
        let mut record = Self::plain(Act::Reset { kept, recovery }, seen);
        record.cosignature = keys.sign(RESET_DOMAIN, &record.bound_to(fields)?);
        Some(record)
    }

    /// What the second signature of a reset is of: the record and its place.
    fn bound_to(&self, fields: &Fields) -> Option<Vec<u8>> {
        let unsigned = Self {
            cosignature: UNSIGNED,
            ..self.clone()
        };
        let place = postcard::to_stdvec(&(
            fields.account,
            fields.chain.writer,
            fields.chain.incarnation,
            fields.seq,
            fields.prev,
        ));
        Some([place.ok()?, unsigned.encode()?].concat())
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let sides = (&self.seen, halves(&self.cosignature));
        let (act, fields) = match &self.act {
            Act::Genesis(genesis) => (ACT_GENESIS, postcard::to_stdvec(&(sides, genesis))),
            Act::Add { device, role } => (
                ACT_ADD,
                postcard::to_stdvec(&(sides, (device, role.code()))),
            ),
            Act::Role { device, role } => (
                ACT_ROLE,
                postcard::to_stdvec(&(sides, (device, role.code()))),
            ),
            Act::Remove { devices } => (ACT_REMOVE, postcard::to_stdvec(&(sides, devices))),
            Act::Ack { removal } => (ACT_ACK, postcard::to_stdvec(&(sides, removal))),
            Act::Reset { kept, recovery } => {
                let kept: Vec<_> = kept.iter().map(|(it, role)| (it, role.code())).collect();
                (ACT_RESET, postcard::to_stdvec(&(sides, (kept, recovery))))
            }
        };
        Some([&[VERSION, act], &fields.ok()?[..]].concat())
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, RecordError> {
        type Sides = (Vec<Hash>, Halves);
        let ([version, act], fields) = body.split_first_chunk().ok_or(RecordError::Malformed)?;
        if *version != VERSION {
            return Err(RecordError::Newer);
        }
        let role = |code| Role::of(code).ok_or(RecordError::Newer);
        let ((seen, cosignature), act) = match *act {
            ACT_GENESIS => {
                let (sides, genesis) = whole::<(Sides, Genesis)>(fields)?;
                (sides, Act::Genesis(genesis))
            }
            ACT_ADD => {
                let (sides, (device, code)) = whole::<(Sides, (DevicePublic, u8))>(fields)?;
                let role = role(code)?;
                (sides, Act::Add { device, role })
            }
            ACT_ROLE => {
                let (sides, (device, code)) = whole::<(Sides, (DeviceId, u8))>(fields)?;
                let role = role(code)?;
                (sides, Act::Role { device, role })
            }
            ACT_REMOVE => {
                let (sides, devices) = whole::<(Sides, Vec<DeviceId>)>(fields)?;
                (sides, Act::Remove { devices })
            }
            ACT_ACK => {
                let (sides, removal) = whole::<(Sides, Hash)>(fields)?;
                (sides, Act::Ack { removal })
            }
            ACT_RESET => {
                type Kept = Vec<(DevicePublic, u8)>;
                let (sides, (kept, recovery)) = whole::<(Sides, (Kept, DevicePublic))>(fields)?;
                let kept = kept
                    .into_iter()
                    .map(|(device, code)| Ok((device, role(code)?)));
                let kept = kept.collect::<Result<_, RecordError>>()?;
                (sides, Act::Reset { kept, recovery })
            }
            _ => return Err(RecordError::Newer),
        };
        let record = Self {
            seen,
            act,
            cosignature: joined(cosignature),
        };
        // A number in more bytes than it needs would be a second encoding, which another
        // reader might refuse: and who is a member must be the same everywhere.
        let canonical = record.encode().is_some_and(|bytes| bytes == body);
        if record.seen.len() > MAX_SEEN || !record.is_sound() || !canonical {
            return Err(RecordError::Malformed);
        }
        Ok(record)
    }

    /// Whether it names what its act must name, and has no signature where none
    /// belongs.
    fn is_sound(&self) -> bool {
        let fits = |count: usize| (1..=MAX_NAMED).contains(&count);
        let named = match &self.act {
            Act::Remove { devices } => {
                fits(devices.len()) && devices.iter().is_sorted_by(|one, next| one < next)
            }
            Act::Reset { kept, .. } => {
                let mut ids: Vec<DeviceId> = kept.iter().map(|(device, _)| device.id()).collect();
                ids.sort_unstable();
                fits(ids.len()) && ids.is_sorted_by(|one, next| one < next)
            }
            Act::Genesis(_) | Act::Add { .. } | Act::Role { .. } | Act::Ack { .. } => true,
        };
        named && (self.act.is_cosigned() || self.cosignature == UNSIGNED)
    }

    /// Checks what a record says beside its envelope's signature: keys and the
    /// second signature.
    pub(crate) fn check(&self, fields: &Fields) -> Result<(), RecordError> {
        let signed = match &self.act {
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
                genesis
                    .recovery
                    .signed(GENESIS_DOMAIN, &account.0, &self.cosignature)
            }
            Act::Add { device, role } => {
                device.check()?;
                let offer = AddOffer::new(fields, *device, *role, self.seen.clone());
                offer.signed(&self.cosignature)
            }
            Act::Reset { kept, recovery } => {
                recovery.check()?;
                kept.iter().try_for_each(|(device, _)| device.check())?;
                let bound = self.bound_to(fields).ok_or(RecordError::Malformed)?;
                let (made_on, _) = kept.first().ok_or(RecordError::Malformed)?;
                made_on.signed(RESET_DOMAIN, &bound, &self.cosignature)
            }
            Act::Role { .. } | Act::Remove { .. } | Act::Ack { .. } => true,
        };
        if signed {
            Ok(())
        } else {
            Err(RecordError::Cosignature)
        }
    }
}

fn whole<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(RecordError::Malformed),
    }
}
