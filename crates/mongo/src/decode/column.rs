//! One column that grows, and the values that it takes.

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, LargeBinaryBuilder, LargeStringBuilder,
    PrimitiveBuilder, StringBuilder,
};
use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ListArray, MapArray, NullArray, StructArray};
use arrow_buffer::{ArrowNativeType, NullBufferBuilder, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};
use rapidbyte_bson::{Document, MAX_DEPTH, Value};
use rapidbyte_wire::types::{is_json, is_stored, is_uuid, type_name};
use std::sync::Arc;

use super::convert::{PRECISION, float, generic, narrow, scaled, text, utf8};
use crate::error::{MongoError, Owner, Problem};
use crate::extjson::{self, Style};
use crate::form::{self, Native};

const DAY_MS: i64 = 86_400_000;
const FAR: Problem = Problem::Value("the date is out of the range of the column's type");

type Pushed = Result<(), Problem>;

/// A column.
pub(super) struct Column {
    field: FieldRef,
    build: Build,
}

enum Build {
    Null(usize),
    Bool(BooleanBuilder),
    I8(PrimitiveBuilder<Int8Type>),
    I16(PrimitiveBuilder<Int16Type>),
    I32(PrimitiveBuilder<Int32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    U8(PrimitiveBuilder<UInt8Type>),
    U16(PrimitiveBuilder<UInt16Type>),
    U32(PrimitiveBuilder<UInt32Type>),
    U64(PrimitiveBuilder<UInt64Type>),
    F32(PrimitiveBuilder<Float32Type>),
    F64(PrimitiveBuilder<Float64Type>),
    Decimal128(PrimitiveBuilder<Decimal128Type>, u8, i8),
    Decimal256(PrimitiveBuilder<Decimal256Type>, u8, i8),
    String(StringBuilder),
    /// Strings of a target whose column had strings alone before: the JSON text of any other value.
    AnyText(StringBuilder, Style, Vec<u8>),
    LargeString(LargeStringBuilder),
    Json(StringBuilder, Style, Vec<u8>),
    Binary(BinaryBuilder),
    LargeBinary(LargeBinaryBuilder),
    FixedBinary(FixedSizeBinaryBuilder, i32),
    Uuid(FixedSizeBinaryBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    Seconds(PrimitiveBuilder<TimestampSecondType>),
    Millis(PrimitiveBuilder<TimestampMillisecondType>),
    Micros(PrimitiveBuilder<TimestampMicrosecondType>),
    Nanos(PrimitiveBuilder<TimestampNanosecondType>),
    List(Lengths, Box<Column>),
    Map(Lengths, StringBuilder, Box<Column>),
    Struct(NullBufferBuilder, usize, Vec<Column>),
    /// Native values: the byte of the type, then the bytes.
    Value(BinaryBuilder, Vec<u8>),
    /// Native documents, which are whole.
    Document(BinaryBuilder),
}

/// The lengths of lists and which of them are NULL.
struct Lengths {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Lengths {
    fn new() -> Self {
        Self {
            ends: vec![0],
            nulls: NullBufferBuilder::new(0),
        }
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    fn push(&mut self, items: usize, is_valid: bool) -> Pushed {
        self.ends
            .push(i32::try_from(items).map_err(|_| Problem::TooLarge)?);
        self.nulls.append(is_valid);
        Ok(())
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        (OffsetBuffer::new(ends.into()), self.nulls.finish())
    }
}

impl Build {
    fn new(field: &Field, style: Style) -> Result<Self, MongoError> {
        match Native::of(field) {
            Some(Native::Document) => return Ok(Self::Document(BinaryBuilder::new())),
            Some(Native::Value) => return Ok(Self::Value(BinaryBuilder::new(), Vec::new())),
            None if form::is_opaque(field) => return Err(refused(field)),
            None => {}
        }
        let zone = match field.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        Ok(match field.data_type() {
            DataType::Null => Self::Null(0),
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Int8 => Self::I8(PrimitiveBuilder::new()),
            DataType::Int16 => Self::I16(PrimitiveBuilder::new()),
            DataType::Int32 => Self::I32(PrimitiveBuilder::new()),
            DataType::Int64 => Self::I64(PrimitiveBuilder::new()),
            DataType::UInt8 => Self::U8(PrimitiveBuilder::new()),
            DataType::UInt16 => Self::U16(PrimitiveBuilder::new()),
            DataType::UInt32 => Self::U32(PrimitiveBuilder::new()),
            DataType::UInt64 => Self::U64(PrimitiveBuilder::new()),
            DataType::Float32 => Self::F32(PrimitiveBuilder::new()),
            DataType::Float64 => Self::F64(PrimitiveBuilder::new()),
            DataType::Decimal128(precision, scale) => {
                let ty = field.data_type().clone();
                let builder = PrimitiveBuilder::new().with_data_type(ty);
                Self::Decimal128(builder, *precision, *scale)
            }
            DataType::Decimal256(precision, scale) => {
                let ty = field.data_type().clone();
                let builder = PrimitiveBuilder::new().with_data_type(ty);
                Self::Decimal256(builder, *precision, *scale)
            }
            DataType::Utf8 if is_json(field) => Self::Json(StringBuilder::new(), style, Vec::new()),
            DataType::Utf8 if is_stored(field) => {
                Self::AnyText(StringBuilder::new(), style, Vec::new())
            }
            DataType::Utf8 => Self::String(StringBuilder::new()),
            DataType::LargeUtf8 => Self::LargeString(LargeStringBuilder::new()),
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::LargeBinary => Self::LargeBinary(LargeBinaryBuilder::new()),
            DataType::FixedSizeBinary(16) if is_uuid(field) => {
                Self::Uuid(FixedSizeBinaryBuilder::new(16))
            }
            DataType::FixedSizeBinary(width) => {
                Self::FixedBinary(FixedSizeBinaryBuilder::new(*width), *width)
            }
            DataType::Date32 => Self::Date(PrimitiveBuilder::new()),
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => Self::Seconds(PrimitiveBuilder::new().with_timezone_opt(zone)),
                TimeUnit::Millisecond => {
                    Self::Millis(PrimitiveBuilder::new().with_timezone_opt(zone))
                }
                TimeUnit::Microsecond => {
                    Self::Micros(PrimitiveBuilder::new().with_timezone_opt(zone))
                }
                TimeUnit::Nanosecond => {
                    Self::Nanos(PrimitiveBuilder::new().with_timezone_opt(zone))
                }
            },
            DataType::List(item) => Self::List(Lengths::new(), Box::new(Column::new(item, style)?)),
            DataType::Struct(fields) => {
                let parts = fields.iter().map(|field| Column::new(field, style));
                let parts = parts.collect::<Result<_, _>>()?;
                Self::Struct(NullBufferBuilder::new(0), 0, parts)
            }
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(refused(field));
                };
                if *pair[0].data_type() != DataType::Utf8 {
                    return Err(refused(field));
                }
                let values = Box::new(Column::new(&pair[1], style)?);
                Self::Map(Lengths::new(), StringBuilder::new(), values)
            }
            _ => return Err(refused(field)),
        })
    }
}

fn refused(field: &Field) -> MongoError {
    let (name, ty) = (field.name(), type_name(field));
    let text = format!("column {name:?}: no value of BSON is a value of the type {ty}");
    MongoError::new(Owner::Schema, "type_refused", text)
        .hint("declare the column as json, or with a type such as string or int64")
        .in_column(name)
}

/// Appends a value to the builder that every variant has, or counts on.
macro_rules! each {
    ($build:expr, $builder:ident => $body:expr, else { $($other:tt)* }) => {
        match $build {
            Build::Bool($builder) => $body,
            Build::I8($builder) => $body,
            Build::I16($builder) => $body,
            Build::I32($builder) => $body,
            Build::I64($builder) => $body,
            Build::U8($builder) => $body,
            Build::U16($builder) => $body,
            Build::U32($builder) => $body,
            Build::U64($builder) => $body,
            Build::F32($builder) => $body,
            Build::F64($builder) => $body,
            Build::Decimal128($builder, ..) => $body,
            Build::Decimal256($builder, ..) => $body,
            Build::String($builder) => $body,
            Build::LargeString($builder) => $body,
            Build::Json($builder, ..) => $body,
            Build::AnyText($builder, ..) => $body,
            Build::Binary($builder) => $body,
            Build::LargeBinary($builder) => $body,
            Build::FixedBinary($builder, _) => $body,
            Build::Uuid($builder) => $body,
            Build::Date($builder) => $body,
            Build::Seconds($builder) => $body,
            Build::Millis($builder) => $body,
            Build::Micros($builder) => $body,
            Build::Nanos($builder) => $body,
            Build::Value($builder, _) => $body,
            Build::Document($builder) => $body,
            $($other)*
        }
    };
}

impl Column {
    pub(super) fn new(field: &FieldRef, style: Style) -> Result<Self, MongoError> {
        Ok(Self {
            build: Build::new(field, style)?,
            field: field.clone(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.field.name()
    }

    /// Values so far.
    pub(super) fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        each!(&self.build, builder => builder.len(), else {
            Build::Null(len) | Build::Struct(_, len, _) => *len,
            Build::List(lengths, _) | Build::Map(lengths, ..) => lengths.len(),
        })
    }

    /// The first `rows` values, as an array. The column is empty then.
    pub(super) fn finish(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        let array: ArrayRef = each!(&mut self.build, builder => Arc::new(builder.finish()), else {
            Build::Null(len) => Arc::new(NullArray::new(std::mem::take(len))),
            Build::Struct(nulls, len, parts) => {
                let len = std::mem::take(len);
                let fields: Fields = parts.iter().map(|part| part.field.clone()).collect();
                let arrays = parts.iter_mut().map(|part| part.finish(len));
                let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields, arrays, nulls.finish(), len)?)
            }
            Build::List(lengths, items) => {
                let (ends, nulls) = lengths.finish();
                // A value that failed may have left elements behind the last end.
                let array = items.finish(ends.last().as_usize())?;
                Arc::new(ListArray::try_new(items.field.clone(), ends, array, nulls)?)
            }
            Build::Map(lengths, keys, values) => {
                let (ends, nulls) = lengths.finish();
                let len = ends.last().as_usize();
                let keys = Arc::new(keys.finish().slice(0, len)) as ArrayRef;
                let values = values.finish(len)?;
                let DataType::Map(entries, is_sorted) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("not a map".into()));
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(ArrowError::SchemaError("not a map".into()));
                };
                let pairs = StructArray::try_new(pair.clone(), vec![keys, values], None)?;
                Arc::new(MapArray::try_new(entries.clone(), ends, pairs, nulls, *is_sorted)?)
            }
        });
        Ok(match array.len() == rows {
            true => array,
            false => array.slice(0, rows),
        })
    }

    /// Appends the text of a JSON column. It is UTF-8.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Pushed {
        if let Build::Json(builder, ..) = &mut self.build {
            builder.append_value(utf8(text)?);
        }
        Ok(())
    }

    /// Appends the bytes of a native document.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        if let Build::Document(builder) = &mut self.build {
            builder.append_value(bytes);
        }
    }

    /// Appends a value. Nothing is appended after an error, but values inside of it may be.
    pub(super) fn push(&mut self, value: &Value<'_>) -> Pushed {
        self.push_at(value, 0)
    }

    fn push_at(&mut self, value: &Value<'_>, depth: usize) -> Pushed {
        if depth >= MAX_DEPTH {
            return Err(Problem::Depth);
        }
        if matches!(value, Value::Null) {
            return self.push_null();
        }
        match (&mut self.build, *value) {
            (Build::Bool(builder), Value::Boolean(value)) => builder.append_value(value),
            (Build::I8(builder), value) => builder.append_value(narrow(value)?),
            (Build::I16(builder), value) => builder.append_value(narrow(value)?),
            (Build::I32(builder), Value::Int32(value)) => builder.append_value(value),
            (Build::I32(builder), value) => builder.append_value(narrow(value)?),
            (Build::I64(builder), Value::Int64(value)) => builder.append_value(value),
            (Build::I64(builder), value) => builder.append_value(narrow(value)?),
            (Build::U8(builder), value) => builder.append_value(narrow(value)?),
            (Build::U16(builder), value) => builder.append_value(narrow(value)?),
            (Build::U32(builder), value) => builder.append_value(narrow(value)?),
            (Build::U64(builder), value) => builder.append_value(narrow(value)?),
            (Build::F64(builder), Value::Double(value)) => builder.append_value(value),
            (Build::F64(builder), value) => builder.append_value(float(value)?),
            (Build::F32(builder), value) => {
                let wide = float(value)?;
                #[expect(clippy::cast_possible_truncation, reason = "checked behind it")]
                let narrow = wide as f32;
                if f64::from(narrow) != wide && !wide.is_nan() {
                    return Err(Problem::Value("the number has more digits than a float32"));
                }
                builder.append_value(narrow);
            }
            (Build::Decimal128(builder, precision, scale), value) => {
                let (is_negative, value) = scaled(value, *precision, *scale)?;
                // At most 38 digits.
                let value = value.to_i128().ok_or(PRECISION)?;
                builder.append_value(if is_negative { -value } else { value });
            }
            (Build::Decimal256(builder, precision, scale), value) => {
                let (is_negative, value) = scaled(value, *precision, *scale)?;
                builder.append_value(if is_negative {
                    value.wrapping_neg()
                } else {
                    value
                });
            }
            (Build::String(builder), Value::String(text)) => builder.append_value(text),
            (Build::String(builder), value) => builder.append_value(text(value)?),
            (Build::AnyText(builder, style, json), value) => match text(value) {
                Ok(text) => builder.append_value(text),
                Err(_) => {
                    json.clear();
                    // A column of numbers that has no other form in the target reads the text, too.
                    let style = match value {
                        Value::Int32(_) | Value::Int64(_) | Value::Double(_) => Style::Relaxed,
                        _ => *style,
                    };
                    extjson::write_value(&value, style, json)?;
                    builder.append_value(utf8(json)?);
                }
            },
            (Build::LargeString(builder), value) => builder.append_value(text(value)?),
            (Build::Json(builder, style, json), value) => {
                json.clear();
                extjson::write_value(&value, *style, json)?;
                builder.append_value(utf8(json)?);
            }
            (Build::Binary(builder), value) => builder.append_value(generic(value)?),
            (Build::LargeBinary(builder), value) => builder.append_value(generic(value)?),
            (Build::FixedBinary(builder, width), value) => {
                let bytes = generic(value)?;
                if usize::try_from(*width) != Ok(bytes.len()) {
                    return Err(Problem::Value(
                        "the bytes have another length than the column's",
                    ));
                }
                builder.append_value(bytes).map_err(|_| Problem::TooLarge)?;
            }
            (Build::Uuid(builder), Value::Binary { subtype: 4, bytes }) if bytes.len() == 16 => {
                builder.append_value(bytes).map_err(|_| Problem::TooLarge)?;
            }
            (Build::Uuid(_), Value::Binary { subtype: 3, .. }) => {
                return Err(Problem::Value(
                    "the UUID has the older subtype 3, which does not say the order of its bytes",
                ));
            }
            (Build::Date(builder), Value::DateTime(ms)) => {
                if ms % DAY_MS != 0 {
                    return Err(Problem::Value("the date has a time of day"));
                }
                let days = i32::try_from(ms / DAY_MS).map_err(|_| FAR)?;
                builder.append_value(days);
            }
            (Build::Seconds(builder), Value::DateTime(ms)) => {
                if ms % 1000 != 0 {
                    return Err(Problem::Value("the date is finer than a second"));
                }
                builder.append_value(ms / 1000);
            }
            (Build::Millis(builder), Value::DateTime(ms)) => builder.append_value(ms),
            (Build::Micros(builder), Value::DateTime(ms)) => {
                builder.append_value(ms.checked_mul(1000).ok_or(FAR)?);
            }
            (Build::Nanos(builder), Value::DateTime(ms)) => {
                builder.append_value(ms.checked_mul(1_000_000).ok_or(FAR)?);
            }
            (Build::List(lengths, items), Value::Array(array)) => {
                for element in array.elements() {
                    items.push_at(&element?.1, depth + 1)?;
                }
                lengths.push(items.len(), true)?;
            }
            (Build::Map(lengths, keys, values), Value::Document(document)) => {
                for element in document.elements() {
                    let (key, value) = element?;
                    values.push_at(&value, depth + 1)?;
                    keys.append_value(key);
                }
                lengths.push(values.len(), true)?;
            }
            (Build::Struct(nulls, len, parts), Value::Document(document)) => {
                push_struct(parts, *len, document, depth)?;
                nulls.append(true);
                *len += 1;
            }
            (Build::Value(builder, bytes), value) => {
                bytes.clear();
                crate::put::native(&value, bytes);
                builder.append_value(bytes);
            }
            (_, value) => return Err(self.other_kind(value)),
        }
        Ok(())
    }

    fn push_null(&mut self) -> Pushed {
        match self.field.is_nullable() {
            true => self.append_null(),
            false => Err(Problem::Null),
        }
    }

    /// Appends NULL, also inside of a struct that is NULL, whatever its fields are declared as.
    fn append_null(&mut self) -> Pushed {
        each!(&mut self.build, builder => builder.append_null(), else {
            Build::Null(len) => *len += 1,
            Build::Struct(nulls, len, parts) => {
                for part in parts.iter_mut() {
                    part.append_null()?;
                }
                nulls.append(false);
                *len += 1;
            }
            Build::List(lengths, items) => lengths.push(items.len(), false)?,
            Build::Map(lengths, _, values) => lengths.push(values.len(), false)?,
        });
        Ok(())
    }

    fn other_kind(&self, value: Value<'_>) -> Problem {
        Problem::Kind {
            found: value.kind(),
            column: type_name(&self.field),
        }
    }
}

/// Appends the fields of a document to the columns of a struct, which has `rows` rows.
fn push_struct(parts: &mut [Column], rows: usize, document: Document<'_>, depth: usize) -> Pushed {
    for (at, element) in document.elements().enumerate() {
        let (name, value) = element?;
        // Documents of one shape have their fields in one order.
        let part = match parts.get(at).is_some_and(|part| part.name() == name) {
            true => parts.get_mut(at),
            false => parts.iter_mut().find(|part| part.name() == name),
        };
        // What a struct does not have would be lost.
        let part = part.ok_or_else(|| Problem::Unknown(name.to_owned()))?;
        if part.len() > rows {
            return Err(Problem::Twice(name.to_owned()));
        }
        part.push_at(&value, depth + 1)?;
    }
    for part in parts {
        if part.len() == rows {
            part.push_null()?;
        }
    }
    Ok(())
}
