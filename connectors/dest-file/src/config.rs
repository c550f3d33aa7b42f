//! What stands under `config:`, and what it comes to.

use std::collections::BTreeMap;

use rapidbyte_columnar as columnar;
use rapidbyte_columnar::{Kind, WriteOptions};
use rapidbyte_formats::csv::Dialect;
use rapidbyte_formats::{Choice, Chosen, Compression, Format, FormatName, NullText};
use rapidbyte_manifest::{Csv, Form};
use rapidbyte_sdk::bytes::Size;
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::layout::Layout;
use crate::size::rows;

/// What stands under `config:`.
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
    pub format: Option<FormatName>,
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

/// A configuration without open questions.
#[derive(Debug)]
pub(crate) struct Settings {
    pub layout: Layout,
    pub format: FileFormat,
}

/// How rows stand in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileFormat {
    Text(Format, Compression),
    Columns(Kind, WriteOptions),
}

impl FileFormat {
    /// How files with this name are written, for their manifests.
    pub(crate) fn form(&self, name: &str, partition_by: &[String]) -> Form {
        let (format, compression, csv) = match self {
            Self::Text(format, compression) => {
                let compression = Some(compression.name().to_owned());
                match format {
                    Format::Csv(dialect) => ("csv", compression, Some(csv(dialect))),
                    Format::Jsonl => ("jsonl", compression, None),
                }
            }
            // Each file says how it is compressed.
            Self::Columns(Kind::Parquet, _) => ("parquet", None, None),
            Self::Columns(Kind::Arrow, _) => ("arrow", None, None),
        };
        Form {
            name: name.to_owned(),
            partition_by: partition_by.to_vec(),
            format: format.to_owned(),
            compression,
            csv,
        }
    }
}

fn csv(dialect: &Dialect) -> Csv {
    Csv {
        delimiter: dialect.delimiter.into(),
        quote: dialect.quote.into(),
        header: dialect.header,
        null_text: dialect.null_text.first().cloned().unwrap_or_default(),
    }
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
            ..Choice::default()
        };
        let chosen = choice.settle().map_err(|error| {
            let key = error.column.as_deref().unwrap_or("format");
            let mut converted =
                Error::config(error.code, &error.message).at(format!("config.{key}"));
            converted.hint = error.hint;
            converted
        })?;
        let format = match chosen {
            Chosen::Text(format) => FileFormat::Text(format, self.text_compression()?),
            Chosen::Parquet => self.columns(Kind::Parquet, &layout)?,
            Chosen::Arrow => self.columns(Kind::Arrow, &layout)?,
        };
        if self.row_group_bytes.is_some()
            && !matches!(format, FileFormat::Columns(Kind::Parquet, _))
        {
            let text = "only Parquet has row groups";
            return Err(Error::config("unused_option", text)
                .hint("remove the key")
                .at("config.row_group_bytes"));
        }
        Ok(Settings { layout, format })
    }

    /// What the configuration or else the path's ending says.
    fn text_compression(&self) -> Result<Compression> {
        use columnar::Compression as Said;
        Ok(match self.compression {
            None => Compression::of_path(&self.path).0,
            Some(Said::None) => Compression::None,
            Some(Said::Gzip) => Compression::Gzip,
            Some(Said::Zstd) => Compression::Zstd,
            Some(Said::Lz4) => Compression::Lz4,
            Some(other @ (Said::Snappy | Said::Brotli)) => {
                return Err(self.no_compression(other, "CSV and JSON Lines"));
            }
        })
    }

    fn columns(&self, kind: Kind, layout: &Layout) -> Result<FileFormat> {
        if let Some(said) = self.compression.filter(|said| !said.fits(kind)) {
            return Err(self.no_compression(said, "Arrow files"));
        }
        let open = match &layout.set {
            Some(set) if set.partitions_any() => set.open_files,
            _ => 1,
        };
        let bytes = match self.row_group_bytes {
            Some(size) => usize::try_from(size.0).unwrap_or(usize::MAX),
            None => (2 * WriteOptions::ROW_GROUP_BYTES / open)
                .clamp(MIN_ROW_GROUP_BYTES, WriteOptions::ROW_GROUP_BYTES),
        };
        if bytes < MIN_ROW_GROUP_BYTES {
            let text = format!("{bytes} bytes are too few for a row group");
            return Err(Error::config("invalid_config", text)
                .hint(format!("set {MIN_ROW_GROUP_BYTES} or more"))
                .at("config.row_group_bytes"));
        }
        let options = WriteOptions {
            compression: self.compression,
            row_group_bytes: bytes,
        };
        Ok(FileFormat::Columns(kind, options))
    }

    fn no_compression(&self, said: columnar::Compression, what: &str) -> Error {
        let text = format!("{what} cannot be compressed with {}", said.name());
        Error::config("invalid_config", text)
            .hint("use none, gzip, zstd or lz4; for Arrow files only none, zstd or lz4")
            .at("config.compression")
    }
}

/// Smaller row groups have more metadata than values.
const MIN_ROW_GROUP_BYTES: usize = 1 << 20;
