//! A column under construction.

use std::mem::replace;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, DurationMicrosecondBuilder,
    FixedSizeBinaryBuilder, Float64Builder, Int64Builder, StringBuilder, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Int8Type, Int16Type, Int32Type, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Decimal256Array, Float64Array, Int64Array, LargeStringArray,
    ListArray, PrimitiveArray, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use rapidbyte_formats::text::decimal::{parse_i128, parse_i256};
use rapidbyte_formats::text::time::write_timestamp;
use rapidbyte_wire::types::type_name;

use crate::refusal::{Refusal, Result};
use crate::shape::{EXACT_WHOLE, Shape};
use crate::value::{Found, Known, characters, look, write_json};

/// Bytes of a value of fixed width, its share of the bitmap included.
const FIXED_BYTES: usize = 9;
const OBJECT_ID_DIGITS: usize = 24;

/// Values of one type, which does not change any more.
pub enum Values {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    /// The digits; they are read at the end of the batch.
    Decimal(Vec<Option<String>>),
    Text(StringBuilder),
    /// The digits of ObjectIds.
    ObjectId(StringBuilder),
    Bytes(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Zoned(TimestampMicrosecondBuilder),
    Duration(DurationMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Json(StringBuilder, Vec<u8>),
    List(Box<Values>, Vec<i32>, Vec<bool>),
}

impl Values {
    /// Of a shape.
    pub fn of(shape: &Shape) -> Self {
        match shape {
            Shape::Bool => Self::Bool(BooleanBuilder::new()),
            Shape::Int(_) => Self::Int(Int64Builder::new()),
            Shape::Float => Self::Float(Float64Builder::new()),
            Shape::Decimal(..) => Self::Decimal(Vec::new()),
            Shape::Unknown | Shape::Text => Self::Text(StringBuilder::new()),
            Shape::ObjectId => Self::ObjectId(StringBuilder::new()),
            Shape::Bytes => Self::Bytes(BinaryBuilder::new()),
            Shape::Date => Self::Date(Date32Builder::new()),
            Shape::Time => Self::Time(Time64MicrosecondBuilder::new()),
            Shape::Timestamp => Self::Timestamp(TimestampMicrosecondBuilder::new()),
            Shape::Zoned => Self::Zoned(TimestampMicrosecondBuilder::new()),
            Shape::Duration => Self::Duration(DurationMicrosecondBuilder::new()),
            Shape::Uuid => Self::Uuid(FixedSizeBinaryBuilder::new(16)),
            Shape::List(item) => Self::List(Box::new(Self::of(item)), vec![0], Vec::new()),
            Shape::Json => Self::Json(StringBuilder::new(), Vec::new()),
        }
    }

    /// Adds a value. Gives its bytes, or `None` for a value of another type.
    pub fn push(&mut self, value: &Bound<'_, PyAny>, known: &Known) -> Result<Option<usize>> {
        // Most values are of these types, and then nothing else has to be looked at.
        match self {
            Self::Text(column) => {
                if let Ok(text) = value.cast_exact::<PyString>() {
                    let text = characters(text)?;
                    column.append_value(text);
                    return Ok(Some(text.len() + 5));
                }
            }
            Self::Float(column) => {
                if let Ok(number) = value.cast_exact::<PyFloat>() {
                    column.append_value(number.value());
                    return Ok(Some(FIXED_BYTES));
                }
            }
            Self::Int(column) => {
                if let Ok(number) = value.cast_exact::<PyInt>()
                    && let Ok(number) = number.extract::<i64>()
                {
                    column.append_value(number);
                    return Ok(Some(FIXED_BYTES));
                }
            }
            _ => {}
        }
        self.push_other(value, known)
    }

    fn push_other(&mut self, value: &Bound<'_, PyAny>, known: &Known) -> Result<Option<usize>> {
        let found = look(value, known)?;
        let bytes = match (&mut *self, found) {
            (_, Found::Instead(plain)) => return self.push(&plain, known),
            (_, Found::Null) => {
                self.push_null();
                1
            }
            (Self::Text(column), Found::Text(text)) => {
                column.append_value(text);
                text.len() + 5
            }
            (Self::ObjectId(column), Found::ObjectId(digits)) => {
                column.append_value(digits);
                OBJECT_ID_DIGITS + 5
            }
            (Self::ObjectId(column), Found::Text(digits)) if is_object_id(digits) => {
                column.append_value(digits);
                OBJECT_ID_DIGITS + 5
            }
            (Self::Int(column), Found::Int(number)) => {
                column.append_value(number);
                FIXED_BYTES
            }
            (Self::Float(column), Found::Float(number)) => {
                column.append_value(number);
                FIXED_BYTES
            }
            (Self::Float(column), Found::Int(number)) if number.unsigned_abs() <= EXACT_WHOLE => {
                column.append_value(number as f64);
                FIXED_BYTES
            }
            (Self::Bool(column), Found::Bool(flag)) => {
                column.append_value(flag);
                1
            }
            (Self::Decimal(column), Found::Decimal(digits)) => {
                let bytes = digits.len() + 24;
                column.push(Some(digits));
                bytes
            }
            (Self::Decimal(column), Found::Int(number)) => {
                column.push(Some(number.to_string()));
                FIXED_BYTES + 24
            }
            (Self::Bytes(column), Found::Bytes(bytes)) => {
                column.append_value(bytes);
                bytes.len() + 5
            }
            (Self::Date(column), Found::Date(days)) => {
                column.append_value(days);
                FIXED_BYTES
            }
            (Self::Time(column), Found::Time(micros)) => {
                column.append_value(micros);
                FIXED_BYTES
            }
            (Self::Timestamp(column), Found::Timestamp(micros))
            | (Self::Zoned(column), Found::Zoned(micros)) => {
                column.append_value(micros);
                FIXED_BYTES
            }
            (Self::Duration(column), Found::Duration(micros)) => {
                column.append_value(micros);
                FIXED_BYTES
            }
            (Self::Uuid(column), Found::Uuid(bytes)) => {
                column
                    .append_value(bytes)
                    .map_err(|error| Refusal::data("internal", error))?;
                2 * FIXED_BYTES
            }
            (Self::Json(column, text), _) => {
                text.clear();
                write_json(value, known, text)?;
                // Only strings that are UTF-8 and the words of JSON were written.
                column.append_value(String::from_utf8_lossy(text));
                text.len() + 5
            }
            (Self::List(item, ends, are_valid), Found::List(items)) => {
                let mut bytes = 5;
                for one in items.try_iter()? {
                    match item.push(&one?, known)? {
                        Some(more) => bytes += more,
                        // The items before stay, and nothing ends behind them: the caller gives up the batch.
                        None => return Ok(None),
                    }
                }
                let end = i32::try_from(item.len())
                    .map_err(|_| Refusal::data("record_too_large", "a list of too many values"))?;
                ends.push(end);
                are_valid.push(true);
                bytes
            }
            _ => return Ok(None),
        };
        Ok(Some(bytes))
    }

    /// The shape of a column of these values, which was inferred from the first one: decimals have more digits, perhaps.
    pub fn refine(&self, shape: &Shape) -> Result<Shape> {
        Ok(match (self, shape) {
            (Self::Decimal(digits), _) => {
                let mut all = Shape::Unknown;
                for text in digits.iter().flatten() {
                    all = all.join(Shape::of_digits(text))?;
                }
                match all {
                    Shape::Unknown => shape.clone(),
                    all => all,
                }
            }
            (Self::List(item, ..), Shape::List(inner)) => {
                Shape::List(Box::new(item.refine(inner)?))
            }
            _ => shape.clone(),
        })
    }

    /// Adds a NULL.
    pub fn push_null(&mut self) {
        match self {
            Self::Bool(column) => column.append_null(),
            Self::Int(column) => column.append_null(),
            Self::Float(column) => column.append_null(),
            Self::Decimal(column) => column.push(None),
            Self::Text(column) | Self::ObjectId(column) | Self::Json(column, _) => {
                column.append_null();
            }
            Self::Bytes(column) => column.append_null(),
            Self::Date(column) => column.append_null(),
            Self::Time(column) => column.append_null(),
            Self::Timestamp(column) | Self::Zoned(column) => column.append_null(),
            Self::Duration(column) => column.append_null(),
            Self::Uuid(column) => column.append_null(),
            Self::List(item, ends, are_valid) => {
                ends.push(i32::try_from(item.len()).unwrap_or(i32::MAX));
                are_valid.push(false);
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bool(column) => column.len(),
            Self::Int(column) => column.len(),
            Self::Float(column) => column.len(),
            Self::Decimal(column) => column.len(),
            Self::Text(column) | Self::ObjectId(column) | Self::Json(column, _) => column.len(),
            Self::Bytes(column) => column.len(),
            Self::Date(column) => column.len(),
            Self::Time(column) => column.len(),
            Self::Timestamp(column) | Self::Zoned(column) => column.len(),
            Self::Duration(column) => column.len(),
            Self::Uuid(column) => column.len(),
            Self::List(_, ends, _) => ends.len() - 1,
        }
    }

    /// The values so far as an array of the field's type; the next ones begin anew. An error names the row in the array.
    pub fn finish(&mut self, field: &Field) -> Result<ArrayRef> {
        Ok(match self {
            Self::Bool(column) => Arc::new(column.finish()),
            Self::Int(column) => {
                let next = Int64Builder::with_capacity(column.len());
                ints(replace(column, next).finish(), field.data_type())?
            }
            Self::Float(column) => {
                let next = Float64Builder::with_capacity(column.len());
                floats(replace(column, next).finish(), field.data_type())?
            }
            Self::Decimal(digits) => decimals(&std::mem::take(digits), field)?,
            Self::Text(column) if *field.data_type() == DataType::LargeUtf8 => {
                Arc::new(LargeStringArray::from_iter(column.finish().iter()))
            }
            Self::Text(column) | Self::ObjectId(column) | Self::Json(column, _) => {
                let bytes = column.values_slice().len();
                let next = StringBuilder::with_capacity(column.len(), bytes);
                Arc::new(replace(column, next).finish())
            }
            Self::Bytes(column) => Arc::new(column.finish()),
            Self::Date(column) => Arc::new(column.finish()),
            Self::Time(column) => Arc::new(column.finish()),
            Self::Timestamp(column) | Self::Zoned(column) => {
                timestamps(column.finish(), field.data_type())?
            }
            Self::Duration(column) => Arc::new(column.finish()),
            Self::Uuid(column) => Arc::new(column.finish()),
            Self::List(item, ends, are_valid) => {
                let inner: FieldRef = match field.data_type() {
                    DataType::List(inner) => Arc::clone(inner),
                    _ => return Err(Refusal::data("internal", "a list is missing")),
                };
                let ends = replace(ends, vec![0]);
                let are_valid = NullBuffer::from(std::mem::take(are_valid));
                let items = item.finish(&inner)?;
                let list = ListArray::try_new(
                    inner,
                    OffsetBuffer::new(ends.into()),
                    items,
                    Some(are_valid),
                );
                Arc::new(list.map_err(|error| Refusal::data("internal", error))?)
            }
        })
    }
}

fn is_object_id(digits: &str) -> bool {
    digits.len() == OBJECT_ID_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Refuses a NULL in a column that is declared without, at its row in the array.
pub fn ensure_filled(array: &ArrayRef, field: &Field) -> Result<()> {
    if field.is_nullable() || array.null_count() == 0 {
        return Ok(());
    }
    let row = (0..array.len()).find(|row| array.is_null(*row));
    let text = "no value, and the column is declared as not null";
    Err(Refusal::data("null_in_required_column", text)
        .in_column(field.name())
        .at_row(row.unwrap_or(0) as u64))
}

fn does_not_fit(row: usize, value: impl std::fmt::Display, to: &DataType) -> Refusal {
    let kind = rapidbyte_wire::types::data_type_name(to);
    let text = format!("{value} does not fit into a column of {kind}");
    Refusal::data("value_does_not_fit", text).at_row(row as u64)
}

/// Converts each value; one that does not fit is an error at its row.
fn each<F, T>(
    from: &PrimitiveArray<F>,
    to: &DataType,
    convert: impl Fn(F::Native) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>>
where
    F: ArrowPrimitiveType<Native: std::fmt::Display>,
    T: ArrowPrimitiveType,
{
    each_shown(from, to, convert, |value| value.to_string())
}

/// The same with values that the error shows as `show` has them.
fn each_shown<F, T>(
    from: &PrimitiveArray<F>,
    to: &DataType,
    convert: impl Fn(F::Native) -> Option<T::Native>,
    show: impl Fn(F::Native) -> String,
) -> Result<PrimitiveArray<T>>
where
    F: ArrowPrimitiveType,
    T: ArrowPrimitiveType,
{
    let values = from.iter().enumerate().map(|(row, value)| match value {
        Some(value) => match convert(value) {
            Some(value) => Ok(Some(value)),
            None => Err(does_not_fit(row, show(value), to)),
        },
        None => Ok(None),
    });
    values.collect()
}

fn ints(values: Int64Array, to: &DataType) -> Result<ArrayRef> {
    Ok(match to {
        DataType::Int8 => Arc::new(each::<_, Int8Type>(&values, to, |n| n.try_into().ok())?),
        DataType::Int16 => Arc::new(each::<_, Int16Type>(&values, to, |n| n.try_into().ok())?),
        DataType::Int32 => Arc::new(each::<_, Int32Type>(&values, to, |n| n.try_into().ok())?),
        DataType::UInt8 => Arc::new(each::<_, UInt8Type>(&values, to, |n| n.try_into().ok())?),
        DataType::UInt16 => Arc::new(each::<_, UInt16Type>(&values, to, |n| n.try_into().ok())?),
        DataType::UInt32 => Arc::new(each::<_, UInt32Type>(&values, to, |n| n.try_into().ok())?),
        _ => Arc::new(values),
    })
}

fn floats(values: Float64Array, to: &DataType) -> Result<ArrayRef> {
    let narrow = |number: f64| {
        let short = number as f32;
        (f64::from(short) == number || number.is_nan()).then_some(short)
    };
    Ok(match to {
        DataType::Float32 => Arc::new(each::<_, Float32Type>(&values, to, narrow)?),
        _ => Arc::new(values),
    })
}

fn timestamps(values: TimestampMicrosecondArray, to: &DataType) -> Result<ArrayRef> {
    let DataType::Timestamp(unit, zone) = to else {
        return Err(Refusal::data("internal", format!("timestamps in {to}")));
    };
    let exact = |micros: i64, unit: i64| (micros % unit == 0).then_some(micros / unit);
    let (zone, is_zoned) = (zone.clone(), zone.is_some());
    let show = |micros: i64| {
        let mut text = Vec::new();
        write_timestamp(micros, TimeUnit::Microsecond, is_zoned, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    Ok(match unit {
        TimeUnit::Second => Arc::new(
            each_shown::<_, TimestampSecondType>(&values, to, |n| exact(n, 1_000_000), show)?
                .with_timezone_opt(zone),
        ),
        TimeUnit::Millisecond => Arc::new(
            each_shown::<_, TimestampMillisecondType>(&values, to, |n| exact(n, 1_000), show)?
                .with_timezone_opt(zone),
        ),
        TimeUnit::Microsecond => Arc::new(values.with_timezone_opt(zone)),
        TimeUnit::Nanosecond => Arc::new(
            each_shown::<_, TimestampNanosecondType>(&values, to, |n| n.checked_mul(1_000), show)?
                .with_timezone_opt(zone),
        ),
    })
}

fn decimals(digits: &[Option<String>], field: &Field) -> Result<ArrayRef> {
    let internal = |error| Refusal::data("internal", error);
    Ok(match field.data_type() {
        DataType::Decimal128(precision, scale) => {
            let values = read(digits, field, |text| parse_i128(text, *precision, *scale))?;
            let array = Decimal128Array::from(values).with_precision_and_scale(*precision, *scale);
            Arc::new(array.map_err(internal)?)
        }
        DataType::Decimal256(precision, scale) => {
            let values = read(digits, field, |text| parse_i256(text, *precision, *scale))?;
            let array = Decimal256Array::from(values).with_precision_and_scale(*precision, *scale);
            Arc::new(array.map_err(internal)?)
        }
        other => return Err(Refusal::data("internal", format!("decimals in {other}"))),
    })
}

/// Reads each text; one that cannot be read is an error at its row.
fn read<T>(
    digits: &[Option<String>],
    field: &Field,
    parse: impl Fn(&[u8]) -> std::result::Result<T, &'static str>,
) -> Result<Vec<Option<T>>> {
    let values = digits.iter().enumerate().map(|(row, text)| {
        let value = text.as_ref().map(|text| {
            parse(text.as_bytes()).map_err(|why| {
                let kind = type_name(field);
                let text = format!("{text} in a column of {kind}: it {why}");
                Refusal::data("value_does_not_fit", text)
                    .at_row(row as u64)
                    .hint("declare a type with more digits with schema=, or round the value")
            })
        });
        value.transpose()
    });
    values.collect()
}
