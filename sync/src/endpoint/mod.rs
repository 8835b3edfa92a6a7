//! The endpoint of a node: one UDP port, one session a peer.

pub(crate) mod dial;
mod hub;
mod known;
mod moved;
mod peers;
mod tell;

use std::fmt;
use std::io;
use std::net::SocketAddr;

use bailey_model::{AccountId, DeviceId, Incarnation};
use bailey_session::{ChainId, CloseReason, Hash, Head, IngestFailure};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::socket::bind_udp;
use crate::tls::{Identity, Pins, TlsError, Trust};
use crate::{ALPN_SESSION, Dice};

/// Commands and events that may wait. The node waits for room, and so does a
/// peer whose envelopes the node cannot take.
const QUEUE: usize = 256;

/// What an endpoint starts from.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Our Ed25519 seed (RFC 8032 §5.1.5).
    pub ed25519_secret: [u8; 32],
    /// Our device.
    pub device: DeviceId,
    /// Our account.
    pub account: AccountId,
    /// This start of the node.
    pub incarnation: Incarnation,
    /// Where to listen; `[::]:PORT` takes IPv4 too. Port 0 is any free one.
    pub listen: SocketAddr,
    /// 32 bytes from the operating system, for jitter.
    pub entropy: [u8; 32],
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("device", &self.device)
            .field("account", &self.account)
            .field("incarnation", &self.incarnation)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

/// Why an endpoint did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port cannot be had.
    #[error("cannot listen on {listen}: {source}")]
    Bind {
        /// Where.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The key, or the build.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What the node tells the endpoint.
#[derive(Debug, Clone)]
pub enum SyncCommand {
    /// All members now, with their Ed25519 keys; ours is ignored. Whoever is
    /// missing is closed at once and refused from now on.
    Members(Vec<(DeviceId, [u8; 32])>),
    /// Who was a member, or was added by one that was none any more, with their keys;
    /// told before the members are. They hear of their removal, over a session that is open or one that they begin, hand over
    /// a few records of the account, and are closed.
    Former(Vec<(DeviceId, [u8; 32])>),
    /// Where a peer may be reached; replaces what was told before, and dials at
    /// once if there is no connection.
    Peer {
        /// The peer.
        device: DeviceId,
        /// Its addresses, the likeliest first.
        addrs: Vec<SocketAddr>,
    },
    /// How far we have our chains: all of them at the start, those that began here last
    /// at the end; later what changed.
    Heads(Vec<Head>),
    /// Chains of which nothing is left to hand over but a tombstone: other devices are
    /// not told of them, unless they grow. Replaces what was told before, and holds for
    /// sessions that begin.
    Spent(Vec<Head>),
    /// Answer to [`SyncEvent::NeedRange`], with the same chain and number.
    Range {
        /// The peer that asked.
        peer: DeviceId,
        /// The chain.
        chain: ChainId,
        /// The number asked from.
        from_seq: u64,
        /// Consecutive envelopes from there; empty if there is none (any more).
        envelopes: Vec<Vec<u8>>,
    },
    /// Answer to [`SyncEvent::Envelope`]: the store has the chain up to `seq`.
    Ingested {
        /// The peer that gave it.
        peer: DeviceId,
        /// The chain of the event.
        chain: ChainId,
        /// How far we have it now.
        seq: u64,
    },
    /// Answer to [`SyncEvent::Envelope`]: the store did not take it.
    IngestFailed {
        /// The peer that gave it.
        peer: DeviceId,
        /// The chain of the event.
        chain: ChainId,
        /// Whether it may do so later.
        failure: IngestFailure,
    },
    /// Says goodbye everywhere and ends.
    Shutdown,
}

/// What the endpoint tells the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent {
    /// A session is up: the peer's first frame came, so it accepted us too.
    Up {
        /// The peer.
        peer: DeviceId,
        /// Where it is now.
        remote: SocketAddr,
        /// UDP port where it accepts sessions, 0 if nowhere.
        listen_port: u16,
        /// Its start: another one than before means that it was restarted.
        incarnation: Incarnation,
    },
    /// A session that was up is over.
    Down {
        /// The peer.
        peer: DeviceId,
        /// Why.
        reason: DownReason,
    },
    /// The peer wants envelopes; answer by [`SyncCommand::Range`].
    NeedRange {
        /// The peer.
        peer: DeviceId,
        /// The chain.
        chain: ChainId,
        /// From this number on.
        from_seq: u64,
        /// This many bytes in sum, or one envelope.
        max_bytes: u32,
    },
    /// An envelope came, not judged in any way. Each is answered once, by
    /// [`SyncCommand::Ingested`] or [`SyncCommand::IngestFailed`] with this peer
    /// and chain.
    Envelope {
        /// The peer.
        peer: DeviceId,
        /// The chain that it was asked for.
        chain: ChainId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Both sides have this number of a chain with different hashes.
    Fork {
        /// The peer.
        peer: DeviceId,
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
    /// the rest of its chains is left out.
    LeftOut {
        /// The peer.
        peer: DeviceId,
        /// The writer.
        writer: DeviceId,
    },
    /// We have all that this peer told of and could give. Comes again after more.
    CaughtUp {
        /// The peer.
        peer: DeviceId,
    },
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownReason {
    /// One side ended it.
    Session(CloseReason),
    /// A newer connection with the same peer took its place.
    Replaced,
    /// The peer is no member any more.
    Removed,
    /// This device is at another address, and begins another.
    Moved,
    /// The connection ended; what is known of it.
    Lost(String),
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(reason) => reason.fmt(f),
            Self::Replaced => f.write_str("a newer connection took its place"),
            Self::Removed => f.write_str("no member any more"),
            Self::Moved => f.write_str("this device is at another address"),
            Self::Lost(why) => write!(f, "connection lost: {why}"),
        }
    }
}

/// A running endpoint. It ends when [`SyncCommand::Shutdown`] is sent, or the
/// sender or the receiver is dropped.
#[derive(Debug)]
pub struct Endpoint {
    local: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts one, on the current tokio runtime. Until the first
    /// [`SyncCommand::Members`] it lets nobody in.
    ///
    /// # Errors
    /// [`StartError`]: the port is taken, or the key is none.
    pub fn start(
        config: EndpointConfig,
    ) -> Result<(Self, mpsc::Sender<SyncCommand>, mpsc::Receiver<SyncEvent>), StartError> {
        let bind = |source| StartError::Bind {
            listen: config.listen,
            source,
        };
        let identity = Identity::new(&config.ed25519_secret)?;
        let pins = Pins::default();
        let server = identity.server(Trust::Members(pins.clone()), &[ALPN_SESSION])?;
        let socket = bind_udp(config.listen).map_err(bind)?;
        let quic = quinn::Endpoint::new(
            quinn::EndpointConfig::default(),
            Some(server),
            socket,
            std::sync::Arc::new(quinn::TokioRuntime),
        )
        .map_err(bind)?;
        let local = quic.local_addr().map_err(bind)?;
        let (command_tx, commands) = mpsc::channel(QUEUE);
        let (events, event_rx) = mpsc::channel(QUEUE);
        let dice = Dice::new(&config.entropy);
        let own = hub::Own {
            device: config.device,
            account: config.account,
            incarnation: config.incarnation,
            listen_port: local.port(),
        };
        let hub = hub::Hub::new(own, identity, pins, quic, events, dice);
        let task = tokio::spawn(hub.run(commands));
        Ok((Self { local, task }, command_tx, event_rx))
    }

    /// The UDP port that it listens on.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.local.port()
    }

    /// The address that it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits until it ended.
    pub async fn stopped(self) {
        // A panic of the task has been printed by then; it is an end as well.
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests;
