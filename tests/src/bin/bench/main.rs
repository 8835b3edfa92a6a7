//! `bailey-bench`: one table of figures, each beside its peer in the same run.
//!
//! Everything happens in a world of the bench's own, as an ordinary user. A
//! peer that is not installed is said to be that; nothing is remembered from
//! another run or another machine. Runs are interleaved, so that what else the
//! machine does falls on all alike. It ends with 1 if a mark is missed or a
//! figure of bailey's is missing.

mod across;
mod client;
mod inside;
mod machine;
mod starts;
mod streams;
mod table;

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
    /// Length of a stream.
    stream: Duration,
}

/// What is printed is worth comparing.
const WHOLE: Effort = Effort {
    starts: 40,
    rounds: 2,
    delays: 10,
    stream: Duration::from_secs(3),
};

/// Only to see that everything runs.
const QUICK: Effort = Effort {
    starts: 8,
    rounds: 1,
    delays: 5,
    stream: Duration::from_millis(500),
};

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "client") {
        words.remove(0);
        return client::run(&words);
    }
    let effort = match words.as_slice() {
        [] => WHOLE,
        [word] if word == "--quick" => QUICK,
        _ => {
            eprintln!("usage: bailey-bench [--quick]");
            return ExitCode::from(2);
        }
    };
    let mut table = Table::new(machine::facts());
    inside::measure(&TestWorld::new(1), effort, &mut table);
    // Another world: a node that the first one's boxes started may still be up.
    across::measure(&TestWorld::new(2), effort, &mut table);
    print!("{table}");
    if table.complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
