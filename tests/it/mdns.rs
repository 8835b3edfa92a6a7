//! Multicast and broadcast: refused with one entry, but for the questions of
//! multicast DNS where the reach has `mdns`.

use bailey_tests::{Running, TestWorld};
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, flows, world};

/// The printer's responder (RFC 6762 §6.7), and two that must not be heard: one
/// that is not on the link, and one on it at another port.
const RESPONDER: &str = r#"
import socket, struct
GROUP = socket.inet_aton('224.0.0.251')
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
heard.bind(('', 5353))
heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, GROUP + socket.inet_aton('192.168.1.9'))
def at(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((address, port))
    return s
afar, other, printer = at('93.184.216.34', 5353), at('192.168.1.9', 5354), at('192.168.1.9', 5353)
print('listening', flush=True)
while True:
    # The newer socket of an address has what is sent to it alone.
    asked, who = heard.recvfrom(9000)
    if asked[2] & 0x80: continue
    print('asked by', who[0], flush=True)
    name = asked[12:asked.index(b'\0', 12) + 5]
    answer = asked[:2] + b'\x84\0' + struct.pack('!4H', 1, 1, 0, 0) + name
    answer += b'\xc0\x0c\0\1\0\1' + struct.pack('!IH', 10, 4) + socket.inet_aton('192.168.1.9')
    for s, mark in (afar, b'afar'), (other, b'other'), (printer, b''): s.sendto(answer + mark, who)
"#;

/// What boxes' scripts share: a question for `printer.local`, and its answers.
const ASK: &str = r#"
import socket, struct, sys, time
question = b'\x12\x34\0\0\0\1\0\0\0\0\0\0\7printer\5local\0\0\1\0\1'
def ask(to, data=question, count=1):
    s = socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.settimeout(1)
    for _ in range(count): s.sendto(data, to)
    said = []
    try:
        while True: said.append(s.recvfrom(2048))
    except OSError: return said
"#;

fn python(script: &str) -> String {
    format!("python3 -c \"$(cat <<'END'\n{ASK}{script}\nEND\n)\"")
}

fn responder(world: &TestWorld) -> Running {
    let mut command = world.inet_command("/usr/bin/python3");
    let running = Running::start(command.args(["-c", RESPONDER]));
    running.wait_line(LIMIT, |line| line == "listening");
    running
}

fn of_group<'a>(rows: &'a [Value], to: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["dst_ip"] == to).collect()
}

#[test]
fn a_question_is_answered_from_the_link_where_the_reach_has_mdns() {
    let (world, _daemons) = world(1);
    let responder = responder(&world);
    let script = python(
        "
said = ask(('224.0.0.251', 5353))
print([(at, data[-4:] == socket.inet_aton('192.168.1.9')) for data, at in said])
# What was learnt is granted by `local` or its address, not by this.
s = socket.socket(); s.settimeout(3)
print(s.connect_ex(('192.168.1.9', 631)))
",
    );
    let words = ["--name", "asks", "--reach", "internet,mdns"];
    let ran = boxed(&world, "n1", &words, &script).ok();
    assert_eq!(
        ran.stdout, "[(('192.168.1.9', 5353), True)]\n111\n",
        "{ran}"
    );
    // The question came from the node, as one that is answered to who asked.
    responder.wait_line(LIMIT, |line| line == "asked by 192.168.1.11");
    let rows = flows(&world, "n1", "asks");
    let asked = of_group(&rows, "224.0.0.251");
    assert_eq!(asked.len(), 1, "{rows:#?}");
    let row = asked[0];
    assert_eq!(
        (&row["kind"], &row["verdict"], &row["rule"], &row["proto"]),
        (
            &"flow".into(),
            &"allow".into(),
            &"mdns".into(),
            &"udp".into()
        )
    );
    assert_eq!(
        (&row["dst_port"], &row["dst_class"]),
        (&5353.into(), &"multicast".into())
    );
    assert_eq!(
        (&row["bytes_out"], &row["bytes_in"]),
        (&31.into(), &47.into())
    );
}

#[test]
fn a_name_of_the_link_is_asked_for_by_the_gate_where_the_reach_has_mdns() {
    let (world, _daemons) = world(1);
    let responder = responder(&world);
    let look = "getent ahostsv4 printer.local | head -1 | cut -d' ' -f1; \
                curl -sS -m 5 -o /dev/null http://printer.local/ 2>/dev/null; echo $?";
    let told = |name: &str, reach: &str| {
        let ran = boxed(&world, "n1", &["--name", name, "--reach", reach], look);
        (ran.stdout.clone(), ran)
    };
    // Without the word nobody is asked, and the word is named.
    let (said, ran) = told("deaf", "internet,local");
    assert_eq!(said, "6\n", "{ran}");
    assert!(ran.stderr.contains("bailey allow deaf mdns"), "{ran}");
    assert!(!responder.stdout().contains("asked by"));
    // With it, whoever is on the link is asked, and what he says is judged.
    let (said, ran) = told("asks", "mdns");
    assert_eq!(said, "6\n", "{ran}");
    responder.wait_line(LIMIT, |line| line == "asked by 192.168.1.11");
    let rows = flows(&world, "n1", "asks");
    let withheld = |row: &&Value| row["reason"] == "answer withheld" && row["dst_class"] == "local";
    assert!(rows.iter().any(|row| withheld(&row)), "{rows:#?}");
    for (name, reach) in [("yard", "mdns,local"), ("one", "mdns,192.168.1.9:80")] {
        let (said, ran) = told(name, reach);
        assert_eq!(said, "192.168.1.9\n0\n", "{reach}: {ran}");
        let rows = flows(&world, "n1", name);
        let named = |row: &&Value| row["kind"] == "flow" && row["dst_host"] == "printer.local";
        assert!(rows.iter().any(|row| named(&row)), "{rows:#?}");
        let asked = rows.iter().find(|row| row["kind"] == "name").unwrap();
        assert_eq!(asked["dst_host"], "printer.local", "{rows:#?}");
    }
    // No resolver heard of it.
    let log = world.dns_log().unwrap();
    assert!(!log.iter().any(|asked| asked.name.ends_with("local")));
}

#[test]
fn what_claims_a_name_does_not_leave_the_box() {
    let (world, _daemons) = world(1);
    let script = python(
        r"
answer = b'\0\0\x84\0\0\0\0\1\0\0\0\0\7printer\5local\0\0\1\x80\1' + struct.pack('!IH', 120, 4)
print(ask(('224.0.0.251', 5353), answer + socket.inet_aton('192.168.1.11'), 3))
",
    );
    let words = ["--name", "tells", "--reach", "mdns"];
    let ran = boxed(&world, "n1", &words, &script).ok();
    assert_eq!(ran.stdout, "[]\n", "{ran}");
    let rows = flows(&world, "n1", "tells");
    let rows = of_group(&rows, "224.0.0.251");
    assert_eq!(rows[0]["reason"], "protocol not carried", "{rows:#?}");
    assert_eq!(rows[0]["kind"], "refused");
    let seen = world.witness().unwrap();
    let group = |seen: &&bailey_world::Seen| seen.dst.ip().is_multicast();
    assert!(!seen.iter().any(|seen| group(&seen)), "{seen:?}");
}

#[test]
fn other_groups_and_broadcasts_are_refused_at_once_with_one_entry_each() {
    let (world, _daemons) = world(1);
    let _responder = responder(&world);
    let sockets = |world: &TestWorld| {
        let counted = world
            .sh("n1", "cat /proc/net/udp /proc/net/udp6 | wc -l")
            .ok();
        counted.stdout.trim().parse::<u32>().unwrap()
    };
    let before = sockets(&world);
    let script = python(
        "
for to in TO: print(len(ask(to, count=20)))
print('asked', flush=True); time.sleep(60)
",
    );
    for (name, reach, to) in [
        (
            "public",
            "internet",
            "('224.0.0.251', 5353), ('ff02::fb', 5353)",
        ),
        (
            "all",
            "internet,local,mdns",
            "('239.255.255.250', 1900), ('255.255.255.255', 9), ('192.168.1.255', 9)",
        ),
    ] {
        let script = script.replace("in TO:", &format!("in ({to}):"));
        let words = ["--name", name, "--reach", reach];
        let running = attached(&world, "n1", &words, &script);
        running.wait_line(LIMIT, |line| line == "asked");
        assert!(!running.stdout().contains('1'), "{}", running.stdout());
        // No socket of the gate's is left open for them, or was made.
        assert_eq!(sockets(&world), before, "{name}");
        let _stopped = world.run("n1", &["stop", name]).ok();
        let ended = running.finish(LIMIT);
        let rows = flows(&world, "n1", name);
        for to in to.split("('").skip(1) {
            let to = to.split('\'').next().unwrap();
            let rows = of_group(&rows, to);
            // The first is told at once, the others are one count.
            assert!((1..=2).contains(&rows.len()), "{to}: {rows:#?}");
            let times: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
            assert_eq!(times, 20, "{to}: {rows:#?}");
            assert_eq!(
                (&rows[0]["kind"], &rows[0]["reason"]),
                (&"refused".into(), &"multicast".into())
            );
        }
        let why = world.run("n1", &["why", name, "224.0.0.251:5353/udp"]).ok();
        let named = if name == "public" {
            "--reach internet,mdns"
        } else {
            "mdns"
        };
        assert!(why.stdout.contains(named), "{why}");
        let hint = ended.stderr.contains("would be granted by --reach …,mdns");
        assert_eq!(hint, name == "public", "{ended}");
    }
    let seen = world.witness().unwrap();
    let group = |seen: &&bailey_world::Seen| [1900, 5353, 9].contains(&seen.dst.port());
    assert!(!seen.iter().any(|seen| group(&seen)), "{seen:?}");
}
