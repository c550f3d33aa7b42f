//! How a body becomes a job, once.

use rusqlite::{OptionalExtension, Transaction, params};

use super::job::{Body, COLUMNS, Job, JobState, NewJob, hexadecimal, job_of};
use super::writer::Held;
use super::{QueueLimits, StoreError, now_ms};

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

/// Stores a job, unless it is known or the queue is full.
pub fn admit(
    transaction: &Transaction<'_>,
    held: &mut Held,
    limits: QueueLimits,
    job: NewJob,
) -> Result<Admitted, StoreError> {
    if let Some(known) = by_key(transaction, &job)? {
        let is_same = known.sha256 == hexadecimal(&job.sha256)
            && known.format == job.format
            && known.encoding.as_deref() == job.encoding;
        return Ok(match is_same {
            true => Admitted::Known(known),
            false => Admitted::KeyOfAnother(known),
        });
    }
    if let Some(known) = by_content(transaction, &job)? {
        return Ok(Admitted::Known(known));
    }
    let Some(more) = held.with(job.bytes, limits) else {
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
    *held = more;
    Ok(Admitted::New(Job {
        id: transaction.last_insert_rowid(),
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
fn by_content(transaction: &Transaction<'_>, job: &NewJob) -> Result<Option<Job>, StoreError> {
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
