//! Damaged files: what can be read is, what cannot is told with its place, and a
//! repair brings the store back without it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::*;
use crate::ledger::copy;
use bailey_docs_store::{
    DocId, OpenError, OsEntropy, QuarantineReason, Reader, RepairError, Repaired, Store, Urgency,
    repair,
};
use bailey_model::{BoxEnd, BoxEnded, BoxId, Event, Incarnation};
use rusqlite::{Connection, params};

const PAGE: usize = 4096;

/// The documents of the store below.
fn docs() -> Vec<DocId> {
    let boxes = (0..4).map(|no| DocId::Box(BoxId([no; 16])));
    boxes.chain([DocId::Node]).collect()
}

fn ended() -> Event {
    Event::BoxEnded(BoxEnded {
        box_id: BoxId([9; 16]),
        incarnation: Incarnation([1; 16]),
        end: BoxEnd::NodeLost,
        processes_ended: None,
        processes_left: None,
        flows_reset: None,
    })
}

/// A closed store: boxes of several segments, sealed, and some rows in the journal.
fn whole() -> TempDir {
    let dir = TempDir::new();
    let mut store = open_seeded(&dir, 1, NOW, 0);
    store.create_account("laptop", NOW).unwrap();
    let mut random = Random(0x5eed);
    for run in 0..6 {
        for doc in &docs()[..4] {
            for no in 0..30 {
                // Hardly to be deflated, so that it fills pages.
                let noise: String = (0..40)
                    .map(|_| char::from(b'!' + u8::try_from(random.below(90)).unwrap()))
                    .collect();
                let text = format!("run {run}, {no} of {doc} {noise}");
                store
                    .append(*doc, gap(text), at(run), Urgency::Normal)
                    .unwrap();
            }
            store
                .append(*doc, ended(), at(run), Urgency::Normal)
                .unwrap();
        }
        store.commit(false).unwrap();
        store.seal_all(at(run)).unwrap();
    }
    for doc in &docs()[..2] {
        for row in [&["one"][..], &["two", "three"], &["four"]] {
            write(&mut store, *doc, row, at(9));
        }
    }
    store.commit(true).unwrap();
    drop(store);
    dir
}

type Contents = BTreeMap<DocId, BTreeMap<u64, String>>;

/// What can be read, by the way that says what it could not.
fn contents(dir: &Path) -> Result<(Contents, usize), String> {
    let mut reader = Reader::open(dir, keys(1)).map_err(|error| error.to_string())?;
    let (mut all, mut troubles) = (Contents::new(), 0);
    for doc in docs() {
        match reader.read(doc, None) {
            Ok(reading) => {
                troubles += reading.aside.len() + reading.waiting.len();
                all.insert(doc, texts(&reading.entries).into_iter().collect());
            }
            Err(_) => troubles += 1,
        }
    }
    Ok((all, troubles))
}

/// Whether a look at everything says that something is wrong.
fn is_told(dir: &Path) -> bool {
    let look = || -> Result<bool, bailey_docs_store::ReadError> {
        let mut reader = Reader::open(dir, keys(1))?;
        for chain in reader.chains()? {
            let checked = reader.check_chain(&chain)?;
            if checked.faulty > 0 || checked.waiting > 0 {
                return Ok(true);
            }
        }
        Ok(!reader.check_rest()?.faults.is_empty())
    };
    look().unwrap_or(true)
}

/// That everything read is what was written there, or says that it was lost.
#[track_caller]
fn nothing_wrong(found: &Contents, expected: &Contents) -> usize {
    let mut read = 0;
    for (doc, entries) in found {
        for (no, text) in entries {
            if text != "the entry that stood here was damaged on the disk" {
                assert_eq!(expected[doc].get(no), Some(text), "{doc} {no}");
                read += 1;
            }
        }
    }
    read
}

fn size(contents: &Contents) -> usize {
    contents.values().map(BTreeMap::len).sum()
}

fn repaired(dir: &TempDir) -> Result<Repaired, RepairError> {
    repair(dir.path(), &keys(1), at(20_000), &mut OsEntropy)
}

#[test]
fn around_a_damaged_page_the_rest_is_read_and_a_repair_says_what_it_lost() {
    let whole = whole();
    let (expected, _) = contents(whole.path()).unwrap();
    let pages = std::fs::read(whole.path().join("store.db")).unwrap().len() / PAGE;
    assert!(pages > 30, "{pages}");
    let mut mostly = 0;
    for page in 1..pages {
        let dir = copy(&whole);
        let path = dir.path().join("store.db");
        let mut bytes = std::fs::read(&path).unwrap();
        let mut random = Random(page as u64 + 1);
        for byte in &mut bytes[page * PAGE..(page + 1) * PAGE] {
            *byte = match page % 2 {
                0 => 0,
                _ => u8::try_from(random.below(256)).unwrap(),
            };
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok((found, _)) = contents(dir.path()) {
            nothing_wrong(&found, &expected);
        }
        // Never an empty one in its place.
        if let Ok(store) = Store::open(copy(&dir).path(), keys(1), at(10_000), Box::new(OsEntropy))
        {
            assert!(store.account().is_some(), "page {page}");
        }
        let said = repaired(&dir).unwrap();
        if let Some(kept) = &said.kept {
            assert_eq!(std::fs::read(kept.join("store.db")).unwrap(), bytes);
        }
        let mut store = open(&dir, 1, at(30_000));
        let (found, troubles) = contents(dir.path()).unwrap();
        let read = nothing_wrong(&found, &expected);
        assert!(
            read == size(&expected) || said.losses > 0,
            "page {page}: {read} of {} read, and nothing said: {said:?}",
            size(&expected)
        );
        assert!(troubles == 0 || said.losses > 0, "page {page}: {said:?}");
        mostly += usize::from(read * 2 > size(&expected));
        // It goes on, where its account is whole.
        if store.members().get(&store.device()).is_some() {
            let before = read_own(&dir, &store);
            write(&mut store, BOX, &["goes on"], at(30_000));
            store.seal_all(at(30_000)).unwrap();
            assert_eq!(read_own(&dir, &store), before + 1);
        }
    }
    assert!(mostly * 10 > pages * 8, "{mostly} of {pages}");
}

fn read_own(dir: &TempDir, store: &Store) -> usize {
    let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
    let reading = reader.read(BOX, Some(store.device())).unwrap();
    reading.entries.len()
}

#[test]
fn a_flipped_bit_changes_no_entry_and_is_told_where_one_is_gone() {
    let whole = whole();
    let (expected, _) = contents(whole.path()).unwrap();
    let mut random = Random(0x5eed);
    let mut told = 0;
    for round in 0..400 {
        let dir = copy(&whole);
        let path = dir.path().join("store.db");
        let mut bytes = std::fs::read(&path).unwrap();
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        std::fs::write(&path, &bytes).unwrap();
        let Ok((found, troubles)) = contents(dir.path()) else {
            told += 1;
            continue;
        };
        nothing_wrong(&found, &expected);
        if is_told(dir.path()) || troubles > 0 {
            told += 1;
        } else {
            let counts = |all: &Contents| all.values().map(BTreeMap::len).collect::<Vec<_>>();
            let (found, expected) = (counts(&found), counts(&expected));
            assert_eq!(found, expected, "round {round}: a silent loss at byte {at}");
        }
    }
    assert!(told > 60, "the control: {told} flips were told");
}

fn change(dir: &TempDir, sql: &str) {
    let db = Connection::open(dir.path().join("store.db")).unwrap();
    assert!(db.execute(sql, params![]).unwrap() > 0, "{sql}");
}

#[test]
fn a_damaged_envelope_is_set_aside_with_its_place_and_the_rest_is_read() {
    for (sql, reason) in [
        (
            "UPDATE envelopes SET bytes = zeroblob(300)",
            QuarantineReason::Damaged,
        ),
        ("DELETE FROM envelopes", QuarantineReason::Missing),
    ] {
        let dir = whole();
        let doc = docs()[2];
        let of =
            "(SELECT id FROM chains WHERE substr(doc, 2) = x'02020202020202020202020202020202')";
        change(&dir, &format!("{sql} WHERE seq = 3 AND chain = {of}"));
        let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
        let reading = reader.read(doc, None).unwrap();
        let aside = reading
            .aside
            .iter()
            .map(|(id, seq, why)| (id.doc, *seq, why.clone()));
        assert_eq!(aside.collect::<Vec<_>>(), [(doc, 3, reason)]);
        // Each run of the box is one segment of one envelope.
        assert_eq!(reading.entries.len(), 31 * 5);
        let store = open(&dir, 1, at(10_000));
        drop(store);
        let said = repaired(&dir).unwrap();
        assert!(said.losses > 0, "{said:?}");
        let mut reader = Reader::open(dir.path(), keys(1)).unwrap();
        assert_eq!(reader.read(doc, None).unwrap().entries.len(), 31 * 5);
    }
}

#[test]
fn a_damaged_journal_row_refuses_with_its_place_and_becomes_a_gap_by_repair() {
    let lost = [188, 189];
    for (sql, refuses) in [
        (
            "UPDATE journal SET row = zeroblob(80) WHERE no = 188 AND doc = DOC",
            true,
        ),
        ("DELETE FROM journal WHERE no = 188 AND doc = DOC", false),
    ] {
        let dir = whole();
        let doc = docs()[1];
        let of =
            "(SELECT doc FROM journal WHERE substr(doc, 2) = x'01010101010101010101010101010101')";
        change(&dir, &sql.replace("DOC", of));
        if refuses {
            let refused = Store::open(dir.path(), keys(1), at(10_000), Box::new(OsEntropy));
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, OpenError::Journal { doc: of, no: 188 } if of == doc),
                "{refused}"
            );
        }
        let said = repaired(&dir).unwrap();
        assert_eq!(said.losses, 2, "{said:?}");
        let store = open(&dir, 1, at(10_000));
        let entries = texts(&read(&dir, 1, doc));
        let expected: Vec<u64> = (1..=190).collect();
        assert_eq!(entries.iter().map(|it| it.0).collect::<Vec<_>>(), expected);
        for (no, said) in lost.iter().zip(&said.lost) {
            assert!(said.contains(&no.to_string()), "{said}");
            assert!(entries[no - 1].1.contains("damaged"));
        }
        assert_eq!(entries[189].1, "four");
        drop(store);
        // And now all of it holds.
        assert_eq!(repaired(&dir).unwrap(), Repaired::default());
    }
}

#[test]
fn a_repair_of_a_whole_store_does_nothing_and_one_in_use_is_refused() {
    let dir = whole();
    let before = std::fs::read(dir.path().join("store.db")).unwrap();
    assert_eq!(repaired(&dir).unwrap(), Repaired::default());
    assert_eq!(std::fs::read(dir.path().join("store.db")).unwrap(), before);
    let store = open(&dir, 1, at(10_000));
    let refused = repaired(&dir).unwrap_err();
    assert!(
        matches!(refused, RepairError::InUse { pid: Some(pid) } if pid == std::process::id()),
        "{refused}"
    );
    drop(store);
    let empty = TempDir::new();
    let refused = repaired(&empty).unwrap_err();
    assert!(matches!(refused, RepairError::Open(_)), "{refused}");
}

#[test]
fn a_database_that_is_gone_is_not_begun_anew() {
    let dir = whole();
    std::fs::remove_file(dir.path().join("store.db")).unwrap();
    let refused = Store::open(dir.path(), keys(1), at(10_000), Box::new(OsEntropy)).unwrap_err();
    assert!(refused.to_string().contains("is gone"), "{refused}");
    assert!(!dir.path().join("store.db").exists());
    std::fs::remove_file(dir.path().join("store.lock")).unwrap();
    open(&dir, 1, at(10_000));
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let dir = whole();
    let path = dir.path().join("store.db");
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let refused = Store::open(dir.path(), keys(1), at(10_000), Box::new(OsEntropy)).unwrap_err();
    assert!(refused.to_string().contains("newer version"), "{refused}");
    let refused = Reader::open(dir.path(), keys(1)).unwrap_err();
    assert!(refused.to_string().contains("newer version"), "{refused}");
    let refused = repaired(&dir).unwrap_err();
    assert!(refused.to_string().contains("newer version"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_store_of_the_version_before_is_brought_up_by_a_repair_and_loses_nothing() {
    let dir = TempDir::new();
    std::fs::write(dir.path().join("store.db"), include_bytes!("v1/store.db")).unwrap();
    let said = repair(dir.path(), &keys(2), at(20_000), &mut OsEntropy).unwrap();
    assert_eq!((said.losses, &said.lost), (0, &vec![]), "{said:?}");
    drop(open(&dir, 2, at(7_000_000)));
    let mut entries = read(&dir, 2, BOX);
    entries.retain(|(device, _)| *device == keys(1).id());
    assert_eq!(entries.len(), 4_202);
}

/// The seal knows how many entries a row has, and who is the last; a number or a count
/// that is damaged takes no other row with it.
#[test]
fn a_damaged_count_or_number_of_a_journal_row_loses_no_other_entry() {
    let of = "(SELECT doc FROM journal WHERE substr(doc, 2) = x'01010101010101010101010101010101')";
    for (sql, lost) in [
        (
            "UPDATE journal SET count = 1 WHERE no = 188 AND doc = DOC",
            0,
        ),
        (
            "UPDATE journal SET count = 99 WHERE no = 190 AND doc = DOC",
            0,
        ),
        (
            "UPDATE journal SET count = 0 WHERE no = 188 AND doc = DOC",
            0,
        ),
        (
            "UPDATE journal SET no = 1 << 60 WHERE no = 188 AND doc = DOC",
            2,
        ),
        (
            "UPDATE journal SET segment = -1 WHERE no = 188 AND doc = DOC",
            3,
        ),
    ] {
        let dir = whole();
        let doc = docs()[1];
        change(&dir, &sql.replace("DOC", of));
        assert!(Store::open(dir.path(), keys(1), at(10_000), Box::new(OsEntropy)).is_err());
        let said = repaired(&dir).unwrap();
        assert_eq!(said.losses, lost, "{sql}: {said:?}");
        drop(open(&dir, 1, at(10_000)));
        let entries = texts(&read(&dir, 1, doc));
        let numbers: Vec<u64> = entries.iter().map(|it| it.0).collect();
        assert_eq!(numbers, (1..=190).collect::<Vec<u64>>(), "{sql}");
        assert_eq!(
            (&*entries[186].1, &*entries[189].1),
            ("one", "four"),
            "{sql}"
        );
    }
}
