//! One node a user: a lock on a file that holds the first one's process id.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::api::Failure;
use crate::client;
use crate::paths::Paths;

/// How long a node that is leaving may hold up the next one: longer than the
/// ends of its boxes may take.
const LEAVE_LIMIT: Duration = Duration::from_secs(12);
/// Between two looks at the lock.
const STEP: Duration = Duration::from_millis(10);

/// The lock, held until dropped.
pub(crate) type Lock = Flock<File>;

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

/// Takes the lock for a node that a command started. `None`: another node
/// serves. One that holds the lock and does not is starting or leaving, and is
/// waited for.
pub(crate) fn take_or_defer(paths: &Paths) -> Result<Option<Flock<File>>, Failure> {
    let until = Instant::now() + LEAVE_LIMIT;
    loop {
        match take(paths) {
            Ok(lock) => return Ok(Some(lock)),
            Err(LockError::Held(_)) if client::reach(paths)?.is_some() => return Ok(None),
            Err(LockError::Held(_)) if Instant::now() < until => std::thread::sleep(STEP),
            Err(error) => return Err(Failure::host(error.to_string())),
        }
    }
}

/// Closes every descriptor but the three standard ones. Whoever ran the first
/// command may wait for the end of a pipe that it left open in it.
///
/// # Errors
/// When the kernel does not say which are open.
pub(crate) fn close_inherited() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        open.extend(number.filter(|fd: &i32| *fd > 2));
    }
    for fd in open {
        // The folder's own descriptor is among them, and closed already.
        let _closed = nix::unistd::close(fd);
    }
    Ok(())
}

/// Takes the lock; it is held until dropped, and by the kernel's word only as
/// long as this process lives.
pub(crate) fn take(paths: &Paths) -> Result<Lock, LockError> {
    let path = paths.lock();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_does_not_serve_is_waited_for_and_one_that_does_is_not() {
        let state = std::env::temp_dir().join(format!("bailey-lock-{}", std::process::id()));
        let paths = Paths {
            runtime: state.join("run"),
            state: state.clone(),
            config: None,
        };
        paths.create().unwrap();
        let held = take(&paths).unwrap();
        assert!(
            matches!(take(&paths), Err(LockError::Held(pid)) if pid == std::process::id().to_string())
        );
        let leaves = std::thread::spawn(move || {
            std::thread::sleep(STEP * 10);
            drop(held);
        });
        let ours = take_or_defer(&paths).unwrap();
        assert!(ours.is_some());
        leaves.join().unwrap();
        let _serves = std::os::unix::net::UnixListener::bind(paths.socket().unwrap()).unwrap();
        assert!(take_or_defer(&paths).unwrap().is_none());
        drop(ours);
        std::fs::remove_dir_all(state).unwrap();
    }
}
