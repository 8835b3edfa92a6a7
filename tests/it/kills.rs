//! `kill -9` of node, gate and launcher at random moments: no dialled flow
//! without its entry, and nothing of a box is left.

use std::collections::BTreeSet;
use std::time::Duration;

use bailey_tests::{TestWorld, wait_until};
use bailey_world::{SeenKind, at};
use serde_json::Value;

use crate::common::{LIMIT, is_clean};

/// Rounds, each with a kill.
const ROUNDS: u16 = 102;
/// The first port that is dialled. Nothing listens on any: what counts is the
/// packet, and the far end's refusal makes room for the next at once.
const FIRST_PORT: u16 = 10_000;
/// Ports of one round. No port is dialled twice in the whole test, so that an
/// entry can stand for one dial only.
const PORTS: u16 = 500;
/// Dials each port by UDP and TCP as fast as it can, eight under way at a time.
const DIALLER: &str = "
import select, socket, sys, time
first, ports, waiting = int(sys.argv[1]), int(sys.argv[2]), []
for port in range(first, first + ports):
    to = ('93.184.216.34', port)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp = socket.socket()
    tcp.setblocking(False)
    try:
        udp.sendto(b'x', to)
        tcp.connect_ex(to)
    except OSError: pass
    waiting.append((tcp, udp))
    if len(waiting) > 8:
        tcp, udp = waiting.pop(0)
        select.select([], [tcp], [], 1)
        tcp.close(); udp.close()
time.sleep(600)
";

/// One dial: by what, to which address and port.
type Dial = (&'static str, String, u16);

#[test]
fn no_kill_loses_an_entry_or_leaves_a_process() {
    let world = TestWorld::new(1);
    // splitmix64 from a fixed seed: the moments differ, a failure can be tried again.
    let mut state = 0x5eed_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    };
    let mut killed = 0;
    for round in 0..ROUNDS {
        let victim = ["bailey", "bailey-gate", "bailey-fence"][usize::from(round % 3)];
        let (first, ports) = ((FIRST_PORT + round * PORTS).to_string(), PORTS.to_string());
        let mut words = vec!["run", "-q", "--name", "yard", "--"];
        words.extend(["python3", "-I", "-S", "-c", DIALLER, &first, &ports]);
        let dialler = world.start("n1", &words);
        // From before the first step of the start to well into the dials.
        std::thread::sleep(Duration::from_millis(random(200)));
        killed += u32::from(kill(&world, victim));
        let node = node_pid(&world);
        drop(dialler);
        let clean = wait_until(LIMIT, || {
            is_clean(&world, "n1") && world.pids("n1", "python3").is_empty()
        });
        assert!(
            clean,
            "round {round}: {victim} was killed and something is left: {:?}",
            world.node("n1").unwrap().processes()
        );
        // A node that lives writes the end a moment later; until then the
        // box's name is taken.
        let over = || {
            let rows = world.run("n1", &["ps", "--json"]).ok().json();
            rows.iter().all(|row| row["end"].is_string())
        };
        assert!(
            victim == "bailey" || wait_until(LIMIT, over),
            "round {round}: {victim} was killed and the box does not end"
        );
        assert!(
            victim == "bailey" || node_pid(&world) == node,
            "round {round}: {victim} was killed and the node went with it"
        );
    }
    assert!(
        killed >= 100,
        "only in {killed} rounds was there something to kill"
    );
    every_dial_has_its_entry(&world);
}

/// Kills the node (not the command line), or a box's programs.
fn kill(world: &TestWorld, victim: &str) -> bool {
    let mut pids = Vec::new();
    let found = wait_until(Duration::from_secs(2), || {
        pids = victims(world, victim);
        // A launcher is there before the box is: it waits for one.
        !pids.is_empty() && (victim != "bailey-fence" || has_box(world))
    });
    if found {
        world.kill("n1", "KILL", &pids);
    }
    found
}

/// Whether a process lives in other namespaces than the node.
fn has_box(world: &TestWorld) -> bool {
    let processes = world.node("n1").unwrap().processes().unwrap();
    let namespaces: BTreeSet<_> = processes
        .into_iter()
        .filter(|process| process.name != "bailey-begun")
        .map(|process| process.namespaces)
        .collect();
    namespaces.len() > 1
}

/// The node's own: what it is about to execute looks like it until then.
fn node_pid(world: &TestWorld) -> Option<u32> {
    victims(world, "bailey").into_iter().min()
}

fn victims(world: &TestWorld, victim: &str) -> Vec<u32> {
    let processes = world.node("n1").unwrap().processes().unwrap();
    let is_victim = |command: &[String]| {
        let named = command
            .first()
            .is_some_and(|word| word.rsplit('/').next() == Some(victim));
        named && (victim != "bailey" || command.get(1).is_some_and(|word| word == "node"))
    };
    processes
        .into_iter()
        .filter(|process| is_victim(&process.command))
        .map(|process| process.pid)
        .collect()
}

/// Each dial that the witness saw on the wire has an entry of its own kind,
/// address and port.
fn every_dial_has_its_entry(world: &TestWorld) {
    let dialled = dialled(world);
    let rounds: BTreeSet<u16> = dialled
        .iter()
        .map(|(_, _, port)| (port - FIRST_PORT) / PORTS)
        .collect();
    for proto in ["tcp", "udp"] {
        let count = dialled.iter().filter(|dial| dial.0 == proto).count();
        assert!(
            count > 300,
            "the control: {count} dials by {proto} were seen"
        );
    }
    assert!(
        rounds.len() > 25,
        "the control: dials were seen in {} rounds",
        rounds.len()
    );
    let rows = world.run("n1", &["flows", "yard", "--json"]).ok().json();
    let numbers: Vec<u64> = rows.iter().filter_map(|row| row["no"].as_u64()).collect();
    assert!(
        numbers.is_sorted_by(|one, two| one < two),
        "entries are in order, and none has the number of another"
    );
    let entered: BTreeSet<Dial> = rows.iter().filter_map(entered).collect();
    let without: Vec<&Dial> = dialled.difference(&entered).collect();
    assert!(
        without.is_empty(),
        "{} of {} dials left the machine without an entry: {without:?}",
        without.len(),
        dialled.len()
    );
}

fn dialled(world: &TestWorld) -> BTreeSet<Dial> {
    let seen = world.witness().unwrap().into_iter();
    seen.filter(|seen| seen.dst.ip() == at::WEB_V4)
        .map(|seen| {
            let proto = match seen.kind {
                SeenKind::TcpSyn => "tcp",
                SeenKind::Udp => "udp",
                SeenKind::Ping => "ping",
            };
            (proto, seen.dst.ip().to_string(), seen.dst.port())
        })
        .collect()
}

/// The dial that a row allowed.
fn entered(row: &Value) -> Option<Dial> {
    let allowed = row["kind"] == "flow" && row["verdict"] == "allow";
    let proto = ["tcp", "udp"]
        .into_iter()
        .find(|proto| row["proto"] == *proto)?;
    let port = row["dst_port"].as_u64()?.try_into().ok()?;
    allowed.then_some((proto, row["dst_ip"].as_str()?.to_owned(), port))
}
