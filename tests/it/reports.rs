//! Boundary reports: measured inside, entered, synced, and acted on.

use bailey_tests::{Running, TestWorld, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, boxed, daemon, flows, is_clean, pair, up, world};

/// The newest report of a box.
fn report(world: &TestWorld, node: &str, name: &str) -> Value {
    let mut rows = world.run(node, &["report", name, "--json"]).ok().json();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

/// The verdicts, in the order of the sides.
fn verdicts(report: &Value) -> Vec<String> {
    let axes = report["axes"].as_array().unwrap();
    let word = |axis: &Value| format!("{} {}", text(&axis["axis"]), text(&axis["verdict"]));
    axes.iter().map(word).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn every_tiers_report_is_as_asked() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    for (tier, sides) in [
        ("l1", "fenced fenced passes passes passes passes"),
        ("l1.5", "fenced fenced fenced fenced passes passes"),
        ("l2", "fenced fenced fenced fenced fenced passes"),
        ("gated", "fenced fenced fenced fenced decided passes"),
    ] {
        let name = format!("yard-{}", tier.replace('.', "-"));
        let ran = boxed(&world, "n1", &["--tier", tier, "--name", &name], "true").ok();
        assert!(!ran.stderr.contains("weaker"), "{ran}");
        let report = report(&world, "n1", &name);
        assert_eq!(
            (text(&report["asked"]), text(&report["level"])),
            (tier, tier),
            "{report:#}"
        );
        let words = verdicts(&report);
        let words: Vec<&str> = words
            .iter()
            .filter_map(|side| side.split(' ').nth(1))
            .collect();
        assert_eq!(words.join(" "), sides, "{tier}: {report:#}");
        // The dial that a gated report rests on is no flow of the command's.
        let rows = flows(&world, "n1", &name);
        assert!(rows.iter().all(|row| row["dst_port"] != 9), "{rows:?}");
    }
}

#[test]
fn the_report_reads_the_same_by_eye_and_by_program() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    let _made = world.sh("n1", "mkdir -p ours theirs").ok();
    let home = world.node("n1").unwrap().home().display().to_string();
    let (ours, theirs) = (format!("{home}/ours:rw"), format!("{home}/theirs"));
    let args = ["-q", "--name", "yard", "--reach", "shop.example:443"];
    let more = [
        "--grant",
        &ours,
        "--grant",
        &theirs,
        "--limit",
        "files=64,time=1h",
    ];
    let _ran = boxed(&world, "n1", &[&args[..], &more].concat(), "true").ok();
    let masked = |text: &str| -> String {
        let report = report(&world, "n1", "yard");
        let mut text = text.replace(&home, "HOME");
        for field in ["ts", "box_id", "incarnation"] {
            text = text.replace(self::text(&report[field]), &field.to_uppercase());
        }
        // What the machine has, not what the box is.
        let varies = |line: &&str| {
            let of_machine = [
                "inotify instances",
                "landlock",
                "open /etc/machine-id",
                "open the user's home",
                // Whether it is reached outside.
                "connect the system bus",
                "connect the journal",
                "connect a container engine",
            ];
            !of_machine.iter().any(|name| line.contains(name))
        };
        text.lines().filter(varies).collect::<Vec<_>>().join("\n")
    };
    let shown = world.run("n1", &["report", "yard"]).ok().stdout;
    insta::assert_snapshot!("by_eye", masked(&shown));
    let row = world
        .run("n1", &["report", "yard", "--json"])
        .ok()
        .json()
        .remove(0);
    let mut shape = row.clone();
    // The facts are those above; here one a side shows their form.
    for axis in shape["axes"].as_array_mut().unwrap() {
        axis["facts"].as_array_mut().unwrap().truncate(1);
    }
    insta::assert_snapshot!("by_program", masked(&format!("{shape:#}")));
    for axis in row["axes"].as_array().unwrap() {
        for fact in axis["facts"].as_array().unwrap() {
            assert!(shown.contains(&masked_fact(fact)), "{fact}");
        }
    }
}

fn masked_fact(fact: &Value) -> String {
    format!("{:<30} {}", text(&fact["what"]), text(&fact["got"]))
}

#[test]
fn a_report_is_read_on_another_device() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let _ran = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard", "--tier", "l2"],
        "true",
    )
    .ok();
    let here = report(&world, "n1", "yard");
    let there = || world.run("n2", &["report", "yard@n1", "--json"]).json();
    assert!(
        wait_until(LIMIT, || there().first() == Some(&here)),
        "{:?} is not {here}",
        there()
    );
    let unknown = world.run("n2", &["report", "keep@n1"]);
    assert_eq!(unknown.code, Some(2), "{unknown}");
}

/// A node whose boxes lack a layer, as its launcher makes them for tests alone.
fn broken(world: &TestWorld, layer: &str) -> Running {
    let mut command = world.bailey("n1");
    command.env("BAILEY_TEST_LEAVE_OUT", layer);
    command.args(["node", "--device-name", "n1"]);
    up(world, "n1", Running::start(&mut command))
}

#[test]
fn a_box_weaker_than_asked_does_not_start() {
    for (layer, side) in [("network", "network"), ("filter", "syscalls")] {
        let world = TestWorld::new(1);
        let _daemon = broken(&world, layer);
        let _made = world.sh("n1", "mkdir -p ours").ok();
        let home = world.node("n1").unwrap().home().display().to_string();
        let ours = format!("{home}/ours:rw");
        let canary = format!("echo sang > {home}/ours/canary; echo sang");
        let args = ["--name", "yard", "--grant", &ours];
        let refused = boxed(&world, "n1", &args, &canary);
        assert_eq!(
            (refused.code, refused.stdout.as_str()),
            (Some(120), ""),
            "{refused}"
        );
        let said = format!("weaker than asked ({side}: not-fenced, ");
        assert!(refused.stderr.contains(&said), "{refused}");
        assert!(!home_has(&world, "ours/canary"));
        assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
        let report = report(&world, "n1", "yard");
        assert_ne!(report["level"], "gated", "{report:#}");
        let rows = flows(&world, "n1", "yard");
        assert!(text(&rows.last().unwrap()["end"]).starts_with("weaker than asked: "));
        // The control: the same box does run, and the person was told first.
        let args = ["--allow-weaker", "--name", "yard", "--grant", &ours];
        let ran = boxed(&world, "n1", &args, &canary).ok();
        let first = ran.stderr.lines().next().unwrap();
        let told = format!("bailey: weaker than asked: {side}: not-fenced, ");
        assert!(first.starts_with(&told), "{ran}");
        assert!(home_has(&world, "ours/canary"));
    }
}

fn home_has(world: &TestWorld, path: &str) -> bool {
    world.node("n1").unwrap().home().join(path).exists()
}
