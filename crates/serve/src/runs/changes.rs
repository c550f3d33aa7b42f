//! The statements that changed the columns of targets, in `runs.db`. Each is recorded when it has happened.

use std::sync::Arc;

use axum::extract::State;
use rapidbyte::Pipeline;
use rusqlite::{Transaction, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::messages::{self, Wanted};
use super::outbox;
use super::store::Store;
use super::{Runs, RunsError, Shared};
use crate::access::Granted;
use crate::answer::{Json, Refusal};
use crate::request::{Asked, Kind, LIMIT, MAX_NUMBER, PAGE, Parameters};
use crate::tokens::Action;

/// Changes of a pipeline that are kept.
const KEPT: i64 = 1000;

pub(super) const TABLES: &str = r#"
-- Statements that changed the columns of targets.
CREATE TABLE change (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    stream TEXT NOT NULL,
    -- NULL: jobs of the queue.
    run INTEGER,
    -- Milliseconds since 1970.
    at_ms INTEGER NOT NULL,
    statement TEXT NOT NULL
) STRICT;
CREATE INDEX change_by_pipeline ON change (pipeline, id);
"#;

type Result<T> = std::result::Result<T, RunsError>;

/// A statement that changed the columns of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// Rises with each change.
    pub id: i64,
    pub pipeline: String,
    pub stream: String,
    /// The run that made it. `None` for jobs of the queue.
    pub run: Option<i64>,
    /// When it was recorded, in milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Without the secrets of the pipeline. A long one is cut.
    pub statement: String,
}

/// The changes of a list, the newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangeFilter {
    /// Only changes of these pipelines.
    pub pipelines: Option<Vec<String>>,
    /// Only changes that are older than the one with this id.
    pub before: Option<i64>,
    pub limit: u32,
}

impl Shared {
    /// A run of a pipeline, or jobs of the queue, have changed the target of a stream. Waits for the disk.
    pub(super) fn target_changed(
        &self,
        pipeline: &Pipeline,
        run: Option<i64>,
        stream: &str,
        statements: &[String],
    ) {
        let now_ms = self.now_ms();
        let statements = messages::statements_of(statements, pipeline);
        // A run tells it at its end, with its own outcome.
        let tells = run.is_none() && Wanted::of(Some(pipeline)).schema_change;
        let draft =
            tells.then(|| messages::of_change(pipeline.name(), stream, &json!(statements), now_ms));
        let (pipeline, stream) = (pipeline.name().to_owned(), stream.to_owned());
        let recorded = self.store.call(move |transaction| {
            add(transaction, (&pipeline, &stream), run, &statements, now_ms)?;
            outbox::add(transaction, draft.as_slice(), now_ms)
        });
        match recorded {
            Ok(told) => self.told(told),
            // The log of the run has it, too.
            Err(error) => self.tell("a change of a target is not recorded", &error),
        }
    }
}

impl Store {
    async fn changes(&self, filter: ChangeFilter) -> Result<Vec<Change>> {
        self.ask(move |transaction| list(transaction, &filter))
            .await
    }
}

impl Runs {
    /// Jobs of the queue have changed the target of a stream. Waits for the disk.
    pub(crate) fn queue_changed(&self, pipeline: &Pipeline, stream: &str, statements: &[String]) {
        self.shared
            .target_changed(pipeline, None, stream, statements);
    }

    pub(crate) async fn changes(&self, filter: ChangeFilter) -> Result<Vec<Change>> {
        self.shared.store.changes(filter).await
    }
}

fn add(
    transaction: &Transaction<'_>,
    (pipeline, stream): (&str, &str),
    run: Option<i64>,
    statements: &[String],
    now_ms: i64,
) -> Result<()> {
    let sql =
        "INSERT INTO change (pipeline, stream, run, at_ms, statement) VALUES (?1, ?2, ?3, ?4, ?5)";
    for statement in statements {
        transaction.execute(sql, params![pipeline, stream, run, now_ms, statement])?;
    }
    let sql = "DELETE FROM change WHERE pipeline = ?1 AND id <= \
               (SELECT id FROM change WHERE pipeline = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)";
    transaction.execute(sql, params![pipeline, KEPT])?;
    Ok(())
}

fn list(transaction: &Transaction<'_>, filter: &ChangeFilter) -> Result<Vec<Change>> {
    let sql = "SELECT id, pipeline, stream, run, at_ms, statement FROM change WHERE id < ?1 \
               AND (?2 IS NULL OR pipeline IN (SELECT value FROM json_each(?2))) ORDER BY id DESC LIMIT ?3";
    let pipelines = filter
        .pipelines
        .as_ref()
        .map(|names| json!(names).to_string());
    let before = filter.before.unwrap_or(i64::MAX);
    let mut statement = transaction.prepare_cached(sql)?;
    let changes = statement.query_map(params![before, pipelines, filter.limit], |row| {
        Ok(Change {
            id: row.get(0)?,
            pipeline: row.get(1)?,
            stream: row.get(2)?,
            run: row.get(3)?,
            at_ms: row.get(4)?,
            statement: row.get(5)?,
        })
    })?;
    Ok(changes.collect::<rusqlite::Result<_>>()?)
}

/// Which changes a client asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Only changes of this pipeline.
    pipeline: Option<String>,
    /// Only changes that are older than the one with this id: the `next` of the page before.
    before: Option<i64>,
    limit: Option<u32>,
}

impl Parameters for Query {
    const ALL: &'static [(&'static str, Kind)] = &[
        ("pipeline", Kind::Text),
        ("before", Kind::Number(0, MAX_NUMBER)),
        LIMIT,
    ];
}

/// A page of changes, the newest first, and where the next page begins.
pub(super) async fn get(
    State(runs): State<Arc<Runs>>,
    Asked(asked): Asked<Query>,
    granted: Granted,
) -> std::result::Result<Json<Value>, Refusal> {
    granted.may(Action::Read, asked.pipeline.as_deref())?;
    let limit = asked.limit.unwrap_or(PAGE);
    let filter = ChangeFilter {
        pipelines: asked.pipeline.map(|pipeline| vec![pipeline]),
        before: asked.before,
        limit,
    };
    let found = runs.changes(filter).await?;
    let is_full = found.len() == limit as usize;
    let next = found.last().filter(|_| is_full).map(|change| change.id);
    Ok(Json(
        json!({ "status": "ok", "changes": found, "next": next }),
    ))
}
