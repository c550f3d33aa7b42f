//! One text file on its way: rows are encoded into a buffer, full buffers are compressed and
//! written. The module `columns` writes files of columns.

use rapidbyte_formats::compression::Compressor;
use rapidbyte_formats::{Compression, Encoder, Format, Picked};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::columns::ColumnFile;
use crate::config::Split;
use crate::convert;
use crate::refused::Refused;
use crate::settings::{FileFormat, Settings};
use crate::sink::{BUFFER_BYTES, Sink, Synced, Written};

/// A file without its final name. Dropped, it leaves nothing behind.
pub(crate) struct TextFile {
    output: Sink,
    encoder: Encoder,
    compressor: Compressor,
    /// Nothing is compressed: the bytes are known before they are written.
    plain: bool,
    /// Encoded and not yet written; one row above its limit at most.
    buffer: Vec<u8>,
    buffer_bytes: usize,
    rows: u64,
}

impl TextFile {
    /// Begins a file of rows of `schema`, which hands over its bytes `buffer_bytes` at a time.
    fn begin(
        format: &Format,
        compression: Compression,
        schema: SchemaRef,
        output: Sink,
        buffer_bytes: usize,
    ) -> Result<Self> {
        let encoder = format.encoder(schema).map_err(convert)?;
        let compressor = match buffer_bytes < BUFFER_BYTES {
            true => Compressor::small(compression),
            false => Compressor::new(compression),
        };
        let mut buffer = Vec::new();
        encoder.write_header(&mut buffer);
        Ok(Self {
            output,
            encoder,
            compressor: compressor.map_err(convert)?,
            plain: compression == Compression::None,
            buffer,
            buffer_bytes,
            rows: 0,
        })
    }

    /// Writes rows from place `from` on until they end or the file has what `split` allows; gives
    /// the next place. At least one row is written. A refused row is counted within the batch.
    fn write(&mut self, rows: Picked<'_>, from: usize, split: Split) -> Result<usize, Refused> {
        let left = split.rows.map(|rows| rows.saturating_sub(self.rows).max(1));
        let left = left.map_or(usize::MAX, |rows| {
            usize::try_from(rows).unwrap_or(usize::MAX)
        });
        let rows = rows.first(from.saturating_add(left));
        let mut at = from;
        while at < rows.len() {
            let before = at;
            {
                let _phase = phase::enter(Kind::Encode);
                let until = self.until(split);
                let encoded = self.encoder.encode(rows, at, &mut self.buffer, until);
                at = encoded.map_err(Refused::Row)?;
            }
            self.rows += (at - before) as u64;
            if self.buffer.len() >= self.buffer_bytes || self.is_full(split) {
                self.push().map_err(Refused::File)?;
            }
            if self.is_full(split) {
                break;
            }
        }
        Ok(at)
    }

    /// How far the buffer is filled at once.
    fn until(&self, split: Split) -> usize {
        let Some(size) = split.bytes else {
            return self.buffer_bytes;
        };
        let left = match self.plain {
            true => size.0.saturating_sub(self.output.bytes()),
            // The size is known only after compression.
            false => size.0,
        };
        self.buffer_bytes
            .min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// True once another row would be too much.
    fn is_full(&self, split: Split) -> bool {
        let held = if self.plain {
            self.buffer.len() as u64
        } else {
            0
        };
        split.rows.is_some_and(|rows| self.rows >= rows)
            || split
                .bytes
                .is_some_and(|size| self.output.bytes() + held >= size.0)
    }

    /// Bytes handed to the host.
    fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    /// Compresses and writes what is in the buffer.
    fn push(&mut self) -> Result<()> {
        if self.plain {
            let _phase = phase::enter(Kind::Flush);
            self.output.write(&self.buffer)?;
        } else {
            let compressed = {
                let _phase = phase::enter(Kind::Encode);
                self.compressor.push(&self.buffer).map_err(convert)?;
                self.compressor.take()
            };
            self.hand_over(&compressed)?;
        }
        self.buffer.clear();
        // One huge row must not keep its room.
        self.buffer.shrink_to(2 * self.buffer_bytes);
        Ok(())
    }

    fn hand_over(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let _phase = phase::enter(Kind::Flush);
        self.output.write(bytes)
    }

    /// Ends the file and gives it its name: the final one, or its place in a folder that is not
    /// visible yet.
    fn commit(mut self, synced: Synced) -> Result<Written> {
        // The header of a file without rows.
        self.push()?;
        let compressor = std::mem::replace(
            &mut self.compressor,
            Compressor::new(Compression::None).map_err(convert)?,
        );
        let last = compressor.finish().map_err(convert)?;
        self.hand_over(&last)?;
        self.output.commit(synced, self.rows)
    }
}

/// A file without its final name. Dropped, it leaves nothing behind.
pub(crate) enum OneFile {
    Text(Box<TextFile>),
    Columns(Box<ColumnFile>),
}

impl OneFile {
    /// Begins a file of rows of `schema`, which hands over its bytes `buffer_bytes` at a time.
    pub(crate) fn begin(
        settings: &Settings,
        schema: SchemaRef,
        output: Sink,
        buffer_bytes: usize,
    ) -> Result<Self> {
        Ok(match &settings.format {
            FileFormat::Text(format, compression) => {
                let file = TextFile::begin(format, *compression, schema, output, buffer_bytes)?;
                Self::Text(Box::new(file))
            }
            FileFormat::Columns(kind, options) => {
                let file = ColumnFile::begin(*kind, options, schema, output, buffer_bytes)?;
                Self::Columns(Box::new(file))
            }
        })
    }

    /// Writes rows from place `from` on until they end or the file has what `split` allows; gives
    /// the next place. At least one row is written. A refused row is counted within the batch.
    pub(crate) fn write(
        &mut self,
        rows: Picked<'_>,
        from: usize,
        split: Split,
    ) -> Result<usize, Refused> {
        match self {
            Self::Text(file) => file.write(rows, from, split),
            Self::Columns(file) => file.write(rows, from, split),
        }
    }

    /// True once another row would be too much.
    pub(crate) fn is_full(&self, split: Split) -> bool {
        match self {
            Self::Text(file) => file.is_full(split),
            Self::Columns(file) => file.is_full(split),
        }
    }

    /// Bytes handed to the host.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Text(file) => file.bytes(),
            Self::Columns(file) => file.bytes(),
        }
    }

    /// Writes what is in the buffer. A row group that is not complete stays where it is.
    pub(crate) fn push(&mut self) -> Result<()> {
        match self {
            Self::Text(file) => file.push(),
            Self::Columns(_) => Ok(()),
        }
    }

    /// Ends the file and gives it its name: the final one, or its place in a folder that is not
    /// visible yet.
    pub(crate) fn commit(self, synced: Synced) -> Result<Written> {
        match self {
            Self::Text(file) => file.commit(synced),
            Self::Columns(file) => file.commit(synced),
        }
    }
}
