//! The source: streams of batches that the program gives.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_runtime::{
    Batch, CheckItem, ConnectorError, ErrorKind, Event, Native, NativeConnector, NativeSession,
    Phase, Position, ReadRequest, Result, Selection, SourceSession, Spec, Stream, SyncMode, broken,
    no_settings, record_too_large,
};
use rapidbyte_wire::counted;
use rapidbyte_wire::ipc::{self, Encoder};
use rapidbyte_wire::size::{batch_bytes, front};
use rapidbyte_wire::types::{mark_program_values, type_name};

use crate::{columns, spec};

/// The batches of one stream, in order. An error ends the run.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ConnectorError>> + Send>;

/// Begins a read.
type Open = dyn Fn() -> Result<Batches, ConnectorError> + Send + Sync;

/// Gives the rows of a batch the columns of another schema, which has the same names.
type Convert =
    dyn Fn(&RecordBatch, &SchemaRef) -> Result<RecordBatch, ConnectorError> + Send + Sync;

/// Streams of batches by name.
#[derive(Clone, Default)]
pub struct Input(Vec<Arc<Given>>);

struct Given {
    name: String,
    schema: SchemaRef,
    key: Vec<String>,
    rows: Rows,
    /// Bytes of the rows, if they are all in memory.
    at_hand: Option<usize>,
    /// Set if the columns may take the types of the target.
    convert: Option<Arc<Convert>>,
}

enum Rows {
    Once(Mutex<Option<Batches>>),
    Again(Box<Open>),
}

impl Input {
    /// An input without streams.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stream whose batches come from an iterator, which gives them once. A second read, for example in a
    /// retry, fails with the code `rows_used_up`. `key` names the columns that identify a row; it is empty if no column does.
    #[must_use]
    pub fn once(self, name: &str, schema: SchemaRef, key: &[&str], batches: Batches) -> Self {
        let rows = Rows::Once(Mutex::new(Some(batches)));
        self.with(name, schema, key, rows, None)
    }

    /// The same for one batch that has all rows. The engine knows then that the read waits for nobody.
    #[must_use]
    pub fn whole(self, name: &str, key: &[&str], batch: RecordBatch) -> Self {
        let (schema, bytes) = (batch.schema(), batch_bytes(&batch));
        let batches: Batches = Box::new(std::iter::once(Ok(batch)));
        let rows = Rows::Once(Mutex::new(Some(batches)));
        self.with(name, schema, key, rows, Some(bytes))
    }

    /// Adds a stream whose batches come from a function, which every read calls. It has to give the same rows each time.
    #[must_use]
    pub fn again(
        self,
        name: &str,
        schema: SchemaRef,
        key: &[&str],
        open: impl Fn() -> Result<Batches, ConnectorError> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, schema, key, Rows::Again(Box::new(open)), None)
    }

    fn with(
        mut self,
        name: &str,
        schema: SchemaRef,
        key: &[&str],
        rows: Rows,
        at_hand: Option<usize>,
    ) -> Self {
        self.0.push(Arc::new(Given {
            name: name.to_owned(),
            schema,
            key: key.iter().map(|column| (*column).to_owned()).collect(),
            rows,
            at_hand,
            convert: None,
        }));
        self
    }

    /// The same, whose last stream has inferred types: where an existing target has other ones, `convert` gives each batch
    /// the types of the target, or an error for a value that does not fit.
    #[must_use]
    pub fn inferred(
        mut self,
        convert: impl Fn(&RecordBatch, &SchemaRef) -> Result<RecordBatch, ConnectorError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        // Nobody else has it yet.
        if let Some(last) = self.0.last_mut().and_then(Arc::get_mut) {
            last.convert = Some(Arc::new(convert));
        }
        self
    }

    /// A source that reads these streams, for `use: NAME`.
    pub fn source(self, name: &str) -> NativeConnector {
        let of = name.to_owned();
        let can_repeat = |given: &Arc<Given>| matches!(given.rows, Rows::Again(_));
        let can_repeat = self.0.iter().all(can_repeat);
        NativeConnector::source(name, move |native| {
            Box::new(Reading {
                native,
                spec: Spec {
                    sync_modes: vec![SyncMode::FullRefresh],
                    repeatable_reads: can_repeat,
                    ..spec(&of, "Reads batches of this program")
                },
                streams: self.0.clone(),
                read: None,
            })
        })
    }
}

impl Given {
    fn open(&self) -> Result<Batches, ConnectorError> {
        match &self.rows {
            Rows::Again(open) => open(),
            Rows::Once(batches) => {
                let batches = batches
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                batches.ok_or_else(|| {
                    let text = format!(
                        "the rows of {:?} came from an iterator, which gives them once",
                        self.name
                    );
                    ConnectorError::new(ErrorKind::Data, "rows_used_up", text).hint(
                        "give a function that returns a new iterator, so that they can be read again",
                    )
                })
            }
        }
    }

    fn described(&self) -> Result<Stream, ConnectorError> {
        let fields = self.schema.fields().iter();
        Ok(Stream {
            name: self.name.clone(),
            schema: ipc::encode_schema(&mark_program_values(&self.schema)).map_err(broken)?,
            source_types: fields.map(|field| type_name(field)).collect(),
            primary_key: self.key.clone(),
            cursor_fields: Vec::new(),
            estimated_rows: None,
            estimated_bytes: None,
            inferred: match self.convert {
                Some(_) => self
                    .schema
                    .fields()
                    .iter()
                    .map(|field| field.name().clone())
                    .collect(),
                None => Vec::new(),
            },
            notes: Vec::new(),
        })
    }

    /// The indexes of the wanted columns.
    fn projection(&self, wanted: Option<&[String]>) -> Result<Vec<usize>, ConnectorError> {
        let index = |name: &String| {
            self.schema.index_of(name).map_err(|_| {
                let text = format!("no column {name:?}");
                ConnectorError::new(ErrorKind::Schema, "unknown_column", text)
            })
        };
        match wanted {
            None => Ok((0..self.schema.fields().len()).collect()),
            Some(names) => names.iter().map(index).collect(),
        }
    }
}

/// A session of the source.
struct Reading {
    native: Native,
    spec: Spec,
    streams: Vec<Arc<Given>>,
    read: Option<Read>,
}

/// The read of one stream.
struct Read {
    given: Arc<Given>,
    columns: Vec<usize>,
    encoder: Encoder,
    /// The columns of the target, if they differ.
    stored: Option<SchemaRef>,
    batches: Batches,
    /// Rows of the last batch that did not fit.
    rest: Option<RecordBatch>,
    batch_bytes: usize,
    max_record_bytes: u64,
}

fn known<'s>(streams: &'s [Arc<Given>], name: &str) -> Result<&'s Arc<Given>, ConnectorError> {
    streams
        .iter()
        .find(|given| given.name == name)
        .ok_or_else(|| {
            let text = format!("no stream {name:?}");
            ConnectorError::new(ErrorKind::Schema, "unknown_stream", text)
        })
}

impl NativeSession for Reading {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl SourceSession for Reading {
    fn describe(&mut self) -> Result<Spec> {
        Ok(self.spec.clone())
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let native = &self.native;
        native.call("open", Phase::Other, || no_settings(config))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(vec![CheckItem {
            name: "streams".into(),
            problem: None,
            detail: counted(self.streams.len() as u64, "stream"),
        }])
    }

    fn discover(&mut self, _forms: &[String]) -> Result<Vec<Stream>> {
        let Self {
            native, streams, ..
        } = self;
        native.call("session.discover", Phase::Query, || {
            streams.iter().map(|given| given.described()).collect()
        })
    }

    fn snapshot(&mut self, selections: &[Selection]) -> Result<String> {
        let Self {
            native, streams, ..
        } = self;
        native.call("session.snapshot", Phase::Query, || {
            for one in selections {
                known(streams, &one.stream)?.projection(one.columns.as_deref())?;
            }
            Ok("given".into())
        })
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let Self {
            native,
            streams,
            read,
            ..
        } = self;
        native.call("session.read", Phase::Query, || {
            let [request] = requests else {
                return Err(broken("one stream is read at a time"));
            };
            let one = Read::begin(Arc::clone(known(streams, &request.stream)?), request)?;
            let schema = one.encoder.schema_message().to_vec();
            *read = Some(one);
            Ok(vec![schema])
        })
    }

    fn next(&mut self, _wait_ms: u32) -> Result<Event> {
        let Self { native, read, .. } = self;
        native.call("reader.next", Phase::Fetch, || match read {
            Some(read) => read.event(),
            None => Err(broken("read comes first")),
        })
    }

    fn bytes_at_hand(&self) -> Option<usize> {
        let mut streams = self.streams.iter();
        streams.try_fold(0_usize, |sum, given| sum.checked_add(given.at_hand?))
    }

    fn acknowledge(&mut self, _positions: &[Position]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> bool {
        self.read = None;
        true
    }
}

impl Read {
    fn begin(given: Arc<Given>, request: &ReadRequest) -> Result<Self, ConnectorError> {
        let columns = given.projection(request.columns.as_deref())?;
        let asked = ipc::decode_schema(&request.schema).map_err(broken)?;
        let described = mark_program_values(&given.schema);
        let is_other = given.convert.is_some() && asked.fields() != described.fields();
        let schema = match is_other {
            true => asked.project(&columns),
            false => described.project(&columns),
        };
        let schema = schema.map_err(broken)?;
        Ok(Self {
            encoder: Encoder::new(&schema).map_err(broken)?,
            stored: is_other.then(|| Arc::new(schema)),
            batches: given.open()?,
            columns,
            given,
            rest: None,
            batch_bytes: request.batch_bytes as usize,
            max_record_bytes: request.max_record_bytes,
        })
    }

    fn event(&mut self) -> Result<Event, ConnectorError> {
        let Some(batch) = self.batch()? else {
            return Ok(Event::End);
        };
        let data = self.encoder.encode(&batch).map_err(broken)?;
        let rows = batch.num_rows() as u64;
        Ok(Event::Batch((0, Batch { data, rows })))
    }

    /// The next rows, of at most `batch_bytes` unless a single row is larger.
    fn batch(&mut self) -> Result<Option<RecordBatch>, ConnectorError> {
        let whole = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                let Some(batch) = self.batches.next().transpose()? else {
                    return Ok(None);
                };
                self.refuse_other_columns(&batch)?;
                if batch.num_rows() > 0 {
                    let batch = batch.project(&self.columns).map_err(broken)?;
                    break match (&self.stored, &self.given.convert) {
                        (Some(stored), Some(convert)) => convert(&batch, stored)?,
                        _ => batch,
                    };
                }
            },
        };
        let (batch, rest) = front(&whole, self.batch_bytes, self.max_record_bytes)
            .map_err(|bytes| record_too_large(bytes, self.max_record_bytes))?;
        self.rest = rest;
        Ok(Some(batch))
    }

    fn refuse_other_columns(&self, batch: &RecordBatch) -> Result<(), ConnectorError> {
        let (found, expected) = (batch.schema(), &self.given.schema);
        if found.fields() == expected.fields() {
            return Ok(());
        }
        let text = format!(
            "a batch has the columns {}, and its stream has {}",
            columns(&found),
            columns(expected)
        );
        let hint = "give all batches of a stream the same columns and types";
        Err(ConnectorError::new(ErrorKind::Schema, "other_columns", text).hint(hint))
    }
}
