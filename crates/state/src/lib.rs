//! The history of a folder's pipelines on this machine: their runs, and the progress of each stream.
//!
//! The destination is the authority on the progress of a stream, because it commits the cursor with
//! the rows. This crate keeps a history for people, a copy of each stream's progress, and the
//! one fact that a destination cannot know: which run did not finish. The next run resumes that run
//! under its id.
//!
//! One SQLite file serves all pipelines of a folder, usually `.rapidbyte/state.db` in that folder. A
//! live run holds a lock on a file of its own. The system releases the lock when the process dies,
//! however it dies.

mod attempts;
mod busy;
mod completed;
mod limit;
mod lock;
mod look;
pub mod process;
mod settings;
mod turn;
mod unfinished;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, named_params};
use serde::Serialize;

pub use attempts::AttemptRecord;
pub use busy::Holder;
use lock::RunLock;
pub use turn::{Asked, SILENCE, Turn, Watch, Worker};

/// The history of a folder.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    db: Mutex<Connection>,
    begun: Arc<OnceLock<String>>,
    /// The version of the tables that were found.
    version: u32,
    untold: Mutex<Untold>,
}

/// Writes that the history missed, because another process kept it busy.
#[derive(Debug, Default)]
struct Untold {
    /// The error that names the process. The first write waited for it; later writes are tried without a wait.
    why: Option<String>,
    rows: u64,
    bytes: u64,
}

/// Why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct StateError {
    /// The file or folder.
    pub path: String,
    /// The error text of the system or of SQLite.
    pub problem: String,
    /// Another process holds the history's lock, and was waited for.
    pub is_busy: bool,
    /// That process, where the system tells.
    pub holder: Option<Holder>,
}

impl StateError {
    fn at(path: &Path, problem: impl ToString) -> Self {
        Self {
            path: path.display().to_string(),
            problem: problem.to_string(),
            is_busy: false,
            holder: None,
        }
    }

    fn of_sql(path: &Path, error: &rusqlite::Error) -> Self {
        if !is_busy(error) {
            return match limit::behind(path, error) {
                Some(system) => Self::at(path, system),
                None => Self::at(path, error),
            };
        }
        let holder = Holder::of(path);
        let who = holder.map_or("another process".to_owned(), |holder| holder.to_string());
        let problem = format!("{who} has held the history's lock for too long");
        Self {
            is_busy: true,
            holder,
            ..Self::at(path, problem)
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The result of every fallible call.
pub type Result<T, E = StateError> = std::result::Result<T, E>;

/// A run that is at work: it lives until this is dropped or [`State::finish`] is called.
#[derive(Debug)]
pub struct ActiveRun {
    id: String,
    pipeline: String,
    goes_on: bool,
    lock: RunLock,
    ended: unfinished::Ended,
    turn: Option<Turn>,
}

/// One run, newest first in lists.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRecord {
    /// Its id.
    pub id: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// When it began: `2026-01-31T23:59:59.123Z`.
    pub started_at: String,
    /// When it ended. `None` while it runs, or if it never recorded its end.
    pub ended_at: Option<String>,
    /// `running`, `ok`, `partial` when some streams failed and all others are complete, `failed`, or
    /// `unfinished` when the run died before it recorded an outcome.
    pub status: String,
    /// The number of attempts: more than one when a later command resumed the run.
    pub attempts: u64,
    /// Rows that were committed.
    pub rows: u64,
    /// Bytes of Arrow data of these rows.
    pub bytes: u64,
    /// The code of the error that ended it.
    pub error: Option<String>,
}

/// How far one stream is, as it was last heard of from the destination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamRecord {
    /// The stream.
    pub stream: String,
    /// The run that fenced last.
    pub run_id: String,
    /// The number of runs that have fenced.
    pub epoch: u64,
    /// Commits.
    pub seq: u64,
    /// Where the next run resumes.
    pub cursor: Option<String>,
    /// The run has committed everything.
    pub complete: bool,
    /// When this was written.
    pub updated_at: String,
}

/// The progress of a stream, as its destination reported it.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The number of runs that have fenced.
    pub epoch: u64,
    /// Commits.
    pub seq: u64,
    /// Where the next run resumes.
    pub cursor: Option<&'a str>,
    /// The run has committed everything.
    pub complete: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Everything is committed.
    Ok,
    /// With the error of this code. The next run resumes it under its id.
    Failed(&'a str),
    /// Every stream was tried, and some failed with this code. The run is finished: the next one
    /// has an id of its own.
    Partial(&'a str),
}

/// Runs of a pipeline that are kept.
const MAX_RUNS: u32 = 1_000;
/// How long one process waits for another one's write. A write takes milliseconds: only a process that
/// was stopped in the middle of one holds the lock for longer.
const PATIENCE: Duration = Duration::from_secs(match cfg!(test) {
    true => 0,
    false => 5,
});
/// The version of the tables.
const VERSION: u32 = 4;
/// The version that kept one row for all attempts of a run.
const FIRST_VERSION: u32 = 1;
/// Letters of an outcome and of a code that are shown: a code has at most about a thousand.
const MAX_SHOWN: usize = 2048;
const TABLES: &str = "
CREATE TABLE runs (
    id TEXT PRIMARY KEY, pipeline TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT,
    status TEXT NOT NULL, attempts INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
    error TEXT
) STRICT;
CREATE INDEX runs_by_pipeline ON runs (pipeline, started_at);
CREATE TABLE streams (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, run_id TEXT NOT NULL, epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL, cursor TEXT, complete INTEGER NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (pipeline, stream)
) STRICT;";
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

impl State {
    /// Opens the history in a file; makes it and its folder if they are missing.
    ///
    /// # Errors
    /// When it cannot be read or written, or belongs to a newer program.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |problem: String| StateError::at(path, problem);
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
        }
        look::refuse_special(path)?;
        let sql = |error: rusqlite::Error| StateError::of_sql(path, &error);
        let mut db = Connection::open(path).map_err(sql)?;
        db.busy_timeout(PATIENCE).map_err(sql)?;
        // Before anything is written to it.
        look::refuse_foreign(path, &db)?;
        // A write-ahead log lets readers read while a run writes.
        db.pragma_update(None, "journal_mode", "wal").map_err(sql)?;
        db.pragma_update(None, "synchronous", "normal")
            .map_err(sql)?;
        if version(&db).map_err(sql)? < VERSION {
            let made = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
            let made = made.map_err(sql)?;
            // Another process may have made them meanwhile.
            let found = version(&made).map_err(sql)?;
            if found == 0 {
                made.execute_batch(TABLES).map_err(sql)?;
            }
            if found < VERSION {
                if found <= FIRST_VERSION {
                    made.execute_batch(attempts::TABLE).map_err(sql)?;
                }
                for table in [unfinished::TABLE, settings::TABLE, completed::TABLE] {
                    made.execute_batch(table).map_err(sql)?;
                }
                made.pragma_update(None, "user_version", VERSION)
                    .map_err(sql)?;
            }
            made.commit().map_err(sql)?;
        }
        let found = version(&db).map_err(sql)?;
        Self::checked(path, db, found)
    }

    /// Opens the history in a file for reading. Returns none if the file does not exist. It creates and
    /// writes nothing, so read permission is enough.
    ///
    /// # Errors
    /// When it cannot be read, or belongs to a newer program.
    pub fn look(path: &Path) -> Result<Option<Self>> {
        let failed = |problem: String| StateError::at(path, problem);
        if !path
            .try_exists()
            .map_err(|error| failed(error.to_string()))?
        {
            return Ok(None);
        }
        look::refuse_special(path)?;
        let sql = |error: rusqlite::Error| StateError::of_sql(path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let db = Connection::open_with_flags(path, flags).map_err(sql)?;
        db.busy_timeout(PATIENCE).map_err(sql)?;
        if let Ok(version) = version(&db) {
            return Self::made(path, db, version);
        }
        // Readers of a write-ahead log make files beside it, which a folder that may only be read
        // does not take. Without a log nobody is writing, and nothing but the file is to be read.
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let db = match Path::new(&log).exists() {
            true => db,
            false => Connection::open_with_flags(immutable(path), flags).map_err(sql)?,
        };
        let version = version(&db).map_err(sql)?;
        Self::made(path, db, version)
    }

    /// None of version 0: whoever was about to make the tables was killed, or is at it.
    fn made(path: &Path, db: Connection, version: u32) -> Result<Option<Self>> {
        match version {
            0 => Ok(None),
            _ => Self::checked(path, db, version).map(Some),
        }
    }

    fn checked(path: &Path, db: Connection, version: u32) -> Result<Self> {
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            let problem = format!("has version {version}, and this program supports {VERSION}");
            return Err(StateError::at(path, problem));
        }
        look::refuse_foreign(path, &db)?;
        Ok(Self {
            path: path.to_owned(),
            db: Mutex::new(db),
            begun: Arc::default(),
            version,
            untold: Mutex::default(),
        })
    }

    /// Begins a run of a pipeline, or resumes its newest run if that run did not finish and is not alive.
    /// With the `turn` of the pipeline, a busy history does not stop a run: the turn remembers the run instead. The
    /// history keeps the `settings` of a new run for the attempts that resume it.
    ///
    /// # Errors
    /// When the history cannot be read, or cannot be written and `turn` is absent.
    pub fn begin(
        &self,
        pipeline: &str,
        mut turn: Option<Turn>,
        settings: &str,
    ) -> Result<ActiveRun> {
        if let Some(id) = self.resumable(pipeline, turn.as_ref())?
            && let Some(lock) = RunLock::take(&self.path, &id)?
            // It may have ended between the two.
            && self.resumable(pipeline, turn.as_ref())?.as_deref() == Some(id.as_str())
        {
            if let Some(turn) = &mut turn {
                turn.begins(&id)?;
            }
            self.told(turn.is_some(), self.resumes(pipeline, &id))?;
            self.remember(&id);
            return Ok(ActiveRun {
                id,
                pipeline: pipeline.to_owned(),
                goes_on: true,
                lock,
                ended: unfinished::Ended::default(),
                turn,
            });
        }
        let new = "SELECT strftime('%Y%m%d-%H%M%S-', 'now') || lower(hex(randomblob(4)))";
        let id: String = self.sql(|db| db.query_row(new, [], |row| row.get(0)))?;
        let lock = RunLock::take(&self.path, &id)?.ok_or_else(|| {
            StateError::at(&self.path, format!("the id {id} of a new run is taken"))
        })?;
        if let Some(turn) = &mut turn {
            turn.begins(&id)?;
        }
        self.told(turn.is_some(), self.begins(pipeline, &id, settings))?;
        self.remember(&id);
        Ok(ActiveRun {
            id,
            pipeline: pipeline.to_owned(),
            goes_on: false,
            lock,
            ended: unfinished::Ended::default(),
            turn,
        })
    }

    /// The settings with which a run began. `None` where that is not known.
    pub fn settings_of(&self, run: &str) -> Result<Option<String>> {
        self.sql(|db| settings::of(db, run))
    }

    /// The error of a history that another process keeps busy: the history does not record this run while it runs.
    pub fn behind(&self) -> Option<String> {
        self.untold().why.clone()
    }

    /// The run that the next one resumes.
    fn resumable(&self, pipeline: &str, turn: Option<&Turn>) -> Result<Option<String>> {
        let known = self.sql(|db| unfinished(db, pipeline))?;
        let Some(turn) = turn else { return Ok(known) };
        if let Some(id) = known {
            if turn.ended_before() != Some(&id) {
                return Ok(Some(id));
            }
            // It ended, and the history was too busy to hear of it.
            let sql = "UPDATE runs SET status = 'ok', error = NULL WHERE id = :id";
            let healed = self.sql(|db| db.execute(sql, named_params! { ":id": id }));
            self.told(true, healed.map(drop))?;
        }
        let Some(id) = turn.unfinished() else {
            return Ok(None);
        };
        Ok((!self.knows(id)?).then(|| id.to_owned()))
    }

    fn knows(&self, run: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE id = :id)";
        self.sql(|db| db.query_row(sql, named_params! { ":id": run }, |row| row.get(0)))
    }

    fn resumes(&self, pipeline: &str, id: &str) -> Result<()> {
        let sql = format!(
            "INSERT INTO runs VALUES (:id, :pipeline, {NOW}, NULL, 'running', 1, 0, 0, NULL) \
             ON CONFLICT (id) DO UPDATE SET status = 'running', attempts = attempts + 1, \
             ended_at = NULL, error = NULL"
        );
        let named = named_params! { ":id": id, ":pipeline": pipeline };
        self.sql(|db| db.execute(&sql, named)).map(drop)
    }

    fn begins(&self, pipeline: &str, id: &str, settings: &str) -> Result<()> {
        self.sql(|db| {
            // Its id must outlive a power failure; the rest is a copy of what the destination has.
            db.pragma_update(None, "synchronous", "full")?;
            let sql = format!(
                "INSERT INTO runs VALUES (:id, :pipeline, {NOW}, NULL, 'running', 1, 0, 0, NULL)"
            );
            db.execute(&sql, named_params! { ":id": id, ":pipeline": pipeline })?;
            let prune = "DELETE FROM runs WHERE pipeline = :pipeline AND id NOT IN (SELECT id FROM \
                         runs WHERE pipeline = :pipeline ORDER BY started_at DESC, rowid DESC LIMIT :max)";
            db.execute(
                prune,
                named_params! { ":pipeline": pipeline, ":max": MAX_RUNS },
            )?;
            settings::keep(db, id, settings)?;
            db.pragma_update(None, "synchronous", "normal")
        })
    }

    /// The streams that failed in a finished run and have not succeeded since, each with the id of
    /// that run: the next run moves them under it.
    pub fn unfinished_streams(&self, pipeline: &str) -> Result<HashMap<String, String>> {
        self.sql(|db| unfinished::of(db, pipeline))
    }

    /// Ignores the error of a busy history, where `may_be` allows it. The first write waited for the other
    /// process; later writes do not wait.
    fn told(&self, may_be: bool, told: Result<()>) -> Result<()> {
        match told {
            Err(error) if error.is_busy && may_be => {
                self.untold().why.get_or_insert(error.problem);
                self.sql(|db| db.busy_timeout(Duration::ZERO))
            }
            told => told,
        }
    }

    /// Keeps the progress that the destination reported for a stream when the run fenced older runs.
    pub fn heal(&self, pipeline: &str, stream: &str, run: &str, known: Known<'_>) -> Result<()> {
        let told = self.sql(|db| keep(db, pipeline, stream, run, known));
        self.told(true, told)
    }

    /// Keeps a commit of a stream under the id `of`, and counts its rows for `run`. The two ids differ
    /// where the stream failed in an earlier run. Rows that a busy history misses are counted with the
    /// next commit that it takes.
    pub fn committed(
        &self,
        pipeline: &str,
        stream: &str,
        (run, of): (&str, &str),
        known: Known<'_>,
        (rows, bytes): (u64, u64),
    ) -> Result<()> {
        let (before, more) = self.counted();
        let counts = (before + rows, more + bytes);
        let told = self.sql(|db| {
            keep(db, pipeline, stream, of, known)?;
            count(db, run, counts)
        });
        if told.is_err() {
            self.not_counted(counts);
        }
        self.told(true, told)
    }

    /// Records how a run ended. The next run resumes a failed one.
    pub fn finish(&self, run: ActiveRun, outcome: Outcome<'_>) -> Result<()> {
        let (status, error) = match outcome {
            Outcome::Ok => ("ok", None),
            Outcome::Failed(code) => ("failed", Some(code)),
            Outcome::Partial(code) => ("partial", Some(code)),
        };
        let is_finished = !matches!(outcome, Outcome::Failed(_));
        // A history that was busy when the run began does not know it.
        let sql = format!(
            "INSERT INTO runs VALUES (:id, :pipeline, {NOW}, {NOW}, :status, 1, 0, 0, :error) \
             ON CONFLICT (id) DO UPDATE SET status = :status, error = :error, ended_at = {NOW}"
        );
        let (id, pipeline) = (run.id.as_str(), run.pipeline.as_str());
        let counts = self.counted();
        let told = self.sql(|db| {
            // One transaction: streams that are forgotten while the run is not finished would be
            // moved a second time when it is resumed.
            let all = db.unchecked_transaction()?;
            let named = named_params! {
                ":id": id, ":pipeline": pipeline, ":status": status, ":error": error,
            };
            all.execute(&sql, named)?;
            count(&all, id, counts)?;
            if is_finished {
                run.ended.keep(&all, pipeline)?;
            }
            all.commit()
        });
        let ActiveRun { lock, turn, .. } = run;
        let noted = match (turn, &told) {
            (Some(turn), Ok(())) => {
                turn.told();
                Ok(())
            }
            // The next run reads it there: it must not take this one for unfinished.
            (Some(mut turn), Err(_)) => turn.ended(outcome == Outcome::Ok),
            (None, _) => Ok(()),
        };
        lock.release();
        noted.and(told)
    }

    /// Takes the rows and bytes that the history has not heard of.
    fn counted(&self) -> (u64, u64) {
        let mut untold = self.untold();
        (
            std::mem::take(&mut untold.rows),
            std::mem::take(&mut untold.bytes),
        )
    }

    fn not_counted(&self, (rows, bytes): (u64, u64)) {
        let mut untold = self.untold();
        untold.rows += rows;
        untold.bytes += bytes;
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest runs, of one pipeline or of all.
    pub fn runs(&self, pipeline: Option<&str>, limit: u32) -> Result<Vec<RunRecord>> {
        let sql = format!(
            "SELECT id, pipeline, started_at, ended_at, substr(status, 1, {MAX_SHOWN}), attempts, rows, bytes, \
             substr(error, 1, {MAX_SHOWN}) FROM runs WHERE :pipeline IS NULL OR pipeline = :pipeline \
             ORDER BY started_at DESC, rowid DESC LIMIT :limit"
        );
        let mut runs = self.sql(|db| {
            let mut statement = db.prepare(&sql)?;
            let named = named_params! { ":pipeline": pipeline, ":limit": limit };
            let rows = statement.query_map(named, run_record)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        for run in &mut runs {
            self.set_unfinished(&run.id, &mut run.status);
        }
        Ok(runs)
    }

    /// The records of a pipeline's streams, by name.
    pub fn streams(&self, pipeline: &str) -> Result<Vec<StreamRecord>> {
        self.streams_since(pipeline, None)
    }

    /// The same, but only streams that a run has committed in the last `days`; none means all.
    pub fn streams_since(&self, pipeline: &str, days: Option<u32>) -> Result<Vec<StreamRecord>> {
        let sql = "SELECT stream, run_id, epoch, seq, cursor, complete, updated_at FROM streams \
                   WHERE pipeline = :pipeline AND (:days IS NULL OR \
                   updated_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-' || :days || ' days')) \
                   ORDER BY stream";
        self.sql(|db| {
            let mut statement = db.prepare(sql)?;
            let named = named_params! { ":pipeline": pipeline, ":days": days };
            let rows = statement.query_map(named, |row| {
                Ok(StreamRecord {
                    stream: row.get(0)?,
                    run_id: row.get(1)?,
                    epoch: row.get::<_, i64>(2)? as u64,
                    seq: row.get::<_, i64>(3)? as u64,
                    cursor: row.get(4)?,
                    complete: row.get(5)?,
                    updated_at: row.get(6)?,
                })
            })?;
            rows.collect()
        })
    }

    /// Forgets that a pipeline's newest run did not finish: the next one into the target begins anew.
    pub fn give_up(&self, pipeline: &str, target: &str) -> Result<()> {
        let sql = "UPDATE runs SET status = 'given up' \
                   WHERE pipeline = :pipeline AND status IN ('running', 'failed')";
        self.sql(|db| {
            unfinished::forget(db, pipeline)?;
            completed::forget_all(db, pipeline, target)?;
            db.execute(sql, named_params! { ":pipeline": pipeline })
        })?;
        Turn::forget(&self.path, pipeline);
        Ok(())
    }

    /// The history knows the run, and the process that worked on it has died. False where the history is a copy: the
    /// run may be alive beside the original.
    pub fn has_died(&self, run: &str) -> bool {
        matches!(self.knows(run), Ok(true)) && RunLock::is_left_behind(&self.path, run)
    }

    fn sql<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        run(&self.db()).map_err(|error| StateError::of_sql(&self.path, &error))
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActiveRun {
    /// Unique among all runs.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The turn of the pipeline that it holds.
    pub fn turn(&self) -> Option<&Turn> {
        self.turn.as_ref()
    }

    /// An earlier process began it.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Says which streams are complete, each with its target, and which failed, each with the run id that it ran under.
    /// [`State::finish`] keeps it if the run is finished.
    pub fn streams_ended(&mut self, done: Vec<(String, String)>, failed: Vec<(String, String)>) {
        self.ended = unfinished::Ended { done, failed };
    }
}

/// The version of the tables; 0 if there are none.
fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The name of a file that nobody writes to (<https://www.sqlite.org/uri.html>).
fn immutable(path: &Path) -> String {
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                name.push(char::from(*byte));
            }
            _ => name += &format!("%{byte:02x}"),
        }
    }
    name + "?immutable=1"
}

/// The newest run of a pipeline, if no process recorded its end.
fn unfinished(db: &Connection, pipeline: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT id, status FROM runs WHERE pipeline = :pipeline \
               ORDER BY started_at DESC, rowid DESC LIMIT 1";
    let newest = db.query_row(sql, named_params! { ":pipeline": pipeline }, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    let newest = newest.optional()?;
    Ok(newest
        .filter(|(_, status)| matches!(status.as_str(), "running" | "failed"))
        .map(|(id, _)| id))
}

fn keep(
    db: &Connection,
    pipeline: &str,
    stream: &str,
    run: &str,
    known: Known<'_>,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT OR REPLACE INTO streams \
         VALUES (:pipeline, :stream, :run, :epoch, :seq, :cursor, :complete, {NOW})"
    );
    let (epoch, seq) = (known.epoch as i64, known.seq as i64);
    let named = named_params! {
        ":pipeline": pipeline, ":stream": stream, ":run": run, ":epoch": epoch, ":seq": seq,
        ":cursor": known.cursor, ":complete": known.complete,
    };
    db.execute(&sql, named).map(drop)
}

fn count(db: &Connection, run: &str, (rows, bytes): (u64, u64)) -> rusqlite::Result<()> {
    let sql = "UPDATE runs SET rows = rows + :rows, bytes = bytes + :bytes WHERE id = :id";
    let (rows, bytes) = (rows as i64, bytes as i64);
    let named = named_params! { ":rows": rows, ":bytes": bytes, ":id": run };
    db.execute(sql, named).map(drop)
}

fn run_record(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    Ok(RunRecord {
        id: row.get(0)?,
        pipeline: row.get(1)?,
        started_at: row.get(2)?,
        ended_at: row.get(3)?,
        status: row.get(4)?,
        attempts: row.get::<_, i64>(5)? as u64,
        rows: row.get::<_, i64>(6)? as u64,
        bytes: row.get::<_, i64>(7)? as u64,
        error: row.get(8)?,
    })
}

#[cfg(test)]
mod tests;
