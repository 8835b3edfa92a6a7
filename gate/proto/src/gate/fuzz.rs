//! A target for a fuzzer: arbitrary packets, outcomes and times.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bailey_model::link::{BOX_V4, BOX_V6};
use bailey_model::{FlowId, Publish, Transport};

use super::Gate;
use crate::Now;
use crate::addr::NodeAddrs;
use crate::channel::{GateConfig, HostFacts};
use crate::flow::{
    Action, DialFault, Dialled, HostStream, MAX_EVENTS, Outlet, SendFault, StreamIo, UdpPort,
};
use crate::icmp::{Echo, EchoError, EchoFault};
use crate::packet::{self, MAX_PACKET};

/// The port by which somebody comes in.
const PUBLISH: Publish = Publish {
    transport: Transport::Tcp,
    host_port: 80,
    box_port: 7,
};

/// The same for datagrams.
const PUBLISH_UDP: Publish = Publish {
    transport: Transport::Udp,
    ..PUBLISH
};
/// What the box may dial, by turns.
const REACHES: [&str; 5] = [
    "internet",
    "nothing",
    "local",
    "1.1.0.0/16:80",
    "internet,local",
];

/// Where the gate's packets go: nowhere, but they must be packets.
#[derive(Debug, Default)]
pub(super) struct Checked {
    port: Option<UdpPort>,
    echo: Option<FlowId>,
    last: Vec<u8>,
    /// By the box's end and the other: the gate's next number, and what it expects.
    numbers: HashMap<(SocketAddr, SocketAddr), (u32, u32)>,
}

impl Checked {
    /// Some port that has sent.
    pub(super) fn port(&self) -> Option<UdpPort> {
        self.port
    }

    /// The last packet to the box.
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// What the gate said last between these ends.
    pub(super) fn numbers(&self, src: SocketAddr, dst: SocketAddr) -> (u32, u32) {
        self.numbers.get(&(src, dst)).copied().unwrap_or_default()
    }
}

impl Outlet for Checked {
    fn packet(&mut self, packet: &[u8]) {
        let ip = packet::parse(packet).filter(|ip| ip.whole.len() == packet.len());
        let Some(ip) = ip else {
            panic!("no packet: {packet:?}");
        };
        assert!(packet.len() <= MAX_PACKET);
        packet.clone_into(&mut self.last);
        if let Some(said) = packet::segment(ip.payload).filter(|_| ip.proto == packet::TCP) {
            let ends = (
                SocketAddr::new(ip.dst, said.dst_port),
                SocketAddr::new(ip.src, said.src_port),
            );
            let numbers = (said.seq.wrapping_add(said.len), said.ack);
            self.numbers.insert(ends, numbers);
        }
    }

    fn datagram(&mut self, port: UdpPort, _: SocketAddr, data: &[u8]) -> Result<(), SendFault> {
        self.port = Some(port);
        match data.first() {
            Some(0) => Err(SendFault::NoSocket),
            Some(1) => Err(SendFault::HostUnreachable),
            _ => Ok(()),
        }
    }

    fn can_echo(&mut self, to: IpAddr) -> bool {
        to.is_ipv4()
    }

    fn echo(
        &mut self,
        flow: FlowId,
        _: IpAddr,
        echo: Echo<'_>,
    ) -> Result<Option<SocketAddr>, EchoFault> {
        self.echo = Some(flow);
        match echo.seq & 7 {
            0 => Err(EchoFault::NotAllowed),
            1 => Err(EchoFault::NoSocket),
            2 => Err(EchoFault::TooBig(echo.hops.into())),
            3 => Err(EchoFault::HostUnreachable),
            _ => Ok(None),
        }
    }
}

/// A socket outside whose every answer is the next octet's.
#[derive(Debug)]
struct Whim(u8);

impl Whim {
    fn io(&mut self, room: usize) -> StreamIo {
        self.0 = self.0.wrapping_mul(5).wrapping_add(1);
        match self.0 >> 5 {
            0 => StreamIo::Ended,
            1 => StreamIo::Broken,
            2 | 3 => StreamIo::Blocked,
            _ => StreamIo::Moved(room.min(1000)),
        }
    }
}

impl HostStream for Whim {
    fn read(&mut self, into: &mut [u8]) -> StreamIo {
        self.io(into.len())
    }

    fn write(&mut self, from: &[u8]) -> StreamIo {
        self.io(from.len())
    }

    fn finish(&mut self) {}
}

/// Takes `data` as steps: an octet that says what happens, one that says with
/// what or for how long, then for a packet its length and its bytes, whose
/// source is set to the box's own unless the first octet's top bit says not.
///
/// # Panics
/// If the gate breaks a promise that can be checked without knowing the input:
/// a packet that is none, a queue past its bound, work without an end.
pub fn fuzz_tun(data: &[u8]) {
    let mut gate = Gate::new(Now::ZERO, config(), NodeAddrs::default());
    let (mut out, mut now, mut rest) = (Checked::default(), Now::ZERO, data);
    let mut tickets: Vec<u64> = Vec::new();
    while let [what, with, more @ ..] = rest {
        rest = more;
        match what & 7 {
            0..=2 => {
                let (packet, more) = rest.split_at(rest.len().min(usize::from(*with)));
                rest = more;
                let mut packet = packet.to_vec();
                if what & 0x80 == 0 {
                    set_source(&mut packet);
                }
                gate.handle_tun(now, &packet, &mut out);
            }
            3 => {
                if let Some(ticket) = tickets.pop() {
                    gate.handle_ticket(now, ticket, with & 7 != 0, &mut out);
                }
            }
            4 if what & 0x40 != 0 => {
                let client = SocketAddr::from(([127, 0, 0, 1], u16::from(*with)));
                let _turned_away = gate.handle_accepted(now, PUBLISH, client);
            }
            4 if what & 0x20 != 0 => {
                let client = SocketAddr::from(([127, 0, 0, 1], 1024 + u16::from(with & 3)));
                gate.handle_came(now, (0, PUBLISH_UDP), client, data, &mut out);
            }
            4 => gate.handle_ready(FlowId((with & 15).into()), true, true),
            5 => now += Duration::from_millis(u64::from(*with).pow(2)),
            6 => {
                let from = SocketAddr::from(([1, 1, 1, *with], 7));
                if let Some(port) = out.port {
                    gate.handle_datagram(now, port, from, data, &mut out);
                    gate.handle_datagram_failed(port, from, SendFault::PortUnreachable, &mut out);
                }
                if let Some(flow) = out.echo {
                    echo(&mut gate, now, (flow, *with, data), &mut out);
                }
            }
            _ if *with == 255 => drop(gate.stop(now, &mut out)),
            _ if *with >= 250 => {
                let reach = REACHES.get(usize::from(*with) % REACHES.len());
                let reach = reach.and_then(|reach| reach.parse().ok());
                gate.set_reach(now, reach.unwrap_or_default(), &mut out);
            }
            _ => {
                gate.set_addrs(NodeAddrs {
                    on_link: vec![(IpAddr::from([1, 1, *with, 0]), 24)],
                    ..NodeAddrs::default()
                });
                gate.judge_anew(now, &mut out);
            }
        }
        settle(&mut gate, now, *with, &mut tickets, &mut out);
    }
    finish(gate, now, tickets, &mut out);
}

pub(super) fn config() -> GateConfig {
    GateConfig {
        reach: "internet,local".parse().unwrap_or_default(),
        facts: HostFacts {
            resolvers: vec![SocketAddr::from(([9, 9, 9, 9], 53))],
            ..HostFacts::default()
        },
        published: Vec::new(),
        seed: [1; 32],
    }
}

/// The end of a box: every word comes, every timer runs, and nothing is left.
pub(super) fn finish(mut gate: Gate, mut now: Now, mut tickets: Vec<u64>, out: &mut Checked) {
    gate.stop(now, out);
    settle(&mut gate, now, 0, &mut tickets, out);
    for ticket in std::mem::take(&mut tickets) {
        gate.handle_ticket(now, ticket, true, out);
    }
    settle(&mut gate, now, 0, &mut tickets, out);
    let mut rounds = 0;
    while let Some(due) = gate.poll_timeout() {
        rounds += 1;
        assert!(rounds < 20_000, "timers without an end");
        now = now.max(due);
        settle(&mut gate, now, 0, &mut tickets, out);
    }
    assert!(tickets.is_empty(), "something begins after the end");
    assert_eq!(gate.census().leaked(), None);
}

/// What comes for an echo: an error, then a reply.
fn echo(gate: &mut Gate, now: Now, (flow, with, data): (FlowId, u8, &[u8]), out: &mut Checked) {
    let error = EchoError {
        seq: u16::from(with & 15),
        kind: with,
        code: with & 3,
        mtu: u32::from(with),
        from: Some(IpAddr::from([1, 1, 1, with])),
    };
    gate.handle_echo_failed(now, flow, error, out);
    let to = IpAddr::from([93, 1, 1, 1]);
    gate.handle_echo_reply(now, flow, to, (error.seq, data), out);
}

fn set_source(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            if let Some(source) = packet.get_mut(12..16) {
                source.copy_from_slice(&BOX_V4.octets());
            }
        }
        Some(6) => {
            if let Some(source) = packet.get_mut(8..24) {
                source.copy_from_slice(&BOX_V6.octets());
            }
        }
        _ => {}
    }
}

/// What a shell does after each step; it must come to an end.
pub(super) fn settle(
    gate: &mut Gate,
    now: Now,
    with: u8,
    tickets: &mut Vec<u64>,
    out: &mut Checked,
) {
    let mut turns = 0;
    for _ in 0..64 {
        let Some(flow) = gate.next_touched() else {
            break;
        };
        gate.turn(now, flow, &mut Whim(with), out);
        turns += 1;
    }
    assert!(turns <= 64);
    if gate.poll_timeout().is_some_and(|due| due <= now) {
        gate.handle_timeout(now, out);
    }
    let mut actions = 0;
    while let Some(action) = gate.poll_action() {
        actions += 1;
        assert!(actions < 4096, "actions without an end");
        match action {
            Action::Dial { flow, dst } => {
                let outcome = match with & 7 {
                    0 => Err(DialFault::Refused),
                    1 => Err(DialFault::NetworkUnreachable),
                    2 => Ok(Dialled {
                        local: dst,
                        peer: dst,
                    }),
                    _ => Ok(Dialled {
                        local: SocketAddr::from(([1, 2, 3, 4], 5)),
                        peer: dst,
                    }),
                };
                gate.handle_dialled(now, flow, outcome, out);
            }
            Action::Upstream {
                id, server, bytes, ..
            } if with & 1 == 0 => {
                gate.handle_upstream(now, id, server, &bytes, out);
            }
            Action::Upstream { id, .. } => gate.handle_upstream_failed(now, id, out),
            Action::Close { .. } | Action::CloseUdp(_) | Action::CancelUpstream(_) => {}
        }
    }
    let mut events = 0;
    while let Some((ticket, _)) = gate.poll_event() {
        events += 1;
        assert!(events <= 2 * MAX_EVENTS, "events without an end");
        tickets.extend(ticket);
    }
    assert_eq!(gate.census().beyond(), None);
}

#[cfg(test)]
mod tests {
    use super::fuzz_tun;

    /// SplitMix64, so that a failure names its seed.
    fn octets(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed;
        std::iter::from_fn(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            Some((mixed ^ (mixed >> 27)).to_le_bytes()[5])
        })
    }

    /// Packets that get past the first checks, with noise in them.
    fn likely(seed: u64) -> Vec<u8> {
        let mut noise = octets(seed);
        let mut data = Vec::new();
        for _ in 0..60 {
            let what = noise.next().unwrap();
            if what & 7 > 2 {
                data.extend([what, noise.next().unwrap()]);
                continue;
            }
            let proto = [6, 17, 1, 58][usize::from(noise.next().unwrap()) % 4];
            let port = [53, 80, 80, 7][usize::from(noise.next().unwrap()) % 4];
            let len = 40 + noise.next().unwrap() % 20;
            let dst = [93, 1, 192, 224][usize::from(noise.next().unwrap()) % 4];
            // The gate's own address, and the ports that it dials from.
            let own = dst == 192;
            let rest = if own { [0, 0, 1] } else { [1, 1, 1] };
            let high = if own { 4 } else { 0 };
            let mut packet = vec![
                0x45, 0, 0, len, 0, 0, 0, 0, 64, proto, 0, 0, 0, 0, 0, 0, dst,
            ];
            packet.extend(rest);
            packet.extend([
                0,
                7,
                high,
                if own { port % 4 } else { port },
                0,
                0,
                0,
                noise.next().unwrap() % 4,
                0,
                0,
                0,
                0,
                0x50,
            ]);
            packet.push([2, 2, 16, 17, 4, 18][usize::from(noise.next().unwrap()) % 6]);
            packet.resize(usize::from(len), 0);
            // UDP's own length stands where TCP has its sequence number.
            if proto == 17 {
                packet[24..26].copy_from_slice(&[0, len - 20]);
            }
            if proto == 1 {
                packet[20..22].copy_from_slice(&[8, 0]);
                packet[22..24].copy_from_slice(&[0, 0]);
                let sum = crate::packet::icmp_checksum(
                    [0, 0, 0, 0].into(),
                    [0, 0, 0, 0].into(),
                    &packet[20..],
                );
                packet[22..24].copy_from_slice(&sum.to_be_bytes());
            }
            let at = usize::from(noise.next().unwrap());
            // Now and then a fragment, the first, a middle or a last one.
            if at % 7 == 0 {
                packet[6] = noise.next().unwrap() & 0x20;
                packet[7] = noise.next().unwrap() & 3;
            }
            if at % 5 == 0
                && let Some(octet) = packet.get_mut(at)
            {
                *octet ^= noise.next().unwrap();
            }
            data.extend([what & 7, len]);
            data.extend(packet);
        }
        data
    }

    #[test]
    fn no_packets_and_outcomes_make_the_gate_panic() {
        for seed in 0..300 {
            let noise: Vec<u8> = octets(seed).take(600).collect();
            fuzz_tun(&noise);
            fuzz_tun(&likely(seed));
        }
    }
}
