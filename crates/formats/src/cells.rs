//! Reads the values of an Arrow column, row by row, and writes them as text or as JSON.

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::{
    ArrowNativeType, BooleanBuffer, IntervalMonthDayNano, NullBuffer, ScalarBuffer, i256,
};
use arrow_schema::{DataType, FieldRef, IntervalUnit, TimeUnit};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use rapidbyte_wire::name::shown;
use rapidbyte_wire::types::{data_type_name, is_json, is_uuid};

use crate::error::{FormatError, Misfit};
use crate::exact;
use crate::json;
use crate::spelling::is_bare_float;
use crate::text::{self, Reason, bytes, decimal, duration, number, time};

type Fit = Result<(), Box<Misfit>>;

/// Whole numbers up to here are exact in a float64 (ECMAScript, `Number.MAX_SAFE_INTEGER`).
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// How values are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As in a file: decimals are numbers, documents are embedded.
    File,
    /// For a row that is read again. A document that is `null`, a string, or not on one line, and a float that is not
    /// finite become the string of their text.
    Object,
    /// For a program whose reader of JSON makes floats of numbers: decimals and documents are strings. With
    /// `wide_texts`, whole numbers that a float64 does not hold are strings too.
    Values { wide_texts: bool },
    /// For a database that holds JSON: decimals are strings. The database makes a float64 of each number, so a number that
    /// a float64 does not hold is refused, unless the database keeps the digits (`exact_numbers`). With `text_integers`,
    /// all integers of 64 bits are strings. Documents are embedded, or strings with `text_json`. With `base64`, bytes are
    /// in Base64.
    Document {
        text_integers: bool,
        text_json: bool,
        exact_numbers: bool,
        base64: bool,
    },
}

/// One column of a batch. Holds references to the batch's buffers.
pub(crate) struct Cells {
    field: FieldRef,
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
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
    F32(ScalarBuffer<f32>),
    /// True if whole values are written without a point in CSV.
    F64(ScalarBuffer<f64>, bool),
    Decimal128(ScalarBuffer<i128>, i8),
    Decimal256(ScalarBuffer<i256>, i8),
    Date(ScalarBuffer<i32>),
    Time32(ScalarBuffer<i32>, TimeUnit),
    Time64(ScalarBuffer<i64>, TimeUnit),
    Timestamp(ScalarBuffer<i64>, TimeUnit, bool),
    Duration(ScalarBuffer<i64>, TimeUnit),
    Interval(ScalarBuffer<IntervalMonthDayNano>),
    Uuid(arrow_array::FixedSizeBinaryArray),
    FixedBinary(arrow_array::FixedSizeBinaryArray),
    Binary(arrow_array::BinaryArray),
    LargeBinary(arrow_array::LargeBinaryArray),
    String(arrow_array::StringArray),
    LargeString(arrow_array::LargeStringArray),
    Json(arrow_array::StringArray),
    /// Where each row begins, and where the last one ends.
    List(Vec<usize>, Box<Cells>),
    Struct(Vec<Cells>),
    /// Offsets, keys, values.
    Map(Vec<usize>, Box<[Cells; 2]>),
}

fn fixed<T: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<T> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

impl Values {
    fn of(field: &FieldRef, array: &ArrayRef) -> Result<Self, FormatError> {
        Ok(match field.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean().values().clone()),
            DataType::Int8 => Self::I8(fixed(array)),
            DataType::Int16 => Self::I16(fixed(array)),
            DataType::Int32 => Self::I32(fixed(array)),
            DataType::Int64 => Self::I64(fixed(array)),
            DataType::UInt8 => Self::U8(fixed(array)),
            DataType::UInt16 => Self::U16(fixed(array)),
            DataType::UInt32 => Self::U32(fixed(array)),
            DataType::UInt64 => Self::U64(fixed(array)),
            DataType::Float32 => Self::F32(fixed(array)),
            DataType::Float64 => Self::F64(fixed(array), is_bare_float(field)),
            DataType::Decimal128(_, s) if *s >= 0 => Self::Decimal128(fixed(array), *s),
            DataType::Decimal256(_, s) if *s >= 0 => Self::Decimal256(fixed(array), *s),
            DataType::Date32 => Self::Date(fixed(array)),
            DataType::Time32(unit) => Self::Time32(fixed(array), *unit),
            DataType::Time64(unit) => Self::Time64(fixed(array), *unit),
            DataType::Timestamp(unit, zone) => Self::Timestamp(fixed(array), *unit, zone.is_some()),
            DataType::Duration(unit) => Self::Duration(fixed(array), *unit),
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval(fixed(array)),
            DataType::FixedSizeBinary(16) if is_uuid(field) => {
                Self::Uuid(array.as_fixed_size_binary().clone())
            }
            DataType::FixedSizeBinary(_) => Self::FixedBinary(array.as_fixed_size_binary().clone()),
            DataType::Binary => Self::Binary(array.as_binary::<i32>().clone()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary::<i64>().clone()),
            DataType::Utf8 if is_json(field) => Self::Json(array.as_string::<i32>().clone()),
            DataType::Utf8 => Self::String(array.as_string::<i32>().clone()),
            DataType::LargeUtf8 => Self::LargeString(array.as_string::<i64>().clone()),
            DataType::List(item) => {
                let list = array.as_list::<i32>();
                Self::List(
                    offsets(list.offsets()),
                    Box::new(Cells::new(item, list.values())?),
                )
            }
            DataType::LargeList(item) => {
                let list = array.as_list::<i64>();
                Self::List(
                    offsets(list.offsets()),
                    Box::new(Cells::new(item, list.values())?),
                )
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let cells = fields.iter().zip(columns).map(|(f, c)| Cells::new(f, c));
                Self::Struct(cells.collect::<Result<_, _>>()?)
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(kv) if kv.len() == 2 => {
                    let map = array.as_map();
                    Self::Map(
                        offsets(map.offsets()),
                        Box::new([
                            Cells::new(&kv[0], map.keys())?,
                            Cells::new(&kv[1], map.values())?,
                        ]),
                    )
                }
                _ => return Err(FormatError::unsupported(field)),
            },
            _ => return Err(FormatError::unsupported(field)),
        })
    }
}

fn offsets<T: ArrowNativeType>(offsets: &[T]) -> Vec<usize> {
    offsets.iter().map(|o| o.as_usize()).collect()
}

impl Cells {
    /// The values of `array`, which must be of the field's type.
    pub(crate) fn new(field: &FieldRef, array: &ArrayRef) -> Result<Self, FormatError> {
        if !array.data_type().equals_datatype(field.data_type()) {
            return Err(FormatError::new(
                "schema_mismatch",
                format!(
                    "column {:?} has values of type {}, but {} was declared",
                    field.name(),
                    data_type_name(array.data_type()),
                    data_type_name(field.data_type())
                ),
            )
            .column(field.name()));
        }
        Ok(Self {
            values: Values::of(field, array)?,
            field: field.clone(),
            nulls: array.nulls().cloned(),
        })
    }

    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match &self.nulls {
            Some(nulls) => nulls.is_null(row),
            None => matches!(self.values, Values::Null),
        }
    }

    fn misfit(&self, reason: Reason) -> Box<Misfit> {
        Misfit::new(
            "value_does_not_fit",
            &self.field,
            format!("a value {reason}"),
        )
    }

    /// The text of a value that deserves room of its own.
    pub(crate) fn large_text(&self, row: usize) -> Option<&[u8]> {
        let text = match &self.values {
            Values::String(v) | Values::Json(v) => v.value(row),
            Values::LargeString(v) => v.value(row),
            _ => return None,
        };
        (text.len() > json::LARGE_BYTES).then_some(text.as_bytes())
    }

    /// Appends the text of a value that is not NULL; JSON for lists, structs and maps.
    pub(crate) fn write_text(&self, row: usize, out: &mut Vec<u8>) -> Fit {
        match &self.values {
            Values::Null => {}
            Values::Bool(v) => text::write_bool(v.value(row), out),
            Values::I8(v) => number::write_int(v[row], out),
            Values::I16(v) => number::write_int(v[row], out),
            Values::I32(v) => number::write_int(v[row], out),
            Values::I64(v) => number::write_int(v[row], out),
            Values::U8(v) => number::write_int(v[row], out),
            Values::U16(v) => number::write_int(v[row], out),
            Values::U32(v) => number::write_int(v[row], out),
            Values::U64(v) => number::write_int(v[row], out),
            Values::F32(v) => number::write_float(v[row], out),
            Values::F64(v, bare) => number::write_float_as(v[row], *bare, out),
            Values::Decimal128(v, s) => decimal::write_i128(v[row], *s, out),
            Values::Decimal256(v, s) => {
                decimal::write_i256(v[row], *s, out).map_err(|r| self.misfit(r))?;
            }
            Values::Date(v) => time::write_date(v[row], out),
            Values::Time32(v, unit) => {
                time::write_time(v[row].into(), *unit, out).map_err(|r| self.misfit(r))?;
            }
            Values::Time64(v, unit) => {
                time::write_time(v[row], *unit, out).map_err(|r| self.misfit(r))?;
            }
            Values::Timestamp(v, unit, zoned) => {
                time::write_timestamp(v[row], *unit, *zoned, out);
            }
            Values::Duration(v, unit) => duration::write_duration(v[row], *unit, out),
            Values::Interval(v) => duration::write_interval(v[row], out),
            Values::Uuid(v) => match v.value(row).try_into() {
                Ok(uuid) => bytes::write_uuid(uuid, out),
                Err(_) => return Err(self.misfit("is not 16 bytes")),
            },
            Values::FixedBinary(v) => bytes::write_binary(v.value(row), out),
            Values::Binary(v) => bytes::write_binary(v.value(row), out),
            Values::LargeBinary(v) => bytes::write_binary(v.value(row), out),
            Values::String(v) | Values::Json(v) => out.extend_from_slice(v.value(row).as_bytes()),
            Values::LargeString(v) => out.extend_from_slice(v.value(row).as_bytes()),
            Values::List(..) | Values::Struct(_) | Values::Map(..) => {
                self.write_json(row, Form::File, out)?;
            }
        }
        Ok(())
    }

    /// Appends the value as JSON, `null` for NULL.
    pub(crate) fn write_json(&self, row: usize, form: Form, out: &mut Vec<u8>) -> Fit {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match &self.values {
            Values::F32(v) if form == Form::Object && !v[row].is_finite() => {
                self.write_quoted(row, out)?;
            }
            Values::F64(v, _) if form == Form::Object && !v[row].is_finite() => {
                self.write_quoted(row, out)?;
            }
            Values::Json(v) if form == Form::Object => {
                let document = v.value(row);
                let start = out.len();
                if document.starts_with('"') || self.write_document(document, out).is_err() {
                    out.truncate(start);
                    json::write_string(document, out);
                }
            }
            Values::Json(v)
                if let Form::Document {
                    text_json: false,
                    exact_numbers,
                    ..
                } = form =>
            {
                let written = exact::write_document(v.value(row), exact_numbers, out);
                return written.map_err(|(code, reason)| {
                    Misfit::value(&self.field, v.value(row).as_bytes(), &reason).coded(code)
                });
            }
            Values::F32(v) if !v[row].is_finite() => return Err(self.not_finite(v[row].into())),
            Values::F64(v, _) if !v[row].is_finite() => return Err(self.not_finite(v[row])),
            Values::F32(_) | Values::F64(..) if self.is_inexact(row, form) => {
                return Err(Misfit::value(&self.field, b"-0.0", exact::SIGN).coded(exact::CODE));
            }
            // A point shows JSON's readers that the type is not an integer.
            Values::F64(v, _) => number::write_float(v[row], out),
            Values::String(v) => json::write_string(v.value(row), out),
            Values::LargeString(v) => json::write_string(v.value(row), out),
            Values::Json(v) if form == Form::File => {
                return self.write_document(v.value(row), out);
            }
            Values::Json(v) => json::write_string(v.value(row), out),
            _ if self.is_text(row, form) => self.write_quoted(row, out)?,
            Values::I64(_) | Values::U64(_) if self.is_inexact(row, form) => {
                let mut text = Vec::new();
                self.write_text(row, &mut text)?;
                return Err(Misfit::value(&self.field, &text, exact::REASON).coded(exact::CODE));
            }
            Values::FixedBinary(_) | Values::Binary(_) | Values::LargeBinary(_)
                if matches!(form, Form::Document { base64: true, .. }) =>
            {
                let bytes = match &self.values {
                    Values::FixedBinary(v) => v.value(row),
                    Values::Binary(v) => v.value(row),
                    Values::LargeBinary(v) => v.value(row),
                    _ => &[],
                };
                json::reserve(bytes.len().div_ceil(3) * 4 + 2, out);
                out.push(b'"');
                out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
                out.push(b'"');
            }
            Values::FixedBinary(_) | Values::Binary(_) | Values::LargeBinary(_) => {
                // `\x…`: the backslash is escaped.
                out.extend_from_slice(b"\"\\");
                self.write_text(row, out)?;
                out.push(b'"');
            }
            Values::Date(_)
            | Values::Time32(..)
            | Values::Time64(..)
            | Values::Timestamp(..)
            | Values::Duration(..)
            | Values::Interval(_)
            | Values::Uuid(_) => self.write_quoted(row, out)?,
            Values::List(ends, items) => {
                out.push(b'[');
                for item in ends[row]..ends[row + 1] {
                    if item > ends[row] {
                        out.push(b',');
                    }
                    items
                        .write_json(item, form, out)
                        .map_err(|m| m.below("[]"))?;
                }
                out.push(b']');
            }
            Values::Struct(columns) => write_struct(columns, row, form, out)?,
            Values::Map(ends, kv) => self.write_map(kv, ends[row]..ends[row + 1], form, out)?,
            _ => self.write_text(row, out)?,
        }
        Ok(())
    }

    /// A text without characters that JSON escapes.
    fn write_quoted(&self, row: usize, out: &mut Vec<u8>) -> Fit {
        out.push(b'"');
        self.write_text(row, out)?;
        out.push(b'"');
        Ok(())
    }

    /// A number that is written as text in this form.
    fn is_text(&self, row: usize, form: Form) -> bool {
        let wide_texts = match form {
            Form::Values { wide_texts } => wide_texts,
            Form::Document { text_integers, .. } => {
                let is_wide = matches!(self.values, Values::I64(_) | Values::U64(_));
                let is_decimal =
                    matches!(self.values, Values::Decimal128(..) | Values::Decimal256(..));
                return is_decimal || (is_wide && text_integers);
            }
            Form::File | Form::Object => return false,
        };
        match &self.values {
            Values::Decimal128(..) | Values::Decimal256(..) => true,
            Values::I64(v) => wide_texts && v[row].unsigned_abs() > MAX_SAFE_INTEGER,
            Values::U64(v) => wide_texts && v[row] > MAX_SAFE_INTEGER,
            _ => false,
        }
    }

    /// An integer that a float64 may not hold, or a zero with a sign, in a form that keeps numbers as float64.
    fn is_inexact(&self, row: usize, form: Form) -> bool {
        let makes_floats = matches!(
            form,
            Form::Document {
                exact_numbers: false,
                ..
            }
        );
        makes_floats
            && match &self.values {
                Values::I64(v) => v[row].unsigned_abs() > MAX_SAFE_INTEGER,
                Values::U64(v) => v[row] > MAX_SAFE_INTEGER,
                Values::F32(v) => v[row] == 0.0 && v[row].is_sign_negative(),
                Values::F64(v, _) => v[row] == 0.0 && v[row].is_sign_negative(),
                _ => false,
            }
    }

    fn not_finite(&self, value: f64) -> Box<Misfit> {
        let mut text = Vec::new();
        number::write_float(value, &mut text);
        Misfit::value(&self.field, &text, "cannot be written as JSON").coded("json_not_finite")
    }

    /// Embeds a document of a JSON column unchanged: checked, on one line.
    fn write_document(&self, document: &str, out: &mut Vec<u8>) -> Fit {
        match json::validate(document.as_bytes()) {
            Err(_) => Err(Misfit::value(
                &self.field,
                document.as_bytes(),
                "is not JSON",
            )),
            Ok("null") => Err(Misfit::new(
                "json_null_value",
                &self.field,
                "the JSON document null cannot be distinguished from NULL in JSON Lines",
            )),
            // White space around a value belongs to the line. A line break ends it.
            Ok(json) if json.len() != document.len() || json.contains(['\n', '\r']) => {
                Err(Misfit::value(
                    &self.field,
                    document.as_bytes(),
                    "has a line break, or white space around it, which JSON Lines cannot hold",
                )
                .coded("json_not_one_line"))
            }
            Ok(json) => {
                json::reserve(json.len() + 64, out);
                out.extend_from_slice(json.as_bytes());
                Ok(())
            }
        }
    }

    fn write_map(
        &self,
        [keys, values]: &[Cells; 2],
        rows: std::ops::Range<usize>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> Fit {
        let mut seen = std::collections::HashSet::new();
        out.push(b'{');
        for (at, row) in rows.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if keys.is_null(row) {
                return Err(Misfit::null(&keys.field).below("{key}"));
            }
            let mut key = Vec::new();
            keys.write_text(row, &mut key)?;
            // Text forms are UTF-8.
            let key = String::from_utf8(key).map_err(|_| self.misfit("is not UTF-8"))?;
            json::write_string(&key, out);
            out.push(b':');
            values
                .write_json(row, form, out)
                .map_err(|m| m.below(&format!("{{{}}}", shown(&key))))?;
            if seen.contains(&key) {
                let reason = format!("has the key {} twice, which JSON cannot hold", shown(&key));
                return Err(Misfit::new("jsonl_duplicate_key", &self.field, reason));
            }
            seen.insert(key);
        }
        out.push(b'}');
        Ok(())
    }
}

fn write_struct(columns: &[Cells], row: usize, form: Form, out: &mut Vec<u8>) -> Fit {
    out.push(b'{');
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_string(column.field.name(), out);
        out.push(b':');
        column
            .write_json(row, form, out)
            .map_err(|m| m.below(&format!(".{}", column.field.name())))?;
    }
    out.push(b'}');
    Ok(())
}
