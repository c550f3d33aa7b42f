//! What stands under `config:`, and what it comes to.

use rapidbyte_formats::{Choice, Format, FormatName, NullText};
use rapidbyte_sdk::pattern;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

/// Stands for the stream's name in a path.
const STREAM: &str = "{stream}";

/// What stands under `config:`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file. `{stream}` in it stands for the stream's name; more than one stream needs it.
    #[schemars(extend("x-grant" = "write"))]
    pub path: String,
    /// `csv` or `jsonl`. Without it the ending tells: .csv, .tsv, .jsonl, .ndjson.
    pub format: Option<FormatName>,
    /// CSV: between two fields. A comma if absent, a tab for .tsv.
    pub delimiter: Option<String>,
    /// CSV: around fields that need it. A double quote if absent.
    pub quote: Option<String>,
    /// CSV: the first line names the columns. True if absent.
    pub header: Option<bool>,
    /// CSV: what stands for NULL, the first of several texts. Empty if absent.
    pub null_text: Option<NullText>,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub path: String,
    pub format: Format,
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let invalid = |text: &str| Err(Error::config("invalid_path", text).at("config.path"));
        if self.path.is_empty() || self.path.ends_with('/') {
            return invalid("the path names no file");
        }
        if pattern::is_pattern(&self.path) {
            return invalid("a path to write to has no * and no ?");
        }
        let choice = Choice {
            path: &self.path,
            format: self.format,
            delimiter: self.delimiter.as_deref(),
            quote: self.quote.as_deref(),
            header: self.header,
            null_text: self.null_text.as_ref(),
        };
        let format = choice.settle().map_err(|error| {
            let key = error.column.as_deref().unwrap_or("format");
            let mut converted =
                Error::config(error.code, &error.message).at(format!("config.{key}"));
            converted.hint = error.hint;
            converted
        })?;
        Ok(Settings {
            path: self.path,
            format,
        })
    }
}

impl Settings {
    /// The file of a stream.
    pub(crate) fn path_of(&self, stream: &str) -> Result<String> {
        if !self.path.contains(STREAM) {
            return Ok(self.path.clone());
        }
        let is_name = !stream.is_empty()
            && !matches!(stream, "." | "..")
            && !stream.contains(['/', '\\', '\0', '*', '?']);
        if !is_name {
            let text = format!("{stream:?} cannot be a part of a file's name");
            return Err(Error::config("invalid_file_name", text)
                .hint("rename the stream, or write it to a path without {stream}")
                .in_stream(stream)
                .at("config.path"));
        }
        Ok(self.path.replace(STREAM, stream))
    }
}
