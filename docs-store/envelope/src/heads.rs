//! What a device says of how far it has each chain, where it has no session with whom
//! it tells: it lies in a mailbox, and shows what that mailbox keeps back.
//!
//! ```text
//! heads = magic "BLH\x01"  version: 1  account: 32  signer: 32  made: u64
//!         count: u16  lacks: u16  count × head  lacks × head
//!         signature: 64 (Ed25519 over "bailey/heads/v1\0" and all before it)
//! head  = doc: 17  writer: 32  incarnation: 16  seq: u64  hash: 32
//! ```
//!
//! Numbers are big endian. A head of `lacks` says how far its signer has a chain of
//! which somebody told it more: 0, and a hash of zeros, where it has nothing of it.

use bailey_model::{AccountId, DeviceId, Incarnation, Timestamp};

use crate::{
    ChainId, DecodeError, DeviceKeys, DevicePublic, DocId, Hash, Head, SIGNATURE_LEN, VerifyError,
};

const MAGIC: [u8; 4] = *b"BLH\x01";
const VERSION: u8 = 1;
const DOMAIN: &str = "bailey/heads/v1\0";
/// Bytes before the heads.
const FIXED_LEN: usize = 4 + 1 + 32 + 32 + 8 + 2 + 2;
/// Bytes of a head.
const HEAD_LEN: usize = 17 + 32 + 16 + 8 + 32;

/// Most heads in one, those that are lacking among them.
pub const MAX_HEADS: usize = 2048;

/// A device's word on its chains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heads {
    /// The account.
    pub account: AccountId,
    /// Whose word it is.
    pub signer: DeviceId,
    /// When, by its clock.
    pub made: Timestamp,
    /// How far it has chains.
    pub heads: Vec<Head>,
    /// How far it has chains of which it lacks what somebody told it of.
    pub lacks: Vec<Head>,
}

impl Heads {
    /// Whether bytes claim to be such a word.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Signs it; `None` if the keys are not the signer's, or there are more than
    /// [`MAX_HEADS`].
    #[must_use]
    pub fn sign(&self, keys: &DeviceKeys) -> Option<Vec<u8>> {
        let all = self.heads.len() + self.lacks.len();
        if keys.id() != self.signer || all > MAX_HEADS {
            return None;
        }
        let mut bytes = Vec::with_capacity(FIXED_LEN + all * HEAD_LEN + SIGNATURE_LEN);
        bytes.extend_from_slice(&MAGIC);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.account.0);
        bytes.extend_from_slice(&self.signer.0);
        bytes.extend_from_slice(&self.made.0.to_be_bytes());
        for list in [&self.heads, &self.lacks] {
            bytes.extend_from_slice(&u16::try_from(list.len()).ok()?.to_be_bytes());
        }
        for head in self.heads.iter().chain(&self.lacks) {
            bytes.extend_from_slice(&head.chain.doc.to_bytes());
            bytes.extend_from_slice(&head.chain.writer.0);
            bytes.extend_from_slice(&head.chain.incarnation.0);
            bytes.extend_from_slice(&head.seq.to_be_bytes());
            bytes.extend_from_slice(&head.hash.0);
        }
        let signature = keys.sign(DOMAIN, &bytes);
        bytes.extend_from_slice(&signature);
        Some(bytes)
    }

    /// Reads one and checks that a device signed it.
    ///
    /// # Errors
    /// [`VerifyError`]: not one, of another signer, or a signature that does not hold.
    pub fn verify(bytes: &[u8], signer: &DevicePublic) -> Result<Self, VerifyError> {
        let (body, signature) = bytes
            .split_last_chunk::<SIGNATURE_LEN>()
            .ok_or(short(bytes.len(), FIXED_LEN + SIGNATURE_LEN))?;
        let read = Self::read(body)?;
        let (found, want) = (read.signer, signer.id());
        if found != want {
            return Err(VerifyError::Writer { found, want });
        }
        match signer.signed(DOMAIN, body, signature) {
            true => Ok(read),
            false => Err(VerifyError::Signature),
        }
    }

    fn read(body: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = body;
        if take(&mut rest)? != MAGIC {
            return Err(DecodeError::Magic);
        }
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let (account, signer) = (AccountId(take(&mut rest)?), DeviceId(take(&mut rest)?));
        let made = Timestamp(u64::from_be_bytes(take(&mut rest)?));
        let count = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let lacks = usize::from(u16::from_be_bytes(take(&mut rest)?));
        if count + lacks > MAX_HEADS {
            return Err(DecodeError::Field("count"));
        }
        let list = |rest: &mut &[u8], count: usize, least: u64| {
            (0..count)
                .map(|_| head(rest, least))
                .collect::<Result<_, _>>()
        };
        let heads = list(&mut rest, count, 1)?;
        let lacks = list(&mut rest, lacks, 0)?;
        match rest.len() {
            0 => Ok(Self {
                account,
                signer,
                made,
                heads,
                lacks,
            }),
            extra => Err(DecodeError::Trailing { extra }),
        }
    }
}

fn head(rest: &mut &[u8], least: u64) -> Result<Head, DecodeError> {
    let doc = DocId::from_bytes(&take(rest)?).filter(|doc| !doc.is_here());
    let chain = ChainId {
        doc: doc.ok_or(DecodeError::Field("doc"))?,
        writer: DeviceId(take(rest)?),
        incarnation: Incarnation(take(rest)?),
    };
    let (seq, hash) = (u64::from_be_bytes(take(rest)?), Hash(take(rest)?));
    if seq < least || seq > i64::MAX.unsigned_abs() || (seq == 0) != (hash == Hash::NONE) {
        return Err(DecodeError::Field("seq"));
    }
    Ok(Head { chain, seq, hash })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (field, left) = rest.split_first_chunk().ok_or(short(rest.len(), N))?;
    *rest = left;
    Ok(*field)
}

const fn short(have: usize, want: usize) -> DecodeError {
    DecodeError::Short { have, want }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(n: u8) -> DeviceKeys {
        DeviceKeys::generate([n; 64])
    }

    fn word() -> Heads {
        let head = |doc, seq: u8| Head {
            chain: ChainId {
                doc,
                writer: DeviceId([2; 32]),
                incarnation: Incarnation([3; 16]),
            },
            seq: seq.into(),
            hash: Hash([seq; 32]),
        };
        Heads {
            account: AccountId([1; 32]),
            signer: keys(1).id(),
            made: Timestamp(7),
            heads: vec![head(DocId::Account, 5), head(DocId::Node, 6)],
            lacks: vec![head(DocId::Keys, 0), head(DocId::Days, 2)],
        }
    }

    #[test]
    fn what_is_signed_is_read_and_nothing_else() {
        let bytes = word().sign(&keys(1)).unwrap();
        assert!(Heads::is_one(&bytes));
        let public = keys(1).public();
        assert_eq!(Heads::verify(&bytes, &public), Ok(word()));
        assert!(matches!(
            Heads::verify(&bytes, &keys(2).public()),
            Err(VerifyError::Writer { .. })
        ));
        assert_eq!(word().sign(&keys(2)), None);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(Heads::verify(&flipped, &public).is_err(), "bit at {at}");
            assert!(Heads::verify(&bytes[..at], &public).is_err(), "cut at {at}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Heads::verify(&longer, &public).is_err());
    }

    #[test]
    fn a_word_is_bounded_and_says_nothing_of_what_stays_here() {
        let mut many = word();
        many.heads = vec![many.heads[0]; MAX_HEADS - 2];
        let bytes = many.sign(&keys(1)).unwrap();
        assert!(bytes.len() <= crate::MAX_MAILED);
        many.heads.push(many.heads[0]);
        assert_eq!(many.sign(&keys(1)), None);
        let mut here = word();
        here.heads[0].chain.doc = DocId::HereNotices;
        let bytes = here.sign(&keys(1)).unwrap();
        assert_eq!(
            Heads::verify(&bytes, &keys(1).public()),
            Err(VerifyError::Decode(DecodeError::Field("doc")))
        );
        let mut none = word();
        none.heads[0].seq = 0;
        none.heads[0].hash = Hash::NONE;
        let bytes = none.sign(&keys(1)).unwrap();
        assert!(Heads::verify(&bytes, &keys(1).public()).is_err());
    }
}
