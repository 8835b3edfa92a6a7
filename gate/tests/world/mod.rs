//! A small world without root: a router's namespace whose loopback carries
//! public addresses, a node's behind it with a gate, a box's behind that.
//!
//! A test runs its own binary again inside a user namespace
//! ([`inside`]); there each network namespace belongs to a thread, and
//! [`Place::run`] runs a closure in one.

#![expect(dead_code, reason = "each test binary uses a part of it")]
#![expect(
    clippy::unwrap_used,
    reason = "only tests use it: a panic is their failure"
)]

#[expect(unsafe_code, reason = "the crate hands out a bare number")]
mod sys;

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bailey_channel::Channel;
use bailey_gate_proto::channel::{FromGate, GateConfig, GateEvent, HostFacts, ToGate};
use bailey_gate_proto::{SLATE_LEN, SlateKey};
use bailey_model::{Publish, Reach, Transport};
use nix::sched::{CloneFlags, setns, unshare};

/// A public address of the router's.
pub(crate) const PUBLIC_V4: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// A public address of the router's.
pub(crate) const PUBLIC_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 1);
/// The router on the node's own network.
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);

const INSIDE: &str = "BAILEY_GATE_WORLD";

/// Whether this process is inside already. If not, runs `test` of this binary
/// there and fails if that fails.
pub(crate) fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--"]);
    command
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1");
    if !test.is_empty() {
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    }
    let status = command.status().unwrap();
    assert!(status.success(), "{test} failed inside its world");
    false
}

/// Ends a connection by a reset.
pub(crate) fn reset(stream: TcpStream) {
    let linger = nix::libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

/// Waits until the other end has reset a connection.
#[track_caller]
pub(crate) fn is_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// A network namespace.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<File>);

impl Place {
    fn here() -> Self {
        Self(Arc::new(File::open("/proc/thread-self/ns/net").unwrap()))
    }

    /// Makes one.
    pub(crate) fn new() -> Self {
        std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Self::here()
        })
        .join()
        .unwrap()
    }

    /// A path by which `ip` finds it.
    fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs a closure there, on a thread of its own.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let place = self.clone();
        std::thread::spawn(move || {
            setns(place.0.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            run()
        })
    }

    /// Runs a closure there and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, run: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(run).join().unwrap()
    }

    /// Runs `ip` there, once a line.
    pub(crate) fn ip(&self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let done = self.run(move || Command::new("ip").args(words).status().unwrap());
            assert!(done.success(), "ip {line}");
        }
    }
}

/// What to do with a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Commit,
    Refuse,
    Silence,
}

/// The world, with a running gate.
pub(crate) struct World {
    pub(crate) router: Place,
    pub(crate) node: Place,
    pub(crate) inner: Place,
    pub(crate) gate: Child,
    pub(crate) events: Arc<Mutex<Vec<GateEvent>>>,
    pub(crate) word: Arc<Mutex<Word>>,
    noted: Arc<Mutex<Vec<u64>>>,
    to_gate: Option<Channel>,
    stopped: mpsc::Receiver<u32>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl World {
    /// Makes the world and starts a gate with this reach.
    pub(crate) fn new(reach: &str, facts: HostFacts) -> Self {
        Self::with_mtu(reach, facts, bailey_model::link::MTU)
    }

    pub(crate) fn with_mtu(reach: &str, facts: HostFacts, mtu: u16) -> Self {
        Self::with_published(reach, facts, mtu, &[])
    }

    /// With a socket on the node's loopback for each of these.
    pub(crate) fn with_published(
        reach: &str,
        facts: HostFacts,
        mtu: u16,
        published: &[Publish],
    ) -> Self {
        let (router, node, inner) = (Place::new(), Place::new(), Place::new());
        join(&router, &node);
        let tun = make_tun(&inner, mtu);
        let (ours, theirs) = Channel::pair().unwrap();
        let gate = node.run(move || {
            Command::new(env!("CARGO_BIN_EXE_bailey-gate"))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        });
        let mut from_gate = Channel::new(ours.try_clone().unwrap());
        let mut to_gate = Channel::new(ours.try_clone().unwrap());
        let published = published.to_vec();
        let sockets: Vec<OwnedFd> = published
            .iter()
            .map(|publish| listen(&node, *publish))
            .collect();
        let fds: Vec<_> = [&tun]
            .into_iter()
            .chain(&sockets)
            .map(AsFd::as_fd)
            .collect();
        let config = GateConfig {
            reach: reach.parse::<Reach>().unwrap(),
            published,
            facts,
            seed: [7; 32],
        };
        to_gate.send(&ToGate::Start(config), &fds).unwrap();
        drop((tun, sockets));
        assert_eq!(
            from_gate.receive::<FromGate>().unwrap().value,
            FromGate::Ready
        );
        let events = Arc::new(Mutex::new(Vec::new()));
        let word = Arc::new(Mutex::new(Word::Commit));
        let noted = Arc::new(Mutex::new(Vec::new()));
        let (tell, stopped) = mpsc::channel();
        let reader = std::thread::spawn({
            let (events, word, noted) = (events.clone(), word.clone(), noted.clone());
            move || {
                answer(
                    from_gate,
                    Channel::new(ours),
                    (&events, &noted),
                    &word,
                    &tell,
                )
            }
        });
        let (to_gate, reader) = (Some(to_gate), Some(reader));
        Self {
            router,
            node,
            inner,
            gate,
            events,
            word,
            noted,
            to_gate,
            stopped,
            reader,
        }
    }

    pub(crate) fn say(&mut self, message: &ToGate) {
        self.to_gate.as_mut().unwrap().send(message, &[]).unwrap();
    }

    /// Gives the gate a slate, and keeps what can be read of it.
    pub(crate) fn give_slate(&mut self, key: &SlateKey) -> File {
        let path = std::env::temp_dir().join(format!("slate-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true);
        let file = file.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(u64::try_from(SLATE_LEN).unwrap()).unwrap();
        let order = ToGate::Slate(key.clone());
        let channel = self.to_gate.as_mut().unwrap();
        channel.send(&order, &[file.as_fd()]).unwrap();
        file
    }

    /// The numbers of the notes that were told.
    pub(crate) fn noted(&self) -> Vec<u64> {
        self.noted.lock().unwrap().clone()
    }

    /// Stops the gate; how many flows it says it reset.
    pub(crate) fn stop(&mut self) -> u32 {
        self.say(&ToGate::Stop);
        self.stopped.recv_timeout(Duration::from_secs(5)).unwrap()
    }

    /// Waits for an event.
    pub(crate) fn event<T>(&self, find: impl Fn(&GateEvent) -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(found) = self.events.lock().unwrap().iter().find_map(&find) {
                return found;
            }
            assert!(Instant::now() < until, "no such event in {:?}", self.events);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The end of the channel is the end of the gate.
        let _ = nix::sys::socket::shutdown(
            std::os::fd::AsRawFd::as_raw_fd(self.to_gate.as_ref().unwrap()),
            nix::sys::socket::Shutdown::Both,
        );
        let status = self.gate.wait().unwrap();
        self.to_gate = None;
        let _ = self.reader.take().unwrap().join();
        if !std::thread::panicking() {
            assert!(status.success(), "the gate ended with {status}");
        }
    }
}

/// The node's network: a router with public addresses on its loopback.
fn join(router: &Place, node: &Place) {
    node.ip(&format!(
        "link add vnode type veth peer name vrouter netns {}",
        router.path()
    ));
    router.ip(&format!(
        "link set lo up
         addr add {PUBLIC_V4}/32 dev lo
         addr add {PUBLIC_V6}/128 dev lo
         addr add {ROUTER}/24 dev vrouter
         addr add fd77::1/64 dev vrouter nodad
         link set vrouter up"
    ));
    node.ip(&format!(
        "link set lo up
         addr add 192.168.77.2/24 dev vnode
         addr add fd77::2/64 dev vnode nodad
         link set vnode up
         route add default via {ROUTER}
         -6 route add default via fd77::1"
    ));
    node.run(answered);
}

/// Waits until the router answers over IPv6: a kernel may take a while to see
/// that a cable is plugged in, and drops what it should send until then.
fn answered() {
    let until = Instant::now() + Duration::from_secs(10);
    let refused = || {
        let socket = std::net::UdpSocket::bind("[::]:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        socket.connect("[fd77::1]:9")?;
        socket.send(b"x")?;
        socket.recv(&mut [0]).map(drop)
    };
    while refused().is_err_and(|error| error.kind() != ErrorKind::ConnectionRefused) {
        assert!(Instant::now() < until, "the router does not answer");
    }
}

fn make_tun(inner: &Place, mtu: u16) -> OwnedFd {
    let tun = inner.run(|| {
        let tun = tun_tap::Iface::without_packet_info("tun0", tun_tap::Mode::Tun).unwrap();
        nix::unistd::dup(sys::borrow(&tun)).unwrap()
    });
    inner.ip(&format!(
        "link set lo up
         link set tun0 mtu {mtu} txqueuelen 1000
         addr add 192.0.0.2/29 dev tun0
         addr add fd00:ba11:e700::2/64 dev tun0 nodad
         link set tun0 up
         route add default dev tun0
         -6 route add default dev tun0"
    ));
    // As the launcher sets it for a box.
    inner.run(|| {
        std::fs::write("/proc/sys/net/ipv4/conf/tun0/route_localnet", "1").unwrap();
    });
    tun
}

/// As the node opens it for a box.
fn listen(node: &Place, publish: Publish) -> OwnedFd {
    node.run(move || {
        let at = (Ipv4Addr::LOCALHOST, publish.host_port);
        match publish.transport {
            Transport::Tcp => {
                let listener = std::net::TcpListener::bind(at).unwrap();
                let most = nix::sys::socket::Backlog::MAXALLOWABLE;
                nix::sys::socket::listen(&listener, most).unwrap();
                listener.into()
            }
            Transport::Udp => std::net::UdpSocket::bind(at).unwrap().into(),
        }
    })
}

/// The node's part: keeps every event, and answers tickets.
fn answer(
    mut from_gate: Channel,
    mut answers: Channel,
    (events, noted): (&Mutex<Vec<GateEvent>>, &Mutex<Vec<u64>>),
    word: &Mutex<Word>,
    stopped: &mpsc::Sender<u32>,
) {
    while let Ok(message) = from_gate.receive::<FromGate>() {
        match message.value {
            FromGate::Ready => panic!("ready twice"),
            FromGate::Noted { first, flows } => {
                noted.lock().unwrap().extend((first..).take(flows.len()));
                let opened = flows.into_iter().map(GateEvent::FlowOpened);
                events.lock().unwrap().extend(opened);
            }
            FromGate::Reached { .. }
            | FromGate::Held(_)
            | FromGate::Explained(_)
            | FromGate::Captured { .. } => panic!("nobody asked"),
            FromGate::Event { ticket, event } => {
                events.lock().unwrap().push(event);
                let answer = match (ticket, *word.lock().unwrap()) {
                    (Some(ticket), Word::Commit) => ToGate::Committed { ticket },
                    (Some(ticket), Word::Refuse) => ToGate::Refused { ticket },
                    _ => continue,
                };
                // A gate that has ended takes no answers.
                let _ = answers.send(&answer, &[]);
            }
            FromGate::Stopped { flows_reset } => stopped.send(flows_reset).unwrap(),
        }
    }
}

pub(crate) fn v4(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(PUBLIC_V4), port)
}

pub(crate) fn v6(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(PUBLIC_V6), port)
}

pub(crate) fn no_facts() -> HostFacts {
    HostFacts::default()
}
