//! The binary COPY format, both ways.
//!
//! "COPY", "File Formats", "Binary Format" in the PostgreSQL manual: a header (11 bytes of
//! signature, flags, length of an extension), rows (i16 count of fields, then each field as i32
//! length, -1 for NULL, and bytes), and a trailer (i16 -1). All integers are big-endian.

mod decoder;
mod encoder;
mod precision;

pub use decoder::Decoder;
pub use encoder::{Encoder, Rows};

pub(crate) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Signature, flags and length of the header's extension.
pub(crate) const HEADER_BYTES: usize = 19;
pub(crate) const TRAILER: [u8; 2] = [0xff, 0xff];
