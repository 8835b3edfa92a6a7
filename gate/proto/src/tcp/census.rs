//! What the table of TCP flows holds.

use super::{Stage, Tcp};
use crate::flow_progress::Counted;
use crate::gate::census::Census;

impl Tcp {
    /// Every flow, as far as it has come.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        self.flows.iter().map(|(id, flow)| {
            let (bytes_out, bytes_in) = match &flow.stage {
                Stage::Live(live) => (live.bytes_out, live.bytes_in),
                Stage::Parked(_) | Stage::Entering(_) => (0, 0),
            };
            Counted {
                flow: *id,
                opened: flow.opened,
                bytes_out,
                bytes_in,
            }
        })
    }

    pub(crate) fn count(&self, census: &mut Census) {
        census.tcp = self.flows.len();
        census.tcp_ends = self.by_ends.len();
        census.tcp_pending = self.pending;
        census.tcp_inbound = self.inbound.flows();
        census.touched = self.touched.len();
        census.engines = self.engines.used();
        census.tombstones = self.tombstones.len();
        census.deadlines += self.timers.len();
    }
}
