//! Writing: what a type becomes in a file, and the writers of both formats.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use rapidbyte_wire::types;
use schemars::JsonSchema;

use crate::arrow::ArrowWriter;
use crate::parquet::write::ParquetWriter;
use crate::{ColumnarError, Kind, portable};

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

/// Whether a file can hold the values of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All of them, and they are read back as the same type.
    Exact,
    /// All of them, as a wider type.
    Widened,
    /// No.
    Refused,
}

/// The form of a column in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// The file's own name of the type; empty if it is refused.
    pub type_name: String,
    /// Whether its values stay the same.
    pub fit: Fit,
    /// A note about the form, or why the column is refused.
    pub note: Option<String>,
}

/// The form of a column in a file of this kind.
pub fn form(kind: Kind, field: &Field) -> Form {
    let refused = |note: String| Form {
        type_name: String::new(),
        fit: Fit::Refused,
        note: Some(note),
    };
    match kind {
        Kind::Arrow => match portable::portable_field(field) {
            Ok(back) => Form {
                type_name: types::type_name(field),
                fit: exact_if(back.data_type() == field.data_type()),
                note: portable::changes(field),
            },
            Err(error) => refused(error.message),
        },
        Kind::Parquet => {
            let stored = match stored_type(field.data_type()) {
                Ok(stored) => stored,
                Err(reason) => return refused(reason),
            };
            let widened = stored != *field.data_type();
            let stored = field.clone().with_data_type(stored);
            let back = portable::changes(field);
            match crate::parquet::write::type_name(&stored) {
                Err(error) => refused(error.message),
                Ok(type_name) => Form {
                    type_name,
                    fit: exact_if(!widened && back.is_none()),
                    note: match (widened, field.data_type()) {
                        _ if back.is_some() => back,
                        (true, _) => Some(
                            "Parquet has no unit of seconds: milliseconds are \
                             written"
                                .into(),
                        ),
                        (_, DataType::Duration(_)) => Some(
                            "the unit is in ARROW:schema; readers without Arrow see a number"
                                .into(),
                        ),
                        _ => None,
                    },
                },
            }
        }
    }
}

fn exact_if(is_exact: bool) -> Fit {
    if is_exact { Fit::Exact } else { Fit::Widened }
}

/// The type as it is written to Parquet, or why it cannot be.
pub(crate) fn stored_type(data_type: &DataType) -> Result<DataType, String> {
    let below = |field: &std::sync::Arc<Field>| -> Result<_, String> {
        let data_type = stored_type(field.data_type())?;
        let field = field.as_ref().clone().with_data_type(data_type);
        Ok(std::sync::Arc::new(field))
    };
    Ok(match data_type {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Interval(_) => {
            return Err(
                "Parquet has only unsigned intervals of milliseconds, which cannot hold every \
                     value; write it as a string, or to an Arrow file"
                    .into(),
            );
        }
        DataType::Date64 => DataType::Date32,
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s)
            if *s < 0 || s.unsigned_abs() > *p =>
        {
            return Err(format!(
                "Parquet has no decimal of {p} digits with scale {s}"
            ));
        }
        DataType::FixedSizeBinary(0) => return Err("Parquet has no values of 0 bytes".into()),
        DataType::List(item) => DataType::List(below(item)?),
        DataType::LargeList(item) => DataType::LargeList(below(item)?),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(below(item)?, *n),
        DataType::Map(entries, sorted) => DataType::Map(below(entries)?, *sorted),
        DataType::Struct(fields) if fields.is_empty() => {
            return Err("Parquet has no struct without fields".into());
        }
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(below).collect::<Result<_, _>>()?)
        }
        plain => plain.clone(),
    })
}

/// Writes one file.
pub struct FileWriter<W: Write + Send>(Either<W>);

enum Either<W: Write + Send> {
    Parquet(Box<ParquetWriter<W>>),
    Arrow(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> FileWriter<W> {
    /// Begins a file of batches of `schema`.
    ///
    /// Errors: `unsupported_type` (see [`form`]), `no_columns`, `file_io`.
    pub fn new(
        kind: Kind,
        schema: SchemaRef,
        options: &WriteOptions,
        sink: W,
    ) -> Result<Self, ColumnarError> {
        if kind == Kind::Parquet && schema.fields().is_empty() {
            let text = "Parquet cannot hold rows without columns";
            return Err(ColumnarError::new("no_columns", text).hint("write JSON Lines"));
        }
        for field in schema.fields() {
            let form = form(kind, field);
            if form.fit == Fit::Refused {
                let reason = form.note.unwrap_or_default();
                return Err(ColumnarError::unsupported(field.name(), reason));
            }
        }
        Ok(Self(match kind {
            Kind::Parquet => Either::Parquet(Box::new(ParquetWriter::new(&schema, options, sink)?)),
            Kind::Arrow => Either::Arrow(Box::new(ArrowWriter::new(schema, options, sink)?)),
        }))
    }

    /// Writes the rows of a batch.
    ///
    /// Errors: `value_does_not_fit`, `too_many_row_groups`, `schema_mismatch`, `file_io`.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match &mut self.0 {
            Either::Parquet(writer) => writer.write(batch),
            Either::Arrow(writer) => writer.write(batch),
        }
    }

    /// Bytes of memory that depend on the data: the row group so far.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Either::Parquet(writer) => writer.held_bytes(),
            Either::Arrow(_) => 0,
        }
    }

    /// About how many bytes the row group so far will have in the file.
    pub fn pending_bytes(&self) -> usize {
        match &self.0 {
            Either::Parquet(writer) => writer.pending_bytes(),
            Either::Arrow(_) => 0,
        }
    }

    /// Writes what is left and the footer, and gives the sink back.
    ///
    /// Errors: `too_many_row_groups`, `file_io`.
    pub fn finish(self) -> Result<W, ColumnarError> {
        match self.0 {
            Either::Parquet(writer) => writer.finish(),
            Either::Arrow(writer) => writer.finish(),
        }
    }
}
