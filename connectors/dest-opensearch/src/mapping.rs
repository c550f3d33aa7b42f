//! The fields of an index: what Rapidbyte makes of a column, and which fields of an existing index take its values.
//!
//! `_source` keeps each value with all its digits, whatever the field. The type of a field decides what a search finds, and
//! which values the server refuses.

use arrow_schema::FieldRef;
use rapidbyte_document_store::of_format;
use rapidbyte_formats::Documents;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, is_uuid, type_name};
use serde_json::{Map, Value, json};

use crate::config::{Settings, Strings};
use crate::layout::MARK;

/// Longer strings are kept, and not found as a keyword: 4 bytes for each character are less than the 32,766 bytes of a
/// term of Lucene.
const IGNORE_ABOVE: u32 = 8191;
/// The same for the subfield of a text, as a server makes it by itself.
const SUBFIELD_IGNORE_ABOVE: u32 = 256;
/// Limits of an index, unless its settings have others ("Mapping limit settings").
const MAX_FIELDS: usize = 1000;
const MAX_DEPTH: usize = 20;
const MAX_NESTED: usize = 50;
/// Fields of the server.
const METADATA_FIELDS: [&str; 16] = [
    "_id",
    "_index",
    "_type",
    "_source",
    "_size",
    "_doc_count",
    "_field_names",
    "_ignored",
    "_routing",
    "_meta",
    "_tier",
    "_version",
    "_seq_no",
    "_primary_term",
    "_nested_path",
    "_data_stream_timestamp",
];

/// The field with the id or the mark of a row.
pub(crate) fn mark() -> Value {
    json!({ "type": "keyword", "doc_values": false })
}

fn refused(field: &Field, why: impl std::fmt::Display) -> Error {
    let text = format!("the column {:?} {why}", field.name());
    Error::schema("type_refused", text)
        .hint("leave the column out with `columns:`, or cast it in a `query`")
        .in_column(field.name())
}

/// Errors: `invalid_name`.
fn check_name(name: &str) -> Result<()> {
    let why = if METADATA_FIELDS.contains(&name) || name == MARK {
        "has the name of a field that is not yours to set"
    } else if name.contains('.') {
        "has a point in its name, which separates the fields of an object"
    } else if name.trim().is_empty() {
        "has a name without characters"
    } else {
        return Ok(());
    };
    let text = format!("the column {name:?} {why}");
    Err(Error::schema("invalid_name", text)
        .hint("leave it out with `columns:`, or rename it")
        .in_column(name))
}

/// The field for a column. Errors: `invalid_name`, `type_refused`, `unsupported_type`.
pub(crate) fn property(field: &FieldRef, settings: &Settings) -> Result<Value> {
    check_name(field.name())?;
    Documents::holds(field).map_err(of_format)?;
    of_type(field, settings)
}

fn of_type(field: &FieldRef, settings: &Settings) -> Result<Value> {
    use DataType::*;
    let of = |ty: &str| json!({ "type": ty });
    let keyword = || json!({ "type": "keyword", "ignore_above": IGNORE_ABOVE });
    Ok(match field.data_type() {
        _ if is_json(field) && !settings.documents.text_json => stored(),
        Boolean => of("boolean"),
        Int8 => of("byte"),
        Int16 | UInt8 => of("short"),
        Int32 | UInt16 => of("integer"),
        Int64 | UInt32 => of("long"),
        UInt64 => of("unsigned_long"),
        Float16 | Float32 => of("float"),
        Float64 => of("double"),
        Date32 | Date64 | Timestamp(..) => {
            json!({ "type": "date", "format": "strict_date_optional_time" })
        }
        FixedSizeBinary(16) if is_uuid(field) => keyword(),
        FixedSizeBinary(_) | Binary | LargeBinary => of("binary"),
        Utf8 | LargeUtf8 | Utf8View => match settings.strings {
            Strings::Keyword => keyword(),
            Strings::Text => of("text"),
            Strings::Both => {
                let subfield = json!({ "type": "keyword", "ignore_above": SUBFIELD_IGNORE_ABOVE });
                json!({ "type": "text", "fields": { "keyword": subfield } })
            }
        },
        Map(..) => stored(),
        List(item) | LargeList(item) | FixedSizeList(item, _) => {
            let mut of_item = of_type(item, settings)?;
            // Each object is one of its own, so that a query does not mix their fields.
            if let (Struct(_), Some(object)) = (item.data_type(), of_item.as_object_mut()) {
                object.insert("type".into(), "nested".into());
            }
            of_item
        }
        Struct(fields) => {
            let mut properties = serde_json::Map::new();
            for inner in fields.iter() {
                check_name(inner.name()).map_err(|error| error.in_column(field.name()))?;
                properties.insert(inner.name().clone(), of_type(inner, settings)?);
            }
            json!({ "dynamic": "strict", "properties": properties })
        }
        Null => keyword(),
        // Decimals, times, durations and intervals are strings with all their digits.
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => keyword(),
        Time32(_) | Time64(_) | Duration(_) | Interval(_) => keyword(),
        _ => {
            let why = format!("is {}, which no field holds", type_name(field));
            return Err(refused(field, why));
        }
    })
}

/// A field that keeps any JSON value and does not index it.
fn stored() -> Value {
    json!({ "type": "object", "enabled": false })
}

/// The mappings of a new index.
pub(crate) fn mappings(properties: &Map<String, Value>) -> Value {
    let mut all = properties.clone();
    all.insert(MARK.into(), mark());
    json!({ "dynamic": "strict", "properties": all })
}

/// How the values of a column fit a field that exists.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Match {
    /// The field takes them.
    Takes(Fit, Option<String>),
    /// The field takes them when its object has these fields, too.
    Lacks(Value),
    /// The field does not take them.
    Differs(String),
}

/// Compares the field that Rapidbyte would make with one that exists.
pub(crate) fn compare(wanted: &Value, found: &Value) -> Match {
    let (own, other) = (type_of(wanted), type_of(found));
    let note = |fit, text: &str| Match::Takes(fit, Some(text.to_owned()));
    if found["enabled"] == false {
        let is_same = wanted["enabled"] == false;
        let text = "the field keeps the values and does not index them".to_owned();
        return Match::Takes(Fit::Exact, (!is_same).then_some(text));
    }
    let differs = || {
        Match::Differs(format!(
            "the index has the field as {other}, and the stream needs {own}"
        ))
    };
    match (own, other) {
        ("object" | "nested", "object" | "nested") if wanted["enabled"] == false => note(
            Fit::Checked,
            "the server refuses a document with other fields than the field has",
        ),
        ("object" | "nested", "object" | "nested") => compare_objects(wanted, found),
        ("object" | "nested", "flat_object" | "flattened") => note(
            Fit::Checked,
            "the server refuses a value that is not an object",
        ),
        ("object" | "nested", _) => differs(),
        (_, "object" | "nested" | "flat_object" | "flattened") => differs(),
        (one, other) if one == other => Match::Takes(Fit::Exact, None),
        (_, "keyword" | "text" | "wildcard" | "match_only_text" | "search_as_you_type") => {
            Match::Takes(Fit::Exact, None)
        }
        ("keyword" | "text", other) => Match::Takes(
            Fit::Checked,
            Some(format!(
                "the server refuses a string that it cannot read as {other}"
            )),
        ),
        ("date", "date_nanos") => note(
            Fit::Checked,
            "the server refuses a time before 1970 or after 2262",
        ),
        (own, other) => compare_numbers(own, other).unwrap_or_else(differs),
    }
}

fn type_of(property: &Value) -> &str {
    property["type"].as_str().unwrap_or("object")
}

/// The rank of an integer type: each holds the values of those before it, except that `unsigned_long` holds no negative
/// ones.
fn rank(ty: &str) -> Option<usize> {
    let all = ["byte", "short", "integer", "long", "unsigned_long"];
    all.iter().position(|one| *one == ty)
}

fn compare_numbers(own: &str, other: &str) -> Option<Match> {
    let is_float = |ty: &str| matches!(ty, "half_float" | "float" | "double" | "scaled_float");
    let rounds = Match::Takes(
        Fit::Checked,
        Some("searches see a rounded number; _source keeps its digits".to_owned()),
    );
    match (rank(own), rank(other)) {
        (Some(one), Some(more)) if one <= more && other != "unsigned_long" => {
            Some(Match::Takes(Fit::Exact, None))
        }
        (Some(_), Some(_)) => Some(Match::Takes(
            Fit::Checked,
            Some(format!(
                "the server refuses a number out of the range of {other}"
            )),
        )),
        (Some(_), None) if is_float(other) => Some(rounds),
        (None, None) if is_float(own) && other == "double" => Some(Match::Takes(Fit::Exact, None)),
        (None, None) if is_float(own) && is_float(other) => Some(rounds),
        _ => None,
    }
}

fn compare_objects(wanted: &Value, found: &Value) -> Match {
    let none = Map::new();
    let of = |value: &Value| value["properties"].as_object().cloned();
    let (own, held) = (
        of(wanted).unwrap_or_default(),
        of(found).unwrap_or_default(),
    );
    let mut lacking = Map::new();
    let (mut fit, mut notes) = (Fit::Exact, Vec::new());
    for (name, property) in own {
        let Some(other) = held.get(&name) else {
            lacking.insert(name, property);
            continue;
        };
        match compare(&property, other) {
            Match::Takes(inner, note) => {
                if inner != Fit::Exact {
                    fit = inner;
                }
                notes.extend(note.map(|note| format!("{name}: {note}")));
            }
            Match::Lacks(more) => {
                lacking.insert(name, more);
            }
            Match::Differs(why) => return Match::Differs(format!("{name}: {why}")),
        }
    }
    if lacking == none {
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        return Match::Takes(fit, note);
    }
    // The type of an object cannot change.
    let mut more = json!({ "properties": lacking });
    if let (Some(ty), Some(object)) = (found.get("type"), more.as_object_mut()) {
        object.insert("type".into(), ty.clone());
    }
    Match::Lacks(more)
}

/// Limits of the fields of an index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    fields: usize,
    depth: usize,
    nested: usize,
}

impl Limits {
    /// Those of an index, or of a new one.
    pub fn of(found: Option<&crate::index::Found>) -> Self {
        let limit = |name, default| found.map_or(default, |found| found.limit(name, default));
        Self {
            fields: limit("total_fields", MAX_FIELDS),
            depth: limit("depth", MAX_DEPTH),
            nested: limit("nested_fields", MAX_NESTED),
        }
    }

    /// Errors: `too_many_fields`.
    pub fn check(self, properties: &Map<String, Value>) -> Result<()> {
        let counted = Counted::of(properties);
        for (count, limit, what, setting) in [
            (counted.fields, self.fields, "fields", "total_fields"),
            (
                counted.depth,
                self.depth,
                "objects inside each other",
                "depth",
            ),
            (
                counted.nested,
                self.nested,
                "lists of objects",
                "nested_fields",
            ),
        ] {
            if count > limit {
                let text =
                    format!("the index would have {count} {what}, and it takes {limit} at most");
                return Err(Error::schema("too_many_fields", text).hint(format!(
                    "leave columns out with `columns:`, or create the index with a larger index.mapping.{setting}.limit"
                )));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    fields: usize,
    depth: usize,
    nested: usize,
}

impl Counted {
    fn of(properties: &Map<String, Value>) -> Self {
        let mut all = Self {
            fields: 0,
            depth: 1,
            nested: 0,
        };
        for property in properties.values() {
            let subfields = property["fields"].as_object().map_or(0, Map::len);
            all.fields += 1 + subfields;
            all.nested += usize::from(type_of(property) == "nested");
            match property["properties"].as_object() {
                Some(inner) => {
                    let inner = Self::of(inner);
                    all.fields += inner.fields;
                    all.nested += inner.nested;
                    all.depth = all.depth.max(1 + inner.depth);
                }
                None if type_of(property) == "object" => all.depth = all.depth.max(2),
                None => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(own: &str, other: &str) -> Option<Fit> {
        match compare(&json!({ "type": own }), &json!({ "type": other })) {
            Match::Takes(fit, _) => Some(fit),
            _ => None,
        }
    }

    #[test]
    fn a_field_takes_the_values_that_the_server_reads() {
        for (own, other, fit) in [
            ("integer", "integer", Some(Fit::Exact)),
            ("integer", "long", Some(Fit::Exact)),
            ("long", "integer", Some(Fit::Checked)),
            ("byte", "unsigned_long", Some(Fit::Checked)),
            ("unsigned_long", "long", Some(Fit::Checked)),
            ("long", "double", Some(Fit::Checked)),
            ("float", "double", Some(Fit::Exact)),
            ("double", "float", Some(Fit::Checked)),
            // The index would cut the fraction off.
            ("double", "long", None),
            ("long", "keyword", Some(Fit::Exact)),
            ("text", "keyword", Some(Fit::Exact)),
            ("keyword", "ip", Some(Fit::Checked)),
            ("date", "date_nanos", Some(Fit::Checked)),
            ("date", "long", None),
            ("boolean", "long", None),
            ("long", "date", None),
            ("binary", "long", None),
            ("keyword", "nested", None),
        ] {
            assert_eq!(takes(own, other), fit, "{own} in {other}");
        }
    }

    #[test]
    fn an_object_is_compared_field_by_field() {
        let long = json!({ "type": "long" });
        let wanted = json!({ "properties": { "a": long, "o": { "properties": { "b": long } } } });
        let found =
            json!({ "type": "nested", "properties": { "o": { "properties": { "c": long } } } });
        let more = json!({ "type": "nested", "properties": { "a": long, "o": { "properties": { "b": long } } } });
        assert_eq!(compare(&wanted, &found), Match::Lacks(more));
        let other = json!({ "properties": { "a": { "type": "date" } } });
        assert!(matches!(compare(&wanted, &other), Match::Differs(_)));
        let stored = json!({ "type": "object", "enabled": false });
        assert!(matches!(
            compare(&wanted, &stored),
            Match::Takes(Fit::Exact, Some(_))
        ));
    }

    #[test]
    fn fields_are_counted_as_the_server_counts_them() {
        let text = json!({ "type": "text", "fields": { "keyword": { "type": "keyword" } } });
        let inner = json!({ "type": "nested", "properties": { "a": text, "o": { "properties": { "b": text } } } });
        let mut properties = Map::new();
        properties.insert("x".into(), text.clone());
        properties.insert("n".into(), inner);
        let counted = Counted::of(&properties);
        assert_eq!((counted.fields, counted.depth, counted.nested), (8, 3, 1));
        let limits = Limits {
            fields: 7,
            depth: 3,
            nested: 1,
        };
        let error = limits.check(&properties);
        assert_eq!(
            error.map_err(|error| error.code),
            Err("too_many_fields".to_owned())
        );
    }
}
