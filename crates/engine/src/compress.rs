//! Compresses batches on their way through the channel, with contexts that are reused.

use std::io;

/// How batches are compressed between the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all; the bytes are moved, not copied.
    None,
    /// LZ4 blocks: cheap.
    Lz4,
    /// Zstandard, level 1: smaller.
    Zstd,
}

/// One batch message, compressed or not.
pub struct Frame {
    bytes: Vec<u8>,
    /// Bytes before compression.
    original_len: usize,
    compression: Compression,
}

impl Frame {
    /// Bytes that it holds in memory.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Level 1: the channel is memory, not a network.
const ZSTD_LEVEL: i32 = 1;
/// A frame that claims more than this is damaged: the host refuses such batches before.
const MAX_ORIGINAL: usize = 2 << 30;

/// Compresses for one stage.
pub struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    lz4: Option<Box<lz4_flex::block::CompressTable>>,
    /// Compressed bytes, before they are copied out at their size.
    scratch: Vec<u8>,
}

impl Compressor {
    /// A compressor; its contexts are made with the first frame.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            zstd: None,
            lz4: None,
            scratch: Vec::new(),
        }
    }

    /// Compresses one batch.
    pub fn compress(&mut self, bytes: Vec<u8>) -> io::Result<Frame> {
        let original_len = bytes.len();
        let compression = self.compression;
        let bytes = match compression {
            Compression::None => bytes,
            Compression::Lz4 => {
                let table = self.lz4.get_or_insert_with(Box::default);
                self.scratch
                    .resize(lz4_flex::block::get_maximum_output_size(original_len), 0);
                let len =
                    lz4_flex::block::compress_into_with_table(&bytes, &mut self.scratch, table)
                        .map_err(io::Error::other)?;
                self.scratch[..len].to_vec()
            }
            Compression::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
                };
                self.scratch
                    .resize(zstd::zstd_safe::compress_bound(original_len), 0);
                let len = zstd.compress_to_buffer(&bytes, self.scratch.as_mut_slice())?;
                self.scratch[..len].to_vec()
            }
        };
        Ok(Frame {
            bytes,
            original_len,
            compression,
        })
    }
}

/// Decompresses for one stage.
#[derive(Default)]
pub struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// A decompressor; its context is made with the first frame that needs it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The batch in a frame. A damaged frame is an error.
    pub fn decompress(&mut self, frame: Frame) -> io::Result<Vec<u8>> {
        let Frame {
            bytes,
            original_len,
            compression,
        } = frame;
        if original_len > MAX_ORIGINAL {
            return Err(io::Error::other(format!("a frame of {original_len} bytes")));
        }
        let out = match compression {
            Compression::None => bytes,
            Compression::Lz4 => {
                lz4_flex::block::decompress(&bytes, original_len).map_err(io::Error::other)?
            }
            Compression::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                zstd.decompress(&bytes, original_len)?
            }
        };
        if out.len() == original_len {
            Ok(out)
        } else {
            Err(io::Error::other(format!(
                "{} bytes, expected {original_len}",
                out.len()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    #[test]
    fn contexts_are_reused_and_repetition_shrinks() {
        for compression in ALL {
            let mut compressor = Compressor::new(compression);
            let mut decompressor = Decompressor::new();
            for len in [0, 1, 100_000, 3, 1 << 20] {
                let bytes: Vec<u8> = (0..len).map(|i| (i / 7 % 50) as u8).collect();
                let frame = compressor.compress(bytes.clone()).unwrap();
                assert!(compression == Compression::None || len < 1000 || frame.len() < len / 2);
                assert_eq!(decompressor.decompress(frame).unwrap(), bytes);
            }
        }
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_other_bytes_but_never_a_panic(
            bytes: Vec<u8>, at: usize, value: u8, cut in 0usize..4
        ) {
            for compression in ALL {
                let mut frame = Compressor::new(compression).compress(bytes.clone()).unwrap();
                if let Some(len) = std::num::NonZero::new(frame.bytes.len()) {
                    frame.bytes[at % len] = value;
                }
                frame.bytes.truncate(frame.bytes.len().saturating_sub(cut));
                if let Ok(out) = Decompressor::new().decompress(frame) {
                    prop_assert_eq!(out.len(), bytes.len());
                }
            }
        }
    }
}
