//! The node: command line and daemon of one ordinary user.
//!
//! The daemon is one event loop that joins the rooms; nothing else knows more
//! than one of them. The command line is its client.

pub mod api;
pub mod cli;
pub mod client;
pub mod daemon;
pub mod paths;
pub mod rows;
pub mod show;
