//! `bailey-helper`: the optional root helper.
//!
//! It will only ever take reach away. This version holds nothing: it says its
//! version and refuses everything else, so that installing it opens nothing.

use std::io::Write as _;
use std::process::ExitCode;

/// Usage error, as everywhere in bailey.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match (words.next(), words.next()) {
        (Some(word), None) if word == "--version" => {
            let line = writeln!(
                std::io::stdout(),
                "bailey-helper {}",
                env!("CARGO_PKG_VERSION")
            );
            if line.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        _ => {
            let refusal =
                "bailey-helper: this version does nothing as root; only --version is answered";
            let _unwritable = writeln!(std::io::stderr(), "{refusal}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
