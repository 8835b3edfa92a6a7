//! The database: one SQLite file in WAL mode that holds sealed or signed bytes
//! and the columns needed to find them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// The database's file name within the store's folder.
pub(crate) const FILE: &str = "store.db";
/// That of its write-ahead log.
pub(crate) const LOG: &str = "store.db-wal";
/// `BAIL`: a file with another id is not a store of ours.
const APPLICATION_ID: i32 = 0x4241_494c;
/// Version of the tables.
const USER_VERSION: i32 = 4;
/// The oldest version that is brought up to it.
const OLDEST_VERSION: i32 = 1;
/// Pages of write-ahead log after which the writer itself checkpoints. That
/// stalls it, so a [`crate::Checkpointer`] should have run long before; this
/// only keeps the log from growing without end where none does.
const CHECKPOINT_BACKSTOP_PAGES: i32 = 16_384;

const TABLES: &str = "
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE chains(
  id INTEGER PRIMARY KEY, doc BLOB NOT NULL, writer BLOB NOT NULL, incarnation BLOB NOT NULL,
  seq INTEGER NOT NULL, hash BLOB NOT NULL, segment INTEGER NOT NULL, key_id BLOB NOT NULL,
  opened INTEGER NOT NULL, open_segment INTEGER NOT NULL, last_no INTEGER NOT NULL,
  broken INTEGER,
  UNIQUE(doc, writer, incarnation));
CREATE TABLE envelopes(
  chain INTEGER NOT NULL, seq INTEGER NOT NULL, segment INTEGER NOT NULL, hash BLOB NOT NULL,
  received INTEGER NOT NULL, bytes BLOB NOT NULL, UNIQUE(chain, seq));
CREATE TABLE spans(
  chain INTEGER NOT NULL, segment INTEGER NOT NULL, first_no INTEGER NOT NULL,
  last_no INTEGER NOT NULL, from_ts INTEGER NOT NULL, to_ts INTEGER NOT NULL,
  PRIMARY KEY(chain, segment)) WITHOUT ROWID;
CREATE TABLE journal(
  doc BLOB NOT NULL, no INTEGER NOT NULL, count INTEGER NOT NULL, segment INTEGER NOT NULL,
  key_id BLOB NOT NULL, row BLOB NOT NULL, PRIMARY KEY(doc, no)) WITHOUT ROWID;
CREATE TABLE own_docs(
  doc BLOB PRIMARY KEY, incarnation BLOB NOT NULL, next_no INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE epochs(
  key_id BLOB PRIMARY KEY, number INTEGER NOT NULL, made INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE wraps(
  key_id BLOB NOT NULL, signer BLOB NOT NULL, writer BLOB NOT NULL, epoch INTEGER NOT NULL,
  membership BLOB NOT NULL, enc BLOB NOT NULL, sealed BLOB NOT NULL,
  PRIMARY KEY(key_id, writer, signer)) WITHOUT ROWID;
CREATE TABLE quarantine(
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, reason TEXT NOT NULL, hash BLOB NOT NULL UNIQUE,
  bytes BLOB NOT NULL);
";

/// What each version has that the one before had not. Rows of what was there are
/// counted when the store opens, which takes its keys.
const FROM_1: &str = "
CREATE TABLE spans(
  chain INTEGER NOT NULL, segment INTEGER NOT NULL, first_no INTEGER NOT NULL,
  last_no INTEGER NOT NULL, from_ts INTEGER NOT NULL, to_ts INTEGER NOT NULL,
  PRIMARY KEY(chain, segment)) WITHOUT ROWID;
INSERT INTO meta(key, value) VALUES ('uncounted', x'01');
";
const FROM_3: &str = "ALTER TABLE journal ADD COLUMN count INTEGER NOT NULL DEFAULT 0;";
/// The version whose journal says how many entries a row has.
pub(crate) const COUNTED_ROWS: i32 = 4;

/// The database refused.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// No room on the disk, or the store's share of it is used up. Nothing was
    /// written; the same store goes on once there is room.
    #[error("the disk is full")]
    Full,
    /// A failed sync left the write-ahead log in doubt, and it could not be
    /// written again.
    #[error("the write-ahead log: {0}")]
    Log(io::Error),
    /// A row of the journal is beyond what its cipher takes. Nothing was written.
    #[error("a row of the journal is too long to be sealed")]
    TooLong,
    /// Anything else.
    #[error("database: {0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            _ => Self::Sqlite(error),
        }
    }
}

/// A store's database that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenDbError {
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no store.
    #[error("{0}: there is no store here")]
    Missing(PathBuf),
    /// There was a store and its database is gone: an empty one in its place would
    /// hide the loss.
    #[error(
        "{0}: the database of this store is gone; put it back, or remove store.lock beside it \
         to begin an empty one"
    )]
    Gone(PathBuf),
    /// Not a store, or damaged. It is left as it is: an empty one in its place
    /// would hide the loss.
    #[error("{path}: not a bailey store, or damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// Made by an earlier version, and not brought up yet: its node does that when it
    /// starts.
    #[error(
        "{path}: made by an earlier version of bailey (tables of version {version}); its node \
         brings it up when it starts"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i32,
    },
    /// Made by a newer version.
    #[error("{path}: made by a newer version of bailey (tables of version {version})")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i32,
    },
}

/// Makes the store's folder, for its user alone.
pub(crate) fn create_folder(dir: &Path) -> Result<(), OpenDbError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| OpenDbError::Io {
            path: dir.to_owned(),
            source,
        })
}

/// Makes an empty database, unless there is one, or there was one before. The lock
/// is held.
///
/// The tables are made under another name and the file is then moved into
/// place, so a database that is there is always whole.
pub(crate) fn create(dir: &Path, had_one: bool) -> Result<(), OpenDbError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenDbError::Io { path, source }
    };
    let path = dir.join(FILE);
    if path.try_exists().map_err(at(&path))? {
        return Ok(());
    }
    let fresh = dir.join("store.db.new");
    // A start that ended before its database was in place left this.
    if had_one && !fresh.try_exists().map_err(at(&fresh))? {
        return Err(OpenDbError::Gone(path));
    }
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&fresh)(error)),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(at(&fresh))?;
    fill(&fresh).map_err(|error| OpenDbError::Damaged {
        path: fresh.clone(),
        why: error.to_string(),
    })?;
    file.sync_all().map_err(at(&fresh))?;
    std::fs::rename(&fresh, &path).map_err(at(&path))?;
    File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(at(dir))
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    db.pragma_update(None, "application_id", APPLICATION_ID)?;
    db.pragma_update(None, "user_version", USER_VERSION)?;
    db.execute_batch(TABLES)?;
    db.execute_batch(crate::thin::tables::TABLES)?;
    db.close().map_err(|(_, error)| error)
}

/// Opens the database for the one writer.
pub(crate) fn open_writer(dir: &Path) -> Result<Connection, OpenDbError> {
    let path = dir.join(FILE);
    let damaged = |error: rusqlite::Error| OpenDbError::Damaged {
        path: path.clone(),
        why: error.to_string(),
    };
    let (mut db, version) = connect(&path)?;
    db.pragma_update(None, "journal_mode", "WAL")
        .map_err(damaged)?;
    if (OLDEST_VERSION..USER_VERSION).contains(&version) {
        bring_up(&mut db, version).map_err(damaged)?;
    } else {
        check(&path, version)?;
    }
    // What is deleted is overwritten: keys above all.
    db.pragma_update(None, "secure_delete", "ON")
        .map_err(damaged)?;
    db.pragma_update(None, "synchronous", "NORMAL")
        .map_err(damaged)?;
    db.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_BACKSTOP_PAGES)
        .map_err(damaged)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

/// Whether a folder has a database.
pub(crate) fn is_there(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Opens the database for reading, beside the writer.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection, OpenDbError> {
    // Read-write, because a reader of a write-ahead log takes part in its
    // shared memory; `query_only` keeps it from writing.
    let path = dir.join(FILE);
    let db = open(&path)?;
    keep_log(&db)?;
    let damaged = |error: rusqlite::Error| OpenDbError::Damaged {
        path,
        why: error.to_string(),
    };
    db.pragma_update(None, "query_only", "ON")
        .map_err(damaged)?;
    Ok(db)
}

/// Opens the database for checkpoints only.
pub(crate) fn open_checkpointer(dir: &Path) -> Result<Connection, OpenDbError> {
    let db = open(&dir.join(FILE))?;
    keep_log(&db)?;
    Ok(db)
}

/// Opens a database of which anything may be damaged but its first page.
pub(crate) fn open_damaged(dir: &Path) -> Result<Connection, OpenDbError> {
    let path = dir.join(FILE);
    let (db, version) = connect(&path)?;
    match version {
        version if version > USER_VERSION => Err(OpenDbError::Newer { path, version }),
        _ => Ok(db),
    }
}

/// Leaves the write-ahead log to the writer when this connection is the last.
fn keep_log(db: &Connection) -> Result<(), OpenDbError> {
    let set = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    set.map(drop).map_err(|error| OpenDbError::Damaged {
        path: FILE.into(),
        why: error.to_string(),
    })
}

/// Brings the tables of an older version up to this one's, all of it or nothing.
fn bring_up(db: &mut Connection, version: i32) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if version < 2 {
        tx.execute_batch(FROM_1)?;
    }
    if version < 3 {
        tx.execute_batch(crate::thin::tables::TABLES)?;
        tx.execute_batch(crate::thin::tables::UNNOTED)?;
    }
    tx.execute_batch(FROM_3)?;
    tx.pragma_update(None, "user_version", USER_VERSION)?;
    tx.commit()
}

fn open(path: &Path) -> Result<Connection, OpenDbError> {
    let (db, version) = connect(path)?;
    check(path, version)?;
    Ok(db)
}

/// A connection, and the version of the tables.
fn connect(path: &Path) -> Result<(Connection, i32), OpenDbError> {
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => return Err(OpenDbError::Missing(path.to_owned())),
        Err(source) => {
            return Err(OpenDbError::Io {
                path: path.to_owned(),
                source,
            });
        }
    }
    let damaged = |error: rusqlite::Error| OpenDbError::Damaged {
        path: path.to_owned(),
        why: error.to_string(),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(damaged)?;
    db.busy_timeout(std::time::Duration::from_secs(5))
        .map_err(damaged)?;
    // A plan does not depend on what is asked for: a statement that is kept would be
    // prepared anew for each number that it is given.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(damaged)?;
    let read = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let id = read("application_id").map_err(damaged)?;
    if id != APPLICATION_ID {
        let why = format!("application id is {id:#x}");
        return Err(OpenDbError::Damaged {
            path: path.to_owned(),
            why,
        });
    }
    let version = read("user_version").map_err(damaged)?;
    Ok((db, version))
}

fn check(path: &Path, version: i32) -> Result<(), OpenDbError> {
    let path = path.to_owned();
    match version {
        USER_VERSION => Ok(()),
        version if version > USER_VERSION => Err(OpenDbError::Newer { path, version }),
        OLDEST_VERSION..USER_VERSION => Err(OpenDbError::Older { path, version }),
        version => {
            let why = format!("tables of version {version}");
            Err(OpenDbError::Damaged { path, why })
        }
    }
}

/// A number as SQLite keeps it. Sequence numbers stay below 2^63 by the
/// envelope's format; a time beyond is cut.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that SQLite kept.
pub(crate) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
