//! One exchange with one resolver, from a socket of its own: the kernel picks a
//! fresh random port for each, and a connected socket takes no other's answer.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_model::Transport;
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, SockType, SockaddrStorage, connect, getsockopt, recv, send, setsockopt, sockopt,
};

use crate::stream;

/// Longest message (RFC 1035 §4.2.2).
const MAX_MESSAGE: usize = 65535;

/// One exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    fd: OwnedFd,
    over: Transport,
    pub(crate) server: SocketAddr,
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
    Message(Vec<u8>),
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
            match (
                recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()),
                self.over,
            ) {
                (Ok(len), Transport::Udp) => {
                    buffer.truncate(len);
                    return Progress::Message(buffer);
                }
                (Ok(0), Transport::Tcp) => return Progress::Failed,
                (Ok(len), Transport::Tcp) => {
                    self.inbox
                        .extend_from_slice(buffer.get(..len).unwrap_or_default());
                    if let Some((&[hi, lo], rest)) = self.inbox.split_first_chunk()
                        && let Some(message) = rest.get(..u16::from_be_bytes([hi, lo]).into())
                    {
                        self.answered = true;
                        return Progress::Message(message.to_vec());
                    }
                }
                (Err(Errno::EAGAIN | Errno::ENOTCONN), _) => return Progress::Waiting,
                (Err(Errno::EINTR), _) => {}
                (Err(_), _) => return Progress::Failed,
            }
        }
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
