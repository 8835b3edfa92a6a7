//! The UDP socket of an endpoint.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// Binds. An unspecified IPv6 address takes IPv4 too, whatever
/// `net.ipv6.bindv6only` says (ipv6(7)), and where the kernel has no IPv6 the
/// same port of `0.0.0.0` is taken instead.
pub(crate) fn bind_udp(listen: SocketAddr) -> io::Result<UdpSocket> {
    match listen {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => dual(listen).or_else(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                return Err(error);
            }
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, listen.port()))
        }),
        SocketAddr::V4(_) | SocketAddr::V6(_) => UdpSocket::bind(listen),
    }
}

fn dual(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket_with(
        AddressFamily::INET6,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    bind(&socket, &listen)?;
    Ok(socket.into())
}
