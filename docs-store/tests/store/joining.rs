//! Joining: with the right records, or not at all.

use crate::common::*;
use bailey_docs_store::{DocId, IngestError, JoinError, Role, Store};
use bailey_model::AccountId;

/// An account of two devices and two starts of the first: records that rest on
/// those of other chains. The third device is offered a place only if `added`.
fn account(added: bool) -> (AccountId, Vec<Vec<u8>>) {
    let (dir_a, mut a) = laptop();
    let dir_b = TempDir::new();
    let mut b = open(&dir_b, 2, NOW);
    pair(&mut a, &mut b, 2, Role::Full, NOW);
    drop(a);
    let mut a = open(&dir_a, 1, NOW);
    add(&mut a, 4);
    assert!(sync(&a, &mut b, NOW).1.is_empty());
    if added {
        add(&mut b, 3);
    }
    (b.account().unwrap(), records(&b))
}

fn add(store: &mut Store, no: u8) {
    let offer = store.offer_add(keys(no).public(), Role::Full).unwrap();
    let signed = offer.sign(&keys(no)).unwrap();
    store.complete_add(&offer, signed, NOW).unwrap();
}

/// Nothing is kept of a failed join: not in memory, not on the disk.
fn untouched(dir: &TempDir, store: Store) -> Store {
    assert_eq!((store.account(), store.members().len()), (None, 0));
    assert_eq!(store.heads(), []);
    drop(store);
    let store = open(dir, 3, NOW);
    assert_eq!((store.account(), store.members().len()), (None, 0));
    assert_eq!(store.heads(), []);
    store
}

#[test]
fn the_records_may_come_in_any_order() {
    let (account, records) = account(true);
    assert!(records.len() >= 4);
    for turn in 0..records.len() {
        let mut turned = records.clone();
        turned.rotate_left(turn);
        turned.reverse();
        let dir = TempDir::new();
        let mut store = open(&dir, 3, NOW);
        store.join(account, &turned, NOW).unwrap();
        write(&mut store, BOX, &["by the new one"], NOW);
        drop(store);
        let mut store = open(&dir, 3, NOW);
        assert_eq!((store.account(), store.members().len()), (Some(account), 4));
        let again = store.join(account, &records, NOW);
        assert!(matches!(again, Err(JoinError::HasAccount)));
    }
}

#[test]
fn a_bad_welcome_leaves_a_device_that_can_still_join() {
    let dir = TempDir::new();
    let mut store = open(&dir, 3, NOW);
    let (account, good) = account(true);
    // Records that name somebody else alone, none at all, or some of them.
    let (other, without) = self::account(false);
    let refused = store.join(other, &without, NOW);
    assert!(matches!(refused, Err(JoinError::NotMember)), "{refused:?}");
    let mut store = untouched(&dir, store);
    let refused = store.join(account, &[], NOW);
    assert!(matches!(refused, Err(JoinError::NotMember)), "{refused:?}");
    let mut store = untouched(&dir, store);
    for left_out in 0..good.len() {
        let mut part = good.clone();
        part.remove(left_out);
        assert!(store.join(account, &part, NOW).is_err(), "{left_out}");
        store = untouched(&dir, store);
    }
    // Of another account; and good ones with one that is damaged after them.
    let refused = store.join(other, &good, NOW);
    assert!(
        matches!(refused, Err(JoinError::Record(IngestError::OtherAccount))),
        "{refused:?}"
    );
    let mut store = untouched(&dir, store);
    let mut damaged = good.clone();
    let mut last = good.last().unwrap().clone();
    *last.last_mut().unwrap() ^= 1;
    damaged.push(last);
    assert!(store.join(account, &damaged, NOW).is_err());
    let mut store = untouched(&dir, store);
    let many = vec![good[0].clone(); 1153];
    let refused = store.join(account, &many, NOW);
    assert!(matches!(refused, Err(JoinError::TooMany(1153))));
    let mut store = untouched(&dir, store);
    store.join(account, &good, NOW).unwrap();
    assert_eq!(store.members().len(), 4);
}

#[test]
fn only_records_of_the_account_are_taken() {
    let dir_a = TempDir::new();
    let mut a = open(&dir_a, 1, NOW);
    let account = a.create_account("laptop", NOW).unwrap();
    add(&mut a, 3);
    a.seal_all(NOW).unwrap();
    let head = a
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == DocId::Node)
        .unwrap();
    let mut envelopes = records(&a);
    envelopes.extend(a.range(&head.chain, 1, 1, usize::MAX).unwrap());
    let dir = TempDir::new();
    let mut store = open(&dir, 3, NOW);
    let refused = store.join(account, &envelopes, NOW);
    assert!(matches!(refused, Err(JoinError::NoRecord(DocId::Node))));
    untouched(&dir, store);
}

#[test]
fn a_full_disk_in_the_middle_leaves_no_account() {
    // More records than the empty tables have room for.
    let dir_a = TempDir::new();
    let mut a = open(&dir_a, 1, NOW);
    let account = a.create_account("laptop", NOW).unwrap();
    (3..40).for_each(|no| add(&mut a, no));
    let good = records(&a);
    let size = |dir: &TempDir| {
        let file = dir.path().join("store.db");
        std::fs::metadata(file).unwrap().len()
    };
    let mut joined = 0;
    for pages in 0..16 {
        let dir = TempDir::new();
        let mut store = open(&dir, 3, NOW);
        store.limit_size(size(&dir) + pages * 4096).unwrap();
        match store.join(account, &good, NOW) {
            Ok(()) => joined += 1,
            Err(_) => {
                let mut store = untouched(&dir, store);
                store.join(account, &good, NOW).unwrap();
            }
        }
    }
    assert!((1..16).contains(&joined), "{joined}");
}
