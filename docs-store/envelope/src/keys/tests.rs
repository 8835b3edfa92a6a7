use super::*;
use crate::standard_tests::{ED25519, HKDF_SHA256, X25519, bytes, fixed, rfc, rows};

/// Keys whose one half is this.
fn signing(secret: [u8; 32]) -> DeviceKeys {
    let mut entropy = [7; 64];
    entropy[..32].copy_from_slice(&secret);
    DeviceKeys::generate(entropy)
}

fn agreeing(secret: [u8; 32]) -> DeviceKeys {
    let mut entropy = [7; 64];
    entropy[32..].copy_from_slice(&secret);
    DeviceKeys::generate(entropy)
}

#[test]
fn signatures_are_those_of_rfc_8032() {
    for row in rfc("ed25519") {
        let keys = signing(fixed(row[0]));
        assert_eq!(keys.public().ed25519, fixed(row[1]));
        let message = bytes(row[2]);
        let made = keys.sign("", &message);
        assert_eq!(made, fixed(row[3]));
        assert!(keys.public().signed("", &message, &made));
        assert!(!keys.public().signed("x", &message, &made));
    }
}

/// Nothing that is valid there is refused here, and nothing else is taken. A signature
/// of another length than 64 bytes has no form here.
#[test]
fn signatures_are_judged_as_wycheproof_says() {
    let (mut valid, mut invalid, mut of_other_length) = (0, 0, 0);
    for row in rows(ED25519) {
        let public = DevicePublic {
            ed25519: fixed(row[2]),
            ..DeviceKeys::generate([9; 64]).public()
        };
        let Ok(signature) = <[u8; 64]>::try_from(bytes(row[4])) else {
            assert_eq!(row[1], "invalid", "{}", row[0]);
            of_other_length += 1;
            continue;
        };
        let signed = public.signed("", &bytes(row[3]), &signature);
        assert_eq!(signed, row[1] == "valid", "{}", row[0]);
        match signed {
            true => valid += 1,
            false => invalid += 1,
        }
    }
    assert_eq!((valid, invalid, of_other_length), (88, 51, 12));
}

#[test]
fn agreement_is_that_of_rfc_7748() {
    let multiplied = |scalar: [u8; 32], u: [u8; 32]| {
        let secret = agreeing(scalar).agreement();
        secret.diffie_hellman(&PublicKey::from(u)).to_bytes()
    };
    for row in rfc("x25519") {
        let (scalar, u) = (fixed(row[0]), fixed(row[1]));
        assert_eq!(multiplied(scalar, u), fixed(row[2]));
        if u == fixed("0900000000000000000000000000000000000000000000000000000000000000") {
            assert_eq!(agreeing(scalar).public().x25519, fixed(row[2]));
        }
    }
    for row in rfc("x25519-1000") {
        let (mut k, mut u) = (fixed(row[0]), fixed(row[0]));
        for _ in 0..1000 {
            (k, u) = (multiplied(k, u), k);
        }
        assert_eq!(k, fixed(row[1]));
    }
}

/// As a multiplication judges them, the keys beside them too, which differ by one bit.
#[test]
fn points_of_low_order_are_those_that_a_multiplication_sends_to_zero() {
    let weak = |u: [u8; 32]| {
        let shared = StaticSecret::from([1; 32]).diffie_hellman(&PublicKey::from(u));
        !shared.was_contributory()
    };
    let refused = |u: [u8; 32]| {
        let public = DevicePublic {
            x25519: u,
            ..DeviceKeys::generate([9; 64]).public()
        };
        public.agreeing().is_err()
    };
    for u in LOW_ORDER {
        assert!(weak(u) && refused(u), "{u:?}");
        for bit in 0..255 {
            let mut near = u;
            near[bit / 8] ^= 1 << (bit % 8);
            let second = !near.iter().rev().lt(P.iter().rev());
            assert_eq!(refused(near), weak(near) || second, "{near:?}");
        }
    }
    assert!(refused(P), "a second form of zero");
}

/// Stricter than the standard, which takes any 32 bytes: a point of low order, whose
/// result anybody knows, and a second encoding of a point are refused. Whatever is not
/// refused gives the very result of the standard.
#[test]
fn agreement_is_as_wycheproof_says_and_refuses_low_order_and_second_encodings() {
    let (mut agreed, mut low_order, mut second) = (0, 0, 0);
    for row in rows(X25519) {
        let (no, flags) = (row[0], row[2]);
        let (keys, public) = (agreeing(fixed(row[3])), fixed::<32>(row[4]));
        let shared = fixed::<32>(row[5]);
        // What the library gives without our check.
        let raw = keys.agreement().diffie_hellman(&PublicKey::from(public));
        assert_eq!(raw.to_bytes(), shared, "{no}");
        let other = DevicePublic {
            x25519: public,
            ..DeviceKeys::generate([9; 64]).public()
        };
        let domain = "bailey/test/v1\0";
        match keys.pairwise(&other, domain) {
            Ok(secret) => {
                let mut derived = [0; 32];
                expand(domain.as_bytes(), &shared, &[], &mut derived);
                assert_eq!(*secret, derived, "{no}");
                assert_ne!(shared, [0; 32], "{no}");
                assert!(!flags.contains("NonCanonicalPublic"), "{no}: {flags}");
                agreed += 1;
            }
            Err(weak) => {
                assert_eq!(weak, WeakKey::X25519, "{no}");
                assert_eq!(row[1], "acceptable", "{no}: {flags}");
                match shared == [0; 32] {
                    true => low_order += 1,
                    false => second += 1,
                }
            }
        }
    }
    assert_eq!((agreed, low_order, second), (474, 31, 13));
}

/// The library takes a secret of any length; ours are of 32 bytes.
#[test]
fn derivation_is_that_of_rfc_5869_and_as_wycheproof_says() {
    let (mut ours, mut refused) = (0, 0);
    let of_rfc = rfc("hkdf").into_iter().map(|row| ("valid", row));
    let of_wycheproof = rows(HKDF_SHA256).map(|row| (row[1], row[2..].to_vec()));
    for (verdict, row) in of_rfc.chain(of_wycheproof) {
        let (secret, salt, info) = (bytes(row[0]), bytes(row[1]), bytes(row[2]));
        let mut out = vec![0; row[3].parse().unwrap()];
        let derived = Hkdf::<Sha256>::new(Some(&salt), &secret).expand(&info, &mut out);
        assert_eq!(derived.is_ok(), verdict == "valid", "{row:?}");
        if derived.is_err() {
            refused += 1;
            continue;
        }
        assert_eq!(out, bytes(row[4]));
        if let Ok(secret) = <[u8; 32]>::try_from(secret) {
            out.fill(0);
            expand(&salt, &secret, &info, &mut out);
            assert_eq!(out, bytes(row[4]));
            ours += 1;
        }
    }
    assert_eq!((ours, refused), (36, 3));
}

#[test]
fn keys_that_anybody_could_use_are_refused() {
    let good = DeviceKeys::generate([9; 64]).public();
    assert_eq!(good.check(), Ok(()));
    // Low-order and non-canonical u coordinates (RFC 7748 §6.1).
    let mut low_order = vec![[0; 32], [0; 32]];
    low_order[1][0] = 1;
    low_order.push(fixed(
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    ));
    low_order.push(fixed(
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ));
    low_order.push(fixed(
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ));
    low_order.push(fixed(
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ));
    let mut second_encoding = good.x25519;
    second_encoding[31] |= 0x80;
    low_order.push(second_encoding);
    for x25519 in low_order {
        assert_eq!(
            DevicePublic { x25519, ..good }.check(),
            Err(WeakKey::X25519),
            "{x25519:02x?}"
        );
    }
    // The neutral element, a point of order 8, and no point at all.
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let order_8 = fixed("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a");
    let mut second_neutral =
        fixed("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
    for ed25519 in [neutral, order_8, second_neutral, [2; 32]] {
        assert_eq!(
            DevicePublic { ed25519, ..good }.check(),
            Err(WeakKey::Ed25519)
        );
    }
    second_neutral[31] = 0xff;
    assert_eq!(
        DevicePublic {
            ed25519: second_neutral,
            ..good
        }
        .check(),
        Err(WeakKey::Ed25519)
    );
}

#[test]
fn secrets_are_not_shown() {
    let keys = DeviceKeys::generate([0xa5; 64]);
    let shown = format!(
        "{keys:?} {:?} {:?}",
        EpochKey::generate([0xa5; 32]),
        RecoverySeed([0xa5; 32])
    );
    assert!(
        !shown.contains("a5a5a5") && !shown.contains("165, 165"),
        "{shown}"
    );
}

#[test]
fn segment_keys_differ_by_document_and_segment() {
    let epoch = EpochKey::generate([3; 32]);
    let one = epoch.segment_key(DocId::Node, 1);
    let others = [
        epoch.segment_key(DocId::Node, 2),
        epoch.segment_key(DocId::Notices, 1),
        EpochKey::generate([4; 32]).segment_key(DocId::Node, 1),
    ];
    for other in others {
        assert_ne!(one.bytes(), other.bytes());
    }
    assert_eq!(one.bytes(), epoch.segment_key(DocId::Node, 1).bytes());
}
