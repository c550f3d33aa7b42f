//! The thread that writes. It takes all requests that wait, and commits them together with one `fsync`: a client waits
//! for one commit, however many clients there are.
//!
//! A change that the destination knows, too, is not worth an `fsync`: after a power failure the server asks it again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::tables::LOG_PAGES;
use super::{QueueLimits, StoreError};
use crate::spool::free_bytes;

/// Requests that are committed together.
const MAX_GROUP: usize = 1024;
/// With less room on the disk, each commit brings the log into the file of the store: it does not grow until the disk is full.
const MIN_FREE: u64 = 2 * LOG_PAGES as u64 * 4096;
/// Without other changes for so long, those that did not wait for the disk are brought to it.
const IDLE: Duration = Duration::from_secs(1);
/// Brings the log into the file of the store, as far as no reader needs it.
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// When a change is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// When it is on the disk.
    Disk,
    /// When other connections see it: it outlives the process. A power failure may undo the last ones, never one of them
    /// without those after it.
    System,
}

/// A change of the store, and who waits for it.
pub trait Change: Send {
    /// Makes it in a transaction, which may still fail.
    ///
    /// # Errors
    /// `Sqlite`: nothing of the transaction is stored.
    fn make(&mut self, transaction: &Transaction<'_>, held: &mut Held) -> Result<(), StoreError>;

    /// All changes of the transaction are made, and it is about to be committed.
    fn made(&mut self);

    /// When it is answered.
    fn sync(&self) -> Sync;

    /// Answers after the commit.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// A change that gives a value.
pub struct Valued<F, T, B, A> {
    work: Option<F>,
    sync: Sync,
    value: Option<T>,
    before: Option<B>,
    after: A,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T, B, A> Valued<F, T, B, A> {
    /// The change, and its answer. The thread that writes calls `before` with the value when the change is about to be
    /// committed, and `after` when it is. After an error it drops `after`.
    pub fn new(
        work: F,
        sync: Sync,
        (before, after): (B, A),
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, answered) = oneshot::channel();
        let change = Self {
            work: Some(work),
            sync,
            value: None,
            before: Some(before),
            after,
            answer,
        };
        (change, answered)
    }
}

impl<F, T, B, A> Change for Valued<F, T, B, A>
where
    F: FnOnce(&Transaction<'_>, &mut Held) -> Result<T, StoreError> + Send,
    T: Send,
    B: FnOnce(&mut T) + Send,
    A: FnOnce(&T) + Send,
{
    fn make(&mut self, transaction: &Transaction<'_>, held: &mut Held) -> Result<(), StoreError> {
        if let Some(work) = self.work.take() {
            self.value = Some(work(transaction, held)?);
        }
        Ok(())
    }

    fn made(&mut self) {
        if let (Some(before), Some(value)) = (self.before.take(), &mut self.value) {
            before(value);
        }
    }

    fn sync(&self) -> Sync {
        self.sync
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (committed, self.value) {
            (Ok(()), Some(value)) => {
                (self.after)(&value);
                Ok(value)
            }
            (Ok(()), None) => Err(StoreError::Closed),
            (Err(error), _) => Err(error),
        };
        // Nobody listens if the client is gone.
        let _ = self.answer.send(answer);
    }
}

/// The contents of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Jobs that are pending.
    pub jobs: u64,
    /// Bytes of the bodies of jobs that are pending or dead.
    pub bytes: u64,
    /// Bytes of the bodies of jobs that are done or cancelled.
    pub kept_bytes: u64,
    /// All jobs.
    pub rows: u64,
}

impl Held {
    /// Counts, each by an index: a store may have millions of jobs.
    pub fn of(connection: &Connection) -> Result<Self, StoreError> {
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u64>(0));
        let pending = one("SELECT coalesce(sum(bytes), 0) FROM job WHERE state = 'pending'")?;
        let dead = one(
            "SELECT coalesce(sum(bytes), 0) FROM job WHERE state = 'dead' \
                        AND (body IS NOT NULL OR spooled IS NOT NULL)",
        )?;
        Ok(Self {
            jobs: one("SELECT count(*) FROM job WHERE state = 'pending'")?,
            bytes: pending.saturating_add(dead),
            kept_bytes: one(
                "SELECT coalesce(sum(bytes), 0) FROM job WHERE state IN ('done', 'cancelled') \
                 AND (body IS NOT NULL OR spooled IS NOT NULL)",
            )?,
            rows: one("SELECT count(*) FROM job")?,
        })
    }

    /// With one more pending job, if that is within the limits.
    pub fn with(self, bytes: u64, limits: QueueLimits) -> Option<Self> {
        let more = Self {
            jobs: self.jobs + 1,
            bytes: self.bytes.saturating_add(bytes),
            rows: self.rows + 1,
            ..self
        };
        (more.jobs <= limits.jobs && more.bytes <= limits.bytes).then_some(more)
    }

    /// Pending jobs have ended; their bodies stay.
    pub fn end(&mut self, jobs: u64, bytes: u64) {
        self.jobs = self.jobs.saturating_sub(jobs);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
    }
}

/// The counts of the last commit, for readers on other threads.
#[derive(Debug, Default)]
pub struct Counts {
    jobs: AtomicU64,
    bytes: AtomicU64,
    kept_bytes: AtomicU64,
    rows: AtomicU64,
}

impl Counts {
    /// Tells other threads.
    pub fn set(&self, held: Held) {
        self.jobs.store(held.jobs, Ordering::Relaxed);
        self.bytes.store(held.bytes, Ordering::Relaxed);
        self.kept_bytes.store(held.kept_bytes, Ordering::Relaxed);
        self.rows.store(held.rows, Ordering::Relaxed);
    }

    /// The counts.
    pub fn get(&self) -> Held {
        Held {
            jobs: self.jobs.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            kept_bytes: self.kept_bytes.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}

/// Writes to the store in `folder` until the last store is dropped.
pub fn write_all(
    mut connection: Connection,
    folder: &Path,
    mut held: Held,
    counts: &Arc<Counts>,
    changes: &Receiver<Box<dyn Change>>,
) {
    // As `connect` left it.
    let (mut sync, mut is_behind) = (Sync::Disk, false);
    loop {
        let first = match is_behind {
            true => changes.recv_timeout(IDLE),
            false => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let first = match first {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                // The log is on the disk before its pages are. After an error the next commit that waits brings it there.
                let _ = connection.query_row(CHECKPOINT, [], |_| Ok(()));
                is_behind = false;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let more = changes.try_iter().take(MAX_GROUP - 1);
        let mut group: Vec<Box<dyn Change>> = [first].into_iter().chain(more).collect();
        match write_group(&mut connection, held, &mut group, &mut sync) {
            Ok(now) => {
                held = now;
                is_behind = sync == Sync::System;
                counts.set(held);
                if free_bytes(folder).is_ok_and(|free| free < MIN_FREE) {
                    let _ = connection.query_row(CHECKPOINT, [], |_| Ok(()));
                }
                group.into_iter().for_each(|change| change.answer(Ok(())));
            }
            Err(error) => {
                for change in group {
                    change.answer(Err(error.clone()));
                }
            }
        }
    }
    // SQLite empties its log when the last connection closes, but not if two close at once. A log that stays would
    // change a file that somebody restores from a backup. After an error the next start reads the log, as after a crash.
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
}

/// One commit: all of the changes, or none.
fn write_group(
    connection: &mut Connection,
    mut held: Held,
    group: &mut [Box<dyn Change>],
    sync: &mut Sync,
) -> Result<Held, StoreError> {
    let is_awaited = group.iter().any(|change| change.sync() == Sync::Disk);
    let (wanted, level) = match is_awaited {
        true => (Sync::Disk, "FULL"),
        false => (Sync::System, "NORMAL"),
    };
    if *sync != wanted {
        connection.pragma_update(None, "synchronous", level)?;
        *sync = wanted;
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for change in group.iter_mut() {
        change.make(&transaction, &mut held)?;
    }
    group.iter_mut().for_each(|change| change.made());
    transaction.commit()?;
    Ok(held)
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn a_run_that_has_a_job_hears_that_it_is_not_stored() {
        let mut connection = Connection::open_in_memory().expect("a database");
        // An error that comes with the commit.
        let tables = "PRAGMA foreign_keys = ON; CREATE TABLE a (id INTEGER PRIMARY KEY); \
                      CREATE TABLE b (a INTEGER REFERENCES a DEFERRABLE INITIALLY DEFERRED)";
        connection.execute_batch(tables).expect("tables");
        for (value, is_stored) in [("NULL", true), ("1", false)] {
            let (given, was_given) = bounded(1);
            let (stored, was_stored) = bounded(1);
            let sql = format!("INSERT INTO b VALUES ({value})");
            let work = move |transaction: &Transaction<'_>, _: &mut Held| {
                Ok(transaction.execute(&sql, [])?)
            };
            let before = move |rows: &mut usize| given.send(*rows).expect("a run");
            let after = move |rows: &usize| stored.send(*rows).expect("a run");
            let (change, answered) = Valued::new(work, Sync::System, (before, after));
            let mut group: Vec<Box<dyn Change>> = vec![Box::new(change)];
            let mut sync = Sync::System;
            let written = write_group(&mut connection, Held::default(), &mut group, &mut sync);
            assert_eq!(written.is_ok(), is_stored, "{written:?}");
            assert_eq!(was_given.try_recv(), Ok(1));
            let written = written.map(drop);
            for change in group {
                change.answer(written.clone());
            }
            assert_eq!(was_stored.recv().is_ok(), is_stored);
            assert_eq!(
                answered.blocking_recv().expect("an answer").is_ok(),
                is_stored
            );
        }
    }
}
