//! ClientHellos, as a box may send them.

/// Something behind its length in two octets.
fn vec16(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vec16(body)].concat()
}

/// RFC 8446 §4.1.2, for a host or none.
fn hello(host: Option<&str>, others: &[Vec<u8>]) -> Vec<u8> {
    let name = host.map(|host| vec16(&[&[0][..], &vec16(host.as_bytes())].concat()));
    let name = name.map(|list| extension(0, &list)).unwrap_or_default();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(vec16(&[name, others.concat()].concat()));
    let length = u32::try_from(body.len()).unwrap_or_default().to_be_bytes();
    let mut message = vec![1];
    message.extend(length.iter().skip(1).chain(&body));
    message
}

fn hellos() -> [Vec<u8>; 3] {
    let ech = extension(0xfe0d, &[0; 8]);
    let padding = extension(21, &[0; 200]);
    [
        hello(Some("shop.example"), &[]),
        hello(Some("a.b"), &[padding, ech]),
        hello(None, &[]),
    ]
}

/// Streams of TLS behind the length of the pieces that they come in.
pub(super) fn streams() -> Vec<Vec<u8>> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &vec16(part)].concat();
    let stream = |most: usize, message: &Vec<u8>| {
        let records = message.chunks(most).flat_map(record);
        std::iter::once(17).chain(records).collect()
    };
    let all = hellos();
    let streams = [1 << 14, 30, 1];
    let streams = streams
        .into_iter()
        .flat_map(|most| all.iter().map(move |one| stream(most, one)));
    streams
        .chain([b"\x05GET / HTTP/1.1\r\n\r\n".to_vec()])
        .collect()
}

/// The frames of Initial packets, behind the heads that the target reads.
pub(super) fn datagrams() -> Vec<Vec<u8>> {
    let crypto = |offset: usize, data: &[u8]| {
        let offset = u16::try_from(offset).unwrap_or_default() | 0x4000;
        let length = u16::try_from(data.len()).unwrap_or_default() | 0x4000;
        [&[6][..], &offset.to_be_bytes(), &length.to_be_bytes(), data].concat()
    };
    let packet = |head: u8, frames: &[u8]| {
        let units = frames.len().div_ceil(8);
        let mut packet = vec![head, u8::try_from(units).unwrap_or(u8::MAX)];
        packet.extend(frames);
        packet.resize(2 + units * 8, 0);
        packet
    };
    let whole = hellos().map(|hello| packet(0x81, &crypto(0, &hello)));
    let parted = hellos().map(|hello| {
        let (head, tail) = hello.split_at(hello.len() / 2);
        let tail = crypto(hello.len() / 2, tail);
        let acknowledged = [&[2, 1, 0, 1, 0, 0, 0][..], &crypto(0, head)].concat();
        [packet(0xc2, &tail), packet(0xc2, &acknowledged)].concat()
    });
    // One that nobody sealed.
    let mut bare = vec![0, 8, 0xc0, 0, 0, 0, 1, 8];
    bare.extend([3; 8]);
    bare.extend([0, 0, 42]);
    bare.extend([5; 47]);
    whole.into_iter().chain(parted).chain([bare]).collect()
}
