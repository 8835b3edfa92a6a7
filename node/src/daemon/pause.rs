//! A box is paused, and goes on.
//!
//! | way | order |
//! |---|---|
//! | pause | the gate holds and the processes are stopped, at once and side by side; when both are measured the entries, then the answer. What is taken away stays so though nothing can be written, and is entered once it can |
//! | resume | the entries on the disk, then the gate, then the processes: nothing goes on that is not entered |
//!
//! Both entries stand in the box's document and the node's. One way is gone at a
//! time; what is asked meanwhile waits. The end of the box takes all of it along: what
//! is held can be killed.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::Instant;

use bailey_docs_store::{DocId, Urgency};
use bailey_gate_proto::channel::ToGate;
use bailey_model::{BoxPaused, BoxResumed, ChangedBy, Event, RequestOutcome, StateHash};

use super::Node;
use super::event::{NodeEvent, RunId};
use super::run_state::{Phase, Run, Waiting};
use super::still::{self, Grip, Held, StillError};
use super::store::Tag;
use crate::log::log;

/// Ways of one box that may wait for the one under way.
const MAX_WAITING: usize = 16;
/// Entries of one way: the box's document and the node's.
const ENTRIES: u8 = 2;

/// Whether a box is held, and what is asked about that.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    state: State,
    next: VecDeque<Wanted>,
    /// That it is held could not be entered, by document; tried again until it stands.
    unentered: Vec<Unentered>,
}

#[derive(Debug)]
struct Unentered {
    doc: DocId,
    entry: BoxPaused,
    /// The store has it again.
    asked: bool,
}

/// What a person wants of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Pause,
    Resume,
}

/// A wish that has not begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) wish: Wish,
    pub(super) asker: Waiting,
    /// The state that it rests on.
    pub(super) state: Option<StateHash>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Runs,
    Pausing(Work),
    Held(Held),
    Resuming(Work),
}

/// A way under way.
#[derive(Debug)]
struct Work {
    asker: Waiting,
    since: Instant,
    /// The gate has not answered.
    gate: bool,
    /// Entries that have not been answered for.
    missing: u8,
    failed: Option<String>,
    /// Its processes, once they stand; until they go on.
    held: Option<Held>,
}

impl Pauses {
    /// Whether it is held, or about to be, or not let go yet.
    pub(crate) fn holds(&self) -> bool {
        !matches!(self.state, State::Runs)
    }
}

impl Node {
    /// Wants a running box of this node to stand, or to go on; the answer comes when
    /// it is measured.
    pub(super) fn wish(&mut self, id: RunId, wanted: Wanted) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        if run.pauses.next.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} of its pauses wait already");
            return self.answer(wanted.asker, RequestOutcome::NotDone(text));
        }
        run.pauses.next.push_back(wanted);
        self.begin_wishes(id);
    }

    fn begin_wishes(&mut self, id: RunId) {
        while let Some(run) = self.runs.get_mut(&id) {
            // One that ends takes no wish; whoever waits is told at its end.
            if run.phase != Phase::Running {
                return;
            }
            if matches!(run.pauses.state, State::Pausing(_) | State::Resuming(_)) {
                return;
            }
            let Some(wanted) = run.pauses.next.pop_front() else {
                return;
            };
            let incarnation = run.incarnation;
            if let Err(changed) = self.still_rests(incarnation, wanted.state) {
                self.answer(wanted.asker, changed);
                continue;
            }
            match wanted.wish {
                Wish::Pause => self.begin_pause(id, wanted.asker),
                Wish::Resume => self.begin_resume(id, wanted.asker),
            }
        }
    }

    /// A run, unless it ends: then all of this is over with it.
    fn wishing(&mut self, id: RunId) -> Option<&mut Run> {
        let run = self.runs.get_mut(&id);
        run.filter(|run| run.phase == Phase::Running)
    }

    fn begin_pause(&mut self, id: RunId, asker: Waiting) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        if let State::Held(held) = &run.pauses.state {
            // A second one changes nothing.
            let outcome = paused(held, Instant::now());
            return self.answer(asker, outcome);
        }
        let proc_root = run.proc_root.as_ref();
        let proc_root = proc_root.and_then(|root| root.as_fd().try_clone_to_owned().ok());
        let grip = Grip {
            freezer: run
                .cgroup
                .as_ref()
                .and_then(super::limits::BoxCgroup::freezer),
            proc_root,
        };
        run.pauses.state = State::Pausing(Work {
            asker,
            since: Instant::now(),
            gate: run.gate.is_some(),
            missing: 0,
            failed: None,
            held: None,
        });
        self.answer_gate(id, ToGate::Hold(true));
        let events = self.events.clone();
        tokio::spawn(async move {
            let held = tokio::task::spawn_blocking(|| still::hold(grip)).await;
            let held = match held {
                Ok(held) => held.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            // Without its loop the node is gone, and its boxes with it.
            let _gone = events.send(NodeEvent::Stands { run: id, held }).await;
        });
    }

    /// Its processes stand, or could not be made to.
    pub(super) fn on_stands(&mut self, id: RunId, held: Result<Held, String>) {
        let Some(run) = self.wishing(id) else {
            return;
        };
        let State::Pausing(work) = &mut run.pauses.state else {
            return;
        };
        match held {
            Ok(held) => {
                work.held = Some(held);
                self.enter_pause(id);
            }
            Err(why) => {
                let asker = work.asker;
                run.pauses.state = State::Runs;
                self.answer_gate(id, ToGate::Hold(false));
                self.answer(asker, RequestOutcome::NotDone(format!("not paused: {why}")));
                self.begin_wishes(id);
            }
        }
    }

    /// The gate holds, or holds no more.
    pub(super) fn on_gate_held(&mut self, id: RunId) {
        let Some(run) = self.wishing(id) else {
            return;
        };
        match &mut run.pauses.state {
            State::Pausing(work) => {
                work.gate = false;
                self.enter_pause(id);
            }
            State::Resuming(work) if work.gate => {
                work.gate = false;
                self.let_go_on(id);
            }
            State::Runs | State::Held(_) | State::Resuming(_) => {}
        }
    }

    /// Enters that it is held, once all of it is.
    fn enter_pause(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let doc = run.doc();
        let (box_id, incarnation) = (run.box_id, run.incarnation);
        let State::Pausing(work) = &mut run.pauses.state else {
            return;
        };
        let Some(held) = work.held.as_ref().filter(|_| !work.gate) else {
            return;
        };
        work.missing = ENTRIES;
        let entry = BoxPaused {
            box_id,
            incarnation,
            processes: held.processes,
            hold: held.hold,
            by: by(work.asker),
        };
        for doc in [doc, DocId::Node] {
            let event = Event::BoxPaused(entry.clone());
            self.append(doc, event, Urgency::Urgent, Tag::Pause(id, doc));
        }
    }

    /// The entries first; then the gate, then the processes.
    fn begin_resume(&mut self, id: RunId, asker: Waiting) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let (box_id, incarnation) = (run.box_id, run.incarnation);
        let held = match std::mem::take(&mut run.pauses.state) {
            State::Held(held) => held,
            other => {
                run.pauses.state = other;
                let outcome = RequestOutcome::NotDone("it is not paused".to_owned());
                return self.answer(asker, outcome);
            }
        };
        let doc = run.doc();
        run.pauses.unentered.clear();
        run.pauses.state = State::Resuming(Work {
            asker,
            since: Instant::now(),
            gate: false,
            missing: ENTRIES,
            failed: None,
            held: Some(held),
        });
        let entry = BoxResumed {
            box_id,
            incarnation,
            by: by(asker),
        };
        for doc in [doc, DocId::Node] {
            let event = Event::BoxResumed(entry.clone());
            self.append(doc, event, Urgency::Urgent, Tag::Pause(id, doc));
        }
    }

    /// One of a way's entries stands, or could not be written.
    pub(super) fn on_pause_entered(&mut self, id: RunId, doc: DocId, result: Result<(), &str>) {
        let Some(run) = self.wishing(id) else {
            return;
        };
        let (box_id, incarnation) = (run.box_id, run.incarnation);
        let pausing = matches!(run.pauses.state, State::Pausing(_));
        let (State::Pausing(work) | State::Resuming(work)) = &mut run.pauses.state else {
            return self.on_pause_entered_again(id, doc, result.is_ok());
        };
        work.missing = work.missing.saturating_sub(1);
        if let Err(why) = result {
            log!("{}: a pause was not entered: {why}", run.name);
            work.failed = Some(why.to_owned());
            let held = work.held.as_ref().filter(|_| pausing);
            run.pauses.unentered.extend(held.map(|held| Unentered {
                doc,
                entry: BoxPaused {
                    box_id,
                    incarnation,
                    processes: held.processes,
                    hold: held.hold,
                    by: by(work.asker),
                },
                asked: false,
            }));
        }
        if work.missing > 0 {
            return;
        }
        match pausing {
            true => self.end_pause(id),
            false => self.begin_to_go_on(id),
        }
    }

    fn end_pause(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let work = match std::mem::take(&mut run.pauses.state) {
            State::Pausing(work) => work,
            other => {
                run.pauses.state = other;
                return;
            }
        };
        let Some(held) = work.held else {
            return;
        };
        let outcome = match work.failed {
            None => paused(&held, work.since),
            Some(why) => RequestOutcome::NotDone(format!(
                "the audit cannot be written: {why}; it is paused all the same, and its audit \
                 says so once it can"
            )),
        };
        run.pauses.state = State::Held(held);
        self.answer(work.asker, outcome);
        self.begin_wishes(id);
    }

    /// Its entries stand: the gate, and behind it the processes.
    fn begin_to_go_on(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let State::Resuming(work) = &mut run.pauses.state else {
            return;
        };
        if let Some(why) = work.failed.take() {
            let text = format!("the audit cannot be written: {why}; it stays paused");
            return self.stay_held(id, text);
        }
        work.gate = run.gate.is_some();
        match work.gate {
            true => self.answer_gate(id, ToGate::Hold(false)),
            false => self.let_go_on(id),
        }
    }

    fn let_go_on(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let State::Resuming(work) = &mut run.pauses.state else {
            return;
        };
        let Some(held) = work.held.take() else {
            return;
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let gone = tokio::task::spawn_blocking(|| still::let_go(held)).await;
            let gone = match gone {
                Ok(gone) => gone.map_err(|(held, error)| (Some(held), error)),
                Err(error) => Err((None, StillError::Cgroup(std::io::Error::other(error)))),
            };
            let gone = gone.map_err(|(held, error)| (held, error.to_string()));
            // Without its loop the node is gone, and its boxes with it.
            let _gone = events.send(NodeEvent::GoesOn { run: id, gone }).await;
        });
    }

    /// Its processes go on, or could not be let.
    pub(super) fn on_goes_on(&mut self, id: RunId, gone: Result<(), (Option<Held>, String)>) {
        let Some(run) = self.wishing(id) else {
            return;
        };
        let State::Resuming(work) = &mut run.pauses.state else {
            return;
        };
        match gone {
            Ok(()) => {
                let (asker, since) = (work.asker, work.since);
                let outcome = RequestOutcome::Resumed {
                    processes: run.count_processes(),
                    took_ms: millis(since),
                };
                run.pauses.state = State::Runs;
                self.answer(asker, outcome);
                self.begin_wishes(id);
            }
            Err((held, why)) => {
                work.held = held;
                self.answer_gate(id, ToGate::Hold(true));
                self.stay_held(id, format!("not resumed: {why}"));
            }
        }
    }

    /// It was to go on and does not; what was entered of that is taken back.
    fn stay_held(&mut self, id: RunId, text: String) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let work = match std::mem::take(&mut run.pauses.state) {
            State::Resuming(work) => work,
            other => {
                run.pauses.state = other;
                return;
            }
        };
        if let Some(held) = work.held {
            let entry = BoxPaused {
                box_id: run.box_id,
                incarnation: run.incarnation,
                processes: held.processes,
                hold: held.hold,
                by: by(work.asker),
            };
            let again = |doc| Unentered {
                doc,
                entry: entry.clone(),
                asked: false,
            };
            run.pauses.unentered = vec![again(run.doc()), again(DocId::Node)];
            run.pauses.state = State::Held(held);
        }
        self.answer(work.asker, RequestOutcome::NotDone(text));
        self.begin_wishes(id);
    }

    /// Tries again to enter that a box is held.
    pub(super) fn enter_unentered_pauses(&mut self) {
        let mut again = Vec::new();
        for (id, run) in &mut self.runs {
            if !matches!(run.pauses.state, State::Held(_)) || run.phase != Phase::Running {
                continue;
            }
            for it in &mut run.pauses.unentered {
                if !std::mem::replace(&mut it.asked, true) {
                    again.push((*id, it.doc, it.entry.clone()));
                }
            }
        }
        for (id, doc, entry) in again {
            let event = Event::BoxPaused(entry);
            self.append(doc, event, Urgency::Urgent, Tag::Pause(id, doc));
        }
    }

    fn on_pause_entered_again(&mut self, id: RunId, doc: DocId, stands: bool) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let unentered = &mut run.pauses.unentered;
        if stands {
            unentered.retain(|it| it.doc != doc);
        } else if let Some(it) = unentered.iter_mut().find(|it| it.doc == doc) {
            it.asked = false;
        }
    }

    /// The box is over: whoever waits is told.
    pub(super) fn end_pauses(&mut self, pauses: Pauses) {
        let work = match pauses.state {
            State::Pausing(work) | State::Resuming(work) => Some(work.asker),
            State::Runs | State::Held(_) => None,
        };
        let next = pauses.next.into_iter().map(|wanted| wanted.asker);
        for asker in work.into_iter().chain(next) {
            self.answer(asker, RequestOutcome::AlreadyOver);
        }
    }
}

impl Run {
    /// Whether nothing of it is meant to run now.
    pub(crate) fn is_held(&self) -> bool {
        self.pauses.holds()
    }
}

/// Who asked, as it is entered.
pub(super) fn by(asker: Waiting) -> ChangedBy {
    match asker {
        Waiting::Conn(_) => ChangedBy::Here,
        Waiting::Request(request, device) => ChangedBy::Device(device, request),
    }
}

fn paused(held: &Held, since: Instant) -> RequestOutcome {
    RequestOutcome::Paused {
        processes: held.processes,
        hold: held.hold,
        took_ms: millis(since),
    }
}

fn millis(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_millis()).unwrap_or(u32::MAX)
}
