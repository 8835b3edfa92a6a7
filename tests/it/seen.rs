//! What devices saw of one another, and what one of them does not show.

use std::time::Duration;

use bailey_docs_store::{DocId, Hash, Head, Store, Urgency, load_or_create_device_keys};
use bailey_envelope::{EpochKey, Fields, Kind, seal};
use bailey_model::{DeviceId, Event, HeadsSeen, SeenDoc, SeenHead};
use bailey_tests::{Running, TestWorld, wait_until};
use serde_json::Value;

use crate::common::{LIMIT, boxed, daemon, hears_of, pair, world};
use crate::requests::{rest, state, write_there};

/// What a device shows is taken to be all of it after five seconds, and what is said to
/// be under way for as long.
const REFUTED: Duration = Duration::from_secs(7);

/// Three devices of one account, each connected to both others.
fn three() -> (TestWorld, Vec<Running>) {
    let (world, daemons) = world(3);
    pair(&world, "n1", "n2");
    pair(&world, "n1", "n3");
    assert!(wait_until(LIMIT, || all_meet(&world)));
    (world, daemons)
}

fn all_meet(world: &TestWorld) -> bool {
    ["n1", "n2", "n3"].iter().all(|node| {
        let rows = world.run(node, &["device", "list", "--json"]).ok().json();
        let up = rows.iter().filter(|row| row["connected"] == true);
        up.count() == 2
    })
}

fn device(world: &TestWorld, node: &str, name: &str) -> Value {
    let rows = world.run(node, &["device", "list", "--json"]).ok().json();
    let found = rows.into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{node} does not list {name}"))
}

fn id(world: &TestWorld, name: &str) -> DeviceId {
    let row = device(world, name, name);
    row["id"].as_str().unwrap().parse().unwrap()
}

fn notices(world: &TestWorld, node: &str, rule: &str) -> Vec<Value> {
    let mut rows = world.run(node, &["notices", "--json"]).ok().json();
    rows.retain(|row| row["rule"] == rule);
    rows
}

/// How far a store has the node's document of a device that was started once.
fn node_head(store: &Store, writer: DeviceId) -> Head {
    let heads = store.heads().into_iter();
    let mut of = heads.filter(|head| (head.chain.doc, head.chain.writer) == (DocId::Node, writer));
    let head = of.next().unwrap();
    assert!(of.next().is_none(), "it was started once");
    head
}

/// Has a device say, the next time that it is heard, that it saw so much more of the
/// first one's own document. Gives what it says.
fn says_it_saw(world: &TestWorld, node: &str, more: u64) -> u64 {
    let first = device(world, "n3", "n1")["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut seen = 0;
    write_there(world, node, |store, now| {
        let head = node_head(store, first);
        seen = head.seq + more;
        let heads = vec![SeenHead {
            writer: first,
            incarnation: head.chain.incarnation,
            doc: SeenDoc::Node,
            seq: seen,
            hash: [7; 32],
        }];
        let event = Event::HeadsSeen(HeadsSeen { heads });
        store
            .append(DocId::Node, event, now, Urgency::Urgent)
            .unwrap();
    });
    seen
}

/// What a device is told to lack of the first one's, by one device's word.
fn gaps(world: &TestWorld, node: &str, by: &str) -> Vec<Value> {
    let gaps = device(world, node, "n1")["gaps"].clone();
    let gaps = gaps.as_array().unwrap().clone();
    gaps.into_iter().filter(|gap| gap["by"] == by).collect()
}

#[test]
fn what_one_device_saw_and_another_does_not_show_is_listed_and_told() {
    let (world, mut daemons) = three();
    // What is only under way is no gap.
    let _box = boxed(&world, "n1", &["-q", "--name", "yard"], "true").ok();
    for node in ["n2", "n3"] {
        hears_of(&world, node, "yard");
        assert_eq!(device(&world, node, "n1")["gaps"], Value::Array(vec![]));
    }
    rest(&world, daemons.remove(1), "n2");
    let seen = says_it_saw(&world, "n2", 30);
    daemons.insert(1, daemon(&world, "n2"));
    // While it is there and hands over no more than the others, it is not believed.
    assert!(wait_until(2 * LIMIT, || all_meet(&world)));
    std::thread::sleep(2 * REFUTED);
    assert_eq!(device(&world, "n3", "n1")["gaps"], Value::Array(vec![]));
    // What it said then stands when it is gone: nobody can ask it.
    rest(&world, daemons.remove(1), "n2");
    let gap = || device(&world, "n3", "n1")["gaps"][0].clone();
    let long = 2 * LIMIT;
    assert!(wait_until(long, || gap()["shown"] == true), "{}", gap());
    let gap = gap();
    assert_eq!(
        (&gap["by"], &gap["doc"]),
        (&"n2".into(), &"node".into()),
        "{gap}"
    );
    assert_eq!(gap["seen"].as_u64(), Some(seen));
    assert!(gap["have"].as_u64() < Some(seen), "{gap}");
    let listed = world.run("n3", &["device", "list"]).ok().stdout;
    let said = format!("n2 saw {seen} envelopes");
    assert!(
        listed.contains(&said) && listed.contains("n1 shows"),
        "{listed}"
    );
    assert!(wait_until(LIMIT, || notices(&world, "n3", "head-withheld")
        .iter()
        .any(|row| {
            row["device"] == "n3" && row["text"].as_str().unwrap().starts_with(&said)
        })));
    // Of the others nothing is missing.
    assert_eq!(device(&world, "n3", "n2")["gaps"], Value::Array(vec![]));
}

#[test]
fn a_device_that_says_it_saw_what_is_not_hides_no_other_devices_word() {
    let (world, mut daemons) = three();
    for (at, node) in [(1, "n2"), (0, "n1")] {
        rest(&world, daemons.remove(at), node);
    }
    // One makes it up, the other says it of itself; the one that lies is heard first.
    let invented = says_it_saw(&world, "n2", 1 << 62);
    daemons.push(daemon(&world, "n2"));
    assert!(wait_until(2 * LIMIT, || {
        device(&world, "n3", "n2")["connected"] == true
    }));
    std::thread::sleep(REFUTED);
    rest(&world, daemons.pop().unwrap(), "n2");
    assert!(wait_until(2 * LIMIT, || !gaps(&world, "n3", "n2").is_empty()));
    let seen = says_it_saw(&world, "n1", 30);
    daemons.push(daemon(&world, "n1"));
    assert!(wait_until(2 * LIMIT, || !gaps(&world, "n3", "n1").is_empty()));
    assert_eq!(gaps(&world, "n3", "n1")[0]["seen"].as_u64(), Some(seen));
    assert_eq!(gaps(&world, "n3", "n2")[0]["seen"].as_u64(), Some(invented));
    // Each is told in its own name.
    let told = |by: &str, seen: u64| {
        let said = format!("{by} saw {seen} envelopes");
        let rows = notices(&world, "n3", "head-withheld");
        rows.iter()
            .any(|row| row["text"].as_str().unwrap().starts_with(&said))
    };
    let both = wait_until(2 * LIMIT, || told("n1", seen) && told("n2", invented));
    assert!(both, "{:?}", notices(&world, "n3", "head-withheld"));
}

#[test]
fn two_envelopes_of_one_number_are_both_kept_and_told_with_both_hashes() {
    let (world, mut daemons) = three();
    let first = id(&world, "n1");
    rest(&world, daemons.pop().unwrap(), "n3");
    // With the first one's own key: another envelope than the one that it signs next.
    let key_file = world.dir().join("n1.key");
    std::fs::copy(state(&world, "n1").join("device.key"), &key_file).unwrap();
    let keys = load_or_create_device_keys(&key_file, None, &mut bailey_docs_store::OsEntropy);
    let mut forged = Hash::NONE;
    let mut number = 0;
    write_there(&world, "n3", |store, now| {
        let head = node_head(store, first);
        let fields = Fields {
            account: store.account().unwrap(),
            chain: head.chain,
            kind: Kind::Tail,
            segment: 2,
            seq: head.seq + 1,
            prev: head.hash,
            before: None,
        };
        let key = EpochKey::generate([1; 32]).segment_key(DocId::Node, 2);
        let other = seal(&keys.unwrap(), fields, 1, &key, b"x", [0; 24]).unwrap();
        store.ingest(&other.bytes, now).unwrap();
        (forged, number) = (other.hash, head.seq + 1);
    });
    for name in ["yard", "keep"] {
        let _box = boxed(&world, "n1", &["-q", "--name", name], "true").ok();
        hears_of(&world, "n2", name);
    }
    daemons.push(daemon(&world, "n3"));
    let told = || notices(&world, "n3", "two-of-one-number");
    assert!(
        wait_until(2 * LIMIT, || !told().is_empty()),
        "{}",
        daemons[2].stderr()
    );
    let text = told()[0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("n1 (") && text.contains(&format!("number {number} ")),
        "{text}"
    );
    assert!(text.contains(&forged.to_string()), "{text}");
    let hashes = text.split([' ', ';']).filter(|word| word.len() == 64);
    assert_eq!(hashes.count(), 2, "{text}");
    assert!(device(&world, "n3", "n1")["two_of_one"].is_string());
    assert!(device(&world, "n3", "n2")["two_of_one"].is_null());
    // It is no fault of this store, and both are there.
    let checked = world.run("n3", &["store", "check", "--json"]).ok().json();
    let proof = checked.iter().find_map(|row| row["two_of_one"][0].as_str());
    let proof = proof.unwrap_or_else(|| panic!("{checked:#?}"));
    assert!(proof.contains(&forged.to_string()), "{proof}");
    let shown = world.run("n3", &["store", "check"]).ok().stdout;
    assert!(shown.contains("signed two envelopes"), "{shown}");
}
