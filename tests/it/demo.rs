//! The demo is a promise to a newcomer: it holds, and in time.

use std::time::{Duration, Instant};

use bailey_tests::{binaries, json_lines, run_within};

#[test]
fn the_demo_holds_in_every_line_within_a_minute() {
    let mut command = as_ordinary_user();
    command
        .arg(binaries().join("bailey"))
        .args(["demo", "--json"]);
    let started = Instant::now();
    let output = run_within(Duration::from_secs(60), &mut command).ok();
    assert!(started.elapsed() < Duration::from_secs(60));
    let rows = json_lines(&output.stdout);
    let checks: Vec<_> = rows.iter().filter(|row| row["check"].is_string()).collect();
    assert!(checks.len() >= 13, "{output}");
    assert!(checks.iter().all(|row| row["held"] == true), "{output}");
    assert_eq!(rows.last().unwrap()["failed"], 0);
}

/// As root the demo drops to a user of its own; here the test does.
fn as_ordinary_user() -> std::process::Command {
    let uid = bailey_world::ORDINARY_UID.to_string();
    if !nix::unistd::geteuid().is_root() {
        return std::process::Command::new("env");
    }
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid",
        &uid,
        "--regid",
        &uid,
        "--clear-groups",
        "env",
        "-i",
    ]);
    command.arg("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command
}
