//! The node's loopback as a box sees it: at the gate's own address, of the same
//! family, port by port as granted (`lo:PORT`). Nothing else answers there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bailey_model::link::{GATE_V4, GATE_V6};

/// The end of the node's loopback that an end stands for, if it stands for one.
pub(crate) fn loopback(end: SocketAddr) -> Option<SocketAddr> {
    let ip: IpAddr = match end.ip() {
        IpAddr::V4(GATE_V4) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(GATE_V6) => Ipv6Addr::LOCALHOST.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, end.port()))
}

/// Where a judged end is dialled.
pub(crate) fn outer(end: SocketAddr) -> SocketAddr {
    loopback(end).unwrap_or(end)
}

/// An end outside as the box sees it; `None` for one that only pretends to be
/// outside.
pub(crate) fn inner(end: SocketAddr) -> Option<SocketAddr> {
    let ip = match end.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => GATE_V4.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => GATE_V6.into(),
        _ if loopback(end).is_some() => return None,
        other => other,
    };
    Some(SocketAddr::new(ip, end.port()))
}
