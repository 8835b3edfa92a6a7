//! What carries the frames of a pairing, whichever it is.

use std::net::SocketAddr;

use bailey_session::pair::Pairing;
use tokio::sync::mpsc;

use crate::io::Writer;

/// The writing end. Dropping it sends what was given, then ends the connection.
#[derive(Debug)]
pub(super) enum Line {
    /// A stream of QUIC.
    Direct(Writer),
    /// Pieces in a mailbox.
    Post(mpsc::Sender<Vec<u8>>),
}

impl Line {
    /// Room for one frame, if there is.
    pub(super) fn room(&self) -> Option<mpsc::Permit<'_, Vec<u8>>> {
        match self {
            Self::Direct(writer) => writer.room(),
            Self::Post(frames) => frames.try_reserve().ok(),
        }
    }

    /// Where the peer is, if the two reach each other.
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        match self {
            Self::Direct(writer) => {
                let remote = writer.connection().remote_address();
                Some(SocketAddr::new(remote.ip().to_canonical(), remote.port()))
            }
            Self::Post(_) => None,
        }
    }
}

/// Sends what a pairing has to say, as far as there is room.
pub(super) fn flush(pairing: &mut Pairing, line: &Line) {
    while let Some(room) = line.room() {
        let Some(frame) = pairing.poll_transmit() else {
            break;
        };
        room.send(frame);
    }
}
