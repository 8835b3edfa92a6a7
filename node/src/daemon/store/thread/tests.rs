use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bailey_docs_store::{DeviceKeys, OsEntropy};
use bailey_model::{BoxId, Event, Gap};

use super::super::pace::EVERY;
use super::*;
use crate::config::Audit;

const DOC: DocId = DocId::Box(BoxId([1; 16]));

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn thread(name: &str, durable: Durable) -> (Folder, Thread, mpsc::Receiver<Vec<StoreTell>>) {
    let dir = std::env::temp_dir().join(format!("bailey-{name}-{}", std::process::id()));
    let folder = Folder(dir);
    let keys = DeviceKeys::generate([1; 64]);
    let entropy = Box::new(OsEntropy);
    let mut store = Store::open(&folder.0, keys, clock::now(), entropy).unwrap();
    store.create_account("test", clock::now()).unwrap();
    let (tells, told) = mpsc::channel(1024);
    let forgot = Arc::new(AtomicBool::new(false));
    let thinner = Thinner::new(Audit::default(), &mut store, forgot);
    (folder, Thread::new(store, thinner, tells, durable), told)
}

fn append(doc: DocId, urgency: Urgency) -> StoreAsk {
    let reason = "x".to_owned();
    StoreAsk::Append(vec![Entering {
        doc,
        event: Event::Gap(Gap { reason }),
        urgency,
        tag: Tag::None,
    }])
}

/// As after a commit that is as old as it may be.
fn long_ago() -> Pace {
    Pace::new(Instant::now().checked_sub(EVERY).unwrap())
}

/// Documents of which heads were told since.
fn heads(told: &mut mpsc::Receiver<Vec<StoreTell>>) -> Vec<DocId> {
    let mut docs = Vec::new();
    while let Ok(tells) = told.try_recv() {
        for tell in tells {
            if let StoreTell::Heads(heads) = tell {
                docs.extend(heads.into_iter().map(|head| head.chain.doc));
            }
        }
    }
    docs
}

/// So many as fill an envelope.
fn full() -> impl Iterator<Item = StoreAsk> {
    (0..256).map(|_| append(DOC, Urgency::Normal))
}

#[test]
fn each_commit_is_synced_where_it_is_asked_for_and_grants_always_are() {
    let just_now = |thread: &mut Thread| thread.pace = Pace::new(Instant::now());
    let (_folder, mut soon, _told) = thread("soon", Durable::Soon);
    just_now(&mut soon);
    assert!(soon.turn(vec![append(DOC, Urgency::Normal)]));
    assert!(!soon.store.is_synced(), "it is in 250 ms");
    assert!(soon.turn(vec![append(DOC, Urgency::Urgent)]));
    assert!(soon.store.is_synced());
    let (_folder, mut each, _told) = thread("each", Durable::Each);
    just_now(&mut each);
    assert!(each.turn(vec![append(DOC, Urgency::Normal)]));
    assert!(each.store.is_synced());
}

#[test]
fn what_is_entered_together_is_answered_one_by_one_after_one_commit() {
    let (_folder, mut soon, mut told) = thread("together", Durable::Soon);
    assert!(soon.turn(Vec::new()));
    while told.try_recv().is_ok() {}
    let StoreAsk::Append(mut all) = append(DOC, Urgency::Urgent) else {
        unreachable!()
    };
    for doc in [DocId::Node, DOC] {
        let StoreAsk::Append(more) = append(doc, Urgency::Urgent) else {
            unreachable!()
        };
        all.extend(more);
    }
    assert!(soon.turn(vec![StoreAsk::Append(all)]));
    assert!(soon.store.is_synced());
    let mut answered = Vec::new();
    while let Ok(tells) = told.try_recv() {
        for tell in tells {
            if let StoreTell::Appended { doc, entry, .. } = tell {
                answered.push((doc, entry.no));
            }
        }
    }
    // The device's own name stands in the node's document already.
    assert_eq!(answered, [(DOC, 1), (DocId::Node, 2), (DOC, 2)]);
}

#[test]
fn what_is_not_synced_is_within_a_quarter_of_a_second() {
    let (_folder, mut soon, _told) = thread("quarter", Durable::Soon);
    soon.pace = Pace::new(Instant::now());
    assert!(soon.turn(vec![append(DOC, Urgency::Normal)]));
    assert!(soon.nap() <= EVERY);
    soon.pace = long_ago();
    assert_eq!(soon.nap(), Duration::ZERO);
    assert!(soon.turn(Vec::new()));
    assert!(soon.store.is_synced());
}

#[test]
fn others_hear_of_an_envelope_only_once_no_power_cut_takes_it() {
    let (_folder, mut soon, mut told) = thread("heads", Durable::Soon);
    assert!(soon.turn(Vec::new()));
    let _begun = heads(&mut told);
    soon.pace = Pace::new(Instant::now());
    // So many are a batch: sealed at once.
    assert!(soon.turn(full().collect()));
    assert!(!soon.store.is_synced());
    assert!(!heads(&mut told).contains(&DOC));
    soon.pace = long_ago();
    assert!(soon.turn(Vec::new()));
    assert!(heads(&mut told).contains(&DOC));
    // What a person waits for is synced with its sealing.
    soon.pace = Pace::new(Instant::now());
    assert!(soon.turn(vec![append(DocId::Notices, Urgency::Urgent)]));
    assert!(heads(&mut told).contains(&DocId::Notices));
}

#[test]
fn a_box_that_fills_an_envelope_each_turn_keeps_no_head_back() {
    let (_folder, mut soon, mut told) = thread("flood", Durable::Soon);
    assert!(soon.turn(Vec::new()));
    let _begun = heads(&mut told);
    // Each time more is sealed right after what was sealed before is on the disk.
    for _ in 0..3 {
        soon.pace = long_ago();
        assert!(soon.turn(full().collect()));
    }
    assert!(heads(&mut told).contains(&DOC));
}

#[test]
fn what_others_wait_for_is_told_at_once_beside_a_box_that_fills_an_envelope_each_turn() {
    let (_folder, mut soon, mut told) = thread("prompt", Durable::Soon);
    assert!(soon.turn(Vec::new()));
    let _begun = heads(&mut told);
    let begins = append(DocId::Node, Urgency::Prompt);
    soon.pace = Pace::new(Instant::now());
    assert!(soon.turn(full().chain([begins]).collect()));
    // It waits 20 ms for others to go with it.
    std::thread::sleep(Duration::from_millis(25));
    // No commit of its own is due for long.
    soon.pace = Pace::new(Instant::now() + Duration::from_secs(60));
    assert!(soon.turn(full().collect()));
    assert!(heads(&mut told).contains(&DocId::Node));
}

#[test]
fn a_durable_commit_that_fails_is_tried_again_soon() {
    let (_folder, mut soon, _told) = thread("again", Durable::Soon);
    assert!(soon.turn(vec![append(DOC, Urgency::Normal)]));
    soon.pace = long_ago();
    assert!(!soon.store.is_synced());
    // As on a full disk.
    soon.store.limit_size(1).unwrap();
    let long = |_| Entering {
        doc: DOC,
        event: Event::Gap(Gap {
            reason: "x".repeat(2_000),
        }),
        urgency: Urgency::Urgent,
        tag: Tag::None,
    };
    let much = StoreAsk::Append((0..200).map(long).collect());
    assert!(soon.turn(vec![much]));
    assert!(!soon.store.is_synced(), "the control: it fails");
    let again = soon.pace.due_in(Instant::now());
    assert!(again <= Duration::from_millis(5), "{again:?}");
    // The thread looks again by then, whatever else it waits for.
    assert!(soon.nap() <= again);
    soon.store.limit_size(1 << 30).unwrap();
    std::thread::sleep(again);
    assert!(soon.turn(Vec::new()));
    assert!(soon.store.is_synced());
}
