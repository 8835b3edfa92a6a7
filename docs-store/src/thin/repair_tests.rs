//! Repairs of a store that was thinned.

use super::tests::*;
use super::*;
use crate::{OsEntropy, Reader, repair};

/// Tombstones' entries and faults, over all chains.
fn looked(dir: &std::path::Path) -> (u64, u64) {
    let mut reader = Reader::open(dir, keys(1)).unwrap();
    let mut sum = (0, 0);
    for chain in reader.chains().unwrap() {
        let checked = reader.check_chain(&chain).unwrap();
        sum.0 += checked.thinned;
        sum.1 += checked.faulty;
    }
    sum
}

fn sql(dir: &std::path::Path, sql: &str) -> usize {
    let db = Connection::open(dir.join("store.db")).unwrap();
    db.execute(sql, []).unwrap()
}

#[test]
fn a_repair_keeps_tombstones_and_calls_nothing_lost_that_was_thinned() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A, B], 0, 40);
    assert!(dropped(&thin(&mut store, 40 * DAY)) > 4);
    // One of them has nothing left but its tombstone.
    days(&mut store, &[B], 40, 40);
    thin(&mut store, 80 * DAY);
    drop(store);
    let before = looked(dir.path());
    assert!(before.0 > 0);
    assert_eq!(before.1, 0);
    // Something else is damaged: a repair makes the database anew.
    assert!(sql(dir.path(), "UPDATE spans SET last_no = last_no + 1") > 0);
    let repaired = repair(dir.path(), &keys(1), at(80 * DAY), &mut OsEntropy).unwrap();
    assert!(repaired.kept.is_some());
    assert_eq!((repaired.losses, &repaired.lost), (0, &Vec::new()));
    // As when a node starts.
    drop(open(dir.path(), 1, 80 * DAY));
    assert_eq!(looked(dir.path()), before);
    let mut store = open(dir.path(), 1, 80 * DAY);
    days(&mut store, &[A, B], 80, 1);
    drop(store);
    assert_eq!(looked(dir.path()), before);
}

#[test]
fn a_tombstone_goes_to_the_chain_that_it_names_where_the_table_of_chains_is_gone() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A, B], 0, 40);
    thin(&mut store, 40 * DAY);
    drop(store);
    let before = looked(dir.path());
    assert!(sql(dir.path(), "DELETE FROM chains") > 0);
    repair(dir.path(), &keys(1), at(40 * DAY), &mut OsEntropy).unwrap();
    drop(open(dir.path(), 1, 40 * DAY));
    assert_eq!(looked(dir.path()), before);
}
