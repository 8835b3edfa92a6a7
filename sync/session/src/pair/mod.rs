//! Pairing: a device of an account and a new one, by a code that a person
//! carries from one screen to the other.
//!
//! The code holds addresses and an 80-bit secret, is good for one pairing and a
//! few minutes, and burns after [`MAX_WRONG`] wrong tries. Both ends connect by
//! TLS 1.3 with raw Ed25519 keys that neither knows yet, and prove the secret
//! over the connection's exporter: whoever sits between them with keys of his
//! own has two connections with two exporters, and neither proof carries over.
//! A recorded proof could be searched for the secret offline; 2^80 tries of
//! HMAC are out of reach, so no password-authenticated exchange is needed.
//!
//! Both screens then show the same four words. They catch one who saw the code:
//! he can run both connections, but the words hash the exporter, both devices
//! and a random number of each side, and the joining side commits to its own
//! before it sees the other's. Nobody can search for equal words: he has one
//! try in 2^32.
//!
//! # Wire format, version 1
//!
//! One bidirectional stream under ALPN `bailey-pair/1`, opened by the joining
//! side; frames as at the crate's root, at most [`MAX_FIRST_PAYLOAD`] bytes
//! until the proof and [`MAX_PAIR_PAYLOAD`] after.
//!
//! ```text
//! tag 0  Prove    joiner  version: u16, commit: [u8; 32], mac: [u8; 32]
//! tag 1  Answer   host    mac: [u8; 32], nonce: [u8; 32], introduction
//! tag 2  Reveal   joiner  nonce: [u8; 32], introduction
//! tag 3  Offer    host    account: [u8; 32], record: bytes     after its person said yes
//! tag 4  Cosign   joiner  cosignature: bytes
//! tag 5  Welcome  host    envelopes: list of bytes, addresses: list of address, port: u16
//! tag 6  Done     joiner
//! tag 7  End      either  reason: u8
//!
//! introduction = ed25519: [u8; 32], x25519: [u8; 32], name: string (1 ..= 64 characters)
//! address      = tag 0: [u8; 4], port: u16  |  tag 1: [u8; 16], port: u16
//!
//! exporter     = TLS exporter, label "EXPORTER-bailey-pair-v1", no context, 32 bytes
//! commit       = SHA-256("bailey/pair/commit/v1" 0 nonce ed25519 x25519 name)   of the joiner
//! Prove.mac    = HMAC-SHA-256(secret, "bailey/pair/joiner/v1" 0 exporter host joiner commit)
//! Answer.mac   = HMAC-SHA-256(secret, "bailey/pair/host/v1" 0 exporter host joiner commit
//!                             nonce ed25519 x25519 name)                        of the host
//! words        = SHA-256("bailey/pair/words/v1" 0 exporter nonce_joiner nonce_host
//!                        joiner's ed25519 x25519, host's ed25519 x25519), first four bytes
//! ```
//!
//! `host` and `joiner` are the Ed25519 keys that TLS proved; each must be equal
//! to the one in its side's introduction. A wrong proof is answered by `End`
//! with reason 0, and so is whoever is connected when another proved the code;
//! later ones, and all once it is burnt or expired, get no connection.

mod code;
mod machine;
mod proof;
mod wire;
mod words;

pub use code::{CodeError, PairCode, PairSecret};
pub use machine::{PairConfig, PairEvent, PairFailure, Pairing, Role, Welcome, WrongStep};
pub use wire::refusal;
pub use words::WORDS;

/// Label of the TLS exporter that proofs and words are bound to.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-bailey-pair-v1";
/// Wrong proofs after which a code is burnt.
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
