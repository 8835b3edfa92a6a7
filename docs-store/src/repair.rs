//! Puts a damaged store in order: what can be read goes into a new database, what
//! follows from it is made again, and the old one is kept as it was found.

mod graves;
mod journal;
mod rebuild;
mod salvage;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use bailey_envelope::{DeviceKeys, EpochKey};
use bailey_model::Timestamp;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::db::{self, DbError, OpenDbError};
use crate::entropy::Entropy;
use crate::error::ReadError;
use crate::lock::{Lock, LockError};
use crate::reader::Reader;
use rebuild::Rebuild;

/// Lines that a repair says of one kind; the others are counted.
pub(crate) const MAX_LINES: usize = 64;

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repaired {
    /// The folder that holds the database as it was found; `None` where nothing
    /// was wrong, and nothing was done.
    pub kept: Option<PathBuf>,
    /// Envelopes of the new database.
    pub envelopes: u64,
    /// Rows of its journal.
    pub rows: u64,
    /// What could not be carried over, each with its place: the first few.
    pub lost: Vec<String>,
    /// How many, in all.
    pub losses: u64,
    /// What was made again.
    pub rebuilt: Vec<String>,
}

impl Repaired {
    pub(crate) fn lose(&mut self, what: String) {
        self.losses += 1;
        if self.lost.len() < MAX_LINES {
            self.lost.push(what);
        }
    }
}

/// A repair that could not be done. The store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A node has it open.
    #[error("a bailey writes to this store{}: stop it first", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    InUse {
        /// Its pid, if it wrote it down.
        pid: Option<u32>,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is none, or nothing of it can be read.
    #[error(transparent)]
    Open(#[from] OpenDbError),
    /// The new database refused.
    #[error(transparent)]
    Db(#[from] DbError),
    /// No random bytes.
    #[error(transparent)]
    Entropy(#[from] crate::entropy::NoEntropy),
    /// A key or an entry cannot be made.
    #[error("{0}")]
    Make(&'static str),
}

impl From<rusqlite::Error> for RepairError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Db(error.into())
    }
}

/// Repairs the store of a folder that no node has open. Where all of it holds,
/// nothing is done. Nothing is ever deleted: the database is copied to
/// `damaged-TIME` before anything else happens.
///
/// # Errors
/// [`RepairError`]: the store is as it was.
pub fn repair(
    dir: &Path,
    keys: &DeviceKeys,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Result<Repaired, RepairError> {
    let lock_path = dir.join("store.lock");
    let _lock = Lock::take(&lock_path).map_err(|error| match error {
        LockError::Held(pid) => RepairError::InUse { pid },
        LockError::Io(source) => RepairError::Io {
            path: lock_path.clone(),
            source,
        },
    })?;
    if !dir.join(db::FILE).exists() {
        return Err(OpenDbError::Missing(dir.join(db::FILE)).into());
    }
    if let Ok(true) = holds(dir, keys) {
        return Ok(Repaired::default());
    }
    let kept = dir.join(format!("damaged-{}", now.0));
    let fresh = kept.join("rebuilt");
    for folder in [&kept, &fresh] {
        DirBuilder::new()
            .mode(0o700)
            .create(folder)
            .map_err(io_at(folder))?;
    }
    for file in [db::FILE, db::LOG] {
        copy(&dir.join(file), &kept.join(file))?;
    }
    let old = open_old(&kept)?;
    db::create(&fresh, false)?;
    let new = db::open_writer(&fresh)?;
    let mut repaired = Rebuild::new(&old, &new, keys, now, entropy).run()?;
    new.close().map_err(|(_, error)| error)?;
    drop(old);
    put_in_place(dir, &fresh)?;
    repaired.kept = Some(kept);
    Ok(repaired)
}

/// Whether a look at everything finds nothing.
fn holds(dir: &Path, keys: &DeviceKeys) -> Result<bool, ReadError> {
    let mut reader = Reader::open(dir, keys.clone())?;
    for chain in reader.chains()? {
        if reader.check_chain(&chain)?.faulty > 0 {
            return Ok(false);
        }
    }
    Ok(reader.check_rest()?.faults.is_empty())
}

fn io_at(path: &Path) -> impl Fn(io::Error) -> RepairError {
    let path = path.to_owned();
    move |source| RepairError::Io {
        path: path.clone(),
        source,
    }
}

/// Copies a file that may not be there, and has the copy on the disk.
fn copy(from: &Path, to: &Path) -> Result<(), RepairError> {
    match std::fs::copy(from, to) {
        Ok(_) => File::open(to)
            .and_then(|file| file.sync_all())
            .map_err(io_at(to)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_at(from)(error)),
    }
}

/// Opens the copy. It stays as it is: its log is read beside it.
fn open_old(kept: &Path) -> Result<Connection, RepairError> {
    let db = db::open_damaged(kept)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
}

/// The new database takes the old one's place. The old log goes first: it is in
/// the copy, and must never be read into the new database.
fn put_in_place(dir: &Path, fresh: &Path) -> Result<(), RepairError> {
    let (new, place) = (fresh.join(db::FILE), dir.join(db::FILE));
    File::open(&new)
        .and_then(|file| file.sync_all())
        .map_err(io_at(&new))?;
    for file in [db::LOG.to_owned(), format!("{}-shm", db::FILE)] {
        match std::fs::remove_file(dir.join(&file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_at(&dir.join(file))(error));
            }
            _ => {}
        }
    }
    std::fs::rename(&new, &place).map_err(io_at(&place))?;
    let _empty = std::fs::remove_dir(fresh);
    File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(io_at(dir))
}

/// A segment's key for a row that is made, and its epoch's name.
#[derive(Debug, Clone)]
pub(crate) struct RowKey {
    pub(crate) epoch: EpochKey,
    pub(crate) segment: u32,
}
