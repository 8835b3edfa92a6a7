//! What a long history costs: writing it, reading it back, starting a node on it,
//! asking for the last hour of it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bailey_docs_store::{DocId, OsEntropy, Pages, Reader, Store, load_or_create_device_keys};
use bailey_model::{BoxId, Timestamp};
use bailey_node::api::{Ask, Failure, Tell};
use bailey_node::client::Client;
use bailey_node::paths::Paths;
use bailey_tests::{TestWorld, run_within, wait_until};
use nix::sys::signal::Signal;

use crate::Effort;
use crate::fill::{self, BUSY};
use crate::inside::{first_line, program};
use crate::places::parse;
use crate::table::{Figure, Mark, Row, Table};

const DAYS: u64 = 30;
/// Entries of the store that is read back.
const BACK: u64 = 100_000;
/// How long a node may take to do anything that is timed here.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a store may take to be written: entries a second at the least.
const SLOWEST: u64 = 3_000;

/// Where a node's user keeps its state.
pub(crate) fn state() -> io::Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").ok_or(io::ErrorKind::NotFound)?;
    let state = PathBuf::from(state).join("bailey");
    std::fs::create_dir_all(&state)?;
    std::fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    Ok(state)
}

/// Writes a store: entries a second, all entries, bytes on the disk, bytes of the
/// envelopes alone.
pub(crate) fn fill(entries: &str, days: &str) -> io::Result<String> {
    let state = state()?;
    let (entries, days) = (
        crate::client::number(entries)?,
        crate::client::number(days)?,
    );
    let filled = fill::fill(&state, entries, days)?;
    let bytes: u64 = ["store.db", "store.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(state.join(name)).ok())
        .map(|meta| meta.len())
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    let rate = filled.entries as f64 / filled.took.as_secs_f64();
    Ok(format!(
        "{rate:.0} {} {bytes} {}",
        filled.entries, filled.sealed
    ))
}

/// Opens the store and reads the busy box: entries, milliseconds, and the most MiB
/// that this process ever held.
pub(crate) fn read_back() -> io::Result<String> {
    let state = state()?;
    let started = Instant::now();
    let keys = load_or_create_device_keys(&state.join("device.key"), None, &mut OsEntropy);
    let keys = keys.map_err(io::Error::other)?;
    let now = Timestamp(u64::MAX / 4);
    let store = Store::open(&state, keys.clone(), now, Box::new(OsEntropy));
    let store = store.map_err(io::Error::other)?;
    let mut reader = Reader::open(&state, keys).map_err(io::Error::other)?;
    let mut entries = 0;
    for number in 1..=4 {
        let doc = DocId::Box(BoxId([number; 16]));
        let mut pages = Pages::new(doc, store.device(), Timestamp(0));
        while let Some(page) = reader.next_page(&mut pages).map_err(io::Error::other)? {
            entries += page.len();
        }
    }
    let took = started.elapsed();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = memory(&status, "VmHWM:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(format!(
        "{entries} {:.1} {most:.1}",
        took.as_secs_f64() * 1e3
    ))
}

/// Starts a node of the user's and asks it for the boxes: milliseconds from its
/// `exec` to the first of them, and the most MiB that it held by then. Then it ends.
pub(crate) fn start_node(bailey: &str) -> io::Result<String> {
    let paths = Paths::from_env().map_err(io::Error::other)?;
    let socket = paths.socket().map_err(io::Error::other)?;
    let started = Instant::now();
    let mut node = Command::new(bailey)
        .arg("node")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // To ask earlier would start another node.
    while UnixStream::connect(&socket).is_err() {
        if started.elapsed() > LIMIT || node.try_wait()?.is_some() {
            return Err(io::Error::other("the node did not start"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let failed = |failure: Failure| io::Error::other(failure.text);
    let mut client = Client::ask(&paths, &Ask::Ps, &[]).map_err(failed)?;
    let Tell::Box(_) = client.receive().map_err(failed)?.value else {
        return Err(io::Error::other("the node has no box"));
    };
    let took = started.elapsed();
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.id()))?;
    let most = memory(&status, "VmHWM:").ok_or(io::ErrorKind::InvalidData)?;
    let pid = i32::try_from(node.id()).map_err(io::Error::other)?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM)?;
    node.wait()?;
    Ok(format!("{:.1} {most:.1}", took.as_secs_f64() * 1e3))
}

/// MiB of a line of `/proc/PID/status` (proc(5)).
pub(crate) fn memory(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}

fn row(name: &'static str, unit: &'static str, bailey: Figure, mark: Option<Mark>) -> Row {
    Row {
        name,
        unit,
        bailey,
        worst: None,
        peers: Vec::new(),
        mark,
    }
}

/// What a client of ours says in a node, as numbers.
fn said<const N: usize>(
    world: &TestWorld,
    node: &str,
    limit: Duration,
    words: &[&str],
) -> [Figure; N] {
    let mut command = world.command(node, &program("bailey-bench"));
    let output = run_within(limit, command.arg("client").args(words));
    let mut said = output.stdout.split_whitespace();
    std::array::from_fn(|_| match said.next() {
        Some(word) => parse(word),
        None => Figure::Failed(first_line(&output.stderr)),
    })
}

pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    small(world, effort, table);
    let (entries, days) = (effort.history.to_string(), DAYS.to_string());
    let limit = LIMIT + Duration::from_secs(effort.history / SLOWEST);
    let [rate, written, bytes, _] = said(world, "n1", limit, &["fill", &entries, &days]);
    let failed = matches!(rate, Figure::Failed(_));
    table.add(row(
        "a history of 30 days is written",
        "entries/s",
        rate,
        None,
    ));
    table.add(row("  its entries", "", written, None));
    table.add(row("  its size on the disk", "MB", of(bytes, 1e-6), None));
    if failed {
        return;
    }
    start(world, effort, table);
    flows(world, effort, table);
}

fn of(figure: Figure, factor: f64) -> Figure {
    match figure {
        Figure::Value(value) => Figure::Value(value * factor),
        other => other,
    }
}

/// What one box's day leaves, written and read back.
fn small(world: &TestWorld, effort: Effort, table: &mut Table) {
    let entries = BACK.to_string();
    let limit = LIMIT + Duration::from_secs(BACK / SLOWEST);
    let [rate, written, bytes, sealed] = said(world, "n2", limit, &["fill", &entries, "1"]);
    table.add(row(
        "journal, document, seal, commit (50 a commit)",
        "entries/s",
        rate,
        Some(Mark::AtLeast(30_000.0)),
    ));
    let each = |of: Figure| match (of, &written) {
        (Figure::Value(bytes), Figure::Value(written)) => Figure::Value(bytes / written),
        (of, _) => of,
    };
    table.add(row(
        "  bytes an entry at rest, sealed",
        "B",
        each(sealed),
        Some(Mark::AtMost(40.0)),
    ));
    table.add(row(
        "  bytes an entry of the whole file",
        "B",
        each(bytes),
        None,
    ));
    let (mut took, mut most) = (Vec::new(), Vec::new());
    for _ in 0..effort.delays.div_ceil(2) {
        let [_, ms, mib] = said(world, "n2", LIMIT, &["read-back"]);
        took.push(ms);
        most.push(mib);
    }
    let mut back = row(
        "100,000 entries: open the store, read them back",
        "ms",
        Figure::median(&took),
        Some(Mark::AtMost(500.0)),
    );
    back.worst = Some(Figure::worst(&took));
    table.add(back);
    table.add(row(
        "  memory of a process that does that, the most",
        "MiB",
        Figure::worst(&most),
        Some(Mark::AtMost(64.0)),
    ));
}

/// From the start of a command to its first line, in milliseconds.
fn first_row(world: &TestWorld, words: &[&str]) -> Figure {
    let started = Instant::now();
    let running = world.start("n1", words);
    let line = loop {
        if !running.stdout().is_empty() {
            break Some(started.elapsed());
        }
        if started.elapsed() > LIMIT {
            break None;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    let figure = match line {
        Some(took) => Figure::Value(took.as_secs_f64() * 1e3),
        None => Figure::Failed(first_line(&running.stderr())),
    };
    drop(running.finish(LIMIT));
    figure
}

/// The node's pid in its world.
fn node_pid(world: &TestWorld) -> Option<u32> {
    let all = world.node("n1").ok()?.processes().ok()?;
    let node = all.into_iter().find(|process| {
        let mut words = process.command.iter();
        words.next().is_some_and(|first| first.ends_with("bailey"))
            && words.next().is_some_and(|second| second == "node")
    });
    node.map(|process| process.pid)
}

/// From `exec` of the node to its first answer.
fn start(world: &TestWorld, effort: Effort, table: &mut Table) {
    let (mut took, mut most) = (Vec::new(), Vec::new());
    for _ in 0..effort.delays {
        let [ms, mib] = said(world, "n1", LIMIT, &["start-node", &program("bailey")]);
        took.push(ms);
        most.push(mib);
    }
    let mut started = row(
        "start of the node on it, exec to first answer",
        "ms",
        Figure::median(&took),
        Some(Mark::AtMost(300.0)),
    );
    started.worst = Some(Figure::worst(&took));
    table.add(started);
    table.add(row(
        "  memory of the node then",
        "MiB",
        Figure::median(&most),
        None,
    ));
}

/// The most MiB that a process ever held.
fn held(world: &TestWorld, pid: u32) -> Option<f64> {
    let said = world.sh("n1", &format!("cat /proc/{pid}/status"));
    memory(&said.stdout, "VmHWM:")
}

fn flows(world: &TestWorld, effort: Effort, table: &mut Table) {
    let node = world.start("n1", &["node"]);
    let up = wait_until(LIMIT, || world.run("n1", &["ps"]).code == Some(0));
    if !up {
        let why = first_line(&node.stderr());
        return table.add(row("flows --since 1h", "ms", Figure::Failed(why), None));
    }
    let all: Vec<Figure> = (0..effort.delays)
        .map(|_| first_row(world, &["flows", BUSY, "--since", "1h"]))
        .collect();
    let mut flows = row(
        "flows --since 1h of its busiest box, first row",
        "ms",
        Figure::median(&all),
        Some(Mark::AtMost(50.0)),
    );
    flows.worst = Some(Figure::worst(&all));
    table.add(flows);
    let held = node_pid(world).and_then(|pid| held(world, pid));
    let held = held.map_or_else(|| Figure::Failed("no node".to_owned()), Figure::Value);
    table.add(row(
        "  memory of the node then, the most",
        "MiB",
        held,
        None,
    ));
    node.signal(Signal::SIGTERM);
    drop(node.finish(LIMIT));
}
