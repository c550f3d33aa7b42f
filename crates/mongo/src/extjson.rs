//! MongoDB Extended JSON 2.0: BSON as JSON text and back.
//!
//! [`Style::Relaxed`] writes numbers and dates as other programs read them: `5`, `1.5`,
//! `{"$date":"2026-01-01T00:00:00Z"}`. Every value is kept, but an int64 that an int32 holds comes back as an int32.
//! [`Style::Canonical`] names the type of every number, so that each type comes back.
//! Types that JSON does not have are objects in both styles, such as `{"$oid":"…"}`.
//!
//! The order of keys is kept, and a key that comes twice is written twice. A document that begins with a key such as
//! `$oid` would read as a value of another type, so it is refused. The payload of a NaN is not kept.

mod parse;
mod write;

pub(crate) use parse::object_id;
pub use parse::{InvalidJson, parse_document, parse_value};
pub use write::{write_document, write_elements, write_value};

use schemars::JsonSchema;

/// How values are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Numbers and dates as other programs read them.
    #[default]
    Relaxed,
    /// Every number with the name of its type.
    Canonical,
}

/// Begins an object that stands for a value of another type. `$code` also has `$scope` behind it.
const WRAPPERS: [&str; 16] = [
    "$oid",
    "$symbol",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$code",
    "$timestamp",
    "$regularExpression",
    "$dbPointer",
    "$date",
    "$minKey",
    "$maxKey",
    "$undefined",
];

fn is_wrapper(name: &str) -> bool {
    name.starts_with('$') && WRAPPERS.contains(&name)
}
