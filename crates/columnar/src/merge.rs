//! One column of several files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Metadata};

use crate::widen::widest;

/// The field that holds the values of both exactly: nullable, also inside, where one of them is, and of the wider type.
/// `None` if no type holds all values of both, or if their names or metadata differ.
///
/// | types | the wider one |
/// | --- | --- |
/// | whole numbers | the smallest one that holds both; none for `uint64` and a signed type |
/// | `float32`, `float64`, and whole numbers of at most 32 bits with one of them | `float64` |
/// | decimals | as many digits in front of and behind the point as either has, 76 in all at most |
/// | timestamps of one zone, but not in nanoseconds, which end in the year 2262 | the finer unit |
/// | texts, and bytes, with short and with long offsets | the ones with long offsets |
/// | `null` and another type | the other type |
pub fn merge(a: &Field, b: &Field) -> Option<Field> {
    if a.name() != b.name() {
        return None;
    }
    let metadata = merge_metadata(a.metadata(), b.metadata())?;
    let data_type = merge_types(a.data_type(), b.data_type())?;
    let nullable = a.is_nullable() || b.is_nullable();
    let merged = Field::new(a.name(), data_type, nullable);
    Some(merged.with_metadata(metadata))
}

/// The prefix of notes that our connectors add to a column, such as the default that it has in a database. A note in
/// which the files differ is left out.
const NOTES: &str = "rapidbyte.";

/// `None` if the metadata of two fields differ in what a value is.
fn merge_metadata(a: &Metadata, b: &Metadata) -> Option<HashMap<String, String>> {
    let shared = |one: &Metadata, other: &Metadata| -> HashMap<String, String> {
        let shared = one
            .iter()
            .filter(|(key, value)| !key.starts_with(NOTES) || other.get(key) == Some(*value));
        let owned = shared.map(|(key, value)| (key.clone(), value.clone()));
        owned.collect()
    };
    let merged = shared(a, b);
    (merged == shared(b, a)).then_some(merged)
}

/// The types were found portable, which bounds the depth of this recursion.
fn merge_types(a: &DataType, b: &DataType) -> Option<DataType> {
    let item = |a: &FieldRef, b: &FieldRef| merge(a, b).map(Arc::new);
    Some(match (a, b) {
        (DataType::List(a), DataType::List(b)) => DataType::List(item(a, b)?),
        (DataType::LargeList(a), DataType::LargeList(b)) => DataType::LargeList(item(a, b)?),
        (DataType::Map(a, sorted), DataType::Map(b, b_sorted)) => {
            DataType::Map(item(a, b)?, *sorted && *b_sorted)
        }
        (DataType::Struct(a), DataType::Struct(b)) if a.len() == b.len() => {
            let fields = a.iter().zip(b).map(|(a, b)| item(a, b));
            DataType::Struct(fields.collect::<Option<Fields>>()?)
        }
        (a, b) if a == b => a.clone(),
        (a, b) => widest(a, b)?,
    })
}
