//! One load of a stream, and what can be seen of a stream from outside.

use std::fmt;
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use rapidbyte_runtime::{
    Batch, Cancel, Destination, LoadRequest, Part, Plan, Progress, Receipt, Reject, RejectOrigin,
    Run, StreamCommit, Target,
};
use rapidbyte_wire::ipc::Encoder;

use super::{PIPELINE, Subject};
use crate::bench::{Bench, Reach, Trouble};
use crate::digest::Digest;
use crate::{peer, values};

/// A session that has fenced older runs and writes.
pub(crate) struct Load<'b> {
    bench: &'b Bench<'b>,
    destination: Destination,
    /// How the names of the test's streams begin.
    prefix: String,
    schema: SchemaRef,
    encoder: Encoder,
    /// The plan for the columns.
    pub plan: Plan,
    written: Vec<RecordBatch>,
    /// As `begin` said.
    pub fenced: Progress,
    /// Commits of the stream so far.
    pub seq: u64,
}

impl<'b> Load<'b> {
    /// Opens a session, fences older runs as `run`, and begins to write.
    pub fn begin(
        subject: &Subject<'b>,
        target: &Target,
        schema: SchemaRef,
        run: &str,
    ) -> Result<Self, Trouble> {
        let cancel = subject.bench.trial.host.cancel.child();
        Self::begin_until(subject, target, schema, run, cancel)
    }

    /// The same, which `cancel` stops.
    pub fn begin_until(
        subject: &Subject<'b>,
        target: &Target,
        schema: SchemaRef,
        run: &str,
        cancel: Cancel,
    ) -> Result<Self, Trouble> {
        Self::let_in(subject, target, schema, run, cancel)?.opened()
    }

    /// Begins to write.
    pub fn opened(mut self) -> Result<Self, Trouble> {
        let cursor = self.fenced.cursor.as_ref();
        self.bench.note(self.destination.open_writer(0, cursor))?;
        self.bench
            .left
            .borrow_mut()
            .get_or_insert_with(|| self.prefix.clone());
        Ok(self)
    }

    /// Begins another stream in the session of one that is committed, as a run does. `None` where the
    /// session holds too much for that.
    pub fn next(
        mut self,
        subject: &Subject<'b>,
        target: &Target,
        schema: SchemaRef,
        run: &str,
    ) -> Result<Option<Self>, Trouble> {
        if !self.destination.finish() {
            return Ok(None);
        }
        let next = Self::let_in_by(subject, self.destination, PIPELINE, target, schema, run)?;
        next.opened().map(Some)
    }

    /// Opens a session that fences older runs and does not write yet.
    pub fn let_in(
        subject: &Subject<'b>,
        target: &Target,
        schema: SchemaRef,
        run: &str,
        cancel: Cancel,
    ) -> Result<Self, Trouble> {
        Self::let_in_of(subject, PIPELINE, target, schema, run, cancel)
    }

    /// The same as a run of a pipeline.
    pub fn let_in_of(
        subject: &Subject<'b>,
        pipeline: &str,
        target: &Target,
        schema: SchemaRef,
        run: &str,
        cancel: Cancel,
    ) -> Result<Self, Trouble> {
        let bench = subject.bench;
        let config = bench.config().cloned().unwrap_or_default();
        let destination = bench.destination_until(&config, Reach::Granted, cancel)?;
        Self::let_in_by(subject, destination, pipeline, target, schema, run)
    }

    /// The same in an open session.
    fn let_in_by(
        subject: &Subject<'b>,
        mut destination: Destination,
        pipeline: &str,
        target: &Target,
        schema: SchemaRef,
        run: &str,
    ) -> Result<Self, Trouble> {
        let bench = subject.bench;
        let plan = bench.note(destination.plan(target))?;
        let run = Run {
            pipeline: pipeline.into(),
            id: subject.run_id(run),
        };
        let target = target.clone();
        let mut fenced = bench.note(destination.begin(&[LoadRequest { target, run }]))?;
        // There is one, because there is one request.
        let fenced = fenced.remove(0);
        let encoder = Encoder::new(&schema).map_err(|e| Trouble::Broken(e.to_string()))?;
        Ok(Self {
            bench,
            destination,
            prefix: subject.prefix(),
            schema,
            encoder,
            plan,
            written: Vec::new(),
            seq: fenced.seq,
            fenced,
        })
    }

    /// Rows as a message.
    pub fn batch(&mut self, rows: Range<usize>) -> Result<Batch, Trouble> {
        let rows = values::batch(&self.schema, rows).map_err(Trouble::Broken)?;
        self.encoded(&rows)
    }

    fn encoded(&mut self, rows: &RecordBatch) -> Result<Batch, Trouble> {
        let data = self.encoder.encode(rows);
        let data = data.map_err(|error| Trouble::Broken(error.to_string()))?;
        let rows = rows.num_rows() as u64;
        Ok(Batch { data, rows })
    }

    pub fn write(&mut self, rows: Range<usize>) -> Result<(), Trouble> {
        let rows = values::batch(&self.schema, rows).map_err(Trouble::Broken)?;
        self.write_rows(&rows)
    }

    /// Writes rows of the stream's columns, and keeps them for a comparison.
    pub fn write_rows(&mut self, rows: &RecordBatch) -> Result<(), Trouble> {
        let batch = self.encoded(rows)?;
        self.write_batch(&batch)?;
        self.written.push(rows.clone());
        Ok(())
    }

    /// Every row that was written.
    pub fn written(&self) -> Result<RecordBatch, Trouble> {
        let rows = concat_batches(&self.schema, &self.written);
        rows.map_err(|error| Trouble::Broken(error.to_string()))
    }

    pub fn write_batch(&mut self, batch: &Batch) -> Result<(), Trouble> {
        self.bench.note(self.destination.write(0, batch))
    }

    pub fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<(), Trouble> {
        self.bench.note(self.destination.reject(0, origin, rejects))
    }

    pub fn flush(&mut self) -> Result<Part, Trouble> {
        self.bench.note(self.destination.flush(0))
    }

    /// Commits under the number of commits so far.
    pub fn commit(
        &mut self,
        parts: &[Part],
        cursor: Option<String>,
        complete: bool,
    ) -> Result<Receipt, Trouble> {
        let receipt = self.commit_as(self.seq, parts, cursor, complete)?;
        self.seq += 1;
        Ok(receipt)
    }

    /// Commits under a number that may be another one.
    pub fn commit_as(
        &mut self,
        seq: u64,
        parts: &[Part],
        cursor: Option<String>,
        complete: bool,
    ) -> Result<Receipt, Trouble> {
        let commit = StreamCommit {
            stream: 0,
            parts: parts.to_vec(),
            seq,
            cursor,
            complete,
        };
        let receipts = self.bench.note(self.destination.commit(&[commit]))?;
        Ok(receipts.into_iter().next().expect("one for each stream"))
    }

    pub fn abort(&mut self) -> Result<(), Trouble> {
        self.bench.note(self.destination.abort())
    }
}

/// The visible state of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Commits so far.
    pub seq: u64,
    /// Of the newest commit.
    pub cursor: Option<String>,
    /// The newest run has committed everything.
    pub complete: bool,
    /// There is nothing at the location yet.
    pub is_new: bool,
    /// The rows that the peer reads; none without one, or where it finds no such stream.
    pub rows: Option<Digest>,
}

impl Sight {
    /// Looks from a session of its own, which changes nothing.
    pub fn of(subject: &Subject<'_>, target: &Target) -> Result<Self, Trouble> {
        let bench = subject.bench;
        let config = bench.config().cloned().unwrap_or_default();
        let mut destination = bench.destination(&config, Reach::Granted)?;
        let plan = bench.note(destination.plan(target))?;
        let progress = bench.note(destination.progress(target, PIPELINE))?;
        let progress = progress.filter(|_| target.is_incremental);
        Ok(Self {
            seq: progress.as_ref().map_or(0, |progress| progress.seq),
            cursor: progress
                .as_ref()
                .and_then(|progress| progress.cursor.clone()),
            complete: progress.as_ref().is_some_and(|progress| progress.complete),
            is_new: plan.is_new,
            rows: match &bench.trial.peer {
                Some(peer) => match peer::rows(bench, peer, &target.stream)? {
                    Some(rows) => {
                        let mut digest = Digest::default();
                        digest.add(&rows).map_err(Trouble::Broken)?;
                        Some(digest)
                    }
                    None => None,
                },
                None => None,
            },
        })
    }

    /// Whether rows that become visible too early would change it.
    pub fn tells(&self, target: &Target) -> bool {
        self.is_new || target.is_incremental
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_new {
            "nothing there"
        } else {
            "something there"
        };
        write!(f, "{what}, {}", rapidbyte_wire::counted(self.seq, "commit"))?;
        if let Some(cursor) = &self.cursor {
            write!(f, ", cursor {cursor}")?;
        }
        if self.complete {
            write!(f, ", complete")?;
        }
        match self.rows {
            Some(digest) => write!(f, ", {digest}"),
            None => Ok(()),
        }
    }
}
