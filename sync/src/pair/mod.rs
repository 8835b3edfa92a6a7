//! Pairing: a short-lived QUIC endpoint on a port of its own, and a way through a mailbox
//! where the code names one.
//!
//! The protocol is `bailey_session::pair`; here are its connections, its
//! deadlines, the search in the local network, and the counting of wrong tries. On each side one task runs it;
//! the node talks to it by commands and events on bounded channels.

mod host;
mod join;
mod line;
mod memory;
mod post;

pub use bailey_session::DevicePublic;
pub use bailey_session::pair::{
    AnyCode, CodeError, MAX_NAME, MAX_SHORT_CODES, PairCode, PairFailure, PairSecret, ShortCode,
    ShortCodeBudget, WORDS, Welcome, WrongStep,
};
pub use host::{HostCommand, HostEvent, PairHost, PairHostConfig};
pub use join::{JoinCommand, JoinConfig, JoinEvent, join};

use std::io;
use std::time::Duration;

use bailey_session::pair::EXPORTER_LABEL;
use quinn::Connection;

use crate::tls::TlsError;

/// How long a code is good for.
pub const VALID_FOR: Duration = Duration::from_secs(5 * 60);
/// How long two people may take once the code was right.
const PEOPLE: Duration = Duration::from_secs(5 * 60);
/// Commands and events that may wait: a pairing has fewer in all.
const QUEUE: usize = 16;

/// Why a pairing did not start.
#[derive(Debug, thiserror::Error)]
pub enum PairStartError {
    /// The port cannot be had.
    #[error("pairing: cannot listen: {0}")]
    Bind(#[from] io::Error),
    /// The key, or the build.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No address to put into the code.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The operating system gave no random bytes.
    #[error("pairing: no random bytes: {0}")]
    Entropy(getrandom::Error),
    /// Our own name is empty or too long.
    #[error("pairing: a device name has 1 to {MAX_NAME} characters")]
    Name,
}

/// Why a pairing ended without success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The protocol ended it.
    #[error(transparent)]
    Pairing(#[from] PairFailure),
    /// Too many wrong codes.
    #[error("too many wrong codes: this one is burnt, make another")]
    Burnt,
    /// Nobody came in time.
    #[error("the code expired")]
    Expired,
    /// Nobody in the local network answers for a short code.
    #[error("no device that shows a code with the number {0} answers in this network")]
    NotFound(u16),
    /// The local network cannot be asked.
    #[error("the local network cannot be asked for the device: {0}")]
    NoNetwork(String),
    /// None of the code's addresses answered.
    #[error("the other device does not answer at {0}")]
    Unreachable(String),
    /// The connection ended before the pairing did.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// It ended on its way through a mailbox: which, and why.
    #[error("through the mailbox {0}")]
    ByMailbox(String),
    /// Neither the code's addresses nor its mailbox led to the other device.
    #[error("{0}; {1}")]
    Neither(Box<Self>, Box<Self>),
    /// A command that is not the next step.
    #[error(transparent)]
    Step(#[from] WrongStep),
}

fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Binds proofs and words to this connection (RFC 8446 §7.5).
fn exporter(connection: &Connection) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    connection
        .export_keying_material(&mut out, EXPORTER_LABEL, b"")
        .ok()?;
    Some(out)
}

fn name_fits(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.chars().count())
}

#[cfg(test)]
mod tests;
