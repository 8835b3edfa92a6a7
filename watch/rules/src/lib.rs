//! Rules: observations to notices.
//!
//! Pure. An observation names the entry that it stands in, so a notice can
//! only cite entries that exist. Time and random ids are arguments.

#![forbid(unsafe_code)]

mod local;

use std::collections::{BTreeMap, VecDeque};

use bailey_model::{BoxId, EntryRef, Event, Incarnation, Notice, NoticeId, Reach, Rule, Timestamp};

/// Most boxes that are watched at once; a node runs far fewer, and the oldest
/// is forgotten first.
pub const MAX_BOXES: usize = 4096;
/// Most notices waiting to be taken.
pub const MAX_WAITING: usize = 256;

/// An entry of a running box, after it was journalled.
#[derive(Debug)]
pub struct Observation<'a> {
    /// Where it stands.
    pub entry: EntryRef,
    /// When it happened.
    pub ts: Timestamp,
    /// What happened.
    pub event: &'a Event,
}

/// All rules and what they remember of each running box.
#[derive(Debug, Default)]
pub struct Rules {
    boxes: BTreeMap<BoxId, Watched>,
    waiting: VecDeque<Notice>,
}

/// What the rules know of one incarnation.
#[derive(Debug)]
struct Watched {
    name: String,
    incarnation: Incarnation,
    started: Timestamp,
    reach: Reach,
    local: local::State,
}

impl Rules {
    /// Takes one observation. `id` is 16 random bytes for the notice that it
    /// may raise.
    pub fn handle(&mut self, observation: &Observation<'_>, id: NoticeId) {
        let box_id = observation.entry.box_id;
        match observation.event {
            Event::BoxStarted(started) => {
                // A reach that does not parse is watched as one that grants nothing.
                let reach = started.reach.parse().unwrap_or_default();
                self.make_room();
                self.boxes.insert(
                    box_id,
                    Watched {
                        name: started.name.clone(),
                        incarnation: started.incarnation,
                        started: observation.ts,
                        reach,
                        local: local::State::default(),
                    },
                );
            }
            Event::BoxEnded(_) => {
                self.boxes.remove(&box_id);
            }
            Event::ReachChanged(changed) => {
                if let Some(watched) = self.boxes.get_mut(&box_id) {
                    watched.reach = changed.new.parse().unwrap_or_default();
                }
            }
            Event::CaptureStarted(started) => {
                let text = format!(
                    "the headers of its packets are being captured, for {} s at most, by a person \
                     at its node",
                    started.seconds
                );
                self.raise(observation, id, Rule::CaptureStarted, text);
            }
            Event::FlowRefused(refused) => {
                let Some(watched) = self.boxes.get_mut(&box_id) else {
                    return;
                };
                let raised = watched.local.handle(&watched.reach, observation, refused);
                let Some((rule, text)) = raised else { return };
                self.raise(observation, id, rule, text);
            }
            Event::FlowOpened(_)
            | Event::FlowNamed(_)
            | Event::FlowEnded(_)
            | Event::FlowProgressed(_)
            | Event::NameAsked(_)
            | Event::NameAnswered(_)
            | Event::Granted(_)
            | Event::Gap(_)
            | Event::AuditHere(_)
            | Event::DeviceNamed(_)
            | Event::Report(_)
            | Event::Thinned(_)
            | Event::Newer(_)
            | Event::Notice(_)
            | Event::Request(_)
            | Event::BoxPaused(_)
            | Event::BoxResumed(_)
            | Event::HeadsSeen(_)
            | Event::Receipt(_) => {}
        }
    }

    /// The next notice, oldest first.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.waiting.pop_front()
    }

    /// A notice about a box that is watched, with the entry that raised it.
    fn raise(&mut self, observation: &Observation<'_>, id: NoticeId, rule: Rule, text: String) {
        let box_id = observation.entry.box_id;
        let Some(watched) = self.boxes.get(&box_id) else {
            return;
        };
        let notice = Notice {
            id,
            rule,
            box_id,
            box_name: watched.name.clone(),
            incarnation: watched.incarnation,
            evidence: vec![observation.entry],
            text,
        };
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(notice);
        }
    }

    fn make_room(&mut self) {
        if self.boxes.len() < MAX_BOXES {
            return;
        }
        let oldest = self.boxes.iter().min_by_key(|(_, watched)| watched.started);
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.boxes.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
