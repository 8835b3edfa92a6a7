use super::*;

const VERSIONS: [Version; 2] = [Version::One, Version::Two];

fn varint(value: usize) -> Vec<u8> {
    let value = u16::try_from(value).unwrap();
    (value | 0x4000).to_be_bytes().to_vec()
}

pub(crate) fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset), &varint(data.len()), data].concat()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

/// A datagram of one Initial packet of version 1.
pub(crate) fn datagram(id: u8, number: u16, frames: &[u8]) -> Vec<u8> {
    initial(Version::One, &[id; 8], number, frames).unwrap()
}

/// What is said of one datagram of an Initial packet.
fn sealed(peek: &mut DatagramPeek, id: u8, number: u16, frames: &[u8]) -> Vec<Spoken> {
    let packet = initial(Version::One, &[id; 8], number, frames).unwrap();
    let looked = peek.look(&packet);
    assert!(looked.begins);
    looked.spoken
}

#[test]
fn the_rfcs_own_packets_are_opened() {
    let packets = include_str!("../initials.txt").lines().skip(1);
    let packets: Vec<Vec<u8>> = packets.map(unhex).collect();
    assert_eq!(packets.len(), 2);
    for packet in packets {
        assert_eq!(packet.len(), 1200);
        let looked = DatagramPeek::default().look(&packet);
        assert!(looked.begins);
        assert_eq!(looked.spoken, [spoken("example.com")]);
        // One bit of it, and nobody could have sent it.
        for at in [1, 6, 18, 22, 700, 1199] {
            let mut other = packet.clone();
            other[at] ^= 1;
            assert_eq!(
                DatagramPeek::default().look(&other),
                Default::default(),
                "{at}"
            );
        }
    }
}

#[test]
fn what_is_no_initial_packet_says_nothing() {
    let packet = initial(Version::One, &[1; 8], 0, &crypto(0, &hello_for("a.b"))).unwrap();
    let mut short = packet.clone();
    short[0] &= 0x7f;
    let mut newer = packet.clone();
    newer[4] = 9;
    let mut retry = packet.clone();
    retry[0] |= 0x30;
    for datagram in [
        &[][..],
        &[0xc0],
        &short,
        &newer,
        &retry,
        &packet[..1100],
        &[0xff; 1200],
    ] {
        assert_eq!(DatagramPeek::default().look(datagram), Default::default());
    }
}

#[test]
fn a_version_that_other_servers_read_is_unreadable_here() {
    let packet = initial(Version::One, &[1; 8], 3, &crypto(0, &hello_for("a.b"))).unwrap();
    let of = |version: u32| {
        let mut other = packet.clone();
        other[1..5].copy_from_slice(&version.to_be_bytes());
        DatagramPeek::default().look(&other).spoken
    };
    assert_eq!(of(1), [spoken("a.b")]);
    for version in [
        0xff00_001d,
        0x5130_3530,
        0x5430_3531,
        0xface_b002,
        0xabcd_0001,
    ] {
        assert_eq!(of(version), [Spoken::Unreadable], "{version:x}");
    }
    // Negotiation of versions, and a media packet (RFC 3550) whose octets happen
    // to read as a long header.
    for version in [0, 0x1a2a_3a4a, 0x6000_0123] {
        assert_eq!(of(version), [], "{version:x}");
    }
}

#[test]
fn a_hello_behind_other_packets_is_found() {
    let hello = initial(Version::One, &[1; 8], 3, &crypto(0, &hello_for("a.b"))).unwrap();
    // Early data of the same client: type 1 in version 1, and a length.
    let mut early = vec![0xd0, 0, 0, 0, 1, 8];
    early.extend([1; 8]);
    early.extend([0, 30]);
    early.extend([9; 30]);
    let both = [early.clone(), hello.clone()].concat();
    assert_eq!(DatagramPeek::default().look(&both).spoken, [spoken("a.b")]);
    let many = [early.repeat(8), hello].concat();
    assert_eq!(
        DatagramPeek::default().look(&many).spoken,
        [Spoken::Unreadable]
    );
}

#[test]
fn every_connection_of_a_flow_is_looked_at_to_its_end() {
    let mut peek = DatagramPeek::default();
    let (first, second) = (hello_for("first.example"), hello_for("second.example"));
    let (head, tail) = first.split_at(50);
    assert_eq!(sealed(&mut peek, 1, 0, &crypto(0, head)), []);
    assert_eq!(
        sealed(&mut peek, 2, 0, &crypto(0, &second)),
        [spoken("second.example")]
    );
    // From the server's first answer on a client uses the server's id, and still
    // the keys of its own.
    let mut rest = initial(Version::One, &[1; 8], 1, &crypto(50, tail)).unwrap();
    let own = peek.look(&rest);
    assert_eq!(own.spoken, [spoken("first.example")]);
    // The same again says it no further time.
    assert_eq!(sealed(&mut peek, 1, 2, &crypto(0, &first)), []);
    rest[6] ^= 1;
    assert_eq!(peek.look(&rest), Default::default());
}

#[test]
fn a_client_that_goes_on_with_the_servers_id_is_followed() {
    use super::super::keys::Keys;
    let mut peek = DatagramPeek::default();
    let hello = hello_for("first.example");
    let (head, tail) = hello.split_at(50);
    assert_eq!(sealed(&mut peek, 1, 0, &crypto(0, head)), []);
    let keys = Keys::new(Version::One, &[1; 8]).unwrap();
    let packet =
        super::super::fuzz::sealed_with(&keys, Version::One, &[0x77; 8], 1, &crypto(50, tail));
    assert_eq!(
        peek.look(&packet.unwrap()).spoken,
        [spoken("first.example")]
    );
}

#[test]
fn a_hello_that_contradicts_itself_is_unreadable() {
    let hello = hello_for("good.example");
    let other = hello_for("evil.example");
    let (head, _) = hello.split_at(20);
    let mut peek = DatagramPeek::default();
    assert_eq!(sealed(&mut peek, 1, 0, &crypto(20, &hello[20..])), []);
    assert_eq!(
        sealed(&mut peek, 1, 1, &crypto(20, &other[20..])),
        [Spoken::Unreadable]
    );
    // Also once it is whole.
    let mut peek = DatagramPeek::default();
    assert_eq!(
        sealed(&mut peek, 1, 0, &crypto(0, &hello)),
        [spoken("good.example")]
    );
    assert_eq!(sealed(&mut peek, 1, 1, &crypto(0, head)), []);
    assert_eq!(
        sealed(&mut peek, 1, 2, &crypto(20, &other[20..])),
        [Spoken::Unreadable]
    );
}

#[test]
fn what_may_not_stand_in_an_initial_packet_is_unreadable() {
    let ack = [2, 5, 0, 1, 0, 0, 0];
    let counts = [3, 5, 0, 0, 0, 1, 2, 3];
    let close = [0x1c, 1, 0, 2, b'h', b'i'];
    let fine = [
        &ack[..],
        &counts,
        &close,
        &[1],
        &crypto(0, &hello_for("a.b")),
    ]
    .concat();
    assert_eq!(
        sealed(&mut DatagramPeek::default(), 1, 0, &fine),
        [spoken("a.b")]
    );
    let server = [2, 0, 0, 1, 0];
    for frames in [
        &[8, 0, 1][..],
        &[0x1e],
        &crypto(MAX_HELLO - 1, b"ab"),
        &crypto(0, &server),
        &[6, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ] {
        let said = sealed(&mut DatagramPeek::default(), 1, 0, frames);
        assert_eq!(said, [Spoken::Unreadable], "{frames:?}");
    }
}

#[test]
fn beginnings_past_the_bound_are_unreadable_and_finished_ones_make_room() {
    let mut peek = DatagramPeek::default();
    let hello = hello_for("a.b");
    for id in 0..200 {
        assert_eq!(
            sealed(&mut peek, id, 0, &crypto(0, &hello)),
            [spoken("a.b")]
        );
    }
    for id in 200..204 {
        assert_eq!(sealed(&mut peek, id, 0, &crypto(0, &hello[..9])), []);
    }
    let said = sealed(&mut peek, 204, 0, &crypto(0, &hello));
    assert_eq!(said, [Spoken::Unreadable]);
    assert!(peek.bytes() <= 4 * hello.len());
}

#[test]
fn long_packet_numbers_are_followed() {
    let mut peek = DatagramPeek::default();
    for number in [0, 200, 30_000, 60_000, 59_000, 65_000] {
        assert_eq!(sealed(&mut peek, 1, number, &[1]), []);
    }
    let hello = crypto(0, &hello_for("a.b"));
    // Past 16 bits the peer is sent the low ones only.
    let mut peek = DatagramPeek::default();
    let full = [40_000_u64, 65_535, 65_536, 70_000];
    let keys = super::super::keys::Keys::new(Version::Two, &[5; 8]).unwrap();
    for (at, number) in full.into_iter().enumerate() {
        let frames: &[u8] = if at == 3 { &hello } else { &[1] };
        let packet =
            super::super::fuzz::sealed_with(&keys, Version::Two, &[5; 8], number, frames).unwrap();
        let looked = peek.look(&packet);
        assert!(looked.begins, "{number}");
        assert_eq!(looked.spoken.len(), usize::from(at == 3));
    }
}

proptest! {
    #[test]
    fn crypto_frames_in_any_order_give_the_same_answer(
        name in "[a-z]{1,20}\\.example",
        padding in 0..3000_usize,
        cuts in proptest::collection::vec(1..900_usize, 1..12),
        order in Just((0..13_usize).collect::<Vec<_>>()).prop_shuffle(),
        second in any::<bool>(),
        together in 1..4_usize,
    ) {
        let hello = hello_of(&[extension(21, &vec![0; padding]), server_name(name.as_bytes())]);
        let (mut rest, mut offset, mut frames) = (&hello[..], 0, Vec::new());
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (part, more) = rest.split_at(cut.min(rest.len()));
            frames.push(crypto(offset, part));
            (rest, offset) = (more, offset + part.len());
        }
        let order: Vec<usize> = order.into_iter().filter(|at| *at < frames.len()).collect();
        let version = VERSIONS[usize::from(second)];
        let (mut peek, mut said) = (DatagramPeek::default(), Vec::new());
        let groups: Vec<&[usize]> = order.chunks(together).collect();
        for (number, group) in groups.into_iter().enumerate() {
            prop_assert_eq!(&said, &Vec::<Spoken>::new(), "before the last of it");
            let frames: Vec<u8> = group.iter().flat_map(|at| frames[*at].clone()).collect();
            let number = u16::try_from(number).unwrap();
            let packet = initial(version, &[9; 12], number, &frames).unwrap();
            said.extend(peek.look(&packet).spoken);
            // Empty frames at its end make it whole before the last of them.
            if said.len() == 1 {
                break;
            }
        }
        prop_assert_eq!(said, [spoken(&name)]);
    }

    #[test]
    fn no_datagrams_make_the_peek_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..2000),
        at in any::<usize>(),
    ) {
        fuzz_quic_initial(&noise);
        let body = crypto(0, &hello_for("shop.example"));
        let length = u8::try_from(body.len().div_ceil(8)).unwrap();
        let mut data = [&[0x81, length][..], &body, &[0; 7]].concat();
        let at = at % data.len();
        data[at] ^= noise.first().copied().unwrap_or(1);
        fuzz_quic_initial(&data.repeat(3));
    }
}
