//! What is exported, read back by other people's readers.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bailey_model::{Entry, Event, Host, NameAsked, Timestamp};
use bailey_node::export::Format;
use bailey_node::rows::FlowRow;
use bailey_tests::{TestWorld, binaries, readers};
use serde_json::{Value, json};

use crate::common::{LIMIT, attached, boxed, flows, row_of, world};

/// A text that breaks out of whatever lets it.
const HOSTILE: &str = "=a\tb\\x09,\"c\"\n\u{202e}d\u{7f}é-";

/// What a reader of `tests/it/exports` makes of a text; `None`, and a word, where the
/// readers could not be installed.
fn read_by(script: &str, words: &[&str], input: &str) -> Option<Value> {
    let Some(python) = readers() else {
        println!("SKIPPED: no readers (.ci/readers)");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("it/exports")
        .join(script);
    let mut child = Command::new(python)
        .arg(&script)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}: {text}", script.display());
    Some(serde_json::from_str(&text).unwrap())
}

/// A box that dialled by name, by TLS and to where it may not, and asked for a name
/// that it may not; its rows.
fn yard(world: &TestWorld) -> Vec<Value> {
    let script = "for n in 1 2 3; do curl -sS -o /dev/null http://shop.example/; done; \
                  curl -sk -o /dev/null --resolve third.example:443:151.101.1.69 https://third.example/; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; \
                  curl -sS -m 5 -o /dev/null http://evil.example/; true";
    let reach = "shop.example,151.101.1.69:443";
    let words = ["-q", "--name", "yard", "--reach", reach];
    let _ran = boxed(world, "n1", &words, script).ok();
    let rows = flows(world, "n1", "yard");
    assert!(
        rows.iter().filter(|row| row["kind"] == "flow").count() >= 4,
        "{rows:#?}"
    );
    rows
}

fn exported(world: &TestWorld, format: &str) -> String {
    let output = world
        .run("n1", &["export", "yard", "--format", format])
        .ok();
    let partial = !["ndjson", "csv"].contains(&format);
    assert_eq!(
        output.stderr.contains("have no place in"),
        partial,
        "{output}"
    );
    output.stdout
}

fn sum<'a>(rows: impl Iterator<Item = &'a Value>, field: &str) -> u64 {
    rows.filter_map(|row| row[field].as_u64()).sum()
}

#[test]
fn a_zeek_reader_reads_what_was_dialled_and_what_was_asked() {
    let (world, _daemons) = world(1);
    let rows = yard(&world);
    let dial =
        |row: &&Value| row["kind"] == "flow" || (row["kind"] == "refused" && row["proto"] != "dns");
    let dials: Vec<&Value> = rows.iter().filter(dial).collect();
    let Some(log) = read_by("zeek.py", &[], &exported(&world, "zeek")) else {
        return;
    };
    assert_eq!((&log["path"], &log["bad"]), (&json!("conn"), &json!([])));
    let records = log["records"].as_array().unwrap();
    assert_eq!(records.len(), dials.len(), "{log:#}");
    for (record, row) in records.iter().zip(&dials) {
        for (field, column) in [
            ("id.orig_h", "src_ip"),
            ("id.orig_p", "src_port"),
            ("id.resp_h", "dst_ip"),
            ("id.resp_p", "dst_port"),
            ("proto", "proto"),
            ("orig_bytes", "bytes_out"),
            ("resp_bytes", "bytes_in"),
            ("community_id", "community_id"),
            ("bailey_outer_community_id", "outer_community_id"),
            ("bailey_host", "dst_host"),
            ("bailey_verdict", "verdict"),
        ] {
            assert_eq!(record[field], row[column], "{field}: {record:#}");
        }
        assert_eq!(record["local_orig"], true);
        let refused = row["verdict"] == "refuse";
        assert_eq!(record["conn_state"] == "REJ", refused, "{record:#}");
        assert!(refused || record["duration"].is_f64(), "{record:#}");
    }
    assert!(records.iter().any(|record| record["service"] == "ssl"));
    let uids: std::collections::BTreeSet<&str> = records
        .iter()
        .map(|record| record["uid"].as_str().unwrap())
        .collect();
    assert_eq!(uids.len(), records.len());
    let dns = read_by("zeek.py", &[], &exported(&world, "zeek-dns")).unwrap();
    let asked = |query: &str| {
        let records = dns["records"].as_array().unwrap();
        let found = records.iter().find(|record| record["query"] == query);
        found.unwrap_or_else(|| panic!("{query}: {dns:#}")).clone()
    };
    let shop = asked("shop.example");
    assert_eq!(shop["rejected"], false);
    // What it was answered, in the same record.
    assert_eq!(shop["rcode_name"], "NOERROR", "{dns:#}");
    assert!(dns["bad"].as_array().unwrap().is_empty(), "{dns:#}");
    let answered = |record: &&Value| {
        let answers = &record["answers"];
        answers.to_string().contains("93.184.216.34") && record["qtype_name"] == "A"
    };
    let records = dns["records"].as_array().unwrap();
    let record = records
        .iter()
        .find(answered)
        .unwrap_or_else(|| panic!("{dns:#}"));
    assert!(!record["TTLs"].is_null(), "{record:#}");
    let refused = asked("evil.example");
    assert_eq!(
        (&refused["rejected"], &refused["rcode_name"]),
        (&json!(true), &json!("NXDOMAIN"))
    );
}

#[test]
fn duckdb_makes_the_same_of_csv_and_ndjson() {
    let (world, _daemons) = world(1);
    let rows = yard(&world);
    let folder = world.node("n1").unwrap().home();
    let mut found = Vec::new();
    for format in ["ndjson", "csv"] {
        let file = folder.join(format!("rows.{format}"));
        let file = file.to_str().unwrap();
        let made = world.run(
            "n1",
            &["export", "yard", "--format", format, "--output", file],
        );
        let _made = made.ok();
        let Some(read) = read_by("duck.py", &[file], "") else {
            return;
        };
        found.push(read);
    }
    for table in &found {
        let table = table.as_array().unwrap();
        let down = table
            .iter()
            .map(|line| line[3].as_u64().unwrap())
            .sum::<u64>();
        assert_eq!(down, sum(rows.iter(), "bytes_in"), "{table:?}");
        let shop = table.iter().find(|line| line[0] == "shop.example").unwrap();
        assert_eq!((&shop[1], &shop[2]), (&json!("allow"), &json!(3)));
        let kind = shop[4].as_str().unwrap();
        assert!(kind.starts_with("TIMESTAMP"), "{kind}");
    }
}

#[test]
fn events_of_ocsf_are_of_their_classes() {
    let (world, _daemons) = world(1);
    let rows = yard(&world);
    let text = exported(&world, "ocsf");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let blocked = events.iter().filter(|event| event["disposition_id"] == 2);
    let refused = rows.iter().filter(|row| row["kind"] == "refused");
    assert_eq!(blocked.count(), refused.count(), "{text}");
    let given = events.iter().find(|event| event["answers"].is_array());
    let given = given.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(
        (&given["rcode_id"], &given["activity_id"]),
        (&json!(0), &json!(2))
    );
    assert!(given["answers"][0]["rdata"].is_string(), "{given:#}");
    let Some(seen) = read_by("ocsf.py", &[], &text) else {
        return;
    };
    let dns = |row: &&Value| row["proto"] == "dns" && row["kind"] != "note";
    assert_eq!(seen["4003"], rows.iter().filter(dns).count(), "{seen}");
    assert_eq!(
        sum([&seen].into_iter(), "4001"),
        events.len() as u64 - seen["4003"].as_u64().unwrap()
    );
}

#[test]
fn an_eve_reader_understands_each_event() {
    let (world, _daemons) = world(1);
    let rows = yard(&world);
    let text = exported(&world, "eve");
    if !Path::new("/usr/bin/fever").exists() {
        println!("SKIPPED: fever is not installed (.ci/packages readers)");
        return;
    }
    let Some(read) = read_by("eve.py", &[], &text) else {
        return;
    };
    let of = |kind: &str, dns: bool| {
        let fits = |row: &&Value| row["kind"] == kind && (row["proto"] == "dns") == dns;
        rows.iter().filter(fits).count()
    };
    let types = &read["types"];
    assert_eq!(types["flow"], of("flow", false), "{read}");
    assert_eq!(types["drop"], of("refused", false), "{read}");
    assert_eq!(
        types["dns"],
        of("name", true) + of("answer", true) + of("refused", true),
        "{read}"
    );
    let mut ids: Vec<&str> = rows
        .iter()
        .filter(|row| row["kind"] == "flow")
        .map(|row| row["community_id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(read["flows"], json!(ids));
}

/// Both ids of a flow are those that a tool on either side of the gate makes.
#[test]
fn a_flow_has_the_community_id_of_either_side() {
    let (world, _daemons) = world(1);
    let rows = yard(&world);
    for row in rows.iter().filter(|row| row["kind"] == "flow") {
        let text = |field: &str| row[field].as_str().unwrap().to_owned();
        let addr = |ip: &str, port: &str| -> std::net::SocketAddr {
            let ip: std::net::IpAddr = text(ip).parse().unwrap();
            (ip, u16::try_from(row[port].as_u64().unwrap()).unwrap()).into()
        };
        let dst = addr("dst_ip", "dst_port");
        let id = |src| bailey_node::community::community_id(bailey_model::Proto::Tcp, src, dst);
        assert_eq!(id(addr("src_ip", "src_port")), Some(text("community_id")));
        let outer = id(addr("outer_src_ip", "outer_src_port"));
        assert_eq!(outer, Some(text("outer_community_id")));
        assert_ne!(row["community_id"], row["outer_community_id"]);
    }
}

/// What another device may have made up, for the readers that split lines and cells.
#[test]
fn hostile_text_stays_in_its_field() {
    let asked = NameAsked {
        host: Host::new("shop.example").unwrap(),
        qtype: 1,
        count: 1,
    };
    let entry = Entry {
        no: 1,
        ts: Timestamp(1_796_041_800_123),
        event: Event::NameAsked(asked),
    };
    let mut row = FlowRow::of(HOSTILE, &entry).unwrap();
    row.reason = Some("-".to_owned());
    let written = |format: Format| {
        let line = format.line(&row).unwrap().unwrap();
        format!("{}{line}{}", format.head(entry.ts), format.foot(entry.ts))
    };
    let ndjson: Value = serde_json::from_str(&written(Format::Ndjson)).unwrap();
    let shown = ndjson["box"].as_str().unwrap();
    assert!(
        shown.contains("\\u{202e}") && shown.contains('é'),
        "{shown}"
    );
    let Some(log) = read_by("zeek.py", &[], &written(Format::ZeekDns)) else {
        return;
    };
    let record = &log["records"][0];
    assert_eq!(log["bad"], json!([]));
    assert_eq!(
        (&record["bailey_box"], &record["bailey_reason"]),
        (&json!(shown), &json!("-"))
    );
    assert_eq!(record["bailey_raw"], ndjson["raw"]);
    let script = "import csv,json,sys; print(json.dumps(list(csv.DictReader(sys.stdin))))";
    let mut python = Command::new("python3");
    python
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(written(Format::Csv).as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let cells: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(cells[0]["box"], format!("'{shown}"));
    assert_eq!(cells[0]["reason"], "'-");
}

/// A store whose rows would not fit into what an export may take.
#[test]
fn an_export_takes_no_more_for_many_rows_than_for_few() {
    const DIALS: usize = 8_000;
    let (world, _daemons) = world(1);
    let script = format!(
        "exec python3 -c \"
import socket
for number in range({DIALS}): socket.create_connection(('93.184.216.34', 80)).close()\""
    );
    let words = ["-q", "--name", "yard"];
    let running = world.start(
        "n1",
        &[&["run"], &words[..], &["--", "sh", "-c", &script]].concat(),
    );
    let _ran = running.finish(LIMIT * 8);
    let bailey = binaries().join("bailey");
    // Kilobytes at most, of the command and of the node.
    let peaks = |filter: &str| -> [u64; 3] {
        let script = format!(
            "python3 -c \"
import resource, subprocess, sys
words = ['{}', 'export', 'yard', '--format', 'eve', *'{filter}'.split()]
out = subprocess.run(words, stdout=subprocess.PIPE).stdout
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, len(out))\"; \
             grep VmHWM /proc/$(cat $XDG_STATE_HOME/bailey/node.lock)/status",
            bailey.display()
        );
        let output = world.sh("n1", &script).ok();
        let numbers: Vec<u64> = output
            .stdout
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        numbers.try_into().unwrap_or_else(|_| panic!("{output}"))
    };
    let [few_command, few_bytes, few_node] = peaks("--port 7");
    let [many_command, many_bytes, many_node] = peaks("");
    assert!(
        few_bytes < 100_000 && many_bytes > 5_000_000,
        "{few_bytes} {many_bytes}"
    );
    assert!(
        many_command < few_command + 4_096,
        "{few_command} {many_command}"
    );
    assert!(many_node < few_node + 8_192, "{few_node} {many_node}");
}

/// Says of each row of a follower how late it was, and by how much this machine held
/// up in that second a process that wants 5 ms.
const WATCH: &str = "
import sys, json, threading, time, datetime
stalls = []
def look():
    while True:
        begun = time.monotonic()
        time.sleep(0.005)
        over = time.monotonic()
        stalls.append((over, over - begun - 0.005))
        del stalls[:-2000]
threading.Thread(target=look, daemon=True).start()
for line in iter(sys.stdin.readline, ''):
    now, row = time.time(), json.loads(line)
    then = datetime.datetime.strptime(row['ts'], '%Y-%m-%dT%H:%M:%S.%fZ')
    late = now - then.replace(tzinfo=datetime.timezone.utc).timestamp()
    since = time.monotonic() - max(1, late)
    stall = max((by for at, by in list(stalls) if at > since), default=0)
    print(json.dumps([row['kind'], late, stall]), flush=True)
";

#[test]
fn a_follower_sees_each_entry_within_a_fifth_of_a_second() {
    const DIALS: usize = 60;
    let (world, _daemons) = world(1);
    let script = format!(
        "read go; n=0; while [ $n -lt {DIALS} ]; do n=$((n + 1)); \
         curl -sS -o /dev/null http://shop.example/; sleep 0.05; done; read stop"
    );
    let mut running = attached(&world, "n1", &["-q", "--name", "yard"], &script);
    let bailey = binaries().join("bailey");
    let watch = format!(
        "{} flows yard --follow --json | python3 -c \"$0\"",
        bailey.display()
    );
    let follower =
        bailey_tests::Running::start(world.command("n1", "sh").args(["-c", &watch, WATCH]));
    let _history = row_of(&follower, |row| row[0] == "started");
    let mut stdin = running.take_stdin().unwrap();
    stdin.write_all(b"go\n").unwrap();
    let seen = bailey_tests::eventually(LIMIT * 2, || {
        let mut late: Vec<(f64, f64)> = follower
            .stdout()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|row| row[0] == "flow")
            .map(|row| (row[1].as_f64().unwrap(), row[2].as_f64().unwrap()))
            .collect();
        late.sort_by(|one, other| one.0.total_cmp(&other.0));
        (late.len() == DIALS).then_some(late)
    });
    let seen = seen.unwrap_or_else(|| panic!("{}", follower.stdout()));
    assert!(seen[DIALS / 2].0 < 0.2, "the middle one: {seen:?}");
    // Every one, but for what a busy machine takes of each of the five processes
    // between a dial and its row.
    let late = seen
        .iter()
        .filter(|(late, stall)| *late >= 0.2 + 5.0 * stall);
    assert_eq!(late.count(), 0, "{seen:?}");
    drop(stdin);
}

#[test]
fn an_export_to_a_terminal_says_on_standard_error_how_far_it_is() {
    let (world, _daemons) = world(1);
    let script = "python3 -I -c \"
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(3000): s.sendto(b'x', ('93.184.216.34', 1024 + n))
\"";
    let _ran = boxed(&world, "n1", &["-q", "--name", "yard"], script).ok();
    let bailey = binaries().join("bailey");
    // Read slowly, as by a tool that has much to do with each row; standard error is a
    // terminal, or it is none.
    let slowly = |stderr: &str| {
        let script = format!(
            "{} export yard --format ndjson {stderr} | python3 -I -c \"
import sys, time
n = 0
for line in sys.stdin:
    n += 1
    if n % 64 == 0: time.sleep(0.1)
\"",
            bailey.display()
        );
        script
    };
    let terminal = bailey_tests::Terminal::start(
        |program: &std::ffi::OsStr| world.node("n1").unwrap().command(program),
        "sh",
        &["-c", &slowly("")],
    );
    let count = |line: &str| {
        let line = line.trim().strip_prefix("bailey: ")?;
        line.strip_suffix(" rows")?.parse::<u64>().ok()
    };
    let said = bailey_tests::wait_until(LIMIT, || {
        let screen = terminal.screen();
        screen
            .lines()
            .any(|line| count(line).is_some_and(|rows| rows > 0))
    });
    assert!(said, "{}", terminal.screen());
    drop(terminal);
    let into = "2>$HOME/said";
    let _read = world
        .sh("n1", &format!("{}; ! grep rows $HOME/said", slowly(into)))
        .ok();
}
