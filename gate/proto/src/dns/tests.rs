use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, TXT};
use hickory_proto::rr::{DNSClass, RData, Record, RecordType};

use super::*;
use crate::addr::NodeAddrs;

mod answered;
mod exceptions;
mod forms;
mod inside;
mod link;
mod pacing;
mod random;
mod zones;

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 0, 2)), 40_000);
const SECOND: Duration = Duration::from_secs(1);

fn resolver(number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, 1, number)), 53)
}

fn host(text: &str) -> Host {
    Host::new(text).unwrap()
}

fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).unwrap();
    name.set_fqdn(true);
    name
}

/// A machine with its node, and what it put out.
struct Bench {
    dns: Dns,
    names: NameTable,
    policy: Policy,
    now: Now,
    out: Vec<DnsOutput>,
    message_id: u16,
}

/// A question on its way: to which resolver, by what.
type Exchange = (ExchangeId, SocketAddr, Transport, Message);

impl Bench {
    fn new(reach: &str) -> Self {
        let addrs = NodeAddrs {
            own: vec!["192.168.1.5".parse().unwrap()],
            on_link: vec![("192.168.1.0".parse().unwrap(), 24)],
            has_v6_default: true,
            ..NodeAddrs::default()
        };
        let facts = DnsFacts::new(
            vec![resolver(1), resolver(2)],
            &["lan.example".to_owned()],
            &[
                (
                    "192.168.1.9".parse().unwrap(),
                    vec!["nas".to_owned(), "nas.home".to_owned()],
                ),
                ("127.0.1.1".parse().unwrap(), vec!["node.home".to_owned()]),
                (
                    "93.184.216.40".parse().unwrap(),
                    vec!["pinned.example".to_owned()],
                ),
            ],
        );
        Self {
            dns: Dns::new([1; 32], facts),
            names: NameTable::new(),
            policy: Policy {
                reach: reach.parse().unwrap(),
                addrs,
                ..Policy::default()
            },
            now: SECOND,
            out: Vec::new(),
            message_id: 100,
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.dns.poll(self.now) {
            self.out.push(output);
        }
    }

    fn send(&mut self, transport: Transport, bytes: &[u8]) {
        self.dns.handle_query(
            self.now,
            CLIENT,
            transport,
            bytes,
            &self.policy,
            &mut self.names,
        );
        self.drain();
    }

    fn query(&mut self, text: &str, qtype: RecordType) {
        self.message_id += 1;
        let bytes = question(self.message_id, text, qtype, Some(1_232));
        self.send(Transport::Udp, &bytes);
    }

    /// Takes the replies that came out so far.
    fn replies(&mut self) -> Vec<Message> {
        self.take(|output| match output {
            DnsOutput::Reply { bytes, .. } => Some(Message::from_vec(bytes).unwrap()),
            _ => None,
        })
    }

    fn reply(&mut self) -> Message {
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "{:?}", self.out);
        replies.remove(0)
    }

    fn asks(&mut self) -> Vec<(AskId, NameAsked)> {
        self.take(|output| match output {
            DnsOutput::Ask { id, entry } => Some((*id, entry.clone())),
            _ => None,
        })
    }

    /// Asks, and takes what goes upstream once its entry stands.
    fn asked(&mut self, text: &str, qtype: RecordType) -> Exchange {
        self.query(text, qtype);
        self.commit_all();
        self.exchanges().remove(0)
    }

    fn exchanges(&mut self) -> Vec<Exchange> {
        self.take(|output| match output {
            DnsOutput::Upstream {
                id,
                server,
                over,
                bytes,
            } => Some((*id, *server, *over, Message::from_vec(bytes).unwrap())),
            _ => None,
        })
    }

    fn refusals(&mut self) -> Vec<FlowRefused> {
        self.take(|output| match output {
            DnsOutput::Refused(refused) => Some(refused.clone()),
            _ => None,
        })
    }

    fn counts(&mut self) -> Vec<NameAsked> {
        self.take(|output| match output {
            DnsOutput::Counted(asked) => Some(asked.clone()),
            _ => None,
        })
    }

    fn cancels(&mut self) -> Vec<ExchangeId> {
        self.take(|output| match output {
            DnsOutput::Cancel { id } => Some(*id),
            _ => None,
        })
    }

    fn take<T>(&mut self, pick: impl Fn(&DnsOutput) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.out.retain(|output| match pick(output) {
            Some(value) => {
                taken.push(value);
                false
            }
            None => true,
        });
        taken
    }

    fn commit_all(&mut self) {
        for (id, _) in self.asks() {
            self.dns.handle_committed(self.now, id, &self.policy);
        }
        self.drain();
    }

    fn answer(&mut self, id: ExchangeId, server: SocketAddr, message: &Message) {
        let bytes = message.to_vec().unwrap();
        self.dns
            .handle_upstream(self.now, id, server, &bytes, &self.policy, &mut self.names);
        self.drain();
    }

    /// Commits what is asked and answers each exchange until there is a reply.
    fn resolve(
        &mut self,
        text: &str,
        qtype: RecordType,
        zone: &dyn Fn(&Message) -> Message,
    ) -> Message {
        self.query(text, qtype);
        for _ in 0..32 {
            self.commit_all();
            let exchanges = self.exchanges();
            if exchanges.is_empty() {
                break;
            }
            for (id, server, _, asked) in exchanges {
                self.answer(id, server, &zone(&asked));
            }
        }
        self.reply()
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.dns.handle_timeout(self.now, &self.names);
        self.drain();
    }
}

fn question(id: u16, text: &str, qtype: RecordType, edns: Option<u16>) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), qtype));
    if let Some(payload) = edns {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message.to_vec().unwrap()
}

/// An answer to a question, with nothing in it.
fn answer_to(asked: &Message) -> Message {
    let mut message = Message::new(asked.metadata.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_available = true;
    message.add_queries(asked.queries.iter().cloned());
    message
}

fn with(asked: &Message, records: &[Record]) -> Message {
    let mut message = answer_to(asked);
    message.answers = records.to_vec();
    message
}

fn negative_to(asked: &Message, code: ResponseCode) -> Message {
    let mut message = answer_to(asked);
    message.metadata.response_code = code;
    let zone = asked.queries[0].name().base_name();
    let soa = SOA::new(name("ns.example"), name("admin.example"), 7, 1, 1, 1, 300);
    message.add_authority(Record::from_rdata(zone, 300, RData::SOA(soa)));
    message
}

fn addr_record(owner: &str, ip: &str) -> Record {
    let data = match ip.parse().unwrap() {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    Record::from_rdata(name(owner), 300, data)
}

fn cname(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target))))
}

fn addrs(message: &Message) -> Vec<String> {
    message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(A(ip)) => Some(ip.to_string()),
            RData::AAAA(AAAA(ip)) => Some(ip.to_string()),
            _ => None,
        })
        .collect()
}

/// Code and text of the extended error.
fn extended(message: &Message) -> Option<(u16, String)> {
    use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
    let option = message.edns.as_ref()?.option(EdnsCode::Unknown(15))?;
    let EdnsOption::Unknown(_, data) = option else {
        return None;
    };
    let (code, text) = data.split_first_chunk::<2>()?;
    Some((
        u16::from_be_bytes(*code),
        String::from_utf8_lossy(text).into_owned(),
    ))
}

fn soa_ttl(message: &Message) -> Option<(String, u32, u32)> {
    message
        .authorities
        .iter()
        .find_map(|record| match &record.data {
            RData::SOA(soa) => Some((record.name.to_string(), record.ttl, soa.minimum)),
            _ => None,
        })
}

fn is_nodata(message: &Message) -> bool {
    message.metadata.response_code == ResponseCode::NoError
        && message.answers.is_empty()
        && soa_ttl(message).is_some()
        && message.metadata.recursion_available
}

fn is_nxdomain(message: &Message) -> bool {
    message.metadata.response_code == ResponseCode::NXDomain
        && message.answers.is_empty()
        && soa_ttl(message).is_some()
        && message.metadata.recursion_available
}
