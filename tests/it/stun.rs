//! What a call does before it begins (STUN, ICE): finds how it is seen from
//! outside, and tries every way to the other side, the LAN's too.

use crate::common::{boxed, flows, world};

/// Binding requests (RFC 8489) from one socket, and checks (RFC 8445 §2.2) to
/// where another side may be.
const PRELUDE: &str = r#"
import errno, os, socket, struct, time
COOKIE = 0x2112a442
def open(family=socket.AF_INET):
    s = socket.socket(family, socket.SOCK_DGRAM); s.bind(('', 0)); s.settimeout(3)
    s.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: errors of every far end
    return s
def binding(s, to):
    "The port that the far end sees, and how long it took; or the error."
    transaction = struct.pack('!I', COOKIE) + os.urandom(12)
    begun = time.monotonic()
    try:
        s.sendto(b'\0\1\0\0' + transaction, to)
        while True:
            said, at = s.recvfrom(2048)
            if said[:2] == b'\1\1' and said[4:20] == transaction: break
    except OSError as error:
        # What is in the queue is taken, or the next call would have it too.
        try: s.recvmsg(512, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError: pass
        name = errno.errorcode.get(error.errno, type(error).__name__)
        return name + (' at once' if time.monotonic() - begun < 0.2 else ' late')
    assert at == to, at
    kind, length, family, port, address = struct.unpack_from('!HHxBHI', said, 20)
    assert (kind, length, family) == (0x20, 8, 1)
    address = socket.inet_ntoa(struct.pack('!I', address ^ COOKIE))
    return address, port ^ (COOKIE >> 16)
STUN, OTHER, PRINTER = ('74.125.250.129', 3478), ('9.9.9.9', 3478), ('192.168.1.9', 3478)
"#;

fn python(script: &str) -> String {
    format!("python3 -c \"$(cat <<'END'\n{PRELUDE}{script}\nEND\n)\"")
}

#[test]
fn two_stun_servers_see_one_mapping_and_a_check_to_the_lan_is_refused_at_once() {
    let (world, _daemons) = world(1);
    let script = python(
        "
s = open()
print(*binding(s, STUN)); print(*binding(s, OTHER))
print(binding(s, PRINTER))
# The refused one broke nothing: the same mapping goes on.
print(*binding(s, STUN))
# Another socket has a mapping of its own.
print(*binding(open(), STUN))
",
    );
    let ran = boxed(&world, "n1", &["--name", "call"], &script).ok();
    let lines: Vec<&str> = ran.stdout.lines().collect();
    let [first, second, printer, again, other] = lines[..] else {
        panic!("{ran}")
    };
    assert_eq!(first, second, "{ran}");
    assert_eq!(first, again, "{ran}");
    assert_eq!(printer, "ECONNREFUSED at once", "{ran}");
    assert_ne!(first, other, "{ran}");
    let node = world.node("n1").unwrap().v4().to_string();
    let (address, port) = first.split_once(' ').unwrap();
    assert_eq!(address, node, "{ran}");
    assert!(
        ran.stderr
            .contains("refused udp 192.168.1.9:3478: local, outside reach"),
        "{ran}"
    );
    let rows = flows(&world, "n1", "call");
    for to in ["74.125.250.129", "9.9.9.9"] {
        let row = rows
            .iter()
            .find(|row| row["dst_ip"] == to && row["kind"] == "flow")
            .unwrap();
        assert_eq!(
            (&row["proto"], &row["verdict"], &row["dst_port"]),
            (&"udp".into(), &"allow".into(), &3478.into())
        );
        // What the entry says is what the far end saw.
        assert_eq!(row["outer_src_port"].to_string(), port, "{row:#}");
        // 20 octets of a request, 32 of an answer.
        let times = if to == "9.9.9.9" { 1 } else { 2 };
        assert_eq!(
            (&row["bytes_out"], &row["bytes_in"]),
            (&(20 * times).into(), &(32 * times).into())
        );
    }
    let refused: Vec<_> = rows
        .iter()
        .filter(|row| row["verdict"] == "refuse")
        .collect();
    assert_eq!(refused.len(), 1, "{rows:#?}");
    assert_eq!(
        (&refused[0]["dst_ip"], &refused[0]["dst_class"]),
        (&"192.168.1.9".into(), &"local".into())
    );
    // The control: the printer answers whoever may ask it.
    let script = python("print(*binding(open(), PRINTER))");
    let ran = boxed(&world, "n1", &["-q", "--reach", "local"], &script).ok();
    assert!(ran.stdout.starts_with(&node), "{ran}");
}

#[test]
fn a_stun_server_by_its_name_is_a_reach() {
    let (world, _daemons) = world(1);
    let script = python("print(binding(open(), (socket.gethostbyname('stun.example'), 3478))[0])");
    let words = ["-q", "--name", "call", "--reach", "stun.example:3478/udp"];
    let ran = boxed(&world, "n1", &words, &script).ok();
    assert_eq!(ran.stdout, "192.168.1.11\n", "{ran}");
    let words = ["--name", "call", "--reach", "stun.example:3478/tcp"];
    let ran = boxed(&world, "n1", &words, &script).ok();
    assert_eq!(ran.stdout, "E\n", "{ran}");
    let told = "refused udp stun.example (74.125.250.129:3478): internet, outside reach";
    assert!(ran.stderr.contains(told), "{ran}");
    let hint = "would be granted by --reach …,stun.example:3478/udp";
    assert!(ran.stderr.contains(hint), "{ran}");
}
