//! Frames and their bytes. The format is described at the crate's root.

use std::fmt;

use bailey_model::{BoxId, DeviceId, Incarnation};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{ChainId, DocId, Head};
use crate::{MAX_ENVELOPES_PER_FRAME, MAX_HEADS_PER_FRAME, MAX_PAYLOAD};

/// Version of the wire format, sent in `Hello`.
pub const VERSION: u16 = 2;

/// A byte string: postcard writes the same as for a list of `u8`, in one copy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Vec<u8>);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte string")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                if bytes.is_empty() {
                    return Err(E::custom("an empty envelope"));
                }
                Ok(Blob(bytes.to_vec()))
            }
        }
        from.deserialize_bytes(Bytes)
    }
}

/// A list that refuses to grow over `MAX` while it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct List<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(core::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = List<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MAX} items")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut seq: A,
            ) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MAX {
                        return Err(A::Error::custom("too many items"));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        from.deserialize_seq(Items(core::marker::PhantomData))
    }
}

/// A document on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Doc {
    Account,
    Keys,
    Node,
    Notices,
    Requests,
    Box([u8; 16]),
    Days,
    /// What is kept on one device alone has no form on the wire.
    #[serde(skip)]
    Here([u8; 16]),
    /// As [`Self::Here`].
    #[serde(skip)]
    HereNotices,
}

/// A chain on the wire, and the key of every table here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Chain {
    pub(crate) writer: [u8; 32],
    pub(crate) incarnation: [u8; 16],
    pub(crate) doc: Doc,
}

impl From<ChainId> for Chain {
    fn from(id: ChainId) -> Self {
        let doc = match id.doc {
            DocId::Account => Doc::Account,
            DocId::Keys => Doc::Keys,
            DocId::Node => Doc::Node,
            DocId::Notices => Doc::Notices,
            DocId::Requests => Doc::Requests,
            DocId::Box(box_id) => Doc::Box(box_id.0),
            DocId::Days => Doc::Days,
            DocId::Here(box_id) => Doc::Here(box_id.0),
            DocId::HereNotices => Doc::HereNotices,
        };
        Self {
            writer: id.writer.0,
            incarnation: id.incarnation.0,
            doc,
        }
    }
}

impl From<Chain> for ChainId {
    fn from(chain: Chain) -> Self {
        let doc = match chain.doc {
            Doc::Account => DocId::Account,
            Doc::Keys => DocId::Keys,
            Doc::Node => DocId::Node,
            Doc::Notices => DocId::Notices,
            Doc::Requests => DocId::Requests,
            Doc::Box(box_id) => DocId::Box(BoxId(box_id)),
            Doc::Days => DocId::Days,
            Doc::Here(box_id) => DocId::Here(BoxId(box_id)),
            Doc::HereNotices => DocId::HereNotices,
        };
        Self {
            writer: DeviceId(chain.writer),
            incarnation: Incarnation(chain.incarnation),
            doc,
        }
    }
}

/// How far a side has a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WireHead {
    pub(crate) chain: Chain,
    pub(crate) seq: u64,
    pub(crate) hash: [u8; 32],
}

impl From<&Head> for WireHead {
    fn from(head: &Head) -> Self {
        Self {
            chain: head.chain.into(),
            seq: head.seq,
            hash: head.hash.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) account: [u8; 32],
    pub(crate) listen_port: u16,
    pub(crate) incarnation: [u8; 16],
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heads {
    pub(crate) opening: bool,
    pub(crate) done: bool,
    pub(crate) heads: List<WireHead, MAX_HEADS_PER_FRAME>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Want {
    pub(crate) chain: Chain,
    pub(crate) from: u64,
    pub(crate) max_bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Envelopes {
    pub(crate) chain: Chain,
    pub(crate) from: u64,
    pub(crate) envelopes: List<Blob, MAX_ENVELOPES_PER_FRAME>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    Hello(Hello),
    Heads(Heads),
    Want(Want),
    Envelopes(Envelopes),
    Alive,
    Bye(u8),
}

/// Why a side ends a session. The number is what `Bye` carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ByeReason {
    /// The device leaves, or ends this one connection in favour of another.
    Leaving,
    /// A frame that is none, or not in its place.
    Protocol,
    /// Another version of the wire format.
    Version,
    /// Another account.
    Account,
    /// More than an honest side sends.
    Flood,
    /// Nothing came, or no answer, for too long.
    Timeout,
    /// More chains than a side may have.
    TooManyChains,
    /// The device is not a member (any more).
    NotMember,
    /// A reason that this version does not know.
    Other(u8),
}

impl ByeReason {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Leaving => 0,
            Self::Protocol => 1,
            Self::Version => 2,
            Self::Account => 3,
            Self::Flood => 4,
            Self::Timeout => 5,
            Self::TooManyChains => 6,
            Self::NotMember => 7,
            Self::Other(code) => code,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Leaving,
            1 => Self::Protocol,
            2 => Self::Version,
            3 => Self::Account,
            4 => Self::Flood,
            5 => Self::Timeout,
            6 => Self::TooManyChains,
            7 => Self::NotMember,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ByeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaving => f.write_str("leaving"),
            Self::Protocol => f.write_str("a frame that is none, or not in its place"),
            Self::Version => f.write_str("another version of the wire format"),
            Self::Account => f.write_str("another account"),
            Self::Flood => f.write_str("more than an honest side sends"),
            Self::Timeout => f.write_str("no answer for too long"),
            Self::TooManyChains => f.write_str("more chains than a side may have"),
            Self::NotMember => f.write_str("not a member"),
            Self::Other(code) => write!(f, "reason {code}"),
        }
    }
}

/// Length and payload of one frame. `None` if it is over the bound; frames are
/// built within it, so that is a fault of the caller's envelopes.
pub(crate) fn encode<T: Serialize>(frame: &T, max_payload: usize) -> Option<Vec<u8>> {
    let mut bytes = postcard::to_extend(frame, vec![0_u8; 4]).ok()?;
    let length = bytes.len() - 4;
    if length > max_payload {
        return None;
    }
    bytes[..4].copy_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
    Some(bytes)
}

/// The payload as a value, with no byte left over.
pub(crate) fn decode<T: for<'de> Deserialize<'de>>(payload: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Some(value),
        Ok(_) | Err(_) => None,
    }
}

/// What a piece of the stream led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A whole payload.
    Payload(Vec<u8>),
    /// More bytes are needed.
    More,
    /// A length of 0 or over the bound; the stream is worthless from here.
    Bad,
}

/// Cuts a byte stream into payloads. Holds at most one frame and the piece that
/// was given last.
#[derive(Debug)]
pub(crate) struct Cutter {
    buffer: Vec<u8>,
    at: usize,
    max_payload: usize,
}

impl Cutter {
    pub(crate) fn new(max_payload: usize) -> Self {
        Self {
            buffer: Vec::new(),
            at: 0,
            max_payload,
        }
    }

    /// From the next payload on.
    pub(crate) fn set_max(&mut self, max_payload: usize) {
        self.max_payload = max_payload;
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn next(&mut self) -> Cut {
        if self.at == self.buffer.len() {
            // What a long frame needed is given back: most of the time nothing comes.
            self.buffer = Vec::new();
            self.at = 0;
        }
        let rest = &self.buffer[self.at..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Cut::More;
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > self.max_payload {
            return Cut::Bad;
        }
        let Some(payload) = rest.get(..length) else {
            return Cut::More;
        };
        let payload = payload.to_vec();
        self.at += 4 + length;
        Cut::Payload(payload)
    }
}

/// Longest that everything before the envelopes of a frame can be: tag, chain,
/// number and two lengths as varints.
const _: () = assert!(MAX_PAYLOAD - crate::MAX_ENVELOPE >= 1 + 32 + 16 + 17 + 10 + 5 + 5);
