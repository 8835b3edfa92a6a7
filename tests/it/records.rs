//! What of each kind of record a box is told, and what names can carry out.

use bailey_tests::{TestWorld, wait_until};
use bailey_world::at;
use serde_json::Value;

use crate::common::{LIMIT, boxed, flows, world};

/// Runs digs in a box of this reach; what each printed, in order.
fn digs(world: &TestWorld, name: &str, reach: &str, questions: &[&str]) -> Vec<String> {
    let script: Vec<String> = questions
        .iter()
        .map(|question| format!("dig +noall +comments +answer {question}; echo ====;"))
        .collect();
    let words = ["-q", "--name", name, "--reach", reach];
    let output = boxed(world, "n1", &words, &script.join(" ")).ok();
    let parts: Vec<String> = output.stdout.split("====\n").map(str::to_owned).collect();
    assert_eq!(parts.len(), questions.len() + 1, "{output}");
    parts
}

fn reasons<'a>(rows: &'a [Value], reason: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["reason"] == reason).collect()
}

#[test]
fn texts_services_pointers_and_chains_are_told_as_they_are() {
    let (world, _daemons) = world(1);
    let questions = [
        "shop.example txt",
        "_imap._tcp.shop.example srv",
        // Before any name gave it to this box.
        "-x 93.184.216.34",
        "-x 192.168.1.9",
        "nobody.example txt",
        "alias.example a",
    ];
    let [text, service, public, private, none, chain, _] =
        &digs(&world, "yard", "internet", &questions)[..]
    else {
        unreachable!()
    };
    assert!(text.contains("\"a text of the world\""), "{text}");
    assert!(service.contains("SRV\t0 0 993 shop.example."), "{service}");
    let order = ["hop.example.", "shop.example.", "93.184.216.34"];
    let places: Vec<usize> = order.map(|part| chain.find(part).unwrap()).into();
    assert!(places.is_sorted(), "{chain}");
    assert!(public.contains("PTR\tshop.example."), "{public}");
    // Whoever owns the zone of the LAN's addresses is not asked.
    assert!(private.contains("NXDOMAIN"), "{private}");
    assert!(none.contains("NXDOMAIN"), "{none}");
    let asked = world.dns_log().unwrap();
    assert!(
        asked
            .iter()
            .all(|asked| !asked.name.ends_with("168.192.in-addr.arpa")),
        "{asked:?}"
    );
}

#[test]
fn a_named_grant_holds_the_services_of_its_name_and_the_addresses_of_its_chain() {
    let (world, _daemons) = world(1);
    let questions = [
        "_imap._tcp.shop.example srv",
        "shop.example txt",
        "shop.example any",
        "alias.example a",
        "hop.example a",
        "-x 93.184.216.34",
        "-x 151.101.1.69",
        "example a",
        "x.shop.example a",
    ];
    let reach = "shop.example,alias.example";
    let [
        service,
        text,
        any,
        chain,
        hop,
        given,
        other,
        above,
        below,
        _,
    ] = &digs(&world, "yard", reach, &questions)[..]
    else {
        unreachable!()
    };
    assert!(service.contains("993 shop.example."), "{service}");
    assert!(text.contains("a text of the world"), "{text}");
    assert!(any.contains("HINFO\t\"RFC8482\""), "{any}");
    assert!(
        chain.contains("hop.example.") && chain.contains("93.184.216.34"),
        "{chain}"
    );
    // What is on the way is not granted, and is not asked for when asked.
    assert!(hop.contains("NXDOMAIN"), "{hop}");
    // A pointer is answered from what this box was given, and only so.
    assert!(given.contains("PTR\talias.example."), "{given}");
    assert!(other.contains("NXDOMAIN"), "{other}");
    assert!(
        above.contains("NOERROR") && above.contains("ANSWER: 0"),
        "{above}"
    );
    assert!(below.contains("NXDOMAIN"), "{below}");
    let asked = world.dns_log().unwrap();
    let names: Vec<&str> = asked.iter().map(|asked| asked.name.as_str()).collect();
    let may = [
        "_imap._tcp.shop.example",
        "shop.example",
        "alias.example",
        "ipv4only.arpa",
    ];
    assert!(names.iter().all(|name| may.contains(name)), "{names:?}");
}

#[test]
fn ech_and_hints_go_where_names_must_be_proven_and_stay_with_internet() {
    let (world, _daemons) = world(1);
    let questions = [
        "https.example https",
        "https-local.example https",
        "https-mixed.example https",
    ];
    let open = digs(&world, "open", "internet", &questions);
    let has = |text: &str, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    assert!(
        has(&open[0], &["alpn=\"h2\"", "ipv4hint=93.184.216.34", "ech="]),
        "{}",
        open[0]
    );
    // A hint is an address: what may not be dialled is not told.
    assert!(has(&open[1], &["alpn=\"h2\"", "ech="]), "{}", open[1]);
    assert!(!open[1].contains("ipv4hint"), "{}", open[1]);
    assert!(
        has(&open[2], &["ipv4hint=93.184.216.34", "ech="]),
        "{}",
        open[2]
    );
    assert!(!open[2].contains("192.168.1.9"), "{}", open[2]);
    let rows = flows(&world, "n1", "open");
    let withheld = reasons(&rows, "answer withheld");
    assert_eq!(withheld.len(), 2, "{rows:#?}");
    assert!(withheld.iter().all(|row| row["dst_class"] == "local"));
    let reach = "https.example:443,https-local.example";
    let named = digs(&world, "named", reach, &questions[..2]);
    for text in &named[..2] {
        assert!(has(text, &["NOERROR", "alpn=\"h2\""]), "{text}");
        assert!(!text.contains("ech=") && !text.contains("hint"), "{text}");
    }
    // The report says so, and only where it is so.
    let report = |name: &str| world.run("n1", &["report", name]).ok().stdout;
    let said = "ECH is taken out of answers";
    assert!(report("named").contains(said), "{}", report("named"));
    assert!(!report("open").contains(said), "{}", report("open"));
}

#[test]
fn answers_that_would_lead_inside_are_withheld_and_entered() {
    let (world, _daemons) = world(1);
    for (name, records) in [
        ("zero.example", &["0.0.0.0"][..]),
        ("private.example", &["10.0.0.5", "fd00::1"]),
        ("wrapped.example", &["64:ff9b::a00:1", "::ffff:127.0.0.1"]),
        ("link.example", &["169.254.7.7", "fe80::7"]),
        ("cloud.example", &["168.63.129.16", "fd00:ec2::254"]),
    ] {
        world.set_name(name, records).unwrap();
    }
    let questions = [
        "zero.example a",
        "private.example a",
        "private.example aaaa",
        "wrapped.example aaaa",
        "link.example a",
        "link.example aaaa",
        "cloud.example a",
        "cloud.example aaaa",
        "rebind-mixed.example a",
    ];
    for (name, reach) in [("open", "internet"), ("named", "*.example")] {
        let told = digs(&world, name, reach, &questions);
        for (text, question) in told.iter().zip(&questions[..8]) {
            assert!(
                text.contains("NOERROR") && text.contains("ANSWER: 0"),
                "{question}: {text}"
            );
            assert!(
                text.contains("EDE: 15") && text.contains("answer was a"),
                "{question}: {text}"
            );
        }
        assert!(
            told[8].contains("93.184.216.34") && !told[8].contains("192.168.1.9"),
            "{}",
            told[8]
        );
        let rows = flows(&world, "n1", name);
        let withheld = reasons(&rows, "answer withheld");
        let classes = ["reserved", "local", "private", "loopback", "metadata"];
        for class in classes {
            let of_class = withheld.iter().any(|row| row["dst_class"] == class);
            assert!(of_class || class == "reserved", "{class}: {withheld:#?}");
        }
        assert!(withheld.len() >= 6, "{withheld:#?}");
        // And a dial by number is refused all the same.
        let dials = "for to in 10.0.0.5 0.0.0.0 168.63.129.16 '[64:ff9b::a00:1]' '[fd00:ec2::254]'; do \
                     curl -g -sS -m 5 -o /dev/null http://$to/; echo $?; done";
        let name = format!("{name}-dial");
        let words = ["-q", "--name", &name, "--reach", reach];
        let output = boxed(&world, "n1", &words, dials);
        assert_eq!(output.stdout, "7\n".repeat(5), "{output}");
    }
}

#[test]
fn a_refused_name_of_the_web_is_granted_by_its_port() {
    let (world, _daemons) = world(1);
    let script = "for kind in a aaaa https; do dig +short web.example $kind; done; \
                  dig +short plain.example a; sleep 1; cat /run/bailey/refusals";
    let words = ["--name", "yard", "--reach", "shop.example"];
    let output = boxed(&world, "n1", &words, script).ok();
    for (text, web, plain) in [
        (
            &output.stdout,
            "bailey allow yard web.example:443\n",
            "bailey allow yard plain.example\n",
        ),
        (
            &output.stderr,
            "--reach …,web.example:443\n",
            "--reach …,plain.example\n",
        ),
    ] {
        // How often it was refused may stand between.
        let has = |words: &str| text.replace("  ×3", "").contains(words);
        assert!(has(web) && has(plain), "{output}");
    }
}

/// Asks for this many different names below a zone, as a tunnel does.
fn tunnel(world: &TestWorld, name: &str, reach: &str, count: usize) -> String {
    let script = format!(
        "
import os, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('9.9.9.9', 53))
codes = []
for n in range({count}):
    labels = [os.urandom(31).hex()[:62].encode(), b'wild', b'example']
    q = b''.join(bytes([len(l)]) + l for l in labels) + b'\\0'
    kind = (16, 10, 1, 28, 5)[n % 5]
    s.send(struct.pack('>6H', n, 256, 1, 0, 0, 0) + q + struct.pack('>2H', kind, 1))
    codes.append(s.recv(4096)[3] & 15)
print(sorted(set(codes)), len(codes))
"
    );
    let words = [
        "run", "-q", "--name", name, "--reach", reach, "--", "python3", "-c", &script,
    ];
    world.run("n1", &words).ok().stdout
}

#[test]
fn what_names_would_carry_ends_at_the_gate_and_is_counted_by_zone() {
    let (world, _daemons) = world(1);
    let before = world.witness().unwrap().len();
    let said = tunnel(&world, "named", "shop.example", 45);
    assert_eq!(said, "[3] 45\n");
    let rows = flows(&world, "n1", "named");
    let refused = reasons(&rows, "name outside reach");
    let zone: Vec<_> = refused
        .iter()
        .filter(|row| row["dst_host"] == "*.wild.example" || row["dst_host"] == "*.example")
        .collect();
    let counted: u64 = zone.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    let all: u64 = refused
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(all, 45, "{rows:#?}");
    assert!(counted >= 28 && refused.len() <= 18, "{rows:#?}");
    // Not one packet of it left. (The node itself asks for ipv4only.arpa.)
    let asked = world.dns_log().unwrap();
    let left: Vec<_> = asked
        .iter()
        .filter(|asked| asked.name != "ipv4only.arpa")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let seen = world.witness().unwrap();
    let others = seen[before..].iter().filter(|seen| seen.dst.port() != 53);
    assert_eq!(others.count(), 0);
    // With `internet` each is asked, after an entry of its own, and their number
    // is an entry too.
    let said = tunnel(&world, "open", "internet", 45);
    assert!(said.ends_with("45\n"), "{said}");
    let rows = flows(&world, "n1", "open");
    let names: Vec<&str> = rows
        .iter()
        .filter(|row| row["kind"] == "name")
        .map(|row| row["dst_host"].as_str().unwrap())
        .collect();
    let asked = world.dns_log().unwrap();
    for asked in asked.iter().filter(|asked| asked.name != "ipv4only.arpa") {
        assert!(names.contains(&asked.name.as_str()), "{asked:?}");
    }
    let of_zone = rows
        .iter()
        .find(|row| row["dst_host"] == "*.wild.example")
        .unwrap();
    assert_eq!(
        (&of_zone["count"], &of_zone["reason"]),
        (&45.into(), &"different names".into())
    );
    let shown = wait_until(LIMIT, || {
        let text = world.run("n1", &["flows", "open"]).ok().stdout;
        text.contains("*.wild.example") && text.contains("different names · ×45")
    });
    assert!(shown);
}

#[test]
fn encrypted_name_servers_are_flows_like_others() {
    let (world, _daemons) = world(1);
    // By TLS at 853 (RFC 7858), by HTTPS at 443 (RFC 8484): what is learned there
    // was never looked up here. The canary says to browsers not to begin with it.
    let script = "
import socket, ssl
context = ssl.create_default_context(); context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for host, port in ('9.9.9.9', 853), ('151.101.1.69', 443):
    with socket.create_connection((host, port), 5) as s, context.wrap_socket(s, server_hostname='third.example') as t:
        t.sendall(b'GET / HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n'); print(t.recv(12).decode())
with socket.create_connection(('93.184.216.34', 80), 5): print('dialled')
try: socket.getaddrinfo('use-application-dns.net', 443); print('no canary')
except socket.gaierror as error: print(error.errno == socket.EAI_NONAME)
";
    let words = ["run", "-q", "--name", "yard", "--", "python3", "-c", script];
    let output = world.run("n1", &words).ok();
    assert_eq!(
        output.stdout, "HTTP/1.1 200\nHTTP/1.1 200\ndialled\nTrue\n",
        "{output}"
    );
    let rows = flows(&world, "n1", "yard");
    let flow = |ip: String, port: u16| {
        rows.iter()
            .find(|row| row["kind"] == "flow" && row["dst_ip"] == ip && row["dst_port"] == port)
            .unwrap_or_else(|| panic!("{ip}: {rows:#?}"))
    };
    for row in [
        flow(at::RESOLVER_V4.to_string(), 853),
        flow(at::SHARED_V4.to_string(), 443),
    ] {
        assert_eq!(
            (&row["host_from"], &row["dst_host"]),
            (&"sni".into(), &"third.example".into())
        );
    }
    let row = flow(at::WEB_V4.to_string(), 80);
    assert_eq!(
        (&row["host_from"], &row["dst_host"]),
        (&Value::Null, &Value::Null)
    );
    let asked = world.dns_log().unwrap();
    let asked = asked.iter().filter(|asked| asked.name != "ipv4only.arpa");
    assert_eq!(asked.count(), 0);
    // Under a named reach neither is there.
    let script =
        "for to in 9.9.9.9:853 151.101.1.69:443; do curl -sk -m 5 https://$to/; echo $?; done";
    let words = ["-q", "--reach", "shop.example"];
    let output = boxed(&world, "n1", &words, script).ok();
    assert_eq!(output.stdout, "7\n7\n", "{output}");
}
