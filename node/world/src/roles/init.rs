//! The first process of a world: the router, its LAN, its servers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::sethostname;

use super::holder::{fresh_run, quick_addresses};
use super::node::fresh_proc;
use super::{Args, again, tell};
use crate::at;
use crate::command::ip;
use crate::control::{Failure, Line, Step as _};
use crate::servers::{self, Servers};

/// `init DIR UID GID NODES PING`
pub(super) fn run(args: &mut Args) -> Result<i32, Failure> {
    set_pdeathsig(Signal::SIGKILL).step("prctl(PR_SET_PDEATHSIG)")?;
    let dir = args.path("folder")?;
    let uid: u32 = args.number("uid")?;
    let gid: u32 = args.number("gid")?;
    let nodes: u8 = args.number("nodes")?;
    let ping: u8 = args.number("ping")?;

    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).step("make mounts private")?;
    fresh_proc()?;
    fresh_run()?;
    sethostname("inet").step("sethostname()")?;
    let ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    quick_addresses(ipv6)?;

    let plan = Plan {
        dir,
        uid,
        gid,
        ipv6,
        ping,
    };
    // The holders make their namespaces while the router is made.
    let mut holders: Vec<Holder> = (1..=nodes)
        .map(|number| Holder::start(&plan, number))
        .collect::<Result<_, _>>()?;
    forward(ipv6)?;
    ip("the router's addresses and bridge", &router(ipv6))?;
    let pids = holders
        .iter_mut()
        .map(|holder| holder.expect_made())
        .collect::<Result<Vec<u32>, _>>()?;
    ip("the nodes' cables", &cables(&pids))?;
    holders.iter_mut().try_for_each(Holder::go)?;
    let servers = Servers::start(&plan.dir, ipv6, nodes)?;
    let nodes = holders
        .iter_mut()
        .map(Holder::expect_node)
        .collect::<Result<Vec<u32>, _>>()?;
    tell(&Line::Ready { ipv6, nodes });
    obey(&servers);
    Ok(0)
}

/// What every holder is told.
struct Plan {
    dir: PathBuf,
    uid: u32,
    gid: u32,
    ipv6: bool,
    ping: u8,
}

/// A process that makes one node.
struct Holder {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Holder {
    fn start(plan: &Plan, number: u8) -> Result<Self, Failure> {
        let step = format!("start the holder of n{number}");
        let mut child = again("holder")
            .arg(&plan.dir)
            .args([u32::from(number), plan.uid, plan.gid].map(|number| number.to_string()))
            .args([u8::from(plan.ipv6), plan.ping].map(|flag| flag.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .step(&step)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Self {
                child,
                to,
                from: BufReader::new(from),
            }),
            _ => Err(Failure::new(step, "no pipes")),
        }
    }

    fn line(&mut self) -> Result<Line, Failure> {
        let step = "hear from a holder";
        let mut text = String::new();
        self.from.read_line(&mut text).step(step)?;
        match Line::parse(text.trim_end()) {
            Some(Line::Failed { step, detail }) => Err(Failure { step, detail }),
            Some(line) => Ok(line),
            None => Err(Failure::new(step, format!("it said `{}`", text.trim_end()))),
        }
    }

    fn expect_made(&mut self) -> Result<u32, Failure> {
        match self.line()? {
            Line::Made => Ok(self.child.id()),
            other => Err(Failure::new(
                "hear from a holder",
                format!("it said `{other}`"),
            )),
        }
    }

    fn go(&mut self) -> Result<(), Failure> {
        writeln!(self.to, "go").step("speak to a holder")
    }

    /// The holder says the pid, the node says that it is done; either first.
    fn expect_node(&mut self) -> Result<u32, Failure> {
        match (self.line()?, self.line()?) {
            (Line::Node(pid), Line::Done) | (Line::Done, Line::Node(pid)) => Ok(pid),
            (one, two) => Err(Failure::new(
                "hear from a holder",
                format!("it said `{one}`, `{two}`"),
            )),
        }
    }
}

fn forward(ipv6: bool) -> Result<(), Failure> {
    let mut switches = vec!["/proc/sys/net/ipv4/ip_forward"];
    if ipv6 {
        switches.push("/proc/sys/net/ipv6/conf/all/forwarding");
    }
    switches
        .into_iter()
        .try_for_each(|path| fs::write(path, "1").step(path))
}

fn router(ipv6: bool) -> Vec<String> {
    let mut lines = vec![
        "link set lo up".to_owned(),
        // No forwarding delay: there is no loop to learn about.
        "link add lan type bridge forward_delay 0 mcast_snooping 0".to_owned(),
    ];
    lines.extend(at::PUBLIC_V4.map(|address| format!("addr add {address}/32 dev lo")));
    lines.extend(at::LAN_V4.map(|address| format!("addr add {address}/24 brd + dev lan")));
    lines.push(format!("route add blackhole {}/32", at::BLACKHOLE_V4));
    lines.push(format!("route add unreachable {}/32", at::UNREACHABLE_V4));
    if ipv6 {
        lines.extend(at::PUBLIC_V6.map(|address| format!("addr add {address}/128 dev lo nodad")));
        lines.extend(at::LAN_V6.map(|address| format!("addr add {address}/64 dev lan nodad")));
        lines.push(format!("route add blackhole {}/128", at::BLACKHOLE_V6));
    }
    lines.push("link set lan up".to_owned());
    lines
}

/// A cable from each node's `eth0` to a port of the bridge, named as the node.
fn cables(holders: &[u32]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, pid) in holders.iter().enumerate() {
        let name = format!("n{}", index.saturating_add(1));
        lines.push(format!(
            "link add {name} type veth peer name eth0 netns {pid}"
        ));
        lines.push(format!("link set {name} master lan"));
        lines.push(format!("link set {name} up"));
    }
    lines
}

/// Does what the owner's lines say, until they end.
fn obey(servers: &Servers) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match order(servers, &line) {
            Ok(()) => tell(&Line::Done),
            Err(failure) => tell(&failure.line()),
        }
    }
}

fn order(servers: &Servers, line: &str) -> Result<(), Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["link", node, state @ ("up" | "down")] => {
            ip("change a cable", &[format!("link set {node} {state}")])
        }
        ["name", name, records @ ..] => {
            let records: Vec<_> = records
                .iter()
                .map(|record| servers::Record::parse(record))
                .collect::<Option<_>>()
                .ok_or_else(|| Failure::new("set a name", "a record is an address or `>name`"))?;
            servers.set_name(name, records);
            Ok(())
        }
        _ => Err(Failure::new("obey", format!("there is no order `{line}`"))),
    }
}
