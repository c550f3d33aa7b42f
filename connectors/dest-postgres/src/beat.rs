//! Runs behind a pooler say that they are at work: the server lists no session of theirs.
//!
//! One row for each process, renewed every few seconds by the server's clock. It is a table of its own, so that
//! no load waits for it, and each statement is a short transaction.

use std::time::Duration;

use rapidbyte_pg::ident::{qualified, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{MAKING, is_missing};
use crate::config::{BEAT_TABLE, Settings};
use crate::lock::{NO_PRIVILEGE, PATIENCE_MS};
use crate::transaction::BEGIN;

/// A run without a beat for this many seconds counts as dead.
const SILENCE_SECS: u32 = 30;
/// How long one call waits for the server: the next call comes soon.
const PATIENCE: Duration = Duration::from_secs(8);
/// Runs that are shown, and the characters of a text about one.
const MAX_WORKERS: u32 = 64;
const MAX_TEXT: u32 = 500;

/// The table is UNLOGGED: after a crash of the server the runs write their rows again.
const COLUMNS: &str = "(
    pipeline text COLLATE \"C\" NOT NULL,
    process text COLLATE \"C\" NOT NULL,
    run_id text NOT NULL,
    place text NOT NULL,
    began timestamp with time zone NOT NULL,
    beat timestamp with time zone NOT NULL,
    PRIMARY KEY (pipeline, process)
)";

/// Says that the run is at work, or takes it back. Makes the table where it is missing.
pub(crate) fn beat(client: &mut Client, settings: &Settings, presence: &Presence) -> Result<()> {
    client.set_reply_timeout(PATIENCE);
    let sql = match presence.is_over {
        true => take_back(settings, presence),
        false => say(settings, presence),
    };
    let said = match alone(client, &sql) {
        Err(error) if is_missing(&error) && presence.is_over => Ok(()),
        Err(error) if is_missing(&error) => {
            make(client, settings).and_then(|()| alone(client, &sql))
        }
        said => said,
    };
    client.set_reply_timeout(settings.write_timeout);
    said.map_err(|error| explain(settings, error))
}

fn table(settings: &Settings) -> String {
    qualified(&settings.checkpoint_schema, BEAT_TABLE)
}

fn say(settings: &Settings, presence: &Presence) -> String {
    format!(
        "INSERT INTO {} AS b (pipeline, process, run_id, place, began, beat) \
         VALUES ({}, {}, {}, {}, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp()) \
         ON CONFLICT (pipeline, process) DO UPDATE SET beat = EXCLUDED.beat",
        table(settings),
        quote_literal(&presence.run.pipeline),
        quote_literal(&presence.process),
        quote_literal(&presence.run.id),
        quote_literal(&presence.place)
    )
}

/// With the rows of dead runs, which nobody else removes.
fn take_back(settings: &Settings, presence: &Presence) -> String {
    format!(
        "DELETE FROM {} AS b WHERE b.pipeline = {} AND (b.process = {} OR NOT {})",
        table(settings),
        quote_literal(&presence.run.pipeline),
        quote_literal(&presence.process),
        is_young()
    )
}

/// Of a row `b`.
fn is_young() -> String {
    format!("b.beat > pg_catalog.clock_timestamp() - interval '{SILENCE_SECS} s'")
}

/// One statement in a transaction that waits neither for a lock nor for the disk or a standby.
fn alone(client: &mut Client, sql: &str) -> Result<()> {
    let done = client.execute(&format!(
        "{BEGIN}; SET LOCAL lock_timeout = {PATIENCE_MS}; SET LOCAL synchronous_commit = off; \
         {sql}; COMMIT"
    ));
    if done.is_err() && client.is_usable() {
        client.execute("ROLLBACK")?;
    }
    done.map(drop)
}

fn make(client: &mut Client, settings: &Settings) -> Result<()> {
    let statements = makers(client, settings)?;
    if statements.is_empty() {
        return Ok(());
    }
    let lock = format!(
        "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext({}))",
        quote_literal(MAKING)
    );
    alone(client, &format!("{lock}; {}", statements.join("; ")))
}

/// The statements that make the table, none if it is there.
pub(crate) fn makers(client: &mut Client, settings: &Settings) -> Result<Vec<String>> {
    let schema = &settings.checkpoint_schema;
    let [found] = client.query_all(&format!(
        "SELECT n.oid IS NOT NULL, c.oid IS NOT NULL FROM (VALUES (1)) AS one \
         LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = {} \
         LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = {}",
        quote_literal(schema),
        quote_literal(BEAT_TABLE)
    ))?;
    let row = found.rows.first();
    let is = |column: usize| {
        Ok::<_, Error>(row.map(|row| row.text(column)).transpose()?.flatten() == Some("t"))
    };
    // Only who may make schemas may say IF NOT EXISTS.
    let create_schema =
        (!is(0)?).then(|| format!("CREATE SCHEMA IF NOT EXISTS {}", quote_ident(schema)));
    let create_table = format!(
        "CREATE UNLOGGED TABLE IF NOT EXISTS {} {COLUMNS}",
        table(settings)
    );
    Ok(match is(1)? {
        true => Vec::new(),
        false => create_schema.into_iter().chain([create_table]).collect(),
    })
}

/// A role without the privileges learns which ones.
fn explain(settings: &Settings, error: Error) -> Error {
    if error.code != NO_PRIVILEGE {
        return error;
    }
    let (schema, table) = (quote_ident(&settings.checkpoint_schema), table(settings));
    error.hint(format!(
        "have the owner GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, or let this role create \
             it: GRANT CREATE, USAGE ON SCHEMA {schema}"
    ))
}

/// The question whether the table exists: `true` or `false`. The server logs an error for a question to a missing table.
pub(crate) fn existence(settings: &Settings) -> String {
    format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n \
             ON n.oid = c.relnamespace WHERE n.nspname = {} AND c.relname = {})::text",
        quote_literal(&settings.checkpoint_schema),
        quote_literal(BEAT_TABLE)
    )
}

/// The runs of the pipeline with a recent beat, the longest-running first. Changes nothing.
pub(crate) fn working(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Worker>> {
    let sql = format!(
        "SELECT pg_catalog.left(b.run_id, {MAX_TEXT}), pg_catalog.left(b.place, {MAX_TEXT}), \
             GREATEST(0, extract(epoch FROM pg_catalog.clock_timestamp() - b.began))::int8, \
             pg_catalog.left(b.process, {MAX_TEXT}) \
         FROM {} AS b WHERE b.pipeline = {} AND {} ORDER BY b.began LIMIT {MAX_WORKERS}",
        table(settings),
        quote_literal(pipeline),
        is_young()
    );
    let answers = match client.simple_query(&sql) {
        Err(error) if is_missing(&error) || error.code == NO_PRIVILEGE => return Ok(Vec::new()),
        // Something else may have the table's name.
        Err(error) if client.is_usable() => {
            let text = &error.message;
            log::warn(format!("runs behind a pooler cannot be detected: {text}"));
            return Ok(Vec::new());
        }
        answers => answers?,
    };
    workers(&answers, |text| {
        Ok(Worker {
            run_id: text(0)?,
            place: format!("{}, behind a pooler", text(1)?),
            seconds: text(2)?.parse().unwrap_or_default(),
            process: Some(text(3)?),
        })
    })
}

/// A run for each row of the first answer, from the strings of its columns; NULL is an empty string.
pub(crate) fn workers(
    answers: &[Rows],
    worker: impl Fn(&dyn Fn(usize) -> Result<String>) -> Result<Worker>,
) -> Result<Vec<Worker>> {
    let rows = answers.first().into_iter().flat_map(|rows| &rows.rows);
    rows.map(|row| worker(&|column| Ok(row.text(column)?.unwrap_or_default().to_owned())))
        .collect()
}
