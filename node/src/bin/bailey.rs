//! `bailey`: begins and joins boxes; for everything else it becomes `bailey-node`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bailey_node::cli::first()
}
