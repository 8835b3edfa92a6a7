//! A voice-like server both ways: a page on the host's loopback, and two TLS
//! WebSockets outwards by name, behind the gate and at l1.5. The program is the
//! same, and knows nothing of either.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld};
use serde_json::Value;

use crate::common::{LIMIT, flows, world};

const SERVER: &str = include_str!("voice_server.py");
const NAMES: [&str; 2] = ["live.example", "realtime.example"];
/// How long the sockets are listened to.
const A_WHILE: Duration = Duration::from_secs(3);

/// Starts the server in a box.
fn start(world: &TestWorld, words: &[&str]) -> Running {
    let node = world.node("n1").unwrap();
    let trusted = node.home().join("authority.pem");
    std::fs::copy(world.certificate(), &trusted).unwrap();
    let trusted = trusted.display().to_string();
    let (grant, env) = (format!("{trusted}:ro"), format!("SSL_CERT_FILE={trusted}"));
    let mut all = vec!["run", "--name", "voice", "--grant", &grant, "--env", &env];
    all.extend(words);
    all.extend(["--", "python3", "-c", SERVER]);
    let running = world.start("n1", &all);
    // And no proxy variable stands in its environment.
    running.wait_line(LIMIT, |line| line == "listening []");
    running
}

fn get(world: &TestWorld, path: &str) -> String {
    let words = format!("curl -sS -m 10 --noproxy '*' http://127.0.0.1:8080{path}");
    world.sh("n1", &words).ok().stdout
}

fn state(world: &TestWorld) -> Value {
    serde_json::from_str(&get(world, "/state")).unwrap()
}

/// The page is there, and both sockets go on in both directions; how many
/// requests that took.
fn goes_on(world: &TestWorld) -> usize {
    assert_eq!(get(world, "/"), "the page\n");
    let (mut requests, mut before) = (2, state(world));
    let start = Instant::now();
    while start.elapsed() < A_WHILE {
        std::thread::sleep(Duration::from_millis(500));
        let now = state(world);
        requests += 1;
        assert_eq!(now["faults"], Value::Array(vec![]), "{now}");
        for way in ["sent", "heard"] {
            for name in NAMES {
                let count = |state: &Value| state[way][name].as_u64().unwrap();
                assert!(count(&now) > count(&before), "{way} {name}: {before} {now}");
            }
        }
        before = now;
    }
    requests
}

fn rows_of<'a>(rows: &'a [Value], key: &str, value: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row[key] == value).collect()
}

#[test]
fn behind_the_gate_it_speaks_to_its_two_names_and_each_who_comes_is_entered() {
    let (world, _daemons) = world(1);
    let reach = "live.example:443,realtime.example:443";
    let words = ["--reach", reach, "--publish", "8080:8080"];
    let running = start(&world, &words);
    let requests = goes_on(&world);
    // A third name does not exist in there.
    assert!(get(&world, "/third").starts_with("refused: "));
    // Nothing but the node, its launcher and its gate carries it.
    for program in ["socat", "nsenter", "ssh", "pasta", "slirp4netns"] {
        assert!(world.pids("n1", program).is_empty(), "{program}");
    }
    let rows = flows(&world, "n1", "voice");
    let outbound = rows_of(&rows, "direction", "out");
    let (dialled, refused): (Vec<&Value>, Vec<&Value>) =
        outbound.into_iter().partition(|row| row["kind"] == "flow");
    let mut hosts: Vec<&str> = dialled
        .iter()
        .map(|row| row["dst_host"].as_str().unwrap())
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, NAMES, "{rows:#?}");
    for row in dialled {
        assert_eq!((&row["dst_port"], &row["end"]), (&443.into(), &Value::Null));
    }
    assert!(!refused.is_empty());
    for row in refused {
        assert_eq!(row["dst_host"], "third.example", "{row}");
        assert_eq!(row["reason"], "name outside reach");
    }
    let inbound = rows_of(&rows, "direction", "in");
    assert_eq!(inbound.len(), requests + 1, "{rows:#?}");
    for row in inbound {
        assert_eq!(row["rule"], "publish 8080:8080");
        assert_eq!(row["verdict"], "allow");
    }
    let report = world.run("n1", &["report", "voice", "--json"]).ok().json();
    assert_eq!(verdict(&report[0], "network"), "decided");
    drop(running);
}

#[test]
fn with_a_shared_network_the_same_server_works_and_the_report_says_that_it_passes() {
    let (world, _daemons) = world(1);
    let running = start(&world, &["--tier", "l1.5"]);
    goes_on(&world);
    // Nobody decides: the third name is as good as the others.
    assert_eq!(get(&world, "/third"), "connected");
    let report = world.run("n1", &["report", "voice", "--json"]).ok().json();
    assert_eq!(verdict(&report[0], "network"), "passes");
    assert_eq!(report[0]["level"], "l1.5");
    let shown = world.run("n1", &["report", "voice"]).ok().stdout;
    let network = shown.lines().find(|line| line.starts_with("network"));
    assert!(
        network.is_some_and(|line| line.ends_with("passes")),
        "{shown}"
    );
    // It is not claimed that nothing was dialled.
    let shown = world.run("n1", &["flows", "voice"]).ok();
    let said = format!("{}{}", shown.stdout, shown.stderr);
    assert!(said.contains("not seen here: network passes"), "{said}");
    assert!(!said.contains("live.example"), "{said}");
    drop(running);
}

fn verdict<'a>(report: &'a Value, axis: &str) -> &'a str {
    let axes = report["axes"].as_array().unwrap();
    let found = axes.iter().find(|row| row["axis"] == axis).unwrap();
    found["verdict"].as_str().unwrap()
}
