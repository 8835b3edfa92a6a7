//! The one integration binary. One file a subject; the harness is the library
//! beside it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails by panicking")]

mod accounts;
mod allow;
mod arrows;
mod audit;
mod away;
mod boxes;
mod browser;
mod cli;
mod common;
mod decoder;
mod demo;
mod doctor;
mod durable;
mod escapes;
mod exports;
mod fallbacks;
mod floods;
mod full_disk;
mod fuzz;
mod harness;
mod hostile;
mod kept;
mod kills;
mod life;
mod limits;
mod loopback;
mod mailbox;
mod mdns;
mod membership;
mod metrics;
mod names;
mod network;
mod pairing;
mod pairing_by_mailbox;
mod pcap;
mod ping;
mod programs;
mod publish;
mod reach;
mod records;
mod recovery;
mod reports;
mod requests;
mod resolvers;
mod scale;
mod seen;
mod sim;
mod store;
mod stun;
mod sync;
mod thinned;
mod tidy;
mod told;
mod upstream;
mod vault;
mod voice;

/// A file that no `mod` line names would never be compiled.
#[test]
fn no_file_is_forgotten() {
    let main = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("it");
    let forgotten: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|end| end == "rs"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| {
            !["main", "snapshots"].contains(&name.as_str())
                && !main.lines().any(|line| line == format!("mod {name};"))
        })
        .collect();
    assert!(
        forgotten.is_empty(),
        "no `mod` line for {forgotten:?} in tests/it/main.rs"
    );
}
