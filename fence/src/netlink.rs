//! The few rtnetlink(7) requests that bring a box's network up.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use std::os::fd::OwnedFd;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;
const REQUEST_AND_ACK: u16 = 0x1 | 0x4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;

const LINK_MTU: u16 = 4;
const LINK_QUEUE: u16 = 13;
const LINK_BY_FAMILY: u16 = 26;
/// `IFLA_INET6_ADDR_GEN_MODE` and its value for "none": no link-local address,
/// so no router solicitation either.
const INET6_ADDRESSES: u16 = 8;
const NO_ADDRESSES: u8 = 1;
/// `IFLA_INET_CONF` and in it `IPV4_DEVCONF_ROUTE_LOCALNET`: a packet that comes
/// by this device may be for 127.0.0.1. By it the gate reaches a program that
/// listens there only, as it would for whoever dials a published port.
const INET_SETTINGS: u16 = 1;
const LOOPBACK_FROM_HERE: u16 = 26;
const UP: u32 = 1;

const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
/// Nobody else is on the link: no detection of duplicates, usable at once.
const ADDRESS_NO_DAD: u8 = 2;

const ROUTE_DEVICE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const TABLE_MAIN: u8 = 254;
const BY_BOOT: u8 = 3;
const UNICAST: u8 = 1;

const INET: u8 = 2;
const INET6: u8 = 10;
const HEADER: usize = 16;
/// An acknowledgement is 36 bytes and what was asked.
const ANSWER: usize = 1024;

/// A socket to the kernel's routing.
#[derive(Debug)]
pub(crate) struct Routing(OwnedFd);

impl Routing {
    pub(crate) fn open() -> Result<Self, Errno> {
        // No protocol is 0, which is NETLINK_ROUTE.
        socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map(Self)
    }

    /// Brings a device up.
    pub(crate) fn up(&self, index: u32) -> Result<(), Errno> {
        self.ask(NEW_LINK, 0, &link_header(index, UP))
    }

    /// Sets what must stand before a device is up. Without `ipv6` the family's
    /// own settings do not exist.
    pub(crate) fn shape(&self, index: u32, mtu: u32, queue: u32, ipv6: bool) -> Result<(), Errno> {
        let mut body = link_header(index, 0);
        put(&mut body, LINK_MTU, &mtu.to_ne_bytes());
        put(&mut body, LINK_QUEUE, &queue.to_ne_bytes());
        let mut settings = Vec::new();
        put(&mut settings, LOOPBACK_FROM_HERE, &1_u32.to_ne_bytes());
        let mut inner = Vec::new();
        put(&mut inner, INET_SETTINGS, &settings);
        let mut families = Vec::new();
        put(&mut families, INET.into(), &inner);
        if ipv6 {
            let mut inner = Vec::new();
            put(&mut inner, INET6_ADDRESSES, &[NO_ADDRESSES]);
            put(&mut families, INET6.into(), &inner);
        }
        put(&mut body, LINK_BY_FAMILY, &families);
        self.ask(NEW_LINK, 0, &body)
    }

    /// Gives a device an address.
    pub(crate) fn address(&self, index: u32, address: IpAddr, prefix: u8) -> Result<(), Errno> {
        let mut body = vec![family(address), prefix, ADDRESS_NO_DAD, 0];
        body.extend(index.to_ne_bytes());
        let octets = octets(address);
        put(&mut body, ADDRESS_LOCAL, &octets);
        put(&mut body, ADDRESS, &octets);
        self.ask(NEW_ADDRESS, CREATE_EXCLUSIVE, &body)
    }

    /// Sends everything of the gateway's family to it.
    pub(crate) fn default_route(&self, index: u32, gateway: IpAddr) -> Result<(), Errno> {
        let mut body = vec![family(gateway), 0, 0, 0, TABLE_MAIN, BY_BOOT, 0, UNICAST];
        body.extend([0; 4]);
        put(&mut body, ROUTE_GATEWAY, &octets(gateway));
        put(&mut body, ROUTE_DEVICE, &index.to_ne_bytes());
        self.ask(NEW_ROUTE, CREATE_EXCLUSIVE, &body)
    }

    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Errno> {
        send(&self.0, &message(kind, flags, body), SendFlags::empty())?;
        let mut answer = [0_u8; ANSWER];
        let (_, len) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        outcome(answer.get(..len).unwrap_or_default())
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST_AND_ACK | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The kernel answers each request with an error number, 0 when it was done.
fn outcome(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).map(|kind| kind == ERROR.to_ne_bytes());
    let code = answer
        .get(HEADER..)
        .and_then(|rest| rest.first_chunk::<4>());
    match (kind, code.map(|code| i32::from_ne_bytes(*code))) {
        (Some(true), Some(0)) => Ok(()),
        (Some(true), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg())),
        _ => Err(Errno::PROTO),
    }
}

fn link_header(index: u32, up: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(up.to_ne_bytes());
    body.extend(up.to_ne_bytes());
    body
}

/// Appends an attribute, padded to four bytes.
fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { INET } else { INET6 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_says_its_own_length_and_is_padded() {
        let mut body = Vec::new();
        put(&mut body, 7, &[1]);
        put(&mut body, 8, &[1, 2, 3, 4]);
        assert_eq!(body.len(), 16);
        assert_eq!(body.get(..2), Some(5_u16.to_ne_bytes().as_slice()));
        assert_eq!(body.get(8..10), Some(8_u16.to_ne_bytes().as_slice()));
    }

    #[test]
    fn an_answer_that_is_no_acknowledgement_is_an_error() {
        assert_eq!(outcome(&[]), Err(Errno::PROTO));
        let refused = message(ERROR, 0, &(-1_i32).to_ne_bytes());
        assert_eq!(outcome(&refused), Err(Errno::PERM));
        assert_eq!(outcome(&message(ERROR, 0, &[0; 4])), Ok(()));
        assert_eq!(outcome(&message(NEW_LINK, 0, &[0; 4])), Err(Errno::PROTO));
    }
}
