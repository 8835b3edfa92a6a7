//! Published datagram ports between real clients on the node's loopback and a
//! real kernel's stack in a box.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use bailey_gate_proto::channel::GateEvent;
use bailey_model::{Direction, Refusal};
use world::{Word, World, inside, no_facts};

const PORT: u16 = 80;
const INNER: u16 = 8080;
const CLIENTS: usize = 200;

fn world() -> World {
    let publish = format!("{PORT}:{INNER}/udp").parse().unwrap();
    World::with_published("nothing", no_facts(), bailey_model::link::MTU, &[publish])
}

/// A program of the box that sends back what it gets.
fn serve(world: &World, at: impl Into<SocketAddr>) {
    let at = at.into();
    let socket = world.inner.run(move || UdpSocket::bind(at).unwrap());
    std::thread::spawn(move || {
        let mut data = vec![0; 1 << 16];
        while let Ok((len, from)) = socket.recv_from(&mut data) {
            socket.send_to(&data[..len], from).unwrap();
        }
    });
}

/// Somebody on the node.
fn client(world: &World) -> UdpSocket {
    let socket = world.node.run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect((Ipv4Addr::LOCALHOST, PORT)).unwrap();
        socket
    });
    socket
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    socket
}

#[test]
fn two_hundred_clients_at_once_are_told_apart() {
    if !inside("two_hundred_clients_at_once_are_told_apart") {
        return;
    }
    let mut world = world();
    serve(&world, (Ipv4Addr::UNSPECIFIED, INNER));
    let clients: Vec<UdpSocket> = (0..CLIENTS).map(|_| client(&world)).collect();
    for round in 0..5_u8 {
        for (number, client) in clients.iter().enumerate() {
            client
                .send(&[round, u8::try_from(number).unwrap()])
                .unwrap();
        }
        for (number, client) in clients.iter().enumerate() {
            let mut got = [0; 9];
            let len = client.recv(&mut got).unwrap();
            assert_eq!(got[..len], [round, u8::try_from(number).unwrap()]);
        }
    }
    let mut entered: Vec<SocketAddr> = world
        .events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            GateEvent::FlowOpened(opened) => match opened.direction {
                Direction::In { client } => {
                    assert_eq!(opened.tuple.src.port(), client.port());
                    Some(client)
                }
                Direction::Out => None,
            },
            _ => None,
        })
        .collect();
    entered.sort_unstable();
    let mut came: Vec<SocketAddr> = clients
        .iter()
        .map(|client| client.local_addr().unwrap())
        .collect();
    came.sort_unstable();
    assert_eq!(entered, came);
    assert_eq!(world.stop(), u32::try_from(CLIENTS).unwrap());
    // Nobody is behind the port any more.
    clients[0].send(b"x").unwrap();
    let error = clients[0].recv(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_program_is_found_on_its_own_loopback_and_on_ipv6_alone() {
    if !inside("a_program_is_found_on_its_own_loopback_and_on_ipv6_alone") {
        return;
    }
    for at in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, INNER)),
        SocketAddr::from((bailey_model::link::BOX_V6, INNER)),
    ] {
        let world = world();
        serve(&world, at);
        let client = client(&world);
        for data in [&b""[..], b"hello", &[7; 60_000]] {
            client.send(data).unwrap();
            let mut got = vec![0; 1 << 16];
            let len = client.recv(&mut got).unwrap();
            assert_eq!(&got[..len], data, "{at}");
        }
    }
}

#[test]
fn no_datagram_goes_in_whose_entry_cannot_be_written() {
    if !inside("no_datagram_goes_in_whose_entry_cannot_be_written") {
        return;
    }
    let world = world();
    serve(&world, (Ipv4Addr::UNSPECIFIED, INNER));
    *world.word.lock().unwrap() = Word::Refuse;
    let refused = client(&world);
    refused
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    refused.send(b"x").unwrap();
    assert!(refused.recv(&mut [0]).is_err());
    world.event(|event| match event {
        GateEvent::FlowRefused(refused) => {
            (refused.refusal == Refusal::StoreUnavailable).then_some(())
        }
        _ => None,
    });
    // The control.
    *world.word.lock().unwrap() = Word::Commit;
    refused.send(b"y").unwrap();
    assert_eq!(refused.recv(&mut [0; 9]).unwrap(), 1);
}
