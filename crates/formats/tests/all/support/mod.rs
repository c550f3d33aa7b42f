//! Schemas, batches and the decoders behind one door.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_formats::{FormatError, Limits, csv};
use rapidbyte_wire::types::parse_field;

/// A schema from names and types; `!` behind a type means NOT NULL.
pub fn schema(columns: &[(&str, &str)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, type_name)| {
        let nullable = !type_name.ends_with('!');
        parse_field(name, type_name.trim_end_matches('!'), nullable).expect(type_name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A decoder and what tests do with it.
pub struct Decoder(rapidbyte_formats::Decoder);

/// A format and what tests do with it.
#[derive(Debug, Clone)]
pub struct Format(pub rapidbyte_formats::Format);

impl Format {
    pub fn csv(dialect: csv::Dialect) -> Self {
        Self(rapidbyte_formats::Format::Csv(dialect))
    }

    pub fn jsonl() -> Self {
        Self(rapidbyte_formats::Format::Jsonl)
    }

    pub fn decoder(
        &self,
        schema: &SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Decoder {
        self.try_decoder(schema, wanted, limits).unwrap()
    }

    pub fn try_decoder(
        &self,
        schema: &SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Decoder, FormatError> {
        self.0.decoder(schema.clone(), wanted, limits).map(Decoder)
    }

    /// The schema that is inferred from the first rows of a file.
    pub fn infer(&self, file: &[u8], rows: u64) -> Result<csv::Inferred, FormatError> {
        let mut sampler = self.0.sampler(rows, 1 << 20)?;
        sampler.begin_file();
        sampler.push(file)?;
        if sampler.is_done() {
            sampler.end_of_sample();
        } else {
            sampler.end_of_file()?;
        }
        sampler.finish()
    }

    /// Decodes a file with the schema that is inferred from its first rows.
    pub fn decode_inferred(&self, file: &[u8], rows: u64) -> Result<Vec<RecordBatch>, FormatError> {
        self.decode_as_inferred(&self.infer(file, rows)?.schema, file)
    }

    /// Decodes a file with a schema that was inferred from another one.
    pub fn decode_as_inferred(
        &self,
        schema: &SchemaRef,
        file: &[u8],
    ) -> Result<Vec<RecordBatch>, FormatError> {
        let decoder = self.0.decoder(schema.clone(), None, Limits::default())?;
        Decoder(decoder.inferred()).file(&[file])
    }

    pub fn decode(&self, schema: &SchemaRef, file: &[u8]) -> Result<Vec<RecordBatch>, FormatError> {
        let mut decoder = self.try_decoder(schema, None, Limits::default())?;
        decoder.file(&[file])
    }

    pub fn encode(&self, batch: &RecordBatch) -> Result<Vec<u8>, FormatError> {
        self.encode_in_steps(batch, 100)
    }

    pub fn encode_in_steps(
        &self,
        batch: &RecordBatch,
        step_bytes: usize,
    ) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        let mut row = 0;
        let encoder = self.0.encoder(batch.schema())?;
        encoder.write_header(&mut out);
        while row < batch.num_rows() {
            let until = out.len() + step_bytes;
            row = encoder.encode(rapidbyte_formats::Picked::all(batch), row, &mut out, until)?;
        }
        Ok(out)
    }
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        self.0.push(bytes)
    }

    pub fn begin_file(&mut self) {
        self.0.begin_file();
    }

    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        self.0.end_of_file()
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub fn take(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        self.0.take_batch()
    }

    /// One file in pieces, to its end.
    pub fn file(&mut self, pieces: &[&[u8]]) -> Result<Vec<RecordBatch>, FormatError> {
        let mut batches = Vec::new();
        self.begin_file();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let taken = self.push(rest)?;
                rest = &rest[taken..];
                if !rest.is_empty() {
                    batches.extend(self.take()?);
                }
            }
            assert!(self.bytes() < 1 << 26);
        }
        self.end_of_file()?;
        batches.extend(self.take()?);
        Ok(batches)
    }
}
