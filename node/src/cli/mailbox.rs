//! `bailey mailbox`: becomes the program beside this one.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::args::MailboxArgs;
use crate::api::Failure;

const PROGRAM: &str = "bailey-mailbox";

/// Becomes the mailbox, with the words as they are.
pub(super) fn mailbox(args: &MailboxArgs) -> Result<u8, Failure> {
    let fault = |error: std::io::Error| Failure::host(format!("{PROGRAM}: {error}"));
    let own = std::env::current_exe().map_err(fault)?;
    let program = own.with_file_name(PROGRAM);
    Err(fault(Command::new(program).args(&args.words).exec()))
}
