//! The gate's binary between a real kernel's stack in a box and a real network.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use bailey_gate_proto::channel::{GateEvent, HostFacts, ToGate};
use bailey_model::{EndReason, Refusal};
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record};
use world::{PUBLIC_V4, Place, ROUTER, Word, World, inside, is_reset, no_facts, reset, v4, v6};

const SOON: Duration = Duration::from_millis(500);

/// A listener that sends back what it gets, connection by connection.
fn echo(place: &Place, at: SocketAddr) {
    let listener = place.run(move || TcpListener::bind(at).unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut from, mut to) = (&stream, &stream);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
}

fn dial(place: &Place, to: SocketAddr) -> Result<TcpStream, ErrorKind> {
    place.run(move || {
        let start = Instant::now();
        let dialled = TcpStream::connect_timeout(&to, Duration::from_secs(5));
        assert!(
            start.elapsed() < SOON,
            "{to}: {:?} {dialled:?}",
            start.elapsed()
        );
        if let Ok(stream) = &dialled {
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
        }
        dialled.map_err(|error| error.kind())
    })
}

#[test]
fn tcp_passes_byte_for_byte_and_closes_half_by_half() {
    if !inside("tcp_passes_byte_for_byte_and_closes_half_by_half") {
        return;
    }
    let world = World::new("internet", no_facts());
    for to in [v4(7), v6(7)] {
        echo(&world.router, to);
        let stream = dial(&world.inner, to).unwrap();
        let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        let writer = std::thread::spawn({
            let (mut stream, sent) = (stream.try_clone().unwrap(), sent.clone());
            move || {
                stream.write_all(&sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            }
        });
        let mut got = Vec::new();
        (&stream).read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        drop(stream);
        let ended = world.event(|event| match event {
            GateEvent::FlowEnded(ended) if ended.bytes_out == 20_000_000 => Some(ended.clone()),
            _ => None,
        });
        assert_eq!((ended.end, ended.bytes_in), (EndReason::Closed, 20_000_000));
        assert!(ended.outer_src.is_some());
        world.events.lock().unwrap().clear();
    }
}

#[test]
fn refusals_and_failed_dials_are_known_at_once() {
    if !inside("refusals_and_failed_dials_are_known_at_once") {
        return;
    }
    let world = World::new("internet", no_facts());
    echo(&world.router, SocketAddr::new(IpAddr::V4(ROUTER), 7));
    let refused = Err(ErrorKind::ConnectionRefused);
    // The node's own network, the node itself, its loopback, the gate.
    for to in [
        "192.168.77.1:7",
        "192.168.77.2:7",
        "127.0.0.2:7",
        "192.0.0.1:7",
        "[fd77::1]:7",
    ] {
        let to: SocketAddr = to.parse().unwrap();
        let outcome = dial(&world.inner, to).map(drop);
        if to.ip().is_loopback() {
            // The box's own.
            assert!(outcome.is_err());
        } else {
            assert_eq!(outcome, refused, "{to}");
        }
    }
    let event = world.event(|event| match event {
        GateEvent::FlowRefused(refused) => Some(refused.clone()),
        _ => None,
    });
    assert_eq!((event.refusal, event.count), (Refusal::OutsideReach, 1));
    // Allowed, but nobody listens; allowed, but no way there.
    assert_eq!(dial(&world.inner, v4(9)).map(drop), refused);
    assert_eq!(dial(&world.inner, v6(9)).map(drop), refused);
    world.node.ip("route add unreachable 8.8.0.0/16");
    let outcome = dial(&world.inner, "8.8.8.8:1".parse().unwrap()).map(drop);
    assert_eq!(outcome, Err(ErrorKind::HostUnreachable));
    // The audit cannot be written.
    *world.word.lock().unwrap() = Word::Refuse;
    echo(&world.router, v4(7));
    assert_eq!(dial(&world.inner, v4(7)).map(drop), refused);
}

#[test]
fn resets_cross_the_gate_both_ways() {
    if !inside("resets_cross_the_gate_both_ways") {
        return;
    }
    let world = World::new("internet", no_facts());
    let listener = world.router.run(|| TcpListener::bind(v4(80)).unwrap());
    let mut inner = dial(&world.inner, v4(80)).unwrap();
    let (far, _) = listener.accept().unwrap();
    reset(far);
    is_reset(&mut inner);
    let inner = dial(&world.inner, v4(80)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    reset(inner);
    is_reset(&mut far);
    for want in [EndReason::ResetByPeer, EndReason::ResetByBox] {
        world.event(|event| match event {
            GateEvent::FlowEnded(ended) if ended.end == want => Some(()),
            _ => None,
        });
    }
}

#[test]
fn a_slow_reader_loses_nothing() {
    if !inside("a_slow_reader_loses_nothing") {
        return;
    }
    let world = World::new("internet", no_facts());
    let listener = world.router.run(|| TcpListener::bind(v4(80)).unwrap());
    let inner = dial(&world.inner, v4(80)).unwrap();
    let (far, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 253) as u8).collect();
    for (mut from, mut to) in [(&inner, &far), (&far, &inner)] {
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&sent).unwrap());
            std::thread::sleep(Duration::from_secs(2));
            let start = Instant::now();
            let mut got = vec![0; sent.len()];
            to.read_exact(&mut got).unwrap();
            assert!(got == sent);
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{:?}",
                start.elapsed()
            );
        });
    }
}

#[test]
fn udp_passes_and_what_is_refused_or_closed_says_so() {
    if !inside("udp_passes_and_what_is_refused_or_closed_says_so") {
        return;
    }
    let world = World::new("internet", no_facts());
    for (to, any) in [(v4(7), "0.0.0.0:0"), (v6(7), "[::]:0")] {
        let far = world.router.run(move || UdpSocket::bind(to).unwrap());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65535];
            while let Ok((len, from)) = far.recv_from(&mut buffer) {
                far.send_to(&buffer[..len], from).unwrap();
            }
        });
        let inner = world.inner.run(move || UdpSocket::bind(any).unwrap());
        inner
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        for len in [1_usize, 1400, 9000, 60_000] {
            inner.send_to(&vec![5; len], to).unwrap();
            let mut buffer = vec![0; 65535];
            let (got, from) = inner.recv_from(&mut buffer).unwrap();
            assert_eq!((got, from), (len, to));
        }
    }
    let refused: SocketAddr = "192.168.77.1:9".parse().unwrap();
    for to in [refused, v4(9), v6(9)] {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let error = world.inner.run(move || {
            let inner = UdpSocket::bind(any).unwrap();
            inner.connect(to).unwrap();
            inner.set_read_timeout(Some(SOON)).unwrap();
            inner.send(b"x").unwrap();
            inner.recv(&mut [0]).unwrap_err().kind()
        });
        assert_eq!(error, ErrorKind::ConnectionRefused, "{to}");
    }
}

/// A resolver that knows one name.
fn resolver(place: &Place) -> SocketAddr {
    let at = SocketAddr::new(IpAddr::V4(ROUTER), 53);
    let reply = |bytes: &[u8]| {
        let mut message = Message::from_vec(bytes).unwrap();
        message.metadata.message_type = MessageType::Response;
        message.metadata.recursion_available = true;
        let name = message.queries[0].name().clone();
        if message.queries[0].query_type() == hickory_proto::rr::RecordType::A {
            message
                .answers
                .push(Record::from_rdata(name, 60, RData::A(A(PUBLIC_V4))));
        }
        message.to_vec().unwrap()
    };
    let udp = place.run(move || UdpSocket::bind(at).unwrap());
    let tcp = place.run(move || TcpListener::bind(at).unwrap());
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((len, from)) = udp.recv_from(&mut buffer) {
            let mut bytes = reply(&buffer[..len]);
            let asked = Message::from_vec(&buffer[..len]).unwrap();
            if asked.queries[0].name().to_string().starts_with("large") {
                // Truncated, without its answers: to be asked over TCP.
                bytes = {
                    let mut message = Message::from_vec(&bytes).unwrap();
                    message.answers.clear();
                    message.metadata.truncation = true;
                    message.to_vec().unwrap()
                };
            }
            udp.send_to(&bytes, from).unwrap();
        }
    });
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            let mut bytes = vec![0; u16::from_be_bytes(len).into()];
            stream.read_exact(&mut bytes).unwrap();
            let bytes = reply(&bytes);
            stream
                .write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes())
                .unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    at
}

#[test]
fn names_are_asked_over_udp_and_tcp_and_open_what_they_name() {
    if !inside("names_are_asked_over_udp_and_tcp_and_open_what_they_name") {
        return;
    }
    let facts = HostFacts {
        resolvers: vec![SocketAddr::new(IpAddr::V4(ROUTER), 53)],
        ..HostFacts::default()
    };
    let world = World::new("shop.example:7,large.example", facts);
    resolver(&world.router);
    echo(&world.router, v4(7));
    assert_eq!(
        dial(&world.inner, v4(7)).map(drop),
        Err(ErrorKind::ConnectionRefused)
    );
    let ask = |name: &'static str, over_tcp: bool| {
        world.inner.run(move || {
            let mut message = Message::query();
            let name = hickory_proto::rr::Name::from_ascii(name).unwrap();
            message.add_query(hickory_proto::op::Query::query(
                name,
                hickory_proto::rr::RecordType::A,
            ));
            message.metadata.recursion_desired = true;
            let bytes = message.to_vec().unwrap();
            // Any address answers at port 53; nothing of it leaves.
            let server = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(8, 8, 4, 4)), 53);
            let mut reply = vec![0; 65535];
            if over_tcp {
                let mut stream = TcpStream::connect_timeout(&server, SOON).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(2)))
                    .unwrap();
                stream
                    .write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes())
                    .unwrap();
                stream.write_all(&bytes).unwrap();
                let mut len = [0; 2];
                stream.read_exact(&mut len).unwrap();
                reply.truncate(u16::from_be_bytes(len).into());
                stream.read_exact(&mut reply).unwrap();
            } else {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_secs(2)))
                    .unwrap();
                socket.send_to(&bytes, server).unwrap();
                let (len, from) = socket.recv_from(&mut reply).unwrap();
                assert_eq!(from, server);
                reply.truncate(len);
            }
            let reply = Message::from_vec(&reply).unwrap();
            (reply.metadata.response_code.low(), reply.answers.len())
        })
    };
    assert_eq!(ask("evil.example.", false), (3, 0));
    assert_eq!(ask("shop.example.", false), (0, 1));
    assert_eq!(ask("shop.example.", true), (0, 1));
    assert_eq!(ask("large.example.", false), (0, 1));
    dial(&world.inner, v4(7)).unwrap();
    let opened = world.event(|event| match event {
        GateEvent::FlowOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    assert!(opened.host.is_some());
}

#[test]
fn a_stop_resets_what_runs_and_a_gone_node_ends_the_gate() {
    if !inside("a_stop_resets_what_runs_and_a_gone_node_ends_the_gate") {
        return;
    }
    let mut world = World::new("internet", no_facts());
    let listener = world.router.run(|| TcpListener::bind(v4(80)).unwrap());
    let mut inner = dial(&world.inner, v4(80)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(world.stop(), 1);
    is_reset(&mut inner);
    is_reset(&mut far);
    assert_eq!(
        dial(&world.inner, v4(80)).map(drop),
        Err(ErrorKind::ConnectionRefused)
    );
    drop(world);
    // The world's end waits for the gate, and asks that it ended well.
    let world = World::new("internet", no_facts());
    echo(&world.router, v4(7));
    dial(&world.inner, v4(7)).unwrap();
}

#[test]
fn changed_addresses_and_listeners_are_followed() {
    if !inside("changed_addresses_and_listeners_are_followed") {
        return;
    }
    let mut world = World::new("internet,local", no_facts());
    let own = SocketAddr::new("192.168.77.2".parse().unwrap(), 7);
    echo(&world.node, own);
    dial(&world.inner, own).unwrap();
    let facts = HostFacts {
        node_listeners: vec![(bailey_model::Transport::Tcp, own)],
        ..HostFacts::default()
    };
    world.say(&ToGate::Facts(facts));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        dial(&world.inner, own).map(drop),
        Err(ErrorKind::ConnectionRefused)
    );
    drop(world);
    let world = World::new("internet", no_facts());
    echo(&world.router, v4(7));
    dial(&world.inner, v4(7)).unwrap();
    world
        .node
        .ip(&format!("route add {PUBLIC_V4}/32 dev vnode"));
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(
        dial(&world.inner, v4(7)).map(drop),
        Err(ErrorKind::ConnectionRefused)
    );
    world
        .node
        .ip(&format!("route del {PUBLIC_V4}/32 dev vnode"));
    std::thread::sleep(Duration::from_millis(400));
    dial(&world.inner, v4(7)).unwrap();
}

#[test]
fn a_hundred_dials_into_nowhere_do_not_delay_a_live_one() {
    if !inside("a_hundred_dials_into_nowhere_do_not_delay_a_live_one") {
        return;
    }
    let world = World::new("internet", no_facts());
    echo(&world.router, v4(7));
    let waiting: Vec<_> = (0..100_u16)
        .map(|port| {
            world.inner.spawn(move || {
                let to = SocketAddr::new("8.8.8.8".parse().unwrap(), 1000 + port);
                let _ = TcpStream::connect_timeout(&to, Duration::from_secs(1));
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    dial(&world.inner, v4(7)).unwrap();
    waiting
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // Each gave up, so each dial is given up soon after.
    let until = Instant::now() + Duration::from_secs(6);
    loop {
        let given_up = world
            .events
            .lock()
            .unwrap()
            .iter()
            .filter(|event| {
                matches!(event, GateEvent::FlowEnded(ended) if ended.end == EndReason::ResetByBox)
            })
            .count();
        if given_up == 100 {
            break;
        }
        assert!(Instant::now() < until, "{given_up} given up");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_gate_has_given_up_what_it_does_not_need() {
    if !inside("the_gate_has_given_up_what_it_does_not_need") {
        return;
    }
    let world = World::new("internet", no_facts());
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.gate.id())).unwrap();
    for want in [
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "Seccomp:\t2",
        "NoNewPrivs:\t1",
        "Threads:\t1",
    ] {
        assert!(status.contains(want), "{want} in {status}");
    }
}
