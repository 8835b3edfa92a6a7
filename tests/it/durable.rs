//! What is on the disk before anybody acts on it, and a disk that becomes read-only
//! under a node: the node's own calls of the kernel, held up or refused from outside.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, wait_until};

use crate::common::{LIMIT, attached, boxed, daemon, flows};
use crate::full_disk::{Dials, STREAMER};

/// How long each sync of a disk takes.
const SLOW: Duration = Duration::from_millis(700);

/// Flows that are noted and dialled before one is entered, at most.
const TRIES: usize = 1000;

/// `strace` on a node that runs, with this done to its calls. Ends with it.
fn on_calls(world: &TestWorld, calls: &str, done: &str) -> Running {
    let nodes = world.node("n1").unwrap().processes().unwrap();
    let node = nodes.iter().find(|process| {
        process.command.get(1).is_some_and(|word| word == "node")
            && process.command[0].ends_with("bailey")
    });
    let pid = node.expect("a node that runs").pid.to_string();
    let inject = format!("inject={calls}:{done}");
    let traced = format!("trace={calls}");
    let mut strace = world.node("n1").unwrap().root_command("strace");
    let strace = Running::start(strace.args(["-f", "-p", &pid, "-e", &traced, "-e", &inject]));
    // It names each thread that it has.
    strace.wait_error_line(LIMIT, |line| line.contains("attached"));
    std::thread::sleep(Duration::from_millis(200));
    strace
}

/// Lets the node go.
fn let_go(strace: Running) {
    strace.signal(nix::sys::signal::Signal::SIGINT);
    let _ended = strace.finish(LIMIT);
}

#[test]
fn a_grant_and_a_stop_are_on_the_disk_before_anything_is_said_of_them() {
    let world = TestWorld::new(1);
    let _node = daemon(&world, "n1");
    let held = attached(&world, "n1", &["--name", "yard"], "sleep 600");
    // What came before is on the disk.
    std::thread::sleep(Duration::from_millis(600));
    let delay = format!("delay_enter={}", SLOW.as_micros());
    let strace = on_calls(&world, "fdatasync,fsync", &delay);
    let took = |words: &[&str]| {
        // No sync of what came before is under way.
        std::thread::sleep(SLOW * 3);
        let begun = Instant::now();
        let _said = world.run("n1", words).ok();
        begun.elapsed()
    };
    // The control: what asks for no promise does not wait.
    let list = took(&["ps", "--json"]);
    assert!(list < SLOW, "{list:?}");
    let allow = took(&["allow", "yard", "shop.example"]);
    assert!(
        allow >= SLOW,
        "a word is given before it is kept: {allow:?}"
    );
    // Until the box's command says its first word.
    let begins = |name: &str, args: &[&str]| {
        std::thread::sleep(SLOW * 3);
        let begun = Instant::now();
        let args = [&["-q", "--name", name], args].concat();
        let running = attached(&world, "n1", &args, "sleep 600");
        (begun.elapsed(), running)
    };
    let (free, _free) = begins("free", &[]);
    let home = world
        .sh("n1", "mkdir -p $HOME/given && echo -n $HOME/given")
        .ok();
    let folder = format!("{}:ro", home.stdout);
    let (given, _given) = begins("given", &["--grant", &folder]);
    assert!(free < SLOW, "a box that is given nothing waits: {free:?}");
    assert!(
        given >= SLOW,
        "a folder is given before that is kept: {given:?}"
    );
    let stop = took(&["stop", "yard"]);
    assert!(stop >= SLOW, "a stop is told before it is kept: {stop:?}");
    let_go(strace);
    drop(held);
}

#[test]
fn a_disk_that_becomes_read_only_refuses_new_flows_and_is_gone_on_with_in_place() {
    let world = TestWorld::new(1);
    let mut node = daemon(&world, "n1");
    let mut running = attached(&world, "n1", &["--name", "yard"], &STREAMER);
    let mut stdin = running.take_stdin().unwrap();
    let mut dials = Dials::new(&running, &mut stdin);
    assert_eq!(
        (dials.say("dial"), dials.say("move")),
        ("0".to_owned(), "moved".to_owned())
    );
    // The kernel lets no file system become read-only while files of it are written
    // to, but of itself, after an error: every write is refused then.
    let calls = "pwrite64,ftruncate,fallocate,fsync,fdatasync";
    let strace = on_calls(&world, calls, "error=EROFS");
    // What is noted goes out at once, and is entered later: the first few.
    let mut passed = 1;
    while dials.say("dial") == "0" {
        passed += 1;
        assert!(passed < TRIES, "{passed} flows passed");
    }
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(dials.say("dial"), "7", "curl is refused");
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(dials.say("move"), "moved", "what runs goes on");
    }
    running.wait_error_line(LIMIT, |line| line.contains("audit cannot be written"));
    let_go(strace);
    // In place: the same node, the same box.
    let again = wait_until(LIMIT, || dials.say("dial") == "0");
    assert!(again, "it does not go on:\n{}", node.stderr());
    assert_eq!(dials.say("move"), "moved");
    assert!(!node.ended(), "{}", node.stderr());
    assert!(node.stderr().contains("the audit cannot be written"));
    drop(stdin);
    let _ended = running.finish(LIMIT).ok();
    let rows = flows(&world, "n1", "yard");
    let web = |row: &&serde_json::Value| row["kind"] == "flow" && row["dst_port"] == 80;
    let entered = rows.iter().filter(web).count();
    assert_eq!(entered, passed + 1, "each that left is entered");
    let _ran = boxed(&world, "n1", &["-q", "--name", "next"], "true").ok();
    let checked = world.run("n1", &["store", "check"]).ok();
    assert!(checked.stdout.contains("all of it holds"), "{checked}");
}
