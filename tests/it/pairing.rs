//! A device comes into the account: found in the network, with a role, by hand.

use bailey_tests::wait_until;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{
    LIMIT, attached, boxed, daemon, hears_of, on_terminal, pair, row_of, stop, world,
};

fn codes(add: &bailey_tests::Running) -> Value {
    row_of(add, |row| row["code"].is_string())
}

#[test]
fn a_device_on_the_link_is_found_by_the_code_that_is_said_aloud() {
    let (world, _daemons) = world(2);
    let _before = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
    let add = world.start(
        "n1",
        &["device", "add", "--yes", "--json", "--role", "watch"],
    );
    let codes = codes(&add);
    assert_eq!(codes["why"], Value::Null, "{codes}");
    let short = codes["short"].as_str().unwrap();
    let said: Vec<&str> = short.split('-').collect();
    let words = [&["device", "join"][..], &said, &["--json"]].concat();
    let joined = world.run("n2", &words).ok().json();
    let words = row_of(&add, |row| row["words"].is_string());
    assert_eq!(joined[0]["words"], words["words"]);
    assert_eq!(
        (&words["role"], &joined[1]["role"]),
        (&"watch".into(), &"watch".into())
    );
    let grants = words["grants"].as_str().unwrap();
    assert_eq!(
        grants,
        "will read 30 days of audit of 1 box, and all that follows, and change nothing"
    );
    let _added = add.finish(LIMIT).ok();
    // It reads, and it does not stop.
    hears_of(&world, "n2", "yard");
    let running = attached(&world, "n1", &["-q", "--name", "on"], "sleep 600");
    hears_of(&world, "n2", "on");
    let refused = world.run("n2", &["stop", "on@n1", "--wait", "3"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    let _stopped = stop(&world, "n1", "on");
    let _ended = running.finish(LIMIT);
    let rows = world.run("n1", &["device", "list", "--json"]).ok().json();
    let other = rows.iter().find(|row| row["this"] == false).unwrap();
    assert_eq!(other["role"], "watch", "{rows:?}");
}

#[test]
fn a_wrong_word_burns_the_short_code_and_a_wrong_number_finds_nobody() {
    let (world, _daemons) = world(2);
    let add = world.start("n1", &["device", "add", "--yes", "--json"]);
    let codes = codes(&add);
    let short = codes["short"].as_str().unwrap();
    let (slot, _) = short.split_once('-').unwrap();
    let wrong = match short.contains("acorn") {
        true => "zebra-zipper",
        false => "acorn-alarm",
    };
    let wrong = world.run("n2", &["device", "join", &format!("{slot}-{wrong}")]);
    assert!(wrong.stderr.contains("wrong, used or expired"), "{wrong}");
    row_of(&add, |row| row["state"] == "short burnt");
    let at = codes["at"][0].as_str().unwrap();
    let late = world.run("n2", &["device", "join", short, "--at", at]);
    assert!(late.stderr.contains("wrong, used or expired"), "{late}");
    // Nobody answers for it in the network any more.
    let gone = world.run("n2", &["device", "join", short]);
    assert!(gone.stderr.contains("answers in this network"), "{gone}");
    let long = codes["code"].as_str().unwrap();
    let _joined = world.run("n2", &["device", "join", long]).ok();
}

#[test]
fn the_sixth_short_code_of_an_hour_is_not_made() {
    let (world, _daemons) = world(1);
    for made in 0..6 {
        let add = world.start("n1", &["device", "add", "--json"]);
        let codes = codes(&add);
        assert_eq!(codes["short"].is_string(), made < 5, "{codes}");
        assert!(codes["code"].is_string(), "the long one is always there");
        if made == 5 {
            let why = codes["why"].as_str().unwrap();
            assert!(why.contains("5 were made this hour; the next in"), "{why}");
        }
    }
}

#[test]
fn a_person_is_shown_the_codes_and_what_yes_would_grant() {
    let (world, _daemons) = world(2);
    let mut add = on_terminal(&world, &["device", "add", "--role", "stop"]);
    add.wait_for(LIMIT, "or where that finds nothing");
    assert!(
        wait_until(LIMIT, || add.screen().contains('\u{2588}')),
        "no QR code"
    );
    let screen = add.screen();
    let short = screen
        .lines()
        .find_map(|line| line.trim().strip_prefix("bailey device join "))
        .unwrap()
        .trim()
        .to_owned();
    let join = world.start("n2", &["device", "join", &short]);
    add.wait_for(LIMIT, "will read 30 days of audit of 0 boxes");
    add.wait_for(LIMIT, "and may stop boxes.");
    add.type_in("y\n");
    add.wait_for(LIMIT, "in one account, the new one as `stop`.");
    let joined = join.finish(LIMIT).ok();
    assert!(joined.stdout.contains("must show the words:"), "{joined}");
    assert_eq!(add.finish(LIMIT), Some(0));

    let plain = on_terminal(&world, &["device", "add", "--no-qr"]);
    plain.wait_for(LIMIT, "or where that finds nothing");
    assert!(!plain.screen().contains('\u{2588}'));
}

/// Both have new ports and neither knows an address of the other: what is left is the
/// link.
#[test]
fn devices_of_one_account_find_each_other_anew_on_a_link() {
    let (world, daemons) = world(2);
    pair(&world, "n1", "n2");
    for running in daemons {
        running.signal(Signal::SIGTERM);
        let _left = running.finish(LIMIT).ok();
    }
    for node in ["n1", "n2"] {
        let state = world.node(node).unwrap().dir().join("state/bailey");
        let script = format!("cd {} && rm peers sync.port", state.display());
        let _forgot = world.sh(node, &script).ok();
    }
    let _daemons = ["n1", "n2"].map(|node| daemon(&world, node));
    let met = wait_until(LIMIT, || {
        let rows = world.run("n2", &["device", "list", "--json"]).ok().json();
        rows.iter().any(|row| row["connected"] == true)
    });
    assert!(met, "they do not find each other");
}
