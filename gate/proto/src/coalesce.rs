//! Equal things within a window are one thing and a count.
//!
//! The first of its kind is told at once; further equal ones within the window
//! are only counted; when the window closes, the number of further ones is told
//! if there were any. So an entry never waits for its count, and a program that
//! tries the same thing a thousand times fills no journal.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::Now;

/// How long equal refusals and equal questions are one entry.
pub const WINDOW: Duration = Duration::from_secs(10);

/// What [`Coalescer::note`] made of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The first of its kind in a window: tell it now, with count 1.
    First,
    /// Equal to one already told: counted, nothing to tell now.
    Again,
}

/// Counts equal things within a window, in bounded memory.
///
/// When the table is full the oldest window closes early and its count is told,
/// so nothing is lost but the length of a window. Times must not go backwards;
/// one that does is taken as the latest seen.
#[derive(Debug)]
pub struct Coalescer<K> {
    window: Duration,
    capacity: usize,
    open: HashMap<K, Open>,
    /// Open windows, oldest first; each key once per time it was opened.
    order: VecDeque<(u64, K)>,
    closed: VecDeque<(K, u32)>,
    opened: u64,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    serial: u64,
    closes: Now,
    further: u32,
}

impl<K: Clone + Eq + Hash> Coalescer<K> {
    /// A table of at most `capacity` open windows (at least one).
    #[must_use]
    pub fn new(window: Duration, capacity: usize) -> Self {
        Self {
            window,
            capacity: capacity.max(1),
            open: HashMap::new(),
            order: VecDeque::new(),
            closed: VecDeque::new(),
            opened: 0,
        }
    }

    /// Notes one thing. At most one count becomes ready per call beyond those
    /// whose windows are over: poll after noting.
    pub fn note(&mut self, now: Now, key: K) -> Seen {
        self.close_due(now);
        if let Some(open) = self.open.get_mut(&key) {
            open.further = open.further.saturating_add(1);
            return Seen::Again;
        }
        if self.open.len() >= self.capacity {
            self.close_oldest();
        }
        self.opened = self.opened.wrapping_add(1);
        let open = Open {
            serial: self.opened,
            closes: now.saturating_add(self.window),
            further: 0,
        };
        self.open.insert(key.clone(), open);
        self.order.push_back((self.opened, key));
        Seen::First
    }

    /// Forgets the window of a key without telling its count, for a first one
    /// that could not be told after all.
    pub fn forget(&mut self, key: &K) {
        if let Some(open) = self.open.remove(key) {
            self.order.retain(|(serial, _)| *serial != open.serial);
        }
    }

    /// The next key whose window is over, with the number of further equal
    /// things (never 0) that came after the first.
    pub fn poll(&mut self, now: Now) -> Option<(K, u32)> {
        self.close_due(now);
        self.closed.pop_front()
    }

    /// Open windows, and counts that wait to be told.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len() + self.closed.len()
    }

    /// Whether nothing is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes every window now, as at the end of a box; then [`Self::poll`].
    pub fn close_all(&mut self) {
        while !self.order.is_empty() {
            self.close_oldest();
        }
    }

    /// When [`Self::poll`] should next be called: at once if a count is ready.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Now> {
        if !self.closed.is_empty() {
            return Some(Now::ZERO);
        }
        let (_, oldest) = self.order.front()?;
        self.open.get(oldest).map(|open| open.closes)
    }

    fn close_due(&mut self, now: Now) {
        while let Some((_, key)) = self.order.front() {
            if self.open.get(key).is_some_and(|open| open.closes > now) {
                return;
            }
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_front() else {
            return;
        };
        if let Some(open) = self.open.remove(&key)
            && open.further > 0
        {
            self.closed.push_back((key, open.further));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_is_told_at_once_and_the_rest_as_a_count_when_the_window_closes() {
        let mut table = Coalescer::new(WINDOW, 8);
        assert_eq!(table.note(SECOND, 'a'), Seen::First);
        assert_eq!(table.note(2 * SECOND, 'a'), Seen::Again);
        assert_eq!(table.note(3 * SECOND, 'a'), Seen::Again);
        assert_eq!(table.poll_timeout(), Some(11 * SECOND));
        assert_eq!(table.poll(10 * SECOND), None);
        assert_eq!(table.poll(11 * SECOND), Some(('a', 2)));
        assert_eq!(table.poll(11 * SECOND), None);
        assert_eq!(table.poll_timeout(), None);
        assert_eq!(table.note(12 * SECOND, 'a'), Seen::First);
    }

    #[test]
    fn a_window_without_further_ones_closes_silently() {
        let mut table = Coalescer::new(WINDOW, 8);
        assert_eq!(table.note(Now::ZERO, 'a'), Seen::First);
        assert_eq!(table.poll(WINDOW), None);
        assert_eq!(table.note(WINDOW, 'a'), Seen::First);
    }

    #[test]
    fn a_full_table_tells_its_oldest_count_early() {
        let mut table = Coalescer::new(WINDOW, 2);
        table.note(Now::ZERO, 'a');
        table.note(Now::ZERO, 'a');
        table.note(Now::ZERO, 'b');
        assert_eq!(table.note(Now::ZERO, 'c'), Seen::First);
        assert_eq!(table.poll_timeout(), Some(Now::ZERO));
        assert_eq!(table.poll(Now::ZERO), Some(('a', 1)));
        assert_eq!(table.note(Now::ZERO, 'b'), Seen::Again);
    }

    #[test]
    fn a_forgotten_key_is_first_again() {
        let mut table = Coalescer::new(WINDOW, 2);
        table.note(Now::ZERO, 'a');
        table.note(Now::ZERO, 'a');
        table.forget(&'a');
        assert_eq!(table.poll_timeout(), None);
        assert_eq!(table.note(Now::ZERO, 'a'), Seen::First);
    }

    proptest! {
        /// Whatever the order, told firsts plus told counts are all that was noted.
        #[test]
        fn nothing_is_lost_and_nothing_told_twice(
            steps in prop::collection::vec((0_u8..6, 0_u64..4), 0..200),
            capacity in 1_usize..5,
        ) {
            let mut table = Coalescer::new(WINDOW, capacity);
            let mut noted: HashMap<u8, u32> = HashMap::new();
            let mut told: HashMap<u8, u32> = HashMap::new();
            let mut now = Now::ZERO;
            for (key, wait) in steps {
                now += Duration::from_secs(wait);
                *noted.entry(key).or_default() += 1;
                if table.note(now, key) == Seen::First {
                    *told.entry(key).or_default() += 1;
                }
                while let Some((key, count)) = table.poll(now) {
                    *told.entry(key).or_default() += count;
                }
                prop_assert!(table.open.len() <= capacity);
                prop_assert_eq!(table.open.len(), table.order.len());
            }
            table.close_all();
            while let Some((key, count)) = table.poll(now) {
                *told.entry(key).or_default() += count;
            }
            prop_assert_eq!(noted, told);
        }
    }
}
