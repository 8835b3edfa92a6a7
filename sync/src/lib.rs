//! Sessions over QUIC: who may connect, one session a peer, and pairing.
//!
//! Every connection is TLS 1.3 with raw Ed25519 public keys at both ends
//! (RFC 7250), no certificate, no name, no resumption, no early data: each
//! handshake is judged anew against the account's members. One bidirectional
//! stream carries the frames of `bailey_session`.
//!
//! [`Endpoint`] runs as one task that owns every session; the node talks to it
//! by [`SyncCommand`] and [`SyncEvent`] on bounded channels. [`pair`] is the
//! short-lived endpoint by which a new device comes into the account, [`mail`] what a
//! mailbox and its devices hold between them.

#![forbid(unsafe_code)]

mod accept;
mod endpoint;
mod io;
mod lan;
mod links;
pub mod mail;
pub mod pair;
mod socket;
mod tls;

pub use bailey_session::lan::{MEMBER_DOMAIN, member_label, member_labels};
pub use bailey_session::{ChainId, CloseReason, Head, IngestFailure};
pub use endpoint::{DownReason, Endpoint, EndpointConfig, StartError, SyncCommand, SyncEvent};
pub use lan::{Link, Nearby, look_for};

use std::time::Duration;

/// Protocol name of sessions.
const ALPN_SESSION: &[u8] = b"bailey/1";
/// Protocol name of pairing.
const ALPN_PAIR: &[u8] = b"bailey-pair/2";
/// The version before, whose joiners are told that it is another.
const ALPN_PAIR_BEFORE: &[u8] = b"bailey-pair/1";
/// Protocol name of mailboxes.
const ALPN_MAIL: &[u8] = b"bailey-mail/1";
/// How long a handshake and the first stream may take, each.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection without traffic is kept open by a packet this often.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A connection that nothing came from for this long is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// splitmix64, for jitter only.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: &[u8; 32]) -> Self {
        let word = |at: usize| {
            seed[at..at + 8]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        Self(word(0) ^ word(8) ^ word(16) ^ word(24))
    }

    /// A part of `longest`, evenly.
    fn part_of(&mut self, longest: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        longest.saturating_mul(u32::try_from((z ^ (z >> 31)) >> 48).unwrap_or(0)) / (1 << 16)
    }
}
