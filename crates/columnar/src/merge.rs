//! One column of several files.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

/// The field that holds the values of both: nullable, also inside, where one of them is. `None` if
/// their names, types or metadata differ otherwise.
pub fn merge(a: &Field, b: &Field) -> Option<Field> {
    if a.name() != b.name() || a.metadata() != b.metadata() {
        return None;
    }
    let data_type = merge_types(a.data_type(), b.data_type())?;
    let nullable = a.is_nullable() || b.is_nullable();
    Some(a.clone().with_data_type(data_type).with_nullable(nullable))
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
        _ => return None,
    })
}
