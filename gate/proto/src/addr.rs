//! The address judge: what kind of address it is, for the DNS filter and for
//! the dial alike.
//!
//! `Internet` is an allow-list made from the IANA special-purpose address
//! registries: the most specific row wins, and only *globally reachable* is
//! public; IPv6 is public only inside 2000::/3. Addresses that carry an IPv4
//! address are opened and that is judged too; the stricter class of the two
//! stands. Then the node's own addresses and networks are `Local`, whatever the
//! registries say of them, and nothing else is but link-local IPv6: a private
//! address that is none of them is `Private`, as it lies behind some gateway.

mod embedded;
mod registry;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bailey_model::{AddrClass, Transport, link};

pub use embedded::nat64_prefixes;

/// The addresses and networks of the node, as its kernel lists them now.
///
/// A prefix is any address of it and its length in bits; a length beyond the
/// family's counts as a whole address, and 0 is passed over: a default route
/// names no network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeAddrs {
    /// Addresses on the node's own interfaces, of both families.
    pub own: Vec<IpAddr>,
    /// Networks reached without a gateway.
    pub on_link: Vec<(IpAddr, u8)>,
    /// Networks routed through a tunnel that is not the default route.
    pub tunnels: Vec<(IpAddr, u8)>,
    /// Prefixes under which the network translates to IPv4 (RFC 6052, found as
    /// in RFC 7050), besides the well-known 64:ff9b::/96.
    pub nat64: Vec<(Ipv6Addr, u8)>,
    /// Whether there is an IPv6 default route.
    pub has_v6_default: bool,
}

/// Classes from the weakest to the strictest, for joining two judgements.
/// Which of those that no word grants stands is a matter of what is said of it.
fn strictness(class: AddrClass) -> u8 {
    match class {
        AddrClass::Internet => 0,
        AddrClass::Local => 1,
        AddrClass::Private => 2,
        AddrClass::Reserved => 3,
        AddrClass::Multicast => 4,
        AddrClass::Loopback => 5,
        AddrClass::Metadata => 6,
        AddrClass::Gate => 7,
        AddrClass::Node => 8,
    }
}

/// The stricter of two classes.
#[must_use]
pub fn stricter(one: AddrClass, other: AddrClass) -> AddrClass {
    if strictness(other) > strictness(one) {
        other
    } else {
        one
    }
}

/// The class of an address on this node. Never `Node`, which takes a port:
/// [`classify_end`].
#[must_use]
pub fn classify(ip: IpAddr, node: &NodeAddrs) -> AddrClass {
    match ip {
        IpAddr::V4(v4) => classify_v4(v4, node),
        IpAddr::V6(v6) => {
            let (opened, wrapper) = embedded::open(v6, node);
            let wrapper = node.lift(ip, wrapper);
            opened
                .into_iter()
                .flatten()
                .map(|v4| classify_v4(v4, node))
                .fold(wrapper, stricter)
        }
    }
}

/// The class of an end of a flow: as [`classify`], and `Node` where the node
/// itself listens on that address and port.
#[must_use]
pub fn classify_end(
    transport: Transport,
    end: SocketAddr,
    node: &NodeAddrs,
    listeners: &[(Transport, SocketAddr)],
) -> AddrClass {
    let class = classify(end.ip(), node);
    let at_port: Vec<IpAddr> = listeners
        .iter()
        .filter(|(over, at)| *over == transport && at.port() == end.port())
        .map(|(_, at)| unmapped(at.ip()))
        .collect();
    if at_port.is_empty() {
        return class;
    }
    let meets = meant(end.ip(), node).any(|ip| {
        at_port.iter().any(|at| {
            if at.is_unspecified() {
                node.holds(ip) || is_loopback(ip)
            } else {
                *at == ip
            }
        })
    });
    if meets {
        stricter(class, AddrClass::Node)
    } else {
        class
    }
}

/// The address and every IPv4 address that it carries.
fn meant(ip: IpAddr, node: &NodeAddrs) -> impl Iterator<Item = IpAddr> {
    let opened = match ip {
        IpAddr::V4(_) => [None; embedded::MAX],
        IpAddr::V6(v6) => embedded::open(v6, node).0,
    };
    std::iter::once(ip).chain(opened.into_iter().flatten().map(IpAddr::V4))
}

/// Loopback, and the unspecified addresses, which a dial takes for loopback.
fn is_loopback(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn classify_v4(ip: Ipv4Addr, node: &NodeAddrs) -> AddrClass {
    let class = node.lift(IpAddr::V4(ip), registry::v4(ip));
    if node.is_directed_broadcast(ip) {
        stricter(class, AddrClass::Multicast)
    } else {
        class
    }
}

impl NodeAddrs {
    /// Whether it is one of the node's own addresses.
    #[must_use]
    pub fn holds(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| unmapped(*own) == ip)
    }

    /// What the node's own addresses and networks make of a class: public, private
    /// and reserved ones become `Local`; what no word grants stays so.
    fn lift(&self, ip: IpAddr, class: AddrClass) -> AddrClass {
        let local = || {
            self.holds(ip)
                || self
                    .on_link
                    .iter()
                    .chain(&self.tunnels)
                    .any(|(prefix, len)| *len > 0 && in_prefix(ip, *prefix, *len))
        };
        match class {
            AddrClass::Internet | AddrClass::Private | AddrClass::Reserved if local() => {
                AddrClass::Local
            }
            other => other,
        }
    }

    /// The last address of an on-link IPv4 network is its broadcast (RFC 919);
    /// networks of one or two addresses have none (RFC 3021).
    fn is_directed_broadcast(&self, ip: Ipv4Addr) -> bool {
        self.on_link.iter().any(|(prefix, len)| {
            let host_bits = 32_u32.saturating_sub(u32::from(*len));
            let last = u32::MAX.checked_shr(u32::from(*len)).unwrap_or(0);
            prefix.is_ipv4()
                && (2..32).contains(&host_bits)
                && in_prefix(IpAddr::V4(ip), *prefix, *len)
                && u32::from(ip) & last == last
        })
    }
}

/// An IPv4-mapped address as the IPv4 address that it is; others unchanged.
#[must_use]
pub fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Whether an address lies in a prefix of its own family.
pub(crate) fn in_prefix(ip: IpAddr, prefix: IpAddr, len: u8) -> bool {
    match (ip, prefix) {
        (IpAddr::V4(ip), IpAddr::V4(prefix)) => {
            let shift = 32_u32.saturating_sub(u32::from(len));
            (u32::from(ip) ^ u32::from(prefix))
                .checked_shr(shift)
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(prefix)) => {
            let shift = 128_u32.saturating_sub(u32::from(len));
            (u128::from(ip) ^ u128::from(prefix))
                .checked_shr(shift)
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

/// Whether it is an address of the link between a box and its gate.
fn on_gate_link(ip: IpAddr) -> bool {
    in_prefix(ip, IpAddr::V4(link::GATE_V4), link::PREFIX_V4)
        || in_prefix(ip, IpAddr::V6(link::GATE_V6), link::PREFIX_V6)
}

#[cfg(test)]
mod tests;
