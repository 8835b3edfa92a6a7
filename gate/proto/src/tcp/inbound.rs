//! Flows that came in by a published port: entered first, then dialled into
//! the box, each from a port of the gate's own address on the link.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bailey_model::link::{BOX_V4, BOX_V6, GATE_V4, GATE_V6};
use bailey_model::{EndReason, FlowId, Publish, Refusal};

use super::{Flow, Stage, Tcp};
use crate::Now;
use crate::flow::{ENTRY_TIMEOUT, KNOCK_TIMEOUT, MAX_INBOUND_TCP, MAX_TCP_FLOWS, Outlet};
use crate::flow_common::{Basis, Came, Common, Ends, Waits};
use crate::flow_timer::Alarm;
use crate::tcp_live::{Knock, Live, Out, Said};

/// Lowest port that the gate dials from; those below are for services.
const FIRST_PORT: u16 = 1024;
/// How often one dial starts over where its ends were in use before.
const AGAIN: u8 = 3;

/// What the flows that came in share.
#[derive(Debug)]
pub(super) struct Inbound {
    flows: usize,
    next_port: u16,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            flows: 0,
            next_port: FIRST_PORT,
        }
    }
}

impl Inbound {
    pub(super) fn flows(&self) -> usize {
        self.flows
    }

    /// One of them is over.
    pub(super) fn left(&mut self) {
        self.flows = self.flows.saturating_sub(1);
    }

    fn port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        port
    }
}

/// The ends of a dial into the box, in the order in which they are tried: a
/// program may listen on all addresses, on its own loopback, or on IPv6 only.
fn doors(box_port: u16, port: u16) -> [Ends; 3] {
    let ends = |inner: IpAddr, gate: IpAddr| Ends {
        src: SocketAddr::new(inner, box_port),
        dst: SocketAddr::new(gate, port),
    };
    [
        ends(BOX_V4.into(), GATE_V4.into()),
        ends(Ipv4Addr::LOCALHOST.into(), GATE_V4.into()),
        ends(BOX_V6.into(), GATE_V6.into()),
    ]
}

impl Tcp {
    /// Somebody came by a published port: the flow that waits for its entry.
    /// `None` turns them away.
    pub(crate) fn accepted(
        &mut self,
        common: &mut Common,
        now: Now,
        publish: Publish,
        client: SocketAddr,
    ) -> Option<FlowId> {
        let came = Came { publish, client };
        let full = self.inbound.flows >= MAX_INBOUND_TCP || self.flows.len() >= MAX_TCP_FLOWS;
        let why = common.closed().or(full.then_some(Refusal::Limit));
        let ends = match why {
            None => self.free_ends(now, publish.box_port),
            Some(_) => None,
        };
        let Some(ends) = ends else {
            common.refuse_inbound(now, came, why.unwrap_or(Refusal::Limit));
            return None;
        };
        let (id, ticket) = common.open_inbound(now, came, ends, Waits::Tcp);
        let mut alarm = Alarm::default();
        self.timers.set(id, &mut alarm, Some(now + ENTRY_TIMEOUT));
        let basis = Basis::new(None, &common.policy);
        let flow = Flow {
            ends,
            opened: now,
            basis,
            alarm,
            outer_src: Some(client),
            came: Some(came),
            stage: Stage::Entering(ticket),
        };
        self.flows.insert(id, flow);
        self.by_ends.insert(ends, id);
        self.inbound.flows += 1;
        Some(id)
    }

    /// A port of the gate's from which every door of the box can be dialled.
    fn free_ends(&mut self, now: Now, box_port: u16) -> Option<Ends> {
        for _ in FIRST_PORT..=u16::MAX {
            let doors = doors(box_port, self.inbound.port());
            let used =
                |ends: &Ends| self.by_ends.contains_key(ends) || self.tombstones.stands(now, *ends);
            if !doors.iter().any(used) {
                return doors.first().copied();
            }
        }
        None
    }

    /// The entry of one who came in stands: dial into the box.
    pub(super) fn knock(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let mut engine = self.engines.for_flow(now, common.random(), out.finishes());
        let knock = Knock {
            from: flow.ends.dst,
            to: flow.ends.src,
            again: AGAIN,
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if engine.dial(now, knock, &mut wire) {
            let live = Live::new(engine, now + KNOCK_TIMEOUT, Some(knock), Said::default());
            flow.stage = Stage::Live(Box::new(live));
            self.touch(id);
        } else {
            self.engines.give_back(engine);
            self.over(common, now, id, EndReason::DialUnreachable, true);
        }
    }

    /// Nobody listens at the door that was tried: the next one, or whoever came
    /// is refused.
    pub(super) fn not_listening(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let doors = doors(flow.ends.src.port(), flow.ends.dst.port());
        let tried = doors.iter().position(|ends| *ends == flow.ends);
        let next = tried.and_then(|at| doors.get(at + 1)).copied();
        let (Some(next), Stage::Live(live)) = (next, &mut flow.stage) else {
            return self.over(common, now, id, EndReason::DialRefused, true);
        };
        self.by_ends.remove(&flow.ends);
        self.by_ends.insert(next, id);
        flow.ends = next;
        let knock = Knock {
            from: next.dst,
            to: next.src,
            again: AGAIN,
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if live.knock_at(now, knock, &mut wire) {
            self.touch(id);
        } else {
            self.over(common, now, id, EndReason::DialUnreachable, true);
        }
    }

    /// The shell could not keep the socket of one who came in.
    pub(super) fn unkept(&mut self, common: &mut Common, now: Now, id: FlowId) {
        if let Some(came) = self.flows.get(&id).and_then(|flow| flow.came) {
            common.refuse_inbound(now, came, Refusal::Limit);
        }
        self.over(common, now, id, EndReason::Evicted, true);
    }

    /// The entry of one who came in cannot be written: nothing goes in.
    pub(super) fn turned_away(&mut self, common: &mut Common, now: Now, id: FlowId) {
        let Some(flow) = self.remove(id) else { return };
        if let Some(came) = flow.came {
            common.refuse_inbound(now, came, Refusal::StoreUnavailable);
        }
        // No entry stands, so none is ended.
        common.actions.push_back(crate::flow::Action::Close {
            flow: id,
            reset: true,
        });
    }
}
