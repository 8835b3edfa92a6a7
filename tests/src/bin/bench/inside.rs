//! Figures of one node: starting a box, connections.

use std::time::Duration;

use bailey_tests::{TestWorld, binaries, run_within};
use serde_json::{Value, json};

use crate::table::{Figure, Row, Table};
use crate::{Effort, streams};

/// Beyond what is measured, for the start of a place.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

/// Measures everything that one node suffices for.
pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    starts(world, effort, table);
    streams::to_the_node_itself(world, effort, table);
    streams::to_the_router(world, effort, table);
    for (name, threads) in [
        ("fetches, one after the other", "1"),
        ("fetches, 16 at a time", "16"),
    ] {
        let [direct, pasta, bailey] = streams::fetches(world, effort, threads);
        let peers = vec![("no box", direct), ("pasta", pasta)];
        table.add(Row {
            name,
            unit: "/s",
            bailey,
            worst: None,
            peers,
            mark: None,
        });
    }
}

/// Whether a program is on this machine.
pub(crate) fn installed(program: &str) -> bool {
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

pub(crate) fn program(name: &str) -> String {
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
        worst: None,
        peers: vec![("bwrap", bwrap), ("no box", figure("none"))],
        mark: None,
    });
}

pub(crate) fn first_line(text: &str) -> String {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .to_owned()
}
