//! Datagrams that came in by a published port: each client of each port is a
//! flow, entered first, from a port of the gate's own address on the link. The
//! client's own port stays where it is free; its address is the node's loopback,
//! which in the box is the box's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bailey_model::link::{BOX_V4, BOX_V6, GATE_V4, GATE_V6};
use bailey_model::{EndReason, FlowId, Publish, Refusal};

use crate::Now;
use crate::flow::{
    ENTRY_TIMEOUT, MAX_PENDING_UDP, MAX_WAITING_BYTES, MAX_WAITING_DATAGRAMS, Outlet, UDP_IDLE,
    UDP_SINGLE,
};
use crate::flow_common::{Came, Common, End, Ends, Waits, oldest_first};
use crate::flow_progress::Counted;
use crate::flow_timer::{Alarm, Timed, Timers};
use crate::gate::census::Census;
use crate::icmp_wire;
use crate::packet::{self, Ip, datagram};

/// Most flows of one box that came in by its published datagram ports.
pub const MAX_INBOUND_UDP: usize = 1024;

/// Lowest port that the gate sends from; those below are for services.
const FIRST_PORT: u16 = 1024;
/// The ways to a program of the box, in the order in which they are tried: it
/// may have bound all addresses, its own loopback, or IPv6 only.
const DOORS: usize = 3;

fn ends(door: usize, box_port: u16, port: u16) -> Ends {
    let (inner, gate): (IpAddr, IpAddr) = match door {
        0 => (BOX_V4.into(), GATE_V4.into()),
        1 => (Ipv4Addr::LOCALHOST.into(), GATE_V4.into()),
        _ => (BOX_V6.into(), GATE_V6.into()),
    };
    Ends {
        src: SocketAddr::new(inner, box_port),
        dst: SocketAddr::new(gate, port),
    }
}

/// Which socket a client's datagrams come by.
type From = (u64, SocketAddr);

#[derive(Debug)]
struct Flow {
    from: From,
    came: Came,
    /// The gate's own port.
    port: u16,
    door: usize,
    /// Whether the program has ever answered.
    answered: bool,
    opened: Now,
    last: Now,
    alarm: Alarm,
    ticket: Option<u64>,
    /// Datagrams that wait for the entry; then the last one, until the program
    /// has answered, for the next door.
    kept: Vec<Vec<u8>>,
    datagrams_in: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Timed for Flow {
    fn alarm(&mut self) -> &mut Alarm {
        &mut self.alarm
    }
}

impl Flow {
    fn ends(&self) -> Ends {
        ends(self.door, self.came.publish.box_port, self.port)
    }

    fn due(&self) -> Now {
        match (self.ticket, self.datagrams_in, self.answered) {
            (Some(_), ..) => self.opened + ENTRY_TIMEOUT,
            (None, 0..=1, false) => self.last + UDP_SINGLE,
            (None, ..) => self.last + UDP_IDLE,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Callers {
    by_from: HashMap<From, FlowId>,
    /// By the port of the box and the gate's own.
    by_ports: HashMap<(u16, u16), FlowId>,
    flows: HashMap<FlowId, Flow>,
    timers: Timers<FlowId>,
    /// The door by which each port's program was last heard.
    doors: HashMap<Publish, usize>,
    next_port: u16,
    pending: usize,
    kept_bytes: usize,
}

impl Callers {
    pub(crate) fn new() -> Self {
        Self {
            by_from: HashMap::new(),
            by_ports: HashMap::new(),
            flows: HashMap::new(),
            timers: Timers::new(),
            doors: HashMap::new(),
            next_port: FIRST_PORT,
            pending: 0,
            kept_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn count(&self, census: &mut Census) {
        let indices = self.by_from.len().max(self.by_ports.len());
        census.callers = self.flows.len().max(indices);
        census.caller_pending = self.pending;
        census.caller_kept = self.kept_bytes;
        census.deadlines += self.timers.len();
    }

    /// Every flow, as far as it has come.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Counted> {
        self.flows.iter().map(|(id, flow)| Counted {
            flow: *id,
            opened: flow.opened,
            bytes_out: flow.bytes_out,
            bytes_in: flow.bytes_in,
        })
    }

    /// A client's datagram came by the published socket at this place.
    pub(crate) fn came(
        &mut self,
        common: &mut Common,
        now: Now,
        place: u64,
        came: Came,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let from = (place, came.client);
        let id = match self.by_from.get(&from) {
            Some(&id) => id,
            None => match self.opens(common, now, from, came) {
                Ok(id) => id,
                Err(why) => return common.refuse_inbound(now, came, why),
            },
        };
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        if flow.ticket.is_none() {
            return self.pass(common, now, id, data, out);
        }
        if flow.kept.len() < MAX_WAITING_DATAGRAMS {
            self.keep(id, data);
        }
    }

    fn opens(
        &mut self,
        common: &mut Common,
        now: Now,
        from: From,
        came: Came,
    ) -> Result<FlowId, Refusal> {
        if let Some(why) = common.closed() {
            return Err(why);
        }
        if self.pending >= MAX_PENDING_UDP || !self.make_room(common, now) {
            return Err(Refusal::Limit);
        }
        let box_port = came.publish.box_port;
        let port = self
            .port(box_port, came.client.port())
            .ok_or(Refusal::Limit)?;
        let door = self.doors.get(&came.publish).copied().unwrap_or(0);
        let ends = ends(door, box_port, port);
        let (id, ticket) = common.open_inbound(now, came, ends, Waits::Came);
        let mut flow = Flow {
            from,
            came,
            port,
            door,
            answered: false,
            opened: now,
            last: now,
            alarm: Alarm::default(),
            ticket: Some(ticket),
            kept: Vec::new(),
            datagrams_in: 0,
            bytes_in: 0,
            bytes_out: 0,
        };
        let due = flow.due();
        self.timers.set(id, &mut flow.alarm, Some(due));
        self.flows.insert(id, flow);
        self.by_from.insert(from, id);
        self.by_ports.insert((box_port, port), id);
        self.pending += 1;
        Ok(id)
    }

    /// The client's own port where it is free, else the next free one.
    fn port(&mut self, box_port: u16, wanted: u16) -> Option<u16> {
        let free = |port: &u16| !self.by_ports.contains_key(&(box_port, *port));
        if wanted >= FIRST_PORT && free(&wanted) {
            return Some(wanted);
        }
        let from = self.next_port;
        let port = (from..=u16::MAX).chain(FIRST_PORT..from).find(free)?;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        Some(port)
    }

    /// Makes room for one more: what was silent longest goes, but never one
    /// that waits for its entry.
    fn make_room(&mut self, common: &mut Common, now: Now) -> bool {
        if self.flows.len() < MAX_INBOUND_UDP {
            return true;
        }
        let settled = self.flows.iter().filter(|(_, flow)| flow.ticket.is_none());
        let oldest = settled.min_by_key(|(id, flow)| (flow.last, **id));
        let Some((&oldest, _)) = oldest else {
            return false;
        };
        self.over(common, now, oldest, EndReason::Evicted);
        true
    }

    fn keep(&mut self, id: FlowId, data: &[u8]) {
        if self.kept_bytes + data.len() <= MAX_WAITING_BYTES
            && let Some(flow) = self.flows.get_mut(&id)
        {
            self.kept_bytes += data.len();
            flow.kept.push(data.to_vec());
        }
    }

    fn release(&mut self, id: FlowId) -> Vec<Vec<u8>> {
        let kept = self.flows.get_mut(&id).map(|flow| &mut flow.kept);
        let kept = kept.map(std::mem::take).unwrap_or_default();
        self.kept_bytes -= kept.iter().map(Vec::len).sum::<usize>();
        kept
    }

    /// A datagram goes into the box.
    fn pass(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if !flow.answered
            && let Some(&door) = self.doors.get(&flow.came.publish)
        {
            flow.door = door;
        }
        let ends = flow.ends();
        if !common.datagram_in(ends.dst, ends.src, data, out) {
            return;
        }
        flow.datagrams_in += 1;
        flow.bytes_in += u64::try_from(data.len()).unwrap_or(0);
        if !flow.answered {
            self.release(id);
            self.keep(id, data);
        }
        self.pulse(now, id);
    }

    fn pulse(&mut self, now: Now, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.last = now;
            let due = flow.due();
            self.timers.set(id, &mut flow.alarm, Some(due));
        }
    }

    /// The entry stands: what waited goes in.
    pub(crate) fn committed(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        out: &mut dyn Outlet,
    ) {
        if self.settle(id).is_none() {
            return;
        }
        for data in self.release(id) {
            self.pass(common, now, id, &data, out);
        }
    }

    /// The entry cannot be written: nothing goes in, and none is ended.
    pub(crate) fn refused(&mut self, common: &mut Common, now: Now, id: FlowId) {
        self.settle(id);
        if let Some(flow) = self.remove(id) {
            common.refuse_inbound(now, flow.came, Refusal::StoreUnavailable);
        }
    }

    /// From now on a flow does not wait.
    fn settle(&mut self, id: FlowId) -> Option<u64> {
        let ticket = self.flows.get_mut(&id).and_then(|flow| flow.ticket.take());
        self.pending -= usize::from(ticket.is_some());
        ticket
    }

    /// The flow that a datagram of the box answers, if it answers one. It may
    /// come from a loopback that is the box's own.
    pub(crate) fn answered(&self, ip: &Ip<'_>) -> Option<FlowId> {
        if ip.proto != packet::UDP || ip.fragment {
            return None;
        }
        let (src_port, dst_port, _) = datagram(ip.payload)?;
        let id = *self.by_ports.get(&(src_port, dst_port))?;
        let ends = self
            .flows
            .get(&id)
            .filter(|flow| flow.ticket.is_none())?
            .ends();
        ((ends.src.ip(), ends.dst.ip()) == (ip.src, ip.dst)).then_some(id)
    }

    /// The program answers.
    pub(crate) fn answer(&mut self, now: Now, id: FlowId, ip: &Ip<'_>, out: &mut dyn Outlet) {
        let Some((_, _, data)) = datagram(ip.payload) else {
            return;
        };
        self.release(id);
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        flow.answered = true;
        flow.bytes_out += u64::try_from(data.len()).unwrap_or(0);
        self.doors.insert(flow.came.publish, flow.door);
        let (place, client) = flow.from;
        out.answer(place, client, data);
        self.pulse(now, id);
    }

    /// The box says that nobody is there: the next door. True if the message was
    /// about a flow that came in.
    pub(crate) fn nobody(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        out: &mut dyn Outlet,
    ) -> bool {
        if !matches!(ip.proto, packet::ICMP | packet::ICMPV6) {
            return false;
        }
        let Some(about) = icmp_wire::port_unreachable(ip) else {
            return false;
        };
        let ports = (about.src.port(), about.dst.port());
        let Some(&id) = self.by_ports.get(&ports) else {
            return false;
        };
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.ends() == about) else {
            return false;
        };
        if self.doors.get(&flow.came.publish) == Some(&flow.door) {
            self.doors.remove(&flow.came.publish);
        }
        flow.answered = false;
        flow.door += 1;
        if flow.door >= DOORS {
            // The next datagram begins at the first one again.
            flow.door = 0;
            self.release(id);
            return true;
        }
        let ends = flow.ends();
        if let Some(data) = flow.kept.last() {
            common.datagram_in(ends.dst, ends.src, data, out);
            flow.last = now;
        }
        true
    }

    fn over(&mut self, common: &mut Common, now: Now, id: FlowId, reason: EndReason) {
        // A late word on its entry means nothing any more.
        if let Some(ticket) = self.settle(id) {
            common.take_ticket(ticket);
        }
        let Some(flow) = self.remove(id) else {
            return;
        };
        let end = End {
            flow: id,
            opened: flow.opened,
            bytes_out: flow.bytes_out,
            bytes_in: flow.bytes_in,
            reason,
            outer_src: Some(flow.came.client),
        };
        common.ended(now, end);
    }

    fn remove(&mut self, id: FlowId) -> Option<Flow> {
        self.release(id);
        let flow = self.flows.remove(&id)?;
        self.timers.sweep(&mut self.flows);
        self.by_from.remove(&flow.from);
        self.by_ports
            .remove(&(flow.came.publish.box_port, flow.port));
        Some(flow)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Now> {
        self.timers.next()
    }

    pub(crate) fn handle_timeout(&mut self, common: &mut Common, now: Now) {
        while let Some(id) = self.timers.due(now, &mut self.flows) {
            let Some(flow) = self.flows.get_mut(&id) else {
                continue;
            };
            let came = flow.came;
            if flow.ticket.is_none() {
                self.over(common, now, id, EndReason::Idle);
                continue;
            }
            common.refuse_inbound(now, came, Refusal::StoreUnavailable);
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
