//! A year of a box under a window of 30 days: how large the store is after each
//! month, against what one window takes. `cargo bench -p bailey-docs-store --bench
//! year`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and fails by panicking"
)]

#[path = "../tests/store/common.rs"]
#[expect(dead_code, reason = "a bench uses a part of it")]
mod common;

use std::time::Instant;

use bailey_docs_store::{Moment, Slice, Store, Urgency};
use bailey_model::{
    AddrClass, Direction, EndReason, Event, FiveTuple, FlowEnded, FlowId, FlowOpened, Granted,
    Host, HostFrom, Proto,
};
use common::*;

const DAY: u64 = 24 * 3_600_000;
/// Days of the window.
const WINDOW: u64 = 30;
/// Flows of each day, each an entry as it opens and one as it ends.
const FLOWS: u64 = 2_000;
/// Hosts of each day.
const HOSTS: u64 = 24;
/// The store may be this much larger than one window takes, in percent.
const MARK: u64 = 10;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|word| word == "--bench") {
        year();
    }
}

/// One day's flows, spread over it.
fn day(store: &mut Store, day: u64) {
    for no in 0..FLOWS {
        let now = at(day * DAY + no * DAY / FLOWS);
        let flow = FlowId(day * FLOWS + no + 1);
        let opened = Event::FlowOpened(FlowOpened {
            flow,
            direction: Direction::Out,
            tuple: FiveTuple {
                proto: Proto::Tcp,
                src: ([192, 0, 0, 2], u16::try_from(1024 + no % 60_000).unwrap()).into(),
                dst: ([93, 184, 216, u8::try_from(no % HOSTS).unwrap()], 443).into(),
            },
            host: Host::new(&format!("host{}.shop{}.example", no % HOSTS, day % 7)),
            host_from: HostFrom::Dns,
            class: AddrClass::Internet,
            granted: Granted("internet".to_owned()),
        });
        let ended = Event::FlowEnded(FlowEnded {
            flow,
            bytes_out: 400 + no * 7919 % 5_000,
            bytes_in: 1_000 + no * 104_729 % 900_000,
            duration_us: 20_000 + no * 15_485_863 % 90_000_000,
            end: EndReason::Closed,
            outer_src: Some(([10, 0, 0, 5], u16::try_from(30_000 + no % 30_000).unwrap()).into()),
        });
        for event in [opened, ended] {
            store.append(BOX, event, now, Urgency::Normal).unwrap();
        }
        if no % 25 == 24 {
            store.commit(false).unwrap();
            store.seal(now).unwrap();
        }
    }
    store.commit(false).unwrap();
    store.seal_all(at((day + 1) * DAY)).unwrap();
}

fn thin(store: &mut Store, day: u64) -> (u64, u128) {
    let (mut slices, mut longest) = (0, 0);
    let now = Moment {
        wall: at(day * DAY),
        boot: [1; 16],
        up_ms: day * DAY,
    };
    loop {
        let started = Instant::now();
        let slice = store.thin(&now).unwrap();
        longest = started.elapsed().as_micros().max(longest);
        if slice == Slice::Rest {
            return (slices, longest);
        }
        slices += 1;
    }
}

fn year() {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    store.create_account("year", NOW).unwrap();
    let checkpointer = store.checkpointer().unwrap();
    let size = || {
        assert!(checkpointer.truncate().unwrap());
        std::fs::metadata(dir.path().join("store.db"))
            .unwrap()
            .len()
    };
    let (mut one, mut longest, mut slices) = (0, 0, 0);
    for no in 0..365 {
        day(&mut store, no);
        // A segment takes a day to close, so this is the most that a window is.
        if no == WINDOW {
            one = size();
            println!("one window: {one} B; {FLOWS} flows to {HOSTS} hosts a day");
        }
        let (some, slowest) = thin(&mut store, no + 1);
        (slices, longest) = (slices + some, slowest.max(longest));
        checkpointer.run().unwrap();
        if (no + 1) % WINDOW == 0 || no == 364 {
            let (now, of) = (size(), one.max(1));
            let percent = now * 100 / of;
            match one {
                0 => println!("day {:3}: {now:8} B", no + 1),
                _ => println!("day {:3}: {now:8} B, {percent:3} % of one window", no + 1),
            }
        }
    }
    println!("{slices} slices of thinning, the longest {longest} us");
    let (now, most) = (size(), one * (100 + MARK) / 100);
    let verdict = if now <= most { "held" } else { "missed" };
    println!("mark of {} %: {verdict}", 100 + MARK);
    tables(dir.path());
}

/// What the store's pages are taken by.
fn tables(dir: &std::path::Path) {
    let db = rusqlite::Connection::open(dir.join("store.db")).unwrap();
    let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    println!(
        "free pages: {} of {}",
        one("PRAGMA freelist_count"),
        one("PRAGMA page_count")
    );
    let mut statement = db
        .prepare("SELECT name, sum(pgsize), sum(unused), sum(ncell) FROM dbstat GROUP BY name ORDER BY 2 DESC")
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let name: String = row.get(0).unwrap();
        let [size, unused, cells] = [1, 2, 3].map(|at| row.get::<_, i64>(at).unwrap());
        println!("{name:32} {size:9} B, {unused:8} B of them unused, {cells} cells");
    }
    let mut statement = db
        .prepare("SELECT hex(substr(c.doc,1,1)), c.doc, count(*), sum(length(e.bytes)) FROM envelopes e JOIN chains c ON c.id = e.chain GROUP BY c.doc ORDER BY 4 DESC")
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let doc: String = row.get(0).unwrap();
        let [count, size] = [2, 3].map(|at| row.get::<_, i64>(at).unwrap());
        println!("document {doc}: {count} envelopes, {size} B");
    }
}
