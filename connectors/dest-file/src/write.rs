//! One file on its way: rows are encoded into a buffer, full buffers are written.

use std::sync::Arc;

use rapidbyte_formats::Encoder;
use rapidbyte_sdk::files::{self, Output};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::{OpenFiles, convert};

/// Written at once: calls are cheap above 64 KiB.
const BUFFER_BYTES: usize = 1 << 19;

/// A file without its final name. Dropped, it leaves nothing behind.
pub(crate) struct Unfinished {
    path: String,
    output: Output,
    encoder: Encoder,
    /// Encoded and not yet written; one row above `BUFFER_BYTES` at most.
    buffer: Vec<u8>,
    rows: u64,
    /// Rows and bytes of the parts so far.
    flushed: (u64, u64),
}

impl Unfinished {
    pub(crate) fn create(settings: &Settings, target: &Target, path: String) -> Result<Self> {
        let encoder = settings
            .format
            .encoder(target.arrow_schema()?)
            .map_err(|error| convert(error).in_stream(&target.stream))?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        encoder.write_header(&mut buffer);
        Ok(Self {
            output: files::create(&path).map_err(|error| error.in_stream(&target.stream))?,
            path,
            encoder,
            buffer,
            rows: 0,
            flushed: (0, 0),
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut row = 0;
        while row < batch.num_rows() {
            {
                let _phase = phase::enter(Kind::Encode);
                let encoded = self
                    .encoder
                    .encode(batch, row, &mut self.buffer, BUFFER_BYTES);
                row = encoded.map_err(|mut error| {
                    // Counted from the stream's first row.
                    error.row = error.row.map(|row| row + self.rows);
                    convert(error)
                })?;
            }
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_buffer()?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn write_buffer(&mut self) -> Result<()> {
        let _phase = phase::enter(Kind::Flush);
        self.output.write(&self.buffer)?;
        self.buffer.clear();
        // One huge row must not keep its room.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }

    fn flush(&mut self) -> Result<Part> {
        self.write_buffer()?;
        let (rows, bytes) = self.flushed;
        self.flushed = (self.rows, self.output.bytes());
        Ok(Part {
            data: Vec::new(),
            rows: self.rows - rows,
            bytes: self.output.bytes() - bytes,
        })
    }

    /// Makes the file visible under its name; `rows` is how many the parts are said to hold.
    pub(crate) fn commit(mut self, rows: u64) -> Result<Receipt> {
        if (self.rows, self.flushed.0) != (rows, rows) {
            return Err(Error::internal(format!(
                "a commit of {rows} rows, {} were written and {} flushed",
                self.rows, self.flushed.0
            )));
        }
        // The header of a file without rows.
        self.write_buffer()?;
        let _phase = phase::enter(Kind::Commit);
        self.output.sync()?;
        let bytes = self.output.bytes();
        self.output.commit()?;
        Ok(Receipt {
            rows,
            bytes,
            location: self.path,
        })
    }
}

/// Writes the rows of one stream.
pub struct FileWriter {
    open: OpenFiles,
    stream: Arc<str>,
}

impl FileWriter {
    pub(crate) fn new(open: OpenFiles, stream: String) -> Self {
        Self {
            open,
            stream: stream.into(),
        }
    }

    fn with_file<T>(&self, act: impl FnOnce(&mut Unfinished) -> Result<T>) -> Result<T> {
        let mut open = self.open.borrow_mut();
        let Some(file) = open.get_mut(&*self.stream) else {
            let text = "the file is committed or given up: it is never appended to";
            return Err(Error::internal(text).in_stream(&*self.stream));
        };
        let done = act(file).map_err(|error| error.in_stream(&*self.stream));
        if done.is_err() {
            // Half a row may stand in the buffer: nothing can be committed any more.
            open.remove(&*self.stream);
        }
        done
    }
}

impl Writer for FileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.with_file(|file| file.write(batch))
    }

    fn flush(&mut self) -> Result<Part> {
        self.with_file(Unfinished::flush)
    }
}
