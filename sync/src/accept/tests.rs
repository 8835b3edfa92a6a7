use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::*;
use crate::tls::{Identity, SERVER_NAME, Trust};

const ALPN: &[u8] = b"bailey-test";

fn from(ip: [u8; 4]) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), 0)
}

fn client_config(no: u8) -> quinn::ClientConfig {
    let identity = Identity::new(&[no; 32]).unwrap();
    identity.client(Trust::Anyone, &[ALPN]).unwrap()
}

/// A handshake from this address that shows that it receives, and then stalls: of what
/// the server says only the first datagram arrives.
async fn stalled(ip: [u8; 4], server: SocketAddr) -> tokio::task::JoinHandle<()> {
    let front = UdpSocket::bind(from([127, 0, 0, 1])).await.unwrap();
    let back = UdpSocket::bind(from(ip)).await.unwrap();
    back.connect(server).await.unwrap();
    let relay = front.local_addr().unwrap();
    tokio::spawn(async move {
        let client = quinn::Endpoint::client(from([127, 0, 0, 1])).unwrap();
        let connecting = client
            .connect_with(client_config(2), relay, SERVER_NAME)
            .unwrap();
        let waits = tokio::spawn(connecting.into_future());
        let (mut out, mut back_in) = ([0; 2048], [0; 2048]);
        let (mut to, mut given) = (None, false);
        loop {
            tokio::select! {
                Ok((length, who)) = front.recv_from(&mut out) => {
                    to = Some(who);
                    let _ = back.send(&out[..length]).await;
                }
                Ok(length) = back.recv(&mut back_in) => if let (Some(to), false) = (to, given) {
                    given = true;
                    let _ = front.send_to(&back_in[..length], to).await;
                },
                else => break,
            }
        }
        waits.abort();
    })
}

/// What the hub does with those that come, and the most that it ever had under way.
async fn take_all(
    quic: quinn::Endpoint,
    known: IpAddr,
    tell: mpsc::Sender<Option<Box<Accepted>>>,
    seen: tokio::sync::watch::Sender<(usize, usize)>,
) {
    let mut handshakes = Handshakes::default();
    while let Some(incoming) = quic.accept().await {
        let network = Network::of_incoming(&incoming, |ip| ip == known);
        handshakes.take_up(incoming, network, tell.clone(), |_, accepted| accepted);
        let of_one = |network| {
            let same = handshakes.pending.iter();
            same.filter(|pending| pending.network == network).count()
        };
        let most = handshakes.pending.iter().map(|it| of_one(it.network));
        let most = most.max().unwrap_or(0);
        let all = handshakes.pending.len();
        assert!(
            all <= MAX_HANDSHAKES && most <= MAX_PER_NETWORK,
            "{all}, {most}"
        );
        seen.send_modify(|(a, b)| (*a, *b) = ((*a).max(all), (*b).max(most)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_under_way_are_bounded_and_a_members_place_is_kept() {
    let identity = Identity::new(&[1; 32]).unwrap();
    let server = identity.server(Trust::Anyone, &[ALPN]).unwrap();
    let quic = quinn::Endpoint::server(server, from([127, 0, 0, 1])).unwrap();
    let target = quic.local_addr().unwrap();
    let (tell, mut told) = mpsc::channel(256);
    let (seen, look) = tokio::sync::watch::channel((0, 0));
    let known = from([127, 9, 9, 9]);
    tokio::spawn(take_all(quic, known.ip(), tell, seen));
    let mut strangers = Vec::new();
    // Of one network many, of many networks one each.
    for no in 0..20 {
        strangers.push(stalled([127, 1, 0, 1 + no], target).await);
    }
    for no in 0..90 {
        strangers.push(stalled([127, 2, no, 1], target).await);
    }
    // And of this very machine's own address.
    for _ in 0..12 {
        strangers.push(stalled([127, 0, 0, 1], target).await);
    }
    let full = async {
        while *look.borrow() != (MAX_HANDSHAKES, MAX_PER_NETWORK) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let full = tokio::time::timeout(Duration::from_secs(4), full).await;
    assert!(full.is_ok(), "the control: {:?}", *look.borrow());
    // Every place is taken by strangers that will not give it back by themselves.
    let member = quinn::Endpoint::client(known).unwrap();
    let connecting = member
        .connect_with(client_config(3), target, SERVER_NAME)
        .unwrap();
    let connection = tokio::time::timeout(Duration::from_secs(2), connecting).await;
    let connection = connection.expect("the member is kept out").unwrap();
    let (mut send, _recv) = connection.open_bi().await.unwrap();
    send.write_all(b"here").await.unwrap();
    let taken = async {
        loop {
            if let Some(Some(accepted)) = told.recv().await {
                return accepted.key;
            }
        }
    };
    let key = tokio::time::timeout(Duration::from_secs(2), taken).await;
    let of_member = Identity::new(&[3; 32]).unwrap().key().unwrap();
    assert_eq!(key.unwrap(), of_member);
    strangers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn an_address_is_counted_by_its_network_and_a_members_by_itself() {
    let of = |text: &str, known| Network::of(text.parse().unwrap(), known);
    assert_eq!(of("192.168.1.5", false), of("192.168.1.9", false));
    assert_eq!(of("192.168.1.5", false), of("::ffff:192.168.1.9", false));
    assert_ne!(of("192.168.1.5", false), of("192.168.2.5", false));
    assert_ne!(of("192.168.1.5", true), of("192.168.1.5", false));
    assert_ne!(of("192.168.1.5", true), of("192.168.1.9", true));
    assert_eq!(of("192.168.1.5", true), of("::ffff:192.168.1.5", true));
    assert_eq!(of("2001:db8::1", false), of("2001:db8::ffff:1", false));
    assert_ne!(of("2001:db8::1", false), of("2001:db8:0:1::1", false));
}

#[test]
fn the_document_says_these_numbers() {
    let document = include_str!("../../../docs/wire.md");
    let text = document.split_whitespace().collect::<Vec<_>>().join(" ");
    let seconds = |time: Duration| time.as_secs();
    let alpn = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    for said in [
        format!("At most {MAX_HANDSHAKES} are under way, of these {MAX_PER_NETWORK} from one /24"),
        format!("has {MAX_PER_NETWORK} slots of its own"),
        format!("With {RETRY_ABOVE_PER_NETWORK} under way from a network, or {RETRY_ABOVE} in all"),
        format!("may take {} s each", seconds(crate::HANDSHAKE_TIMEOUT)),
        format!("open: every {} s", seconds(crate::KEEP_ALIVE)),
        format!("lost: after {} s", seconds(crate::IDLE_TIMEOUT)),
        format!("ALPN `{}`", alpn(crate::ALPN_SESSION)),
        format!("ALPN `{}`", alpn(crate::ALPN_PAIR)),
    ] {
        assert!(text.contains(&said), "docs/wire.md does not say: {said}");
    }
}
