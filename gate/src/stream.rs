//! TCP sockets outside: dialled by number, never waited for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_gate_proto::{DialFault, Dialled, HostStream, StreamIo};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, SockaddrStorage, connect, getpeername,
    getsockname, getsockopt, recv, send, setsockopt, shutdown, socket, sockopt,
};

/// A TCP socket, connected or on its way.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    pub(crate) connecting: bool,
    /// The far end was seen to have closed, of which no further event tells.
    pub(crate) hung_up: bool,
    drained: bool,
}

impl Stream {
    /// Starts a dial.
    pub(crate) fn dial(dst: SocketAddr) -> Result<Self, Errno> {
        let fd = make(dst, SockType::Stream)?;
        shape(&fd)?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(dst)) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(Self {
                fd,
                connecting: true,
                hung_up: false,
                drained: false,
            }),
            Err(errno) => Err(errno),
        }
    }

    /// One that came by a published port.
    pub(crate) fn accepted(fd: OwnedFd) -> Result<Self, Errno> {
        shape(&fd)?;
        Ok(Self {
            fd,
            connecting: false,
            hung_up: false,
            drained: false,
        })
    }

    /// The far end.
    pub(crate) fn peer(&self) -> Result<SocketAddr, Errno> {
        peer(&self.fd)
    }

    /// What came of the dial; `None` while it goes on.
    pub(crate) fn outcome(&mut self) -> Option<Result<Dialled, Errno>> {
        match getsockopt(&self.fd, sockopt::SocketError) {
            Ok(0) => {}
            Ok(errno) => return Some(Err(Errno::from_raw(errno))),
            Err(errno) => return Some(Err(errno)),
        }
        match (address(&self.fd), peer(&self.fd)) {
            (Ok(local), Ok(peer)) => {
                self.connecting = false;
                Some(Ok(Dialled { local, peer }))
            }
            (_, Err(Errno::ENOTCONN)) => None,
            (Err(errno), _) | (_, Err(errno)) => Some(Err(errno)),
        }
    }

    /// Closes it with a reset (socket(7), `SO_LINGER`).
    pub(crate) fn reset(self) {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // A socket that cannot be told so is closed all the same.
        let _ = setsockopt(&self.fd, sockopt::Linger, &linger);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl HostStream for Stream {
    fn read(&mut self, into: &mut [u8]) -> StreamIo {
        loop {
            match recv(self.fd.as_raw_fd(), into, MsgFlags::empty()) {
                Ok(0) => return StreamIo::Ended,
                // Less than there was room for was all there was (epoll(7)).
                Ok(count) => {
                    self.drained = count < into.len() && !self.hung_up;
                    return StreamIo::Moved(count);
                }
                Err(Errno::EAGAIN) => return StreamIo::Blocked,
                Err(Errno::EINTR) => {}
                Err(_) => return StreamIo::Broken,
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn write(&mut self, from: &[u8]) -> StreamIo {
        loop {
            match send(self.fd.as_raw_fd(), from, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => return StreamIo::Moved(count),
                Err(Errno::EAGAIN) => return StreamIo::Blocked,
                Err(Errno::EINTR) => {}
                Err(_) => return StreamIo::Broken,
            }
        }
    }

    fn finish(&mut self) {
        // On a connection that is broken already, reading finds out.
        let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Write);
    }
}

/// Seconds of silence after which a far end is asked whether it is there.
const KEEP_IDLE: u32 = 300;
/// Seconds between two askings.
const KEEP_INTERVAL: u32 = 30;
/// Askings without an answer after which it is not.
const KEEP_COUNT: u32 = 4;

/// What holds for every TCP socket outside.
fn shape(fd: &OwnedFd) -> Result<(), Errno> {
    setsockopt(fd, sockopt::TcpNoDelay, &true)?;
    // A far end that vanished is noticed in minutes: the box's own probes end at
    // the gate.
    setsockopt(fd, sockopt::KeepAlive, &true)?;
    setsockopt(fd, sockopt::TcpKeepIdle, &KEEP_IDLE)?;
    setsockopt(fd, sockopt::TcpKeepInterval, &KEEP_INTERVAL)?;
    setsockopt(fd, sockopt::TcpKeepCount, &KEEP_COUNT)?;
    // smoltcp does the same on the box's side: urgent bytes stay in place.
    setsockopt(fd, sockopt::OobInline, &true)
}

/// A non-blocking socket of the address's family, and of that one only.
pub(crate) fn make(dst: SocketAddr, kind: SockType) -> Result<OwnedFd, Errno> {
    let family = if dst.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let fd = socket(
        family,
        kind,
        SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    if dst.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    Ok(fd)
}

pub(crate) fn address(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    to_std(getsockname::<SockaddrStorage>(fd.as_raw_fd())?)
}

fn peer(fd: &OwnedFd) -> Result<SocketAddr, Errno> {
    to_std(getpeername::<SockaddrStorage>(fd.as_raw_fd())?)
}

pub(crate) fn to_std(address: SockaddrStorage) -> Result<SocketAddr, Errno> {
    let v4 = address
        .as_sockaddr_in()
        .map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    let v6 = address
        .as_sockaddr_in6()
        .map(|v6| SocketAddr::new(v6.ip().into(), v6.port()));
    v4.or(v6).ok_or(Errno::EAFNOSUPPORT)
}

/// A failed dial in the gate's words.
pub(crate) fn fault(errno: Errno) -> DialFault {
    match errno {
        Errno::ECONNREFUSED | Errno::ECONNRESET => DialFault::Refused,
        Errno::ENETUNREACH | Errno::ENETDOWN => DialFault::NetworkUnreachable,
        Errno::ETIMEDOUT => DialFault::TimedOut,
        Errno::EMFILE
        | Errno::ENFILE
        | Errno::ENOBUFS
        | Errno::ENOMEM
        | Errno::EADDRNOTAVAIL
        | Errno::EAGAIN => DialFault::NoSocket,
        _ => DialFault::HostUnreachable,
    }
}

/// Whether two errors of a read or write mean "not now".
pub(crate) fn is_blocked(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
