//! `lo:PORT`: a server on the node's loopback that a box may dial.

use std::time::{Duration, Instant};

use bailey_tests::{Running, TestWorld};

use crate::common::{LIMIT, boxed, flows, world};

/// Says hello over TCP, and sends datagrams back, at a port of 127.0.0.1.
const SERVER: &str = r#"
import socket, sys, threading
port = int(sys.argv[1])
tcp = socket.create_server(('127.0.0.1', port))
udp = socket.socket(type=socket.SOCK_DGRAM); udp.bind(('127.0.0.1', port))
def back():
    while True:
        data, at = udp.recvfrom(999); udp.sendto(data, at)
threading.Thread(target=back, daemon=True).start()
print('listening', flush=True)
while True:
    c, at = tcp.accept(); c.sendall(b'hello from the node\n'); c.close()
"#;

/// Dials in the box, and says what came of it.
const DIAL: &str = r#"
import socket, sys
for host, port in (word.rsplit(':', 1) for word in sys.argv[1:]):
    try:
        s = socket.create_connection((host, int(port)), 5); print('tcp', s.recv(99).decode().strip())
    except OSError as error: print('tcp', type(error).__name__)
    try:
        s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(2)
        s.connect((host, int(port))); s.send(b'x'); print('udp', s.recv(9).decode())
    except OSError as error: print('udp', type(error).__name__)
"#;

fn serve(world: &TestWorld, port: &str) -> Running {
    let mut command = world.command("n1", "/usr/bin/python3");
    let running = Running::start(command.args(["-c", SERVER, port]));
    running.wait_line(LIMIT, |line| line == "listening");
    running
}

fn dial(world: &TestWorld, words: &[&str], ends: &[&str]) -> String {
    let program = ["--", "python3", "-c", DIAL];
    let all = [&["run", "-q"], words, &program[..], ends].concat();
    world.run("n1", &all).ok().stdout
}

#[test]
fn a_granted_port_of_the_nodes_loopback_is_reached_and_no_other() {
    let (world, _daemons) = world(1);
    let _servers = [serve(&world, "5432"), serve(&world, "5433")];
    let start = Instant::now();
    let words = ["--name", "db", "--reach", "lo:5432"];
    let said = dial(
        &world,
        &words,
        &[
            "host.bailey:5432",
            "192.0.0.1:5432",
            "host.bailey:5433",
            "127.0.0.1:5432",
            "192.168.1.11:5432",
        ],
    );
    let reached = "tcp hello from the node\nudp x\n";
    let refused = "tcp ConnectionRefusedError\nudp ConnectionRefusedError\n";
    assert_eq!(said, [reached, reached, refused, refused, refused].concat());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let rows = flows(&world, "n1", "db");
    let allowed: Vec<_> = rows.iter().filter(|row| row["kind"] == "flow").collect();
    assert!(allowed.len() >= 4, "{rows:#?}");
    for row in allowed.iter().filter(|row| row["verdict"] == "allow") {
        assert_eq!(
            (&row["rule"], &row["dst_class"], &row["dst_port"]),
            (&"lo:5432".into(), &"loopback".into(), &5432.into())
        );
    }
    // One transport alone.
    let said = dial(&world, &["--reach", "lo:5432/tcp"], &["host.bailey:5432"]);
    assert_eq!(
        said,
        "tcp hello from the node\nudp ConnectionRefusedError\n"
    );
}

#[test]
fn without_the_grant_the_nodes_loopback_is_refused_and_what_grants_it_is_said() {
    let (world, _daemons) = world(1);
    let _server = serve(&world, "5432");
    for reach in ["internet,local", "nothing", "0.0.0.0/0", "lo:5433"] {
        let words = ["--reach", reach];
        let said = dial(&world, &words, &["192.0.0.1:5432", "127.0.0.1:5432"]);
        let refused = "tcp ConnectionRefusedError\nudp ConnectionRefusedError\n";
        assert_eq!(said, refused.repeat(2), "{reach}");
    }
    let said = dial(&world, &[], &["host.bailey:5432"]);
    assert_eq!(said, "tcp gaierror\nudp gaierror\n");
    let script = "curl -sS -m 5 http://192.0.0.1:5432/ || true";
    let ran = boxed(&world, "n1", &[], script);
    assert!(
        ran.stderr
            .contains("would be granted by --reach …,lo:5432/tcp"),
        "{ran}"
    );
    // What cannot be granted is said before anything runs.
    for (reach, why) in [
        ("lo", "port by port"),
        ("lo:53", "name server"),
        ("lo:9", "tried"),
    ] {
        let ran = world.run("n1", &["run", "--reach", reach, "--", "true"]);
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.contains(why), "{ran}");
    }
}

/// Takes what comes to the end, a little slowly, and says how much that was.
const SLOW_READER: &str = "import socket,time
server=socket.create_server(('127.0.0.1',7777)); print('up',flush=True)
for _ in range(2):
    stream,_=server.accept(); count=0
    while True:
        part=stream.recv(1<<16)
        if not part: break
        count+=len(part)
        time.sleep(0.005)
    print('got',count,flush=True)";

#[test]
fn what_a_program_sent_before_it_ended_arrives() {
    let (world, _daemons) = world(1);
    let mut server = world.command("n1", "python3");
    let server = Running::start(server.args(["-c", SLOW_READER]));
    server.wait_line(LIMIT, |line| line == "up");
    for count in [100_000, 3_000_000] {
        let script = format!(
            "import socket; s=socket.create_connection(('host.bailey',7777)); \
             s.sendall(b'x'*{count}); s.close()"
        );
        let name = format!("sends-{count}");
        let words = ["run", "-q", "--name", &name, "--reach", "lo:7777", "--"];
        let words = [&words[..], &["python3", "-c", &script]].concat();
        let _ran = world.run("n1", &words).ok();
        let said = format!("got {count}");
        server.wait_line(LIMIT, |line| line == said);
        let rows = flows(&world, "n1", &name);
        let flow = rows.iter().find(|row| row["bytes_out"] == count).unwrap();
        assert_eq!(
            (&flow["bytes_out"], &flow["end"]),
            (&count.into(), &"closed".into()),
            "{flow}"
        );
    }
}
