//! What stands under `config:`, and what it comes to.

use std::collections::BTreeMap;

use rapidbyte_columnar as columnar;
use rapidbyte_columnar::{Kind, WriteOptions};
use rapidbyte_formats::{Choice, Chosen, Compression, Format, FormatName, NullText};
use rapidbyte_sdk::prelude::*;
use schemars::JsonSchema;

use crate::layout::Layout;
use crate::size::{Size, rows};

/// What stands under `config:`.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file. `{stream}` in it stands for the stream's name; more than one stream needs it.
    /// With `split` the file's name has `{part}`, the number of the file from 00000 on.
    /// `append` to a folder needs `{part}` too.
    #[schemars(extend("x-grant" = "write", "x-beside" = "_manifest"))]
    pub path: String,
    /// `csv`, `jsonl`, `parquet` or `arrow`. Without it the ending tells: .csv, .tsv, .jsonl,
    /// .ndjson, also before .gz, .zst or .lz4; .parquet, .pq; .arrow, .feather, .ipc.
    pub format: Option<FormatName>,
    /// `none`, `gzip`, `zstd` or `lz4`, Parquet also `snappy` or `brotli`. Without it the ending
    /// tells for CSV and JSON Lines: .gz, .zst, .lz4. Parquet has zstd if absent, Arrow none.
    pub compression: Option<columnar::Compression>,
    /// Parquet: a row group ends once it takes so much memory, encoded: 16mb if absent, with
    /// `partition_by` 32mb divided by `open_files`, from 1mb to 16mb. A row above a quarter of it, and
    /// above 2mb, is written without compression and statistics, which would take several times its size.
    pub row_group_bytes: Option<Size>,
    /// Several files instead of one, which take the place of the path's folder together.
    pub split: Option<Split>,
    /// Columns that become folders, `day=2026-11-21/`, and leave the rows.
    #[serde(default)]
    #[schemars(extend("x-grant" = "folders"))]
    pub partition_by: Vec<String>,
    /// The same for single streams, which goes before: `public.events: [day]`. An empty list is a stream without
    /// partitions.
    #[serde(default)]
    #[schemars(extend("x-grant" = "folders"))]
    pub partition_by_stream: BTreeMap<String, Vec<String>>,
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
