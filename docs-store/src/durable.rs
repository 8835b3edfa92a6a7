//! What a power cut cannot take.
//!
//! A commit under `synchronous=FULL` syncs the whole write-ahead log, the commits
//! before it included. A sync that failed is another matter: the kernel counts the
//! pages as written, and the next one succeeds without them. So after a failure
//! nothing is called durable until the log's content stands in the database itself
//! and the log begins anew.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, ErrorCode};

use crate::db::{self, DbError};
use crate::error::ReadError;
use crate::store::Store;

/// Set once a write or a sync of the log failed; shared by all who make one.
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

    /// Moves the log into the database if it is in doubt, and has the next commit
    /// begin another.
    fn settle(&self, db: &Connection) -> Result<(), DbError> {
        if !self.0.load(Ordering::Acquire) {
            return Ok(());
        }
        // Cleared first: what fails meanwhile sets it again.
        self.0.store(false, Ordering::Release);
        let moved = db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
            row.get::<_, i64>(0)
        });
        match moved {
            Ok(0) => Ok(()),
            Ok(_) => {
                self.0.store(true, Ordering::Release);
                let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                Err(rusqlite::Error::SqliteFailure(busy, None).into())
            }
            Err(error) => {
                self.0.store(true, Ordering::Release);
                Err(error.into())
            }
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
        if durable {
            self.doubt.settle(&self.db)?;
        }
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
    /// pages of the log are not moved yet. Every few seconds is often enough.
    ///
    /// # Errors
    /// [`ReadError::Db`].
    pub fn run(&self) -> Result<u64, ReadError> {
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
