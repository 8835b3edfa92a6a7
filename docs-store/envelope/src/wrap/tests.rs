use super::*;
use crate::WeakKey;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// RFC 9180 A.2.1, sequence number 0: the sender's key pair too is derived
/// from the entropy that comes as an argument.
#[test]
fn wrapping_is_that_of_rfc_9180() {
    let info = hex("4f6465206f6e2061204772656369616e2055726e");
    let aad = hex("436f756e742d30");
    let plain = hex("4265617574792069732074727574682c20747275746820626561757479");
    let entropy = hex("909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b")
        .try_into()
        .unwrap();
    let recipient = hex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a")
        .try_into()
        .unwrap();
    let (enc, sealed) = seal_to(&recipient, &info, &plain, &aad, entropy).unwrap();
    assert_eq!(
        enc.to_vec(),
        hex("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a")
    );
    assert_eq!(
        sealed,
        hex(
            "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"
        )
    );
    let secret = PrivateKey::from_bytes(&hex(
        "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
    ))
    .unwrap();
    let opened = open_with(&secret, &enc, &info, &sealed, &aad).unwrap();
    assert_eq!(opened.as_slice(), plain);
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
