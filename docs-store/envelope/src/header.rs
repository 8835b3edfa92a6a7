//! The header: fixed canonical bytes, so that one envelope has one encoding.

use bailey_model::{AccountId, DeviceId, Incarnation};

use crate::{ChainId, DecodeError, DocId, Hash, KeyId, MAX_ENVELOPE};

/// First bytes of every envelope.
const MAGIC: [u8; 4] = *b"BLY\x01";
/// Version of the header's layout.
const VERSION: u8 = 1;
/// Length of a header of version 1 in bytes.
pub const HEADER_LEN: usize = 234;
/// Length of an Ed25519 signature in bytes (RFC 8032 §5.1.6).
pub const SIGNATURE_LEN: usize = 64;
/// Length of the Poly1305 tag in bytes (RFC 8439 §2.5).
pub const TAG_LEN: usize = 16;

/// How the body is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Suite {
    /// Signed, not sealed.
    Plain,
    /// XChaCha20-Poly1305 with the header as associated data, and signed.
    Sealed,
}

/// What an envelope is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A batch of entries of an open segment.
    Tail,
    /// The last batch of a segment.
    Closed,
    /// A writer's heads.
    Head,
    /// A record of the account's or the keys' document.
    Record,
}

/// What the writer chooses about an envelope; the rest of the header follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// The account.
    pub account: AccountId,
    /// The chain; its writer must be the device that signs.
    pub chain: ChainId,
    /// What it is for.
    pub kind: Kind,
    /// Number of the segment within the chain.
    pub segment: u32,
    /// Number within the chain, from 1.
    pub seq: u64,
    /// Hash of the envelope before; in the first of a chain, of the last one
    /// of this writer's chain before, or [`Hash::NONE`].
    pub prev: Hash,
    /// In the first envelope of a chain: the incarnation whose chain of the
    /// same document came before. `None` everywhere else.
    pub before: Option<Incarnation>,
}

/// A whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the writer chose.
    pub fields: Fields,
    /// How the body is protected.
    pub suite: Suite,
    /// Number of the writer's epoch; 0 if plain.
    pub epoch: u32,
    /// Hash of the epoch key; zero if plain.
    pub key_id: KeyId,
    /// Nonce of the body; zero if plain.
    pub nonce: [u8; 24],
    /// Bytes of plaintext without padding.
    pub plain_len: u32,
    /// Bytes of plaintext with padding.
    pub padded_len: u32,
}

impl Header {
    /// Bytes of the body: the padded plaintext, and the tag if sealed.
    #[must_use]
    pub fn body_len(&self) -> usize {
        let tag = match self.suite {
            Suite::Plain => 0,
            Suite::Sealed => TAG_LEN,
        };
        usize::try_from(self.padded_len)
            .unwrap_or(usize::MAX)
            .saturating_add(tag)
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = Writer {
            bytes: [0; HEADER_LEN],
            at: 0,
        };
        out.put(&MAGIC);
        out.put(&[VERSION]);
        out.put(&[match self.suite {
            Suite::Plain => 1,
            Suite::Sealed => 2,
        }]);
        out.put(&HEADER_LEN_FIELD);
        out.put(&[match self.fields.kind {
            Kind::Tail => 1,
            Kind::Closed => 2,
            Kind::Head => 3,
            Kind::Record => 4,
        }]);
        out.put(&self.fields.account.0);
        out.put(&self.fields.chain.doc.to_bytes());
        out.put(&self.fields.segment.to_be_bytes());
        out.put(&self.fields.chain.writer.0);
        out.put(&self.fields.chain.incarnation.0);
        out.put(&self.fields.before.map_or([0; 16], |before| before.0));
        out.put(&self.fields.seq.to_be_bytes());
        out.put(&self.fields.prev.0);
        out.put(&self.epoch.to_be_bytes());
        out.put(&self.key_id.0);
        out.put(&self.nonce);
        out.put(&self.plain_len.to_be_bytes());
        out.put(&self.padded_len.to_be_bytes());
        out.bytes
    }

    /// What of the header contradicts itself, if anything does.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let fields = &self.fields;
        let record = fields.kind == Kind::Record;
        let plain = self.suite == Suite::Plain;
        let first = fields.seq == 1;
        let names_before = fields.prev != Hash::NONE;
        let faults = [
            (fields.chain.doc.is_plain() != plain, "suite"),
            (fields.chain.doc.is_plain() != record, "kind"),
            (
                fields.seq == 0 || fields.seq > i64::MAX.unsigned_abs(),
                "seq",
            ),
            (fields.segment > i32::MAX.unsigned_abs(), "segment"),
            (fields.chain.incarnation.0 == [0; 16], "incarnation"),
            (
                fields.before.is_some_and(|before| before.0 == [0; 16]),
                "before",
            ),
            (fields.before == Some(fields.chain.incarnation), "before"),
            (fields.before.is_some() && !first, "before"),
            (first && names_before != fields.before.is_some(), "prev"),
            (!first && !names_before, "prev"),
            (plain != (self.epoch == 0), "epoch"),
            (plain && self.key_id.0 != [0; 32], "key id"),
            (plain && self.nonce != [0; 24], "nonce"),
            (plain && self.padded_len != self.plain_len, "padded length"),
            (
                !plain && crate::padded_len(self.plain_len) != self.padded_len,
                "padded length",
            ),
        ];
        faults
            .into_iter()
            .find_map(|(wrong, field)| wrong.then_some(field))
    }

    fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, DecodeError> {
        let mut input = Reader { bytes, at: 0 };
        if input.take::<4>() != MAGIC {
            return Err(DecodeError::Magic);
        }
        let [version, suite] = input.take();
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let suite = match suite {
            1 => Suite::Plain,
            2 => Suite::Sealed,
            other => return Err(DecodeError::Suite(other)),
        };
        if input.take() != HEADER_LEN_FIELD {
            return Err(DecodeError::Field("header length"));
        }
        let [kind] = input.take();
        let kind = match kind {
            1 => Kind::Tail,
            2 => Kind::Closed,
            3 => Kind::Head,
            4 => Kind::Record,
            _ => return Err(DecodeError::Field("kind")),
        };
        let account = AccountId(input.take());
        let doc = DocId::from_bytes(&input.take()).ok_or(DecodeError::Field("doc"))?;
        let segment = u32::from_be_bytes(input.take());
        let chain = ChainId {
            doc,
            writer: DeviceId(input.take()),
            incarnation: Incarnation(input.take()),
        };
        let before = Some(Incarnation(input.take())).filter(|before| before.0 != [0; 16]);
        let seq = u64::from_be_bytes(input.take());
        let prev = Hash(input.take());
        let header = Self {
            fields: Fields {
                account,
                chain,
                kind,
                segment,
                seq,
                prev,
                before,
            },
            suite,
            epoch: u32::from_be_bytes(input.take()),
            key_id: KeyId(input.take()),
            nonce: input.take(),
            plain_len: u32::from_be_bytes(input.take()),
            padded_len: u32::from_be_bytes(input.take()),
        };
        header
            .fault()
            .map_or(Ok(header), |field| Err(DecodeError::Field(field)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the constant is 234")]
const HEADER_LEN_FIELD: [u8; 2] = (HEADER_LEN as u16).to_be_bytes();

struct Writer {
    bytes: [u8; HEADER_LEN],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        let end = self.at + field.len();
        self.bytes[self.at..end].copy_from_slice(field);
        self.at = end;
    }
}

struct Reader<'a> {
    bytes: &'a [u8; HEADER_LEN],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }
}

/// Reads a header for routing. Nothing is authenticated yet: only sizes and
/// canonical form are checked.
///
/// # Errors
/// [`DecodeError`] if the bytes are not exactly one envelope.
pub fn peek(bytes: &[u8]) -> Result<Header, DecodeError> {
    if bytes.len() > MAX_ENVELOPE {
        return Err(DecodeError::TooLarge(bytes.len()));
    }
    let head: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DecodeError::Short {
        have: bytes.len(),
        want: HEADER_LEN + SIGNATURE_LEN,
    })?;
    let header = Header::decode(head)?;
    let want = (HEADER_LEN + SIGNATURE_LEN).saturating_add(header.body_len());
    match bytes.len() {
        have if want > MAX_ENVELOPE => Err(DecodeError::TooLarge(want.max(have))),
        have if have < want => Err(DecodeError::Short { have, want }),
        have if have > want => Err(DecodeError::Trailing { extra: have - want }),
        _ => Ok(header),
    }
}
