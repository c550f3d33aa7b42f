//! The jobs of the queue, in SQLite. A job that was admitted survives the end of the process and of the machine.
//!
//! One thread writes. It takes all requests that wait, and commits them together with one `fsync`: a client waits for one
//! commit, however many clients there are.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

/// Requests that are committed together.
const MAX_GROUP: usize = 1024;
/// Requests that wait for the thread.
const MAX_WAITING: usize = 4096;
/// The longest wait for another process that holds the file, such as a backup.
const BUSY: Duration = Duration::from_secs(5);
/// Changes with the tables.
const VERSION: i64 = 1;

const TABLES: &str = "
-- One row: the name of this queue, by which a destination tells its ids from those of another.
CREATE TABLE queue (name TEXT NOT NULL) STRICT;
INSERT INTO queue VALUES (lower(hex(randomblob(8))));
CREATE TABLE job (
    -- In the order in which they were admitted; never used again.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline TEXT NOT NULL,
    stream TEXT NOT NULL,
    format TEXT NOT NULL,
    encoding TEXT,
    bytes INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    -- Why a job is dead, as JSON.
    reason TEXT,
    -- Milliseconds since 1970.
    received INTEGER NOT NULL,
    ended INTEGER,
    -- A small body. NULL: the body is the file `spooled`.
    body BLOB,
    spooled TEXT
) STRICT;
CREATE UNIQUE INDEX job_by_key ON job (pipeline, stream, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_by_content ON job (pipeline, stream, sha256);
CREATE INDEX job_pending ON job (pipeline, stream, id) WHERE state = 'pending';
CREATE INDEX job_kept ON job (ended) WHERE state = 'done' AND (body IS NOT NULL OR spooled IS NOT NULL);
";

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
    /// Jobs that are not done.
    pub jobs: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// The place of a job's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// In the store.
    Inline(Vec<u8>),
    /// In the file with this name, in the spool.
    Spooled(String),
}

/// A body that was received, and where it goes.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The name of the pipeline.
    pub pipeline: String,
    /// The stream of the pipeline.
    pub stream: String,
    /// The format of the body, such as `jsonl`.
    pub format: &'static str,
    /// The compression of the body: `gzip` or `zstd`.
    pub encoding: Option<&'static str>,
    /// The size of the body as it was received.
    pub bytes: u64,
    /// The SHA-256 of the body as it was received.
    pub sha256: [u8; 32],
    /// The client's name for this request: a request with the same key is the same job.
    pub key: Option<String>,
    /// A body that is known already is the same job.
    pub is_known_by_content: bool,
    /// The body.
    pub body: Body,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Its rows are not committed in the destination.
    Pending,
    /// Its rows are committed.
    Done,
    /// It cannot be read, or its rows are refused. It has no row in the destination.
    Dead,
}

impl JobState {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    fn of(name: &str) -> Option<Self> {
        let mut all = [Self::Pending, Self::Done, Self::Dead].into_iter();
        all.find(|state| state.name() == name)
    }
}

/// A job as the store knows it, without its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Rises with each job.
    pub id: i64,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The stream of the pipeline.
    pub stream: String,
    /// The format of the body.
    pub format: String,
    /// The compression of the body.
    pub encoding: Option<String>,
    /// The size of the body as it was received.
    pub bytes: u64,
    /// The SHA-256 of the body as it was received, in hexadecimal.
    pub sha256: String,
    /// The client's name for the request.
    pub idempotency_key: Option<String>,
    /// Its state.
    pub state: JobState,
    /// The reason of a dead job: `code`, `message` and the like.
    pub reason: Option<Value>,
    /// When it was received, in milliseconds since 1970-01-01.
    pub received_ms: i64,
    /// When it was done or dead.
    pub ended_ms: Option<i64>,
}

/// A job whose rows are still to be moved.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its id.
    pub id: i64,
    /// The format of its body.
    pub format: String,
    /// The compression of its body.
    pub encoding: Option<String>,
    /// The size of its body as it was received.
    pub bytes: u64,
    /// Its body.
    pub body: Body,
}

/// The answer to a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It is stored.
    New(Job),
    /// The same request, or the same content, is this job.
    Known(Job),
    /// This job has the key of the request and another body.
    KeyOfAnother(Job),
    /// The queue has as many jobs or bytes as it may have.
    Full,
}

type Change =
    Box<dyn FnOnce(&Transaction<'_>, &mut Queued) -> Result<Vec<String>, StoreError> + Send>;
type Answer = oneshot::Sender<Result<Outcome, StoreError>>;

/// A request to the thread that writes.
enum Request {
    Admit(NewJob),
    /// Gives names of files that no job has any more.
    Change(Change),
}

/// The outcome of a request.
enum Outcome {
    Admitted(Box<Admitted>),
    Changed(Vec<String>),
}

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The store. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    writes: Sender<(Request, Answer)>,
    looks: Sender<Look>,
    name: Arc<str>,
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
        let queued = Queued::of(&writer)?;
        let name: String = writer.query_row("SELECT name FROM queue", [], |row| row.get(0))?;
        let reader = connect(file)?;
        let (writes, written) = bounded(MAX_WAITING);
        let (looks, looked) = bounded::<Look>(MAX_WAITING);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(work);
            thread.map_err(|error| StoreError::Sqlite(error.to_string()))
        };
        let writer = spawn(
            "jobs",
            Box::new(move || write_all(writer, queued, limits, &written)),
        )?;
        let reads = spawn(
            "looks",
            Box::new(move || looked.iter().for_each(|look| look(&reader))),
        )?;
        let store = Self {
            writes,
            looks,
            name: name.into(),
        };
        Ok((store, Threads([writer, reads])))
    }

    /// The name of the queue. Another queue, whose ids begin again, has another name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stores a job, unless it is known or the queue is full. After the answer it is on the disk.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`. The job is not stored, except after `Closed`, where it may be.
    pub async fn admit(&self, job: NewJob) -> Result<Admitted, StoreError> {
        let (answer, answered) = oneshot::channel();
        send(&self.writes, (Request::Admit(job), answer))?;
        match answered.await {
            Ok(Ok(Outcome::Admitted(admitted))) => Ok(*admitted),
            Ok(Err(error)) => Err(error),
            Ok(Ok(Outcome::Changed(_))) | Err(_) => Err(StoreError::Closed),
        }
    }

    /// The job with this id.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn job(&self, id: i64) -> Result<Option<Job>, StoreError> {
        self.look(move |connection| {
            let sql = format!("SELECT {COLUMNS} FROM job WHERE id = ?1");
            Ok(connection.query_row(&sql, [id], job_of).optional()?)
        })
        .await
    }

    /// At most `limit` jobs after the job `after`, in their order: of one pipeline, or of all.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn jobs(
        &self,
        pipeline: Option<String>,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Job>, StoreError> {
        self.look(move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM job WHERE id > ?1 AND (?2 IS NULL OR pipeline = ?2) ORDER BY id LIMIT ?3"
            );
            let mut statement = connection.prepare(&sql)?;
            let jobs = statement.query_map(params![after, pipeline, limit], job_of)?;
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
            let mut statement =
                connection.prepare("SELECT spooled FROM job WHERE spooled IS NOT NULL")?;
            let names = statement.query_map([], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The oldest jobs of a stream that are not done, all of one format: at most `jobs`, and no more after `bytes`. For a
    /// thread of its own.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn pending(
        &self,
        pipeline: &str,
        stream: &str,
        jobs: u32,
        bytes: u64,
    ) -> Result<Vec<Pending>, StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        let looked = self.look_later(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, format, encoding, bytes, body, spooled FROM job \
                 WHERE pipeline = ?1 AND stream = ?2 AND state = 'pending' ORDER BY id LIMIT ?3",
            )?;
            let mut rows = statement.query(params![pipeline, stream, jobs])?;
            let (mut found, mut sum): (Vec<Pending>, u64) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let job = pending_of(row)?;
                let is_other = found
                    .first()
                    .is_some_and(|first| first.format != job.format);
                if is_other || sum >= bytes {
                    break;
                }
                sum = sum.saturating_add(job.bytes);
                found.push(job);
            }
            Ok(found)
        })?;
        looked.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    /// All streams that have jobs which are not done.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn waiting(&self) -> Result<Vec<(String, String)>, StoreError> {
        let looked = self.look_later(|connection| {
            let mut statement = connection
                .prepare("SELECT DISTINCT pipeline, stream FROM job WHERE state = 'pending'")?;
            let streams = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(streams.collect::<Result<_, _>>()?)
        })?;
        looked.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }

    /// The jobs of a stream up to this one are done, except those that are dead.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn done_through(&self, pipeline: &str, stream: &str, last: i64) -> Result<(), StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        self.change(move |transaction, queued| {
            let these = "pipeline = ?1 AND stream = ?2 AND id <= ?3 AND state = 'pending'";
            let sql = format!("SELECT count(*), coalesce(sum(bytes), 0) FROM job WHERE {these}");
            let mut statement = transaction.prepare_cached(&sql)?;
            let ended = statement.query_row(params![pipeline, stream, last], Queued::of_row)?;
            let sql = format!("UPDATE job SET state = 'done', ended = ?4 WHERE {these}");
            let mut statement = transaction.prepare_cached(&sql)?;
            statement.execute(params![pipeline, stream, last, now_ms()])?;
            *queued = queued.without(ended);
            Ok(Vec::new())
        })?;
        Ok(())
    }

    /// A job is dead. `reason` says why.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn dead(&self, id: i64, reason: &Value) -> Result<(), StoreError> {
        let reason = reason.to_string();
        self.change(move |transaction, queued| {
            let these = "id = ?1 AND state = 'pending'";
            let sql = format!("SELECT count(*), coalesce(sum(bytes), 0) FROM job WHERE {these}");
            let ended = transaction.query_row(&sql, [id], Queued::of_row)?;
            let sql =
                format!("UPDATE job SET state = 'dead', reason = ?2, ended = ?3 WHERE {these}");
            transaction.execute(&sql, params![id, reason, now_ms()])?;
            *queued = queued.without(ended);
            Ok(Vec::new())
        })?;
        Ok(())
    }

    /// Takes the bodies of jobs out that have been done for this long. Returns the names of their files, which no job has
    /// any more.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn forget_bodies(&self, done_for: Duration) -> Result<Vec<String>, StoreError> {
        /// Rows of one commit.
        const MAX_ROWS: u32 = 10_000;
        let age = i64::try_from(done_for.as_millis()).unwrap_or(i64::MAX);
        let before = now_ms().saturating_sub(age);
        self.change(move |transaction, _| {
            let old = "SELECT id FROM job WHERE state = 'done' AND ended <= ?1 \
                       AND (body IS NOT NULL OR spooled IS NOT NULL) ORDER BY ended LIMIT ?2";
            let sql =
                format!("SELECT spooled FROM job WHERE spooled IS NOT NULL AND id IN ({old})");
            let mut statement = transaction.prepare_cached(&sql)?;
            let names = statement.query_map(params![before, MAX_ROWS], |row| row.get(0))?;
            let names = names.collect::<Result<_, _>>()?;
            let sql = format!("UPDATE job SET body = NULL, spooled = NULL WHERE id IN ({old})");
            let mut statement = transaction.prepare_cached(&sql)?;
            statement.execute(params![before, MAX_ROWS])?;
            Ok(names)
        })
    }

    /// Changes jobs, and waits until the change is on the disk.
    fn change(
        &self,
        change: impl FnOnce(&Transaction<'_>, &mut Queued) -> Result<Vec<String>, StoreError>
        + Send
        + 'static,
    ) -> Result<Vec<String>, StoreError> {
        let (answer, answered) = oneshot::channel();
        send(&self.writes, (Request::Change(Box::new(change)), answer))?;
        match answered.blocking_recv() {
            Ok(Ok(Outcome::Changed(names))) => Ok(names),
            Ok(Err(error)) => Err(error),
            Ok(Ok(Outcome::Admitted(_))) | Err(_) => Err(StoreError::Closed),
        }
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let looked = self.look_later(look)?;
        looked.await.unwrap_or(Err(StoreError::Closed))
    }

    fn look_later<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, StoreError>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let look: Look = Box::new(move |connection| {
            // Nobody listens if the client is gone.
            let _ = answer.send(look(connection));
        });
        send(&self.looks, look)?;
        Ok(answered)
    }
}

fn send<T>(to: &Sender<T>, request: T) -> Result<(), StoreError> {
    to.try_send(request).map_err(|error| match error {
        TrySendError::Full(_) => StoreError::Busy,
        TrySendError::Disconnected(_) => StoreError::Closed,
    })
}

fn connect(file: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A commit is on the disk when it returns.
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        VERSION => {}
        newer => return Err(StoreError::Version(newer)),
    }
    Ok(transaction.commit()?)
}

/// Jobs that are not done.
#[derive(Debug, Clone, Copy, Default)]
struct Queued {
    jobs: u64,
    bytes: u64,
}

impl Queued {
    fn of(connection: &Connection) -> Result<Self, StoreError> {
        let sql = "SELECT count(*), coalesce(sum(bytes), 0) FROM job WHERE state = 'pending'";
        Ok(connection.query_row(sql, [], Self::of_row)?)
    }

    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            jobs: row.get(0)?,
            bytes: row.get(1)?,
        })
    }

    fn without(self, ended: Self) -> Self {
        Self {
            jobs: self.jobs.saturating_sub(ended.jobs),
            bytes: self.bytes.saturating_sub(ended.bytes),
        }
    }

    /// With one more job, if that is within the limits.
    fn with(self, bytes: u64, limits: QueueLimits) -> Option<Self> {
        let more = Self {
            jobs: self.jobs + 1,
            bytes: self.bytes.saturating_add(bytes),
        };
        (more.jobs <= limits.jobs && more.bytes <= limits.bytes).then_some(more)
    }
}

/// Writes until the last store is dropped.
fn write_all(
    mut connection: Connection,
    mut queued: Queued,
    limits: QueueLimits,
    requests: &Receiver<(Request, Answer)>,
) {
    while let Ok(first) = requests.recv() {
        let more = requests.try_iter().take(MAX_GROUP - 1);
        let (group, answers): (Vec<Request>, Vec<Answer>) = [first].into_iter().chain(more).unzip();
        // Nobody listens if a client is gone.
        match write_group(&mut connection, queued, limits, group) {
            Ok((outcomes, now)) => {
                queued = now;
                for (answer, outcome) in answers.into_iter().zip(outcomes) {
                    let _ = answer.send(Ok(outcome));
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }
}

/// One commit: all of the requests, or none.
fn write_group(
    connection: &mut Connection,
    mut queued: Queued,
    limits: QueueLimits,
    group: Vec<Request>,
) -> Result<(Vec<Outcome>, Queued), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for request in group {
        outcomes.push(match request {
            Request::Admit(job) => {
                Outcome::Admitted(Box::new(admit(&transaction, &mut queued, limits, job)?))
            }
            Request::Change(change) => Outcome::Changed(change(&transaction, &mut queued)?),
        });
    }
    transaction.commit()?;
    Ok((outcomes, queued))
}

fn admit(
    transaction: &Transaction<'_>,
    queued: &mut Queued,
    limits: QueueLimits,
    job: NewJob,
) -> Result<Admitted, StoreError> {
    if let Some(key) = &job.key {
        let sql = format!(
            "SELECT {COLUMNS} FROM job WHERE pipeline = ?1 AND stream = ?2 AND idempotency_key = ?3"
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        let of_key = params![job.pipeline, job.stream, key];
        if let Some(known) = statement.query_row(of_key, job_of).optional()? {
            return Ok(match known.sha256 == hexadecimal(&job.sha256) {
                true => Admitted::Known(known),
                false => Admitted::KeyOfAnother(known),
            });
        }
    }
    if job.is_known_by_content {
        let sql = format!(
            "SELECT {COLUMNS} FROM job WHERE pipeline = ?1 AND stream = ?2 AND sha256 = ?3 ORDER BY id LIMIT 1"
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        let of_content = params![job.pipeline, job.stream, job.sha256];
        if let Some(known) = statement.query_row(of_content, job_of).optional()? {
            return Ok(Admitted::Known(known));
        }
    }
    let Some(more) = queued.with(job.bytes, limits) else {
        return Ok(Admitted::Full);
    };
    let received_ms = now_ms();
    let (body, spooled) = match &job.body {
        Body::Inline(bytes) => (Some(bytes), None),
        Body::Spooled(name) => (None, Some(name)),
    };
    transaction
        .prepare_cached(
            "INSERT INTO job (pipeline, stream, format, encoding, bytes, sha256, idempotency_key, state, received, body, spooled) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            job.pipeline,
            job.stream,
            job.format,
            job.encoding,
            job.bytes,
            job.sha256,
            job.key,
            JobState::Pending.name(),
            received_ms,
            body,
            spooled,
        ])?;
    *queued = more;
    Ok(Admitted::New(Job {
        id: transaction.last_insert_rowid(),
        pipeline: job.pipeline,
        stream: job.stream,
        format: job.format.to_owned(),
        encoding: job.encoding.map(str::to_owned),
        bytes: job.bytes,
        sha256: hexadecimal(&job.sha256),
        idempotency_key: job.key,
        state: JobState::Pending,
        reason: None,
        received_ms,
        ended_ms: None,
    }))
}

/// The columns of [`job_of`].
const COLUMNS: &str = "id, pipeline, stream, format, encoding, bytes, sha256, idempotency_key, state, received, reason, ended";

fn job_of(row: &Row<'_>) -> rusqlite::Result<Job> {
    let sha256: Vec<u8> = row.get(6)?;
    let state: String = row.get(8)?;
    let reason: Option<String> = row.get(10)?;
    let unknown = || rusqlite::Error::InvalidColumnName(format!("a job that is {state:?}"));
    Ok(Job {
        id: row.get(0)?,
        pipeline: row.get(1)?,
        stream: row.get(2)?,
        format: row.get(3)?,
        encoding: row.get(4)?,
        bytes: row.get(5)?,
        sha256: hexadecimal(&sha256),
        idempotency_key: row.get(7)?,
        state: JobState::of(&state).ok_or_else(unknown)?,
        received_ms: row.get(9)?,
        reason: reason.and_then(|reason| serde_json::from_str(&reason).ok()),
        ended_ms: row.get(11)?,
    })
}

fn pending_of(row: &Row<'_>) -> rusqlite::Result<Pending> {
    let spooled: Option<String> = row.get(5)?;
    Ok(Pending {
        id: row.get(0)?,
        format: row.get(1)?,
        encoding: row.get(2)?,
        bytes: row.get(3)?,
        body: match spooled {
            Some(name) => Body::Spooled(name),
            None => Body::Inline(row.get::<_, Option<Vec<u8>>>(4)?.unwrap_or_default()),
        },
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        jobs: 3,
        bytes: 100,
    };

    fn job(key: Option<&str>, body: &[u8]) -> NewJob {
        let sha256 = ring::digest::digest(&ring::digest::SHA256, body);
        NewJob {
            pipeline: "p".into(),
            stream: "s".into(),
            format: "jsonl",
            encoding: None,
            bytes: body.len() as u64,
            sha256: sha256.as_ref().try_into().expect("32 bytes"),
            key: key.map(str::to_owned),
            is_known_by_content: false,
            body: Body::Inline(body.to_vec()),
        }
    }

    fn block<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(work)
    }

    fn store_name(file: &Path) -> String {
        let (store, _) = Store::open(file, LIMITS).expect("a store");
        store.name().to_owned()
    }

    fn new(admitted: Admitted) -> Job {
        match admitted {
            Admitted::New(job) => job,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_job_is_admitted_once_by_its_key_or_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, threads) =
            Store::open(&folder.path().join("jobs.db"), LIMITS).expect("a store");
        block(async {
            let first = new(store.admit(job(Some("k"), b"a")).await.expect("an answer"));
            let again = store.admit(job(Some("k"), b"a")).await.expect("an answer");
            assert_eq!(again, Admitted::Known(first.clone()));
            let other = store.admit(job(Some("k"), b"b")).await.expect("an answer");
            assert_eq!(other, Admitted::KeyOfAnother(first.clone()));
            let elsewhere = NewJob {
                stream: "t".into(),
                ..job(Some("k"), b"b")
            };
            assert_eq!(
                new(store.admit(elsewhere).await.expect("an answer")).id,
                first.id + 1
            );
            let same = NewJob {
                is_known_by_content: true,
                ..job(None, b"a")
            };
            let known = store.admit(same).await.expect("an answer");
            assert_eq!(known, Admitted::Known(first.clone()));
            assert_eq!(store.job(first.id).await.expect("an answer"), Some(first));
            assert_eq!(store.job(77).await.expect("an answer"), None);
        });
        drop(store);
        threads.join();
    }

    #[test]
    fn a_full_queue_admits_no_job_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("jobs.db");
        let (store, threads) = Store::open(&file, LIMITS).expect("a store");
        block(async {
            new(store.admit(job(None, &[1; 60])).await.expect("an answer"));
            let large = store.admit(job(None, &[1; 41])).await.expect("an answer");
            assert_eq!(large, Admitted::Full);
            new(store.admit(job(None, &[1; 40])).await.expect("an answer"));
        });
        drop(store);
        threads.join();
        let name = store_name(&file);
        let (store, threads) = Store::open(&file, LIMITS).expect("a store");
        assert_eq!(store.name(), name);
        assert_ne!(name, store_name(&folder.path().join("other.db")));
        block(async {
            let more = store.admit(job(None, &[1])).await.expect("an answer");
            assert_eq!(more, Admitted::Full);
            new(store.admit(job(None, &[])).await.expect("an answer"));
            let fourth = store.admit(job(None, &[])).await.expect("an answer");
            assert_eq!(fourth, Admitted::Full);
            let ids = store.jobs(None, 0, 10).await.expect("jobs");
            assert_eq!(ids.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2, 3]);
            let page = store.jobs(Some("p".into()), 1, 1).await.expect("jobs");
            assert_eq!(page.iter().map(|job| job.id).collect::<Vec<_>>(), [2]);
            assert!(
                store
                    .jobs(Some("q".into()), 0, 9)
                    .await
                    .expect("jobs")
                    .is_empty()
            );
        });
        drop(store);
        threads.join();
    }

    #[test]
    fn the_store_of_a_newer_program_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("jobs.db");
        let connection = Connection::open(&file).expect("a file");
        connection
            .pragma_update(None, "user_version", 7)
            .expect("a version");
        let opened = Store::open(&file, LIMITS);
        assert!(matches!(opened, Err(StoreError::Version(7))));
    }
}
