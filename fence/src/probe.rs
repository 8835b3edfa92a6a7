//! Tries, inside a box and before its command, what the boundary should hold
//! against, and says what came of it.
//!
//! A trial is an act: something is written, opened, dialled, signalled, or
//! asked of the kernel with arguments that it refuses by themselves. What came
//! of it is the kernel's own word for it. Trials run in a child of pid 1 that
//! has all of its confinement, and that child becomes the command: what was held
//! then is held by the same process later. Where a trial got so far that its
//! process is another one after it, the child ends and a fresh one becomes the
//! command. What the child says comes as bytes with a bound, and a child that says
//! nothing has measured nothing.

mod bait;
mod capabilities;
mod files;
mod limits;
mod network;
mod processes;
#[expect(unsafe_code, reason = "system calls that are meant to be refused")]
mod sys;
mod syscalls;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bailey_channel::Channel;
use bailey_fence_plan::channel::BoxSpec;
use bailey_model::{Axis, Fact};
use nix::errno::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};

pub(crate) use bait::{Bait, Targets, lay, outside};

use crate::command::{self, Program, Streams};

/// How long the gate may take to answer; it starts while the box is made.
const GATE_LIMIT: Duration = Duration::from_secs(5);
/// How long all trials may take together.
const LIMIT: Duration = Duration::from_secs(8);
/// Longest text of a fact, in characters.
const MAX_TEXT: usize = 200;
/// Most facts of one box.
const MAX_FACTS: usize = 256;

/// What was found, in the order of the trials.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Facts {
    found: Vec<(Axis, Fact)>,
    /// A trial changed the process that made it.
    spent: bool,
}

impl Facts {
    fn add(&mut self, axis: Axis, what: &str, got: &str, held: Option<bool>) {
        let cut = |text: &str| text.chars().take(MAX_TEXT).collect();
        let fact = Fact {
            what: cut(what),
            got: cut(got),
            held,
        };
        if self.found.len() < MAX_FACTS {
            self.found.push((axis, fact));
        } else if held == Some(false)
            && let Some(last) = self.found.last_mut()
        {
            // What got through is never the one that has no room.
            *last = (axis, fact);
        }
    }
}

/// An error number as the kernel's manual names it.
fn name(errno: Errno) -> String {
    format!("{errno:?}")
}

/// What the trials came to.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    pub(crate) facts: Vec<(Axis, Fact)>,
    /// What made them, if it can become the command.
    pub(crate) process: Option<Trier>,
}

/// A process that has made the trials and waits for the word to become the command.
#[derive(Debug)]
pub(crate) struct Trier {
    pid: Pid,
    word: Channel,
    executed: OwnedFd,
}

/// What it waits for.
#[derive(Debug, Serialize, Deserialize)]
struct Become;

impl Trier {
    /// Lets it become the command. Gives its pid, and what closes when it has, or
    /// says first why it could not.
    pub(crate) fn become_command(mut self) -> (Pid, OwnedFd) {
        // One that has ended meanwhile is reaped as the command that it was to be.
        let _ended = self.word.send(&Become, &[]);
        (self.pid, self.executed)
    }

    /// Whatever it is at, it has nothing more to say.
    fn end(self) {
        let _ended = rustix::process::kill_process(self.pid, Signal::KILL);
        while let Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        {}
    }
}

/// Runs every trial in a child of this process, which has confined itself.
pub(crate) fn measure(
    spec: &BoxSpec,
    targets: &Targets,
    program: Program<'_>,
    streams: &Streams,
) -> Tried {
    // Without a channel or a child nothing is measured, which the judge says.
    let (Ok((here, there)), Ok((executed, failed))) =
        (Channel::pair(), pipe_with(PipeFlags::CLOEXEC))
    else {
        return Tried::default();
    };
    let pid = match crate::sys::fork() {
        Ok(Some(pid)) => pid,
        Ok(None) => {
            drop((here, executed));
            try_and_become(
                spec,
                targets,
                program,
                streams,
                Channel::new(there),
                &failed,
            )
        }
        Err(_) => return Tried::default(),
    };
    drop((there, failed));
    let bounded = here.set_read_timeout(Some(LIMIT)).is_ok();
    let mut process = Trier {
        pid,
        word: Channel::new(here),
        executed,
    };
    let told = match bounded {
        true => process.word.receive::<Facts>().ok(),
        false => None,
    };
    let facts = told.map(|message| message.value).unwrap_or(Facts {
        found: Vec::new(),
        spent: true,
    });
    let process = match facts.spent {
        false => Some(process),
        true => {
            process.end();
            None
        }
    };
    Tried {
        facts: facts.found,
        process,
    }
}

/// The child. Does not return.
fn try_and_become(
    spec: &BoxSpec,
    targets: &Targets,
    program: Program<'_>,
    streams: &Streams,
    mut word: Channel,
    failed: &OwnedFd,
) -> ! {
    if program.bounds.limit_files().is_err() {
        crate::sys::exit_now(1)
    }
    let facts = all(spec, targets);
    let told = word.send(&facts, &[]);
    if told.is_err() || facts.spent {
        crate::sys::exit_now(1)
    }
    // While the node judges.
    command::make_ready(program, streams, failed);
    if word.receive::<Become>().is_err() {
        crate::sys::exit_now(1)
    }
    command::become_it(program, failed)
}

fn all(spec: &BoxSpec, targets: &Targets) -> Facts {
    let begun = Instant::now();
    let mut facts = Facts::default();
    // Dialled first: the gate, if there is one, answers when it is ready.
    let here = network::look(targets);
    let dial = network::dial_gate(spec, &here);
    files::try_all(&mut facts, spec, targets);
    processes::try_all(&mut facts, targets);
    syscalls::try_all(&mut facts, targets);
    capabilities::try_all(&mut facts, targets);
    network::try_all(&mut facts, &here, spec, targets);
    limits::try_all(&mut facts, spec, targets);
    capabilities::nest(&mut facts);
    let took = format!("{} us", begun.elapsed().as_micros());
    facts.add(Axis::Limits, "trials took", &took, None);
    network::hear_gate(&mut facts, dial, begun + GATE_LIMIT);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_got_through_is_kept_when_there_is_no_room() {
        let mut facts = Facts::default();
        for _ in 0..=MAX_FACTS {
            facts.add(Axis::Files, "a", "EROFS", Some(true));
        }
        facts.add(Axis::Network, "b", "reached", Some(false));
        assert_eq!(facts.found.len(), MAX_FACTS);
        let last = facts.found.last().unwrap();
        assert_eq!((last.0, last.1.held), (Axis::Network, Some(false)));
    }
}
