//! One read: the files of a stream, one after the other, piece by piece.

use std::time::Duration;

use rapidbyte_formats::Decoder;
use rapidbyte_sdk::files::{self, Input};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::convert;
use crate::files::FileStream;

/// Asked of the host at once: calls are cheap above 64 KiB, and a batch is often 1 MiB.
pub(crate) const CHUNK_BYTES: u32 = 1 << 19;

/// Reads the rows of one stream. Holds one piece of one file, one record and one batch.
pub struct Rows {
    stream: String,
    /// Files that are still to be read, the next one last.
    files: Vec<String>,
    decoder: Decoder,
    open: Option<Open>,
}

/// The file that is being read.
struct Open {
    path: String,
    input: Input,
    /// When it was opened, in bytes.
    size: u64,
    /// As [`Input::modified`] said when it was opened.
    modified: u64,
    /// How much of it was read.
    offset: u64,
    chunk: Vec<u8>,
    /// How much of the chunk the decoder took.
    taken: usize,
}

impl Rows {
    pub(crate) fn new(stream: &FileStream, decoder: Decoder) -> Self {
        Self {
            stream: stream.name.clone(),
            files: stream.files.iter().rev().map(|f| f.0.clone()).collect(),
            decoder,
            open: None,
        }
    }

    /// Bytes in memory that depend on the data: the batch so far and a piece of a file.
    pub fn held_bytes(&self) -> usize {
        self.decoder.bytes() + self.open.as_ref().map_or(0, |open| open.chunk.len())
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        let _phase = phase::enter(Kind::Decode);
        let batch = self.decoder.take_batch();
        batch.map_err(|error| convert(error, &self.stream, None))
    }

    /// Goes one step on; false when all files are read.
    fn step(&mut self) -> Result<bool> {
        let Some(open) = &mut self.open else {
            let Some(path) = self.files.pop() else {
                return Ok(false);
            };
            self.open = Some(Open::new(path).map_err(|e| e.in_stream(&self.stream))?);
            self.decoder.begin_file();
            return Ok(true);
        };
        if open.taken < open.chunk.len() {
            let _phase = phase::enter(Kind::Decode);
            let pushed = self.decoder.push(&open.chunk[open.taken..]);
            open.taken += pushed.map_err(|e| convert(e, &self.stream, Some(&open.path)))?;
            return Ok(true);
        }
        if open.read().map_err(|e| e.in_stream(&self.stream))? {
            return Ok(true);
        }
        let ended = self.decoder.end_of_file();
        ended.map_err(|e| convert(e, &self.stream, Some(&open.path)))?;
        self.open = None;
        Ok(true)
    }
}

impl Open {
    fn new(path: String) -> Result<Self> {
        let input = files::open(&path)?;
        Ok(Self {
            size: input.size(),
            modified: input.modified(),
            path,
            input,
            offset: 0,
            chunk: Vec::new(),
            taken: 0,
        })
    }

    /// Reads the next piece; false at the end. A file that is written to meanwhile may end within
    /// a record, or hold half of an old and half of a new state.
    fn read(&mut self) -> Result<bool> {
        let left = self.size.saturating_sub(self.offset);
        self.taken = 0;
        self.chunk.clear();
        if left > 0 {
            // At most `CHUNK_BYTES`.
            let len = left.min(CHUNK_BYTES.into()) as u32;
            self.chunk = self.input.read(self.offset, len)?;
            self.offset += self.chunk.len() as u64;
        }
        if !self.chunk.is_empty() {
            return Ok(true);
        }
        let size = self.input.size();
        if size == self.size && self.input.modified() == self.modified {
            return Ok(false);
        }
        let how = match size == self.size {
            true => "it was written to".to_owned(),
            false => format!("it had {} bytes and has {size}", self.size),
        };
        let text = format!("{} changed while it was read: {how}", self.path);
        Err(Error::data("file_changed", text)
            .hint("let its writer finish, or have it write a new file and rename it")
            .at(&self.path))
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema().clone()
    }

    fn next(&mut self, _wait: Duration) -> Result<Event> {
        while !self.decoder.is_full() {
            if !self.step()? {
                return Ok(self.take()?.map_or(Event::End, Event::Batch));
            }
        }
        Ok(self.take()?.map_or(Event::Idle, Event::Batch))
    }
}
