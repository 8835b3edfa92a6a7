//! What a flow says of its own name in its first bytes: the ClientHello of TLS
//! over TCP, and that of QUIC in its Initial packets.
//!
//! Nothing here delays a byte. Whoever carries a flow lets the box's bytes pass
//! while they cannot yet be a whole ClientHello, which no server can act on, and
//! asks before the bytes that make it whole.

mod hello;
mod initial;
mod keys;
mod reader;
mod records;
mod stream;

pub(crate) mod fuzz;

pub(crate) use initial::DatagramPeek;
pub(crate) use stream::StreamPeek;

use bailey_model::Host;

/// Longest beginning of a flow that is looked at in bytes: a ClientHello with
/// post-quantum keys and a resumed session is a quarter of it.
pub(crate) const MAX_HELLO: usize = 16 << 10;

/// What a flow's beginning turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// A whole ClientHello.
    Hello(Hello),
    /// It began as one and cannot be one, is longer than [`MAX_HELLO`], or is for
    /// what is no host name.
    Unreadable,
    /// It is none.
    Other,
}

/// A ClientHello, as far as it concerns its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The host that it names in the clear (RFC 6066 §3).
    pub(crate) host: Option<Host>,
    /// Whether it has an `encrypted_client_hello` extension (RFC 9849).
    pub(crate) encrypted: bool,
}

/// What came of reading a beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Read {
    /// Nothing can be said before there are so many bytes.
    More(usize),
    Done(Spoken),
}

#[cfg(test)]
pub(crate) mod tests;
