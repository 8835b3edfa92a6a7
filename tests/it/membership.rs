//! Devices come to an account and go from it.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{
    LIMIT, attached, boxed, daemon, flows, hears_of, pair, row_of, stop, up, world,
};

fn devices(world: &TestWorld, node: &str) -> Vec<Value> {
    world.run(node, &["device", "list", "--json"]).ok().json()
}

fn device(world: &TestWorld, node: &str, name: &str) -> Value {
    let rows = devices(world, node);
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{node} does not list {name}: {rows:?}"))
        .clone()
}

fn roles(world: &TestWorld, node: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = devices(world, node).into_iter();
    let mut roles: Vec<_> = rows
        .map(|row| (text(&row["name"]), text(&row["role"])))
        .collect();
    roles.sort();
    roles
}

fn of(names: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, role): &(&str, &str)| ((*name).to_owned(), (*role).to_owned());
    names.iter().map(owned).collect()
}

/// Three devices of one account, which all know one another.
fn three() -> (TestWorld, Vec<Running>) {
    let (world, daemons) = world(3);
    pair(&world, "n1", "n2");
    pair(&world, "n1", "n3");
    let all = of(&[("n1", "full"), ("n2", "full"), ("n3", "full")]);
    for node in ["n1", "n2", "n3"] {
        assert!(wait_until(LIMIT, || roles(&world, node) == all), "{node}");
    }
    (world, daemons)
}

fn same_audit(world: &TestWorld, at: &str, name: &str) -> bool {
    let ours = flows(world, "n1", name);
    wait_until(LIMIT, || {
        let theirs = world.run(at, &["flows", name, "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    })
}

#[test]
fn a_removed_device_gets_nothing_that_comes_after_and_the_others_go_on() {
    let (world, _daemons) = three();
    let busy = attached(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        "while :; do curl -sS -m 5 -o /dev/null http://shop.example/; sleep 0.2; done",
    );
    for node in ["n2", "n3"] {
        hears_of(&world, node, "yard");
    }
    let pressed = Instant::now();
    let removed = world.run("n1", &["device", "remove", "n3", "--lost", "--json"]);
    let removed = removed.ok().json().remove(0);
    assert!(pressed.elapsed() < Duration::from_secs(2), "{pressed:?}");
    assert_eq!(removed["names"][0], "n3");
    assert_eq!(removed["could_read"][0], "yard@n1");
    assert!(removed["last_heard"].is_string(), "{removed}");
    assert_eq!(
        removed["unconfirmed"].as_array().unwrap().len(),
        0,
        "{removed}"
    );
    // It hears so itself, and is connected to nobody.
    assert!(wait_until(LIMIT, || device(&world, "n3", "n3")["role"] == "removed"));
    assert!(wait_until(LIMIT, || {
        devices(&world, "n3")
            .iter()
            .all(|row| row["connected"] == false)
    }));
    for node in ["n1", "n2"] {
        assert!(wait_until(LIMIT, || {
            roles(&world, node) == of(&[("n1", "full"), ("n2", "full"), ("n3", "removed")])
        }));
        let row = device(&world, node, "n3");
        assert_eq!(row["removed_by"], "n1");
        assert!(row["unconfirmed"].as_array().unwrap().is_empty(), "{row}");
    }
    // What is entered from now on reaches the other, and not the one removed.
    let before = world
        .run("n3", &["flows", "yard", "--json"])
        .ok()
        .json()
        .len();
    let _later = boxed(&world, "n1", &["-q", "--name", "later"], "true").ok();
    assert!(same_audit(&world, "n2", "later"), "the others do not go on");
    std::thread::sleep(Duration::from_secs(2));
    let after = world
        .run("n3", &["flows", "yard", "--json"])
        .ok()
        .json()
        .len();
    assert_eq!(before, after, "the removed device still gets entries");
    let known = world.run("n3", &["ps", "--json"]).ok().stdout;
    assert!(!known.contains("later"), "{known}");
    // Nor does it run a box any more, or stop one.
    let refused = boxed(&world, "n3", &["-q"], "true");
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(
        refused.stderr.contains("removed from its account"),
        "{refused}"
    );
    let stopped = world.run("n3", &["stop", "yard@n1", "--json", "--wait", "1"]);
    assert_ne!(stopped.code, Some(0), "{stopped}");
    assert!(
        flows(&world, "n1", "yard")
            .iter()
            .all(|row| row["kind"] != "ended")
    );
    drop(busy);
}

#[test]
fn keys_that_were_removed_do_not_pair_again() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    let both = of(&[("n1", "full"), ("n2", "full")]);
    assert!(wait_until(LIMIT, || roles(&world, "n1") == both));
    let _removed = world.run("n1", &["device", "remove", "n2"]).ok();
    assert!(wait_until(LIMIT, || device(&world, "n2", "n2")["role"] == "removed"));
    // It begins anew with the keys that it had.
    let gone = daemons.remove(1);
    gone.signal(Signal::SIGTERM);
    let _left = gone.finish(LIMIT);
    let state = world.node("n2").unwrap().dir().join("state/bailey");
    let _cleared = world
        .sh(
            "n2",
            &format!("cd {} && rm -f store.db* store.lock", state.display()),
        )
        .ok();
    let again = world.start("n2", &["node", "--device-name", "n2"]);
    let _again = up(&world, "n2", again);
    let add = world.start("n1", &["device", "add", "--yes", "--json"]);
    let code = row_of(&add, |row| row["code"].is_string());
    let code = code["code"].as_str().unwrap().to_owned();
    let joined = world.run("n2", &["device", "join", &code, "--json"]);
    assert_ne!(joined.code, Some(0), "{joined}");
    let refused = add.finish(LIMIT);
    assert!(refused.stderr.contains("were removed"), "{refused}");
    assert_eq!(
        roles(&world, "n1"),
        of(&[("n1", "full"), ("n2", "removed")])
    );
}

#[test]
fn a_device_that_may_only_watch_stops_nothing() {
    let (world, _daemons) = three();
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    for node in ["n2", "n3"] {
        hears_of(&world, node, "yard");
    }
    let lowered = world.run("n1", &["device", "role", "n3", "watch", "--json"]);
    assert_eq!(lowered.ok().json()[0]["role"], "watch");
    assert!(wait_until(LIMIT, || device(&world, "n3", "n3")["role"] == "watch"));
    let refused = world.run("n3", &["stop", "yard@n1", "--json"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    let refused = world.run("n3", &["device", "remove", "n1"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    // The last that is full stays so.
    let _lowered = world.run("n1", &["device", "role", "n2", "stop"]).ok();
    let refused = world.run("n1", &["device", "role", "n1", "watch"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(wait_until(LIMIT, || device(&world, "n2", "n2")["role"] == "stop"));
    let there = stop(&world, "n2", "yard@n1");
    assert!(there["processes_ended"].as_u64().unwrap() > 0);
    assert_eq!(running.finish(LIMIT).code, Some(121));
}

#[test]
fn a_device_leaves_and_the_others_hear_of_it() {
    let (world, _daemons) = three();
    let left = world.run("n2", &["device", "leave"]).ok();
    assert!(left.stdout.contains("has left"), "{left}");
    for node in ["n1", "n2", "n3"] {
        assert!(
            wait_until(LIMIT, || {
                roles(&world, node) == of(&[("n1", "full"), ("n2", "removed"), ("n3", "full")])
            }),
            "{node}: {:?}",
            roles(&world, node)
        );
    }
    let _rotated = world.run("n1", &["device", "rotate"]).ok();
    let _later = boxed(&world, "n1", &["-q", "--name", "later"], "true").ok();
    assert!(same_audit(&world, "n3", "later"));
}

#[test]
fn a_device_that_was_away_hears_of_a_removal_when_it_comes_and_is_named_until_then() {
    let (world, mut daemons) = three();
    let away = daemons.remove(1);
    away.signal(Signal::SIGTERM);
    let _left = away.finish(LIMIT);
    assert!(wait_until(
        LIMIT,
        || device(&world, "n1", "n2")["connected"] == false
    ));
    let removed = world.run("n1", &["device", "remove", "n3", "--json"]);
    assert_eq!(removed.ok().json()[0]["unconfirmed"][0], "n2");
    let text = world.run("n1", &["device", "list"]).ok().stdout;
    assert!(text.contains("not confirmed by n2"), "{text}");
    let _again = daemon(&world, "n2");
    assert!(wait_until(LIMIT, || {
        device(&world, "n1", "n3")["unconfirmed"]
            .as_array()
            .is_some_and(Vec::is_empty)
    }));
    assert_eq!(device(&world, "n2", "n3")["role"], "removed");
}
