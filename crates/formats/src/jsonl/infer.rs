//! Guesses a schema from the beginnings of JSON Lines files and of JSON documents.
//!
//! Whole numbers are `int64`; numbers with a fraction or an exponent are `float64`. A mix of both is
//! `float64` too if every whole number is within 2^53. Strings stay `string`: nothing is guessed from
//! their characters, unless the sampler [looks for times](Sampler::with_times). Arrays are lists and
//! objects structs, as far as their parts agree. Values that do not agree, and every number that int64
//! and float64 would change, make the column `json`, which keeps the text. A column with nothing but
//! `null` is a `string`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use rapidbyte_wire::counted;
use rapidbyte_wire::types::{is_json, parse_field};

use super::lines::{Found, broken, duplicate};
use super::place::Place;
use super::records::{Layout, Records};
use crate::FormatError;
pub use crate::csv::Inferred;
use crate::csv::infer::{TRUE_OR_FALSE, WHOLE, all, with_fractions};
use crate::error::shown;
use crate::json::{self, Stop};
use crate::sample::{Sampled, Seen};
use crate::text::{number, time};

/// Objects nested deeper than this, or with more keys, are documents rather than structs.
const MAX_DEPTH: usize = 16;
const MAX_KEYS: usize = 1000;
/// More columns are refused. No table has so many, and each takes part in every plan.
const MAX_COLUMNS: usize = 10_000;
/// Largest whole number up to which float64 holds every one.
const EXACT_WHOLE: u64 = 1 << 53;

/// Infers columns from samples; used as [`crate::csv::Sampler`] is.
pub struct Sampler {
    records: Records,
    columns: Columns,
    rows: u64,
    rules: Rules,
}

#[derive(Clone, Copy)]
struct Rules {
    max_rows: u64,
    /// Strings may be timestamps.
    times: bool,
    /// Records that are not JSON objects are passed over.
    is_lenient: bool,
    layout: Layout,
}

/// Columns in the order in which their keys were first seen.
#[derive(Default)]
struct Columns {
    list: Vec<(String, Column)>,
    places: HashMap<String, usize>,
}

impl Columns {
    /// The place of a key, which is new or not. `None` where there are too many.
    fn place(&mut self, key: &str) -> Option<usize> {
        if let Some(place) = self.places.get(key) {
            return Some(*place);
        }
        let place = self.list.len();
        if place == MAX_COLUMNS {
            return None;
        }
        self.list.push((key.to_owned(), Column::default()));
        self.places.insert(key.to_owned(), place);
        Some(place)
    }
}

#[derive(Default)]
struct Column {
    shape: Shape,
    values: u64,
    /// Values that are numbers with a fraction or an exponent.
    floats: u64,
    /// The first value that did not agree with those before it.
    example: Option<String>,
    seen: Seen,
}

impl Column {
    fn look(&mut self, value: &str, times: bool) {
        self.see(value);
        self.values += u64::from(value != "null");
        let shape = match Shape::of(value, 0) {
            Shape::String if times && is_time(value) => Shape::Time,
            shape => shape,
        };
        self.floats += u64::from(shape == Shape::Float);
        let before = std::mem::take(&mut self.shape);
        let is_json = before == Shape::Json;
        self.shape = before.join(shape);
        if self.shape == Shape::Json && !is_json {
            self.example = Some(shown(value.as_bytes()));
        }
    }

    fn see(&mut self, value: &str) {
        let seen = &mut self.seen;
        match value.as_bytes() {
            b"null" => {}
            b"true" | b"false" => seen.add(Sampled::Boolean),
            [b'"', ..] => match json::unescape(value) {
                Some(text) => seen.add(Sampled::String(text.as_bytes())),
                None => seen.add(Sampled::Other),
            },
            [b'[' | b'{', ..] => seen.add(Sampled::Other),
            number => seen.add(Sampled::Number(number)),
        }
    }

    /// The reason for the guess, for the person who wonders.
    fn why(&self, rows: u64) -> String {
        let values = self.values;
        let all = |words: [&str; 2]| all(values, rows, words);
        match &self.shape {
            Shape::Float => with_fractions(self.floats, values, rows),
            Shape::Bool => all(TRUE_OR_FALSE),
            Shape::Int(_) => all(WHOLE),
            Shape::Json => format!(
                "{} is among the values of {}",
                self.example.as_deref().unwrap_or_default(),
                counted(rows, "sampled row")
            ),
            Shape::List(_) => all(["is an array", "are arrays"]),
            Shape::Struct(_) => all(["is an object", "are objects"]),
            Shape::Time => all([
                "is a timestamp with an offset from UTC",
                "are timestamps with an offset from UTC",
            ]),
            Shape::String | Shape::Unknown => all(["is a string", "are strings"]),
        }
    }
}

impl Sampler {
    /// Reads `max_rows` rows of JSON Lines at most.
    pub fn new(max_rows: u64, max_record_bytes: usize) -> Self {
        Self::of(Layout::Lines, max_rows, max_record_bytes)
    }

    /// The same for JSON documents.
    pub fn of_documents(max_rows: u64, max_record_bytes: usize) -> Self {
        Self::of(Layout::Document, max_rows, max_record_bytes)
    }

    fn of(layout: Layout, max_rows: u64, max_record_bytes: usize) -> Self {
        Self {
            records: Records::new(layout, max_record_bytes),
            columns: Columns::default(),
            rows: 0,
            rules: Rules {
                max_rows,
                times: false,
                is_lenient: false,
                layout,
            },
        }
    }

    /// The same, which passes over records that are not JSON objects with different keys.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.rules.is_lenient = true;
        self
    }

    /// The same after records that it has not seen, and whose columns were `schema`: what a sampler returned.
    #[must_use]
    pub fn after(mut self, schema: &Schema) -> Self {
        let column = |field: &Arc<Field>| {
            let shape = Shape::of_field(field);
            let column = Column {
                shape,
                seen: Seen::of_field(field),
                ..Column::default()
            };
            (field.name().clone(), column)
        };
        let names = schema.fields().iter().map(|field| field.name().clone());
        self.columns = Columns {
            list: schema.fields().iter().map(column).collect(),
            places: names.zip(0..).collect(),
        };
        self
    }

    /// The columns so far.
    pub fn columns(&self) -> usize {
        self.columns.list.len()
    }

    /// The same, which makes a column `timestamptz` if each of its sampled values is a timestamp of
    /// RFC 3339, which has an offset from UTC, with at most six decimals of a second.
    #[must_use]
    pub fn with_times(mut self) -> Self {
        self.rules.times = true;
        self
    }

    /// Begins a file.
    pub fn begin_file(&mut self) {
        self.records.begin_file();
    }

    /// Reads the next bytes of the file, until there are enough rows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let (columns, rows, rules) = (&mut self.columns, &mut self.rows, self.rules);
        let look = |found: Found<'_>, place| look(columns, rows, rules, found, place);
        self.records.push(bytes, look).map(|_| ())
    }

    /// True once there are enough rows.
    pub fn is_done(&self) -> bool {
        self.rows >= self.rules.max_rows
    }

    /// Sampled rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The file ends here.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        let (columns, rows, rules) = (&mut self.columns, &mut self.rows, self.rules);
        let look = |found: Found<'_>, place| look(columns, rows, rules, found, place);
        self.records.end_of_file(look)
    }

    /// Ends the sample before the end of the file; half a record is left out.
    pub fn end_of_sample(&mut self) {
        self.records.begin_file();
    }

    /// The guess: columns in the order in which their keys were first seen.
    pub fn finish(self) -> Result<Inferred, FormatError> {
        let rows = self.rows;
        let mut fields = Vec::with_capacity(self.columns.list.len());
        let mut notes = Vec::with_capacity(self.columns.list.len());
        for (name, column) in &self.columns.list {
            let type_name = column.shape.type_name();
            let field = parse_field(name, &type_name, true)
                .map_err(|error| FormatError::new("unsupported_type", error.to_string()))?;
            fields.push(Arc::new(column.seen.mark(field)));
            notes.push(match column.values {
                0 => format!(
                    "{name}: {type_name} (no value in {})",
                    counted(rows, "sampled row")
                ),
                _ => format!("{name}: {type_name} ({})", column.why(rows)),
            });
        }
        let fields: Vec<Arc<Field>> = fields;
        Ok(Inferred {
            schema: Arc::new(Schema::new(fields)),
            notes,
            rows,
        })
    }
}

fn look(
    columns: &mut Columns,
    rows: &mut u64,
    rules: Rules,
    found: Found<'_>,
    place: Place,
) -> Result<bool, FormatError> {
    let text = match found {
        Ok(text) => text,
        Err(_) if rules.is_lenient => return Ok(true),
        Err((_, error)) => return Err(error),
    };
    if *rows >= rules.max_rows {
        return Ok(false);
    }
    let mut seen = std::collections::HashSet::new();
    let walked = json::for_entries(text, |key, value| {
        // Most records have the keys of the one before, in the same order.
        let next = columns.list.get(seen.len());
        let at = match next.filter(|(name, _)| *name == *key) {
            Some(_) => Some(seen.len()),
            None => columns.place(&key),
        };
        let Some(at) = at else {
            return Err(too_many().line(place.of_part(text, value).line));
        };
        if !seen.insert(at) {
            return Err(duplicate(&key).line(place.of_part(text, value).line));
        }
        columns.list[at].1.look(value, rules.times);
        Ok(())
    });
    match walked {
        Ok(()) => {}
        Err(_) if rules.is_lenient => return Ok(true),
        Err(Stop::Callback(error)) => return Err(error),
        Err(Stop::Broken(error)) => return Err(broken(text, place, rules.layout, &error)),
    }
    *rows += 1;
    Ok(*rows < rules.max_rows)
}

fn too_many() -> FormatError {
    let text = format!("the sampled rows have more than {MAX_COLUMNS} different keys");
    FormatError::new("too_many_columns", text).hint("declare the columns that you need")
}

/// The common shape of the values so far.
#[derive(Debug, Clone, PartialEq, Default)]
enum Shape {
    /// Nothing but `null`.
    #[default]
    Unknown,
    Bool,
    /// Within int64; true if within 2^53 too.
    Int(bool),
    Float,
    String,
    /// Strings, each a timestamp with an offset.
    Time,
    List(Box<Shape>),
    Struct(Vec<(String, Shape)>),
    /// No common type.
    Json,
}

impl Shape {
    /// Of the values that a column has held.
    fn of_field(field: &Field) -> Self {
        match field.data_type() {
            DataType::Null => Self::Unknown,
            DataType::Boolean => Self::Bool,
            // Larger numbers may have come, too, but a target with whole numbers takes no others afterwards.
            DataType::Int64 => Self::Int(true),
            DataType::Float64 => Self::Float,
            DataType::Utf8 if !is_json(field) => Self::String,
            DataType::Timestamp(_, Some(_)) => Self::Time,
            DataType::List(item) => Self::List(Box::new(Self::of_field(item))),
            DataType::Struct(fields) => {
                let shape = |field: &Arc<Field>| (field.name().clone(), Self::of_field(field));
                Self::Struct(fields.iter().map(shape).collect())
            }
            _ => Self::Json,
        }
    }

    /// Of a valid JSON value.
    fn of(json: &str, depth: usize) -> Self {
        match json.as_bytes().first() {
            Some(b'n') => Self::Unknown,
            Some(b't' | b'f') => Self::Bool,
            Some(b'"') => Self::String,
            Some(b'[' | b'{') if depth >= MAX_DEPTH => Self::Json,
            Some(b'[') => Self::of_array(json, depth + 1),
            Some(b'{') => Self::of_object(json, depth + 1),
            _ => Self::of_number(json.as_bytes()),
        }
    }

    fn of_number(text: &[u8]) -> Self {
        let whole = !text.iter().any(|b| matches!(b, b'.' | b'e' | b'E'));
        match number::parse_i64(text) {
            // The sign of a zero would be lost.
            _ if text == b"-0" => Self::Float,
            Ok(value) => Self::Int(value.unsigned_abs() <= EXACT_WHOLE),
            Err(_) if !whole && number::float_keeps_digits(text) => Self::Float,
            Err(_) => Self::Json,
        }
    }

    fn of_array(json: &str, depth: usize) -> Self {
        let mut item = Self::Unknown;
        let walked = json::for_items(json, |value| {
            item = std::mem::take(&mut item).join(Self::of(value, depth));
            Ok::<_, ()>(())
        });
        match walked {
            Ok(()) => Self::List(Box::new(item)),
            Err(_) => Self::Json,
        }
    }

    fn of_object(json: &str, depth: usize) -> Self {
        let mut fields: Vec<(String, Self)> = Vec::new();
        let walked = json::for_entries(json, |key, value| {
            let twice = fields.iter().any(|(name, _)| *name == *key);
            if twice || fields.len() == MAX_KEYS {
                return Err(());
            }
            fields.push((key.into_owned(), Self::of(value, depth)));
            Ok(())
        });
        match walked {
            Ok(()) => Self::Struct(fields),
            Err(_) => Self::Json,
        }
    }

    /// The shape that holds the values of both.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, shape) | (shape, Self::Unknown) => shape,
            (Self::Int(a), Self::Int(b)) => Self::Int(a && b),
            (Self::Int(true), Self::Float) | (Self::Float, Self::Int(true)) => Self::Float,
            (Self::Time, Self::String) | (Self::String, Self::Time) => Self::String,
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.join(*b))),
            (Self::Struct(mut fields), Self::Struct(more)) => {
                for (name, shape) in more {
                    match fields.iter_mut().find(|(n, _)| *n == name) {
                        Some((_, known)) => *known = std::mem::take(known).join(shape),
                        None => fields.push((name, shape)),
                    }
                }
                if fields.len() > MAX_KEYS {
                    Self::Json
                } else {
                    Self::Struct(fields)
                }
            }
            (a, b) if a == b => a,
            _ => Self::Json,
        }
    }

    fn type_name(&self) -> String {
        match self {
            Self::Unknown | Self::String => "string".into(),
            Self::Bool => "bool".into(),
            Self::Int(_) => "int64".into(),
            Self::Float => "float64".into(),
            Self::Time => "timestamptz".into(),
            Self::List(item) => format!("list<{}>", item.type_name()),
            // Objects without keys: there is nothing to make columns of.
            Self::Struct(fields) if fields.is_empty() => "json".into(),
            Self::Struct(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, shape)| format!("{}: {}", quoted(name), shape.type_name()));
                format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
            }
            Self::Json => "json".into(),
        }
    }
}

/// Whether a JSON string is a timestamp of RFC 3339 that a `timestamptz` holds.
fn is_time(json: &str) -> bool {
    let Some(text) = json.strip_prefix('"').and_then(|t| t.strip_suffix('"')) else {
        return false;
    };
    let text = text.as_bytes();
    // The parser takes a space for the T, years of any length and offsets of hours alone.
    let has_form = text.len() >= 20
        && text[..4].iter().all(u8::is_ascii_digit)
        && (text[4], text[7], text[10], text[13], text[16]) == (b'-', b'-', b'T', b':', b':')
        && (text.ends_with(b"Z") || text[text.len() - 3] == b':');
    has_form && time::parse_timestamp(text, TimeUnit::Microsecond, true).is_ok()
}

/// A field's name as a type name takes it.
fn quoted(name: &str) -> String {
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rapidbyte_wire::types::type_name;

    fn infer(lines: &str) -> Result<Inferred, FormatError> {
        let mut sampler = Sampler::new(1000, 1 << 20);
        sampler.begin_file();
        sampler.push(lines.as_bytes())?;
        sampler.end_of_file()?;
        sampler.finish()
    }

    fn guess(values: &[&str]) -> String {
        let lines: Vec<_> = values.iter().map(|v| format!("{{\"a\":{v}}}")).collect();
        type_name(infer(&lines.join("\n")).unwrap().schema.field(0))
    }

    #[test]
    fn values_get_the_type_that_loses_nothing() {
        for (values, expected) in [
            (&["1", "-2", "null"][..], "int64"),
            (&["1", "2.5"], "float64"),
            (&["9007199254740993"], "int64"),
            (&["9007199254740993", "2.5"], "json"),
            (&["9223372036854775808"], "json"),
            (&["0.1234567890123456789"], "json"),
            (&["-0"], "float64"),
            (&["true", "null"], "bool"),
            (&["true", "1"], "json"),
            (&["\"2026-11-21\""], "string"),
            (&["null"], "string"),
            (&["{}"], "json"),
            (&["[]"], "list<string>"),
            (&["[]", "[1,null]", "[2.5]"], "list<float64>"),
            (&["[1,\"x\"]"], "list<json>"),
            (&["[1]", "{}"], "json"),
            (
                &["{\"x\":1}", "{\"y z\":[true],\"x\":null}"],
                "struct<x: int64, \"y z\": list<bool>>",
            ),
            (&["{\"x\\\"\\\\\":1}"], "struct<\"x\\\"\\\\\": int64>"),
            (&["{\"x\":1,\"x\":2}"], "json"),
        ] {
            assert_eq!(guess(values), expected, "{values:?}");
        }
        let keys = |count: usize| {
            let keys: Vec<_> = (0..count).map(|key| format!("\"k{key}\":1")).collect();
            infer(&format!("{{{}}}", keys.join(",")))
        };
        assert_eq!(keys(10_000).unwrap().schema.fields().len(), 10_000);
        assert_eq!(
            keys(10_001).map_err(|e| e.code).err(),
            Some("too_many_columns")
        );
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(guess(&[&deep]).contains("json"));
    }

    #[test]
    fn columns_come_in_the_order_of_their_first_key() {
        let inferred = infer("{\"b\":1}\n\n{\"a\":null,\"b\":2}\n").unwrap();
        assert_eq!(
            inferred.notes,
            [
                "b: int64 (all 2 values of 2 sampled rows are whole numbers)",
                "a: string (no value in 2 sampled rows)",
            ]
        );
    }

    #[test]
    fn a_column_of_timestamps_with_offsets_is_timestamptz() {
        let guess = |values: &[&str]| {
            let lines = values.iter().map(|value| format!("{{\"a\":{value}}}\n"));
            let mut sampler = Sampler::new(1000, 1 << 20).with_times();
            sampler.begin_file();
            sampler.push(lines.collect::<String>().as_bytes()).unwrap();
            type_name(sampler.finish().unwrap().schema.field(0))
        };
        let time = "\"2026-11-21T10:00:00Z\"";
        for values in [
            &[time][..],
            &[time, "null", "\"2026-11-21T10:00:00.123456-02:30\""],
        ] {
            assert_eq!(guess(values), "timestamptz", "{values:?}");
        }
        for other in [
            "\"\"",
            "\"2026-11-21\"",
            "\"2026-11-21T10:00:00\"",
            "\"2026-11-21 10:00:00Z\"",
            "\"2026-11-21T10:00:00+02\"",
            "\"2026-02-30T10:00:00Z\"",
            "\"0000-00-00T00:00:00Z\"",
            "\"2026-11-21T10:00:00.1234567Z\"",
            "\"2026-11-21T10:00:00\\u005a\"",
        ] {
            assert_eq!(guess(&[time, other]), "string", "{other}");
            assert_eq!(guess(&[other, time]), "string", "{other}");
        }
        assert_eq!(guess(&[time, "1"]), "json");
        assert_eq!(guess(&["[\"2026-11-21T10:00:00Z\"]"]), "list<string>");
    }

    #[test]
    fn a_broken_sample_is_refused() {
        for (lines, code) in [
            ("{\"a\":1}\n{\"a\":", "jsonl_broken_line"),
            ("[1]", "jsonl_not_an_object"),
            ("{\"a\":1,\"a\":2}", "jsonl_duplicate_key"),
        ] {
            assert_eq!(infer(lines).unwrap_err().code, code);
        }
    }
}
