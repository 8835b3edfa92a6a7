//! A second device: reads, hears, stops.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use bailey_docs_store::{OsEntropy, Store, load_or_create_device_keys};
use bailey_model::Timestamp;
use bailey_tests::{Running, TestWorld, run, wait_until};
use bailey_world::SeenKind;
use nix::sys::signal::Signal;

use crate::common::{
    LIMIT, attached, boxed, daemon, flows, hears_of, is_clean, pair, row_of, stop, stop_told, world,
};

/// The whole road: from a packet in a box to a notice on another device, and a
/// stop back.
#[test]
fn audit_reaches_you() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let notices = world.start("n2", &["notices", "--follow", "--json"]);
    let script = "curl -sS -m 5 -o /dev/null http://shop.example/; read go; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; sleep 600";
    let mut running = attached(&world, "n1", &["--name", "yard"], script);
    let pressed = Instant::now();
    drop(running.take_stdin());
    let notice = row_of(&notices, |row| row["box"] == "yard");
    assert!(
        pressed.elapsed() < Duration::from_secs(1),
        "notice after {:?}",
        pressed.elapsed()
    );
    assert_eq!(notice["rule"], "local-from-internet-only");
    assert_eq!(notice["device"], "n1");
    let entry = &notice["entries"][0];
    assert_eq!(
        (&entry["dst_ip"], &entry["verdict"]),
        (&"192.168.1.9".into(), &"refuse".into())
    );
    assert_eq!(entry["no"], notice["evidence"][0]);

    let pressed = Instant::now();
    let there = stop(&world, "n2", "yard@n1");
    assert!(
        pressed.elapsed() < Duration::from_secs(1),
        "stopped after {:?}",
        pressed.elapsed()
    );
    assert!(there["processes_ended"].as_u64().unwrap() > 0);
    let here = running.finish(LIMIT);
    assert_eq!(here.code, Some(121), "{here}");
    // Both ends say the same of it.
    let receipt = ["processes_ended", "processes_left", "flows_reset"]
        .map(|field| there[field].as_u64().unwrap());
    assert_eq!(stop_told(&here.stderr), Some(receipt), "{here}");
    assert!(wait_until(LIMIT, || is_clean(&world, "n1")));

    let ours = flows(&world, "n1", "yard");
    assert!(ours.len() >= 4);
    assert!(
        wait_until(LIMIT, || flows(&world, "n2", "yard") == ours),
        "the audits differ"
    );
    assert!(
        ours.last().unwrap()["end"]
            .as_str()
            .unwrap()
            .starts_with("stopped by device")
    );
    // The person at the first device sees who it was.
    let boxes = world.run("n1", &["ps", "--json"]).ok().json();
    assert!(
        boxes[0]["end"]
            .as_str()
            .unwrap()
            .starts_with("stopped by device"),
        "{boxes:?}"
    );
}

#[test]
fn a_device_that_was_away_reads_what_it_missed() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    drop(daemons.pop());
    assert!(wait_until(LIMIT, || world.pids("n2", "bailey").is_empty()));
    let _first = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        "curl -sS -o /dev/null http://shop.example/",
    )
    .ok();
    let _again = daemon(&world, "n2");
    assert!(
        same_audit(&world, "yard", LIMIT),
        "what was written meanwhile did not arrive"
    );
}

#[test]
fn a_cut_cable_heals_and_a_stop_meanwhile_is_said_to_be_undelivered() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    world.link_down("n1").unwrap();
    let asked = world.run("n2", &["stop", "yard", "--json", "--wait", "1"]);
    assert_eq!(asked.code, Some(1), "{asked}");
    assert_eq!(asked.json().last().unwrap()["state"], "not delivered yet");
    world.link_up("n1").unwrap();
    // Delivered when it is heard again, without another press.
    assert_eq!(running.finish(Duration::from_secs(60)).code, Some(121));
}

/// The stranger's node dials in earnest: it has a copy of a member's store, so
/// it knows the account, who is in it and where they listen. What it lacks is a
/// key of one of them. That every step of the handshake refuses such a key is
/// tested beside the endpoint (`a_key_that_is_no_members_is_refused_from_either_side`
/// in `sync`).
#[test]
fn a_stranger_with_a_copy_of_a_members_store_is_refused() {
    let (world, mut daemons) = world(3);
    pair(&world, "n1", "n2");
    let _before = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
    assert!(same_audit(&world, "yard", LIMIT), "not synced before");
    // A whole copy needs both at rest; n3 keeps the key that it made itself.
    for daemon in daemons.drain(1..) {
        daemon.signal(Signal::SIGTERM);
        let _left = daemon.finish(LIMIT).ok();
    }
    let target = steal(&world);
    daemons.push(daemon(&world, "n2"));
    let stranger = daemon(&world, "n3");
    let dials = || dials(&world, target);
    assert!(
        wait_until(LIMIT, || dials() >= 3),
        "the control: the stranger dials ({}):\n{}",
        dials(),
        stranger.stderr()
    );
    noise(&world, target);

    // Meanwhile the members go on as ever.
    let connected = |node: &str| -> Vec<String> {
        let rows = world.run(node, &["device", "list", "--json"]).ok().json();
        let up = rows.iter().filter(|row| row["connected"] == true);
        up.map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(wait_until(LIMIT, || connected("n1") == ["n2"]));
    let _after = boxed(&world, "n1", &["-q", "--name", "later"], "true").ok();
    assert!(
        same_audit(&world, "later", Duration::from_secs(1)),
        "the members' sync is late"
    );
    let before = dials();
    assert!(
        wait_until(LIMIT, || dials() > before),
        "the control: it dials still"
    );
    assert_eq!(connected("n1"), ["n2"]);
    assert_eq!(connected("n3"), Vec::<String>::new());
    let devices = world.run("n1", &["device", "list", "--json"]).ok().json();
    assert_eq!(devices.len(), 2, "{devices:?}");
    nothing_came(&world, stranger, &daemons);
}

/// Whether the second device's audit of a box is the first one's, in time.
fn same_audit(world: &TestWorld, name: &str, limit: Duration) -> bool {
    let ours = flows(world, "n1", name);
    wait_until(limit, || {
        let theirs = world.run("n2", &["flows", name, "--json"]);
        theirs.code == Some(0) && theirs.json() == ours
    })
}

/// Puts n2's store, and where n1 listens, into n3's state folder; and a second
/// copy of the store beside it, to compare with in the end.
fn steal(world: &TestWorld) -> SocketAddr {
    let devices = world.run("n1", &["device", "list", "--json"]).ok().json();
    let first = devices.iter().find(|row| row["this"] == true).unwrap();
    let state = |node: &str| world.node(node).unwrap().dir().join("state/bailey");
    let port = std::fs::read_to_string(state("n1").join("sync.port")).unwrap();
    let target = format!("{}:{}", world.node("n1").unwrap().v4(), port.trim());
    let script = format!(
        "cd {to} && rm -f store.db* && cp {from}/store.db* . && mkdir -m 700 frozen && \
         cp {from}/store.db* frozen && echo '{id} {target}' >peers && \
         ! cmp -s device.key {from}/device.key",
        to = state("n3").display(),
        from = state("n2").display(),
        id = first["id"].as_str().unwrap(),
    );
    let _stolen = world.sh("n3", &script).ok();
    target.parse().unwrap()
}

/// Dials of n3 that left for this address: datagrams within a quarter of a
/// second are one.
fn dials(world: &TestWorld, target: SocketAddr) -> usize {
    let seen = world.witness().unwrap().into_iter();
    let times: Vec<_> = seen
        .filter(|seen| seen.node == "n3" && seen.kind == SeenKind::Udp && seen.dst == target)
        .map(|seen| seen.at)
        .collect();
    let apart = |pair: &[SystemTime]| {
        let gap = pair[1].duration_since(pair[0]).unwrap_or_default();
        gap > Duration::from_millis(250)
    };
    times.windows(2).filter(|pair| apart(pair)).count() + usize::from(!times.is_empty())
}

/// Datagrams of n3 to this address that are no handshake: at random, and with
/// the head of one (RFC 9000 §17.2.2).
fn noise(world: &TestWorld, target: SocketAddr) {
    let script = format!(
        "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(400):
    head = bytes.fromhex('c300000001') + b'\\x08' + os.urandom(8) + b'\\x00\\x00\\x44\\x9e'
    s.sendto(os.urandom(1200) if n % 2 else (head + os.urandom(1200))[:1200], ('{}', {}))
",
        target.ip(),
        target.port()
    );
    let sent = run(world.command("n3", "python3").args(["-c", &script]));
    assert_eq!(sent.code, Some(0), "{sent}");
}

/// The stranger's store has what was copied, and the first device never heard
/// of its key.
fn nothing_came(world: &TestWorld, stranger: Running, members: &[Running]) {
    let seen = world.run("n3", &["ps", "--json"]).stdout;
    assert!(!seen.contains("yard") && !seen.contains("later"), "{seen}");
    stranger.signal(Signal::SIGTERM);
    let _left = stranger.finish(LIMIT);
    let state = world.node("n3").unwrap().dir().join("state/bailey");
    // A store and a key are opened only by who owns them: this test's user.
    let look = |from: &Path, name: &str| {
        let to = world.dir().join(name);
        std::fs::create_dir(&to).unwrap();
        for file in ["store.db", "store.db-wal"] {
            if from.join(file).exists() {
                std::fs::copy(from.join(file), to.join(file)).unwrap();
            }
        }
        to
    };
    let key = world.dir().join("n3.key");
    std::fs::copy(state.join("device.key"), &key).unwrap();
    let keys = load_or_create_device_keys(&key, None, &mut OsEntropy).unwrap();
    let heads = |folder: &Path| {
        let entropy = Box::new(OsEntropy);
        let store = Store::open(folder, keys.clone(), Timestamp(0), entropy).unwrap();
        store.heads()
    };
    let copied = heads(&look(&state.join("frozen"), "copied"));
    assert!(copied.len() > 3, "the control: {copied:?}");
    let kept = heads(&look(&state, "kept"));
    assert_eq!(kept, copied, "the stranger's store has grown");
    let id = keys.id().to_string();
    for member in members {
        let log = member.stderr();
        assert!(!log.contains(id.get(..8).unwrap()), "{log}");
    }
}

#[test]
fn a_code_that_nobody_gave_lets_nobody_in() {
    let (world, _daemons) = world(1);
    let wrong = world.run("n1", &["device", "join", "0000-0000-0000", "--json"]);
    assert_eq!(wrong.code, Some(2), "{wrong}");
}

#[test]
fn a_person_who_says_no_adds_nobody() {
    let (world, _daemons) = world(2);
    let add = world.start("n1", &["device", "add", "--json"]);
    let code = row_of(&add, |row| row["code"].is_string());
    let joined = world.run(
        "n2",
        &["device", "join", code["code"].as_str().unwrap(), "--json"],
    );
    // Nobody is at the terminal: the answer is no.
    assert_eq!(add.finish(LIMIT).code, Some(2));
    assert_eq!(joined.code, Some(125), "{joined}");
    let devices = world.run("n1", &["device", "list", "--json"]).ok().json();
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert!(
        world
            .run("n2", &["device", "list", "--json"])
            .ok()
            .json()
            .is_empty()
    );
}

#[test]
fn a_device_reads_what_another_wrote_before_it_joined() {
    let (world, _daemons) = world(2);
    let _before = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        "curl -sS -o /dev/null http://shop.example/",
    )
    .ok();
    pair(&world, "n1", "n2");
    assert!(
        same_audit(&world, "yard", LIMIT),
        "the audit from before did not arrive"
    );
}

#[test]
fn a_device_joins_one_whose_node_was_started_many_times() {
    let (world, mut daemons) = world(2);
    for _ in 0..4 {
        let _box = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
        daemons.remove(0);
        assert!(wait_until(LIMIT, || world.pids("n1", "bailey").is_empty()));
        daemons.insert(0, daemon(&world, "n1"));
    }
    pair(&world, "n1", "n2");
    let devices = world.run("n2", &["device", "list", "--json"]).ok().json();
    assert_eq!(devices.len(), 2);
    let ours = flows(&world, "n1", "yard");
    assert_eq!(
        ours.iter().filter(|row| row["kind"] == "started").count(),
        4
    );
    assert!(
        same_audit(&world, "yard", LIMIT),
        "the audit of earlier starts did not arrive"
    );
}
