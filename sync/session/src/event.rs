//! What a session starts from and what it says.

use core::fmt;

use bailey_model::{AccountId, DeviceId, Incarnation};

use crate::wire::ByeReason;
use crate::{ChainId, Hash};

/// Who we are, and with whom we speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionConfig {
    /// The account of both.
    pub account: AccountId,
    /// The peer, as the transport proved it.
    pub peer: DeviceId,
    /// This start of ours.
    pub incarnation: Incarnation,
    /// UDP port where we accept sessions, 0 if nowhere.
    pub listen_port: u16,
}

/// What the session asks of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The peer's first frame came, and it is of our account.
    Up {
        /// UDP port where it accepts sessions, 0 if nowhere.
        listen_port: u16,
        /// Its start: another one than before means that it was restarted.
        incarnation: Incarnation,
    },
    /// The peer wants envelopes: answer by [`crate::Session::handle_range`].
    NeedRange {
        /// Of this chain,
        chain: ChainId,
        /// from this number on,
        from: u64,
        /// this many bytes in sum, or one envelope.
        max_bytes: u32,
    },
    /// An envelope came: give it to the store and say what came of it, once for
    /// each, by [`crate::Session::handle_ingested`] or [`crate::Session::handle_ingest_failed`]
    /// under this same chain.
    Envelope {
        /// The chain that it was asked for. The store decides whether it is so.
        chain: ChainId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Both sides have this number of a chain with different hashes: one writer
    /// signed two, or a side lies. The chain is left alone in this session.
    Fork {
        /// The chain.
        chain: ChainId,
        /// The number.
        seq: u64,
        /// Hash of the envelope that we have.
        ours: Hash,
        /// Hash that the peer told.
        theirs: Hash,
    },
    /// There are more chains of a writer than a session is about, here or at the peer:
    /// the rest of its chains is left out, those of others are not. Once a writer.
    LeftOut {
        /// The writer.
        writer: DeviceId,
    },
    /// We have all that the peer told of and could give, chains that the store
    /// refused for good or that forked left aside. Comes again after more.
    CaughtUp,
    /// The session is over; nothing follows.
    Closed(CloseReason),
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// We ended it.
    Ours(ByeReason),
    /// The peer ended it.
    Theirs(ByeReason),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours(reason) => write!(f, "ended here: {reason}"),
            Self::Theirs(reason) => write!(f, "ended by the peer: {reason}"),
        }
    }
}

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The peer's `Hello`.
    Hello,
    /// Our `Alive`.
    KeepAlive,
    /// The peer's next byte.
    Silence,
    /// The answer to a want.
    Answer,
    /// A chain that waits after a gap.
    Retry,
    /// The next frame of heads.
    Heads,
    /// The end of a session whose peer is no member any more.
    Parting,
}
