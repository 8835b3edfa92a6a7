//! `--limit`: a box cannot use up the machine.

use std::time::{Duration, Instant};

use bailey_tests::{TestWorld, wait_until};

use crate::common::{LIMIT, boxed, is_clean, stop};

/// Forks without end, and says how far it got and what stopped it.
const BOMB: &str = "
import os, sys, time
made = 0
while made < 2000:
    try:
        child = os.fork()
    except OSError as error:
        print('held at', made, error.errno, flush=True)
        break
    if child == 0:
        time.sleep(600)
        os._exit(0)
    made += 1
else:
    print('not held', flush=True)
time.sleep(600)
";

/// Takes memory and touches each page of it.
const HOG: &str = "
import sys
try:
    held = bytearray(1 << 30)
    print('not held')
except MemoryError:
    print('MemoryError')
";

#[test]
fn a_fork_bomb_is_held_by_pids_and_its_box_stops() {
    let world = TestWorld::new(1);
    let start = |limit: &[&str], name: &str| {
        let mut words = vec!["run", "-q", "--name", name];
        words.extend(limit);
        words.extend(["--", "python3", "-I", "-S", "-c", BOMB]);
        let running = world.start("n1", &words);
        let line = running.wait_line(LIMIT, |line| line.contains("held"));
        (running, line)
    };
    let (bomb, line) = start(&["--limit", "pids=64"], "yard");
    let mut words = line.split(' ').skip(2);
    let (made, errno) = (words.next().unwrap(), words.next().unwrap());
    // Pid 1 and the bomb itself count too.
    let made: u32 = made.parse().unwrap();
    assert!((55..64).contains(&made), "{line}");
    assert_eq!(errno, nix::libc::EAGAIN.to_string(), "{line}");
    // The machine is as before: another box starts.
    let begun = Instant::now();
    assert_eq!(
        boxed(&world, "n1", &["-q"], "echo fine").ok().stdout,
        "fine\n"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    // A further command meets the same limit.
    let full = world.run("n1", &["exec", "yard", "--", "sh", "-c", "true & wait"]);
    assert_ne!(full.code, Some(0), "{full}");
    stop(&world, "n1", "yard");
    assert_eq!(bomb.finish(LIMIT).code, Some(121));
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
    // The control: without the limit it is not.
    let (_free, line) = start(&[], "free");
    assert_eq!(line, "not held");
}

#[test]
fn a_memory_hog_fails_inside_and_nowhere_else() {
    let world = TestWorld::new(1);
    let hog = |limit: &[&str]| {
        let mut words = vec!["run", "-q"];
        words.extend(limit);
        words.extend(["--", "python3", "-I", "-S", "-c", HOG]);
        world.run("n1", &words)
    };
    let held = hog(&["--limit", "mem=64M"]).ok();
    assert_eq!(held.stdout, "MemoryError\n");
    // The control: without the limit it has its memory.
    assert_eq!(hog(&[]).ok().stdout, "not held\n");
}

#[test]
fn open_files_are_limited() {
    let world = TestWorld::new(1);
    let limited = boxed(&world, "n1", &["-q", "--limit", "files=64"], "ulimit -n").ok();
    assert_eq!(limited.stdout, "64\n");
    let free = boxed(&world, "n1", &["-q"], "ulimit -n").ok().stdout;
    assert!(
        free.trim().parse().is_ok_and(|most: u64| most > 64),
        "{free}"
    );
}

#[test]
fn a_box_whose_time_is_up_is_ended_with_the_code_that_says_so() {
    let world = TestWorld::new(1);
    let begun = Instant::now();
    let args = [
        "--name", "yard", "--limit", "time=1s", "--result", "out.json",
    ];
    let ended = boxed(&world, "n1", &args, "sleep 600 & sleep 600");
    assert_eq!(ended.code, Some(124), "{ended}");
    assert!(ended.stderr.contains("its time was up"), "{ended}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let result = world.sh("n1", "cat out.json").ok().json();
    assert_eq!(
        (
            &result[0]["exit"],
            &result[0]["end"],
            &result[0]["processes_left"]
        ),
        (&124.into(), &"its time was up".into(), &0.into())
    );
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
    // One that is done earlier has its own code.
    assert_eq!(
        boxed(&world, "n1", &["-q", "--limit", "time=1h"], "exit 3").code,
        Some(3)
    );
    // A detached one is ended as well.
    let words = ["-q", "--detach", "--name", "keep", "--limit", "time=1s"];
    let _started = boxed(&world, "n1", &words, "sleep 600").ok();
    let over = || {
        let rows = world.run("n1", &["ps", "--json"]).ok().json();
        rows.iter()
            .any(|row| row["name"] == "keep" && row["end"] == "its time was up")
    };
    assert!(wait_until(LIMIT, over));
}

#[test]
fn a_limit_that_nothing_holds_here_starts_only_with_leave() {
    let world = TestWorld::new(1);
    let args = ["--name", "yard", "--limit", "cpus=0.5"];
    let ran = boxed(&world, "n1", &args, "echo ran");
    let log = world.sh("n1", "cat ../state/bailey/node.log").ok().stdout;
    let cgroups = log.contains("limits: cgroups below");
    assert!(cgroups || log.contains("limits: resource limits"), "{log}");
    if cgroups {
        assert_eq!(ran.code, Some(0), "{ran}");
        return;
    }
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(120), ""), "{ran}");
    assert!(ran.stderr.contains("--limit cpus is not held"), "{ran}");
    let args = [&args[..], &["--allow-weaker"]].concat();
    let ran = boxed(&world, "n1", &args, "echo ran").ok();
    assert_eq!(ran.stdout, "ran\n", "{ran}");
    // And the report does not say otherwise.
    let report = world.run("n1", &["report", "yard", "--json"]).ok().stdout;
    assert!(report.contains("limit cpus"), "{report}");
    assert!(report.contains("nothing holds it"), "{report}");
}
