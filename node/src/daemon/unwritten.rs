//! What a gate told while nothing could be written, and how much of it is told at
//! once.
//!
//! A gate has so much credit: entries that it has told and that are not answered
//! for. A box that makes more of them waits at its own gate, and nobody else's
//! entries wait behind more than that. What it noted on its slate is bounded by that.

use std::collections::VecDeque;

use bailey_docs_store::Urgency;
use bailey_model::{Event, FlowId, Gap};

use super::Node;
use super::event::RunId;
use super::store::Tag;

/// Entries of one gate that are under way at once.
pub(crate) const CREDIT: usize = 64;
/// Flows and their ends that are kept until they can be written.
const MAX_KEPT: usize = 4096;

/// What a run's gate told and could not be written.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// In order; a flow that is noted with its note's number.
    kept: VecDeque<(Event, Option<u64>)>,
    /// Others, which are missing for good.
    missing: u64,
    /// That they are is under way.
    told: bool,
}

impl Unwritten {
    fn holds(&self, flow: FlowId) -> bool {
        let is_it = |event: &Event| matches!(event, Event::FlowOpened(it) if it.flow == flow);
        self.kept.iter().any(|(event, _)| is_it(event))
    }
}

impl Node {
    /// One of a gate's entries is answered for.
    pub(super) fn give_credit(&mut self, run: RunId) {
        if let Some(credit) = self.runs.get(&run).and_then(|run| run.credit.as_ref()) {
            credit.add_permits(1);
        }
    }

    /// An end is tried again: without it a flow would stay open for ever. So is a flow
    /// that is dialled.
    pub(super) fn keep_unwritten(&mut self, run: RunId, event: Event, note: Option<u64>) {
        let Some(run) = self.runs.get_mut(&run) else {
            return;
        };
        let unwritten = &mut run.unwritten;
        let kept = note.is_some() || matches!(event, Event::FlowEnded(_));
        match event {
            event if kept && unwritten.kept.len() < MAX_KEPT => {
                unwritten.kept.push_back((event, note));
            }
            // The next one, or the end, has all that it had.
            Event::FlowProgressed(_) => {}
            _ => unwritten.missing += 1,
        }
    }

    /// Whether a flow waits for its own entry, so that what else is told of it does too.
    pub(super) fn is_unopened(&self, run: RunId, event: &Event) -> bool {
        let flow = match event {
            Event::FlowEnded(ended) => ended.flow,
            Event::FlowNamed(named) => named.flow,
            Event::FlowProgressed(progressed) => progressed.flow,
            _ => return false,
        };
        let run = self.runs.get(&run);
        run.is_some_and(|run| run.unwritten.holds(flow))
    }

    /// A flow whose opening could not be written never was.
    pub(super) fn forget_unopened(&mut self, run: RunId, event: &Event) {
        let Some(run) = self.runs.get_mut(&run) else {
            return;
        };
        if let Event::FlowOpened(opened) = event {
            run.open_flows.remove(&opened.flow);
        }
    }

    /// Tries again what could not be written, and says what is missing.
    pub(super) fn enter_unwritten_ends(&mut self) {
        let mut again = Vec::new();
        for (id, run) in &mut self.runs {
            let doc = run.doc();
            let unwritten = &mut run.unwritten;
            let Some(credit) = &run.credit else { continue };
            while let Some((event, note)) = unwritten.kept.pop_front() {
                if let Some(number) = note {
                    again.push((doc, event, Tag::Noted(*id, number)));
                    continue;
                }
                // What is given back when it is answered is taken here.
                match credit.try_acquire() {
                    Ok(permit) => permit.forget(),
                    Err(_) => {
                        unwritten.kept.push_front((event, note));
                        break;
                    }
                }
                again.push((doc, event, Tag::Told(*id)));
            }
            let count = unwritten.missing;
            if count > 0 && !std::mem::replace(&mut unwritten.told, true) {
                let reason = format!("{count} entries could not be written");
                again.push((doc, Event::Gap(Gap { reason }), Tag::Missing(*id, count)));
            }
        }
        for (doc, event, tag) in again {
            self.append(doc, event, Urgency::Normal, tag);
        }
    }

    /// Tries the last time what a run's gate told: the entry of its end comes next.
    pub(super) fn enter_kept(&mut self, id: RunId) {
        let Some(run) = self.runs.get_mut(&id) else {
            return;
        };
        let doc = run.doc();
        for (event, note) in std::mem::take(&mut run.unwritten.kept) {
            let tag = note.map_or(Tag::Told(id), |number| Tag::Noted(id, number));
            self.append(doc, event, Urgency::Normal, tag);
        }
    }

    /// It stands how many are missing.
    pub(super) fn on_missing_told(&mut self, run: RunId, count: u64) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.unwritten.missing = run.unwritten.missing.saturating_sub(count);
            run.unwritten.told = false;
        }
    }

    /// It could not be written this time either.
    pub(super) fn on_missing_untold(&mut self, run: RunId) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.unwritten.told = false;
        }
    }
}
