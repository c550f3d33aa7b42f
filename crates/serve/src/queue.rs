//! The queue as a source: the bodies of some jobs of one stream, in the order of their ids.
//!
//! The component `source-file` reads the bodies, so that hostile input stays in the sandbox. The cursor is the id of a
//! job: the destination commits it together with the rows, so a job is done exactly if the committed cursor has passed it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rapidbyte::batches::{ConnectorError, ErrorKind};
use rapidbyte::{Control, Described, Engine, Failure, NativeConnector, Spec, Stream, SyncMode};
use rapidbyte_runtime::{
    CheckItem, Error, Event, Grants, Position, ReadRequest, Result, Sandbox, Selection, Session,
    SourceSession, broken,
};
use serde_json::{Map, Value, json};

/// The connector that reads the bodies.
pub const READER: &str = "source-file";
/// The name that pipelines write after `use:`.
pub const NAME: &str = "ingest";

/// The bodies of one run.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The name of the stream.
    pub stream: String,
    /// The folder of the bodies, which has nothing else.
    pub folder: PathBuf,
    /// The format of all of them, as `source-file` names it.
    pub format: String,
    /// The id of the first job.
    pub first: i64,
    /// The id of the last job.
    pub last: i64,
    /// The name of the queue: ids of another one say nothing.
    pub queue: String,
}

impl Segment {
    /// The cursor of a destination that has all rows up to the last job.
    fn cursor(&self) -> String {
        json!({ "queue": self.queue, "job": self.last }).to_string()
    }

    /// The job of a cursor. `None` for a cursor of another queue.
    pub fn job_of(cursor: &str, queue: &str) -> Option<i64> {
        let cursor: Value = serde_json::from_str(cursor).ok()?;
        let is_of_queue = cursor["queue"] == queue;
        cursor["job"].as_i64().filter(|_| is_of_queue)
    }

    /// A source that reads the bodies.
    ///
    /// # Errors
    /// `source-file` cannot be loaded.
    pub fn source(self, engine: &Engine) -> std::result::Result<NativeConnector, Failure> {
        let reader = engine.connector(READER, Path::new("."), &Control::default())?;
        let schema = reader.config_schema()?;
        let shared = Arc::new(Shared {
            segment: self,
            reader,
            schema,
        });
        Ok(NativeConnector::source(NAME, move |native| {
            Box::new(Queue {
                sandbox: native.sandbox().clone(),
                shared: Arc::clone(&shared),
                reader: None,
                ends: false,
            })
        }))
    }
}

struct Shared {
    segment: Segment,
    reader: Described,
    /// The settings of the reader.
    schema: Value,
}

/// A session of the source.
struct Queue {
    sandbox: Sandbox,
    shared: Arc<Shared>,
    /// The session that reads. `None` before `open`.
    reader: Option<Box<dyn SourceSession>>,
    /// All rows have been given.
    ends: bool,
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
        let folder = &self.shared.segment.folder;
        Sandbox {
            grants: Arc::new(Grants::from_config(&self.shared.schema, config, folder)),
            ..sandbox
        }
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
        let of_reader = self.shared.reader.spec();
        let text = "Bodies that came over HTTP";
        let schema = &of_reader.config_schema;
        Ok(Spec {
            sync_modes: vec![SyncMode::Incremental],
            supports_rejects: of_reader.supports_rejects,
            ..Spec::plain(NAME, env!("CARGO_PKG_VERSION"), text, schema)
        })
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let Segment {
            stream,
            folder,
            format,
            ..
        } = &self.shared.segment;
        let settings = serde_json::from_str(config).map_err(|error| {
            failed(
                "open",
                ConnectorError::new(ErrorKind::Config, "invalid_config", error),
            )
        })?;
        let mut settings: Map<String, Value> = settings;
        for key in ["path", "stream", "format", "compression"] {
            if settings.contains_key(key) {
                let text = format!("{key} is not a setting of {NAME}: the requests say it");
                let error = ConnectorError::new(ErrorKind::Config, "unknown_key", text);
                return Err(failed("open", error.hint("remove the key")));
            }
        }
        let pattern = folder.join("*").to_string_lossy().into_owned();
        settings.insert("path".into(), pattern.into());
        settings.insert("stream".into(), stream.as_str().into());
        settings.insert("format".into(), format.as_str().into());
        let inner = self.inner(self.sandbox.clone(), &settings);
        let mut reader = self.shared.reader.source_session(inner)?;
        reader.open(&Value::Object(settings).to_string())?;
        self.reader = Some(reader);
        Ok(())
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        self.reader()?.check()
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        self.reader()?.discover(forms)
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let plain = streams.iter().cloned().map(|selection| Selection {
            increment: None,
            cursor: None,
            ..selection
        });
        let plain: Vec<Selection> = plain.collect();
        self.reader()?.snapshot(&plain)
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let Segment { first, queue, .. } = &self.shared.segment;
        let committed = requests
            .iter()
            .filter_map(|request| request.cursor.as_deref());
        let mut committed = committed.filter_map(|cursor| Segment::job_of(cursor, queue));
        // A run of before may have committed some of these jobs after the store was compared with the destination.
        if let Some(job) = committed.find(|job| job >= first) {
            let text = format!("the destination has the rows of the job {job} already");
            return Err(failed("session.read", broken(text)));
        }
        self.ends = false;
        let plain = requests.iter().cloned().map(|request| ReadRequest {
            increment: None,
            cursor: None,
            ..request
        });
        let plain: Vec<ReadRequest> = plain.collect();
        self.reader()?.read(&plain)
    }

    fn next(&mut self, wait_ms: u32) -> Result<Event> {
        if self.ends {
            return Ok(Event::End);
        }
        let event = self.reader()?.next(wait_ms)?;
        if !matches!(event, Event::End) {
            return Ok(event);
        }
        self.ends = true;
        Ok(Event::Checkpoint(Position {
            stream: 0,
            cursor: self.shared.segment.cursor(),
        }))
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
