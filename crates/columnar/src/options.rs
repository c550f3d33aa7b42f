//! The settings of a writer.

use schemars::JsonSchema;

use crate::Kind;

/// How values are compressed within a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// Parquet: fast, and read by everything.
    Snappy,
    /// Parquet: small and slow.
    Gzip,
    /// Small and fast.
    Zstd,
    /// Fast.
    Lz4,
    /// Parquet: smallest and slowest.
    Brotli,
}

impl Compression {
    /// The name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Brotli => "brotli",
        }
    }

    /// Whether files of this kind can have it.
    pub fn fits(self, kind: Kind) -> bool {
        match kind {
            Kind::Parquet => true,
            Kind::Arrow => matches!(self, Self::None | Self::Zstd | Self::Lz4),
        }
    }
}

/// The settings of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// `zstd` for Parquet and `none` for Arrow if absent.
    pub compression: Option<Compression>,
    /// Parquet: a row group is closed once it takes this much memory, encoded.
    pub row_group_bytes: usize,
}

impl WriteOptions {
    /// Row groups of 16 MiB: they are held in memory, and a connector has half of a run's.
    pub const ROW_GROUP_BYTES: usize = 16 << 20;

    /// The compression of files of this kind.
    pub fn compression_for(&self, kind: Kind) -> Compression {
        self.compression.unwrap_or(match kind {
            Kind::Parquet => Compression::Zstd,
            Kind::Arrow => Compression::None,
        })
    }
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            compression: None,
            row_group_bytes: Self::ROW_GROUP_BYTES,
        }
    }
}
