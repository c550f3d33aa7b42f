//! The runs in SQLite, in a file of their own. What a call has stored survives the end of the process and of the machine.
//!
//! One thread has the file. A call is one transaction.

mod read;
mod standing;
mod tables;
mod write;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, TrySendError, bounded};
use rapidbyte::WhenRunning;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::RunsError;
use super::messages::{Wanted, of_run};
use super::outbox::{self, Told};
use super::record::{Options, Outcome, Run, RunState, Trigger, error};

use read::{COLUMNS, get, list, run_of};
use write::{New, insert, interrupt, set_position, trim};

/// Calls that wait for the thread.
const MAX_WAITING: usize = 1024;
/// The longest wait for another process that holds the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);
/// Runs of a pipeline that are kept.
const KEPT: i64 = 1000;
/// Runs of a pipeline that wait.
const MAX_QUEUED: i64 = 1100;
/// Attempts of a run during which the process of the server ended: a run that takes the server down stops doing so.
pub(super) const MAX_ATTEMPTS: u32 = 5;

type Request = Box<dyn FnOnce(&mut Connection) + Send>;
type Result<T> = std::result::Result<T, RunsError>;

/// The store. Its thread ends when it is dropped.
pub(super) struct Store {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

/// A fire that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewFire {
    pub at_ms: i64,
    /// It waits for the runs before it, whatever `when_running` says: it is caught up.
    pub waits: bool,
}

/// The outcome of recording fires, or a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recorded {
    pub queued: Vec<i64>,
    pub skipped: usize,
    /// The run that a new one replaces.
    pub replaces: Option<i64>,
}

/// The answer to a request for a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Submitted {
    /// It is queued. `replaces` is the run at work that has to end.
    Queued {
        run: Box<Run>,
        replaces: Option<i64>,
    },
    /// This run of the pipeline is active, and the pipeline refuses another.
    Active(i64),
    /// Too many runs wait.
    Full,
}

/// The runs of a list, the newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only runs of these pipelines.
    pub pipelines: Option<Vec<String>>,
    pub state: Option<RunState>,
    /// Only runs that are older than the run with this id.
    pub before: Option<i64>,
    pub limit: u32,
}

impl Store {
    /// Opens the store in `file`, which is made if it is missing.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let made = crate::private::make(file);
        made.map_err(|error| RunsError::System("cannot make the store of runs", error))?;
        let mut connection = Connection::open(file)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // A commit is on the disk when it returns.
        connection.pragma_update(None, "synchronous", "FULL")?;
        tables::prepare(&mut connection)?;
        let (requests, requested) = bounded::<Request>(MAX_WAITING);
        let serve = move || {
            let each = |request: Request| request(&mut connection);
            requested.into_iter().for_each(each);
        };
        let thread = std::thread::Builder::new()
            .name("run-store".into())
            .spawn(serve);
        let thread = thread.map_err(|error| RunsError::System("cannot start a thread", error))?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// One transaction, for a thread of its own.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = bounded(1);
        let request: Request = Box::new(move |connection| {
            // Nobody listens if the caller has panicked.
            let _ = answer.send(transaction(connection, work));
        });
        let requests = self.requests.as_ref().ok_or(RunsError::Closed)?;
        requests.send(request).map_err(|_| RunsError::Closed)?;
        answered.recv().unwrap_or(Err(RunsError::Closed))
    }

    /// One transaction, for a request over HTTP.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let request: Request = Box::new(move |connection| {
            // Nobody listens if the client is gone.
            let _ = answer.send(transaction(connection, work));
        });
        let requests = self.requests.as_ref().ok_or(RunsError::Closed)?;
        requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => RunsError::Busy,
            TrySendError::Disconnected(_) => RunsError::Closed,
        })?;
        answered.await.unwrap_or(Err(RunsError::Closed))
    }

    /// After a start: what was running when the process ended is interrupted, and queued once more. `wanted` says what a
    /// pipeline wants to be told about a run that had its last attempt.
    pub(super) fn recover(
        &self,
        now_ms: i64,
        wanted: impl Fn(&str) -> Wanted + Send + 'static,
    ) -> Result<Told> {
        self.call(move |transaction| {
            let mut told = Told::default();
            let sql = format!("SELECT {COLUMNS} FROM run WHERE state = 'running' ORDER BY id");
            let mut statement = transaction.prepare(&sql)?;
            let running = statement.query_map([], run_of)?;
            for run in running.collect::<rusqlite::Result<Vec<Run>>>()? {
                let error = interrupt(transaction, &run, run.attempt + 1, now_ms)?;
                if let Some(error) = error {
                    let outcome = Outcome::of_error(RunState::Interrupted, error);
                    let drafts = of_run(&run, &outcome, wanted(&run.pipeline), now_ms);
                    let more = outbox::add(transaction, &drafts, now_ms)?;
                    told.recorded += more.recorded;
                    told.dropped += more.dropped;
                }
            }
            Ok(told)
        })
    }

    /// The server ends during a run: it is interrupted, and queued once more.
    pub(super) fn interrupt(
        &self,
        run: &Run,
        outcome: &Outcome,
        wanted: Wanted,
        now_ms: i64,
    ) -> Result<Told> {
        let (run, outcome) = (run.clone(), outcome.clone());
        self.call(move |transaction| {
            // The operator ended the server, and not the run.
            interrupt(transaction, &run, run.attempt, now_ms)?;
            outbox::add(transaction, &of_run(&run, &outcome, wanted, now_ms), now_ms)
        })
    }

    /// The last fire of a schedule that is settled. A schedule that is new or has changed begins now.
    pub(super) fn position(&self, pipeline: &str, cron: &str, now_ms: i64) -> Result<i64> {
        let (pipeline, cron) = (pipeline.to_owned(), cron.to_owned());
        self.call(move |transaction| {
            let sql = "SELECT last_ms FROM schedule WHERE pipeline = ?1 AND cron = ?2";
            let known = transaction.query_row(sql, params![pipeline, cron], |row| row.get(0));
            if let Some(known) = known.optional()? {
                return Ok(known);
            }
            set_position(transaction, &pipeline, &cron, now_ms)?;
            Ok(now_ms)
        })
    }

    /// The pipeline has no schedule: one that it gets later is new.
    pub(super) fn forget_position(&self, pipeline: &str) -> Result<()> {
        let pipeline = pipeline.to_owned();
        self.call(move |transaction| {
            transaction.execute("DELETE FROM schedule WHERE pipeline = ?1", [pipeline])?;
            Ok(())
        })
    }

    /// Records fires and the position behind them.
    pub(super) fn record(
        &self,
        pipeline: &str,
        (cron, position_ms): (&str, i64),
        fires: Vec<NewFire>,
        rule: WhenRunning,
        now_ms: i64,
    ) -> Result<Recorded> {
        let (pipeline, cron) = (pipeline.to_owned(), cron.to_owned());
        self.call(move |transaction| {
            let mut recorded = Recorded::default();
            for fire in fires {
                let decided = match fire.waits {
                    true => decide(transaction, &pipeline, WhenRunning::Wait, MAX_QUEUED)?,
                    false => decide(transaction, &pipeline, rule, 1)?,
                };
                let (state, error, replaces) = match decided {
                    Decided::Queue { replaces } => (RunState::Queued, None, replaces),
                    Decided::Active(run) => (RunState::Skipped, Some(active(run)), None),
                    Decided::Full => (RunState::Skipped, Some(waits()), None),
                };
                let new = New {
                    pipeline: &pipeline,
                    trigger: Trigger::Schedule,
                    scheduled_ms: Some(fire.at_ms),
                    state,
                    options: &Options::default(),
                    attempt: 1,
                    resumes: None,
                    error,
                    now_ms,
                };
                let Some(id) = insert(transaction, &new)? else {
                    continue;
                };
                match state {
                    RunState::Queued => recorded.queued.push(id),
                    _ => recorded.skipped += 1,
                }
                recorded.replaces = recorded.replaces.or(replaces);
            }
            set_position(transaction, &pipeline, &cron, position_ms)?;
            trim(transaction, &pipeline)?;
            Ok(recorded)
        })
    }

    /// Queues a run that a client asks for.
    pub(super) async fn submit(
        &self,
        pipeline: String,
        options: Options,
        rule: WhenRunning,
        now_ms: i64,
    ) -> Result<Submitted> {
        self.ask(move |transaction| {
            let replaces = match decide(transaction, &pipeline, rule, MAX_QUEUED)? {
                Decided::Queue { replaces } => replaces,
                Decided::Active(run) => return Ok(Submitted::Active(run)),
                Decided::Full => return Ok(Submitted::Full),
            };
            let new = New {
                pipeline: &pipeline,
                trigger: Trigger::Manual,
                scheduled_ms: None,
                state: RunState::Queued,
                options: &options,
                attempt: 1,
                resumes: None,
                error: None,
                now_ms,
            };
            let id = insert(transaction, &new)?;
            let run = id.map_or(Ok(None), |id| get(transaction, id))?;
            let run = run.ok_or_else(|| RunsError::Sqlite("a run was not stored".into()))?;
            Ok(Submitted::Queued {
                run: Box::new(run),
                replaces,
            })
        })
        .await
    }

    /// Begins the oldest queued run whose pipeline has no run at work.
    pub(super) fn begin(&self, now_ms: i64) -> Result<Option<Run>> {
        self.call(move |transaction| {
            let sql = format!(
                "SELECT {COLUMNS} FROM run AS next WHERE state = 'queued' AND NOT EXISTS \
                 (SELECT 1 FROM run WHERE state = 'running' AND pipeline = next.pipeline) ORDER BY id LIMIT 1"
            );
            let mut statement = transaction.prepare_cached(&sql)?;
            let Some(run) = statement.query_row([], run_of).optional()? else {
                return Ok(None);
            };
            let sql = "UPDATE run SET state = 'running', started_ms = ?2 WHERE id = ?1";
            transaction.execute(sql, params![run.id, now_ms])?;
            Ok(Some(Run {
                state: RunState::Running,
                started_ms: Some(now_ms),
                ..run
            }))
        })
    }

    /// Records the end of a run, and the messages about it.
    pub(super) fn end(
        &self,
        run: &Run,
        outcome: &Outcome,
        wanted: Wanted,
        now_ms: i64,
    ) -> Result<Told> {
        let (run, outcome) = (run.clone(), outcome.clone());
        self.call(move |transaction| {
            let text = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string);
            let sql = "UPDATE run SET state = ?2, ended_ms = ?3, rows = ?4, error = ?5, report = ?6, log = ?7 \
                       WHERE id = ?1";
            transaction.execute(
                sql,
                params![
                    run.id,
                    outcome.state.name(),
                    now_ms,
                    outcome.rows,
                    text(&outcome.error),
                    text(&outcome.report),
                    text(&outcome.log),
                ],
            )?;
            trim(transaction, &run.pipeline)?;
            outbox::add(transaction, &of_run(&run, &outcome, wanted, now_ms), now_ms)
        })
    }

    /// Cancels a run that is queued. Returns its pipeline, or `None` if it is not queued.
    pub(super) fn cancel_queued(&self, id: i64, now_ms: i64) -> Result<Option<String>> {
        self.call(move |transaction| {
            let error = error("cancelled", "a client cancelled the run before it began", None).to_string();
            let sql = "UPDATE run SET state = 'cancelled', ended_ms = ?2, error = ?3 WHERE id = ?1 AND state = 'queued' \
                       RETURNING pipeline";
            let cancelled = transaction.query_row(sql, params![id, now_ms, error], |row| row.get(0));
            Ok(cancelled.optional()?)
        })
    }

    pub(super) async fn get(&self, id: i64) -> Result<Option<Run>> {
        self.ask(move |transaction| get(transaction, id)).await
    }

    pub(super) async fn list(&self, filter: Filter) -> Result<Vec<Run>> {
        self.ask(move |transaction| list(transaction, &filter))
            .await
    }

    /// As [`Store::list`], for a thread of its own.
    pub(super) fn look(&self, filter: Filter) -> Result<Vec<Run>> {
        self.call(move |transaction| list(transaction, &filter))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has told its callers by dropping their answers.
            let _ = thread.join();
        }
    }
}

fn transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// What happens with a run that is due.
enum Decided {
    Queue { replaces: Option<i64> },
    Active(i64),
    Full,
}

/// `most` runs of the pipeline wait at most.
fn decide(
    transaction: &Transaction<'_>,
    pipeline: &str,
    rule: WhenRunning,
    most: i64,
) -> Result<Decided> {
    let sql = "SELECT id FROM run WHERE state = 'running' AND pipeline = ?1";
    let running: Option<i64> = transaction
        .query_row(sql, [pipeline], |row| row.get(0))
        .optional()?;
    let sql = "SELECT count(*), min(id) FROM run WHERE state = 'queued' AND pipeline = ?1";
    let (queued, first): (i64, Option<i64>) =
        transaction.query_row(sql, [pipeline], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(match (rule, running.or(first)) {
        (WhenRunning::Refuse, Some(run)) => Decided::Active(run),
        _ if queued >= most => Decided::Full,
        (WhenRunning::Replace, _) => Decided::Queue { replaces: running },
        (WhenRunning::Refuse | WhenRunning::Wait, _) => Decided::Queue { replaces: None },
    })
}

fn active(run: i64) -> serde_json::Value {
    let text = format!("the run {run} of the pipeline was active");
    let hint = "choose a longer interval, or set when_running: wait in the pipeline file";
    error("already_running", &text, Some(hint))
}

fn waits() -> serde_json::Value {
    let text = "another run of the pipeline waits already";
    let hint = "choose a longer interval: runs take longer than the time between them";
    error("already_queued", text, Some(hint))
}

#[cfg(test)]
mod tests;
