//! `bailey doctor`: what it says where the machine refuses something for real.

use bailey_tests::{Output, TestWorld, binaries, run};
use serde_json::Value;

/// `bailey doctor` with these words where `how` is refused.
fn doctor(world: &TestWorld, how: &str, words: &[&str]) -> Output {
    let bailey = binaries().join("bailey");
    let mut command = if how.is_empty() {
        world.bailey("n1")
    } else {
        let attack = binaries().join("bailey-attack");
        let mut command = world.command("n1", &attack.to_string_lossy());
        command.args(["deny", how]).arg(bailey);
        command
    };
    run(command.arg("doctor").args(words))
}

/// Rungs that are the same on all machines: those of what was refused. What the
/// machine itself lacks (cgroups, AppArmor, a disk's encryption) is not here.
const OF_BOXES: [&str; 13] = [
    "user-namespace",
    "user-map",
    "namespaces",
    "mount-propagation",
    "mount-api",
    "tmpfs",
    "overlay",
    "proc",
    "loopback",
    "tun",
    "seccomp",
    "bubblewrap",
    "browser",
];

fn rungs(output: &Output) -> Vec<Value> {
    output
        .json()
        .into_iter()
        .filter(|row| row["kind"] == "rung")
        .collect()
}

/// One line a rung that is not well: outcome, name, the first word of the fact.
fn unwell(output: &Output) -> String {
    let mut text = String::new();
    for row in rungs(output) {
        let name = row["rung"].as_str().unwrap();
        if !OF_BOXES.contains(&name) || row["outcome"] == "ok" {
            continue;
        }
        let fact = row["fact"].as_str().unwrap();
        let fact = fact.split([':', ',']).next().unwrap();
        text += &format!("{} {name}: {fact}\n", row["outcome"].as_str().unwrap());
        assert!(row["lost"].is_string(), "{row}");
    }
    let verdict = output.json().pop().unwrap();
    text + &format!(
        "tiers {}, any {}, browser {}, exit {:?}",
        verdict["tiers"], verdict["any"], verdict["browser"], output.code
    )
}

#[test]
fn a_machine_that_can_do_all_is_told_so_and_no_node_is_started() {
    let world = TestWorld::new(1);
    let output = doctor(&world, "", &["--json"]);
    assert_eq!(output.code, Some(0), "{output}");
    insta::assert_snapshot!(unwell(&output), @r#"tiers ["l1","l1.5","l2","gated"], any true, browser true, exit Some(0)"#);
    // Every rung is there once, each with its three words.
    let rows = rungs(&output);
    assert_eq!(rows.len(), 21, "{output}");
    let text = doctor(&world, "", &[]);
    assert_eq!(text.code, Some(0), "{text}");
    for word in [
        "browser box: yes",
        "keys-at-rest",
        "boxes of every tier can be made here",
    ] {
        assert!(text.stdout.contains(word), "{word}: {text}");
    }
    assert!(!text.stdout.contains("sysctl"), "{text}");
    assert_eq!(world.pids("n1", "bailey").len(), 0, "no node runs");
    let state = world.node("n1").unwrap().dir().join("state/bailey");
    assert!(!state.exists(), "nothing is made");
}

#[test]
fn stripped_namespaces_are_said_to_be_stripped() {
    let world = TestWorld::new(1);
    let output = doctor(&world, "stripped-namespaces", &["--json"]);
    insta::assert_snapshot!(unwell(&output));
    let rows = rungs(&output);
    let map = rows.iter().find(|row| row["rung"] == "user-map").unwrap();
    let remedy = map["remedy"].as_str().unwrap();
    // The tests' programs are not root's alone: they are installed first.
    let expected = [
        "apparmor_parser --replace",
        "sudo install -D -m 755 -t /usr/libexec/bailey",
    ];
    assert!(
        expected.iter().any(|part| remedy.contains(part)),
        "{remedy}"
    );
}

#[test]
fn a_containers_filter_is_said_to_be_one() {
    let world = TestWorld::new(1);
    let output = doctor(&world, "container-filter", &["--json"]);
    insta::assert_snapshot!(unwell(&output));
    let rows = rungs(&output);
    let confined = rows.iter().find(|row| row["rung"] == "confined").unwrap();
    let fact = confined["fact"].as_str().unwrap();
    assert!(fact.contains("seccomp mode 2"), "{fact}");
}

#[test]
fn a_count_of_no_user_namespaces_is_found_by_trying() {
    let world = TestWorld::new(1);
    insta::assert_snapshot!(unwell(&doctor(&world, "no-user-namespaces", &["--json"])));
}

#[test]
fn without_clone3_bubblewrap_is_what_is_left() {
    let world = TestWorld::new(1);
    insta::assert_snapshot!(unwell(&doctor(&world, "no-clone3", &["--json"])));
}

#[test]
fn a_tun_that_cannot_be_opened_costs_gated_boxes_alone() {
    let world = TestWorld::new(1);
    insta::assert_snapshot!(unwell(&doctor(&world, "no-tun", &["--json"])));
}

#[test]
fn a_masked_proc_is_named() {
    let world = TestWorld::new(1);
    let output = doctor(&world, "masked-proc", &["--json"]);
    insta::assert_snapshot!(unwell(&output));
    let rows = rungs(&output);
    let proc = rows.iter().find(|row| row["rung"] == "proc").unwrap();
    assert!(
        proc["fact"].as_str().unwrap().contains("/proc/keys"),
        "{proc}"
    );
}

#[test]
fn the_profile_is_printed_whole_with_the_two_commands_that_load_it() {
    let world = TestWorld::new(1);
    let output = doctor(&world, "", &["--print-apparmor"]).ok();
    let shipped = include_str!("../../packaging/apparmor/bailey-fence");
    // For the launcher where it is, or where it is installed.
    assert_eq!(output.stdout.lines().count(), shipped.lines().count());
    assert!(output.stdout.contains("profile bailey-fence /"), "{output}");
    assert!(output.stdout.contains("profile bailey-box "), "{output}");
    let commands: Vec<&str> = output
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("bailey:   "))
        .collect();
    assert_eq!(commands.len(), 2, "{output}");
    assert!(commands[0].contains("sudo tee /etc/apparmor.d/bailey-fence"));
    assert!(commands[1].contains("sudo apparmor_parser --replace /etc/apparmor.d/bailey-fence"));
}
