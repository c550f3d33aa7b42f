//! One read of an Arrow IPC file.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::FileDecoder;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::types::{check_portable, type_name};
use rapidbyte_wire::verify::Layout;

use super::scan::{Block, Contents, scan};
use super::{guarded, malformed, wrong};
use crate::pieces::Pieces;
use crate::portable::{note, portable_field};
use crate::read_at::fetch;
use crate::{ColumnarError, Limits, MAX_BARE_ROWS, ReadAt};

/// An open Arrow IPC file.
pub(crate) struct ArrowFile<R> {
    source: Arc<R>,
    /// The schema as the file has it.
    in_file: SchemaRef,
    version: MetadataVersion,
    blocks: Arc<[Block]>,
    portable: SchemaRef,
    source_types: Vec<String>,
    notes: Vec<String>,
}

impl<R: ReadAt> ArrowFile<R> {
    /// Reads and checks the footer and the headers of the batches.
    pub(crate) fn open(source: Arc<R>) -> Result<Self, ColumnarError> {
        let Contents {
            schema,
            version,
            blocks,
        } = scan(&*source)?;
        let fields = schema.fields().iter().map(|field| portable_field(field));
        let portable = Schema::new(fields.collect::<Result<Vec<_>, _>>()?);
        check_portable(&portable)
            .map_err(|error| ColumnarError::new("unsupported_type", error.to_string()))?;
        Ok(Self {
            source,
            source_types: schema.fields().iter().map(|f| type_name(f)).collect(),
            notes: schema.fields().iter().filter_map(|f| note(f)).collect(),
            in_file: Arc::new(schema),
            version,
            blocks: blocks.into(),
            portable: Arc::new(portable),
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.portable
    }

    pub(crate) fn source_types(&self) -> &[String] {
        &self.source_types
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn rows(&self) -> u64 {
        let rows = self.blocks.iter().map(|block| block.rows);
        rows.fold(0, u64::saturating_add)
    }

    /// Begins to read the columns at these places of the file's schema, in this order, as `schema`
    /// has them.
    pub(crate) fn read(
        &self,
        wanted: &[usize],
        schema: SchemaRef,
        limits: Limits,
    ) -> Result<ArrowReader<R>, ColumnarError> {
        let mut columns = wanted.to_vec();
        columns.sort_unstable();
        let decoder = FileDecoder::new(self.in_file.clone(), self.version);
        Ok(ArrowReader {
            source: self.source.clone(),
            blocks: self.blocks.clone(),
            next_block: 0,
            batches: 0,
            first_row: 0,
            dictionary_bytes: 0,
            bare_rows: 0,
            // Dictionaries and views have other buffers than it knows.
            layout: Layout::of(&self.in_file).ok(),
            decoder: decoder.with_projection(columns),
            schema,
            limits,
            pieces: None,
        })
    }
}

/// Gives the batches of one file.
pub(crate) struct ArrowReader<R> {
    source: Arc<R>,
    blocks: Arc<[Block]>,
    next_block: usize,
    /// Record batches so far.
    batches: usize,
    /// Rows of the record batches so far.
    first_row: u64,
    /// Of all dictionaries so far.
    dictionary_bytes: u64,
    /// Rows so far of batches with less than a bit for each.
    bare_rows: u64,
    /// How the buffers of a batch must be.
    layout: Option<Layout>,
    decoder: FileDecoder,
    schema: SchemaRef,
    limits: Limits,
    pieces: Option<Pieces>,
}

impl<R: ReadAt> ArrowReader<R> {
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; `None` at the end of the file.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        loop {
            if let Some(batch) = Pieces::take(&mut self.pieces, &self.schema, &self.limits)? {
                return Ok(Some(batch));
            }
            let Some(block) = self.blocks.get(self.next_block).copied() else {
                return Ok(None);
            };
            self.next_block += 1;
            self.load(&block)
                .map_err(|error| error.group(self.batches).row(self.first_row))?;
        }
    }

    /// Reads one message with its body.
    fn load(&mut self, block: &Block) -> Result<(), ColumnarError> {
        let bytes = block.header_bytes + block.body_bytes;
        let largest = self.limits.max_piece_bytes();
        if bytes > largest {
            return Err(self.too_large(bytes));
        }
        // At most `largest`.
        let buffer = fetch(
            &*self.source,
            block.offset,
            usize::try_from(bytes).unwrap_or(usize::MAX),
        )?;
        let buffer = Buffer::from(buffer);
        let plain_bytes = plain_bytes(&buffer, block)?;
        if let (Some(layout), false, false) =
            (&self.layout, block.is_compressed, block.is_dictionary)
        {
            layout
                .verify(&buffer, block.rows)
                .map_err(|error| wrong(error.to_string()))?;
        }
        if plain_bytes > largest {
            return Err(self.too_large(plain_bytes));
        }
        if block.rows > plain_bytes.saturating_mul(8) {
            self.bare_rows = self.bare_rows.saturating_add(block.rows);
        }
        if self.bare_rows > MAX_BARE_ROWS {
            let text = format!("{} rows that take no bytes", self.bare_rows);
            return Err(wrong(text));
        }
        // Inside the limits of a header and of a file.
        let place = arrow_ipc::Block::new(
            block.offset.cast_signed(),
            i32::try_from(block.header_bytes).unwrap_or(i32::MAX),
            block.body_bytes.cast_signed(),
        );
        if block.is_dictionary {
            self.dictionary_bytes += plain_bytes;
            if self.dictionary_bytes > largest {
                return Err(self.too_large(self.dictionary_bytes));
            }
            let read = guarded(|| self.decoder.read_dictionary(&place, &buffer))?;
            return read.map_err(|error| malformed(&error));
        }
        let batch = guarded(|| self.decoder.read_record_batch(&place, &buffer))?
            .map_err(|error| malformed(&error))?
            .ok_or_else(|| wrong("a message without a batch"))?;
        if batch.num_rows() as u64 != block.rows {
            return Err(wrong("the number of rows differs from the header"));
        }
        let columns = self.schema.fields().iter().map(|field| {
            let column = batch.column_by_name(field.name()).cloned();
            column.ok_or_else(|| {
                ColumnarError::new("arrow", format!("column {:?} was not read", field.name()))
            })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        self.pieces = Some(Pieces::new(columns, batch.num_rows(), self.first_row));
        self.batches += 1;
        self.first_row += block.rows;
        Ok(())
    }

    fn too_large(&self, bytes: u64) -> ColumnarError {
        let largest = self.limits.max_piece_bytes();
        let text = format!("a record batch of {bytes} bytes, the limit is {largest}");
        ColumnarError::new("batch_too_large", text).hint(format!(
            "a record batch is read whole: {}, or have the file written with smaller batches",
            crate::settings_for(bytes)
        ))
    }
}

/// Checks that the message's buffers are inside its body, and gives what they take without
/// compression: a compressed one begins with its size, or with -1 if it is not compressed.
fn plain_bytes(message: &Buffer, block: &Block) -> Result<u64, ColumnarError> {
    // Both are inside the buffer.
    let (header, body) = message.split_at(block.header_bytes as usize);
    let prefix = if header.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let parsed = arrow_ipc::root_as_message(&header[prefix..])
        .map_err(|_| wrong("a header cannot be read"))?;
    let batch = match block.is_dictionary {
        false => parsed.header_as_record_batch(),
        true => parsed.header_as_dictionary_batch().and_then(|d| d.data()),
    };
    let batch = batch.ok_or_else(|| wrong("a message without a batch"))?;
    for node in batch.nodes().iter().flatten() {
        if node.length() < 0 || node.null_count() < 0 || node.null_count() > node.length() {
            return Err(wrong("a column of impossible length"));
        }
    }
    let mut sum = 0_u64;
    for buffer in batch.buffers().iter().flatten() {
        let place = usize::try_from(buffer.offset()).ok();
        let length = usize::try_from(buffer.length()).ok();
        let bytes = place
            .zip(length)
            .and_then(|(at, length)| body.get(at..at.checked_add(length)?));
        let Some(bytes) = bytes else {
            return Err(wrong("a buffer beyond its batch"));
        };
        let plain = match (block.is_compressed, bytes.first_chunk::<8>()) {
            (false, _) => bytes.len() as u64,
            (true, None) if bytes.is_empty() => 0,
            (true, None) => return Err(wrong("a compressed buffer without its size")),
            (true, Some(prefix)) => match i64::from_le_bytes(*prefix) {
                -1 => bytes.len() as u64,
                plain => u64::try_from(plain).map_err(|_| wrong("a buffer of negative size"))?,
            },
        };
        sum = sum.saturating_add(plain);
    }
    Ok(sum)
}
