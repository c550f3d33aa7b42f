//! Batches to an Arrow IPC file: each becomes a record batch of the file.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, SchemaRef};
use rapidbyte_wire::types::unmarked;

use crate::read_at::failed;
use crate::{ColumnarError, Compression, Kind, WriteOptions};

/// Writes one Arrow IPC file.
pub(crate) struct ArrowWriter<W: Write> {
    writer: FileWriter<W>,
    schema: SchemaRef,
}

impl<W: Write> ArrowWriter<W> {
    pub(crate) fn new(
        schema: SchemaRef,
        options: &WriteOptions,
        sink: W,
    ) -> Result<Self, ColumnarError> {
        let compression = match options.compression_for(Kind::Arrow) {
            Compression::None => None,
            Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
            Compression::Zstd => Some(CompressionType::ZSTD),
            other => {
                let text = format!("Arrow files cannot be compressed with {}", other.name());
                return Err(ColumnarError::new("unsupported_type", text));
            }
        };
        let options = IpcWriteOptions::default()
            .try_with_compression(compression)
            .map_err(broken)?;
        // Where strings come from stays out of the file.
        let in_file = unmarked(&schema);
        let writer = FileWriter::try_new_with_options(sink, &in_file, options).map_err(broken)?;
        Ok(Self { writer, schema })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        if batch.schema_ref().fields() != self.schema.fields() {
            let text = "the schema of a batch differs from the file's";
            return Err(ColumnarError::new("schema_mismatch", text));
        }
        self.writer.write(batch).map_err(broken)
    }

    pub(crate) fn finish(self) -> Result<W, ColumnarError> {
        self.writer.into_inner().map_err(broken)
    }
}

fn broken(error: ArrowError) -> ColumnarError {
    match error {
        ArrowError::IoError(_, error) => failed(&error),
        error => ColumnarError::from(error),
    }
}
