//! The packed form of an entry: what an Automerge list holds and a journal row
//! seals.
//!
//! docs/entry.md is its specification. `VERSION, no, time in ms, kind, body`: the numbers are postcard varints, the
//! body is the postcard form of the structs in [`wire`], which belong to this
//! format alone. A kind or a code that this build does not know keeps its body
//! as it is ([`Event::Newer`]), so an older device carries what a newer one
//! wrote.

mod wire;

use bailey_model::{Entry, Event, Newer, Timestamp};

/// Version of the packed form.
const VERSION: u8 = 1;

/// Most bytes of one packed entry, so that a batch fits into one envelope even
/// when nothing of it can be compressed.
pub const MAX_ENTRY: usize = 32 * 1024;

/// An entry that cannot be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Over [`MAX_ENTRY`].
    #[error("entry of {0} bytes is over the cap of {MAX_ENTRY}")]
    TooLarge(usize),
    /// The encoder refused.
    #[error("entry cannot be encoded")]
    Encoding,
}

/// Bytes that are no packed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// Written in a version that this build does not know.
    #[error("entry version {0} is not known to this build")]
    Version(u8),
    /// Over [`MAX_ENTRY`].
    #[error("entry of {0} bytes is over the cap of {MAX_ENTRY}")]
    TooLarge(usize),
    /// Cut short or malformed.
    #[error("entry is malformed")]
    Malformed,
}

/// Packs an entry.
///
/// # Errors
/// [`PackError`].
pub fn pack(entry: &Entry) -> Result<Vec<u8>, PackError> {
    let (kind, body) = wire::encode(&entry.event).map_err(|_| PackError::Encoding)?;
    let head = (entry.no, entry.ts.0, kind);
    let mut bytes = postcard::to_extend(&head, vec![VERSION]).map_err(|_| PackError::Encoding)?;
    bytes.extend_from_slice(&body);
    if bytes.len() > MAX_ENTRY {
        Err(PackError::TooLarge(bytes.len()))
    } else {
        Ok(bytes)
    }
}

/// Unpacks an entry.
///
/// # Errors
/// [`UnpackError`]. An unknown kind is not one.
pub fn unpack(bytes: &[u8]) -> Result<Entry, UnpackError> {
    if bytes.len() > MAX_ENTRY {
        return Err(UnpackError::TooLarge(bytes.len()));
    }
    let (&version, rest) = bytes.split_first().ok_or(UnpackError::Malformed)?;
    if version != VERSION {
        return Err(UnpackError::Version(version));
    }
    let ((no, ts, kind), body) =
        postcard::take_from_bytes::<(u64, u64, u16)>(rest).map_err(|_| UnpackError::Malformed)?;
    let event = wire::decode(kind, body).unwrap_or_else(|| {
        Event::Newer(Newer {
            kind,
            body: body.to_vec(),
        })
    });
    Ok(Entry {
        no,
        ts: Timestamp(ts),
        event,
    })
}

/// A closed enum of the format, for the test of its specification.
#[cfg(test)]
trait Codes {
    const NAME: &'static str;
    const CODES: &'static [(u8, &'static str)];
}

#[cfg(test)]
mod tests;
