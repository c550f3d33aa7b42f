//! What the store forgets: bodies first, then jobs.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, params};

use super::job::JobState;
use super::operate::touched;
use super::writer::Held;
use super::{Store, StoreError, Touched, found, now_ms, token};

/// Rows of one commit, so that no client waits long behind it.
const MAX_ROWS: u32 = 500;

/// How long the store remembers.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The time for which the body of a job that is done or cancelled is kept, so that it can be replayed.
    pub bodies: Duration,
    /// Bytes of these bodies; beyond them the oldest go first.
    pub bytes: u64,
    /// The time for which a job that has ended is known, by its id, its key and its content. A dead job has its body as
    /// long.
    pub jobs: Duration,
    /// Jobs that are known; beyond them those that ended first go first.
    pub rows: u64,
}

/// What was forgotten.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// The names of files that no job has any more.
    pub files: Vec<String>,
    /// Jobs that are gone, or whose bodies are.
    pub jobs: u64,
    /// There is more to forget.
    pub has_more: bool,
}

impl Store {
    /// Forgets some of what is old. For a thread of its own.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn forget(&self, retention: Retention) -> Result<Forgotten, StoreError> {
        let forgotten = self.change_now(move |transaction, held| {
            let mut forgotten = Forgotten::default();
            forget_bodies(transaction, held, retention, &mut forgotten)?;
            forget_jobs(transaction, held, retention, &mut forgotten)?;
            token::forget(transaction)?;
            Ok(forgotten)
        })?;
        if forgotten.jobs > 0 {
            self.known.forget();
        }
        Ok(forgotten)
    }

    /// Forgets the body of a dead job, which then never moves. Returns the file that no job has any more.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn discard(&self, id: i64) -> Result<(Touched, Option<String>), StoreError> {
        let changed = self.change(move |transaction, held| {
            let job = match found(transaction, id)? {
                None => return Ok((Touched::Unknown, None)),
                Some(job) if job.state == JobState::Pending => {
                    return Ok((Touched::NotNow(job), None));
                }
                Some(job) if !job.has_body => return Ok((Touched::NoBody(job), None)),
                Some(job) => job,
            };
            let file = forget_body(transaction, id)?;
            give_back(held, job.state == JobState::Dead, job.bytes);
            Ok((touched(transaction, id)?, file))
        })?;
        let changed = changed.await.unwrap_or(Err(StoreError::Closed));
        self.known.forget();
        changed
    }
}

fn give_back(held: &mut Held, is_dead: bool, bytes: u64) {
    let of = match is_dead {
        true => &mut held.bytes,
        false => &mut held.kept_bytes,
    };
    *of = of.saturating_sub(bytes);
}

fn forget_bodies(
    transaction: &Transaction<'_>,
    held: &mut Held,
    retention: Retention,
    forgotten: &mut Forgotten,
) -> Result<(), StoreError> {
    let before = before(retention.bodies);
    let sql = "SELECT id, bytes, ended FROM job WHERE state IN ('done', 'cancelled') \
               AND (body IS NOT NULL OR spooled IS NOT NULL) ORDER BY ended LIMIT ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    let oldest = statement.query_map([MAX_ROWS], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let oldest: Vec<(i64, u64, i64)> = oldest.collect::<Result<_, _>>()?;
    let count = oldest.len();
    for (id, bytes, ended) in oldest {
        if ended > before && held.kept_bytes <= retention.bytes {
            return Ok(());
        }
        forgotten.files.extend(forget_body(transaction, id)?);
        forgotten.jobs += 1;
        give_back(held, false, bytes);
    }
    forgotten.has_more |= count == MAX_ROWS as usize;
    Ok(())
}

fn forget_jobs(
    transaction: &Transaction<'_>,
    held: &mut Held,
    retention: Retention,
    forgotten: &mut Forgotten,
) -> Result<(), StoreError> {
    let before = before(retention.jobs);
    let sql = "SELECT id, bytes, ended, state, body IS NOT NULL OR spooled IS NOT NULL FROM job \
               WHERE ended IS NOT NULL ORDER BY ended LIMIT ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    let oldest = statement.query_map([MAX_ROWS], |row| {
        Ok((
            row.get(0)?,
            row.get(1)?,
            row.get(2)?,
            row.get::<_, String>(3)? == JobState::Dead.name(),
            row.get(4)?,
        ))
    })?;
    let oldest: Vec<(i64, u64, i64, bool, bool)> = oldest.collect::<Result<_, _>>()?;
    let count = oldest.len();
    for (id, bytes, ended, is_dead, has_body) in oldest {
        if ended > before && held.rows <= retention.rows {
            return Ok(());
        }
        forgotten.files.extend(forget_body(transaction, id)?);
        forgotten.jobs += 1;
        if has_body {
            give_back(held, is_dead, bytes);
        }
        let mut statement = transaction.prepare_cached("DELETE FROM job WHERE id = ?1")?;
        statement.execute([id])?;
        held.rows = held.rows.saturating_sub(1);
    }
    forgotten.has_more |= count == MAX_ROWS as usize;
    Ok(())
}

/// Returns the file of the job, if no other job has it.
fn forget_body(transaction: &Transaction<'_>, id: i64) -> Result<Option<String>, StoreError> {
    let mut statement = transaction.prepare_cached("SELECT spooled FROM job WHERE id = ?1")?;
    let file: Option<String> = statement.query_row([id], |row| row.get(0))?;
    let sql = "UPDATE job SET body = NULL, spooled = NULL WHERE id = ?1";
    transaction.prepare_cached(sql)?.execute([id])?;
    let Some(file) = file else {
        return Ok(None);
    };
    let mut statement =
        transaction.prepare_cached("SELECT 1 FROM job WHERE spooled = ?1 LIMIT 1")?;
    let shared: Option<i64> = statement
        .query_row(params![file], |row| row.get(0))
        .optional()?;
    Ok(shared.is_none().then_some(file))
}

fn before(age: Duration) -> i64 {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    now_ms().saturating_sub(age)
}
