//! Equal questions that are with the resolvers at the same time: one is put to
//! them, and each asker gets an answer of its own to it.
//!
//! What goes upstream is made by the gate, so two questions are equal if their name
//! and type are. Each has its entry first, its own deadline and its own judgement.

use bailey_model::Host;
use hickory_proto::rr::RecordType;

use super::question::{Question, Stage};
use super::{Dns, DnsOutput};
use crate::{Now, mdns};

impl Dns {
    /// Goes to the resolvers with a question whose entry stands, or joins one that
    /// is there and is equal.
    pub(super) fn ask_or_share(&mut self, now: Now, number: u64) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        if question.target.is_on_link() {
            question.deadline = question.deadline.min(now.saturating_add(mdns::PATIENCE));
        }
        let question = &*question;
        let asked = |question: &Question| -> (Host, RecordType) {
            (question.target.host.clone(), question.qtype())
        };
        let wanted = asked(question);
        let leads = |(other, question): (&u64, &Question)| {
            let with_resolvers = question.stage == Stage::Resolvers && *other != number;
            (with_resolvers && asked(question) == wanted).then_some(*other)
        };
        let Some(leader) = self.questions.iter().find_map(leads) else {
            return self.try_resolver(now, number);
        };
        if let Some(question) = self.questions.get_mut(&number) {
            question.stage = Stage::Shares(leader);
        }
        if let Some(leader) = self.questions.get_mut(&leader) {
            leader.sharers.push(number);
        }
    }

    /// The questions that an outcome is for: one, and those that share its answer.
    /// From then on each is on its own.
    pub(super) fn part(&mut self, number: u64) -> Vec<u64> {
        let mut all = vec![number];
        if let Some(question) = self.questions.get_mut(&number) {
            all.append(&mut question.sharers);
        }
        all
    }

    /// Takes a question out. What it had under way goes on for the next of those
    /// that share it, or ends.
    pub(super) fn drop_question(&mut self, number: u64) -> Option<Question> {
        let mut question = self.questions.remove(&number)?;
        if let Stage::Shares(leader) = question.stage
            && let Some(leader) = self.questions.get_mut(&leader)
        {
            leader.sharers.retain(|sharer| *sharer != number);
        }
        let mut sharers = std::mem::take(&mut question.sharers);
        if sharers.is_empty() {
            for attempt in question.attempts.drain(..) {
                if self.exchanges.remove(&attempt.id).is_some() {
                    self.outputs.push_back(DnsOutput::Cancel { id: attempt.id });
                }
            }
            return Some(question);
        }
        let heir = sharers.remove(0);
        for sharer in &sharers {
            if let Some(sharer) = self.questions.get_mut(sharer) {
                sharer.stage = Stage::Shares(heir);
            }
        }
        for attempt in &question.attempts {
            self.exchanges.insert(attempt.id, heir);
        }
        if let Some(next) = self.questions.get_mut(&heir) {
            next.stage = Stage::Resolvers;
            next.tries = question.tries;
            next.retry_at = question.retry_at;
            next.attempts.append(&mut question.attempts);
            next.sharers = sharers;
        }
        Some(question)
    }
}
