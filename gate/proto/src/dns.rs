//! The gate's DNS: what a box's questions are answered, and what leaves the node.
//!
//! A machine without sockets or clock. Questions come in by
//! [`Dns::handle_query`]; what must be done comes out of [`Dns::poll`]. A name
//! in reach is first an entry ([`DnsOutput::Ask`]) and is put to a resolver
//! only after [`Dns::handle_committed`]. A name outside reach is answered
//! NXDOMAIN and never leaves the node.
//!
//! Answers are built anew from the records that answer the question; nothing
//! else of a resolver's message reaches the box. Addresses in them are judged
//! by the function that judges the dial, and noted in the [`NameTable`].
//! DNSSEC records are not asked for and the AD bit is never set: an answer
//! with records taken out would not validate.

mod answer;
#[doc(hidden)]
pub(crate) mod fuzz;
mod host;
mod ids;
mod local;
mod question;
mod reach;
mod reply;
mod request;
mod share;
mod svcb;
mod told;
mod work;
mod zones;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bailey_model::{
    AddrClass, Direction, FlowRefused, Host, HostFrom, NameAnswer, NameAnswered, NameAsked, Proto,
    Refusal, Transport,
};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};

use crate::coalesce::{Coalescer, WINDOW};
use crate::names::{MAX_ADDRS_PER_NAME, NameTable};
use crate::policy::{NameReach, Policy};
use crate::{Now, addr::unmapped, mdns};

use answer::Parsed;
use ids::Ids;
use local::Route;
pub(crate) use local::is_nowhere;
use question::{Question, Stage};
use reply::Answer;
use request::Received;
use told::Answered;
use zones::Zones;

/// From a question to its SERVFAIL when no resolver answers: well inside the
/// 5 s after which stub resolvers give up on a server.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_millis(3_500);
/// How long one resolver may be silent before the next is asked as well.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Most times that one question goes to resolvers.
const MAX_TRIES: usize = 6;
/// Most questions being answered at once: what the rate lets in within
/// [`ANSWER_WITHIN`], and some.
pub(crate) const MAX_QUESTIONS: usize = 256;
/// Most exchanges over TCP at once: each holds a message of up to 64 KiB.
pub(crate) const MAX_TCP_EXCHANGES: usize = 32;
/// Most entries waited for at once, those of questions given up included.
const MAX_ENTRIES: usize = 512;
/// Questions a second that may become an entry; each is a journal row.
pub(crate) const QUESTIONS_PER_SECOND: u32 = 50;
/// Open windows of equal questions or refusals: twice what the rate lets in
/// within one window.
const MAX_WINDOWS: usize = 1_024;
/// Most CNAMEs that the gate itself follows for one question.
const MAX_FOLLOWED: u8 = 8;

/// What the node's resolv.conf and hosts file say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsFacts {
    /// Resolvers, in the order to try them.
    pub resolvers: Vec<SocketAddr>,
    /// Search list for names of one label.
    search: Vec<Host>,
    hosts: HashMap<Host, Vec<IpAddr>>,
}

impl DnsFacts {
    /// Takes the node's lists; what is not a host name is passed over.
    #[must_use]
    pub fn new(
        resolvers: Vec<SocketAddr>,
        search: &[String],
        hosts: &[(IpAddr, Vec<String>)],
    ) -> Self {
        let mut by_name: HashMap<Host, Vec<IpAddr>> = HashMap::new();
        for (ip, names) in hosts {
            for name in names.iter().filter_map(|name| Host::new(name)) {
                let ips = by_name.entry(name).or_default();
                let ip = unmapped(*ip);
                if !ips.contains(&ip) && ips.len() < MAX_ADDRS_PER_NAME {
                    ips.push(ip);
                }
            }
        }
        let search = search
            .iter()
            .filter_map(|domain| Host::new(domain))
            .collect();
        Self {
            resolvers,
            search,
            hosts: by_name,
        }
    }
}

/// Number of an entry that the machine waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// Number of one exchange with one resolver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(pub u64);

/// What must be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsOutput {
    /// Send an answer to the box.
    Reply {
        /// The box's end.
        client: SocketAddr,
        /// Over what; TCP frames it with two length octets (RFC 1035 §4.2.2).
        transport: Transport,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Have this entry committed; then `handle_committed` or `handle_refused`.
    Ask {
        /// Its number.
        id: AskId,
        /// The entry.
        entry: NameAsked,
    },
    /// Put a message to a resolver, from a socket of its own; then
    /// `handle_upstream` or `handle_unreachable`.
    Upstream {
        /// Number of the exchange.
        id: ExchangeId,
        /// The resolver.
        server: SocketAddr,
        /// Over what.
        over: Transport,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The exchange is no longer waited for: close its socket.
    Cancel {
        /// Number of the exchange.
        id: ExchangeId,
    },
    /// A name whose refusal is told next, or was, was asked for by type 65 (RFC 9460
    /// §9): it is meant for the web.
    Web(Host),
    /// An entry to tell: a name or an answer refused.
    Refused(FlowRefused),
    /// An entry to tell: how many equal questions came after the first, or how
    /// many different names below one zone there were.
    Counted(NameAsked),
    /// An entry to tell: what a name was answered, or how many equal answers came after
    /// the first.
    Answered(NameAnswered),
}

/// The gate's DNS of one box.
#[derive(Debug)]
pub struct Dns {
    facts: DnsFacts,
    ids: Ids,
    serial: u64,
    questions: BTreeMap<u64, Question>,
    exchanges: HashMap<ExchangeId, u64>,
    /// Entries not yet committed, and the questions that wait for each.
    entries: HashMap<AskId, Pending>,
    entry_of: HashMap<AskedKey, AskId>,
    asked: Coalescer<AskedKey>,
    refused: Coalescer<RefusedKey>,
    answered: Coalescer<Answered>,
    /// Zones of the names that were asked, and of those that were refused.
    asked_zones: Zones,
    refused_zones: Zones,
    /// When the rate would be level again (a generic cell rate algorithm).
    level_at: Now,
    outputs: VecDeque<DnsOutput>,
}

/// A name and a DNS type number.
type AskedKey = (Host, u16);

#[derive(Debug)]
struct Pending {
    key: AskedKey,
    waiting: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedKey {
    host: Option<Host>,
    class: Option<AddrClass>,
    refusal: Refusal,
}

impl RefusedKey {
    fn entry(self, count: u32) -> FlowRefused {
        let host_from = if self.host.is_some() {
            HostFrom::Dns
        } else {
            HostFrom::None
        };
        FlowRefused {
            direction: Direction::Out,
            proto: Proto::Dns,
            src: None,
            dst: None,
            host: self.host,
            host_from,
            class: self.class,
            refusal: self.refusal,
            count,
        }
    }
}

impl Dns {
    /// A machine whose message ids follow from `seed`, which must be entropy
    /// of the operating system, used for nothing else.
    #[must_use]
    pub fn new(seed: [u8; 32], facts: DnsFacts) -> Self {
        Self {
            facts,
            ids: Ids::new(seed),
            serial: 0,
            questions: BTreeMap::new(),
            exchanges: HashMap::new(),
            entries: HashMap::new(),
            entry_of: HashMap::new(),
            asked: Coalescer::new(WINDOW, MAX_WINDOWS),
            refused: Coalescer::new(WINDOW, MAX_WINDOWS),
            answered: Coalescer::new(WINDOW, MAX_WINDOWS),
            asked_zones: Zones::default(),
            refused_zones: Zones::default(),
            level_at: Now::ZERO,
            outputs: VecDeque::new(),
        }
    }

    /// The node's resolv.conf or hosts file changed. Exchanges go on with the
    /// resolvers they were begun with.
    pub fn set_facts(&mut self, facts: DnsFacts) {
        self.facts = facts;
    }

    /// Questions, exchanges, entries that are waited for and windows of equal ones.
    pub(crate) fn held(&self) -> usize {
        let work = self.questions.len() + self.exchanges.len() + self.entries.len();
        work + self.asked.len() + self.refused.len() + self.answered.len()
    }

    /// A message from the box (over TCP without its length octets). Whether it will be
    /// answered, now or later.
    pub fn handle_query(
        &mut self,
        now: Now,
        client: SocketAddr,
        transport: Transport,
        bytes: &[u8],
        policy: &Policy,
        names: &mut NameTable,
    ) -> bool {
        let request = match request::receive(client, transport, bytes) {
            Received::Nothing => return false,
            Received::Answered(bytes) => {
                self.outputs.push_back(DnsOutput::Reply {
                    client,
                    transport,
                    bytes,
                });
                return true;
            }
            Received::Question(request) => request,
        };
        if self
            .questions
            .values()
            .any(|question| question.request == request)
        {
            // The same message again while it is being answered.
            return false;
        }
        match local::route(now, &request, policy, names, &self.facts) {
            Route::Answer(answer) => self.reply(&request, answer),
            Route::Hosts { target, addrs } => {
                self.answer_from_hosts(now, &request, &target, &addrs, policy, names);
            }
            Route::Refuse { host, answer } => {
                if self.within_rate(now) {
                    if request.qtype == RecordType::HTTPS {
                        self.outputs.push_back(DnsOutput::Web(host.clone()));
                    }
                    self.refuse(now, Some(host), None, Refusal::NameOutsideReach);
                    self.reply(&request, answer);
                } else {
                    self.over_limit(now, &request);
                }
            }
            Route::Ask(targets) => self.admit(now, request, targets),
        }
        true
    }

    /// The entry stands in the journal: its questions go to a resolver, unless
    /// the reach lost the name meanwhile.
    pub fn handle_committed(&mut self, now: Now, id: AskId, policy: &Policy) {
        let Some(pending) = self.take_entry(id) else {
            return;
        };
        for number in pending.waiting {
            let Some(question) = self.questions.get(&number) else {
                continue;
            };
            if question.stage != Stage::Entry(id) {
                continue;
            }
            if policy.name_reach(&question.target.grant, &self.facts.search) == NameReach::Inside {
                self.ask_or_share(now, number);
            } else {
                let host = question.target.grant.clone();
                self.refuse(now, Some(host), None, Refusal::NameOutsideReach);
                self.turn_away(number, |request| Answer::outside_reach(request.name()));
            }
        }
    }

    /// The audit cannot take the entry: nothing is asked.
    pub fn handle_refused(&mut self, now: Now, id: AskId) {
        let Some(pending) = self.take_entry(id) else {
            return;
        };
        self.asked.forget(&pending.key);
        self.refuse(now, Some(pending.key.0), None, Refusal::StoreUnavailable);
        for number in pending.waiting {
            let waits = self.questions.get(&number).map(|question| question.stage);
            if waits == Some(Stage::Entry(id)) {
                self.turn_away(number, |_| {
                    Answer::servfail(0, "the audit cannot be written")
                });
            }
        }
    }

    /// A message from a resolver, with the address it came from. What does not
    /// answer the exchange is passed over, and the exchange goes on.
    pub fn handle_upstream(
        &mut self,
        now: Now,
        id: ExchangeId,
        from: SocketAddr,
        bytes: &[u8],
        policy: &Policy,
        names: &mut NameTable,
    ) {
        let Some(number) = self.exchanges.get(&id).copied() else {
            return;
        };
        let Some(question) = self.questions.get(&number) else {
            return;
        };
        let Some(attempt) = question.attempts.iter().find(|attempt| attempt.id == id) else {
            return;
        };
        // A group is answered for by whoever is there.
        let heard = match attempt.server.ip().is_multicast() {
            true => mdns::answers(from, &policy.addrs),
            false => attempt.server == from,
        };
        if !heard {
            return;
        }
        let attempt = *attempt;
        match answer::parse(
            bytes,
            attempt.message_id,
            &question.target.name,
            question.qtype(),
        ) {
            Parsed::NotOurs => {}
            Parsed::Truncated(_)
                if attempt.over == Transport::Udp && !attempt.server.ip().is_multicast() =>
            {
                self.end_exchange(number, id);
                if self.tcp_exchanges() < MAX_TCP_EXCHANGES {
                    self.exchange(now, number, attempt.server, Transport::Tcp);
                } else {
                    self.try_resolver(now, number);
                }
            }
            Parsed::Failed => {
                self.end_exchange(number, id);
                self.try_resolver(now, number);
            }
            Parsed::Truncated(message) | Parsed::Answer(message) => {
                let outcome = answer::read(*message, &question.target.name, question.request.qtype);
                self.end_exchanges(number);
                for number in self.part(number) {
                    self.conclude(now, number, outcome.clone(), policy, names);
                }
            }
        }
    }

    /// The exchange failed: no socket, no route, refused, reset.
    pub fn handle_unreachable(&mut self, now: Now, id: ExchangeId) {
        let Some(number) = self.exchanges.get(&id).copied() else {
            return;
        };
        self.end_exchange(number, id);
        self.try_resolver(now, number);
    }

    /// To be called at [`Dns::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Now, names: &NameTable) {
        let late: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| question.deadline <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let target = self.questions.get(&number).map(|question| &question.target);
            // That nobody answers is how a link says that nobody has the name.
            let nobody = target.filter(|target| target.is_on_link());
            match nobody.map(|target| names.knows(now, &target.grant)) {
                Some(known) => self.finish(now, number, negative(known), |request| {
                    Answer::negative(request, known, Vec::new(), None)
                }),
                None => self.fail(now, number, 22, "no resolver answered"),
            }
        }
        let silent: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, question)| question.retry_at.is_some_and(|at| at <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in silent {
            self.try_resolver(now, number);
        }
    }

    /// When [`Dns::handle_timeout`] and [`Dns::poll`] should next be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Now> {
        if !self.outputs.is_empty() {
            return Some(Now::ZERO);
        }
        self.questions
            .values()
            .flat_map(|question| [Some(question.deadline), question.retry_at])
            .chain([self.asked.poll_timeout(), self.refused.poll_timeout()])
            .chain([
                self.asked_zones.poll_timeout(),
                self.answered.poll_timeout(),
            ])
            .flatten()
            .min()
    }

    /// The next thing to do; to be called until `None` after every other call.
    pub fn poll(&mut self, now: Now) -> Option<DnsOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some((key, count)) = self.refused.poll(now) {
            return Some(DnsOutput::Refused(key.entry(count)));
        }
        if let Some(((host, qtype), count)) = self.asked.poll(now) {
            return Some(DnsOutput::Counted(NameAsked { host, qtype, count }));
        }
        if let Some((answered, count)) = self.answered.poll(now) {
            return Some(DnsOutput::Answered(answered.entry(count)));
        }
        let (host, count) = self.asked_zones.poll(now)?;
        let qtype = RecordType::ANY.into();
        Some(DnsOutput::Counted(NameAsked { host, qtype, count }))
    }

    /// The box is over: nothing is answered any more, every count is told.
    pub fn close(&mut self) {
        for number in self.questions.keys().copied().collect::<Vec<_>>() {
            self.drop_question(number);
        }
        self.entries.clear();
        self.entry_of.clear();
        self.asked.close_all();
        self.refused.close_all();
        self.answered.close_all();
        self.asked_zones.close_all();
    }

    /// Number of questions being answered.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.questions.len()
    }
}

/// The presentation form of a name, `None` for the root.
fn host_of(name: &Name) -> Option<Host> {
    host::host_of(name)
}

/// What a name is answered that has no records of the type asked for.
fn negative(exists: bool) -> NameAnswer {
    match exists {
        true => NameAnswer::NoRecords,
        false => NameAnswer::NoName,
    }
}

/// The code for "this answer is an error of ours".
const SERVFAIL: ResponseCode = ResponseCode::ServFail;

#[cfg(test)]
mod tests;
