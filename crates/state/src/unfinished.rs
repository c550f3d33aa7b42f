//! Streams that a finished run left behind: the run tried every stream, and these failed.
//!
//! The next run has an id of its own, so that the streams that succeeded are read again. A failed
//! stream keeps the id under which it failed until it succeeds: the commit that the destination may
//! have made under that id, without an answer that reached us, is then recognised and not made twice.

use std::collections::HashMap;

use rusqlite::{Connection, named_params};

use crate::completed;

pub(crate) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS unfinished (
    pipeline TEXT NOT NULL, stream TEXT NOT NULL, run_id TEXT NOT NULL,
    PRIMARY KEY (pipeline, stream)
) STRICT;";

/// How the streams of a finished run ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// These are complete, each with its target.
    pub(crate) done: Vec<(String, String)>,
    /// These failed, each with the run id that it ran under.
    pub(crate) failed: Vec<(String, String)>,
}

impl Ended {
    pub(crate) fn keep(&self, db: &Connection, pipeline: &str) -> rusqlite::Result<()> {
        let mut forget =
            db.prepare("DELETE FROM unfinished WHERE pipeline = :pipeline AND stream = :stream")?;
        for (stream, target) in &self.done {
            forget.execute(named_params! { ":pipeline": pipeline, ":stream": stream })?;
            completed::forget(db, pipeline, stream, target)?;
        }
        let mut keep =
            db.prepare("INSERT OR REPLACE INTO unfinished VALUES (:pipeline, :stream, :run)")?;
        for (stream, run) in &self.failed {
            keep.execute(named_params! { ":pipeline": pipeline, ":stream": stream, ":run": run })?;
        }
        Ok(())
    }
}

/// The run id of each stream that failed when its run was finished, by stream.
pub(crate) fn of(db: &Connection, pipeline: &str) -> rusqlite::Result<HashMap<String, String>> {
    let sql = "SELECT stream, run_id FROM unfinished WHERE pipeline = :pipeline";
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map(named_params! { ":pipeline": pipeline }, |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    rows.collect()
}

/// Forgets all of a pipeline's.
pub(crate) fn forget(db: &Connection, pipeline: &str) -> rusqlite::Result<()> {
    let sql = "DELETE FROM unfinished WHERE pipeline = :pipeline";
    db.execute(sql, named_params! { ":pipeline": pipeline })
        .map(drop)
}
