//! One door to both formats, for programs that let their configuration choose.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::arrow::{ArrowFile, ArrowReader};
use crate::parquet::{ParquetFile, ParquetReader};
use crate::{ColumnarError, Limits, ReadAt};
use rapidbyte_wire::name::shown;

/// Which format a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC: the file format, and the stream format for reading.
    Arrow,
}

/// An open file whose footer was read.
pub struct File<R>(Footer<R>);

enum Footer<R> {
    Parquet(Box<ParquetFile<R>>),
    Arrow(Box<ArrowFile<R>>),
}

/// Gives the batches of one file.
pub struct Reader<R>(Either<R>);

enum Either<R> {
    Parquet(Box<ParquetReader<R>>),
    Arrow(Box<ArrowReader<R>>),
}

macro_rules! either {
    ($self:expr, $kind:ident, $name:ident => $call:expr) => {
        match $self {
            $kind::Parquet($name) => $call,
            $kind::Arrow($name) => $call,
        }
    };
}

impl<R: ReadAt> File<R> {
    /// Reads the footer and checks it against the file. No values are read.
    ///
    /// Errors: `parquet_malformed`, `parquet_encrypted`, `arrow_malformed`, `arrow_feather_v1`,
    /// `unsupported_type`, `page_too_large`, `file_io`.
    pub fn open(kind: Kind, source: Arc<R>) -> Result<Self, ColumnarError> {
        Ok(Self(match kind {
            Kind::Parquet => Footer::Parquet(Box::new(ParquetFile::open(source)?)),
            Kind::Arrow => Footer::Arrow(Box::new(ArrowFile::open(source)?)),
        }))
    }

    /// All columns, as portable types.
    pub fn schema(&self) -> &SchemaRef {
        either!(&self.0, Footer, file => file.schema())
    }

    /// The file's own name of each column's type.
    pub fn source_types(&self) -> &[String] {
        either!(&self.0, Footer, file => file.source_types())
    }

    /// Decisions about columns, with their reasons.
    pub fn notes(&self) -> &[String] {
        either!(&self.0, Footer, file => file.notes())
    }

    /// Rows, as the footer says.
    pub fn rows(&self) -> u64 {
        either!(&self.0, Footer, file => file.rows())
    }

    /// Begins to read the columns named in `wanted`, in that order; without `wanted`, all columns.
    ///
    /// Errors: `unknown_column`, and the errors of [`Reader::next_batch`].
    pub fn read(
        &self,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Reader<R>, ColumnarError> {
        self.read_as(self.schema(), wanted, limits)
    }

    /// The same with the columns as `schema` has them, which is [`merge`](crate::merge)d of this
    /// file's and others': in its order, nullable where this file's are not.
    ///
    /// Errors: as of [`read`](Self::read); `value_does_not_fit` where a type is another one.
    pub fn read_as(
        &self,
        schema: &SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Reader<R>, ColumnarError> {
        let given = project(schema, wanted)?;
        let names = given.fields().iter().map(|field| field.name().clone());
        let names: Vec<_> = names.collect();
        let places = places(self.schema(), Some(&names))?;
        Ok(Reader(match &self.0 {
            Footer::Parquet(file) => Either::Parquet(Box::new(file.read(&places, given, limits)?)),
            Footer::Arrow(file) => Either::Arrow(Box::new(file.read(&places, given, limits)?)),
        }))
    }
}

impl<R: ReadAt> Reader<R> {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        either!(&self.0, Either, reader => reader.schema())
    }

    /// Memory that the file takes while it is read: many columns of Parquet have a dictionary and a page each. 0 where
    /// the limits bound it.
    ///
    /// Errors: as of [`next_batch`](Self::next_batch).
    pub fn needed_bytes(&self) -> Result<u64, ColumnarError> {
        match &self.0 {
            Either::Parquet(reader) => reader.needed_bytes(),
            Either::Arrow(_) => Ok(0),
        }
    }

    /// The next batch, of about [`Limits::batch_bytes`]; `None` at the end of the file.
    ///
    /// Errors: `parquet_malformed`, `arrow_malformed`, `page_too_large`, `batch_too_large`,
    /// `record_too_large`, `value_does_not_fit`, `unsupported_type`, `file_io`.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ColumnarError> {
        either!(&mut self.0, Either, reader => reader.next_batch())
    }
}

/// The places of the wanted columns.
/// The wanted columns of a schema, in the order in which they are wanted; all without `wanted`.
///
/// Errors: `unknown_column`, also for a column that is wanted twice.
pub fn project(schema: &SchemaRef, wanted: Option<&[String]>) -> Result<SchemaRef, ColumnarError> {
    let fields = places(schema, wanted)?;
    let fields = fields.into_iter().map(|place| schema.field(place).clone());
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

fn places(schema: &SchemaRef, wanted: Option<&[String]>) -> Result<Vec<usize>, ColumnarError> {
    let Some(wanted) = wanted else {
        return Ok((0..schema.fields().len()).collect());
    };
    let mut places = Vec::with_capacity(wanted.len());
    for name in wanted {
        let Some((place, _)) = schema.fields().find(name) else {
            let known: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            let text = format!("the file does not have a column {}", shown(name));
            return Err(ColumnarError::new("unknown_column", text)
                .hint(format!("use one of {}", known.join(", ")))
                .column(name));
        };
        if places.contains(&place) {
            let text = format!("column {} is selected twice", shown(name));
            return Err(ColumnarError::new("unknown_column", text).column(name));
        }
        places.push(place);
    }
    Ok(places)
}
