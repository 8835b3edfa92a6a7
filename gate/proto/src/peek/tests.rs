use proptest::prelude::*;

use super::fuzz::{fuzz_quic_initial, fuzz_sni, initial};
use super::hello::read as read_hello;
use super::keys::Version;
use super::*;

pub(crate) mod quic;

/// Something behind its length in two octets.
fn vec16(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap();
    [&length.to_be_bytes(), body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vec16(body)].concat()
}

pub(crate) fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &vec16(&[&[0][..], &vec16(name)].concat()))
}

pub(crate) fn ech() -> Vec<u8> {
    extension(0xfe0d, &[0; 40])
}

/// A ClientHello with these extensions among others.
pub(crate) fn hello_of(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([&[4, 1, 2, 3, 4][..], &[0, 2, 0x13, 1], &[1, 0]].concat());
    let other = [extension(43, &[2, 3, 4]), extension(0x2a2a, &[])];
    let all = [&other[..1], extensions, &other[1..]].concat().concat();
    body.extend(vec16(&all));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1][..], &length[1..], &body].concat()
}

pub(crate) fn hello_for(name: &str) -> Vec<u8> {
    hello_of(&[server_name(name.as_bytes())])
}

/// A message in records of at most so many octets.
pub(crate) fn records_of(message: &[u8], most: usize) -> Vec<u8> {
    let record = |part: &[u8]| [&[22, 3, 1][..], &vec16(part)].concat();
    message.chunks(most).flat_map(record).collect()
}

fn spoken(host: &str) -> Spoken {
    Spoken::Hello(Hello {
        host: Host::new(host),
        encrypted: false,
    })
}

/// What a stream begins with that comes at once.
fn at_once(stream: &[u8]) -> Option<Spoken> {
    StreamPeek::new().look(0, stream)
}

#[test]
fn a_hello_names_its_host_or_none() {
    let said = |extensions: &[Vec<u8>]| at_once(&records_of(&hello_of(extensions), 1 << 14));
    assert_eq!(
        said(&[server_name(b"Shop.example")]),
        Some(spoken("shop.example"))
    );
    assert_eq!(
        said(&[server_name(b"shop.example.")]),
        Some(spoken("shop.example"))
    );
    let hello = |host: &str, encrypted| {
        let host = Host::new(host);
        Some(Spoken::Hello(Hello { host, encrypted }))
    };
    assert_eq!(said(&[]), hello("", false));
    assert_eq!(said(&[ech()]), hello("", true));
    assert_eq!(said(&[server_name(b"a.b"), ech()]), hello("a.b", true));
    // An old one, without extensions at all.
    let mut old = hello_of(&[]);
    old.truncate(4 + 2 + 32 + 5 + 4 + 2);
    let [.., low] = (u32::try_from(old.len()).unwrap() - 4).to_be_bytes();
    old[3] = low;
    assert_eq!(at_once(&records_of(&old, 99)), hello("", false));
}

#[test]
fn what_is_no_host_name_or_comes_twice_is_unreadable() {
    let label = "a".repeat(64);
    let long = vec!["a"; 128].join(".");
    for name in [
        "",
        ".",
        "a..b",
        "a b",
        "a/b",
        "a\u{1b}[2J",
        "b\u{fc}cher.example",
        "*.example",
        &label,
        &long,
    ] {
        let stream = records_of(&hello_for(name), 1 << 14);
        assert_eq!(at_once(&stream), Some(Spoken::Unreadable), "{name:?}");
    }
    let two_names = vec16(&[&[0][..], &vec16(b"a.b"), &[0], &vec16(b"c.d")].concat());
    let other_type = vec16(&[&[1][..], &vec16(b"a.b")].concat());
    for extensions in [
        vec![server_name(b"a.b"), server_name(b"a.b")],
        vec![extension(0, &two_names)],
        vec![extension(0, &other_type)],
        vec![extension(0, &[])],
    ] {
        let stream = records_of(&hello_of(&extensions), 1 << 14);
        assert_eq!(at_once(&stream), Some(Spoken::Unreadable), "{extensions:?}");
    }
    // Octets behind the last extension.
    let mut longer = hello_for("a.b");
    longer.push(0);
    longer[3] += 1;
    assert_eq!(read_hello(&longer), Read::Done(Spoken::Unreadable));
}

#[test]
fn what_is_not_tls_is_known_by_its_first_octets() {
    for stream in [
        &b"S"[..],
        b"GET / HTTP/1.1\r\n",
        b"\x00",
        b"\x16\x0a",
        b"\x16\x03\x01\x00\x05\x02",
        b"\x16\x03\x01\x00\x05\x00",
        b"\x17\x03\x03",
        b"\x80\x2e\x01\x03\x01",
    ] {
        assert_eq!(at_once(stream), Some(Spoken::Other), "{stream:?}");
    }
}

#[test]
fn records_that_some_servers_pass_over_hide_no_hello() {
    let hello = records_of(&hello_for("a.b"), 1 << 14);
    let (head, tail) = hello.split_at(9);
    let mut parted = [head, tail].concat();
    parted[3..5].copy_from_slice(&[0, 4]);
    for before in [
        &b"\x16\x03\x01\x00\x00"[..],
        b"\x15\x03\x01\x00\x02\x01\x5a",
        b"\x14\x03\x03\x00\x01\x01",
        // In the middle of the message.
        &[&parted[..9], b"\x14\x03\x03\x00\x01\x01"].concat(),
        &[&parted[..9], b"\x16\x03\x03\x00\x00"].concat(),
    ] {
        let stream = [before, &hello].concat();
        assert_eq!(at_once(&stream), Some(Spoken::Unreadable), "{before:?}");
    }
}

#[test]
fn a_hello_is_looked_at_to_its_bound_and_no_further() {
    let hello = |padding: usize| hello_of(&[extension(21, &vec![0; padding]), server_name(b"a.b")]);
    let room = MAX_HELLO - 5 - hello(0).len();
    let most = records_of(&hello(room), 1 << 14);
    assert_eq!(
        (most.len(), at_once(&most)),
        (MAX_HELLO, Some(spoken("a.b")))
    );
    let more = records_of(&hello(room + 1), 1 << 14);
    assert_eq!(at_once(&more), Some(Spoken::Unreadable));
    // By its length alone.
    assert_eq!(
        at_once(&[22, 3, 1, 0, 9, 1, 0, 0x80, 0, 1, 1, 1, 1, 1]),
        Some(Spoken::Unreadable)
    );
    // In records of one octet each there is no room for as much.
    assert_eq!(
        at_once(&records_of(&hello(9000), 1)),
        Some(Spoken::Unreadable)
    );
}

#[test]
fn no_beginning_of_a_hello_is_decided_before_its_last_octet() {
    for most in [1 << 14, 40, 1] {
        let stream = records_of(&hello_for("shop.example"), most);
        let mut peek = StreamPeek::new();
        for (at, octet) in stream.iter().enumerate() {
            let said = peek.look(at, &[*octet]);
            let last = at + 1 == stream.len();
            assert_eq!(said, last.then(|| spoken("shop.example")), "{at}, {most}");
        }
    }
}

proptest! {
    /// However a hello is cut into records and segments, and however much of it a
    /// slow far end leaves to be looked at again.
    #[test]
    fn every_cut_of_a_hello_gives_the_same_answer(
        name in "[a-z]{1,20}\\.example",
        encrypted in any::<bool>(),
        padding in 0..3000_usize,
        most in 1..2000_usize,
        cuts in proptest::collection::vec((1..600_usize, 0..600_usize), 1..200),
    ) {
        let mut extensions = vec![extension(21, &vec![0; padding]), server_name(name.as_bytes())];
        extensions.extend(encrypted.then(ech));
        let stream = records_of(&hello_of(&extensions), most);
        let whole = stream.len();
        prop_assume!(whole <= MAX_HELLO);
        let (mut peek, mut sent, mut upto) = (StreamPeek::new(), 0, 0);
        let mut said = None;
        for (more, taken) in cuts.into_iter().chain([(whole, 0)]) {
            upto = (upto + more).min(whole);
            said = peek.look(sent, &stream[sent..upto]);
            prop_assert_eq!(said.is_some(), upto == whole);
            if upto == whole {
                break;
            }
            sent = (sent + taken).min(upto);
        }
        let host = Host::new(&name);
        prop_assert_eq!(said, Some(Spoken::Hello(Hello { host, encrypted })));
    }

    #[test]
    fn no_stream_makes_the_peek_panic_or_its_cuts_matter(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0..200_usize,
        most in 1..60_usize,
    ) {
        fuzz_sni(&noise);
        let mut stream = records_of(&hello_for("shop.example"), most);
        let at = at % stream.len();
        stream[at] = noise.first().copied().unwrap_or_default();
        stream.insert(0, noise.last().copied().unwrap_or_default());
        fuzz_sni(&stream);
    }
}
