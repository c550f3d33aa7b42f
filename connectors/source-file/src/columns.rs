//! Files of columns (Parquet, Arrow): their footers say what the columns are and how many rows
//! there are, and batches come from them one after the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rapidbyte_columnar as columnar;
use rapidbyte_columnar::{ColumnarError, File, Kind, Limits, Owner, ReadAt};
use rapidbyte_formats::csv::Headers;
use rapidbyte_sdk::files::{self, Input};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use rapidbyte_sdk::{last_words, phase};

use crate::files::FileStream;
use crate::known::Known;
use crate::partition::{Partitions, Picked};

/// How the files of a stream are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub kind: Kind,
    pub headers: Headers,
    /// Whether descriptions of columns in their metadata count.
    pub trusts_metadata: bool,
}

/// The columns of a stream. All files must have the columns of the first file, in any order; a column is nullable if it
/// is nullable in one of them. With [`Headers::Union`] a column that a file lacks is NULL in its rows.
pub(crate) fn know(form: Form, stream: &FileStream) -> Result<Known> {
    let mut known: Option<Known> = None;
    for (path, _) in &stream.files {
        let open = OpenFile::open(form, path, &stream.name)?;
        let Some(known) = &mut known else {
            known = Some(Known {
                schema: open.schema.clone(),
                notes: open.file.notes().to_vec(),
                inferred: false,
                source_types: open.file.source_types().to_vec(),
                rows: Some(open.file.rows()),
            });
            continue;
        };
        let before = known.schema.fields().len();
        known.schema = open.merge(&known.schema, form.headers, &stream.files[0].0)?;
        for field in known.schema.fields().iter().skip(before) {
            let here = open.schema.fields().find(field.name());
            let ty = here.and_then(|(place, _)| open.file.source_types().get(place));
            known.source_types.push(ty.cloned().unwrap_or_default());
        }
        // At most a few of each column.
        let new = open.file.notes().iter();
        let new: Vec<_> = new.filter(|note| !known.notes.contains(note)).collect();
        known.notes.extend(new.into_iter().cloned());
        known.rows = known.rows.map(|rows| rows.saturating_add(open.file.rows()));
    }
    // A stream has one file at least.
    known.ok_or_else(|| Error::internal("a stream without files").in_stream(&stream.name))
}

/// Reads the rows of one stream. Holds a page of each column of one file, and a batch.
pub struct ColumnRows {
    form: Form,
    stream: String,
    /// Files that are still to be read, the next one last.
    files: Vec<String>,
    /// The first file, for messages.
    first: String,
    /// All columns.
    schema: SchemaRef,
    limits: Limits,
    /// The wanted columns of the files.
    wanted: SchemaRef,
    open: Option<(OpenFile, rapidbyte_columnar::Reader<Watched>)>,
    folders: Option<Folders>,
}

/// Columns from the names of folders.
struct Folders {
    partitions: Partitions,
    picked: Picked,
    /// Of the file that is open.
    values: Vec<Option<String>>,
}

impl ColumnRows {
    pub(crate) fn new(
        form: Form,
        stream: &FileStream,
        schema: SchemaRef,
        request: &ReadRequest,
        folders: Option<(Partitions, Picked)>,
    ) -> Result<Self> {
        let columns = match &folders {
            Some((_, picked)) => Some(picked.from_files.clone()),
            None => request.columns.clone(),
        };
        let folders = folders.map(|(partitions, picked)| Folders {
            partitions,
            picked,
            values: Vec::new(),
        });
        let mut files: Vec<String> = stream.files.iter().map(|file| file.0.clone()).collect();
        let first = files.first().cloned().unwrap_or_default();
        files.reverse();
        let wanted = columnar::project(&schema, columns.as_deref());
        let wanted = wanted.map_err(|error| convert(error).in_stream(&stream.name))?;
        let mut rows = Self {
            form,
            stream: stream.name.clone(),
            files,
            first,
            wanted,
            schema,
            limits: Limits {
                batch_bytes: request.batch_bytes as usize,
                // More than memory is no limit.
                max_record_bytes: usize::try_from(request.max_record_bytes).unwrap_or(usize::MAX),
            },
            open: None,
            folders,
        };
        rows.open_next()?;
        Ok(rows)
    }

    /// Opens the next file; false when all were read.
    fn open_next(&mut self) -> Result<bool> {
        let Some(path) = self.files.pop() else {
            return Ok(false);
        };
        if let Some(folders) = &mut self.folders {
            let values = folders.partitions.values(&path);
            folders.values = values.map_err(|error| error.in_stream(&self.stream))?;
        }
        let open = OpenFile::open(self.form, &path, &self.stream)?;
        // A file that is another one since the schema was known.
        let merged = open.merge(&self.schema, self.form.headers, &self.first)?;
        if merged.fields() != self.schema.fields() {
            let what = match merged.fields().len() == self.schema.fields().len() {
                true => "a column may now hold NULL, and did not in any file before",
                false => "it has a column that no file had before",
            };
            let text = format!("{path}: {what}");
            return Err(Error::data("file_changed", text)
                .hint("let its writer finish, and run again")
                .in_stream(&self.stream)
                .at(path));
        }
        let here = open.columns_of(&self.wanted);
        let reader = open.file.read_as(&self.schema, Some(&here), self.limits);
        let reader = reader.map_err(|error| open.told(error))?;
        let needed = {
            let _phase = phase::enter(phase::Kind::Decode);
            reader.needed_bytes()
        };
        let needed = needed.map_err(|error| open.told(error))?;
        self.reserve(&open, needed)?;
        self.open = Some((open, reader));
        Ok(true)
    }

    /// Refuses a file that takes more memory than there is, before its first row. The memory is given back, and
    /// what is decoded next takes it.
    fn reserve(&self, open: &OpenFile, needed: u64) -> Result<()> {
        let bytes = usize::try_from(needed).unwrap_or(usize::MAX);
        if Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
            return Ok(());
        }
        let columns = self.wanted.fields().len();
        // Seven eighths of the memory are for both connectors.
        let memory = (needed + needed / 2 + OTHERS_BYTES) / 7 * 8;
        let memory = memory.div_ceil(MEMORY_STEP) * MEMORY_STEP;
        let (needed, memory) = (needed.div_ceil(1 << 20), memory >> 20);
        let text = format!(
            "{columns} columns of this file take {needed} MiB while they are read, a dictionary and a page of each, \
             and resources.memory has less for them"
        );
        Err(Error::config("file_needs_memory", text)
            .hint(format!(
                "set resources.memory: {memory}mb or more, times resources.parallelism if that is not 1; or name \
                 fewer `columns:` of the stream"
            ))
            .in_stream(&self.stream)
            .at(&open.path))
    }
}

/// Memory for footers, batches and the other connector, in addition to one and a half times the pages of a wide file.
/// The half is for a destination that writes Parquet, which has a page of each column, too.
const OTHERS_BYTES: u64 = 24 << 20;
/// The hint rounds `resources.memory` up to a multiple of this.
const MEMORY_STEP: u64 = 16 << 20;

impl Reader for ColumnRows {
    fn schema(&self) -> SchemaRef {
        match &self.folders {
            Some(folders) => folders.picked.schema.clone(),
            None => self.wanted.clone(),
        }
    }

    fn next(&mut self, _wait: Duration) -> Result<Event> {
        loop {
            if let Some((open, reader)) = &mut self.open {
                let batch = {
                    let _phase = phase::enter(phase::Kind::Decode);
                    last_words::decoding(open.damaged(), || reader.next_batch())
                };
                let batch = batch.map_err(|error| open.told(error))?;
                // Before the rows count: half of them may be of another state.
                open.check_unchanged()?;
                let batch = batch
                    .map(|batch| complete(batch, &self.wanted))
                    .transpose()?;
                match (batch, &self.folders) {
                    (Some(batch), None) => return Ok(Event::Batch(batch)),
                    (Some(batch), Some(folders)) => {
                        let (picked, values) = (&folders.picked, &folders.values);
                        let batch = picked.complete(&batch, values, &self.stream, &open.path)?;
                        return Ok(Event::Batch(batch));
                    }
                    (None, _) => {}
                }
                self.open = None;
            }
            if !self.open_next()? {
                return Ok(Event::End);
            }
        }
    }
}

const UNION_HINT: &str = "set headers: union, which reads NULL where a file lacks a column; for files of several tables, \
    put {stream} into the path";
const TYPE_HINT: &str = "write the files again with one type for the column, or read them as several streams, with \
    {stream} in the path";

/// A batch of one file with all wanted columns: NULL in those that the file lacks.
fn complete(batch: RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema().fields() == wanted.fields() {
        return Ok(batch);
    }
    let rows = batch.num_rows();
    let column = |field: &arrow_schema::FieldRef| match batch.column_by_name(field.name()) {
        Some(column) => column.clone(),
        None => new_null_array(field.data_type(), rows),
    };
    let columns = wanted.fields().iter().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(wanted.clone(), columns, &options)
        .map_err(|error| Error::internal(format!("the columns of a file: {error}")))
}

/// A file with its footer.
struct OpenFile {
    kind: Kind,
    path: String,
    stream: String,
    input: Arc<Watched>,
    file: File<Watched>,
    /// Its columns.
    schema: SchemaRef,
}

impl OpenFile {
    fn open(form: Form, path: &str, stream: &str) -> Result<Self> {
        let kind = form.kind;
        let input = Watched::open(path).map_err(|error| error.in_stream(stream))?;
        let input = Arc::new(input);
        let opened = {
            let _phase = phase::enter(phase::Kind::Decode);
            let words = damaged(kind, path, stream);
            last_words::decoding(words, || File::open(kind, input.clone()))
        };
        let file = opened.map_err(|error| told(error, &input, path, stream))?;
        let schema = match form.trusts_metadata {
            true => file.schema().clone(),
            false => columnar::undescribed(file.schema()),
        };
        Ok(Self {
            schema,
            kind,
            path: path.to_owned(),
            stream: stream.to_owned(),
            input,
            file,
        })
    }

    fn damaged(&self) -> Error {
        damaged(self.kind, &self.path, &self.stream)
    }

    fn told(&self, error: ColumnarError) -> Error {
        told(error, &self.input, &self.path, &self.stream)
    }

    fn check_unchanged(&self) -> Result<()> {
        self.input
            .check_unchanged(&self.path)
            .map_err(|error| error.in_stream(&self.stream))
    }

    /// The wanted columns that this file has, and its first column if it has none of them: rows must be counted.
    fn columns_of(&self, wanted: &Schema) -> Vec<String> {
        let names = |schema: &Schema| -> Vec<String> {
            let fields = schema.fields().iter();
            fields.map(|field| field.name().clone()).collect()
        };
        let own = &self.schema;
        let mut here = names(wanted);
        here.retain(|name| own.fields().find(name).is_some());
        if here.is_empty() {
            here = names(own);
            here.truncate(1);
        }
        here
    }

    /// Merges the columns of the files so far with the columns of this file. With [`Headers::Same`] these must be the
    /// same but for their order and whether they may be NULL. `first` is the stream's first file.
    fn merge(&self, expected: &SchemaRef, headers: Headers, first: &str) -> Result<SchemaRef> {
        let found = &self.schema;
        let unites = headers == Headers::Union;
        let is_known = |field: &Arc<Field>| expected.fields().find(field.name()).is_some();
        if !found.fields().is_empty() && !found.fields().iter().any(is_known) {
            let text = format!("the file has none of the columns of {first}");
            return Err(Error::schema("schema_differs", text)
                .hint("for files of several tables, put {stream} into the path")
                .in_stream(&self.stream)
                .at(&self.path));
        }
        let mut merged = Vec::with_capacity(expected.fields().len());
        for field in expected.fields() {
            let name = field.name();
            let Some((_, here)) = found.fields().find(name) else {
                if unites {
                    merged.push(field.as_ref().clone().with_nullable(true));
                    continue;
                }
                let text = format!("it is missing here, and {first} has it");
                return Err(self.differs(name, &text, UNION_HINT));
            };
            let Some(both) = columnar::merge(field, here) else {
                let (a, b) = (type_name(field), type_name(here));
                let text = match a == b {
                    true => format!("its metadata differs from {first}"),
                    false => format!("it is {b} here, and {a} in {first}"),
                };
                return Err(self.differs(name, &text, TYPE_HINT));
            };
            merged.push(both);
        }
        for field in found.fields() {
            if expected.fields().find(field.name()).is_some() {
                continue;
            }
            if !unites {
                let what = format!("{first} does not have it");
                return Err(self.differs(field.name(), &what, UNION_HINT));
            }
            merged.push(field.as_ref().clone().with_nullable(true));
        }
        let metadata = expected.metadata().clone();
        Ok(Arc::new(Schema::new_with_metadata(merged, metadata)))
    }

    fn differs(&self, column: &str, what: &str, hint: &str) -> Error {
        let text = format!("the files of a stream need one schema; column {column:?}: {what}");
        Error::schema("schema_differs", text)
            .hint(hint)
            .in_stream(&self.stream)
            .in_column(column)
            .at(&self.path)
    }
}

/// The error for a file on which a decoder panics.
fn damaged(kind: Kind, path: &str, stream: &str) -> Error {
    let (code, what) = match kind {
        Kind::Parquet => ("parquet_malformed", "a page that cannot be decoded"),
        Kind::Arrow => ("arrow_malformed", "a batch that cannot be decoded"),
    };
    Error::data(code, what)
        .hint("copy the file again: it is damaged or incomplete")
        .in_stream(stream)
        .at(path)
}

/// The contract's error for an error of the columns. An error of the host goes first, then a change of the file,
/// because either may cause any other error.
fn told(error: ColumnarError, input: &Watched, path: &str, stream: &str) -> Error {
    let failed = input.failed.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = failed.as_ref() {
        return error.clone().in_stream(stream);
    }
    if let Err(changed) = input.check_unchanged(path) {
        return changed.in_stream(stream);
    }
    let location = match error.place() {
        Some(place) => format!("{path}: {place}"),
        None => path.to_owned(),
    };
    convert(error).in_stream(stream).at(location)
}

fn convert(error: ColumnarError) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = error.hint;
    converted.column = error.column;
    converted
}

/// A file that must not change while it is read.
struct Watched {
    input: Input,
    /// When it was opened, in bytes.
    size: u64,
    /// As [`Input::modified`] said when it was opened.
    modified: u64,
    /// The host's error for a read that failed.
    failed: Mutex<Option<Error>>,
}

impl Watched {
    fn open(path: &str) -> Result<Self> {
        let input = files::open(path)?;
        Ok(Self {
            size: input.size(),
            modified: input.modified(),
            input,
            failed: Mutex::default(),
        })
    }

    fn check_unchanged(&self, path: &str) -> Result<()> {
        let size = self.input.size();
        if size == self.size && self.input.modified() == self.modified {
            return Ok(());
        }
        let how = match size == self.size {
            true => "it was written to".to_owned(),
            false => format!("it had {} bytes, and now has {size}", self.size),
        };
        let text = format!("{path} changed during the read: {how}");
        Err(Error::data("file_changed", text)
            .hint("let its writer finish, or have it write a new file and rename it")
            .at(path))
    }
}

impl ReadAt for Watched {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, len: u32) -> std::io::Result<Vec<u8>> {
        self.input.read(offset, len).map_err(|error| {
            let text = error.message.clone();
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            std::io::Error::other(text)
        })
    }
}
