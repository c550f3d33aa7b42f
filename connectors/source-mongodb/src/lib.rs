//! Reads collections and views of MongoDB.
//!
//! [`Config`] is the operator's configuration. `collection` lists the collections, `known` finds their columns, `query`
//! makes the `find` command of a read, `increment` orders incremental reads, and [`Rows`] is one read. The crate
//! `rapidbyte-mongo` makes rows of documents; `rapidbyte-mongo-client` speaks the protocol.

mod collection;
mod config;
mod error;
mod increment;
mod known;
mod query;
mod read;
mod snapshot;

use std::collections::HashMap;

use rapidbyte_mongo::{Decoder, NATIVE_FORM};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{counted, ipc, log};

use collection::Collection;
pub use config::Config;
use config::{Documents, Settled};
use error::{about, convert, malformed};
use increment::Tracker;
use known::Known;
use query::Query;
pub use read::Rows;
use read::{FIRST_DOCUMENTS, Idle, Limits};
use snapshot::Moment;

/// The connector, opened with one configuration.
pub struct Mongo {
    settings: Settled,
    idle: Idle,
    collections: Option<Vec<Collection>>,
    /// The columns of each collection that was described, in its native form or not; or the reason why it cannot be read.
    known: HashMap<(String, bool), Result<Known>>,
}

impl Source for Mongo {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-mongodb";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads collections and views of MongoDB";
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];
    const NATIVE_FORMS: &'static [&'static str] = &[NATIVE_FORM];
    const SUPPORTS_FILTER: bool = true;
    const SUPPORTS_REJECTS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: config.settle()?,
            idle: Idle::default(),
            collections: None,
            known: HashMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let mut client = match self.client() {
            Ok(client) => client,
            Err(error) => return Ok(vec![CheckItem::failed("connect", error)]),
        };
        let connected = CheckItem::ok("connect", client.host().to_string());
        let name = format!("list the collections of {}", self.settings.database);
        let listed = match collection::list(&mut client, &self.settings) {
            Ok(found) => CheckItem::ok(name, counted(found.len(), "collection")),
            Err(error) => CheckItem::failed(name, error),
        };
        self.give_back(client);
        Ok(vec![connected, listed])
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let native = is_native(forms);
        self.collections = None;
        self.known.clear();
        let collections = self.collections()?.to_vec();
        let streams = collections.iter().map(|collection| {
            match self.known(collection, native) {
                Ok(known) => known::stream(collection, known),
                // The other collections can be read.
                Err(error) if is_of_stream(&error) => Stream::unreadable(&collection.name, &error),
                Err(error) => Err(error),
            }
        });
        streams.collect()
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        for selection in streams {
            let found = self.check_selection(selection);
            found.map_err(|error| about(error, &selection.stream))?;
        }
        let first = streams
            .iter()
            .find(|selection| selection.increment.is_none());
        let Some(first) = first.filter(|_| self.settings.snapshot) else {
            return Ok(String::new());
        };
        let mut client = self.client()?;
        let name = snapshot::take(&mut client, &self.settings.database, &first.stream)?;
        self.give_back(client);
        Ok(name)
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        self.begin(request)
            .map_err(|error| about(error, &request.stream))
    }
}

impl Mongo {
    fn client(&self) -> Result<Client> {
        let idle = self.idle.take().filter(Client::is_usable);
        idle.map_or_else(|| Client::connect(&self.settings.connection), Ok)
    }

    fn give_back(&self, client: Client) {
        if client.is_usable() {
            self.idle.replace(Some(client));
        }
    }

    /// Runs `ask` on a connection.
    fn with<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut client = self.client()?;
        let answer = ask(&mut client);
        self.give_back(client);
        answer
    }

    fn collections(&mut self) -> Result<&[Collection]> {
        if self.collections.is_none() {
            let listed = self.with(|client| collection::list(client, &self.settings))?;
            self.collections = Some(listed);
        }
        Ok(self.collections.as_deref().unwrap_or_default())
    }

    fn known(&mut self, collection: &Collection, native: bool) -> Result<Known> {
        let key = (collection.name.clone(), native);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let documents = self.documents(&collection.name, native);
        let known = documents.and_then(|documents| {
            self.with(|client| known::know(client, &self.settings, collection, documents))
        });
        let known = known.map_err(|error| about(error, &collection.name));
        // Any other error may pass.
        if known.as_ref().err().is_none_or(is_of_stream) {
            self.known.insert(key, known.clone());
        }
        known
    }

    /// The form of a collection's documents. Errors: `mongo_not_native`.
    fn documents(&self, name: &str, native: bool) -> Result<Documents> {
        let documents = self.settings.documents(&self.settings.stream(name), native);
        if documents == Documents::Bson && !native {
            let text = "documents: bson needs a destination that takes MongoDB's own documents";
            let own = self.settings.stream(name).documents.is_some();
            return Err(Error::config("mongo_not_native", text)
                .hint(
                    "write documents: json for the documents as JSON, or remove the key for a column of each field",
                )
                .at(match own {
                    true => format!("config.streams.{name}.documents"),
                    false => "config.documents".to_owned(),
                }));
        }
        Ok(documents)
    }

    /// Refuses a selection that no read can have. Its columns are those of either form that was described; of a
    /// collection that was not, the read checks them. A collection that could not be described is refused with the reason.
    fn check_selection(&mut self, selection: &Selection) -> Result<()> {
        let collection = collection::find(self.collections()?, &selection.stream)?;
        if let Some(filter) = &selection.filter {
            query::parse_filter(filter)?;
        }
        let mut checked = Ok(());
        for native in [false, true] {
            let Some(known) = self.known.get(&(collection.name.clone(), native)) else {
                continue;
            };
            let known = known.as_ref().map_err(Clone::clone);
            checked = known.and_then(|known| check_columns(selection, &known.schema));
            if checked.is_ok() {
                break;
            }
        }
        checked
    }

    fn begin(&mut self, request: &ReadRequest) -> Result<Rows> {
        log::failpoint("source-mongodb.read")?;
        let native = is_native(&request.forms);
        let stream = &request.stream;
        let documents = self.documents(stream, native)?;
        let planned = ipc::decode_schema(&request.schema)?;
        let schema = match planned.fields().is_empty() {
            true => {
                let collection = collection::find(self.collections()?, stream)?;
                self.known(&collection, native)?.schema
            }
            false => planned.into(),
        };
        let chosen = known::chosen(&schema, request.columns.as_deref())?;
        let options = known::decoding(&self.settings, stream, documents, (&schema, &chosen));
        let decoder = Decoder::new(&chosen, options.clone()).map_err(convert)?;
        let increment = request.increment.as_ref();
        let cursor = request.cursor.as_deref();
        let tracker = increment.map(|increment| Tracker::new(increment, &schema, cursor));
        let tracker = tracker.transpose()?;
        let limits = Limits {
            batch_bytes: (request.batch_bytes as usize).max(1),
            max_record_bytes: request.max_record_bytes,
        };
        let is_declared = self.settings.stream(stream).schema.is_some();
        let rows = |decoder, tracker| {
            let rows = Rows::new(stream, decoder, tracker, limits, request.keeps_rejects);
            match is_declared {
                true => rows.declared(),
                false => rows,
            }
        };
        if let Some(records) = &request.records {
            return Ok(rows(decoder, None).replaying(records.clone()));
        }
        let needs_all = known::needs_all(&schema, &chosen, &options, request.columns.is_some());
        let moment = match request.snapshot.is_empty() {
            true => None,
            false => Some(Moment::parse(&request.snapshot)?),
        };
        let mut client = self.client()?;
        let query = Query {
            collection: stream,
            filter: request.filter.as_deref(),
            tracker: tracker.as_ref(),
            fields: match needs_all {
                true => None,
                false => query::fields(&chosen, tracker.as_ref()),
            },
            documents: FIRST_DOCUMENTS,
            read_concern: self.settings.connection.read_concern.as_deref(),
            moment: moment.as_ref(),
            wire_version: client.hello().max_wire_version,
        };
        let found = client.find(&self.settings.database, query.command()?)?;
        let found = match &moment {
            Some(moment) => {
                let more = moment.more()?;
                found.with(rapidbyte_bson::Document::parse(&more).map_err(malformed)?)
            }
            None => found,
        };
        let rows = rows(decoder, tracker);
        Ok(rows.reading(client, found, &self.idle, self.settings.fetch_bytes))
    }
}

fn check_columns(selection: &Selection, schema: &Schema) -> Result<()> {
    known::chosen(schema, selection.columns.as_deref())?;
    if let Some(increment) = &selection.increment {
        Tracker::new(increment, schema, selection.cursor.as_deref())?;
    }
    Ok(())
}

fn is_native(forms: &[String]) -> bool {
    forms.iter().any(|form| form == NATIVE_FORM)
}

/// Whether the other collections can be read.
fn is_of_stream(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Data | ErrorKind::Schema | ErrorKind::Auth | ErrorKind::Config
    )
}

rapidbyte_sdk::export_source!(Mongo);
