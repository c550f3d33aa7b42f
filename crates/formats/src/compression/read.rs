//! Compressed bytes to plain ones.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use lz4_flex::frame::{Error as Lz4Error, FrameDecoder};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

use super::{Compression, damaged, trailing, truncated};
use crate::FormatError;

/// Plain bytes made at once: large enough that calls cost nothing.
const OUT_BYTES: usize = 1 << 18;
/// Least window that zstd frames may have: what `zstd -19` makes.
const LEAST_WINDOW_LOG: u32 = 23;
/// Greatest window that the format's 32-bit decoders take.
const GREATEST_WINDOW_LOG: u32 = 30;

/// A file's bytes, piece by piece.
pub trait Chunks {
    /// Why they cannot be read.
    type Error;

    /// The bytes that come next; empty at the file's end only.
    fn fill(&mut self) -> Result<&[u8], Self::Error>;

    /// Drops the first `len` bytes of what [`fill`](Self::fill) gave.
    fn consume(&mut self, len: usize);
}

/// Why reading stopped.
#[derive(Debug)]
pub enum Stop<E> {
    /// The file could not be read.
    Chunks(E),
    /// Its bytes are wrong.
    Format(FormatError),
}

/// Gives the plain bytes of one file; [`Compression::None`] gives them as they are, uncopied.
pub struct Decompressor<C: Chunks> {
    codec: Codec<C>,
    out: Vec<u8>,
    /// How much of `out` was consumed.
    taken: usize,
}

enum Codec<C: Chunks> {
    None(Tap<C>),
    Gzip(Gzip<C>),
    Zstd(Box<Zstd<C>>),
    Lz4(Box<Lz4<C>>),
}

impl<C: Chunks> Decompressor<C> {
    /// A frame of zstd that needs a window above `max_window_bytes` (and above 8 MiB) is refused.
    pub fn new(
        compression: Compression,
        chunks: C,
        max_window_bytes: usize,
    ) -> Result<Self, FormatError> {
        let tap = Tap::new(chunks);
        let codec = match compression {
            Compression::None => Codec::None(tap),
            Compression::Gzip => Codec::Gzip(Gzip::Between(Some(tap))),
            Compression::Zstd => Codec::Zstd(Box::new(Zstd::new(tap, max_window_bytes)?)),
            Compression::Lz4 => Codec::Lz4(Box::new(Lz4 {
                frames: FrameDecoder::new(tap),
                within: false,
            })),
        };
        Ok(Self {
            codec,
            out: Vec::new(),
            taken: 0,
        })
    }

    /// The plain bytes that come next; empty at the end of the whole file only.
    ///
    /// Errors: the errors of [`Chunks`], and `compressed_truncated`, `compressed_damaged`,
    /// `compressed_trailing_bytes`, `compressed_unsupported`, `zstd_window_too_large`.
    pub fn fill(&mut self) -> Result<&[u8], Stop<C::Error>> {
        let read: &mut dyn Codes<C> = match &mut self.codec {
            Codec::None(tap) => return tap.chunks.fill().map_err(Stop::Chunks),
            Codec::Gzip(codec) => codec,
            Codec::Zstd(codec) => &mut **codec,
            Codec::Lz4(codec) => &mut **codec,
        };
        if self.taken == self.out.len() {
            self.taken = 0;
            self.out.resize(OUT_BYTES, 0);
            let made = read.read(&mut self.out);
            self.out.truncate(*made.as_ref().unwrap_or(&0));
            made?;
        }
        Ok(&self.out[self.taken..])
    }

    /// Plain bytes that are held, without the codec's window.
    pub fn held_bytes(&self) -> usize {
        self.out.len()
    }

    /// Drops the first `len` bytes of what [`fill`](Self::fill) gave.
    pub fn consume(&mut self, len: usize) {
        match &mut self.codec {
            Codec::None(tap) => tap.chunks.consume(len),
            _ => self.taken = (self.taken + len).min(self.out.len()),
        }
    }
}

/// One format: at most as many bytes as fit, 0 at the end of the last frame only.
trait Codes<C: Chunks> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Stop<C::Error>>;
}

/// A [`Chunks`] as the libraries want it, which knows where it is and why it stopped.
struct Tap<C: Chunks> {
    chunks: C,
    /// Bytes of the file that were consumed.
    offset: u64,
    /// The last read met the end of the file.
    at_end: bool,
    /// Why the last read failed.
    failed: Option<C::Error>,
    /// Bytes that were consumed and are to be read again; [`Read`] alone gives them.
    unread: Vec<u8>,
}

impl<C: Chunks> Tap<C> {
    fn new(chunks: C) -> Self {
        Self {
            chunks,
            offset: 0,
            at_end: false,
            failed: None,
            unread: Vec::new(),
        }
    }

    /// The next byte, `None` at the end of the file.
    fn peek(&mut self) -> Result<Option<u8>, Stop<C::Error>> {
        let bytes = self.chunks.fill().map_err(Stop::Chunks)?;
        Ok(bytes.first().copied())
    }

    /// Skips a frame that is not for us, from its length on.
    fn skip_frame(&mut self) -> io::Result<()> {
        let mut len = [0; 4];
        self.read_exact(&mut len)?;
        let mut left = u32::from_le_bytes(len) as usize;
        while left > 0 {
            let bytes = self.fill_buf()?;
            if bytes.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let len = bytes.len().min(left);
            self.consume(len);
            left -= len;
        }
        Ok(())
    }

    /// The error to report for an error of a library.
    fn explain(&mut self, compression: Compression, error: &io::Error) -> Stop<C::Error> {
        if let Some(failed) = self.failed.take() {
            return Stop::Chunks(failed);
        }
        Stop::Format(match error.kind() {
            ErrorKind::UnexpectedEof => truncated(compression, self.offset),
            _ => damaged(compression, self.offset, &error.to_string()),
        })
    }
}

impl<C: Chunks> Read for Tap<C> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.unread.is_empty() {
            let len = self.unread.len().min(out.len());
            out[..len].copy_from_slice(&self.unread[..len]);
            self.unread.drain(..len);
            return Ok(len);
        }
        let bytes = self.fill_buf()?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl<C: Chunks> BufRead for Tap<C> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.chunks.fill() {
            Ok(bytes) => {
                self.at_end = bytes.is_empty();
                Ok(bytes)
            }
            Err(error) => {
                self.failed = Some(error);
                Err(io::Error::other("the file cannot be read"))
            }
        }
    }

    fn consume(&mut self, len: usize) {
        self.offset += len as u64;
        self.chunks.consume(len);
    }
}

/// Members one after the other. The bytes are always in one of the two states; `None` only while
/// they change.
enum Gzip<C: Chunks> {
    Between(Option<Tap<C>>),
    Within(Box<GzDecoder<Tap<C>>>),
}

/// The first byte of a gzip member.
const GZIP_MAGIC: u8 = 0x1f;

impl<C: Chunks> Codes<C> for Gzip<C> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Stop<C::Error>> {
        loop {
            match self {
                Self::Between(tap) => {
                    let Some(bytes) = tap else { return Ok(0) };
                    match bytes.peek()? {
                        // A file without a byte is what `gzip -d` takes for an empty one.
                        None => return Ok(0),
                        Some(GZIP_MAGIC) => {}
                        Some(_) => {
                            return Err(Stop::Format(trailing(Compression::Gzip, bytes.offset)));
                        }
                    }
                    if let Some(bytes) = tap.take() {
                        *self = Self::Within(Box::new(GzDecoder::new(bytes)));
                    }
                }
                Self::Within(member) => {
                    match member.read(out) {
                        Ok(0) => {}
                        Ok(len) => return Ok(len),
                        Err(error) => {
                            return Err(member.get_mut().explain(Compression::Gzip, &error));
                        }
                    }
                    let ended = std::mem::replace(self, Self::Between(None));
                    if let Self::Within(member) = ended {
                        *self = Self::Between(Some(member.into_inner()));
                    }
                }
            }
        }
    }
}

struct Zstd<C: Chunks> {
    tap: Tap<C>,
    decoder: ZstdDecoder<'static>,
    /// A frame has begun and not ended.
    within: bool,
}

impl<C: Chunks> Zstd<C> {
    fn new(tap: Tap<C>, max_window_bytes: usize) -> Result<Self, FormatError> {
        let failed = |error: io::Error| FormatError::new("compression_failed", error.to_string());
        let mut decoder = ZstdDecoder::new().map_err(failed)?;
        let log = max_window_bytes.max(1).ilog2();
        let log = log.clamp(LEAST_WINDOW_LOG, GREATEST_WINDOW_LOG);
        let limit = DParameter::WindowLogMax(log);
        decoder.set_parameter(limit).map_err(failed)?;
        Ok(Self {
            tap,
            decoder,
            within: false,
        })
    }

    fn explain(&mut self, began: u64, error: &io::Error) -> FormatError {
        let text = error.to_string();
        if text.contains("too much memory") {
            return FormatError::new(
                "zstd_window_too_large",
                format!(
                    "the zstd frame at byte {began} needs a larger window than the memory limit \
                         allows"
                ),
            )
            .hint(
                "raise resources.max_record_bytes, the limit of a window (at least 8 MiB), and \
                     resources.memory; or compress the file again without --long and --ultra",
            );
        }
        if text.contains("Dictionary") {
            return FormatError::new(
                "compressed_unsupported",
                format!(
                    "the zstd frame before byte {} needs a dictionary",
                    self.tap.offset
                ),
            )
            .hint("compress the file again without a dictionary");
        }
        match self.within {
            false if text.contains("Unknown frame") => trailing(Compression::Zstd, began),
            _ => damaged(Compression::Zstd, self.tap.offset, &text),
        }
    }
}

impl<C: Chunks> Codes<C> for Zstd<C> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Stop<C::Error>> {
        loop {
            let began = self.tap.offset;
            let input = self.tap.chunks.fill().map_err(Stop::Chunks)?;
            let ended = input.is_empty();
            if ended && !self.within {
                return Ok(0);
            }
            let status = match self.decoder.run_on_buffers(input, out) {
                Ok(status) => status,
                Err(error) => return Err(Stop::Format(self.explain(began, &error))),
            };
            self.tap.consume(status.bytes_read);
            self.within = status.remaining != 0;
            if status.bytes_written > 0 {
                return Ok(status.bytes_written);
            }
            if ended {
                return Err(Stop::Format(truncated(Compression::Zstd, self.tap.offset)));
            }
        }
    }
}

struct Lz4<C: Chunks> {
    frames: FrameDecoder<Tap<C>>,
    /// A frame has begun and not ended.
    within: bool,
}

const LZ4_MAGIC: u32 = 0x184D_2204;
const LZ4_LEGACY_MAGIC: u32 = 0x184C_2102;
/// The last four bits are free.
const LZ4_SKIPPABLE_MAGIC: u32 = 0x184D_2A50;

impl<C: Chunks> Lz4<C> {
    fn explain(&mut self, error: &io::Error) -> Stop<C::Error> {
        let tap = self.frames.get_mut();
        let known = error.get_ref().and_then(|error| error.downcast_ref());
        if let Some(Lz4Error::DictionaryNotSupported) = known {
            let at = tap.offset;
            let text = format!("the LZ4 frame before byte {at} needs a dictionary");
            let error = FormatError::new("compressed_unsupported", text);
            return Stop::Format(error.hint("compress the file again without a dictionary"));
        }
        tap.explain(Compression::Lz4, error)
    }

    /// Goes to the beginning of the next frame; false at the end of the file. Its magic number is
    /// checked here because the library takes an end within it for the end of the data.
    fn next_frame(&mut self) -> Result<bool, Stop<C::Error>> {
        loop {
            let tap = self.frames.get_mut();
            let began = tap.offset;
            if tap.peek()?.is_none() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            if let Err(error) = tap.read_exact(&mut magic) {
                return Err(tap.explain(Compression::Lz4, &error));
            }
            match u32::from_le_bytes(magic) {
                LZ4_MAGIC => {
                    tap.unread = magic.to_vec();
                    return Ok(true);
                }
                LZ4_LEGACY_MAGIC => {
                    let text = "the file is in the legacy LZ4 format of `lz4 -l`";
                    let error = FormatError::new("compressed_unsupported", text);
                    return Err(Stop::Format(
                        error.hint("compress it again without -l, to the LZ4 frame format"),
                    ));
                }
                magic if magic & !0xf == LZ4_SKIPPABLE_MAGIC => {
                    if let Err(error) = tap.skip_frame() {
                        return Err(tap.explain(Compression::Lz4, &error));
                    }
                }
                _ => return Err(Stop::Format(trailing(Compression::Lz4, began))),
            }
        }
    }
}

impl<C: Chunks> Codes<C> for Lz4<C> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Stop<C::Error>> {
        loop {
            if !self.within {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.within = true;
            }
            match self.frames.read(out) {
                // The library takes the end of the file between two blocks for the end of a frame.
                Ok(0) if self.frames.get_ref().at_end => {
                    let offset = self.frames.get_ref().offset;
                    return Err(Stop::Format(truncated(Compression::Lz4, offset)));
                }
                Ok(0) => self.within = false,
                Ok(len) => return Ok(len),
                Err(error) => return Err(self.explain(&error)),
            }
        }
    }
}
