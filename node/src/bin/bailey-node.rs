//! `bailey-node`: all that `bailey` can do.

use std::process::ExitCode;

fn main() -> ExitCode {
    bailey_node::cli::main()
}
