//! Batches to a Parquet file: row groups that are closed by the memory they take.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::{BrotliLevel, Compression as Codec, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use rapidbyte_wire::name::shown;
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::types::unmarked;

use crate::portable::{convert_rows, reason};
use crate::read_at::failed;

use crate::{ColumnarError, Compression, Kind, WriteOptions};

/// Encoded at once, in memory as Arrow: after each slice, the sizes of pages and of the row group are
/// checked again.
const SLICE_BYTES: usize = 1 << 20;
/// Memory that the encoder of one column takes before its first value: the tables of its dictionary and
/// of its compression.
const COLUMN_BYTES: usize = 180 << 10;
/// Below this sum all columns of a row group are encoded at the same time, however small row groups are.
const MIN_COLUMNS_BYTES: usize = 8 << 20;
/// Other writers write at most this many rows to a row group.
const MAX_GROUP_ROWS: usize = 1 << 20;
/// A row group's number in the file has 16 bits.
const MAX_ROW_GROUPS: usize = i16::MAX as usize;

/// The file's own name of a stored type. Errors: `unsupported_type`.
pub(crate) fn type_name(field: &Field) -> Result<String, ColumnarError> {
    super::footer::written_type(field)
}

/// The type as it is written to Parquet, or why it cannot be.
pub(crate) fn stored_type(data_type: &DataType) -> Result<DataType, String> {
    let below = |field: &Arc<Field>| -> Result<_, String> {
        let data_type = stored_type(field.data_type())?;
        let field = field.as_ref().clone().with_data_type(data_type);
        Ok(Arc::new(field))
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

/// Writes one Parquet file.
pub(crate) struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    usual: WriterProperties,
    /// For row groups of large values: without what keeps copies of values.
    plain: WriterProperties,
    /// Too many columns to encode all at a time.
    is_wide: bool,
    group: Option<Group>,
    schema: SchemaRef,
    stored: SchemaRef,
    row_group_bytes: usize,
    /// Rows written.
    rows: u64,
}

impl<W: Write + Send> ParquetWriter<W> {
    pub(crate) fn new(
        schema: &SchemaRef,
        options: &WriteOptions,
        sink: W,
    ) -> Result<Self, ColumnarError> {
        let fields = schema.fields().iter().map(|field| {
            let stored = stored_type(field.data_type())
                .map_err(|reason| ColumnarError::unsupported(field.name(), reason))?;
            Ok(field.as_ref().clone().with_data_type(stored))
        });
        let stored = Schema::new(fields.collect::<Result<Vec<_>, ColumnarError>>()?);
        // Where strings come from stays out of the file.
        let stored = Arc::new(unmarked(&stored));
        let properties = WriterProperties::builder()
            .set_created_by(concat!("rapidbyte version ", env!("CARGO_PKG_VERSION")).into())
            .set_compression(codec(options.compression_for(Kind::Parquet)))
            .set_coerce_types(true);
        let plain = properties
            .clone()
            .set_compression(Codec::UNCOMPRESSED)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let usual = properties.build();
        let (file, _) = begin(sink, &stored, usual.clone())?;
        let leaves = file.schema_descr().num_columns();
        let at_a_time = options.row_group_bytes.max(MIN_COLUMNS_BYTES) / COLUMN_BYTES;
        Ok(Self {
            file,
            usual,
            plain,
            is_wide: leaves > at_a_time,
            group: None,
            schema: schema.clone(),
            stored,
            row_group_bytes: options.row_group_bytes,
            rows: 0,
        })
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.group.as_ref().map_or(0, Group::held_bytes)
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.group.as_ref().map_or(0, Group::pending_bytes)
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        if batch.schema_ref().fields() != self.schema.fields() {
            let text = "the schema of a batch differs from the file's";
            return Err(ColumnarError::new("schema_mismatch", text));
        }
        let batch = self.stored_batch(batch)?;
        let slices = batch_bytes(&batch).div_ceil(SLICE_BYTES).max(1);
        let step = batch.num_rows().div_ceil(slices).max(1);
        for from in (0..batch.num_rows()).step_by(step) {
            let rows = step.min(batch.num_rows() - from);
            self.write_slice(&batch.slice(from, rows))?;
            self.rows += rows as u64;
        }
        Ok(())
    }

    fn write_slice(&mut self, slice: &RecordBatch) -> Result<(), ColumnarError> {
        let bytes = batch_bytes(slice);
        // Large for their row group, so that whoever has memory decides with `row_group_bytes`.
        let is_large = bytes > (self.row_group_bytes / 4).max(2 * SLICE_BYTES);
        if let Some(group) = &self.group
            && is_large
            && (!group.is_plain || group.held_bytes() + bytes > self.row_group_bytes)
        {
            self.close_row_group()?;
        }
        let group = match &mut self.group {
            Some(group) => group,
            none => none.insert(Group {
                rows: 0,
                is_plain: is_large,
                content: match self.is_wide {
                    true => Content::Rows(Vec::new(), 0),
                    false => {
                        let properties = if is_large { &self.plain } else { &self.usual };
                        Content::Columns(columns(&self.stored, properties)?)
                    }
                },
            }),
        };
        group.write(slice, bytes).map_err(broken)?;
        if group.rows >= MAX_GROUP_ROWS || group.held_bytes() >= self.row_group_bytes {
            self.close_row_group()?;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<W, ColumnarError> {
        self.close_row_group()?;
        self.file.into_inner().map_err(broken)
    }

    fn close_row_group(&mut self) -> Result<(), ColumnarError> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        if self.file.flushed_row_groups().len() >= MAX_ROW_GROUPS {
            let text = format!("a Parquet file holds at most {MAX_ROW_GROUPS} row groups");
            return Err(ColumnarError::new("too_many_row_groups", text)
                .hint("raise row_group_bytes, or split the file")
                .row(self.rows));
        }
        let mut written = self.file.next_row_group().map_err(broken)?;
        // One after the other, so that each column's memory is free before the next one's last page.
        match group.content {
            Content::Columns(columns) => {
                for column in columns {
                    let chunk = column.close().map_err(broken)?;
                    chunk.append_to_row_group(&mut written).map_err(broken)?;
                }
            }
            Content::Rows(rows, _) => {
                let properties = if group.is_plain {
                    &self.plain
                } else {
                    &self.usual
                };
                for (at, field) in self.stored.fields().iter().enumerate() {
                    let alone = Arc::new(Schema::new(vec![field.clone()]));
                    let mut columns = columns(&alone, properties)?;
                    for rows in &rows {
                        encode(&mut columns.iter_mut(), field, rows.column(at)).map_err(broken)?;
                    }
                    for column in columns {
                        let chunk = column.close().map_err(broken)?;
                        chunk.append_to_row_group(&mut written).map_err(broken)?;
                    }
                }
            }
        }
        written.close().map_err(broken)?;
        Ok(())
    }

    /// The batch with the types that are stored.
    fn stored_batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        let fields = self.stored.fields();
        let columns = batch.columns().iter().zip(fields).map(|(column, field)| {
            convert_rows(column, field.data_type()).map_err(|(row, error)| {
                let text = format!("column {}: {}", shown(field.name()), reason(&error));
                ColumnarError::new("value_does_not_fit", text)
                    .column(field.name())
                    .row(self.rows + row)
            })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let stored = RecordBatch::try_new_with_options(self.stored.clone(), columns, &options)?;
        Ok(stored)
    }
}

/// A row group that is not in the file yet.
struct Group {
    content: Content,
    rows: usize,
    /// Without dictionaries, statistics and compression.
    is_plain: bool,
}

enum Content {
    /// Encoded as far as it came.
    Columns(Vec<ArrowColumnWriter>),
    /// Of wide rows, which are encoded column by column at the end; and their bytes.
    Rows(Vec<RecordBatch>, usize),
}

impl Group {
    fn held_bytes(&self) -> usize {
        match &self.content {
            Content::Columns(columns) => columns.iter().map(ArrowColumnWriter::memory_size).sum(),
            Content::Rows(_, bytes) => *bytes,
        }
    }

    fn pending_bytes(&self) -> usize {
        match &self.content {
            Content::Columns(columns) => columns
                .iter()
                .map(ArrowColumnWriter::get_estimated_total_bytes)
                .sum(),
            Content::Rows(_, bytes) => *bytes,
        }
    }

    fn write(&mut self, rows: &RecordBatch, bytes: usize) -> Result<(), ParquetError> {
        self.rows += rows.num_rows();
        match &mut self.content {
            Content::Columns(columns) => {
                let mut columns = columns.iter_mut();
                for (field, array) in rows.schema_ref().fields().iter().zip(rows.columns()) {
                    encode(&mut columns, field, array)?;
                }
            }
            Content::Rows(all, sum) => {
                all.push(rows.clone());
                *sum += bytes;
            }
        }
        Ok(())
    }
}

/// Writes an array to the next columns of the file, as many as its type has.
fn encode<'a>(
    columns: &mut impl Iterator<Item = &'a mut ArrowColumnWriter>,
    field: &Field,
    array: &ArrayRef,
) -> Result<(), ParquetError> {
    for (leaf, column) in compute_leaves(field, array)?.iter().zip(columns) {
        column.write(leaf)?;
    }
    Ok(())
}

/// The encoders of all columns of a schema for one row group.
fn columns(
    stored: &SchemaRef,
    properties: &WriterProperties,
) -> Result<Vec<ArrowColumnWriter>, ColumnarError> {
    // A row group takes its properties from a file: this one is never written.
    let (_, factory) = begin(std::io::sink(), stored, properties.clone())?;
    factory.create_column_writers(0).map_err(broken)
}

/// Begins a file, and gives what makes its row groups.
fn begin<W: Write + Send>(
    sink: W,
    stored: &SchemaRef,
    properties: WriterProperties,
) -> Result<(SerializedFileWriter<W>, ArrowRowGroupWriterFactory), ColumnarError> {
    let options = ArrowWriterOptions::new().with_properties(properties);
    let writer = ArrowWriter::try_new_with_options(sink, stored.clone(), options);
    writer
        .and_then(ArrowWriter::into_serialized_writer)
        .map_err(broken)
}

fn codec(compression: Compression) -> Codec {
    match compression {
        Compression::None => Codec::UNCOMPRESSED,
        Compression::Snappy => Codec::SNAPPY,
        Compression::Gzip => Codec::GZIP(GzipLevel::default()),
        Compression::Zstd => Codec::ZSTD(ZstdLevel::default()),
        Compression::Lz4 => Codec::LZ4_RAW,
        Compression::Brotli => Codec::BROTLI(BrotliLevel::default()),
    }
}

fn broken(error: ParquetError) -> ColumnarError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => failed(&error),
            Err(error) => ColumnarError::new("arrow", error.to_string()),
        },
        error => ColumnarError::new("arrow", error.to_string()),
    }
}
