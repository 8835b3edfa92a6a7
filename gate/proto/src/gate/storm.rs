//! A target for a fuzzer: a thousand packets of a box to one gate, most of them
//! near what a kernel would send, and a node, resolvers and hosts that do what
//! they like.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bailey_model::link::{BOX_V4, BOX_V6, GATE_V4, GATE_V6};
use bailey_model::{FlowId, Publish, Transport};

use super::Gate;
use super::fuzz::{Checked, config, finish, settle};
use crate::Now;
use crate::addr::NodeAddrs;
use crate::packet::{self, flag};

/// Packets of one run.
const PACKETS: u32 = 1000;

/// Far ends: public, local, reserved, the gate's own, a group.
const FAR: [[u8; 4]; 8] = [
    [93, 184, 216, 34],
    [93, 184, 216, 35],
    [1, 1, 1, 1],
    [192, 168, 1, 20],
    [127, 0, 0, 1],
    [169, 254, 169, 254],
    [224, 0, 0, 251],
    [240, 1, 2, 3],
];
const PORTS: [u16; 6] = [443, 80, 53, 53, 7, 0];

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug)]
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn octet(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn short(&mut self, end: u16) -> u16 {
        u16::try_from(self.below(end.into())).unwrap_or(0)
    }

    fn octets(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.octet()).collect()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let at = usize::try_from(self.next()).unwrap_or(0) % of.len().max(1);
        of.get(at).copied()
    }
}

/// Takes its first eight octets as a seed.
///
/// # Panics
/// If the gate breaks a promise that can be checked without knowing the input:
/// a packet that is none, a table past its bound, work without an end, something
/// left when all is over.
pub fn storm(data: &[u8]) {
    let seed = data.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let mut noise = Noise(seed);
    let mut gate = Gate::new(Now::ZERO, config(), NodeAddrs::default());
    let (mut out, mut now, mut tickets) = (Checked::default(), Now::ZERO, Vec::new());
    for _ in 0..PACKETS {
        let packet = packet(&mut noise, &mut out);
        gate.handle_tun(now, &packet, &mut out);
        if noise.below(3) == 0 {
            elsewhere(&mut gate, &mut noise, &mut now, &mut tickets, &mut out);
        }
        // Mostly dials succeed: what follows them is what is looked for.
        let with = noise.octet() | if noise.below(4) > 0 { 4 } else { 0 };
        settle(&mut gate, now, with, &mut tickets, &mut out);
    }
    finish(gate, now, tickets, &mut out);
}

/// What the node, the clock, the far ends and clients do.
fn elsewhere(
    gate: &mut Gate,
    noise: &mut Noise,
    now: &mut Now,
    tickets: &mut Vec<u64>,
    out: &mut Checked,
) {
    let flow = FlowId(noise.below(400));
    match noise.below(16) {
        0..=7 => {
            for ticket in tickets.drain(..) {
                let stands = noise.below(16) > 0;
                gate.handle_ticket(*now, ticket, stands, out);
            }
        }
        8 | 9 => *now += Duration::from_millis(noise.below(2000)),
        10 => *now += Duration::from_secs(noise.below(200)),
        11 => gate.handle_ready(flow, noise.below(2) == 0, noise.below(2) == 0),
        12 => {
            let from = SocketAddr::from((noise.pick(&FAR).unwrap_or_default(), 443));
            let data = noise.octets(100);
            if let Some(port) = out.port() {
                gate.handle_datagram(*now, port, from, &data, out);
            }
        }
        13 => came(gate, noise, *now, out),
        14 => {
            let reaches = [
                "internet",
                "internet,local",
                "local",
                "1.1.1.1:80",
                "nothing",
            ];
            let reach = noise.pick(&reaches).unwrap_or("nothing");
            gate.set_reach(*now, reach.parse().unwrap_or_default(), out);
        }
        _ => {
            gate.set_addrs(NodeAddrs {
                on_link: vec![(IpAddr::from([93, 184, 216, noise.octet() & 64]), 26)],
                ..NodeAddrs::default()
            });
            gate.judge_anew(*now, out);
        }
    }
}

fn came(gate: &mut Gate, noise: &mut Noise, now: Now, out: &mut Checked) {
    let transport = match noise.below(2) {
        0 => Transport::Tcp,
        _ => Transport::Udp,
    };
    let publish = Publish {
        transport,
        host_port: 80,
        box_port: 7,
    };
    let client = SocketAddr::from(([127, 0, 0, 1], 50_000 + noise.short(40)));
    match transport {
        Transport::Tcp => drop(gate.handle_accepted(now, publish, client)),
        Transport::Udp => {
            let data = noise.octets(100);
            gate.handle_came(now, (0, publish), client, &data, out);
        }
    }
}

/// A packet of the box, with a fault now and then.
fn packet(noise: &mut Noise, out: &mut Checked) -> Vec<u8> {
    let (src, dst) = ends(noise);
    let mut packet = Vec::new();
    match noise.below(16) {
        0..=8 => segment(noise, out, (src, dst), &mut packet),
        9..=11 => {
            let data = match dst.port() {
                53 => question(noise),
                _ => noise.octets(60),
            };
            packet::write_udp(&mut packet, src, dst, &data);
        }
        12 => {
            let kind = if dst.is_ipv4() { 8 } else { 128 };
            let rest = u32::from(noise.short(4)) << 16 | u32::from(noise.short(16));
            let way = (src.ip(), dst.ip());
            crate::icmp_wire::write(&mut packet, way, (kind, 0), rest, b"?");
        }
        13 => {
            packet::write_udp(&mut packet, src, dst, &noise.octets(60));
            cut(noise, &mut packet);
        }
        // As the gate itself writes: an answer to what came, or a reflection.
        14 => packet = out.last().to_vec(),
        _ => packet = noise.octets(80),
    }
    if noise.below(12) == 0 && !packet.is_empty() {
        let at = noise.below(packet.len() as u64);
        let octet = noise.octet();
        if let Some(place) = usize::try_from(at).ok().and_then(|at| packet.get_mut(at)) {
            *place = octet;
        }
    }
    packet
}

fn ends(noise: &mut Noise) -> (SocketAddr, SocketAddr) {
    let (from, to) = (40_000 + noise.short(24), noise.pick(&PORTS).unwrap_or(443));
    match noise.below(16) {
        0 => (
            SocketAddr::from((BOX_V6, from)),
            SocketAddr::from(([0x2606, 0x2800, 0x220, 1, 0, 0, 0, 1], to)),
        ),
        1 => (
            SocketAddr::from((BOX_V6, 7)),
            SocketAddr::from((GATE_V6, 1024 + noise.short(8))),
        ),
        2 | 3 => {
            let src = noise.pick(&[BOX_V4, Ipv4Addr::LOCALHOST]);
            let gate = SocketAddr::from((GATE_V4, 1024 + noise.short(8)));
            (SocketAddr::from((src.unwrap_or(BOX_V4), 7)), gate)
        }
        _ => {
            // Mostly where a dial is granted.
            let far = match noise.below(4) {
                0 => noise.pick(&FAR),
                _ => FAR.first().copied(),
            };
            let dst = SocketAddr::from((far.unwrap_or_default(), to));
            (SocketAddr::from((BOX_V4, from)), dst)
        }
    }
}

/// A segment that often fits what the gate said last between these ends.
fn segment(
    noise: &mut Noise,
    out: &Checked,
    (src, dst): (SocketAddr, SocketAddr),
    packet: &mut Vec<u8>,
) {
    const FLAGS: [u8; 14] = [
        flag::SYN,
        flag::SYN,
        flag::SYN,
        flag::ACK,
        flag::ACK,
        flag::ACK,
        flag::ACK,
        flag::ACK,
        flag::ACK | flag::FIN,
        flag::ACK | flag::FIN,
        flag::RST,
        flag::RST | flag::ACK,
        flag::SYN | flag::ACK,
        flag::SYN | flag::FIN,
    ];
    let flags = match noise.below(16) {
        0 => noise.octet(),
        _ => noise.pick(&FLAGS).unwrap_or(flag::ACK),
    };
    let (next, expected) = out.numbers(src, dst);
    let near = |noise: &mut Noise, number: u32| match noise.below(8) {
        0 => number.wrapping_sub(u32::from(noise.octet())),
        1 => number.wrapping_add(u32::from(noise.octet())),
        2 => u32::try_from(noise.next() >> 32).unwrap_or(0),
        _ => number,
    };
    let (seq, ack) = (near(noise, expected), near(noise, next));
    if noise.below(2) == 0 {
        packet::write_tcp(packet, src, dst, seq, ack, flags);
        return;
    }
    let data = match noise.below(8) {
        0 => vec![b'x'; 1400],
        // What may be the beginning of a ClientHello.
        1 => [&[22, 3, 1][..], &noise.octets(60)].concat(),
        _ => noise.octets(30),
    };
    if packet::begin(packet, src.ip(), dst.ip(), packet::TCP, 20 + data.len()).is_none() {
        return;
    }
    packet.extend(src.port().to_be_bytes());
    packet.extend(dst.port().to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend(ack.to_be_bytes());
    packet.extend([5 << 4, flags]);
    let window = noise.pick(&[0, 1, 536, 65535]).unwrap_or(0_u16);
    packet.extend(window.to_be_bytes());
    packet.extend([0, 0, 0, noise.octet()]);
    packet.extend(data);
    crate::seal::close(packet);
}

/// A question for one of a few names (RFC 1035 §4.1).
fn question(noise: &mut Noise) -> Vec<u8> {
    let mut question = vec![
        noise.octet() & 3,
        noise.octet() & 7,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let label = noise.octet() & 3;
    question.extend([1, b'a' + label]);
    question.extend(b"\x07example\0\0\x01\0\x01");
    if noise.below(8) == 0 {
        question.truncate(usize::from(noise.octet() & 31));
    }
    question
}

/// Makes a fragment of a packet: the first, a middle or the last one.
fn cut(noise: &mut Noise, packet: &mut [u8]) {
    if let Some([0x45, _, _, _, _, id, more, offset]) = packet.first_chunk_mut() {
        *id = noise.octet() & 3;
        *more = noise.octet() & 0x20;
        *offset = noise.octet() & 3;
    }
}

#[cfg(test)]
mod tests {
    use super::storm;

    #[test]
    fn a_storm_of_packets_breaks_no_promise_and_leaves_nothing() {
        for seed in 0..60_u64 {
            storm(&seed.to_le_bytes());
        }
    }
}
