//! Every device is lost but one that only reads: words on paper bring the account back.

use std::process::Command;

use bailey_tests::{Output, TestWorld, binaries, run, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{LIMIT, boxed, daemon, flows, on_terminal, pair, row_of, world};

/// Runs `bailey` with words on its standard input.
fn told(world: &TestWorld, node: &str, input: &str, words: &str) -> Output {
    let bailey = binaries().join("bailey");
    let script = format!("printf '%s' \"$1\" | {} {words}", bailey.display());
    let mut command: Command = world.command(node, "sh");
    run(command.args(["-c", &script, "sh", input]))
}

fn devices(world: &TestWorld, node: &str) -> Vec<Value> {
    world.run(node, &["device", "list", "--json"]).ok().json()
}

fn join_as_watcher(world: &TestWorld, host: &str, joiner: &str) {
    let add = world.start(
        host,
        &["device", "add", "--yes", "--json", "--role", "watch"],
    );
    let code = row_of(&add, |row| row["code"].is_string());
    let code = code["code"].as_str().unwrap().to_owned();
    let _joined = world.run(joiner, &["device", "join", &code]).ok();
    let _added = add.finish(LIMIT).ok();
}

/// The words of the first node, checked and erased there.
fn on_paper(world: &TestWorld) -> String {
    let print = ["device", "recovery", "--print"];
    let words = world.run("n1", &print).ok().stdout;
    assert_eq!(words.split_whitespace().count(), 12, "{words}");
    let checked = told(world, "n1", &words, "device recovery --check").ok();
    let told = &checked.stdout;
    assert!(told.contains("on this device no more"), "{checked}");
    assert!(!kept(world, "n1"));
    let again = world.run("n1", &print);
    assert_eq!(again.code, Some(2), "{again}");
    words
}

/// Whether the recovery key is kept on a node.
fn kept(world: &TestWorld, node: &str) -> bool {
    let dir = world.node(node).unwrap().dir();
    dir.join("state/bailey/recovery.seed").exists()
}

/// A copy of the account, written by this node.
fn saved(world: &TestWorld, node: &str) -> String {
    let copy = world.node(node).unwrap().dir().join("copy");
    let copy = copy.display().to_string();
    let words = ["device", "recovery", "--save", &copy];
    let _saved = world.run(node, &words).ok();
    copy
}

fn wrong_words_change_nothing(world: &TestWorld, words: &str, copy: &str) {
    let recover = format!("device recover --from {copy}");
    let wrong = words.replacen(words.split_whitespace().next().unwrap(), "bailey", 1);
    let refused = told(world, "n3", &wrong, &recover);
    assert!(refused.stderr.contains("word 1, `bailey`"), "{refused}");
    let other = format!("{}about", "abandon ".repeat(11));
    let refused = told(world, "n3", &other, &recover);
    assert_eq!(refused.code, Some(2), "{refused}");
    let refused = told(world, "n3", words, &format!("{recover} --keep 00000000"));
    let why = "begins with `00000000`";
    assert!(refused.stderr.contains(why), "{refused}");
    assert_eq!(devices(world, "n3"), Vec::<Value>::new());
    assert!(!kept(world, "n3"));
}

#[test]
fn with_the_words_and_a_copy_a_fresh_machine_reads_on_and_the_lost_one_is_out() {
    let (world, mut daemons) = world(3);
    join_as_watcher(&world, "n1", "n2");
    let script = "curl -sS -o /dev/null http://shop.example/";
    let _ran = boxed(&world, "n1", &["-q", "--name", "yard"], script).ok();
    let ours = flows(&world, "n1", "yard");
    let synced = wait_until(LIMIT, || {
        let theirs = world.run("n2", &["flows", "yard", "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    });
    assert!(synced, "the watcher has not the audit");
    let words = on_paper(&world);

    // The laptop is lost. What is left is a device that only reads, and the paper.
    let lost = daemons.remove(0);
    lost.signal(Signal::SIGKILL);
    let _killed = lost.finish(LIMIT);
    let copy = saved(&world, "n2");
    let watcher = devices(&world, "n2");
    let id = |name: &str| {
        let row = watcher.iter().find(|row| row["name"] == name).unwrap();
        row["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (id("n1"), id("n2"));
    wrong_words_change_nothing(&world, &words, &copy);

    let recover = format!("device recover --from {copy} --json --keep {second:.8}");
    let back = told(&world, "n3", &words, &recover).ok().json().remove(0);
    assert_eq!(back["state"], "recovered", "{back}");
    assert_eq!(back["out"], serde_json::json!([first]), "{back}");
    assert!(back["keys"].as_u64().unwrap() > 0, "{back}");
    assert_eq!(flows(&world, "n3", "yard"), ours);
    assert!(
        kept(&world, "n3"),
        "there is another key, for another paper"
    );
    is_out(&world, &first);
}

/// The one that stays hears of the reset by a copy and meets the new device; the lost
/// one, found by somebody, is let in by neither.
fn is_out(world: &TestWorld, lost: &str) {
    let is_lost = |row: &Value| row["id"] == lost && row["role"] != "removed";
    let has_lost = |node: &str| devices(world, node).iter().any(is_lost);
    assert!(!has_lost("n3") && has_lost("n2"));
    let news = saved(world, "n3");
    let words = ["device", "recovery", "--load", &news];
    let _loaded = world.run("n2", &words).ok();
    let met = wait_until(LIMIT, || {
        let rows = devices(world, "n2");
        let up = |row: &Value| row["connected"] == true && row["role"] == "full";
        !has_lost("n2") && rows.iter().any(up)
    });
    assert!(met, "{:?}", devices(world, "n2"));
    let _thief = daemon(world, "n1");
    let _later = boxed(world, "n3", &["-q", "--name", "later"], "true").ok();
    let hears = |node: &str| {
        let rows = world.run(node, &["ps", "--json"]).ok().json();
        rows.iter().any(|row| row["name"] == "later")
    };
    assert!(wait_until(LIMIT, || hears("n2")), "the account goes on");
    assert!(!hears("n1"));
}

/// Ends a node's daemon at its leisure.
fn leave(daemon: bailey_tests::Running) {
    daemon.signal(Signal::SIGTERM);
    let _left = daemon.finish(LIMIT).ok();
}

#[test]
fn a_device_that_went_back_behind_whom_it_added_meets_it_again_by_a_copy() {
    let (world, mut daemons) = world(2);
    let _first = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
    leave(daemons.remove(0));
    let state = world.node("n1").unwrap().dir().join("state");
    let shell = |script: &str| {
        let script = format!("cd {} && {script}", state.display());
        let _done = world.sh("n1", &script).ok();
    };
    shell("cp -a bailey older");
    let again = daemon(&world, "n1");
    join_as_watcher(&world, "n1", "n2");
    leave(again);
    shell("mv bailey newer && mv older bailey");
    let _restored = daemon(&world, "n1");
    let names = |node: &str| -> Vec<String> {
        let rows = devices(&world, node);
        let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
        rows.iter().map(name).collect()
    };
    let meets = || {
        devices(&world, "n2")
            .iter()
            .any(|row| row["connected"] == true)
    };
    assert_eq!(names("n1"), ["n1"], "the control: it knows nobody");
    assert!(
        !wait_until(std::time::Duration::from_secs(4), meets),
        "it hears out a stranger"
    );
    let news = saved(&world, "n2");
    let words = ["device", "recovery", "--load", &news];
    let _loaded = world.run("n1", &words).ok();
    assert!(wait_until(LIMIT, || names("n1").len() == 2 && meets()));
    // And what it writes from here on is read there.
    let _later = boxed(&world, "n1", &["-q", "--name", "later"], "true").ok();
    let hears = || {
        let rows = world.run("n2", &["ps", "--json"]).ok().json();
        rows.iter().any(|row| row["name"] == "later")
    };
    assert!(wait_until(LIMIT, hears));
}

#[test]
fn a_person_types_some_of_the_words_again_before_they_are_erased() {
    let (world, _daemons) = world(1);
    let none = world.run("n1", &["device", "recovery", "--print"]);
    assert!(none.stderr.contains("there is no account yet"), "{none}");
    let _first = boxed(&world, "n1", &["-q"], "true").ok();
    let words = world
        .run("n1", &["device", "recovery", "--print"])
        .ok()
        .stdout;
    let words: Vec<&str> = words.split_whitespace().collect();
    let seed = world
        .node("n1")
        .unwrap()
        .dir()
        .join("state/bailey/recovery.seed");
    let mut ps = on_terminal(&world, &["ps"]);
    ps.wait_for(LIMIT, "the recovery key is not on paper yet");
    ps.type_in("");
    let mut paper = on_terminal(&world, &["device", "recovery"]);
    paper.wait_for(LIMIT, "press Enter.");
    assert!(words.iter().all(|word| paper.screen().contains(word)));
    paper.type_in("\n");
    let mut slipped = false;
    for asked in 1..=5 {
        let prompts = || {
            let screen = paper.screen();
            let places: Vec<usize> = screen
                .match_indices("Word ")
                .filter_map(|(at, _)| screen[at + 5..].split(':').next()?.parse().ok())
                .collect();
            places
        };
        assert!(
            wait_until(LIMIT, || prompts().len() >= asked),
            "{}",
            paper.screen()
        );
        let place = prompts()[asked - 1];
        assert!(seed.exists(), "not before it is done");
        let answer = if slipped { words[place - 1] } else { "zebra" };
        slipped = true;
        paper.type_in(&format!("{answer}\n"));
    }
    paper.wait_for(LIMIT, "on this device no more");
    assert_eq!(paper.finish(LIMIT), Some(0));
    assert!(!seed.exists());
}

#[test]
fn the_words_remove_a_device_from_one_that_only_reads_and_wrong_ones_do_nothing() {
    let (world, mut daemons) = world(3);
    join_as_watcher(&world, "n1", "n2");
    pair(&world, "n1", "n3");
    let words = on_paper(&world);
    let roles = |node: &str| {
        let rows = devices(&world, node);
        let role = |name: &str| {
            let row = rows.iter().find(|row| row["name"] == name);
            row.map(|row| row["role"].as_str().unwrap().to_owned())
        };
        ["n1", "n2", "n3"].map(|name| role(name).unwrap_or_default())
    };
    let before = ["full", "watch", "full"];
    assert!(
        wait_until(LIMIT, || roles("n2") == before),
        "{:?}",
        roles("n2")
    );
    // The thief has the first device, and the other `full` one is away.
    let away = daemons.remove(2);
    leave(away);
    let remove = ["device", "remove", "n1", "--lost"];
    let refused = world.run("n2", &remove);
    assert_eq!(refused.code, Some(2), "its role is not enough: {refused}");
    let wrong = format!("{}about", "abandon ".repeat(11));
    let remove = "device remove n1 --recovery";
    let refused = told(&world, "n2", &wrong, remove);
    assert_ne!(refused.code, Some(0), "{refused}");
    assert!(refused.stderr.contains("not the recovery key"), "{refused}");
    assert_eq!(roles("n2"), before);

    let removed = told(&world, "n2", &words, &format!("{remove} --json"));
    let row = removed.ok().json().remove(0);
    assert_eq!(row["names"], serde_json::json!(["n1"]), "{row}");
    let after = ["removed", "watch", "full"];
    assert_eq!(roles("n2"), after);
    assert!(
        wait_until(LIMIT, || roles("n1")[0] == "removed"),
        "it hears so"
    );
    // So does who was away, from the one that only reads.
    let _again = daemon(&world, "n3");
    assert!(
        wait_until(2 * LIMIT, || roles("n3") == after),
        "{:?}",
        roles("n3")
    );
    let _later = boxed(&world, "n3", &["-q", "--name", "later"], "true").ok();
    let hears = |node: &str| {
        let rows = world.run(node, &["ps", "--json"]).ok().json();
        rows.iter().any(|row| row["name"] == "later")
    };
    assert!(wait_until(LIMIT, || hears("n2")), "the account goes on");
    assert!(!hears("n1"));
}
