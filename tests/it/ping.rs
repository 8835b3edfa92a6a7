//! `ping` in a box: an echo is a flow like others.

use std::time::{Duration, Instant};

use bailey_tests::TestWorld;

use crate::common::{boxed, daemon, flows, world};

/// What comes back from an unprivileged `ping` that may not.
const PROHIBITED: &str = "Packet filtered";

#[test]
fn a_ping_in_reach_is_answered_and_entered() {
    let (world, _daemons) = world(1);
    for (name, to) in [("four", "93.184.216.34"), ("six", "2606:2800:220:1::1")] {
        let script = format!("ping -n -c1 -W5 {to}");
        let ran = boxed(&world, "n1", &["-q", "--name", name], &script).ok();
        assert!(ran.stdout.contains(" 0% packet loss"), "{ran}");
        let rows = flows(&world, "n1", name);
        let row = rows.iter().find(|row| row["kind"] == "flow").unwrap();
        assert_eq!(
            (&row["proto"], &row["verdict"], &row["dst_ip"], &row["rule"]),
            (
                &"icmp".into(),
                &"allow".into(),
                &to.into(),
                &"internet".into()
            )
        );
        assert_eq!(
            (&row["bytes_out"], &row["bytes_in"], &row["end"]),
            (&56.into(), &56.into(), &"box stopped".into())
        );
        let shown = world.run("n1", &["flows", name]).ok().stdout;
        assert!(shown.contains("✓ allowed  icmp"), "{shown}");
        assert!(!shown.contains(":0 "), "{shown}");
    }
}

#[test]
fn a_ping_outside_reach_is_prohibited_at_once_and_named() {
    let (world, _daemons) = world(1);
    let start = Instant::now();
    let ran = boxed(
        &world,
        "n1",
        &["--name", "lan"],
        "LC_ALL=C ping -n -c1 -W5 192.168.1.9",
    );
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stdout.contains(PROHIBITED), "{ran}");
    assert!(start.elapsed() < Duration::from_secs(3), "{ran}");
    assert!(
        ran.stderr
            .contains("icmp 192.168.1.9: local, outside reach"),
        "{ran}"
    );
    assert!(
        ran.stderr
            .contains("would be granted by --reach …,192.168.1.9"),
        "{ran}"
    );
    let rows = flows(&world, "n1", "lan");
    let row = rows.iter().find(|row| row["verdict"] == "refuse").unwrap();
    assert_eq!(
        (&row["proto"], &row["reason"]),
        (&"icmp".into(), &"outside reach".into())
    );
    // The control: what is said to grant it does.
    let words = ["-q", "--name", "lan", "--reach", "192.168.1.9"];
    let ran = boxed(&world, "n1", &words, "ping -n -c1 -W5 192.168.1.9").ok();
    assert!(ran.stdout.contains(" 0% packet loss"), "{ran}");
}

#[test]
fn nobody_answers_for_an_address_that_does_not() {
    let (world, _daemons) = world(1);
    for to in ["45.33.32.156", "2606:2800:220:1::dead"] {
        let script = format!("LC_ALL=C ping -n -c2 -i0.3 -W1 {to}");
        let ran = boxed(&world, "n1", &["-q"], &script);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stdout.contains("100% packet loss"), "{ran}");
        assert!(!ran.stdout.contains("From "), "{ran}");
    }
    // The control: where the network says that there is no way, the box hears it.
    let ran = boxed(
        &world,
        "n1",
        &["-q"],
        "LC_ALL=C ping -n -c1 -W5 45.33.32.157",
    );
    assert!(ran.stdout.contains("Unreachable"), "{ran}");
}

#[test]
fn a_host_that_lets_nobody_ping_says_so_before_and_after_and_needs_no_restart() {
    let world = TestWorld::with(1, |spec| spec.ping = false);
    let _daemon = daemon(&world, "n1");
    let row = |world: &TestWorld| {
        let rows = world.run("n1", &["doctor", "--json"]).ok().json();
        rows.into_iter().find(|row| row["rung"] == "ping").unwrap()
    };
    let uid = world.uid();
    let found = row(&world);
    assert_eq!(found["outcome"], "weaker", "{found}");
    let lost = found["lost"].as_str().unwrap();
    assert!(
        lost.starts_with("`ping` in a box is refused at once"),
        "{lost}"
    );
    // In a container it is the container that is started otherwise; else nothing is
    // advised, and that is said.
    let of_container = format!("run --sysctl net.ipv4.ping_group_range='{uid} {uid}' IMAGE");
    match found["remedy"].as_str() {
        Some(remedy) => assert!(remedy.contains(&of_container), "{remedy}"),
        None => assert!(lost.contains("no setting is advised"), "{lost}"),
    }
    let script = "LC_ALL=C ping -n -c1 -W5 93.184.216.34; sleep 60";
    let running = crate::common::attached(&world, "n1", &["--name", "mute"], script);
    running.wait_error_line(crate::common::LIMIT, |line| {
        line.ends_with("refused icmp 93.184.216.34: internet, the host allows no ping")
    });
    running.wait_line(crate::common::LIMIT, |line| {
        line.contains("100% packet loss")
    });
    assert!(
        running.stdout().contains(PROHIBITED),
        "{}",
        running.stdout()
    );
    let shown = world.run("n1", &["report", "mute"]).ok().stdout;
    let said = "refused: the host lets this user make no ping socket";
    assert!(shown.contains(said), "{shown}");
    // What lets them, as the world's root sees that group.
    let range = "echo 0 0 >/proc/sys/net/ipv4/ping_group_range";
    let mut root = world.node("n1").unwrap().root_command("sh");
    let _written = bailey_tests::run(root.args(["-c", range])).ok();
    let words = [
        "exec",
        "mute",
        "--",
        "ping",
        "-n",
        "-c1",
        "-W5",
        "93.184.216.34",
    ];
    let ran = world.run("n1", &words).ok();
    assert!(ran.stdout.contains(" 0% packet loss"), "{ran}");
    assert_eq!(row(&world)["outcome"], "ok");
    let ran = boxed(&world, "n1", &["-q", "--name", "heard"], "true").ok();
    let shown = world.run("n1", &["report", "heard"]).ok().stdout;
    assert!(!shown.contains(said), "{ran} {shown}");
}
