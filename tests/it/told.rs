//! What a person sees while a box runs.

use bailey_tests::run;

use crate::common::{LIMIT, attached, boxed, world};

/// What was refused, of what a box said on its terminal.
fn refused(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines();
    lines
        .filter(|line| line.starts_with("bailey: refused "))
        .collect()
}

#[test]
fn what_is_refused_is_told_once_with_the_command_that_grants_it() {
    let (world, _daemons) = world(1);
    let script = r"
for _ in 1 2 3; do
  curl -sS http://other.example:81/
  curl -sS http://192.168.1.9/
  curl -sS http://third.example/
  curl -sS http://169.254.169.254/
  ping -n -c1 -W5 192.168.1.9
  for to in 192.168.1.9/5000 224.0.0.251/5353 239.255.255.250/1900; do
    bash -c 'echo x >/dev/udp/$0' $to
  done
done >/dev/null 2>&1
echo done; read -r _; curl -sS http://192.168.1.9/";
    let words = ["--name", "yard", "--reach", "other.example:80"];
    let mut running = attached(&world, "n1", &words, script);
    running.wait_line(LIMIT, |line| line == "done");
    let said = running.stderr();
    insta::assert_snapshot!(refused(&said).join("\n"));
    // The printed words are what a person types.
    let line = refused(&said)
        .into_iter()
        .find(|line| line.contains("tcp 192.168.1.9:80"))
        .unwrap();
    let (_, command) = line.rsplit_once(" · bailey ").unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let _allowed = run(world.bailey("n1").args(words)).ok();
    drop(running.take_stdin());
    let ended = running.finish(LIMIT).ok();
    assert!(ended.stdout.contains("hello from 192.168.1.9"), "{ended}");
}

#[test]
fn however_much_is_refused_a_terminal_gets_so_many_lines_and_no_more() {
    let (world, _daemons) = world(1);
    let script = "python3 -c \"
import socket
for port in range(1, 301):
    s = socket.socket(); s.connect_ex(('192.168.1.9', port)); s.close()\"";
    let ran = boxed(&world, "n1", &["--name", "scan"], script).ok();
    // 64, and 16 that are no public host's.
    assert_eq!(refused(&ran.stderr).len(), 80, "{ran}");
    assert!(ran.stderr.contains("more is refused than is shown here"));
    // The control: quiet is quiet, but for the end.
    let ran = boxed(&world, "n1", &["-q", "--name", "quiet"], script).ok();
    assert!(refused(&ran.stderr).is_empty(), "{ran}");
}
