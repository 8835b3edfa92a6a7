//! What a gate told while nothing could be written, and how much of it is told at
//! once.
//!
//! A gate has so much credit: entries that it has told and that are not answered
//! for. A box that makes more of them waits at its own gate, and nobody else's
//! entries wait behind more than that.

use std::collections::VecDeque;

use bailey_docs_store::Urgency;
use bailey_model::{Event, FlowEnded, Gap};

use super::Node;
use super::event::RunId;
use super::store::Tag;

/// Entries of one gate that are under way at once.
pub(crate) const CREDIT: usize = 64;
/// Ends of flows that are kept until they can be written.
const MAX_ENDS: usize = 4096;

/// What a run's gate told and could not be written.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    ends: VecDeque<FlowEnded>,
    /// Others, which are missing for good.
    missing: u64,
    /// That they are is under way.
    told: bool,
}

impl Node {
    /// One of a gate's entries is answered for.
    pub(super) fn give_credit(&mut self, run: RunId) {
        if let Some(credit) = self.runs.get(&run).and_then(|run| run.credit.as_ref()) {
            credit.add_permits(1);
        }
    }

    /// An end is tried again: without it a flow would stay open for ever.
    pub(super) fn keep_unwritten(&mut self, run: RunId, event: Event) {
        let Some(run) = self.runs.get_mut(&run) else {
            return;
        };
        let unwritten = &mut run.unwritten;
        match event {
            Event::FlowEnded(ended) if unwritten.ends.len() < MAX_ENDS => {
                unwritten.ends.push_back(ended);
            }
            // The next one, or the end, has all that it had.
            Event::FlowProgressed(_) => {}
            _ => unwritten.missing += 1,
        }
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
            while let Some(ended) = unwritten.ends.pop_front() {
                // What is given back when it is answered is taken here.
                match credit.try_acquire() {
                    Ok(permit) => permit.forget(),
                    Err(_) => {
                        unwritten.ends.push_front(ended);
                        break;
                    }
                }
                again.push((doc, Event::FlowEnded(ended), Tag::Told(*id)));
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
