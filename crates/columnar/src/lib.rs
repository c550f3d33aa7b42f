//! Parquet files and Arrow IPC files: to Arrow batches and back, without I/O of its own.
//!
//! A file is opened over a [`ReadAt`], which gives bytes from any place. [`File::open`] reads the
//! footer: columns, their types in the file, rows. [`File::read`] gives batches of about as many
//! bytes as were asked for, of the wanted columns alone, and holds no more of the file than a page
//! of each of them (Parquet) or one record batch (Arrow). [`FileWriter`] takes batches and writes
//! to a [`std::io::Write`].
//!
//! Columns have the types of [`rapidbyte_wire::types`]. A type of a file beyond them becomes one of them
//! where that is exact; otherwise it is refused by name.
//!
//! ```
//! use std::sync::Arc;
//! use rapidbyte_columnar::{File, FileWriter, Kind, Limits, WriteOptions};
//! use arrow_array::{Int64Array, RecordBatch, ArrayRef};
//!
//! let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let batch = RecordBatch::try_from_iter([("id", ids)])?;
//! let mut writer = FileWriter::new(Kind::Parquet, batch.schema(), &WriteOptions::default(), Vec::new())?;
//! writer.write(&batch)?;
//! let bytes = writer.finish()?;
//!
//! let file = File::open(Kind::Parquet, Arc::new(bytes))?;
//! assert_eq!((file.rows(), file.source_types()), (3, &["INT64".to_owned()][..]));
//! let mut reader = file.read(None, Limits::default())?;
//! assert_eq!(reader.next_batch()?, Some(batch));
//! assert_eq!(reader.next_batch()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod arrow;
mod error;
mod file;
mod merge;
mod options;
pub mod parquet;
mod pieces;
mod portable;
mod read_at;
mod widen;
mod write;

pub use error::{ColumnarError, Owner};
pub use file::{File, Kind, Reader, project};
pub use merge::merge;
pub use options::{Compression, WriteOptions};
pub use portable::{portable, portable_batch, undescribed};
pub use read_at::ReadAt;
pub use write::{FileWriter, Fit, Form, form};

/// Rows that take no bytes in a file, such as the rows of a table without columns. A few bytes can claim
/// any number of them; a reader needs seconds for this many.
const MAX_BARE_ROWS: u64 = 1 << 32;

/// The most that a reader may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A batch holds about this many bytes, and one record at least.
    pub batch_bytes: usize,
    /// A larger record is refused. A page (Parquet) or a record batch (Arrow) may have four times
    /// as much, and 64 MiB at least.
    pub max_record_bytes: usize,
}

impl Limits {
    /// The most that a piece of a file may have which can only be held whole, in bytes.
    pub(crate) fn max_piece_bytes(&self) -> u64 {
        (self.max_record_bytes as u64)
            .saturating_mul(4)
            .max(64 << 20)
    }
}

/// The settings that allow a piece of `piece_bytes`: memory also holds its arrays and the copies of both
/// connectors.
fn settings_for(piece_bytes: u64) -> String {
    const MEMORY_SHARE: u64 = 4;
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let record = mebibytes(piece_bytes.div_ceil(4)).max(1);
    let memory = mebibytes(piece_bytes.saturating_mul(MEMORY_SHARE));
    format!(
        "set resources.max_record_bytes: {record}mb and resources.memory: {memory}mb (times resources.parallelism \
         if that is not 1)"
    )
}

impl Default for Limits {
    /// Batches of 1 MiB, records up to 64 MiB.
    fn default() -> Self {
        Self {
            batch_bytes: 1 << 20,
            max_record_bytes: 64 << 20,
        }
    }
}
