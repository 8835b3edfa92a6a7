//! Who answers where. All of it exists only inside a world.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The router on the LAN: default route and name server of every node.
pub const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
/// A printer on the LAN (TCP 80, 631 and 9100 answer).
pub const PRINTER_V4: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 9);
/// The router's address in the LAN's local prefix (RFC 4193), a /64.
pub const ROUTER_ULA: Ipv6Addr = Ipv6Addr::new(0xfd12, 0x3456, 0x789a, 1, 0, 0, 0, 1);
/// The router's address in the LAN's global prefix, a /64: public by registry,
/// and still the LAN, because it is on-link.
pub const ROUTER_GUA: Ipv6Addr = Ipv6Addr::new(0x2600, 0x1f18, 0xaaaa, 1, 0, 0, 0, 1);

/// `shop.example`: web, echo, discard, source.
pub const WEB_V4: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// `shop.example` by IPv6.
pub const WEB_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 1);
/// `shared.example` and `neighbour.example`: two names at one address.
pub const SHARED_V4: Ipv4Addr = Ipv4Addr::new(151, 101, 1, 69);
/// `v6.example`, which has no IPv4 address.
pub const V6_ONLY: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 6);
/// A public name server.
pub const RESOLVER_V4: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);
/// The same by IPv6.
pub const RESOLVER_V6: Ipv6Addr = Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe);
/// A STUN server (UDP 3478, RFC 8489 binding requests).
pub const STUN_V4: Ipv4Addr = Ipv4Addr::new(74, 125, 250, 129);
/// The metadata service of a cloud; answers HTTP with a secret.
pub const METADATA_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Takes every packet and answers none.
pub const BLACKHOLE_V4: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 156);
/// The same by IPv6.
pub const BLACKHOLE_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 0xdead);
/// The router answers ICMP host unreachable for it.
pub const UNREACHABLE_V4: Ipv4Addr = Ipv4Addr::new(45, 33, 32, 157);

/// Names that the TLS servers' certificate is for.
pub const TLS_NAMES: [&str; 3] = ["live.example", "realtime.example", "third.example"];

/// Ports of the servers.
pub mod port {
    /// TCP and UDP echo (RFC 862).
    pub const ECHO: u16 = 7;
    /// TCP: reads to the end, then says how many bytes there were, in decimal.
    pub const DISCARD: u16 = 9;
    /// TCP: writes zeros until the reader leaves.
    pub const SOURCE: u16 = 19;
    /// DNS, UDP and TCP.
    pub const DNS: u16 = 53;
    /// HTTP/1.1.
    pub const HTTP: u16 = 80;
    /// TLS with WebSockets that send back what comes.
    pub const TLS: u16 = 443;
    /// The port of DNS over TLS (RFC 7858); it answers as [`TLS`] does.
    pub const DOT: u16 = 853;
    /// STUN, UDP.
    pub const STUN: u16 = 3478;
    /// The printer's own two (IPP and raw); both answer as HTTP does.
    pub const PRINTER: [u16; 2] = [631, 9100];
    /// No server listens here, anywhere in the world.
    pub const CLOSED: u16 = 4;
}

/// IPv4 addresses on the router's loopback.
pub(crate) const PUBLIC_V4: [Ipv4Addr; 5] = [WEB_V4, SHARED_V4, RESOLVER_V4, STUN_V4, METADATA_V4];
/// IPv6 addresses on the router's loopback.
pub(crate) const PUBLIC_V6: [Ipv6Addr; 3] = [WEB_V6, V6_ONLY, RESOLVER_V6];
/// Addresses on the bridge.
pub(crate) const LAN_V4: [Ipv4Addr; 2] = [ROUTER_V4, PRINTER_V4];
/// The same by IPv6.
pub(crate) const LAN_V6: [Ipv6Addr; 2] = [ROUTER_ULA, ROUTER_GUA];

/// IPv4 address of node number `n` (1 is `n1`), 192.168.1.(10+n).
#[must_use]
pub const fn node_v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10_u8.saturating_add(n))
}

/// Address of node number `n` in the LAN's local prefix.
#[must_use]
pub fn node_ula(n: u8) -> Ipv6Addr {
    let [a, b, c, d, ..] = ROUTER_ULA.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 1, u16::from(n))
}

/// Address of node number `n` in the LAN's global prefix.
#[must_use]
pub fn node_gua(n: u8) -> Ipv6Addr {
    let [a, b, c, d, ..] = ROUTER_GUA.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 1, u16::from(n))
}

/// Every address at which the router itself answers.
pub(crate) fn served(ipv6: bool) -> Vec<IpAddr> {
    let v4 = PUBLIC_V4.into_iter().chain(LAN_V4).map(IpAddr::V4);
    let v6 = PUBLIC_V6.into_iter().chain(LAN_V6).map(IpAddr::V6);
    if ipv6 {
        v4.chain(v6).collect()
    } else {
        v4.collect()
    }
}
