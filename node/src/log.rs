//! The node's log: lines on standard error, for whoever looks for a fault.
//!
//! A line that cannot be written is lost and nothing else: the log may lie on
//! the very disk that is full.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines in one [`WINDOW`]; a box can cause faults at its own speed.
const MAX_LINES: u32 = 50;
/// After this long the count begins anew.
const WINDOW: Duration = Duration::from_secs(10);

struct Count {
    since: Option<Instant>,
    lines: u32,
}

/// Writes one line, or counts it where there are too many.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    static COUNT: Mutex<Count> = Mutex::new(Count {
        since: None,
        lines: 0,
    });
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stderr = std::io::stderr().lock();
    if count.since.is_none_or(|since| since.elapsed() > WINDOW) {
        if let Some(lost) = count.lines.checked_sub(MAX_LINES).filter(|lost| *lost > 0) {
            let _lost = writeln!(stderr, "{lost} lines were left out");
        }
        *count = Count {
            since: Some(Instant::now()),
            lines: 0,
        };
    }
    count.lines = count.lines.saturating_add(1);
    if count.lines <= MAX_LINES {
        let _lost = writeln!(stderr, "{}", crate::show::text(&text.to_string()));
    }
}

/// A line of the node's log.
macro_rules! log {
    ($($word:tt)*) => {
        $crate::log::line(format_args!($($word)*))
    };
}

pub(crate) use log;
