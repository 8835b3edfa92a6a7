//! What the table of UDP flows holds.

use super::Udp;
use crate::gate::census::Census;

impl Udp {
    pub(crate) fn count(&self, census: &mut Census) {
        census.udp = self.flows.len();
        census.udp_ports = self.ports.len().max(self.by_src.len());
        census.udp_pending = self.waiters.flows();
        census.udp_waiting = self.waiters.bytes();
        census.udp_peeked = self.peeked_bytes;
        census.deadlines += self.timers.len();
    }
}
