//! Published ports: their sockets on the node's loopback are opened here,
//! before the box begins, so that a port in use is said before anything runs,
//! and so that a gate, which gets them by descriptor, needs no call to listen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use bailey_gate_proto::MAX_PUBLISHED;
use bailey_model::{Publish, Tier, Transport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::account;
use crate::api::{Failure, RunAsk};

/// Connections that wait to be taken; the kernel holds it to its own bound
/// (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// The open sockets of a box's published ports.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<(Publish, OwnedFd)>);

impl Listeners {
    /// Gives them to a gate: what each is for, and the descriptors behind the
    /// one that is there already.
    pub(super) fn hand_over(&mut self, tun: OwnedFd) -> (Vec<Publish>, Vec<OwnedFd>) {
        let (published, fds): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0).into_iter().unzip();
        (published, [tun].into_iter().chain(fds).collect())
    }
}

/// Opens what is asked for. `held` are the ports of the boxes that run, with
/// their names.
///
/// # Errors
/// A port that another box holds, that is asked for twice, or that cannot be
/// opened: each named.
pub(super) fn open<'a>(
    ask: &RunAsk,
    held: impl Iterator<Item = (&'a str, &'a [Publish])>,
) -> Result<Listeners, Failure> {
    // Elsewhere nothing is published, which is said with the other words.
    if ask.tier != Tier::Gated || ask.publish.is_empty() {
        return Ok(Listeners::default());
    }
    if ask.publish.len() > MAX_PUBLISHED {
        return Err(Failure::usage(format!(
            "--publish: at most {MAX_PUBLISHED} ports"
        )));
    }
    let same = |one: &Publish, other: &Publish| {
        (one.transport, one.host_port) == (other.transport, other.host_port)
    };
    let mut rest = ask.publish.as_slice();
    while let Some((publish, others)) = rest.split_first() {
        if others.iter().any(|other| same(publish, other)) {
            return Err(Failure::usage(format!(
                "--publish {publish}: port {} is given twice",
                publish.host_port
            )));
        }
        rest = others;
    }
    for (name, theirs) in held {
        let taken = |publish: &&Publish| theirs.iter().any(|other| same(publish, other));
        if let Some(publish) = ask.publish.iter().find(taken) {
            return Err(Failure::usage(format!(
                "--publish {publish}: port {} leads to the box {name} already",
                publish.host_port
            ))
            .hint(account::command(&format!("stop {name}, or another port"))));
        }
    }
    let mut opened = Vec::new();
    for &publish in &ask.publish {
        for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            let at = SocketAddr::new(ip, publish.host_port);
            match socket(publish.transport, at) {
                Ok(fd) => opened.push((publish, fd)),
                // A machine without that family.
                Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if ip.is_ipv6() => {}
                Err(errno) => return Err(failure(publish, at, errno)),
            }
        }
    }
    Ok(Listeners(opened))
}

fn socket(transport: Transport, at: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match at.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let kind = match transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(family, kind, flags, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if transport == Transport::Tcp {
        // Connections of the box before must not keep its port from the next.
        sockopt::set_socket_reuseaddr(&fd, true)?;
    }
    bind(&fd, &at)?;
    if transport == Transport::Tcp {
        listen(&fd, BACKLOG)?;
    }
    Ok(fd)
}

fn failure(publish: Publish, at: SocketAddr, errno: Errno) -> Failure {
    let failure = |why: &str| Failure::host(format!("--publish {publish}: {at} {why}"));
    match errno {
        Errno::ADDRINUSE => failure("is in use").hint(format!(
            "another port, as in --publish HOSTPORT:{}",
            publish.box_port
        )),
        Errno::ACCESS => {
            failure("is not yours to open: ports this low are the system's").hint(format!(
                "a port from 1024 on, as in --publish HOSTPORT:{}",
                publish.box_port
            ))
        }
        errno => failure(&format!("cannot be opened: {errno}")),
    }
}
