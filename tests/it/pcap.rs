//! Captures of headers.

use std::process::Command;

use bailey_tests::{TestWorld, run, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, attached, boxed, flows, world};

/// What is sent and may be in no file.
const SECRET: &str = "correct-horse-battery-staple";

/// Where a capture of these tests goes.
fn file(world: &TestWorld) -> String {
    let home = world.node("n1").unwrap().home().to_owned();
    home.join("yard.pcapng").display().to_string()
}

/// What tcpdump makes of it; `None`, and a word, where that is not installed.
fn read(file: &str) -> Option<String> {
    let Some(tcpdump) = ["/usr/bin/tcpdump", "/usr/sbin/tcpdump"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
    else {
        println!("SKIPPED: tcpdump is not installed (.ci/packages readers)");
        return None;
    };
    let output = run(Command::new(tcpdump).args(["-nn", "-r", file]));
    assert_eq!(output.code, Some(0), "{output}");
    Some(output.stdout)
}

#[test]
fn headers_are_there_and_payload_is_not() {
    let (world, _daemons) = world(1);
    let script = format!(
        "read go; curl -sS -o /dev/null -d {SECRET} http://shop.example/{SECRET}; \
         python3 -c \"import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); \
         s.sendto(b'{SECRET}', ('93.184.216.34', 7))\"; \
         getent hosts {SECRET}.shop.example; read stop"
    );
    let mut running = attached(&world, "n1", &["-q", "--name", "yard"], &script);
    let file = file(&world);
    let words = ["pcap", "yard", "--for", "1m", "--write", &file];
    let capture = world.start("n1", &words);
    capture.wait_error_line(LIMIT, |line| line.contains("its audit says so"));
    let mut stdin = running.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    let seen = || {
        let rows = flows(&world, "n1", "yard");
        let ended = |port: u64| rows.iter().any(|row| row["dst_port"] == port);
        ended(80) && ended(7) && rows.iter().any(|row| row["kind"] == "name")
    };
    assert!(wait_until(LIMIT, seen));
    drop(stdin);
    let output = capture.finish(LIMIT).ok();
    assert!(
        output.stderr.contains("0 dropped: the box ended"),
        "{output}"
    );
    let bytes = std::fs::read(&file).unwrap();
    for part in [SECRET, &SECRET[..12], "HTTP", "shop"] {
        let found = bytes
            .windows(part.len())
            .any(|window| window == part.as_bytes());
        assert!(!found, "{part} is in the file");
    }
    // It is in the audit, and it raised a notice.
    let rows = flows(&world, "n1", "yard");
    let begun = rows.iter().find(|row| row["kind"] == "capture").unwrap();
    let opened = rows.iter().find(|row| row["kind"] == "flow").unwrap();
    assert!(begun["no"].as_u64() < opened["no"].as_u64());
    let notices = world.run("n1", &["notices", "--json"]).ok().json();
    let raised = notices
        .iter()
        .find(|row| row["rule"] == "capture-started")
        .unwrap();
    assert_eq!(raised["evidence"], Value::from(vec![begun["no"].clone()]));
    let Some(text) = read(&file) else { return };
    for part in [
        "93.184.216.34.80: Flags [S]",
        "93.184.216.34.7: ",
        "Flags [F",
        "length",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Whole packets' lengths, though nothing of their payload.
    let long = text
        .lines()
        .any(|line| line.contains("UDP, ") || line.contains("length 2"));
    assert!(long, "{text}");
}

#[test]
fn a_capture_ends_at_its_time_and_is_taken_only_where_there_is_a_gate() {
    let (world, _daemons) = world(1);
    let file = file(&world);
    let script = "while true; do curl -sS -o /dev/null http://shop.example/; sleep 0.2; done";
    let _running = attached(&world, "n1", &["-q", "--name", "yard"], script);
    let capture = |name: &str, time: &str, file: &str| {
        world.run("n1", &["pcap", name, "--for", time, "--write", file])
    };
    let output = capture("yard", "2s", &file).ok();
    assert!(output.stderr.contains("its time is up"), "{output}");
    let first = std::fs::metadata(&file).unwrap().len();
    assert!(first > 500, "{first}");
    // What passed before or after is in no file.
    let again = capture("yard", "0s", &file).ok();
    assert!(again.stderr.contains("its time is up"), "{again}");
    // Through no link, and of no box that is over or has no gate.
    let link = format!("{file}.link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(capture("yard", "1s", &link).code, Some(2));
    let _ran = boxed(&world, "n1", &["-q", "--name", "over"], "true").ok();
    assert!(capture("over", "1s", &file).stderr.contains("does not run"));
    let _alone = attached(
        &world,
        "n1",
        &["-q", "--name", "alone", "--tier", "l2"],
        "sleep 100",
    );
    assert!(capture("alone", "1s", &file).stderr.contains("no gate"));
    assert_eq!(capture("yard", "2d", &file).code, Some(2));
    // One at a time.
    let held = world.start("n1", &["pcap", "yard", "--write", &file]);
    held.wait_error_line(LIMIT, |line| line.contains("its audit says so"));
    let second = format!("{file}.second");
    assert!(capture("yard", "1s", &second).stderr.contains("already"));
    // Whoever goes away frees it.
    drop(held);
    let free = || capture("yard", "0s", &second).code == Some(0);
    assert!(wait_until(LIMIT, free));
}

/// A box that sends as fast as it can is not held up, and what the file lacks is
/// said in it.
#[test]
fn what_a_capture_lacks_is_counted_and_its_box_goes_on() {
    let (world, _daemons) = world(1);
    let script =
        "read go; curl -sS -o /dev/null http://shop.example/bytes/50000000 && echo done; read stop";
    let mut running = attached(&world, "n1", &["-q", "--name", "yard"], script);
    let file = file(&world);
    let capture = world.start("n1", &["pcap", "yard", "--write", &file]);
    capture.wait_error_line(LIMIT, |line| line.contains("its audit says so"));
    let mut stdin = running.take_stdin().unwrap();
    std::io::Write::write_all(&mut stdin, b"go\n").unwrap();
    running.wait_line(LIMIT * 2, |line| line == "done");
    drop(stdin);
    let output = capture.finish(LIMIT).ok();
    let line = output.stderr.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect();
    let [count, dropped] = numbers[..] else {
        panic!("{output}")
    };
    let Some(text) = read(&file) else { return };
    assert_eq!(
        u64::try_from(text.lines().count()).unwrap(),
        count,
        "{output}"
    );
    let carried = std::fs::metadata(&file).unwrap().len();
    assert!(
        carried < 50_000_000 / 4 && count + dropped > 500,
        "{carried} {line}"
    );
}
