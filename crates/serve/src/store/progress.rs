//! The jobs of a stream on their way through its runs.

use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::Value;

use super::job::{Body, PENDING_COLUMNS, Pending, pending_of};
use super::{Store, StoreError, Tried, now_ms, token};

impl Store {
    /// The oldest pending jobs of a stream, all of one format: at most `jobs`, and no more after `bytes`, of which at most
    /// `inline` are in memory. With them the name of the queue, if a run has had all of them or was given them. For a thread
    /// of its own.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn pending(
        &self,
        (pipeline, stream): (&str, &str),
        jobs: u32,
        bytes: u64,
        inline: u64,
    ) -> Result<(Vec<Pending>, Option<String>), StoreError> {
        self.look_of_run(|connection| {
            // One moment for both: a job that a run was given can no longer be cancelled behind its back.
            let transaction = connection.unchecked_transaction()?;
            let mut statement = transaction.prepare_cached(&oldest())?;
            let mut rows = statement.query(params![pipeline, stream, jobs])?;
            let (mut found, mut sum, mut in_memory): (Vec<Pending>, u64, u64) = (Vec::new(), 0, 0);
            while let Some(row) = rows.next()? {
                let job = pending_of(row)?;
                let is_other = found
                    .first()
                    .is_some_and(|first| first.format != job.format);
                if is_other || sum >= bytes || in_memory >= inline {
                    break;
                }
                sum = sum.saturating_add(job.bytes);
                if matches!(job.body, Body::Inline(_)) {
                    in_memory += job.bytes;
                }
                found.push(job);
            }
            let sql =
                "SELECT queue FROM stream WHERE pipeline = ?1 AND stream = ?2 AND tried >= ?3";
            let queue = match found.last() {
                None => None,
                Some(last) => transaction
                    .prepare_cached(sql)?
                    .query_row(params![pipeline, stream, last.id], |row| row.get(0))
                    .optional()?,
            };
            Ok((found, queue))
        })
    }

    /// The progress of a stream, which is new if no run has had a job of it.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn tried(&self, pipeline: &str, stream: &str) -> Result<Tried, StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        self.change_now(move |transaction, _| {
            begin_stream(transaction, &pipeline, &stream)?;
            let sql = "SELECT queue, tried, seen, EXISTS (SELECT 1 FROM job WHERE job.pipeline = ?1 \
                       AND job.stream = ?2 AND state = 'pending' AND id <= tried) \
                       FROM stream WHERE pipeline = ?1 AND stream = ?2";
            let of_row = |row: &rusqlite::Row<'_>| {
                Ok(Tried {
                    queue: row.get(0)?,
                    tried: row.get(1)?,
                    seen: row.get(2)?,
                    is_in_doubt: row.get(3)?,
                })
            };
            Ok(transaction.query_row(sql, [&pipeline, &stream], of_row)?)
        })
    }

    /// The queue goes on from the cursor of another queue.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn saw(
        &self,
        pipeline: &str,
        stream: &str,
        cursor: Option<String>,
    ) -> Result<(), StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        self.change_now(move |transaction, _| {
            let sql = "UPDATE stream SET seen = ?3 WHERE pipeline = ?1 AND stream = ?2";
            transaction.execute(sql, params![pipeline, stream, cursor])?;
            Ok(())
        })
    }

    /// A run gets the jobs of a stream up to this one, which can no longer be cancelled. It must not begin before. Returns
    /// the number of these jobs that are pending, fewer than were read if one has been cancelled since, and the name of the queue.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn try_through(
        &self,
        pipeline: &str,
        stream: &str,
        last: i64,
    ) -> Result<(u64, String), StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        self.change_now(move |transaction, _| {
            let these = params![pipeline, stream, last];
            let sql =
                "UPDATE stream SET tried = max(tried, ?3) WHERE pipeline = ?1 AND stream = ?2";
            transaction.prepare_cached(sql)?.execute(these)?;
            let sql = "SELECT (SELECT count(*) FROM job \
                       WHERE pipeline = ?1 AND stream = ?2 AND id <= ?3 AND state = 'pending'), \
                       (SELECT queue FROM stream WHERE pipeline = ?1 AND stream = ?2)";
            let mut statement = transaction.prepare_cached(sql)?;
            Ok(statement.query_row(these, |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
    }

    /// The stream has a new name and no progress: all of its pending jobs are moved, whatever the destination has.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn rebind(&self, pipeline: &str, stream: &str) -> Result<(), StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        let changed = self.change(move |transaction, _| {
            let sql = "DELETE FROM stream WHERE pipeline = ?1 AND stream = ?2";
            transaction.execute(sql, [&pipeline, &stream])?;
            begin_stream(transaction, &pipeline, &stream)
        })?;
        changed.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The jobs of a stream up to this one are done, except those that are dead or cancelled. A power failure may undo it:
    /// the destination says it again.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn done_through(&self, pipeline: &str, stream: &str, last: i64) -> Result<(), StoreError> {
        self.done_with_rows(pipeline, stream, last, 0)
    }

    /// The same after a run that committed these rows, for which the tokens of the jobs have to wait.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn done_with_rows(
        &self,
        pipeline: &str,
        stream: &str,
        last: i64,
        rows: u64,
    ) -> Result<(), StoreError> {
        let (pipeline, stream) = (pipeline.to_owned(), stream.to_owned());
        self.note_now(move |transaction, held| {
            if rows > 0 {
                token::charge(transaction, (&pipeline, &stream), last, rows)?;
            }
            let these = "pipeline = ?1 AND stream = ?2 AND id <= ?3 AND state = 'pending'";
            let sql = format!("SELECT count(*), coalesce(sum(bytes), 0) FROM job WHERE {these}");
            let mut statement = transaction.prepare_cached(&sql)?;
            let (jobs, bytes) = statement.query_row(params![pipeline, stream, last], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            let sql = format!("UPDATE job SET state = 'done', ended = ?4 WHERE {these}");
            let mut statement = transaction.prepare_cached(&sql)?;
            statement.execute(params![pipeline, stream, last, now_ms()])?;
            held.end(jobs, bytes);
            Ok(())
        })
    }

    /// A job without rows is done, whatever the destination has. A power failure may undo it.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn done_alone(&self, id: i64) -> Result<(), StoreError> {
        self.note_now(move |transaction, held| {
            let sql = "UPDATE job SET state = 'done', ended = ?2 WHERE id = ?1 AND state = 'pending' RETURNING bytes";
            let mut statement = transaction.prepare_cached(sql)?;
            let bytes = statement.query_row(params![id, now_ms()], |row| row.get(0));
            if let Some(bytes) = bytes.optional()? {
                held.end(1, bytes);
            }
            Ok(())
        })
    }

    /// A job is dead. `reason` says why. Its body stays in the queue.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub fn dead(&self, id: i64, reason: &Value) -> Result<(), StoreError> {
        let reason = reason.to_string();
        self.change_now(move |transaction, held| {
            let sql = "UPDATE job SET state = 'dead', reason = ?2, ended = ?3 \
                       WHERE id = ?1 AND state = 'pending'";
            let changed = transaction.execute(sql, params![id, reason, now_ms()])?;
            held.jobs = held.jobs.saturating_sub(changed as u64);
            Ok(())
        })
    }
}

/// The oldest pending jobs of a stream. The index is named: SQLite would rather read all jobs in the order of their ids.
fn oldest() -> String {
    format!(
        "SELECT {PENDING_COLUMNS} FROM job INDEXED BY job_pending \
         WHERE pipeline = ?1 AND stream = ?2 AND state = 'pending' ORDER BY id LIMIT ?3"
    )
}

fn begin_stream(
    transaction: &Transaction<'_>,
    pipeline: &str,
    stream: &str,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO stream (pipeline, stream, queue, tried) \
               VALUES (?1, ?2, lower(hex(randomblob(8))), 0) ON CONFLICT DO NOTHING";
    transaction.execute(sql, [pipeline, stream])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::store::tables::{connect, prepare};

    #[test]
    fn a_run_does_not_read_the_jobs_that_are_done() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut connection = connect(&folder.path().join("jobs.db")).expect("a store");
        prepare(&mut connection).expect("tables");
        let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
                    INSERT INTO job (pipeline, stream, format, bytes, sha256, state, received, body) \
                    SELECT 'p', 's', 'jsonl', 1, x'00', iif(i < 2000, 'done', 'pending'), i, x'00' FROM n";
        connection.execute(many, []).expect("jobs");
        let mut statement = connection.prepare(&oldest()).expect("SQL");
        let mut rows = statement.query(params!["p", "s", 1000]).expect("rows");
        let mut found = 0;
        while rows.next().expect("a row").is_some() {
            found += 1;
        }
        drop(rows);
        let steps = statement.get_status(StatementStatus::VmStep);
        assert_eq!(found, 1);
        assert!((1..100).contains(&steps), "{steps}");
        // Nor is the question prepared for each stream.
        for stream in ["s", "t", "u"] {
            let mut rows = statement.query(params!["p", stream, 1000]).expect("rows");
            rows.next().expect("an answer");
        }
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }
}
