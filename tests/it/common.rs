//! What several subjects need: nodes that run, devices that are paired.

use std::time::Duration;

use bailey_tests::{Output, Running, Terminal, TestWorld, binaries, wait_until};
use serde_json::Value;

/// Longer than anything here takes; a test that waits this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

/// A world whose nodes run a daemon each, named as the nodes are.
pub(crate) fn world(nodes: u8) -> (TestWorld, Vec<Running>) {
    let world = TestWorld::new(nodes);
    let daemons = (1..=nodes)
        .map(|n| daemon(&world, &format!("n{n}")))
        .collect();
    (world, daemons)
}

/// A node's daemon, up.
pub(crate) fn daemon(world: &TestWorld, node: &str) -> Running {
    let daemon = world.start(node, &["node", "--device-name", node]);
    up(world, node, daemon)
}

/// The daemon that was started, once it answers. A command that asked it would
/// start another one.
pub(crate) fn up(world: &TestWorld, node: &str, daemon: Running) -> Running {
    let socket = world
        .node(node)
        .unwrap()
        .dir()
        .join("run/bailey/control.sock");
    let up = wait_until(LIMIT, || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    assert!(up, "the node did not come up:\n{}", daemon.stderr());
    daemon
}

/// Makes the second node a device of the first one's account.
pub(crate) fn pair(world: &TestWorld, host: &str, joiner: &str) {
    let add = world.start(host, &["device", "add", "--yes", "--json"]);
    let code = row_of(&add, |row| row["code"].is_string());
    let code = code["code"].as_str().unwrap().to_owned();
    let joined = world
        .run(joiner, &["device", "join", &code, "--json"])
        .ok()
        .json();
    let words = row_of(&add, |row| row["words"].is_string());
    assert_eq!(
        joined[0]["words"], words["words"],
        "both screens show the same words"
    );
    let output = add.finish(LIMIT).ok();
    assert_eq!(
        output.json().last().unwrap()["account"],
        joined[1]["account"]
    );
    let connected = wait_until(LIMIT, || {
        let rows = world.run(host, &["device", "list", "--json"]).ok().json();
        rows.iter().any(|row| row["connected"] == true)
    });
    assert!(connected, "the devices do not meet");
}

/// Waits for a row.
pub(crate) fn row_of(running: &Running, wanted: impl Fn(&Value) -> bool) -> Value {
    let line = running.wait_line(LIMIT, |line| {
        serde_json::from_str::<Value>(line).is_ok_and(|row| wanted(&row))
    });
    serde_json::from_str(&line).unwrap()
}

/// A box's rows.
pub(crate) fn flows(world: &TestWorld, node: &str, name: &str) -> Vec<Value> {
    world.run(node, &["flows", name, "--json"]).ok().json()
}

/// Runs a shell script in a box.
pub(crate) fn boxed(world: &TestWorld, node: &str, args: &[&str], script: &str) -> Output {
    world.run(node, &in_box(args, script))
}

/// Starts a shell script in a box that goes with its command line, and waits
/// until it runs: the first that it says is `up`.
#[track_caller]
pub(crate) fn attached(world: &TestWorld, node: &str, args: &[&str], script: &str) -> Running {
    let script = format!("echo up; {script}");
    let running = world.start(node, &in_box(args, &script));
    running.wait_line(LIMIT, |line| line == "up");
    running
}

fn in_box<'a>(args: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["run"], args, &["--", "sh", "-c", script]].concat()
}

/// Starts `bailey` with these words in the first node, on a terminal.
pub(crate) fn on_terminal(world: &TestWorld, words: &[&str]) -> Terminal {
    let command = |program: &std::ffi::OsStr| world.node("n1").unwrap().command(program);
    Terminal::start(command, binaries().join("bailey"), words)
}

/// Stops a box, of which nothing may be left; what is said of it.
#[track_caller]
pub(crate) fn stop(world: &TestWorld, node: &str, name: &str) -> Value {
    let row = world
        .run(node, &["stop", name, "--json"])
        .ok()
        .json()
        .remove(0);
    assert_eq!(
        (&row["state"], &row["processes_left"]),
        (&"stopped".into(), &0.into()),
        "{row}"
    );
    row
}

/// Waits until a device knows of a box of another one.
#[track_caller]
pub(crate) fn hears_of(world: &TestWorld, node: &str, name: &str) {
    let heard = wait_until(LIMIT, || {
        let rows = world.run(node, &["ps", "--json"]).ok().json();
        rows.iter().any(|row| row["name"] == name)
    });
    assert!(heard, "{node} does not hear of {name}");
}

/// Processes of launchers, those of boxes that nobody has asked for left out.
pub(crate) fn launchers(world: &TestWorld, node: &str) -> Vec<u32> {
    let processes = world.node(node).unwrap().processes().unwrap();
    let first = |process: &bailey_world::NodeProcess| {
        let word = process.command.first();
        word.is_some_and(|word| word.rsplit('/').next() == Some("bailey-fence"))
    };
    let asked = processes
        .into_iter()
        .filter(|process| first(process) && process.name != "bailey-begun");
    asked.map(|process| process.pid).collect()
}

/// Whether anything of a box is left in a node: its programs, its namespaces.
pub(crate) fn is_clean(world: &TestWorld, node: &str) -> bool {
    let node = world.node(node).unwrap();
    let processes = node.processes().unwrap();
    // Nobody has asked for it yet.
    let begun = |process: &bailey_world::NodeProcess| process.name == "bailey-begun";
    let (waiting, processes): (Vec<_>, Vec<_>) = processes.into_iter().partition(begun);
    let named = |process: &bailey_world::NodeProcess, name: &str| {
        process
            .command
            .first()
            .is_some_and(|word| word.rsplit('/').next() == Some(name))
    };
    let count = |name: &str| {
        processes
            .iter()
            .filter(|process| named(process, name))
            .count()
    };
    let nodes = processes.iter().filter(|process| {
        named(process, "bailey") && process.command.get(1).is_some_and(|word| word == "node")
    });
    // A node keeps one launcher that waits for the next box, with one begun.
    let nodes = nodes.count();
    let launchers = count("bailey-fence") > nodes || waiting.len() > nodes;
    let left = launchers || count("bailey-gate") > 0 || count("sleep") > 0;
    let namespaces: std::collections::BTreeSet<_> = processes
        .iter()
        .map(|process| process.namespaces.clone())
        .collect();
    !left && namespaces.len() <= 1
}

/// What a box's own terminal said of its stop, in numbers: processes ended,
/// processes left, flows reset.
pub(crate) fn stop_told(stderr: &str) -> Option<[u64; 3]> {
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("bailey: stopped "))?;
    let (_, numbers) = line.split_once(": ")?;
    let numbers: Vec<u64> = numbers
        .split(", ")
        .map(|part| part.split(' ').next()?.parse().ok())
        .collect::<Option<_>>()?;
    numbers.try_into().ok()
}
