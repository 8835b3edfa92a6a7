use automerge::transaction::{CommitOptions, Transactable as _};
use automerge::{AutoCommit, ObjId, ROOT, ReadDoc as _, Value};
use bailey_envelope::DocId;
use bailey_model::{DeviceId, Incarnation};
use proptest::prelude::*;

use super::*;

fn chain() -> ChainId {
    ChainId {
        doc: DocId::Node,
        writer: DeviceId([1; 32]),
        incarnation: Incarnation([2; 16]),
    }
}

fn entries(from: u8, to: u8) -> Vec<Vec<u8>> {
    (from..to).map(|no| vec![no; 40]).collect()
}

/// Automerge's own document, under a chain's actor.
fn document() -> AutoCommit {
    AutoCommit::new().with_actor(actor_of(&chain()))
}

/// The list of Automerge's own document, in order.
fn listed(document: &AutoCommit) -> Vec<Vec<u8>> {
    let (_, list) = document.get(ROOT, LIST).unwrap().unwrap();
    (0..document.length(&list))
        .map(|at| match document.get(&list, at).unwrap().unwrap() {
            (Value::Scalar(value), _) => value.as_bytes().unwrap().to_vec(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn changes_carry_their_entries_in_order() {
    let mut ours = Segment::new(&chain());
    let mut theirs = Segment::new(&chain());
    for round in 0..5 {
        let batch = entries(round * 10, round * 10 + 10);
        let body = ours.append(&batch, 720, Timestamp(1));
        assert_eq!(theirs.apply(&body).unwrap(), batch);
    }
    assert_eq!((ours.len(), theirs.len()), (50, 50));
    assert_eq!(theirs.hours(), Some(720));
    assert_eq!(ours.head, theirs.head);
}

proptest! {
    /// What is written is to the byte what Automerge's own document writes, and is
    /// read alike by both.
    #[test]
    fn a_segment_is_the_document_that_automerge_makes(
        batches in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..20),
            1..8,
        ),
    ) {
        let (mut ours, mut theirs) = (Segment::new(&chain()), Segment::new(&chain()));
        let (mut writer, mut reader) = (document(), AutoCommit::new());
        let mut list = None;
        for (at, batch) in batches.iter().enumerate() {
            let body = ours.append(batch, 720, Timestamp(7_000));
            let (_, raw) = change_of(&body).unwrap();
            prop_assert_eq!(&theirs.apply(&body).unwrap(), batch);

            let list = list.get_or_insert_with(|| {
                writer.put_object(ROOT, LIST, ObjType::List).unwrap()
            });
            for entry in batch {
                let len = writer.length(&*list);
                writer.insert(&*list, len, ScalarValue::Bytes(entry.clone())).unwrap();
            }
            writer.commit_with(CommitOptions::default().with_time(7));
            let change = writer.get_last_local_change().unwrap();
            prop_assert_eq!(change.raw_bytes(), &raw[..]);

            reader.apply_changes([Change::from_bytes(raw).unwrap()]).unwrap();
            prop_assert_eq!(listed(&reader), batches[..=at].concat());
        }
        prop_assert_eq!(ours.len(), listed(&reader).len());
        let saved = AutoCommit::load(&reader.save()).unwrap();
        prop_assert_eq!(listed(&saved), batches.concat());
    }
}

#[test]
fn equal_entries_make_equal_bytes() {
    let make = || Segment::new(&chain()).append(&entries(0, 9), 720, Timestamp(7_000));
    assert_eq!(make(), make());
}

#[test]
fn a_change_of_another_actor_or_out_of_order_is_refused() {
    let mut ours = Segment::new(&chain());
    let first = ours.append(&entries(0, 2), 720, Timestamp(1));
    let second = ours.append(&entries(2, 4), 720, Timestamp(1));
    let mut other = Segment::new(&ChainId {
        incarnation: Incarnation([3; 16]),
        ..chain()
    });
    assert_eq!(other.apply(&first), Err(SegmentFault::Actor));
    let mut theirs = Segment::new(&chain());
    assert_eq!(theirs.apply(&second), Err(SegmentFault::Order));
    theirs.apply(&first).unwrap();
    assert_eq!(theirs.apply(&first), Err(SegmentFault::Order));
    // What was refused has changed nothing.
    assert_eq!(theirs.apply(&second), Ok(entries(2, 4)));
}

#[test]
fn a_change_that_edits_or_adds_elsewhere_is_refused() {
    let change = |edit: fn(&mut AutoCommit, &ObjId)| {
        let first = Segment::new(&chain()).append(&entries(0, 4), 720, Timestamp(1));
        let mut liar = document();
        let (_, raw) = change_of(&first).unwrap();
        liar.apply_changes([Change::from_bytes(raw).unwrap()])
            .unwrap();
        let (_, list) = liar.get(ROOT, LIST).unwrap().unwrap();
        edit(&mut liar, &list);
        liar.commit();
        let body = body_of(None, liar.get_last_local_change().unwrap().raw_bytes());
        let mut theirs = Segment::new(&chain());
        theirs.apply(&first).unwrap();
        theirs.apply(&body).map(|_| ())
    };
    let deletes = change(|doc, list| doc.delete(list, 1).unwrap());
    assert_eq!(deletes, Err(SegmentFault::NotAppending));
    let overwrites = change(|doc, list| doc.put(list, 1, ScalarValue::Bytes(vec![9])).unwrap());
    assert_eq!(overwrites, Err(SegmentFault::NotAppending));
    let before = change(|doc, list| doc.insert(list, 3, ScalarValue::Bytes(vec![9])).unwrap());
    assert_eq!(before, Err(SegmentFault::NotAppending));
    let elsewhere = change(|doc, _| doc.put(ROOT, "x", 1).unwrap());
    assert_eq!(elsewhere, Err(SegmentFault::NotAppending));
    let no_bytes = change(|doc, list| doc.insert(list, 4, "text").unwrap());
    assert_eq!(no_bytes, Err(SegmentFault::Entry));
    let replaces_list = change(|doc, _| {
        doc.put_object(ROOT, LIST, ObjType::List).unwrap();
    });
    assert_eq!(replaces_list, Err(SegmentFault::NotAppending));
    let appends = change(|doc, list| doc.insert(list, 4, ScalarValue::Bytes(vec![9])).unwrap());
    assert_eq!(appends, Ok(()));
}

#[test]
fn a_body_that_inflates_without_end_is_refused() {
    let zeros = vec![0; 64 * MAX_INFLATED];
    let mut bomb = vec![VERSION, DEFLATED];
    flate2::read::DeflateEncoder::new(&zeros[..], flate2::Compression::best())
        .read_to_end(&mut bomb)
        .unwrap();
    assert!(bomb.len() < 256 * 1024);
    assert_eq!(
        Segment::new(&chain()).apply(&bomb),
        Err(SegmentFault::Inflates)
    );
}

#[test]
fn a_change_that_automerge_would_inflate_itself_is_refused() {
    let body = Segment::new(&chain()).append(&entries(0, 50), 720, Timestamp(1));
    let (_, raw) = change_of(&body).unwrap();
    let compressed = Change::from_bytes(raw).unwrap().bytes().into_owned();
    assert_eq!(compressed[CHUNK_TYPE_AT], 2);
    let body = [&[VERSION, RAW], &compressed[..]].concat();
    let mut fresh = Segment::new(&chain());
    assert_eq!(fresh.apply(&body), Err(SegmentFault::Change));
    assert_eq!(fresh.apply(&[]), Err(SegmentFault::Body));
    assert_eq!(fresh.apply(&[9, 0, 1]), Err(SegmentFault::Version(9)));
}

/// Mutations with the chunk's checksum repaired: they reach the parser's depth.
#[test]
fn mutated_changes_never_escape() {
    let body = Segment::new(&chain()).append(&entries(0, 20), 720, Timestamp(1));
    let (_, good) = change_of(&body).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2000));
    let result = runner.run(
        &proptest::collection::vec((9..good.len(), any::<u8>()), 1..5),
        |edits| {
            let mut bytes = good.clone();
            for (at, value) in edits {
                bytes[at] = value;
            }
            let hash = Sha256::digest(&bytes[CHUNK_TYPE_AT..]);
            bytes[4..8].copy_from_slice(&hash[..4]);
            fuzz_body(&[&[VERSION, RAW], &bytes[..]].concat());
            Ok(())
        },
    );
    result.unwrap();
}
