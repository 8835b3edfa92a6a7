//! What both sides have of one chain, and what is done about it.

use core::time::Duration;

use super::IngestFailure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing to do.
    Quiet,
    /// The peer has more than we do; the number is its place in the queue.
    Ready(u64),
    /// Asked for.
    Wanted {
        from: u64,
        max_bytes: u32,
        at: Duration,
    },
    /// With the store, which has not said yet of `left` envelopes.
    Ingesting {
        from: u64,
        max_bytes: u32,
        left: usize,
        worst: Option<IngestFailure>,
    },
    /// Asked for again after this.
    Waiting(Duration),
    /// Not asked for in this session.
    Blocked,
}

#[derive(Debug)]
pub(super) struct State {
    /// Ours: how far, and its hash where known.
    pub(super) have: Option<u64>,
    pub(super) hash: Option<[u8; 32]>,
    /// The peer's word.
    pub(super) peer: Option<(u64, [u8; 32])>,
    /// The peer could not give what is up to here.
    pub(super) barren: Option<u64>,
    pub(super) phase: Phase,
    /// Gaps in a row.
    pub(super) gaps: u32,
    pub(super) forked: bool,
    /// Number of the peer's envelope that differs from ours, until it was asked for:
    /// with ours it is proof against its writer.
    pub(super) proof: Option<u64>,
    /// The peer is not told that we have the chain up to here.
    pub(super) silent: Option<u64>,
    /// It is one of those that we tell.
    pub(super) shared: bool,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            have: None,
            hash: None,
            peer: None,
            barren: None,
            phase: Phase::Quiet,
            gaps: 0,
            forked: false,
            proof: None,
            silent: None,
            shared: false,
        }
    }

    pub(super) fn next(&self) -> u64 {
        self.have.map_or(1, |have| have.saturating_add(1))
    }

    pub(super) fn behind(&self) -> bool {
        let Some((peer, _)) = self.peer else {
            return false;
        };
        self.have.is_none_or(|have| peer > have) && self.barren.is_none_or(|barren| peer > barren)
    }

    /// Whether something is to be asked for.
    pub(super) fn wants(&self) -> bool {
        self.proof.is_some() || (self.behind() && !self.forked)
    }

    pub(super) fn to_tell(&self) -> bool {
        match (self.have, self.hash) {
            (Some(have), Some(_)) => {
                self.silent.is_none_or(|silent| have > silent)
                    && self.peer.is_none_or(|(peer, _)| have > peer)
            }
            _ => false,
        }
    }
}
