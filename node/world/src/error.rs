//! What can go wrong with a world.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a world did not start, or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The specification asks for what a world cannot be.
    #[error("world: {0}")]
    Spec(String),
    /// A folder or file of the world's could not be made, read or removed.
    #[error("world: {path}: {source}", path = .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The server program could not be started.
    #[error("world: {program}: {source}", program = .program.display())]
    Spawn {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One step of the set-up failed; `detail` holds its own words.
    #[error("world: step `{step}` failed: {detail}")]
    Step {
        /// Which step.
        step: String,
        /// What the kernel or the program said, and what that usually means.
        detail: String,
    },
    /// No answer in time.
    #[error("world: no answer to `{asked}` within {limit:?}{detail}")]
    Late {
        /// What was asked.
        asked: String,
        /// How long was waited.
        limit: Duration,
        /// What the world wrote to its log, if anything.
        detail: String,
    },
    /// The world ended by itself.
    #[error("world: it ended while asked for `{asked}`{detail}")]
    Ended {
        /// What was asked.
        asked: String,
        /// What the world wrote to its log, if anything.
        detail: String,
    },
    /// No such node.
    #[error("world: there is no node {0}")]
    NoNode(String),
}
