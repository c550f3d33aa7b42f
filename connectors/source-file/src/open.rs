//! One open file: pieces of it from the host, and the text in them.

use rapidbyte_formats::compression::{Chunks, Decompressor, Stop};
use rapidbyte_formats::{Compression, FormatError, Owner, Rejected};
use rapidbyte_sdk::files::{self, Input};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::convert;

/// Asked of the host at once: calls are cheap above 64 KiB, and a batch is often 1 MiB.
const CHUNK_BYTES: u32 = 1 << 19;

/// The text of one file, decompressed.
pub(crate) struct Text {
    pub path: String,
    stream: String,
    bytes: Decompressor<Pieces>,
    compression: Compression,
    /// The first bytes were checked.
    begun: bool,
}

impl Text {
    /// `compression` is what the configuration says; without it the file's ending tells. A frame
    /// of zstd may have a window of `max_window_bytes`.
    pub(crate) fn open(
        path: &str,
        stream: &str,
        compression: Option<Compression>,
        max_window_bytes: usize,
    ) -> Result<Self> {
        let compression = compression.unwrap_or_else(|| Compression::of_path(path).0);
        let pieces = Pieces::open(path).map_err(|error| error.in_stream(stream))?;
        let bytes = Decompressor::new(compression, pieces, max_window_bytes)
            .map_err(|error| convert(error, stream, Some(path)))?;
        Ok(Self {
            path: path.to_owned(),
            stream: stream.to_owned(),
            bytes,
            compression,
            begun: false,
        })
    }

    /// The bytes that come next; empty at the file's end only.
    pub(crate) fn fill(&mut self) -> Result<&[u8]> {
        let (stream, path) = (&self.stream, &self.path);
        let compressed = self.compression != Compression::None;
        let _phase = compressed.then(|| phase::enter(Kind::Decode));
        let bytes = self.bytes.fill().map_err(|stop| match stop {
            Stop::Chunks(error) => error.in_stream(stream),
            Stop::Format(error) => convert(error, stream, Some(path)),
        })?;
        if !std::mem::replace(&mut self.begun, true)
            && let Some(error) = no_text(bytes, compressed)
        {
            return Err(error.in_stream(stream).at(path));
        }
        Ok(bytes)
    }

    /// Drops the first `len` bytes of what [`fill`](Self::fill) gave.
    pub(crate) fn consume(&mut self, len: usize) {
        self.bytes.consume(len);
    }

    /// Bytes in memory that depend on the data.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.held_bytes() + CHUNK_BYTES as usize
    }

    /// A record that could not be read, with its place in this file.
    pub(crate) fn reject(&self, rejected: Rejected) -> Reject {
        let error = convert(rejected.error, &self.stream, Some(&self.path));
        Reject {
            data: rejected.data,
            is_cut: rejected.is_cut,
            location: error.location,
            column: error.column,
            code: error.code,
            message: error.message,
            read_with: rejected.read_with.as_deref().map(str::to_owned),
        }
    }

    /// The error of a format, at its place in this file.
    pub(crate) fn refuse(&self, error: FormatError) -> Error {
        let is_data = error.owner() == Owner::Data;
        let mut error = convert(error, &self.stream, Some(&self.path));
        if is_data && self.compression != Compression::None {
            // Checksums come at the end, so damage may show as a wrong value first.
            let test = format!(
                "if nobody wrote such a value, check the file for damage: `{} -t`",
                self.compression.name()
            );
            error.hint = Some(match error.hint {
                Some(hint) => format!("{hint}; {test}"),
                None => test,
            });
        }
        error
    }
}

/// The error for a file that begins like a compressed file or like UTF-16.
fn no_text(bytes: &[u8], compressed: bool) -> Option<Error> {
    const COMPRESSED: [(&[u8], &str); 6] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\x03\x04", "zip"),
        (b"BZh91AY&SY", "bzip2"),
    ];
    let begins = |sign: &[u8]| bytes.starts_with(sign);
    if let Some((_, name)) = COMPRESSED.iter().find(|(sign, _)| begins(sign)) {
        let read = match compressed {
            true => "and was compressed twice",
            false => "but is read as plain text",
        };
        let text = format!("the file looks like {name}, {read}");
        let error = Error::config("file_compressed", text);
        return Some(match *name {
            name @ ("gzip" | "zstd" | "lz4") if !compressed => error.hint(format!(
                "set compression: {name}, or give the file's name its ending"
            )),
            _ => error.hint("decompress it first"),
        });
    }
    if begins(b"\xff\xfe") || begins(b"\xfe\xff") {
        return Some(
            Error::data(
                "file_not_utf8",
                "the file is UTF-16, and Rapidbyte reads UTF-8",
            )
            .hint("convert it, for example: iconv -f UTF-16 -t UTF-8"),
        );
    }
    None
}

/// A file that must not change while it is read.
struct Pieces {
    path: String,
    input: Input,
    /// When it was opened, in bytes.
    size: u64,
    /// As [`Input::modified`] said when it was opened.
    modified: u64,
    /// How much of it was read.
    offset: u64,
    piece: Vec<u8>,
    /// How much of the piece was consumed.
    taken: usize,
}

impl Pieces {
    fn open(path: &str) -> Result<Self> {
        let input = files::open(path)?;
        Ok(Self {
            size: input.size(),
            modified: input.modified(),
            path: path.to_owned(),
            input,
            offset: 0,
            piece: Vec::new(),
            taken: 0,
        })
    }

    /// Reads the next piece. A file that is written to meanwhile may end within a record, or hold
    /// half of an old and half of a new state.
    fn read(&mut self) -> Result<()> {
        let left = self.size.saturating_sub(self.offset);
        self.taken = 0;
        self.piece.clear();
        if left > 0 {
            // At most `CHUNK_BYTES`.
            let len = left.min(CHUNK_BYTES.into()) as u32;
            self.piece = self.input.read(self.offset, len)?;
            self.offset += self.piece.len() as u64;
        }
        if !self.piece.is_empty() {
            return Ok(());
        }
        let size = self.input.size();
        if size == self.size && self.input.modified() == self.modified {
            return Ok(());
        }
        let how = match size == self.size {
            true => "it was written to".to_owned(),
            false => format!("it had {} bytes, and now has {size}", self.size),
        };
        let text = format!("{} changed during the read: {how}", self.path);
        Err(Error::data("file_changed", text)
            .hint("let its writer finish, or have it write a new file and rename it")
            .at(&self.path))
    }
}

impl Chunks for Pieces {
    type Error = Error;

    fn fill(&mut self) -> Result<&[u8]> {
        if self.taken == self.piece.len() {
            self.read()?;
        }
        Ok(&self.piece[self.taken..])
    }

    fn consume(&mut self, len: usize) {
        self.taken = (self.taken + len).min(self.piece.len());
    }
}
