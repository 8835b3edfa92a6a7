//! What the calls of the machine are made of.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bailey_model::{AddrClass, Host, NameAnswer, NameAsked, Refusal, Transport};
use hickory_proto::rr::Record;

use super::answer::{self, Outcome};
use super::question::{Attempt, Question, Stage, Target};
use super::reply::{self, Answer};
use super::request::{self, Asked, Request};
use super::told;
use super::zones::{MANY, zone_pattern};
use super::{
    ANSWER_WITHIN, AskId, Dns, DnsOutput, ExchangeId, MAX_ENTRIES, MAX_FOLLOWED, MAX_QUESTIONS,
    MAX_TRIES, Pending, QUESTIONS_PER_SECOND, RETRY_AFTER, RefusedKey, local, negative,
};
use crate::Now;
use crate::coalesce::Seen;
use crate::mdns;
use crate::names::NameTable;
use crate::policy::Policy;

impl Dns {
    pub(super) fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn reply(&mut self, request: &Request, answer: Answer) {
        let bytes = reply::encode(request, answer);
        let (client, transport) = (request.client, request.transport);
        self.outputs.push_back(DnsOutput::Reply {
            client,
            transport,
            bytes,
        });
    }

    pub(super) fn refuse(
        &mut self,
        now: Now,
        host: Option<Host>,
        class: Option<AddrClass>,
        refusal: Refusal,
    ) {
        let mut key = RefusedKey {
            host,
            class,
            refusal,
        };
        if self.refused.note(now, key.clone()) == Seen::Again {
            return;
        }
        // Many different names of one zone are one entry with a count.
        if let (Some(host), Refusal::NameOutsideReach) = (&key.host, refusal)
            && self.refused_zones.note(now, host) > MANY
            && let Some(pattern) = zone_pattern(host)
        {
            self.refused.forget(&key);
            key.host = Some(pattern);
            if self.refused.note(now, key.clone()) == Seen::Again {
                return;
            }
        }
        self.outputs.push_back(DnsOutput::Refused(key.entry(1)));
    }

    /// Whether one more question may become an entry, which then counts.
    pub(super) fn within_rate(&mut self, now: Now) -> bool {
        let each = Duration::from_secs(1) / QUESTIONS_PER_SECOND;
        let level_at = self.level_at.max(now);
        if level_at.saturating_sub(now) > each * (QUESTIONS_PER_SECOND - 1) {
            return false;
        }
        self.level_at = level_at + each;
        true
    }

    pub(super) fn over_limit(&mut self, now: Now, request: &Request) {
        self.refuse(now, None, None, Refusal::Limit);
        self.reply(request, Answer::servfail(0, "too many questions at once"));
    }

    /// Takes a question in reach up.
    pub(super) fn admit(&mut self, now: Now, request: Request, mut targets: VecDeque<Target>) {
        let Some(target) = targets.pop_front() else {
            self.reply(&request, Answer::servfail(0, "no such question"));
            return;
        };
        if self.questions.len() >= MAX_QUESTIONS {
            self.over_limit(now, &request);
            return;
        }
        if self.facts.resolvers.is_empty() && !target.is_on_link() {
            self.reply(&request, Answer::servfail(22, "the node has no resolver"));
            return;
        }
        let number = self.next();
        let deadline = now.saturating_add(ANSWER_WITHIN);
        self.questions
            .insert(number, Question::new(request, target, targets, deadline));
        self.enter(now, number);
    }

    /// Has the question's present target entered, or finds it entered already.
    pub(super) fn enter(&mut self, now: Now, number: u64) {
        let within_rate = self.within_rate(now);
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        if !within_rate || self.entries.len() >= MAX_ENTRIES {
            self.refuse(now, None, None, Refusal::Limit);
            self.turn_away(number, |_| {
                Answer::servfail(0, "too many questions at once")
            });
            return;
        }
        let key = (question.target.host.clone(), question.qtype().into());
        if self.asked.note(now, key.clone()) == Seen::Again {
            match self.entry_of.get(&key) {
                Some(id) => {
                    question.stage = Stage::Entry(*id);
                    if let Some(pending) = self.entries.get_mut(id) {
                        pending.waiting.push(number);
                    }
                }
                None => self.ask_or_share(now, number),
            }
            return;
        }
        self.asked_zones.note(now, &key.0);
        self.serial += 1;
        let id = AskId(self.serial);
        question.stage = Stage::Entry(id);
        self.entry_of.insert(key.clone(), id);
        let entry = NameAsked {
            host: key.0.clone(),
            qtype: key.1,
            count: 1,
        };
        self.entries.insert(
            id,
            Pending {
                key,
                waiting: vec![number],
            },
        );
        self.outputs.push_back(DnsOutput::Ask { id, entry });
    }

    pub(super) fn take_entry(&mut self, id: AskId) -> Option<Pending> {
        let pending = self.entries.remove(&id)?;
        if self.entry_of.get(&pending.key) == Some(&id) {
            self.entry_of.remove(&pending.key);
        }
        Some(pending)
    }

    /// Puts the question to the next resolver; each is tried twice at most.
    pub(super) fn try_resolver(&mut self, now: Now, number: u64) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        let resolvers = &self.facts.resolvers;
        let link = question.target.is_on_link();
        let server = match resolvers.len() {
            _ if link => (question.tries == 0).then_some(mdns::GROUP),
            0 => None,
            count if question.tries >= MAX_TRIES.min(2 * count) => None,
            count => resolvers.get(question.tries % count).copied(),
        };
        question.stage = Stage::Resolvers;
        match server {
            Some(server) => {
                question.tries += 1;
                question.retry_at = (!link).then(|| now.saturating_add(RETRY_AFTER));
                self.exchange(now, number, server, Transport::Udp);
            }
            None if question.attempts.is_empty() => {
                for number in self.part(number) {
                    self.fail(now, number, 22, "no resolver could answer");
                }
            }
            None => question.retry_at = None,
        }
    }

    pub(super) fn exchange(&mut self, now: Now, number: u64, server: SocketAddr, over: Transport) {
        let id = ExchangeId(self.next());
        let message_id = self.ids.next_id();
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        // A resolver that knows no EDNS answers FORMERR; the second round is plain.
        let to = match question.tries <= self.facts.resolvers.len() {
            _ if question.target.is_on_link() => Asked::Link,
            true => Asked::Resolver,
            false => Asked::Plain,
        };
        match request::upstream(message_id, &question.target.name, question.qtype(), to) {
            Some(bytes) => {
                question.attempts.push(Attempt {
                    id,
                    server,
                    over,
                    message_id,
                });
                self.exchanges.insert(id, number);
                self.outputs.push_back(DnsOutput::Upstream {
                    id,
                    server,
                    over,
                    bytes,
                });
            }
            None => {
                for number in self.part(number) {
                    self.fail(now, number, 0, "the question cannot be put");
                }
            }
        }
    }

    pub(super) fn tcp_exchanges(&self) -> usize {
        let questions = self.questions.values();
        let attempts = questions.flat_map(|question| &question.attempts);
        attempts
            .filter(|attempt| attempt.over == Transport::Tcp)
            .count()
    }

    pub(super) fn end_exchange(&mut self, number: u64, id: ExchangeId) {
        if let Some(question) = self.questions.get_mut(&number) {
            question.attempts.retain(|attempt| attempt.id != id);
        }
        if self.exchanges.remove(&id).is_some() {
            self.outputs.push_back(DnsOutput::Cancel { id });
        }
    }

    pub(super) fn end_exchanges(&mut self, number: u64) {
        let Some(question) = self.questions.get(&number) else {
            return;
        };
        let ids: Vec<_> = question.attempts.iter().map(|attempt| attempt.id).collect();
        for id in ids {
            self.end_exchange(number, id);
        }
    }

    /// Answers a question that was entered, and tells what with.
    pub(super) fn finish(
        &mut self,
        now: Now,
        number: u64,
        what: NameAnswer,
        answer: impl FnOnce(&Request) -> Answer,
    ) {
        if let Some(question) = self.drop_question(number) {
            let answer = answer(&question.request);
            self.reply(&question.request, answer);
            self.tell_answer(now, &question.target, question.qtype(), what.into());
        }
    }

    pub(super) fn fail(&mut self, now: Now, number: u64, code: u16, text: &str) {
        let failed = |_: &Request| Answer::servfail(code, text);
        self.finish(now, number, NameAnswer::Failed, failed);
    }

    /// Answers a question whose refusal is told.
    pub(super) fn turn_away(&mut self, number: u64, answer: impl FnOnce(&Request) -> Answer) {
        if let Some(question) = self.drop_question(number) {
            let answer = answer(&question.request);
            self.reply(&question.request, answer);
        }
    }

    /// A resolver answered: go on with another name, or answer the box.
    pub(super) fn conclude(
        &mut self,
        now: Now,
        number: u64,
        outcome: Outcome,
        policy: &Policy,
        names: &mut NameTable,
    ) {
        let Some(question) = self.questions.get_mut(&number) else {
            return;
        };
        match outcome {
            Outcome::Follow { chain, target }
                if question.followed < MAX_FOLLOWED && !local::is_special(&target) =>
            {
                question.followed += 1;
                question.chain.extend(chain);
                let grant = question.target.grant.clone();
                match Target::new(target, grant) {
                    Some(target) => question.aim(target),
                    None => {
                        return self.finish(now, number, NameAnswer::NoRecords, |request| {
                            Answer::nodata(request.name())
                        });
                    }
                }
                self.enter(now, number);
            }
            Outcome::Follow { .. } => {
                self.finish(now, number, NameAnswer::NoRecords, |request| {
                    Answer::nodata(request.name())
                });
            }
            Outcome::Negative { exists, .. }
                if !question.targets.is_empty() && question.followed == 0 =>
            {
                question.exists |= exists;
                if let Some(target) = question.targets.pop_front() {
                    question.aim(target);
                }
                self.enter(now, number);
            }
            Outcome::Negative { exists, chain, soa } => {
                // One type is never NXDOMAIN while another has data, nor a name
                // below which one is granted.
                let exists = exists
                    || question.exists
                    || names.knows(now, &question.target.grant)
                    || question
                        .request
                        .host()
                        .is_some_and(|host| policy.grants_below(&host));
                let chain: Vec<Record> = question.chain.drain(..).chain(chain).collect();
                self.finish(now, number, negative(exists), |request| {
                    Answer::negative(request, exists, chain, soa)
                });
            }
            Outcome::Records { chain, records } => {
                let chain: Vec<Record> = question.chain.drain(..).chain(chain).collect();
                let target = question.target.clone();
                let Some(question) = self.drop_question(number) else {
                    return;
                };
                let request = question.request;
                let outcome =
                    self.answer_with(now, &request, &target, (chain, records), policy, names);
                self.tell_answer(now, &target, request.qtype, outcome);
            }
        }
    }

    pub(super) fn answer_from_hosts(
        &mut self,
        now: Now,
        request: &Request,
        target: &Target,
        addrs: &[IpAddr],
        policy: &Policy,
        names: &mut NameTable,
    ) {
        let records = answer::addr_records(&target.name, addrs);
        self.answer_with(now, request, target, (Vec::new(), records), policy, names);
    }

    /// Judges the records, notes what is given and what is withheld, answers; what
    /// with.
    pub(super) fn answer_with(
        &mut self,
        now: Now,
        request: &Request,
        target: &Target,
        (chain, records): (Vec<Record>, Vec<Record>),
        policy: &Policy,
        names: &mut NameTable,
    ) -> told::Outcome {
        let had_none = records.is_empty();
        let filtered = answer::filter(records, &target.grant, policy);
        for (ip, ttl) in &filtered.given {
            names.give(
                now,
                *ip,
                &target.grant,
                Duration::from_secs(u64::from(*ttl)),
            );
        }
        if let Some(class) = filtered.withheld {
            let host = Some(target.grant.clone());
            self.refuse(now, host, Some(class), Refusal::AnswerWithheld);
        }
        let (what, answer) = match filtered.withheld {
            Some(class) if filtered.kept.is_empty() => (
                NameAnswer::Withheld,
                Answer::withheld(request.name(), class),
            ),
            _ if filtered.kept.is_empty() && !had_none => {
                (NameAnswer::NoRecords, Answer::nodata(request.name()))
            }
            _ => (
                NameAnswer::Records,
                Answer::records(request, chain, filtered.kept),
            ),
        };
        let outcome = told::Outcome {
            answer: what,
            addrs: filtered.given.into_iter().map(|(ip, _)| ip).collect(),
            ttl: answer.ttl(),
        };
        self.reply(request, answer);
        outcome
    }
}
