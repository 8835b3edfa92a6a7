//! The password-authenticated exchange that a code goes through.
//!
//! SPAKE2 over the edwards25519 group, by the `spake2` crate (the construction of
//! Abdalla and Pointcheval with the transcript of magic-wormhole, not that of RFC
//! 9382; the confirmation is our own, in `proof`). What passes lets each side try
//! one password a connection and nobody try any afterwards.

use core::convert::Infallible;
use core::fmt;

use rand_core::{TryCryptoRng, TryRng};
use sha2::{Digest as _, Sha256};
use spake2::{Ed25519Group, Identity, Password, Spake2};

use super::proof::Link;

/// First byte of an element in the crate's messages; on the wire the place in the
/// protocol says it.
const SIDE_JOINER: u8 = b'A';
const SIDE_HOST: u8 = b'B';

/// Our half of an exchange.
pub(crate) struct Exchange {
    half: Spake2<Ed25519Group>,
    peer_side: u8,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange(..)")
    }
}

/// Which half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Joiner,
    Host,
}

impl Exchange {
    /// Begins one with this password on this connection: the identities are the
    /// keys that TLS proved, with the exporter. `seed` is used for nothing else.
    pub(crate) fn start(
        side: Side,
        password: &[u8],
        link: &Link,
        seed: [u8; 32],
    ) -> Option<(Self, [u8; 32])> {
        let password = Password::new(password);
        let identity = |label: &[u8], key: &[u8; 32]| {
            Identity::new(&[label, &link.exporter[..], &key[..]].concat())
        };
        let joiner = identity(b"bailey/pair/id/joiner/v2\0", &link.joiner);
        let host = identity(b"bailey/pair/id/host/v2\0", &link.host);
        let rng = Stream { seed, block: 0 };
        let (half, message) = match side {
            Side::Joiner => Spake2::start_a_with_rng(&password, &joiner, &host, rng),
            Side::Host => Spake2::start_b_with_rng(&password, &joiner, &host, rng),
        };
        let peer_side = match side {
            Side::Joiner => SIDE_HOST,
            Side::Host => SIDE_JOINER,
        };
        let element = message.get(1..)?.try_into().ok()?;
        Some((Self { half, peer_side }, element))
    }

    /// The key, which is the peer's too if it had the same password and sees the
    /// same connection; `None` for what is no element of the group.
    pub(crate) fn finish(self, element: &[u8; 32]) -> Option<[u8; 32]> {
        let message = [&[self.peer_side], &element[..]].concat();
        self.half.finish(&message).ok()?.try_into().ok()
    }
}

/// Random bytes out of given ones: SHA-256 of the seed and a counter.
struct Stream {
    seed: [u8; 32],
    block: u32,
}

impl Stream {
    fn next(&mut self) -> [u8; 32] {
        let block = Sha256::new()
            .chain_update(b"bailey/pair/scalar/v2\0")
            .chain_update(self.seed)
            .chain_update(self.block.to_be_bytes())
            .finalize();
        self.block = self.block.wrapping_add(1);
        block.into()
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let [a, b, c, d, ..] = self.next();
        Ok(u32::from_be_bytes([a, b, c, d]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let [a, b, c, d, e, f, g, h, ..] = self.next();
        Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        for piece in to.chunks_mut(32) {
            let block = self.next();
            piece.copy_from_slice(&block[..piece.len()]);
        }
        Ok(())
    }
}

impl TryCryptoRng for Stream {}
