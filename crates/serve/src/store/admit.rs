//! How a body becomes a job, once.

use rusqlite::{OptionalExtension, Transaction, params};

use super::job::{Body, COLUMNS, Job, JobState, NewJob, hexadecimal, job_of};
use super::token::{self, Spent};
use super::writer::Held;
use super::{QueueLimits, StoreError, now_ms};

/// A job that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// It is stored.
    New(Job),
    /// The same request, or the same content, is this job.
    Known(Job),
}

impl Admitted {
    /// The job.
    pub fn job(&self) -> &Job {
        match self {
            Self::New(job) | Self::Known(job) => job,
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

/// Stores the jobs of one request, except those that are known. If one is refused, none is stored.
pub fn admit_all(
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
            true => Ok(Admitted::Known(known)),
            false => Err(Refused::KeyOfAnother(Box::new(known))),
        });
    }
    if let Some(known) = by_content(transaction, &job)? {
        return Ok(Ok(Admitted::Known(known)));
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
        Body::Inline(bytes) => (Some(bytes), None),
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
    Ok(Ok(Admitted::New(Job {
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
    })))
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
