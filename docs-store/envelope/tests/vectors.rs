//! The format is frozen in `vectors/v1.txt`: a line is
//! `NAME EXPECTED HEX`, where EXPECTED is `opens:PLAINTEXT-HEX` or `refused:WHY`.
//!
//! The generator below is deterministic (keys and nonces are constants) and
//! derives keys and bodies by itself where the library would refuse to make
//! what is bad. To write the file anew after a deliberate change of format:
//! `cargo test -p bailey-envelope --test vectors -- --ignored`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::too_many_lines, reason = "lists of vectors")]

use bailey_envelope::{
    ChainId, DeviceKeys, DocId, EpochKey, Fields, HEADER_LEN, Hash, Kind, peek, seal, sign_plain,
    verify,
};
use bailey_model::{AccountId, BoxId, Incarnation};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::Digest as _;

const FILE: &str = include_str!("../vectors/v1.txt");
const EPOCH_KEY: [u8; 32] = [0x22; 32];
const BOX: DocId = DocId::Box(BoxId([0x44; 16]));

fn writer() -> DeviceKeys {
    DeviceKeys::generate(std::array::from_fn(|at| u8::try_from(at).unwrap()))
}

fn fields(doc: DocId) -> Fields {
    Fields {
        account: AccountId([0x11; 32]),
        chain: ChainId {
            doc,
            writer: writer().id(),
            incarnation: Incarnation([0x33; 16]),
        },
        kind: if doc.is_plain() {
            Kind::Record
        } else {
            Kind::Tail
        },
        segment: 1,
        seq: 1,
        prev: Hash::NONE,
        before: None,
    }
}

fn sealed(fields: Fields, epoch: u32, plain: &[u8]) -> Vec<u8> {
    let key = EpochKey::generate(EPOCH_KEY).segment_key(fields.chain.doc, fields.segment);
    seal(&writer(), fields, epoch, &key, plain, [0x55; 24])
        .unwrap()
        .bytes
}

fn judge(bytes: &[u8]) -> String {
    let verified = match verify(bytes, &writer().public()) {
        Ok(verified) => verified,
        Err(error) => return format!("refused:{}", error.to_string().replace(' ', "_")),
    };
    let doc = verified.header.fields.chain.doc;
    let opened = if doc.is_plain() {
        verified.plain().map(<[u8]>::to_vec)
    } else {
        let key = EpochKey::generate(EPOCH_KEY).segment_key(doc, verified.header.fields.segment);
        verified.open(&key).map(|plain| plain.to_vec())
    };
    match opened {
        Ok(plain) => format!("opens:{}", to_hex(&plain)),
        Err(error) => format!("refused:{}", error.to_string().replace(' ', "_")),
    }
}

fn good() -> Vec<(&'static str, Vec<u8>)> {
    let later = Fields {
        seq: 2,
        prev: Hash([0x66; 32]),
        ..fields(BOX)
    };
    let restarted = Fields {
        prev: Hash([0x66; 32]),
        before: Some(Incarnation([0x77; 16])),
        ..fields(BOX)
    };
    let account = sign_plain(&writer(), fields(DocId::Account), b"genesis").unwrap();
    let keys = Fields {
        seq: 9,
        prev: Hash([0x66; 32]),
        ..fields(DocId::Keys)
    };
    vec![
        ("account-record", account.bytes),
        (
            "keys-record",
            sign_plain(&writer(), keys, &[0xab; 300]).unwrap().bytes,
        ),
        (
            "empty-plain-record",
            sign_plain(&writer(), fields(DocId::Account), b"")
                .unwrap()
                .bytes,
        ),
        ("first-of-box", sealed(fields(BOX), 1, b"an entry")),
        ("second-of-box", sealed(later, 1, &[0xcd; 65])),
        ("after-restart", sealed(restarted, 2, &[0xef; 1000])),
        (
            "closing-segment",
            sealed(
                Fields {
                    kind: Kind::Closed,
                    segment: 7,
                    ..later
                },
                3,
                b"last",
            ),
        ),
        (
            "heads",
            sealed(
                Fields {
                    kind: Kind::Head,
                    ..fields(DocId::Node)
                },
                1,
                b"heads",
            ),
        ),
        (
            "empty-sealed",
            sealed(fields(DocId::Notices), u32::MAX, b""),
        ),
        (
            "largest-numbers",
            sealed(
                Fields {
                    seq: i64::MAX.unsigned_abs(),
                    segment: i32::MAX.unsigned_abs(),
                    chain: ChainId {
                        doc: DocId::Requests,
                        ..later.chain
                    },
                    ..later
                },
                u32::MAX,
                b"far",
            ),
        ),
    ]
}

/// Header bytes changed, and the whole signed anew by the very writer.
fn resigned(good: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = good.to_vec();
    change(&mut bytes[..HEADER_LEN]);
    let body = bytes[HEADER_LEN..bytes.len() - 64].to_vec();
    signed(&bytes[..HEADER_LEN], &body)
}

fn signed(head: &[u8], body: &[u8]) -> Vec<u8> {
    let message = [head, &sha2::Sha256::digest(body)].concat();
    [head, body, &writer().sign("bailey/env/v1\0", &message)].concat()
}

/// A body that the writer sealed rightly, but whose padding says something.
fn with_dirty_padding() -> Vec<u8> {
    let good = sealed(fields(BOX), 1, b"an entry");
    let head = &good[..HEADER_LEN];
    let info = [&BOX.to_bytes()[..], &1_u32.to_be_bytes()].concat();
    let mut key = [0; 32];
    hkdf::Hkdf::<sha2::Sha256>::new(Some(b"bailey/segment/v1\0"), &EPOCH_KEY)
        .expand(&info, &mut key)
        .unwrap();
    let mut plain = b"an entry".to_vec();
    plain.resize(64, 0x99);
    let cipher = XChaCha20Poly1305::new((&key).into());
    let body = cipher.encrypt(
        &XNonce::from([0x55; 24]),
        Payload {
            msg: &plain,
            aad: head,
        },
    );
    signed(head, &body.unwrap())
}

fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let good = sealed(fields(BOX), 1, b"an entry");
    let plain = sign_plain(&writer(), fields(DocId::Account), b"genesis")
        .unwrap()
        .bytes;
    let end = good.len();
    let flip = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let set = |at: usize, value: u8| resigned(&good, move |head| head[at] = value);
    let fill =
        |from: usize, to: usize, value: u8| resigned(&good, move |head| head[from..to].fill(value));
    vec![
        ("nothing", Vec::new()),
        ("header-cut", good[..HEADER_LEN - 1].to_vec()),
        ("signature-cut", good[..end - 1].to_vec()),
        ("one-byte-more", [&good[..], &[0]].concat()),
        ("zeroes", vec![0; 301]),
        ("other-magic", set(0, b'X')),
        ("version-2", set(4, 2)),
        ("suite-0", set(5, 0)),
        ("suite-3", set(5, 3)),
        ("sealed-document-as-plain-suite", set(5, 1)),
        ("header-length", set(7, 0)),
        ("kind-0", set(8, 0)),
        ("kind-record-in-a-box", set(8, 4)),
        ("document-kind-9", set(41, 9)),
        ("id-where-there-is-none", set(41, 3)),
        ("segment-too-high", set(58, 0x80)),
        ("other-writer", fill(62, 94, 1)),
        ("incarnation-zero", fill(94, 110, 0)),
        ("before-without-prev", fill(110, 126, 7)),
        ("seq-zero", fill(126, 134, 0)),
        ("seq-too-high", fill(126, 134, 0xff)),
        ("prev-without-before", fill(134, 166, 7)),
        ("epoch-zero", fill(166, 170, 0)),
        ("other-key-id", fill(170, 202, 7)),
        ("other-nonce", fill(202, 226, 7)),
        ("plain-length-beyond-padding", fill(226, 230, 0xff)),
        ("padded-length-not-canonical", set(233, 65)),
        ("body-bit-flipped", flip(HEADER_LEN + 3)),
        ("account-bit-flipped", flip(10)),
        ("signature-bit-flipped", flip(end - 10)),
        ("signature-s-beyond-the-order", {
            let mut bytes = good.clone();
            bytes[end - 1] |= 0xe0;
            bytes
        }),
        ("dirty-padding", with_dirty_padding()),
        (
            "plain-record-with-epoch",
            resigned(&plain, |head| head[169] = 1),
        ),
        (
            "plain-record-with-nonce",
            resigned(&plain, |head| head[205] = 1),
        ),
        (
            "plain-record-with-key-id",
            resigned(&plain, |head| head[175] = 1),
        ),
        (
            "plain-record-padded",
            resigned(&plain, |head| head[233] = 8),
        ),
        (
            "moved-to-another-segment",
            resigned(&good, |head| head[61] = 2),
        ),
        ("moved-to-another-account", fill(9, 41, 1)),
    ]
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn render() -> String {
    good()
        .into_iter()
        .chain(bad())
        .map(|(name, bytes)| format!("{name} {} {}\n", judge(&bytes), to_hex(&bytes)))
        .collect()
}

#[test]
fn every_frozen_vector_is_judged_as_it_was() {
    let (mut opened, mut refused) = (0, 0);
    for line in FILE.lines() {
        let mut parts = line.splitn(3, ' ');
        let (name, expected) = (parts.next().unwrap(), parts.next().unwrap());
        let bytes = from_hex(parts.next().unwrap_or_default());
        assert_eq!(judge(&bytes), expected, "{name}");
        match expected.split(':').next().unwrap() {
            "opens" => {
                assert!(bytes.starts_with(&peek(&bytes).unwrap().encode()), "{name}");
                opened += 1;
            }
            _ => refused += 1,
        }
    }
    assert!(
        opened == 10 && refused >= 30,
        "{opened} good, {refused} bad"
    );
}

/// After a deliberate change of format, `WRITE_VECTORS=1` writes them anew.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of whoever changes the format"
)]
fn the_generator_still_makes_the_frozen_vectors() {
    if std::env::var_os("WRITE_VECTORS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/v1.txt");
        std::fs::write(path, render()).unwrap();
    }
    assert_eq!(render(), FILE);
}
