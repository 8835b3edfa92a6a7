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
    let said: Vec<&str> = it["said"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
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
    let names: Vec<String> = lines(RECORDS)
        .into_iter()
        .map(|line| line[0].clone())
        .collect();
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

/// Labels of what stays on one device, or of what a mailbox holds (docs/mailbox.md).
const ELSEWHERE: [&str; 8] = [
    // The name of a protocol, which the endpoint's own test looks for.
    "bailey/1",
    "bailey/guard",
    "bailey/journal/v1",
    "bailey/journal/v2",
    "bailey/mail",
    "bailey/once/v1",
    "bailey/pair/scalar/v2",
    "bailey/pair/short/v2",
];

/// Sources that make bytes for others, without their tests.
fn sources() -> String {
    let mut folders: Vec<_> = ["docs-store", "sync/src", "sync/session"]
        .map(|folder| root().join(folder))
        .into();
    let mut all = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.extend((name != "tests" && name != "target").then_some(path));
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = fs::read_to_string(path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let code = code
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"));
                all.extend(code.map(|line| format!("{line}\n")));
            }
        }
    }
    all
}

/// What stands in quotes and begins with `bailey/`.
fn labels(text: &str) -> Vec<&str> {
    let parts = text.split("\"bailey/").skip(1);
    let mut found: Vec<&str> = parts.filter_map(|part| part.split('"').next()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn every_label_of_the_code_stands_in_the_documents_and_no_other() {
    let read = |name: &str| fs::read_to_string(root().join("docs").join(name)).unwrap();
    let documents = read("wire.md") + &read("membership.md") + &read("mailbox.md");
    let code = sources();
    let (in_code, in_documents) = (labels(&code), labels(&documents));
    assert!(in_code.len() > 20, "{in_code:?}");
    let elsewhere = |label: &str| {
        let whole = format!("bailey/{label}");
        ELSEWHERE.iter().any(|known| whole.starts_with(known))
    };
    let unsaid: Vec<&&str> = in_code
        .iter()
        .filter(|label| !elsewhere(label) && !in_documents.contains(*label))
        .collect();
    assert!(unsaid.is_empty(), "no document has {unsaid:?}");
    let made_up: Vec<&&str> = in_documents
        .iter()
        .filter(|label| !elsewhere(label) && !in_code.contains(*label))
        .collect();
    assert!(made_up.is_empty(), "no code has {made_up:?}");
}

/// The rows of the table below a heading: its cells.
fn table<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let at = document.find(heading).unwrap();
    let section = document[at + heading.len()..]
        .split("\n## ")
        .next()
        .unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// The decoder reads the frozen bytes by its own layouts, so these are right.
#[test]
fn the_layouts_of_the_document_are_those_that_the_decoder_reads_by() {
    let document = fs::read_to_string(root().join("docs/wire.md")).unwrap();
    let decoder = fs::read_to_string(root().join("tests/it/decoder/forms.py")).unwrap();
    for (name, heading, whole) in [
        ("HEADER", "## The envelope\n", bailey_envelope::HEADER_LEN),
        (
            "TOMBSTONE",
            "## Tombstones\n",
            bailey_envelope::TOMBSTONE_LEN,
        ),
    ] {
        let list = decoder.split(&format!("{name} = [")).nth(1).unwrap();
        let list = list.split("\n]").next().unwrap().replace(['\n', ' '], "");
        let mut at = 0;
        for row in table(&document, heading) {
            let (field, length) = (row[0].replace(' ', ""), row[2].parse::<usize>().unwrap());
            assert_eq!(row[1].parse(), Ok(at), "{name}: {row:?}");
            at += length;
            // The signature stands behind what the decoder calls a tombstone.
            let named = format!("(\"{field}\",{length})");
            assert!(
                list.contains(&named) || field == "signature",
                "{name}: {row:?}"
            );
        }
        assert_eq!(at, whole, "{name}");
    }
}

#[test]
fn the_documents_of_the_table_are_those_of_the_code() {
    use bailey_envelope::DocId;
    let text = fs::read_to_string(root().join("docs/wire.md")).unwrap();
    let rows = table(&text, "## Documents\n");
    let mut known = 0;
    for kind in 0..=u8::MAX {
        let mut bytes = [0; DocId::LEN];
        bytes[0] = kind;
        let row = rows.iter().find(|row| row[0] == kind.to_string());
        let document = DocId::from_bytes(&bytes);
        assert_eq!(row.is_some(), document.is_some(), "{kind}");
        if let (Some(row), Some(document)) = (row, document) {
            let yes = |is| if is { "yes" } else { "no" };
            assert_eq!(row[2], yes(!document.is_plain()), "{row:?}");
            assert_eq!(row[3], yes(!document.is_here()), "{row:?}");
            known += 1;
        }
    }
    assert_eq!(known, rows.len());
}
