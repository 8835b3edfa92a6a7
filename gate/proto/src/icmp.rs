//! ICMP echo (RFC 792, 4443 §4): each identifier of the box and each far end is
//! a flow with a ping socket of its own outside. The gate answers no echo for
//! anybody: what comes back came from who was asked.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use bailey_model::{EndReason, FlowId, Proto, Refusal, Verdict};

use crate::Now;
use crate::flow::{Action, ENTRY_TIMEOUT, Outlet};
use crate::flow_common::{Basis, Common, End, Ends, Waits, oldest_first};
use crate::flow_progress::Counted;
use crate::flow_timer::{Alarm, Timed, Timers};
use crate::flow_waiting::{Bounds, Waiters, Waiting};
use crate::gate::census::Census;
use crate::icmp_wire::{self, Request};
use crate::packet::{self, Ip, Unreachable};
use crate::policy::Decision;

/// Most echo flows of one box. Each is a descriptor of the gate.
pub const MAX_ECHO_FLOWS: usize = 256;
/// Most echo flows that wait for their entry.
pub const MAX_PENDING_ECHO: usize = 64;
/// Most requests that wait with one echo flow for its entry.
pub const MAX_WAITING_ECHO: usize = 4;
/// Most bytes of requests that wait for entries, over all echo flows.
pub const MAX_WAITING_ECHO_BYTES: usize = 1 << 20;
/// How long an echo flow may be silent (RFC 5508 §3.2: at least 60 s).
pub const ECHO_IDLE: std::time::Duration = std::time::Duration::from_secs(60);
/// Requests of one flow that an ICMP error can still be about.
const MAX_RECENT: usize = 16;
/// As much of a request as an error quotes: the longest IPv4 header and the
/// 64 bits behind it (RFC 792), or IPv6's and an echo header.
const QUOTED: usize = 68;

/// An echo request that a ping socket is to send. Its identifier is the
/// socket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Sequence number.
    pub seq: u16,
    /// What follows the header.
    pub data: &'a [u8],
    /// Time to live, or hop limit, as the box set it.
    pub hops: u8,
    /// Not to be fragmented (RFC 791); never in IPv6, where the box's network
    /// ends at the gate.
    pub whole: bool,
}

/// Why an echo request could not be sent. One that the kernel merely had no
/// room for is not a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EchoFault {
    /// The host lets the gate make no ping socket (icmp(7), `ping_group_range`).
    NotAllowed,
    /// No socket: the gate is out of descriptors or identifiers.
    NoSocket,
    /// No route to the network.
    NetworkUnreachable,
    /// No way to the host, or the kernel refuses to send there.
    HostUnreachable,
    /// Longer than the way takes in one piece; so many bytes pass.
    TooBig(u32),
}

/// An ICMP error that came back for an echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoError {
    /// The request's sequence number.
    pub seq: u16,
    /// Type of the error, by the flow's family.
    pub kind: u8,
    /// Its code.
    pub code: u8,
    /// The MTU, where the error is about one.
    pub mtu: u32,
    /// Who sent it; `None` if the host itself says so.
    pub from: Option<IpAddr>,
}

#[derive(Debug)]
struct Flow {
    ends: Ends,
    opened: Now,
    basis: Basis,
    alarm: Alarm,
    last: Now,
    /// Until its entry stands.
    waiting: Option<Waiting>,
    /// The newest requests, by sequence number, as far as an error quotes them.
    recent: VecDeque<(u16, Vec<u8>)>,
    bytes_out: u64,
    bytes_in: u64,
    outer_src: Option<SocketAddr>,
}

impl Timed for Flow {
    fn alarm(&mut self) -> &mut Alarm {
        &mut self.alarm
    }
}

#[derive(Debug)]
pub(crate) struct Echoes {
    by_ends: HashMap<Ends, FlowId>,
    flows: HashMap<FlowId, Flow>,
    timers: Timers<FlowId>,
    waiters: Waiters,
}

/// The protocol's number by the family of an address.
fn proto(ip: IpAddr) -> Proto {
    Proto::Other(match ip {
        IpAddr::V4(_) => packet::ICMP,
        IpAddr::V6(_) => packet::ICMPV6,
    })
}

impl Echoes {
    pub(crate) fn new() -> Self {
        Self {
            by_ends: HashMap::new(),
            flows: HashMap::new(),
            timers: Timers::new(),
            waiters: Waiters::new(Bounds {
                flows: MAX_PENDING_ECHO,
                packets: MAX_WAITING_ECHO,
                bytes: MAX_WAITING_ECHO_BYTES,
            }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
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

    pub(crate) fn count(&self, census: &mut Census) {
        census.echoes = self.flows.len().max(self.by_ends.len());
        census.echo_pending = self.waiters.flows();
        census.echo_waiting = self.waiters.bytes();
        census.deadlines += self.timers.len();
    }

    /// An echo request from the box.
    pub(crate) fn handle(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some(request) = icmp_wire::request(ip) else {
            return;
        };
        // The identifier stands where other flows have the box's port.
        let ends = Ends {
            src: SocketAddr::new(ip.src, request.id),
            dst: SocketAddr::new(ip.dst, 0),
        };
        if let Some(&id) = self.by_ends.get(&ends) {
            return self.known(common, now, id, ip.whole, request, out);
        }
        if let Err((decision, why)) = self.opens(common, now, ip, ends, out) {
            common.unreachable(ends, Unreachable::Prohibited, ip.whole, out);
            common.refuse(now, proto(ip.dst), ends, decision, why);
        }
    }

    fn known(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        whole: &[u8],
        request: Request<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if let Some(waiting) = &mut flow.waiting {
            return self.waiters.add(waiting, whole);
        }
        if let Err((decision, why)) = common.echo_stands(flow.ends.dst.ip(), &mut flow.basis) {
            let ends = flow.ends;
            common.unreachable(ends, Unreachable::Prohibited, whole, out);
            common.refuse(now, proto(ends.dst.ip()), ends, decision, why);
            return self.over(common, now, id, EndReason::Refused);
        }
        self.send(common, now, id, whole, request, out);
    }

    fn opens(
        &mut self,
        common: &mut Common,
        now: Now,
        ip: &Ip<'_>,
        ends: Ends,
        out: &mut dyn Outlet,
    ) -> Result<(), (Decision, Refusal)> {
        let decision = common.decide_echo(now, ip.dst);
        let granted = match &decision.verdict {
            Verdict::Allow(granted) => granted.clone(),
            Verdict::Refuse(refusal) => {
                let why = common.stopping.then_some(Refusal::BoxStopping);
                return Err((decision.clone(), why.unwrap_or(*refusal)));
            }
        };
        let mut why = common.closed();
        if why.is_none() && !out.can_echo(ip.dst) {
            why = Some(Refusal::NoPing);
        }
        if why.is_none() && !self.make_room(common, now) {
            why = Some(Refusal::Limit);
        }
        if let Some(why) = why {
            return Err((decision, why));
        }
        let basis = Basis::new(decision.host.clone(), &common.policy);
        let (id, ticket) = common.open(now, proto(ip.dst), ends, decision, granted, Waits::Echo);
        let mut flow = Flow {
            ends,
            opened: now,
            basis,
            alarm: Alarm::default(),
            last: now,
            waiting: Some(self.waiters.begin(ticket, ip.whole)),
            recent: VecDeque::new(),
            bytes_out: 0,
            bytes_in: 0,
            outer_src: None,
        };
        self.timers
            .set(id, &mut flow.alarm, Some(now + ENTRY_TIMEOUT));
        self.flows.insert(id, flow);
        self.by_ends.insert(ends, id);
        Ok(())
    }

    /// Makes room for one more flow: what was silent longest goes, but never a
    /// flow that waits. False if there is none.
    fn make_room(&mut self, common: &mut Common, now: Now) -> bool {
        if !self.waiters.has_room() {
            return false;
        }
        if self.flows.len() < MAX_ECHO_FLOWS {
            return true;
        }
        let settled = self.flows.iter().filter(|(_, flow)| flow.waiting.is_none());
        let oldest = settled.min_by_key(|(id, flow)| (flow.last, **id));
        let Some((&oldest, _)) = oldest else {
            return false;
        };
        self.over(common, now, oldest, EndReason::Evicted);
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
        for whole in self.release(id) {
            let ip = packet::parse(&whole);
            if let Some(request) = ip.as_ref().and_then(icmp_wire::request) {
                self.known(common, now, id, &whole, request, out);
            }
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
        let Some(flow) = self.remove(id) else {
            return;
        };
        turn_away(common, now, flow.ends, &packets, out);
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
        whole: &[u8],
        request: Request<'_>,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        let ends = flow.ends;
        let fault = match out.echo(id, ends.dst.ip(), request.echo) {
            Ok(outer) => {
                flow.outer_src = outer.or(flow.outer_src);
                flow.bytes_out += u64::try_from(request.echo.data.len()).unwrap_or(0);
                let quoted = whole.get(..whole.len().min(QUOTED)).unwrap_or_default();
                flow.recent.retain(|(seq, _)| *seq != request.echo.seq);
                flow.recent.push_back((request.echo.seq, quoted.to_vec()));
                if flow.recent.len() > MAX_RECENT {
                    flow.recent.pop_front();
                }
                return self.pulse(now, id);
            }
            Err(fault) => fault,
        };
        let why = match fault {
            EchoFault::TooBig(mtu) => return common.too_big(ends, mtu, whole, out),
            EchoFault::NetworkUnreachable => Unreachable::Network,
            EchoFault::HostUnreachable => Unreachable::Host,
            EchoFault::NotAllowed | EchoFault::NoSocket => {
                let (why, end) = match fault {
                    EchoFault::NotAllowed => (Refusal::NoPing, EndReason::Refused),
                    _ => (Refusal::Limit, EndReason::Evicted),
                };
                common.unreachable(ends, Unreachable::Prohibited, whole, out);
                let decision = common.decide_echo(now, ends.dst.ip());
                common.refuse(now, proto(ends.dst.ip()), ends, decision, why);
                return self.over(common, now, id, end);
            }
        };
        common.unreachable(ends, why, whole, out);
        self.pulse(now, id);
    }

    fn pulse(&mut self, now: Now, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.last = now;
            self.timers.set(id, &mut flow.alarm, Some(now + ECHO_IDLE));
        }
    }

    /// An echo reply came to a flow's ping socket.
    pub(crate) fn reply(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        from: IpAddr,
        (seq, data): (u16, &[u8]),
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        if flow.waiting.is_some() || flow.ends.dst.ip() != from {
            return;
        }
        let ends = flow.ends;
        if let Err((decision, why)) = common.echo_stands(from, &mut flow.basis) {
            common.refuse(now, proto(from), ends, decision, why);
            return self.over(common, now, id, EndReason::Refused);
        }
        if common.echo_in(ends, seq, data, out) {
            flow.bytes_in += u64::try_from(data.len()).unwrap_or(0);
            self.pulse(now, id);
        }
    }

    /// An ICMP error came to a flow's ping socket. It is carried on if it is one
    /// that an echo request may earn, and about one that this flow sent.
    pub(crate) fn failed(
        &mut self,
        common: &mut Common,
        now: Now,
        id: FlowId,
        error: EchoError,
        out: &mut dyn Outlet,
    ) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        let about = flow.recent.iter().find(|(seq, _)| *seq == error.seq);
        let Some((_, about)) = about.filter(|_| flow.waiting.is_none()) else {
            return;
        };
        let Some(rest) = icmp_wire::carried(flow.ends.dst.ip(), error) else {
            return;
        };
        common.echo_error(now, flow.ends, error, rest, about, out);
    }

    fn over(&mut self, common: &mut Common, now: Now, id: FlowId, reason: EndReason) {
        let Some(flow) = self.remove(id) else {
            return;
        };
        if let Some(waiting) = &flow.waiting {
            self.waiters.end(waiting);
            // A late word on its entry means nothing any more.
            common.take_ticket(waiting.ticket);
        }
        common.actions.push_back(Action::Close {
            flow: id,
            reset: false,
        });
        common.ended(
            now,
            End {
                flow: id,
                opened: flow.opened,
                bytes_out: flow.bytes_out,
                bytes_in: flow.bytes_in,
                reason,
                outer_src: flow.outer_src,
            },
        );
    }

    fn remove(&mut self, id: FlowId) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        self.timers.sweep(&mut self.flows);
        self.by_ends.remove(&flow.ends);
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

    /// Ends every flow that the policy does not grant any more, and says so to the
    /// box; how many there were. What waits for its entry is refused when that stands,
    /// unless the reach changed.
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
            if waits || common.echo_stands(ends.dst.ip(), &mut flow.basis).is_ok() {
                continue;
            }
            ended += 1;
            for packet in flow.waiting.iter().flat_map(|waiting| &waiting.packets) {
                common.unreachable(ends, Unreachable::Prohibited, packet, out);
            }
            self.over(common, now, id, why);
        }
        ended
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
        common.unreachable(ends, Unreachable::Prohibited, packet, out);
    }
    let decision = common.decide_echo(now, ends.dst.ip());
    let why = Refusal::StoreUnavailable;
    common.refuse(now, proto(ends.dst.ip()), ends, decision, why);
}
