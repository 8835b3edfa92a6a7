//! Sealing, signing, verifying, opening.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ed25519_dalek::{Signature, Signer as _};
use zeroize::Zeroizing;

use crate::header::{Header, Suite};
use crate::{
    DeviceKeys, DevicePublic, DocId, Fields, HEADER_LEN, Hash, KeyId, MAX_PLAINTEXT, OpenError,
    SIGNATURE_LEN, SealError, SegmentKey, VerifyError, peek, sha256,
};

/// What is signed starts with this, so that no other signature of a device
/// can be taken for an envelope's.
const SIGN_DOMAIN: &[u8] = b"bailey/env/v1\0";
/// What a journal row's associated data starts with.
const ROW_DOMAIN: &[u8] = b"bailey/journal/v2\0";
/// The same of a row that is one entry, of tables before version 4.
const ROW_DOMAIN_OF_ONE: &[u8] = b"bailey/journal/v1\0";
/// Least padded length, so that the smallest batches look alike.
const PAD_FLOOR: u32 = 64;

/// An envelope ready to be stored and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The whole envelope.
    pub bytes: Vec<u8>,
    /// Its hash: what the next one names.
    pub hash: Hash,
}

/// An envelope whose signature holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified<'a> {
    /// The header, now the writer's word.
    pub header: Header,
    /// SHA-256 of the whole envelope.
    pub hash: Hash,
    head: &'a [u8],
    body: &'a [u8],
}

/// Padded length of a plaintext: at least 64, then rounded up so that only the
/// leading bits of the length show and at most an eighth is added.
#[must_use]
pub fn padded_len(len: u32) -> u32 {
    if len <= PAD_FLOOR {
        return PAD_FLOOR;
    }
    let exponent = len.ilog2();
    let step = 1_u32 << exponent.saturating_sub(3);
    len.checked_next_multiple_of(step).unwrap_or(u32::MAX)
}

/// Seals a plaintext under a segment key and signs it.
///
/// `nonce` is 24 fresh random bytes: never a stored counter, which a restored
/// copy would repeat.
///
/// # Errors
/// [`SealError`]: too much plaintext, a field that contradicts another, or a
/// key of another document or segment.
pub fn seal(
    keys: &DeviceKeys,
    fields: Fields,
    epoch: u32,
    key: &SegmentKey,
    plaintext: &[u8],
    nonce: [u8; 24],
) -> Result<Sealed, SealError> {
    if (key.doc(), key.segment()) != (fields.chain.doc, fields.segment) {
        return Err(SealError::Key);
    }
    let plain_len = checked_len(plaintext)?;
    let padded_len = padded_len(plain_len);
    let header = Header {
        fields,
        suite: Suite::Sealed,
        epoch,
        key_id: key.epoch_key(),
        nonce,
        plain_len,
        padded_len,
    };
    let head = checked(keys, &header)?;
    let mut padded = Zeroizing::new(plaintext.to_vec());
    padded.resize(usize::try_from(padded_len).unwrap_or(usize::MAX), 0);
    let body = encrypt(key, &nonce, &padded, &head).ok_or(SealError::TooLarge(plaintext.len()))?;
    Ok(sign(keys, &head, &body))
}

/// Signs a plaintext of one of the documents that are not sealed.
///
/// # Errors
/// [`SealError`]: too much plaintext, or a field that contradicts another.
pub fn sign_plain(
    keys: &DeviceKeys,
    fields: Fields,
    plaintext: &[u8],
) -> Result<Sealed, SealError> {
    let plain_len = checked_len(plaintext)?;
    let header = Header {
        fields,
        suite: Suite::Plain,
        epoch: 0,
        key_id: KeyId([0; 32]),
        nonce: [0; 24],
        plain_len,
        padded_len: plain_len,
    };
    let head = checked(keys, &header)?;
    Ok(sign(keys, &head, plaintext))
}

fn checked_len(plaintext: &[u8]) -> Result<u32, SealError> {
    let too_large = SealError::TooLarge(plaintext.len());
    let len = u32::try_from(plaintext.len()).map_err(|_| too_large.clone())?;
    let padded = usize::try_from(padded_len(len)).unwrap_or(usize::MAX);
    if padded > MAX_PLAINTEXT {
        Err(too_large)
    } else {
        Ok(len)
    }
}

fn checked(keys: &DeviceKeys, header: &Header) -> Result<[u8; HEADER_LEN], SealError> {
    if header.fields.chain.writer != keys.id() {
        return Err(SealError::Field("writer"));
    }
    header
        .fault()
        .map_or(Ok(header.encode()), |field| Err(SealError::Field(field)))
}

fn sign(keys: &DeviceKeys, head: &[u8; HEADER_LEN], body: &[u8]) -> Sealed {
    let signature = keys.signing().sign(&signed_message(head, body)).to_bytes();
    let bytes = [&head[..], body, &signature].concat();
    let hash = Hash(sha256(&[&bytes]));
    Sealed { bytes, hash }
}

fn signed_message(head: &[u8], body: &[u8]) -> Vec<u8> {
    [SIGN_DOMAIN, head, &sha256(&[body])].concat()
}

/// Checks that a device wrote an envelope, without reading it.
///
/// # Errors
/// [`VerifyError`]: no envelope, another writer, a weak key, or a signature
/// that does not hold (strict verification, RFC 8032 §5.1.7 without cofactor).
pub fn verify<'a>(bytes: &'a [u8], writer: &DevicePublic) -> Result<Verified<'a>, VerifyError> {
    let header = peek(bytes)?;
    let want = writer.id();
    if header.fields.chain.writer != want {
        return Err(VerifyError::Writer {
            found: header.fields.chain.writer,
            want,
        });
    }
    let (head, rest) = bytes
        .split_at_checked(HEADER_LEN)
        .ok_or(VerifyError::Signature)?;
    let (body, signature) = rest
        .split_last_chunk::<SIGNATURE_LEN>()
        .ok_or(VerifyError::Signature)?;
    writer
        .verifying()?
        .verify_strict(
            &signed_message(head, body),
            &Signature::from_bytes(signature),
        )
        .map_err(|_| VerifyError::Signature)?;
    Ok(Verified {
        header,
        hash: Hash(sha256(&[bytes])),
        head,
        body,
    })
}

impl<'a> Verified<'a> {
    /// Takes an envelope that was verified when it was stored, so that reading
    /// a store back does not pay for each signature again. The body of a sealed
    /// one is authenticated by opening it all the same.
    ///
    /// # Errors
    /// [`VerifyError::Decode`] if the bytes are no envelope.
    pub fn from_stored(bytes: &'a [u8]) -> Result<Self, VerifyError> {
        let header = peek(bytes)?;
        let (head, rest) = bytes
            .split_at_checked(HEADER_LEN)
            .ok_or(VerifyError::Signature)?;
        let (body, _) = rest
            .split_last_chunk::<SIGNATURE_LEN>()
            .ok_or(VerifyError::Signature)?;
        Ok(Self {
            header,
            hash: Hash(sha256(&[bytes])),
            head,
            body,
        })
    }

    /// The plaintext of an envelope that is not sealed.
    ///
    /// # Errors
    /// [`OpenError::Suite`] if it is sealed.
    pub fn plain(&self) -> Result<&'a [u8], OpenError> {
        match self.header.suite {
            Suite::Plain => Ok(self.body),
            Suite::Sealed => Err(OpenError::Suite),
        }
    }

    /// Opens a sealed body. The key's name is compared before anything is
    /// decrypted: the cipher does not commit to its key, the header does.
    ///
    /// # Errors
    /// [`OpenError`]: another key, another place, or padding that is not zero.
    pub fn open(&self, key: &SegmentKey) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        if self.header.suite == Suite::Plain {
            return Err(OpenError::Suite);
        }
        let fields = &self.header.fields;
        if key.epoch_key() != self.header.key_id
            || (key.doc(), key.segment()) != (fields.chain.doc, fields.segment)
        {
            return Err(OpenError::WrongKey);
        }
        let mut plain =
            decrypt(key, &self.header.nonce, self.body, self.head).ok_or(OpenError::Forged)?;
        let len = usize::try_from(self.header.plain_len).unwrap_or(usize::MAX);
        if plain.iter().skip(len).any(|&byte| byte != 0) {
            return Err(OpenError::Padding);
        }
        plain.truncate(len);
        Ok(plain)
    }
}

/// Seals one journal row, the packed entries of a commit: nonce, then ciphertext and tag.
/// Document, number of the first entry and how many there are are associated data, so a
/// row cannot stand in another's place.
#[must_use]
pub fn seal_row(
    key: &SegmentKey,
    first_no: u64,
    count: u32,
    plaintext: &[u8],
    nonce: [u8; 24],
) -> Option<Vec<u8>> {
    let body = encrypt(
        key,
        &nonce,
        plaintext,
        &row_place(key.doc(), first_no, count),
    )?;
    Some([&nonce[..], &body].concat())
}

/// Opens one journal row.
///
/// # Errors
/// [`OpenError::Forged`] if it was not sealed with this key for these numbers.
pub fn open_row(
    key: &SegmentKey,
    first_no: u64,
    count: u32,
    row: &[u8],
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let place = row_place(key.doc(), first_no, count);
    open_at(key, row, &place)
}

/// Opens a journal row of tables before version 4, which is one entry.
///
/// # Errors
/// [`OpenError::Forged`] if it was not sealed with this key for this number.
pub fn open_row_of_one(
    key: &SegmentKey,
    no: u64,
    row: &[u8],
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let place = [ROW_DOMAIN_OF_ONE, &key.doc().to_bytes(), &no.to_be_bytes()].concat();
    open_at(key, row, &place)
}

fn open_at(key: &SegmentKey, row: &[u8], place: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let (nonce, body) = row.split_first_chunk::<24>().ok_or(OpenError::Forged)?;
    decrypt(key, nonce, body, place).ok_or(OpenError::Forged)
}

fn row_place(doc: DocId, first_no: u64, count: u32) -> Vec<u8> {
    let (first_no, count) = (first_no.to_be_bytes(), count.to_be_bytes());
    [ROW_DOMAIN, &doc.to_bytes(), &first_no, &count].concat()
}

/// `None` only beyond the cipher's limit of 256 GiB.
fn encrypt(key: &SegmentKey, nonce: &[u8; 24], plain: &[u8], aad: &[u8]) -> Option<Vec<u8>> {
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    cipher
        .encrypt(&XNonce::from(*nonce), Payload { msg: plain, aad })
        .ok()
}

fn decrypt(
    key: &SegmentKey,
    nonce: &[u8; 24],
    body: &[u8],
    aad: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = XChaCha20Poly1305::new(key.bytes().into());
    cipher
        .decrypt(&XNonce::from(*nonce), Payload { msg: body, aad })
        .ok()
        .map(Zeroizing::new)
}

#[cfg(test)]
mod tests;
