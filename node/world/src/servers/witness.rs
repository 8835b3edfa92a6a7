//! The witness: a packet socket on the router's side of every node's cable.
//!
//! It sees what left a node whether or not anything answered, on the way to the
//! router or to another node, before the bridge or any rule touches it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::thread;
use std::time::SystemTime;

use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SockFlag, SockProtocol, SockType, recvfrom, setsockopt, socket,
    sockopt,
};

use super::Log;
use crate::control::{Failure, Step as _};
use crate::sys::{Instruction, attach_filter};
use crate::{Seen, SeenKind};

/// Bytes of a packet that are looked at: Ethernet, IPv6 and TCP or UDP.
const HEAD: usize = 128;

/// Most lines in a log, as a bound for a test that floods.
const MAX_LINES: u32 = 1_000_000;

/// Room in the socket's queue in bytes: a burst waits here.
const QUEUE: usize = 4 << 20;

/// Starts to watch; what a node sends after this returns is seen.
pub(super) fn start(log: Log, nodes: u8) -> Result<(), Failure> {
    let step = "watch the nodes' cables";
    let mut names = BTreeMap::new();
    for number in 1..=nodes {
        let name = format!("n{number}");
        let index = if_nametoindex(name.as_str()).step(step)?;
        names.insert(usize::try_from(index).step(step)?, name);
    }
    let socket = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    )
    .step("open a packet socket")?;
    attach_filter(socket.as_fd(), &filter()).step("attach the witness's filter")?;
    // Best effort: the default queue holds some hundreds.
    let _capped = setsockopt(&socket, sockopt::RcvBuf, &QUEUE);
    thread::Builder::new()
        .spawn(move || watch(&socket, &names, &log))
        .step(step)?;
    Ok(())
}

fn watch(socket: &OwnedFd, names: &BTreeMap<usize, String>, log: &Log) {
    let mut buffer = [0_u8; HEAD];
    let mut lines = 0;
    while lines < MAX_LINES {
        let Ok((count, Some(from))) = recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut buffer) else {
            continue;
        };
        // What the router sends towards a node is not what the node sent.
        if from.pkttype() == libc::PACKET_OUTGOING {
            continue;
        }
        let Some(node) = names.get(&from.ifindex()) else {
            continue;
        };
        let packet = buffer.get(..count.min(HEAD)).unwrap_or_default();
        let Some((kind, src, dst)) = parse(packet) else {
            continue;
        };
        let seen = Seen {
            at: SystemTime::now(),
            node: node.clone(),
            kind,
            src,
            dst,
        };
        log.write(&seen.line());
        lines += 1;
    }
}

/// Reads an Ethernet frame.
fn parse(frame: &[u8]) -> Option<(SeenKind, SocketAddr, SocketAddr)> {
    let (ethernet, packet) = frame.split_first_chunk::<14>()?;
    let (protocol, src, dst, rest): (u8, IpAddr, IpAddr, &[u8]) = match ethernet {
        [.., 0x08, 0x00] => {
            let head: &[u8; 20] = packet.first_chunk()?;
            let &[first, .., s0, s1, s2, s3, d0, d1, d2, d3] = head;
            let rest = packet.get(usize::from(first & 0xf).checked_mul(4)?..)?;
            let (src, dst) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
            (*head.get(9)?, src.into(), dst.into(), rest)
        }
        [.., 0x86, 0xdd] => {
            let (head, rest) = packet.split_first_chunk::<40>()?;
            let src: [u8; 16] = *head.get(8..)?.first_chunk()?;
            let dst: [u8; 16] = *head.last_chunk()?;
            (
                *head.get(6)?,
                Ipv6Addr::from(src).into(),
                Ipv6Addr::from(dst).into(),
                rest,
            )
        }
        _ => return None,
    };
    let &[a, b, c, d, ..] = rest.first_chunk::<8>()?;
    let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let (kind, (from, to)) = match i32::from(protocol) {
        libc::IPPROTO_TCP => (SeenKind::TcpSyn, ports),
        libc::IPPROTO_UDP => (SeenKind::Udp, ports),
        libc::IPPROTO_ICMP if a == 8 => (SeenKind::Ping, (0, 0)),
        libc::IPPROTO_ICMPV6 if a == 128 => (SeenKind::Ping, (0, 0)),
        _ => return None,
    };
    Some((kind, SocketAddr::new(src, from), SocketAddr::new(dst, to)))
}

/// Keeps SYN without ACK, UDP and ICMP, first fragments only: a stream costs
/// the witness nothing. Classic BPF; jumps count from the next instruction.
fn filter() -> Vec<Instruction> {
    const LOAD_16: u16 = 0x28;
    const LOAD_8: u16 = 0x30;
    const LOAD_8_X: u16 = 0x50;
    const LOAD_IP_LEN: u16 = 0xb1;
    const EQUAL: u16 = 0x15;
    const ANY_BIT: u16 = 0x45;
    const AND: u16 = 0x54;
    const RETURN: u16 = 0x06;
    const SYN_ACK: u32 = 0x12;
    const SYN: u32 = 0x02;
    vec![
        /* 0 */ (LOAD_16, 0, 0, 12),
        /* 1 */ (EQUAL, 0, 10, 0x0800),
        /* 2 */ (LOAD_16, 0, 0, 20),
        /* 3 */ (ANY_BIT, 16, 0, 0x1fff),
        /* 4 */ (LOAD_8, 0, 0, 23),
        /* 5 */ (EQUAL, 13, 0, 17),
        /* 6 */ (EQUAL, 12, 0, 1),
        /* 7 */ (EQUAL, 0, 12, 6),
        /* 8 */ (LOAD_IP_LEN, 0, 0, 14),
        /* 9 */ (LOAD_8_X, 0, 0, 27),
        /* 10 */ (AND, 0, 0, SYN_ACK),
        /* 11 */ (EQUAL, 7, 8, SYN),
        /* 12 */ (EQUAL, 0, 7, 0x86dd),
        /* 13 */ (LOAD_8, 0, 0, 20),
        /* 14 */ (EQUAL, 4, 0, 17),
        /* 15 */ (EQUAL, 3, 0, 58),
        /* 16 */ (EQUAL, 0, 3, 6),
        /* 17 */ (LOAD_8, 0, 0, 67),
        /* 18 */ (EQUAL, 0, 1, SYN),
        /* 19 */ (RETURN, 0, 0, 128),
        /* 20 */ (RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the few instructions that the filter uses.
    fn keeps(frame: &[u8]) -> bool {
        let at = |offset: usize| frame.get(offset).copied().map(u32::from);
        let (mut pc, mut a, mut x) = (0_usize, 0_u32, 0_usize);
        let code = filter();
        loop {
            let (op, jt, jf, k) = code[pc];
            let k_at = k as usize;
            pc += 1;
            let jump = match op {
                0x28 => {
                    let Some((high, low)) = at(k_at).zip(at(k_at + 1)) else {
                        return false;
                    };
                    a = high << 8 | low;
                    continue;
                }
                0x30 | 0x50 => {
                    let Some(byte) = at(if op == 0x30 { k_at } else { x + k_at }) else {
                        return false;
                    };
                    a = byte;
                    continue;
                }
                0xb1 => {
                    x = (at(k_at).unwrap() & 0xf) as usize * 4;
                    continue;
                }
                0x54 => {
                    a &= k;
                    continue;
                }
                0x15 => a == k,
                0x45 => a & k != 0,
                0x06 => return k != 0,
                other => panic!("{other}"),
            };
            pc += usize::from(if jump { jt } else { jf });
        }
    }

    fn v4(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 12];
        out.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0]);
        out.extend([192, 168, 1, 11, 9, 9, 9, 9]);
        out.extend(rest);
        out
    }

    fn v6(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 12];
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        out.extend("fd12::11".parse::<Ipv6Addr>().unwrap().octets());
        out.extend("2620:fe::fe".parse::<Ipv6Addr>().unwrap().octets());
        out.extend(rest);
        out
    }

    fn tcp(flags: u8) -> Vec<u8> {
        vec![
            0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0,
        ]
    }

    #[test]
    fn attempts_are_kept_and_streams_are_not() {
        for wrap in [v4, v6] {
            assert!(keeps(&wrap(6, &tcp(0x02))), "SYN");
            assert!(keeps(&wrap(17, &[0; 8])), "UDP");
            for flags in [0x12, 0x10, 0x18, 0x04, 0x11] {
                assert!(!keeps(&wrap(6, &tcp(flags))), "{flags:x}");
            }
        }
        let mut options = v4(6, &[]);
        options[14] = 0x46;
        options.extend([0; 4]);
        options.extend(tcp(0x02));
        assert!(keeps(&options), "a header with options");
        let mut later = v4(17, &[0; 8]);
        later[21] = 7;
        assert!(!keeps(&later), "a later fragment has no ports");
        assert!(!keeps(&[0; 60]), "not IP");
    }

    #[test]
    fn both_families_are_read() {
        let (kind, src, dst) = parse(&v4(6, &tcp(2))).unwrap();
        assert_eq!(
            (kind, src.to_string(), dst.to_string()),
            (
                SeenKind::TcpSyn,
                "192.168.1.11:4096".to_owned(),
                "9.9.9.9:80".to_owned()
            )
        );
        let (kind, src, dst) = parse(&v6(17, &tcp(0))).unwrap();
        assert_eq!(
            (kind, src.to_string(), dst.to_string()),
            (
                SeenKind::Udp,
                "[fd12::11]:4096".to_owned(),
                "[2620:fe::fe]:80".to_owned()
            )
        );
        assert_eq!(parse(&v4(1, &[0; 8])), None, "an echo reply");
        assert_eq!(parse(&v4(6, &[0; 3])), None, "cut off");
    }
}
