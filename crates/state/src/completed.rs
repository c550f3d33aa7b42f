//! The streams that an unfinished run has appended to the end: for each stream the id under which the destination knows
//! it, and the target, as two words.
//!
//! A destination remembers only the last run of a stream. A run that is resumed with other settings moves streams under
//! another id, so that the destination forgets the first one. If somebody then resumes the run with the first settings,
//! this table tells that its rows are in the target. A finished run ends this for its own targets: what an interrupted
//! run has appended to another target stays known until a run with that target is finished.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};

use crate::{Result, State};

pub(crate) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS completed (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, run_id TEXT NOT NULL,
    PRIMARY KEY (pipeline, stream, run_id)
) STRICT;";

/// Ids of one stream that are kept: each needs another resumed run with other settings.
const MAX_IDS: u32 = 100;

pub(crate) fn keep(
    db: &Connection,
    pipeline: &str,
    stream: &str,
    run: &str,
) -> rusqlite::Result<()> {
    let keep = "INSERT OR IGNORE INTO completed VALUES (:pipeline, :stream, :run)";
    db.execute(
        keep,
        named_params! { ":pipeline": pipeline, ":stream": stream, ":run": run },
    )?;
    let prune = "DELETE FROM completed WHERE pipeline = :pipeline AND stream = :stream AND rowid NOT IN \
                 (SELECT rowid FROM completed WHERE pipeline = :pipeline AND stream = :stream \
                 ORDER BY rowid DESC LIMIT :max)";
    let named = named_params! { ":pipeline": pipeline, ":stream": stream, ":max": MAX_IDS };
    db.execute(prune, named).map(drop)
}

/// Forgets what was appended to one target of all streams of a pipeline.
pub(crate) fn forget_all(db: &Connection, pipeline: &str, target: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM completed WHERE pipeline = :pipeline AND run_id LIKE '% ' || :target";
    db.execute(
        sql,
        named_params! { ":pipeline": pipeline, ":target": target },
    )
    .map(drop)
}

/// Forgets what was appended to one target of a stream.
pub(crate) fn forget(
    db: &Connection,
    pipeline: &str,
    stream: &str,
    target: &str,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM completed WHERE pipeline = :pipeline AND stream = :stream \
               AND run_id LIKE '% ' || :target";
    let named = named_params! { ":pipeline": pipeline, ":stream": stream, ":target": target };
    db.execute(sql, named).map(drop)
}

impl State {
    /// The ids under which unfinished runs have appended each stream.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub fn completed(&self, pipeline: &str) -> Result<HashMap<String, HashSet<String>>> {
        let sql = "SELECT stream, run_id FROM completed WHERE pipeline = :pipeline";
        self.sql(|db| {
            let mut statement = db.prepare(sql)?;
            let mut rows = statement.query(named_params! { ":pipeline": pipeline })?;
            let mut completed: HashMap<String, HashSet<String>> = HashMap::new();
            while let Some(row) = rows.next()? {
                let ids = completed.entry(row.get(0)?).or_default();
                ids.insert(row.get(1)?);
            }
            Ok(completed)
        })
    }

    /// Keeps that a run has appended a stream. `run` is its id and the target.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn completes(&self, pipeline: &str, stream: &str, run: &str) -> Result<()> {
        let told = self.sql(|db| keep(db, pipeline, stream, run));
        self.told(true, told)
    }

    /// Forgets what unfinished runs have appended to one target of a stream: it is not there any more.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn forget_completed(&self, pipeline: &str, stream: &str, target: &str) -> Result<()> {
        let told = self.sql(|db| forget(db, pipeline, stream, target));
        self.told(true, told)
    }

    /// Forgets how far unfinished runs are with one stream: the next run into the target, also one that resumes another
    /// run, reads it from its first row.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn forget_stream(&self, pipeline: &str, stream: &str, target: &str) -> Result<()> {
        let sql = "DELETE FROM unfinished WHERE pipeline = :pipeline AND stream = :stream";
        self.sql(|db| {
            forget(db, pipeline, stream, target)?;
            db.execute(
                sql,
                named_params! { ":pipeline": pipeline, ":stream": stream },
            )
            .map(drop)
        })
    }
}
