//! TCP flows: decided at the SYN, parked until the dial succeeded, then a live
//! flow of their own.

use bailey_model::{EndReason, FlowId, Proto, Refusal, Transport, Verdict};
use smoltcp::wire::IpListenEndpoint;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::Now;
use crate::flow::{
    Action, DIAL_TIMEOUT, DialFault, Dialled, ENTRY_TIMEOUT, HANDSHAKE_TIMEOUT, MAX_PENDING_TCP,
    MAX_TCP_FLOWS, Outlet,
};
use crate::flow_common::{Basis, Came, Common, End, Ends, Waits, oldest_first};
use crate::flow_timer::{Alarm, Timed, Timers};
use crate::packet::{Ip, Segment, Unreachable, flag, segment};
use crate::tcp_live::{Engines, Live, Out, Said, Turn};

mod census;
mod dials;
mod finish;
mod inbound;
mod parked;
mod revoke;
mod tombstones;
mod turn;

use parked::Parked;
use tombstones::Tombstones;

#[derive(Debug)]
struct Flow {
    ends: Ends,
    opened: Now,
    basis: Basis,
    alarm: Alarm,
    outer_src: Option<SocketAddr>,
    /// Who came in, and by which port, if the box did not begin it.
    came: Option<Came>,
    stage: Stage,
}

impl Timed for Flow {
    fn alarm(&mut self) -> &mut Alarm {
        &mut self.alarm
    }
}

#[derive(Debug)]
enum Stage {
    Parked(Parked),
    /// It came in, and waits for the entry of this ticket.
    Entering(u64),
    Live(Box<Live>),
}

/// Whether a packet may be the answer of a program that listens on the box's
/// own loopback to one who came in. Nothing begins from there.
pub(crate) fn is_answer_of_loopback(ip: &Ip<'_>) -> bool {
    let opens = segment(ip.payload).is_none_or(Segment::opens);
    ip.src == IpAddr::V4(Ipv4Addr::LOCALHOST) && !opens
}

#[derive(Debug)]
pub(crate) struct Tcp {
    dials: dials::Dials,
    by_ends: HashMap<Ends, FlowId>,
    flows: HashMap<FlowId, Flow>,
    pending: usize,
    engines: Engines,
    timers: Timers<FlowId>,
    touched: VecDeque<FlowId>,
    is_touched: HashSet<FlowId>,
    tombstones: Tombstones,
    inbound: inbound::Inbound,
    scratch: Vec<u8>,
}

impl Tcp {
    pub(crate) fn new() -> Self {
        Self {
            by_ends: HashMap::new(),
            flows: HashMap::new(),
            pending: 0,
            engines: Engines::new(),
            timers: Timers::new(),
            touched: VecDeque::new(),
            is_touched: HashSet::new(),
            tombstones: Tombstones::default(),
            dials: dials::Dials::default(),
            inbound: inbound::Inbound::default(),
            scratch: crate::tcp_live::scratch(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// A segment from the box.
    pub(crate) fn handle(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some(seg) = segment(ip.payload) else {
            return;
        };
        let ends = Ends {
            src: SocketAddr::new(ip.src, seg.src_port),
            dst: SocketAddr::new(ip.dst, seg.dst_port),
        };
        let Some(&id) = self.by_ends.get(&ends) else {
            return self.unknown(common, now, ip, ends, seg, out);
        };
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let pending = flow.is_pending();
        match &mut flow.stage {
            Stage::Live(live) => {
                let mut wire = Out {
                    outlet: out,
                    scratch: &mut self.scratch,
                };
                if seg.opens() && !live.is_half_open() {
                    return live.challenge(now, ends, &mut common.reply, &mut wire);
                }
                let turn = live.ingress(now, ip.whole, seg, &mut wire);
                self.pending -= usize::from(pending && !flow.is_pending());
                match turn {
                    Some(Turn::Over {
                        end: EndReason::DialRefused,
                        ..
                    }) => self.not_listening(common, now, id, out),
                    Some(Turn::Over { end, reset }) => self.over(common, now, id, end, reset),
                    _ => self.touch(id),
                }
            }
            // Nothing of it has gone into the box yet.
            Stage::Entering(_) => common.reset(ends, seg, out),
            Stage::Parked(parked) => {
                if seg.has(flag::RST) {
                    self.over(common, now, id, EndReason::ResetByBox, true);
                } else if seg.opens() {
                    if seg.seq == parked.segment.seq {
                        parked.gap = parked.gap.max(now.saturating_sub(parked.last));
                    } else {
                        // The box dials anew from the same port.
                        (parked.packet, parked.segment) = (ip.whole.to_vec(), seg);
                        parked.gap = Now::ZERO;
                    }
                    parked.last = now;
                    let due = parked.due();
                    self.timers.set(id, &mut flow.alarm, Some(due));
                }
            }
        }
    }

    /// A segment of no flow: a SYN is decided, anything else is answered as a
    /// closed port does.
    fn unknown(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        ends: Ends,
        seg: Segment,
        out: &mut dyn Outlet,
    ) {
        if seg.opens() {
            self.tombstones.remove(ends);
            if let Err(refusal) = self.opens(common, now, ip, ends, seg, out) {
                common.reset(ends, seg, out);
                if let Some((decision, why)) = refusal {
                    common.refuse(now, Proto::Tcp, ends, decision, why);
                }
            }
        } else if self.tombstones.stands(now, ends) {
            if seg.has(flag::FIN) {
                common.acknowledge(ends, seg, out);
            }
        } else {
            common.reset(ends, seg, out);
        }
    }

    fn opens(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        ends: Ends,
        seg: Segment,
        out: &mut dyn Outlet,
    ) -> Result<(), Option<(crate::policy::Decision, Refusal)>> {
        let decision = common.decide(now, Transport::Tcp, ends.dst);
        let granted = match &decision.verdict {
            Verdict::Refuse(refusal) => {
                let why = common.closed().filter(|why| *why == Refusal::BoxStopping);
                let why = why.unwrap_or(*refusal);
                return Err(Some((decision, why)));
            }
            Verdict::Allow(granted) => granted.clone(),
        };
        if self.pending >= MAX_PENDING_TCP {
            self.let_go_of_oldest_dial(common, now, out);
        }
        let full = self.flows.len() >= MAX_TCP_FLOWS || self.pending >= MAX_PENDING_TCP;
        let why = common.closed().or(full.then_some(Refusal::Limit));
        // What begins and ends in one segment is no dial of any kernel.
        let odd = ends.dst.port() == 0 || ends.src.port() == 0 || seg.has(flag::FIN);
        let why = why.or(odd.then_some(Refusal::Protocol));
        if let Some(why) = why {
            return Err(Some((decision, why)));
        }
        let basis = Basis::new(decision.host.clone(), &common.policy);
        let (id, ticket) = common.open(now, Proto::Tcp, ends, decision, granted, Waits::Tcp);
        let parked = Parked {
            packet: ip.whole.to_vec(),
            segment: seg,
            dialling: false,
            ticket,
            until: now + ENTRY_TIMEOUT,
            last: now,
            gap: Now::ZERO,
        };
        let mut alarm = Alarm::default();
        self.timers.set(id, &mut alarm, Some(parked.due()));
        let stage = Stage::Parked(parked);
        self.flows.insert(
            id,
            Flow {
                ends,
                opened: now,
                basis,
                alarm,
                outer_src: None,
                came: None,
                stage,
            },
        );
        self.by_ends.insert(ends, id);
        self.pending += 1;
        Ok(())
    }

    /// The entry stands: dial.
    pub(crate) fn committed(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if matches!(flow.stage, Stage::Entering(_)) {
            return self.knock(common, now, id, out);
        }
        if let Err((decision, why)) = common.stands(Transport::Tcp, flow.ends.dst, &mut flow.basis)
        {
            common.refuse(now, Proto::Tcp, flow.ends, decision, why);
            return self.answer(common, now, id, EndReason::Refused, None, out);
        }
        let Stage::Parked(parked) = &mut flow.stage else {
            return;
        };
        parked.dialling = true;
        parked.until = now + DIAL_TIMEOUT;
        let due = parked.due();
        self.timers.set(id, &mut flow.alarm, Some(due));
        self.dials.push(now, id);
        common.actions.push_back(Action::Dial {
            flow: id,
            dst: crate::host_end::outer(flow.ends.dst),
        });
    }

    /// The entry cannot be written: nothing goes out.
    pub(crate) fn refused(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        if matches!(flow.stage, Stage::Entering(_)) {
            return self.turned_away(common, now, id);
        }
        let Stage::Parked(parked) = &flow.stage else {
            return;
        };
        common.reset(flow.ends, parked.segment, out);
        common.refuse_now(now, Transport::Tcp, flow.ends, Refusal::StoreUnavailable);
        // No entry stands, so none is ended.
        self.remove(id);
    }

    /// What came of a dial.
    pub(crate) fn dialled(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        outcome: Result<Dialled, DialFault>,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if matches!(flow.stage, Stage::Entering(_)) {
            return self.unkept(common, now, id);
        }
        if !matches!(flow.stage, Stage::Parked(Parked { dialling: true, .. })) {
            return;
        }
        let dialled = match outcome {
            Ok(dialled) => dialled,
            Err(fault) => return self.dial_failed(common, now, id, fault, out),
        };
        flow.outer_src = Some(dialled.local);
        // A dial of a port from that very port meets itself, and whoever dialled
        // would talk to itself as if to a server.
        let met_itself = dialled.local == dialled.peer;
        let mut judged = common.stands(Transport::Tcp, flow.ends.dst, &mut flow.basis);
        if met_itself {
            let decision = common.decide(now, Transport::Tcp, flow.ends.dst);
            judged = Err((decision, Refusal::SelfConnect));
        }
        if let Err((decision, why)) = judged {
            common.refuse(now, Proto::Tcp, flow.ends, decision, why);
            return self.answer(common, now, id, EndReason::Refused, None, out);
        }
        self.start(common, now, id, out);
    }

    /// Feeds the parked SYN to an engine of the flow's own.
    fn start(&mut self, common: &mut Common, now: Now, id: FlowId, out: &mut dyn Outlet) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Stage::Parked(parked) = &flow.stage else {
            return;
        };
        let mut engine = self.engines.for_flow(now, common.random(), out.finishes());
        let at = IpListenEndpoint {
            addr: Some(flow.ends.dst.ip().into()),
            port: flow.ends.dst.port(),
        };
        let mut wire = Out {
            outlet: out,
            scratch: &mut self.scratch,
        };
        if engine.open(now, at, &parked.packet, &mut wire) {
            let said = Said::of(parked.segment, &parked.packet);
            let live = Live::new(engine, now + HANDSHAKE_TIMEOUT, None, said);
            flow.stage = Stage::Live(Box::new(live));
            self.touch(id);
        } else {
            self.engines.give_back(engine);
            self.answer(common, now, id, EndReason::ResetByBox, None, out);
        }
    }

    fn dial_failed(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        fault: DialFault,
        out: &mut dyn Outlet,
    ) {
        let (end, icmp) = match fault {
            DialFault::Refused => (EndReason::DialRefused, None),
            // Nobody refused it: silence is told as a host that is not reached.
            DialFault::TimedOut => (EndReason::DialTimeout, Some(Unreachable::Host)),
            DialFault::NetworkUnreachable => {
                (EndReason::DialUnreachable, Some(Unreachable::Network))
            }
            DialFault::HostUnreachable => (EndReason::DialUnreachable, Some(Unreachable::Host)),
            DialFault::NoSocket => {
                if let Some(flow) = self.flows.get(&id) {
                    common.refuse_now(now, Transport::Tcp, flow.ends, Refusal::Limit);
                }
                (EndReason::Evicted, None)
            }
        };
        self.answer(common, now, id, end, icmp, out);
    }

    /// Ends a parked flow with a reset to the box, or an ICMP error.
    fn answer(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        end: EndReason,
        icmp: Option<Unreachable>,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        if let Stage::Parked(parked) = &flow.stage {
            match icmp {
                Some(why) => common.unreachable(flow.ends, why, &parked.packet, out),
                None => common.reset(flow.ends, parked.segment, out),
            }
        }
        self.over(common, now, id, end, true);
    }

    /// A flow's socket outside can be read or written.
    pub(crate) fn ready(&mut self, id: FlowId, readable: bool, writable: bool) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let Stage::Live(live) = &mut flow.stage else {
            return;
        };
        live.ready(readable, writable);
        self.touch(id);
    }

    fn touch(&mut self, id: FlowId) {
        if self.is_touched.insert(id) {
            self.touched.push_back(id);
        }
    }

    /// Whether some flow waits for its turn.
    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The next flow whose turn it is.
    pub(crate) fn next_touched(&mut self) -> Option<FlowId> {
        loop {
            let id = self.touched.pop_front()?;
            self.is_touched.remove(&id);
            if matches!(
                self.flows.get(&id),
                Some(Flow {
                    stage: Stage::Live(_),
                    ..
                })
            ) {
                return Some(id);
            }
        }
    }

    /// Ends a flow whose entry stands: its end is told, its socket closed.
    fn over(&mut self, common: &mut Common, now: Now, id: FlowId, reason: EndReason, reset: bool) {
        let Some(flow) = self.remove(id) else { return };
        flow.tell_unsaid(common, id);
        let (mut bytes_out, mut bytes_in, mut socket) = (0, 0, true);
        match flow.stage {
            Stage::Parked(parked) => {
                socket = parked.dialling;
                // A late word on its entry means nothing any more.
                common.take_ticket(parked.ticket);
            }
            Stage::Entering(ticket) => drop(common.take_ticket(ticket)),
            Stage::Live(live) => {
                (bytes_out, bytes_in) = (live.bytes_out, live.bytes_in);
                self.engines.give_back(live.into_engine());
                if reason == EndReason::Closed {
                    self.tombstones.bury(now, flow.ends);
                }
            }
        }
        if socket {
            common.actions.push_back(Action::Close { flow: id, reset });
        }
        let end = End {
            flow: id,
            opened: flow.opened,
            bytes_out,
            bytes_in,
            reason,
            outer_src: flow.outer_src,
        };
        common.ended(now, end);
    }

    fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.timers.sweep(&mut self.flows);
        self.by_ends.remove(&flow.ends);
        self.pending -= usize::from(flow.is_pending());
        if flow.came.is_some() {
            self.inbound.left();
        }
        Some(flow)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Now> {
        self.timers.next()
    }

    pub(crate) fn handle_timeout(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) {
        while let Some(id) = self.timers.due(now, &mut self.flows) {
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            match &mut flow.stage {
                Stage::Live(live) if live.handshake_failed(now) => {
                    live.reset(
                        now,
                        &mut Out {
                            outlet: out,
                            scratch: &mut self.scratch,
                        },
                    );
                    let end = match flow.came {
                        Some(_) => EndReason::DialTimeout,
                        None => EndReason::ResetByBox,
                    };
                    self.over(common, now, id, end, true);
                }
                Stage::Live(_) => self.touch(id),
                Stage::Entering(_) => {
                    if let Some(came) = flow.came {
                        common.refuse_inbound(now, came, Refusal::StoreUnavailable);
                    }
                    self.over(common, now, id, EndReason::DialTimeout, true);
                }
                Stage::Parked(parked) if parked.given_up(now) => {
                    self.over(common, now, id, EndReason::ResetByBox, true);
                }
                Stage::Parked(parked) => {
                    let icmp = parked.dialling.then_some(Unreachable::Host);
                    if icmp.is_none() {
                        let why = Refusal::StoreUnavailable;
                        common.refuse_now(now, Transport::Tcp, flow.ends, why);
                    }
                    self.answer(common, now, id, EndReason::DialTimeout, icmp, out);
                }
            }
        }
    }

    /// Resets every flow on both sides; how many there were.
    pub(crate) fn stop(&mut self, common: &mut Common, now: Now, out: &mut dyn Outlet) -> usize {
        let ids = oldest_first(&self.flows);
        for id in &ids {
            let Some(flow) = self.flows.get_mut(id) else {
                continue;
            };
            if let Stage::Live(live) = &mut flow.stage {
                live.reset(
                    now,
                    &mut Out {
                        outlet: out,
                        scratch: &mut self.scratch,
                    },
                );
                self.over(common, now, *id, EndReason::BoxStopped, true);
            } else {
                self.answer(common, now, *id, EndReason::BoxStopped, None, out);
            }
        }
        ids.len()
    }
}
