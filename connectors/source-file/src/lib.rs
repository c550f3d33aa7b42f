//! Reads CSV and JSON Lines files, compressed ones too.
//!
//! Which files make which streams is the part of `files`, what an operator may say is [`Config`], one
//! read is `Rows`. How values and rows stand in a file is the crate `rapidbyte-formats`.
//!
//! A schema is declared (`schema:`, `schemas:`) or inferred from the beginning of a stream's
//! files. Nothing is inferred while reading: what does not fit the schema, and what an inferred type
//! would change, is an error with file and line.

mod config;
mod files;
mod open;
mod read;
mod sample;

use std::collections::HashMap;

use rapidbyte_formats::{FormatError, Limits, Owner};
use rapidbyte_sdk::prelude::*;

use config::Settings;
pub use config::{Columns, Config};
use files::FileStream;
pub use read::Rows;
use sample::Known;

/// The connector, opened with one configuration.
pub struct Files {
    settings: Settings,
    /// Schemas that were declared or inferred already, by stream.
    known: HashMap<String, Known>,
}

impl Source for Files {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-file";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads CSV and JSON Lines files";

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: config.settle()?,
            known: HashMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let streams = files::find(&self.settings)?;
        let items = streams.iter().map(|stream| {
            let name = format!("read {}", stream.name);
            match self.stream_schema(stream) {
                Ok(known) => CheckItem::ok(
                    name,
                    format!(
                        "{} columns, {} files, {} bytes",
                        known.schema.fields().len(),
                        stream.files.len(),
                        stream.bytes()
                    ),
                ),
                Err(error) => CheckItem::failed(name, error),
            }
        });
        Ok(items.collect())
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let streams = files::find(&self.settings)?;
        streams
            .iter()
            .map(|found| {
                let known = self.stream_schema(found)?;
                let mut stream = Stream::new(&found.name, &known.schema)?;
                let text = match self.settings.format {
                    rapidbyte_formats::Format::Csv(_) => "csv text",
                    rapidbyte_formats::Format::Jsonl => "json value",
                };
                stream.source_types = vec![text.into(); known.schema.fields().len()];
                stream.estimated_bytes = Some(found.bytes());
                stream.notes = known.notes;
                stream
                    .notes
                    .extend(found.compression_note(self.settings.compression));
                Ok(stream)
            })
            .collect()
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        if request.cursor.is_some() {
            return Err(Error::config(
                "no_cursor",
                "files are read whole: there is no place to go on from",
            )
            .hint("sync_mode: full_refresh")
            .in_stream(&request.stream));
        }
        let streams = files::find(&self.settings)?;
        let Some(stream) = streams.iter().find(|s| s.name == request.stream) else {
            return Err(files::unknown_stream(&request.stream, &streams));
        };
        let known = self.stream_schema(stream)?;
        let limits = Limits {
            batch_bytes: request.batch_bytes as usize,
            // More than memory is no limit.
            max_record_bytes: usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let decoder = self
            .settings
            .format
            .decoder(known.schema, request.columns.as_deref(), limits)
            .map_err(|error| convert(error, &stream.name, None))?;
        let decoder = if known.inferred {
            decoder.inferred()
        } else {
            decoder
        };
        Ok(Rows::new(
            stream,
            decoder,
            self.settings.compression,
            limits.max_record_bytes,
        ))
    }
}

impl Files {
    fn stream_schema(&mut self, stream: &FileStream) -> Result<Known> {
        if let Some(known) = self.known.get(&stream.name) {
            return Ok(known.clone());
        }
        let known = sample::know(&self.settings, stream)?;
        self.known.insert(stream.name.clone(), known.clone());
        Ok(known)
    }
}

/// The contract's error for an error of the formats, in a stream and perhaps a file.
fn convert(error: FormatError, stream: &str, path: Option<&str>) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message).in_stream(stream);
    converted.hint = error.hint;
    converted.column = error.column;
    converted.location = match (path, error.line) {
        (Some(path), Some(line)) => Some(format!("{path}:{line}")),
        (Some(path), None) => Some(path.to_owned()),
        (None, _) => None,
    };
    converted
}

rapidbyte_sdk::export_source!(Files);
