//! Many flows: where descriptors run out the next one is refused and nothing
//! else, and flows that are over leave nothing.

use bailey_tests::{Running, TestWorld, binaries, eventually};
use bailey_world::at;

use crate::common::{LIMIT, flows, up};

/// Descriptors of the node and of whatever it starts.
const FILES: u32 = 1024;

/// Opens connections from several processes, each with descriptors enough, until
/// one cannot be opened; then ends some, and tries again.
const MANY: &str = r#"
import os, socket, sys, time
host, port = sys.argv[1], 7
pipes, opened = [], 0
for worker in range(4):
    down, up = os.pipe(), os.pipe()
    if os.fork() == 0:
        held, reply = [], lambda *words: os.write(up[1], (' '.join(map(str, words)) + '\n').encode())
        for line in os.fdopen(down[0]):
            why, took = 'none', 0
            if line == 'open\n':
                for _ in range(250):
                    start = time.monotonic()
                    try: held.append(socket.create_connection((host, port), 5))
                    except OSError as error:
                        why, took = type(error).__name__, time.monotonic() - start; break
                reply(len(held), why, took < 1)
            elif line == 'use\n':
                for s in held: s.sendall(b'x')
                reply(sum(s.recv(1) == b'x' for s in held))
            else:
                for s in held: s.close()
                held = []; reply(0)
        os._exit(0)
    pipes.append((os.fdopen(down[1], 'w', 1), os.fdopen(up[0])))
def ask(worker, word):
    print(word, file=pipes[worker][0]); return pipes[worker][1].readline().split()
for worker in range(4): print('open', *ask(worker, 'open'))
for worker in range(4): print('use', *ask(worker, 'use'))
print('name', socket.gethostbyname('shop.example'))
ask(0, 'close'); time.sleep(.5)
print('open', *ask(0, 'open'))
"#;

/// Connections of one byte each, one after the other in each of some threads.
const SHORT: &str = r#"
import socket, sys, threading
host, number = sys.argv[1], int(sys.argv[2])
failed = []
def some():
    for _ in range(number // 8):
        try:
            with socket.create_connection((host, 7), 5) as s:
                s.sendall(b'x'); assert s.recv(1) == b'x'
        except OSError as error: failed.append(type(error).__name__)
all = [threading.Thread(target=some) for _ in range(8)]
for thread in all: thread.start()
for thread in all: thread.join()
print('failed', len(failed), *failed[:3], flush=True)
sys.stdin.readline()
"#;

/// A node that may have few files open, it and all that it starts.
fn small_node(world: &TestWorld) -> Running {
    let script = format!(
        "ulimit -n {FILES}; exec {} node --device-name n1",
        binaries().join("bailey").display()
    );
    let node = Running::start(world.command("n1", "sh").args(["-c", &script]));
    up(world, "n1", node)
}

#[test]
fn where_descriptors_run_out_the_next_flow_is_refused_and_the_rest_goes_on() {
    let world = TestWorld::new(1);
    let _node = small_node(&world);
    let host = at::WEB_V4.to_string();
    let words = ["run", "-q", "--name", "many", "--reach", "internet", "--"];
    let program = ["python3", "-c", MANY, &host];
    let said = world
        .run("n1", &[&words[..], &program].concat())
        .ok()
        .stdout;
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    let opened = |line: &[&str]| line[1].parse::<u32>().unwrap();
    // The control: the first ones had all that they asked for.
    assert_eq!(lines[0], ["open", "250", "none", "True"], "{said}");
    // Refused, at once, and not for want of a descriptor in the box.
    assert_eq!(lines[3][2..], ["ConnectionRefusedError", "True"], "{said}");
    let total: u32 = lines[..4].iter().map(|line| opened(line)).sum();
    assert!((FILES / 2..FILES).contains(&total), "{said}");
    let used: u32 = lines[4..8].iter().map(|line| opened(line)).sum();
    assert_eq!(used, total, "what was open goes on: {said}");
    assert_eq!(lines[8], ["name", &host], "{said}");
    assert_eq!(lines[9], ["open", "250", "none", "True"], "{said}");
    let refused = flows(&world, "n1", "many")
        .into_iter()
        .find(|row| row["verdict"] == "refuse")
        .unwrap();
    assert_eq!(refused["reason"], "limit", "{refused}");
}

/// MiB of what is a process's own, and its descriptors.
fn holds(world: &TestWorld, pid: u32) -> [f64; 2] {
    let script = format!("grep ^Pss: /proc/{pid}/smaps_rollup && ls /proc/{pid}/fd | wc -l");
    let mut command = world.node("n1").unwrap().root_command("sh");
    let said = bailey_tests::run(command.args(["-c", &script])).ok().stdout;
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    let (kib, files): (f64, f64) = (numbers.next().unwrap(), numbers.next().unwrap());
    [kib / 1024.0, files]
}

#[test]
fn flows_that_are_over_leave_no_memory_and_no_descriptor() {
    let world = TestWorld::new(1);
    let _node = small_node(&world);
    let host = at::WEB_V4.to_string();
    let short = |name: &str, count: &str| {
        let words = ["run", "-q", "--name", name, "--reach", "internet", "--"];
        let program = ["python3", "-c", SHORT, &host, count];
        let before = world.pids("n1", "bailey-gate");
        let running = world.start("n1", &[&words[..], &program].concat());
        let gate = eventually(LIMIT, || {
            let gates = world.pids("n1", "bailey-gate");
            gates.into_iter().find(|pid| !before.contains(pid))
        });
        let said = running.wait_line(LIMIT * 2, |line| line.starts_with("failed"));
        assert_eq!(said, "failed 0");
        std::thread::sleep(std::time::Duration::from_millis(300));
        (running, gate.unwrap())
    };
    let (_few_runs, few) = short("few", "400");
    let (_many_runs, many) = short("many", "6000");
    let ([few_mib, few_files], [many_mib, many_files]) = (holds(&world, few), holds(&world, many));
    assert!(many_mib - few_mib < 8.0, "{few_mib} MiB became {many_mib}");
    assert_eq!(few_files, many_files);
}

/// Sends and takes back bytes over a connection whose segments are short, and over
/// one whose segments are as long as the link lets them be.
const SEGMENTS: &str = r#"
import hashlib, os, socket, sys, threading
data = os.urandom(4 << 20)
for family, host in ((socket.AF_INET, sys.argv[1]), (socket.AF_INET6, sys.argv[2])):
    for segment in (1460, 536, 0):
        s = socket.socket(family)
        if segment: s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        s.settimeout(10); s.connect((host, 7))
        def send(): s.sendall(data); s.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        back = b''.join(iter(lambda: s.recv(1 << 20), b''))
        print(segment, len(back), hashlib.sha256(back).digest() == hashlib.sha256(data).digest())
counted = [line.split() for line in open('/proc/net/snmp') if line.startswith('Tcp:')]
print('bad', dict(zip(*counted))['InCsumErrors'])
"#;

#[test]
fn segments_of_any_length_carry_the_same_bytes_both_ways() {
    let (world, _daemons) = crate::common::world(1);
    let (v4, v6) = (at::WEB_V4.to_string(), at::WEB_V6.to_string());
    let words = ["run", "-q", "--reach", "internet", "--"];
    let program = ["python3", "-c", SEGMENTS, &v4, &v6];
    let said = world
        .run("n1", &[&words[..], &program].concat())
        .ok()
        .stdout;
    let family: Vec<String> = [1460, 536, 0]
        .iter()
        .map(|segment| format!("{segment} {} True\n", 4 << 20))
        .collect();
    let want = format!("{}bad 0\n", family.concat().repeat(2));
    assert_eq!(said, want);
}
