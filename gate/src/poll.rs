//! epoll(7) with tokens that say what a descriptor is.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use bailey_gate_proto::{ExchangeId, UdpPort};
use bailey_model::FlowId;

/// Most events taken at once.
const BATCH: usize = 256;

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Channel,
    Tun,
    Netlink,
    Tcp(FlowId),
    Udp(UdpPort),
    Upstream(ExchangeId),
    /// A published port, by its place.
    Listener(u64),
    Ping(FlowId),
}

/// Numbers of flows, ports and exchanges count up from 1 and stay far below.
const KIND: u32 = 56;

impl Token {
    fn pack(self) -> u64 {
        let (kind, number) = match self {
            Self::Channel => (0, 0),
            Self::Tun => (1, 0),
            Self::Netlink => (2, 0),
            Self::Tcp(FlowId(number)) => (3, number),
            Self::Udp(UdpPort(number)) => (4, number),
            Self::Upstream(ExchangeId(number)) => (5, number),
            Self::Listener(place) => (6, place),
            Self::Ping(FlowId(number)) => (7, number),
        };
        (kind << KIND) | number
    }

    fn unpack(packed: u64) -> Self {
        let number = packed & ((1 << KIND) - 1);
        match packed >> KIND {
            0 => Self::Channel,
            1 => Self::Tun,
            2 => Self::Netlink,
            3 => Self::Tcp(FlowId(number)),
            4 => Self::Udp(UdpPort(number)),
            5 => Self::Upstream(ExchangeId(number)),
            6 => Self::Listener(number),
            _ => Self::Ping(FlowId(number)),
        }
    }
}

/// What happened to a descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) error: bool,
    /// The far end closed its direction.
    pub(crate) hung_up: bool,
}

/// How a descriptor is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Both directions, told once each time it becomes ready.
    Edges,
    /// While it can be read.
    Readable,
}

#[derive(Debug)]
pub(crate) struct Poll {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self {
            epoll,
            events: vec![EpollEvent::empty(); BATCH],
        })
    }

    /// Watches a descriptor until it is closed.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token, watch: Watch) -> io::Result<()> {
        let flags = match watch {
            Watch::Edges => {
                EpollFlags::EPOLLIN
                    | EpollFlags::EPOLLOUT
                    | EpollFlags::EPOLLRDHUP
                    | EpollFlags::EPOLLET
            }
            Watch::Readable => EpollFlags::EPOLLIN,
        };
        Ok(self.epoll.add(fd, EpollEvent::new(flags, token.pack()))?)
    }

    /// Waits for at most `limit`; rounded up to milliseconds.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<Vec<Event>> {
        let timeout = match limit {
            None => EpollTimeout::NONE,
            Some(limit) => {
                let ms = limit.as_nanos().div_ceil(1_000_000);
                let ms = i32::try_from(ms).unwrap_or(i32::MAX);
                EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::ZERO)
            }
        };
        let count = match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let events = self.events.get(..count).unwrap_or_default();
        Ok(events.iter().map(read_event).collect())
    }
}

fn read_event(event: &EpollEvent) -> Event {
    let flags = event.events();
    let error = flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP);
    Event {
        token: Token::unpack(event.data()),
        readable: error || flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP),
        writable: error || flags.contains(EpollFlags::EPOLLOUT),
        error,
        hung_up: error || flags.contains(EpollFlags::EPOLLRDHUP),
    }
}
