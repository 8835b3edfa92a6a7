//! Pairing: a device of an account and a new one, by a code that a person
//! carries from one screen to the other.
//!
//! There are two codes for one pairing. The *long* one holds addresses and an 80-bit
//! secret: it is what a QR code shows, or what is pasted. The *short* one, a number
//! and two words, can be said aloud; the number finds the device in a network
//! ([`crate::lan`]). Both are good for one pairing and a few minutes. A long one
//! burns after [`MAX_WRONG`] wrong tries, a short one after the first, and a device
//! makes at most [`MAX_SHORT_CODES`] of these an hour.
//!
//! Both ends connect by TLS 1.3 with raw Ed25519 keys that neither knows yet, and
//! put the code through a password-authenticated exchange whose identities are these
//! keys and the connection's exporter: whoever sits between them with keys of his
//! own has two connections with two exporters, and comes to no key with either. He
//! gets one guess for each side that meets him, and nothing to search afterwards.
//!
//! Both screens then show the same four words. They catch one who saw the code:
//! he can run both connections, but the words hash the exporter, both devices
//! and a random number of each side, and the joining side commits to its own
//! before it sees the other's. Nobody can search for equal words: he has one
//! try in 2^32.
//!
//! Where the two cannot reach each other, a long code may name a mailbox that both
//! reach. TLS and these frames then go in blobs of two topics that its secret gives
//! (pair/post.rs); the rest is the same. A short code never goes through a mailbox: who
//! keeps it could search 16 bits for the topic.
//!
//! # Wire format, version 2
//!
//! One bidirectional stream under ALPN `bailey-pair/2`, opened by the joining
//! side; frames as at the crate's root, at most [`MAX_FIRST_PAYLOAD`] bytes
//! until the proof and [`MAX_PAIR_PAYLOAD`] after. A host takes `bailey-pair/1`
//! too, to say in that version's words that it is another one.
//!
//! ```text
//! tag 0  Open     joiner  code: u8 (0 long, 1 short), element: [u8; 32]
//! tag 1  Answer   host    element: [u8; 32]
//! tag 2  Prove    joiner  commit: [u8; 32], mac: [u8; 32]
//! tag 3  Proof    host    mac: [u8; 32], nonce: [u8; 32], introduction
//! tag 4  Reveal   joiner  nonce: [u8; 32], introduction
//! tag 5  Offer    host    account: [u8; 32], record: bytes     after its person said yes
//! tag 6  Cosign   joiner  cosignature: bytes
//! tag 7  Welcome  host    envelopes: list of bytes, addresses: list of address, port: u16
//! tag 8  Done     joiner
//! tag 9  End      either  reason: u8
//!
//! introduction = ed25519: [u8; 32], x25519: [u8; 32], name: string (1 ..= 64 characters)
//! address      = tag 0: [u8; 4], port: u16  |  tag 1: [u8; 16], port: u16
//!
//! exporter     = TLS exporter, label "EXPORTER-bailey-pair-v2", no context, 32 bytes
//! password     = "bailey/pair/long/v2" 0 secret  |  "bailey/pair/short/v2" 0 the code's text
//! key          = SPAKE2 over edwards25519 (pair/pake.rs), the joiner as A, the host as B:
//!                identities "bailey/pair/id/joiner/v2" 0 exporter joiner
//!                and        "bailey/pair/id/host/v2"   0 exporter host
//! commit       = SHA-256("bailey/pair/commit/v2" 0 nonce ed25519 x25519 name)   of the joiner
//! Prove.mac    = HMAC-SHA-256(key, "bailey/pair/joiner/v2" 0 exporter host joiner commit)
//! Proof.mac    = HMAC-SHA-256(key, "bailey/pair/host/v2" 0 exporter host joiner commit
//!                             nonce ed25519 x25519 name)                        of the host
//! words        = SHA-256("bailey/pair/words/v2" 0 exporter nonce_joiner nonce_host
//!                        joiner's ed25519 x25519, host's ed25519 x25519), first four bytes
//! ```
//!
//! `host` and `joiner` are the Ed25519 keys that TLS proved; each must be equal
//! to the one in its side's introduction. The joiner proves first, so that a host
//! counts every guess. A wrong proof is answered by `End` with reason 0, and so is
//! who names a short code that is burnt, and whoever is connected when another
//! proved the code; later ones, and all once it is burnt or expired, get no
//! connection.

mod code;
mod machine;
mod pake;
mod post;
mod proof;
mod short;
mod wire;
mod words;

pub use code::{CodeError, PairCode, PairSecret};
pub use machine::{PairConfig, PairEnd, PairEvent, PairFailure, Pairing, Welcome, WrongStep};
pub use post::{Attempt, MAX_ATTEMPTS, MAX_ATTEMPTS_EVER, MAX_BLOBS, Post, PostEvent, PostFault};
pub use short::{AnyCode, MAX_SHORT_CODES, PairPassword, PasswordKind, ShortCode, ShortCodeBudget};
pub use wire::{refusal, refusal_of_version_1};
pub use words::WORDS;

/// Label of the TLS exporter that proofs and words are bound to.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-bailey-pair-v2";
/// Wrong proofs after which a long code is burnt.
pub const MAX_WRONG: u8 = 3;
/// Longest payload before the peer proved the secret.
pub const MAX_FIRST_PAYLOAD: usize = 512;
/// Longest payload after: an account's whole chain of membership.
pub const MAX_PAIR_PAYLOAD: usize = 1 << 20;
/// Longest device name, in characters.
pub const MAX_NAME: usize = 64;
/// Envelopes in a welcome.
pub const MAX_WELCOME: usize = 4096;
/// Addresses in a welcome.
pub const MAX_WELCOME_ADDRS: usize = 16;

#[cfg(test)]
mod tests;
