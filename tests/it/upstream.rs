//! Where a box's questions go, and what of the answers comes back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bailey_tests::{Output, Running, TestWorld, run, wait_until};
use bailey_world::{SeenKind, at};
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, daemon, flows, world};

/// A change of the node's files takes hold within this: the node looks twice a
/// second.
const FOLLOWED: Duration = Duration::from_secs(2);

fn yard(world: &TestWorld, reach: &str) -> Running {
    attached(
        world,
        "n1",
        &["--name", "yard", "--reach", reach],
        "sleep 100",
    )
}

fn exec(world: &TestWorld, script: &str) -> Output {
    world.run("n1", &["exec", "yard", "--", "sh", "-c", script])
}

/// Whether the box is told an address for a name, and how long it took.
fn found(world: &TestWorld, name: &str) -> (bool, Duration) {
    let script = format!("date +%s%N; getent ahostsv4 {name} >/dev/null; echo $?; date +%s%N");
    let output = exec(world, &script).ok();
    let numbers: Vec<u64> = output
        .stdout
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let &[begun, code, over] = &numbers[..] else {
        panic!("{output}")
    };
    (code == 0, Duration::from_nanos(over - begun))
}

/// Who was sent datagrams at the port of name servers from here on.
fn servers(world: &TestWorld, from: usize) -> BTreeSet<IpAddr> {
    let seen = world.witness().unwrap();
    let asked = seen.get(from..).unwrap_or_default().iter();
    asked
        .filter(|seen| seen.kind == SeenKind::Udp && seen.dst.port() == 53)
        .map(|seen| seen.dst.ip())
        .collect()
}

fn resolv_conf(world: &TestWorld, text: &str) {
    world.node("n1").unwrap().set_resolv_conf(text).unwrap();
}

#[test]
fn a_changed_resolver_configuration_is_followed_while_a_box_runs() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    assert!(found(&world, "shop.example").0);
    assert_eq!(servers(&world, 0), [at::ROUTER_V4.into()].into());
    for (text, server) in [
        // As a VPN does when it comes up, and when it is gone again.
        ("nameserver 9.9.9.9\n", IpAddr::from(at::RESOLVER_V4)),
        ("nameserver 2620:fe::fe\n", at::RESOLVER_V6.into()),
        ("nameserver 192.168.1.1\n", at::ROUTER_V4.into()),
    ] {
        resolv_conf(&world, text);
        let changed = Instant::now();
        let followed = wait_until(LIMIT, || {
            let before = world.witness().unwrap().len();
            assert!(found(&world, "shop.example").0);
            servers(&world, before) == [server].into()
        });
        assert!(
            followed && changed.elapsed() < FOLLOWED,
            "{text} {:?}",
            changed.elapsed()
        );
    }
}

#[test]
fn a_link_local_name_server_is_asked_by_its_interface() {
    let (world, _daemons) = world(1);
    // The router has its servers at other addresses only: one that hands on.
    let relay = "
import socket
at = socket.getaddrinfo('fe80::53%lan', 53, type=socket.SOCK_DGRAM)[0][4]
server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); server.bind(at)
print('up', flush=True)
while True:
    data, whom = server.recvfrom(4096)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as up:
        up.sendto(data, ('9.9.9.9', 53)); server.sendto(up.recv(4096), whom)
";
    let mut ip = world.inet_command("ip");
    let _added = run(ip.args("addr add fe80::53/64 dev lan nodad".split(' '))).ok();
    let mut python = world.inet_command("python3");
    let relay = Running::start(python.args(["-c", relay]));
    relay.wait_line(LIMIT, |line| line == "up");
    resolv_conf(&world, "nameserver fe80::53%eth0\n");
    let _box = yard(&world, "internet");
    assert!(found(&world, "shop.example").0);
    let link_local: IpAddr = "fe80::53".parse().unwrap();
    assert_eq!(servers(&world, 0), [link_local].into());
}

#[test]
fn a_box_that_starts_offline_works_once_the_node_is_online() {
    let world = TestWorld::new(1);
    let node = world.node("n1").unwrap();
    let ip = |words: &str| {
        let mut ip = node.root_command("ip");
        run(ip.args(words.split(' '))).ok()
    };
    let _gone = ip("route del default");
    let _gone = ip("-6 route del default");
    resolv_conf(&world, "");
    let _daemon = daemon(&world, "n1");
    let _box = yard(&world, "internet");
    let (there, took) = found(&world, "shop.example");
    assert!(!there && took < Duration::from_secs(1), "{took:?}");
    let dial = |whom: &str| {
        exec(
            &world,
            &format!("curl -sS -m 5 -o /dev/null http://{whom}/"),
        )
    };
    let failed = dial("93.184.216.34");
    assert_eq!(failed.code, Some(7), "{failed}");
    // A file of before, and no way out yet.
    resolv_conf(&world, "nameserver 9.9.9.9\n");
    std::thread::sleep(FOLLOWED);
    let (there, took) = found(&world, "shop.example");
    assert!(!there && took < Duration::from_secs(1), "{took:?}");
    let _back = ip("route add default via 192.168.1.1");
    let online = Instant::now();
    let works = wait_until(LIMIT, || found(&world, "shop.example").0);
    assert!(
        works && online.elapsed() < FOLLOWED,
        "{:?}",
        online.elapsed()
    );
    let fetched = dial("shop.example");
    assert_eq!(fetched.code, Some(0), "{fetched}");
    // No IPv6 out, so no IPv6 address is told; and then there is.
    let six = || exec(&world, "getent ahostsv6 v6.example").code == Some(0);
    assert!(!six());
    let _back = ip("-6 route add default via 2600:1f18:aaaa:1::1 dev eth0");
    assert!(wait_until(FOLLOWED, six));
}

#[test]
fn a_dead_name_server_is_passed_over() {
    let (world, _daemons) = world(2);
    // Silent, unreachable by the router's word, and one where nothing listens.
    for (dead, most) in [
        ("45.33.32.156", 2_000),
        ("45.33.32.157", 800),
        ("192.168.1.12", 800),
    ] {
        resolv_conf(
            &world,
            &format!("nameserver {dead}\nnameserver 192.168.1.1\n"),
        );
        let name = format!("dead-{most}-{}", dead.replace('.', "-"));
        let words = ["--name", &name, "-q"];
        let script = "date +%s%N; getent ahostsv4 shop.example >/dev/null; echo $?; date +%s%N";
        let output = boxed(&world, "n1", &words, script).ok();
        let numbers: Vec<u64> = output
            .stdout
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        assert_eq!(numbers[1], 0, "{dead}: {output}");
        let took = Duration::from_nanos(numbers[2] - numbers[0]);
        assert!(took < Duration::from_millis(most), "{dead}: {took:?}");
    }
    // All of them dead: said before a resolver's own patience ends.
    resolv_conf(&world, "nameserver 45.33.32.156\n");
    let script = "dig shop.example | grep -E 'status|EDE|Query time'";
    let output = boxed(&world, "n1", &["-q"], script).ok();
    assert!(
        output.stdout.contains("SERVFAIL") && output.stdout.contains("EDE: 22"),
        "{output}"
    );
    let time = output.stdout.lines().find_map(|line| {
        let (_, time) = line.split_once("Query time: ")?;
        time.split(' ').next()?.parse::<u64>().ok()
    });
    assert!(time.is_some_and(|time| time < 4_000), "{output}");
}

#[test]
fn a_long_answer_is_cut_for_those_who_take_less_and_whole_over_tcp() {
    let (world, _daemons) = world(1);
    let _box = yard(&world, "internet");
    let dig = |words: &str| {
        exec(
            &world,
            &format!("dig {words} big.example | grep -E 'flags:|udp:|TCP|UDP|Truncated'"),
        )
        .ok()
        .stdout
    };
    let answers = |text: &str| -> usize {
        let (_, rest) = text.split_once("ANSWER: ").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    };
    // Over UDP the world's own name server cuts it to nothing: asked by TCP.
    let whole = dig("+bufsize=4096");
    assert_eq!((answers(&whole), whole.contains("(UDP)")), (100, true));
    let asked = world.dns_log().unwrap();
    let how: Vec<bool> = asked
        .iter()
        .filter(|asked| asked.name == "big.example")
        .map(|asked| asked.tcp)
        .collect();
    assert_eq!(how, [false, true]);
    for (words, most) in [
        ("+noedns +ignore", 512),
        ("+bufsize=512 +ignore", 512),
        ("+bufsize=1232 +ignore", 1_232),
    ] {
        let cut = dig(words);
        let flags = cut.lines().find(|line| line.contains("flags:")).unwrap();
        assert!(flags.contains(" tc"), "{words}: {cut}");
        // As many as fit, and no more: an address record takes 16 octets.
        let count = answers(&cut);
        assert!(count > most / 16 / 2 && count * 16 < most, "{words}: {cut}");
        // Whoever heeds that has them all by TCP.
        let whole = dig(words.strip_suffix(" +ignore").unwrap());
        assert_eq!(answers(&whole), 100, "{whole}");
        assert!(whole.contains("(TCP)"), "{whole}");
    }
    let whole = dig("+tcp +noedns");
    assert_eq!(answers(&whole), 100, "{whole}");
}

#[test]
fn one_label_is_searched_for_as_the_node_does() {
    let (world, _daemons) = world(1);
    resolv_conf(
        &world,
        "search nowhere.example lan.example\nnameserver 192.168.1.1\n",
    );
    let script = "getent ahostsv4 printer | head -1; getent ahostsv4 intern | head -1; \
                  getent ahostsv4 nobody || echo none; cat /etc/resolv.conf; hostname; \
                  curl -sS -m 5 -o /dev/null -w '%{http_code}\n' http://intern/";
    let look = |name: &str, reach: &str| {
        let words = ["-q", "--name", name, "--reach", reach];
        boxed(&world, "n1", &words, script).stdout
    };
    let both = look("both", "internet,local");
    assert!(
        both.contains("192.168.1.9") && both.contains("93.184.216.34"),
        "{both}"
    );
    assert!(both.contains("none") && both.ends_with("200\n"), "{both}");
    // One server, no list of its own, and a host name that makes none.
    assert_eq!(both.matches("nameserver").count(), 1, "{both}");
    assert!(!both.contains("search"), "{both}");
    let local = look("local", "local");
    assert!(
        local.contains("192.168.1.9") && !local.contains("93.184.216.34"),
        "{local}"
    );
    // A name that is granted whole is what one label may become, and no other.
    let named = look("named", "intern.lan.example");
    assert!(
        !named.contains("192.168.1.9") && named.contains("93.184.216.34"),
        "{named}"
    );
    assert!(named.ends_with("200\n"), "{named}");
    let rows = flows(&world, "n1", "named");
    let asked: Vec<&Value> = rows
        .iter()
        .filter(|row| row["kind"] == "name")
        .map(|row| &row["dst_host"])
        .collect();
    assert!(
        asked.iter().all(|host| *host == "intern.lan.example"),
        "{rows:#?}"
    );
    let flow = rows.iter().find(|row| row["kind"] == "flow").unwrap();
    assert_eq!(flow["dst_host"], "intern.lan.example");
}
