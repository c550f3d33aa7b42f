//! From the types that files have to the types that the engine carries (see
//! [`rapidbyte_wire::types`]): dictionaries, views and run ends become plain arrays, short decimals
//! Decimal128, the two older interval types months, days and nanoseconds, float16 float32, lists of
//! one length lists, and dates in milliseconds dates. All of it is exact, or refused at its row.

use std::sync::Arc;

use arrow_array::builder::GenericByteBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryViewType, ByteArrayType, ByteViewType, Date32Type, Date64Type, Decimal32Type,
    Decimal64Type, Decimal128Type, Float16Type, Float32Type, GenericBinaryType, GenericStringType,
    Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType,
    IntervalYearMonthType, StringViewType, Time32MillisecondType, Time32SecondType,
    TimestampMillisecondType, TimestampSecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, GenericByteViewArray, GenericListArray,
    ListArray, MapArray, OffsetSizeTrait, PrimitiveArray, RecordBatch, RecordBatchOptions,
    RunArray, StringArray, StructArray, UInt64Array, new_null_array,
};
use arrow_buffer::{ArrowNativeType, IntervalMonthDayNano, OffsetBuffer};
use arrow_schema::{
    ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, Metadata, Schema, SchemaRef,
    TimeUnit,
};
use rapidbyte_wire::types::{self, MAX_DEPTH, data_type_name};

use crate::ColumnarError;

/// The key under which the `parquet` crate keeps a column's number; it says nothing about values.
const FIELD_ID: &str = "PARQUET:field_id";
/// The beginning of the keys of Rapidbyte's own metadata.
const OWN_KEYS: &str = "rapidbyte.";
const NANOS_PER_MILLI: i64 = 1_000_000;
const MILLIS_PER_SECOND: i64 = 1_000;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// The portable forms of columns that another library gives.
///
/// # Errors
/// `unsupported_type`, with the column.
pub fn portable(schema: &Schema) -> Result<SchemaRef, ColumnarError> {
    let fields = schema.fields().iter().map(|field| portable_field(field));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    types::check_portable(&schema)
        .map_err(|error| ColumnarError::new("unsupported_type", error.to_string()))?;
    Ok(Arc::new(schema))
}

/// The rows of a batch in the columns that [`portable`] gave, or in wider ones.
///
/// # Errors
/// `value_does_not_fit`, with the column and the row of the batch, and `schema_mismatch` for another number of columns.
pub fn portable_batch(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ColumnarError> {
    if batch.num_columns() != schema.fields().len() {
        let (found, expected) = (batch.num_columns(), schema.fields().len());
        let text = format!("a batch of {found} columns, expected {expected}");
        return Err(ColumnarError::new("schema_mismatch", text));
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(array, field)| {
        convert_rows(array, field.data_type()).map_err(|(row, error)| {
            ColumnarError::new("value_does_not_fit", reason(&error))
                .column(field.name())
                .row(row)
        })
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

/// The portable form of a field. Errors: `unsupported_type`.
pub(crate) fn portable_field(field: &Field) -> Result<Field, ColumnarError> {
    let data_type =
        storage(field, 0).map_err(|reason| ColumnarError::unsupported(field.name(), reason))?;
    Ok(without_bytes(renamed(field, field.name(), data_type)))
}

/// The columns without the descriptions that a connector or a program has put into the metadata: they have the types that
/// Arrow and its extension types name, and no type of a database.
pub fn undescribed(schema: &Schema) -> SchemaRef {
    let strip = |metadata: &Metadata| {
        let mut metadata = metadata.clone();
        metadata.retain(|key, _| !key.starts_with(OWN_KEYS));
        metadata
    };
    let fields = schema.fields().iter().map(|field| {
        let metadata = strip(field.metadata());
        Arc::new(field.as_ref().clone().with_metadata(metadata))
    });
    let fields: Vec<FieldRef> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, strip(schema.metadata())))
}

/// Values in a system's own bytes go between two connectors that know them. In a file, or from a program, nobody has made
/// them: without our descriptions no destination takes them for its own.
fn without_bytes(field: Field) -> Field {
    if types::extension_name(&field) != Some(types::OPAQUE) {
        return field;
    }
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| !key.starts_with(OWN_KEYS));
    field.with_metadata(metadata)
}

/// A note for the user about a column whose values get another type by [`portable_field`].
pub(crate) fn note(field: &Field) -> Option<String> {
    changes(field).map(|changes| format!("column {:?}: {changes}", field.name()))
}

/// The same without the column's name.
pub(crate) fn changes(field: &Field) -> Option<String> {
    let mut parts = Vec::new();
    for (is_there, what) in [
        (
            holds(field, &|t| *t == DataType::Float16),
            "float16 is read as float32",
        ),
        (
            holds(field, &|t| matches!(t, DataType::FixedSizeList(..))),
            "lists of one length are read as lists",
        ),
        (
            holds(field, &|t| *t == DataType::Date64),
            "date64 is read as date; a value with a time of day is refused at its row",
        ),
    ] {
        parts.extend(is_there.then_some(what));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Whether a field or one below it is of a type, and is not kept as it is.
fn holds(field: &Field, is_meant: &dyn Fn(&DataType) -> bool) -> bool {
    if is_meant(field.data_type()) && !is_foreign(field) {
        return true;
    }
    match field.data_type() {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::RunEndEncoded(_, item)
        | DataType::Map(item, _) => holds(item, is_meant),
        DataType::Struct(fields) => fields.iter().any(|field| holds(field, is_meant)),
        DataType::Dictionary(_, value) => is_meant(value),
        _ => false,
    }
}

/// A field of an extension type that is not ours: it says what its storage is.
fn is_foreign(field: &Field) -> bool {
    types::extension_name(field).is_some() && !types::is_uuid(field) && !types::is_json(field)
}

/// The portable form of a field's type.
fn storage(field: &Field, depth: usize) -> Result<DataType, String> {
    match field.data_type() {
        DataType::FixedSizeList(_, n) if *n < 0 => Err(format!("its lists have {n} items")),
        DataType::FixedSizeList(item, n) if is_foreign(field) => {
            let item = renamed(item, "item", storage(item, depth + 1)?);
            Ok(DataType::FixedSizeList(Arc::new(item), *n))
        }
        DataType::Float16 | DataType::Date64 if is_foreign(field) => Ok(field.data_type().clone()),
        data_type => portable_type(data_type, depth),
    }
}

/// The field with another name and type, without what only its file knows.
fn renamed(field: &Field, name: &str, data_type: DataType) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(FIELD_ID);
    Field::new(name, data_type, field.is_nullable()).with_metadata(metadata)
}

/// The portable form, or why there is none. Names inside lists and maps become the usual ones:
/// writers differ in them, and they say nothing.
fn portable_type(data_type: &DataType, depth: usize) -> Result<DataType, String> {
    if depth > MAX_DEPTH {
        return Err(format!("it is nested deeper than {MAX_DEPTH}"));
    }
    let below = |field: &Field, name: &str| -> Result<FieldRef, String> {
        let data_type = storage(field, depth + 1)?;
        Ok(Arc::new(renamed(field, name, data_type)))
    };
    Ok(match data_type {
        DataType::Dictionary(_, value) => portable_type(value, depth + 1)?,
        DataType::RunEndEncoded(_, value) => portable_type(value.data_type(), depth + 1)?,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::List(item) => DataType::List(below(item, "item")?),
        DataType::LargeList(item) => DataType::LargeList(below(item, "item")?),
        DataType::FixedSizeList(item, _) => DataType::List(below(item, "item")?),
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| below(field, field.name()));
            DataType::Struct(fields.collect::<Result<Fields, _>>()?)
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return Err("a map without keys and values".into());
            };
            let [key, value] = &pair[..] else {
                return Err("a map without keys and values".into());
            };
            let pair = Fields::from(vec![below(key, "key")?, below(value, "value")?]);
            let entries = Field::new("entries", DataType::Struct(pair), false);
            DataType::Map(Arc::new(entries), *sorted)
        }
        DataType::FixedSizeBinary(n) if *n < 0 => return Err(format!("its values have {n} bytes")),
        DataType::Union(..) | DataType::ListView(_) | DataType::LargeListView(_) => {
            let name = data_type_name(data_type);
            return Err(format!("its type {name} is not supported"));
        }
        plain => plain.clone(),
    })
}

/// The array with the type that [`portable_field`] gave, or with the wider type of [`crate::merge`]. Bytes that must be
/// text and are not give an error.
pub(crate) fn convert(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    // A wider type than the file's own: first to the portable form of that.
    let is_short = matches!(
        array.data_type(),
        DataType::Float16 | DataType::Decimal32(..) | DataType::Decimal64(..)
    );
    if let (true, Ok(portable)) = (is_short, portable_type(array.data_type(), 0))
        && portable != *to
    {
        return convert(&convert(array, &portable)?, to);
    }
    Ok(match (array.data_type(), to) {
        (DataType::Utf8View, _) => from_text_view(array.as_string_view(), to)?,
        (DataType::BinaryView, _) => from_binary_view(array.as_binary_view(), to)?,
        (DataType::Dictionary(..), _) => {
            let dictionary = array.as_any_dictionary();
            let values = arrow_select::take::take(dictionary.values(), dictionary.keys(), None)?;
            convert(&values, to)?
        }
        (DataType::RunEndEncoded(ends, _), _) => match ends.data_type() {
            DataType::Int16 => from_runs(array.as_run::<Int16Type>(), to)?,
            DataType::Int32 => from_runs(array.as_run::<Int32Type>(), to)?,
            _ => from_runs(array.as_run::<Int64Type>(), to)?,
        },
        (DataType::LargeUtf8, DataType::Utf8) => {
            let long = array.as_string::<i64>();
            ensure_short(long.offsets())?;
            Arc::new(long.iter().collect::<StringArray>())
        }
        (DataType::LargeBinary, DataType::Binary) => {
            let long = array.as_binary::<i64>();
            ensure_short(long.offsets())?;
            Arc::new(long.iter().collect::<BinaryArray>())
        }
        (DataType::Decimal32(..), DataType::Decimal128(p, s)) => {
            let short = array.as_primitive::<Decimal32Type>();
            let long: PrimitiveArray<Decimal128Type> = short.unary(i128::from);
            Arc::new(long.with_precision_and_scale(*p, *s)?)
        }
        (DataType::Decimal64(..), DataType::Decimal128(p, s)) => {
            let short = array.as_primitive::<Decimal64Type>();
            let long: PrimitiveArray<Decimal128Type> = short.unary(i128::from);
            Arc::new(long.with_precision_and_scale(*p, *s)?)
        }
        (from, DataType::Interval(IntervalUnit::MonthDayNano)) => intervals(array, from)?,
        (
            DataType::Timestamp(TimeUnit::Second, _),
            DataType::Timestamp(TimeUnit::Millisecond, zone),
        ) => {
            let seconds = array.as_primitive::<TimestampSecondType>();
            let millis: PrimitiveArray<TimestampMillisecondType> = seconds.try_unary(millis)?;
            Arc::new(millis.with_timezone_opt(zone.clone()))
        }
        (DataType::Time32(TimeUnit::Second), DataType::Time32(_)) => {
            let seconds = array.as_primitive::<Time32SecondType>();
            let made: PrimitiveArray<Time32MillisecondType> = seconds.try_unary(|value| {
                // At most a day.
                i32::try_from(millis(value.into())?)
                    .map_err(|_| ArrowError::CastError(format!("a time of {value} seconds")))
            })?;
            Arc::new(made)
        }
        (DataType::List(_), DataType::List(item)) => list::<i32>(array, item)?,
        (DataType::LargeList(_), DataType::LargeList(item)) => list::<i64>(array, item)?,
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, n)) => {
            let from = array.as_fixed_size_list();
            let values = convert(from.values(), item.data_type())?;
            let made = FixedSizeListArray::try_new_with_length(
                item.clone(),
                *n,
                values,
                from.nulls().cloned(),
                from.len(),
            )?;
            Arc::new(made)
        }
        (DataType::FixedSizeList(..), DataType::List(item)) => {
            of_one_length(array.as_fixed_size_list(), item)?
        }
        (DataType::Float16, DataType::Float32) => {
            let halves = array.as_primitive::<Float16Type>();
            Arc::new(halves.unary::<_, Float32Type>(|half| half.to_f32()))
        }
        (DataType::Date64, DataType::Date32) => {
            let millis = array.as_primitive::<Date64Type>();
            Arc::new(millis.try_unary::<_, Date32Type, _>(days)?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            Arc::new(structure(array.as_struct(), fields)?)
        }
        (DataType::Map(..), DataType::Map(entries, sorted)) => {
            map(array.as_map(), entries, *sorted)?
        }
        (from, _) => match crate::widen::widen(array, to)? {
            Some(wide) => wide,
            None => {
                let (from, to) = (data_type_name(from), data_type_name(to));
                let text = format!("{from} cannot be converted to {to} exactly");
                return Err(ArrowError::CastError(text));
            }
        },
    })
}

/// Refuses an array whose values a shorter offset does not reach.
fn ensure_short(offsets: &OffsetBuffer<i64>) -> Result<(), ArrowError> {
    let bytes = offsets[offsets.len() - 1] - offsets[0];
    match i32::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(ArrowError::CastError(format!(
            "{bytes} bytes of one batch in a column of short values"
        ))),
    }
}

/// Whole days, of milliseconds since 1970.
fn days(millis: i64) -> Result<i32, ArrowError> {
    if millis % MILLIS_PER_DAY != 0 {
        let text = format!(
            "{millis} ms since 1970 are not whole days, and date64 is read as a \
             date"
        );
        return Err(ArrowError::CastError(text));
    }
    i32::try_from(millis / MILLIS_PER_DAY)
        .map_err(|_| ArrowError::CastError(format!("{millis} ms since 1970 do not fit as days")))
}

/// As [`convert`]; an error comes with the first row, from 0, whose value cannot be converted.
pub(crate) fn convert_rows(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, (u64, ArrowError)> {
    convert(array, to).map_err(|error| {
        let alone = (0..array.len()).map(|row| (row, convert(&array.slice(row, 1), to)));
        let mut refused = alone.filter_map(|(row, made)| Some((row as u64, made.err()?)));
        refused.next().unwrap_or((0, error))
    })
}

/// Why a value was refused, without Arrow's words for the kind of error.
pub(crate) fn reason(error: &ArrowError) -> String {
    match error {
        ArrowError::CastError(text) => text.clone(),
        other => other.to_string(),
    }
}

fn millis(seconds: i64) -> Result<i64, ArrowError> {
    seconds.checked_mul(MILLIS_PER_SECOND).ok_or_else(|| {
        ArrowError::CastError(format!("{seconds} seconds do not fit as milliseconds"))
    })
}

/// Intervals of Arrow's older types, or of Parquet's 12 bytes: months, days, milliseconds, each
/// unsigned and little-endian ("INTERVAL" in Parquet's LogicalTypes.md).
fn intervals(array: &ArrayRef, from: &DataType) -> Result<ArrayRef, ArrowError> {
    let made: PrimitiveArray<IntervalMonthDayNanoType> = match from {
        DataType::Interval(IntervalUnit::YearMonth) => array
            .as_primitive::<IntervalYearMonthType>()
            .unary(|months| IntervalMonthDayNano::new(months, 0, 0)),
        DataType::Interval(IntervalUnit::DayTime) => {
            array.as_primitive::<IntervalDayTimeType>().unary(|value| {
                let nanos = i64::from(value.milliseconds) * NANOS_PER_MILLI;
                IntervalMonthDayNano::new(0, value.days, nanos)
            })
        }
        DataType::FixedSizeBinary(12) => {
            let bytes = array.as_fixed_size_binary();
            let values = (0..bytes.len()).map(|row| {
                if bytes.is_null(row) {
                    return Ok(None);
                }
                parquet_interval(bytes.value(row)).map(Some)
            });
            values.collect::<Result<_, _>>()?
        }
        other => {
            let text = format!(
                "{} cannot be converted to an interval exactly",
                data_type_name(other)
            );
            return Err(ArrowError::CastError(text));
        }
    };
    Ok(Arc::new(made))
}

fn parquet_interval(bytes: &[u8]) -> Result<IntervalMonthDayNano, ArrowError> {
    let part = |at: usize| {
        let mut four = [0; 4];
        four.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(four)
    };
    let small = |value: u32, what: &str| {
        i32::try_from(value)
            .map_err(|_| ArrowError::CastError(format!("an interval of {value} {what}")))
    };
    let (months, days) = (small(part(0), "months")?, small(part(4), "days")?);
    Ok(IntervalMonthDayNano::new(
        months,
        days,
        i64::from(part(8)) * NANOS_PER_MILLI,
    ))
}

fn from_text_view(
    from: &GenericByteViewArray<StringViewType>,
    to: &DataType,
) -> Result<ArrayRef, ArrowError> {
    Ok(match to {
        DataType::LargeUtf8 => Arc::new(copied::<GenericStringType<i64>, _>(from)?.finish()),
        _ => Arc::new(copied::<GenericStringType<i32>, _>(from)?.finish()),
    })
}

fn from_binary_view(
    from: &GenericByteViewArray<BinaryViewType>,
    to: &DataType,
) -> Result<ArrayRef, ArrowError> {
    Ok(match to {
        DataType::Binary => Arc::new(copied::<GenericBinaryType<i32>, _>(from)?.finish()),
        DataType::LargeBinary => Arc::new(copied::<GenericBinaryType<i64>, _>(from)?.finish()),
        // Validates.
        _ => return from_text_view(&from.clone().to_string_view()?, to),
    })
}

/// The values of a view array one after the other.
fn copied<T, V>(from: &GenericByteViewArray<V>) -> Result<GenericByteBuilder<T>, ArrowError>
where
    T: ByteArrayType<Native = V::Native>,
    V: ByteViewType,
{
    let bytes: u64 = from.lengths().map(u64::from).sum();
    let too_long = || ArrowError::CastError(format!("{bytes} bytes in one column of a batch"));
    let room = usize::try_from(bytes).map_err(|_| too_long())?;
    T::Offset::from_usize(room).ok_or_else(too_long)?;
    let mut builder = GenericByteBuilder::<T>::with_capacity(from.len(), room);
    for value in from.iter() {
        builder.append_option(value);
    }
    Ok(builder)
}

fn from_runs<R>(runs: &RunArray<R>, to: &DataType) -> Result<ArrayRef, ArrowError>
where
    R: arrow_array::types::RunEndIndexType,
{
    let rows = 0..runs.len();
    let places: UInt64Array = rows
        .map(|row| Some(runs.get_physical_index(row) as u64))
        .collect();
    convert(&arrow_select::take::take(runs.values(), &places, None)?, to)
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let from = array.as_list::<O>();
    let (offsets, values) = trimmed(from.offsets(), from.values());
    let values = convert(&values, item.data_type())?;
    let made =
        GenericListArray::<O>::try_new(item.clone(), offsets, values, from.nulls().cloned())?;
    Ok(Arc::new(made))
}

/// Lists without the items below NULL.
fn of_one_length(from: &FixedSizeListArray, item: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let n = usize::try_from(from.value_length()).unwrap_or(0);
    let values = convert(from.values(), item.data_type())?;
    let lengths = (0..from.len()).map(|row| if from.is_null(row) { 0 } else { n });
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = match from.null_count() {
        0 => values,
        _ => {
            let rows = (0..from.len()).filter(|row| from.is_valid(*row));
            let places: UInt64Array = rows
                .flat_map(|row| row * n..(row + 1) * n)
                .map(|at| Some(at as u64))
                .collect();
            arrow_select::take::take(&values, &places, None)?
        }
    };
    let made = ListArray::try_new(item.clone(), offsets, values, from.nulls().cloned())?;
    Ok(Arc::new(made))
}

/// The part of a list's child that the offsets reach, and the offsets into it: a slice of a batch
/// still has the whole child.
fn trimmed<O: OffsetSizeTrait>(
    offsets: &OffsetBuffer<O>,
    values: &ArrayRef,
) -> (OffsetBuffer<O>, ArrayRef) {
    let first = offsets[0];
    let last = offsets[offsets.len() - 1];
    let values = values.slice(first.as_usize(), (last - first).as_usize());
    if first == O::zero() {
        return (offsets.clone(), values);
    }
    let lengths = offsets
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_usize());
    (OffsetBuffer::from_lengths(lengths), values)
}

/// The fields by their names.
fn structure(from: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let given = from.fields();
    let mut names = given.iter().zip(fields);
    let is_same = given.len() == fields.len() && names.all(|(a, b)| a.name() == b.name());
    if is_same {
        // Two fields may have one name.
        return by_position(from, fields);
    }
    if let Some(lost) = given.iter().find(|one| fields.find(one.name()).is_none()) {
        let text = format!("a field {:?}, which the column does not have", lost.name());
        return Err(ArrowError::CastError(text));
    }
    let column = |field: &FieldRef| match given.find(field.name()) {
        Some((at, _)) => convert(from.column(at), field.data_type()),
        None => Ok(new_null_array(field.data_type(), from.len())),
    };
    let columns = fields.iter().map(column).collect::<Result<_, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, from.nulls().cloned(), from.len())
}

fn by_position(from: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let columns = from
        .columns()
        .iter()
        .zip(fields)
        .map(|(column, field)| convert(column, field.data_type()))
        .collect::<Result<_, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, from.nulls().cloned(), from.len())
}

fn map(from: &MapArray, entries: &FieldRef, sorted: bool) -> Result<ArrayRef, ArrowError> {
    let pairs: ArrayRef = Arc::new(from.entries().clone());
    let (offsets, pairs) = trimmed(from.offsets(), &pairs);
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(ArrowError::CastError("a map without entries".into()));
    };
    // Writers name keys and values differently.
    let pairs = by_position(pairs.as_struct(), fields)?;
    let made = MapArray::try_new(
        entries.clone(),
        offsets,
        pairs,
        from.nulls().cloned(),
        sorted,
    )?;
    Ok(Arc::new(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_a_system_own_bytes_lose_the_description_that_came_with_them() {
        let field = |extension: &str| {
            let metadata = [
                ("ARROW:extension:name", extension),
                ("rapidbyte.postgresql", "{}"),
                ("unit", "m"),
            ];
            let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
            Field::new("c", DataType::Binary, true).with_metadata(metadata)
        };
        let fields = vec![field(types::OPAQUE), field("other").with_name("d")];
        let read = portable(&Schema::new(fields)).expect("portable fields");
        let has = |place: usize, key: &str| read.field(place).metadata().contains_key(key);
        assert!(!has(0, "rapidbyte.postgresql") && has(0, "unit"));
        assert!(has(1, "rapidbyte.postgresql"));
    }
}
