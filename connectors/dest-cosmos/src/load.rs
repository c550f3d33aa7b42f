//! One stream on its way into its container.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rapidbyte_cosmos::{Container, Param};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::{Decimals, Settings};
use crate::ids::{self, Epochs};
use crate::layout::{IdOf, Layout, MARK};
use crate::ledger::Lease;
use crate::rejects::{self, Keeper};
use crate::replay::Claim;
use crate::server::Server;
use crate::writer::{RefusedRow, Source, Writer};

/// A run that was fenced finds out within this time, and writes no more.
const HOLD_EVERY: Duration = Duration::from_secs(1);

/// A stream that a run writes.
pub struct ContainerLoad {
    settings: Rc<Settings>,
    server: Server,
    target: Target,
    container: String,
    right: Right,
    keeper: Option<Keeper>,
    open: Option<Open>,
}

/// The right to commit.
#[derive(Debug)]
pub(crate) enum Right {
    /// The run moves the stream.
    Lease(Lease),
    /// It replays rejects: it fences nothing, and moves no cursor.
    Replay(Claim),
}

impl Right {
    /// The tag and the epoch of the ids that the load makes.
    pub fn marks(&self) -> (String, u32) {
        match self {
            Self::Lease(lease) => (lease.checkpoint.tag.clone(), lease.checkpoint.epoch),
            Self::Replay(claim) => (claim.tag.clone(), 0),
        }
    }

    /// Whether nobody knows what became of the last commit.
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

/// The part of a load that exists once rows may come.
struct Open {
    layout: Rc<Layout>,
    writer: Writer,
    is_upsert: bool,
    /// The first commit deletes the documents that were there before.
    replaces: bool,
    /// It has deleted them, and is not done.
    has_purged: bool,
    /// The number of the next row with an id that the connector makes, in this epoch.
    next: u64,
    /// Rows so far, for messages.
    seen: u64,
    /// Rows and bytes of the part that is not flushed.
    rows: u64,
    bytes: u64,
    held: Instant,
}

impl ContainerLoad {
    /// The load of a run that has fenced.
    pub(crate) fn new(
        settings: &Rc<Settings>,
        server: Server,
        target: &Target,
        container: String,
        right: Right,
        keeper: Option<Keeper>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            server,
            target: target.clone(),
            container,
            right,
            keeper,
            open: None,
        }
    }

    /// Deletes what earlier attempts have left: rows and rejects that no commit has.
    pub(crate) fn clean(&mut self) -> Result<()> {
        let Right::Lease(lease) = &self.right else {
            return Ok(());
        };
        let checkpoint = &lease.checkpoint;
        let (tag, epoch) = (&checkpoint.tag, checkpoint.epoch);
        let ranges = checkpoint.epochs.uncommitted(tag, epoch)?;
        self.server.delete_ranges(&self.container, &ranges)?;
        if let Some(keeper) = &self.keeper {
            let ranges = checkpoint.reject_epochs.uncommitted(tag, epoch)?;
            self.server.delete_ranges(&keeper.to, &ranges)?;
        }
        failpoint("dest-cosmos.cleaned")
    }

    fn opened(&mut self) -> Result<(&mut Server, &mut Open)> {
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| Error::internal("the stream does not have a writer"))?;
        Ok((&mut self.server, open))
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
                keeper.refuse(source, &error)?;
            }
            _ => return Err(at_row(error, source.number)),
        }
        self.keep(false)
    }

    /// Sends the rejects if there are many, or all of them.
    fn keep(&mut self, all: bool) -> Result<()> {
        let keeper = self.keeper.as_mut();
        match keeper.filter(|keeper| all || keeper.is_full()) {
            Some(keeper) => keeper.send(&mut self.server),
            None => Ok(()),
        }
    }

    /// Deletes the documents that were there before the rows of this run.
    fn purge(&mut self) -> Result<()> {
        let Right::Lease(lease) = &mut self.right else {
            return Err(Error::internal("a replay that replaces its target"));
        };
        lease.hold_by_write(&mut self.server.client, &self.settings)?;
        failpoint("dest-cosmos.purging")?;
        let (tag, epoch) = (&lease.checkpoint.tag, lease.checkpoint.epoch);
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.has_purged = true;
        let is_made = open.layout.id_of == IdOf::Made;
        // Documents of a newer run of the stream stay, should this run wake up late.
        let mark = ids::mark(tag, epoch);
        let condition = match is_made {
            true => "NOT STARTSWITH(c.id, @tag) OR c.id < @mark".to_owned(),
            false => {
                let field = format!("c[\"{MARK}\"]");
                format!(
                    "NOT IS_DEFINED({field}) OR NOT STARTSWITH({field}, @tag) OR {field} < @mark"
                )
            }
        };
        let params = [
            Param::new("@tag", tag.as_str()),
            Param::new("@mark", mark.as_str()),
        ];
        let deleted = self
            .server
            .delete_where(&self.container, &condition, &params)?;
        log::debug(format!("{deleted} older documents were deleted"));
        failpoint("dest-cosmos.purged")
    }

    /// Deletes what this load has written and not committed, as far as that can be told.
    fn undo(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        // The rows may be committed, or the older rows are gone: then the next run decides.
        if self.right.is_unsettled() || open.has_purged {
            return Ok(());
        }
        let (tag, epoch) = self.right.marks();
        let (rows, rejects) = self.right.committed();
        let range =
            |from, to| Ok::<_, Error>([(ids::id(&tag, epoch, from)?, ids::id(&tag, epoch, to)?)]);
        if rows < open.next {
            let range = range(rows, open.next)?;
            self.server.delete_ranges(&self.container, &range)?;
        }
        match self.keeper.as_ref().filter(|keeper| rejects < keeper.next) {
            Some(keeper) => {
                let range = range(rejects, keeper.next)?;
                self.server.delete_ranges(&keeper.to, &range)
            }
            None => Ok(()),
        }
    }
}

/// Names the row in an error.
fn at_row(mut error: Error, number: u64) -> Error {
    error
        .location
        .get_or_insert_with(|| format!("row {number}"));
    error
}

/// Fails if the container has another partition key than the operator says. Errors: `partition_key_differs`.
pub(crate) fn ensure_partition_key(settings: &Settings, container: &Container) -> Result<()> {
    match &settings.partition_key {
        Some(key) if *key != container.partition => {
            let text = format!(
                "{} has the partition key {}, and the configuration says {key}",
                settings.namespace(&container.name),
                container.partition
            );
            Err(Error::schema("partition_key_differs", text)
                .hint("remove partition_key: it is only for containers that do not exist yet")
                .at("config.partition_key"))
        }
        _ => Ok(()),
    }
}

impl Load for ContainerLoad {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let schema = self.target.arrow_schema()?;
        let settings = self.settings.clone();
        let namespace = settings.namespace(&self.container);
        let container = match self.server.container(&self.container)? {
            Some(found) => found,
            None if cursor.is_some() => {
                let text = format!("{namespace} does not exist, and the stream has a cursor");
                return Err(Error::schema("target_missing", text)
                    .hint("reset the stream's cursor to read all rows again"));
            }
            None => {
                let key = settings.new_partition_key()?;
                self.server
                    .make(&self.container, &key, settings.throughput)?
            }
        };
        ensure_partition_key(&settings, &container)?;
        if let Some(keeper) = &self.keeper {
            rejects::make(&mut self.server, &keeper.to)?;
        }
        let is_replay = matches!(self.right, Right::Replay(_));
        let is_replace = self.target.write_mode == WriteMode::Replace;
        let id_of = IdOf::of(&self.target, &schema)?;
        let (tag, epoch) = self.right.marks();
        // A row that is replayed has a tag of its own, so the next run that replaces deletes it.
        let mark = (is_replace && id_of != IdOf::Made).then(|| ids::mark(&tag, epoch));
        let allows_decimals = settings.decimals == Decimals::Text;
        let layout = Layout::new(
            &self.target,
            &schema,
            settings.documents,
            allows_decimals,
            container,
            mark,
        )?;
        self.open = Some(Open {
            is_upsert: layout.id_of != IdOf::Made && self.target.write_mode != WriteMode::Append,
            layout: Rc::new(layout),
            writer: Writer::new(&self.container),
            // A replay adds to the rows that are there.
            replaces: is_replace && cursor.is_none() && !is_replay,
            has_purged: false,
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
            keeper.keep(origin, reject)?;
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

impl ContainerLoad {
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

    fn write_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.hold()?;
        let (tag, epoch) = self.right.marks();
        let shared = Rc::new(batch.clone());
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            self.opened()?.1.layout.rows(batch)?
        };
        for row in 0..batch.num_rows() {
            let (server, open) = self.opened()?;
            open.seen += 1;
            let source = Source {
                batch: shared.clone(),
                row,
                number: open.seen,
            };
            let written = {
                let _phase = phase::enter(Kind::Encode);
                let made = match open.layout.id_of {
                    IdOf::Made => {
                        open.next += 1;
                        ids::id(&tag, epoch, open.next - 1)?
                    }
                    _ => String::new(),
                };
                rows.row(row, &made, open.is_upsert)
            };
            match written {
                Ok(written) => {
                    open.rows += 1;
                    open.bytes += written.operation.bytes("") as u64;
                    open.writer.put(&mut server.client, written, source)?;
                }
                Err(error) if matches!(error.kind, ErrorKind::Data) => {
                    self.refuse_row(&source, error)?;
                }
                Err(error) => return Err(error),
            }
        }
        if self.keeper.is_some() {
            // The host asks after each batch which of its rows were refused.
            let (server, open) = self.opened()?;
            open.writer.flush(&mut server.client)?;
        }
        self.refuse()
    }

    fn flush_rows(&mut self) -> Result<Part> {
        let (server, open) = self.opened()?;
        open.writer.flush(&mut server.client)?;
        self.refuse()?;
        self.keep(true)?;
        failpoint("dest-cosmos.flushed")?;
        let (_, open) = self.opened()?;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut open.rows),
            bytes: std::mem::take(&mut open.bytes),
        })
    }

    fn commit_rows(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        failpoint("dest-cosmos.committing")?;
        if self.open.as_ref().is_some_and(|open| open.replaces) {
            self.purge()?;
            if let Some(open) = &mut self.open {
                open.replaces = false;
            }
            // No row of an older epoch is there any more.
            if let Right::Lease(lease) = &mut self.right {
                lease.checkpoint.epochs = Epochs::default();
            }
        }
        let (rows, rejects) = self.right.committed();
        let rows = self.open.as_ref().map_or(rows, |open| open.next);
        let rejects = self.keeper.as_ref().map_or(rejects, |keeper| keeper.next);
        match &mut self.right {
            Right::Lease(lease) => {
                let client = &mut self.server.client;
                lease.advance(client, &self.settings, commit, (rows, rejects))?;
            }
            Right::Replay(claim) => {
                claim.commit(&mut self.server, &self.settings)?;
                // Nothing is left to undo.
                self.keeper = None;
                self.open = None;
            }
        }
        if let Some(open) = &mut self.open {
            open.has_purged = false;
        }
        if commit.complete {
            self.clean_up();
        }
        Ok(Receipt {
            rows: commit.rows(),
            bytes: commit.parts.iter().map(|part| part.bytes).sum(),
            location: self.settings.namespace(&self.container),
            deleted: 0,
        })
    }

    /// Fails if a newer run has fenced; asks now and then.
    fn hold(&mut self) -> Result<()> {
        let (_, open) = self.opened()?;
        if open.held.elapsed() < HOLD_EVERY {
            return Ok(());
        }
        open.held = Instant::now();
        match &self.right {
            Right::Lease(lease) => lease.hold(&mut self.server.client, &self.settings),
            Right::Replay(_) => Ok(()),
        }
    }

    /// Rows of a run that was fenced may have come after this run had begun. The next run deletes them if this fails.
    fn clean_up(&mut self) {
        let Right::Lease(lease) = &self.right else {
            return;
        };
        let checkpoint = &lease.checkpoint;
        let ranges = checkpoint
            .epochs
            .uncommitted(&checkpoint.tag, checkpoint.epoch);
        let cleaned = ranges.and_then(|ranges| self.server.delete_ranges(&self.container, &ranges));
        if let Err(error) = cleaned {
            log::debug(format!("rows of older runs may be left: {}", error.message));
        }
    }
}
