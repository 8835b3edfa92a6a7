//! A gate that has a slate dials what it has noted, and waits where it cannot note.

#![expect(
    clippy::unwrap_used,
    reason = "only tests use it: a panic is their failure"
)]

mod world;

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use bailey_gate_proto::channel::{GateEvent, ToGate};
use bailey_gate_proto::{SLATE_LEN, SLOTS, SlateKey, read_slate};

use crate::world::{Word, World, inside, no_facts, v4};

const KEY: SlateKey = SlateKey([5; 32]);
/// How long a dial that must not come is waited for.
const NOTHING: Duration = Duration::from_millis(300);

fn read(file: &mut File) -> Vec<SocketAddr> {
    let mut bytes = Vec::with_capacity(SLATE_LEN);
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let notes = read_slate(&bytes, &KEY).unwrap();
    notes
        .into_iter()
        .map(|(_, note)| note.opened.tuple.dst)
        .collect()
}

/// A node that never answers, a far end that listens.
fn silent() -> (World, TcpListener) {
    let world = World::new("internet", no_facts());
    *world.word.lock().unwrap() = Word::Silence;
    let listener = world.router.run(|| TcpListener::bind(v4(80)).unwrap());
    (world, listener)
}

/// Whether the far end has a connection within a while.
fn arrives(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let until = std::time::Instant::now() + NOTHING;
    loop {
        match listener.accept() {
            Ok(_) => return true,
            Err(_) if std::time::Instant::now() > until => return false,
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[test]
fn what_is_noted_is_dialled_and_what_is_not_waits_for_its_node() {
    if !inside("what_is_noted_is_dialled_and_what_is_not_waits_for_its_node") {
        return;
    }
    let (mut world, listener) = silent();
    let dial = |world: &World| {
        world
            .inner
            .spawn(|| drop(TcpStream::connect_timeout(&v4(80), Duration::from_secs(2))))
    };
    let waits = dial(&world);
    assert!(
        !arrives(&listener),
        "without a slate it waits for its entry"
    );
    let mut file = world.give_slate(&KEY);
    waits.join().unwrap();
    for count in 1..=3 {
        let dialled = dial(&world);
        assert!(
            arrives(&listener),
            "it is dialled though its node is silent"
        );
        dialled.join().unwrap();
        assert_eq!(
            read(&mut file),
            vec![v4(80); count],
            "and stands on the slate"
        );
    }
    world.event(|event| matches!(event, GateEvent::FlowEnded(_)).then_some(()));
    assert_eq!(world.noted()[0], 1, "it is told too");

    // What is entered is no longer there to be entered.
    world.say(&ToGate::Entered { upto: 2 });
    let dialled = dial(&world);
    assert!(arrives(&listener));
    dialled.join().unwrap();
    assert_eq!(read(&mut file).len(), 2);

    // A node that cannot write has its gate ask, until all of it stands.
    world.say(&ToGate::Ask);
    let waits = dial(&world);
    assert!(!arrives(&listener), "it asks");
    assert_eq!(read(&mut file).len(), 2, "and notes nothing");
    waits.join().unwrap();
    world.say(&ToGate::Entered { upto: 4 });
    let dialled = dial(&world);
    assert!(arrives(&listener), "it notes again");
    dialled.join().unwrap();
}

#[test]
fn a_slate_without_room_is_no_way_around_the_node() {
    if !inside("a_slate_without_room_is_no_way_around_the_node") {
        return;
    }
    let (mut world, listener) = silent();
    let mut file = world.give_slate(&KEY);
    let far = world.router.run(|| UdpSocket::bind(v4(53_000)).unwrap());
    far.set_read_timeout(Some(NOTHING)).unwrap();
    // Each from a port of its own is a flow of its own.
    let ports = 10_000..10_000 + 2 * u16::try_from(SLOTS).unwrap();
    world.inner.run(move || {
        for port in ports {
            let socket = UdpSocket::bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
            let _refused = socket.send_to(b"x", v4(53_000));
        }
    });
    let mut came = 0;
    while far.recv(&mut [0]).is_ok() {
        came += 1;
    }
    // The far end's buffer may be shorter than that.
    assert!((1..=SLOTS).contains(&came), "{came} came");
    assert_eq!(read(&mut file).len(), usize::try_from(SLOTS).unwrap());
    assert!(!arrives(&listener));
}
