//! Which runs of a pipeline are at work: those whose recorded session the server still lists, and those
//! that say so.
//!
//! A session is recorded when the run is let in, and cleared with the last commit of its stream. Runs behind a
//! pooler record none, and say by themselves that they are at work ([`crate::beat`]). The sessions of another role
//! show no time at which they began: of such runs nothing is known here, and the epoch alone keeps two of them
//! apart.

use rapidbyte_pg::ident::{qualified, quote_literal};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;

use crate::beat;
use crate::checkpoint::is_missing;
use crate::config::{CHECKPOINT_TABLE, Settings};

/// More are not listed: one is enough to know whom to wait for.
const MAX_WORKERS: usize = 64;

/// The runs of the pipeline, those behind a pooler first. Changes nothing.
pub(crate) fn working(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Worker>> {
    let mut workers = beat::working(client, settings, pipeline)?;
    workers.extend(listed(client, settings, pipeline)?);
    workers.truncate(MAX_WORKERS);
    Ok(workers)
}

/// Those whose session the server lists, the one that has worked longest first.
fn listed(client: &mut Client, settings: &Settings, pipeline: &str) -> Result<Vec<Worker>> {
    let sql = format!(
        "SELECT c.run_id, pg_catalog.min(a.pid), \
             COALESCE(pg_catalog.min(pg_catalog.host(a.client_addr)), 'the server''s own machine'), \
             pg_catalog.max(extract(epoch FROM pg_catalog.now() - a.backend_start))::int8 \
         FROM {} AS c JOIN pg_catalog.pg_stat_activity AS a \
             ON a.pid = c.backend_pid AND a.backend_start = c.backend_start \
         WHERE c.pipeline = {} AND a.pid <> pg_catalog.pg_backend_pid() \
         GROUP BY c.run_id ORDER BY 4 DESC LIMIT {MAX_WORKERS}",
        qualified(&settings.checkpoint_schema, CHECKPOINT_TABLE),
        quote_literal(pipeline)
    );
    let answers = match client.simple_query(&sql) {
        // A role that may not read it hears of that from the plan.
        Err(error) if is_missing(&error) || error.code == crate::lock::NO_PRIVILEGE => {
            return Ok(Vec::new());
        }
        answers => answers?,
    };
    workers(&answers, |text| {
        Ok(Worker {
            run_id: text(0)?,
            place: format!("from {}, server process {}", text(2)?, text(1)?),
            seconds: text(3)?.parse().unwrap_or_default(),
            process: None,
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
