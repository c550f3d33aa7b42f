//! Values that honest connectors get wrong: the ends of each type, and what looks like something else.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray,
    Int32Array, LargeBinaryArray, LargeStringArray, ListArray, MapArray, PrimitiveArray,
    StringArray, StructArray, make_array,
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use rapidbyte_wire::types::{is_json, is_uuid};

/// Rows that hold the edges of every type; a type with fewer has NULL in the last ones.
pub(crate) const EDGES: usize = 24;

/// Days from 1970 to the first of January of the year 1, and to the last day of the year 9999.
const YEAR_1: i64 = -719_162;
const YEAR_9999: i64 = 2_932_896;
const DAY_SECONDS: i64 = 86_400;

/// The edges of a type, one in each row. The rows of `dropped` are NULL.
///
/// # Errors
/// A type that has none.
pub(crate) fn edges(field: &Field, dropped: &BTreeSet<usize>) -> Result<ArrayRef, String> {
    let rows = Rows { field, dropped };
    macro_rules! whole {
        ($type:ty, $native:ty) => {
            rows.primitive::<$type>(&[<$native>::MIN, <$native>::MAX, 0, 1, 10])?
        };
    }
    Ok(match field.data_type() {
        DataType::Boolean => Arc::new(BooleanArray::from(rows.fill(&[true, false]))),
        DataType::Int8 => whole!(Int8Type, i8),
        DataType::Int16 => whole!(Int16Type, i16),
        DataType::Int32 => whole!(Int32Type, i32),
        DataType::Int64 => {
            let beyond = (1 << 53) + 1;
            rows.primitive::<Int64Type>(&[i64::MIN, i64::MAX, 0, -1, beyond, -beyond])?
        }
        DataType::UInt8 => whole!(UInt8Type, u8),
        DataType::UInt16 => whole!(UInt16Type, u16),
        DataType::UInt32 => whole!(UInt32Type, u32),
        DataType::UInt64 => {
            rows.primitive::<UInt64Type>(&[0, u64::MAX, 1 << 63, i64::MAX as u64])?
        }
        DataType::Float32 => rows.primitive::<Float32Type>(&[
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
            0.0,
            f32::MIN,
            f32::MAX,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            0.1,
            16_777_216.0,
        ])?,
        DataType::Float64 => rows.primitive::<Float64Type>(&[
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            0.0,
            f64::MIN,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            0.1,
            1.0 / 3.0,
            1e21,
            9_007_199_254_740_993.0,
        ])?,
        DataType::Decimal128(precision, scale) => {
            let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let most = 10_i128.pow(u32::from(*precision)) - 1;
            let few = [most, -most, 1, -1, 0, one, -one / 2, one / 10, most / 3];
            rows.primitive::<Decimal128Type>(&few)?
        }
        DataType::Decimal256(precision, scale) => {
            let ten = i256::from_i128(10);
            let one = ten.wrapping_pow(u32::from(scale.unsigned_abs()));
            let most = ten.wrapping_pow(u32::from(*precision)) - i256::ONE;
            let small = [
                i256::ONE,
                -i256::ONE,
                i256::ZERO,
                one,
                -one / i256::from_i128(2),
            ];
            rows.primitive::<Decimal256Type>(&[&[most, -most], &small[..]].concat())?
        }
        DataType::Date32 => rows.primitive::<Date32Type>(
            &[0, -1, YEAR_1, YEAR_9999, -25_509, 11_016].map(|day| day as i32),
        )?,
        DataType::Time32(unit) => {
            let second = if *unit == TimeUnit::Second { 1 } else { 1_000 };
            let times = [0, 1, DAY_SECONDS as i32 * second - 1, 43_200 * second];
            match unit {
                TimeUnit::Second => rows.primitive::<Time32SecondType>(&times)?,
                _ => rows.primitive::<Time32MillisecondType>(&times)?,
            }
        }
        DataType::Time64(unit) => {
            let second = if *unit == TimeUnit::Microsecond {
                1_000_000
            } else {
                1_000_000_000
            };
            let times = [0, 1, DAY_SECONDS * second - 1, 43_200 * second];
            match unit {
                TimeUnit::Microsecond => rows.primitive::<Time64MicrosecondType>(&times)?,
                _ => rows.primitive::<Time64NanosecondType>(&times)?,
            }
        }
        DataType::Timestamp(unit, _) => {
            let times = moments(*unit);
            match unit {
                TimeUnit::Second => rows.primitive::<TimestampSecondType>(&times)?,
                TimeUnit::Millisecond => rows.primitive::<TimestampMillisecondType>(&times)?,
                TimeUnit::Microsecond => rows.primitive::<TimestampMicrosecondType>(&times)?,
                TimeUnit::Nanosecond => rows.primitive::<TimestampNanosecondType>(&times)?,
            }
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            rows.primitive::<DurationMicrosecondType>(&[0, 1, -1, -1_500_000, 86_400_000_000_000])?
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let span = IntervalMonthDayNano::new;
            rows.primitive::<IntervalMonthDayNanoType>(&[
                span(0, 0, 0),
                span(-1, 2, -3_000_000),
                span(14, -40, 86_400_000_000_000),
                span(0, 0, -1_000),
            ])?
        }
        _ => return texts_and_nested(&rows),
    })
}

/// Before 1970 with and without a fraction, and the first and last moments that a calendar has.
fn moments(unit: TimeUnit) -> Vec<i64> {
    let second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let near = [0, -1, -second * 3 / 2, -second, 1, 951_782_400 * second];
    let (first, last) = match unit {
        // 1678 and 2261: nanoseconds reach little farther.
        TimeUnit::Nanosecond => (-106_000, 106_000),
        _ => (YEAR_1, YEAR_9999 + 1),
    };
    let ends = [first, last].map(|day| day * DAY_SECONDS * second);
    [&near[..], &[ends[0], ends[1] - 1]].concat()
}

/// A column of [`EDGES`] rows.
struct Rows<'a> {
    field: &'a Field,
    dropped: &'a BTreeSet<usize>,
}

impl Rows<'_> {
    fn is_there(&self, row: usize, values: usize) -> bool {
        row < values && !self.dropped.contains(&row)
    }

    fn fill<T: Clone>(&self, values: &[T]) -> Vec<Option<T>> {
        let rows = 0..EDGES;
        let rows = rows.map(|row| {
            let is_there = self.is_there(row, values.len());
            is_there.then(|| values[row].clone())
        });
        rows.collect()
    }

    fn primitive<T: ArrowPrimitiveType>(&self, values: &[T::Native]) -> Result<ArrayRef, String> {
        let array: PrimitiveArray<T> = self.fill(values).into_iter().collect();
        // The same values under precision, scale or zone of the field.
        let data = array.into_data().into_builder();
        let data = data.data_type(self.field.data_type().clone()).build();
        Ok(make_array(data.map_err(|error| error.to_string())?))
    }

    fn nulls(&self, values: usize) -> NullBuffer {
        (0..EDGES).map(|row| self.is_there(row, values)).collect()
    }

    /// Lists of these lengths; those that are dropped keep no item.
    fn lists(&self, lengths: &[usize]) -> (OffsetBuffer<i32>, NullBuffer, Vec<usize>) {
        let (mut kept, mut items, mut all) = (Vec::new(), Vec::new(), 0);
        for row in 0..EDGES {
            let length = lengths.get(row).copied().unwrap_or(0);
            let stays = self.is_there(row, lengths.len());
            kept.push(if stays { length } else { 0 });
            if stays {
                items.extend(all..all + length);
            }
            all += length;
        }
        let nulls = self.nulls(lengths.len());
        (OffsetBuffer::from_lengths(kept), nulls, items)
    }
}

/// Quotes, separators and escapes of text forms, words that mean something there, and characters that
/// some systems cannot hold.
fn texts() -> Vec<String> {
    let plain = [
        "",
        " ",
        "  spaces  ",
        "NULL",
        "null",
        "\\N",
        "\\",
        "\"",
        "'it''s'",
        "a,b;c\td|e",
        "one\ntwo\r\nthree\rfour",
        "C:\\new\\table",
        "\u{1F980}\u{1D4B3}",
        "e\u{301} and \u{e9}",
        "\u{feff}mark",
        "{\"a\": [1]}",
        "0010",
        "NaN",
        "true",
        "\u{1}",
        "nul\0",
    ];
    let mut texts: Vec<String> = plain.map(str::to_owned).to_vec();
    texts.push("long ".repeat(100) + "end");
    texts
}

fn documents() -> Vec<String> {
    let plain = [
        "{}",
        "[]",
        "\"text\"",
        "\"\"",
        "0",
        "-1.5",
        "true",
        "{\"a\": null}",
        "[null, \"NULL\", {\"b\": [1, 2]}]",
        "\"quote \\\" and \\\\ and \\u00e9\"",
    ];
    plain.map(str::to_owned).to_vec()
}

fn texts_and_nested(rows: &Rows<'_>) -> Result<ArrayRef, String> {
    let field = rows.field;
    Ok(match field.data_type() {
        DataType::Utf8 if is_json(field) => Arc::new(StringArray::from(rows.fill(&documents()))),
        DataType::Utf8 => Arc::new(StringArray::from(rows.fill(&texts()))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(rows.fill(&texts()))),
        DataType::Binary | DataType::LargeBinary => {
            let all: Vec<u8> = (0..=255).collect();
            let few: [&[u8]; 6] = [b"", b"\0", b"\xff", b"\\x41", b"a,\"b\"\n", &all];
            let few = rows.fill(&few);
            match field.data_type() {
                DataType::Binary => Arc::new(BinaryArray::from(few)),
                _ => Arc::new(LargeBinaryArray::from(few)),
            }
        }
        DataType::FixedSizeBinary(width) => {
            let size = usize::try_from(*width).unwrap_or(0);
            let mut few = vec![vec![0; size], vec![255; size], vec![b'\\'; size]];
            if is_uuid(field) {
                few.push((0..16).collect());
            }
            let few = rows.fill(&few).into_iter();
            let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(few, *width);
            Arc::new(array.map_err(|error| error.to_string())?)
        }
        DataType::List(item) => list(rows, item)?,
        DataType::Struct(fields) => structs(rows, fields)?,
        DataType::Map(entries, is_sorted) => map(rows, entries, *is_sorted)?,
        other => return Err(format!("no edges of type {other}")),
    })
}

/// An empty list, and lists with NULL items and with what looks like them.
fn list(rows: &Rows<'_>, item: &FieldRef) -> Result<ArrayRef, String> {
    let lengths = [0, 1, 3, 2];
    let (offsets, nulls, kept) = rows.lists(&lengths);
    let items: ArrayRef = match item.data_type() {
        DataType::Int32 => {
            let items = [None, Some(1), None, Some(3), Some(i32::MIN), Some(i32::MAX)];
            let items = kept.iter().map(|at| items[*at]).collect::<Int32Array>();
            Arc::new(items)
        }
        DataType::Utf8 => {
            let items = [
                None,
                Some(""),
                None,
                Some("NULL"),
                Some("a,{b}\"\\"),
                Some(" "),
            ];
            Arc::new(kept.iter().map(|at| items[*at]).collect::<StringArray>())
        }
        other => return Err(format!("no edges of lists of {other}")),
    };
    let list = ListArray::try_new(Arc::clone(item), offsets, items, Some(nulls));
    Ok(Arc::new(list.map_err(|error| error.to_string())?))
}

/// A number and a text: both NULL, one NULL, and what looks like it.
fn structs(rows: &Rows<'_>, fields: &Fields) -> Result<ArrayRef, String> {
    let numbers = [None, Some(0), None, Some(i32::MIN)];
    let texts = [None, Some(""), Some("NULL"), None];
    let all = BTreeSet::new();
    let inside = Rows {
        field: rows.field,
        dropped: &all,
    };
    let numbers = inside.fill(&numbers).into_iter().map(Option::flatten);
    let texts = inside.fill(&texts).into_iter().map(Option::flatten);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(numbers.collect::<Int32Array>()),
        Arc::new(texts.collect::<StringArray>()),
    ];
    let nulls = rows.nulls(4);
    let array = StructArray::try_new(fields.clone(), columns, Some(nulls));
    Ok(Arc::new(array.map_err(|error| error.to_string())?))
}

/// An empty map, NULL values, and keys that are not plain names.
fn map(rows: &Rows<'_>, entries: &FieldRef, is_sorted: bool) -> Result<ArrayRef, String> {
    let items = [
        ("k", None),
        ("", Some(0)),
        ("a.b", None),
        ("\"q\"", Some(i32::MAX)),
    ];
    let (offsets, nulls, kept) = rows.lists(&[0, 1, 3]);
    let DataType::Struct(fields) = entries.data_type() else {
        return Err("a map without entries".into());
    };
    let keys = kept.iter().map(|at| items[*at].0);
    let values = kept.iter().map(|at| items[*at].1);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(keys)),
        Arc::new(values.collect::<Int32Array>()),
    ];
    let items = StructArray::try_new(fields.clone(), columns, None);
    let items = items.map_err(|error| error.to_string())?;
    let map = MapArray::try_new(Arc::clone(entries), offsets, items, Some(nulls), is_sorted);
    Ok(Arc::new(map.map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{TYPES, column};

    #[test]
    fn every_type_has_edges_and_each_of_them_can_be_left_out() {
        for name in TYPES {
            let field = column(name).unwrap();
            let all = edges(&field, &BTreeSet::new()).unwrap();
            assert_eq!(all.data_type(), field.data_type(), "{name}");
            assert_eq!(all.len(), EDGES, "{name}");
            assert!(all.is_valid(1) && all.is_null(EDGES - 1), "{name}");
            let less = edges(&field, &BTreeSet::from([1])).unwrap();
            assert!(less.is_null(1), "{name}");
            for row in [0, 2, 3] {
                let same = all.slice(row, 1).to_data() == less.slice(row, 1).to_data();
                // NaN is not equal to itself.
                assert!(same || name.starts_with("float"), "{name} {row}");
            }
        }
    }
}
