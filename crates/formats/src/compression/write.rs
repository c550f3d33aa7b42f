//! Plain bytes to compressed ones.

use std::io::{self, Write};

use flate2::GzBuilder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use zstd::stream::write::Encoder as ZstdEncoder;

use super::Compression;
use crate::FormatError;

/// The default levels of the programs `gzip` and `zstd`.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;
/// 256 KiB instead of 2 MiB.
const SMALL_WINDOW_LOG: u32 = 18;

/// Compresses one file: one member or frame, with a checksum of its content.
pub struct Compressor(Codec);

enum Codec {
    None(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
}

impl Compressor {
    /// Begins a file. Errors: `compression_failed`.
    pub fn new(compression: Compression) -> Result<Self, FormatError> {
        Self::with_zstd_window(compression, None)
    }

    /// The same in about 1 MiB of memory, for many files that are written at the same time.
    pub fn small(compression: Compression) -> Result<Self, FormatError> {
        Self::with_zstd_window(compression, Some(SMALL_WINDOW_LOG))
    }

    fn with_zstd_window(
        compression: Compression,
        window_log: Option<u32>,
    ) -> Result<Self, FormatError> {
        let out = Vec::new();
        Ok(Self(match compression {
            Compression::None => Codec::None(out),
            Compression::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                // Without a time of its own: equal rows make equal files.
                Codec::Gzip(Box::new(GzBuilder::new().mtime(0).write(out, level)))
            }
            Compression::Zstd => {
                let encoder = ZstdEncoder::new(out, ZSTD_LEVEL).and_then(|mut encoder| {
                    encoder.include_checksum(true)?;
                    if let Some(log) = window_log {
                        encoder.window_log(log)?;
                    }
                    Ok(encoder)
                });
                Codec::Zstd(encoder.map_err(|error| failed(&error))?)
            }
            Compression::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max256KB)
                    .content_checksum(true);
                Codec::Lz4(Box::new(FrameEncoder::with_frame_info(info, out)))
            }
        }))
    }

    /// Compresses the next bytes of the file. Errors: `compression_failed`.
    pub fn push(&mut self, plain: &[u8]) -> Result<(), FormatError> {
        let encoder: &mut dyn Write = match &mut self.0 {
            Codec::None(out) => out,
            Codec::Gzip(encoder) => encoder,
            Codec::Zstd(encoder) => encoder,
            Codec::Lz4(encoder) => encoder,
        };
        encoder.write_all(plain).map_err(|error| failed(&error))
    }

    /// The compressed bytes so far, which are given once.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(match &mut self.0 {
            Codec::None(out) => out,
            Codec::Gzip(encoder) => encoder.get_mut(),
            Codec::Zstd(encoder) => encoder.get_mut(),
            Codec::Lz4(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the file; gives its last bytes. Errors: `compression_failed`.
    pub fn finish(self) -> Result<Vec<u8>, FormatError> {
        match self.0 {
            Codec::None(out) => Ok(out),
            Codec::Gzip(encoder) => encoder.finish().map_err(|error| failed(&error)),
            Codec::Zstd(encoder) => encoder.finish().map_err(|error| failed(&error)),
            Codec::Lz4(encoder) => encoder
                .finish()
                .map_err(|error| failed(&io::Error::from(error))),
        }
    }
}

fn failed(error: &io::Error) -> FormatError {
    FormatError::new(
        "compression_failed",
        format!("the compression library failed: {error}"),
    )
}
