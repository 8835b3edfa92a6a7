//! `bailey-gate`: started by the node with a channel as standard input.

use std::process::ExitCode;

fn main() -> ExitCode {
    match bailey_gate::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bailey-gate: {error}");
            ExitCode::FAILURE
        }
    }
}
