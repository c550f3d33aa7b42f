//! The fence: a run takes the right to commit a stream from the runs before it.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::{Client, Row, Rows};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{Key, add_later, explain, found, is_missing, make, read_progress};
use crate::config::Settings;
use crate::lease::Lease;
use crate::transaction::{self, BEGIN};
use crate::{commit, lock};

/// Two fences and one creation of the table at the same time need few attempts. This bounds the attempts if somebody
/// drops the table again and again.
const MAX_TRIES: usize = 3;
/// How often the fence checks whether an older backend has ended, a tenth of a second apart.
const MAX_LOOKS: usize = 50;
const PAUSE: &str = "SELECT pg_catalog.pg_sleep(0.1)";
/// Whether the row `c` of the table has the columns `target_oid` and `origins`.
const KNOWS_TARGET: &str = "pg_catalog.jsonb_exists(pg_catalog.to_jsonb(c), 'target_oid')";
const KNOWS_ORIGINS: &str = "pg_catalog.jsonb_exists(pg_catalog.to_jsonb(c), 'origins')";

/// Fences older runs of the stream, and ends the backend of the last one. `client` is the connection that will load.
/// Errors: `checkpoint_not_allowed`, `lock_timeout`, and the errors of the connection.
pub(crate) fn fence(
    client: &mut Client,
    settings: &Settings,
    key: Key,
    run: &Run,
) -> Result<(Lease, Progress)> {
    let mut row = None;
    for _ in 0..MAX_TRIES {
        match raise_epoch(client, settings, &key, run) {
            Err(error) if is_missing(&error) => make(client, settings)?,
            Err(error) => return Err(explain(client, settings, &key, error)),
            Ok(found) => {
                row = Some(found);
                break;
            }
        }
    }
    let Some(row) = row else {
        let text = format!("somebody drops the table {} again and again", key.table);
        return Err(Error::new(ErrorKind::Transient, "checkpoint_missing", text));
    };
    let progress = read_progress(&row, &key)?;
    failpoint("dest-postgres.fence_committed")?;
    let has_older = row.text(5)?.is_some();
    let (mut knows_target, mut knows_origins) =
        (row.text(6)? == Some("t"), row.text(7)? == Some("t"));
    if !(knows_target && knows_origins) && add_later(client, &key.table)? {
        (knows_target, knows_origins) = (true, true);
    }
    let lease = Lease {
        key,
        run_id: run.id.clone(),
        epoch: progress.epoch,
        seq: progress.seq,
        knows_target,
        knows_origins,
        origins: None,
        is_unproved: false,
        aside: None,
    };
    if has_older {
        // A newer run may have ended this session in the meantime.
        let ended = lease.end_older(client);
        ended.map_err(|error| commit::superseded(settings, &lease, error))?;
    }
    failpoint("dest-postgres.older_ended")?;
    Ok((lease, progress))
}

/// Runs the statement of the fence in its own transaction, in one send. The last column but one is set if an older
/// backend has to end.
fn raise_epoch(client: &mut Client, settings: &Settings, key: &Key, run: &Run) -> Result<Row> {
    // Behind a pooler, the server's process soon belongs to another client.
    let sql = format!(
        "WITH me AS (SELECT a.pid, a.backend_start \
             FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS a \
             WHERE a.pid = {pid}) \
         INSERT INTO {table} AS c (pipeline, stream, target, run_id, epoch, seq, complete, \
             backend_pid, backend_start, updated_at) \
         VALUES ({pipeline}, {stream}, {target}, {run}, 1, 0, false, \
             (SELECT me.pid FROM me), (SELECT me.backend_start FROM me), \
             pg_catalog.clock_timestamp()) \
         ON CONFLICT (pipeline, stream, target) DO UPDATE SET \
             epoch = c.epoch + 1, run_id = EXCLUDED.run_id, \
             complete = c.complete AND c.run_id = EXCLUDED.run_id, \
             older_pid = c.backend_pid, older_start = c.backend_start, \
             backend_pid = EXCLUDED.backend_pid, backend_start = EXCLUDED.backend_start, \
             updated_at = EXCLUDED.updated_at \
         RETURNING c.epoch, c.seq, c.cursor, c.complete, c.run_id, \
             CASE WHEN c.older_pid <> pg_catalog.pg_backend_pid() THEN c.older_pid END, \
             {KNOWS_TARGET}, {KNOWS_ORIGINS}",
        pid = client.process_id(),
        table = key.table,
        pipeline = quote_literal(&key.pipeline),
        stream = quote_literal(&key.stream),
        target = quote_literal(&key.target),
        run = quote_literal(&run.id),
    );
    failpoint("dest-postgres.fencing")?;
    let unhurried = transaction::unhurried(client, settings);
    let patience = lock::PATIENCE_MS;
    let begin = format!("{BEGIN}; {unhurried}SET LOCAL lock_timeout = {patience}");
    let answers = match alone(client, &begin, &sql) {
        Err(error) if error.code == lock::NOT_AVAILABLE => {
            lock::warn_of_fence(client, &key.table)?;
            let begin = transaction::begin(client, settings);
            alone(client, &begin, &sql)
                .map_err(|error| lock::timed_out(client, error, &key.table))?
        }
        answers => answers?,
    };
    // The statements that begin the transaction may return a row, too.
    let mut answers = answers.into_iter().rev();
    let row = answers.find_map(|rows| rows.rows.into_iter().next());
    row.ok_or_else(|| Error::internal("a fence without an answer"))
}

/// Runs one statement in the transaction that `begin` opens, in one send.
fn alone(client: &mut Client, begin: &str, sql: &str) -> Result<Vec<Rows>> {
    let _phase = phase::enter(Kind::Query);
    client.send(&format!("{begin}; {sql}; COMMIT"))?;
    failpoint("dest-postgres.fence_sent")?;
    let answers = client.receive_rows();
    if answers.is_err() && client.is_usable() {
        client.execute("ROLLBACK")?;
    }
    answers
}

impl Lease {
    /// Ends the backend of the previous run, so that this run does not wait for its locks. The epoch protects the rows
    /// even if this fails.
    fn end_older(&self, client: &mut Client) -> Result<()> {
        // The server hides everything but the process id of another role's backend.
        let older = |what: &str| {
            format!(
                "SELECT {what} FROM {} AS c JOIN pg_catalog.pg_stat_activity AS a \
                 ON a.pid = c.older_pid AND COALESCE(a.backend_start = c.older_start, true) \
                 WHERE {} AND c.epoch = {} AND a.pid <> pg_catalog.pg_backend_pid()",
                self.key.table,
                self.key.condition(),
                self.epoch
            )
        };
        let ended = client.simple_query(&older(
            "a.pid, CASE WHEN a.backend_start IS NOT NULL \
             THEN pg_catalog.pg_terminate_backend(a.pid) END",
        ));
        match ended.as_deref().map(found) {
            Ok(None) => return Ok(()),
            Ok(Some(row)) if row.text(1)? == Some("t") => {}
            Ok(Some(row)) => {
                warn_of_older(row.text(0)?, "its session belongs to another role");
                return Ok(());
            }
            Err(error) if client.is_usable() => {
                warn_of_older(None, &error.message);
                return Ok(());
            }
            Err(error) => return Err(error.clone()),
        }
        let is_there = older("a.pid");
        for _ in 0..MAX_LOOKS {
            let answers = client.simple_query(&is_there)?;
            if found(&answers).is_none() {
                log::info("the session of an older run was ended");
                return Ok(());
            }
            client.simple_query(PAUSE)?;
        }
        warn_of_older(None, "its session does not end");
        Ok(())
    }
}

fn warn_of_older(pid: Option<&str>, why: &str) {
    let pid = pid.map(|pid| format!(" ({pid})")).unwrap_or_default();
    log::warn(format!(
        "an older run cannot commit any more, but may still hold locks that this one waits \
             for{pid}: {why}. With pg_signal_backend, a role can end the sessions of others"
    ));
}
