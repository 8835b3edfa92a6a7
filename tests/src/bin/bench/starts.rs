//! Starting boxes, and what one costs while it does nothing.

use std::time::Duration;

use bailey_tests::{Running, TestWorld, eventually, run_within};
use serde_json::{Value, json};

use crate::Effort;
use crate::inside::{SLACK, first_line, installed, program};
use crate::table::{Figure, Mark, Row, Table};

/// What the peer is asked for: the same kinds of namespaces, the programs
/// read-only, a /proc, a /dev and a /tmp of its own, and to end with its parent.
const BWRAP: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
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
];

/// A tier, and what a peer does that comes closest.
struct Start {
    tier: &'static str,
    row: &'static str,
    peer: &'static str,
    needs: &'static [&'static str],
}

const STARTS: [Start; 3] = [
    Start {
        tier: "l1",
        row: "an l1 box that runs `true`, median",
        peer: "bwrap",
        needs: &["bwrap"],
    },
    Start {
        tier: "l2",
        row: "an l2 box that runs `true`, median",
        peer: "bwrap",
        needs: &["bwrap"],
    },
    Start {
        tier: "gated",
        row: "a gated box that runs `true`, median",
        peer: "bwrap+pasta",
        needs: &["bwrap", "pasta"],
    },
];

impl Start {
    fn ours(&self) -> Value {
        json!([
            program("bailey"),
            "run",
            "-q",
            "--tier",
            self.tier,
            "--",
            "/usr/bin/true"
        ])
    }

    fn theirs(&self) -> Option<Value> {
        if !self.needs.iter().all(|needed| installed(needed)) {
            return None;
        }
        Some(json!(bwrap(self.tier, &["/usr/bin/true"])))
    }
}

/// The peer's words for a tier.
fn bwrap(tier: &str, command: &[&'static str]) -> Vec<&'static str> {
    let mut words: Vec<&str> = match tier {
        "gated" => vec!["pasta", "--config-net", "--quiet", "--", "bwrap"],
        _ => vec!["bwrap"],
    };
    words.extend(BWRAP);
    if tier == "l2" {
        words.push("--unshare-net");
    }
    words.push("--");
    words.extend(command);
    words
}

/// From the command typed to its end, where the command does nothing. All kinds
/// in turn, with a node running.
pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    let mut commands = json!({ "none": ["/usr/bin/true"] });
    for start in &STARTS {
        commands[format!("bailey {}", start.tier)] = start.ours();
        if let Some(theirs) = start.theirs() {
            commands[format!("peer {}", start.tier)] = theirs;
        }
    }
    let mut command = world.command("n1", &program("bailey-bench"));
    let rounds = effort.starts.to_string();
    command.args(["client", "interleave", &rounds, &commands.to_string()]);
    let output = run_within(SLACK * 9, &mut command);
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    let figure = |name: &str| figure(&said, name);
    for start in &STARTS {
        let peer = match start.theirs() {
            Some(_) => figure(&format!("peer {}", start.tier)),
            None => Figure::NotInstalled,
        };
        table.add(Row {
            name: start.row,
            unit: "ms",
            bailey: figure(&format!("bailey {}", start.tier)),
            worst: None,
            peers: vec![(start.peer, peer), ("no box", figure("none"))],
            mark: Some(Mark::AtMostOfFirst(1.0)),
        });
    }
    memory(world, table);
}

fn figure(said: &Value, name: &str) -> Figure {
    if let Some(why) = said["failed"][name].as_str() {
        return Figure::Failed(first_line(why));
    }
    let took = said["took"][name]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64);
    Figure::median(&took.map(Figure::Value).collect::<Vec<_>>())
}

/// What the processes of an idle box take, the node apart, which all boxes share.
fn memory(world: &TestWorld, table: &mut Table) {
    let gated = |word: &str| {
        let mut run = world.bailey("n1");
        run.args(["run", "-q", "--name", "idle", "--", "/bin/sleep", word]);
        let names = ["bailey-fence", "bailey-gate", "sleep"];
        // A launcher that waits for the next box is counted too.
        held(world, Running::start(&mut run), word, &names)
    };
    table.add(Row {
        name: "memory of an idle gated box's own (RssAnon)",
        unit: "MiB",
        bailey: gated("86401.25"),
        worst: None,
        peers: Vec::new(),
        mark: None,
    });
}

/// What is theirs alone (RssAnon of proc_pid_status) of all that came with it:
/// other sizes of a process that is not dumpable are not for others to read.
fn held(world: &TestWorld, running: Running, word: &str, names: &[&str]) -> Figure {
    let Ok(node) = world.node("n1") else {
        return Figure::Failed("no node".to_owned());
    };
    let all = || node.processes().unwrap_or_default();
    let sleeps = || {
        all().iter().any(|process| {
            let mut words = process.command.iter();
            words.next().is_some_and(|first| first.ends_with("sleep"))
                && words.next().is_some_and(|second| second == word)
        })
    };
    if eventually(Duration::from_secs(10), || sleeps().then_some(())).is_none() {
        return Figure::Failed(first_line(&running.stderr()));
    }
    // What starting it took is given back.
    std::thread::sleep(Duration::from_millis(500));
    let said = world.sh("n1", "grep -H RssAnon /proc/[0-9]*/status").stdout;
    let of = |pid: u32| {
        let start = format!("/proc/{pid}/status:RssAnon:");
        let line = said.lines().find_map(|line| line.strip_prefix(&start))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let mut kib = 0.0;
    for process in all() {
        let mut words = process.command.iter().map(String::as_str);
        let (first, second) = (words.next().unwrap_or_default(), words.next());
        // The client at the terminal is part of it; the node is every box's.
        let client = first.ends_with("bailey") && second == Some("run");
        if !client && !names.iter().any(|name| first.ends_with(name)) {
            continue;
        }
        match of(process.pid) {
            Some(number) => kib += number,
            None => return Figure::Failed(format!("no memory of {first}")),
        }
    }
    drop(running);
    Figure::Value(kib / 1024.0)
}
