//! What a world is asked to be.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::WorldError;

/// The uid and gid a world runs as when its caller is root: one without an
/// entry in any user database, as a reminder that none is needed.
pub const ORDINARY_UID: u32 = 54321;

/// Most nodes in one world: their addresses end in 11 to 73.
pub(crate) const MAX_NODES: u8 = 63;

/// What a world is asked to be.
#[derive(Debug, Clone)]
pub struct WorldSpec {
    /// A program and its first arguments that end up in [`crate::serve`] with
    /// the arguments which a world appends. Absolute path.
    pub server: Vec<OsString>,
    /// How many nodes: `n1` to `nN`.
    pub nodes: u8,
    /// Whether `/dev/net/tun` must be usable; a world without gated boxes does
    /// not need it.
    pub tun: bool,
    /// Whether the nodes' users may make ping sockets (icmp(7)), as most systems
    /// let them; a new network lets nobody.
    pub ping: bool,
    /// Where the world's own folder is made; it must lie outside `/run` and
    /// every user must be able to pass through it. The default is `/tmp`.
    pub parent: PathBuf,
}

impl WorldSpec {
    /// A world with this many nodes and everything else as usual.
    #[must_use]
    pub fn new(server: Vec<OsString>, nodes: u8) -> Self {
        Self {
            server,
            nodes,
            tun: true,
            ping: true,
            parent: PathBuf::from("/tmp"),
        }
    }

    /// Says what cannot be built.
    pub(crate) fn check(&self) -> Result<(), WorldError> {
        let Some(program) = self.server.first() else {
            return Err(WorldError::Spec("no server program is named".to_owned()));
        };
        if !PathBuf::from(program).is_absolute() {
            return Err(WorldError::Spec(
                "the server program must be an absolute path".to_owned(),
            ));
        }
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return Err(WorldError::Spec(format!(
                "1 to {MAX_NODES} nodes, not {}",
                self.nodes
            )));
        }
        if self.parent.starts_with("/run") || self.parent.starts_with("/var/run") {
            return Err(WorldError::Spec(
                "/run is not visible inside a world".to_owned(),
            ));
        }
        Ok(())
    }
}
