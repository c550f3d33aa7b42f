//! From the types of Parquet to portable ones.
//!
//! | Parquet | portable |
//! | --- | --- |
//! | BOOLEAN, INT32, INT64, FLOAT, DOUBLE | `bool`, `int32`, `int64`, `float32`, `float64` |
//! | BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY | `binary`, `fixed_binary(n)` |
//! | INTEGER(n, signed) | `int8` … `uint64` |
//! | DECIMAL(p, s) up to 76 digits, DATE, UUID | the same |
//! | FLOAT16 | `float32` |
//! | STRING, ENUM; JSON | `string`; `json` |
//! | TIME, TIMESTAMP in ms, us, ns | `time(…)`, `timestamp(…)`, with zone UTC where adjusted |
//! | INT96 (a timestamp of old files) | `timestamp(ns)`; a value beyond the years 1677 to 2262 is refused at its row |
//! | INTERVAL | `interval` |
//! | LIST, MAP, groups | `list<…>`, `map<…>`, `struct<…>` |
//! | BSON, GEOMETRY, GEOGRAPHY, annotations of the future | `binary`, their bytes |
//! | VARIANT | refused |
//!
//! Where the writer left its Arrow schema in the file (`ARROW:schema`), zones, large strings,
//! durations and extension types come from there; what it calls date64 is a date, and a list of one
//! length is a list. See "LogicalTypes.md" of Parquet.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::{ArrowSchemaConverter, parquet_to_arrow_schema};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit as ParquetUnit, Type as Physical};
use parquet::file::metadata::KeyValue;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use rapidbyte_wire::types::check_portable;

use super::malformed;
use crate::ColumnarError;
use crate::portable::{self, portable_field};

/// The columns of a file.
pub(crate) struct FileSchema {
    /// As they are given out.
    pub portable: SchemaRef,
    pub source_types: Vec<String>,
    pub notes: Vec<String>,
    /// As they are decoded: texts as bytes, because they are validated here; intervals as bytes.
    pub inward: SchemaDescPtr,
    /// The Arrow types to decode to, for every column.
    pub hints: Fields,
    /// Columns of INT96, by place.
    pub int96: Vec<usize>,
}

/// Reads the schema, with what the writer's Arrow schema says beside it.
pub(crate) fn read(
    descriptor: &SchemaDescPtr,
    metadata: Option<&Vec<KeyValue>>,
) -> Result<FileSchema, ColumnarError> {
    let root = descriptor.root_schema();
    for field in root.get_fields() {
        if let Some(reason) = refusal(field, true) {
            return Err(ColumnarError::unsupported(field.name(), reason));
        }
    }
    let rewritten = |annotation: Annotation| -> Result<SchemaDescPtr, ColumnarError> {
        let root = rewrite(&descriptor.root_schema_ptr(), annotation).map_err(|e| malformed(&e))?;
        Ok(Arc::new(SchemaDescriptor::new(root)))
    };
    let outward = rewritten(outward)?;
    let inward = rewritten(inward)?;
    // An Arrow schema that does not fit the file's own is only advice.
    let arrow = parquet_to_arrow_schema(&outward, metadata)
        .or_else(|_| parquet_to_arrow_schema(&outward, None))
        .map_err(|error| {
            let error = malformed(&error);
            ColumnarError::new("unsupported_type", error.message)
        })?;
    let mut notes: Vec<_> = root.get_fields().iter().filter_map(|f| note(f)).collect();
    let mut fields = Vec::new();
    let mut hints = Vec::new();
    let mut int96 = Vec::new();
    for (place, (field, parquet)) in arrow.fields().iter().zip(root.get_fields()).enumerate() {
        let mut field = field.as_ref().clone();
        if is_int96(parquet) {
            int96.push(place);
            field.set_data_type(DataType::Timestamp(TimeUnit::Nanosecond, None));
        }
        fields.push(checked(portable_field(&field)?)?);
        notes.extend(portable::note(&field));
        let hint = hint(field.data_type());
        hints.push(field.with_data_type(hint));
    }
    if fields.len() != root.get_fields().len() {
        return Err(ColumnarError::new(
            "unsupported_type",
            "a column is a group without columns",
        ));
    }
    let portable = Schema::new(fields);
    check_portable(&portable)
        .map_err(|error| ColumnarError::new("unsupported_type", error.to_string()))?;
    Ok(FileSchema {
        portable: Arc::new(portable),
        source_types: root.get_fields().iter().map(|f| type_name(f)).collect(),
        notes,
        inward,
        hints: hints.into(),
        int96,
    })
}

/// The name of a field's type in a file that is written here; an error where it has none.
pub(crate) fn written_type(field: &Field) -> Result<String, ColumnarError> {
    let schema = Schema::new(vec![field.clone()]);
    let descriptor = ArrowSchemaConverter::new()
        .with_coerce_types(true)
        .convert(&schema)
        .map_err(|error| ColumnarError::unsupported(field.name(), malformed(&error).message))?;
    let field = descriptor.root_schema().get_fields().first();
    Ok(field.map_or_else(String::new, |field| type_name(field)))
}

/// Numbers of a type that the crates below take as they come.
fn checked(field: Field) -> Result<Field, ColumnarError> {
    let reason = match field.data_type() {
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s)
            if *p == 0 || *p > 76 || *s < 0 || s.unsigned_abs() > *p =>
        {
            format!("it is a decimal of {p} digits, {s} of them decimals")
        }
        _ => return Ok(field),
    };
    Err(ColumnarError::unsupported(field.name(), reason))
}

/// The Arrow type to decode to, for an Arrow type to give out.
fn hint(data_type: &DataType) -> DataType {
    let below = |field: &Arc<Field>| {
        let data_type = hint(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::BinaryView,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, value) => hint(value),
        DataType::Interval(_) => DataType::FixedSizeBinary(12),
        DataType::List(item) => DataType::List(below(item)),
        DataType::LargeList(item) => DataType::LargeList(below(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(below(item), *n),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(below).collect()),
        DataType::Map(entries, sorted) => DataType::Map(below(entries), *sorted),
        plain => plain.clone(),
    }
}

/// The new annotation of a leaf; `None` keeps the leaf as it is.
type Annotation = fn(&Type) -> Option<Option<LogicalType>>;

/// Texts are decoded as bytes.
fn inward(leaf: &Type) -> Option<Option<LogicalType>> {
    let is_text = leaf.get_physical_type() == Physical::BYTE_ARRAY && !is_decimal(leaf);
    let is_interval = leaf.get_basic_info().converted_type() == ConvertedType::INTERVAL;
    (is_text || is_interval).then_some(None)
}

/// An enum is a text.
fn outward(leaf: &Type) -> Option<Option<LogicalType>> {
    is_enum(leaf).then_some(Some(LogicalType::String))
}

fn is_enum(leaf: &Type) -> bool {
    let info = leaf.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Enum))
        || (info.logical_type_ref().is_none() && info.converted_type() == ConvertedType::ENUM)
}

fn is_decimal(leaf: &Type) -> bool {
    let info = leaf.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Decimal { .. }))
        || info.converted_type() == ConvertedType::DECIMAL
}

fn is_int96(field: &Type) -> bool {
    field.is_primitive() && field.get_physical_type() == Physical::INT96
}

/// The same tree with other annotations. Its depth is bounded by the footer's check.
fn rewrite(field: &TypePtr, annotation: Annotation) -> parquet::errors::Result<TypePtr> {
    let info = field.get_basic_info();
    let id = info.has_id().then(|| info.id());
    if field.is_primitive() {
        let Some(logical) = annotation(field) else {
            return Ok(field.clone());
        };
        let length = match &**field {
            Type::PrimitiveType { type_length, .. } => *type_length,
            Type::GroupType { .. } => -1,
        };
        let leaf = Type::primitive_type_builder(field.name(), field.get_physical_type())
            .with_repetition(info.repetition())
            .with_logical_type(logical)
            .with_length(length)
            .with_id(id)
            .build()?;
        return Ok(Arc::new(leaf));
    }
    let fields = field.get_fields().iter();
    let fields = fields
        .map(|field| rewrite(field, annotation))
        .collect::<Result<_, _>>()?;
    let mut group = Type::group_type_builder(field.name())
        .with_fields(fields)
        .with_logical_type(info.logical_type_ref().cloned())
        .with_converted_type(info.converted_type())
        .with_id(id);
    if info.has_repetition() {
        group = group.with_repetition(info.repetition());
    }
    Ok(Arc::new(group.build()?))
}

/// Why a column cannot be read, if it cannot.
fn refusal(field: &Type, is_column: bool) -> Option<String> {
    if field.is_primitive() {
        return match field.get_physical_type() {
            Physical::INT96 if !is_column => {
                Some("timestamps of type INT96 inside it are not supported".into())
            }
            _ => None,
        };
    }
    if matches!(
        field.get_basic_info().logical_type_ref(),
        Some(LogicalType::Variant { .. })
    ) {
        return Some("its type VARIANT is not supported".into());
    }
    let fields = field.get_fields().iter();
    fields.filter_map(|field| refusal(field, false)).next()
}

/// A note for the user about a column's values.
fn note(field: &Type) -> Option<String> {
    let name = field.name();
    if !field.is_primitive() {
        return None;
    }
    if is_int96(field) {
        return Some(format!(
            "column {name:?}: INT96 is read as nanoseconds since 1970 without a zone"
        ));
    }
    let info = field.get_basic_info();
    let what = match info.logical_type_ref() {
        Some(LogicalType::Bson) => "BSON",
        Some(LogicalType::Geometry { .. }) => "GEOMETRY",
        Some(LogicalType::Geography { .. }) => "GEOGRAPHY",
        None if info.converted_type() == ConvertedType::BSON => "BSON",
        _ => return None,
    };
    Some(format!(
        "column {name:?}: the bytes of {what} are read unchanged"
    ))
}

/// A type as Parquet's documents write it: `INT64`, `BYTE_ARRAY STRING`, `INT32 DECIMAL(9, 2)`.
fn type_name(field: &Type) -> String {
    let info = field.get_basic_info();
    let annotation = match info.logical_type_ref() {
        Some(logical) => logical_name(logical),
        None => match info.converted_type() {
            ConvertedType::NONE => String::new(),
            ConvertedType::UTF8 => "STRING".into(),
            ConvertedType::DECIMAL => match field {
                Type::PrimitiveType {
                    precision, scale, ..
                } => format!("DECIMAL({precision}, {scale})"),
                Type::GroupType { .. } => "DECIMAL".into(),
            },
            other => other.to_string(),
        },
    };
    let physical = match field {
        Type::GroupType { .. } if annotation.is_empty() => "group".to_owned(),
        Type::GroupType { .. } => return annotation,
        Type::PrimitiveType {
            physical_type: Physical::FIXED_LEN_BYTE_ARRAY,
            type_length,
            ..
        } => format!("FIXED_LEN_BYTE_ARRAY({type_length})"),
        Type::PrimitiveType { physical_type, .. } => physical_type.to_string(),
    };
    match annotation.is_empty() {
        true => physical,
        false => format!("{physical} {annotation}"),
    }
}

fn logical_name(logical: &LogicalType) -> String {
    let unit = |unit: &ParquetUnit| match unit {
        ParquetUnit::MILLIS => "MILLIS",
        ParquetUnit::MICROS => "MICROS",
        ParquetUnit::NANOS => "NANOS",
    };
    match logical {
        LogicalType::String => "STRING".into(),
        LogicalType::Map => "MAP".into(),
        LogicalType::List => "LIST".into(),
        LogicalType::Enum => "ENUM".into(),
        LogicalType::Decimal(d) => format!("DECIMAL({}, {})", d.precision, d.scale),
        LogicalType::Date => "DATE".into(),
        LogicalType::Time(t) => format!("TIME({})", unit(&t.unit)),
        LogicalType::Timestamp(t) if t.is_adjusted_to_u_t_c => {
            format!("TIMESTAMP({}, UTC)", unit(&t.unit))
        }
        LogicalType::Timestamp(t) => format!("TIMESTAMP({})", unit(&t.unit)),
        LogicalType::Integer(i) => {
            let sign = if i.is_signed { "signed" } else { "unsigned" };
            format!("INTEGER({}, {sign})", i.bit_width)
        }
        LogicalType::Unknown => "UNKNOWN".into(),
        LogicalType::Json => "JSON".into(),
        LogicalType::Bson => "BSON".into(),
        LogicalType::Uuid => "UUID".into(),
        LogicalType::Float16 => "FLOAT16".into(),
        LogicalType::Variant { .. } => "VARIANT".into(),
        LogicalType::Geometry { .. } => "GEOMETRY".into(),
        LogicalType::Geography { .. } => "GEOGRAPHY".into(),
        _ => "of an unknown kind".into(),
    }
}
