//! A box whose entries are thinned, beside a plain list of what was written to it.

use std::ops::ControlFlow;

use crate::common::*;
use crate::ledger::sound;
use bailey_docs_store::{DocId, Moment, OsEntropy, Reader, Slice, Store, Urgency};
use bailey_model::{BoxId, Timestamp};

pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const DAY: u64 = 24 * HOUR;
/// How long entries are kept in these tests, in hours.
pub(crate) const WINDOW: u32 = 24;
/// Slices of one thinning, at most: far beyond what is ever due here.
const SLICES: usize = 10_000;

/// A machine that is never off, and whose clock is right.
pub(crate) fn moment(ms: u64) -> Moment {
    Moment {
        wall: at(ms),
        boot: [1; 16],
        up_ms: ms,
    }
}

/// Opens a store that may be on a failing disk, as a node does.
pub(crate) fn try_open(dir: &TempDir, ms: u64) -> Option<Store> {
    let store = Store::open(dir.path(), keys(1), at(ms), Box::new(OsEntropy));
    let mut store = store.ok()?;
    store.set_windows(WINDOW, WINDOW);
    drop(store.look_at_clock(&moment(ms)));
    Some(store)
}

/// One that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct One {
    ms: u64,
    text: String,
}

/// The entries of [`BOX`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Aged {
    /// Acknowledged, by their numbers from 1, thinned or not.
    list: Vec<One>,
    /// How many of them a power cut must leave.
    durable: usize,
    /// Appended since.
    pending: Vec<One>,
    /// What commits that failed since would have added: of one the end may have come
    /// after its last write.
    ghosts: Vec<Vec<One>>,
    /// The latest time at which was thinned.
    thinned_at: u64,
}

impl Aged {
    pub(crate) fn append(&mut self, store: &mut Store, ms: u64) {
        let before = self.list.len() + self.pending.len();
        let text = format!("{before} at {ms}");
        let appended = store.append(BOX, gap(text.clone()), at(ms), Urgency::Normal);
        if let Ok(no) = appended {
            assert_eq!(no, before as u64 + 1, "numbers go on without holes");
            self.pending.push(One { ms, text });
        }
    }

    pub(crate) fn commit(&mut self, store: &mut Store, durable: bool) -> bool {
        let done = store.commit(durable).is_ok();
        let pending = std::mem::take(&mut self.pending);
        match (done, pending.is_empty()) {
            (true, false) => {
                self.list.extend(pending);
                self.ghosts.clear();
            }
            (false, false) => self.ghosts.push(pending),
            (_, true) => {}
        }
        self.look(store);
        done
    }

    /// Notes what no power cut takes any more.
    pub(crate) fn look(&mut self, store: &Store) {
        if store.is_synced() {
            self.durable = self.list.len();
        }
    }

    /// Thins until nothing is due, or it fails.
    pub(crate) fn thin(&mut self, store: &mut Store, ms: u64) -> Vec<Slice> {
        self.thinned_at = self.thinned_at.max(ms);
        let mut done = Vec::new();
        for _ in 0..SLICES {
            let step = match store.thin(&moment(ms)) {
                Ok(Slice::Rest | Slice::Busy) | Err(_) => ControlFlow::Break(()),
                Ok(slice) => ControlFlow::Continue(slice),
            };
            match step {
                ControlFlow::Continue(slice) => done.push(slice),
                ControlFlow::Break(()) => {
                    self.look(store);
                    return done;
                }
            }
        }
        let last: Vec<&Slice> = done.iter().rev().take(4).collect();
        panic!("thinning does not end: {last:?}");
    }

    /// How many are acknowledged and how many of them no power cut takes; how many
    /// are only appended.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.list.len(), self.durable, self.pending.len())
    }

    /// The time of each that is acknowledged, and of each that is only appended.
    pub(crate) fn times(&self) -> Vec<u64> {
        let all = self.list.iter().chain(&self.pending);
        all.map(|one| one.ms).collect()
    }

    /// That a store which is open holds what was promised: nothing is gone before its
    /// window is over, a tombstone and summaries stand for what is gone, and what is
    /// there is what was written. From then on what is there counts. Gives how many
    /// are gone.
    pub(crate) fn holds(&mut self, dir: &TempDir, store: &Store, power_cut: bool) -> u64 {
        let promised = match power_cut {
            true => self.durable,
            false => self.list.len(),
        };
        let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
        let reading = reader.read(BOX, Some(store.device())).unwrap();
        assert_eq!((reading.aside, reading.waiting), (vec![], vec![]));
        let gone = reader.gone(BOX, store.device()).unwrap();
        let gone = gone.map_or(0, |gone| gone.last_no);
        let found: Vec<One> = reading
            .entries
            .iter()
            .zip(gone + 1..)
            .map(|((_, entry), no)| {
                assert_eq!(entry.no, no, "a hole after {gone} that are thinned");
                One {
                    ms: entry.ts.0 - NOW.0,
                    text: text_of(&entry.event),
                }
            })
            .collect();
        let gone_here = usize::try_from(gone).unwrap();
        let end = gone_here + found.len();
        assert!(end >= promised, "{end} of {promised} promised");
        let early = self.list.iter().take(gone_here);
        let early = early.filter(|one| one.ms + u64::from(WINDOW) * HOUR > self.thinned_at);
        let early: Vec<&One> = early.collect();
        assert!(early.is_empty(), "gone early: {early:?}");
        // What is gone was acknowledged.
        let known = end.min(self.list.len());
        assert!(gone_here <= known, "{gone} gone of {known}");
        assert_eq!(found[..known - gone_here], self.list[gone_here..known]);
        let more = found[known - gone_here..].to_vec();
        assert!(
            more.is_empty() || self.ghosts.contains(&more),
            "never appended: {more:?}, {:?}",
            self.ghosts
        );
        self.summed_up(&mut reader, store, gone);
        sound(dir);
        self.list.truncate(known);
        self.list.extend(more);
        self.durable = self.durable.min(known);
        (self.pending, self.ghosts) = (Vec::new(), Vec::new());
        self.look(store);
        gone
    }

    /// A summary stands for each number that is gone.
    fn summed_up(&self, reader: &mut Reader, store: &Store, gone: u64) {
        let DocId::Box(box_id) = BOX else {
            unreachable!()
        };
        let kept = reader.kept_days(box_id, store.device(), Timestamp(0));
        let mut spans: Vec<(u64, u64)> = kept
            .unwrap()
            .iter()
            .map(|it| (it.first_no, it.last_no))
            .collect();
        spans.sort_unstable();
        let mut next = 1;
        for (first, last) in spans {
            assert_eq!(first, next, "what is gone is summed up once");
            next = last + 1;
        }
        assert_eq!(next, gone + 1, "all that is gone is summed up");
    }
}

/// A closed store of one device with the entries of a few days, each day sealed.
pub(crate) fn begun(days: &[u64], a_day: usize) -> (TempDir, Aged) {
    let dir = TempDir::new();
    let mut store = try_open(&dir, 0).unwrap();
    store.create_account("laptop", NOW).unwrap();
    let mut aged = Aged::default();
    for day in days {
        for no in 0..a_day {
            aged.append(&mut store, day * DAY + no as u64);
        }
        assert!(aged.commit(&mut store, true));
        store.seal_all(at(day * DAY)).unwrap();
        assert!(aged.commit(&mut store, true));
    }
    drop(store);
    (dir, aged)
}

/// Another box.
pub(crate) fn other(no: u8) -> DocId {
    DocId::Box(BoxId([no; 16]))
}
