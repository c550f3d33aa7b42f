//! The queue as a source: the bodies of some jobs of one stream, in the order of their ids.
//!
//! The component `source-file` reads the bodies, so that hostile input stays in the sandbox. The cursor is the id of a
//! job: the destination commits it together with the rows, so a job is done exactly if the committed cursor has passed it.
//!
//! A run goes on while its [`Feed`] has jobs: both sides stay open, and each segment is one commit.

mod segment;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte::batches::{ConnectorError, ErrorKind};
use rapidbyte::{
    Control, Described, Engine, Failure, NativeConnector, Pipeline, Spec, Stream, SyncMode,
};
use rapidbyte_runtime::{
    Batch, CheckItem, Error, Event, Grants, Position, ReadRequest, Result, Sandbox, Selection,
    Session, SourceSession, broken,
};
use rapidbyte_wire::ipc;
use serde_json::{Map, Value, json};

pub use segment::{Feed, Next, SHARED, Segment, mark};

/// The connector that reads the bodies.
pub const READER: &str = "source-file";
/// The name that pipelines write after `use:`.
pub const NAME: &str = "ingest";

/// The setting of a pipeline that declares the columns.
const SCHEMA: &str = "schema";
/// The setting of a pipeline that says which bodies are known.
const DEDUP: &str = "dedup";
/// The setting of the reader that lets bodies describe types of PostgreSQL.
const TRUST: &str = "trust_metadata";
/// Settings of the reader that each request says, or the server.
const OF_REQUESTS: [&str; 4] = ["path", "stream", FORMAT, "compression"];
const FORMAT: &str = "format";

/// `dedup` in the configuration of the source: when a request is the same job as one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dedup {
    /// It has the same `Idempotency-Key`.
    Key,
    /// The same, or its body has the same SHA-256.
    Content,
}

impl Dedup {
    /// The setting of a pipeline that reads the queue.
    pub fn of(pipeline: &Pipeline) -> Self {
        Self::read(pipeline.source_config()).unwrap_or(Self::Key)
    }

    fn read(config: &Map<String, Value>) -> std::result::Result<Self, ConnectorError> {
        match config.get(DEDUP) {
            None => Ok(Self::Key),
            Some(word) if word == "key" => Ok(Self::Key),
            Some(word) if word == "content" => Ok(Self::Content),
            Some(other) => {
                let text = format!("{other} is not key or content");
                let error = ConnectorError::new(ErrorKind::Config, "invalid_setting", text);
                Err(at(error, DEDUP))
            }
        }
    }
}

/// Whether a pipeline that reads the queue declares its columns. Otherwise each body has those that are inferred from it alone.
pub fn declares_columns(pipeline: &Pipeline) -> bool {
    pipeline.source_config().contains_key(SCHEMA)
}

/// The connector that reads bodies, which all runs share.
pub struct Reader {
    described: Described,
    /// Its settings.
    schema: Value,
    /// The settings of the queue.
    own_schema: String,
}

impl Reader {
    /// Loads it.
    ///
    /// # Errors
    /// `source-file` cannot be loaded.
    pub fn load(engine: &Engine) -> std::result::Result<Self, Failure> {
        let described = engine.connector(READER, Path::new("."), &Control::default())?;
        let schema = described.config_schema()?;
        let own_schema = own_schema(schema.clone()).to_string();
        Ok(Self {
            described,
            schema,
            own_schema,
        })
    }
}

/// The settings of the reader without those that requests say, and with those of the queue.
fn own_schema(mut schema: Value) -> Value {
    if let Some(keys) = schema["properties"].as_object_mut() {
        for key in OF_REQUESTS {
            keys.remove(key);
        }
        let dedup = json!({
            "description": "A request is the same job as one before if it has the same Idempotency-Key (key, the \
                default), or also if its body has the same bytes (content).",
            "enum": ["key", "content"],
        });
        keys.insert(DEDUP.into(), dedup);
    }
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|key| !OF_REQUESTS.iter().any(|of_request| key == of_request));
    }
    schema
}

/// A source that reads what the feed gives.
pub fn source(feed: Arc<dyn Feed>, reader: &Arc<Reader>) -> NativeConnector {
    let shared = Arc::new(Shared {
        feed,
        reader: Arc::clone(reader),
        columns: Mutex::default(),
        begun: Mutex::default(),
    });
    NativeConnector::source(NAME, move |native| {
        Box::new(Queue {
            sandbox: native.sandbox().clone(),
            shared: Arc::clone(&shared),
            settings: Map::new(),
            reader: None,
            read: None,
            phase: Step::Ends,
            since: Instant::now(),
        })
    })
}

struct Shared {
    feed: Arc<dyn Feed>,
    reader: Arc<Reader>,
    /// The columns of the first segment, with which the run was planned.
    columns: Mutex<Option<Vec<u8>>>,
    /// The first read of the run: a retry gives the same columns, also where it has no bodies to begin with.
    begun: Mutex<Option<Read>>,
}

/// A session of the source.
struct Queue {
    sandbox: Sandbox,
    shared: Arc<Shared>,
    /// The settings of the reader.
    settings: Map<String, Value>,
    /// The session that reads. `None` before `open`.
    reader: Option<Box<dyn SourceSession>>,
    /// How the stream is read. `None` before `read`.
    read: Option<Read>,
    phase: Step,
    /// When the last segment was read to its end.
    since: Instant,
}

/// How each segment is read.
#[derive(Clone)]
struct Read {
    request: ReadRequest,
    /// The columns that the reader gives.
    schemas: Vec<Vec<u8>>,
    /// A batch of these columns without rows.
    empty: Batch,
}

/// Whether a read that meets a record which its columns do not hold begins again with others. Not behind bodies of the same
/// segment: they would get these columns, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Changes,
    Nothing,
}

/// Where a read is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// In the current segment.
    Reads,
    /// Behind it.
    Waits,
    /// In front of the next one.
    Begins,
    Ends,
}

impl Queue {
    fn reader(&mut self) -> Result<&mut Box<dyn SourceSession>> {
        match &mut self.reader {
            Some(reader) => Ok(reader),
            None => Err(failed("session", broken("open comes first"))),
        }
    }

    /// The sandbox of the reader, which may read the bodies and nothing else.
    fn inner(&self, sandbox: Sandbox, config: &Map<String, Value>) -> Sandbox {
        let bodies = self.shared.feed.current().bodies;
        let grants = Grants::from_config(&self.shared.reader.schema, config, bodies.path());
        Sandbox {
            grants: Arc::new(grants.with_folder(bodies)),
            ..sandbox
        }
    }

    /// Opens a session of the reader.
    fn open_reader(&mut self) -> Result<()> {
        self.reader = None;
        let inner = self.inner(self.sandbox.clone(), &self.settings);
        let mut reader = self.shared.reader.described.source_session(inner)?;
        reader.open(&Value::Object(self.settings.clone()).to_string())?;
        self.reader = Some(reader);
        Ok(())
    }

    /// Begins with the current segment, or leaves it to another run.
    fn begin(&mut self) -> Result<Step> {
        let segment = self.shared.feed.current();
        let is_same = self.go_on(&segment, Follows::Changes);
        let stored = self.shared.feed.ensure_stored();
        stored.map_err(|error| failed("session.read", error))?;
        if is_same? {
            return Ok(Step::Reads);
        }
        self.shared.feed.put_back();
        Ok(Step::Ends)
    }

    /// Adds the next body to the segment if it has the same columns. Returns false if it is the first one of another run: it
    /// has other columns, or cannot be read. `None`: the segment has no next body.
    fn turn(&mut self) -> Option<bool> {
        let feed = Arc::clone(&self.shared.feed);
        // Other columns may hold what one of these columns refuses, and a reject is not taken back.
        let keeps_rejects = self
            .read
            .as_ref()
            .is_some_and(|read| read.request.keeps_rejects);
        if keeps_rejects || !feed.turn() {
            return None;
        }
        let goes_on = matches!(self.go_on(&feed.current(), Follows::Nothing), Ok(true));
        if !goes_on {
            feed.turn_back();
        }
        Some(goes_on)
    }

    /// Begins with the segment that the feed has given. Returns false if it has other columns than those of the plan.
    fn go_on(&mut self, segment: &Segment, follows: Follows) -> Result<bool> {
        let Some(read) = self.read.take() else {
            return Ok(false);
        };
        let format = Value::from(segment.format.as_str());
        if self.settings.get(FORMAT) != Some(&format) {
            self.settings.insert(FORMAT.into(), format);
            self.reader = None;
        }
        let reader = self.reader.as_mut();
        let is_open = reader.is_some_and(|reader| reader.finish() && reader.is_usable());
        if !is_open {
            self.open_reader()?;
        }
        if !self.settings.contains_key(SCHEMA) {
            let found = self.reader()?.discover(&read.request.forms)?;
            let found = found.into_iter().find(|one| one.name == segment.stream);
            if found.map(|one| one.schema) != *self.shared.columns() {
                return Ok(false);
            }
        }
        let reader = self.reader()?;
        // Files have no moment to fix. A session that goes on would only list the bodies once more.
        let snapshot = match is_open {
            true => read.request.snapshot.clone(),
            false => reader.snapshot(&[selection(&read.request)])?,
        };
        let request = ReadRequest {
            snapshot,
            ..read.request
        };
        let asked = match follows {
            Follows::Changes => request.clone(),
            Follows::Nothing => ReadRequest {
                follows_columns: false,
                follows_types: Vec::new(),
                ..request.clone()
            },
        };
        let schemas = reader.read(&[asked])?;
        let is_same = schemas == read.schemas;
        self.read = Some(Read {
            request,
            schemas,
            empty: read.empty,
        });
        Ok(is_same)
    }
}

impl Shared {
    fn columns(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begun(&self) -> MutexGuard<'_, Option<Read>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same read as of a request, without a cursor.
fn selection(request: &ReadRequest) -> Selection {
    Selection {
        stream: request.stream.clone(),
        columns: request.columns.clone(),
        filter: request.filter.clone(),
        query: request.query.clone(),
        increment: None,
        cursor: None,
    }
}

/// An error of a setting.
fn at(error: ConnectorError, key: &str) -> ConnectorError {
    ConnectorError {
        location: Some(format!("config.{key}")),
        ..error
    }
}

fn failed(export: &'static str, error: ConnectorError) -> Error {
    Error::Failed {
        connector: NAME.into(),
        export,
        phase: None,
        error: Box::new(error),
    }
}

impl Session for Queue {
    fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        let inner = match &self.reader {
            Some(reader) => Sandbox {
                grants: Arc::clone(&reader.sandbox().grants),
                ..sandbox.clone()
            },
            None => sandbox.clone(),
        };
        let moved = self
            .reader
            .as_mut()
            .is_none_or(|reader| reader.hand_over(inner));
        if moved {
            self.sandbox = sandbox;
        }
        moved
    }

    fn is_usable(&self) -> bool {
        self.reader.as_ref().is_none_or(|reader| reader.is_usable())
    }

    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error {
        match &mut self.reader {
            Some(reader) => reader.refuse(export, error),
            None => failed(export, error),
        }
    }

    fn stalled(&self) -> ConnectorError {
        match &self.reader {
            Some(reader) => reader.stalled(),
            None => broken("a session that is not open has stalled"),
        }
    }

    fn close(self: Box<Self>) {
        if let Some(reader) = self.reader {
            reader.close();
        }
    }
}

impl SourceSession for Queue {
    fn describe(&mut self) -> Result<Spec> {
        let of_reader = self.shared.reader.described.spec();
        let text = "Bodies that came over HTTP";
        let schema = &self.shared.reader.own_schema;
        Ok(Spec {
            sync_modes: vec![SyncMode::Incremental],
            supports_rejects: of_reader.supports_rejects,
            ..Spec::plain(NAME, env!("CARGO_PKG_VERSION"), text, schema)
        })
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let Segment {
            stream,
            bodies,
            format,
            ..
        } = &self.shared.feed.current();
        let settings = serde_json::from_str(config).map_err(|error| {
            failed(
                "open",
                ConnectorError::new(ErrorKind::Config, "invalid_config", error),
            )
        })?;
        let mut settings: Map<String, Value> = settings;
        for key in OF_REQUESTS {
            if settings.contains_key(key) {
                let text = format!("{key} is not a setting of {NAME}: the requests say it");
                let error = ConnectorError::new(ErrorKind::Config, "unknown_key", text);
                return Err(failed("open", at(error, key).hint("remove the key")));
            }
        }
        Dedup::read(&settings).map_err(|error| failed("open", error))?;
        settings.remove(DEDUP);
        // A client that may send rows may not thereby make types.
        settings.entry(TRUST).or_insert(Value::Bool(false));
        let pattern = bodies.path().join("*").to_string_lossy().into_owned();
        settings.insert("path".into(), pattern.into());
        settings.insert("stream".into(), stream.as_str().into());
        settings.insert(FORMAT.into(), format.as_str().into());
        self.settings = settings;
        self.open_reader()
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        self.reader()?.check()
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let found = self.reader()?.discover(forms)?;
        let stream = self.shared.feed.current().stream;
        let of_segment = found.iter().find(|one| one.name == stream);
        *self.shared.columns() = of_segment.map(|one| one.schema.clone());
        Ok(found)
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        // A retry may begin between two segments, where there is no body to look at.
        if let Some(begun) = &*self.shared.begun() {
            return Ok(begun.request.snapshot.clone());
        }
        let plain = streams.iter().cloned().map(|selection| Selection {
            increment: None,
            cursor: None,
            ..selection
        });
        let plain: Vec<Selection> = plain.collect();
        self.reader()?.snapshot(&plain)
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let refused = |error| failed("session.read", error);
        let [request] = requests else {
            let text = "the streams of a queue are read one by one";
            return Err(refused(broken(text)));
        };
        let cursor = request.cursor.as_deref();
        let request = ReadRequest {
            increment: None,
            cursor: None,
            ..request.clone()
        };
        // A run that follows a change of the columns reads with another plan.
        let is_same = |begun: &Read| {
            let begun = &begun.request;
            (&begun.schema, &begun.columns) == (&request.schema, &request.columns)
        };
        let begun = self.shared.begun().clone().filter(is_same);
        let Some(Read { schemas, empty, .. }) = begun else {
            let segment = self.shared.feed.current();
            if segment.is_in(cursor).map_err(refused)? {
                return Err(refused(Segment::ahead(segment.last)));
            }
            self.shared.feed.rewind();
            let schemas = self.reader()?.read(std::slice::from_ref(&request))?;
            let data = schemas.first().map(|schema| ipc::empty_batch(schema));
            let data = data.transpose().map_err(|error| refused(broken(error)))?;
            let read = Read {
                request,
                schemas,
                empty: Batch {
                    data: data.unwrap_or_default(),
                    rows: 0,
                },
            };
            let schemas = read.schemas.clone();
            *self.shared.begun() = Some(read.clone());
            (self.read, self.phase) = (Some(read), Step::Reads);
            return Ok(schemas);
        };
        let read = Read {
            request,
            schemas: schemas.clone(),
            empty,
        };
        (self.read, self.phase) = (Some(read), Step::Waits);
        if self.shared.feed.resume(cursor).map_err(refused)? {
            self.phase = self.begin()?;
        }
        Ok(schemas)
    }

    fn next(&mut self, wait_ms: u32) -> Result<Event> {
        loop {
            match self.phase {
                Step::Ends => return Ok(Event::End),
                Step::Reads => {
                    let event = self.reader()?.next(wait_ms)?;
                    if !matches!(event, Event::End) {
                        return Ok(event);
                    }
                    let after = match self.turn() {
                        Some(true) => continue,
                        Some(false) => Step::Ends,
                        None => Step::Waits,
                    };
                    let sent = self.shared.feed.ensure_sent();
                    sent.map_err(|error| failed("reader.next", error))?;
                    (self.phase, self.since) = (after, Instant::now());
                    return Ok(Event::Checkpoint(Position {
                        stream: 0,
                        cursor: self.shared.feed.current().cursor(),
                    }));
                }
                // The host stops a source that gives no row for too long.
                Step::Waits if self.since.elapsed() > self.sandbox.limits.stall / 2 => {
                    self.phase = Step::Ends;
                }
                Step::Waits => {
                    let wait = Duration::from_millis(wait_ms.into());
                    self.phase = match self.shared.feed.next(wait) {
                        Next::Nothing => return Ok(Event::Idle),
                        Next::End => Step::Ends,
                        Next::Segment => Step::Begins,
                    };
                    // The destination begins while the reader looks at the bodies.
                    if self.phase == Step::Begins
                        && let Some(read) = &self.read
                    {
                        return Ok(Event::Batch((0, read.empty.clone())));
                    }
                }
                Step::Begins => self.phase = self.begin()?,
            }
        }
    }

    fn acknowledge(&mut self, _positions: &[Position]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> bool {
        match &mut self.reader {
            Some(reader) => reader.finish(),
            None => false,
        }
    }
}
