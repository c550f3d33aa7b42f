//! The tables of the store, and how a connection is opened.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;
use crate::private;

/// The longest wait for another process that holds the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);
/// Statements that a connection keeps, more than the store has: to prepare one takes longer than to execute it.
const STATEMENTS: usize = 64;
/// A log of this many pages, of 4 KiB each, is brought into the file of the store by the commit that made it so long. The
/// clients of that commit wait. A job takes about 15 pages, so this happens once in 500 jobs; with SQLite's own 1,000 pages it
/// would be one job in a hundred.
pub const LOG_PAGES: u32 = 8192;
/// Changes with the tables.
pub const VERSION: i64 = 2;

pub const TABLES: &str = "
CREATE TABLE job (
    -- In the order in which they were admitted; never used again.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    stream TEXT NOT NULL,
    format TEXT NOT NULL,
    encoding TEXT,
    bytes INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    idempotency_key TEXT,
    -- The job whose body this one has.
    replay_of INTEGER,
    state TEXT NOT NULL,
    -- Why a job is dead, as JSON.
    reason TEXT,
    -- Milliseconds since 1970.
    received INTEGER NOT NULL,
    ended INTEGER,
    -- A small body.
    body BLOB,
    -- The file of a large body. Jobs that are replays of one another share it. No body and no file: it was forgotten.
    spooled TEXT
) STRICT;
CREATE UNIQUE INDEX job_by_key ON job (pipeline, stream, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_by_content ON job (pipeline, stream, sha256);
CREATE INDEX job_by_stream ON job (pipeline, stream, id);
CREATE INDEX job_pending ON job (pipeline, stream, id, bytes, received) WHERE state = 'pending';
CREATE INDEX job_dead ON job (pipeline, stream, id) WHERE state = 'dead';
CREATE INDEX job_dead_body ON job (bytes) WHERE state = 'dead' AND (body IS NOT NULL OR spooled IS NOT NULL);
CREATE INDEX job_cancelled ON job (pipeline, stream, id) WHERE state = 'cancelled';
CREATE INDEX job_ended ON job (ended) WHERE ended IS NOT NULL;
CREATE INDEX job_kept ON job (ended, bytes) WHERE state IN ('done', 'cancelled') AND (body IS NOT NULL OR spooled IS NOT NULL);
CREATE INDEX job_spooled ON job (spooled) WHERE spooled IS NOT NULL;
-- The progress of a stream whose jobs were given to a run.
CREATE TABLE stream (
    pipeline TEXT NOT NULL,
    stream TEXT NOT NULL,
    -- The name of this queue in the destination's cursor: ids of another queue say nothing about these jobs.
    queue TEXT NOT NULL,
    -- The last job that was given to a run. A destination that has more has got it from a store that knew more.
    tried INTEGER NOT NULL,
    -- The cursor of another queue from which this one went on.
    seen TEXT,
    PRIMARY KEY (pipeline, stream)
) STRICT, WITHOUT ROWID;
";

/// From version 1 to 2: what tokens have used.
const TOKENS: &str = "
-- The token with which the job came, if the store keeps a limit of it.
ALTER TABLE job ADD COLUMN token TEXT;
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    -- Its jobs that are pending.
    pending INTEGER NOT NULL,
    rows_per_second INTEGER,
    -- When the time of its rows is over, in milliseconds since 1970.
    paid INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER job_of_token_admitted AFTER INSERT ON job WHEN NEW.token IS NOT NULL AND NEW.state = 'pending' BEGIN
    UPDATE token SET pending = pending + 1 WHERE id = NEW.token;
END;
CREATE TRIGGER job_of_token_ended AFTER UPDATE OF state ON job
WHEN NEW.token IS NOT NULL AND OLD.state = 'pending' AND NEW.state <> 'pending' BEGIN
    UPDATE token SET pending = pending - 1 WHERE id = NEW.token;
END;
";

/// Opens the file, which is made if it is missing.
pub fn connect(file: &Path) -> Result<Connection, StoreError> {
    private::make(file).map_err(|error| StoreError::Sqlite(error.to_string()))?;
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A commit is on the disk when it returns; macOS needs to be told so.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise a statement is prepared again for each new value that is compared with a constant of a partial index.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Makes the tables of a new file, or brings those of an older version up to date.
pub fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => {
            transaction.execute_batch(TABLES)?;
            transaction.execute_batch(TOKENS)?;
        }
        1 => transaction.execute_batch(TOKENS)?,
        VERSION => return Ok(()),
        newer => return Err(StoreError::Version(newer)),
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}
