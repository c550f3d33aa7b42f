//! Writes to containers of Azure Cosmos DB (API for NoSQL), each stream with a checkpoint that moves last.
//!
//! A transaction of Cosmos DB has one partition, so none here has more than the documents of one request: rows get an id
//! that says whose they are, so that the next run finds and deletes the rows of an attempt that failed. How requests
//! travel is the crate `rapidbyte-cosmos`, how values become JSON `rapidbyte-formats`.

mod config;
mod container;
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
use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;

use config::Settings;
pub use config::{Config, Decimals, Integers, JsonFields, NullFields};
use container::ensure_partition_key;
use layout::id_of;
pub use points::POINTS;
pub use server::Server;

/// The connector, opened with one configuration.
pub struct Cosmos {
    settings: Rc<Settings>,
    /// Which stream each container belongs to, in this session.
    owners: Owners,
    /// Writes go to one region, so that their conditions hold.
    is_one_region: bool,
    /// The account, while no load asks it: containers that were found are not looked for again.
    idle: Option<Server>,
}

impl Destination for Cosmos {
    type Config = Config;
    type Load = DocumentLoad<Server>;
    const NAME: &str = "dest-cosmos";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes to containers of Azure Cosmos DB";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const SUPPORTS_REJECTS: bool = true;
    const NAMES_TARGETS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: Rc::new(config.settle()?),
            owners: Owners::default(),
            is_one_region: false,
            idle: None,
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let mut server = Server::new(&self.settings);
        let connect = format!("connect {}", self.settings.account.shown());
        let mut items = Vec::new();
        match self.ensure_one_region(&mut server) {
            Ok(()) => items.push(CheckItem::ok(connect, "one region takes writes")),
            Err(error) => return Ok(vec![CheckItem::failed(connect, error)]),
        }
        let name = format!("database {}", self.settings.account.database);
        if let Err(error) = server.client.find_database() {
            items.push(CheckItem::failed(name, error));
            return Ok(items);
        }
        items.push(
            match server.container(&self.settings.checkpoint_container) {
                Ok(Some(_)) => CheckItem::ok(name, "has checkpoints"),
                Ok(None) => CheckItem::ok(name, "does not have checkpoints yet"),
                Err(error) => CheckItem::failed(name, error),
            },
        );
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let settings = self.settings.clone();
        let container = settings.own_name_of(target, &self.owners)?;
        let schema = target.arrow_schema()?;
        let rejects = settings.rejects_of(target, &container)?;
        let id_of = id_of(target, &schema)?;
        let columns = plan::columns(&schema, &settings, &id_of);
        let mut server = self.server();
        self.ensure_one_region(&mut server)?;
        let found = server.container(&container)?;
        match &found {
            Some(found) => ensure_partition_key(&settings, found)
                .map_err(|error| error.in_stream(&target.stream))?,
            None => {
                server.client.find_database()?;
                plan::ensure_partition_column(&schema, &settings)
                    .map_err(|error| error.in_stream(&target.stream))?;
            }
        }
        let mut notes = plan::notes(target, &settings, &id_of, found.as_ref());
        if let Some(to) = rejects {
            let to = settings.namespace(&to);
            notes.push(format!("rows that are refused are kept in {to}"));
        }
        let namespace = settings.namespace(&container);
        let mut statements = Vec::new();
        if found.is_none() {
            statements.push(format!("create {namespace}"));
        }
        let checkpoints = &settings.checkpoint_container;
        if server.container(checkpoints)?.is_none() {
            statements.push(format!("create {}", settings.namespace(checkpoints)));
        }
        let is_new = found.is_none() || server.is_empty(&container)?;
        self.idle = Some(server);
        Ok(Plan {
            location: namespace,
            columns,
            statements,
            notes,
            is_new,
            new_columns: Vec::new(),
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        failpoint("dest-cosmos.asked")?;
        let key = self.settings.key_of(target, pipeline)?;
        let mut server = self.server();
        let checkpoints = server.container(&self.settings.checkpoint_container)?;
        let found = match checkpoints {
            Some(_) => ledger::look(&mut server.client, &self.settings, &key)?,
            None => None,
        };
        self.idle = Some(server);
        Ok(found.map(|found| found.progress(None)))
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let mut server = Server::new(&self.settings);
        rejects::page(&mut server, (to, pipeline), after, with_data)
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Self::Load, Progress)> {
        let settings = self.settings.clone();
        let container = settings.own_name_of(target, &self.owners)?;
        let to = Destined {
            key: settings.key_of(target, &run.pipeline)?,
            rejects: settings.rejects_of(target, &container)?,
            collection: container,
        };
        let mut server = self.server();
        self.ensure_one_region(&mut server)?;
        DocumentLoad::begin(server, target, run, to)
    }
}

impl Cosmos {
    fn server(&mut self) -> Server {
        let settings = &self.settings;
        self.idle.take().unwrap_or_else(|| Server::new(settings))
    }

    /// Errors: `cosmos_multi_write`.
    fn ensure_one_region(&mut self, server: &mut Server) -> Result<()> {
        if self.is_one_region {
            return Ok(());
        }
        if server.client.writes_anywhere()? {
            let text = "the account takes writes in several regions, so two runs could both commit";
            return Err(Error::config("cosmos_multi_write", text)
                .hint("use an account with one write region")
                .at("config.endpoint"));
        }
        self.is_one_region = true;
        Ok(())
    }
}

rapidbyte_sdk::export_destination!(Cosmos);
