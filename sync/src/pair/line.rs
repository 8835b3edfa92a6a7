//! What carries the frames of a pairing, whichever it is.

use std::net::SocketAddr;

use bailey_session::pair::Pairing;
use tokio::sync::mpsc;

use crate::io::{Room, Writer};

/// The writing end. Dropping it sends what was given, then ends the connection.
#[derive(Debug)]
pub(super) enum Line {
    /// A stream of QUIC.
    Direct(Writer),
    /// Pieces in a mailbox.
    Post(mpsc::Sender<Vec<u8>>),
}

/// Room for one frame on a line.
#[derive(Debug)]
pub(super) enum LineRoom<'a> {
    Direct(Room<'a>),
    Post(mpsc::Permit<'a, Vec<u8>>),
}

impl LineRoom<'_> {
    /// Gives the frame to the line.
    pub(super) fn send(self, frame: Vec<u8>) {
        match self {
            Self::Direct(room) => room.send(frame),
            Self::Post(room) => room.send(frame),
        }
    }
}

impl Line {
    /// Room for one frame, if there is.
    pub(super) fn room(&self) -> Option<LineRoom<'_>> {
        match self {
            Self::Direct(writer) => writer.room().map(LineRoom::Direct),
            Self::Post(frames) => frames.try_reserve().ok().map(LineRoom::Post),
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
