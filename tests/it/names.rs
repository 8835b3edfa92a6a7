//! The names of flows: what a ClientHello is for, held against the reach.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use bailey_tests::{Output, TestWorld};
use bailey_world::at;
use serde_json::Value;

use crate::common::{boxed, flows, world};

/// Two names of the world that share an address with TLS on port 443.
const GRANTED: &str = "realtime.example";
const OTHER: &str = "third.example";

/// What the scripts of boxes share: TLS to the shared address for any name, and
/// a ClientHello's bytes.
const PRELUDE: &str = r#"
import socket, ssl, sys, time
address = socket.gethostbyname('realtime.example')
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def talk(stream, line=b'GET / HTTP/1.0\r\nHost: x\r\n\r\n'):
    stream.sendall(line)
    parts = []
    while part := stream.recv(4096): parts.append(part)
    return b''.join(parts).split(b'\r\n')[0].decode()
def tls(name):
    begun = time.monotonic()
    try:
        with socket.create_connection((address, 443), 5) as stream:
            with context.wrap_socket(stream, server_hostname=name) as inner: return talk(inner)
    except OSError as error:
        return f'{type(error).__name__} {"at once" if time.monotonic() - begun < 0.1 else "late"}'
def hello(name):
    out = ssl.MemoryBIO()
    try: context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: return bytearray(out.read())
"#;

/// Runs Python behind the prelude in a box of this reach.
#[track_caller]
fn python(world: &TestWorld, name: &str, reach: &str, script: &str) -> Output {
    let script = format!("{PRELUDE}{script}");
    let words = [
        "run", "--name", name, "--reach", reach, "--", "python3", "-c", &script,
    ];
    world.run("n1", &words).ok()
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter()
        .filter(|row| row["kind"] == kind && row["proto"] != "dns")
        .collect()
}

#[test]
fn a_named_grant_on_a_shared_address_refuses_another_hosts_hello() {
    let (world, _daemons) = world(1);
    let script = "for name in ['realtime.example', *['third.example'] * 20]: print(tls(name))";
    let reach = "realtime.example:443";
    let output = python(&world, "yard", reach, script);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.first(), Some(&"HTTP/1.1 200 OK"), "{output}");
    assert_eq!(lines[1..], ["ConnectionResetError at once"; 20], "{output}");
    let told = "refused tcp third.example (151.101.1.69:443): internet, hello for another host";
    assert!(output.stderr.contains(told), "{output}");
    let hint = "would be granted by --reach …,third.example:443";
    assert!(output.stderr.contains(hint), "{output}");
    let rows = flows(&world, "n1", "yard");
    let refused = of_kind(&rows, "refused");
    let times: u64 = refused
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(times, 20, "{rows:#?}");
    for row in refused {
        assert_eq!(row["reason"], "hello for another host");
        assert_eq!(
            (&row["dst_host"], &row["host_from"]),
            (&OTHER.into(), &"sni".into())
        );
        assert_eq!(row["dst_ip"], at::SHARED_V4.to_string());
    }
    let dialled = of_kind(&rows, "flow");
    assert_eq!(dialled.len(), 21, "{rows:#?}");
    for row in &dialled {
        assert_eq!(
            (&row["dst_host"], &row["host_from"]),
            (&GRANTED.into(), &"dns".into())
        );
    }
    // Its own name is proven, and nothing of another host's went out.
    let first = dialled.first().unwrap();
    assert_eq!(
        (&first["sni"], &first["end"]),
        (&Value::Null, &"closed".into())
    );
    for row in &dialled[1..] {
        assert_eq!(
            (&row["end"], &row["bytes_out"]),
            (&"refused".into(), &0.into())
        );
    }
}

#[test]
fn another_hosts_hello_passes_where_that_host_or_any_address_is_granted() {
    let (world, _daemons) = world(1);
    let script = "print(tls('third.example'))";
    for (name, reach) in [
        ("both", "realtime.example:443,third.example:443"),
        ("below", "realtime.example:443,*.example:443"),
        ("prefix", "151.101.0.0/16,realtime.example:80"),
        ("any", "internet"),
    ] {
        let output = python(&world, name, reach, script);
        assert_eq!(output.stdout, "HTTP/1.1 200 OK\n", "{name}: {output}");
        let rows = flows(&world, "n1", name);
        let row = of_kind(&rows, "flow")[0];
        assert_eq!(
            (&row["dst_host"], &row["host_from"]),
            (&GRANTED.into(), &"dns".into())
        );
        assert_eq!(
            (&row["sni"], &row["tls_sni"]),
            (&"named".into(), &OTHER.into()),
            "{name}"
        );
        let shown = world.run("n1", &["flows", name]).ok().stdout;
        assert!(shown.contains("sni: third.example"), "{shown}");
    }
}

#[test]
fn a_flow_without_a_looked_up_name_is_named_by_its_hello() {
    let (world, _daemons) = world(1);
    let address = at::SHARED_V4;
    let script = format!("curl -sSk --resolve {OTHER}:443:{address} https://{OTHER}/");
    let output = boxed(&world, "n1", &["-q", "--name", "yard"], &script).ok();
    assert_eq!(output.stdout, format!("hello from {OTHER}\n"));
    let rows = flows(&world, "n1", "yard");
    let row = of_kind(&rows, "flow")[0];
    assert_eq!(
        (&row["dst_host"], &row["host_from"], &row["tls_sni"]),
        (&OTHER.into(), &"sni".into(), &OTHER.into())
    );
    let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
    assert!(shown.contains("third.example (sni)"), "{shown}");
}

#[test]
fn what_names_no_host_passes_a_named_grant_and_says_so() {
    let (world, _daemons) = world(1);
    let script = "
print(tls(None))
with socket.create_connection((address, 80), 5) as stream: print(talk(stream))
";
    let output = python(&world, "yard", GRANTED, script);
    assert_eq!(
        output.stdout, "HTTP/1.1 200 OK\nHTTP/1.1 200 OK\n",
        "{output}"
    );
    let rows = flows(&world, "n1", "yard");
    let dialled = of_kind(&rows, "flow");
    assert_eq!(dialled.len(), 2);
    for row in dialled {
        assert_eq!(
            (&row["sni"], &row["tls_sni"]),
            (&"unproven".into(), &Value::Null)
        );
        assert_eq!(
            (&row["dst_host"], &row["end"]),
            (&GRANTED.into(), &"closed".into())
        );
    }
    let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
    assert_eq!(shown.matches("name unproven").count(), 2, "{shown}");
    // With any address granted there is no name to prove.
    let output = python(&world, "open", "internet", script);
    assert_eq!(output.stdout.lines().count(), 2, "{output}");
    let rows = flows(&world, "n1", "open");
    assert!(rows.iter().all(|row| row["sni"].is_null()), "{rows:#?}");
}

#[test]
fn a_server_that_speaks_first_is_heard_at_once_under_a_named_grant() {
    let (world, _daemons) = world(1);
    let script = "
for _ in range(10):
    begun = time.monotonic()
    with socket.create_connection((address, 19), 5) as stream:
        there = time.monotonic()
        heard = stream.recv(1)
        print(len(heard), time.monotonic() - there < 2 * (there - begun) + 0.05)
";
    let output = python(&world, "yard", "realtime.example:19", script);
    assert_eq!(output.stdout, "1 True\n".repeat(10), "{output}");
    let rows = flows(&world, "n1", "yard");
    let dialled = of_kind(&rows, "flow");
    assert_eq!(dialled.len(), 10);
    assert!(
        dialled.iter().all(|row| row["sni"] == "unproven"),
        "{rows:#?}"
    );
}

#[test]
fn a_dribbled_or_broken_hello_does_not_get_its_name_through() {
    let (world, _daemons) = world(1);
    let script = "
def send(data, size, pause):
    with socket.create_connection((address, 443), 5) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for at in range(0, len(data), size):
                stream.sendall(data[at:at + size]); time.sleep(pause)
            return 'answered' if stream.recv(1) else 'ended'
        except OSError as error: return type(error).__name__
for name in ['realtime.example', 'third.example']:
    print(send(hello(name), 1, 0.001), send(hello(name), 100, 0.2))
    # Two records.
    data = hello(name)
    body = data[5:]
    parted = b''.join(b'\\x16\\x03\\x01' + len(part).to_bytes(2, 'big') + part for part in (body[:60], body[60:]))
    print(send(parted, len(parted), 0))
print(send(hello('realtime.example').replace(b'realtime', b'real\\x1b[2J'), 9999, 0))
";
    let output = python(&world, "yard", "realtime.example:443", script);
    let reset = "ConnectionResetError";
    assert_eq!(
        output.stdout,
        format!("answered answered\nanswered\n{reset} {reset}\n{reset}\n{reset}\n"),
        "{output}"
    );
    let rows = flows(&world, "n1", "yard");
    let reasons: Vec<&Value> = of_kind(&rows, "refused")
        .iter()
        .map(|row| &row["reason"])
        .collect();
    assert!(reasons.contains(&&"unreadable hello".into()), "{rows:#?}");
    assert!(
        reasons.contains(&&"hello for another host".into()),
        "{rows:#?}"
    );
}

#[test]
fn an_encrypted_hello_is_said_to_be_one() {
    let (world, _daemons) = world(1);
    // As browsers send it with nothing to hide: something random in the extension.
    let script = "
data = hello('realtime.example')
random = b'\\x00\\x20' + bytes(32)
extension = b'\\xfe\\x0d\\x00\\x4a\\x00\\x00\\x01\\x00\\x01\\x07' + random + random
sid = 43; suites = sid + 1 + data[sid]
compression = suites + 2 + int.from_bytes(data[suites:suites + 2], 'big')
extensions = compression + 1 + data[compression]
for at, size in (3, 2), (6, 3), (extensions, 2):
    data[at:at + size] = (int.from_bytes(data[at:at + size], 'big') + len(extension)).to_bytes(size, 'big')
with socket.create_connection((address, 443), 5) as stream:
    stream.sendall(data + extension)
    print(stream.recv(3)[0])
";
    for (name, reach) in [("named", "realtime.example:443"), ("any", "internet")] {
        let output = python(&world, name, reach, script);
        assert_eq!(output.stdout, "22\n", "{output}");
        let rows = flows(&world, "n1", name);
        let row = of_kind(&rows, "flow")[0];
        assert_eq!(
            (&row["sni"], &row["dst_host"]),
            (&"encrypted".into(), &GRANTED.into())
        );
        let shown = world.run("n1", &["flows", name]).ok().stdout;
        assert!(shown.contains("sni: encrypted"), "{shown}");
    }
}

/// The datagrams that a client of QUIC begins a connection to this host with.
fn first_flight(host: &str) -> Vec<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let connecting = endpoint.connect_with(config, to, host).unwrap();
        // Nobody answers it.
        let _timed_out = tokio::time::timeout(Duration::from_millis(200), connecting).await;
    });
    server.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| {
        let length = server.recv(&mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    })
    .collect()
}

#[test]
fn a_named_grant_refuses_another_hosts_quic_and_passes_its_own() {
    let (world, _daemons) = world(1);
    let flight = |host| bailey_tests::fuzz::hex(&first_flight(host)[0]);
    // An echo stands for the server: what comes back has been there.
    let script = format!(
        "
def ask(data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5); udp.connect((address, 7)); begun = time.monotonic()
        try:
            udp.send(bytes.fromhex(data)); return udp.recv(2048).hex() == data
        except OSError as error: return f'{{type(error).__name__}} {{time.monotonic() - begun < 0.1}}'
print(ask('{}'))
for _ in range(5): print(ask('{}'))
print(ask('{}'))
",
        flight(GRANTED),
        flight(OTHER),
        "00010000",
    );
    let output = python(&world, "yard", "realtime.example:7", &script);
    let refused = "ConnectionRefusedError True\n".repeat(5);
    assert_eq!(output.stdout, format!("True\n{refused}True\n"), "{output}");
    let rows = flows(&world, "n1", "yard");
    let refused = of_kind(&rows, "refused");
    let times: u64 = refused
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(times, 5, "{rows:#?}");
    for row in refused {
        assert_eq!(
            (&row["proto"], &row["dst_host"]),
            (&"udp".into(), &OTHER.into())
        );
        assert_eq!(row["reason"], "hello for another host");
    }
    // What was refused was no flow; what was no QUIC is unproven.
    let said: Vec<&Value> = of_kind(&rows, "flow")
        .iter()
        .map(|row| &row["sni"])
        .collect();
    assert_eq!(said, [&Value::Null, &"unproven".into()], "{rows:#?}");
    // The control: with any address granted all of it passes, and is told.
    let output = python(&world, "open", "internet", &script);
    assert_eq!(output.stdout, "True\n".repeat(7), "{output}");
    let rows = flows(&world, "n1", "open");
    let named = of_kind(&rows, "flow");
    let other = named.iter().filter(|row| row["tls_sni"] == OTHER);
    assert_eq!(other.count(), 5, "{rows:#?}");
}
