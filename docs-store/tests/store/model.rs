//! The store against a plain list of what was written, over any order of what a
//! node does with it, what other devices send, and what befalls its disk.

use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::*;
use crate::disk::{Disk, Fault, Left};
use crate::ledger::{Ledger, copy, sound};
use bailey_docs_store::{DocId, IngestError, Role, Store, Urgency};
use bailey_model::{BoxEnd, BoxEnded, BoxId, Event, Incarnation};

/// Runs of the model in an ordinary run; `PROPTEST_CASES` takes its place.
const CASES: u32 = 64;
/// Steps of one run, at most.
const STEPS: usize = 80;

const DOCS: [DocId; 4] = [BOX, DocId::Box(BoxId([8; 16])), DocId::Node, DocId::Notices];

#[derive(Debug, Clone)]
enum Step {
    Append(usize, u8, Urgency),
    /// The end of a box closes its segment.
    End(usize),
    Commit(bool),
    Seal,
    SealAll,
    Pass(i64),
    Checkpoint,
    Reopen,
    Kill,
    PowerCut(Left),
    Fault(u64, Fault),
    Heal,
    FromOther(u8),
    ToOther,
}

fn step() -> impl Strategy<Value = Step> {
    let urgency = prop_oneof![
        4 => Just(Urgency::Normal),
        1 => Just(Urgency::Prompt),
        1 => Just(Urgency::Urgent)
    ];
    let fault = prop_oneof![
        Just(Fault::Full),
        Just(Fault::Io),
        Just(Fault::Torn),
        Just(Fault::Cut)
    ];
    let left = prop_oneof![
        1 => Just(Left::Synced),
        3 => any::<u64>().prop_map(Left::Some)
    ];
    let pass = prop_oneof![
        6 => 0_i64..3_000,
        1 => Just(25 * 3_600_000),
        1 => -7_200_000_i64..0
    ];
    prop_oneof![
        10 => (0..DOCS.len(), 1_u8..60, urgency).prop_map(|(doc, count, urgency)| Step::Append(doc, count, urgency)),
        1 => (0_usize..2).prop_map(Step::End),
        8 => any::<bool>().prop_map(Step::Commit),
        6 => Just(Step::Seal),
        3 => Just(Step::SealAll),
        4 => pass.prop_map(Step::Pass),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => Just(Step::Kill),
        3 => left.prop_map(Step::PowerCut),
        4 => (0_u64..40, fault).prop_map(|(after, fault)| Step::Fault(after, fault)),
        3 => Just(Step::Heal),
        2 => (1_u8..60).prop_map(Step::FromOther),
        3 => Just(Step::ToOther),
    ]
}

/// Two devices that know each other, closed.
fn begun() -> &'static (TempDir, TempDir) {
    static BEGUN: OnceLock<(TempDir, TempDir)> = OnceLock::new();
    BEGUN.get_or_init(|| {
        let (dir, mut store) = laptop();
        let other = TempDir::new();
        let mut phone = open(&other, 2, NOW);
        store.seal_all(NOW).unwrap();
        pair(&mut store, &mut phone, 2, Role::Full, NOW);
        (dir, other)
    })
}

/// One run.
struct World {
    dir: TempDir,
    disk: Disk,
    store: Option<Store>,
    ledger: Ledger,
    _other_dir: TempDir,
    other: Store,
    /// What the other device wrote into the box, in order.
    others: Vec<String>,
    now: u64,
    starts: u64,
}

impl World {
    fn new() -> Self {
        let (one, two) = begun();
        let (dir, other_dir) = (copy(one), copy(two));
        let disk = Disk::under(dir.path());
        let mut ledger = Ledger::default();
        // What the account's first entry is.
        let first = texts(&read(&dir, 1, DocId::Node));
        let written = ledger.docs.entry(DocId::Node).or_default();
        written.texts = first.into_iter().map(|(_, text)| text).collect();
        let now = 10_000;
        let store = open_seeded(&dir, 1, at(now), 0);
        ledger.look(&store);
        Self {
            dir,
            disk,
            store: Some(store),
            ledger,
            other: open_seeded(&other_dir, 2, at(now), 0),
            _other_dir: other_dir,
            others: Vec::new(),
            now,
            starts: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        let now = at(self.now);
        let Some(store) = &mut self.store else { return };
        match step {
            Step::Append(doc, count, urgency) => {
                for no in 0..*count {
                    let text = format!("{no} at {}", self.now);
                    self.ledger.append(store, DOCS[*doc], &text, now, *urgency);
                }
            }
            Step::End(doc) => {
                let event = Event::BoxEnded(BoxEnded {
                    box_id: BoxId([9; 16]),
                    incarnation: Incarnation([1; 16]),
                    end: BoxEnd::NodeLost,
                    processes_ended: None,
                    processes_left: None,
                    flows_reset: None,
                });
                self.ledger
                    .append_event(store, DOCS[*doc], event, now, Urgency::Urgent);
            }
            Step::Commit(durable) => {
                self.ledger.commit(store, *durable);
            }
            Step::Seal => {
                drop(store.seal(now));
                self.ledger.look(store);
            }
            Step::SealAll => {
                drop(store.seal_all(now));
                self.ledger.look(store);
            }
            Step::Pass(ms) => self.now = self.now.saturating_add_signed(*ms).max(10_000),
            Step::Checkpoint => {
                if let Ok(checkpointer) = store.checkpointer() {
                    drop(checkpointer.run());
                }
            }
            Step::Reopen | Step::Kill => {
                let cut = self.disk.hit();
                if cut || matches!(step, Step::Kill) {
                    self.disk.fail(0, Fault::Cut);
                }
                self.end(None);
            }
            Step::PowerCut(left) => {
                self.disk.fail(0, Fault::Cut);
                self.end(Some(*left));
            }
            Step::Fault(after, fault) => self.disk.fail(*after, *fault),
            Step::Heal => {
                self.disk.heal();
            }
            Step::FromOther(count) => self.take_other(*count),
            Step::ToOther => self.show_other(),
        }
    }

    /// The store's process is over, and so is its machine or not; it starts again.
    fn end(&mut self, left: Option<Left>) {
        self.store = None;
        match left {
            Some(left) => self.disk.power_cut(left),
            None => self.disk.process_ended(),
        }
        self.starts += 1;
        let store = open_seeded(&self.dir, 1, at(self.now), self.starts);
        self.ledger.holds(&self.dir, &store, left.is_some());
        self.store = Some(store);
    }

    /// The other device writes, and this one takes what its disk lets it.
    fn take_other(&mut self, count: u8) {
        let (now, Some(store)) = (at(self.now), &mut self.store) else {
            return;
        };
        for no in 0..count {
            let text = format!("other {no} at {}", self.now);
            self.other
                .append(BOX, gap(&text), now, Urgency::Normal)
                .unwrap();
            self.others.push(text);
        }
        self.other.commit(true).unwrap();
        self.other.seal_all(now).unwrap();
        let (_, refused) = sync(&self.other, store, now);
        // What follows one that the disk refused has a gap before it.
        let by_disk =
            |error: &IngestError| matches!(error, IngestError::Db(_) | IngestError::Gap { .. });
        assert!(refused.iter().all(by_disk), "{refused:?}");
        self.ledger.look(store);
    }

    /// The other device takes what it may see.
    fn show_other(&mut self) {
        let Some(store) = &self.store else { return };
        for head in &self.ledger.told {
            let have = self.other.heads().into_iter();
            let have = have
                .filter(|have| have.chain == head.chain)
                .map(|have| have.seq);
            let next = have.max().map_or(1, |seq| seq + 1);
            // A disk that fails may fail here too.
            let Ok(envelopes) = store.range(&head.chain, next, usize::MAX, usize::MAX) else {
                return;
            };
            let envelopes = envelopes.into_iter().zip(next..=head.seq);
            for (envelope, _) in envelopes {
                let taken = self.other.ingest(&envelope, at(self.now)).unwrap();
                assert!(!taken.restored, "it looks as if it went back");
            }
        }
    }

    /// At the end both have all of it.
    fn finish(mut self) {
        self.disk.heal();
        self.end(None);
        if let Some(store) = &mut self.store {
            store.seal_all(at(self.now)).unwrap();
            assert!(self.ledger.commit(store, true));
            let (_, refused) = sync(&self.other, store, at(self.now));
            assert!(refused.is_empty(), "{refused:?}");
        }
        self.show_other();
        for (doc, written) in &self.ledger.docs {
            let mut seen = read(&self._other_dir, 2, *doc);
            seen.retain(|(device, _)| *device == keys(1).id());
            let seen: Vec<String> = texts(&seen).into_iter().map(|(_, text)| text).collect();
            assert_eq!(seen, written.texts, "{doc} on the other device");
        }
        let mut theirs = read(&self.dir, 1, BOX);
        theirs.retain(|(device, _)| *device == keys(2).id());
        let theirs: Vec<String> = texts(&theirs).into_iter().map(|(_, text)| text).collect();
        assert_eq!(theirs, self.others, "what the other device wrote");
        sound(&self.dir);
    }
}

#[test]
fn whatever_befalls_it_the_store_is_a_list_of_what_was_acknowledged() {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = proptest::collection::vec(step(), 1..STEPS);
    let ran = TestRunner::new(config).run(&steps, |steps| {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.finish();
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
}
