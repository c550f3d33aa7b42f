//! Compresses a batch on its way between two stages, and gives it back unchanged.
//!
//! It owns the choice of the codec and its contexts, which are reused from batch to batch. A
//! [`Frame`] lives in this process only, between a [`Compressor`] and a [`Decompressor`]. It is
//! not a format for a disk or a network, and so carries no checksum: a wrong structure or length
//! is refused, a changed literal byte is not noticed.
//!
//! Every length is bounded: a batch by [`MAX_ORIGINAL_BYTES`] and by the limit that the
//! decompressor was made with, before anything is allocated.

use std::fmt;

use lz4_flex::block::get_maximum_output_size;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use serde::Serialize;

/// The largest batch that can be compressed: the limit of an LZ4 block, just under 2 GiB.
pub const MAX_ORIGINAL_BYTES: usize = 0x7E00_0000;

/// The fastest level that still finds repetitions; a higher one costs more than a local
/// connection does.
const ZSTD_LEVEL: i32 = 1;

/// Working memory above this is given back after the batch that needed it, so that one large
/// record does not hold its memory for the rest of the run.
const KEEP_SCRATCH_BYTES: usize = 8 << 20;

/// An LZ4 block cannot hold more than this many bytes for each of its own.
const LZ4_MAX_RATIO: usize = 255;

/// How batches are compressed between the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Batches pass as they are, without a copy.
    #[default]
    None,
    /// LZ4 blocks: least work.
    Lz4,
    /// Zstandard at its fastest level: fewest bytes.
    Zstd,
}

/// A batch on its way, compressed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The bytes in memory.
    pub bytes: Vec<u8>,
    /// The length of the batch in bytes.
    pub original_len: usize,
    /// How `bytes` is to be read; `None` also where compressing made it no smaller.
    pub compression: Compression,
}

/// Why a batch cannot be compressed or read back.
#[derive(Debug, thiserror::Error)]
pub enum CompressError {
    /// The batch is longer than the limit.
    #[error("a batch of {len} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The length of the batch in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The frame does not hold what it says.
    #[error("damaged {compression} frame: {reason}")]
    Damaged {
        /// The codec that read it.
        compression: Compression,
        /// The defect.
        reason: String,
    },
    /// The codec could not be set up or refused its input.
    #[error("{compression}: {reason}")]
    Codec {
        /// The codec.
        compression: Compression,
        /// In its own words.
        reason: String,
    },
    /// The memory for the batch cannot be allocated.
    #[error("not enough memory for a batch of {len} bytes")]
    Memory {
        /// The length in bytes.
        len: usize,
    },
}

impl Compression {
    /// The name in a pipeline file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CompressError {
    /// A short stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "batch_too_large",
            Self::Damaged { .. } => "damaged_frame",
            Self::Codec { .. } => "compression_failed",
            Self::Memory { .. } => "out_of_memory",
        }
    }
}

/// Compresses batches with one codec and one set of working memory.
pub struct Compressor {
    codec: Encoder,
    scratch: Vec<u8>,
}

enum Encoder {
    None,
    Lz4(Box<CompressTable>),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    /// Sets up the codec.
    pub fn new(compression: Compression) -> Result<Self, CompressError> {
        let codec = match compression {
            Compression::None => Encoder::None,
            Compression::Lz4 => Encoder::Lz4(Box::new(CompressTable::large())),
            Compression::Zstd => Encoder::Zstd(Box::new(
                zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(zstd_failed)?,
            )),
        };
        Ok(Self {
            codec,
            scratch: Vec::new(),
        })
    }

    /// Compresses one batch. `None` moves the bytes without a copy.
    pub fn compress(&mut self, batch: Vec<u8>) -> Result<Frame, CompressError> {
        let original_len = batch.len();
        if original_len > MAX_ORIGINAL_BYTES {
            return Err(CompressError::TooLarge {
                len: original_len,
                limit: MAX_ORIGINAL_BYTES,
            });
        }
        let (written, compression) = match &mut self.codec {
            Encoder::None => return Ok(stored(batch)),
            Encoder::Lz4(table) => {
                grow(&mut self.scratch, get_maximum_output_size(original_len))?;
                let written = compress_into_with_table(&batch, &mut self.scratch, table).map_err(
                    |error| CompressError::Codec {
                        compression: Compression::Lz4,
                        reason: error.to_string(),
                    },
                )?;
                (written, Compression::Lz4)
            }
            Encoder::Zstd(context) => {
                grow(
                    &mut self.scratch,
                    zstd::zstd_safe::compress_bound(original_len),
                )?;
                let written = context
                    .compress_to_buffer(&batch, self.scratch.as_mut_slice())
                    .map_err(zstd_failed)?;
                (written, Compression::Zstd)
            }
        };
        let frame = if written < original_len {
            Frame {
                bytes: self.scratch[..written].to_vec(),
                original_len,
                compression,
            }
        } else {
            stored(batch)
        };
        if self.scratch.len() > KEEP_SCRATCH_BYTES {
            self.scratch = Vec::new();
        }
        Ok(frame)
    }
}

/// Reads frames of every codec back, with one context.
pub struct Decompressor {
    max_bytes: usize,
    /// Made when the first Zstandard frame comes.
    zstd: Option<Box<zstd::bulk::Decompressor<'static>>>,
}

impl Decompressor {
    /// Will refuse a batch of more than `max_bytes` or [`MAX_ORIGINAL_BYTES`].
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes: max_bytes.min(MAX_ORIGINAL_BYTES),
            zstd: None,
        }
    }

    /// Gives the batch back. A frame that was not compressed is moved without a copy.
    pub fn decompress(&mut self, frame: Frame) -> Result<Vec<u8>, CompressError> {
        let compression = frame.compression;
        let damaged = |reason: String| CompressError::Damaged {
            compression,
            reason,
        };
        if frame.original_len > self.max_bytes {
            return Err(CompressError::TooLarge {
                len: frame.original_len,
                limit: self.max_bytes,
            });
        }
        let batch = match compression {
            Compression::None => frame.bytes,
            Compression::Lz4 => {
                if frame.original_len / LZ4_MAX_RATIO > frame.bytes.len() {
                    return Err(damaged(format!(
                        "{} bytes are too few for the expected {}",
                        frame.bytes.len(),
                        frame.original_len
                    )));
                }
                let mut batch = Vec::new();
                grow(&mut batch, frame.original_len)?;
                let written = decompress_into(&frame.bytes, &mut batch)
                    .map_err(|error| damaged(error.to_string()))?;
                batch.truncate(written);
                batch
            }
            Compression::Zstd => self.decompress_zstd(&frame)?,
        };
        if batch.len() != frame.original_len {
            return Err(damaged(format!(
                "decompression gave {} bytes instead of {}",
                batch.len(),
                frame.original_len
            )));
        }
        Ok(batch)
    }

    fn decompress_zstd(&mut self, frame: &Frame) -> Result<Vec<u8>, CompressError> {
        let mut batch = Vec::new();
        batch
            .try_reserve_exact(frame.original_len)
            .map_err(|_| CompressError::Memory {
                len: frame.original_len,
            })?;
        let context = match &mut self.zstd {
            Some(context) => context,
            none => none.insert(Box::new(
                zstd::bulk::Decompressor::new().map_err(zstd_failed)?,
            )),
        };
        context
            .decompress_to_buffer(&frame.bytes, &mut batch)
            .map_err(|error| CompressError::Damaged {
                compression: Compression::Zstd,
                reason: error.to_string(),
            })?;
        Ok(batch)
    }
}

fn stored(batch: Vec<u8>) -> Frame {
    Frame {
        original_len: batch.len(),
        bytes: batch,
        compression: Compression::None,
    }
}

/// Makes `buffer` at least `len` bytes long; the new ones are zero.
fn grow(buffer: &mut Vec<u8>, len: usize) -> Result<(), CompressError> {
    if buffer.len() < len {
        buffer
            .try_reserve_exact(len - buffer.len())
            .map_err(|_| CompressError::Memory { len })?;
        buffer.resize(len, 0);
    }
    Ok(())
}

fn zstd_failed(error: std::io::Error) -> CompressError {
    CompressError::Codec {
        compression: Compression::Zstd,
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
