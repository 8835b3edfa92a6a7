//! Published ports between a real client on the node's loopback and a real
//! kernel's stack in a box.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bailey_gate_proto::MAX_INBOUND_TCP;
use bailey_gate_proto::channel::GateEvent;
use bailey_model::{Direction, EndReason, FlowEnded, FlowOpened, Refusal};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};
use world::{Place, Word, World, inside, is_reset, no_facts, reset};

const PORT: u16 = 80;
const INNER: u16 = 8080;
const SOON: Duration = Duration::from_millis(500);

fn world() -> World {
    // Both ends of every connection are this process's.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let publish = format!("{PORT}:{INNER}").parse().unwrap();
    World::with_published("nothing", no_facts(), bailey_model::link::MTU, &[publish])
}

/// A program of the box that listens at this address.
fn serve(world: &World, at: impl Into<SocketAddr>) -> TcpListener {
    let at = at.into();
    let listener = world.inner.run(move || TcpListener::bind(at).unwrap());
    listen(&listener, Backlog::MAXALLOWABLE).unwrap();
    listener
}

fn any() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, INNER).into()
}

/// Somebody on the node who dials the published port.
fn client(world: &World) -> TcpStream {
    dial(&world.node)
}

fn dial(node: &Place) -> TcpStream {
    let dialled = node.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)));
    let stream = dialled.unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// A connection through the gate: the client's end, and the box's.
fn connection(world: &World, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let outer = client(world);
    (outer, listener.accept().unwrap().0)
}

fn opened(world: &World) -> Vec<FlowOpened> {
    let events = world.events.lock().unwrap();
    let opened = events.iter().filter_map(|event| match event {
        GateEvent::FlowOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    opened.collect()
}

fn ended(world: &World, reason: EndReason) -> FlowEnded {
    world.event(|event| match event {
        GateEvent::FlowEnded(ended) if ended.end == reason => Some(ended.clone()),
        _ => None,
    })
}

#[test]
fn bytes_pass_unchanged_and_each_half_closes_by_itself() {
    if !inside("bytes_pass_unchanged_and_each_half_closes_by_itself") {
        return;
    }
    let world = world();
    let listener = serve(&world, any());
    let outer = client(&world);
    let (inner, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), bailey_model::link::GATE_V4);
    let entries = opened(&world);
    let client = outer.local_addr().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].direction, Direction::In { client });
    assert_eq!(entries[0].tuple.src, from);
    let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
    std::thread::scope(|scope| {
        for stream in [&outer, &inner] {
            let sent = &sent;
            scope.spawn(move || {
                (&mut &*stream).write_all(sent).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut got = Vec::new();
                (&mut &*stream).read_to_end(&mut got).unwrap();
                assert!(got == *sent, "{} of {} bytes", got.len(), sent.len());
            });
        }
    });
    drop((outer, inner));
    let ended = ended(&world, EndReason::Closed);
    assert_eq!((ended.bytes_out, ended.bytes_in), (20_000_000, 20_000_000));
    assert_eq!(ended.outer_src, Some(client));
}

#[test]
fn a_half_that_is_closed_leaves_the_other_open() {
    if !inside("a_half_that_is_closed_leaves_the_other_open") {
        return;
    }
    let world = world();
    let listener = serve(&world, any());
    for outer_first in [true, false] {
        let (outer, inner) = connection(&world, &listener);
        let (mut first, mut last) = match outer_first {
            true => (&outer, &inner),
            false => (&inner, &outer),
        };
        first.write_all(b"all").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        last.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"all");
        std::thread::sleep(Duration::from_millis(100));
        last.write_all(b"the rest").unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        got.clear();
        first.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"the rest");
    }
}

#[test]
fn a_program_is_reached_on_its_own_loopback_and_on_ipv6_alone() {
    if !inside("a_program_is_reached_on_its_own_loopback_and_on_ipv6_alone") {
        return;
    }
    let world = world();
    for at in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, INNER)),
        SocketAddr::from((bailey_model::link::BOX_V6, INNER)),
    ] {
        let listener = serve(&world, at);
        let start = Instant::now();
        let (mut outer, mut inner) = connection(&world, &listener);
        inner.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        outer.read_exact(&mut got).unwrap();
        assert!(start.elapsed() < SOON, "{at}: {:?}", start.elapsed());
        outer.write_all(b"world").unwrap();
        inner.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"world");
    }
    assert_eq!(opened(&world).len(), 2);
    // The control: nobody gets there but by the published port.
    let listener = serve(&world, (Ipv6Addr::LOCALHOST, INNER));
    let mut outer = client(&world);
    is_reset(&mut outer);
    drop(listener);
}

#[test]
fn a_box_that_does_not_listen_resets_the_client_at_once() {
    if !inside("a_box_that_does_not_listen_resets_the_client_at_once") {
        return;
    }
    let world = world();
    let start = Instant::now();
    let mut outer = client(&world);
    is_reset(&mut outer);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let ended = ended(&world, EndReason::DialRefused);
    assert_eq!((ended.bytes_in, ended.bytes_out), (0, 0));
    // The audit cannot be written: nothing goes in.
    let listener = serve(&world, any());
    listener.set_nonblocking(true).unwrap();
    *world.word.lock().unwrap() = Word::Refuse;
    is_reset(&mut client(&world));
    world.event(|event| match event {
        GateEvent::FlowRefused(refused) if refused.refusal == Refusal::StoreUnavailable => Some(()),
        _ => None,
    });
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn resets_cross_the_gate_both_ways() {
    if !inside("resets_cross_the_gate_both_ways") {
        return;
    }
    let world = world();
    let listener = serve(&world, any());
    let mut outer = client(&world);
    reset(listener.accept().unwrap().0);
    is_reset(&mut outer);
    ended(&world, EndReason::ResetByBox);
    let (outer, mut inner) = connection(&world, &listener);
    reset(outer);
    is_reset(&mut inner);
    ended(&world, EndReason::ResetByPeer);
}

#[test]
fn a_slow_reader_loses_nothing() {
    if !inside("a_slow_reader_loses_nothing") {
        return;
    }
    let world = world();
    let listener = serve(&world, any());
    let (outer, inner) = connection(&world, &listener);
    let sent: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 253) as u8).collect();
    for (mut from, mut to) in [(&outer, &inner), (&inner, &outer)] {
        std::thread::scope(|scope| {
            scope.spawn(|| from.write_all(&sent).unwrap());
            std::thread::sleep(Duration::from_secs(1));
            let start = Instant::now();
            let mut got = vec![0; sent.len()];
            to.read_exact(&mut got).unwrap();
            assert!(got == sent);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "{took:?}");
        });
    }
}

#[test]
fn connections_in_a_row_and_at_once_are_each_served_and_entered() {
    if !inside("connections_in_a_row_and_at_once_are_each_served_and_entered") {
        return;
    }
    /// In turn by each of [`HANDS`], so that ends are used anew.
    const TURNS: usize = 20;
    const HANDS: usize = 200;
    let world = world();
    let listener = serve(&world, any());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut asked = [0; 4];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(&asked).unwrap();
            });
        }
    });
    // All of them are inside at once before the first one goes on.
    let inside = std::sync::Barrier::new(HANDS);
    std::thread::scope(|scope| {
        for hand in 0..HANDS {
            let (node, inside) = (&world.node, &inside);
            scope.spawn(move || {
                let asked = u32::try_from(hand).unwrap().to_be_bytes();
                for _ in 0..TURNS {
                    let mut stream = dial(node);
                    inside.wait();
                    stream.write_all(&asked).unwrap();
                    let mut got = Vec::new();
                    stream.read_to_end(&mut got).unwrap();
                    assert_eq!(got, asked);
                }
            });
        }
    });
    assert_eq!(opened(&world).len(), TURNS * HANDS);
    let until = Instant::now() + Duration::from_secs(5);
    let closed = |event: &GateEvent| matches!(event, GateEvent::FlowEnded(ended) if ended.end == EndReason::Closed);
    while world
        .events
        .lock()
        .unwrap()
        .iter()
        .filter(|e| closed(e))
        .count()
        < TURNS * HANDS
    {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_beyond_the_bound_is_reset_and_entered() {
    if !inside("what_is_beyond_the_bound_is_reset_and_entered") {
        return;
    }
    let world = world();
    let listener = serve(&world, any());
    let mut held = Vec::new();
    for _ in 0..MAX_INBOUND_TCP {
        held.push(connection(&world, &listener));
    }
    is_reset(&mut client(&world));
    world.event(|event| match event {
        GateEvent::FlowRefused(refused) => {
            assert_eq!(refused.refusal, Refusal::Limit);
            assert_eq!(refused.direction.as_str(), "in");
            Some(())
        }
        _ => None,
    });
    // One that leaves makes room for one.
    held.pop();
    let served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let mut outer = client(&world);
        outer.write_all(b"x").is_ok()
            && outer
                .set_read_timeout(Some(Duration::from_millis(50)))
                .is_ok()
            && outer
                .read(&mut [0])
                .is_err_and(|error| error.kind() != ErrorKind::ConnectionReset)
    });
    assert!(served);
}

#[test]
fn a_stop_resets_who_is_inside_and_closes_the_port() {
    if !inside("a_stop_resets_who_is_inside_and_closes_the_port") {
        return;
    }
    let mut world = world();
    let listener = serve(&world, any());
    let (mut outer, mut inner) = connection(&world, &listener);
    assert_eq!(world.stop(), 1);
    for stream in [&mut outer, &mut inner] {
        is_reset(stream);
    }
    let late = world
        .node
        .run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
