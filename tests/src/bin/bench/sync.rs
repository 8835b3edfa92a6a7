//! Figures of sync: how soon a notice and a receipt are there, what it costs to
//! catch up on weeks of entries, how soon a device is heard again at another address.

use std::io;
use std::time::{Duration, Instant};

use bailey_docs_store::{DocId, OsEntropy, Reader, Store, Urgency, load_or_create_device_keys};
use bailey_model::{BoxId, Event, Gap, Timestamp};
use bailey_tests::{TestWorld, run_within, wait_until};
use bailey_world::at;

use crate::Effort;
use crate::across::{self, Devices};
use crate::history::{memory, state};
use crate::inside::{first_line, program};
use crate::table::{Figure, Mark, Row, Table};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long catching up may take at most.
const CATCH_UP: Duration = Duration::from_secs(300);
/// Nothing more came for so long: it is all there.
const QUIET: Duration = Duration::from_secs(3);
/// Days that the entries to catch up on are of.
const DAYS: &str = "10";
/// Ticks of a processor's time in a second (`proc_pid_stat(5)`).
const TICKS: f64 = 100.0;
/// Entries that are sealed to see what one costs.
const SEALED: u64 = 20_000;
/// Times that the other device's address changes.
const MOVES: usize = 10;
/// Host number of the first address that no node of a world has.
const ELSEWHERE: u8 = 77;

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

pub(crate) fn measure(effort: Effort, table: &mut Table) {
    catch_up(&TestWorld::new(2), effort, table);
    sealing(&TestWorld::new(1), table);
    delays(&TestWorld::new(2), effort, table);
}

/// Of a hundred, the one that only one is above.
fn p99(all: &[Figure]) -> Figure {
    let mut values = Vec::new();
    for figure in all {
        match figure {
            Figure::Value(value) => values.push(*value),
            other => return other.clone(),
        }
    }
    values.sort_by(f64::total_cmp);
    let above = values.len() / 100 + 1;
    let at = values.len().checked_sub(above.min(values.len()));
    let found = at.and_then(|at| values.get(at)).copied();
    found.map_or_else(
        || Figure::Failed("nothing was measured".to_owned()),
        Figure::Value,
    )
}

fn delays(world: &TestWorld, effort: Effort, table: &mut Table) {
    let devices = Devices::join(world);
    let take = |times: usize, figure: across::Delay| -> Vec<Figure> {
        let each = |round| match &devices {
            Ok(_) => figure(world, round).map_or_else(Figure::Failed, Figure::Value),
            Err(why) => Figure::Failed(why.clone()),
        };
        (0..times).map(each).collect()
    };
    for (name, figure, most) in [
        (
            "dial to its notice on a connected device, p99",
            across::notice as across::Delay,
            150.0,
        ),
        ("stop sent to its receipt there, p99", receipt, 250.0),
    ] {
        let all = take(effort.syncs, figure);
        table.add(Row {
            worst: Some(Figure::worst(&all)),
            ..row(name, "ms", p99(&all), Some(Mark::AtMost(most)))
        });
    }
    let moved = take(MOVES, moved);
    table.add(Row {
        worst: Some(Figure::worst(&moved)),
        ..row(
            "the other's address changed to a notice there, median",
            "ms",
            Figure::median(&moved),
            Some(Mark::WorstAtMost(1000.0)),
        )
    });
}

/// Milliseconds from the command typed on the other device to its end, which comes
/// with the receipt.
fn receipt(world: &TestWorld, round: usize) -> Result<f64, String> {
    let name = format!("receipt-{round}");
    let run = ["run", "-q", "--name", &name, "--", "/bin/sleep", "86405"];
    let running = world.start("n1", &run);
    let known = || world.run("n2", &["ps", "--json"]).stdout.contains(&name);
    if !wait_until(LIMIT, known) {
        return Err(format!(
            "the other device did not hear of the box: {}",
            first_line(&running.stderr())
        ));
    }
    let started = Instant::now();
    let stopped = world.run("n2", &["stop", "--json", &name]);
    let took = started.elapsed();
    match stopped.code {
        Some(0) => Ok(took.as_secs_f64() * 1e3),
        _ => Err(format!("stop: {}", first_line(&stopped.stderr))),
    }
}

/// Milliseconds from the moment at which the other device has another address to the
/// line of a notice there; a follower's and a box's start are among them.
fn moved(world: &TestWorld, round: usize) -> Result<f64, String> {
    let node = world.node("n2").map_err(|error| error.to_string())?;
    let host = u8::try_from(round).map_err(|error| error.to_string())?;
    let new = at::node_v4(ELSEWHERE + host);
    let script = format!(
        "ip -4 addr flush dev eth0 && ip addr add {new}/24 dev eth0 && \
         ip route replace default via {}",
        at::ROUTER_V4
    );
    let mut change = node.root_command("sh");
    let changed = run_within(LIMIT, change.args(["-c", &script]));
    if changed.code != Some(0) {
        return Err(format!("ip: {}", first_line(&changed.stderr)));
    }
    let started = Instant::now();
    across::notice(world, 1_000_000 + round)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Bytes that crossed a node's devices other than its own loopback, both ways, with all
/// headers (`/proc/net/dev`, proc(5)).
fn crossed(world: &TestWorld, node: &str) -> Option<u64> {
    let said = world.sh(node, "cat /proc/net/dev").stdout;
    let lines = said.lines().filter_map(|line| line.trim().split_once(':'));
    let others = lines.filter(|(name, _)| *name != "lo");
    others
        .map(|(_, counts)| {
            let mut counts = counts.split_whitespace().map(str::parse::<u64>);
            let (came, went) = (counts.next()?, counts.nth(7)?);
            Some(came.ok()? + went.ok()?)
        })
        .sum()
}

/// Seconds of processor that a node's process has used, all its threads.
fn used(world: &TestWorld, node: &str) -> Option<f64> {
    let pid = *world.pids(node, "bailey").first()?;
    used_by(&world.sh(node, &format!("cat /proc/{pid}/stat")).stdout)
}

/// The most MiB that a node's process ever held.
fn held(world: &TestWorld, node: &str) -> Option<f64> {
    let pid = *world.pids(node, "bailey").first()?;
    memory(
        &world.sh(node, &format!("cat /proc/{pid}/status")).stdout,
        "VmHWM:",
    )
}

/// Seconds of processor from a process's `/proc/PID/stat`.
pub(crate) fn used_by(said: &str) -> Option<f64> {
    // Behind the name, which may hold anything: fields from the third on.
    let (_, fields) = said.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// A device is added to one that has weeks of entries.
fn catch_up(world: &TestWorld, effort: Effort, table: &mut Table) {
    match caught_up(world, effort) {
        Ok(figures) => {
            let cost = Some(Mark::AtMost(5.0));
            let of = [
                ("entries caught up on by a new device", "", None),
                (
                    "  bytes on the wire, both ways, headers included",
                    "MB",
                    Some(Mark::AtMost(20.0)),
                ),
                ("  processor's time of who has them", "s", cost),
                ("  processor's time of who gets them", "s", cost),
                (
                    "  from both up to the last of them, pairing included",
                    "s",
                    None,
                ),
                ("  memory of who has them, the most", "MiB", None),
                ("  memory of who gets them, the most", "MiB", None),
            ];
            for ((name, unit, mark), figure) in of.into_iter().zip(figures) {
                table.add(row(name, unit, figure, mark));
            }
        }
        Err(why) => table.add(row("catching up", "", Figure::Failed(why), None)),
    }
}

fn caught_up(world: &TestWorld, effort: Effort) -> Result<[Figure; 7], String> {
    let entries = effort.caught_up.to_string();
    let client = |node: &str, words: &[&str]| {
        let mut command = world.command(node, &program("bailey-bench"));
        let output = run_within(CATCH_UP, command.arg("client").args(words));
        match output.code {
            Some(0) => Ok(output.stdout),
            _ => Err(first_line(&output.stderr)),
        }
    };
    client("n1", &["fill", &entries, DAYS])?;
    let before = |node: &str| used(world, node).unwrap_or(0.0);
    let came = crossed(world, "n2").ok_or("no network devices")?;
    let began = Instant::now();
    let devices = Devices::join(world)?;
    let mut last = (0, Instant::now());
    while last.1.elapsed() < QUIET {
        let now = crossed(world, "n2").ok_or("no network devices")?;
        // What keeps a connection alive is a few hundred bytes.
        if now > last.0 + 20_000 {
            last = (now, Instant::now());
        }
        if began.elapsed() > CATCH_UP {
            return Err("it does not end".to_owned());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let (first, second) = (before("n1"), before("n2"));
    let took = last.1.duration_since(began).as_secs_f64();
    let most = |node: &str| held(world, node).unwrap_or(0.0);
    let most = [most("n1"), most("n2")];
    let bytes = crossed(world, "n2").ok_or("no network devices")? - came;
    drop(devices);
    let counted = client("n2", &["count"])?;
    let counted: f64 = counted.trim().parse().map_err(|_| counted.clone())?;
    #[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
    let (bytes, wanted) = (bytes as f64, effort.caught_up as f64);
    if counted < wanted * 0.95 {
        return Err(format!("only {counted} entries came"));
    }
    let [has, gets] = most;
    let all = [counted, bytes / 1e6, first, second, took, has, gets];
    Ok(all.map(Figure::Value))
}

/// How many entries a store of the user's holds.
pub(crate) fn count() -> io::Result<String> {
    let state = state()?;
    let keys = load_or_create_device_keys(&state.join("device.key"), None, &mut OsEntropy);
    let keys = keys.map_err(io::Error::other)?;
    let mut reader = Reader::open(&state, keys).map_err(io::Error::other)?;
    let mut entries = 0;
    for info in reader.docs().map_err(io::Error::other)? {
        let read = reader.entries(info.doc, None).map_err(io::Error::other)?;
        entries += read.len();
    }
    Ok(entries.to_string())
}

/// What it costs to make envelopes of entries that stand in the journal: document,
/// seal, signature, reading back, and the commit; microseconds an entry.
pub(crate) fn seal_cost() -> io::Result<String> {
    let state = state()?;
    let keys = load_or_create_device_keys(&state.join("device.key"), None, &mut OsEntropy);
    let keys = keys.map_err(io::Error::other)?;
    let mut now = Timestamp(1_800_000_000_000);
    let mut store =
        Store::open(&state, keys, now, Box::new(OsEntropy)).map_err(io::Error::other)?;
    store
        .create_account("bench", now)
        .map_err(io::Error::other)?;
    let mut spent = 0.0;
    for no in 0..SEALED {
        now.0 += 1;
        let reason = format!("entry {no} of those that are sealed");
        let doc = DocId::Box(BoxId([1; 16]));
        store
            .append(doc, Event::Gap(Gap { reason }), now, Urgency::Normal)
            .map_err(io::Error::other)?;
        if (no + 1).is_multiple_of(1000) {
            store.commit(false).map_err(io::Error::other)?;
            let before = own_time()?;
            store.seal_all(now).map_err(io::Error::other)?;
            spent += own_time()? - before;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
    let each = spent / SEALED as f64;
    Ok(format!("{:.3}", each * 1e6))
}

/// Seconds that this thread ran (`schedstat`, proc(5)).
fn own_time() -> io::Result<f64> {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = said.split_whitespace().next().map(str::parse::<f64>);
    match nanos {
        Some(Ok(nanos)) => Ok(nanos / 1e9),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn sealing(world: &TestWorld, table: &mut Table) {
    let mut command = world.command("n1", &program("bailey-bench"));
    let output = run_within(CATCH_UP, command.args(["client", "seal-cost"]));
    let each = match output.code {
        Some(0) => crate::places::parse(output.stdout.trim()),
        _ => Figure::Failed(first_line(&output.stderr)),
    };
    table.add(row(
        "processor's time to seal and sign an entry, in full batches",
        "us",
        each,
        None,
    ));
}
