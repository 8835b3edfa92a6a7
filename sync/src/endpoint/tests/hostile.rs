//! Peers that are not honest, real ones, at a real endpoint.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use quinn::{RecvStream, SendStream};

use super::*;

/// What a member's word may take while others flood.
const PROMPT: Duration = Duration::from_secs(1);

fn at(ip: [u8; 4]) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), 0)
}

/// Begins handshakes at an endpoint without a pause until it is dropped, each from a
/// socket of its own: with a key that is no member's, and half of them never read on.
struct Flood {
    over: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

impl Flood {
    fn start(target: SocketAddr, from: &[[u8; 4]]) -> Self {
        let (over, begun) = (Arc::new(AtomicBool::new(false)), Arc::default());
        for (no, from) in (1..).zip(from) {
            let (over, begun) = (over.clone(), Arc::clone(&begun));
            tokio::spawn(flood(at(*from), target, no, over, begun));
        }
        Self { over, begun }
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

async fn flood(
    from: SocketAddr,
    target: SocketAddr,
    no: u8,
    over: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
) {
    let identity = Identity::new(&[100 + no; 32]).unwrap();
    let config = identity.client(Trust::Anyone, &[ALPN_SESSION]).unwrap();
    while !over.load(Ordering::Relaxed) {
        let client = quinn::Endpoint::client(from).unwrap();
        let connecting = client.connect_with(config.clone(), target, "bailey");
        let count = begun.fetch_add(1, Ordering::Relaxed);
        if let Ok(connecting) = connecting {
            // Some see it through to the refusal, others are gone after the first answer.
            let patience = Duration::from_millis(if count.is_multiple_of(2) { 50 } else { 2 });
            let _ = timeout(patience, connecting).await;
        }
    }
}

/// The members' words to one another, both ways, each within [`PROMPT`].
async fn words_are_prompt(a: &Device, b: &Device, rounds: u8) {
    for n in 0..rounds {
        let start = Instant::now();
        a.append(DocId::Requests, vec![n; 400]).await;
        b.append(DocId::Notices, vec![n; 400]).await;
        until_equal(a, b).await;
        assert!(start.elapsed() < PROMPT, "round {n}: {:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_handshakes_does_not_hold_up_what_members_say() {
    let (a, b) = joined().await;
    // From where the member is, from its network, and from others.
    let from = [
        [127, 0, 0, 1],
        [127, 0, 0, 9],
        [127, 0, 1, 9],
        [127, 0, 2, 9],
    ];
    let flood = Flood::start(b.addr(), &from);
    while flood.begun() < 50 {
        sleep(Duration::from_millis(5)).await;
    }
    let before = flood.begun();
    words_are_prompt(&a, &b, 20).await;
    sleep(Duration::from_millis(200)).await;
    assert!(flood.begun() > before, "the control: it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_gets_in_through_a_flood_from_its_own_network() {
    let (mut a, mut b) = two().await;
    let from = [
        [127, 0, 0, 8],
        [127, 0, 0, 9],
        [127, 0, 1, 9],
        [127, 0, 2, 9],
    ];
    let flood = Flood::start(b.addr(), &from);
    while flood.begun() < 50 {
        sleep(Duration::from_millis(5)).await;
    }
    // B knows where A is, but not by which port: A has to come.
    let nobody = UdpSocket::bind(LOOPBACK).unwrap();
    b.knows(a.id(), nobody.local_addr().unwrap()).await;
    let start = Instant::now();
    a.knows(b.id(), b.addr()).await;
    b.until_up(a.id()).await;
    a.until_up(b.id()).await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    words_are_prompt(&a, &b, 3).await;
    drop(flood);
}

/// A connection with a member's key, and the stream on it.
async fn raw(keys: &DeviceKeys, target: SocketAddr) -> (quinn::Connection, SendStream, RecvStream) {
    let identity = Identity::new(&keys.ed25519_secret()).unwrap();
    let config = identity.client(Trust::Anyone, &[ALPN_SESSION]).unwrap();
    let client = quinn::Endpoint::client(LOOPBACK).unwrap();
    let connection = client
        .connect_with(config, target, "bailey")
        .unwrap()
        .await
        .unwrap();
    let (send, recv) = connection.open_bi().await.unwrap();
    (connection, send, recv)
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_le_bytes()[..], payload].concat()
}

fn hello(version: u8, account: u8) -> Vec<u8> {
    framed(&[&[0, version][..], &[account; 32], &[0], &[9; 16]].concat())
}

/// Each breach of the protocol, by a member: its connection ends, with this reason, and
/// nobody else is any the worse.
#[tokio::test]
async fn a_member_that_breaks_the_protocol_is_closed_and_others_go_on() {
    let (a, b) = joined().await;
    let liar = keys(3);
    b.members(&[&a.keys, &b.keys, &liar]).await;
    let chain = [&[7; 32][..], &[8; 16], &[3]].concat();
    let unasked = [&[3][..], &chain, &[1, 0]].concat();
    let want = framed(&[&[2][..], &chain, &[1, 1]].concat());
    let endless_list = [&[1, 0, 0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
    let good = hello(2, 1);
    let too_long = u32::try_from(bailey_session::MAX_PAYLOAD + 1).unwrap();
    let wants = [&chain[..48], &[5], &[9; 16], &[1, 1]].concat();
    let flood: Vec<u8> = (0..4000).flat_map(|_| framed(&[4])).collect();
    let cases: [(&str, Vec<u8>, u8); 12] = [
        ("another version", hello(3, 1), 2),
        ("another account", hello(2, 9), 3),
        ("no hello", framed(&[4]), 1),
        ("hello twice", [&good[..], &good].concat(), 1),
        ("an empty frame", [&good[..], &[0; 4]].concat(), 1),
        (
            "a frame over the bound",
            [&good[..], &too_long.to_le_bytes()].concat(),
            1,
        ),
        ("an unknown frame", [&good[..], &framed(&[9])].concat(), 1),
        ("a byte too many", [&good[..], &framed(&[4, 0])].concat(), 1),
        (
            "an answer to nothing",
            [&good[..], &framed(&unasked)].concat(),
            1,
        ),
        (
            "a list of millions",
            [&good[..], &framed(&endless_list)].concat(),
            1,
        ),
        (
            "a document that never crosses",
            [
                &good[..],
                &framed(&[&[2][..], &chain[..48], &[7], &[1, 1]].concat()),
            ]
            .concat(),
            1,
        ),
        ("a flood", [&good[..], &flood].concat(), 4),
    ];
    for (name, said, reason) in cases {
        let (connection, mut send, mut recv) = raw(&liar, b.addr()).await;
        // It may be closed before all of it is written.
        let _ = send.write_all(&said).await;
        let heard = timeout(Duration::from_secs(5), recv.read_to_end(1 << 20)).await;
        let heard = heard.unwrap_or_else(|_| panic!("{name}: it is not closed"));
        let bye = [2, 0, 0, 0, 5, reason];
        let heard = heard.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(heard.ends_with(&bye), "{name}: {heard:02x?}");
        let closed = timeout(Duration::from_secs(5), connection.closed()).await;
        assert!(closed.is_ok(), "{name}");
    }
    // Asking for what it may ask is no breach: the control.
    let (_connection, mut send, mut recv) = raw(&liar, b.addr()).await;
    let asks = [&good[..], &want, &framed(&[&[2][..], &wants].concat())].concat();
    send.write_all(&asks).await.unwrap();
    let mut heard = Vec::new();
    let answers = async {
        while heard.windows(4).filter(|it| *it == [3, 7, 7, 7]).count() < 2 {
            let chunk = recv.read_chunk(1 << 16, true).await.unwrap().unwrap();
            heard.extend_from_slice(&chunk.bytes);
        }
    };
    timeout(Duration::from_secs(5), answers)
        .await
        .expect("two answers");
    words_are_prompt(&a, &b, 3).await;
}

/// A handshake that went well is not yet a session, and is not kept for ever as one.
#[tokio::test]
async fn a_member_that_says_nothing_is_let_go_and_keeps_nobody_out() {
    let (a, b) = two().await;
    let liar = keys(3);
    b.members(&[&a.keys, &b.keys, &liar]).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let identity = Identity::new(&liar.ed25519_secret()).unwrap();
        let config = identity.client(Trust::Anyone, &[ALPN_SESSION]).unwrap();
        let client = quinn::Endpoint::client(LOOPBACK).unwrap();
        let connecting = client.connect_with(config, b.addr(), "bailey").unwrap();
        // Thrown out by the next where too many are under way.
        if let Ok(Ok(connection)) = timeout(Duration::from_secs(1), connecting).await {
            silent.push((client, connection));
        }
    }
    assert!(!silent.is_empty());
    let (mut a, mut b) = (a, b);
    let start = Instant::now();
    a.knows(b.id(), b.addr()).await;
    b.until_up(a.id()).await;
    a.until_up(b.id()).await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    // One that has a stream and then says half a frame.
    let (halted, mut send, _recv) = raw(&liar, b.addr()).await;
    send.write_all(&hello(2, 1)[..20]).await.unwrap();
    for (_, connection) in &silent {
        let closed = timeout(Duration::from_secs(8), connection.closed()).await;
        assert!(closed.is_ok(), "a silent connection is kept");
    }
    let closed = timeout(Duration::from_secs(12), halted.closed()).await;
    assert!(closed.is_ok(), "half a hello is kept");
    words_are_prompt(&a, &b, 3).await;
}

/// Passes datagrams on both ways, but for every third.
fn lossy_relay(server: SocketAddr) -> SocketAddr {
    let front = UdpSocket::bind(LOOPBACK).unwrap();
    let back = UdpSocket::bind(LOOPBACK).unwrap();
    back.connect(server).unwrap();
    let addr = front.local_addr().unwrap();
    let client = Arc::new(Mutex::new(None));
    let (to_client, from_server) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let known = client.clone();
    std::thread::spawn(move || {
        let (mut buffer, mut count) = ([0; 2048], 0_u32);
        while let Ok((length, from)) = front.recv_from(&mut buffer) {
            *known.lock().unwrap() = Some(from);
            count += 1;
            if !count.is_multiple_of(3) {
                let _ = back.send(&buffer[..length]);
            }
        }
    });
    std::thread::spawn(move || {
        let (mut buffer, mut count) = ([0; 2048], 0_u32);
        while let Ok(length) = from_server.recv(&mut buffer) {
            count += 1;
            let to = *client.lock().unwrap();
            if let (Some(to), false) = (to, count.is_multiple_of(3)) {
                let _ = to_client.send_to(&buffer[..length], to);
            }
        }
    });
    addr
}

/// Streams full of gaps: what comes behind one waits within the window, and nothing of
/// it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_loses_every_third_datagram_loses_no_envelope() {
    let (mut a, mut b) = two().await;
    for n in 0..40 {
        a.append(DocId::Box(BoxId([n % 4; 16])), vec![n; 20_000])
            .await;
        b.append(DocId::Notices, vec![n; 2000]).await;
    }
    let relay = lossy_relay(b.addr());
    a.knows(b.id(), relay).await;
    a.until_up(b.id()).await;
    b.until_up(a.id()).await;
    let equal = async {
        while a.chains.lock().unwrap().0 != b.chains.lock().unwrap().0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), equal)
        .await
        .expect("the chains do not become equal");
}

/// A box on the other member's machine has its address, and so its slots: then the one
/// that is flooded dials.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_meet_though_one_is_flooded_from_the_others_own_address() {
    let (mut a, mut b) = two().await;
    let flood = Flood::start(b.addr(), &[[127, 0, 0, 1]; 4]);
    while flood.begun() < 50 {
        sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    a.knows(b.id(), b.addr()).await;
    b.knows(a.id(), a.addr()).await;
    b.until_up(a.id()).await;
    a.until_up(b.id()).await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    words_are_prompt(&a, &b, 3).await;
    drop(flood);
}
