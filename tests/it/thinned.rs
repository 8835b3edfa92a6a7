//! What is past its window: gone by itself, and said so.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bailey_docs_store::{DocId, Moment, OsEntropy, Store, Urgency, load_or_create_device_keys};
use bailey_model::{
    AddrClass, BoxId, BoxStarted, Direction, EndReason, Event, FiveTuple, FlowEnded, FlowId,
    FlowOpened, FlowProgressed, Granted, Host, HostFrom, Incarnation, Proto, Timestamp,
};
use bailey_tests::{TestWorld, wait_until};
use bailey_world::at;

use serde_json::Value;

use crate::away::{self, rest, shifted};
use crate::common::{LIMIT, boxed, daemon, flows, pair};

const DAY: u64 = 24 * 3_600_000;
/// Days of entries that the store has when the node starts.
const DAYS: u64 = 45;
const YARD: BoxId = BoxId([9; 16]);

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn one_flow(flow: u64) -> [Event; 3] {
    let flow = FlowId(flow);
    let opened = Event::FlowOpened(FlowOpened {
        flow,
        direction: Direction::Out,
        tuple: FiveTuple {
            proto: Proto::Tcp,
            src: ([192, 0, 0, 2], 4000).into(),
            dst: ([93, 184, 216, 34], 443).into(),
        },
        host: Host::new("shop.example"),
        host_from: HostFrom::Dns,
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    });
    // Of every other one nobody says how it ended: its last progress is all there is.
    let lost = flow.0.is_multiple_of(2);
    let moved = |part: u64| (100 / part, 900 / part);
    let (bytes_out, bytes_in) = moved(if lost { 1 } else { 2 });
    let progressed = Event::FlowProgressed(FlowProgressed {
        flow,
        bytes_out,
        bytes_in,
        duration_us: 300_000_000,
    });
    let (bytes_out, bytes_in) = if lost { (0, 0) } else { moved(1) };
    let ended = Event::FlowEnded(FlowEnded {
        flow,
        bytes_out,
        bytes_in,
        duration_us: 5,
        end: if lost {
            EndReason::GateLost
        } else {
            EndReason::Closed
        },
        outer_src: None,
    });
    [opened, progressed, ended]
}

/// A store as a node leaves it that ran for all these days, the last of them today.
fn made(dir: &Path) -> PathBuf {
    let dir = dir.join("made");
    std::fs::create_dir(&dir).unwrap();
    let begun = now() - (DAYS - 1) * DAY - 60_000;
    let keys = load_or_create_device_keys(&dir.join("device.key"), None, &mut OsEntropy).unwrap();
    let mut store = Store::open(&dir, keys, Timestamp(begun), Box::new(OsEntropy)).unwrap();
    store.create_account("n1", Timestamp(begun)).unwrap();
    let started = Event::BoxStarted(BoxStarted {
        box_id: YARD,
        name: "yard".to_owned(),
        incarnation: Incarnation([7; 16]),
        command: vec!["true".to_owned()],
        reach: "internet".to_owned(),
        image: "host".to_owned(),
    });
    for day in 0..DAYS {
        let at = Timestamp(begun + day * DAY);
        let moment = Moment {
            wall: at,
            boot: [1; 16],
            up_ms: day * DAY,
        };
        store.look_at_clock(&moment).unwrap();
        if day == 0 {
            for doc in [DocId::Node, DocId::Box(YARD)] {
                store
                    .append(doc, started.clone(), at, Urgency::Normal)
                    .unwrap();
            }
        }
        for event in one_flow(day + 1) {
            store
                .append(DocId::Box(YARD), event, at, Urgency::Normal)
                .unwrap();
        }
        store.commit(true).unwrap();
        store.seal_all(at).unwrap();
    }
    drop(store);
    // The node's user takes a copy.
    for entry in std::fs::read_dir(&dir).unwrap() {
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(entry.unwrap().path(), mode).unwrap();
    }
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A world whose first node has such a store.
fn world(nodes: u8) -> TestWorld {
    let world = TestWorld::new(nodes);
    let from = made(world.dir());
    let state = world.node("n1").unwrap().dir().join("state/bailey");
    let script = format!(
        "mkdir -p -m 700 {to} && cp {from}/store.db* {from}/device.key {to}/ && \
         chmod 600 {to}/store.db* {to}/device.key",
        to = state.display(),
        from = from.display(),
    );
    let _copied = world.sh("n1", &script).ok();
    world
}

#[test]
fn a_device_that_joins_gets_what_is_left_and_the_rest_whole() {
    let world = world(2);
    let _daemons = [daemon(&world, "n1"), daemon(&world, "n2")];
    let first = |node: &str| {
        let rows = world.run(node, &["flows", "yard", "--json"]);
        let rows = if rows.code == Some(0) {
            rows.json()
        } else {
            Vec::new()
        };
        rows.first().cloned().unwrap_or_default()
    };
    // A device that joins earlier keeps what is not thinned yet for a window of its own.
    let thinned = wait_until(LIMIT, || {
        let reason = first("n1")["reason"].as_str().map(str::to_owned);
        reason.is_some_and(|reason| reason.contains("thinned, 46 entries"))
    });
    assert!(thinned, "{}", first("n1"));
    pair(&world, "n1", "n2");
    for words in [
        &["flows", "yard", "--json"][..],
        &["summary", "yard", "--days", "--json"],
    ] {
        let ours = world.run("n1", words).ok().json();
        let same = wait_until(LIMIT, || {
            let theirs = world.run("n2", words);
            theirs.code == Some(0) && theirs.json() == ours
        });
        assert!(same, "{}", world.run("n2", words));
    }
    assert_eq!(first("n2")["kind"], "note");
    let check = world.run("n2", &["store", "check"]).ok();
    assert!(
        check.stdout.contains(", 46 thinned: all of it holds"),
        "{check}"
    );
}

#[test]
fn what_is_past_its_window_goes_by_itself_and_every_reader_says_so() {
    let world = world(1);
    let _daemon = daemon(&world, "n1");
    let thinned = || flows(&world, "n1", "yard").first().cloned();
    let said = wait_until(LIMIT, || {
        // Entries of the first 15 days: one that it started, and three a flow.
        thinned().is_some_and(|row| {
            let reason = row["reason"].as_str().unwrap_or_default();
            row["kind"] == "note" && reason.contains("thinned, 46 entries")
        })
    });
    assert!(said, "{:?}", thinned());
    let rows = flows(&world, "n1", "yard");
    let kept = rows.iter().filter(|row| row["kind"] == "flow").count();
    assert_eq!(kept, 30);
    let moved = |row: &&Value| row["kind"] == "flow" && row["bytes_in"] == 900;
    assert_eq!(rows.iter().filter(moved).count(), 30);
    assert!(rows.iter().any(|row| row["end"] == "gate lost"));
    let shown = world.run("n1", &["flows", "yard"]).ok().stdout;
    assert!(shown.contains("900 B in at least · gate lost"), "{shown}");
    // A question that does not reach so far hears nothing of it.
    let young = world.run("n1", &["flows", "yard", "--since", "5d", "--json"]);
    assert!(young.ok().json().iter().all(|row| row["kind"] != "note"));
    let export = ["export", "yard", "--format", "ndjson"];
    let export = world.run("n1", &export).ok();
    assert!(export.stdout.lines().next().unwrap().contains("thinned"));
    // What is left of each day, beside the days that are whole.
    let days = world
        .run("n1", &["summary", "yard", "--days", "--json"])
        .ok();
    let days = days.json();
    assert_eq!(days.len(), 45, "{days:#?}");
    let all_alike = days.iter().all(|row| {
        (row["host"] == "shop.example" && row["flows"] == 1)
            && (row["bytes_in"] == 900 && row["class"] == "internet")
    });
    assert!(all_alike, "{days:#?}");
    let shown = world.run("n1", &["summary", "yard", "--since", "60d"]).ok();
    assert!(shown.stdout.contains("45 flows"), "{shown}");
    // Each counted once: 45 times 900 bytes.
    assert!(shown.stdout.contains("40.5 kB in"), "{shown}");
    let check = world.run("n1", &["store", "check"]).ok();
    assert!(
        check.stdout.contains(", 46 thinned: all of it holds"),
        "{check}"
    );
}

#[test]
fn each_box_is_kept_for_as_long_as_the_configuration_says_for_it_or_for_the_node() {
    let world = TestWorld::new(1);
    let text = "[audit]\nwindow = \"2d\"\n[audit.box.ledger]\nwindow = \"10d\"\n";
    let script = format!(
        "mkdir -p $XDG_CONFIG_HOME/bailey && printf '%s' '{text}' > $XDG_CONFIG_HOME/bailey/config.toml"
    );
    let _written = world.sh("n1", &script).ok();
    let node = daemon(&world, "n1");
    for name in ["yard", "ledger"] {
        let dial = format!("curl -sS -o /dev/null http://{}/", at::WEB_V4);
        let _dialled = boxed(&world, "n1", &["-q", "--name", name], &dial).ok();
    }
    rest(node);
    let thinned = |name: &str| {
        let rows = flows(&world, "n1", name);
        let kept = rows.iter().filter(|row| row["kind"] == "flow").count();
        let said = rows.iter().any(|row| {
            let reason = row["reason"].as_str().unwrap_or_default();
            row["kind"] == "note" && reason.contains("thinned")
        });
        assert_ne!(kept == 1, said, "{name}: {rows:?}");
        said
    };
    // Days that pass, and which boxes are gone then.
    for (days, gone) in [(1, [false, false]), (4, [true, false]), (12, [true, true])] {
        let node = shifted(&world, "n1", days * away::DAY, days * away::DAY);
        let is = || [thinned("yard"), thinned("ledger")];
        assert!(
            wait_until(LIMIT, || is() == gone),
            "after {days} days: {:?}",
            is()
        );
        // What else is due goes at once, if it goes at all.
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert_eq!(is(), gone, "after {days} days");
        rest(node);
    }
}
