//! How much a gate holds, and how much it may.

use super::Gate;
use crate::flow::{
    MAX_DNS_TCP, MAX_EVENTS, MAX_INBOUND_TCP, MAX_PENDING_TCP, MAX_PENDING_UDP, MAX_TCP_FLOWS,
    MAX_TOMBSTONES, MAX_UDP_FLOWS, MAX_UDP_PORTS, MAX_WAITING_BYTES,
};
use crate::flow_progress::MAX_FLOWS;
use crate::flow_timer::MAX_STALE;
use crate::fragments::{MAX_FRAGMENT_BYTES, MAX_FRAGMENT_SETS};
use crate::icmp::{MAX_ECHO_FLOWS, MAX_PENDING_ECHO, MAX_WAITING_ECHO_BYTES};
use crate::packet::MAX_PACKET;
use crate::udp_inbound::MAX_INBOUND_UDP;

/// What a gate holds, table by table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) tcp: usize,
    pub(crate) tcp_ends: usize,
    pub(crate) tcp_pending: usize,
    pub(crate) tcp_inbound: usize,
    pub(crate) touched: usize,
    pub(crate) engines: usize,
    pub(crate) udp: usize,
    pub(crate) udp_ports: usize,
    pub(crate) udp_pending: usize,
    pub(crate) udp_waiting: usize,
    pub(crate) udp_peeked: usize,
    pub(crate) echoes: usize,
    pub(crate) echo_pending: usize,
    pub(crate) echo_waiting: usize,
    pub(crate) callers: usize,
    pub(crate) caller_pending: usize,
    pub(crate) caller_kept: usize,
    pub(crate) fragment_sets: usize,
    pub(crate) fragment_bytes: usize,
    pub(crate) dns_questions: usize,
    pub(crate) dns_connections: usize,
    pub(crate) dns_engines: usize,
    pub(crate) tickets: usize,
    pub(crate) events: usize,
    pub(crate) actions: usize,
    /// Deadlines in the heaps of all flows, stale ones included.
    pub(crate) deadlines: usize,
    /// Flows that were told of while under way, some of which are gone.
    pub(crate) progress: usize,
    /// Closed flows that are still answered. They go when others take their
    /// place, so their number says nothing about a leak.
    pub(crate) tombstones: usize,
}

/// Entries of questions that may be waited for (`dns::MAX_ENTRIES`).
const MAX_DNS_ENTRIES: usize = 512;

impl Census {
    /// The first table that is past its bound, with what it holds.
    pub(crate) fn beyond(&self) -> Option<(&'static str, usize, usize)> {
        let flows = self.tcp + self.udp + self.echoes + self.callers;
        [
            ("tcp", self.tcp, MAX_TCP_FLOWS),
            ("tcp ends", self.tcp_ends, self.tcp),
            ("tcp pending", self.tcp_pending, MAX_PENDING_TCP),
            ("tcp inbound", self.tcp_inbound, MAX_INBOUND_TCP),
            ("touched", self.touched, MAX_TCP_FLOWS),
            ("engines", self.engines, self.tcp),
            ("udp", self.udp, MAX_UDP_FLOWS),
            ("udp ports", self.udp_ports, MAX_UDP_PORTS),
            ("udp pending", self.udp_pending, MAX_PENDING_UDP),
            // The last one that is let in may be the longest.
            (
                "udp waiting",
                self.udp_waiting,
                MAX_WAITING_BYTES + MAX_PACKET,
            ),
            ("echoes", self.echoes, MAX_ECHO_FLOWS),
            ("echo pending", self.echo_pending, MAX_PENDING_ECHO),
            (
                "echo waiting",
                self.echo_waiting,
                MAX_WAITING_ECHO_BYTES + MAX_PACKET,
            ),
            ("callers", self.callers, MAX_INBOUND_UDP),
            ("caller pending", self.caller_pending, MAX_PENDING_UDP),
            ("caller kept", self.caller_kept, MAX_WAITING_BYTES),
            ("fragment sets", self.fragment_sets, MAX_FRAGMENT_SETS),
            ("fragment bytes", self.fragment_bytes, MAX_FRAGMENT_BYTES),
            ("dns connections", self.dns_connections, MAX_DNS_TCP),
            ("dns engines", self.dns_engines, self.dns_connections),
            ("tickets", self.tickets, flows + MAX_DNS_ENTRIES),
            // Ends and counts are told whatever waits; beginnings are not.
            ("events", self.events, 2 * MAX_EVENTS + MAX_TCP_FLOWS),
            // Each of four heaps; a flow's deadline may have moved nearer a few times.
            ("deadlines", self.deadlines, 4 * flows + 4 * 2 * MAX_STALE),
            ("progress", self.progress, MAX_FLOWS),
            ("tombstones", self.tombstones, MAX_TOMBSTONES),
        ]
        .into_iter()
        .find(|(_, held, most)| held > most)
    }

    /// Without what stays on purpose: empty once every flow is over and every
    /// timer has run.
    pub(crate) fn leaked(self) -> Option<Self> {
        let held = Self {
            tombstones: 0,
            ..self
        };
        (held != Self::default()).then_some(held)
    }
}

impl Gate {
    /// What it holds now.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        self.tcp.count(&mut census);
        self.udp.count(&mut census);
        self.echoes.count(&mut census);
        self.callers.count(&mut census);
        self.door.count(&mut census);
        self.fragments.count(&mut census);
        self.common.count(&mut census);
        census
    }
}
