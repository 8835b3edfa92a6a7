use proptest::prelude::*;

use super::*;
use crate::KeyId;

fn device(n: u8) -> DeviceKeys {
    DeviceKeys::generate([n; 64])
}

fn topic(n: u8) -> MailKey {
    MailKey::of_epoch(&EpochKey::generate([n; 32]))
}

fn inbox(from: &DeviceKeys, to: &DeviceKeys, week: u64) -> Inbox {
    Inbox {
        account: AccountId([9; 32]),
        from: from.id(),
        to: to.id(),
        week,
    }
}

/// A blob whose every part is as asked, signed by its topic.
fn made(key: &MailKey, size: u8, whole: usize, plain: &[u8], nonce: [u8; 24]) -> Vec<u8> {
    let head = head(size, &key.topic(), &nonce);
    let mut padded = plain.to_vec();
    padded.resize(whole - (OVERHEAD - LENGTH_LEN), 0);
    let payload = Payload {
        msg: &padded,
        aad: &head,
    };
    let body = XChaCha20Poly1305::new((&key.seal).into())
        .encrypt(&XNonce::from(nonce), payload)
        .unwrap();
    let signature = key.signing().sign(&signed_message(&head, &body));
    [&head[..], &body, &signature.to_bytes()].concat()
}

#[test]
fn a_blob_has_one_of_five_sizes_and_the_least_that_fits() {
    for (at, size) in BLOB_SIZES.into_iter().enumerate() {
        let longest = size - OVERHEAD;
        let blob = topic(1).seal(&vec![3; longest]).unwrap();
        assert_eq!(blob.len(), size);
        let next = topic(1).seal(&vec![3; longest + 1]);
        match BLOB_SIZES.get(at + 1) {
            Some(larger) => assert_eq!(next.unwrap().len(), *larger),
            None => assert_eq!(next, Err(MailSealError::TooLarge(longest + 1))),
        }
    }
}

#[test]
fn sealing_twice_gives_the_same_bytes_and_another_envelope_another_nonce() {
    let key = topic(1);
    assert_eq!(key.seal(b"one"), key.seal(b"one"));
    let (one, two) = (key.seal(b"one").unwrap(), key.seal(b"two").unwrap());
    assert_ne!(one[38..62], two[38..62]);
    assert_ne!(one[38..62], topic(2).seal(b"one").unwrap()[38..62]);
}

#[test]
fn both_ends_of_an_inbox_find_it_and_nobody_else_does() {
    let (a, b, c) = (device(1), device(2), device(3));
    let this = inbox(&a, &b, 2900);
    let of = |keys: &DeviceKeys, peer: &DeviceKeys, inbox: &Inbox| {
        MailKey::of_inbox(keys, &peer.public(), inbox).unwrap()
    };
    let blob = of(&a, &b, &this).seal(b"a wrap").unwrap();
    assert_eq!(of(&b, &a, &this).open(&blob).unwrap(), b"a wrap");
    // The other way, another week, another account, another device.
    let others = [
        of(&b, &a, &inbox(&b, &a, 2900)),
        of(&b, &a, &inbox(&a, &b, 2901)),
        of(
            &b,
            &a,
            &Inbox {
                account: AccountId([8; 32]),
                ..this
            },
        ),
        of(&c, &a, &this),
    ];
    for other in &others {
        assert_ne!(other.topic(), of(&a, &b, &this).topic());
        assert_eq!(other.open(&blob), Err(MailOpenError::Topic));
    }
}

#[test]
fn a_peer_of_low_order_has_no_inbox() {
    let peer = DevicePublic {
        x25519: [0; 32],
        ..device(2).public()
    };
    let found = MailKey::of_inbox(&device(1), &peer, &inbox(&device(1), &device(2), 1));
    assert_eq!(found.map(|key| key.topic()), Err(WeakKey::X25519));
}

#[test]
fn a_topic_says_nothing_of_the_key_it_is_of() {
    let epoch = EpochKey::generate([1; 32]);
    let blob = MailKey::of_epoch(&epoch).seal(b"x").unwrap();
    let KeyId(id) = epoch.id();
    for secret in [&id, epoch.bytes()] {
        assert!(!blob.windows(32).any(|part| part == secret));
    }
}

#[test]
fn a_mailbox_takes_nothing_that_the_topic_did_not_sign() {
    let blob = topic(1).seal(b"an envelope").unwrap();
    assert_eq!(verify_blob(&blob), Ok(topic(1).topic()));
    for at in [0, 4, 5, 6, 40, 70, 900, 1000] {
        let mut bad = blob.clone();
        bad[at] ^= 1;
        assert!(verify_blob(&bad).is_err(), "byte {at}");
        assert!(topic(1).open(&bad).is_err(), "byte {at}");
    }
    assert_eq!(verify_blob(&blob[1..]), Err(BlobError::Size(1023)));
    assert_eq!(verify_blob(&[]), Err(BlobError::Size(0)));
    // A key of small order signs for anybody.
    let mut weak = blob;
    weak[6..38].copy_from_slice(&[&[1][..], &[0; 31]].concat());
    assert_eq!(verify_blob(&weak), Err(BlobError::Weak(WeakKey::Ed25519)));
    // The same point in another encoding: y = 1 as 2^255 - 18.
    let other = [&[0xee][..], &[0xff; 30], &[0x7f]].concat();
    weak[6..38].copy_from_slice(&other);
    assert_eq!(verify_blob(&weak), Err(BlobError::Weak(WeakKey::Ed25519)));
}

/// A holder of the topic's key can sign anything; a reader takes one form only.
#[test]
fn a_reader_takes_one_form_only() {
    let key = topic(1);
    let plain = [&3_u32.to_be_bytes()[..], b"abc"].concat();
    let nonce = key.nonce_of(b"abc");
    let good = made(&key, 0, 1 << 10, &plain, nonce);
    assert_eq!(key.seal(b"abc").unwrap(), good);
    let wrong = [
        ("another nonce", made(&key, 0, 1 << 10, &plain, [5; 24])),
        ("too large a size", made(&key, 1, 4 << 10, &plain, nonce)),
        (
            "padding that is not zero",
            made(&key, 0, 1 << 10, &[&plain[..], b"x"].concat(), nonce),
        ),
        (
            "a length beyond the blob",
            made(&key, 0, 1 << 10, &[0xff; 900][..], nonce),
        ),
    ];
    for (what, blob) in wrong {
        assert_eq!(verify_blob(&blob), Ok(key.topic()), "{what}");
        assert_eq!(key.open(&blob), Err(MailOpenError::Form), "{what}");
    }
    let mut sealed_by_another = key.clone();
    sealed_by_another.seal = [7; 32];
    let blob = sealed_by_another.seal(b"abc").unwrap();
    assert_eq!(key.open(&blob), Err(MailOpenError::Forged));
}

#[test]
fn weeks_begin_with_the_epoch_of_unix() {
    assert_eq!(week_of(0), 0);
    assert_eq!(week_of(WEEK_MS - 1), 0);
    assert_eq!(week_of(WEEK_MS), 1);
}

proptest! {
    #[test]
    fn what_is_sealed_opens_for_its_topic_alone(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let blob = topic(1).seal(&bytes).unwrap();
        prop_assert!(BLOB_SIZES.contains(&blob.len()));
        prop_assert_eq!(verify_blob(&blob), Ok(topic(1).topic()));
        prop_assert_eq!(topic(1).open(&blob), Ok(bytes));
        prop_assert_eq!(topic(2).open(&blob), Err(MailOpenError::Topic));
    }

    #[test]
    fn a_changed_bit_is_refused(at in 0_usize..1024, bit in 0_u8..8) {
        let mut blob = topic(1).seal(b"an envelope").unwrap();
        blob[at] ^= 1 << bit;
        prop_assert!(verify_blob(&blob).is_err());
    }
}
