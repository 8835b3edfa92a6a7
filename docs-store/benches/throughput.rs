//! Figures of the store: entries a second, bytes an entry, a durable commit.
//! `cargo bench -p bailey-docs-store`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and fails by panicking"
)]

#[path = "../tests/store/common.rs"]
#[expect(dead_code, reason = "a bench uses a part of it")]
mod common;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|word| word == "--bench") {
        entries_a_second();
        microseconds_of_a_durable_commit();
    }
}

use std::time::Instant;

use bailey_docs_store::{Reader, Role, Urgency};
use bailey_model::{
    AddrClass, Direction, Event, FiveTuple, FlowId, FlowOpened, Granted, Host, HostFrom, Proto,
};
use common::*;

const ENTRIES: u64 = 100_000;

fn flow(no: u64) -> Event {
    let port = u16::try_from(1024 + no % 60_000).unwrap();
    Event::FlowOpened(FlowOpened {
        flow: FlowId(no),
        direction: Direction::Out,
        tuple: FiveTuple {
            proto: Proto::Tcp,
            src: ([192, 0, 0, 2], port).into(),
            dst: ([93, 184, 216, 34], 443).into(),
        },
        host: Host::new(&format!("host{}.shop.example", no % 50)),
        host_from: HostFrom::Dns,
        class: AddrClass::Internet,
        granted: Granted("internet".to_owned()),
    })
}

fn per_second(started: Instant) -> u64 {
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap().max(1);
    ENTRIES * 1_000_000 / micros
}

fn entries_a_second() {
    for per_commit in [1, 32, 50] {
        let dir = TempDir::new();
        let mut store = open(&dir, 1, NOW);
        store.create_account("bench", NOW).unwrap();
        let checkpointer = store.checkpointer().unwrap();
        let started = Instant::now();
        for no in 0..ENTRIES {
            store.append(BOX, flow(no), NOW, Urgency::Normal).unwrap();
            if no % per_commit == per_commit - 1 {
                store.commit(false).unwrap();
                store.seal(NOW).unwrap();
            }
            if no % 20_000 == 0 {
                checkpointer.run().unwrap();
            }
        }
        store.commit(true).unwrap();
        store.seal_all(NOW).unwrap();
        println!(
            "journal and seal, {per_commit} a commit: {}/s",
            per_second(started)
        );

        let started = Instant::now();
        let entries = Reader::open(dir.path(), keys(1))
            .unwrap()
            .entries(BOX, None)
            .unwrap();
        assert_eq!(u64::try_from(entries.len()).unwrap(), ENTRIES);
        println!("read back: {}/s", per_second(started));

        let other = TempDir::new();
        let mut peer = open(&other, 2, NOW);
        let started = Instant::now();
        pair(&mut store, &mut peer, 2, Role::Watch, NOW);
        println!("range and ingest: {}/s", per_second(started));
        let chain = store
            .heads()
            .into_iter()
            .find(|head| head.chain.doc == BOX)
            .unwrap()
            .chain;
        let bytes: usize = store
            .range(&chain, 1, usize::MAX, usize::MAX)
            .unwrap()
            .iter()
            .map(Vec::len)
            .sum();
        let on_disk = std::fs::metadata(dir.path().join("store.db"))
            .unwrap()
            .len();
        println!(
            "envelopes: {} B an entry; file {on_disk} B",
            bytes as u64 / ENTRIES
        );
    }
}

fn microseconds_of_a_durable_commit() {
    let dir = TempDir::new();
    let mut store = open(&dir, 1, NOW);
    store.create_account("bench", NOW).unwrap();
    let started = Instant::now();
    for no in 0..500 {
        store.append(BOX, flow(no), NOW, Urgency::Urgent).unwrap();
        store.commit(true).unwrap();
    }
    println!(
        "durable commits: {} us each",
        started.elapsed().as_micros() / 500
    );
}
