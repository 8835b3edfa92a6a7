//! One writer a store: SQLite would let two in, and two would fork the chains.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held for as long as the store is open.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
    /// Whether somebody had held it before.
    pub(crate) used: bool,
}

/// The lock was not got.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it; its pid, if it wrote it down.
    Held(Option<u32>),
    Io(io::Error),
}

impl Lock {
    /// Takes the lock (flock(2)), or says who holds it.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let used = file.metadata().map_err(LockError::Io)?.len() > 0;
                file.set_len(0).map_err(LockError::Io)?;
                file.rewind().map_err(LockError::Io)?;
                writeln!(file, "{}", std::process::id()).map_err(LockError::Io)?;
                Ok(Self { _file: file, used })
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let read = (&mut file).take(32).read_to_string(&mut text);
                Err(LockError::Held(
                    read.ok().and_then(|_| text.trim().parse().ok()),
                ))
            }
            Err((_, errno)) => Err(LockError::Io(errno.into())),
        }
    }
}
