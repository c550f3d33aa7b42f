//! The keys under `config:`, and the columns that they declare.

use std::collections::BTreeMap;
use std::fmt;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// Strings and binary values are this long when `length` is not given.
const DEFAULT_LENGTH: [u32; 2] = [8, 24];
/// A batch with 32-bit offsets could not hold a longer value beside others.
const MAX_LENGTH: u32 = 1 << 30;
/// The share of NULLs in a nullable column, from 0 to 1 (default 0.1).
const DEFAULT_NULL_SHARE: f64 = 0.1;

/// Rows to generate. Either `columns` or `preset` is required.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The number of rows in each stream (default: endless).
    pub rows: Option<u64>,
    /// The seed: the same seed gives the same values, another seed gives others.
    #[serde(default)]
    pub seed: u64,
    /// The columns in order: name to type, such as `id: int64`, or name to a mapping with `type`
    /// and other keys.
    #[schemars(with = "Option<BTreeMap<String, ColumnConfig>>")]
    pub columns: Option<Columns>,
    /// Predefined columns.
    pub preset: Option<Preset>,
    /// The names of the streams, which differ only in their values.
    #[serde(default = "default_streams")]
    pub streams: Vec<String>,
}

fn default_streams() -> Vec<String> {
    vec!["rows".into()]
}

/// Predefined columns.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Seven mixed columns of about 94 bytes a row: id (int64, counts), customer (int32), amount
    /// (float64), status (string of 8 to 16), note (string of 30 to 62), created_at (timestamptz),
    /// active (bool). No NULLs.
    Narrow,
}

/// The declared columns in the order of the text.
pub struct Columns(Vec<(String, ColumnConfig)>);

/// One declared column.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub enum ColumnConfig {
    /// A type name such as `int64`, `decimal(18, 4)` or `list<string>`.
    Type(String),
    /// A type name and more.
    Detail(Detail),
}

/// A column with more than a type.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Detail {
    /// A type name such as `int64`, `decimal(18, 4)` or `list<string>`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Whether the column has NULLs, also inside lists, structs and maps.
    #[serde(default)]
    pub nullable: bool,
    /// The share of NULLs in a nullable column, from 0 to 1 (default 0.1).
    pub null_share: Option<f64>,
    /// The minimum and the maximum length of a string or binary value in bytes (default [8, 24]).
    /// Strings are ASCII.
    pub length: Option<[u32; 2]>,
    /// Fill an integer column with the row's number, from 0.
    #[serde(default)]
    pub sequence: bool,
}

/// A declared column whose settings fit its type.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name, type and nullability.
    pub field: Field,
    /// From 0 to 1; 0 where the field is not nullable.
    pub null_share: f64,
    /// Least and greatest length in bytes of strings and binary values.
    pub length: [u32; 2],
    /// Holds the row's number.
    pub sequence: bool,
}

impl Config {
    /// Checks everything that a JSON Schema cannot say and gives the columns.
    pub fn columns(&self) -> Result<Vec<Column>> {
        self.check_streams()?;
        let declared = match (&self.columns, self.preset) {
            (Some(columns), None) => &columns.0,
            (None, Some(Preset::Narrow)) => &narrow(),
            (Some(_), Some(_)) => {
                return Err(Error::config(
                    "columns_and_preset",
                    "`columns` and `preset` exclude each other",
                )
                .hint("remove one of them")
                .at("config.preset"));
            }
            (None, None) => {
                return Err(
                    Error::config("no_columns", "neither `columns` nor `preset` is set")
                        .hint(
                            "declare columns such as `columns: { id: int64 }`, or `preset: narrow`",
                        )
                        .at("config.columns"),
                );
            }
        };
        let mut columns: Vec<Column> = Vec::with_capacity(declared.len());
        for (name, config) in declared {
            let at = |error: Error| error.in_column(name).at(format!("config.columns.{name}"));
            if columns.iter().any(|c| c.field.name() == name) {
                let message = format!("the column {name:?} is named twice");
                return Err(at(Error::config("duplicate_column", message)));
            }
            columns.push(config.column(name, self.rows).map_err(at)?);
        }
        Ok(columns)
    }

    fn check_streams(&self) -> Result<()> {
        if self.streams.is_empty() {
            return Err(Error::config("no_streams", "the list of streams is empty")
                .hint("name a stream, or remove `streams` to get one named `rows`")
                .at("config.streams"));
        }
        for (at, name) in self.streams.iter().enumerate() {
            let problem = if name.is_empty() {
                Error::config("empty_stream_name", "a stream's name is empty")
            } else if self.streams[..at].contains(name) {
                Error::config(
                    "duplicate_stream",
                    format!("the stream {name:?} is named twice"),
                )
            } else {
                continue;
            };
            return Err(problem.at(format!("config.streams[{at}]")));
        }
        Ok(())
    }
}

impl ColumnConfig {
    fn column(&self, name: &str, rows: Option<u64>) -> Result<Column> {
        match self {
            Self::Type(type_name) => Detail::of(type_name).column(name, rows),
            Self::Detail(detail) => detail.column(name, rows),
        }
    }
}

impl Detail {
    fn of(type_name: &str) -> Self {
        Self {
            type_name: type_name.into(),
            nullable: false,
            null_share: None,
            length: None,
            sequence: false,
        }
    }

    fn column(&self, name: &str, rows: Option<u64>) -> Result<Column> {
        let field = types::parse_field(name, &self.type_name, self.nullable)
            .map_err(|error| Error::config("unknown_type", error))?;
        // A column of type `null` holds nothing else.
        let nullable = self.nullable || field.data_type() == &DataType::Null;
        let field = field.with_nullable(nullable);
        let null_share = self.checked_null_share()?;
        if self.sequence {
            check_sequence(&field, rows)?;
        }
        Ok(Column {
            length: self.checked_length(&field)?,
            null_share,
            sequence: self.sequence,
            field,
        })
    }

    fn checked_null_share(&self) -> Result<f64> {
        match self.null_share {
            Some(_) if !self.nullable => Err(Error::config(
                "null_share_without_nullable",
                "the column has a `null_share`, but is not nullable",
            )
            .hint("add `nullable: true`, or remove `null_share`")),
            Some(share) if !(0.0..=1.0).contains(&share) => Err(Error::config(
                "invalid_null_share",
                format!("{share} is not a share between 0 and 1"),
            )),
            Some(share) => Ok(share),
            None if self.nullable => Ok(DEFAULT_NULL_SHARE),
            None => Ok(0.0),
        }
    }

    fn checked_length(&self, field: &Field) -> Result<[u32; 2]> {
        let Some([min, max]) = self.length else {
            return Ok(DEFAULT_LENGTH);
        };
        let text_or_bytes = matches!(
            field.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary
        );
        if !text_or_bytes || types::is_json(field) {
            let message = format!("a column of type {} takes no `length`", self.type_name);
            return Err(Error::config("length_not_applicable", message)
                .hint("remove `length`: it is for string, large_string, binary and large_binary"));
        }
        if min > max || max > MAX_LENGTH {
            let message = format!("[{min}, {max}] is not a valid range of lengths");
            return Err(Error::config("invalid_length", message).hint(format!(
                "set the minimum and the maximum length in bytes, up to {MAX_LENGTH}"
            )));
        }
        Ok([min, max])
    }
}

/// Refuses a sequence that its type cannot hold to the last row.
fn check_sequence(field: &Field, rows: Option<u64>) -> Result<()> {
    let greatest = match field.data_type() {
        DataType::Int8 => i8::MAX as u64,
        DataType::Int16 => i16::MAX as u64,
        DataType::Int32 => i32::MAX as u64,
        DataType::Int64 => i64::MAX as u64,
        DataType::UInt8 => u8::MAX.into(),
        DataType::UInt16 => u16::MAX.into(),
        DataType::UInt32 => u32::MAX.into(),
        DataType::UInt64 => u64::MAX,
        _ => {
            let message = format!(
                "a column of type {} cannot be a sequence",
                types::type_name(field)
            );
            return Err(Error::config("sequence_not_integer", message)
                .hint("use an integer type for `sequence: true`"));
        }
    };
    // Nobody reads an endless stream to the end of an int64.
    let last = rows.map_or(i64::MAX as u64, |rows| rows.saturating_sub(1));
    if last > greatest {
        let rows = rows.map_or("endless".into(), |rows| rows.to_string());
        let name = types::type_name(field);
        return Err(Error::config(
            "sequence_too_long",
            format!("{name} is too narrow to number {rows} rows"),
        )
        .hint("use a wider integer type, or fewer `rows`"));
    }
    Ok(())
}

/// Workload A of the benchmarks.
fn narrow() -> Vec<(String, ColumnConfig)> {
    let string = |min, max| Detail {
        length: Some([min, max]),
        ..Detail::of("string")
    };
    let id = Detail {
        sequence: true,
        ..Detail::of("int64")
    };
    [
        ("id", id),
        ("customer", Detail::of("int32")),
        ("amount", Detail::of("float64")),
        ("status", string(8, 16)),
        ("note", string(30, 62)),
        ("created_at", Detail::of("timestamptz")),
        ("active", Detail::of("bool")),
    ]
    .map(|(name, detail)| (name.to_owned(), ColumnConfig::Detail(detail)))
    .into()
}

impl<'de> Deserialize<'de> for Columns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Columns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of column names to types")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
                let mut columns = Vec::new();
                while let Some(column) = map.next_entry()? {
                    columns.push(column);
                }
                Ok(Columns(columns))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

// By hand, because an untagged enum would answer every mistake with "did not match any variant".
impl<'de> Deserialize<'de> for ColumnConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TypeOrDetail;
        impl<'de> Visitor<'de> for TypeOrDetail {
            type Value = ColumnConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a type name such as `int64`, or a mapping with `type`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ColumnConfig, E> {
                Ok(ColumnConfig::Type(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ColumnConfig, A::Error> {
                Detail::deserialize(MapAccessDeserializer::new(map)).map(ColumnConfig::Detail)
            }
        }
        deserializer.deserialize_any(TypeOrDetail)
    }
}
