//! The compressors of OP_COMPRESSED (driver specification "Wire Compression"): snappy, zlib and zstd.

use std::io::{Read, Write};

use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rapidbyte_sdk::{Error, Result};

use crate::error::protocol;
use crate::settings::Compressor;

/// The id of a message that is wrapped, but not compressed.
const NOOP: u8 = 0;
/// The fastest level that still compresses well; the server's own default is 3, too.
const ZSTD_LEVEL: i32 = 3;

impl Compressor {
    pub(crate) fn id(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }
}

/// A compressor that both sides know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compression {
    pub compressor: Compressor,
    /// 0 to 9.
    pub zlib_level: u32,
}

impl Compression {
    pub fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        match self.compressor {
            Compressor::Snappy => snap::raw::Encoder::new()
                .compress_vec(bytes)
                .map_err(Error::internal),
            Compressor::Zlib => {
                let level = flate2::Compression::new(self.zlib_level);
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
                written.map_err(Error::internal)
            }
            Compressor::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL).map_err(Error::internal),
        }
    }
}

/// Exactly `len` bytes, which the caller has found acceptable, of `data`.
pub(crate) fn decompress(
    id: u8,
    data: &[u8],
    len: usize,
    offered: &[Compressor],
) -> Result<Vec<u8>> {
    let compressor = offered.iter().find(|compressor| compressor.id() == id);
    let wrong = |what: &dyn std::fmt::Display| protocol(format!("compressed data: {what}"));
    let bytes = match compressor {
        None if id == NOOP => data.to_vec(),
        None => return Err(protocol(format!("a compressor {id} that was not offered"))),
        Some(Compressor::Snappy) => {
            if snap::raw::decompress_len(data).map_err(|error| wrong(&error))? != len {
                return Err(wrong(&"another length than announced"));
            }
            let mut decoder = snap::raw::Decoder::new();
            decoder
                .decompress_vec(data)
                .map_err(|error| wrong(&error))?
        }
        Some(Compressor::Zlib) => {
            let mut bytes = Vec::with_capacity(len);
            // One byte more shows that there is more.
            let most = u64::try_from(len).unwrap_or(u64::MAX).saturating_add(1);
            let read = ZlibDecoder::new(data).take(most).read_to_end(&mut bytes);
            read.map_err(|error| wrong(&error))?;
            bytes
        }
        Some(Compressor::Zstd) => {
            zstd::bulk::decompress(data, len).map_err(|error| wrong(&error))?
        }
    };
    match bytes.len() == len {
        true => Ok(bytes),
        false => Err(wrong(&"another length than announced")),
    }
}
