//! Where the bytes of a file come from: [`ReadAt`], and what the formats put on top of it.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::ColumnarError;

/// A file whose bytes are read from any place. Reads do not move anything.
pub trait ReadAt: Send + Sync + 'static {
    /// Its length in bytes. It must stay the same while the file is read.
    fn size(&self) -> u64;

    /// At most `len` bytes from `offset`; empty only at the end of the file.
    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>>;
}

/// A file in memory, for tests.
impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        let start = usize::try_from(offset).map_or(self.len(), |start| start.min(self.len()));
        let end = start.saturating_add(len as usize).min(self.len());
        Ok(self[start..end].to_vec())
    }
}

impl<R: ReadAt> ReadAt for Arc<R> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        (**self).read(offset, len)
    }
}

/// Asked of a [`ReadAt`] at once: calls through the sandbox are cheap above 64 KiB, and what comes
/// back is copied once more.
const READ_BYTES: u64 = 1 << 19;

/// Exactly `len` bytes from `offset`. The caller has checked that the file is long enough and that
/// `len` is not above its limit; a file that has become shorter is an error.
pub(crate) fn read_exact<R: ReadAt>(source: &R, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let rest = (len - bytes.len()) as u64;
        let at = offset + bytes.len() as u64;
        // At most `READ_BYTES`.
        let piece = source.read(at, rest.min(READ_BYTES) as u32)?;
        if piece.is_empty() {
            let text = format!("the file ends at {at}: {rest} bytes are missing");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        if bytes.is_empty() {
            if piece.len() >= len {
                bytes = piece;
                break;
            }
            // Only once there is something: a length in a damaged file costs nothing by itself.
            bytes.reserve_exact(len);
        }
        bytes.extend_from_slice(&piece);
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The same as [`Bytes`], as this crate's error.
pub(crate) fn fetch<R: ReadAt>(
    source: &R,
    offset: u64,
    len: usize,
) -> Result<Bytes, ColumnarError> {
    let read = read_exact(source, offset, len);
    read.map(Bytes::from).map_err(|error| failed(&error))
}

/// The place of the first `sign` between two places of the file. Holds two pieces of it. The caller has checked that the
/// file is long enough.
pub(crate) fn find<R: ReadAt>(
    source: &R,
    sign: &[u8],
    from: u64,
    to: u64,
) -> Result<Option<u64>, ColumnarError> {
    let finder = memchr::memmem::Finder::new(sign);
    let (mut at, mut window) = (from, Vec::new());
    while at < to {
        // At most `READ_BYTES`.
        let piece = fetch(source, at, (to - at).min(READ_BYTES) as usize)?;
        let begin = at - window.len() as u64;
        window.extend_from_slice(&piece);
        if let Some(place) = finder.find(&window) {
            return Ok(Some(begin + place as u64));
        }
        at += piece.len() as u64;
        // The sign may lie in two pieces.
        window.drain(..window.len().saturating_sub(sign.len() - 1));
    }
    Ok(None)
}

/// A failed read or write.
pub(crate) fn failed(error: &io::Error) -> ColumnarError {
    ColumnarError::new("file_io", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives three bytes at a time.
    struct Slow(Vec<u8>);

    impl ReadAt for Slow {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
            self.0.read(offset, len.min(3))
        }
    }

    #[test]
    fn a_sign_is_found_across_pieces_and_only_inside_its_bounds() {
        let mut file = vec![b'.'; READ_BYTES as usize * 2];
        let seam = READ_BYTES as usize - 2;
        file[seam..seam + 4].copy_from_slice(b"sign");
        let size = file.size();
        let place = |from, to| find(&file, b"sign", from, to).unwrap();
        assert_eq!(place(0, size), Some(seam as u64));
        assert_eq!(place(seam as u64, seam as u64 + 4), Some(seam as u64));
        assert_eq!(place(seam as u64 + 1, size), None);
        assert_eq!(place(0, seam as u64 + 3), None);
        assert_eq!(place(9, 9), None);
    }

    #[test]
    fn reads_continue_until_all_bytes_are_there() {
        let file = Slow((0..20).collect());
        assert_eq!(
            read_exact(&file, 2, 10).unwrap(),
            (2..12).collect::<Vec<u8>>()
        );
        assert!(read_exact(&file, 20, 0).unwrap().is_empty());
        let error = read_exact(&file, 15, 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("ends at 20: 5 bytes"), "{error}");
    }
}
