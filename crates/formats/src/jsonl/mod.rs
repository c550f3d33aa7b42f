//! JSON Lines to Arrow and back: one object a line, UTF-8, LF or CRLF. JSON documents to Arrow: an array of objects, or
//! one object.
//!
//! The elements of a document are read as the lines of JSON Lines are. What follows holds for both, with these
//! exceptions: an element may have several lines, a value that has several lines loses the white space between its
//! parts, and behind a place that breaks the grammar of the document nothing is read.
//!
//! - An absent key and `null` are NULL. A key that the schema does not have is an error, unless the
//!   decoder collects or ignores such keys. A key that comes twice is an error. Lines of white space
//!   are skipped, a byte order mark is as well.
//! - Whole numbers and floats are JSON numbers, decimals are numbers with all their digits (strings
//!   are read too), lists are arrays, structs and maps are objects; keys of maps are the text of
//!   the key. A `json` column takes any value as its own text, white space between its parts
//!   included. All else is a string with the text of [`crate::text`].
//! - Nothing is converted on the way: a number is not a string, a string is not a number, `1.0` is
//!   not a whole number.
//!
//! Under an inferred schema a number that its column would round is refused; a declared `float64`
//! takes the nearest float.
//!
//! The encoder refuses values that JSON cannot hold: NaN and infinity (`json_not_finite`), the JSON
//! document `null` of a `json` column, which cannot be told from NULL (`json_null_value`), and a JSON
//! text with a line break or with white space around it (`json_not_one_line`).

mod columns;
mod decode;
mod elements;
mod encode;
mod infer;
mod lines;
mod place;
mod records;
mod unknown;

pub use columns::{ColumnDecoder, ColumnEncoder};
pub(crate) use decode::Reader;
pub use encode::Encoder;
pub use infer::{Inferred, Sampler};
pub(crate) use records::Layout;
pub use unknown::{Collected, REST, UnknownKeys};
