//! The servers behind the router's addresses: small, threaded, bounded.

mod certificate;
mod dns;
mod http;
mod plain;
mod stun;
mod tls;
mod witness;
mod zone;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::at::{self, port};
use crate::control::{Failure, Step as _};
pub(crate) use tls::CERTIFICATE;
pub(crate) use zone::Record;
use zone::Zone;

/// Names of the logs in the world's folder.
pub(crate) const WITNESS_LOG: &str = "witness.log";
pub(crate) const NAMES_LOG: &str = "names.log";

/// Connections served at once, over all servers: each is a thread.
const MAX_CONNECTIONS: usize = 4096;

/// Stack of a connection's thread in bytes: a copy buffer and little else.
const STACK: usize = 256 << 10;

/// A connection that says nothing for this long is closed.
const SILENCE: Duration = Duration::from_mins(1);

/// Bytes copied at once.
const CHUNK: usize = 64 << 10;

/// The running servers.
pub(crate) struct Servers {
    zone: Arc<Zone>,
}

impl Servers {
    /// Starts all of them; each listens when this returns.
    pub(crate) fn start(dir: &Path, ipv6: bool, nodes: u8) -> Result<Self, Failure> {
        witness::start(
            Log::create(&dir.join(WITNESS_LOG)).step("make the witness's log")?,
            nodes,
        )?;
        let zone = Arc::new(Zone::new());
        let names = Arc::new(Log::create(&dir.join(NAMES_LOG)).step("make the names' log")?);
        start_tcp(dir, &zone, &names, ipv6)?;
        start_udp(&zone, &names, ipv6)?;
        Ok(Self { zone })
    }

    /// Replaces what a name answers; no records: it no longer exists.
    pub(crate) fn set_name(&self, name: &str, records: Vec<Record>) {
        self.zone.set(name, records);
    }
}

fn start_tcp(dir: &Path, zone: &Arc<Zone>, names: &Arc<Log>, ipv6: bool) -> Result<(), Failure> {
    let any = if ipv6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let printer = IpAddr::V4(at::PRINTER_V4);
    tcp(SocketAddr::new(any, port::HTTP), http::serve)?;
    for port in port::PRINTER {
        tcp(SocketAddr::new(printer, port), http::serve)?;
    }
    tcp(SocketAddr::new(any, port::ECHO), plain::echo)?;
    tcp(SocketAddr::new(any, port::DISCARD), plain::discard)?;
    tcp(SocketAddr::new(any, port::SOURCE), plain::source)?;
    let config = tls::config(dir)?;
    for port in [port::TLS, port::DOT] {
        let config = Arc::clone(&config);
        tcp(SocketAddr::new(any, port), move |stream| {
            tls::serve(stream, &config)
        })?;
    }
    let (zone, names) = (Arc::clone(zone), Arc::clone(names));
    tcp(SocketAddr::new(any, port::DNS), move |stream| {
        dns::serve_tcp(stream, &zone, &names)
    })
}

/// One socket an address: an answer must come from the address asked.
fn start_udp(zone: &Arc<Zone>, names: &Arc<Log>, ipv6: bool) -> Result<(), Failure> {
    for address in at::served(ipv6) {
        udp(
            SocketAddr::new(address, port::ECHO),
            |socket, bytes, from| {
                let _full = socket.send_to(bytes, from);
            },
        )?;
        let (zone, names) = (Arc::clone(zone), Arc::clone(names));
        udp(
            SocketAddr::new(address, port::DNS),
            move |socket, bytes, from| {
                dns::serve_udp(socket, bytes, from, &zone, &names);
            },
        )?;
        udp(SocketAddr::new(address, port::STUN), stun::serve)?;
    }
    Ok(())
}

/// Serves every connection to an address in a thread of its own.
fn tcp(
    address: SocketAddr,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> Result<(), Failure> {
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    let step = format!("listen on tcp {address}");
    let listener = TcpListener::bind(address).step(&step)?;
    let serve = Arc::new(serve);
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors: wait for one to be free.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            if OPEN.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                OPEN.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let serve = Arc::clone(&serve);
            let spawned = thread::Builder::new().stack_size(STACK).spawn(move || {
                // A peer that leaves or says nonsense ends its own connection.
                let _left = prepare(&stream).and_then(|()| serve(stream));
                OPEN.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                OPEN.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(accept)
        .step(&step)?;
    Ok(())
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))
}

/// Serves every datagram to an address, one after the other.
fn udp(
    address: SocketAddr,
    serve: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
) -> Result<(), Failure> {
    let step = format!("listen on udp {address}");
    let socket = UdpSocket::bind(address).step(&step)?;
    let receive = move || {
        let mut buffer = vec![0_u8; usize::from(u16::MAX)];
        loop {
            // An error here is what ICMP said about an earlier answer.
            let Ok((count, from)) = socket.recv_from(&mut buffer) else {
                continue;
            };
            serve(&socket, buffer.get(..count).unwrap_or_default(), from);
        }
    };
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(receive)
        .step(&step)?;
    Ok(())
}

/// A file of lines, each written whole.
pub(crate) struct Log(Mutex<File>);

impl Log {
    fn create(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(|file| Self(Mutex::new(file)))
    }

    fn write(&self, line: &str) {
        let mut file = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // A full disk loses a line of a test's log, never an answer.
        let _full = file.write_all(line.as_bytes());
    }
}
