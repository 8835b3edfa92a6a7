//! `kill -9` of node, gate and launcher at random moments: no dialled flow
//! without its entry, and nothing of a box is left.

use std::net::SocketAddr;
use std::time::Duration;

use bailey_tests::{Running, TestWorld, wait_until};
use bailey_world::{SeenKind, at};
use serde_json::Value;

use crate::common::{LIMIT, is_clean};

/// Kills in one run.
const ROUNDS: u32 = 102;
/// A box that dials as fast as it can, each time from a port of its own.
const DIALLER: &str = "python3 -c \"
import socket
while True:
    try:
        s = socket.create_connection(('93.184.216.34', 7), 2); s.send(b'x'); s.recv(1); s.close()
    except OSError: pass
\"";

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
        let victim = ["bailey", "bailey-gate", "bailey-fence"][(round % 3) as usize];
        let dialler = world.start(
            "n1",
            &["run", "-q", "--name", "yard", "--", "sh", "-c", DIALLER],
        );
        // From before the first step of the start to well into the dials.
        std::thread::sleep(Duration::from_millis(random(120)));
        killed += kill(&world, victim, &dialler);
        drop(dialler);
        let clean = wait_until(LIMIT, || is_clean(&world, "n1"));
        assert!(
            clean,
            "round {round}: {victim} was killed and something is left: {:?}",
            world.node("n1").unwrap().processes()
        );
    }
    assert!(killed >= 100, "only {killed} processes were killed");
    every_dial_has_its_entry(&world);
}

/// Kills the node (not the command line), or a box's programs.
fn kill(world: &TestWorld, victim: &str, _dialler: &Running) -> u32 {
    let found = wait_until(Duration::from_secs(2), || {
        !victims(world, victim).is_empty()
    });
    if !found {
        return 0;
    }
    let pids = victims(world, victim);
    world.kill("n1", "KILL", &pids);
    u32::try_from(pids.len()).unwrap()
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

/// What the witness on the wire saw stands in the audit. A dial whose flow's
/// end was lost with its gate has no outer port, so counts are compared too.
fn every_dial_has_its_entry(world: &TestWorld) {
    let seen: Vec<SocketAddr> = world
        .witness()
        .unwrap()
        .into_iter()
        .filter(|seen| seen.kind == SeenKind::TcpSyn && seen.dst.ip() == at::WEB_V4)
        .map(|seen| seen.src)
        .collect();
    let ports: std::collections::BTreeSet<SocketAddr> = seen.iter().copied().collect();
    assert!(
        ports.len() > 100,
        "the control: dials were seen ({})",
        ports.len()
    );
    let rows = world.run("n1", &["flows", "yard", "--json"]).ok().json();
    let opened = rows.iter().filter(|row| row["kind"] == "flow").count();
    let dialled = ports.len();
    assert!(
        opened >= dialled,
        "{dialled} dials left the machine, {opened} entries stand"
    );
    let numbers: Vec<u64> = rows.iter().filter_map(|row| row["no"].as_u64()).collect();
    assert!(numbers.is_sorted(), "entries are in order");
    let known = |port: u16| {
        rows.iter()
            .any(|row| row["outer_src_port"] == u64::from(port))
    };
    let named = ports.iter().filter(|addr| known(addr.port())).count();
    let open = rows
        .iter()
        .filter(|row| row["kind"] == "flow" && row["outer_src_port"] == Value::Null)
        .count();
    assert!(
        named + open >= dialled,
        "{named} dials are named by an end, {open} entries have none, {dialled} dials"
    );
}
