//! Boxes without a terminal, further commands in them, and how surely all of it
//! ends.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bailey_tests::{Output, Running, TestWorld, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{
    LIMIT, attached, boxed, daemon, flows, hears_of, is_clean, launchers, on_terminal, pair, stop,
};

/// Boxes at once on one node.
const MANY: usize = 50;

/// Starts a box that lives on by itself.
fn detached(world: &TestWorld, args: &[&str], script: &str) -> Output {
    let mut words = vec!["--detach"];
    words.extend(args);
    boxed(world, "n1", &words, script)
}

fn row(world: &TestWorld, name: &str) -> Value {
    let rows = world.run("n1", &["ps", "--json"]).ok().json();
    let found = rows.into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no box {name}"))
}

fn ended(world: &TestWorld, name: &str) -> bool {
    row(world, name)["state"] == "ended"
}

fn exec(world: &TestWorld, name: &str, script: &str) -> Output {
    world.run("n1", &["exec", name, "--", "sh", "-c", script])
}

/// Starts a further command in the yard, once it runs.
fn added(world: &TestWorld, script: &str) -> Running {
    let script = format!("echo up; {script}");
    let running = world.start("n1", &["exec", "yard", "--", "sh", "-c", &script]);
    running.wait_line(LIMIT, |line| line == "up");
    running
}

#[test]
fn a_detached_box_lives_on_and_what_it_writes_is_kept() {
    let world = TestWorld::new(1);
    let script = "echo to-stdout; echo to-stderr >&2; printf 'a\\033[31mb\\tc\\n'; \
                  cat; echo after-stdin; sleep 600";
    let started = detached(&world, &["--name", "yard"], script).ok();
    assert_eq!(started.stdout, "yard\n", "its name, and nothing else");
    assert!(started.stderr.contains("bailey logs yard"), "{started}");
    let logs = || world.run("n1", &["logs", "yard"]).ok();
    assert!(wait_until(LIMIT, || logs().stdout.contains("after-stdin")));
    let kept = logs();
    assert_eq!(
        (kept.stdout.as_str(), kept.stderr.as_str()),
        ("to-stdout\na\\u{1b}[31mb\tc\nafter-stdin\n", "to-stderr\n"),
    );
    let raw = world.run("n1", &["logs", "yard", "--raw"]).ok();
    assert!(raw.stdout.contains("a\x1b[31mb\tc\n"), "{raw}");
    assert_eq!(row(&world, "yard")["state"], "running");
    stop(&world, "n1", "yard");
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
    // What it wrote is there after its end.
    assert_eq!(logs().stdout, kept.stdout);
    let mode = world
        .sh("n1", "stat -c %a ../state/bailey/boxes/yard/log")
        .ok();
    assert_eq!(mode.stdout, "600\n");
}

#[test]
fn logs_are_followed_to_the_end_of_the_box() {
    let world = TestWorld::new(1);
    let script = "echo first; while [ ! -e go ]; do sleep 0.05; done; \
                  seq 1 200000; echo last";
    let _started = detached(&world, &["--name", "yard"], script).ok();
    let follow = world.start("n1", &["logs", "yard", "--follow"]);
    follow.wait_line(LIMIT, |line| line == "first");
    let _told = exec(&world, "yard", "touch go").ok();
    let output = follow.finish(Duration::from_secs(30)).ok();
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 200_002);
    assert_eq!(
        (lines[0], lines[1], lines[200_000], lines[200_001]),
        ("first", "1", "200000", "last")
    );
}

#[test]
fn a_log_is_bounded_and_its_newest_part_is_kept() {
    let world = TestWorld::new(1);
    let _started = detached(
        &world,
        &["--name", "yard"],
        "head -c 40000000 /dev/zero | tr '\\0' x | fold -w 99; echo the-end",
    )
    .ok();
    assert!(wait_until(LIMIT, || ended(&world, "yard")));
    let sizes = world
        .sh("n1", "cat ../state/bailey/boxes/yard/log* | wc -c")
        .ok();
    let kept: u64 = sizes.stdout.trim().parse().unwrap();
    assert!(kept <= 16 << 20, "{kept} bytes are kept");
    let shown = world.run("n1", &["logs", "yard"]).ok().stdout;
    assert!(shown.ends_with("xthe-end\n"), "{}", shown.len());
    assert!(shown.len() > 8 << 20, "{} bytes are shown", shown.len());
}

#[test]
fn an_unnamed_detached_box_says_its_name_and_leaves_its_log_alone() {
    let world = TestWorld::new(1);
    let started = detached(&world, &["-q"], "echo hello; echo mine > ~/file").ok();
    let name = started.stdout.trim().to_owned();
    assert!(name.starts_with("unnamed-"), "{started}");
    assert!(wait_until(LIMIT, || ended(&world, &name)));
    assert_eq!(world.run("n1", &["logs", &name]).ok().stdout, "hello\n");
    let folder = format!("ls ../state/bailey/boxes/{name}");
    let left = wait_until(LIMIT, || {
        !world
            .sh("n1", &folder)
            .stdout
            .lines()
            .any(|file| file == "home")
    });
    assert!(left, "its own folder stays");
}

#[test]
fn an_attached_box_has_no_log_and_says_so() {
    let world = TestWorld::new(1);
    let _running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    let refused = world.run("n1", &["logs", "yard"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("is attached"), "{refused}");
    let _stopped = world.run("n1", &["stop", "yard"]).ok();
    let refused = world.run("n1", &["logs", "yard"]);
    assert!(
        refused.stderr.contains("no log of yard is kept"),
        "{refused}"
    );
    assert_eq!(world.run("n1", &["logs", "nowhere"]).code, Some(2));
    let both = ["run", "--detach", "--result", "out", "--", "true"];
    assert_eq!(world.run("n1", &both).code, Some(2));
}

#[test]
fn a_start_that_fails_leaves_the_log_of_the_run_before() {
    let world = TestWorld::new(1);
    let _started = detached(&world, &["--name", "yard"], "echo precious").ok();
    let logs = || world.run("n1", &["logs", "yard"]);
    assert!(wait_until(LIMIT, || ended(&world, "yard")));
    assert_eq!(logs().ok().stdout, "precious\n");
    // Nothing here holds a share of the processors.
    let words = ["run", "--name", "yard", "--limit", "cpus=1", "--", "true"];
    assert_eq!(world.run("n1", &words).code, Some(120));
    assert_eq!(logs().ok().stdout, "precious\n");
    // The control: one that starts has its place.
    let _ran = world
        .run("n1", &["run", "--name", "yard", "--", "true"])
        .ok();
    assert!(logs().stderr.contains("no log"), "{}", logs());
}

#[test]
fn a_command_that_cannot_start_detached_says_so_at_once() {
    let world = TestWorld::new(1);
    let refused = world.run("n1", &["run", "--detach", "--grant", "/proc", "--", "true"]);
    assert_eq!(
        (refused.code, refused.stdout.as_str()),
        (Some(2), ""),
        "{refused}"
    );
}

#[test]
fn a_further_command_runs_in_the_same_box_under_the_same_fence() {
    let world = TestWorld::new(1);
    let script = "echo kept > ~/file; grep -E '^(Seccomp|NoNewPrivs|Cap)' /proc/self/status; \
                  sleep 600";
    let _started = detached(&world, &["--name", "yard", "--reach", "nothing"], script).ok();
    let own = || world.run("n1", &["logs", "yard"]).ok().stdout;
    assert!(wait_until(LIMIT, || own().lines().count() == 8));
    let inside = exec(
        &world,
        "yard",
        "grep -E '^(Seccomp|NoNewPrivs|Cap)' /proc/self/status; cat ~/file; \
         tr '\\0' ' ' < /proc/1/cmdline; echo; exit 7",
    );
    assert_eq!(inside.code, Some(7), "{inside}");
    let (confined, rest) = inside.stdout.split_at(own().len());
    assert_eq!(confined, own(), "the same filter, no capability");
    assert_eq!(rest, "kept\nbailey-fence \n");
    // It sees the box's processes, and has the box's network.
    let other = exec(&world, "yard", "grep -l sleep /proc/[0-9]*/comm | wc -l").ok();
    assert_eq!(other.stdout, "1\n");
    let dial = exec(
        &world,
        "yard",
        "python3 -c 'import socket
try: socket.create_connection((\"93.184.216.34\", 80), 5)
except OSError as error: print(type(error).__name__)'",
    );
    assert_eq!(dial.stdout, "ConnectionRefusedError\n", "{dial}");
    let refused = flows(&world, "n1", "yard");
    assert!(
        refused.iter().any(|row| row["kind"] == "refused"),
        "{refused:?}"
    );
    assert_eq!(
        world.run("n1", &["exec", "yard", "--", "/no/such"]).code,
        Some(127)
    );
}

#[test]
fn a_further_command_has_its_own_streams_and_signals() {
    let world = TestWorld::new(1);
    let _started = detached(&world, &["-q", "--name", "yard"], "sleep 600").ok();
    let mut command = world.bailey("n1");
    command.args(["exec", "yard", "--", "sh", "-c", "tr a-z A-Z; echo err >&2"]);
    let mut running = Running::start(&mut command);
    let mut stdin = running.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"all of it\n").unwrap();
    drop(stdin);
    let output = running.finish(LIMIT).ok();
    assert_eq!(
        (output.stdout.as_str(), output.stderr.as_str()),
        ("ALL OF IT\n", "err\n")
    );
    let script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let running = world.start("n1", &["exec", "yard", "--", "sh", "-c", script]);
    running.wait_line(LIMIT, |line| line == "ready");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish(LIMIT).code, Some(3));
    // It goes with its terminal, and the box stays.
    drop(added(&world, "exec sleep 601"));
    let alone = wait_until(LIMIT, || {
        exec(&world, "yard", "cat /proc/[0-9]*/cmdline")
            .stdout
            .matches("sleep")
            .count()
            <= 2
            && !world.sh("n1", "ps ax").stdout.contains("sleep 601")
    });
    assert!(alone, "the command outlived its terminal");
    assert_eq!(row(&world, "yard")["state"], "running");
}

#[test]
fn a_further_command_on_a_terminal_has_job_control() {
    let world = TestWorld::new(1);
    let _started = detached(&world, &["-q", "--name", "yard"], "sleep 600").ok();
    job_control(&world, &["exec", "yard", "--", "bash", "--norc"]);
}

#[test]
fn a_shell_in_a_box_has_job_control() {
    let world = TestWorld::new(1);
    job_control(&world, &["run", "-q", "--", "bash", "--norc"]);
}

/// Stops a command of a shell by Ctrl-Z, lets it go on behind, ends it; then
/// ends the shell.
fn job_control(world: &TestWorld, words: &[&str]) {
    let mut terminal = on_terminal(world, words);
    terminal.type_in("echo re''ady; sleep 100\r");
    terminal.wait_for(LIMIT, "ready");
    // The shell is not stopped with it: it says so, and takes the next line.
    std::thread::sleep(Duration::from_millis(200));
    terminal.type_in("\x1a");
    terminal.wait_for(LIMIT, "Stopped");
    terminal.type_in("bg; echo be''hind\r");
    terminal.wait_for(LIMIT, "behind");
    terminal.type_in("jobs\r");
    terminal.wait_for(LIMIT, "Running");
    terminal.type_in("kill %1; wait; jobs; echo no''ne\r");
    terminal.wait_for(LIMIT, "none");
    terminal.type_in("exit 9\r");
    assert_eq!(terminal.finish(LIMIT), Some(9));
}

#[test]
fn a_box_that_ends_ends_what_was_added_and_says_why() {
    let world = TestWorld::new(1);
    let _started = detached(&world, &["-q", "--name", "yard"], "sleep 600").ok();
    let further = added(&world, "sleep 600");
    let _stopped = world.run("n1", &["stop", "yard"]).ok();
    let output = further.finish(LIMIT);
    assert_eq!(output.code, Some(121), "{output}");
    assert!(
        output.stderr.contains("the box ended (stopped here)"),
        "{output}"
    );

    let script = "while [ ! -e go ]; do sleep 0.05; done; rm go; exit 4";
    let _started = detached(&world, &["-q", "--name", "yard"], script).ok();
    let further = added(&world, "sleep 600");
    let _told = exec(&world, "yard", "touch go").ok();
    let output = further.finish(LIMIT);
    assert_eq!(output.code, Some(125), "{output}");
    assert!(
        output.stderr.contains("the box ended (exited 4)"),
        "{output}"
    );

    let over = exec(&world, "yard", "true");
    assert_eq!(over.code, Some(2));
    assert!(over.stderr.contains("yard does not run"), "{over}");
    // Killed from inside, its box goes on: its own end, as a shell says it.
    let _started = detached(&world, &["-q", "--name", "yard"], "sleep 600").ok();
    assert_eq!(exec(&world, "yard", "kill -9 $$").code, Some(137));
    assert_eq!(row(&world, "yard")["state"], "running");
}

#[test]
fn nothing_is_added_to_a_box_of_another_device() {
    let (world, _daemons) = crate::common::world(2);
    pair(&world, "n1", "n2");
    let _started = detached(&world, &["-q", "--name", "yard"], "sleep 600").ok();
    hears_of(&world, "n2", "yard");
    for words in [
        ["exec", "yard@n1", "--", "true"].as_slice(),
        &["logs", "yard@n1"],
    ] {
        let refused = world.run("n2", words);
        assert_eq!(refused.code, Some(2), "{words:?}: {refused}");
        assert!(
            refused.stderr.contains("runs on n1"),
            "{words:?}: {refused}"
        );
    }
}

#[test]
fn two_boxes_that_write_the_same_folder_are_told_of_one_another() {
    let world = TestWorld::new(1);
    let _made = world.sh("n1", "mkdir -p project/src other").ok();
    let home = world.node("n1").unwrap().home().display().to_string();
    let grant = |path: &str| format!("{home}/{path}");
    let start = |name: &str, path: &str| {
        let args = ["--name", name, "--grant", &grant(path)];
        attached(&world, "n1", &args, "sleep 600")
    };
    let first = start("first", "project:rw");
    let reader = start("reader", "project:ro");
    let elsewhere = start("elsewhere", "other:rw");
    assert!(
        !first.stderr().contains("also writes"),
        "{}",
        first.stderr()
    );
    let second = start("second", "project/src:rw");
    let shared = grant("project/src");
    second.wait_error_line(LIMIT, |line| {
        line == format!("bailey: box first also writes {shared}")
    });
    first.wait_error_line(LIMIT, |line| {
        line == format!("bailey: box second also writes {shared}")
    });
    for alone in [&reader, &elsewhere] {
        assert!(
            !alone.stderr().contains("also writes"),
            "{}",
            alone.stderr()
        );
    }
}

#[test]
fn the_graphics_grant_is_a_bare_word_and_a_folder_of_that_name_is_a_path() {
    let world = TestWorld::new(1);
    let _made = world
        .sh("n1", "mkdir gpu; echo of-the-folder > gpu/file")
        .ok();
    let mut command = world.bailey("n1");
    let home = world.node("n1").unwrap().home();
    command.current_dir(&home);
    let path = home.join("gpu/file").display().to_string();
    command.args(["run", "-q", "--grant", "./gpu", "--", "cat", &path]);
    assert_eq!(
        bailey_tests::run(&mut command).ok().stdout,
        "of-the-folder\n"
    );
    let mut command = world.bailey("n1");
    command.current_dir(&home);
    command.args(["run", "-q", "--grant", "gpu", "--", "cat", &path]);
    assert_ne!(bailey_tests::run(&mut command).code, Some(0));
}

#[test]
fn a_container_engines_socket_is_refused_whatever_it_is_granted_by() {
    let world = TestWorld::new(1);
    let script = "mkdir engine; cd engine; python3 -c 'import socket
socket.socket(socket.AF_UNIX).bind(\"docker.sock\")'";
    let _made = world.sh("n1", script).ok();
    let home = world.node("n1").unwrap().home().display().to_string();
    for grant in [
        format!("{home}/engine/docker.sock"),
        format!("{home}/engine/docker.sock:rw"),
        format!("{home}/engine:rw"),
    ] {
        let refused = world.run("n1", &["run", "--grant", &grant, "--", "true"]);
        assert_eq!(refused.code, Some(2), "{grant}: {refused}");
        assert!(
            refused.stderr.contains("container engine"),
            "{grant}: {refused}"
        );
    }
}

#[test]
fn a_tier_without_a_gate_says_what_it_does_not_see() {
    let world = TestWorld::new(1);
    for (tier, line, reach, note) in [
        (
            "l1",
            "l1 · network passes",
            "l1: network passes",
            "not seen here: network passes",
        ),
        (
            "l1.5",
            "l1.5 · network passes",
            "l1.5: network passes",
            "not seen here: network passes",
        ),
        ("l2", "l2 · no network", "l2: no network", "no network"),
    ] {
        let ran = boxed(&world, "n1", &["--name", "yard", "--tier", tier], "echo in").ok();
        assert_eq!(ran.stdout, "in\n");
        assert!(
            ran.stderr
                .contains(&format!("box yard · {line} · 0 grants")),
            "{ran}"
        );
        assert_eq!(row(&world, "yard")["reach"], reach);
        let rows = flows(&world, "n1", "yard");
        assert_eq!(
            (&rows[0]["kind"], &rows[0]["reason"]),
            (&"note".into(), &note.into())
        );
        let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
        assert!(shown.lines().next().unwrap().contains(note), "{shown}");
        assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
        for words in [["--reach", "internet"], ["--publish", "8080:80"]] {
            let mut all = vec!["--tier", tier];
            all.extend(words);
            let refused = boxed(&world, "n1", &all, "true");
            assert_eq!(refused.code, Some(2), "{tier} {words:?}: {refused}");
        }
    }
    let gated = boxed(
        &world,
        "n1",
        &["--name", "yard", "--reach", "nothing"],
        "true",
    )
    .ok();
    assert!(
        gated
            .stderr
            .contains("box yard · gated · reach nothing · 0 grants"),
        "{gated}"
    );
    let rows = flows(&world, "n1", "yard");
    assert!(rows.iter().all(|row| row["kind"] != "note"), "{rows:?}");
}

/// Processes of a node whose command line holds this word.
fn marked(world: &TestWorld, mark: &str) -> usize {
    let processes = world.node("n1").unwrap().processes().unwrap();
    let has = |words: &[String]| words.iter().any(|word| word.contains(mark));
    processes
        .iter()
        .filter(|process| has(&process.command))
        .count()
}

fn node_pids(world: &TestWorld) -> Vec<u32> {
    let processes = world.node("n1").unwrap().processes().unwrap();
    let is_node = |words: &[String]| words.get(1).is_some_and(|word| word == "node");
    let named = |words: &[String]| words.first().is_some_and(|word| word.ends_with("bailey"));
    processes
        .iter()
        .filter(|process| named(&process.command) && is_node(&process.command))
        .map(|process| process.pid)
        .collect()
}

/// The kernel, and no code of the node's, ends a box whose node was killed: at
/// whatever moment of its start. (The launcher's own tests kill an owner of a
/// box at two hundred moments of its first millisecond.)
#[test]
fn no_box_outlives_a_node_that_was_killed_while_it_started_one() {
    const ROUNDS: u64 = 40;
    let world = TestWorld::new(1);
    let node = world.node("n1").unwrap();
    // The box's command is told apart by its words, which no other process has.
    const MARK: &str = "marked-for-this-test";
    let script = format!("while :; do sleep 0.01; done # {MARK}");
    let (mut ran, mut killed) = (0, 0);
    for round in 0..ROUNDS {
        // It starts a node, or meets one.
        let _up = world.run("n1", &["ps"]).ok();
        let words = ["run", "-q", "--tier", "l2", "--", "sh", "-c", &script];
        let client = world.start("n1", &words);
        if round % 8 == 0 {
            // The client has the mark too: more than one is the box's.
            let runs = wait_until(LIMIT, || marked(&world, MARK) > 1);
            assert!(runs, "the control: it runs");
            ran += 1;
        } else {
            std::thread::sleep(Duration::from_micros(round * 1370 % 40_000));
        }
        let nodes = node_pids(&world);
        killed += nodes.len();
        world.kill("n1", "KILL", &nodes);
        drop(client);
        // A client that saw its node go before it asked started another one,
        // which goes the same way.
        let clean = wait_until(LIMIT, || {
            let more = node_pids(&world);
            if !more.is_empty() {
                world.kill("n1", "KILL", &more);
            }
            let launchers = world.pids("n1", "bailey-fence").len();
            more.is_empty() && launchers == 0 && marked(&world, MARK) == 0
        });
        assert!(clean, "round {round}: {:?}", node.processes());
    }
    assert!(ran == 5 && killed >= 35, "{ran} ran, {killed} were killed");
}

/// A box that says its number, dials where a gate decides it, and goes on until
/// it is let go.
fn start_yard(world: &TestWorld, number: usize, tier: &str) -> Running {
    let dial = "python3 -I -S -c 'import socket; \
                socket.create_connection((\"93.184.216.34\", 80), 10); print(\"dialled\")'";
    let dial = if tier == "gated" {
        dial
    } else {
        "echo no-dial"
    };
    // Each goes on until all have started.
    let script = format!(
        "echo number {number} $$; {dial}; read -r _ < ~/never 2>/dev/null; \
         while [ ! -e ~/go ]; do sleep 0.2; done; echo bye {number}; exit {}",
        number % 7
    );
    let name = format!("yard-{number}");
    let words = ["run", "-q", "--detach", "--name", &name, "--tier", tier];
    let mut words = words.to_vec();
    words.extend(["--", "sh", "-c", &script]);
    world.start("n1", &words)
}

/// Fifty boxes of all tiers at once: each has its own output, its own network
/// and its own end.
#[test]
fn fifty_boxes_at_once_disturb_no_other() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    let tiers = ["gated", "l2", "l1.5", "gated", "l1"];
    let begun = Instant::now();
    let starting: Vec<(usize, Running)> = (0..MANY)
        .map(|number| {
            (
                number,
                start_yard(&world, number, tiers[number % tiers.len()]),
            )
        })
        .collect();
    for (number, start) in starting {
        let output = start.finish(Duration::from_secs(40)).ok();
        assert_eq!(output.stdout, format!("yard-{number}\n"));
    }
    let up = begun.elapsed();
    let rows = world.run("n1", &["ps", "--json"]).ok().json();
    let running = rows.iter().filter(|row| row["state"] == "running").count();
    assert_eq!(running, MANY, "all run at once");
    let node = node_pids(&world);
    let memory = world
        .sh("n1", &format!("grep VmRSS /proc/{}/status", node[0]))
        .ok();
    // Half of them end by themselves, the others are stopped.
    let boxes = "../state/bailey/boxes";
    let _go = world
        .sh(
            "n1",
            &format!("for n in $(seq 0 2 48); do touch {boxes}/yard-$n/home/go; done"),
        )
        .ok();
    let odd: Vec<String> = (1..MANY).step_by(2).map(|n| format!("yard-{n}")).collect();
    let mut words = vec!["stop"];
    words.extend(odd.iter().map(String::as_str));
    let _stopped = world.run("n1", &words).ok();
    let all_ended = || {
        let rows = world.run("n1", &["ps", "--json"]).ok().json();
        rows.iter().all(|row| row["state"] == "ended")
    };
    assert!(wait_until(LIMIT, all_ended));
    let mut pids = BTreeSet::new();
    for number in 0..MANY {
        let name = format!("yard-{number}");
        let said = world.run("n1", &["logs", &name]).ok().stdout;
        let mut lines: Vec<&str> = said.lines().collect();
        pids.insert(lines.remove(0).to_owned());
        let gated = tiers[number % tiers.len()] == "gated";
        let mut expected = vec![if gated { "dialled" } else { "no-dial" }];
        let bye = format!("bye {number}");
        let mut end = "stopped here".to_owned();
        if number % 2 == 0 {
            expected.push(&bye);
            end = format!("exited {}", number % 7);
        }
        assert_eq!(lines, expected, "{name}");
        assert_eq!(row(&world, &name)["end"], end, "{name}");
        let dials = flows(&world, "n1", &name);
        let dials = dials.iter().filter(|row| row["kind"] == "flow").count();
        assert_eq!(dials, usize::from(gated), "{name}");
    }
    assert_eq!(pids.len(), MANY);
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
    let all = begun.elapsed();
    println!(
        "{MANY} boxes up in {up:?}, over in {all:?}; the node: {}",
        memory.stdout.trim()
    );
    assert!(all < Duration::from_secs(120), "{all:?}");
}

#[test]
fn a_launcher_waits_for_the_next_box_and_is_replaced_when_it_ends() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    let waiting = || launchers(&world, "n1");
    assert!(wait_until(LIMIT, || waiting().len() == 1), "none waits");
    let spare = waiting();
    let running = attached(&world, "n1", &["-q"], "sleep 600");
    assert!(
        waiting().contains(&spare[0]),
        "the one that waited has the box"
    );
    // The box's pid 1 has its name; the next launcher waits beside the two.
    assert!(
        wait_until(LIMIT, || waiting().len() == 3),
        "{:?}",
        waiting()
    );
    let next: Vec<u32> = waiting().into_iter().max().into_iter().collect();
    world.kill("n1", "KILL", &next);
    assert!(wait_until(LIMIT, || {
        let now = waiting();
        now.len() == 3 && !now.contains(&next[0])
    }));
    // The box has not noticed, and the next start has not either.
    let _ran = boxed(&world, "n1", &["-q"], "true").ok();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish(LIMIT).code, Some(143));
}
