//! Schemas, batches and the decoders behind one door.
#![allow(dead_code)]

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_formats::{FormatError, Limits, csv, jsonl};
use rapidbyte_wire::types::parse_field;

/// A schema from names and types; `!` behind a type means NOT NULL.
pub fn schema(columns: &[(&str, &str)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, type_name)| {
        let nullable = !type_name.ends_with('!');
        parse_field(name, type_name.trim_end_matches('!'), nullable).expect(type_name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

pub enum Decoder {
    Csv(csv::Decoder),
    Jsonl(jsonl::Decoder),
}

#[derive(Debug, Clone)]
pub enum Format {
    Csv(csv::Dialect),
    Jsonl,
}

impl Format {
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
        Ok(match self {
            Self::Csv(dialect) => Decoder::Csv(csv::Decoder::new(
                schema.clone(),
                wanted,
                dialect.clone(),
                limits,
            )?),
            Self::Jsonl => Decoder::Jsonl(jsonl::Decoder::new(schema.clone(), wanted, limits)?),
        })
    }

    pub fn decode(&self, schema: &SchemaRef, file: &[u8]) -> Result<Vec<RecordBatch>, FormatError> {
        let mut decoder = self.try_decoder(schema, None, Limits::default())?;
        decoder.file(&[file])
    }

    pub fn encode(&self, batch: &RecordBatch) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        let mut row = 0;
        match self {
            Self::Csv(dialect) => {
                let encoder = csv::Encoder::new(batch.schema(), dialect.clone())?;
                encoder.write_header(&mut out);
                while row < batch.num_rows() {
                    let until = out.len() + 100;
                    row = encoder.encode(batch, row, &mut out, until)?;
                }
            }
            Self::Jsonl => {
                let encoder = jsonl::Encoder::new(batch.schema())?;
                while row < batch.num_rows() {
                    let until = out.len() + 100;
                    row = encoder.encode(batch, row, &mut out, until)?;
                }
            }
        }
        Ok(out)
    }
}

macro_rules! both {
    ($self:ident, $decoder:ident => $call:expr) => {
        match $self {
            Decoder::Csv($decoder) => $call,
            Decoder::Jsonl($decoder) => $call,
        }
    };
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        both!(self, d => d.push(bytes))
    }

    pub fn begin_file(&mut self) {
        both!(self, d => d.begin_file());
    }

    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        both!(self, d => d.end_of_file())
    }

    pub fn bytes(&self) -> usize {
        both!(self, d => d.bytes())
    }

    pub fn take(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        both!(self, d => d.take_batch())
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
