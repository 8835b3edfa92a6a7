//! Real pairings on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bailey_envelope::DeviceKeys;
use bailey_model::AccountId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::tls::{Identity, Trust};
use crate::{ALPN_PAIR, ALPN_PAIR_BEFORE, Link, tls};

mod by_mailbox;
mod evil;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn keys(n: u8) -> DeviceKeys {
    DeviceKeys::generate([n; DeviceKeys::LEN])
}

type Host = (
    PairHost,
    mpsc::Sender<HostCommand>,
    mpsc::Receiver<HostEvent>,
);

fn host(valid_for: Duration) -> Host {
    let keys = keys(1);
    PairHost::start(PairHostConfig {
        ed25519_secret: *keys.ed25519_secret(),
        device: keys.public(),
        name: "desk".to_owned(),
        listen: SocketAddr::new(LOCALHOST, 0),
        advertise: vec![LOCALHOST],
        mailbox: None,
        short: true,
        links: vec![Link::V4(Ipv4Addr::LOCALHOST)],
        valid_for,
    })
    .unwrap()
}

fn joiner(code: &PairCode) -> (mpsc::Sender<JoinCommand>, mpsc::Receiver<JoinEvent>) {
    joiner_by(AnyCode::Long(code.clone()), vec![])
}

fn joiner_by(
    code: AnyCode,
    addrs: Vec<SocketAddr>,
) -> (mpsc::Sender<JoinCommand>, mpsc::Receiver<JoinEvent>) {
    let keys = keys(2);
    join(JoinConfig {
        ed25519_secret: *keys.ed25519_secret(),
        device: keys.public(),
        name: "pocket".to_owned(),
        code,
        addrs,
        links: vec![Link::V4(Ipv4Addr::LOCALHOST)],
    })
    .unwrap()
}

async fn next<T>(events: &mut mpsc::Receiver<T>) -> T {
    timeout(Duration::from_secs(20), events.recv())
        .await
        .expect("in time")
        .expect("an event")
}

async fn ended<T>(events: &mut mpsc::Receiver<T>) {
    assert!(
        timeout(Duration::from_secs(5), events.recv())
            .await
            .expect("in time")
            .is_none()
    );
}

/// The same addresses with another secret.
fn mistaken(code: &PairCode) -> PairCode {
    let mut secret = code.secret();
    secret.0[0] ^= 1;
    PairCode::new(code.addrs(), secret).unwrap()
}

#[tokio::test]
async fn two_devices_pair_by_the_typed_code() {
    let (host, host_says, mut at_host) = host(VALID_FOR);
    let typed = host.code().to_string().to_lowercase();
    let (joiner_says, mut at_joiner) = joiner(&typed.parse().unwrap());
    let HostEvent::Words {
        words,
        device,
        name,
        remote,
    } = next(&mut at_host).await
    else {
        panic!()
    };
    assert_eq!(
        (device, name.as_str(), remote.map(|at| at.ip())),
        (keys(2).public(), "pocket", Some(LOCALHOST))
    );
    let shown = next(&mut at_joiner).await;
    let expected = JoinEvent::Words {
        words,
        device: keys(1).public(),
        name: "desk".to_owned(),
    };
    assert_eq!(shown, expected);
    // A second one comes too late.
    let (_says, mut late) = joiner(host.code());
    assert!(matches!(
        next(&mut late).await,
        JoinEvent::Failed(PairError::Unreachable(_))
    ));
    host_says.send(HostCommand::Confirm(true)).await.unwrap();
    let (account, record) = (AccountId([5; 32]), vec![7; 700]);
    host_says
        .send(HostCommand::Offer {
            account,
            record: record.clone(),
        })
        .await
        .unwrap();
    assert_eq!(
        next(&mut at_joiner).await,
        JoinEvent::Offer { account, record }
    );
    joiner_says
        .send(JoinCommand::Cosign(vec![8; 64]))
        .await
        .unwrap();
    assert_eq!(next(&mut at_host).await, HostEvent::Cosigned(vec![8; 64]));
    let welcome = Welcome {
        envelopes: (0..200).map(|n| vec![n; 4000]).collect(),
        addrs: vec!["10.1.2.3:4".parse().unwrap()],
        session_port: 4001,
    };
    host_says
        .send(HostCommand::Welcome(welcome.clone()))
        .await
        .unwrap();
    let host_at = Some(SocketAddr::new(LOCALHOST, 4001));
    assert_eq!(
        next(&mut at_joiner).await,
        JoinEvent::Welcome {
            welcome,
            host: host_at
        }
    );
    assert_eq!(next(&mut at_joiner).await, JoinEvent::Done);
    assert_eq!(next(&mut at_host).await, HostEvent::Done);
    ended(&mut at_host).await;
    ended(&mut at_joiner).await;
}

#[tokio::test]
async fn three_wrong_codes_burn_it() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let wrong = mistaken(host.code());
    for left in [Some(2), Some(1), None] {
        let (_says, mut at_joiner) = joiner(&wrong);
        let refused = JoinEvent::Failed(PairFailure::WrongCode.into());
        assert_eq!(next(&mut at_joiner).await, refused);
        let expected = match left {
            Some(left) => HostEvent::WrongTry { left },
            None => HostEvent::Failed(PairError::Burnt),
        };
        assert_eq!(next(&mut at_host).await, expected);
    }
    ended(&mut at_host).await;
    let (_says, mut at_joiner) = joiner(host.code());
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Failed(PairError::Unreachable(_))
    ));
}

#[tokio::test]
async fn a_wrong_try_leaves_the_right_one_its_chance() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let (_says, mut at_joiner) = joiner(&mistaken(host.code()));
    next(&mut at_joiner).await;
    assert_eq!(next(&mut at_host).await, HostEvent::WrongTry { left: 2 });
    let (_says, mut at_joiner) = joiner(host.code());
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Words { .. }
    ));
    assert!(matches!(next(&mut at_host).await, HostEvent::Words { .. }));
}

#[tokio::test]
async fn a_code_expires() {
    let (host, _host_says, mut at_host) = host(Duration::from_millis(300));
    assert_eq!(
        next(&mut at_host).await,
        HostEvent::Failed(PairError::Expired)
    );
    let (_says, mut at_joiner) = joiner(host.code());
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Failed(PairError::Unreachable(_))
    ));
}

#[tokio::test]
async fn no_and_going_away_end_it_on_the_other_side() {
    for how in 0..3 {
        let (host, host_says, mut at_host) = host(VALID_FOR);
        let (joiner_says, mut at_joiner) = joiner(host.code());
        assert!(matches!(
            next(&mut at_joiner).await,
            JoinEvent::Words { .. }
        ));
        assert!(matches!(next(&mut at_host).await, HostEvent::Words { .. }));
        let cancelled = PairError::from(PairFailure::Cancelled);
        match how {
            0 => {
                host_says.send(HostCommand::Confirm(false)).await.unwrap();
                assert_eq!(next(&mut at_joiner).await, JoinEvent::Failed(cancelled));
                let here = PairFailure::CancelledHere.into();
                assert_eq!(next(&mut at_host).await, HostEvent::Failed(here));
            }
            1 => {
                joiner_says.send(JoinCommand::Cancel).await.unwrap();
                assert_eq!(next(&mut at_host).await, HostEvent::Failed(cancelled));
            }
            _ => {
                drop((host_says, at_host));
                assert_eq!(next(&mut at_joiner).await, JoinEvent::Failed(cancelled));
            }
        }
    }
}

#[tokio::test]
async fn a_record_before_the_confirmation_ends_it() {
    let (host, host_says, mut at_host) = host(VALID_FOR);
    let (_says, mut at_joiner) = joiner(host.code());
    assert!(matches!(next(&mut at_host).await, HostEvent::Words { .. }));
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Words { .. }
    ));
    let offer = HostCommand::Offer {
        account: AccountId([0; 32]),
        record: vec![1],
    };
    host_says.send(offer).await.unwrap();
    assert_eq!(
        next(&mut at_host).await,
        HostEvent::Failed(WrongStep.into())
    );
    assert!(matches!(next(&mut at_joiner).await, JoinEvent::Failed(_)));
}

/// Stands between with keys of its own, and passes every byte of the stream on.
async fn middle(server: quinn::Endpoint, client: quinn::ClientConfig, host: SocketAddr) {
    let near = server.accept().await.unwrap().await.unwrap();
    let (mut near_send, mut near_recv) = near.accept_bi().await.unwrap();
    let out = quinn::Endpoint::client(SocketAddr::new(LOCALHOST, 0)).unwrap();
    let far = out
        .connect_with(client, host, tls::SERVER_NAME)
        .unwrap()
        .await
        .unwrap();
    let (mut far_send, mut far_recv) = far.open_bi().await.unwrap();
    let there = tokio::io::copy(&mut near_recv, &mut far_send);
    let back = tokio::io::copy(&mut far_recv, &mut near_send);
    let _ = tokio::join!(there, back);
    let _ = near_send.finish();
    let _ = near_send.stopped().await;
}

#[tokio::test]
async fn one_between_who_passes_everything_on_is_found_out() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let identity = Identity::new(&[66; 32]).unwrap();
    let server = quinn::Endpoint::new(
        quinn::EndpointConfig::default(),
        Some(identity.server(Trust::Anyone, &[ALPN_PAIR]).unwrap()),
        std::net::UdpSocket::bind((LOCALHOST, 0)).unwrap(),
        Arc::new(quinn::TokioRuntime),
    )
    .unwrap();
    let middle_at = server.local_addr().unwrap();
    let client = identity.client(Trust::Anyone, &[ALPN_PAIR]).unwrap();
    tokio::spawn(middle(server, client, host.code().addrs()[0]));
    let led_astray = PairCode::new(&[middle_at], host.code().secret()).unwrap();
    let (_says, mut at_joiner) = joiner(&led_astray);
    assert_eq!(next(&mut at_host).await, HostEvent::WrongTry { left: 2 });
    assert_eq!(
        next(&mut at_joiner).await,
        JoinEvent::Failed(PairFailure::WrongCode.into())
    );
}

#[tokio::test]
async fn the_next_address_is_tried_when_the_first_knows_no_such_code() {
    let (other, _other_says, mut at_other) = host(VALID_FOR);
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let dead = SocketAddr::new(LOCALHOST, 9);
    let addrs = [other.code().addrs()[0], dead, host.code().addrs()[0]];
    let code = PairCode::new(&addrs, host.code().secret()).unwrap();
    let (_says, mut at_joiner) = joiner(&code);
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Words { .. }
    ));
    assert!(matches!(next(&mut at_host).await, HostEvent::Words { .. }));
    assert_eq!(next(&mut at_other).await, HostEvent::WrongTry { left: 2 });
}

/// The short code at the address of the long one: nothing here minds the network.
fn by_short(host: &PairHost, text: &str) -> (mpsc::Sender<JoinCommand>, mpsc::Receiver<JoinEvent>) {
    joiner_by(text.parse().unwrap(), host.code().addrs().to_vec())
}

#[tokio::test]
async fn two_devices_pair_by_the_short_code() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let said = host.short().unwrap().to_string();
    let (_says, mut at_joiner) = by_short(&host, &said);
    let HostEvent::Words { words, .. } = next(&mut at_host).await else {
        panic!()
    };
    let JoinEvent::Words { words: there, .. } = next(&mut at_joiner).await else {
        panic!()
    };
    assert_eq!(words, there);
}

#[tokio::test]
async fn one_wrong_guess_burns_the_short_code_and_leaves_the_long_one() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let said = host.short().unwrap().to_string();
    let slot = host.short().unwrap().slot();
    let wrong = if said.contains("acorn") {
        "zebra-zipper"
    } else {
        "acorn-alarm"
    };
    let (_says, mut at_joiner) = by_short(&host, &format!("{slot}-{wrong}"));
    let refused = JoinEvent::Failed(PairFailure::WrongCode.into());
    assert_eq!(next(&mut at_joiner).await, refused);
    assert_eq!(next(&mut at_host).await, HostEvent::ShortBurnt);
    // The right one is worth nothing now, and that is no news to the host.
    let (_says, mut at_joiner) = by_short(&host, &said);
    assert_eq!(next(&mut at_joiner).await, refused);
    let (_says, mut at_joiner) = joiner(host.code());
    assert!(matches!(
        next(&mut at_joiner).await,
        JoinEvent::Words { .. }
    ));
    assert!(matches!(next(&mut at_host).await, HostEvent::Words { .. }));
}

#[tokio::test]
async fn a_number_that_nobody_answers_for_is_said_so() {
    let (_says, mut at_joiner) = joiner_by("999-acorn-alarm".parse().unwrap(), vec![]);
    let event = next(&mut at_joiner).await;
    let told = matches!(
        &event,
        JoinEvent::Failed(PairError::NotFound(999) | PairError::NoNetwork(_))
    );
    assert!(told, "{event:?}");
}

#[tokio::test]
async fn an_earlier_release_is_told_so_on_either_side() {
    let (host, _host_says, mut at_host) = host(VALID_FOR);
    let identity = Identity::new(&[66; 32]).unwrap();
    let client = identity.client(Trust::Anyone, &[ALPN_PAIR_BEFORE]).unwrap();
    let out = quinn::Endpoint::client(SocketAddr::new(LOCALHOST, 0)).unwrap();
    let at = host.code().addrs()[0];
    let connection = out.connect_with(client, at, tls::SERVER_NAME).unwrap();
    let connection = connection.await.unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&[3, 0, 0, 0, 0, 1, 9]).await.unwrap();
    let told = recv.read_to_end(64).await.unwrap();
    assert_eq!(told, [2, 0, 0, 0, 7, 3]);
    assert_eq!(next(&mut at_host).await, HostEvent::Older);

    let server = quinn::Endpoint::new(
        quinn::EndpointConfig::default(),
        Some(identity.server(Trust::Anyone, &[ALPN_PAIR_BEFORE]).unwrap()),
        std::net::UdpSocket::bind((LOCALHOST, 0)).unwrap(),
        Arc::new(quinn::TokioRuntime),
    )
    .unwrap();
    let old_at = server.local_addr().unwrap();
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let _closed = connection.closed().await;
    });
    let code = PairCode::new(&[old_at], host.code().secret()).unwrap();
    let (_says, mut at_joiner) = joiner(&code);
    let version = JoinEvent::Failed(PairFailure::Version.into());
    assert_eq!(next(&mut at_joiner).await, version);
}
