//! The format is frozen in `vectors/v1.txt`: a line is
//! `NAME EXPECTED HEX`, where EXPECTED is `opens:PLAINTEXT-HEX` or `refused:WHY`.
//!
//! The generator below is deterministic (keys and nonces are constants) and
//! derives keys and bodies by itself where the library would refuse to make
//! what is bad. To write the file anew after a deliberate change of format:
//! `WRITE_VECTORS=1 cargo test -p bailey-envelope --test vectors`.

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

/// Fields of an envelope: a name for one that is cut in the middle of it, one for one
/// bit of it changed by somebody else, and where it stands.
const FIELDS: [(&str, &str, usize, usize); 20] = [
    ("cut-in-magic", "flip-in-magic", 0, 4),
    ("cut-in-version", "flip-in-version", 4, 5),
    ("cut-in-suite", "flip-in-suite", 5, 6),
    ("cut-in-header-length", "flip-in-header-length", 6, 8),
    ("cut-in-kind", "flip-in-kind", 8, 9),
    ("cut-in-account", "flip-in-account", 9, 41),
    ("cut-in-document", "flip-in-document", 41, 58),
    ("cut-in-segment", "flip-in-segment", 58, 62),
    ("cut-in-writer", "flip-in-writer", 62, 94),
    ("cut-in-incarnation", "flip-in-incarnation", 94, 110),
    ("cut-in-before", "flip-in-before", 110, 126),
    ("cut-in-seq", "flip-in-seq", 126, 134),
    ("cut-in-prev", "flip-in-prev", 134, 166),
    ("cut-in-epoch", "flip-in-epoch", 166, 170),
    ("cut-in-key-id", "flip-in-key-id", 170, 202),
    ("cut-in-nonce", "flip-in-nonce", 202, 226),
    ("cut-in-plain-length", "flip-in-plain-length", 226, 230),
    ("cut-in-padded-length", "flip-in-padded-length", 230, 234),
    ("cut-in-body", "flip-in-body", 234, 314),
    ("cut-in-signature", "flip-in-signature", 314, 378),
];

/// The order of the group, little endian (RFC 8032 §5.1).
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// The second signature that anybody makes of one by adding the order to its half.
fn with_the_order_added(good: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let half = bytes.len() - 32;
    let mut carry = 0;
    for (byte, add) in bytes[half..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = u8::try_from(sum & 0xff).unwrap();
        carry = sum >> 8;
    }
    assert_eq!(carry, 0);
    bytes
}

fn signed_message(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[HEADER_LEN..bytes.len() - 64];
    [
        &b"bailey/env/v1\0"[..],
        &bytes[..HEADER_LEN],
        &sha2::Sha256::digest(body),
    ]
    .concat()
}

/// Signed by the very writer, with the neutral element in the place of a random point.
fn with_r_of_small_order(good: &[u8]) -> Vec<u8> {
    use curve25519_dalek::Scalar;
    let mut r = [0; 32];
    r[0] = 1;
    let public = writer().public().ed25519;
    let challenge = sha2::Sha512::new()
        .chain_update(r)
        .chain_update(public)
        .chain_update(signed_message(good))
        .finalize();
    let challenge = Scalar::from_bytes_mod_order_wide(&challenge.into());
    let mut secret: [u8; 32] = sha2::Sha512::digest(*writer().ed25519_secret())[..32]
        .try_into()
        .unwrap();
    secret[0] &= 0xf8;
    secret[31] = secret[31] & 0x7f | 0x40;
    let s = challenge * Scalar::from_bytes_mod_order(secret);
    let unsigned = &good[..good.len() - 64];
    [unsigned, &r, s.as_bytes()].concat()
}

fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let good = sealed(fields(BOX), 1, b"an entry");
    let mut all = bad_by_hand(&good);
    let middle = |from: usize, to: usize| from + (to - from) / 2;
    all.extend(FIELDS.map(|(cut, _, from, to)| (cut, good[..middle(from, to)].to_vec())));
    all.extend(FIELDS.map(|(_, flip, from, to)| {
        let mut bytes = good.clone();
        bytes[middle(from, to)] ^= 1;
        (flip, bytes)
    }));
    all.extend([
        ("signature-s-plus-the-order", with_the_order_added(&good)),
        (
            "signature-with-r-of-small-order",
            with_r_of_small_order(&good),
        ),
        (
            "longer-than-an-envelope-may-be",
            resigned(&good, |head| {
                head[226..234].copy_from_slice(&[0, 0x10, 0, 0, 0, 0x10, 0, 0]);
            }),
        ),
        (
            "longest-that-can-be-said",
            resigned(&good, |head| head[226..234].fill(0xff)),
        ),
    ]);
    all
}

fn bad_by_hand(good: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let plain = sign_plain(&writer(), fields(DocId::Account), b"genesis")
        .unwrap()
        .bytes;
    let end = good.len();
    let flip = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let set = |at: usize, value: u8| resigned(good, move |head| head[at] = value);
    let fill =
        |from: usize, to: usize, value: u8| resigned(good, move |head| head[from..to].fill(value));
    vec![
        ("nothing", Vec::new()),
        ("header-cut", good[..HEADER_LEN - 1].to_vec()),
        ("signature-cut", good[..end - 1].to_vec()),
        ("one-byte-more", [good, &[0]].concat()),
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
            let mut bytes = good.to_vec();
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
            resigned(good, |head| head[61] = 2),
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
    assert_eq!((opened, refused), (10, 82));
}

/// What RFC 8032 alone, without the strictness here, would let through.
#[test]
fn what_a_lenient_verifier_takes_is_refused() {
    use ed25519_dalek::Verifier as _;
    let good = sealed(fields(BOX), 1, b"an entry");
    let bad = with_r_of_small_order(&good);
    let signature = bad.last_chunk::<64>().unwrap().into();
    let lenient = ed25519_dalek::VerifyingKey::from_bytes(&writer().public().ed25519).unwrap();
    assert!(lenient.verify(&signed_message(&bad), &signature).is_ok());
    assert!(verify(&bad, &writer().public()).is_err());
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
