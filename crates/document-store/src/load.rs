//! One stream on its way into its collection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{Key, Lease};
use crate::ids::{RowId, Tag};
use crate::reach;
use crate::rejects::Keeper;
use crate::replay::Claim;
use crate::store::{Opening, Put, Store, Writer, delete_uncommitted};

/// A run that was fenced finds out within this time, and writes no more.
const HOLD_EVERY: Duration = Duration::from_secs(1);

/// The right to commit.
#[derive(Debug)]
pub enum Right {
    /// The run moves the stream.
    Lease(Lease),
    /// It replays rejects: it fences nothing, and moves no cursor.
    Replay(Claim),
}

impl Right {
    /// The tag and the epoch of the ids that the load makes.
    pub fn marks(&self) -> (Tag, u32) {
        match self {
            Self::Lease(lease) => (lease.checkpoint.tag, lease.checkpoint.epoch),
            Self::Replay(claim) => (claim.tag, 0),
        }
    }

    /// Whether the outcome of the last commit is unknown.
    fn is_unsettled(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_unsettled,
            Self::Replay(claim) => claim.is_unsettled,
        }
    }

    /// The rows and the rejects that the load has committed.
    fn committed(&self) -> (u64, u64) {
        match self {
            Self::Lease(lease) => (lease.rows, lease.rejects),
            Self::Replay(_) => (0, 0),
        }
    }
}

/// A row of a stream.
#[derive(Debug, Clone)]
pub struct Source {
    /// The batch that has it.
    pub batch: Rc<RecordBatch>,
    /// Its place in the batch, from 0.
    pub row: usize,
    /// Its place in the load, from 1.
    pub number: u64,
}

/// A row that the server refuses.
#[derive(Debug)]
pub struct RefusedRow {
    /// The row.
    pub source: Source,
    /// The reason.
    pub error: Error,
}

/// Where a load writes.
#[derive(Debug)]
pub struct Destined {
    /// The checkpoint of the stream.
    pub key: Key,
    /// The collection for its rows.
    pub collection: String,
    /// The collection for its rejects.
    pub rejects: Option<String>,
}

/// A stream that a run writes into a collection.
pub struct DocumentLoad<S: Store> {
    store: S,
    target: Target,
    collection: String,
    /// The collection with its database.
    location: String,
    right: Right,
    keeper: Option<Keeper>,
    open: Option<Open<S::Writer>>,
}

/// The part of a load that exists once rows may come.
struct Open<W> {
    writer: W,
    /// The number of the next row with an id that the connector makes, in this epoch.
    next: u64,
    /// Rows so far, for messages.
    seen: u64,
    /// Rows and bytes of the part that is not flushed.
    rows: u64,
    bytes: u64,
    held: Instant,
}

/// Names the row in an error.
fn at_row(mut error: Error, number: u64) -> Error {
    error
        .location
        .get_or_insert_with(|| format!("row {number}"));
    error
}

impl<S: Store> DocumentLoad<S> {
    /// Fences older runs of the stream, or takes the right to replay its rejects, and deletes the rows and rejects that
    /// earlier attempts have left. Returns how far the stream is.
    pub fn begin(
        mut store: S,
        target: &Target,
        run: &Run,
        to: Destined,
    ) -> Result<(Self, Progress)> {
        let location = to.key.target.clone();
        let claim = Claim::take(&mut store, target, &run.pipeline, &to.collection)?;
        let (right, progress, first) = match claim {
            Some(claim) => {
                let first = claim.firsts();
                (Right::Replay(claim), Progress::unfenced(&run.id), first)
            }
            None => {
                let lease = Lease::fence(&mut store, to.key, run)?;
                let progress = lease.checkpoint.progress(Some(&run.id));
                (Right::Lease(lease), progress, Vec::new())
            }
        };
        let marks = right.marks();
        let keeper = to
            .rejects
            .map(|to| Keeper::new(to, run, &target.stream, location.clone(), marks, first));
        let mut load = Self {
            store,
            target: target.clone(),
            collection: to.collection,
            location,
            right,
            keeper,
            open: None,
        };
        let replaces = target.write_mode == WriteMode::Replace && progress.cursor.is_none();
        load.clean(replaces)?;
        Ok((load, progress))
    }

    /// Deletes what earlier attempts have left: rows and rejects that no commit has. `replaces`: the run will replace the
    /// target.
    fn clean(&mut self, replaces: bool) -> Result<()> {
        let Right::Lease(lease) = &self.right else {
            return Ok(());
        };
        let checkpoint = &lease.checkpoint;
        let (tag, epoch) = (checkpoint.tag, checkpoint.epoch);
        // Its readers keep the rows that they have until the commit.
        if !(replaces && S::REPLACES_COLLECTIONS) {
            let ranges = checkpoint.epochs.uncommitted(tag, epoch)?;
            delete_uncommitted(&mut self.store, &self.collection, &ranges)?;
        }
        if let Some(keeper) = &self.keeper {
            let ranges = checkpoint.reject_epochs.uncommitted(tag, epoch)?;
            delete_uncommitted(&mut self.store, &keeper.key.to, &ranges)?;
        }
        self.store.clean(&self.collection, lease)?;
        reach::<S>("cleaned")
    }

    /// Rows of a run that was fenced may have come after this run had begun. The next run deletes them if this fails.
    fn clean_up(&mut self) {
        let Right::Lease(lease) = &self.right else {
            return;
        };
        let checkpoint = &lease.checkpoint;
        let ranges = checkpoint
            .epochs
            .uncommitted(checkpoint.tag, checkpoint.epoch);
        let cleaned = ranges
            .and_then(|ranges| delete_uncommitted(&mut self.store, &self.collection, &ranges));
        if let Err(error) = cleaned {
            log::debug(format!("rows of older runs may be left: {}", error.message));
        }
    }

    /// Deletes the rows that this load has written and not committed, as far as they are known.
    fn undo(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.writer.stop(&mut self.store);
        // The rows may be committed, or the older rows are gone: then the next run decides.
        if self.right.is_unsettled() || open.writer.has_replaced() {
            return Ok(());
        }
        self.store.reconnect()?;
        let (tag, epoch) = self.right.marks();
        let (rows, rejects) = self.right.committed();
        let range = |from, to| {
            Ok::<_, Error>([(RowId::new(tag, epoch, from)?, RowId::new(tag, epoch, to)?)])
        };
        if !open.writer.discard(&mut self.store)? && rows < open.next {
            let range = range(rows, open.next)?;
            delete_uncommitted(&mut self.store, &self.collection, &range)?;
        }
        match self.keeper.as_ref().filter(|keeper| rejects < keeper.next) {
            Some(keeper) => {
                let range = range(rejects, keeper.next)?;
                delete_uncommitted(&mut self.store, &keeper.key.to, &range)
            }
            None => Ok(()),
        }
    }

    /// Undoes the load after an error that no retry follows: the host drops a load that fails. A retry begins with the
    /// same.
    fn or_undone<T>(&mut self, done: Result<T>) -> Result<T> {
        let Err(error) = &done else {
            return done;
        };
        let is_retried = matches!(
            error.kind,
            ErrorKind::Transient | ErrorKind::Connection | ErrorKind::RateLimited(_)
        );
        if !is_retried && let Err(error) = self.undo() {
            log::debug(format!("rows may be left: {}", error.message));
        }
        done
    }

    fn opened(&mut self) -> Result<(&mut S, &mut Open<S::Writer>)> {
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| Error::internal("the stream does not have a writer"))?;
        Ok((&mut self.store, open))
    }

    /// Keeps the rows that the server refused, or ends the run with the reason of the first.
    fn refuse(&mut self) -> Result<()> {
        let (_, open) = self.opened()?;
        let refused = open.writer.take_refused();
        open.rows -= refused.len() as u64;
        for RefusedRow { source, error } in refused {
            self.refuse_row(&source, error)?;
        }
        Ok(())
    }

    fn refuse_row(&mut self, source: &Source, error: Error) -> Result<()> {
        match &mut self.keeper {
            Some(keeper) if matches!(error.kind, ErrorKind::Data) => {
                keeper.refuse::<S>(source, &error)?;
            }
            _ => return Err(at_row(error, source.number)),
        }
        self.keep(false)
    }

    /// Sends the rejects if there are many, or all of them.
    fn keep(&mut self, all: bool) -> Result<()> {
        let keeper = self.keeper.as_mut();
        let Some(keeper) = keeper.filter(|keeper| all || keeper.is_full()) else {
            return Ok(());
        };
        if let Some(open) = &mut self.open {
            open.writer.receive(&mut self.store)?;
        }
        keeper.send(&mut self.store)
    }

    /// Fails if a newer run has fenced; asks now and then.
    fn hold(&mut self) -> Result<()> {
        let (store, open) = self.opened()?;
        if open.held.elapsed() < HOLD_EVERY {
            return Ok(());
        }
        open.writer.receive(store)?;
        open.held = Instant::now();
        match &self.right {
            Right::Lease(lease) => lease.hold(&mut self.store),
            Right::Replay(_) => Ok(()),
        }
    }

    fn write_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.hold()?;
        let (tag, epoch) = self.right.marks();
        let shared = Rc::new(batch.clone());
        // The host hears of a phase by a call, which takes longer than a row: so one is entered for all rows. Writes have
        // phases of their own within it.
        let phase = phase::enter(Kind::Encode);
        let (_, open) = self.opened()?;
        let rows = open.writer.rows(batch)?;
        let makes_ids = open.writer.makes_ids();
        for row in 0..batch.num_rows() {
            let (store, open) = self.opened()?;
            open.seen += 1;
            let source = Source {
                batch: shared.clone(),
                row,
                number: open.seen,
            };
            let id = match makes_ids {
                true => {
                    open.next += 1;
                    Some(RowId::new(tag, epoch, open.next - 1)?)
                }
                false => None,
            };
            match open.writer.put(store, &rows, &source, id.as_ref())? {
                Put::Taken(bytes) => {
                    open.rows += 1;
                    open.bytes += bytes;
                }
                Put::Refused(error) => self.refuse_row(&source, error)?,
            }
        }
        drop(phase);
        if self.keeper.is_some() {
            // The host asks after each batch which of its rows were refused.
            let (store, open) = self.opened()?;
            open.writer.flush(store)?;
        }
        self.refuse()
    }

    fn flush_rows(&mut self) -> Result<Part> {
        let (store, open) = self.opened()?;
        open.writer.flush(store)?;
        self.refuse()?;
        self.keep(true)?;
        reach::<S>("flushed")?;
        let (_, open) = self.opened()?;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut open.rows),
            bytes: std::mem::take(&mut open.bytes),
        })
    }

    fn commit_rows(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        reach::<S>("committing")?;
        if let (Some(open), Right::Lease(lease)) = (&mut self.open, &mut self.right)
            && open.writer.publish(&mut self.store, lease)?
        {
            lease.checkpoint.epochs = lease.checkpoint.epochs.of_new_collection();
        }
        let (rows, rejects) = self.right.committed();
        let rows = self.open.as_ref().map_or(rows, |open| open.next);
        let rejects = self.keeper.as_ref().map_or(rejects, |keeper| keeper.next);
        match &mut self.right {
            Right::Lease(lease) => lease.advance(&mut self.store, commit, (rows, rejects))?,
            Right::Replay(claim) => {
                claim.commit(&mut self.store)?;
                // Nothing is left to undo.
                self.keeper = None;
                self.open = None;
            }
        }
        if let Some(open) = &mut self.open {
            open.writer.committed(&self.store);
        }
        if commit.complete {
            self.clean_up();
        }
        Ok(Receipt {
            rows: commit.rows(),
            bytes: commit.parts.iter().map(|part| part.bytes).sum(),
            location: self.location.clone(),
            deleted: 0,
        })
    }
}

impl<S: Store> Load for DocumentLoad<S> {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let writer = self.store.open(&Opening {
            target: &self.target,
            collection: &self.collection,
            cursor,
            right: &self.right,
            rejects: self.keeper.as_ref().map(|keeper| keeper.key.to.as_str()),
        })?;
        self.open = Some(Open {
            writer,
            next: self.right.committed().0,
            seen: 0,
            rows: 0,
            bytes: 0,
            held: Instant::now(),
        });
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.write_batch(batch);
        self.or_undone(written)
    }

    fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        for reject in rejects {
            let keeper = self.keeper.as_mut();
            let keeper = keeper.ok_or_else(|| Error::internal("nobody keeps rejects"))?;
            keeper.keep::<S>(origin, reject)?;
            self.keep(false)?;
        }
        Ok(())
    }

    fn refused(&mut self) -> Refused {
        let keeper = self.keeper.as_mut();
        keeper.map(Keeper::take_refused).unwrap_or_default()
    }

    fn flush(&mut self) -> Result<Part> {
        let flushed = self.flush_rows();
        self.or_undone(flushed)
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let committed = self.commit_rows(commit);
        self.or_undone(committed)
    }

    fn abort(mut self) -> Result<()> {
        self.undo()
    }
}
