//! The launcher of boxes: a small single-threaded program, one for each box.
//!
//! It reads a specification from its channel, makes one child in new
//! namespaces of every kind, and stays outside as the box's keeper. The child
//! builds the box by the planned operations, gives up every privilege and
//! becomes the box's pid 1, which starts the command, reaps, and forwards
//! signals. Whichever of node, launcher and pid 1 goes away, the box is gone.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod ahead;
mod builder;
mod command;
mod confine;
mod covers;
mod display;
mod doctor;
mod facts;
mod fallback;
mod gpu;
mod host;
mod init;
mod join;
mod keeper;
mod landlock;
mod launcher;
mod limits;
mod mounts;
mod netlink;
mod probe;
pub mod seccomp;
mod step;
#[expect(unsafe_code, reason = "system calls without a safe wrapper")]
mod sys;

pub use doctor::doctor;
pub use fallback::bubblewrap::{INSIDE, inside};
pub use launcher::{LaunchError, launch};
