//! The TUN and the UDP sockets outside: where the gate's packets and datagrams go.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_gate_proto::{Echo, EchoFault, Outlet, SendFault, UdpPort, Unfinished};
use bailey_model::FlowId;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockType, SockaddrStorage, recvfrom, recvmsg, sendto,
    setsockopt, sockopt,
};

use crate::capture::Capture;
use crate::ping::Pings;
use crate::poll::{Poll, Token, Watch};
use crate::publish::Published;
use crate::{stream, sys};

/// Datagrams that a port's socket holds while the gate is busy, in bytes; the
/// kernel may hold fewer (net.core.rmem_max).
const RECEIVE_BUFFER: usize = 1 << 20;

/// The TUN, the UDP sockets, and what watches them.
#[derive(Debug)]
pub(crate) struct Wire {
    tun: OwnedFd,
    /// Whether each packet of the TUN has a [`Header`] before it.
    headed: bool,
    pub(crate) poll: Poll,
    ports: HashMap<UdpPort, OwnedFd>,
    pub(crate) pings: Pings,
    pub(crate) published: Published,
    /// Sockets made since they were last told.
    pub(crate) bound: Vec<(UdpPort, SocketAddr)>,
    /// Where the headers of packets go, while somebody captures them.
    pub(crate) capture: Option<Capture>,
}

/// What comes before a packet (linux/virtio_net.h, `virtio_net_hdr`): flags, how
/// it is to be cut, and four numbers of 16 bits in the machine's order: the
/// headers' length, the payload of a segment, where what is summed begins, and
/// where in it the sum goes.
type Header = [u8; HEADER];

/// Octets of a [`Header`].
pub(crate) const HEADER: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_SUM: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV4` and `VIRTIO_NET_HDR_GSO_TCPV6`.
const CUT_V4: u8 = 1;
const CUT_V6: u8 = 4;
/// Where in a TCP segment its checksum is.
const SUM_AT: u16 = 16;

/// What was read from a port's socket.
pub(crate) enum Incoming<'a> {
    Datagram(SocketAddr, &'a [u8]),
    Failed(SocketAddr, SendFault),
}

impl Wire {
    pub(crate) fn new(tun: OwnedFd, poll: Poll, published: Published) -> Self {
        Self {
            headed: sys::has_headers(&tun),
            tun,
            poll,
            published,
            ports: HashMap::new(),
            pings: Pings::default(),
            bound: Vec::new(),
            capture: None,
        }
    }

    /// Reads one packet; `None` if there is none now.
    pub(crate) fn read_packet<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        match nix::unistd::read(&self.tun, buffer) {
            // What the header says matters to nobody here: a checksum is not
            // looked at, and a segment may be as long as it likes.
            Ok(len) => Ok(buffer.get(if self.headed { HEADER } else { 0 }..len)),
            // EBADFD: the box's network is gone, and its TUN with it.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::EBADFD) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notes the headers of a packet, while somebody captures them.
    pub(crate) fn seen(&mut self, packet: &[u8], from_box: bool) {
        if let Some(capture) = &mut self.capture {
            capture.take(packet, from_box);
        }
    }

    pub(crate) fn close_port(&mut self, port: UdpPort) {
        self.ports.remove(&port);
    }

    /// Reads what came to a port; `None` if there is nothing now.
    pub(crate) fn read_port<'b>(
        &self,
        port: UdpPort,
        buffer: &'b mut [u8],
    ) -> Option<Incoming<'b>> {
        let fd = self.ports.get(&port)?.as_raw_fd();
        loop {
            match recvfrom::<SockaddrStorage>(fd, buffer) {
                Ok((len, from)) => {
                    let from = stream::to_std(from?).ok()?;
                    return Some(Incoming::Datagram(from, buffer.get(..len)?));
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // An error of an earlier datagram; the queue below says which.
                Err(_) => break,
            }
        }
        read_error(fd).map(|(to, fault)| Incoming::Failed(to, fault))
    }

    /// The kernel takes a packet whole or not at all; one lost is lost as on any
    /// wire, and TCP sends it again.
    fn put(&self, header: Header, packet: &[u8]) {
        let _ = match self.headed {
            true => {
                let parts = [io::IoSlice::new(&header), io::IoSlice::new(packet)];
                nix::sys::uio::writev(&self.tun, &parts)
            }
            false => nix::unistd::write(&self.tun, packet),
        };
    }

    fn port(&mut self, port: UdpPort, to: SocketAddr) -> Result<BorrowedFd<'_>, Errno> {
        if !self.ports.contains_key(&port) {
            let fd = stream::make(to, SockType::Datagram)?;
            match to.is_ipv4() {
                true => setsockopt(&fd, sockopt::Ipv4RecvErr, &true)?,
                false => setsockopt(&fd, sockopt::Ipv6RecvErr, &true)?,
            }
            setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
            self.poll
                .add(&fd, Token::Udp(port), Watch::Readable)
                .map_err(|_| Errno::ENOBUFS)?;
            self.ports.insert(port, fd);
        }
        self.ports.get(&port).map(AsFd::as_fd).ok_or(Errno::EBADF)
    }
}

impl Outlet for Wire {
    fn packet(&mut self, packet: &[u8]) {
        self.seen(packet, false);
        self.put([0; HEADER], packet);
    }

    fn finishes(&self) -> bool {
        self.headed
    }

    fn unfinished(&mut self, packet: &[u8], how: Unfinished) {
        self.seen(packet, false);
        let number = |number: usize| u16::try_from(number).unwrap_or(0).to_ne_bytes();
        let mut header: Header = [0; HEADER];
        header[0] = NEEDS_SUM;
        if let Some(cut) = how.cut {
            let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
            header[1] = if v4 { CUT_V4 } else { CUT_V6 };
            [header[2], header[3]] = number(how.segment + how.header);
            [header[4], header[5]] = cut.to_ne_bytes();
        }
        [header[6], header[7]] = number(how.segment);
        [header[8], header[9]] = SUM_AT.to_ne_bytes();
        self.put(header, packet);
    }

    fn datagram(&mut self, port: UdpPort, to: SocketAddr, data: &[u8]) -> Result<(), SendFault> {
        let made = !self.ports.contains_key(&port);
        let fd = self
            .port(port, to)
            .map_err(|_| SendFault::NoSocket)?
            .as_raw_fd();
        let address = SockaddrStorage::from(to);
        let mut sent = Err(Errno::EAGAIN);
        // The first try may only bring the error of an earlier datagram.
        for _ in 0..2 {
            sent = sendto(fd, data, &address, MsgFlags::MSG_NOSIGNAL);
            if !matches!(
                sent,
                Err(Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::EINTR)
            ) {
                break;
            }
        }
        if made
            && let Some(fd) = self.ports.get(&port)
            && let Ok(outer) = stream::address(fd)
        {
            self.bound.push((port, outer));
        }
        match sent {
            // No room now, or longer than the way takes: lost as on any wire.
            Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR | Errno::EMSGSIZE) => Ok(()),
            Err(errno) => Err(fault(errno)),
        }
    }

    fn answer(&mut self, place: u64, client: SocketAddr, data: &[u8]) {
        self.published.answer(place, client, data);
    }

    fn can_echo(&mut self, to: IpAddr) -> bool {
        Pings::allowed(to)
    }

    fn echo(
        &mut self,
        flow: FlowId,
        to: IpAddr,
        echo: Echo<'_>,
    ) -> Result<Option<SocketAddr>, EchoFault> {
        self.pings.send(&self.poll, flow, to, echo)
    }
}

fn fault(errno: Errno) -> SendFault {
    match errno {
        Errno::ECONNREFUSED => SendFault::PortUnreachable,
        Errno::ENETUNREACH | Errno::ENETDOWN => SendFault::NetworkUnreachable,
        Errno::EADDRNOTAVAIL | Errno::ENOMEM => SendFault::NoSocket,
        _ => SendFault::HostUnreachable,
    }
}

/// Takes one ICMP error from a socket's error queue (ip(7), `IP_RECVERR`): for
/// which far end, and which.
fn read_error(fd: i32) -> Option<(SocketAddr, SendFault)> {
    let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let mut quoted = [0; 64];
    let mut parts = [io::IoSliceMut::new(&mut quoted)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags).ok()?;
    let to = stream::to_std(message.address?).ok()?;
    message.cmsgs().ok()?.find_map(|part| match part {
        ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _) => {
            let errno = Errno::from_raw(i32::try_from(error.ee_errno).ok()?);
            Some((to, fault(errno)))
        }
        _ => None,
    })
}
