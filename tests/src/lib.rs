//! The harness that the integration tests, the bench and the fuzzing share.
//!
//! It finds the built programs, makes worlds, runs `bailey` in their nodes as
//! an ordinary user, and bounds everything in time. A helper that cannot do
//! its work panics with the reason: its caller is a test.

mod binaries;
pub mod escape;
pub mod fuzz;
mod readers;
mod run;
pub mod sim;
mod terminal;
mod time;
mod world;

pub use binaries::{binaries, find_binaries};
pub use readers::readers;
pub use run::{Output, Running, json_lines, run, run_within};
pub use terminal::Terminal;
pub use time::{eventually, wait_until};
pub use world::TestWorld;
