//! The program `bailey-mailbox`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use bailey_mailbox::Args;
use clap::Parser as _;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            let _unwritable = error.print();
            return ExitCode::from(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(8)
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(bailey_mailbox::run(args)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _unheard = writeln!(std::io::stderr(), "bailey-mailbox: {error}");
            ExitCode::from(125)
        }
    }
}
