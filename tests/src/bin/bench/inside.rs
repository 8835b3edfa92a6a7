//! Figures of one node: starting a box, connections.

use std::time::Duration;

use bailey_tests::{TestWorld, binaries};

use crate::table::{Row, Table};
use crate::{Effort, starts, streams};

/// Beyond what is measured, for the start of a place.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

/// Measures everything that one node suffices for.
pub(crate) fn measure(world: &TestWorld, effort: Effort, table: &mut Table) {
    starts::measure(world, effort, table);
    streams::to_the_node_itself(world, effort, table);
    streams::to_the_router(world, effort, table);
    for (name, threads) in [
        ("fetches, one after the other", "1"),
        ("fetches, 16 at a time", "16"),
    ] {
        let [direct, pasta, bailey] = streams::fetches(world, effort, threads);
        let peers = vec![("no box", direct), ("pasta", pasta)];
        table.add(Row {
            name,
            unit: "/s",
            bailey,
            worst: None,
            peers,
            mark: None,
        });
    }
}

/// Whether a program is on this machine.
pub(crate) fn installed(program: &str) -> bool {
    let folders = [
        "/usr/local/bin",
        "/usr/bin",
        "/bin",
        "/usr/local/sbin",
        "/usr/sbin",
        "/sbin",
    ];
    folders
        .iter()
        .any(|folder| std::path::Path::new(folder).join(program).is_file())
}

pub(crate) fn program(name: &str) -> String {
    binaries().join(name).to_string_lossy().into_owned()
}

pub(crate) fn first_line(text: &str) -> String {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
        .to_owned()
}
