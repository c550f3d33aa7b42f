//! BSON to Arrow and back, without I/O: documents in, batches out; batches in, documents out.
//!
//! | BSON | portable column | JSON text, in the style `relaxed` |
//! | --- | --- | --- |
//! | double | `float64` | `1.5`; `{"$numberDouble":"NaN"}` |
//! | string | `string` | `"text"` |
//! | document | `struct<…>`, `map<string, T>` where declared, else `json` | `{…}` |
//! | array | `list<T>` where declared, else `json` | `[…]` |
//! | binary, subtypes 0 and 2 | `binary` (subtype 0 alone where it is inferred) | `{"$binary":{"base64":"…","subType":"00"}}` |
//! | binary, subtype 4 | `uuid` | the same with `04` |
//! | binary, other subtypes | `json` | the same |
//! | ObjectId | `string` of 24 hexadecimal digits | `{"$oid":"…"}` |
//! | bool | `bool` | `true` |
//! | UTC datetime | `timestamp(ms, UTC)`, `date` where declared | `{"$date":"2026-01-01T00:00:00Z"}` |
//! | null, and a field that is missing | NULL | `null` |
//! | int32 | `int32` | `5` |
//! | int64 | `int64` | `5` |
//! | Decimal128 | `string`, `decimal(p, s)` where declared | `{"$numberDecimal":"1.50"}` |
//! | regex, DBPointer, code, code with scope, symbol, timestamp, min key, max key, undefined | `json` | `{"$regularExpression":…}` and so on |
//!
//! A native form holds each of them as it is: the type [`Native::Document`] of a column has whole documents, so that the
//! order of fields and fields that come twice are kept, and [`Native::Value`] has single values.
//!
//! [`Decoder`] makes batches of documents: a value that its column cannot hold is an error with the column, and a field
//! without a column goes into a column for the rest, is ignored or is refused. [`Sampler`] finds the columns.
//! [`Encoder`] makes documents of batches. [`extjson`] reads and writes JSON. No value changes silently: it is kept or it
//! is a [`MongoError`].

pub mod decimal;
mod decode;
mod encode;
mod error;
pub mod extjson;
pub mod form;
mod put;
mod sample;

pub use decode::{DecodeOptions, Decoder, UnknownKeys};
pub use encode::{EncodeOptions, Encoder, JsonDocuments, Nulls, Rows, SubMillisecond};
pub use error::{MongoError, Owner, Problem};
pub use form::{NATIVE_FORM, Native};
pub use sample::{Sampled, Sampler};

/// Appends two lower-case hexadecimal digits for each byte.
fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}
