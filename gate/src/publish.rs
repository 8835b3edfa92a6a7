//! Sockets of published ports: opened by the node before the gate was there,
//! so that no call of its own can listen.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_model::Publish;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{MsgFlags, SockFlag, SockaddrStorage, accept4, recvfrom, sendto};

use crate::poll::{Poll, Token, Watch};
use crate::stream::{self, Stream};

/// Connections taken from one port before others have their turn.
pub(crate) const ACCEPT_BATCH: usize = 64;

/// One listening socket, or for datagrams one that is bound.
#[derive(Debug)]
struct Listener {
    fd: OwnedFd,
    publish: Publish,
}

/// All of them; a token names one by its place.
#[derive(Debug)]
pub(crate) struct Published {
    listeners: Vec<Listener>,
    /// Given up for a moment to take a connection, and reset it, when there is
    /// no descriptor left: it would wait for ever otherwise, and the loop never.
    reserve: Option<OwnedFd>,
}

/// Who came.
#[derive(Debug)]
pub(crate) enum Came {
    /// By this port, from there.
    Accepted(Publish, SocketAddr, Stream),
    /// The same, and there is no descriptor for it: it is reset already.
    NoRoom(Publish, SocketAddr),
    /// Somebody who has gone again.
    Left,
}

impl Published {
    /// Watches the sockets; `published` says what each is for.
    pub(crate) fn new(
        published: &[Publish],
        fds: impl IntoIterator<Item = OwnedFd>,
        poll: &Poll,
    ) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for (place, (fd, &publish)) in (0..).zip(fds.into_iter().zip(published)) {
            let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
            fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
            poll.add(&fd, Token::Listener(place), Watch::Readable)?;
            listeners.push(Listener { fd, publish });
        }
        let mut this = Self {
            listeners,
            reserve: None,
        };
        this.keep_reserve();
        Ok(this)
    }

    /// What the socket at a place is for.
    pub(crate) fn at(&self, place: u64) -> Option<Publish> {
        let place = usize::try_from(place).ok()?;
        Some(self.listeners.get(place)?.publish)
    }

    /// Reads one datagram, and who sent it; `None` if there is none now.
    pub(crate) fn receive<'b>(
        &self,
        place: u64,
        buffer: &'b mut [u8],
    ) -> Option<(SocketAddr, &'b [u8])> {
        let place = usize::try_from(place).ok()?;
        let fd = self.listeners.get(place)?.fd.as_raw_fd();
        loop {
            match recvfrom::<SockaddrStorage>(fd, buffer) {
                Ok((len, from)) => {
                    let client = stream::to_std(from?).ok()?;
                    return Some((client, buffer.get(..len)?));
                }
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a client the box's answer. One that cannot be sent is lost, as on
    /// any wire.
    pub(crate) fn answer(&self, place: u64, client: SocketAddr, data: &[u8]) {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(listener) = self.listeners.get(place) {
            let (fd, to) = (listener.fd.as_raw_fd(), SockaddrStorage::from(client));
            let _lost = sendto(fd, data, &to, MsgFlags::MSG_NOSIGNAL);
        }
    }

    /// Takes one connection; `None` if nobody is there now.
    pub(crate) fn accept(&mut self, place: u64) -> Option<Came> {
        let place = usize::try_from(place).ok()?;
        let listener = self.listeners.get(place)?;
        let publish = listener.publish;
        match accept(listener.fd.as_fd()) {
            Ok((stream, client)) => Some(Came::Accepted(publish, client, stream)),
            Err(Errno::EMFILE | Errno::ENFILE) => {
                // Without one to give up it is not tried again at once.
                self.reserve.take()?;
                let taken = accept(self.listeners.get(place)?.fd.as_fd());
                let came = taken.ok().map(|(stream, client)| {
                    stream.reset();
                    Came::NoRoom(publish, client)
                });
                self.keep_reserve();
                came
            }
            // The queue's next one was reset while it waited (accept(2)).
            Err(Errno::ECONNABORTED | Errno::EINTR | Errno::ENOTCONN) => Some(Came::Left),
            Err(_) => None,
        }
    }

    fn keep_reserve(&mut self) {
        if let Some(listener) = self.listeners.first() {
            self.reserve = listener.fd.try_clone().ok();
        }
    }

    /// Closes them all: whoever comes now is refused by the kernel.
    pub(crate) fn close(&mut self) {
        self.listeners.clear();
        self.reserve = None;
    }
}

fn accept(listener: BorrowedFd<'_>) -> Result<(Stream, SocketAddr), Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = Stream::accepted(accept4(listener, flags)?)?;
    let client = stream.peer()?;
    Ok((stream, client))
}
