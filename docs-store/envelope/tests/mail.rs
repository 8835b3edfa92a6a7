//! The format of a mailbox's blob is frozen in `vectors/mail-v1.txt`: a line is
//! `NAME TOPIC ENVELOPE BLOB`, all but the name in hex, no bytes being `-`; keys are
//! constants below.
//!
//! To write the file anew after a deliberate change of format:
//! `WRITE_VECTORS=1 cargo test -p bailey-envelope --test mail`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use bailey_envelope::{DeviceKeys, EpochKey, Inbox, MailKey, PairWay, verify_blob, week_of};
use bailey_model::AccountId;

const FILE: &str = include_str!("../vectors/mail-v1.txt");
/// A Wednesday.
const WEDNESDAY_MS: u64 = 1_800_000_000_000;

fn device(first: u8) -> DeviceKeys {
    DeviceKeys::generate(std::array::from_fn(|at| {
        first.wrapping_add(u8::try_from(at).unwrap())
    }))
}

fn inbox() -> MailKey {
    let inbox = Inbox {
        account: AccountId([0x11; 32]),
        from: device(0).id(),
        to: device(100).id(),
        week: week_of(WEDNESDAY_MS),
    };
    let key = MailKey::of_inbox(&device(0), &device(100).public(), &inbox).unwrap();
    let theirs = MailKey::of_inbox(&device(100), &device(0).public(), &inbox).unwrap();
    assert_eq!(key.topic(), theirs.topic());
    key
}

fn pair(way: PairWay) -> MailKey {
    MailKey::of_pairing(&[0x33; 10], &[0x44; 32], way)
}

fn cases() -> Vec<(&'static str, MailKey, Vec<u8>)> {
    let epoch = || MailKey::of_epoch(&EpochKey::generate([0x22; 32]));
    vec![
        ("epoch-empty", epoch(), Vec::new()),
        ("epoch-short", epoch(), b"an envelope".to_vec()),
        ("epoch-longest-of-1k", epoch(), vec![0xab; 878]),
        ("inbox", inbox(), b"a record".to_vec()),
        ("inbox-4k", inbox(), vec![0xcd; 879]),
        ("pair-to-host", pair(PairWay::ToHost), b"a piece".to_vec()),
        (
            "pair-to-joiner",
            pair(PairWay::ToJoiner),
            b"a piece".to_vec(),
        ),
    ]
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn lines() -> String {
    let line = |(name, key, envelope): (&str, MailKey, Vec<u8>)| {
        let blob = key.seal(&envelope).unwrap();
        format!(
            "{name} {} {} {}\n",
            key.topic(),
            if envelope.is_empty() {
                "-".to_owned()
            } else {
                to_hex(&envelope)
            },
            to_hex(&blob)
        )
    };
    cases().into_iter().map(line).collect()
}

/// After a deliberate change of format, `WRITE_VECTORS=1` writes them anew.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of whoever changes the format"
)]
fn blobs_are_as_they_were_frozen() {
    if std::env::var_os("WRITE_VECTORS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/mail-v1.txt");
        std::fs::write(path, lines()).unwrap();
    }
    assert_eq!(lines(), FILE);
    for (line, (name, key, envelope)) in FILE.lines().zip(cases()) {
        let hex = line.rsplit(' ').next().unwrap();
        let blob: Vec<u8> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        assert_eq!(verify_blob(&blob), Ok(key.topic()), "{name}");
        assert_eq!(key.open(&blob).unwrap(), envelope, "{name}");
    }
}
