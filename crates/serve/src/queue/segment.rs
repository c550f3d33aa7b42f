//! What a run of the queue reads: bodies that are committed together.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte::NativeConnector;
use rapidbyte::batches::{ConnectorError, ErrorKind};
use rapidbyte_runtime::{VirtualFolder, broken};
use serde_json::{Value, json};

use super::{Reader, source};

/// Gives a run its bodies.
pub trait Feed: Send + Sync {
    /// The segment that the run reads.
    fn current(&self) -> Segment;

    /// Whether a run that is retried reads the current segment again, if the destination has this cursor. Otherwise it reads
    /// what `next` gives: the segment is committed, perhaps by a commit whose answer was lost.
    ///
    /// # Errors
    /// As of [`Segment::is_in`], and errors of the store.
    fn resume(&self, cursor: Option<&str>) -> Result<bool, ConnectorError>;

    /// The segment behind the current one. Waits until the current one is committed and there are more jobs, at most for
    /// this time.
    fn next(&self, wait: Duration) -> Next;

    /// The run cannot read the segment that `next` has given: another run does.
    fn put_back(&self);

    /// Waits until the jobs of the current segment are on the disk. Nothing that their bodies say leaves the source before.
    ///
    /// # Errors
    /// The store could not keep them.
    fn ensure_stored(&self) -> Result<(), ConnectorError>;

    /// Shows the next body of the run instead of the last one, and adds it to the current segment. False: the
    /// segment ends here. Bodies with declared columns are read together, and are never turned.
    fn turn(&self) -> bool;

    /// Takes the body that `turn` has shown away from the segment: another run reads it.
    fn turn_back(&self);

    /// The current segment is read from its first body on.
    fn rewind(&self);

    /// Whether the bodies of the current segment, which was read to its end, are those that clients have sent. No cursor
    /// of the segment exists before.
    ///
    /// # Errors
    /// A body on the disk has other bytes, or cannot be read.
    fn ensure_sent(&self) -> Result<(), ConnectorError>;
}

/// What a run does next.
pub enum Next {
    /// It reads the current segment.
    Segment,
    /// Nothing came within the wait.
    Nothing,
    /// It ends.
    End,
}

/// One segment and no other.
struct Alone(Segment);

impl Feed for Alone {
    fn current(&self) -> Segment {
        self.0.clone()
    }

    fn resume(&self, cursor: Option<&str>) -> Result<bool, ConnectorError> {
        Ok(!self.0.is_in(cursor)?)
    }

    fn next(&self, _wait: Duration) -> Next {
        Next::End
    }

    fn put_back(&self) {}

    fn ensure_stored(&self) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn turn(&self) -> bool {
        false
    }

    fn turn_back(&self) {}

    fn rewind(&self) {}

    fn ensure_sent(&self) -> Result<(), ConnectorError> {
        Ok(())
    }
}

/// Bodies that are committed together.
#[derive(Debug, Clone)]
pub struct Segment {
    /// The name of the stream.
    pub stream: String,
    /// The bodies, and nothing else.
    pub bodies: Arc<VirtualFolder>,
    /// The format of all of them, as `source-file` names it.
    pub format: String,
    /// The id of the first job.
    pub first: i64,
    /// The id of the last job.
    pub last: i64,
    /// The name of the queue: ids of another one say nothing.
    pub queue: String,
    /// The [`mark`] of another queue's cursor from which this one goes on.
    pub seen: Option<String>,
}

/// A cursor of another queue, by what does not change while nobody commits.
pub fn mark(cursor: &str) -> String {
    match serde_json::from_str::<Value>(cursor) {
        Ok(cursor) if cursor["job"].is_i64() => format!("{}/{}", cursor["queue"], cursor["job"]),
        _ => cursor.to_owned(),
    }
}

/// The code of an error: another queue writes to the target of a stream.
pub const SHARED: &str = "queue_shared";

impl Segment {
    /// The cursor of a destination that has all rows up to the last job.
    pub(super) fn cursor(&self) -> String {
        json!({ "queue": self.queue, "job": self.last }).to_string()
    }

    /// The job of a cursor. `None` for a cursor of another queue.
    pub fn job_of(cursor: &str, queue: &str) -> Option<i64> {
        let cursor: Value = serde_json::from_str(cursor).ok()?;
        let is_of_queue = cursor["queue"] == queue;
        cursor["job"].as_i64().filter(|_| is_of_queue)
    }

    /// No bodies: for a look at the settings of a pipeline.
    pub fn empty(folder: &Path) -> Self {
        Self {
            stream: String::new(),
            bodies: Arc::new(VirtualFolder::new(folder)),
            format: "jsonl".into(),
            first: 0,
            last: 0,
            queue: String::new(),
            seen: None,
        }
    }

    /// A source that reads the bodies, and ends.
    pub fn source(self, reader: &Arc<Reader>) -> NativeConnector {
        source(Arc::new(Alone(self)), reader)
    }

    /// Whether a destination with this cursor has the rows of this segment.
    ///
    /// # Errors
    /// `contract_broken`: it has some of the jobs, or later ones. `queue_shared`: it has the cursor of another queue.
    pub fn is_in(&self, cursor: Option<&str>) -> Result<bool, ConnectorError> {
        let Some(cursor) = cursor else {
            return Ok(false);
        };
        match Self::job_of(cursor, &self.queue) {
            Some(job) if job == self.last => Ok(true),
            // A run of before may have committed some of these jobs after the store was compared with the destination.
            Some(job) if job >= self.first => Err(Self::ahead(job)),
            Some(_) => Ok(false),
            None if self.seen.as_ref() == Some(&mark(cursor)) => Ok(false),
            None => {
                let text = "another queue has written to the target of this stream";
                let error = ConnectorError::new(ErrorKind::Internal, SHARED, text);
                Err(error.hint("let one server write to a target"))
            }
        }
    }

    /// The error for a destination that has a job which the run has not committed.
    pub(super) fn ahead(job: i64) -> ConnectorError {
        broken(format!(
            "the destination has the rows of the job {job} already"
        ))
    }
}
