//! One door to both formats, for programs that let their configuration choose.

use arrow_schema::SchemaRef;

use crate::{Decoder, FormatError, Limits, Picked, csv, jsonl};

/// How a file holds rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values, or another [`csv::Dialect`].
    Csv(csv::Dialect),
    /// One JSON object a line.
    Jsonl,
    /// One JSON document: an array of objects, or one object. It is only read.
    Json,
}

impl Format {
    /// A decoder of files with the columns of `schema`; see [`Decoder::new`].
    pub fn decoder(
        &self,
        schema: SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Decoder, FormatError> {
        Decoder::new(self, schema, wanted, limits)
    }

    /// A sampler of the beginnings of files: at most `max_rows` rows.
    pub fn sampler(&self, max_rows: u64, max_record_bytes: usize) -> Result<Sampler, FormatError> {
        Ok(match self {
            Self::Csv(dialect) => Sampler::Csv(Box::new(csv::Sampler::new(
                dialect.clone(),
                max_rows,
                max_record_bytes,
            )?)),
            Self::Jsonl => {
                Sampler::Jsonl(Box::new(jsonl::Sampler::new(max_rows, max_record_bytes)))
            }
            Self::Json => {
                let sampler = jsonl::Sampler::of_documents(max_rows, max_record_bytes);
                Sampler::Jsonl(Box::new(sampler))
            }
        })
    }

    /// An encoder of batches of `schema`.
    ///
    /// Errors: those of the encoders, and `unknown_format` for JSON documents.
    pub fn encoder(&self, schema: SchemaRef) -> Result<Encoder, FormatError> {
        Ok(match self {
            Self::Csv(dialect) => {
                Encoder::Csv(Box::new(csv::Encoder::new(schema, dialect.clone())?))
            }
            Self::Jsonl => Encoder::Jsonl(Box::new(jsonl::Encoder::new(schema)?)),
            Self::Json => return Err(Self::refuse_documents()),
        })
    }
}

impl Format {
    /// The error for a JSON document that is to be written. Its `column` is the key to change.
    pub fn refuse_documents() -> FormatError {
        let text = "JSON documents are only read, and not written";
        FormatError::new("unknown_format", text)
            .hint("write JSON Lines: set format: jsonl")
            .column("format")
    }
}

/// A sampler of either format.
pub enum Sampler {
    /// Of CSV.
    Csv(Box<csv::Sampler>),
    /// Of JSON Lines and JSON documents.
    Jsonl(Box<jsonl::Sampler>),
}

/// An encoder of either format.
pub enum Encoder {
    /// Of CSV.
    Csv(Box<csv::Encoder>),
    /// Of JSON Lines.
    Jsonl(Box<jsonl::Encoder>),
}

macro_rules! either {
    ($self:ident, $name:ident => $call:expr) => {
        match $self {
            Self::Csv($name) => $call,
            Self::Jsonl($name) => $call,
        }
    };
}

impl Sampler {
    /// The same, which passes over records that a decoder cannot read.
    #[must_use]
    pub fn lenient(self) -> Self {
        match self {
            Self::Csv(sampler) => Self::Csv(Box::new(sampler.lenient())),
            Self::Jsonl(sampler) => Self::Jsonl(Box::new(sampler.lenient())),
        }
    }

    /// The columns so far.
    pub fn columns(&self) -> usize {
        either!(self, sampler => sampler.columns())
    }

    /// Begins a file.
    pub fn begin_file(&mut self) {
        either!(self, sampler => sampler.begin_file());
    }

    /// Reads the next bytes of the file, until there are enough rows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        either!(self, sampler => sampler.push(bytes))
    }

    /// True if the file's header is wanted and has not come yet, however many rows there are.
    pub fn wants_header(&self) -> bool {
        match self {
            Self::Csv(sampler) => sampler.wants_header(),
            Self::Jsonl(_) => false,
        }
    }

    /// True once there are enough rows.
    pub fn is_done(&self) -> bool {
        either!(self, sampler => sampler.is_done())
    }

    /// Sampled rows so far.
    pub fn rows(&self) -> u64 {
        either!(self, sampler => sampler.rows())
    }

    /// The file ends here.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        either!(self, sampler => sampler.end_of_file())
    }

    /// Ends the sample before the end of the file.
    pub fn end_of_sample(&mut self) {
        either!(self, sampler => sampler.end_of_sample());
    }

    /// The guess.
    pub fn finish(self) -> Result<csv::Inferred, FormatError> {
        either!(self, sampler => sampler.finish())
    }
}

impl Encoder {
    /// Appends the bytes before the first row.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        if let Self::Csv(encoder) = self {
            encoder.write_header(out);
        }
    }

    /// Appends rows from place `from` on; see [`csv::Encoder::encode`].
    pub fn encode(
        &self,
        rows: Picked<'_>,
        from: usize,
        out: &mut Vec<u8>,
        until_bytes: usize,
    ) -> Result<usize, FormatError> {
        either!(self, encoder => encoder.encode(rows, from, out, until_bytes))
    }
}
