//! Sockets and other meeting places of programs outside.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::sys::{Arg, call, message_queue, peer_pidfd, shared_memory};
use crate::{Attack, Held, Outcome, Through, Untried, errno, why};

pub(crate) const ALL: &[Attack] = &[
    ("abstract-socket", abstract_socket),
    ("socket-in-read-only", path_socket),
    ("socket-in-writable", path_socket),
    ("fifo-in-read-only", fifo),
    ("loopback-of-host", loopback),
    ("socket-names", socket_names),
    ("peer-by-socket", peer_by_socket),
    ("sysv-shared-memory", sysv),
    ("message-queue", queue),
];

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn met<T>(result: io::Result<T>) -> Outcome {
    match result {
        Ok(_) => Through("connected".to_owned()),
        Err(error) => Held(why(&error)),
    }
}

fn abstract_socket(words: &[&str]) -> Outcome {
    let [name] = words else {
        return Untried("want a name".to_owned());
    };
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
    met(address.and_then(|address| UnixStream::connect_addr(&address)))
}

fn path_socket(words: &[&str]) -> Outcome {
    let [path] = words else {
        return Untried("want a path".to_owned());
    };
    met(UnixStream::connect(path))
}

/// A writer without waiting: it is let in only where a reader outside is.
fn fifo(words: &[&str]) -> Outcome {
    let [path] = words else {
        return Untried("want a path".to_owned());
    };
    let mut options = OpenOptions::new();
    let options = options.write(true).custom_flags(libc::O_NONBLOCK);
    met(options.open(path))
}

fn loopback(words: &[&str]) -> Outcome {
    let Some(port) = words.first().and_then(|word| word.parse::<u16>().ok()) else {
        return Untried("want a port".to_owned());
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    met(TcpStream::connect_timeout(&address, PATIENCE))
}

/// Names of the sockets of the machine.
fn socket_names(words: &[&str]) -> Outcome {
    let [name] = words else {
        return Untried("want a name".to_owned());
    };
    match std::fs::read_to_string("/proc/net/unix") {
        Ok(text) if text.contains(name) => Through("they are listed".to_owned()),
        Ok(_) => Held("not listed".to_owned()),
        Err(error) => Held(why(&error)),
    }
}

/// What a connection says of the process at its other end, and what can be done
/// with that.
fn peer_by_socket(words: &[&str]) -> Outcome {
    let [path] = words else {
        return Untried("want a path".to_owned());
    };
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) => return Untried(format!("the socket is not there: {}", why(&error))),
    };
    let peer = match peer_pidfd(&stream) {
        Ok(peer) => peer,
        Err(number) => return Held(format!("no descriptor of it, {}", errno(number))),
    };
    let peer = || Arg::Number(u64::from(peer.as_raw_fd().unsigned_abs()));
    let signal = &mut [peer(), Arg::Number(18), Arg::Number(0), Arg::Number(0)];
    let signalled = call(libc::SYS_pidfd_send_signal, signal);
    let taken = call(
        libc::SYS_pidfd_getfd,
        &mut [peer(), Arg::Number(0), Arg::Number(0)],
    );
    match (signalled, taken) {
        (Err(one), Err(two)) => Held(format!(
            "a descriptor of it, but no signal ({}) and none of its files ({})",
            errno(one),
            errno(two)
        )),
        (Ok(_), _) => Through("a signal was sent to it".to_owned()),
        (_, Ok(_)) => Through("one of its descriptors was taken".to_owned()),
    }
}

fn sysv(words: &[&str]) -> Outcome {
    let Some(key) = words.first().and_then(|word| word.parse().ok()) else {
        return Untried("want a key".to_owned());
    };
    match shared_memory(key, false) {
        Ok(_) => Through("found".to_owned()),
        Err(number) => Held(errno(number)),
    }
}

fn queue(words: &[&str]) -> Outcome {
    let [name] = words else {
        return Untried("want a name".to_owned());
    };
    let Ok(name) = CString::new(format!("/{name}")) else {
        return Untried("want a name".to_owned());
    };
    match message_queue(&name, false) {
        Ok(()) => Through("opened".to_owned()),
        Err(number) => Held(errno(number)),
    }
}
