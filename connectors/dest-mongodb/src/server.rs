//! The database as a load uses it: one connection.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use rapidbyte_bson::{Builder, Value};
use rapidbyte_document_store::{
    Checkpoint, IdRange, Key, Lease, Naming as _, Opening, Place, Record, Replay, ReplayChange,
    ReplayKey, Right, Store,
};
use rapidbyte_mongo_client::{Client, Cursor, Reply};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::catalog::{self, Collection};
use crate::config::Settings;
use crate::layout::Layout;
use crate::writer::CollectionWriter;
use crate::{checkpoint, ledger, rejects, replay};

/// A connection, and what the load knows of the target.
pub struct Server {
    pub(crate) client: Lent,
    pub(crate) settings: Rc<Settings>,
    known: Known,
    /// The connection is one of an earlier load, and nobody has used it since.
    pub(crate) is_unasked: bool,
    /// The collections after the fence, until `clean` takes them.
    listed: Option<Result<Reply>>,
    /// The target when the load began, if the load has asked for it. Inside, `None`: it did not exist.
    found: Option<Option<Collection>>,
}

/// The target of the last load of the session, with its name, as that load has found it. The next plan takes it instead of
/// asking again. Another client may have changed or dropped the collection meanwhile: the load asks in any case, after its
/// fence, before it writes.
pub(crate) type Known = Rc<Cell<Option<(String, Collection)>>>;

/// A connection that nobody uses.
pub(crate) type Idle = Rc<Cell<Option<Client>>>;

/// A connection that goes back to its place when it is dropped, if it can be used again.
pub struct Lent {
    /// `None` only while it is dropped.
    client: Option<Client>,
    idle: Idle,
}

impl Lent {
    pub(crate) fn new(client: Client, idle: &Idle) -> Self {
        Self {
            client: Some(client),
            idle: Rc::clone(idle),
        }
    }

    /// Replaces the connection, which does not go back.
    fn replace(&mut self, client: Client) {
        self.client = Some(client);
    }
}

impl Deref for Lent {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it is not dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("it is not dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.idle.set(self.client.take().filter(Client::is_usable));
    }
}

impl Server {
    pub(crate) fn new(client: Lent, settings: &Rc<Settings>, known: &Known) -> Self {
        Self {
            client,
            settings: settings.clone(),
            known: known.clone(),
            is_unasked: false,
            listed: None,
            found: None,
        }
    }
}

fn id(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

impl Store for Server {
    const NAME: &'static str = "dest-mongodb";
    const REPLACES_COLLECTIONS: bool = true;
    // The host gives a load at most 8 MiB of rejects, and counts at least 512 bytes for each: their ids fit in a document.
    const MAX_REPLAYED: usize = usize::MAX;
    type Writer = CollectionWriter;

    fn reconnect(&mut self) -> Result<()> {
        let client = self.settings.connect()?;
        self.client.replace(client);
        Ok(())
    }

    fn fence(&mut self, key: &Key, run: &Run) -> Result<Checkpoint> {
        let mut fenced = ledger::fence(&mut self.client, &self.settings, key, run);
        let may_be_lost =
            |error: &Error| matches!(error.kind, ErrorKind::Connection | ErrorKind::Transient);
        // The server may have ended the connection while nobody used it. A second fence of a run does no harm.
        if std::mem::take(&mut self.is_unasked) && fenced.as_ref().err().is_some_and(may_be_lost) {
            self.reconnect()?;
            fenced = ledger::fence(&mut self.client, &self.settings, key, run);
        }
        let (found, listed) = fenced?;
        self.listed = Some(listed);
        Ok(found)
    }

    fn checkpoint(&mut self, key: &Key) -> Result<Option<Checkpoint>> {
        checkpoint::look(&mut self.client, &self.settings, key)
    }

    fn checkpoints(&mut self, pipeline: &str) -> Result<Vec<Checkpoint>> {
        checkpoint::of_pipeline(&mut self.client, &self.settings, pipeline)
    }

    fn swap(
        &mut self,
        key: &Key,
        from: &Checkpoint,
        to: &Checkpoint,
    ) -> Result<Option<Checkpoint>> {
        ledger::swap(&mut self.client, &self.settings, key, (from, to))
    }

    fn delete_ranges(&mut self, collection: &str, ranges: &[IdRange]) -> Result<u64> {
        let _phase = phase::enter(Kind::Query);
        let mut deletes = Vec::new();
        for (begin, end) in ranges {
            let (begin, end) = (begin.bytes(), end.bytes());
            let mut entry = Builder::onto(deletes);
            entry
                .open_document("q")
                .open_document("_id")
                .value("$gte", &id(&begin))
                .value("$lt", &id(&end))
                .close()
                .close()
                .int32("limit", 0);
            deletes = entry.finish().map_err(Error::internal)?;
        }
        let mut command = Builder::new();
        command
            .string("delete", collection)
            .boolean("ordered", false);
        self.settings.add_write_concern(&mut command);
        let database = &self.settings.database;
        let written = self.client.write(database, command, "deletes", &deletes)?;
        ledger::ensure_deleted(written)
    }

    fn clean(&mut self, collection: &str, lease: &Lease) -> Result<()> {
        let listed = self.listed.take();
        let listed = listed.ok_or_else(|| Error::internal("a load that has not fenced"))?;
        let (client, settings) = (&mut self.client, &self.settings);
        let of_load = (lease.checkpoint.tag, collection);
        let found = catalog::drop_staging(client, settings, Cursor::of(listed?)?, of_load)?;
        let known = found.clone().map(|found| (collection.to_owned(), found));
        self.known.set(known);
        self.found = Some(found);
        Ok(())
    }

    fn open(&mut self, opening: &Opening<'_>) -> Result<CollectionWriter> {
        let Opening {
            target,
            collection,
            cursor,
            right,
            rejects,
        } = *opening;
        let schema = target.arrow_schema()?;
        let layout = Layout::new(target, &schema, self.settings.encode)?;
        let (client, settings) = (&mut self.client, &self.settings);
        let found = match self.found.take() {
            Some(found) => found,
            None => catalog::look(client, settings, collection)?,
        };
        let namespace = settings.namespace(collection);
        match &found {
            Some(found) => found.ensure_writable(&namespace, target.write_mode)?,
            None if cursor.is_some() => {
                let text = format!("{namespace} does not exist, and the stream has a cursor");
                return Err(Error::schema("target_missing", text)
                    .hint(rapidbyte_document_store::READ_AGAIN));
            }
            None => {}
        }
        if let Some(to) = rejects {
            rejects::make(client, settings, to)?;
        }
        // A replay adds to the rows that are there.
        let lease = match right {
            Right::Lease(lease) => Some(&lease.checkpoint),
            Right::Replay(_) => None,
        };
        let replaces = target.write_mode == WriteMode::Replace && cursor.is_none();
        // Nothing is visible before the commit where no other document can be in the way.
        let stages = replaces || found.is_none();
        let staging = match lease.filter(|_| stages) {
            None => None,
            Some(lease) => {
                let name = catalog::staging_name(lease.tag, lease.epoch);
                catalog::make_staging(client, settings, &name, (collection, found.as_ref()))?;
                failpoint("dest-mongodb.staging_made")?;
                Some((name, replaces))
            }
        };
        // A replay writes to the collection itself.
        if found.is_none() && staging.is_none() {
            let mut command = Builder::new();
            command.string("create", collection);
            settings.add_write_concern(&mut command);
            if let Err(error) = client.command(&settings.database, command)
                && catalog::look(client, settings, collection)?.is_none()
            {
                return Err(error);
            }
        }
        Ok(CollectionWriter::new(
            self,
            (collection, target.write_mode),
            layout,
            staging,
        ))
    }

    fn encode_reject(record: &Record<'_>) -> Result<Vec<u8>> {
        rejects::encode(record)
    }

    fn add_rejects(&mut self, to: &ReplayKey, documents: Vec<Vec<u8>>) -> Result<()> {
        rejects::add(&mut self.client, &self.settings, &to.to, &documents)
    }

    fn delete_rejects(&mut self, from: &ReplayKey, ids: &[Vec<u8>]) -> Result<()> {
        replay::remove(&mut self.client, &self.settings, from, ids)
    }

    fn count_unchanged(
        &mut self,
        of: &ReplayKey,
        stream: &str,
        rejects: &[(&Place, &str)],
    ) -> Result<usize> {
        replay::count_unchanged(&mut self.client, &self.settings, (&of.to, stream), rejects)
    }

    fn replay(&mut self, key: &ReplayKey) -> Result<Option<Replay>> {
        replay::look(&mut self.client, &self.settings, key)
    }

    fn change_replay(
        &mut self,
        key: &ReplayKey,
        from: &Replay,
        change: &ReplayChange<'_>,
    ) -> Result<Option<Replay>> {
        replay::change(&mut self.client, &self.settings, key, (from, change))
    }
}
