//! Datagrams of every length between a real kernel's stack in a box and real
//! hosts.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use bailey_gate_proto::channel::GateEvent;
use bailey_model::Refusal;
use world::{Place, World, inside, no_facts, v4, v6};

/// A server that sends back what it gets.
fn echo(place: &Place, at: SocketAddr) {
    let socket = place.run(move || UdpSocket::bind(at).unwrap());
    std::thread::spawn(move || {
        let mut data = vec![0; 1 << 16];
        while let Ok((len, from)) = socket.recv_from(&mut data) {
            // A client that has gone is no matter.
            let _ = socket.send_to(&data[..len], from);
        }
    });
}

fn client(place: &Place, to: SocketAddr) -> UdpSocket {
    place.run(move || {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => "0.0.0.0".parse().unwrap(),
            SocketAddr::V6(_) => "::".parse().unwrap(),
        };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket.connect(to).unwrap();
        socket
    })
}

#[test]
fn datagrams_of_every_length_pass_whole_both_ways() {
    if !inside("datagrams_of_every_length_pass_whole_both_ways") {
        return;
    }
    // At the lesser MTU the box sends its own in fragments.
    for mtu in [bailey_model::link::MTU, 1500] {
        let world = World::with_mtu("internet", no_facts(), mtu);
        for (to, longest) in [(v4(7), 65507), (v6(7), 65527)] {
            echo(&world.router, to);
            let socket = client(&world.inner, to);
            for len in [0, 1, 1472, 1473, 4000, 9000, 65000, longest] {
                let data: Vec<u8> = (0..len)
                    .map(|at: usize| u8::try_from(at % 251).unwrap())
                    .collect();
                socket.send(&data).unwrap();
                let mut got = vec![0; 1 << 16];
                let read = socket.recv(&mut got);
                assert_eq!(read.ok(), Some(len), "{to}, {len} bytes, MTU {mtu}");
                assert!(got[..len] == data, "{to}, {len} bytes, MTU {mtu}");
            }
        }
        let opened = world.events.lock().unwrap();
        let opened = opened
            .iter()
            .filter(|event| matches!(event, GateEvent::FlowOpened(_)));
        assert_eq!(opened.count(), 2);
    }
}

#[test]
fn groups_and_broadcasts_are_refused_with_one_entry_each() {
    if !inside("groups_and_broadcasts_are_refused_with_one_entry_each") {
        return;
    }
    for to in [
        "239.255.255.250:1900",
        "224.0.0.251:5353",
        "255.255.255.255:9",
        "192.168.77.255:9",
        "[ff02::fb]:5353",
    ] {
        let world = World::new("internet,local", no_facts());
        let to: SocketAddr = to.parse().unwrap();
        world.inner.run(move || {
            // As in a box, whose device has no link-local address.
            let own = match to {
                SocketAddr::V4(_) => "0.0.0.0:0",
                SocketAddr::V6(_) => "[fd00:ba11:e700::2]:0",
            };
            let socket = UdpSocket::bind(own).unwrap();
            socket.set_broadcast(true).unwrap();
            for _ in 0..3 {
                // Later ones may bring the error of the first.
                let _ = socket.send_to(b"x", to);
            }
        });
        let refused = world.event(|event| match event {
            GateEvent::FlowRefused(refused) => Some(refused.clone()),
            _ => None,
        });
        assert_eq!(
            (refused.refusal, refused.dst, refused.count),
            (Refusal::Multicast, Some(to), 1)
        );
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(world.events.lock().unwrap().len(), 1, "{to}");
    }
}
