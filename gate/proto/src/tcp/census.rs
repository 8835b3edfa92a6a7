//! What the table of TCP flows holds.

use super::Tcp;
use crate::gate::census::Census;

impl Tcp {
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
