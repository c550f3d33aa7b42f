//! What tokens have used of their limits: pending jobs, and rows. Triggers of the tables count the pending jobs, so that
//! every change of a job counts, and a transaction that fails counts nothing.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{Store, StoreError, now_ms};

/// The limits of a token which the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLimits {
    /// The id of the token.
    pub id: String,
    /// Pending jobs of the token at most.
    pub open_jobs: Option<u64>,
    /// Rows a second that its jobs may bring.
    pub rows_per_second: Option<u64>,
}

/// Why a token gets no more jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// It has as many pending jobs as it may have: this many.
    OpenJobs(u64),
    /// Its rows are used up for this many seconds, 1 or more.
    Rows(u64),
}

impl Store {
    /// Why the token gets no job now, if it gets none. The answer may be another one when the job is admitted.
    ///
    /// # Errors
    /// `Sqlite`, `Busy` and `Closed`.
    pub async fn spent(&self, limits: TokenLimits) -> Result<Option<Spent>, StoreError> {
        self.look(move |connection| spent(connection, &limits))
            .await
    }
}

/// The same, as it is in this transaction.
pub fn spent(connection: &Connection, limits: &TokenLimits) -> Result<Option<Spent>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT pending, paid FROM token WHERE id = ?1")?;
    let used = statement.query_row([&limits.id], |row| Ok((row.get(0)?, row.get(1)?)));
    let (pending, paid): (u64, i64) = used.optional()?.unwrap_or((0, 0));
    if let Some(open_jobs) = limits.open_jobs.filter(|open_jobs| pending >= *open_jobs) {
        return Ok(Some(Spent::OpenJobs(open_jobs)));
    }
    let wait_ms = paid.saturating_sub(now_ms());
    let is_spent = limits.rows_per_second.is_some() && wait_ms > 0;
    Ok(is_spent.then(|| Spent::Rows(wait_ms.unsigned_abs().div_ceil(1000))))
}

/// A job of the token is about to be stored.
pub fn remember(transaction: &Transaction<'_>, limits: &TokenLimits) -> Result<(), StoreError> {
    let sql = "INSERT INTO token (id, pending, rows_per_second, paid) VALUES (?1, 0, ?2, 0) \
               ON CONFLICT (id) DO UPDATE SET rows_per_second = ?2";
    let mut statement = transaction.prepare_cached(sql)?;
    statement.execute(params![limits.id, limits.rows_per_second])?;
    Ok(())
}

/// The pending jobs of a stream up to `last` have brought `rows` together. Each token waits for its share of them, which
/// goes by the bytes of its jobs: nobody knows the rows of one job.
pub fn charge(
    transaction: &Transaction<'_>,
    (pipeline, stream): (&str, &str),
    last: i64,
    rows: u64,
) -> Result<(), StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM token WHERE rows_per_second IS NOT NULL)";
    let is_limited: bool = transaction
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    if !is_limited {
        return Ok(());
    }
    let these = "pipeline = ?1 AND stream = ?2 AND job.id <= ?3 AND state = 'pending'";
    let sql = format!(
        "SELECT token.id, rows_per_second, sum(job.bytes) FROM job JOIN token ON token.id = job.token \
         WHERE {these} AND rows_per_second IS NOT NULL GROUP BY token.id"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let of_row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let shares = statement.query_map(params![pipeline, stream, last], of_row)?;
    let shares: Vec<(String, u64, u64)> = shares.collect::<Result<_, _>>()?;
    if shares.is_empty() {
        return Ok(());
    }
    let sql = format!("SELECT sum(bytes) FROM job WHERE {these}");
    let mut statement = transaction.prepare_cached(&sql)?;
    let all: u64 = statement.query_row(params![pipeline, stream, last], |row| row.get(0))?;
    let mut statement =
        transaction.prepare_cached("UPDATE token SET paid = max(paid, ?2) + ?3 WHERE id = ?1")?;
    for (id, rows_per_second, bytes) in shares {
        let ms = u128::from(rows) * u128::from(bytes) * 1000
            / u128::from(all.max(1))
            / u128::from(rows_per_second.max(1));
        // The sum stays a number of the store, whatever the clock says.
        let ms = i64::try_from(ms).unwrap_or(i64::MAX).min(i64::MAX / 4);
        statement.execute(params![id, now_ms(), ms])?;
    }
    Ok(())
}

/// Forgets tokens that have used nothing.
pub fn forget(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    let mut statement =
        transaction.prepare_cached("DELETE FROM token WHERE pending = 0 AND paid <= ?1")?;
    statement.execute([now_ms()])?;
    Ok(())
}
