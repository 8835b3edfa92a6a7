//! One node a user: a lock on a file that holds the first one's process id.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg};

use crate::paths::Paths;

/// What can be wrong with the lock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another node holds it.
    #[error("a node runs already (process {0})")]
    Held(String),
    /// The file cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
}

/// Takes the lock; it is held until dropped, and by the kernel's word only as
/// long as this process lives.
pub(crate) fn take(paths: &Paths) -> Result<Flock<File>, LockError> {
    let path = paths.state.join("node.lock");
    let io = |source| LockError::Io {
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            lock.set_len(0).map_err(io)?;
            lock.rewind().map_err(io)?;
            writeln!(lock, "{}", std::process::id()).map_err(io)?;
            Ok(lock)
        }
        Err((mut file, nix::Error::EWOULDBLOCK)) => {
            let mut pid = String::new();
            // The holder may be about to write it.
            let _empty = file.read_to_string(&mut pid);
            Err(LockError::Held(pid.trim().to_owned()))
        }
        Err((_, error)) => Err(io(error.into())),
    }
}
