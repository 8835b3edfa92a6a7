//! The node: command line and daemon of one ordinary user.
//!
//! The daemon is one event loop that joins the rooms; nothing else knows more
//! than one of them. The command line is its client.

#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod account;
pub mod api;
pub mod cli;
pub mod client;
pub mod community;
pub mod config;
pub mod daemon;
pub mod days;
pub mod export;
mod grant;
mod log;
pub mod paths;
mod png;
pub mod row_fold;
pub mod rows;
pub mod show;
mod unseen;
mod vault;
