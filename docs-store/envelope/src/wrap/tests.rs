use super::*;
use crate::WeakKey;
use crate::standard_tests::{CHACHA, bytes, fixed, rfc, rows};

/// The sender's key pair too is derived from the entropy that comes as an argument. What
/// is wrapped is the first and only message of its context.
#[test]
fn wrapping_is_that_of_rfc_9180() {
    let case = rfc("hpke").remove(0);
    let (info, entropy) = (bytes(case[0]), fixed(case[1]));
    let secret = PrivateKey::from_bytes(&bytes(case[3])).unwrap();
    let row = rfc("hpke-seal").remove(0);
    let (aad, plain) = (bytes(row[1]), bytes(row[2]));
    let (enc, sealed) = seal_to(&fixed(case[4]), &info, &plain, &aad, entropy).unwrap();
    assert_eq!((enc, &sealed), (fixed(case[2]), &bytes(row[3])));
    let opened = open_with(&secret, &enc, &info, &sealed, &aad).unwrap();
    assert_eq!(*opened, plain);
}

/// Later messages and exports of a context: the library's, which nothing here uses.
#[test]
fn a_context_is_that_of_rfc_9180() {
    let case = rfc("hpke").remove(0);
    let (info, entropy) = (bytes(case[0]), fixed(case[1]));
    let to = PublicKey::from_bytes(&bytes(case[4])).unwrap();
    let secret = PrivateKey::from_bytes(&bytes(case[3])).unwrap();
    let (enc, mut sender) =
        hpke::setup_sender_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeS::Base,
            &to,
            &info,
            &mut Once(Zeroizing::new(entropy)),
        )
        .unwrap();
    let mut receiver = hpke::setup_receiver::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Base,
        &secret,
        &enc,
        &info,
    )
    .unwrap();
    let mut rows = rfc("hpke-seal").into_iter().peekable();
    for no in 0..=256 {
        let row = rows.next_if(|row| row[0].parse() == Ok(no));
        let (aad, plain) = match &row {
            Some(row) => (bytes(row[1]), bytes(row[2])),
            None => (Vec::new(), Vec::new()),
        };
        let sealed = sender.seal(&plain, &aad).unwrap();
        if let Some(row) = row {
            assert_eq!(sealed, bytes(row[3]), "{no}");
        }
        assert_eq!(receiver.open(&sealed, &aad).unwrap(), plain, "{no}");
    }
    assert_eq!(rows.next(), None);
    for row in rfc("hpke-export") {
        let mut out = vec![0; row[1].parse().unwrap()];
        receiver.export(&bytes(row[0]), &mut out).unwrap();
        assert_eq!(out, bytes(row[2]));
    }
}

/// What HPKE seals with (RFC 8439), as it stands in the library.
#[test]
fn the_cipher_of_wraps_is_that_of_rfc_8439_and_as_wycheproof_says() {
    use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
    let (mut valid, mut invalid, mut of_other_nonce) = (0, 0, 0);
    let of_rfc = rfc("chacha").into_iter().map(|row| ("valid", row));
    let of_wycheproof = rows(CHACHA).map(|row| (row[1], row[2..].to_vec()));
    for (verdict, row) in of_rfc.chain(of_wycheproof) {
        let cipher = chacha20poly1305::ChaCha20Poly1305::new(&fixed(row[0]).into());
        let (aad, plain, sealed) = (&bytes(row[2]), bytes(row[3]), bytes(row[4]));
        let Ok(nonce) = <[u8; 12]>::try_from(bytes(row[1])) else {
            assert_eq!(verdict, "invalid");
            of_other_nonce += 1;
            continue;
        };
        let opened = cipher.decrypt(&nonce.into(), Payload { msg: &sealed, aad });
        if verdict == "valid" {
            assert_eq!(opened.as_ref(), Ok(&plain));
            let made = cipher.encrypt(&nonce.into(), Payload { msg: &plain, aad });
            assert_eq!(made, Ok(sealed));
            valid += 1;
        } else {
            assert!(opened.is_err());
            invalid += 1;
        }
    }
    assert_eq!((valid, invalid, of_other_nonce), (258, 60, 9));
}

#[test]
fn a_wrap_opens_for_its_device_and_place_only() {
    let device = DeviceKeys::generate([1; 64]);
    let key = EpochKey::generate([2; 32]);
    let context = WrapContext {
        account: AccountId([3; 32]),
        writer: DeviceId([4; 32]),
        epoch: 5,
        recipient: device.id(),
        membership: b"heads",
    };
    let wrapped = wrap(&key, &context, &device.public(), [6; 32]).unwrap();
    assert_eq!(
        unwrap(&wrapped, &context, &device, key.id()).unwrap().id(),
        key.id()
    );
    assert_eq!(
        unwrap(&wrapped, &context, &device, KeyId([9; 32])).unwrap_err(),
        UnwrapError::KeyId
    );
    let other = DeviceKeys::generate([7; 64]);
    assert_eq!(
        unwrap(&wrapped, &context, &other, key.id()).unwrap_err(),
        UnwrapError::Forged
    );
    let moved = [
        WrapContext {
            account: AccountId([8; 32]),
            ..context
        },
        WrapContext {
            writer: DeviceId([8; 32]),
            ..context
        },
        WrapContext {
            epoch: 6,
            ..context
        },
        WrapContext {
            recipient: other.id(),
            ..context
        },
        WrapContext {
            membership: b"older heads",
            ..context
        },
    ];
    for context in moved {
        assert_eq!(
            unwrap(&wrapped, &context, &device, key.id()).unwrap_err(),
            UnwrapError::Forged
        );
    }
}

#[test]
fn nothing_is_wrapped_to_a_weak_key() {
    let weak = DevicePublic {
        x25519: [0; 32],
        ..DeviceKeys::generate([1; 64]).public()
    };
    let context = WrapContext {
        account: AccountId([3; 32]),
        writer: DeviceId([4; 32]),
        epoch: 5,
        recipient: weak.id(),
        membership: b"",
    };
    let refused = wrap(&EpochKey::generate([2; 32]), &context, &weak, [6; 32]);
    assert_eq!(refused, Err(WrapError::Weak(WeakKey::X25519)));
}
