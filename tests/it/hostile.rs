//! A device of the account that lies (`bailey-member`): it has a member's keys and store,
//! and serves what no honest device would, over real connections to real nodes.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, binaries, wait_until};
use nix::sys::signal::Signal;

use crate::common::{LIMIT, attached, boxed, daemon, flows, hears_of, pair, up, world};

/// What a node that is lied to may take of memory for it, in KiB: one that inflated the
/// bomb would take twice that.
const MOST_GROWTH: u64 = 64 * 1024;
/// What goes well goes as fast as without anybody who lies.
const PROMPT: Duration = Duration::from_secs(2);
/// The lies, by name, that end in one refusal each: the chain is left alone.
const REFUSED: [&str; 3] = ["forged", "elsewhere", "noise"];
/// Those that are kept and set aside.
const ASIDE: [&str; 3] = ["garbage", "bomb", "large"];
/// Those that are asked for again, for what is missing.
const AGAIN: [&str; 2] = ["gapped", "reordered"];

/// Most memory that a node ever took, in KiB.
fn peak(world: &TestWorld, node: &str) -> u64 {
    let status = "grep VmHWM /proc/$(cat $XDG_STATE_HOME/bailey/node.lock)/status";
    let said = world.sh(node, status).ok().stdout;
    said.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The second node's keys and store in the hands of one that lies to the first.
fn liar(world: &TestWorld) -> Running {
    let devices = world.run("n1", &["device", "list", "--json"]).ok().json();
    let first = devices.iter().find(|row| row["this"] == true).unwrap();
    let state = |node: &str| world.node(node).unwrap().dir().join("state/bailey");
    let port = std::fs::read_to_string(state("n1").join("sync.port")).unwrap();
    let target = format!("{}:{}", world.node("n1").unwrap().v4(), port.trim());
    let program = binaries().join("bailey-member");
    let mut command = world.command("n2", program.to_str().unwrap());
    command.arg(state("n2")).arg(first["id"].as_str().unwrap());
    Running::start(command.arg(target))
}

fn same_audit(world: &TestWorld, at: &str, name: &str) -> bool {
    let ours = flows(world, "n1", name);
    wait_until(PROMPT, || {
        let theirs = world.run(at, &["flows", name, "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    })
}

/// How many envelopes a node says that it set aside. That some do not hold is its exit
/// code too.
fn aside(world: &TestWorld, node: &str) -> u64 {
    let rows = world.run(node, &["store", "check", "--json"]).json();
    let store = rows.iter().find(|row| row["doc"] == "store").unwrap();
    store["waiting"].as_u64().unwrap()
}

#[test]
fn a_member_that_lies_is_set_aside_and_the_others_go_on() {
    let (world, mut daemons) = world(3);
    pair(&world, "n1", "n2");
    pair(&world, "n1", "n3");
    let yard = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n3", "yard");
    let honest = daemons.remove(1);
    honest.signal(Signal::SIGTERM);
    let _left = honest.finish(LIMIT).ok();
    let before = peak(&world, "n1");

    let mut liar = liar(&world);
    let _up = liar.wait_line(LIMIT, |line| line.starts_with("up "));
    for lie in REFUSED.iter().chain(&ASIDE).chain(&AGAIN) {
        let served = format!("{lie} ");
        liar.wait_line(LIMIT, |line| line.starts_with(&served));
    }
    // Three of garbage, the bomb, the large one, and what came of two more chains. What
    // is set aside is kept, and the person who asks is told.
    assert!(
        wait_until(LIMIT, || aside(&world, "n1") >= 5),
        "{} set aside",
        aside(&world, "n1")
    );
    let grown = peak(&world, "n1").saturating_sub(before);
    assert!(grown < MOST_GROWTH, "{grown} KiB for what was told by one");

    // The others are none the worse: an audit and a stop go their ways.
    let _after = boxed(&world, "n1", &["-q", "--name", "later"], "true").ok();
    assert!(
        same_audit(&world, "n3", "later"),
        "the others' sync is late"
    );
    let pressed = Instant::now();
    let _stopped = world.run("n3", &["stop", "yard@n1"]).ok();
    assert_eq!(yard.finish(LIMIT).code, Some(121));
    assert!(pressed.elapsed() < PROMPT, "{:?}", pressed.elapsed());
    // Nothing of what was forged is anybody's: no box has entries by those lies.
    let boxes = world.run("n1", &["ps", "--json"]).ok();
    assert!(!boxes.stdout.contains("0202020202020202"), "{boxes}");
    for lie in REFUSED {
        let said = liar.stdout();
        let asked = said.lines().filter(|line| line.starts_with(lie)).count();
        assert!(asked < 5, "{lie} was asked for {asked} times");
    }
    assert!(
        !liar.ended(),
        "the control: it lies still\n{}",
        liar.stderr()
    );
    drop(liar);

    // A start over a store with all of that in it is a start like any other.
    let node = daemons.remove(0);
    node.signal(Signal::SIGTERM);
    let log = node.stderr();
    let _left = node.finish(LIMIT).ok();
    assert!(log.contains("set aside"), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    let again = daemon(&world, "n1");
    let again = up(&world, "n1", again);
    let _last = boxed(&world, "n1", &["-q", "--name", "last"], "true").ok();
    assert!(
        wait_until(LIMIT, || same_audit(&world, "n3", "last")),
        "not after a start either"
    );
    drop(again);
}
