//! The gate against a box of scripted packets, a host of byte queues and a
//! clock that is moved by hand.

use std::collections::VecDeque;
use std::time::Duration;

use bailey_model::{EndReason, FlowEnded, FlowOpened, FlowRefused, Host};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use super::*;
use crate::flow::{
    DIAL_TIMEOUT, ENTRY_TIMEOUT, MAX_PENDING_TCP, MAX_UDP_FLOWS, MAX_UDP_PORTS, StreamIo, UDP_IDLE,
    UDP_SINGLE,
};
use crate::packet::flag::{ACK, FIN, RST, SYN};

mod callers;
mod dns;
mod icmp;
mod inbound;
mod inner;
mod long;
mod model;
mod named;
mod nat64;
mod progress;
mod raw;
mod reach;
mod scripts;
mod tcp;
mod udp;

const SHOP: &str = "93.184.216.34:443";
const LAN: &str = "192.168.1.20:631";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn own(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(BOX_V4), port)
}

#[derive(Debug, Default)]
struct Sink {
    packets: VecDeque<Vec<u8>>,
    datagrams: VecDeque<(UdpPort, SocketAddr, Vec<u8>)>,
    fault: Option<SendFault>,
    pings: icmp::Pings,
    answers: VecDeque<(u64, SocketAddr, Vec<u8>)>,
    /// Whether packets may come unfinished, and what was left in each that did.
    finishes: bool,
    unfinished: Vec<crate::Unfinished>,
}

impl Outlet for Sink {
    fn packet(&mut self, packet: &[u8]) {
        self.packets.push_back(packet.to_vec());
    }

    fn finishes(&self) -> bool {
        self.finishes
    }

    fn unfinished(&mut self, packet: &[u8], how: crate::Unfinished) {
        self.packet(packet);
        self.unfinished.push(how);
    }

    fn datagram(&mut self, port: UdpPort, to: SocketAddr, data: &[u8]) -> Result<(), SendFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.datagrams.push_back((port, to, data.to_vec()));
        Ok(())
    }

    fn answer(&mut self, place: u64, client: SocketAddr, data: &[u8]) {
        self.answers.push_back((place, client, data.to_vec()));
    }

    fn can_echo(&mut self, _: IpAddr) -> bool {
        !self.pings.forbidden
    }

    fn echo(
        &mut self,
        flow: FlowId,
        to: IpAddr,
        echo: crate::Echo<'_>,
    ) -> Result<Option<SocketAddr>, crate::EchoFault> {
        self.pings.send(flow, to, echo)
    }
}

/// A connected socket outside.
#[derive(Debug, Default)]
struct Far {
    to_box: VecDeque<u8>,
    from_box: Vec<u8>,
    /// Takes no more than so much; `None` takes all.
    room: Option<usize>,
    ended: bool,
    broken: bool,
    finished: bool,
}

impl HostStream for Far {
    fn read(&mut self, into: &mut [u8]) -> StreamIo {
        if self.broken {
            return StreamIo::Broken;
        }
        let count = into.len().min(self.to_box.len());
        if count == 0 {
            return if self.ended {
                StreamIo::Ended
            } else {
                StreamIo::Blocked
            };
        }
        for (place, byte) in into.iter_mut().zip(self.to_box.drain(..count)) {
            *place = byte;
        }
        StreamIo::Moved(count)
    }

    fn write(&mut self, from: &[u8]) -> StreamIo {
        if self.broken {
            return StreamIo::Broken;
        }
        let count = from.len().min(self.room.unwrap_or(usize::MAX));
        if count == 0 {
            return StreamIo::Blocked;
        }
        self.room = self.room.map(|room| room - count);
        self.from_box.extend_from_slice(&from[..count]);
        StreamIo::Moved(count)
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}

/// A segment that the gate sent, read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    src: SocketAddr,
    flags: u8,
    seq: u32,
    ack: u32,
    data: Vec<u8>,
}

struct Rig {
    gate: Gate,
    sink: Sink,
    now: Now,
}

impl Rig {
    fn new(reach: &str) -> Self {
        let facts = HostFacts {
            resolvers: vec![at("9.9.9.9:53")],
            ..HostFacts::default()
        };
        let config = GateConfig {
            reach: reach.parse().unwrap(),
            facts,
            published: Vec::new(),
            seed: [3; 32],
        };
        let addrs = NodeAddrs {
            own: vec!["192.168.1.5".parse().unwrap()],
            on_link: vec![("192.168.1.0".parse().unwrap(), 24)],
            has_v6_default: true,
            ..NodeAddrs::default()
        };
        let gate = Gate::new(Now::ZERO, config, addrs);
        Self {
            gate,
            sink: Sink::default(),
            now: Now::ZERO,
        }
    }

    fn tun(&mut self, packet: &[u8]) {
        self.gate.handle_tun(self.now, packet, &mut self.sink);
    }

    fn send(&mut self, src: u16, dst: &str, seq: u32, ack: u32, flags: u8, data: &[u8]) {
        self.tun(&segment_of(own(src), at(dst), seq, ack, flags, data));
    }

    fn word(&mut self, ticket: u64, stands: bool) {
        self.gate
            .handle_ticket(self.now, ticket, stands, &mut self.sink);
    }

    /// Moves the clock, and does what is due at each moment on the way.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.gate.poll_timeout()
            && due <= until
        {
            self.now = self.now.max(due);
            self.gate.handle_timeout(self.now, &mut self.sink);
        }
        self.now = until;
    }

    /// What is told, how far flows have come left out.
    fn events(&mut self) -> Vec<(Option<u64>, GateEvent)> {
        let mut all = self.told();
        all.retain(|(_, event)| !matches!(event, GateEvent::FlowProgressed(_)));
        all
    }

    fn told(&mut self) -> Vec<(Option<u64>, GateEvent)> {
        std::iter::from_fn(|| self.gate.poll_event()).collect()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.gate.poll_action()).collect()
    }

    /// The one event that there is, an opened flow.
    #[track_caller]
    fn opened(&mut self) -> (u64, FlowOpened) {
        match self.events().as_slice() {
            [(Some(ticket), GateEvent::FlowOpened(opened))] => (*ticket, opened.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(&mut self) -> FlowRefused {
        match self.events().as_slice() {
            [(None, GateEvent::FlowRefused(refused))] => refused.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn ended(&mut self) -> FlowEnded {
        match self.events().as_slice() {
            [(None, GateEvent::FlowEnded(ended))] => ended.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The two events of a flow that was refused after its entry stood.
    #[track_caller]
    fn refused_late(&mut self) -> (Refusal, EndReason) {
        match self.events().as_slice() {
            [
                (None, GateEvent::FlowRefused(refused)),
                (None, GateEvent::FlowEnded(ended)),
            ] => (refused.refusal, ended.end),
            other => panic!("{other:?}"),
        }
    }

    /// The one action that there is: a flow's socket is let go.
    #[track_caller]
    fn closed(&mut self, flow: FlowId, reset: bool) {
        assert_eq!(self.actions(), [Action::Close { flow, reset }]);
    }

    /// The one segment that the gate sent.
    #[track_caller]
    fn seen(&mut self) -> Seen {
        let packet = self.sink.packets.pop_front().expect("a segment");
        assert!(self.sink.packets.is_empty(), "{:?}", self.sink.packets);
        read(&packet)
    }

    fn dialled(&mut self, flow: FlowId, outcome: Result<(), DialFault>) {
        let ends = Dialled {
            local: at("192.168.1.5:50000"),
            peer: at(SHOP),
        };
        self.gate
            .handle_dialled(self.now, flow, outcome.map(|()| ends), &mut self.sink);
    }

    fn turns(&mut self, far: &mut Far) {
        while let Some(flow) = self.gate.next_touched() {
            self.gate.turn(self.now, flow, far, &mut self.sink);
        }
    }

    /// A SYN from this box port to the shop, which waits for its entry.
    #[track_caller]
    fn asked(&mut self, src: u16) -> (u64, FlowOpened) {
        self.send(src, SHOP, 100, 0, SYN, b"");
        self.opened()
    }

    /// One whose entry stands, and which is being dialled.
    #[track_caller]
    fn dialling(&mut self, src: u16) -> FlowId {
        let (ticket, FlowOpened { flow, .. }) = self.asked(src);
        self.word(ticket, true);
        let dst = at(SHOP);
        assert_eq!(self.actions(), [Action::Dial { flow, dst }]);
        flow
    }

    /// An established flow from box port 40000: its id and the gate's next
    /// sequence number. The box's next is 101.
    #[track_caller]
    fn established(&mut self, far: &mut Far) -> (FlowId, u32) {
        let flow = self.dialling(40000);
        assert!(self.sink.packets.is_empty());
        self.dialled(flow, Ok(()));
        self.turns(far);
        let synack = self.seen();
        assert_eq!(
            (synack.flags, synack.ack, synack.src),
            (SYN | ACK, 101, at(SHOP))
        );
        let next = synack.seq.wrapping_add(1);
        self.send(40000, SHOP, 101, next, ACK, b"");
        self.turns(far);
        assert!(self.sink.packets.is_empty(), "{:?}", self.sink.packets);
        (flow, next)
    }
}

fn read(packet: &[u8]) -> Seen {
    let ip = packet::parse(packet).unwrap();
    assert_eq!(ip.proto, packet::TCP, "{ip:?}");
    let segment = packet::segment(ip.payload).unwrap();
    let header = usize::from(ip.payload[12] >> 4) * 4;
    Seen {
        src: SocketAddr::new(ip.src, segment.src_port),
        flags: segment.flags & (SYN | ACK | RST | FIN),
        seq: segment.seq,
        ack: segment.ack,
        data: ip.payload[header..].to_vec(),
    }
}

/// Type and code of an ICMP error, and where it comes from.
fn read_icmp(packet: &[u8]) -> (IpAddr, u8, u8) {
    let ip = packet::parse(packet).unwrap();
    assert!(
        ip.proto == packet::ICMP || ip.proto == packet::ICMPV6,
        "{ip:?}"
    );
    (ip.src, ip.payload[0], ip.payload[1])
}

fn segment_of(
    src: SocketAddr,
    dst: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let (SocketAddr::V4(src4), SocketAddr::V4(dst4)) = (src, dst) else {
        let mut packet = Vec::new();
        assert!(packet::write_tcp(&mut packet, src, dst, seq, ack, flags));
        return packet;
    };
    let number = |value: u32| TcpSeqNumber(i32::from_ne_bytes(value.to_ne_bytes()));
    let tcp = TcpRepr {
        src_port: src.port(),
        dst_port: dst.port(),
        control: match flags & (SYN | RST | FIN) {
            0 => TcpControl::None,
            SYN => TcpControl::Syn,
            RST => TcpControl::Rst,
            _ => TcpControl::Fin,
        },
        seq_number: number(seq),
        ack_number: (flags & ACK != 0).then(|| number(ack)),
        window_len: 65535,
        window_scale: (flags & SYN != 0).then_some(7),
        max_seg_size: (flags & SYN != 0).then_some(65480),
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: data,
    };
    let ip = Ipv4Repr {
        src_addr: *src4.ip(),
        dst_addr: *dst4.ip(),
        next_header: IpProtocol::Tcp,
        payload_len: tcp.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let mut packet = vec![0; ip.buffer_len() + tcp.buffer_len()];
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut packet), &checksums);
    let (from, to) = ((*src4.ip()).into(), (*dst4.ip()).into());
    tcp.emit(
        &mut TcpPacket::new_unchecked(&mut packet[ip.buffer_len()..]),
        &from,
        &to,
        &checksums,
    );
    packet
}

fn datagram_of(src: SocketAddr, dst: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    assert!(packet::write_udp(&mut packet, src, dst, data));
    packet
}

#[test]
fn a_protocol_that_is_not_carried_is_unreachable_at_once() {
    let mut rig = Rig::new("internet");
    // SCTP.
    rig.tun(&[
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 132, 0, 0, 192, 0, 0, 2, 93, 184, 216, 34, 8, 0, 0, 0, 0,
        0, 0, 0,
    ]);
    assert_eq!(read_icmp(&rig.sink.packets[0]), (at(SHOP).ip(), 3, 2));
    assert_eq!(rig.refused().proto, Proto::Other(132));
}

#[test]
fn what_a_kernel_says_on_a_new_link_makes_no_entry() {
    let mut rig = Rig::new("internet");
    let mut solicit = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
    solicit.extend("fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    solicit.extend("ff02::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    solicit.extend([133, 0, 0, 0, 0, 0, 0, 0]);
    rig.tun(&solicit);
    assert!(rig.events().is_empty() && rig.sink.packets.is_empty());
}

#[test]
fn fragments_of_tcp_and_foreign_sources_are_dropped_with_one_entry_each() {
    let mut rig = Rig::new("internet");
    let mut fragment = segment_of(own(1000), at("93.184.216.34:4000"), 1, 0, SYN, b"");
    fragment[6] = 0x20;
    rig.tun(&fragment);
    rig.tun(&fragment);
    assert_eq!(rig.refused().refusal, Refusal::Protocol);
    rig.tun(&datagram_of(
        at("192.0.0.3:5"),
        at("93.184.216.35:4001"),
        b"x",
    ));
    assert_eq!(rig.refused().refusal, Refusal::Protocol);
    assert!(rig.sink.packets.is_empty() && rig.sink.datagrams.is_empty());
}

#[test]
fn a_stop_resets_every_flow_and_counts_them() {
    let mut rig = Rig::new("internet");
    let mut far = Far::default();
    let (flow, _) = rig.established(&mut far);
    rig.send(40001, SHOP, 5, 0, SYN, b"");
    let (late, _) = rig.opened();
    rig.tun(&datagram_of(own(9000), at("93.184.216.34:9000"), b"x"));
    let (ticket, _) = rig.opened();
    rig.word(ticket, true);
    assert_eq!(rig.gate.flows(), 3);
    assert_eq!(rig.gate.stop(rig.now, &mut rig.sink), 3);
    let resets: Vec<u8> = rig
        .sink
        .packets
        .iter()
        .map(|packet| read(packet).flags)
        .collect();
    assert!(
        resets.iter().all(|flags| flags & RST != 0) && resets.len() == 2,
        "{resets:?}"
    );
    let ends: Vec<EndReason> = rig
        .events()
        .into_iter()
        .map(|(_, event)| match event {
            GateEvent::FlowEnded(ended) => ended.end,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ends, [EndReason::BoxStopped; 3]);
    assert!(rig.actions().contains(&Action::Close { flow, reset: true }));
    assert_eq!(rig.gate.flows(), 0);
    // A late word dials nothing, and nothing new begins.
    rig.word(late, true);
    rig.send(40002, SHOP, 9, 0, SYN, b"");
    assert!(rig.actions().is_empty());
    assert_eq!(rig.refused().refusal, Refusal::BoxStopping);
    assert_eq!(rig.gate.stop(rig.now, &mut rig.sink), 0);
}
