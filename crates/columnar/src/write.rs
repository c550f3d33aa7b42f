//! Writing: what a type becomes in a file, and the writers of both formats.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};
use rapidbyte_wire::types;

use crate::arrow::ArrowWriter;
use crate::parquet::write::ParquetWriter;
use crate::{ColumnarError, Kind, WriteOptions, parquet, portable};

/// Whether a file can hold the values of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All of them, and they are read back as the same type.
    Exact,
    /// All of them, as a wider type.
    Widened,
    /// No.
    Refused,
}

/// The form of a column in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// The file's own name of the type; empty if it is refused.
    pub type_name: String,
    /// Whether its values stay the same.
    pub fit: Fit,
    /// A note about the form, or why the column is refused.
    pub note: Option<String>,
}

/// The form of a column in a file of this kind.
pub fn form(kind: Kind, field: &Field) -> Form {
    let refused = |note: String| Form {
        type_name: String::new(),
        fit: Fit::Refused,
        note: Some(note),
    };
    match kind {
        Kind::Arrow => match portable::portable_field(field) {
            Ok(back) => Form {
                type_name: types::type_name(field),
                fit: exact_if(back.data_type() == field.data_type()),
                note: portable::changes(field),
            },
            Err(error) => refused(error.message),
        },
        Kind::Parquet => {
            let stored = match parquet::write::stored_type(field.data_type()) {
                Ok(stored) => stored,
                Err(reason) => return refused(reason),
            };
            let widened = stored != *field.data_type();
            let stored = field.clone().with_data_type(stored);
            let back = portable::changes(field);
            match parquet::write::type_name(&stored) {
                Err(error) => refused(error.message),
                Ok(type_name) => Form {
                    type_name,
                    fit: exact_if(!widened && back.is_none()),
                    note: match (widened, field.data_type()) {
                        _ if back.is_some() => back,
                        (true, _) => Some(
                            "Parquet has no unit of seconds: milliseconds are \
                             written"
                                .into(),
                        ),
                        (_, DataType::Duration(_)) => Some(
                            "the unit is in ARROW:schema; readers without Arrow see a number"
                                .into(),
                        ),
                        _ => None,
                    },
                },
            }
        }
    }
}

fn exact_if(is_exact: bool) -> Fit {
    if is_exact { Fit::Exact } else { Fit::Widened }
}

/// Writes one file.
pub struct FileWriter<W: Write + Send>(Either<W>);

enum Either<W: Write + Send> {
    Parquet(Box<ParquetWriter<W>>),
    Arrow(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> FileWriter<W> {
    /// Begins a file of batches of `schema`.
    ///
    /// Errors: `unsupported_type` (see [`form`]), `no_columns`, `file_io`.
    pub fn new(
        kind: Kind,
        schema: SchemaRef,
        options: &WriteOptions,
        sink: W,
    ) -> Result<Self, ColumnarError> {
        if kind == Kind::Parquet && schema.fields().is_empty() {
            let text = "Parquet cannot hold rows without columns";
            return Err(ColumnarError::new("no_columns", text).hint("write JSON Lines"));
        }
        for field in schema.fields() {
            let form = form(kind, field);
            if form.fit == Fit::Refused {
                let reason = form.note.unwrap_or_default();
                return Err(ColumnarError::unsupported(field.name(), reason));
            }
        }
        Ok(Self(match kind {
            Kind::Parquet => Either::Parquet(Box::new(ParquetWriter::new(&schema, options, sink)?)),
            Kind::Arrow => Either::Arrow(Box::new(ArrowWriter::new(schema, options, sink)?)),
        }))
    }

    /// Writes the rows of a batch.
    ///
    /// Errors: `value_does_not_fit`, `too_many_row_groups`, `schema_mismatch`, `file_io`.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        match &mut self.0 {
            Either::Parquet(writer) => writer.write(batch),
            Either::Arrow(writer) => writer.write(batch),
        }
    }

    /// Bytes of memory that depend on the data: the row group so far.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Either::Parquet(writer) => writer.held_bytes(),
            Either::Arrow(_) => 0,
        }
    }

    /// About how many bytes the row group so far will have in the file.
    pub fn pending_bytes(&self) -> usize {
        match &self.0 {
            Either::Parquet(writer) => writer.pending_bytes(),
            Either::Arrow(_) => 0,
        }
    }

    /// Writes what is left and the footer, and gives the sink back.
    ///
    /// Errors: `too_many_row_groups`, `file_io`.
    pub fn finish(self) -> Result<W, ColumnarError> {
        match self.0 {
            Either::Parquet(writer) => writer.finish(),
            Either::Arrow(writer) => writer.finish(),
        }
    }
}
