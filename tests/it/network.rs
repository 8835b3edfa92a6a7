//! The node's network, followed while boxes run: what becomes its own, what is
//! on its links, what its network translates.

use std::time::{Duration, SystemTime};

use bailey_tests::{Output, Running, TestWorld, run, wait_until};
use bailey_world::at;
use serde_json::Value;

use crate::common::{LIMIT, attached, flows, row_of, world};

/// How soon the gate judges by a change of addresses or routes.
const FOLLOWED: Duration = Duration::from_secs(1);
/// Curl's exit code for a connection that was refused.
const REFUSED: &str = "7";

fn yard(world: &TestWorld, reach: &str) -> Running {
    attached(
        world,
        "n1",
        &["--name", "yard", "--reach", reach],
        "sleep 100",
    )
}

fn ip(world: &TestWorld, words: &str) -> Output {
    let mut ip = world.node("n1").unwrap().root_command("ip");
    run(ip.args(words.split(' '))).ok()
}

fn inet(world: &TestWorld, words: &str) -> Output {
    run(world.inet_command("ip").args(words.split(' '))).ok()
}

/// Curl's exit codes for dials, in order.
fn dials(world: &TestWorld, to: &[&str]) -> Vec<String> {
    let script = format!(
        "for to in {}; do curl -g -sS -m 3 -o /dev/null http://$to/ 2>/dev/null; echo $?; done",
        to.join(" ")
    );
    let output = world.run("n1", &["exec", "yard", "--", "sh", "-c", &script]);
    output.ok().stdout.lines().map(str::to_owned).collect()
}

/// A box that dials some addresses again and again and says when one begins to
/// end otherwise: the time in nanoseconds, the address, `0` or the error.
const WATCH: &str = "
import errno, socket, sys, time
last = {}
while True:
    for to in sys.argv[1:]:
        try:
            with socket.create_connection((to, 80), 3): code = '0'
        except OSError as error: code = errno.errorcode.get(error.errno, 'late')
        if last.get(to) != code:
            last[to] = code; print(time.time_ns(), to, code, flush=True)
    time.sleep(0.02)
";

/// Waits until a watched address ends so; how long after `changed` that was.
#[track_caller]
fn until(watch: &Running, to: &str, code: &str, changed: SystemTime) -> Duration {
    let end = format!(" {to} {code}");
    let when = |line: &str| {
        let nanos: u64 = line.split(' ').next()?.parse().ok()?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))
    };
    let line = watch.wait_line(LIMIT, |line| {
        line.ends_with(&end) && when(line).is_some_and(|when| when >= changed)
    });
    when(&line).unwrap().duration_since(changed).unwrap()
}

/// Whether `bailey why` puts an address into a class, asked of the gate itself.
fn class(world: &TestWorld, to: &str) -> Value {
    let said = world.run("n1", &["why", "yard", to, "--json"]).ok();
    let mut rows = said.json();
    rows[0]["addrs"][0]["class"].take()
}

#[test]
fn what_becomes_the_nodes_own_or_on_link_is_refused_within_a_second() {
    let (world, _daemons) = world(1);
    let (web, six) = (at::WEB_V4.to_string(), at::WEB_V6.to_string());
    let words = [
        "run", "--name", "yard", "--", "python3", "-c", WATCH, &web, &six,
    ];
    let watch = world.start("n1", &words);
    // Without the gate's word a dial of what became the node's own would be met.
    let mut server = world.node("n1").unwrap().root_command("python3");
    let _server = Running::start(server.args(["-m", "http.server", "80"]));
    for to in [&web, &six] {
        let _control = until(&watch, to, "0", SystemTime::UNIX_EPOCH);
    }
    // Each change, what it makes local, and what undoes it.
    for (change, to, undo) in [
        (
            "addr add 93.184.216.34/32 dev eth0",
            &web,
            "addr del 93.184.216.34/32 dev eth0",
        ),
        (
            "addr add 93.184.216.1/24 dev eth0",
            &web,
            "addr del 93.184.216.1/24 dev eth0",
        ),
        (
            "route add 93.184.216.0/24 dev eth0",
            &web,
            "route del 93.184.216.0/24 dev eth0",
        ),
        ("addr add 93.184.216.9/24 dev v0", &web, "link del v0"),
        (
            "-6 route add 2606:2800:220::/48 dev eth0",
            &six,
            "-6 route del 2606:2800:220::/48 dev eth0",
        ),
        (
            "-6 addr add 2606:2800:220:1::7/64 dev eth0 nodad",
            &six,
            "-6 addr del 2606:2800:220:1::7/64 dev eth0",
        ),
    ] {
        if undo == "link del v0" {
            // A new interface alone says nothing; its address does.
            let _new = ip(&world, "link add v0 type veth peer name v1");
            let _up = ip(&world, "link set v0 up");
        }
        for (change, code) in [(change, "ECONNREFUSED"), (undo, "0")] {
            let changed = SystemTime::now();
            let _changed = ip(&world, change);
            let took = until(&watch, to, code, changed);
            assert!(took < FOLLOWED, "{change}: {took:?}");
            let of = format!("{}:80", bracketed(to));
            let judged = wait_until(FOLLOWED, || {
                (class(&world, &of) == "local") == (code != "0")
            });
            assert!(judged, "{change}: {}", class(&world, &of));
        }
    }
    let rows = flows(&world, "n1", "yard");
    let refused = rows
        .iter()
        .filter(|row| row["kind"] == "refused" && row["dst_class"] == "local");
    assert!(refused.count() >= 2, "{rows:#?}");
}

fn bracketed(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    }
}

#[test]
fn a_route_through_a_tunnel_is_local_and_a_default_one_is_the_internet() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    let _added = ip(&world, "tuntap add vpn0 mode tun");
    let _up = ip(&world, "link set vpn0 up");
    let _addr = ip(&world, "addr add 10.8.0.2/24 dev vpn0");
    let _route = ip(&world, "route add 151.101.0.0/16 dev vpn0");
    let refused = wait_until(FOLLOWED, || class(&world, "151.101.1.69:80") == "local");
    assert!(refused, "{}", class(&world, "151.101.1.69:80"));
    assert_eq!(class(&world, "93.184.216.34:80"), "internet");
    // All of it through the tunnel, in halves as some do: still the internet.
    let _route = ip(&world, "route del 151.101.0.0/16 dev vpn0");
    let _half = ip(&world, "route add 0.0.0.0/1 dev vpn0");
    let _half = ip(&world, "route add 128.0.0.0/1 dev vpn0");
    let passes = wait_until(FOLLOWED, || class(&world, "151.101.1.69:80") == "internet");
    assert!(passes, "{}", class(&world, "151.101.1.69:80"));
    assert_eq!(class(&world, "10.8.0.7:80"), "local");
}

#[test]
fn what_is_established_ends_when_its_address_becomes_the_nodes_own() {
    let (world, _daemons) = world(1);
    let script = "
import errno, socket, sys, time
to = sys.argv[1]
s = socket.create_connection((to, 7), 5); s.settimeout(5)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5); u.connect((to, 7))
def code(act):
    try: return act()
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
s.send(b'one'); u.send(b'two'); print(s.recv(9), u.recv(9), flush=True)
print(code(lambda: s.recv(9)), time.time_ns(), flush=True)
print(code(lambda: u.recv(9)), flush=True)
";
    let to = at::WEB_V4.to_string();
    let words = ["run", "--name", "yard", "--", "python3", "-c", script, &to];
    let running = world.start("n1", &words);
    running.wait_line(LIMIT, |line| line == "b'one' b'two'");
    let changed = SystemTime::now();
    let _changed = ip(&world, "route add 93.184.216.0/24 dev eth0");
    let line = running.wait_line(LIMIT, |line| line.starts_with("ECONNRESET"));
    let nanos: u64 = line.split(' ').next_back().unwrap().parse().unwrap();
    let ended = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    let took = ended.duration_since(changed).unwrap();
    assert!(took < FOLLOWED, "{took:?}");
    running.wait_line(LIMIT, |line| line == "ECONNREFUSED");
    let _ended = running.finish(LIMIT).ok();
    let rows = flows(&world, "n1", "yard");
    let by_network = |row: &&Value| row["end"] == "network changed";
    assert_eq!(rows.iter().filter(by_network).count(), 2, "{rows:#?}");
}

#[test]
fn a_private_address_behind_the_gateway_is_in_no_word_and_is_granted_by_itself() {
    let (world, _daemons) = world(1);
    // The router has them on its other side, as a company's network would be.
    let (far, six) = ("10.5.0.1", "fd00:5::1");
    let _far = inet(&world, &format!("addr add {far}/32 dev lo"));
    let _six = inet(&world, &format!("addr add {six}/128 dev lo nodad"));
    world.set_name("far.example", &[far]).unwrap();
    let mut server = world.inet_command("python3");
    let words = ["-m", "http.server", "8000", "--bind", "::"];
    let _server = Running::start(server.args(words));
    let both = [format!("{far}:8000"), format!("[{six}]:8000")];
    // The control: outside of a box they are there, by the default route.
    for to in &both {
        let script = format!("curl -g -sS -m 5 -o /dev/null http://{to}/");
        let there = wait_until(LIMIT, || world.sh("n1", &script).code == Some(0));
        assert!(there, "{to}");
    }
    let _box = yard(&world, "internet,local");
    let to: Vec<&str> = both.iter().map(String::as_str).collect();
    assert_eq!(dials(&world, &to), [REFUSED, REFUSED]);
    assert_eq!(dials(&world, &["192.168.1.9"]), ["0"], "what is on-link");
    let named = ["exec", "yard", "--", "getent", "ahostsv4", "far.example"];
    assert_ne!(world.run("n1", &named).code, Some(0), "withheld");
    let rows = flows(&world, "n1", "yard");
    for reason in ["outside reach", "answer withheld"] {
        let of = |row: &&Value| row["reason"] == reason && row["dst_class"] == "private";
        assert!(rows.iter().any(|row| of(&row)), "{reason}: {rows:#?}");
    }
    let read = ["exec", "yard", "--", "cat", "/run/bailey/refusals"];
    let hint = "refused, private, not on this machine's networks, outside reach; a person \
                outside can grant it: bailey allow yard 10.5.0.1:8000";
    let told = wait_until(LIMIT, || world.run("n1", &read).ok().stdout.contains(hint));
    assert!(told, "{}", world.run("n1", &read));
    // As it says, and by a name once its address is granted.
    let allow = ["allow", "yard", "10.5.0.1:8000", "fd00:5::/64"];
    let _allowed = world.run("n1", &allow).ok();
    assert_eq!(dials(&world, &to), ["0", "0"]);
    assert_eq!(dials(&world, &["far.example:8000"]), ["0"]);
    // A tunnel there that is no default route makes it one's own.
    assert_eq!(class(&world, &both[1]), "private");
    let _added = ip(&world, "tuntap add vpn0 mode tun");
    let _up = ip(&world, "link set vpn0 up");
    let _route = ip(&world, "-6 route add fd00:5::/48 dev vpn0");
    let judged = wait_until(FOLLOWED, || class(&world, &both[1]) == "local");
    assert!(judged, "{}", class(&world, &both[1]));
}

#[test]
fn a_network_that_translates_is_asked_for_its_prefix_and_what_that_carries_is_judged() {
    let (world, _daemons) = world(1);
    // Three of the forms that RFC 6052 has: the router answers at both addresses
    // of each, as a translator would.
    let forms = [
        (
            "2606:2800:64::c000:aa",
            "2606:2800:64::c0a8:109",
            "2606:2800:64::5db8:d822",
        ),
        (
            "2606:2800:c000:aa::",
            "2606:2800:c0a8:109::",
            "2606:2800:5db8:d822::",
        ),
        (
            "2606:2800:220:64:c0:0:aa00:0",
            "2606:2800:220:64:c0:a801:900:0",
            "2606:2800:220:64:5d:b8d8:2200:0",
        ),
    ];
    let _box = yard(&world, "internet");
    for (_, printer, shop) in forms {
        for address in [printer, shop] {
            let _added = inet(&world, &format!("addr add {address}/128 dev lo nodad"));
        }
    }
    // The node's own question, once a network; nothing is translated here.
    let asked = || {
        let log = world.dns_log().unwrap();
        log.iter()
            .filter(|asked| asked.name == "ipv4only.arpa" && asked.qtype == 28)
            .count()
    };
    assert!(wait_until(LIMIT, || asked() == 1), "{}", asked());
    let url = |address: &str| format!("[{address}]");
    for (number, (answer, printer, shop)) in forms.into_iter().enumerate() {
        let (printer, shop) = (url(printer), url(shop));
        assert_eq!(dials(&world, &[&printer, &shop]), ["0", "0"], "the control");
        world.set_name("ipv4only.arpa", &[answer]).unwrap();
        // Another network, by its name server; the two take turns.
        let server = ["9.9.9.9", "192.168.1.1"][number % 2];
        let node = world.node("n1").unwrap();
        node.set_resolv_conf(&format!("nameserver {server}\n"))
            .unwrap();
        let known = wait_until(LIMIT, || dials(&world, &[&printer]) == [REFUSED]);
        assert!(known, "{printer}");
        assert_eq!(class(&world, &format!("{printer}:80")), "local");
        assert_eq!(dials(&world, &[&shop]), ["0"], "what it carries is public");
        assert_eq!(class(&world, &format!("{shop}:80")), "internet");
    }
    // The well-known prefix needs no asking.
    assert_eq!(class(&world, "[64:ff9b::c0a8:109]:80"), "local");
    assert_eq!(class(&world, "[64:ff9b::a9fe:a9fe]:80"), "metadata");
    // A box that starts now knows from its first dial on, and its own question
    // is answered by the gate.
    let script = "curl -g -sS -m 3 -o /dev/null http://[2606:2800:220:64:c0:a801:900:0]/; echo $?; \
                  dig +short ipv4only.arpa; dig +short ipv4only.arpa aaaa; sleep 100";
    let second = attached(&world, "n1", &["--name", "second"], script);
    let first = second.wait_line(LIMIT, |line| line.len() == 1);
    assert_eq!(first, REFUSED);
    second.wait_line(LIMIT, |line| line == "192.0.0.171");
    assert!(!second.stdout().contains(':'), "{}", second.stdout());
    assert_eq!(asked(), 1 + forms.len(), "no box asks by itself");
    let rows = flows(&world, "n1", "second");
    assert!(
        rows.iter().all(|row| row["dst_host"] != "ipv4only.arpa"),
        "{rows:#?}"
    );
}

#[test]
fn an_established_flow_outlives_its_names_time() {
    let (world, _daemons) = world(1);
    // A name whose answers change at every question.
    let script = "
import socket
s = socket.create_connection(('shop.example', 7), 5); s.sendall(b'one'); print(s.recv(9), flush=True)
input(); s.sendall(b'two'); print(s.recv(9), flush=True)
input()
";
    let reach = ["run", "--name", "yard", "--reach", "shop.example", "--"];
    let words = [&reach[..], &["python3", "-c", script]].concat();
    let mut running = world.start("n1", &words);
    running.wait_line(LIMIT, |line| line == "b'one'");
    world.set_name("shop.example", &["151.101.1.69"]).unwrap();
    let look = "getent ahostsv4 shop.example | head -1; curl -sS -m 5 -o /dev/null http://shop.example/; echo $?; \
                curl -sS -m 5 -o /dev/null http://93.184.216.34/; echo $?";
    let output = world
        .run("n1", &["exec", "yard", "--", "sh", "-c", look])
        .ok();
    assert!(output.stdout.starts_with("151.101.1.69"), "{output}");
    // Within the time of the box's own first answer that address holds too.
    assert!(output.stdout.ends_with("0\n0\n"), "{output}");
    let mut stdin = running.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"\n").unwrap();
    running.wait_line(LIMIT, |line| line == "b'two'");
    drop(stdin);
    let follower = world.start("n1", &["flows", "yard", "--follow", "--json"]);
    let flow = row_of(&follower, |row| {
        row["kind"] == "flow" && row["dst_port"] == 7
    });
    assert_eq!(flow["dst_ip"], at::WEB_V4.to_string());
}
