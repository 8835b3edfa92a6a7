//! The gate without its sockets: what a box's packets lead to.
//!
//! Pure: packets, outcomes of dials, time and entropy go in; packets, dials and
//! events come out. The shell owns the TUN, the host's sockets and the clock.

#![forbid(unsafe_code)]

mod addr;
mod bounds;
pub mod capture;
pub mod channel;
mod coalesce;
mod dns;
mod explain;
mod flow;
mod flow_common;
mod flow_dns;
mod flow_echo;
mod flow_name;
mod flow_progress;
mod flow_tell;
mod flow_timer;
mod flow_waiting;
mod fragments;
mod gate;
mod host_end;
mod icmp;
mod icmp_wire;
mod mdns;
mod names;
mod packet;
mod peek;
mod policy;
mod seal;
mod slate;
mod tcp;
mod tcp_live;
mod udp;
mod udp_inbound;

pub use addr::{NodeAddrs, classify, classify_end, nat64_prefixes, stricter, unmapped};
pub use bounds::MAX_BUFFER_BYTES;
pub use coalesce::{Coalescer, Seen, WINDOW};
pub use dns::{AskId, Dns, DnsFacts, DnsOutput, ExchangeId};
pub use explain::{
    AddrExplained, Explain, Explained, MAX_EXPLAINED, NameExplained, Whom, explain, is_grantable,
    refusal,
};
pub use flow::*;
pub use flow_progress::{MAX_PROGRESS, PROGRESS_APART, PROGRESS_EVERY};
pub use fragments::{FRAGMENT_TIMEOUT, MAX_FRAGMENT_BYTES, MAX_FRAGMENT_SETS, MAX_FRAGMENTS};
pub use gate::Gate;
pub use icmp::{
    ECHO_IDLE, Echo, EchoError, EchoFault, MAX_ECHO_FLOWS, MAX_PENDING_ECHO, MAX_WAITING_ECHO,
    MAX_WAITING_ECHO_BYTES,
};
pub use mdns::is_group as is_mdns;
pub use names::NameTable;
pub use policy::{Decision, NameReach, Policy};
pub use slate::{Note, SLATE_LEN, SLATE_NONCE, SLOTS, Slate, SlateKey, read_slate};
pub use udp_inbound::MAX_INBOUND_UDP;

/// Targets for a fuzzer, each replayed by an ordinary test.
pub mod fuzz {
    pub use crate::dns::fuzz::fuzz_dns;
    pub use crate::gate::fuzz::fuzz_tun as gate_tun;
    pub use crate::gate::storm::storm as gate_packets;
    pub use crate::peek::fuzz::{fuzz_quic_initial as quic_initial, fuzz_sni as sni};
}

/// Time since the gate's start, by a clock that never goes back.
pub type Now = std::time::Duration;
