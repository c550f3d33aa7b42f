//! The jobs of the queue, in SQLite. A job that was admitted survives the end of the process and of the machine.
//!
//! One thread writes. It takes all requests that wait, and commits them together with one `fsync`: a client waits for one
//! commit, however many clients there are.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;
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
    -- Milliseconds since 1970.
    received INTEGER NOT NULL,
    -- A small body. NULL: the body is the file `spooled`.
    body BLOB,
    spooled TEXT
) STRICT;
CREATE UNIQUE INDEX job_by_key ON job (pipeline, stream, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_by_content ON job (pipeline, stream, sha256);
CREATE INDEX job_pending ON job (pipeline, stream, id) WHERE state = 'pending';
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

/// What the queue holds at most.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Jobs that are not done.
    pub jobs: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// Where the body of a job is.
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
    /// How the body is compressed: `gzip` or `zstd`.
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
}

impl JobState {
    fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::Pending]
            .into_iter()
            .find(|state| state.name() == name)
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
    /// How the body is compressed.
    pub encoding: Option<String>,
    /// The size of the body as it was received.
    pub bytes: u64,
    /// The SHA-256 of the body as it was received, in hexadecimal.
    pub sha256: String,
    /// The client's name for the request.
    pub idempotency_key: Option<String>,
    /// Its state.
    pub state: JobState,
    /// When it was received, in milliseconds since 1970-01-01.
    pub received_ms: i64,
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

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;
type Admission = (NewJob, Answer<Admitted>);
type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The store. Clones are the same store.
#[derive(Clone)]
pub struct Store {
    admissions: Sender<Admission>,
    looks: Sender<Look>,
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
        let reader = connect(file)?;
        let (admissions, admitted) = bounded(MAX_WAITING);
        let (looks, looked) = bounded::<Look>(MAX_WAITING);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(work);
            thread.map_err(|error| StoreError::Sqlite(error.to_string()))
        };
        let writes = spawn(
            "jobs",
            Box::new(move || admit_all(writer, queued, limits, &admitted)),
        )?;
        let reads = spawn(
            "looks",
            Box::new(move || looked.iter().for_each(|look| look(&reader))),
        )?;
        Ok((Self { admissions, looks }, Threads([writes, reads])))
    }

    /// Stores a job, unless it is known or the queue is full. After the answer it is on the disk.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`. The job is not stored, except after `Closed`, where it may be.
    pub async fn admit(&self, job: NewJob) -> Result<Admitted, StoreError> {
        let (answer, answered) = oneshot::channel();
        send(&self.admissions, (job, answer))?;
        answered.await.unwrap_or(Err(StoreError::Closed))
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

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let look: Look = Box::new(move |connection| {
            // Nobody listens if the client is gone.
            let _ = answer.send(look(connection));
        });
        send(&self.looks, look)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
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
        let queued = connection.query_row(sql, [], |row| {
            Ok(Self {
                jobs: row.get(0)?,
                bytes: row.get(1)?,
            })
        });
        Ok(queued?)
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

/// Admits jobs until the last store is dropped.
fn admit_all(
    mut connection: Connection,
    mut queued: Queued,
    limits: QueueLimits,
    requests: &Receiver<Admission>,
) {
    while let Ok(first) = requests.recv() {
        let more = requests.try_iter().take(MAX_GROUP - 1);
        let (jobs, answers): (Vec<NewJob>, Vec<_>) = [first].into_iter().chain(more).unzip();
        match admit_group(&mut connection, queued, limits, jobs) {
            Ok((admitted, now)) => {
                queued = now;
                for (answer, admitted) in answers.into_iter().zip(admitted) {
                    let _ = answer.send(Ok(admitted));
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

/// One commit: all of the jobs, or none.
fn admit_group(
    connection: &mut Connection,
    mut queued: Queued,
    limits: QueueLimits,
    jobs: Vec<NewJob>,
) -> Result<(Vec<Admitted>, Queued), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut admitted = Vec::with_capacity(jobs.len());
    for job in jobs {
        admitted.push(admit(&transaction, &mut queued, limits, job)?);
    }
    transaction.commit()?;
    Ok((admitted, queued))
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
        received_ms,
    }))
}

/// The columns of [`job_of`].
const COLUMNS: &str =
    "id, pipeline, stream, format, encoding, bytes, sha256, idempotency_key, state, received";

fn job_of(row: &Row<'_>) -> rusqlite::Result<Job> {
    let sha256: Vec<u8> = row.get(6)?;
    let state: String = row.get(8)?;
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
        let (store, threads) = Store::open(&file, LIMITS).expect("a store");
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
