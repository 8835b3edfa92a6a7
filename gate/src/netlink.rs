//! The node's addresses and routes, by rtnetlink(7), and word of their changes.
//!
//! Opened before the gate is confined. A list that cannot be read whole is an
//! error: an address that is missed would be taken for a public one.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use bailey_gate_proto::{NodeAddrs, classify};
use bailey_model::AddrClass;
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{
    AddressFamily as SocketFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind,
    recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// Changes of links, addresses and routes of both families (linux/rtnetlink.h).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// More than the kernel puts into one datagram of a dump.
const CHUNK: usize = 64 << 10;
/// Most datagrams of one dump: tens of thousands of routes.
const MAX_CHUNKS: usize = 4096;
/// A prefix this short is one half, or the whole, of a default route: some
/// tunnels write it so to leave the old default in place.
const DEFAULT_V4: u8 = 1;
/// As [`DEFAULT_V4`]; 2000::/3 is all of the public IPv6 addresses.
const DEFAULT_V6: u8 = 3;

/// Tunnels that lead to more IPv4 addresses than this are a default route in
/// pieces: an eighth of all. A company's own are far fewer.
const MOST_V4: u128 = 1 << 29;
/// As [`MOST_V4`]: a quarter of 2000::/3. All of fc00::/7 is less.
const MOST_V6: u128 = 1 << 123;

/// No private network is wider (fc00::/7, 10.0.0.0/8).
const SHORTEST_PRIVATE: u8 = 7;

/// What can go wrong while reading the node's addresses.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket failed.
    #[error("rtnetlink: {0}")]
    Io(#[from] io::Error),
    /// A message that cannot be read.
    #[error("rtnetlink: a message that cannot be read: {0}")]
    Decode(String),
    /// The kernel refused the question.
    #[error("rtnetlink: the kernel answered {0}")]
    Refused(io::Error),
    /// The kernel did not come to an end.
    #[error("rtnetlink: a list without an end")]
    Endless,
}

impl From<nix::Error> for NetlinkError {
    fn from(error: nix::Error) -> Self {
        Self::Io(error.into())
    }
}

/// The two sockets: one to ask, one to hear of changes.
#[derive(Debug)]
pub(crate) struct Netlink {
    asking: OwnedFd,
    hearing: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens both.
    ///
    /// # Errors
    /// When the kernel refuses a socket.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let open = |flags: SockFlag, groups: u32| {
            let fd = socket(
                SocketFamily::Netlink,
                SockType::Raw,
                flags | SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkRoute,
            )?;
            bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
            Ok::<_, nix::Error>(fd)
        };
        let asking = open(SockFlag::empty(), 0)?;
        // The kernel answers at once; this only keeps a fault from hanging a box.
        setsockopt(&asking, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
        let hearing = open(SockFlag::SOCK_NONBLOCK, GROUPS)?;
        Ok(Self {
            asking,
            hearing,
            buffer: vec![0; CHUNK],
        })
    }

    /// The socket that becomes readable when something changed.
    #[must_use]
    pub(crate) fn changes(&self) -> BorrowedFd<'_> {
        self.hearing.as_fd()
    }

    /// Takes all word of changes; true if there was any. Word that was lost
    /// for want of room counts.
    pub(crate) fn drain(&mut self) -> bool {
        let mut any = false;
        loop {
            match recv(
                self.hearing.as_raw_fd(),
                &mut self.buffer,
                MsgFlags::empty(),
            ) {
                Ok(0) | Err(nix::Error::EAGAIN) => return any,
                Ok(_) | Err(nix::Error::ENOBUFS | nix::Error::EINTR) => any = true,
                Err(_) => return any,
            }
        }
    }

    /// Reads addresses and routes.
    ///
    /// # Errors
    /// When any part of them cannot be read.
    pub(crate) fn read(&mut self) -> Result<NodeAddrs, NetlinkError> {
        let mut found = Found::default();
        let link = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let address = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let route = |family| {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            RouteNetlinkMessage::GetRoute(message)
        };
        let questions = [
            link,
            address,
            route(AddressFamily::Inet),
            route(AddressFamily::Inet6),
        ];
        for (number, question) in (1..).zip(questions) {
            self.ask(number, question, &mut found)?;
        }
        Ok(found.finish())
    }

    fn ask(
        &mut self,
        number: u32,
        question: RouteNetlinkMessage,
        found: &mut Found,
    ) -> Result<(), NetlinkError> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_DUMP | NLM_F_REQUEST;
        header.sequence_number = number;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(self.asking.as_raw_fd(), &bytes, MsgFlags::empty())?;
        for _ in 0..MAX_CHUNKS {
            let len = match recv(self.asking.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(nix::Error::EINTR) => continue,
                other => other?,
            };
            let mut rest = self.buffer.get(..len).unwrap_or_default();
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| NetlinkError::Decode(error.to_string()))?;
                let len = usize::try_from(message.header.length).unwrap_or(usize::MAX);
                // Messages are padded to four bytes (netlink(7)).
                rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
                if message.header.sequence_number != number {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return Err(NetlinkError::Refused(error.to_io()));
                    }
                    NetlinkPayload::InnerMessage(inner) => found.note(&inner),
                    _ => {}
                }
            }
        }
        Err(NetlinkError::Endless)
    }
}

#[derive(Debug, Default)]
struct Found {
    addrs: NodeAddrs,
    tunnels: Vec<u32>,
}

impl Found {
    fn finish(mut self) -> NodeAddrs {
        drop_split_default(&mut self.addrs.tunnels);
        self.addrs
    }

    fn note(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.note_link(link),
            RouteNetlinkMessage::NewAddress(address) => self.note_address(address),
            RouteNetlinkMessage::NewRoute(route) => self.note_route(route),
            _ => {}
        }
    }

    fn note_link(&mut self, link: &LinkMessage) {
        let by_type = matches!(
            link.header.link_layer_type,
            LinkLayerType::None
                | LinkLayerType::Tunnel
                | LinkLayerType::Tunnel6
                | LinkLayerType::Sit
                | LinkLayerType::Ipgre
        );
        if by_type || link.header.flags.contains(LinkFlags::Pointopoint) {
            self.tunnels.push(link.header.index);
        }
    }

    fn note_address(&mut self, address: &AddressMessage) {
        for attribute in &address.attributes {
            match attribute {
                AddressAttribute::Local(ip) => self.own(*ip, address.header.prefix_len),
                // On a link with a peer this is the peer's, which is on the link.
                AddressAttribute::Address(ip) => {
                    let peered = address.attributes.iter().any(
                        |other| matches!(other, AddressAttribute::Local(local) if local != ip),
                    );
                    if peered {
                        self.addrs.on_link.push((*ip, address.header.prefix_len));
                    } else {
                        self.own(*ip, address.header.prefix_len);
                    }
                }
                AddressAttribute::Anycast(ip) => self.addrs.own.push(IpAddr::V6(*ip)),
                _ => {}
            }
        }
    }

    fn own(&mut self, ip: IpAddr, len: u8) {
        if !self.addrs.own.contains(&ip) {
            self.addrs.own.push(ip);
            // Known even where no route says so (`noprefixroute`).
            self.addrs.on_link.push((ip, len));
        }
    }

    fn note_route(&mut self, route: &RouteMessage) {
        let len = route.header.destination_prefix_length;
        let v6 = route.header.address_family == AddressFamily::Inet6;
        let (mut to, mut gateway, mut links) = (None, false, Vec::new());
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(ip)) => to = Some(IpAddr::V4(*ip)),
                RouteAttribute::Destination(RouteAddress::Inet6(ip)) => to = Some(IpAddr::V6(*ip)),
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => gateway = true,
                RouteAttribute::Oif(index) => links.push(*index),
                RouteAttribute::MultiPath(hops) => {
                    links.extend(hops.iter().map(|hop| hop.interface_index));
                    gateway |= hops.iter().all(|hop| {
                        hop.attributes.iter().any(|attribute| {
                            matches!(
                                attribute,
                                RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
                            )
                        })
                    });
                }
                _ => {}
            }
        }
        let network = to.map(|ip| (ip, len));
        match route.header.kind {
            RouteType::Local | RouteType::Anycast => {
                self.addrs
                    .on_link
                    .extend(network.filter(|(_, len)| *len > 0));
            }
            RouteType::Unicast => {
                let default = len <= if v6 { DEFAULT_V6 } else { DEFAULT_V4 };
                self.addrs.has_v6_default |= v6 && default;
                let tunnel = links.iter().any(|index| self.tunnels.contains(index));
                let list = match (default, tunnel, gateway) {
                    (true, ..) | (false, false, true) => return,
                    (false, true, _) => &mut self.addrs.tunnels,
                    (false, false, false) => &mut self.addrs.on_link,
                };
                list.extend(network);
            }
            _ => {}
        }
    }
}

/// Networks through tunnels that together are most of a family's addresses are a
/// default route that leaves some out, in as many prefixes as that takes: what is
/// public there is no network of the node's own. What is private there is.
fn drop_split_default(tunnels: &mut Vec<(IpAddr, u8)>) {
    for (v6, bits, most) in [(false, 32, MOST_V4), (true, 128, MOST_V6)] {
        let size = |len: u8| 1_u128.checked_shl(u32::from(bits - len.min(bits)));
        let sizes = tunnels
            .iter()
            .filter(|(ip, _)| ip.is_ipv6() == v6)
            .map(|(_, len)| size(*len).unwrap_or(u128::MAX));
        let all = sizes.fold(0_u128, u128::saturating_add);
        if all > most {
            tunnels.retain(|(ip, len)| ip.is_ipv6() != v6 || is_private(*ip, *len));
        }
    }
}

/// Whether a network is private from end to end, by the registries.
fn is_private(ip: IpAddr, len: u8) -> bool {
    let [first, last] = match ip {
        IpAddr::V4(ip) => {
            let rest = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            [ip.to_bits() & !rest, ip.to_bits() | rest].map(|ip| IpAddr::V4(ip.into()))
        }
        IpAddr::V6(ip) => {
            let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            [ip.to_bits() & !rest, ip.to_bits() | rest].map(|ip| IpAddr::V6(ip.into()))
        }
    };
    let private = |ip| classify(ip, &NodeAddrs::default()) == AddrClass::Private;
    len >= SHORTEST_PRIVATE && private(first) && private(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(networks: &[&str]) -> usize {
        let network = |text: &&str| {
            let (ip, len) = text.split_once('/').unwrap();
            (ip.parse().unwrap(), len.parse().unwrap())
        };
        let mut tunnels: Vec<(IpAddr, u8)> = networks.iter().map(network).collect();
        drop_split_default(&mut tunnels);
        tunnels.len()
    }

    #[test]
    fn a_default_route_in_pieces_is_no_network_of_ones_own() {
        // Networks that a company routes, its own and a public one.
        let office = [
            "10.0.0.0/8",
            "172.16.0.0/12",
            "17.0.0.0/8",
            "fd00::/8",
            "2001:db8::/32",
        ];
        assert_eq!(left(&office), office.len());
        // All but the private ones, as tunnels write it.
        let split = [
            "0.0.0.0/5",
            "8.0.0.0/7",
            "11.0.0.0/8",
            "12.0.0.0/6",
            "16.0.0.0/4",
            "32.0.0.0/3",
            "64.0.0.0/2",
            "128.0.0.0/3",
            "fd00::/8",
        ];
        assert_eq!(left(&split), 1);
        assert_eq!(left(&["64.0.0.0/2"]), 0);
        // The office behind such a tunnel is one's own all the same.
        let behind = [&split[..], &["10.8.0.0/16", "192.168.0.0/16"]].concat();
        assert_eq!(left(&behind), 3);
        assert_eq!(left(&["2000::/4", "10.0.0.0/8"]), 1);
        assert_eq!(left(&["::/0", "0.0.0.0/0"]), 0);
    }
}
