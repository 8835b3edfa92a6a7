//! What can go wrong, one enum an operation.

use bailey_model::DeviceId;

/// Bytes that are no envelope of this format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the header says, or than a header has.
    #[error("envelope is cut short: {have} bytes, want {want}")]
    Short {
        /// Bytes there are.
        have: usize,
        /// Bytes wanted.
        want: usize,
    },
    /// More bytes than the header says.
    #[error("{extra} bytes after the envelope")]
    Trailing {
        /// Bytes too many.
        extra: usize,
    },
    /// Over the cap of a whole envelope.
    #[error("envelope of {0} bytes is over the cap of {max}", max = crate::MAX_ENVELOPE)]
    TooLarge(usize),
    /// The first four bytes are not an envelope's.
    #[error("not an envelope")]
    Magic,
    /// A version that this build does not know.
    #[error("envelope version {0} is not known to this build")]
    Version(u8),
    /// A cipher suite that this build does not know.
    #[error("envelope suite {0} is not known to this build")]
    Suite(u8),
    /// A field whose value is not canonical or contradicts another.
    #[error("envelope field `{0}` is not as it must be")]
    Field(&'static str),
}

/// An envelope that its alleged writer did not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not an envelope at all.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The header names another writer than the key given.
    #[error("envelope is of writer {found}, not {want}")]
    Writer {
        /// Writer in the header.
        found: DeviceId,
        /// Device whose key was given.
        want: DeviceId,
    },
    /// The writer's key is one that anybody could sign for.
    #[error(transparent)]
    Weak(#[from] WeakKey),
    /// The signature does not hold.
    #[error("signature does not hold")]
    Signature,
}

/// A public key that no honest device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeakKey {
    /// Not the canonical encoding of a point of full order.
    #[error("Ed25519 public key is weak or not canonical")]
    Ed25519,
    /// A low-order point, or not the canonical encoding.
    #[error("X25519 public key is of low order or not canonical")]
    X25519,
}

/// An envelope that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// More plaintext than an envelope takes.
    #[error("{0} bytes of plaintext are over the cap of {max}", max = crate::MAX_PLAINTEXT)]
    TooLarge(usize),
    /// A header field contradicts another, or the suite does not fit the document.
    #[error("envelope field `{0}` is not as it must be")]
    Field(&'static str),
    /// The key is one of another document or segment.
    #[error("segment key is of another document or segment")]
    Key,
}

/// A sealed body or row that does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The envelope was sealed under another key than the one given.
    #[error("sealed under another key")]
    WrongKey,
    /// The body was not made with this key for this header.
    #[error("does not open: not sealed with this key for this place")]
    Forged,
    /// Bytes after the plaintext are not all zero.
    #[error("padding is not zero")]
    Padding,
    /// The envelope is plain, or is not.
    #[error("envelope of the other suite")]
    Suite,
}

/// A key that could not be wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// The recipient's X25519 key is weak.
    #[error(transparent)]
    Weak(#[from] WeakKey),
    /// HPKE refused.
    #[error("key cannot be wrapped to this device")]
    Hpke,
}

/// A wrap that does not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnwrapError {
    /// Not made for this device, epoch, writer, account and membership.
    #[error("wrap does not open for this device and place")]
    Forged,
    /// It holds another key than the key id says.
    #[error("wrap holds another key than its record names")]
    KeyId,
}
