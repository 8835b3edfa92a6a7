//! `bailey exec`.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use bailey_model::{BoxEnd, ChildExit};

use super::args::ExecArgs;
use super::attend::{self, Attended};
use super::relay::{self, Pipes};
use super::run::{self, EXIT_FAILED, EXIT_STOPPED};
use crate::api::{Ask, Ended, ExecAsk, Failure, Tell};
use crate::client::Client;
use crate::{rows, show};

/// Runs a further command in a box and passes its exit code through.
pub(super) fn exec(args: &ExecArgs) -> Result<u8, Failure> {
    let words = args.command.iter();
    let ask = ExecAsk {
        target: args.target.clone(),
        command: words.map(|word| word.as_bytes().to_vec()).collect(),
        env: run::variables(&args.env)?,
        cwd: None,
        pty: attend::has_terminal().then(relay::window).flatten(),
    };
    let pipes = match ask.pty {
        Some(_) => None,
        None => Some(Pipes::new().map_err(|error| Failure::host(format!("pipe: {error}")))?),
    };
    let inner = pipes
        .as_ref()
        .map_or(&[] as &[OwnedFd], |pipes| &pipes.inner);
    let fds: Vec<_> = inner.iter().map(AsFd::as_fd).collect();
    let client = Client::ask(&run::here()?, &Ask::Exec(Box::new(ask)), &fds)?;
    // Only now: a node that was started must not inherit blocked signals.
    let signals = attend::block_signals()?;
    let mut attended = Attended::new(&client, pipes.map(|pipes| pipes.outer), signals)?;
    let code = follow(client, &mut attended);
    attended.finish();
    code
}

fn follow(mut client: Client, attended: &mut Attended) -> Result<u8, Failure> {
    loop {
        let mut message = client.receive()?;
        match message.value {
            Tell::Running { .. } => {
                if let Some(fd) = message.fds.pop_front() {
                    attended.terminal(fd)?;
                }
            }
            Tell::Note(note) => attended.say(&show::sentence(&note)),
            Tell::ExecEnded(exit) => return Ok(ChildExit::shell_code(exit)),
            Tell::Ended(ended) => return Ok(box_ended(&ended, attended)),
            Tell::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
}

/// The box ended under the command.
fn box_ended(ended: &Ended, attended: &Attended) -> u8 {
    let how = show::text(&rows::end_text(&ended.end));
    attended.say(&format!("the box ended ({how}), and this command with it"));
    match ended.end {
        BoxEnd::Stopped(_) => EXIT_STOPPED,
        _ => EXIT_FAILED,
    }
}
