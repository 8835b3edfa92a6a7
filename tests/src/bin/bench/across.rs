//! Figures of two devices: how long until a notice is there, and until a stop
//! pressed there has ended the last process here.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use bailey_tests::{Running, TestWorld, binaries, eventually, run_within, wait_until};
use bailey_world::at;
use serde_json::Value;

use crate::Effort;
use crate::inside::first_line;
use crate::table::{Figure, Mark, Row, Table};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Measures what needs two devices of one account.
pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    let devices = Devices::join(world);
    for (name, figure) in [
        ("SYN to notice on the other device, median", notice as Delay),
        ("stop pressed there to last process gone here", stop),
    ] {
        let all: Vec<Figure> = (0..effort.delays)
            .map(|round| match devices.as_ref() {
                Ok(_) => figure(world, round).map_or_else(Figure::Failed, Figure::Value),
                Err(why) => Figure::Failed(why.clone()),
            })
            .collect();
        table.add(Row {
            name,
            unit: "ms",
            bailey: Figure::median(&all),
            worst: Some(Figure::worst(&all)),
            peers: Vec::new(),
            mark: Some(Mark::WorstAtMost(1000.0)),
        });
    }
}

/// Takes a delay once, in the round of this number.
pub(crate) type Delay = fn(&TestWorld, usize) -> Result<f64, String>;

/// Two nodes in one account, kept running.
pub(crate) struct Devices {
    _nodes: [Running; 2],
}

impl Devices {
    pub(crate) fn join(world: &TestWorld) -> Result<Self, String> {
        let node = |name, device| world.start(name, &["node", "--device-name", device]);
        let nodes = [node("n1", "laptop"), node("n2", "phone")];
        for (name, node) in ["n1", "n2"].iter().zip(&nodes) {
            let socket = world
                .node(name)
                .map_err(|error| error.to_string())?
                .dir()
                .join("run/bailey/control.sock");
            // No command is asked: it would start a node of its own.
            if !wait_until(LIMIT, || UnixStream::connect(&socket).is_ok()) {
                return Err(format!("{name} is not up: {}", first_line(&node.stderr())));
            }
        }
        let first = at::node_v4(1).to_string();
        let add = world.start(
            "n1",
            &["device", "add", "--yes", "--json", "--addr", &first],
        );
        let code = eventually(LIMIT, || {
            let said = add.stdout();
            let first: Value = serde_json::from_str(said.lines().next()?).ok()?;
            Some(first["code"].as_str()?.to_owned())
        });
        let Some(code) = code else {
            return Err(format!("device add: {}", first_line(&add.stderr())));
        };
        let join = run_within(
            LIMIT,
            world.bailey("n2").args(["device", "join", "--json", &code]),
        );
        if join.code != Some(0) {
            return Err(format!("device join: {}", first_line(&join.stderr)));
        }
        let added = add.finish(LIMIT);
        if added.code != Some(0) {
            return Err(format!("device add: {}", first_line(&added.stderr)));
        }
        let connected = || {
            let rows = world.run("n1", &["device", "list", "--json"]).stdout;
            rows.lines().any(|row| {
                serde_json::from_str::<Value>(row).is_ok_and(|row| row["connected"] == true)
            })
        };
        if wait_until(LIMIT, connected) {
            Ok(Self { _nodes: nodes })
        } else {
            Err("the devices do not meet".to_owned())
        }
    }
}

/// Milliseconds from a box's dial of the LAN to the line on the other device.
pub(crate) fn notice(world: &TestWorld, round: usize) -> Result<f64, String> {
    let name = format!("noticed-{round}");
    let follow = world.start("n2", &["notices", "--json", "--follow"]);
    // The followers of old notices are quiet once those are printed.
    let _settled = wait_until(Duration::from_millis(300), || false);
    let bench = binaries().join("bailey-bench");
    let grant = format!("{}:ro", binaries().display());
    let mut run = world.bailey("n1");
    run.args([
        "run", "-q", "--name", &name, "--reach", "internet", "--grant", &grant, "--",
    ]);
    let printer = format!("{}:{}", at::PRINTER_V4, at::port::HTTP);
    run.arg(bench).args(["client", "dial", &printer]);
    let running = Running::start(&mut run);
    let fits = |line: &str| {
        serde_json::from_str::<Value>(line).is_ok_and(|row| row["box"] == name.as_str())
    };
    let came = eventually(LIMIT, || {
        follow.stdout().lines().any(fits).then(SystemTime::now)
    });
    let output = running.finish(LIMIT);
    let Some(came) = came else {
        return Err(format!("no notice came; {}", first_line(&output.stderr)));
    };
    let nanos: u64 = output
        .stdout
        .trim()
        .parse()
        .map_err(|error| format!("{error}: {}", first_line(&output.stderr)))?;
    let dialled = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    let took = came
        .duration_since(dialled)
        .map_err(|_| "the notice came first".to_owned())?;
    Ok(took.as_secs_f64() * 1e3)
}

/// Milliseconds from the command typed on the other device to the end of the
/// last process of the box. The looks are 1 ms apart.
fn stop(world: &TestWorld, round: usize) -> Result<f64, String> {
    let name = format!("stopped-{round}");
    // Three processes that do not end by themselves, under a word to know them.
    let word = format!("86400.{round}");
    let script = format!("sleep {word} & sleep {word} & exec sleep {word}");
    let run = ["run", "-q", "--name", &name, "--", "/bin/sh", "-c", &script];
    let running = world.start("n1", &run);
    let node = world.node("n1").map_err(|error| error.to_string())?;
    let alive = || {
        let all = node.processes().unwrap_or_default();
        let mut sleeping = all.iter().filter(|process| {
            let mut words = process.command.iter();
            words.next().is_some_and(|first| first == "sleep")
                && words.next().is_some_and(|second| *second == word)
        });
        sleeping.by_ref().count()
    };
    if !wait_until(LIMIT, || alive() == 3) {
        return Err(format!(
            "the box did not start: {}",
            first_line(&running.stderr())
        ));
    }
    let known = || world.run("n2", &["ps", "--json"]).stdout.contains(&name);
    if !wait_until(LIMIT, known) {
        return Err("the other device did not hear of the box".to_owned());
    }
    let start = Instant::now();
    let stop = world.start("n2", &["stop", "--json", &name]);
    let gone = loop {
        if alive() == 0 {
            break start.elapsed();
        }
        if start.elapsed() > LIMIT {
            return Err(format!(
                "it was not stopped: {}",
                first_line(&stop.stderr())
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let stopped = stop.finish(LIMIT);
    if stopped.code == Some(0) {
        Ok(gone.as_secs_f64() * 1e3)
    } else {
        Err(format!("stop: {}", first_line(&stopped.stderr)))
    }
}
