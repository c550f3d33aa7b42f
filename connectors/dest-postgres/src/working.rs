//! Which runs of a pipeline are at work: runs whose recorded session the server still lists, and runs
//! that say so.
//!
//! A session is recorded when the run fences, and cleared with the last commit of its stream. Runs behind a pooler
//! do not record a session; they say that they are at work ([`crate::beat`]). The sessions of another role do not
//! show when they began. So nothing is known of their runs here, and the epoch alone keeps two of them apart.
//!
//! Two runs that ask at the same moment are both not recorded yet. So each run takes an advisory lock of its session
//! before it asks, and keeps it. The same session loads the run's first stream, and from then on the run is recorded.
//! A pooler gives the session to others, so runs behind a pooler do not take the lock.

use rapidbyte_pg::ident::{qualified, quote_literal};
use rapidbyte_pg_client::{Client, Rows, TransactionStatus};
use rapidbyte_sdk::prelude::*;

use crate::beat::{self, workers};
use crate::checkpoint::{differs, is_missing};
use crate::config::{CHECKPOINT_TABLE, Settings};
use crate::lock::{self, PATIENCE_MS};
use crate::transaction::BEGIN;

/// More are not listed: one is enough to know whom to wait for.
const MAX_WORKERS: usize = 64;

/// The runs of the pipeline, those behind a pooler first. Changes nothing.
pub(crate) fn working(
    client: &mut Client,
    settings: &Settings,
    pipeline: &str,
) -> Result<Vec<Worker>> {
    if client.is_pgbouncer() {
        let mut workers = beat::working(client, settings, pipeline)?;
        let listed = client.simple_query(&question(settings, pipeline));
        workers.extend(listed_in(
            settings,
            listed.as_deref().map_err(Clone::clone),
        )?);
        workers.truncate(MAX_WORKERS);
        return Ok(workers);
    }
    let Asked {
        has_beats,
        listed,
        holder,
    } = take(client, settings, pipeline)?;
    let mut workers = match has_beats {
        true => beat::working(client, settings, pipeline)?,
        false => Vec::new(),
    };
    workers.extend(listed);
    if let Some(holder) = holder
        && !workers.iter().any(|worker| worker.place == holder.place)
    {
        workers.push(holder);
    }
    workers.truncate(MAX_WORKERS);
    Ok(workers)
}

/// The first half of the advisory lock's key.
const LOCK_CLASS: &str = "pg_catalog.hashtext('rapidbyte.run')";

/// The answers around the pipeline's lock.
struct Asked {
    /// The table of heartbeats may exist.
    has_beats: bool,
    /// The runs whose session the server lists.
    listed: Vec<Worker>,
    /// The run that has the lock.
    holder: Option<Worker>,
}

/// Takes the pipeline's lock for the session, then asks for other runs, in one send. A session that has just ended gives
/// the lock back within the wait.
fn take(client: &mut Client, settings: &Settings, pipeline: &str) -> Result<Asked> {
    let key = format!(
        "pg_catalog.hashtext({})",
        quote_literal(&format!("{} {pipeline}", settings.checkpoint_schema))
    );
    let question = question(settings, pipeline);
    let asked = client.query_each(
        &format!(
            "{BEGIN}; SET LOCAL lock_timeout = {PATIENCE_MS}; \
             SELECT pg_catalog.pg_advisory_lock({LOCK_CLASS}, {key}); COMMIT; {}; {question}",
            beat::existence(settings)
        ),
        3,
    );
    let is_taken = client.transaction_status() == TransactionStatus::Idle;
    match asked {
        Ok(answers) => {
            let exists = answers.get(1).map(Rows::single).transpose()?;
            return Ok(Asked {
                has_beats: exists == Some("true"),
                listed: listed_in(settings, Ok(answers.get(2..).unwrap_or_default()))?,
                holder: None,
            });
        }
        // The lock is taken, and the last question failed.
        Err(error) if is_taken && client.is_usable() => {
            return Ok(Asked {
                has_beats: true,
                listed: listed_in(settings, Err(error))?,
                holder: None,
            });
        }
        Err(error) if error.code == lock::NOT_AVAILABLE => client.execute("ROLLBACK")?,
        Err(error) => return Err(error),
    };
    let sql = format!(
        "SELECT l.pid, COALESCE(pg_catalog.host(a.client_addr), {HERE}), \
             COALESCE(extract(epoch FROM pg_catalog.now() - a.backend_start)::int8, 0) \
         FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 \
             AND l.classid = {LOCK_CLASS}::oid AND l.objid = {key}::oid \
             AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d \
                 WHERE d.datname = pg_catalog.current_database())"
    );
    let answers = client.simple_query(&sql)?;
    let holders = workers(&answers, |text| {
        Ok(Worker {
            run_id: String::new(),
            place: place(&text(1)?, &text(0)?),
            seconds: text(2)?.parse().unwrap_or_default(),
            process: None,
        })
    })?;
    let listed = client.simple_query(&question);
    Ok(Asked {
        has_beats: true,
        listed: listed_in(settings, listed.as_deref().map_err(Clone::clone))?,
        holder: holders.into_iter().next(),
    })
}

/// For a session without an address.
const HERE: &str = "'the server''s own machine'";

/// Where a run works, for people.
fn place(address: &str, process: &str) -> String {
    format!("from {address}, server process {process}")
}

/// The question for the runs whose session the server lists, the oldest session first.
fn question(settings: &Settings, pipeline: &str) -> String {
    format!(
        "SELECT c.run_id, pg_catalog.min(a.pid), \
             COALESCE(pg_catalog.min(pg_catalog.host(a.client_addr)), {HERE}), \
             pg_catalog.max(extract(epoch FROM pg_catalog.now() - a.backend_start))::int8 \
         FROM {} AS c CROSS JOIN LATERAL pg_catalog.pg_stat_get_activity(c.backend_pid) AS a \
         WHERE c.pipeline = {} AND a.pid = c.backend_pid AND a.backend_start = c.backend_start \
             AND a.pid <> pg_catalog.pg_backend_pid() \
         GROUP BY c.run_id ORDER BY 4 DESC LIMIT {MAX_WORKERS}",
        qualified(&settings.checkpoint_schema, CHECKPOINT_TABLE),
        quote_literal(pipeline)
    )
}

/// The runs that the answer to [`question`] lists.
fn listed_in(settings: &Settings, answer: Result<&[Rows]>) -> Result<Vec<Worker>> {
    let answers = match answer {
        // A role that may not read it hears of that from the plan.
        Err(error) if is_missing(&error) || error.code == lock::NO_PRIVILEGE => {
            return Ok(Vec::new());
        }
        Err(error) => {
            let table = qualified(&settings.checkpoint_schema, CHECKPOINT_TABLE);
            return Err(differs(&table, error));
        }
        Ok(answers) => answers,
    };
    workers(answers, |text| {
        Ok(Worker {
            run_id: text(0)?,
            place: place(&text(2)?, &text(1)?),
            seconds: text(3)?.parse().unwrap_or_default(),
            process: None,
        })
    })
}
