//! Secrets in files: the device's keys, and the recovery seed until a person
//! has it on paper.
//!
//! A file is made with mode 0600 and O_EXCL under another name, synced, and
//! then linked into place, so it is there whole or not at all. One that others
//! can read is refused, never quietly repaired: its secret is spent.
//!
//! Plain, a file is eight bytes of magic and the secret. Guarded, it is another
//! magic, the id of the key that seals it (16 bytes), a nonce (24) and the secret
//! sealed (XChaCha20-Poly1305; what is before the nonce, and the file's name, as
//! associated data).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bailey_envelope::{DeviceKeys, RecoverySeed};
use zeroize::Zeroizing;

use crate::entropy::{Entropy, NoEntropy, random};
use crate::guard::{Guard, GuardId, OVERHEAD};

/// First bytes of a secret file: what it is, and the version.
const MAGIC: &[u8; 8] = b"bailey1\n";
/// First bytes of one that is sealed by a key which stands elsewhere.
const GUARDED: &[u8; 8] = b"bailey2\n";
/// More than any secret file is long.
const MAX_FILE: u64 = 1024;

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
    /// Sealed, and by another key than the one that was shown, or none was.
    #[error("{path}: sealed by the key {by}, which is not here")]
    Guarded {
        /// The file.
        path: PathBuf,
        /// What seals it.
        by: GuardId,
    },
    /// No random bytes for a new one.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// How a secret file is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Whoever reads the file has the secret.
    Plain,
    /// Sealed by this key.
    Guarded(GuardId),
}

/// How a device's keys are kept; `None` if there are none yet.
///
/// # Errors
/// [`KeyFileError`].
pub fn device_keys_kept(path: &Path) -> Result<Option<Kept>, KeyFileError> {
    Ok(read(path)?.map(|content| content.kept))
}

/// Reads a device's keys; `None` where there are none.
///
/// # Errors
/// [`KeyFileError`].
pub fn load_device_keys(
    path: &Path,
    guard: Option<&Guard>,
) -> Result<Option<DeviceKeys>, KeyFileError> {
    Ok(load::<64>(path, guard)?.map(|secret| DeviceKeys::generate(*secret)))
}

/// Reads a device's keys, or makes them where there are none, sealed by a guard
/// where there is one.
///
/// # Errors
/// [`KeyFileError`]. A file that is there and cannot be used is never replaced.
pub fn load_or_create_device_keys(
    path: &Path,
    guard: Option<&Guard>,
    entropy: &mut dyn Entropy,
) -> Result<DeviceKeys, KeyFileError> {
    if let Some(secret) = load::<64>(path, guard)? {
        return Ok(DeviceKeys::generate(*secret));
    }
    let secret = Zeroizing::new(random::<64>(entropy)?);
    let bytes = content(path, secret.as_ref(), guard, entropy)?;
    create(path, &bytes)?;
    // Another process may have been first: what stands in the file counts.
    let stored = load::<64>(path, guard)?.ok_or_else(|| KeyFileError::Damaged(path.to_owned()))?;
    Ok(DeviceKeys::generate(*stored))
}

/// Keeps a device's keys in another way from now on: the file is replaced whole,
/// then the old one is written over. A disk that writes elsewhere than it is told
/// (flash, snapshots) may have it still.
///
/// # Errors
/// [`KeyFileError`]; the file is then as it was, or new.
pub fn keep_device_keys(
    path: &Path,
    keys: &DeviceKeys,
    guard: Option<&Guard>,
    entropy: &mut dyn Entropy,
) -> Result<(), KeyFileError> {
    let bytes = content(path, keys.secret_bytes(), guard, entropy)?;
    replace(path, &bytes)
}

/// Keeps a recovery seed until it is printed, sealed by the device's keys.
///
/// # Errors
/// [`KeyFileError`], also if there is one already.
pub fn keep_recovery_seed(
    path: &Path,
    seed: &RecoverySeed,
    keys: &DeviceKeys,
    entropy: &mut dyn Entropy,
) -> Result<(), KeyFileError> {
    let bytes = content(path, &seed.0, Some(&Guard::of_device(keys)), entropy)?;
    if create(path, &bytes)? {
        return Ok(());
    }
    let source = io::Error::from(io::ErrorKind::AlreadyExists);
    Err(KeyFileError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Reads a kept recovery seed; `None` if none is kept. One that an earlier version
/// kept plain is read, and sealed from then on.
///
/// # Errors
/// [`KeyFileError`].
pub fn load_recovery_seed(
    path: &Path,
    keys: &DeviceKeys,
    entropy: &mut dyn Entropy,
) -> Result<Option<RecoverySeed>, KeyFileError> {
    let guard = Guard::of_device(keys);
    let Some(kept) = device_keys_kept(path)? else {
        return Ok(None);
    };
    let by = (kept != Kept::Plain).then_some(&guard);
    let seed = load::<32>(path, by)?.map(|seed| RecoverySeed(*seed));
    if let (Kept::Plain, Some(seed)) = (kept, &seed) {
        let bytes = content(path, &seed.0, Some(&guard), entropy)?;
        replace(path, &bytes)?;
    }
    Ok(seed)
}

/// Erases a kept recovery seed: a person has it on paper. It is written over first; a
/// disk that writes elsewhere than it is told may have it still.
///
/// # Errors
/// [`KeyFileError`]. That there is none is none.
pub fn erase_recovery_seed(path: &Path) -> Result<(), KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let old = OpenOptions::new()
        .write(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC | nix::libc::O_NONBLOCK)
        .open(path);
    let mut old = match old {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    };
    let length = old.metadata().map_err(io)?.len().min(MAX_FILE);
    std::fs::remove_file(path).map_err(io)?;
    if let Some(folder) = path.parent() {
        sync(folder).map_err(io)?;
    }
    let length = usize::try_from(length).unwrap_or_default();
    old.write_all(&vec![0; length])
        .and_then(|()| old.sync_all())
        .map_err(io)
}

/// What stands in a secret file.
struct Content {
    kept: Kept,
    /// The secret, sealed or not.
    body: Zeroizing<Vec<u8>>,
}

fn load<const N: usize>(
    path: &Path,
    guard: Option<&Guard>,
) -> Result<Option<Zeroizing<[u8; N]>>, KeyFileError> {
    let Some(Content { kept, body }) = read(path)? else {
        return Ok(None);
    };
    let damaged = || KeyFileError::Damaged(path.to_owned());
    let secret = match (kept, guard) {
        (Kept::Plain, _) => body,
        (Kept::Guarded(by), Some(guard)) if guard.id() == by => {
            guard.open(&body, &about(path, by)).ok_or_else(damaged)?
        }
        (Kept::Guarded(by), _) => {
            return Err(KeyFileError::Guarded {
                path: path.to_owned(),
                by,
            });
        }
    };
    let mut fixed = Zeroizing::new([0; N]);
    if secret.len() != N {
        return Err(damaged());
    }
    fixed.copy_from_slice(&secret);
    Ok(Some(fixed))
}

/// What a sealed file is bound to: its kind, its key and its name.
fn about(path: &Path, by: GuardId) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default();
    [&GUARDED[..], &by.0, name.as_encoded_bytes()].concat()
}

fn content(
    path: &Path,
    secret: &[u8],
    guard: Option<&Guard>,
    entropy: &mut dyn Entropy,
) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let bytes = match guard {
        None => [&MAGIC[..], secret].concat(),
        Some(guard) => {
            let by = guard.id();
            let sealed = guard.seal(secret, &about(path, by), entropy)?;
            [&GUARDED[..], &by.0, &sealed].concat()
        }
    };
    Ok(Zeroizing::new(bytes))
}

fn read(path: &Path) -> Result<Option<Content>, KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC | nix::libc::O_NONBLOCK)
        .open(path);
    let file = match opened {
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
    if !meta.is_file() || meta.len() > MAX_FILE {
        return Err(damaged());
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(io)?;
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    if magic == MAGIC {
        return Ok(Some(Content {
            kept: Kept::Plain,
            body: Zeroizing::new(rest.to_vec()),
        }));
    }
    match rest.split_first_chunk::<16>() {
        Some((by, sealed)) if magic == GUARDED && sealed.len() > OVERHEAD => Ok(Some(Content {
            kept: Kept::Guarded(GuardId(*by)),
            body: Zeroizing::new(sealed.to_vec()),
        })),
        _ => Err(damaged()),
    }
}

/// Makes a secret file; `false` if there was one already.
fn create(path: &Path, bytes: &[u8]) -> Result<bool, KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let (folder, fresh) = write_fresh(path, bytes).map_err(io)?;
    let linked = std::fs::hard_link(&fresh, path);
    std::fs::remove_file(&fresh).map_err(io)?;
    match linked {
        Ok(()) => sync(&folder).map_err(io).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(io(error)),
    }
}

/// Puts a secret file in the place of one.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let io = |source| KeyFileError::Io {
        path: path.to_owned(),
        source,
    };
    let mut old = OpenOptions::new()
        .write(true)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC | nix::libc::O_NONBLOCK)
        .open(path)
        .map_err(io)?;
    let length = old.metadata().map_err(io)?.len().min(MAX_FILE);
    let (folder, fresh) = write_fresh(path, bytes).map_err(io)?;
    if let Err(error) = std::fs::rename(&fresh, path) {
        let _ = std::fs::remove_file(&fresh);
        return Err(io(error));
    }
    sync(&folder).map_err(io)?;
    let length = usize::try_from(length).unwrap_or_default();
    old.write_all(&vec![0; length])
        .and_then(|()| old.sync_all())
        .map_err(io)
}

/// Writes a file beside the one that is meant, down to the disk. Its folder, and it.
fn write_fresh(path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, PathBuf)> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC)
        .open(&fresh)?;
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        let _ = std::fs::remove_file(&fresh);
        return Err(error);
    }
    Ok((folder.to_owned(), fresh))
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
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
        let made = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
        let read = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
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
        load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap_err();
            assert!(matches!(refused, KeyFileError::Exposed { .. }), "{refused}");
        }
    }

    #[test]
    fn a_damaged_key_file_is_refused_and_left_alone() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
        for bad in [&b""[..], b"bailey1\nshort", &[7; 72]] {
            std::fs::write(&path, bad).unwrap();
            let refused = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap_err();
            assert!(matches!(refused, KeyFileError::Damaged(_)), "{refused}");
            assert_eq!(std::fs::read(&path).unwrap(), bad);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_key_file_is_not_followed() {
        let dir = TempDir::new();
        let real = dir.path().join("real.key");
        load_or_create_device_keys(&real, None, &mut OsEntropy).unwrap();
        let link = dir.path().join("device.key");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let refused = load_or_create_device_keys(&link, None, &mut OsEntropy).unwrap_err();
        assert!(matches!(refused, KeyFileError::Io { .. }), "{refused}");
    }

    fn guard(byte: u8) -> Guard {
        Guard::new([byte; 32])
    }

    #[test]
    fn guarded_keys_open_by_their_own_guard_alone() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        let made = load_or_create_device_keys(&path, Some(&guard(1)), &mut OsEntropy).unwrap();
        let secret = made.secret_bytes();
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            !bytes
                .windows(16)
                .any(|part| secret.windows(16).any(|own| own == part))
        );
        let read = load_or_create_device_keys(&path, Some(&guard(1)), &mut OsEntropy).unwrap();
        assert_eq!(read.public(), made.public());
        for other in [None, Some(&guard(2))] {
            let refused = load_or_create_device_keys(&path, other, &mut OsEntropy).unwrap_err();
            assert!(matches!(refused, KeyFileError::Guarded { .. }), "{refused}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(
            device_keys_kept(&path).unwrap(),
            Some(Kept::Guarded(guard(1).id()))
        );
    }

    #[test]
    fn any_changed_bit_of_guarded_keys_is_noticed() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        load_or_create_device_keys(&path, Some(&guard(1)), &mut OsEntropy).unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            let read = load_or_create_device_keys(&path, Some(&guard(1)), &mut OsEntropy);
            assert!(read.is_err(), "byte {at}");
        }
        std::fs::write(dir.path().join("other.key"), &good).unwrap();
        std::fs::set_permissions(
            dir.path().join("other.key"),
            std::fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        let other = dir.path().join("other.key");
        assert!(load_or_create_device_keys(&other, Some(&guard(1)), &mut OsEntropy).is_err());
    }

    #[test]
    fn keys_are_kept_in_another_way_and_the_old_file_is_written_over() {
        let dir = TempDir::new();
        let path = dir.path().join("device.key");
        let made = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
        let old = File::open(&path).unwrap();
        keep_device_keys(&path, &made, Some(&guard(3)), &mut OsEntropy).unwrap();
        let mut rest = Vec::new();
        (&old).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, vec![0; 72]);
        let read = load_or_create_device_keys(&path, Some(&guard(3)), &mut OsEntropy).unwrap();
        assert_eq!(read.public(), made.public());
        keep_device_keys(&path, &made, None, &mut OsEntropy).unwrap();
        let read = load_or_create_device_keys(&path, None, &mut OsEntropy).unwrap();
        assert_eq!(read.public(), made.public());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_recovery_seed_is_kept_once_and_sealed() {
        let dir = TempDir::new();
        let path = dir.path().join("recovery.seed");
        let keys = DeviceKeys::generate([9; 64]);
        let load = |keys: &DeviceKeys| load_recovery_seed(&path, keys, &mut OsEntropy);
        let keep =
            |seed: u8| keep_recovery_seed(&path, &RecoverySeed([seed; 32]), &keys, &mut OsEntropy);
        assert!(load(&keys).unwrap().is_none());
        keep(5).unwrap();
        assert_eq!(load(&keys).unwrap().unwrap().0, [5; 32]);
        assert!(keep(6).is_err());
        assert_eq!(load(&keys).unwrap().unwrap().0, [5; 32]);
        assert!(
            !std::fs::read(&path)
                .unwrap()
                .windows(8)
                .any(|part| part == [5; 8])
        );
        assert!(load(&DeviceKeys::generate([8; 64])).is_err());
    }

    #[test]
    fn a_plain_seed_of_an_earlier_version_is_read_and_then_sealed() {
        let dir = TempDir::new();
        let path = dir.path().join("recovery.seed");
        let keys = DeviceKeys::generate([9; 64]);
        create(&path, &[&MAGIC[..], &[7; 32]].concat()).unwrap();
        for _ in 0..2 {
            let seed = load_recovery_seed(&path, &keys, &mut OsEntropy).unwrap();
            assert_eq!(seed.unwrap().0, [7; 32]);
            assert_ne!(device_keys_kept(&path).unwrap(), Some(Kept::Plain));
        }
    }
}
