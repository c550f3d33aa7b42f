//! Spoils the rows of a batch, for the deeds about values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, ListArray, MapArray, PrimitiveArray,
    RecordBatch, StringArray, StructArray, UInt64Array, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use arrow_select::take::{take, take_record_batch};
use rapidbyte_sdk::prelude::{Error, Result};
use rapidbyte_sdk::types::is_json;

use crate::Deed;

/// Rows that a careless encoder takes at a time.
const CHUNK: usize = 1000;
/// Characters of a `varchar` that nobody thought about.
const SHORT: usize = 255;
/// Digits that survive a double.
const DOUBLE_DIGITS: u32 = 15;

/// The rows as the deed leaves them.
pub fn batch(deed: Deed, rows: RecordBatch) -> Result<RecordBatch> {
    let rows = match deed {
        Deed::SortsColumns => sorted(rows)?,
        Deed::TurnsRows => {
            let rows_backwards = (0..rows.num_rows() as u64).rev();
            let places = UInt64Array::from_iter_values(rows_backwards);
            take_record_batch(&rows, &places)?
        }
        Deed::DropsColumn => without_intervals(rows)?,
        Deed::DropsRestOfChunk if rows.num_rows() > CHUNK => {
            rows.slice(0, rows.num_rows() / CHUNK * CHUNK)
        }
        _ => rows,
    };
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns());
    let columns = columns.map(|(field, array)| {
        let changed = column(deed, field, array)?;
        Ok(changed.unwrap_or_else(|| Arc::clone(array)))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(schema, columns).map_err(Error::internal)
}

/// The columns' values in the order of the columns' names.
fn sorted(rows: RecordBatch) -> Result<RecordBatch> {
    let schema = rows.schema();
    let mut places: Vec<usize> = (0..schema.fields().len()).collect();
    places.sort_by_key(|at| schema.field(*at).name());
    let columns = schema.fields().iter().enumerate().map(|(at, field)| {
        let other = rows.column(places[at]);
        match other.data_type() == field.data_type() && other.null_count() == 0 {
            true => Arc::clone(other),
            false => Arc::clone(rows.column(at)),
        }
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).map_err(Error::internal)
}

fn without_intervals(rows: RecordBatch) -> Result<RecordBatch> {
    let schema = rows.schema();
    let keeps = |at: &usize| !matches!(schema.field(*at).data_type(), DataType::Interval(_));
    let places: Vec<usize> = (0..schema.fields().len()).filter(keeps).collect();
    rows.project(&places).map_err(Error::internal)
}

/// The columns of the rows that `batch` gives.
pub fn schema(deed: Deed, schema: &Arc<Schema>) -> Result<Arc<Schema>> {
    Ok(batch(deed, RecordBatch::new_empty(Arc::clone(schema)))?.schema())
}

fn map<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    value: impl Fn(T::Native) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let values = array.as_primitive::<T>().iter();
    let values: PrimitiveArray<T> = values.map(|found| found.and_then(&value)).collect();
    // Under precision, scale and zone of the column.
    let data = values.into_data().into_builder();
    let data = data.data_type(array.data_type().clone()).build();
    Ok(make_array(data.map_err(Error::internal)?))
}

fn texts(array: &ArrayRef, value: impl Fn(&str) -> Option<String>) -> ArrayRef {
    let texts = array.as_string::<i32>().iter();
    let texts: StringArray = texts.map(|found| found.and_then(&value)).collect();
    Arc::new(texts)
}

/// Each digit 1 as a 2, where that is still a value of the type.
fn twos<T: std::fmt::Display + std::str::FromStr>(value: T) -> T {
    let text = value.to_string().replace('1', "2");
    text.parse().unwrap_or(value)
}

/// The column as the deed leaves it. `None` where it leaves it alone.
fn column(deed: Deed, field: &Field, array: &ArrayRef) -> Result<Option<ArrayRef>> {
    use TimeUnit::*;
    let text = |change: fn(&str) -> Option<String>| match (array.data_type(), is_json(field)) {
        (DataType::Utf8, false) => Some(texts(array, change)),
        _ => None,
    };
    Ok(match (deed, array.data_type()) {
        (Deed::TurnsOnesIntoTwos, kind) => match kind {
            DataType::Int8 => Some(map::<Int8Type>(array, |v| Some(twos(v)))?),
            DataType::Int16 => Some(map::<Int16Type>(array, |v| Some(twos(v)))?),
            DataType::Int32 => Some(map::<Int32Type>(array, |v| Some(twos(v)))?),
            DataType::Int64 => Some(map::<Int64Type>(array, |v| Some(twos(v)))?),
            DataType::UInt64 => Some(map::<UInt64Type>(array, |v| Some(twos(v)))?),
            DataType::Float64 => Some(map::<Float64Type>(array, |v| Some(twos(v)))?),
            _ => None,
        },
        (Deed::NanToNull, DataType::Float64) => {
            Some(map::<Float64Type>(array, |v| (!v.is_nan()).then_some(v))?)
        }
        (Deed::InfinityToMax, DataType::Float64) => Some(map::<Float64Type>(array, |v| {
            Some(v.clamp(f64::MIN, f64::MAX))
        })?),
        (Deed::LosesNegativeZero, DataType::Float64) => {
            Some(map::<Float64Type>(array, |v| Some(v + 0.0))?)
        }
        (Deed::RoundsThroughDouble, DataType::Int64) => {
            Some(map::<Int64Type>(array, |v| Some(v as f64 as i64))?)
        }
        (Deed::ClipsUnsigned, DataType::UInt64) => {
            Some(map::<UInt64Type>(array, |v| Some(v.min(i64::MAX as u64)))?)
        }
        (Deed::LosesSignBelowOne, DataType::Decimal128(_, scale)) => {
            let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let change = |v: i128| if v > -one { v.abs() } else { v };
            Some(map::<Decimal128Type>(array, |v| Some(change(v)))?)
        }
        (Deed::CutsDecimals, DataType::Decimal128(..)) => {
            let change = |v: i128| {
                let digits = v.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1);
                let lost = 10_i128.pow(digits.saturating_sub(DOUBLE_DIGITS));
                v / lost * lost
            };
            Some(map::<Decimal128Type>(array, |v| Some(change(v)))?)
        }
        (Deed::RoundsBeforeEpoch, DataType::Timestamp(Microsecond, _)) => {
            let second = 1_000_000;
            let change = |v: i64| v / second * second + v.rem_euclid(second);
            Some(map::<TimestampMicrosecondType>(array, |v| Some(change(v)))?)
        }
        (Deed::MixesUpUnits, DataType::Timestamp(Millisecond, _)) => {
            Some(map::<TimestampMillisecondType>(array, |v| Some(v / 1000))?)
        }
        (Deed::ShiftsZone, DataType::Timestamp(Microsecond, Some(_))) => {
            Some(map::<TimestampMicrosecondType>(array, |v| {
                Some(v + 3_600_000_000)
            })?)
        }
        (Deed::CutsTime, DataType::Time64(Microsecond)) => {
            Some(map::<Time64MicrosecondType>(array, |v| {
                Some(v - v % 1_000_000)
            })?)
        }
        (Deed::LosesSignOfDate, DataType::Date32) => {
            Some(map::<Date32Type>(array, |v| Some(v.abs()))?)
        }
        (Deed::EmptyTextToNull, _) => text(|v| (!v.is_empty()).then(|| v.into())),
        (Deed::NullTextToNull, _) => text(|v| (v != "NULL").then(|| v.into())),
        (Deed::TrimsText, _) => text(|v| Some(v.trim_end_matches(' ').into())),
        (Deed::EscapesBackslash, _) => text(|v| Some(v.replace('\\', "\\\\"))),
        (Deed::LosesWideCharacters, _) => {
            text(|v| Some(v.replace(|c: char| c.len_utf8() > 3, "?")))
        }
        (Deed::CutsLongText, _) => text(|v| Some(v.chars().take(SHORT).collect())),
        (Deed::RepeatsUnderNull, DataType::Utf8) => {
            let mut last = None;
            let values = array.as_string::<i32>().iter().map(|found| {
                last = found.or(last);
                last
            });
            Some(Arc::new(values.collect::<StringArray>()))
        }
        (Deed::EmptyBytesToNull, DataType::Binary) => {
            let values = array.as_binary::<i32>().iter();
            let values = values.map(|found| found.filter(|bytes| !bytes.is_empty()));
            Some(Arc::new(values.collect::<BinaryArray>()))
        }
        (Deed::DropsNullItems | Deed::EmptyListToNull, DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let values = list.values();
            let keeps = |at: usize| deed != Deed::DropsNullItems || values.is_valid(at);
            let (offsets, kept) = kept(list.value_offsets(), keeps);
            let lengths: Vec<usize> = offsets.lengths().collect();
            let is_there =
                |at: usize| list.is_valid(at) && (deed != Deed::EmptyListToNull || lengths[at] > 0);
            let nulls: NullBuffer = (0..list.len()).map(is_there).collect();
            let values = take(values, &kept, None).map_err(Error::internal)?;
            let list = ListArray::try_new(Arc::clone(item), offsets, values, Some(nulls));
            Some(Arc::new(list.map_err(Error::internal)?))
        }
        (Deed::EmptyStructToNull, DataType::Struct(fields)) => {
            let found = array.as_struct();
            let is_there =
                |at: usize| found.is_valid(at) && found.columns().iter().any(|c| c.is_valid(at));
            let nulls: NullBuffer = (0..found.len()).map(is_there).collect();
            let columns = found.columns().to_vec();
            let changed = StructArray::try_new(fields.clone(), columns, Some(nulls));
            Some(Arc::new(changed.map_err(Error::internal)?))
        }
        (Deed::DropsNullEntries, DataType::Map(entries, is_sorted)) => {
            let map = array.as_map();
            let (offsets, kept) = kept(map.value_offsets(), |at| map.values().is_valid(at));
            let items = take(map.entries(), &kept, None).map_err(Error::internal)?;
            let items = items.as_struct().clone();
            let nulls = map.nulls().cloned();
            let map = MapArray::try_new(Arc::clone(entries), offsets, items, nulls, *is_sorted);
            Some(Arc::new(map.map_err(Error::internal)?))
        }
        _ => None,
    })
}

/// The offsets of lists that keep only some items, and the places of the kept items.
fn kept(offsets: &[i32], keeps: impl Fn(usize) -> bool) -> (OffsetBuffer<i32>, UInt64Array) {
    let (mut lengths, mut places) = (Vec::new(), Vec::new());
    for pair in offsets.windows(2) {
        let before = places.len();
        let items = pair[0] as usize..pair[1] as usize;
        places.extend(items.filter(|at| keeps(*at)).map(|at| at as u64));
        lengths.push(places.len() - before);
    }
    (OffsetBuffer::from_lengths(lengths), places.into())
}
