//! What the configuration comes to.

use crate::config::Config;
use crate::layout::Layout;
use rapidbyte_columnar as columnar;
use rapidbyte_columnar::{Kind, WriteOptions};
use rapidbyte_formats::csv::Dialect;
use rapidbyte_formats::{Choice, Chosen, Compression, Format};
use rapidbyte_manifest::{Csv, Form};
use rapidbyte_sdk::prelude::*;

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
                    Format::Json => ("json", compression, None),
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
            format: self.format.map(Into::into),
            delimiter: self.delimiter.as_deref(),
            quote: self.quote.as_deref(),
            header: self.header,
            null_text: self.null_text.as_ref(),
            ..Choice::default()
        };
        let chosen = match choice.settle() {
            Ok(Chosen::Text(Format::Json)) => Err(Format::refuse_documents()),
            settled => settled,
        };
        let chosen = chosen.map_err(|error| {
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
