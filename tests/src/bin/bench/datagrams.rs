//! What the datagram roles say to each other, and the roles themselves.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::number;

/// Octets of a datagram of a flood: one packet of an ordinary path.
const FLOOD_SIZE: usize = 1400;
/// Frames a second of the call.
const FRAMES: u32 = 30;
/// Packets of a frame: 30 times 9 times 1157 octets are 2.5 Mbit/s.
const PER_FRAME: u32 = 9;
/// Octets of a packet of the call.
const CALL_SIZE: usize = 1157;
/// How long after the last packet the answers are waited for.
const LATE: Duration = Duration::from_millis(500);
/// Datagrams a socket holds, in octets, as far as the kernel lets it.
const BUFFER: usize = 4 << 20;

/// A datagram's first octet and what follows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Word {
    /// To be counted.
    Counted { run: u32 },
    /// How many were there?
    HowMany { run: u32 },
    /// Send that many Mbit/s for so long.
    Send { run: u32, mbit: u32, millis: u32 },
    /// To be sent back.
    Echo,
}

impl Word {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let word = |at: usize| -> Option<u32> {
            let bytes = rest.get(at * 4..at * 4 + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        match kind {
            b'd' => Some(Self::Counted { run: word(0)? }),
            b'q' => Some(Self::HowMany { run: word(0)? }),
            b's' => Some(Self::Send {
                run: word(0)?,
                mbit: word(1)?,
                millis: word(2)?,
            }),
            b'e' => Some(Self::Echo),
            _ => None,
        }
    }
}

fn words(kind: u8, all: &[u32]) -> Vec<u8> {
    let words = all.iter().flat_map(|word| word.to_be_bytes());
    std::iter::once(kind).chain(words).collect()
}

pub(crate) fn counted(run: u32) -> Vec<u8> {
    let mut bytes = words(b'd', &[run]);
    bytes.resize(FLOOD_SIZE, 0);
    bytes
}

/// The answer to [`Word::HowMany`].
pub(crate) fn many(run: u32, count: u64) -> Vec<u8> {
    let mut bytes = words(b'n', &[run]);
    bytes.extend_from_slice(&count.to_be_bytes());
    bytes
}

/// Sends at a rate for a time; how many.
pub(crate) fn pace(start: Instant, length: Duration, mbit: u32, mut send: impl FnMut()) -> u64 {
    let per_second = f64::from(mbit) * 1e6 / 8.0 / 1400.0;
    let mut sent = 0_u32;
    while start.elapsed() < length {
        let due = start.elapsed().as_secs_f64() * per_second;
        while f64::from(sent) < due {
            send();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(1));
    }
    u64::from(sent)
}

fn socket(to: &str) -> io::Result<UdpSocket> {
    let to: SocketAddr = number(to)?;
    let any = match to.is_ipv4() {
        true => "0.0.0.0:0",
        false => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    widen(&socket);
    socket.connect(to)?;
    Ok(socket)
}

/// As much room as the kernel gives: what is measured is the way, not the reader.
pub(crate) fn widen(socket: &UdpSocket) {
    let _less = nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::RcvBuf, &BUFFER);
}

/// A number that no other run of this table has.
fn run_number() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    std::process::id().rotate_left(20) ^ now.map_or(0, |now| now.subsec_nanos())
}

/// Asks how many datagrams of a run the server has counted.
fn ask(socket: &UdpSocket, run: u32) -> io::Result<u64> {
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut buffer = [0; 2048];
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let _lost = socket.send(&words(b'q', &[run]));
        let Ok(len) = socket.recv(&mut buffer) else {
            continue;
        };
        let said = buffer.get(..len).unwrap_or_default();
        if let Some((b'n', rest)) = said.split_first()
            && rest.first_chunk() == Some(&run.to_be_bytes())
            && let Some(count) = rest.get(4..12).and_then(|count| count.try_into().ok())
        {
            return Ok(u64::from_be_bytes(count));
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn lost(sent: u64, came: u64) -> String {
    let part = |count: u64| u32::try_from(count).map_or(f64::MAX, f64::from);
    format!(
        "{}",
        100.0 - 100.0 * part(came.min(sent)) / part(sent.max(1))
    )
}

/// Per cent lost of a flood to the server.
pub(crate) fn flood_out(to: &str, mbit: &str, millis: &str) -> io::Result<String> {
    let (socket, run) = (socket(to)?, run_number());
    // A flow's first datagrams wait for its entry: not what is measured.
    ask(&socket, run)?;
    let packet = counted(run);
    let length = Duration::from_millis(number(millis)?);
    let sent = pace(Instant::now(), length, number(mbit)?, || {
        let _lost = socket.send(&packet);
    });
    thread::sleep(LATE);
    Ok(lost(sent, ask(&socket, run)?))
}

/// Per cent lost of a flood from the server.
pub(crate) fn flood_in(from: &str, mbit: &str, millis: &str) -> io::Result<String> {
    let (socket, run) = (socket(from)?, run_number());
    ask(&socket, run)?;
    socket.set_read_timeout(Some(LATE * 4))?;
    socket.send(&words(b's', &[run, number(mbit)?, number(millis)?]))?;
    let (mut came, mut buffer) = (0, [0; 2048]);
    while let Ok(len) = socket.recv(&mut buffer) {
        if matches!(Word::read(buffer.get(..len).unwrap_or_default()), Some(Word::Counted { run: of }) if of == run)
        {
            came += 1;
        }
    }
    Ok(lost(ask(&socket, run)?, came))
}

/// A call through a server that sends back what comes. Prints the median round
/// trip of a fifth of the time in milliseconds, then p99 of the rest, with a
/// download beside it, the per cent lost, and the download's Gbit/s.
pub(crate) fn call(to: &str, source: &str, millis: &str) -> io::Result<String> {
    let length = Duration::from_millis(number(millis)?);
    let socket = socket(to)?;
    let alone = talk(&socket, length / 5)?;
    let (rest, source) = (length * 4 / 5, source.to_owned());
    let beside = thread::spawn(move || {
        let millis = rest.as_millis().to_string();
        crate::client::receive(&source, &millis, "1", "0")
    });
    let with = talk(&socket, rest)?;
    let rate = beside
        .join()
        .map_err(|_| io::Error::other("a thread broke"))??;
    let rate = rate
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned();
    let (median, p99) = (alone.at(500), with.at(990));
    let missing = lost(alone.sent + with.sent, alone.came() + with.came());
    Ok(format!("{median} {p99} {missing} {rate}"))
}

struct Talked {
    sent: u64,
    millis: Vec<f64>,
}

impl Talked {
    fn came(&self) -> u64 {
        u64::try_from(self.millis.len()).unwrap_or(u64::MAX)
    }

    fn at(&self, thousandths: usize) -> f64 {
        crate::client::quantile(&self.millis, thousandths)
    }
}

/// Sends frames, as a camera does, and takes what comes back.
fn talk(socket: &UdpSocket, length: Duration) -> io::Result<Talked> {
    let start = Instant::now();
    let hears = socket.try_clone()?;
    hears.set_read_timeout(Some(LATE))?;
    let hearing = thread::spawn(move || {
        let (mut millis, mut buffer) = (Vec::new(), [0; 2048]);
        while let Ok(len) = hears.recv(&mut buffer) {
            let said = buffer.get(1..len).unwrap_or_default();
            let Some(at) = said.first_chunk().map(|at| u64::from_be_bytes(*at)) else {
                continue;
            };
            let took = start.elapsed().saturating_sub(Duration::from_nanos(at));
            millis.push(took.as_secs_f64() * 1e3);
        }
        millis
    });
    let (mut sent, mut frame) = (0, 0);
    while start.elapsed() < length {
        for _ in 0..PER_FRAME {
            let at = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let mut packet = vec![b'e'];
            packet.extend_from_slice(&at.to_be_bytes());
            packet.resize(CALL_SIZE, 0);
            socket.send(&packet)?;
            sent += 1;
        }
        frame += 1;
        let next = Duration::from_secs(1) * frame / FRAMES;
        thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let millis = hearing
        .join()
        .map_err(|_| io::Error::other("a thread broke"))?;
    Ok(Talked { sent, millis })
}
