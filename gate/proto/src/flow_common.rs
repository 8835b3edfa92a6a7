//! What TCP, UDP and DNS share: the verdict, numbers, the way to the node.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use bailey_model::link::BOX_V4;
use bailey_model::{
    Direction, EndReason, FiveTuple, FlowEnded, FlowId, FlowOpened, Granted, Host, HostFrom, Proto,
    Publish, Refusal, Transport, Verdict,
};

use crate::Now;
use crate::addr::classify;
use crate::channel::GateEvent;
use crate::dns::AskId;
use crate::flow::{Action, Outlet};
use crate::flow_name::Said;
use crate::flow_progress::Progress;
use crate::flow_tell::{Refused, Told};
use crate::gate::census::Census;
use crate::names::NameTable;
use crate::packet::{self, Segment, Unreachable};
use crate::policy::{Decision, Policy};

/// The two ends of a flow as the box sends its packets: from its own end to the
/// other, whoever began it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
}

/// Who came by a published port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Came {
    pub(crate) publish: Publish,
    pub(crate) client: SocketAddr,
}

impl Came {
    fn direction(self) -> Direction {
        Direction::In {
            client: self.client,
        }
    }

    fn proto(self) -> Proto {
        match self.publish.transport {
            Transport::Tcp => Proto::Tcp,
            Transport::Udp => Proto::Udp,
        }
    }
}

/// What waits for a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    Tcp(FlowId),
    Udp(FlowId),
    Echo(FlowId),
    /// A flow that came in by a published datagram port.
    Came(FlowId),
    /// A question, by the DNS machine's own number.
    Dns(AskId),
}

/// What a flow's verdict rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) host: Option<Host>,
    pub(crate) generation: u64,
    pub(crate) said: Said,
}

impl Basis {
    pub(crate) fn new(host: Option<Host>, policy: &Policy) -> Self {
        Self {
            host,
            generation: policy.generation,
            said: Said::default(),
        }
    }
}

/// A flow's end, as its table knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) flow: FlowId,
    pub(crate) opened: Now,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) reason: EndReason,
    pub(crate) outer_src: Option<SocketAddr>,
}

/// The flows of a table, oldest first.
pub(crate) fn oldest_first<T>(flows: &HashMap<FlowId, T>) -> Vec<FlowId> {
    let mut ids: Vec<FlowId> = flows.keys().copied().collect();
    ids.sort_unstable();
    ids
}

#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) policy: Policy,
    pub(crate) names: NameTable,
    pub(crate) told: Told,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) progress: Progress,
    pub(crate) stopping: bool,
    /// Nothing of the box runs: what is there stays, nothing new begins.
    pub(crate) paused: bool,
    tickets: HashMap<u64, Waits>,
    next_ticket: u64,
    next_flow: u64,
    random: u64,
    pub(crate) reply: Vec<u8>,
}

impl Common {
    pub(crate) fn new(now: Now, policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            names: NameTable::new(),
            told: Told::new(now),
            actions: VecDeque::new(),
            progress: Progress::default(),
            stopping: false,
            paused: false,
            tickets: HashMap::new(),
            next_ticket: 1,
            next_flow: 1,
            random: seed,
            reply: Vec::new(),
        }
    }

    pub(crate) fn count(&self, census: &mut Census) {
        census.tickets = self.tickets.len();
        census.events = self.told.len();
        census.actions = self.actions.len();
        census.progress = self.progress.len();
    }

    pub(crate) fn decide(&self, now: Now, over: Transport, dst: SocketAddr) -> Decision {
        self.policy
            .decide(over, dst, self.names.names(now, dst.ip()))
    }

    /// Why nothing new may begin at all, if so.
    pub(crate) fn closed(&self) -> Option<Refusal> {
        if self.stopping {
            Some(Refusal::BoxStopping)
        } else if self.paused {
            Some(Refusal::BoxPaused)
        } else if !self.told.has_room() {
            Some(Refusal::Limit)
        } else {
            None
        }
    }

    /// A number for an interface's own randomness (SplitMix64). It only has to
    /// differ from flow to flow: nobody but the box and the gate is on that wire.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn ticket(&mut self, waits: impl FnOnce(u64) -> Waits) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let waits = waits(ticket);
        self.tickets.insert(ticket, waits);
        ticket
    }

    pub(crate) fn take_ticket(&mut self, ticket: u64) -> Option<Waits> {
        self.tickets.remove(&ticket)
    }

    /// Opens a flow: its number, and the ticket of its entry.
    pub(crate) fn open(
        &mut self,
        now: Now,
        proto: Proto,
        ends: Ends,
        decision: Decision,
        granted: Granted,
        waits: impl FnOnce(FlowId) -> Waits,
    ) -> (FlowId, u64) {
        let (src, dst) = (ends.src, ends.dst);
        let opened = |flow| FlowOpened {
            flow,
            direction: Direction::Out,
            tuple: FiveTuple { proto, src, dst },
            host: decision.host,
            host_from: decision.host_from,
            class: decision.class,
            granted,
        };
        self.enter(now, opened, waits)
    }

    /// Opens a flow that came in by a published port, between these ends of the
    /// link: its number, and the ticket of its entry.
    pub(crate) fn open_inbound(
        &mut self,
        now: Now,
        came: Came,
        ends: Ends,
        waits: impl FnOnce(FlowId) -> Waits,
    ) -> (FlowId, u64) {
        let class = classify(came.client.ip(), &self.policy.addrs);
        let opened = |flow| FlowOpened {
            flow,
            direction: came.direction(),
            tuple: FiveTuple {
                proto: came.proto(),
                src: ends.dst,
                dst: ends.src,
            },
            host: None,
            host_from: HostFrom::None,
            class,
            granted: Granted(format!("publish {}", came.publish)),
        };
        self.enter(now, opened, waits)
    }

    fn enter(
        &mut self,
        now: Now,
        opened: impl FnOnce(FlowId) -> FlowOpened,
        waits: impl FnOnce(FlowId) -> Waits,
    ) -> (FlowId, u64) {
        let flow = FlowId(self.next_flow);
        self.next_flow += 1;
        self.progress.opened(now);
        let ticket = self.ticket(|_| waits(flow));
        self.told
            .push(Some(ticket), GateEvent::FlowOpened(opened(flow)));
        (flow, ticket)
    }

    /// Tells that somebody who came by a published port was turned away.
    pub(crate) fn refuse_inbound(&mut self, now: Now, came: Came, why: Refusal) {
        let refused = Refused {
            direction: came.direction(),
            proto: came.proto(),
            src: None,
            dst: Some(SocketAddr::new(BOX_V4.into(), came.publish.box_port)),
            host: None,
            class: Some(classify(came.client.ip(), &self.policy.addrs)),
            refusal: why,
        };
        self.told.refused(now, refused);
    }

    pub(crate) fn ended(&mut self, now: Now, end: End) {
        let took = now.saturating_sub(end.opened).as_micros();
        let ended = FlowEnded {
            flow: end.flow,
            bytes_out: end.bytes_out,
            bytes_in: end.bytes_in,
            duration_us: u64::try_from(took).unwrap_or(u64::MAX),
            end: end.reason,
            outer_src: end.outer_src,
        };
        self.told.ended(now, ended);
    }

    /// Tells that a dial was refused, with what the decision knows of it.
    pub(crate) fn refuse(
        &mut self,
        now: Now,
        proto: Proto,
        ends: Ends,
        of: Decision,
        why: Refusal,
    ) {
        let refused = Refused {
            direction: Direction::Out,
            proto,
            src: Some(ends.src),
            dst: Some(ends.dst),
            host: of.host,
            class: Some(of.class),
            refusal: why,
        };
        self.told.refused(now, refused);
    }

    /// Tells that something about a flow's dial was refused, by what is known of
    /// its far end now.
    pub(crate) fn refuse_now(&mut self, now: Now, over: Transport, ends: Ends, why: Refusal) {
        let decision = self.decide(now, over, ends.dst);
        let proto = match over {
            Transport::Tcp => Proto::Tcp,
            Transport::Udp => Proto::Udp,
        };
        self.refuse(now, proto, ends, decision, why);
    }

    /// Judges a flow's verdict again where what it rested on has changed since.
    /// The name that it was opened for still counts: a name's time may run
    /// out, but never ends a flow. What it said for itself counts too.
    pub(crate) fn stands(
        &self,
        over: Transport,
        dst: SocketAddr,
        basis: &mut Basis,
    ) -> Result<(), (Decision, Refusal)> {
        if basis.generation == self.policy.generation {
            return Ok(());
        }
        let decision = self.policy.decide(over, dst, basis.host.as_ref());
        if let Verdict::Refuse(refusal) = decision.verdict {
            return Err((decision, refusal));
        }
        self.judge_all_said(over, dst, &basis.said)?;
        basis.generation = self.policy.generation;
        Ok(())
    }

    pub(crate) fn reset(&mut self, ends: Ends, to: Segment, out: &mut dyn Outlet) {
        if packet::write_reset(&mut self.reply, ends.dst, ends.src, to) {
            out.packet(&self.reply);
        }
    }

    pub(crate) fn acknowledge(&mut self, ends: Ends, to: Segment, out: &mut dyn Outlet) {
        let next = to.seq.wrapping_add(to.len);
        if packet::write_tcp(
            &mut self.reply,
            ends.dst,
            ends.src,
            to.ack,
            next,
            packet::flag::ACK,
        ) {
            out.packet(&self.reply);
        }
    }

    pub(crate) fn datagram_in(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
        out: &mut dyn Outlet,
    ) -> bool {
        let written = packet::write_udp(&mut self.reply, from, to, data);
        if written {
            out.packet(&self.reply);
        }
        written
    }

    /// Answers a packet with an ICMP error from the address that it was for.
    pub(crate) fn unreachable(
        &mut self,
        ends: Ends,
        why: Unreachable,
        about: &[u8],
        out: &mut dyn Outlet,
    ) {
        use bailey_model::link::{GATE_V4, GATE_V6};
        use std::net::IpAddr;
        // An error from a group or from nowhere would be thrown away.
        let from = match ends.dst.ip() {
            IpAddr::V4(ip) if ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified() => {
                IpAddr::V4(GATE_V4)
            }
            IpAddr::V6(ip) if ip.is_multicast() || ip.is_unspecified() => IpAddr::V6(GATE_V6),
            ip => ip,
        };
        if packet::write_unreachable(&mut self.reply, from, ends.src.ip(), why, about) {
            out.packet(&self.reply);
        }
    }
}
