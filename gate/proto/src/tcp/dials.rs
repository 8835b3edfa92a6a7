//! Dials under way, so that one which nobody answers makes room for a further one.

use std::collections::VecDeque;

use bailey_model::{EndReason, FlowId};

use super::{Parked, Stage, Tcp};
use crate::Now;
use crate::flow::{MAX_PENDING_TCP, Outlet, PATIENT_DIAL};
use crate::flow_common::Common;

/// Dials in the order in which they began, those that are over among them.
#[derive(Debug, Default)]
pub(super) struct Dials(VecDeque<(Now, FlowId)>);

impl Dials {
    pub(super) fn push(&mut self, now: Now, id: FlowId) {
        // As long as there is something under way, the oldest of it is near the
        // front: what lies there longer is over.
        while self.0.len() >= 2 * MAX_PENDING_TCP {
            self.0.pop_front();
        }
        self.0.push_back((now, id));
    }
}

impl Tcp {
    /// Ends the dial that has waited longest, if that was long enough: most far
    /// ends that answer at all do so at once, and a box that dials a silent network
    /// must still reach a live one.
    pub(super) fn let_go_of_oldest_dial(
        &mut self,
        common: &mut Common,
        now: Now,
        out: &mut dyn Outlet,
    ) {
        while let Some(&(since, id)) = self.dials.0.front() {
            let waits = self.flows.get(&id).is_some_and(|flow| {
                matches!(flow.stage, Stage::Parked(Parked { dialling: true, .. }))
            });
            if waits && now.saturating_sub(since) < PATIENT_DIAL {
                return;
            }
            self.dials.0.pop_front();
            if waits {
                return self.answer(common, now, id, EndReason::Evicted, None, out);
            }
        }
    }
}
