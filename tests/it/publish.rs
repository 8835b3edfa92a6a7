//! `bailey run --publish`: ports of the node's loopback that lead into a box.

use std::time::{Duration, Instant};

use bailey_tests::{Output, Running, TestWorld, run, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, flows, world};

/// A server of the box: GET gives so many bytes, POST says their digest; both
/// sides of a connection may close alone.
const SERVER: &str = r#"
import hashlib, http.server, socketserver, sys
class Page(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        count = int(self.path[1:] or 0)
        self.answer(bytes(range(251)) * (count // 251) if count else b'hello from the box\n')
    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers['Content-Length'])
        while left:
            part = self.rfile.read(min(left, 1 << 16)); digest.update(part); left -= len(part)
        self.answer(digest.hexdigest().encode())
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    request_queue_size, daemon_threads = 512, True
server = Server((sys.argv[1], int(sys.argv[2])), Page)
print('listening', flush=True)
server.serve_forever()
"#;

/// A box whose port 8000 is the node's 8080.
const WEB: [&str; 4] = ["--name", "web", "--publish", "8080:8000"];

/// Starts a box with the server in it.
fn serve(world: &TestWorld, words: &[&str], [host, port]: [&str; 2]) -> Running {
    listening(world, words, &[SERVER, host, port])
}

/// Starts a box with a Python program in it, and waits until that listens.
fn listening(world: &TestWorld, words: &[&str], program: &[&str]) -> Running {
    let all = [&["run", "-q"], words, &["--", "python3", "-c"], program].concat();
    let running = world.start("n1", &all);
    running.wait_line(LIMIT, |line| line == "listening");
    running
}

/// Runs Python outside every box.
fn outside(world: &TestWorld, script: &str) -> Output {
    run(world.command("n1", "/usr/bin/python3").args(["-c", script]))
}

fn inbound(world: &TestWorld, name: &str) -> Vec<Value> {
    let mut rows = flows(world, "n1", name);
    rows.retain(|row| row["direction"] == "in");
    rows
}

/// Waits until so many flows have come in and are over.
fn all_over(world: &TestWorld, name: &str, count: usize) -> Vec<Value> {
    let mut rows = Vec::new();
    let over = wait_until(LIMIT, || {
        rows = inbound(world, name);
        rows.iter().filter(|row| row["end"].is_string()).count() >= count
    });
    assert!(over, "{rows:#?}");
    rows
}

#[test]
fn a_page_of_a_box_is_on_the_nodes_loopback_and_each_flow_is_entered() {
    let (world, _daemons) = world(1);
    let words = [
        "--name",
        "web",
        "--reach",
        "nothing",
        "--publish",
        "8080:8000",
    ];
    let _box = serve(&world, &words, ["0.0.0.0", "8000"]);
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let page = world
            .sh("n1", &format!("curl -sS -m 5 http://{host}:8080/"))
            .ok();
        assert_eq!(page.stdout, "hello from the box\n", "{host}");
    }
    let rows = all_over(&world, "web", 3);
    assert_eq!(rows.len(), 3, "{rows:#?}");
    for row in &rows {
        assert_eq!(
            (&row["kind"], &row["verdict"]),
            (&"flow".into(), &"allow".into())
        );
        assert_eq!(
            (&row["rule"], &row["proto"]),
            (&"publish 8080:8000".into(), &"tcp".into())
        );
        assert_eq!(
            (&row["dst_ip"], &row["dst_port"]),
            (&"192.0.0.2".into(), &8000.into())
        );
        assert_eq!(
            (&row["dst_class"], &row["end"]),
            (&"loopback".into(), &"closed".into())
        );
        let client: std::net::IpAddr = row["outer_src_ip"].as_str().unwrap().parse().unwrap();
        assert!(client.is_loopback() && row["outer_src_port"].as_u64().unwrap() > 0);
        // Outside, it came to the published port of the loopback.
        let port = u16::try_from(row["outer_src_port"].as_u64().unwrap()).unwrap();
        let published = (client, 8080).into();
        let id = bailey_node::community::community_id(
            bailey_model::Proto::Tcp,
            (client, port).into(),
            published,
        );
        assert_eq!(row["outer_community_id"].as_str(), id.as_deref());
        assert!(row["bytes_in"].as_u64().unwrap() > 50, "{row}");
        assert!(row["bytes_out"].as_u64().unwrap() > 50, "{row}");
    }
    let shown = world.run("n1", &["flows", "web"]).ok().stdout;
    assert_eq!(shown.matches("in ← 127.0.0.1:").count(), 2, "{shown}");
    assert_eq!(shown.matches("in ← [::1]:").count(), 1, "{shown}");
    // It is the loopback's alone, and the box's only by the port that was named.
    for place in ["192.168.1.11:8080", "127.0.0.1:8000"] {
        let refused = world.sh("n1", &format!("curl -sS -m 5 http://{place}/"));
        assert_eq!(refused.code, Some(7), "{place}: {refused}");
    }
    assert_eq!(inbound(&world, "web").len(), 3);
}

#[test]
fn a_server_on_the_boxs_own_loopback_is_reached() {
    let (world, _daemons) = world(1);
    let _box = serve(&world, &WEB, ["127.0.0.1", "8000"]);
    let page = world.sh("n1", "curl -sS -m 5 http://127.0.0.1:8080/").ok();
    assert_eq!(page.stdout, "hello from the box\n");
    assert_eq!(inbound(&world, "web").len(), 1);
    // The control: an unpublished port of it is nobody's.
    let other = ["--name", "other"];
    let _other = serve(&world, &other, ["127.0.0.1", "8001"]);
    let refused = world.sh("n1", "curl -sS -m 5 http://127.0.0.1:8001/");
    assert_eq!(refused.code, Some(7), "{refused}");
}

#[test]
fn large_bodies_pass_unchanged_both_ways() {
    let (world, _daemons) = world(1);
    let _box = serve(&world, &WEB, ["0.0.0.0", "8000"]);
    let script = r#"
import hashlib, threading, urllib.request
count = 251 * 200000
body = bytes(range(250, -1, -1)) * 200000
want = hashlib.sha256(body).hexdigest().encode()
def up():
    assert urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:8080/', body), timeout=15).read() == want
    print('up')
def down():
    assert urllib.request.urlopen('http://127.0.0.1:8080/%d' % count, timeout=15).read() == bytes(range(251)) * 200000
    print('down')
hands = [threading.Thread(target=way) for way in (up, down, up, down)]
for hand in hands: hand.start()
for hand in hands: hand.join()
"#;
    let said = outside(&world, script).ok().stdout;
    assert_eq!(
        (said.matches("up").count(), said.matches("down").count()),
        (2, 2),
        "{said}"
    );
    let rows = all_over(&world, "web", 4);
    let carried = |side: &str| -> u64 { rows.iter().map(|row| row[side].as_u64().unwrap()).sum() };
    assert!(carried("bytes_in") > 100_000_000 && carried("bytes_out") > 100_000_000);
}

#[test]
fn each_half_of_a_connection_closes_by_itself() {
    let (world, _daemons) = world(1);
    let server = "import socket\n\
                  s = socket.create_server(('', 8000)); print('listening', flush=True)\n\
                  while True:\n\
                  \x20   c, _ = s.accept(); got = b''\n\
                  \x20   while part := c.recv(9): got += part\n\
                  \x20   c.sendall(got[::-1]); c.close()";
    let _box = listening(&world, &WEB, &[server]);
    let script = "import socket\n\
                  s = socket.create_connection(('127.0.0.1', 8080), 5)\n\
                  s.sendall(b'all of it'); s.shutdown(socket.SHUT_WR); got = b''\n\
                  while part := s.recv(9): got += part\n\
                  print(got.decode())";
    assert_eq!(outside(&world, script).ok().stdout, "ti fo lla\n");
    let rows = all_over(&world, "web", 1);
    assert_eq!(
        (&rows[0]["end"], &rows[0]["bytes_in"], &rows[0]["bytes_out"]),
        (&"closed".into(), &9.into(), &9.into())
    );
}

#[test]
fn a_box_that_does_not_listen_resets_its_client_at_once_and_says_so() {
    let (world, _daemons) = world(1);
    let running = world.start("n1", &[&["run"], &WEB[..], &["--", "sleep", "60"]].concat());
    running.wait_error_line(LIMIT, |line| line.contains("box web"));
    let start = Instant::now();
    let refused = world.sh("n1", "curl -sS -m 5 http://127.0.0.1:8080/");
    // Reset while it sends, or at once after it was taken, which curl calls no connection;
    // that it was taken the row below says.
    assert!(matches!(refused.code, Some(56 | 7)), "{refused}");
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let rows = all_over(&world, "web", 1);
    assert_eq!(
        (&rows[0]["end"], &rows[0]["bytes_in"]),
        (&"dial refused".into(), &0.into())
    );
}

#[test]
fn two_hundred_at_once_are_served_and_each_has_its_entry() {
    let (world, _daemons) = world(1);
    let _box = serve(&world, &WEB, ["0.0.0.0", "8000"]);
    let script = r#"
import socket, threading
hands, inside, served = [], threading.Barrier(200), []
def one():
    s = socket.create_connection(('127.0.0.1', 8080), 15)
    inside.wait()
    s.sendall(b'GET /2510 HTTP/1.0\r\n\r\n'); got = b''
    while part := s.recv(1 << 16): got += part
    assert got.endswith(bytes(range(251)) * 10), got
    served.append(1)
for _ in range(200): hands.append(threading.Thread(target=one)); hands[-1].start()
for hand in hands: hand.join()
print(len(served))
"#;
    assert_eq!(outside(&world, script).ok().stdout, "200\n");
    let rows = all_over(&world, "web", 200);
    assert_eq!(rows.len(), 200);
    assert!(rows.iter().all(|row| row["end"] == "closed"), "{rows:#?}");
    let mut clients: Vec<u64> = rows
        .iter()
        .map(|row| row["outer_src_port"].as_u64().unwrap())
        .collect();
    clients.sort_unstable();
    clients.dedup();
    assert_eq!(clients.len(), 200, "each entry names its own client");
}

#[test]
fn a_port_that_cannot_be_had_is_said_before_anything_runs() {
    let (world, _daemons) = world(1);
    let run = |words: &[&str]| {
        let mut all = vec!["run", "--name", "late"];
        all.extend(words);
        all.extend(["--", "sh", "-c", "echo ran"]);
        let output = world.run("n1", &all);
        assert!(output.stdout.is_empty(), "{output}");
        (output.code, output.stderr)
    };
    let mut holder = world.command("n1", "/usr/bin/python3");
    let script = "import socket, time; s = socket.create_server(('127.0.0.1', 8080)); \
                  print('listening', flush=True); time.sleep(60)";
    let holder = Running::start(holder.args(["-c", script]));
    holder.wait_line(LIMIT, |line| line == "listening");
    let (code, said) = run(&["--publish", "8080:8000"]);
    assert!(
        code == Some(125) && said.contains("127.0.0.1:8080 is in use"),
        "{said}"
    );
    drop(holder);
    // Another box has it: its name is said.
    let web = serve(&world, &WEB, ["0.0.0.0", "8000"]);
    let (code, said) = run(&["--publish", "8080:1"]);
    assert!(
        code == Some(2) && said.contains("the box web already"),
        "{said}"
    );
    let (code, said) = run(&["--publish", "81:1", "--publish", "81:2"]);
    assert!(
        code == Some(2) && said.contains("81 is given twice"),
        "{said}"
    );
    let (code, said) = run(&["--publish", "90:90"]);
    assert!(code == Some(125) && said.contains("127.0.0.1:90"), "{said}");
    let (code, said) = run(&["--tier", "l1.5", "--publish", "8090:1"]);
    assert!(code == Some(2) && said.contains("gated"), "{said}");
    // With its box the port goes, and is there for the next one at once.
    let _stopped = world.run("n1", &["stop", "web"]).ok();
    assert_eq!(
        world.sh("n1", "curl -sS -m 5 http://127.0.0.1:8080/").code,
        Some(7)
    );
    drop(web);
    let _next = serve(&world, &WEB, ["0.0.0.0", "8000"]);
    let page = world.sh("n1", "curl -sS -m 5 http://127.0.0.1:8080/").ok();
    assert_eq!(page.stdout, "hello from the box\n");
}

#[test]
fn a_datagram_port_leads_in_and_its_answers_come_back_from_it() {
    let (world, _daemons) = world(1);
    let server = "import socket\n\
                  s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 5000))\n\
                  print('listening', flush=True)\n\
                  while True:\n\
                  \x20   data, at = s.recvfrom(65535); s.sendto(data[::-1], at)";
    let words = ["--name", "dgram", "--reach", "nothing"];
    let published = ["--publish", "5353:5000/udp", "--publish", "5353:5000"];
    let _box = listening(&world, &[words, published].concat(), &[server]);
    let script = r#"
import socket
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(5)
    for data in (b'', b'abc', bytes(range(250)) * 200):
        s.sendto(data, (host, 5353)); got, at = s.recvfrom(65535)
        assert got == data[::-1] and at[:2] == (host, 5353), (got, at)
    print(s.getsockname()[1])
"#;
    let ports = outside(&world, script).ok().stdout;
    let ports: Vec<u64> = ports.lines().map(|line| line.parse().unwrap()).collect();
    let rows = inbound(&world, "dgram");
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for (row, port) in rows.iter().zip(ports) {
        assert_eq!(
            (&row["proto"], &row["verdict"], &row["rule"]),
            (
                &"udp".into(),
                &"allow".into(),
                &"publish 5353:5000/udp".into()
            )
        );
        assert_eq!(
            (&row["dst_port"], &row["outer_src_port"]),
            (&5000.into(), &port.into())
        );
    }
    // It is the loopback's alone.
    let script = "import socket\n\
                  s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(1)\n\
                  s.connect(('192.168.1.11', 5353)); s.send(b'x')\n\
                  try: s.recv(9)\n\
                  except ConnectionRefusedError: print('refused')";
    assert_eq!(outside(&world, script).ok().stdout, "refused\n");
}
