//! What stands under `config:`.

use std::collections::BTreeMap;

use rapidbyte_columnar as columnar;
use rapidbyte_formats::{FormatName, NullText};
use rapidbyte_sdk::bytes::Size;
use schemars::JsonSchema;

use crate::size::rows;

/// The formats that are written.
#[derive(Debug, Clone, Copy, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "FormatName")]
pub enum WrittenFormat {
    /// Comma-separated values, or with another delimiter.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, also known as Feather.
    Arrow,
}

impl From<WrittenFormat> for FormatName {
    fn from(format: WrittenFormat) -> Self {
        match format {
            WrittenFormat::Csv => Self::Csv,
            WrittenFormat::Jsonl => Self::Jsonl,
            WrittenFormat::Parquet => Self::Parquet,
            WrittenFormat::Arrow => Self::Arrow,
        }
    }
}

/// The keys under `config:`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file. `{stream}` stands for the stream's name; more than one stream needs it. `{part}`
    /// in the file's name stands for the number of the file, from 00000; `split` and `append` to a
    /// directory need it.
    #[schemars(extend("x-grant" = "write", "x-beside" = "_manifest"))]
    pub path: String,
    /// The format of the files (default: by the path's ending: .csv, .tsv, .jsonl,
    /// .ndjson, each also before .gz, .zst or .lz4; .parquet, .pq; .arrow, .feather, .ipc).
    pub format: Option<WrittenFormat>,
    /// `none`, `gzip`, `zstd` or `lz4`; for Parquet also `snappy` or `brotli` (default for CSV and
    /// JSON Lines: by the ending .gz, .zst or .lz4; for Parquet `zstd`; for Arrow `none`).
    pub compression: Option<columnar::Compression>,
    /// Parquet: end a row group at this size in memory, encoded (default 16mb; with `partition_by`,
    /// 32mb divided by `open_files`, between 1mb and 16mb). A row that is larger than 2mb
    /// and than a quarter of this size is written without compression and statistics, because these
    /// would need several times the row's size.
    pub row_group_bytes: Option<Size>,
    /// Write several files instead of one. They replace the path's directory as a whole.
    pub split: Option<Split>,
    /// Columns that become directories, `day=2026-11-21/`, and are left out of the rows.
    #[serde(default)]
    #[schemars(extend("x-grant" = "folders"))]
    pub partition_by: Vec<String>,
    /// The same for single streams, such as `public.events: [day]`; it overrides `partition_by`. An
    /// empty list means no partitions.
    #[serde(default)]
    #[schemars(extend("x-grant" = "folders", "x-keys" = "streams"))]
    pub partition_by_stream: BTreeMap<String, Vec<String>>,
    /// The number of partitions whose files may be open at the same time (default 32). With
    /// `{part}` in the path, a file ends early when there are more; without it, more are refused.
    pub open_files: Option<u32>,
    /// CSV: the delimiter between fields (default: a comma; for .tsv a tab).
    pub delimiter: Option<String>,
    /// CSV: the quote around fields that need it (default: a double quote).
    pub quote: Option<String>,
    /// CSV: whether the first line names the columns (default true).
    pub header: Option<bool>,
    /// CSV: the string for NULL, the first of a list (default: the empty string).
    pub null_text: Option<NullText>,
}

/// When a file is followed by another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// End a file with the row that brings it to this many bytes (after compression), such as
    /// 256mb.
    pub bytes: Option<Size>,
    /// Write at most this many rows into a file.
    #[serde(default, deserialize_with = "rows")]
    pub rows: Option<u64>,
}
