//! Plays the gate for as long as a box is made: it refuses the one dial that
//! is made to see that it does.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bailey_model::link;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::TUN_HEADER;

const IPV4_HEADER: usize = 20;
const TCP: u8 = 6;
const RST_ACK: u8 = 0x14;

/// A gate that reads until the dial has come, or until it is dropped.
pub(super) struct Gate {
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Gate {
    pub(super) fn start(tun: &File) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (told, mut tun) = (Arc::clone(&over), tun.try_clone().unwrap());
        let reader = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let mut polled = [PollFd::new(tun.as_fd(), PollFlags::POLLIN)];
                if poll(&mut polled, PollTimeout::from(5_u16)).unwrap() == 0 {
                    continue;
                }
                let mut packet = [0_u8; 2048];
                // Its box is gone.
                let Ok(count) = tun.read(&mut packet) else {
                    return;
                };
                if let Some(answer) = refusal(&packet[TUN_HEADER..count]) {
                    tun.write_all(&[vec![0; TUN_HEADER], answer].concat())
                        .unwrap();
                    return;
                }
            }
        });
        Self {
            over,
            reader: Some(reader),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

/// The reset of a SYN to the gate's probed port.
fn refusal(packet: &[u8]) -> Option<Vec<u8>> {
    let dialled = packet.len() >= IPV4_HEADER + 20
        && packet[0] == 0x45
        && packet[9] == TCP
        && packet[16..20] == link::GATE_V4.octets()
        && packet[22..24] == link::PROBE_PORT.to_be_bytes();
    if !dialled {
        return None;
    }
    let (from, to) = (&packet[12..16], &packet[16..20]);
    let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
    let mut tcp = [&packet[22..24], &packet[20..22]].concat();
    tcp.extend([0; 4]);
    tcp.extend((sequence + 1).to_be_bytes());
    tcp.extend([0x50, RST_ACK, 0, 0, 0, 0, 0, 0]);
    let pseudo = [to, from, &[0, TCP, 0, 20], tcp.as_slice()].concat();
    tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0];
    ip.extend([to, from].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some([ip, tcp].concat())
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    !u16::try_from((sum >> 16) + (sum & 0xffff)).unwrap()
}
