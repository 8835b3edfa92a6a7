//! `bailey`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bailey_node::cli::main()
}
