//! A disk without room: nothing new goes out, what runs goes on, and the node
//! lives.

use std::io::Write as _;
use std::process::ChildStdin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, binaries};
use bailey_world::{SeenKind, at};

use crate::common::{LIMIT, attached, daemon, flows, up};

/// A flow that stays open, of which each `move` has 64 KiB there and back; at each
/// `dial` curl is begun, and its exit code said.
const STREAM: &str = "
import socket, subprocess, sys
s = socket.create_connection((\"93.184.216.34\", 7), 5)
print(\"up\", flush=True)
for line in iter(sys.stdin.readline, \"\"):
    number, word = line.split()
    said = \"moved\"
    if word == \"dial\":
        curl = [\"curl\", \"-sS\", \"-m\", \"5\", \"-o\", \"/dev/null\", \"http://93.184.216.34/\"]
        said = subprocess.call(curl)
    else:
        for _ in range(64):
            s.sendall(b\"y\" * 1024)
            left = 1024
            while left:
                got = len(s.recv(left))
                if not got: sys.exit(1)
                left -= got
    print(f\"{number}: {said}\", flush=True)
";
/// The same as a script of a shell.
pub(crate) static STREAMER: LazyLock<String> =
    LazyLock::new(|| format!("exec python3 -I -c '{STREAM}'"));
/// What one `move` has one way.
const MOVED: u64 = 64 << 10;
/// Curl's exit code for a connection that was refused.
const REFUSED: &str = "7";
/// A refusal is immediate.
const PROMPT: Duration = Duration::from_secs(1);
/// The store's files have room in themselves for fewer flows than this.
const TRIES: u32 = 1000;

#[test]
fn a_full_disk_refuses_new_flows_until_there_is_room() {
    let world = TestWorld::new(1);
    small_disk(&world);
    let mut node = daemon(&world, "n1");
    full_and_free_again(&world);
    assert!(!node.ended(), "{}", node.stderr());
    let log = node.stderr();
    assert!(log.contains("the audit cannot be written"), "{log}");
}

/// The log of a node may lie on the disk that is full.
#[test]
fn a_node_that_cannot_write_its_log_goes_on() {
    let world = TestWorld::new(1);
    small_disk(&world);
    let script = format!(
        "exec {} node --device-name n1 2>/dev/full",
        binaries().join("bailey").display()
    );
    let node = Running::start(world.command("n1", "sh").args(["-c", &script]));
    let mut node = up(&world, "n1", node);
    // The control: what it writes there is an error.
    let full = world.sh("n1", "echo x >/dev/full");
    assert_ne!(full.code, Some(0), "{full}");
    full_and_free_again(&world);
    assert!(!node.ended(), "the node that could not write its log ended");
}

/// Lays a file system of little room over the node's state folder, in the
/// node's mount namespace alone.
fn small_disk(world: &TestWorld) {
    let node = world.node("n1").unwrap();
    let mut mount = node.root_command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]);
    let _mounted = bailey_tests::run(mount.arg(node.dir().join("state"))).ok();
}

/// What a running box finds when the disk fills, and when it has room again.
fn full_and_free_again(world: &TestWorld) {
    let mut running = attached(world, "n1", &["--name", "yard"], &STREAMER);
    let mut stdin = running.take_stdin().unwrap();
    let mut dials = Dials::new(&running, &mut stdin);
    let mut moved = 0;
    assert_eq!(dials.dial(), "0", "the control: there is room");
    let fill = world.node("n1").unwrap().dir().join("state/fill");
    let full = world.sh("n1", &format!("cat /dev/zero >{}", fill.display()));
    assert!(full.stderr.contains("No space left"), "{full}");

    let mut passed = 1;
    while dials.dial() == "0" {
        passed += 1;
        assert!(passed < TRIES, "{passed} flows passed on a full disk");
    }
    // Again and again, each at once, and nothing of them leaves.
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(dials.dial(), REFUSED, "after {passed} that passed");
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        // What runs goes on, meanwhile and at its speed.
        let begun = Instant::now();
        assert_eq!(dials.say("move"), "moved");
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        moved += MOVED;
    }
    assert_eq!(syns(world), passed, "only what was entered left");
    let _shown = running.wait_error_line(LIMIT, |line| line.contains("audit cannot be written"));
    let rows = world.run("n1", &["ps", "--json"]).ok().json();
    assert!(rows[0]["end"].is_null(), "the box goes on: {rows:?}");

    let _freed = world.sh("n1", &format!("rm {}", fill.display())).ok();
    assert_eq!(dials.dial(), "0", "there is room again");
    assert_eq!(dials.say("move"), "moved");
    (passed, moved) = (passed + 1, moved + MOVED);
    drop(stdin);
    let _ended = running.finish(LIMIT).ok();
    assert_eq!(syns(world), passed);
    let rows = flows(world, "n1", "yard");
    let entered = rows.iter().filter(|row| row["kind"] == "flow").count();
    assert_eq!(entered, passed as usize + 1, "each that left is entered");
    let stream = rows.iter().find(|row| row["dst_port"] == 7).unwrap();
    assert_eq!(
        (&stream["bytes_out"], &stream["bytes_in"]),
        (&moved.into(), &moved.into())
    );
    assert_eq!(rows.last().unwrap()["end"], "exited 0");
    // What ended while nothing could be written has its end, and nothing has one
    // that never was.
    for row in rows.iter().filter(|row| row["kind"] == "flow") {
        assert!(
            row["end"].is_string() && row["bytes_in"].as_u64() > Some(0),
            "{row}"
        );
    }
    assert!(rows.iter().all(|row| row["kind"] != "end"), "{rows:#?}");
}

/// What the box does, one thing at a word.
pub(crate) struct Dials<'a> {
    running: &'a Running,
    stdin: &'a mut ChildStdin,
    number: u32,
}

impl<'a> Dials<'a> {
    pub(crate) fn new(running: &'a Running, stdin: &'a mut ChildStdin) -> Self {
        let number = 0;
        Self {
            running,
            stdin,
            number,
        }
    }

    /// Curl's exit code for the next dial.
    fn dial(&mut self) -> String {
        self.say("dial")
    }

    /// What the box says when it has done this.
    pub(crate) fn say(&mut self, word: &str) -> String {
        self.number += 1;
        writeln!(self.stdin, "{} {word}", self.number).unwrap();
        let start = format!("{}: ", self.number);
        let line = self
            .running
            .wait_line(LIMIT, |line| line.starts_with(&start));
        line.trim_start_matches(&start).trim().to_owned()
    }
}

/// Dials that left the node.
fn syns(world: &TestWorld) -> u32 {
    let seen = world.witness().unwrap().into_iter();
    let dials = seen.filter(|seen| {
        seen.kind == SeenKind::TcpSyn && seen.dst.ip() == at::WEB_V4 && seen.dst.port() == 80
    });
    u32::try_from(dials.count()).unwrap()
}
