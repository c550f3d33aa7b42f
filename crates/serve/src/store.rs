//! The jobs of the queue, in SQLite. A job that was admitted survives the end of the process and of the machine.
//!
//! One thread writes (`writer.rs`). Requests and runs read with a connection each, so that neither waits for the other.

mod admit;
mod clean;
mod job;
mod known;
mod lookups;
mod operate;
mod progress;
mod shown;
mod tables;
mod token;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Sender, TrySendError, bounded};
use rusqlite::{Connection, OptionalExtension, Transaction};
use tokio::sync::oneshot;

use admit::Made;
pub use admit::{Admitted, Next as NextJob, Outcome, Refused};
pub use clean::Retention;
pub use job::{Body, Job, JobState, NewJob, Pending, hexadecimal};
pub use lookups::{Lookups, lookups};
pub use shown::{MAX_COUNTED, Shown, StreamState};
pub use token::{Spent, TokenLimits};
pub use writer::Held;

use job::{COLUMNS, PENDING_COLUMNS, job_of, pending_of};
use known::Known;
use tables::{VERSION, connect, prepare};
use writer::{Change, Counts, Sync, Valued, write_all};

/// Requests that wait for a thread.
const MAX_WAITING: usize = 4096;

/// An error of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// SQLite could not do it. Nothing of the request is stored.
    #[error("the store of jobs: {0}")]
    Sqlite(String),
    /// A newer version of the program has written the file.
    #[error("the store of jobs has version {0}, and this program knows version {VERSION}")]
    Version(i64),
    /// Too many requests wait for the disk.
    #[error("the store of jobs is busy")]
    Busy,
    /// The server ends.
    #[error("the store of jobs is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error.to_string())
    }
}

/// The limits of the queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Jobs that are pending.
    pub jobs: u64,
    /// Bytes of the bodies of jobs that are pending or dead.
    pub bytes: u64,
}

/// Which jobs a list has.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Jobs of this pipeline.
    pub pipeline: Option<String>,
    /// Jobs of this stream. Only together with a pipeline.
    pub stream: Option<String>,
    /// Jobs in this state.
    pub state: Option<JobState>,
    /// Dead jobs whose body was discarded, or all others.
    pub discarded: Option<bool>,
    /// Jobs behind this one.
    pub after: i64,
}

/// The progress of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The name of the queue in the destination's cursor.
    pub queue: String,
    /// The last job that was given to a run.
    pub tried: i64,
    /// The cursor of another queue from which this one went on.
    pub seen: Option<String>,
    /// Jobs up to `tried` are pending: whether the destination has them is to be asked.
    pub is_in_doubt: bool,
}

/// The outcome of a request about one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// It is done. The job as it is now.
    Done(Job),
    /// The state of this job does not allow it.
    NotNow(Job),
    /// A run has this job.
    Running(Job),
    /// The body of this job was forgotten.
    NoBody(Job),
    /// The queue is full.
    Full,
    /// No job has this id.
    Unknown,
}

/// The pending jobs of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backlog {
    /// The pipeline.
    pub pipeline: String,
    /// The stream.
    pub stream: String,
    /// Their number.
    pub jobs: u64,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// When the oldest was received, in milliseconds since 1970-01-01.
    pub oldest_ms: i64,
}

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The store. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    changes: Sender<Box<dyn Change>>,
    looks: Sender<Look>,
    /// Runs read on their own threads.
    of_runs: Arc<Mutex<Connection>>,
    known: Known,
    counts: Arc<Counts>,
    limits: QueueLimits,
}

/// The threads of the store. They end when the last [`Store`] is dropped.
pub struct Threads([JoinHandle<()>; 2]);

impl Threads {
    /// Waits until everything that was admitted is answered.
    pub fn join(self) {
        for thread in self.0 {
            // A thread that panicked has told its clients by dropping their answers.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Opens the store in `file`, which is made if it is missing.
    ///
    /// # Errors
    /// `Sqlite` and `Version`.
    pub fn open(file: &Path, limits: QueueLimits) -> Result<(Self, Threads), StoreError> {
        let mut writer = connect(file)?;
        prepare(&mut writer)?;
        let held = Held::of(&writer)?;
        let counts = Arc::new(Counts::default());
        counts.set(held);
        let (changes, made) = bounded(MAX_WAITING);
        let told = Arc::clone(&counts);
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        let write = Box::new(move || write_all(writer, &folder, held, &told, &made));
        let writes = spawn("jobs", write)?;
        let (looks, looked) = bounded::<Look>(MAX_WAITING);
        let connection = connect(file)?;
        let read = Box::new(move || looked.iter().for_each(|look| look(&connection)));
        let reads = spawn("looks", read)?;
        let of_runs = connect(file)?;
        let store = Self {
            changes,
            looks,
            of_runs: Arc::new(Mutex::new(of_runs)),
            known: Known::default(),
            counts,
            limits,
        };
        Ok((store, Threads([writes, reads])))
    }

    /// The contents after the last commit.
    pub fn held(&self) -> Held {
        self.counts.get()
    }

    /// The limits of the queue.
    pub fn limits(&self) -> QueueLimits {
        self.limits
    }

    /// Stores the jobs of one request, except those that are known: all of them, or none. After the answer they are on
    /// the disk. The thread of the store calls `next` with the job that a run may have, before it is on the disk, and
    /// `stored` with the answer, a little before this returns it. Neither must wait. After an error `stored` is dropped.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`. No job is stored, except after `Closed`, where they may be.
    pub async fn admit(
        &self,
        jobs: Vec<NewJob>,
        next: impl FnOnce(NextJob) + Send + 'static,
        stored: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Result<Outcome, StoreError> {
        let asked = match jobs.as_slice() {
            [job] => match self.known.get(job) {
                Some(known) => return Ok(Ok(vec![Admitted::Known(known)])),
                None => job.is_known_by_content.then(|| self.known.ask(job)),
            },
            _ => None,
        };
        let limits = self.limits;
        let before = move |made: &mut Made| {
            if let Some(job) = made.next.take() {
                next(job);
            }
        };
        let made = self
            .change_synced(
                Sync::Disk,
                move |transaction, held| admit::admit_all(transaction, held, limits, jobs),
                (before, |made: &Made| stored(&made.outcome)),
            )?
            .await
            .unwrap_or(Err(StoreError::Closed));
        let outcome = made.map(|made| made.outcome);
        if let (Some(asked), Ok(Ok(all))) = (asked, &outcome)
            && let [Admitted::Known(job)] = all.as_slice()
        {
            self.known.remember(&asked, job);
        }
        outcome
    }

    /// The job with this id.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn job(&self, id: i64) -> Result<Option<Job>, StoreError> {
        self.look(move |connection| found(connection, id)).await
    }

    /// The job with this id, and its body.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn body(&self, id: i64) -> Result<Option<(Job, Option<Body>)>, StoreError> {
        self.look(move |connection| {
            let Some(job) = found(connection, id)? else {
                return Ok(None);
            };
            let sql = format!("SELECT {PENDING_COLUMNS} FROM job WHERE id = ?1");
            let pending = connection.query_row(&sql, [id], pending_of)?;
            let body = job.has_body.then_some(pending.body);
            Ok(Some((job, body)))
        })
        .await
    }

    /// At most `limit` jobs, in their order.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn jobs(&self, filter: JobFilter, limit: u32) -> Result<Vec<Job>, StoreError> {
        self.look(move |connection| {
            let JobFilter {
                pipeline,
                stream,
                state,
                discarded,
                after,
            } = filter;
            let mut sql = format!("SELECT {COLUMNS} FROM job WHERE id > ?1");
            // Only what is asked for, so that an index serves it.
            let mut wanted: Vec<&dyn rusqlite::ToSql> = vec![&after, &limit];
            for (name, value) in [("pipeline", &pipeline), ("stream", &stream)] {
                if let Some(value) = value {
                    wanted.push(value);
                    sql.push_str(&format!(" AND {name} = ?{}", wanted.len()));
                }
            }
            if let Some(state) = state {
                sql.push_str(&format!(" AND state = '{}'", state.name()));
            }
            sql.push_str(job::and_discarded(discarded));
            sql.push_str(" ORDER BY id LIMIT ?2");
            let mut statement = connection.prepare(&sql)?;
            let jobs = statement.query_map(wanted.as_slice(), job_of)?;
            Ok(jobs.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The names of all files of the spool that belong to a job.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn spooled(&self) -> Result<Vec<String>, StoreError> {
        self.look(|connection| {
            let sql = "SELECT DISTINCT spooled FROM job WHERE spooled IS NOT NULL";
            let mut statement = connection.prepare(sql)?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// All streams that have pending jobs.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn backlogs(&self) -> Result<Vec<Backlog>, StoreError> {
        self.look(backlogs).await
    }

    /// The same, for a thread of its own.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn waiting(&self) -> Result<Vec<Backlog>, StoreError> {
        self.look_of_run(backlogs)
    }

    /// Changes jobs. The change is on the disk when the answer comes.
    fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &mut Held) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        self.change_synced(Sync::Disk, work, (|_: &mut T| {}, |_: &T| {}))
    }

    fn change_synced<T: Send + 'static>(
        &self,
        sync: Sync,
        work: impl FnOnce(&Transaction<'_>, &mut Held) -> Result<T, StoreError> + Send + 'static,
        watch: (
            impl FnOnce(&mut T) + Send + 'static,
            impl FnOnce(&T) + Send + 'static,
        ),
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (change, answered) = Valued::new(work, sync, watch);
        let change: Box<dyn Change> = Box::new(change);
        send(&self.changes, change)?;
        Ok(answered)
    }

    /// The same for a thread of its own, which waits.
    fn change_now<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &mut Held) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answered = self.change(work)?;
        answered.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    /// The same for what the destination knows better: a power failure may undo it.
    fn note_now<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, &mut Held) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answered = self.change_synced(Sync::System, work, (|_: &mut T| {}, |_: &T| {}))?;
        answered.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, looked) = oneshot::channel();
        let look: Look = Box::new(move |connection| {
            // Nobody listens if the client is gone.
            let _ = answer.send(look(connection));
        });
        send(&self.looks, look)?;
        looked.await.unwrap_or(Err(StoreError::Closed))
    }

    fn look_of_run<T>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        look(&self.of_runs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn send<T>(to: &Sender<T>, request: T) -> Result<(), StoreError> {
    to.try_send(request).map_err(|error| match error {
        TrySendError::Full(_) => StoreError::Busy,
        TrySendError::Disconnected(_) => StoreError::Closed,
    })
}

fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> Result<JoinHandle<()>, StoreError> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|error| StoreError::Sqlite(error.to_string()))
}

fn found(connection: &Connection, id: i64) -> Result<Option<Job>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM job WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([id], job_of).optional()?)
}

fn backlogs(connection: &Connection) -> Result<Vec<Backlog>, StoreError> {
    let sql = "SELECT pipeline, stream, count(*), sum(bytes), min(received) FROM job \
               WHERE state = 'pending' GROUP BY pipeline, stream";
    let mut statement = connection.prepare_cached(sql)?;
    let of_row = |row: &rusqlite::Row<'_>| {
        Ok(Backlog {
            pipeline: row.get(0)?,
            stream: row.get(1)?,
            jobs: row.get(2)?,
            bytes: row.get(3)?,
            oldest_ms: row.get(4)?,
        })
    };
    let backlogs = statement.query_map([], of_row)?;
    Ok(backlogs.collect::<Result<_, _>>()?)
}

/// Milliseconds since 1970-01-01.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
