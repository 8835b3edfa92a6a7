//! The gate's process: one a box, at the other end of its TUN.
//!
//! Everything that decides is in `bailey-gate-proto`, which is pure; here are
//! the descriptors: the TUN, the sockets outside, rtnetlink, the channel to the
//! node. One thread and one epoll set, no task and no copy a flow: bytes go
//! from a socket straight into a flow's buffer and back.

#![deny(clippy::print_stderr, clippy::print_stdout)]

mod capture;
mod confine;
mod netlink;
mod notes;
mod ping;
mod poll;
mod publish;
mod shell;
mod stream;
#[expect(
    unsafe_code,
    reason = "prctl, mallopt, setsockopt and the descriptor a process is started with"
)]
mod sys;
mod upstream;
mod wire;

pub use shell::{GateError, run};
