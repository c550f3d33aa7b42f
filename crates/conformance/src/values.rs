//! Rows that the host makes for a destination: small, of every type, with NULLs. `edges` has the values at the
//! edges of the types.

mod edges;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, LargeBinaryBuilder, LargeStringBuilder,
    StringBuilder,
};
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ListArray, MapArray, PrimitiveArray, RecordBatch, StructArray, make_array,
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use rapidbyte_wire::types::{is_json, parse_field};

/// The types that a destination is asked about, by their names.
pub(crate) const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(10, 2)",
    "decimal(38, 10)",
    "decimal(60, 5)",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "fixed_binary(4)",
    "date",
    "time(s)",
    "time(ms)",
    "time(us)",
    "time(ns)",
    "timestamp(s)",
    "timestamp(ms)",
    "timestamp(us)",
    "timestamp(ns)",
    "timestamptz",
    "duration(us)",
    "interval",
    "uuid",
    "json",
    "list<int32>",
    "list<string>",
    "struct<a: int32, b: string>",
    "map<string, int32>",
];

pub(crate) use edges::{EDGES, edges};

/// A batch of `rows` (their numbers) of these columns.
///
/// # Errors
/// A type that is not among [`TYPES`] or made of them.
pub(crate) fn batch(schema: &Arc<Schema>, rows: Range<usize>) -> Result<RecordBatch, String> {
    let arrays = schema.fields().iter();
    let arrays = arrays.map(|field| array(field, rows.clone()));
    let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), arrays).map_err(|error| error.to_string())
}

/// The column for a type: `c_` and its name, with other signs as `_`.
pub(crate) fn column(type_name: &str) -> Result<Field, String> {
    let signs = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = type_name.chars().map(signs).collect();
    let name = format!("c_{}", name.trim_end_matches('_'));
    parse_field(&name, type_name, true).map_err(|error| error.to_string())
}

/// Each third value of a nullable column is NULL.
fn is_null(field: &Field, row: usize) -> bool {
    field.is_nullable() && row % 3 == 2
}

/// Columns of one type have other values each, so that one is not taken for another.
fn factor(field: &Field) -> i64 {
    match field.name().as_str() {
        "b" => 7,
        "a" => -3,
        _ => 1,
    }
}

fn primitive<T: ArrowPrimitiveType>(
    field: &Field,
    rows: Range<usize>,
    value: impl Fn(usize) -> T::Native,
) -> Result<ArrayRef, String> {
    let values = rows.map(|row| (!is_null(field, row)).then(|| value(row)));
    let array: PrimitiveArray<T> = values.collect();
    // The same values under precision, scale or zone of the field.
    let data = array.into_data().into_builder();
    let data = data.data_type(field.data_type().clone()).build();
    Ok(make_array(data.map_err(|error| error.to_string())?))
}

/// Values that every system holds which has the type at all.
///
/// # Errors
/// A type that is not among [`TYPES`] or made of them.
pub(crate) fn array(field: &Field, rows: Range<usize>) -> Result<ArrayRef, String> {
    const DAY: usize = 20_000;
    const SECOND: usize = 1_700_000_000;
    macro_rules! numbers {
        ($type:ty, $value:expr) => {
            primitive::<$type>(field, rows, $value)?
        };
    }
    Ok(match field.data_type() {
        DataType::Boolean => {
            let mut builder = BooleanBuilder::new();
            rows.for_each(|n| builder.append_option((!is_null(field, n)).then_some(n % 2 == 0)));
            Arc::new(builder.finish())
        }
        DataType::Int8 => numbers!(Int8Type, |n| n as i8),
        DataType::Int16 => numbers!(Int16Type, |n| n as i16),
        DataType::Int32 => numbers!(Int32Type, |n| n as i32),
        DataType::Int64 => numbers!(Int64Type, |n| n as i64 * factor(field)),
        DataType::UInt8 => numbers!(UInt8Type, |n| n as u8),
        DataType::UInt16 => numbers!(UInt16Type, |n| n as u16),
        DataType::UInt32 => numbers!(UInt32Type, |n| n as u32),
        DataType::UInt64 => numbers!(UInt64Type, |n| n as u64),
        DataType::Float32 => numbers!(Float32Type, |n| n as f32 * 0.5),
        DataType::Float64 => numbers!(Float64Type, |n| n as f64 * 0.25),
        DataType::Decimal128(..) => numbers!(Decimal128Type, |n| n as i128 * 101),
        DataType::Decimal256(..) => {
            numbers!(Decimal256Type, |n| i256::from_i128(n as i128 * 101))
        }
        DataType::Date32 => numbers!(Date32Type, |n| (DAY + n) as i32),
        DataType::Time32(TimeUnit::Second) => numbers!(Time32SecondType, |n| n as i32),
        DataType::Time32(_) => numbers!(Time32MillisecondType, |n| n as i32 * 1_000),
        DataType::Time64(TimeUnit::Nanosecond) => {
            numbers!(Time64NanosecondType, |n| n as i64 * 1_000_000)
        }
        DataType::Time64(_) => numbers!(Time64MicrosecondType, |n| n as i64 * 1_000),
        DataType::Timestamp(TimeUnit::Second, _) => {
            numbers!(TimestampSecondType, |n| (SECOND + n) as i64)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            numbers!(TimestampMillisecondType, |n| (SECOND + n) as i64 * 1_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            numbers!(TimestampMicrosecondType, |n| (SECOND + n) as i64
                * 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            numbers!(TimestampNanosecondType, |n| (SECOND + n) as i64
                * 1_000_000_000)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            numbers!(DurationMicrosecondType, |n| n as i64 * 1_000_000)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            numbers!(IntervalMonthDayNanoType, |n| IntervalMonthDayNano::new(
                n as i32, 2, 1_000_000
            ))
        }
        _ => return texts_and_nested(field, rows),
    })
}

fn texts_and_nested(field: &Field, rows: Range<usize>) -> Result<ArrayRef, String> {
    // Quotes, separators, other alphabets, and nothing at all.
    let text = |n: usize| match (is_json(field), n % 5) {
        (true, _) => format!("{{\"n\": {n}, \"t\": [true, null]}}"),
        (_, 0) => String::new(),
        (_, 1) => format!("{n}, \"quoted\"; it's\t\\N"),
        _ => format!("é 漢 {n}\nsecond line"),
    };
    let bytes = |n: usize| vec![n as u8, 0, 255];
    macro_rules! build {
        ($builder:expr, $value:expr) => {{
            let mut builder = $builder;
            rows.for_each(|n| builder.append_option((!is_null(field, n)).then(|| $value(n))));
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    Ok(match field.data_type() {
        DataType::Utf8 => build!(StringBuilder::new(), text),
        DataType::LargeUtf8 => build!(LargeStringBuilder::new(), text),
        DataType::Binary => build!(BinaryBuilder::new(), bytes),
        DataType::LargeBinary => build!(LargeBinaryBuilder::new(), bytes),
        DataType::FixedSizeBinary(width) => {
            let mut builder = FixedSizeBinaryBuilder::new(*width);
            for n in rows {
                match is_null(field, n) {
                    true => builder.append_null(),
                    false => builder
                        .append_value(vec![n as u8 + 1; usize::try_from(*width).unwrap_or(0)])
                        .map_err(|error| error.to_string())?,
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(item) => {
            let (offsets, inner) = two_each(field, rows);
            let items = array(item, inner)?;
            Arc::new(ListArray::new(
                Arc::clone(item),
                offsets.0,
                items,
                Some(offsets.1),
            ))
        }
        DataType::Struct(fields) => structs(field, fields, rows)?,
        DataType::Map(entries, is_sorted) => {
            let (offsets, inner) = two_each(field, rows);
            let DataType::Struct(fields) = entries.data_type() else {
                return Err("a map without entries".into());
            };
            let values = array(&fields[1], inner.clone())?;
            let keys: ArrayRef = Arc::new(arrow_array::StringArray::from_iter_values(
                inner.map(|n| format!("k{}", n % 2)),
            ));
            let items = StructArray::new(fields.clone(), vec![keys, values], None);
            let entries = Arc::clone(entries);
            Arc::new(MapArray::new(
                entries,
                offsets.0,
                items,
                Some(offsets.1),
                *is_sorted,
            ))
        }
        other => return Err(format!("no values of type {other}")),
    })
}

fn structs(field: &Field, fields: &Fields, rows: Range<usize>) -> Result<ArrayRef, String> {
    let columns = fields.iter().map(|field| array(field, rows.clone()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let nulls: NullBuffer = rows.map(|row| !is_null(field, row)).collect();
    Ok(Arc::new(StructArray::new(
        fields.clone(),
        columns,
        Some(nulls),
    )))
}

/// Offsets and NULLs of lists of two items each, none under a NULL; and the numbers of the items.
fn two_each(field: &Field, rows: Range<usize>) -> ((OffsetBuffer<i32>, NullBuffer), Range<usize>) {
    let lengths: Vec<usize> = rows
        .clone()
        .map(|row| if is_null(field, row) { 0 } else { 2 })
        .collect();
    let items = lengths.iter().sum();
    let nulls: NullBuffer = rows.map(|row| !is_null(field, row)).collect();
    ((OffsetBuffer::from_lengths(lengths), nulls), 0..items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_values_of_that_very_type() {
        for name in TYPES {
            let field = column(name).unwrap();
            let schema = Arc::new(Schema::new(vec![field.clone()]));
            let batch = batch(&schema, 0..6).unwrap();
            assert_eq!(batch.num_rows(), 6, "{name}");
            assert_eq!(batch.column(0).data_type(), field.data_type(), "{name}");
            assert_eq!(batch.column(0).null_count(), 2, "{name}");
            let mut encoder = rapidbyte_wire::ipc::Encoder::new(&schema).unwrap();
            let message = encoder.encode(&batch).unwrap();
            let decoder = rapidbyte_wire::ipc::Decoder::new(encoder.schema_message()).unwrap();
            assert_eq!(decoder.decode(message).unwrap(), batch, "{name}");
        }
    }

    #[test]
    fn names_of_columns_are_plain_and_differ() {
        let mut names: Vec<String> = TYPES
            .iter()
            .map(|name| column(name).unwrap().name().clone())
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), TYPES.len());
        assert!(names.iter().all(|name| !name.ends_with('_')), "{names:?}");
    }
}
