//! Reading segment by segment: the same as at once, and no more than is wanted.

use crate::common::*;
use bailey_docs_store::{DocId, OsEntropy, Pages, Reader, Role, Store, Urgency, repair};
use bailey_model::{DeviceId, Entry, Timestamp};

/// Entries of one segment that is written in batches of fifty.
const SEGMENT: u64 = 4050;

fn pages(reader: &mut Reader, doc: DocId, writer: DeviceId, since: Timestamp) -> Vec<Vec<Entry>> {
    let mut pages = Pages::new(doc, writer, since);
    std::iter::from_fn(|| reader.next_page(&mut pages).unwrap()).collect()
}

/// That all pages together are what is read at once; how many pages.
#[track_caller]
fn same(dir: &TempDir, no: u8, doc: DocId, writer: DeviceId) -> usize {
    let mut reader = Reader::open(dir.path(), keys(no)).unwrap();
    let whole = reader.read(doc, Some(writer)).unwrap().entries;
    let whole: Vec<Entry> = whole.into_iter().map(|(_, entry)| entry).collect();
    let turned = pages(&mut reader, doc, writer, Timestamp(0));
    assert!(turned.iter().all(|page| !page.is_empty()));
    assert_eq!(turned.concat(), whole);
    for entry in whole.iter().step_by(997) {
        let found = reader.entry(doc, writer, entry.no).unwrap();
        assert_eq!(found.as_ref(), Some(entry));
    }
    let past = whole.last().map_or(0, |entry| entry.no) + 1;
    assert_eq!(reader.entry(doc, writer, past).unwrap(), None);
    turned.len()
}

/// Appends so many, a second apart, sealed each fifty.
fn fill(store: &mut Store, from: u64, count: u64) {
    for n in from..from + count {
        let event = gap(n.to_string());
        store
            .append(BOX, event, at(n * 1000), Urgency::Normal)
            .unwrap();
        if n % 50 == 49 {
            store.commit(false).unwrap();
            store.seal_all(at(n * 1000)).unwrap();
        }
    }
    store.commit(false).unwrap();
}

#[test]
fn pages_are_the_segments_and_what_is_not_in_one_yet() {
    let (dir, mut store) = laptop();
    let writer = store.device();
    assert_eq!(same(&dir, 1, BOX, writer), 0);
    write(&mut store, BOX, &["first"], NOW);
    assert_eq!(same(&dir, 1, BOX, writer), 1);
    fill(&mut store, 1, 2 * SEGMENT + 20);
    assert_eq!(same(&dir, 1, BOX, writer), 3);
    // Another start has a chain of its own.
    drop(store);
    let mut store = open(&dir, 1, at(9_000_000));
    write(&mut store, BOX, &["again"], at(9_000_000));
    store.seal_all(at(9_000_000)).unwrap();
    write(&mut store, BOX, &["and again"], at(9_000_000));
    // What the first start had not sealed is a segment of its own.
    assert_eq!(same(&dir, 1, BOX, writer), 5);
    // Another device turns the same pages, and holds no journal.
    let other = TempDir::new();
    let mut phone = open(&other, 2, NOW);
    store.seal_all(at(9_000_001)).unwrap();
    pair(&mut store, &mut phone, 2, Role::Full, at(9_000_001));
    assert_eq!(same(&other, 2, BOX, writer), 4);
}

#[test]
fn only_segments_with_something_as_young_are_opened() {
    let (dir, mut store) = laptop();
    let writer = store.device();
    fill(&mut store, 0, 3 * SEGMENT);
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    let last = at((3 * SEGMENT - 1) * 1000);
    for (since, expected) in [(NOW, 3), (at(SEGMENT * 1000), 2), (last, 1)] {
        let turned = pages(&mut reader, BOX, writer, since);
        assert_eq!(turned.len(), expected, "{since:?}");
        let young = |entry: &&Entry| entry.ts >= since;
        let found = turned.concat().iter().filter(young).count() as u64;
        assert_eq!(found, (last.0 - since.0) / 1000 + 1);
    }
    assert!(pages(&mut reader, BOX, writer, Timestamp(last.0 + 1)).is_empty());
    // A clock that was set back makes no entry old that is not.
    store
        .append(BOX, gap("set back"), at(5), Urgency::Normal)
        .unwrap();
    store.commit(false).unwrap();
    store.seal_all(at(5)).unwrap();
    fill(&mut store, 3 * SEGMENT + 1, 99);
    store.seal_all(at(4 * SEGMENT * 1000)).unwrap();
    let turned = pages(&mut reader, BOX, writer, last).concat();
    assert!(turned.iter().any(|entry| entry.ts == at(5)));
}

#[test]
fn what_is_written_while_pages_are_turned_comes_once_and_in_order() {
    let (dir, mut store) = laptop();
    let writer = store.device();
    fill(&mut store, 0, SEGMENT + 70);
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    let mut pages = Pages::new(BOX, writer, Timestamp(0));
    let mut seen = Vec::new();
    let mut more = SEGMENT + 70;
    for round in 0..12 {
        if let Some(page) = reader.next_page(&mut pages).unwrap() {
            seen.extend(page.iter().map(|entry| entry.no));
        }
        // Now in the journal, now sealed, now into a new segment.
        fill(&mut store, more, 30 + round * 90);
        more += 30 + round * 90;
        if round % 3 == 0 {
            store.seal_all(at(more * 1000)).unwrap();
        }
    }
    while let Some(page) = reader.next_page(&mut pages).unwrap() {
        seen.extend(page.iter().map(|entry| entry.no));
    }
    let odd = seen.iter().zip(1..).find(|(no, expected)| *no != expected);
    assert_eq!((odd, seen.len() as u64), (None, more));
}

/// The store of a device that holds another's box over two starts of it, made by
/// the version before.
#[test]
fn a_store_of_the_version_before_opens_and_is_counted() {
    const V1: &[u8] = include_bytes!("v1/store.db");
    let dir = TempDir::new();
    std::fs::write(dir.path().join("store.db"), V1).unwrap();
    // A reader cannot: what it needs is counted by the writer.
    let refused = Reader::open(dir.path(), keys(2)).unwrap_err().to_string();
    assert!(refused.contains("version 1"), "{refused}");
    for round in 0..2 {
        let mut store =
            Store::open(dir.path(), keys(2), at(7_000_000), Box::new(OsEntropy)).unwrap();
        let laptop = keys(1).id();
        assert_eq!(same(&dir, 2, BOX, laptop), 3, "{round}");
        let mut read = read(&dir, 2, BOX);
        read.retain(|(device, _)| *device == laptop);
        let mut expected: Vec<String> = (0..4_200).map(|n| n.to_string()).collect();
        expected.extend(["again".to_owned(), "and again".to_owned()]);
        let found = texts(&read).into_iter().map(|(_, text)| text);
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(same(&dir, 2, DocId::Node, store.device()) > 0);
        assert!(same(&dir, 2, DocId::Node, laptop) > 0);
        // And goes on, with what it had not sealed.
        let own = texts(&crate::common::read(&dir, 2, DocId::Node));
        assert!(own.iter().any(|(_, text)| text == "not sealed"), "{own:?}");
        let written = write(&mut store, BOX, &["mine"], at(7_000_000));
        assert_eq!(written, [round + 1]);
        store.seal_all(at(7_000_000)).unwrap();
        drop(store);
        let mine = same(&dir, 2, BOX, keys(2).id());
        assert_eq!(mine as u64, round + 1);
    }
}

/// What it had not sealed stands in rows of one entry each.
#[test]
fn a_store_whose_journal_has_a_row_an_entry_opens_and_is_repaired() {
    let all = ["a", "b", "c", "d", "e", "f"];
    for by_repair in [false, true] {
        let dir = TempDir::new();
        std::fs::write(dir.path().join("store.db"), include_bytes!("v3/store.db")).unwrap();
        if by_repair {
            let said = repair(dir.path(), &keys(1), at(10), &mut OsEntropy).unwrap();
            assert_eq!((said.losses, &said.lost), (0, &vec![]), "{said:?}");
        }
        let mut store = Store::open(dir.path(), keys(1), at(10), Box::new(OsEntropy)).unwrap();
        let own = read(&dir, 1, BOX);
        let found: Vec<String> = texts(&own).into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, all, "{by_repair}");
        assert_eq!(write(&mut store, BOX, &["g"], at(11)), [7]);
        assert_eq!(read(&dir, 1, BOX).len(), 7);
        let node = texts(&read(&dir, 1, DocId::Node));
        assert!(node.iter().any(|(_, text)| text == "n"), "{node:?}");
    }
}
