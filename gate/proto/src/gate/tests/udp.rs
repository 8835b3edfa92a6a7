use super::*;
use bailey_model::AddrClass;

const ECHO: &str = "93.184.216.34:7";
const LAN_MDNS: &str = "192.168.1.9:5353";

/// An open flow from box port `src`; the port's outer socket.
fn open(rig: &mut Rig, src: u16, dst: &str) -> UdpPort {
    rig.tun(&datagram_of(own(src), at(dst), b"first"));
    assert!(rig.sink.datagrams.is_empty());
    let (ticket, opened) = rig.opened();
    assert_eq!(opened.tuple.proto, Proto::Udp);
    rig.word(ticket, true);
    let (port, to, data) = rig.sink.datagrams.pop_front().unwrap();
    assert_eq!((to, data.as_slice()), (at(dst), &b"first"[..]));
    port
}

fn incoming(rig: &mut Rig, port: UdpPort, from: &str, data: &[u8]) -> Option<Vec<u8>> {
    rig.gate
        .handle_datagram(rig.now, port, at(from), data, &mut rig.sink);
    rig.sink.packets.pop_front()
}

#[test]
fn a_refused_datagram_is_unreachable_at_once_with_one_entry() {
    let mut rig = Rig::new("internet");
    for _ in 0..3 {
        rig.tun(&datagram_of(own(9), at(LAN), b"x"));
        let packet = rig.sink.packets.pop_front().unwrap();
        assert_eq!(read_icmp(&packet), (at(LAN).ip(), 3, 3));
    }
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
    let src = SocketAddr::new(IpAddr::V6(BOX_V6), 9);
    rig.tun(&datagram_of(src, at("[fd12::1]:5"), b"x"));
    let packet = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&packet), ("fd12::1".parse().unwrap(), 1, 4));
}

#[test]
fn a_group_is_refused_from_the_gates_own_address() {
    let mut rig = Rig::new("internet,local");
    for (group, kind) in [("239.255.255.250:1900", 3), ("255.255.255.255:9", 3)] {
        rig.tun(&datagram_of(own(9), at(group), b"x"));
        let packet = rig.sink.packets.pop_front().unwrap();
        assert_eq!(
            read_icmp(&packet),
            (bailey_model::link::GATE_V4.into(), kind, 3)
        );
        assert_eq!(rig.refused().refusal, Refusal::Multicast);
    }
    assert!(rig.sink.datagrams.is_empty());
}

/// A question of multicast DNS, and what others answer.
const ASKS: &[u8] = b"\0\x01\0\0\0\x01\0\0\0\0\0\0?";
const TELLS: &[u8] = b"\0\x01\x84\0\0\0\0\x01\0\0\0\0!";

#[test]
fn a_question_to_the_group_waits_for_its_entry_and_is_answered_from_the_link() {
    let mut rig = Rig::new("internet,mdns");
    let group = at("224.0.0.251:5353");
    rig.tun(&datagram_of(own(5000), group, ASKS));
    let (ticket, opened) = rig.opened();
    assert_eq!(
        (opened.granted.0.as_str(), opened.class, opened.tuple.dst),
        ("mdns", AddrClass::Multicast, group)
    );
    assert!(rig.sink.datagrams.is_empty());
    rig.word(ticket, true);
    let (port, to, data) = rig.sink.datagrams.pop_front().unwrap();
    assert_eq!((to, data.as_slice()), (group, ASKS));
    let packet = incoming(&mut rig, port, LAN_MDNS, TELLS).unwrap();
    let ip = packet::parse(&packet).unwrap();
    assert_eq!((ip.src, ip.dst), (at(LAN_MDNS).ip(), own(0).ip()));
    assert_eq!(packet::datagram(ip.payload), Some((5353, 5000, TELLS)));
    // Not from another port of theirs, nor from afar, nor to a port of the box
    // that asked nothing there.
    assert!(incoming(&mut rig, port, LAN, TELLS).is_none());
    assert!(incoming(&mut rig, port, "93.184.216.34:5353", TELLS).is_none());
    let other = open(&mut rig, 5001, ECHO);
    assert!(incoming(&mut rig, other, LAN_MDNS, TELLS).is_none());
    // What is learnt there is not granted by it.
    rig.tun(&datagram_of(own(5000), at(LAN_MDNS), b"x"));
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
}

#[test]
fn nothing_but_a_question_goes_to_the_group() {
    let mut rig = Rig::new("mdns");
    let group = at("224.0.0.251:5353");
    rig.tun(&datagram_of(own(5000), group, TELLS));
    let packet = rig.sink.packets.pop_front().unwrap();
    assert_eq!(
        read_icmp(&packet),
        (bailey_model::link::GATE_V4.into(), 3, 3)
    );
    assert_eq!(rig.refused().refusal, Refusal::Protocol);
    // Nor behind one: the flow goes on, and what is no question is left out.
    rig.tun(&datagram_of(own(5001), group, ASKS));
    let (ticket, _) = rig.opened();
    rig.tun(&datagram_of(own(5001), group, TELLS));
    rig.word(ticket, true);
    rig.tun(&datagram_of(own(5001), group, TELLS));
    rig.tun(&datagram_of(own(5001), group, ASKS));
    let sent: Vec<Vec<u8>> = rig.sink.datagrams.drain(..).map(|sent| sent.2).collect();
    assert_eq!(sent, [ASKS, ASKS]);
}

#[test]
fn the_word_opens_no_other_group_no_other_port_and_no_broadcast() {
    let mut rig = Rig::new("internet,local,mdns");
    for to in [
        "224.0.0.251:5354",
        "224.0.0.252:5355",
        "239.255.255.250:1900",
        "255.255.255.255:5353",
        "192.168.1.255:5353",
    ] {
        for _ in 0..5 {
            rig.tun(&datagram_of(own(5000), at(to), ASKS));
        }
        // The four after the first are a count.
        assert_eq!(rig.refused().refusal, Refusal::Multicast, "{to}");
        assert!(rig.events().is_empty(), "{to}");
    }
    assert!(rig.sink.datagrams.is_empty());
}

#[test]
fn either_side_keeps_a_mapping_for_two_minutes_of_silence_and_more() {
    // RFC 4787, REQ-5 and REQ-6.
    let mut rig = Rig::new("internet");
    let port = open(&mut rig, 5000, ECHO);
    incoming(&mut rig, port, ECHO, b"answer").unwrap();
    let two_minutes = Duration::from_secs(120);
    for _ in 0..3 {
        rig.pass(two_minutes);
        incoming(&mut rig, port, ECHO, b"from outside").unwrap();
        rig.pass(two_minutes);
        rig.tun(&datagram_of(own(5000), at(ECHO), b"from inside"));
        assert_eq!(rig.sink.datagrams.pop_front().unwrap().0, port);
    }
    // Another far end has the same mapping, at any time of its life.
    assert_eq!(open(&mut rig, 5000, "1.1.1.1:7"), port);
    rig.pass(UDP_IDLE);
    rig.pass(UDP_IDLE);
    assert_eq!(rig.gate.flows(), 0);
    assert!(incoming(&mut rig, port, ECHO, b"late").is_none());
}

#[test]
fn one_port_has_one_outer_socket_and_a_verdict_a_far_end() {
    let mut rig = Rig::new("internet");
    let port = open(&mut rig, 5000, ECHO);
    assert_eq!(open(&mut rig, 5000, "1.1.1.1:7"), port);
    assert_ne!(open(&mut rig, 5001, ECHO), port);
    rig.tun(&datagram_of(own(5000), at(LAN), b"x"));
    assert_eq!(rig.refused().refusal, Refusal::OutsideReach);
}

#[test]
fn what_waits_for_its_entry_goes_out_in_order() {
    let mut rig = Rig::new("internet");
    for data in [b"1", b"2", b"3"] {
        rig.tun(&datagram_of(own(5000), at(ECHO), data));
    }
    let (ticket, _) = rig.opened();
    assert!(rig.sink.datagrams.is_empty());
    rig.word(ticket, true);
    let sent: Vec<Vec<u8>> = rig
        .sink
        .datagrams
        .drain(..)
        .map(|(_, _, data)| data)
        .collect();
    assert_eq!(sent, [b"1", b"2", b"3"]);
}

#[test]
fn only_addresses_that_the_box_was_allowed_from_that_port_come_in() {
    let mut rig = Rig::new("internet");
    let port = open(&mut rig, 5000, ECHO);
    let packet = incoming(&mut rig, port, ECHO, b"answer").unwrap();
    let ip = packet::parse(&packet).unwrap();
    assert_eq!(
        packet::datagram(ip.payload),
        Some((7, 5000, &b"answer"[..]))
    );
    assert_eq!((ip.src, ip.dst), (at(ECHO).ip(), own(0).ip()));
    // Another port of that address is; another address is not.
    assert!(incoming(&mut rig, port, "93.184.216.34:8", b"x").is_some());
    assert!(incoming(&mut rig, port, "93.184.216.35:7", b"x").is_none());
    assert!(incoming(&mut rig, UdpPort(99), ECHO, b"x").is_none());
    // One that waits for its entry is not open yet.
    rig.tun(&datagram_of(own(5000), at("1.1.1.1:7"), b"x"));
    assert!(incoming(&mut rig, port, "1.1.1.1:7", b"x").is_none());
}

#[test]
fn an_error_from_afar_reaches_the_box() {
    let mut rig = Rig::new("internet");
    let port = open(&mut rig, 5000, ECHO);
    rig.gate
        .handle_datagram_failed(port, at(ECHO), SendFault::PortUnreachable, &mut rig.sink);
    let packet = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&packet), (at(ECHO).ip(), 3, 3));
    // The quoted header names the box's own port, by which its kernel finds it.
    let quoted = packet::parse(&packet).unwrap().payload[8..].to_vec();
    let ip = packet::parse(&quoted).unwrap();
    assert_eq!(
        packet::datagram(ip.payload).map(|(src, dst, _)| (src, dst)),
        Some((5000, 7))
    );
    rig.gate
        .handle_datagram_failed(port, at(LAN), SendFault::PortUnreachable, &mut rig.sink);
    assert!(rig.sink.packets.is_empty());
}

#[test]
fn a_single_datagram_is_forgotten_sooner_than_a_conversation() {
    let mut rig = Rig::new("internet");
    open(&mut rig, 5000, ECHO);
    let port = open(&mut rig, 5001, ECHO);
    rig.gate.handle_udp_bound(port, at("192.168.1.5:61000"));
    incoming(&mut rig, port, ECHO, b"answer").unwrap();
    rig.pass(UDP_SINGLE);
    let ended = rig.ended();
    assert_eq!(
        (ended.end, ended.bytes_out, ended.bytes_in),
        (EndReason::Idle, 5, 0)
    );
    assert_eq!(rig.actions().len(), 1);
    rig.pass(UDP_IDLE - UDP_SINGLE);
    let ended = rig.ended();
    assert_eq!((ended.end, ended.bytes_in), (EndReason::Idle, 6));
    assert_eq!(ended.outer_src, Some(at("192.168.1.5:61000")));
    assert_eq!(rig.actions(), [Action::CloseUdp(port)]);
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn a_full_table_lets_go_of_what_was_silent_longest() {
    let mut rig = Rig::new("internet");
    let mut ports = Vec::new();
    for index in 0..u16::try_from(MAX_UDP_PORTS).unwrap() {
        rig.now += Duration::from_millis(1);
        ports.push(open(&mut rig, 10_000 + index, ECHO));
    }
    incoming(&mut rig, ports[0], ECHO, b"alive").unwrap();
    rig.tun(&datagram_of(own(9), at(ECHO), b"x"));
    assert_eq!(rig.actions(), [Action::CloseUdp(ports[1])]);
    let events = rig.events();
    assert!(
        matches!(
            &events[..],
            [
                (Some(_), _),
                (
                    None,
                    GateEvent::FlowEnded(FlowEnded {
                        end: EndReason::Evicted,
                        ..
                    })
                ),
            ]
        ),
        "{events:?}"
    );
    assert!(incoming(&mut rig, ports[0], ECHO, b"still").is_some());
}

#[test]
fn an_entry_that_cannot_be_written_sends_nothing() {
    let mut rig = Rig::new("internet");
    rig.tun(&datagram_of(own(5000), at(ECHO), b"x"));
    let (ticket, _) = rig.opened();
    rig.word(ticket, false);
    assert_eq!(read_icmp(&rig.sink.packets[0]), (at(ECHO).ip(), 3, 3));
    assert_eq!(rig.refused().refusal, Refusal::StoreUnavailable);
    assert!(rig.sink.datagrams.is_empty());
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn an_open_flow_ends_when_its_far_end_turns_out_to_be_local() {
    let mut rig = Rig::new("internet");
    let port = open(&mut rig, 5000, ECHO);
    rig.gate.set_addrs(NodeAddrs {
        own: vec![at(ECHO).ip()],
        ..NodeAddrs::default()
    });
    assert!(incoming(&mut rig, port, ECHO, b"x").is_none());
    assert_eq!(rig.gate.flows(), 0);
    rig.tun(&datagram_of(own(5000), at(ECHO), b"x"));
    assert!(rig.sink.datagrams.is_empty());
}

#[test]
fn no_socket_is_a_refusal_that_says_limit() {
    let mut rig = Rig::new("internet");
    rig.sink.fault = Some(SendFault::NoSocket);
    rig.tun(&datagram_of(own(5000), at(ECHO), b"x"));
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(read_icmp(&rig.sink.packets[0]), (at(ECHO).ip(), 3, 3));
    assert_eq!(rig.refused_late(), (Refusal::Limit, EndReason::Evicted));
}

/// A datagram in two fragments.
fn halves(packet: &[u8]) -> [Vec<u8>; 2] {
    let middle = 20 + (packet.len() - 20) / 16 * 8;
    let mut first = packet[..middle].to_vec();
    let mut last = packet[..20].to_vec();
    last.extend(&packet[middle..]);
    let at = u16::try_from((middle - 20) / 8).unwrap();
    for (piece, word) in [(&mut first, 0x2000), (&mut last, at)] {
        let total = u16::try_from(piece.len()).unwrap();
        packet::put_u16(piece, 2, total);
        packet::put_u16(piece, 6, word);
    }
    [first, last]
}

#[test]
fn a_datagram_in_fragments_is_judged_and_sent_whole() {
    let mut rig = Rig::new("internet");
    let data: Vec<u8> = (0..3000_u32).map(|at| (at % 251) as u8).collect();
    let [first, last] = halves(&datagram_of(own(5000), at(ECHO), &data));
    rig.tun(&last);
    assert!(rig.events().is_empty());
    rig.tun(&first);
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(rig.sink.datagrams.pop_front().unwrap().2, data);
    // Outside reach it is refused by its port, once.
    let [first, last] = halves(&datagram_of(own(5000), at(LAN), &data));
    rig.tun(&first);
    assert!(rig.sink.packets.is_empty());
    rig.tun(&last);
    assert_eq!(read_icmp(&rig.sink.packets[0]), (at(LAN).ip(), 3, 3));
    assert_eq!(rig.refused().dst, Some(at(LAN)));
}

#[test]
fn an_empty_datagram_and_the_longest_pass_both_ways() {
    let mut rig = Rig::new("internet");
    for (src, data) in [(5000, Vec::new()), (5001, vec![7; 65507])] {
        rig.tun(&datagram_of(own(src), at(ECHO), &data));
        let (ticket, _) = rig.opened();
        rig.word(ticket, true);
        let (port, _, sent) = rig.sink.datagrams.pop_front().unwrap();
        assert_eq!(sent, data);
        let packet = incoming(&mut rig, port, ECHO, &data).unwrap();
        let ip = packet::parse(&packet).unwrap();
        assert_eq!(
            packet::datagram(ip.payload),
            Some((7, src, data.as_slice()))
        );
    }
}

#[test]
fn a_granted_port_of_the_nodes_loopback_is_reached_and_only_that_port_answers() {
    let mut rig = Rig::new("lo:5432/udp");
    rig.tun(&datagram_of(own(5000), at("192.0.0.1:5432"), b"x"));
    let (ticket, opened) = rig.opened();
    assert_eq!(opened.granted.0, "lo:5432/udp");
    rig.word(ticket, true);
    let (port, to, _) = rig.sink.datagrams.pop_front().unwrap();
    assert_eq!(to, at("127.0.0.1:5432"));
    let packet = incoming(&mut rig, port, "127.0.0.1:5432", b"answer").unwrap();
    assert_eq!(packet::parse(&packet).unwrap().src, at("192.0.0.1:1").ip());
    for other in ["127.0.0.1:5433", "127.0.0.2:5432", "192.0.0.1:5432"] {
        assert!(incoming(&mut rig, port, other, b"x").is_none(), "{other}");
    }
    let to = at("127.0.0.1:5432");
    rig.gate
        .handle_datagram_failed(port, to, SendFault::PortUnreachable, &mut rig.sink);
    let packet = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&packet), (at("192.0.0.1:1").ip(), 3, 3));
}

#[test]
fn the_flow_that_was_silent_longest_makes_room_for_a_further_one() {
    let mut rig = Rig::new("internet");
    let mut port = UdpPort(0);
    for index in 0..u16::try_from(MAX_UDP_FLOWS).unwrap() {
        rig.now += Duration::from_millis(1);
        let [hi, lo] = index.to_be_bytes();
        port = open(&mut rig, 5000, &format!("93.184.{hi}.{lo}:7"));
    }
    assert_eq!(rig.gate.flows(), MAX_UDP_FLOWS);
    incoming(&mut rig, port, "93.184.0.0:7", b"alive").unwrap();
    rig.tun(&datagram_of(own(5000), at(ECHO), b"x"));
    let events = rig.events();
    assert!(
        matches!(
            &events[..],
            [(Some(_), _), (None, GateEvent::FlowEnded(ended))]
                if ended.flow == FlowId(2) && ended.end == EndReason::Evicted
        ),
        "{events:?}"
    );
    assert!(incoming(&mut rig, port, "93.184.0.1:7", b"x").is_none());
    assert!(incoming(&mut rig, port, "93.184.0.0:7", b"still").is_some());
}
