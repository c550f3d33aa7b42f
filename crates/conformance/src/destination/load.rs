//! One load of a stream, and what can be seen of a stream from outside.

use std::fmt;
use std::ops::Range;

use arrow_schema::SchemaRef;
use rapidbyte_runtime::{
    Batch, Cancel, Destination, Event, Part, Progress, ReadRequest, Receipt, Run, Selection, Target,
};
use rapidbyte_wire::ipc::Encoder;

use super::{PIPELINE, Subject};
use crate::bench::{Bench, Reach, Trouble};
use crate::trial::Peer;
use crate::values;

/// Steps of a peer's read.
const MAX_STEPS: usize = 10_000;

/// A session that has been let in and writes.
pub(crate) struct Load<'b> {
    bench: &'b Bench<'b>,
    destination: Destination,
    stream: String,
    schema: SchemaRef,
    encoder: Encoder,
    /// As `fence` said.
    pub fenced: Progress,
    /// Commits of the stream so far.
    pub seq: u64,
}

impl<'b> Load<'b> {
    /// Opens a session, is let in as `run` and begins to write.
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
        let mut load = Self::let_in(subject, target, schema, run, cancel)?;
        let (epoch, cursor) = (load.fenced.epoch, load.fenced.cursor.clone());
        let opened = load.destination.open_writer(target, epoch, cursor.as_ref());
        load.bench.note(opened)?;
        Ok(load)
    }

    /// Opens a session that is let in and does not write yet.
    pub fn let_in(
        subject: &Subject<'b>,
        target: &Target,
        schema: SchemaRef,
        run: &str,
        cancel: Cancel,
    ) -> Result<Self, Trouble> {
        let bench = subject.bench;
        let config = bench.config().cloned().unwrap_or_default();
        let mut destination = bench.destination_until(&config, Reach::Granted, cancel)?;
        bench.note(destination.plan(target))?;
        let run = Run {
            pipeline: PIPELINE.into(),
            id: format!("{}-{run}", subject.tag),
        };
        let fenced = bench.note(destination.fence(target, &run))?;
        let encoder = Encoder::new(&schema).map_err(|e| Trouble::Broken(e.to_string()))?;
        Ok(Self {
            bench,
            destination,
            stream: target.stream.clone(),
            schema,
            encoder,
            seq: fenced.seq,
            fenced,
        })
    }

    /// Rows as a message.
    pub fn batch(&mut self, rows: Range<usize>) -> Result<Batch, Trouble> {
        let broken = |error: String| Trouble::Broken(error);
        let count = rows.len() as u64;
        let rows = values::batch(&self.schema, rows).map_err(broken)?;
        let data = self
            .encoder
            .encode(&rows)
            .map_err(|e| broken(e.to_string()))?;
        Ok(Batch { data, rows: count })
    }

    pub fn write(&mut self, rows: Range<usize>) -> Result<(), Trouble> {
        let batch = self.batch(rows)?;
        self.write_batch(&batch)
    }

    pub fn write_batch(&mut self, batch: &Batch) -> Result<(), Trouble> {
        self.bench.note(self.destination.write(batch))
    }

    pub fn flush(&mut self) -> Result<Part, Trouble> {
        self.bench.note(self.destination.flush())
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
        let Self {
            destination,
            stream,
            ..
        } = self;
        let receipt = destination.commit(stream, parts, seq, cursor.as_ref(), complete);
        self.bench.note(receipt)
    }

    pub fn abort(&mut self) -> Result<(), Trouble> {
        self.bench.note(self.destination.abort(&self.stream))
    }
}

/// What can be seen of a stream.
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
    /// Rows that the peer reads; none without one, or where it finds no such stream.
    pub rows: Option<u64>,
}

impl Sight {
    /// Looks from a session of its own, which changes nothing.
    pub fn of(subject: &Subject<'_>, target: &Target) -> Result<Self, Trouble> {
        let bench = subject.bench;
        let config = bench.config().cloned().unwrap_or_default();
        let mut destination = bench.destination(&config, Reach::Granted)?;
        let plan = bench.note(destination.plan(target))?;
        let progress = bench.note(destination.progress(target, PIPELINE))?;
        let progress = progress.filter(|_| target.keeps_cursor);
        Ok(Self {
            seq: progress.as_ref().map_or(0, |progress| progress.seq),
            cursor: progress
                .as_ref()
                .and_then(|progress| progress.cursor.clone()),
            complete: progress.as_ref().is_some_and(|progress| progress.complete),
            is_new: plan.is_new,
            rows: match &bench.trial.peer {
                Some(peer) => rows_by(bench, peer, &target.stream),
                None => None,
            },
        })
    }

    /// Whether rows that become visible too early would change it.
    pub fn tells(&self, target: &Target) -> bool {
        self.is_new || target.keeps_cursor
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_new {
            "nothing there"
        } else {
            "something there"
        };
        write!(f, "{what}, {} commits", self.seq)?;
        if let Some(cursor) = &self.cursor {
            write!(f, ", cursor {cursor}")?;
        }
        if self.complete {
            write!(f, ", complete")?;
        }
        match self.rows {
            Some(rows) => write!(f, ", {rows} rows"),
            None => Ok(()),
        }
    }
}

/// How many rows a peer reads of a stream, whatever stands before its name; none where it finds no
/// such stream.
fn rows_by(bench: &Bench<'_>, peer: &Peer, stream: &str) -> Option<u64> {
    let config = &peer.settings.config;
    let mut source = bench.peer(&peer.connector, config, &peer.grants).ok()?;
    let found = source.discover(&[]).ok()?;
    let is_it = |name: &str| name == stream || name.ends_with(&format!(".{stream}"));
    let name = found
        .into_iter()
        .map(|found| found.name)
        .find(|name| is_it(name))?;
    let selection = Selection {
        stream: name.clone(),
        columns: None,
        filter: None,
        increment: None,
        cursor: None,
    };
    let snapshot = source.snapshot(&[selection]).ok()?;
    let request = ReadRequest {
        stream: name,
        snapshot,
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        forms: Vec::new(),
        batch_bytes: crate::read::BATCH_BYTES,
        max_record_bytes: 16 << 20,
    };
    source.read(&request).ok()?;
    let mut rows = 0;
    for _ in 0..MAX_STEPS {
        match source.next(1000).ok()? {
            Event::Batch(batch) => rows += batch.rows,
            Event::Checkpoint(_) | Event::Idle => {}
            Event::End => return Some(rows),
        }
    }
    None
}
