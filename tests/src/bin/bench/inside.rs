//! Figures of one node: starting a box, connections.

use std::time::Duration;

use bailey_tests::{TestWorld, binaries};

use crate::server::Server;
use crate::table::Table;
use crate::{Effort, Part, audit, media, scale, short, starts, streams};

/// Beyond what is measured, for the start of a place.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

/// Measures everything that one node suffices for.
pub(crate) fn measure(world: &TestWorld, effort: Effort, only: Option<Part>, table: &mut Table) {
    let wants = |part| only.is_none_or(|only| only == part);
    if wants(Part::Starts) {
        starts::measure(world, effort, table);
    }
    let server = match Server::start(world) {
        Ok(server) => server,
        Err(why) => return table.lacks(why),
    };
    let parts: [(Part, Measure); 7] = [
        (Part::Streams, streams::measure),
        (Part::Many, streams::many),
        (Part::Short, short::measure),
        (Part::Udp, media::flood),
        (Part::Call, media::call),
        (Part::Scale, scale::measure),
        (Part::Audit, audit::measure),
    ];
    for (part, measure) in parts {
        if wants(part) {
            measure(world, &server, effort, table);
        }
    }
}

/// Measures one part with the servers at hand.
type Measure = fn(&TestWorld, &Server, Effort, &mut Table);

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
