//! What can be reached, and who answers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bailey_fence_plan::channel::BoxSpec;
use bailey_model::{Axis, Tier, link};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::bait::Targets;
use super::files::{own_namespace, refused};
use super::{Facts, name};

const DIAL: &str = "dial the gate";
/// An address for documentation (RFC 5737), which leads nowhere.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// How long a loopback may take to answer.
const NEAR: Duration = Duration::from_millis(200);
const MAX_DEVICES: usize = 16384;

/// A dial to the gate that is under way, or why there is none.
#[derive(Debug)]
pub(super) enum Dial {
    Under(OwnedFd),
    Over(&'static str, Option<bool>),
    Failed(Errno),
    None,
}

/// The network that this process is in.
#[derive(Debug)]
pub(super) struct Here {
    own: (&'static str, Option<bool>),
    devices: Option<Vec<String>>,
}

/// Looks at it.
pub(super) fn look(targets: &Targets) -> Here {
    Here {
        own: own_namespace("net", targets),
        devices: devices(),
    }
}

/// Dials the gate's own address, on which nothing answers: it must be the gate
/// that refuses.
pub(super) fn dial_gate(spec: &BoxSpec, here: &Here) -> Dial {
    if spec.tier != Tier::Gated {
        return Dial::None;
    }
    if here.own.1 != Some(true) {
        return Dial::Over("not dialled: the network is the host's", Some(false));
    }
    let devices = here.devices.as_deref().unwrap_or_default();
    if !devices.iter().any(|device| device == "tun0") {
        return Dial::Over("not dialled: there is no tun0", Some(false));
    }
    let to = SocketAddrV4::new(link::GATE_V4, link::PROBE_PORT);
    match begin(to) {
        (Ok(socket), Err(Errno::INPROGRESS)) => Dial::Under(socket),
        (Ok(_), Ok(())) => Dial::Over("connected", Some(false)),
        (Err(errno), _) | (_, Err(errno)) => Dial::Failed(errno),
    }
}

/// What came of it.
pub(super) fn hear_gate(facts: &mut Facts, dial: Dial, until: Instant) {
    let answer = match dial {
        Dial::None => return,
        Dial::Over(got, held) => return facts.add(Axis::Network, DIAL, got, held),
        Dial::Failed(errno) => Some(Err(errno)),
        Dial::Under(socket) => answer(&socket, until),
    };
    match answer {
        None => facts.add(Axis::Network, DIAL, "no answer", None),
        Some(Ok(())) => facts.add(Axis::Network, DIAL, "connected", Some(false)),
        Some(Err(errno)) => {
            let held = errno == Errno::CONNREFUSED;
            let got = name(nix::errno::Errno::from_raw(errno.raw_os_error()));
            // An unreachable gate is none; what that is, nobody has measured.
            facts.add(Axis::Network, DIAL, &got, held.then_some(true));
        }
    }
}

pub(super) fn try_all(facts: &mut Facts, here: &Here, spec: &BoxSpec, targets: &Targets) {
    facts.add(Axis::Network, "own network", here.own.0, here.own.1);
    let found = here.devices.as_ref();
    let got = found.map(|names| names.join(" "));
    let may = |device: &String| device == "lo" || device == "tun0" && spec.tier == Tier::Gated;
    let held = found.map(|names| names.iter().all(may));
    let got = got.unwrap_or_else(|| "cannot be told".to_owned());
    facts.add(Axis::Network, "devices", &got, held);
    match targets.port {
        Some(port) => {
            let (got, held) = refused(reach(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)));
            facts.add(
                Axis::Network,
                "connect the host's loopback",
                &got,
                Some(held),
            );
        }
        None => facts.add(
            Axis::Network,
            "connect the host's loopback",
            "nothing listened",
            None,
        ),
    }
    if spec.tier == Tier::L2 {
        let (got, held) = match begin(SocketAddrV4::new(NOWHERE, link::PROBE_PORT)) {
            (Ok(_), Ok(()) | Err(Errno::INPROGRESS)) => ("dialled".to_owned(), false),
            (Err(errno), _) | (_, Err(errno)) => refused::<()>(Err(errno)),
        };
        facts.add(Axis::Network, "dial 192.0.2.1", &got, Some(held));
    }
}

/// Connects, near enough to be answered at once.
fn reach(to: SocketAddrV4) -> rustix::io::Result<()> {
    let (socket, begun) = begin(to);
    let socket = socket?;
    match begun {
        Err(Errno::INPROGRESS) => {
            answer(&socket, Instant::now() + NEAR).unwrap_or(Err(Errno::TIMEDOUT))
        }
        other => other,
    }
}

fn begin(to: SocketAddrV4) -> (rustix::io::Result<OwnedFd>, rustix::io::Result<()>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match socket_with(AddressFamily::INET, SocketType::STREAM, flags, None) {
        Ok(socket) => {
            let begun = connect(&socket, &to);
            (Ok(socket), begun)
        }
        Err(errno) => (Err(errno), Err(errno)),
    }
}

/// How a dial went, `None` where nobody answered in time.
fn answer(socket: &OwnedFd, until: Instant) -> Option<rustix::io::Result<()>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).ok()?;
        let mut polled = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut polled, Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => return None,
            Ok(_) => return Some(socket_error(socket).and_then(|outcome| outcome)),
        }
    }
}

/// Names of the network devices, by proc_pid_net(5).
fn devices() -> Option<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(CWD, "/proc/net/dev", flags, Mode::empty()).ok()?;
    let mut bytes = vec![0; MAX_DEVICES];
    let count = rustix::io::read(&file, &mut bytes).ok()?;
    let text = String::from_utf8_lossy(bytes.get(..count)?).into_owned();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    Some(names.map(|(name, _)| name.trim().to_owned()).collect())
}
