//! Batches as messages of the contract.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::ipc;

use crate::bindings::types::Batch;
use crate::phase::{self, Kind};
use crate::{Error, Result};

/// Decodes a batch and compares its number of rows with the message.
pub(crate) fn decode(decoder: &ipc::Decoder, batch: Batch) -> Result<RecordBatch> {
    let _phase = phase::enter(Kind::ArrowDecode);
    let decoded = decoder.decode(batch.data)?;
    match decoded.num_rows() as u64 == batch.rows {
        true => Ok(decoded),
        false => Err(Error::internal(
            "the batch has another number of rows than announced",
        )),
    }
}

/// Encodes a batch of this schema.
pub(crate) fn encode(
    encoder: &mut ipc::Encoder,
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<Batch> {
    let _phase = phase::enter(Kind::ArrowEncode);
    if batch.schema_ref() != schema {
        return Err(Error::internal(
            "the schema of a batch differs from the one announced",
        ));
    }
    let data = encoder.encode(batch)?;
    let rows = batch.num_rows() as u64;
    Ok(Batch { data, rows })
}
