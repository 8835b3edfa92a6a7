//! The harness itself, in a world.

use std::time::Duration;

use bailey_tests::{Terminal, TestWorld};

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_terminal_reaches_into_a_node() {
    let world = TestWorld::new(1);
    let script = "trap 'echo caught; exit 5' INT; hostname; tty -s && echo terminal; \
                  while :; do sleep 0.05; done";
    let command = |program: &std::ffi::OsStr| world.node("n1").unwrap().command(program);
    let mut terminal = Terminal::start(command, "sh", &["-c", script]);
    terminal.wait_for(LIMIT, "n1");
    terminal.wait_for(LIMIT, "terminal");
    terminal.type_in("\x03");
    terminal.wait_for(LIMIT, "caught");
    assert_eq!(terminal.finish(LIMIT), Some(5));
}

#[test]
fn processes_of_a_node_are_found_and_killed_by_pid() {
    let world = TestWorld::new(2);
    let running = bailey_tests::Running::start(world.command("n2", "sleep").arg("777"));
    let pids = bailey_tests::eventually(LIMIT, || {
        let pids = world.pids("n2", "sleep");
        (pids.len() == 1).then_some(pids)
    });
    assert!(world.pids("n1", "sleep").is_empty());
    world.kill("n2", "KILL", &pids.unwrap());
    assert_eq!(running.finish(LIMIT).code, Some(137));
}

#[test]
fn the_programs_run_in_a_node() {
    let world = TestWorld::new(1);
    let helper = bailey_tests::binaries().join("bailey-helper");
    let output = bailey_tests::run(
        world
            .command("n1", &helper.to_string_lossy())
            .arg("--version"),
    );
    assert!(output.ok().stdout.starts_with("bailey-helper "));
}
