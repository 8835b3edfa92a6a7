//! Handshakes of whom we do not know yet.

use std::collections::VecDeque;
use std::net::IpAddr;

use quinn::{Connection, Incoming, RecvStream, SendStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::HANDSHAKE_TIMEOUT;
use crate::tls::peer_key;

/// Handshakes under way from one network. The next one throws out the oldest:
/// an honest one takes a round trip, so it is gone before its turn comes.
const MAX_PER_NETWORK: usize = 8;
/// Handshakes under way in all.
const MAX_HANDSHAKES: usize = 64;
/// With so many under way from one network, or [`RETRY_ABOVE`] in all, an
/// address must first show that it receives what we send (RFC 9000 §8.1.2).
const RETRY_ABOVE_PER_NETWORK: usize = 2;
const RETRY_ABOVE: usize = 8;

/// Whom an unauthenticated handshake is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// An address where a member was reached: its slots are its own.
    Known(IpAddr),
    /// This very machine, by whichever of its addresses: what a box of it begins, if it
    /// gets here at all, takes no slot of a neighbour.
    Own,
    /// A /24.
    V4([u8; 3]),
    /// A /64.
    V6([u8; 8]),
}

impl Network {
    /// `known`: whether a member was told of or seen there.
    pub(crate) fn of_incoming(incoming: &Incoming, known: impl Fn(IpAddr) -> bool) -> Self {
        let ip = incoming.remote_address().ip().to_canonical();
        let to = incoming.local_ip().map(|to| to.to_canonical());
        match known(ip) {
            false if to == Some(ip) => Self::Own,
            known => Self::of(ip, known),
        }
    }

    pub(crate) fn of(ip: IpAddr, known: bool) -> Self {
        match ip.to_canonical() {
            ip if known => Self::Known(ip),
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[derive(Debug)]
struct Pending {
    id: u64,
    network: Network,
    task: AbortHandle,
}

/// Handshakes under way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    pending: VecDeque<Pending>,
    last: u64,
}

/// A finished handshake with its stream.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) connection: Connection,
    pub(crate) key: [u8; 32],
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
}

impl Handshakes {
    /// Takes one up, sends it back for proof of its address, or lets it take
    /// the place of the oldest.
    ///
    /// `tag` makes a message of its number and, if it went well, of what it gave.
    pub(crate) fn take_up<T: Send + 'static>(
        &mut self,
        incoming: Incoming,
        network: Network,
        tell: mpsc::Sender<T>,
        tag: impl FnOnce(u64, Option<Box<Accepted>>) -> T + Send + 'static,
    ) {
        let same = self
            .pending
            .iter()
            .filter(|pending| pending.network == network)
            .count();
        let loaded = same >= RETRY_ABOVE_PER_NETWORK || self.pending.len() >= RETRY_ABOVE;
        if loaded && !incoming.remote_address_validated() && incoming.may_retry() {
            // It fails only if a retry is not possible, which was just asked.
            let _ = incoming.retry();
            return;
        }
        if same >= MAX_PER_NETWORK {
            self.throw_out(|pending| pending.network == network);
        } else if self.pending.len() >= MAX_HANDSHAKES {
            self.throw_out(|pending| !matches!(pending.network, Network::Known(_)));
        }
        if self.pending.len() >= MAX_HANDSHAKES {
            incoming.ignore();
            return;
        }
        self.last += 1;
        let id = self.last;
        let task = tokio::spawn(async move {
            let accepted = handshake(incoming).await;
            let _ = tell.send(tag(id, accepted.map(Box::new))).await;
        });
        self.pending.push_back(Pending {
            id,
            network,
            task: task.abort_handle(),
        });
    }

    fn throw_out(&mut self, which: impl Fn(&Pending) -> bool) {
        if let Some(at) = self.pending.iter().position(which)
            && let Some(pending) = self.pending.remove(at)
        {
            pending.task.abort();
        }
    }

    /// One is over, well or not. `false` if it was thrown out meanwhile.
    pub(crate) fn over(&mut self, id: u64) -> bool {
        let before = self.pending.len();
        self.pending.retain(|pending| pending.id != id);
        self.pending.len() < before
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        for pending in &self.pending {
            pending.task.abort();
        }
    }
}

/// The key was judged by the verifier; the stream is what the dialler opens
/// only on the connection that it keeps.
async fn handshake(incoming: Incoming) -> Option<Accepted> {
    let connecting = incoming.accept().ok()?;
    let connection = timeout(HANDSHAKE_TIMEOUT, connecting).await.ok()?.ok()?;
    let key = peer_key(&connection)?;
    let (send, recv) = timeout(HANDSHAKE_TIMEOUT, connection.accept_bi())
        .await
        .ok()?
        .ok()?;
    Some(Accepted {
        connection,
        key,
        send,
        recv,
    })
}

#[cfg(test)]
mod tests;
