//! The values of one column, ready to be written row by row.

mod write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, IntervalMonthDayNanoType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use rapidbyte_bson::{Document, Kind};
use rapidbyte_wire::types::{is_json, is_uuid, type_name};

use super::{EncodeOptions, JsonDocuments, Nulls, SubMillisecond};
use crate::error::{MongoError, Owner, Problem};
use crate::form::{self, Native};
use crate::put;

/// One column of a batch. Holds references to the batch's buffers.
pub(super) struct Column {
    /// The type, the name and its end.
    head: Vec<u8>,
    /// The same for NULL. Empty where NULL is left out.
    null: Vec<u8>,
    name: String,
    nulls: Option<NullBuffer>,
    cells: Cells,
}

enum Cells {
    Null,
    Bool(BooleanBuffer),
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
    F16(PrimitiveArray<Float16Type>),
    F32(ScalarBuffer<f32>),
    F64(ScalarBuffer<f64>),
    Decimal128(Decimal128Array, i8),
    Decimal256(Decimal256Array, i8),
    String(StringArray),
    LargeString(LargeStringArray),
    Json(StringArray),
    ObjectId(StringArray),
    DecimalText(StringArray),
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    /// With the subtype.
    FixedBinary(FixedSizeBinaryArray, u8),
    Date32(ScalarBuffer<i32>),
    /// Milliseconds.
    Millis(ScalarBuffer<i64>),
    Seconds(ScalarBuffer<i64>),
    /// With the number of units of a millisecond, and whether finer times are cut.
    Fine(ScalarBuffer<i64>, i64, bool),
    /// True with a zone.
    TimestampText(ScalarBuffer<i64>, TimeUnit, bool),
    Time32(ScalarBuffer<i32>, TimeUnit),
    Time64(ScalarBuffer<i64>, TimeUnit),
    Duration(ScalarBuffer<i64>, TimeUnit),
    Interval(PrimitiveArray<IntervalMonthDayNanoType>),
    /// Where each row begins, and where the last one ends.
    List(Vec<usize>, Box<Column>),
    FixedList(usize, Box<Column>),
    Struct(Vec<Column>),
    Map(Vec<usize>, Keys, Box<Column>),
    Value(BinaryArray),
    Document(BinaryArray),
}

/// The keys of a map.
enum Keys {
    Short(StringArray),
    Long(LargeStringArray),
}

impl Keys {
    fn value(&self, at: usize) -> &str {
        match self {
            Self::Short(keys) => keys.value(at),
            Self::Long(keys) => keys.value(at),
        }
    }
}

fn fixed<T: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<T> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

fn offsets<T: Copy + ArrowNativeType>(offsets: &[T]) -> Vec<usize> {
    offsets.iter().map(|offset| offset.as_usize()).collect()
}

impl Cells {
    /// The values and their type. Native values have types of their own, which are written with each.
    fn new(
        field: &Field,
        array: &ArrayRef,
        options: EncodeOptions,
    ) -> Result<(Kind, Self), MongoError> {
        if let Some(native) = Native::of(field) {
            let bytes = array.as_binary::<i32>().clone();
            return Ok(match native {
                Native::Document => (Kind::Document, Self::Document(bytes)),
                Native::Value => (Kind::Null, Self::Value(bytes)),
            });
        }
        if form::is_opaque(field) {
            return Err(refused(field, "are in the native form of another system"));
        }
        let item = |field: &Field, array: &ArrayRef| {
            // An element that is left out would move the elements behind it.
            let options = EncodeOptions {
                nulls: Nulls::Write,
                ..options
            };
            Column::new(field, array, options).map(Box::new)
        };
        Ok(match field.data_type() {
            DataType::Null => (Kind::Null, Self::Null),
            DataType::Boolean => (
                Kind::Boolean,
                Self::Bool(array.as_boolean().values().clone()),
            ),
            DataType::Int8 => (Kind::Int32, Self::I8(fixed(array))),
            DataType::Int16 => (Kind::Int32, Self::I16(fixed(array))),
            DataType::Int32 => (Kind::Int32, Self::I32(fixed(array))),
            DataType::Int64 => (Kind::Int64, Self::I64(fixed(array))),
            DataType::UInt8 => (Kind::Int32, Self::U8(fixed(array))),
            DataType::UInt16 => (Kind::Int32, Self::U16(fixed(array))),
            DataType::UInt32 => (Kind::Int64, Self::U32(fixed(array))),
            DataType::UInt64 => (Kind::Int64, Self::U64(fixed(array))),
            DataType::Float16 => (Kind::Double, Self::F16(array.as_primitive().clone())),
            DataType::Float32 => (Kind::Double, Self::F32(fixed(array))),
            DataType::Float64 => (Kind::Double, Self::F64(fixed(array))),
            DataType::Decimal128(_, scale) => (
                Kind::Decimal128,
                Self::Decimal128(array.as_primitive().clone(), *scale),
            ),
            DataType::Decimal256(_, scale) => (
                Kind::Decimal128,
                Self::Decimal256(array.as_primitive().clone(), *scale),
            ),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>().clone();
                match form::marked(field) {
                    _ if is_json(field) => match options.json {
                        JsonDocuments::Values => (Kind::Document, Self::Json(texts)),
                        JsonDocuments::Text => (Kind::String, Self::String(texts)),
                    },
                    Some(Kind::ObjectId) => (Kind::ObjectId, Self::ObjectId(texts)),
                    Some(Kind::Decimal128) => (Kind::Decimal128, Self::DecimalText(texts)),
                    _ => (Kind::String, Self::String(texts)),
                }
            }
            DataType::LargeUtf8 => (
                Kind::String,
                Self::LargeString(array.as_string::<i64>().clone()),
            ),
            DataType::Binary => (Kind::Binary, Self::Binary(array.as_binary::<i32>().clone())),
            DataType::LargeBinary => (
                Kind::Binary,
                Self::LargeBinary(array.as_binary::<i64>().clone()),
            ),
            DataType::FixedSizeBinary(_) => {
                let subtype = if is_uuid(field) { 4 } else { 0 };
                let bytes = array.as_fixed_size_binary().clone();
                (Kind::Binary, Self::FixedBinary(bytes, subtype))
            }
            DataType::Date32 => (Kind::DateTime, Self::Date32(fixed(array))),
            DataType::Date64 => (Kind::DateTime, Self::Millis(fixed(array))),
            DataType::Timestamp(unit, zone) => {
                let values = fixed(array);
                let per_milli = match unit {
                    TimeUnit::Second => return Ok((Kind::DateTime, Self::Seconds(values))),
                    TimeUnit::Millisecond => return Ok((Kind::DateTime, Self::Millis(values))),
                    TimeUnit::Microsecond => 1_000,
                    TimeUnit::Nanosecond => 1_000_000,
                };
                match options.sub_millisecond {
                    SubMillisecond::Refuse => {
                        (Kind::DateTime, Self::Fine(values, per_milli, false))
                    }
                    SubMillisecond::Cut => (Kind::DateTime, Self::Fine(values, per_milli, true)),
                    SubMillisecond::Text => (
                        Kind::String,
                        Self::TimestampText(values, *unit, zone.is_some()),
                    ),
                }
            }
            DataType::Time32(unit) => (Kind::String, Self::Time32(fixed(array), *unit)),
            DataType::Time64(unit) => (Kind::String, Self::Time64(fixed(array), *unit)),
            DataType::Duration(unit) => (Kind::String, Self::Duration(fixed(array), *unit)),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                (Kind::String, Self::Interval(array.as_primitive().clone()))
            }
            DataType::List(element) => {
                let list = array.as_list::<i32>();
                let starts = offsets(list.offsets());
                (
                    Kind::Array,
                    Self::List(starts, item(element, list.values())?),
                )
            }
            DataType::LargeList(element) => {
                let list = array.as_list::<i64>();
                let starts = offsets(list.offsets());
                (
                    Kind::Array,
                    Self::List(starts, item(element, list.values())?),
                )
            }
            DataType::FixedSizeList(element, width) => {
                let list = array.as_fixed_size_list();
                let width = usize::try_from(*width).unwrap_or_default();
                (
                    Kind::Array,
                    Self::FixedList(width, item(element, list.values())?),
                )
            }
            DataType::Struct(fields) => {
                let parts = fields.iter().zip(array.as_struct().columns());
                let parts = parts.map(|(field, array)| Column::new(field, array, options));
                (
                    Kind::Document,
                    Self::Struct(parts.collect::<Result<_, _>>()?),
                )
            }
            DataType::Map(entries, _) => {
                let map = array.as_map();
                let keys = match map.keys().data_type() {
                    DataType::Utf8 => Keys::Short(map.keys().as_string().clone()),
                    DataType::LargeUtf8 => Keys::Long(map.keys().as_string().clone()),
                    _ => return Err(refused(field, "have keys that are not strings")),
                };
                let DataType::Struct(pair) = entries.data_type() else {
                    return Err(refused(field, "are not pairs"));
                };
                let starts = offsets(map.offsets());
                (
                    Kind::Document,
                    Self::Map(starts, keys, item(&pair[1], map.values())?),
                )
            }
            _ => return Err(refused(field, "have a type that BSON does not have")),
        })
    }
}

fn refused(field: &Field, why: &str) -> MongoError {
    let text = format!(
        "column {:?}: its values of type {} {why}",
        field.name(),
        type_name(field)
    );
    MongoError::new(Owner::Schema, "type_refused", text)
        .hint("convert the column in the source or by a transform, or leave it out")
        .in_column(field.name())
}

impl Column {
    pub(super) fn new(
        field: &Field,
        array: &ArrayRef,
        options: EncodeOptions,
    ) -> Result<Self, MongoError> {
        let name = field.name().clone();
        if name.contains('\0') {
            let text =
                format!("the name {name:?} contains a NUL character, which BSON cannot hold");
            return Err(MongoError::new(Owner::Schema, "invalid_name", text).in_column(&name));
        }
        if array.data_type() != field.data_type() {
            let text = "a batch has other types than its schema";
            let error = MongoError::new(Owner::Internal, "malformed_batch", text);
            return Err(error.in_column(&name));
        }
        let (kind, cells) = Cells::new(field, array, options)?;
        let head = |kind: Kind| {
            let mut head = vec![kind.byte()];
            put::name(&mut head, &name);
            head
        };
        Ok(Self {
            head: head(kind),
            null: match options.nulls {
                Nulls::Write => head(Kind::Null),
                Nulls::Omit => Vec::new(),
            },
            // Of an array without NULL nothing has to be asked.
            nulls: array
                .nulls()
                .filter(|nulls| nulls.null_count() > 0)
                .cloned(),
            name,
            cells,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Appends the field.
    #[inline]
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        if self.is_null(row) {
            out.extend_from_slice(&self.null);
            return Ok(());
        }
        if let Cells::Document(documents) = &self.cells {
            let document = Document::parse(documents.value(row))?;
            out.extend_from_slice(document.elements().rest());
            return Ok(());
        }
        let tag = out.len();
        out.extend_from_slice(&self.head);
        self.cells.write(row, tag, out)
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        match &self.nulls {
            Some(nulls) => nulls.is_null(row),
            None => matches!(self.cells, Cells::Null),
        }
    }

    /// Appends the element of an array or of a map under this name.
    fn write_as(&self, name: Name<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let tag = out.len();
        let is_null = self.is_null(row);
        let kind = match &self.cells {
            _ if is_null => Kind::Null.byte(),
            _ => self.head[0],
        };
        out.push(kind);
        match name {
            Name::Index(index) => put::index(out, index),
            Name::Key(key) if key.contains('\0') => {
                return Err(Problem::Value(
                    "a key contains a NUL character, which BSON cannot hold",
                ));
            }
            Name::Key(key) => put::name(out, key),
        }
        match &self.cells {
            _ if is_null => Ok(()),
            Cells::Document(documents) => {
                let document = Document::parse(documents.value(row))?;
                out.extend_from_slice(document.as_bytes());
                Ok(())
            }
            cells => cells.write(row, tag, out),
        }
    }
}

enum Name<'a> {
    Index(usize),
    Key(&'a str),
}
