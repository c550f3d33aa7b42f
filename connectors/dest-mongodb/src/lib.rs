//! Writes to collections of MongoDB, in bulk, each stream with a checkpoint that moves last.
//!
//! Nothing here needs a transaction: rows get an `_id` that says whose they are, so that the next run finds and deletes
//! the rows of an attempt that failed. How values become BSON is the crate `rapidbyte-mongo`, how documents travel
//! `rapidbyte-mongo-client`.

mod bulk;
mod catalog;
mod checkpoint;
mod config;
mod kept;
mod layout;
mod ledger;
mod plan;
mod points;
mod rejects;
mod replay;
mod server;
mod writer;

use std::rc::Rc;

use rapidbyte_document_store::{Destined, DocumentLoad, Naming as _};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;

use config::Settings;
pub use config::{Config, FineTimes, JsonFields, NullFields};
use layout::{Layout, id_of};
pub use points::POINTS;
pub use server::Server;
use server::{Idle, Known, Lent};

/// The connector, opened with one configuration.
pub struct MongoDb {
    settings: Rc<Settings>,
    /// Which stream each collection belongs to, in this session.
    owners: Owners,
    /// A connection that nobody uses.
    idle: Idle,
    known: Known,
    /// The last plan has not asked the server.
    is_unasked: bool,
}

impl Destination for MongoDb {
    type Config = Config;
    type Load = DocumentLoad<Server>;
    const NAME: &str = "dest-mongodb";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes to collections of MongoDB";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    const NATIVE_FORMS: &[&str] = &[rapidbyte_mongo::NATIVE_FORM];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const SUPPORTS_REJECTS: bool = true;
    const NAMES_TARGETS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: Rc::new(config.settle()?),
            owners: Owners::default(),
            idle: Idle::default(),
            known: Known::default(),
            is_unasked: false,
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let connect = format!("connect {}", self.settings.server);
        let mut client = match self.client() {
            Ok(client) => client,
            Err(error) => return Ok(vec![CheckItem::failed(connect, error)]),
        };
        let hello = client.hello();
        let kind = match &hello.set_name {
            Some(name) => format!("the primary of the replica set {name}"),
            None if hello.is_mongos => "a router of a sharded cluster".to_owned(),
            None => "a server of its own".to_owned(),
        };
        let mut items = vec![CheckItem::ok(connect, kind)];
        let name = format!("database {}", self.settings.database);
        let listed = catalog::look(
            &mut client,
            &self.settings,
            &self.settings.checkpoint_collection,
        );
        items.push(match listed {
            Ok(Some(_)) => CheckItem::ok(name, "has checkpoints"),
            Ok(None) => CheckItem::ok(name, "does not have checkpoints yet"),
            Err(error) => CheckItem::failed(name, error),
        });
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let settings = self.settings.clone();
        let collection = settings.own_name_of(target, &self.owners)?;
        let schema = target.arrow_schema()?;
        let rejects = settings.rejects_of(target, &collection)?;
        let columns = plan::columns(&schema, settings.encode);
        let id_of = id_of(target, &schema)?;
        if columns.iter().all(|column| column.fit != Fit::Refused) {
            Layout::new(target, &schema, settings.encode)?;
        }
        let known = self.known.take().filter(|(name, _)| *name == collection);
        self.is_unasked = known.is_some();
        let found = match known {
            Some((_, found)) => Some(found),
            None => {
                let mut client = self.client()?;
                catalog::look(&mut client, &settings, &collection)?
            }
        };
        let namespace = settings.namespace(&collection);
        if let Some(found) = &found {
            found
                .ensure_writable(&namespace, target.write_mode)
                .map_err(|error| error.in_stream(&target.stream))?;
        }
        let mut notes = plan::notes(target, &settings, &id_of, found.is_none());
        if let Some(to) = rejects {
            let to = settings.namespace(&to);
            notes.push(format!("rows that are refused are kept in {to}"));
        }
        let statements = match (&found, target.write_mode) {
            (None, _) => vec![format!("create {namespace}")],
            (Some(_), _) => Vec::new(),
        };
        Ok(Plan {
            location: namespace,
            columns,
            statements,
            notes,
            is_new: found.is_none(),
            new_columns: Vec::new(),
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        failpoint("dest-mongodb.asked")?;
        let key = self.settings.key_of(target, pipeline)?;
        let mut client = self.client()?;
        let found = checkpoint::look(&mut client, &self.settings, &key)?;
        Ok(found.map(|found| found.progress(None)))
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let mut server = Server::new(self.client()?, &self.settings, &self.known);
        kept::page(&mut server, (to, pipeline), after, with_data)
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Self::Load, Progress)> {
        let settings = self.settings.clone();
        let collection = settings.own_name_of(target, &self.owners)?;
        let to = Destined {
            key: settings.key_of(target, &run.pipeline)?,
            rejects: settings.rejects_of(target, &collection)?,
            collection,
        };
        let mut server = Server::new(self.client()?, &settings, &self.known);
        server.is_unasked = std::mem::take(&mut self.is_unasked);
        DocumentLoad::begin(server, target, run, to)
    }
}

impl MongoDb {
    fn client(&self) -> Result<Lent> {
        let idle = self.idle.take().filter(Client::is_usable);
        let client = idle.map_or_else(|| self.settings.connect(), Ok)?;
        Ok(Lent::new(client, &self.idle))
    }
}

rapidbyte_sdk::export_destination!(MongoDb);
