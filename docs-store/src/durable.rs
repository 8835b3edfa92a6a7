//! What a power cut cannot take.
//!
//! A commit under `synchronous=FULL` syncs the whole write-ahead log, the commits
//! before it included. A sync that failed is another matter: the kernel counts the
//! pages as written, the next one succeeds without them, and a checkpoint would
//! then copy what the log itself has lost. So after a failure the log is written
//! once more, as it is read back, before anything rests on it.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use crate::db::{self, DbError};
use crate::error::ReadError;
use crate::store::Store;

/// Set once a write or a sync failed; shared by all who make one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doubt(Arc<AtomicBool>);

impl Doubt {
    /// Takes note of an error.
    pub(crate) fn note(&self, error: &DbError) {
        if let DbError::Sqlite(error) = error
            && error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
        {
            self.0.store(true, Ordering::Release);
        }
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Writes the log once more if it is in doubt. Whoever calls is the one that
    /// writes to it.
    fn settle(&self, dir: &Path) -> Result<(), DbError> {
        if self.is_set() {
            again(&dir.join(db::LOG)).map_err(DbError::Log)?;
            self.0.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// Writes a file's own bytes over it, and has them on the disk.
fn again(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    file.rewind()?;
    file.write_all(&bytes)?;
    file.sync_all()
}

impl Drop for Store {
    /// The last connection moves the log into the database as it closes, but not
    /// one in doubt.
    fn drop(&mut self) {
        if self.doubt.settle(&self.dir).is_err() {
            let _kept = self
                .db
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

impl Store {
    /// Whether all that is committed, taken and sealed would outlive a power cut.
    /// What is not is kept from other devices: one that saw it would hold entries
    /// under numbers that are given again.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        !self.unsynced
    }

    /// Chooses whether the next commit is synced. Switched outside a
    /// transaction: within one (a join's) the choice made before it holds.
    pub(crate) fn set_durable(&mut self, durable: bool) -> Result<(), DbError> {
        if !self.db.is_autocommit() {
            return Ok(());
        }
        self.doubt.settle(&self.dir)?;
        if self.syncs != durable {
            let mode = if durable { "FULL" } else { "NORMAL" };
            self.db.pragma_update(None, "synchronous", mode)?;
            self.syncs = durable;
        }
        Ok(())
    }

    /// A [`Checkpointer`] of this store, for another thread.
    ///
    /// # Errors
    /// [`ReadError::Open`].
    pub fn checkpointer(&self) -> Result<Checkpointer, ReadError> {
        Checkpointer::open(&self.dir, self.doubt.clone())
    }
}

/// Moves the write-ahead log into the database, on a thread of its own, so
/// that the writer never waits for it.
#[derive(Debug)]
pub struct Checkpointer {
    pub(crate) db: Connection,
    pub(crate) doubt: Doubt,
}

impl Checkpointer {
    fn open(dir: &Path, doubt: Doubt) -> Result<Self, ReadError> {
        let db = db::open_checkpointer(dir)?;
        Ok(Self { db, doubt })
    }

    /// Moves what no reader or writer stands in the way of. Gives how many
    /// pages of the log are not moved yet; nothing is, while the log is in doubt.
    /// Every few seconds is often enough.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn run(&self) -> Result<u64, ReadError> {
        if self.doubt.is_set() {
            return Ok(0);
        }
        let left = self
            .db
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                let (log, moved): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok(log.saturating_sub(moved))
            });
        match left {
            Ok(left) => Ok(db::uint(left)),
            Err(error) => {
                let error = DbError::from(error);
                self.doubt.note(&error);
                Err(error.into())
            }
        }
    }
}
