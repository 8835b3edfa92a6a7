//! When what is committed has to be on the disk.

use std::time::{Duration, Instant};

/// Between two synchronous commits. With the 10 ms that a flow which is noted and
/// dialled waits for others, and one commit that fails and is tried again, a power cut
/// loses less than 250 ms.
pub(super) const EVERY: Duration = Duration::from_millis(230);
/// How soon after one that failed the next is tried. It doubles with each that fails
/// after it, up to [`EVERY`]: a disk that is full stays so for a while.
const AGAIN: Duration = Duration::from_millis(5);

/// The last commit that is synchronous, and what came of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    last: Instant,
    /// Those in a row that failed.
    failed: u32,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: now,
            failed: 0,
        }
    }

    /// One was tried.
    pub(super) fn tried(&mut self, now: Instant, done: bool) {
        self.last = now;
        self.failed = match done {
            true => 0,
            false => self.failed.saturating_add(1),
        };
    }

    /// How long until the next has to be.
    pub(super) fn due_in(&self, now: Instant) -> Duration {
        let wait = match self.failed.checked_sub(1) {
            None => EVERY,
            Some(before) => AGAIN.saturating_mul(1 << before.min(16)).min(EVERY),
        };
        wait.saturating_sub(now.saturating_duration_since(self.last))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due_in(now).is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_that_fails_is_tried_again_within_the_quarter_of_a_second() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        assert!(!pace.is_due(begun + EVERY - MS));
        assert!(pace.is_due(begun + EVERY));
        let mut now = begun + EVERY;
        pace.tried(now, false);
        now += pace.due_in(now);
        // The 10 ms of a note are before it.
        assert!(now - begun < 240 * MS, "{:?}", now - begun);
        assert!(pace.is_due(now));
        pace.tried(now, true);
        assert_eq!(pace.due_in(now), EVERY);
    }

    #[test]
    fn a_disk_that_goes_on_failing_is_not_tried_ever_faster_nor_given_up() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut waits = Vec::new();
        for _ in 0..100 {
            pace.tried(now, false);
            let wait = pace.due_in(now);
            now += wait;
            waits.push(wait);
        }
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!((waits[0], waits[99]), (AGAIN, EVERY));
        let within = waits.iter().take(7).sum::<Duration>();
        assert!(within < 3 * EVERY, "{within:?}");
    }
}
