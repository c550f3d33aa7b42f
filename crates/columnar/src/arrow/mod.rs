//! Arrow IPC files: the file format with its footer, and for reading the stream format too.
//!
//! A record batch is read whole, because its buffers are: its size is the writer's choice, and a
//! larger one than the limit is refused. See "IPC File Format" and "IPC Streaming Format" in the
//! Arrow columnar specification.

mod read;
mod scan;
mod write;

pub(crate) use read::{ArrowFile, ArrowReader};
pub(crate) use write::ArrowWriter;

use arrow_schema::ArrowError;

use crate::ColumnarError;

/// The first and last six bytes of a file.
pub const MAGIC: [u8; 6] = *b"ARROW1";

fn wrong(text: impl Into<String>) -> ColumnarError {
    ColumnarError::new("arrow_malformed", text)
        .hint("copy the file again: it is damaged or incomplete")
}

/// Calls the decoder, which panics for some damaged buffers, such as offsets that are compressed and
/// of a length that is none. As with Parquet, that is an error natively; a component ends.
fn guarded<T>(decode: impl FnOnce() -> T) -> Result<T, ColumnarError> {
    // After an error nothing of the reader is used any more.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode))
        .map_err(|_| wrong("a batch that cannot be decoded"))
}

/// Arrow's message without its prefix for the kind of error, cut to its first line: a message about
/// a header has many lines.
fn malformed(error: &ArrowError) -> ColumnarError {
    let text = error.to_string();
    let text = text.split_once(" error: ").map_or(&*text, |(_, what)| what);
    wrong(text.lines().next().unwrap_or_default().trim())
}
