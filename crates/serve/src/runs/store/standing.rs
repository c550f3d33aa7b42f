//! How the pipelines are, for pages and metrics: a few steps into indexes for each.

use rusqlite::{OptionalExtension, Transaction, params};

use super::read::{run_of, short_columns};
use super::{Result, Run, Store};

/// The runs of one pipeline, as far as they tell how it is.
#[derive(Debug, Clone, Default)]
pub(in crate::runs) struct Stored {
    /// Its last runs without their reports, the newest first.
    pub last: Vec<Run>,
    pub success: Option<Success>,
    /// The moment from which on its schedule is as it is now. `None` if it has no schedule.
    pub since_ms: Option<i64>,
    pub queued: u64,
    pub running: u64,
}

/// The last run of the whole pipeline that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runs) struct Success {
    pub id: i64,
    pub started_ms: i64,
    pub ended_ms: i64,
}

impl Store {
    /// How these pipelines are, in their order, each with at most `last` runs. For a thread of its own.
    pub(in crate::runs) fn stand(&self, pipelines: Vec<String>, last: u32) -> Result<Vec<Stored>> {
        self.call(move |transaction| {
            let each = pipelines.iter();
            each.map(|name| stored(transaction, name, last)).collect()
        })
    }

    /// The runs that are queued, and those at work.
    pub(in crate::runs) async fn active(&self) -> Result<(u64, u64)> {
        self.ask(|transaction| {
            let sql = "SELECT (SELECT count(*) FROM run WHERE state = 'queued'), \
                       (SELECT count(*) FROM run WHERE state = 'running')";
            Ok(transaction.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
        .await
    }
}

fn stored(transaction: &Transaction<'_>, pipeline: &str, last: u32) -> Result<Stored> {
    let sql = format!(
        "SELECT {} FROM run WHERE pipeline = ?1 ORDER BY id DESC LIMIT ?2",
        short_columns()
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let runs = statement.query_map(params![pipeline, last], run_of)?;
    let runs = runs.collect::<rusqlite::Result<Vec<Run>>>()?;
    let sql = "SELECT (SELECT count(*) FROM run WHERE state = 'queued' AND pipeline = ?1), \
               (SELECT count(*) FROM run WHERE state = 'running' AND pipeline = ?1), \
               (SELECT since_ms FROM schedule WHERE pipeline = ?1)";
    let mut statement = transaction.prepare_cached(sql)?;
    let counts = statement.query_row([pipeline], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    });
    let (queued, running, since_ms) = counts?;
    Ok(Stored {
        last: runs,
        success: last_success(transaction, pipeline)?,
        since_ms,
        queued,
        running,
    })
}

/// A run with `select` moves a part of the pipeline: it does not count.
pub(super) fn last_success(
    transaction: &Transaction<'_>,
    pipeline: &str,
) -> Result<Option<Success>> {
    let sql = "SELECT id, started_ms, ended_ms FROM run WHERE pipeline = ?1 AND state = 'succeeded' \
               AND json_array_length(options, '$.select') = 0 ORDER BY id DESC LIMIT 1";
    let mut statement = transaction.prepare_cached(sql)?;
    let success = statement.query_row([pipeline], |row| {
        Ok(Success {
            id: row.get(0)?,
            started_ms: row.get(1)?,
            ended_ms: row.get(2)?,
        })
    });
    Ok(success.optional()?)
}
