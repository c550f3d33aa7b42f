//! The source side: the traits an author implements, and their export.

use std::cell::RefCell;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::{ipc, one, types};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::bindings::exports_source as wit;
use crate::{
    Bucket, Buckets, Change, CheckItem, ChosenRows, DigestedRow, Error, ReadRequest, Reject,
    Result, RowLimit, Selection, Spec, Stream, SyncMode, config, messages,
};

/// The field of the spec that allows several streams in a read.
const TOGETHER: &str = "reads-together";
const NO_DIGESTS: &str = "the source does not digest rows";

/// Where rows come from.
pub trait Source: Sized + 'static {
    /// The configuration. Put `#[serde(deny_unknown_fields)]` on it, so that a misspelt key is an
    /// error, and `#[schemars(extend("x-grant" = "read"))]` on a key that names a file, `"host"`,
    /// `"port"` or `"url"` on one that names a server: the host grants exactly this value.
    /// `"tls-mode"`, `"tls-root-cert"`, `"tls-cert"` and `"tls-key"` say how the host speaks TLS
    /// to it. `"x-secret" = true` keeps a value out of every message. `#[schemars(extend("x-plans-again" = true))]` on
    /// the configuration itself says that a session can discover, take a snapshot and read again after a read: then a
    /// program that runs the same pipeline again keeps the session for some seconds. Such a source forgets what it knew
    /// when `discover` is called.
    type Config: DeserializeOwned + JsonSchema;
    /// Reads one stream.
    type Reader: Reader;
    /// `source-` and the system's name.
    const NAME: &'static str;
    /// Usually `env!("CARGO_PKG_VERSION")`.
    const VERSION: &'static str;
    /// One sentence.
    const DESCRIPTION: &'static str;
    /// How streams can be read.
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh];
    /// Systems whose native value forms it gives.
    const NATIVE_FORMS: &'static [&'static str] = &[];
    /// Whether [`ReadRequest::filter`] is understood: a condition in the system's own language.
    const SUPPORTS_FILTER: bool = false;
    /// Whether it can continue after a record that it cannot read, see [`ReadRequest::keeps_rejects`].
    const SUPPORTS_REJECTS: bool = false;
    /// Whether all reads of a snapshot see the same rows, so that a stream can be read a second time for its keys.
    const REPEATABLE_READS: bool = false;
    /// Whether [`Source::describe_query`] and [`ReadRequest::query`] are understood: a query in the system's own
    /// language.
    const SUPPORTS_QUERIES: bool = false;
    /// The forms of digests that it computes: see [`Source::digest`].
    const DIGEST_FORMS: &'static [&'static str] = &[];

    /// Checks the configuration. Connects to nothing yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Checks everything a run would need and changes nothing.
    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let streams = self.discover(&[])?;
        Ok(vec![CheckItem::ok(
            "discover",
            rapidbyte_wire::counted(streams.len(), "stream"),
        )])
    }

    /// The streams that can be read, with native forms only where they are in `forms`. A stream whose columns the
    /// source cannot find out does not hide the others: give it by [`Stream::unreadable`], and the reason from
    /// [`Source::snapshot`].
    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>>;

    /// Describes the rows of a query as the stream `stream`, with native forms only where they are in `forms`. Changes
    /// nothing. Refuse a text that is not exactly one query that reads. Called only with
    /// [`Source::SUPPORTS_QUERIES`].
    fn describe_query(&mut self, stream: &str, query: &str, forms: &[String]) -> Result<Stream> {
        let _ = (stream, query, forms);
        Err(Error::internal("a query for a source without queries"))
    }

    /// Fixes one moment for all `streams`; the text comes back in [`ReadRequest::snapshot`]. Refuse a
    /// selection that cannot be read here, before the first row of any stream.
    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let _ = streams;
        Ok(String::new())
    }

    /// The rows of an incremental stream that a destination has if it has committed the cursor of the selection.
    /// `snapshot` as in [`Source::digest`]. Called only with [`Source::DIGEST_FORMS`].
    fn digest_limits(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
    ) -> Result<Vec<RowLimit>> {
        let _ = (selection, snapshot);
        Err(Error::internal(NO_DIGESTS))
    }

    /// Digests the rows of a selection, and returns the sums of their buckets. `snapshot`: as of the snapshot with this
    /// name, which this source took; `None`: as they are now, and the source gives up its snapshot. `recipe` is the
    /// answer of a destination with a common form. Called only with [`Source::DIGEST_FORMS`].
    fn digest(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
        recipe: &str,
        limits: &[RowLimit],
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let _ = (selection, snapshot, recipe, limits, within, bits);
        Err(Error::internal(NO_DIGESTS))
    }

    /// Digests rows one by one: at most `max` of them. Called only with [`Source::DIGEST_FORMS`].
    fn digest_rows(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
        recipe: &str,
        limits: &[RowLimit],
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let _ = (selection, snapshot, recipe, limits, rows, max);
        Err(Error::internal(NO_DIGESTS))
    }

    /// Begins to read a stream.
    fn read(&mut self, request: &ReadRequest) -> Result<Self::Reader>;
}

/// Reads one stream, step by step.
pub trait Reader: 'static {
    /// The schema of every batch to come.
    fn schema(&self) -> SchemaRef;

    /// The next step. Return [`Event::Idle`] when nothing comes within `wait`.
    fn next(&mut self, wait: Duration) -> Result<Event>;

    /// The destination has committed everything up to `cursor`. Comes between two calls of `next`, or after
    /// [`Event::End`]. A run that is killed after a commit does not call it: [`ReadRequest::cursor`] counts as
    /// acknowledged too.
    fn acknowledge(&mut self, cursor: &str) -> Result<()> {
        let _ = cursor;
        Ok(())
    }
}

/// One step of a [`Reader`].
#[derive(Debug)]
pub enum Event {
    /// Rows, about [`ReadRequest::batch_bytes`] of them.
    Batch(RecordBatch),
    /// Records that cannot be read, where [`ReadRequest::keeps_rejects`] is set: at most 1,000.
    Rejects(Vec<Reject>),
    /// Everything before it can be acknowledged under this JSON text.
    Checkpoint(String),
    /// The data have other columns than [`ReadRequest::schema`], where the request follows that. The last step: the host
    /// plans the stream with the new columns and reads again from the last commit.
    Changed(Box<Change>),
    /// Nothing came in time.
    Idle,
    /// There is no more.
    End,
}

impl Stream {
    /// A stream without columns, because they could not be found out: [`Source::snapshot`] of it fails with `error`.
    pub fn unreadable(name: impl Into<String>, error: &Error) -> Result<Self> {
        let mut stream = Self::new(name, &Schema::empty())?;
        stream.notes.push(error.message.clone());
        Ok(stream)
    }

    /// A stream without keys or estimates; set those fields afterwards.
    pub fn new(name: impl Into<String>, schema: &Schema) -> Result<Self> {
        Ok(Self {
            name: name.into(),
            schema: ipc::encode_schema(schema)?,
            source_types: schema
                .fields()
                .iter()
                .map(|f| types::type_name(f))
                .collect(),
            primary_key: Vec::new(),
            cursor_fields: Vec::new(),
            estimated_rows: None,
            estimated_bytes: None,
            inferred: Vec::new(),
            notes: Vec::new(),
        })
    }
}

impl ReadRequest {
    /// All rows of a stream, in batches of about 1 MiB with records of at most 64 MiB. Set the other fields afterwards.
    pub fn of(stream: &Stream) -> Self {
        Self {
            stream: stream.name.clone(),
            schema: stream.schema.clone(),
            snapshot: String::new(),
            increment: None,
            cursor: None,
            columns: None,
            filter: None,
            query: None,
            forms: Vec::new(),
            batch_bytes: 1 << 20,
            max_record_bytes: 64 << 20,
            keeps_rejects: false,
            records: None,
            rows: None,
            follows_columns: false,
            follows_types: Vec::new(),
        }
    }
}

/// The exported form of a [`Source`].
#[doc(hidden)]
pub struct SourceExport<S>(std::marker::PhantomData<S>);
#[doc(hidden)]
pub struct SessionExport<S>(RefCell<S>);
#[doc(hidden)]
pub struct ReaderExport<R>(RefCell<Reading<R>>);

struct Reading<R> {
    reader: R,
    schema: SchemaRef,
    encoder: ipc::Encoder,
}

impl<S: Source> wit::Guest for SourceExport<S> {
    type Session = SessionExport<S>;
    type Reader = ReaderExport<S::Reader>;

    fn describe() -> Spec {
        spec::<S>()
    }

    fn open(config: String) -> Result<wit::Session> {
        let source = S::open(config::parse(&config)?)?;
        Ok(wit::Session::new(SessionExport(RefCell::new(source))))
    }
}

/// The specification of a [`Source`], from its constants.
pub fn spec<S: Source>() -> Spec {
    Spec {
        sync_modes: S::SYNC_MODES.to_vec(),
        native_forms: S::NATIVE_FORMS.iter().map(|s| (*s).into()).collect(),
        supports_filter: S::SUPPORTS_FILTER,
        supports_queries: S::SUPPORTS_QUERIES,
        supports_rejects: S::SUPPORTS_REJECTS,
        repeatable_reads: S::REPEATABLE_READS,
        digest_forms: S::DIGEST_FORMS.iter().map(|s| (*s).into()).collect(),
        ..Spec::plain(
            S::NAME,
            S::VERSION,
            S::DESCRIPTION,
            config::schema::<S::Config>(),
        )
    }
}

/// Opens a source from its configuration as JSON, as the host does.
pub fn open<S: Source>(config: &str) -> Result<S> {
    S::open(config::parse(config)?)
}

impl<S: Source> wit::GuestSession for SessionExport<S> {
    fn check(&self) -> Result<Vec<CheckItem>> {
        self.0.borrow_mut().check()
    }

    fn discover(&self, forms: Vec<String>) -> Result<Vec<Stream>> {
        self.0.borrow_mut().discover(&forms)
    }

    fn describe_query(&self, stream: String, query: String, forms: Vec<String>) -> Result<Stream> {
        let mut source = self.0.borrow_mut();
        source.describe_query(&stream, &query, &forms)
    }

    fn snapshot(&self, streams: Vec<Selection>) -> Result<String> {
        self.0.borrow_mut().snapshot(&streams)
    }

    fn digest_limits(&self, stream: Selection, snapshot: Option<String>) -> Result<Vec<RowLimit>> {
        let mut source = self.0.borrow_mut();
        source.digest_limits(&stream, snapshot.as_deref())
    }

    fn digest(
        &self,
        stream: Selection,
        snapshot: Option<String>,
        recipe: String,
        limits: Vec<RowLimit>,
        within: Option<Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let mut source = self.0.borrow_mut();
        let (snapshot, within) = (snapshot.as_deref(), within.as_ref());
        source.digest(&stream, snapshot, &recipe, &limits, within, bits)
    }

    fn digest_rows(
        &self,
        stream: Selection,
        snapshot: Option<String>,
        recipe: String,
        limits: Vec<RowLimit>,
        rows: ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let mut source = self.0.borrow_mut();
        source.digest_rows(&stream, snapshot.as_deref(), &recipe, &limits, &rows, max)
    }

    fn read(&self, requests: Vec<ReadRequest>) -> Result<wit::Reader> {
        let request = one::only(&requests, TOGETHER).map_err(Error::internal)?;
        let reader = self.0.borrow_mut().read(request)?;
        let schema = reader.schema();
        let encoder = ipc::Encoder::new(&schema)?;
        Ok(wit::Reader::new(ReaderExport(RefCell::new(Reading {
            reader,
            schema,
            encoder,
        }))))
    }
}

impl<R: Reader> wit::GuestReader for ReaderExport<R> {
    fn schemas(&self) -> Vec<Vec<u8>> {
        vec![self.0.borrow().encoder.schema_message().to_vec()]
    }

    fn next(&self, wait_ms: u32) -> Result<wit::Event> {
        let reading = &mut *self.0.borrow_mut();
        match reading.reader.next(Duration::from_millis(wait_ms.into()))? {
            Event::Batch(batch) => {
                let batch = messages::encode(&mut reading.encoder, &reading.schema, &batch)?;
                Ok(wit::Event::Batch((0, batch)))
            }
            Event::Rejects(rejects) => Ok(wit::Event::Rejects((0, rejects))),
            Event::Checkpoint(cursor) => {
                let position = wit::Position { stream: 0, cursor };
                Ok(wit::Event::Checkpoint(position))
            }
            Event::Changed(change) => Ok(wit::Event::Changed((0, *change))),
            Event::Idle => Ok(wit::Event::Idle),
            Event::End => Ok(wit::Event::End),
        }
    }

    fn acknowledge(&self, positions: Vec<wit::Position>) -> Result<()> {
        let reader = &mut self.0.borrow_mut().reader;
        for position in positions {
            one::ensure_only(position.stream, TOGETHER).map_err(Error::internal)?;
            reader.acknowledge(&position.cursor)?;
        }
        Ok(())
    }
}

/// Exports a [`Source`] as this crate's connector. Natively it expands to nothing that runs.
#[macro_export]
macro_rules! export_source {
    ($source:ty) => {
        // A native linker does not take the exported names as symbols.
        #[cfg(target_family = "wasm")]
        const _: () = {
            type Export = $crate::source::SourceExport<$source>;
            $crate::bindings::source_world::export_source_world!(
                Export with_types_in $crate::bindings::source_world
            );
        };
    };
}
