//! CSV and JSON Lines to Arrow and back, and JSON documents to Arrow, without I/O: bytes in, batches out; batches in,
//! bytes out.
//!
//! - [`text`] owns how one value is written: a CSV field, a JSON string and an error message have
//!   the same text.
//! - [`csv`] and [`jsonl`] own how a file holds values: reading records, an encoder and the
//!   inference of a schema from a sample.
//! - [`compression`] owns gzip, zstd and LZ4 around such a file.
//! - [`Format`] is one door to both: a push [`Decoder`], an [`Encoder`], a [`Sampler`]. [`Choice`]
//!   is how an operator chooses one.
//!
//! Everything is exact. A value that its column cannot hold, a field too many, a key that nobody
//! declared or text that is not UTF-8 is a [`FormatError`] with line and column; nothing becomes
//! NULL because it could not be read. Memory is bounded by the decoder's [`Limits`], whatever the
//! size of the file.
//!
//! ```
//! use std::sync::Arc;
//! use rapidbyte_formats::{Format, Limits, csv};
//! use rapidbyte_wire::types::parse_field;
//!
//! let schema = Arc::new(arrow_schema::Schema::new(vec![
//!     parse_field("id", "int64", false)?,
//!     parse_field("total", "decimal(18, 4)", true)?,
//! ]));
//! let format = Format::Csv(csv::Dialect::default());
//! let mut decoder = format.decoder(schema, None, Limits::default())?;
//! decoder.begin_file();
//! let mut bytes: &[u8] = b"total,id\n12.5,1\n,2\n";
//! while !bytes.is_empty() {
//!     bytes = &bytes[decoder.push(bytes)?..];
//!     if decoder.is_full() {
//!         // hand over decoder.take_batch()?
//!     }
//! }
//! decoder.end_of_file()?;
//! assert_eq!(decoder.take_batch()?.map(|batch| batch.num_rows()), Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cells;
mod choice;
mod column;
pub mod compression;
pub mod csv;
mod decoder;
mod documents;
mod error;
mod exact;
mod follow;
mod format;
mod json;
pub mod jsonl;
mod keys;
mod object;
mod rows;
mod sample;
mod spelling;
pub mod text;
mod texts;

pub use choice::{Choice, Chosen, FormatName, NullText};
pub use compression::Compression;
pub use decoder::Decoder;
pub use documents::{DocumentOptions, Documents, write_string};
pub use error::{FormatError, Owner};
pub use follow::Follows;
pub use format::{Encoder, Format, Sampler};
pub use keys::{KeyTexts, shortest_number};
pub use object::object;
pub use rows::{Limits, Picked, Rejected};
pub use texts::{Texts, repeat};
