//! Batches to a Parquet file: row groups that are closed by the memory they take.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{BrotliLevel, Compression as Codec, GzipLevel, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use rapidbyte_wire::size::batch_bytes;

use crate::portable::{convert_rows, reason};
use crate::read_at::failed;
use crate::write::stored_type;
use crate::{ColumnarError, Compression, Kind, WriteOptions};

/// Encoded at once, in memory as Arrow: after each, the sizes of pages and of the row group are
/// looked at again.
const SLICE_BYTES: usize = 1 << 20;
/// A row group's number in the file has 16 bits.
const MAX_ROW_GROUPS: usize = i16::MAX as usize;

/// The file's own name of a stored type. Errors: `unsupported_type`.
pub(crate) fn type_name(field: &Field) -> Result<String, ColumnarError> {
    super::footer::written_type(field)
}

/// Writes one Parquet file.
pub(crate) struct ParquetWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
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
        let stored = Arc::new(Schema::new(
            fields.collect::<Result<Vec<_>, ColumnarError>>()?,
        ));
        let properties = WriterProperties::builder()
            .set_created_by(concat!("rapidbyte version ", env!("CARGO_PKG_VERSION")).into())
            .set_compression(codec(options.compression_for(Kind::Parquet)))
            .set_coerce_types(true)
            .build();
        let options_of_arrow = ArrowWriterOptions::new().with_properties(properties);
        let writer = ArrowWriter::try_new_with_options(sink, stored.clone(), options_of_arrow)
            .map_err(broken)?;
        Ok(Self {
            writer,
            schema: schema.clone(),
            stored,
            row_group_bytes: options.row_group_bytes,
            rows: 0,
        })
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.writer.memory_size()
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.writer.in_progress_size()
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        if batch.schema_ref().fields() != self.schema.fields() {
            let text = "a batch of another schema than the file's";
            return Err(ColumnarError::new("schema_mismatch", text));
        }
        let batch = self.stored_batch(batch)?;
        let slices = batch_bytes(&batch).div_ceil(SLICE_BYTES).max(1);
        let step = batch.num_rows().div_ceil(slices).max(1);
        for from in (0..batch.num_rows()).step_by(step) {
            let rows = step.min(batch.num_rows() - from);
            self.writer
                .write(&batch.slice(from, rows))
                .map_err(broken)?;
            self.rows += rows as u64;
            if self.writer.memory_size() >= self.row_group_bytes {
                self.close_row_group()?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<W, ColumnarError> {
        if self.writer.in_progress_rows() > 0 {
            self.close_row_group()?;
        }
        self.writer.into_inner().map_err(broken)
    }

    fn close_row_group(&mut self) -> Result<(), ColumnarError> {
        if self.writer.flushed_row_groups().len() >= MAX_ROW_GROUPS {
            let text = format!("a Parquet file holds {MAX_ROW_GROUPS} row groups");
            return Err(ColumnarError::new("too_many_row_groups", text)
                .hint("raise row_group_bytes, or split the file")
                .row(self.rows));
        }
        self.writer.flush().map_err(broken)
    }

    /// The batch with the types that are stored.
    fn stored_batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ColumnarError> {
        let fields = self.stored.fields();
        let columns = batch.columns().iter().zip(fields).map(|(column, field)| {
            convert_rows(column, field.data_type()).map_err(|(row, error)| {
                let text = format!("column {:?}: {}", field.name(), reason(&error));
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
