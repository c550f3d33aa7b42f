//! What stands under `config:`, and what it comes to.

use rapidbyte_formats::{Choice, Compression, Format, FormatName, NullText};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::layout::{self, Layout};
use crate::size::Size;

/// What stands under `config:`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file. `{stream}` in it stands for the stream's name; more than one stream needs it.
    /// With `split` the file's name has `{part}`, the number of the file from 00000 on.
    #[schemars(extend("x-grant" = "write"))]
    pub path: String,
    /// `csv` or `jsonl`. Without it the ending tells: .csv, .tsv, .jsonl, .ndjson, also before
    /// .gz, .zst or .lz4.
    pub format: Option<FormatName>,
    /// `none`, `gzip`, `zstd` or `lz4`. Without it the ending tells: .gz, .zst, .lz4.
    pub compression: Option<Compression>,
    /// Several files instead of one, which take the place of the path's folder together.
    pub split: Option<Split>,
    /// Columns that become folders, `day=2026-11-21/`, and leave the rows.
    #[serde(default)]
    #[schemars(extend("x-grant" = "folders"))]
    pub partition_by: Vec<String>,
    /// Partitions whose files are written at a time: 32 if absent. With `{part}` in the path a
    /// file is ended early when there are more; without it more are refused.
    pub open_files: Option<u32>,
    /// CSV: between two fields. A comma if absent, a tab for .tsv.
    pub delimiter: Option<String>,
    /// CSV: around fields that need it. A double quote if absent.
    pub quote: Option<String>,
    /// CSV: the first line names the columns. True if absent.
    pub header: Option<bool>,
    /// CSV: what stands for NULL, the first of several texts. Empty if absent.
    pub null_text: Option<NullText>,
}

/// When a file is followed by another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// A file ends with the row that brings it to so many bytes (after compression), such as 256mb.
    pub bytes: Option<Size>,
    /// A file has at most so many rows.
    pub rows: Option<u64>,
}

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub layout: Layout,
    pub format: Format,
    pub compression: Compression,
}

impl Config {
    pub(crate) fn settle(self) -> Result<Settings> {
        let layout = Layout::settle(&self)?;
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
            compression: layout::compression(&self),
            layout,
            format,
        })
    }
}
