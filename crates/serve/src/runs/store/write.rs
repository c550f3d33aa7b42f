//! Rows of runs and schedules, as a transaction changes them.

use rusqlite::{Transaction, params};

use super::{KEPT, MAX_ATTEMPTS, Result, standing};
use crate::runs::RunsError;
use crate::runs::record::{Options, Run, RunState, Trigger, error};

/// A run that is recorded.
pub(super) struct New<'a> {
    pub pipeline: &'a str,
    pub trigger: Trigger,
    pub scheduled_ms: Option<i64>,
    pub state: RunState,
    pub options: &'a Options,
    pub attempt: u32,
    pub resumes: Option<i64>,
    pub error: Option<serde_json::Value>,
    pub now_ms: i64,
}

/// Returns its id. `None` if the fire has a run already.
pub(super) fn insert(transaction: &Transaction<'_>, new: &New<'_>) -> Result<Option<i64>> {
    let options =
        serde_json::to_string(new.options).map_err(|error| RunsError::Sqlite(error.to_string()))?;
    let ended_ms = new.state.is_end().then_some(new.now_ms);
    let mut statement = transaction.prepare_cached(
        "INSERT INTO run (pipeline, \"trigger\", scheduled_ms, state, options, attempt, resumes, queued_ms, ended_ms, error) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
         ON CONFLICT (pipeline, scheduled_ms) WHERE scheduled_ms IS NOT NULL DO NOTHING",
    )?;
    let added = statement.execute(params![
        new.pipeline,
        new.trigger.name(),
        new.scheduled_ms,
        new.state.name(),
        options,
        new.attempt,
        new.resumes,
        new.now_ms,
        ended_ms,
        new.error.as_ref().map(ToString::to_string),
    ])?;
    Ok((added == 1).then(|| transaction.last_insert_rowid()))
}

/// The run is interrupted. One that resumes it is queued, unless one with the same options is, or too many attempts were:
/// then returns the error.
pub(super) fn interrupt(
    transaction: &Transaction<'_>,
    run: &Run,
    attempt: u32,
    now_ms: i64,
) -> Result<Option<serde_json::Value>> {
    let gives_up = attempt > MAX_ATTEMPTS;
    let error = match gives_up {
        false => error(
            "interrupted",
            "the server ended during the run",
            Some("another run resumes it"),
        ),
        true => {
            let text = format!("the server ended during {MAX_ATTEMPTS} attempts of the run");
            let hint = "look for the reason in the log of the system, such as its memory; then begin a run";
            error("interrupted", &text, Some(hint))
        }
    };
    let sql = "UPDATE run SET state = 'interrupted', ended_ms = ?2, error = ?3 WHERE id = ?1";
    transaction.execute(sql, params![run.id, now_ms, error.to_string()])?;
    let options = serde_json::to_string(&run.options)
        .map_err(|error| RunsError::Sqlite(error.to_string()))?;
    let sql = "SELECT EXISTS (SELECT 1 FROM run WHERE state = 'queued' AND pipeline = ?1 AND options = ?2)";
    let waits: bool =
        transaction.query_row(sql, params![run.pipeline, options], |row| row.get(0))?;
    if gives_up {
        return Ok(Some(error));
    }
    if waits {
        return Ok(None);
    }
    let new = New {
        pipeline: &run.pipeline,
        trigger: run.trigger,
        scheduled_ms: None,
        state: RunState::Queued,
        options: &run.options,
        attempt,
        resumes: Some(run.id),
        error: None,
        now_ms,
    };
    insert(transaction, &new)?;
    Ok(None)
}

pub(super) fn set_position(
    transaction: &Transaction<'_>,
    pipeline: &str,
    cron: &str,
    last_ms: i64,
) -> Result<()> {
    let sql = "INSERT INTO schedule (pipeline, cron, last_ms, since_ms) VALUES (?1, ?2, ?3, ?3) \
               ON CONFLICT (pipeline) DO UPDATE SET cron = ?2, last_ms = ?3, \
               since_ms = CASE WHEN cron = ?2 THEN since_ms ELSE ?3 END";
    transaction.execute(sql, params![pipeline, cron, last_ms])?;
    Ok(())
}

/// Forgets the oldest runs of a pipeline, but for its last success.
pub(super) fn trim(transaction: &Transaction<'_>, pipeline: &str) -> Result<()> {
    let sql = "DELETE FROM run WHERE pipeline = ?1 AND state NOT IN ('queued', 'running') AND id <= \
               (SELECT id FROM run WHERE pipeline = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2) \
               AND id IS NOT ?3";
    let success = standing::last_success(transaction, pipeline)?.map(|success| success.id);
    transaction
        .prepare_cached(sql)?
        .execute(params![pipeline, KEPT, success])?;
    Ok(())
}
