//! Journal, segments and thinning as one machine: every state that a few steps of a
//! node reach is gone through in breadth, each step from each state once, and each
//! again with the power cut at every operation of the disk within it.

use std::collections::{BTreeSet, VecDeque};

use crate::aged::*;
use crate::common::*;
use crate::disk::{Disk, Fault, Left};
use crate::ledger::copy;
use bailey_docs_store::Store;

/// Steps from the beginning; `BAILEY_STATES` takes its place.
const DEPTH: usize = 3;
/// Entries of one history, at most.
const ENTRIES: usize = 3;
/// Days of one history, at most.
const DAYS: u64 = 4;
/// Operations of the disk within one step, at most.
const OPERATIONS: u64 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Append,
    Commit,
    Durable,
    /// What waits becomes an envelope.
    Seal,
    /// Two days pass: what comes then is of another segment.
    Pass,
    Thin,
    /// The process ends and starts again.
    Restart,
    /// So does the machine; what was not synced is gone.
    PowerCut,
}

const STEPS: [Step; 8] = [
    Step::Append,
    Step::Commit,
    Step::Durable,
    Step::Seal,
    Step::Pass,
    Step::Thin,
    Step::Restart,
    Step::PowerCut,
];

/// What tells one state from another: of the list, and of the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    day: u64,
    times: Vec<u64>,
    counts: (usize, usize, usize),
    gone: u64,
    synced: bool,
    waits: bool,
    /// Numbers of the envelopes of each chain, in the order of their documents.
    heads: Vec<u64>,
}

/// One history, under way.
struct History {
    dir: TempDir,
    disk: Disk,
    store: Option<Store>,
    aged: Aged,
    day: u64,
    gone: u64,
}

impl History {
    fn begin(begun: &(TempDir, Aged)) -> Self {
        let dir = copy(&begun.0);
        let disk = Disk::under(dir.path());
        let store = Some(try_open(&dir, 0).unwrap());
        let (aged, day, gone) = (begun.1.clone(), 0, 0);
        Self {
            dir,
            disk,
            store,
            aged,
            day,
            gone,
        }
    }

    fn now(&self) -> u64 {
        self.day * DAY
    }

    /// Whether a step is one of those that are looked at from here.
    fn allows(&self, step: Step) -> bool {
        match step {
            Step::Append => self.aged.times().len() < ENTRIES,
            Step::Pass => self.day < DAYS,
            _ => true,
        }
    }

    /// Takes a step, on a disk that may fail within it.
    fn step(&mut self, step: Step) {
        let now = self.now();
        let Some(store) = &mut self.store else { return };
        match step {
            Step::Append => self.aged.append(store, now),
            Step::Commit => drop(self.aged.commit(store, false)),
            Step::Durable => drop(self.aged.commit(store, true)),
            Step::Seal => {
                drop(store.seal_all(at(now)));
                self.aged.look(store);
            }
            Step::Pass => self.day += 2,
            Step::Thin => drop(self.aged.thin(store, now)),
            Step::Restart => self.restart(None),
            Step::PowerCut => self.restart(Some(Left::Synced)),
        }
    }

    fn restart(&mut self, left: Option<Left>) {
        // Its last connection must not write as it closes.
        if left.is_some() {
            self.disk.fail(0, Fault::Cut);
        }
        self.store = None;
        match left {
            Some(left) => self.disk.power_cut(left),
            None => self.disk.process_ended(),
        }
        let store = try_open(&self.dir, self.now()).expect("it opens");
        self.gone = self.aged.holds(&self.dir, &store, left.is_some());
        self.store = Some(store);
    }

    /// After steps on a disk that does not fail: all that is acknowledged is there.
    fn look(&mut self) -> Seen {
        let now = self.now();
        let store = self.store.as_mut().unwrap();
        // What is only appended is of no account to a reader.
        let mut aged = self.aged.clone();
        self.gone = aged.holds(&self.dir, store, false);
        Seen {
            day: self.day,
            times: self.aged.times(),
            counts: self.aged.counts(),
            gone: self.gone,
            synced: store.is_synced(),
            waits: store.seal_due(at(now)).is_some(),
            heads: store.heads().iter().map(|head| head.seq).collect(),
        }
    }

    /// From here on all goes well: everything is sealed, and goes once it is due.
    fn finish(mut self) {
        let now = self.now();
        let store = self.store.as_mut().unwrap();
        self.aged.append(store, now);
        assert!(self.aged.commit(store, true));
        store.seal_all(at(now)).unwrap();
        self.aged.thin(store, now + 3 * DAY);
        assert!(self.aged.commit(store, true));
        let (all, ..) = self.aged.counts();
        assert_eq!(self.aged.holds(&self.dir, store, true), all as u64);
    }
}

fn reached(begun: &(TempDir, Aged), path: &[Step]) -> History {
    let mut history = History::begin(begun);
    path.iter().for_each(|step| history.step(*step));
    history
}

/// Takes a step with the power cut, or the process ended, at each operation within it.
fn cut_within(begun: &(TempDir, Aged), path: &[Step], step: Step) -> u64 {
    for operation in 0..OPERATIONS {
        // Each other one with the power.
        let power = operation % 2 == 0;
        let mut history = reached(begun, path);
        history.disk.fail(operation, Fault::Cut);
        // These end it themselves.
        if !matches!(step, Step::Restart | Step::PowerCut) {
            history.step(step);
        }
        if !history.disk.hit() {
            return operation;
        }
        history.restart(power.then_some(match operation % 4 {
            0 => Left::Synced,
            _ => Left::Some(operation),
        }));
        history.finish();
    }
    panic!("more than {OPERATIONS} operations");
}

#[test]
fn in_every_state_that_a_few_steps_reach_nothing_is_lost_and_nothing_stays() {
    let depth = std::env::var("BAILEY_STATES").ok();
    let depth = depth.and_then(|text| text.parse().ok()).unwrap_or(DEPTH);
    // One entry is sealed, so that there is something to thin.
    let begun = begun(&[0], 1);
    let mut seen = BTreeSet::new();
    let mut next = VecDeque::from([Vec::new()]);
    let (mut steps, mut cuts, mut gone) = (0, 0, 0);
    seen.insert(reached(&begun, &[]).look());
    while let Some(path) = next.pop_front() {
        for step in STEPS {
            let mut history = reached(&begun, &path);
            if !history.allows(step) {
                continue;
            }
            history.step(step);
            let state = history.look();
            steps += 1;
            if !seen.insert(state.clone()) {
                continue;
            }
            gone += u64::from(state.gone > 0);
            cuts += cut_within(&begun, &path, step);
            history.finish();
            if path.len() + 1 < depth {
                next.push_back([path.as_slice(), &[step]].concat());
            }
        }
    }
    eprintln!("{} states, {steps} steps, {cuts} cuts", seen.len());
    assert!(
        gone > 0,
        "the control: nothing was thinned in {} states",
        seen.len()
    );
}
