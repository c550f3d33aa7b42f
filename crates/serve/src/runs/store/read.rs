//! Runs, as they are read.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{Filter, Result};
use crate::runs::record::{Run, RunState, Trigger};

pub(super) fn get(transaction: &Transaction<'_>, id: i64) -> Result<Option<Run>> {
    let sql = format!("SELECT {COLUMNS} FROM run WHERE id = ?1");
    Ok(transaction
        .prepare_cached(&sql)?
        .query_row([id], run_of)
        .optional()?)
}

pub(super) fn list(transaction: &Transaction<'_>, filter: &Filter) -> Result<Vec<Run>> {
    // A condition that is not there lets SQLite choose the index of another one.
    let of_pipelines = match filter.pipelines.as_deref() {
        None => "?2 IS NULL",
        Some([_]) => "pipeline = ?2",
        Some(_) => "pipeline IN (SELECT value FROM json_each(?2))",
    };
    let pipelines = filter
        .pipelines
        .as_deref()
        .map(|pipelines| match pipelines {
            [pipeline] => pipeline.clone(),
            several => serde_json::json!(several).to_string(),
        });
    let sql = format!(
        "SELECT {} FROM run WHERE id < ?1 AND {of_pipelines} AND (?3 IS NULL OR state = ?3) ORDER BY id DESC LIMIT ?4",
        short_columns()
    );
    let before = filter.before.unwrap_or(i64::MAX);
    let state = filter.state.map(RunState::name);
    let mut statement = transaction.prepare_cached(&sql)?;
    let runs = statement.query_map(params![before, pipelines, state, filter.limit], run_of)?;
    Ok(runs.collect::<rusqlite::Result<_>>()?)
}

/// The columns of [`run_of`] for many runs: their reports come one by one, and long errors as their message.
pub(super) fn short_columns() -> String {
    COLUMNS.replace("error, report, log", SHORT)
}

/// The columns of [`run_of`].
pub(super) const COLUMNS: &str = "id, pipeline, \"trigger\", scheduled_ms, state, options, attempt, resumes, queued_ms, started_ms, \
                       ended_ms, rows, error, report, log";

/// In place of the last three of them, in a list.
const SHORT: &str = "CASE WHEN length(error) > 4096 THEN json_object('code', error->>'code', \
                     'message', substr(error->>'message', 1, 1000), 'hint', substr(error->>'hint', 1, 1000)) \
                     ELSE error END, NULL, NULL";

pub(super) fn run_of(row: &Row<'_>) -> rusqlite::Result<Run> {
    let (trigger, state): (String, String) = (row.get(2)?, row.get(4)?);
    let unknown =
        || rusqlite::Error::InvalidColumnName(format!("a run that is {trigger:?} and {state:?}"));
    let options: String = row.get(5)?;
    let json = |column: usize| -> rusqlite::Result<Option<serde_json::Value>> {
        let text: Option<String> = row.get(column)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    };
    Ok(Run {
        id: row.get(0)?,
        pipeline: row.get(1)?,
        trigger: Trigger::of(&trigger).ok_or_else(unknown)?,
        scheduled_ms: row.get(3)?,
        state: RunState::of(&state).ok_or_else(unknown)?,
        options: serde_json::from_str(&options).map_err(|_| unknown())?,
        attempt: row.get(6)?,
        resumes: row.get(7)?,
        queued_ms: row.get(8)?,
        started_ms: row.get(9)?,
        ended_ms: row.get(10)?,
        rows: row.get(11)?,
        error: json(12)?,
        report: json(13)?,
        log: json(14)?,
    })
}
