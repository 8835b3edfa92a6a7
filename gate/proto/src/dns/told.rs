//! What is told of answers: each different one once within 10 s, then how many more.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use bailey_model::{Host, NameAnswer, NameAnswered};
use hickory_proto::rr::RecordType;

use super::question::Target;
use super::{Dns, DnsOutput};
use crate::Now;
use crate::coalesce::Seen;

/// What a box was given for a name.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) answer: NameAnswer,
    pub(super) addrs: Vec<IpAddr>,
    /// Seconds; the least of its records.
    pub(super) ttl: u32,
}

impl From<NameAnswer> for Outcome {
    /// One without records.
    fn from(answer: NameAnswer) -> Self {
        let (addrs, ttl) = (Vec::new(), 0);
        Self { answer, addrs, ttl }
    }
}

/// An answer that is counted. Two are equal whatever their time.
#[derive(Debug, Clone)]
pub(super) struct Answered(NameAnswered);

impl Answered {
    fn new(target: &Target, qtype: RecordType, outcome: Outcome) -> Self {
        let mut addrs = outcome.addrs;
        // A resolver turns them round from one answer to the next.
        addrs.sort_unstable();
        addrs.dedup();
        let more = addrs.len().saturating_sub(NameAnswered::MAX_ADDRS);
        addrs.truncate(NameAnswered::MAX_ADDRS);
        Self(NameAnswered {
            host: target.grant.clone(),
            qtype: qtype.into(),
            answer: outcome.answer,
            addrs,
            more: u32::try_from(more).unwrap_or(u32::MAX),
            ttl: outcome.ttl,
            count: 1,
        })
    }

    fn key(&self) -> (&Host, u16, NameAnswer, &[IpAddr], u32) {
        let it = &self.0;
        (&it.host, it.qtype, it.answer, &it.addrs, it.more)
    }

    pub(super) fn entry(self, count: u32) -> NameAnswered {
        NameAnswered { count, ..self.0 }
    }
}

impl PartialEq for Answered {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Answered {}

impl Hash for Answered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Dns {
    /// Tells what a question that was entered came to, or counts it.
    pub(super) fn tell_answer(
        &mut self,
        now: Now,
        target: &Target,
        qtype: RecordType,
        outcome: Outcome,
    ) {
        let answered = Answered::new(target, qtype, outcome);
        if self.answered.note(now, answered.clone()) == Seen::First {
            self.outputs
                .push_back(DnsOutput::Answered(answered.entry(1)));
        }
    }
}
