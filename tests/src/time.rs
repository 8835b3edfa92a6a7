//! Waiting, with an end.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `done` says true; false when `limit` has passed without.
#[must_use]
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    eventually(limit, || done().then_some(())).is_some()
}

/// Waits until `look` finds something.
pub fn eventually<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(LOOK);
    }
}
