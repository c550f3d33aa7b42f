//! The attempts of runs: a run that did not finish is resumed under its id, and each process that
//! works on it is one attempt with times, rows and an outcome of its own.
//!
//! Triggers fill the table from what is written to `runs`, so that the two cannot disagree.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rusqlite::{Row, named_params};
use serde::Serialize;

use crate::lock::RunLock;
use crate::{FIRST_VERSION, MAX_SHOWN, Result, State};

/// One attempt of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptRecord {
    /// The run's id.
    pub run_id: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// From 1.
    pub attempt: u64,
    /// When it began: `2026-01-31T23:59:59.123Z`.
    pub started_at: String,
    /// When it ended. `None` while it runs, or when its process died.
    pub ended_at: Option<String>,
    /// `running`, `ok`, `partial`, `failed`, or `unfinished` when its process died.
    pub status: String,
    /// Rows that this attempt committed.
    pub rows: u64,
    /// Bytes of Arrow data of these rows.
    pub bytes: u64,
    /// The code of the error that ended it.
    pub error: Option<String>,
    /// The file of its report, if it has one.
    pub report: Option<String>,
}

/// A history with other triggers than these is refused: whoever changes one gives the tables a new version.
///
/// Keeps the newest 1,000 attempts of a pipeline: a schedule may resume one run again and again.
/// Runs of the first version have one row with the sum of their attempts.
pub(crate) const TABLE: &str = "
CREATE TABLE attempts (
    run_id TEXT NOT NULL, attempt INTEGER NOT NULL, pipeline TEXT NOT NULL,
    started_at TEXT NOT NULL, ended_at TEXT, status TEXT NOT NULL, rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL, error TEXT, report TEXT, PRIMARY KEY (run_id, attempt)
) STRICT;
CREATE INDEX attempts_by_pipeline ON attempts (pipeline, started_at);
INSERT INTO attempts SELECT id, attempts, pipeline, started_at, ended_at,
    CASE status WHEN 'given up' THEN iif(error IS NULL, 'unfinished', 'failed') ELSE status END,
    rows, bytes, error, NULL FROM runs;
CREATE TRIGGER first_attempt AFTER INSERT ON runs BEGIN
    INSERT INTO attempts VALUES (new.id, new.attempts, new.pipeline, new.started_at, new.ended_at,
        new.status, new.rows, new.bytes, new.error, NULL);
END;
CREATE TRIGGER next_attempt AFTER UPDATE OF attempts ON runs WHEN new.attempts > old.attempts BEGIN
    UPDATE attempts SET status = 'unfinished' WHERE run_id = new.id AND status = 'running';
    INSERT INTO attempts VALUES (new.id, new.attempts, new.pipeline,
        strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), NULL, 'running', new.rows - old.rows,
        new.bytes - old.bytes, NULL, NULL);
    DELETE FROM attempts WHERE pipeline = new.pipeline AND rowid NOT IN (
        SELECT rowid FROM attempts WHERE pipeline = new.pipeline
        ORDER BY started_at DESC, attempt DESC LIMIT 1000);
END;
CREATE TRIGGER attempt_commits AFTER UPDATE OF rows, bytes ON runs
WHEN new.attempts = old.attempts BEGIN
    UPDATE attempts SET rows = rows + new.rows - old.rows, bytes = bytes + new.bytes - old.bytes
    WHERE run_id = new.id AND attempt = new.attempts;
END;
CREATE TRIGGER attempt_ends AFTER UPDATE OF status ON runs WHEN new.status IN ('ok', 'failed', 'partial') BEGIN
    UPDATE attempts SET status = new.status, error = new.error, ended_at = new.ended_at
    WHERE run_id = new.id AND attempt = new.attempts;
END;
CREATE TRIGGER attempt_died AFTER UPDATE OF status ON runs WHEN new.status = 'given up' BEGIN
    UPDATE attempts SET status = 'unfinished' WHERE run_id = new.id AND status = 'running';
END;
CREATE TRIGGER no_attempts AFTER DELETE ON runs BEGIN
    DELETE FROM attempts WHERE run_id = old.id;
END;";

impl State {
    /// The newest attempts, newest first, of one pipeline or of all.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub fn attempts(&self, pipeline: Option<&str>, limit: u32) -> Result<Vec<AttemptRecord>> {
        let from = match self.version {
            // A reader cannot bring the file to the newer version.
            FIRST_VERSION => {
                "(SELECT rowid, id AS run_id, attempts AS attempt, pipeline, started_at, ended_at, status, \
                 rows, bytes, error, NULL AS report FROM runs)"
            }
            _ => "attempts",
        };
        let sql = format!(
            "SELECT run_id, pipeline, attempt, started_at, ended_at, substr(status, 1, {MAX_SHOWN}), rows, bytes, \
             substr(error, 1, {MAX_SHOWN}), report FROM {from} WHERE :pipeline IS NULL OR pipeline = :pipeline \
             ORDER BY started_at DESC, rowid DESC LIMIT :limit"
        );
        let mut attempts = self.sql(|db| {
            let mut statement = db.prepare(&sql)?;
            let named = named_params! { ":pipeline": pipeline, ":limit": limit };
            let rows = statement.query_map(named, record)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        for attempt in &mut attempts {
            self.set_unfinished(&attempt.run_id, &mut attempt.status);
        }
        Ok(attempts)
    }

    /// The id of the run that this process works on, as soon as it has begun.
    pub fn begun(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.begun)
    }

    /// The newest attempt of a run. `None` for an unknown run.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub fn attempt_of(&self, run_id: &str) -> Result<Option<AttemptRecord>> {
        let sql = "SELECT run_id, pipeline, attempt, started_at, ended_at, status, rows, bytes, \
                   error, report FROM attempts WHERE run_id = :run ORDER BY attempt DESC LIMIT 1";
        self.sql(|db| {
            let mut statement = db.prepare(sql)?;
            let mut found = statement.query_map(named_params! { ":run": run_id }, record)?;
            found.next().transpose()
        })
    }

    /// Keeps where the report of an attempt is.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn reported(&self, attempt: &AttemptRecord, report: &Path) -> Result<()> {
        let sql = "UPDATE attempts SET report = :report WHERE run_id = :run AND attempt = :attempt";
        let (report, number) = (report.to_string_lossy(), attempt.attempt as i64);
        let run = &attempt.run_id;
        let named = named_params! { ":report": report, ":run": run, ":attempt": number };
        self.sql(|db| db.execute(sql, named)).map(drop)
    }

    /// A process works on one run.
    pub(crate) fn remember(&self, run_id: &str) {
        let _ = self.begun.set(run_id.to_owned());
    }

    /// A row says `running` until somebody resumes the run, even when its process has died.
    pub(crate) fn set_unfinished(&self, run_id: &str, status: &mut String) {
        if status == "running" && !RunLock::is_held(&self.path, run_id) {
            *status = "unfinished".into();
        }
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<AttemptRecord> {
    Ok(AttemptRecord {
        run_id: row.get(0)?,
        pipeline: row.get(1)?,
        attempt: row.get::<_, i64>(2)? as u64,
        started_at: row.get(3)?,
        ended_at: row.get(4)?,
        status: row.get(5)?,
        rows: row.get::<_, i64>(6)? as u64,
        bytes: row.get::<_, i64>(7)? as u64,
        error: row.get(8)?,
        report: row.get(9)?,
    })
}
