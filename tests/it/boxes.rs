//! `bailey run`: what a box is given, what it is not, how it ends.

use std::io::Write as _;
use std::time::Duration;

use bailey_tests::{TestWorld, wait_until};
use nix::sys::signal::Signal;

use crate::common::{LIMIT, attached, boxed, daemon, flows, is_clean, on_terminal, stop, world};

#[test]
fn the_childs_own_exit_code_passes_through() {
    let world = TestWorld::new(1);
    assert_eq!(boxed(&world, "n1", &["-q"], "exit 7").code, Some(7));
    assert_eq!(boxed(&world, "n1", &["-q"], "kill -9 $$").code, Some(137));
    assert_eq!(
        world.run("n1", &["run", "-q", "--", "/no/such"]).code,
        Some(127)
    );
    assert_eq!(
        world.run("n1", &["run", "-q", "--", "/etc/passwd"]).code,
        Some(126)
    );
}

#[test]
fn bytes_pass_through_in_all_three_streams() {
    let world = TestWorld::new(1);
    let mut command = world.bailey("n1");
    command.args([
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "tr a-z A-Z; echo to-stderr >&2",
    ]);
    let mut running = bailey_tests::Running::start(&mut command);
    let mut stdin = running.take_stdin().unwrap();
    let text = "all of it\n".repeat(100_000);
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()).unwrap());
    let output = running.finish(LIMIT).ok();
    writer.join().unwrap();
    assert!(
        output.stdout == text.to_uppercase(),
        "{} bytes came",
        output.stdout.len()
    );
    assert_eq!(output.stderr, "to-stderr\n");
}

#[test]
fn the_confinement_stands_before_the_first_instruction() {
    let world = TestWorld::new(1);
    let status = boxed(&world, "n1", &["-q"], "cat /proc/self/status")
        .ok()
        .stdout;
    let value = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.rsplit('\t').next().unwrap().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!(
        (value("Seccomp:"), value("NoNewPrivs:")),
        ("2".to_owned(), "1".to_owned())
    );
}

#[test]
fn a_box_sees_nothing_of_the_node() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    let node = world.node("n1").unwrap();
    std::fs::write(node.home().join("secret"), "of the person").unwrap();
    let state = node.dir().join("state/bailey");
    let run = node.dir().join("run/bailey");
    let paths: Vec<String> = [
        state.join("device.key"),
        state.join("store.db"),
        run.join("control.sock"),
        node.home().join("secret"),
    ]
    .iter()
    .map(|path| path.display().to_string())
    .collect();
    // The control: outside the box each of them is there.
    let outside = world.sh("n1", &format!("ls {}", paths.join(" ")));
    assert_eq!(outside.stdout.lines().count(), paths.len(), "{outside}");
    let script = format!(
        "for path in {}; do [ -e $path ] && echo SEEN $path; done; \
         for proc in /proc/[0-9]*; do tr '\\0' ' ' < $proc/cmdline | grep -qE 'bailey nod[e]|bailey-gat[e]' && echo SEEN $proc; done; \
         grep -l . /proc/1/environ 2>/dev/null; env; ls /proc/self/fd; cat /proc/net/unix | wc -l",
        paths.join(" ")
    );
    let mut command = world.bailey("n1");
    command
        .env("SECRET_OF_THE_CALLER", "1")
        .args(["run", "-q", "--", "sh", "-c", &script]);
    let seen = bailey_tests::run(&mut command).ok().stdout;
    assert!(!seen.contains("SEEN") && !seen.contains("SECRET"), "{seen}");
    assert!(!seen.contains("/proc/1/environ"), "{seen}");
    let names: Vec<&str> = seen
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    for name in names {
        assert!(
            ["PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name),
            "{name}"
        );
    }
    // 0, 1, 2 and the folder that `ls` itself opened.
    let fds = seen
        .lines()
        .filter(|line| line.parse::<u8>().is_ok_and(|fd| fd < 64))
        .count();
    assert!(fds <= 5, "{seen}");
}

#[test]
fn only_what_is_granted_is_there_and_only_as_granted() {
    let world = TestWorld::new(1);
    let setup = world.sh(
        "n1",
        "mkdir -p ro rw; echo in-ro > ro/file; echo in-rw > rw/file; echo out > out",
    );
    let _made = setup.ok();
    let home = world.node("n1").unwrap().home().display().to_string();
    let (ro, rw) = (format!("{home}/ro"), format!("{home}/rw:rw"));
    let script = format!(
        "cat {home}/ro/file {home}/rw/file; cat {home}/out; \
         echo x > {home}/ro/new; echo changed > {home}/rw/file; echo mine > ~/kept; \
         echo x > /usr/x; id -u; cat ~/kept"
    );
    let output = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard", "--grant", &ro, "--grant", &rw],
        &script,
    );
    let output = output.ok();
    assert!(output.stdout.starts_with("in-ro\nin-rw\n"), "{output}");
    assert!(
        output.stderr.contains("out: No such file") || output.stderr.contains("out: Permission"),
        "{output}"
    );
    assert_eq!(
        output.stderr.matches("Read-only file system").count(),
        2,
        "{output}"
    );
    assert_eq!(
        world.sh("n1", "cat rw/file; ls ro").ok().stdout,
        "changed\nfile\n"
    );
    // The own folder is kept by the box's name, and belongs to it alone.
    assert_eq!(
        boxed(&world, "n1", &["-q", "--name", "yard"], "cat ~/kept")
            .ok()
            .stdout,
        "mine\n"
    );
    assert_ne!(
        boxed(&world, "n1", &["-q", "--name", "keep"], "cat ~/kept").code,
        Some(0)
    );
    assert_ne!(boxed(&world, "n1", &["-q"], "cat ~/kept").code, Some(0));
}

#[test]
fn here_grants_the_current_folder_and_starts_in_it() {
    let world = TestWorld::new(1);
    let _made = world
        .sh("n1", "mkdir -p project; echo hello > project/file")
        .ok();
    let home = world.node("n1").unwrap().home();
    let run = |args: &[&str], script: &str| {
        let mut command = world.bailey("n1");
        command
            .arg("run")
            .arg("-q")
            .args(args)
            .args(["--", "sh", "-c", script]);
        command.current_dir(home.join("project"));
        bailey_tests::run(&mut command)
    };
    assert_eq!(
        run(&["--here"], "cat file; echo more >> file").ok().stdout,
        "hello\n"
    );
    let output = run(&["--here=ro"], "cat file; echo x >> file");
    assert!(
        output.stdout.contains("more") && output.code != Some(0),
        "{output}"
    );
    assert_ne!(run(&[], "cat file").code, Some(0));
}

#[test]
fn a_variable_is_passed_only_when_asked_for() {
    let world = TestWorld::new(1);
    let mut command = world.bailey("n1");
    command.env("TOKEN", "t").env("OTHER", "o");
    command.args([
        "run",
        "-q",
        "--env",
        "TOKEN",
        "--env",
        "MODE=fast",
        "--",
        "env",
    ]);
    let output = bailey_tests::run(&mut command).ok().stdout;
    assert!(
        output.contains("TOKEN=t\n") && output.contains("MODE=fast\n"),
        "{output}"
    );
    assert!(!output.contains("OTHER"), "{output}");
}

#[test]
fn what_must_never_be_granted_is_refused_with_the_reason() {
    let world = TestWorld::new(1);
    let node = world.node("n1").unwrap();
    let state = node.dir().join("state").display().to_string();
    let run = node.dir().join("run").display().to_string();
    for (path, reason) in [
        ("/", "whole machine"),
        ("/proc", "host's processes"),
        (state.as_str(), "bailey's own folders"),
        (run.as_str(), "bailey's own folders"),
    ] {
        let output = world.run("n1", &["run", "--grant", path, "--", "true"]);
        assert_eq!(output.code, Some(2), "{path}: {output}");
        assert!(output.stderr.contains(reason), "{path}: {output}");
    }
}

#[test]
fn a_terminal_works_and_ctrl_c_reaches_the_command() {
    let world = TestWorld::new(1);
    let script =
        "trap 'echo caught; exit 5' INT; tty; stty size; echo ready; while :; do sleep 0.05; done";
    let mut terminal = on_terminal(&world, &["run", "--", "sh", "-c", script]);
    terminal.wait_for(LIMIT, "/dev/pts/0");
    terminal.wait_for(LIMIT, "24 80");
    terminal.wait_for(LIMIT, "ready");
    terminal.type_in("\x03");
    terminal.wait_for(LIMIT, "caught");
    assert_eq!(terminal.finish(LIMIT), Some(5));
}

#[test]
fn a_signal_to_the_command_line_reaches_the_command() {
    let world = TestWorld::new(1);
    let script = "trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let running = world.start("n1", &["run", "-q", "--", "sh", "-c", script]);
    running.wait_line(LIMIT, |line| line.trim() == "ready");
    running.signal(Signal::SIGTERM);
    let output = running.finish(LIMIT);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(3), "ready\ngot it\n"),
        "{output}"
    );
}

#[test]
fn a_box_goes_with_the_terminal_that_it_belongs_to() {
    let world = TestWorld::new(1);
    let _daemon = daemon(&world, "n1");
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    assert!(
        !is_clean(&world, "n1"),
        "the control: it is seen while it runs"
    );
    drop(running);
    assert!(
        wait_until(LIMIT, || is_clean(&world, "n1")),
        "something of the box is left"
    );
    let boxes = world.run("n1", &["ps", "--json"]).ok().json();
    assert_eq!(
        (&boxes[0]["state"], &boxes[0]["end"]),
        (&"ended".into(), &"client gone".into())
    );
}

#[test]
fn the_first_command_starts_the_node_the_second_meets_it_and_an_idle_one_leaves() {
    let world = TestWorld::new(1);
    let _first = world.run("n1", &["ps"]).ok();
    let nodes = world.pids("n1", "bailey");
    assert_eq!(nodes.len(), 1, "one node");
    let _second = boxed(&world, "n1", &["-q"], "true").ok();
    assert_eq!(world.pids("n1", "bailey"), nodes, "the same node");
    let held = world.run("n1", &["node"]);
    assert_eq!(held.code, Some(125));
    assert!(
        held.stderr.contains(&format!("process {}", nodes[0])),
        "{held}"
    );
    let left = wait_until(Duration::from_secs(20), || {
        world.pids("n1", "bailey").is_empty()
    });
    assert!(left, "the idle node did not leave");
}

#[test]
fn a_name_is_used_once_at_a_time() {
    let world = TestWorld::new(1);
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    let second = world.run("n1", &["run", "--name", "yard", "--", "true"]);
    assert_eq!(second.code, Some(2));
    assert!(second.stderr.contains("runs already"), "{second}");
    let stopped = stop(&world, "n1", "yard");
    assert!(
        stopped["processes_ended"].as_u64().unwrap() >= 2,
        "{stopped}"
    );
    assert_eq!(running.finish(LIMIT).code, Some(121));
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));
}

#[test]
fn the_result_file_says_how_it_ended_and_follows_no_link() {
    let world = TestWorld::new(1);
    let output = world.run(
        "n1",
        &[
            "run", "-q", "--result", "out.json", "--", "sh", "-c", "exit 3",
        ],
    );
    assert_eq!(output.code, Some(3));
    let result = world.sh("n1", "cat out.json").ok().json();
    assert_eq!(
        (&result[0]["exit"], &result[0]["processes_left"]),
        (&3.into(), &0.into())
    );
    let _made = world
        .sh("n1", "echo precious > target; ln -s target link")
        .ok();
    let refused = world.run("n1", &["run", "-q", "--result", "link", "--", "true"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert_eq!(world.sh("n1", "cat target").ok().stdout, "precious\n");
}

#[test]
fn a_node_that_is_leaving_is_followed_by_the_next() {
    let world = TestWorld::new(1);
    for _ in 0..8 {
        let _ran = boxed(&world, "n1", &["-q"], "true").ok();
        world.kill("n1", "TERM", &world.pids("n1", "bailey"));
        let _ran = boxed(&world, "n1", &["-q"], "true").ok();
    }
    // One that still has a box to end is waited for.
    let running = attached(&world, "n1", &["-q"], "sleep 600");
    let nodes = world.sh("n1", "cat ../state/bailey/node.lock").ok().stdout;
    world.kill("n1", "TERM", &[nodes.trim().parse().unwrap()]);
    let _ran = boxed(&world, "n1", &["-q"], "true").ok();
    assert_eq!(running.finish(LIMIT).code, Some(121));
}

#[test]
fn a_second_terminal_with_another_runtime_folder_meets_the_same_node() {
    let world = TestWorld::new(1);
    let _first = world.run("n1", &["ps"]).ok();
    let nodes = world.pids("n1", "bailey");
    let mut elsewhere = world.bailey("n1");
    elsewhere
        .env("XDG_RUNTIME_DIR", world.node("n1").unwrap().home())
        .arg("ps");
    let _second = bailey_tests::run(&mut elsewhere).ok();
    assert_eq!(world.pids("n1", "bailey"), nodes, "the same node");
}

#[test]
fn the_node_keeps_nothing_of_the_command_that_started_it() {
    let world = TestWorld::new(1);
    let bailey = bailey_tests::binaries().join("bailey");
    let script = format!(
        "{} ps 3>&1 4>&1 9>&1 >/dev/null 2>&1 | timeout 5 cat",
        bailey.display()
    );
    // The pipe ends with the command, although its node lives on.
    let _ended = world.sh("n1", &script).ok();
    let nodes = world.pids("n1", "bailey");
    assert_eq!(nodes.len(), 1, "the control: the node is there");
}

#[test]
fn a_command_ends_although_somebody_else_holds_its_output() {
    let world = TestWorld::new(1);
    let script = "sleep 600 & read -r _; echo last";
    let mut running = attached(&world, "n1", &["-q"], script);
    let inside = wait_for_pid(&world, "sleep");
    let hold = format!("exec 3>/proc/{inside}/fd/1; echo held; exec sleep 60");
    let holder = bailey_tests::Running::start(world.command("n1", "sh").args(["-c", &hold]));
    holder.wait_line(LIMIT, |line| line.trim() == "held");
    drop(running.take_stdin());
    let output = running.finish(LIMIT);
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "up\nlast\n"),
        "{output}"
    );
}

fn wait_for_pid(world: &TestWorld, program: &str) -> u32 {
    let mut found = None;
    let there = wait_until(LIMIT, || {
        found = world.pids("n1", program).first().copied();
        found.is_some()
    });
    assert!(there, "no {program}");
    found.unwrap()
}

#[test]
fn every_box_that_is_named_is_stopped_whatever_becomes_of_the_others() {
    let world = TestWorld::new(1);
    let boxes: Vec<_> = ["yard", "keep"]
        .iter()
        .map(|name| attached(&world, "n1", &["-q", "--name", name], "sleep 600"))
        .collect();
    let output = world.run("n1", &["stop", "yard", "nowhere", "keep", "--json"]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("nowhere"), "{output}");
    let states: Vec<_> = output
        .json()
        .iter()
        .map(|row| (row["box"].clone(), row["state"].clone()))
        .collect();
    assert_eq!(
        states,
        [
            ("yard".into(), "stopped".into()),
            ("nowhere".into(), "failed".into()),
            ("keep".into(), "stopped".into())
        ]
    );
    for running in boxes {
        assert_eq!(running.finish(LIMIT).code, Some(121));
    }
}

#[test]
fn the_result_file_is_a_file_and_says_of_a_failure_too() {
    let world = TestWorld::new(1);
    let _made = world.sh("n1", "mkfifo pipe").ok();
    let refused = world.run("n1", &["run", "-q", "--result", "pipe", "--", "true"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    let words = [
        "run", "--result", "out.json", "--reach", "a b", "--", "true",
    ];
    assert_eq!(world.run("n1", &words).code, Some(2));
    let result = world.sh("n1", "cat out.json").ok().json();
    assert_eq!(
        (&result[0]["exit"], &result[0]["child"]),
        (&2.into(), &serde_json::Value::Null)
    );
    assert!(result[0]["end"].is_string(), "{result:?}");
}

/// Connects one after the other, and says the median in milliseconds.
const TIMED: &str = "import socket,time
took=[]
for _ in range(60):
    start=time.monotonic()
    socket.create_connection(('93.184.216.34',80),10).close()
    took.append(time.monotonic()-start)
    time.sleep(0.01)
print(sorted(took)[30]*1000)";

/// A flow a datagram, as many as the gate takes.
const FLOOD: &str = "import socket,random
print('up',flush=True)
udp=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
while True:
    try: udp.sendto(b'x',('93.184.216.34',random.randrange(1024,65535)))
    except OSError: pass";

#[test]
fn a_box_that_floods_its_gate_slows_itself_and_no_other_box() {
    let (world, _daemons) = world(1);
    let timed = |name: &str| {
        let words = ["run", "-q", "--name", name, "--", "python3", "-c", TIMED];
        let said = world.run("n1", &words).ok().stdout;
        said.trim().parse::<f64>().unwrap()
    };
    let calm = timed("calm");
    let flood = world.start(
        "n1",
        &["run", "-q", "--name", "flood", "--", "python3", "-c", FLOOD],
    );
    flood.wait_line(LIMIT, |line| line == "up");
    let beside = timed("beside");
    let _stopped = stop(&world, "n1", "flood");
    drop(flood);
    // The control: it did flood, each datagram with an entry.
    let entered = flows(&world, "n1", "flood").len();
    assert!(entered > 1000, "{entered} entries only");
    eprintln!("{calm} ms alone, {beside} ms beside a flood of {entered} entries");
    assert!(
        beside < calm.max(1.0) * 120.0,
        "{calm} ms alone, {beside} ms beside a flood"
    );
}
