//! The node's folders (XDG Base Directory Specification): those of the user's first
//! account, and in each of them those of every further one.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::account::{self, AccountName};

/// Longest path of a Unix socket (`sun_path` in unix(7), less the final NUL).
const MAX_SOCKET_PATH: usize = 107;
/// The file of the state folder that says where the node listens.
const SOCKET_NOTE: &str = "node.socket";

/// What can be wrong with the folders.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// Neither the XDG variable nor HOME says where.
    #[error("neither {0} nor HOME is set to an absolute path")]
    NotSet(&'static str),
    /// A folder cannot be made or looked at.
    #[error("{path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// A folder that others could change.
    #[error("{path}: belongs to uid {owner} with mode {mode:03o}; it must be yours alone (700)")]
    Shared {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder that would be made in somebody else's.
    #[error("{path}: would be made in {parent}, which belongs to uid {owner}: whose HOME is this?")]
    Elsewhere {
        /// The folder.
        path: PathBuf,
        /// What is there of the way to it.
        parent: PathBuf,
        /// Whose that is.
        owner: u32,
    },
    /// The socket's path does not fit.
    #[error("{0}: too long for a socket ({MAX_SOCKET_PATH} bytes at most)")]
    SocketPath(PathBuf),
}

/// Where the node keeps things.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Keys, store, boxes.
    pub state: PathBuf,
    /// Socket.
    pub runtime: PathBuf,
    /// What a person set. It need not be there; none where nothing says where.
    pub config: Option<PathBuf>,
}

impl Paths {
    /// From the environment, of the account that this process is about; nothing is
    /// created.
    ///
    /// # Errors
    /// When it says nothing usable.
    pub fn from_env() -> Result<Self, PathsError> {
        Ok(Self::of_user()?.of(account::chosen()))
    }

    /// Those of the user's first account. All of every other account's lie in them.
    ///
    /// # Errors
    /// When the environment says nothing usable.
    pub(crate) fn of_user() -> Result<Self, PathsError> {
        Self::from(&|name| std::env::var_os(name), &is_private)
    }

    /// Of these, the user's first, to an account's own.
    pub(crate) fn of(self, account: Option<&AccountName>) -> Self {
        let Some(name) = account else { return self };
        let own = |folder: &Path| folder.join(account::FOLDER).join(name.as_str());
        Self {
            state: own(&self.state),
            runtime: own(&self.runtime),
            config: self.config.as_deref().map(own),
        }
    }

    /// `is_private` says whether a folder is the user's alone. A runtime folder that is
    /// not, or is not there, is that of another session (su(1) leaves it in the
    /// environment) or none (cron(8)): the state folder takes its place.
    fn from(
        var: &dyn Fn(&str) -> Option<OsString>,
        is_private: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, PathsError> {
        let absolute = |name| {
            var(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .ok_or(PathsError::NotSet("XDG_STATE_HOME"))?
            .join("bailey");
        let runtime = match absolute("XDG_RUNTIME_DIR").filter(|path| is_private(path)) {
            Some(runtime) => runtime.join("bailey"),
            None => state.join("run"),
        };
        let config = absolute("XDG_CONFIG_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".config")))
            .map(|folder| folder.join("bailey"));
        Ok(Self {
            state,
            runtime,
            config,
        })
    }

    /// Makes both folders, and refuses folders that are not the user's alone.
    ///
    /// # Errors
    /// When they cannot be made or are shared.
    pub fn create(&self) -> Result<(), PathsError> {
        private_dir(&self.state)?;
        private_dir(&self.runtime)
    }

    /// Whether this account was ever begun.
    #[must_use]
    pub(crate) fn exist(&self) -> bool {
        std::fs::symlink_metadata(&self.state).is_ok()
    }

    /// The control socket.
    ///
    /// # Errors
    /// When the path does not fit into a socket address.
    pub fn socket(&self) -> Result<PathBuf, PathsError> {
        let path = self.runtime.join("control.sock");
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(PathsError::SocketPath(path));
        }
        Ok(path)
    }

    /// The folder of a box's own folder and id.
    #[must_use]
    pub fn boxed(&self, name: &str) -> PathBuf {
        self.state.join("boxes").join(name)
    }

    /// The node's log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.state.join("node.log")
    }

    /// Where a log that has grown goes.
    #[must_use]
    pub(crate) fn old_log(&self) -> PathBuf {
        self.state.join("node.log.1")
    }

    /// The lock that makes a node the only one; it holds its process id.
    #[must_use]
    pub(crate) fn lock(&self) -> PathBuf {
        self.state.join("node.lock")
    }

    /// Writes down where the node listens: a command line with another
    /// `XDG_RUNTIME_DIR` has the same state folder, and so the same node.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write_socket(&self, socket: &Path) -> io::Result<()> {
        let path = self.state.join(SOCKET_NOTE);
        let fresh = path.with_extension("socket.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(socket.as_os_str().as_bytes())?;
        std::fs::rename(fresh, path)
    }

    /// Where the last node that listened did.
    ///
    /// # Errors
    /// When the note is there and cannot be read.
    pub(crate) fn written_socket(&self) -> io::Result<Option<PathBuf>> {
        let bytes = match std::fs::read(self.state.join(SOCKET_NOTE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let path = PathBuf::from(OsString::from_vec(bytes));
        Ok(Some(path).filter(|path| path.is_absolute()))
    }
}

/// Whether a folder is there and only this user can write to it.
fn is_private(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
    })
}

/// Root can write anywhere, and is often root in the environment of another: it would
/// leave in that one's home what that one cannot use.
fn in_own(path: &Path) -> Result<(), PathsError> {
    let own = geteuid();
    let there = path
        .ancestors()
        .find_map(|part| Some((part, std::fs::metadata(part).ok()?)));
    match there {
        Some((parent, found)) if own.is_root() && found.uid() != own.as_raw() => {
            Err(PathsError::Elsewhere {
                path: path.to_owned(),
                parent: parent.to_owned(),
                owner: found.uid(),
            })
        }
        _ => Ok(()),
    }
}

/// A folder of mode 0700 that belongs to this user.
pub(crate) fn private_dir(path: &Path) -> Result<(), PathsError> {
    let io = |source| PathsError::Io {
        path: path.to_owned(),
        source,
    };
    if std::fs::symlink_metadata(path).is_err() {
        in_own(path)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(io)?;
    let found = std::fs::symlink_metadata(path).map_err(io)?;
    let mode = found.permissions().mode() & 0o777;
    let mine = found.uid() == geteuid().as_raw();
    if mine && found.is_dir() && mode != 0o700 {
        // An umask cannot widen 0700; an older folder may be wider.
        return std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(io);
    }
    if !mine || !found.is_dir() {
        return Err(PathsError::Shared {
            path: path.to_owned(),
            owner: found.uid(),
            mode,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(vars: &[(&str, &str)]) -> Result<Paths, PathsError> {
        paths_where(vars, true)
    }

    /// Where the runtime folder is the user's own, or is not.
    fn paths_where(vars: &[(&str, &str)], own: bool) -> Result<Paths, PathsError> {
        let var = |name: &str| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| OsString::from(value))
        };
        Paths::from(&var, &|_| own)
    }

    #[test]
    fn xdg_variables_win_and_relative_ones_are_ignored() {
        let found = paths(&[
            ("XDG_STATE_HOME", "/s"),
            ("XDG_RUNTIME_DIR", "/r"),
            ("HOME", "/h"),
        ]);
        let found = found.unwrap();
        assert_eq!(
            (found.state, found.runtime),
            ("/s/bailey".into(), "/r/bailey".into())
        );
        let found = paths(&[("XDG_STATE_HOME", "s"), ("HOME", "/h")]).unwrap();
        assert_eq!(found.state, Path::new("/h/.local/state/bailey"));
        assert_eq!(found.runtime, Path::new("/h/.local/state/bailey/run"));
        assert!(matches!(paths(&[]), Err(PathsError::NotSet(_))));
    }

    #[test]
    fn a_runtime_folder_that_is_not_the_users_own_is_as_none() {
        let vars = [("XDG_RUNTIME_DIR", "/run/user/1000"), ("HOME", "/h")];
        let found = paths_where(&vars, false).unwrap();
        assert_eq!(found.runtime, Path::new("/h/.local/state/bailey/run"));
        let folder = std::env::temp_dir().join(format!("bailey-private-{}", std::process::id()));
        assert!(!is_private(&folder));
        private_dir(&folder).unwrap();
        assert!(is_private(&folder));
        std::fs::set_permissions(&folder, Permissions::from_mode(0o770)).unwrap();
        assert!(!is_private(&folder));
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_further_account_has_folders_of_its_own_in_the_first_ones() {
        let vars = [("XDG_RUNTIME_DIR", "/r"), ("HOME", "/h")];
        let first = paths(&vars).unwrap();
        let work: AccountName = "work".parse().unwrap();
        let own = first.clone().of(Some(&work));
        assert_eq!(own.state, Path::new("/h/.local/state/bailey/accounts/work"));
        assert_eq!(own.runtime, Path::new("/r/bailey/accounts/work"));
        assert_eq!(
            own.config.as_deref(),
            Some(Path::new("/h/.config/bailey/accounts/work"))
        );
        for (own, first) in [
            (own.lock(), first.lock()),
            (own.socket().unwrap(), first.socket().unwrap()),
            (own.log(), first.log()),
            (own.boxed("yard"), first.boxed("yard")),
        ] {
            assert_ne!(own, first);
        }
        assert_eq!(first.clone().of(None).state, first.state);
    }

    #[test]
    fn no_folder_is_made_in_somebody_elses() {
        let root = std::env::temp_dir().join(format!("bailey-theirs-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let (own, deep) = (geteuid().as_raw(), root.join("a/b/bailey"));
        if own == 0 {
            std::os::unix::fs::chown(&root, Some(65_533), None).unwrap();
            let refused = private_dir(&deep).unwrap_err();
            assert!(matches!(
                refused,
                PathsError::Elsewhere { owner: 65_533, .. }
            ));
            assert!(!root.join("a").exists());
            std::os::unix::fs::chown(&root, Some(own), None).unwrap();
        }
        private_dir(&deep).unwrap();
        assert_eq!(deep.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_note_of_the_socket_is_read_as_it_was_written() {
        let state = std::env::temp_dir().join(format!("bailey-note-{}", std::process::id()));
        private_dir(&state).unwrap();
        let paths = Paths {
            runtime: state.join("run"),
            state: state.clone(),
            config: None,
        };
        assert_eq!(paths.written_socket().unwrap(), None);
        let socket = PathBuf::from(OsString::from_vec(b"/r\xff/control.sock".to_vec()));
        paths.write_socket(&socket).unwrap();
        assert_eq!(paths.written_socket().unwrap(), Some(socket));
        let mode = std::fs::metadata(state.join(SOCKET_NOTE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
        paths.write_socket(Path::new("relative")).unwrap();
        assert_eq!(paths.written_socket().unwrap(), None);
        std::fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn a_socket_path_that_does_not_fit_is_refused() {
        let long = format!("/{}", "x".repeat(100));
        let found = paths(&[("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", &long)]).unwrap();
        assert!(matches!(found.socket(), Err(PathsError::SocketPath(_))));
    }
}
