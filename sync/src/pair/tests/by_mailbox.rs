//! Real pairings through a real mailbox on loopback.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bailey_envelope::TopicId;
use bailey_session::pair::{Attempt, PairConfig, PairEnd, PairEvent, PairPassword, Pairing};

use super::super::line::{Line, flush};
use super::super::memory::Proved;
use super::super::post::{PostConfig, PostTask, PostTold, Side};
use super::*;
use crate::io::IoEvent;
use crate::mail::{LineEvent, Listener, MailAddress, MailServer, MailServerEvent};

type Topics = Arc<Mutex<HashMap<TopicId, Vec<Vec<u8>>>>>;

/// A mailbox that keeps all, in memory.
struct Kept {
    address: MailAddress,
    topics: Topics,
}

impl Kept {
    fn start() -> Self {
        let listener = Listener::bind(&[1; 32], SocketAddr::new(LOCALHOST, 0)).unwrap();
        let address = MailAddress {
            key: listener.key(),
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().port(),
        };
        let topics = Topics::default();
        tokio::spawn(accept(listener, topics.clone()));
        Self { address, topics }
    }

    /// Blobs of all topics.
    fn blobs(&self) -> usize {
        self.topics.lock().unwrap().values().map(Vec::len).sum()
    }
}

async fn accept(mut listener: Listener, topics: Topics) {
    let (grown, _) = tokio::sync::broadcast::channel(64);
    while let Some(incoming) = listener.next().await {
        tokio::spawn(serve(incoming, topics.clone(), grown.clone()));
    }
}

async fn serve(
    incoming: crate::mail::Incoming,
    topics: Topics,
    grown: tokio::sync::broadcast::Sender<TopicId>,
) {
    let mut news = grown.subscribe();
    let (tell, mut told) = mpsc::channel(4);
    let line = incoming.start(tell, |event| event);
    let mut server = MailServer::new([9; 16], Duration::ZERO);
    let count = |topic| topics.lock().unwrap().get(&topic).map_or(0, Vec::len) as u64;
    let mut followed = Vec::new();
    loop {
        tokio::select! {
            event = told.recv() => match event {
                Some(LineEvent::Bytes(bytes)) => server.handle_bytes(Duration::ZERO, &bytes),
                Some(LineEvent::Written) => {}
                _ => return,
            },
            Ok(topic) = news.recv() => if followed.contains(&topic) {
                server.handle_grown(topic, count(topic));
            },
        }
        loop {
            if let Some(event) = server.poll_event() {
                match event {
                    MailServerEvent::Put { put, topic, blob } => {
                        topics.lock().unwrap().entry(topic).or_default().push(blob);
                        server.handle_stored(put, topic, count(topic) - 1);
                        let _nobody = grown.send(topic);
                    }
                    MailServerEvent::Follow { topic } => {
                        followed.push(topic);
                        server.handle_grown(topic, count(topic));
                    }
                    MailServerEvent::Read { topic, from } => {
                        let at = usize::try_from(from).unwrap();
                        let topics = topics.lock().unwrap();
                        let blob = topics.get(&topic).and_then(|blobs| blobs.get(at)).cloned();
                        server.handle_read(topic, blob.map(|blob| (from, blob)));
                    }
                    _ => {}
                }
            } else if let Some(room) = line.room() {
                let Some(frame) = server.poll_transmit(Duration::ZERO) else {
                    break;
                };
                room.send(frame);
            } else {
                break;
            }
        }
    }
}

fn host_by(kept: &Kept, advertise: Vec<IpAddr>, valid_for: Duration) -> Host {
    let keys = keys(1);
    PairHost::start(PairHostConfig {
        ed25519_secret: *keys.ed25519_secret(),
        device: keys.public(),
        name: "desk".to_owned(),
        listen: SocketAddr::new(LOCALHOST, 0),
        advertise,
        mailbox: Some(kept.address.clone()),
        short: true,
        links: vec![],
        valid_for,
    })
    .unwrap()
}

/// As a person carries it.
fn typed(host: &PairHost) -> PairCode {
    host.code().to_string().to_lowercase().parse().unwrap()
}

async fn words_of(events: &mut mpsc::Receiver<JoinEvent>) -> [&'static str; 4] {
    match next(events).await {
        JoinEvent::Words { words, .. } => words,
        other => panic!("{other:?}"),
    }
}

async fn words_at(events: &mut mpsc::Receiver<HostEvent>) -> [&'static str; 4] {
    match next(events).await {
        HostEvent::Words {
            words,
            remote: None,
            device,
            ..
        } => {
            assert_eq!(device, keys(2).public());
            words
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_devices_that_do_not_reach_each_other_pair() {
    let kept = Kept::start();
    let (host, host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
    let code = typed(&host);
    assert!(!code.is_addressed());
    let (joiner_says, mut at_joiner) = joiner(&code);
    assert_eq!(words_of(&mut at_joiner).await, words_at(&mut at_host).await);
    host_says.send(HostCommand::Confirm(true)).await.unwrap();
    let (account, record) = (AccountId([5; 32]), vec![7; 700]);
    let offer = HostCommand::Offer {
        account,
        record: record.clone(),
    };
    host_says.send(offer).await.unwrap();
    assert_eq!(
        next(&mut at_joiner).await,
        JoinEvent::Offer { account, record }
    );
    let cosign = JoinCommand::Cosign(vec![8; 64]);
    joiner_says.send(cosign).await.unwrap();
    assert_eq!(next(&mut at_host).await, HostEvent::Cosigned(vec![8; 64]));
    let welcome = Welcome {
        envelopes: (0..250).map(|n| vec![n; 4000]).collect(),
        addrs: vec!["10.1.2.3:4".parse().unwrap()],
        session_port: 4001,
    };
    let command = HostCommand::Welcome(welcome.clone());
    host_says.send(command).await.unwrap();
    let host = None;
    let expected = JoinEvent::Welcome { welcome, host };
    assert_eq!(next(&mut at_joiner).await, expected);
    assert_eq!(next(&mut at_joiner).await, JoinEvent::Done);
    assert_eq!(next(&mut at_host).await, HostEvent::Done);
    ended(&mut at_host).await;
    ended(&mut at_joiner).await;
    assert_eq!(
        kept.topics.lock().unwrap().len(),
        2,
        "two topics and no more"
    );
}

#[tokio::test]
async fn who_reaches_the_other_does_not_go_through_the_mailbox() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![LOCALHOST], VALID_FOR);
    let (_says, mut at_joiner) = joiner(&typed(&host));
    let words = words_of(&mut at_joiner).await;
    let HostEvent::Words {
        words: there,
        remote: Some(_),
        ..
    } = next(&mut at_host).await
    else {
        panic!()
    };
    assert_eq!(words, there);
    // What the host has to say to others that have the code is no part of it.
    assert!(kept.blobs() <= 1, "{}", kept.blobs());
}

#[tokio::test]
async fn an_address_that_is_dead_holds_the_mailbox_up_for_no_longer_than_two_seconds() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
    let code = typed(&host);
    // TEST-NET-1: nobody answers there.
    let dead = [
        "192.0.2.1:9".parse().unwrap(),
        "192.0.2.2:9".parse().unwrap(),
    ];
    let code = PairCode::with_mailbox(&dead, code.mailbox().cloned(), code.secret()).unwrap();
    let began = std::time::Instant::now();
    let (_says, mut at_joiner) = joiner(&code);
    assert_eq!(words_of(&mut at_joiner).await, words_at(&mut at_host).await);
    let took = began.elapsed();
    // Each of them alone would take longer.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test]
async fn a_second_device_with_the_code_is_told_so_and_the_first_goes_on() {
    let kept = Kept::start();
    let (host, host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
    let (first_says, mut first) = joiner(&typed(&host));
    assert_eq!(words_of(&mut first).await, words_at(&mut at_host).await);
    let (_says, mut second) = joiner(&typed(&host));
    let refused = JoinEvent::Failed(PairFailure::WrongCode.into());
    assert_eq!(next(&mut second).await, refused);
    host_says.send(HostCommand::Confirm(true)).await.unwrap();
    let (account, record) = (AccountId([5; 32]), vec![7; 9]);
    let offer = HostCommand::Offer { account, record };
    host_says.send(offer).await.unwrap();
    assert!(matches!(next(&mut first).await, JoinEvent::Offer { .. }));
    let cosign = JoinCommand::Cosign(vec![8; 64]);
    first_says.send(cosign).await.unwrap();
    assert_eq!(next(&mut at_host).await, HostEvent::Cosigned(vec![8; 64]));
}

#[tokio::test]
async fn no_and_going_away_are_heard_through_the_mailbox() {
    for how in 0..3 {
        let kept = Kept::start();
        let (host, host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
        let (joiner_says, mut at_joiner) = joiner(&typed(&host));
        assert_eq!(words_of(&mut at_joiner).await, words_at(&mut at_host).await);
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
async fn a_code_that_expired_is_told_so() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![], Duration::from_millis(300));
    let expired = HostEvent::Failed(PairError::Expired);
    assert_eq!(next(&mut at_host).await, expired);
    let began = std::time::Instant::now();
    let (_says, mut at_joiner) = joiner(&typed(&host));
    let refused = JoinEvent::Failed(PairFailure::WrongCode.into());
    assert_eq!(next(&mut at_joiner).await, refused);
    assert!(began.elapsed() < Duration::from_secs(9));
}

/// What a person who has the code by half can do: find the topics and guess.
async fn guess(kept: &Kept, code: &PairCode, password: PairPassword) -> PairFailure {
    let (tell, mut told) = mpsc::channel(16);
    let post = PostConfig {
        mailbox: kept.address.clone(),
        secret: code.secret(),
        identity: Identity::new(&keys(2).ed25519_secret()).unwrap(),
        side: Side::Joiner,
    };
    let _post = PostTask::start(post, tell, |told| told).unwrap();
    let mut met: Option<(Pairing, Line)> = None;
    loop {
        match next(&mut told).await {
            PostTold::Met(Attempt(_), Proved { key, exporter }, line) => {
                let pairing = Pairing::new(PairConfig {
                    end: PairEnd::Joiner(password),
                    exporter,
                    peer_key: key,
                    device: keys(2).public(),
                    name: "pocket".to_owned(),
                    entropy: [4; 64],
                });
                met = Some((pairing.unwrap(), line));
            }
            PostTold::Io(_, IoEvent::Bytes(bytes)) => {
                met.as_mut().unwrap().0.handle_bytes(&bytes);
            }
            PostTold::Io(_, IoEvent::Written) => {}
            // The last one may hear that the code is over before it hears why.
            PostTold::Closed => return PairFailure::WrongCode,
            other => panic!("{other:?}"),
        }
        if let Some((pairing, line)) = &mut met {
            flush(pairing, line);
            if let Some(PairEvent::Failed(failure)) = pairing.poll_event() {
                return failure;
            }
        }
    }
}

#[tokio::test]
async fn three_wrong_proofs_burn_the_code_whichever_way_they_come() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![LOCALHOST], VALID_FOR);
    let code = typed(&host);
    let wrong = PairPassword::Long(mistaken(&code).secret());
    let failed = PairFailure::WrongCode;
    assert_eq!(guess(&kept, &code, wrong).await, failed);
    assert_eq!(next(&mut at_host).await, HostEvent::WrongTry { left: 2 });
    let direct = PairCode::new(code.addrs(), mistaken(&code).secret()).unwrap();
    let (_says, mut at_joiner) = joiner(&direct);
    assert!(matches!(next(&mut at_joiner).await, JoinEvent::Failed(_)));
    assert_eq!(next(&mut at_host).await, HostEvent::WrongTry { left: 1 });
    // The short code does not go through a mailbox, and is not burnt there: neither the
    // right one nor a wrong one.
    for short in [
        host.short().unwrap().to_string(),
        "1-acorn-alarm".to_owned(),
    ] {
        let AnyCode::Short(short) = short.parse().unwrap() else {
            panic!()
        };
        let password = PairPassword::Short(short);
        assert_eq!(guess(&kept, &code, password).await, failed);
    }
    assert_eq!(guess(&kept, &code, wrong).await, failed);
    let burnt = HostEvent::Failed(PairError::Burnt);
    assert_eq!(next(&mut at_host).await, burnt);
    // The right one comes too late.
    let late = PairCode::with_mailbox(&[], code.mailbox().cloned(), code.secret()).unwrap();
    let (_says, mut at_joiner) = joiner(&late);
    let refused = JoinEvent::Failed(PairFailure::WrongCode.into());
    assert_eq!(next(&mut at_joiner).await, refused);
}

#[tokio::test]
async fn a_wrong_secret_finds_nobody_and_burns_nothing() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
    let code = typed(&host);
    let mut secret = code.secret();
    secret.0[0] ^= 1;
    let wrong = PairCode::with_mailbox(&[], code.mailbox().cloned(), secret).unwrap();
    let (_says, mut at_joiner) = joiner(&wrong);
    let JoinEvent::Failed(PairError::ByMailbox(why)) = next(&mut at_joiner).await else {
        panic!()
    };
    assert!(why.contains("nobody answers there"), "{why}");
    let (_says, mut at_joiner) = joiner(&code);
    assert_eq!(words_of(&mut at_joiner).await, words_at(&mut at_host).await);
}

#[tokio::test]
async fn noise_in_the_topic_holds_nobody_up() {
    let kept = Kept::start();
    let (host, _host_says, mut at_host) = host_by(&kept, vec![], VALID_FOR);
    let code = typed(&host);
    let post = bailey_session::pair::Post::host(code.secret(), &kept.address.key);
    {
        let key = bailey_envelope::MailKey::of_pairing(
            &code.secret().0,
            &kept.address.key,
            bailey_envelope::PairWay::ToHost,
        );
        assert_eq!(key.topic(), post.topic());
        let piece = |n: u8, bytes: &[u8]| {
            let head = [&b"BLP\x01\0"[..], &[n; 16], &[0; 4], bytes].concat();
            key.seal(&head).unwrap()
        };
        // Streams that are no TLS, and more of them than there is room for.
        let mut topics = kept.topics.lock().unwrap();
        let all = topics.entry(key.topic()).or_default();
        all.extend((0..20).map(|n| piece(n, b"\x16\x03\x01 noise")));
        all.extend((20..40).map(|n| piece(n, &[n; 15_000])));
        all.push(key.seal(b"noise").unwrap());
        all.push(vec![0; 1024]);
    }
    let (_says, mut at_joiner) = joiner(&code);
    assert_eq!(words_of(&mut at_joiner).await, words_at(&mut at_host).await);
}

#[tokio::test]
async fn a_mailbox_that_is_not_there_is_said_so_on_both_sides() {
    let kept = Kept::start();
    let mut address = kept.address.clone();
    address.key[0] ^= 1;
    let gone = Kept { address, ..kept };
    let (host, _host_says, mut at_host) = host_by(&gone, vec![], VALID_FOR);
    let (_says, mut at_joiner) = joiner(&typed(&host));
    let HostEvent::Away(why) = next(&mut at_host).await else {
        panic!()
    };
    assert!(why.contains("does not answer with its key"), "{why}");
    let event = timeout(Duration::from_secs(30), at_joiner.recv()).await;
    let Some(JoinEvent::Failed(PairError::ByMailbox(why))) = event.unwrap() else {
        panic!()
    };
    assert!(why.contains("it is not reached"), "{why}");
}
