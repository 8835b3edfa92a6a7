//! A box that asks for more than there is, and slow ends: what it costs others,
//! and how soon it is over.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld, wait_until};
use bailey_world::at;

use crate::common::{LIMIT, boxed, flows, world};

/// Dials nowhere two hundred times, then somewhere, then lets go of all.
const DIALS: &str = r#"
import socket, sys, time
dead, live = sys.argv[1:3]
held = []
for port in range(200):
    s = socket.socket(); s.setblocking(False); s.connect_ex((dead, 1000 + port)); held.append(s)
time.sleep(0.3)
took = []
for _ in range(5):
    begun = time.monotonic()
    with socket.create_connection((live, 7), 5) as s:
        took.append(time.monotonic() - begun); s.sendall(b'x'); assert s.recv(1) == b'x'
print('took', int(max(took) * 1000), flush=True)
time.sleep(2)
for s in held: s.close()
print('closed', flush=True)
time.sleep(6)
"#;

/// Serves once on the loopback: takes or gives 40 MB, three seconds late if so.
const SERVER: &str = r#"
import hashlib, socket, sys, time
port, what = int(sys.argv[1]), sys.argv[2]
server = socket.create_server(('127.0.0.1', port))
print('listening', flush=True)
c, _ = server.accept()
print('met', flush=True)
block = bytes(range(251)) * 4000
if what == 'takes':
    time.sleep(3); print('wakes', flush=True)
    digest, count = hashlib.sha256(), 0
    while part := c.recv(1 << 16): digest.update(part); count += len(part)
    print('got', count, digest.hexdigest(), flush=True)
else:
    for _ in range(40): c.sendall(block)
    c.close()
"#;

/// The box's side of the same.
const PEER: &str = r#"
import hashlib, socket, sys, time
c = socket.create_connection(('host.bailey', int(sys.argv[1])), 5); c.settimeout(None)
block = bytes(range(251)) * 4000
if sys.argv[2] == 'takes':
    for _ in range(40): c.sendall(block)
    c.close()
else:
    time.sleep(3); begun = time.monotonic()
    digest, count = hashlib.sha256(), 0
    while part := c.recv(1 << 16): digest.update(part); count += len(part)
    print('got', count, digest.hexdigest(), int((time.monotonic() - begun) * 1000), flush=True)
"#;

/// As many datagrams, each from a port of its own, as a box likes.
const QUERIES: &str = r#"
import socket, sys
answered = 0
for n in range(5000):
    s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(2)
    s.connect((sys.argv[1], 7)); s.send(n.to_bytes(4))
    try: answered += s.recv(9) == n.to_bytes(4)
    except OSError: pass
    s.close()
print('answered', answered)
"#;

/// The 40 MB, hashed.
fn digest() -> String {
    use sha2::{Digest as _, Sha256};
    let block: Vec<u8> = (0..=250_u8).collect::<Vec<u8>>().repeat(4000);
    let mut digest = Sha256::new();
    (0..40).for_each(|_| digest.update(&block));
    bailey_tests::fuzz::hex(&digest.finalize())
}

/// How many of the node's sockets `ss` lists.
fn sockets(world: &TestWorld, which: &str) -> usize {
    let listed = world.sh("n1", &format!("ss -Hn {which} | wc -l")).ok();
    listed.stdout.trim().parse().unwrap()
}

/// Processor time of the node's gates so far.
fn gate_time(world: &TestWorld) -> Duration {
    let processes = world.node("n1").unwrap().processes().unwrap();
    let is_gate = |word: &String| word.rsplit('/').next() == Some("bailey-gate");
    let gates = processes
        .iter()
        .filter(|p| p.command.first().is_some_and(is_gate));
    let ticks = gates.map(|gate| {
        let stat = world
            .sh("n1", &format!("cat /proc/{}/stat", gate.pid))
            .ok()
            .stdout;
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let field = |at: usize| {
            rest.split_whitespace()
                .nth(at)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        field(11) + field(12)
    });
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn python(world: &TestWorld, words: &[&str], program: &[&str]) -> Running {
    let all = [&["run", "-q"], words, &["--", "python3", "-c"], program].concat();
    world.start("n1", &all)
}

#[test]
fn dials_into_nowhere_delay_no_live_one_and_are_let_go_with_the_box() {
    let (world, _daemons) = world(1);
    let (dead, live) = (at::BLACKHOLE_V4.to_string(), at::WEB_V4.to_string());
    let running = python(&world, &["--name", "crowd"], &[DIALS, &dead, &live]);
    let took = running.wait_line(LIMIT, |line| line.starts_with("took "));
    let took: u64 = took.trim_start_matches("took ").parse().unwrap();
    assert!(took < 50, "a live dial takes {took} ms beside dead ones");
    assert_eq!(sockets(&world, "-t state syn-sent"), 200);
    running.wait_line(LIMIT, |line| line == "closed");
    // A kernel does not say that a program let go: its SYN would have come again
    // after at most two seconds more.
    let closed = Instant::now();
    let gone = wait_until(LIMIT, || sockets(&world, "-t state syn-sent") == 0);
    assert!(
        gone && closed.elapsed() < Duration::from_secs(4),
        "{:?}",
        closed.elapsed()
    );
    running.finish(LIMIT).ok();
    let rows = flows(&world, "n1", "crowd");
    let given_up = rows
        .iter()
        .filter(|row| row["end"] == "reset by box")
        .count();
    assert_eq!(given_up, 200, "each dial has its end");
}

#[test]
fn a_reader_that_sleeps_gets_every_byte_and_costs_the_gate_nothing() {
    let (world, _daemons) = world(1);
    let (port, wanted) = ("5432", digest());
    for what in ["takes", "gives"] {
        let mut command = world.command("n1", "/usr/bin/python3");
        let server = Running::start(command.args(["-c", SERVER, port, what]));
        server.wait_line(LIMIT, |line| line == "listening");
        let peer = python(&world, &["--reach", "lo:5432"], &[PEER, port, what]);
        server.wait_line(LIMIT, |line| line == "met");
        std::thread::sleep(Duration::from_secs(1));
        let before = gate_time(&world);
        std::thread::sleep(Duration::from_millis(1200));
        let spent = gate_time(&world) - before;
        assert!(
            spent <= Duration::from_millis(50),
            "{what}: {spent:?} while nobody reads"
        );
        let reader = if what == "takes" { &server } else { &peer };
        let got = reader.wait_line(LIMIT, |line| line.starts_with("got "));
        assert!(
            got.starts_with(&format!("got 40160000 {wanted}")),
            "{what}: {got}"
        );
        peer.finish(LIMIT).ok();
        server.finish(LIMIT).ok();
    }
}

#[test]
fn thousands_of_datagram_ports_leave_the_node_its_own() {
    let (world, _daemons) = world(1);
    let live = at::WEB_V4.to_string();
    let running = python(&world, &["--name", "ports"], &[QUERIES, &live]);
    let mut most = 0;
    let done = wait_until(Duration::from_secs(60), || {
        most = most.max(sockets(&world, "-ua"));
        running.stdout().contains("answered ")
    });
    assert!(done, "{}", running.stderr());
    assert_eq!(running.finish(LIMIT).ok().stdout, "answered 5000\n");
    assert!(
        (500..=1100).contains(&most),
        "{most} sockets of the node at once"
    );
    // And the next box has its names.
    let page = boxed(
        &world,
        "n1",
        &[],
        "curl -sS -m 5 -o /dev/null -w '%{http_code}' http://shop.example/",
    );
    assert_eq!(page.ok().stdout, "200");
}

#[test]
fn an_address_of_two_that_is_dead_is_left_as_soon_as_outside() {
    let (world, _daemons) = world(1);
    if !world.has_ipv6() {
        return;
    }
    let script =
        "curl -sS -m 9 -o /dev/null -w '%{remote_ip} %{time_connect}' http://dual.example/";
    let dead_and_live = [
        (at::BLACKHOLE_V6.to_string(), at::WEB_V4.to_string()),
        (at::BLACKHOLE_V4.to_string(), at::WEB_V6.to_string()),
    ];
    let mut slowest = 0.0_f64;
    for (dead, live) in &dead_and_live {
        world.set_name("dual.example", &[dead, live]).unwrap();
        for place in ["outside", "inside"] {
            let ran = match place {
                "outside" => world.sh("n1", script),
                _ => boxed(&world, "n1", &[], script),
            };
            let said = ran.ok().stdout;
            let (ip, took) = said.trim().split_once(' ').unwrap();
            let took: f64 = took.parse().unwrap();
            assert_eq!(ip, live, "{place}");
            // curl gives the first one 200 ms.
            assert!(took < 0.6, "{place}: {took} s to {live}");
            if place == "inside" {
                slowest = slowest.max(took);
            }
        }
    }
    // Of one of them the dead address was the first, which is not refused.
    assert!(slowest > 0.15, "{slowest} s");
}
