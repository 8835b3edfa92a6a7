//! A second device: reads, hears, stops.

use std::time::{Duration, Instant};

use bailey_tests::wait_until;

use crate::common::{LIMIT, boxed, daemon, flows, is_clean, pair, row_of, world};

/// The whole road: from a packet in a box to a notice on another device, and a
/// stop back.
#[test]
fn audit_reaches_you() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let notices = world.start("n2", &["notices", "--follow", "--json"]);
    let script = "echo up; curl -sS -m 5 -o /dev/null http://shop.example/; read go; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; sleep 600";
    let mut running = world.start(
        "n1",
        &["run", "-q", "--name", "yard", "--", "sh", "-c", script],
    );
    running.wait_line(LIMIT, |line| line.trim() == "up");
    let pressed = Instant::now();
    drop(running.take_stdin());
    let notice = row_of(&notices, |row| row["box"] == "yard");
    assert!(
        pressed.elapsed() < Duration::from_secs(1),
        "notice after {:?}",
        pressed.elapsed()
    );
    assert_eq!(notice["rule"], "local-from-internet-only");
    assert_eq!(notice["device"], "n1");
    let entry = &notice["entries"][0];
    assert_eq!(
        (&entry["dst_ip"], &entry["verdict"]),
        (&"192.168.1.9".into(), &"refuse".into())
    );
    assert_eq!(entry["no"], notice["evidence"][0]);

    let pressed = Instant::now();
    let there = world.run("n2", &["stop", "yard@n1", "--json"]).ok().json();
    assert!(
        pressed.elapsed() < Duration::from_secs(1),
        "stopped after {:?}",
        pressed.elapsed()
    );
    assert_eq!(
        (&there[0]["state"], &there[0]["processes_left"]),
        (&"stopped".into(), &0.into())
    );
    assert!(there[0]["processes_ended"].as_u64().unwrap() > 0);
    assert_eq!(running.finish(LIMIT).code, Some(121));
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));

    let ours = flows(&world, "n1", "yard");
    assert!(ours.len() >= 4);
    assert!(
        wait_until(LIMIT, || flows(&world, "n2", "yard") == ours),
        "the audits differ"
    );
    assert!(
        ours.last().unwrap()["end"]
            .as_str()
            .unwrap()
            .starts_with("stopped by device")
    );
    // The person at the first device sees who it was.
    let boxes = world.run("n1", &["ps", "--json"]).ok().json();
    assert!(
        boxes[0]["end"]
            .as_str()
            .unwrap()
            .starts_with("stopped by device"),
        "{boxes:?}"
    );
}

#[test]
fn a_device_that_was_away_reads_what_it_missed() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    drop(daemons.pop());
    assert!(wait_until(LIMIT, || world.pids("n2", "bailey").is_empty()));
    let _first = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        "curl -sS -o /dev/null http://shop.example/",
    )
    .ok();
    let _again = daemon(&world, "n2");
    let ours = flows(&world, "n1", "yard");
    let same = wait_until(LIMIT, || {
        let theirs = world.run("n2", &["flows", "yard", "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    });
    assert!(same, "what was written meanwhile did not arrive");
}

#[test]
fn a_cut_cable_heals_and_a_stop_meanwhile_is_said_to_be_undelivered() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let running = world.start(
        "n1",
        &[
            "run",
            "-q",
            "--name",
            "yard",
            "--",
            "sh",
            "-c",
            "echo up; sleep 600",
        ],
    );
    running.wait_line(LIMIT, |line| line.trim() == "up");
    let known = wait_until(LIMIT, || {
        world.run("n2", &["ps", "--json"]).stdout.contains("yard")
    });
    assert!(known, "the box is not seen from the other device");
    world.link_down("n1").unwrap();
    let asked = world.run("n2", &["stop", "yard", "--json", "--wait", "1"]);
    assert_eq!(asked.code, Some(1), "{asked}");
    assert_eq!(asked.json().last().unwrap()["state"], "not delivered yet");
    world.link_up("n1").unwrap();
    // Delivered when it is heard again, without another press.
    assert_eq!(running.finish(Duration::from_secs(60)).code, Some(121));
}

#[test]
fn a_device_that_is_not_of_the_account_gets_nothing() {
    let (world, _daemons) = world(3);
    pair(&world, "n1", "n2");
    let _box = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
    // The third device has an account of its own, and knows where the first is.
    let _own = boxed(&world, "n3", &["-q"], "true").ok();
    let wrong = world.run("n3", &["device", "join", "0000-0000-0000", "--json"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
    for node in ["n1", "n2"] {
        let devices = world.run(node, &["device", "list", "--json"]).ok().json();
        assert_eq!(devices.len(), 2, "{devices:?}");
    }
    let seen = world.run("n3", &["ps", "--json"]).ok().stdout;
    assert!(!seen.contains("yard"), "{seen}");
}

#[test]
fn a_person_who_says_no_adds_nobody() {
    let (world, _daemons) = world(2);
    let add = world.start("n1", &["device", "add", "--json"]);
    let code = row_of(&add, |row| row["code"].is_string());
    let joined = world.run(
        "n2",
        &["device", "join", code["code"].as_str().unwrap(), "--json"],
    );
    // Nobody is at the terminal: the answer is no.
    assert_eq!(add.finish(LIMIT).code, Some(2));
    assert_eq!(joined.code, Some(125), "{joined}");
    let devices = world.run("n1", &["device", "list", "--json"]).ok().json();
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert!(
        world
            .run("n2", &["device", "list", "--json"])
            .ok()
            .json()
            .is_empty()
    );
}

#[test]
fn a_device_reads_what_another_wrote_before_it_joined() {
    let (world, _daemons) = world(2);
    let _before = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        "curl -sS -o /dev/null http://shop.example/",
    )
    .ok();
    pair(&world, "n1", "n2");
    let ours = flows(&world, "n1", "yard");
    let same = wait_until(LIMIT, || {
        let theirs = world.run("n2", &["flows", "yard@n1", "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    });
    assert!(same, "the audit from before did not arrive");
}

#[test]
fn a_device_joins_one_whose_node_was_started_many_times() {
    let (world, mut daemons) = world(2);
    for _ in 0..4 {
        let _box = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
        daemons.remove(0);
        assert!(wait_until(LIMIT, || world.pids("n1", "bailey").is_empty()));
        daemons.insert(0, daemon(&world, "n1"));
    }
    pair(&world, "n1", "n2");
    let third = bailey_tests::run(world.bailey("n2").args(["device", "list", "--json"]))
        .ok()
        .json();
    assert_eq!(third.len(), 2);
    let ours = flows(&world, "n1", "yard");
    assert_eq!(
        ours.iter().filter(|row| row["kind"] == "started").count(),
        4
    );
    let same = wait_until(LIMIT, || {
        let theirs = world.run("n2", &["flows", "yard", "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    });
    assert!(same, "the audit of earlier starts did not arrive");
}
