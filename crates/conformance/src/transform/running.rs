//! A stream that is transformed, batch by batch.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use rapidbyte_runtime::{Batch, Transform};
use rapidbyte_wire::ipc::{Decoder, Encoder};

use super::Input;
use crate::bench::{Bench, Trouble};
use crate::read::wrong_nulls;

/// Batches that may come of one batch. More are a loop: a batch of the test has 1,000 rows at most.
const MAX_BATCHES: usize = 10_000;

/// A session with a transformer.
pub(super) struct Running<'b> {
    bench: &'b Bench<'b>,
    transform: Transform,
    encoder: Encoder,
    decoder: Decoder,
}

impl<'b> Running<'b> {
    /// Begins a stream in an open session.
    pub fn begin(
        bench: &'b Bench<'b>,
        mut transform: Transform,
        input: &Input,
    ) -> Result<Self, Trouble> {
        let broken = |error: rapidbyte_wire::WireError| Trouble::Broken(error.to_string());
        let schema = bench.note(transform.begin(&input.relation, false))?;
        Ok(Self {
            bench,
            transform,
            encoder: Encoder::new(input.rows.schema_ref()).map_err(broken)?,
            decoder: Decoder::new(&schema).map_err(broken)?,
        })
    }

    /// The schema of the batches that come out.
    pub fn schema(&self) -> &SchemaRef {
        self.decoder.schema()
    }

    /// All rows that come of a batch.
    pub fn put(&mut self, rows: &RecordBatch) -> Result<RecordBatch, Trouble> {
        let data = self.encoder.encode(rows);
        let data = data.map_err(|error| Trouble::Broken(error.to_string()))?;
        let rows = rows.num_rows() as u64;
        self.bench.note(self.transform.put(&Batch { data, rows }))?;
        let mut batches = Vec::new();
        while let Some(batch) = self.next()? {
            batches.push(batch);
            if batches.len() > MAX_BATCHES {
                let text = format!("more than {MAX_BATCHES} batches come of one batch");
                return Err(Trouble::Broken(text));
            }
        }
        let all = concat_batches(self.decoder.schema(), &batches);
        all.map_err(|error| Trouble::Broken(error.to_string()))
    }

    /// The next batch that comes of the last one.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, Trouble> {
        let Some(batch) = self.bench.note(self.transform.next())? else {
            return Ok(None);
        };
        let rows = self.decoder.decode(batch.data);
        let rows = rows.map_err(|error| Trouble::Broken(format!("transformer.next: {error}")))?;
        match wrong_nulls(&rows) {
            Some(text) => Err(Trouble::Broken(text)),
            None => Ok(Some(rows)),
        }
    }

    /// Ends the stream; gives the session if it can transform another stream.
    pub fn finish(mut self) -> Option<Transform> {
        self.transform.finish().then_some(self.transform)
    }
}
