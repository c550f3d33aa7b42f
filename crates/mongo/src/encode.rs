//! Arrow to BSON: a document for each row of a batch.
//!
//! | Arrow | BSON |
//! | --- | --- |
//! | `bool` | bool |
//! | `int8`, `int16`, `int32`, `uint8`, `uint16` | int32 |
//! | `int64`, `uint32`; `uint64` up to 2^63 - 1 | int64 |
//! | `float16`, `float32`, `float64` | double, each bit of a float64 |
//! | `decimal(p, s)` with at most 34 digits in the value | Decimal128 with the exponent `-s` |
//! | `string` | string; ObjectId or Decimal128 where the column is [marked](crate::form::mark) so |
//! | `json` | the value that the JSON text is ([`JsonDocuments`]) |
//! | `binary`, `fixed_binary(n)` | binary, subtype 0 |
//! | `uuid` | binary, subtype 4 |
//! | `date`, `timestamp` of any unit | UTC datetime ([`SubMillisecond`]); without a zone it counts as UTC |
//! | `time`, `duration`, `interval` | string, as a JSON file has them |
//! | `list<T>` | array |
//! | `struct<…>`, `map<string, T>` | document |
//! | NULL | null, or no field ([`Nulls`]) |
//! | native columns of MongoDB | the value as it is; all fields of a whole document |

mod cells;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use crate::error::{MongoError, Owner, Problem};
use crate::put;
use cells::Column;

/// What becomes of NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nulls {
    /// The document has the value null.
    #[default]
    Write,
    /// The document does not have the field. An element of an array is null all the same.
    Omit,
}

/// What becomes of a time that is finer than a millisecond, which a UTC datetime cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubMillisecond {
    /// It is refused.
    #[default]
    Refuse,
    /// The time is cut to the millisecond before it.
    Cut,
    /// All values of a column that is finer than milliseconds are strings, such as `2026-01-01T00:00:00.123456Z`.
    Text,
}

/// What becomes of JSON documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JsonDocuments {
    /// Documents, arrays and other values, by the rules of Extended JSON.
    #[default]
    Values,
    /// The text, as a string.
    Text,
}

/// How values are written that BSON does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the types say it")]
pub struct EncodeOptions {
    pub nulls: Nulls,
    pub sub_millisecond: SubMillisecond,
    pub json: JsonDocuments,
}

/// Makes documents of the batches of one schema.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Int64Array, RecordBatch};
/// use rapidbyte_mongo::{EncodeOptions, Encoder};
///
/// let n = Arc::new(Int64Array::from(vec![1, 2]));
/// let batch = RecordBatch::try_from_iter([("n", n as _)])?;
/// let encoder = Encoder::new(&batch.schema(), EncodeOptions::default())?;
/// let rows = encoder.rows(&batch)?;
/// let mut documents = Vec::new();
/// for row in 0..rows.len() {
///     rows.document(row, &mut documents)?;
/// }
/// assert_eq!(documents.len(), 2 * (4 + 1 + 2 + 8 + 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Encoder {
    schema: SchemaRef,
    options: EncodeOptions,
}

impl Encoder {
    /// An encoder for batches of this schema.
    ///
    /// # Errors
    /// `type_refused` and `invalid_name` with the column.
    pub fn new(schema: &Schema, options: EncodeOptions) -> Result<Self, MongoError> {
        let schema = SchemaRef::new(schema.clone());
        let encoder = Self { schema, options };
        // An empty batch meets every type.
        encoder.rows(&RecordBatch::new_empty(encoder.schema.clone()))?;
        Ok(encoder)
    }

    /// The rows of a batch, ready to be written.
    ///
    /// # Errors
    /// `malformed_batch` if the batch has other columns.
    pub fn rows(&self, batch: &RecordBatch) -> Result<Rows, MongoError> {
        if batch.num_columns() != self.schema.fields().len() {
            let text = "a batch has other columns than its schema";
            return Err(MongoError::new(Owner::Internal, "malformed_batch", text));
        }
        let columns = self.schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, array)| Column::new(field, array, self.options));
        Ok(Rows {
            columns: columns.collect::<Result<_, _>>()?,
            len: batch.num_rows(),
        })
    }
}

/// The rows of one batch.
pub struct Rows {
    columns: Vec<Column>,
    len: usize,
}

impl Rows {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without a row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the document of a row. After an error `out` is as before.
    ///
    /// # Errors
    /// `value_does_not_fit`, `mongo_invalid_json`, `mongo_invalid_bson` and `record_too_large` with column and row.
    pub fn document(&self, row: usize, out: &mut Vec<u8>) -> Result<(), MongoError> {
        let start = put::begin(out);
        if let Err(error) = self.elements(row, out) {
            out.truncate(start);
            return Err(error);
        }
        put::end(out, start).map_err(|_| {
            out.truncate(start);
            let text = "a document above 2 GiB";
            MongoError::new(Owner::Data, "record_too_large", text).in_row(row)
        })
    }

    /// Appends the fields of a row, without the length and the end of a document: the caller writes more fields around
    /// them. After an error `out` may have some of the fields.
    ///
    /// # Errors
    /// As [`Rows::document`].
    #[inline]
    pub fn elements(&self, row: usize, out: &mut Vec<u8>) -> Result<(), MongoError> {
        for column in &self.columns {
            if let Err(problem) = column.write(row, out) {
                return Err(failed(column, problem, row));
            }
        }
        Ok(())
    }
}

#[cold]
fn failed(column: &Column, problem: Problem, row: usize) -> MongoError {
    problem.at(column.name()).in_row(row)
}
