//! Secrets in files: the device's keys, and the recovery seed until a person
//! has it on paper.
//!
//! A file is made with mode 0600 and O_EXCL under another name, synced, and
//! then linked into place, so it is there whole or not at all. One that others
//! can read is refused, never quietly repaired: its secret is spent.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bailey_envelope::{DeviceKeys, RecoverySeed};
use zeroize::Zeroizing;

use crate::entropy::{Entropy, NoEntropy, random};

/// First bytes of a secret file: what it is, and the version.
const MAGIC: &[u8; 8] = b"bailey1\n";

/// A secret file that cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read it.
    #[error("{path}: mode {mode:03o} lets others at the secret; it must be 600")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else's file.
    #[error("{0}: belongs to another user")]
    Foreign(PathBuf),
    /// Not a secret file of this version.
    #[error("{0}: not a key file of this version, or damaged")]
    Damaged(PathBuf),
    /// No random bytes for a new one.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// Reads a device's keys, or makes them where there are none.
///
/// # Errors
/// [`KeyFileError`]. A file that is there and cannot be used is never replaced.
pub fn load_or_create_device_keys(
    path: &Path,
    entropy: &mut dyn Entropy,
) -> Result<DeviceKeys, KeyFileError> {
    if let Some(secret) = load::<64>(path)? {
        return Ok(DeviceKeys::generate(*secret));
    }
    let secret = Zeroizing::new(random::<64>(entropy)?);
    create(path, secret.as_ref())?;
    // Another process may have been first: what stands in the file counts.
    let stored = load::<64>(path)?.ok_or_else(|| KeyFileError::Damaged(path.to_owned()))?;
    Ok(DeviceKeys::generate(*stored))
}

/// Keeps a recovery seed until it is printed.
///
/// # Errors
/// [`KeyFileError`], also if there is one already.
pub fn keep_recovery_seed(path: &Path, seed: &RecoverySeed) -> Result<(), KeyFileError> {
    if create(path, &seed.0)? {
        return Ok(());
    }
    let source = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(KeyFileError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Reads a kept recovery seed; `None` if none is kept.
///
/// # Errors
/// [`KeyFileError`].
pub fn load_recovery_seed(path: &Path) -> Result<Option<RecoverySeed>, KeyFileError> {
    Ok(load::<32>(path)?.map(|seed| RecoverySeed(*seed)))
}

fn load<const N: usize>(path: &Path) -> Result<Option<Zeroizing<[u8; N]>>, KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let meta = file.metadata().map_err(io)?;
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyFileError::Foreign(path.to_owned()));
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    let damaged = || KeyFileError::Damaged(path.to_owned());
    let want = u64::try_from(MAGIC.len() + N).map_err(|_| damaged())?;
    if meta.len() != want || !meta.is_file() {
        return Err(damaged());
    }
    let mut magic = [0; 8];
    let mut secret = Zeroizing::new([0; N]);
    file.read_exact(&mut magic).map_err(io)?;
    file.read_exact(secret.as_mut()).map_err(io)?;
    if &magic == MAGIC {
        Ok(Some(secret))
    } else {
        Err(damaged())
    }
}

/// Makes a secret file; `false` if there was one already.
fn create(path: &Path, secret: &[u8]) -> Result<bool, KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(io)?;
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(&fresh)
        .map_err(io)?;
    let bytes = Zeroizing::new([&MAGIC[..], secret].concat());
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| std::fs::hard_link(&fresh, path));
    std::fs::remove_file(&fresh).map_err(io)?;
    match linked {
        Ok(()) => File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(io)
            .map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::entropy::OsEntropy;
    use crate::testing::TempDir;

    #[test]
    fn keys_are_made_once_and_read_back() {
        let dir = TempDir::new();
        let path = dir.path().join("state/device.key");
        let made = load_or_create_device_keys(&path, &mut OsEntropy).unwrap();
        let read = load_or_create_device_keys(&path, &mut OsEntropy).unwrap();
        assert_eq!(made.public(), read.public());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        load_or_create_device_keys(&path, &mut OsEntropy).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = load_or_create_device_keys(&path, &mut OsEntropy).unwrap_err();
            assert!(matches!(refused, KeyFileError::Exposed { .. }), "{refused}");
        }
    }

    #[test]
    fn a_damaged_key_file_is_refused_and_left_alone() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        load_or_create_device_keys(&path, &mut OsEntropy).unwrap();
        for bad in [&b""[..], b"bailey1\nshort", &[7; 72]] {
            std::fs::write(&path, bad).unwrap();
            let refused = load_or_create_device_keys(&path, &mut OsEntropy).unwrap_err();
            assert!(matches!(refused, KeyFileError::Damaged(_)), "{refused}");
            assert_eq!(std::fs::read(&path).unwrap(), bad);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_key_file_is_not_followed() {
        let dir = TempDir::new();
        let real = dir.path().join("real.key");
        load_or_create_device_keys(&real, &mut OsEntropy).unwrap();
        let link = dir.path().join("device.key");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let refused = load_or_create_device_keys(&link, &mut OsEntropy).unwrap_err();
        assert!(matches!(refused, KeyFileError::Io { .. }), "{refused}");
    }

    #[test]
    fn a_recovery_seed_is_kept_once() {
        let dir = TempDir::new();
        let path = dir.path().join("recovery.seed");
        assert!(load_recovery_seed(&path).unwrap().is_none());
        keep_recovery_seed(&path, &RecoverySeed([5; 32])).unwrap();
        assert_eq!(load_recovery_seed(&path).unwrap().unwrap().0, [5; 32]);
        assert!(keep_recovery_seed(&path, &RecoverySeed([6; 32])).is_err());
        assert_eq!(load_recovery_seed(&path).unwrap().unwrap().0, [5; 32]);
    }
}
