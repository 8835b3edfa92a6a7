//! `bailey-fence`: makes one box for the node at the other end of descriptor 0.

use std::process::ExitCode;

fn main() -> ExitCode {
    match bailey_fence::launch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bailey-fence: {error}");
            ExitCode::FAILURE
        }
    }
}
