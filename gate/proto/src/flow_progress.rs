//! How far flows under way have come, told every five minutes from the verdict of each.
//!
//! Nothing is kept of a flow until it is that old, and a clock that runs for each would
//! cost every short one: the tables are looked through when the first of all is due, and
//! not oftener than once in [`APART`].

use std::collections::HashMap;
use std::time::Duration;

use bailey_model::{FlowId, FlowProgressed};

use crate::Now;
use crate::flow::{MAX_TCP_FLOWS, MAX_UDP_FLOWS};
use crate::icmp::MAX_ECHO_FLOWS;
use crate::udp_inbound::MAX_INBOUND_UDP;

/// How often a flow under way is told of, if something moved.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(300);
/// Most flows that are told of at once; the others have waited longest the next time.
pub const MAX_PROGRESS: usize = 64;
/// Between two times.
pub const PROGRESS_APART: Duration = Duration::from_secs(1);

/// All flows of one gate.
pub(crate) const MAX_FLOWS: usize =
    MAX_TCP_FLOWS + MAX_UDP_FLOWS + MAX_INBOUND_UDP + MAX_ECHO_FLOWS;
// However many begin together, each has its turn before its next one.
const _: () = assert!(
    MAX_FLOWS as u64 / MAX_PROGRESS as u64 * PROGRESS_APART.as_secs() < PROGRESS_EVERY.as_secs()
);

/// A flow of a table, as far as it has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) flow: FlowId,
    pub(crate) opened: Now,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
}

/// What is known of a flow that was due before.
#[derive(Debug, Clone, Copy)]
struct Mark {
    due: Now,
    bytes_out: u64,
    bytes_in: u64,
}

/// When flows under way are told of.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Of flows that were due once, as they then were.
    marks: HashMap<FlowId, Mark>,
    /// When to look at them all; never later than the first is due.
    look_at: Option<Now>,
}

impl Progress {
    /// A flow begins.
    pub(crate) fn opened(&mut self, now: Now) {
        self.look_at.get_or_insert(now + PROGRESS_EVERY);
    }

    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn look_at(&self) -> Option<Now> {
        self.look_at
    }

    /// The flows that are to be told of now, those that are due longest first.
    /// `flows` are all that there are; without `room` none is told, and it is tried
    /// again.
    pub(crate) fn look(
        &mut self,
        now: Now,
        room: bool,
        flows: impl Iterator<Item = Counted>,
    ) -> Vec<FlowProgressed> {
        let mut before = std::mem::take(&mut self.marks);
        let (mut next, mut due) = (None::<Now>, Vec::new());
        for flow in flows {
            let mark = before.remove(&flow.flow);
            let at = mark.map_or(flow.opened + PROGRESS_EVERY, |mark| mark.due);
            let moved = (flow.bytes_out, flow.bytes_in)
                != mark.map_or((0, 0), |mark| (mark.bytes_out, mark.bytes_in));
            if at <= now && moved {
                due.push((at, mark, flow));
                continue;
            }
            // What has not moved is looked at again when it is due the next time.
            let mark = match at <= now {
                true => Some(Mark::of(&flow, now)),
                false => mark,
            };
            self.keep(&flow, mark, &mut next);
        }
        due.sort_unstable_by_key(|(at, _, flow)| (*at, flow.flow));
        let mut told = Vec::new();
        for (_, mark, flow) in due {
            if room && told.len() < MAX_PROGRESS {
                told.push(flow.progressed(now));
                self.keep(&flow, Some(Mark::of(&flow, now)), &mut next);
            } else {
                self.keep(&flow, mark, &mut next);
            }
        }
        self.look_at = next.map(|next| next.max(now + PROGRESS_APART));
        told
    }

    fn keep(&mut self, flow: &Counted, mark: Option<Mark>, next: &mut Option<Now>) {
        let due = mark.map_or(flow.opened + PROGRESS_EVERY, |mark| mark.due);
        *next = Some(next.map_or(due, |next| next.min(due)));
        if let Some(mark) = mark {
            self.marks.insert(flow.flow, mark);
        }
    }
}

impl Mark {
    /// Due again at the flow's own next time, however late this one is.
    fn of(flow: &Counted, now: Now) -> Self {
        let age = now.saturating_sub(flow.opened).as_secs();
        let times = age / PROGRESS_EVERY.as_secs() + 1;
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        Self {
            due: flow
                .opened
                .saturating_add(PROGRESS_EVERY.saturating_mul(times)),
            bytes_out: flow.bytes_out,
            bytes_in: flow.bytes_in,
        }
    }
}

impl Counted {
    fn progressed(&self, now: Now) -> FlowProgressed {
        let took = now.saturating_sub(self.opened).as_micros();
        FlowProgressed {
            flow: self.flow,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            duration_us: u64::try_from(took).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn counted(flow: u64, opened: Now, bytes: u64) -> Counted {
        Counted {
            flow: FlowId(flow),
            opened,
            bytes_out: bytes,
            bytes_in: 0,
        }
    }

    fn told(progress: &mut Progress, now: Now, flows: &[Counted]) -> Vec<(u64, u64)> {
        let told = progress.look(now, true, flows.iter().copied());
        let of = |it: FlowProgressed| (it.flow.0, it.bytes_out);
        told.into_iter().map(of).collect()
    }

    #[test]
    fn each_is_told_of_at_its_own_time_and_only_if_something_moved() {
        let mut progress = Progress::default();
        progress.opened(SECOND);
        progress.opened(SECOND * 100);
        assert_eq!(progress.look_at(), Some(SECOND * 301));
        let flows = |one, other| [counted(1, SECOND, one), counted(2, SECOND * 100, other)];
        assert_eq!(
            told(&mut progress, SECOND * 301, &flows(5, 6)),
            [(1, 5)],
            "the other is not old enough"
        );
        assert_eq!(progress.look_at(), Some(SECOND * 400));
        assert_eq!(told(&mut progress, SECOND * 400, &flows(7, 6)), [(2, 6)]);
        assert_eq!(progress.look_at(), Some(SECOND * 601));
        assert_eq!(told(&mut progress, SECOND * 601, &flows(7, 6)), [(1, 7)]);
        // What did not move is not told of, and is looked at again.
        assert_eq!(told(&mut progress, SECOND * 700, &flows(7, 6)), []);
        assert_eq!(told(&mut progress, SECOND * 901, &flows(7, 6)), []);
        assert_eq!(told(&mut progress, SECOND * 1000, &flows(7, 9)), [(2, 9)]);
        // Late by an hour, they are told of once.
        assert_eq!(
            told(&mut progress, SECOND * 4000, &flows(8, 10)),
            [(1, 8), (2, 10)]
        );
        assert_eq!(progress.look_at(), Some(SECOND * 4201));
        // Nothing is kept of flows that are gone.
        assert_eq!(told(&mut progress, SECOND * 4201, &[]), []);
        assert_eq!((progress.len(), progress.look_at()), (0, None));
    }

    #[test]
    fn as_many_as_there_can_be_are_spread_and_each_has_its_turn() {
        let mut progress = Progress::default();
        progress.opened(Now::ZERO);
        let most = u64::try_from(MAX_FLOWS).unwrap();
        let flows: Vec<Counted> = (0..most).map(|flow| counted(flow, Now::ZERO, 1)).collect();
        let mut seen = Vec::new();
        while let Some(at) = progress.look_at().filter(|at| *at < PROGRESS_EVERY * 2) {
            let now_told = told(&mut progress, at, &flows);
            assert!(now_told.len() <= MAX_PROGRESS);
            seen.extend(now_told.into_iter().map(|(flow, _)| flow));
        }
        assert_eq!(seen, (0..most).collect::<Vec<_>>());
    }

    #[test]
    fn while_nothing_can_be_told_nothing_is_lost() {
        let mut progress = Progress::default();
        progress.opened(Now::ZERO);
        let flows = [counted(1, Now::ZERO, 3)];
        for late in 0..10 {
            let now = PROGRESS_EVERY + SECOND * late;
            assert_eq!(progress.look(now, false, flows.into_iter()), []);
            assert_eq!(progress.look_at(), Some(now + PROGRESS_APART));
        }
        assert_eq!(
            told(&mut progress, PROGRESS_EVERY + SECOND * 10, &flows),
            [(1, 3)]
        );
        assert_eq!(progress.look_at(), Some(PROGRESS_EVERY * 2));
    }

    proptest! {
        /// Whenever flows begin, move and are looked at: what is told of one grows, and
        /// is told no later than the time between two looks after it is due.
        #[test]
        fn what_is_told_of_a_flow_grows_and_comes_in_time(
            flows in prop::collection::vec((0_u64..900, 1_u64..40), 1..20),
        ) {
            let mut progress = Progress::default();
            let mut last: HashMap<u64, (u64, u64)> = HashMap::new();
            let mut at = HashMap::new();
            for now in 0..3000_u64 {
                for (flow, (opened, _)) in (0..).zip(&flows) {
                    if now == *opened {
                        progress.opened(SECOND * u32::try_from(now).unwrap());
                        at.insert(flow, *opened);
                    }
                }
                let clock = Duration::from_secs(now);
                if progress.look_at().is_none_or(|at| at > clock) {
                    continue;
                }
                // A byte each so many seconds.
                let under_way = (0..).zip(&flows).filter(|(_, (opened, _))| now >= *opened);
                let under_way = under_way.map(|(flow, (opened, each))| {
                    counted(flow, Duration::from_secs(*opened), (now - opened) / each)
                });
                for it in progress.look(clock, true, under_way) {
                    let (flow, age) = (it.flow.0, it.duration_us / 1_000_000);
                    let before = last.insert(flow, (it.bytes_out, age)).unwrap_or((0, 0));
                    prop_assert!(before.0 < it.bytes_out);
                    prop_assert!(age % 300 <= 1 && age >= before.1 + 299, "{age} after {before:?}");
                    prop_assert_eq!(age, now - at[&flow]);
                }
            }
            for (flow, (opened, _)) in (0..).zip(&flows) {
                let due = (2998 - opened) / 300 * 300;
                prop_assert!(last[&flow].1 >= due, "{flow}");
            }
        }
    }
}
