use bailey_envelope::MAX_PLAINTEXT;
use bailey_model::{BoxId, Event, Gap};

use super::*;
use crate::testing::TempDir;
use crate::{OsEntropy, Reader, Urgency};
use bailey_envelope::DeviceKeys;

const BAD: DocId = DocId::Box(BoxId([1; 16]));
const GOOD: DocId = DocId::Box(BoxId([2; 16]));

fn at(ms: u64) -> Timestamp {
    Timestamp(1_796_000_000_000 + ms)
}

fn keys() -> DeviceKeys {
    DeviceKeys::generate([1; 64])
}

fn laptop() -> (TempDir, Store) {
    let dir = TempDir::new();
    let mut store = Store::open(dir.path(), keys(), at(0), Box::new(OsEntropy)).unwrap();
    store.create_account("laptop", at(0)).unwrap();
    store.seal_all(at(0)).unwrap();
    (dir, store)
}

fn write(store: &mut Store, doc: DocId, reason: &str, now: Timestamp, urgency: Urgency) {
    let event = Event::Gap(Gap {
        reason: reason.to_owned(),
    });
    store.append(doc, event, now, urgency).unwrap();
    store.commit(false).unwrap();
}

/// What other devices would get of a document.
fn sealed(store: &Store, doc: DocId) -> u64 {
    let heads = store.heads().into_iter();
    heads
        .filter(|head| head.chain.doc == doc)
        .map(|head| head.seq)
        .sum()
}

fn read(dir: &TempDir, doc: DocId) -> usize {
    let mut reader = Reader::open(dir.path(), keys()).unwrap();
    reader.entries(doc, None).unwrap().len()
}

/// A document with an entry that no envelope holds, and one without fault after it.
fn one_bad() -> (TempDir, Store) {
    let (dir, mut store) = laptop();
    for doc in [BAD, GOOD] {
        write(&mut store, doc, "before", at(10), Urgency::Normal);
    }
    // What nothing makes smaller.
    let mut packed = vec![0; MAX_PLAINTEXT + 1];
    crate::Entropy::fill(&mut OsEntropy, &mut packed).unwrap();
    let (no, ts) = (2, at(10));
    let own = store.docs.get_mut(&BAD).unwrap();
    own.push(Unsealed {
        no,
        ts,
        packed,
        ends_row: true,
    });
    (dir, store)
}

fn is_bad(result: Result<Vec<ChainId>, SealingError>) -> bool {
    matches!(
        result,
        Err(SealingError::Document {
            doc: BAD,
            others: 0,
            ..
        })
    )
}

#[test]
fn a_document_that_cannot_be_sealed_keeps_no_other_from_it() {
    let (dir, mut store) = one_bad();
    assert!(is_bad(store.seal(at(2_000))));
    // What came before it is sealed by itself.
    assert_eq!((sealed(&store, BAD), sealed(&store, GOOD)), (1, 1));
    assert_eq!((read(&dir, BAD), read(&dir, GOOD)), (1, 1));
    // It rests, and keeps nobody awake meanwhile.
    assert_eq!(store.seal_due(at(2_001)), Some(at(3_000)));
    assert_eq!(store.seal(at(2_500)).unwrap(), []);
    // What is urgent elsewhere does not wait for it.
    write(&mut store, GOOD, "urgent", at(2_600), Urgency::Urgent);
    assert_eq!(store.seal_due(at(2_600)), Some(at(2_620)));
    assert_eq!(store.seal(at(2_620)).unwrap().len(), 1);
    assert_eq!(sealed(&store, GOOD), 2);
    assert!(is_bad(store.seal(at(3_000))), "it is tried again");
    assert!(is_bad(store.seal_all(at(3_010))), "at the end too");
    // Once its fault is gone all of it is sealed, in order.
    let own = store.docs.get_mut(&BAD).unwrap();
    own.batch.pop_back();
    write(&mut store, BAD, "after", at(3_020), Urgency::Normal);
    let grown = store.seal(at(9_000)).unwrap();
    assert_eq!(grown.len(), 1);
    assert_eq!((sealed(&store, BAD), read(&dir, BAD)), (2, 2));
    assert_eq!(store.seal_due(at(9_000)), None);
}

#[test]
fn a_clock_that_was_set_back_does_not_hold_up_what_could_not_be_sealed() {
    let (_dir, mut store) = one_bad();
    assert!(is_bad(store.seal(at(2_000))));
    let due = store.seal_due(at(0)).unwrap();
    assert!(due <= at(1_000), "{due:?}");
}

#[test]
fn a_store_opens_although_a_document_of_it_cannot_be_sealed() {
    /// Gives out after so many calls.
    struct Spent(u32);
    impl crate::Entropy for Spent {
        fn fill(&mut self, out: &mut [u8]) -> Result<(), crate::NoEntropy> {
            self.0 = self.0.checked_sub(1).ok_or(crate::NoEntropy)?;
            OsEntropy.fill(out)
        }
    }
    let (dir, mut store) = laptop();
    for doc in [BAD, GOOD] {
        write(&mut store, doc, "before", at(10), Urgency::Normal);
    }
    drop(store);
    // As few as let it open at all.
    let opens = |calls| Store::open(dir.path(), keys(), at(20), Box::new(Spent(calls)));
    let store = (0..20).find_map(|calls| opens(calls).ok()).unwrap();
    assert_eq!((sealed(&store, BAD), sealed(&store, GOOD)), (0, 0));
    drop(store);
    let mut store = Store::open(dir.path(), keys(), at(30), Box::new(OsEntropy)).unwrap();
    store.seal_all(at(40)).unwrap();
    assert_eq!((read(&dir, BAD), read(&dir, GOOD)), (1, 1));
    assert_eq!((sealed(&store, BAD), sealed(&store, GOOD)), (1, 1));
}

/// A batch is of whole rows, so that no row of the journal outlives its entries or goes
/// before them.
#[test]
fn a_batch_takes_whole_rows_and_one_at_least() {
    let entry = |no: u64, bytes: usize, ends_row: bool| Unsealed {
        no,
        ts: Timestamp(1),
        packed: vec![0; bytes],
        ends_row,
    };
    let batches = |rows: &[(usize, usize)]| {
        let mut own = OwnDoc::new();
        let mut no = 0;
        for (count, bytes) in rows {
            for at in 1..=*count {
                no += 1;
                own.push(entry(no, *bytes, at == *count));
            }
        }
        let mut taken = Vec::new();
        while !own.batch.is_empty() {
            taken.push(own.take_batch().len());
        }
        taken
    };
    assert_eq!(batches(&[(1, 9); 300]), [256, 44]);
    assert_eq!(batches(&[(100, 9); 4]), [200, 200]);
    assert_eq!(batches(&[(128, 9), (128, 9), (1, 9)]), [256, 1]);
    // Where entries are long.
    assert_eq!(batches(&[(3, 60_000), (1, 9)]), [3, 1]);
    assert_eq!(batches(&[(1, 60_000); 3]), [2, 1]);
}

#[test]
fn what_reads_as_other_entries_than_were_written_takes_the_place_of_no_journal_row() {
    let (dir, mut store) = laptop();
    let texts = |dir: &TempDir| -> Vec<String> {
        let mut reader = Reader::open(dir.path(), keys()).unwrap();
        let entries = reader.entries(GOOD, None).unwrap().into_iter();
        let text = |entry: bailey_model::Entry| match entry.event {
            Event::Gap(gap) => gap.reason,
            other => panic!("{other:?}"),
        };
        entries.map(|(_, entry)| text(entry)).collect()
    };
    // So many that what comes closes their segment.
    let mut written: Vec<String> = (0..SEGMENT_ENTRIES - SEGMENT_ROOM - 1)
        .map(|no| format!("before {no}"))
        .collect();
    for text in &written {
        let reason = text.clone();
        let event = Event::Gap(Gap { reason });
        store.append(GOOD, event, at(10), Urgency::Normal).unwrap();
    }
    store.commit(false).unwrap();
    store.seal_all(at(10)).unwrap();
    let before = sealed(&store, GOOD);
    let rows = |store: &Store| crate::journal::load(&store.db, Some(GOOD)).unwrap().len();
    assert_eq!(rows(&store), 0);
    write(&mut store, GOOD, "told", at(20), Urgency::Normal);
    written.push("told".to_owned());
    // A whole entry of the same number, saved, signed and sealed as it should be.
    let no = written.len() as u64;
    let other = crate::schema::pack(&bailey_model::Entry {
        no,
        ts: at(20),
        event: Event::Gap(Gap {
            reason: "lied".to_owned(),
        }),
    });
    fail::spoil(Some(other.unwrap()));
    let refused = store.seal_all(at(2_000));
    let fault = BuildError::from(SegmentFault::NotSame).to_string();
    let said = match refused {
        Err(SealingError::Document {
            doc: GOOD, source, ..
        }) => source.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said, fault);
    assert_eq!((sealed(&store, GOOD), rows(&store)), (before, 1));
    assert_eq!(texts(&dir), written);
    // Once what saves is whole again, all of it is sealed, and the rows go.
    fail::spoil(None);
    store.seal_all(at(4_000)).unwrap();
    assert_eq!((sealed(&store, GOOD), rows(&store)), (before + 1, 0));
    assert_eq!(texts(&dir), written);
}
