//! The mailbox's end: who comes, and the stream of each.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{Connection, RecvStream, SendStream, VarInt};
use tokio::sync::mpsc;

use crate::ALPN_MAIL;
use crate::accept::{Accepted, Handshakes, Network};
use crate::endpoint::StartError;
use crate::io;
pub use crate::io::{IoEvent as LineEvent, Writer as Line};
use crate::socket::bind_udp;
use crate::tls::{Identity, Trust, transport};

/// Handshakes that are over and wait for the mailbox.
const QUEUE: usize = 64;
/// Flow control of each stream, both ways: what a peer that does not read, or
/// sends half a blob, makes the mailbox hold.
const WINDOW: u32 = 64 * 1024;

/// A UDP port to which devices connect.
#[derive(Debug)]
pub struct Listener {
    quic: quinn::Endpoint,
    local: SocketAddr,
    key: [u8; 32],
    handshakes: Handshakes,
    tell: mpsc::Sender<(u64, Option<Box<Accepted>>)>,
    told: mpsc::Receiver<(u64, Option<Box<Accepted>>)>,
}

/// A device whose handshake is over. Its key is made for this connection and says
/// nothing of it.
#[derive(Debug)]
pub struct Incoming {
    /// Where it is.
    pub remote: SocketAddr,
    connection: Connection,
    send: SendStream,
    recv: RecvStream,
}

impl Listener {
    /// Listens with the key of a 32-byte seed (RFC 8032 §5.1.5), on the current
    /// tokio runtime.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn bind(seed: &[u8; 32], listen: SocketAddr) -> Result<Self, StartError> {
        let bind = |source| StartError::Bind { listen, source };
        let identity = Identity::new(seed)?;
        let key = identity.key()?;
        let mut server = identity.server(Trust::Anyone, &[ALPN_MAIL])?;
        let mut config = transport(1, WINDOW);
        // Each connection keeps room for what it hands the kernel at once: of ten packets,
        // ten times that of one. Most blobs are one.
        config.enable_segmentation_offload(false);
        // That of the devices keeps both ends awake enough.
        config.keep_alive_interval(None);
        server.transport_config(Arc::new(config));
        let socket = bind_udp(listen).map_err(bind)?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let config = quinn::EndpointConfig::default();
        let quic = quinn::Endpoint::new(config, Some(server), socket, runtime).map_err(bind)?;
        let local = quic.local_addr().map_err(bind)?;
        let (tell, told) = mpsc::channel(QUEUE);
        Ok(Self {
            quic,
            local,
            key,
            handshakes: Handshakes::default(),
            tell,
            told,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The public key by which devices know it.
    #[must_use]
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// The next device; `None` when the socket is gone. Nothing is lost when this is
    /// given up.
    pub async fn next(&mut self) -> Option<Incoming> {
        loop {
            tokio::select! {
                incoming = self.quic.accept() => {
                    let incoming = incoming?;
                    let network = Network::of(incoming.remote_address().ip(), false);
                    let tell = self.tell.clone();
                    let tag = |id, accepted| (id, accepted);
                    self.handshakes.take_up(incoming, network, tell, tag);
                }
                told = self.told.recv() => {
                    let (id, accepted) = told?;
                    if self.handshakes.over(id)
                        && let Some(accepted) = accepted
                    {
                        let Accepted { connection, send, recv, .. } = *accepted;
                        let remote = connection.remote_address();
                        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
                        return Some(Incoming { remote, connection, send, recv });
                    }
                }
            }
        }
    }

    /// Says goodbye to all.
    pub fn close(&self) {
        self.quic.close(io::code::LEAVING, b"leaving");
    }
}

impl Incoming {
    /// Starts to read and write it. `tag` marks what it tells.
    pub fn start<T: Send + 'static>(
        self,
        tell: mpsc::Sender<T>,
        tag: impl Fn(LineEvent) -> T + Clone + Send + Sync + 'static,
    ) -> Line {
        io::start(self.connection, self.send, self.recv, tell, tag)
    }

    /// Sends it away.
    pub fn refuse(self) {
        self.connection
            .close(VarInt::from_u32(3), b"too many connections");
    }
}
