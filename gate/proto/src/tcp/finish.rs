//! Streams of a box that has ended by itself.

use bailey_model::{EndReason, FlowId};

use super::{Flow, Stage, Tcp};
use crate::Now;
use crate::flow_common::{Common, oldest_first};

impl Tcp {
    /// Whether nothing of the box's is left to go on. What is only dialled has said
    /// nothing.
    pub(crate) fn all_delivered(&mut self) -> bool {
        self.flows.values_mut().all(|flow| match &mut flow.stage {
            Stage::Live(live) => live.is_half_open() || live.is_delivered(),
            Stage::Parked(_) | Stage::Entering(_) => true,
        })
    }

    /// Closes what is delivered: the node's kernel carries it to its end.
    pub(crate) fn close_delivered(&mut self, common: &mut Common, now: Now) {
        let delivered = |flow: &mut Flow| match &mut flow.stage {
            Stage::Live(live) => !live.is_half_open() && live.is_delivered(),
            Stage::Parked(_) | Stage::Entering(_) => false,
        };
        let ids: Vec<FlowId> = oldest_first(&self.flows);
        for id in ids {
            if self.flows.get_mut(&id).is_some_and(delivered) {
                self.over(common, now, id, EndReason::Closed, false);
            }
        }
    }
}
