//! Reads a small text file, whole, with a limit.

use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rapidbyte_runtime::regular;

use super::error::{DocumentError, Location, code};

/// Why a file could not be read, as the rest of a sentence that begins with the file.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Of the first byte that is not UTF-8.
    pub(super) at: Option<Location>,
}

impl Problem {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at: None,
        }
    }

    /// As an error about the file itself, which `what` names.
    pub(super) fn into_error(self, file: &str, what: &str) -> DocumentError {
        let error = DocumentError::whole(self.code, file, format!("{what} {}", self.message));
        match self.at {
            Some(place) => error.at(place),
            None => error,
        }
    }
}

/// Reads a regular file of at most `max_bytes` of UTF-8.
pub(super) fn read_text(path: &Path, max_bytes: u64) -> Result<String, Problem> {
    read_checked(path, max_bytes, |_| Ok(()))
}

/// The same for a file that has to pass a check of its owner and mode.
pub(super) fn read_checked(
    path: &Path,
    max_bytes: u64,
    check: impl FnOnce(&Metadata) -> Result<(), Problem>,
) -> Result<String, Problem> {
    // Before opening it: opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if metadata.is_dir() {
        return Err(Problem::new(code::NOT_A_FILE, "is a folder"));
    }
    if !metadata.is_file() {
        return Err(Problem::new(code::NOT_A_FILE, "is not a regular file"));
    }
    // Another may have taken its place since.
    let file = regular::open(path).map_err(|error| unreadable(&error))?;
    check(&file.metadata().map_err(|error| unreadable(&error))?)?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > max_bytes {
        let message = format!("is larger than {} MiB", max_bytes >> 20);
        return Err(Problem::new(code::FILE_TOO_LARGE, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Problem {
            at: Some(place_after(&error.as_bytes()[..valid])),
            ..Problem::new(code::INVALID_UTF8, "is not UTF-8 text")
        }
    })
}

fn unreadable(error: &std::io::Error) -> Problem {
    if error.kind() == ErrorKind::NotFound {
        return Problem::new(code::FILE_NOT_FOUND, "does not exist");
    }
    Problem::new(code::FILE_UNREADABLE, format!("cannot be read: {error}"))
}

/// The place of the character that follows `text`, which is UTF-8.
fn place_after(text: &[u8]) -> Location {
    let line_start = text
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    let line = text[..line_start].iter().filter(|&&b| b == b'\n').count() + 1;
    // Every byte that does not continue a character begins one.
    let before = text[line_start..].iter().filter(|&&b| b & 0xC0 != 0x80);
    let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Location {
        line: clamp(line),
        column: clamp(before.count() + 1),
    }
}
