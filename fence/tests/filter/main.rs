#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

//! The system call filter: its table as text, compiled for every architecture
//! and run by a machine of our own, and each row in earnest.

mod bpf;
#[path = "../../src/seccomp/compile.rs"]
mod compile;
mod offline;
mod programs;
mod rows;
mod samples;
#[path = "../support/mod.rs"]
mod support;
#[expect(unsafe_code, reason = "raw system calls")]
mod sys;
#[path = "../../src/seccomp/table.rs"]
mod table;
