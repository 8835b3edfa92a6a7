//! A box that floods its gate: another box's gate goes on, and the flooded one
//! keeps its bounds.

#![expect(clippy::unwrap_used, reason = "a panic is the failure")]

mod world;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use world::{World, inside, no_facts, v4};

/// How long each flood lasts.
const FLOOD: Duration = Duration::from_secs(2);
/// More than all of the gate's tables and queues hold together, in KiB.
const MOST: u64 = 96 << 10;

/// Anonymous memory of a process, in KiB (proc(5)).
fn anonymous(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

/// One packet of a flood, by its number.
type Packet = fn(u32) -> Vec<u8>;

fn ipv4(proto: u8, word: u16, number: u32, dst: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let [_, _, hi, lo] = number.to_be_bytes();
    let [flags, offset] = word.to_be_bytes();
    let mut packet = vec![
        0x45, 0, total[0], total[1], hi, lo, flags, offset, 64, proto, 0, 0, 192, 0, 0, 2,
    ];
    packet.extend(dst);
    packet.extend(payload);
    packet
}

/// A public address that depends on the number.
fn somewhere(number: u32) -> [u8; 4] {
    let [_, a, b, c] = number.wrapping_mul(2_654_435_761).to_be_bytes();
    [8, a, b, c]
}

fn ports(number: u32, port: u16) -> [u8; 4] {
    let [_, _, a, b] = number.to_be_bytes();
    let [c, d] = port.to_be_bytes();
    [a | 0x40, b, c, d]
}

fn syn(number: u32) -> Vec<u8> {
    let mut tcp = ports(number, 80).to_vec();
    tcp.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    ipv4(6, 0, number, somewhere(number), &tcp)
}

/// A SYN to a host that answers; the handshake is never ended.
fn half_open(number: u32) -> Vec<u8> {
    let mut tcp = ports(number, 7).to_vec();
    tcp.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    ipv4(6, 0, number, world::PUBLIC_V4.octets(), &tcp)
}

fn fragment(number: u32) -> Vec<u8> {
    ipv4(17, 0x2000, number, somewhere(number), &[7; 1480])
}

fn datagram(number: u32) -> Vec<u8> {
    let mut udp = ports(number, 9).to_vec();
    udp.extend([5, 128, 0, 0]);
    udp.extend([7; 1400]);
    ipv4(17, 0, number, somewhere(number), &udp)
}

fn refused(number: u32) -> Vec<u8> {
    let mut udp = ports(9, 9).to_vec();
    udp.extend([0, 8, 0, 0]);
    let [_, _, a, b] = number.to_be_bytes();
    ipv4(17, 0, number, [10, 0, a, b], &udp)
}

fn name(number: u32) -> Vec<u8> {
    let [_, _, a, b] = number.to_be_bytes();
    let label = format!("n{number:07}");
    let mut dns = vec![a, b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 8];
    dns.extend(label.as_bytes());
    dns.extend(b"\x07example\x00\x00\x01\x00\x01");
    let mut udp = ports(number, 53).to_vec();
    let len = u16::try_from(8 + dns.len()).unwrap().to_be_bytes();
    udp.extend([len[0], len[1], 0, 0]);
    udp.extend(dns);
    ipv4(17, 0, number, [9, 9, 9, 9], &udp)
}

/// Sends packets from the box as fast as they go; how many it were.
fn flood(world: &World, packet: Packet, over: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
    let over = over.clone();
    world.inner.spawn(move || {
        let raw = socket(
            AddressFamily::Inet,
            SockType::Raw,
            SockFlag::empty(),
            SockProtocol::Raw,
        )
        .unwrap();
        let mut number = 0;
        while !over.load(Ordering::Relaxed) {
            let bytes = packet(number);
            let to = SockaddrIn::new(bytes[16], bytes[17], bytes[18], bytes[19], 0);
            // A full queue takes no more for a moment.
            let _ = sendto(raw.as_raw_fd(), &bytes, &to, MsgFlags::empty());
            number += 1;
        }
        number
    })
}

/// Sends back what comes, connection by connection.
fn echo(world: &World) {
    let at: SocketAddr = v4(7);
    let listener = world.router.run(move || TcpListener::bind(at).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut data = [0; 1];
                while stream.read_exact(&mut data).is_ok() && stream.write_all(&data).is_ok() {}
            });
        }
    });
}

/// Round trips of a box for as long as a flood lasts: the median and the worst,
/// a dial among them.
fn round_trips(world: &World) -> (Duration, Duration) {
    world.inner.run(|| {
        let (mut took, until) = (Vec::new(), Instant::now() + FLOOD);
        while Instant::now() < until {
            let start = Instant::now();
            let mut stream = TcpStream::connect(v4(7)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            for _ in 0..10 {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            took.push(start.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
        took.sort_unstable();
        (took[took.len() / 2], *took.last().unwrap())
    })
}

#[test]
fn a_flood_slows_its_own_box_and_its_gate_keeps_its_bounds() {
    if !inside("a_flood_slows_its_own_box_and_its_gate_keeps_its_bounds") {
        return;
    }
    let good = World::new("internet", no_facts());
    echo(&good);
    let floods: [(&str, Packet); 7] = [
        ("SYNs", syn),
        ("half-open connections", half_open),
        ("fragments", fragment),
        ("datagrams", datagram),
        ("refused datagrams", refused),
        ("names", name),
        // As many kinds as before over again, in tables that are full.
        ("SYNs again", syn),
    ];
    let bad = World::new("internet", no_facts());
    echo(&bad);
    let before = anonymous(bad.gate.id());
    for (what, packet) in floods {
        let over = Arc::new(AtomicBool::new(false));
        let flooding = flood(&bad, packet, &over);
        let (median, worst) = round_trips(&good);
        over.store(true, Ordering::Relaxed);
        let sent = flooding.join().unwrap();
        let grown = anonymous(bad.gate.id()).saturating_sub(before);
        eprintln!("{what}: {sent} packets, {grown} KiB, {median:?} {worst:?}");
        assert!(sent > 10_000, "{what}: {sent} packets only");
        assert!(grown < MOST, "{what}: the gate has grown by {grown} KiB");
        assert!(median < Duration::from_millis(50), "{what}: {median:?}");
        assert!(worst < Duration::from_secs(2), "{what}: {worst:?}");
    }
}
