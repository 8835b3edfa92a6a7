//! `bailey-fence`: makes one box for the node at the other end of descriptor 0.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = match std::env::args_os().nth(1) {
        None => bailey_fence::launch(),
        Some(word) if word == "doctor" => bailey_fence::doctor(),
        Some(word) if word == bailey_fence::INSIDE => bailey_fence::inside(),
        Some(_) => return ExitCode::from(2),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The log may lie on a disk that is full: a line that cannot be written
            // is lost and nothing else.
            let _lost = writeln!(std::io::stderr(), "bailey-fence: {error}");
            ExitCode::FAILURE
        }
    }
}
