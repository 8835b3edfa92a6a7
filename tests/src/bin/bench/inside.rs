//! Figures of one node: starting a box, streams, connections.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use bailey_tests::{TestWorld, binaries, run_within};
use bailey_world::at;
use serde_json::{Value, json};

use crate::Effort;
use crate::table::{Figure, Mark, Row, Table};

/// Beyond what is measured, for the start of a place.
const SLACK: Duration = Duration::from_secs(20);

/// Measures everything that one node suffices for.
pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    starts(world, effort, table);
    streams(world, effort, table);
    for (name, threads) in [
        ("fetches, one after the other", "1"),
        ("fetches, 16 at a time", "16"),
    ] {
        let to = format!("{}:{}", at::WEB_V4, at::port::HTTP);
        let millis = effort.stream.as_millis().to_string();
        let [direct, pasta, bailey] = places(world, effort, &["fetch", &to, &millis, threads])
            .map(|all| Figure::median(&all));
        let peers = vec![("no box", direct), ("pasta", pasta)];
        table.add(Row {
            name,
            unit: "/s",
            bailey,
            peers,
            mark: None,
        });
    }
}

/// Whether a program is on this machine.
fn installed(program: &str) -> bool {
    let folders = [
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/local/sbin",
        "/usr/sbin",
        "/sbin",
    ];
    folders
        .iter()
        .any(|folder| std::path::Path::new(folder).join(program).is_file())
}

fn program(name: &str) -> String {
    binaries().join(name).to_string_lossy().into_owned()
}

/// From the command typed to its end, where the command does nothing.
fn starts(world: &TestWorld, effort: Effort, table: &mut Table) {
    let bwrap = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/usr",
        "/usr",
        "--symlink",
        "usr/bin",
        "/bin",
        "--symlink",
        "usr/lib",
        "/lib",
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--",
        "/usr/bin/true",
    ];
    let mut commands = json!({
        "bailey": [program("bailey"), "run", "-q", "--reach", "nothing", "--", "/usr/bin/true"],
        "none": ["/usr/bin/true"],
    });
    if installed("bwrap") {
        commands["bwrap"] = json!(bwrap);
    }
    let mut command = world.command("n1", &program("bailey-bench"));
    let rounds = effort.starts.to_string();
    command.args(["client", "interleave", &rounds, &commands.to_string()]);
    let output = run_within(SLACK * 6, &mut command);
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    let figure = |name: &str| {
        if let Some(why) = said["failed"][name].as_str() {
            return Figure::Failed(first_line(why));
        }
        let took = said["took"][name]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_f64);
        Figure::median(&took.map(Figure::Value).collect::<Vec<_>>())
    };
    let bwrap = if installed("bwrap") {
        figure("bwrap")
    } else {
        Figure::NotInstalled
    };
    table.add(Row {
        name: "a gated box that runs `true`, median",
        unit: "ms",
        bailey: figure("bailey"),
        peers: vec![("bwrap", bwrap), ("no box", figure("none"))],
        mark: None,
    });
}

fn streams(world: &TestWorld, effort: Effort, table: &mut Table) {
    let millis = effort.stream.as_millis().to_string();
    let (mut out, mut back) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        let output = client(
            world.command("n1", &program("bailey-bench")),
            effort,
            &["loopback", &millis],
        );
        let mut numbers = output.iter().flat_map(|line| line.split(' ')).map(parse);
        let missing = || Figure::Failed(output.as_ref().err().cloned().unwrap_or_default());
        out.push(numbers.next().unwrap_or_else(missing));
        back.push(numbers.next().unwrap_or_else(missing));
    }
    for (name, role, port, loopback) in [
        (
            "one TCP stream out of the box",
            "send",
            at::port::DISCARD,
            out,
        ),
        (
            "one TCP stream into the box",
            "receive",
            at::port::SOURCE,
            back,
        ),
    ] {
        let to = format!("{}:{port}", at::WEB_V4);
        let [direct, pasta, bailey] =
            places(world, effort, &[role, &to, &millis]).map(|all| Figure::median(&all));
        let loopback = Figure::median(&loopback);
        let peers = vec![
            ("no box", direct),
            ("pasta", pasta),
            ("127.0.0.1", loopback),
        ];
        let mark = Some(Mark::OfFirst(0.5));
        table.add(Row {
            name,
            unit: "Gbit/s",
            bailey,
            peers,
            mark,
        });
    }
}

/// The same client without a box, in pasta and in a box, in turn.
fn places(world: &TestWorld, effort: Effort, words: &[&str]) -> [Vec<Figure>; 3] {
    let bench = program("bailey-bench");
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..effort.rounds {
        let [direct, pasta, bailey] = &mut all;
        direct.push(one(world.command("n1", &bench), effort, words));
        pasta.push(if installed("pasta") {
            let mut command = world.command("n1", "pasta");
            command.args(["--config-net", "--quiet", "--", &bench]);
            one(command, effort, words)
        } else {
            Figure::NotInstalled
        });
        let mut command = world.bailey("n1");
        let grant = format!("{}:ro", binaries().display());
        command.args([
            "run", "-q", "--reach", "internet", "--grant", &grant, "--", &bench,
        ]);
        bailey.push(one(command, effort, words));
    }
    all
}

fn one(command: Command, effort: Effort, words: &[&str]) -> Figure {
    match client(command, effort, words) {
        Ok(line) => parse(&line),
        Err(why) => Figure::Failed(why),
    }
}

fn client(mut command: Command, effort: Effort, words: &[&str]) -> Result<String, String> {
    command.arg("client").args(words.iter().map(OsStr::new));
    let output = run_within(effort.stream + SLACK, &mut command);
    match output.code {
        Some(0) => Ok(output.stdout.trim().to_owned()),
        code => Err(format!("code {code:?}: {}", first_line(&output.stderr))),
    }
}

fn parse(word: &str) -> Figure {
    word.parse().map_or_else(
        |_| Figure::Failed(format!("it said `{word}`")),
        Figure::Value,
    )
}

pub(crate) fn first_line(text: &str) -> String {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .to_owned()
}
