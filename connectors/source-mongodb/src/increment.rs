//! Incremental reads: documents in the order of one field, and the cursor between two runs.
//!
//! Documents are ordered by the field and then by `_id`, as MongoDB compares values: first by type, then by value. So the
//! order is total, and a read can resume behind any document. The cursor is JSON that only this connector reads, with
//! values as canonical Extended JSON:
//!
//! ```json
//! {"version":1,"field":"updated_at","value":{"$date":{"$numberLong":"1767225600000"}},
//!  "id":{"$oid":"0123456789abcdef01234567"}}
//! ```
//!
//! `value` is null while only documents without a value were read. They come first, and only the first read has them.

use std::fmt::Display;

use arrow_schema::TimeUnit;
use rapidbyte_bson::{Builder, Document, Kind, Value};
use rapidbyte_formats::text::time;
use rapidbyte_mongo::extjson::{self, Style};
use rapidbyte_mongo::form::{self, ID};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::saved::{Form, unreadable};
use rapidbyte_sdk::types::{is_json, type_name};
use serde::{Deserialize, Serialize};

use crate::error::malformed;

const FORM: Form = Form {
    source: "source-mongodb",
    version: 1,
};

/// The types of values in the order in which MongoDB sorts them, each with those that compare as one type.
const ORDER: [&[Kind]; 13] = [
    &[Kind::MinKey],
    &[Kind::Null, Kind::Undefined],
    &[Kind::Int32, Kind::Int64, Kind::Double, Kind::Decimal128],
    &[Kind::String, Kind::Symbol],
    &[Kind::Document],
    &[Kind::Array],
    &[Kind::Binary],
    &[Kind::ObjectId],
    &[Kind::Boolean],
    &[Kind::DateTime],
    &[Kind::Timestamp],
    &[Kind::Regex],
    &[Kind::MaxKey],
];
/// The places in it whose values a cursor cannot hold: arrays sort by one of their elements.
const REFUSED: [usize; 4] = [0, 5, 11, 12];
/// The place of documents without a value.
const NOTHING: usize = 1;

fn place(kind: Kind) -> Option<usize> {
    ORDER.iter().position(|kinds| kinds.contains(&kind))
}

/// Columns that can order a read: `_id` first, then times, then numbers.
pub(crate) fn candidates(schema: &Schema, types: &[String]) -> Vec<String> {
    let rank = |field: &Field, types: &str| {
        let is_id = field.name() == ID;
        Some(match field.data_type() {
            _ if is_id => 0,
            DataType::Timestamp(..) => 1,
            DataType::Int32 | DataType::Int64 => 2,
            DataType::Utf8 if types == Kind::ObjectId.name() => 3,
            _ => return None,
        })
    };
    let columns = schema.fields().iter().zip(types);
    let ranked = columns.filter_map(|(field, types)| Some((rank(field, types)?, field.name())));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Follows one incremental read.
pub(crate) struct Tracker {
    pub field: String,
    start: Start,
    /// The last document that was read.
    last: Option<Position>,
    /// Set when a document came behind the last checkpoint.
    is_ahead: bool,
}

/// Where a read starts.
enum Start {
    /// At the first document.
    First,
    /// At the first value.
    Values,
    /// At a value.
    From(Vec<u8>),
    /// Behind a document.
    Behind(Position),
}

/// The field and the `_id` of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Position {
    /// A document `{v: value, id: _id}`.
    bytes: Vec<u8>,
    has_value: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    field: String,
    value: serde_json::Value,
    id: serde_json::Value,
}

impl Tracker {
    /// Errors: `too_many_cursor_fields`, `unknown_cursor_field`, `mongo_no_xmin`, `invalid_lag`, `invalid_cursor_initial` (config),
    /// `cursor_unreadable`, `cursor_changed`.
    pub fn new(increment: &Increment, schema: &Schema, saved: Option<&str>) -> Result<Self> {
        let [field] = &increment.cursor_fields[..] else {
            let text = "source-mongodb reads in the order of one field";
            return Err(
                Error::config("too_many_cursor_fields", text).hint("write one cursor_field")
            );
        };
        let Ok(column) = schema.field_with_name(field) else {
            let text = format!("the cursor field {field} is not a column of the collection");
            return Err(Error::config("unknown_cursor_field", text)
                .hint("use a field of the sample, or declare it under schema")
                .in_column(field));
        };
        let lag = match &increment.late_rows {
            LateRows::Lag(lag) => lag
                .as_deref()
                .map(|lag| Lag::parse(lag, column))
                .transpose()?,
            LateRows::Exact => {
                let text = "change_detection: xmin is for PostgreSQL";
                return Err(Error::config("mongo_no_xmin", text).hint("remove change_detection"));
            }
        };
        let initial = increment.initial.iter().flatten().next();
        let last = saved.map(|json| parse(json, field)).transpose()?;
        let start = match (&last, initial) {
            (Some(last), _) => match (last.has_value, lag) {
                (false, _) => Start::Values,
                (true, None) => Start::Behind(last.clone()),
                (true, Some(lag)) => Start::From(lag.below(last.value()?, field)?),
            },
            (None, Some(text)) => Start::From(initial_value(text, column)?),
            (None, None) => Start::First,
        };
        Ok(Self {
            field: field.clone(),
            start,
            last,
            is_ahead: false,
        })
    }

    /// Appends the condition on documents to an array of conditions, under this name. Nothing if all are wanted.
    pub fn condition(&self, name: &str, out: &mut Builder) -> Result<bool> {
        let field = &self.field;
        match &self.start {
            Start::First => return Ok(false),
            Start::Values => {
                out.open_document(name).open_document(field);
                out.value("$ne", &Value::Null).close().close();
            }
            Start::From(value) => {
                let value = value_of(value, "v")?;
                out.open_document(name);
                from(out, field, &value, "$gte");
                out.close();
            }
            Start::Behind(last) => {
                let (value, id) = (last.value()?, last.id()?);
                out.open_document(name);
                if field == ID {
                    from(out, field, &id, "$gt");
                } else {
                    out.open_array("$or").open_document("0");
                    from(out, field, &value, "$gt");
                    out.close().open_document("1");
                    out.open_document(field).value("$eq", &value).close();
                    from(out, ID, &id, "$gt");
                    out.close().close();
                }
                out.close();
            }
        }
        Ok(true)
    }

    /// Takes a document into account. Errors: `mongo_cursor_value`, at its `_id`.
    pub fn push(&mut self, document: Document<'_>) -> Result<()> {
        let value = document.get(&self.field).map_err(malformed)?;
        let value = value.unwrap_or(Value::Null);
        let id = document.get(ID).map_err(malformed)?.unwrap_or(Value::Null);
        for (name, value) in [(self.field.as_str(), &value), (ID, &id)] {
            let place = place(value.kind()).filter(|place| !REFUSED.contains(place));
            let why = match value {
                _ if place.is_none() => format!("a value of the type {}", value.kind().name()),
                Value::Double(number) if number.is_nan() => "NaN".to_owned(),
                Value::Decimal128(_) if text_of(value)? == r#"{"$numberDecimal":"NaN"}"# => {
                    "NaN".to_owned()
                }
                _ => continue,
            };
            let text = format!("a document has {why} in {name}, behind which no read resumes");
            return Err(Error::data("mongo_cursor_value", text)
                .hint("choose another cursor_field, or leave such documents out by `where`")
                .in_column(name)
                .at(format!("_id {}", text_of(&id).unwrap_or_default())));
        }
        let has_value = place(value.kind()) != Some(NOTHING);
        let mut bytes = std::mem::take(&mut self.last).unwrap_or_default().bytes;
        bytes.clear();
        let mut position = Builder::onto(bytes);
        position.value("v", &value).value("id", &id);
        let bytes = position.finish().map_err(malformed)?;
        self.last = Some(Position { bytes, has_value });
        self.is_ahead = true;
        Ok(())
    }

    /// The cursor behind the last document. Nothing if no document came since the last one, or if it has no value and
    /// more documents may follow.
    pub fn checkpoint(&mut self, is_end: bool) -> Result<Option<String>> {
        let Some(last) = self.last.as_ref().filter(|_| self.is_ahead) else {
            return Ok(None);
        };
        if !last.has_value && !is_end {
            return Ok(None);
        }
        let json = |value: Value<'_>| -> Result<serde_json::Value> {
            serde_json::from_str(&text_of(&value)?).map_err(Error::internal)
        };
        let saved = Saved {
            version: FORM.version,
            field: self.field.clone(),
            value: match last.has_value {
                true => json(last.value()?)?,
                false => serde_json::Value::Null,
            },
            id: json(last.id()?)?,
        };
        self.is_ahead = false;
        serde_json::to_string(&saved)
            .map(Some)
            .map_err(Error::internal)
    }
}

impl Position {
    fn value(&self) -> Result<Value<'_>> {
        value_of(&self.bytes, "v")
    }

    fn id(&self) -> Result<Value<'_>> {
        value_of(&self.bytes, "id")
    }
}

fn value_of<'a>(bytes: &'a [u8], name: &str) -> Result<Value<'a>> {
    let document = Document::parse(bytes).map_err(malformed)?;
    Ok(document
        .get(name)
        .map_err(malformed)?
        .unwrap_or(Value::Null))
}

/// The place of strings and symbols.
const TEXTS: usize = 3;

/// Values from this one on: those of its type, by the operator, and all of the types that sort behind it. The operators
/// compare values of one type alone.
fn from(out: &mut Builder, field: &str, value: &Value<'_>, operator: &str) {
    let behind = place(value.kind()).unwrap_or(ORDER.len()) + 1;
    out.open_array("$or");
    out.open_document("0").open_document(field);
    out.value(operator, value).close().close();
    out.open_document("1").open_document(field);
    out.open_array("$type");
    let places = (behind..ORDER.len()).filter(|place| *place != TEXTS);
    let kinds = places.flat_map(|place| ORDER[place].iter());
    for (at, kind) in kinds.enumerate() {
        out.string(&at.to_string(), kind.name());
    }
    out.close().close().close();
    if behind <= TEXTS {
        // Not every server that has strings knows the type of symbols.
        out.open_document("2").open_document(field);
        out.string("$gte", "").close().close();
    }
    out.close();
}

fn text_of(value: &Value<'_>) -> Result<String> {
    let mut json = Vec::new();
    extjson::write_value(value, Style::Canonical, &mut json)
        .map_err(|problem| Error::data("mongo_cursor_value", problem))?;
    String::from_utf8(json).map_err(Error::internal)
}

/// A document with one value, `v`, from JSON.
fn of_json(json: &str) -> std::result::Result<Vec<u8>, impl Display> {
    let mut document = Vec::new();
    extjson::parse_document(&format!("{{\"v\":{json}}}"), &mut document).map(|()| document)
}

/// Errors: `cursor_unreadable`, `cursor_changed`.
fn parse(json: &str, field: &str) -> Result<Position> {
    let saved: Saved = FORM.parse(json, field)?;
    let has_value = !saved.value.is_null();
    let mut bytes = Vec::new();
    let text = format!("{{\"v\":{},\"id\":{}}}", saved.value, saved.id);
    extjson::parse_document(&text, &mut bytes)
        .map_err(|problem| unreadable(format!("the stored cursor: {problem}")))?;
    Ok(Position { bytes, has_value })
}

/// `cursor_initial` as a value of the column: a time, a number, an ObjectId or a string as they are, else Extended JSON.
fn initial_value(text: &str, column: &Field) -> Result<Vec<u8>> {
    let field = column.name();
    let wrong = |why: &dyn Display| {
        let text = format!("cursor_initial {text:?} is not a value of {field}: {why}");
        Error::config("invalid_cursor_initial", text).hint(
            "write a number, a time such as 2026-01-01T00:00:00Z, a string, or Extended JSON such as {\"$oid\": \"…\"}",
        )
    };
    let mut document = Builder::new();
    match column.data_type() {
        DataType::Timestamp(..) => {
            let text = text.as_bytes();
            let parsed = time::parse_timestamp(text, TimeUnit::Millisecond, true)
                .or_else(|_| time::parse_timestamp(text, TimeUnit::Millisecond, false))
                .or_else(|_| time::parse_date(text).map(|days| i64::from(days) * 86_400_000));
            let ms = parsed.map_err(|why| wrong(&why))?;
            document.value("v", &Value::DateTime(ms));
        }
        DataType::Utf8 if form::marked(column) == Some(Kind::ObjectId) => {
            return of_json(&format!("{{\"$oid\":{text:?}}}")).map_err(|why| wrong(&why));
        }
        DataType::Utf8 if !is_json(column) => {
            document.string("v", text);
        }
        _ => return of_json(text).map_err(|why| wrong(&why)),
    }
    document.finish().map_err(malformed)
}

/// How far below the cursor a read starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lag {
    /// For times, in milliseconds.
    Duration(i64),
    /// For integers.
    Number(i64),
}

impl Lag {
    /// Errors: `invalid_lag` where the text is not a lag, or not one of the column.
    fn parse(text: &str, column: &Field) -> Result<Self> {
        let number = text
            .trim()
            .parse::<i64>()
            .ok()
            .filter(|number| *number >= 0);
        let lag = match (duration_ms(text), number) {
            (Some(ms), _) => Self::Duration(ms),
            (None, Some(number)) => Self::Number(number),
            (None, None) => {
                let text = format!("the lag {text:?} is neither a duration nor a whole number");
                return Err(invalid_lag(text));
            }
        };
        let fits = match column.data_type() {
            DataType::Timestamp(..) => matches!(lag, Self::Duration(_)),
            DataType::Int32 | DataType::Int64 => matches!(lag, Self::Number(_)),
            // Values of any type.
            DataType::Utf8 => is_json(column),
            _ => false,
        };
        match fits {
            true => Ok(lag),
            false => {
                let (name, ty) = (column.name(), type_name(column));
                let text = format!("the lag {text:?} does not fit {name}, a column of {ty}");
                Err(invalid_lag(text))
            }
        }
    }

    /// The value this far below another one: a document `{v: value}`.
    fn below(self, value: Value<'_>, field: &str) -> Result<Vec<u8>> {
        let mut document = Builder::new();
        match (self, value) {
            (Self::Duration(lag), Value::DateTime(ms)) => {
                document.value("v", &Value::DateTime(ms.saturating_sub(lag)));
            }
            (Self::Number(lag), Value::Int32(_) | Value::Int64(_)) => {
                let number = value.as_whole().unwrap_or_default();
                document.int64("v", number.saturating_sub(lag));
            }
            (_, other) => {
                let kind = other.kind().name();
                let text = format!(
                    "the cursor has a {field} of the type {kind}, which the lag does not fit"
                );
                return Err(invalid_lag(text));
            }
        }
        document.finish().map_err(malformed)
    }
}

fn invalid_lag(text: String) -> Error {
    Error::config("invalid_lag", text).hint(
        "write a duration such as `5 minutes` for times, and a number such as 1000 for integers",
    )
}

/// `5 minutes`, `1 hour`, `500 ms`.
fn duration_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: i64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "second" | "seconds" => 1_000,
        "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}
