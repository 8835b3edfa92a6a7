//! Thinning on a disk that fails at each step, on one that flips bits, and in a
//! process that is killed: nothing goes early, nothing goes without its tombstone and
//! its summary, and what is due goes in the end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::aged::*;
use crate::common::*;
use crate::disk::{Disk, Fault, Left};
use crate::ledger::{copy, sound};
use bailey_docs_store::{Reader, Slice, Store, Urgency};

/// Each so many-th operation of the disk fails in an ordinary run;
/// `BAILEY_STRIDE` takes its place.
const STRIDE: usize = 5;
/// Operations of the disk in one run, at most.
const MOST: u64 = 5_000;
/// Days of which there is something when a run begins.
const BEFORE: [u64; 4] = [0, 1, 2, 9];
/// The last day of a run.
const LAST: u64 = 12;

/// What a node does in a few days: segments and epochs whose window is over go,
/// entries come, keys are forgotten, the log is emptied. Goes on whatever fails.
fn work(store: &mut Store, aged: &mut Aged) -> Vec<Slice> {
    let mut done = aged.thin(store, 10 * DAY);
    for no in 0..3 {
        aged.append(store, 10 * DAY + no);
    }
    aged.commit(store, false);
    drop(store.seal_all(at(10 * DAY)));
    aged.look(store);
    aged.append(store, 10 * DAY + 5);
    aged.commit(store, true);
    done.extend(aged.thin(store, 11 * DAY));
    aged.append(store, LAST * DAY);
    aged.commit(store, false);
    drop(store.seal_all(at(LAST * DAY)));
    aged.look(store);
    done.extend(aged.thin(store, LAST * DAY));
    if let Ok(checkpointer) = store.checkpointer() {
        drop(checkpointer.truncate());
    }
    aged.append(store, LAST * DAY + 1);
    aged.commit(store, true);
    done
}

/// That the store opens, holds what it must, goes on, and thins all that is due.
fn goes_on(dir: &TempDir, aged: &mut Aged, power_cut: bool) {
    let mut store = try_open(dir, LAST * DAY + HOUR).expect("it opens");
    aged.holds(dir, &store, power_cut);
    aged.append(&mut store, LAST * DAY + HOUR);
    assert!(aged.commit(&mut store, true));
    store.seal_all(at(LAST * DAY + HOUR)).unwrap();
    aged.thin(&mut store, 20 * DAY);
    let (all, ..) = aged.counts();
    assert!(aged.commit(&mut store, true));
    assert_eq!(
        aged.holds(dir, &store, true),
        all as u64,
        "all of it is due"
    );
}

type After<'a> = &'a mut dyn FnMut(u64, &TempDir, &Disk, Option<Store>, &mut Aged);

/// Runs the work again and again, with another operation of the disk that fails.
fn at_each_step(fault: Fault, after: After<'_>) {
    let stride = std::env::var("BAILEY_STRIDE").ok();
    let stride = stride.and_then(|text| text.parse().ok()).unwrap_or(STRIDE);
    let (begun, known) = begun(&BEFORE, 3);
    for step in (0..MOST).step_by(stride) {
        let (dir, mut aged) = (copy(&begun), known.clone());
        let disk = Disk::under(dir.path());
        disk.fail(step, fault);
        let mut done = Vec::new();
        let store = try_open(&dir, 10 * DAY).map(|mut store| {
            done = work(&mut store, &mut aged);
            store
        });
        let hit = disk.hit();
        after(step, &dir, &disk, store, &mut aged);
        if !hit {
            let count = |is: fn(&Slice) -> bool| done.iter().filter(|it| is(it)).count();
            let dropped = count(|it| matches!(it, Slice::Dropped { .. }));
            let forgot = count(|it| matches!(it, Slice::Forgot(_)));
            assert!(
                step > 60 && dropped >= 4 && forgot > 0,
                "the control: {step} operations, {done:?}"
            );
            return;
        }
    }
    panic!("more than {MOST} operations");
}

#[test]
fn a_power_cut_at_any_step_of_thinning_loses_nothing_early() {
    at_each_step(Fault::Cut, &mut |step, dir, disk, store, aged| {
        drop(store);
        disk.power_cut(match step % 3 {
            0 => Left::Synced,
            _ => Left::Some(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        });
        // And again while it thins what is left.
        disk.fail(step % 37, Fault::Cut);
        if let Some(mut store) = try_open(dir, LAST * DAY) {
            aged.holds(dir, &store, true);
            aged.thin(&mut store, LAST * DAY);
        }
        disk.power_cut(Left::Some(step + 1));
        goes_on(dir, aged, true);
    });
}

#[test]
fn an_end_of_the_process_at_any_step_of_thinning_loses_nothing_early() {
    at_each_step(Fault::Cut, &mut |_, dir, disk, store, aged| {
        drop(store);
        disk.process_ended();
        goes_on(dir, aged, false);
    });
}

#[test]
fn a_write_or_sync_that_fails_or_is_torn_while_thinning_loses_nothing_early() {
    for fault in [Fault::Io, Fault::Torn] {
        at_each_step(fault, &mut |step, dir, disk, store, aged| {
            disk.heal();
            if let Some(mut store) = store {
                aged.append(&mut store, LAST * DAY + 2);
                assert!(aged.commit(&mut store, true), "step {step}");
                aged.thin(&mut store, LAST * DAY + 2);
            }
            disk.power_cut(match step % 2 {
                0 => Left::Synced,
                _ => Left::Some(step + 7),
            });
            goes_on(dir, aged, true);
        });
    }
}

#[test]
fn a_disk_that_fills_while_thinning_loses_nothing_early_and_is_gone_on_with() {
    at_each_step(Fault::Full, &mut |step, dir, disk, store, aged| {
        disk.heal();
        if let Some(mut store) = store {
            aged.append(&mut store, LAST * DAY + 2);
            assert!(aged.commit(&mut store, true), "step {step}");
            aged.thin(&mut store, LAST * DAY + 2);
        }
        goes_on(dir, aged, false);
    });
}

/// Stores with one flipped bit that are thinned.
const FLIPS: u64 = 400;

/// The numbers that read, with what they say; `None` where reading is refused.
fn readable(dir: &TempDir) -> Option<BTreeMap<u64, String>> {
    let mut reader = Reader::open(dir.path(), keys(1)).ok()?;
    let entries = reader.read(BOX, None).ok()?.entries;
    let all = entries.into_iter();
    Some(all.map(|(_, it)| (it.no, text_of(&it.event))).collect())
}

#[test]
fn thinning_a_store_of_which_a_bit_is_flipped_takes_nothing_that_is_not_due() {
    let (begun, _) = begun(&BEFORE, 3);
    let whole = std::fs::read(begun.path().join("store.db")).unwrap();
    let mut random = Random(7);
    // Those of the ninth day.
    let not_due = 10..=12_u64;
    let (mut thinned, mut harmed) = (0, 0);
    for _ in 0..FLIPS {
        let dir = copy(&begun);
        let mut bytes = whole.clone();
        let (at_byte, bit) = (random.below(bytes.len()), random.below(8));
        bytes[at_byte] ^= 1 << bit;
        std::fs::write(dir.path().join("store.db"), &bytes).unwrap();
        let Some(before) = readable(&dir) else {
            harmed += 1;
            continue;
        };
        harmed += u32::from(before.len() < 12);
        if let Some(mut store) = try_open(&dir, 9 * DAY + HOUR) {
            let done = Aged::default().thin(&mut store, 9 * DAY + HOUR);
            thinned += u32::from(!done.is_empty());
        }
        let after = readable(&dir).unwrap_or_default();
        for no in not_due.clone() {
            assert!(
                after.get(&no) == before.get(&no),
                "entry {no}, by bit {bit} of byte {at_byte}: {before:?}, {after:?}"
            );
        }
    }
    assert!(
        thinned > 100 && harmed > 10,
        "the control: {thinned} thinned, {harmed} harmed"
    );
}

/// Children that are killed in an ordinary run; `BAILEY_KILLS` takes its place.
const KILLS: u64 = 150;
/// How many milliseconds pass for the child in one: a day in 48.
const FAST: u64 = 30 * 60_000;

/// The child of the test below: writes and thins for ever, in a time that runs fast.
fn thin_for_ever(dir: &str) {
    let begun = Instant::now();
    let base: u64 = std::env::var("BAILEY_TEST_TIME").unwrap().parse().unwrap();
    let clock = || base + u64::try_from(begun.elapsed().as_micros()).unwrap() * FAST / 1000;
    let dir = std::path::Path::new(dir);
    let entropy = Box::new(bailey_docs_store::OsEntropy);
    let mut store = Store::open(dir, keys(1), at(clock()), entropy).unwrap();
    store.set_windows(WINDOW, WINDOW);
    if store.account().is_none() {
        store.create_account("child", at(clock())).unwrap();
    }
    for round in 0_u64.. {
        let doc = other(u8::try_from(round % 3).unwrap());
        let now = clock();
        let mut append = || {
            store
                .append(doc, gap("x"), at(now), Urgency::Normal)
                .unwrap()
        };
        let numbers = [append(), append()];
        store.commit(round % 8 == 0).unwrap();
        for no in numbers {
            println!("\nack {} {no} {now}", round % 3);
        }
        store.seal(at(clock())).unwrap();
        let now = clock();
        println!("\nthin 0 0 {now}");
        while !matches!(store.thin(&moment(now)).unwrap(), Slice::Rest | Slice::Busy) {}
    }
}

/// What an outside witness heard of the children.
#[derive(Default)]
struct Heard {
    /// When each number of each box was acknowledged, by its own time.
    acked: [BTreeMap<u64, u64>; 3],
    /// The latest time at which was thinned.
    thinned_at: u64,
}

impl Heard {
    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let what = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let (doc, no, ms) = (number()?, number()?, number()?);
        match what {
            "ack" => {
                let of_doc = self.acked.get_mut(usize::try_from(doc).ok()?)?;
                of_doc.insert(no, ms);
            }
            "thin" => self.thinned_at = self.thinned_at.max(ms),
            _ => {}
        }
        Some(())
    }

    /// Nothing that was acknowledged is gone but what is due, which a tombstone
    /// stands for. Gives how many are gone in all.
    fn check(&self, dir: &TempDir) -> u64 {
        sound(dir);
        let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
        let mut all = 0;
        for (doc, acked) in (0_u8..).zip(&self.acked) {
            let gone = reader.gone(other(doc), keys(1).id()).unwrap();
            let gone = gone.map_or(0, |gone| gone.last_no);
            let entries = read(dir, 1, other(doc));
            let numbers = entries.iter().map(|(_, entry)| entry.no);
            assert!(
                numbers.zip(gone + 1..).all(|(no, next)| no == next),
                "a hole"
            );
            let end = gone + entries.len() as u64;
            let last = acked.keys().next_back().copied().unwrap_or(0);
            assert!(end >= last, "an acknowledged entry is gone");
            let window = u64::from(WINDOW) * HOUR;
            let early = acked.range(..=gone);
            let early = early.filter(|(_, ms)| **ms + window > self.thinned_at);
            assert_eq!(early.count(), 0, "gone early");
            all += gone;
        }
        all
    }
}

#[test]
fn what_a_process_thins_outlives_kill_9() {
    // This test started again is the child that is killed.
    if let Ok(dir) = std::env::var("BAILEY_TEST_DIR") {
        return thin_for_ever(&dir);
    }
    let rounds = std::env::var("BAILEY_KILLS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let (dir, begun) = (TempDir::new(), Instant::now());
    let heard = Arc::new(Mutex::new(Heard::default()));
    for round in 0..rounds {
        let base = u64::try_from(begun.elapsed().as_millis()).unwrap() * FAST;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "thinning::what_a_process_thins_outlives_kill_9"])
            .args(["--nocapture", "--test-threads=1"])
            .env("BAILEY_TEST_DIR", dir.path())
            .env("BAILEY_TEST_TIME", base.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (first, running) = std::sync::mpsc::channel();
        let witness = Arc::clone(&heard);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if witness.lock().unwrap().line(&line).is_some() {
                    // Nobody waits for the later ones.
                    let _ = first.send(());
                }
            }
        });
        if round % 8 != 7 {
            running.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        std::thread::sleep(Duration::from_micros(round * 7_919 % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        if round % 25 == 24 {
            heard.lock().unwrap().check(&dir);
        }
    }
    let gone = heard.lock().unwrap().check(&dir);
    assert!(gone > 100, "the control: {gone} are thinned");
}
