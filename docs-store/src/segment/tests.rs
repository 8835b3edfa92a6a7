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

#[test]
fn changes_carry_their_entries_in_order() {
    let mut ours = Segment::new(&chain());
    let mut theirs = Segment::new(&chain());
    for round in 0..5 {
        let batch = entries(round * 10, round * 10 + 10);
        let body = ours.append(&batch, 720, Timestamp(1)).unwrap();
        let (next, got) = theirs.apply(&body, &chain()).unwrap();
        assert_eq!(got, batch);
        theirs = next;
    }
    assert_eq!(theirs.len(), 50);
    assert_eq!(ours.doc.get_heads(), theirs.doc.get_heads());
}

#[test]
fn equal_entries_make_equal_bytes() {
    let make = || {
        Segment::new(&chain())
            .append(&entries(0, 9), 720, Timestamp(7_000))
            .unwrap()
    };
    assert_eq!(make(), make());
}

#[test]
fn a_change_of_another_actor_or_out_of_order_is_refused() {
    let mut ours = Segment::new(&chain());
    let first = ours.append(&entries(0, 2), 720, Timestamp(1)).unwrap();
    let second = ours.append(&entries(2, 4), 720, Timestamp(1)).unwrap();
    let other = ChainId {
        incarnation: Incarnation([3; 16]),
        ..chain()
    };
    let fresh = || Segment::new(&chain());
    assert_eq!(
        fresh().apply(&first, &other).unwrap_err(),
        SegmentFault::Actor
    );
    assert_eq!(
        fresh().apply(&second, &chain()).unwrap_err(),
        SegmentFault::Order
    );
    let (after, _) = fresh().apply(&first, &chain()).unwrap();
    assert_eq!(
        after.apply(&first, &chain()).unwrap_err(),
        SegmentFault::Order
    );
}

#[test]
fn a_change_that_edits_or_adds_elsewhere_is_refused() {
    let change = |edit: fn(&mut AutoCommit, &ObjId)| {
        let mut ours = Segment::new(&chain());
        let first = ours.append(&entries(0, 4), 720, Timestamp(1)).unwrap();
        let list = ours.list.clone().unwrap();
        edit(&mut ours.doc, &list);
        ours.doc.commit();
        let body = body_of(None, ours.doc.get_last_local_change().unwrap().raw_bytes());
        let (theirs, _) = Segment::new(&chain()).apply(&first, &chain()).unwrap();
        theirs.apply(&body, &chain()).map(|_| ())
    };
    let deletes = change(|doc, list| doc.delete(list, 1).unwrap());
    assert_eq!(deletes, Err(SegmentFault::NotAppending));
    let overwrites = change(|doc, list| doc.put(list, 1, ScalarValue::Bytes(vec![9])).unwrap());
    assert_eq!(overwrites, Err(SegmentFault::NotAppending));
    let elsewhere = change(|doc, _| doc.put(ROOT, "x", 1).unwrap());
    assert_eq!(elsewhere, Err(SegmentFault::NotAppending));
    let no_bytes = change(|doc, list| doc.insert(list, 4, "text").unwrap());
    assert_eq!(no_bytes, Err(SegmentFault::Entry));
    let replaces_list = change(|doc, _| {
        doc.put_object(ROOT, LIST, ObjType::List).unwrap();
    });
    assert_eq!(replaces_list, Err(SegmentFault::NotAppending));
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
        Segment::new(&chain()).apply(&bomb, &chain()).unwrap_err(),
        SegmentFault::Inflates
    );
}

#[test]
fn a_change_that_automerge_would_inflate_itself_is_refused() {
    let mut ours = Segment::new(&chain());
    ours.append(&entries(0, 50), 720, Timestamp(1)).unwrap();
    let compressed = ours
        .doc
        .get_last_local_change()
        .unwrap()
        .bytes()
        .into_owned();
    assert_eq!(compressed[CHUNK_TYPE_AT], 2);
    let body = [&[VERSION, RAW], &compressed[..]].concat();
    assert_eq!(
        Segment::new(&chain()).apply(&body, &chain()).unwrap_err(),
        SegmentFault::Change
    );
    assert_eq!(
        Segment::new(&chain()).apply(&[], &chain()).unwrap_err(),
        SegmentFault::Body
    );
    assert_eq!(
        Segment::new(&chain())
            .apply(&[9, 0, 1], &chain())
            .unwrap_err(),
        SegmentFault::Version(9)
    );
}

/// Mutations with the chunk's checksum repaired: they reach the parser's depth.
#[test]
fn mutated_changes_never_escape() {
    let mut ours = Segment::new(&chain());
    let body = ours.append(&entries(0, 20), 720, Timestamp(1)).unwrap();
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
