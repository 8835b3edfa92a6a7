//! All that can happen to the node: one closed enum, one loop.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use bailey_fence_plan::channel::FromFence;
use bailey_gate_proto::channel::FromGate;
use bailey_sync::SyncEvent;
use tokio::sync::mpsc;

use super::pairing::PairingEvent;
use crate::api::{Ask, Tell};

/// Events waiting for the loop; past it the senders wait, and with them the
/// sockets that they read.
pub(crate) const EVENTS: usize = 1024;
/// Answers waiting for one connection.
pub(crate) const ANSWERS: usize = 8192;
/// Commands waiting for one launcher or gate.
pub(crate) const COMMANDS: usize = 8192;

/// A connection to the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u64);

/// One incarnation of a box on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunId(pub(crate) u64);

/// A launcher of this node, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FenceId(pub(crate) u64);

/// An answer and its descriptors.
pub(crate) type Answer = (Tell, Vec<OwnedFd>);

/// What happened outside the store.
#[derive(Debug)]
pub(crate) enum NodeEvent {
    /// A connection is there.
    Connected {
        conn: ConnId,
        answers: mpsc::Sender<Answer>,
    },
    /// A question came by it.
    Asked {
        conn: ConnId,
        ask: Ask,
        fds: VecDeque<OwnedFd>,
    },
    /// It is gone.
    Disconnected { conn: ConnId },
    /// A launcher says something.
    Fence {
        fence: FenceId,
        said: FromFence,
        fds: VecDeque<OwnedFd>,
    },
    /// A launcher is gone.
    FenceGone { fence: FenceId },
    /// A gate says something.
    Gate { run: RunId, said: FromGate },
    /// A gate is gone.
    GateGone { run: RunId },
    /// A box's processes stand, or could not be made to.
    Stands {
        run: RunId,
        held: Result<super::still::Held, String>,
    },
    /// They go on, or could not be let: what is held of them still.
    GoesOn {
        run: RunId,
        gone: Result<(), (Option<super::still::Held>, String)>,
    },
    /// All that a detached box wrote is in its log.
    LogOver { run: RunId },
    /// A follower was sent a box's history up to this entry.
    HistoryRead { conn: ConnId, upto: u64 },
    /// The sync endpoint of this start is gone.
    SyncGone { port: u16 },
    /// The sync endpoint says something.
    Sync(SyncEvent),
    /// A mailbox says something, or the way to it.
    Mail(super::mailbox::MailSaid),
    /// Somebody wants the figures.
    Scraped(super::metrics::Scrape),
    /// A pairing goes on.
    Pairing { conn: ConnId, event: PairingEvent },
    /// Somebody on the link says that a device of the account is there.
    Nearby {
        device: bailey_model::DeviceId,
        at: std::net::SocketAddr,
    },
    /// Prefixes under which the network translates to IPv4; `None` where its
    /// name servers did not answer.
    Nat64(Option<Vec<(std::net::Ipv6Addr, u8)>>),
}
