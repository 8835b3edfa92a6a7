//! How much time has surely passed: what thinning goes by, and no clock on a wall.
//!
//! A mark, in the clock's own milliseconds, that never goes back. Time that the
//! machine was up moves it, by the kernel's count since boot. A clock that stands
//! before it moves nothing; one that stands after it (the machine was off, or
//! somebody set it) is believed once it has stood so for [`HOLD_MS`] of the machine
//! being up. So a step that is undone within that time moves nothing, whichever way
//! it went; and what is stamped with the mark and dropped a window later by the mark
//! was kept for the window. It may be late by as long as the machine takes to be up
//! for [`HOLD_MS`], or by as far as a clock was ahead when it was first seen.

use bailey_model::Timestamp;
use serde::{Deserialize, Serialize};

/// How long a clock that ran ahead has to stand, of time that the machine is up, in
/// milliseconds.
pub(crate) const HOLD_MS: u64 = 24 * 3_600_000;

/// What the machine says of the time at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The clock on the wall.
    pub wall: Timestamp,
    /// Which boot of the machine (`/proc/sys/kernel/random/boot_id`, or whatever is
    /// another one whenever `up_ms` begins anew).
    pub boot: [u8; 16],
    /// Milliseconds since that boot, asleep or not (`CLOCK_BOOTTIME`).
    pub up_ms: u64,
}

/// The mark, and what is remembered to move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Steady {
    mark: u64,
    boot: [u8; 16],
    up_ms: u64,
    /// A clock that runs ahead: where it stood when that was seen first, and how
    /// long the machine was up since.
    ahead: Option<(u64, u64)>,
}

impl Steady {
    /// Begins at a time that has surely come.
    pub(crate) fn new(mark: Timestamp) -> Self {
        Self {
            mark: mark.0,
            boot: [0; 16],
            up_ms: 0,
            ahead: None,
        }
    }

    /// The mark.
    pub(crate) fn mark(&self) -> Timestamp {
        Timestamp(self.mark)
    }

    /// Takes what the machine says now.
    pub(crate) fn tick(&mut self, now: &Moment) {
        let passed = match now.boot == self.boot {
            true => now.up_ms.saturating_sub(self.up_ms),
            false => 0,
        };
        (self.boot, self.up_ms) = (now.boot, now.up_ms);
        self.mark = self.mark.saturating_add(passed);
        let wall = now.wall.0;
        self.ahead = match self.ahead {
            _ if wall <= self.mark => None,
            Some((first, stood)) if wall >= first => Some((first, stood.saturating_add(passed))),
            Some(_) | None => Some((wall, 0)),
        };
        if let Some((first, stood)) = self.ahead
            && stood >= HOLD_MS
        {
            // Time went on from where it stood first; what it gained since is a
            // step of its own.
            let believed = first.saturating_add(stood).min(wall);
            self.mark = self.mark.max(believed);
            self.ahead = (wall > self.mark).then_some((wall, 0));
        }
    }

    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self).ok()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;
    const START: u64 = 1_796_000_000_000;

    /// A machine: what time it really is, what its clock says, how long it is up.
    struct Machine {
        really: u64,
        off_by: i64,
        boot: u8,
        up_ms: u64,
        steady: Steady,
    }

    impl Machine {
        fn new() -> Self {
            let mut machine = Self {
                really: START,
                off_by: 0,
                boot: 1,
                up_ms: 0,
                steady: Steady::new(Timestamp(START)),
            };
            machine.tick();
            machine
        }

        fn tick(&mut self) {
            let now = Moment {
                wall: Timestamp(self.really.saturating_add_signed(self.off_by)),
                boot: [self.boot; 16],
                up_ms: self.up_ms,
            };
            self.steady.tick(&now);
        }

        fn up(&mut self, ms: u64) {
            let steps = ms.div_ceil(HOUR).max(1);
            for _ in 0..steps {
                self.really += ms / steps;
                self.up_ms += ms / steps;
                self.tick();
            }
        }

        fn off(&mut self, ms: u64) {
            self.really += ms;
            self.boot = self.boot.wrapping_add(1);
            self.up_ms = 0;
            self.tick();
        }

        fn set_clock(&mut self, by: i64) {
            self.off_by += by;
            self.tick();
        }

        fn mark(&self) -> u64 {
            self.steady.mark().0
        }
    }

    #[test]
    fn time_that_the_machine_is_up_counts_whatever_the_clock_says() {
        let mut machine = Machine::new();
        machine.set_clock(-50 * 365 * i64::try_from(DAY).unwrap());
        machine.up(40 * DAY);
        assert_eq!(machine.mark(), machine.really);
    }

    #[test]
    fn a_year_ahead_and_back_within_a_day_moves_nothing() {
        let mut machine = Machine::new();
        let year = 365 * i64::try_from(DAY).unwrap();
        machine.set_clock(year);
        machine.up(23 * HOUR);
        machine.off(HOUR);
        machine.set_clock(-year);
        machine.up(30 * DAY);
        assert!(machine.mark() <= machine.really);
        assert!(machine.mark() + 2 * HOUR >= machine.really);
    }

    #[test]
    fn a_battery_that_is_empty_at_every_boot_moves_nothing() {
        let mut machine = Machine::new();
        let fifty = 50 * 365 * i64::try_from(DAY).unwrap();
        for _ in 0..20 {
            machine.off(16 * HOUR);
            machine.set_clock(-fifty);
            machine.up(HOUR);
            machine.set_clock(fifty);
            machine.up(7 * HOUR);
            assert!(machine.mark() <= machine.really);
        }
    }

    #[test]
    fn a_machine_that_is_off_at_night_is_a_few_days_late() {
        let mut machine = Machine::new();
        for day in 0..60 {
            machine.up(8 * HOUR);
            machine.off(16 * HOUR);
            let late = machine.really - machine.mark();
            assert!(late <= 7 * DAY, "day {day}: {} h late", late / HOUR);
        }
        machine.up(3 * DAY);
        assert_eq!(machine.mark(), machine.really);
    }

    #[test]
    fn it_survives_being_stored() {
        let mut machine = Machine::new();
        machine.off(9 * DAY);
        machine.up(HOUR);
        let stored = machine.steady.encode().unwrap();
        assert_eq!(Steady::decode(&stored), Some(machine.steady));
        assert_eq!(Steady::decode(&stored[..9]), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Up(u64),
        Off(u64),
        /// The clock is off by this for so long, and is then right again.
        Wrong(i64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let far = 400 * i64::try_from(DAY).unwrap();
        prop_oneof![
            (1..5 * DAY).prop_map(Step::Up),
            (1..60 * DAY).prop_map(Step::Off),
            (-far..far, 1..HOLD_MS).prop_map(|(by, ms)| Step::Wrong(by, ms)),
        ]
    }

    proptest! {
        /// Whatever happens, the mark is never after the real time, as long as no
        /// wrong clock stands for [`HOLD_MS`] of the machine being up; and what is
        /// kept for a window by the mark is kept for one of real time.
        #[test]
        fn steps_that_are_undone_lose_nothing_early(steps in proptest::collection::vec(step(), 1..60)) {
            let mut machine = Machine::new();
            let mut before = machine.mark();
            let (stamp, stamped) = (machine.mark(), machine.really);
            for step in steps {
                match step {
                    Step::Up(ms) => machine.up(ms),
                    Step::Off(ms) => machine.off(ms),
                    Step::Wrong(by, ms) => {
                        machine.set_clock(by);
                        machine.up(ms);
                        machine.set_clock(-by);
                    }
                }
                prop_assert!(machine.mark() <= machine.really);
                prop_assert!(machine.mark() >= before);
                prop_assert!(machine.mark() - stamp <= machine.really - stamped);
                before = machine.mark();
            }
        }

        /// A clock that is right catches up.
        #[test]
        fn what_is_late_comes(off in 1..200 * DAY, up in 3 * DAY..9 * DAY) {
            let mut machine = Machine::new();
            machine.off(off);
            machine.up(up);
            prop_assert_eq!(machine.mark() / HOUR, machine.really / HOUR);
        }
    }
}
