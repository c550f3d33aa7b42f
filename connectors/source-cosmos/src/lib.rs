//! Reads containers and queries of Azure Cosmos DB (API for NoSQL).
//!
//! [`Config`] is the operator's configuration. `pages` asks for the pages of a query, `known` finds the columns, and [`Rows`]
//! is one read. How requests travel is the crate `rapidbyte-cosmos`; `rapidbyte-formats` makes rows of documents.

mod config;
mod increment;
mod known;
mod pages;
mod read;

use std::collections::HashMap;

use rapidbyte_cosmos::Client;
use rapidbyte_formats::Limits;
use rapidbyte_json_columns::Known;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{counted, ipc};

pub use config::{Config, Nested, StreamConfig};
use config::{Settings, Settled};
use increment::Tracker;
use known::{columns, know};
use pages::{MAX_KEPT_BYTES, Pages};
pub use read::Rows;

/// The source's name of every type.
const JSON_VALUE: &str = "json value";

/// The connector, opened with one configuration.
pub struct Cosmos {
    settings: Settings,
    /// The columns of each stream, or the reason why the stream cannot be read.
    known: HashMap<String, Result<Known>>,
    /// The pages that the columns of a stream were inferred from. Its first read begins with them.
    sampled: HashMap<String, Pages>,
}

impl Source for Cosmos {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-cosmos";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads containers of Azure Cosmos DB";
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];
    const SUPPORTS_FILTER: bool = true;
    const SUPPORTS_REJECTS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: config.settle()?,
            known: HashMap::new(),
            sampled: HashMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let connect = format!("connect {}", self.settings.account.shown());
        let mut client = self.client();
        if let Err(error) = client.find_database() {
            return Ok(vec![CheckItem::failed(connect, error)]);
        }
        let database = &self.settings.account.database;
        let name = format!("list the containers of {database}");
        let listed = match client.containers() {
            Ok(found) => CheckItem::ok(name, counted(found.len(), "container")),
            Err(error) => CheckItem::failed(name, error),
        };
        Ok(vec![
            CheckItem::ok(connect, format!("has {database}")),
            listed,
        ])
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        self.known.clear();
        self.sampled.clear();
        let mut names: Vec<String> = self.settings.streams.keys().cloned().collect();
        let containers = match &self.settings.containers {
            Some(containers) => containers.clone(),
            None => self.client().containers()?,
        };
        for name in containers {
            // dest-cosmos keeps its cursors beside the user's containers.
            if !names.contains(&name) && !name.starts_with("_rapidbyte_") {
                names.push(name);
            }
        }
        names.sort();
        let streams = names.into_iter().map(|name| {
            let stream = self.stream(&name);
            let known = match self.known(&stream) {
                Ok(known) => known,
                // The other streams can be read.
                Err(error) if is_of_stream(&error) => return Stream::unreadable(&name, &error),
                Err(error) => return Err(error),
            };
            let mut found = Stream::new(&name, &known.schema)?;
            found.source_types = vec![JSON_VALUE.into(); known.schema.fields().len()];
            if known.inferred {
                found.inferred = columns(&stream).inferred_names(&known.schema);
            }
            if !stream.has_query {
                found.cursor_fields = increment::candidates(&known.schema);
            }
            found.notes = known.notes;
            Ok(found)
        });
        streams.collect()
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        for selection in streams {
            let checked = self.check_selection(selection);
            checked.map_err(|error| error.in_stream(&selection.stream))?;
        }
        Ok(String::new())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        let stream = self.stream(&request.stream);
        let planned = ipc::decode_schema(&request.schema)?;
        let known = match stream.schema.is_some() || planned.fields().is_empty() {
            true => self.known(&stream)?,
            // Inferred columns are not inferred again.
            false => Known {
                schema: planned.into(),
                notes: Vec::new(),
                inferred: true,
            },
        };
        let limits = Limits {
            batch_bytes: request.batch_bytes as usize,
            // More than memory is no limit.
            max_record_bytes: usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let filter = filter_of(&stream, request.filter.as_deref())?;
        let tracker = match (&request.increment, &request.records) {
            (Some(increment), None) => {
                let tracker = self.tracker(&stream, increment, &known, request.cursor.as_deref());
                let mut tracker = tracker.map_err(|error| error.in_stream(&stream.name))?;
                tracker.begin(|| self.client().server_seconds())?;
                Some(tracker)
            }
            _ => None,
        };
        // The pages of a sample are all documents, as they were before the read began.
        let sampled = match request.records.is_some() || filter.is_some() || tracker.is_some() {
            true => None,
            false => self.sampled.remove(&stream.name),
        };
        let sampled = sampled.filter(|pages| !pages.are_old());
        let pages = sampled.unwrap_or_else(|| self.pages(&stream, filter, tracker));
        let decoder = columns(&stream).decoder(known, request.columns.as_deref(), limits);
        let decoder = decoder
            .map_err(|error| read::refuse(error, &pages, &stream).in_stream(&stream.name))?;
        let decoder = match request.keeps_rejects {
            true => decoder.keep_rejects(),
            false => decoder,
        };
        let pages = match request.records.is_some() {
            true => pages,
            false => pages.reading_ahead(),
        };
        Ok(Rows::new(stream, pages, decoder, request.records.clone()))
    }
}

impl Cosmos {
    fn client(&self) -> Client {
        Client::new(&self.settings.account)
    }

    /// The settings of a stream: each container is one.
    fn stream(&self, name: &str) -> Settled {
        let found = self.settings.streams.get(name).cloned();
        found.unwrap_or_else(|| Settings::plain(name))
    }

    /// Refuses a selection that cannot be read. A condition of the operator is tried, because only the server reads it.
    fn check_selection(&mut self, selection: &Selection) -> Result<()> {
        let stream = self.stream(&selection.stream);
        let filter = filter_of(&stream, selection.filter.as_deref())?;
        let known = self.known(&stream)?;
        if let Some(increment) = &selection.increment {
            self.tracker(&stream, increment, &known, selection.cursor.as_deref())?;
        }
        match filter {
            Some(_) => self.pages(&stream, filter, None).try_query(&stream),
            // The columns come from the query itself, unless they are declared.
            None if stream.has_query && stream.schema.is_some() => {
                self.pages(&stream, None, None).try_query(&stream)
            }
            None => Ok(()),
        }
    }

    /// Errors: of [`Tracker::new`]; `filter_refused`.
    fn tracker(
        &self,
        stream: &Settled,
        increment: &Increment,
        known: &Known,
        cursor: Option<&str>,
    ) -> Result<Tracker> {
        if stream.has_query {
            let text = "the stream has a query of its own, to which the condition of an incremental read cannot be added";
            return Err(Error::config("filter_refused", text)
                .hint("remove sync_mode: incremental, or read the container with where: instead of a query"));
        }
        Tracker::new(increment, &known.schema, cursor)
    }

    fn pages(&self, stream: &Settled, filter: Option<&str>, tracker: Option<Tracker>) -> Pages {
        let Settings {
            page_items,
            system_fields,
            ..
        } = self.settings;
        let options = (page_items, system_fields);
        Pages::new(self.client(), stream, filter, tracker, options)
    }

    /// The error of a stream's first pages, at the key of the pipeline file that has to change.
    fn explain(&self, error: Error, stream: &Settled) -> Error {
        match error.code.as_str() {
            "cosmos_not_found" => {
                let Settings { account, .. } = &self.settings;
                let text = format!(
                    "{} does not exist: the server answers 404",
                    account.namespace(&stream.container)
                );
                let has = match self.client().containers() {
                    Ok(names) => {
                        format!("the database {} has {}", account.database, some_of(&names))
                    }
                    Err(_) => format!(
                        "check the names of the database {} and of the container",
                        account.database
                    ),
                };
                let error = Error::config("cosmos_not_found", text).hint(has);
                match self.settings.key_of_container(stream) {
                    Some(key) => error.at(key),
                    None => error,
                }
            }
            "unknown_column" => {
                let column = error.column.clone().unwrap_or_default();
                error.at(format!(
                    "config.streams[{:?}].types[{column:?}]",
                    stream.name
                ))
            }
            "jsonl_not_an_object" if stream.has_query => pages::no_objects(stream),
            _ => error,
        }
    }

    fn known(&mut self, stream: &Settled) -> Result<Known> {
        if let Some(known) = self.known.get(&stream.name) {
            return known.clone();
        }
        let mut pages = self.pages(stream, None, None).keeping();
        let known = know(&mut pages, stream, self.settings.sample_documents);
        let known = known.map_err(|error| self.explain(error, stream).in_stream(&stream.name));
        let held: usize = self.sampled.values().map(Pages::kept_bytes).sum();
        if known.is_ok() && held + pages.kept_bytes() <= MAX_KEPT_BYTES {
            self.sampled
                .extend(pages.again().map(|pages| (stream.name.clone(), pages)));
        }
        self.known.insert(stream.name.clone(), known.clone());
        known
    }
}

/// Names that a hint shows.
const SHOWN_NAMES: usize = 20;

/// The first names.
fn some_of(names: &[String]) -> String {
    let shown = names[..names.len().min(SHOWN_NAMES)].join(", ");
    match names.len().saturating_sub(SHOWN_NAMES) {
        0 if names.is_empty() => "no container".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The condition of a stream. Errors: `filter_refused`, `invalid_where`.
fn filter_of<'a>(stream: &Settled, filter: Option<&'a str>) -> Result<Option<&'a str>> {
    match filter {
        Some(_) if stream.has_query => {
            let text = "the stream has a query of its own, to which no condition can be added";
            Err(Error::config("filter_refused", text)
                .hint("put the condition into the query, and remove where:")
                .in_stream(&stream.name))
        }
        Some(filter) if filter.trim_start().starts_with('{') => {
            let text = "where: is a query document, which is a value and no condition here";
            Err(Error::config("invalid_where", text)
                .hint("write a condition in the language of Cosmos DB, such as c.total > 100")
                .in_stream(&stream.name))
        }
        filter => Ok(filter),
    }
}

/// Whether the other streams can be read.
fn is_of_stream(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Data | ErrorKind::Schema)
        || matches!(
            error.code.as_str(),
            "cosmos_not_found" | "invalid_query" | "unknown_column"
        )
}

rapidbyte_sdk::export_source!(Cosmos);
