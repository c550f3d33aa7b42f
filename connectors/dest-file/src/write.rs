//! One text file on its way: rows are encoded into a buffer, full buffers are compressed and
//! written. The module `columns` writes files of columns.

use rapidbyte_formats::compression::Compressor;
use rapidbyte_formats::{Compression, Encoder, Format, FormatError, Picked};
use rapidbyte_manifest::Hash;
use rapidbyte_sdk::files::Output;
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::chain::Lease;
use crate::columns::ColumnFile;
use crate::config::{FileFormat, Settings, Split};
use crate::convert;
use crate::rejects::Keeper;
use crate::set::FileSet;

/// Written at once: calls are cheap above 64 KiB.
pub(crate) const BUFFER_BYTES: usize = 1 << 19;

/// When a file is synced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// With its own commit.
    Alone,
    /// With the commit of its folder, which syncs all its files together.
    WithFolder,
}

/// Where the bytes of a file go, which are hashed on the way if its manifest is to name them.
pub(crate) struct Sink {
    output: Output,
    hash: Option<Hash>,
}

impl Sink {
    pub(crate) fn new(output: Output) -> Self {
        Self { output, hash: None }
    }

    pub(crate) fn hashed(output: Output) -> Self {
        Self {
            output,
            hash: Some(Hash::default()),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.output.write(bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    /// Gives a file its name: the final one, or its place in a folder that is not visible yet.
    pub(crate) fn commit(self, synced: Synced, rows: u64) -> Result<Written> {
        let _phase = phase::enter(Kind::Commit);
        if synced == Synced::Alone {
            self.output.sync()?;
        }
        let written = Written {
            bytes: self.output.bytes(),
            rows,
            sha256: self.hash.map(Hash::finish).unwrap_or_default(),
        };
        self.output.commit()?;
        Ok(written)
    }
}

/// The facts about a complete file.
pub(crate) struct Written {
    pub bytes: u64,
    pub rows: u64,
    /// Empty unless it was asked for.
    pub sha256: String,
}

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

/// Why rows were not written.
pub(crate) enum Refused {
    /// A value; the error's row is counted within the batch.
    Row(FormatError),
    /// A value of a file of columns; the first row of the batch, from 1.
    Columns(Error, u64),
    /// The file.
    File(Error),
}

impl Refused {
    /// The contract's error, with the row of the stream. `before` rows of the stream came before the
    /// batch.
    pub(crate) fn told(self, before: u64) -> Error {
        match self {
            Self::File(error) => error,
            Self::Columns(mut error, row) => {
                error.message = format!("row {} or after: {}", row + before, error.message);
                error
            }
            Self::Row(mut error) => {
                error.row = error.row.map(|row| row + before);
                convert(error)
            }
        }
    }
}

/// The files of a stream until its last commit.
pub(crate) struct Unfinished {
    files: Shape,
    location: String,
    /// Of the stream.
    rows: u64,
    /// Rows and bytes of the parts so far.
    flushed: (u64, u64),
    /// Bytes of the commits so far.
    committed: u64,
}

/// One file, a directory that is replaced, or a directory that grows.
pub(crate) enum Shape {
    One(Box<OneFile>),
    Set(Box<FileSet>),
    Chain {
        set: Box<FileSet>,
        lease: Box<Lease>,
        /// Keeps the rejects, if the operator allows some.
        keeper: Option<Box<Keeper>>,
        /// The first commit takes the place of the older ones.
        replaces: bool,
    },
}

impl Unfinished {
    pub(crate) fn new(files: Shape, location: String) -> Self {
        Self {
            files,
            location,
            rows: 0,
            flushed: (0, 0),
            committed: 0,
        }
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Shape::Chain {
            set,
            keeper: Some(keeper),
            ..
        } = &mut self.files
        {
            for rows in keeper.sort(batch)? {
                set.write(&rows, self.rows)?;
                self.rows += rows.num_rows() as u64;
            }
            return Ok(());
        }
        // Counted from the stream's first row.
        let before = self.rows;
        match &mut self.files {
            Shape::One(file) => file
                .write(Picked::all(batch), 0, Split::default())
                .map(|_| ())
                .map_err(|refused| refused.told(before))?,
            Shape::Set(set) | Shape::Chain { set, .. } => set.write(batch, before)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Keeps the rejects of a stream, for a directory that grows.
    pub(crate) fn keeper(&mut self) -> Option<&mut Keeper> {
        match &mut self.files {
            Shape::Chain { keeper, .. } => keeper.as_deref_mut(),
            Shape::One(_) | Shape::Set(_) => None,
        }
    }

    pub(crate) fn flush(&mut self) -> Result<Part> {
        let written = match &mut self.files {
            Shape::One(file) => {
                file.push()?;
                file.bytes()
            }
            Shape::Set(set) | Shape::Chain { set, .. } => set.bytes(),
        };
        let (rows, bytes) = self.flushed;
        self.flushed = (self.rows, written);
        Ok(Part {
            data: Vec::new(),
            rows: self.rows - rows,
            bytes: written - bytes,
        })
    }

    /// Why it went wrong, when a newer run is the reason.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.files {
            Shape::Chain { lease, .. } => lease.explain(error),
            _ => error,
        }
    }

    /// Makes everything since the last commit visible. Returns the files for the next commit: none
    /// after the last commit. A file or directory that is replaced has only one commit.
    pub(crate) fn commit(mut self, commit: &Commit<'_>) -> Result<(Receipt, Option<Self>)> {
        let rows = commit.rows();
        let receipt = |bytes, location| Receipt {
            rows,
            bytes,
            location,
            deleted: 0,
        };
        let Shape::Chain {
            set,
            lease,
            keeper,
            replaces,
        } = &mut self.files
        else {
            let location = self.location.clone();
            return Ok((receipt(self.replace(commit)?, location), None));
        };
        let is_empty = *replaces || (lease.is_first() && commit.complete);
        let files = set.finish(is_empty).map_err(|error| lease.explain(error))?;
        let rejects = keeper
            .as_mut()
            .map_or(Ok(Vec::new()), |keeper| keeper.finish());
        let rejects = rejects.map_err(|error| lease.explain(error))?;
        failpoint("dest-file.data_synced")?;
        let committed = lease.commit(commit, (files, rejects), *replaces);
        committed.map_err(|error| lease.explain(error))?;
        set.go_on(lease.next());
        if let Some(keeper) = keeper {
            keeper.go_on(lease.next());
        }
        *replaces = false;
        let bytes = set.bytes();
        self.flushed = (self.rows, bytes);
        let receipt = receipt(bytes - self.committed, self.location.clone());
        self.committed = bytes;
        Ok((receipt, (!commit.complete).then_some(self)))
    }

    /// Puts the file or the folder in the place of an older one. Gives its bytes.
    fn replace(self, commit: &Commit<'_>) -> Result<u64> {
        if commit.cursor.is_some() || !commit.complete {
            return Err(no_cursor(&self.location));
        }
        failpoint("dest-file.replacing")?;
        let bytes = match self.files {
            Shape::One(file) => file.commit(Synced::Alone)?.bytes,
            Shape::Set(set) => set.commit()?,
            Shape::Chain { .. } => {
                return Err(Error::internal("a directory that grows is replaced"));
            }
        };
        failpoint("dest-file.replaced")?;
        Ok(bytes)
    }
}

/// A file or directory that is replaced as a whole cannot store a cursor.
pub(crate) fn no_cursor(location: &str) -> Error {
    let text = format!("{location} cannot store a cursor");
    Error::config("cursor_needs_folder", text)
        .hint(
            "put {part} into the file's name, such as out/{stream}/part-{part}.jsonl: the \
                 directory of files stores the cursor",
        )
        .at("config.path")
}
