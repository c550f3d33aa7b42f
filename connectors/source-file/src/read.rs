//! One read: the files of a stream, one after the other, piece by piece.

use std::time::Duration;

use rapidbyte_formats::{Compression, Decoder};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::convert;
use crate::files::FileStream;
use crate::open::Text;

/// Reads the rows of one stream. Holds one piece of one file, one record and one batch.
pub struct Rows {
    stream: String,
    /// Files that are still to be read, the next one last.
    files: Vec<String>,
    decoder: Decoder,
    compression: Option<Compression>,
    max_window_bytes: usize,
    open: Option<Text>,
}

impl Rows {
    pub(crate) fn new(
        stream: &FileStream,
        decoder: Decoder,
        compression: Option<Compression>,
        max_window_bytes: usize,
    ) -> Self {
        Self {
            stream: stream.name.clone(),
            files: stream.files.iter().rev().map(|f| f.0.clone()).collect(),
            decoder,
            compression,
            max_window_bytes,
            open: None,
        }
    }

    /// Bytes in memory that depend on the data: the batch so far and pieces of a file.
    pub fn held_bytes(&self) -> usize {
        self.decoder.bytes() + self.open.as_ref().map_or(0, Text::held_bytes)
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
            let window = self.max_window_bytes;
            self.open = Some(Text::open(&path, &self.stream, self.compression, window)?);
            self.decoder.begin_file();
            return Ok(true);
        };
        let bytes = open.fill()?;
        if bytes.is_empty() {
            self.decoder.end_of_file().map_err(|e| open.refuse(e))?;
            self.open = None;
            return Ok(true);
        }
        let _phase = phase::enter(Kind::Decode);
        let taken = self.decoder.push(bytes).map_err(|e| open.refuse(e))?;
        open.consume(taken);
        Ok(true)
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
