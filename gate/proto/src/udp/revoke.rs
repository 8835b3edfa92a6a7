//! UDP flows that a changed reach or network no longer grants.

use bailey_model::{EndReason, Transport};

use super::Udp;
use crate::Now;
use crate::flow::Outlet;
use crate::flow_common::{Common, oldest_first};
use crate::packet::{Unreachable, write_udp};

impl Udp {
    /// Ends every flow that the policy does not grant any more, and says to the
    /// box that its far end cannot be reached; how many there were. What waits for its
    /// entry is refused when that stands, unless the reach changed.
    pub(crate) fn revoke(
        &mut self,
        common: &mut Common,
        now: Now,
        why: EndReason,
        out: &mut dyn Outlet,
    ) -> usize {
        let mut ended = 0;
        for id in oldest_first(&self.flows) {
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            let ends = flow.ends;
            let waits = flow.waiting.is_some() && why != EndReason::ReachChanged;
            if waits
                || common
                    .stands(Transport::Udp, ends.dst, &mut flow.basis)
                    .is_ok()
            {
                continue;
            }
            ended += 1;
            // The kernel finds the box's socket by the ports that are quoted.
            let mut about = Vec::new();
            if write_udp(&mut about, ends.src, ends.dst, &[]) {
                common.unreachable(ends, Unreachable::Port, &about, out);
            }
            self.over(common, now, id, why);
        }
        ended
    }
}
