//! What the configuration comes to.

use crate::config::Config;
use crate::partition::Partitions;
use crate::times::TimeForms;
use rapidbyte_columnar::Kind;
use rapidbyte_formats::csv::Headers;
use rapidbyte_formats::jsonl::{REST, UnknownKeys};
use rapidbyte_formats::{Choice, Chosen, Compression, Format};
use rapidbyte_sdk::prelude::*;
use std::collections::BTreeMap;

/// Rows that types are inferred from, if nothing else is said.
const SAMPLE_ROWS: u64 = 10_000;
/// Bytes that types are inferred from, if nothing else is said: 1 MiB.
const SAMPLE_BYTES: u64 = 1 << 20;
/// Stands for the stream's name in a path.
pub(crate) const STREAM: &str = "{stream}";

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
    /// Of JSON Lines and JSON.
    pub unknown_keys: UnknownKeys,
    pub sample_rows: u64,
    pub sample_bytes: u64,
    /// Of Parquet and Arrow.
    pub trusts_metadata: bool,
}

impl Settings {
    /// The source's name for the types of text files.
    pub(crate) fn text_type(&self) -> &'static str {
        match &self.format {
            FileFormat::Text(Format::Jsonl | Format::Json) => "json value",
            FileFormat::Text(Format::Csv(_)) | FileFormat::Columns(..) => "csv text",
        }
    }
}

/// How rows stand in the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Text(Format),
    Columns(Kind, Headers),
}

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
            let text = "unknown_keys is for JSON Lines and JSON: the columns of a CSV file are in its header";
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
            trusts_metadata: self.trust_metadata.unwrap_or(true),
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
                    "{key} is for CSV, JSON Lines and JSON: a {kind:?} file contains this \
                         information"
                );
                Err(Error::config("unused_option", text)
                    .hint("remove the key")
                    .at(format!("config.{key}")))
            }
        }
    }
}
