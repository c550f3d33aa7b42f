//! Writes to indices of OpenSearch and Elasticsearch by bulk requests, each stream with a checkpoint that moves last.
//!
//! A change of one document is atomic, and nothing else is: rows get an `_id` that says whose they are, so that the next
//! run finds and deletes the rows of an attempt that failed. The steps are those of `rapidbyte-document-store`; how values
//! become JSON is `rapidbyte-formats`.

mod bulk;
mod client;
mod config;
mod error;
mod index;
mod layout;
mod ledger;
mod mapping;
mod plan;
mod points;
mod rejects;
mod replay;
mod search;
mod server;
mod writer;

use std::rc::Rc;

use rapidbyte_document_store::{Destined, DocumentLoad, Naming as _};
use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;

use client::{Call, Verb};
use config::Settings;
pub use config::{Config, JsonFields, NullFields, Refresh, Strings};
use layout::id_of;
use plan::Place;
pub use points::POINTS;
pub use server::Server;

/// The oldest versions with everything that a load needs: `unsigned_long`, and changes by `if_seq_no`.
const OLDEST_OPENSEARCH: (u32, u32) = (2, 8);
const OLDEST_ELASTICSEARCH: (u32, u32) = (7, 10);

/// The connector, opened with one configuration.
pub struct OpenSearch {
    settings: Rc<Settings>,
    /// Which stream each index belongs to, in this session.
    owners: Owners,
    /// The server is one of those that the connector knows.
    is_known: bool,
}

impl Destination for OpenSearch {
    type Config = Config;
    type Load = DocumentLoad<Server>;
    const NAME: &str = "dest-opensearch";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes to indices of OpenSearch and Elasticsearch";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const SUPPORTS_REJECTS: bool = true;
    const NAMES_TARGETS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: Rc::new(config.settle()?),
            owners: Owners::default(),
            is_known: false,
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let mut server = Server::new(&self.settings).impatient();
        let connect = format!("connect {}", self.settings.cluster.shown());
        let mut items = Vec::new();
        match version_of(&server) {
            Ok(version) => items.push(CheckItem::ok(connect, version)),
            Err(error) => return Ok(vec![CheckItem::failed(connect, error)]),
        }
        let name = self.settings.checkpoint_index.clone();
        let item = format!("index {name}");
        items.push(match server.index(&name) {
            Ok(Some(_)) => CheckItem::ok(item, "has checkpoints"),
            Ok(None) => CheckItem::ok(item, "does not exist yet"),
            Err(error) => CheckItem::failed(item, error),
        });
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let settings = self.settings.clone();
        let index = settings.own_name_of(target, &self.owners)?;
        let schema = target.arrow_schema()?;
        let rejects = settings.rejects_of(target, &index)?;
        let id_of = id_of(target, &schema)?;
        let mut server = Server::new(&settings);
        self.ensure_known(&server)?;
        let found = index::look(&server.client, &index)?;
        let is_new = match &found {
            None => true,
            Some(found) => index::is_empty(&server.client, &found.name)?,
        };
        let place = Place::of(target, &index, found, true);
        let decided = plan::decide(target, &schema, &settings, &id_of, &place)?;
        let mut notes = plan::notes(target, &settings, &id_of, &place);
        notes.extend(decided.notes);
        if let Some(to) = rejects {
            notes.push(format!("rows that are refused are kept in {to}"));
        }
        let mut statements = Vec::new();
        match &place {
            Place::New => statements.push(format!("create {index}")),
            Place::Filled(_) => statements.push(format!("create an index for {index}")),
            Place::There(found) if !decided.properties.is_empty() => {
                let names: Vec<&str> = decided.properties.keys().map(String::as_str).collect();
                statements.push(format!(
                    "add fields to {}: {}",
                    found.name,
                    names.join(", ")
                ));
            }
            Place::There(_) => {}
        }
        let checkpoints = &settings.checkpoint_index;
        if server.index(checkpoints)?.is_none() {
            statements.push(format!("create {checkpoints}"));
        }
        Ok(Plan {
            location: index,
            columns: decided.columns,
            statements,
            notes,
            is_new,
            new_columns: decided.added,
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        failpoint("dest-opensearch.asked")?;
        let key = self.settings.key_of(target, pipeline)?;
        let found = ledger::look(&self.settings.client(), &self.settings, &key)?;
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
        let index = settings.own_name_of(target, &self.owners)?;
        let to = Destined {
            key: settings.key_of(target, &run.pipeline)?,
            rejects: settings.rejects_of(target, &index)?,
            collection: index,
        };
        let server = Server::new(&settings);
        self.ensure_known(&server)?;
        DocumentLoad::begin(server, target, run, to)
    }
}

impl OpenSearch {
    /// Errors: `opensearch_version`.
    fn ensure_known(&mut self, server: &Server) -> Result<()> {
        if !self.is_known {
            version_of(server)?;
            self.is_known = true;
        }
        Ok(())
    }
}

/// The name and the version of the server. Errors: `opensearch_version`, `protocol_violation`.
fn version_of(server: &Server) -> Result<String> {
    #[derive(Deserialize)]
    struct Root {
        version: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        /// Elasticsearch does not say it.
        #[serde(default)]
        distribution: Option<String>,
        number: String,
    }
    let call = Call::new(Verb::Get, "", "ask for the version");
    let answer = server.client.ask(&call)?;
    let path = server.client.path();
    let root: Root = answer.read().map_err(|error| match path {
        "/" => error,
        // A proxy may need the path. A cluster takes it for an index, or refuses it.
        path => Error {
            kind: ErrorKind::Config,
            ..error
                .hint(format!(
                    "url has the path {path}, which stands before each request: remove it, unless a proxy needs it"
                ))
                .at("config.url")
        },
    })?;
    let Version {
        distribution,
        number,
    } = root.version;
    let (name, oldest) = match distribution.as_deref() {
        Some("opensearch") => ("OpenSearch", OLDEST_OPENSEARCH),
        _ => ("Elasticsearch", OLDEST_ELASTICSEARCH),
    };
    let mut parts = number.split('.').map_while(|part| part.parse().ok());
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    match version >= oldest {
        true => Ok(format!("{name} {number}")),
        false => {
            let text = format!("the server is {name} {number}");
            Err(Error::config("opensearch_version", text)
                .hint(format!(
                    "use OpenSearch {}.{} or later, or Elasticsearch {}.{} or later",
                    OLDEST_OPENSEARCH.0,
                    OLDEST_OPENSEARCH.1,
                    OLDEST_ELASTICSEARCH.0,
                    OLDEST_ELASTICSEARCH.1
                ))
                .at("config.url"))
        }
    }
}

rapidbyte_sdk::export_destination!(OpenSearch);
