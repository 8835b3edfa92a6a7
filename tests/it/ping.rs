//! `ping` in a box: an echo is a flow like others.

use std::time::{Duration, Instant};

use crate::common::{boxed, flows, world};

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
