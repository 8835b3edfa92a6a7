//! The gate of one box: packets, outcomes and time in; packets, dials and
//! events out.
//!
//! What a shell does: give it every packet of the TUN and every word of the
//! node; after each, take [`Gate::poll_action`] and [`Gate::poll_event`] empty,
//! and give each flow of [`Gate::next_touched`] its [`Gate::turn`] with the
//! flow's socket.

use std::net::{IpAddr, SocketAddr};

use bailey_model::link::{BOX_V4, BOX_V6};
use bailey_model::{Direction, EndReason, FlowId, Proto, Publish, Refusal};

use crate::Now;
use crate::addr::NodeAddrs;
use crate::channel::{GateConfig, GateEvent, HostFacts};
use crate::dns::{DnsFacts, ExchangeId};
use crate::flow::{Action, DialFault, Dialled, HostStream, Outlet, SendFault, UdpPort};
use crate::flow_common::{Came, Common, Ends, Waits};
use crate::flow_dns::{self, Door};
use crate::flow_tell::Refused;
use crate::fragments::{self, Fragments};
use crate::icmp::{EchoError, Echoes};
use crate::icmp_wire;
use crate::packet::{self, Ip, Unreachable};
use crate::policy::Policy;
use crate::tcp::Tcp;
use crate::udp::Udp;
use crate::udp_inbound::Callers;

pub(crate) mod census;
pub(crate) mod fuzz;
mod reach;
pub(crate) mod storm;

/// The gate of one box.
#[derive(Debug)]
pub struct Gate {
    common: Common,
    tcp: Tcp,
    udp: Udp,
    echoes: Echoes,
    callers: Callers,
    door: Door,
    fragments: Fragments,
}

impl Gate {
    /// A gate that knows where the node is.
    #[must_use]
    pub fn new(now: Now, config: GateConfig, mut addrs: NodeAddrs) -> Self {
        let GateConfig {
            reach, facts, seed, ..
        } = config;
        addrs.nat64.clone_from(&facts.nat64);
        let [a, b, c, d, e, f, g, h, ..] = seed;
        let policy = Policy {
            reach,
            addrs,
            listeners: facts.node_listeners.clone(),
            generation: 1,
        };
        Self {
            common: Common::new(now, policy, u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            tcp: Tcp::new(),
            udp: Udp::new(),
            echoes: Echoes::new(),
            callers: Callers::new(),
            door: Door::new(seed, dns_facts(facts)),
            fragments: Fragments::default(),
        }
    }

    /// What the node knows has changed.
    pub fn set_facts(&mut self, facts: HostFacts) {
        if self.common.policy.listeners != facts.node_listeners {
            self.common
                .policy
                .listeners
                .clone_from(&facts.node_listeners);
            self.common.policy.generation += 1;
        }
        if self.common.policy.addrs.nat64 != facts.nat64 {
            self.common.policy.addrs.nat64.clone_from(&facts.nat64);
            self.common.policy.generation += 1;
        }
        self.door.dns().set_facts(dns_facts(facts));
    }

    /// The node's addresses or routes have changed. Its translation prefixes are
    /// no part of what the kernel lists: those of the last facts stand.
    pub fn set_addrs(&mut self, mut addrs: NodeAddrs) {
        addrs.nat64.clone_from(&self.common.policy.addrs.nat64);
        if self.common.policy.addrs != addrs {
            self.common.policy.addrs = addrs;
            self.common.policy.generation += 1;
        }
    }

    /// To be called after [`Self::set_facts`] and [`Self::set_addrs`]: dials under way
    /// whose address is of another kind now are refused, and what is established is
    /// reset and ends with [`NetworkChanged`](bailey_model::EndReason::NetworkChanged).
    /// A name whose time ran out is no such change.
    pub fn judge_anew(&mut self, now: Now, out: &mut dyn Outlet) {
        self.tcp.judge_dials(&mut self.common, now, out);
        self.revoke(now, EndReason::NetworkChanged, out);
    }

    /// A packet from the box. Anything that is not a whole packet of the box's
    /// own is dropped.
    pub fn handle_tun(&mut self, now: Now, packet: &[u8], out: &mut dyn Outlet) {
        let Some(ip) = packet::parse(packet) else {
            return;
        };
        let own = ip.src == IpAddr::V4(BOX_V4)
            || ip.src == IpAddr::V6(BOX_V6)
            || (ip.proto == packet::TCP && crate::tcp::is_answer_of_loopback(&ip));
        if is_housekeeping(&ip) {
            return;
        }
        if let Some(flow) = self.callers.answered(&ip) {
            return self.callers.answer(now, flow, &ip, out);
        }
        if self.callers.nobody(&mut self.common, now, &ip, out) {
            return;
        }
        if !own {
            return self.refuse_protocol(now, &ip, None, out);
        }
        if !ip.fragment {
            return self.handle_whole(now, &ip, out);
        }
        // No kernel cuts a segment of TCP.
        let carried = [packet::UDP, packet::ICMP, packet::ICMPV6];
        if !carried.contains(&fragments::proto(&ip)) {
            return self.refuse_protocol(now, &ip, None, out);
        }
        let whole = self.fragments.take(now, &ip);
        let Some(ip) = whole.as_deref().and_then(packet::parse) else {
            return;
        };
        match self.callers.answered(&ip) {
            Some(flow) => self.callers.answer(now, flow, &ip, out),
            None => self.handle_whole(now, &ip, out),
        }
    }

    /// A packet of the box's own, in one piece.
    fn handle_whole(&mut self, now: Now, ip: &Ip<'_>, out: &mut dyn Outlet) {
        let dns = flow_dns::is_for(ip);
        match ip.proto {
            packet::TCP if dns => self.door.handle_tcp(&mut self.common, now, ip, out),
            packet::TCP => self.tcp.handle(&mut self.common, now, ip, out),
            packet::UDP if dns => {
                self.door.handle_udp(&mut self.common, now, ip);
                self.door.flush(&mut self.common, now, out);
            }
            packet::UDP => self.udp.handle(&mut self.common, now, ip, out),
            packet::ICMP | packet::ICMPV6 if icmp_wire::is_echo(ip) => {
                self.echoes.handle(&mut self.common, now, ip, out);
            }
            // Other ICMP of the box answers packets that it was sent.
            packet::ICMP | packet::ICMPV6 => {}
            _ => self.refuse_protocol(now, ip, Some(Unreachable::Protocol), out),
        }
    }

    fn refuse_protocol(
        &mut self,
        now: Now,
        ip: &Ip<'_>,
        why: Option<Unreachable>,
        out: &mut dyn Outlet,
    ) {
        let proto = match ip.proto {
            packet::TCP => Proto::Tcp,
            packet::UDP => Proto::Udp,
            other => Proto::Other(other),
        };
        let (src, dst) = (SocketAddr::new(ip.src, 0), SocketAddr::new(ip.dst, 0));
        let refused = Refused {
            direction: Direction::Out,
            proto,
            src: Some(src),
            dst: Some(dst),
            host: None,
            class: Some(crate::addr::classify(ip.dst, &self.common.policy.addrs)),
            refusal: Refusal::Protocol,
        };
        self.common.told.refused(now, refused);
        if let Some(why) = why {
            self.common
                .unreachable(Ends { src, dst }, why, ip.whole, out);
        }
    }

    /// The node's word on an event with a ticket: its entry stands, or cannot
    /// be written.
    pub fn handle_ticket(&mut self, now: Now, ticket: u64, stands: bool, out: &mut dyn Outlet) {
        let common = &mut self.common;
        match (common.take_ticket(ticket), stands) {
            (Some(Waits::Tcp(flow)), true) => self.tcp.committed(common, now, flow, out),
            (Some(Waits::Tcp(flow)), false) => self.tcp.refused(common, now, flow, out),
            (Some(Waits::Udp(flow)), true) => self.udp.committed(common, now, flow, out),
            (Some(Waits::Udp(flow)), false) => self.udp.refused(common, now, flow, out),
            (Some(Waits::Echo(flow)), true) => self.echoes.committed(common, now, flow, out),
            (Some(Waits::Echo(flow)), false) => self.echoes.refused(common, now, flow, out),
            (Some(Waits::Came(flow)), true) => self.callers.committed(common, now, flow, out),
            (Some(Waits::Came(flow)), false) => self.callers.refused(common, now, flow),
            (Some(Waits::Dns(id)), stands) => {
                match stands {
                    true => self.door.dns().handle_committed(now, id, &common.policy),
                    false => self.door.dns().handle_refused(now, id),
                }
                self.door.flush(common, now, out);
            }
            (None, _) => {}
        }
    }

    /// What came of [`Action::Dial`]; or that the socket of a flow from
    /// [`Self::handle_accepted`] could not be kept.
    pub fn handle_dialled(
        &mut self,
        now: Now,
        flow: FlowId,
        outcome: Result<Dialled, DialFault>,
        out: &mut dyn Outlet,
    ) {
        self.tcp.dialled(&mut self.common, now, flow, outcome, out);
    }

    /// Somebody came by a published port. Their flow, whose socket the shell
    /// keeps as if it had dialled it; or `None`, and they are to be reset.
    pub fn handle_accepted(
        &mut self,
        now: Now,
        publish: Publish,
        client: SocketAddr,
    ) -> Option<FlowId> {
        self.tcp.accepted(&mut self.common, now, publish, client)
    }

    /// A datagram came by a published port, whose socket is known by its place.
    pub fn handle_came(
        &mut self,
        now: Now,
        (place, publish): (u64, Publish),
        client: SocketAddr,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        let came = Came { publish, client };
        self.callers
            .came(&mut self.common, now, place, came, data, out);
    }

    /// Somebody came by a published port and was reset for want of a descriptor.
    pub fn handle_accept_failed(&mut self, now: Now, publish: Publish, client: SocketAddr) {
        let came = Came { publish, client };
        self.common.refuse_inbound(now, came, Refusal::Limit);
    }

    /// A flow's socket can be read or written (again); it gets a turn.
    pub fn handle_ready(&mut self, flow: FlowId, readable: bool, writable: bool) {
        self.tcp.ready(flow, readable, writable);
    }

    /// Whether [`Self::next_touched`] has one.
    #[must_use]
    pub fn has_touched(&self) -> bool {
        self.tcp.has_touched()
    }

    /// The next flow that wants a turn.
    pub fn next_touched(&mut self) -> Option<FlowId> {
        self.tcp.next_touched()
    }

    /// A flow's turn: moves what can be moved between the box and its socket.
    pub fn turn(
        &mut self,
        now: Now,
        flow: FlowId,
        host: &mut dyn HostStream,
        out: &mut dyn Outlet,
    ) {
        self.tcp.turn(&mut self.common, now, flow, host, out);
    }

    /// A port's outer socket was made and has this address.
    pub fn handle_udp_bound(&mut self, port: UdpPort, outer: SocketAddr) {
        self.udp.bound(port, outer);
    }

    /// A datagram came to a port's outer socket.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        port: UdpPort,
        from: SocketAddr,
        data: &[u8],
        out: &mut dyn Outlet,
    ) {
        self.udp
            .incoming(&mut self.common, now, port, from, data, out);
    }

    /// An ICMP error came for what a port's outer socket sent to `to`.
    pub fn handle_datagram_failed(
        &mut self,
        port: UdpPort,
        to: SocketAddr,
        fault: SendFault,
        out: &mut dyn Outlet,
    ) {
        self.udp.failed(&mut self.common, port, to, fault, out);
    }

    /// An echo reply came to a flow's ping socket: its sequence number, and
    /// what follows its header.
    pub fn handle_echo_reply(
        &mut self,
        now: Now,
        flow: FlowId,
        from: IpAddr,
        reply: (u16, &[u8]),
        out: &mut dyn Outlet,
    ) {
        self.echoes
            .reply(&mut self.common, now, flow, from, reply, out);
    }

    /// An ICMP error came for what a flow's ping socket sent.
    pub fn handle_echo_failed(
        &mut self,
        now: Now,
        flow: FlowId,
        error: EchoError,
        out: &mut dyn Outlet,
    ) {
        self.echoes.failed(&mut self.common, now, flow, error, out);
    }

    /// A resolver's message, with the address that it came from.
    pub fn handle_upstream(
        &mut self,
        now: Now,
        id: ExchangeId,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut dyn Outlet,
    ) {
        let common = &mut self.common;
        self.door
            .dns()
            .handle_upstream(now, id, from, bytes, &common.policy, &mut common.names);
        self.door.flush(common, now, out);
    }

    /// An exchange failed: no socket, no route, refused, reset.
    pub fn handle_upstream_failed(&mut self, now: Now, id: ExchangeId, out: &mut dyn Outlet) {
        self.door.dns().handle_unreachable(now, id);
        self.door.flush(&mut self.common, now, out);
    }

    /// The box's processes are held, or go on. While they are held what is established
    /// stays as it is, and nothing new begins in either direction: a box whose kernel
    /// alone answers would seem to be there.
    pub fn set_paused(&mut self, paused: bool) {
        self.common.paused = paused;
    }

    /// The box has ended by itself: nothing new begins from now on. What its programs
    /// had sent when they ended is with its kernel and this gate; [`Self::is_finished`]
    /// says when it is all with the node's.
    pub fn finish(&mut self) {
        self.common.stopping = true;
    }

    /// Whether every stream of the box has said all that it will, and it went on.
    #[must_use]
    pub fn is_finished(&mut self) -> bool {
        self.tcp.all_delivered()
    }

    /// Resets every flow, on both sides once the actions are done, and refuses
    /// everything from now on. The number of flows, those being dialled and
    /// UDP's and echoes included.
    ///
    /// After [`Self::finish`] a stream whose bytes all went on is closed and not
    /// reset, and not counted.
    pub fn stop(&mut self, now: Now, out: &mut dyn Outlet) -> u32 {
        let common = &mut self.common;
        if std::mem::replace(&mut common.stopping, true) {
            self.tcp.close_delivered(common, now);
        }
        let flows = self.tcp.stop(common, now, out)
            + self.udp.stop(common, now)
            + self.echoes.stop(common, now)
            + self.callers.stop(common, now);
        self.door.stop(common, now, out);
        common.told.close(now);
        u32::try_from(flows).unwrap_or(u32::MAX)
    }

    /// Number of flows, those being dialled and UDP's and echoes included.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.tcp.len() + self.udp.len() + self.echoes.len() + self.callers.len()
    }

    /// The next thing that the shell has to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.common.actions.pop_front()
    }

    /// When [`Self::poll_due_event`] has something; `None` if there is nothing.
    #[must_use]
    pub fn events_due(&self) -> Option<Now> {
        self.common.told.due()
    }

    /// The next event for the node, with a ticket where something waits: at once
    /// what somebody may wait for, ends of flows after a while and together.
    pub fn poll_due_event(&mut self, now: Now) -> Option<(Option<u64>, GateEvent)> {
        self.common.told.poll_due(now)
    }

    /// The next event, due or not: no other must come before what is said next.
    pub fn poll_event(&mut self) -> Option<(Option<u64>, GateEvent)> {
        self.common.told.poll()
    }

    /// When to call [`Self::handle_timeout`]; perhaps too early, never too late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Now> {
        [
            self.tcp.poll_timeout(),
            self.udp.poll_timeout(),
            self.echoes.poll_timeout(),
            self.callers.poll_timeout(),
            self.door.poll_timeout(),
            self.fragments.poll_timeout(),
            self.common.told.poll_timeout(),
            self.common.progress.look_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut dyn Outlet) {
        self.tcp.handle_timeout(&mut self.common, now, out);
        self.udp.handle_timeout(&mut self.common, now, out);
        self.echoes.handle_timeout(&mut self.common, now, out);
        self.callers.handle_timeout(&mut self.common, now);
        self.door.handle_timeout(&mut self.common, now, out);
        self.fragments.expire(now);
        self.common.told.collect(now);
        self.tell_progress(now);
    }

    /// Tells how far flows under way have come, those that are due.
    fn tell_progress(&mut self, now: Now) {
        let common = &mut self.common;
        if common.progress.look_at().is_none_or(|at| at > now) {
            return;
        }
        let streams = self.tcp.counted().chain(self.udp.counted());
        let flows = streams.chain(self.echoes.counted());
        let flows = flows.chain(self.callers.counted());
        let room = common.told.has_room();
        for it in common.progress.look(now, room, flows) {
            common.told.in_company(now, GateEvent::FlowProgressed(it));
        }
    }
}

fn dns_facts(facts: HostFacts) -> DnsFacts {
    DnsFacts::new(facts.resolvers, &facts.search, &facts.hosts)
}

/// What a kernel sends on a new link by itself, which no program asked for:
/// group memberships (RFC 3376, 3810) and neighbour and router questions
/// (RFC 4861), which nobody on a TUN answers.
fn is_housekeeping(ip: &Ip<'_>) -> bool {
    /// The hop-by-hop header that group reports carry (RFC 8200 §4.3).
    const HOP_BY_HOP: u8 = 0;
    let kind = ip.payload.first().copied();
    match ip.proto {
        packet::IGMP => true,
        packet::ICMPV6 => matches!(kind, Some(130..=137 | 143)),
        HOP_BY_HOP => kind == Some(packet::ICMPV6) && ip.dst.is_multicast(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
