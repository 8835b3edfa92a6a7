//! Two devices that cannot reach each other become devices of one account through a
//! mailbox that both reach, and go on through it.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, daemon, hears_of, on_terminal, row_of, stop};
use crate::mailbox::{AGAIN, Apart, FETCH, configure};

/// Longer than a mailbox may be away in a pairing, and than it takes to be missed.
const MISSED: Duration = Duration::from_secs(60);

fn code_of(add: &Running) -> Value {
    row_of(add, |row| row["code"].is_string())
}

fn add(apart: &Apart) -> (Running, Value) {
    let words = ["device", "add", "--yes", "--json"];
    let add = apart.world.start("n1", &words);
    let code = code_of(&add);
    (add, code)
}

/// The long code on a terminal's screen: what was written there, on one line.
fn shown_code(screen: &str) -> String {
    let mut lines = screen
        .lines()
        .filter_map(|line| line.trim().strip_prefix("bailey device join "));
    lines.next_back().unwrap().trim().to_owned()
}

fn is_member(world: &TestWorld, node: &str) -> bool {
    let rows = world.run(node, &["device", "list", "--json"]).json();
    rows.iter().filter(|row| row["id"].is_string()).count() > 1
}

#[test]
fn devices_that_never_meet_pair_and_go_on_through_a_mailbox() {
    let apart = Apart::strangers(2);
    let world = &apart.world;
    apart.names_mailbox("n1");
    let (_n1, n2) = (daemon(world, "n1"), daemon(world, "n2"));
    let (adding, code) = add(&apart);
    assert_eq!(code["mailbox"], Value::from(apart.address.clone()));
    assert!(!code["at"].as_array().unwrap().is_empty(), "{code}");
    let began = Instant::now();
    let code = code["code"].as_str().unwrap();
    let join = world.run("n2", &["device", "join", code, "--json"]).ok();
    let took = began.elapsed();
    let joined = join.json();
    let words = row_of(&adding, |row| row["words"].is_string());
    assert_eq!(joined[0]["words"], words["words"]);
    assert_eq!(joined[1]["mailbox"], Value::from(apart.address.clone()));
    let added = adding.finish(LIMIT).ok();
    assert_eq!(
        added.json().last().unwrap()["account"],
        joined[1]["account"]
    );
    assert!(added.stderr.contains("through the mailbox"), "{added}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // What one does the other reads and stops, both ways, and no file names the mailbox.
    let _none = world
        .sh("n2", "test ! -e $XDG_CONFIG_HOME/bailey/config.toml")
        .ok();
    for (here, there) in [("n1", "n2"), ("n2", "n1")] {
        let name = format!("of-{here}");
        let script = format!("{FETCH}; sleep 600");
        let running = attached(world, here, &["-q", "--name", &name], &script);
        hears_of(world, there, &name);
        let told = stop(world, there, &format!("{name}@{here}"));
        assert!(told["processes_ended"].as_u64().unwrap() > 0);
        assert_eq!(running.finish(LIMIT).code, Some(121));
        apart.same(here, there, &name);
    }
    apart.never_met("n1");
    apart.never_met("n2");
    apart.until("n2", |row| {
        row["from_code"] == true && row["connected"] == true
    });
    apart.until("n1", |row| row["from_code"] == false);
    // The next start still knows it, until a person forgets it.
    n2.signal(Signal::SIGTERM);
    let _left = n2.finish(LIMIT).ok();
    let n2 = daemon(world, "n2");
    let _ran = boxed(world, "n1", &["-q", "--name", "later"], FETCH).ok();
    apart.same("n1", "n2", "later");
    let list = world.run("n2", &["device", "list"]).ok().stdout;
    assert!(list.contains("named by the code"), "{list}");
    let place = apart.address.split_once('@').unwrap().1;
    let other = world.run("n2", &["device", "forget", "192.0.2.1:7000"]);
    assert_eq!(other.code, Some(2), "{other}");
    let named = world.run("n1", &["device", "forget", place]);
    assert!(named.stderr.contains("config.toml"), "{named}");
    let _forgot = world.run("n2", &["device", "forget", place]).ok();
    assert_eq!(apart.row("n2"), Value::Null);
    n2.signal(Signal::SIGTERM);
    let _left = n2.finish(LIMIT).ok();
    let _n2 = daemon(world, "n2");
    assert_eq!(apart.row("n2"), Value::Null);
}

#[test]
fn a_code_is_good_once_and_a_command_that_ends_ends_it() {
    let apart = Apart::strangers(3);
    let world = &apart.world;
    apart.names_mailbox("n1");
    let _daemons = ["n1", "n2", "n3"].map(|node| daemon(world, node));
    let (adding, code) = add(&apart);
    let code = code["code"].as_str().unwrap();
    let _joined = world.run("n2", &["device", "join", code]).ok();
    let _added = adding.finish(LIMIT).ok();
    let began = Instant::now();
    let used = world.run("n3", &["device", "join", code]);
    assert!(
        began.elapsed() < Duration::from_secs(12),
        "{:?}",
        began.elapsed()
    );
    assert_ne!(used.code, Some(0), "{used}");
    assert!(used.stderr.contains("wrong, used or expired"), "{used}");
    assert!(!is_member(world, "n3"));
    // Whoever showed it went away.
    let (adding, code) = add(&apart);
    let code = code["code"].as_str().unwrap();
    adding.signal(Signal::SIGINT);
    let _ended = adding.finish(LIMIT);
    let gone = world.run("n3", &["device", "join", code]);
    assert!(gone.stderr.contains("wrong, used or expired"), "{gone}");
    // Another one is as good as ever.
    let (adding, code) = add(&apart);
    let code = code["code"].as_str().unwrap();
    let _joined = world.run("n3", &["device", "join", code]).ok();
    let _added = adding.finish(LIMIT).ok();
}

#[test]
fn no_is_heard_through_the_mailbox_and_nobody_is_added() {
    let apart = Apart::strangers(2);
    let world = &apart.world;
    apart.names_mailbox("n1");
    let _daemons = ["n1", "n2"].map(|node| daemon(world, node));
    let mut adding = on_terminal(world, &["device", "add", "--no-qr"]);
    adding.wait_for(LIMIT, "The short one goes by this network alone.");
    let code = shown_code(&adding.screen());
    let join = world.start("n2", &["device", "join", &code]);
    adding.wait_for(LIMIT, "and may it do that?");
    adding.type_in("n\n");
    let told = join.finish(LIMIT);
    assert!(told.stderr.contains("ended the pairing"), "{told}");
    assert!(told.stdout.contains("must show the words:"), "{told}");
    assert_ne!(adding.finish(LIMIT), Some(0));
    for node in ["n1", "n2"] {
        assert!(!is_member(world, node), "{node}");
    }
    // A code that led to nothing leaves nothing.
    let left = world.node("n2").unwrap().dir().join("state/bailey");
    assert!(left.exists() && !left.join("mailboxes").exists());
}

#[test]
fn a_mailbox_that_is_killed_in_a_pairing_ends_it_unless_it_is_back_soon() {
    let mut apart = Apart::strangers(2);
    apart.names_mailbox("n1");
    let _daemons = ["n1", "n2"].map(|node| daemon(&apart.world, node));
    let begin = |apart: &Apart| {
        let adding = on_terminal(&apart.world, &["device", "add", "--no-qr"]);
        adding.wait_for(LIMIT, "The short one goes by this network alone.");
        let code = shown_code(&adding.screen());
        let join = apart.world.start("n2", &["device", "join", &code]);
        adding.wait_for(LIMIT, "and may it do that?");
        (adding, join)
    };
    let (mut adding, join) = begin(&apart);
    apart.end(Signal::SIGKILL);
    let began = Instant::now();
    let told = join.finish(MISSED);
    assert!(
        told.stderr.contains("through the mailbox") && told.stderr.contains("is not reached"),
        "{told}"
    );
    assert!(began.elapsed() < MISSED);
    // The question is still there, and its answer is worth nothing.
    adding.type_in("y\n");
    adding.wait_for(MISSED, "is not reached");
    assert_ne!(adding.finish(LIMIT), Some(0));
    apart.start(&[]);
    assert!(!is_member(&apart.world, "n1") && !is_member(&apart.world, "n2"));
    // One that comes back goes on where it was.
    let (mut adding, join) = begin(&apart);
    apart.end(Signal::SIGKILL);
    apart.start(&[]);
    adding.type_in("y\n");
    adding.wait_for(AGAIN, "in one account");
    let joined = join.finish(AGAIN).ok();
    assert!(
        joined.stdout.contains("goes on using the mailbox"),
        "{joined}"
    );
    assert_eq!(adding.finish(LIMIT), Some(0));
}

#[test]
fn devices_on_one_link_pair_without_the_mailbox_and_keep_it() {
    let apart = Apart::strangers(2);
    let world = &apart.world;
    for node in ["n1", "n2"] {
        let words = [
            "link",
            "set",
            "dev",
            node,
            "type",
            "bridge_slave",
            "isolated",
            "off",
        ];
        let _on = bailey_tests::run(world.inet_command("ip").args(words)).ok();
    }
    apart.names_mailbox("n1");
    // Four of its own leave no room for that of the code.
    let own: Vec<String> = "2345"
        .chars()
        .map(|n| format!("\"{}@mail.example:7000\"", n.to_string().repeat(64)))
        .collect();
    configure(
        world,
        "n2",
        &format!("[sync]\nmailbox = [{}]\n", own.join(", ")),
    );
    let _daemons = ["n1", "n2"].map(|node| daemon(world, node));
    let (adding, code) = add(&apart);
    let code = code["code"].as_str().unwrap();
    let joined = world.run("n2", &["device", "join", code, "--json"]).ok();
    assert!(
        joined.stderr.contains("is not used: there are 4"),
        "{joined}"
    );
    assert_eq!(joined.json()[1]["mailbox"], Value::Null);
    let added = adding.finish(LIMIT).ok();
    assert!(!added.stderr.contains("through the mailbox"), "{added}");
    let met = wait_until(LIMIT, || {
        let rows = world.run("n2", &["device", "list", "--json"]).ok().json();
        rows.iter()
            .any(|row| row["connected"] == true && row["id"].is_string())
    });
    assert!(met);
}

#[test]
fn what_a_code_holds_can_be_chosen() {
    let apart = Apart::strangers(1);
    let world = &apart.world;
    apart.names_mailbox("n1");
    let _n1 = daemon(world, "n1");
    let code = |words: &[&str]| {
        let words = [&["device", "add", "--json"][..], words].concat();
        code_of(&world.start("n1", &words))
    };
    let both = code(&[]);
    let alone = code(&["--no-addr"]);
    let without = code(&["--no-mailbox"]);
    assert_eq!(alone["at"], Value::Array(vec![]));
    assert!(alone["mailbox"].is_string() && without["mailbox"].is_null());
    let length = |row: &Value| row["code"].as_str().unwrap().len();
    assert!(length(&both) > length(&alone) && length(&both) > length(&without));
    let neither = world.run("n1", &["device", "add", "--no-addr", "--no-mailbox"]);
    assert_eq!(neither.code, Some(2), "{neither}");
    let two = world.run("n1", &["device", "add", "--no-addr", "--addr", "192.0.2.1"]);
    assert_eq!(two.code, Some(2), "{two}");
}

#[test]
fn without_an_address_a_device_without_a_mailbox_shows_no_code() {
    let world = TestWorld::new(1);
    let _n1 = daemon(&world, "n1");
    let none = world.run("n1", &["device", "add", "--no-addr"]);
    assert_eq!(none.code, Some(2), "{none}");
    assert!(none.stderr.contains("needs a mailbox"), "{none}");
}
