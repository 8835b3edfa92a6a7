//! What a running box may dial becomes something else.

use bailey_model::{EndReason, Reach};

use super::Gate;
use crate::Now;
use crate::explain::{Explain, Explained, explain};
use crate::flow::Outlet;
use crate::flow_common::Common;

impl Gate {
    /// Swaps the reach, all of it at once: whatever is decided after this call is
    /// decided by the new one. Flows that it no longer grants are reset on both
    /// sides, once the actions are done, and end with
    /// [`ReachChanged`](bailey_model::EndReason::ReachChanged); dials under way are
    /// cancelled, and questions for names that are out of reach now are answered
    /// as such. The number of flows that ended.
    pub fn set_reach(&mut self, now: Now, reach: Reach, out: &mut dyn Outlet) -> u32 {
        let common = &mut self.common;
        if common.policy.reach == reach {
            return 0;
        }
        common.policy.reach = reach;
        common.policy.generation += 1;
        let flows = self.revoke(now, EndReason::ReachChanged, out);
        let common = &mut self.common;
        self.door.dns().handle_reach(now, &common.policy);
        self.door.flush(common, now, out);
        u32::try_from(flows).unwrap_or(u32::MAX)
    }

    /// Ends for that reason every flow that the policy does not grant any more; how
    /// many there were.
    pub(super) fn revoke(&mut self, now: Now, why: EndReason, out: &mut dyn Outlet) -> usize {
        let common = &mut self.common;
        self.tcp.revoke(common, now, why, out)
            + self.udp.revoke(common, now, why, out)
            + self.echoes.revoke(common, now, why, out)
    }

    /// What would be decided for a dial, by the reach of now and by what the box
    /// was given. Nothing is dialled, asked or entered.
    pub fn explain(&mut self, now: Now, question: &Explain) -> Explained {
        let Common { policy, names, .. } = &self.common;
        explain(now, policy, names, self.door.dns().search(), question)
    }
}
