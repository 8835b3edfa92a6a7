//! A resolver's message: whether it answers, what it says, what of it passes.

use std::net::IpAddr;

use bailey_model::{AddrClass, Host};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HTTPS};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::reply::{MAX_TTL, OWN_TTL};
use super::svcb;
use crate::addr::stricter;
use crate::names::MAX_ADDRS_PER_NAME;
use crate::policy::Policy;

/// Most CNAMEs of one message.
const MAX_CHAIN: usize = 16;

/// What a message is to an exchange.
pub(super) enum Parsed {
    /// Not an answer to what was asked.
    NotOurs,
    /// An answer, cut short.
    Truncated(Box<Message>),
    /// The resolver cannot say.
    Failed,
    /// An answer.
    Answer(Box<Message>),
}

/// Reads a message from a resolver against what it was asked (RFC 5452 §9.1).
pub(super) fn parse(bytes: &[u8], id: u16, name: &Name, qtype: RecordType) -> Parsed {
    // The id first: what does not bear it may be anybody's.
    if bytes.get(..2) != Some(id.to_be_bytes().as_slice()) {
        return Parsed::NotOurs;
    }
    let Ok(message) = Message::from_vec(bytes) else {
        return match bytes.get(2) {
            // A response of that id that does not parse, cut off or not.
            Some(flags) if flags & 0x80 != 0 => Parsed::Failed,
            _ => Parsed::NotOurs,
        };
    };
    let metadata = &message.metadata;
    if metadata.message_type != MessageType::Response || metadata.op_code != OpCode::Query {
        return Parsed::NotOurs;
    }
    match message.queries.as_slice() {
        // FORMERR and the like may come without the question.
        [] if !matches!(
            metadata.response_code,
            ResponseCode::NoError | ResponseCode::NXDomain
        ) =>
        {
            return Parsed::Failed;
        }
        [query]
            if query.name().eq_ignore_root(name)
                && query.query_type() == qtype
                && query.query_class() == DNSClass::IN => {}
        _ => return Parsed::NotOurs,
    }
    match metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain if metadata.truncation => {
            Parsed::Truncated(Box::new(message))
        }
        ResponseCode::NoError | ResponseCode::NXDomain => Parsed::Answer(Box::new(message)),
        _ => Parsed::Failed,
    }
}

/// What an answer says.
#[derive(Clone)]
pub(super) enum Outcome {
    /// It ends in a CNAME whose target must be asked for.
    Follow { chain: Vec<Record>, target: Name },
    /// No such records, or no such name.
    Negative {
        exists: bool,
        chain: Vec<Record>,
        soa: Option<Record>,
    },
    /// The records of the type asked for, behind their CNAMEs.
    Records {
        chain: Vec<Record>,
        records: Vec<Record>,
    },
}

/// Takes from an answer what answers the question, and nothing else.
pub(super) fn read(message: Message, name: &Name, qtype: RecordType) -> Outcome {
    let exists = message.metadata.response_code != ResponseCode::NXDomain;
    let answers: Vec<Record> = message
        .answers
        .into_iter()
        .filter(|record| record.dns_class == DNSClass::IN)
        .map(hold_ttl)
        .collect();
    let mut chain: Vec<Record> = Vec::new();
    let mut owner = name.clone();
    while qtype != RecordType::CNAME && chain.len() < MAX_CHAIN {
        let next = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(CNAME(target)) if record.name.eq_ignore_root(&owner) => {
                Some((record, target))
            }
            _ => None,
        });
        let Some((record, target)) = next else { break };
        chain.push(record.clone());
        owner = target.clone();
    }
    let is_answer = |record: &Record| {
        record.record_type() == qtype
            && record.name.eq_ignore_root(&owner)
            && !matches!(record.data, RData::Update0(_))
    };
    let records: Vec<Record> = answers.into_iter().filter(is_answer).collect();
    if !records.is_empty() {
        return Outcome::Records { chain, records };
    }
    let soa = message
        .authorities
        .into_iter()
        .find(|record| matches!(record.data, RData::SOA(_)) && record.dns_class == DNSClass::IN)
        .map(hold_ttl);
    if exists && soa.is_none() && !chain.is_empty() {
        return Outcome::Follow {
            chain,
            target: owner,
        };
    }
    Outcome::Negative { exists, chain, soa }
}

fn hold_ttl(mut record: Record) -> Record {
    record.ttl = record.ttl.min(MAX_TTL);
    record
}

/// What passes to the box.
pub(super) struct Filtered {
    pub(super) kept: Vec<Record>,
    /// The addresses in it, with their TTL in seconds.
    pub(super) given: Vec<(IpAddr, u32)>,
    /// The strictest class of what was withheld.
    pub(super) withheld: Option<AddrClass>,
}

/// Judges every address in the records for `grant`.
pub(super) fn filter(records: Vec<Record>, grant: &Host, policy: &Policy) -> Filtered {
    let mut out = Filtered {
        kept: Vec::new(),
        given: Vec::new(),
        withheld: None,
    };
    for mut record in records {
        let ttl = record.ttl;
        let mut judge = |ip: IpAddr| {
            if ip.is_ipv6() && !policy.addrs.has_v6_default {
                return false;
            }
            match policy.judge_answer(grant, ip) {
                // No more are given than the name table holds.
                Ok(_) if out.given.len() >= MAX_ADDRS_PER_NAME => false,
                Ok(_) => {
                    out.given.push((ip, ttl));
                    true
                }
                Err(class) => {
                    out.withheld = Some(out.withheld.map_or(class, |all| stricter(all, class)));
                    false
                }
            }
        };
        let passes = match &mut record.data {
            RData::A(A(ip)) => judge(IpAddr::V4(*ip)),
            RData::AAAA(AAAA(ip)) => judge(IpAddr::V6(*ip)),
            RData::SVCB(data) | RData::HTTPS(HTTPS(data)) => {
                if policy.reach.has_internet() {
                    svcb::judge_hints(data, &mut judge)
                } else {
                    svcb::strip(data, &record.name)
                }
            }
            _ => true,
        };
        if passes {
            out.kept.push(record);
        }
    }
    out
}

/// Records of our own for addresses.
pub(super) fn addr_records(name: &Name, addrs: &[IpAddr]) -> Vec<Record> {
    let record = |ip: &IpAddr| {
        let data = match ip {
            IpAddr::V4(ip) => RData::A(A(*ip)),
            IpAddr::V6(ip) => RData::AAAA(AAAA(*ip)),
        };
        Record::from_rdata(name.clone(), OWN_TTL, data)
    };
    addrs.iter().map(record).collect()
}
