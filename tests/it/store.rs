//! What befalls a store: an older copy put back, damage, a disk that cannot be
//! written, a box that writes all the time.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, wait_until};
use bailey_world::at;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{LIMIT, boxed, daemon, flows, hears_of, pair, world};

fn state(world: &TestWorld, node: &str) -> PathBuf {
    world.node(node).unwrap().dir().join("state/bailey")
}

/// Ends a node as its user would.
fn end(daemon: Running) {
    daemon.signal(Signal::SIGTERM);
    let _ended = daemon.finish(LIMIT);
}

/// Dials once in a box of this name.
fn dial(world: &TestWorld, node: &str, name: &str) {
    let script = format!("curl -sS -m 5 -o /dev/null http://{}/", at::WEB_V4);
    let _ran = boxed(world, node, &["-q", "--name", name], &script).ok();
}

/// The notices of a node that say a store went back.
fn went_back(world: &TestWorld, node: &str) -> Vec<Value> {
    let rows = world.run(node, &["notices", "--json"]).ok().json();
    let rows = rows.into_iter();
    rows.filter(|row| row["rule"] == "store-went-back")
        .collect()
}

#[test]
fn an_older_copy_put_back_goes_on_beside_what_it_had_written_and_is_told() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    dial(&world, "n1", "before");
    hears_of(&world, "n2", "before");
    end(daemons.remove(0));
    let place = state(&world, "n1");
    // As its user would: files that belong to them.
    let sh = |script: &str| {
        world
            .sh("n1", &format!("cd {} && {script}", place.display()))
            .ok()
    };
    sh("mkdir ../backup && cp -p store.db* ../backup");
    let first = daemon(&world, "n1");
    dial(&world, "n1", "lost");
    hears_of(&world, "n2", "lost");
    // All of it, not only that it began.
    let heard = wait_until(LIMIT, || {
        let rows = flows(&world, "n2", "lost@n1");
        rows.iter().any(|row| row["kind"] == "ended")
    });
    assert!(heard, "n2 hears of its end");
    end(first);
    sh("rm store.db* && cp -p ../backup/store.db* .");
    let _again = daemon(&world, "n1");
    dial(&world, "n1", "after");
    for node in ["n1", "n2"] {
        let told = wait_until(LIMIT, || !went_back(&world, node).is_empty());
        assert!(told, "{node} raises no notice");
        // Both lives are there, on both.
        for name in ["before", "lost", "after"] {
            hears_of(&world, node, name);
            let name = format!("{name}@n1");
            let name = if node == "n1" {
                name.trim_end_matches("@n1")
            } else {
                &name
            };
            let read = wait_until(LIMIT, || {
                let rows = flows(&world, node, name);
                rows.iter().any(|row| row["kind"] == "flow")
            });
            assert!(read, "{name} on {node}");
        }
        let shown = world.run(node, &["notices"]).ok().stdout;
        assert!(shown.contains("continues an older copy"), "{shown}");
        let rows = world.run(node, &["device", "list", "--json"]).ok().json();
        let went_back = |name: &str| {
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            row["went_back"].is_string()
        };
        assert!(went_back("n1") && !went_back("n2"), "{rows:?}");
        assert!(!shown.contains("bailey stop @"), "{shown}");
    }
}

#[test]
fn a_damaged_store_is_refused_with_the_way_out_and_repaired_without_deleting() {
    let world = TestWorld::new(1);
    let node = daemon(&world, "n1");
    for name in ["one", "two", "three"] {
        dial(&world, "n1", name);
    }
    let whole: Vec<Vec<Value>> = ["one", "two", "three"]
        .map(|name| flows(&world, "n1", name))
        .to_vec();
    // While it runs it is left alone, and says which process.
    let refused = world.run("n1", &["store", "repair"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    // As the node's own namespace numbers it; a second node names the same.
    let (_, pid) = refused.stderr.split_once("(pid ").unwrap();
    let (pid, _) = pid.split_once(')').unwrap();
    let second = world.run("n1", &["node"]);
    let named = format!("process {pid})");
    assert!(second.stderr.contains(&named), "{named}: {second}");
    end(node);
    let place = state(&world, "n1");
    let nothing = world.run("n1", &["store", "repair", "--json"]).ok().json();
    assert!(nothing[0]["kept"].is_null(), "{nothing:?}");

    // The first page of the table of chains, which every start reads.
    let db = place.join("store.db");
    let script = format!(
        "python3 -c \"import sqlite3; db = sqlite3.connect('{}'); \
         db.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall(); \
         print(db.execute('SELECT rootpage FROM sqlite_master WHERE name=?', ['chains']).fetchone()[0])\"",
        db.display()
    );
    let root = world.sh("n1", &script).ok().stdout;
    let page = (root.trim().parse::<usize>().unwrap() - 1) * 4096;
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[page..page + 4096].fill(0x5a);
    std::fs::write(&db, &bytes).unwrap();
    let refused = world.run("n1", &["node"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(refused.stderr.contains("bailey store repair"), "{refused}");
    assert_eq!(std::fs::read(&db).unwrap(), bytes, "it is as it was");

    let said = world.run("n1", &["store", "repair", "--json"]);
    let row = &said.json()[0];
    let kept = PathBuf::from(row["kept"].as_str().unwrap());
    assert_eq!(std::fs::read(kept.join("store.db")).unwrap(), bytes);
    assert!(row["envelopes"].as_u64() > Some(0), "{row}");
    let _node = daemon(&world, "n1");
    // The chains are made again from what they hold.
    for (name, before) in ["one", "two", "three"].iter().zip(&whole) {
        assert_eq!(&flows(&world, "n1", name), before, "{row}");
    }
    let checked = world.run("n1", &["store", "check"]).ok();
    assert!(checked.stdout.contains("all of it holds"), "{checked}");
}

#[test]
fn a_disk_that_cannot_be_written_is_named_and_nothing_is_begun_anew() {
    let world = TestWorld::new(1);
    let node = daemon(&world, "n1");
    dial(&world, "n1", "yard");
    end(node);
    let at = world.node("n1").unwrap().dir().join("state");
    let mount = |options: &[&str]| {
        let mut command = world.node("n1").unwrap().root_command("mount");
        bailey_tests::run(command.args(options).arg(&at)).ok();
    };
    let place = at.display().to_string();
    mount(&["--bind", &place]);
    mount(&["-o", "remount,bind,ro"]);
    let refused = world.run("n1", &["node"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(
        refused.stderr.contains("Read-only file system"),
        "{refused}"
    );
    assert!(refused.stderr.contains("bailey"), "{refused}");
    mount(&["-o", "remount,bind,rw"]);
    let _node = daemon(&world, "n1");
    assert!(
        flows(&world, "n1", "yard")
            .iter()
            .any(|row| row["kind"] == "flow")
    );
}

/// Sends to another port each time, as fast as it can, until it is ended.
const FLOOD: &str = "
import socket
s, n = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
while True:
    try: s.sendto(b'x', ('93.184.216.34', 1024 + n % 60000))
    except OSError: pass
    n += 1
    if n == 1000: print('thousand', flush=True)
";

/// For so long a box writes at full rate; an hour of it is
/// `BAILEY_FLOOD_SECONDS=3600`, as `make soak` has it.
fn flood_lasts() -> Duration {
    let asked = std::env::var("BAILEY_FLOOD_SECONDS").ok();
    let asked = asked.map(|seconds| seconds.parse().unwrap());
    Duration::from_secs(asked.unwrap_or(8))
}

#[test]
fn a_box_at_full_rate_holds_up_neither_other_boxes_nor_other_devices() {
    let (world, daemons) = world(2);
    pair(&world, "n1", "n2");
    let words = [
        "run", "-q", "--name", "flood", "--", "python3", "-I", "-c", FLOOD,
    ];
    let mut flood = world.start("n1", &words);
    flood.wait_line(LIMIT, |line| line == "thousand");
    let (begun, lasts) = (Instant::now(), flood_lasts());
    let (mut dialled, mut heard) = (Vec::new(), Vec::new());
    while begun.elapsed() < lasts {
        let name = format!("calm{}", dialled.len());
        let since = Instant::now();
        dial(&world, "n1", &name);
        dialled.push(since.elapsed());
        // While it floods, not once it is over.
        let since = Instant::now();
        let there = wait_until(LIMIT, || {
            let rows = world.run("n2", &["ps", "--json"]).ok().json();
            rows.iter().any(|row| row["name"] == *name)
        });
        heard.push(since.elapsed());
        assert!(
            there,
            "the other device does not hear of {name}: {dialled:?}, {heard:?}\n{}",
            daemons[1].stderr()
        );
        let read = wait_until(LIMIT, || {
            let rows = flows(&world, "n2", &format!("{name}@n1"));
            rows.iter().any(|row| row["kind"] == "flow")
        });
        assert!(read, "the other device does not receive {name}");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(!flood.ended(), "the control: it floods all the while");
    assert!(dialled.len() > 2, "{dialled:?}, {heard:?}");
}
