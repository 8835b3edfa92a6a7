//! `bailey-bench`: one table of figures, each beside its peer in the same run.
//!
//! Everything happens in a world of the bench's own, as an ordinary user. A
//! peer that is not installed is said to be that; nothing is remembered from
//! another run or another machine. Runs are interleaved, so that what else the
//! machine does falls on all alike. It ends with 1 if a mark is missed or a
//! figure of bailey's is missing.

mod across;
mod audit;
mod client;
mod datagrams;
mod fill;
mod history;
mod inside;
mod machine;
mod mailbox;
mod media;
mod places;
mod scale;
mod serve;
mod server;
mod short;
mod slirp;
mod starts;
mod stay;
mod streams;
mod sync;
mod table;
mod year;

use std::process::ExitCode;
use std::time::Duration;

use bailey_tests::TestWorld;

use table::Table;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// Starts of a box, of each kind.
    starts: usize,
    /// Rounds of what is compared by rate, the places in turn.
    rounds: usize,
    /// Times that each delay between two devices is taken.
    delays: usize,
    /// Times that each delay of sync is taken.
    syncs: usize,
    /// Entries that a new device catches up on.
    caught_up: u64,
    /// Length of a stream.
    stream: Duration,
    /// Length and rounds of several streams, and of short segments.
    many: Duration,
    many_rounds: usize,
    /// Length of short connections.
    short: Duration,
    /// Length of a flood of datagrams.
    flood: Duration,
    /// Length of a call.
    call: Duration,
    /// Flows that are open and idle.
    idle: u32,
    /// Short flows that must leave nothing.
    ticks: u32,
    /// How long an idle box is watched.
    idle_for: Duration,
    /// Accounts of one mailbox, and blobs there when one starts.
    accounts: usize,
    blobs: usize,
    /// Entries of a long history.
    history: u64,
    /// Flows of each day of a year.
    flows_a_day: u64,
}

/// What is printed is worth comparing.
const WHOLE: Effort = Effort {
    starts: 30,
    rounds: 2,
    delays: 10,
    syncs: 100,
    caught_up: 500_000,
    stream: Duration::from_secs(2),
    many: Duration::from_millis(1500),
    many_rounds: 1,
    short: Duration::from_millis(1500),
    flood: Duration::from_secs(2),
    call: Duration::from_secs(20),
    idle: 10_000,
    ticks: 100_000,
    idle_for: Duration::from_secs(10),
    accounts: 1000,
    blobs: 1_000_000,
    history: 3_000_000,
    flows_a_day: 2_000,
};

/// Only to see that everything runs.
const QUICK: Effort = Effort {
    starts: 8,
    rounds: 1,
    delays: 5,
    syncs: 20,
    caught_up: 50_000,
    stream: Duration::from_millis(500),
    many: Duration::from_millis(500),
    many_rounds: 1,
    short: Duration::from_millis(500),
    flood: Duration::from_millis(500),
    call: Duration::from_secs(5),
    idle: 1000,
    ticks: 5000,
    idle_for: Duration::from_secs(2),
    accounts: 50,
    blobs: 20_000,
    history: 100_000,
    flows_a_day: 2_000,
};

/// A part of the table that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Starts,
    Streams,
    Many,
    Short,
    Udp,
    Call,
    Scale,
    Devices,
    Sync,
    Mailbox,
    Audit,
    History,
    Year,
}

const USAGE: &str = "usage: bailey-bench [--quick] [--call SECONDS] \
[--only starts|streams|many|short|udp|call|scale|devices|sync|mailbox|audit|history|year]";

fn main() -> ExitCode {
    if audit::is_gate() {
        return audit::stand_in();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("client", rest)) = words.split_first().map(|(w, rest)| (w.as_str(), rest)) {
        return client::run(rest);
    }
    let Some((effort, only)) = read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A box may open as many files as whoever starts its node.
    client::raise_files();
    let mut table = Table::new(machine::facts());
    if !matches!(
        only,
        Some(Part::Devices | Part::Sync | Part::Mailbox | Part::History | Part::Year)
    ) {
        inside::measure(&TestWorld::new(1), effort, only, &mut table);
    }
    if only.is_none_or(|only| only == Part::Devices) {
        // Another world: a node that the first one's boxes started may still be up.
        across::measure(&TestWorld::new(2), effort, &mut table);
    }
    if only.is_none_or(|only| only == Part::Sync) {
        sync::measure(effort, &mut table);
    }
    if only.is_none_or(|only| only == Part::Mailbox) {
        mailbox::measure(effort, &mut table);
    }
    if only.is_none_or(|only| only == Part::History) {
        history::measure(&TestWorld::new(2), effort, &mut table);
    }
    if only.is_none_or(|only| only == Part::Year) {
        year::measure(effort, &mut table);
    }
    print!("{table}");
    if table.complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What the words of the command line want; `None` if they mean nothing.
fn read(words: &[String]) -> Option<(Effort, Option<Part>)> {
    let (mut effort, mut only, mut call) = (WHOLE, None, None);
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--quick" => effort = QUICK,
            "--call" => call = Some(Duration::from_secs(words.next()?.parse().ok()?)),
            "--only" => only = Some(part(words.next()?)?),
            _ => return None,
        }
    }
    effort.call = call.unwrap_or(effort.call);
    Some((effort, only))
}

fn part(word: &str) -> Option<Part> {
    let part = match word {
        "starts" => Part::Starts,
        "streams" => Part::Streams,
        "many" => Part::Many,
        "short" => Part::Short,
        "udp" => Part::Udp,
        "call" => Part::Call,
        "scale" => Part::Scale,
        "devices" => Part::Devices,
        "sync" => Part::Sync,
        "mailbox" => Part::Mailbox,
        "audit" => Part::Audit,
        "history" => Part::History,
        "year" => Part::Year,
        _ => return None,
    };
    Some(part)
}
