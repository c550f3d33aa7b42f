//! What an operator does with a job: cancel and replay.

use rusqlite::{Transaction, params};

use super::job::{Job, JobState};
use super::writer::Held;
use super::{Store, StoreError, Touched, found, now_ms};

impl Store {
    /// Cancels a job that no run has had.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn cancel(&self, id: i64) -> Result<Touched, StoreError> {
        let changed = self.change(move |transaction, held| {
            let Some(job) = found(transaction, id)? else {
                return Ok(Touched::Unknown);
            };
            let sql = "SELECT coalesce((SELECT tried FROM stream WHERE pipeline = ?1 AND stream = ?2), 0)";
            let tried: i64 =
                transaction.query_row(sql, [&job.pipeline, &job.stream], |row| row.get(0))?;
            match job.state == JobState::Pending && id <= tried {
                true => Ok(Touched::Running(job)),
                false => cancel(transaction, held, job),
            }
        })?;
        changed.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Cancels a job that a run has had, after the destination has said that it does not have the rows.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn cancel_fenced(&self, id: i64) -> Result<Touched, StoreError> {
        self.change_now(move |transaction, held| match found(transaction, id)? {
            Some(job) => cancel(transaction, held, job),
            None => Ok(Touched::Unknown),
        })
    }

    /// Makes a new job with the body of one that has ended.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn replay(&self, id: i64) -> Result<Touched, StoreError> {
        let limits = self.limits;
        let changed = self.change(move |transaction, held| {
            let Some(job) = found(transaction, id)? else {
                return Ok(Touched::Unknown);
            };
            if job.state == JobState::Pending {
                return Ok(Touched::NotNow(job));
            }
            if !job.has_body {
                return Ok(Touched::NoBody(job));
            }
            let Some(more) = held.with(job.bytes, limits) else {
                return Ok(Touched::Full);
            };
            let sql = "INSERT INTO job (pipeline, stream, format, encoding, bytes, sha256, replay_of, state, received, body, spooled) \
                       SELECT pipeline, stream, format, encoding, bytes, sha256, id, 'pending', ?2, body, spooled \
                       FROM job WHERE id = ?1";
            transaction.execute(sql, params![id, now_ms()])?;
            *held = more;
            touched(transaction, transaction.last_insert_rowid())
        })?;
        changed.await.unwrap_or(Err(StoreError::Closed))
    }
}

pub(super) fn touched(transaction: &Transaction<'_>, id: i64) -> Result<Touched, StoreError> {
    Ok(found(transaction, id)?.map_or(Touched::Unknown, Touched::Done))
}

fn cancel(transaction: &Transaction<'_>, held: &mut Held, job: Job) -> Result<Touched, StoreError> {
    if job.state != JobState::Pending {
        return Ok(Touched::NotNow(job));
    }
    let sql = "UPDATE job SET state = 'cancelled', ended = ?2 WHERE id = ?1";
    transaction.execute(sql, params![job.id, now_ms()])?;
    held.end(1, job.bytes);
    touched(transaction, job.id)
}
