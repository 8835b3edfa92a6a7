//! Deadlines of flows: a heap with at most a few stale entries a flow, so that
//! the cost of a packet does not grow with the number of flows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

use crate::Now;

/// A flow's place in the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// When it is due; it may have moved later since it was put in the heap.
    due: Option<Now>,
    /// The heap's earliest live entry for it.
    queued: Option<Now>,
}

/// Deadlines of flows that are gone, beyond as many as there are flows.
pub(crate) const MAX_STALE: usize = 1024;

/// What has a deadline.
pub(crate) trait Timed {
    fn alarm(&mut self) -> &mut Alarm;
}

/// The heap. Keys of flows that are gone are ignored when they come up.
#[derive(Debug)]
pub(crate) struct Timers<K> {
    heap: BinaryHeap<Reverse<(Now, K)>>,
}

impl<K: Ord + Copy> Timers<K> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
        }
    }

    /// Sets when a flow is due. Moving it later costs nothing.
    pub(crate) fn set(&mut self, key: K, alarm: &mut Alarm, due: Option<Now>) {
        alarm.due = due;
        if let Some(due) = due
            && alarm.queued.is_none_or(|queued| due < queued)
        {
            alarm.queued = Some(due);
            self.heap.push(Reverse((due, key)));
        }
    }

    /// Deadlines held, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When to look again; perhaps too early, never too late.
    pub(crate) fn next(&self) -> Option<Now> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Lets go of deadlines that mean nothing any more, once they are most of all:
    /// to be called when a flow is gone.
    pub(crate) fn sweep<T: Timed>(&mut self, flows: &mut HashMap<K, T>)
    where
        K: Hash,
    {
        if self.heap.len() <= 2 * flows.len() + MAX_STALE {
            return;
        }
        self.heap.retain(|Reverse((at, key))| {
            let flow = flows.get_mut(key);
            flow.is_some_and(|flow| flow.alarm().queued == Some(*at))
        });
    }

    /// The next flow that is due.
    pub(crate) fn due<T: Timed>(&mut self, now: Now, flows: &mut HashMap<K, T>) -> Option<K>
    where
        K: Hash,
    {
        while self.next()? <= now {
            let Reverse((at, key)) = self.heap.pop()?;
            let flow = flows.get_mut(&key);
            if flow.is_some_and(|flow| self.fires(now, at, key, flow.alarm())) {
                return Some(key);
            }
        }
        None
    }

    /// Whether a key that came up at `at` is really due; puts it back if its
    /// time has moved.
    fn fires(&mut self, now: Now, at: Now, key: K, alarm: &mut Alarm) -> bool {
        if alarm.queued != Some(at) {
            return false;
        }
        alarm.queued = None;
        match alarm.due {
            Some(due) if due <= now => {
                alarm.due = None;
                true
            }
            due => {
                self.set(key, alarm, due);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Now {
        Duration::from_millis(ms)
    }

    impl Timed for Alarm {
        fn alarm(&mut self) -> &mut Alarm {
            self
        }
    }

    fn fired(timers: &mut Timers<u8>, now: Now, alarm: &mut Alarm) -> u32 {
        let mut alarms = HashMap::from([(1, *alarm)]);
        let mut count = 0;
        while timers.due(now, &mut alarms).is_some() {
            count += 1;
        }
        *alarm = alarms[&1];
        count
    }

    #[test]
    fn a_deadline_fires_once_and_only_at_its_latest_setting() {
        let (mut timers, mut alarm) = (Timers::new(), Alarm::default());
        timers.set(1, &mut alarm, Some(at(10)));
        timers.set(1, &mut alarm, Some(at(30)));
        assert_eq!(fired(&mut timers, at(10), &mut alarm), 0);
        timers.set(1, &mut alarm, Some(at(20)));
        assert_eq!(fired(&mut timers, at(25), &mut alarm), 1);
        assert_eq!(fired(&mut timers, at(1000), &mut alarm), 0);
        timers.set(1, &mut alarm, Some(at(2000)));
        timers.set(1, &mut alarm, None);
        assert_eq!(fired(&mut timers, at(3000), &mut alarm), 0);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn deadlines_of_flows_that_are_gone_are_few_and_the_others_still_fire() {
        let (mut timers, mut flows) = (Timers::new(), HashMap::new());
        for key in 0..100_000_u32 {
            let mut alarm = Alarm::default();
            timers.set(key, &mut alarm, Some(at(1_000_000 - u64::from(key))));
            flows.insert(key, alarm);
            if key >= 5 {
                flows.remove(&key);
                timers.sweep(&mut flows);
            }
            assert!(timers.len() <= MAX_STALE + 20, "{}", timers.len());
        }
        let fired = std::iter::from_fn(|| timers.due(at(1_000_000), &mut flows));
        assert_eq!(fired.collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
    }

    #[test]
    fn moving_a_deadline_later_does_not_grow_the_heap() {
        let (mut timers, mut alarm) = (Timers::new(), Alarm::default());
        for ms in 0..10_000 {
            timers.set(1, &mut alarm, Some(at(ms)));
        }
        assert_eq!(timers.heap.len(), 1);
    }
}
