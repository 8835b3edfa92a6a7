//! Frames of pairing. The format is described at the module's root.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::short::PasswordKind;
use super::{MAX_NAME, MAX_WELCOME, MAX_WELCOME_ADDRS};
use crate::DevicePublic;
use crate::wire::{Blob, List};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) ed25519: [u8; 32],
    pub(crate) x25519: [u8; 32],
    pub(crate) name: String,
}

impl Introduction {
    pub(crate) fn new(device: &DevicePublic, name: &str) -> Self {
        Self {
            ed25519: device.ed25519,
            x25519: device.x25519,
            name: name.to_owned(),
        }
    }

    pub(crate) fn device(&self) -> DevicePublic {
        DevicePublic {
            ed25519: self.ed25519,
            x25519: self.x25519,
        }
    }

    pub(crate) fn name_fits(&self) -> bool {
        (1..=MAX_NAME).contains(&self.name.chars().count())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Addr {
    V4([u8; 4], u16),
    V6([u8; 16], u16),
}

impl From<SocketAddr> for Addr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => Self::V4(v4.ip().octets(), v4.port()),
            SocketAddr::V6(v6) => Self::V6(v6.ip().octets(), v6.port()),
        }
    }
}

impl From<Addr> for SocketAddr {
    fn from(addr: Addr) -> Self {
        match addr {
            Addr::V4(ip, port) => Self::new(ip.into(), port),
            Addr::V6(ip, port) => Self::new(ip.into(), port),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PairFrame {
    Open {
        code: PasswordKind,
        element: [u8; 32],
    },
    Answer {
        element: [u8; 32],
    },
    Prove {
        commit: [u8; 32],
        mac: [u8; 32],
    },
    Proof {
        mac: [u8; 32],
        nonce: [u8; 32],
        host: Introduction,
    },
    Reveal {
        nonce: [u8; 32],
        joiner: Introduction,
    },
    Offer {
        account: [u8; 32],
        record: Blob,
    },
    Cosign(Blob),
    Welcome {
        envelopes: List<Blob, MAX_WELCOME>,
        addrs: List<Addr, MAX_WELCOME_ADDRS>,
        port: u16,
    },
    Done,
    End(u8),
}

/// `End`: wrong or in use; on purpose one reason for both.
pub(crate) const END_REFUSED: u8 = 0;
/// `End`: a person said no, or went away.
pub(crate) const END_CANCELLED: u8 = 1;
/// `End`: a frame that is none, or not in its place.
pub(crate) const END_PROTOCOL: u8 = 2;
/// `End`: another version.
pub(crate) const END_VERSION: u8 = 3;

/// The frame by which a host turns away whom it does not even hear: the same
/// as for a wrong proof.
#[must_use]
pub fn refusal() -> Vec<u8> {
    crate::wire::encode(&PairFrame::End(END_REFUSED), super::MAX_FIRST_PAYLOAD).unwrap_or_default()
}

/// The frame that tells a joiner of version 1 so: there `End` has the tag 7.
#[must_use]
pub fn refusal_of_version_1() -> Vec<u8> {
    vec![2, 0, 0, 0, 7, END_VERSION]
}
