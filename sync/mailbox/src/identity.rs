//! The mailbox's own key, in a file that only its owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The file cannot be read or made.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read it.
    #[error("{0}: others can read it; it must be yours alone (600)")]
    Shared(PathBuf),
    /// It holds something else.
    #[error("{0}: not a key of 32 bytes")]
    NoKey(PathBuf),
    /// Another mailbox has it open.
    #[error("{0}: another mailbox runs with this key")]
    InUse(PathBuf),
}

/// The seed, and the file that is locked for as long as it is open.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) seed: [u8; 32],
    _locked: File,
}

impl Identity {
    /// Reads the key, or makes one.
    pub(crate) fn load(path: &Path) -> Result<Self, IdentityError> {
        let at = |source| IdentityError::Io {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let (mut file, fresh) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (options.open(path).map_err(at)?, false)
            }
            Err(error) => return Err(at(error)),
        };
        let meta = file.metadata().map_err(at)?;
        if meta.mode() & 0o077 != 0 || meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(IdentityError::Shared(path.to_owned()));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| IdentityError::InUse(path.to_owned()))?;
        let mut seed = [0; 32];
        // One that was made by a start that got no further is empty.
        if fresh || meta.len() == 0 {
            getrandom::fill(&mut seed).map_err(|error| at(io::Error::other(error)))?;
            file.write_all(&seed).map_err(at)?;
            file.sync_all().map_err(at)?;
        } else {
            if meta.len() != 32 {
                return Err(IdentityError::NoKey(path.to_owned()));
            }
            file.read_exact(&mut seed).map_err(at)?;
        }
        Ok(Self {
            seed,
            _locked: file,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_stays_is_private_and_is_used_once() {
        let folder =
            std::env::temp_dir().join(format!("bailey-mailbox-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("key");
        let first = Identity::load(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(
            Identity::load(&path),
            Err(IdentityError::InUse(_))
        ));
        let seed = first.seed;
        drop(first);
        assert_eq!(Identity::load(&path).unwrap().seed, seed);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Identity::load(&path),
            Err(IdentityError::Shared(_))
        ));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, [1; 31]).unwrap();
        assert!(matches!(
            Identity::load(&path),
            Err(IdentityError::NoKey(_))
        ));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
