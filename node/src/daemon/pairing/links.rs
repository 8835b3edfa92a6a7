//! This machine in its networks.

use std::net::IpAddr;

use bailey_sync::Link;
use nix::net::if_::InterfaceFlags;

/// This machine's addresses that another could reach, the likeliest first:
/// IPv4, then IPv6; none of the loopback and none that needs a zone.
pub(in crate::daemon) fn own_addrs() -> Vec<IpAddr> {
    let mut found = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else {
            continue;
        };
        let v4 = address.as_sockaddr_in().map(|addr| IpAddr::from(addr.ip()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|addr| IpAddr::from(addr.ip()));
        found.extend(v4.or(v6));
    }
    found.retain(|ip| match ip {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    });
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    found
}

/// The links on which this machine speaks to a group.
pub(in crate::daemon) fn links() -> Vec<Link> {
    let mut found = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST;
        let fits = interface.flags.contains(wanted)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let Some(address) = interface.address.filter(|_| fits) else {
            continue;
        };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(Link::V4(v4.ip()));
        } else if address.as_sockaddr_in6().is_some()
            && let Ok(index) = nix::net::if_::if_nametoindex(interface.interface_name.as_str())
            && !found.contains(&Link::V6(index))
        {
            found.push(Link::V6(index));
        }
    }
    found
}
