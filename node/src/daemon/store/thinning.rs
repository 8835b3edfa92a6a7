//! Thinning, between the store's other work: a slice at a time, so that no dial
//! waits for more than one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bailey_docs_store::{Slice, Store};
use bailey_model::Event;

use super::super::clock;
use crate::config::{Audit, Window};
use crate::log::log;

/// Between two looks for what is past its window.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// Between two slices while there is something to do.
const PAUSE: Duration = Duration::from_millis(20);
/// After a slice that failed.
const RETRY: Duration = Duration::from_secs(60);

/// When the next slice is due, and what windows a person set.
pub(super) struct Thinner {
    audit: Audit,
    next: Instant,
    /// Set when keys are forgotten: the write-ahead log is to be emptied.
    forgot: Arc<AtomicBool>,
}

impl Thinner {
    pub(super) fn new(audit: Audit, store: &mut Store, forgot: Arc<AtomicBool>) -> Self {
        let own = audit.boxes.values().filter_map(|own| own.window);
        let longest = own.chain([audit.window]).map(hours).max().unwrap_or(0);
        store.set_windows(hours(audit.window), longest);
        let next = Instant::now();
        Self {
            audit,
            next,
            forgot,
        }
    }

    /// A box that starts is kept for as long as the person said for its name.
    pub(super) fn on_start(&self, store: &mut Store, event: &Event) {
        if let Event::BoxStarted(started) = event {
            store.set_box_window(started.box_id, hours(self.audit.window_of(&started.name)));
        }
    }

    pub(super) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Does one slice if it is time; whether it did something that others may want
    /// to hear of.
    pub(super) fn turn(&mut self, store: &mut Store) -> bool {
        if !self.due_in().is_zero() {
            return false;
        }
        let (wait, did) = match store.thin(&clock::moment()) {
            Ok(Slice::Rest) => (EVERY, false),
            Ok(Slice::Busy | Slice::Shrank) => (PAUSE, false),
            Ok(Slice::Dropped {
                chain,
                segment,
                entries,
            }) => {
                log!(
                    "thinned: segment {segment} of {}, {entries} entries",
                    chain.doc
                );
                (PAUSE, true)
            }
            Ok(Slice::Forgot(keys)) => {
                if keys > 0 {
                    log!("thinned: the keys of {keys} epochs are forgotten");
                }
                self.forgot.store(true, Ordering::Relaxed);
                (PAUSE, true)
            }
            Err(error) => {
                log!("thinning is tried again: {error}");
                (RETRY, false)
            }
        };
        self.next = Instant::now() + wait;
        did
    }
}

fn hours(window: Window) -> u32 {
    u32::try_from(window.span().as_secs() / 3600).unwrap_or(u32::MAX)
}
