//! What two devices of one account say to each other, as a pure state machine.
//!
//! Time, bytes and the store's answers come in by `handle_*`; frames, wishes
//! and deadlines go out by `poll_*`. Time is a [`core::time::Duration`] since
//! an origin of the caller's choice on a clock that never goes back. Envelopes
//! are opaque here: the store verifies them, before and after the wire.
//!
//! # Wire format, version 2
//!
//! One ordered byte stream in each direction (a QUIC bidirectional stream under
//! ALPN `bailey/1`, both ends authenticated as members of the account). Each
//! stream is a sequence of frames:
//!
//! ```text
//! frame   = length payload        length: u32, little endian, 1 ..= MAX_PAYLOAD
//! payload = tag fields            postcard 1 (see below), no byte left over
//!
//! tag 0  Hello      version: u16, account: [u8; 32], listen_port: u16, incarnation: [u8; 16]
//! tag 1  Heads      opening: bool, done: bool, heads: list of head
//! tag 2  Want       chain, from: u64, max_bytes: u32
//! tag 3  Envelopes  chain, from: u64, envelopes: list of (byte string)
//! tag 4  Alive      nothing
//! tag 5  Bye        reason: u8
//!
//! head  = chain, seq: u64, hash: [u8; 32]
//! chain = writer: [u8; 32], incarnation: [u8; 16], doc
//! doc   = tag 0 account | 1 keys | 2 node | 3 notices | 4 requests | 5 box, id: [u8; 16] | 6 days
//! ```
//!
//! Postcard: tags, list and string lengths and integers wider than eight bits
//! are LEB128 varints in their shortest form; `u8` is one byte, `bool` one byte
//! 0 or 1, a fixed array its bytes; fields follow each other without padding.
//!
//! - `Hello` is the first frame of each direction and comes once. Another
//!   version or account ends the session.
//! - `Heads` tells how far the sender has each chain: every envelope up to
//!   `seq`, the last one's hash being `hash`. After `Hello` each side sends its
//!   whole list in frames with `opening`, the last of them with `done`, leaving
//!   out what the other announced already; later frames tell changes.
//! - `Want` asks for envelopes of one chain from number `from` on. Exactly one
//!   `Envelopes` with the same chain and `from` answers it: consecutive
//!   envelopes, at most `max_bytes` in sum (but at least one, however long, if
//!   there is any). An empty list means that there is none. In the place of
//!   envelopes that the sender thinned stands one tombstone (`bailey-envelope`),
//!   and the next one follows what that stands for. At most
//!   [`MAX_PEER_WANTS`] wants may be unanswered, one a chain.
//! - `Envelopes` without a want, an unknown tag, a frame over its bound and
//!   every other breach are answered by `Bye`, and the session is over.
//! - A side that sent nothing for [`KEEP_ALIVE`] sends `Alive`.

#![forbid(unsafe_code)]

mod bucket;
mod chains;
mod event;
pub mod lan;
pub mod mail;
pub mod pair;
mod session;
mod shares;
mod wire;

pub use bailey_envelope::{ChainId, DevicePublic, DocId, Hash, Head};
pub use chains::{Claims, IngestFailure};
pub use event::{CloseReason, SessionConfig, SessionEvent, Timer};
pub use session::Session;
pub use wire::{ByeReason, VERSION};

use core::time::Duration;

/// Longest envelope, in bytes. The store refuses longer ones.
pub const MAX_ENVELOPE: usize = 256 * 1024;
/// Longest payload of a frame: one longest envelope and what stands before it.
pub const MAX_PAYLOAD: usize = MAX_ENVELOPE + 1024;
/// Records of the account that a device which is no member any more may still hand
/// over: its word on the removal.
pub const MAX_PARTING_RECORDS: usize = 16;
/// How long a session whose peer was removed goes on, so that the peer hears of it.
pub const PARTING: Duration = Duration::from_millis(800);
/// How long a device that was removed is heard when it comes later: a few round trips.
pub const PARTING_LATER: Duration = Duration::from_secs(5);
/// Heads in one frame: about 110 bytes each, so such a frame is under half of
/// the bound and does not hold up what is urgent.
pub const MAX_HEADS_PER_FRAME: usize = 1024;
/// Envelopes in one frame; an envelope has a signature and a header, so honest
/// frames never come near.
pub const MAX_ENVELOPES_PER_FRAME: usize = 2048;
/// Chains of one writer that a side tells, and that are taken of a peer's word: a
/// writer adds four a start, which stay for 400 days, so this is ten starts a day. Of
/// more the newest are told.
pub const MAX_CHAINS_OF_WRITER: usize = 16_384;
/// Chains of all writers but the peer that a side tells, and that are taken of a peer's
/// word, those of the account not counted. Four writers that fill theirs use it up, and
/// then what is left out is theirs and what comes late.
pub const MAX_CHAINS: usize = 65_536;
/// Chains of the account's records: a store takes fewer records.
pub const MAX_ACCOUNT_CHAINS: usize = 2048;
/// Chains of which a session knows how far they are here, told or not. One that is over
/// it is fetched again if the peer tells of it, and found to be here.
pub const MAX_CHAINS_HERE: usize = 262_144;
/// Writers of which a session says that chains of theirs are left out.
pub const MAX_LEFT_OUT: usize = 64;
/// Our own wants without an answer. With [`CREDIT_BYTES`] it bounds what is
/// under way to us or waits for the store.
pub const MAX_WANTS: usize = 8;
/// Of these, how many may be for box chains: the rest is kept for notices,
/// requests and keys, which then never wait for bulk.
pub const MAX_BULK_WANTS: usize = 6;
/// Wants of the peer without an answer; more is a flood.
pub const MAX_PEER_WANTS: usize = 16;
/// Sum of `max_bytes` of our unanswered wants for box chains: what an urgent
/// envelope may find in front of itself on the link.
pub const CREDIT_BYTES: u32 = 384 * 1024;
/// Smallest `max_bytes` that we ask for.
pub const MIN_WANT_BYTES: u32 = 64 * 1024;
/// Box ranges that the store is asked for at once; two keep it busy while one
/// is being sent.
pub const MAX_ASKED_BULK: usize = 2;
/// How long the peer's `Hello` may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// After this long without sending, `Alive` is sent.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// After this long without a byte from the peer the session is over.
pub const SILENCE: Duration = Duration::from_secs(30);
/// How long an answer to a want may take: [`CREDIT_BYTES`] at 64 kbit/s, twice.
pub const WANT_TIMEOUT: Duration = Duration::from_secs(120);
/// First wait before a chain with a gap is asked for again; doubles.
pub const GAP_WAIT: Duration = Duration::from_secs(1);
/// Longest such wait.
pub const GAP_WAIT_MAX: Duration = Duration::from_secs(60);
/// Frames of heads that are sent without pause when there is much to tell.
pub const HEADS_BURST: u32 = 64;
/// Pause between frames of heads after that burst: later changes are joined.
pub const HEADS_PAUSE: Duration = Duration::from_millis(20);
/// Frames that nobody asked for (`Heads`, `Alive`) accepted in a burst. An
/// honest peer sends at most its opening list, its burst, and 50 a second
/// for as long as a stalled link can hold them back.
pub const UNASKED_BURST: u32 = 2048;
/// One more such frame is accepted each time this has passed.
pub const UNASKED_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
