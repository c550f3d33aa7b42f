//! Compressed text files: gzip (RFC 1952), Zstandard (RFC 8878) and the LZ4 frame format.
//!
//! A file is a chain of members or frames, as `cat a.gz b.gz` makes it; all of them are read,
//! skippable frames are skipped. Anything but a whole chain is an error: an end in the middle, a
//! checksum that differs, bytes after the last frame. Memory is bounded by the codec's window,
//! however much a file expands to.
//!
//! The output is the same for the same rows: no time, no name, no count of threads. Checksums
//! of the content are on.
//!
//! [`Decompressor`] takes its bytes from a [`Chunks`], which a connector implements over its file;
//! [`Compressor`] gives bytes back. Both work without I/O of their own.

mod read;
mod write;

use schemars::JsonSchema;

use crate::FormatError;

pub use read::{Chunks, Decompressor, Stop};
pub use write::Compressor;

/// How the bytes of a text file are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, files ending in .gz.
    Gzip,
    /// Zstandard, files ending in .zst.
    Zstd,
    /// The LZ4 frame format, files ending in .lz4.
    Lz4,
}

impl Compression {
    const ENDINGS: [(&'static str, Self); 3] = [
        (".gz", Self::Gzip),
        (".zst", Self::Zstd),
        (".lz4", Self::Lz4),
    ];

    /// The compression that a path's ending names, and the path without that ending.
    pub fn of_path(path: &str) -> (Self, &str) {
        for (ending, compression) in Self::ENDINGS {
            let at = path.len().saturating_sub(ending.len());
            if let Some((before, end)) = path.split_at_checked(at)
                && end.eq_ignore_ascii_case(ending)
            {
                return (compression, before);
            }
        }
        (Self::None, path)
    }

    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }
}

/// The file is not, or not any more, what its compression makes.
fn damaged(compression: Compression, at: u64, what: &str) -> FormatError {
    let text = format!(
        "damaged {} data before byte {at}: {what}",
        compression.name()
    );
    FormatError::new("compressed_damaged", text)
        .hint("compare the file with its origin, and copy it again")
}

fn truncated(compression: Compression, at: u64) -> FormatError {
    let name = compression.name();
    let text = format!("the file ends at byte {at} in the middle of its {name} data");
    FormatError::new("compressed_truncated", text)
        .hint("let its writer finish, or copy the file again")
}

fn trailing(compression: Compression, at: u64) -> FormatError {
    let name = compression.name();
    match at {
        0 => FormatError::new("compressed_damaged", format!("the file is not {name} data")).hint(
            "set compression: to the file's real compression, or to none to read it as plain text",
        ),
        _ => FormatError::new(
            "compressed_trailing_bytes",
            format!("bytes that are not {name} data follow from byte {at}"),
        )
        .hint("cut the file there if they are padding; otherwise copy it again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_tells_the_compression() {
        for (path, expected) in [
            ("a/b.csv.gz", (Compression::Gzip, "a/b.csv")),
            ("b.JSONL.ZST", (Compression::Zstd, "b.JSONL")),
            ("*.csv.lz4", (Compression::Lz4, "*.csv")),
            ("a.gz/b.csv", (Compression::None, "a.gz/b.csv")),
            ("ägz", (Compression::None, "ägz")),
            (".gz", (Compression::Gzip, "")),
        ] {
            assert_eq!(Compression::of_path(path), expected, "{path}");
        }
    }
}
