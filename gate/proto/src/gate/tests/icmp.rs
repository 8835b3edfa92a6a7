use super::*;
use crate::icmp::{ECHO_IDLE, Echo, EchoError, EchoFault, MAX_ECHO_FLOWS, MAX_WAITING_ECHO};
use crate::icmp_wire;

const HOST: &str = "93.184.216.34";
const HOST_V6: &str = "2606:2800:220:1::1";

/// An echo request that went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    flow: FlowId,
    to: IpAddr,
    seq: u16,
    data: Vec<u8>,
    hops: u8,
    whole: bool,
}

/// The host's ping sockets.
#[derive(Debug, Default)]
pub(super) struct Pings {
    pub(super) forbidden: bool,
    fault: Option<EchoFault>,
    sent: VecDeque<Sent>,
}

impl Pings {
    pub(super) fn send(
        &mut self,
        flow: FlowId,
        to: IpAddr,
        echo: Echo<'_>,
    ) -> Result<Option<SocketAddr>, EchoFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.sent.push_back(Sent {
            flow,
            to,
            seq: echo.seq,
            data: echo.data.to_vec(),
            hops: echo.hops,
            whole: echo.whole,
        });
        Ok(Some(super::at("192.168.1.5:777")))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn inner(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(_) => BOX_V4.into(),
        IpAddr::V6(_) => BOX_V6.into(),
    }
}

/// An echo request of the box.
fn request(to: &str, id: u16, seq: u16, data: &[u8]) -> Vec<u8> {
    let to = ip(to);
    let kind = if to.is_ipv4() { 8 } else { 128 };
    let rest = u32::from(id) << 16 | u32::from(seq);
    let mut packet = Vec::new();
    assert!(icmp_wire::write(
        &mut packet,
        (inner(to), to),
        (kind, 0),
        rest,
        data
    ));
    packet
}

/// An open flow with this identifier.
fn open(rig: &mut Rig, to: &str, id: u16) -> FlowId {
    rig.tun(&request(to, id, 1, b"first"));
    assert!(rig.sink.pings.sent.is_empty());
    let (ticket, opened) = rig.opened();
    assert_eq!(
        (opened.tuple.src.port(), opened.tuple.dst),
        (id, SocketAddr::new(ip(to), 0))
    );
    rig.word(ticket, true);
    let sent = rig.sink.pings.sent.pop_front().unwrap();
    assert_eq!((sent.flow, sent.to, sent.seq), (opened.flow, ip(to), 1));
    assert_eq!(sent.data, b"first");
    opened.flow
}

fn reply(rig: &mut Rig, flow: FlowId, from: &str, seq: u16, data: &[u8]) -> Option<Vec<u8>> {
    rig.gate
        .handle_echo_reply(rig.now, flow, ip(from), (seq, data), &mut rig.sink);
    rig.sink.packets.pop_front()
}

fn failed(rig: &mut Rig, flow: FlowId, seq: u16, kind: (u8, u8), from: Option<&str>) -> Vec<u8> {
    let error = EchoError {
        seq,
        kind: kind.0,
        code: kind.1,
        mtu: 1400,
        from: from.map(ip),
    };
    rig.gate
        .handle_echo_failed(rig.now, flow, error, &mut rig.sink);
    rig.sink.packets.pop_front().unwrap_or_default()
}

#[test]
fn an_echo_waits_for_its_entry_and_its_reply_keeps_identifier_and_sequence() {
    for to in [HOST, HOST_V6] {
        let mut rig = Rig::new("internet");
        let flow = open(&mut rig, to, 4321);
        let packet = reply(&mut rig, flow, to, 1, b"first").unwrap();
        let seen = packet::parse(&packet).unwrap();
        assert_eq!((seen.src, seen.dst), (ip(to), inner(ip(to))));
        let kind = if ip(to).is_ipv4() { 0 } else { 129 };
        assert_eq!(seen.payload[0..2], [kind, 0]);
        assert_eq!(seen.payload[4..8], [16, 225, 0, 1]);
        assert_eq!(&seen.payload[8..], b"first");
        assert_eq!(packet::icmp_checksum(seen.src, seen.dst, seen.payload), 0);
        // A further one needs no further entry.
        rig.tun(&request(to, 4321, 2, b""));
        assert_eq!(rig.sink.pings.sent.pop_front().unwrap().seq, 2);
        assert!(rig.events().is_empty());
        rig.pass(ECHO_IDLE);
        let ended = rig.ended();
        assert_eq!(
            (ended.end, ended.bytes_out, ended.bytes_in),
            (EndReason::Idle, 5, 5)
        );
        assert_eq!(ended.outer_src, Some(at("192.168.1.5:777")));
        rig.closed(flow, false);
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn a_reply_comes_only_from_who_was_asked() {
    let mut rig = Rig::new("internet");
    let flow = open(&mut rig, HOST, 9);
    assert!(reply(&mut rig, flow, "93.184.216.35", 1, b"x").is_none());
    assert!(reply(&mut rig, FlowId(99), HOST, 1, b"x").is_none());
    rig.tun(&request("1.1.1.1", 9, 1, b""));
    let (_, waits) = rig.opened();
    assert!(reply(&mut rig, waits.flow, "1.1.1.1", 1, b"x").is_none());
    // The control.
    assert!(reply(&mut rig, flow, HOST, 1, b"x").is_some());
}

#[test]
fn nothing_is_answered_for_an_address_that_does_not_answer() {
    let mut rig = Rig::new("internet");
    open(&mut rig, HOST, 9);
    rig.pass(ECHO_IDLE * 2);
    assert!(rig.sink.packets.is_empty());
}

#[test]
fn an_echo_outside_reach_is_prohibited_at_once_with_one_entry() {
    for (reach, to, why) in [
        ("internet", "192.168.1.20", Refusal::OutsideReach),
        ("local", HOST, Refusal::OutsideReach),
        ("internet,local", "127.0.0.1", Refusal::OutsideReach),
        ("internet,local", "192.0.0.1", Refusal::OutsideReach),
        ("internet", "fd12::1", Refusal::OutsideReach),
        ("93.184.216.34:443", HOST, Refusal::OutsideReach),
        ("93.184.216.34/udp", HOST, Refusal::OutsideReach),
        ("internet,local", "224.0.0.1", Refusal::Multicast),
        ("internet,local", "192.168.1.255", Refusal::Multicast),
    ] {
        let mut rig = Rig::new(reach);
        for seq in 0..3 {
            rig.tun(&request(to, 9, seq, b"x"));
            let packet = rig.sink.packets.pop_front().unwrap();
            let (_, kind, code) = read_icmp(&packet);
            let prohibited = if ip(to).is_ipv4() { (3, 13) } else { (1, 1) };
            assert_eq!((kind, code), prohibited, "{reach} {to}");
        }
        let refused = rig.refused();
        assert_eq!(refused.refusal, why, "{reach} {to}");
        assert_eq!(refused.proto.to_string(), "icmp");
        assert!(rig.sink.pings.sent.is_empty());
    }
    // The control: a term for the whole address grants it.
    open(&mut Rig::new("93.184.216.34"), HOST, 9);
    open(&mut Rig::new("local"), "192.168.1.20", 9);
}

#[test]
fn a_host_that_allows_no_ping_is_a_refusal_that_says_so() {
    let mut rig = Rig::new("internet");
    rig.sink.pings.forbidden = true;
    rig.tun(&request(HOST, 9, 1, b"x"));
    assert_eq!(read_icmp(&rig.sink.packets[0]), (ip(HOST), 3, 13));
    assert_eq!(rig.refused().refusal, Refusal::NoPing);
    // It was forbidden between the entry and the socket.
    let mut rig = Rig::new("internet");
    rig.tun(&request(HOST, 10, 1, b"x"));
    let (ticket, _) = rig.opened();
    rig.sink.pings.fault = Some(EchoFault::NotAllowed);
    rig.word(ticket, true);
    assert_eq!(read_icmp(&rig.sink.packets[0]), (ip(HOST), 3, 13));
    assert_eq!(rig.refused_late(), (Refusal::NoPing, EndReason::Refused));
    assert_eq!(rig.gate.flows(), 0);
}

#[test]
fn errors_quote_the_boxs_own_packet() {
    let mut rig = Rig::new("internet");
    let flow = open(&mut rig, HOST, 9);
    let mut packet = request(HOST, 9, 2, b"data");
    packet[8] = 1;
    rig.tun(&packet);
    assert_eq!(rig.sink.pings.sent.pop_front().unwrap().hops, 1);
    // Time exceeded, from a router that the box might ask, and from one that it
    // must not know of.
    for (from, shown) in [
        (Some("1.1.1.1"), "1.1.1.1"),
        (Some("192.168.1.1"), "192.0.0.1"),
        (Some("::1"), "192.0.0.1"),
        (None, "192.0.0.1"),
    ] {
        let error = failed(&mut rig, flow, 2, (11, 0), from);
        assert_eq!(read_icmp(&error), (ip(shown), 11, 0));
        let seen = packet::parse(&error).unwrap();
        assert_eq!(seen.payload[8..], packet[..]);
        assert_eq!(packet::icmp_checksum(seen.src, seen.dst, seen.payload), 0);
    }
    let error = failed(&mut rig, flow, 2, (3, 4), Some("1.1.1.1"));
    assert_eq!(read_icmp(&error), (ip("1.1.1.1"), 3, 4));
    assert_eq!(packet::parse(&error).unwrap().payload[4..8], [0, 0, 5, 120]);
    assert!(!failed(&mut rig, flow, 1, (3, 1), Some(HOST)).is_empty());
    // A redirect, one about what was never sent, one of no flow.
    assert!(failed(&mut rig, flow, 2, (5, 0), Some("1.1.1.1")).is_empty());
    assert!(failed(&mut rig, flow, 3, (11, 0), Some("1.1.1.1")).is_empty());
    assert!(failed(&mut rig, FlowId(99), 2, (11, 0), None).is_empty());
    let flow = open(&mut rig, HOST_V6, 9);
    let error = failed(&mut rig, flow, 1, (2, 0), Some("2606:4700::1111"));
    assert_eq!(read_icmp(&error), (ip("2606:4700::1111"), 2, 0));
    assert!(failed(&mut rig, flow, 1, (11, 0), None).is_empty());
}

#[test]
fn what_is_too_long_for_the_way_is_said_with_its_mtu() {
    let mut rig = Rig::new("internet");
    open(&mut rig, HOST, 9);
    rig.sink.pings.fault = Some(EchoFault::TooBig(1500));
    rig.tun(&request(HOST, 9, 2, &[0; 3000]));
    let error = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&error), (ip("192.0.0.1"), 3, 4));
    assert_eq!(packet::parse(&error).unwrap().payload[4..8], [0, 0, 5, 220]);
    rig.sink.pings.fault = Some(EchoFault::NetworkUnreachable);
    rig.tun(&request(HOST, 9, 3, b""));
    let error = rig.sink.packets.pop_front().unwrap();
    assert_eq!(read_icmp(&error), (ip(HOST), 3, 0));
    assert_eq!(rig.gate.flows(), 1);
}

#[test]
fn waiting_requests_are_bounded_and_a_full_table_lets_go_of_the_oldest() {
    let mut rig = Rig::new("internet");
    for seq in 0..10 {
        rig.tun(&request(HOST, 9, seq, b"x"));
    }
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(rig.sink.pings.sent.len(), MAX_WAITING_ECHO);
    rig.sink.pings.sent.clear();
    let mut flows = Vec::new();
    for id in 10..u16::try_from(MAX_ECHO_FLOWS).unwrap() + 9 {
        rig.now += Duration::from_millis(1);
        flows.push(open(&mut rig, HOST, id));
    }
    rig.now += Duration::from_millis(1);
    rig.tun(&request(HOST, 9, 11, b"alive"));
    assert_eq!(rig.gate.flows(), MAX_ECHO_FLOWS);
    rig.tun(&request(HOST, 5000, 1, b"x"));
    rig.closed(flows[0], false);
    assert_eq!(rig.gate.flows(), MAX_ECHO_FLOWS);
    assert_eq!(rig.events().len(), 2);
}

#[test]
fn an_entry_that_cannot_be_written_sends_no_echo() {
    for silent in [false, true] {
        let mut rig = Rig::new("internet");
        rig.tun(&request(HOST, 9, 1, b"x"));
        let (ticket, _) = rig.opened();
        if silent {
            rig.pass(ENTRY_TIMEOUT);
            assert_eq!(
                rig.refused_late(),
                (Refusal::StoreUnavailable, EndReason::DialTimeout)
            );
            rig.word(ticket, true);
        } else {
            rig.word(ticket, false);
            assert_eq!(rig.refused().refusal, Refusal::StoreUnavailable);
        }
        assert_eq!(read_icmp(&rig.sink.packets[0]), (ip(HOST), 3, 13));
        assert!(rig.sink.pings.sent.is_empty());
        assert_eq!(rig.gate.flows(), 0);
    }
}

#[test]
fn an_echo_flow_ends_when_its_far_end_turns_out_to_be_local_or_the_box_stops() {
    let mut rig = Rig::new("internet");
    let flow = open(&mut rig, HOST, 9);
    rig.gate.set_addrs(NodeAddrs {
        own: vec![ip(HOST)],
        ..NodeAddrs::default()
    });
    assert!(reply(&mut rig, flow, HOST, 1, b"x").is_none());
    assert_eq!(
        rig.refused_late(),
        (Refusal::OutsideReach, EndReason::Refused)
    );
    rig.actions();
    let flow = open(&mut rig, "1.1.1.1", 9);
    assert_eq!(rig.gate.stop(rig.now, &mut rig.sink), 1);
    assert_eq!(rig.ended().end, EndReason::BoxStopped);
    rig.closed(flow, false);
}

#[test]
fn what_is_no_whole_request_is_dropped() {
    let mut rig = Rig::new("internet");
    let good = request(HOST, 9, 1, b"data");
    for change in [22, 24, 30] {
        let mut packet = good.clone();
        packet[change] ^= 1;
        rig.tun(&packet);
    }
    let mut dead = good.clone();
    dead[8] = 0;
    rig.tun(&dead);
    assert!(rig.events().is_empty() && rig.sink.packets.is_empty());
    rig.tun(&good);
    rig.opened();
}

#[test]
fn an_echo_ends_when_the_reach_no_longer_grants_it() {
    let mut rig = Rig::new("internet");
    let flow = open(&mut rig, HOST, 7);
    rig.tun(&request(HOST, 8, 1, b"waits"));
    let (_, waiting) = rig.opened();
    let mut reach = |to: &str| {
        rig.gate
            .set_reach(rig.now, to.parse().unwrap(), &mut rig.sink)
    };
    // The control: one that still grants it ends nothing.
    assert_eq!(reach("internet,local"), 0);
    assert_eq!(reach("local"), 2);
    let ended = |(_, event)| match event {
        GateEvent::FlowEnded(ended) => (ended.flow, ended.end),
        other => panic!("{other:?}"),
    };
    let mut ends: Vec<_> = rig.events().into_iter().map(ended).collect();
    ends.sort_by_key(|(flow, _)| *flow);
    let wanted = [flow, waiting.flow].map(|flow| (flow, EndReason::ReachChanged));
    assert_eq!(ends, wanted);
    // What waited is answered, a late reply is nobody's.
    let unreachable = rig.sink.packets.pop_front().unwrap();
    assert_eq!(packet::parse(&unreachable).unwrap().payload[0], 3);
    assert_eq!(reply(&mut rig, flow, HOST, 1, b"late"), None);
    assert_eq!(rig.gate.flows(), 0);
}
