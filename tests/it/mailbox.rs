//! A mailbox between devices that never meet: what is put there arrives, and whatever
//! becomes of it is harmless and is shown.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, run, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::away::{a_month, month_is_whole, shifted};
use crate::common::{LIMIT, attached, boxed, daemon, flows, hears_of, pair, row_of, stop};

/// Where the mailbox listens.
const PORT: u16 = 7000;
/// A connection that is lost without a word, and the next one to a mailbox.
pub(crate) const AGAIN: Duration = Duration::from_secs(60);
pub(crate) const FETCH: &str = "curl -sS -o /dev/null http://shop.example/";

/// Two devices of one account that cannot reach each other, and a third node for the
/// mailbox, which both reach.
pub(crate) struct Apart {
    pub(crate) world: TestWorld,
    /// `KEY@HOST:PORT`.
    pub(crate) address: String,
    mailbox: Option<Running>,
}

impl Apart {
    /// The devices' nodes are not started.
    fn new() -> Self {
        Self::with(2, &[])
    }

    fn with(devices: u8, words: &[&str]) -> Self {
        let world = TestWorld::new(devices + 1);
        let mut daemons: Vec<Running> = (1..=devices)
            .map(|n| daemon(&world, &format!("n{n}")))
            .collect();
        for n in 2..=devices {
            pair(&world, "n1", &format!("n{n}"));
        }
        for node in daemons.drain(..) {
            node.signal(Signal::SIGTERM);
            let _left = node.finish(LIMIT).ok();
        }
        let apart = Self::of(world, devices, words);
        for n in 1..=devices {
            apart.names_mailbox(&format!("n{n}"));
        }
        apart
    }

    /// Devices that know nothing of each other.
    pub(crate) fn strangers(devices: u8) -> Self {
        Self::of(TestWorld::new(devices + 1), devices, &[])
    }

    fn of(world: TestWorld, devices: u8, words: &[&str]) -> Self {
        for n in 1..=devices {
            isolate(&world, &format!("n{n}"));
        }
        let mut apart = Self {
            world,
            address: String::new(),
            mailbox: None,
        };
        apart.start(words);
        apart
    }

    /// A device's configuration names the mailbox.
    pub(crate) fn names_mailbox(&self, node: &str) {
        let text = format!("[sync]\nmailbox = \"{}\"\n", self.address);
        configure(&self.world, node, &text);
    }

    fn host(&self) -> String {
        let devices = self.world.dir().read_dir().unwrap();
        let nodes = devices.filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_prefix('n').and_then(|n| n.parse::<u8>().ok())
        });
        format!("n{}", nodes.max().unwrap())
    }

    /// Starts the mailbox with further words, and waits until it says where it is.
    pub(crate) fn start(&mut self, words: &[&str]) {
        let host = self.host();
        let node = self.world.node(&host).unwrap();
        let listen = format!("0.0.0.0:{PORT}");
        let (store, at) = (node.home().join("mail"), node.v4().to_string());
        let mut command = self.world.bailey(&host);
        command
            .args(["mailbox", "--listen", &listen, "--host", &at, "--store"])
            .arg(store)
            .args(words);
        let running = Running::start(&mut command);
        self.address = running.wait_line(LIMIT, |line| line.contains('@'));
        self.mailbox = Some(running);
    }

    pub(crate) fn end(&mut self, signal: Signal) {
        let running = self.mailbox.take().unwrap();
        running.signal(signal);
        let _ended = running.finish(LIMIT);
    }

    /// What a device says of its mailbox.
    pub(crate) fn row(&self, node: &str) -> Value {
        let rows = self
            .world
            .run(node, &["device", "list", "--json"])
            .ok()
            .json();
        let of_mail = |row: &Value| row["mailbox"].is_string();
        rows.into_iter().find(of_mail).unwrap_or(Value::Null)
    }

    #[track_caller]
    pub(crate) fn until(&self, node: &str, wanted: impl Fn(&Value) -> bool) {
        let mut last = Value::Null;
        let found = wait_until(AGAIN, || {
            last = self.row(node);
            wanted(&last)
        });
        assert!(found, "{node}: {last}");
    }

    /// Waits until a device has all that another has of a box.
    #[track_caller]
    pub(crate) fn same(&self, from: &str, to: &str, name: &str) {
        let ours = flows(&self.world, from, name);
        assert!(!ours.is_empty());
        let mut theirs = None;
        let same = wait_until(AGAIN, || {
            let read = self.world.run(to, &["flows", name, "--json"]);
            theirs = Some(read.to_string());
            read.code == Some(0) && read.json() == ours
        });
        assert!(same, "{ours:#?}\n{theirs:?}\n{}", self.row(to));
    }

    pub(crate) fn never_met(&self, node: &str) {
        let rows = self
            .world
            .run(node, &["device", "list", "--json"])
            .ok()
            .json();
        assert!(
            rows.iter()
                .all(|row| row["connected"] != true || row["mailbox"].is_string()),
            "{rows:?}"
        );
    }

    /// Runs a Python program over the mailbox's folder, where `blobs()` gives the blobs
    /// of its largest topic in order, and `put` writes one.
    fn tamper(&self, program: &str) {
        let host = self.host();
        let script = format!("{TAMPER}{program}");
        let mut command = self.world.command(&host, "python3");
        let ran = run(command.args(["-c", &script]));
        assert_eq!(ran.code, Some(0), "{ran}");
    }
}

/// What whoever runs a mailbox can do: it knows nothing but files.
const TAMPER: &str = "
import hashlib, os, pathlib
topics = [t for t in pathlib.Path.home().joinpath('mail/blobs/topics').iterdir()]
topic = max(topics, key=lambda t: len(list(t.iterdir())))
def blobs():
    return sorted(topic.iterdir())
def put(index, data):
    name = '%016x-%s' % (index, hashlib.sha256(data).hexdigest()[:16])
    topic.joinpath(name).write_bytes(data)
def index(blob):
    return int(blob.name.split('-')[0], 16)
";

/// Ports of a bridge that are isolated reach each other by nothing; the others and the
/// router they reach (ip-link(8), `bridge_slave`).
pub(crate) fn isolate(world: &TestWorld, node: &str) {
    let words = [
        "link",
        "set",
        "dev",
        node,
        "type",
        "bridge_slave",
        "isolated",
        "on",
    ];
    let done = run(world.inet_command("ip").args(words));
    assert_eq!(done.code, Some(0), "{done}");
}

pub(crate) fn configure(world: &TestWorld, node: &str, text: &str) {
    let script = format!(
        "mkdir -p $XDG_CONFIG_HOME/bailey && printf '%s' '{text}' > $XDG_CONFIG_HOME/bailey/config.toml"
    );
    let _written = world.sh(node, &script).ok();
}

#[test]
fn devices_that_never_meet_read_hear_and_stop_through_a_mailbox() {
    let apart = Apart::new();
    let world = &apart.world;
    let _daemons = [daemon(world, "n1"), daemon(world, "n2")];
    let notices = world.start("n2", &["notices", "--follow", "--json"]);
    let script = format!("{FETCH}; curl -sS -m 5 -o /dev/null http://192.168.1.9/; sleep 600");
    let running = attached(world, "n1", &["-q", "--name", "yard"], &script);
    let notice = row_of(&notices, |row| row["box"] == "yard");
    assert_eq!(notice["device"], "n1");
    assert_eq!(notice["entries"][0]["dst_ip"], "192.168.1.9");
    hears_of(world, "n2", "yard");
    let there = stop(world, "n2", "yard@n1");
    assert!(there["processes_ended"].as_u64().unwrap() > 0);
    assert_eq!(running.finish(LIMIT).code, Some(121));
    apart.same("n1", "n2", "yard");
    apart.never_met("n1");
    apart.never_met("n2");
    apart.until("n1", |row| {
        row["connected"] == true && row["refused"].is_null()
    });
}

#[test]
fn a_stop_is_undelivered_until_the_mailbox_is_there_and_then_has_its_receipt() {
    let mut apart = Apart::new();
    let _daemons = [daemon(&apart.world, "n1"), daemon(&apart.world, "n2")];
    let running = attached(&apart.world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&apart.world, "n2", "yard");
    apart.end(Signal::SIGKILL);
    let asked = apart
        .world
        .run("n2", &["stop", "yard@n1", "--json", "--wait", "2"]);
    assert_eq!(asked.code, Some(1), "{asked}");
    assert_eq!(asked.json().last().unwrap()["state"], "not delivered yet");
    apart.start(&[]);
    assert_eq!(running.finish(AGAIN).code, Some(121));
    apart.same("n1", "n2", "yard");
    let boxes = apart.world.run("n2", &["ps", "--json"]).ok().json();
    assert!(
        boxes[0]["end"]
            .as_str()
            .unwrap()
            .starts_with("stopped by device"),
        "{boxes:?}"
    );
}

#[test]
fn a_mailbox_that_is_killed_goes_on_where_it_was() {
    let mut apart = Apart::new();
    let _daemons = [daemon(&apart.world, "n1"), daemon(&apart.world, "n2")];
    let script = format!("for n in 1 2 3 4 5 6 7 8; do {FETCH}; sleep 0.4; done");
    let running = attached(&apart.world, "n1", &["-q", "--name", "yard"], &script);
    hears_of(&apart.world, "n2", "yard");
    apart.end(Signal::SIGKILL);
    apart.until("n2", |row| {
        row["connected"] == false && row["why"].is_string()
    });
    apart.start(&[]);
    assert_eq!(running.finish(AGAIN).code, Some(0));
    apart.same("n1", "n2", "yard");
}

#[test]
fn what_a_mailbox_lost_is_put_again_and_a_device_that_was_away_reads_it() {
    let mut apart = Apart::new();
    let n1 = daemon(&apart.world, "n1");
    let _before = boxed(&apart.world, "n1", &["-q", "--name", "before"], FETCH).ok();
    let puts = |apart: &Apart| {
        let script = "find ~/mail/blobs/topics -type f | wc -l";
        let count = apart.world.sh(&apart.host(), script).ok().stdout;
        count.trim().parse::<u32>().unwrap()
    };
    // Until nothing more comes.
    let mut last = 0;
    let still = wait_until(AGAIN, || {
        std::thread::sleep(Duration::from_secs(2));
        std::mem::replace(&mut last, puts(&apart)) == puts(&apart) && last > 0
    });
    assert!(still, "{last}");
    // The one that wrote it comes again and puts nothing twice: to a store that has
    // lost single blobs, and does not say so, they do not come back by themselves.
    n1.signal(Signal::SIGTERM);
    let _left = n1.finish(LIMIT).ok();
    apart.end(Signal::SIGTERM);
    apart.tamper("os.remove(blobs()[0])");
    apart.start(&[]);
    let few = puts(&apart);
    let n1 = daemon(&apart.world, "n1");
    apart.until("n1", |row| row["connected"] == true);
    std::thread::sleep(Duration::from_secs(3));
    let first = puts(&apart);
    assert!(
        first < few + last / 2,
        "{few} {last} {first}: all of it was put again"
    );
    // A store that is another has nothing, and is given all.
    apart.end(Signal::SIGKILL);
    let _gone = apart.world.sh(&apart.host(), "rm -rf ~/mail/blobs").ok();
    apart.start(&[]);
    let all = wait_until(AGAIN, || puts(&apart) >= last);
    assert!(all, "{} of {last}", puts(&apart));
    let _n2 = daemon(&apart.world, "n2");
    apart.same("n1", "n2", "before");
    drop(n1);
}

#[test]
fn a_mailbox_that_lies_is_harmless_and_is_shown() {
    let mut apart = Apart::new();
    let _n1 = daemon(&apart.world, "n1");
    let script = format!("for n in 1 2 3 4 5 6 7 8; do {FETCH}; sleep 1.2; done");
    let _ran = boxed(&apart.world, "n1", &["-q", "--name", "yard"], &script).ok();
    // n1's word on its heads is the last that it puts.
    std::thread::sleep(Duration::from_secs(35));
    apart.end(Signal::SIGTERM);
    apart.tamper(
        "
all = blobs()
assert len(all) > 7, len(all)
last = index(all[-1])
# One is kept back, two change places, one comes twice, one is flipped, and one is of
# another topic.
os.remove(all[3])
a, b = all[4].read_bytes(), all[5].read_bytes()
ia, ib = index(all[4]), index(all[5])
os.remove(all[4]); os.remove(all[5])
put(ia, b); put(ib, a)
put(last + 1, all[1].read_bytes())
bad = bytearray(all[2].read_bytes()); bad[200] ^= 1
put(last + 2, bytes(bad))
other = min(topics, key=lambda t: len(list(t.iterdir())))
put(last + 3, sorted(other.iterdir())[0].read_bytes())
put(last + 4, b'short')
",
    );
    apart.start(&[]);
    let _n2 = daemon(&apart.world, "n2");
    apart.until("n2", |row| row["older_than"] == "n1");
    apart.until("n2", |row| row["bad"].as_u64().unwrap() >= 2);
    let list = apart.world.run("n2", &["device", "list"]).ok().stdout;
    assert!(list.contains("shows an older head than n1 saw"), "{list}");
    // What is lacking is asked for by a word of n2's, and put once more by n1.
    apart.same("n1", "n2", "yard");
    apart.until("n2", |row| row["older_than"].is_null());
    let check = apart.world.run("n2", &["store", "check"]);
    assert_eq!(check.code, Some(0), "{check}");
}

#[test]
fn a_mailbox_that_is_full_says_so_and_holds_nothing_up() {
    let mut apart = Apart::with(2, &["--quota", "6K"]);
    let _daemons = [daemon(&apart.world, "n1"), daemon(&apart.world, "n2")];
    let _ran = boxed(&apart.world, "n1", &["-q", "--name", "yard"], FETCH).ok();
    apart.until("n1", |row| {
        let refused = row["refused"].as_str();
        refused.is_some_and(|why| why.contains("holds all that it may"))
    });
    let list = apart.world.run("n1", &["device", "list"]).ok().stdout;
    assert!(list.contains("keeps nothing more"), "{list}");
    apart.end(Signal::SIGTERM);
    apart.start(&[]);
    apart.same("n1", "n2", "yard");
    apart.until("n1", |row| row["refused"].is_null());
}

#[test]
fn a_stop_and_its_receipt_go_through_though_both_topics_are_full() {
    let apart = Apart::with(2, &["--topic-quota", "96K"]);
    let world = &apart.world;
    let _daemons = [daemon(world, "n1"), daemon(world, "n2")];
    let running = attached(world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(world, "n2", "yard");
    // Whoever reads a topic can fill it; here its own writer does.
    let full = |node: &str| {
        let why = apart.row(node)["refused"].clone();
        why.as_str().is_some_and(|why| why.contains("the topic"))
    };
    for node in ["n1", "n2"] {
        let filled = (0..60).any(|n| {
            let name = format!("fill{n}");
            let _ran = boxed(world, node, &["-q", "--name", &name], FETCH).ok();
            full(node)
        });
        assert!(filled, "{node}: {}", apart.row(node));
    }
    let there = stop(world, "n2", "yard@n1");
    assert!(there["processes_ended"].as_u64().unwrap() > 0, "{there}");
    assert_eq!(running.finish(LIMIT).code, Some(121));
    apart.never_met("n2");
    assert!(full("n1") && full("n2"), "the control: they are full still");
    let list = world.run("n2", &["device", "list"]).ok().stdout;
    assert!(list.contains("keeps nothing more: "), "{list}");
}

#[test]
fn a_mailbox_whose_disk_is_full_says_so_and_goes_on_when_there_is_room() {
    let mut apart = Apart::new();
    let host = apart.host();
    apart.end(Signal::SIGTERM);
    let node = apart.world.node(&host).unwrap();
    let mut mount = node.root_command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs"]);
    let _mounted = run(mount.arg(node.home().join("mail/blobs"))).ok();
    let full = "cat /dev/zero > ~/mail/blobs/fill";
    apart.start(&[]);
    let filled = apart.world.sh(&host, full);
    assert!(filled.stderr.contains("No space left"), "{filled}");
    let _daemons = [daemon(&apart.world, "n1"), daemon(&apart.world, "n2")];
    let _ran = boxed(&apart.world, "n1", &["-q", "--name", "yard"], FETCH).ok();
    apart.until("n1", |row| {
        let refused = row["refused"].as_str();
        refused.is_some_and(|why| why.contains("disk takes nothing"))
    });
    let _freed = apart.world.sh(&host, "rm ~/mail/blobs/fill").ok();
    apart.same("n1", "n2", "yard");
}

#[test]
fn a_mailbox_with_another_key_is_not_spoken_to_and_a_wrong_line_is_refused() {
    let apart = Apart::new();
    let world = &apart.world;
    let (key, place) = apart.address.split_once('@').unwrap();
    let other: String = key.chars().rev().collect();
    assert_ne!(other, key);
    let other = format!("{other}@{place}");
    configure(world, "n1", &format!("[sync]\nmailbox = \"{other}\"\n"));
    let n1 = daemon(world, "n1");
    apart.until("n1", |row| {
        let why = row["why"].as_str();
        why.is_some_and(|why| why.contains("does not answer with its key"))
    });
    let list = world.run("n1", &["device", "list"]).ok().stdout;
    assert!(list.contains("not reached yet"), "{list}");
    // What boxes do is not held up by it.
    let _ran = boxed(world, "n1", &["-q", "--name", "yard"], FETCH).ok();
    n1.signal(Signal::SIGTERM);
    let _left = n1.finish(LIMIT).ok();
    configure(world, "n1", &format!("[sync]\nmailbox = \"{place}\"\n"));
    let refused = world.run("n1", &["node"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(
        refused.stderr.contains("line 2") && refused.stderr.contains("KEY@HOST:PORT"),
        "{refused}"
    );
}

#[test]
fn a_removed_device_hears_so_by_the_mailbox_and_nothing_after_it() {
    let apart = Apart::with(3, &[]);
    let world = &apart.world;
    let _daemons = ["n1", "n2", "n3"].map(|node| daemon(world, node));
    let _ran = boxed(world, "n1", &["-q", "--name", "before"], FETCH).ok();
    apart.same("n1", "n3", "before");
    apart.same("n1", "n2", "before");
    let _removed = world.run("n1", &["device", "remove", "n3", "--json"]).ok();
    let role = |node: &str, of: &str| {
        let rows = world.run(node, &["device", "list", "--json"]).ok().json();
        let row = rows.into_iter().find(|row| row["name"] == of);
        row.map(|row| row["role"].clone())
    };
    for node in ["n2", "n3"] {
        let heard = wait_until(AGAIN, || role(node, "n3") == Some("removed".into()));
        assert!(heard, "{node} does not hear of it");
    }
    let _ran = boxed(world, "n1", &["-q", "--name", "after"], FETCH).ok();
    apart.same("n1", "n2", "after");
    let _ran = boxed(world, "n2", &["-q", "--name", "there"], FETCH).ok();
    apart.same("n2", "n1", "there");
    let seen = world.run("n3", &["ps", "--json"]).ok().stdout;
    assert!(seen.contains("before"), "the control: {seen}");
    assert!(!seen.contains("after") && !seen.contains("there"), "{seen}");
}

#[test]
fn a_device_without_a_mailbox_is_put_there_by_one_that_has_it() {
    let apart = Apart::with(3, &[]);
    let world = &apart.world;
    // n2 and n3 meet, n1 meets nobody; n3 knows of no mailbox.
    for node in ["n2", "n3"] {
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
        let _on = run(world.inet_command("ip").args(words)).ok();
    }
    let _no_v6 = run(world
        .node("n1")
        .unwrap()
        .root_command("sh")
        .args(["-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6"]));
    for (node, other) in [("n1", "n2"), ("n1", "n3"), ("n2", "n1"), ("n3", "n1")] {
        let there = world.node(other).unwrap().v4().to_string();
        let node = world.node(node).unwrap();
        let words = ["route", "add", "blackhole", &there];
        let _shut = run(node.root_command("ip").args(words)).ok();
    }
    configure(world, "n3", "");
    let _daemons = ["n1", "n2", "n3"].map(|node| daemon(world, node));
    let _ran = boxed(world, "n3", &["-q", "--name", "yard"], FETCH).ok();
    apart.same("n3", "n2", "yard");
    apart.same("n3", "n1", "yard");
    apart.never_met("n1");
}

#[test]
fn no_box_reaches_the_mailbox() {
    let apart = Apart::new();
    let world = &apart.world;
    let _n1 = daemon(world, "n1");
    apart.until("n1", |row| row["connected"] == true);
    let place = apart.address.split_once('@').unwrap().1;
    let (host, _) = place.split_once(':').unwrap();
    let script = format!(
        "python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
         s.sendto(b\"x\" * 1200, (\"{host}\", {PORT}))'; sleep 1"
    );
    let _ran = boxed(
        world,
        "n1",
        &["-q", "--name", "yard", "--reach", "local"],
        &script,
    );
    let rows = flows(world, "n1", "yard");
    let row = rows.iter().find(|row| row["dst_port"] == PORT);
    let row = row.unwrap_or_else(|| panic!("{rows:#?}"));
    assert_eq!(
        (&row["verdict"], &row["dst_class"]),
        (&"refuse".into(), &"node".into())
    );
}

#[test]
fn what_a_node_wrote_last_is_in_the_mailbox_when_it_ends_and_a_dead_one_holds_nothing_up() {
    let apart = Apart::new();
    let n1 = daemon(&apart.world, "n1");
    let _n2 = daemon(&apart.world, "n2");
    let yard = ["-q", "--name", "yard"];
    let running = attached(&apart.world, "n1", &yard, "sleep 600");
    hears_of(&apart.world, "n2", "yard");
    n1.signal(Signal::SIGTERM);
    let asked = Instant::now();
    let _left = n1.finish(LIMIT).ok();
    println!("ended, with its last mail put, in {:?}", asked.elapsed());
    drop(running);
    // Nobody starts it again.
    let ended = || {
        let boxes = apart.world.run("n2", &["ps", "--json"]).ok().json();
        boxes.iter().any(|row| row["end"].is_string())
    };
    assert!(wait_until(LIMIT, ended), "its end was not put");
    assert!(apart.world.pids("n1", "bailey").is_empty());
    // One that does not answer has its two seconds, and no more.
    let n1 = daemon(&apart.world, "n1");
    apart.until("n1", |row| row["connected"] == true);
    let running = attached(&apart.world, "n1", &["-q", "--name", "keep"], "sleep 600");
    let host = apart.host();
    let mailbox = apart.world.pids(&host, "bailey-mailbox");
    assert!(!mailbox.is_empty());
    apart.world.kill(&host, "STOP", &mailbox);
    n1.signal(Signal::SIGTERM);
    let asked = Instant::now();
    let left = n1.finish(LIMIT).ok();
    let took = asked.elapsed();
    println!("ended, with a mailbox that stands, in {took:?}");
    assert!(left.stderr.contains("is put at the next start"), "{left}");
    // With what its box and its goodbye take.
    assert!(took < Duration::from_secs(5), "{took:?}");
    apart.world.kill(&host, "CONT", &mailbox);
    drop(running);
    let _n1 = daemon(&apart.world, "n1");
    let ended = || {
        let boxes = apart.world.run("n2", &["ps", "--json"]).ok().json();
        boxes.iter().filter(|row| row["end"].is_string()).count() == 2
    };
    assert!(wait_until(AGAIN, ended), "it was lost");
}

#[test]
fn a_device_that_was_away_for_a_month_has_it_by_the_mailbox() {
    let apart = Apart::new();
    let idle = |world: &TestWorld, node: Running| {
        // What is put is put while it runs or as it ends.
        apart.until("n1", |row| row["connected"] == true);
        node.signal(Signal::SIGTERM);
        let _left = node.finish(LIMIT).ok();
        assert!(world.pids("n1", "bailey").is_empty());
    };
    let now = a_month(&apart.world, idle);
    let _nodes = ["n1", "n2"].map(|node| shifted(&apart.world, node, now, now));
    // What left the window there lay in the mailbox still: it stays for a window here.
    month_is_whole(&apart.world, true);
    apart.never_met("n2");
}

#[test]
fn a_mailbox_that_is_killed_in_the_middle_or_comes_back_empty_costs_nothing() {
    let mut apart = Apart::new();
    crate::away::fill(&apart.world, "n1", "20000");
    let _nodes = [daemon(&apart.world, "n1"), daemon(&apart.world, "n2")];
    for emptied in [false, true, false] {
        std::thread::sleep(Duration::from_millis(1500));
        apart.end(Signal::SIGKILL);
        if emptied {
            let _gone = apart.world.sh(&apart.host(), "rm -rf ~/mail/blobs").ok();
        }
        apart.start(&[]);
    }
    let entries = crate::away::hold_the_same(&apart.world);
    assert!(entries >= 20_000, "{entries}");
    let check = apart.world.run("n2", &["store", "check"]).ok();
    assert!(check.stdout.contains("all of it holds"), "{check}");
    apart.never_met("n2");
}
