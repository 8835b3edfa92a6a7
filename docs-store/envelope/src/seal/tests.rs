use bailey_model::{AccountId, BoxId, Incarnation};
use proptest::prelude::*;

use super::*;
use crate::standard_tests::{XCHACHA, bytes, fixed, rfc, rows};
use crate::{ChainId, EpochKey, Kind, MAX_ENVELOPE, TAG_LEN};

fn writer() -> DeviceKeys {
    DeviceKeys::generate([1; 64])
}

fn fields(doc: DocId) -> Fields {
    Fields {
        account: AccountId([2; 32]),
        chain: ChainId {
            doc,
            writer: writer().id(),
            incarnation: Incarnation([3; 16]),
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

const DOC: DocId = DocId::Box(BoxId([4; 16]));

fn segment_key() -> SegmentKey {
    EpochKey::generate([5; 32]).segment_key(DOC, 1)
}

fn sealed(plain: &[u8]) -> Sealed {
    seal(&writer(), fields(DOC), 7, &segment_key(), plain, [6; 24]).unwrap()
}

#[test]
fn the_cipher_is_that_of_the_draft() {
    for row in rfc("xchacha") {
        let key = SegmentKey::of_bytes(fixed(row[0]));
        let (nonce, aad) = (fixed(row[1]), bytes(row[2]));
        let sealed = encrypt(&key, &nonce, &bytes(row[3]), &aad).unwrap();
        assert_eq!(sealed, bytes(row[4]));
        assert_eq!(
            *decrypt(&key, &nonce, &sealed, &aad).unwrap(),
            bytes(row[3])
        );
        for at in 0..sealed.len() {
            let mut other = sealed.clone();
            other[at] ^= 0x80;
            assert_eq!(decrypt(&key, &nonce, &other, &aad), None, "{at}");
        }
    }
}

/// A nonce of another length than 24 bytes has no form here.
#[test]
fn the_cipher_is_as_wycheproof_says() {
    let (mut valid, mut invalid, mut of_other_nonce) = (0, 0, 0);
    for row in rows(XCHACHA) {
        let key = SegmentKey::of_bytes(fixed(row[2]));
        let (aad, plain, sealed) = (bytes(row[4]), bytes(row[5]), bytes(row[6]));
        let Ok(nonce) = <[u8; 24]>::try_from(bytes(row[3])) else {
            assert_eq!(row[1], "invalid", "{}", row[0]);
            of_other_nonce += 1;
            continue;
        };
        let opened = decrypt(&key, &nonce, &sealed, &aad);
        if row[1] == "valid" {
            assert_eq!(opened.as_deref(), Some(&plain), "{}", row[0]);
            let made = encrypt(&key, &nonce, &plain, &aad);
            assert_eq!(made, Some(sealed), "{}", row[0]);
            valid += 1;
        } else {
            assert_eq!(opened, None, "{}", row[0]);
            invalid += 1;
        }
    }
    assert_eq!((valid, invalid, of_other_nonce), (246, 60, 9));
}

#[test]
fn what_is_sealed_opens_with_its_key_only() {
    let envelope = sealed(b"an entry");
    let verified = verify(&envelope.bytes, &writer().public()).unwrap();
    assert_eq!(verified.hash, envelope.hash);
    assert_eq!(
        verified.open(&segment_key()).unwrap().as_slice(),
        b"an entry"
    );
    assert_eq!(verified.plain(), Err(OpenError::Suite));
    for other in [
        EpochKey::generate([5; 32]).segment_key(DOC, 2),
        EpochKey::generate([5; 32]).segment_key(DocId::Node, 1),
        EpochKey::generate([8; 32]).segment_key(DOC, 1),
    ] {
        assert_eq!(verified.open(&other), Err(OpenError::WrongKey));
    }
}

#[test]
fn an_envelope_under_a_name_of_another_key_does_not_open() {
    // A writer that lies about which key it used: the tag does not hold.
    let other = EpochKey::generate([8; 32]).segment_key(DOC, 1);
    let envelope = sealed(b"an entry");
    let verified = verify(&envelope.bytes, &writer().public()).unwrap();
    let mut lying = verified;
    lying.header.key_id = other.epoch_key();
    assert_eq!(lying.open(&other), Err(OpenError::Forged));
}

#[test]
fn any_flipped_bit_is_refused() {
    let (envelope, public) = (sealed(&[7; 100]), writer().public());
    for at in 0..envelope.bytes.len() {
        let mut bytes = envelope.bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(verify(&bytes, &public).is_err(), "byte {at}");
    }
}

#[test]
fn an_envelope_of_another_writer_is_refused() {
    let envelope = sealed(b"x");
    let other = DeviceKeys::generate([11; 64]).public();
    assert!(matches!(
        verify(&envelope.bytes, &other),
        Err(VerifyError::Writer { .. })
    ));
    let claimed = Fields {
        chain: ChainId {
            writer: other.id(),
            ..fields(DOC).chain
        },
        ..fields(DOC)
    };
    assert_eq!(
        seal(&writer(), claimed, 7, &segment_key(), b"x", [6; 24]),
        Err(SealError::Field("writer"))
    );
}

#[test]
fn plain_documents_are_signed_and_sealed_ones_are_never_plain() {
    let record = sign_plain(&writer(), fields(DocId::Account), b"record").unwrap();
    let verified = verify(&record.bytes, &writer().public()).unwrap();
    assert_eq!(verified.plain(), Ok(&b"record"[..]));
    assert_eq!(
        sign_plain(&writer(), fields(DOC), b"x"),
        Err(SealError::Field("suite"))
    );
    let key = EpochKey::generate([5; 32]).segment_key(DocId::Account, 1);
    assert_eq!(
        seal(&writer(), fields(DocId::Account), 7, &key, b"x", [6; 24]),
        Err(SealError::Field("suite"))
    );
}

#[test]
fn the_largest_plaintext_fits_and_one_more_byte_does_not() {
    let largest = (0..=u32::try_from(MAX_PLAINTEXT).unwrap())
        .rev()
        .find(|&len| usize::try_from(padded_len(len)).unwrap() <= MAX_PLAINTEXT)
        .unwrap();
    let largest = usize::try_from(largest).unwrap();
    assert!(sealed(&vec![1; largest]).bytes.len() <= MAX_ENVELOPE);
    let over = seal(
        &writer(),
        fields(DOC),
        7,
        &segment_key(),
        &vec![1; largest + 1],
        [6; 24],
    );
    assert_eq!(over, Err(SealError::TooLarge(largest + 1)));
}

#[test]
fn padding_adds_at_most_an_eighth_and_hides_the_last_bits() {
    for len in [
        0,
        1,
        63,
        64,
        65,
        100,
        1000,
        4096,
        100_000,
        MAX_PLAINTEXT.try_into().unwrap(),
    ] {
        let padded = padded_len(len);
        assert!(padded >= len.max(64));
        assert!(padded <= 64 || padded - len <= len / 8, "{len} -> {padded}");
        assert_eq!(padded_len(padded), padded);
    }
    assert_eq!(padded_len(2100), padded_len(2200));
}

#[test]
fn a_journal_row_opens_in_its_own_place_only() {
    let row = seal_row(&segment_key(), 5, 2, b"entry", [1; 24]).unwrap();
    assert_eq!(row.len(), 24 + 5 + TAG_LEN);
    assert_eq!(
        open_row(&segment_key(), 5, 2, &row).unwrap().as_slice(),
        b"entry"
    );
    assert_eq!(open_row(&segment_key(), 6, 2, &row), Err(OpenError::Forged));
    assert_eq!(open_row(&segment_key(), 5, 1, &row), Err(OpenError::Forged));
    assert_eq!(
        open_row_of_one(&segment_key(), 5, &row),
        Err(OpenError::Forged)
    );
    let other = EpochKey::generate([5; 32]).segment_key(DOC, 2);
    assert_eq!(open_row(&other, 5, 2, &row), Err(OpenError::Forged));
    assert_eq!(
        open_row(&segment_key(), 5, 2, &row[..23]),
        Err(OpenError::Forged)
    );
}

#[test]
fn random_bytes_and_mutated_envelopes_never_panic_a_decoder() {
    proptest!(|(mut bytes in proptest::collection::vec(any::<u8>(), 0..600))| {
        crate::fuzz::envelope(&bytes);
        let head = sealed(b"x").bytes;
        let shared = bytes.len().min(6);
        bytes[..shared].copy_from_slice(&head[..shared]);
        crate::fuzz::envelope(&bytes);
    });
    let good = sealed(&[9; 80]).bytes;
    proptest!(|(edits in proptest::collection::vec((0..good.len(), any::<u8>()), 1..6),
                cut in 0..good.len() + 40)| {
        let mut bytes = good.clone();
        for (at, value) in edits {
            bytes[at] = value;
        }
        bytes.resize(cut, 0);
        crate::fuzz::envelope(&bytes);
    });
}

#[test]
fn any_plaintext_and_place_round_trips() {
    proptest!(|(plain in proptest::collection::vec(any::<u8>(), 0..3000),
                seq in 2_u64..1_000_000, segment in 0_u32..5000, epoch in 1_u32..)| {
        let fields = Fields { seq, segment, prev: Hash([1; 32]), ..fields(DOC) };
        let key = EpochKey::generate([5; 32]).segment_key(DOC, segment);
        let envelope = seal(&writer(), fields, epoch, &key, &plain, [6; 24]).unwrap();
        let verified = verify(&envelope.bytes, &writer().public()).unwrap();
        prop_assert_eq!(verified.header.fields, fields);
        prop_assert_eq!(verified.header.epoch, epoch);
        let opened = verified.open(&key).unwrap();
        prop_assert_eq!(opened.as_slice(), plain.as_slice());
    });
}
