//! The calls of the host: traits for the sessions of sources, transforms and destinations.
//!
//! A session is an instance of a WebAssembly component ([`crate::wasm`]) or a native type ([`crate::native`]). The host
//! checks both in the same way ([`crate::checked`]). A session has one read, transform or load at a time and contains its
//! reader, transformer or writers, because an instance has one store, which a separate reader could not share with its
//! session. A read and a load have one or more streams, which are numbered from 0 in the order of their requests.

use crate::bindings::destination::{
    DroppedColumn, KeptReject, LoadRequest, NewColumn, Part, Plan, Presence, Progress, Receipt,
    Refused, RenamedColumn, SchemaChanges, StreamCommit, Target, TypeChange, Worker,
};
use crate::bindings::source::{Event, Position, ReadRequest, Selection};
use crate::bindings::transform::{Plan as TransformPlan, Relation};
use crate::bindings::types::{
    Batch, Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error as ConnectorError, ErrorKind,
    Reject, RejectOrigin, RowLimit, Spec, Stream,
};
use crate::{Error, Result, Sandbox};

/// The calls that all sessions have in common.
pub trait Session: Send {
    /// The grants, the limits and the clock of the session.
    fn sandbox(&self) -> &Sandbox;

    /// Moves the session to another sandbox with the same grants. From then on the clock, the limits and the share of
    /// memory of the new sandbox apply, and the cancel token of either sandbox stops the session. Returns false and
    /// changes nothing if the session has failed, or holds more than the new share of memory.
    fn hand_over(&mut self, sandbox: Sandbox) -> bool;

    /// Whether the host may call the session again. After a trap, a broken limit or a broken contract it may not.
    fn is_usable(&self) -> bool;

    /// Adds the place to an error that the host found, such as a broken limit. The host does not call the session
    /// again.
    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error;

    /// The error for a session in which nothing has moved for too long. It says what the session waits for, if that is
    /// known.
    fn stalled(&self) -> ConnectorError;

    /// Ends the session and lets it log out of its server. This is the last call. It may take
    /// [`Limits::abort`](crate::Limits::abort).
    fn close(self: Box<Self>);
}

/// A session of a source, with at most one reader.
pub trait SourceSession: Session {
    /// The name, the version, the config schema and the abilities of the connector.
    fn describe(&mut self) -> Result<Spec>;

    /// Configures the session with a JSON object. Only `describe` comes before this call.
    fn open(&mut self, config: &str) -> Result<()>;

    /// Checks everything that a run needs.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// The streams that the source has. `forms` names the native forms that the destination takes.
    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>>;

    /// Describes the rows of a query as a stream. `forms` as in `discover`. Called only for a source whose spec has
    /// `supports_queries`.
    fn describe_query(&mut self, stream: &str, query: &str, forms: &[String]) -> Result<Stream> {
        let _ = (query, forms);
        let text = format!("{stream}: a query for a source without queries");
        let error = ConnectorError::new(ErrorKind::Internal, "internal", text);
        Err(self.refuse("session.describe-query", error))
    }

    /// Takes one consistent snapshot for all streams, and returns its name.
    fn snapshot(&mut self, streams: &[Selection]) -> Result<String>;

    /// The rows of an incremental stream that a destination with the cursor of the selection has. This and the next two
    /// are called only for a source whose spec has `digest_forms`.
    fn digest_limits(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
    ) -> Result<Vec<RowLimit>> {
        let _ = (selection, snapshot);
        Err(self.refuse("session.digest-limits", no_digests()))
    }

    /// The sums of the buckets of a selection's rows.
    fn digest(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let _ = (selection, asked, within, bits);
        Err(self.refuse("session.digest", no_digests()))
    }

    /// The digests of at most `max` rows.
    fn digest_rows(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let _ = (selection, asked, rows, max);
        Err(self.refuse("session.digest-rows", no_digests()))
    }

    /// Begins to read one or more streams. Returns the `Schema` message of the batches of each.
    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>>;

    /// Waits at most `wait_ms` for the next event of the read.
    fn next(&mut self, wait_ms: u32) -> Result<Event>;

    /// The bytes of all rows that the session gives, if it has them in memory: then a read waits for nobody.
    fn bytes_at_hand(&self) -> Option<usize> {
        None
    }

    /// Tells the reader that the destination has committed everything up to these cursors. Comes between two calls of
    /// `next`, or after `end`.
    fn acknowledge(&mut self, positions: &[Position]) -> Result<()>;

    /// Ends a read after its `end`. Returns true if the session can read other streams.
    fn finish(&mut self) -> bool;
}

/// A session of a transform, with at most one transformer.
pub trait TransformSession: Session {
    /// The name, the version, the config schema and the abilities of the connector.
    fn describe(&mut self) -> Result<Spec>;

    /// Configures the session with a JSON object. Only `describe` comes before this call.
    fn open(&mut self, config: &str) -> Result<()>;

    /// The rows of a stream after the transform, from the rows before it.
    fn plan(&mut self, input: &Relation) -> Result<TransformPlan>;

    /// Begins to transform a stream. Returns the `Schema` message of the batches that come out. With `keeps_rejects`,
    /// which only a transform with `supports_rejects` gets, a row that cannot be transformed is a reject.
    fn begin(&mut self, input: &Relation, keeps_rejects: bool) -> Result<Vec<u8>>;

    /// Takes the next batch, after `next` has returned `None`.
    fn put(&mut self, batch: &Batch) -> Result<()>;

    /// The next batch that comes of the last `put`, with at least one row, or `None` if no more rows come of it.
    fn next(&mut self) -> Result<Option<Batch>>;

    /// Rows of the last `put` that cannot be transformed: none if there are no more.
    fn rejects(&mut self) -> Result<Vec<Reject>> {
        Ok(Vec::new())
    }

    /// Ends the transform of a stream. Returns true if the session can transform another stream.
    fn finish(&mut self) -> bool;
}

impl Default for SchemaChanges {
    /// As the pipeline file has it: new columns are added, renamed ones are renamed, others stay, and types are widened
    /// where no stored row changes.
    fn default() -> Self {
        Self {
            new_column: NewColumn::Add,
            dropped_column: DroppedColumn::Keep,
            type_change: TypeChange::Widen,
            renamed: RenamedColumn::Detect,
        }
    }
}

/// Which rows both sides digest, and how.
#[derive(Debug, Clone, Copy)]
pub struct Digests<'a> {
    /// For a source: the rows as of the snapshot with this name. `None`: as they are now.
    pub snapshot: Option<&'a str>,
    /// The answer of the destination's `digest-recipe`.
    pub recipe: &'a str,
    /// The rows that count.
    pub limits: &'a [RowLimit],
}

fn no_digests() -> ConnectorError {
    ConnectorError::new(
        ErrorKind::Internal,
        "internal",
        "the connector does not digest rows",
    )
}

/// The error of a destination that was given keys and does not compare them.
fn no_keys() -> ConnectorError {
    let text = "the destination does not compare keys";
    ConnectorError::new(ErrorKind::Internal, "internal", text)
}

/// A session of a destination, with at most one load.
pub trait DestinationSession: Session {
    /// The name, the version, the config schema and the abilities of the connector.
    fn describe(&mut self) -> Result<Spec>;

    /// Configures the session with a JSON object. Only `describe` comes before this call.
    fn open(&mut self, config: &str) -> Result<()>;

    /// Checks everything that a run needs.
    fn check(&mut self) -> Result<Vec<CheckItem>>;

    /// The location, the column types and the statements of a run that writes this target.
    fn plan(&mut self, target: &Target) -> Result<Plan>;

    /// The progress of a stream, or `None` before the first run has fenced. An epoch of 0 means that the destination
    /// does not fence runs of this target.
    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>>;

    /// How the rows of the target are digested. This and the next two are called only for a destination whose spec has
    /// `digest_forms`.
    fn digest_recipe(&mut self, target: &Target, forms: &[String]) -> Result<String> {
        let _ = (target, forms);
        Err(self.refuse("session.digest-recipe", no_digests()))
    }

    /// The sums of the buckets of the target's rows.
    fn digest(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let _ = (target, asked, within, bits);
        Err(self.refuse("session.digest", no_digests()))
    }

    /// The digests of at most `max` rows.
    fn digest_rows(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let _ = (target, asked, rows, max);
        Err(self.refuse("session.digest-rows", no_digests()))
    }

    /// The active runs of the pipeline, as far as the destination knows them.
    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>>;

    /// Records that a run is active. Returns true if the host has to repeat the call every few seconds.
    fn beat(&mut self, presence: &Presence) -> Result<bool>;

    /// A page of the rejects of the pipeline that are kept in the place `to`, after the reject with the id `after`.
    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let _ = (to, pipeline, after, with_data);
        Ok(Vec::new())
    }

    /// Begins to load one or more streams, and fences older runs of each: from now on only these runs can commit.
    fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>>;

    /// Begins to write the rows of a stream of the load that follow `cursor`.
    fn open_writer(&mut self, stream: u32, cursor: Option<&String>) -> Result<()>;

    /// The statements that changed the columns of a stream's target since the load began.
    fn schema_changes(&mut self, stream: u32) -> Result<Vec<String>> {
        let _ = stream;
        Ok(Vec::new())
    }

    /// Writes one batch of a stream.
    fn write(&mut self, stream: u32, batch: &Batch) -> Result<()>;

    /// Keeps rejects of the stages before. Only a destination that keeps rejects is asked.
    fn reject(&mut self, stream: u32, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        let _ = (stream, origin, rejects);
        Ok(())
    }

    /// The rows of a stream that the writer has refused since the last call.
    fn refused(&mut self, stream: u32) -> Result<Refused> {
        let _ = stream;
        Ok(Refused {
            rows: 0,
            first: Vec::new(),
        })
    }

    /// Ends a part of a stream: the next commit can contain everything written so far.
    fn flush(&mut self, stream: u32) -> Result<Part>;

    /// Begins to take the keys of all rows that the source has of a stream. Only a destination with
    /// `spec.compares-keys` is asked.
    fn open_keys(&mut self, stream: u32) -> Result<()> {
        let _ = stream;
        Err(self.refuse("load.open-keys", no_keys()))
    }

    /// Takes one batch of keys.
    fn write_keys(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        let _ = (stream, batch);
        Err(self.refuse("writer.write", no_keys()))
    }

    /// Ends the keys of a stream. The part says how many came.
    fn flush_keys(&mut self, stream: u32) -> Result<Part> {
        let _ = stream;
        Err(self.refuse("writer.flush", no_keys()))
    }

    /// Makes the parts of some streams visible and moves their cursors, in one step. Returns a receipt for each.
    fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>>;

    /// Ends the load after the last commit of its streams. Returns true if the session can load other streams.
    fn finish(&mut self) -> bool;

    /// Discards everything that is not committed. This is the last call. It may take
    /// [`Limits::abort`](crate::Limits::abort).
    fn abort(&mut self) -> Result<()>;
}
