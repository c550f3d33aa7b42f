//! The SHA-256 of a file, computed from the bytes that a connector reads anyway.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ring::digest::{Context, SHA256};

/// Bytes that are read at a time if the connector has not read them.
const PIECE: usize = 1 << 20;

/// A hash over the bytes of a file from its begin on. What a connector reads in order is hashed as it is handed over;
/// [`Digested::finish`] reads the rest. A read from the begin starts the hash anew, because these are the bytes that
/// count: those of a sample are read again.
pub struct Digested(Mutex<State>);

struct State {
    context: Context,
    /// Bytes that are hashed.
    hashed: u64,
}

impl State {
    fn new() -> Self {
        Self {
            context: Context::new(&SHA256),
            hashed: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.hashed += bytes.len() as u64;
    }
}

impl Default for Digested {
    fn default() -> Self {
        Self(Mutex::new(State::new()))
    }
}

impl Digested {
    /// A connector has read these bytes from `offset` on.
    pub(crate) fn has_read(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 && !bytes.is_empty() {
            *state = State::new();
        }
        let known = state.hashed.checked_sub(offset);
        let known = known.and_then(|known| usize::try_from(known).ok());
        if let Some(new) = known.and_then(|known| bytes.get(known..)) {
            state.add(new);
        }
    }

    /// The SHA-256 of the whole file: reads what no connector has read in order. Begins anew afterwards. Calls
    /// `is_over` between two pieces: the file is not read further if it returns true.
    ///
    /// # Errors
    /// The file cannot be read. `Interrupted`: it was over.
    pub fn finish(&self, file: &Path, is_over: impl Fn() -> bool) -> io::Result<[u8; 32]> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = std::mem::replace(&mut *state, State::new());
        let mut file = std::fs::File::open(file)?;
        // A file may have become longer.
        file.seek(SeekFrom::Start(state.hashed))?;
        let mut piece = Vec::new();
        loop {
            if is_over() {
                return Err(io::Error::new(ErrorKind::Interrupted, "the run is over"));
            }
            piece.clear();
            (&mut file).take(PIECE as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                break;
            }
            state.add(&piece);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(state.context.finish().as_ref());
        Ok(digest)
    }
}

/// Without what it has hashed.
impl std::fmt::Debug for Digested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digested")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(ring::digest::digest(&SHA256, bytes).as_ref());
        digest
    }

    /// The digest after these reads, of a file whose bytes no read has shown unless they are in order.
    fn after(reads: &[(u64, &[u8])], on_disk: &[u8]) -> [u8; 32] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("body");
        std::fs::write(&file, on_disk).expect("a file");
        let digested = Digested::default();
        for (offset, bytes) in reads {
            digested.has_read(*offset, bytes);
        }
        digested.finish(&file, || false).expect("a digest")
    }

    #[test]
    fn bytes_that_were_read_in_order_are_hashed_as_they_were_read() {
        // The disk has other bytes by now: only those that were read count.
        let read_as_a = of(b"abcdef");
        for reads in [
            &[(0, &b"abcdef"[..]), (6, b"")][..],
            &[(0, b"abc"), (3, b"def")],
            // Reads that overlap.
            &[(0, b"abc"), (2, b"cde"), (1, b"b"), (4, b"ef")],
            // A sample, and then the read.
            &[(0, b"xyz"), (3, b"x"), (0, b"abc"), (3, b"def")],
        ] {
            assert_eq!(after(reads, b"______"), read_as_a, "{reads:?}");
        }
    }

    #[test]
    fn bytes_that_nobody_read_in_order_are_read_at_the_end() {
        for reads in [
            &[][..],
            &[(0, &b"abc"[..])],
            // A footer, and then the pages.
            &[(4, b"ef"), (0, b"ab"), (4, b"ef")],
            &[(0, b"ab"), (3, b"d"), (2, b"c")],
        ] {
            assert_eq!(after(reads, b"abcdef"), of(b"abcdef"), "{reads:?}");
        }
        assert_ne!(after(&[(0, b"abc")], b"abcdeX"), of(b"abcdef"));
        assert_ne!(after(&[(0, b"abc")], b"abcdefg"), of(b"abcdef"));
        assert_ne!(after(&[(0, b"abcdef")], b"abcdefg"), of(b"abcdef"));
    }

    #[test]
    fn a_file_that_is_gone_and_a_run_that_is_over_give_no_digest() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("body");
        let digested = Digested::default();
        assert!(digested.finish(&file, || false).is_err());
        std::fs::write(&file, b"a").expect("a file");
        let over = digested.finish(&file, || true).expect_err("over");
        assert_eq!(over.kind(), ErrorKind::Interrupted);
    }
}
