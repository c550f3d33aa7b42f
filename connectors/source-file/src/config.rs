//! What stands under `config:`, and what it comes to.

use std::collections::BTreeMap;

use rapidbyte_columnar::Kind;
use rapidbyte_formats::csv::Headers;
use rapidbyte_formats::jsonl::{REST, UnknownKeys};
use rapidbyte_formats::{Choice, Chosen, Compression, Format, FormatName, NullText};
use rapidbyte_sdk::bytes::Size;
use rapidbyte_sdk::declared::Columns;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::partition::Partitions;
use crate::times::TimeForms;

/// Rows that types are inferred from, if nothing else is said.
const SAMPLE_ROWS: u64 = 10_000;
/// Bytes that types are inferred from, if nothing else is said: 1 MiB.
const SAMPLE_BYTES: u64 = 1 << 20;

/// What stands under `config:`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A file, or a pattern in which `*` and `?` stand for characters of one name. With `{stream}`
    /// in it, each name found there is a stream; without it, all matching files are one stream.
    #[schemars(extend("x-grant" = "read", "x-beside" = "_manifest"))]
    pub path: String,
    /// The name of the stream, if the path has no `{stream}` (default: the file's name without its
    /// ending and without `*` and `?`).
    pub stream: Option<String>,
    /// The format of the files (default: by the path's ending: .csv, .tsv, .jsonl,
    /// .ndjson, each also before .gz, .zst or .lz4; .parquet, .pq; .arrow, .feather, .ipc).
    pub format: Option<FormatName>,
    /// CSV and JSON Lines: `none`, `gzip`, `zstd` or `lz4` (default: by each file's ending: .gz,
    /// .zst, .lz4).
    pub compression: Option<Compression>,
    /// CSV: the delimiter between fields (default: a comma; for .tsv a tab).
    pub delimiter: Option<String>,
    /// CSV: the quote around fields that need it (default: a double quote).
    pub quote: Option<String>,
    /// CSV: whether the first line of each file names the columns (default true).
    pub header: Option<bool>,
    /// CSV: unquoted fields with this string, or one of these, are NULL (default: the empty
    /// string).
    pub null_text: Option<NullText>,
    /// CSV, Parquet and Arrow: `union` if the files of a stream may have different columns: a column that a
    /// file lacks is NULL in its rows (the default); `same` if all have the same columns, in any order. Parquet
    /// and Arrow files of a directory with manifests may always differ.
    pub headers: Option<Headers>,
    /// CSV: strings that mean true in a bool column, in addition to `true`, `t` and `1`.
    pub true_values: Option<Vec<String>>,
    /// CSV: strings that mean false in a bool column, in addition to `false`, `f` and `0`.
    pub false_values: Option<Vec<String>>,
    /// CSV and JSON Lines: the columns in order, as `name: type` or `name: type not null` (default:
    /// inferred).
    pub schema: Option<Columns>,
    /// The same as `schema`, for single streams.
    #[serde(default)]
    pub schemas: BTreeMap<String, Columns>,
    /// JSON Lines: keys that are not columns: `add` them as columns, if the columns are inferred and
    /// `schema_changes` allows new columns (the default); `collect` them as JSON in the column `_rest`;
    /// `ignore` or `refuse` them.
    pub unknown_keys: Option<UnknownKeys>,
    /// The pattern of declared timestamps, such as `%d.%m.%Y %H:%M` (default: ISO 8601).
    pub timestamp_format: Option<String>,
    /// The pattern of declared dates, such as `%d.%m.%Y` (default: ISO 8601).
    pub date_format: Option<String>,
    /// The pattern of single columns; it overrides the two keys above.
    #[serde(default)]
    pub column_formats: BTreeMap<String, String>,
    /// Columns that come from the names of directories, `day=2026-11-21`, with their types.
    pub partitions: Option<Columns>,
    /// The number of rows of each stream from which types are inferred (default 10000).
    pub sample_rows: Option<u64>,
    /// The number of bytes of each stream from which types are inferred, such as 64mb (default 1mb).
    pub sample_bytes: Option<Size>,
}

/// How rows stand in the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Text(Format),
    Columns(Kind, Headers),
}

/// A configuration without open questions.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub path: String,
    pub stream: Option<String>,
    pub format: FileFormat,
    pub compression: Option<Compression>,
    pub schema: Option<SchemaRef>,
    pub schemas: BTreeMap<String, SchemaRef>,
    pub partitions: Option<Partitions>,
    pub times: TimeForms,
    /// Of JSON Lines.
    pub unknown_keys: UnknownKeys,
    pub sample_rows: u64,
    pub sample_bytes: u64,
}

impl Settings {
    /// The source's name for the types of text files.
    pub(crate) fn text_type(&self) -> &'static str {
        match &self.format {
            FileFormat::Text(Format::Jsonl) => "json value",
            FileFormat::Text(Format::Csv(_)) | FileFormat::Columns(..) => "csv text",
        }
    }
}

/// Stands for the stream's name in a path.
pub(crate) const STREAM: &str = "{stream}";

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let placeholders = self.path.matches(STREAM).count();
        if self.path.is_empty() || placeholders > 1 {
            let text = match placeholders {
                0 => "the path is empty".to_owned(),
                n => format!("the path has {STREAM} {n} times, and may have it once"),
            };
            return Err(Error::config("invalid_path", text).at("config.path"));
        }
        if placeholders == 1 && self.stream.is_some() {
            let text = format!("{STREAM} in the path already names the streams");
            return Err(Error::config("unused_option", text).at("config.stream"));
        }
        for (key, value) in [
            ("sample_rows", self.sample_rows),
            ("sample_bytes", self.sample_bytes.map(|size| size.0)),
        ] {
            if value == Some(0) {
                return Err(
                    Error::config("invalid_config", "0 rows or bytes are not a sample")
                        .at(format!("config.{key}")),
                );
            }
        }
        let format = self.format()?;
        let schema = self
            .schema
            .as_ref()
            .map(|c| c.schema("config.schema"))
            .transpose()?;
        let partitions = self
            .partitions
            .as_ref()
            .map(|columns| columns.schema("config.partitions").map(Partitions::new))
            .transpose()?;
        let schemas = self
            .schemas
            .iter()
            .map(|(name, c)| Ok((name.clone(), c.schema(&format!("config.schemas.{name}"))?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        let times = TimeForms::settle(
            &self,
            schema.iter().chain(schemas.values()),
            partitions.as_ref(),
        )?;
        let unknown_keys = self.unknown_keys.unwrap_or(UnknownKeys::Add);
        if let (FileFormat::Text(Format::Csv(_)), Some(_)) = (&format, self.unknown_keys) {
            let text =
                "unknown_keys is for JSON Lines: the columns of a CSV file are in its header";
            return Err(Error::config("unused_option", text)
                .hint("remove the key; headers: union allows files with other columns")
                .at("config.unknown_keys"));
        }
        let declared = schema.iter().map(|schema| ("schema".to_owned(), schema));
        let of_streams = schemas
            .iter()
            .map(|(name, schema)| (format!("schemas.{name}"), schema));
        let mut all = declared.chain(of_streams);
        let has_rest = |(_, schema): &(String, &SchemaRef)| schema.field_with_name(REST).is_ok();
        if unknown_keys == UnknownKeys::Collect
            && let Some((key, _)) = all.find(has_rest)
        {
            let text = format!("unknown_keys: collect creates the column {REST} itself");
            return Err(Error::config("invalid_config", text)
                .hint(format!(
                    "remove {REST} from {key}, or write unknown_keys: refuse"
                ))
                .at(format!("config.{key}")));
        }
        Ok(Settings {
            path: self.path,
            stream: self.stream,
            format,
            compression: self.compression,
            times,
            unknown_keys,
            schema,
            schemas,
            partitions,
            sample_rows: self.sample_rows.unwrap_or(SAMPLE_ROWS),
            sample_bytes: self.sample_bytes.map_or(SAMPLE_BYTES, |size| size.0),
        })
    }

    fn format(&self) -> Result<FileFormat> {
        let choice = Choice {
            path: &self.path,
            format: self.format,
            delimiter: self.delimiter.as_deref(),
            quote: self.quote.as_deref(),
            header: self.header,
            null_text: self.null_text.as_ref(),
            headers: self.headers,
            true_values: self.true_values.as_deref(),
            false_values: self.false_values.as_deref(),
        };
        let chosen = choice.settle().map_err(|error| {
            let key = error.column.as_deref().unwrap_or("format");
            let mut converted =
                Error::config(error.code, &error.message).at(format!("config.{key}"));
            converted.hint = error.hint;
            converted
        })?;
        let kind = match chosen {
            Chosen::Text(format) => return Ok(FileFormat::Text(format)),
            Chosen::Parquet => Kind::Parquet,
            Chosen::Arrow => Kind::Arrow,
        };
        let options = [
            ("compression", self.compression.is_some()),
            ("schema", self.schema.is_some()),
            ("schemas", !self.schemas.is_empty()),
            ("sample_rows", self.sample_rows.is_some()),
            ("sample_bytes", self.sample_bytes.is_some()),
            ("unknown_keys", self.unknown_keys.is_some()),
        ];
        match options.iter().find(|(_, given)| *given) {
            None => Ok(FileFormat::Columns(kind, self.headers.unwrap_or_default())),
            Some((key, _)) => {
                let text = format!(
                    "{key} is for CSV and JSON Lines: a {kind:?} file contains this \
                         information"
                );
                Err(Error::config("unused_option", text)
                    .hint("remove the key")
                    .at(format!("config.{key}")))
            }
        }
    }
}
