//! A bound on how often.

use core::time::Duration;

/// So many at once, and one more each time a pause has passed.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) tokens: u32,
    burst: u32,
    pause: Duration,
    since: Duration,
}

impl Bucket {
    pub(crate) fn new(burst: u32, pause: Duration, now: Duration) -> Self {
        Self {
            tokens: burst,
            burst,
            pause,
            since: now,
        }
    }

    pub(crate) fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.since);
        let gained = passed.as_nanos() / self.pause.as_nanos().max(1);
        let gained = u32::try_from(gained).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(gained);
        if self.tokens >= self.burst {
            self.tokens = self.burst;
            self.since = now;
        } else {
            self.since += self.pause * gained;
        }
    }

    pub(crate) fn take(&mut self, now: Duration) -> bool {
        self.refill(now);
        if self.tokens == 0 {
            return false;
        }
        self.tokens -= 1;
        true
    }

    pub(crate) fn next_at(&self) -> Duration {
        self.since + self.pause
    }
}
