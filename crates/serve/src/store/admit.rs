//! How a body becomes a job, once.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};

use super::job::{Body, COLUMNS, Job, JobState, NewJob, Pending, hexadecimal, job_of};
use super::token::{self, Spent};
use super::writer::Held;
use super::{QueueLimits, StoreError, now_ms};

/// A job that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It is stored.
    New(Arc<Job>),
    /// The same request, or the same content, is this job.
    Known(Arc<Job>),
}

impl Admitted {
    /// The job.
    pub fn job(&self) -> &Job {
        match self {
            Self::New(job) | Self::Known(job) => job,
        }
    }

    /// The job, for a change of it.
    pub fn into_job(self) -> Job {
        match self {
            Self::New(job) | Self::Known(job) => Arc::unwrap_or_clone(job),
        }
    }
}

/// Why a job was not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// This job has the key of the request and another body.
    KeyOfAnother(Box<Job>),
    /// The queue has as many jobs or bytes as it may have.
    Full,
    /// The token has used up a limit.
    Spent(Spent),
}

/// All jobs of a request in their order, or the place of the first that was refused, from 0.
pub type Outcome = Result<Vec<Admitted>, (usize, Refused)>;

/// A request whose jobs are in a transaction that is not committed yet.
pub struct Made {
    /// Its outcome once that is committed.
    pub outcome: Outcome,
    /// Its only job, if a run waits for it and no job of its stream is pending before it.
    pub next: Option<Next>,
}

/// A job that a run may have before its transaction is committed.
pub struct Next {
    /// The pipeline.
    pub pipeline: String,
    /// The stream of the pipeline.
    pub stream: String,
    /// The job.
    pub job: Pending,
    /// The name of the queue of the run.
    pub queue: String,
}

/// Stores the jobs of one request, except those that are known. If one is refused, none is stored.
pub fn admit_all(
    transaction: &Transaction<'_>,
    held: &mut Held,
    limits: QueueLimits,
    jobs: Vec<NewJob>,
) -> Result<Made, StoreError> {
    let next = match jobs.as_slice() {
        [job] => job.expected_by.clone().map(|queue| (queue, job.clone())),
        _ => None,
    };
    let outcome = admit_each(transaction, held, limits, jobs)?;
    let next = match (next, &outcome) {
        (Some((queue, new)), Ok(all)) => next_of(transaction, queue, new, all)?,
        _ => None,
    };
    Ok(Made { outcome, next })
}

fn admit_each(
    transaction: &Transaction<'_>,
    held: &mut Held,
    limits: QueueLimits,
    jobs: Vec<NewJob>,
) -> Result<Outcome, StoreError> {
    // Other requests are in the transaction, too. A job that is refused alone has changed nothing.
    let is_alone = jobs.len() == 1;
    let begun = *held;
    if !is_alone {
        transaction.execute_batch("SAVEPOINT request")?;
    }
    let mut all = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.into_iter().enumerate() {
        match admit(transaction, held, limits, job)? {
            Ok(admitted) => all.push(admitted),
            Err(refused) => {
                if !is_alone {
                    transaction.execute_batch("ROLLBACK TO request; RELEASE request")?;
                }
                *held = begun;
                return Ok(Err((at, refused)));
            }
        }
    }
    if !is_alone {
        transaction.execute_batch("RELEASE request")?;
    }
    Ok(Ok(all))
}

/// Stores a job, unless it is known or the queue is full.
fn admit(
    transaction: &Transaction<'_>,
    held: &mut Held,
    limits: QueueLimits,
    job: NewJob,
) -> Result<Result<Admitted, Refused>, StoreError> {
    if let Some(known) = by_key(transaction, &job)? {
        let is_same = known.sha256 == hexadecimal(&job.sha256)
            && known.format == job.format
            && known.encoding.as_deref() == job.encoding;
        return Ok(match is_same {
            true => Ok(Admitted::Known(Arc::new(known))),
            false => Err(Refused::KeyOfAnother(Box::new(known))),
        });
    }
    if let Some(known) = by_content(transaction, &job)? {
        return Ok(Ok(Admitted::Known(Arc::new(known))));
    }
    if let Some(token) = &job.token
        && let Some(spent) = token::spent(transaction, token)?
    {
        return Ok(Err(Refused::Spent(spent)));
    }
    let Some(more) = held.with(job.bytes, limits) else {
        return Ok(Err(Refused::Full));
    };
    if let Some(token) = &job.token {
        token::remember(transaction, token)?;
    }
    let received_ms = now_ms();
    let (body, spooled) = match &job.body {
        Body::Inline(bytes) => (Some(&**bytes), None),
        Body::Spooled(name) => (None, Some(name)),
    };
    transaction
        .prepare_cached(
            "INSERT INTO job (pipeline, stream, format, encoding, bytes, sha256, idempotency_key, state, received, body, spooled, token) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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
            job.token.as_ref().map(|token| &token.id),
        ])?;
    *held = more;
    let id = transaction.last_insert_rowid();
    if let Some(queue) = &job.expected_by {
        // A stream that was bound anew has another name, and its run has nothing.
        let sql = "UPDATE stream SET tried = max(tried, ?4) WHERE pipeline = ?1 AND stream = ?2 AND queue = ?3";
        let mut statement = transaction.prepare_cached(sql)?;
        statement.execute(params![job.pipeline, job.stream, queue, id])?;
    }
    let job = Job {
        id,
        pipeline: job.pipeline,
        stream: job.stream,
        format: job.format.to_owned(),
        encoding: job.encoding.map(str::to_owned),
        bytes: job.bytes,
        sha256: hexadecimal(&job.sha256),
        idempotency_key: job.key,
        replay_of: None,
        state: JobState::Pending,
        reason: None,
        has_body: true,
        received_ms,
        ended_ms: None,
    };
    Ok(Ok(Admitted::New(Arc::new(job))))
}

/// The job of a request whose run waits for it. `None` if the run is of a queue of before, or other jobs are before it.
fn next_of(
    transaction: &Transaction<'_>,
    queue: String,
    new: NewJob,
    all: &[Admitted],
) -> Result<Option<Next>, StoreError> {
    let ([Admitted::New(job)], Body::Inline(_)) = (all, &new.body) else {
        return Ok(None);
    };
    let sql = "SELECT 1 FROM stream WHERE pipeline = ?1 AND stream = ?2 AND queue = ?3 AND tried = ?4 AND NOT EXISTS \
               (SELECT 1 FROM job INDEXED BY job_pending WHERE job.pipeline = ?1 AND job.stream = ?2 \
               AND state = 'pending' AND id < ?4)";
    let mut statement = transaction.prepare_cached(sql)?;
    if !statement.exists(params![new.pipeline, new.stream, queue, job.id])? {
        return Ok(None);
    }
    let job = Pending {
        id: job.id,
        format: new.format.to_owned(),
        encoding: new.encoding.map(str::to_owned),
        bytes: new.bytes,
        sha256: new.sha256.to_vec(),
        body: new.body,
    };
    Ok(Some(Next {
        pipeline: new.pipeline,
        stream: new.stream,
        job,
        queue,
    }))
}

fn by_key(transaction: &Transaction<'_>, job: &NewJob) -> Result<Option<Job>, StoreError> {
    let Some(key) = &job.key else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM job WHERE pipeline = ?1 AND stream = ?2 AND idempotency_key = ?3"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let of_key = params![job.pipeline, job.stream, key];
    Ok(statement.query_row(of_key, job_of).optional()?)
}

/// A job that moves, or has moved, these bytes as this format. A dead job moves nothing.
pub(super) fn by_content(
    transaction: &Transaction<'_>,
    job: &NewJob,
) -> Result<Option<Job>, StoreError> {
    if !job.is_known_by_content {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM job WHERE pipeline = ?1 AND stream = ?2 AND sha256 = ?3 AND format = ?4 \
         AND encoding IS ?5 AND state IN ('pending', 'done') ORDER BY id LIMIT 1"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let of_content = params![
        job.pipeline,
        job.stream,
        job.sha256,
        job.format,
        job.encoding
    ];
    Ok(statement.query_row(of_content, job_of).optional()?)
}
