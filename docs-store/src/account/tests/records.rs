//! The bytes of records: frozen, and what is refused.

use bailey_envelope::{ChainId, DeviceKeys, DocId, Fields, Hash, Kind};
use bailey_model::Incarnation;

use super::rules::{account, device, genesis};
use crate::account::AddOffer;
use crate::account::record::{Act, Record, RecordError, Role};

/// A name and a record, in hexadecimal, a line.
const FROZEN: &str = include_str!("records.txt");

fn keys(no: u8) -> DeviceKeys {
    DeviceKeys::generate([no; 64])
}

fn fields(writer: u8, seq: u64) -> Fields {
    Fields {
        account: account(),
        chain: ChainId {
            doc: DocId::Account,
            writer: device(writer).id(),
            incarnation: Incarnation([writer; 16]),
        },
        kind: Kind::Record,
        segment: 0,
        seq,
        prev: if seq == 1 { Hash::NONE } else { Hash([9; 32]) },
        before: None,
    }
}

/// Every act, by the place it stands in.
fn every() -> Vec<(&'static str, Fields, Record)> {
    let seen = vec![Hash([1; 32]), Hash([2; 32])];
    let (_, begun) = Record::genesis(genesis(), &keys(200)).unwrap();
    let at = fields(1, 2);
    let offer = AddOffer::new(&at, device(2), Role::Stop, seen.clone());
    let added = offer.record(offer.sign(&keys(2)).unwrap()).unwrap();
    let plain = |act| Record::plain(act, seen.clone());
    let mut gone = vec![device(2).id(), device(3).id()];
    gone.sort_unstable();
    let kept = vec![(device(4), Role::Full), (device(1), Role::Watch)];
    let by_recovery = fields(200, 1);
    let reset = Record::reset(&by_recovery, kept, device(201), seen.clone(), &keys(4)).unwrap();
    vec![
        ("genesis", fields(1, 1), begun),
        ("add", at, added),
        (
            "role",
            fields(1, 3),
            plain(Act::Role {
                device: device(2).id(),
                role: Role::Runs,
            }),
        ),
        ("remove", fields(1, 4), plain(Act::Remove { devices: gone })),
        (
            "leave",
            fields(3, 1),
            plain(Act::Remove {
                devices: vec![device(3).id()],
            }),
        ),
        (
            "ack",
            fields(4, 1),
            plain(Act::Ack {
                removal: Hash([7; 32]),
            }),
        ),
        ("reset", by_recovery, reset),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn records_are_the_bytes_that_they_were() {
    let now = every().into_iter().map(|(name, fields, record)| {
        let body = record.encode().unwrap();
        assert_eq!(Record::decode(&body).as_ref(), Ok(&record), "{name}");
        assert_eq!(record.check(&fields), Ok(()), "{name}");
        format!("{name} {}\n", hex(&body))
    });
    let now: String = now.collect();
    assert_eq!(
        now, FROZEN,
        "records changed: every stored account is another"
    );
}

#[test]
fn every_cut_and_every_longer_record_is_refused() {
    for (name, _, record) in every() {
        let body = record.encode().unwrap();
        for end in 0..body.len() {
            assert!(Record::decode(&body[..end]).is_err(), "{name} {end}");
        }
        let longer = [&body[..], &[0]].concat();
        assert_eq!(
            Record::decode(&longer),
            Err(RecordError::Malformed),
            "{name}"
        );
        for (at, newer) in [(0, 2), (1, 7), (1, 0), (1, 255)] {
            let mut bytes = body.clone();
            bytes[at] = newer;
            assert_eq!(Record::decode(&bytes), Err(RecordError::Newer), "{name}");
        }
    }
}

#[test]
fn a_second_signature_holds_for_one_record_in_one_place() {
    let cosigned = |name: &str| ["genesis", "add", "reset"].contains(&name);
    for (name, place, record) in every().into_iter().filter(|(name, ..)| cosigned(name)) {
        let mut bad = record.clone();
        bad.cosignature[5] ^= 1;
        assert_eq!(bad.check(&place), Err(RecordError::Cosignature), "{name}");
        if name != "genesis" {
            for other in [fields(1, 7), fields(3, 1), fields(200, 2)] {
                assert_eq!(
                    record.check(&other),
                    Err(RecordError::Cosignature),
                    "{name}"
                );
            }
            let mut bad = record.clone();
            bad.seen.pop();
            assert_eq!(bad.check(&place), Err(RecordError::Cosignature), "{name}");
        }
    }
}

#[test]
fn what_an_act_must_name_and_may_not_have_is_looked_at() {
    let sound = |act| Record::decode(&Record::plain(act, Vec::new()).encode().unwrap()).is_ok();
    let ids = |numbers: &[u8]| {
        let mut ids: Vec<_> = numbers.iter().map(|no| device(*no).id()).collect();
        ids.sort_unstable();
        ids
    };
    assert!(sound(Act::Remove {
        devices: ids(&[1, 2])
    }));
    assert!(!sound(Act::Remove { devices: vec![] }));
    assert!(!sound(Act::Remove {
        devices: ids(&[1, 1])
    }));
    let mut turned = ids(&[1, 2]);
    turned.reverse();
    assert!(!sound(Act::Remove { devices: turned }));
    let many: Vec<u8> = (0..65).collect();
    assert!(!sound(Act::Remove {
        devices: ids(&many)
    }));
    let reset = |kept| {
        sound(Act::Reset {
            kept,
            recovery: device(201),
        })
    };
    assert!(reset(vec![(device(1), Role::Full)]));
    assert!(!reset(vec![]));
    assert!(!reset(vec![
        (device(1), Role::Full),
        (device(1), Role::Watch)
    ]));
    // A signature where none belongs.
    let mut record = Record::plain(
        Act::Ack {
            removal: Hash([7; 32]),
        },
        Vec::new(),
    );
    record.cosignature[0] = 1;
    let body = record.encode().unwrap();
    assert_eq!(Record::decode(&body), Err(RecordError::Malformed));
}
