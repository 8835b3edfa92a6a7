//! Figures of the node for Prometheus.

use std::io::Write as _;
use std::process::{Command, Stdio};

use bailey_tests::{TestWorld, readers};
use serde_json::Value;

use crate::common::{boxed, daemon, flows, world};

/// Where the figures are served in these worlds.
const AT: &str = "127.0.0.1:9464";

/// A name, its labels, and its value.
type Sample = (String, Vec<(String, String)>, f64);

/// The samples of a text, by the Python client's parser where that is there.
fn samples(text: &str) -> Vec<Sample> {
    let Some(python) = readers() else {
        println!("SKIPPED: no readers (.ci/readers)");
        return Vec::new();
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/exports/prometheus.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["help"], true);
    let pair = |(name, word): (&String, &Value)| (name.clone(), word.as_str().unwrap().to_owned());
    read["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| {
            let labels = sample[1].as_object().unwrap().iter().map(pair).collect();
            (
                sample[0].as_str().unwrap().to_owned(),
                labels,
                sample[2].as_f64().unwrap(),
            )
        })
        .collect()
}

fn busy(world: &TestWorld) {
    let script = "curl -sS -o /dev/null http://shop.example/; \
                  curl -sS -m 5 -o /dev/null http://192.168.1.9/; true";
    let words = ["-q", "--name", "secret-name"];
    let _ran = boxed(world, "n1", &words, script).ok();
}

#[test]
fn figures_are_what_was_entered_and_name_nothing_of_a_box() {
    let (world, _daemons) = world(1);
    busy(&world);
    let text = world.run("n1", &["metrics"]).ok().stdout;
    let rows = flows(&world, "n1", "secret-name");
    let opened = rows.iter().filter(|row| row["kind"] == "flow").count();
    let line = format!("bailey_flows_total{{verdict=\"allow\",class=\"internet\"}} {opened}");
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    assert!(
        text.contains("bailey_flows_total{verdict=\"refuse\",class=\"local\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("bailey_boxes{tier=\"gated\"} 0\n"), "{text}");
    for word in ["secret-name", "example", "192.168", "93.184"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    // Whoever reads it finds the same, and label values are words.
    let samples = samples(&text);
    for (name, labels, value) in &samples {
        assert!(name.starts_with("bailey_") && *value >= 0.0, "{name}");
        for (label, word) in labels {
            let plain = |c: char| c.is_ascii_lowercase() || " -.0123456789".contains(c);
            assert!(word.chars().all(plain), "{name} {label} {word}");
            assert!(label == "version" || word.parse::<std::net::IpAddr>().is_err());
        }
    }
}

#[test]
fn figures_on_the_loopback_want_the_token_and_no_box_has_them() {
    let world = TestWorld::new(1);
    let config = format!("[metrics]\nlisten = \"{AT}\"\n");
    let write = format!(
        "mkdir -p $XDG_CONFIG_HOME/bailey && printf '{}' > $XDG_CONFIG_HOME/bailey/config.toml",
        config.replace('\n', "\\n")
    );
    let _written = world.sh("n1", &write).ok();
    let _daemon = daemon(&world, "n1");
    busy(&world);
    let get = |header: &str| {
        let script = format!("curl -sS -w '%{{http_code}}' {header} http://{AT}/metrics");
        world.sh("n1", &script).ok().stdout
    };
    assert_eq!(get(""), "401");
    assert_eq!(get("-H 'Authorization: Bearer 00'"), "401");
    let with = get("-H \"Authorization: Bearer $(cat $XDG_STATE_HOME/bailey/metrics.token)\"");
    assert!(
        with.ends_with("200") && with.contains("bailey_boxes_started_total 1\n"),
        "{with}"
    );
    let mode = world
        .sh("n1", "stat -c %a $XDG_STATE_HOME/bailey/metrics.token")
        .ok();
    assert_eq!(mode.stdout.trim(), "600");
    // It is the node's own: no word of a reach grants it.
    let dial = "curl -sS -m 5 http://host.bailey:9464/metrics; echo $?";
    let words = ["-q", "--name", "nosy", "--reach", "internet,local,lo:9464"];
    let output = boxed(&world, "n1", &words, dial).ok();
    assert_eq!(output.stdout, "7\n", "{output}");
    let rows = flows(&world, "n1", "nosy");
    let refused = rows.iter().find(|row| row["verdict"] == "refuse");
    assert_eq!(refused.unwrap()["dst_class"], "node", "{rows:#?}");
}
