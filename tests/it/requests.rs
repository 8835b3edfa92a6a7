//! Another device pauses a box, resumes it, and changes what it may dial.

use std::path::PathBuf;
use std::time::Duration;

use bailey_docs_store::{DocId, OsEntropy, Reader, Store, Urgency, load_or_create_device_keys};
use bailey_model::{Event, Receipt, Request, RequestKind, RequestOutcome, Timestamp};
use bailey_tests::{Output, Running, TestWorld, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{
    LIMIT, attached, daemon, flows, hears_of, is_clean, pair, row_of, stop, world,
};

/// A box that counts as fast as it can into a granted folder, with threads, children
/// and a child that had stopped itself before.
const COUNTER: &str = "
import os, threading, time, signal
def count(name):
    with open('count/' + name, 'ab', buffering=0) as file:
        while True:
            file.write(b'.')
            time.sleep(0.001)
if os.fork() == 0:
    count('child')
stopped = os.fork()
if stopped == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    count('stopped')
threading.Thread(target=count, args=('thread',)).start()
print('up', flush=True)
count('main')
";

const COUNTS: [&str; 3] = ["child", "thread", "main"];

fn counting(world: &TestWorld) -> Running {
    let _made = world.sh("n1", "mkdir -p count").ok();
    let words = [
        "run", "-q", "--name", "yard", "--grant", "count:rw", "--here", "--", "python3", "-I",
        "-S", "-c", COUNTER,
    ];
    let running = world.start("n1", &words);
    running.wait_line(LIMIT, |line| line == "up");
    assert!(wait_until(LIMIT, || counts(world)
        .iter()
        .all(|count| *count > 0)));
    running
}

/// How far each has counted.
fn counts(world: &TestWorld) -> [u64; 3] {
    COUNTS.map(|name| {
        let size = world.sh(
            "n1",
            &format!("stat -c %s count/{name} 2>/dev/null || echo 0"),
        );
        size.ok().stdout.trim().parse().unwrap()
    })
}

/// Whether none of it counts on for a while in which all of it would.
fn stands(world: &TestWorld) -> bool {
    let before = counts(world);
    std::thread::sleep(Duration::from_millis(300));
    counts(world) == before
}

fn goes_on(world: &TestWorld) -> bool {
    let before = counts(world);
    wait_until(LIMIT, || {
        let now = counts(world);
        now.iter().zip(before).all(|(now, before)| *now > before)
    })
}

fn row(output: Output) -> Value {
    output.json().pop().unwrap()
}

fn in_ps(world: &TestWorld, node: &str, name: &str) -> Value {
    let rows = world.run(node, &["ps", "--json"]).ok().json();
    let found = rows.into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{node} does not list {name}"))
}

fn of_kind(world: &TestWorld, node: &str, kind: &str) -> Vec<Value> {
    let mut rows = flows(world, node, "yard");
    rows.retain(|row| row["kind"] == kind);
    rows
}

pub(crate) fn state(world: &TestWorld, node: &str) -> PathBuf {
    world.node(node).unwrap().dir().join("state/bailey")
}

/// Ends a node; what it has is at rest then.
pub(crate) fn rest(world: &TestWorld, daemon: Running, node: &str) {
    daemon.signal(Signal::SIGTERM);
    let _left = daemon.finish(LIMIT);
    assert!(wait_until(LIMIT, || world.pids(node, "bailey").is_empty()));
}

fn kill(world: &TestWorld, daemon: Running, node: &str) {
    world.kill(node, "KILL", &world.pids(node, "bailey"));
    let _killed = daemon.finish(LIMIT);
    assert!(wait_until(LIMIT, || world.pids(node, "bailey").is_empty()));
}

/// A copy of a store that is at rest, which only this test may open.
pub(crate) fn copy(
    world: &TestWorld,
    node: &str,
    name: &str,
) -> (PathBuf, bailey_docs_store::DeviceKeys) {
    let (from, to) = (state(world, node), world.dir().join(name));
    std::fs::create_dir(&to).unwrap();
    for file in ["store.db", "store.db-wal", "device.key"] {
        if from.join(file).exists() {
            std::fs::copy(from.join(file), to.join(file)).unwrap();
        }
    }
    let keys = load_or_create_device_keys(&to.join("device.key"), None, &mut OsEntropy).unwrap();
    (to, keys)
}

/// Every request and receipt that a device at rest has.
fn asked(world: &TestWorld, node: &str, name: &str) -> (Vec<Request>, Vec<Receipt>) {
    let (folder, keys) = copy(world, node, name);
    let mut reader = Reader::open(&folder, keys).unwrap();
    let (mut requests, mut receipts) = (Vec::new(), Vec::new());
    for (_, entry) in reader.entries(DocId::Requests, None).unwrap() {
        match entry.event {
            Event::Request(request) => requests.push(request),
            Event::Receipt(receipt) => receipts.push(receipt),
            other => panic!("{other:?}"),
        }
    }
    (requests, receipts)
}

/// Writes into a device's store that is at rest, as if it had itself.
pub(crate) fn write_there(
    world: &TestWorld,
    node: &str,
    write: impl FnOnce(&mut Store, Timestamp),
) {
    let (folder, keys) = copy(world, node, &format!("written {node}"));
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let now = Timestamp(u64::try_from(since.as_millis()).unwrap());
    let mut store = Store::open(&folder, keys, now, Box::new(OsEntropy)).unwrap();
    write(&mut store, now);
    store.commit(true).unwrap();
    store.seal_all(now).unwrap();
    store.commit(true).unwrap();
    drop(store);
    let to = state(world, node);
    let _clear = world.sh(node, &format!("rm -f {}/store.db-*", to.display()));
    // Into the file that is there: it stays that user's own.
    for file in ["store.db", "store.db-wal"] {
        if folder.join(file).exists() {
            let bytes = std::fs::read(folder.join(file)).unwrap();
            let made = format!("touch {0}/{file} && chmod 600 {0}/{file}", to.display());
            let _made = world.sh(node, &made).ok();
            std::fs::write(to.join(file), bytes).unwrap();
        }
    }
}

#[test]
fn a_box_that_another_device_pauses_makes_no_progress_and_goes_on_when_it_is_resumed() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let running = counting(&world);
    hears_of(&world, "n2", "yard");
    let paused = row(world.run("n2", &["pause", "yard@n1", "--json"]).ok());
    assert_eq!(paused["state"], "paused", "{paused}");
    // Pid 1, the command, its two children.
    assert_eq!(paused["processes"], 4, "{paused}");
    assert!(paused["took_ms"].as_u64().unwrap() < 2000, "{paused}");
    assert!(stands(&world), "a paused box makes progress");
    for node in ["n1", "n2"] {
        assert!(wait_until(LIMIT, || in_ps(&world, node, "yard")["state"] == "paused"));
    }
    // No further command begins in it, and what its terminal says wakes nothing.
    let refused = world.run("n1", &["exec", "yard", "--", "true"]);
    assert_eq!(refused.code, Some(125), "{refused}");
    assert!(refused.stderr.contains("bailey resume yard"), "{refused}");
    running.signal(Signal::SIGCONT);
    assert!(stands(&world), "a signal of its terminal woke it");
    // A second one changes nothing.
    let again = row(world.run("n2", &["pause", "yard@n1", "--json"]).ok());
    assert_eq!(
        (&again["state"], &again["processes"]),
        (&"paused".into(), &4.into())
    );
    assert_eq!(of_kind(&world, "n1", "paused").len(), 1);

    let resumed = row(world.run("n2", &["resume", "yard@n1", "--json"]).ok());
    assert_eq!(
        (&resumed["state"], &resumed["processes"]),
        (&"resumed".into(), &4.into())
    );
    assert!(goes_on(&world), "it does not go on");
    // What the box had stopped itself is stopped still.
    assert_ne!(world.sh("n1", "test -s count/stopped").code, Some(0));
    assert_eq!(in_ps(&world, "n1", "yard")["state"], "running");
    for kind in ["paused", "resumed"] {
        let rows = of_kind(&world, "n1", kind);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let reason = rows[0]["reason"].as_str().unwrap();
        assert!(reason.contains("by device"), "{reason}");
    }
    assert!(wait_until(LIMIT, || flows(&world, "n2", "yard")
        == flows(&world, "n1", "yard")));
}

#[test]
fn a_box_is_paused_and_resumed_at_its_own_node_and_stops_while_it_is_paused() {
    let (world, _daemons) = world(1);
    let running = counting(&world);
    let nothing = world.run("n1", &["resume", "yard"]);
    assert_eq!(nothing.code, Some(1), "{nothing}");
    assert!(nothing.stderr.contains("it is not paused"), "{nothing}");
    let paused = world.run("n1", &["pause", "yard"]).ok();
    assert!(paused.stdout.contains("paused · processes 4"), "{paused}");
    assert!(stands(&world));
    let resumed = world.run("n1", &["resume", "yard"]).ok();
    assert!(
        resumed.stdout.contains("goes on · processes 4"),
        "{resumed}"
    );
    assert!(goes_on(&world));
    let _paused = world.run("n1", &["pause", "yard"]).ok();
    assert!(stands(&world));
    let stopped = stop(&world, "n1", "yard");
    assert_eq!(stopped["processes_ended"], 4, "{stopped}");
    assert_eq!(running.finish(LIMIT).code, Some(121));
    assert!(wait_until(LIMIT, || {
        is_clean(&world, "n1") && world.pids("n1", "python3").is_empty()
    }));
    let over = world.run("n1", &["pause", "yard"]);
    assert_eq!(over.code, Some(1), "{over}");
    assert!(over.stdout.contains("was over already"), "{over}");
}

#[test]
fn a_box_that_forks_and_wakes_its_own_as_fast_as_it_can_stands_all_the_same() {
    let (world, _daemons) = world(1);
    let script = "
import os, signal, time
def fork_on():
    while True:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
def wake():
    while True:
        for pid in range(1, 40):
            try: os.kill(pid, signal.SIGCONT)
            except OSError: pass
for work in [fork_on, fork_on, wake, wake]:
    if os.fork() == 0:
        work()
print('up', flush=True)
while True:
    with open('/tmp/beat', 'w') as file: file.write(str(time.monotonic()))
";
    let words = [
        "run", "-q", "--name", "yard", "--", "python3", "-I", "-S", "-c", script,
    ];
    let running = world.start("n1", &words);
    running.wait_line(LIMIT, |line| line == "up");
    for _ in 0..5 {
        let paused = row(world.run("n1", &["pause", "yard", "--json"]).ok());
        assert_eq!(paused["state"], "paused", "{paused}");
        // By the machine's own account: nothing of it used any time.
        let used = || {
            let script =
                "for pid in $(pgrep -x python3); do cut -d' ' -f1,3,14,15 /proc/$pid/stat; done";
            world.sh("n1", script).ok().stdout
        };
        let before = used();
        assert!(before.lines().count() >= 5, "{before}");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(used(), before);
        let _resumed = world.run("n1", &["resume", "yard"]).ok();
    }
    stop(&world, "n1", "yard");
    assert_eq!(running.finish(LIMIT).code, Some(121));
}

#[test]
fn nobody_comes_into_a_paused_box_and_who_was_there_is_served_when_it_goes_on() {
    let (world, _daemons) = world(1);
    let server = "
import socket
server = socket.create_server(('0.0.0.0', 8000))
print('up', flush=True)
while True:
    client, _ = server.accept()
    while client.recv(16):
        client.sendall(b'here')
";
    let words = [
        "run",
        "-q",
        "--name",
        "yard",
        "--publish",
        "8080:8000",
        "--",
        "python3",
        "-c",
        server,
    ];
    let running = world.start("n1", &words);
    running.wait_line(LIMIT, |line| line == "up");
    let client = "
import socket, sys, time
first = socket.create_connection(('127.0.0.1', 8080)); first.sendall(b'1'); assert first.recv(4) == b'here'
print('served', flush=True); sys.stdin.readline()
begun = time.monotonic()
try:
    second = socket.create_connection(('127.0.0.1', 8080)); second.settimeout(5); got = second.recv(1)
    print('refused' if got == b'' else 'came in', flush=True)
except ConnectionError: print('refused', flush=True)
assert time.monotonic() - begun < 1
first.settimeout(0.5); first.sendall(b'2')
try: first.recv(4); print('it runs', flush=True)
except TimeoutError: print('waits', flush=True)
sys.stdin.readline()
first.settimeout(5); assert first.recv(4) == b'here'
third = socket.create_connection(('127.0.0.1', 8080))
first.close(); third.sendall(b'3'); assert third.recv(4) == b'here'
print('served again', flush=True)
";
    let mut client = Running::start(world.command("n1", "python3").args(["-c", client]));
    client.wait_line(LIMIT, |line| line == "served");
    let _paused = world.run("n1", &["pause", "yard"]).ok();
    let mut stdin = client.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"\n").unwrap();
    client.wait_line(LIMIT, |line| line == "refused");
    client.wait_line(LIMIT, |line| line == "waits");
    let _resumed = world.run("n1", &["resume", "yard"]).ok();
    std::io::Write::write_all(&mut stdin, b"\n").unwrap();
    client.wait_line(LIMIT, |line| line == "served again");
    let rows = flows(&world, "n1", "yard");
    let refused: Vec<&Value> = rows
        .iter()
        .filter(|row| row["reason"] == "box paused")
        .collect();
    assert_eq!(refused.len(), 1, "{rows:#?}");
    assert_eq!(refused[0]["direction"], "in");
}

/// Dials, says so, and says how that ends.
const HOLDER: &str = "
import socket
far = socket.create_connection(('shop.example', 80), 5); far.settimeout(None)
print('connected', flush=True)
try: far.recv(1)
except OSError as error: print('ended', error.errno, flush=True)
";

#[test]
fn another_device_grants_and_takes_back_and_hears_what_was_reset() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let words = ["-q", "--name", "yard", "--reach", "nothing"];
    let _running = attached(&world, "n1", &words, "sleep 600");
    hears_of(&world, "n2", "yard");
    let dial = "curl -sS -m 5 -o /dev/null http://shop.example/";
    let dialled = |code: i32| {
        let dialled = world.run("n1", &["exec", "yard", "--", "sh", "-c", dial]);
        assert_eq!(dialled.code == Some(0), code == 0, "{dialled}");
    };
    dialled(1);
    let allowed = row(world
        .run("n2", &["allow", "yard@n1", "shop.example", "--json"])
        .ok());
    assert_eq!(
        (
            &allowed["state"],
            &allowed["reach"],
            &allowed["flows_reset"]
        ),
        (&"done".into(), &"shop.example".into(), &0.into())
    );
    dialled(0);
    let holder = world.start("n1", &["exec", "yard", "--", "python3", "-c", HOLDER]);
    holder.wait_line(LIMIT, |line| line == "connected");
    let denied = row(world
        .run("n2", &["deny", "yard@n1", "shop.example", "--json"])
        .ok());
    assert_eq!(
        (&denied["reach"], &denied["flows_reset"]),
        (&"nothing".into(), &1.into())
    );
    holder.wait_line(LIMIT, |line| line.starts_with("ended"));
    dialled(1);
    let changes = of_kind(&world, "n1", "reach");
    assert_eq!(changes.len(), 2, "{changes:?}");
    for change in &changes {
        assert!(
            change["reason"].as_str().unwrap().contains("by device"),
            "{change}"
        );
    }
    // What can be no reach is refused where it was asked, what cannot be done there.
    let odd = world.run("n2", &["allow", "yard@n1", "a..b"]);
    assert_eq!(odd.code, Some(2), "{odd}");
    let none = world.run("n2", &["allow", "yard@n3", "a.b"]);
    assert_eq!(none.code, Some(2), "{none}");
}

#[test]
fn a_late_allow_does_not_undo_a_newer_deny() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let words = ["-q", "--name", "yard", "--reach", "printer.example"];
    let _running = attached(&world, "n1", &words, "sleep 600");
    hears_of(&world, "n2", "yard");
    world.link_down("n1").unwrap();
    let words = ["allow", "yard@n1", "shop.example", "--json", "--wait", "90"];
    let late = world.start("n2", &words);
    assert!(wait_until(LIMIT, || {
        in_ps(&world, "n2", "yard")["asked"][0]["what"] == "allow"
    }));
    assert_eq!(
        in_ps(&world, "n2", "yard")["asked"][0]["state"],
        "not delivered yet"
    );
    // A person at the node says no to it, though it was not granted.
    let denied = world.run("n1", &["deny", "yard", "shop.example"]);
    assert!(
        denied.stderr.contains("no term of the reach grants it"),
        "{denied}"
    );
    world.link_up("n1").unwrap();
    let late = late.finish(Duration::from_secs(90));
    assert_eq!(late.code, Some(1), "{late}");
    assert_eq!(row(late)["state"], "changed");
    assert_eq!(in_ps(&world, "n1", "yard")["reach"], "printer.example");
    assert!(wait_until(LIMIT, || in_ps(&world, "n2", "yard")["asked"]
        == Value::Array(vec![])));
    // One that rests on how it is now is done.
    let mut done = None;
    assert!(wait_until(LIMIT, || {
        let again = world.run("n2", &["allow", "yard@n1", "shop.example", "--json"]);
        done = again.json().pop();
        again.code == Some(0)
    }));
    assert_eq!(done.unwrap()["reach"], "printer.example,shop.example");
}

#[test]
fn a_request_is_delivered_later_and_entered_once_whoever_was_killed_meanwhile() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    let _running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    world.link_down("n1").unwrap();
    let asked_for = world.run("n2", &["pause", "yard@n1", "--json", "--wait", "1"]);
    assert_eq!(asked_for.code, Some(1), "{asked_for}");
    assert_eq!(row(asked_for)["state"], "not delivered yet");
    kill(&world, daemons.pop().unwrap(), "n2");
    daemons.push(daemon(&world, "n2"));
    assert_eq!(in_ps(&world, "n2", "yard")["asked"][0]["what"], "pause");
    world.link_up("n1").unwrap();
    let long = Duration::from_secs(60);
    let paused = |node: &str| in_ps(&world, node, "yard")["state"] == "paused";
    assert!(wait_until(long, || paused("n1") && paused("n2")));
    kill(&world, daemons.pop().unwrap(), "n2");
    daemons.push(daemon(&world, "n2"));
    assert!(wait_until(long, || paused("n2")));
    assert!(wait_until(LIMIT, || {
        in_ps(&world, "n2", "yard")["asked"] == Value::Array(vec![])
    }));
    assert_eq!(of_kind(&world, "n1", "paused").len(), 1);
    // The box goes with its node; nothing is done to another one.
    kill(&world, daemons.remove(0), "n1");
    daemons.insert(0, daemon(&world, "n1"));
    let again = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(in_ps(&world, "n1", "yard")["state"], "running");
    stop(&world, "n1", "yard");
    drop(again);
    rest(&world, daemons.remove(0), "n1");
    let (requests, receipts) = asked(&world, "n1", "at rest");
    assert_eq!((requests.len(), receipts.len()), (1, 1), "{receipts:?}");
    assert!(
        matches!(receipts[0].outcome, RequestOutcome::Paused { .. }),
        "{receipts:?}"
    );
}

#[test]
fn what_comes_too_late_or_twice_or_rests_on_nothing_does_nothing() {
    let (world, mut daemons) = world(2);
    pair(&world, "n1", "n2");
    let _running = attached(&world, "n1", &["-q", "--name", "yard"], "sleep 600");
    hears_of(&world, "n2", "yard");
    for verb in ["pause", "resume", "pause"] {
        let _done = world.run("n2", &[verb, "yard@n1", "--json"]).ok();
    }
    assert!(wait_until(LIMIT, || in_ps(&world, "n2", "yard")["state"] == "paused"));
    rest(&world, daemons.pop().unwrap(), "n2");
    let (requests, _) = asked(&world, "n2", "before");
    let resumed = requests
        .iter()
        .find(|it| it.kind == RequestKind::Resume)
        .unwrap();
    let made = |id: u8, change: &dyn Fn(&mut Request)| {
        let mut made = resumed.clone();
        made.id.0 = [id; 16];
        change(&mut made);
        made
    };
    let with = |request: &mut Request, until: Option<u64>, seq: u64| {
        let basis = request.basis.as_mut().unwrap();
        (basis.until, basis.seq) = (until.map(Timestamp), seq);
    };
    let until = resumed.basis.as_ref().unwrap().until.unwrap().0;
    let forged = vec![
        // The same one once more.
        resumed.clone(),
        made(1, &|it| with(it, Some(until - 20 * 60 * 1000), 10)),
        made(2, &|it| with(it, Some(until + 60 * 60 * 1000), 11)),
        made(3, &|it| with(it, None, 12)),
        // In time, by a state that was.
        made(4, &|it| with(it, Some(until), 13)),
        // By none that ever was, and older than what was done.
        made(5, &|it| with(it, Some(until), 1)),
    ];
    write_there(&world, "n2", |store, now| {
        for request in forged {
            let event = Event::Request(request);
            store
                .append(DocId::Requests, event, now, Urgency::Urgent)
                .unwrap();
        }
    });
    daemons.push(daemon(&world, "n2"));
    let log = || daemons[1].stderr();
    let done = wait_until(LIMIT, || {
        in_ps(&world, "n2", "yard")["asked"] == Value::Array(vec![])
    });
    assert!(done, "{}", log());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(in_ps(&world, "n1", "yard")["state"], "paused");
    assert_eq!(of_kind(&world, "n1", "resumed").len(), 1);
    rest(&world, daemons.pop().unwrap(), "n2");
    let (_, receipts) = asked(&world, "n2", "after");
    let of = |id: u8| {
        let mut found = receipts.iter().filter(|it| it.request.0 == [id; 16]);
        let outcome = found.next().map(|it| it.outcome.clone());
        assert!(found.next().is_none(), "{receipts:?}");
        outcome.unwrap_or_else(|| panic!("{id}: {receipts:?}"))
    };
    assert_eq!(receipts.len(), 3 + 5, "{receipts:?}");
    assert_eq!(of(1), RequestOutcome::Expired);
    assert!(matches!(of(2), RequestOutcome::Denied(_)));
    assert!(matches!(of(3), RequestOutcome::Denied(_)));
    assert!(matches!(of(4), RequestOutcome::Changed(_)));
    assert!(matches!(of(5), RequestOutcome::Changed(_)));
}

#[test]
fn each_role_may_ask_what_it_may_and_no_more() {
    let (world, _daemons) = world(2);
    pair(&world, "n1", "n2");
    let words = ["-q", "--name", "yard", "--reach", "nothing"];
    let _running = attached(&world, "n1", &words, "sleep 600");
    hears_of(&world, "n2", "yard");
    let verbs: [&[&str]; 4] = [
        &["pause", "yard@n1", "--json"],
        &["resume", "yard@n1", "--json"],
        &["allow", "yard@n1", "shop.example", "--json"],
        &["deny", "yard@n1", "shop.example", "--json"],
    ];
    let states = || verbs.map(|words| row(world.run("n2", words))["state"].clone());
    let lower = |role: &str| {
        let _lowered = world
            .run("n1", &["device", "role", "n2", role, "--json"])
            .ok();
        assert!(wait_until(LIMIT, || {
            let rows = world.run("n2", &["device", "list", "--json"]).ok().json();
            rows.iter()
                .any(|row| row["this"] == true && row["role"] == role)
        }));
    };
    lower("watch");
    assert_eq!(states(), ["denied"; 4]);
    assert_eq!(in_ps(&world, "n1", "yard")["state"], "running");
    lower("stop");
    assert_eq!(states(), ["paused", "denied", "denied", "denied"]);
    assert_eq!(in_ps(&world, "n1", "yard")["state"], "paused");
    assert_eq!(in_ps(&world, "n1", "yard")["reach"], "nothing");
    let add = world.start("n1", &["resume", "yard", "--json"]);
    assert_eq!(
        row_of(&add, |row| row["state"].is_string())["state"],
        "resumed"
    );
    // By no role: what another device may ask for at all is five things.
    let exec = world.run("n2", &["exec", "yard@n1", "--", "true"]);
    assert_eq!(exec.code, Some(2), "{exec}");
}
