//! Audits that stay on the node that wrote them.

use bailey_tests::{TestWorld, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, daemon, flows, hears_of, pair, stop, world};

/// Chains of documents that are kept on one device alone, in a node's store.
fn kept_chains(world: &TestWorld, node: &str) -> u64 {
    let script = "import sqlite3,os; \
                  db=sqlite3.connect('file:' + os.environ['XDG_STATE_HOME'] + '/bailey/store.db?mode=ro', uri=True); \
                  print(db.execute(\\\"SELECT count(*) FROM chains WHERE hex(doc) LIKE '20%' OR hex(doc) LIKE '21%'\\\").fetchone()[0])";
    let output = world.sh(node, &format!("python3 -c \"{script}\"")).ok();
    output.stdout.trim().parse().unwrap()
}

fn box_row(world: &TestWorld, node: &str, name: &str) -> Value {
    let rows = world.run(node, &["ps", "--json"]).ok().json();
    let found = rows.into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{node} knows no {name}"))
}

/// What a node may not know of what a box did elsewhere.
fn knows_nothing(world: &TestWorld, node: &str) {
    let rows = world
        .run(node, &["flows", "quiet@n1", "--json"])
        .ok()
        .json();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!(rows[0]["kind"], "note");
    let why = rows[0]["reason"].as_str().unwrap();
    assert!(why.contains("kept on its own device"), "{why}");
    let row = box_row(world, node, "quiet");
    assert_eq!(row["audit"], "here");
    assert_eq!(row["command"], serde_json::json!(["sh"]), "{row}");
    let notices = world.run(node, &["notices", "--json"]).ok().stdout;
    assert!(!notices.contains("quiet"), "{notices}");
    assert_eq!(kept_chains(world, node), 0);
}

const SCRIPT: &str = "curl -sS -o /dev/null http://shop.example/; \
                      curl -sS -m 5 -o /dev/null http://192.168.1.9/; true";

#[test]
fn an_audit_that_stays_here_is_nobody_elses_before_and_after_pairing() {
    let (world, daemons) = world(3);
    pair(&world, "n1", "n2");
    let words = ["-q", "--name", "quiet", "--audit", "here"];
    let _ran = boxed(&world, "n1", &words, SCRIPT).ok();
    let _ran = boxed(&world, "n1", &["-q", "--name", "open"], SCRIPT).ok();
    let own = flows(&world, "n1", "quiet");
    let hosts = |rows: &[Value]| {
        rows.iter()
            .filter(|row| row["dst_host"] == "shop.example")
            .count()
    };
    assert!(hosts(&own) > 0, "{own:#?}");
    // Its notice stays as well, and cites what it was raised by.
    let notice = |text: &str| {
        text.lines()
            .any(|line| line.contains("quiet") && line.contains("local-from"))
    };
    let notices = world.run("n1", &["notices", "--json"]).ok();
    assert!(notice(&notices.stdout), "{notices}");
    let shown = world.run("n1", &["notices"]).ok().stdout;
    assert!(shown.contains("192.168.1.9"), "{shown}");
    // Once the other box's entries are there, this one's would be.
    hears_of(&world, "n2", "quiet");
    hears_of(&world, "n2", "open");
    let heard = || !flows(&world, "n2", "open@n1").is_empty();
    assert!(wait_until(LIMIT, heard));
    knows_nothing(&world, "n2");
    assert!(kept_chains(&world, "n1") > 0);
    // Neither a device that comes later nor a new start of the node changes that.
    drop(daemons);
    let _daemons: Vec<_> = ["n1", "n2", "n3"].map(|node| daemon(&world, node)).into();
    assert_eq!(flows(&world, "n1", "quiet"), own);
    assert!(notice(&world.run("n1", &["notices", "--json"]).ok().stdout));
    pair(&world, "n1", "n3");
    hears_of(&world, "n3", "quiet");
    hears_of(&world, "n3", "open");
    let heard = || !flows(&world, "n3", "open@n1").is_empty();
    assert!(wait_until(LIMIT, heard));
    knows_nothing(&world, "n3");
    let check = world.run("n1", &["store", "check"]).ok().stdout;
    assert!(
        check.contains("all of it holds") && check.contains("kept here"),
        "{check}"
    );
}

#[test]
fn another_device_stops_a_box_whose_audit_it_cannot_read() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let words = ["-q", "--name", "quiet", "--audit", "here"];
    let _running = attached(&world, "n1", &words, "sleep 100");
    hears_of(&world, "n2", "quiet");
    let shown = world.run("n2", &["ps"]).ok().stdout;
    assert!(shown.contains("audit kept there alone"), "{shown}");
    let _row = stop(&world, "n2", "quiet@n1");
    let ended = || {
        flows(&world, "n1", "quiet")
            .iter()
            .any(|row| row["kind"] == "ended")
    };
    assert!(wait_until(LIMIT, ended));
}
