//! Finding a device in the local network, by multicast DNS (RFC 6762).
//!
//! Nothing is announced and nothing can be listed (no PTR record, RFC 6763 §4): who
//! knows a label asks for the service record (RFC 2782) of that label alone, from a
//! port that is not 5353, and is answered to that port (§6.7). So the network hears
//! a label only from whom looks for it, and no name of a person or a machine.
//!
//! ```text
//! question   417._bailey-pair._udp.local.  SRV
//! answer     417._bailey-pair._udp.local.  SRV 0 0 port device.local.    TTL 10
//! ```
//!
//! The address is the one from which the answer comes; whoever answers must still
//! prove itself there.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr as _;

use bailey_model::{AccountId, DeviceId};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::SRV;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use sha2::{Digest as _, Sha256};

/// Where questions go and answers come from (§3).
pub const PORT: u16 = 5353;
/// The group of IPv4.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// The group of IPv6, of one link.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// Longest message read. Ours are under 120 bytes; others' are passed over.
pub const MAX_MESSAGE: usize = 512;
/// Records read of one answer.
const MAX_RECORDS: usize = 8;
/// Longest label that is asked for.
const MAX_LABEL: usize = 32;
/// What an answer to such a question may live at most, in seconds (§6.7).
const TTL: u32 = 10;
/// Not an address: that is the answer's own.
const TARGET: &str = "device.local.";

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A device that waits for another to join its account; the label is the slot.
    Pair,
    /// A device of an account that another of it looks for; see [`member_label`].
    Member,
}

impl Service {
    fn suffix(self) -> &'static str {
        match self {
            Self::Pair => "_bailey-pair._udp.local.",
            Self::Member => "_bailey._udp.local.",
        }
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its number, which the answer repeats.
    pub id: u16,
    /// What is looked for.
    pub service: Service,
    /// Which one: letters and digits.
    pub label: String,
}

impl Asked {
    fn name(&self) -> Option<Name> {
        let fits = (1..=MAX_LABEL).contains(&self.label.len())
            && self.label.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let text = format!("{}.{}", self.label, self.service.suffix());
        fits.then(|| Name::from_str(&text).ok()).flatten()
    }

    /// The message; `None` for a label that is none.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut message = Message::new(self.id, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(self.name()?, RecordType::SRV));
        message.to_vec().ok()
    }

    /// A question that another asks for one of our services: one question, no
    /// answers, no claims; `None` for everything else that is said in the group.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let message = short_enough(bytes)?;
        let [query] = message.queries.as_slice() else {
            return None;
        };
        let asks = message.metadata.message_type == MessageType::Query
            && message.metadata.op_code == OpCode::Query
            && message.answers.is_empty()
            && message.authorities.is_empty()
            && query.query_type() == RecordType::SRV
            // The highest bit wishes for an answer to the asker alone (§5.4).
            && u16::from(query.query_class()) & 0x7fff == u16::from(DNSClass::IN);
        let name = query.name().to_lowercase().to_ascii();
        let (label, rest) = name.split_once('.').filter(|_| asks)?;
        let service = [Service::Pair, Service::Member]
            .into_iter()
            .find(|service| service.suffix() == rest)?;
        let asked = Self {
            id: message.metadata.id,
            service,
            label: label.to_owned(),
        };
        asked.name().is_some().then_some(asked)
    }

    /// The answer: our port.
    #[must_use]
    pub fn answer(&self, port: u16) -> Option<Vec<u8>> {
        let mut message = Message::new(self.id, MessageType::Response, OpCode::Query);
        message.metadata.authoritative = true;
        let name = self.name()?;
        message.add_query(Query::query(name.clone(), RecordType::SRV));
        let srv = SRV::new(0, 0, port, Name::from_str(TARGET).ok()?);
        message.add_answer(Record::from_rdata(name, TTL, RData::SRV(srv)));
        message.to_vec().ok()
    }

    /// The port in an answer to this question that came from there; `None` for
    /// whatever answers something else, or not from the port of multicast DNS.
    #[must_use]
    pub fn answered(&self, bytes: &[u8], from: SocketAddr) -> Option<SocketAddr> {
        let message = short_enough(bytes)?;
        let fits = message.metadata.id == self.id
            && message.metadata.message_type == MessageType::Response
            && from.port() == PORT;
        let name = self.name().filter(|_| fits)?;
        let port = message
            .answers
            .iter()
            .take(MAX_RECORDS)
            .find_map(|record| match &record.data {
                RData::SRV(srv) if record.name == name && srv.port != 0 => Some(srv.port),
                _ => None,
            })?;
        let mut at = from;
        at.set_port(port);
        Some(at)
    }
}

/// Milliseconds for which a label of a member holds.
const LABEL_MS: u64 = 60 * 60 * 1000;
/// Domain of the secret that a label of a member is made of.
pub const MEMBER_DOMAIN: &str = "bailey/nearby/v1\0";

/// Under which label one device of an account asks for another at a time: another one
/// each hour and for each two of them, so that nobody else can tell whose it is or that
/// two are one device's. `secret` is what the two have alone, for [`MEMBER_DOMAIN`].
#[must_use]
pub fn member_label(
    secret: &[u8; 32],
    account: &AccountId,
    sought: &DeviceId,
    now_ms: u64,
) -> String {
    let hash = Sha256::new()
        .chain_update(MEMBER_DOMAIN)
        .chain_update(secret)
        .chain_update(account.0)
        .chain_update(sought.0)
        .chain_update((now_ms / LABEL_MS).to_be_bytes())
        .finalize();
    hash[..MAX_LABEL / 2]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The labels to which a device answers: clocks may be an hour apart.
#[must_use]
pub fn member_labels(
    secret: &[u8; 32],
    account: &AccountId,
    sought: &DeviceId,
    now_ms: u64,
) -> [String; 3] {
    [
        now_ms.saturating_sub(LABEL_MS),
        now_ms,
        now_ms.saturating_add(LABEL_MS),
    ]
    .map(|at| member_label(secret, account, sought, at))
}

fn short_enough(bytes: &[u8]) -> Option<Message> {
    (bytes.len() <= MAX_MESSAGE)
        .then(|| Message::from_vec(bytes).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked {
            id: 77,
            service: Service::Pair,
            label: "417".to_owned(),
        }
    }

    fn from(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 168, 1, 5], port))
    }

    #[test]
    fn a_question_is_read_and_its_answer_gives_the_port() {
        let question = asked().to_bytes().unwrap();
        assert!(question.len() < 64);
        let read = Asked::from_bytes(&question).unwrap();
        assert_eq!(read, asked());
        let answer = read.answer(4001).unwrap();
        assert_eq!(asked().answered(&answer, from(PORT)), Some(from(4001)));
        // Nothing of a person or a machine is in it.
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(
            text.matches("417").count(),
            1 + usize::from(!answer.contains(&0xc0))
        );
    }

    #[test]
    fn what_answers_something_else_is_passed_over() {
        let answer = asked().answer(4001).unwrap();
        assert_eq!(asked().answered(&answer, from(5354)), None, "another port");
        let other = |change: fn(&mut Asked)| {
            let mut other = asked();
            change(&mut other);
            other
        };
        let id = other(|it| it.id = 78);
        let label = other(|it| it.label = "418".to_owned());
        assert_eq!(id.answered(&answer, from(PORT)), None);
        assert_eq!(label.answered(&answer, from(PORT)), None);
        let question = asked().to_bytes().unwrap();
        assert_eq!(asked().answered(&question, from(PORT)), None);
        let portless = asked().answer(0).unwrap();
        assert_eq!(asked().answered(&portless, from(PORT)), None);
        assert_eq!(Asked::from_bytes(&answer), None, "an answer asks nothing");
        let long = [&answer[..], &[0; MAX_MESSAGE]].concat();
        assert_eq!(asked().answered(&long, from(PORT)), None);
    }

    #[test]
    fn other_questions_of_the_link_are_passed_over() {
        let question = |name: &str, kind: RecordType| {
            let mut message = Message::new(1, MessageType::Query, OpCode::Query);
            message.add_query(Query::query(Name::from_str(name).unwrap(), kind));
            message.to_vec().unwrap()
        };
        for (name, kind) in [
            ("printer.local.", RecordType::A),
            ("_bailey-pair._udp.local.", RecordType::PTR),
            ("_bailey-pair._udp.local.", RecordType::SRV),
            ("417._bailey-pair._udp.local.", RecordType::TXT),
            ("417._bailey-pair._tcp.local.", RecordType::SRV),
            ("4_1._bailey-pair._udp.local.", RecordType::SRV),
            ("a.417._bailey-pair._udp.local.", RecordType::SRV),
        ] {
            assert_eq!(Asked::from_bytes(&question(name, kind)), None, "{name}");
        }
        let right = question("417._BAILEY-PAIR._udp.local.", RecordType::SRV);
        assert!(
            Asked::from_bytes(&right).is_some(),
            "letters of either case"
        );
        for cut in 0..right.len() {
            assert_eq!(Asked::from_bytes(&right[..cut]), None);
        }
    }

    #[test]
    fn a_members_label_is_another_each_hour_and_for_each_two_and_each_way() {
        let (account, sought, hour) = (AccountId([1; 32]), DeviceId([2; 32]), LABEL_MS);
        let label = member_label(&[3; 32], &account, &sought, 10 * hour + 5);
        assert_eq!(
            label,
            member_label(&[3; 32], &account, &sought, 10 * hour + 9)
        );
        let asked = Asked {
            service: Service::Member,
            label: label.clone(),
            ..asked()
        };
        assert_eq!(Asked::from_bytes(&asked.to_bytes().unwrap()), Some(asked));
        for other in [
            member_label(&[3; 32], &account, &sought, 11 * hour),
            member_label(&[4; 32], &account, &sought, 10 * hour),
            member_label(&[3; 32], &AccountId([9; 32]), &sought, 10 * hour),
            member_label(&[3; 32], &account, &DeviceId([9; 32]), 10 * hour),
        ] {
            assert_ne!(label, other);
        }
        for skew in [9 * hour, 10 * hour, 11 * hour + 5] {
            let answers = member_labels(&[3; 32], &account, &sought, skew);
            assert!(answers.contains(&label));
        }
        assert!(!member_labels(&[3; 32], &account, &sought, 12 * hour).contains(&label));
    }

    #[test]
    fn a_label_that_is_none_is_not_asked_for() {
        for label in ["", "a.b", "a b", "_x", &"a".repeat(33)] {
            let asked = Asked {
                label: label.to_owned(),
                ..asked()
            };
            assert_eq!(asked.to_bytes(), None, "{label}");
        }
    }
}
