//! Answers to the box, as bytes.

use bailey_model::{AddrClass, Transport};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{CNAME, HINFO, SOA};
use hickory_proto::rr::{Name, RData, Record};

use super::SERVFAIL;
use super::request::Request;

/// EDNS option of RFC 8914.
const EXTENDED_ERROR: u16 = 15;
/// *Blocked*, RFC 8914 §4.16.
const BLOCKED: u16 = 15;
/// What a name outside reach is refused with: what refused it, and where it is
/// explained, inside the box and outside.
const OUTSIDE: &str =
    "refused by bailey: outside this box's reach (/run/bailey/refusals; outside: bailey why)";
/// Most octets over UDP without EDNS, RFC 1035 §4.2.1.
const PLAIN_PAYLOAD: u16 = 512;
/// Most octets over UDP whatever the box offers.
const MAX_PAYLOAD: u16 = 4_096;
/// Seconds that a negative answer of our own may be kept: a later `allow` must
/// take hold at once.
const NEGATIVE_TTL: u32 = 1;
/// Seconds that any record may be kept: no longer than what is granted by it.
pub(super) const MAX_TTL: u32 = 3_600;
/// Seconds that an answer of our own may be kept.
pub(super) const OWN_TTL: u32 = 60;

/// An answer before it is bytes.
#[derive(Debug)]
pub(super) struct Answer {
    code: ResponseCode,
    answers: Vec<Record>,
    authority: Option<Record>,
    extended: Option<(u16, String)>,
}

impl Answer {
    pub(super) fn code(code: ResponseCode) -> Self {
        Self {
            code,
            answers: Vec::new(),
            authority: None,
            extended: None,
        }
    }

    /// For how many seconds it may be kept, by its records.
    pub(super) fn ttl(&self) -> u32 {
        let ttls = self.answers.iter().map(|record| record.ttl);
        ttls.min().unwrap_or(0)
    }

    /// NXDOMAIN for a name that the box may not ask for.
    pub(super) fn outside_reach(name: &Name) -> Self {
        Self {
            authority: Some(soa(name)),
            extended: Some((BLOCKED, OUTSIDE.to_owned())),
            ..Self::code(ResponseCode::NXDomain)
        }
    }

    /// NXDOMAIN for a name that exists nowhere.
    pub(super) fn no_such_name(name: &Name) -> Self {
        Self {
            authority: Some(soa(name)),
            ..Self::code(ResponseCode::NXDomain)
        }
    }

    /// NOERROR without records.
    pub(super) fn nodata(name: &Name) -> Self {
        Self {
            authority: Some(soa(name)),
            ..Self::code(ResponseCode::NoError)
        }
    }

    /// NODATA because every address was withheld.
    pub(super) fn withheld(name: &Name, class: AddrClass) -> Self {
        let text = match class {
            AddrClass::Internet => "answer was an internet address".to_owned(),
            other => format!("answer was a {} address", other.as_str()),
        };
        Self {
            extended: Some((BLOCKED, text)),
            ..Self::nodata(name)
        }
    }

    pub(super) fn servfail(code: u16, text: &str) -> Self {
        Self {
            extended: Some((code, text.to_owned())),
            ..Self::code(SERVFAIL)
        }
    }

    /// RFC 8482 §4.2: a small answer to ANY.
    pub(super) fn any(name: &Name) -> Self {
        let data = RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()));
        Self::own(vec![Record::from_rdata(name.clone(), MAX_TTL, data)])
    }

    /// Records of our own.
    pub(super) fn own(answers: Vec<Record>) -> Self {
        Self {
            answers,
            ..Self::code(ResponseCode::NoError)
        }
    }

    /// What a resolver said of a name that it has no such records for.
    pub(super) fn negative(
        request: &Request,
        exists: bool,
        chain: Vec<Record>,
        authority: Option<Record>,
    ) -> Self {
        let last = chain.last().and_then(|record| match &record.data {
            RData::CNAME(CNAME(target)) => Some(target.clone()),
            _ => None,
        });
        let last = last.unwrap_or_else(|| request.name().clone());
        let authority = authority.filter(|record| record.name.zone_of(&last));
        let code = if exists {
            ResponseCode::NoError
        } else {
            ResponseCode::NXDomain
        };
        let answers = linked(request, chain);
        Self {
            code,
            answers,
            authority: Some(authority.unwrap_or_else(|| soa(&last))),
            extended: None,
        }
    }

    /// Records that answer the question, behind their CNAMEs.
    pub(super) fn records(request: &Request, chain: Vec<Record>, kept: Vec<Record>) -> Self {
        if kept.is_empty() && chain.is_empty() {
            return Self::nodata(request.name());
        }
        Self::own(linked(request, chain.into_iter().chain(kept).collect()))
    }
}

/// Joins the records to the name asked where the search list led to another.
fn linked(request: &Request, records: Vec<Record>) -> Vec<Record> {
    let asked = request.name();
    match records.first() {
        Some(first) if !first.name.eq_ignore_root(asked) => {
            let data = RData::CNAME(CNAME(first.name.clone()));
            let link = Record::from_rdata(asked.clone(), OWN_TTL, data);
            std::iter::once(link).chain(records).collect()
        }
        _ => records,
    }
}

/// The start of authority that a negative answer needs (RFC 2308 §3): without
/// one, resolvers take it for a failure.
fn soa(name: &Name) -> Record {
    let owner = if name.is_root() {
        Name::root()
    } else {
        name.base_name()
    };
    let label = |text: &[u8]| {
        let mut name = Name::from_labels([text, b"bailey".as_slice()]).unwrap_or_default();
        name.set_fqdn(true);
        name
    };
    let data = SOA::new(label(b"gate"), label(b"nobody"), 1, 1, 1, 1, NEGATIVE_TTL);
    Record::from_rdata(owner, NEGATIVE_TTL, RData::SOA(data))
}

/// A header alone, where the question cannot be echoed.
pub(super) fn bare(
    id: u16,
    op_code: OpCode,
    recursion_desired: bool,
    code: ResponseCode,
) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Response, op_code);
    message.metadata.recursion_desired = recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.to_vec().unwrap_or_default()
}

/// An answer as bytes: at most what the box takes, with TC set where it takes less.
pub(super) fn encode(request: &Request, answer: Answer) -> Vec<u8> {
    let mut message = Message::new(request.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_desired = request.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.response_code = answer.code;
    message.add_query(request.query.clone());
    message.answers = answer.answers;
    message.authorities.extend(answer.authority);
    if request.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(MAX_PAYLOAD);
        if let Some((code, text)) = answer.extended {
            let mut option = code.to_be_bytes().to_vec();
            option.extend_from_slice(text.as_bytes());
            edns.options_mut()
                .insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
        }
        message.set_edns(edns);
    }
    let limit = match request.transport {
        Transport::Tcp => usize::from(u16::MAX),
        Transport::Udp => usize::from(
            request
                .edns
                .unwrap_or(PLAIN_PAYLOAD)
                .clamp(PLAIN_PAYLOAD, MAX_PAYLOAD),
        ),
    };
    let failed = || {
        bare(
            request.id,
            OpCode::Query,
            request.recursion_desired,
            SERVFAIL,
        )
    };
    match message.to_vec() {
        Ok(bytes) if bytes.len() <= limit && !is_truncated(&bytes) => bytes,
        Ok(_) => truncated(message, limit).unwrap_or_else(failed),
        Err(_) => failed(),
    }
}

fn is_truncated(bytes: &[u8]) -> bool {
    bytes.get(2).is_some_and(|flags| flags & 2 != 0)
}

/// As many answers as fit: some resolvers never come again over TCP.
fn truncated(mut message: Message, limit: usize) -> Option<Vec<u8>> {
    message.metadata.truncation = true;
    message.authorities.clear();
    let all = std::mem::take(&mut message.answers);
    let mut fits = |count: usize| {
        message.answers = all.get(..count)?.to_vec();
        message.to_vec().ok().filter(|bytes| bytes.len() <= limit)
    };
    let (mut least, mut most) = (0, all.len());
    let mut best = fits(0);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        match fits(middle) {
            Some(bytes) => {
                best = Some(bytes);
                least = middle;
            }
            None => most = middle - 1,
        }
    }
    best
}
