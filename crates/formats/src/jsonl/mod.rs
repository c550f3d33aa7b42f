//! JSON Lines to Arrow and back: one object a line, UTF-8, LF or CRLF.
//!
//! - An absent key and `null` are NULL. A key that the schema does not have is an error, unless the
//!   decoder collects or ignores such keys. A key that comes twice is an error. Lines of white space are skipped, a byte order mark is as well.
//! - Whole numbers and floats are JSON numbers, decimals are numbers with all their digits (strings
//!   are read too), lists are arrays, structs and maps are objects; keys of maps are the text of
//!   the key. A `json` column takes any value as its own text, white space between its parts
//!   included. All else is a string with the text of [`crate::text`].
//! - Nothing is converted on the way: a number is no string, a string is no number, `1.0` is no
//!   whole number.
//!
//! Under an inferred schema a number that its column would round is refused; a declared `float64`
//! takes the nearest float.
//!
//! JSON has no NaN and no infinity (`json_not_finite`), and the JSON document `null` of a `json`
//! column cannot be told from NULL (`json_null_value`). A JSON text with a line break, or with white
//! space around it, cannot stand in a line (`json_not_one_line`). All are refused when writing.

mod columns;
mod decode;
mod encode;
mod infer;
mod lines;
mod unknown;

pub use columns::{ColumnDecoder, ColumnEncoder};
pub(crate) use decode::Reader;
pub use encode::Encoder;
pub use infer::{Inferred, Sampler};
pub use unknown::Collected;
