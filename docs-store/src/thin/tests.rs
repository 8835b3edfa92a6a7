use std::path::Path;

use bailey_envelope::{DeviceKeys, Tombstone};
use bailey_model::{
    AddrClass, Direction, EndReason, FiveTuple, FlowEnded, FlowId, FlowOpened, Granted, Host,
    HostFrom, Proto,
};
use proptest::prelude::*;

use super::*;
use crate::testing::TempDir;
use crate::{IngestError, OsEntropy, Outcome, QuarantineReason, Reader, Role};

const NOW: u64 = 1_796_000_000_000;
pub(super) const DAY: u64 = 24 * HOUR_MS;
pub(super) const A: BoxId = BoxId([9; 16]);
pub(super) const B: BoxId = BoxId([8; 16]);

pub(super) fn keys(no: u8) -> DeviceKeys {
    DeviceKeys::generate([no; 64])
}

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp(NOW + ms)
}

/// A machine that is never off, and whose clock is right.
fn moment(ms: u64) -> Moment {
    Moment {
        wall: at(ms),
        boot: [1; 16],
        up_ms: ms,
    }
}

pub(super) fn open(dir: &Path, no: u8, ms: u64) -> Store {
    let mut store = Store::open(dir, keys(no), at(ms), Box::new(OsEntropy)).unwrap();
    store.look_at_clock(&moment(ms)).unwrap();
    store
}

pub(super) fn laptop() -> (TempDir, Store) {
    let dir = TempDir::new();
    let mut store = open(dir.path(), 1, 0);
    store.create_account("laptop", at(0)).unwrap();
    (dir, store)
}

fn opened(flow: u64) -> Event {
    Event::FlowOpened(FlowOpened {
        flow: FlowId(flow),
        direction: Direction::Out,
        tuple: FiveTuple {
            proto: Proto::Tcp,
            src: ([192, 0, 0, 2], 4000).into(),
            dst: ([93, 184, 216, 34], 443).into(),
        },
        host: Host::new("shop.example"),
        host_from: HostFrom::Dns,
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    })
}

fn ended(flow: u64) -> Event {
    Event::FlowEnded(FlowEnded {
        flow: FlowId(flow),
        bytes_out: 10,
        bytes_in: 20,
        duration_us: 1,
        end: EndReason::Closed,
        outer_src: None,
    })
}

fn write(store: &mut Store, box_id: BoxId, ms: u64, events: &[Event]) {
    let doc = DocId::Box(box_id);
    for event in events {
        store
            .append(doc, event.clone(), at(ms), Urgency::Normal)
            .unwrap();
    }
    store.commit(false).unwrap();
    store.seal_all(at(ms)).unwrap();
}

/// A flow a day of each box, from day `from` on.
pub(super) fn days(store: &mut Store, boxes: &[BoxId], from: u64, count: u64) {
    for day in from..from + count {
        for box_id in boxes {
            write(
                store,
                *box_id,
                day * DAY,
                &[opened(day + 1), ended(day + 1)],
            );
        }
    }
}

pub(super) fn thin(store: &mut Store, ms: u64) -> Vec<Slice> {
    let mut done = Vec::new();
    loop {
        match store.thin(&moment(ms)).unwrap() {
            Slice::Rest => return done,
            slice => done.push(slice),
        }
        assert!(done.len() < 10_000, "thinning does not end");
    }
}

pub(super) fn dropped(slices: &[Slice]) -> usize {
    let is = |slice: &&Slice| matches!(slice, Slice::Dropped { .. });
    slices.iter().filter(is).count()
}

fn entries(dir: &TempDir, no: u8, box_id: BoxId) -> Vec<u64> {
    let mut reader = Reader::open(dir.path(), keys(no)).unwrap();
    let reading = reader.read(DocId::Box(box_id), None).unwrap();
    assert_eq!((reading.aside.len(), reading.waiting.len()), (0, 0));
    reading.entries.iter().map(|(_, entry)| entry.no).collect()
}

/// Nothing is amiss; gives how many entries are thinned by tombstones that hold.
fn check(dir: &TempDir, no: u8) -> u64 {
    let mut reader = Reader::open(dir.path(), keys(no)).unwrap();
    let mut thinned = 0;
    for id in reader.chains().unwrap() {
        let checked = reader.check_chain(&id).unwrap();
        assert_eq!(checked.faults, [], "{:?}", id);
        thinned += checked.thinned;
    }
    assert_eq!(reader.check_rest().unwrap().faults, Vec::<String>::new());
    thinned
}

fn kept(dir: &TempDir, no: u8, box_id: BoxId) -> Vec<Thinned> {
    let mut reader = Reader::open(dir.path(), keys(no)).unwrap();
    let writer = keys(1).id();
    reader.kept_days(box_id, writer, Timestamp(0)).unwrap()
}

/// Everything `from` has and `to` lacks, as two sessions would, until nothing goes
/// over; how many rounds that took, and what was refused.
fn sync(from: &Store, to: &mut Store, ms: u64) -> (usize, Vec<IngestError>) {
    let mut refused = Vec::new();
    for round in 1..100 {
        let mut moved = false;
        for head in from.heads() {
            let have = |to: &Store| to.chains.get(&head.chain).map_or(0, |chain| chain.seq);
            let mut barren = false;
            while have(to) < head.seq && !barren {
                let before = have(to);
                for bytes in from.range(&head.chain, before + 1, 16, 64 * 1024).unwrap() {
                    if let Err(error) = to.ingest(&bytes, at(ms)) {
                        refused.push(error);
                    }
                }
                while !to.open_waiting(at(ms)).unwrap().is_empty() {}
                barren = have(to) == before;
                moved |= !barren;
            }
        }
        if !moved {
            return (round, refused);
        }
    }
    panic!("it does not end");
}

fn pair(from: &mut Store, to: &mut Store, no: u8, ms: u64) {
    let offer = from.offer_add(keys(no).public(), Role::Full).unwrap();
    let signed = offer.sign(&keys(no)).unwrap();
    from.complete_add(&offer, signed, at(ms)).unwrap();
    let heads = from.heads().into_iter();
    let records: Vec<Vec<u8>> = heads
        .filter(|head| head.chain.doc == DocId::Account)
        .flat_map(|head| from.range(&head.chain, 1, usize::MAX, usize::MAX).unwrap())
        .collect();
    to.join(from.account().unwrap(), &records, at(ms)).unwrap();
}

fn two(ms: u64) -> (TempDir, Store, TempDir, Store) {
    let (dir, mut store) = laptop();
    let other = TempDir::new();
    let mut phone = open(other.path(), 2, ms);
    pair(&mut store, &mut phone, 2, ms);
    (dir, store, other, phone)
}

#[test]
fn a_segment_past_its_window_is_gone_and_what_is_left_of_it_stays() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A], 0, 40);
    assert_eq!(entries(&dir, 1, A).len(), 80);
    // Day 9 is 30 days old at the end of day 39.
    let done = thin(&mut store, 39 * DAY + 1);
    assert_eq!(dropped(&done), 10);
    store.seal_all(at(39 * DAY + 1)).unwrap();
    assert_eq!(entries(&dir, 1, A), (21..=80).collect::<Vec<_>>());
    assert_eq!(check(&dir, 1), 20);
    let kept = kept(&dir, 1, A);
    assert_eq!(kept.len(), 10);
    let first = &kept[0].days[0];
    assert_eq!(u64::from(first.day), NOW / DAY);
    assert_eq!(first.hosts[0].name, "shop.example");
    assert_eq!((first.hosts[0].flows, first.hosts[0].bytes_in), (1, 20));
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    let gone = reader.gone(DocId::Box(A), keys(1).id()).unwrap().unwrap();
    assert_eq!((gone.entries, gone.last_no), (20, 20));
    assert_eq!((gone.from, gone.to), (at(0), at(9 * DAY)));
    // A later start goes on where this one was.
    drop(store);
    let mut store = open(dir.path(), 1, 40 * DAY);
    days(&mut store, &[A], 40, 1);
    assert_eq!(entries(&dir, 1, A).last(), Some(&82));
    assert_eq!(check(&dir, 1), 20);
}

#[test]
fn nothing_goes_before_its_window_is_over() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A], 0, 1);
    assert_eq!(thin(&mut store, 30 * DAY - 1), []);
    assert_eq!(entries(&dir, 1, A), [1, 2]);
    assert_eq!(dropped(&thin(&mut store, 30 * DAY)), 1);
    assert_eq!(entries(&dir, 1, A), []);
}

/// Those of a store that others are told of.
fn told(store: &Store) -> Vec<Head> {
    let spent = store.spent_heads().unwrap();
    let heads = store.heads().into_iter();
    heads.filter(|head| !spent.contains(head)).collect()
}

#[test]
fn a_chain_of_which_a_tombstone_is_left_is_over_and_a_device_that_is_not_told_reads_the_same() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A], 0, 1);
    drop(store);
    let mut store = open(dir.path(), 1, DAY);
    days(&mut store, &[B], 1, 1);
    thin(&mut store, 31 * DAY + 1);
    store.seal_all(at(31 * DAY + 1)).unwrap();
    assert_eq!((entries(&dir, 1, A), entries(&dir, 1, B)), (vec![], vec![]));
    assert_eq!(store.spent_heads().unwrap(), [], "it is too early");
    thin(&mut store, 40 * DAY);
    let over = |of: BoxId| {
        let spent = store.spent_heads().unwrap();
        spent.iter().any(|head| head.chain.doc == DocId::Box(of))
    };
    assert_eq!(
        (over(A), over(B)),
        (true, false),
        "one of this start may grow"
    );
    for head in store.spent_heads().unwrap() {
        assert_ne!(head.chain.doc, DocId::Account);
        let left = store.range(&head.chain, 1, 99, usize::MAX).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(Tombstone::decode(&left[0]).unwrap().last_seq, head.seq);
    }
    // A device that joins now.
    let other = TempDir::new();
    let mut new = open(other.path(), 2, 40 * DAY);
    pair(&mut store, &mut new, 2, 40 * DAY);
    write(&mut store, A, 40 * DAY, &[opened(7)]);
    store.seal_all(at(40 * DAY)).unwrap();
    for head in told(&store) {
        for bytes in store.range(&head.chain, 1, 999, usize::MAX).unwrap() {
            new.ingest(&bytes, at(40 * DAY)).unwrap();
        }
    }
    while !new.open_waiting(at(40 * DAY)).unwrap().is_empty() {}
    let over = store.spent_heads().unwrap();
    let known = |head: &Head| new.chains.contains_key(&head.chain);
    assert!(!over.is_empty() && !over.iter().any(known));
    assert_eq!(entries(&dir, 1, A), [3]);
    assert_eq!(entries(&other, 2, A), [3]);
    assert_eq!(kept(&other, 2, A), kept(&dir, 1, A));
    assert!(!kept(&other, 2, A).is_empty());
    check(&other, 2);
    check(&dir, 1);
}

#[test]
fn each_box_has_its_window_and_thinning_one_leaves_no_hole_in_another() {
    let (dir, mut store) = laptop();
    store.set_windows(60 * 24, 60 * 24);
    store.set_box_window(A, 48);
    days(&mut store, &[A, B], 0, 20);
    thin(&mut store, 20 * DAY);
    assert_eq!(entries(&dir, 1, A), [39, 40]);
    assert_eq!(entries(&dir, 1, B).len(), 40);
    assert_eq!(check(&dir, 1), 38);
    // What is written keeps the window that it was written with.
    drop(store);
    let mut store = open(dir.path(), 1, 20 * DAY);
    store.set_windows(24, 24);
    thin(&mut store, 40 * DAY);
    assert_eq!(entries(&dir, 1, B).len(), 40);
}

#[test]
fn a_segment_closes_with_4096_entries_or_with_its_day() {
    let (dir, mut store) = laptop();
    let midnight = DAY - NOW % DAY;
    let many: Vec<Event> = (1..=5000).map(opened).collect();
    write(&mut store, A, 0, &many);
    write(&mut store, B, 0, &[opened(1)]);
    write(&mut store, B, midnight - 1, &[opened(2)]);
    write(&mut store, B, midnight, &[opened(3)]);
    // What waits together is of two days all the same.
    for (ms, event) in [(midnight + DAY - 1, opened(4)), (midnight + DAY, opened(5))] {
        let doc = DocId::Box(B);
        store.append(doc, event, at(ms), Urgency::Normal).unwrap();
    }
    store.commit(false).unwrap();
    store.seal_all(at(midnight + DAY)).unwrap();
    let db = Connection::open(dir.path().join("store.db")).unwrap();
    let mut statement = db
        .prepare(
            "SELECT p.last_no - p.first_no + 1 FROM spans p JOIN chains c ON c.id = p.chain \
             WHERE c.doc = ?1 ORDER BY p.segment",
        )
        .unwrap();
    let mut sizes = |box_id: BoxId| -> Vec<u64> {
        let doc = DocId::Box(box_id).to_bytes();
        let rows = statement
            .query_map([doc], |row| row.get::<_, i64>(0))
            .unwrap();
        rows.map(|size| u64::try_from(size.unwrap()).unwrap())
            .collect()
    };
    let of_a = sizes(A);
    assert!(
        of_a.iter().all(|size| *size <= 4096) && of_a[0] > 4000,
        "{of_a:?}"
    );
    assert_eq!(of_a.iter().sum::<u64>(), 5000);
    assert_eq!(sizes(B), [2, 1, 1, 1]);
    // One that nothing comes to any more is closed by thinning.
    assert_eq!(dropped(&thin(&mut store, 34 * DAY)), 6);
    assert_eq!(check(&dir, 1), 5005);
}

/// Entries of both boxes, summaries, thinned entries, and a count of keys.
type SummedUp = (Vec<u64>, Vec<u64>, Vec<(u32, u64)>, u64, i64);

/// What a store holds in the end, by the words that matter.
fn summed_up(dir: &TempDir) -> SummedUp {
    let thinned = check(dir, 1);
    let kept = kept(dir, 1, A);
    let db = Connection::open(dir.path().join("store.db")).unwrap();
    let count = |what: &str| db.query_row(what, [], |row| row.get::<_, i64>(0)).unwrap();
    let keys = count("SELECT count(*) FROM wraps") + 1000 * count("SELECT count(*) FROM lines");
    (
        entries(dir, 1, A),
        entries(dir, 1, B),
        kept.iter().map(|it| (it.segment, it.last_no)).collect(),
        thinned,
        keys,
    )
}

#[test]
fn a_crash_at_any_step_and_again_loses_nothing() {
    let end = 70 * DAY;
    let run = |fails: Option<u32>| {
        let (dir, mut store) = laptop();
        store.set_windows(48, 48);
        days(&mut store, &[A, B], 0, 3);
        drop(store);
        let mut store = open(dir.path(), 1, 3 * DAY);
        store.set_windows(48, 48);
        days(&mut store, &[A], 10, 1);
        fail::at(fails);
        let mut failed = false;
        let mut slices = 0;
        loop {
            match store.thin(&moment(end)) {
                Ok(Slice::Rest) => break,
                Ok(_) => {}
                // As a process that is gone: what it had in memory too.
                Err(_) => {
                    failed = true;
                    drop(store);
                    store = open(dir.path(), 1, end);
                    store.set_windows(48, 48);
                }
            }
            slices += 1;
            assert!(slices < 1000);
        }
        let passed = fail::passed();
        store.seal_all(at(end)).unwrap();
        drop(store);
        (summed_up(&dir), passed, failed)
    };
    let (whole, passed, _) = run(None);
    assert_eq!((whole.0.len(), whole.1.len(), whole.3), (0, 0, 14));
    for step in [
        "the summary stands",
        "the tombstone stands",
        "envelopes are gone",
        "the segment is gone",
        "a key is forgotten",
        "the records' tombstone stands",
        "the records are gone",
    ] {
        assert!(passed.contains(&step), "{step}");
    }
    for step in 0..u32::try_from(passed.len()).unwrap() {
        let (found, _, failed) = run(Some(step));
        assert!(failed, "step {step}");
        // The start after a crash may have an epoch of its own.
        let keys = (found.4 - whole.4).abs();
        assert!(keys <= 2002, "step {step}: {keys}");
        assert_eq!(
            (&found.0, &found.1, &found.2, found.3),
            (&whole.0, &whole.1, &whole.2, whole.3),
            "step {step}: {}",
            passed[step as usize]
        );
    }
}

/// Writes this many batches of 50 entries, so many hours apart, and gives how many
/// entries were acknowledged; a start anew after a failure.
fn write_with_crashes(
    dir: &TempDir,
    mut store: Store,
    (batches, hours): (u64, u64),
    fails: Option<u32>,
) -> (u64, bool) {
    let (mut acknowledged, mut failed) = (0, false);
    fail::at(fails);
    for batch in 0..batches {
        let ms = batch * hours * HOUR_MS;
        let mut all = Ok(());
        for no in 0..50 {
            let event = opened(batch * 50 + no + 1);
            store
                .append(DocId::Box(A), event, at(ms), Urgency::Normal)
                .unwrap();
        }
        if let Err(error) = store.commit(false) {
            all = Err(error.to_string());
        } else {
            acknowledged += 50;
        }
        let sealed = all.and_then(|()| {
            let sealed = store.seal_all(at(ms));
            sealed.map(drop).map_err(|error| error.to_string())
        });
        if sealed.is_err() {
            failed = true;
            drop(store);
            store = open(dir.path(), 1, ms);
        }
    }
    store.seal_all(at(batches * hours * HOUR_MS)).unwrap();
    (acknowledged, failed)
}

#[test]
fn a_crash_at_any_step_of_sealing_and_closing_loses_nothing() {
    // Closed by age at any step; by number at the steps around it.
    for (batches, hours, last) in [(6, 10, u32::MAX), (82, 0, 6)] {
        let run = |fails| {
            let (dir, store) = laptop();
            let (acknowledged, failed) = write_with_crashes(&dir, store, (batches, hours), fails);
            let found = entries(&dir, 1, A);
            let holds = found == (1..=acknowledged).collect::<Vec<_>>();
            assert!(holds, "{fails:?}: {} of {acknowledged}", found.len());
            check(&dir, 1);
            (acknowledged, failed)
        };
        assert_eq!(run(None), (batches * 50, false));
        let passed = u32::try_from(fail::passed().len()).unwrap();
        assert!(u64::from(passed) > 3 * batches, "{passed}");
        for step in passed.saturating_sub(last)..passed {
            assert!(run(Some(step)).1, "step {step}");
        }
    }
}

/// Bytes of the wraps of every epoch of a device's window, as they are stored.
fn wraps(dir: &TempDir, hours: u32) -> Vec<Vec<u8>> {
    let db = Connection::open(dir.path().join("store.db")).unwrap();
    let mut statement = db
        .prepare(
            "SELECT w.sealed FROM wraps w JOIN lines l ON l.key_id = w.key_id WHERE l.hours = ?1 \
             ORDER BY l.number",
        )
        .unwrap();
    let rows = statement.query_map([hours], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn stands_in_a_file(dir: &TempDir, bytes: &[u8]) -> bool {
    let files = ["store.db", "store.db-wal"].map(|name| dir.path().join(name));
    let mut files = files.iter().filter_map(|path| std::fs::read(path).ok());
    files.any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}

#[test]
fn a_forgotten_key_stands_nowhere_in_the_files_and_a_longer_window_keeps_its_own() {
    let (dir, mut store) = laptop();
    store.set_box_window(A, 24);
    days(&mut store, &[A, B], 0, 20);
    let (short, long) = (wraps(&dir, 24), wraps(&dir, 720));
    // A week each.
    assert_eq!((short.len(), long.len()), (3, 3));
    assert!(stands_in_a_file(&dir, &short[0]));
    let done = thin(&mut store, 20 * DAY - 1);
    assert!(done.contains(&Slice::Forgot(2)), "{done:?}");
    assert!(store.checkpointer().unwrap().truncate().unwrap());
    for (wrap, gone) in short.iter().zip([true, true, false]) {
        assert_eq!(stands_in_a_file(&dir, wrap), !gone);
    }
    assert!(long.iter().all(|wrap| stands_in_a_file(&dir, wrap)));
    assert_eq!(entries(&dir, 1, B).len(), 40);
    assert_eq!(entries(&dir, 1, A), [39, 40]);
    check(&dir, 1);
    // Nothing more is to be done, and what is written goes on.
    assert_eq!(thin(&mut store, 20 * DAY - 1), []);
    days(&mut store, &[A], 20, 1);
    assert_eq!(entries(&dir, 1, A).len(), 4);
}

#[test]
fn a_clock_that_is_set_a_year_ahead_and_back_loses_nothing() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A], 0, 2);
    let ahead = |ms: u64| Moment {
        wall: at(ms + 365 * DAY),
        ..moment(ms)
    };
    for hour in 0..20 {
        let slice = store.thin(&ahead(2 * DAY + hour * HOUR_MS)).unwrap();
        assert_eq!(slice, Slice::Rest);
    }
    // Also over a restart of the node, and of the machine.
    drop(store);
    let mut store = open(dir.path(), 1, 3 * DAY);
    let other_boot = Moment {
        wall: at(300 * DAY),
        boot: [2; 16],
        up_ms: 0,
    };
    assert_eq!(store.thin(&other_boot).unwrap(), Slice::Rest);
    assert_eq!(entries(&dir, 1, A), [1, 2, 3, 4]);
    // Written with a dead clock, and dropped a window later all the same.
    let dead = Timestamp(1_000);
    store
        .append(DocId::Box(A), opened(9), dead, Urgency::Normal)
        .unwrap();
    store.commit(false).unwrap();
    store.seal_all(dead).unwrap();
    thin(&mut store, 20 * DAY);
    assert_eq!(entries(&dir, 1, A), [1, 2, 3, 4, 5]);
    let up = |days: u64| Moment {
        wall: at(3 * DAY + days * DAY),
        boot: [2; 16],
        up_ms: days * DAY,
    };
    for day in 0..40 {
        while store.thin(&up(day)).unwrap() != Slice::Rest {}
    }
    assert_eq!(entries(&dir, 1, A), []);
    check(&dir, 1);
}

#[test]
fn a_reader_drops_by_its_own_clock_and_an_early_tombstone_drops_nothing() {
    let (dir, mut store, other, mut phone) = two(0);
    days(&mut store, &[A], 0, 3);
    // It comes ten days late.
    assert!(sync(&store, &mut phone, 12 * DAY).1.is_empty());
    assert_eq!(entries(&other, 2, A).len(), 6);
    // The writer's clock is believed by nobody else: it drops its own, early.
    store.set_windows(24, 24);
    days(&mut store, &[A], 3, 1);
    let hurried = Moment {
        wall: at(14 * DAY),
        boot: [1; 16],
        up_ms: 400 * DAY,
    };
    while store.thin(&hurried).unwrap() != Slice::Rest {}
    store.seal_all(at(14 * DAY)).unwrap();
    let chain = phone
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == DocId::Box(A));
    let chain = chain.unwrap().chain;
    let stone = store.range(&chain, 1, 1, usize::MAX).unwrap().remove(0);
    assert!(Tombstone::is_one(&stone));
    sync(&store, &mut phone, 14 * DAY);
    assert_eq!(entries(&other, 2, A).len(), 6);
    let early = phone.take_early();
    assert!(
        early.iter().any(|early| early.by == keys(1).id()),
        "{early:?}"
    );
    let taken = phone.ingest(&stone, at(14 * DAY));
    assert!(taken.is_err() || taken.unwrap().outcome == Outcome::Duplicate);
    assert_eq!(entries(&other, 2, A).len(), 6);
    // A window after it came, and another as more of its last segment could come.
    thin(&mut phone, 41 * DAY);
    assert_eq!(entries(&other, 2, A).len(), 6);
    thin(&mut phone, 43 * DAY);
    assert_eq!(entries(&other, 2, A).len(), 2);
    thin(&mut phone, 73 * DAY);
    assert_eq!(entries(&other, 2, A).len(), 0);
    check(&other, 2);
    drop(dir);
}

#[test]
fn a_device_that_joins_gets_tombstones_and_summaries_for_what_is_gone() {
    let (dir, mut store) = laptop();
    days(&mut store, &[A], 0, 50);
    thin(&mut store, 50 * DAY);
    store.seal_all(at(50 * DAY)).unwrap();
    let other = TempDir::new();
    let mut phone = open(other.path(), 2, 50 * DAY);
    pair(&mut store, &mut phone, 2, 50 * DAY);
    let (rounds, refused) = sync(&store, &mut phone, 50 * DAY);
    assert!(refused.is_empty(), "{refused:?}");
    assert!(rounds <= 3, "{rounds}");
    let ours = entries(&dir, 1, A);
    assert_eq!(ours.len(), 58);
    assert_eq!(entries(&other, 2, A), ours);
    assert_eq!((check(&dir, 1), check(&other, 2)), (42, 42));
    assert_eq!(kept(&other, 2, A), kept(&dir, 1, A));
    assert_eq!(phone.take_early(), []);
    // All of it is gone: it is passed over once, and not asked for again.
    thin(&mut store, 100 * DAY);
    store.seal_all(at(100 * DAY)).unwrap();
    let third = TempDir::new();
    let mut tablet = open(third.path(), 3, 100 * DAY);
    pair(&mut store, &mut tablet, 3, 100 * DAY);
    assert!(sync(&store, &mut tablet, 100 * DAY).1.is_empty());
    assert_eq!(sync(&store, &mut tablet, 100 * DAY).0, 1);
    assert_eq!(check(&third, 3), 100);
    assert_eq!(kept(&third, 3, A).len(), 50);
    // And the one that joined can hand on what its writer is gone from.
    drop(store);
    thin(&mut phone, 120 * DAY);
    let fourth = TempDir::new();
    let mut last = open(fourth.path(), 4, 120 * DAY);
    pair(&mut phone, &mut last, 4, 120 * DAY);
    sync(&phone, &mut last, 120 * DAY);
    check(&fourth, 4);
    assert_eq!(sync(&phone, &mut last, 120 * DAY).0, 1);
}

#[test]
fn what_waits_for_a_key_that_its_writer_forgot_hides_what_follows_for_an_hour_alone() {
    let (dir, mut store, _other, mut phone) = two(0);
    days(&mut store, &[A], 0, 50);
    assert!(sync(&store, &mut phone, 50 * DAY).1.is_empty());
    let done = thin(&mut store, 50 * DAY);
    assert!(done.iter().any(|slice| matches!(slice, Slice::Forgot(1..))));
    store.seal_all(at(50 * DAY)).unwrap();
    let third = TempDir::new();
    let mut tablet = open(third.path(), 3, 50 * DAY);
    pair(&mut store, &mut tablet, 3, 50 * DAY);
    // The phone has kept all of it, and its writer has no key for the beginning any more.
    assert!(sync(&phone, &mut tablet, 50 * DAY).1.is_empty());
    assert!(sync(&store, &mut tablet, 50 * DAY).1.is_empty());
    let waiting = |dir: &TempDir| {
        let mut reader = Reader::open(dir.path(), keys(3)).unwrap();
        reader.read(DocId::Box(A), None).unwrap()
    };
    let numbers = |dir: &TempDir| -> Vec<u64> {
        let entries = waiting(dir).entries;
        entries.iter().map(|(_, entry)| entry.no).collect()
    };
    let before = waiting(&third);
    assert_eq!((before.entries.len(), before.waiting.len()), (0, 1));
    let hour = at(50 * DAY + HOUR_MS);
    tablet.look_again();
    let early = tablet.open_waiting(Timestamp(hour.0 - 1)).unwrap();
    assert_eq!(early, [], "a key may still come");
    tablet.look_again();
    let mut opened = Vec::new();
    loop {
        let more = tablet.open_waiting(hour).unwrap();
        if more.is_empty() {
            break;
        }
        opened.extend(more.into_iter().flat_map(|opened| opened.entries));
    }
    let ours = entries(&dir, 1, A);
    let theirs: Vec<u64> = opened.iter().map(|entry| entry.no).collect();
    assert!(ours.iter().all(|no| theirs.contains(no)), "{theirs:?}");
    assert_eq!(numbers(&third), theirs);
    let after = waiting(&third);
    assert_eq!(after.waiting, []);
    let forgotten = |(_, _, reason): &(_, _, QuarantineReason)| {
        matches!(
            reason,
            QuarantineReason::KeyForgotten | QuarantineReason::Follows
        )
    };
    assert!(!after.aside.is_empty() && after.aside.iter().all(forgotten));
    check(&third, 3);
    // It goes on, over a restart too.
    days(&mut store, &[A], 50, 1);
    assert!(sync(&store, &mut tablet, 51 * DAY).1.is_empty());
    drop(tablet);
    let mut tablet = open(third.path(), 3, 51 * DAY);
    assert!(numbers(&third).ends_with(&[101, 102]));
    // A window after it came it goes, as all else.
    thin(&mut tablet, 120 * DAY);
    assert_eq!(entries(&third, 3, A), []);
    check(&third, 3);
}

#[test]
fn nobody_makes_a_device_pass_over_what_should_be_there() {
    let (dir, mut store, other, mut phone) = two(0);
    days(&mut store, &[A], 0, 3);
    let head = store
        .heads()
        .into_iter()
        .find(|head| head.chain.doc == DocId::Box(A));
    let head = head.unwrap();
    let lie = Tombstone {
        account: store.account().unwrap(),
        chain: head.chain,
        signer: keys(1).id(),
        segment: 3,
        first_seq: 1,
        prev: bailey_envelope::Hash::NONE,
        last_seq: head.seq,
        last: head.hash,
        first_no: 1,
        last_no: 6,
        from: at(0),
        to: at(2 * DAY),
        hours: 720,
        epoch: 1,
        key_id: bailey_envelope::KeyId([1; 32]),
        made: at(3 * DAY),
    };
    let bytes = lie.sign(&keys(1)).unwrap();
    let refused = phone.ingest(&bytes, at(2 * DAY));
    assert!(
        matches!(refused, Err(IngestError::EarlyTombstone(_))),
        "{refused:?}"
    );
    assert_eq!(phone.take_early().len(), 1);
    // By a member that did not write it, however short it says the window is.
    let other_member = Tombstone {
        signer: keys(2).id(),
        hours: 1,
        ..lie
    };
    let refused = phone.ingest(&other_member.sign(&keys(2)).unwrap(), at(9 * DAY));
    assert!(
        matches!(refused, Err(IngestError::EarlyTombstone(_))),
        "{refused:?}"
    );
    // By a stranger, of another account, of the account's own records.
    let stranger = Tombstone {
        signer: keys(5).id(),
        ..lie
    };
    let stranger = phone.ingest(&stranger.sign(&keys(5)).unwrap(), at(90 * DAY));
    assert!(matches!(stranger, Err(IngestError::NotMember(_))));
    let elsewhere = Tombstone {
        account: bailey_model::AccountId([3; 32]),
        ..lie
    };
    let elsewhere = phone.ingest(&elsewhere.sign(&keys(1)).unwrap(), at(90 * DAY));
    assert!(matches!(elsewhere, Err(IngestError::OtherAccount)));
    assert!(sync(&store, &mut phone, 3 * DAY).1.is_empty());
    assert_eq!(entries(&other, 2, A), entries(&dir, 1, A));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Against a plain list: whatever is written, whenever it is thinned, and however
    /// often the node starts anew, what is within its window is there, what is a
    /// day past it is not, and all of it holds.
    #[test]
    fn what_is_kept_is_what_a_plain_list_says(
        steps in proptest::collection::vec((0_u8..5, 1_u64..120), 5..40),
    ) {
        let (dir, mut store) = laptop();
        store.set_windows(72, 72);
        let (mut ms, mut no) = (0, 0);
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (what, hours) in steps {
            ms += hours * HOUR_MS;
            match what {
                0..=2 => {
                    no += 1;
                    write(&mut store, A, ms, &[opened(no)]);
                    list.push((no, ms));
                }
                3 => {
                    drop(store);
                    store = open(dir.path(), 1, ms);
                    store.set_windows(72, 72);
                }
                _ => {
                    thin(&mut store, ms);
                    let found = entries(&dir, 1, A);
                    for (no, written) in &list {
                        let age = ms - written;
                        prop_assert!(age >= 3 * DAY || found.contains(no));
                        prop_assert!(age <= 5 * DAY || !found.contains(no), "{no}");
                    }
                }
            }
        }
        store.seal_all(at(ms)).unwrap();
        check(&dir, 1);
        let left = entries(&dir, 1, A).len() as u64;
        let kept: u64 = kept(&dir, 1, A)
            .iter()
            .flat_map(|it| &it.days)
            .flat_map(|day| &day.hosts)
            .map(|host| host.flows)
            .sum();
        prop_assert_eq!(left + kept, list.len() as u64);
    }
}
