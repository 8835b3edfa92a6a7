//! Whose life a box hangs on: the process that owns the channel, and nothing
//! smaller.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Ask, launcher_named, processes_with, until};

/// Says to this program that it is an owner to be killed, and which launcher it
/// starts.
const OWNER: &str = "BAILEY_TEST_OWNER";
/// Words that no other process has.
const MARK: &str = "8765.4321";
const ROUNDS: u64 = 200;

/// Owns a box until it is killed. As a test of its own it does nothing.
#[test]
fn owner() {
    let Some(launcher) = std::env::var_os(OWNER).map(PathBuf::from) else {
        return;
    };
    let started = Ask::new(&["/usr/bin/sleep", MARK]).start(&launcher, |_| {});
    // Not by the test's own output, which is held back.
    writeln!(std::io::stderr(), "told").unwrap();
    let _made = started.made().unwrap().go();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn no_box_outlives_an_owner_that_was_killed_while_it_started_one() {
    let launcher = launcher_named("bf-owned");
    let mut ran = 0;
    for round in 0..ROUNDS {
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "owner", "--nocapture"])
            .env(OWNER, &launcher)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(owner.stderr.take().unwrap()).lines();
        assert!(words.any(|line| line.unwrap() == "told"));
        if round % 50 == 0 {
            // The control: where nobody kills the owner, the box runs.
            until("a box", || processes_with(MARK) > 0);
            ran += 1;
        } else {
            // Within the first millisecond of the start.
            let moment = Instant::now() + Duration::from_micros(round * 5);
            while Instant::now() < moment {
                std::hint::spin_loop();
            }
        }
        owner.kill().unwrap();
        owner.wait().unwrap();
    }
    assert_eq!(ran, 4, "the control");
    until("no process", || {
        processes_with("bf-owned") + processes_with(MARK) == 0
    });
}

#[test]
fn a_thread_that_started_a_box_may_end_before_it() {
    let thread = std::thread::spawn(|| {
        let made = Ask::new(&["/usr/bin/sleep", "1000"]).make().unwrap();
        made.go().running()
    });
    let mut made = thread.join().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(made.left(), 2, "the box went with the thread");
    made.tell(&bailey_fence_plan::channel::ToFence::Kill);
    let _ended = made.end();
}
