//! Closed flows whose last segments are still answered.

use std::collections::{HashMap, VecDeque};

use crate::Now;
use crate::flow::{MAX_TOMBSTONES, TOMBSTONE};
use crate::flow_common::Ends;

/// Remembers a closed flow for a moment: its last segment may be repeated, and
/// a reset would take unread bytes from a program that is still reading.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    until: HashMap<Ends, Now>,
    order: VecDeque<(Now, Ends)>,
}

impl Tombstones {
    pub(super) fn bury(&mut self, now: Now, ends: Ends) {
        while let Some((until, oldest)) = self.order.front().copied() {
            if until > now && self.order.len() < MAX_TOMBSTONES {
                break;
            }
            self.order.pop_front();
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
        let until = now + TOMBSTONE;
        self.until.insert(ends, until);
        self.order.push_back((until, ends));
    }

    pub(super) fn stands(&self, now: Now, ends: Ends) -> bool {
        self.until.get(&ends).is_some_and(|until| now < *until)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn remove(&mut self, ends: Ends) {
        self.until.remove(&ends);
    }
}
