//! What is written down, and that nothing goes out before it is.

use bailey_tests::wait_until;
use bailey_world::{SeenKind, at};
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, flows, row_of, stop, world};

fn find(rows: &[Value], wanted: impl Fn(&Value) -> bool) -> &Value {
    rows.iter()
        .find(|row| wanted(row))
        .unwrap_or_else(|| panic!("no such row in {rows:#?}"))
}

#[test]
fn an_allowed_flow_is_one_row_with_its_bytes_and_its_end() {
    let (world, _daemons) = world(1);
    let script = "curl -sS -o /dev/null -w '%{size_download}' http://shop.example/bytes/100000";
    let output = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard", "--reach", "shop.example:80"],
        script,
    )
    .ok();
    assert_eq!(output.stdout, "100000");
    let rows = flows(&world, "n1", "yard");
    let flow = find(&rows, |row| row["kind"] == "flow");
    assert_eq!(flow["verdict"], "allow");
    assert_eq!(
        (&flow["proto"], &flow["dst_host"], &flow["host_from"]),
        (&"tcp".into(), &"shop.example".into(), &"dns".into())
    );
    assert_eq!(
        (&flow["dst_class"], &flow["dst_port"]),
        (&"internet".into(), &80.into())
    );
    assert_eq!(flow["rule"], "shop.example:80");
    assert!(flow["bytes_in"].as_u64().unwrap() > 100_000, "{flow}");
    assert!(flow["bytes_out"].as_u64().unwrap() > 50 && flow["duration_s"].as_f64().unwrap() > 0.0);
    assert!(
        flow["outer_src_port"].as_u64().unwrap() > 0 && flow["end"].is_string(),
        "{flow}"
    );
    assert_eq!(rows.first().unwrap()["kind"], "started");
    assert_eq!(rows.last().unwrap()["end"], "exited 0");
    // Numbers without holes, though a flow's end is folded into its row.
    let name = find(&rows, |row| row["kind"] == "name");
    assert_eq!(
        (&name["dst_host"], &name["verdict"]),
        (&"shop.example".into(), &"allow".into())
    );
    // With it what it was answered, by which the flow went.
    let name = find(&rows, |row| row["kind"] == "name" && row["qtype"] == "A");
    assert_eq!(
        (&name["rcode"], &name["end"]),
        (&"NOERROR".into(), &"answered".into()),
        "{name}"
    );
    let answers = name["answers"].as_array().unwrap();
    let to = answers.contains(&flow["dst_ip"]) || flow["dst_ip"].as_str().unwrap().contains(':');
    assert!(to && name["ttl"].as_u64().unwrap() > 0, "{name}");
}

#[test]
fn what_a_name_was_answered_is_entered_whatever_it_was() {
    let (world, _daemons) = world(1);
    let script = "for name in shop.example none.example; do \
                  getent ahostsv4 $name >/dev/null; done; true";
    let words = ["-q", "--name", "yard", "--reach", "internet"];
    let mut following = Vec::new();
    let _ran = boxed(&world, "n1", &words, script).ok();
    let rows = flows(&world, "n1", "yard");
    let of = |host: &str| {
        let named = |row: &Value| row["kind"] == "name" && row["dst_host"] == host;
        let row = find(&rows, |row| named(row) && row["qtype"] == "A");
        (row["rcode"].clone(), row["end"].clone())
    };
    assert_eq!(of("shop.example"), ("NOERROR".into(), "answered".into()));
    assert_eq!(
        of("none.example"),
        ("NXDOMAIN".into(), "no such name".into())
    );
    // For whoever follows, the answer is a row of its own.
    let bailey = bailey_tests::binaries().join("bailey");
    let script = format!(
        "timeout 2 {} flows yard --follow --json; true",
        bailey.display()
    );
    for row in world.sh("n1", &script).ok().json() {
        following.push((row["kind"].clone(), row["dst_host"].clone()));
    }
    for kind in ["name", "answer"] {
        let wanted = (Value::from(kind), Value::from("shop.example"));
        assert!(following.contains(&wanted), "{following:?}");
    }
}

#[test]
fn what_a_box_is_granted_is_entered_behind_its_start() {
    let (world, _daemons) = world(1);
    let home = world.node("n1").unwrap().home();
    let (real, link) = (home.join("real"), home.join("link"));
    let (real, link) = (real.to_str().unwrap(), link.to_str().unwrap());
    let script = format!(
        "mkdir {real} && ln -s {real} {link} && echo x > {home}/file",
        home = home.display()
    );
    let _made = world.sh("n1", &script).ok();
    let (folder, file) = (format!("{link}:rw"), format!("{}/file", home.display()));
    let words = ["-q", "--name", "yard", "--grant", &folder, "--grant", &file];
    let script = format!("echo said > {real}/said");
    let _ran = boxed(&world, "n1", &words, &script).ok();
    let rows = flows(&world, "n1", "yard");
    let kinds: Vec<&Value> = rows.iter().take(3).map(|row| &row["kind"]).collect();
    assert_eq!(kinds, ["started", "granted", "granted"]);
    assert_eq!(rows[1]["rule"], format!("{real}:rw"));
    assert_eq!(rows[1]["reason"], format!("folder {real}:rw, as {link}"));
    assert_eq!(rows[2]["rule"], format!("{file}:ro"));
    assert_eq!(rows[2]["reason"], format!("file {file}:ro"));
    let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
    assert!(shown.contains(&format!("folder {real}:rw")), "{shown}");
}

#[test]
fn tcp_and_udp_of_both_families_pass_and_are_entered() {
    let (world, _daemons) = world(1);
    let script = format!(
        "for to in 'AF_INET {v4}' 'AF_INET6 {v6}'; do for kind in SOCK_STREAM SOCK_DGRAM; do set -- $to; \
         python3 -c \"import socket; s=socket.socket(socket.$1, socket.$kind); s.settimeout(5); \
         s.connect(('$2', 7)); s.send(b'hello'); print('$1', '$kind', s.recv(9).decode())\"; done; done",
        v4 = at::WEB_V4,
        v6 = at::WEB_V6,
    );
    let output = boxed(&world, "n1", &["-q", "--name", "yard"], &script);
    assert_eq!(output.stdout.matches("hello").count(), 4, "{output}");
    let rows = flows(&world, "n1", "yard");
    for (proto, ip) in [
        ("tcp", at::WEB_V4.to_string()),
        ("udp", at::WEB_V4.to_string()),
        ("tcp", at::WEB_V6.to_string()),
        ("udp", at::WEB_V6.to_string()),
    ] {
        let flow = find(&rows, |row| {
            row["proto"] == proto && row["dst_ip"] == *ip && row["kind"] == "flow"
        });
        assert_eq!(
            (&flow["bytes_out"], &flow["bytes_in"]),
            (&5.into(), &5.into()),
            "{flow}"
        );
        assert_eq!(
            flow["host_from"],
            Value::Null,
            "it was never looked up here"
        );
    }
}

#[test]
fn what_is_refused_is_refused_at_once_and_nothing_of_it_leaves() {
    let (world, _daemons) = world(1);
    // The control: outside the box the printer answers.
    assert!(
        world
            .sh("n1", "curl -sS -m 5 -o /dev/null http://192.168.1.9/")
            .code
            == Some(0)
    );
    // The node itself asks its name server for the network's prefixes.
    let seen = || {
        let mut seen = world.witness().unwrap();
        seen.retain(|seen| seen.dst.port() != 53);
        seen
    };
    let before = seen().len();
    let script = r#"
import socket, time, errno
def tcp(ip, port):
    s = socket.socket(socket.AF_INET6 if ':' in ip else socket.AF_INET)
    s.settimeout(5); t = time.monotonic()
    try: s.connect((ip, port)); r = 'connected'
    except OSError as e: r = errno.errorcode.get(e.errno, str(e))
    print('tcp', ip, r, time.monotonic() - t < 1)
def udp(ip, port):
    s = socket.socket(socket.AF_INET6 if ':' in ip else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(5); t = time.monotonic(); s.connect((ip, port)); s.send(b'x')
    try: s.recv(9); r = 'answered'
    except OSError as e: r = errno.errorcode.get(e.errno, str(e))
    print('udp', ip, r, time.monotonic() - t < 1)
for ip in ['192.168.1.9', '192.168.1.1', '192.168.1.11', '10.1.2.3', '169.254.169.254', '100.64.0.1', '0.0.0.1', '240.0.0.1',
           'fd12:3456:789a:1::1', '2600:1f18:aaaa:1::1', '64:ff9b::c0a8:109', '2002:c0a8:0109::1']:
    tcp(ip, 80); udp(ip, 7)
"#;
    let output = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard"],
        &format!("python3 -c \"{}\"", script.replace('"', "'")),
    );
    let output = output.ok();
    for line in output.stdout.lines() {
        let prompt = line.ends_with("True");
        let refused = line.contains("ECONNREFUSED");
        assert!(prompt && refused, "{line}\n{output}");
    }
    assert!(output.stdout.lines().count() >= 24, "{output}");
    let rows = flows(&world, "n1", "yard");
    for (ip, class) in [
        ("192.168.1.9", "local"),
        ("192.168.1.11", "local"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "private"),
        ("169.254.169.254", "metadata"),
        ("2600:1f18:aaaa:1::1", "local"),
        ("240.0.0.1", "reserved"),
    ] {
        for proto in ["tcp", "udp"] {
            let row = find(&rows, |row| row["dst_ip"] == ip && row["proto"] == proto);
            assert_eq!(
                (&row["verdict"], &row["dst_class"]),
                (&"refuse".into(), &class.into()),
                "{row}"
            );
        }
    }
    let seen = seen();
    assert_eq!(seen.len(), before, "packets left: {:?}", seen.get(before..));
    let named = world.dns_log().unwrap().into_iter();
    assert_eq!(
        named.filter(|asked| asked.name != "ipv4only.arpa").count(),
        0
    );
}

#[test]
fn a_name_outside_reach_does_not_exist_and_is_never_asked_upstream() {
    let (world, _daemons) = world(1);
    let script = "getent ahosts neighbour.example; echo rc=$?; getent ahosts 0123456789abcdef.shop.example; echo rc=$?; \
                  getent ahosts shop.example | head -1; dig +tcp +short neighbour.example @9.9.9.9; dig +noall +comments txt other.example";
    let output = boxed(
        &world,
        "n1",
        &["-q", "--name", "yard", "--reach", "shop.example"],
        script,
    )
    .ok();
    assert_eq!(output.stdout.matches("rc=2").count(), 2, "{output}");
    assert!(output.stdout.contains(&at::WEB_V4.to_string()), "{output}");
    assert!(
        output.stdout.contains("NXDOMAIN") && output.stdout.contains("outside this box's reach"),
        "{output}"
    );
    let asked: Vec<String> = world
        .dns_log()
        .unwrap()
        .into_iter()
        .map(|asked| asked.name)
        .collect();
    // The second is the node's own question, the same for every box.
    let may = ["shop.example", "ipv4only.arpa"];
    assert!(
        asked.iter().all(|name| may.contains(&name.as_str())),
        "{asked:?}"
    );
    assert!(
        asked.iter().any(|name| name == "shop.example"),
        "the control: the name in reach was asked"
    );
    let rows = flows(&world, "n1", "yard");
    let refused = find(&rows, |row| row["dst_host"] == "neighbour.example");
    assert_eq!(
        (&refused["kind"], &refused["reason"]),
        (&"refused".into(), &"name outside reach".into())
    );
}

#[test]
fn a_public_name_that_answers_a_local_address_opens_nothing() {
    let (world, _daemons) = world(1);
    let script = "for name in rebind rebind-loopback rebind-metadata rebind-mapped; do \
                  curl -sS -m 5 -o /dev/null http://$name.example/ && echo reached $name; done; true";
    let output = boxed(&world, "n1", &["-q", "--name", "yard"], script).ok();
    assert!(!output.stdout.contains("reached"), "{output}");
    let rows = flows(&world, "n1", "yard");
    let withheld = rows
        .iter()
        .filter(|row| row["reason"] == "answer withheld")
        .count();
    assert!(withheld >= 4, "{rows:#?}");
    let printer = world
        .witness()
        .unwrap()
        .into_iter()
        .filter(|seen| seen.dst.ip() == at::PRINTER_V4)
        .count();
    assert_eq!(printer, 0);
}

#[test]
fn each_word_of_reach_grants_what_it_names_and_no_more() {
    let (world, _daemons) = world(1);
    let try_all = |reach: &str| {
        let script = "t() { curl -sS -m 5 -o /dev/null $1 2>/dev/null && printf '%s ' $2; }; \
                      t http://93.184.216.34/ public; t http://192.168.1.9/ printer; t http://192.168.1.9:631/ ipp; \
                      t http://shop.example/ shop; true";
        boxed(&world, "n1", &["-q", "--reach", reach], script)
            .ok()
            .stdout
            .trim()
            .to_owned()
    };
    assert_eq!(try_all("nothing"), "");
    assert_eq!(try_all("internet"), "public shop");
    assert_eq!(try_all("local"), "printer ipp");
    assert_eq!(try_all("internet,local"), "public printer ipp shop");
    assert_eq!(try_all("192.168.1.9:631"), "ipp");
    assert_eq!(try_all("192.168.1.0/24:80"), "printer");
    assert_eq!(try_all("shop.example"), "shop");
    assert_eq!(try_all("shop.example:443"), "");
    assert_eq!(try_all("shop.example:80/udp"), "");
    let bad = world.run("n1", &["run", "--reach", "shop..example", "--", "true"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.stderr.contains("shop..example"), "{bad}");
}

#[test]
fn flows_are_filtered_by_what_their_rows_say() {
    let (world, _daemons) = world(1);
    let script = "curl -sS -o /dev/null http://shop.example/; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; \
                  curl -sS -m 5 -o /dev/null http://93.184.216.34:7/; true";
    let words = ["-q", "--name", "yard", "--reach", "internet"];
    let _ran = boxed(&world, "n1", &words, script).ok();
    let all = flows(&world, "n1", "yard");
    let filtered = |words: &[&str]| {
        let words = [&["flows", "yard", "--json"], words].concat();
        world.run("n1", &words).ok().json()
    };
    for (words, field, value) in [
        (
            ["--host", "shop.example"],
            "dst_host",
            Value::from("shop.example"),
        ),
        (["--host", "*.EXAMPLE"], "dst_host", "shop.example".into()),
        (["--verdict", "refuse"], "verdict", "refuse".into()),
        (["--class", "local"], "dst_class", "local".into()),
        (["--port", "7"], "dst_port", 7.into()),
    ] {
        let rows = filtered(&words);
        let expected = all.iter().filter(|row| row[field] == value).count();
        assert!(expected > 0, "{words:?}: {all:#?}");
        assert_eq!(rows.len(), expected, "{words:?}");
        assert!(rows.iter().all(|row| row[field] == value), "{rows:#?}");
    }
    assert_eq!(filtered(&["--since", "1h"]), all);
    assert_eq!(filtered(&["--until", "1h"]), Vec::<Value>::new());
    assert!(filtered(&["--host", "example"]).is_empty());
    assert!(filtered(&["--verdict", "refuse", "--port", "7"]).is_empty());
}

#[test]
fn other_peoples_readers_read_what_is_exported() {
    let (world, _daemons) = world(1);
    let script = "for n in 1 2 3; do curl -sS -o /dev/null http://shop.example/; done; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; true";
    let words = ["-q", "--name", "yard", "--reach", "internet"];
    let _ran = boxed(&world, "n1", &words, script).ok();
    let all = flows(&world, "n1", "yard");
    let sum = |field: &str| -> u64 { all.iter().filter_map(|row| row[field].as_u64()).sum() };
    let bailey = bailey_tests::binaries().join("bailey");
    let export = format!("{} export yard --format", bailey.display());
    let read = world.sh(
        "n1",
        &format!("{export} ndjson | jq -s -c '[length, (map(.bytes_in // 0) | add)]'"),
    );
    assert_eq!(
        read.ok().stdout.trim(),
        format!("[{},{}]", all.len(), sum("bytes_in"))
    );
    let script = "import csv,sys; rows=list(csv.DictReader(sys.stdin)); \
                  print(len(rows), sum(int(row['bytes_in'] or 0) for row in rows), \
                  sorted({row['dst_host'] for row in rows if row['kind'] == 'flow'}))";
    let read = world.sh("n1", &format!("{export} csv | python3 -c \"{script}\""));
    let expected = format!("{} {} ['shop.example']", all.len(), sum("bytes_in"));
    assert_eq!(read.ok().stdout.trim(), expected);
    // To a file, never through a link; filtered as flows are.
    let made = world.sh(
        "n1",
        &format!("{export} csv --output ~/out.csv --verdict refuse --port 80 && wc -l < ~/out.csv"),
    );
    assert_eq!(made.ok().stdout.trim(), "2");
    let link = world.sh(
        "n1",
        &format!("ln -s out.csv ~/link && {export} csv --output ~/link"),
    );
    assert_eq!(link.code, Some(2), "{link}");
    // Who reads no further has had enough.
    let cut = world.sh(
        "n1",
        &format!("bash -c 'set -o pipefail; {export} ndjson | head -1 >/dev/null'"),
    );
    assert_eq!(cut.code, Some(0), "{cut}");
}

#[test]
fn a_look_at_the_whole_store_holds_until_a_byte_is_changed() {
    let (world, _daemons) = world(1);
    let script = "curl -sS -o /dev/null http://shop.example/";
    let _ran = boxed(&world, "n1", &["-q", "--name", "yard"], script).ok();
    let check = || world.run("n1", &["store", "check"]);
    // What is written is sealed within seconds of quiet.
    let sealed = || check().ok().stdout.contains("box ");
    assert!(wait_until(LIMIT, sealed), "{}", check());
    let whole = check().ok().stdout;
    assert!(whole.contains("all of it holds"), "{whole}");
    let rows = world.run("n1", &["store", "check", "--json"]).ok().json();
    let keys = |row: &Value| row["v"] == 1 && row["faulty"] == 0 && row["faults"].is_array();
    assert!(rows.len() > 3 && rows.iter().all(keys), "{rows:#?}");
    let damage = "import sqlite3,os; db=sqlite3.connect(os.environ['XDG_STATE_HOME'] + '/bailey/store.db'); \
                  db.execute('UPDATE envelopes SET bytes=zeroblob(500) WHERE rowid=(SELECT max(rowid) FROM envelopes)'); \
                  db.commit()";
    let _damaged = world.sh("n1", &format!("python3 -c \"{damage}\"")).ok();
    let faulty = check();
    assert_eq!(faulty.code, Some(1), "{faulty}");
    assert!(
        faulty.stdout.contains("✕") && faulty.stdout.contains("envelope "),
        "{faulty}"
    );
    assert!(faulty.stdout.contains("nothing was changed"), "{faulty}");
}

#[test]
fn what_boxes_talked_to_is_one_screen() {
    let (world, _daemons) = world(1);
    let script = "for n in 1 2 3; do curl -sS -o /dev/null http://shop.example/bytes/5000; done; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; true";
    let _ran = boxed(&world, "n1", &["-q", "--name", "yard"], script).ok();
    let _ran = boxed(&world, "n1", &["-q", "--name", "quiet"], "true").ok();
    let shown = world.run("n1", &["summary"]).ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].starts_with("yard on n1 · last 24h · 3 flows to 1 place"),
        "{shown}"
    );
    assert!(lines[0].ends_with("1 refused"), "{shown}");
    assert!(
        lines[1].contains("shop.example") && lines[1].contains("3 flows"),
        "{shown}"
    );
    assert!(
        lines[2].contains("192.168.1.9") && lines[2].contains("refused ×1"),
        "{shown}"
    );
    assert_eq!(lines[3..], ["1 more boxes dialled nothing"], "{shown}");
    let rows = world.run("n1", &["summary", "yard", "--json"]).ok().json();
    let all = flows(&world, "n1", "yard");
    let carried: u64 = all.iter().filter_map(|row| row["bytes_in"].as_u64()).sum();
    assert_eq!(
        (&rows[0]["host"], &rows[0]["bytes_in"]),
        (&"shop.example".into(), &carried.into())
    );
    assert_eq!(world.run("n1", &["summary", "nobody"]).code, Some(2));
    let none = world
        .run("n1", &["summary", "yard", "--since", "0s"])
        .ok()
        .stdout;
    assert!(none.contains("0 flows to 0 places"), "{none}");
}

/// A history that is read while the box dials as fast as it can.
#[test]
fn a_follower_of_a_busy_box_misses_nothing_and_sees_nothing_twice() {
    const DIALS: usize = 4000;
    let (world, _daemons) = world(1);
    let script = format!(
        "exec python3 -c \"
import socket
for number in range({DIALS}):
    if number == {DIALS} // 2: print('half', flush=True)
    socket.create_connection(('93.184.216.34', 80)).close()
print('done', flush=True); input()\""
    );
    let mut running = attached(&world, "n1", &["-q", "--name", "yard"], &script);
    running.wait_line(LIMIT, |line| line == "half");
    let follower = world.start("n1", &["flows", "yard", "--follow", "--json"]);
    running.wait_line(LIMIT, |line| line == "done");
    drop(running.take_stdin());
    let _ended = running.finish(LIMIT);
    let _last = row_of(&follower, |row| row["kind"] == "ended");
    let lines = follower.stdout();
    let rows = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let flow = |row: Value| (row["kind"] == "flow").then(|| row["flow"].as_u64().unwrap());
    let mut seen: Vec<u64> = rows.filter_map(flow).collect();
    assert_eq!(seen.len(), DIALS, "{}", follower.stderr());
    seen.dedup();
    assert_eq!(seen.len(), DIALS, "one twice");
    assert!(seen.is_sorted());
}

#[test]
fn followers_see_entries_as_they_are_written() {
    let (world, _daemons) = world(1);
    let script = "read go; curl -sS -o /dev/null http://shop.example/; read stop";
    let mut running = attached(&world, "n1", &["-q", "--name", "yard"], script);
    let follower = world.start("n1", &["flows", "yard", "--follow", "--json"]);
    let _history = row_of(&follower, |row| row["kind"] == "started");
    let mut stdin = running.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    let flow = row_of(&follower, |row| row["kind"] == "flow");
    assert_eq!(flow["dst_port"], 80);
    let end = row_of(&follower, |row| row["kind"] == "end");
    assert_eq!(end["flow"], flow["flow"]);
    drop(stdin);
    let _ended = row_of(&follower, |row| row["kind"] == "ended");
}

#[test]
fn a_stopped_box_has_its_flows_reset_and_its_end_entered() {
    let (world, _daemons) = world(1);
    let script = "python3 -c \"import socket,time; s=socket.create_connection(('93.184.216.34', 7)); s.send(b'x'); s.recv(1); print('up', flush=True); time.sleep(600)\"";
    let running = world.start(
        "n1",
        &["run", "-q", "--name", "yard", "--", "sh", "-c", script],
    );
    running.wait_line(LIMIT, |line| line.trim() == "up");
    assert_eq!(stop(&world, "n1", "yard")["flows_reset"], 1);
    assert_eq!(running.finish(LIMIT).code, Some(121));
    let rows = flows(&world, "n1", "yard");
    assert_eq!(
        find(&rows, |row| row["kind"] == "flow")["end"],
        "box stopped"
    );
    assert_eq!(rows.last().unwrap()["end"], "stopped here");
    assert_eq!(
        world.run("n1", &["stop", "yard", "--json"]).ok().json()[0]["state"],
        "already over"
    );
    let tcp = |kind: SeenKind| kind == SeenKind::TcpSyn;
    assert!(
        world
            .witness()
            .unwrap()
            .iter()
            .any(|seen| tcp(seen.kind) && seen.dst.port() == 7)
    );
}

#[test]
fn nothing_at_rest_is_readable() {
    let (world, daemons) = world(1);
    let output = boxed(
        &world,
        "n1",
        &["-q", "--name", "confidential-name"],
        "curl -sS -o /dev/null http://shop.example/",
    )
    .ok();
    drop(output);
    drop(daemons);
    assert!(wait_until(LIMIT, || world.pids("n1", "bailey").is_empty()));
    let state = world.node("n1").unwrap().dir().join("state/bailey");
    for file in std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if file
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("store.db")
        {
            let bytes = std::fs::read(&file).unwrap();
            for word in ["shop.example", "confidential-name", "curl"] {
                let found = bytes
                    .windows(word.len())
                    .any(|window| window == word.as_bytes());
                assert!(!found, "{word} stands in {}", file.display());
            }
        }
    }
    let key = std::fs::metadata(state.join("device.key")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777,
        0o600
    );
}
