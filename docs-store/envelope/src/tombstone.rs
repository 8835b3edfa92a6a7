//! What stands in the place of envelopes that were thinned: which of a chain are
//! gone, and the hashes by which the chain goes on without them.
//!
//! ```text
//! tombstone = magic "BLT\x01"  version: 1  account: 32  doc: 17  writer: 32
//!             incarnation: 16  signer: 32  segment: u32  first_seq: u64  prev: 32
//!             last_seq: u64  last: 32  first_no: u64  last_no: u64  from: u64
//!             to: u64  hours: u32  epoch: u32  key_id: 32  made: u64
//!             signature: 64 (Ed25519, over all before it)
//! ```
//!
//! Numbers are big endian. It is signed, not sealed: a device checks its chain by
//! it before it holds a key.

use bailey_model::{AccountId, DeviceId, Incarnation, Timestamp};

use crate::{
    ChainId, DecodeError, DeviceKeys, DevicePublic, DocId, Hash, KeyId, SIGNATURE_LEN, VerifyError,
};

const MAGIC: [u8; 4] = *b"BLT\x01";
const VERSION: u8 = 1;
const DOMAIN: &str = "bailey/tombstone/v1\0";
/// Bytes before the signature.
const BODY_LEN: usize = 298;
/// Length of a tombstone in bytes.
pub const TOMBSTONE_LEN: usize = BODY_LEN + SIGNATURE_LEN;

/// What is said of envelopes that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tombstone {
    /// The account.
    pub account: AccountId,
    /// The chain that they were of.
    pub chain: ChainId,
    /// Who says so: the chain's writer, or a member that held them.
    pub signer: DeviceId,
    /// The last segment that is gone; 0 in the documents without segments.
    pub segment: u32,
    /// Number of the first envelope that is gone.
    pub first_seq: u64,
    /// What that one named as the one before it.
    pub prev: Hash,
    /// Number of the last one.
    pub last_seq: u64,
    /// Its hash: what the next one names.
    pub last: Hash,
    /// Number of the first entry that is gone; 0 where there were none to read.
    pub first_no: u64,
    /// Number of the last one.
    pub last_no: u64,
    /// The earliest time of an entry that is gone.
    pub from: Timestamp,
    /// The latest.
    pub to: Timestamp,
    /// The window that was in force, in hours.
    pub hours: u32,
    /// The writer's epoch that the last one was sealed under; 0 if plain.
    pub epoch: u32,
    /// Name of that epoch's key.
    pub key_id: KeyId,
    /// When they went, by the signer's clock.
    pub made: Timestamp,
}

impl Tombstone {
    /// Whether bytes claim to be a tombstone.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Signs it; `None` if the keys are not the signer's or a field contradicts
    /// another.
    #[must_use]
    pub fn sign(&self, keys: &DeviceKeys) -> Option<Vec<u8>> {
        if keys.id() != self.signer || self.fault().is_some() {
            return None;
        }
        let mut bytes = self.body();
        let signature = keys.sign(DOMAIN, &bytes);
        bytes.extend_from_slice(&signature);
        Some(bytes)
    }

    /// Reads one. Nothing is authenticated yet.
    ///
    /// # Errors
    /// [`DecodeError`]: not exactly one, or a field contradicts another.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (have, want) = (bytes.len(), TOMBSTONE_LEN);
        let body: &[u8; BODY_LEN] = bytes
            .first_chunk()
            .filter(|_| have >= want)
            .ok_or(DecodeError::Short { have, want })?;
        if have > want {
            return Err(DecodeError::Trailing { extra: have - want });
        }
        let read = Self::read(body)?;
        read.fault()
            .map_or(Ok(read), |field| Err(DecodeError::Field(field)))
    }

    /// Reads one and checks that a device signed it.
    ///
    /// # Errors
    /// [`VerifyError`]: not one, of another signer, or a signature that does not
    /// hold.
    pub fn verify(bytes: &[u8], signer: &DevicePublic) -> Result<Self, VerifyError> {
        let read = Self::decode(bytes)?;
        let (found, want) = (read.signer, signer.id());
        if found != want {
            return Err(VerifyError::Writer { found, want });
        }
        let (body, signature) = bytes
            .split_last_chunk::<SIGNATURE_LEN>()
            .ok_or(VerifyError::Signature)?;
        match signer.signed(DOMAIN, body, signature) {
            true => Ok(read),
            false => Err(VerifyError::Signature),
        }
    }

    /// What contradicts itself, if anything does.
    fn fault(&self) -> Option<&'static str> {
        let plain = self.chain.doc.is_plain();
        let most = i64::MAX.unsigned_abs();
        let faults = [
            (
                self.first_seq == 0 || self.first_seq > self.last_seq || self.last_seq > most,
                "seq",
            ),
            (self.first_no > self.last_no || self.last_no > most, "no"),
            (self.from > self.to, "time"),
            (self.first_seq > 1 && self.prev == Hash::NONE, "prev"),
            (self.last == Hash::NONE, "last"),
            (plain != (self.segment == 0), "segment"),
            (plain != (self.epoch == 0), "epoch"),
            (self.chain.incarnation.0 == [0; 16], "incarnation"),
        ];
        faults
            .into_iter()
            .find_map(|(wrong, field)| wrong.then_some(field))
    }

    fn body(&self) -> Vec<u8> {
        [
            &MAGIC[..],
            &[VERSION],
            &self.account.0,
            &self.chain.doc.to_bytes(),
            &self.chain.writer.0,
            &self.chain.incarnation.0,
            &self.signer.0,
            &self.segment.to_be_bytes(),
            &self.first_seq.to_be_bytes(),
            &self.prev.0,
            &self.last_seq.to_be_bytes(),
            &self.last.0,
            &self.first_no.to_be_bytes(),
            &self.last_no.to_be_bytes(),
            &self.from.0.to_be_bytes(),
            &self.to.0.to_be_bytes(),
            &self.hours.to_be_bytes(),
            &self.epoch.to_be_bytes(),
            &self.key_id.0,
            &self.made.0.to_be_bytes(),
        ]
        .concat()
    }

    fn read(body: &[u8; BODY_LEN]) -> Result<Self, DecodeError> {
        let mut at = 0;
        let mut input = Input { body, at: &mut at };
        if input.take::<4>() != MAGIC {
            return Err(DecodeError::Magic);
        }
        let [version] = input.take();
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        Ok(Self {
            account: AccountId(input.take()),
            chain: ChainId {
                doc: DocId::from_bytes(&input.take()).ok_or(DecodeError::Field("doc"))?,
                writer: DeviceId(input.take()),
                incarnation: Incarnation(input.take()),
            },
            signer: DeviceId(input.take()),
            segment: input.u32(),
            first_seq: input.u64(),
            prev: Hash(input.take()),
            last_seq: input.u64(),
            last: Hash(input.take()),
            first_no: input.u64(),
            last_no: input.u64(),
            from: Timestamp(input.u64()),
            to: Timestamp(input.u64()),
            hours: input.u32(),
            epoch: input.u32(),
            key_id: KeyId(input.take()),
            made: Timestamp(input.u64()),
        })
    }
}

struct Input<'a> {
    body: &'a [u8; BODY_LEN],
    at: &'a mut usize,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.body[*self.at..*self.at + N]);
        *self.at += N;
        field
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> DeviceKeys {
        DeviceKeys::generate([7; 64])
    }

    fn tombstone() -> Tombstone {
        Tombstone {
            account: AccountId([0x11; 32]),
            chain: ChainId {
                doc: DocId::Box(bailey_model::BoxId([0x44; 16])),
                writer: keys().id(),
                incarnation: Incarnation([0x33; 16]),
            },
            signer: keys().id(),
            segment: 2,
            first_seq: 1,
            prev: Hash::NONE,
            last_seq: 57,
            last: Hash([0x66; 32]),
            first_no: 1,
            last_no: 4100,
            from: Timestamp(1_796_000_000_000),
            to: Timestamp(1_796_100_000_000),
            hours: 720,
            epoch: 3,
            key_id: KeyId([0x77; 32]),
            made: Timestamp(1_799_000_000_000),
        }
    }

    /// What is stored must read back: a difference here is a new version.
    #[test]
    fn a_tombstone_is_its_frozen_bytes_and_back() {
        let bytes = tombstone().sign(&keys()).unwrap();
        assert_eq!(bytes.len(), TOMBSTONE_LEN);
        let frozen = include_str!("../vectors/tombstone-v1.txt").trim();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, frozen);
        let read = Tombstone::verify(&bytes, &keys().public());
        assert_eq!(read, Ok(tombstone()));
    }

    #[test]
    fn no_bit_of_it_can_be_changed() {
        let bytes = tombstone().sign(&keys()).unwrap();
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Tombstone::verify(&other, &keys().public()).is_err(), "{at}");
        }
        for len in 0..bytes.len() {
            assert!(Tombstone::decode(&bytes[..len]).is_err());
        }
        assert!(Tombstone::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn nobody_signs_for_another_and_nothing_contradicts_itself() {
        let other = DeviceKeys::generate([8; 64]);
        assert_eq!(tombstone().sign(&other), None);
        let theirs = Tombstone {
            signer: other.id(),
            ..tombstone()
        };
        let bytes = theirs.sign(&other).unwrap();
        assert!(Tombstone::verify(&bytes, &keys().public()).is_err());
        assert!(Tombstone::verify(&bytes, &other.public()).is_ok());
        for wrong in [
            Tombstone {
                first_seq: 58,
                ..tombstone()
            },
            Tombstone {
                first_no: 4101,
                ..tombstone()
            },
            Tombstone {
                first_seq: 2,
                ..tombstone()
            },
            Tombstone {
                segment: 0,
                ..tombstone()
            },
            Tombstone {
                epoch: 0,
                ..tombstone()
            },
            Tombstone {
                from: Timestamp(u64::MAX),
                ..tombstone()
            },
        ] {
            assert_eq!(wrong.sign(&keys()), None);
        }
    }
}
