//! A disk without room: nothing new goes out, what runs goes on, and the node
//! lives.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, binaries, wait_until};
use bailey_world::{SeenKind, at};

use crate::common::{LIMIT, flows};

/// The box dials when it is told to, and says what came of it.
const DIALLER: &str = "echo up; while read port; do \
    curl -sS -m 5 -o /dev/null http://93.184.216.34:$port/; echo \"$port: $?\"; done";
/// No connection: refused.
const REFUSED: i32 = 7;
/// A refusal is immediate.
const PROMPT: Duration = Duration::from_secs(1);
/// What the journal can still take in the room that it has already is less.
const TRIES: u16 = 500;

#[test]
fn a_full_disk_refuses_new_flows_until_there_is_room() {
    let world = TestWorld::new(1);
    small_disk(&world);
    let node = Running::start(world.bailey("n1").args(["node", "--device-name", "n1"]));
    full_disk(&world);
    let log = node.stderr();
    assert!(log.contains("the audit cannot be written"), "{log}");
}

/// The same with a log that lies on a full disk too.
#[test]
fn a_node_that_cannot_write_its_log_lives() {
    let world = TestWorld::new(1);
    small_disk(&world);
    let script = format!(
        "exec {} node --device-name n1 2>/dev/full",
        binaries().join("bailey").display()
    );
    let mut node = Running::start(world.command("n1", "sh").args(["-c", &script]));
    full_disk(&world);
    assert!(!node.ended(), "the node is the one that was started");
}
