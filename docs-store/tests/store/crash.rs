//! The power goes, the process ends or the disk fails at each step: what was
//! acknowledged is there, what others have seen is there, and nothing else.

use crate::common::*;
use crate::disk::{Disk, Fault, Left};
use crate::ledger::{Ledger, copy, try_open};
use bailey_docs_store::{DocId, Store, Urgency};
use bailey_model::BoxId;

const OTHER: DocId = DocId::Box(BoxId([8; 16]));
/// Entries of a store whose open segment takes one batch more.
const NEARLY_FULL: usize = 4040;

/// A closed store of one device with so many entries, and what it holds.
fn begun(entries: usize) -> (TempDir, Ledger) {
    let (dir, mut store) = laptop();
    let mut ledger = Ledger::default();
    for no in 0..entries {
        let text = format!("before {no}");
        assert!(ledger.append(&mut store, BOX, &text, NOW, Urgency::Normal));
    }
    assert!(ledger.commit(&mut store, true));
    store.seal_all(NOW).unwrap();
    assert!(ledger.commit(&mut store, true));
    drop(store);
    (dir, ledger)
}

/// What a node does with a store within a few seconds: entries acknowledged with
/// and without a sync, a batch, a segment that closes, a checkpoint. Goes on
/// whatever fails, as a node does.
fn work(store: &mut Store, ledger: &mut Ledger) {
    let mut now = 0;
    let mut some = |store: &mut Store, ledger: &mut Ledger, doc, count: u64, durable| {
        for no in 0..count {
            now += 1;
            ledger.append(store, doc, &format!("{now} {no}"), at(now), Urgency::Normal);
        }
        ledger.commit(store, durable)
    };
    some(store, ledger, BOX, 10, false);
    some(store, ledger, OTHER, 3, true);
    // Where the segment is nearly full these close it.
    some(store, ledger, BOX, 40, false);
    drop(store.seal_all(at(1_000)));
    ledger.look(store);
    // And this is a day later, which closes it too.
    let day = 25 * 3_600_000;
    ledger.append(store, BOX, "next day", at(day), Urgency::Normal);
    ledger.commit(store, false);
    drop(store.seal_all(at(day)));
    some(store, ledger, BOX, 2, true);
    if let Ok(checkpointer) = store.checkpointer() {
        drop(checkpointer.run());
    }
    some(store, ledger, BOX, 3, false);
    some(store, ledger, OTHER, 60, false);
    drop(store.seal_all(at(2_000)));
    ledger.look(store);
    some(store, ledger, BOX, 1, true);
    some(store, ledger, BOX, 1, false);
}

/// Steps until a run is not hit any more, at most.
const MOST: u64 = 5_000;

/// What is looked at after a run: its step, its folder, its disk, the store unless
/// it could not be opened, and what is known.
type After<'a> = &'a mut dyn FnMut(u64, &TempDir, &Disk, Option<Store>, &mut Ledger);

/// Runs the work once for each operation of the disk, or each `stride`-th, which
/// fails.
fn at_each_step(entries: usize, stride: usize, fault: Fault, after: After<'_>) {
    let (begun, known) = begun(entries);
    for step in (0..MOST).step_by(stride) {
        let (dir, mut ledger) = (copy(&begun), known.clone());
        let disk = Disk::under(dir.path());
        disk.fail(step, fault);
        let store = try_open(&dir, at(0)).map(|mut store| {
            work(&mut store, &mut ledger);
            store
        });
        let hit = disk.hit();
        after(step, &dir, &disk, store, &mut ledger);
        if !hit {
            assert!(step > 40, "the control: {step} operations");
            return;
        }
    }
    panic!("more than {MOST} operations");
}

/// That the store opens, holds what it must, and goes on.
fn goes_on(dir: &TempDir, ledger: &mut Ledger, power_cut: bool) {
    let mut store = open(dir, 1, at(10_000));
    ledger.holds(dir, &store, power_cut);
    for doc in [BOX, OTHER] {
        assert!(ledger.append(&mut store, doc, "on", at(10_000), Urgency::Normal));
    }
    assert!(ledger.commit(&mut store, true));
    store.seal_all(at(10_000)).unwrap();
    assert!(ledger.commit(&mut store, true));
    ledger.holds(dir, &store, true);
}

fn cut(step: u64, dir: &TempDir, disk: &Disk, store: Option<Store>, ledger: &mut Ledger) {
    drop(store);
    disk.power_cut(match step % 4 {
        0 => Left::Synced,
        _ => Left::Some(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    });
    // And again while it is put in order.
    disk.fail(step % 29, Fault::Cut);
    if let Some(store) = try_open(dir, at(5_000)) {
        ledger.holds(dir, &store, true);
    }
    disk.power_cut(Left::Some(step + 1));
    goes_on(dir, ledger, true);
}

#[test]
fn a_power_cut_at_any_step_loses_nothing_promised() {
    at_each_step(20, 1, Fault::Cut, &mut cut);
}

#[test]
fn a_power_cut_while_a_full_segment_is_closed_loses_nothing_promised() {
    at_each_step(NEARLY_FULL, 17, Fault::Cut, &mut cut);
}

#[test]
fn an_end_of_the_process_at_any_step_loses_nothing_acknowledged() {
    at_each_step(20, 1, Fault::Cut, &mut |step, dir, disk, store, ledger| {
        drop(store);
        disk.process_ended();
        disk.fail(step % 31, Fault::Cut);
        drop(try_open(dir, at(5_000)));
        disk.process_ended();
        goes_on(dir, ledger, false);
    });
}

#[test]
fn a_write_or_sync_that_fails_once_is_refused_and_no_promise_rests_on_it() {
    for fault in [Fault::Io, Fault::Torn] {
        at_each_step(20, 1, fault, &mut |step, dir, disk, store, ledger| {
            disk.heal();
            // The same store goes on.
            if let Some(mut store) = store {
                assert!(ledger.append(&mut store, BOX, "after", at(3_000), Urgency::Normal));
                assert!(ledger.commit(&mut store, true), "step {step}");
                drop(store.seal_all(at(3_000)));
                ledger.look(&store);
            }
            // What a failed sync left in doubt may be gone with the power.
            disk.power_cut(match step % 2 {
                0 => Left::Synced,
                _ => Left::Some(step + 7),
            });
            goes_on(dir, ledger, true);
        });
    }
}

#[test]
fn a_disk_that_fills_at_any_step_is_gone_on_with_in_place() {
    at_each_step(20, 1, Fault::Full, &mut |step, dir, disk, store, ledger| {
        disk.heal();
        if let Some(mut store) = store {
            assert!(ledger.append(&mut store, BOX, "room", at(3_000), Urgency::Normal));
            assert!(ledger.commit(&mut store, true), "step {step}");
            store.seal_all(at(3_000)).unwrap();
            ledger.look(&store);
        }
        goes_on(dir, ledger, false);
    });
}

/// The kernel takes the pages of a failed sync for written: the next sync succeeds
/// and they are gone with the power.
#[test]
fn what_a_failed_sync_left_is_made_good_before_the_next_promise() {
    let (begun, known) = begun(5);
    let mut refused = 0;
    for step in 0..40 {
        let (dir, mut ledger) = (copy(&begun), known.clone());
        let disk = Disk::under(dir.path());
        let mut store = open(&dir, 1, at(0));
        ledger.append(&mut store, BOX, "unsynced", at(1), Urgency::Normal);
        assert!(ledger.commit(&mut store, false));
        disk.fail(step, Fault::Io);
        ledger.append(&mut store, BOX, "refused", at(2), Urgency::Normal);
        refused += u32::from(!ledger.commit(&mut store, true));
        let hit = disk.heal();
        ledger.append(&mut store, BOX, "promised", at(3), Urgency::Normal);
        assert!(ledger.commit(&mut store, true));
        disk.fail(0, Fault::Cut);
        drop(store);
        disk.power_cut(Left::Synced);
        goes_on(&dir, &mut ledger, true);
        if !hit {
            assert!(refused > 2, "the control: {refused}");
            return;
        }
    }
    panic!("too many steps");
}
