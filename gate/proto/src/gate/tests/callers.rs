//! Datagrams that come in by a published port.

use bailey_model::link::GATE_V4;
use bailey_model::{Direction, FiveTuple};

use super::*;
use crate::flow::MAX_WAITING_DATAGRAMS;
use crate::udp_inbound::MAX_INBOUND_UDP;

const CLIENT: &str = "127.0.0.1:51000";

fn came(rig: &mut Rig, client: &str, data: &[u8]) {
    let publish = "80:8080/udp".parse().unwrap();
    rig.gate
        .handle_came(rig.now, (4, publish), at(client), data, &mut rig.sink);
}

/// The datagram that went into the box: from where, to where, what.
#[track_caller]
fn inside(rig: &mut Rig) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let packet = rig.sink.packets.pop_front().expect("a datagram");
    let ip = packet::parse(&packet).unwrap();
    assert_eq!(ip.proto, packet::UDP);
    let (src, dst, data) = packet::datagram(ip.payload).unwrap();
    (
        SocketAddr::new(ip.src, src),
        SocketAddr::new(ip.dst, dst),
        data.to_vec(),
    )
}

/// An open flow of that client: its number, and the gate's end of it.
#[track_caller]
fn open(rig: &mut Rig, client: &str) -> (FlowId, SocketAddr) {
    came(rig, client, b"first");
    assert!(rig.sink.packets.is_empty());
    let (ticket, opened) = rig.opened();
    rig.word(ticket, true);
    let (from, to, data) = inside(rig);
    assert_eq!((to, data.as_slice()), (own(8080), &b"first"[..]));
    assert_eq!(opened.tuple.src, from);
    (opened.flow, from)
}

/// The box answers from one of its ends.
fn answers(rig: &mut Rig, from: &str, to: SocketAddr, data: &[u8]) -> bool {
    rig.tun(&datagram_of(at(from), to, data));
    let answer = rig.sink.answers.pop_front();
    if let Some((place, client, got)) = &answer {
        assert_eq!((*place, got.as_slice()), (4, data));
        assert_eq!(client.ip(), at(CLIENT).ip());
    }
    answer.is_some()
}

/// The box says that nobody takes what was sent from `from` to `to`.
fn nobody(rig: &mut Rig, from: SocketAddr, to: SocketAddr) {
    let quoted = datagram_of(from, to, b"first");
    let mut packet = Vec::new();
    let why = Unreachable::Port;
    assert!(packet::write_unreachable(
        &mut packet,
        to.ip(),
        from.ip(),
        why,
        &quoted
    ));
    rig.tun(&packet);
}

#[test]
fn an_answer_in_fragments_leaves_whole() {
    let mut rig = Rig::new("nothing");
    came(&mut rig, CLIENT, b"one");
    let (ticket, opened) = rig.opened();
    rig.word(ticket, true);
    // The longest that there is, which no packet of the link holds.
    let data = vec![7; 65_507];
    let whole = datagram_of(at("192.0.0.2:8080"), opened.tuple.src, &data);
    for part in crate::fragments::tests::cuts(&whole, 9, 65_000) {
        rig.tun(&part);
    }
    let (_, client, got) = rig.sink.answers.pop_front().unwrap();
    assert_eq!((client, got.len()), (at(CLIENT), data.len()));
    assert!(rig.events().is_empty());
}

#[test]
fn a_datagram_goes_in_after_its_entry_and_answers_leave_by_the_same_port() {
    let mut rig = Rig::new("nothing");
    came(&mut rig, CLIENT, b"one");
    came(&mut rig, CLIENT, b"two");
    let (ticket, opened) = rig.opened();
    let client = at(CLIENT);
    assert_eq!(opened.direction, Direction::In { client });
    assert_eq!(opened.granted.0, "publish 80:8080/udp");
    let FiveTuple { proto, src, dst } = opened.tuple;
    assert_eq!((proto, dst), (Proto::Udp, own(8080)));
    // The client's own port, from the gate's address.
    assert_eq!(src, SocketAddr::new(GATE_V4.into(), 51000));
    assert!(rig.sink.packets.is_empty());
    // A box that guesses the ends reaches nobody.
    assert!(!answers(&mut rig, "192.0.0.2:8080", src, b"x"));
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
    rig.sink.packets.clear();
    rig.word(ticket, true);
    assert_eq!(inside(&mut rig), (src, dst, b"one".to_vec()));
    assert_eq!(inside(&mut rig), (src, dst, b"two".to_vec()));
    assert!(answers(&mut rig, "192.0.0.2:8080", src, b"answer"));
    assert!(answers(&mut rig, "192.0.0.2:8080", src, b""));
    // From another port of the box it is a dial, and refused.
    assert!(!answers(&mut rig, "192.0.0.2:8081", src, b"x"));
    rig.pass(UDP_IDLE);
    let events = rig.events();
    let ended = events.iter().find_map(|(_, event)| match event {
        GateEvent::FlowEnded(ended) => Some(ended.clone()),
        _ => None,
    });
    let ended = ended.unwrap();
    assert_eq!((ended.bytes_in, ended.bytes_out), (6, 6));
    assert_eq!(
        (ended.end, ended.outer_src),
        (EndReason::Idle, Some(client))
    );
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn clients_are_told_apart_by_their_ports() {
    let mut rig = Rig::new("nothing");
    let (one, from) = open(&mut rig, CLIENT);
    let (other, from_other) = open(&mut rig, "127.0.0.1:51001");
    assert!(one != other && from.port() == 51000 && from_other.port() == 51001);
    // Another address with the same port, and a port that services have.
    let (_, third) = open(&mut rig, "127.0.0.2:51000");
    let (_, fourth) = open(&mut rig, "127.0.0.1:53");
    assert!(third.port() != 51000 && third.port() >= 1024);
    assert!(fourth.port() != third.port() && fourth.port() >= 1024);
    rig.tun(&datagram_of(own(8080), from_other, b"x"));
    let (_, client, _) = rig.sink.answers.pop_front().unwrap();
    assert_eq!(client, at("127.0.0.1:51001"));
}

#[test]
fn a_program_on_its_loopback_or_on_ipv6_alone_is_found() {
    let mut rig = Rig::new("nothing");
    let (_, from) = open(&mut rig, CLIENT);
    nobody(&mut rig, from, own(8080));
    let (from, to, data) = inside(&mut rig);
    assert_eq!((to, data), (at("127.0.0.1:8080"), b"first".to_vec()));
    nobody(&mut rig, from, to);
    let (from_six, to, _) = inside(&mut rig);
    assert_eq!(to, SocketAddr::new(BOX_V6.into(), 8080));
    assert_eq!(from_six.port(), from.port());
    // What answers late from a door that was left is a dial of nobody's.
    assert!(!answers(&mut rig, "127.0.0.1:8080", from, b"x"));
    assert_eq!(rig.refused().refusal, Refusal::Protocol);
    let six = format!("[{BOX_V6}]:8080");
    assert!(answers(&mut rig, &six, from_six, b"here"));
    // The next client goes there at once.
    came(&mut rig, "127.0.0.1:51001", b"next");
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(inside(&mut rig).1, SocketAddr::new(BOX_V6.into(), 8080));
    // Nobody anywhere: the next datagram tries them all anew.
    nobody(&mut rig, from_six, to);
    assert!(rig.sink.packets.is_empty());
    came(&mut rig, CLIENT, b"again");
    assert_eq!(inside(&mut rig).1, own(8080));
}

#[test]
fn an_entry_that_cannot_be_written_lets_no_datagram_in() {
    for silent in [false, true] {
        let mut rig = Rig::new("internet");
        came(&mut rig, CLIENT, b"x");
        let (ticket, _) = rig.opened();
        if silent {
            rig.pass(ENTRY_TIMEOUT);
            assert_eq!(rig.refused_late().0, Refusal::StoreUnavailable);
            rig.word(ticket, true);
        } else {
            rig.word(ticket, false);
            assert_eq!(rig.refused().refusal, Refusal::StoreUnavailable);
        }
        assert!(rig.sink.packets.is_empty());
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn what_comes_in_is_bounded_and_the_oldest_idle_goes() {
    let mut rig = Rig::new("nothing");
    for _ in 0..MAX_WAITING_DATAGRAMS + 12 {
        came(&mut rig, CLIENT, b"x");
    }
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(rig.sink.packets.len(), MAX_WAITING_DATAGRAMS);
    rig.sink.packets.clear();
    let mut first = None;
    for port in 1..u16::try_from(MAX_INBOUND_UDP).unwrap() {
        rig.now += Duration::from_millis(1);
        let (flow, _) = open(&mut rig, &format!("127.0.0.1:{}", 2000 + port));
        first = first.or(Some(flow));
    }
    came(&mut rig, CLIENT, b"alive");
    came(&mut rig, "127.0.0.1:60000", b"x");
    assert_eq!(rig.gate.flows(), MAX_INBOUND_UDP);
    let events = rig.events();
    assert!(
        matches!(
            &events[..],
            [(Some(_), _), (None, GateEvent::FlowEnded(ended))]
                if Some(ended.flow) == first && ended.end == EndReason::Evicted
        ),
        "{events:?}"
    );
    // One datagram without an answer is forgotten sooner.
    rig.pass(UDP_SINGLE);
    assert_eq!(rig.gate.flows(), 1);
    let stopped = rig.gate.stop(rig.now, &mut rig.sink);
    assert_eq!((stopped, rig.gate.flows()), (1, 0));
    came(&mut rig, CLIENT, b"late");
    assert_eq!(rig.gate.flows(), 0);
}
