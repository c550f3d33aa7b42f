//! What stands under `config:`.

use std::collections::BTreeMap;

use rapidbyte_formats::csv::Headers;
use rapidbyte_formats::jsonl::UnknownKeys;
use rapidbyte_formats::{Compression, FormatName, NullText};
use rapidbyte_sdk::bytes::Size;
use rapidbyte_sdk::declared::Columns;
use schemars::JsonSchema;

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
    /// .ndjson, .json, each also before .gz, .zst or .lz4; .parquet, .pq; .arrow, .feather, .ipc).
    pub format: Option<FormatName>,
    /// CSV, JSON Lines and JSON: `none`, `gzip`, `zstd` or `lz4` (default: by each file's ending: .gz,
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
    /// Parquet and Arrow: whether a file may describe types of PostgreSQL, which dest-postgres then makes (default
    /// true; the source `ingest`: false).
    pub trust_metadata: Option<bool>,
    /// CSV: strings that mean true in a bool column, in addition to `true`, `t` and `1`.
    pub true_values: Option<Vec<String>>,
    /// CSV: strings that mean false in a bool column, in addition to `false`, `f` and `0`.
    pub false_values: Option<Vec<String>>,
    /// CSV, JSON Lines and JSON: the columns in order, as `name: type` or `name: type not null` (default:
    /// inferred).
    pub schema: Option<Columns>,
    /// The same as `schema`, for single streams.
    #[serde(default)]
    pub schemas: BTreeMap<String, Columns>,
    /// JSON Lines and JSON: keys that are not columns: `add` them as columns, if the columns are inferred and
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
