//! TLS 1.3 over bytes that something else carries: the handshake of a pairing that goes
//! through a mailbox. Keys, protocol name and exporter are those of the one over QUIC.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use bailey_session::pair::EXPORTER_LABEL;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::ALPN_PAIR;
use crate::tls::{Identity, SERVER_NAME, TlsError, Trust, only_key};

/// Bytes that are read or written at once.
const PIECE: usize = 16 * 1024;

/// One end.
pub(super) struct Memory(Connection);

/// What a handshake proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proved {
    /// The peer's Ed25519 key.
    pub(super) key: [u8; 32],
    /// Binds what follows to this connection (RFC 8446 §7.5).
    pub(super) exporter: [u8; 32],
}

/// The peer, or whoever is between, did not keep to TLS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what came is no TLS of a pairing")]
pub(super) struct Broken;

impl Memory {
    /// The joining side, which begins.
    pub(super) fn joiner(identity: &Identity) -> Result<Self, TlsError> {
        let config = identity.client_tls(Trust::Anyone, &[ALPN_PAIR])?;
        let name = ServerName::try_from(SERVER_NAME).map_err(|_| TlsError::Key)?;
        let client = ClientConnection::new(Arc::new(config), name)?;
        Ok(Self(client.into()))
    }

    /// The host's side.
    pub(super) fn host(identity: &Identity) -> Result<Self, TlsError> {
        let config = identity.server_tls(Trust::Anyone, &[ALPN_PAIR])?;
        Ok(Self(ServerConnection::new(Arc::new(config))?.into()))
    }

    /// Bytes of the peer, in order; what was sealed in them.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            let read = self.0.read_tls(&mut bytes).map_err(|_| Broken)?;
            self.0.process_new_packets().map_err(|_| Broken)?;
            self.drain(&mut plain)?;
            // The peer has said that nothing more comes.
            if read == 0 {
                break;
            }
        }
        Ok(plain)
    }

    fn drain(&mut self, plain: &mut Vec<u8>) -> Result<(), Broken> {
        let mut piece = [0; PIECE];
        loop {
            match self.0.reader().read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(length) => plain.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Broken),
            }
        }
    }

    /// What the handshake proved, once it is over; an error where it agreed on another
    /// protocol.
    pub(super) fn proved(&self) -> Option<Result<Proved, Broken>> {
        if self.0.is_handshaking() {
            return None;
        }
        let agreed = self.0.alpn_protocol() == Some(ALPN_PAIR);
        let key = self.0.peer_certificates().and_then(only_key);
        let exporter = self
            .0
            .export_keying_material([0; 32], EXPORTER_LABEL, Some(b""));
        Some(match (key, exporter) {
            (Some(key), Ok(exporter)) if agreed => Ok(Proved { key, exporter }),
            _ => Err(Broken),
        })
    }

    /// Seals a frame; gives the bytes to send, and whatever else is to be sent.
    pub(super) fn write(&mut self, frame: &[u8]) -> Result<Vec<u8>, Broken> {
        let mut sealed = Vec::new();
        for piece in frame.chunks(PIECE) {
            self.0.writer().write_all(piece).map_err(|_| Broken)?;
            self.take(&mut sealed)?;
        }
        self.take(&mut sealed)?;
        Ok(sealed)
    }

    fn take(&mut self, sealed: &mut Vec<u8>) -> Result<(), Broken> {
        while self.0.wants_write() {
            self.0.write_tls(sealed).map_err(|_| Broken)?;
        }
        Ok(())
    }
}
