//! Tries, inside a box and before its command, what the boundary should hold
//! against, and says what came of it.
//!
//! A trial is an act: something is written, opened, dialled, signalled, or
//! asked of the kernel with arguments that it refuses by themselves. What came
//! of it is the kernel's own word for it. Trials run in a child of pid 1 that
//! has all of its confinement, so nothing that one of them changes stays there;
//! what the child says comes as bytes with a bound, and a child that says
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

use std::time::{Duration, Instant};

use bailey_channel::Channel;
use bailey_fence_plan::channel::BoxSpec;
use bailey_model::{Axis, Fact};
use nix::errno::Errno;
use rustix::process::{Signal, WaitOptions};

pub(crate) use bait::{Bait, Targets, lay};

use crate::limits::Bounds;

/// How long the gate may take to answer; it starts while the box is made.
const GATE_LIMIT: Duration = Duration::from_secs(5);
/// How long all trials may take together.
const LIMIT: Duration = Duration::from_secs(8);
/// Longest text of a fact, in characters.
const MAX_TEXT: usize = 200;
/// Most facts of one box.
const MAX_FACTS: usize = 256;

/// What was found, in the order of the trials.
#[derive(Debug, Default)]
struct Facts(Vec<(Axis, Fact)>);

impl Facts {
    fn add(&mut self, axis: Axis, what: &str, got: &str, held: Option<bool>) {
        let cut = |text: &str| text.chars().take(MAX_TEXT).collect();
        let fact = Fact {
            what: cut(what),
            got: cut(got),
            held,
        };
        if self.0.len() < MAX_FACTS {
            self.0.push((axis, fact));
        } else if held == Some(false)
            && let Some(last) = self.0.last_mut()
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

/// Runs every trial in a child of this process, which has confined itself.
pub(crate) fn measure(spec: &BoxSpec, targets: &Targets, bounds: &Bounds) -> Vec<(Axis, Fact)> {
    // Without a channel or a child nothing is measured, which the judge says.
    let Ok((here, there)) = Channel::pair() else {
        return Vec::new();
    };
    let child = match crate::sys::fork() {
        Ok(Some(child)) => child,
        Ok(None) => {
            drop(here);
            if bounds.limit_files().is_err() {
                crate::sys::exit_now(1)
            }
            let facts = all(spec, targets);
            let told = Channel::new(there).send(&facts, &[]);
            crate::sys::exit_now(u8::from(told.is_err()))
        }
        Err(_) => return Vec::new(),
    };
    drop(there);
    let heard = here.set_read_timeout(Some(LIMIT)).ok();
    let told = heard.and_then(|()| Channel::new(here).receive::<Vec<(Axis, Fact)>>().ok());
    // Whatever it is at, it has nothing more to say.
    let _ended = rustix::process::kill_process(child, Signal::KILL);
    while let Err(rustix::io::Errno::INTR) =
        rustix::process::waitpid(Some(child), WaitOptions::empty())
    {}
    told.map_or_else(Vec::new, |message| message.value)
}

fn all(spec: &BoxSpec, targets: &Targets) -> Vec<(Axis, Fact)> {
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
    facts.0
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
        assert_eq!(facts.0.len(), MAX_FACTS);
        let last = facts.0.last().unwrap();
        assert_eq!((last.0, last.1.held), (Axis::Network, Some(false)));
    }
}
