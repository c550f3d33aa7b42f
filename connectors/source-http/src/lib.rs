//! Reads REST APIs: the configuration declares where the records are, and JSON becomes rows.
//!
//! [`Config`] is the operator's configuration. `client` makes the requests (credentials, rates, retries), `page` and `walk`
//! go from page to page, `read` makes rows of their records, and `cursor` asks for new records. The crate
//! `rapidbyte-formats` makes columns of JSON: a value that its column cannot hold is an error with page and record, and
//! no number loses a digit.

mod basic;
mod client;
mod config;
mod cursor;
mod following;
mod json;
mod known;
mod page;
mod read;
mod settings;
mod walk;

use std::collections::HashMap;

use rapidbyte_formats::Limits;
use rapidbyte_json_columns::{Known, Sample};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{counted, ipc};

use client::Client;
pub use config::Config;
use cursor::Tracker;
use following::Following;
use known::columns;
pub use read::Rows;
use settings::Settled;
use walk::Walk;

/// The connector, opened with one configuration.
pub struct Api {
    client: Client,
    streams: Vec<Settled>,
    sample: Sample,
    /// The columns of each stream, or the reason why the stream cannot be read.
    known: HashMap<String, Result<Known>>,
}

impl Source for Api {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-http";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads REST APIs that answer with JSON";
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];
    const SUPPORTS_REJECTS: bool = true;

    fn open(config: Config) -> Result<Self> {
        let (server, streams, sample) = config.settle()?;
        Ok(Self {
            client: Client::new(server),
            streams,
            sample,
            known: HashMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let streams = self.streams.clone();
        let items = streams.into_iter().map(|stream| {
            let name = format!("read {}", stream.name);
            let first = Walk::new(self.client.clone(), stream, None).next_page();
            match first {
                Ok(lines) => {
                    let records = lines.unwrap_or_default();
                    let records = records.iter().filter(|byte| **byte == b'\n').count();
                    CheckItem::ok(
                        name,
                        format!("{} on the first page", counted(records, "record")),
                    )
                }
                Err(error) => CheckItem::failed(name, error),
            }
        });
        Ok(items.collect())
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let streams = self.streams.clone();
        let found = streams.into_iter().map(|stream| {
            let known = match self.known(&stream) {
                Ok(known) => known,
                Err(error) if is_of_stream(&error) => {
                    return Stream::unreadable(&stream.name, &error);
                }
                Err(error) => return Err(error),
            };
            let mut found = Stream::new(&stream.name, &known.schema)?;
            found.source_types = vec![JSON_VALUE.into(); known.schema.fields().len()];
            if known.inferred {
                found.inferred = columns(&stream).inferred_names(&known.schema);
            }
            found.notes = known.notes;
            found.primary_key = stream.primary_key;
            let cursor = stream.incremental.map(|cursor| cursor.field);
            found.cursor_fields = cursor.into_iter().collect();
            Ok(found)
        });
        found.collect()
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        for selection in streams {
            let stream = self.stream(&selection.stream)?;
            // A stream that cannot resume is refused before the first row of any stream.
            tracker(
                &stream,
                selection.increment.as_ref(),
                selection.cursor.as_deref(),
            )?;
            self.known(&stream)?;
        }
        Ok(String::new())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        let stream = self.stream(&request.stream)?;
        let increment = request.increment.as_ref();
        let tracker = tracker(&stream, increment, request.cursor.as_deref())?;
        let known = self.planned(&stream, request)?;
        let limits = Limits {
            batch_bytes: request.batch_bytes as usize,
            // More than memory is no limit.
            max_record_bytes: usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let following = Following::new(&stream, &known, request);
        let walk =
            Walk::new(self.client.clone(), stream, tracker).with_columns(known.schema.clone());
        let columns = columns(walk.settled());
        let decoder = columns.decoder(known, request.columns.as_deref(), limits);
        let decoder = decoder.map_err(|error| walk.refuse(error))?;
        let decoder = match request.keeps_rejects {
            true => decoder.keep_rejects(),
            false => decoder,
        };
        Ok(Rows::new(walk, decoder)
            .following(following)
            .replaying(request.records.clone()))
    }
}

impl Api {
    fn stream(&self, name: &str) -> Result<Settled> {
        let found = self.streams.iter().find(|stream| stream.name == name);
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.streams.iter().map(|s| s.name.as_str()).collect();
            Error::config(
                "unknown_stream",
                format!("the stream {name} does not exist"),
            )
            .hint(format!(
                "use a stream of config.streams: {}",
                names.join(", ")
            ))
            .in_stream(name)
        })
    }

    /// The columns that the host planned with: inferred columns are not inferred again.
    fn planned(&mut self, stream: &Settled, request: &ReadRequest) -> Result<Known> {
        let schema = ipc::decode_schema(&request.schema)?;
        if stream.schema.is_some() || schema.fields().is_empty() {
            return self.known(stream);
        }
        Ok(Known {
            schema: schema.into(),
            notes: Vec::new(),
            inferred: true,
        })
    }

    fn known(&mut self, stream: &Settled) -> Result<Known> {
        if let Some(known) = self.known.get(&stream.name) {
            return known.clone();
        }
        let mut walk = Walk::new(self.client.clone(), stream.clone(), None);
        let known = columns(stream).know(&mut walk, self.sample);
        let known = known.map_err(|error| error.in_stream(&stream.name));
        self.known.insert(stream.name.clone(), known.clone());
        known
    }
}

/// The source's name of every type.
const JSON_VALUE: &str = "json value";

/// Whether the other streams can be read. They are not asked for while the server is away, asks to wait, or lets nobody
/// in.
fn is_of_stream(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Transient => error.code == "http_unavailable",
        ErrorKind::Auth => error.code == "http_unauthorized",
        ErrorKind::Config => error.code != "network_not_granted",
        ErrorKind::Data | ErrorKind::Schema => true,
        _ => false,
    }
}

/// Follows an incremental stream; nothing for a full refresh.
fn tracker(
    stream: &Settled,
    increment: Option<&Increment>,
    cursor: Option<&str>,
) -> Result<Option<Tracker>> {
    let Some(increment) = increment else {
        return Ok(None);
    };
    let Some(asked) = &stream.incremental else {
        let text = "the configuration does not say how to ask the server for new records";
        return Err(Error::config("no_cursor", text)
            .hint(
                "add incremental: { cursor_field: …, param: … } to the stream, or set \
                 sync_mode: full_refresh",
            )
            .in_stream(&stream.name));
    };
    Tracker::new(asked, increment, cursor)
        .map(Some)
        .map_err(|error| error.in_stream(&stream.name))
}

rapidbyte_sdk::export_source!(Api);
