//! Real endpoints on loopback.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailey_envelope::DeviceKeys;
use bailey_model::BoxId;
use bailey_session::DocId;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use super::*;

mod hostile;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[derive(Default)]
struct Chains(BTreeMap<ChainId, Vec<Vec<u8>>>);

impl Chains {
    fn head(&self, chain: &ChainId) -> Head {
        let list = &self.0[chain];
        // A hash of sorts: both sides have the same bytes or not.
        let mut hash = [0; 32];
        for (at, byte) in list.last().unwrap().iter().enumerate() {
            hash[at % 32] ^= byte;
        }
        Head {
            chain: *chain,
            seq: list.len() as u64,
            hash: Hash(hash),
        }
    }
}

type Shared = Arc<Mutex<Chains>>;

/// An endpoint and a small node behind it.
struct Device {
    keys: DeviceKeys,
    chains: Shared,
    endpoint: Endpoint,
    commands: mpsc::Sender<SyncCommand>,
    seen: mpsc::UnboundedReceiver<SyncEvent>,
}

fn keys(n: u8) -> DeviceKeys {
    DeviceKeys::generate([n; DeviceKeys::LEN])
}

impl Device {
    fn start(n: u8, listen: SocketAddr) -> Self {
        Self::restart(keys(n), listen, Shared::default(), n)
    }

    fn restart(keys: DeviceKeys, listen: SocketAddr, chains: Shared, incarnation: u8) -> Self {
        let config = EndpointConfig {
            ed25519_secret: *keys.ed25519_secret(),
            device: keys.id(),
            account: AccountId([1; 32]),
            incarnation: Incarnation([incarnation; 16]),
            listen,
            entropy: [incarnation; 32],
        };
        let (endpoint, commands, events) = Endpoint::start(config).unwrap();
        let (told, seen) = mpsc::unbounded_channel();
        tokio::spawn(node(chains.clone(), commands.clone(), events, told));
        Self {
            keys,
            chains,
            endpoint,
            commands,
            seen,
        }
    }

    fn addr(&self) -> SocketAddr {
        SocketAddr::new(LOOPBACK.ip(), self.endpoint.local_port())
    }

    fn id(&self) -> DeviceId {
        self.keys.id()
    }

    async fn tell(&self, command: SyncCommand) {
        self.commands.send(command).await.unwrap();
    }

    async fn members(&self, members: &[&DeviceKeys]) {
        let members = members
            .iter()
            .map(|keys| (keys.id(), keys.public().ed25519))
            .collect();
        self.tell(SyncCommand::Members(members)).await;
    }

    async fn knows(&self, device: DeviceId, addr: SocketAddr) {
        self.tell(SyncCommand::Peer {
            device,
            addrs: vec![addr],
        })
        .await;
    }

    async fn append(&self, doc: DocId, bytes: Vec<u8>) {
        let chain = ChainId {
            doc,
            writer: self.id(),
            incarnation: Incarnation([self.id().0[0]; 16]),
        };
        let head = {
            let mut chains = self.chains.lock().unwrap();
            chains.0.entry(chain).or_default().push(bytes);
            chains.head(&chain)
        };
        self.tell(SyncCommand::Heads(vec![head])).await;
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&SyncEvent) -> bool) -> SyncEvent {
        let found = async {
            loop {
                let event = self.seen.recv().await.expect("the endpoint ended");
                if wanted(&event) {
                    return event;
                }
            }
        };
        let found = timeout(Duration::from_secs(20), found).await;
        found.unwrap_or_else(|_| panic!("waited in vain for: {what}"))
    }

    async fn until_up(&mut self, peer: DeviceId) {
        self.until(
            "up",
            |event| matches!(event, SyncEvent::Up { peer: up, .. } if *up == peer),
        )
        .await;
    }

    async fn until_down(&mut self) -> DownReason {
        let down = self
            .until("down", |event| matches!(event, SyncEvent::Down { .. }))
            .await;
        let SyncEvent::Down { reason, .. } = down else {
            panic!()
        };
        reason
    }

    async fn nothing_seen_for(&mut self, time: Duration) {
        let seen = timeout(time, self.seen.recv()).await;
        assert!(seen.is_err(), "{seen:?}");
    }
}

async fn node(
    chains: Shared,
    commands: mpsc::Sender<SyncCommand>,
    mut events: mpsc::Receiver<SyncEvent>,
    told: mpsc::UnboundedSender<SyncEvent>,
) {
    while let Some(event) = events.recv().await {
        let answer = match &event {
            SyncEvent::NeedRange {
                peer,
                chain,
                from_seq,
                max_bytes,
            } => {
                let mut sum = 0;
                let envelopes = chains.lock().unwrap().0[chain]
                    .iter()
                    .skip(usize::try_from(*from_seq).unwrap() - 1)
                    .take_while(|bytes| {
                        sum += bytes.len();
                        sum == bytes.len() || sum <= *max_bytes as usize
                    })
                    .cloned()
                    .collect();
                vec![SyncCommand::Range {
                    peer: *peer,
                    chain: *chain,
                    from_seq: *from_seq,
                    envelopes,
                }]
            }
            SyncEvent::Envelope { peer, chain, bytes } => {
                let mut chains = chains.lock().unwrap();
                chains.0.entry(*chain).or_default().push(bytes.clone());
                let head = chains.head(chain);
                let (peer, chain, seq) = (*peer, *chain, head.seq);
                vec![
                    SyncCommand::Ingested { peer, chain, seq },
                    SyncCommand::Heads(vec![head]),
                ]
            }
            _ => Vec::new(),
        };
        for command in answer {
            if commands.send(command).await.is_err() {
                return;
            }
        }
        let _ = told.send(event);
    }
}

async fn until_equal(a: &Device, b: &Device) {
    let equal = async {
        while a.chains.lock().unwrap().0 != b.chains.lock().unwrap().0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), equal)
        .await
        .expect("the chains do not become equal");
}

async fn two() -> (Device, Device) {
    let (a, b) = (Device::start(1, LOOPBACK), Device::start(2, LOOPBACK));
    for device in [&a, &b] {
        device.members(&[&a.keys, &b.keys]).await;
    }
    (a, b)
}

async fn joined() -> (Device, Device) {
    let (mut a, mut b) = two().await;
    a.knows(b.id(), b.addr()).await;
    a.until_up(b.id()).await;
    b.until_up(a.id()).await;
    (a, b)
}

#[tokio::test]
async fn members_sync_what_was_and_what_comes() {
    let (mut a, mut b) = two().await;
    for n in 0..200_u32 {
        let doc = DocId::Box(BoxId([u8::try_from(n % 7).unwrap(); 16]));
        a.append(doc, vec![u8::try_from(n).unwrap(); 40_000]).await;
        b.append(DocId::Account, vec![3; 300]).await;
    }
    a.knows(b.id(), b.addr()).await;
    let up = b
        .until("up", |event| matches!(event, SyncEvent::Up { .. }))
        .await;
    let SyncEvent::Up {
        remote,
        listen_port,
        incarnation,
        ..
    } = up
    else {
        panic!()
    };
    assert_eq!(remote, a.addr());
    assert_eq!(listen_port, a.endpoint.local_port());
    assert_eq!(incarnation, Incarnation([1; 16]));
    until_equal(&a, &b).await;
    a.until("caught up", |event| {
        matches!(event, SyncEvent::CaughtUp { .. })
    })
    .await;
    b.until("caught up", |event| {
        matches!(event, SyncEvent::CaughtUp { .. })
    })
    .await;
    let start = Instant::now();
    for n in 0..20 {
        b.append(DocId::Notices, vec![n; 500]).await;
        until_equal(&a, &b).await;
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?} for 20",
        start.elapsed()
    );
}

#[tokio::test]
async fn a_removed_device_hears_of_it_and_gets_nothing_that_comes_after() {
    let (mut a, mut b) = two().await;
    a.append(DocId::Account, vec![1; 300]).await;
    a.append(DocId::Notices, vec![2; 300]).await;
    a.knows(b.id(), b.addr()).await;
    until_equal(&a, &b).await;
    let former = vec![(b.id(), b.keys.public().ed25519)];
    a.tell(SyncCommand::Former(former)).await;
    a.members(&[&a.keys]).await;
    let removed = Instant::now();
    a.append(DocId::Account, vec![3; 300]).await;
    a.append(DocId::Notices, vec![4; 300]).await;
    let down = |event: &SyncEvent| matches!(event, SyncEvent::Down { .. });
    a.until("parting", down).await;
    b.until("the end", down).await;
    assert!(removed.elapsed() < Duration::from_secs(1), "{removed:?}");
    let has = |device: &Device, doc| {
        let chains = device.chains.lock().unwrap();
        let of_doc = chains.0.iter().filter(|(id, _)| id.doc == doc);
        of_doc.map(|(_, list)| list.len()).sum::<usize>()
    };
    assert_eq!((has(&b, DocId::Account), has(&b, DocId::Notices)), (2, 1));
    // It comes again: it hears what the account says, and nothing else.
    a.append(DocId::Account, vec![5; 300]).await;
    a.append(DocId::Notices, vec![6; 300]).await;
    b.knows(a.id(), a.addr()).await;
    let heard = async {
        while has(&b, DocId::Account) < 3 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), heard).await.unwrap();
    b.until("the end again", down).await;
    assert_eq!(has(&b, DocId::Notices), 1);
}

#[tokio::test]
async fn a_key_that_is_no_members_is_refused_from_either_side() {
    // The stranger knows us.
    let (mut a, mut stranger) = (Device::start(1, LOOPBACK), Device::start(2, LOOPBACK));
    stranger.members(&[&a.keys, &stranger.keys]).await;
    a.members(&[&a.keys, &keys(3)]).await;
    stranger.knows(a.id(), a.addr()).await;
    stranger.nothing_seen_for(Duration::from_secs(2)).await;
    a.nothing_seen_for(Duration::from_millis(1)).await;
    // We know its address as that of another member.
    a.knows(keys(3).id(), stranger.addr()).await;
    a.nothing_seen_for(Duration::from_secs(2)).await;
    stranger.nothing_seen_for(Duration::from_millis(1)).await;
    // Before its first members an endpoint lets nobody in.
    let mut empty = Device::start(4, LOOPBACK);
    a.members(&[&a.keys, &empty.keys]).await;
    a.knows(empty.id(), empty.addr()).await;
    empty.nothing_seen_for(Duration::from_secs(1)).await;
    a.nothing_seen_for(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn another_member_at_a_members_address_is_not_taken_for_it() {
    let (mut a, mut b) = two().await;
    let c = keys(3);
    a.members(&[&a.keys, &b.keys, &c]).await;
    a.knows(c.id(), b.addr()).await;
    a.nothing_seen_for(Duration::from_secs(2)).await;
    b.nothing_seen_for(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn removal_ends_the_session_within_a_second_and_for_good() {
    let (mut a, mut b) = joined().await;
    let start = Instant::now();
    a.members(&[&a.keys]).await;
    assert_eq!(a.until_down().await, DownReason::Removed);
    assert!(matches!(b.until_down().await, DownReason::Lost(_)));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    // It goes on dialling, and is refused.
    b.nothing_seen_for(Duration::from_secs(2)).await;
    a.nothing_seen_for(Duration::from_millis(1)).await;
    // Admitted again it is back, by its own dials.
    a.members(&[&a.keys, &b.keys]).await;
    a.until_up(b.id()).await;
    b.until_up(a.id()).await;
}

#[test]
fn a_peer_that_was_killed_and_restarted_is_back_and_lacks_nothing() {
    let here = Runtime::new().unwrap();
    let there = Runtime::new().unwrap();
    let mut b = there.block_on(async { Device::start(2, LOOPBACK) });
    let mut a = here.block_on(async { Device::start(1, LOOPBACK) });
    here.block_on(async {
        for device in [&a, &b] {
            device.members(&[&a.keys, &b.keys]).await;
        }
        a.knows(b.id(), b.addr()).await;
        a.until_up(b.id()).await;
        b.until_up(a.id()).await;
        // From then on a second dial is no simultaneous one.
        sleep(Duration::from_millis(2100)).await;
    });
    let (addr, chains, keys) = (b.addr(), b.chains.clone(), b.keys.clone());
    // Its tasks and its socket are gone without a word.
    there.shutdown_background();
    drop(b);
    let start = Instant::now();
    here.block_on(async {
        a.append(DocId::Node, vec![1; 1000]).await;
        let mut b = None;
        while b.is_none() {
            // The port is free once the tasks of the runtime are gone.
            if UdpSocket::bind(addr).is_ok() {
                b = Some(Device::restart(keys.clone(), addr, chains.clone(), 9));
            }
            sleep(Duration::from_millis(20)).await;
        }
        let b = b.unwrap();
        b.members(&[&a.keys, &b.keys]).await;
        b.knows(a.id(), a.addr()).await;
        assert_eq!(a.until_down().await, DownReason::Replaced);
        let up = a
            .until("up", |event| matches!(event, SyncEvent::Up { .. }))
            .await;
        assert!(matches!(up, SyncEvent::Up { incarnation: Incarnation(i), .. } if i == [9; 16]));
        until_equal(&a, &b).await;
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
    });
}

#[tokio::test]
async fn a_peer_that_left_is_dialled_until_it_is_back() {
    let (mut a, mut b) = joined().await;
    let (addr, id) = (b.addr(), b.id());
    b.tell(SyncCommand::Shutdown).await;
    let Device {
        keys,
        endpoint,
        chains,
        ..
    } = b;
    endpoint.stopped().await;
    assert!(matches!(a.until_down().await, DownReason::Lost(_)));
    sleep(Duration::from_millis(700)).await;
    // It does not know where we are: our dial brings it back.
    b = Device::restart(keys, addr, chains, 9);
    b.members(&[&a.keys, &b.keys]).await;
    let start = Instant::now();
    a.until_up(id).await;
    b.until_up(a.id()).await;
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn simultaneous_dials_end_in_one_session() {
    for round in 0..20 {
        let (mut a, mut b) = two().await;
        let (to_a, to_b) = (a.addr(), b.addr());
        tokio::join!(a.knows(b.id(), to_b), b.knows(a.id(), to_a));
        sleep(Duration::from_millis(400)).await;
        for device in [&mut a, &mut b] {
            let (mut ups, mut downs) = (0, 0);
            while let Ok(event) = device.seen.try_recv() {
                match event {
                    SyncEvent::Up { .. } => ups += 1,
                    SyncEvent::Down { .. } => downs += 1,
                    _ => {}
                }
            }
            assert_eq!(ups, downs + 1, "round {round}");
            assert!(ups <= 2, "round {round}: {ups} sessions");
        }
        a.append(DocId::Notices, vec![1]).await;
        b.append(DocId::Notices, vec![2]).await;
        until_equal(&a, &b).await;
        for device in [&mut a, &mut b] {
            while let Ok(event) = device.seen.try_recv() {
                assert!(!matches!(
                    event,
                    SyncEvent::Up { .. } | SyncEvent::Down { .. }
                ));
            }
        }
    }
}

/// Passes everything to the server, and only the first `answers` datagrams back.
fn half_open_relay(server: SocketAddr, answers: usize) -> SocketAddr {
    let front = UdpSocket::bind(LOOPBACK).unwrap();
    let back = UdpSocket::bind(LOOPBACK).unwrap();
    back.connect(server).unwrap();
    let addr = front.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut buffer, mut client, mut given) = ([0; 2048], None, 0);
        front
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        back.set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_secs(8) {
            if let Ok((length, from)) = front.recv_from(&mut buffer) {
                client = Some(from);
                let _ = back.send(&buffer[..length]);
            }
            if let Ok(length) = back.recv(&mut buffer)
                && let Some(client) = client
                && given < answers
            {
                given += 1;
                let _ = front.send_to(&buffer[..length], client);
            }
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshakes_and_garbage_do_not_keep_a_member_out() {
    let (mut a, mut b) = two().await;
    let target = b.addr();
    let identity = Identity::new(&[77; 32]).unwrap();
    let config = identity.client(Trust::Anyone, &[ALPN_SESSION]).unwrap();
    let mut clients = Vec::new();
    for n in 0..100_u8 {
        let socket = UdpSocket::bind(LOOPBACK).unwrap();
        for length in [1, 20, 1200, 1400] {
            let mut garbage = vec![n; length];
            garbage[0] = 0xc0 | n;
            socket.send_to(&garbage, target).unwrap();
        }
        // Half of them show that they receive, and stall then.
        let relay = half_open_relay(target, usize::from(n % 2));
        let client = quinn::Endpoint::client(LOOPBACK).unwrap();
        let connecting = client
            .connect_with(config.clone(), relay, "bailey")
            .unwrap();
        clients.push((client, tokio::spawn(connecting.into_future())));
    }
    sleep(Duration::from_millis(500)).await;
    let start = Instant::now();
    a.knows(b.id(), target).await;
    b.until_up(a.id()).await;
    a.until_up(b.id()).await;
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    b.append(DocId::Notices, vec![1]).await;
    until_equal(&a, &b).await;
    drop(clients);
}

#[tokio::test]
async fn an_unspecified_ipv6_address_takes_ipv4_and_ipv6() {
    let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0);
    let b = Device::start(2, any);
    for host in ["127.0.0.1", "::1"] {
        let mut a = Device::start(1, any);
        for device in [&a, &b] {
            device.members(&[&a.keys, &b.keys]).await;
        }
        let ip: std::net::IpAddr = host.parse().unwrap();
        if UdpSocket::bind((ip, 0)).is_err() {
            continue;
        }
        a.knows(b.id(), SocketAddr::new(ip, b.endpoint.local_port()))
            .await;
        let up = a
            .until("up", |event| matches!(event, SyncEvent::Up { .. }))
            .await;
        let SyncEvent::Up { remote, .. } = up else {
            panic!()
        };
        assert_eq!(remote.ip(), ip);
    }
}

#[tokio::test]
async fn three_devices_send_an_envelope_once_to_each() {
    let devices: Vec<Device> = (1..=3).map(|n| Device::start(n, LOOPBACK)).collect();
    let all: Vec<&DeviceKeys> = devices.iter().map(|device| &device.keys).collect();
    for device in &devices {
        device.members(&all).await;
        for other in &devices {
            device.knows(other.id(), other.addr()).await;
        }
    }
    sleep(Duration::from_secs(1)).await;
    for n in 0..50 {
        devices[0].append(DocId::Notices, vec![n; 2000]).await;
        sleep(Duration::from_millis(2)).await;
    }
    until_equal(&devices[0], &devices[1]).await;
    until_equal(&devices[0], &devices[2]).await;
    // The small node takes whatever comes: a second copy would stand there twice.
    sleep(Duration::from_millis(200)).await;
    for device in &devices {
        assert_eq!(
            device
                .chains
                .lock()
                .unwrap()
                .0
                .values()
                .map(Vec::len)
                .sum::<usize>(),
            50
        );
    }
}

#[tokio::test]
async fn a_node_that_takes_no_events_holds_its_peer_back_and_loses_nothing() {
    let (a, b) = (Device::start(1, LOOPBACK), keys(2));
    let config = EndpointConfig {
        ed25519_secret: *b.ed25519_secret(),
        device: b.id(),
        account: AccountId([1; 32]),
        incarnation: Incarnation([2; 16]),
        listen: LOOPBACK,
        entropy: [2; 32],
    };
    let (endpoint, commands, events) = Endpoint::start(config).unwrap();
    a.members(&[&a.keys, &b]).await;
    let members = vec![(a.id(), a.keys.public().ed25519)];
    commands.send(SyncCommand::Members(members)).await.unwrap();
    for n in 0..200 {
        a.append(DocId::Box(BoxId([n % 20; 16])), vec![n; 100_000])
            .await;
    }
    let at = SocketAddr::new(LOOPBACK.ip(), endpoint.local_port());
    a.knows(b.id(), at).await;
    sleep(Duration::from_secs(1)).await;
    assert!(
        events.len() < 100,
        "{} events of 200 envelopes",
        events.len()
    );
    let chains = Shared::default();
    let (told, _seen) = mpsc::unbounded_channel();
    tokio::spawn(node(chains.clone(), commands.clone(), events, told));
    let whole = async {
        while a.chains.lock().unwrap().0 != chains.lock().unwrap().0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), whole)
        .await
        .expect("all of it");
}
