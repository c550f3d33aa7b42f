//! One stream on its way into its collection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rapidbyte_bson::Builder;
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::bulk::{RefusedRow, Source, Writer};
use crate::catalog::{self, Collection};
use crate::config::Settings;
use crate::ids::{self, Tag};
use crate::layout::{Action, IdOf, Layout, made};
use crate::ledger::Lease;
use crate::rejects::{self, Keeper};
use crate::replay::Claim;

/// A run that was fenced finds out within this time, and writes no more.
const HOLD_EVERY: Duration = Duration::from_secs(1);

/// A stream that a run writes.
pub struct CollectionLoad {
    pub(crate) settings: Rc<Settings>,
    pub(crate) client: Client,
    target: Target,
    pub(crate) collection: String,
    pub(crate) right: Right,
    pub(crate) keeper: Option<Keeper>,
    /// The target as it was when the load began, if that was looked at.
    pub(crate) target_found: Option<Option<Collection>>,
    pub(crate) open: Option<Open>,
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
    pub fn marks(&self) -> (Tag, u32) {
        match self {
            Self::Lease(lease) => (lease.tag, lease.epoch),
            Self::Replay(claim) => (claim.tag, 0),
        }
    }

    /// Whether nobody knows what became of the last commit.
    pub fn is_unsettled(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_unsettled,
            Self::Replay(claim) => claim.is_unsettled,
        }
    }

    /// The rows and the rejects that the load has committed.
    pub fn committed(&self) -> (u64, u64) {
        match self {
            Self::Lease(lease) => (lease.rows, lease.rejects),
            Self::Replay(_) => (0, 0),
        }
    }
}

/// A collection that is filled to become the target.
#[derive(Debug)]
pub(crate) struct Staging {
    pub name: String,
    /// The target is there, and goes.
    replaces: bool,
}

/// The part of a load that exists once rows may come.
pub(crate) struct Open {
    layout: Rc<Layout>,
    pub(crate) writer: Writer,
    /// The collection that is filled to become the target, until the first commit.
    pub staging: Option<Staging>,
    /// The rows have replaced older ones, and are not committed.
    pub has_replaced: bool,
    /// The number of the next row with an id that the connector makes, in this epoch.
    pub next: u64,
    /// Rows so far, for messages.
    seen: u64,
    /// Rows and bytes of the part that is not flushed.
    rows: u64,
    bytes: u64,
    held: Instant,
}

impl CollectionLoad {
    /// The load of a run that has fenced.
    pub(crate) fn new(
        settings: &Rc<Settings>,
        client: Client,
        target: &Target,
        collection: String,
        right: Right,
        keeper: Option<Keeper>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            client,
            target: target.clone(),
            collection,
            right,
            keeper,
            target_found: None,
            open: None,
        }
    }

    fn opened(&mut self) -> Result<(&mut Client, &mut Open)> {
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| Error::internal("the stream does not have a writer"))?;
        Ok((&mut self.client, open))
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
                keeper.refuse(source, &error)?
            }
            _ => return Err(at_row(error, source.number)),
        }
        self.keep(false)
    }

    /// Sends the rejects if there are many, or all of them.
    fn keep(&mut self, all: bool) -> Result<()> {
        let Some(keeper) = self
            .keeper
            .as_mut()
            .filter(|keeper| all || keeper.is_full())
        else {
            return Ok(());
        };
        if let Some(open) = &mut self.open {
            open.writer.receive(&mut self.client)?;
        }
        keeper.send(&mut self.client, &self.settings)
    }

    /// Puts the collection that was filled into the place of the target.
    fn publish(&mut self, staging: &Staging) -> Result<()> {
        let Self {
            settings,
            client,
            right: Right::Lease(lease),
            collection,
            ..
        } = self
        else {
            return Err(Error::internal("a replay that replaces its target"));
        };
        // A newer run drops the collection after it has fenced: then this run has nothing to put there.
        lease.hold_by_write(client, settings)?;
        failpoint("dest-mongodb.publishing")?;
        let Staging { name, replaces } = staging;
        if !catalog::publish(client, settings, name, collection, *replaces)? {
            lease.hold(client, settings)?;
            let text = format!("{name} is gone: somebody dropped it during the run");
            return Err(Error::new(ErrorKind::Transient, "staging_missing", text));
        }
        failpoint("dest-mongodb.published")
    }
}

/// Names the row in an error.
fn at_row(mut error: Error, number: u64) -> Error {
    error
        .location
        .get_or_insert_with(|| format!("row {number}"));
    error
}

impl Load for CollectionLoad {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let schema = self.target.arrow_schema()?;
        let layout = Rc::new(Layout::new(&self.target, &schema, self.settings.encode)?);
        let found = match self.target_found.take() {
            Some(found) => found,
            None => catalog::look(&mut self.client, &self.settings, &self.collection)?,
        };
        let namespace = self.settings.namespace(&self.collection);
        match &found {
            Some(found) => found.ensure_writable(&namespace, self.target.write_mode)?,
            None if cursor.is_some() => {
                let text = format!("{namespace} does not exist, and the stream has a cursor");
                return Err(Error::schema("target_missing", text)
                    .hint("reset the stream's cursor to read all rows again"));
            }
            None => {}
        }
        if let Some(keeper) = &self.keeper {
            rejects::make(&mut self.client, &self.settings, &keeper.to)?;
        }
        // A replay adds to the rows that are there.
        let lease = match &self.right {
            Right::Lease(lease) => Some(lease),
            Right::Replay(_) => None,
        };
        let replaces = self.target.write_mode == WriteMode::Replace && cursor.is_none();
        // Nothing is visible before the commit where no other document can be in the way.
        let stages = replaces || found.is_none();
        let staging = match lease.filter(|_| stages) {
            None => None,
            Some(lease) => {
                let name = catalog::staging_name(lease.tag, lease.epoch);
                let of = (self.collection.as_str(), found.as_ref());
                catalog::make_staging(&mut self.client, &self.settings, &name, of)?;
                failpoint("dest-mongodb.staging_made")?;
                Some(Staging { name, replaces })
            }
        };
        // A replay writes to the collection itself.
        if found.is_none() && staging.is_none() {
            let mut command = Builder::new();
            command.string("create", &self.collection);
            self.settings.add_write_concern(&mut command);
            if let Err(error) = self.client.command(&self.settings.database, command)
                && catalog::look(&mut self.client, &self.settings, &self.collection)?.is_none()
            {
                return Err(error);
            }
        }
        self.open = Some(Open {
            writer: self.writer(&layout, staging.as_ref()),
            layout,
            staging,
            has_replaced: false,
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

impl CollectionLoad {
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
        // The host hears of a phase by a call, which takes longer than a row: so one is entered for all rows. Writes have
        // phases of their own within it.
        let phase = phase::enter(Kind::Encode);
        let documents = self.opened()?.1.layout.rows(batch)?;
        let (mut id, mut document) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let (client, open) = self.opened()?;
            open.seen += 1;
            let source = Source {
                batch: shared.clone(),
                row,
                number: open.seen,
            };
            id.clear();
            document.clear();
            if documents.is_made() {
                made(&ids::id(tag, epoch, open.next)?, &mut id);
                open.next += 1;
            }
            let encoded = documents.encode(row, &mut id, &mut document);
            let put = encoded.and_then(|action| match action {
                Action::Write => open.writer.put(client, &id, &document, source.clone()),
                Action::Delete => open.writer.delete(client, &id, source.clone()),
            });
            match put {
                Ok(()) => {
                    open.rows += 1;
                    open.bytes += document.len() as u64;
                }
                Err(error) if matches!(error.kind, ErrorKind::Data) => {
                    self.refuse_row(&source, error)?;
                }
                Err(error) => return Err(error),
            }
        }
        drop(phase);
        if self.keeper.is_some() {
            // The host asks after each batch which of its rows were refused.
            let (client, open) = self.opened()?;
            open.writer.flush(client)?;
        }
        self.refuse()
    }

    fn flush_rows(&mut self) -> Result<Part> {
        let (client, open) = self.opened()?;
        open.writer.flush(client)?;
        self.refuse()?;
        self.keep(true)?;
        failpoint("dest-mongodb.flushed")?;
        let (_, open) = self.opened()?;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut open.rows),
            bytes: std::mem::take(&mut open.bytes),
        })
    }

    fn commit_rows(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        failpoint("dest-mongodb.committing")?;
        let staging = self.open.as_mut().and_then(|open| open.staging.take());
        if let Some(staging) = staging {
            if let Err(error) = self.publish(&staging) {
                if let Some(open) = &mut self.open {
                    open.staging = Some(staging);
                }
                return Err(error);
            }
            if let Some(open) = &mut self.open {
                open.has_replaced = staging.replaces;
            }
            // No row of an older epoch is there any more.
            if let Right::Lease(lease) = &mut self.right {
                lease.epochs = lease.epochs.of_new_collection();
            }
        }
        let (rows, rejects) = self.right.committed();
        let rows = self.open.as_ref().map_or(rows, |open| open.next);
        let rejects = self.keeper.as_ref().map_or(rejects, |keeper| keeper.next);
        match &mut self.right {
            Right::Lease(lease) => {
                lease.advance(&mut self.client, &self.settings, commit, (rows, rejects))?;
            }
            Right::Replay(claim) => {
                claim.commit(&mut self.client, &self.settings)?;
                // Nothing is left to undo.
                self.keeper = None;
                self.open = None;
            }
        }
        if let Some(mut open) = self.open.take() {
            // From now on rows go to the target itself.
            open.writer = self.writer(&open.layout, None);
            open.has_replaced = false;
            self.open = Some(open);
        }
        if commit.complete {
            self.clean_up();
        }
        Ok(Receipt {
            rows: commit.rows(),
            bytes: commit.parts.iter().map(|part| part.bytes).sum(),
            location: self.settings.namespace(&self.collection),
            deleted: 0,
        })
    }

    fn writer(&self, layout: &Layout, staging: Option<&Staging>) -> Writer {
        let collection = staging.map_or(&self.collection, |staging| &staging.name);
        let is_upsert = match (&layout.id_of, self.target.write_mode) {
            (IdOf::Made, _) => false,
            (_, WriteMode::Upsert) => true,
            // Rows behind those that replaced the target: the key says which row they are.
            (_, WriteMode::Replace) => staging.is_none(),
            (_, WriteMode::Append) => false,
        };
        Writer::new(
            &self.settings,
            &self.client,
            collection,
            is_upsert,
            staging.is_none(),
        )
    }

    /// Fails if a newer run has fenced; asks now and then. No answer may be due on the connection.
    fn hold(&mut self) -> Result<()> {
        let (client, open) = self.opened()?;
        if open.held.elapsed() < HOLD_EVERY {
            return Ok(());
        }
        open.writer.receive(client)?;
        open.held = Instant::now();
        match &self.right {
            Right::Lease(lease) => lease.hold(&mut self.client, &self.settings),
            Right::Replay(_) => Ok(()),
        }
    }
}
