//! UDP flows: one socket outside for each port of the box, whatever it sends
//! to, and a verdict for each far end (RFC 4787: endpoint-independent mapping,
//! address-dependent filtering).

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use bailey_model::{EndReason, FlowId, Proto, Refusal, Transport, Verdict};

use crate::Now;
use crate::flow::{
    Action, ENTRY_TIMEOUT, MAX_PENDING_UDP, MAX_UDP_FLOWS, MAX_UDP_PORTS, MAX_WAITING_BYTES,
    MAX_WAITING_DATAGRAMS, Outlet, SendFault, UDP_IDLE, UDP_SINGLE, UdpPort,
};
use crate::flow_common::{Basis, Common, End, Ends, Waits, oldest_first};
use crate::flow_timer::{Alarm, Timed, Timers};
use crate::flow_waiting::{Bounds, Waiters, Waiting};
use crate::host_end;
use crate::packet::{Ip, Unreachable, datagram};
use crate::policy::Decision;

mod census;
mod group;
mod named;
mod revoke;

use named::Watch;

#[derive(Debug)]
struct Port {
    src: SocketAddr,
    /// By far end; small for most programs.
    flows: BTreeMap<SocketAddr, FlowId>,
    last: Now,
    outer: Option<SocketAddr>,
}

#[derive(Debug)]
struct Flow {
    port: UdpPort,
    ends: Ends,
    opened: Now,
    basis: Basis,
    alarm: Alarm,
    last: Now,
    watch: Option<Watch>,
    /// Until its entry stands.
    waiting: Option<Waiting>,
    packets_out: u64,
    packets_in: u64,
    bytes_out: u64,
    bytes_in: u64,
}

impl Timed for Flow {
    fn alarm(&mut self) -> &mut Alarm {
        &mut self.alarm
    }
}

impl Flow {
    fn due(&self) -> Now {
        match (&self.waiting, self.packets_out, self.packets_in) {
            (Some(_), ..) => self.opened + ENTRY_TIMEOUT,
            (None, 0..=1, 0) => self.last + UDP_SINGLE,
            (None, ..) => self.last + UDP_IDLE,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Udp {
    ports: HashMap<UdpPort, Port>,
    by_src: HashMap<SocketAddr, UdpPort>,
    flows: HashMap<FlowId, Flow>,
    timers: Timers<FlowId>,
    next_port: u64,
    waiters: Waiters,
    peeked_bytes: usize,
}

impl Udp {
    pub(crate) fn new() -> Self {
        Self {
            ports: HashMap::new(),
            by_src: HashMap::new(),
            flows: HashMap::new(),
            timers: Timers::new(),
            next_port: 1,
            waiters: Waiters::new(Bounds {
                flows: MAX_PENDING_UDP,
                packets: MAX_WAITING_DATAGRAMS,
                bytes: MAX_WAITING_BYTES,
            }),
            peeked_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// A datagram from the box.
    pub(crate) fn handle(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some((src_port, dst_port, data)) = datagram(ip.payload) else {
            return;
        };
        let ends = Ends {
            src: SocketAddr::new(ip.src, src_port),
            dst: SocketAddr::new(ip.dst, dst_port),
        };
        let known = self
            .by_src
            .get(&ends.src)
            .and_then(|port| self.ports.get(port));
        if let Some(&id) = known.and_then(|port| port.flows.get(&ends.dst)) {
            return self.known(common, now, id, ip, data, out);
        }
        if let Err((decision, why)) = self.opens(common, now, ip, ends, data) {
            common.unreachable(ends, Unreachable::Port, ip.whole, out);
            common.refuse(now, Proto::Udp, ends, decision, why);
        }
    }

    fn known(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        ip: &Ip<'_>,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if let Some(waiting) = &mut flow.waiting {
            return self.waiters.add(waiting, ip.whole);
        }
        let ends = flow.ends;
        if let Err((decision, why)) = group::passes(common, ends, data) {
            common.unreachable(ends, Unreachable::Port, ip.whole, out);
            return common.refuse(now, Proto::Udp, ends, decision, why);
        }
        let stands = common.stands(Transport::Udp, ends.dst, &mut flow.basis);
        if let Err((decision, why)) = stands.and_then(|()| self.judge_said(common, id, data)) {
            common.unreachable(ends, Unreachable::Port, ip.whole, out);
            common.refuse(now, Proto::Udp, ends, decision, why);
            return self.over(common, now, id, EndReason::Refused);
        }
        self.send(common, now, id, ip.whole, data, out);
    }

    fn opens(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        ends: Ends,
        data: &[u8],
    ) -> Result<(), (Decision, Refusal)> {
        let decision = common.decide(now, Transport::Udp, ends.dst);
        let granted = match &decision.verdict {
            Verdict::Refuse(refusal) => {
                let why = if common.stopping {
                    Refusal::BoxStopping
                } else {
                    *refusal
                };
                return Err((decision, why));
            }
            Verdict::Allow(granted) => granted.clone(),
        };
        group::passes(common, ends, data)?;
        let portless = ends.dst.port() == 0 || ends.src.port() == 0;
        let why = common.closed().or(portless.then_some(Refusal::Protocol));
        let watch = Watch::new(common, ends);
        watch.judge_first(common, ends, &decision, data)?;
        let why = why.or((!self.make_room(common, now, ends.src)).then_some(Refusal::Limit));
        if let Some(why) = why {
            return Err((decision, why));
        }
        let port = self.port(ends.src, now);
        let basis = Basis::new(decision.host.clone(), &common.policy);
        let (id, ticket) = common.open(now, Proto::Udp, ends, decision, granted, Waits::Udp);
        let mut flow = Flow {
            port,
            ends,
            opened: now,
            basis,
            alarm: Alarm::default(),
            last: now,
            watch: Some(watch),
            waiting: Some(self.waiters.begin(ticket, ip.whole)),
            packets_out: 0,
            packets_in: 0,
            bytes_out: 0,
            bytes_in: 0,
        };
        let due = flow.due();
        self.timers.set(id, &mut flow.alarm, Some(due));
        self.flows.insert(id, flow);
        if let Some(port) = self.ports.get_mut(&port) {
            port.flows.insert(ends.dst, id);
        }
        Ok(())
    }

    fn port(&mut self, src: SocketAddr, now: Now) -> UdpPort {
        let next = UdpPort(self.next_port);
        let port = *self.by_src.entry(src).or_insert(next);
        if port == next {
            self.next_port += 1;
            let made = Port {
                src,
                flows: BTreeMap::new(),
                last: now,
                outer: None,
            };
            self.ports.insert(port, made);
        }
        port
    }

    /// Makes room for one more flow: what was silent longest goes, but never a
    /// flow that waits. False if there is none.
    fn make_room(&mut self, common: &mut Common, now: Now, src: SocketAddr) -> bool {
        if !self.waiters.has_room() {
            return false;
        }
        let idle = |flow: &Flow| flow.waiting.is_none();
        if self.flows.len() >= MAX_UDP_FLOWS {
            let oldest = self
                .flows
                .iter()
                .filter(|(_, flow)| idle(flow))
                .min_by_key(|(_, f)| f.last);
            let Some((&oldest, _)) = oldest else {
                return false;
            };
            self.over(common, now, oldest, EndReason::Evicted);
        }
        if !self.by_src.contains_key(&src) && self.ports.len() >= MAX_UDP_PORTS {
            let settled = |port: &Port| {
                port.flows
                    .values()
                    .all(|id| self.flows.get(id).is_none_or(idle))
            };
            let oldest = self
                .ports
                .values()
                .filter(|port| settled(port))
                .min_by_key(|p| p.last);
            let Some(oldest) = oldest else { return false };
            let ids: Vec<FlowId> = oldest.flows.values().copied().collect();
            for id in ids {
                self.over(common, now, id, EndReason::Evicted);
            }
        }
        true
    }

    /// The entry stands: what waited goes out.
    pub(crate) fn committed(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        for packet in self.release(id) {
            let Some(ip) = crate::packet::parse(&packet) else {
                continue;
            };
            let Some((_, _, data)) = datagram(ip.payload) else {
                continue;
            };
            self.known(common, now, id, &ip, data, out);
        }
    }

    /// The entry cannot be written: what waited is refused.
    pub(crate) fn refused(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        let packets = self.release(id);
        if let Some(flow) = self.remove(common, id) {
            turn_away(common, now, flow.ends, &packets, out);
        }
    }

    /// Takes the packets that wait with a flow; from then on it does not wait.
    fn release(&mut self, id: FlowId) -> Vec<Vec<u8>> {
        let waiting = self.flows.get_mut(&id).and_then(|flow| flow.waiting.take());
        let Some(waiting) = waiting else {
            return Vec::new();
        };
        self.waiters.end(&waiting);
        waiting.packets
    }

    fn send(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        about: &[u8],
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        match out.datagram(flow.port, host_end::outer(flow.ends.dst), data) {
            Ok(()) => {
                flow.packets_out += 1;
                flow.bytes_out += u64::try_from(data.len()).unwrap_or(0);
                self.pulse(now, id);
            }
            Err(SendFault::NoSocket) => {
                let ends = flow.ends;
                common.unreachable(ends, Unreachable::Port, about, out);
                common.refuse_now(now, Transport::Udp, ends, Refusal::Limit);
                self.over(common, now, id, EndReason::Evicted);
            }
            Err(fault) => common.unreachable(flow.ends, icmp(fault), about, out),
        }
    }

    fn pulse(&mut self, now: Now, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.last = now;
        let due = flow.due();
        self.timers.set(id, &mut flow.alarm, Some(due));
        if let Some(port) = self.ports.get_mut(&flow.port) {
            port.last = now;
        }
    }

    /// The outer end of a port, once its socket is made.
    pub(crate) fn bound(&mut self, port: UdpPort, outer: SocketAddr) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.outer = Some(outer);
        }
    }

    /// A datagram from outside: it passes if the box was allowed to send to
    /// that address from that port.
    pub(crate) fn incoming(
        &mut self,
        common: &mut Common,
        now: Now,
        port: UdpPort,
        from: SocketAddr,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let Some(from) = host_end::inner(from) else {
            return;
        };
        let known = self.allowed(port, from);
        let Some((src, id)) = known.or_else(|| self.asked_in_group(common, port, from)) else {
            return;
        };
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if let Err((decision, why)) = common.stands(Transport::Udp, flow.ends.dst, &mut flow.basis)
        {
            common.refuse(now, Proto::Udp, flow.ends, decision, why);
            return self.over(common, now, id, EndReason::Refused);
        }
        if common.datagram_in(from, src, data, out) {
            flow.packets_in += 1;
            flow.bytes_in += u64::try_from(data.len()).unwrap_or(0);
            self.pulse(now, id);
        }
    }

    /// The flow that lets something in from there: that very far end's, else
    /// one to another port of the same address.
    fn allowed(&self, port: UdpPort, from: SocketAddr) -> Option<(SocketAddr, FlowId)> {
        let port = self.ports.get(&port)?;
        let lowest = SocketAddr::new(from.ip(), 0);
        let highest = SocketAddr::new(from.ip(), u16::MAX);
        let exact = port.flows.get(&from).into_iter();
        let near = port.flows.range(lowest..=highest).map(|(_, id)| id);
        // The node's loopback is granted port by port.
        let near = near.filter(|_| host_end::loopback(from).is_none());
        let open = |id: &&FlowId| {
            self.flows
                .get(id)
                .is_some_and(|flow| flow.waiting.is_none())
        };
        exact.chain(near).find(open).map(|id| (port.src, *id))
    }

    /// An ICMP error came back for what was sent to `to`.
    pub(crate) fn failed(
        &mut self,
        common: &mut Common,
        port: UdpPort,
        to: SocketAddr,
        fault: SendFault,
        out: &mut dyn Outlet,
    ) {
        let Some(known) = self.ports.get(&port) else {
            return;
        };
        let flow = host_end::inner(to).and_then(|to| known.flows.get(&to));
        let Some(flow) = flow.and_then(|id| self.flows.get(id)) else {
            return;
        };
        if flow.waiting.is_some() {
            return;
        }
        // The kernel finds the box's socket by the ports that are quoted.
        let mut about = Vec::new();
        if crate::packet::write_udp(&mut about, flow.ends.src, flow.ends.dst, &[]) {
            common.unreachable(flow.ends, icmp(fault), &about, out);
        }
    }

    fn over(&mut self, common: &mut Common, now: Now, id: FlowId, reason: EndReason) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if let Some(waiting) = flow.waiting.take() {
            self.waiters.end(&waiting);
            // A late word on its entry means nothing any more.
            common.take_ticket(waiting.ticket);
        }
        flow.tell_unsaid(common, id);
        let outer_src = self.ports.get(&flow.port).and_then(|port| port.outer);
        let Some(flow) = self.remove(common, id) else {
            return;
        };
        let end = End {
            flow: id,
            opened: flow.opened,
            bytes_out: flow.bytes_out,
            bytes_in: flow.bytes_in,
            reason,
            outer_src,
        };
        common.ended(now, end);
    }

    fn remove(&mut self, common: &mut Common, id: FlowId) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.timers.sweep(&mut self.flows);
        let peeked = flow.watch.as_ref().map_or(0, Watch::bytes);
        self.peeked_bytes = self.peeked_bytes.saturating_sub(peeked);
        if let Some(port) = self.ports.get_mut(&flow.port) {
            port.flows.remove(&flow.ends.dst);
            if port.flows.is_empty() {
                self.ports.remove(&flow.port);
                self.by_src.remove(&flow.ends.src);
                common.actions.push_back(Action::CloseUdp(flow.port));
            }
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
            let Some(waiting) = &flow.waiting else {
                self.over(common, now, id, EndReason::Idle);
                continue;
            };
            turn_away(common, now, flow.ends, &waiting.packets, out);
            self.over(common, now, id, EndReason::DialTimeout);
        }
    }

    /// Ends every flow; how many there were.
    pub(crate) fn stop(&mut self, common: &mut Common, now: Now) -> usize {
        let ids = oldest_first(&self.flows);
        for id in &ids {
            self.over(common, now, *id, EndReason::BoxStopped);
        }
        ids.len()
    }
}

/// The audit cannot take the entry: what waited for it is refused.
fn turn_away(common: &mut Common, now: Now, ends: Ends, packets: &[Vec<u8>], out: &mut dyn Outlet) {
    for packet in packets {
        common.unreachable(ends, Unreachable::Port, packet, out);
    }
    common.refuse_now(now, Transport::Udp, ends, Refusal::StoreUnavailable);
}

fn icmp(fault: SendFault) -> Unreachable {
    match fault {
        SendFault::NetworkUnreachable => Unreachable::Network,
        SendFault::HostUnreachable => Unreachable::Host,
        SendFault::PortUnreachable | SendFault::NoSocket => Unreachable::Port,
    }
}
