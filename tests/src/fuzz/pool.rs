//! Well-formed inputs, one or a few a target.

use bailey_envelope::{
    ChainId, DeviceKeys, DocId, EpochKey, Fields, Hash, Kind, SealError, Sealed, seal, sign_plain,
};
use bailey_model::{AccountId, BoxId, Incarnation};
use sha2::{Digest as _, Sha256};

/// Steps of the gate's target: a packet, what comes of it, time, an end.
pub(super) fn tun() -> Vec<Vec<u8>> {
    let steps = |packets: &[Vec<u8>]| {
        let mut data = Vec::new();
        for packet in packets {
            data.extend([0, u8::try_from(packet.len()).unwrap_or(u8::MAX)]);
            data.extend(packet);
            // A ticket, a socket that is ready, 9 ms.
            data.extend([3, 3, 4, 0, 4, 1, 5, 3]);
        }
        data
    };
    const SYN: u8 = 2;
    const ACK: u8 = 0x10;
    const FIN: u8 = 1;
    let whole = [(SYN, 0), (ACK, 1), (ACK, 1), (ACK | FIN, 41), (ACK, 42)];
    let stream: Vec<Vec<u8>> = whole
        .iter()
        .enumerate()
        .map(|(at, (flags, seq))| tcp4(*flags, *seq, if at == 2 { 40 } else { 0 }))
        .collect();
    let query = dns_query();
    let udp = [udp4(53, &query), udp4(443, &[1; 30])];
    vec![
        steps(&stream),
        steps(&udp),
        steps(&[tcp6()]),
        [steps(&stream), steps(&udp), vec![7, 192, 5, 255, 7, 255]].concat(),
    ]
}

/// Numbers from which a target makes its input itself.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    (0..64_u64)
        .map(|seed| {
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes()
                .into()
        })
        .collect()
}

/// Pictures of small displays, their size before them.
pub(super) fn pictures() -> Vec<Vec<u8>> {
    let picture = |size: (u16, u16)| {
        let mut input = [size.0.to_le_bytes(), size.1.to_le_bytes()].concat();
        input.extend(bailey_fence_plan::display::xwd::example(size, [1, 2, 3]));
        input
    };
    vec![picture((1, 1)), picture((5, 3)), picture((63, 2))]
}

fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + rest.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    let mut packet = vec![0x45, 0, high, low, 0, 0, 0x40, 0, 64, protocol, 0, 0];
    // The source is the target's to write.
    packet.extend([0, 0, 0, 0, 93, 184, 216, 34]);
    packet.extend(rest);
    packet
}

fn tcp(flags: u8, seq: u8) -> Vec<u8> {
    let mut segment = vec![0x9c, 0x40, 0, 80, 0, 0, 0, seq, 0, 0, 0, 1, 0x50, flags];
    segment.extend([0xff, 0xff, 0, 0, 0, 0]);
    segment
}

fn tcp4(flags: u8, seq: u8, payload: usize) -> Vec<u8> {
    ipv4(6, &[tcp(flags, seq), vec![b'x'; payload]].concat())
}

fn tcp6() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
    packet.extend([0; 16]);
    packet.extend([0x26, 0x06, 0x28, 0, 2, 0x20, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend(tcp(2, 0));
    packet
}

fn udp4(port: u16, payload: &[u8]) -> Vec<u8> {
    let [port_high, port_low] = port.to_be_bytes();
    let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    let header = [0x9c, 0x41, port_high, port_low, high, low, 0, 0];
    ipv4(17, &[&header, payload].concat())
}

/// RFC 1035: `shop.example`, A, with an OPT record.
fn dns_query() -> Vec<u8> {
    let mut query = vec![0x42, 0x42, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(b"\x04shop\x07example\x00\x00\x01\x00\x01");
    query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    query
}

/// A query and its answer, which the target gives the question of; the first
/// octet picks the reach and the transport.
pub(super) fn dns() -> Vec<Vec<u8>> {
    let query = dns_query();
    let answer = |count, records: &[u8]| {
        let header = [0, 0, 0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0];
        [&header, records].concat()
    };
    let address = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x5d\xb8\xd8\x22";
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0\x11";
    let answers = [
        answer(1, address),
        answer(2, &[&alias[..], address].concat()),
        answer(0, &[]),
    ];
    // Any address, by UDP; one name; any address, by TCP; any and local.
    let choices = [0x23, 0x26, 0xa0, 0x22];
    answers
        .iter()
        .flat_map(|answer| {
            choices.map(|choice| {
                let length = u8::try_from(query.len()).unwrap_or(u8::MAX);
                [&[choice, length], &query[..], answer].concat()
            })
        })
        .collect()
}

/// A sealed and a signed one, by the writer that the target knows.
pub(super) fn envelopes() -> Vec<Vec<u8>> {
    let sealed = |doc| -> Result<Sealed, SealError> {
        let writer = DeviceKeys::generate([1; 64]);
        let plain = matches!(doc, DocId::Account | DocId::Keys);
        let fields = Fields {
            account: AccountId([2; 32]),
            chain: ChainId {
                doc,
                writer: writer.id(),
                incarnation: Incarnation([3; 16]),
            },
            kind: if plain { Kind::Record } else { Kind::Tail },
            segment: 1,
            seq: 1,
            prev: Hash::NONE,
            before: None,
        };
        if plain {
            return sign_plain(&writer, fields, &[1; 90]);
        }
        let key = EpochKey::generate([2; 32]).segment_key(doc, 1);
        seal(&writer, fields, 1, &key, &[1; 90], [6; 24])
    };
    [DocId::Account, DocId::Node, DocId::Box(BoxId([4; 16]))]
        .into_iter()
        .filter_map(|doc| Some(sealed(doc).ok()?.bytes))
        .collect()
}

/// Where in a body the checksum of its change stands, and what it is of.
const CHECKSUM: std::ops::Range<usize> = 6..10;

/// Two changes as Automerge writes them: one entry, then three more, by the
/// actor of the target's chain.
const FIRST: &str = "856f4a83e24cc412014900108b3251b4d3d6d802728fad4594e7f3100101000000090104020413041505\
    3402420356035704700200017f0000017f0100017f007f0165000101017e02017e0047010100000200";
const SECOND: &str = "856f4a8359601c1d016801e24cc4126b8559213d9668f7e27f7b9ebdf9626fcea6379552d4f7608f6558\
    52108b3251b4d3d6d802728fad4594e7f3100203000000090102020211021304340242025602570c7002\
    0300030103007f0202010003030103470101000001010000010100000300";

/// Bodies of the target's own segment: the first change, and the one after it.
pub(super) fn bodies() -> Vec<Vec<u8>> {
    [FIRST, SECOND]
        .into_iter()
        .map(|change| {
            let octets = change
                .as_bytes()
                .chunks(2)
                .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            // Version 1, not deflated.
            [1, 0].into_iter().chain(octets).collect()
        })
        .collect()
}

/// Writes a change's checksum anew: Automerge looks no further without.
pub(super) fn mend_body(body: &mut [u8]) {
    let Some((head, rest)) = body.split_at_mut_checked(CHECKSUM.end) else {
        return;
    };
    let sum = Sha256::digest(rest);
    for (into, from) in head.iter_mut().skip(CHECKSUM.start).zip(sum) {
        *into = from;
    }
}

/// An entry of each kind, packed.
pub(super) fn entries() -> Vec<Vec<u8>> {
    const FROZEN: &str = include_str!("../../../docs-store/src/schema/frozen.txt");
    FROZEN.lines().filter_map(octets).collect()
}

fn octets(line: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    line.trim().as_bytes().chunks(2).map(pair).collect()
}

/// Text that would steer a terminal or a shell.
pub(super) fn texts() -> Vec<Vec<u8>> {
    [
        "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m",
        "invoice\u{202e}fdp.sh\u{200b}\u{feff}",
        "'; reboot; echo '$(id)`id`\n\r\t\u{7f}",
        "plain-words_and.dots",
        "=HYPERLINK(\"http://evil.example\",\"x\")\t@sum+-1",
        "xn--e1afmkfd.xn--pypal-4ve.co.uk.\u{9}-\\x09(empty)",
        "-",
    ]
    .into_iter()
    .map(|text| text.repeat(5).into_bytes())
    .collect()
}
