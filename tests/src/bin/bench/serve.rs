//! The servers: streams, single bytes, datagrams, connections that stay open.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{CHUNK, number, raise_files};
use crate::datagrams::{self, Word};

/// Threads that accept where a connection is over after one byte.
const TICKERS: usize = 4;
/// Longest that one of them waits for that byte.
const TICK: Duration = Duration::from_secs(2);

/// Serves at an address of this machine until its input ends; says the ports
/// first, as JSON.
pub(crate) fn serve(at: &str) -> io::Result<String> {
    let at: IpAddr = number(at)?;
    raise_files();
    let bind = || TcpListener::bind((at, 0));
    let (discard, source, tick, echo, hold) = (bind()?, bind()?, bind()?, bind()?, bind()?);
    let udp = UdpSocket::bind((at, 0))?;
    datagrams::widen(&udp);
    println!(
        "{}",
        serde_json::json!({
            "discard": discard.local_addr()?.port(),
            "source": source.local_addr()?.port(),
            "tick": tick.local_addr()?.port(),
            "echo": echo.local_addr()?.port(),
            "hold": hold.local_addr()?.port(),
            "udp": udp.local_addr()?.port(),
        })
    );
    accept(discard, take_all);
    accept(source, give_zeros);
    accept(echo, give_back);
    for _ in 0..TICKERS {
        let tick = tick.try_clone()?;
        thread::spawn(move || {
            for stream in tick.incoming().flatten() {
                // One that is left by its client concerns nobody.
                let _left = one_byte(stream);
            }
        });
    }
    thread::spawn(move || {
        // Each is kept as long as this process.
        hold.incoming().flatten().collect::<Vec<_>>()
    });
    thread::spawn(move || count_and_echo(&udp));
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(String::new())
}

/// Serves each connection in a thread of its own. One that is left by its
/// client ends by an error that concerns nobody.
fn accept(listener: TcpListener, serve: fn(TcpStream) -> io::Result<()>) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
}

fn take_all(mut stream: TcpStream) -> io::Result<()> {
    let (mut buffer, mut came) = (vec![0_u8; CHUNK], 0_usize);
    loop {
        match stream.read(&mut buffer)? {
            0 => return writeln!(stream, "{came}"),
            count => came += count,
        }
    }
}

fn give_zeros(mut stream: TcpStream) -> io::Result<()> {
    let buffer = vec![0_u8; CHUNK];
    loop {
        stream.write_all(&buffer)?;
    }
}

fn give_back(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}

/// The server ends it, so the client's side keeps nothing of it.
fn one_byte(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    stream.write_all(&byte)
}

fn count_and_echo(socket: &UdpSocket) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    // How many came, or went, of each run.
    let mut counts: HashMap<u32, u64> = HashMap::new();
    loop {
        // An error is what ICMP said about an earlier answer.
        let Ok((len, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        match Word::read(bytes) {
            Some(Word::Counted { run }) => *counts.entry(run).or_default() += 1,
            Some(Word::HowMany { run }) => {
                let count = counts.get(&run).copied().unwrap_or(0);
                let _lost = socket.send_to(&datagrams::many(run, count), from);
            }
            Some(Word::Send { run, mbit, millis }) => {
                let sent = flood_to(socket, from, run, (mbit, millis));
                counts.insert(run, sent);
            }
            Some(Word::Echo) => {
                let _lost = socket.send_to(bytes, from);
            }
            None => {}
        }
    }
}

fn flood_to(socket: &UdpSocket, to: SocketAddr, run: u32, (mbit, millis): (u32, u32)) -> u64 {
    let length = Duration::from_millis(millis.into());
    let packet = datagrams::counted(run);
    datagrams::pace(Instant::now(), length, mbit, || {
        let _lost = socket.send_to(&packet, to);
    })
}
