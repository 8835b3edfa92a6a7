//! Boxes of this node: how an incarnation is begun, attended and ended.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bailey_docs_store::{DocId, Urgency};
use bailey_fence_plan::channel::{FromFence, ToFence};
use bailey_gate_proto::channel::{FromGate, GateConfig, GateEvent, ToGate};
use bailey_model::{
    BoxEnd, BoxEnded, BoxStarted, ChildExit, EndReason, Event, FlowEnded, FlowRefused, Gap,
    Refusal, StoppedBy,
};

use tokio::sync::Semaphore;

use super::event::RunId;
use super::launchers::Serves;
use super::limits::BoxCgroup;
use super::prepare::Begun;
use super::reports::Boundary;
use super::run_state::{Noted, Phase, Prepared, Run, Waiting, outcome};
use super::store::Tag;
use super::unwritten::CREDIT;
use super::{Node, child, clock, prepare, publish};
use crate::account;
use crate::api::{Failure, RunAsk, Tell};
use crate::{show, unseen};

/// How long launcher and gate may take to end a box; then the node goes by
/// what it can count itself.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How long a box may take from its first entry to its command.
const MAKE_LIMIT: Duration = Duration::from_secs(30);
/// Boxes at once on one node.
const MAX_RUNS: usize = 512;

impl Node {
    /// Begins an incarnation: everything that can be refused is refused
    /// before its first entry.
    pub(super) fn begin(
        &mut self,
        conn: super::event::ConnId,
        ask: RunAsk,
        fds: VecDeque<OwnedFd>,
    ) -> Result<(), Failure> {
        if self.runs.len() >= MAX_RUNS {
            return Err(Failure::host(format!("{MAX_RUNS} boxes run already")));
        }
        let held = self.runs.values();
        let held = held.map(|run| (run.name.as_str(), run.publish.as_slice()));
        let listeners = publish::open(&ask, held)?;
        let running = |name: &str| self.runs.values().any(|run| run.name == name);
        let Begun {
            mut run,
            prepared,
            command,
            mut notes,
            outputs,
            given,
        } = prepare::prepare(&self.paths, conn, ask, fds, (&running, self.open_files))?;
        run.listeners = listeners;
        let id = RunId(self.next());
        notes.extend(self.cgroups.missing(&run.limits).map(str::to_owned));
        run.outputs = outputs;
        run.shared = self.tell_shared(&run, &mut notes);
        let started = BoxStarted {
            box_id: run.box_id,
            name: run.name.clone(),
            incarnation: run.incarnation,
            command,
            reach: unseen::reach_text(run.tier, &run.reach),
            image: "host".to_owned(),
        };
        // Told when it is judged: that it is weaker goes first.
        run.notes = notes;
        let place = (run.doc(), run.here);
        self.runs.insert(id, run);
        self.enter_start(id, place, started, given);
        self.make(id, prepared);
        Ok(())
    }

    /// Its first entry stands.
    pub(super) fn on_started(&mut self, id: RunId) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.entered = true;
        }
        self.go_if_ready(id);
    }

    /// Makes the box while its first entry is written: nothing runs in it before
    /// that stands.
    fn make(&mut self, id: RunId, prepared: Prepared) {
        let Prepared { mut spec, fds } = prepared;
        let made = self.cgroup_of(&spec.limits).and_then(|cgroup| {
            let folder = cgroup.as_ref().map(BoxCgroup::open).transpose()?;
            Ok((cgroup, folder))
        });
        let (cgroup, folder) = match made {
            Ok(made) => made,
            Err(error) => return self.fail(id, format!("limits: {error}")),
        };
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        spec.cgroup = cgroup.is_some();
        run.boundary = Boundary::of(&spec);
        run.cgroup = cgroup;
        let handed = fds.streams.into_iter().chain(folder).chain(fds.rest);
        let order = ToFence::Start(Box::new(spec));
        match self.launch(Serves::Box(id), order, handed.collect()) {
            Ok((_, fence)) => {
                if let Some(run) = self.runs.get_mut(&id) {
                    run.fence = Some(fence);
                }
            }
            Err(error) => self.fail(id, format!("launcher: {error}")),
        }
    }

    /// The launcher says something.
    pub(super) fn on_fence(&mut self, id: RunId, said: FromFence, mut fds: VecDeque<OwnedFd>) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        match said {
            FromFence::Tun if run.gate_ready => {
                self.fail(
                    id,
                    "the launcher sent a TUN that nobody asked for".to_owned(),
                );
            }
            FromFence::Tun => match (fds.pop_front(), clock::random()) {
                (Some(tun), Ok(seed)) => self.start_gate(id, tun, seed),
                (None, _) => self.fail(id, "the launcher sent no TUN".to_owned()),
                (_, Err(error)) => self.fail(id, format!("entropy: {error}")),
            },
            FromFence::Pty => run.pty = fds.pop_front(),
            FromFence::Made { measured, .. } => {
                run.proc_root = fds.remove(2);
                run.pid1 = fds.pop_front();
                // One that could not be gated has no gate to wait for: its
                // report says what it has.
                run.gate_ready |= run.gate.is_none();
                self.on_measured(id, measured);
            }
            FromFence::Namespaces => run.namespaces = fds.into(),
            FromFence::Refusals => self.lend_refusals(id, fds.pop_front()),
            FromFence::Display => {
                if let Some(screen) = &mut run.screen {
                    screen.folder = fds.pop_front();
                }
            }
            FromFence::Running | FromFence::Joined => {}
            FromFence::DisplayEnded => self.on_display_ended(id),
            FromFence::Failed(error) => {
                run.fence_over = true;
                run.waited = true;
                self.fail(id, error.to_string());
            }
            FromFence::OnlyWeaker(error) => {
                run.fence_over = true;
                run.waited = true;
                run.begin_end(BoxEnd::Weaker(error.to_string()), Instant::now());
                self.close_if_over(id);
            }
            FromFence::CoverLost { at } => {
                run.fence_over = true;
                run.waited = true;
                let which = String::from_utf8(at)
                    .unwrap_or_else(|odd| odd.as_bytes().escape_ascii().to_string());
                run.begin_end(BoxEnd::CoverLost(which), Instant::now());
                self.close_if_over(id);
            }
            FromFence::Ended(exit) => {
                run.fence_over = true;
                run.waited = true;
                if run.phase == Phase::Running {
                    run.exit = Some(exit);
                    run.begin_end(BoxEnd::Exited(exit), Instant::now());
                } else {
                    let what = "the launcher ended before the box was made".to_owned();
                    run.begin_end(BoxEnd::NotStarted(what), Instant::now());
                }
                self.close_if_over(id);
            }
        }
    }

    /// The launcher is gone; before its last word, the box went with it.
    pub(super) fn on_fence_gone(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.fence_over = true;
        run.begin_end(BoxEnd::FenceLost, Instant::now());
        self.close_if_over(id);
    }

    fn start_gate(&mut self, id: RunId, tun: OwnedFd, seed: [u8; 32]) {
        let facts = self.read_facts();
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let credit = Arc::new(Semaphore::new(CREDIT));
        match child::gate(id, self.events.clone(), Arc::clone(&credit)) {
            Ok(gate) => {
                let (published, fds) = run.listeners.hand_over(tun);
                let config = GateConfig {
                    reach: run.reach.clone(),
                    published,
                    facts,
                    seed,
                };
                gate.send(ToGate::Start(config), fds);
                run.gate = Some(gate);
                run.credit = Some(credit);
            }
            Err(error) => self.fail(id, format!("gate: {error}")),
        }
    }

    /// The gate says something.
    pub(super) fn on_gate(&mut self, id: RunId, said: FromGate) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        // All but entries is answered for at once.
        let entry = matches!(said, FromGate::Event { .. });
        if let Some(credit) = run.credit.as_ref().filter(|_| !entry) {
            credit.add_permits(1);
        }
        match said {
            FromGate::Ready => {
                run.gate_ready = true;
                self.judge_if_ready(id);
            }
            FromGate::Event { ticket, event } => self.on_gate_event(id, ticket, event),
            FromGate::Noted { first, flows } => self.on_noted(id, first, flows),
            FromGate::Reached { flows_reset } => self.on_reached(id, flows_reset),
            FromGate::Held(_) => self.on_gate_held(id),
            FromGate::Explained(explained) => self.on_explained(id, explained),
            FromGate::Captured {
                packets,
                dropped,
                last,
            } => self.on_captured(id, packets, dropped, last),
            FromGate::Stopped { flows_reset } => {
                run.flows_reset = Some(flows_reset);
                run.gate_over = true;
                self.close_if_over(id);
            }
        }
    }

    fn on_gate_event(&mut self, id: RunId, ticket: Option<u64>, event: GateEvent) {
        if self.is_probe(id, &event) {
            return self.give_credit(id);
        }
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let doc = run.doc();
        let event = match event {
            GateEvent::WebName(host) => {
                run.note_web_name(host);
                return self.give_credit(id);
            }
            GateEvent::FlowOpened(opened) => {
                run.open_flows.insert(opened.flow);
                Event::FlowOpened(opened)
            }
            GateEvent::FlowEnded(ended) => {
                run.open_flows.remove(&ended.flow);
                Event::FlowEnded(ended)
            }
            GateEvent::FlowRefused(refused) => Event::FlowRefused(refused),
            GateEvent::FlowNamed(named) => Event::FlowNamed(named),
            GateEvent::FlowProgressed(it) => Event::FlowProgressed(it),
            GateEvent::NameAsked(asked) => Event::NameAsked(asked),
            GateEvent::NameAnswered(answered) => Event::NameAnswered(answered),
        };
        if self.is_unopened(id, &event) {
            self.keep_unwritten(id, event, None);
            return self.give_credit(id);
        }
        let tag = ticket.map_or(Tag::Told(id), |ticket| Tag::Ticket(id, ticket));
        self.append(doc, event, Urgency::Normal, tag);
    }

    /// The gate is gone. Before its last word its box has no network any more:
    /// the TUN went with it.
    pub(super) fn on_gate_gone(&mut self, id: RunId) {
        self.capture_over(id);
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.gate = None;
        let questions = std::mem::take(&mut run.questions);
        self.end_questions(questions);
        // Without it nothing new begins either.
        self.on_gate_held(id);
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let said_last = std::mem::replace(&mut run.gate_over, true);
        if said_last {
            return;
        }
        let doc = run.doc();
        let making = run.phase == Phase::Making;
        let client = run.client;
        self.enter_untold(id);
        self.end_lost_flows(id);
        let reason = "the gate went away; the box has no network from here on".to_owned();
        if let Some(conn) = client {
            self.tell(conn, Tell::Note(reason.clone()));
        }
        self.append(doc, Event::Gap(Gap { reason }), Urgency::Urgent, Tag::None);
        if making {
            self.fail(id, "the gate went away before the box was ready".to_owned());
        } else {
            self.close_if_over(id);
        }
    }

    /// Flows whose gate can no longer say how they ended.
    fn end_lost_flows(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let doc = run.doc();
        for flow in std::mem::take(&mut run.open_flows) {
            let ended = FlowEnded {
                flow,
                bytes_out: 0,
                bytes_in: 0,
                duration_us: 0,
                end: EndReason::GateLost,
                outer_src: None,
            };
            self.append(doc, Event::FlowEnded(ended), Urgency::Normal, Tag::None);
        }
    }

    pub(super) fn go_if_ready(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let ready = run.entered && run.made && run.gate_ready;
        if !(ready && run.phase == Phase::Making) {
            return;
        }
        // The log of the run before stays until there is something in its place.
        let (name, outputs) = (run.name.clone(), run.outputs.take());
        let log = self.begin_log(id, &name, outputs);
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        match log {
            Ok(log) => run.log = log,
            Err(failure) => return self.fail(id, failure.text),
        }
        run.phase = Phase::Running;
        let time = run.limits.seconds.map(u64::from).map(Duration::from_secs);
        run.deadline = time.and_then(|time| Instant::now().checked_add(time));
        let (box_id, client) = (run.box_id, run.client);
        if run.detached {
            // From here on it belongs to nobody.
            run.client = None;
        }
        let pty = run.pty.take().into_iter().collect();
        if let Some(fence) = &run.fence {
            fence.send(ToFence::Go, vec![]);
        }
        self.give_slate(id);
        if let Some(conn) = client {
            self.tell_with(conn, Tell::Running { name, box_id }, pty);
        }
    }

    /// It could not be made.
    pub(super) fn fail(&mut self, id: RunId, what: String) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.begin_end(BoxEnd::NotStarted(what), Instant::now());
        self.close_if_over(id);
    }

    /// Stops a box of this node; the answer comes when it is measured.
    pub(super) fn stop_run(&mut self, id: RunId, by: StoppedBy, waiting: Waiting) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        run.waiting.push(waiting);
        if run.phase == Phase::Ending && !run.gate_over {
            run.tell_gate_last(ToGate::Stop);
        }
        run.begin_end(BoxEnd::Stopped(by), Instant::now());
        self.close_if_over(id);
    }

    /// A signal before the command runs ends the start, as it would have ended
    /// the command.
    pub(super) fn interrupt(&mut self, id: RunId, signal: u8) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let exit = ChildExit::Signal(signal);
        run.exit = Some(exit);
        run.begin_end(BoxEnd::Exited(exit), Instant::now());
        self.close_if_over(id);
    }

    /// Nothing is waited for for ever: a box that is not made by its limit has
    /// failed, and what launcher and gate have not said by theirs, the node
    /// counts itself.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        let stuck = |run: &Run| run.phase == Phase::Making && now > run.begun + MAKE_LIMIT;
        let overdue = |run: &Run| {
            let since = run.ending_since.filter(|_| run.phase == Phase::Ending);
            since.is_some_and(|since| now > since + END_LIMIT)
        };
        let of = |wanted: &dyn Fn(&Run) -> bool| -> Vec<RunId> {
            let found = self.runs.iter().filter(|(_, run)| wanted(run));
            found.map(|(id, _)| *id).collect()
        };
        let timed = |run: &Run| {
            run.phase == Phase::Running && run.deadline.is_some_and(|deadline| now > deadline)
        };
        let (stuck, overdue, timed) = (of(&stuck), of(&overdue), of(&timed));
        for id in timed {
            if let Some(run) = self.runs.get_mut(&id) {
                run.begin_end(BoxEnd::TimeOut, now);
            }
            self.close_if_over(id);
        }
        for id in stuck {
            self.fail(
                id,
                format!("the box was not ready within {} s", MAKE_LIMIT.as_secs()),
            );
        }
        for id in overdue {
            if let Some(run) = self.runs.get_mut(&id) {
                if let Some(cgroup) = &run.cgroup {
                    cgroup.kill();
                }
                run.fence_over = true;
                run.gate_over = true;
                run.log = None;
            }
            self.close_if_over(id);
        }
    }

    pub(super) fn close_if_over(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        if let Some(log) = run.log.as_mut().filter(|_| run.fence_over) {
            log.finish();
        }
        if !run.is_over() {
            return;
        }
        run.phase = Phase::Closing;
        run.processes_left = run.count_left();
        run.limits_met = run
            .cgroup
            .take()
            .map(|cgroup| cgroup.met())
            .unwrap_or_default();
        self.enter_kept(id);
        self.end_lost_flows(id);
        self.capture_over(id);
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        // Both programs end with their channels.
        (run.fence, run.gate) = (None, None);
        let ended = BoxEnded {
            box_id: run.box_id,
            incarnation: run.incarnation,
            end: run.end.clone().unwrap_or(BoxEnd::FenceLost),
            processes_ended: run.processes_ended(),
            processes_left: run.processes_left,
            flows_reset: run.flows_reset,
        };
        let doc = run.doc();
        let urgency = match ended.end {
            BoxEnd::Exited(_) => Urgency::Prompt,
            _ => Urgency::Urgent,
        };
        self.append(doc, Event::BoxEnded(ended.clone()), urgency, Tag::None);
        self.append(DocId::Node, Event::BoxEnded(ended), urgency, Tag::Ended(id));
    }

    /// Its last entry stands, or could not be written: answer and forget it.
    pub(super) fn on_ended(&mut self, id: RunId) {
        let Some(mut run) = self.runs.remove(&id) else {
            return;
        };
        self.end_questions(std::mem::take(&mut run.questions));
        self.end_pauses(std::mem::take(&mut run.pauses));
        self.end_execs_in(id, &run);
        let outcome = outcome(&run);
        for waiting in &run.waiting {
            self.answer(*waiting, outcome.clone());
        }
        if let Some(conn) = run.client {
            self.tell(conn, Tell::Ended(run.ended()));
        }
        self.over.push(run);
    }

    /// What is left to do for boxes that are over, which nobody waits for: the
    /// kernel takes down what this process was the last to hold of them.
    pub(super) fn clear_up(&mut self) {
        for mut run in std::mem::take(&mut self.over) {
            if let Some(slate) = run.slate.take() {
                slate.end();
            }
            if run.unnamed {
                let running: Vec<&str> = self.runs.values().map(|run| run.name.as_str()).collect();
                prepare::remove_own_folder(&self.paths, &run.name, &running);
            }
        }
        self.keep_spare(Instant::now());
    }

    /// A refusal of a running box stands in its audit: tell its terminal, once
    /// for each host or address.
    pub(super) fn on_refused(&mut self, id: RunId, refused: &FlowRefused) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let web = run.is_for_web(refused);
        run.note_for_box(refused, web);
        let noted = run.note_refusal(refused);
        // At the end everything is refused; that is no news.
        let client = run
            .client
            .filter(|_| !matches!(refused.refusal, Refusal::BoxStopping | Refusal::BoxPaused));
        let told = match noted {
            Noted::First => Tell::Refused {
                refused: refused.clone(),
                web,
            },
            Noted::TooMany => Tell::Note(format!(
                "more is refused than is shown here: {}",
                account::command(&format!("flows {}", show::shell_word(&run.name)))
            )),
            Noted::Again | Noted::More => return,
        };
        if let Some(conn) = client {
            self.tell(conn, told);
        }
    }
}
