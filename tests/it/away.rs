//! Devices on networks that change, links that lose, and clocks that differ; and one
//! that was away for a month.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, binaries, run, run_within, wait_until};
use bailey_world::at;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, flows, hears_of, pair, stop, up, world};
use crate::requests::state;

pub(crate) const DAY: i64 = 24 * 3600;
/// Longer than what is under way takes when the machine is busy.
const LONG: Duration = Duration::from_secs(60);
const FETCH: &str = "curl -sS -o /dev/null http://shop.example/";

/// A node whose clock is off by so many seconds; so many of them have passed.
pub(crate) fn shifted(world: &TestWorld, node: &str, off: i64, passed: i64) -> Running {
    let mut command = world.bailey(node);
    command.env("BAILEY_TEST_CLOCK", format!("{off}/{passed}"));
    command.args(["node", "--device-name", node]);
    up(world, node, Running::start(&mut command))
}

/// Ends a node as its user would.
pub(crate) fn rest(node: Running) {
    node.signal(Signal::SIGTERM);
    let _left = node.finish(LIMIT).ok();
}

/// As root of a node.
#[track_caller]
fn as_root(world: &TestWorld, node: &str, script: &str) {
    let mut command = world.node(node).unwrap().root_command("sh");
    let done = run(command.args(["-c", script]));
    assert_eq!(done.code, Some(0), "{done}");
}

/// Only IPv4 is left, so that a device has one address.
fn one_address(world: &TestWorld, node: &str) {
    as_root(world, node, "ip -6 addr flush dev eth0");
}

/// The old address is gone, and the new one is there.
fn move_to(world: &TestWorld, node: &str, host: u8) {
    let script = format!(
        "ip -4 addr flush dev eth0 && ip addr add {}/24 dev eth0 && \
         ip route replace default via {}",
        at::node_v4(host),
        at::ROUTER_V4
    );
    as_root(world, node, &script);
}

#[test]
fn a_device_at_another_address_is_heard_within_a_second_whoever_dialled() {
    let world = TestWorld::new(2);
    let nodes = ["n1", "n2"];
    nodes.iter().for_each(|node| one_address(&world, node));
    let _daemons = nodes.map(|node| crate::common::daemon(&world, node));
    pair(&world, "n1", "n2");
    let _box = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    // Whoever moves dials: each moves once as the one that was dialled and once as the
    // one that dialled.
    let mut took = Vec::new();
    for round in 0_u8..12 {
        // Two connections at once are told from two in a row by time.
        std::thread::sleep(Duration::from_millis(2_500));
        let node = nodes[usize::from(round / 2 % 2)];
        move_to(&world, node, 77 + round);
        let changed = Instant::now();
        let verb = ["pause", "resume"][usize::from(round % 2)];
        let done = world.run("n2", &[verb, "yard@n1", "--json"]);
        took.push(changed.elapsed());
        assert_eq!(done.code, Some(0), "{node}: {done}");
    }
    took.sort();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("address changed to a receipt: median {median:?}, most {most:?}");
    assert!(most < Duration::from_secs(1), "{took:?}");
}

/// How many entries the stores of a node's user hold.
fn count(world: &TestWorld, node: &str) -> Option<u64> {
    let bench = binaries().join("bailey-bench");
    let mut command = world.command(node, &bench.to_string_lossy());
    let output = run_within(LONG, command.args(["client", "count"]));
    output.stdout.trim().parse().ok()
}

pub(crate) fn fill(world: &TestWorld, node: &str, entries: &str) {
    let bench = binaries().join("bailey-bench");
    let mut command = world.command(node, &bench.to_string_lossy());
    let filled = run_within(2 * LONG, command.args(["client", "fill", entries, "10"]));
    assert_eq!(filled.code, Some(0), "{filled}");
}

/// Waits until two devices hold as many entries, and says how many those are.
#[track_caller]
pub(crate) fn hold_the_same(world: &TestWorld) -> u64 {
    let mut last = (None, None);
    let same = wait_until(2 * LONG, || {
        last = (count(world, "n1"), count(world, "n2"));
        last.0.is_some() && last.0 == last.1
    });
    assert!(same, "{last:?}");
    last.0.unwrap()
}

#[test]
fn addresses_that_change_while_entries_cross_lose_nothing() {
    let world = TestWorld::new(2);
    let nodes = ["n1", "n2"];
    nodes.iter().for_each(|node| one_address(&world, node));
    fill(&world, "n1", "60000");
    let _daemons = nodes.map(|node| crate::common::daemon(&world, node));
    pair(&world, "n1", "n2");
    for round in 0_u8..6 {
        std::thread::sleep(Duration::from_millis(300));
        move_to(&world, nodes[usize::from(round % 2)], 77 + round);
    }
    assert!(hold_the_same(&world) >= 60_000);
    let check = world.run("n2", &["store", "check"]).ok();
    assert!(check.stdout.contains("all of it holds"), "{check}");
}

/// Every notice of these says that something is wrong with a device.
fn nothing_is_said(world: &TestWorld, node: &str) {
    let wrong = [
        "thinned-early",
        "store-went-back",
        "two-of-one-number",
        "head-withheld",
        "key-misused",
    ];
    let rows = world.run(node, &["notices", "--json"]).ok().json();
    let found: Vec<&Value> = rows
        .iter()
        .filter(|row| wrong.contains(&row["rule"].as_str().unwrap_or_default()))
        .collect();
    assert!(found.is_empty(), "{node}: {found:#?}");
}

/// Waits until both devices say the same of a box.
#[track_caller]
pub(crate) fn same_of(world: &TestWorld, name: &str) -> Vec<Value> {
    let mut last = (Vec::new(), None);
    let same = wait_until(LONG, || {
        let theirs = world.run("n2", &["flows", name, "--json"]);
        last = (flows(world, "n1", name), Some(theirs.to_string()));
        theirs.code == Some(0) && theirs.json() == last.0
    });
    assert!(same, "{name}: {:#?}\n{:?}", last.0, last.1);
    last.0
}

/// What the first device writes while the other one is away: a box each, after so many
/// days.
pub(crate) fn a_month(world: &TestWorld, end: impl Fn(&TestWorld, Running)) -> i64 {
    for (day, name) in [(1, "early"), (12, "late"), (25, "last")] {
        let node = shifted(world, "n1", day * DAY, day * DAY);
        let _ran = boxed(world, "n1", &["-q", "--name", name], FETCH).ok();
        end(world, node);
    }
    32 * DAY
}

/// What both hold after a month: the window of thirty days, and of what left it at the
/// first device a word. The other one has the same, unless it was `given` more.
pub(crate) fn month_is_whole(world: &TestWorld, given: bool) {
    let gone = wait_until(LONG, || {
        let rows = flows(world, "n1", "early");
        rows.iter().any(|row| row["kind"] == "note")
    });
    assert!(gone, "{:#?}", flows(world, "n1", "early"));
    if !given {
        let early = same_of(world, "early");
        assert!(early.iter().all(|row| row["kind"] != "flow"), "{early:#?}");
    }
    for name in ["late", "last"] {
        let rows = same_of(world, name);
        assert!(rows.iter().any(|row| row["kind"] == "flow"), "{rows:#?}");
    }
    let days = ["summary", "early", "--days", "--json"];
    let ours = world.run("n1", &days).ok().json();
    assert!(!ours.is_empty());
    let same = || {
        let theirs = world.run("n2", &days);
        theirs.code == Some(0) && theirs.json() == ours
    };
    assert!(given || wait_until(LONG, same));
    for node in ["n1", "n2"] {
        nothing_is_said(world, node);
        let check = world.run(node, &["store", "check"]).ok();
        assert!(check.stdout.contains("all of it holds"), "{check}");
    }
}

#[test]
fn a_device_that_was_away_for_a_month_has_the_window_and_a_word_on_the_rest() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    while let Some(node) = daemons.pop() {
        rest(node);
    }
    let now = a_month(&world, |_, node| rest(node));
    let _nodes = ["n1", "n2"].map(|node| shifted(&world, node, now, now));
    month_is_whole(&world, false);
}

#[test]
fn clocks_that_are_days_apart_lose_nothing_thin_nothing_and_are_shown() {
    for off in [3 * DAY, -3 * DAY] {
        let world = TestWorld::new(2);
        let _nodes = [
            crate::common::daemon(&world, "n1"),
            shifted(&world, "n2", off, 0),
        ];
        pair(&world, "n1", "n2");
        let words = ["-q", "--name", "yard", "--reach", "internet"];
        let script = format!("{FETCH}; curl -sS -m 5 -o /dev/null http://192.168.1.9/; sleep 600");
        let running = attached(&world, "n1", &words, &script);
        hears_of(&world, "n2", "yard");
        let notice = || world.run("n2", &["notices", "--json"]).ok().stdout;
        assert!(wait_until(LIMIT, || notice().contains("192.168.1.9")));
        let _rows = same_of(&world, "yard");
        for words in [
            &["pause", "yard@n1", "--json"][..],
            &["resume", "yard@n1", "--json"],
            &["allow", "yard@n1", "192.168.1.9:80", "--json"],
            &["deny", "yard@n1", "192.168.1.9:80", "--json"],
        ] {
            let done = world.run("n2", words);
            assert_eq!(done.code, Some(0), "{off}: {done}");
        }
        let _stopped = stop(&world, "n2", "yard@n1");
        assert_eq!(running.finish(LIMIT).code, Some(121));
        let _rows = same_of(&world, "yard");
        // Whoever is behind sees for sure that the other is ahead.
        let (sees, ahead) = if off > 0 { ("n1", "n2") } else { ("n2", "n1") };
        let shown = || world.run(sees, &["device", "list"]).ok().stdout;
        let said = |text: &str| {
            let mut lines = text.lines();
            lines.any(|line| {
                line.contains("its clock is 2 days ahead") || line.contains("3 days ahead")
            })
        };
        assert!(wait_until(LIMIT, || said(&shown())), "{}", shown());
        let rows = world.run(sees, &["device", "list", "--json"]).ok().json();
        for row in rows {
            assert_eq!(row["clock_ahead"].is_u64(), row["name"] == ahead, "{row}");
        }
        for node in ["n1", "n2"] {
            nothing_is_said(&world, node);
            let check = world.run(node, &["store", "check"]).ok();
            assert!(!check.stdout.contains(" thinned"), "{check}");
        }
    }
}

/// Carries UDP between two nodes that reach only this one: late, with losses, no
/// faster than a rate; for so long nothing at all.
const ROUGH: &str = "
import heapq, random, select, socket, sys, time
first, second = [tuple(a.rsplit(':', 1)) for a in sys.argv[1:3]]
places = [(first[0], int(first[1])), (second[0], int(second[1]))]
random.seed(7)
socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in places]
# What comes to the socket of one node goes to the other from that node's socket.
for sock, port in zip(socks, (7101, 7102)): sock.bind(('0.0.0.0', port))
free, queue, count = [0.0, 0.0], [], 0
begun = time.monotonic()
print('up', flush=True)
while True:
    now = time.monotonic()
    while queue and queue[0][0] <= now:
        _, _, to, data = heapq.heappop(queue)
        socks[to].sendto(data, places[to])
    wait = min(queue[0][0] - now, 1) if queue else 1
    for sock in select.select(socks, [], [], wait)[0]:
        at = socks.index(sock)
        data, source = sock.recvfrom(65536)
        count += 1
        if random.random() < 0.05 or 6 < now - begun < 26: continue
        to = 1 - at
        free[to] = max(free[to], now) + len(data) / 250000
        if free[to] - now > 0.5: continue
        late = 0.08 + random.random() * 0.04
        heapq.heappush(queue, (free[to] + late, count, to, data))
";

#[test]
fn a_slow_link_that_loses_and_breaks_brings_all_of_it_once() {
    let world = TestWorld::new(3);
    let nodes = ["n1", "n2"];
    fill(&world, "n1", "20000");
    let mut daemons: Vec<Running> = nodes
        .iter()
        .map(|node| crate::common::daemon(&world, node))
        .collect();
    pair(&world, "n1", "n2");
    while let Some(node) = daemons.pop() {
        rest(node);
    }
    let listed = |node: &str| {
        let rows = world.run(node, &["device", "list", "--json"]).ok().json();
        let this = rows.iter().find(|row| row["this"] == true).unwrap();
        this["id"].as_str().unwrap().to_owned()
    };
    let ids = nodes.map(listed);
    for node in nodes {
        let pids = world.pids(node, "bailey");
        world.kill(node, "TERM", &pids);
        assert!(wait_until(LIMIT, || world.pids(node, "bailey").is_empty()));
        crate::mailbox::isolate(&world, node);
    }
    let place = |node: &str| {
        let port = std::fs::read_to_string(state(&world, node).join("sync.port")).unwrap();
        format!("{}:{}", world.node(node).unwrap().v4(), port.trim())
    };
    let relay = Running::start(world.command("n3", "python3").args([
        "-c",
        ROUGH,
        &place("n1"),
        &place("n2"),
    ]));
    relay.wait_line(LIMIT, |line| line == "up");
    let relay_at = world.node("n3").unwrap().v4();
    // Each knows the other by the relay alone: what comes to 7101 is of the first.
    for (node, other, port) in [("n1", &ids[1], 7101), ("n2", &ids[0], 7102)] {
        let peers = state(&world, node).join("peers");
        let script = format!("echo '{other} {relay_at}:{port}' > {}", peers.display());
        let _written = world.sh(node, &script).ok();
    }
    let _daemons = nodes.map(|node| crate::common::daemon(&world, node));
    let began = Instant::now();
    // What is written meanwhile comes too, once.
    let _box = boxed(&world, "n1", &["-q", "--name", "yard"], FETCH).ok();
    let entries = hold_the_same(&world);
    println!(
        "{entries} entries over a rough link in {:?}",
        began.elapsed()
    );
    assert!(entries >= 20_000);
    let _rows = same_of(&world, "yard");
    for node in nodes {
        nothing_is_said(&world, node);
        let check = world.run(node, &["store", "check"]).ok();
        assert!(check.stdout.contains("all of it holds"), "{check}");
    }
}

#[test]
fn two_devices_that_have_ipv6_alone_pair_hear_and_stop_each_other() {
    let world = TestWorld::new(2);
    for node in ["n1", "n2"] {
        as_root(&world, node, "ip -4 addr flush dev eth0");
    }
    let _nodes = ["n1", "n2"].map(|node| shifted(&world, node, 0, 0));
    pair(&world, "n1", "n2");
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    let _stopped = stop(&world, "n2", "yard@n1");
    assert_eq!(running.finish(LIMIT).code, Some(121));
    let four = world.sh("n1", "ip -4 -o addr show dev eth0").ok().stdout;
    assert_eq!(four, "", "the control: there is no other way");
}

#[test]
fn a_device_that_slept_hears_soon_after_and_nothing_is_said_of_it() {
    const ASLEEP: Duration = Duration::from_secs(35);
    let world = TestWorld::new(2);
    let _nodes = ["n1", "n2"].map(|node| shifted(&world, node, 0, 0));
    pair(&world, "n1", "n2");
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    let connected = || {
        let rows = world.run("n1", &["device", "list", "--json"]).ok().json();
        rows.iter()
            .any(|row| row["name"] == "n2" && row["connected"] == true)
    };
    assert!(connected());
    // All of it stands, as by a lid that is shut.
    let pids = world.pids("n2", "bailey");
    world.kill("n2", "STOP", &pids);
    let began = Instant::now();
    assert!(wait_until(ASLEEP, || !connected()), "it is missed");
    let _meanwhile = boxed(&world, "n1", &["-q", "--name", "meanwhile"], "true").ok();
    std::thread::sleep(ASLEEP.saturating_sub(began.elapsed()));
    world.kill("n2", "CONT", &pids);
    let woke = Instant::now();
    hears_of(&world, "n2", "meanwhile");
    assert!(
        woke.elapsed() < Duration::from_secs(20),
        "{:?}",
        woke.elapsed()
    );
    let _stopped = stop(&world, "n2", "yard@n1");
    assert_eq!(running.finish(LIMIT).code, Some(121));
    for node in ["n1", "n2"] {
        nothing_is_said(&world, node);
    }
}
