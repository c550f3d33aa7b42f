//! Writes to containers of Azure Cosmos DB (API for NoSQL), each stream with a checkpoint that moves last.
//!
//! A transaction of Cosmos DB has one partition, so none here has more than the documents of one request: rows get an id
//! that says whose they are, so that the next run finds and deletes the rows of an attempt that failed. How requests
//! travel is the crate `rapidbyte-cosmos`, how values become JSON `rapidbyte-formats`.

mod config;
mod ids;
mod layout;
mod ledger;
mod load;
mod plan;
mod points;
mod rejects;
mod replay;
mod server;
mod writer;

use std::rc::Rc;

use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;

use config::Settings;
pub use config::{Config, Decimals, Integers, JsonFields, NullFields};
use layout::IdOf;
use ledger::Key;
pub use load::ContainerLoad;
use load::{Right, ensure_partition_key};
pub use points::POINTS;
use rejects::Keeper;
use replay::Claim;
use server::Server;

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
    type Load = ContainerLoad;
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
                Ok(None) => CheckItem::ok(name, "has no checkpoints yet"),
                Err(error) => CheckItem::failed(name, error),
            },
        );
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let settings = self.settings.clone();
        let container = self.own(target)?;
        let schema = target.arrow_schema()?;
        let rejects = rejects::container(&settings, target, &container)?;
        let id_of = IdOf::of(target, &schema)?;
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
        let key = self.key(target, pipeline)?;
        let mut server = self.server();
        let checkpoints = server.container(&self.settings.checkpoint_container)?;
        let found = match checkpoints {
            Some(_) => key.look(&mut server.client, &self.settings)?,
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
        rejects::page(
            &mut server,
            &self.settings,
            (to, pipeline),
            after,
            with_data,
        )
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(ContainerLoad, Progress)> {
        let settings = self.settings.clone();
        let container = self.own(target)?;
        let key = self.key(target, &run.pipeline)?;
        let to = rejects::container(&settings, target, &container)?;
        let mut server = self.server();
        self.ensure_one_region(&mut server)?;
        let claim = Claim::take(&mut server, &settings, target, &run.pipeline, &container)?;
        let (right, progress, first) = match claim {
            Some(claim) => {
                let first = claim.places.iter().map(|place| place.first.clone());
                let first = first.collect();
                (Right::Replay(claim), Progress::unfenced(&run.id), first)
            }
            None => {
                let (lease, progress) = ledger::fence(&mut server, &settings, key, run)?;
                (Right::Lease(lease), progress, Vec::new())
            }
        };
        let namespace = settings.namespace(&container);
        let marks = right.marks();
        let keeper = to.map(|to| Keeper::new(to, run, &target.stream, namespace, marks, first));
        let mut load = ContainerLoad::new(&settings, server, target, container, right, keeper);
        load.clean()?;
        Ok((load, progress))
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

    /// The container of a stream. Errors: `invalid_name`, `shared_target`.
    fn own(&self, target: &Target) -> Result<String> {
        let container = self.settings.container_of(target)?;
        let shown = self.settings.namespace(&container);
        self.owners
            .take(container.clone(), &target.stream, shown)
            .map_err(|error| {
                error
                    .hint("put {stream} into `container:`, or give one of them another name with `target:`")
                    .at("config.container")
            })?;
        Ok(container)
    }

    fn key(&self, target: &Target, pipeline: &str) -> Result<Key> {
        let container = self.settings.container_of(target)?;
        Ok(Key {
            pipeline: pipeline.to_owned(),
            stream: target.stream.clone(),
            target: self.settings.namespace(&container),
        })
    }
}

rapidbyte_sdk::export_destination!(Cosmos);
