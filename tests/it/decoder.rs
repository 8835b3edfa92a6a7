//! What devices keep and send, read by a reader that was written from the documents
//! alone (`tests/it/decoder`); and that the documents say what the code does.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use bailey_tests::readers;
use serde_json::{Value, json};

use crate::arrows::root;

const ENVELOPES: &str = "docs-store/envelope/vectors/v1.txt";
const TAKEN: &str = "docs-store/tests/store/frozen.txt";
const RECORDS: &str = "docs-store/src/account/tests/records.txt";

/// What the decoder makes of a file; `None`, and a word, where it could not be installed.
fn decoded(command: &str, file: &str) -> Option<Value> {
    let Some(python) = readers() else {
        println!("SKIPPED: no readers (.ci/readers)");
        return None;
    };
    let output = Command::new(python)
        // Its modules are compiled into no folder of the sources.
        .arg("-B")
        .arg(root().join("tests/it/decoder/decode.py"))
        .arg(command)
        .arg(root().join(file))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn lines(file: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    text.lines().map(words).collect()
}

#[test]
fn another_reader_opens_the_good_envelopes_and_refuses_the_bad_ones() {
    let Some(said) = decoded("envelopes", ENVELOPES) else {
        return;
    };
    let mut bad = 0;
    for line in lines(ENVELOPES) {
        let want = match line[1].starts_with("refused:") {
            true => "refused",
            false => line[1].as_str(),
        };
        bad += usize::from(want == "refused");
        assert_eq!(said[&line[0]], want, "{}", line[0]);
    }
    assert!(bad >= 30, "{bad}");
}

/// Records, keys, segments and tombstones, in order, and why each that is bad is so.
#[test]
fn another_reader_takes_what_a_device_takes_and_nothing_else() {
    let Some(it) = decoded("taken", TAKEN) else {
        return;
    };
    let want: Vec<String> = lines(TAKEN)
        .into_iter()
        .filter_map(|line| match line[0].as_str() {
            // Refused for the same reason, in whatever words.
            "take" | "refuse" => Some(line[..3].join(" ")),
            "aside" => Some(line[..2].join(" ")),
            _ => None,
        })
        .collect();
    let said: Vec<&str> = it["said"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(said, want);
    let with = |word: &str| want.iter().filter(|line| line.starts_with(word)).count();
    assert!(with("take") >= 15 && with("refuse") >= 30 && with("aside") >= 10);
    assert_eq!(it["members"], json!({"laptop": "full", "phone": "watch"}));
    // The recovery keys open every epoch that the laptop began.
    let keys = it["keys"].as_array().unwrap();
    let of_recovery = it["of recovery"].as_array().unwrap();
    assert!(of_recovery.len() >= 4, "{of_recovery:?}");
    assert!(of_recovery.iter().all(|key| keys.contains(key)));
}

#[test]
fn another_reader_reads_every_act_and_holds_each_second_signature_to_its_place() {
    let Some(said) = decoded("records", RECORDS) else {
        return;
    };
    let acts: BTreeMap<&str, (u64, &[&str], u64)> = [
        ("genesis", (1, &[][..], 0)),
        ("add", (2, &["stop"], 0)),
        ("role", (3, &["runs"], 0)),
        ("remove", (4, &[], 2)),
        ("leave", (4, &[], 1)),
        ("ack", (5, &[], 0)),
        ("reset", (6, &["full", "watch"], 0)),
    ]
    .into();
    let names: Vec<String> = lines(RECORDS).into_iter().map(|line| line[0].clone()).collect();
    assert_eq!(names.len(), acts.len());
    for name in names {
        let (act, roles, devices) = acts[name.as_str()];
        let it = &said[&name];
        assert_eq!(it["act"], act, "{name}");
        assert_eq!(it["roles"], json!(roles), "{name}");
        assert_eq!(it["devices"], devices, "{name}");
        assert_eq!(it["passed"], 0, "{name}: a changed signature was taken");
    }
}
