//! Word of changes of this machine's links, addresses and routes, and what follows for
//! one connection. QUIC itself would find out by silence, seconds later.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use quinn::Connection;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::time::{Instant, sleep_until};

/// Changes of links, addresses and routes of both families (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Between two looks, however many changes there are.
const EVERY: Duration = Duration::from_millis(20);
/// Messages taken in one go: what is left makes the socket readable again.
const MAX_DRAINED: usize = 256;

/// Hears of changes. Where the kernel gives no such socket it hears of none.
#[derive(Debug)]
pub(crate) struct Links {
    /// A netlink socket in the type that the runtime waits for; nothing of UDP is asked
    /// of it.
    socket: Option<tokio::net::UdpSocket>,
    told: Option<Instant>,
}

impl Links {
    /// Begins to listen, on the current tokio runtime.
    pub(crate) fn watch() -> Self {
        let socket = open().and_then(|fd| tokio::net::UdpSocket::from_std(fd.into()));
        let socket = socket.ok();
        Self { socket, told: None }
    }

    /// Until something changed since it was asked last. May be given up at any time.
    pub(crate) async fn changed(&mut self) {
        let Some(socket) = &self.socket else {
            return pending().await;
        };
        loop {
            if socket.readable().await.is_err() {
                self.socket = None;
                return pending().await;
            }
            if let Some(told) = self.told {
                sleep_until(told + EVERY).await;
            }
            // What it says is not read: whoever asks looks at what there is now.
            match socket.try_io(Interest::READABLE, || drain(socket)) {
                Ok(()) => {
                    self.told = Some(Instant::now());
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.socket = None;
                    return pending().await;
                }
            }
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // The first protocol of netlink(7) is rtnetlink.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}

/// Takes word of changes: `WouldBlock` if there was none. Word that was lost for want of
/// room counts.
fn drain(socket: &tokio::net::UdpSocket) -> io::Result<()> {
    let mut any = false;
    for _ in 0..MAX_DRAINED {
        // What does not fit is cut off by the kernel.
        let mut word = [0_u8; 16];
        match recv(socket, &mut word, RecvFlags::DONTWAIT) {
            Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => any = true,
            Err(rustix::io::Errno::AGAIN) if any => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The address that this machine sends from to another one, if there is a way there.
/// Nothing is sent.
pub(crate) fn source(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// Whether this machine has an address no more.
fn is_gone(ip: IpAddr) -> bool {
    let bound = UdpSocket::bind((ip.to_canonical(), 0));
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Where this end of a connection is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Here {
    /// It was dialled from here: packets leave from what the kernel chooses.
    Chosen(Option<IpAddr>),
    /// The peer dialled this address: packets leave from it, and from no other.
    Fixed(IpAddr),
}

impl Here {
    pub(crate) fn of(connection: &Connection) -> Self {
        match connection.local_ip() {
            Some(ip) => Self::Fixed(ip),
            None => Self::Chosen(source(connection.remote_address())),
        }
    }

    /// Whether a connection to `remote` goes on from here no more, and another one could
    /// be begun now.
    pub(crate) fn has_moved(self, remote: SocketAddr) -> bool {
        let now = source(remote);
        match self {
            Self::Chosen(before) => now.is_some() && now != before,
            Self::Fixed(ip) => now.is_some() && is_gone(ip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_has_is_told_from_what_it_has_not() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(source(at("127.0.0.1:9")), Some(loopback));
        assert_eq!(source(at("[::ffff:127.0.0.1]:9")), Some(loopback));
        // RFC 5737: an address of nobody.
        let nobody: IpAddr = "192.0.2.77".parse().unwrap();
        assert!(!is_gone(loopback) && is_gone(nobody));
        let near = at("127.0.0.1:9");
        assert!(!Here::Chosen(Some(loopback)).has_moved(near));
        assert!(Here::Chosen(Some(nobody)).has_moved(near));
        assert!(!Here::Fixed(loopback).has_moved(near));
        assert!(Here::Fixed(nobody).has_moved(near));
    }
}
