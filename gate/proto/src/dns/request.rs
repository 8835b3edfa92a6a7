//! What the box's messages ask, and the messages that go to resolvers.

use std::net::SocketAddr;

use bailey_model::{Host, Transport};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};

use super::{host_of, reply};

/// What a resolver may send over UDP: fits an unfragmented IPv6 packet
/// (DNS flag day 2020).
const UPSTREAM_PAYLOAD: u16 = 1_232;
/// Octets of a message's header, RFC 1035 §4.1.1.
const HEADER: usize = 12;

/// A well-formed question of class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) client: SocketAddr,
    pub(super) transport: Transport,
    pub(super) id: u16,
    pub(super) recursion_desired: bool,
    /// As asked, case kept.
    pub(super) query: Query,
    pub(super) qtype: RecordType,
    /// The payload that the box takes over UDP, if it spoke EDNS.
    pub(super) edns: Option<u16>,
}

impl Request {
    pub(super) fn name(&self) -> &Name {
        self.query.name()
    }

    pub(super) fn host(&self) -> Option<Host> {
        host_of(self.name())
    }
}

pub(super) enum Received {
    /// Not a query: answering it could make a loop.
    Nothing,
    /// Answered by its form alone.
    Answered(Vec<u8>),
    Question(Request),
}

/// Reads a message from the box.
pub(super) fn receive(client: SocketAddr, transport: Transport, bytes: &[u8]) -> Received {
    let Some(&[id_high, id_low, flags, ..]) = bytes.get(..HEADER) else {
        return Received::Nothing;
    };
    if flags & 0x80 != 0 {
        return Received::Nothing;
    }
    let id = u16::from_be_bytes([id_high, id_low]);
    let op_code = OpCode::from_u8((flags >> 3) & 0xf);
    let bare = |code| Received::Answered(reply::bare(id, op_code, flags & 1 != 0, code));
    if op_code != OpCode::Query {
        return bare(ResponseCode::NotImp);
    }
    let Ok(mut message) = Message::from_vec(bytes) else {
        return bare(ResponseCode::FormErr);
    };
    let Some(query) = message.queries.pop() else {
        return bare(ResponseCode::FormErr);
    };
    if !message.queries.is_empty() || message.metadata.message_type != MessageType::Query {
        return bare(ResponseCode::FormErr);
    }
    let version = message.edns.as_ref().map_or(0, Edns::version);
    let request = Request {
        client,
        transport,
        id,
        recursion_desired: message.metadata.recursion_desired,
        qtype: query.query_type(),
        query,
        edns: message.edns.as_ref().map(Edns::max_payload),
    };
    let refused = match (request.query.query_class(), u16::from(request.qtype)) {
        _ if version != 0 => Some(ResponseCode::BADVERS),
        // ANY is answered; zone transfers and the other meta types are not.
        (DNSClass::IN, 255) => None,
        (DNSClass::IN, 0 | 41 | 128..=254) => Some(ResponseCode::Refused),
        (DNSClass::IN, _) => None,
        _ => Some(ResponseCode::Refused),
    };
    match refused {
        Some(code) => Received::Answered(reply::encode(&request, reply::Answer::code(code))),
        None => Received::Question(request),
    }
}

/// Whom a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A resolver that knows EDNS, as far as is known.
    Resolver,
    /// A resolver that may know none.
    Plain,
    /// Whoever is on the link.
    Link,
}

/// The message that puts a name to somebody; `None` if it has no wire form.
pub(super) fn upstream(id: u16, name: &Name, qtype: RecordType, to: Asked) -> Option<Vec<u8>> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = to != Asked::Link;
    message.add_query(Query::query(name.clone(), qtype));
    if to == Asked::Resolver {
        let mut edns = Edns::new();
        edns.set_max_payload(UPSTREAM_PAYLOAD);
        message.set_edns(edns);
    }
    message.to_vec().ok()
}
