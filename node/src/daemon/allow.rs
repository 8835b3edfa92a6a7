//! A running box's reach gets or loses terms.
//!
//! | way | order |
//! |---|---|
//! | allow | the entries on the disk, then the gate: nothing is granted that is not entered |
//! | deny | the gate at once, then the entries: a grant that a person takes back ends though the audit may not be writable, and until it is, less is granted than it says, never more |
//!
//! Both entries (the box's document and the node's) are asked for in the same
//! turn of the loop as the gate is told, so what the gate says of flows that it
//! reset stands after them. A box's changes are made one at a time, whichever device
//! they come from; one that gives and rests on another state of the box is refused.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bailey_docs_store::{DocId, Urgency};
use bailey_gate_proto::channel::ToGate;
use bailey_gate_proto::{NodeAddrs, classify};
use bailey_model::{
    AddrClass, ChangeReachError, Event, Reach, ReachChanged, ReachTerm, RequestKind,
    RequestOutcome, StateHash, Tier,
};

use super::Node;
use super::event::{ConnId, RunId};
use super::fold::BoxState;
use super::pause::by;
use super::run_state::{Phase, Run, Waiting};
use super::store::Tag;
use super::why::Asked;
use crate::account;
use crate::api::{Failure, Reached, Tell, Way};
use crate::log::log;
use crate::{grant, show};

/// Changes of one box that may wait for the one under way.
const MAX_WAITING: usize = 16;
/// Entries of one change: the box's document and the node's.
const ENTRIES: u8 = 2;

/// What command lines asked of a run and its gate has not answered.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    change: Option<Change>,
    next: VecDeque<Wanted>,
    /// What a grant that was taken back could not be entered as, by document; it
    /// is tried again until it stands or another change says more.
    unwritten: Vec<Unwritten>,
    /// In the order in which the gate was asked.
    pub(super) why: VecDeque<Asked>,
}

/// A change that has not begun.
#[derive(Debug)]
struct Wanted {
    asker: Waiting,
    way: Way,
    terms: Reach,
    /// The state of the box that it rests on.
    state: Option<StateHash>,
}

/// An entry that could not be written.
#[derive(Debug)]
struct Unwritten {
    doc: DocId,
    change: ReachChanged,
    /// The store has it again.
    asked: bool,
}

/// A change under way.
#[derive(Debug)]
struct Change {
    asker: Waiting,
    way: Way,
    old: Reach,
    new: Reach,
    /// Entries that have not been answered for.
    missing: u8,
    failed: Option<String>,
    flows_reset: Option<u32>,
    entry: ReachChanged,
}

impl Node {
    pub(super) fn on_change(
        &mut self,
        conn: ConnId,
        target: &str,
        way: Way,
        terms: &[String],
    ) -> Result<(), Failure> {
        let state = self.fold.resolve(target, self.this)?;
        if state.writer != self.this {
            let all = parse(terms)?;
            let kind = match way {
                Way::Allow => RequestKind::Allow,
                Way::Deny => RequestKind::Deny,
            };
            if way == Way::Allow {
                refuse_empty_words(&all)?;
            }
            return self.ask_device(conn, &state, kind, all.to_string());
        }
        let id = self.change_target(&state)?;
        self.change_run(id, way, terms, (Waiting::Conn(conn), None))
    }

    /// Gives terms to a run, or takes them away; whoever asked is answered when it is
    /// done. With the state of the box that this rests on, if it rests on one.
    pub(super) fn change_run(
        &mut self,
        id: RunId,
        way: Way,
        terms: &[String],
        (asker, state): (Waiting, Option<StateHash>),
    ) -> Result<(), Failure> {
        let terms = parse(terms)?;
        if way == Way::Allow {
            refuse_empty_words(&terms)?;
        }
        let run = self.runs.get_mut(&id);
        let run = run.ok_or_else(|| Failure::usage("it does not run"))?;
        takes_changes(run)?;
        if run.questions.next.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} changes of {} wait already", run.name);
            return Err(Failure::host(text));
        }
        run.questions.next.push_back(Wanted {
            asker,
            way,
            terms,
            state,
        });
        self.begin_changes(id);
        Ok(())
    }

    /// The running gated box of this node that is meant.
    fn change_target(&self, state: &BoxState) -> Result<RunId, Failure> {
        let same = |run: &Run| run.incarnation == state.incarnation;
        let Some((id, run)) = self.runs.iter().find(|(_, run)| same(run)) else {
            let name = show::text(&state.name);
            return Err(Failure::usage(format!("{name} does not run"))
                .hint("its next run begins with the --reach that it is given"));
        };
        takes_changes(run)?;
        Ok(*id)
    }

    /// Begins the next change, if none is under way. What cannot be, or changes
    /// nothing, is answered at once.
    fn begin_changes(&mut self, id: RunId) {
        while let Some(run) = self.runs.get_mut(&id) {
            // One that ends takes no change; whoever waits is told at its end.
            if run.questions.change.is_some() || run.phase != Phase::Running {
                return;
            }
            let Some(wanted) = run.questions.next.pop_front() else {
                return;
            };
            let Wanted {
                asker,
                way,
                terms,
                state,
            } = wanted;
            let (incarnation, old, name) = (run.incarnation, run.reach.clone(), run.name.clone());
            // What was taken back and is not entered yet is no state that others know.
            let unentered = state.is_some() && !run.questions.unwritten.is_empty();
            let rests = match unentered {
                true => Err(RequestOutcome::Changed(
                    "its reach was narrowed since".to_owned(),
                )),
                false => self.still_rests(incarnation, state),
            };
            if let Err(changed) = rests {
                self.answer(asker, changed);
                continue;
            }
            let new = match way {
                Way::Allow => old.with(&terms),
                Way::Deny => old.without(&terms, is_within),
            };
            let new = match new {
                Ok(new) if new != old => new,
                Ok(_) => {
                    self.enter_unchanged(id, way, asker);
                    self.answer_change(asker, Ok(told(&name, &old, &old, Some(0))));
                    continue;
                }
                Err(error) => {
                    self.enter_unchanged(id, way, asker);
                    let failure = refused(&name, &old, &error);
                    self.answer_change(asker, Err(failure));
                    continue;
                }
            };
            self.begin_change(id, asker, way, (old, new));
        }
    }

    /// Enters a change. What is taken back is so at once, what is granted after.
    fn begin_change(&mut self, id: RunId, asker: Waiting, way: Way, (old, new): (Reach, Reach)) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let entry = ReachChanged {
            box_id: run.box_id,
            incarnation: run.incarnation,
            old: old.to_string(),
            new: new.to_string(),
            by: by(asker),
        };
        run.questions.unwritten.clear();
        let doc = run.doc();
        run.questions.change = Some(Change {
            asker,
            way,
            old,
            new: new.clone(),
            missing: ENTRIES,
            failed: None,
            flows_reset: None,
            entry: entry.clone(),
        });
        if way == Way::Deny {
            self.answer_gate(id, ToGate::Reach(new));
        }
        for doc in [doc, DocId::Node] {
            let event = Event::ReachChanged(entry.clone());
            self.append(doc, event, Urgency::Urgent, Tag::Reach(id, doc));
        }
    }

    /// One of a change's entries stands, or could not be written.
    pub(super) fn on_reach_entered(&mut self, id: RunId, doc: DocId, result: Result<(), &str>) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let Some(change) = &mut run.questions.change else {
            return;
        };
        change.missing = change.missing.saturating_sub(1);
        if let Err(why) = result {
            change.failed = Some(why.to_owned());
            if change.way == Way::Deny {
                run.questions.unwritten.push(Unwritten {
                    doc,
                    change: change.entry.clone(),
                    asked: false,
                });
            }
        }
        if change.missing > 0 {
            return;
        }
        let (way, new) = (change.way, change.new.clone());
        match (way, &change.failed) {
            // It is the gate's already, and stays so.
            (Way::Deny, _) => run.reach = new,
            (Way::Allow, None) => {
                run.reach.clone_from(&new);
                self.answer_gate(id, ToGate::Reach(new));
            }
            (Way::Allow, Some(_)) => {}
        }
        self.end_change(id);
    }

    /// Tries again to enter what was taken back while nothing could be written.
    pub(super) fn enter_unwritten(&mut self) {
        let mut again = Vec::new();
        for (id, run) in &mut self.runs {
            if run.questions.change.is_some() || run.phase != Phase::Running {
                continue;
            }
            for entry in &mut run.questions.unwritten {
                if !std::mem::replace(&mut entry.asked, true) {
                    again.push((*id, entry.doc, entry.change.clone()));
                }
            }
        }
        for (id, doc, change) in again {
            let event = Event::ReachChanged(change);
            self.append(doc, event, Urgency::Urgent, Tag::ReachAgain(id, doc));
        }
    }

    /// What came of it. Where a later change says more, it is not in the list.
    pub(super) fn on_entered_again(&mut self, id: RunId, doc: DocId, stands: bool) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let unwritten = &mut run.questions.unwritten;
        if stands {
            unwritten.retain(|entry| entry.doc != doc);
        } else if let Some(entry) = unwritten.iter_mut().find(|entry| entry.doc == doc) {
            entry.asked = false;
        }
    }

    /// The gate decides by the reach that it was given.
    pub(super) fn on_reached(&mut self, id: RunId, flows_reset: u32) {
        let run = self.runs.get_mut(&id);
        if let Some(change) = run.and_then(|run| run.questions.change.as_mut()) {
            change.flows_reset = Some(flows_reset);
        }
        self.end_change(id);
    }

    /// Answers for a change once its entries and the gate have been heard.
    fn end_change(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let over = |change: &mut Change| {
            let kept = change.way == Way::Allow && change.failed.is_some();
            change.missing == 0 && (kept || change.flows_reset.is_some())
        };
        let Some(change) = run.questions.change.take_if(over) else {
            return;
        };
        let tell = match &change.failed {
            None => Ok(told(
                &run.name,
                &change.old,
                &change.new,
                change.flows_reset,
            )),
            Some(why) => {
                let stays = match change.way {
                    Way::Allow => "its reach is as it was",
                    Way::Deny => {
                        "its reach is narrowed all the same, and its audit says so once it can"
                    }
                };
                log!("{}: a change of its reach was not entered: {why}", run.name);
                let text = format!("the audit cannot be written: {why}; {stays}");
                Err(Failure::host(text))
            }
        };
        self.answer_change(change.asker, tell);
        self.begin_changes(id);
    }

    /// A person said no to what was not granted anyway. Where another device may ask to
    /// grant it, and that is under way, it must not be done after this.
    fn enter_unchanged(&mut self, id: RunId, way: Way, asker: Waiting) {
        let alone = self.devices.known() < 2;
        let Some(run) = self.runs.get(&id).filter(|_| way == Way::Deny && !alone) else {
            return;
        };
        let reach = run.reach.to_string();
        let event = Event::ReachChanged(ReachChanged {
            box_id: run.box_id,
            incarnation: run.incarnation,
            old: reach.clone(),
            new: reach,
            by: by(asker),
        });
        self.append(DocId::Node, event, Urgency::Urgent, Tag::None);
    }

    /// What came of a change, to whoever asked for it.
    fn answer_change(&mut self, asker: Waiting, came: Result<Reached, Failure>) {
        match (asker, came) {
            (Waiting::Conn(conn), Ok(reached)) => self.finish(conn, Tell::Reach(reached)),
            (Waiting::Conn(conn), Err(failure)) => self.tell(conn, Tell::Failed(failure)),
            (_, Ok(reached)) => {
                let outcome = RequestOutcome::Reach {
                    reach: reached.new,
                    flows_reset: reached.flows_reset,
                };
                self.answer(asker, outcome);
            }
            (_, Err(failure)) => self.answer(asker, RequestOutcome::NotDone(failure.text)),
        }
    }

    /// The gate is gone, or the box over: whoever waits is told.
    pub(super) fn end_questions(&mut self, questions: Questions) {
        let Questions {
            change, next, why, ..
        } = questions;
        let changes = change.into_iter().map(|change| change.asker);
        for asker in changes.chain(next.into_iter().map(|wanted| wanted.asker)) {
            let failure = Failure::host("the box ended, or its gate did, before it answered");
            self.answer_change(asker, Err(failure));
        }
        for asked in why {
            self.explain_here(asked);
        }
    }
}

/// Each term by itself, so that an error names the one at fault.
fn parse(terms: &[String]) -> Result<Reach, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    let mut all = Reach::nothing();
    for term in terms {
        let term: Reach = term.parse().map_err(|error| fault(&error))?;
        all = all.with(&term).map_err(|error| {
            fault(&error).hint("bailey deny BOX takes terms away; without any it grants nothing")
        })?;
    }
    Ok(all)
}

/// A reach says no more than it holds: what no dial is ever granted by is no
/// part of one.
fn refuse_empty_words(terms: &Reach) -> Result<(), Failure> {
    for term in terms.terms() {
        if let Some(why) = grant::never_grants(term) {
            let term = show::text(&term.to_string());
            return Err(Failure::usage(format!(
                "{term}: it would grant nothing: {why}"
            )));
        }
    }
    Ok(())
}

/// Whether the reach of a run can be changed.
fn takes_changes(run: &Run) -> Result<(), Failure> {
    let name = show::text(&run.name);
    match run.phase {
        _ if run.tier != Tier::Gated => Err(Failure::usage(format!(
            "{name} is an {} box: nothing decides its flows, so it has no reach",
            run.tier
        ))),
        Phase::Running if run.gate.is_some() => Ok(()),
        Phase::Making => Err(Failure::host(format!("{name} is still starting"))),
        Phase::Running => Err(Failure::host(format!(
            "{name} has no gate, and so no network"
        ))),
        Phase::Ending | Phase::Closing => Err(Failure::usage(format!("{name} does not run"))
            .hint("its next run begins with the --reach that it is given")),
    }
}

fn told(name: &str, old: &Reach, new: &Reach, flows_reset: Option<u32>) -> Reached {
    Reached {
        name: name.to_owned(),
        old: old.to_string(),
        new: new.to_string(),
        flows_reset,
    }
}

/// Why it stays as it was, and what it is.
fn refused(name: &str, old: &Reach, error: &ChangeReachError) -> Failure {
    let failure = Failure::usage(format!("{}: {error}", show::text(name)));
    let reach = show::text(&old.to_string());
    match error {
        ChangeReachError::StillGranted { by, .. } => failure.hint(account::command(&format!(
            "deny {} {} takes that away whole; its reach is {reach}",
            show::shell_word(name),
            show::shell_word(by),
        ))),
        _ => failure.hint(format!("its reach is {reach}, and stays so")),
    }
}

/// Addresses of each kind within the spaces that are shared by many: one of them
/// lies in every wide prefix that holds its kind.
const SAMPLES: [IpAddr; 11] = [
    IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 1, 1, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(100, 64, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(172, 16, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2606, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];

/// Whether a wide word grants an address of a prefix, as far as the registries
/// say: its ends are looked at, and the samples that lie between them.
fn is_within(word: &ReachTerm, denied: &ReachTerm) -> bool {
    let ReachTerm::Prefix { addr, len, .. } = denied else {
        return false;
    };
    let wanted = match word {
        ReachTerm::Internet => AddrClass::Internet,
        // Which of them are on this machine's networks is the gate's to know.
        ReachTerm::Local => AddrClass::Private,
        ReachTerm::Loopback(_)
        | ReachTerm::Name(..)
        | ReachTerm::Prefix { .. }
        | ReachTerm::Mdns => return false,
    };
    let addrs = NodeAddrs::default();
    let [first, last] = ends(*addr, *len);
    let between = SAMPLES
        .into_iter()
        .filter(|sample| first <= *sample && *sample <= last);
    [first, last]
        .into_iter()
        .chain(between)
        .map(|addr| classify(addr, &addrs))
        .any(|class| class == wanted || (*word == ReachTerm::Local && class == AddrClass::Local))
}

/// The first and the last address of a prefix.
fn ends(addr: IpAddr, len: u8) -> [IpAddr; 2] {
    match addr {
        IpAddr::V4(addr) => {
            let rest = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let bits = addr.to_bits();
            [bits & !rest, bits | rest].map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(addr) => {
            let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            let bits = addr.to_bits();
            [bits & !rest, bits | rest].map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_term_is_named_and_nothing_is_no_term() {
        let parsed = |terms: &[&str]| {
            let terms: Vec<String> = terms.iter().map(|term| (*term).to_owned()).collect();
            parse(&terms)
                .map(|reach| reach.to_string())
                .map_err(|failure| failure.text)
        };
        assert_eq!(
            parsed(&["internet", "a.b:80,443"]).unwrap(),
            "internet,a.b:80,443"
        );
        assert_eq!(parsed(&["a.b,c.d"]).unwrap(), "a.b,c.d");
        let fault = parsed(&["internet", "a..b"]).unwrap_err();
        assert!(fault.contains("a..b"), "{fault}");
        assert!(parsed(&["nothing"]).unwrap_err().contains("nothing"));
        // A port alone is no term, whatever stands before it.
        assert!(parsed(&["a.b:80", "443"]).unwrap_err().contains("443"));
    }

    #[test]
    fn a_word_that_stays_is_seen_to_grant_a_prefix_that_is_denied() {
        let granted = |word: &str, denied: &str| {
            let term = |text: &str| text.parse::<Reach>().unwrap().terms()[0].clone();
            is_within(&term(word), &term(denied))
        };
        assert!(granted("internet", "93.184.216.34"));
        assert!(granted("internet", "93.184.216.0/24:80"));
        assert!(granted("internet", "2606:2800:220:1::/64"));
        assert!(!granted("internet", "192.168.1.9"));
        assert!(granted("local", "192.168.1.0/24"));
        assert!(!granted("local", "93.184.216.34"));
        assert!(!granted("internet", "169.254.169.254"));
        // Wide ones, whose ends are of no kind that a word grants.
        for (word, wide) in [
            ("internet", "0.0.0.0/0"),
            ("internet", "0.0.0.0/1"),
            ("internet", "192.0.0.0/2"),
            ("local", "192.0.0.0/8"),
            ("local", "0.0.0.0/0"),
            ("internet", "::/0"),
            ("local", "::/0"),
        ] {
            assert!(granted(word, wide), "{word} {wide}");
        }
        assert!(!granted("internet", "224.0.0.0/3") && !granted("local", "11.0.0.0/8"));
    }
}
