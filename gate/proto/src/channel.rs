//! The words between the node and one box's gate, one frame each way a value.
//!
//! The node holds the other end of the gate's standard input. Which box a
//! message belongs to is the channel it came by, never a field. An end of file
//! is the node gone: the gate ends at once.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bailey_model::{
    FlowEnded, FlowNamed, FlowOpened, FlowProgressed, FlowRefused, Host, NameAnswered, NameAsked,
    Publish, Reach, Transport,
};
use serde::{Deserialize, Serialize};

use crate::capture::Headers;
use crate::explain::{Explain, Explained};
use crate::slate::SlateKey;

/// From the node to the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGate {
    /// The first message, with descriptors: the TUN, then a bound socket for
    /// each of [`GateConfig::published`].
    Start(GateConfig),
    /// The entry of this ticket stands in the journal: dial, or ask upstream.
    Committed {
        /// The ticket of the event.
        ticket: u64,
    },
    /// The store cannot take the entry: refuse
    /// ([`StoreUnavailable`](bailey_model::Refusal::StoreUnavailable)).
    Refused {
        /// The ticket of the event.
        ticket: u64,
    },
    /// From here on flows are noted before they are dialled ([`Slate`](crate::Slate)),
    /// in the file that comes with it, and told with [`FromGate::Noted`].
    Slate(SlateKey),
    /// Notes up to this number stand in the journal.
    Entered {
        /// The number of the last of them.
        upto: u64,
    },
    /// The store cannot take entries: whatever is new asks until every note stands.
    Ask,
    /// What the gate cannot read by itself has changed.
    Facts(HostFacts),
    /// What the box may dial is this from here on, all at once. Flows that it
    /// does not grant are reset; answered by [`FromGate::Reached`].
    Reach(Reach),
    /// What would be decided? Answered by [`FromGate::Explained`], in order.
    Explain(Explain),
    /// Say the headers of every packet from here on ([`FromGate::Captured`]), or no
    /// more: the last of them then say that they are.
    Capture(bool),
    /// The box's processes are held from here on, or go on: while they are, nothing
    /// new begins in either direction. Answered by [`FromGate::Held`].
    Hold(bool),
    /// The box has ended by itself: what its programs had sent goes on for a while,
    /// nothing new does. Then as [`Self::Stop`].
    Finish,
    /// Reset every flow and answer [`FromGate::Stopped`].
    Stop,
}

/// What a gate needs to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateConfig {
    /// What the box may dial.
    pub reach: Reach,
    /// What each descriptor after the TUN is for: a socket on the node's
    /// loopback, bound and (for TCP) listening. A port has one for each family.
    pub published: Vec<Publish>,
    /// What the gate cannot read by itself.
    pub facts: HostFacts,
    /// 32 bytes of the operating system's entropy, for sequence numbers, ports
    /// and question ids.
    pub seed: [u8; 32],
}

/// What the gate cannot read once it is confined; the node follows the files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// The node's name servers, in order (resolv.conf(5)); a link-local one with
    /// the number of its interface.
    #[serde(with = "scoped")]
    pub resolvers: Vec<SocketAddr>,
    /// The node's search list (resolv.conf(5)), for names of one label.
    pub search: Vec<String>,
    /// The node's hosts file (hosts(5)).
    pub hosts: Vec<(IpAddr, Vec<String>)>,
    /// The node's own listeners, which no word grants.
    pub node_listeners: Vec<(Transport, SocketAddr)>,
    /// Prefixes under which the network translates to IPv4, besides the
    /// well-known one ([`nat64_prefixes`](crate::nat64_prefixes)).
    pub nat64: Vec<(Ipv6Addr, u8)>,
}

/// Addresses with the interface that a link-local one is on, which their own
/// binary form leaves out.
mod scoped {
    use std::net::SocketAddr;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        addrs: &[SocketAddr],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let scoped = |addr: &SocketAddr| match addr {
            SocketAddr::V4(_) => (*addr, 0),
            SocketAddr::V6(v6) => (*addr, v6.scope_id()),
        };
        addrs
            .iter()
            .map(scoped)
            .collect::<Vec<(SocketAddr, u32)>>()
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<SocketAddr>, D::Error> {
        let scoped = Vec::<(SocketAddr, u32)>::deserialize(deserializer)?;
        Ok(scoped
            .into_iter()
            .map(|(mut addr, scope)| {
                if let SocketAddr::V6(v6) = &mut addr {
                    v6.set_scope_id(scope);
                }
                addr
            })
            .collect())
    }
}

/// From the gate to the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGate {
    /// The TUN is read, addresses and routes are known, the gate is confined.
    Ready,
    /// Something to enter.
    Event {
        /// Set where something waits for [`ToGate::Committed`] or
        /// [`ToGate::Refused`]: a dial, or a question.
        ticket: Option<u64>,
        /// What happened.
        event: GateEvent,
    },
    /// Flows that are noted and dialled; their entries come before whatever else is
    /// told of them.
    Noted {
        /// The number of the first note; each further one has the next.
        first: u64,
        /// The flows, in order.
        flows: Vec<FlowOpened>,
    },
    /// The answer to [`ToGate::Reach`]: decisions are by it.
    Reached {
        /// Flows that it does not grant, which were reset.
        flows_reset: u32,
    },
    /// The answer to [`ToGate::Hold`].
    Held(bool),
    /// The answer to [`ToGate::Explain`].
    Explained(Explained),
    /// Headers of packets, while they are asked for ([`ToGate::Capture`]).
    Captured {
        /// In the order in which they passed.
        packets: Vec<Headers>,
        /// How many found no room on their way here since the last message.
        dropped: u64,
        /// Whether no more come.
        last: bool,
    },
    /// Every flow is reset.
    Stopped {
        /// How many there were, those being dialled included.
        flows_reset: u32,
    },
}

/// What a gate has to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GateEvent {
    /// An allowed flow, before its dial; always with a ticket.
    FlowOpened(FlowOpened),
    /// A refused flow or name.
    FlowRefused(FlowRefused),
    /// A name that is refused was asked for as one of the web (type 65, RFC 9460 §9).
    /// It is no entry: who is told of the refusal is told the port that is meant.
    WebName(Host),
    /// What an allowed flow's first bytes said of its name.
    FlowNamed(FlowNamed),
    /// How far an allowed flow under way has come.
    FlowProgressed(FlowProgressed),
    /// The end of an allowed flow.
    FlowEnded(FlowEnded),
    /// A name in reach. With a ticket before it is asked upstream; without one
    /// when it closes the 10 s of equal ones with their count.
    NameAsked(NameAsked),
    /// What the box was answered for such a name, or how often the same within 10 s.
    NameAnswered(NameAnswered),
}
