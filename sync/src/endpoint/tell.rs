//! What sessions say, as the node hears it.

use std::net::SocketAddr;

use bailey_model::DeviceId;
use bailey_session::SessionEvent;

use super::{DownReason, SyncEvent};

/// What the node is told of what a session said.
pub(super) enum Told {
    /// This.
    Event(SyncEvent),
    /// The session is over.
    Over(DownReason),
}

/// What a session with a peer, which is at this address, said.
pub(super) fn tell_node(peer: DeviceId, remote: SocketAddr, event: SessionEvent) -> Told {
    Told::Event(match event {
        SessionEvent::Up {
            listen_port,
            incarnation,
        } => {
            let remote = canonical(remote);
            SyncEvent::Up {
                peer,
                remote,
                listen_port,
                incarnation,
            }
        }
        SessionEvent::NeedRange {
            chain,
            from,
            max_bytes,
        } => SyncEvent::NeedRange {
            peer,
            chain,
            from_seq: from,
            max_bytes,
        },
        SessionEvent::Envelope { chain, bytes } => SyncEvent::Envelope { peer, chain, bytes },
        SessionEvent::Fork {
            chain,
            seq,
            ours,
            theirs,
        } => SyncEvent::Fork {
            peer,
            chain,
            seq,
            ours,
            theirs,
        },
        SessionEvent::LeftOut { writer } => SyncEvent::LeftOut { peer, writer },
        SessionEvent::CaughtUp => SyncEvent::CaughtUp { peer },
        SessionEvent::Closed(reason) => return Told::Over(DownReason::Session(reason)),
    })
}

pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
