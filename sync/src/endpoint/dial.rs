//! Dialling a peer.

use std::net::SocketAddr;
use std::time::Duration;

use quinn::{ClientConfig, Connection, RecvStream, SendStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::HANDSHAKE_TIMEOUT;
use crate::tls::SERVER_NAME;

/// The next address is tried this long after the one before, unless that one
/// answered (the thought of RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// A connection and the stream on it, of which the peer sees nothing until
/// something is sent.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
}

/// The first of the addresses that answers with the right key. The others are
/// given up; a peer that accepted one of them sees no stream on it.
pub(crate) async fn dial(
    endpoint: quinn::Endpoint,
    config: ClientConfig,
    addrs: Vec<SocketAddr>,
) -> Option<Dialled> {
    let mut tries = JoinSet::new();
    for (at, addr) in addrs.into_iter().enumerate() {
        let (endpoint, config) = (endpoint.clone(), config.clone());
        let wait = STAGGER.saturating_mul(u32::try_from(at).unwrap_or(u32::MAX));
        tries.spawn(async move {
            sleep(wait).await;
            let connecting = endpoint.connect_with(config, addr, SERVER_NAME).ok()?;
            timeout(HANDSHAKE_TIMEOUT, connecting).await.ok()?.ok()
        });
    }
    while let Some(tried) = tries.join_next().await {
        if let Ok(Some(connection)) = tried {
            // Granted with the handshake.
            let opened = timeout(HANDSHAKE_TIMEOUT, connection.open_bi()).await;
            let (send, recv) = opened.ok()?.ok()?;
            return Some(Dialled {
                connection,
                send,
                recv,
            });
        }
    }
    None
}
