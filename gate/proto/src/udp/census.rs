//! What the table of UDP flows holds.

use super::Udp;
use crate::flow_progress::Counted;
use crate::gate::census::Census;

impl Udp {
    /// Every flow, as far as it has come.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        self.flows.iter().map(|(id, flow)| Counted {
            flow: *id,
            opened: flow.opened,
            bytes_out: flow.bytes_out,
            bytes_in: flow.bytes_in,
        })
    }

    pub(crate) fn count(&self, census: &mut Census) {
        census.udp = self.flows.len();
        census.udp_ports = self.ports.len().max(self.by_src.len());
        census.udp_pending = self.waiters.flows();
        census.udp_waiting = self.waiters.bytes();
        census.udp_peeked = self.peeked_bytes;
        census.deadlines += self.timers.len();
    }
}
