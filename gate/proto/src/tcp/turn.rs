//! A flow's turn: its beginning is judged before it goes out, then bytes move
//! both ways.

use bailey_model::{EndReason, FlowId, Proto, Transport};

use super::{Flow, Stage, Tcp};
use crate::Now;
use crate::flow::{HostStream, Outlet};
use crate::flow_common::Common;
use crate::flow_name::Spoke;
use crate::peek::Spoken;
use crate::tcp_live::{Out, Turn};

impl Tcp {
    /// A flow's turn.
    pub(crate) fn turn(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        host: &mut dyn HostStream,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Stage::Live(live) = &mut flow.stage else {
            return;
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if let Some(spoken) = live.peek() {
            let spoke = Spoke {
                flow: id,
                over: Transport::Tcp,
                dst: flow.ends.dst,
                host: flow.basis.host.as_ref(),
            };
            if let Err((decision, why)) = common.judge_name(spoke, &spoken) {
                live.reset(now, &mut wire);
                common.refuse(now, Proto::Tcp, flow.ends, decision, why);
                return self.over(common, now, id, EndReason::Refused, true);
            }
            common.tell_name(spoke, spoken.clone());
            flow.basis.said.add(&spoken);
        }
        match live.turn(now, host, &mut wire) {
            Turn::Going { due, again } => {
                self.timers.set(id, &mut flow.alarm, due);
                if again {
                    self.touch(id);
                }
            }
            Turn::Over { end, reset } => self.over(common, now, id, end, reset),
        }
    }
}

impl Flow {
    /// Tells of a flow that carried something to the box, and ends before the
    /// box said what for.
    pub(super) fn tell_unsaid(&self, common: &mut Common, id: FlowId) {
        let Stage::Live(live) = &self.stage else {
            return;
        };
        if live.peeks() && live.bytes_in + live.bytes_out > 0 {
            let spoke = Spoke {
                flow: id,
                over: Transport::Tcp,
                dst: self.ends.dst,
                host: self.basis.host.as_ref(),
            };
            common.tell_name(spoke, Spoken::Other);
        }
    }
}
