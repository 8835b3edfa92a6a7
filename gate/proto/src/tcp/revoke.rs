//! TCP flows that a changed reach or network no longer grants.

use bailey_model::{EndReason, FlowId, Proto, Transport};

use super::{Stage, Tcp};
use crate::Now;
use crate::flow::Outlet;
use crate::flow_common::{Common, oldest_first};
use crate::tcp_live::Out;

impl Tcp {
    /// Resets every flow on both sides that the policy does not grant any more; how
    /// many there were. At whatever stage it is where the reach changed: else what is
    /// not established is refused, as its dial is ([`Self::judge_dials`]). One that
    /// came in was granted by its published port, which is no part of a reach.
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
            let live = matches!(flow.stage, Stage::Live(_));
            let stands = flow.came.is_some()
                || (!live && why != EndReason::ReachChanged)
                || common
                    .stands(Transport::Tcp, flow.ends.dst, &mut flow.basis)
                    .is_ok();
            if stands {
                continue;
            }
            ended += 1;
            if let Stage::Live(live) = &mut flow.stage {
                let mut wire = Out {
                    outlet: out,
                    scratch: &mut self.scratch,
                };
                live.reset(now, &mut wire);
                self.over(common, now, id, why, true);
            } else {
                self.answer(common, now, id, why, None, out);
            }
        }
        ended
    }

    /// Refuses every dial under way whose address turned out to be of another kind,
    /// rather than when it succeeds. What is established goes on.
    pub(crate) fn judge_dials(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) {
        let dialling =
            |flow: &super::Flow| matches!(&flow.stage, Stage::Parked(parked) if parked.dialling);
        let mut ids: Vec<FlowId> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.came.is_none() && dialling(flow))
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            if let Err((decision, why)) =
                common.stands(Transport::Tcp, flow.ends.dst, &mut flow.basis)
            {
                common.refuse(now, Proto::Tcp, flow.ends, decision, why);
                self.answer(common, now, id, EndReason::Refused, None, out);
            }
        }
    }
}
