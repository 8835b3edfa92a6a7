//! One exchange with one resolver, from a socket of its own: the kernel picks a
//! fresh random port for each, and a connected socket takes no other's answer. One
//! with a group is connected to nobody: who answers is known by his address.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_model::Transport;
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, SockType, SockaddrStorage, connect, getsockopt, recv, recvfrom, send, sendto,
    setsockopt, sockopt,
};

use crate::stream;

/// Longest message (RFC 1035 §4.2.2).
const MAX_MESSAGE: usize = 65535;

/// One exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    fd: OwnedFd,
    over: Transport,
    server: SocketAddr,
    /// What is not sent yet, framed for TCP.
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    /// A whole message came over TCP.
    answered: bool,
}

/// What an event of the socket led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    /// With whom it is from.
    Message(SocketAddr, Vec<u8>),
    Failed,
}

impl Exchange {
    pub(crate) fn start(
        server: SocketAddr,
        over: Transport,
        bytes: Vec<u8>,
    ) -> Result<Self, Errno> {
        let (kind, outbox) = match over {
            Transport::Udp => (SockType::Datagram, bytes),
            Transport::Tcp => {
                let len = u16::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE)?;
                let mut framed = len.to_be_bytes().to_vec();
                framed.extend(bytes);
                (SockType::Stream, framed)
            }
        };
        let fd = stream::make(server, kind)?;
        if over == Transport::Udp {
            // That a host cannot be reached is else kept from a datagram socket
            // (ip(7), IP_RECVERR), and a dead resolver would be waited for.
            match server {
                SocketAddr::V4(_) => setsockopt(&fd, sockopt::Ipv4RecvErr, &true)?,
                SocketAddr::V6(_) => setsockopt(&fd, sockopt::Ipv6RecvErr, &true)?,
            }
        }
        if server.ip().is_multicast() {
            let to = SockaddrStorage::from(server);
            sendto(fd.as_raw_fd(), &outbox, &to, MsgFlags::MSG_NOSIGNAL)?;
            return Ok(Self {
                fd,
                over,
                server,
                outbox: Vec::new(),
                inbox: Vec::new(),
                answered: false,
            });
        }
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(server)) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut exchange = Self {
            fd,
            over,
            server,
            outbox,
            inbox: Vec::new(),
            answered: false,
        };
        if over == Transport::Udp {
            exchange.write()?;
        }
        Ok(exchange)
    }

    /// Goes on as far as the socket lets it.
    pub(crate) fn advance(&mut self) -> Progress {
        if !matches!(getsockopt(&self.fd, sockopt::SocketError), Ok(0)) {
            return Progress::Failed;
        }
        match self.write() {
            Ok(()) | Err(Errno::EAGAIN | Errno::ENOTCONN) => {}
            Err(_) => return Progress::Failed,
        }
        self.read()
    }

    fn write(&mut self) -> Result<(), Errno> {
        while !self.outbox.is_empty() {
            let count = send(self.fd.as_raw_fd(), &self.outbox, MsgFlags::MSG_NOSIGNAL)?;
            self.outbox.drain(..count);
        }
        Ok(())
    }

    fn read(&mut self) -> Progress {
        // One question has one answer. Who sends another, or what is none of it,
        // is not read on: it may never end.
        if self.answered {
            return Progress::Failed;
        }
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            match (self.receive(&mut buffer), self.over) {
                (Ok((from, len)), Transport::Udp) => {
                    buffer.truncate(len);
                    return Progress::Message(from, buffer);
                }
                (Ok((_, 0)), Transport::Tcp) => return Progress::Failed,
                (Ok((_, len)), Transport::Tcp) => {
                    self.inbox
                        .extend_from_slice(buffer.get(..len).unwrap_or_default());
                    if let Some((&[hi, lo], rest)) = self.inbox.split_first_chunk()
                        && let Some(message) = rest.get(..u16::from_be_bytes([hi, lo]).into())
                    {
                        self.answered = true;
                        return Progress::Message(self.server, message.to_vec());
                    }
                }
                (Err(Errno::EAGAIN | Errno::ENOTCONN), _) => return Progress::Waiting,
                (Err(Errno::EINTR), _) => {}
                (Err(_), _) => return Progress::Failed,
            }
        }
    }
}

impl Exchange {
    fn receive(&self, buffer: &mut [u8]) -> Result<(SocketAddr, usize), Errno> {
        let fd = self.fd.as_raw_fd();
        if !self.server.ip().is_multicast() {
            let len = recv(fd, buffer, MsgFlags::empty())?;
            return Ok((self.server, len));
        }
        let (len, from) = recvfrom::<SockaddrStorage>(fd, buffer)?;
        let from = from.ok_or(Errno::EAFNOSUPPORT)?;
        Ok((stream::to_std(from)?, len))
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
