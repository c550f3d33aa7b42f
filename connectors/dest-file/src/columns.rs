//! One file of columns (Parquet, Arrow) on its way: row groups or record batches are encoded in
//! memory and handed over in pieces.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_select::take::take_record_batch;
use rapidbyte_columnar::{ColumnarError, FileWriter, Kind, Owner, WriteOptions};
use rapidbyte_formats::Picked;
use rapidbyte_sdk::phase;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::size::batch_bytes;

use crate::config::Split;
use crate::refused::Refused;
use crate::sink::{self, Synced, Written};

/// A file that is split by bytes checks its size after each step of about this many bytes, or an
/// eighth of the file if that is less.
const SPLIT_STEP_BYTES: u64 = 1 << 20;

/// A file without its final name. Dropped, it leaves nothing behind.
pub(crate) struct ColumnFile {
    writer: FileWriter<Sink>,
    told: Told,
    rows: u64,
}

impl ColumnFile {
    /// Begins a file of rows of `schema`, which hands over its bytes `buffer_bytes` at a time.
    pub(crate) fn begin(
        kind: Kind,
        options: &WriteOptions,
        schema: SchemaRef,
        output: sink::Sink,
        buffer_bytes: usize,
    ) -> Result<Self> {
        let told = Told::default();
        let sink = Sink {
            output,
            buffer: Vec::new(),
            buffer_bytes,
            told: told.clone(),
        };
        let writer = FileWriter::new(kind, schema, options, sink);
        Ok(Self {
            writer: writer.map_err(|error| told.error(error))?,
            told,
            rows: 0,
        })
    }

    /// As of a text file. A file that is split by bytes ends near the row that brings it there:
    /// how much rows take is known when they are encoded.
    pub(crate) fn write(
        &mut self,
        rows: Picked<'_>,
        from: usize,
        split: Split,
    ) -> Result<usize, Refused> {
        let left = split.rows.map(|rows| rows.saturating_sub(self.rows).max(1));
        let left = left.map_or(usize::MAX, |rows| {
            usize::try_from(rows).unwrap_or(usize::MAX)
        });
        let rows = rows.first(from.saturating_add(left));
        let step = match split.bytes {
            None => rows.len().saturating_sub(from),
            Some(size) => {
                let bytes = (size.0 / 8).clamp(1, SPLIT_STEP_BYTES);
                let all = rows.batch();
                let per_row = (batch_bytes(all) / all.num_rows().max(1)).max(1);
                usize::try_from(bytes).unwrap_or(usize::MAX) / per_row
            }
        };
        let mut at = from;
        while at < rows.len() {
            let end = at + step.max(1).min(rows.len() - at);
            {
                let _phase = phase::enter(phase::Kind::Encode);
                let part = part(rows, at, end).map_err(Refused::File)?;
                let written = self.writer.write(&part);
                let first = rows.row(at) as u64 + 1;
                written.map_err(|error| Refused::Columns(self.told.error(error), first))?;
            }
            self.rows += (end - at) as u64;
            at = end;
            if self.is_full(split) {
                break;
            }
        }
        Ok(at)
    }

    /// True once another row would be too much.
    pub(crate) fn is_full(&self, split: Split) -> bool {
        let bytes = self.bytes() + self.writer.pending_bytes() as u64;
        split.rows.is_some_and(|rows| self.rows >= rows)
            || split.bytes.is_some_and(|size| bytes >= size.0)
    }

    /// Bytes handed to the host.
    pub(crate) fn bytes(&self) -> u64 {
        self.told.bytes()
    }

    /// Writes what is left and the footer, and gives the file its name.
    pub(crate) fn commit(self, synced: Synced) -> Result<Written> {
        let finished = {
            let _phase = phase::enter(phase::Kind::Encode);
            self.writer.finish()
        };
        let mut sink = finished.map_err(|error| self.told.error(error))?;
        io::Write::flush(&mut sink).map_err(|error| self.told.error_of(&error))?;
        sink.output.commit(synced, self.rows)
    }
}

/// The rows at places from `at` to `end` as a batch.
fn part(rows: Picked<'_>, at: usize, end: usize) -> Result<RecordBatch> {
    let batch = rows.batch();
    if end - at == batch.num_rows() || rows.row(end - 1) - rows.row(at) == end - 1 - at {
        // They follow each other, in their order.
        return Ok(batch.slice(rows.row(at), end - at));
    }
    let places = (at..end).map(|at| u32::try_from(rows.row(at)));
    let places: UInt32Array = places
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Error::internal("a batch of more than 4 billion rows"))?
        .into();
    take_record_batch(batch, &places).map_err(|error| Error::internal(format!("arrow: {error}")))
}

/// Hands bytes over in pieces.
struct Sink {
    output: sink::Sink,
    buffer: Vec<u8>,
    buffer_bytes: usize,
    told: Told,
}

impl Sink {
    fn hand_over(&mut self, bytes: &[u8]) -> io::Result<()> {
        let _phase = phase::enter(phase::Kind::Flush);
        for piece in bytes.chunks(self.buffer_bytes) {
            self.output
                .write(piece)
                .map_err(|error| self.told.keep(error))?;
        }
        self.told.set_bytes(self.output.bytes());
        Ok(())
    }
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > self.buffer_bytes {
            self.flush()?;
        }
        match bytes.len() >= self.buffer_bytes {
            true => self.hand_over(bytes)?,
            false => self.buffer.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    /// The writers call it seldom, and pieces must not be small.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        self.hand_over(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }
}

/// The host's answers, kept outside the writer: the writer's errors cannot hold them.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    bytes: u64,
    failed: Option<Error>,
}

impl Told {
    fn with<T>(&self, act: impl FnOnce(&mut Answers) -> T) -> T {
        // Nobody panics while holding it.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bytes(&self) -> u64 {
        self.with(|answers| answers.bytes)
    }

    fn set_bytes(&self, bytes: u64) {
        self.with(|answers| answers.bytes = bytes);
    }

    fn keep(&self, error: Error) -> io::Error {
        let text = error.message.clone();
        self.with(|answers| answers.failed = Some(error));
        io::Error::other(text)
    }

    fn error_of(&self, error: &io::Error) -> Error {
        let failed = self.with(|answers| answers.failed.take());
        failed.unwrap_or_else(|| Error::internal(error))
    }

    /// The contract's error: the host's own where it was the cause.
    fn error(&self, error: ColumnarError) -> Error {
        if let Some(failed) = self.with(|answers| answers.failed.take()) {
            return failed;
        }
        refused(&error)
    }
}

/// The contract's error for an error of the format.
pub(crate) fn refused(error: &ColumnarError) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint.clone_from(&error.hint);
    converted.column.clone_from(&error.column);
    converted
}
