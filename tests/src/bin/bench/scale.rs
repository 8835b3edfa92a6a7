//! What many flows cost: time a packet, memory, descriptors; and what an idle box
//! costs.

use std::io::Write as _;
use std::process::ChildStdin;
use std::time::Duration;

use bailey_tests::{Running, TestWorld, eventually};

use crate::Effort;
use crate::inside::{SLACK, first_line, program};
use crate::places::{gated, parse};
use crate::server::Server;
use crate::table::{Figure, Mark, Row, Table};

/// Round trips of one measurement.
const TRIPS: u32 = 4000;
/// Idle flows to compare with.
const FEW: u32 = 10;
/// Measurements of each, in turn.
const ROUNDS: usize = 5;
/// What was freed goes back, what was told is entered and sealed.
const SETTLE: Duration = Duration::from_secs(2);

/// A box with idle flows, and its gate.
#[derive(Debug)]
struct Held {
    running: Running,
    tell: ChildStdin,
    gate: u32,
    heard: usize,
}

impl Held {
    fn start(world: &TestWorld, server: &Server, count: u32) -> Result<Self, String> {
        let before = world.pids("n1", "bailey-gate");
        let mut command = gated(world, "local", &program("bailey-bench"));
        let [hold, echo, tick] = ["hold", "echo", "tick"].map(|name| server.at(name));
        command.args(["client", "stay", &hold, &echo, &tick, &count.to_string()]);
        let mut running = Running::start(&mut command);
        let tell = running.take_stdin().ok_or("it has no input")?;
        let up = eventually(SLACK, || running.stdout().contains("open").then_some(()));
        let gates = world.pids("n1", "bailey-gate");
        let gate = gates.into_iter().find(|pid| !before.contains(pid));
        match (up, gate) {
            (Some(()), Some(gate)) => Ok(Self {
                running,
                tell,
                gate,
                heard: 0,
            }),
            _ => Err(first_line(&running.stderr())),
        }
    }

    /// Has the client do something; the number that it says.
    fn order(&mut self, words: &str) -> Figure {
        if writeln!(self.tell, "{words}").is_err() {
            return Figure::Failed(first_line(&self.running.stderr()));
        }
        let at = self.heard;
        self.heard += 1;
        let said = eventually(SLACK * 4, || {
            let said = self.running.stdout();
            let mut done = said.lines().filter_map(|line| line.strip_prefix("done "));
            done.nth(at).map(str::to_owned)
        });
        match said {
            Some(word) => parse(&word),
            None => Figure::Failed(first_line(&self.running.stderr())),
        }
    }

    /// Microseconds that the gate ran for a round trip.
    fn cost(&mut self, world: &TestWorld) -> Figure {
        let before = ran(world, &[self.gate]);
        if let Figure::Failed(why) = self.order(&format!("trips {TRIPS}")) {
            return Figure::Failed(why);
        }
        match (before, ran(world, &[self.gate])) {
            (Some(before), Some(after)) => Figure::Value((after - before) * 1e6 / f64::from(TRIPS)),
            _ => Figure::Failed("the gate is gone".to_owned()),
        }
    }
}

/// Seconds that processes have run so far (`schedstat`, proc(5)).
fn ran(world: &TestWorld, pids: &[u32]) -> Option<f64> {
    let files = pids.iter().map(|pid| format!("/proc/{pid}/schedstat "));
    let files: String = files.collect();
    let said = world.sh("n1", &format!("cat {files}")).stdout;
    let nanos: Option<Vec<f64>> = said
        .lines()
        .map(|line| line.split(' ').next()?.parse().ok())
        .collect();
    let nanos = nanos.filter(|all| all.len() == pids.len())?;
    Some(nanos.iter().sum::<f64>() / 1e9)
}

/// What a process holds: MiB of its memory (its part of what is shared), and
/// descriptors. Only the world's root may look at those that keep to themselves.
fn holds(world: &TestWorld, pid: u32) -> Result<[f64; 2], String> {
    let script = format!("grep ^Pss: /proc/{pid}/smaps_rollup && ls /proc/{pid}/fd | wc -l");
    let node = world.node("n1").map_err(|error| error.to_string())?;
    let mut command = node.root_command("sh");
    let output = bailey_tests::run(command.args(["-c", &script]));
    let mut numbers = output
        .stdout
        .split_whitespace()
        .filter_map(|word| word.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(kib), Some(files)) => Ok([kib / 1024.0, files]),
        _ => Err(first_line(&output.stderr)),
    }
}

fn node_pid(world: &TestWorld) -> Result<u32, String> {
    let node = world.node("n1").map_err(|error| error.to_string())?;
    let all = node.processes().map_err(|error| error.to_string())?;
    let of_node = |words: &[String]| {
        words.first().is_some_and(|first| first.ends_with("bailey"))
            && words.get(1).is_some_and(|second| second == "node")
    };
    let found = all.iter().find(|process| of_node(&process.command));
    found
        .map(|process| process.pid)
        .ok_or_else(|| "no node runs".to_owned())
}

/// Gate and node, each.
fn both(world: &TestWorld, gate: u32) -> Result<[[f64; 2]; 2], String> {
    Ok([holds(world, gate)?, holds(world, node_pid(world)?)?])
}

pub(crate) fn measure(world: &TestWorld, server: &Server, effort: Effort, table: &mut Table) {
    if let Err(why) = flows(world, server, effort, table) {
        table.add(plain("many flows", "", Figure::Failed(why), None));
    }
    table.add(plain(
        "processor of an idle gated box, without the node",
        "%",
        idle(world, effort).unwrap_or_else(Figure::Failed),
        Some(Mark::AtMost(0.05)),
    ));
}

fn plain(name: &'static str, unit: &'static str, bailey: Figure, mark: Option<Mark>) -> Row {
    Row {
        name,
        unit,
        bailey,
        worst: None,
        peers: Vec::new(),
        mark,
    }
}

fn flows(
    world: &TestWorld,
    server: &Server,
    effort: Effort,
    table: &mut Table,
) -> Result<(), String> {
    let mut few = Held::start(world, server, FEW)?;
    std::thread::sleep(SETTLE / 2);
    let [gate, node] = both(world, few.gate)?;
    let mut many = Held::start(world, server, effort.idle)?;
    std::thread::sleep(SETTLE);
    let [gate_after, node_after] = both(world, many.gate)?;
    for (name, more, mark) in [
        (
            "memory for 10,000 idle flows, of the gate",
            gate_after[0] - gate[0],
            Some(Mark::AtMost(300.0)),
        ),
        (
            "memory for 10,000 idle flows, of the node",
            node_after[0] - node[0],
            None,
        ),
    ] {
        table.add(plain(name, "MiB", Figure::Value(more), mark));
    }
    let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        with_few.push(few.cost(world));
        with_many.push(many.cost(world));
    }
    let mut row = plain(
        "gate's time a round trip beside 10,000 flows",
        "us",
        Figure::median(&with_many),
        Some(Mark::AtMostOfFirst(1.1)),
    );
    row.peers = vec![("10 flows", Figure::median(&with_few))];
    table.add(row);
    drop(many);
    short_ones(world, few, effort, table)
}

fn short_ones(
    world: &TestWorld,
    mut held: Held,
    effort: Effort,
    table: &mut Table,
) -> Result<(), String> {
    // What the first thousand leave is what the rest is measured against.
    held.order("short 2000");
    std::thread::sleep(SETTLE);
    let [gate, node] = both(world, held.gate)?;
    let rate = held.order(&format!("short {}", effort.ticks));
    std::thread::sleep(SETTLE);
    let [gate_after, node_after] = both(world, held.gate)?;
    table.add(plain("short flows, 100,000 of them", "/s", rate, None));
    for (name, unit, more, mark) in [
        (
            "  memory they leave in the gate",
            "MiB",
            gate_after[0] - gate[0],
            20.0,
        ),
        (
            "  memory they leave in the node",
            "MiB",
            node_after[0] - node[0],
            20.0,
        ),
        (
            "  descriptors they leave in the gate",
            "",
            gate_after[1] - gate[1],
            0.0,
        ),
        (
            "  descriptors they leave in the node",
            "",
            node_after[1] - node[1],
            4.0,
        ),
    ] {
        table.add(plain(
            name,
            unit,
            Figure::Value(more),
            Some(Mark::AtMost(mark)),
        ));
    }
    Ok(())
}

/// Per cent of one processor, of everything that came with an idle box.
fn idle(world: &TestWorld, effort: Effort) -> Result<Figure, String> {
    let mut run = world.bailey("n1");
    run.args(["run", "-q", "--name", "still", "--", "/bin/sleep", "86403"]);
    let running = Running::start(&mut run);
    let up = eventually(SLACK, || {
        let pids = world.pids("n1", "sleep");
        (!pids.is_empty()).then_some(())
    });
    if up.is_none() {
        return Err(first_line(&running.stderr()));
    }
    std::thread::sleep(SETTLE);
    let names = ["bailey-fence", "bailey-gate", "sleep"];
    let pids: Vec<u32> = names
        .iter()
        .flat_map(|name| world.pids("n1", name))
        .collect();
    let before = ran(world, &pids).ok_or("a process is gone")?;
    std::thread::sleep(effort.idle_for);
    let after = ran(world, &pids).ok_or("a process is gone")?;
    Ok(Figure::Value(
        100.0 * (after - before) / effort.idle_for.as_secs_f64(),
    ))
}
