//! One read of a stream, step by step, within bounds.

use std::time::{Duration, Instant};

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_runtime::{Event, Increment, Position, ReadRequest, Selection, Source, Stream};
use rapidbyte_wire::ipc::{self, Decoder};

use crate::bench::{Bench, Trouble};

/// Rows of one read; a stream with more is not read to its end.
pub(crate) const MAX_ROWS: u64 = 500_000;
/// Bytes of the batches of one read.
const MAX_BYTES: usize = 256 << 20;
/// Time of one read.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The time that a reader may wait for its next event.
pub(crate) const WAIT: Duration = Duration::from_millis(100);
/// Time on top: a query has to begin, a page to be made.
pub(crate) const SLACK: Duration = Duration::from_secs(5);
/// An idle that comes sooner than this part of [`WAIT`] did not wait.
const WAITED: Duration = Duration::from_millis(50);
/// The most quick idles in a row; more are a loop.
const MAX_QUICK_IDLES: u32 = 20;
/// The requested size of a batch, in bytes.
pub(crate) const BATCH_BYTES: u32 = 256 << 10;
/// The same where many checkpoints are wanted.
pub(crate) const SMALL_BATCH_BYTES: u32 = 4 << 10;
/// The largest record that may come, in bytes.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// A request to a source.
#[derive(Clone)]
pub(crate) struct Asked {
    pub stream: String,
    /// All columns of the stream: a `Schema` message.
    pub schema: Vec<u8>,
    pub columns: Option<Vec<String>>,
    pub increment: Option<Increment>,
    pub cursor: Option<String>,
    pub filter: Option<String>,
    pub batch_bytes: u32,
    pub max_record_bytes: u64,
}

/// One step.
pub(crate) enum Step {
    /// Rows, and the bytes of their message.
    Rows(RecordBatch, usize),
    Checkpoint(String),
    Idle,
    End,
    /// A message that is not a batch of the stream.
    Bad(String),
    /// The read goes beyond what a test reads.
    TooMuch(String),
    /// It answers idle again and again without waiting.
    Spins(String),
}

/// A reader on its way.
pub(crate) struct Reading<'b> {
    bench: &'b Bench<'b>,
    source: Source,
    decoder: Decoder,
    begun: Instant,
    rows: u64,
    bytes: usize,
    quick_idles: u32,
    /// The first call of `next` that took too long.
    pub slow: Option<String>,
}

impl Asked {
    /// A stream as a whole.
    pub fn whole(stream: &Stream) -> Self {
        Self {
            schema: stream.schema.clone(),
            ..Self::unknown(&stream.name)
        }
    }

    /// A stream that the source may not have.
    pub fn unknown(stream: &str) -> Self {
        Self {
            stream: stream.into(),
            schema: ipc::encode_schema(&Schema::empty()).unwrap_or_default(),
            columns: None,
            increment: None,
            cursor: None,
            filter: None,
            batch_bytes: BATCH_BYTES,
            max_record_bytes: MAX_RECORD_BYTES,
        }
    }

    pub fn selection(&self) -> Selection {
        Selection {
            stream: self.stream.clone(),
            columns: self.columns.clone(),
            filter: self.filter.clone(),
            query: None,
            increment: self.increment.clone(),
            cursor: self.cursor.clone(),
        }
    }

    fn request(&self, snapshot: String) -> ReadRequest {
        ReadRequest {
            stream: self.stream.clone(),
            schema: self.schema.clone(),
            snapshot,
            increment: self.increment.clone(),
            cursor: self.cursor.clone(),
            columns: self.columns.clone(),
            filter: self.filter.clone(),
            query: None,
            forms: Vec::new(),
            batch_bytes: self.batch_bytes,
            max_record_bytes: self.max_record_bytes,
            keeps_rejects: false,
            records: None,
            rows: None,
            follows_columns: false,
            follows_types: Vec::new(),
        }
    }
}

impl<'b> Reading<'b> {
    /// Fixes a moment in an open session and begins to read in it, as a run of one stream does.
    pub fn begin(bench: &'b Bench<'_>, source: Source, asked: &Asked) -> Result<Self, Trouble> {
        let mut source = source;
        let snapshot = bench.note(source.snapshot(&[asked.selection()]))?;
        Self::begin_at(bench, source, asked, snapshot)
    }

    /// Begins to read at a moment that a session fixed.
    pub fn begin_at(
        bench: &'b Bench<'_>,
        source: Source,
        asked: &Asked,
        snapshot: String,
    ) -> Result<Self, Trouble> {
        let mut source = source;
        let schemas = bench.note(source.read(&[asked.request(snapshot)]))?;
        // There is one, because there is one request.
        let decoder = Decoder::new(&schemas[0])
            .map_err(|error| Trouble::Broken(format!("reader.schemas: {error}")))?;
        Ok(Self {
            bench,
            source,
            decoder,
            begun: Instant::now(),
            rows: 0,
            bytes: 0,
            quick_idles: 0,
            slow: None,
        })
    }

    /// Leaves a read that came to its end; gives the session if it can read another stream.
    pub fn finish(self) -> Option<Source> {
        let mut source = self.source;
        source.finish().then_some(source)
    }

    /// The schema of the batches to come.
    pub fn schema(&self) -> &SchemaRef {
        self.decoder.schema()
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Says that everything up to the cursor is kept.
    pub fn acknowledge(&mut self, cursor: &str) -> Result<(), Trouble> {
        let cursor = cursor.into();
        let position = Position { stream: 0, cursor };
        self.bench.note(self.source.acknowledge(&[position]))
    }

    pub fn next(&mut self) -> Result<Step, Trouble> {
        let begun = Instant::now();
        let wait_ms = u32::try_from(WAIT.as_millis()).unwrap_or(u32::MAX);
        let event = self.source.next(wait_ms);
        let took = begun.elapsed();
        if took > WAIT + SLACK && self.slow.is_none() {
            self.slow = Some(format!(
                "next({wait_ms} ms) came back after {:.1} s",
                took.as_secs_f64()
            ));
        }
        let step = match self.bench.note(event)? {
            Event::Batch((_, batch)) => {
                self.quick_idles = 0;
                let bytes = batch.data.len();
                self.rows += batch.rows;
                self.bytes += bytes;
                match self.decoder.decode(batch.data).map_err(|e| e.to_string()) {
                    Ok(rows) => match wrong_nulls(&rows) {
                        None => Step::Rows(rows, bytes),
                        Some(text) => Step::Bad(text),
                    },
                    Err(text) => Step::Bad(text),
                }
            }
            Event::Checkpoint(position) => {
                self.quick_idles = 0;
                Step::Checkpoint(position.cursor)
            }
            // The checked session has refused them, because nobody asked for them.
            Event::Rejects(_) => Step::Bad("rejects that nobody asked for".into()),
            Event::Changed(_) => Step::Bad("a change that nobody follows".into()),
            Event::Idle if took < WAITED => {
                self.quick_idles += 1;
                Step::Idle
            }
            Event::Idle => Step::Idle,
            Event::End => Step::End,
        };
        Ok(self.bounded(step, took))
    }

    fn bounded(&self, step: Step, took: Duration) -> Step {
        if self.quick_idles > MAX_QUICK_IDLES {
            return Step::Spins(format!(
                "{} times in a row idle, the last after {:.1} ms of {} ms",
                self.quick_idles,
                took.as_secs_f64() * 1e3,
                WAIT.as_millis()
            ));
        }
        if matches!(step, Step::End | Step::Bad(_)) {
            return step;
        }
        let too_much = if self.rows > MAX_ROWS {
            format!("more than {MAX_ROWS} rows")
        } else if self.bytes > MAX_BYTES {
            format!("more than {} MiB", MAX_BYTES >> 20)
        } else if self.begun.elapsed() > MAX_TIME {
            format!("no end within {} s", MAX_TIME.as_secs())
        } else {
            return step;
        };
        Step::TooMuch(too_much)
    }
}

/// A column that says it is not null, but has NULLs.
pub(crate) fn wrong_nulls(batch: &RecordBatch) -> Option<String> {
    let schema = batch.schema();
    let mut columns = schema.fields().iter().zip(batch.columns());
    let (field, array) =
        columns.find(|(field, array)| !field.is_nullable() && array.logical_null_count() > 0)?;
    let nulls = array.logical_null_count();
    Some(format!(
        "{nulls} NULLs in column {:?}, which is not null",
        field.name()
    ))
}
