//! Builds one Arrow column out of texts: of CSV fields or of JSON values.
//!
//! Flat and nested types alike; a value goes in exactly or not at all. After a value that did not
//! fit, the column may hold half of it: the decoder above stops, or removes the half again.

use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{BooleanBufferBuilder, Buffer, IntervalMonthDayNano, NullBufferBuilder, i256};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use rapidbyte_wire::name::shown;
use rapidbyte_wire::types::{is_json, is_uuid};

use crate::error::{FormatError, Misfit};
use crate::json::{self, Stop};
use crate::spelling::{self, Spelling};
use crate::text::pattern::{self, TimePattern};
use crate::text::{self, Reason, bytes, decimal, duration, number, time};

type Fit = Result<(), Box<Misfit>>;

/// One column under construction.
pub(crate) struct Column {
    field: FieldRef,
    values: Values,
    nulls: NullBufferBuilder,
    kept: Kept,
    /// The form of dates and timestamps, if it is not the form of [`crate::text`].
    pattern: Option<TimePattern>,
    /// Its JSON values have the form of [`Form::Object`](crate::cells::Form::Object).
    is_of_object: bool,
    /// A column of texts that reads other values of JSON as their JSON text.
    takes_json: bool,
    /// A column of decimals that reads a string of JSON only if it is written as a number: others may be no number to
    /// their writer, such as the postal code `007`.
    takes_plain: bool,
}

/// The part of a text that must be kept besides its value.
#[derive(Clone, Copy)]
enum Kept {
    /// Nothing: every spelling is read.
    Value,
    /// Every character.
    Text(Spelling),
    /// Every digit that counts, of a number that becomes a `float64`.
    Digits,
    /// The same for a `float32`.
    Digits32,
    /// The sign of a zero.
    Sign,
}

/// Offsets end where i32 does, for the large types too: a batch is far smaller.
const MAX_VALUE_BYTES: usize = i32::MAX as usize;

enum Values {
    Null,
    Bool(BooleanBufferBuilder),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Decimal128(Vec<i128>, u8, i8),
    Decimal256(Vec<i256>, u8, i8),
    Date(Vec<i32>),
    Time32(Vec<i32>, TimeUnit),
    Time64(Vec<i64>, TimeUnit),
    Timestamp(Vec<i64>, TimeUnit, bool),
    Duration(Vec<i64>, TimeUnit),
    Interval(Vec<IntervalMonthDayNano>),
    Uuid(Vec<u8>),
    FixedBinary(Vec<u8>, usize),
    Binary(Bytes),
    String(Bytes),
    Json(Bytes),
    List(Vec<i32>, Box<Column>),
    Struct(Vec<Column>),
    /// Offsets, keys, values.
    Map(Vec<i32>, Box<[Column; 2]>),
}

/// Values of varying length; `ends[0]` is 0.
struct Bytes {
    ends: Vec<i32>,
    data: Vec<u8>,
}

impl Bytes {
    fn new() -> Self {
        Self {
            ends: vec![0],
            data: Vec::new(),
        }
    }

    /// Ends the value whose bytes have been appended to `data`.
    fn end(&mut self) -> Result<(), Reason> {
        match i32::try_from(self.data.len()) {
            Ok(end) => {
                self.ends.push(end);
                Ok(())
            }
            Err(_) => Err(TOO_LARGE),
        }
    }

    fn push(&mut self, value: &[u8]) -> Result<(), Reason> {
        if value.len() > MAX_VALUE_BYTES - self.data.len() {
            return Err(TOO_LARGE);
        }
        self.data.extend_from_slice(value);
        self.end()
    }
}

const TOO_LARGE: Reason = "makes the column of the batch larger than 2 GiB";

impl Values {
    fn of(field: &Field) -> Result<Self, FormatError> {
        Ok(match field.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Self::I8(Vec::new()),
            DataType::Int16 => Self::I16(Vec::new()),
            DataType::Int32 => Self::I32(Vec::new()),
            DataType::Int64 => Self::I64(Vec::new()),
            DataType::UInt8 => Self::U8(Vec::new()),
            DataType::UInt16 => Self::U16(Vec::new()),
            DataType::UInt32 => Self::U32(Vec::new()),
            DataType::UInt64 => Self::U64(Vec::new()),
            DataType::Float32 => Self::F32(Vec::new()),
            DataType::Float64 => Self::F64(Vec::new()),
            DataType::Decimal128(p, s) if *s >= 0 => Self::Decimal128(Vec::new(), *p, *s),
            DataType::Decimal256(p, s) if *s >= 0 => Self::Decimal256(Vec::new(), *p, *s),
            DataType::Date32 => Self::Date(Vec::new()),
            DataType::Time32(unit) => Self::Time32(Vec::new(), *unit),
            DataType::Time64(unit) => Self::Time64(Vec::new(), *unit),
            DataType::Timestamp(unit, zone) => Self::Timestamp(Vec::new(), *unit, zone.is_some()),
            DataType::Duration(unit) => Self::Duration(Vec::new(), *unit),
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval(Vec::new()),
            DataType::FixedSizeBinary(16) if is_uuid(field) => Self::Uuid(Vec::new()),
            DataType::FixedSizeBinary(width) => Self::FixedBinary(
                Vec::new(),
                usize::try_from(*width).map_err(|_| FormatError::unsupported(field))?,
            ),
            DataType::Binary | DataType::LargeBinary => Self::Binary(Bytes::new()),
            DataType::Utf8 if is_json(field) => Self::Json(Bytes::new()),
            DataType::Utf8 | DataType::LargeUtf8 => Self::String(Bytes::new()),
            DataType::List(item) | DataType::LargeList(item) => {
                Self::List(vec![0], Box::new(Column::new(item)?))
            }
            DataType::Struct(fields) => {
                Self::Struct(fields.iter().map(Column::new).collect::<Result<_, _>>()?)
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(kv) if kv.len() == 2 => Self::Map(
                    vec![0],
                    Box::new([Column::new(&kv[0])?, Column::new(&kv[1])?]),
                ),
                _ => return Err(FormatError::unsupported(field)),
            },
            _ => return Err(FormatError::unsupported(field)),
        })
    }
}

/// The kind of a JSON value, by its first byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonKind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl JsonKind {
    /// Of valid JSON without white space before it.
    fn of(json: &str) -> Self {
        match json.as_bytes().first() {
            Some(b'n') => Self::Null,
            Some(b't' | b'f') => Self::Bool,
            Some(b'"') => Self::String,
            Some(b'[') => Self::Array,
            Some(b'{') => Self::Object,
            _ => Self::Number,
        }
    }
}

impl Column {
    pub(crate) fn new(field: &FieldRef) -> Result<Self, FormatError> {
        Ok(Self {
            values: Values::of(field)?,
            field: field.clone(),
            nulls: NullBufferBuilder::new(0),
            kept: Kept::Value,
            pattern: None,
            is_of_object: false,
            takes_json: false,
            takes_plain: false,
        })
    }

    /// From here on reads texts of this form only.
    ///
    /// Errors: `invalid_time_pattern` where the column's type has other parts than the pattern.
    pub(crate) fn read_as(&mut self, pattern: TimePattern) -> Result<(), FormatError> {
        let fits = match &self.values {
            Values::Date(_) => !pattern.has_time(),
            Values::Timestamp(_, _, zoned) => pattern.has_time() && pattern.has_offset() == *zoned,
            _ => false,
        };
        if fits {
            self.pattern = Some(pattern);
            return Ok(());
        }
        let name = self.field.name();
        let text = format!(
            "column {} ({}): the parts of {:?} differ from the type",
            shown(name),
            rapidbyte_wire::types::type_name(&self.field),
            pattern.as_str()
        );
        Err(FormatError::new("invalid_time_pattern", text)
            .hint(
                "give a date no time, a timestamp a time, and a timestamptz an offset (%z) as \
                 well",
            )
            .column(name))
    }

    /// From here on refuses texts that would be written back with other characters.
    pub(crate) fn keep_text(&mut self) {
        self.kept = Spelling::of(&self.field).map_or(Kept::Value, Kept::Text);
    }

    /// From here on refuses JSON numbers that would lose digits as floats, on every level.
    pub(crate) fn keep_digits(&mut self) {
        match &mut self.values {
            Values::F64(_) => self.kept = Kept::Digits,
            Values::List(_, item) => item.keep_digits(),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::keep_digits),
            Values::Map(_, kv) => kv.iter_mut().for_each(Self::keep_digits),
            _ => {}
        }
    }

    /// From here on reads every spelling of a value, but of decimals in strings of JSON, and refuses numbers that would
    /// lose digits as floats or the sign of a zero, on every level.
    pub(crate) fn keep_stored(&mut self) {
        self.keep_value();
        match &mut self.values {
            Values::F32(_) => self.kept = Kept::Digits32,
            // The type of a number without limits, or of texts, in the target.
            Values::String(_) => self.takes_json = true,
            Values::Decimal128(..) | Values::Decimal256(..) => {
                self.takes_plain = true;
                self.kept = Kept::Sign;
            }
            Values::I8(_) | Values::I16(_) | Values::I32(_) | Values::I64(_) => {
                self.kept = Kept::Sign;
            }
            Values::U8(_) | Values::U16(_) | Values::U32(_) | Values::U64(_) => {
                self.kept = Kept::Sign;
            }
            Values::List(_, item) => item.keep_stored(),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::keep_stored),
            Values::Map(_, kv) => kv.iter_mut().for_each(Self::keep_stored),
            _ => self.keep_digits(),
        }
    }

    /// From here on reads every spelling of a value again.
    pub(crate) fn keep_value(&mut self) {
        self.kept = Kept::Value;
        match &mut self.values {
            Values::List(_, item) => item.keep_value(),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::keep_value),
            Values::Map(_, kv) => kv.iter_mut().for_each(Self::keep_value),
            _ => {}
        }
    }

    /// From here on reads JSON values as [`Form::Object`](crate::cells::Form::Object) writes them, on every level.
    pub(crate) fn of_objects(&mut self) {
        self.is_of_object = true;
        match &mut self.values {
            Values::List(_, item) => item.of_objects(),
            Values::Struct(columns) => columns.iter_mut().for_each(Self::of_objects),
            Values::Map(_, kv) => kv.iter_mut().for_each(Self::of_objects),
            _ => {}
        }
    }

    fn is_number(&self) -> bool {
        self.field.data_type().is_numeric()
    }

    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Bytes of the values, offsets and bitmaps so far.
    pub(crate) fn bytes(&self) -> usize {
        let fixed = |width: usize| self.nulls.len() * width;
        let values = match &self.values {
            Values::Null => 0,
            Values::Bool(bits) => bits.len() / 8,
            Values::I8(_) | Values::U8(_) => fixed(1),
            Values::I16(_) | Values::U16(_) => fixed(2),
            Values::I32(_)
            | Values::U32(_)
            | Values::F32(_)
            | Values::Date(_)
            | Values::Time32(..) => fixed(4),
            Values::I64(_)
            | Values::U64(_)
            | Values::F64(_)
            | Values::Time64(..)
            | Values::Timestamp(..)
            | Values::Duration(..) => fixed(8),
            Values::Decimal128(..) | Values::Interval(_) => fixed(16),
            Values::Decimal256(..) => fixed(32),
            Values::Uuid(data) | Values::FixedBinary(data, _) => data.len(),
            Values::Binary(b) | Values::String(b) | Values::Json(b) => {
                b.data.len() + 4 * b.ends.len()
            }
            Values::List(ends, item) => item.bytes() + 4 * ends.len(),
            Values::Struct(columns) => columns.iter().map(Column::bytes).sum(),
            Values::Map(ends, kv) => kv.iter().map(Column::bytes).sum::<usize>() + 4 * ends.len(),
        };
        values + self.nulls.len() / 8
    }

    /// Takes the values behind the first `len` out again, and half a value that did not fit.
    pub(crate) fn truncate(&mut self, len: usize) {
        match &mut self.values {
            Values::Null => {}
            Values::Bool(bits) => bits.truncate(len),
            Values::I8(v) => v.truncate(len),
            Values::I16(v) => v.truncate(len),
            Values::I32(v) | Values::Date(v) | Values::Time32(v, _) => v.truncate(len),
            Values::I64(v)
            | Values::Time64(v, _)
            | Values::Timestamp(v, ..)
            | Values::Duration(v, _) => v.truncate(len),
            Values::U8(v) => v.truncate(len),
            Values::U16(v) => v.truncate(len),
            Values::U32(v) => v.truncate(len),
            Values::U64(v) => v.truncate(len),
            Values::F32(v) => v.truncate(len),
            Values::F64(v) => v.truncate(len),
            Values::Decimal128(v, ..) => v.truncate(len),
            Values::Decimal256(v, ..) => v.truncate(len),
            Values::Interval(v) => v.truncate(len),
            Values::Uuid(v) => v.truncate(len * 16),
            Values::FixedBinary(v, width) => v.truncate(len * *width),
            Values::Binary(b) | Values::String(b) | Values::Json(b) => {
                b.ends.truncate(len + 1);
                b.data.truncate(last(&b.ends));
            }
            Values::List(ends, item) => {
                ends.truncate(len + 1);
                item.truncate(last(ends));
            }
            Values::Map(ends, kv) => {
                ends.truncate(len + 1);
                kv.iter_mut().for_each(|column| column.truncate(last(ends)));
            }
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.truncate(len)),
        }
        self.nulls.truncate(len);
    }

    /// Appends NULL, which a column that is not nullable refuses.
    pub(crate) fn push_null(&mut self) -> Fit {
        if !self.field.is_nullable() {
            return Err(Misfit::null(&self.field));
        }
        self.push_empty();
        Ok(())
    }

    /// Appends NULL, below a NULL too, where the type does not count.
    fn push_empty(&mut self) {
        match &mut self.values {
            Values::Null => {}
            Values::Bool(bits) => bits.append(false),
            Values::I8(v) => v.push(0),
            Values::I16(v) => v.push(0),
            Values::I32(v) | Values::Date(v) | Values::Time32(v, _) => v.push(0),
            Values::I64(v)
            | Values::Time64(v, _)
            | Values::Timestamp(v, ..)
            | Values::Duration(v, _) => v.push(0),
            Values::U8(v) => v.push(0),
            Values::U16(v) => v.push(0),
            Values::U32(v) => v.push(0),
            Values::U64(v) => v.push(0),
            Values::F32(v) => v.push(0.0),
            Values::F64(v) => v.push(0.0),
            Values::Decimal128(v, ..) => v.push(0),
            Values::Decimal256(v, ..) => v.push(i256::ZERO),
            Values::Interval(v) => v.push(IntervalMonthDayNano::new(0, 0, 0)),
            Values::Uuid(v) => v.extend_from_slice(&[0; 16]),
            Values::FixedBinary(v, width) => v.resize(v.len() + *width, 0),
            Values::Binary(b) | Values::String(b) | Values::Json(b) => repeat_last(&mut b.ends),
            Values::List(ends, _) | Values::Map(ends, _) => repeat_last(ends),
            Values::Struct(columns) => columns.iter_mut().for_each(Column::push_empty),
        }
        self.nulls.append_null();
    }

    /// Appends the value that a text is. Lists, structs and maps are read from JSON text.
    pub(crate) fn push_text(&mut self, text: &[u8]) -> Fit {
        let pushed = match &mut self.values {
            Values::Null => Err("is in a column that has only NULLs"),
            Values::Bool(v) => text::parse_bool(text).map(|x| v.append(x)),
            Values::I8(v) => number::parse_signed(text).map(|x| v.push(x)),
            Values::I16(v) => number::parse_signed(text).map(|x| v.push(x)),
            Values::I32(v) => number::parse_signed(text).map(|x| v.push(x)),
            Values::I64(v) => number::parse_i64(text).map(|x| v.push(x)),
            Values::U8(v) => number::parse_unsigned(text).map(|x| v.push(x)),
            Values::U16(v) => number::parse_unsigned(text).map(|x| v.push(x)),
            Values::U32(v) => number::parse_unsigned(text).map(|x| v.push(x)),
            Values::U64(v) => number::parse_u64(text).map(|x| v.push(x)),
            Values::F32(v) => number::parse_float(text).map(|x| v.push(x)),
            Values::F64(v) => number::parse_float(text).map(|x| v.push(x)),
            Values::Decimal128(v, p, s) => decimal::parse_i128(text, *p, *s).map(|x| v.push(x)),
            Values::Decimal256(v, p, s) => decimal::parse_i256(text, *p, *s).map(|x| v.push(x)),
            Values::Date(v) => match &self.pattern {
                None => time::parse_date(text),
                Some(pattern) => pattern.parse_date(text),
            }
            .map(|x| v.push(x)),
            Values::Time32(v, unit) => time::parse_time(text, *unit)
                .and_then(|x| i32::try_from(x).map_err(|_| "is out of range"))
                .map(|x| v.push(x)),
            Values::Time64(v, unit) => time::parse_time(text, *unit).map(|x| v.push(x)),
            Values::Timestamp(v, unit, zoned) => match &self.pattern {
                None => time::parse_timestamp(text, *unit, *zoned),
                Some(pattern) => pattern.parse_timestamp(text, *unit),
            }
            .map(|x| v.push(x)),
            Values::Duration(v, unit) => duration::parse_duration(text, *unit).map(|x| v.push(x)),
            Values::Interval(v) => duration::parse_interval(text).map(|x| v.push(x)),
            Values::Uuid(v) => bytes::parse_uuid(text).map(|x| v.extend_from_slice(&x)),
            Values::FixedBinary(v, width) => push_fixed_binary(v, *width, text),
            Values::Binary(b) => bytes::parse_binary(text, &mut b.data).and_then(|()| b.end()),
            Values::String(b) => match std::str::from_utf8(text) {
                Ok(_) => b.push(text),
                Err(_) => Err(NOT_UTF8),
            },
            Values::Json(b) => match json::validate(text) {
                Ok(_) => b.push(text),
                Err(_) => Err("is not JSON"),
            },
            Values::List(..) | Values::Struct(_) | Values::Map(..) => {
                return match json::validate(text) {
                    Ok(json) => self.push_nested(json),
                    Err(_) => Err(Misfit::value(&self.field, text, "is not JSON")),
                };
            }
        };
        let kept = pushed.and_then(|()| self.kept.check(text));
        self.finish_value(kept, text)
    }

    fn finish_value(&mut self, pushed: Result<(), Reason>, text: &[u8]) -> Fit {
        match pushed {
            Ok(()) => {
                self.nulls.append_non_null();
                Ok(())
            }
            Err(reason) => {
                if let (pattern::NO_MATCH, Some(pattern)) = (reason, &self.pattern) {
                    let reason = format!("does not have the form {:?}", pattern.as_str());
                    return Err(Misfit::value(&self.field, text, &reason));
                }
                if self.is_number() && number::has_comma(text) {
                    let misfit = Misfit::value(&self.field, text, "has a comma");
                    return Err(misfit.coded("decimal_comma"));
                }
                let misfit = Misfit::value(&self.field, text, reason);
                Err(match reason {
                    NOT_UTF8 => misfit.coded(BAD_UTF8),
                    TOO_LARGE => misfit.coded("record_too_large"),
                    _ => misfit,
                })
            }
        }
    }

    /// Appends a JSON value: valid JSON without white space around it.
    pub(crate) fn push_json(&mut self, json: &str) -> Fit {
        let kind = JsonKind::of(json);
        if kind == JsonKind::Null {
            return self.push_null();
        }
        if self.is_of_object && kind == JsonKind::String && self.takes_text(json) {
            return match json::unescape(json) {
                Some(text) => self.push_text(text.as_bytes()),
                None => Err(Misfit::value(&self.field, json.as_bytes(), "is not JSON")),
            };
        }
        if let Values::Json(b) = &mut self.values {
            let pushed = match json.contains(['\n', '\r']) {
                false => b.push(json.as_bytes()),
                // Part of a document over several lines, such as a page of an API, whose layout is
                // none of the value's.
                true => {
                    json::reserve(json.len(), &mut b.data);
                    json::write_compact(json, &mut b.data);
                    b.end()
                }
            };
            return self.finish_value(pushed, json.as_bytes());
        }
        if self.takes_json && kind != JsonKind::String {
            return match json.contains(['\n', '\r']) {
                false => self.push_text(json.as_bytes()),
                true => {
                    let mut text = Vec::new();
                    json::write_compact(json, &mut text);
                    self.push_text(&text)
                }
            };
        }
        let expected = self.json_kinds();
        if !expected.contains(&kind) {
            return Err(Misfit::value(
                &self.field,
                json.as_bytes(),
                expectation(expected),
            ));
        }
        match kind {
            JsonKind::Array | JsonKind::Object => self.push_nested(json),
            JsonKind::String => match json::unescape(json) {
                Some(text) if self.takes_plain && !spelling::is_plain_number(text.as_bytes()) => {
                    let why = "is a string that the number is not written as";
                    Err(Misfit::value(&self.field, text.as_bytes(), why))
                }
                Some(text) => self.push_text(text.as_bytes()),
                None => {
                    let why = "has half of a surrogate pair, which is not a character";
                    let misfit = Misfit::value(&self.field, json.as_bytes(), why);
                    Err(misfit.coded("json_lone_surrogate"))
                }
            },
            _ => self.push_text(json.as_bytes()),
        }
    }

    /// Whether [`Form::Object`](crate::cells::Form::Object) or a reader of wide numbers writes a value of the column as
    /// this string.
    fn takes_text(&self, json: &str) -> bool {
        let text = json.trim_matches('"');
        match &self.values {
            Values::Json(_) => true,
            Values::F32(_) | Values::F64(_) => ["NaN", "Infinity", "-Infinity"].contains(&text),
            Values::I64(_) | Values::U64(_) => text.parse().is_ok_and(|value: i128| {
                value.unsigned_abs() > EXACT_WHOLE && value.to_string() == text
            }),
            _ => false,
        }
    }

    /// Which JSON values the column takes.
    fn json_kinds(&self) -> &'static [JsonKind] {
        match &self.values {
            Values::Null => &[],
            Values::Bool(_) => &[JsonKind::Bool],
            Values::I8(_)
            | Values::I16(_)
            | Values::I32(_)
            | Values::I64(_)
            | Values::U8(_)
            | Values::U16(_)
            | Values::U32(_)
            | Values::U64(_)
            | Values::F32(_)
            | Values::F64(_) => &[JsonKind::Number],
            Values::Decimal128(..) | Values::Decimal256(..) => {
                &[JsonKind::Number, JsonKind::String]
            }
            Values::List(..) => &[JsonKind::Array],
            Values::Struct(_) | Values::Map(..) => &[JsonKind::Object],
            _ => &[JsonKind::String],
        }
    }

    fn push_nested(&mut self, json: &str) -> Fit {
        let kind = JsonKind::of(json);
        if !self.json_kinds().contains(&kind) {
            let reason = expectation(self.json_kinds());
            return Err(Misfit::value(&self.field, json.as_bytes(), reason));
        }
        let walked = match &mut self.values {
            Values::List(ends, item) => json::for_items(json, |value| {
                item.push_json(value).map_err(|m| m.below("[]"))
            })
            .map(|()| ends.push(item.len_i32())),
            Values::Map(ends, kv) => {
                let walked = push_map(kv, &self.field, json);
                walked.map(|()| ends.push(kv[0].len_i32()))
            }
            Values::Struct(columns) => push_struct(columns, &self.field, json),
            _ => Ok(()),
        };
        match walked {
            Ok(()) => {
                self.nulls.append_non_null();
                Ok(())
            }
            Err(Stop::Callback(misfit)) => Err(misfit),
            Err(Stop::Broken(_)) => Err(Misfit::value(&self.field, json.as_bytes(), "is not JSON")),
        }
    }

    /// Rows so far; an item takes a byte of text and a record is below 2 GiB.
    fn len_i32(&self) -> i32 {
        i32::try_from(self.nulls.len()).unwrap_or(i32::MAX)
    }

    /// Ends the array and begins an empty one of the same expected size.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, FormatError> {
        Ok(make_array(self.finish_data()?))
    }

    fn finish_data(&mut self) -> Result<ArrayData, FormatError> {
        let len = self.nulls.len();
        let nulls = self.nulls.finish();
        let data_type = self.field.data_type();
        let large = matches!(
            data_type,
            DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_)
        );
        let (buffers, children) = match &mut self.values {
            Values::Null => {
                return Ok(ArrayData::builder(DataType::Null).len(len).build()?);
            }
            Values::Bool(bits) => (vec![bits.finish().into_inner()], vec![]),
            Values::I8(v) => (vec![take(v)], vec![]),
            Values::I16(v) => (vec![take(v)], vec![]),
            Values::I32(v) | Values::Date(v) | Values::Time32(v, _) => (vec![take(v)], vec![]),
            Values::I64(v)
            | Values::Time64(v, _)
            | Values::Timestamp(v, ..)
            | Values::Duration(v, _) => (vec![take(v)], vec![]),
            Values::U8(v) | Values::Uuid(v) | Values::FixedBinary(v, _) => (vec![take(v)], vec![]),
            Values::U16(v) => (vec![take(v)], vec![]),
            Values::U32(v) => (vec![take(v)], vec![]),
            Values::U64(v) => (vec![take(v)], vec![]),
            Values::F32(v) => (vec![take(v)], vec![]),
            Values::F64(v) => (vec![take(v)], vec![]),
            Values::Decimal128(v, ..) => (vec![take(v)], vec![]),
            Values::Decimal256(v, ..) => (vec![take(v)], vec![]),
            Values::Interval(v) => (vec![take(v)], vec![]),
            Values::Binary(b) | Values::String(b) | Values::Json(b) => {
                let data = take(&mut b.data);
                (vec![take_offsets(&mut b.ends, large), data], vec![])
            }
            Values::List(ends, item) => {
                (vec![take_offsets(ends, large)], vec![item.finish_data()?])
            }
            Values::Struct(columns) => (
                vec![],
                columns
                    .iter_mut()
                    .map(Column::finish_data)
                    .collect::<Result<_, _>>()?,
            ),
            Values::Map(ends, kv) => {
                let DataType::Map(entries, _) = data_type else {
                    return Err(FormatError::unsupported(&self.field));
                };
                let len = kv[0].nulls.len();
                let entries = ArrayData::builder(entries.data_type().clone())
                    .len(len)
                    .child_data(vec![kv[0].finish_data()?, kv[1].finish_data()?])
                    .build()?;
                (vec![take_offsets(ends, large)], vec![entries])
            }
        };
        Ok(ArrayData::builder(data_type.clone())
            .len(len)
            .nulls(nulls)
            .buffers(buffers)
            .child_data(children)
            .build()?)
    }
}

impl Kept {
    fn check(self, text: &[u8]) -> Result<(), Reason> {
        match self {
            Self::Text(spelling) if !spelling.is_own(text) => {
                Err("would not be written back unchanged")
            }
            Self::Digits if !spelling::float_keeps(text) => {
                Err("has more digits than a float64 can hold")
            }
            Self::Digits32 if !number::float32_keeps_digits(text) => {
                Err("has more digits than a float32 can hold")
            }
            Self::Sign if number::is_negative_zero(text) => {
                Err("is -0, which the column's type does not have")
            }
            _ => Ok(()),
        }
    }
}

/// The largest whole number that a script with doubles keeps: larger ones come as strings.
const EXACT_WHOLE: u128 = (1 << 53) - 1;
const NOT_UTF8: Reason = "is not UTF-8";
/// Only CSV hands over unchecked bytes: a line of JSON is checked as a whole.
const BAD_UTF8: &str = "csv_bad_utf8";

fn expectation(kinds: &[JsonKind]) -> Reason {
    match kinds {
        [] => "is in a column that has only NULLs",
        [JsonKind::Bool] => "is not true or false",
        [JsonKind::Number] => "is not a JSON number",
        [JsonKind::Array] => "is not a JSON array",
        [JsonKind::Object] => "is not a JSON object",
        [JsonKind::String] => "is not a JSON string",
        _ => "is neither a JSON number nor a JSON string",
    }
}

fn repeat_last(ends: &mut Vec<i32>) {
    ends.push(ends.last().copied().unwrap_or(0));
}

/// Where the last value ends.
fn last(ends: &[i32]) -> usize {
    ends.last().map_or(0, |end| *end as usize)
}

fn push_fixed_binary(out: &mut Vec<u8>, width: usize, text: &[u8]) -> Result<(), Reason> {
    let before = out.len();
    bytes::parse_binary(text, out)?;
    if out.len() - before == width {
        Ok(())
    } else {
        Err("has another number of bytes than the type")
    }
}

fn push_struct(columns: &mut [Column], field: &Field, json: &str) -> Result<(), Stop<Box<Misfit>>> {
    let rows = columns.first().map_or(0, |c| c.nulls.len());
    // Keys mostly come in order: the next column is checked first.
    let mut next = 0;
    json::for_entries(json, |key, value| {
        let at = match columns.get(next) {
            Some(column) if *column.field.name() == *key => next,
            _ => columns
                .iter()
                .position(|c| *c.field.name() == *key)
                .ok_or_else(|| {
                    let reason =
                        format!("has the key {}, which the type does not have", shown(&key));
                    Misfit::new("jsonl_unknown_field", field, reason)
                })?,
        };
        next = at + 1;
        let column = &mut columns[at];
        if column.nulls.len() > rows {
            let reason = format!("has the key {} twice", shown(&key));
            return Err(Misfit::new("jsonl_duplicate_key", field, reason));
        }
        column
            .push_json(value)
            .map_err(|m| m.below(&format!(".{key}")))
    })?;
    for column in columns.iter_mut().filter(|c| c.nulls.len() == rows) {
        let name = format!(".{}", column.field.name());
        column
            .push_null()
            .map_err(|m| Stop::Callback(m.below(&name)))?;
    }
    Ok(())
}

fn push_map(kv: &mut [Column; 2], field: &Field, json: &str) -> Result<(), Stop<Box<Misfit>>> {
    let [keys, values] = kv;
    let mut seen = std::collections::HashSet::new();
    json::for_entries(json, |key, value| {
        keys.push_text(key.as_bytes())
            .map_err(|m| m.below("{key}"))?;
        values
            .push_json(value)
            .map_err(|m| m.below(&format!("{{{}}}", shown(&key))))?;
        if seen.contains(&key) {
            let reason = format!("has the key {} twice", shown(&key));
            return Err(Misfit::new("jsonl_duplicate_key", field, reason));
        }
        seen.insert(key);
        Ok(())
    })
}

/// Room that a column keeps for its next batch: one huge record must not be held twice.
const KEPT_BYTES: usize = 4 << 20;

/// An empty column with room for as many values, within limits.
fn room_for<T>(values: usize) -> Vec<T> {
    Vec::with_capacity(values.min(KEPT_BYTES / size_of::<T>()))
}

/// Moves the values out and leaves room for as many.
fn take<T: arrow_buffer::ArrowNativeType>(values: &mut Vec<T>) -> Buffer {
    let next = room_for(values.len());
    Buffer::from_vec(std::mem::replace(values, next))
}

fn take_offsets(ends: &mut Vec<i32>, large: bool) -> Buffer {
    let mut next = room_for(ends.len());
    next.push(0);
    let ends = std::mem::replace(ends, next);
    if large {
        Buffer::from_vec(ends.into_iter().map(i64::from).collect::<Vec<_>>())
    } else {
        Buffer::from_vec(ends)
    }
}
