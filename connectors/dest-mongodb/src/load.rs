//! One stream on its way into its collection.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rapidbyte_bson::Builder;
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::bulk::{RefusedRow, Source, Writer};
use crate::catalog;
use crate::config::Settings;
use crate::ids::{self, Epochs};
use crate::layout::{IdOf, Layout, made};
use crate::ledger::Lease;

/// A run that was fenced finds out within this time, and writes no more.
const HOLD_EVERY: Duration = Duration::from_secs(1);

/// A stream that a run writes.
pub struct CollectionLoad {
    settings: Rc<Settings>,
    client: Client,
    target: Target,
    collection: String,
    lease: Lease,
    open: Option<Open>,
}

/// The part of a load that exists once rows may come.
struct Open {
    layout: Layout,
    writer: Writer,
    /// The collection that is filled to replace the target, until the first commit.
    staging: Option<String>,
    /// The number of the next row with an id that the connector makes, in this epoch.
    next: u64,
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
        lease: Lease,
    ) -> Self {
        Self {
            settings: settings.clone(),
            client,
            target: target.clone(),
            collection,
            lease,
            open: None,
        }
    }

    /// Deletes what earlier attempts have left: rows that no commit has, and collections that no target became.
    pub(crate) fn clean(&mut self) -> Result<()> {
        let ranges = self
            .lease
            .epochs
            .uncommitted(self.lease.tag, self.lease.epoch)?;
        delete_ranges(&mut self.client, &self.settings, &self.collection, &ranges)?;
        catalog::drop_staging(&mut self.client, &self.settings, self.lease.tag)?;
        failpoint("dest-mongodb.cleaned")
    }

    fn opened(&mut self) -> Result<(&mut Client, &mut Open)> {
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| Error::internal("the stream does not have a writer"))?;
        Ok((&mut self.client, open))
    }

    /// Ends the run with the reason of the first row that the server refused.
    fn refuse(&mut self) -> Result<()> {
        let (_, open) = self.opened()?;
        match open.writer.take_refused().into_iter().next() {
            None => Ok(()),
            Some(RefusedRow { source, error }) => Err(at_row(error, source.number)),
        }
    }

    /// Puts the collection that was filled into the place of the target.
    fn publish(&mut self, staging: &str) -> Result<()> {
        let Self {
            settings,
            client,
            lease,
            collection,
            ..
        } = self;
        // A newer run drops the collection after it has fenced: then this run has nothing to put there.
        lease.hold_by_write(client, settings)?;
        failpoint("dest-mongodb.publishing")?;
        if !catalog::publish(client, settings, staging, collection)? {
            lease.hold(client, settings)?;
            let text = format!("{staging} is gone: somebody dropped it during the run");
            return Err(Error::new(ErrorKind::Transient, "staging_missing", text));
        }
        failpoint("dest-mongodb.published")
    }

    /// Deletes what this load has written and not committed, as far as that can be told.
    fn undo(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        // The connection may be of no use any more, or still owe an answer.
        let mut client = self.settings.connect()?;
        if let Some(staging) = &open.staging {
            return catalog::drop(&mut client, &self.settings, staging);
        }
        let begin = ids::id(self.lease.tag, self.lease.epoch, self.lease.rows)?;
        let end = ids::id(self.lease.tag, self.lease.epoch, open.next)?;
        let ranges = match begin < end {
            true => vec![(begin, end)],
            false => Vec::new(),
        };
        delete_ranges(&mut client, &self.settings, &self.collection, &ranges)
    }
}

/// Names the row in an error.
fn at_row(mut error: Error, number: u64) -> Error {
    error
        .location
        .get_or_insert_with(|| format!("row {number}"));
    error
}

fn delete_ranges(
    client: &mut Client,
    settings: &Settings,
    collection: &str,
    ranges: &[([u8; ids::ID_BYTES], [u8; ids::ID_BYTES])],
) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let _phase = phase::enter(Kind::Query);
    let mut deletes = Vec::new();
    for (begin, end) in ranges {
        let mut entry = Builder::onto(deletes);
        entry.open_document("q");
        ids::within(&mut entry, begin, end);
        entry.close().int32("limit", 0);
        deletes = entry.finish().map_err(Error::internal)?;
    }
    let mut command = Builder::new();
    command
        .string("delete", collection)
        .boolean("ordered", false);
    settings.add_write_concern(&mut command);
    let written = client.write(&settings.database, command, "deletes", &deletes)?;
    if let Some(error) = written.errors.into_iter().next() {
        return Err(error.error);
    }
    if written.count > 0 {
        log::info(format!(
            "{} rows of an attempt that was not committed were deleted",
            written.count
        ));
    }
    Ok(())
}

impl Load for CollectionLoad {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let schema = self.target.arrow_schema()?;
        let layout = Layout::new(&self.target, &schema, self.settings.encode)?;
        let found = catalog::look(&mut self.client, &self.settings, &self.collection)?;
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
        let replaces = self.target.write_mode == WriteMode::Replace && cursor.is_none();
        let staging = match replaces {
            false => None,
            true => {
                let name = catalog::staging_name(self.lease.tag, self.lease.epoch);
                catalog::make_staging(&mut self.client, &self.settings, &name, &self.collection)?;
                failpoint("dest-mongodb.staging_made")?;
                Some(name)
            }
        };
        // A stream without rows has a collection, too.
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
            writer: self.writer(&layout, staging.as_deref()),
            layout,
            staging,
            next: self.lease.rows,
            seen: 0,
            rows: 0,
            bytes: 0,
            held: Instant::now(),
        });
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.hold()?;
        let (tag, epoch) = (self.lease.tag, self.lease.epoch);
        let (client, open) = self.opened()?;
        let documents = {
            let _phase = phase::enter(Kind::Encode);
            open.layout.rows(batch)?
        };
        let shared = Rc::new(batch.clone());
        let (mut id, mut document) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            open.seen += 1;
            let source = Source {
                batch: shared.clone(),
                row,
                number: open.seen,
            };
            let number = source.number;
            id.clear();
            document.clear();
            let put = {
                let _phase = phase::enter(Kind::Encode);
                let is_made = open.layout.id_of == IdOf::Made;
                if is_made {
                    made(&ids::id(tag, epoch, open.next)?, &mut id);
                    open.next += 1;
                }
                documents
                    .id(row, &mut id)
                    .and_then(|()| match documents.is_deleted(row) {
                        true => Ok(false),
                        false => documents.document(row, &id, &mut document).map(|()| true),
                    })
            };
            let put = put.and_then(|is_kept| match is_kept {
                true => open.writer.put(client, &id, &document, source),
                false => open.writer.delete(client, &id, source),
            });
            put.map_err(|error| match error.kind {
                ErrorKind::Data => at_row(error, number),
                _ => error,
            })?;
            open.rows += 1;
            open.bytes += document.len() as u64;
        }
        self.refuse()
    }

    fn flush(&mut self) -> Result<Part> {
        let (client, open) = self.opened()?;
        open.writer.flush(client)?;
        self.refuse()?;
        failpoint("dest-mongodb.flushed")?;
        let (_, open) = self.opened()?;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut open.rows),
            bytes: std::mem::take(&mut open.bytes),
        })
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        failpoint("dest-mongodb.committing")?;
        let staging = self.open.as_mut().and_then(|open| open.staging.take());
        if let Some(staging) = staging {
            if let Err(error) = self.publish(&staging) {
                if let Some(open) = &mut self.open {
                    open.staging = Some(staging);
                }
                return Err(error);
            }
            // No row of an older epoch is there any more.
            self.lease.epochs = Epochs::default();
        }
        let made = self.open.as_ref().map(|open| open.next);
        let rows = made.unwrap_or(self.lease.rows);
        self.lease
            .advance(&mut self.client, &self.settings, commit, rows)?;
        if let Some(mut open) = self.open.take() {
            // From now on rows go to the target itself.
            open.writer = self.writer(&open.layout, None);
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

    fn abort(mut self) -> Result<()> {
        self.undo()
    }
}

impl CollectionLoad {
    fn writer(&self, layout: &Layout, staging: Option<&str>) -> Writer {
        let collection = staging.unwrap_or(&self.collection);
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
        self.lease.hold(&mut self.client, &self.settings)
    }

    /// Rows of a run that was fenced may have come after this run had begun. The next run deletes them if this fails.
    fn clean_up(&mut self) {
        let cleaned = self
            .lease
            .epochs
            .uncommitted(self.lease.tag, self.lease.epoch)
            .and_then(|ranges| {
                delete_ranges(&mut self.client, &self.settings, &self.collection, &ranges)
            });
        if let Err(error) = cleaned {
            log::debug(format!("rows of older runs may be left: {}", error.message));
        }
    }
}
