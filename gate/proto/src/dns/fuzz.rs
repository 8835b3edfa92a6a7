//! Targets for a fuzzer: arbitrary bytes as what the box and a resolver send.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bailey_model::{NameAnswer, NameAnswered, Reach, Transport};

use super::{Dns, DnsFacts, DnsOutput};
use crate::addr::NodeAddrs;
use crate::{NameTable, Now, Policy};

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(bailey_model::link::BOX_V4), 40_000);
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 53)), 53);
/// Most outputs of one run: a machine that never comes to rest fails here.
const MAX_OUTPUTS: usize = 64;

/// Feeds `data` as a query, and what is left of it as a resolver's answer to
/// whatever is asked. The first octet picks the reach and the transport, the
/// second the length of the query.
///
/// # Panics
/// If the machine breaks a promise that can be checked without knowing the
/// input: a reply over the box's size, a question without its entry, an end
/// that never comes.
pub fn fuzz_dns(data: &[u8]) {
    let [choice, length, rest @ ..] = data else {
        return;
    };
    let (query, answer) = rest.split_at(usize::from(*length).min(rest.len()));
    let mut run = Run::new(*choice, query, answer);
    let mut now = Now::ZERO;
    run.dns.handle_query(
        now,
        CLIENT,
        run.transport,
        query,
        &run.policy,
        &mut run.names,
    );
    for _ in 0..MAX_OUTPUTS {
        if let Some(output) = run.dns.poll(now) {
            run.act(now, output);
        } else if let Some(at) = run.dns.poll_timeout() {
            now = at.max(now + Duration::from_millis(1));
            run.dns.handle_timeout(now, &run.names);
        } else {
            break;
        }
    }
    assert_eq!(run.dns.questions(), 0, "a question was never answered");
}

struct Run<'a> {
    choice: u8,
    transport: Transport,
    query: &'a [u8],
    answer: &'a [u8],
    policy: Policy,
    names: NameTable,
    dns: Dns,
    committed: usize,
}

impl<'a> Run<'a> {
    fn new(choice: u8, query: &'a [u8], answer: &'a [u8]) -> Self {
        const REACHES: [&str; 5] = [
            "internet,mdns",
            "nothing",
            "local",
            "shop.example:443,*.cdn.example",
            "internet,local",
        ];
        let reach = REACHES
            .get(usize::from(choice) % REACHES.len())
            .copied()
            .unwrap_or("nothing");
        let policy = Policy {
            reach: reach.parse().unwrap_or_else(|_| Reach::nothing()),
            addrs: NodeAddrs {
                has_v6_default: choice & 0x40 == 0,
                ..NodeAddrs::default()
            },
            ..Policy::default()
        };
        let facts = DnsFacts::new(vec![RESOLVER], &["lan.example".to_owned()], &[]);
        Self {
            choice,
            transport: if choice & 0x80 == 0 {
                Transport::Udp
            } else {
                Transport::Tcp
            },
            query,
            answer,
            policy,
            names: NameTable::new(),
            dns: Dns::new([7; 32], facts),
            committed: 0,
        }
    }

    fn act(&mut self, now: Now, output: DnsOutput) {
        match output {
            DnsOutput::Reply { bytes, .. } => {
                let most = if self.transport == Transport::Udp {
                    4_096
                } else {
                    65_535
                };
                assert!(
                    (12..=most).contains(&bytes.len()),
                    "reply of {} octets",
                    bytes.len()
                );
                assert_eq!(bytes.get(..2), self.query.get(..2), "reply with another id");
            }
            DnsOutput::Ask { id, entry } => {
                assert_ne!(
                    self.policy.reach,
                    Reach::nothing(),
                    "asked for {}",
                    entry.host
                );
                self.committed += 1;
                self.dns.handle_committed(now, id, &self.policy);
            }
            DnsOutput::Upstream {
                id, server, bytes, ..
            } => {
                assert!(self.committed > 0, "asked without an entry");
                let message = self.answer_to(&bytes);
                let (policy, names) = (&self.policy, &mut self.names);
                self.dns
                    .handle_upstream(now, id, server, &message, policy, names);
            }
            DnsOutput::Answered(it) => {
                assert!(self.committed > 0, "answered without an entry");
                assert!(it.addrs.len() <= NameAnswered::MAX_ADDRS && it.count > 0);
                let records = it.answer == NameAnswer::Records;
                assert!(records || it.addrs.is_empty(), "{it:?}");
            }
            DnsOutput::Cancel { .. }
            | DnsOutput::Refused(_)
            | DnsOutput::Counted(_)
            | DnsOutput::Web(_) => {}
        }
    }

    /// The answer under test with the id that was asked with and, if the choice
    /// says so, the question: without them it would rarely be looked into.
    fn answer_to(&self, asked: &[u8]) -> Vec<u8> {
        /// The OPT record at the end of what is asked, RFC 6891 §6.1.2.
        const OPT: usize = 11;
        const HEADER: usize = 12;
        let mut message = self.answer.to_vec();
        for (into, from) in message.iter_mut().zip(asked.iter().take(2)) {
            *into = *from;
        }
        if self.choice & 0x20 != 0 && message.len() > HEADER {
            let question = asked
                .get(HEADER..asked.len().saturating_sub(OPT))
                .unwrap_or_default();
            message.splice(HEADER..HEADER, question.iter().copied());
        }
        message
    }
}
