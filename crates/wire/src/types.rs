//! The names of types, as people write them in a pipeline and read them in a plan.
//!
//! | name | Arrow | notes |
//! | --- | --- | --- |
//! | `bool`, `int8` … `int64`, `uint8` … `uint64`, `float32`, `float64` | the same | |
//! | `decimal(p, s)` | Decimal128 up to 38 digits, Decimal256 up to 76 | |
//! | `string`, `large_string`, `binary`, `large_binary`, `fixed_binary(n)` | Utf8 … | |
//! | `date` | Date32 | days since 1970-01-01 |
//! | `time`, `time(s\|ms\|us\|ns)` | Time32 / Time64 | `us` when not said |
//! | `timestamp`, `timestamp(us)` | Timestamp without a zone | |
//! | `timestamptz`, `timestamp(us, UTC)` | Timestamp with a zone | |
//! | `duration(us)`, `interval` | Duration, Interval(MonthDayNano) | |
//! | `uuid`, `json` | FixedSizeBinary(16), Utf8 with canonical extension types | |
//! | `list<T>`, `struct<a: T, b: T>`, `map<K, V>` | List, Struct, Map | |
//!
//! Extension types: "Canonical Extension Types" in the Arrow documentation.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};

use crate::WireError;
use crate::name::shown;
use crate::sampled::unsampled;

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
/// The extension name of a UUID column (16 bytes, big-endian).
pub const UUID: &str = "arrow.uuid";
/// The extension name of a JSON column (UTF-8 text).
pub const JSON: &str = "arrow.json";
/// The key of a field's metadata that says: these strings are JSON strings. It is for columns of `string`, and of
/// lists of them, that were read from JSON: text of another origin may be a JSON document written as text.
const JSON_STRINGS: &str = "rapidbyte.json_strings";
/// The key of a field's metadata that says: these strings, documents and bytes are values of a program. Neither is the text
/// of the other, such as `\x41` for bytes.
const PROGRAM_VALUES: &str = "rapidbyte.program_values";
/// Nested types deeper than this are refused, so that no reader runs out of stack.
pub const MAX_DEPTH: usize = 64;

/// Reads a type name such as `decimal(18, 4)` or `list<struct<a: int64>>` into a field.
pub fn parse_field(name: &str, type_name: &str, nullable: bool) -> Result<Field, WireError> {
    let mut parser = Parser {
        text: type_name,
        at: 0,
    };
    let field = parser.field(name, nullable, 0)?;
    parser.skip_space();
    if parser.at < type_name.len() {
        return Err(parser.error("the end of the type"));
    }
    Ok(field)
}

/// Writes a field's type by its name; the inverse of [`parse_field`] for portable types.
pub fn type_name(field: &Field) -> String {
    match field.metadata().get(EXTENSION_NAME).map(String::as_str) {
        Some(UUID) => "uuid".into(),
        Some(JSON) => "json".into(),
        Some(other) => format!("{} as {other}", data_type_name(field.data_type())),
        None => data_type_name(field.data_type()),
    }
}

/// The extension type of values in a system's own bytes.
pub const OPAQUE: &str = "arrow.opaque";

/// True for a field that holds UUIDs.
pub fn is_uuid(field: &Field) -> bool {
    extension_name(field) == Some(UUID)
}

/// True for a field that holds JSON documents as text.
pub fn is_json(field: &Field) -> bool {
    extension_name(field) == Some(JSON)
}

/// True for a field whose strings are [marked](mark_json_strings) as JSON strings.
pub fn is_json_strings(field: &Field) -> bool {
    field.metadata().contains_key(JSON_STRINGS)
}

/// True for a field whose values are [marked](mark_program_values) as values of a program.
pub fn is_program_value(field: &Field) -> bool {
    field.metadata().contains_key(PROGRAM_VALUES)
}

/// The key of a schema's metadata that has the values which a column that the source added later has in the rows before
/// it: a JSON object of texts, by the column's name at the source. A host drops it in front of a transform, which may
/// hide these values.
pub const OLDER_VALUES: &str = "rapidbyte.older-values";

/// The metadata of a column that has the type of the target, because its inferred type does not fit there.
const STORED: &str = "rapidbyte.stored";

/// Marks a field that has the type of the target instead of the inferred type: every spelling of a value is read.
#[must_use]
pub fn mark_stored(field: Field) -> Field {
    marked(field, STORED)
}

/// True for a field that is [marked](mark_stored) so.
pub fn is_stored(field: &Field) -> bool {
    field.metadata().contains_key(STORED)
}

/// The schema of columns that were read from JSON: columns of strings, and of lists of strings, are marked as JSON
/// strings. A destination with a type for JSON documents must store them as such: `"5"` is not the number 5.
pub fn mark_json_strings(schema: &Schema) -> Schema {
    change_fields(schema, |field| match holds_strings(&field) {
        true => marked(field, JSON_STRINGS),
        false => field,
    })
}

/// The schema of columns that a program gives: columns of strings, JSON documents and bytes are marked as its values.
pub fn mark_program_values(schema: &Schema) -> Schema {
    change_fields(schema, |field| {
        match holds_strings(&field) || is_json(&field) || holds_bytes(&field) {
            true => marked(field, PROGRAM_VALUES),
            false => field,
        }
    })
}

/// The schema without the marks of texts and of samples, as a file has it.
pub fn unmarked(schema: &Schema) -> Schema {
    change_fields(schema, |field| {
        let mut metadata = field.metadata().clone();
        metadata.remove(JSON_STRINGS);
        metadata.remove(PROGRAM_VALUES);
        unsampled(&field.with_metadata(metadata))
    })
}

fn marked(field: Field, key: &str) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(key.to_owned(), String::new());
    field.with_metadata(metadata)
}

fn change_fields(schema: &Schema, change: impl Fn(Field) -> Field) -> Schema {
    let fields = schema.fields().iter();
    let fields: Fields = fields.map(|field| change(field.as_ref().clone())).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

/// Strings, or lists of strings; not of an extension type.
fn holds_strings(field: &Field) -> bool {
    match field.data_type() {
        _ if extension_name(field).is_some() => false,
        DataType::Utf8 | DataType::LargeUtf8 => true,
        DataType::List(item) | DataType::LargeList(item) => holds_strings(item),
        _ => false,
    }
}

fn holds_bytes(field: &Field) -> bool {
    match field.data_type() {
        _ if extension_name(field).is_some() => false,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => true,
        DataType::List(item) | DataType::LargeList(item) => holds_bytes(item),
        _ => false,
    }
}

/// The field's extension type, if it has one.
pub fn extension_name(field: &Field) -> Option<&str> {
    field.metadata().get(EXTENSION_NAME).map(String::as_str)
}

/// Refuses what the contract does not carry: dictionaries, unions, run ends, views, types nested
/// deeper than [`MAX_DEPTH`], zones without a name and two columns of one name.
pub fn check_portable(schema: &Schema) -> Result<(), WireError> {
    let mut seen = std::collections::HashSet::new();
    for field in schema.fields() {
        if !seen.insert(field.name()) {
            return Err(WireError::Type(format!(
                "two columns are named {}",
                shown(field.name())
            )));
        }
        check_portable_type(field.name(), field.data_type(), 0)?;
    }
    Ok(())
}

fn check_portable_type(column: &str, data_type: &DataType, depth: usize) -> Result<(), WireError> {
    if depth > MAX_DEPTH {
        return Err(WireError::Type(format!(
            "column {} is nested deeper than {MAX_DEPTH}",
            shown(column)
        )));
    }
    match data_type {
        DataType::Dictionary(..)
        | DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::Utf8View
        | DataType::BinaryView
        | DataType::ListView(_)
        | DataType::LargeListView(_) => Err(WireError::Type(format!(
            "column {} has type {}, which does not cross the boundary",
            shown(column),
            data_type_name(data_type)
        ))),
        // A message cannot tell it from no zone at all, which means something else.
        DataType::Timestamp(_, Some(zone)) if zone.is_empty() => Err(WireError::Type(format!(
            "column {} has a time zone without a name",
            shown(column)
        ))),
        // Types that the specification does not have, and Arrow panics for.
        DataType::FixedSizeBinary(width) | DataType::FixedSizeList(_, width) if *width < 0 => {
            Err(impossible(column, data_type))
        }
        DataType::Time32(TimeUnit::Microsecond | TimeUnit::Nanosecond)
        | DataType::Time64(TimeUnit::Second | TimeUnit::Millisecond) => {
            Err(impossible(column, data_type))
        }
        DataType::Map(entries, _) if !is_pair(entries.data_type()) => {
            Err(impossible(column, data_type))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => check_portable_type(column, item.data_type(), depth + 1),
        DataType::Struct(fields) => fields
            .iter()
            .try_for_each(|field| check_portable_type(column, field.data_type(), depth + 1)),
        _ => Ok(()),
    }
}

fn impossible(column: &str, data_type: &DataType) -> WireError {
    let name = data_type_name(data_type);
    WireError::Type(format!(
        "column {} has type {name}, which does not exist",
        shown(column)
    ))
}

fn is_pair(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(fields) if fields.len() == 2)
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// Writes a type without its field: also those that do not cross the boundary, in the same words.
pub fn data_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "null".into(),
        DataType::Boolean => "bool".into(),
        DataType::Int8 => "int8".into(),
        DataType::Int16 => "int16".into(),
        DataType::Int32 => "int32".into(),
        DataType::Int64 => "int64".into(),
        DataType::UInt8 => "uint8".into(),
        DataType::UInt16 => "uint16".into(),
        DataType::UInt32 => "uint32".into(),
        DataType::UInt64 => "uint64".into(),
        DataType::Float16 => "float16".into(),
        DataType::Float32 => "float32".into(),
        DataType::Float64 => "float64".into(),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => format!("decimal({p}, {s})"),
        DataType::Utf8 => "string".into(),
        DataType::LargeUtf8 => "large_string".into(),
        DataType::Utf8View => "string_view".into(),
        DataType::BinaryView => "binary_view".into(),
        DataType::Binary => "binary".into(),
        DataType::LargeBinary => "large_binary".into(),
        DataType::FixedSizeBinary(n) => format!("fixed_binary({n})"),
        DataType::Date32 => "date".into(),
        DataType::Date64 => "date64".into(),
        DataType::Time32(unit) | DataType::Time64(unit) => match unit {
            TimeUnit::Microsecond => "time".into(),
            unit => format!("time({})", unit_name(*unit)),
        },
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => {
            "timestamptz".into()
        }
        DataType::Timestamp(unit, None) => format!("timestamp({})", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp({}, {zone})", unit_name(*unit)),
        DataType::Duration(unit) => format!("duration({})", unit_name(*unit)),
        DataType::Interval(IntervalUnit::MonthDayNano) => "interval".into(),
        DataType::Interval(IntervalUnit::YearMonth) => "interval(months)".into(),
        DataType::Interval(IntervalUnit::DayTime) => "interval(days, ms)".into(),
        DataType::List(item) => format!("list<{}>", type_name(item)),
        DataType::LargeList(item) => format!("large_list<{}>", type_name(item)),
        DataType::ListView(item) => format!("list_view<{}>", type_name(item)),
        DataType::LargeListView(item) => format!("large_list_view<{}>", type_name(item)),
        DataType::FixedSizeList(item, n) => format!("fixed_size_list<{}>({n})", type_name(item)),
        DataType::Dictionary(key, value) => {
            let (key, value) = (data_type_name(key), data_type_name(value));
            format!("dictionary<{key}, {value}>")
        }
        DataType::RunEndEncoded(ends, values) => {
            format!(
                "run_end_encoded<{}, {}>",
                type_name(ends),
                type_name(values)
            )
        }
        DataType::Union(fields, _) => {
            let fields: Vec<_> = fields.iter().map(|(_, field)| named(field)).collect();
            format!("union<{}>", fields.join(", "))
        }
        DataType::Struct(fields) => {
            let fields: Vec<_> = fields.iter().map(|field| named(field)).collect();
            format!("struct<{}>", fields.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                format!("map<{}, {}>", type_name(&kv[0]), type_name(&kv[1]))
            }
            other => format!("map<{}>", data_type_name(other)),
        },
    }
}

/// A struct's field with its name.
fn named(field: &Field) -> String {
    format!("{}: {}", quote(field.name()), type_name(field))
}

/// A struct field's name in a type name: quoted unless it is a plain word.
fn quote(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, expected: &str) -> WireError {
        WireError::Type(format!(
            "{:?} is not a type: expected {expected} at character {}",
            self.text,
            self.text[..self.at].chars().count() + 1
        ))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn accept(&mut self, symbol: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn expect(&mut self, symbol: char) -> Result<(), WireError> {
        if self.accept(symbol) {
            Ok(())
        } else {
            Err(self.error(&format!("{symbol:?}")))
        }
    }

    fn word(&mut self, more: fn(char) -> bool) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(_, c)| !(c.is_alphanumeric() || *c == '_' || more(*c)))
            .map_or(rest.len(), |(i, _)| i);
        self.at += end;
        &rest[..end]
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, WireError> {
        let before = self.at;
        self.word(|c| c == '-').parse().map_err(|_| {
            self.at = before;
            self.error("a number")
        })
    }

    fn field_name(&mut self) -> Result<String, WireError> {
        self.skip_space();
        if !self.rest().starts_with('"') {
            let word = self.word(|_| false);
            return if word.is_empty() {
                Err(self.error("a field name"))
            } else {
                Ok(word.into())
            };
        }
        self.at += 1;
        let mut name = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(name);
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        Err(self.error("a closing quote"))
    }

    fn unit(&mut self) -> Result<TimeUnit, WireError> {
        let before = self.at;
        match self.word(|_| false) {
            "s" => Ok(TimeUnit::Second),
            "ms" => Ok(TimeUnit::Millisecond),
            "us" => Ok(TimeUnit::Microsecond),
            "ns" => Ok(TimeUnit::Nanosecond),
            _ => {
                self.at = before;
                Err(self.error("a unit: s, ms, us or ns"))
            }
        }
    }

    /// `(unit)` or nothing, which means microseconds.
    fn optional_unit(&mut self) -> Result<TimeUnit, WireError> {
        if !self.accept('(') {
            return Ok(TimeUnit::Microsecond);
        }
        let unit = self.unit()?;
        self.expect(')')?;
        Ok(unit)
    }

    fn field(&mut self, name: &str, nullable: bool, depth: usize) -> Result<Field, WireError> {
        if depth > MAX_DEPTH {
            return Err(self.error(&format!("at most {MAX_DEPTH} levels")));
        }
        self.skip_space();
        let before = self.at;
        let word = self.word(|_| false).to_ascii_lowercase();
        let data_type = match word.as_str() {
            "null" => DataType::Null,
            "bool" | "boolean" => DataType::Boolean,
            "int8" => DataType::Int8,
            "int16" | "smallint" => DataType::Int16,
            "int32" | "int" | "integer" => DataType::Int32,
            "int64" | "bigint" => DataType::Int64,
            "uint8" => DataType::UInt8,
            "uint16" => DataType::UInt16,
            "uint32" => DataType::UInt32,
            "uint64" => DataType::UInt64,
            "float32" | "float" | "real" => DataType::Float32,
            "float64" | "double" => DataType::Float64,
            "string" | "text" | "utf8" => DataType::Utf8,
            "large_string" => DataType::LargeUtf8,
            "binary" | "bytes" => DataType::Binary,
            "large_binary" => DataType::LargeBinary,
            "date" | "date32" => DataType::Date32,
            "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
            "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            "duration" => DataType::Duration(self.optional_unit()?),
            "time" => match self.optional_unit()? {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit => DataType::Time64(unit),
            },
            "timestamp" => self.timestamp()?,
            "decimal" | "numeric" => self.decimal()?,
            "fixed_binary" => {
                self.expect('(')?;
                let width: i32 = self.number()?;
                if !(0..=1 << 20).contains(&width) {
                    return Err(self.error("a width from 0 to 1048576"));
                }
                self.expect(')')?;
                DataType::FixedSizeBinary(width)
            }
            "list" | "large_list" => {
                self.expect('<')?;
                let item = Arc::new(self.field("item", true, depth + 1)?);
                self.expect('>')?;
                if word == "list" {
                    DataType::List(item)
                } else {
                    DataType::LargeList(item)
                }
            }
            "struct" => self.structure(depth)?,
            "map" => {
                self.expect('<')?;
                let key = self.field("key", false, depth + 1)?;
                self.expect(',')?;
                let value = self.field("value", true, depth + 1)?;
                self.expect('>')?;
                let entries = DataType::Struct(Fields::from(vec![key, value]));
                DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
            }
            "uuid" => {
                return Ok(extension(
                    name,
                    DataType::FixedSizeBinary(16),
                    nullable,
                    UUID,
                ));
            }
            "json" => return Ok(extension(name, DataType::Utf8, nullable, JSON)),
            _ => {
                self.at = before;
                return Err(self.error(
                    "a type such as int64, float64, decimal(18, 4), string, bool, date, \
                     timestamp, timestamptz, uuid, json, list<…> or struct<…>",
                ));
            }
        };
        Ok(Field::new(name, data_type, nullable))
    }

    fn structure(&mut self, depth: usize) -> Result<DataType, WireError> {
        self.expect('<')?;
        let mut fields: Vec<Field> = Vec::new();
        if !self.accept('>') {
            loop {
                let name = self.field_name()?;
                if fields.iter().any(|f| *f.name() == name) {
                    return Err(self.error("a field name that is not used yet"));
                }
                self.expect(':')?;
                fields.push(self.field(&name, true, depth + 1)?);
                if !self.accept(',') {
                    break;
                }
            }
            self.expect('>')?;
        }
        Ok(DataType::Struct(Fields::from(fields)))
    }

    fn timestamp(&mut self) -> Result<DataType, WireError> {
        if !self.accept('(') {
            return Ok(DataType::Timestamp(TimeUnit::Microsecond, None));
        }
        let unit = self.unit()?;
        let zone = if self.accept(',') {
            let zone = self.word(|c| matches!(c, '/' | '+' | '-' | ':'));
            if zone.is_empty() {
                return Err(self.error("a time zone"));
            }
            Some(zone.into())
        } else {
            None
        };
        self.expect(')')?;
        Ok(DataType::Timestamp(unit, zone))
    }

    fn decimal(&mut self) -> Result<DataType, WireError> {
        self.expect('(')?;
        let precision: u8 = self.number()?;
        let scale: i8 = if self.accept(',') { self.number()? } else { 0 };
        let fits =
            (1..=76).contains(&precision) && (0..=precision as i16).contains(&(scale as i16));
        if !fits {
            return Err(self.error("1 to 76 digits, of which 0 to all after the point"));
        }
        self.expect(')')?;
        Ok(if precision <= 38 {
            DataType::Decimal128(precision, scale)
        } else {
            DataType::Decimal256(precision, scale)
        })
    }
}

fn extension(name: &str, data_type: DataType, nullable: bool, extension: &str) -> Field {
    Field::new(name, data_type, nullable).with_metadata(HashMap::from([
        (EXTENSION_NAME.to_owned(), extension.to_owned()),
        (EXTENSION_METADATA.to_owned(), String::new()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_json_and_of_programs_are_marked_and_unmarked() {
        let types = [
            "string",
            "large_string",
            "list<list<string>>",
            "json",
            "list<json>",
            "int64",
            "uuid",
            "list<binary>",
        ];
        let fields = types.map(|name| parse_field(name, name, true).expect(name));
        let schema = Schema::new(fields.to_vec());
        let marked = mark_json_strings(&schema);
        let are = marked.fields().iter().map(|field| is_json_strings(field));
        assert_eq!(
            are.collect::<Vec<_>>(),
            [true, true, true, false, false, false, false, false]
        );
        let names = marked.fields().iter().map(|field| type_name(field));
        assert_eq!(names.collect::<Vec<_>>(), types);
        assert_eq!(unmarked(&marked), schema);
        let marked = mark_program_values(&schema);
        let are = marked.fields().iter().map(|field| is_program_value(field));
        assert_eq!(
            are.collect::<Vec<_>>(),
            [true, true, true, true, false, false, false, true]
        );
        assert_eq!(unmarked(&marked), schema);
    }

    #[test]
    fn names_come_back() {
        for name in [
            "bool",
            "int8",
            "uint64",
            "float32",
            "decimal(18, 4)",
            "decimal(76, 0)",
            "string",
            "large_string",
            "binary",
            "fixed_binary(3)",
            "date",
            "time",
            "time(s)",
            "time(ns)",
            "timestamp",
            "timestamp(ns)",
            "timestamptz",
            "timestamp(ms, Europe/Berlin)",
            "timestamp(us, +02:00)",
            "duration(us)",
            "interval",
            "uuid",
            "json",
            "list<uuid>",
            "struct<a: int64, \"b c\": list<string>>",
            "struct<\"a \\\" \\\\ \n ä\": int64>",
            "map<string, decimal(5, 2)>",
            "null",
        ] {
            let field = parse_field("c", name, true).expect(name);
            assert_eq!(type_name(&field), name);
        }
    }

    #[test]
    fn types_of_others_have_names_in_the_same_words() {
        let item = || Arc::new(Field::new("item", DataType::Float16, true));
        let text = || Box::new(DataType::Utf8View);
        for (data_type, name) in [
            (DataType::Date64, "date64"),
            (
                DataType::FixedSizeList(item(), 3),
                "fixed_size_list<float16>(3)",
            ),
            (DataType::ListView(item()), "list_view<float16>"),
            (
                DataType::Dictionary(Box::new(DataType::Int8), text()),
                "dictionary<int8, string_view>",
            ),
            (
                DataType::Interval(IntervalUnit::YearMonth),
                "interval(months)",
            ),
            (DataType::Decimal32(5, 2), "decimal(5, 2)"),
        ] {
            assert_eq!(data_type_name(&data_type), name);
        }
    }

    /// Arrow panics where it makes an array of such a type.
    #[test]
    fn types_that_do_not_exist_are_refused() {
        let entries = |fields: Vec<Field>| {
            let item = Field::new("entries", DataType::Struct(fields.into()), false);
            DataType::Map(Arc::new(item), false)
        };
        let key = || Field::new("key", DataType::Int32, false);
        let item = Arc::new(key());
        for wrong in [
            DataType::FixedSizeBinary(-1),
            DataType::FixedSizeList(Arc::clone(&item), -1),
            DataType::Map(item, false),
            entries(vec![key()]),
            DataType::Time32(TimeUnit::Nanosecond),
            DataType::Time64(TimeUnit::Second),
            DataType::List(Arc::new(Field::new(
                "item",
                DataType::FixedSizeBinary(-9),
                true,
            ))),
        ] {
            let schema = Schema::new(vec![Field::new("a", wrong, true)]);
            let error = check_portable(&schema).unwrap_err().to_string();
            assert!(error.contains("which does not exist"), "{error}");
        }
        let value = Field::new("value", DataType::Utf8, true);
        let schema = Schema::new(vec![Field::new("a", entries(vec![key(), value]), true)]);
        check_portable(&schema).unwrap();
    }

    #[test]
    fn a_wrong_name_says_where() {
        for (name, part) in [
            ("varchar", "at character 1"),
            ("decimal(80, 2)", "1 to 76 digits"),
            ("list<int64", "'>' at character 11"),
            ("int64 x", "the end of the type at character 7"),
            ("time(h)", "a unit"),
            ("struct<a: int8, a: int8>", "not used yet"),
        ] {
            let error = parse_field("c", name, true).expect_err(name).to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
        let deep = "list<".repeat(10_000);
        assert!(parse_field("c", &deep, true).is_err());
    }
}
