//! Reads CSV, JSON Lines and JSON files, compressed ones too, Parquet and Arrow files.
//!
//! `files` decides which files make which streams, [`Config`] is the operator's configuration, and one read is [`Rows`]
//! for text and [`ColumnRows`] for the others. The crates `rapidbyte-formats` and `rapidbyte-columnar` decode the
//! values and rows of a file.
//!
//! A schema is declared (`schema:`, `schemas:`) or inferred from the beginning of a stream's files. A value that does
//! not fit the schema, or that an inferred type would change, is an error with file and line. If the host follows changes, the source
//! then infers the columns again, from all records of the stream (`following`).

mod columns;
mod committed;
mod config;
mod files;
mod following;
mod known;
mod open;
mod partition;
mod read;
mod sample;
mod settings;
mod times;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_formats::{FormatError, Limits, Owner};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{counted, ipc};

pub use columns::ColumnRows;
pub use config::Config;

use files::FileStream;
use following::Following;
use known::Known;
pub use read::Rows;
use settings::{FileFormat, Settings};

/// The connector, opened with one configuration.
pub struct Files {
    settings: Settings,
    /// The columns of each stream with these files, or the reason why the stream cannot be read.
    known: HashMap<String, (FileStream, Result<Known>)>,
}

impl Source for Files {
    type Config = Config;
    type Reader = FileReader;
    const NAME: &str = "source-file";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads CSV, JSON Lines, JSON, Parquet and Arrow files";
    const SUPPORTS_REJECTS: bool = true;

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
            let schema = self.columns(stream).and_then(|(_, schema)| {
                sample::check_headers(&self.settings, stream)?;
                Ok(schema)
            });
            match schema {
                Ok(schema) => CheckItem::ok(
                    name,
                    [
                        counted(schema.fields().len(), "column"),
                        counted(stream.files.len(), "file"),
                        counted(stream.bytes(), "byte"),
                    ]
                    .join(", "),
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
                let (known, schema) = match self.columns(found) {
                    Ok(known) => known,
                    Err(error) if is_of_stream(&error) => {
                        return Stream::unreadable(&found.name, &error);
                    }
                    Err(error) => return Err(error),
                };
                let mut stream = Stream::new(&found.name, &schema)?;
                stream.source_types = known.source_types;
                let all = schema.fields().len();
                stream.source_types.resize(all, FOLDER_NAME.into());
                stream.estimated_rows = known.rows;
                stream.estimated_bytes = Some(found.bytes());
                if known.inferred {
                    let fields = known.schema.fields().iter();
                    stream.inferred = fields.map(|field| field.name().clone()).collect();
                }
                stream.notes = known.notes;
                stream
                    .notes
                    .extend(found.compression_note(self.settings.compression));
                stream.notes.extend(found.manifest_note());
                Ok(stream)
            })
            .collect()
    }

    /// Files have no moment to fix. Refuses the wanted streams whose columns cannot be found out; a declared schema is
    /// compared with the headers.
    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let settings = &self.settings;
        let is_known = |one: &Selection| matches!(self.known.get(&one.stream), Some((_, Ok(_))));
        let is_inferred = settings.schema.is_none() && settings.schemas.is_empty();
        if is_inferred && settings.partitions.is_none() && streams.iter().all(is_known) {
            return Ok(String::new());
        }
        let is_wanted = |stream: &&FileStream| streams.iter().any(|one| one.stream == stream.name);
        for stream in files::find(&self.settings)?.iter().filter(is_wanted) {
            self.columns(stream)?;
            sample::check_headers(&self.settings, stream)?;
        }
        Ok(String::new())
    }

    fn read(&mut self, request: &ReadRequest) -> Result<FileReader> {
        if request.cursor.is_some() {
            return Err(Error::config(
                "no_cursor",
                "files are read whole, so a stream cannot resume",
            )
            .hint("set sync_mode: full_refresh")
            .in_stream(&request.stream));
        }
        let streams = files::find(&self.settings)?;
        let Some(stream) = streams.iter().find(|s| s.name == request.stream) else {
            return Err(files::unknown_stream(&request.stream, &streams));
        };
        let (known, all) = self.planned(stream, request)?;
        let wanted = request.columns.as_deref();
        let partitions = self.settings.partitions.clone();
        let folders = partitions.map(|partitions| {
            let picked = partitions.pick(&all, wanted);
            (partitions, picked)
        });
        let format = match &self.settings.format {
            FileFormat::Text(format) => format,
            FileFormat::Columns(..) if request.records.is_some() => {
                let text = "only records of CSV, JSON Lines and JSON files can be replayed";
                return Err(Error::config("replay_unsupported", text).in_stream(&request.stream));
            }
            FileFormat::Columns(kind, headers) => {
                let form = columns::Form {
                    kind: *kind,
                    headers: stream.headers(*headers),
                    trusts_metadata: self.settings.trusts_metadata,
                };
                let rows = ColumnRows::new(form, stream, known.schema, request, folders)?;
                return Ok(FileReader::Columns(Box::new(rows)));
            }
        };
        let wanted = match &folders {
            Some((_, picked)) => Some(picked.from_files.as_slice()),
            None => wanted,
        };
        let limits = Limits {
            batch_bytes: request.batch_bytes as usize,
            // More than memory is no limit.
            max_record_bytes: usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX),
            ..Limits::default()
        };
        let following = Following::new(&self.settings, stream, &known, request, limits);
        let decoder = format
            .decoder(known.schema.clone(), wanted, limits)
            .and_then(|decoder| match known.inferred {
                true => Ok(decoder.inferred()),
                false => self.settings.times.apply(decoder, &known.schema),
            })
            .and_then(|decoder| decoder.unknown_keys(self.settings.unknown_keys))
            .map(|decoder| match request.keeps_rejects {
                true => decoder.keep_rejects(),
                false => decoder,
            })
            .map_err(|error| convert(error, &stream.name, None))?;
        let rows = Rows::new(
            stream,
            decoder,
            self.settings.compression,
            limits.max_record_bytes,
        )
        .following(following);
        let rows = match folders {
            Some((partitions, picked)) => rows.with_folders(partitions, picked),
            None => rows,
        };
        let rows = match &request.records {
            Some(records) => rows.replaying(records.clone()),
            None => rows,
        };
        Ok(FileReader::Text(Box::new(rows)))
    }
}

/// Reads the rows of one stream.
pub enum FileReader {
    /// Of text.
    Text(Box<Rows>),
    /// Of columns.
    Columns(Box<ColumnRows>),
}

impl FileReader {
    /// Bytes in memory that depend on the data, as far as they are known: for text the batch so
    /// far and pieces of a file.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Text(rows) => rows.held_bytes(),
            Self::Columns(_) => 0,
        }
    }
}

impl Reader for FileReader {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::Text(rows) => rows.schema(),
            Self::Columns(rows) => rows.schema(),
        }
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        match self {
            Self::Text(rows) => rows.next(wait),
            Self::Columns(rows) => rows.next(wait),
        }
    }
}

impl Files {
    /// The columns of the files and of the folders above them.
    fn all_columns(&self, stream: &FileStream, known: &Known) -> Result<SchemaRef> {
        let Some(partitions) = &self.settings.partitions else {
            return Ok(known.schema.clone());
        };
        // A file in other folders is found before anything is read.
        for (path, _) in &stream.files {
            let values = partitions.values(path);
            values.map_err(|error| error.in_stream(&stream.name))?;
        }
        let all = partitions.add_to(&known.schema);
        all.map_err(|error| error.in_stream(&stream.name))
    }

    /// The same as the host planned with: inferred columns are not inferred again.
    fn planned(
        &mut self,
        stream: &FileStream,
        request: &ReadRequest,
    ) -> Result<(Known, SchemaRef)> {
        if sample::declared(&self.settings, stream).is_some() {
            return self.columns(stream);
        }
        let all = ipc::decode_schema(&request.schema)?;
        if all.fields().is_empty() {
            // It was listed without columns: there is a reason.
            return self.columns(stream);
        }
        let of_files = match &self.settings.partitions {
            Some(partitions) => partitions.take_from(&all),
            None => Arc::new(all),
        };
        let known = Known::new(of_files, Vec::new(), true, "");
        let all = self.all_columns(stream, &known)?;
        Ok((known, all))
    }

    /// The columns of a stream's files, and all columns of the stream, with the columns from folders.
    fn columns(&mut self, stream: &FileStream) -> Result<(Known, SchemaRef)> {
        let known = match self.known.get(&stream.name) {
            Some((of, known)) if of == stream => known.clone(),
            _ => {
                let known = match stream.files.is_empty() {
                    true => Err(files::without_file(&self.settings, &stream.name)),
                    false => sample::know(&self.settings, stream),
                };
                let known = known.map_err(|error| error.in_stream(&stream.name));
                let entry = (stream.clone(), known.clone());
                self.known.insert(stream.name.clone(), entry);
                known
            }
        }?;
        let all = self.all_columns(stream, &known)?;
        Ok((known, all))
    }
}

/// The type of a column from the names of folders.
const FOLDER_NAME: &str = "folder name";

/// Whether the other streams can be read.
fn is_of_stream(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::Connection | ErrorKind::Internal)
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
