use super::*;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let bytes: Vec<u8> = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

/// RFC 8032 §7.1, tests 1 to 3: secret, public, message, signature.
const RFC_8032: [(&str, &str, &str, &str); 3] = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
];

#[test]
fn signatures_are_those_of_rfc_8032() {
    for (secret, public, message, signature) in RFC_8032 {
        let mut entropy = [0; 64];
        entropy[..32].copy_from_slice(&hex::<32>(secret));
        let keys = DeviceKeys::generate(entropy);
        assert_eq!(keys.public().ed25519, hex(public));
        let message: Vec<u8> = (0..message.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&message[at..at + 2], 16).unwrap())
            .collect();
        let made = keys.sign("", &message);
        assert_eq!(made, hex(signature));
        assert!(keys.public().signed("", &message, &made));
        assert!(!keys.public().signed("x", &message, &made));
    }
}

/// RFC 5869 A.1, with the very hash and curve of `expand`.
#[test]
fn derivation_is_that_of_rfc_5869() {
    let secret = [0x0b; 22];
    let salt = hex::<13>("000102030405060708090a0b0c");
    let info = hex::<10>("f0f1f2f3f4f5f6f7f8f9");
    let mut out = [0; 42];
    Hkdf::<Sha256>::new(Some(&salt), &secret)
        .expand(&info, &mut out)
        .unwrap();
    assert_eq!(
        out,
        hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
    );
}

#[test]
fn keys_that_anybody_could_use_are_refused() {
    let good = DeviceKeys::generate([9; 64]).public();
    assert_eq!(good.check(), Ok(()));
    // Low-order and non-canonical u coordinates (RFC 7748 §6.1).
    let mut low_order = vec![[0; 32], [0; 32]];
    low_order[1][0] = 1;
    low_order.push(hex(
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    ));
    low_order.push(hex(
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ));
    low_order.push(hex(
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ));
    low_order.push(hex(
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
    let order_8 = hex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a");
    let mut second_neutral =
        hex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
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
