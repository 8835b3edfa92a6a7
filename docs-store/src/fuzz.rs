//! Fuzz targets: decoders of what a member, or a file, says. Each must return for
//! any bytes, and what it takes must encode back to them.

use bailey_envelope::{DeviceKeys, DocId, EpochKey, Hash, KeyId, open_row, seal_row};
use bailey_model::AccountId;

use crate::account::{Act, Genesis, Record, Role};
use crate::keys::{Epoch, KeyRecord};
use crate::schema::{pack, unpack};

/// A packed entry: one that is taken, of a known kind or not, packs and reads back.
///
/// # Panics
/// If it does not.
pub fn entry(packed: &[u8]) {
    let Ok(entry) = unpack(packed) else { return };
    let Ok(again) = pack(&entry) else { return };
    assert_eq!(
        unpack(&again).as_ref(),
        Ok(&entry),
        "an entry that does not read back"
    );
}

/// A row of the journal: as it is, and as the plain text of one whose seal holds.
///
/// # Panics
/// If a row is opened that was not sealed so.
pub fn row(bytes: &[u8]) {
    let key = EpochKey::generate([2; 32]).segment_key(DocId::Node, 1);
    assert!(
        open_row(&key, 1, 1, bytes).is_err(),
        "a row that nobody sealed was opened"
    );
    if let Some(sealed) = seal_row(&key, 1, 1, bytes, [6; 24]) {
        let opened = open_row(&key, 1, 1, &sealed);
        assert!(
            opened.is_ok_and(|opened| opened[..] == *bytes),
            "a sealed row does not open"
        );
        assert!(
            open_row(&key, 2, 1, &sealed).is_err() && open_row(&key, 1, 2, &sealed).is_err(),
            "a row was opened in another's place"
        );
    }
    crate::journal::fuzz_plain(bytes);
    entry(bytes);
}

/// A record of the keys' document.
///
/// # Panics
/// If one that is taken does not encode back.
pub fn key_record(body: &[u8]) {
    if let Ok(record) = KeyRecord::decode(body) {
        let again = record.encode();
        let read = again.map(|again| KeyRecord::decode(&again));
        assert_eq!(
            read,
            Some(Ok(record)),
            "a key record that does not read back"
        );
    }
}

/// A record of the account's document.
///
/// # Panics
/// If one that is taken does not encode back.
pub fn account_record(body: &[u8]) {
    if let Ok(record) = Record::decode(body) {
        let again = record.encode();
        let read = again.map(|again| Record::decode(&again).is_ok());
        assert_eq!(
            read,
            Some(true),
            "an account record that does not read back"
        );
    }
}

/// Well-formed key records.
#[must_use]
pub fn key_records() -> Vec<Vec<u8>> {
    let epoch = Epoch {
        number: 3,
        key_id: KeyId([4; 32]),
        made: 1_796_000_000_000,
    };
    let record = |epoch, hours| KeyRecord {
        epoch,
        hours,
        membership: vec![Hash([1; 32]), Hash([2; 32])],
        wraps: Vec::new(),
    };
    let records = [
        record(Some(epoch), 0),
        record(Some(epoch), 720),
        record(None, 0),
    ];
    records.iter().filter_map(KeyRecord::encode).collect()
}

/// Well-formed account records.
#[must_use]
pub fn account_records() -> Vec<Vec<u8>> {
    let recovery = DeviceKeys::generate([5; 64]);
    let genesis = Genesis {
        recovery: recovery.public(),
        first: DeviceKeys::generate([1; 64]).public(),
        window_days: 30,
        salt: [7; 16],
    };
    let begun: Option<(AccountId, Record)> = Record::genesis(genesis, &recovery);
    let device = genesis.first.id();
    let role = Role::Watch;
    let acts = [
        Act::Add {
            device: genesis.first,
            role,
        },
        Act::Role { device, role },
        Act::Remove {
            devices: vec![device],
        },
        Act::Ack {
            removal: Hash([3; 32]),
        },
        Act::Reset {
            kept: vec![(genesis.first, role)],
            recovery: recovery.public(),
        },
    ];
    let seen = vec![Hash([1; 32]), Hash([2; 32])];
    let others = acts.into_iter().map(|act| Record::plain(act, seen.clone()));
    let all = begun.map(|(_, record)| record).into_iter().chain(others);
    all.filter_map(|record| record.encode()).collect()
}
