//! Ping sockets (icmp(7)): one for each echo flow, connected, with the flow's
//! errors in its error queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use bailey_gate_proto::{Echo, EchoError, EchoFault};
use bailey_model::FlowId;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, connect, recvfrom, recvmsg, send, setsockopt, socket, sockopt,
};

use crate::poll::{Poll, Token, Watch};
use crate::{stream, sys};

/// Type, code, checksum, identifier and sequence number.
const HEADER: usize = 8;
/// What a socket sends with before it is told otherwise: nothing is assumed.
const UNSET: u8 = 0;

/// One ping socket, and what it was last told of the packets that it sends.
#[derive(Debug)]
struct Ping {
    fd: OwnedFd,
    to: IpAddr,
    hops: u8,
    whole: Option<bool>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    sockets: HashMap<FlowId, Ping>,
    message: Vec<u8>,
}

/// What was read from a ping socket.
pub(crate) enum Heard<'a> {
    Reply(IpAddr, u16, &'a [u8]),
    Failed(EchoError),
    /// Nothing that an echo flow can use.
    Other,
}

/// A ping socket; none where `ping_group_range` leaves this group out.
fn open(to: IpAddr) -> Result<OwnedFd, Errno> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Datagram, flags, protocol)?;
    match to {
        IpAddr::V4(_) => setsockopt(&fd, sockopt::Ipv4RecvErr, &true)?,
        IpAddr::V6(_) => {
            setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
            setsockopt(&fd, sockopt::Ipv6RecvErr, &true)?;
        }
    }
    Ok(fd)
}

impl Pings {
    /// Whether one can be made now.
    pub(crate) fn allowed(to: IpAddr) -> bool {
        // Any other failure is told when the flow's own socket is made.
        !matches!(open(to), Err(Errno::EACCES | Errno::EPERM))
    }

    pub(crate) fn close(&mut self, flow: FlowId) {
        self.sockets.remove(&flow);
    }

    /// Sends a request from the flow's socket, made here if it is the first.
    pub(crate) fn send(
        &mut self,
        poll: &Poll,
        flow: FlowId,
        to: IpAddr,
        echo: Echo<'_>,
    ) -> Result<Option<SocketAddr>, EchoFault> {
        let mut outer = None;
        let ping = match self.sockets.entry(flow) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => {
                let ping = Ping::connected(to).map_err(fault)?;
                poll.add(&ping.fd, Token::Ping(flow), Watch::Readable)
                    .map_err(|_| EchoFault::NoSocket)?;
                outer = stream::address(&ping.fd).ok();
                place.insert(ping)
            }
        };
        ping.shape(echo).map_err(fault)?;
        // The kernel fills in checksum and identifier.
        let kind = if to.is_ipv4() { 8 } else { 128 };
        let [hi, lo] = echo.seq.to_be_bytes();
        self.message.clear();
        self.message
            .extend_from_slice(&[kind, 0, 0, 0, 0, 0, hi, lo]);
        self.message.extend_from_slice(echo.data);
        let fd = ping.fd.as_raw_fd();
        let mut sent = Err(Errno::EAGAIN);
        // The first tries may only bring errors of earlier requests.
        for _ in 0..3 {
            sent = send(fd, &self.message, MsgFlags::MSG_NOSIGNAL);
            if !matches!(
                sent,
                Err(Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::EPROTO | Errno::EINTR)
            ) {
                break;
            }
        }
        match sent {
            Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Ok(outer),
            Err(Errno::EMSGSIZE) => Err(EchoFault::TooBig(ping.mtu())),
            Err(errno) => Err(fault(errno)),
        }
    }

    /// Reads what came to a flow's socket; `None` if there is nothing now.
    pub(crate) fn read<'b>(&self, flow: FlowId, buffer: &'b mut [u8]) -> Option<Heard<'b>> {
        let ping = self.sockets.get(&flow)?;
        let fd = ping.fd.as_raw_fd();
        loop {
            match recvfrom::<SockaddrStorage>(fd, buffer) {
                Ok((len, from)) => {
                    let from = from.and_then(|from| stream::to_std(from).ok());
                    let (Some(from), Some(message)) = (from, buffer.get(..len)) else {
                        return Some(Heard::Other);
                    };
                    return Some(reply(from.ip(), message));
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // An error of an earlier request; the queue below says which.
                Err(_) => break,
            }
        }
        read_error(fd, ping.to)
    }
}

impl Ping {
    fn connected(to: IpAddr) -> Result<Self, Errno> {
        let fd = open(to)?;
        connect(
            fd.as_raw_fd(),
            &SockaddrStorage::from(SocketAddr::new(to, 0)),
        )?;
        Ok(Self {
            fd,
            to,
            hops: UNSET,
            whole: None,
        })
    }

    /// Tells the socket how the next request is to be sent, where that has changed.
    fn shape(&mut self, echo: Echo<'_>) -> Result<(), Errno> {
        if self.hops != echo.hops {
            let hops = i32::from(echo.hops);
            match self.to {
                IpAddr::V4(_) => setsockopt(&self.fd, sockopt::Ipv4Ttl, &hops)?,
                IpAddr::V6(_) => setsockopt(&self.fd, sockopt::Ipv6Ttl, &hops)?,
            }
            self.hops = echo.hops;
        }
        if self.to.is_ipv4() && self.whole != Some(echo.whole) {
            let discover = if echo.whole {
                libc::IP_PMTUDISC_DO
            } else {
                libc::IP_PMTUDISC_DONT
            };
            sys::set_number(&self.fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, discover)?;
            self.whole = Some(echo.whole);
        }
        Ok(())
    }

    /// What passes in one piece, as the kernel says of a connected socket.
    fn mtu(&self) -> u32 {
        // Whoever asks has just been told that it is less than what was sent.
        const LEAST: u32 = 576;
        let mtu = nix::sys::socket::getsockopt(&self.fd, sockopt::IpMtu);
        mtu.ok()
            .and_then(|mtu| u32::try_from(mtu).ok())
            .unwrap_or(LEAST)
    }
}

fn reply(from: IpAddr, message: &[u8]) -> Heard<'_> {
    let kind = if from.is_ipv4() { 0 } else { 129 };
    match message.split_first_chunk::<HEADER>() {
        Some((header, data)) if (header[0], header[1]) == (kind, 0) => {
            Heard::Reply(from, u16::from_be_bytes([header[6], header[7]]), data)
        }
        _ => Heard::Other,
    }
}

/// Takes one error from a socket's error queue (ip(7), `IP_RECVERR`). What it
/// quotes begins with the request's own ICMP header.
fn read_error(fd: i32, to: IpAddr) -> Option<Heard<'static>> {
    let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let mut quoted = [0; HEADER];
    let mut parts = [io::IoSliceMut::new(&mut quoted)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags).ok()?;
    let read = message.bytes;
    let found = message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::Ipv4RecvErr(error, from) => Some((
            error,
            from.map(|from| IpAddr::from(from.sin_addr.s_addr.to_ne_bytes())),
        )),
        ControlMessageOwned::Ipv6RecvErr(error, from) => {
            Some((error, from.map(|from| IpAddr::from(from.sin6_addr.s6_addr))))
        }
        _ => None,
    });
    let Some((error, from)) = found.filter(|_| read == HEADER) else {
        return Some(Heard::Other);
    };
    // What the host says by itself was the answer to sending.
    let origin = if to.is_ipv4() {
        libc::SO_EE_ORIGIN_ICMP
    } else {
        libc::SO_EE_ORIGIN_ICMP6
    };
    if error.ee_origin != origin {
        return Some(Heard::Other);
    }
    Some(Heard::Failed(EchoError {
        seq: u16::from_be_bytes([quoted[6], quoted[7]]),
        kind: error.ee_type,
        code: error.ee_code,
        mtu: error.ee_info,
        from: from.filter(|from| !from.is_unspecified()),
    }))
}

fn fault(errno: Errno) -> EchoFault {
    match errno {
        Errno::EACCES | Errno::EPERM => EchoFault::NotAllowed,
        Errno::ENETUNREACH | Errno::ENETDOWN => EchoFault::NetworkUnreachable,
        Errno::EMFILE
        | Errno::ENFILE
        | Errno::ENOBUFS
        | Errno::ENOMEM
        | Errno::EAGAIN
        | Errno::EADDRNOTAVAIL => EchoFault::NoSocket,
        _ => EchoFault::HostUnreachable,
    }
}
