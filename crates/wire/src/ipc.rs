//! Encodes and decodes the schema and the batches of one stream.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{StreamEncoder, StreamWriter};
use arrow_schema::{Schema, SchemaRef};

use crate::WireError;
use crate::verify::{self, Layout};

/// Encodes the batches of one stream. Each call gives one `RecordBatch` message.
pub struct Encoder {
    schema_message: Vec<u8>,
    encoder: StreamEncoder,
}

impl Encoder {
    /// Begins a stream of batches of `schema`, which must be portable (see [`crate::types`]).
    pub fn new(schema: &Schema) -> Result<Self, WireError> {
        let schema_message = encode_schema(schema)?;
        let mut encoder = StreamEncoder::try_new(schema)?;
        // Its first call gives the schema's message too: with a batch of one large record, memory for another one.
        encoder.encode(&RecordBatch::new_empty(Arc::new(schema.clone())))?;
        Ok(Self {
            schema_message,
            encoder,
        })
    }

    /// The stream's `Schema` message.
    pub fn schema_message(&self) -> &[u8] {
        &self.schema_message
    }

    /// One `RecordBatch` message. The batch must have the stream's schema.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, WireError> {
        // The parts share the columns' memory. Their sum is the exact size, whatever else the
        // columns share their memory with.
        let parts = self.encoder.encode(batch)?;
        let mut message = Vec::with_capacity(parts.iter().map(Buffer::len).sum());
        for part in parts {
            message.extend_from_slice(&part);
        }
        Ok(message)
    }
}

/// A batch without rows of the stream with this `Schema` message.
pub fn empty_batch(schema_message: &[u8]) -> Result<Vec<u8>, WireError> {
    let schema = decode_schema(schema_message)?;
    Encoder::new(&schema)?.encode(&RecordBatch::new_empty(Arc::new(schema)))
}

/// Decodes the batches of one stream. Hostile bytes give an error, never a panic.
pub struct Decoder {
    schema: SchemaRef,
    layout: Layout,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl Decoder {
    /// Begins with the stream's `Schema` message.
    pub fn new(schema_message: &[u8]) -> Result<Self, WireError> {
        let schema = decode_schema(schema_message)?;
        Ok(Self {
            layout: Layout::of(&schema)?,
            schema: Arc::new(schema),
            dictionaries: HashMap::new(),
        })
    }

    /// The stream's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Decodes one `RecordBatch` message; the arrays share the message's memory where the
    /// alignment allows it.
    pub fn decode(&self, message: Vec<u8>) -> Result<RecordBatch, WireError> {
        let buffer = Buffer::from_vec(message);
        let (message, body_at) = verify::split(&buffer)?;
        let batch = self
            .layout
            .verify_parts(&message, buffer.len() - body_at, None)?;
        let schema = Arc::clone(&self.schema);
        let body = buffer.slice(body_at);
        let version = message.version();
        Ok(read_record_batch(
            &body,
            batch,
            schema,
            &self.dictionaries,
            None,
            &version,
        )?)
    }
}

/// One `Schema` message. The schema must be portable (see [`crate::types`]).
pub fn encode_schema(schema: &Schema) -> Result<Vec<u8>, WireError> {
    crate::types::check_portable(schema)?;
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    Ok(std::mem::take(writer.get_mut()))
}

/// The schema in one `Schema` message.
pub fn decode_schema(message: &[u8]) -> Result<Schema, WireError> {
    arrow_ipc::convert::try_schema_from_ipc_buffer(message)
        .map_err(|error| WireError::Schema(error.to_string()))
}
