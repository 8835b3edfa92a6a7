//! A log that cannot be written.

use std::process::{Command, Stdio};

#[test]
fn a_fault_that_cannot_be_logged_is_still_told_by_the_exit_code() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_bailey-gate"))
        .stdin(Stdio::null())
        .stderr(full)
        .status()
        .unwrap();
    // A panic would be 101.
    assert_eq!(status.code(), Some(1));
}
